//! Controllers that end in order to be restarted, and processes that end in the middle of a run.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use rstest::rstest;
use serde_json::json;
use testkit::TestCluster;
use testkit::explore::{errors, explore};
use testkit::objects::config_map;

/// Copies a setting, and ends at the first error.
async fn copy(client: Client) -> Result<(), kube::Error> {
    let maps = Api::<ConfigMap>::default_namespaced(client);
    let settings = maps.get("settings").await?;
    let copy = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "copy"}, "data": settings.data});
    maps.patch("copy", &PatchParams::apply("test").force(), &Patch::Apply(copy))
        .await?;
    std::future::pending::<Result<(), kube::Error>>().await
}

async fn copy_or_panic(client: Client) {
    copy(client).await.expect("the API server answers");
}

#[rstest]
#[case::controller_returns(false)]
#[case::controller_panics(true)]
#[tokio::test(start_paused = true)]
async fn ended_controller_is_restarted_after_a_backoff(#[case] panics: bool) {
    let cluster = TestCluster::start();
    let operator = match panics {
        true => cluster.controller("operator", copy_or_panic).restarts(),
        false => cluster.controller("operator", copy).restarts(),
    };
    // The controller ends at 0 s, 10 s and 30 s.
    cluster.advance(Duration::from_secs(35)).await;
    assert_eq!(operator.restart_count(), 3);
    cluster.create(config_map("settings").data("mode", "fast")).await;
    cluster.settle().await;
    cluster.assert_has(config_map("copy").data("mode", "fast"));
    assert!(operator.is_running());
}

#[test]
fn controller_with_restarts_may_end_by_itself() {
    let report = explore(async |cluster: &TestCluster| {
        cluster.create(config_map("settings").data("mode", "fast")).await;
        cluster.controller("operator", copy_or_panic).restarts();
        cluster.settle().await;
        cluster.assert_has(config_map("copy").data("mode", "fast"));
    })
    .faults(errors())
    .run();
    let notes = report.notes().join("\n");
    assert!(notes.contains("operator ended by itself and was restarted"), "{report}");
}

#[test]
fn report_shows_the_end_of_an_unrestarted_controller() {
    let report = explore(async |cluster: &TestCluster| {
        cluster.create(config_map("settings").data("mode", "fast")).await;
        cluster.controller("operator", copy);
        cluster.settle().await;
    })
    .faults(errors())
    .report();
    assert!(report.failure().is_some(), "{report}");
    let text = report.to_string();
    assert!(
        text.contains("operator returned; it is not restarted (call `.restarts()`"),
        "{text}"
    );
}

/// Runs in a separate process, and ends this process.
#[expect(clippy::print_stderr, reason = "the test that starts this process reads it")]
#[test]
fn entry_point_of_the_process_that_exits_during_a_run() {
    if std::env::var_os("ENDS_THE_PROCESS").is_none() {
        return;
    }
    let is_first = std::env::var("ENDS_THE_PROCESS").is_ok_and(|it| it == "1");
    let report = explore(async move |cluster: &TestCluster| {
        cluster.create(config_map("settings").data("mode", "fast")).await;
        cluster.controller("operator", move |client| async move {
            if copy(client).await.is_err() && is_first {
                std::process::exit(3);
            }
        });
        cluster.settle().await;
    })
    .threads(1)
    .faults(errors())
    .report();
    eprintln!("{report}");
}

#[test]
fn run_that_ended_the_process_is_reported_by_the_next_search() {
    let test = std::env::current_exe().expect("the test has an executable");
    let run = |times: &str| {
        let mut command = std::process::Command::new(&test);
        command.args([
            "--exact",
            "ends::entry_point_of_the_process_that_exits_during_a_run",
            "--nocapture",
        ]);
        command
            .env("ENDS_THE_PROCESS", times)
            .output()
            .expect("the process starts")
    };
    let first = run("1");
    assert_eq!(first.status.code(), Some(3));
    let text = String::from_utf8(first.stderr).expect("the text is UTF-8");
    assert!(text.contains("exits the process"), "{text}");
    assert!(text.contains("to replay: EXPLORE_REPLAY='"), "{text}");
    let text = String::from_utf8(run("2").stderr).expect("the text is UTF-8");
    let note = "the process ended during an earlier run of this test, possibly by `process::exit`; to replay: EXPLORE_REPLAY='";
    assert!(text.contains(note), "{text}");
    assert!(
        !String::from_utf8_lossy(&run("2").stderr).contains(note),
        "the note is only printed once"
    );
}
