//! Replays recorded scenarios: sends the requests of each scenario, and compares the responses with the recorded
//! responses of kube-apiserver. `README.md` in this directory describes their origin, and how to add a scenario.

mod compare;
#[path = "../common/kubectl.rs"]
mod kubectl;
mod normalise;
mod replay;
mod scenario;
mod shell;

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use compare::{Difference, compare, known_differences, report};
use fake_apiserver::{Anonymous, ApiServer, ApiServerBuilder, Authorization, Serving, Worker};
use replay::Replay;
use rstest::rstest;
use scenario::{AREAS, Scenario};

#[test]
fn readme_states_the_number_of_scenarios() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files = std::fs::read_dir(tests.join("tests/conformance/transcripts")).expect("the transcripts exist");
    let scenarios = files.map(|file| {
        let text = std::fs::read_to_string(file.expect("the directory entry is readable").path())
            .expect("a transcript is text");
        text.lines().filter(|line| !line.trim().is_empty()).count()
    });
    let claim = format!(
        "answers {} scenarios, recorded from kube-apiserver 1.36",
        scenarios.sum::<usize>()
    );
    let readme = std::fs::read_to_string(tests.join("../README.md")).expect("README.md exists");
    assert!(readme.contains(&claim), "README.md lacks: {claim}");
}

/// Results of the scenarios of an area.
#[derive(Debug, Default)]
struct Tally {
    passed: usize,
    known: usize,
    /// Scenarios that failed.
    complaints: Vec<String>,
}

impl Tally {
    fn count(&mut self, area: &str, scenario: &Scenario, differences: &[Difference]) {
        let name = format!("{area}/{}", scenario.name);
        let is_known = known_differences().contains_key(&name);
        match (differences.is_empty(), is_known) {
            (true, false) => self.passed += 1,
            (false, true) => self.known += 1,
            (false, false) => self.complaints.push(report(&name, &scenario.about, differences)),
            (true, true) => self
                .complaints
                .push(format!("{name} passes: remove it from known_differences.txt\n")),
        }
        if is_known && std::env::var_os("CONFORMANCE_ALL").is_some() {
            say(&report(&name, &scenario.about, differences));
        }
    }

    #[track_caller]
    fn finish(self, area: &str) {
        let Self {
            passed,
            known,
            complaints,
        } = self;
        say(&format!("{area}: {passed} passed, {known} differ as is known"));
        assert!(
            complaints.is_empty(),
            "{area}: {} unexpected results\n\n{}",
            complaints.len(),
            complaints.join("\n")
        );
    }
}

/// Returns the scenarios of an area. `CONFORMANCE_ONLY` selects scenarios by a part of their names.
fn chosen(area: &str) -> Vec<Scenario> {
    if matches!(area, "admission" | "crd_cel") && !cfg!(feature = "cel") {
        say(&format!("skipped: {area} needs the feature cel"));
        return Vec::new();
    }
    let only = std::env::var("CONFORMANCE_ONLY").unwrap_or_default();
    let mut scenarios = Scenario::of_area(area);
    scenarios.retain(|scenario| scenario.name.contains(&only));
    scenarios
}

/// Returns the workers that ran when an area was recorded.
fn workers(area: &str) -> &'static [Worker] {
    if area.starts_with("workers_") {
        &[Worker::GarbageCollector, Worker::Namespace]
    } else {
        &[]
    }
}

async fn differences(server: &ApiServer, serving: Option<&Serving>, scenario: &Scenario) -> Vec<Difference> {
    let mut replay = Replay::new(server, serving, scenario);
    let mut answers = match replay.run(scenario).await {
        Ok(answers) => answers,
        Err(why) => return vec![Difference::new("the run", "an answer to every step", why)],
    };
    let mut recorded: Vec<_> = scenario.answers.clone().into_iter().collect();
    normalise::recorded(&mut recorded);
    normalise::normalise(&mut answers, &replay.variables, serving.map(Serving::url).as_deref());
    compare(&recorded, &answers)
}

#[expect(
    clippy::print_stderr,
    reason = "what was left out and what is known to differ has to be said"
)]
fn say(text: &str) {
    eprintln!("{text}");
}

/// The token of the recorder, which has all permissions; the user of `dev-token` has none.
const TOKEN: &str = "admin-token";

/// Returns a server with the options of the recorded server.
fn builder() -> ApiServerBuilder {
    ApiServer::builder()
        .authorization(Authorization::Rbac)
        .anonymous(Anonymous::Allowed)
        .token(TOKEN, "admin", ["system:masters"])
        .token("dev-token", "dev", [""; 0])
}

/// Runs the scenarios in virtual time, without a socket.
#[rstest]
#[tokio::test(start_paused = true)]
async fn responses_equal_the_recordings(
    #[values(
        "admission",
        "apply",
        "builtin_validation",
        "crd",
        "crd_cel",
        "crd_schema",
        "crd_versions",
        "crud",
        "defaulting",
        "delete",
        "discovery",
        "errors",
        "field_validation",
        "list",
        "managed_fields",
        "metadata",
        "patch",
        "selectors",
        "sequences",
        "subresources",
        "table",
        "watch",
        "workers_gc",
        "workers_namespace"
    )]
    area: &str,
) {
    let fresh = builder().workers(workers(area)).start();
    let mut tally = Tally::default();
    for scenario in chosen(area).iter().filter(|scenario| !scenario.needs_programs()) {
        let found = differences(&fresh.fork(), None, scenario).await;
        tally.count(area, scenario, &found);
    }
    tally.finish(area);
}

/// Runs the scenarios with kubectl over HTTP.
#[rstest]
#[tokio::test]
async fn kubectl_prints_the_recorded_output(
    #[values(
        "admission",
        "apply",
        "builtin_validation",
        "crd",
        "crd_cel",
        "crd_schema",
        "crd_versions",
        "crud",
        "defaulting",
        "delete",
        "discovery",
        "errors",
        "field_validation",
        "kubectl",
        "list",
        "managed_fields",
        "patch",
        "selectors",
        "subresources",
        "table",
        "watch"
    )]
    area: &str,
) {
    let mut tally = Tally::default();
    for scenario in chosen(area).iter().filter(|scenario| scenario.needs_programs()) {
        if let Err(reason) = shell::kubectl_folder() {
            say(&format!("skipped: {area}/{} {reason}", scenario.name));
            continue;
        }
        // Programs take time, so a scenario that differs on a busy machine is repeated up to two times.
        let mut found = Vec::new();
        for _ in 0..3 {
            // kubectl computes ages relative to the current date.
            #[expect(clippy::disallowed_methods, reason = "the other side lives in real time")]
            // kubectl does not send tokens over plain HTTP.
            let server = builder()
                .anonymous(Anonymous::Admin)
                .start_time(jiff::Timestamp::now())
                .start();
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
            let serving = server.serve(address).await.expect("loopback has a free port");
            found = differences(&server, Some(&serving), scenario).await;
            if found.is_empty() || known_differences().contains_key(&format!("{area}/{}", scenario.name)) {
                break;
            }
        }
        tally.count(area, scenario, &found);
    }
    tally.finish(area);
}

#[test]
fn known_differences_refer_to_scenarios() {
    let names: BTreeSet<String> = AREAS
        .iter()
        .flat_map(|area| {
            Scenario::of_area(area)
                .into_iter()
                .map(move |scenario| format!("{area}/{}", scenario.name))
        })
        .collect();
    let unknown: Vec<String> = known_differences()
        .into_keys()
        .filter(|name| !names.contains(name))
        .collect();
    assert!(
        unknown.is_empty(),
        "scenarios with these names do not exist: {unknown:?}"
    );
}
