//! The command `drydock explore`: controllers as processes, in real time.
//!
//! The controllers under test are this program itself, with an environment variable that selects the controller.

#![cfg(unix)]

#[path = "processes/fields.rs"]
mod fields;
#[path = "processes/init.rs"]
#[cfg(target_os = "linux")]
mod init;
#[path = "processes/life.rs"]
mod life;
#[path = "processes/stubs.rs"]
#[cfg(target_os = "linux")]
mod stubs;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::controller::Action;
use kube::runtime::{Controller, watcher};
use kube::{Client, ResourceExt};
use rstest::rstest;
use serde_json::Value;

/// Environment variable that makes the test `entry_point_of_controller_processes` run as a controller.
const CONTROLLER: &str = "DRYDOCK_TEST_CONTROLLER";

/// A directory that is removed when this is dropped.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!(
            "drydock-test-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).expect("the directory can be created");
        Self(path)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, text).expect("the file is writable");
        path
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs the command until it ends.
fn drydock(arguments: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_drydock")).args(arguments).output();
    output.expect("the command starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Writes a scenario with a controller of this file.
fn scenario(directory: &Directory, controller: &str) -> PathBuf {
    let program = std::env::current_exe().expect("the test has an executable");
    let yaml = format!(
        "controllers:
  - name: operator
    command: [{program:?}, --exact, entry_point_of_controller_processes, --nocapture]
    env: {{{CONTROLLER}: {controller}}}
    insecure: true
cluster: {{workers: []}}
steps:
  - name: create web
    object:
      apiVersion: v1
      kind: ConfigMap
      metadata: {{name: web, labels: {{role: source}}}}
faults: [crashes]
within: 3s
quiet: 1500ms
budget: {{failures: 1, time: 120s}}
"
    );
    directory.write(&format!("{controller}.yaml"), &yaml)
}

/// Writes a scenario with a controller of this file and further steps after the creation of `web`, and replays a plan.
fn replayed_with(controller: &str, steps: &str, plan: &str) -> (Option<i32>, String) {
    let directory = Directory::new();
    let yaml = fs::read_to_string(scenario(&directory, controller)).expect("the file exists");
    let yaml = yaml.replace("faults: [crashes]\n", &format!("{steps}faults: [crashes]\n"));
    let path = directory.write("scenario.yaml", &yaml).display().to_string();
    let output = drydock(&["explore", &path, "--replay", plan]);
    let report = format!("{}\n{}", text(&output.stdout), text(&output.stderr));
    (output.status.code(), report)
}

/// Creates `web-first` and `web-second` for a ConfigMap `web`. Unless `fixed` is set, it creates `web-second` only
/// directly after `web-first`.
async fn reconcile(map: Arc<ConfigMap>, context: Arc<(Client, bool)>) -> Result<Action, kube::Error> {
    let (client, is_fixed) = &*context;
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    if is("finalizing") && map.metadata.deletion_timestamp.is_some() {
        let done = Patch::Merge(serde_json::json!({"metadata": {"finalizers": null}}));
        maps.patch(&map.name_any(), &PatchParams::default(), &done).await?;
        return Ok(Action::await_change());
    }
    for part in ["first", "second"] {
        let mut made = ConfigMap::default();
        made.metadata.name = Some(format!("{}-{part}", map.name_any()));
        let exists = maps.get_opt(&made.name_any()).await?.is_some();
        if !exists {
            if part == "second" && is("computing") {
                compute(Duration::from_secs(4));
            }
            maps.create(&PostParams::default(), &made).await?;
            if part == "second" && is("exiting") {
                std::process::exit(7);
            }
        } else if !is_fixed {
            break;
        }
    }
    if is("copying") {
        let data = serde_json::json!({"sourceVersion": map.resource_version()});
        let name = format!("{}-copy", map.name_any());
        let metadata = serde_json::json!({"name": name});
        let copy = serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data});
        let params = PatchParams::apply("copying").force();
        maps.patch(&name, &params, &Patch::Apply(copy)).await?;
    }
    if (is("remembering") || is("doubling"))
        && let Some(size) = map.data.as_ref().and_then(|it| it.get("size"))
    {
        let mut seen = ConfigMap::default();
        seen.metadata.name = Some(format!("{}-{size}", map.name_any()));
        // An earlier reconcile may have created it.
        let _ = maps.create(&PostParams::default(), &seen).await;
    }
    if is("drawing") && !map.annotations().contains_key("done") {
        let mut lock = ConfigMap::default();
        lock.metadata.name = Some(format!("{}-lock-{:08x}", map.name_any(), fastrand::u32(..)));
        maps.create(&PostParams::default(), &lock).await?;
        maps.delete(&lock.name_any(), &DeleteParams::default()).await?;
    }
    if (is("tardy") || is("drawing")) && !map.annotations().contains_key("done") {
        let done = Patch::Merge(serde_json::json!({"metadata": {"annotations": {"done": "yes"}}}));
        maps.patch(&map.name_any(), &PatchParams::default(), &done).await?;
    }
    Ok(Action::await_change())
}

/// Returns `true` in the process of this controller.
fn is(controller: &str) -> bool {
    std::env::var(CONTROLLER).is_ok_and(|it| it == controller)
}

/// Uses a processor for this time, like a controller that decodes large responses.
#[expect(clippy::disallowed_methods, reason = "the controller is a process in real time")]
fn compute(time: Duration) {
    let until = std::time::Instant::now() + time;
    while std::time::Instant::now() < until {
        std::hint::spin_loop();
    }
}

/// Deletes the object of a source that no longer exists, and creates one for each existing source. Both are correct
/// only if the list of sources is up to date: after a restart, a stale list causes the deletion of an object that is in
/// use.
async fn follow(client: Client) {
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let mut sources = watcher::Config::default().labels("role=source").any_semantic();
    // With pages, kube requests the newest state instead of any state.
    sources.page_size = None;
    let mut events = std::pin::pin!(watcher(maps.clone(), sources));
    let mut made = ConfigMap::default();
    made.metadata.name = Some("made".to_owned());
    let mut exists = false;
    while let Some(event) = events.next().await {
        let is_listed = match event {
            Ok(watcher::Event::Init) => {
                exists = false;
                continue;
            }
            Ok(watcher::Event::InitApply(_)) => {
                exists = true;
                continue;
            }
            Ok(watcher::Event::InitDone) => exists,
            Ok(watcher::Event::Apply(_)) => true,
            Ok(watcher::Event::Delete(_)) => false,
            Err(_) => continue,
        };
        // A retry is not necessary, because another event follows.
        let _ = match is_listed {
            true => maps.create(&PostParams::default(), &made).await.map(drop),
            false => maps.delete("made", &DeleteParams::default()).await.map(drop),
        };
    }
}

/// Reads an object again and again, but never lists objects.
async fn read(client: Client) {
    let namespaces: Api<Namespace> = Api::all(client);
    loop {
        let found = namespaces.get("default").await;
        found.expect("the namespace exists in every cluster");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Deletes an object that does not exist, again and again, like a controller that reconciles at intervals.
async fn delete_repeatedly(client: Client) {
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    loop {
        let deleted = maps.delete("missing", &DeleteParams::default()).await;
        assert!(deleted.is_err(), "the object does not exist");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// Runs the controller in the environment variable, in a separate process. Without the variable, the test does nothing.
#[test]
fn entry_point_of_controller_processes() {
    let Ok(name) = std::env::var(CONTROLLER) else {
        assert!(CONTROLLER.starts_with("DRYDOCK_"));
        return;
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("the runtime can be built").block_on(async {
        #[cfg(target_os = "linux")]
        if name == "serving" {
            return stubs::serve().await;
        }
        let config = kube::Config::infer().await.expect("KUBECONFIG is set");
        let client = Client::try_from(config).expect("the configuration is valid");
        if name == "panicking" {
            panic!("nothing works");
        }
        if name == "webhooks" {
            fields::serve_webhooks().await;
        }
        match &*name {
            "electing" => life::elect(&client).await,
            "hasty" => return life::hasten(client).await,
            "hurried" => return life::hurry(client).await,
            "watching" => return life::watch_once(client).await,
            "serving readiness" => return life::serve_readiness().await,
            _ => {}
        }
        #[cfg(target_os = "linux")]
        if name == "calling" {
            return stubs::call(client).await;
        }
        if name == "following" {
            return follow(client).await;
        }
        if name == "reading" {
            return read(client).await;
        }
        if name == "repeating" {
            tokio::spawn(delete_repeatedly(client.clone()));
        }
        let _port =
            (name == "listening").then(|| std::net::TcpListener::bind("127.0.0.1:8383").expect("the port is free"));
        let context = Arc::new((client.clone(), name != "buggy"));
        let sources = watcher::Config::default().labels("role=source");
        let retries_after = Duration::from_millis(match &*name {
            "patient" => 4_500,
            "tardy" => 10_000,
            _ => 300,
        });
        let on_error = move |_: Arc<ConfigMap>, _: &kube::Error, _: Arc<(Client, bool)>| Action::requeue(retries_after);
        let run = || {
            let maps = Api::<ConfigMap>::default_namespaced(client.clone());
            let controller = Controller::new(maps, sources.clone());
            let reconciled = controller.run(reconcile, on_error, Arc::clone(&context));
            reconciled.for_each(|_| async {})
        };
        if name == "doubling" {
            tokio::spawn(run());
        }
        run().await;
    });
}

#[test]
fn crash_between_two_writes_is_found_and_replayed_and_the_fix_passes() {
    let directory = Directory::new();
    let buggy = scenario(&directory, "buggy").display().to_string();
    let (json, junit) = (directory.0.join("report.json"), directory.0.join("report.xml"));
    let output = drydock(&[
        "explore",
        &buggy,
        "--json",
        &json.display().to_string(),
        "--junit",
        &junit.display().to_string(),
    ]);
    let report = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{report}\n{}", text(&output.stderr));
    let read: Value =
        serde_json::from_str(&fs::read_to_string(&json).expect("the file exists")).expect("the text is valid JSON");
    let failure = &read["failures"][0];
    assert_eq!(failure["oracle"], "end state", "{report}");
    let replay = failure["replay"].as_str().expect("the failure has a replay string");
    assert_eq!(replay, "crash-after=100@operator:create:configmaps:default/#1");
    assert!(report.contains("web-second"), "{report}");
    assert!(report.contains("the violation occurred in 3 of 3 runs"), "{report}");
    let junit = fs::read_to_string(&junit).expect("the file exists");
    assert!(junit.contains("<failure type=\"end state\""), "{junit}");

    let again = drydock(&["explore", &buggy, "--replay", replay]);
    assert_eq!(again.status.code(), Some(1), "{}", text(&again.stdout));
    let fixed = scenario(&directory, "fixed").display().to_string();
    let fixed = drydock(&["explore", &fixed, "--replay", replay]);
    assert_eq!(fixed.status.code(), Some(0), "{}", text(&fixed.stdout));
}

#[test]
fn correct_controller_passes_every_crash() {
    let directory = Directory::new();
    let path = scenario(&directory, "fixed").display().to_string();
    let output = drydock(&["explore", &path, "--plans", "30"]);
    let report = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{report}");
    assert!(report.contains("no failure found"), "{report}");
    assert!(report.contains("runs/s"), "{report}");
}

#[test]
fn condition_that_holds_soon_after_its_timeout_is_noted_in_a_run_with_a_fault() {
    let directory = Directory::new();
    let path = scenario(&directory, "patient");
    let yaml = fs::read_to_string(&path).expect("the file exists");
    let yaml = yaml.replace(
        "faults: [crashes]\n",
        "    wait: {object: configmaps/web-second, timeout: 4s}\nfaults: [errors]\n",
    );
    let path = directory.write("patient.yaml", &yaml).display().to_string();
    let output = drydock(&["explore", &path, "--plans", "4"]);
    let report = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{report}\n{}", text(&output.stderr));
    assert!(report.contains("the state only became correct"), "{report}");
}

#[test]
fn controller_that_repeats_the_same_failing_request_settles() {
    let directory = Directory::new();
    let path = scenario(&directory, "repeating").display().to_string();
    let output = drydock(&["explore", &path, "--replay", "restart@operator"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
}

#[test]
fn objects_with_random_names_are_counted_together() {
    let directory = Directory::new();
    let path = scenario(&directory, "drawing").display().to_string();
    let output = drydock(&["explore", &path, "--replay", "restart@operator"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
}

/// The reference changes the source again in the next step.
#[test]
fn versions_after_a_step_are_compared_with_the_state_at_this_step() {
    let steps = "  - patch: {object: configmaps/web, merge: {data: {key: value}}}\n";
    let crash = "crash-after=100@operator:create:configmaps:default/#1";
    let (code, report) = replayed_with("copying", steps, crash);
    assert_eq!(code, Some(0), "{report}");
}

/// The operator does not observe the first change in any of its watches, so the condition of this step is never met.
#[rstest]
#[case::one_watch("remembering")]
#[case::two_watches("doubling")]
fn test_does_not_wait_for_a_condition_while_a_change_is_hidden_until_the_next_one(#[case] controller: &str) {
    let steps = "  - patch: {object: configmaps/web, merge: {data: {size: '2'}}}
    wait: {object: configmaps/web-2}
  - patch: {object: configmaps/web, merge: {data: {size: '3'}}}
";
    let hidden = "early@testkit;hold=4000@operator:event:configmaps:default/web#step2";
    let (code, report) = replayed_with(controller, steps, hidden);
    assert_eq!(code, Some(1), "{report}");
    assert!(report.contains("configmaps default/web-2: missing"), "{report}");
}

/// The operator creates two objects for `web`, which outlive it. It observes `web` only after its deletion.
#[test]
fn objects_for_an_object_that_was_deleted_while_it_was_hidden_are_not_expected() {
    let hidden = "early@testkit;hold=4000@operator:event:configmaps:default/web#step1";
    let (code, report) = replayed_with("fixed", "  - delete: configmaps/web\n", hidden);
    assert_eq!(code, Some(0), "{report}");
}

/// The watch is held for much longer than two waits of a second, so that the next step also begins in time on a busy
/// machine.
#[test]
fn only_the_step_after_a_fault_begins_during_the_fault() {
    let steps = "  - patch: {object: configmaps/web, merge: {data: {size: '2'}}}
  - wait: {object: configmaps/web-2}
  - patch: {object: configmaps/web, merge: {data: {size: '3'}}}
    wait: {object: configmaps/web-3}
  - patch: {object: configmaps/web, merge: {data: {size: '4'}}}
";
    let hidden = "early@testkit;hold=12000@operator:event:configmaps:default/web#step2";
    let (code, report) = replayed_with("remembering", steps, hidden);
    assert_eq!(code, Some(1), "{report}");
    assert!(report.contains("configmaps default/web-2: missing"), "{report}");
    assert!(!report.contains("configmaps default/web-3: missing"), "{report}");
}

/// The operator observes the deletion of `web` and removes its finalizer six seconds later. The plan skips the only
/// step that may begin before.
#[test]
fn object_is_created_again_after_its_deletion_if_the_step_in_between_is_skipped() {
    let directory = Directory::new();
    let path = scenario(&directory, "finalizing");
    let yaml = fs::read_to_string(&path).expect("the file exists");
    let metadata = "{name: web, labels: {role: source}, finalizers: [example.com/it]}";
    let steps = format!(
        "steps:
  - {{name: create web, object: {{apiVersion: v1, kind: ConfigMap, metadata: {metadata}}}}}
  - delete: configmaps/web
  - {{name: between, object: {{apiVersion: v1, kind: ConfigMap, metadata: {{name: other}}}}}}
  - {{name: create web again, object: {{apiVersion: v1, kind: ConfigMap, metadata: {metadata}}}}}
faults: [crashes]
within: 20s
"
    );
    let (head, _) = yaml.split_once("steps:\n").expect("the scenario has steps");
    let (_, tail) = yaml.split_once("within: 3s\n").expect("the scenario has a time limit");
    let path = directory.write("finalizing.yaml", &format!("{head}{steps}{tail}"));
    let hidden = "early@testkit;skip=between;hold=6000@operator:event:configmaps:default/web#step2";
    let output = drydock(&["explore", &path.display().to_string(), "--replay", hidden]);
    let report = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{report}\n{}", text(&output.stderr));
    assert!(!report.contains("has no effect"), "{report}");
}

/// A run of the search fails after 8 s without a change, and the runs that confirm the failure wait longer.
#[test]
fn fields_that_become_equal_late_are_still_compared() {
    let directory = Directory::new();
    let path = scenario(&directory, "tardy");
    let yaml = fs::read_to_string(&path).expect("the file exists");
    let yaml = yaml
        .replace("[crashes]", "[errors]")
        .replace("within: 3s", "within: 12s");
    let path = directory.write("tardy.yaml", &yaml).display().to_string();
    let output = drydock(&["explore", &path, "--plans", "8"]);
    let report = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{report}\n{}", text(&output.stderr));
    assert!(!report.contains("no longer compared"), "{report}");
}

#[cfg(target_os = "linux")]
#[test]
fn busy_process_has_not_settled() {
    let directory = Directory::new();
    let path = scenario(&directory, "computing");
    let yaml = fs::read_to_string(&path).expect("the file exists");
    let next = "  - wait: {object: configmaps/web-second, timeout: 0s}\nfaults: [crashes]\n";
    let yaml = yaml.replace("faults: [crashes]\n", next);
    let path = directory.write("computing.yaml", &yaml).display().to_string();
    let output = drydock(&["explore", &path, "--plans", "1"]);
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}\n{}",
        text(&output.stdout),
        text(&output.stderr)
    );
}

#[test]
fn stale_list_after_a_crash_is_found_after_few_plans() {
    let directory = Directory::new();
    let path = scenario(&directory, "following");
    let yaml = fs::read_to_string(&path).expect("the file exists");
    let (head, tail) = yaml
        .split_once("faults: [crashes]\n")
        .expect("the scenario names faults");
    let again = "  - {name: delete web, delete: configmaps/web}\n  - name: create web again
    object:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: web, labels: {role: source}}
";
    // All runs that have begun count as plans. Without this limit, 32 runs begin immediately on an idle machine.
    let yaml = format!("{head}{again}faults: [crashes, processes]\nparallel: 8\n{tail}");
    let path = directory.write("following.yaml", &yaml).display().to_string();
    let json = directory.0.join("report.json");
    let output = drydock(&["explore", &path, "--json", &json.display().to_string()]);
    let report = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{report}\n{}", text(&output.stderr));
    let read: Value =
        serde_json::from_str(&fs::read_to_string(&json).expect("the file exists")).expect("the text is valid JSON");
    let replay = read["failures"][0]["replay"]
        .as_str()
        .expect("the failure has a replay string");
    assert!(
        replay.contains(";rewind=2@operator:list:configmaps:default/#"),
        "{replay}"
    );
    assert!(
        report.contains("a replica that lags by the last 2 changes of specs"),
        "{report}"
    );
    let plans = read["coverage"]["plans"].as_u64().expect("the value is a number");
    assert!(plans <= 30, "{plans} plans\n{report}");
}

/// With private networks, concurrent runs listen on the same port. If private networks are not permitted, the reason is
/// reported.
#[cfg(target_os = "linux")]
#[test]
fn runs_with_private_networks_do_not_share_ports() {
    let directory = Directory::new();
    let path = scenario(&directory, "listening");
    let yaml = fs::read_to_string(&path).expect("the file exists");
    let path = directory.write("listening.yaml", &format!("{yaml}network: private\nparallel: 4\n"));
    let output = drydock(&["explore", &path.display().to_string(), "--plans", "8"]);
    let report = text(&output.stdout);
    let probe = Command::new("unshare").args(["--net", "ip", "link"]).output();
    if probe.is_ok_and(|it| it.status.success()) {
        assert_eq!(output.status.code(), Some(0), "{report}");
        assert!(report.contains("no failure found"), "{report}");
    } else {
        assert_eq!(output.status.code(), Some(1), "{report}");
        assert!(report.contains("`network: private` needs"), "{report}");
    }
}

#[test]
fn panic_of_a_process_fails_without_any_fault_and_shows_its_output() {
    let directory = Directory::new();
    let path = scenario(&directory, "panicking").display().to_string();
    let output = drydock(&["explore", &path]);
    let report = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{report}");
    assert!(report.contains("the scenario fails without any fault"), "{report}");
    assert!(report.contains("nothing works"), "{report}");
}

/// Writes a scenario like [`scenario`] in which some text is replaced.
fn changed(directory: &Directory, controller: &str, from: &str, to: &str) -> String {
    let path = scenario(directory, controller);
    let yaml = fs::read_to_string(&path).expect("the scenario can be read");
    assert!(yaml.contains(from), "{yaml}");
    fs::write(&path, yaml.replacen(from, to, 1)).expect("the scenario can be written");
    path.display().to_string()
}

#[test]
fn failed_command_is_reported_with_its_last_output() {
    let directory = Directory::new();
    let path = changed(
        &directory,
        "fixed",
        "steps:\n",
        "steps:\n  - {name: count, run: seq 1 9999; exit 3}\n",
    );
    let output = drydock(&["explore", &path]);
    let report = text(&output.stdout);
    assert!(report.contains("exit status: 3"), "{report}");
    assert!(report.contains("9998\n9999"), "{report}");
}

#[test]
fn read_of_one_object_does_not_make_a_controller_ready() {
    let directory = Directory::new();
    let path = changed(
        &directory,
        "reading",
        "    insecure: true\n",
        "    insecure: true\n    startup: 2s\n",
    );
    let output = drydock(&["explore", &path]);
    let report = text(&output.stdout);
    assert!(
        report.contains("operator was not ready within 2s; increase its `startup`"),
        "{report}"
    );
    assert!(report.contains("it has not listed or watched a resource"), "{report}");
}

const STEPS: &str = "steps: [{delete: configmaps/web}]\n";

#[rstest]
#[case::unknown_field("controllers: [{name: a, command: [x], comand: y}]\nsteps: []", "line 1", "comand")]
#[case::missing_controller("controllers: []\nsteps: []", "controllers", "at least one")]
#[case::two_actions(
    "controllers: [{name: a, command: [x]}]\nsteps:\n  - {pause: 1s, run: ls}",
    "line 3",
    "only one action"
)]
#[case::missing_file(
    "controllers: [{name: a, command: [x]}]\nsteps:\n  - apply: nothing.yaml",
    "line 3",
    "nothing.yaml does not exist"
)]
#[case::unknown_worker(
    "controllers: [{name: a, command: [x]}]\ncluster: {workers: [cook]}\nsteps: []",
    "cluster.workers",
    "cook"
)]
#[case::unknown_kind_of_fault(
    "controllers: [{name: a, command: [x]}]\nfaults: [floods]\nsteps: []",
    "faults",
    "the known kinds are crashes"
)]
#[case::check_without_a_rule(
    "controllers: [{name: a, command: [x]}]\nsteps: []\nchecks:\n  - {name: b, object: pods/a}",
    "line 4: checks[0]",
    "exactly one of always, eventually and sometimes is required"
)]
#[case::rule_without_objects(
    "controllers: [{name: a, command: [x]}]\nsteps: []\nchecks:\n  - {name: b, always: 'true'}",
    "line 4: checks[0]",
    "a rule requires one of them"
)]
#[case::invalid_rule(
    "controllers: [{name: a, command: [x]}]\nsteps: []\nchecks:\n  - {name: b, always: obj == 1, object: pods/a}",
    "line 4: checks[0]: always",
    "undeclared reference to 'obj'"
)]
#[case::rule_of_another_type(
    "controllers: [{name: a, command: [x]}]\nsteps: []\nchecks:\n  - {name: b, always: {exec: x}}",
    "line 4",
    "expected a CEL rule, or `run`"
)]
#[case::stubs_without_a_private_network(
    "controllers: [{name: a, command: [x]}]\nsteps: []\ncluster: {stubs: [{pods: {}, port: 80, http: [{}]}]}",
    "cluster.stubs",
    "can only reach stubs with `network: private`"
)]
#[case::stub_without_a_program(
    "controllers: [{name: a, command: [x]}]\nsteps: []\nnetwork: private\ncluster: {stubs: [{pods: {}, port: 80}]}",
    "cluster.stubs[0]",
    "either http or command is required"
)]
#[case::answer_with_an_unknown_placeholder(
    "controllers: [{name: a, command: [x]}]\nsteps: []\nnetwork: private
cluster: {stubs: [{pods: {}, port: 80, http: [{body: 'I am ${POD}'}]}]}",
    "cluster.stubs[0]: http[0].body",
    "`${POD}` is not a known placeholder"
)]
#[case::answer_with_an_invalid_script(
    "controllers: [{name: a, command: [x]}]\nsteps: []\nnetwork: private
cluster: {stubs: [{pods: {}, port: 80, http: [{script: {readyAfter: 1}}]}]}",
    "cluster.stubs[0]: http[0].script",
    "unknown field `readyAfter`"
)]
#[case::fixed_webhook_port_without_a_private_network(
    "controllers: [{name: a, command: [x], webhookPort: 9443}]\nsteps: []",
    "controllers[0].webhookPort",
    "without `network: private`"
)]
#[case::missing_file_of_a_controller(
    "controllers: [{name: a, command: [x], files: [nothing.yaml]}]\nsteps: []",
    "controllers[0].files",
    "nothing.yaml does not exist"
)]
#[case::unknown_placeholder(
    "controllers: [{name: a, command: [x, '--port=${PROT}']}]\nsteps: []",
    "controllers[0].command",
    "`${PROT}` is not a known placeholder"
)]
#[case::unknown_placeholder_in_the_environment(
    "controllers: [{name: a, command: [x], env: {B: '${FILES}/b'}}]\nsteps: []",
    "controllers[0].env.B",
    "`${FILES}` is not a known placeholder"
)]
#[case::unknown_stop_signal(
    "controllers: [{name: a, command: [x], stop: {signal: SIGWINCH}}]\nsteps: []",
    "line 1",
    "SIGWINCH"
)]
#[case::long_grace(
    "controllers: [{name: a, command: [x], stop: {grace: 2m}}]\nsteps: []",
    "controllers[0].stop.grace",
    "the longest time is 60s"
)]
#[case::two_checks_with_the_same_name(
    "controllers: [{name: a, command: [x]}]\nsteps: []\nchecks:\n  - {name: b, always: {run: x}}\n  - {name: b, \
     always: {run: x}}",
    "line 5: checks[1]",
    "\"b\" is used twice"
)]
#[case::invalid_selector(
    "controllers: [{name: a, command: [x]}]\nsteps: []\nchecks:\n  - {name: b, always: 'true', objects: pods, selector: \
     'a in b'}",
    "line 4: checks[0]: selector",
    "in"
)]
#[case::two_kinds_of_patches(
    "controllers: [{name: a, command: [x]}]\nsteps: [{patch: {object: a/b, merge: {}, json: []}}]",
    "line 2: steps[0]: patch",
    "one of merge, json, strategic and apply"
)]
#[case::edit_without_a_change(
    "controllers: [{name: a, command: [x]}]\nsteps: [{edit: {object: a/b}}]",
    "line 2: steps[0]: edit",
    "either run or json"
)]
#[case::user_without_roles(
    "controllers: [{name: a, command: [x]}]\nsteps: [{delete: a/b, as: jane}]",
    "line 2: steps[0]: as",
    "cluster.rbac"
)]
#[case::invalid_wait(
    "controllers: [{name: a, command: [x]}]\nsteps: [{wait: {object: a/b, for: ready}}]",
    "line 2: steps[0]: wait.for",
    "is not one of condition=TYPE"
)]
#[case::invalid_pod_script(
    "controllers: [{name: a, command: [x]}]\nsteps: []\ncluster: {pods: [{script: {crashes: true}}]}",
    "cluster.pods[0]",
    "unknown field `crashes`"
)]
#[case::pod_scripts_without_a_kubelet(
    "controllers: [{name: a, command: [x]}]\nsteps: []\ncluster: {workers: [gc], pods: [{script: {crashLoop: true}}]}",
    "cluster.pods",
    "the worker kubelet"
)]
#[case::webhooks_without_a_port(
    "controllers: [{name: a, command: [x], webhooks: [shop/hooks]}]\nsteps: []",
    "controllers[0].webhooks",
    "must contain ${PORT_WEBHOOK}"
)]
#[case::webhooks_of_two_controllers(
    "controllers: [{name: a, command: ['${PORT_WEBHOOK}']}, {name: b, command: ['${PORT_WEBHOOK}']}]\nsteps: []",
    "controllers[0].webhooks",
    "each must name its Services"
)]
#[case::duration_without_a_unit("controllers: [{name: a, command: [x]}]\nwithin: soon\nsteps: []", "line 2", "soon")]
fn scenario_errors_contain_their_location(#[case] yaml: &str, #[case] place: &str, #[case] reason: &str) {
    let directory = Directory::new();
    let path = directory.write("scenario.yaml", yaml).display().to_string();
    let output = drydock(&["explore", &path]);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("scenario.yaml"), "{error}");
    assert!(error.contains(place), "{error}");
    assert!(error.contains(reason), "{error}");
}

#[rstest]
#[case::pipe("mkfifo config/it", "config/it is neither a file nor a directory")]
#[case::link_to_a_directory("ln -s .. config/it", "config/it is a link to a directory")]
#[case::broken_link("ln -s nothing config/it", "config/it: ")]
fn unusable_files_in_a_directory_of_files_are_refused(#[case] command: &str, #[case] reason: &str) {
    let directory = Directory::new();
    let line = format!("mkdir config && {command}");
    let made = Command::new("sh")
        .args(["-c", &line])
        .current_dir(&directory.0)
        .status();
    assert!(made.expect("sh exists").success());
    let yaml = "controllers: [{name: a, command: [x], files: [config]}]\nsteps: []\n";
    let path = directory.write("scenario.yaml", yaml).display().to_string();
    let output = drydock(&["explore", &path]);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("controllers[0].files: "), "{error}");
    assert!(error.contains(reason), "{error}");
}

#[rstest]
#[case::missing_file("missing.yaml")]
#[case::directory("")]
fn path_that_is_not_a_scenario_is_refused_with_a_hint(#[case] name: &str) {
    let directory = Directory::new();
    let path = directory.0.join(name).display().to_string();
    let output = drydock(&["explore", &path]);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(
        error.contains("`drydock explore --init PATH...` writes a scenario"),
        "{error}"
    );
}

#[rstest]
#[case::missing_file("./no-such-program", "./no-such-program does not exist in /")]
#[case::missing_in_path("no-such-program", "no-such-program does not exist in PATH")]
#[case::not_executable("./scenario.yaml", "scenario.yaml is not executable")]
fn program_that_cannot_be_started_fails_with_a_description(#[case] program: &str, #[case] message: &str) {
    let directory = Directory::new();
    let yaml = format!("controllers: [{{name: a, command: [{program}]}}]\n{STEPS}");
    let path = directory.write("scenario.yaml", &yaml).display().to_string();
    let output = drydock(&["explore", &path]);
    let report = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{report}");
    assert!(report.contains("a cannot be started: "), "{report}");
    assert!(report.contains(message), "{report}");
}

/// Creates a named pipe. The reader receives end-of-file when the last writing process has ended.
fn pipe(directory: &Directory) -> PathBuf {
    let path = directory.0.join("pipe");
    let made = Command::new("mkfifo").arg(&path).status().expect("mkfifo exists");
    assert!(made.success());
    path
}

fn sleeping(directory: &Directory, pipe: &Path) -> String {
    let line = format!("exec 3>{}; sleep 1000 & sleep 1000", pipe.display());
    let yaml =
        format!("controllers: [{{name: a, command: [sh, -c, {line:?}], startup: 1000s}}]\nreferences: 2\n{STEPS}");
    directory.write("scenario.yaml", &yaml).display().to_string()
}

#[rstest]
#[case::killed_command("-KILL")]
#[case::interrupted_command("-INT")]
fn processes_do_not_outlive_the_command(#[case] signal: &str) {
    let directory = Directory::new();
    let pipe = pipe(&directory);
    let path = sleeping(&directory, &pipe);
    let mut command = Command::new(env!("CARGO_BIN_EXE_drydock"))
        .args(["explore", &path])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the command starts");
    // Opening the pipe completes when a controller has opened the other end.
    let mut writers = fs::File::open(&pipe).expect("the pipe exists");
    let killed = Command::new("kill").args([signal, &command.id().to_string()]).status();
    assert!(killed.expect("the program kill exists").success());
    let mut rest = Vec::new();
    writers.read_to_end(&mut rest).expect("the pipe is closed");
    assert!(!command.wait().expect("the process ends").success());
}

#[test]
fn interrupted_search_reports_its_progress() {
    let directory = Directory::new();
    let path = scenario(&directory, "fixed").display().to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_drydock"))
        .args(["explore", &path])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    let progress = BufReader::new(command.stderr.take().expect("stderr is piped"));
    let begun = progress
        .lines()
        .map_while(Result::ok)
        .find(|it| it.contains("concurrent runs"));
    assert!(begun.is_some(), "the search does not begin");
    let killed = Command::new("kill").args(["-INT", &command.id().to_string()]).status();
    assert!(killed.expect("the program kill exists").success());
    let mut report = String::new();
    let mut output = command.stdout.take().expect("stdout is piped");
    output.read_to_string(&mut report).expect("the output is UTF-8");
    assert_eq!(command.wait().expect("the process ends").code(), Some(3), "{report}");
    assert!(report.contains("interrupted"), "{report}");
}

#[test]
fn schema_describes_controllers_and_steps() {
    let output = drydock(&["schema"]);
    let schema: Value = serde_json::from_slice(&output.stdout).expect("the text is valid JSON");
    let properties = &schema["properties"];
    assert_eq!(properties["controllers"]["type"], "array", "{schema:#}");
    assert_eq!(schema["required"], serde_json::json!(["controllers", "steps"]));
    assert_eq!(schema["additionalProperties"], false);
}
