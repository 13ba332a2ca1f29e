//! A small operator that uses `informer`: creates a Deployment and a Service for each `Web`, and reports their state in
//! its status.

use std::collections::BTreeMap;
use std::sync::Arc;

use informer::reconcile::{Action, ReconcileError};
use informer::runtime::{Manager, as_reconciler, conditions, update_status};
use informer::{Clock, Error};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{Client, CustomResource, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// A web server.
#[derive(CustomResource, Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "example.com",
    version = "v1",
    kind = "Web",
    namespaced,
    status = "WebStatus"
)]
pub struct WebSpec {
    /// Image to run.
    #[schemars(length(min = 1))]
    pub image: String,
    /// Number of replicas.
    pub replicas: i32,
}

/// Observed state of a Web.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WebStatus {
    /// Number of replicas that are ready.
    #[serde(default)]
    pub ready_replicas: i32,
    /// The condition `Ready`, which is true if all replicas are ready.
    #[serde(default)]
    #[schemars(schema_with = "any_objects")]
    pub conditions: Vec<Condition>,
}

fn any_objects(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    let object = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    schemars::json_schema!({"type": "array", "items": object})
}

/// Runs until the process ends.
pub async fn run(client: Client, clock: Clock) -> Result<(), Error> {
    let manager = Manager::builder(client).clock(clock).build()?;
    let operator = manager.clone();
    manager
        .controller("web")
        .for_::<Web>()
        .owns::<Deployment>()
        .owns::<Service>()
        .complete(as_reconciler(manager.lister(), move |web| {
            reconcile(web, operator.clone())
        }))?;
    manager.run(std::future::pending()).await
}

async fn reconcile(web: Arc<Web>, manager: Manager) -> Result<Action, ReconcileError> {
    if web.metadata.deletion_timestamp.is_some() {
        return Ok(Action::await_change());
    }
    let name = web.name_any();
    let labels = BTreeMap::from([("app".to_owned(), name.clone())]);
    let deployments = manager.dependents::<Deployment>();
    let deployment = deployments.ensure(&*web, &name, |deployment| {
        let spec = deployment.spec.get_or_insert_default();
        spec.replicas = Some(web.spec.replicas);
        spec.selector.match_labels = Some(labels.clone());
        spec.template.metadata.get_or_insert_default().labels = Some(labels.clone());
        let containers = &mut spec.template.spec.get_or_insert_default().containers;
        containers.resize_with(1, Default::default);
        (containers[0].name, containers[0].image) = ("web".into(), Some(web.spec.image.clone()));
    });
    let deployment = deployment.await?;
    let services = manager.dependents::<Service>();
    let service = services.ensure(&*web, &name, |service| {
        let spec = service.spec.get_or_insert_default();
        spec.selector = Some(labels);
        let ports = spec.ports.get_or_insert_default();
        ports.resize_with(1, Default::default);
        ports[0].port = 80;
    });
    service.await?;

    let ready = deployment.status.as_ref().and_then(|it| it.ready_replicas);
    let (ready, wanted) = (ready.unwrap_or_default(), web.spec.replicas);
    let is_ready = ready >= wanted;
    let reason = if is_ready {
        "AllReplicasReady"
    } else {
        "ReplicasMissing"
    };
    let message = format!("{ready} of {wanted} replicas are ready");
    let (client, clock) = (manager.client(), manager.clock());
    let status = update_status(&client, &*web, |it| {
        let status = it.status.get_or_insert_default();
        status.ready_replicas = ready;
        conditions::of(&*web, &clock).set(&mut status.conditions, "Ready", is_ready, reason, &message);
    });
    status.await?;
    Ok(Action::await_change())
}

/// Returns a Web, for the examples and tests.
#[must_use]
pub fn web(name: &str, replicas: i32) -> Web {
    let spec = WebSpec {
        image: "registry.example/web:1".into(),
        replicas,
    };
    Web::new(name, spec)
}
