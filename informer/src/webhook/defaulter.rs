//! `Defaulter`: sets defaults in objects before they are stored.

use std::collections::BTreeSet;

use k8s_openapi::ByteString;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::denial::Denial;
use super::endpoint::decode;
use super::review::{AdmissionRequest, AdmissionResponse, Operation};

/// Sets defaults in objects of one type when they are written (controller-runtime's `admission.Defaulter`). Implemented
/// for all `Fn(&mut K, &AdmissionRequest) -> Result<(), Denial>`. Only called for creations and updates.
///
/// Only the fields that the defaulter changes are patched, so fields that are unknown to the type are kept.
///
/// List items are matched by position. If a defaulter removes an item, inserts an item before other items, or changes
/// the `name` of an item, the whole list is replaced, and its items lose fields that are unknown to the Rust type. In
/// controller-runtime, changes of the length of a list have the same effect. A webhook that injects sidecars should
/// therefore append its container, or use a type that keeps unknown fields, such as `DynamicObject`.
///
/// ```
/// use informer::webhook::{AdmissionRequest, Defaulter, Denial};
/// use k8s_openapi::api::core::v1::Pod;
///
/// struct OurScheduler;
///
/// impl Defaulter<Pod> for OurScheduler {
///     async fn default(&self, pod: &mut Pod, _: &AdmissionRequest) -> Result<(), Denial> {
///         pod.spec.get_or_insert_default().scheduler_name.get_or_insert_with(|| "ours".into());
///         Ok(())
///     }
/// }
/// ```
pub trait Defaulter<K: Send>: Send + Sync + 'static {
    /// Sets defaults in an object.
    fn default(&self, object: &mut K, request: &AdmissionRequest) -> impl Future<Output = Result<(), Denial>> + Send;
}

impl<K, F> Defaulter<K> for F
where
    K: Send,
    F: Fn(&mut K, &AdmissionRequest) -> Result<(), Denial> + Send + Sync + 'static,
{
    async fn default(&self, object: &mut K, request: &AdmissionRequest) -> Result<(), Denial> {
        self(object, request)
    }
}

/// Calls a defaulter, and returns its changes as a JSON patch.
pub(super) async fn default<K>(
    defaulter: &impl Defaulter<K>,
    request: &AdmissionRequest,
) -> Result<AdmissionResponse, Denial>
where
    K: DeserializeOwned + Serialize + Send,
{
    if matches!(request.operation, Operation::Delete | Operation::Connect) {
        return Ok(AdmissionResponse::allowed());
    }
    let json = |object: &K| serde_json::to_value(object).map_err(Denial::errored);
    let mut object: K = decode(&request.object)?;
    let before = json(&object)?;
    defaulter.default(&mut object, request).await?;
    let wanted = carried(&request.object, &before, json(&object)?);
    let patch = json_patch::diff(&request.object, &wanted);
    if patch.0.is_empty() {
        return Ok(AdmissionResponse::allowed());
    }
    Ok(AdmissionResponse {
        patch: Some(ByteString(serde_json::to_vec(&patch).map_err(Denial::errored)?)),
        patch_type: Some("JSONPatch"),
        ..AdmissionResponse::allowed()
    })
}

/// Applies the changes between `before` and `after` to `raw`. Fields that are unknown to the type keep the client's
/// values, and fields that only result from decoding and encoding are not added. A list from which items were removed,
/// or in which they were moved, is an exception: it is replaced by the list in `after`.
fn carried(raw: &Value, before: &Value, after: Value) -> Value {
    if *before == after {
        return raw.clone();
    }
    match (raw, before, after) {
        (Value::Object(raw), Value::Object(before), Value::Object(after)) => {
            let mut kept: Map<_, _> = raw.clone();
            for name in before.keys().filter(|it| !after.contains_key(*it)) {
                kept.remove(name);
            }
            for (name, after) in after {
                match (kept.get(&name), before.get(&name)) {
                    (_, Some(before)) if *before == after => {}
                    (Some(raw), Some(before)) => {
                        let value = carried(raw, before, after);
                        kept.insert(name, value);
                    }
                    (None, _) | (_, None) if after.is_null() => {}
                    (None, _) | (_, None) => {
                        kept.insert(name, after);
                    }
                }
            }
            Value::Object(kept)
        }
        (Value::Array(raw), Value::Array(before), Value::Array(after))
            if raw.len() == before.len() && before.len() <= after.len() && !are_moved(before, &after) =>
        {
            let pairs = raw.iter().zip(before).map(Some).chain(std::iter::repeat(None));
            let items = after.into_iter().zip(pairs).map(|(after, known)| match known {
                Some((raw, before)) => carried(raw, before, after),
                None => after,
            });
            Value::Array(items.collect())
        }
        (_, _, after) => after,
    }
}

/// Returns `true` if `after` contains a changed or new item that equals an item of `before` at another position, or if
/// the name of an item has changed.
fn are_moved(before: &[Value], after: &[Value]) -> bool {
    // As strings, because the comparison of each item with each other item would be quadratic.
    let new = after.iter().enumerate().filter(|(at, it)| before.get(*at) != Some(it));
    let new: BTreeSet<String> = new.map(|(_, it)| it.to_string()).collect();
    let mut changed = before.iter().zip(after).filter(|(before, after)| before != after);
    changed.any(|(old, changed)| {
        let names = (old["name"].as_str(), changed["name"].as_str());
        let has_other_name = matches!(names, (Some(old), Some(new)) if old != new);
        has_other_name || new.contains(&old.to_string())
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::unknown_field(json!({"a": 1, "x": 2}), json!({"a": 1}), json!({"a": 3}), json!({"a": 3, "x": 2}))]
    #[case::empty_list_instead_of_an_absent_field(json!({}), json!({"list": []}), json!({"list": [], "b": 1}), json!({"b": 1}))]
    #[case::removed_field(json!({"a": 1, "b": 2}), json!({"a": 1, "b": 2}), json!({"a": 1}), json!({"a": 1}))]
    #[case::changed_and_added_items(json!([{"a": 1, "x": 2}]), json!([{"a": 1}]), json!([{"a": 5}, {"a": 6}]),
        json!([{"a": 5, "x": 2}, {"a": 6}]))]
    #[case::removed_item(json!([1, 2]), json!([1, 2]), json!([2]), json!([2]))]
    #[case::inserted_item(json!([{"a": 1, "x": 2}]), json!([{"a": 1}]), json!([{"a": 0}, {"a": 1}]),
        json!([{"a": 0}, {"a": 1}]))]
    #[case::inserted_item_and_changed_item(json!([{"name": "a", "x": 2}]), json!([{"name": "a"}]),
        json!([{"name": "b"}, {"name": "a", "y": 3}]), json!([{"name": "b"}, {"name": "a", "y": 3}]))]
    #[case::first_of_equal_items(json!([{"a": 1, "x": 2}, {"a": 1, "x": 3}]), json!([{"a": 1}, {"a": 1}]),
        json!([{"a": 5}, {"a": 1}]), json!([{"a": 5, "x": 2}, {"a": 1, "x": 3}]))]
    #[case::another_type(json!({"a": "text"}), json!({"a": "text"}), json!({"a": [1]}), json!({"a": [1]}))]
    fn only_changes_of_the_defaulter_are_applied(
        #[case] raw: Value,
        #[case] before: Value,
        #[case] after: Value,
        #[case] wanted: Value,
    ) {
        assert_eq!(carried(&raw, &before, after), wanted);
    }
}
