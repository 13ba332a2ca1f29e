//! Patches that change the kind of an object, or remove its kind.

use fake_apiserver::ApiServer;
use rstest::rstest;
use serde_json::{Value, json};

use crate::ask::{JSON_PATCH, MERGE, STRATEGIC, config_map, get, message, post, send};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const UNDETERMINABLE: &str = "the name of the object (a based on URL) was undeterminable: name must be provided";

/// The result is decoded into an internal object of the kind in the patched document.
#[rstest]
#[case::another_kind(json!({"kind": "Secret"}), 422, "illegal base64 data at input byte 0")]
#[case::another_kind_with_the_same_fields(json!({"kind": "Secret", "data": {"k": "dg=="}}), 422,
    "converting (v1.Secret) to (core.ConfigMap): unknown conversion")]
#[case::unknown_version(json!({"apiVersion": "v2"}), 422,
    "no kind \"ConfigMap\" is registered for version \"v2\" in scheme \"pkg/api/legacyscheme/scheme.go:30\"")]
#[case::malformed_version(json!({"apiVersion": "a/b/c"}), 422, "unexpected GroupVersion string: a/b/c")]
#[case::removed_version(json!({"apiVersion": null}), 400, UNDETERMINABLE)]
#[case::another_kind_without_version(json!({"apiVersion": null, "kind": "Secret"}), 422,
    "converting (core.Secret) to (core.ConfigMap): unknown conversion")]
#[case::number_as_kind(json!({"kind": 5}), 422,
    "couldn't get version/kind; json parse error: json: cannot unmarshal number into Go struct field .kind of type \
     string")]
#[case::another_name(json!({"metadata": {"name": "b"}}), 400,
    "the name of the object (b) does not match the name on the URL (a)")]
#[case::removed_name(json!({"metadata": {"name": null}}), 400, UNDETERMINABLE)]
#[case::removed_metadata(json!({"metadata": null}), 400, UNDETERMINABLE)]
#[case::another_namespace(json!({"metadata": {"namespace": "b"}}), 400,
    "the namespace of the provided object does not match the namespace sent on the request")]
#[tokio::test]
async fn patch_cannot_change_the_identity_of_an_object(#[case] patch: Value, #[case] code: u16, #[case] ends: &str) {
    let server = ApiServer::start();
    post(&server, MAPS, &config_map("a", json!({"k": "v"}))).await;
    let before = get(&server, &format!("{MAPS}/a")).await;
    let (got, answer) = send(&server, "PATCH", &format!("{MAPS}/a"), MERGE, &patch).await;
    assert_eq!(got, code, "{answer}");
    assert!(message(&answer).ends_with(ends), "{answer}");
    assert_eq!(get(&server, &format!("{MAPS}/a")).await, before);
}

#[rstest]
#[case::list_instead_of_an_object(json!([{"op": "replace", "path": "", "value": []}]))]
#[case::removed_name(json!([{"op": "remove", "path": "/metadata/name"}]))]
#[case::another_kind(json!([{"op": "replace", "path": "/kind", "value": "Pod"}]))]
#[tokio::test]
async fn json_patches_that_remove_or_change_the_identity_are_refused(#[case] patch: Value) {
    let server = ApiServer::start();
    post(&server, MAPS, &config_map("a", json!({"k": "v"}))).await;
    let before = get(&server, &format!("{MAPS}/a")).await;
    let (code, answer) = send(&server, "PATCH", &format!("{MAPS}/a"), JSON_PATCH, &patch).await;
    assert!(matches!(code, 400 | 422), "{answer}");
    assert_eq!(get(&server, &format!("{MAPS}/a")).await, before);
}

/// A strategic patch is merged into the object's type, which the patch cannot change.
#[rstest]
#[case(json!({"kind": "Secret"}))]
#[case(json!({"apiVersion": "v2"}))]
#[case(json!({"kind": null, "apiVersion": null}))]
#[case::unknown_directives(json!({"$foo": "x", "metadata": {"$bar": [1]}}))]
#[tokio::test]
async fn strategic_patches_ignore_kind_version_and_unknown_directives(#[case] patch: Value) {
    let server = ApiServer::start();
    let (_, made) = post(&server, MAPS, &config_map("a", json!({"k": "v"}))).await;
    let (code, answer) = send(&server, "PATCH", &format!("{MAPS}/a"), STRATEGIC, &patch).await;
    assert_eq!((code, answer), (200, made));
}

#[tokio::test]
async fn patch_in_another_served_version_is_converted() {
    let server = ApiServer::start();
    let path = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"});
    let made = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "h"},
        "spec": {"maxReplicas": 3, "scaleTargetRef": target}});
    let (code, made) = post(&server, path, &made).await;
    assert_eq!(code, 201, "{made}");
    let patch = json!({"apiVersion": "autoscaling/v1",
        "spec": {"maxReplicas": 4, "metrics": null, "targetCPUUtilizationPercentage": 50}});
    let (code, answer) = send(&server, "PATCH", &format!("{path}/h"), MERGE, &patch).await;
    assert_eq!(code, 200, "{answer}");
    assert_eq!(answer["apiVersion"], "autoscaling/v2");
    assert_eq!(answer["spec"]["maxReplicas"], 4);
    let metric = &answer["spec"]["metrics"][0]["resource"]["target"];
    assert_eq!(metric["averageUtilization"], 50, "{answer}");
}
