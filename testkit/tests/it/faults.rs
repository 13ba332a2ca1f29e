//! Faults only affect the requests that they select.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{ListParams, PostParams, WatchParams};
use kube::{Api, Client};
use rstest::rstest;
use testkit::objects::config_map;
use testkit::{FaultBuilder, TestCluster, Verb, cluster, faults};
use tokio::time::Instant;

use crate::support::failure_of;

fn maps(client: Client) -> Api<ConfigMap> {
    Api::namespaced(client, "shop")
}

fn code<T>(result: Result<T, kube::Error>) -> u16 {
    match result {
        Ok(_) => 200,
        Err(kube::Error::Api(status)) => status.code,
        Err(err) => panic!("{err}"),
    }
}

#[rstest]
#[case(faults::conflict(), 409, "Conflict")]
#[case(faults::gone(), 410, "Expired")]
#[case(faults::not_found(), 404, "NotFound")]
#[case(faults::too_many_requests(1), 429, "TooManyRequests")]
#[case(faults::server_error(), 500, "InternalError")]
#[case(faults::timeout(), 504, "Timeout")]
#[case(faults::status(403, "Forbidden"), 403, "Forbidden")]
#[tokio::test(start_paused = true)]
async fn fault_returns_its_status(
    cluster: TestCluster,
    #[case] fault: FaultBuilder,
    #[case] code: u16,
    #[case] reason: &str,
) {
    cluster.create(config_map("a").namespace("shop")).await;
    cluster.inject(fault.on(Verb::Get, "configmaps")).forget();
    let result = maps(cluster.client()).get("a").await;
    let Err(kube::Error::Api(status)) = result else {
        panic!("{result:?}")
    };
    assert_eq!((status.code, status.reason.as_str()), (code, reason));
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn fault_ends_when_its_guard_is_dropped(cluster: TestCluster) {
    let pods = Api::<Pod>::all(cluster.client());
    let fault = cluster.inject(faults::server_error());
    assert_eq!(code(pods.list(&ListParams::default()).await), 500);
    drop(fault);
    assert_eq!(code(pods.list(&ListParams::default()).await), 200);
}

#[rstest]
#[case::every_request(faults::conflict(), [409, 409, 409, 409])]
#[case::first_request(faults::conflict().once(), [409, 200, 200, 200])]
#[case::first_two_requests(faults::conflict().times(2), [409, 409, 200, 200])]
#[case::third_request(faults::conflict().nth(3), [200, 200, 409, 200])]
#[tokio::test(start_paused = true)]
async fn fault_counts_its_hits(cluster: TestCluster, #[case] fault: FaultBuilder, #[case] expected: [u16; 4]) {
    let fault = cluster.inject(fault.on(Verb::List, "pods"));
    let pods = Api::<Pod>::all(cluster.client());
    let mut codes = Vec::new();
    for _ in 0..4 {
        codes.push(code(pods.list(&ListParams::default()).await));
    }
    assert_eq!(codes, expected);
    assert_eq!(fault.hits() as usize, expected.iter().filter(|it| **it == 409).count());
}

#[rstest]
#[case::another_verb(faults::conflict().on(Verb::Update, "configmaps"), 200)]
#[case::this_verb(faults::conflict().on(Verb::Get, "configmaps"), 409)]
#[case::another_resource(faults::conflict().on(Verb::Get, "secrets"), 200)]
#[case::another_group(faults::conflict().on(Verb::Get, "deployments.apps"), 200)]
#[case::subresource(faults::conflict().on(Verb::Get, "pods/status"), 200)]
#[case::another_namespace(faults::conflict().namespace("default"), 200)]
#[case::this_namespace(faults::conflict().namespace("shop"), 409)]
#[case::another_name(faults::conflict().name("b"), 200)]
#[case::this_name(faults::conflict().name("a"), 409)]
#[case::another_client(faults::conflict().client("other"), 200)]
#[case::this_client(faults::conflict().client("operator"), 409)]
#[case::only_writes(faults::conflict().on_writes("configmaps"), 200)]
#[tokio::test(start_paused = true)]
async fn fault_filters_requests(cluster: TestCluster, #[case] fault: FaultBuilder, #[case] expected: u16) {
    cluster.create(config_map("a").namespace("shop")).await;
    cluster.inject(fault).forget();
    assert_eq!(code(maps(cluster.client_named("operator")).get("a").await), expected);
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn faults_do_not_affect_the_test_itself(cluster: TestCluster) {
    let fault = cluster.inject(faults::server_error());
    cluster.create(config_map("a").namespace("shop").data("k", "v")).await;
    cluster.delete(config_map("a").namespace("shop")).await;
    assert_eq!(fault.hits(), 0);
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn failed_requests_are_not_executed(cluster: TestCluster) {
    let namespace = cluster.create(testkit::objects::namespace("shop")).await;
    cluster.inject(faults::timeout().on_writes("configmaps")).forget();
    let mut map = ConfigMap::default();
    map.metadata.name = Some("a".into());
    assert_eq!(
        code(maps(cluster.client()).create(&PostParams::default(), &map).await),
        504
    );
    assert!(cluster.gone(config_map("a").namespace(namespace.name())));
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn but_applied_executes_the_request(cluster: TestCluster) {
    cluster.create(testkit::objects::namespace("shop")).await;
    cluster
        .inject(faults::timeout().but_applied().on_writes("configmaps").once())
        .forget();
    let mut map = ConfigMap::default();
    map.metadata.name = Some("a".into());
    let maps = maps(cluster.client());
    assert_eq!(code(maps.create(&PostParams::default(), &map).await), 504);
    assert!(cluster.exists(config_map("a").namespace("shop")));
    assert_eq!(code(maps.create(&PostParams::default(), &map).await), 409);
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn delay_uses_virtual_time(cluster: TestCluster) {
    cluster
        .inject(faults::delay(Duration::from_secs(30)).on(Verb::List, "pods"))
        .forget();
    let began = Instant::now();
    assert_eq!(
        code(Api::<Pod>::all(cluster.client()).list(&ListParams::default()).await),
        200
    );
    assert_eq!(began.elapsed(), Duration::from_secs(30));
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn watches_are_filtered_by_resource_namespace_and_client(cluster: TestCluster) {
    let watch = WatchParams::default();
    let pods = Api::<Pod>::all(cluster.client_named("a"));
    let _pods = pods.watch(&watch, "0").await.expect("the watch opens");
    let maps = maps(cluster.client_named("b"));
    let _maps = maps.watch(&watch, "0").await.expect("the watch opens");

    assert_eq!(cluster.watches().count(), 2);
    assert_eq!(cluster.watches().on("pods").count(), 1);
    assert_eq!(cluster.watches().namespace("shop").on("configmaps").count(), 1);
    assert_eq!(cluster.watches().client("a").on("configmaps").count(), 0);
}

#[rstest]
#[case::singular("pod", Verb::Get, "the resource pod is not served; did you mean pods?")]
#[case::kind(
    "ConfigMap",
    Verb::Get,
    "the resource ConfigMap is not served; did you mean configmaps?"
)]
#[case::short_name("svc", Verb::Get, "the resource svc is not served; did you mean services?")]
#[case::typo(
    "deploymnets",
    Verb::Get,
    "the resource deploymnets is not served; did you mean deployments.apps?"
)]
#[case::another_group(
    "deployments.extensions",
    Verb::Get,
    "the resource deployments.extensions is not served; did you mean deployments.apps?"
)]
#[case::subresource(
    "configmaps/status",
    Verb::Get,
    "configmaps does not have the subresource status; it has none"
)]
#[case::verb(
    "pods/status",
    Verb::Create,
    "pods/status does not support create; it supports get, patch, update"
)]
#[tokio::test(start_paused = true)]
async fn error_for_a_fault_on_an_unserved_resource_contains_its_name(
    cluster: TestCluster,
    #[case] resource: &str,
    #[case] verb: Verb,
    #[case] why: &str,
) {
    let message = failure_of(|| cluster.inject(faults::conflict().on(verb, resource)).forget());
    assert!(message.ends_with(why), "{message}");
    let message = failure_of(|| cluster.requests().on(verb, resource).count());
    assert!(message.ends_with(why), "{message}");
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn error_for_watches_on_an_unserved_resource_contains_its_name(cluster: TestCluster) {
    let message = failure_of(|| cluster.watches().on("pod").count());
    assert!(
        message.ends_with("the resource pod is not served; did you mean pods?"),
        "{message}"
    );
}

/// The controller may install the definition; if it never does, the test fails at its end.
#[rstest]
#[tokio::test(start_paused = true)]
async fn fault_on_a_resource_that_is_never_served_fails_the_test() {
    let cluster = TestCluster::start();
    cluster
        .inject(faults::conflict().on(Verb::Update, "widgets.example.com"))
        .forget();
    let message = failure_of(|| drop(cluster));
    assert!(
        message.contains("the resource widgets.example.com is not served")
            && message.contains("the fault never took effect"),
        "{message}"
    );
}
