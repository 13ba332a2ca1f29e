//! Messages of failing tests.

use std::process::Command;
use std::time::Duration;

use rstest::rstest;
use testkit::objects::{config_map, object, pod};
use testkit::{TestCluster, Verb, cluster, faults};

use crate::support::{failure, failure_of};

#[rstest]
#[tokio::test(start_paused = true)]
async fn missing_object_is_reported(cluster: TestCluster) {
    let message = failure_of(|| cluster.get(pod("web-0")));
    assert!(
        message.ends_with("there is no Pod default/web-0, nor any other Pod"),
        "{message}"
    );
    assert!(message.contains("messages.rs:"), "{message}");
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn unserved_kind_is_reported(cluster: TestCluster) {
    let message = failure_of(|| cluster.get(object("example.com/v1", "Document", "readme")));
    assert!(
        message.contains("no kind Document is served in example.com/v1"),
        "{message}"
    );
    assert!(message.contains("cluster.crd::<Document>()"), "{message}");
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn failed_create_contains_the_message_of_the_server(cluster: TestCluster) {
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
async fn differences_are_shown_field_by_field(cluster: TestCluster) {
    cluster
        .create(config_map("a").label("app", "web").data("mode", "fast"))
        .await;
    let expected = config_map("a")
        .label("app", "web")
        .label("x.io/team", "edge")
        .data("mode", "slow");
    let message = failure_of(|| cluster.assert_has(expected));
    let expected = "ConfigMap default/a differs from the expected object:
  data.mode: expected \"slow\", found \"fast\"
  metadata.labels[x.io/team]: expected \"edge\", found nothing";
    assert!(message.ends_with(expected), "{message}");
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn missing_object_is_reported_with_existing_objects(cluster: TestCluster) {
    cluster.create(config_map("a").namespace("shop")).await;
    let message = failure_of(|| cluster.assert_has(config_map("a")));
    assert!(
        message.ends_with("there is no ConfigMap default/a; existing objects: ConfigMap shop/a"),
        "{message}"
    );
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn finalizers_of_a_terminating_object_are_listed(cluster: TestCluster) {
    cluster.create(config_map("a").finalizer("example.com/keep")).await;
    let message = failure_of(|| cluster.assert_gone(config_map("a")));
    assert!(
        message.ends_with("ConfigMap default/a still exists; no client deleted it"),
        "{message}"
    );
    cluster.delete(config_map("a")).await;
    let message = failure_of(|| cluster.assert_gone(config_map("a")));
    assert!(
        message.ends_with("and is kept by the finalizers example.com/keep"),
        "{message}"
    );
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn failed_condition_lists_its_reads(cluster: TestCluster) {
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
        message.contains("the value is false\nConfigMap default/b does not exist"),
        "{message}"
    );
}

/// A failing test, which the next test runs.
#[rstest]
#[tokio::test(start_paused = true)]
async fn entry_point_of_a_test_that_fails(cluster: TestCluster) {
    if std::env::var_os("FAIL_ON_PURPOSE").is_none() {
        return;
    }
    cluster
        .inject(faults::conflict().on(Verb::Update, "configmaps").once())
        .forget();
    cluster.run(async { Err::<(), _>("it has no configuration") });
    cluster.create(config_map("a")).await;
    cluster.settle().await;
    panic!("the test fails on purpose");
}

#[test]
fn failing_test_prints_the_seed_the_faults_and_the_last_requests() {
    let this = std::env::current_exe().expect("the test has an executable");
    let mut command = Command::new(this);
    command.args(["--exact", "messages::entry_point_of_a_test_that_fails", "--nocapture"]);
    let output = command
        .env("FAIL_ON_PURPOSE", "1")
        .env("SEED", "7")
        .output()
        .expect("the program starts");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    for part in [
        "the seed was 7; SEED=7 repeats the run",
        "has returned; its error, if any, was discarded",
        "injected 409 Conflict on update configmaps, once: affected 0 requests",
        "POST   /api/v1/namespaces/default/configmaps  201",
    ] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
}

/// A test with a failure that an environment variable selects. The next test runs it.
#[rstest]
#[tokio::test(start_paused = true)]
async fn entry_point_of_failures_in_testkit_methods(cluster: TestCluster) {
    let Ok(how) = std::env::var("FAIL_AT") else { return };
    cluster.create(config_map("a")).await;
    match how.as_str() {
        "get" => drop(cluster.get(pod("web-0"))),
        "assert_has" => cluster.assert_has(config_map("a").data("n", "1")),
        "assert_gone" => cluster.assert_gone(config_map("a")),
        "assert_condition" => cluster.assert_condition(config_map("a"), "Ready", "True"),
        "assert_count" => cluster.requests().assert_count(1),
        "inject" => cluster.inject(faults::conflict().on(Verb::Update, "pod")).forget(),
        "create" => drop(cluster.create(config_map("a")).await),
        "delete" => cluster.delete(pod("web-0")).await,
        "patch" => drop(cluster.patch(pod("web-0"), serde_json::json!({})).await),
        "eventually" => cluster.eventually(|c| c.exists(pod("web-0"))).await,
        "consistently" => cluster.consistently(Duration::ZERO, |c| c.exists(pod("web-0"))).await,
        "settle" | "advance" | "assert_idle" => {
            cluster.run(async { panic!("the controller cannot continue") });
            match how.as_str() {
                "settle" => cluster.settle().await,
                "advance" => cluster.advance(Duration::from_secs(1)).await,
                _ => cluster.assert_idle(Duration::from_secs(1)).await,
            }
        }
        other => panic!("unknown failure {other}"),
    }
}

#[rstest]
fn failures_of_testkit_methods_contain_the_line_of_the_test(
    #[values(
        "get",
        "assert_has",
        "assert_gone",
        "assert_condition",
        "assert_count",
        "inject",
        "create",
        "delete",
        "patch",
        "eventually",
        "consistently",
        "settle",
        "advance",
        "assert_idle"
    )]
    how: &str,
) {
    let this = std::env::current_exe().expect("the test has an executable");
    let mut command = Command::new(this);
    command.args([
        "--exact",
        "messages::entry_point_of_failures_in_testkit_methods",
        "--nocapture",
    ]);
    let output = command.env("FAIL_AT", how).output().expect("the program starts");
    let text = String::from_utf8_lossy(&output.stderr);
    let mut places = text
        .lines()
        .filter_map(|it| it.split_once("panicked at ")?.1.strip_suffix(':'));
    // The panic of a controller is printed first.
    let place = places
        .next_back()
        .unwrap_or_else(|| panic!("the output has no panic: {text}"));
    let (file, line) = place.split_once(':').expect("the location has a line");
    assert!(file.ends_with("tests/it/messages.rs"), "{place}");
    let line: usize = line
        .split(':')
        .next()
        .and_then(|it| it.parse().ok())
        .expect("the value is a number");
    let source = include_str!("messages.rs")
        .lines()
        .nth(line - 1)
        .expect("the file has the line");
    assert!(source.contains(&format!(".{how}(")), "{place}: {source}");
}
