//! `explore_spec`: explores changes to a custom resource that are derived from its schema, without a scenario.

use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::Arc;

use futures::FutureExt;
use http::Method;
use kube::CustomResourceExt;
use serde::Serialize;

use super::builder::{Explore, explore_planned};
use super::plans::Plan;
use super::specs;
use super::specs::{Referenced, Spec};
use crate::objects::serialized;
use crate::panics::message;
use crate::target::{ObjectId, ToObject};
use crate::test_cluster::{Cause, TestCluster};

/// Explores the changes that users may make to an object of this kind, with and without faults.
///
/// The changes are derived from the custom resource's schema and the spec of a valid object. Numbers are set to
/// neighbouring values, to zero and one, and to the ends of their range; enums to each of their values; and strings to
/// other strings. Lists gain or lose one item, are emptied, and are reversed. Optional fields are removed and added.
/// Each change is first made by itself, then reverted, then followed by a different change. `start` starts the
/// controllers, and the cluster settles after each step. Changes that the server refuses are ignored. If the spec
/// contains the name of an existing object, such as a Secret, an additional change creates that object after the custom
/// resource instead of before it. Each run is checked for:
///
/// - **path independence**: changing an object leads to the same state as creating an object with the final spec,
///   unless the server refuses the writes of controllers for the new object, or the controllers reject its spec;
/// - **recovery**: restoring the first spec restores the first state, regardless of the changes in between;
/// - **observed generation**: if the status contains an observed generation, it is the newest one at the end;
/// - **panics and endless loops**.
///
/// Each change is also combined with each single fault. Failures are minimised, replayed and reported as in
/// [`explore`](fn@crate::explore::explore), with the same options. Without faults, fields that the server's own workers
/// derive are not compared; [`ignore`](Explore::ignore) excludes other fields.
///
/// ```
/// # use {std::{sync::Arc, time::Duration}, futures::StreamExt};
/// # use {k8s_openapi::api::core::v1::ConfigMap, serde_json::json};
/// # use kube::{Api, Client, CustomResource, Resource, ResourceExt, api::{Patch, PatchParams}};
/// # use kube::runtime::{Controller, controller::Action, watcher};
/// use testkit::{TestCluster, explore::explore_spec};
///
/// #[derive(CustomResource, Clone, Debug, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
/// #[kube(group = "example.com", version = "v1", kind = "Page", namespaced)]
/// struct PageSpec {
///     title: String,
///     footer: Option<String>,
/// }
///
/// # async fn operator(client: Client) {
/// #     let on_error = |_: Arc<Page>, _: &kube::Error, _: Arc<Client>| Action::requeue(Duration::from_secs(5));
/// #     Controller::new(Api::<Page>::all(client.clone()), watcher::Config::default())
/// #         .run(reconcile, on_error, Arc::new(client)).for_each(|_| async {}).await
/// # }
/// /// Its merge patch does not remove entries.
/// async fn reconcile(page: Arc<Page>, client: Arc<Client>) -> Result<Action, kube::Error> {
///     let mut data = json!({"title": page.spec.title});
///     if let Some(footer) = &page.spec.footer {
///         data["footer"] = footer.as_str().into();
///     }
///     let maps = Api::<ConfigMap>::default_namespaced(Client::clone(&client));
///     // …
/// #   let owners = [page.controller_owner_ref(&())];
/// #   let mut map = ConfigMap::default();
/// #   map.metadata.name = Some(page.name_any());
/// #   if maps.get_opt(&page.name_any()).await?.is_none() { maps.create(&Default::default(), &map).await?; }
///     let patch = Patch::Merge(json!({"metadata": {"ownerReferences": owners}, "data": data}));
///     maps.patch(&page.name_any(), &PatchParams::default(), &patch).await?;
///     Ok(Action::await_change())
/// }
///
/// let page = Page::new("home", PageSpec { title: "Home".into(), footer: Some("2026".into()) });
/// let report = explore_spec::<Page>(page, async |cluster: &TestCluster| {
///     cluster.controller("operator", operator);
/// })
/// .report(); // in a test, `run()`
///
/// let failure = report.failure().expect("the exploration fails");
/// assert_eq!(failure.oracle(), "path independence");
/// assert_eq!(failure.plan(), ["change spec.footer: \"2026\" → nothing"]);
/// ```
pub fn explore_spec<K: CustomResourceExt>(
    object: impl ToObject,
    start: impl AsyncFn(&TestCluster) + Send + Sync + 'static,
) -> Explore {
    explore_spec_of(&K::crd(), object, start)
}

/// Same as [`explore_spec`], for a CustomResourceDefinition from a different version of kube or from a file.
///
/// # Panics
///
/// If the definition cannot be serialized as JSON, has no `apiVersion` or `kind`, or does not contain a schema for the
/// version of the object.
pub fn explore_spec_of(
    definition: &impl Serialize,
    object: impl ToObject,
    start: impl AsyncFn(&TestCluster) + Send + Sync + 'static,
) -> Explore {
    let mut definition = serialized(definition).into_value();
    definition["apiVersion"] = "apiextensions.k8s.io/v1".into();
    definition["kind"] = "CustomResourceDefinition".into();
    let spec = Arc::new(Spec::new(&definition, object.to_object()));
    let (operated, start) = (Arc::clone(&spec), Arc::new(start));
    let explored = explore_planned(Box::new(move |cluster, plan| {
        let (spec, start) = (Arc::clone(&operated), Arc::clone(&start));
        Box::pin(async move {
            start(cluster).await;
            operate(cluster, &spec, plan).await;
        })
    }));
    let cluster = TestCluster::builder().object(serialized(&definition));
    explored.of_spec(spec).cluster(cluster)
}

/// Creates the object and makes the changes of the plan.
async fn operate(cluster: &TestCluster, spec: &Spec, plan: &Plan) {
    let note = |text: String| cluster.hooks.iter().for_each(|hooks| hooks.test_notes(text.clone()));
    let fresh = plan.fresh.as_deref().map(serde_json::from_str);
    let object = fresh.and_then(Result::ok).unwrap_or_else(|| spec.object.clone());
    let id = ObjectId::of(&object);
    let referenced = Referenced::of(cluster, &object);
    spec.late
        .get_or_init(|| referenced.iter().map(|it| it.change.clone()).collect());
    let is_late = |it: &&Referenced| plan.changes.contains(&it.change);
    for it in referenced.iter().filter(is_late) {
        it.delete(cluster).await;
    }
    rest(cluster).await;
    cluster.create(serialized(&object)).await;
    rest(cluster).await;
    for it in referenced.iter().filter(is_late) {
        it.create(cluster).await;
        rest(cluster).await;
    }
    for name in plan.changes.iter().filter(|it| !specs::is_late(it)) {
        let Some(stored) = cluster.try_get::<crate::Object>(serialized(&object)) else {
            return;
        };
        let mut changed = stored.value().clone();
        match spec.changes.iter().find(|it| it.name == *name) {
            Some(change) => change.apply(&mut changed),
            None => changed["spec"] = spec.object["spec"].clone(),
        }
        note(format!("the test changes {name}"));
        if let Err(why) = cluster.send(Method::PUT, &id, "", Some(&changed)).await {
            note(format!("the server refuses the change: {why}"));
        }
        rest(cluster).await;
    }
}

/// Waits until the cluster has settled, for a limited time: a controller may retry indefinitely if the spec is
/// unusable.
async fn rest(cluster: &TestCluster) {
    if let Err(payload) = AssertUnwindSafe(cluster.settle()).catch_unwind().await
        && cluster.cause_of(&message(payload.as_ref())) != Some(Cause::Restless)
    {
        resume_unwind(payload);
    }
}
