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

/// Crates with a listing.
const LISTED: [&str; 1] = ["informer"];

/// Name of the listing, in the folder of the crate.
const FILE: &str = "public-api.txt";

/// Environment variable for writing the listings instead of comparing them.
const WRITE: &str = "DRYDOCK_API";

/// Attributes that are a part of the API.
const ATTRIBUTES: [&str; 5] = [
    "#[cfg(",
    "#[deprecated",
    "#[derive(",
    "#[doc(hidden)",
    "#[non_exhaustive",
];

#[test]
fn public_api_matches_its_listing() {
    let mut failures = String::new();
    for name in LISTED {
        let file = root().join(name).join(FILE);
        let found = listing(name, &sources(&format!("{name}/src")));
        if std::env::var(WRITE).is_ok_and(|it| it == "write") {
            fs::write(&file, &found).expect("the file is writable");
        }
        let listed = fs::read_to_string(&file).expect("the listing exists");
        failures.push_str(&differences(&listed, &found));
    }
    assert!(
        failures.is_empty(),
        "\n{failures}\nThe public API has changed. If this is intended, write the listing with {WRITE}=write, and \
         describe the change in CHANGELOG.md"
    );
}

/// Returns the removed and the added lines, each with the item that it belongs to.
fn differences(listed: &str, found: &str) -> String {
    if listed.lines().eq(found.lines()) {
        return String::new();
    }
    let (before, after) = (with_items(listed), with_items(found));
    let mut text = String::new();
    for (mark, lines) in [("-", before.difference(&after)), ("+", after.difference(&before))] {
        for line in lines {
            let _ = writeln!(text, "{mark} {line}");
        }
    }
    if text.is_empty() {
        text.push_str("the lines have a different order\n");
    }
    text
}

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

/// Returns the listing of a crate. Items are sorted by their public paths.
fn listing(name: &str, sources: &[Source]) -> String {
    let mut api = Api::default();
    for source in sources {
        api.read(&module_of(source), &source.text);
    }
    let mut text =
        format!("# Public API of {name}; testkit/tests/it/tidy/public_api.rs compares and writes this file.\n");
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

/// The items of a crate, by the paths of the modules that declare them.
#[derive(Default)]
struct Api {
    /// Public declarations and re-exports.
    public: BTreeSet<String>,
    private: BTreeSet<String>,
    exports: Vec<Export>,
    /// Public declarations with their paths.
    declarations: Vec<(String, Item)>,
    /// `impl` blocks with their modules.
    impls: Vec<(String, Item)>,
    /// Re-exports of other crates' items, with their lines in the listing.
    foreign: Vec<(String, String)>,
}

/// A re-export of an item of the same crate.
struct Export {
    item: String,
    path: String,
    attributes: Vec<String>,
}

/// The declaration of a type.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    /// The type is a type parameter, or from another crate.
    Foreign,
    Private,
    /// The public path of the type.
    Public(String),
}

impl Api {
    fn read(&mut self, module: &str, code: &str) {
        let items = items(code);
        let children = items.iter().filter_map(|it| named(&it.head));
        let children: BTreeSet<String> = children
            .filter(|(kind, _)| *kind == "mod")
            .map(|(_, name)| name.to_owned())
            .collect();
        for item in items.into_iter().filter(|it| !it.is_test()) {
            if let Some(tree) = item.head.strip_prefix("pub use ") {
                for (path, name) in leaves("", tree) {
                    self.export(module, &children, &item, &path, &name);
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

    fn export(&mut self, module: &str, children: &BTreeSet<String>, item: &Item, path: &str, name: &str) {
        let first = path.split("::").next().unwrap_or(path);
        let exported = match path.strip_prefix("crate::") {
            Some(path) => path.to_owned(),
            None if children.contains(first) => join(module, path),
            None => {
                let line = item.with_attributes(&format!("pub use {path}"));
                return self.foreign.push((join(module, name), line));
            }
        };
        let path = join(module, name);
        self.public.insert(path.clone());
        self.exports.push(Export {
            item: exported,
            path,
            attributes: item.kept(),
        });
    }

    /// Returns the path of an item for users of the crate; `None` if they cannot name it.
    fn reach(&self, path: &str) -> Option<String> {
        let (module, name) = split(path);
        if self.public.contains(path)
            && let Some(outer) = self.reach_module(module)
        {
            return Some(join(&outer, name));
        }
        let exports = self.exports.iter().filter(|it| it.item == path);
        exports.filter_map(|it| self.reach(&it.path)).min()
    }

    /// Same as `reach`, for a module. A private module may have the same path as a public function.
    fn reach_module(&self, path: &str) -> Option<String> {
        if path.is_empty() {
            return Some(String::new());
        }
        if self.private.contains(path) {
            return None;
        }
        self.reach(path)
    }

    /// Finds the declaration of a type or trait that a module refers to by its last name.
    fn place(&self, module: &str, name: &str) -> Place {
        if !name.starts_with(|it: char| it.is_uppercase()) {
            return Place::Foreign;
        }
        let own = join(module, name);
        let all = || self.public.iter().chain(&self.private);
        let mut found: Vec<&String> = all().filter(|it| **it == own).collect();
        if found.is_empty() {
            found = all().filter(|it| split(it).1 == name).collect();
        }
        if found.is_empty() {
            return Place::Foreign;
        }
        let reached = found.into_iter().filter_map(|it| self.reach(it));
        reached.min().map_or(Place::Private, Place::Public)
    }

    fn entries(self) -> BTreeMap<String, Entry> {
        let mut entries: BTreeMap<String, Entry> = BTreeMap::new();
        for export in &self.exports {
            if let Some(path) = self.reach(&export.item).filter(|_| !export.attributes.is_empty()) {
                let lines = export.attributes.iter().cloned();
                entries.entry(path).or_default().declaration.extend(lines);
            }
        }
        for (path, item) in &self.declarations {
            if let Some(path) = self.reach(path) {
                entries.entry(path).or_default().declaration.extend(item.lines());
            }
        }
        for (path, line) in &self.foreign {
            let (module, name) = split(path);
            if let Some(module) = self.reach_module(module) {
                let entry = entries.entry(join(&module, name)).or_default();
                entry.declaration.push(line.clone());
            }
        }
        for (module, item) in &self.impls {
            let (implemented, name) = names_of_impl(&item.head);
            let implemented_by = self.place(module, name);
            let of_trait = implemented.map(|it| self.place(module, it));
            let path = match (implemented_by, of_trait) {
                (Place::Private, _) | (_, Some(Place::Private)) => continue,
                (Place::Public(path), _) | (Place::Foreign, Some(Place::Public(path))) => path,
                (Place::Foreign, Some(Place::Foreign) | None) => continue,
            };
            let prefix = if implemented.is_some() { "type " } else { "pub " };
            let inner = items(item.body.as_deref().unwrap_or_default());
            let inner = inner.iter().filter(|it| it.head.starts_with(prefix));
            let lines: Vec<String> = inner.map(|it| it.with_attributes(&it.head)).collect();
            if implemented.is_some() || !lines.is_empty() {
                let head = item.with_attributes(&item.head);
                let impls = &mut entries.entry(path).or_default().impls;
                impls.entry(head).or_default().extend(lines);
            }
        }
        entries
    }
}

/// A declaration, a field or a variant.
#[derive(Debug, PartialEq, Eq)]
struct Item {
    attributes: Vec<String>,
    /// The text before the body, in one line.
    head: String,
    /// The text between the braces.
    body: Option<String>,
}

impl Item {
    fn new(text: &str, body: Option<String>) -> Self {
        let (mut attributes, mut rest) = (Vec::new(), text.trim());
        while rest.starts_with('#') {
            let (attribute, after) = rest.split_at(closing(rest, "[", "]"));
            attributes.push(one_line(attribute));
            rest = after.trim_start();
        }
        Self {
            attributes,
            head: one_line(rest),
            body,
        }
    }

    /// Returns `true` if the item only exists in tests.
    fn is_test(&self) -> bool {
        let conditions = self.attributes.iter().filter(|it| it.starts_with("#[cfg("));
        let mut words = conditions.flat_map(|it| it.split(|it: char| !(it.is_ascii_lowercase() || it == '_')));
        words.any(|it| matches!(it, "test" | "doctest"))
    }

    /// Returns the attributes that are a part of the API.
    fn kept(&self) -> Vec<String> {
        let attributes = self.attributes.iter();
        let kept = attributes.filter(|it| ATTRIBUTES.iter().any(|start| it.starts_with(start)));
        kept.cloned().collect()
    }

    fn with_attributes(&self, text: &str) -> String {
        let mut parts = self.kept();
        parts.push(text.to_owned());
        parts.join(" ")
    }

    /// Returns the lines of a declaration in the listing.
    fn lines(&self) -> Vec<String> {
        let kind = named(&self.head).map_or("", |(kind, _)| kind);
        let mut lines = self.kept();
        lines.push(match kind {
            "struct" => without_private_fields(&self.head),
            _ => self.head.clone(),
        });
        let Some(body) = &self.body else {
            return lines;
        };
        match kind {
            "struct" => {
                let (public, private): (Vec<_>, Vec<_>) =
                    parts(body).into_iter().partition(|it| it.head.starts_with("pub "));
                lines.extend(public.iter().map(|it| format!("    {}", it.with_attributes(&it.head))));
                lines.extend((!private.is_empty()).then(|| "    (private fields)".to_owned()));
            }
            "enum" => lines.extend(
                parts(body)
                    .iter()
                    .map(|it| format!("    {}", it.with_attributes(&it.head))),
            ),
            "trait" => lines.extend(items(body).iter().map(|it| {
                let end = if it.body.is_some() { " { .. }" } else { "" };
                format!("    {}{end}", it.with_attributes(&it.head))
            })),
            _ => {}
        }
        lines
    }
}

/// Splits code into literals, names and single characters. Leaves out comments.
fn pieces(code: &str) -> Vec<&str> {
    let (mut pieces, mut rest) = (Vec::new(), code);
    while let Some(first) = rest.chars().next() {
        let length = match (literal_length(rest), identifier(rest).len()) {
            (0, 0) => first.len_utf8(),
            (0, length) | (length, _) => length,
        };
        let (piece, after) = rest.split_at(length);
        if !piece.starts_with("//") && !piece.starts_with("/*") {
            pieces.push(piece);
        }
        rest = after;
    }
    pieces
}

/// Returns the identifier at the start of a text; empty if there is none.
fn identifier(text: &str) -> &str {
    let end = text.find(|it: char| !(it.is_alphanumeric() || it == '_'));
    &text[..end.unwrap_or(text.len())]
}

/// Splits code into its items. Each item ends with a semicolon or with its body.
fn items(code: &str) -> Vec<Item> {
    let (mut found, mut head, mut body, mut depth) = (Vec::new(), String::new(), None, 0);
    for piece in pieces(code) {
        depth += match piece {
            "{" | "(" | "[" => 1,
            "}" | ")" | "]" => -1,
            _ => 0,
        };
        match (body.take(), piece) {
            (Some(text), "}") if depth == 0 => found.push(Item::new(&std::mem::take(&mut head), Some(text))),
            (Some(text), _) => body = Some(text + piece),
            (None, ";") if depth == 0 => found.push(Item::new(&std::mem::take(&mut head), None)),
            (None, "{") if depth == 1 && !is_use(&head) => body = Some(String::new()),
            (None, _) => head.push_str(piece),
        }
    }
    found.retain(|it| !it.head.is_empty());
    found
}

fn is_use(head: &str) -> bool {
    let head = Item::new(head, None).head;
    head.starts_with("use ") || head.starts_with("pub use ")
}

/// Splits a list at its commas.
fn parts(list: &str) -> Vec<Item> {
    let (mut found, mut part, mut depth, mut before) = (Vec::new(), String::new(), 0, "");
    for piece in pieces(list) {
        depth += nesting(piece, before);
        if piece == "," && depth == 0 {
            found.push(Item::new(&std::mem::take(&mut part), None));
        } else {
            part.push_str(piece);
        }
        before = piece;
    }
    found.push(Item::new(&part, None));
    found.retain(|it| !it.head.is_empty());
    found
}

/// Returns the change of the nesting depth in a type. `before` is the piece before `piece`.
fn nesting(piece: &str, before: &str) -> i32 {
    match piece {
        "(" | "[" | "{" | "<" => 1,
        ")" | "]" | "}" => -1,
        // Not the end of an arrow.
        ">" if !matches!(before, "-" | "=") => -1,
        _ => 0,
    }
}

/// Returns the position after the bracket that closes the first bracket.
fn closing(text: &str, open: &str, close: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    for piece in pieces(text) {
        at += piece.len();
        depth += i32::from(piece == open) - i32::from(piece == close);
        if depth == 0 && piece == close {
            return at;
        }
    }
    text.len()
}

/// Returns the length of the generic parameters at the start of a text; 0 if there are none.
fn generics_length(text: &str) -> usize {
    if !text.starts_with('<') {
        return 0;
    }
    let (mut depth, mut at, mut before) = (0, 0, "");
    for piece in pieces(text) {
        at += piece.len();
        depth += nesting(piece, before);
        if depth == 0 {
            return at;
        }
        before = piece;
    }
    at
}

/// Joins the lines of a declaration, so that line breaks do not matter. Removes `mut` from parameters.
fn one_line(text: &str) -> String {
    let mut line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for (from, to) in [
        ("( ", "("),
        (", )", ")"),
        (" )", ")"),
        ("< ", "<"),
        (", >", ">"),
        ("{ ", "{"),
        (", }", "}"),
        (" }", "}"),
        ("[ ", "["),
        (", ]", "]"),
        ("(mut ", "("),
        (", mut ", ", "),
    ] {
        line = line.replace(from, to);
    }
    line.strip_suffix(',').unwrap_or(&line).to_owned()
}

/// Returns the kind and the name of a declaration.
fn named(head: &str) -> Option<(&str, &str)> {
    let words: Vec<&str> = head.split(' ').collect();
    let is_qualifier = |at: usize| match words[at] {
        "pub" | "async" | "unsafe" => true,
        "const" => words
            .get(at + 1)
            .is_some_and(|it| matches!(*it, "fn" | "async" | "unsafe")),
        word => word.starts_with("pub("),
    };
    let at = (0..words.len()).find(|at| !is_qualifier(*at))?;
    let is_declaration = matches!(
        words[at],
        "struct" | "enum" | "trait" | "fn" | "type" | "const" | "static" | "mod" | "union"
    );
    let name = identifier(words.get(at + 1).copied()?);
    is_declaration.then_some((words[at], name))
}

/// Returns the paths of a tree of re-exports, with the names under which they are exported.
fn leaves(prefix: &str, tree: &str) -> Vec<(String, String)> {
    if let Some((path, inner)) = tree.strip_suffix('}').and_then(|it| it.split_once('{')) {
        let prefix = format!("{prefix}{path}");
        return parts(inner).iter().flat_map(|it| leaves(&prefix, &it.head)).collect();
    }
    let path = format!("{prefix}{tree}");
    match path.split_once(" as ") {
        Some((path, name)) => vec![(path.to_owned(), name.to_owned())],
        None => {
            let name = split(&path).1.to_owned();
            vec![(path, name)]
        }
    }
}

/// Replaces the private fields of a tuple struct with `_`.
fn without_private_fields(head: &str) -> String {
    let name = head.find("struct ").map_or(0, |at| at + "struct ".len());
    let generics = name + identifier(&head[name..]).len();
    let start = generics + generics_length(&head[generics..]);
    if !head[start..].starts_with('(') {
        return head.to_owned();
    }
    let end = start + closing(&head[start..], "(", ")");
    let fields = parts(&head[start + 1..end - 1]).into_iter().map(|it| {
        if it.head.starts_with("pub ") {
            it.head
        } else {
            "_".to_owned()
        }
    });
    let fields: Vec<_> = fields.collect();
    format!("{}({}){}", &head[..start], fields.join(", "), &head[end..])
}

/// Returns the last names of the trait and the type in the first line of an `impl` block.
fn names_of_impl(head: &str) -> (Option<&str>, &str) {
    let rest = &head["impl".len()..];
    let rest = rest[generics_length(rest)..].trim_start();
    let rest = rest.split_once(" where ").map_or(rest, |(before, _)| before);
    let (mut depth, mut at, mut before) = (0, 0, "");
    for piece in pieces(rest) {
        depth += nesting(piece, before);
        let after = at + piece.len();
        if depth == 0 && piece == "for" && rest[after..].starts_with(' ') {
            return (
                Some(type_name(rest[..at].trim_end())),
                type_name(rest[after..].trim_start()),
            );
        }
        (at, before) = (after, piece);
    }
    (None, type_name(rest))
}

/// Returns the last name in the path of a type.
fn type_name(text: &str) -> &str {
    let mut name = text.trim_start_matches('&');
    for word in ["'static ", "mut ", "dyn "] {
        name = name.strip_prefix(word).unwrap_or(name);
    }
    let end = name.find(['<', ' ', '(']).unwrap_or(name.len());
    split(&name[..end]).1
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

/// Files of a crate, for the test of [`listing`].
const FILES: [(&str, &str); 4] = [
    (
        "lib.rs",
        r#"
mod hidden;
#[cfg(feature = "more")]
pub use hidden::{
    Form, // a comment
    Tuple,
};
pub use other::Thing;
pub mod open;
#[cfg(test)]
pub mod tests {}
"#,
    ),
    (
        "hidden/mod.rs",
        "
mod deep;
pub use deep::Shape as Form;
/// A documented struct
#[derive(Clone)]
#[must_use]
pub struct Tuple<F: Fn(u8) -> u8>(F, pub u8);
impl<F: Fn(u8) -> u8> Tuple<F> {
    pub fn make(
        mut self,
        value: Option<u8>,
    ) -> Self {
        if true { self } else { self }
    }
    fn secret(&self) {}
}
impl<F: Fn(u8) -> u8> Iterator for Tuple<F> {
    type Item = u8;
    fn next(&mut self) -> Option<u8> { None }
}
pub struct Unreachable;
impl Clone for Unreachable {}
",
    ),
    (
        "hidden/deep.rs",
        "pub enum Shape { Round, Square { side: u8 }, #[doc(hidden)] Other(u8, u8) }",
    ),
    (
        "open.rs",
        "
pub struct Fields { pub first: Vec<(u8, u8)>, second: u8 }
pub trait Act: Send { fn act(&self); fn twice(&self) { self.act() } }
pub(crate) trait Inner {}
impl<T: Send> Act for Vec<T> where T: Clone {}
impl Inner for Fields {}
pub const LIMIT: usize = 3;
",
    ),
];

/// The listing of [`FILES`].
const EXPECTED: &str = r#"# Public API of x; testkit/tests/it/tidy/public_api.rs compares and writes this file.
Form
    #[cfg(feature = "more")]
    pub enum Shape
        Round
        Square {side: u8}
        #[doc(hidden)] Other(u8, u8)
Thing
    pub use other::Thing
Tuple
    #[cfg(feature = "more")]
    #[derive(Clone)]
    pub struct Tuple<F: Fn(u8) -> u8>(_, pub u8)
    impl<F: Fn(u8) -> u8> Iterator for Tuple<F>
        type Item = u8
    impl<F: Fn(u8) -> u8> Tuple<F>
        pub fn make(self, value: Option<u8>) -> Self
open
    pub mod open
open::Act
    pub trait Act: Send
        fn act(&self)
        fn twice(&self) { .. }
    impl<T: Send> Act for Vec<T> where T: Clone
open::Fields
    pub struct Fields
        pub first: Vec<(u8, u8)>
        (private fields)
open::LIMIT
    pub const LIMIT: usize = 3
"#;

#[test]
fn listing_contains_reachable_items_without_their_private_parts() {
    let files = FILES.map(|(path, text)| Source {
        path: format!("x/src/{path}"),
        text: text.to_owned(),
        code: Vec::new(),
    });
    assert_eq!(listing("x", &files), EXPECTED);
}

#[test]
fn differences_name_the_items_of_removed_and_added_lines() {
    let listed = "a::A\n    pub struct A\n        pub one: u8\n";
    let found = "a::A\n    pub struct A\n        pub two: u8\n";
    let expected = "- a::A: pub one: u8\n+ a::A: pub two: u8\n";
    assert_eq!(differences(listed, found), expected);
    assert_eq!(differences(listed, listed), "");
}
