//! Several clusters under one manager.

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use informer::ObjectKey;
use informer::cache::{ByObject, IndexFn, SharedInformerFactory};
use informer::reconcile::{Action, ReconcileError, Request};
use informer::runtime::{ClusterKey, Clusters, Manager, run_when_leader};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Client;
use rstest::rstest;
use testkit::explore::explore;
use testkit::objects::{config_map, secret};
use testkit::{TestCluster, Verb, faults};
use tokio_util::sync::CancellationToken;

type Calls = Arc<Mutex<Vec<String>>>;

/// Returns a manager with a controller that copies the name of each ConfigMap into a Secret in the same cluster.
fn copier(home: &TestCluster) -> (Clusters, Calls) {
    let (manager, clusters, calls) = copier_with(home.client());
    home.run(async move { manager.run(std::future::pending()).await });
    (clusters, calls)
}

fn copier_with(home: Client) -> (Manager, Clusters, Calls) {
    let manager = Manager::new(home);
    let clusters = Clusters::new(&manager).expect("the manager has no other clusters");
    let (all, calls) = (clusters.clone(), Calls::default());
    let noted = Arc::clone(&calls);
    let reconcile = move |request: Request<ClusterKey>| {
        let all = all.clone();
        noted
            .lock()
            .expect("the lock is not poisoned")
            .push(request.key.to_string());
        async move {
            let Some(cluster) = all.get(&request.key.cluster) else {
                return Ok(Action::await_change());
            };
            let (client, key) = (cluster.cached_client(), &request.key.key);
            if client.get::<ConfigMap>(key).await?.is_some() && client.get::<Secret>(key).await?.is_none() {
                let mut copy = Secret::default();
                copy.metadata.name = Some(key.name().into());
                copy.metadata.namespace = key.namespace().map(str::to_owned);
                client.create(&copy).await?;
            }
            Ok::<_, ReconcileError>(Action::await_change())
        }
    };
    let builder = clusters.controller("copier").for_::<ConfigMap>().owns::<Secret>();
    builder
        .with(|it| it.concurrency(2))
        .complete(reconcile)
        .expect("the controller is complete");
    (manager, clusters, calls)
}

fn take(calls: &Calls) -> Vec<String> {
    std::mem::take(&mut *calls.lock().expect("the lock is not poisoned"))
}

#[tokio::test(start_paused = true)]
async fn key_is_reconciled_in_its_own_cluster() {
    let (home, east, west) = (TestCluster::start(), TestCluster::start(), TestCluster::start());
    let (clusters, calls) = copier(&home);
    clusters
        .engage("east", east.client())
        .expect("the cluster name is unused");
    east.create(config_map("m")).await;
    home.settle().await;
    east.settle().await;
    assert!(east.exists::<Secret>("m") && !west.exists::<Secret>("m"));
    assert_eq!(take(&calls), ["east/default/m"]);

    clusters
        .engage("west", west.client())
        .expect("the cluster name is unused");
    let owner = west.create(config_map("m")).await;
    west.settle().await;
    assert!(west.exists::<Secret>("m"));
    take(&calls);
    west.create(secret("owned").owned_by(&owner)).await;
    west.settle().await;
    assert_eq!(take(&calls), ["west/default/m"]);
    let names: Vec<_> = clusters.names().iter().map(ToString::to_string).collect();
    assert_eq!(names, ["east", "west"]);
    let err = clusters
        .engage("west", west.client())
        .expect_err("the cluster name is already in use");
    assert_eq!(err.to_string(), "cluster \"west\" is already engaged");
}

#[tokio::test(start_paused = true)]
async fn disengaged_cluster_receives_no_more_requests() {
    let (home, east) = (TestCluster::start(), TestCluster::start());
    let (clusters, calls) = copier(&home);
    clusters
        .engage("east", east.client())
        .expect("the cluster name is unused");
    home.settle().await;
    clusters.disengage("east").await;
    assert!(clusters.get("east").is_none());
    let asked = east.requests().count();
    east.create(config_map("m")).await;
    east.settle().await;
    assert!(take(&calls).is_empty());
    assert_eq!(east.requests().count(), asked);
    clusters
        .engage("east", east.client())
        .expect("the cluster name is unused");
    east.settle().await;
    assert!(east.exists::<Secret>("m"));
}

#[tokio::test(start_paused = true)]
async fn unreachable_cluster_does_not_delay_other_clusters() {
    let (home, east, west) = (TestCluster::start(), TestCluster::start(), TestCluster::start());
    let _fault = east.inject(faults::refused().client("down"));
    let (clusters, _) = copier(&home);
    clusters
        .engage("east", east.client_named("down"))
        .expect("the cluster name is unused");
    clusters
        .engage("west", west.client())
        .expect("the cluster name is unused");
    west.create(config_map("m")).await;
    west.settle().await;
    assert!(west.exists::<Secret>("m"));
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn keys_of_a_cluster_wait_until_all_its_caches_have_synced(#[values(false, true)] runs_already: bool) {
    let (home, east, west) = (TestCluster::start(), TestCluster::start(), TestCluster::start());
    let refused = [Verb::List, Verb::Watch].map(|verb| east.inject(faults::unavailable().on(verb, "secrets")));
    east.create(config_map("m")).await;
    west.create(config_map("m")).await;
    let (manager, clusters, calls) = copier_with(home.client());
    let run = async move { manager.run(std::future::pending()).await };
    if runs_already {
        home.run(run);
        clusters
            .engage("east", east.client())
            .expect("the cluster name is unused");
        clusters
            .engage("west", west.client())
            .expect("the cluster name is unused");
    } else {
        clusters
            .engage("east", east.client())
            .expect("the cluster name is unused");
        clusters
            .engage("west", west.client())
            .expect("the cluster name is unused");
        home.run(run);
    }
    west.settle().await;
    east.advance(Duration::from_secs(5)).await;
    assert_eq!(
        take(&calls),
        ["west/default/m"],
        "keys wait until the cache of Secrets has synced"
    );
    drop(refused);
    east.advance(Duration::from_secs(120)).await;
    assert_eq!(take(&calls), ["east/default/m"]);
    assert!(east.exists::<Secret>("m"));
}

#[tokio::test(start_paused = true)]
async fn invalid_multi_cluster_controller_is_refused() {
    let home = TestCluster::start();
    let manager = Manager::new(home.client());
    let clusters = Clusters::new(&manager).expect("the manager has no other clusters");
    let nothing = |_: Request<ClusterKey>| async { Ok::<_, ReconcileError>(Action::await_change()) };
    let faults = [
        clusters.controller("a").complete(nothing),
        clusters
            .controller("b")
            .for_::<ConfigMap>()
            .for_::<Secret>()
            .complete(nothing),
        clusters.controller("c").owns::<Secret>().complete(nothing),
    ];
    let faults = faults.map(|it| it.expect_err("the configuration is invalid").to_string());
    assert!(faults[0].contains("nothing to watch"), "{}", faults[0]);
    assert!(faults[1].contains("`for_` was called twice"), "{}", faults[1]);
    assert!(
        faults[2].contains("`for_` must be called before `owns` for Secret"),
        "{}",
        faults[2]
    );
    assert!(
        Clusters::new(&manager).is_err(),
        "a manager can only have one set of clusters"
    );
}

/// Explores faults in one of several clusters.
#[test]
fn faults_of_a_cluster_never_lose_a_key_or_affect_another_cluster() {
    let scenario = async |east: &TestCluster| {
        let (home, west) = (TestCluster::start(), TestCluster::start());
        let (at_home, in_west) = (home.client(), west.client());
        east.controller("copier", move |in_east| {
            let (manager, clusters, _) = copier_with(at_home.clone());
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
        for cluster in [east, &west] {
            cluster.create(config_map("m")).await;
        }
        east.settle().await;
        west.settle().await;
        assert!(west.exists::<Secret>("m") && !home.exists::<Secret>("m"));
        for cluster in [east, &west] {
            cluster.create(config_map("n")).await;
        }
        east.settle().await;
        west.settle().await;
        assert!(west.exists::<Secret>("n"));
    };
    explore(scenario).schedules(200).run();
}

/// Returns a factory, and a reference to a value that its caches keep alive.
fn observed(cluster: &TestCluster) -> (SharedInformerFactory, Weak<()>) {
    let kept = Arc::new(());
    let weak = Arc::downgrade(&kept);
    let index = IndexFn::<ConfigMap>::new("kept", move |_| {
        let _kept = &kept;
        Vec::new()
    });
    let options = ByObject::new().informer(move |builder| builder.index(index.clone()));
    let factory = SharedInformerFactory::builder(cluster.client()).by_object::<ConfigMap>(options);
    (factory.expect("the type has no other options").build(), weak)
}

#[tokio::test(start_paused = true)]
async fn caches_of_a_disengaged_cluster_are_dropped() {
    let (home, east) = (TestCluster::start(), TestCluster::start());
    east.create(config_map("m")).await;
    let (clusters, _calls) = copier(&home);
    home.settle().await;
    let (factory, kept) = observed(&east);
    clusters
        .engage_with("east", east.client(), factory)
        .expect("the cluster name is unused");
    home.settle().await;
    assert!(kept.upgrade().is_some());
    clusters.disengage("east").await;
    home.settle().await;
    assert!(
        kept.upgrade().is_none(),
        "the caches of the cluster are still in memory"
    );
}

#[tokio::test(start_paused = true)]
async fn cluster_that_cannot_be_watched_is_not_engaged() {
    let (home, east) = (TestCluster::start(), TestCluster::start());
    let (clusters, _calls) = copier(&home);
    home.settle().await;
    let factory = SharedInformerFactory::new(east.client());
    factory.informer::<ConfigMap>();
    factory.start();
    factory.shutdown().await;
    let engaged = clusters.engage_with("east", east.client(), factory);
    engaged.expect_err("the informers of the factory have stopped");
    assert!(clusters.get("east").is_none());
    east.create(config_map("m")).await;
    clusters
        .engage("east", east.client())
        .expect("the cluster name is unused");
    home.settle().await;
    assert!(east.exists::<Secret>("m"));
}

#[tokio::test(start_paused = true)]
async fn caches_of_a_cluster_stop_after_the_runnables_of_the_leader() {
    let (home, east) = (TestCluster::start(), TestCluster::start());
    let manager = Manager::new(home.client());
    let clusters = Clusters::new(&manager).expect("the clusters of the manager are created once");
    let cluster = clusters
        .engage("east", east.client())
        .expect("the cluster name is unused");
    cluster.factory().informer::<ConfigMap>();
    let (read, maps) = (Arc::new(Mutex::new(None)), cluster.cached_client());
    let noted = Arc::clone(&read);
    let mut named = ConfigMap::default();
    named.metadata.name = Some("m".to_owned());
    named.metadata.namespace = Some("default".to_owned());
    let leader = run_when_leader("writes", move |stop| async move {
        stop.cancelled().await;
        let map = maps.create(&named).await?;
        let map = maps.get::<ConfigMap>(&ObjectKey::of(&map)).await?;
        *noted.lock().expect("the lock is not poisoned") = Some(map.is_some());
        Ok(())
    });
    manager.add(leader).expect("the runnable is accepted");
    let stop = CancellationToken::new();
    let (stopped, runs) = (stop.clone(), manager.clone());
    let running = home.run(async move { runs.run(stopped.cancelled_owned()).await.expect("no runnable fails") });
    home.settle().await;
    stop.cancel();
    home.advance(Duration::from_secs(5)).await;
    assert!(!running.is_running());
    assert_eq!(*read.lock().expect("the lock is not poisoned"), Some(true));
    assert!(cluster.factory().informer::<ConfigMap>().is_stopped());
}
