//! Merge patches (RFC 7386): the differences between two objects.

use kube::api::{Patch, PatchParams};
use kube::core::Request;
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::{Error, ObjectKey};

/// Returns the merge patch that changes `found` to `wanted`; `None` if they are equal. Lists are replaced as a whole,
/// and removed fields are set to `null`.
pub(super) fn difference(found: &Value, wanted: &Value) -> Option<Value> {
    if found == wanted {
        return None;
    }
    let (Value::Object(found), Value::Object(wanted)) = (found, wanted) else {
        return Some(wanted.clone());
    };
    let mut patch = Map::new();
    for name in found.keys().filter(|name| !wanted.contains_key(*name)) {
        patch.insert(name.clone(), Value::Null);
    }
    for (name, wanted) in wanted {
        let changed = match found.get(name) {
            Some(found) => difference(found, wanted),
            None => Some(wanted.clone()),
        };
        patch.extend(changed.map(|changed| (name.clone(), changed)));
    }
    Some(Value::Object(patch))
}

/// Converts an object to a JSON value. The error contains `key`.
pub(super) fn json(key: &ObjectKey, object: &impl Serialize) -> Result<Value, Error> {
    serde_json::to_value(object).map_err(|err| Error::decode(key.to_string(), err))
}

/// Sends a merge patch of an object or a subresource, with `version` as a precondition.
pub(super) async fn send<K>(
    client: &Client,
    key: &ObjectKey,
    subresource: Option<&str>,
    mut patch: Value,
    version: Option<&str>,
) -> Result<K, Error>
where
    K: Resource<DynamicType = ()> + DeserializeOwned,
{
    if let Some(version) = version {
        patch["metadata"]["resourceVersion"] = version.into();
    }
    let (request, params) = (Request::new(K::url_path(&(), key.namespace())), PatchParams::default());
    let patch = Patch::Merge(patch);
    let request = match subresource {
        Some(subresource) => request.patch_subresource(subresource, key.name(), &params, &patch),
        None => request.patch(key.name(), &params, &patch),
    };
    let request = request.map_err(kube::Error::BuildRequest)?;
    Ok(client.request(request).await?)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::difference;

    #[rstest]
    #[case::equal_values(json!({"a": {"b": [1]}}), json!({"a": {"b": [1]}}), None)]
    #[case::changed(json!({"a": {"b": 1, "c": 2}}), json!({"a": {"b": 3, "c": 2}}), Some(json!({"a": {"b": 3}})))]
    #[case::added(json!({"a": {}}), json!({"a": {}, "d": {"e": 1}}), Some(json!({"d": {"e": 1}})))]
    #[case::removed(json!({"a": 1, "b": {"c": 1}}), json!({"b": {}}), Some(json!({"a": null, "b": {"c": null}})))]
    #[case::changed_list(json!({"a": [1, 2]}), json!({"a": [2]}), Some(json!({"a": [2]})))]
    #[case::another_type(json!({"a": {"b": 1}}), json!({"a": "text"}), Some(json!({"a": "text"})))]
    fn merge_patch_contains_only_the_differences(
        #[case] found: Value,
        #[case] wanted: Value,
        #[case] patch: Option<Value>,
    ) {
        assert_eq!(difference(&found, &wanted), patch);
    }
}
