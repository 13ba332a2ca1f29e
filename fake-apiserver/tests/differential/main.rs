//! Sends thousands of generated requests that were recorded with a real kube-apiserver. This server must return the
//! same responses. README.md describes the generation of the requests, and the format of `known_differences.txt`.

mod compare;
mod known;
mod leaves;
mod normal;
mod properties;
mod recording;

use std::path::Path;

use axum::body::Body;
use fake_apiserver::{Anonymous, ApiServer, Authorization, KubernetesVersion};
use http_body_util::BodyExt as _;
use rstest::rstest;
use tower::ServiceExt as _;

use compare::{Answer, difference};
use recording::{Options, Recording, Request, Variables};

/// The administrator's token.
const TOKEN: &str = "admin-token";

/// Maximum number of differences shown by a failing test.
const SHOWN_MAX: usize = 30;

/// Returns a server with the options of the recorded server.
fn start(options: &Options) -> ApiServer {
    let version = options
        .version
        .as_deref()
        .map(str::parse)
        .unwrap_or(Ok(KubernetesVersion::default()));
    ApiServer::builder()
        .kubernetes_version(version.expect("the recorded version is served"))
        .runtime_config(&options.runtime_config)
        .and_then(|it| it.feature_gates(options.gates.iter().map(String::as_str)))
        .expect("the recorded flags are supported")
        .authorization(Authorization::Rbac)
        .anonymous(Anonymous::Allowed)
        .token(TOKEN, "admin", ["system:masters"])
        .token("dev-token", "dev", [""; 0])
        .start()
}

#[test]
fn readme_states_the_number_of_requests_and_differences() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files = std::fs::read_dir(tests.join("tests/differential/requests")).expect("the recordings exist");
    let cases = files.map(|file| {
        Recording::read(&file.expect("the directory entry is readable").path())
            .cases
            .len()
    });
    let cases = cases.sum::<usize>();
    let (thousands, rest) = (cases / 1000, cases % 1000);
    let claim = format!(
        "answers {thousands},{rest:03} generated requests like kube-apiserver, except {} that",
        known::count()
    );
    let readme = std::fs::read_to_string(tests.join("../README.md")).expect("README.md exists");
    assert!(readme.contains(&claim), "README.md lacks: {claim}");
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn responses_equal_the_recordings(#[files("tests/differential/requests/*.jsonl.gz")] path: std::path::PathBuf) {
    let recording = Recording::read(&path);
    let server = start(&recording.options);
    let mut variables = Variables::default();
    for step in &recording.setup {
        set_up(&server, step, &mut variables).await;
    }
    // Managers are sorted by time in whole seconds, so later writes need a later time.
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;

    let mut different = Vec::new();
    for case in &recording.cases {
        let (answer, _) = ask(&server, &case.request, &variables).await;
        if let Some(difference) = difference(&case.answer, &answer) {
            different.push((case.name.clone(), difference));
        }
    }
    let total = recording.cases.len();
    report(&recording.file, total - different.len(), total);
    known::check(&recording.file, &different, SHOWN_MAX);
}

/// Prints the share of equal responses (visible with `--nocapture`).
#[expect(clippy::print_stdout, reason = "it is the figure that the test is about")]
fn report(file: &str, equal: usize, total: usize) {
    println!("{file}: {equal} of {total} responses are the same");
}

/// Creates an object that the cases require, and captures variables from the response.
async fn set_up(server: &ApiServer, step: &recording::Step, variables: &mut Variables) {
    for _ in 0..200 {
        let (answer, raw) = ask(server, &step.request, variables).await;
        if step.until.is_none_or(|status| status == answer.status) {
            assert!(
                answer.status < 400 || answer.status == 409,
                "{} {}: {}",
                step.request.method,
                step.request.path,
                answer.body
            );
            variables.keep(&step.keep, &raw);
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    }
    tokio::time::sleep(std::time::Duration::from_secs_f64(step.pause)).await;
}

/// Returns the normalised response, and its unmodified body.
async fn ask(server: &ApiServer, request: &Request, variables: &Variables) -> (Answer, Vec<u8>) {
    let body = request.body.as_deref().map(|body| variables.fill(body));
    let sent = request.http(TOKEN, &variables.fill_path(&request.path), body.clone());
    let Ok(response) = server.service().oneshot(sent.map(Body::from)).await;
    let (parts, stream) = response.into_parts();
    let raw = stream
        .collect()
        .await
        .map(|it| it.to_bytes().to_vec())
        .unwrap_or_default();
    let answer = Answer {
        status: parts.status.as_u16(),
        headers: compare::headers(&parts.headers),
        body: normal::form(&raw, body.as_deref().unwrap_or_default()),
    };
    (answer, raw)
}
