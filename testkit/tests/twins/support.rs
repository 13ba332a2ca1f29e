//! The harness of the twins: controllers of ConfigMaps, which represent custom resources, and of an external system.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::watcher;
use kube::{Api, Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use testkit::explore::{Explore, External, ExternalError, explore};
use testkit::{TestCluster, TestClusterBuilder};

/// Generates two tests for each scenario: the bug is found, and the healthy twin causes no report.
///
/// `name: oracle, text;` specifies the oracle that reports the bug, and a string that its report must contain.
///
/// The healthy twin must pass 150 schedules. A number after `$world` replaces this default.
macro_rules! twins {
    ($world:expr; $($rest:tt)+) => {
        twins! { $world, crate::support::STOOD; $($rest)+ }
    };
    ($world:expr, $stood:expr; $($name:ident: $oracle:literal, $says:literal;)+) => {
        mod bug_is_found {
            use super::*;
            $(#[test] fn $name() {
                crate::support::found(stringify!($name), $world, super::$name, $oracle, $says);
            })+
        }
        mod healthy_variant_is_not_reported {
            use super::*;
            $(#[test] fn $name() {
                crate::support::silent_for(stringify!($name), $world, super::$name, $stood);
            })+
        }
    };
}

/// Maximum number of schedules until each bug is found.
const FOUND_WITHIN: u64 = 300;

/// Number of schedules that a correct twin must pass.
pub(crate) const STOOD: u64 = 150;

/// Number of schedules that a correct twin must pass for the figures.
fn in_figures() -> Option<u64> {
    std::env::var_os("DRYDOCK_FIGURES").map(|_| 1_500)
}

pub(crate) fn exploration(
    world: TestClusterBuilder,
    scenario: impl AsyncFn(&TestCluster, bool) + Send + Sync + 'static,
    is_healthy: bool,
) -> Explore {
    explore(async move |cluster: &TestCluster| scenario(cluster, is_healthy).await)
        .cluster(world)
        .budget(Duration::from_secs(600))
}

/// Asserts that the bug is found for the right reason.
#[track_caller]
pub(crate) fn found(
    name: &str,
    world: TestClusterBuilder,
    scenario: impl AsyncFn(&TestCluster, bool) + Send + Sync + 'static,
    oracle: &str,
    says: &str,
) {
    let report = exploration(world, scenario, false).schedules(FOUND_WITHIN).report();
    let schedules = report.coverage().schedules;
    match report.failure() {
        None => println!("| {name} | bug | missed | {schedules} |"),
        Some(it) => {
            println!("| {name} | bug | {} | {schedules} |", it.oracle());
            assert!(
                it.oracle() == oracle && report.to_string().contains(says),
                "{name}: expected {oracle:?} with {says:?}\n{report}"
            );
            assert!(
                !report.to_string().contains(".ignore("),
                "{name}: a hint hides the bug\n{report}"
            );
        }
    }
    assert!(report.failure().is_some(), "{name} is not found: {report}");
}

/// Asserts that nothing is reported for the healthy twin.
#[track_caller]
pub(crate) fn silent(
    name: &str,
    world: TestClusterBuilder,
    scenario: impl AsyncFn(&TestCluster, bool) + Send + Sync + 'static,
) {
    silent_for(name, world, scenario, STOOD);
}

/// Same as `silent`, for a number of schedules.
#[track_caller]
pub(crate) fn silent_for(
    name: &str,
    world: TestClusterBuilder,
    scenario: impl AsyncFn(&TestCluster, bool) + Send + Sync + 'static,
    stood: u64,
) {
    let schedules = in_figures().unwrap_or(stood);
    let report = exploration(world, scenario, true).schedules(schedules).report();
    let verdict = report.failure().map_or("silent", |it| it.oracle());
    println!("| {name} | healthy | {verdict} | {} |", report.coverage().schedules);
    assert!(report.is_success(), "{name}: {report}");
    assert_eq!(report.nondeterminism(), Vec::<String>::new(), "{name}: {report}");
}

/// An error of a reconciliation.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Kube(#[from] kube::Error),
    #[error(transparent)]
    Cloud(#[from] ExternalError),
    #[error("{0}")]
    NotYet(&'static str),
}

pub(crate) type Done = Result<Action, Error>;

/// Returns the time of the machine's clock, which is virtual in a run.
#[expect(clippy::disallowed_methods, reason = "controllers read the machine's clock")]
pub(crate) fn now() -> jiff::Timestamp {
    jiff::Timestamp::now()
}

/// Ends a reconciliation; the next event starts another one.
pub(crate) const fn done() -> Done {
    Ok(Action::await_change())
}

/// Ends a reconciliation; the next one starts after at most this number of seconds.
pub(crate) fn again(seconds: u64) -> Done {
    Ok(Action::requeue(Duration::from_secs(seconds)))
}

/// A controller of the ConfigMaps in the default namespace.
#[derive(Clone)]
pub(crate) struct Operator {
    name: &'static str,
    retry: Duration,
    /// The label selector of its ConfigMaps.
    selector: Option<&'static str>,
    owns_secrets: bool,
}

/// The controller `operator`, which retries after five seconds.
pub(crate) const OPERATOR: Operator = Operator {
    name: "operator",
    retry: Duration::from_secs(5),
    selector: None,
    owns_secrets: false,
};

impl Operator {
    pub(crate) const fn named(mut self, name: &'static str) -> Self {
        self.name = name;
        self
    }

    pub(crate) const fn retries_after(mut self, seconds: u64) -> Self {
        self.retry = Duration::from_secs(seconds);
        self
    }

    pub(crate) const fn selects(mut self, selector: &'static str) -> Self {
        self.selector = Some(selector);
        self
    }

    pub(crate) const fn owns_secrets(mut self) -> Self {
        self.owns_secrets = true;
        self
    }

    pub(crate) fn start<F>(
        self,
        cluster: &TestCluster,
        reconcile: impl Fn(Arc<ConfigMap>, Context) -> F + Clone + Send + Sync + 'static,
    ) where
        F: Future<Output = Done> + Send + 'static,
    {
        let (name, cloud) = (self.name, cluster.external("cloud").of(self.name));
        cluster.controller(name, move |client| {
            let context = Context {
                client,
                cloud: cloud.clone(),
            };
            self.clone().run(context, reconcile.clone())
        });
    }

    /// Same as `start`, for a reconciliation that keeps names in memory.
    pub(crate) fn start_with_memory<F>(
        self,
        cluster: &TestCluster,
        reconcile: impl Fn(Arc<ConfigMap>, Context, Memory) -> F + Clone + Send + Sync + 'static,
    ) where
        F: Future<Output = Done> + Send + 'static,
    {
        let (name, cloud) = (self.name, cluster.external("cloud").of(self.name));
        cluster.controller(name, move |client| {
            let context = Context {
                client,
                cloud: cloud.clone(),
            };
            let (memory, reconcile) = (Memory::default(), reconcile.clone());
            self.clone()
                .run(context, move |parent, cx| reconcile(parent, cx, Arc::clone(&memory)))
        });
    }

    async fn run<F>(self, context: Context, reconcile: impl Fn(Arc<ConfigMap>, Context) -> F + Send + Sync + 'static)
    where
        F: Future<Output = Done> + Send + 'static,
    {
        let mut config = watcher::Config::default();
        if let Some(selector) = self.selector {
            config = config.labels(selector);
        }
        let mut controller = Controller::new(context.api::<ConfigMap>(), config);
        if self.owns_secrets {
            controller = controller.owns(context.api::<Secret>(), watcher::Config::default());
        }
        controller
            .run(
                move |parent, context: Arc<Context>| reconcile(parent, Context::clone(&context)),
                move |_, _: &Error, _| Action::requeue(self.retry),
                Arc::new(context),
            )
            .for_each(|_| async {})
            .await;
    }
}

/// Names that a controller remembers until its process ends.
pub(crate) type Memory = Arc<Mutex<BTreeSet<String>>>;

/// The clients of a reconciliation.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) client: Client,
    pub(crate) cloud: External,
}

/// An object of a namespaced kind.
pub(crate) trait Namespaced:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + std::fmt::Debug
    + Serialize
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
}

impl<K> Namespaced for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + Serialize
        + DeserializeOwned
        + Send
        + Sync
        + 'static
{
}

impl Context {
    pub(crate) fn api<K: Namespaced>(&self) -> Api<K> {
        Api::default_namespaced(self.client.clone())
    }

    pub(crate) async fn get<K: Namespaced>(&self, name: &str) -> Result<Option<K>, Error> {
        Ok(self.api::<K>().get_opt(name).await?)
    }

    pub(crate) async fn list<K: Namespaced>(&self, selector: &str) -> Result<Vec<K>, Error> {
        Ok(self
            .api::<K>()
            .list(&ListParams::default().labels(selector))
            .await?
            .items)
    }

    /// Creates an object; returns `false` if an object with its name exists.
    pub(crate) async fn create<K: Namespaced>(&self, object: Value) -> Result<bool, Error> {
        let object: K = serde_json::from_value(object).expect("the object has this type");
        match self.api::<K>().create(&PostParams::default(), &object).await {
            Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(false),
            created => Ok(created.map(|_| true)?),
        }
    }

    /// Creates a Secret that the parent owns; returns `false` if a Secret with its name exists.
    pub(crate) async fn create_secret(&self, parent: &ConfigMap, name: &str, data: Value) -> Result<bool, Error> {
        self.create::<Secret>(json!({
            "metadata": {"name": name, "ownerReferences": [parent.controller_owner_ref(&())],
                "labels": {"of": parent.name_any()}},
            "stringData": data,
        }))
        .await
    }

    /// Deletes an object, if it exists.
    pub(crate) async fn delete<K: Namespaced>(&self, name: &str) -> Result<(), Error> {
        match self.api::<K>().delete(name, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            deleted => Ok(deleted.map(drop)?),
        }
    }

    pub(crate) async fn merge<K: Namespaced>(&self, name: &str, patch: Value) -> Result<K, Error> {
        let patch = Patch::Merge(patch);
        Ok(self.api::<K>().patch(name, &PatchParams::default(), &patch).await?)
    }

    /// Applies an object, as the manager `manager`.
    pub(crate) async fn apply<K: Namespaced>(&self, manager: &str, name: &str, mut object: Value) -> Result<(), Error> {
        object["apiVersion"] = K::api_version(&()).into();
        object["kind"] = K::kind(&()).into();
        object["metadata"]["name"] = name.into();
        let params = PatchParams::apply(manager).force();
        Ok(self
            .api::<K>()
            .patch(name, &params, &Patch::Apply(object))
            .await
            .map(drop)?)
    }

    /// Replaces an object, which must have the newest resourceVersion.
    pub(crate) async fn replace<K: Namespaced>(&self, object: &K) -> Result<(), Error> {
        let (api, params) = (self.api::<K>(), PostParams::default());
        Ok(api.replace(&object.name_any(), &params, object).await.map(drop)?)
    }

    /// Sets an annotation of the parent.
    pub(crate) async fn annotate(&self, parent: &ConfigMap, name: &str, value: &str) -> Result<(), Error> {
        let patch = json!({"metadata": {"annotations": {name: value}}});
        self.merge::<ConfigMap>(&parent.name_any(), patch).await.map(drop)
    }

    /// Sets the finalizers of the parent, if the parent has not changed since it was read.
    pub(crate) async fn set_finalizers(&self, parent: &ConfigMap, finalizers: &[String]) -> Result<(), Error> {
        let patch = json!({"metadata": {
            "finalizers": finalizers, "resourceVersion": parent.resource_version(),
        }});
        self.merge::<ConfigMap>(&parent.name_any(), patch).await.map(drop)
    }

    /// Adds a finalizer to the parent.
    pub(crate) async fn add_finalizer(&self, parent: &ConfigMap, name: &str) -> Result<(), Error> {
        let mut finalizers = parent.finalizers().to_vec();
        finalizers.push(name.to_owned());
        self.set_finalizers(parent, &finalizers).await
    }

    /// Removes a finalizer from the parent.
    pub(crate) async fn remove_finalizer(&self, parent: &ConfigMap, name: &str) -> Result<(), Error> {
        let mut finalizers = parent.finalizers().to_vec();
        finalizers.retain(|it| it != name);
        self.set_finalizers(parent, &finalizers).await
    }
}

pub(crate) const FINALIZER: &str = "example.com/cleanup";

pub(crate) fn has_finalizer(parent: &ConfigMap) -> bool {
    parent.finalizers().iter().any(|it| it == FINALIZER)
}

pub(crate) fn is_deleted(parent: &ConfigMap) -> bool {
    parent.metadata.deletion_timestamp.is_some()
}

/// Returns a field of the parent's data, or an empty string.
pub(crate) fn field<'a>(parent: &'a ConfigMap, name: &str) -> &'a str {
    let data = parent.data.as_ref();
    data.and_then(|it| it.get(name)).map_or("", String::as_str)
}

pub(crate) fn annotation<'a>(parent: &'a ConfigMap, name: &str) -> &'a str {
    parent.annotations().get(name).map_or("", String::as_str)
}

/// Builds a cluster without the server's workers. It starts at a fixed time of day, so that the same slots begin in
/// each run of the tests.
pub(crate) fn plain() -> TestClusterBuilder {
    let start = "2026-01-05T09:00:00Z".parse().expect("the time is valid");
    TestCluster::builder().server(|server| server.start_time(start))
}
