//! A uid in a body identifies an existing object, and does not set the uid of a new one.

use fake_apiserver::ApiServer;
use rstest::rstest;
use serde_json::{Value, json};

use crate::ask::{get, message, put};

/// Go's `Store.Update` checks preconditions before it checks whether an update may create the kind.
#[rstest]
#[case("/api/v1/namespaces/default/services/x", "v1", "Service", "services")]
#[case("/api/v1/namespaces/default/endpoints/x", "v1", "Endpoints", "endpoints")]
#[case("/api/v1/namespaces/default/limitranges/x", "v1", "LimitRange", "limitranges")]
#[case("/api/v1/namespaces/default/events/x", "v1", "Event", "events")]
#[case(
    "/apis/coordination.k8s.io/v1/namespaces/default/leases/x",
    "coordination.k8s.io/v1",
    "Lease",
    "leases.coordination.k8s.io"
)]
#[case(
    "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles/x",
    "rbac.authorization.k8s.io/v1",
    "Role",
    "roles.rbac.authorization.k8s.io"
)]
#[case(
    "/apis/rbac.authorization.k8s.io/v1/clusterroles/x",
    "rbac.authorization.k8s.io/v1",
    "ClusterRole",
    "clusterroles.rbac.authorization.k8s.io"
)]
#[case(
    "/apis/node.k8s.io/v1/runtimeclasses/x",
    "node.k8s.io/v1",
    "RuntimeClass",
    "runtimeclasses.node.k8s.io"
)]
#[tokio::test]
async fn stale_put_does_not_recreate_the_object(
    #[case] path: &str,
    #[case] api_version: &str,
    #[case] kind: &str,
    #[case] named: &str,
    #[values("", "?dryRun=All")] query: &str,
) {
    let server = ApiServer::start();
    let body = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "x", "uid": "gone"}});
    let (code, answer) = put(&server, &format!("{path}{query}"), &body).await;
    assert_eq!((code, &answer["reason"]), (409, &Value::from("Conflict")), "{answer}");
    let text = message(&answer);
    let starts =
        format!("Operation cannot be fulfilled on {named} \"x\": StorageError: invalid object, Code: 4, Key: ");
    assert!(text.starts_with(&starts), "{text}");
    let ends = "/x, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: gone, \
                UID in object meta: ";
    assert!(text.ends_with(ends), "{text}");
    assert_eq!(get(&server, path).await.0, 404);
}

#[tokio::test]
async fn put_with_a_uid_returns_404_if_put_cannot_create_the_kind() {
    let server = ApiServer::start();
    let path = "/api/v1/namespaces/default/configmaps/x";
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "uid": "gone"}});
    assert_eq!(put(&server, path, &body).await.0, 404);
}
