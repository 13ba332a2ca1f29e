//! `Stub`: a program in simulated Pods that controllers connect to, such as a database.

use std::collections::BTreeMap;

use fake_apiserver::{PodSelector, ScriptOrder};
use http::StatusCode;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::fill::Places;

/// Placeholders for the properties of a stub's Pod, in the order of [`Stub::places`].
const POD: [&str; 4] = ["POD_NAME", "POD_NAMESPACE", "POD_IP", "POD_UID"];

/// Prefix of placeholders for state values of a Pod.
const STATE: &str = "state.";

/// A program at a port of simulated Pods: either HTTP responses or a command. Controllers reach it at the addresses and
/// names of the Pods and of their Services. Only with `network: private`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Stub {
    /// Selects the Pods: `{labels: app=db}`, or `{namespace: shop, name: db-0}`.
    pub(crate) pods: Value,
    /// The TCP port of the Pods. The port of a Service may differ; its `targetPort` is this port.
    pub(crate) port: u16,
    /// Responses to HTTP requests. The first matching response is returned, or 404 if none matches.
    #[serde(default)]
    pub(crate) http: Vec<Answer>,
    /// Name of a Secret with `tls.crt` and `tls.key`, in the namespace of the Pod, for serving TLS. Connections are
    /// reset while the Secret does not exist. Only with `http`.
    pub(crate) tls: Option<String>,
    /// The program and its arguments. It must listen on the port `${PORT}` of the loopback interface. At the first
    /// connection to a Pod, a process is started for this Pod; it ends with the Pod. `${POD_NAME}`, `${POD_NAMESPACE}`,
    /// `${POD_IP}`, `${POD_UID}`, `${SCENARIO}` and `${STATE}` (a directory that all stubs of a run share) are
    /// placeholders.
    #[serde(default)]
    pub(crate) command: Vec<String>,
    /// Environment variables of the command, with the same placeholders.
    #[serde(default)]
    pub(crate) env: BTreeMap<String, String>,
}

/// A response to HTTP requests.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Answer {
    /// Method of the requests, such as `GET`. Default: any.
    pub(crate) method: Option<String>,
    /// Path of the requests, without the query; a `*` at the end matches any suffix. Default: any.
    pub(crate) path: Option<String>,
    /// A string that the body of the requests must contain.
    pub(crate) containing: Option<String>,
    /// State values of the Pod for which this response applies; an empty string means a missing value.
    #[serde(default)]
    pub(crate) when: BTreeMap<String, String>,
    /// Status of the response. Default 200.
    #[serde(default = "ok")]
    pub(crate) status: u16,
    /// Headers of the response.
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, String>,
    /// Body of the response as JSON. May contain the placeholders `${POD_NAME}`, `${POD_NAMESPACE}`, `${POD_IP}`,
    /// `${POD_UID}` and `${state.NAME}`.
    pub(crate) json: Option<Value>,
    /// Body of the response as a string, with the same placeholders.
    pub(crate) body: Option<String>,
    /// State values of the Pod that the request sets before the response is sent. A Pod begins without values.
    #[serde(default)]
    pub(crate) set: BTreeMap<String, String>,
    /// Behaviour of this Pod from now on, in the format of the scripts in `cluster.pods`: `{readyAfterMs: 100}`. It
    /// replaces the script of the Pod.
    pub(crate) script: Option<Value>,
}

/// The properties of a Pod that its stubs use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pod {
    pub(crate) name: String,
    pub(crate) namespace: String,
    pub(crate) address: String,
    pub(crate) uid: String,
}

impl Pod {
    /// Reads the properties of a Pod if it is running at this address.
    pub(crate) fn running_at(address: &str, pod: &Value) -> Option<Self> {
        let text = |field: &str| pod["metadata"][field].as_str().unwrap_or_default().to_owned();
        let runs = pod["status"]["phase"] == "Running" && pod["status"]["podIP"] == address;
        runs.then(|| Self {
            name: text("name"),
            namespace: text("namespace"),
            address: address.to_owned(),
            uid: text("uid"),
        })
    }

    /// Returns the values of the placeholders for this Pod.
    pub(crate) fn places(&self) -> Places {
        let values = [&self.name, &self.namespace, &self.address, &self.uid];
        let values = POD.iter().zip(values);
        Places {
            values: values
                .map(|(name, value)| ((*name).to_owned(), value.clone()))
                .collect(),
        }
    }
}

impl Stub {
    /// Returns the selector of the Pods. The error contains the invalid field.
    pub(crate) fn selector(&self) -> Result<PodSelector, String> {
        read_script(&self.pods, &json!({}))
            .map(|(pods, _)| pods)
            .map_err(|err| format!("pods: {err}"))
    }

    /// Returns an error for the first invalid value.
    pub(crate) fn wrong(&self) -> Option<String> {
        if self.port == 0 {
            return Some("port: the number must be from 1 to 65535".to_owned());
        }
        if self.http.is_empty() == self.command.is_empty() {
            return Some("either http or command is required".to_owned());
        }
        if !self.command.is_empty() && self.tls.is_some() {
            return Some("tls: the field only has an effect with http; a command must serve TLS itself".to_owned());
        }
        if self.command.is_empty() && !self.env.is_empty() {
            return Some("env: the field only has an effect with command".to_owned());
        }
        if let Err(wrong) = self.selector() {
            return Some(wrong);
        }
        let mut answers = self.http.iter().enumerate();
        answers.find_map(|(at, it)| it.wrong().map(|wrong| format!("http[{at}].{wrong}")))
    }
}

impl Answer {
    fn wrong(&self) -> Option<String> {
        if self.json.is_some() && self.body.is_some() {
            return Some("body: json and body are mutually exclusive".to_owned());
        }
        if StatusCode::from_u16(self.status).is_err() {
            return Some(format!("status: {} is not an HTTP status", self.status));
        }
        for (name, value) in &self.headers {
            let is_valid = name.parse::<http::HeaderName>().is_ok() && value.parse::<http::HeaderValue>().is_ok();
            if !is_valid {
                return Some(format!("headers: {name:?} is not a valid header"));
            }
        }
        if let Some(Err(err)) = self.script.as_ref().map(|it| read_script(&json!({}), it)) {
            return Some(format!("script: {err}"));
        }
        // The state values are only known at run time.
        let pod = Pod {
            name: String::new(),
            namespace: String::new(),
            address: String::new(),
            uid: String::new(),
        };
        self.filled(pod.places(), |_| Some(String::new()))
            .err()
            .map(|err| format!("body: {err}"))
    }

    /// Returns `true` if the response applies to a request with this method, path and body to a Pod in this state.
    pub(crate) fn applies(&self, method: &str, path: &str, body: &[u8], state: &BTreeMap<String, String>) -> bool {
        let is_method = self.method.as_ref().is_none_or(|it| it.eq_ignore_ascii_case(method));
        let is_path = self.path.as_ref().is_none_or(|wanted| match wanted.strip_suffix('*') {
            Some(start) => path.starts_with(start),
            None => wanted == path,
        });
        let text = self.containing.as_ref();
        let contains = text.is_none_or(|it| memchr::memmem::find(body, it.as_bytes()).is_some());
        let mut values = self.when.iter();
        is_method && is_path && contains && values.all(|(key, value)| state.get(key).map_or("", |it| it) == value)
    }

    /// Returns the body with its placeholders filled in.
    pub(crate) fn filled(&self, mut places: Places, state: impl Fn(&str) -> Option<String>) -> Result<String, String> {
        let body = match (&self.json, &self.body) {
            (Some(json), _) => json.to_string(),
            (None, Some(body)) => body.clone(),
            (None, None) => return Ok(String::new()),
        };
        for part in body.split("${").skip(1) {
            let name = part.split('}').next().unwrap_or_default();
            if let Some(key) = name.strip_prefix(STATE) {
                let value = state(key).unwrap_or_default();
                places.values.insert(name.to_owned(), value);
            }
        }
        places.fill(&body)
    }
}

/// Parses the script of simulated Pods, and the selector of these Pods.
pub(crate) fn read_script(pods: &Value, script: &Value) -> Result<(PodSelector, fake_apiserver::PodScript), String> {
    let order = json!({"pods": pods, "script": script});
    let order = serde_json::from_value::<ScriptOrder>(order).map_err(|err| err.to_string());
    order.and_then(ScriptOrder::read)
}

const fn ok() -> u16 {
    200
}
