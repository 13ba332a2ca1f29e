//! The recorded requests: a gzipped file with a line for each request, first the setup requests, then the cases.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;
use std::sync::LazyLock;

use flate2::read::GzDecoder;
use http::{HeaderName, HeaderValue, Method};
use regex::{Captures, Regex};
use serde::Deserialize;
use serde_json::Value;

use crate::compare::Answer;

/// A file of recorded requests.
pub(crate) struct Recording {
    /// The resource or area of the requests.
    pub(crate) file: String,
    pub(crate) options: Options,
    pub(crate) setup: Vec<Step>,
    pub(crate) cases: Vec<Case>,
}

/// Flags of the recorded server, if they differ from the flags of the other recordings.
#[derive(Deserialize)]
pub(crate) struct Options {
    /// The minor version of Kubernetes; the default version if absent.
    pub(crate) version: Option<String>,
    /// The pairs of `--runtime-config`.
    #[serde(default)]
    pub(crate) runtime_config: Vec<String>,
    /// The enabled feature gates.
    #[serde(default)]
    pub(crate) gates: Vec<String>,
}

/// A setup request for the cases.
#[derive(Deserialize)]
pub(crate) struct Step {
    #[serde(flatten)]
    pub(crate) request: Request,
    /// Variables to capture, each with the path of its value in the response.
    #[serde(default)]
    pub(crate) keep: BTreeMap<String, String>,
    /// The expected status. The request is repeated until the server returns it.
    pub(crate) until: Option<u16>,
    /// Seconds to wait after the request.
    #[serde(default)]
    pub(crate) pause: f64,
}

/// A request with the response of kube-apiserver.
#[derive(Deserialize)]
pub(crate) struct Case {
    #[serde(rename = "n")]
    pub(crate) name: String,
    #[serde(flatten)]
    pub(crate) request: Request,
    #[serde(flatten)]
    pub(crate) answer: Answer,
}

/// A request.
#[derive(Clone, Deserialize)]
pub(crate) struct Request {
    #[serde(rename = "m")]
    pub(crate) method: String,
    #[serde(rename = "p")]
    pub(crate) path: String,
    /// The media type. Absent means JSON; if it is empty, the header is omitted.
    #[serde(rename = "t")]
    content_type: Option<String>,
    #[serde(rename = "h", default)]
    headers: BTreeMap<String, String>,
    #[serde(rename = "raw")]
    pub(crate) body: Option<String>,
}

#[derive(Deserialize)]
struct Head {
    file: String,
    #[serde(flatten)]
    options: Options,
    setup: Vec<Step>,
}

impl Recording {
    /// Reads a file.
    pub(crate) fn read(path: &Path) -> Self {
        let file = std::fs::File::open(path).unwrap_or_else(|err| panic!("{}: {err}", path.display()));
        let mut text = String::new();
        GzDecoder::new(file)
            .read_to_string(&mut text)
            .expect("the recording is gzipped text");
        let mut lines = text.lines();
        let head: Head = lines
            .next()
            .and_then(|line| serde_json::from_str(line).ok())
            .unwrap_or_else(|| panic!("{}: the first line is not a list of setup requests", path.display()));
        let case = |line| serde_json::from_str(line).unwrap_or_else(|err| panic!("{}: {err}", path.display()));
        Self {
            file: head.file,
            options: head.options,
            setup: head.setup,
            cases: lines.map(case).collect(),
        }
    }
}

impl Request {
    /// Builds the request in the recorder's format.
    pub(crate) fn http(&self, token: &str, path: &str, body: Option<String>) -> http::Request<String> {
        let mut all = BTreeMap::from([
            ("accept".to_owned(), "application/json".to_owned()),
            ("authorization".to_owned(), format!("Bearer {token}")),
            ("host".to_owned(), "127.0.0.1:8001".to_owned()),
            ("user-agent".to_owned(), "differ".to_owned()),
        ]);
        all.extend(
            self.headers
                .iter()
                .map(|(name, value)| (name.to_lowercase(), value.clone())),
        );
        match self.content_type.as_deref() {
            _ if body.is_none() => {}
            Some("") => {}
            given => {
                all.insert(
                    "content-type".to_owned(),
                    given.unwrap_or("application/json").to_owned(),
                );
            }
        }
        let mut request = http::Request::new(body.unwrap_or_default());
        *request.method_mut() = Method::from_bytes(self.method.as_bytes()).expect("recorded methods are valid");
        *request.uri_mut() = encoded(path).parse().expect("an encoded path is a valid URI");
        for (name, value) in all {
            let name = HeaderName::try_from(name).expect("recorded headers are valid");
            let value = HeaderValue::try_from(value).expect("recorded headers are valid");
            request.headers_mut().insert(name, value);
        }
        request
    }
}

/// Percent-encodes a path and query like the recorder.
fn encoded(path: &str) -> String {
    let is_kept = |byte: u8| byte.is_ascii_alphanumeric() || b"/?&=%:;,+*!()'$@~-._".contains(&byte);
    path.bytes()
        .map(|byte| match is_kept(byte) {
            true => char::from(byte).to_string(),
            false => format!("%{byte:02X}"),
        })
        .collect()
}

/// Values captured from earlier responses, by variable name.
#[derive(Default)]
pub(crate) struct Variables(BTreeMap<String, String>);

impl Variables {
    /// Captures parts of a response.
    pub(crate) fn keep(&mut self, parts: &BTreeMap<String, String>, answer: &[u8]) {
        let answer: Value = serde_json::from_slice(answer).unwrap_or_default();
        for (name, place) in parts {
            let value = place.split('.').fold(&answer, |value, part| &value[part]);
            self.0
                .insert(name.clone(), value.as_str().unwrap_or_default().to_owned());
        }
    }

    /// Replaces the variables in a body.
    pub(crate) fn fill(&self, text: &str) -> String {
        self.replace(text, str::to_owned)
    }

    /// Replaces the variables in a path with percent-encoded values.
    pub(crate) fn fill_path(&self, text: &str) -> String {
        let encode = |value: &str| {
            let is_kept = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-~".contains(&byte);
            let bytes = value.bytes().map(|byte| match is_kept(byte) {
                true => char::from(byte).to_string(),
                false => format!("%{byte:02X}"),
            });
            bytes.collect()
        };
        self.replace(text, encode)
    }

    fn replace(&self, text: &str, put: impl Fn(&str) -> String) -> String {
        static VARIABLE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\$\{(\w+)\}").expect("the pattern is valid"));
        if !text.contains("${") {
            return text.to_owned();
        }
        let value = |found: &Captures<'_>| match self.0.get(&found[1]) {
            Some(value) => put(value),
            None => found[0].to_owned(),
        };
        VARIABLE.replace_all(text, value).into_owned()
    }
}
