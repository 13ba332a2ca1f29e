//! APIs that are turned off, and revisions that are forgotten because of their age.

use std::time::Duration;

use fake_apiserver::ApiServer;
use rstest::rstest;
use serde_json::Value;

use crate::ask::{CONFIG_MAPS, config_map, get, send};

#[rstest]
#[case::a_version(&["apps/v1=false"], "/apis/apps/v1/deployments", 404)]
#[case::and_its_discovery(&["apps/v1=false"], "/apis/apps/v1", 404)]
#[case::a_resource(&["batch/v1/cronjobs=false"], "/apis/batch/v1/cronjobs", 404)]
#[case::another_of_the_version(&["batch/v1/cronjobs=false"], "/apis/batch/v1/jobs", 200)]
#[case::all_but_one(&["api/all=false", "apps/v1=true"], "/apis/apps/v1/deployments", 200)]
#[case::all_but_another(&["api/all=false", "apps/v1=true"], "/apis/batch/v1/jobs", 404)]
#[case::the_core_stays(&["api/ga=false"], CONFIG_MAPS, 200)]
#[case::a_resource_of_a_version_that_is_off(&["batch/v1=false", "batch/v1/jobs=true"], "/apis/batch/v1/jobs", 200)]
#[case::what_is_on_already(&["api/ga=true", "api/beta=false", "apps/v1"], "/apis/apps/v1/deployments", 200)]
#[tokio::test(start_paused = true)]
async fn apis_are_turned_off_by_version_and_resource(#[case] pairs: &[&str], #[case] path: &str, #[case] code: u16) {
    let builder = ApiServer::builder().runtime_config(pairs).expect("the pairs are right");
    assert_eq!(get(&builder.start(), path).await.0, code);
}

#[rstest]
#[case::nothing_else("api/all=false", "invalid runtime-config with only api/all=false")]
#[case::no_truth("api/all=maybe", "invalid value api/all=maybe")]
#[case::beta("api/beta=true", "api/beta=true: alpha and beta APIs are not served here")]
#[case::a_beta_version(
    "networking.k8s.io/v1beta1=true",
    "networking.k8s.io/v1beta1 is not served here, and cannot be turned on"
)]
#[case::an_unknown_group("nothing.io/v1=true", "unknown api groups nothing.io/v1")]
#[case::the_core("api/v1=false", "unknown api groups api/v1")]
#[case::the_core_by_its_version("v1=false", "v1: the core group cannot be turned off here")]
#[case::no_plural(
    "apps/v1/Deployments=false",
    "invalid key apps/v1/Deployments: group/version/resource and resource is always lowercase plural, not \"Deployments\""
)]
fn what_cannot_be_is_refused_by_name(#[case] pair: &str, #[case] why: &str) {
    let refused = ApiServer::builder().runtime_config([pair]).map(drop);
    assert_eq!(refused, Err(why.to_owned()));
}

#[rstest]
#[case::in_the_interval_after(9 * 60, 200)]
#[case::two_intervals_later(10 * 60, 410)]
#[tokio::test(start_paused = true)]
async fn continue_tokens_and_exact_lists_expire_with_time(#[case] seconds: u64, #[case] code: u16) {
    let server = ApiServer::start();
    for name in ["a", "b"] {
        send(&server, "POST", CONFIG_MAPS, config_map(name)).await;
    }
    let (_, page) = get(&server, &format!("{CONFIG_MAPS}?limit=1")).await;
    let page: Value = serde_json::from_str(&page).expect("it is JSON");
    let token = page["metadata"]["continue"].as_str().expect("there is a rest");
    let version = page["metadata"]["resourceVersion"]
        .as_str()
        .expect("a list has a version");
    send(&server, "POST", CONFIG_MAPS, config_map("c")).await;
    tokio::time::advance(Duration::from_secs(seconds)).await;
    send(&server, "POST", CONFIG_MAPS, config_map("d")).await;
    assert_eq!(
        get(&server, &format!("{CONFIG_MAPS}?limit=1&continue={token}")).await.0,
        code
    );
    let exact = format!("{CONFIG_MAPS}?resourceVersion={version}&resourceVersionMatch=Exact");
    assert_eq!(get(&server, &exact).await.0, code);
    let now = server.resource_version();
    let exact = format!("{CONFIG_MAPS}?resourceVersion={now}&resourceVersionMatch=Exact");
    assert_eq!(get(&server, &exact).await.0, 200, "the present is not forgotten");
}

#[tokio::test(start_paused = true)]
async fn nothing_expires_with_time_without_an_interval() {
    let server = ApiServer::builder().compaction_interval(None).start();
    let version = server.resource_version();
    send(&server, "POST", CONFIG_MAPS, config_map("a")).await;
    tokio::time::advance(Duration::from_secs(24 * 3600)).await;
    send(&server, "POST", CONFIG_MAPS, config_map("b")).await;
    let exact = format!("{CONFIG_MAPS}?resourceVersion={version}&resourceVersionMatch=Exact");
    assert_eq!(get(&server, &exact).await.0, 200);
}
