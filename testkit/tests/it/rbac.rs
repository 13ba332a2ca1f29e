//! Controllers with the role of their deployment, and the role that their requests require.

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::Client;
use kube::api::{Api, ListParams, Patch, PatchParams};
use rstest::rstest;
use serde_json::json;
use testkit::{ObservedRbac, TestCluster, UserInfo, Worker, objects::pod};

/// Applies a ConfigMap for each Pod; fails with the server's message.
async fn copy_pods(client: Client) -> Result<(), kube::Error> {
    let pods = Api::<Pod>::all(client.clone()).list(&ListParams::default()).await?;
    for pod in pods {
        let name = pod.metadata.name.unwrap_or_default();
        let maps = Api::<ConfigMap>::namespaced(client.clone(), pod.metadata.namespace.as_deref().unwrap_or_default());
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"pod": name}});
        maps.patch(&name, &PatchParams::apply("copier"), &Patch::Apply(map))
            .await?;
    }
    Ok(())
}

const EXACT: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: copier}
rules:
- {apiGroups: [""], resources: [pods], verbs: [list]}
- {apiGroups: [""], resources: [configmaps], verbs: [create, patch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: copier}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: copier}
subjects: [{kind: ServiceAccount, name: copier, namespace: ops}]
"#;

/// Runs the controller under the roles of a manifest.
async fn run(manifest: &str) -> (Result<(), kube::Error>, ObservedRbac) {
    let cluster = TestCluster::builder()
        .rbac()
        .object(pod("web-0"))
        .yaml(manifest)
        .start();
    let ended = copy_pods(cluster.client_as("copier", UserInfo::service_account("ops", "copier"))).await;
    let requests = cluster.requests().user("system:serviceaccount:ops:copier");
    (ended, requests.observed_rbac())
}

#[tokio::test(start_paused = true)]
async fn role_with_exactly_the_required_permissions_passes() {
    let (ended, observed) = run(EXACT).await;
    ended.expect("the role is sufficient");
    observed.assert_is_exactly(EXACT);
}

#[tokio::test(start_paused = true)]
async fn apply_that_creates_an_object_requires_permission_to_create() {
    let manifest = EXACT.replace("[create, patch]", "[patch]");
    let (ended, _) = run(&manifest).await;
    let said = ended.expect_err("the role is insufficient").to_string();
    assert!(said.contains("cannot create resource \"configmaps\""), "{said}");
}

#[tokio::test(start_paused = true)]
async fn required_role_is_printed_as_yaml() {
    let (_, observed) = run(EXACT).await;
    let expected = r#"apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: observed
rules:
- apiGroups: [""]
  resources: ["configmaps"]
  verbs: ["create", "patch"]
- apiGroups: [""]
  resources: ["pods"]
  verbs: ["list"]
"#;
    assert_eq!(observed.to_string(), expected);
    observed.assert_is_exactly(expected);
}

#[rstest]
#[case::missing("resources: [pods], verbs: [list]", "resources: [pods], verbs: [get]", &[
    "missing:\n- {apiGroups: [\"\"], resources: [\"pods\"], verbs: [\"list\"]}",
    "unused:\n- {apiGroups: [\"\"], resources: [\"pods\"], verbs: [\"get\"]}",
])]
#[case::wildcard("verbs: [create, patch]", "verbs: ['*']", &[
    "too wide:\n- {apiGroups: [\"\"], resources: [\"configmaps\"], verbs: [\"*\"]}",
    "used by the controller: {apiGroups: [\"\"], resources: [\"configmaps\"], verbs: [\"create\", \"patch\"]}",
])]
#[case::wrong_namespace("kind: ClusterRole\nmetadata: {name: copier}", "kind: Role\nmetadata: {name: copier, namespace: ops}", &[
    "missing:\n- {apiGroups: [\"\"], resources: [\"configmaps\"], verbs: [\"create\", \"patch\"]}",
])]
#[tokio::test(start_paused = true)]
async fn missing_and_unused_permissions_are_reported(#[case] from: &str, #[case] to: &str, #[case] expected: &[&str]) {
    let (_, observed) = run(EXACT).await;
    let said = observed.compare(&EXACT.replacen(from, to, 1)).to_string();
    for part in expected {
        assert!(said.contains(part), "{said}");
    }
}

#[tokio::test(start_paused = true)]
async fn requests_of_workers_are_excluded_from_roles() {
    let cluster = TestCluster::builder()
        .rbac()
        .workers([Worker::GarbageCollector])
        .start();
    let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "gone", "uid": "no-such-uid"});
    let orphan = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "orphan", "ownerReferences": [owner]},
    });
    cluster.server().load([orphan]).expect("the objects are valid");
    cluster.settle().await;
    let left = cluster.server().list("v1", "ConfigMap", "default").await;
    assert_eq!(left.map(|it| it.len()), Ok(0), "the worker has deleted the object");
    assert_eq!(cluster.observed_rbac(), ObservedRbac::default());
}
