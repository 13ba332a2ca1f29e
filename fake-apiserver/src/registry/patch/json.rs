//! JSON patch, as lenient as the library the API server uses: `replace` of a missing field adds it, indices may be
//! negative, `copy` of a missing field gives null, and `test` takes a missing field for null (rule G2).

use serde_json::{Map, Value};

use super::go_json::{duplicate_fields, parse_with_duplicates};
use super::go_text::json_type;
use super::{Patched, cannot_apply};
use crate::api::field::quote;
use crate::api::nesting;
use crate::api::status::Status;

/// The most operations of a patch (rule A20).
const MAX_OPERATIONS: usize = 10_000;

/// The most bytes `copy` may copy in one patch.
const MAX_COPIED_BYTES: usize = 3 * 1024 * 1024;

/// Applies a JSON patch. A failed operation fails the whole.
pub(crate) fn json_patch(document: Value, body: &[u8]) -> Result<Patched, Status> {
    let (operations, strict_errors) = decode(body)?;
    let mut state = State {
        document,
        copied_bytes: 0,
    };
    for operation in operations {
        state.apply(operation).ok_or_else(cannot_apply)?;
    }
    Ok(Patched {
        value: state.document,
        strict_errors,
        shown: None,
    })
}

/// Applies the JSON patch of a webhook. The error is that of the library the API server uses, which a client is shown.
pub(crate) fn json_patch_or_why(document: Value, body: &[u8]) -> Result<Value, String> {
    let (operations, _) = decode(body).map_err(|status| {
        let text = status.message.trim_start_matches("error decoding patch: ").to_owned();
        text.replace("[]handlers.jsonPatchOp", "jsonpatch.Patch")
    })?;
    let mut state = State {
        document,
        copied_bytes: 0,
    };
    for operation in operations {
        let before = state.document.clone();
        if state.apply(operation.clone()).is_none() {
            return Err(why_not(before, &operation));
        }
    }
    Ok(state.document)
}

/// Returns the reason for which an operation cannot be applied to a document.
fn why_not(mut document: Value, operation: &Operation) -> String {
    let text = |field: &str| operation.get(field).and_then(Value::as_str).unwrap_or_default();
    let (op, path, from) = (text("op"), text("path"), text("from"));
    let mut has_container = |path: &str| Pointer::parse(path).is_some_and(|it| it.container(&mut document).is_some());
    match op {
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
        "test" => format!("testing value {path} failed: test failed"),
        other => format!("Unexpected kind: {other}"),
    }
}

/// One operation as it was sent.
type Operation = Map<String, Value>;

/// The operations, null ones as empty maps, and what strict validation finds wrong.
fn decode(body: &[u8]) -> Result<(Vec<Operation>, Vec<String>), Status> {
    let refused = |error: String| Status::bad_request(format!("error decoding patch: {error}"));
    let misfit =
        |value: &Value, into: &str| refused(format!("json: cannot unmarshal {} into Go {into}", json_type(value)));
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
    if operations.len() > MAX_OPERATIONS {
        return Err(Status::too_large(format!(
            "Request entity too large: The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
            operations.len()
        )));
    }
    let strict_errors = strict_errors.into_iter().map(|text| format!("json patch {text}"));
    Ok((operations, strict_errors.collect()))
}

struct State {
    document: Value,
    copied_bytes: usize,
}

/// A path taken apart: the steps to the container, and the key in it.
struct Pointer {
    steps: Vec<String>,
    key: String,
}

impl Pointer {
    /// `None` for the empty path, and for one without a slash. What stands before the first slash does not matter.
    fn parse(path: &str) -> Option<Self> {
        let mut parts = path
            .split('/')
            .skip(1)
            .map(|part| part.replace("~1", "/").replace("~0", "~"));
        let mut steps: Vec<String> = parts.by_ref().take(nesting::MAX + 2).collect();
        // More steps than a document is deep lead nowhere.
        if parts.next().is_some() {
            return None;
        }
        let key = steps.pop()?;
        Some(Self { steps, key })
    }

    /// The list or map the key is in.
    fn container<'a>(&self, document: &'a mut Value) -> Option<&'a mut Value> {
        let mut value = document;
        for step in &self.steps {
            value = match value {
                Value::Object(map) => map.get_mut(step)?,
                Value::Array(items) => {
                    let index = index_of(step, items.len())?;
                    items.get_mut(index)?
                }
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return None,
            };
        }
        matches!(value, Value::Object(_) | Value::Array(_)).then_some(value)
    }
}

/// An index below `length`, or counted back from it.
fn index_of(key: &str, length: usize) -> Option<usize> {
    let index: i64 = key.parse().ok()?;
    let length = i64::try_from(length).ok()?;
    let index = if index < 0 { index + length } else { index };
    (0..length).contains(&index).then_some(usize::try_from(index).ok()?)
}

/// Returns the value at a key: `None` where an index is out of the list, `Some(None)` for a missing field.
fn get<'a>(container: &'a Value, key: &str) -> Option<Option<&'a Value>> {
    match container {
        Value::Object(map) => Some(map.get(key)),
        Value::Array(items) => items.get(index_of(key, items.len())?).map(Some),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

impl State {
    /// Carries one operation out; `None` where that fails.
    fn apply(&mut self, mut operation: Map<String, Value>) -> Option<()> {
        let text = |operation: &Map<String, Value>, field: &str| {
            operation.get(field).and_then(Value::as_str).map(str::to_owned)
        };
        let path = text(&operation, "path")?;
        let from = text(&operation, "from");
        let value = operation.remove("value");
        match operation.get("op").and_then(Value::as_str)? {
            "add" => self.add(&path, value.unwrap_or_default()),
            "remove" => self.remove(&path).map(drop),
            "replace" => self.replace(&path, value.unwrap_or_default()),
            "move" => {
                let value = self.remove(&from?)?;
                self.add(&path, value)
            }
            "copy" => {
                let value = self.copied(&from?)?;
                self.add(&path, value)
            }
            "test" => self.test(&path, &value.unwrap_or_default()),
            _ => None,
        }
    }

    fn add(&mut self, path: &str, value: Value) -> Option<()> {
        let pointer = Pointer::parse(path)?;
        if pointer.steps.len() + 1 + nesting::levels(&value) > nesting::MAX {
            return None;
        }
        match pointer.container(&mut self.document)? {
            Value::Object(map) => {
                map.insert(pointer.key, value);
            }
            Value::Array(items) if pointer.key == "-" => items.push(value),
            Value::Array(items) => {
                let index = index_of(&pointer.key, items.len() + 1)?;
                items.insert(index, value);
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return None,
        }
        Some(())
    }

    fn remove(&mut self, path: &str) -> Option<Value> {
        let pointer = Pointer::parse(path)?;
        match pointer.container(&mut self.document)? {
            Value::Object(map) => map.remove(&pointer.key),
            Value::Array(items) => {
                let index = index_of(&pointer.key, items.len())?;
                Some(items.remove(index))
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        }
    }

    fn replace(&mut self, path: &str, value: Value) -> Option<()> {
        if path.is_empty() {
            if !(value.is_object() || value.is_array()) {
                return None;
            }
            self.document = value;
            return Some(());
        }
        let pointer = Pointer::parse(path)?;
        if pointer.steps.len() + 1 + nesting::levels(&value) > nesting::MAX {
            return None;
        }
        match pointer.container(&mut self.document)? {
            Value::Object(map) => {
                map.insert(pointer.key, value);
            }
            Value::Array(items) => {
                let index = index_of(&pointer.key, items.len())?;
                items[index] = value;
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return None,
        }
        Some(())
    }

    fn copied(&mut self, from: &str) -> Option<Value> {
        let pointer = Pointer::parse(from)?;
        let container = pointer.container(&mut self.document)?;
        let value = get(container, &pointer.key)?.cloned().unwrap_or_default();
        if !value.is_null() {
            self.copied_bytes += value.to_string().len();
        }
        (self.copied_bytes <= MAX_COPIED_BYTES).then_some(value)
    }

    fn test(&mut self, path: &str, expected: &Value) -> Option<()> {
        if path.is_empty() {
            return (self.document == *expected).then_some(());
        }
        let pointer = Pointer::parse(path)?;
        let container = pointer.container(&mut self.document)?;
        let found = get(container, &pointer.key)?.unwrap_or(&Value::Null);
        (found == expected).then_some(())
    }
}
