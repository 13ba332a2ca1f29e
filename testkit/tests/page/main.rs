//! The page of a failing exploration, in a real browser.
//!
//! Opt-in like the other browser tests: `DRYDOCK_BROWSER` is the path of a Chromium executable.

mod browser;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Patch, PostParams};
use kube::runtime::controller::Action;
use kube::runtime::{Controller, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use testkit::TestCluster;
use testkit::explore::{Explore, Report, explore};
use testkit::objects::pod;

use self::browser::Tab;

/// Creates a separate, empty folder for one test.
fn folder() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("page-{}-{number}", std::process::id());
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).expect("the target directory is writable");
    folder
}

/// Runs a reconciler of Pods, which retries after five seconds.
async fn operator<F>(client: Client, reconcile: fn(Arc<Pod>, Arc<Client>) -> F)
where
    F: Future<Output = Result<Action, kube::Error>> + Send + 'static,
{
    let pods = Api::<Pod>::all(client.clone());
    let on_error = |_: Arc<Pod>, _: &kube::Error, _: Arc<Client>| Action::requeue(Duration::from_secs(5));
    let controller = Controller::new(pods, watcher::Config::default());
    controller
        .run(reconcile, on_error, Arc::new(client))
        .for_each(async |_| ())
        .await;
}

async fn set_phase(maps: &Api<ConfigMap>, name: &str, phase: &str) -> Result<(), kube::Error> {
    let patch = Patch::Merge(json!({"data": {"phase": phase}}));
    maps.patch(name, &Default::default(), &patch).await?;
    Ok(())
}

/// Creates a volume for each Pod in three writes, and treats an existing volume as complete.
async fn make_volume(pod: Arc<Pod>, client: Arc<Client>) -> Result<Action, kube::Error> {
    let maps = Api::<ConfigMap>::default_namespaced(Client::clone(&client));
    let name = pod.name_any();
    if maps.get_opt(&name).await?.is_some() {
        tracing::info!("the volume exists");
        return Ok(Action::await_change());
    }
    tracing::info!(node = "node-1", "making a volume");
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.clone());
    maps.create(&PostParams::default(), &map).await?;
    set_phase(&maps, &name, "Progressing").await?;
    set_phase(&maps, &name, "Ready").await?;
    Ok(Action::await_change())
}

/// Labels each Pod with a number that increases forever.
async fn count(pod: Arc<Pod>, client: Arc<Client>) -> Result<Action, kube::Error> {
    let number: u64 = pod.labels().get("number").and_then(|it| it.parse().ok()).unwrap_or(0);
    let patch = Patch::Merge(json!({"metadata": {"labels": {"number": (number + 1).to_string()}}}));
    let pods = Api::<Pod>::default_namespaced(Client::clone(&client));
    pods.patch(&pod.name_any(), &Default::default(), &patch).await?;
    Ok(Action::await_change())
}

fn volumes() -> Explore {
    explore(async |cluster: &TestCluster| {
        cluster.controller("operator", |client| operator(client, make_volume));
        cluster.create(pod("web")).await;
        cluster.settle().await;
    })
}

/// Returns the report of a crash between two writes.
fn crashed() -> Report {
    let replay = "crash-after=1000@operator:patch:configmaps:default/web#1";
    volumes().replay(replay).report()
}

/// Opens the page of a report, from a file; `None` without a browser.
#[expect(clippy::print_stderr, reason = "a test that is left out has to say so")]
fn open(report: &Report) -> Option<Tab> {
    let Some(program) = std::env::var_os("DRYDOCK_BROWSER").map(PathBuf::from) else {
        eprintln!("skipped: DRYDOCK_BROWSER names no Chromium");
        return None;
    };
    let mut tab = Tab::open(&program, folder(), &report.to_html());
    tab.until("document.querySelector('#tabs button')");
    Some(tab)
}

const SELECTED: &str = "document.querySelector('#list .item[aria-selected=true]')";

fn id(name: &str) -> String {
    format!("document.getElementById('{name}')")
}

fn shows(id: &str, text: &str) -> String {
    format!("document.getElementById('{id}').textContent.includes({text:?})")
}

#[test]
fn first_diverging_step_is_selected_in_two_runs_side_by_side() {
    let Some(mut tab) = open(&crashed()) else { return };
    tab.until(&shows(
        "headline",
        "configmaps default/web data.phase: expected \"Ready\", found \"Progressing\"",
    ));
    tab.until(&shows(
        "headline",
        "it takes: crash operator after patch configmaps default/web",
    ));
    tab.until(&shows("oracle", "end state"));
    tab.until(&shows("columns", "reference run"));
    tab.until(&shows("columns", "failing run"));
    tab.until(&format!(
        "{SELECTED}.textContent.includes('⚡ PATCH configmaps default/web')"
    ));
    // Both runs made this write; in one of them the controller crashed after it.
    tab.until(&format!("{SELECTED}.querySelectorAll('.cell .write').length === 2"));
    tab.until(&shows("pane", "an injected fault takes effect here"));
    tab.until(&shows("pane", "\"Progressing\""));
    tab.until(&shows("lane-names", "operator"));
    tab.until(&shows("lane-names", "the test"));
    tab.picture("explore");
    tab.press("w");
    tab.until(&format!(
        "{SELECTED}.textContent.includes('\"Progressing\" → \"Ready\"')"
    ));
    tab.until(&shows("pane", "This run does not contain the step."));
}

#[test]
fn objects_reconciles_and_output_are_shown_at_the_step() {
    let Some(mut tab) = open(&crashed()) else { return };
    tab.press("w");
    tab.until(&format!("{SELECTED}.textContent.includes('Ready')"));
    tab.click(&id("tab-object"));
    tab.until("document.querySelector('#pane .minus').textContent.includes('phase: Progressing')");
    tab.until("document.querySelectorAll('#pane .side')[1].textContent.includes('phase: Progressing')");
    tab.picture("explore-object");
    tab.press("3");
    tab.until(&shows("pane", "the controller’s tracing span"));
    tab.until(&shows("pane", "reconcile Pod"));
    tab.until(&shows("pane", "making a volume"));
    tab.press("4");
    tab.until(&shows("pane", "making a volume node=\"node-1\""));
    tab.press("5");
    tab.until(&shows("pane", "differs from the reference run"));
    tab.press("6");
    tab.until(&shows("pane", "so one of them is wrong"));
    tab.press("/");
    tab.insert("patch progressing");
    tab.until("document.querySelectorAll('#list .item .write').length > 0");
    tab.press("Escape");
    tab.resize(900, 1000, "dark");
    tab.picture("explore-narrow");
}

#[test]
fn buttons_copy_the_replay_string_and_the_command() {
    let report = crashed();
    let Some(mut tab) = open(&report) else { return };
    tab.eval("navigator.clipboard.writeText = async (text) => { window.copied = text; }");
    let replay = report.failure().expect("the exploration fails").replay();
    tab.click(&id("copy-replay"));
    tab.until(&format!("window.copied === {replay:?}"));
    tab.click(&id("copy-command"));
    tab.until("window.copied.startsWith('EXPLORE_REPLAY=') && window.copied.includes('cargo test -- --exact')");
}

#[test]
fn failure_without_faults_has_one_column_with_its_loop_folded() {
    let report = explore(async |cluster: &TestCluster| {
        cluster.controller("operator", |client| operator(client, count));
        cluster.create(pod("web")).await;
        cluster.settle().await;
    })
    .report();
    assert_eq!(report.failure().map(|it| it.oracle()), Some("no hot loop"), "{report}");
    let Some(mut tab) = open(&report) else { return };
    tab.until("!document.querySelector('#list .two')");
    tab.until(&shows("columns", "failing run"));
    tab.until(&format!("!{}", shows("columns", "reference run")));
    tab.until(&format!("{}.hidden", id("plan")));
    tab.until(&shows("list", "more times"));
    tab.until("document.getElementById('list').scrollHeight < 3000");
}

#[test]
fn report_without_a_failure_shows_its_coverage() {
    let report = volumes()
        .schedules(1)
        .replay("conflict@operator:event:none:x#1")
        .report();
    assert!(report.failure().is_none(), "{report}");
    let Some(mut tab) = open(&report) else { return };
    tab.until(&shows("headline", "no failure was found"));
    tab.until(&shows("facts", "single faults"));
    tab.click(&id("tab-report"));
    tab.until(&shows("pane", "explored"));
}

#[test]
fn text_and_json_contain_the_difference_of_each_write() {
    let report = crashed();
    let text = report.to_string();
    let written = "PATCH configmaps default/web → 200 (data.phase: \"Progressing\" → \"Ready\")";
    assert!(text.contains(&written[..60]), "{text}");
    let struck = "PATCH configmaps default/web → no response (+ data.phase: \"Progressing\") ← here";
    assert!(text.contains(struck), "{text}");
    let json = report.to_json();
    let rows = json["failure"]["timeline"].as_array().expect("the value is a list");
    let changes = |run: &str| -> Vec<Value> {
        let cells = rows.iter().map(|row| &row[run]);
        cells
            .flat_map(|it| it["changes"].as_array().cloned().unwrap_or_default())
            .collect()
    };
    let ready = json!({"path": "data.phase", "before": "Progressing", "after": "Ready"});
    assert!(changes("reference").contains(&ready), "{json:#}");
    assert!(!changes("failing").contains(&ready), "{json:#}");
    assert!(
        changes("failing").contains(&json!({"path": "data.phase", "after": "Progressing"})),
        "{json:#}"
    );
}

#[test]
fn document_contains_two_runs_with_reconciles_bodies_and_versions() {
    let document = crashed().trace().to_json();
    let failure = &document["failures"][0];
    assert_eq!((&failure["reference"], &failure["failing"]), (&json!(0), &json!(1)));
    let first = &failure["rows"][failure["first"].as_u64().expect("the failure has a first row") as usize];
    let step = &document["runs"][1]["steps"][first["right"].as_u64().expect("the row has a step") as usize];
    assert_eq!(
        (&step["isFault"], &step["text"]),
        (&json!(true), &json!("PATCH configmaps default/web"))
    );
    assert_eq!(step["body"], "{\"data\":{\"phase\":\"Progressing\"}}");
    for run in [0, 1] {
        let run = &document["runs"][run];
        let groups = run["groups"].as_array().expect("the value is a list");
        assert!(groups.iter().any(|it| it["isCertain"] == true), "{groups:?}");
        let versions = &run["objects"]["configmaps default/web"];
        assert_eq!(
            (&versions[0]["by"], &versions[0]["value"]["data"]),
            (&json!("operator"), &Value::Null)
        );
        let logs = run["logs"].as_array().expect("the value is a list");
        assert!(
            logs.iter().any(|it| it["text"] == "making a volume node=\"node-1\""),
            "{logs:?}"
        );
    }
}
