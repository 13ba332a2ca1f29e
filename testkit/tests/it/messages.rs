//! Messages of failing tests.

use std::process::Command;

use rstest::rstest;
use testkit::objects::{config_map, object, pod};
use testkit::{TestCluster, Verb, cluster, faults};

use crate::support::{failure, failure_of};

#[rstest]
#[tokio::test(start_paused = true)]
async fn a_missing_object_is_named(cluster: TestCluster) {
    let message = failure_of(|| cluster.get(pod("web-0")));
    assert!(
        message.ends_with("there is no Pod default/web-0, nor any other Pod"),
        "{message}"
    );
    assert!(message.contains("messages.rs:"), "{message}");
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn a_kind_that_is_not_served_is_named(cluster: TestCluster) {
    let message = failure_of(|| cluster.get(object("example.com/v1", "Document", "readme")));
    assert!(
        message.contains("no kind Document is served in example.com/v1"),
        "{message}"
    );
    assert!(message.contains("cluster.crd::<Document>()"), "{message}");
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn a_refusal_quotes_the_server(cluster: TestCluster) {
    cluster.create(config_map("a")).await;
    let message = failure(async { drop(cluster.create(config_map("a")).await) }).await;
    assert!(
        message.ends_with("create ConfigMap a: 409 AlreadyExists: configmaps \"a\" already exists"),
        "{message}"
    );
    assert!(message.contains("messages.rs:"), "{message}");
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn a_difference_is_shown_by_fields(cluster: TestCluster) {
    cluster
        .create(config_map("a").label("app", "web").data("mode", "fast"))
        .await;
    let expected = config_map("a")
        .label("app", "web")
        .label("x.io/team", "edge")
        .data("mode", "slow");
    let message = failure_of(|| cluster.assert_has(expected));
    let expected = "ConfigMap default/a is not as expected:
  data.mode: expected \"slow\", found \"fast\"
  metadata.labels[x.io/team]: expected \"edge\", found nothing";
    assert!(message.ends_with(expected), "{message}");
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn an_object_that_should_be_there_is_missed_among_the_others(cluster: TestCluster) {
    cluster.create(config_map("a").namespace("shop")).await;
    let message = failure_of(|| cluster.assert_has(config_map("a")));
    assert!(
        message.ends_with("there is no ConfigMap default/a; there are ConfigMap shop/a"),
        "{message}"
    );
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn finalizers_that_keep_an_object_are_named(cluster: TestCluster) {
    cluster.create(config_map("a").finalizer("example.com/keep")).await;
    let message = failure_of(|| cluster.assert_gone(config_map("a")));
    assert!(
        message.ends_with("ConfigMap default/a is still there; no client deleted it"),
        "{message}"
    );
    cluster.delete(config_map("a")).await;
    let message = failure_of(|| cluster.assert_gone(config_map("a")));
    assert!(
        message.ends_with("and kept by the finalizers example.com/keep"),
        "{message}"
    );
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn a_failed_condition_shows_its_reads(cluster: TestCluster) {
    cluster.create(config_map("a").data("n", "1")).await;
    let message = failure(cluster.eventually(|c| {
        assert_eq!(c.get(config_map("a")).data("n"), Some("2"), "the number");
    }))
    .await;
    assert!(message.contains("does not hold after 60s of virtual time"), "{message}");
    assert!(
        message.contains("the number") && message.contains("right: Some(\"2\")"),
        "{message}"
    );
    assert!(
        message.contains("ConfigMap default/a is {") && message.contains("\"data\":{\"n\":\"1\"}"),
        "{message}"
    );

    let message = failure(cluster.eventually(|c| c.exists(config_map("b")))).await;
    assert!(
        message.contains("it is false\nConfigMap default/b is not there"),
        "{message}"
    );
}

/// A test that fails, for the next one to look at.
#[rstest]
#[tokio::test(start_paused = true)]
async fn fails_on_purpose(cluster: TestCluster) {
    if std::env::var_os("FAIL_ON_PURPOSE").is_none() {
        return;
    }
    cluster
        .inject(faults::conflict().on(Verb::Update, "configmaps").once())
        .forget();
    cluster.run(async { Err::<(), _>("it has no configuration") });
    cluster.create(config_map("a")).await;
    cluster.settle().await;
    panic!("on purpose");
}

#[test]
fn a_failing_test_prints_the_seed_the_faults_and_the_last_requests() {
    let this = std::env::current_exe().expect("the test binary");
    let mut command = Command::new(this);
    command.args(["--exact", "messages::fails_on_purpose", "--nocapture"]);
    let output = command
        .env("FAIL_ON_PURPOSE", "1")
        .env("SEED", "7")
        .output()
        .expect("it runs");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    for part in [
        "the seed was 7; SEED=7 makes the same run",
        "has returned; an error that it returned is lost",
        "injected 409 Conflict on update configmaps, once: struck 0 requests",
        "POST   /api/v1/namespaces/default/configmaps  201",
    ] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
}
