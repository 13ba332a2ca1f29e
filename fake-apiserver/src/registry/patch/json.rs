//! JSON patch, as lenient as the library that kube-apiserver uses: `replace` of a missing field adds it, indices may be
//! negative, `copy` of a missing field copies null, and `test` treats a missing field as null (rule G2). Operations
//! other than `copy` move values instead of copying them.

use serde_json::Value as Document;

use super::go_json::{duplicate_fields, parse_with_duplicates};
use super::{Patched, cannot_apply};
use crate::api::field::quote;
use crate::api::json::{Map, Value, type_name};
use crate::api::nesting;
use crate::api::status::Status;

/// Maximum number of operations in a patch (rule A20).
const MAX_OPERATIONS: usize = 10_000;

/// Maximum number of bytes that `copy` operations may copy in one patch.
const MAX_COPIED_BYTES: usize = 3 * 1024 * 1024;

/// Applies a JSON patch. If an operation fails, the entire patch fails.
pub(crate) fn json_patch(document: Value, body: &[u8]) -> Result<Patched, Status> {
    let (operations, strict_errors) = decode(body)?;
    if operations.len() > MAX_OPERATIONS {
        return Err(Status::too_large(format!(
            "Request entity too large: The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
            operations.len()
        )));
    }
    let mut state = State::new(document);
    for mut operation in operations {
        state.apply(&mut operation).ok_or_else(cannot_apply)?;
    }
    Ok(Patched {
        value: state.document.into(),
        strict_errors,
        shown: None,
    })
}

/// Applies the JSON patch of a webhook, with an unlimited number of operations. Fails with the message of the library
/// that kube-apiserver uses, because clients receive it.
pub(crate) fn json_patch_or_why(document: Value, body: &[u8]) -> Result<Value, Inapplicable> {
    let (operations, _) = decode(body).map_err(|status| {
        let text = status.message.trim_start_matches("error decoding patch: ").to_owned();
        let text = text.replace("[]handlers.jsonPatchOp", "jsonpatch.Patch");
        Inapplicable::Undecodable(text.replace("handlers.jsonPatchOp", "jsonpatch.Operation"))
    })?;
    let mut state = State::new(document);
    for mut operation in operations {
        // The reason is determined first, since a failed move may already have removed the value.
        let is_move = operation.get("op").is_some_and(|it| it == "move");
        let why = is_move.then(|| why_not(&state.document, &operation));
        if state.apply(&mut operation).is_none() {
            return Err(why.unwrap_or_else(|| why_not(&state.document, &operation)));
        }
    }
    Ok(state.document.into())
}

/// Reason why a patch cannot be applied, with the message of the Go library.
#[derive(Debug)]
pub(crate) enum Inapplicable {
    /// A value differs from the value in a `test` operation.
    Test(String),
    /// The patch cannot be parsed.
    Undecodable(String),
    /// The patch cannot be applied to the document.
    Otherwise(String),
}

impl From<Inapplicable> for String {
    fn from(why: Inapplicable) -> Self {
        match why {
            Inapplicable::Test(text) | Inapplicable::Undecodable(text) | Inapplicable::Otherwise(text) => text,
        }
    }
}

/// Returns the reason why an operation cannot be applied to a document.
fn why_not(document: &Document, operation: &Operation) -> Inapplicable {
    let text = |field: &str| operation.get(field).and_then(Value::as_str).unwrap_or_default();
    let (op, path, from) = (text("op"), text("path"), text("from"));
    let has_container = |path: &str| has_container(document, path);
    let text = match op {
        "add" if !has_container(path) => {
            format!("add operation does not apply: doc is missing path: \"{path}\": missing value")
        }
        "add" => format!("error in add for path: '{path}': invalid index referenced"),
        "remove" if !has_container(path) => {
            format!("remove operation does not apply: doc is missing path: \"{path}\": missing value")
        }
        "remove" => {
            let key = path.rsplit('/').next().unwrap_or_default();
            format!("error in remove for path: '{path}': Unable to remove nonexistent key: {key}: missing value")
        }
        "replace" if !has_container(path) => {
            format!("replace operation does not apply: doc is missing path: {path}: missing value")
        }
        "replace" => format!("replace operation does not apply: doc is missing key: {path}: missing value"),
        "move" | "copy" if !has_container(from) => {
            format!("{op} operation does not apply: doc is missing from path: {from}: missing value")
        }
        "move" | "copy" if !has_container(path) => {
            format!("{op} operation does not apply: doc is missing destination path: {path}: missing value")
        }
        "move" | "copy" => format!("error in {op} for path: '{path}': missing value"),
        "test" if !has_container(path) => {
            format!("test operation does not apply: is missing path: {path}: missing value")
        }
        "test" => return Inapplicable::Test(format!("testing value {path} failed: test failed")),
        other => format!("Unexpected kind: {other}"),
    };
    Inapplicable::Otherwise(text)
}

/// One operation of a JSON patch, as the client sent it.
type Operation = Map;

/// Decodes the operations; null operations become empty maps. Also returns the errors of strict validation.
fn decode(body: &[u8]) -> Result<(Vec<Operation>, Vec<String>), Status> {
    let refused = |error: String| Status::bad_request(format!("error decoding patch: {error}"));
    let misfit =
        |value: &Value, into: &str| refused(format!("json: cannot unmarshal {} into Go {into}", type_name(value)));
    let (items, duplicates) = parse_with_duplicates(body).map_err(refused)?;
    let items = match items {
        Value::Array(items) => items,
        Value::Null => Vec::new(),
        other => return Err(misfit(&other, "value of type []handlers.jsonPatchOp")),
    };
    let mut operations = Vec::with_capacity(items.len().min(MAX_OPERATIONS));
    let mut strict_errors = duplicate_fields(&duplicates);
    for (i, item) in items.into_iter().enumerate() {
        let operation = match item {
            Value::Object(operation) => operation,
            Value::Null => Map::new(),
            other => return Err(misfit(&other, "value of type handlers.jsonPatchOp")),
        };
        for (name, value) in &operation {
            match name.as_str() {
                "op" | "path" | "from" if !value.is_string() && !value.is_null() => {
                    return Err(misfit(
                        value,
                        &format!("struct field jsonPatchOp.{name} of type string"),
                    ));
                }
                "op" | "path" | "from" | "value" => {}
                other => strict_errors.push(format!("unknown field {}", quote(&format!("[{i}].{other}")))),
            }
        }
        operations.push(operation);
    }
    let strict_errors = strict_errors.into_iter().map(|text| format!("json patch {text}"));
    Ok((operations, strict_errors.collect()))
}

struct State {
    document: Document,
    copied_bytes: usize,
    /// Upper bound of the nesting depth of the document.
    levels: usize,
}

/// A location in a document: its path, with resolved indices, and the value at this path, if any.
struct Place<'a> {
    keys: Vec<String>,
    found: Option<&'a Document>,
}

/// Returns the keys of a path; `None` for the empty path, and for a path without a slash. Characters before the first
/// slash are ignored.
fn keys(path: &str) -> Option<Vec<String>> {
    let mut parts = path
        .split('/')
        .skip(1)
        .map(|part| part.replace("~1", "/").replace("~0", "~"));
    let keys: Vec<String> = parts.by_ref().take(nesting::MAX + 2).collect();
    // A path with more keys than the maximum depth of documents does not exist.
    (parts.next().is_none() && !keys.is_empty()).then_some(keys)
}

/// Parses an index below `length`. A negative index is counted from the end.
fn index_of(key: &str, length: usize) -> Option<usize> {
    let index: i64 = key.parse().ok()?;
    let length = i64::try_from(length).ok()?;
    let index = if index < 0 { index + length } else { index };
    (0..length).contains(&index).then_some(usize::try_from(index).ok()?)
}

impl<'a> Place<'a> {
    /// Finds a path. The map or list that contains it must exist. An index must be less than the length of the list. If
    /// `is_added` is set, it may also be equal to the length.
    fn find(document: &'a Document, path: &str, is_added: bool) -> Option<Self> {
        let keys = keys(path)?;
        let mut plain = Vec::with_capacity(keys.len());
        let mut found = Some(document);
        let last = keys.len() - 1;
        for (at, key) in keys.into_iter().enumerate() {
            let is_added = is_added && at == last;
            let (key, next) = match found? {
                Document::Object(map) => {
                    let next = map.get(&key);
                    (key, next)
                }
                Document::Array(_) if is_added && key == "-" => (key, None),
                Document::Array(items) => {
                    let index = index_of(&key, items.len() + usize::from(is_added))?;
                    (index.to_string(), items.get(index))
                }
                Document::Null | Document::Bool(_) | Document::Number(_) | Document::String(_) => return None,
            };
            plain.push(key);
            found = next;
        }
        Some(Self { keys: plain, found })
    }
}

/// Returns `true` if the parent map or list of a path exists.
fn has_container(document: &Document, path: &str) -> bool {
    match path.rsplit_once('/') {
        Some((before, _)) if !before.contains('/') => true,
        Some((container, _)) => Place::find(document, container, false)
            .and_then(|it| it.found)
            .is_some_and(|it| it.is_object() || it.is_array()),
        None => false,
    }
}

impl State {
    fn new(document: Value) -> Self {
        Self {
            levels: nesting::levels(&document),
            document: document.into(),
            copied_bytes: 0,
        }
    }

    /// Executes one operation; `None` if it fails.
    fn apply(&mut self, operation: &mut Operation) -> Option<()> {
        let value = operation.remove("value").unwrap_or_default();
        let text = |field: &str| operation.get(field).and_then(Value::as_str);
        let (path, from) = (text("path")?, text("from"));
        match text("op")? {
            "add" => self.add(path, value),
            "remove" => self.take(path).map(drop),
            "replace" => self.replace(path, value),
            "move" => {
                let depth = keys(from?)?.len();
                let value = self.take(from?)?;
                // The value is a part of the document, which limits its nesting depth.
                self.add_with_levels(path, value, self.levels.saturating_sub(depth))
            }
            "copy" => {
                let value = self.copied(from?)?;
                self.add(path, value)
            }
            "test" => self.test(path, value),
            _ => None,
        }
    }

    fn add(&mut self, path: &str, value: Value) -> Option<()> {
        let levels = nesting::levels(&value);
        self.add_with_levels(path, value.into(), levels)
    }

    /// Adds a value with at most this nesting depth.
    fn add_with_levels(&mut self, path: &str, value: Document, levels: usize) -> Option<()> {
        let keys = Place::find(&self.document, path, true)?.keys;
        self.check_depth(keys.len(), &value, levels)?;
        let (last, container) = self.container(&keys)?;
        match container {
            Document::Object(map) => drop(map.insert(last.to_owned(), value)),
            Document::Array(items) if last == "-" => items.push(value),
            Document::Array(items) => items.insert(last.parse().ok()?, value),
            Document::Null | Document::Bool(_) | Document::Number(_) | Document::String(_) => return None,
        }
        Some(())
    }

    /// Removes and returns the value at a path, which must exist.
    fn take(&mut self, path: &str) -> Option<Document> {
        let place = Place::find(&self.document, path, false)?;
        place.found?;
        let keys = place.keys;
        let (last, container) = self.container(&keys)?;
        match container {
            Document::Object(map) => map.remove(last),
            Document::Array(items) => Some(items.remove(last.parse().ok()?)),
            Document::Null | Document::Bool(_) | Document::Number(_) | Document::String(_) => None,
        }
    }

    /// Replaces a value, or adds a missing field.
    fn replace(&mut self, path: &str, value: Value) -> Option<()> {
        let levels = nesting::levels(&value);
        if path.is_empty() {
            let is_document = value.is_object() || value.is_array();
            self.levels = levels;
            self.document = value.into();
            return is_document.then_some(());
        }
        let keys = Place::find(&self.document, path, false)?.keys;
        let value = value.into();
        self.check_depth(keys.len(), &value, levels)?;
        let (last, container) = self.container(&keys)?;
        match container {
            Document::Object(map) => drop(map.insert(last.to_owned(), value)),
            Document::Array(items) => *items.get_mut(last.parse::<usize>().ok()?)? = value,
            Document::Null | Document::Bool(_) | Document::Number(_) | Document::String(_) => return None,
        }
        Some(())
    }

    /// Returns the value to copy; null for a missing field. Fails if too many bytes have been copied.
    fn copied(&mut self, from: &str) -> Option<Value> {
        let place = Place::find(&self.document, from, false)?;
        let value = Value::from(place.found.cloned());
        if !value.is_null() {
            self.copied_bytes += value.to_string().len();
        }
        (self.copied_bytes <= MAX_COPIED_BYTES).then_some(value)
    }

    /// Compares the value at a path with `value`; a missing field counts as null.
    fn test(&self, path: &str, value: Value) -> Option<()> {
        let found = match path {
            "" => Some(&self.document),
            path => Place::find(&self.document, path, false)?.found,
        };
        let is_equal = match found {
            Some(found) => *found == Document::from(value),
            None => value.is_null(),
        };
        is_equal.then_some(())
    }

    /// Returns the map or list that contains the value at a path, and the last key of the path.
    fn container<'a>(&mut self, keys: &'a [String]) -> Option<(&'a str, &mut Document)> {
        let (last, before) = keys.split_last()?;
        let mut container = &mut self.document;
        for key in before {
            container = match container {
                Document::Object(map) => map.get_mut(key)?,
                Document::Array(items) => items.get_mut(key.parse::<usize>().ok()?)?,
                Document::Null | Document::Bool(_) | Document::Number(_) | Document::String(_) => return None,
            };
        }
        Some((last, container))
    }

    /// Refuses documents that are nested too deeply to be read back. The depth is estimated with an upper bound, and
    /// only counted if the bound exceeds the limit.
    fn check_depth(&mut self, depth: usize, value: &Document, levels: usize) -> Option<()> {
        let mut needed = depth + levels;
        if needed > nesting::MAX {
            needed = depth + document_levels(value);
            self.levels = document_levels(&self.document);
        }
        self.levels = self.levels.max(needed);
        (needed <= nesting::MAX).then_some(())
    }
}

/// Returns the nesting depth of the lists and maps in a document.
fn document_levels(document: &Document) -> usize {
    let below: usize = match document {
        Document::Array(items) => items.iter().map(document_levels).max().unwrap_or_default(),
        Document::Object(map) => map.values().map(document_levels).max().unwrap_or_default(),
        Document::Null | Document::Bool(_) | Document::Number(_) | Document::String(_) => return 0,
    };
    1 + below
}
