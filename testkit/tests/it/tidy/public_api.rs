//! Compares the public API of `informer` with a listing next to the crate, so that each change of the API is visible in
//! a review. `DRYDOCK_API=write cargo test -p drydock-testkit --test it public_api` writes the listing.
//!
//! The listing is derived from the source text, so it does not require a nightly compiler. It contains the declarations
//! that are reachable from the root of the crate, with their public fields, variants, methods and implemented traits.
//! It contains neither items that macros generate nor traits that the compiler implements, such as `Send`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;

use super::{Source, literal_length, root, sources};

const LISTING: &str = "informer/public-api.txt";

/// Environment variable for writing the listing instead of comparing it.
const WRITE: &str = "DRYDOCK_API";

/// Attributes that are a part of the API.
const ATTRIBUTES: [&str; 5] = [
    "#[cfg(",
    "#[deprecated",
    "#[derive(",
    "#[doc(hidden)",
    "#[non_exhaustive",
];

/// Keywords that are followed by the name of a declaration.
const KINDS: [&str; 9] = [
    "const", "enum", "fn", "mod", "static", "struct", "trait", "type", "union",
];

#[test]
fn public_api_matches_its_listing() {
    let (file, found) = (root().join(LISTING), listing(&sources("informer/src")));
    if std::env::var(WRITE).is_ok_and(|it| it == "write") {
        fs::write(&file, &found).expect("the file is writable");
    }
    let listed = fs::read_to_string(&file).expect("the listing exists");
    let (before, after) = (with_items(&listed), with_items(&found));
    let removed = before.difference(&after).map(|it| format!("- {it}\n"));
    let added = after.difference(&before).map(|it| format!("+ {it}\n"));
    let changes: String = removed.chain(added).collect();
    assert!(
        listed.lines().eq(found.lines()),
        "\n{changes}\nThe public API has changed. If this is intended, write the listing with {WRITE}=write, and \
         describe the change in CHANGELOG.md"
    );
}

/// Returns the lines of a listing, each with the item that it belongs to.
fn with_items(listing: &str) -> BTreeSet<String> {
    let mut item = "";
    let lines = listing.lines().map(|line| {
        if !line.starts_with(' ') {
            item = line;
        }
        format!("{item}: {}", line.trim())
    });
    lines.collect()
}

/// The lines of an item in the listing.
#[derive(Default)]
struct Entry {
    declaration: Vec<String>,
    /// Public methods and associated types, by the first line of the `impl` block.
    impls: BTreeMap<String, Vec<String>>,
}

/// Returns the listing of the crate. Items are sorted by their public paths.
fn listing(sources: &[Source]) -> String {
    let mut api = Api::default();
    for source in sources {
        let is_code = |it: &&str| !it.starts_with("//") && !it.starts_with("/*");
        let code: String = pieces(&source.text).into_iter().filter(is_code).collect();
        api.read(&module_of(source), &code);
    }
    let mut text =
        "# Public API of informer; testkit/tests/it/tidy/public_api.rs compares and writes this file.\n".to_owned();
    for (path, entry) in api.entries() {
        let _ = writeln!(text, "{path}");
        for line in entry.declaration {
            let _ = writeln!(text, "    {line}");
        }
        for (head, mut lines) in entry.impls {
            let _ = writeln!(text, "    {head}");
            lines.sort();
            for line in lines {
                let _ = writeln!(text, "        {line}");
            }
        }
    }
    text
}

/// Returns the path of a file's module, such as `cache::reflector`; empty for the root of the crate.
fn module_of(source: &Source) -> String {
    let mut parts = source.parts();
    match parts.pop() {
        None | Some("lib.rs" | "mod.rs") => {}
        Some(file) => parts.push(file.trim_end_matches(".rs")),
    }
    parts.join("::")
}

/// The items of the crate, by the paths of the modules that declare them.
#[derive(Default)]
struct Api {
    /// Public declarations and re-exports.
    public: BTreeSet<String>,
    private: BTreeSet<String>,
    /// The names that modules import, with the items that they refer to; `None` for items of other crates.
    imports: BTreeMap<String, Option<String>>,
    exports: Vec<Export>,
    /// Public declarations, and re-exports of other crates' items, with their paths.
    declarations: Vec<(String, Item)>,
    /// `impl` blocks with their modules.
    impls: Vec<(String, Item)>,
}

/// A re-export of an item of the crate.
struct Export {
    target: String,
    path: String,
    attributes: Vec<String>,
}

impl Api {
    fn read(&mut self, module: &str, code: &str) {
        let items: Vec<Item> = items(code).into_iter().filter(|it| !it.is_test()).collect();
        let names = items.iter().filter_map(|it| named(&it.head));
        let children = names.filter(|(kind, _)| *kind == "mod");
        let children: BTreeSet<String> = children.map(|(_, name)| name.to_owned()).collect();
        for item in items {
            if let Some((visibility, tree)) = used(&item.head) {
                for (path, name) in leaves("", tree) {
                    let first = path.split("::").next().unwrap_or_default();
                    let is_inner = matches!(first, "crate" | "self" | "super") || children.contains(first);
                    let target = is_inner.then(|| absolute(module, &path));
                    let place = join(module, &name);
                    assert!(!is_inner || name != "*", "the names that {place} imports are unknown");
                    if visibility == "pub" {
                        self.export(place.clone(), target.clone(), &path, &item);
                    }
                    self.imports.insert(place, target);
                }
            } else if item.head.starts_with("impl ") || item.head.starts_with("impl<") {
                self.impls.push((module.to_owned(), item));
            } else if let Some((kind, name)) = named(&item.head) {
                let path = join(module, name);
                if kind == "mod"
                    && let Some(body) = &item.body
                {
                    self.read(&path, body);
                }
                if item.head.starts_with("pub ") {
                    self.public.insert(path.clone());
                    self.declarations.push((path, item));
                } else {
                    self.private.insert(path);
                }
            }
        }
    }

    fn export(&mut self, path: String, target: Option<String>, source: &str, item: &Item) {
        self.public.insert(path.clone());
        let attributes = item.attributes.clone();
        if let Some(target) = target {
            self.exports.push(Export {
                target,
                path,
                attributes,
            });
        } else {
            let (head, body) = (format!("pub use {source}"), None);
            self.declarations.push((path, Item { attributes, head, body }));
        }
    }

    /// Returns the path of an item for users of the crate; `None` if they cannot name it. A private module may have the
    /// same path as a public function.
    fn reach(&self, path: &str) -> Option<String> {
        if path.is_empty() {
            return Some(String::new());
        }
        let (module, name) = split(path);
        if self.public.contains(path)
            && !self.private.contains(module)
            && let Some(outer) = self.reach(module)
        {
            return Some(join(&outer, name));
        }
        let exports = self.exports.iter().filter(|it| it.target == path);
        exports.filter_map(|it| self.reach(&it.path)).min()
    }

    /// Returns the path of the declaration to which a path refers; `None` if the crate does not declare it.
    fn declaration(&self, path: &str) -> Option<String> {
        if let Some(item) = self.imports.get(path) {
            return self.declaration(item.as_deref()?);
        }
        if self.public.contains(path) || self.private.contains(path) {
            return Some(path.to_owned());
        }
        let (module, name) = split(path);
        let module = self.imports.get(module)?.as_deref()?;
        self.declaration(&join(module, name))
    }

    fn entries(&self) -> BTreeMap<String, Entry> {
        let mut entries: BTreeMap<String, Entry> = BTreeMap::new();
        for export in self.exports.iter().filter(|it| !it.attributes.is_empty()) {
            if let Some(path) = self.reach(&export.target) {
                let lines = export.attributes.iter().cloned();
                entries.entry(path).or_default().declaration.extend(lines);
            }
        }
        for (path, item) in &self.declarations {
            if let Some(path) = self.reach(path) {
                entries.entry(path).or_default().declaration.extend(item.lines());
            }
        }
        for (module, item) in &self.impls {
            let (implemented, name) = names_of_impl(&item.head);
            let names = [Some(name), implemented].into_iter().flatten();
            let declared = names.filter_map(|it| self.declaration(&absolute(module, it)));
            // `None` if the type or the trait is private.
            let reached: Option<Vec<String>> = declared.map(|it| self.reach(&it)).collect();
            let Some(path) = reached.unwrap_or_default().into_iter().next() else {
                continue;
            };
            let prefix = if implemented.is_some() { "type " } else { "pub " };
            let inner = items(item.body.as_deref().unwrap_or_default());
            let inner = inner.iter().filter(|it| it.head.starts_with(prefix));
            let lines: Vec<String> = inner.map(Item::with_attributes).collect();
            if implemented.is_some() || !lines.is_empty() {
                let impls = &mut entries.entry(path).or_default().impls;
                impls.entry(item.with_attributes()).or_default().extend(lines);
            }
        }
        entries
    }
}

/// A declaration, a field or a variant.
struct Item {
    /// The attributes that are a part of the API.
    attributes: Vec<String>,
    /// The text before the body, in one line.
    head: String,
    /// The text between the braces.
    body: Option<String>,
}

impl Item {
    fn new(text: &str, body: Option<&str>) -> Self {
        let (mut attributes, mut rest) = (Vec::new(), text.trim());
        while rest.starts_with('#') {
            let (attribute, after) = rest.split_at(position(rest, "]").map_or(rest.len(), |at| at + 1));
            attributes.push(one_line(attribute));
            rest = after.trim_start();
        }
        attributes.retain(|it| ATTRIBUTES.iter().any(|start| it.starts_with(start)));
        Self {
            attributes,
            head: one_line(rest),
            body: body.map(str::to_owned),
        }
    }

    /// Returns `true` if the item only exists in tests.
    fn is_test(&self) -> bool {
        let mut attributes = self.attributes.iter();
        attributes.any(|it| matches!(it.as_str(), "#[cfg(test)]" | "#[cfg(doctest)]"))
    }

    fn with_attributes(&self) -> String {
        let attributes = self.attributes.iter().map(|it| format!("{it} "));
        attributes.collect::<String>() + &self.head
    }

    /// Returns the lines of a declaration in the listing.
    fn lines(&self) -> Vec<String> {
        let kind = named(&self.head).map_or("", |(kind, _)| kind);
        let body = self.body.as_deref().unwrap_or_default();
        let inner = match kind {
            "enum" | "struct" => parts(body),
            "trait" => items(body),
            _ => Vec::new(),
        };
        let is_private = |it: &Item| kind == "struct" && !it.head.starts_with("pub ");
        let (private, public): (Vec<_>, Vec<_>) = inner.into_iter().partition(is_private);
        let mut lines = self.attributes.clone();
        lines.push(match (kind, &self.body) {
            ("struct", None) => without_private_fields(&self.head),
            _ => self.head.clone(),
        });
        lines.extend(public.iter().map(|it| {
            let end = if it.body.is_some() { " { .. }" } else { "" };
            format!("    {}{end}", it.with_attributes())
        }));
        lines.extend((!private.is_empty()).then(|| "    (private fields)".to_owned()));
        lines
    }
}

/// Splits code into literals, comments, names and single characters.
fn pieces(code: &str) -> Vec<&str> {
    let (mut pieces, mut rest) = (Vec::new(), code);
    while let Some(first) = rest.chars().next() {
        let length = match (literal_length(rest), identifier(rest).len()) {
            (0, 0) => first.len_utf8(),
            (0, length) | (length, _) => length,
        };
        let (piece, after) = rest.split_at(length);
        pieces.push(piece);
        rest = after;
    }
    pieces
}

/// Returns the identifier at the start of a text, or an empty string.
fn identifier(text: &str) -> &str {
    let end = text.find(|it: char| !(it.is_alphanumeric() || it == '_'));
    &text[..end.unwrap_or(text.len())]
}

/// Returns the pieces outside of brackets, and these brackets, with their positions. Angle brackets are only brackets in
/// types.
fn outside(text: &str, is_type: bool) -> Vec<(usize, &str)> {
    let (mut found, mut depth, mut at, mut before) = (Vec::new(), 0_i32, 0, "");
    for piece in pieces(text) {
        let change = match piece {
            "(" | "[" | "{" => 1,
            ")" | "]" | "}" => -1,
            "<" if is_type => 1,
            // Not the end of an arrow.
            ">" if is_type && !matches!(before, "-" | "=") => -1,
            _ => 0,
        };
        if depth.min(depth + change) == 0 {
            found.push((at, piece));
        }
        depth += change;
        at += piece.len();
        before = piece;
    }
    found
}

/// Returns the position of the first such piece outside of brackets.
fn position(text: &str, wanted: &str) -> Option<usize> {
    let found = outside(text, true).into_iter().find(|(_, piece)| *piece == wanted);
    found.map(|(at, _)| at)
}

/// Splits a type or a list at a separator outside of brackets.
fn split_outside<'a>(text: &'a str, separator: &str) -> Vec<&'a str> {
    let (mut found, mut start) = (Vec::new(), 0);
    for (at, piece) in outside(text, true) {
        if piece == separator {
            found.push(&text[start..at]);
            start = at + piece.len();
        }
    }
    found.push(&text[start..]);
    found
}

/// Splits code into its items. Each item ends with a semicolon or with its body.
fn items(code: &str) -> Vec<Item> {
    let (mut found, mut start, mut open) = (Vec::new(), 0, None);
    for (at, piece) in outside(code, false) {
        let item = match (piece, open) {
            (";", _) => Item::new(&code[start..at], None),
            ("}", Some(open)) => Item::new(&code[start..open], Some(&code[open + 1..at])),
            ("{", _) if used(&Item::new(&code[start..at], None).head).is_none() => {
                open = Some(at);
                continue;
            }
            _ => continue,
        };
        found.push(item);
        (start, open) = (at + 1, None);
    }
    found.retain(|it| !it.head.is_empty());
    found
}

/// Splits the fields or variants of a type.
fn parts(list: &str) -> Vec<Item> {
    let parts = split_outside(list, ",").into_iter().map(|it| Item::new(it, None));
    parts.filter(|it| !it.head.is_empty()).collect()
}

/// Joins the lines of a declaration, so that line breaks do not matter. Removes `mut` from parameters.
fn one_line(text: &str) -> String {
    let mut line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for (open, close) in [("(", ")"), ("<", ">"), ("[", "]"), ("{", "}")] {
        line = line.replace(&format!("{open} "), open);
        line = line
            .replace(&format!(", {close}"), close)
            .replace(&format!(" {close}"), close);
    }
    line = line.replace("(mut ", "(").replace(", mut ", ", ");
    line.strip_suffix(',').unwrap_or(&line).to_owned()
}

/// Returns the kind and the name of a declaration.
fn named(head: &str) -> Option<(&str, &str)> {
    let words: Vec<&str> = head.split(' ').collect();
    let mut pairs = words.windows(2);
    // A `const fn` is a function.
    let pair = pairs.find(|it| KINDS.contains(&it[0]) && !KINDS.contains(&it[1]))?;
    Some((pair[0], identifier(pair[1])))
}

/// Returns the visibility and the tree of an import.
fn used(head: &str) -> Option<(&str, &str)> {
    let is_visibility = |it: &str| it.starts_with("pub") && !it.contains(' ');
    match head.strip_prefix("use ") {
        Some(tree) => Some(("", tree)),
        None => head.split_once(" use ").filter(|(before, _)| is_visibility(before)),
    }
}

/// Returns the paths of a tree of imports, with the names under which they are imported.
fn leaves(prefix: &str, tree: &str) -> Vec<(String, String)> {
    if let Some((path, inner)) = tree.strip_suffix('}').and_then(|it| it.split_once('{')) {
        let prefix = format!("{prefix}{path}");
        return parts(inner).iter().flat_map(|it| leaves(&prefix, &it.head)).collect();
    }
    let path = format!("{prefix}{tree}");
    let path = path.strip_suffix("::self").unwrap_or(&path);
    let (path, name) = path.split_once(" as ").unwrap_or((path, split(path).1));
    vec![(path.to_owned(), name.to_owned())]
}

/// Replaces the private fields of a tuple struct with `_`.
fn without_private_fields(head: &str) -> String {
    let (Some(start), Some(end)) = (position(head, "("), position(head, ")")) else {
        return head.to_owned();
    };
    let fields = parts(&head[start + 1..end]).into_iter().map(|it| {
        if it.head.starts_with("pub ") {
            it.head
        } else {
            "_".to_owned()
        }
    });
    let fields: Vec<_> = fields.collect();
    format!("{}({}{}", &head[..start], fields.join(", "), &head[end..])
}

/// Returns the paths of the trait and the type in the first line of an `impl` block.
fn names_of_impl(head: &str) -> (Option<&str>, &str) {
    let words = split_outside(head, " ");
    let end = words.iter().position(|it| *it == "where").unwrap_or(words.len());
    match words.iter().position(|it| *it == "for") {
        Some(at) => (Some(type_path(&words[1..at])), type_path(&words[at + 1..end])),
        None => (None, type_path(&words[1..end])),
    }
}

/// Returns the path of a type without references and parameters.
fn type_path<'a>(words: &[&'a str]) -> &'a str {
    let mut words = words.iter().copied().map(|it| it.trim_start_matches('&'));
    let word = words.find(|it| !matches!(*it, "" | "dyn" | "mut") && !it.starts_with('\''));
    let word = word.unwrap_or_default();
    &word[..word.find(['<', '(']).unwrap_or(word.len())]
}

/// Returns the path within the crate to which a path in a module refers.
fn absolute(module: &str, path: &str) -> String {
    match path.split_once("::") {
        Some(("crate", rest)) => rest.to_owned(),
        Some(("self", rest)) => join(module, rest),
        Some(("super", rest)) => absolute(split(module).0, rest),
        _ => join(module, path),
    }
}

fn join(module: &str, name: &str) -> String {
    if module.is_empty() {
        name.to_owned()
    } else {
        format!("{module}::{name}")
    }
}

/// Splits a path into its module and its last name.
fn split(path: &str) -> (&str, &str) {
    path.rsplit_once("::").unwrap_or(("", path))
}

#[test]
fn impl_blocks_belong_to_the_types_that_their_modules_import() {
    let mut api = Api::default();
    api.read("", "pub mod one; pub mod other; mod code;");
    api.read("one", "pub struct Thing;");
    api.read("other", "pub struct Thing(u8, pub u8);");
    api.read(
        "code",
        "use std::fmt; use crate::other::Thing; impl Thing { pub fn make() {} } impl fmt::Debug for Thing {}
        #[cfg(test)] impl Clone for Thing {} #[cfg(not(test))] impl Copy for Thing {}",
    );
    let entries = api.entries();
    assert!(entries["one::Thing"].impls.is_empty());
    assert_eq!(entries["other::Thing"].declaration, ["pub struct Thing(_, pub u8)"]);
    let impls: Vec<&str> = entries["other::Thing"].impls.keys().map(String::as_str).collect();
    let expected = [
        "#[cfg(not(test))] impl Copy for Thing",
        "impl Thing",
        "impl fmt::Debug for Thing",
    ];
    assert_eq!(impls, expected);
}
