//! Object reconcilers: triggers, and writes of dependents and status.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use informer::Clock;
use informer::reconcile::{Action, ReconcileError};
use informer::runtime::{
    Dependents, Manager, ObjectReconciler, OperationResult, as_reconciler, conditions, update_status,
};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod, Secret};
use kube::ResourceExt;
use serde_json::json;
use testkit::objects::{config_map, node, pod, secret};
use testkit::{TestCluster, Verb, faults};

/// Copies each ConfigMap to a Secret with the same name.
struct Copier {
    secrets: Dependents<Secret>,
    seen: Arc<Mutex<Vec<String>>>,
}

impl ObjectReconciler<ConfigMap> for Copier {
    async fn reconcile(&self, map: Arc<ConfigMap>) -> Result<Action, ReconcileError> {
        let name = map.name_any();
        let secret = self.secrets.ensure(&*map, &name, |secret| {
            let labels = secret.metadata.labels.get_or_insert_default();
            labels.insert(
                "color".into(),
                map.data.as_ref().map_or("none", |it| it["color"].as_str()).into(),
            );
        });
        let version = secret.await?.metadata.resource_version.clone().unwrap_or_default();
        self.seen
            .lock()
            .expect("the lock is not poisoned")
            .push(format!("{name} {}", !version.is_empty()));
        Ok(Action::await_change())
    }
}

/// Runs the copier in a cluster, and returns its calls.
fn copier(cluster: &TestCluster) -> Arc<Mutex<Vec<String>>> {
    let (manager, seen) = (Manager::new(cluster.client_named("copier")), Arc::default());
    let copier = Copier {
        secrets: manager.dependents(),
        seen: Arc::clone(&seen),
    };
    let controller = manager.controller("copier").for_::<ConfigMap>().owns::<Secret>();
    let copier = as_reconciler(manager.lister(), copier);
    controller.complete(copier).expect("the controller is complete");
    cluster.run(async move { manager.run(std::future::pending()).await });
    seen
}

fn requests(cluster: &TestCluster) -> usize {
    let all = cluster.requests().client("copier").on(Verb::Get, "secrets").count();
    all + cluster.requests().client("copier").writes().count()
}

#[tokio::test(start_paused = true)]
async fn dependent_is_created_or_patched_only_if_it_differs() {
    let cluster = TestCluster::start();
    let seen = copier(&cluster);
    cluster.create(config_map("m").data("color", "red")).await;
    let map = cluster.get::<ConfigMap>("m");
    cluster.settle().await;
    let made = cluster.get::<Secret>("m");
    assert_eq!(made.labels()["color"], "red");
    let owner = &made
        .metadata
        .owner_references
        .as_ref()
        .expect("the object has owner references")[0];
    assert_eq!(
        (Some(&owner.uid), owner.controller),
        (map.metadata.uid.as_ref(), Some(true))
    );
    assert_eq!(
        requests(&cluster),
        1,
        "the object is created, and its event causes no request"
    );

    // Fields of other clients are kept, and the controller's own fields are restored.
    cluster
        .patch::<Secret>("m", json!({"metadata": {"labels": {"color": "blue", "size": "big"}}}))
        .await;
    cluster.settle().await;
    let mended = cluster.get::<Secret>("m");
    assert_eq!((&*mended.labels()["color"], &*mended.labels()["size"]), ("red", "big"));
    assert_eq!(requests(&cluster), 2);
    cluster.delete::<Secret>("m").await;
    cluster.settle().await;
    assert!(cluster.exists::<Secret>("m"));
    assert_eq!(requests(&cluster), 3);
    cluster.delete::<ConfigMap>("m").await;
    cluster.settle().await;
    let seen = seen.lock().expect("the lock is not poisoned");
    assert!(seen.iter().all(|it| it == "m true"), "{seen:?}");
    assert_eq!(requests(&cluster), 3, "a missing object is not reconciled");
}

#[tokio::test(start_paused = true)]
async fn dependent_of_another_controller_is_not_changed() {
    let cluster = TestCluster::start();
    let other = cluster.create(config_map("other")).await;
    cluster.create(secret("m").owned_by(&other)).await;
    let manager = Manager::new(cluster.client());
    let secrets = manager.dependents::<Secret>();
    cluster.run({
        let manager = manager.clone();
        async move { manager.run(std::future::pending()).await }
    });
    cluster.create(config_map("m")).await;
    let map = cluster.get::<ConfigMap>("m");
    cluster.settle().await;
    let err = secrets
        .ensure(&map, "m", |_| {})
        .await
        .expect_err("another object owns the Secret");
    assert!(
        err.to_string()
            .contains("already owned by another ConfigMap controller other"),
        "{err}"
    );
    let err = secrets
        .ensure(&map, "n", |it| it.metadata.name = Some("x".into()))
        .await
        .expect_err("the closure changes the name");
    assert!(err.to_string().contains("was default/n, is default/x"), "{err}");
}

#[tokio::test(start_paused = true)]
async fn stale_cache_does_not_overwrite_newer_changes() {
    let cluster = TestCluster::start();
    let manager = Manager::new(cluster.client_named("old"));
    let secrets = manager.dependents::<Secret>();
    cluster.run({
        let manager = manager.clone();
        async move { manager.run(std::future::pending()).await }
    });
    cluster.create(config_map("m")).await;
    let map = cluster.get::<ConfigMap>("m");
    cluster.settle().await;
    secrets.ensure(&map, "m", |_| {}).await.expect("the Secret is created");
    cluster.settle().await;
    cluster.watches().on("secrets").client("old").hold();
    cluster
        .patch::<Secret>("m", json!({"metadata": {"labels": {"color": "blue"}}}))
        .await;
    let paint = |it: &mut Secret| drop(it.labels_mut().insert("color".into(), "red".into()));
    let err = secrets.ensure(&map, "m", paint).await.expect_err("the cache is stale");
    assert!(err.is_conflict(), "{err}");
    cluster.create(config_map("n")).await;
    cluster
        .create(secret("n").owned_by(&cluster.get::<ConfigMap>("n")))
        .await;
    let err = secrets
        .ensure(&cluster.get::<ConfigMap>("n"), "n", paint)
        .await
        .expect_err("the Secret exists outside the cache");
    assert!(err.is_already_exists(), "{err}");
}

#[tokio::test(start_paused = true)]
async fn status_patch_contains_differences_and_requires_the_read_version() {
    let cluster = TestCluster::start();
    let client = cluster.client();
    cluster.create(pod("web")).await;
    cluster
        .patch_status::<Pod>("web", json!({"message": "old", "reason": "Old"}))
        .await;
    let read = cluster.get::<Pod>("web");
    let say = |text: &'static str| {
        move |pod: &mut Pod| {
            pod.labels_mut().insert("not".into(), "written".into());
            let status = pod.status.get_or_insert_default();
            (status.message, status.reason) = (Some(text.into()), None);
        }
    };
    let result = update_status(&client, &read, say("new"))
        .await
        .expect("the object is not stale");
    assert_eq!(result, OperationResult::UpdatedStatusOnly);
    let written = cluster.get::<Pod>("web");
    let status = written.status.clone().expect("the object has a status");
    assert_eq!((status.message.as_deref(), status.reason), (Some("new"), None));
    assert!(!written.labels().contains_key("not"));

    let err = update_status(&client, &read, say("late"))
        .await
        .expect_err("the object was written since the read");
    assert!(err.is_conflict(), "{err}");
    let writes = cluster.requests().writes().count();
    let result = update_status(&client, &written, say("new"))
        .await
        .expect("the status is written");
    assert_eq!(
        (result, cluster.requests().writes().count()),
        (OperationResult::Unchanged, writes)
    );
}

#[tokio::test(start_paused = true)]
async fn cluster_scoped_owner_may_have_dependents_in_any_namespace() {
    let cluster = TestCluster::start();
    let manager = Manager::new(cluster.client());
    let maps = manager.dependents::<ConfigMap>();
    cluster.run({
        let manager = manager.clone();
        async move { manager.run(std::future::pending()).await }
    });
    cluster.create(node("node-1")).await;
    let node = cluster.get::<Node>("node-1");
    cluster.settle().await;
    let key = informer::ObjectKey::new("default", "of-node-1");
    maps.ensure_at(&node, &key, |_| {})
        .await
        .expect("the owner is permitted");
    let owners = cluster.get::<ConfigMap>("of-node-1").metadata.owner_references;
    assert_eq!(owners.expect("the object has owner references")[0].kind, "Node");
}

#[tokio::test(start_paused = true)]
async fn status_of_a_cluster_scoped_object_is_patched() {
    let cluster = TestCluster::start();
    cluster.create(node("node-1")).await;
    let node = cluster.get::<Node>("node-1");
    let phase = |node: &mut Node| node.status.get_or_insert_default().phase = Some("Running".into());
    update_status(&cluster.client(), &node, phase)
        .await
        .expect("the object exists");
    assert_eq!(
        cluster.get::<Node>("node-1").status.and_then(|it| it.phase).as_deref(),
        Some("Running")
    );
}

#[tokio::test(start_paused = true)]
async fn undecodable_object_is_not_retried() {
    let cluster = TestCluster::start();
    let manager = Manager::new(cluster.client());
    let calls: Arc<Mutex<u32>> = Arc::default();
    let count = Arc::clone(&calls);
    let reconciler = as_reconciler(manager.lister(), move |_: Arc<PodLike>| {
        *count.lock().expect("the lock is not poisoned") += 1;
        std::future::ready(Ok::<_, ReconcileError>(Action::await_change()))
    });
    manager
        .controller("strict")
        .for_::<PodLike>()
        .complete(reconciler)
        .expect("the controller is complete");
    cluster.run({
        let manager = manager.clone();
        async move { manager.run(std::future::pending()).await }
    });
    cluster.create(pod("web")).await;
    cluster.settle().await;
    let metrics = manager.metrics().render();
    let terminal = "controller_runtime_terminal_reconcile_errors_total{controller=\"strict\"} 1";
    assert!(metrics.lines().any(|it| it == terminal), "{metrics}");
    assert_eq!(*calls.lock().expect("the lock is not poisoned"), 0);
}

/// A type with the group, version and kind of Pods, but with a required field that Pods do not have.
#[derive(Clone, Debug, serde::Deserialize)]
struct PodLike {
    metadata: kube::api::ObjectMeta,
    #[serde(rename = "neverThere")]
    _never_there: String,
}

impl kube::Resource for PodLike {
    type DynamicType = ();
    type Scope = kube::core::NamespaceResourceScope;

    fn kind(_: &()) -> std::borrow::Cow<'_, str> {
        "Pod".into()
    }

    fn group(_: &()) -> std::borrow::Cow<'_, str> {
        "".into()
    }

    fn version(_: &()) -> std::borrow::Cow<'_, str> {
        "v1".into()
    }

    fn plural(_: &()) -> std::borrow::Cow<'_, str> {
        "pods".into()
    }

    fn meta(&self) -> &kube::api::ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut kube::api::ObjectMeta {
        &mut self.metadata
    }
}

#[tokio::test(start_paused = true)]
async fn conditions_have_a_generation_and_a_transition_time() {
    let cluster = TestCluster::start();
    let clock = Clock::starting_at(cluster.server().now());
    cluster.create(pod("web")).await;
    let mut web = cluster.get::<Pod>("web");
    web.metadata.generation = Some(7);
    let mut all = Vec::new();
    assert!(conditions::of(&web, &clock).set(&mut all, "Ready", false, "Starting", ""));
    let began = all[0].last_transition_time.clone();
    tokio::time::advance(Duration::from_secs(90)).await;
    assert!(conditions::of(&web, &clock).set(&mut all, "Ready", false, "Waiting", "still"));
    assert_eq!(
        (all[0].observed_generation, &all[0].last_transition_time),
        (Some(7), &began)
    );
    assert!(conditions::of(&web, &clock).set(&mut all, "Ready", conditions::ConditionStatus::Unknown, "Lost", ""));
    assert_eq!(all[0].last_transition_time.0, began.0 + Duration::from_secs(90));
}

#[tokio::test(start_paused = true)]
async fn failed_reconcile_is_retried_with_the_newest_object() {
    let cluster = TestCluster::start();
    let seen = copier(&cluster);
    let fault = cluster.inject(faults::server_error().on(Verb::Create, "secrets"));
    cluster.create(config_map("m").data("color", "red")).await;
    cluster.advance(Duration::from_secs(1)).await;
    let failures = fault.hits();
    assert!(failures > 3, "{failures}");
    cluster
        .patch::<ConfigMap>("m", json!({"data": {"color": "blue"}}))
        .await;
    cluster.advance(Duration::from_millis(1)).await;
    assert!(
        seen.lock().expect("the lock is not poisoned").is_empty(),
        "the reconcile still fails"
    );
    let before = requests(&cluster);
    drop(fault);
    cluster.advance(Duration::from_secs(10)).await;
    assert_eq!(cluster.get::<Secret>("m").labels()["color"], "blue");
    assert_eq!(
        requests(&cluster),
        before + 1,
        "the newest object is reconciled with one request"
    );
}

/// The example from the documentation of `ObjectReconciler`.
struct Labels(Dependents<ConfigMap>);

impl ObjectReconciler<Pod> for Labels {
    async fn reconcile(&self, pod: Arc<Pod>) -> Result<Action, ReconcileError> {
        let labels = pod.metadata.labels.clone();
        self.0.ensure(&*pod, &pod.name_any(), |map| map.data = labels).await?;
        Ok(Action::await_change())
    }
}

#[tokio::test(start_paused = true)]
async fn next_reconcile_of_the_documented_example_does_not_write() {
    let cluster = TestCluster::start();
    let manager = Manager::new(cluster.client_named("copier"));
    let labels = as_reconciler(manager.lister(), Labels(manager.dependents()));
    let controller = manager.controller("labels").for_::<Pod>().owns::<ConfigMap>();
    controller.complete(labels).expect("the controller is complete");
    cluster.run(async move { manager.run(std::future::pending()).await });
    cluster.create(pod("web").label("app", "web")).await;
    cluster.settle().await;
    cluster.assert_has(config_map("web").data("app", "web"));
    cluster.patch_status::<Pod>("web", json!({"phase": "Running"})).await;
    cluster.settle().await;
    let writes = cluster.requests().client("copier").writes();
    assert_eq!(writes.count(), 1, "the ConfigMap is only written once");
}
