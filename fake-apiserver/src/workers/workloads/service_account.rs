//! Objects of every namespace: the ServiceAccount `default`, and the ConfigMap with the cluster's certificate
//! authority.

use serde_json::json;

use super::plan::Plan;
use super::resource::Resource;
use super::sees::Sees;
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;

const ROOT_CA: &str = "kube-root-ca.crt";

/// Plans the work for a Namespace. The ConfigMap's text is no certificate: no authority that Pods could ask signs
/// anything here.
pub(crate) fn sync(namespace: &Object, sees: &Sees<'_>) -> Plan {
    let mut plan = Plan::default();
    if namespace.is_terminating() || Cursor::root(namespace).text("status.phase") == "Terminating" {
        return plan;
    }
    let name = namespace.name();
    if sees.cluster.find(Resource::ServiceAccount, name, "default").is_none() {
        plan.create(
            Resource::ServiceAccount,
            json!({"metadata": {"name": "default", "namespace": name}}),
        );
    }
    let data = json!({"ca.crt": "-----BEGIN CERTIFICATE-----\nZmFrZS1hcGlzZXJ2ZXI=\n-----END CERTIFICATE-----\n"});
    match sees.cluster.find(Resource::ConfigMap, name, ROOT_CA) {
        None => {
            let why = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints \
                       such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across \
                       distributions of Kubernetes clusters.";
            let metadata = json!({
                "name": ROOT_CA, "namespace": name, "annotations": {"kubernetes.io/description": why},
            });
            plan.create(Resource::ConfigMap, json!({"metadata": metadata, "data": data}));
        }
        Some(map) if Some(Cursor::root(map).map_or_empty("data")) != data.as_object() => {
            plan.merge(Resource::ConfigMap, map, json!({"data": data}));
        }
        Some(_) => {}
    }
    plan
}
