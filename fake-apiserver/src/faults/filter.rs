//! `RequestFilter`: a serializable filter for requests.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::api::request_info::{RequestInfo, Verb};

/// Selects requests and watches; fields that are not set match everything, except requests of the server's workers.
///
/// ```
/// use fake_apiserver::{Verb, faults::RequestFilter};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let text = r#"{"verbs": ["update"], "resource": "deployments.apps"}"#;
/// let filter: RequestFilter = serde_json::from_str(text)?;
/// assert_eq!(filter.verbs, [Verb::Update]);
/// assert_eq!(filter.to_string(), "on update deployments.apps");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct RequestFilter {
    /// Verbs to match; empty for all verbs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub verbs: Vec<Verb>,
    /// Plural name (`pods`), optionally with a group (`deployments.apps`) and a subresource (`pods/status`). Without a
    /// subresource, requests for all subresources match as well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// Namespace of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name of the object. The creation of an object does not match any name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Client that sends the request: the name of an in-process client, otherwise the `User-Agent` or its part before
    /// the first slash (`manager` for `manager/v0.1 (linux)`). May also be the name of a worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// Clients to exclude, by the same names as in `client`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub except_clients: Vec<String>,
    /// Unused. End struct literals with `..RequestFilter::default()`, because fields may be added.
    #[doc(hidden)]
    #[serde(skip)]
    pub _more: (),
}

impl RequestFilter {
    /// Returns `true` if a client's request matches. A request of a server's worker only matches if `client` is the
    /// name of this worker.
    pub fn matches(&self, info: &RequestInfo, client: &str, worker: Option<&str>) -> bool {
        let client = worker.unwrap_or(client);
        self.client
            .as_ref()
            .map_or(worker.is_none(), |it| is_client(client, it))
            && !self.except_clients.iter().any(|it| is_client(client, it))
            && (self.verbs.is_empty() || self.verbs.contains(&info.verb))
            && self.resource.as_ref().is_none_or(|resource| is_for(info, resource))
            && self.namespace.as_ref().is_none_or(|it| *it == info.namespace)
            && self.name.as_ref().is_none_or(|it| *it == info.name)
    }
}

/// Returns `true` if a client has this name: the name of an in-process client, the `User-Agent` of another client, or
/// the part of the `User-Agent` before the first slash.
pub fn is_client(client: &str, name: &str) -> bool {
    client == name || client.split_once('/').is_some_and(|(before, _)| before == name)
}

/// Returns `true` if a request is for `resource`: a plural with an optional group. Without a subresource in `resource`,
/// all subresources match.
pub fn is_for(info: &RequestInfo, resource: &str) -> bool {
    let (resource, subresource) = match resource.split_once('/') {
        Some((resource, subresource)) => (resource, Some(subresource)),
        None => (resource, None),
    };
    let (plural, group) = match resource.split_once('.') {
        Some((plural, group)) => (plural, Some(group)),
        None => (resource, None),
    };
    *info.resource == *plural
        && group.is_none_or(|group| *info.group == *group)
        && subresource.is_none_or(|subresource| info.subresource == subresource)
}

impl fmt::Display for RequestFilter {
    /// Formats the filter like `on update,patch configmaps name=a`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verbs: Vec<_> = self.verbs.iter().map(|it| it.as_str()).collect();
        match verbs.is_empty() {
            true => f.write_str("on every request for")?,
            false => write!(f, "on {}", verbs.join(","))?,
        }
        write!(f, " {}", self.resource.as_deref().unwrap_or("any resource"))?;
        for (field, value) in [
            ("namespace", &self.namespace),
            ("name", &self.name),
            ("client", &self.client),
        ] {
            if let Some(value) = value {
                write!(f, " {field}={value}")?;
            }
        }
        Ok(())
    }
}
