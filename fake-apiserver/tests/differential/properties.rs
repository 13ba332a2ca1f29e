//! Properties that do not require recorded responses: accepted objects survive round trips, and a refused write changes
//! nothing. The objects are taken from the recorded requests, including dropped fields and nulls.

use std::time::Duration;

use axum::body::Body;
use fake_apiserver::ApiServer;
use http::Request;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http_body_util::BodyExt as _;
use rstest::rstest;
use serde_json::Value;
use tower::ServiceExt as _;

use crate::recording::{Case, Recording, Variables};
use crate::{SHOWN_MAX, TOKEN, ask, set_up, start};

/// Number of objects to try from each file; `PROPERTIES=all` tries all of them.
const TRIED: usize = 8;

const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// A server with one object.
struct Stored {
    server: ApiServer,
    path: String,
    object: Value,
    failed: Vec<String>,
}

async fn send(
    server: &ApiServer,
    method: &str,
    path: &str,
    (content_type, accept): (&str, &str),
    body: Vec<u8>,
) -> (u16, Vec<u8>) {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(AUTHORIZATION, format!("Bearer {TOKEN}"))
        .header(CONTENT_TYPE, content_type)
        .header(ACCEPT, accept)
        .body(Body::from(body));
    let Ok(answer) = server.service().oneshot(request.expect("the request is valid")).await;
    let code = answer.status().as_u16();
    let body = answer
        .into_body()
        .collect()
        .await
        .expect("the response body arrives completely");
    (code, body.to_bytes().to_vec())
}

/// Encodes a name as a path segment.
fn encoded(name: &str) -> String {
    let is_kept = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let bytes = name.bytes().map(|byte| match is_kept(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    });
    bytes.collect()
}

fn read(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap_or_default()
}

impl Stored {
    /// Creates the object of a request; `None` if it is refused or not stored.
    async fn of(server: &ApiServer, case: &Case, variables: &Variables) -> Option<Self> {
        let (path, query) = case.request.path.split_once('?').unwrap_or((&case.request.path, ""));
        if case.request.method != "POST" || !query.contains("dryRun=All") {
            return None;
        }
        let (server, path) = (server.fork(), variables.fill_path(path));
        let body = variables.fill(case.request.body.as_deref()?).into_bytes();
        let created = format!("{path}?fieldManager=maker");
        let (code, answer) = send(&server, "POST", &created, (JSON, JSON), body).await;
        let made = read(&answer);
        let path = format!("{path}/{}", encoded(made["metadata"]["name"].as_str()?));
        let (found, object) = send(&server, "GET", &path, (JSON, JSON), Vec::new()).await;
        if code != 201 || found == 404 {
            return None;
        }
        let mut stored = Self {
            server,
            path,
            object: read(&object),
            failed: Vec::new(),
        };
        // A controller in the server writes the status of these kinds.
        let has_own_loop = matches!(
            made["kind"].as_str(),
            Some("CustomResourceDefinition" | "APIService" | "FlowSchema")
        );
        let is_read_back = match has_own_loop {
            true => stored.object["spec"] == made["spec"],
            false => stored.object == made,
        };
        if !is_read_back {
            stored.fail("create and read", &format!("{made}\n  became {}", stored.object));
        }
        if stored.object["kind"] == "PersistentVolumeClaim" {
            stored.complete().await;
        }
        // If a later write changes nothing, the timestamps must not change.
        tokio::time::advance(Duration::from_secs(2)).await;
        Some(stored)
    }

    fn fail(&mut self, what: &str, why: &str) {
        self.failed.push(format!("{} {what}: {why}", self.path));
    }

    /// Sends the first write of a kind that completes stored objects with defaults: it creates a new version even if it
    /// changes nothing.
    async fn complete(&mut self) {
        let (path, body) = (self.path.clone(), self.object.to_string().into_bytes());
        let (code, answer) = send(&self.server, "PUT", &path, (JSON, JSON), body).await;
        let answer = read(&answer);
        if code != 200 || answer["metadata"]["resourceVersion"] == self.object["metadata"]["resourceVersion"] {
            self.fail("first write", &format!("{code} {answer}"));
        }
        self.object = answer;
    }

    /// Sends a write that must leave the object unchanged.
    async fn write(&mut self, what: &str, method: &str, query: &str, content_type: &str, body: Vec<u8>) {
        let path = format!("{}?{query}", self.path);
        let (code, answer) = send(&self.server, method, &path, (content_type, JSON), body).await;
        let answer = read(&answer);
        if code != 200 {
            self.fail(what, &format!("{code} {}", answer["message"]));
        } else if answer["metadata"]["resourceVersion"] != self.object["metadata"]["resourceVersion"] {
            self.fail(what, &format!("{}\n  became {answer}", self.object));
        }
    }

    /// Updates the object with itself, and sends empty patches.
    async fn nothing_changes(&mut self) {
        let body = self.object.to_string().into_bytes();
        self.write("update with itself", "PUT", "fieldManager=maker", JSON, body.clone())
            .await;
        self.write("update by another", "PUT", "fieldManager=other", JSON, body)
            .await;
        let mut types = vec![
            ("application/merge-patch+json", "{}"),
            ("application/json-patch+json", "[]"),
        ];
        if !self.is_custom() {
            types.push(("application/strategic-merge-patch+json", "{}"));
        }
        for (content_type, patch) in types {
            let what = format!("empty {content_type}");
            self.write(&what, "PATCH", "fieldManager=other", content_type, patch.into())
                .await;
        }
    }

    fn is_custom(&self) -> bool {
        let api_version = self.object["apiVersion"].as_str().unwrap_or_default();
        api_version.contains("example.com")
    }

    /// Reads the object in other encodings, and writes it back.
    async fn other_forms(&mut self) {
        let forms: &[&str] = if self.is_custom() { &[YAML] } else { &[YAML, PROTOBUF] };
        for form in forms {
            let (code, body) = send(&self.server, "GET", &self.path, (JSON, form), Vec::new()).await;
            assert_eq!(code, 200, "{form}");
            self.write(form, "PUT", "fieldManager=other", form, body).await;
        }
    }

    /// Reads the object in the other versions of its resource, and writes it back.
    async fn other_versions(&mut self) {
        let api_version = self.object["apiVersion"].as_str().unwrap_or_default().to_owned();
        let (kind, group) = (
            self.object["kind"].clone(),
            api_version.split_once('/').map_or("", |it| it.0),
        );
        let others = self.server.resources().into_iter().filter(|it| {
            let group_of_it = if *it.group == *"events.k8s.io" { "" } else { &it.group };
            let group = if group == "events.k8s.io" { "" } else { group };
            *it.kind == kind && group_of_it == group && it.api_version() != api_version
        });
        for other in others.collect::<Vec<_>>() {
            let prefix = |version: &str| match version.contains('/') {
                true => format!("/apis/{version}/"),
                false => format!("/api/{version}/"),
            };
            let there = self
                .path
                .replacen(&prefix(&api_version), &prefix(&other.api_version()), 1);
            let (code, body) = send(&self.server, "GET", &there, (JSON, JSON), Vec::new()).await;
            if code != 200 {
                self.fail(&there, &code.to_string());
                continue;
            }
            let path = format!("{there}?fieldManager=other");
            let (code, answer) = send(&self.server, "PUT", &path, (JSON, JSON), body).await;
            match code {
                200 => self.check_conversion(&there, &read(&answer)).await,
                // The validation differs between versions, for example for Events.
                422 => {}
                _ => self.fail(&there, &format!("{code} {}", read(&answer)["message"])),
            }
        }
    }

    /// Checks that a write through another version has not changed the object.
    async fn check_conversion(&mut self, there: &str, answer: &Value) {
        let (_, body) = send(&self.server, "GET", &self.path, (JSON, JSON), Vec::new()).await;
        let mut now = read(&body);
        if self.object["kind"] == "HorizontalPodAutoscaler" {
            // Kubernetes moves the CPU metric after the metrics that `v1` keeps in an annotation.
            let by_text = |object: &mut Value| {
                if let Some(metrics) = object["spec"]["metrics"].as_array_mut() {
                    metrics.sort_by_key(Value::to_string);
                }
            };
            let mut before = self.object.clone();
            by_text(&mut before);
            by_text(&mut now);
            if before["spec"] != now["spec"] {
                self.fail(there, &format!("{}\n  became {}", before["spec"], now["spec"]));
            }
        } else if now != self.object {
            self.fail(there, &format!("{}\n  became {now}, by {answer}", self.object));
        }
        self.object = read(&body);
    }

    /// Applies the object to itself, twice.
    async fn applied_twice(&mut self) {
        let mut configuration = self.object.clone();
        let fields = [
            "managedFields",
            "resourceVersion",
            "uid",
            "creationTimestamp",
            "generation",
            "deletionTimestamp",
        ];
        for field in fields {
            configuration["metadata"].as_object_mut().map(|it| it.remove(field));
        }
        configuration.as_object_mut().map(|it| it.remove("status"));
        let body = configuration.to_string().into_bytes();
        let query = "fieldManager=applier&force=true";
        let path = format!("{}?{query}", self.path);
        let content_type = "application/apply-patch+yaml";
        let (code, answer) = send(&self.server, "PATCH", &path, (content_type, JSON), body.clone()).await;
        let answer = read(&answer);
        // A set with duplicate items can be created but not applied.
        let message = answer["message"].as_str().unwrap_or_default();
        if code == 500 && message.contains("duplicate entries for key") {
            return;
        }
        if code != 200 {
            return self.fail("apply", &format!("{code} {}", answer["message"]));
        }
        tokio::time::advance(Duration::from_secs(2)).await;
        self.object = answer;
        self.write("apply again", "PATCH", query, content_type, body).await;
    }
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn accepted_objects_can_be_written_again(
    #[files("tests/differential/requests/*.jsonl.gz")]
    #[exclude("crossed")]
    path: std::path::PathBuf,
) {
    let (recording, server, variables) = begin(&path).await;
    let accepted = |case: &&Case| case.answer.status == 201 && case.request.method == "POST";
    let cases: Vec<&Case> = recording.cases.iter().filter(accepted).collect();
    let step = step(cases.len(), TRIED);
    let (mut tried, mut failed) = (0, Vec::new());
    for case in cases.into_iter().step_by(step) {
        let Some(mut stored) = Stored::of(&server, case, &variables).await else {
            continue;
        };
        tried += 1;
        stored.nothing_changes().await;
        stored.other_forms().await;
        stored.other_versions().await;
        stored.applied_twice().await;
        failed.extend(stored.failed.into_iter().map(|why| format!("{}: {why}", case.name)));
    }
    finish(&recording, &format!("{tried} objects"), failed);
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn refused_writes_do_not_change_objects(
    #[files("tests/differential/requests/*.jsonl.gz")]
    #[exclude("crossed")]
    path: std::path::PathBuf,
) {
    let (recording, server, variables) = begin(&path).await;
    let refused: Vec<&Case> = recording.cases.iter().filter(|it| it.answer.status >= 400).collect();
    let step = step(refused.len(), 10 * TRIED);
    let (mut tried, mut failed) = (0, Vec::new());
    for case in refused.into_iter().step_by(step) {
        let before = server.resource_version();
        let mut request = case.request.clone();
        request.path = request.path.replace("dryRun=All&", "").replace("dryRun=All", "");
        let (answer, _) = ask(&server, &request, &variables).await;
        tried += 1;
        if answer.status >= 400 && server.resource_version() != before {
            failed.push(format!("{}: {} and a new version", case.name, answer.status));
        }
    }
    finish(&recording, &format!("{tried} refused writes"), failed);
}

/// Reads a recording, and sends its setup requests to a new server.
async fn begin(path: &std::path::Path) -> (Recording, ApiServer, Variables) {
    let recording = Recording::read(path);
    let server = start(&recording.options);
    let mut variables = Variables::default();
    for step in &recording.setup {
        set_up(&server, step, &mut variables).await;
    }
    (recording, server, variables)
}

/// Returns the interval at which cases are tried: about `most` of them, or all with `PROPERTIES=all`.
fn step(cases: usize, most: usize) -> usize {
    match std::env::var("PROPERTIES").is_ok_and(|it| it == "all") {
        true => 1,
        false => cases.div_ceil(most).max(1),
    }
}

/// Prints the number of tried objects, and fails with the first failures.
#[expect(clippy::print_stdout, reason = "it is the figure that the test is about")]
fn finish(recording: &Recording, tried: &str, mut failed: Vec<String>) {
    println!("{}: {tried}, {} failures", recording.file, failed.len());
    failed.truncate(SHOWN_MAX);
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
