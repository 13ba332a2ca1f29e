//! Fenced writes of a process that is no longer the leader, and metrics of requests.

use std::time::Duration;

use informer::Clock;
use informer::runtime::{Clusters, LeaderElectionConfig, LeaseLock, Manager};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::PostParams;
use testkit::objects::config_map;
use testkit::{TestCluster, Verb, faults};

fn map(name: &str) -> ConfigMap {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.into());
    map
}

#[tokio::test(start_paused = true)]
async fn writes_of_a_leader_that_lost_its_lease_are_refused_before_they_are_sent() {
    let cluster = TestCluster::builder().object(config_map("m")).start();
    let config = LeaderElectionConfig {
        clock: Clock::starting_at(cluster.server().now()),
        ..LeaderElectionConfig::new("a")
    };
    let lock = LeaseLock::new(cluster.client_named("a"), "default", "lock");
    let manager = Manager::builder(cluster.client_named("a")).leader_election(lock, config);
    let manager = manager.build().expect("the durations are consistent");
    let maps: Api<ConfigMap> = Api::default_namespaced(manager.client());
    maps.create(&PostParams::default(), &map("standby"))
        .await
        .expect("a standby may write");
    cluster.run({
        let manager = manager.clone();
        async move { manager.run(std::future::pending()).await }
    });
    cluster.advance(Duration::from_secs(5)).await;
    maps.create(&PostParams::default(), &map("leader"))
        .await
        .expect("the manager leads");
    let _fault = cluster.inject(faults::no_answer().on(Verb::Update, "leases"));
    cluster.advance(Duration::from_secs(20)).await;
    let sent = cluster.requests().client("a").writes().count();
    let err = maps
        .create(&PostParams::default(), &map("lost"))
        .await
        .expect_err("the manager has lost its Lease");
    let err = format!("{err:?}");
    assert!(
        err.contains("\"a\" is no longer the leader according to the lease default/lock"),
        "{err}"
    );
    assert_eq!(cluster.requests().client("a").writes().count(), sent);
    assert!(maps.get_opt("m").await.expect("reads are not fenced").is_some());
    assert!(cluster.exists::<Lease>("lock"));
}

#[tokio::test(start_paused = true)]
async fn writes_to_other_clusters_are_refused_after_the_lease_is_lost() {
    let (home, east) = (TestCluster::start(), TestCluster::start());
    let config = LeaderElectionConfig {
        clock: Clock::starting_at(home.server().now()),
        ..LeaderElectionConfig::new("a")
    };
    let lock = LeaseLock::new(home.client_named("a"), "default", "lock");
    let manager = Manager::builder(home.client_named("a")).leader_election(lock, config);
    let manager = manager.build().expect("the durations are consistent");
    let clusters = Clusters::new(&manager).expect("the manager has no other clusters");
    let cluster = clusters.engage("east", east.client_named("a"));
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.expect("the name is unused").client());
    home.run(async move { manager.run(std::future::pending()).await });
    home.advance(Duration::from_secs(5)).await;
    maps.create(&PostParams::default(), &map("leader"))
        .await
        .expect("the manager leads");
    let _fault = home.inject(faults::no_answer().on(Verb::Update, "leases"));
    home.advance(Duration::from_secs(20)).await;
    let err = maps
        .create(&PostParams::default(), &map("lost"))
        .await
        .expect_err("the manager has lost its Lease");
    let err = format!("{err:?}");
    assert!(err.contains("\"a\" is no longer the leader"), "{err}");
    assert!(!east.exists::<ConfigMap>("lost"));
}

#[tokio::test(start_paused = true)]
async fn requests_of_a_manager_are_counted_by_code_and_method() {
    let cluster = TestCluster::start();
    let manager = Manager::new(cluster.client_named("a"));
    let maps: Api<ConfigMap> = Api::default_namespaced(manager.client());
    assert!(maps.get_opt("x").await.expect("the server answers").is_none());
    maps.create(&PostParams::default(), &map("m"))
        .await
        .expect("the object does not exist yet");
    let fault = cluster.inject(faults::refused().client("a"));
    maps.get("m").await.expect_err("nothing listens on the address");
    drop(fault);
    let text = manager.metrics().render();
    for line in [
        "rest_client_requests_total{code=\"404\",method=\"GET\"} 1",
        "rest_client_requests_total{code=\"201\",method=\"POST\"} 1",
        "rest_client_requests_total{code=\"<error>\",method=\"GET\"} 1",
        "rest_client_request_duration_seconds_count{verb=\"GET\"} 2",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
}
