//! Correct controllers whose end state depends on the history of a run, and realistic scenarios: nothing is reported.
//!
//! Each comment describes the controller, and the naive comparison with a run without faults that would report it.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, CustomResource, CustomResourceExt, Resource, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use testkit::objects::{config_map, namespace, object, secret, serialized};
use testkit::{ObjectBuilder, TestCluster, TestClusterBuilder, Worker};
use tokio::time::{sleep, timeout};

use crate::support::{
    Context, Done, Error, FINALIZER, Namespaced, again, annotation, done, field, has_finalizer, is_deleted, now, plain,
    silent,
};

/// Generates a test for each scenario, which asserts that nothing is reported.
macro_rules! idioms {
    ($module:ident, $world:expr; $($name:ident),+ $(,)?) => {
        mod $module {
            use super::*;
            $(#[test] fn $name() {
                silent(stringify!($name), $world, async |cluster: &TestCluster, _| super::$name(cluster).await);
            })+
        }
    };
}

idioms!(
    odd_idiom_is_not_reported, plain();
    peak_of_observed_sizes_is_kept,
    backoff_is_kept_in_an_annotation,
    leader_labels_objects_with_its_name,
    deployment_has_the_hash_of_a_rotated_secret,
    certificates_are_derived_from_one_generated_ca,
    freed_port_is_reused,
    child_with_a_random_name_is_adopted_by_label,
    two_newest_revisions_are_kept,
    missed_runs_are_skipped,
    drifted_child_is_recreated,
    three_managers_share_a_container,
    default_is_written_once_into_each_object,
    finished_task_is_deleted_after_a_while,
    process_exits_on_each_error,
    revision_counts_changes_of_a_total_over_pages,
);

idioms!(
    odd_widget_is_not_reported, widgets();
    two_newest_images_are_listed,
    recreated_object_gets_another_external_id,
);

twins! {
    widgets();
    last_error_is_kept_after_recovery: "end state", "status.phase";
    degraded_condition_appears_with_the_first_error: "end state", "Degraded";
}

idioms!(
    odd_copies_are_not_reported, plain().workers([Worker::Namespace, Worker::GarbageCollector]);
    secret_is_copied_to_new_namespaces,
);

idioms!(
    odd_scaling_is_not_reported,
    plain().workers([Worker::Deployment, Worker::ReplicaSet, Worker::GarbageCollector]);
    deployment_is_scaled_to_zero_and_back,
);

#[derive(CustomResource, Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "example.com",
    version = "v1",
    kind = "Widget",
    namespaced,
    status = "WidgetStatus"
)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct WidgetSpec {
    pub(crate) size: u32,
    pub(crate) image: String,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct WidgetStatus {
    pub(crate) phase: String,
    pub(crate) observed_generation: Option<i64>,
    pub(crate) attempts: u32,
    pub(crate) last_error: Option<String>,
    pub(crate) last_error_time: Option<String>,
    pub(crate) retry_at: Option<i64>,
    pub(crate) conditions: Vec<WidgetCondition>,
    pub(crate) history: Vec<SeenImage>,
    pub(crate) external_id: String,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct WidgetCondition {
    #[serde(rename = "type")]
    pub(crate) type_: String,
    pub(crate) status: String,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) observed_generation: Option<i64>,
    pub(crate) last_transition_time: String,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SeenImage {
    pub(crate) image: String,
    pub(crate) seen_at: String,
}

fn widgets() -> TestClusterBuilder {
    plain().object(serialized(&Widget::crd()))
}

fn parent(name: &str) -> ObjectBuilder {
    config_map(name).label("kind", "parent")
}

fn widget(name: &str, spec: Value) -> ObjectBuilder {
    object("example.com/v1", "Widget", name)
        .label("kind", "parent")
        .set("spec", spec)
}

fn parents() -> watcher::Config {
    watcher::Config::default().labels("kind=parent")
}

async fn set(cluster: &TestCluster, name: &str, data: Value) {
    let _: testkit::Object = cluster.patch(config_map(name), json!({"data": data})).await;
}

async fn respecify(cluster: &TestCluster, name: &str, spec: Value) {
    let target = object("example.com/v1", "Widget", name);
    let _: testkit::Object = cluster.patch(target, json!({"spec": spec})).await;
}

/// Starts a controller of the objects with the label `kind=parent`, which retries after five seconds.
fn start_watching<K, F>(
    cluster: &TestCluster,
    name: &'static str,
    watches: impl Fn(Controller<K>, &Context) -> Controller<K> + Clone + Send + Sync + 'static,
    reconcile: impl Fn(Arc<K>, Context) -> F + Clone + Send + Sync + 'static,
) where
    K: Namespaced,
    F: Future<Output = Done> + Send + 'static,
{
    let cloud = cluster.external("cloud").of(name);
    cluster.controller(name, move |client: Client| {
        let (reconcile, watches) = (reconcile.clone(), watches.clone());
        let cx = Context {
            client,
            cloud: cloud.clone(),
        };
        async move {
            watches(Controller::new(cx.api::<K>(), parents()), &cx)
                .run(
                    move |parent: Arc<K>, cx: Arc<Context>| reconcile(parent, Context::clone(&cx)),
                    |_: Arc<K>, _: &Error, _: Arc<Context>| Action::requeue(Duration::from_secs(5)),
                    Arc::new(cx),
                )
                .for_each(|_| async {})
                .await;
        }
    });
}

/// Same as `start_watching`, for a controller `operator` without further watches.
fn start<K, F>(cluster: &TestCluster, reconcile: impl Fn(Arc<K>, Context) -> F + Clone + Send + Sync + 'static)
where
    K: Namespaced,
    F: Future<Output = Done> + Send + 'static,
{
    start_watching(
        cluster,
        "operator",
        |controller: Controller<K>, _: &Context| controller,
        reconcile,
    );
}

/// Reads the newest state of an object, past the cache. Returns `None` if it was deleted or replaced, or is being
/// deleted.
async fn alive<K: Namespaced>(cx: &Context, known: &K) -> Result<Option<K>, Error> {
    let newest = cx.get::<K>(&known.name_any()).await?;
    Ok(newest.filter(|it| it.uid() == known.uid() && it.meta().deletion_timestamp.is_none()))
}

/// Changes an object, if it has not changed since it was read.
async fn patch_at<K: Namespaced>(cx: &Context, object: &K, mut patch: Value) -> Result<K, Error> {
    patch["metadata"]["resourceVersion"] = json!(object.resource_version());
    cx.merge::<K>(&object.name_any(), patch).await
}

/// Changes the status of a Widget, if the Widget has not changed since it was read.
async fn patch_status_at(cx: &Context, widget: &Widget, status: Value) -> Result<Widget, Error> {
    let patch = json!({"metadata": {"resourceVersion": widget.resource_version()}, "status": status});
    let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
    let name = widget.name_any();
    Ok(cx.api::<Widget>().patch_status(&name, &params, &patch).await?)
}

/// Deletes this object, and no other object with its name.
async fn delete_exactly<K: Namespaced>(cx: &Context, object: &K) -> Result<(), Error> {
    let params = DeleteParams {
        preconditions: Some(Preconditions {
            uid: object.uid(),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    match cx.api::<K>().delete(&object.name_any(), &params).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        deleted => Ok(deleted.map(drop)?),
    }
}

/// Creates or updates an object of the external system.
async fn put(cx: &Context, key: &str, value: Value) -> Result<(), Error> {
    match cx.cloud.get(key).await? {
        None => cx.cloud.create(key, value).await?,
        Some(known) if known != value => cx.cloud.update(key, value).await?,
        Some(_) => {}
    }
    Ok(())
}

fn random_text() -> String {
    std::iter::repeat_with(fastrand::alphanumeric).take(20).collect()
}

fn short_hash(text: &str) -> String {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    format!("{:08x}", hasher.finish() & 0xffff_ffff)
}

/// Returns the first 16 hexadecimal digits of a hash.
fn sha256(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    digest.iter().take(8).map(|it| format!("{it:02x}")).collect()
}

/// Returns a value of a Secret, or an empty string.
fn secret_text(secret: &Secret, key: &str) -> String {
    let value = secret.data.as_ref().and_then(|it| it.get(key));
    value.map_or_else(String::new, |it| String::from_utf8_lossy(&it.0).into_owned())
}

/// Records the largest size that it has observed. Two quick changes may be observed as one, so the peak may be missing:
/// a comparison of annotations would report it.
async fn peak_of_observed_sizes_is_kept(cluster: &TestCluster) {
    async fn reconcile(parent: Arc<ConfigMap>, cx: Context) -> Done {
        let Some(parent) = alive(&cx, &*parent).await? else {
            return done();
        };
        let size: u32 = field(&parent, "size").parse().unwrap_or(0);
        let peak = annotation(&parent, "peak").parse::<u32>().unwrap_or(0).max(size);
        let (size, peak) = (size.to_string(), peak.to_string());
        if annotation(&parent, "size") != size || annotation(&parent, "peak") != peak {
            let annotations = json!({"size": size, "peak": peak});
            patch_at(&cx, &parent, json!({"metadata": {"annotations": annotations}})).await?;
        }
        done()
    }
    start(cluster, reconcile);
    cluster.create(parent("web").data("size", "1")).await;
    cluster.settle().await;
    for size in ["9", "2"] {
        set(cluster, "web", json!({"size": size})).await;
    }
    cluster.settle().await;
    for size in ["4", "3"] {
        set(cluster, "web", json!({"size": size})).await;
        cluster.settle().await;
    }
}

/// Keeps the time of the next attempt in an annotation, and doubles the pause after each failure. The scenario settles
/// during a pause: a comparison of the state at that time would report it.
async fn backoff_is_kept_in_an_annotation(cluster: &TestCluster) {
    async fn reconcile(parent: Arc<ConfigMap>, cx: Context) -> Done {
        let Some(parent) = alive(&cx, &*parent).await? else {
            return done();
        };
        let size = field(&parent, "size").to_owned();
        if annotation(&parent, "done") == size {
            return done();
        }
        let (pause, at) = annotation(&parent, "retry").split_once('@').unwrap_or_default();
        let wait = at.parse::<i64>().unwrap_or(0) - now().as_second();
        if wait > 0 {
            return again(wait.unsigned_abs());
        }
        if put(&cx, &parent.name_any(), json!({"size": size})).await.is_err() {
            let pause = pause.parse::<i64>().unwrap_or(5).saturating_mul(2).min(80);
            let retry = format!("{pause}@{}", now().as_second() + pause);
            patch_at(&cx, &parent, json!({"metadata": {"annotations": {"retry": retry}}})).await?;
            return again(pause.unsigned_abs());
        }
        let annotations = json!({"done": size, "retry": null});
        patch_at(&cx, &parent, json!({"metadata": {"annotations": annotations}})).await?;
        done()
    }
    start(cluster, reconcile);
    for name in ["web", "shop"] {
        cluster.create(parent(name).data("size", "1")).await;
    }
    cluster.settle().await;
    set(cluster, "web", json!({"size": "2"})).await;
    cluster.settle().await;
    for name in ["shop", "web"] {
        set(cluster, name, json!({"size": "3"})).await;
    }
    cluster.settle().await;
}

/// Takes or renews the Lease. Returns `true` if this instance holds the Lease.
async fn leads(leases: &Api<Lease>, name: &str) -> kube::Result<bool> {
    let now = now();
    let Some(known) = leases.get_opt("operator").await? else {
        let lease: Lease = serde_json::from_value(json!({
            "metadata": {"name": "operator"},
            "spec": {"holderIdentity": name, "leaseDurationSeconds": 15, "renewTime": MicroTime(now)},
        }))
        .map_err(kube::Error::SerdeError)?;
        return leases.create(&PostParams::default(), &lease).await.map(|_| true);
    };
    let spec = known.spec.clone().unwrap_or_default();
    let renewed = spec.renew_time.map_or(0, |it| it.0.as_second());
    if spec.holder_identity.as_deref() != Some(name) && renewed + 15 > now.as_second() {
        return Ok(false);
    }
    let patch = json!({
        "metadata": {"resourceVersion": known.resource_version()},
        "spec": {"holderIdentity": name, "renewTime": MicroTime(now)},
    });
    let patch = Patch::Merge(patch);
    leases
        .patch("operator", &PatchParams::default(), &patch)
        .await
        .map(|_| true)
}

/// The leader of two replicas labels each object with its size, and with the name of the replica that handled this
/// size. Another replica may lead after a fault: a comparison of labels would report it.
async fn leader_labels_objects_with_its_name(cluster: &TestCluster) {
    async fn label_all(client: &Client, name: &str) -> kube::Result<()> {
        let maps = Api::<ConfigMap>::default_namespaced(client.clone());
        for parent in maps.list(&ListParams::default().labels("kind=parent")).await? {
            let size = field(&parent, "size");
            if parent.labels().get("handled-size").is_some_and(|it| it == size) {
                continue;
            }
            let patch = json!({"metadata": {
                "resourceVersion": parent.resource_version(),
                "labels": {"handled-size": size, "handled-by": name},
            }});
            let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
            maps.patch(&parent.name_any(), &params, &patch).await?;
        }
        Ok(())
    }
    for name in ["replica-x", "replica-y"] {
        cluster.controller(name, move |client: Client| async move {
            let leases = Api::<Lease>::default_namespaced(client.clone());
            loop {
                if leads(&leases, name).await.unwrap_or(false) {
                    // The Lease lasts for 15 seconds, and the work must end before the Lease expires.
                    let _ = timeout(Duration::from_secs(10), label_all(&client, name)).await;
                }
                sleep(Duration::from_secs(5)).await;
            }
        });
    }
    for name in ["web", "shop"] {
        cluster.create(parent(name).data("size", "1")).await;
    }
    cluster.advance(Duration::from_secs(20)).await;
    set(cluster, "web", json!({"size": "2"})).await;
    cluster
        .eventually(|c| c.get(config_map("web")).label("handled-size") == Some("2"))
        .await;
    cluster.advance(Duration::from_secs(20)).await;
}

/// Generates a password, replaces it when the user requests a new one, and writes its hash into the Deployment, which
/// restarts the Pods. Each run has other passwords and hashes: a comparison of annotations would report them.
async fn deployment_has_the_hash_of_a_rotated_secret(cluster: &TestCluster) {
    async fn reconcile(parent: Arc<ConfigMap>, cx: Context) -> Done {
        let Some(parent) = alive(&cx, &*parent).await? else {
            return done();
        };
        let name = format!("{}-login", parent.name_any());
        let wanted = field(&parent, "rotation");
        let data = json!({"password": random_text(), "rotation": wanted});
        let login = match cx.get::<Secret>(&name).await? {
            Some(login) if secret_text(&login, "rotation") == wanted => login,
            Some(login) => patch_at(&cx, &login, json!({"stringData": data})).await?,
            None => {
                cx.create_secret(&parent, &name, data).await?;
                // The Secret may be an older one, whose creation was not confirmed.
                return again(1);
            }
        };
        let labels = json!({"app": parent.name_any()});
        let checksum = sha256(&secret_text(&login, "password"));
        let deployment = json!({
            "metadata": {"ownerReferences": [parent.controller_owner_ref(&())]},
            "spec": {"selector": {"matchLabels": labels}, "template": {
                "metadata": {"labels": labels, "annotations": {"checksum/login": checksum}},
                "spec": {"containers": [{"name": "main", "image": "registry.example/app:1"}]},
            }},
        });
        cx.apply::<Deployment>("operator", &parent.name_any(), deployment)
            .await?;
        done()
    }
    start(cluster, reconcile);
    cluster.create(parent("web").data("rotation", "first")).await;
    cluster.settle().await;
    set(cluster, "web", json!({"rotation": "next"})).await;
    cluster.settle().await;
    cluster.create(parent("shop").data("rotation", "first")).await;
    cluster.settle().await;
}

/// Generates the key of a CA once, and derives a certificate for each object from it. If the CA is deleted, all
/// certificates are derived again. All values are generated or derived, and only one of two objects creates the CA.
async fn certificates_are_derived_from_one_generated_ca(cluster: &TestCluster) {
    async fn reconcile(parent: Arc<ConfigMap>, cx: Context) -> Done {
        let Some(parent) = alive(&cx, &*parent).await? else {
            return done();
        };
        let Some(ca) = cx.get::<Secret>("ca").await? else {
            let ca = json!({"metadata": {"name": "ca"}, "stringData": {"key": random_text()}});
            cx.create::<Secret>(ca).await?;
            // The Secret may belong to another reconciliation.
            return again(1);
        };
        let key = secret_text(&ca, "key");
        let certificate = sha256(&format!("{key} {}", parent.name_any()));
        let leaf = json!({
            "metadata": {"ownerReferences": [parent.controller_owner_ref(&())]},
            "stringData": {"issuer": sha256(&key), "certificate": certificate},
        });
        let name = format!("leaf-{}", parent.name_any());
        cx.apply::<Secret>("operator", &name, leaf).await?;
        // A watch that lists again does not report that the CA was deleted.
        again(30)
    }
    let watches = |controller: Controller<ConfigMap>, cx: &Context| {
        let (store, ca) = (
            controller.store(),
            watcher::Config::default().fields("metadata.name=ca"),
        );
        controller.watches(cx.api::<Secret>(), ca, move |_| {
            let all: Vec<_> = store.state().iter().map(|it| ObjectRef::from_obj(&**it)).collect();
            all
        })
    };
    start_watching(cluster, "operator", watches, reconcile);
    for name in ["web", "shop"] {
        cluster.create(parent(name)).await;
    }
    cluster.settle().await;
    cluster.delete(secret("ca")).await;
    cluster.settle().await;
    cluster
        .eventually(|c| c.exists(secret("ca")) && c.exists(secret("leaf-web")))
        .await;
    cluster.create(parent("late")).await;
    cluster.settle().await;
}

/// Allocates the lowest unused port to each object, and frees it when the object is deleted. Ports depend on the order
/// of arrival; a new object that arrives before the deletion gets a higher port, so that the ports are not a
/// permutation of the ports in a run without faults.
async fn freed_port_is_reused(cluster: &TestCluster) {
    async fn reconcile(known: Arc<ConfigMap>, cx: Context) -> Done {
        let Some(parent) = cx.get::<ConfigMap>(&known.name_any()).await? else {
            return done();
        };
        let Some(mut pool) = cx.get::<ConfigMap>("pool").await? else {
            return Err(Error::NotYet("the pool does not exist"));
        };
        let uid = parent.uid().unwrap_or_default();
        if is_deleted(&parent) {
            if !has_finalizer(&parent) {
                return done();
            }
            pool.data.get_or_insert_default().retain(|_, user| *user != uid);
            // Changes the pool in any case: a late allocation of an earlier process then fails with a conflict.
            pool.annotations_mut().insert("freed-last".to_owned(), uid);
            cx.replace(&pool).await?;
            cx.remove_finalizer(&parent, FINALIZER).await?;
            return done();
        }
        if !has_finalizer(&parent) {
            cx.add_finalizer(&parent, FINALIZER).await?;
            return done();
        }
        let ports = pool.data.clone().unwrap_or_default();
        let port = match ports.iter().find(|(_, user)| **user == uid) {
            Some((port, _)) => port.clone(),
            None => {
                let free = (30_000..).map(|it: u32| it.to_string());
                let port = free.into_iter().find(|it| !ports.contains_key(it)).unwrap_or_default();
                pool.data.get_or_insert_default().insert(port.clone(), uid);
                cx.replace(&pool).await?;
                port
            }
        };
        if annotation(&parent, "port") != port {
            patch_at(&cx, &parent, json!({"metadata": {"annotations": {"port": port}}})).await?;
        }
        done()
    }
    start(cluster, reconcile);
    cluster.create(config_map("pool")).await;
    for name in ["shop", "api", "web"] {
        cluster.create(parent(name)).await;
    }
    cluster.settle().await;
    cluster.delete(config_map("api")).await;
    cluster.settle().await;
    cluster.create(parent("late")).await;
    cluster.settle().await;
}

/// Finds its child by a label. The server generates the name of a new child; an existing child is adopted, and surplus
/// children are deleted. Only the label relates a child to its parent.
async fn child_with_a_random_name_is_adopted_by_label(cluster: &TestCluster) {
    async fn reconcile(parent: Arc<ConfigMap>, cx: Context) -> Done {
        let Some(parent) = alive(&cx, &*parent).await? else {
            return done();
        };
        let name = parent.name_any();
        let mut children = cx.list::<Secret>(&format!("of={name}")).await?;
        children.sort_by_key(|it| (it.creation_timestamp().map(|it| it.0), it.name_any()));
        let owner = json!([parent.controller_owner_ref(&())]);
        let Some((first, others)) = children.split_first() else {
            let child = json!({
                "metadata": {
                    "generateName": format!("{name}-"), "labels": {"of": name}, "ownerReferences": owner,
                },
                "stringData": {"size": field(&parent, "size")},
            });
            cx.create::<Secret>(child).await?;
            return done();
        };
        for other in others {
            delete_exactly(&cx, other).await?;
        }
        let is_current =
            json!(first.owner_references()) == owner && secret_text(first, "size") == field(&parent, "size");
        if !is_current {
            let patch = json!({
                "metadata": {"ownerReferences": owner}, "stringData": {"size": field(&parent, "size")},
            });
            patch_at(&cx, first, patch).await?;
        }
        done()
    }
    start_watching(
        cluster,
        "operator",
        |controller: Controller<ConfigMap>, cx: &Context| {
            controller.owns(cx.api::<Secret>(), watcher::Config::default())
        },
        reconcile,
    );
    cluster.create(secret("legacy").label("of", "web")).await;
    for name in ["web", "shop"] {
        cluster.create(parent(name).data("size", "1")).await;
    }
    cluster.settle().await;
    assert_eq!(cluster.list::<Secret>().len(), 2);
    set(cluster, "shop", json!({"size": "2"})).await;
    cluster.settle().await;
}

/// Keeps the two newest revisions as objects named by a hash, as a Deployment keeps its ReplicaSets. A revision that is
/// used again gets the next number. Numbers and kept revisions depend on the observed changes.
async fn two_newest_revisions_are_kept(cluster: &TestCluster) {
    fn number(revision: &ConfigMap) -> u32 {
        annotation(revision, "revision").parse().unwrap_or(0)
    }
    async fn reconcile(parent: Arc<ConfigMap>, cx: Context) -> Done {
        let Some(parent) = alive(&cx, &*parent).await? else {
            return done();
        };
        let (name, image) = (parent.name_any(), field(&parent, "image"));
        let mut revisions = cx.list::<ConfigMap>(&format!("of={name}")).await?;
        let newest = revisions.iter().map(number).max().unwrap_or(0);
        match revisions.iter().find(|it| field(it, "image") == image) {
            Some(current) if number(current) == newest => {}
            Some(current) => {
                let annotations = json!({"revision": (newest + 1).to_string()});
                patch_at(&cx, current, json!({"metadata": {"annotations": annotations}})).await?;
                return again(1);
            }
            None => {
                let revision = json!({
                    "metadata": {
                        "name": format!("{name}-{}", short_hash(image)),
                        "labels": {"of": name},
                        "annotations": {"revision": (newest + 1).to_string()},
                        "ownerReferences": [parent.controller_owner_ref(&())],
                    },
                    "data": {"image": image},
                });
                cx.create::<ConfigMap>(revision).await?;
                return again(1);
            }
        }
        revisions.sort_by_key(number);
        let unused = revisions.len().saturating_sub(2);
        for revision in &revisions[..unused] {
            delete_exactly(&cx, revision).await?;
        }
        let newest = newest.to_string();
        if annotation(&parent, "revision") != newest {
            patch_at(&cx, &parent, json!({"metadata": {"annotations": {"revision": newest}}})).await?;
        }
        done()
    }
    start(cluster, reconcile);
    cluster.create(parent("web").data("image", "one")).await;
    cluster.settle().await;
    for image in ["two", "three", "one", "four"] {
        set(cluster, "web", json!({"image": image})).await;
        cluster.settle().await;
    }
}

/// Starts a run each minute, does not make up for missed runs, keeps the two newest runs, and records in each run how
/// many runs were missed before it. A fault of a minute makes it miss a run.
async fn missed_runs_are_skipped(cluster: &TestCluster) {
    async fn run_slot(maps: &Api<ConfigMap>) -> kube::Result<()> {
        let mut runs = maps.list(&ListParams::default().labels("kind=run")).await?.items;
        let slot_of = |run: &ConfigMap| field(run, "slot").parse::<i64>().unwrap_or(0);
        runs.sort_by_key(slot_of);
        let slot = now().as_second() / 60;
        let last = runs.last().map(slot_of);
        if last.is_none_or(|it| it < slot) {
            let missed = last.map_or(0, |it| slot - it - 1);
            let run: ConfigMap = serde_json::from_value(json!({
                "metadata": {"name": format!("run-{slot}"), "labels": {"kind": "run"}},
                "data": {"slot": slot.to_string(), "missed": missed.to_string()},
            }))
            .map_err(kube::Error::SerdeError)?;
            maps.create(&PostParams::default(), &run).await?;
            return Ok(());
        }
        let unused = runs.len().saturating_sub(2);
        for run in &runs[..unused] {
            let params = DeleteParams {
                preconditions: Some(Preconditions {
                    uid: run.uid(),
                    resource_version: None,
                }),
                ..DeleteParams::default()
            };
            maps.delete(&run.name_any(), &params).await?;
        }
        Ok(())
    }
    cluster.controller("schedule", |client: Client| async move {
        let maps = Api::<ConfigMap>::default_namespaced(client);
        loop {
            // Errors are handled by the next attempt.
            let _ = run_slot(&maps).await;
            sleep(Duration::from_secs(10)).await;
        }
    });
    cluster.advance(Duration::from_secs(330)).await;
}

/// Deletes and recreates a child with an outdated hash, as for an immutable object. Two quick changes need one or two
/// new children: a limit on creates and deletes would report the second child.
async fn drifted_child_is_recreated(cluster: &TestCluster) {
    async fn reconcile(parent: Arc<ConfigMap>, cx: Context) -> Done {
        let Some(parent) = alive(&cx, &*parent).await? else {
            return done();
        };
        let (name, size) = (parent.name_any(), field(&parent, "size"));
        let hash = short_hash(size);
        if let Some(child) = cx.get::<Secret>(&name).await? {
            if child.annotations().get("spec-hash") == Some(&hash) {
                return done();
            }
            delete_exactly(&cx, &child).await?;
        }
        let child = json!({
            "metadata": {
                "name": name, "annotations": {"spec-hash": hash},
                "ownerReferences": [parent.controller_owner_ref(&())],
            },
            "immutable": true,
            "stringData": {"size": size},
        });
        match cx.create::<Secret>(child).await? {
            true => done(),
            false => again(1),
        }
    }
    start(cluster, reconcile);
    cluster.create(parent("web").data("size", "1")).await;
    cluster.settle().await;
    for size in ["2", "3"] {
        set(cluster, "web", json!({"size": size})).await;
    }
    cluster.settle().await;
    set(cluster, "web", json!({"size": "4"})).await;
    cluster.settle().await;
}

/// One manager applies a Deployment, and two others add a variable to its container with server-side apply. The order
/// of the variables depends on which manager applies first.
async fn three_managers_share_a_container(cluster: &TestCluster) {
    async fn deploy(parent: Arc<ConfigMap>, cx: Context) -> Done {
        let Some(parent) = alive(&cx, &*parent).await? else {
            return done();
        };
        let labels = json!({"app": parent.name_any()});
        let container = json!({"name": "main", "image": field(&parent, "image")});
        let deployment = json!({
            "metadata": {"labels": {"of": parent.name_any()}, "ownerReferences": [parent.controller_owner_ref(&())]},
            "spec": {"selector": {"matchLabels": labels}, "template": {
                "metadata": {"labels": labels}, "spec": {"containers": [container]},
            }},
        });
        cx.apply::<Deployment>("deployer", &parent.name_any(), deployment)
            .await?;
        done()
    }
    async fn inject(parent: &ConfigMap, cx: &Context, manager: &str, variable: &str) -> Done {
        let Some(parent) = alive(cx, parent).await? else {
            return done();
        };
        let name = parent.name_any();
        if cx.get::<Deployment>(&name).await?.is_none() {
            return again(5);
        }
        let env = json!([{"name": variable, "value": field(&parent, "image")}]);
        let spec = json!({"template": {"spec": {"containers": [{"name": "main", "env": env}]}}});
        cx.apply::<Deployment>(manager, &name, json!({"spec": spec})).await?;
        done()
    }
    start_watching(
        cluster,
        "deployer",
        |controller: Controller<ConfigMap>, _: &Context| controller,
        deploy,
    );
    for (manager, variable) in [("tracing", "TRACE_TAG"), ("metrics", "METRICS_TAG")] {
        start_watching(
            cluster,
            manager,
            |controller: Controller<ConfigMap>, _: &Context| controller,
            move |parent: Arc<ConfigMap>, cx: Context| async move { inject(&parent, &cx, manager, variable).await },
        );
    }
    cluster.create(parent("web").data("image", "app:1")).await;
    cluster.settle().await;
    set(cluster, "web", json!({"image": "app:2"})).await;
    cluster.settle().await;
}

/// Writes the default of the settings into each object that has no size, once. If the settings change before the object
/// is observed, the object gets the new default.
async fn default_is_written_once_into_each_object(cluster: &TestCluster) {
    async fn reconcile(parent: Arc<ConfigMap>, cx: Context) -> Done {
        let Some(mut parent) = alive(&cx, &*parent).await? else {
            return done();
        };
        if field(&parent, "size").is_empty() {
            let Some(settings) = cx.get::<ConfigMap>("settings").await? else {
                return Err(Error::NotYet("the settings do not exist"));
            };
            let data = json!({"size": field(&settings, "size")});
            parent = patch_at(&cx, &parent, json!({"data": data})).await?;
        }
        let child = json!({
            "metadata": {"ownerReferences": [parent.controller_owner_ref(&())]},
            "stringData": {"size": field(&parent, "size")},
        });
        cx.apply::<Secret>("operator", &parent.name_any(), child).await?;
        done()
    }
    start(cluster, reconcile);
    cluster.create(config_map("settings").data("size", "3")).await;
    cluster.create(parent("web").data("color", "red")).await;
    cluster.settle().await;
    set(cluster, "settings", json!({"size": "5"})).await;
    cluster.create(parent("shop").data("color", "red")).await;
    cluster.create(parent("api").data("size", "7")).await;
    cluster.settle().await;
    set(cluster, "web", json!({"color": "blue"})).await;
    set(cluster, "settings", json!({"size": "6"})).await;
    cluster.settle().await;
}

/// Deletes a task five minutes after it has finished, and keeps its result. The user then runs a task with the same
/// name. The time of the deletion depends on the time at which the task was observed.
async fn finished_task_is_deleted_after_a_while(cluster: &TestCluster) {
    async fn reconcile(parent: Arc<ConfigMap>, cx: Context) -> Done {
        let Some(parent) = alive(&cx, &*parent).await? else {
            return done();
        };
        let name = parent.name_any();
        let Ok(finished) = annotation(&parent, "finished").parse::<i64>() else {
            let result = json!({"data": {"task": parent.uid(), "input": field(&parent, "input")}});
            cx.apply::<ConfigMap>("operator", &format!("result-{name}"), result)
                .await?;
            let finished = now().as_second().to_string();
            patch_at(
                &cx,
                &parent,
                json!({"metadata": {"annotations": {"finished": finished}}}),
            )
            .await?;
            return again(300);
        };
        let left = finished + 300 - now().as_second();
        if left > 0 {
            return again(left.unsigned_abs());
        }
        delete_exactly(&cx, &parent).await?;
        done()
    }
    start(cluster, reconcile);
    cluster.create(parent("import").data("input", "one")).await;
    cluster
        .eventually(|c| c.get(config_map("result-import")).data("input") == Some("one"))
        .await;
    cluster
        .eventually_within(Duration::from_secs(900), |c| c.gone(config_map("import")))
        .await;
    cluster.create(parent("import").data("input", "two")).await;
    cluster.settle().await;
    cluster.assert_has(config_map("result-import").data("input", "two"));
}

/// Polls, and ends its process at the first error, as programs with `?` in `main` do; the kubelet restarts it. After
/// several errors the pause is longer than the quiet time of a scenario.
async fn process_exits_on_each_error(cluster: &TestCluster) {
    async fn poll(client: Client) -> Result<(), Error> {
        let (maps, secrets) = (
            Api::<ConfigMap>::default_namespaced(client.clone()),
            Api::<Secret>::default_namespaced(client),
        );
        loop {
            for parent in maps.list(&ListParams::default().labels("kind=parent")).await? {
                let (name, size) = (parent.name_any(), field(&parent, "size"));
                let child = secrets.get_opt(&name).await?;
                if child.is_some_and(|it| secret_text(&it, "size") == size) {
                    continue;
                }
                let child = json!({
                    "apiVersion": "v1", "kind": "Secret",
                    "metadata": {"name": name, "ownerReferences": [parent.controller_owner_ref(&())]},
                    "stringData": {"size": size},
                });
                let params = PatchParams::apply("operator").force();
                secrets.patch(&name, &params, &Patch::Apply(child)).await?;
            }
            sleep(Duration::from_secs(3)).await;
        }
    }
    cluster.controller("operator", poll).restarts();
    cluster.create(parent("web").data("size", "1")).await;
    cluster.eventually(|c| c.exists(secret("web"))).await;
    for size in ["2", "3"] {
        set(cluster, "web", json!({"size": size})).await;
        cluster.settle().await;
    }
    cluster.delete(config_map("web")).await;
    cluster.create(parent("shop").data("size", "1")).await;
    cluster.eventually(|c| c.exists(secret("shop"))).await;
    cluster.settle().await;
}

/// Adds the sizes of all objects, with two objects a page, and increments a revision with each change of the total. The
/// revision depends on how many changes were observed at once.
async fn revision_counts_changes_of_a_total_over_pages(cluster: &TestCluster) {
    async fn sizes(maps: &Api<ConfigMap>) -> kube::Result<Vec<u32>> {
        let (mut sizes, mut params) = (Vec::new(), ListParams::default().labels("kind=item").limit(2));
        loop {
            let page = maps.list(&params).await?;
            sizes.extend(
                page.items
                    .iter()
                    .map(|it| field(it, "size").parse::<u32>().unwrap_or(0)),
            );
            match page.metadata.continue_.filter(|it| !it.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok(sizes),
            }
        }
    }
    async fn reconcile(parent: Arc<ConfigMap>, cx: Context) -> Done {
        let Some(parent) = alive(&cx, &*parent).await? else {
            return done();
        };
        let sizes = sizes(&cx.api::<ConfigMap>()).await?;
        let (count, total) = (sizes.len().to_string(), sizes.iter().sum::<u32>().to_string());
        if field(&parent, "count") != count || field(&parent, "total") != total {
            let revision = field(&parent, "revision").parse().unwrap_or(0_u32) + 1;
            let data = json!({"count": count, "total": total, "revision": revision.to_string()});
            patch_at(&cx, &parent, json!({"data": data})).await?;
        }
        done()
    }
    let watches = |controller: Controller<ConfigMap>, cx: &Context| {
        let items = watcher::Config::default().labels("kind=item");
        controller.watches(cx.api::<ConfigMap>(), items, |item: ConfigMap| {
            let namespace = item.namespace().unwrap_or_default();
            Some(ObjectRef::new("summary").within(&namespace))
        })
    };
    start_watching(cluster, "operator", watches, reconcile);
    cluster.create(parent("summary")).await;
    for (name, size) in [("a", "1"), ("b", "2"), ("c", "3")] {
        cluster
            .create(config_map(name).label("kind", "item").data("size", size))
            .await;
    }
    cluster.settle().await;
    set(cluster, "b", json!({"size": "5"})).await;
    cluster.delete(config_map("a")).await;
    cluster.settle().await;
    cluster
        .create(config_map("d").label("kind", "item").data("size", "4"))
        .await;
    cluster.settle().await;
}

/// Keeps the last error, its time and the number of failed attempts in the status after it has recovered. All of them
/// are absent from a run without faults. The buggy variant also records the generation, and does not try it again.
async fn last_error_is_kept_after_recovery(cluster: &TestCluster, is_healthy: bool) {
    async fn reconcile(widget: Arc<Widget>, cx: Context, is_healthy: bool) -> Done {
        let Some(widget) = alive(&cx, &*widget).await? else {
            return done();
        };
        let (status, generation) = (widget.status.clone().unwrap_or_default(), widget.metadata.generation);
        if status.observed_generation == generation {
            return done();
        }
        let wait = status.retry_at.unwrap_or(0) - now().as_second();
        if wait > 0 {
            return again(wait.unsigned_abs());
        }
        if let Err(err) = put(&cx, &widget.name_any(), json!({"size": widget.spec.size})).await {
            let now = now();
            let failed = json!({
                "phase": "Failing", "attempts": status.attempts + 1, "lastError": err.to_string(),
                "lastErrorTime": now.to_string(), "retryAt": now.as_second() + 10,
                "observedGeneration": if is_healthy { status.observed_generation } else { generation },
            });
            patch_status_at(&cx, &widget, failed).await?;
            return again(10);
        }
        let ready = json!({"phase": "Ready", "observedGeneration": generation, "retryAt": null});
        patch_status_at(&cx, &widget, ready).await?;
        done()
    }
    start(cluster, move |widget, cx| reconcile(widget, cx, is_healthy));
    for name in ["web", "shop"] {
        cluster.create(widget(name, json!({"size": 1}))).await;
    }
    cluster.settle().await;
    respecify(cluster, "web", json!({"size": 2})).await;
    cluster.settle().await;
}

/// Replaces the condition of this type, or adds it. Its time only changes together with its status.
fn set_condition(widget: &Widget, all: &mut Vec<WidgetCondition>, type_: &str, status: &str, reason: &str) {
    let mut wanted = WidgetCondition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: String::new(),
        observed_generation: widget.metadata.generation,
        last_transition_time: now().to_string(),
    };
    match all.iter_mut().find(|it| it.type_ == type_) {
        None => all.push(wanted),
        Some(known) => {
            if known.status == status {
                wanted.last_transition_time.clone_from(&known.last_transition_time);
            }
            *known = wanted;
        }
    }
}

/// The condition `Ready` passes through `Unknown`; the condition `Degraded` is added by the first error, and is `False`
/// after recovery. A run without faults has no condition `Degraded`. The buggy variant leaves it at `True`.
async fn degraded_condition_appears_with_the_first_error(cluster: &TestCluster, is_healthy: bool) {
    async fn reconcile(widget: Arc<Widget>, cx: Context, is_healthy: bool) -> Done {
        let Some(mut widget) = alive(&cx, &*widget).await? else {
            return done();
        };
        let (status, generation) = (widget.status.clone().unwrap_or_default(), widget.metadata.generation);
        let mut conditions = status.conditions;
        let ready = conditions.iter().find(|it| it.type_ == "Ready");
        let is_new = ready.is_none_or(|it| it.observed_generation != generation);
        if ready.is_some_and(|it| it.status == "True") && !is_new {
            return done();
        }
        if is_new {
            set_condition(&widget, &mut conditions, "Ready", "Unknown", "Syncing");
            widget = patch_status_at(&cx, &widget, json!({"conditions": conditions})).await?;
        }
        let wait = status.retry_at.unwrap_or(0) - now().as_second();
        if wait > 0 {
            return again(wait.unsigned_abs());
        }
        let is_synced = put(&cx, &widget.name_any(), json!({"size": widget.spec.size}))
            .await
            .is_ok();
        let is_known_as_degraded = conditions.iter().any(|it| it.type_ == "Degraded");
        if is_synced {
            set_condition(&widget, &mut conditions, "Ready", "True", "Synced");
            if is_known_as_degraded && is_healthy {
                set_condition(&widget, &mut conditions, "Degraded", "False", "Recovered");
            }
            patch_status_at(&cx, &widget, json!({"conditions": conditions, "retryAt": null})).await?;
            return done();
        }
        set_condition(&widget, &mut conditions, "Ready", "False", "SyncFailed");
        set_condition(&widget, &mut conditions, "Degraded", "True", "SyncFailed");
        let status = json!({"conditions": conditions, "retryAt": now().as_second() + 10});
        patch_status_at(&cx, &widget, status).await?;
        again(10)
    }
    start(cluster, move |widget, cx| reconcile(widget, cx, is_healthy));
    cluster.create(widget("web", json!({"size": 1}))).await;
    cluster.settle().await;
    respecify(cluster, "web", json!({"size": 2})).await;
    cluster.settle().await;
    cluster
        .eventually(|c| c.assert_condition(object("example.com/v1", "Widget", "web"), "Ready", "True"))
        .await;
}

/// Lists the two newest images that it has observed, with their times. An image that was replaced quickly may be
/// missing, and an older one is listed then.
async fn two_newest_images_are_listed(cluster: &TestCluster) {
    async fn reconcile(widget: Arc<Widget>, cx: Context) -> Done {
        let Some(widget) = alive(&cx, &*widget).await? else {
            return done();
        };
        let mut history = widget.status.clone().unwrap_or_default().history;
        if history.last().is_none_or(|it| it.image != widget.spec.image) {
            history.push(SeenImage {
                image: widget.spec.image.clone(),
                seen_at: now().to_string(),
            });
            let unused = history.len().saturating_sub(2);
            history.drain(..unused);
            patch_status_at(&cx, &widget, json!({"history": history})).await?;
        }
        done()
    }
    start(cluster, reconcile);
    cluster.create(widget("web", json!({"image": "one"}))).await;
    cluster.settle().await;
    respecify(cluster, "web", json!({"image": "two"})).await;
    cluster.settle().await;
    for image in ["three", "four"] {
        respecify(cluster, "web", json!({"image": image})).await;
    }
    cluster.settle().await;
}

/// The external system generates the id, which is stored in the status; the uid is the key of idempotence. The user
/// deletes the object and creates it again, which needs another id.
async fn recreated_object_gets_another_external_id(cluster: &TestCluster) {
    async fn reconcile(known: Arc<Widget>, cx: Context) -> Done {
        let Some(widget) = cx.get::<Widget>(&known.name_any()).await? else {
            return done();
        };
        let uid = widget.uid().unwrap_or_default();
        let has_finalizer = widget.finalizers().iter().any(|it| it == FINALIZER);
        let mut mine = cx.cloud.list().await?;
        mine.retain(|(_, value)| value["key"] == json!(uid));
        if widget.metadata.deletion_timestamp.is_some() {
            for (id, _) in mine {
                cx.cloud.delete(&id).await?;
            }
            if has_finalizer {
                patch_at(&cx, &widget, json!({"metadata": {"finalizers": null}})).await?;
            }
            return done();
        }
        if !has_finalizer {
            patch_at(&cx, &widget, json!({"metadata": {"finalizers": [FINALIZER]}})).await?;
            return done();
        }
        let wanted = json!({"key": uid, "size": widget.spec.size});
        let id = match mine.into_iter().next() {
            None => cx.cloud.add(wanted).await?,
            Some((id, value)) => {
                if value != wanted {
                    cx.cloud.update(&id, wanted).await?;
                }
                id
            }
        };
        if widget.status.as_ref().is_none_or(|it| it.external_id != id) {
            patch_status_at(&cx, &widget, json!({"externalId": id})).await?;
        }
        done()
    }
    start(cluster, reconcile);
    cluster.create(widget("web", json!({"size": 1}))).await;
    cluster.settle().await;
    let web = || object("example.com/v1", "Widget", "web");
    cluster.delete(web()).await;
    cluster.eventually(|c| c.gone(web())).await;
    cluster.create(widget("web", json!({"size": 1}))).await;
    cluster.settle().await;
    respecify(cluster, "web", json!({"size": 2})).await;
    cluster.settle().await;
}

/// Copies a Secret into each namespace with a label. A namespace is deleted and created again, and writes to a
/// terminating namespace fail.
async fn secret_is_copied_to_new_namespaces(cluster: &TestCluster) {
    async fn reconcile(known: Arc<Namespace>, client: Arc<Client>) -> Result<Action, kube::Error> {
        let client = Client::clone(&client);
        let newest = Api::<Namespace>::all(client.clone()).get_opt(&known.name_any()).await?;
        let Some(space) = newest.filter(|it| it.metadata.deletion_timestamp.is_none()) else {
            return Ok(Action::await_change());
        };
        let source = Api::<Secret>::default_namespaced(client.clone())
            .get_opt("source")
            .await?;
        let Some(source) = source else {
            return Ok(Action::await_change());
        };
        let copy = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "copy"}, "data": source.data,
        });
        let (params, copies) = (
            PatchParams::apply("operator").force(),
            Api::<Secret>::namespaced(client, &space.name_any()),
        );
        copies.patch("copy", &params, &Patch::Apply(copy)).await?;
        Ok(Action::await_change())
    }
    cluster.controller("operator", |client: Client| async move {
        let controller = Controller::new(
            Api::<Namespace>::all(client.clone()),
            watcher::Config::default().labels("copies=yes"),
        );
        // Each change of the source concerns all namespaces.
        let secrets = Api::<Secret>::default_namespaced(client.clone());
        let source = watcher(secrets, watcher::Config::default().fields("metadata.name=source"));
        let source = source.default_backoff().touched_objects();
        controller
            .reconcile_all_on(source.filter_map(|it| std::future::ready(it.ok().map(drop))))
            .run(
                reconcile,
                |_: Arc<Namespace>, _: &kube::Error, _: Arc<Client>| Action::requeue(Duration::from_secs(5)),
                Arc::new(client),
            )
            .for_each(|_| async {})
            .await;
    });
    cluster.create(secret("source").data("password", "one")).await;
    for name in ["team-a", "team-b"] {
        cluster.create(namespace(name).label("copies", "yes")).await;
    }
    cluster.settle().await;
    cluster.delete(namespace("team-a")).await;
    cluster.eventually(|c| c.gone(namespace("team-a"))).await;
    cluster.create(namespace("team-a").label("copies", "yes")).await;
    let _: testkit::Object = cluster
        .patch(secret("source"), json!({"stringData": {"password": "two"}}))
        .await;
    cluster.settle().await;
}

/// Sets the replicas of a Deployment, whose Pods have generated names, and counts its changes of scale. The scenario
/// scales to zero and back twice, once without waiting: that may be observed as no change.
async fn deployment_is_scaled_to_zero_and_back(cluster: &TestCluster) {
    async fn reconcile(parent: Arc<ConfigMap>, cx: Context) -> Done {
        let Some(parent) = alive(&cx, &*parent).await? else {
            return done();
        };
        let (name, size) = (parent.name_any(), field(&parent, "size"));
        let labels = json!({"app": name});
        let deployment = json!({
            "metadata": {"ownerReferences": [parent.controller_owner_ref(&())]},
            "spec": {
                "replicas": size.parse().unwrap_or(0_u32), "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {"containers": [{"name": "main", "image": "registry.example/app:1"}]},
                },
            },
        });
        cx.apply::<Deployment>("operator", &name, deployment).await?;
        if annotation(&parent, "scaled-to") != size {
            let count = annotation(&parent, "scale-count").parse().unwrap_or(0_u32) + 1;
            let annotations = json!({"scaled-to": size, "scale-count": count.to_string()});
            patch_at(&cx, &parent, json!({"metadata": {"annotations": annotations}})).await?;
        }
        done()
    }
    start(cluster, reconcile);
    cluster.create(parent("web").data("size", "2")).await;
    cluster.settle().await;
    set(cluster, "web", json!({"size": "0"})).await;
    cluster.settle().await;
    set(cluster, "web", json!({"size": "2"})).await;
    cluster.settle().await;
    assert_eq!(cluster.list::<Pod>().len(), 2);
    for size in ["0", "2"] {
        set(cluster, "web", json!({"size": size})).await;
    }
    cluster.settle().await;
    assert_eq!(cluster.list::<Pod>().len(), 2);
}
