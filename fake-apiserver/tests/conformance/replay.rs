//! `Replay`: runs the steps of a scenario on a server in this process.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::body::{Body, Bytes};
use fake_apiserver::{ApiServer, Serving};
use http::header::{HeaderName, HeaderValue};
use http::{HeaderMap, Method, Request, Response, Uri};
use http_body_util::BodyExt as _;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout_at};
use tower::ServiceExt as _;

use crate::scenario::{Scenario, Step, Variables, is_awaited, mask};
use crate::{TOKEN, shell};

/// The URL in responses of a server without a port.
pub(crate) const ORIGIN: &str = "http://127.0.0.1:8001";

/// Headers that are compared.
const HEADERS: [&str; 4] = ["content-type", "warning", "retry-after", "allow"];

/// Time for which a step waits for its expected response.
const UNTIL_SECONDS: f64 = 10.0;

/// Time for which a read waits for its events.
const READ_SECONDS: f64 = 5.0;

/// Result of a run: the responses by step, or the error that ended the run.
pub(crate) type Answers = Result<Vec<(usize, Value)>, String>;

/// A scenario in progress.
pub(crate) struct Replay<'a> {
    server: &'a ApiServer,
    /// The port for programs, if the scenario runs any.
    serving: Option<&'a Serving>,
    pub(crate) variables: Variables,
    watches: BTreeMap<String, Stream>,
}

/// A watch, which is read line by line.
struct Stream {
    lines: mpsc::UnboundedReceiver<Bytes>,
    reader: AbortHandle,
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

impl<'a> Replay<'a> {
    pub(crate) fn new(server: &'a ApiServer, serving: Option<&'a Serving>, scenario: &Scenario) -> Self {
        Self {
            server,
            serving,
            variables: Variables::of(&scenario.name),
            watches: BTreeMap::new(),
        }
    }

    /// Executes all steps.
    pub(crate) async fn run(&mut self, scenario: &Scenario) -> Answers {
        if scenario.namespace {
            let body = self.variables.namespace();
            let request = request("POST", "/api/v1/namespaces", None, Some(body), &BTreeMap::new())?;
            let answer = self.send(request).await?;
            if answer.status() != 201 {
                return Err(format!("the namespace was not created: {answer:?}"));
            }
        }
        let mut answers = Vec::new();
        for (number, step) in scenario.steps.iter().enumerate() {
            let answer = self.step(step).await.map_err(|why| format!("step {number}: {why}"))?;
            // Allow readers of watches to run, and advance the time between two requests.
            sleep(Duration::from_millis(1)).await;
            let Some(mut answer) = answer else { continue };
            if step.record {
                let masked = if step.read.is_some() { "events" } else { "body" };
                for path in &step.mask {
                    let path: Vec<&str> = path.split('.').collect();
                    mask(&mut answer[masked], &path);
                }
                answers.push((number, answer));
            } else if !self.is_set_up(step, &answer) {
                return Err(format!("preparation step {number} failed: {answer}"));
            }
        }
        Ok(answers)
    }

    async fn step(&mut self, step: &Step) -> Result<Option<Value>, String> {
        if let Some(method) = &step.method {
            return self.ask(step, method).await.map(Some);
        }
        if let Some(name) = &step.watch {
            return self.watch(step, name).await.map(Some);
        }
        if let Some(name) = &step.read {
            return self.read(step, name).await.map(Some);
        }
        if let Some(seconds) = step.sleep {
            sleep(Duration::from_secs_f64(seconds)).await;
        } else if let Some(name) = &step.close {
            self.watches.remove(name).ok_or("the watch does not exist")?;
        } else if let Some(line) = &step.sh {
            let serving = self
                .serving
                .ok_or("the server does not listen on a port for programs")?;
            let line = self.variables.fill(line);
            let stdin = self.variables.fill(step.stdin.as_deref().unwrap_or_default());
            return shell::run(serving, self.variables.get("u"), &line, &stdin, &step.mask_lines)
                .await
                .map(Some);
        } else {
            return Err("the type of the step is unknown".to_owned());
        }
        Ok(None)
    }

    /// Sends a request, and repeats it until the response is as expected.
    async fn ask(&mut self, step: &Step, method: &str) -> Result<Value, String> {
        let path = self.variables.fill(&step.path);
        let body = step.body.as_deref().map(|body| self.variables.fill_body(body));
        let headers = self.headers(step);
        let deadline = Instant::now() + Duration::from_secs_f64(step.timeout.unwrap_or(UNTIL_SECONDS));
        let until = step
            .until
            .as_ref()
            .map(|condition| self.variables.fill_value(condition));
        let (answer, body) = loop {
            let request = request(method, &path, step.content_type.as_deref(), body.clone(), &headers)?;
            let answer = self.send(request).await?;
            let body = if method == "HEAD" {
                Value::Null
            } else {
                decode(answer.body())
            };
            let is_done = until.as_ref().is_none_or(|condition| is_awaited(&body, condition));
            if is_done || Instant::now() > deadline {
                break (answer, body);
            }
            sleep(Duration::from_millis(100)).await;
        };
        self.variables.capture(&step.capture, &body);
        Ok(json!({"status": answer.status().as_u16(), "headers": compared(answer.headers()), "body": body}))
    }

    async fn watch(&mut self, step: &Step, name: &str) -> Result<Value, String> {
        let request = request("GET", &self.variables.fill(&step.path), None, None, &self.headers(step))?;
        let Ok(answer) = self.server.service().oneshot(request).await;
        let head = json!({"status": answer.status().as_u16(), "headers": compared(answer.headers())});
        let (sender, lines) = mpsc::unbounded_channel();
        let reader = tokio::spawn(read_lines(answer.into_body(), sender)).abort_handle();
        self.watches.insert(name.to_owned(), Stream { lines, reader });
        Ok(head)
    }

    async fn read(&mut self, step: &Step, name: &str) -> Result<Value, String> {
        let stream = self.watches.get_mut(name).ok_or("the watch does not exist")?;
        let (mut events, mut eof) = (Vec::new(), false);
        let deadline = Instant::now() + Duration::from_secs_f64(step.timeout.unwrap_or(READ_SECONDS));
        while events.len() < step.count.unwrap_or(1) && !eof {
            match timeout_at(deadline, stream.lines.recv()).await {
                Ok(Some(line)) => events.push(decode(&line)),
                Ok(None) => eof = true,
                Err(_late) => break,
            }
        }
        // Check that no further events arrive.
        let deadline = Instant::now() + Duration::from_secs_f64(step.quiet.unwrap_or(0.0));
        while step.quiet.is_some() && !eof {
            match timeout_at(deadline, stream.lines.recv()).await {
                Ok(Some(line)) => events.push(decode(&line)),
                Ok(None) => eof = true,
                Err(_late) => break,
            }
        }
        let events = Value::Array(events);
        self.variables.capture(&step.capture, &events);
        Ok(json!({"events": events, "eof": eof}))
    }

    async fn send(&self, request: Request<Body>) -> Result<Response<Bytes>, String> {
        let Ok(answer) = self.server.service().oneshot(request).await;
        let (parts, body) = answer.into_parts();
        let body = body.collect().await.map_err(|why| why.to_string())?.to_bytes();
        Ok(Response::from_parts(parts, body))
    }

    fn headers(&self, step: &Step) -> BTreeMap<String, Option<String>> {
        let fill = |value: &Option<String>| value.as_deref().map(|value| self.variables.fill(value));
        step.headers
            .iter()
            .map(|(name, value)| (name.clone(), fill(value)))
            .collect()
    }

    /// Returns `true` if a setup step succeeded.
    fn is_set_up(&self, step: &Step, answer: &Value) -> bool {
        if step.may_fail || step.method.as_deref().is_none_or(|method| method == "DELETE") {
            return true;
        }
        let until = step
            .until
            .as_ref()
            .map(|condition| self.variables.fill_value(condition));
        let came = until.is_none_or(|condition| is_awaited(&answer["body"], &condition));
        came && answer["status"].as_u64().is_some_and(|status| status < 400)
    }
}

/// A request as the recorder sent it.
fn request(
    method: &str,
    path: &str,
    content_type: Option<&str>,
    body: Option<String>,
    headers: &BTreeMap<String, Option<String>>,
) -> Result<Request<Body>, String> {
    let host = ORIGIN.trim_start_matches("http://");
    let credentials = format!("Bearer {TOKEN}");
    let mut all = vec![
        ("authorization", credentials.as_str()),
        ("host", host),
        ("accept", "application/json"),
        ("user-agent", "conform/1"),
    ];
    let lower: Vec<(String, Option<&str>)> = headers
        .iter()
        .map(|(name, value)| (name.to_lowercase(), value.as_deref()))
        .collect();
    all.retain(|(name, _)| lower.iter().all(|(other, _)| other != name));
    all.extend(
        lower
            .iter()
            .filter_map(|(name, value)| Some((name.as_str(), (*value)?))),
    );
    if body.is_some() && lower.iter().all(|(name, _)| name != "content-type") {
        all.push(("content-type", content_type.unwrap_or("application/json")));
    }
    let mut request = Request::new(body.map_or_else(Body::empty, Body::from));
    *request.method_mut() = Method::from_bytes(method.as_bytes()).map_err(|why| why.to_string())?;
    *request.uri_mut() = uri(path)?;
    for (name, value) in all {
        let name = HeaderName::try_from(name).map_err(|why| why.to_string())?;
        request
            .headers_mut()
            .insert(name, HeaderValue::try_from(value).map_err(|why| why.to_string())?);
    }
    Ok(request)
}

/// Percent-encodes a path and query.
fn uri(path: &str) -> Result<Uri, String> {
    let encode = |byte: u8| match byte {
        b'!' | b'#'..=b';' | b'=' | b'?'..=b'[' | b']' | b'_' | b'a'..=b'z' | b'~' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    };
    let path: String = path.bytes().map(encode).collect();
    path.parse()
        .map_err(|why| format!("{path:?} is not a valid URI: {why}"))
}

/// Returns the compared headers. Warnings are a sorted list, because there may be several.
fn compared(headers: &HeaderMap) -> Value {
    // Decodes like an HTTP/1.1 client: each byte is a character.
    let text = |value: &HeaderValue| {
        value
            .as_bytes()
            .iter()
            .map(|byte| char::from(*byte))
            .collect::<String>()
    };
    let mut kept = Map::new();
    for name in HEADERS {
        let mut values: Vec<String> = headers.get_all(name).iter().map(text).collect();
        values.sort_by_key(|_| name != "warning");
        if name == "warning" {
            values.sort();
        }
        let Some(last) = values.last().cloned() else { continue };
        kept.insert(
            name.to_owned(),
            if name == "warning" { json!(values) } else { json!(last) },
        );
    }
    Value::Object(kept)
}

/// Parses a body as JSON. Other bodies are returned as strings.
fn decode(body: &[u8]) -> Value {
    if body.is_empty() {
        return Value::Null;
    }
    serde_json::from_slice(body).unwrap_or_else(|_| String::from_utf8_lossy(body).into())
}

async fn read_lines(mut body: Body, lines: mpsc::UnboundedSender<Bytes>) {
    let mut rest = Vec::new();
    while let Some(Ok(frame)) = body.frame().await {
        rest.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            // After the watch is closed, there is no receiver.
            let _ = lines.send(rest.drain(..=end).collect());
        }
    }
    if !rest.is_empty() {
        let _ = lines.send(rest.into());
    }
}
