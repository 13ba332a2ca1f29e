//! Merge patch (RFC 7386, rule G3).

use super::Patched;
use super::go_json::{duplicate_fields, parse_with_duplicates};
use crate::api::json::type_name;
use crate::api::json::{Map, Value};
use crate::api::nesting;
use crate::api::status::Status;

/// Applies a merge patch.
pub(crate) fn merge_patch(document: Value, body: &[u8]) -> Result<Patched, Status> {
    let refused = |error: String| Status::bad_request(format!("error decoding patch: {error}"));
    let (patch, duplicates) = parse_with_duplicates(body).map_err(refused)?;
    let patch = match patch {
        Value::Object(patch) => patch,
        Value::Null => return Err(Status::bad_request("Invalid JSON Patch")),
        other => {
            let found = type_name(&other);
            let text = format!("json: cannot unmarshal {found} into Go value of type map[string]interface {{}}");
            return Err(refused(text));
        }
    };
    let mut value = document;
    merge(&mut value, patch);
    if nesting::levels_of_object(&value) > nesting::MAX {
        return Err(refused(nesting::EXCEEDED.to_owned()));
    }
    Ok(Patched {
        value,
        strict_errors: duplicate_fields(&duplicates),
        shown: None,
    })
}

fn merge(value: &mut Value, patch: Map) {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    let Value::Object(map) = value else {
        return;
    };
    for (key, change) in patch {
        match (map.get_mut(&key), change) {
            (_, Value::Null) => {
                map.remove(&key);
            }
            (Some(old @ Value::Object(_)), Value::Object(change)) => merge(old, change),
            // A list that replaces a map keeps the null fields in its items. Null fields are dropped from all other new
            // values.
            (Some(old @ Value::Object(_)), change @ Value::Array(_)) => *old = change,
            (_, mut change) => {
                prune_nulls(&mut change);
                map.insert(key, change);
            }
        }
    }
}

/// Drops the null fields of maps, at any depth. Null items of lists are kept.
fn prune_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(prune_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(prune_nulls),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
