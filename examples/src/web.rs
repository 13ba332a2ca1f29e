//! A small operator on `informer`: a `Web` becomes a Deployment and a Service, and its status says how they are.

use informer::cache::Lister;
use informer::reconcile::{Action, ReconcileError, Request};
use informer::runtime::conditions::{self, Status};
use informer::runtime::{Controller, Manager, create_or_update, owner_references};
use informer::{Clock, Error, ObjectKey};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Service, ServicePort};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, CustomResource, Resource, ResourceExt};
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
    /// What runs.
    #[schemars(length(min = 1))]
    pub image: String,
    /// How often.
    pub replicas: i32,
}

/// How it is.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WebStatus {
    /// How many of the replicas are ready.
    #[serde(default)]
    pub ready_replicas: i32,
    /// `Ready`: all replicas are.
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
    let operator = Operator {
        client: manager.client(),
        clock: manager.clock(),
        webs: manager.factory().informer::<Web>().lister(),
        deployments: manager.factory().informer::<Deployment>().lister(),
    };
    let controller = Controller::builder("web", &manager.factory())
        .for_::<Web>()
        .owns::<Deployment>()
        .owns::<Service>()
        .build(move |request: Request| operator.clone().reconcile(request.key))?;
    manager.add(controller)?;
    manager.run(std::future::pending()).await
}

#[derive(Clone)]
struct Operator {
    client: Client,
    clock: Clock,
    webs: Lister<Web>,
    deployments: Lister<Deployment>,
}

impl Operator {
    async fn reconcile(self, key: ObjectKey) -> Result<Action, ReconcileError> {
        // What belonged to a Web that is gone is collected with it.
        let Some(web) = self.webs.get(&key).filter(|it| !it.is_deleting()) else {
            return Ok(Action::await_change());
        };
        let web = web.typed()?;
        let namespace = web.namespace().unwrap_or_default();
        self.deploy(&web, &namespace).await?;
        self.expose(&web, &namespace).await?;
        let ready = self.deployments.get(&key).map(|it| it.typed()).transpose()?;
        let ready = ready
            .and_then(|it| it.status.as_ref()?.ready_replicas)
            .unwrap_or_default();
        self.report(&web, &namespace, ready).await?;
        Ok(Action::await_change())
    }

    async fn deploy(&self, web: &Web, namespace: &str) -> Result<(), Error> {
        let api = Api::<Deployment>::namespaced(self.client.clone(), namespace);
        let labels = [("app".to_owned(), web.name_any())];
        create_or_update(&api, named(web), |deployment: &mut Deployment| {
            owner_references::set_controller(deployment, web)?;
            let spec = deployment.spec.get_or_insert_default();
            spec.replicas = Some(web.spec.replicas);
            spec.selector.match_labels = Some(labels.clone().into());
            spec.template.metadata.get_or_insert_default().labels = Some(labels.clone().into());
            let containers = &mut spec.template.spec.get_or_insert_default().containers;
            containers.resize_with(1, Default::default);
            containers[0].name = "web".into();
            containers[0].image = Some(web.spec.image.clone());
            Ok(())
        })
        .await?;
        Ok(())
    }

    async fn expose(&self, web: &Web, namespace: &str) -> Result<(), Error> {
        let api = Api::<Service>::namespaced(self.client.clone(), namespace);
        create_or_update(&api, named(web), |service: &mut Service| {
            owner_references::set_controller(service, web)?;
            let spec = service.spec.get_or_insert_default();
            spec.selector = Some([("app".to_owned(), web.name_any())].into());
            let ports = spec.ports.get_or_insert_default();
            ports.resize_with(1, ServicePort::default);
            ports[0].port = 80;
            Ok(())
        })
        .await?;
        Ok(())
    }

    async fn report(&self, web: &Web, namespace: &str, ready: i32) -> Result<(), Error> {
        let mut status = web.status.clone().unwrap_or_default();
        let wanted = web.spec.replicas;
        let is_ready = ready >= wanted;
        let reason = if is_ready {
            "AllReplicasReady"
        } else {
            "ReplicasMissing"
        };
        let message = format!("{ready} of {wanted} replicas are ready");
        let generation = web.metadata.generation;
        let conditions = &mut status.conditions;
        let is_new = conditions::set(
            conditions,
            "Ready",
            Status::from(is_ready),
            reason,
            &message,
            generation,
            &self.clock,
        );
        if !is_new && status.ready_replicas == ready {
            return Ok(());
        }
        status.ready_replicas = ready;
        let api = Api::<Web>::namespaced(self.client.clone(), namespace);
        let patch = Patch::Merge(json!({"status": status}));
        api.patch_status(&web.name_any(), &PatchParams::default(), &patch)
            .await?;
        Ok(())
    }
}

/// An object of the name and the namespace of a Web.
fn named<K: Resource + Default>(web: &Web) -> K {
    let mut object = K::default();
    object.meta_mut().name = Some(web.name_any());
    object.meta_mut().namespace = web.namespace();
    object
}

/// A Web, for the examples and tests.
#[must_use]
pub fn web(name: &str, replicas: i32) -> Web {
    let spec = WebSpec {
        image: "registry.example/web:1".into(),
        replicas,
    };
    Web::new(name, spec)
}
