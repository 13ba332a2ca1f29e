//! The functions of CEL and of Kubernetes' libraries, parsed once from `declarations.txt`.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use super::types::Type;

/// Lines `name: (arguments) result` or `name: target.(arguments) result`, in the order in which cel-go tries the
/// overloads of a name. A number before the name is the first minor version of Kubernetes that has the overload;
/// overloads without a number are in all supported versions. A type with a name of one capital letter is a type
/// parameter. The word after `!` is the [`Mismatch`] of the function; the default is [`Mismatch::Types`].
const TEXT: &str = include_str!("declarations.txt");

/// The run-time error of a function if no overload accepts the argument types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mismatch {
    /// The error contains the function and the types of the arguments. cel-go compares the types before the call.
    Types,
    /// The error contains the function. cel-go compares the kind of the first argument, and the function checks the
    /// others.
    Named,
    /// The error does not contain names. The function checks its arguments itself.
    Plain,
}

/// One overload of a function.
#[derive(Debug)]
pub(super) struct Overload {
    /// First minor version of Kubernetes with this overload.
    pub(super) since: u8,
    pub(super) is_method: bool,
    /// Types of the arguments; for a method, the first is the type of the target. Type parameters are numbered from 0.
    pub(super) args: Vec<Type>,
    pub(super) result: Type,
    pub(super) parameters: usize,
    mismatch: Mismatch,
}

/// Returns the overloads of a function; empty if the function is not declared.
pub(super) fn overloads(name: &str) -> &'static [Overload] {
    all().get(name).map_or(&[], Vec::as_slice)
}

/// Returns `true` if the environment of a minor version declares this function.
pub(crate) fn is_function(name: &str, minor: u8) -> bool {
    overloads(name).iter().any(|it| it.since <= minor)
}

/// Returns the [`Mismatch`] of a function.
pub(crate) fn mismatch(name: &str) -> Mismatch {
    overloads(name).first().map_or(Mismatch::Types, |it| it.mismatch)
}

/// Returns `true` if an overload of a function or operator accepts the first `count` arguments. `fits` compares a
/// declared type with the argument at an index.
pub(crate) fn has_overload(name: &str, is_method: bool, count: usize, fits: impl Fn(&Type, usize) -> bool) -> bool {
    overloads(name).iter().any(|it| {
        let mut args = it.args.iter().take(count).enumerate();
        it.is_method == is_method && it.args.len() >= count && args.all(|(at, kind)| fits(kind, at))
    })
}

fn all() -> &'static BTreeMap<&'static str, Vec<Overload>> {
    static ALL: OnceLock<BTreeMap<&'static str, Vec<Overload>>> = OnceLock::new();
    ALL.get_or_init(|| {
        let mut all: BTreeMap<&'static str, Vec<Overload>> = BTreeMap::new();
        for (name, overload) in TEXT.lines().filter_map(line) {
            all.entry(name).or_default().push(overload);
        }
        all
    })
}

fn line(line: &'static str) -> Option<(&'static str, Overload)> {
    let (line, mismatch) = match line.split_once(" !") {
        Some((line, "named")) => (line, Mismatch::Named),
        Some((line, _)) => (line, Mismatch::Plain),
        None => (line, Mismatch::Types),
    };
    let (name, signature) = line.split_once(": ")?;
    let (since, name) = name.split_once(' ').unwrap_or(("0", name));
    let since = since.parse().ok()?;
    let mut reader = Reader {
        rest: signature,
        parameters: Vec::new(),
    };
    let mut args = Vec::new();
    let is_method = !signature.starts_with('(');
    if is_method {
        args.push(reader.one()?);
        reader.rest = reader.rest.strip_prefix('.')?;
    }
    args.extend(reader.list()?);
    let result = reader.one()?;
    Some((
        name,
        Overload {
            since,
            is_method,
            args,
            result,
            parameters: reader.parameters.len(),
            mismatch,
        },
    ))
}

/// Parser of the types in one line of the declarations.
struct Reader {
    rest: &'static str,
    parameters: Vec<&'static str>,
}

impl Reader {
    fn one(&mut self) -> Option<Type> {
        self.rest = self.rest.trim_start_matches([' ', ',']);
        let is_part = |it: char| it.is_ascii_alphanumeric() || "_.".contains(it);
        let end = self.rest.find(|it| !is_part(it)).unwrap_or(self.rest.len());
        // The dot before the arguments of a method is not part of the name of its target.
        let name = self.rest[..end].trim_end_matches('.');
        self.rest = &self.rest[name.len()..];
        Some(match name {
            "dyn" => Type::Dyn,
            "any" => Type::Any,
            "bool" => Type::Bool,
            "int" => Type::Int,
            "uint" => Type::Uint,
            "double" => Type::Double,
            "string" => Type::String,
            "bytes" => Type::Bytes,
            "duration" => Type::Duration,
            "timestamp" => Type::Timestamp,
            "list" => Type::list(self.list()?.pop()?),
            "type" => self.list()?.pop()?.of_type(),
            "map" => {
                let mut parts = self.list()?;
                let values = parts.pop()?;
                Type::map(parts.pop()?, values)
            }
            "optional_type" => Type::optional(self.list()?.pop()?),
            parameter if parameter.len() == 1 => {
                let known = self.parameters.iter().position(|it| *it == parameter);
                Type::Param(known.unwrap_or_else(|| {
                    self.parameters.push(parameter);
                    self.parameters.len() - 1
                }))
            }
            "" => return None,
            library => Type::opaque(library),
        })
    }

    /// Parses a list of types in parentheses.
    fn list(&mut self) -> Option<Vec<Type>> {
        self.rest = self.rest.strip_prefix('(')?;
        let mut found = Vec::new();
        loop {
            if let Some(rest) = self.rest.strip_prefix(')') {
                self.rest = rest;
                return Some(found);
            }
            found.push(self.one()?);
        }
    }
}
