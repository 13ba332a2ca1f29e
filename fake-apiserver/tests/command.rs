//! The command `fake-apiserver`, as run by a user or a script: its output and exit code.

mod common;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Output;

use common::{Server, command, folder};
use rstest::rstest;
#[cfg(unix)]
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

fn run(args: &[&str]) -> Output {
    command(args).output().expect("cargo has built the command")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("the text is UTF-8")
}

fn path(path: &Path) -> &str {
    path.to_str().expect("the path is UTF-8")
}

/// Returns the response body of a GET.
fn get(server: &Server, path: &str) -> String {
    get_as(server, path, "").1
}

/// Returns the status and the body of the response to a GET with this token.
fn get_as(server: &Server, path: &str, token: &str) -> (u16, String) {
    let mut stream =
        TcpStream::connect(server.url.trim_start_matches("http://")).expect("the server accepts connections");
    let credentials = match token {
        "" => String::new(),
        token => format!("Authorization: Bearer {token}\r\n"),
    };
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: localhost\r\n{credentials}Connection: close\r\n\r\n"
    )
    .expect("the connection is open");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("the response is UTF-8");
    let (head, body) = answer.split_once("\r\n\r\n").expect("the response has a head");
    let code = head.split(' ').nth(1).and_then(|it| it.parse().ok());
    (code.expect("the head has a status"), body.to_owned())
}

#[test]
fn request_targets_may_contain_characters_that_go_accepts() {
    let server = Server::start(&[]);
    let mut stream =
        TcpStream::connect(server.url.trim_start_matches("http://")).expect("the server accepts connections");
    let requests = [
        ("/api/v1/namespaces?labelSelector=n>5", "Connection: keep-alive", 200),
        ("/api/v1/namespaces?labelSelector=n<5", "Connection: keep-alive", 200),
        ("/api/v1/namespaces/a|b", "Connection: close", 404),
    ];
    for (target, connection, expected) in requests {
        let head = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n{connection}\r\n\r\n");
        stream.write_all(head.as_bytes()).expect("the connection is open");
        let mut answer = Vec::new();
        while !answer.ends_with(b"}\n") && !answer.ends_with(b"}") {
            let mut part = [0; 4096];
            let count = stream.read(&mut part).expect("the server answers");
            assert_ne!(count, 0, "the response to {target} is truncated");
            answer.extend(&part[..count]);
        }
        let answer = String::from_utf8_lossy(&answer);
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {expected} ")),
            "{target}: {answer}"
        );
    }
}

#[rstest]
#[case::no_token(&[], "", 200)]
#[case::token_of_a_user(&[], "s3cret", 403)]
#[case::member_of_system_masters(&[], "m", 200)]
#[case::service_account_in_a_group(&[], "sa", 403)]
#[case::unknown_token(&[], "x", 401)]
#[case::anonymous_allowed(&["--anonymous", "allow"], "", 403)]
#[case::anonymous_denied(&["--anonymous", "deny"], "", 401)]
fn rbac_and_anonymous_flags_determine_access(#[case] more: &[&str], #[case] token: &str, #[case] code: u16) {
    let tokens = [
        "s3cret=jane:devs",
        "m=root:system:masters",
        "sa=system:serviceaccount:shop:operator:devs",
    ];
    let mut args = vec!["--authorization", "rbac"];
    args.extend(tokens.iter().flat_map(|it| ["--token", it]));
    args.extend(more);
    let server = Server::start(&args);
    assert_eq!(get_as(&server, "/api/v1/nodes", token).0, code);
}

#[cfg(unix)]
#[rstest]
#[case::interrupted(Signal::INT, &[])]
#[case::terminated(Signal::TERM, &["--tls"])]
fn server_reports_readiness_and_exits_cleanly(#[case] signal: Signal, #[case] args: &[&str]) {
    let mut server = Server::start(args);
    let scheme = if args.is_empty() { "http" } else { "https" };
    assert!(
        server.url.starts_with(&format!("{scheme}://127.0.0.1:")),
        "{}",
        server.url
    );

    kill_process(Pid::from_child(&server.child), signal).expect("the process runs");
    assert_eq!(server.child.wait().expect("the process ends").code(), Some(0));
    let mut rest = String::new();
    server.stdout.read_to_string(&mut rest).expect("stdout is text");
    assert_eq!(rest, "", "the ready line is the only output");
}

#[rstest]
#[case::unknown_flag(&["--no-such-flag"], "--no-such-flag")]
#[case::invalid_address(&["--listen", "here"], "--listen")]
#[case::invalid_seed(&["--seed", "x"], "--seed")]
#[case::empty_token(&["--control", "--control-token="], "--control-token")]
#[case::unknown_worker(&["--workers", "gc,gx"], "unknown worker \"gx\"; the accepted names are gc, namespace, ")]
#[case::token_without_a_user(&["--token", "s3cret"], "--token")]
#[case::empty_group(&["--token", "s3cret=jane:"], "--token")]
#[case::unknown_authorization_mode(&["--authorization", "abac"], "--authorization")]
#[case::unsupported_version(&["--kubernetes-version", "1.32"],
    "Kubernetes \"1.32\" is not supported; the supported versions are 1.33 to 1.37")]
fn command_with_invalid_arguments_exits_with_code_2(#[case] args: &[&str], #[case] named: &str) {
    let output = run(args);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains(named));
}

#[rstest]
#[case::help_of_fake_apiserver(&["--help"])]
#[case::help_of_kube_apiserver(&["kube-apiserver", "--help"])]
fn help_lists_every_worker(#[case] args: &[&str]) {
    let output = run(args);
    let help: String = text(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    let workers = help
        .split("--workers <NAMES> ")
        .nth(1)
        .expect("the help has the option");
    for worker in fake_apiserver::Worker::ALL {
        let words = workers.split("or all").next().unwrap_or_default();
        assert!(
            words.split([' ', ',', ';']).any(|it| it == worker.as_str()),
            "{worker}: {words}"
        );
    }
}

#[test]
fn error_contains_the_invalid_file_and_document() {
    let file = folder().join("bad.yaml");
    fs::write(&file, "kind: A\napiVersion: v1\n---\n- no object\n").expect("the directory exists");
    let output = run(&["--load", path(&file)]);
    assert_eq!(output.status.code(), Some(1));
    let expected = format!("error: {}, document 2: expected an object, found a list\n", path(&file));
    assert_eq!(text(&output.stderr), expected);
    assert_eq!(text(&output.stdout), "");
}

#[test]
fn crd_flag_accepts_only_crds() {
    let file = folder().join("map.yaml");
    fs::write(&file, "kind: ConfigMap\napiVersion: v1\nmetadata: {name: a}\n").expect("the directory exists");
    let output = run(&["--crd", path(&file)]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("\"ConfigMap\" is not a CustomResourceDefinition"));
}

const LAMPS: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: lamps.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: lamps, singular: lamp, kind: Lamp}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";

/// The objects are in the wrong order: the pod's namespace is last.
const DUMP: &str = "
apiVersion: v1
kind: List
items:
- {apiVersion: example.com/v1, kind: Lamp, metadata: {name: desk, namespace: shop}}
- apiVersion: v1
  kind: Pod
  metadata: {name: web, namespace: shop, uid: 11111111-2222-4333-8444-555555555555}
  spec: {containers: [{name: c, image: i}]}
  status: {phase: Running}
- {apiVersion: v1, kind: Namespace, metadata: {name: shop}}
";

#[test]
fn loaded_objects_keep_uid_and_status() {
    let folder = folder();
    let (crds, dump) = (folder.join("crds"), folder.join("dump.yaml"));
    fs::create_dir(&crds).expect("the directory exists");
    fs::write(crds.join("lamps.yaml"), LAMPS).expect("the directory exists");
    fs::write(crds.join("notes.txt"), "no manifest").expect("the directory exists");
    fs::write(&dump, DUMP).expect("the directory exists");
    let server = Server::start(&["--crd", path(&crds), "--load", path(&dump)]);

    let pod: Value =
        serde_json::from_str(&get(&server, "/api/v1/namespaces/shop/pods/web")).expect("the text is valid JSON");
    assert_eq!(pod["metadata"]["uid"], "11111111-2222-4333-8444-555555555555");
    assert_eq!(pod["status"]["phase"], "Running");
    let lamp = get(&server, "/apis/example.com/v1/namespaces/shop/lamps/desk");
    assert!(lamp.contains("\"desk\""), "{lamp}");
}

#[test]
fn manifest_that_is_not_a_stage_is_refused() {
    let file = folder().join("stages.yaml");
    fs::write(&file, "kind: Pod\napiVersion: v1\nmetadata: {name: a}\n").expect("the directory exists");
    let output = run(&["--stages", path(&file)]);
    assert_eq!(output.status.code(), Some(1));
    let why = "Stage \"a\": expected apiVersion kwok.x-k8s.io/v1alpha1 and kind Stage";
    assert!(text(&output.stderr).contains(why), "{}", text(&output.stderr));
}

/// Uses a watch, because the Lease is created after the server is ready.
#[test]
fn nodes_have_leases_if_heartbeats_are_enabled() {
    let server = Server::start(&["--workers", "all", "--node-heartbeats"]);
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases?watch=1&timeoutSeconds=2";
    let events = get(&server, leases);
    assert!(events.contains("\"holderIdentity\":\"node-0\""), "{events}");
}

#[test]
fn error_contains_the_unserved_kind_and_its_file() {
    let file = folder().join("unknown.yaml");
    fs::write(&file, "kind: Podd\napiVersion: v1\nmetadata: {name: a}\n").expect("the directory exists");
    let output = run(&["--load", path(&file)]);
    assert_eq!(output.status.code(), Some(1));
    let start = format!("error: {}: Podd \"a\": ", path(&file));
    assert!(text(&output.stderr).starts_with(&start), "{}", text(&output.stderr));
}

#[test]
fn error_contains_the_port_that_is_in_use() {
    let server = Server::start(&[]);
    let address = server.url.trim_start_matches("http://");
    let output = run(&["--listen", address]);
    assert_eq!(output.status.code(), Some(1));
    let start = format!("error: cannot listen on {address}: ");
    assert!(text(&output.stderr).starts_with(&start), "{}", text(&output.stderr));
}

#[test]
fn only_kubeconfigs_written_by_the_command_are_replaced() {
    let file = folder().join("kubeconfig");
    for _ in 0..2 {
        let server = Server::start(&["--kubeconfig", path(&file)]);
        let config = fs::read_to_string(&file).expect("the kubeconfig is written before the server is ready");
        assert!(config.contains(&format!("server: {}\n", server.url)), "{config}");
    }

    fs::write(&file, "current-context: production\n").expect("the directory exists");
    let output = run(&["--kubeconfig", path(&file)]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("was not written by fake-apiserver"));
    let kept = fs::read_to_string(&file).expect("the kubeconfig still exists");
    assert_eq!(kept, "current-context: production\n");
}

/// The environment variable with the command line of the server that
/// `entry_point_of_a_process_that_spawns_a_server` starts.
#[cfg(unix)]
const LEFT: &str = "DRYDOCK_LEFT";

/// Starts a server and ends when the server responds. The next test runs this test in another process.
#[cfg(unix)]
#[expect(clippy::zombie_processes, reason = "it is to be left")]
#[test]
fn entry_point_of_a_process_that_spawns_a_server() {
    let Ok(line) = std::env::var(LEFT) else {
        return;
    };
    let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr());
    let port = free.expect("loopback has a free port").port();
    let line = line.replace("PORT", &port.to_string());
    let words: Vec<&str> = line.split(' ').collect();
    command(&words).spawn().expect("cargo has built the command");
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        std::thread::yield_now();
    }
}

/// Runs a command until all processes that it started have ended, because they keep standard output open.
#[cfg(unix)]
#[expect(
    clippy::disallowed_methods,
    reason = "a server that does not end must not hold the tests up"
)]
fn run_to_the_end(mut starter: std::process::Command) -> Output {
    let (told, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || told.send(starter.output()));
    let ended = ended.recv_timeout(std::time::Duration::from_secs(60));
    ended.expect("the server ends").expect("the server starts")
}

#[cfg(unix)]
#[rstest]
#[case::with_the_flag("--exit-with-parent --listen 127.0.0.1:PORT")]
#[case::as_etcd("etcd --listen-client-urls http://127.0.0.1:PORT")]
#[case::as_kube_apiserver("kube-apiserver --bind-address 127.0.0.1 --secure-port PORT")]
fn server_exits_with_its_parent(#[case] line: &str) {
    let mut starter = std::process::Command::new(std::env::current_exe().expect("the test has an executable"));
    starter
        .args(["--exact", "entry_point_of_a_process_that_spawns_a_server"])
        .env(LEFT, line);
    assert!(run_to_the_end(starter).status.success());
}
