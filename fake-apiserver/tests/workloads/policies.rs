//! The status of ValidatingAdmissionPolicies.

use serde_json::{Value, json};

use crate::cluster::Cluster;

fn policy(groups: &str, resources: &str, expression: &str) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "p"},
        "spec": {
            "matchConstraints": {"resourceRules": [
                {"apiGroups": [groups], "apiVersions": ["v1"], "operations": ["*"], "resources": [resources]},
            ]},
            "validations": [{"expression": expression}],
        },
    })
}

impl Cluster {
    /// Returns the status of the policy `p` after a second.
    async fn status(&self) -> Value {
        self.pass(1.0).await;
        let policy = self.get("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy", "p");
        policy.await["status"].clone()
    }
}

#[tokio::test(start_paused = true)]
async fn each_generation_of_a_policy_is_type_checked_once() {
    let cluster = Cluster::start();
    cluster
        .create(policy("apps", "deployments", "object.spec.replicas > '5'"))
        .await;
    let text = "apps/v1, Kind=Deployment: ERROR: <input>:1:22: found no matching overload for '_>_' applied to '(int, \
                string)'\n | object.spec.replicas > '5'\n | .....................^\n";
    let warning = json!({"fieldRef": "spec.validations[0].expression", "warning": text});
    let expected = json!({"observedGeneration": 1, "typeChecking": {"expressionWarnings": [warning]}});
    assert_eq!(cluster.status().await, expected);

    let api = ["admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy", "p"];
    let owners = cluster.get(api[0], api[1], api[2]).await["metadata"]["managedFields"].clone();
    let owner = owners
        .as_array()
        .and_then(|it| it.iter().find(|it| it["operation"] == "Apply"));
    let owner = owner.expect("the controller applies the status");
    assert_eq!(owner["manager"], "validatingadmissionpolicy-status-controller");
    assert_eq!(owner["subresource"], "status");

    let spec = policy("apps", "deployments", "object.spec.replicas > 5")["spec"].clone();
    cluster.patch(api[0], api[1], api[2], json!({"spec": spec})).await;
    assert_eq!(
        cluster.status().await,
        json!({"observedGeneration": 2, "typeChecking": {}})
    );
}

#[tokio::test(start_paused = true)]
async fn policies_are_type_checked_with_the_schemas_of_crds() {
    let cluster = Cluster::start();
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "size": {"type": "integer"},
        "template": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true},
    }}}});
    cluster
        .create(json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "widgets.example.com"},
            "spec": {
                "group": "example.com", "scope": "Namespaced", "names": {"kind": "Widget", "plural": "widgets"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
            },
        }))
        .await;
    cluster.pass(1.0).await;
    let rule = "object.spec.size > 1 && object.metadata.labels.size() > 0 && object.spec.template.metadata.labels != object.spec";
    cluster.create(policy("example.com", "widgets", rule)).await;
    let status = cluster.status().await;
    let text = status["typeChecking"]["expressionWarnings"][0]["warning"].as_str();
    let text = text.expect("the rule has a warning");
    let wanted = "example.com/v1, Kind=Widget: ERROR: <input>:1:99: found no matching overload for '_!=_' applied to \
                  '(map(string, string), Widget0.spec)'";
    assert!(text.starts_with(wanted), "{text}");
}
