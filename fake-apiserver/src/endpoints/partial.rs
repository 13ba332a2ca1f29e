//! Objects and lists reduced to their metadata (rule M3).

use super::negotiation::MetaVersion;
use crate::api::json::{Map, Value};
use crate::api::object::Object;
use crate::registry::scheme::Row;

/// Returns an object as PartialObjectMetadata.
pub(crate) fn object(object: &Object, version: MetaVersion) -> Value {
    let mut metadata = object.metadata().cloned().unwrap_or_default();
    if object.kind() == "DaemonSet" {
        drop_template_generation(&mut metadata);
    }
    // `json!` is not used, because it copies its arguments.
    let fields = [
        ("kind", "PartialObjectMetadata".into()),
        ("apiVersion", version.api_version().into()),
        ("metadata", Value::Object(metadata)),
    ];
    fields.into_iter().collect()
}

/// Returns `true` if the stored metadata of a row's objects can be returned without decoding it.
pub(crate) fn is_as_stored(row: &Row) -> bool {
    row.is_as_stored && &*row.info.kind != "DaemonSet"
}

/// Returns the JSON before the metadata of a stored object.
pub(crate) fn head(version: MetaVersion) -> String {
    let version = version.api_version();
    format!("{{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"{version}\",\"metadata\":{{")
}

/// Returns the JSON before the items of a list that is not empty; `metadata` is the metadata of the list.
pub(crate) fn list_head(metadata: Option<&Map>, version: MetaVersion) -> String {
    let (version, metadata) = (version.api_version(), list_metadata(metadata));
    format!("{{\"kind\":\"PartialObjectMetadataList\",\"apiVersion\":\"{version}\",\"metadata\":{metadata},\"items\":[")
}

/// Removes the annotation with the template generation of a DaemonSet. kube-apiserver takes metadata from the internal
/// form of an object, in which the template generation is a separate field.
fn drop_template_generation(metadata: &mut Map) {
    let Some(Value::Object(annotations)) = metadata.get_mut("annotations") else {
        return;
    };
    annotations.remove("deprecated.daemonset.template.generation");
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
}

/// Returns a list as PartialObjectMetadataList; `metadata` is the metadata of the list. Items of an empty list are
/// null.
pub(crate) fn list<'o>(
    metadata: Option<&Map>,
    items: impl IntoIterator<Item = &'o Object>,
    version: MetaVersion,
) -> Value {
    let items: Vec<Value> = items.into_iter().map(|it| self::object(it, version)).collect();
    let fields = [
        ("kind", "PartialObjectMetadataList".into()),
        ("apiVersion", version.api_version().into()),
        ("metadata", list_metadata(metadata)),
        (
            "items",
            if items.is_empty() {
                Value::Null
            } else {
                Value::Array(items)
            },
        ),
    ];
    fields.into_iter().collect()
}

/// Returns the metadata of a list without the empty `continue` that lists of custom resources have.
pub(super) fn list_metadata(metadata: Option<&Map>) -> Value {
    let known = ["resourceVersion", "continue", "remainingItemCount"];
    let fields = metadata.into_iter().flatten();
    let kept = fields.filter(|(name, value)| known.contains(&name.as_str()) && !value.is_null() && *value != "");
    Value::Object(kept.map(|(name, value)| (name.clone(), value.clone())).collect())
}

#[cfg(test)]
mod tests {
    use crate::api::json::{Value, json};
    use http::Request;
    use rstest::rstest;

    use crate::ApiServer;

    const CRD: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

    fn definition() -> Value {
        let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "lamps.example.com"},
            "spec": {
                "group": "example.com",
                "scope": "Namespaced",
                "names": {"plural": "lamps", "kind": "Lamp"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
            },
        })
    }

    fn daemon_set() -> Value {
        let template = json!({
            "metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "a", "image": "a"}]},
        });
        json!({
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": "a"},
            "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template},
        })
    }

    async fn post(server: &ApiServer, path: &str, object: &Value) {
        let request = Request::post(path).header("content-type", "application/json");
        let answer = server
            .call(request.body(object.to_string()).expect("the request is valid"))
            .await;
        assert_eq!(answer.status(), 201, "{:?}", answer.body());
    }

    async fn get(server: &ApiServer, path: &str, accept: &str) -> Value {
        let request = Request::get(path)
            .header("accept", accept)
            .body("")
            .expect("the request is valid");
        serde_json::from_slice(server.call(request).await.body()).expect("the text is valid JSON")
    }

    /// Compact responses are copied from stored bytes; indented responses are encoded from decoded objects.
    #[rstest]
    #[case::built_in_kind("/api/v1/namespaces/default/configmaps", json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "annotations": {"b": "é}\n"}}, "data": {"k": "v"},
    }))]
    #[case::metadata_with_hidden_fields("/apis/apps/v1/namespaces/default/daemonsets", daemon_set())]
    #[case::custom_kind("/apis/example.com/v1/namespaces/default/lamps", json!({
        "apiVersion": "example.com/v1", "kind": "Lamp", "metadata": {"name": "a", "annotations": {"b": "\"c\\"}}, "d": 1,
    }))]
    #[case::empty_list("/api/v1/namespaces/default/secrets", Value::Null)]
    #[tokio::test(start_paused = true)]
    async fn compact_and_indented_metadata_lists_are_equal(#[case] path: &str, #[case] object: Value) {
        let server = ApiServer::start();
        post(&server, CRD, &definition()).await;
        if !object.is_null() {
            post(&server, path, &object).await;
        }
        let accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
        let compact = get(&server, path, accept).await;
        assert_eq!(compact["kind"], "PartialObjectMetadataList");
        assert_eq!(compact, get(&server, &format!("{path}?pretty=true"), accept).await);
    }
}
