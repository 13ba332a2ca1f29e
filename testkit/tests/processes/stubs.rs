//! Programs in simulated Pods, which a controller reaches by the names and addresses of Pods and Services.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::api::{Api, ListParams, PostParams};
use rstest::rstest;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::{CONTROLLER, Directory, drydock, text};

/// Environment variable with the requests of the controller, such as `GET http://db:8080/status`, separated by commas.
const CALLS: &str = "DRYDOCK_TEST_CALLS";

/// Sends the requests in order, retries failed requests, and then creates the ConfigMap `answers` with the responses by
/// their indexes.
pub(super) async fn call(client: Client) {
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let listed = maps.list(&ListParams::default()).await;
    listed.expect("the ConfigMaps can be listed");
    let calls = std::env::var(CALLS).expect("the scenario has calls");
    let mut answers = BTreeMap::new();
    for (number, call) in calls.split(',').enumerate() {
        let answer = loop {
            match request(call).await {
                Ok(answer) => break answer,
                // The Pod is not running yet.
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        };
        answers.insert(number.to_string(), answer);
    }
    let mut made = ConfigMap {
        data: Some(answers),
        ..ConfigMap::default()
    };
    made.metadata.name = Some("answers".to_owned());
    // An earlier run may have created the ConfigMap.
    let _ = maps.create(&PostParams::default(), &made).await;
    std::future::pending().await
}

/// Returns the status and the body of a response, such as `200 ready`.
async fn request(call: &str) -> std::io::Result<String> {
    let (method, url) = call.split_once(' ').unwrap_or(("GET", call));
    let rest = url.trim_start_matches("http://");
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let mut stream = TcpStream::connect(host).await?;
    let head = format!("{method} /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or(std::io::ErrorKind::UnexpectedEof)?;
    let status = head.split_whitespace().nth(1).unwrap_or_default();
    Ok(format!("{status} {body}"))
}

/// Serves as the program of a stub: responds to each connection with the name of the Pod.
pub(super) async fn serve() {
    let variable = |name: &str| std::env::var(name).expect("the stub sets the variable");
    let listener = TcpListener::bind(format!("127.0.0.1:{}", variable("DRYDOCK_TEST_PORT"))).await;
    let listener = listener.expect("the port is free");
    loop {
        let (mut stream, _) = listener.accept().await.expect("a connection arrives");
        let mut head = [0; 1024];
        // The client sends its request in one write.
        let _ = stream.read(&mut head).await;
        let body = variable("DRYDOCK_TEST_POD");
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        // The client may have been killed.
        let _ = stream.write_all(answer.as_bytes()).await;
    }
}

/// A Pod `db-0` with a headless Service `db` and a Service `front` with port 80, which forwards to port 8080.
const OBJECTS: &str = "
- apiVersion: v1
  kind: Service
  metadata: {name: db}
  spec: {clusterIP: None, publishNotReadyAddresses: true, selector: {app: db}, ports: [{port: 8080}]}
- apiVersion: v1
  kind: Service
  metadata: {name: front}
  spec: {clusterIP: 10.0.0.77, selector: {app: db}, ports: [{port: 80, targetPort: 8080}]}
- apiVersion: v1
  kind: Pod
  metadata: {name: db-0, labels: {app: db}}
  spec: {hostname: db-0, subdomain: db, containers: [{name: db, image: db}]}
";

/// Runs a controller that sends these requests to a Pod with this stub, and returns the report.
fn run(calls: &str, stub: &str, answers: &str) -> (Option<i32>, String) {
    let directory = Directory::new();
    let program = std::env::current_exe().expect("the test has an executable");
    let objects = OBJECTS.replace("\n- ", "\n---\n  ").replace("---\n  ", "---\n");
    let objects: Vec<String> = objects
        .lines()
        .map(|it| it.strip_prefix("  ").unwrap_or(it).to_owned())
        .collect();
    directory.write("objects.yaml", &objects.join("\n"));
    let yaml = format!(
        "controllers:
  - name: operator
    command: [{program:?}, --exact, entry_point_of_controller_processes, --nocapture]
    env: {{{CONTROLLER}: calling, {CALLS}: '{calls}'}}
    insecure: true
network: private
cluster:
  pods: [{{script: {{neverReady: true, startsAfterMs: 100}}}}]
  stubs:
    - pods: {{labels: app=db}}
      port: 8080
      {stub}
steps:
  - apply: objects.yaml
    wait: {{object: configmaps/answers, path: '{{.data}}', equals: {answers}, timeout: 15s}}
faults: [crashes]
within: 5s
quiet: 1500ms
references: 2
"
    );
    let path = directory.write(
        "scenario.yaml",
        &yaml.replace("${PROGRAM}", &program.display().to_string()),
    );
    let output = drydock(&["explore", &path.display().to_string(), "--plans", "3"]);
    let report = text(&output.stdout) + &text(&output.stderr);
    (output.status.code(), report)
}

/// Returns `true` if this machine permits private networks.
pub(super) fn is_permitted() -> bool {
    let probe = Command::new("unshare").args(["--net", "ip", "link"]).output();
    probe.is_ok_and(|it| it.status.success())
}

const HTTP: &str = "http:
        - {method: POST, path: /start, set: {mode: started}, script: {readyAfterMs: 0}, status: 202}
        - {path: /status, when: {mode: started}, json: {pod: '${POD_NAME}', mode: '${state.mode}'}}
        - {path: /status*, body: stopped}";

const COMMAND: &str = "command: ['${PROGRAM}', --exact, entry_point_of_controller_processes, --nocapture]
      env: {DRYDOCK_TEST_CONTROLLER: serving, DRYDOCK_TEST_PORT: '${PORT}', DRYDOCK_TEST_POD: '${POD_NAME} ${POD_NAMESPACE}'}";

#[rstest]
#[case::pod_by_its_name("GET http://db-0.db:8080/status", HTTP, "{'0': 200 stopped}")]
#[case::unknown_path(
    "GET http://db-0.db.default.svc.cluster.local:8080/x",
    HTTP,
    "{'0': 404 no response is configured for GET /x}"
)]
#[case::service_by_its_name_once_the_pod_is_ready(
    "POST http://db:8080/start,GET http://front.default.svc:80/status,GET http://10.0.0.77:80/status",
    HTTP,
    "{'0': '202 ', '1': '200 {\"mode\":\"started\",\"pod\":\"db-0\"}', '2': '200 {\"mode\":\"started\",\"pod\":\"db-0\"}'}"
)]
#[case::command("GET http://db:8080/", COMMAND, "{'0': 200 db-0 default}")]
fn controller_reaches_the_programs_of_pods(#[case] calls: &str, #[case] stub: &str, #[case] answers: &str) {
    let (code, report) = run(calls, stub, answers);
    if is_permitted() {
        assert_eq!(code, Some(0), "{report}");
    } else {
        assert!(report.contains("`network: private` needs"), "{report}");
    }
}

#[test]
fn command_lines_resolve_names_of_services() {
    let directory = Directory::new();
    let yaml = "controllers:
  - name: operator
    command: [sh, -c, 'echo started; exec sleep 1000']
    ready: {log: started}
network: private
steps:
  - object:
      apiVersion: v1
      kind: Service
      metadata: {name: front}
      spec: {clusterIP: 10.0.0.77, ports: [{port: 80}]}
  - run: getent hosts front | grep 10.0.0.77
checks:
  - {name: its name is resolved, eventually: {run: getent hosts front.default.svc | grep 10.0.0.77}}
within: 2s
quiet: 1s
references: 2
";
    let path = directory.write("scenario.yaml", yaml).display().to_string();
    let output = drydock(&["explore", &path, "--plans", "1"]);
    let report = text(&output.stdout) + &text(&output.stderr);
    if is_permitted() {
        assert_eq!(output.status.code(), Some(0), "{report}");
    } else {
        assert!(report.contains("`network: private` needs"), "{report}");
    }
}

#[test]
fn report_contains_the_output_of_a_program_that_ends_before_it_listens() {
    let stub = "command: [sh, -c, echo no database; exit 3]";
    let (code, report) = run("GET http://db:8080/", stub, "{'0': never}");
    assert_eq!(code, Some(1), "{report}");
    if is_permitted() {
        let text = "stub db-0:8080: cannot be started: the program ended before it listened on port";
        assert!(report.contains(text), "{report}");
        assert!(report.contains("no database"), "{report}");
    }
}
