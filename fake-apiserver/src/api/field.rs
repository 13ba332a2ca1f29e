//! Field paths and validation errors, with the messages of Go's `field.Error` (rule A10).

use std::collections::BTreeSet;
use std::fmt;

use crate::api::json::Value;

/// The path of a field, such as `spec.containers[0].name` or `metadata.labels[a.b/c]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FieldPath(String);

impl FieldPath {
    /// Creates the path of a top-level field.
    pub(crate) fn new(name: &str) -> Self {
        Self(name.to_owned())
    }

    /// Returns the path of the object itself, which is printed as `<nil>`.
    pub(crate) fn root() -> Self {
        Self::default()
    }

    /// Returns the path of a field without a name, which is printed as `[]` (`field.NewPath("")` in Go).
    pub(crate) fn unnamed() -> Self {
        Self("[]".to_owned())
    }

    /// Returns the path of a field below this one; `name` may contain dots for several levels.
    #[must_use]
    pub(crate) fn child(&self, name: &str) -> Self {
        if self.0.is_empty() {
            Self(name.to_owned())
        } else {
            self.with(".", name, "")
        }
    }

    /// Returns the path of an item of this list.
    #[must_use]
    pub(crate) fn index(&self, index: usize) -> Self {
        self.with("[", &index.to_string(), "]")
    }

    /// Returns the path of an entry of this map.
    #[must_use]
    pub(crate) fn key(&self, key: &str) -> Self {
        self.with("[", key, "]")
    }

    /// Appends a step with a single allocation and without formatting, because validation creates a path for each field
    /// but rarely prints one.
    fn with(&self, before: &str, step: &str, after: &str) -> Self {
        let mut path = String::with_capacity(self.0.len() + before.len() + step.len() + after.len());
        for part in [self.0.as_str(), before, step, after] {
            path.push_str(part);
        }
        Self(path)
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "<nil>" } else { &self.0 })
    }
}

/// Type of a field error, with the names of Go's `field.ErrorType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldErrorKind {
    /// `Required value`
    Required,
    /// `Invalid value`
    Invalid,
    /// `Invalid value`, for a value of the wrong type
    TypeInvalid,
    /// `Unsupported value`
    NotSupported,
    /// `Forbidden`; the value is not shown
    Forbidden,
    /// `Duplicate value`
    Duplicate,
    /// `Not found`
    NotFound,
    /// `Too long`; the value is not shown
    TooLong,
    /// `Too many`
    TooMany,
    /// `Internal error`; the value is not shown
    Internal,
}

/// One error of validation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FieldError {
    /// Path of the field.
    pub(crate) path: FieldPath,
    /// Type of the error.
    pub(crate) kind: FieldErrorKind,
    /// The offending value, if the message includes it.
    pub(crate) value: Option<Value>,
    /// The part of the message after the value; may be empty.
    pub(crate) detail: String,
}

impl FieldError {
    /// Returns the message without the path: `Invalid value: "x": detail`.
    pub(crate) fn body(&self) -> String {
        use FieldErrorKind as Kind;
        let text = match self.kind {
            Kind::Required => "Required value",
            Kind::Invalid | Kind::TypeInvalid => "Invalid value",
            Kind::NotSupported => "Unsupported value",
            Kind::Forbidden => "Forbidden",
            Kind::Duplicate => "Duplicate value",
            Kind::NotFound => "Not found",
            Kind::TooLong => "Too long",
            Kind::TooMany => "Too many",
            Kind::Internal => "Internal error",
        };
        let mut out = text.to_owned();
        if let Some(value) = &self.value {
            out.push_str(": ");
            out.push_str(&print_value(value));
        }
        if !self.detail.is_empty() {
            out.push_str(": ");
            out.push_str(&self.detail);
        }
        out
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.body())
    }
}

/// Formats a value as in Go's field errors: strings are quoted like `%q`, other values are JSON.
fn print_value(value: &Value) -> String {
    match value {
        Value::String(text) => quote(text),
        other => other.to_string(),
    }
}

/// Formats a string like Go's `%q`.
pub(crate) fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{b}' => out.push_str("\\v"),
            '\u{c}' => out.push_str("\\f"),
            c if (c as u32) < 0x20 || c == '\u{7f}' => out.push_str(&format!("\\x{:02x}", c as u32)),
            c if is_print(c) => out.push(c),
            c if (c as u32) < 0x1_0000 => out.push_str(&format!("\\u{:04x}", c as u32)),
            c => out.push_str(&format!("\\U{:08x}", c as u32)),
        }
    }
    out.push('"');
    out
}

/// Returns `true` if Go prints the character unescaped (`unicode.IsPrint`). The only printable white space is the
/// space.
pub(crate) fn is_print(c: char) -> bool {
    if c.is_ascii() {
        return !c.is_ascii_control();
    }
    // `escape_debug` escapes unprintable characters, but combining characters only at the start of a string.
    let text = ['a', c].iter().collect::<String>();
    !text.escape_debug().skip(1).collect::<String>().starts_with('\\')
}

/// The errors found in one object, in the order they were found.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct FieldErrors(Vec<FieldError>);

impl FieldErrors {
    /// Creates an empty list.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Returns `true` if the list is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Iterates over the errors in order.
    pub(crate) fn iter(&self) -> std::slice::Iter<'_, FieldError> {
        self.0.iter()
    }

    /// Iterates mutably over the errors in order.
    pub(crate) fn iter_mut(&mut self) -> std::slice::IterMut<'_, FieldError> {
        self.0.iter_mut()
    }

    /// Returns all errors as one message, without duplicates: the single error, or a list in brackets
    /// (`field.ErrorList.ToAggregate`).
    pub(crate) fn aggregate(&self) -> String {
        let mut seen = BTreeSet::new();
        let texts = self.iter().map(|error| error.to_string());
        let texts: Vec<String> = texts.filter(|text| seen.insert(text.clone())).collect();
        match texts.as_slice() {
            [text] => text.clone(),
            _ => format!("[{}]", texts.join(", ")),
        }
    }

    /// Adds an error.
    pub(crate) fn push(&mut self, error: FieldError) {
        self.0.push(error);
    }

    /// Adds all errors of another list.
    pub(crate) fn extend(&mut self, other: FieldErrors) {
        self.0.extend(other.0);
    }

    fn add(&mut self, path: FieldPath, kind: FieldErrorKind, value: Option<Value>, detail: String) {
        self.0.push(FieldError {
            path,
            kind,
            value,
            detail,
        });
    }

    /// Adds `path: Required value: detail`.
    pub(crate) fn required(&mut self, path: impl Into<FieldPath>, detail: impl Into<String>) {
        self.add(path.into(), FieldErrorKind::Required, None, detail.into());
    }

    /// Adds `path: Invalid value: value: detail`.
    pub(crate) fn invalid(&mut self, path: impl Into<FieldPath>, value: impl Into<Value>, detail: impl Into<String>) {
        self.add(path.into(), FieldErrorKind::Invalid, Some(value.into()), detail.into());
    }

    /// Adds `path: Unsupported value: value: supported values: "a", "b"`.
    pub(crate) fn not_supported(&mut self, path: impl Into<FieldPath>, value: impl Into<Value>, supported: &[&str]) {
        let list: Vec<String> = supported.iter().map(|text| quote(text)).collect();
        let detail = if list.is_empty() {
            String::new()
        } else {
            format!("supported values: {}", list.join(", "))
        };
        self.add(path.into(), FieldErrorKind::NotSupported, Some(value.into()), detail);
    }

    /// Adds `path: Forbidden: detail`.
    pub(crate) fn forbidden(&mut self, path: impl Into<FieldPath>, detail: impl Into<String>) {
        self.add(path.into(), FieldErrorKind::Forbidden, None, detail.into());
    }

    /// Adds `path: Duplicate value: value`.
    pub(crate) fn duplicate(&mut self, path: impl Into<FieldPath>, value: impl Into<Value>) {
        self.add(
            path.into(),
            FieldErrorKind::Duplicate,
            Some(value.into()),
            String::new(),
        );
    }

    /// Adds `path: Not found: value`.
    pub(crate) fn not_found(&mut self, path: impl Into<FieldPath>, value: impl Into<Value>) {
        self.add(path.into(), FieldErrorKind::NotFound, Some(value.into()), String::new());
    }

    /// Adds `path: Too long: may not be more than max bytes`.
    pub(crate) fn too_long(&mut self, path: impl Into<FieldPath>, max: usize) {
        self.add(
            path.into(),
            FieldErrorKind::TooLong,
            None,
            format!("may not be more than {max} bytes"),
        );
    }

    /// Adds `path: Too many: n: must have at most max items`.
    pub(crate) fn too_many(&mut self, path: impl Into<FieldPath>, n: usize, max: usize) {
        let items = if max == 1 { "item" } else { "items" };
        self.add(
            path.into(),
            FieldErrorKind::TooMany,
            Some(n.into()),
            format!("must have at most {max} {items}"),
        );
    }
}
