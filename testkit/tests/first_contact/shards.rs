//! A search that is divided among machines, and their combined report.

use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::api::Patch;
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use testkit::TestCluster;
use testkit::explore::{Explore, Report, errors, explore};
use testkit::objects::pod;

use super::story::{applied, make_maps};

/// Labels each Pod.
async fn label(client: Client) {
    let pods = Api::<Pod>::default_namespaced(client.clone());
    let mut applied = applied(client);
    while let Some(pod) = applied.next().await {
        let patch = Patch::Merge(json!({"metadata": {"labels": {"seen": "true"}}}));
        while pods.patch(&pod.name_any(), &Default::default(), &patch).await.is_err() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
}

fn search(has_bug: bool) -> Explore {
    explore(async move |cluster: &TestCluster| {
        match has_bug {
            true => cluster.controller("maker", make_maps),
            false => cluster.controller("writer", label),
        };
        cluster.create(pod("web")).await;
        cluster.settle().await;
    })
    .schedules(40)
}

#[test]
fn all_shards_together_try_every_single_fault() {
    let errors = || search(false).faults(errors()).schedules(2_000);
    let tried = |report: &Report| report.coverage().singles;
    let whole = tried(&errors().report());
    let parts = [1, 2, 3].map(|number| tried(&errors().shard(number, 3).report()));
    let sum = parts.iter().fold((0, 0), |sum, it| (sum.0 + it.0, sum.1 + it.1));
    assert_eq!(sum, whole);
    assert!(parts.iter().all(|it| it.0 < whole.0), "{parts:?}");
}

/// Runs in separate processes: one per shard, and one for the whole search.
#[test]
fn entry_point_of_processes_that_search_one_shard() {
    if let Ok(bug) = std::env::var("SEARCH_IN_SHARDS") {
        search(bug == "bug").run();
    }
}

/// Runs the test with a variable in its environment.
fn run(bug: &str, environment: &[(&str, &str)]) -> Output {
    let mut command = std::process::Command::new(std::env::current_exe().expect("the test has an executable"));
    command.args([
        "--exact",
        "shards::entry_point_of_processes_that_search_one_shard",
        "--nocapture",
    ]);
    command.envs(environment.iter().copied());
    command
        .env("SEARCH_IN_SHARDS", bug)
        .output()
        .expect("the process starts")
}

/// Creates an empty directory for reports.
fn reports(name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    // The directory does not exist the first time.
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).expect("the directory can be created");
    directory
}

fn in_shards(bug: &str, directory: &Path) -> (Vec<Output>, Output) {
    let directory = directory.to_str().expect("the path is UTF-8");
    let shard = |it: &str| run(bug, &[("EXPLORE_SHARD", it), ("EXPLORE_REPORTS", directory)]);
    let shards = ["1/2", "2/2"].map(shard).into();
    (shards, run(bug, &[("EXPLORE_MERGE", directory)]))
}

#[test]
fn reports_of_shards_are_merged() {
    let (shards, all) = in_shards("none", &reports("shards"));
    let text = String::from_utf8(all.stderr).expect("the text is UTF-8");
    assert!(
        shards.iter().all(|it| it.status.success()) && all.status.success(),
        "{text}"
    );
    assert!(text.contains("(80 schedules;"), "{text}");
}

#[test]
fn failure_found_by_a_shard_fails_the_merge() {
    let (shards, all) = in_shards("bug", &reports("shards-with-a-bug"));
    let text = String::from_utf8(all.stderr).expect("the text is UTF-8");
    assert!(shards.iter().any(|it| !it.status.success()), "{text}");
    assert!(
        !all.status.success() && text.contains("the scenario fails with:"),
        "{text}"
    );
    let made: u64 = shards
        .iter()
        .map(|it| schedules(&String::from_utf8_lossy(&it.stderr)))
        .sum();
    assert_eq!(schedules(&text), made, "{text}");
}

/// Returns the number of schedules in a report.
fn schedules(report: &str) -> u64 {
    let before = report.split(" schedules;").next().unwrap_or_default();
    let number = before.rsplit('(').next().unwrap_or_default().replace(',', "");
    number
        .parse()
        .unwrap_or_else(|_| panic!("the report has no number of schedules: {report}"))
}

#[test]
fn merged_report_contains_the_notes_of_the_shards() {
    let directory = reports("shards-with-notes");
    let path = directory.to_str().expect("the path is UTF-8");
    for shard in ["1/2", "2/2"] {
        run("bug", &[("EXPLORE_SHARD", shard), ("EXPLORE_REPORTS", path)]);
    }
    for entry in std::fs::read_dir(&directory).expect("the directory exists") {
        let file = entry.expect("the directory can be read").path();
        if file.extension().is_some_and(|it| it == "json") {
            let text = std::fs::read_to_string(&file).expect("the report can be read");
            let mut report: Value = serde_json::from_str(&text).expect("the report is valid");
            report["notes"] = json!(["a note of each shard"]);
            std::fs::write(&file, report.to_string()).expect("the report can be written");
        }
    }
    let all = run("bug", &[("EXPLORE_MERGE", path)]);
    let text = String::from_utf8(all.stderr).expect("the text is UTF-8");
    assert!(text.contains("the scenario fails with:"), "{text}");
    assert_eq!(text.matches("a note of each shard").count(), 1, "{text}");
}

#[test]
fn merging_fails_if_a_shard_is_missing() {
    let directory = reports("shards-of-which-one-is-missing");
    let path = directory.to_str().expect("the path is UTF-8");
    run("none", &[("EXPLORE_SHARD", "1/2"), ("EXPLORE_REPORTS", path)]);
    let all = run("none", &[("EXPLORE_MERGE", path)]);
    let text = String::from_utf8(all.stderr).expect("the text is UTF-8");
    assert!(!all.status.success(), "{text}");
    assert!(text.contains(r#"found ["1/2"]"#), "{text}");
}
