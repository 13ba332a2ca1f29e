//! kubectl's `exec`, `cp`, `logs`, `attach`, `port-forward` and `debug` against a Pod with a script.

mod common;
#[path = "common/kubectl.rs"]
mod kubectl;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use common::{Server, folder};

const SCRIPT: &str = r#"{"script": {
    "startsAfterMs": 0, "logs": "ready\n",
    "exec": [
        {"command": ["hostname"], "stdout": "db\n", "stderr": "as ever\n"},
        {"command": ["false"], "exitCode": 3},
        {"command": ["cat"], "echoesStdin": true},
        {"command": ["tar", "-xmf", "-", "-C", "/srv"], "echoesStdin": true}
    ],
    "ports": [{"port": 8080, "http": {"body": "hello\n"}}]
}}"#;

const POD: &str = r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "db"},
    "spec": {"nodeName": "node-0", "containers": [{"name": "main", "image": "i"}]}}"#;

/// Runs kubectl, which transports the streams of commands over WebSockets, or over SPDY like kubectl before 1.31.
fn run(program: &Path, config: &Path, args: &[&str], stdin: &str, over_web_sockets: bool) -> Output {
    let mut child = Command::new(program)
        .args(args)
        .env("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", over_web_sockets.to_string())
        .env("KUBECONFIG", config)
        .env("HOME", config.parent().expect("the kubeconfig has a directory"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("kubectl can be started");
    let mut input = child.stdin.take().expect("stdin is piped");
    // The command may have closed its input without reading it.
    let _ = input.write_all(stdin.as_bytes());
    drop(input);
    child.wait_with_output().expect("the process ends")
}

/// Sends the script to the control API.
fn set_script(url: &str) {
    let address = url.trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).expect("the server accepts connections");
    let length = SCRIPT.len();
    write!(
        stream,
        "POST /_fake/pods HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n{SCRIPT}"
    )
    .expect("the connection is open");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("the server answers");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

/// Returns the responses from port 8080 of the Pod to two connections through one `kubectl port-forward`.
fn forwarded(program: &Path, config: &Path) -> String {
    let mut child = Command::new(program)
        .args(["port-forward", "pod/db", ":8080"])
        .env("KUBECONFIG", config)
        .env("HOME", config.parent().expect("the kubeconfig has a directory"))
        .stdout(Stdio::piped())
        .spawn()
        .expect("kubectl can be started");
    let mut line = String::new();
    let mut lines = BufReader::new(child.stdout.take().expect("stdout is piped"));
    lines.read_line(&mut line).expect("the output is UTF-8");
    // Forwarding from 127.0.0.1:40123 -> 8080
    let address = line
        .split_whitespace()
        .nth(2)
        .expect("the line has an address")
        .to_owned();
    let bodies = [0, 1].map(|_| {
        let mut stream = TcpStream::connect(&address).expect("the server accepts connections");
        stream
            .write_all(b"GET / HTTP/1.1\r\nHost: db\r\n\r\n")
            .expect("the connection to kubectl is open");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("the Pod answers");
        answer
            .split_once("\r\n\r\n")
            .map(|(_, body)| body.to_owned())
            .expect("the response has a body")
    });
    child.kill().expect("the process runs");
    child.wait().expect("the process ends");
    assert_eq!(bodies[0], bodies[1]);
    bodies[0].clone()
}

#[test]
#[expect(clippy::print_stderr, reason = "a test that is left out has to say so")]
fn kubectl_connects_to_a_pod_with_a_script() {
    let program = match kubectl::kubectl() {
        Ok(program) => program,
        Err(reason) => {
            eprintln!("skipped: kubectl_connects_to_a_pod_with_a_script {reason}");
            return;
        }
    };
    let folder = folder();
    let config = folder.join("config");
    let path = config.to_str().expect("the path is UTF-8");
    let server = Server::start(&["--control", "--workers", "all", "--kubeconfig", path]);
    let kubectl_over = |web_sockets: bool, args: &[&str], stdin: &str| {
        let output = run(program, &config, args, stdin, web_sockets);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let kubectl = |args: &[&str], stdin: &str| kubectl_over(true, args, stdin);
    let done = |stdout: &str| (Some(0), stdout.to_owned(), String::new());

    // kubectl's `--raw` omits the content type, which the control API requires.
    set_script(&server.url);
    let created = kubectl(&["create", "-f", "-"], POD);
    assert_eq!(created.0, Some(0), "{created:?}");
    let waited = kubectl(&["wait", "pod/db", "--for=condition=Ready", "--timeout=60s"], "");
    assert_eq!(waited.0, Some(0), "{waited:?}");

    assert_eq!(kubectl(&["logs", "db"], ""), done("ready\n"));
    let stamped = kubectl(&["logs", "db", "--timestamps"], "").1;
    assert!(stamped.starts_with("20") && stamped.ends_with("Z ready\n"), "{stamped}");
    for web_sockets in [true, false] {
        let kubectl = |args: &[&str], stdin: &str| kubectl_over(web_sockets, args, stdin);
        let said = kubectl(&["exec", "db", "--", "hostname"], "");
        assert_eq!(said, (Some(0), "db\n".to_owned(), "as ever\n".to_owned()));
        let failed = kubectl(&["exec", "db", "--", "false"], "");
        assert_eq!(
            (failed.0, failed.2.trim()),
            (Some(3), "command terminated with exit code 3")
        );
        assert_eq!(
            kubectl(&["exec", "-i", "db", "--", "cat"], "in\nand out\n"),
            done("in\nand out\n")
        );
        let absent = kubectl(&["exec", "db", "--", "ls"], "");
        assert_eq!(absent.0, Some(127), "{absent:?}");
    }

    let file = folder.join("file");
    std::fs::write(&file, "content").expect("the directory exists");
    let copied = kubectl(&["cp", file.to_str().expect("the path is UTF-8"), "db:/srv/file"], "");
    assert_eq!(copied.0, Some(0), "{copied:?}");

    assert_eq!(forwarded(program, &config), "hello\n");

    let debug = ["debug", "db", "--image=i", "--container=debugger", "--", "sleep", "1"];
    assert_eq!(kubectl(&debug, "").0, Some(0));
    let ended = "--for=jsonpath={.status.ephemeralContainerStatuses[0].state.terminated.reason}=Completed";
    let waited = kubectl(&["wait", "pod/db", ended, "--timeout=60s"], "");
    assert_eq!(waited.0, Some(0), "{waited:?}");
}

/// Without a script, a Pod runs on an existing Node.
#[test]
#[expect(clippy::print_stderr, reason = "a test that is left out has to say so")]
fn kubectl_runs_commands_and_maintains_nodes() {
    let program = match kubectl::kubectl() {
        Ok(program) => program,
        Err(reason) => {
            eprintln!("skipped: kubectl_runs_commands_and_maintains_nodes {reason}");
            return;
        }
    };
    let folder = folder();
    let config = folder.join("config");
    let path = config.to_str().expect("the path is UTF-8");
    let _server = Server::start(&["--workers", "all", "--kubeconfig", path]);
    let kubectl = |args: &[&str]| {
        let output = run(program, &config, args, "", true);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
        text(&output.stdout)
    };
    let nodes = kubectl(&["get", "nodes", "-o", "wide", "--no-headers"]);
    let columns: Vec<&str> = nodes.split_whitespace().collect();
    assert_eq!(columns[..2], ["node-0", "Ready"], "{nodes}");
    assert!(
        columns[4].starts_with("v1.36.") && columns[5] == "172.18.0.2",
        "{nodes}"
    );

    for restart in ["Always", "Never"] {
        let restart = format!("--restart={restart}");
        let run = [
            "run",
            "hello",
            "--rm",
            "-i",
            "--image=busybox",
            &restart,
            "--",
            "echo",
            "hello",
        ];
        let said = kubectl(&run);
        assert!(said.starts_with("hello\n"), "{said}");
    }
    kubectl(&["run", "web", "--image=nginx"]);
    kubectl(&["wait", "pod/web", "--for=condition=Ready", "--timeout=60s"]);
    assert!(kubectl(&["describe", "node", "node-0"]).contains("default                     web"));
    kubectl(&["debug", "node/node-0", "--image=busybox", "--", "true"]);
    kubectl(&["cordon", "node-0"]);
    kubectl(&["drain", "node-0", "--force", "--timeout=60s"]);
    assert_eq!(kubectl(&["get", "pods", "-o", "name"]), "");
    kubectl(&["uncordon", "node-0"]);
}
