//! Read-your-writes in controllers of several clusters: a key waits until the caches of the written cluster have
//! received its writes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use informer::ObjectKey;
use informer::handler::enqueue;
use informer::reconcile::{Action, ReconcileError, Request, Writes};
use informer::runtime::{ClusterKey, Clusters, Manager};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use rstest::rstest;
use serde_json::json;
use testkit::TestCluster;
use testkit::explore::explore;
use testkit::objects::{config_map, secret};
use tokio::time::Instant;

/// Time during which a key must not be reconciled from a cache that lacks its writes. After this time, the key fails.
const PATIENCE: Duration = Duration::from_secs(150);

/// The last Secret that was created for each key, and the time of the response.
type Made = Arc<Mutex<BTreeMap<ClusterKey, (ObjectKey, Instant)>>>;

/// Keys that were reconciled from a cache that lacked their Secrets, which must not happen.
type Stale = Arc<Mutex<Vec<String>>>;

/// Returns a controller that creates a Secret with a generated name for each ConfigMap in each cluster, unless the
/// cache contains one. Adds keys to `stale` if they are reconciled from a cache that lacks their Secrets.
fn maker(home: Client, again: fn() -> Action, stale: &Stale) -> (Manager, Clusters) {
    let manager = Manager::new(home);
    let clusters = Clusters::new(&manager).expect("the manager has no other clusters");
    let (all, made, stale) = (clusters.clone(), Made::default(), Arc::clone(stale));
    let reconcile = move |request: Request<ClusterKey>| {
        let (all, made, stale) = (all.clone(), Arc::clone(&made), Arc::clone(&stale));
        async move {
            let Some(cluster) = all.get(&request.key.cluster) else {
                return Ok(Action::await_change());
            };
            let secrets = cluster.factory().informer::<Secret>();
            secrets.synced().await?;
            let last = made
                .lock()
                .expect("the lock is not poisoned")
                .get(&request.key)
                .cloned();
            if let Some((secret, at)) = last
                && at.elapsed() < PATIENCE
                && secrets.lister().get(&secret).is_none()
            {
                stale
                    .lock()
                    .expect("the lock is not poisoned")
                    .push(format!("{}: {secret}", request.key));
            }
            let prefix = format!("{}-", request.key.key.name());
            let is_there = |it: &informer::CachedObject<Secret>| it.key().name().starts_with(&prefix);
            if !secrets.lister().list().iter().any(is_there) {
                let mut secret = Secret::default();
                secret.metadata.generate_name = Some(prefix.clone());
                let api = Api::<Secret>::default_namespaced(cluster.client());
                let created = ObjectKey::of(&api.create(&PostParams::default(), &secret).await?);
                made.lock()
                    .expect("the lock is not poisoned")
                    .insert(request.key, (created, Instant::now()));
            }
            Ok::<_, ReconcileError>(again())
        }
    };
    let builder = clusters.controller("maker").for_::<ConfigMap>();
    builder
        .watches::<Secret>(enqueue::mapped(|it: &informer::CachedObject<Secret>| {
            let name = it.key().name().split('-').next().unwrap_or_default();
            [ObjectKey::new("default", name)]
        }))
        .complete(reconcile)
        .expect("the controller is complete");
    (manager, clusters)
}

fn run(home: &TestCluster, manager: Manager) {
    home.run(async move { manager.run(std::future::pending()).await });
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn key_waits_for_its_writes_in_the_caches_of_its_cluster(#[values(false, true)] runs: bool) {
    let (home, east) = (TestCluster::start(), TestCluster::start());
    let stale = Stale::default();
    let again = || Action::requeue(Duration::from_millis(100));
    let (manager, clusters) = maker(home.client(), again, &stale);
    if runs {
        run(&home, manager.clone());
        home.settle().await;
    }
    clusters
        .engage("east", east.client_named("east"))
        .expect("the cluster name is unused");
    if !runs {
        run(&home, manager);
    }
    east.settle().await;
    east.watches().client("east").on("secrets").hold();
    east.create(config_map("m")).await;
    east.advance(Duration::from_secs(10)).await;
    east.watches().client("east").on("secrets").resume();
    east.advance(Duration::from_secs(10)).await;
    assert_eq!(east.list::<Secret>().len(), 1, "the object was not created again");
    assert!(stale.lock().expect("the lock is not poisoned").is_empty());
}

/// For each ConfigMap, annotates the Secret `s` in the cluster `target` once per second. Counts the calls.
async fn annotate(clusters: &Clusters, target: &str, calls: &Mutex<u32>) -> Result<Action, ReconcileError> {
    let call = {
        let mut calls = calls.lock().expect("the lock is not poisoned");
        *calls += 1;
        calls.to_string()
    };
    if let Some(cluster) = clusters.get(target) {
        let patch = json!({"metadata": {"annotations": {"call": call}}});
        let api = Api::<Secret>::default_namespaced(cluster.client());
        api.patch("s", &PatchParams::default(), &Patch::Merge(patch)).await?;
    }
    Ok(Action::requeue(Duration::from_secs(1)))
}

/// Returns a cluster with the Secret `s`, which was created after this number of other Secrets.
async fn with_secret(versions: usize) -> TestCluster {
    let cluster = TestCluster::start();
    for number in 0..versions {
        cluster.create(secret(&format!("old-{number}"))).await;
    }
    cluster.create(secret("s")).await;
    cluster
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn writes_do_not_wait_for_caches_of_other_clusters(#[values(false, true)] is_observed: bool) {
    let (home, east, west) = (with_secret(0).await, with_secret(0).await, with_secret(100).await);
    let manager = Manager::new(home.client());
    let clusters = Clusters::new(&manager).expect("the manager has no other clusters");
    let calls: Arc<[Mutex<u32>; 2]> = Arc::default();
    // A controller of several clusters, and a controller of the manager's own cluster.
    let (all, count) = (clusters.clone(), Arc::clone(&calls));
    let of_clusters = move |request: Request<ClusterKey>| {
        let (all, count) = (all.clone(), Arc::clone(&count));
        async move {
            match &*request.key.cluster {
                "east" => annotate(&all, "west", &count[0]).await,
                _ => Ok(Action::await_change()),
            }
        }
    };
    let builder = clusters.controller("of-clusters").for_::<ConfigMap>().owns::<Secret>();
    builder.complete(of_clusters).expect("the controller is complete");
    let (all, count) = (clusters.clone(), Arc::clone(&calls));
    let at_home = move |_: Request| {
        let (all, count) = (all.clone(), Arc::clone(&count));
        async move { annotate(&all, "west", &count[1]).await }
    };
    let builder = manager.controller("at-home").for_::<ConfigMap>().owns::<Secret>();
    builder.complete(at_home).expect("the controller is complete");
    clusters
        .engage("east", east.client())
        .expect("the cluster name is unused");
    let client = match is_observed {
        true => Writes::new().observe(&west.client()),
        false => west.client(),
    };
    clusters.engage("west", client).expect("the cluster name is unused");
    run(&home, manager);
    for cluster in [&home, &east] {
        cluster.create(config_map("m")).await;
    }
    home.advance(Duration::from_millis(10_500)).await;
    for calls in &*calls {
        let calls = *calls.lock().expect("the lock is not poisoned");
        assert!(calls >= 10, "{calls} calls");
    }
}

#[tokio::test(start_paused = true)]
async fn key_does_not_wait_for_caches_of_disengaged_clusters() {
    let (home, east, new) = (TestCluster::start(), with_secret(100).await, with_secret(0).await);
    let manager = Manager::new(home.client());
    let clusters = Clusters::new(&manager).expect("the manager has no other clusters");
    let calls: Arc<Mutex<u32>> = Arc::default();
    let (all, count) = (clusters.clone(), Arc::clone(&calls));
    let reconcile = move |_: Request<ClusterKey>| {
        let (all, count) = (all.clone(), Arc::clone(&count));
        async move { annotate(&all, "east", &count).await }
    };
    let builder = clusters.controller("c").for_::<ConfigMap>().owns::<Secret>();
    builder.complete(reconcile).expect("the controller is complete");
    clusters
        .engage("east", east.client_named("east"))
        .expect("the cluster name is unused");
    run(&home, manager);
    east.settle().await;
    east.watches().client("east").on("secrets").hold();
    east.create(config_map("m")).await;
    east.advance(Duration::from_millis(10_500)).await;
    let before = *calls.lock().expect("the lock is not poisoned");
    assert_eq!(before, 1, "the key waits");
    clusters.disengage("east").await;
    clusters
        .engage("east", new.client())
        .expect("the cluster name is unused");
    east.advance(Duration::from_millis(10_500)).await;
    let after = *calls.lock().expect("the lock is not poisoned") - before;
    assert!(after >= 10, "{after} calls");
}

/// Explores faults in one of two clusters.
#[test]
fn faults_of_a_cluster_never_cause_a_reconcile_with_a_cache_that_lacks_its_writes() {
    let scenario = async |east: &TestCluster| {
        let (home, west) = (TestCluster::start(), TestCluster::start());
        let (at_home, in_west) = (home.client(), west.client());
        let stale = Stale::default();
        let found = Arc::clone(&stale);
        east.controller("maker", move |in_east| {
            let (manager, clusters) = maker(at_home.clone(), Action::await_change, &found);
            clusters.engage("east", in_east).expect("the cluster name is unused");
            clusters
                .engage("west", in_west.clone())
                .expect("the cluster name is unused");
            async move {
                manager
                    .run(std::future::pending())
                    .await
                    .expect("the manager stops without an error")
            }
        });
        for name in ["m", "n"] {
            for cluster in [east, &west] {
                cluster.create(config_map(name)).await;
            }
            east.settle().await;
            west.settle().await;
        }
        assert_eq!(*stale.lock().expect("the lock is not poisoned"), Vec::<String>::new());
        assert_eq!(west.list::<Secret>().len(), 2);
    };
    explore(scenario).schedules(200).run();
}
