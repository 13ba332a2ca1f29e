//! Parses YAML: converts events to JSON values, with anchors, merge keys and duplicate keys handled as in Go.

use std::borrow::Cow;
use std::collections::HashMap;

use base64::Engine;
use granit_parser::{Event, Parser, ScalarStyle, Span, StrInput, Tag};

use super::errors;
use super::resolve::{self, Resolved, resolve};
use crate::api::json::{Map, Value};
use crate::api::nesting;
use crate::api::read::read;

/// Maximum number of values that anchors and aliases may copy in one document.
const COPIED_VALUES_MAX: usize = 200_000;

/// Maximum number of bytes of text that anchors and aliases may copy in one document.
const COPIED_BYTES_MAX: usize = 8 << 20;

const EXCESSIVE_ALIASING: &str = "yaml: document contains excessive aliasing";

/// A document, and its duplicate keys.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Parsed {
    /// The value. If a key occurs twice, the last value is kept.
    pub(crate) value: Value,
    /// One `line 7: key "k" already set in map` for each duplicate key.
    pub(crate) duplicates: Vec<String>,
}

impl Parsed {
    /// Returns the error of strict decoding for the duplicate keys: `yaml: unmarshal errors:`, followed by one line for
    /// each.
    pub(crate) fn strict_error(&self) -> Option<String> {
        let mut text = "yaml: unmarshal errors:".to_owned();
        for duplicate in &self.duplicates {
            text.push_str("\n  ");
            text.push_str(duplicate);
        }
        (!self.duplicates.is_empty()).then_some(text)
    }
}

/// Parses the first document of a request's body; an empty body is `null`. Fails with the message of Go's library.
pub(crate) fn parse(body: &[u8]) -> Result<Parsed, String> {
    // Fast path: most YAML bodies are JSON, because most clients send apply patches as JSON.
    if let Some(value) = plain_json(body) {
        let duplicates = Vec::new();
        return Ok(Parsed { value, duplicates });
    }
    let text = readable(body)?;
    Documents::new(text).next().unwrap_or_else(|| Ok(Parsed::default()))
}

/// Parses a body that is a JSON object without duplicate keys. Returns `None` for other bodies; the YAML parser reports
/// the lines of duplicate keys.
fn plain_json(body: &[u8]) -> Option<Value> {
    if body.iter().find(|it| !it.is_ascii_whitespace()) != Some(&b'{') {
        return None;
    }
    let json = read(std::str::from_utf8(body).ok()?)?;
    match (json.repeats_key, json.has_fraction) {
        (true, _) => None,
        (false, true) => with_integers(json.value),
        (false, false) => Some(json.value),
    }
}

/// Returns the documents of a file, except for null ones. A document with duplicate keys is an error. The iteration
/// ends after the first syntax error.
pub(crate) fn documents(text: &str) -> impl Iterator<Item = Result<Value, String>> + '_ {
    let (documents, error) = match readable(text.as_bytes()) {
        Ok(text) => (Some(Documents::new(text)), None),
        Err(error) => (None, Some(Err(error))),
    };
    let values = documents.into_iter().flatten();
    let values = values.map(|it| it.and_then(|parsed| parsed.strict_error().map_or(Ok(parsed.value), Err)));
    error
        .into_iter()
        .chain(values.filter(|it| !matches!(it, Ok(Value::Null))))
}

/// Returns the body as a string, if YAML allows all of its characters.
fn readable(body: &[u8]) -> Result<&str, String> {
    let text = std::str::from_utf8(body).map_err(|error| {
        let why = match error.error_len() {
            None => "incomplete UTF-8 octet sequence",
            Some(1) => "invalid leading UTF-8 octet",
            Some(_) => "invalid trailing UTF-8 octet",
        };
        format!("yaml: {why}")
    })?;
    let is_forbidden = |c: char| match c {
        '\t' | '\n' | '\r' | ' '..='~' | '\u{85}' => false,
        '\u{fffe}' | '\u{ffff}' => true,
        c => c < '\u{a0}',
    };
    if text.chars().any(is_forbidden) {
        return Err("yaml: control characters are not allowed".to_owned());
    }
    Ok(text)
}

/// An iterator over the documents in a text.
struct Documents<'a> {
    text: &'a str,
    parser: Parser<'a, StrInput<'a>>,
    is_done: bool,
    anchors: HashMap<usize, Anchored>,
    copied: Size,
    duplicates: Vec<String>,
}

/// A value that aliases can refer to.
struct Anchored {
    value: Value,
    depth: usize,
    size: Size,
}

/// Size of a value.
#[derive(Clone, Copy, Default)]
struct Size {
    /// Number of values, including itself.
    values: usize,
    /// Total length of strings and keys, in bytes.
    bytes: usize,
}

impl Size {
    /// Size of an empty collection.
    const EMPTY: Self = Self { values: 1, bytes: 0 };

    fn add(&mut self, other: Self) {
        self.values = self.values.saturating_add(other.values);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

/// A value, with its line, depth and size.
struct Node {
    value: Value,
    /// The line on which the value begins.
    line: usize,
    /// Nesting depth of lists and maps.
    depth: usize,
    size: Size,
    /// Set for an unquoted `<<`, the merge key.
    is_merge: bool,
}

impl Iterator for Documents<'_> {
    type Item = Result<Parsed, String>;

    fn next(&mut self) -> Option<Self::Item> {
        let found = self.document();
        if !matches!(found, Ok(Some(_))) {
            self.is_done = true;
        }
        found.transpose()
    }
}

impl<'a> Documents<'a> {
    fn new(text: &'a str) -> Self {
        Self {
            text,
            parser: Parser::new_from_str(text),
            is_done: false,
            anchors: HashMap::new(),
            copied: Size::default(),
            duplicates: Vec::new(),
        }
    }

    fn event(&mut self) -> Result<Option<(Event<'a>, Span)>, String> {
        match self.parser.next_event() {
            None => Ok(None),
            Some(Ok(event)) => Ok(Some(event)),
            Some(Err(error)) => Err(errors::message(&error, self.text)),
        }
    }

    fn document(&mut self) -> Result<Option<Parsed>, String> {
        while !self.is_done {
            let Some((event, _)) = self.event()? else {
                break;
            };
            if let Event::DocumentStart(..) = event {
                self.anchors.clear();
                self.copied = Size::default();
                let value = self.node(0)?.map(|it| it.value).unwrap_or_default();
                // An error directly after the value belongs to this document.
                self.parser
                    .peek()
                    .transpose()
                    .map_err(|error| errors::message(&error, self.text))?;
                let duplicates = std::mem::take(&mut self.duplicates);
                return Ok(Some(Parsed { value, duplicates }));
            }
        }
        Ok(None)
    }

    /// Parses the next node; `None` at the end of the collection or document.
    fn node(&mut self, depth: usize) -> Result<Option<Node>, String> {
        if depth > nesting::MAX {
            return Err("yaml: exceeded max depth".to_owned());
        }
        loop {
            let Some((event, span)) = self.event()? else {
                return Ok(None);
            };
            let line = span.start.line();
            let (node, anchor) = match event {
                Event::Scalar(text, style, anchor, tag) => {
                    let text = self.without_missing_break(text, style, &span);
                    (scalar(text, style, tag.as_deref(), line)?, anchor)
                }
                Event::SequenceStart(_, anchor, _) => (self.sequence(depth, line)?, anchor),
                Event::MappingStart(_, anchor, _) => (self.mapping(depth, line)?, anchor),
                Event::Alias(anchor) => return self.alias(anchor, depth, line).map(Some),
                Event::SequenceEnd | Event::MappingEnd | Event::DocumentEnd | Event::StreamEnd => return Ok(None),
                _ => continue,
            };
            if anchor != 0 {
                self.copy(node.size)?;
                let anchored = Anchored {
                    value: node.value.clone(),
                    depth: node.depth,
                    size: node.size,
                };
                self.anchors.insert(anchor, anchored);
            }
            return Ok(Some(node));
        }
    }

    /// Removes the final line break of a block scalar if the input ends without one.
    fn without_missing_break<'t>(&self, text: Cow<'t, str>, style: ScalarStyle, span: &Span) -> Cow<'t, str> {
        let is_block = matches!(style, ScalarStyle::Literal | ScalarStyle::Folded);
        if !is_block || self.text.ends_with('\n') || !text.ends_with('\n') {
            return text;
        }
        let last_line = self.text.rsplit('\n').next().unwrap_or_default();
        let reaches_end = span.end.byte_offset().is_some_and(|at| at >= self.text.len());
        if reaches_end && !last_line.trim().is_empty() {
            Cow::Owned(text[..text.len() - 1].to_owned())
        } else {
            text
        }
    }

    fn alias(&mut self, anchor: usize, depth: usize, line: usize) -> Result<Node, String> {
        let Some(anchored) = self.anchors.get(&anchor) else {
            // The parser has already refused undefined aliases, so this alias is inside the value of its own anchor.
            return Err("yaml: anchor value contains itself".to_owned());
        };
        let (depth_below, size) = (anchored.depth, anchored.size);
        if depth + depth_below > nesting::MAX {
            return Err(EXCESSIVE_ALIASING.to_owned());
        }
        self.copy(size)?;
        Ok(Node {
            value: self.anchors.get(&anchor).map(|it| it.value.clone()).unwrap_or_default(),
            line,
            depth: depth_below,
            size,
            is_merge: false,
        })
    }

    /// Counts a value that is about to be copied against the limits.
    fn copy(&mut self, size: Size) -> Result<(), String> {
        self.copied.add(size);
        if self.copied.values > COPIED_VALUES_MAX || self.copied.bytes > COPIED_BYTES_MAX {
            return Err(EXCESSIVE_ALIASING.to_owned());
        }
        Ok(())
    }

    fn sequence(&mut self, depth: usize, line: usize) -> Result<Node, String> {
        let mut items = Vec::new();
        let (mut below, mut size) = (0, Size::EMPTY);
        while let Some(node) = self.node(depth + 1)? {
            below = below.max(node.depth);
            size.add(node.size);
            items.push(node.value);
        }
        Ok(Node {
            value: Value::Array(items),
            line,
            depth: below + 1,
            size,
            is_merge: false,
        })
    }

    fn mapping(&mut self, depth: usize, line: usize) -> Result<Node, String> {
        let mut map = Map::new();
        let (mut below, mut size) = (0, Size::EMPTY);
        while let Some(key) = self.node(depth + 1)? {
            let Some(node) = self.node(depth + 1)? else {
                break;
            };
            below = below.max(node.depth);
            size.add(node.size);
            if key.is_merge {
                merge(node.value, &mut map)?;
                continue;
            }
            let key = key_text(key.value)?;
            size.bytes = size.bytes.saturating_add(key.len());
            if map.contains_key(&key) {
                let quoted = crate::api::field::quote(&key);
                self.duplicates
                    .push(format!("line {}: key {quoted} already set in map", node.line));
            }
            map.insert(key.into(), node.value);
        }
        Ok(Node {
            value: Value::Object(map),
            line,
            depth: below + 1,
            size,
            is_merge: false,
        })
    }
}

/// Merges `<<: *map` or `<<: [*a, *b]` into a map. The first map of a list takes precedence over the others, and all of
/// them over earlier keys of the map.
fn merge(value: Value, into: &mut Map) -> Result<(), String> {
    let maps = match value {
        Value::Array(maps) => maps,
        map => vec![map],
    };
    for map in maps.into_iter().rev() {
        let Value::Object(map) = map else {
            return Err("yaml: map merge requires map or sequence of maps as the value".to_owned());
        };
        into.extend(map);
    }
    Ok(())
}

/// Converts a key to a string, because keys in JSON are strings.
fn key_text(key: Value) -> Result<String, String> {
    match key {
        Value::String(text) => Ok(text.into()),
        Value::Bool(it) => Ok(it.to_string()),
        Value::Number(it) => Ok(it.to_string()),
        Value::Null => Err("unsupported map key of type: %!s(<nil>)".to_owned()),
        Value::Array(_) | Value::Object(_) => Err("yaml: invalid map key".to_owned()),
    }
}

fn scalar(text: Cow<'_, str>, style: ScalarStyle, tag: Option<&Tag>, line: usize) -> Result<Node, String> {
    let is_plain = style == ScalarStyle::Plain;
    let wanted = tag.and_then(|tag| tag.suffix_in_namespace("tag:yaml.org,2002:"));
    let value = match wanted.as_deref() {
        None if is_plain && tag.is_none() => plain(&text)?,
        None | Some("str") => Value::from(&*text),
        Some("binary") => {
            let compact: String = text.split_ascii_whitespace().collect();
            let bytes = base64::engine::general_purpose::STANDARD.decode(compact);
            let text = bytes.ok().map(|it| String::from_utf8_lossy(&it).into_owned());
            Value::from(text.ok_or("yaml: !!binary value contains invalid base64 data")?)
        }
        Some(wanted) => {
            let value = plain(&text)?;
            let fits = match wanted {
                "int" => value.is_i64() || value.is_u64(),
                "float" => value.is_number(),
                "bool" => value.is_boolean(),
                "null" => value.is_null(),
                _ => true,
            };
            if !fits {
                let found = if value.is_string() { "str" } else { "value" };
                return Err(format!("yaml: cannot decode !!{found} `{text}` as a !!{wanted}"));
            }
            value
        }
    };
    Ok(Node {
        is_merge: is_plain && text == "<<",
        value,
        line,
        depth: 0,
        size: Size {
            values: 1,
            bytes: text.len(),
        },
    })
}

fn plain(text: &str) -> Result<Value, String> {
    match resolve(text) {
        Resolved::NotFinite => {
            let value = match (text.starts_with('-'), text.contains(['a', 'A'])) {
                (_, true) => "NaN",
                (true, false) => "-Inf",
                (false, false) => "+Inf",
            };
            Err(format!("json: unsupported value: {value}"))
        }
        other => Ok(other.into_value(text).unwrap_or_default()),
    }
}

/// Converts integral floats in the range of `i64` to integers, as a round trip through YAML does; `None` if a float is
/// not finite.
fn with_integers(mut value: Value) -> Option<Value> {
    match &mut value {
        Value::Number(number) if number.is_f64() => *number = resolve::number(number.as_f64()?)?,
        Value::Array(items) => {
            for item in items {
                *item = with_integers(item.take())?;
            }
        }
        // Encoded maps do not contain numbers.
        Value::Object(map) if map.encoded().is_none() => {
            for field in map.values_mut() {
                *field = with_integers(field.take())?;
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {}
    }
    Some(value)
}

#[cfg(test)]
#[path = "parse_tests.rs"]
mod tests;
