//! The page of the control API: its responses, its requests, and its behaviour in a browser.

mod browser;
mod busy;
mod cluster;
#[path = "../common/mod.rs"]
mod common;
mod devtools;
mod hostile;
mod keyboard;
#[path = "../common/kubectl.rs"]
mod kubectl;
mod narrow;
mod pane;
mod search;
mod viewer;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use common::{Server, fits};
use rstest::rstest;
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// The response to a request.
#[derive(Debug)]
struct Answer {
    code: u16,
    /// Status line and headers, in lower case.
    head: String,
    body: String,
}

/// Sends a request with these headers; `Host` is localhost, and a body is JSON.
fn send(server: &Server, request: &str, headers: &[&str], body: &str) -> TcpStream {
    let mut stream =
        TcpStream::connect(server.url.trim_start_matches("http://")).expect("the server accepts connections");
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .expect("the duration is valid");
    let mut head = format!(
        "{request} HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n",
        body.len()
    );
    if !headers.iter().any(|it| it.starts_with("Host:")) {
        head += "Host: localhost\r\n";
    }
    if !body.is_empty() && !headers.iter().any(|it| it.starts_with("Content-Type:")) {
        head += "Content-Type: application/json\r\n";
    }
    for header in headers {
        head += &format!("{header}\r\n");
    }
    stream
        .write_all(format!("{head}\r\n{body}").as_bytes())
        .expect("the connection is open");
    stream
}

fn ask(server: &Server, request: &str, headers: &[&str], body: &str) -> Answer {
    let mut text = String::new();
    send(server, request, headers, body)
        .read_to_string(&mut text)
        .expect("the response is UTF-8");
    let (head, body) = text.split_once("\r\n\r\n").expect("the response has a head");
    let code = head.split(' ').nth(1).and_then(|it| it.parse().ok());
    Answer {
        code: code.expect("the head has a status"),
        head: head.to_lowercase(),
        body: body.to_owned(),
    }
}

/// Sends a request to the control API, and asserts that it succeeds.
fn control(server: &Server, request: &str, headers: &[&str], body: Value) -> Value {
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    let answer = ask(server, request, headers, &body);
    assert_eq!(answer.code, 200, "{answer:?}");
    serde_json::from_str(&answer.body).expect("the text is valid JSON")
}

fn get(server: &Server, path: &str) -> Value {
    control(server, &format!("GET {path}"), &[], Value::Null)
}

fn create_map(server: &Server, map: &Value) {
    let mut map = map.clone();
    (map["apiVersion"], map["kind"]) = ("v1".into(), "ConfigMap".into());
    let answer = ask(
        server,
        &format!("POST {MAPS}"),
        &["User-Agent: maker/1"],
        &map.to_string(),
    );
    assert_eq!(answer.code, 201, "{answer:?}");
}

fn document(server: &Server) -> Value {
    get(server, "/_fake/openapi.json")
}

/// Asserts that a value matches the documented response of this operation.
#[track_caller]
fn assert_documented(server: &Server, value: &Value, method: &str, path: &str) {
    let document = document(server);
    let schema = &document["paths"][path][method]["responses"]["200"]["content"]["application/json"]["schema"];
    assert!(fits(value, schema, &document), "{value}");
}

#[test]
fn page_is_self_contained_and_runs_only_its_own_code() {
    let server = Server::start(&["--control"]);
    let page = ask(&server, "GET /_fake/", &[], "");
    assert_eq!(page.code, 200);
    for header in [
        "content-type: text/html; charset=utf-8",
        "x-content-type-options: nosniff",
        "cache-control: no-store",
        "referrer-policy: no-referrer",
        "cross-origin-opener-policy: same-origin",
    ] {
        assert!(page.head.contains(header), "{header}: {}", page.head);
    }
    let policy = page
        .head
        .lines()
        .find_map(|it| it.strip_prefix("content-security-policy: "))
        .expect("the response has a content security policy");
    let directives: Vec<_> = policy.split("; ").collect();
    for directive in ["default-src 'none'", "connect-src 'self'", "frame-ancestors 'none'"] {
        assert!(directives.contains(&directive), "{directive}: {policy}");
    }
    assert!(
        policy.contains("script-src 'sha256-") && !policy.contains("unsafe"),
        "{policy}"
    );
    assert!(policy.contains("require-trusted-types-for 'script'"), "{policy}");
    for foreign in ["http://", "https://", " src=", "@import", "url("] {
        assert!(
            !page.body.contains(foreign),
            "the page fetches nothing from other sites: {foreign}"
        );
    }
    for unsafe_call in [
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "DOMParser",
    ] {
        assert!(
            !page.body.contains(unsafe_call),
            "the page never renders text as HTML: {unsafe_call}"
        );
    }
}

#[rstest]
#[case::get("GET /_fake/", &[], 200)]
#[case::head("HEAD /_fake/", &[], 200)]
#[case::path_without_the_slash("GET /_fake", &["Accept: text/html,application/xml;q=0.9"], 307)]
#[case::list_of_requests("GET /_fake", &["Accept: */*"], 401)]
#[case::data("GET /_fake/objects", &["Accept: text/html"], 401)]
#[case::write("POST /_fake/", &[], 405)]
#[case::foreign_host_name("GET /_fake/", &["Host: evil.example"], 403)]
#[case::page_of_another_origin("GET /_fake/", &["Origin: http://evil.example"], 403)]
fn only_the_page_is_served_without_a_token(#[case] request: &str, #[case] headers: &[&str], #[case] code: u16) {
    let server = Server::start(&["--control", "--authorization", "rbac", "--anonymous", "deny"]);
    let answer = ask(&server, request, headers, "");
    assert_eq!(answer.code, code, "{answer:?}");
    assert_eq!(answer.head.contains("location: /_fake/"), code == 307, "{answer:?}");
}

#[test]
fn page_requires_the_control_api() {
    assert_eq!(ask(&Server::start(&[]), "GET /_fake/", &[], "").code, 404);
}

/// A stream of journal pages, read event by event.
struct Stream(BufReader<TcpStream>);

impl Stream {
    fn open(server: &Server, query: &str, header: &str) -> Self {
        let headers = ["Accept: text/event-stream", header];
        let headers = &headers[..if header.is_empty() { 1 } else { 2 }];
        let stream = send(server, &format!("GET /_fake/journal{query}"), headers, "");
        let mut reader = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            reader.read_line(&mut head).expect("the response has a head");
        }
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        assert!(
            head.to_lowercase().contains("content-type: text/event-stream\r\n"),
            "{head}"
        );
        Self(reader)
    }

    /// Returns the `id` and the `data` of the next event.
    fn next(&mut self) -> (u64, Value) {
        let mut id = None;
        loop {
            let mut line = String::new();
            assert!(
                self.0.read_line(&mut line).expect("the stream continues") > 0,
                "the stream has not ended"
            );
            if let Some(number) = line.strip_prefix("id: ") {
                id = number.trim().parse().ok();
            }
            if let Some(data) = line.strip_prefix("data: ") {
                return (
                    id.expect("the watch has an id"),
                    serde_json::from_str(data).expect("the text is valid JSON"),
                );
            }
        }
    }

    /// Reads until an entry with this name arrives, and returns it.
    fn until(&mut self, name: &str) -> Value {
        loop {
            let (_, page) = self.next();
            let entries = page["entries"].as_array().expect("the value is a list");
            if let Some(found) = entries.iter().find(|it| it["request"]["name"] == name) {
                return found["request"].clone();
            }
        }
    }
}

#[test]
fn journal_stream_starts_at_the_given_entry_and_continues() {
    let server = Server::start(&["--control"]);
    create_map(&server, &json!({"metadata": {"name": "a"}}));
    let mut stream = Stream::open(&server, "", "");
    let (id, first) = stream.next();
    assert_documented(&server, &first, "get", "/_fake/journal");
    assert_eq!((first["first"].as_u64(), first["next"].as_u64()), (Some(0), Some(id)));
    let request = &first["entries"][0]["request"];
    assert_eq!(
        (&request["name"], &request["resource"]),
        (&json!("a"), &json!("configmaps"))
    );
    assert_eq!(
        (&request["client"], &request["verb"]),
        (&json!("maker/1"), &json!("create"))
    );

    let text = "x".repeat(5_000);
    create_map(&server, &json!({"metadata": {"name": "b"}, "data": {"long": text}}));
    let streamed = stream.until("b");
    assert_eq!(
        streamed["body"].as_str().map(str::len),
        Some(4_096),
        "bodies in a stream are truncated"
    );
    let whole = get(&server, &format!("/_fake/journal/{}", streamed["number"]));
    assert_documented(&server, &whole, "get", "/_fake/journal/{number}");
    assert!(
        whole["entry"]["request"]["body"]
            .as_str()
            .is_some_and(|it| it.len() > 5_000)
    );
    assert!(whole["answer"].as_str().is_some_and(|it| it.contains("\"uid\"")));

    for (query, header) in [
        ("?since=1", ""),
        ("", "Last-Event-ID: 1"),
        ("?since=0", "Last-Event-ID: 1"),
    ] {
        let (_, page) = Stream::open(&server, query, header).next();
        assert_eq!(page["first"], 1, "{query} {header}");
    }
    let beyond = ask(&server, "GET /_fake/journal/99999", &[], "");
    assert_eq!(beyond.code, 404, "{beyond:?}");
}

#[test]
fn single_watch_is_held_and_reports_its_lag() {
    let server = Server::start(&["--control"]);
    let path = format!("GET {MAPS}?watch=true&resourceVersion=0");
    let mut watches = [0, 1].map(|_| BufReader::new(send(&server, &path, &["User-Agent: watcher/1"], "")));
    let mut line = String::new();
    for watch in &mut watches {
        // Once the head has been read, the watch is open.
        while line != "\r\n" {
            line.clear();
            watch.read_line(&mut line).expect("the response has a head");
        }
        line.clear();
    }
    let order = json!({"watch": 2, "do": "hold"});
    assert_eq!(control(&server, "POST /_fake/watches", &[], order)["watches"], 1);
    create_map(&server, &json!({"metadata": {"name": "a"}}));
    create_map(&server, &json!({"metadata": {"name": "b"}}));
    let shown = loop {
        let shown = get(&server, "/_fake/watches");
        if shown[0]["behind"] == 0 && shown[1]["behind"] == 2 {
            break shown;
        }
        std::thread::yield_now();
    };
    assert_documented(&server, &shown, "get", "/_fake/watches");
    assert_eq!(
        (&shown[0]["isHeld"], &shown[1]["isHeld"]),
        (&json!(false), &json!(true))
    );

    control(
        &server,
        "POST /_fake/watches",
        &[],
        json!({"watch": 1, "do": "silence"}),
    );
    create_map(&server, &json!({"metadata": {"name": "c"}}));
    let silent = &get(&server, "/_fake/watches")[0];
    assert_eq!((&silent["isSilent"], &silent["behind"]), (&json!(true), &json!(1)));
    let none = control(&server, "POST /_fake/watches", &[], json!({"watch": 9, "do": "cut"}));
    assert_eq!(none["watches"], 0);
}

#[test]
fn objects_and_owners_are_listed_for_every_saved_state() {
    let server = Server::start(&["--control"]);
    create_map(&server, &json!({"metadata": {"name": "owner"}}));
    let uid_of = |name: &str, query: &str| -> Option<String> {
        let objects = get(&server, &format!("/_fake/objects{query}"));
        let objects = objects.as_array().expect("the value is a list").clone();
        let found = objects.into_iter().find(|it| it["name"] == name)?;
        found["uid"].as_str().map(str::to_owned)
    };
    let uid = uid_of("owner", "").expect("the object exists");
    let owners = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid}]);
    let before = control(&server, "POST /_fake/snapshot", &[], Value::Null)["snapshot"].clone();
    create_map(
        &server,
        &json!({"metadata": {"name": "owned", "ownerReferences": owners}, "data": {"a": "1"}}),
    );
    let between = control(&server, "POST /_fake/snapshot", &[], Value::Null)["snapshot"].clone();
    let owned = uid_of("owned", "").expect("the object exists");
    assert_eq!(uid_of("owned", &format!("?snapshot={before}")), None);
    let listed = get(&server, "/_fake/objects");
    let found = listed
        .as_array()
        .into_iter()
        .flatten()
        .find(|it| it["uid"] == owned.as_str());
    assert_eq!(found.expect("the object is listed")["owners"][0]["uid"], uid.as_str());

    let removed = ask(&server, &format!("DELETE {MAPS}/owner"), &[], "");
    assert_eq!(removed.code, 200);
    let object = get(&server, &format!("/_fake/objects/{uid}?snapshot={between}"));
    assert_documented(&server, &object, "get", "/_fake/objects/{uid}");
    assert_eq!(object["metadata"]["name"], "owner");
    assert_eq!(ask(&server, &format!("GET /_fake/objects/{uid}"), &[], "").code, 404);
    assert_eq!(ask(&server, "GET /_fake/objects?snapshot=9", &[], "").code, 404);

    let kept = get(&server, "/_fake/snapshot");
    let numbers: Vec<_> = kept["snapshots"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|it| &it["snapshot"])
        .collect();
    assert_eq!(numbers, [&before, &between]);
    let path = format!("GET /_fake/diff?from={before}");
    let json = ["Accept: application/json"];
    let now = control(&server, &path, &json, Value::Null);
    assert_documented(&server, &now, "get", "/_fake/diff");
    assert_eq!(
        (&now["added"][0]["uid"], &now["removed"][0]["uid"]),
        (&json!(owned), &json!(uid))
    );
    let then = control(&server, &format!("{path}&to={between}"), &json, Value::Null);
    assert_eq!(
        (then["added"].as_array().map(Vec::len), &then["removed"]),
        (Some(1), &json!([]))
    );
    // Clients receive text unless `Accept` contains JSON.
    let text = ask(&server, &path, &["Accept: */*"], "").body;
    assert_eq!(text, "- ConfigMap default/owner\n+ ConfigMap default/owned\n");
}

/// Returns the uid of a current object.
fn uid_of(server: &Server, kind: &str, name: &str) -> String {
    let objects = get(server, "/_fake/objects");
    let mut objects = objects.as_array().into_iter().flatten();
    let found = objects.find(|it| it["kind"] == kind && it["name"] == name);
    let found = found.unwrap_or_else(|| panic!("the {kind} {name} is not listed"));
    found["uid"].as_str().expect("the uid is a string").to_owned()
}

fn newest(server: &Server) -> u64 {
    let revision = &get(server, "/_fake/snapshot")["resourceVersion"];
    revision.as_u64().expect("the value is a number")
}

#[test]
fn object_history_contains_the_client_and_changed_fields_of_each_revision() {
    let server = Server::start(&["--control"]);
    create_map(&server, &json!({"metadata": {"name": "a"}, "data": {"color": "red"}}));
    let uid = uid_of(&server, "ConfigMap", "a");
    let patch = ["User-Agent: painter/2", "Content-Type: application/merge-patch+json"];
    let painted = ask(
        &server,
        &format!("PATCH {MAPS}/a"),
        &patch,
        r#"{"data": {"color": "blue"}}"#,
    );
    assert_eq!(painted.code, 200, "{painted:?}");
    let event = json!({"type": "MODIFIED", "object": {"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "a", "namespace": "default", "uid": uid}, "data": {"color": "green"}}});
    control(&server, "POST /_fake/events", &[], event);
    let removed = ask(&server, &format!("DELETE {MAPS}/a"), &["User-Agent: remover/3"], "");
    assert_eq!(removed.code, 200, "{removed:?}");

    let history = get(&server, &format!("/_fake/objects/{uid}/history"));
    assert_documented(&server, &history, "get", "/_fake/objects/{uid}/history");
    let told: Vec<_> = history["revisions"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|it| json!([it["type"], it["by"]["client"], it["by"]["verb"], it["changes"]]))
        .collect();
    assert_eq!(
        told,
        [
            json!(["ADDED", "maker/1", "create", []]),
            json!(["MODIFIED", "painter/2", "patch", ["data.color: \"red\" -> \"blue\""]]),
            json!(["MODIFIED", null, null, ["data.color: \"blue\" -> \"green\""]]),
            json!(["DELETED", "remover/3", "delete", []]),
        ]
    );
    assert_eq!(ask(&server, "GET /_fake/objects/none/history", &[], "").code, 404);
}

#[test]
fn request_that_removes_the_last_finalizer_is_the_author_of_the_deletion() {
    let server = Server::start(&["--control"]);
    create_map(
        &server,
        &json!({"metadata": {"name": "a", "finalizers": ["example.com/hold"]}}),
    );
    let uid = uid_of(&server, "ConfigMap", "a");
    assert_eq!(
        ask(&server, &format!("DELETE {MAPS}/a"), &["User-Agent: remover/3"], "").code,
        200
    );
    let patch = ["User-Agent: releaser/4", "Content-Type: application/merge-patch+json"];
    let released = ask(
        &server,
        &format!("PATCH {MAPS}/a"),
        &patch,
        r#"{"metadata": {"finalizers": null}}"#,
    );
    assert_eq!(released.code, 200, "{released:?}");
    let history = get(&server, &format!("/_fake/objects/{uid}/history"));
    let revisions = history["revisions"].as_array().expect("the value is a list");
    let told: Vec<_> = revisions.iter().map(|it| (&it["type"], &it["by"]["client"])).collect();
    assert_eq!(
        told,
        [
            (&json!("ADDED"), &json!("maker/1")),
            (&json!("MODIFIED"), &json!("remover/3")),
            (&json!("DELETED"), &json!("releaser/4")),
        ]
    );
}

#[test]
fn objects_kinds_and_tables_can_be_read_at_any_revision() {
    let server = Server::start(&["--control"]);
    let start = newest(&server);
    create_map(&server, &json!({"metadata": {"name": "a"}, "data": {"n": "1"}}));
    let first = newest(&server);
    create_map(&server, &json!({"metadata": {"name": "b"}}));
    assert_eq!(ask(&server, &format!("DELETE {MAPS}/a"), &[], "").code, 200);

    let maps_at = |query: &str| -> Vec<Value> {
        let table = get(
            &server,
            &format!("/_fake/table?resource=configmaps&namespace=default{query}"),
        );
        assert_documented(&server, &table, "get", "/_fake/table");
        let rows = table["rows"].as_array().expect("the value is a list");
        rows.iter().map(|it| json!([it["cells"][0], it["cells"][1]])).collect()
    };
    assert_eq!(maps_at(&format!("&at={start}")), [] as [Value; 0]);
    assert_eq!(maps_at(&format!("&at={first}")), [json!(["a", 1])]);
    assert_eq!(
        maps_at(&format!("&at={}", first + 1)),
        [json!(["a", 1]), json!(["b", 0])]
    );
    assert_eq!(maps_at(""), [json!(["b", 0])]);

    let kinds = get(&server, &format!("/_fake/kinds?at={first}"));
    assert_documented(&server, &kinds, "get", "/_fake/kinds");
    let kinds = kinds["kinds"].as_array().expect("the value is a list");
    let maps = kinds.iter().find(|it| it["resource"] == "configmaps");
    assert_eq!(
        maps.map(|it| (&it["own"], &it["namespaces"]["default"])),
        Some((&json!(1), &json!(1)))
    );

    let changes = get(&server, &format!("/_fake/changes?since={start}"));
    assert_documented(&server, &changes, "get", "/_fake/changes");
    let told: Vec<_> = changes["changes"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|it| json!([it["type"], it["kind"], it["name"]]))
        .collect();
    assert_eq!(
        told,
        [
            json!(["ADDED", "ConfigMap", "a"]),
            json!(["ADDED", "ConfigMap", "b"]),
            json!(["DELETED", "ConfigMap", "a"])
        ]
    );

    control(&server, "POST /_fake/compact", &[], Value::Null);
    let gone = ask(&server, &format!("GET /_fake/kinds?at={first}"), &[], "");
    assert_eq!(gone.code, 410, "{gone:?}");
    assert!(gone.body.contains("the history begins at resourceVersion"), "{gone:?}");
}

#[rstest]
#[case::unknown_resource("/_fake/table?resource=gadgets", 404)]
#[case::unknown_group("/_fake/table?resource=deployments.example.com", 404)]
#[case::missing_resource("/_fake/table", 404)]
#[case::snapshot_and_revision("/_fake/objects?snapshot=1&at=1", 400)]
#[case::invalid_revision("/_fake/kinds?at=yesterday", 400)]
#[case::search_in_an_unknown_snapshot("/_fake/search?text=a&snapshot=9", 404)]
fn requests_for_unknown_resources_or_invalid_states_are_refused(#[case] path: &str, #[case] code: u16) {
    let server = Server::start(&["--control"]);
    let answer = ask(&server, &format!("GET {path}"), &[], "");
    assert_eq!(answer.code, code, "{answer:?}");
}

#[test]
fn related_objects_are_owners_owned_objects_and_events() {
    let server = Server::start(&["--control"]);
    let owned_by = |kind: &str, name: &str| {
        let uid = uid_of(&server, kind, name);
        json!([{"apiVersion": "v1", "kind": kind, "name": name, "uid": uid}])
    };
    create_map(&server, &json!({"metadata": {"name": "top"}}));
    create_map(
        &server,
        &json!({"metadata": {"name": "middle", "ownerReferences": owned_by("ConfigMap", "top")}}),
    );
    create_map(
        &server,
        &json!({"metadata": {"name": "low", "ownerReferences": owned_by("ConfigMap", "middle")}}),
    );
    let uid = uid_of(&server, "ConfigMap", "middle");
    let event = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, "type": "Warning", "reason": "Tired",
        "message": "it is late", "count": 3, "source": {"component": "clock"},
        "involvedObject": {"kind": "ConfigMap", "namespace": "default", "name": "middle", "uid": uid},
    });
    let made = ask(
        &server,
        "POST /api/v1/namespaces/default/events",
        &[],
        &event.to_string(),
    );
    assert_eq!(made.code, 201, "{made:?}");

    let related = get(&server, &format!("/_fake/objects/{uid}/related"));
    assert_documented(&server, &related, "get", "/_fake/objects/{uid}/related");
    assert_eq!(related["owners"][0]["name"], "top");
    assert_eq!(
        (&related["owned"][0]["name"], &related["owned"][0]["depth"]),
        (&json!("low"), &json!(1))
    );
    let shown = &related["events"][0];
    assert_eq!(
        (&shown["reason"], &shown["count"], &shown["source"]),
        (&json!("Tired"), &json!(3), &json!("clock"))
    );
}

#[test]
fn fault_that_has_reached_its_limit_is_shown_as_spent() {
    let server = Server::start(&["--control"]);
    let rule = json!({"effect": "conflict", "on": {"verbs": ["create"]}, "times": 1});
    control(&server, "POST /_fake/faults", &[], rule);
    let is_spent = || {
        let faults = get(&server, "/_fake/faults");
        assert_documented(&server, &faults, "get", "/_fake/faults");
        faults[0]["isSpent"].clone()
    };
    assert_eq!(is_spent(), false);
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    assert_eq!(ask(&server, &format!("POST {MAPS}"), &[], &map.to_string()).code, 409);
    assert_eq!(is_spent(), true);
}
