//! `Type`: a type of the checker, with its name in errors.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::registry::cel::cost::decl::{Decl, DeclKind};

/// Maximum number of types that a type may consist of. Each nested macro can double the type of its variable, so a few
/// dozen macros would exhaust the memory. A larger type becomes `dyn`.
const SIZE_MAX: usize = 2_000;

/// A CEL type, as determined by the checker.
#[derive(Clone, Debug)]
#[allow(clippy::enum_variant_names, reason = "the type of types has this name in CEL")]
pub(crate) enum Type {
    Dyn,
    /// Determined only at run time, like `dyn`.
    Any,
    /// The type of a node with an error.
    Error,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Duration,
    Timestamp,
    /// The type of a type.
    Type(Option<Arc<Type>>),
    List(Arc<Type>),
    /// A map, with the types of its keys and values.
    Map(Arc<Type>, Arc<Type>),
    /// An object with declared fields.
    Struct(StructType),
    /// A type of a library, such as `kubernetes.Quantity`, or an optional type.
    Opaque(Arc<str>, Vec<Type>),
    /// A type parameter, resolved during the check.
    Param(usize),
}

/// An object with declared fields.
#[derive(Clone, Debug)]
pub(crate) enum StructType {
    /// A struct that is declared by a schema.
    Declared(Arc<Decl>),
    /// A struct that is declared by a table of fields.
    Table(Arc<Table>),
    /// A part of the object that a mutation creates, with its path below `Object`. Its fields may have any type.
    Part(Arc<str>),
    /// The type `JSONPatch`.
    Patch,
}

/// A struct type: its name, and its fields with their types.
#[derive(Debug)]
pub(crate) struct Table {
    name: String,
    fields: BTreeMap<String, Type>,
}

/// Name of optional types.
const OPTIONAL: &str = "optional_type";

impl Type {
    pub(crate) fn list(items: Self) -> Self {
        Self::List(Arc::new(items)).bounded()
    }

    pub(crate) fn map(keys: Self, values: Self) -> Self {
        Self::Map(Arc::new(keys), Arc::new(values)).bounded()
    }

    pub(crate) fn optional(inner: Self) -> Self {
        Self::Opaque(OPTIONAL.into(), vec![inner]).bounded()
    }

    pub(crate) fn opaque(name: &str) -> Self {
        Self::Opaque(name.into(), Vec::new())
    }

    /// Returns the type of this type, which is the type of `type(x)`.
    pub(crate) fn of_type(self) -> Self {
        Self::Type(Some(Arc::new(self)))
    }

    /// Returns the type inside an optional type.
    pub(crate) fn inner(&self) -> Option<&Self> {
        match self {
            Self::Opaque(name, parts) if &**name == OPTIONAL => parts.first(),
            _ => None,
        }
    }

    /// Returns `true` for the library types that Go declares as objects without fields.
    pub(super) fn is_object(&self) -> bool {
        matches!(self, Self::Opaque(name, _) if !["net.IP", "net.CIDR", OPTIONAL].contains(&&**name))
    }

    pub(super) fn is_dyn(&self) -> bool {
        matches!(self, Self::Dyn | Self::Any)
    }

    pub(super) fn is_dyn_or_error(&self) -> bool {
        matches!(self, Self::Dyn | Self::Any | Self::Error)
    }

    /// Returns `true` if the types are the same.
    pub(crate) fn is_exactly(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Type(one), Self::Type(other)) => match (one, other) {
                (Some(one), Some(other)) => one.is_exactly(other),
                (None, None) => true,
                _ => false,
            },
            (Self::List(one), Self::List(other)) => one.is_exactly(other),
            (Self::Map(key, value), Self::Map(other_key, other_value)) => {
                key.is_exactly(other_key) && value.is_exactly(other_value)
            }
            (Self::Struct(one), Self::Struct(other)) => one.is_same(other),
            (Self::Opaque(name, parts), Self::Opaque(other_name, others)) => {
                let is_same = name == other_name && parts.len() == others.len();
                is_same && parts.iter().zip(others).all(|(one, other)| one.is_exactly(other))
            }
            (Self::Param(one), Self::Param(other)) => one == other,
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }

    /// Returns the name of the type at run time, as printed in errors about the result of an expression.
    pub(crate) fn runtime_name(&self) -> String {
        let join = |parts: &[&Self]| {
            let parts: Vec<String> = parts.iter().map(|it| it.runtime_name()).collect();
            parts.join(", ")
        };
        match self {
            Self::Any => "google.protobuf.Any".to_owned(),
            Self::Null => "null_type".to_owned(),
            Self::Duration => "google.protobuf.Duration".to_owned(),
            Self::Timestamp => "google.protobuf.Timestamp".to_owned(),
            Self::Type(Some(inner)) => format!("type({})", inner.runtime_name()),
            Self::List(items) => format!("list({})", items.runtime_name()),
            Self::Map(keys, values) => format!("map({})", join(&[keys, values])),
            Self::Opaque(name, parts) if !parts.is_empty() => {
                format!("{name}({})", join(&parts.iter().collect::<Vec<_>>()))
            }
            other => other.to_string(),
        }
    }

    /// Returns the name of the type at run time, without its type arguments.
    pub(super) fn base_name(&self) -> String {
        match self {
            Self::List(_) => "list".to_owned(),
            Self::Map(..) => "map".to_owned(),
            Self::Type(_) => "type".to_owned(),
            Self::Opaque(name, _) => name.to_string(),
            other => other.runtime_name(),
        }
    }

    /// Returns the number of types that this type consists of, or `most + 1` if there are more.
    fn size(&self, most: usize) -> usize {
        let mut sum = 1;
        let mut add = |part: &Self| {
            if sum <= most {
                sum += part.size(most - sum);
            }
        };
        match self {
            Self::List(inner) | Self::Type(Some(inner)) => add(inner),
            Self::Map(keys, values) => {
                add(keys);
                add(values);
            }
            Self::Opaque(_, parts) => parts.iter().for_each(add),
            _ => {}
        }
        sum
    }

    fn bounded(self) -> Self {
        match self.size(SIZE_MAX) > SIZE_MAX {
            true => Self::Dyn,
            false => self,
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::Dyn => "dyn",
            Self::Any => "any",
            Self::Error => "!error!",
            Self::Null => "null",
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Uint => "uint",
            Self::Double => "double",
            Self::String => "string",
            Self::Bytes => "bytes",
            Self::Duration => "duration",
            Self::Timestamp => "timestamp",
            Self::Type(None) => "type",
            Self::Type(Some(inner)) => return write!(f, "type({inner})"),
            Self::List(items) => return write!(f, "list({items})"),
            Self::Map(keys, values) => return write!(f, "map({keys}, {values})"),
            Self::Struct(named) => named.name(),
            Self::Opaque(name, parts) => {
                f.write_str(name)?;
                for (index, part) in parts.iter().enumerate() {
                    write!(f, "{}{part}", if index == 0 { "(" } else { ", " })?;
                }
                return f.write_str(if parts.is_empty() { "" } else { ")" });
            }
            Self::Param(number) => return write!(f, "_var{number}"),
        };
        f.write_str(name)
    }
}

impl StructType {
    /// Creates a struct type with these fields.
    pub(crate) fn table(name: &str, fields: BTreeMap<String, Type>) -> Self {
        let name = name.to_owned();
        Self::Table(Arc::new(Table { name, fields }))
    }

    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Declared(decl) => match &decl.kind {
                DeclKind::Object { name, .. } => name,
                _ => "object",
            },
            Self::Table(table) => &table.name,
            Self::Part(name) => name,
            Self::Patch => "JSONPatch",
        }
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Declared(one), Self::Declared(other)) => Arc::ptr_eq(one, other),
            (Self::Declared(_), _) | (_, Self::Declared(_)) => false,
            (one, other) => one.name() == other.name(),
        }
    }

    /// Returns the type of a field. A reserved word is accepted both escaped and unescaped.
    pub(super) fn field(&self, name: &str) -> Option<Type> {
        match self {
            Self::Declared(decl) => {
                let field = decl.field_or_word(name);
                field.as_ref().map(Type::of)
            }
            Self::Table(table) => table.fields.get(name).cloned(),
            Self::Part(_) => Some(Type::Dyn),
            Self::Patch => match name {
                "op" | "path" | "from" => Some(Type::String),
                _ => Some(Type::Dyn),
            },
        }
    }
}

impl Type {
    /// Returns the type declared by a schema.
    pub(crate) fn of(decl: &Arc<Decl>) -> Self {
        match &decl.kind {
            DeclKind::Dyn => Self::Dyn,
            DeclKind::Bool => Self::Bool,
            DeclKind::Int => Self::Int,
            DeclKind::Double => Self::Double,
            DeclKind::String => Self::String,
            DeclKind::Bytes => Self::Bytes,
            DeclKind::Duration => Self::Duration,
            DeclKind::Timestamp => Self::Timestamp,
            DeclKind::List(items) => Self::list(Self::of(items)),
            DeclKind::Map(values) => Self::map(Self::String, Self::of(values)),
            DeclKind::Object { .. } => Self::Struct(StructType::Declared(Arc::clone(decl))),
        }
    }
}

/// Formats the argument types of a call for errors.
pub(super) fn show_call(types: &[Type], is_method: bool) -> String {
    let (target, args) = match (is_method, types) {
        (true, [target, args @ ..]) => (format!("{target}."), args),
        _ => (String::new(), types),
    };
    let args: Vec<String> = args.iter().map(Type::to_string).collect();
    format!("{target}({})", args.join(", "))
}
