//! JSON patch by the `json_patch` crate, made as lenient as the library the API server uses: `replace` of a missing
//! field adds it, indices may be negative, `copy` of a missing field gives null, and `test` takes a missing field for
//! null (rule G2).

use json_patch::jsonptr::{Pointer, PointerBuf};
use json_patch::{AddOperation, PatchOperation, RemoveOperation, ReplaceOperation, TestOperation};
use serde_json::Value as Document;

use super::go_json::{duplicate_fields, parse_with_duplicates};
use super::{Patched, cannot_apply};
use crate::api::field::quote;
use crate::api::json::{Map, Value, type_name};
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
        document: document.into(),
        copied_bytes: 0,
    };
    for operation in operations {
        state.apply(operation).ok_or_else(cannot_apply)?;
    }
    Ok(Patched {
        value: state.document.into(),
        strict_errors,
        shown: None,
    })
}

/// Applies the JSON patch of a webhook. The error is that of the library the API server uses, which a client is shown.
pub(crate) fn json_patch_or_why(document: Value, body: &[u8]) -> Result<Value, Inapplicable> {
    let (operations, _) = decode(body).map_err(|status| {
        let text = status.message.trim_start_matches("error decoding patch: ").to_owned();
        Inapplicable::Otherwise(text.replace("[]handlers.jsonPatchOp", "jsonpatch.Patch"))
    })?;
    let mut state = State {
        document: document.into(),
        copied_bytes: 0,
    };
    for operation in operations {
        let before = state.document.clone();
        if state.apply(operation.clone()).is_none() {
            return Err(why_not(&before, &operation));
        }
    }
    Ok(state.document.into())
}

/// Reason for which a patch cannot be applied, in the words of Go's library.
#[derive(Debug)]
pub(crate) enum Inapplicable {
    /// A value is not the one that the patch tests for.
    Test(String),
    /// The patch cannot be read, or does not fit the document.
    Otherwise(String),
}

impl From<Inapplicable> for String {
    fn from(why: Inapplicable) -> Self {
        match why {
            Inapplicable::Test(text) | Inapplicable::Otherwise(text) => text,
        }
    }
}

/// Returns the reason for which an operation cannot be applied to a document.
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

/// One operation as it was sent.
type Operation = Map;

/// The operations, null ones as empty maps, and what strict validation finds wrong.
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
    /// In the form of the library.
    document: Document,
    copied_bytes: usize,
}

/// A place in a document: a pointer with plain indices, and the value there, if any.
struct Place<'a> {
    pointer: PointerBuf,
    found: Option<&'a Document>,
}

/// The keys of a path: `None` for the empty path, and for one without a slash. Text before the first slash is ignored.
fn keys(path: &str) -> Option<Vec<String>> {
    let mut parts = path
        .split('/')
        .skip(1)
        .map(|part| part.replace("~1", "/").replace("~0", "~"));
    let keys: Vec<String> = parts.by_ref().take(nesting::MAX + 2).collect();
    // More steps than a document is deep lead nowhere.
    (parts.next().is_none() && !keys.is_empty()).then_some(keys)
}

/// An index below `length`, or counted back from it.
fn index_of(key: &str, length: usize) -> Option<usize> {
    let index: i64 = key.parse().ok()?;
    let length = i64::try_from(length).ok()?;
    let index = if index < 0 { index + length } else { index };
    (0..length).contains(&index).then_some(usize::try_from(index).ok()?)
}

impl<'a> Place<'a> {
    /// Finds a path. The map or list that contains it must be there, and an index must lie in its list, or at its end
    /// where something `is_added`.
    fn find(document: &'a Document, path: &str, is_added: bool) -> Option<Self> {
        let keys = keys(path)?;
        let mut tokens = Vec::with_capacity(keys.len());
        let mut found = Some(document);
        let last = keys.len() - 1;
        for (at, key) in keys.into_iter().enumerate() {
            let is_added = is_added && at == last;
            let (token, next) = match found? {
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
            tokens.push(token);
            found = next;
        }
        let pointer = PointerBuf::from_tokens(&tokens);
        Some(Self { pointer, found })
    }
}

/// Returns `true` if the map or list that a path leads into is there.
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
    /// Carries one operation out; `None` where that fails.
    fn apply(&mut self, mut operation: Operation) -> Option<()> {
        let value = operation.remove("value").unwrap_or_default();
        let text = |field: &str| operation.get(field).and_then(Value::as_str);
        let (path, from) = (text("path")?, text("from"));
        match text("op")? {
            "add" => self.add(path, value),
            "remove" => self.remove(path).map(drop),
            "replace" => self.replace(path, value),
            "move" => {
                let value = self.remove(from?)?;
                self.add(path, value)
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
        let path = Place::find(&self.document, path, true)?.pointer;
        check_depth(&path, &value)?;
        self.patch(PatchOperation::Add(AddOperation {
            path,
            value: value.into(),
        }))
    }

    fn remove(&mut self, path: &str) -> Option<Value> {
        let place = Place::find(&self.document, path, false)?;
        let (path, value) = (place.pointer, Value::from(place.found?.clone()));
        self.patch(PatchOperation::Remove(RemoveOperation { path }))?;
        Some(value)
    }

    /// Replaces a value, or adds the field that is missing.
    fn replace(&mut self, path: &str, value: Value) -> Option<()> {
        if path.is_empty() {
            let path = PointerBuf::root();
            let is_document = value.is_object() || value.is_array();
            return is_document.then(|| {
                self.patch(PatchOperation::Replace(ReplaceOperation {
                    path,
                    value: value.into(),
                }))
            })?;
        }
        let place = Place::find(&self.document, path, false)?;
        let (path, is_there) = (place.pointer, place.found.is_some());
        check_depth(&path, &value)?;
        self.patch(match is_there {
            true => PatchOperation::Replace(ReplaceOperation {
                path,
                value: value.into(),
            }),
            false => PatchOperation::Add(AddOperation {
                path,
                value: value.into(),
            }),
        })
    }

    /// The value to copy; null for a missing field.
    fn copied(&mut self, from: &str) -> Option<Value> {
        let place = Place::find(&self.document, from, false)?;
        let value = Value::from(place.found.cloned());
        if !value.is_null() {
            self.copied_bytes += value.to_string().len();
        }
        (self.copied_bytes <= MAX_COPIED_BYTES).then_some(value)
    }

    /// Compares a value; a missing field is null.
    fn test(&mut self, path: &str, value: Value) -> Option<()> {
        let path = match path {
            "" => PointerBuf::root(),
            path => match Place::find(&self.document, path, false)? {
                Place {
                    pointer,
                    found: Some(_),
                } => pointer,
                Place { found: None, .. } => return value.is_null().then_some(()),
            },
        };
        self.patch(PatchOperation::Test(TestOperation {
            path,
            value: value.into(),
        }))
    }

    /// Carries out an operation exactly as RFC 6902 says.
    fn patch(&mut self, operation: PatchOperation) -> Option<()> {
        json_patch::patch_unsafe(&mut self.document, &[operation]).ok()
    }
}

/// Documents are not nested deeper than they can be read back.
fn check_depth(path: &Pointer, value: &Value) -> Option<()> {
    (path.count() + nesting::levels(value) <= nesting::MAX).then_some(())
}
