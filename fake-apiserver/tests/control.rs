//! The control API of the command, and the effects of faults on a client over a socket.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use common::{Server, fits};
use rstest::rstest;
use serde_json::{Value, json};

/// Response to a request over a socket.
#[derive(Debug)]
struct Answer {
    /// Status line and headers; empty if the connection broke before they arrived.
    head: String,
    body: String,
}

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(server.url.trim_start_matches("http://")).expect("the server accepts connections");
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .expect("the duration is valid");
    stream
}

fn send(server: &Server, method: &str, path: &str, body: &str) -> TcpStream {
    send_as(server, "socket", method, path, body)
}

fn send_as(server: &Server, agent: &str, method: &str, path: &str, body: &str) -> TcpStream {
    let mut stream = connect(server);
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nUser-Agent: {agent}\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    );
    stream
        .write_all(format!("{head}{body}").as_bytes())
        .expect("the connection is open");
    stream
}

fn ask(server: &Server, method: &str, path: &str, body: &str) -> Answer {
    ask_as(server, "socket", method, path, body)
}

fn ask_as(server: &Server, agent: &str, method: &str, path: &str, body: &str) -> Answer {
    let mut stream = send_as(server, agent, method, path, body);
    let mut bytes = Vec::new();
    // A reset connection does not deliver more data.
    let _ = stream.read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    Answer {
        head: head.to_owned(),
        body: body.to_owned(),
    }
}

/// Sends a request to the control API, and asserts that it succeeds.
fn control(server: &Server, method: &str, path: &str, body: Value) -> Value {
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    let answer = ask(server, method, path, &body);
    assert!(answer.head.starts_with("HTTP/1.1 200"), "{answer:?}");
    serde_json::from_str(&answer.body).unwrap_or(Value::String(answer.body))
}

fn controlled() -> Server {
    Server::start(&["--control"])
}

fn config_map(name: &str) -> String {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}).to_string()
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[test]
fn control_api_is_disabled_by_default() {
    let server = Server::start(&[]);
    let answer = ask(&server, "GET", "/_fake", "");
    assert!(answer.head.starts_with("HTTP/1.1 404"), "{answer:?}");
    let answer = ask(&controlled(), "GET", "/_fake", "");
    assert!(answer.body.contains("POST   /_fake/faults"), "{answer:?}");
}

#[rstest]
#[case::status(json!({"status": {"code": 429, "retryAfterSeconds": 7}}), "HTTP/1.1 429 Too Many Requests", "", true)]
#[case::reset_before_the_request(json!({"reset": "before"}), "", "", true)]
#[case::reset_after_the_request(json!({"reset": "after"}), "", "", false)]
#[case::refuse(json!("refuse"), "", "", true)]
#[case::truncate(json!({"truncate": 10}), "HTTP/1.1 201 Created", "{\"kind\":\"C", false)]
#[case::delay(json!({"delayMs": 20}), "HTTP/1.1 201 Created", "{\"kind\":\"ConfigMap\"", false)]
fn fault_with_times_1_only_affects_one_request(
    #[case] effect: Value,
    #[case] head: &str,
    #[case] body: &str,
    #[case] is_free: bool,
) {
    let server = controlled();
    let rule = json!({"effect": effect, "on": {"verbs": ["create"], "client": "socket"}, "times": 1});
    let id = control(&server, "POST", "/_fake/faults", rule)["id"].clone();
    let answer = ask(&server, "POST", MAPS, &config_map("a"));
    assert!(
        answer.head.starts_with(head) && answer.body.starts_with(body),
        "{answer:?}"
    );
    assert_eq!(answer.head.is_empty(), head.is_empty(), "{answer:?}");
    if head.contains("429") {
        assert!(answer.head.to_lowercase().contains("retry-after: 7"), "{answer:?}");
    }
    let again = ask(&server, "POST", MAPS, &config_map("a"));
    let expected = if is_free { "HTTP/1.1 201" } else { "HTTP/1.1 409" };
    assert!(again.head.starts_with(expected), "{again:?}");
    assert_eq!(control(&server, "GET", "/_fake/faults", Value::Null)[0]["hits"], 1);
    control(&server, "DELETE", &format!("/_fake/faults/{id}"), Value::Null);
    assert_eq!(control(&server, "GET", "/_fake/faults", Value::Null), json!([]));
}

#[rstest]
#[case::whole_user_agent("manager/v0.1 (linux)", 1)]
#[case::name_before_the_slash("manager", 1)]
#[case::beginning_of_the_name("man", 0)]
#[case::name_with_the_slash("manager/", 0)]
fn fault_for_a_client_matches_the_name_before_the_slash_of_its_user_agent(#[case] client: &str, #[case] hits: u64) {
    let server = controlled();
    let refused = json!({"status": {"code": 503}});
    for on in [
        json!({"verbs": ["list"], "client": client}),
        json!({"verbs": ["create"], "exceptClients": [client]}),
    ] {
        control(
            &server,
            "POST",
            "/_fake/faults",
            json!({"effect": refused.clone(), "on": on}),
        );
    }
    let agent = "manager/v0.1 (linux)";
    let list = ask_as(&server, agent, "GET", MAPS, "");
    assert_eq!(list.head.starts_with("HTTP/1.1 503"), hits == 1, "{list:?}");
    let create = ask_as(&server, agent, "POST", MAPS, &config_map("a"));
    assert_eq!(create.head.starts_with("HTTP/1.1 201"), hits == 1, "{create:?}");
    let faults = control(&server, "GET", "/_fake/faults", Value::Null);
    assert_eq!(
        [&faults[0]["hits"], &faults[1]["hits"]],
        [&json!(hits), &json!(1 - hits)]
    );
}

/// Returns the authors of the writes to an object: the verb of the request and the applied faults.
fn authors(server: &Server, uid: &Value) -> Vec<Value> {
    let uid = uid.as_str().expect("an object has a uid");
    let history = control(server, "GET", &format!("/_fake/objects/{uid}/history"), Value::Null);
    let revisions = history["revisions"].as_array().cloned().unwrap_or_default();
    revisions
        .iter()
        .map(|it| json!([it["by"]["verb"], it["by"]["faults"]]))
        .collect()
}

#[rstest]
#[case::reset(json!({"reset": "after"}), "connection reset after the request was executed")]
#[case::status(json!({"status": {"code": 500, "applied": true}}), "500 InternalError, request executed")]
#[case::truncate(json!({"truncate": 10}), "cut after 10 bytes")]
fn change_is_attributed_to_a_write_with_a_lost_response(#[case] effect: Value, #[case] fault: &str) {
    let server = controlled();
    let rule = json!({"effect": effect, "on": {"verbs": ["create", "patch", "delete"], "client": "socket"}});
    let id = control(&server, "POST", "/_fake/faults", rule)["id"].clone();
    let one = format!("{MAPS}/a");
    ask(&server, "POST", MAPS, &config_map("a"));
    let made = ask(&server, "GET", &one, "").body;
    let made: Value = serde_json::from_str(&made).expect("the body is valid JSON");
    ask(&server, "DELETE", &one, "");
    control(&server, "DELETE", &format!("/_fake/faults/{id}"), Value::Null);
    let expected = [json!(["create", [fault]]), json!(["delete", [fault]])];
    assert_eq!(authors(&server, &made["metadata"]["uid"]), expected);
}

#[rstest]
#[case::executed_request_that_hangs(json!({"hang": "after"}), "HTTP/1.1 200")]
#[case::request_that_hangs_before_execution(json!({"hang": "before"}), "HTTP/1.1 404")]
#[case::delayed_response(json!({"delayAnswerMs": 60_000}), "HTTP/1.1 200")]
#[case::delayed_request(json!({"delayMs": 60_000}), "HTTP/1.1 404")]
fn restart_ends_unanswered_requests(#[case] effect: Value, #[case] stored: &str) {
    let server = controlled();
    control(&server, "POST", "/_fake/faults", json!({"effect": effect, "times": 1}));
    let mut stream = send(&server, "POST", MAPS, &config_map("a"));
    stream
        .set_read_timeout(Some(Duration::from_millis(200)))
        .expect("the duration is valid");
    let silence = stream.read(&mut [0]).expect_err("no data arrives");
    assert!(
        matches!(
            silence.kind(),
            std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
        ),
        "{silence}"
    );
    assert!(ask(&server, "GET", &format!("{MAPS}/a"), "").head.starts_with(stored));

    control(
        &server,
        "POST",
        "/_fake/restart",
        json!({"log": "lost", "downMs": 60_000}),
    );
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .expect("the duration is valid");
    let ended = stream.read(&mut [0]);
    let is_silent = ended
        .as_ref()
        .is_err_and(|it| it.kind() == std::io::ErrorKind::WouldBlock);
    assert!(!is_silent && !matches!(ended, Ok(1)), "{ended:?}");
    assert_eq!(
        ask(&server, "GET", MAPS, "").head,
        "",
        "the server does not respond while it is down"
    );
}

/// The lines of a watch as they are received.
struct Lines(BufReader<TcpStream>);

impl Lines {
    fn open(server: &Server) -> Self {
        let mut reader = BufReader::new(send(server, "GET", &format!("{MAPS}?watch=true&resourceVersion=0"), ""));
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            reader.read_line(&mut line).expect("the response has a head");
        }
        Self(reader)
    }

    /// Returns the type and the name of the next event; `None` at the end or if the connection breaks.
    fn next(&mut self) -> Option<(String, String)> {
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line).ok()? == 0 {
                return None;
            }
            // Skip lines with the sizes of chunks.
            if let Ok(event @ Value::Object(_)) = serde_json::from_str::<Value>(&line) {
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                return Some((text(&event["type"]), text(&event["object"]["metadata"]["name"])));
            }
        }
    }

    fn next_named(&mut self) -> Option<String> {
        loop {
            match self.next()? {
                (kind, _) if kind == "BOOKMARK" => {}
                (_, name) if name == "kube-root-ca.crt" => {}
                (kind, name) => return Some(format!("{kind} {name}")),
            }
        }
    }
}

#[test]
fn control_api_holds_releases_and_ends_watches() {
    let server = controlled();
    let mut lines = Lines::open(&server);
    let on_maps = |action: Value| json!({"on": {"resource": "configmaps"}, "do": action});
    control(&server, "POST", "/_fake/watches", on_maps(json!("hold")));
    for name in ["a", "b"] {
        ask(&server, "POST", MAPS, &config_map(name));
    }
    let held = || {
        let watches = control(&server, "GET", "/_fake/watches", Value::Null);
        watches[0]["held"].as_array().map_or(0, Vec::len)
    };
    while held() < 2 {
        std::thread::yield_now();
    }
    control(&server, "POST", "/_fake/watches", on_maps(json!({"release": 1})));
    assert_eq!(lines.next_named().as_deref(), Some("ADDED a"));
    let told = json!({"type": "DELETED", "object": {"metadata": {"name": "ghost"}}});
    control(&server, "POST", "/_fake/watches", on_maps(json!({"send": told})));
    assert_eq!(lines.next_named().as_deref(), Some("DELETED ghost"));
    control(&server, "POST", "/_fake/watches", on_maps(json!({"cutInside": 12})));
    control(&server, "POST", "/_fake/watches", on_maps(json!("resume")));
    assert_eq!(lines.next_named(), None);
}

#[test]
fn states_are_saved_compared_exported_and_restored() {
    let server = controlled();
    let kept = control(&server, "POST", "/_fake/snapshot", Value::Null)["snapshot"].clone();
    ask(&server, "POST", MAPS, &config_map("a"));
    let event = json!({"type": "DELETED", "object": {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-public"}}});
    control(&server, "POST", "/_fake/events", event);
    let diff = control(&server, "GET", &format!("/_fake/diff?from={kept}"), Value::Null);
    assert_eq!(diff, "- Namespace kube-public\n+ ConfigMap default/a\n");

    let world = ask(&server, "GET", "/_fake/world", "").body;
    let other = controlled();
    assert!(
        ask(&other, "POST", "/_fake/objects", &world)
            .head
            .starts_with("HTTP/1.1 200")
    );
    assert!(
        ask(&other, "GET", &format!("{MAPS}/a"), "")
            .head
            .starts_with("HTTP/1.1 200")
    );

    control(&server, "POST", "/_fake/restore", json!({"snapshot": kept}));
    assert!(
        ask(&server, "GET", &format!("{MAPS}/a"), "")
            .head
            .starts_with("HTTP/1.1 404")
    );
}

#[test]
fn client_of_a_frozen_replica_reads_a_stale_state() {
    let server = controlled();
    let sees = control(
        &server,
        "POST",
        "/_fake/replicas",
        json!({"client": "socket", "sees": "nothingMore"}),
    );
    assert_eq!(sees["sees"], sees["newest"]);
    ask(&server, "POST", MAPS, &config_map("a"));
    assert!(
        ask(&server, "GET", &format!("{MAPS}/a?resourceVersion=0"), "")
            .head
            .starts_with("HTTP/1.1 404")
    );
    assert!(
        ask(&server, "GET", &format!("{MAPS}/a"), "")
            .head
            .starts_with("HTTP/1.1 200")
    );

    let journal = control(&server, "GET", "/_fake/journal", Value::Null);
    let codes: Vec<_> = journal["entries"]
        .as_array()
        .expect("the value is a list")
        .iter()
        .map(|it| &it["request"]["code"])
        .collect();
    assert_eq!(codes, [201, 404, 200]);
    let rest = control(
        &server,
        "GET",
        &format!("/_fake/journal?since={}", journal["next"]),
        Value::Null,
    );
    assert_eq!(rest["entries"], json!([]));
}

#[rstest]
#[case("POST", "/_fake/faults", r#"{"effect": "explode"}"#, "HTTP/1.1 400", "explode")]
#[case(
    "POST",
    "/_fake/faults",
    r#"{"effect": "refuse", "often": 1}"#,
    "HTTP/1.1 400",
    "often"
)]
#[case(
    "POST",
    "/_fake/watches",
    r#"{"do": {"fail": {"code": 500, "reason": "Expird"}}}"#,
    "HTTP/1.1 400",
    "is not a Kubernetes reason"
)]
#[case(
    "POST",
    "/_fake/watches",
    r#"{"do": {"fail": {"code": 200}}}"#,
    "HTTP/1.1 400",
    "200 is not an HTTP error code"
)]
#[case("POST", "/_fake/restart", r#"{"log": "some"}"#, "HTTP/1.1 400", "some")]
#[case(
    "POST",
    "/_fake/restore",
    r#"{"snapshot": 9}"#,
    "HTTP/1.1 404",
    "there is no snapshot 9"
)]
#[case("GET", "/_fake/nothing", "", "HTTP/1.1 404", "there is no GET /_fake/nothing")]
#[case("PUT", "/_fake/faults", "", "HTTP/1.1 405", "faults does not support PUT")]
#[case("PUT", "/_fake/watches", "", "HTTP/1.1 405", "watches does not support PUT")]
fn invalid_control_requests_are_refused(
    #[case] method: &str,
    #[case] path: &str,
    #[case] body: &str,
    #[case] head: &str,
    #[case] why: &str,
) {
    let answer = ask(&controlled(), method, path, body);
    assert!(answer.head.starts_with(head) && answer.body.contains(why), "{answer:?}");
}

/// Each operation of the document returns the documented response, and undocumented input is refused.
#[rstest]
#[case("get", "/_fake/openapi.json", Value::Null)]
#[case("post", "/_fake/faults", json!({"effect": {"status": {"code": 503, "applied": true}}, "on": {"verbs": ["list"]}, "times": 1}))]
#[case("post", "/_fake/faults", json!({"effect": "refuse", "on": {"resource": "pods", "exceptClients": ["a"]}, "skip": 1, "probability": 0.5}))]
#[case("get", "/_fake/faults", Value::Null)]
#[case("delete", "/_fake/faults", Value::Null)]
#[case("get", "/_fake/watches", Value::Null)]
#[case("post", "/_fake/watches", json!({"on": {"resource": "pods"}, "do": "hold"}))]
#[case("post", "/_fake/watches", json!({"do": {"release": 2}}))]
#[case("post", "/_fake/watches", json!({"do": {"send": {"type": "DELETED", "object": {}}}}))]
#[case("post", "/_fake/watches", json!({"watch": 3, "do": "hold"}))]
#[case("get", "/_fake/journal", Value::Null)]
#[case("delete", "/_fake/journal", Value::Null)]
#[case("post", "/_fake/replicas", json!({"client": "a", "sees": {"behind": 3}}))]
#[case("post", "/_fake/replicas", json!({"client": "a", "sees": "everything"}))]
#[case("post", "/_fake/clocks", json!({"client": "a", "aheadMs": -5}))]
#[case("post", "/_fake/pods", json!({"pods": {"labels": "a=b"}, "script": {"runsForMs": 5, "exitCode": 1, "logs": "x"}}))]
#[case("post", "/_fake/pods", json!({"script": {"exec": [{"command": ["a"], "stdout": "b", "echoesStdin": true}], "ports": [{"port": 1, "http": {"status": 200}}]}}))]
#[case("post", "/_fake/pods", json!({"script": {"failingProbes": [{"probe": "liveness", "fromMs": 1, "untilMs": 2}], "usage": {"cpu": "1"}, "containerExitCodes": {"a": 1}}}))]
#[case("post", "/_fake/pods", json!({"pods": {"uid": "u"}, "script": {"crashLoop": true}}))]
#[case("delete", "/_fake/pods", Value::Null)]
#[case("post", "/_fake/nodes", json!({"node": "node-0", "kubelet": "stopped"}))]
#[case("post", "/_fake/compact", Value::Null)]
#[case("post", "/_fake/restart", json!({"log": "lost", "downMs": 0}))]
#[case("post", "/_fake/snapshot", Value::Null)]
#[case("get", "/_fake/snapshot", Value::Null)]
#[case("get", "/_fake/objects", Value::Null)]
#[case("post", "/_fake/objects", json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}))]
#[case("post", "/_fake/events", json!({"type": "ADDED", "object": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "default", "uid": "u"}}}))]
fn control_api_matches_its_openapi_document(#[case] method: &str, #[case] path: &str, #[case] body: Value) {
    let server = Server::start(&["--control", "--workers", "all"]);
    let document = control(&server, "GET", "/_fake/openapi.json", Value::Null);
    let operation = &document["paths"][path][method];
    assert!(operation.is_object(), "the OpenAPI document lacks {method} {path}");
    let json = |of: &Value| of["content"]["application/json"]["schema"].clone();
    let schema = json(&operation["requestBody"]);
    if !body.is_null() {
        assert!(
            fits(&body, &schema, &document),
            "{body} does not match the OpenAPI document"
        );
    }
    let answer = control(&server, &method.to_uppercase(), path, body.clone());
    assert!(
        fits(&answer, &json(&operation["responses"]["200"]), &document),
        "{answer}"
    );
    if schema["$ref"].is_string() {
        let mut wrong = body;
        wrong["unknown"] = 1.into();
        assert!(!fits(&wrong, &schema, &document));
        let refused = ask(&server, &method.to_uppercase(), path, &wrong.to_string());
        assert!(refused.head.starts_with("HTTP/1.1 400"), "{wrong}: {refused:?}");
    }
}

#[test]
fn openapi_document_describes_every_listed_path() {
    let server = controlled();
    let document = control(&server, "GET", "/_fake/openapi.json", Value::Null);
    let help = ask(&server, "GET", "/_fake", "").body;
    let requests = help.lines().take_while(|line| !line.is_empty());
    for line in requests {
        let mut words = line.split_whitespace();
        let (method, path) = (
            words.next().expect("the request has a method"),
            words.next().expect("the request has a path"),
        );
        let path = path.split(['?', '[']).next().expect("the request has a path");
        let operation = &document["paths"][path][method.to_lowercase()];
        assert!(operation["operationId"].is_string(), "{line}");
    }
}
