//! Start of managers: the caches that they wait for, and the time limits.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use informer::reconcile::{Action, BoxError, ReconcileError, Request};
use informer::runtime::{FnRunnable, Manager, Runnable, RunnableGroup, as_reconciler, run_always, run_when_leader};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use rstest::rstest;
use serde_json::json;
use testkit::objects::{config_map, object};
use testkit::{TestCluster, UserInfo, Verb, faults};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// A custom resource with a CustomResourceDefinition that is not installed at first.
#[derive(Clone, Debug, serde::Deserialize)]
struct Widget {
    metadata: ObjectMeta,
}

impl kube::Resource for Widget {
    type DynamicType = ();
    type Scope = kube::core::NamespaceResourceScope;

    fn kind(_: &()) -> std::borrow::Cow<'_, str> {
        "Widget".into()
    }

    fn group(_: &()) -> std::borrow::Cow<'_, str> {
        "example.com".into()
    }

    fn version(_: &()) -> std::borrow::Cow<'_, str> {
        "v1".into()
    }

    fn plural(_: &()) -> std::borrow::Cow<'_, str> {
        "widgets".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// Creates the CustomResourceDefinition of Widgets.
async fn install(client: Client) {
    let definition = json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}},
            }],
        },
    });
    let definition = serde_json::from_value(definition).expect("the object is a definition");
    let definitions: Api<CustomResourceDefinition> = Api::all(client);
    let made = definitions.create(&PostParams::default(), &definition).await;
    made.expect("the object may be created");
}

async fn done(_: Request) -> Result<Action, ReconcileError> {
    Ok(Action::await_change())
}

/// Returns the result of a manager and the time until it ended; `None` if it is still running after five minutes.
async fn ended(cluster: &TestCluster, manager: &Manager) -> Option<(Result<(), String>, u64)> {
    let end = Arc::new(Mutex::new(None));
    let (told, manager, began) = (Arc::clone(&end), manager.clone(), Instant::now());
    let running = cluster.run(async move {
        let result = manager.run(std::future::pending()).await.map_err(|err| err.to_string());
        *told.lock().expect("the lock is not poisoned") = Some((result, began.elapsed().as_secs()));
    });
    cluster.advance(Duration::from_secs(300)).await;
    drop(running);
    let mut end = end.lock().expect("the lock is not poisoned");
    end.take()
}

#[rstest]
#[case::watched_type(true, false, 30, "maps: controller \"maps\"")]
#[case::watched_and_read_type(true, true, 30, "manager")]
#[case::read_type(false, true, 120, "manager")]
#[tokio::test(start_paused = true)]
async fn manager_fails_within_a_time_limit_if_a_type_is_not_installed(
    #[case] is_watched: bool,
    #[case] is_read: bool,
    #[case] seconds: u64,
    #[case] who: &str,
) {
    let cluster = TestCluster::start();
    let manager = Manager::new(cluster.client());
    if is_watched {
        let controller = manager.controller("maps").for_::<ConfigMap>().owns::<Widget>();
        let controller = controller.cache_sync_timeout(Duration::from_secs(30));
        controller.complete(done).expect("the controller is complete");
    }
    if is_read {
        manager.lister::<Widget>();
    }
    let why = format!(
        "{who}: timed out after {seconds}s waiting for caches to sync: /apis/example.com/v1/widgets \
         (the server could not find the requested resource (404 NotFound): is the type installed?)"
    );
    let end = ended(&cluster, &manager).await;
    assert_eq!(end, Some((Err(why), seconds)));
}

#[tokio::test(start_paused = true)]
async fn manager_without_list_permission_fails_within_a_time_limit() {
    let cluster = TestCluster::builder().rbac().start();
    let user = UserInfo::service_account("default", "operator");
    let manager = Manager::new(cluster.client_as("operator", user));
    let maps = manager.controller("maps").for_::<ConfigMap>();
    maps.complete(done).expect("the controller is complete");
    let why = "maps: controller \"maps\": timed out after 120s waiting for caches to sync: /api/v1/configmaps \
        (configmaps is forbidden: User \"system:serviceaccount:default:operator\" cannot list resource \"configmaps\" in \
        API group \"\" at the cluster scope (403 Forbidden))";
    let end = ended(&cluster, &manager).await;
    assert_eq!(end, Some((Err(why.to_owned()), 120)));
}

#[tokio::test(start_paused = true)]
async fn always_group_can_install_a_type_that_a_controller_needs() {
    let cluster = TestCluster::start();
    let (manager, client) = (Manager::new(cluster.client()), cluster.client());
    let worked: Arc<Mutex<Vec<String>>> = Arc::default();
    let names = Arc::clone(&worked);
    let widgets = as_reconciler(manager.lister(), move |widget: Arc<Widget>| {
        let name = widget.metadata.name.clone().unwrap_or_default();
        names.lock().expect("the lock is not poisoned").push(name);
        std::future::ready(Ok::<_, ReconcileError>(Action::await_change()))
    });
    let controller = manager.controller("widgets").for_::<Widget>();
    controller.complete(widgets).expect("the controller is complete");
    let installer = run_always("installer", |stop| async move {
        install(client).await;
        stop.cancelled().await;
        Ok(())
    });
    manager.add(installer).expect("the runnable is accepted");
    cluster.run(async move { manager.run(std::future::pending()).await });
    cluster.advance(Duration::from_secs(5)).await;
    cluster.create(object("example.com/v1", "Widget", "w")).await;
    cluster.advance(Duration::from_secs(60)).await;
    assert_eq!(*worked.lock().expect("the lock is not poisoned"), ["w"]);
}

/// A runnable with this group and this value of `reads_caches`.
struct Other(FnRunnable, RunnableGroup, bool);

impl Runnable for Other {
    fn name(&self) -> String {
        self.0.name()
    }

    fn group(&self) -> RunnableGroup {
        self.1
    }

    fn reads_caches(&self) -> bool {
        self.2
    }

    fn run(self: Box<Self>, stop: CancellationToken) -> BoxFuture<'static, Result<(), BoxError>> {
        Box::new(self.0).run(stop)
    }
}

#[tokio::test(start_paused = true)]
async fn failure_during_cache_sync_stops_the_manager() {
    let cluster = TestCluster::start();
    let manager = Manager::new(cluster.client());
    manager.lister::<Widget>();
    let fails = run_always("server", |_| async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        Err("the server failed".into())
    });
    manager
        .add(Other(fails, RunnableGroup::Server, false))
        .expect("the runnable is accepted");
    let end = ended(&cluster, &manager).await;
    assert_eq!(end, Some((Err("server: the server failed".to_owned()), 3)));
}

#[rstest]
#[case::leader(RunnableGroup::Leader, false, 20)]
#[case::always_group_with_reads(RunnableGroup::Always, true, 20)]
#[case::always(RunnableGroup::Always, false, 0)]
#[tokio::test(start_paused = true)]
async fn controller_that_reads_another_cache_starts_after_that_cache_has_synced(
    #[case] group: RunnableGroup,
    #[case] reads: bool,
    #[case] seconds: u64,
) {
    let cluster = TestCluster::start();
    cluster.create(config_map("m")).await;
    for verb in [Verb::List, Verb::Watch] {
        let slow = faults::delay(Duration::from_secs(20)).on(verb, "configmaps");
        cluster.inject(slow).forget();
    }
    let manager = Manager::new(cluster.client());
    let (maps, began) = (manager.lister::<ConfigMap>(), Instant::now());
    manager
        .controller("maps")
        .for_::<ConfigMap>()
        .complete(done)
        .expect("the controller is complete");
    let seen = Arc::new(Mutex::new(None));
    let told = Arc::clone(&seen);
    let reader = run_when_leader("reader", move |stop| async move {
        *told.lock().expect("the lock is not poisoned") = Some((maps.len(), began.elapsed().as_secs()));
        stop.cancelled().await;
        Ok(())
    });
    manager
        .add(Other(reader, group, reads))
        .expect("the runnable is accepted");
    cluster.run(async move { manager.run(std::future::pending()).await });
    cluster.advance(Duration::from_secs(100)).await;
    assert_eq!(
        *seen.lock().expect("the lock is not poisoned"),
        Some((usize::from(seconds > 0), seconds))
    );
}

#[tokio::test(start_paused = true)]
async fn all_runnables_wait_for_a_cache_without_a_controller() {
    let cluster = TestCluster::start();
    for verb in [Verb::List, Verb::Watch] {
        cluster
            .inject(faults::delay(Duration::from_secs(20)).on(verb, "secrets"))
            .forget();
    }
    let manager = Manager::new(cluster.client());
    let (secrets, began) = (manager.factory().informer::<Secret>(), Instant::now());
    let seen = Arc::new(Mutex::new(None));
    let told = Arc::clone(&seen);
    let reader = run_always("reader", move |_| async move {
        *told.lock().expect("the lock is not poisoned") = Some((secrets.has_synced(), began.elapsed().as_secs()));
        Ok(())
    });
    manager.add(reader).expect("the runnable is accepted");
    cluster.run(async move { manager.run(std::future::pending()).await });
    cluster.advance(Duration::from_secs(100)).await;
    assert_eq!(*seen.lock().expect("the lock is not poisoned"), Some((true, 20)));
}
