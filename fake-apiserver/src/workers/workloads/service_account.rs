//! Creates the initial objects of every namespace: the ServiceAccount `default`, and the ConfigMap with the cluster's
//! certificate authority.

use super::controller::WorkloadController;
use super::plan::Plan;
use super::pods::annotation;
use super::resource::Resource;
use super::sees::Sees;
use super::token_secret;
use crate::api::json::{Map, Value, json};
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;
use crate::storage::Key;
use crate::workers::objects::{DESCRIPTION, ROOT_CA};
use crate::workers::{WorkerRow, objects_of_namespace};

pub(crate) const ROW: WorkerRow = WorkerRow::workloads(
    "serviceaccount",
    &[
        WorkloadController {
            concerns: |change, _, add| {
                if matches!(change.resource, Resource::ServiceAccount | Resource::ConfigMap) {
                    add(Key::new("", change.key.namespace()));
                }
            },
            ..WorkloadController::new(Resource::Namespace, "service-account-controller", sync)
        },
        token_secret::CONTROLLER,
    ],
);

/// Plans the work for a Namespace, like Go's `Publisher.syncNamespace`.
pub(crate) fn sync(namespace: &Object, sees: &Sees<'_>) -> Plan {
    let mut plan = Plan::default();
    if namespace.is_terminating() || Cursor::root(namespace).text("status.phase") == "Terminating" {
        return plan;
    }
    let name = namespace.name();
    let [account, root_ca] = objects_of_namespace(name);
    if sees.cluster.find(Resource::ServiceAccount, name, "default").is_none() {
        plan.create(Resource::ServiceAccount, account);
    }
    plan.send_as("root-ca-cert-publisher", |plan| publish(name, &root_ca, sees, plan));
    plan
}

/// Plans the ConfigMap with the certificate authority of a namespace.
fn publish(namespace: &str, root_ca: &Value, sees: &Sees<'_>, plan: &mut Plan) {
    let Some(map) = sees.cluster.find(Resource::ConfigMap, namespace, ROOT_CA) else {
        return plan.create(Resource::ConfigMap, root_ca.clone());
    };
    let found = Cursor::root(map).map_or_empty("data");
    if Some(found) != root_ca["data"].as_object() || annotation(map, DESCRIPTION).is_none_or(str::is_empty) {
        let foreign = found.keys().map(|it| (it.clone(), Value::Null));
        let mut data: Map = foreign.collect();
        data.extend(root_ca["data"].as_object().cloned().unwrap_or_default());
        let annotations = &root_ca["metadata"]["annotations"];
        let patch = json!({"metadata": {"annotations": annotations}, "data": data});
        plan.merge(Resource::ConfigMap, map, patch);
    }
}
