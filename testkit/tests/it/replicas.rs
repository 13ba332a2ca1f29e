//! Reads of a client with a lagging API server have the permitted staleness.

use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{GetParams, ListParams, VersionMatch, WatchEvent, WatchParams};
use kube::{Api, ResourceExt};
use rstest::rstest;
use testkit::objects::config_map;
use testkit::{TestCluster, cluster};

/// Creates three ConfigMaps; the operator's replica only contains the first.
async fn behind(cluster: &TestCluster) -> (Api<ConfigMap>, u64) {
    cluster.create(config_map("a")).await;
    cluster.server().replica("operator").freeze();
    cluster.create(config_map("b")).await;
    cluster.create(config_map("c")).await;
    let seen = cluster.server().replica("operator").sees();
    (Api::default_namespaced(cluster.client_named("operator")), seen)
}

fn names(maps: Vec<ConfigMap>) -> String {
    maps.iter().map(ResourceExt::name_any).collect::<Vec<_>>().join(" ")
}

/// Returns the names in a list, or the code of the error.
fn learned(list: kube::Result<kube::api::ObjectList<ConfigMap>>) -> String {
    match list {
        Ok(list) => names(list.items),
        Err(kube::Error::Api(status)) => status.code.to_string(),
        Err(err) => panic!("{err}"),
    }
}

#[rstest]
#[case::newest_version(|_, _| ListParams::default(), "a b c")]
#[case::any_version(|_, _| ListParams::default().match_any(), "a")]
#[case::not_older_than_a_version_of_the_replica(|seen, _| not_older_than(seen), "a")]
#[case::not_older_than_the_newest_version(|_, newest| not_older_than(newest), "504")]
#[case::exact_version(|_, newest: u64| ListParams::default().at(&newest.to_string()).matching(VersionMatch::Exact),
    "a b c")]
#[case::paginated_list(|_, _| ListParams::default().limit(2), "a b")]
#[tokio::test(start_paused = true)]
async fn list_from_a_lagging_replica_depends_on_the_requested_version(
    cluster: TestCluster,
    #[case] params: fn(u64, u64) -> ListParams,
    #[case] expected: &str,
) {
    let (maps, seen) = behind(&cluster).await;
    let params = params(seen, cluster.server().resource_version());
    assert_eq!(learned(maps.list(&params).await), expected);
}

fn not_older_than(revision: u64) -> ListParams {
    ListParams::default()
        .at(&revision.to_string())
        .matching(VersionMatch::NotOlderThan)
}

#[rstest]
#[case::newest_version(GetParams::default(), true)]
#[case::any_version(GetParams::any(), false)]
#[tokio::test(start_paused = true)]
async fn get_from_a_lagging_replica_depends_on_the_requested_version(
    cluster: TestCluster,
    #[case] params: GetParams,
    #[case] is_found: bool,
) {
    let (maps, _) = behind(&cluster).await;
    assert_eq!(maps.get_with("b", &params).await.is_ok(), is_found);
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn list_waits_for_a_replica_that_catches_up(cluster: TestCluster) {
    let (maps, _) = behind(&cluster).await;
    let params = not_older_than(cluster.server().resource_version());
    let list = maps.list(&params);
    let catch_up = async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        cluster.server().replica("operator").catch_up();
    };
    let (list, ()) = futures::join!(list, catch_up);
    assert_eq!(learned(list), "a b c");
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn watch_delivers_changes_when_the_replica_receives_them(cluster: TestCluster) {
    let (maps, _) = behind(&cluster).await;
    let mut events = maps
        .watch(&WatchParams::default(), "0")
        .await
        .expect("the watch opens")
        .boxed();
    let mut told = async || {
        let mut names = Vec::new();
        while let Ok(Some(Ok(WatchEvent::Added(map)))) =
            tokio::time::timeout(Duration::from_secs(1), events.next()).await
        {
            names.push(map.name_any());
        }
        names.join(" ")
    };
    assert_eq!(told().await, "a");
    cluster.server().replica("operator").advance(1);
    assert_eq!(told().await, "b");
    cluster.server().replica("operator").catch_up();
    assert_eq!(told().await, "c");
    cluster.server().replica("operator").lag(1);
    cluster.create(config_map("d")).await;
    assert_eq!(told().await, "");
    cluster.create(config_map("e").namespace("default")).await;
    assert_eq!(told().await, "d");
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn streaming_list_without_a_version_times_out_on_a_lagging_replica(cluster: TestCluster) {
    let (maps, _) = behind(&cluster).await;
    let params = WatchParams::default().initial_events();
    let mut events = maps.watch(&params, "").await.expect("the watch opens").boxed();
    let next = tokio::time::timeout(Duration::from_secs(5), events.next()).await;
    let Ok(Some(Ok(WatchEvent::Error(status)))) = next else {
        panic!("{next:?}")
    };
    assert_eq!(status.code, 504);
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn writes_apply_to_the_newest_state(cluster: TestCluster) {
    let (maps, _) = behind(&cluster).await;
    let stale = maps
        .get_with("a", &GetParams::any())
        .await
        .expect("the object is visible");
    cluster
        .patch(config_map("a"), serde_json::json!({"data": {"k": "v"}}))
        .await;
    let replaced = maps.replace("a", &Default::default(), &stale).await;
    assert!(matches!(replaced, Err(kube::Error::Api(status)) if status.code == 409));
}

#[rstest]
#[case::ahead(5_000, "2026-01-01T00:00:05.000000Z")]
#[case::behind(-5_000, "2025-12-31T23:59:55.000000Z")]
#[tokio::test(start_paused = true)]
async fn skewed_clock_moves_the_times_of_leases(
    cluster: TestCluster,
    #[case] ahead_ms: i64,
    #[case] seen_by_others: &str,
) {
    const TIME: &str = "2026-01-01T00:00:00.000000Z";
    fn renewed(lease: &Lease) -> String {
        let value = serde_json::to_value(lease).expect("a Lease can be serialized");
        value["spec"]["renewTime"].as_str().unwrap_or_default().to_owned()
    }
    cluster.skew_clock("operator", ahead_ms);
    let theirs: Api<Lease> = Api::default_namespaced(cluster.client_named("operator"));
    let others: Api<Lease> = Api::default_namespaced(cluster.client_named("other"));
    let lease = serde_json::json!({"metadata": {"name": "leader"}, "spec": {"renewTime": TIME}});
    let lease: Lease = serde_json::from_value(lease).expect("the object is a Lease");
    let created = theirs
        .create(&Default::default(), &lease)
        .await
        .expect("the object is created");
    assert_eq!(renewed(&created), TIME, "the client reads the time that it wrote");
    assert_eq!(
        renewed(&others.get("leader").await.expect("the object exists")),
        seen_by_others
    );
    let mut events = theirs
        .watch(&WatchParams::default(), "0")
        .await
        .expect("the watch opens")
        .boxed();
    let Some(Ok(WatchEvent::Added(told))) = events.next().await else {
        panic!("the watch does not deliver the Lease");
    };
    assert_eq!(renewed(&told), TIME);
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn other_clients_read_the_newest_state(cluster: TestCluster) {
    behind(&cluster).await;
    let others: Api<ConfigMap> = Api::default_namespaced(cluster.client_named("dashboard"));
    assert_eq!(learned(others.list(&ListParams::default().match_any()).await), "a b c");
}
