//! The life of processes: readiness, replicas, exits, and faults that only processes have.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use futures::StreamExt;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams, PostParams, WatchEvent, WatchParams};
use kube::{Client, ResourceExt};
use rstest::rstest;

use super::fields::{WEB, explored_with};
use super::{Directory, changed, drydock, scenario, text};

/// Pause between two reads of a controller that polls.
const POLL: Duration = Duration::from_millis(200);

/// The plan after which the repaired controller is restarted at the end of its work.
const RESTART: &str = "restart@operator";

fn map(name: &str) -> ConfigMap {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.to_owned());
    map
}

/// Acquires a Lease as soon as nobody holds it. Like the Leases of real leaders, the Lease remains when the process is
/// killed; unlike them, it never expires.
pub(super) async fn elect(client: &Client) {
    let leases: Api<Lease> = Api::default_namespaced(client.clone());
    let identity = format!("{:08x}", fastrand::u32(..));
    loop {
        let mut lease = leases.get_opt("lock").await.ok().flatten().unwrap_or_default();
        let spec = lease.spec.get_or_insert_default();
        let is_free = spec.holder_identity.as_deref().unwrap_or_default().is_empty();
        spec.holder_identity = Some(identity.clone());
        let exists = lease.metadata.resource_version.is_some();
        lease.metadata.name = Some("lock".to_owned());
        let written = match (is_free, exists) {
            (false, _) => None,
            (true, false) => leases.create(&PostParams::default(), &lease).await.ok(),
            (true, true) => leases.replace("lock", &PostParams::default(), &lease).await.ok(),
        };
        if written.is_some() {
            return;
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Waits for a source. Returns the client for ConfigMaps.
async fn source(client: Client) -> Api<ConfigMap> {
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let sources = ListParams::default().labels("role=source");
    while maps.list(&sources).await.is_ok_and(|it| it.items.is_empty()) {
        tokio::time::sleep(POLL).await;
    }
    maps
}

/// Creates an object with a generated name, and creates another one if the response takes longer than two seconds.
pub(super) async fn hasten(client: Client) {
    let maps = source(client).await;
    let mut made = ConfigMap::default();
    made.metadata.generate_name = Some("made-".to_owned());
    let params = PostParams::default();
    loop {
        let create = maps.create(&params, &made);
        if tokio::time::timeout(Duration::from_secs(2), create).await.is_ok() {
            return std::future::pending().await;
        }
    }
}

/// Creates a second object only if the creation of the first one has taken less than a second.
#[expect(clippy::disallowed_methods, reason = "the controller is a process in real time")]
pub(super) async fn hurry(client: Client) {
    let maps = source(client).await;
    let began = std::time::Instant::now();
    for name in ["first", "second"] {
        while maps.create(&PostParams::default(), &map(name)).await.is_err() {
            tokio::time::sleep(POLL).await;
        }
        if began.elapsed() > Duration::from_secs(1) {
            break;
        }
    }
    std::future::pending().await
}

/// Creates an object for each source, but does not list again when its watch ends.
pub(super) async fn watch_once(client: Client) {
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let listed = maps.list(&ListParams::default()).await.expect("the server answers");
    let version = listed.metadata.resource_version.expect("a list has a version");
    let sources = WatchParams::default().labels("role=source");
    let events = maps.watch(&sources, &version).await.expect("the server answers");
    let mut events = std::pin::pin!(events);
    while let Some(event) = events.next().await {
        if let Ok(WatchEvent::Added(source)) = event {
            let made = map(&format!("made-{}", source.name_any()));
            while maps.create(&PostParams::default(), &made).await.is_err() {
                tokio::time::sleep(POLL).await;
            }
        }
    }
    std::future::pending().await
}

/// Serves `/readyz` at the port in the last argument, and reads nothing from the API server.
pub(super) async fn serve_readiness() {
    let port = std::env::args().next_back().and_then(|it| it.parse().ok());
    let address = ("127.0.0.1", port.expect("the last argument is a port"));
    let listener = tokio::net::TcpListener::bind(address).await.expect("the port is free");
    let routes = Router::new().route("/readyz", get(async || "ok"));
    axum::serve(listener, routes).await.expect("the server runs");
}

#[rstest]
#[case::search(&["--plans", "6"])]
#[case::crash_of_the_leader(&["--replay", "crash-after=100@operator-0:create:configmaps:default/#1"])]
fn replica_that_waits_for_the_leader_is_ready(#[case] arguments: &[&str]) {
    let fields = format!("{WEB}faults: [crashes]\n");
    let found = explored_with("electing", "", "    replicas: 2\n", &fields, arguments);
    assert_eq!(found.code, Some(0), "{}", found.report);
    assert!(!found.report.contains("has no effect"), "{}", found.report);
}

#[rstest]
#[case::slow_answer("hasty", "slow-answer=4000")]
#[case::freeze("hurried", "freeze=3000")]
#[case::server_restart("watching", "server-restart=1000")]
#[case::stop("buggy", "stop=1000")]
fn fault_of_processes_finds_a_bug(#[case] controller: &str, #[case] fault: &str) {
    let plan = &*format!("{fault}@operator:create:configmaps:default/#1");
    let again = "  - object: {apiVersion: v1, kind: ConfigMap, metadata: {name: other, labels: {role: source}}}\n";
    let found = explored_with(controller, "", "", &format!("{WEB}{again}"), &["--replay", plan]);
    assert_eq!(found.code, Some(1), "{}", found.report);
    let failure = &found.json["failures"][0];
    assert_eq!(failure["oracle"], "end state", "{}", found.report);
    assert_eq!(failure["replay"], plan, "{}", found.report);
}

#[rstest]
#[case::freeze("freeze=3000")]
#[case::stop("stop=1000")]
fn replay_of_a_fault_without_an_effect_on_the_controller_passes(#[case] fault: &str) {
    let plan = &*format!("{fault}@operator:create:configmaps:default/#1");
    let found = explored_with("fixed", "", "", WEB, &["--replay", plan]);
    assert_eq!(found.code, Some(0), "{}", found.report);
    assert!(!found.report.contains("has no effect"), "{}", found.report);
}

#[rstest]
#[case::signal_of_an_error("kill -SEGV $$", "true", "was killed by signal 11")]
#[case::exit_without_restarts(
    "echo the last line; exit 7",
    "false",
    "exited with code 7; its last output:\n    the last line"
)]
fn exit_of_a_process_fails(#[case] line: &str, #[case] restarts: &str, #[case] message: &str) {
    let directory = Directory::new();
    let yaml = format!(
        "controllers: [{{name: a, command: [sh, -c, {line:?}], restarts: {restarts}, startup: 3s}}]\nreferences: 2\n\
         steps: [{{pause: 1s}}]\n"
    );
    let path = directory.write("scenario.yaml", &yaml).display().to_string();
    let output = drydock(&["explore", &path]);
    let report = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{report}");
    assert!(report.contains("no panic: a "), "{report}");
    assert!(report.contains(message), "{report}");
}

#[test]
fn exits_of_a_process_that_restarts_are_noted_with_their_codes() {
    let found = explored_with(
        "exiting",
        "",
        "",
        &format!("{WEB}faults: [crashes]\n"),
        &["--plans", "1"],
    );
    assert_eq!(found.code, Some(0), "{}", found.report);
    assert!(
        found.report.contains("operator ended by itself and was restarted"),
        "{}",
        found.report
    );
    assert!(found.report.contains("exited with code 7 ("), "{}", found.report);
}

#[test]
fn process_is_ready_when_its_url_answers() {
    let own = "    ready: {url: 'http://127.0.0.1:${PORT}/readyz'}\n";
    let steps = "cluster: {workers: []}\nsteps: [{object: {apiVersion: v1, kind: ConfigMap, metadata: {name: web}}}]\n";
    let found = explored_with("serving readiness", ", '${PORT}'", own, steps, &["--replay", RESTART]);
    assert_eq!(found.code, Some(0), "{}", found.report);
}

#[test]
fn placeholders_in_the_files_of_a_controller_are_filled_in() {
    let directory = Directory::new();
    directory.write("settings", "${NAME} ${PORT} ${OTHER}");
    let line = "cp $0 ${SCENARIO}/copy; echo $1 > ${SCENARIO}/port; echo started; while :; do sleep 0.1; done";
    let yaml = format!(
        "controllers:
  - name: operator
    command: [sh, -c, {line:?}, '${{FILES}}/settings', '${{PORT}}']
    files: [settings]
    ready: {{log: started}}
cluster: {{workers: []}}
within: 2s
quiet: 1s
references: 2
steps: [{{object: {{apiVersion: v1, kind: ConfigMap, metadata: {{name: web}}}}}}]
"
    );
    let path = directory.write("scenario.yaml", &yaml).display().to_string();
    let output = drydock(&["explore", &path, "--replay", RESTART]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
    let read = |name: &str| fs::read_to_string(directory.0.join(name)).expect("the file was written");
    let port = read("port");
    assert_eq!(read("copy"), format!("operator {} ${{OTHER}}", port.trim_end()));
}

/// Replays a restart at the end of a scenario with a shell script, which must print `started`. `stop` contains the
/// signal and the time with which the script is stopped.
fn restarted(directory: &Directory, script: &str, stop: &str) -> Output {
    let yaml = format!(
        "controllers: [{{name: operator, command: [sh, -c, {script:?}], ready: {{log: started}}, stop: {stop}}}]
cluster: {{workers: []}}
within: 2s
quiet: 1s
references: 2
steps: [{{object: {{apiVersion: v1, kind: ConfigMap, metadata: {{name: web}}}}}}]
"
    );
    let path = directory.write("scenario.yaml", &yaml).display().to_string();
    drydock(&["explore", &path, "--replay", RESTART])
}

/// The first value is the pause between the signal and the exit of the process, in seconds.
#[rstest]
#[case::default_signal(0, "{grace: 60s}", Some("TERM\n"))]
#[case::signal(0, "{signal: SIGUSR1, grace: 60s}", Some("USR1\n"))]
#[case::grace_that_is_long_enough(1, "{grace: 60s}", Some("TERM\n"))]
#[case::grace_that_is_too_short(30, "{grace: 10ms}", None)]
fn restart_at_the_end_stops_the_process_with_its_signal(
    #[case] pause: u32,
    #[case] stop: &str,
    #[case] expected: Option<&str>,
) {
    let directory = Directory::new();
    let trap = format!("sleep {pause}; echo $it >> ${{SCENARIO}}/signals; exit 0");
    let line = format!("for it in TERM USR1; do trap \"{trap}\" $it; done; echo started; while :; do sleep 0.1; done");
    let output = restarted(&directory, &line, stop);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
    let signals = fs::read_to_string(directory.0.join("signals")).ok();
    assert_eq!(signals.as_deref(), expected, "{}", text(&output.stdout));
}

/// The controller has logged an error before the signal.
#[rstest]
#[case::panic(
    "echo 'panic: it is closed'; exit 2",
    Some("operator panicked and exited with code 2 when it was stopped:\n    panic: it is closed")
)]
#[case::signal_of_an_error("kill -SEGV $$", Some("operator was killed by signal 11 when it was stopped"))]
#[case::error_without_a_panic("exit 1", None)]
#[case::successful_exit("echo 'panic: it is closed'; exit 0", None)]
#[case::exit_code_of_the_stop_signal("echo 'panic: it is closed'; exit 143", None)]
fn panic_of_a_process_that_is_being_stopped_fails(#[case] trap: &str, #[case] message: Option<&str>) {
    let directory = Directory::new();
    let log = "echo 'Traceback (most recent call last)'; echo started";
    let line = format!("trap {trap:?} TERM; {log}; while :; do sleep 0.1; done");
    let output = restarted(&directory, &line, "{grace: 60s}");
    let report = text(&output.stdout);
    assert_eq!(output.status.code(), Some(i32::from(message.is_some())), "{report}");
    assert!(message.is_none_or(|it| report.contains(it)), "{report}");
}

#[test]
fn search_that_must_try_all_single_faults_fails_if_its_budget_is_too_small() {
    let directory = Directory::new();
    let budget = "failures: 1, time: 120s";
    let path = changed(
        &directory,
        "fixed",
        budget,
        &format!("{budget}, plans: 1, allSingles: true"),
    );
    let output = drydock(&["explore", &path]);
    let report = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{report}");
    assert!(report.contains("violated: allSingles: "), "{report}");
    assert!(
        report.contains("single faults were not tried: increase the budget"),
        "{report}"
    );
}

#[test]
fn kept_run_answers_at_its_kubeconfig_until_it_is_interrupted() {
    let directory = Directory::new();
    let path = scenario(&directory, "fixed").display().to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_drydock"))
        .args(["explore", &path, "--keep", "--replay", RESTART])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    let lines = BufReader::new(command.stderr.take().expect("stderr is piped")).lines();
    let mut kubeconfigs = BTreeMap::new();
    for line in lines.map_while(Result::ok) {
        if let Some((who, kubeconfig)) = line.split_once(", KUBECONFIG=") {
            kubeconfigs.insert(who.to_owned(), kubeconfig.to_owned());
        }
        if line.contains("the run is kept") {
            break;
        }
    }
    assert_eq!(kubeconfigs.len(), 1, "{kubeconfigs:?}");
    let (who, kubeconfig) = kubeconfigs.pop_first().expect("there is one controller");
    assert!(who.starts_with("drydock: operator: process "), "{who}");
    let kubeconfig = fs::read_to_string(kubeconfig).expect("the kubeconfig exists");
    let kubeconfig = kube::config::Kubeconfig::from_yaml(&kubeconfig).expect("the kubeconfig is valid");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let found = runtime.expect("the runtime can be built").block_on(async {
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await;
        let client = Client::try_from(config.expect("the kubeconfig is complete")).expect("the server is valid");
        Api::<ConfigMap>::default_namespaced(client).get_opt("web-second").await
    });
    let killed = Command::new("kill").args(["-INT", &command.id().to_string()]).status();
    assert!(killed.expect("the program kill exists").success());
    let ended = command.wait().expect("the process ends");
    assert!(found.expect("the server answers").is_some(), "web-second is missing");
    assert_eq!(ended.code(), Some(0), "the replay passes");
}
