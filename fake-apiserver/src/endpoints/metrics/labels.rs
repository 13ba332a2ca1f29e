//! `Labels`: the metric labels of a request, modelled on `MonitorRequest` of k8s.io/apiserver.

use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderMap, Method};

use crate::api::options::Query;
use crate::api::request_info::{RequestInfo, Verb};
use crate::api::resource::Text;
use crate::endpoints::call::{CONNECTIONS, selected_name};
use crate::endpoints::discovery;

/// The labels of a request in the order of their names, without the response code.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Labels {
    pub(super) component: &'static str,
    pub(super) dry_run: &'static str,
    pub(super) group: Text,
    pub(super) resource: Text,
    pub(super) scope: &'static str,
    pub(super) subresource: String,
    pub(super) verb: &'static str,
    pub(super) version: Text,
}

impl Labels {
    /// Returns the labels of a request for a resource.
    pub(crate) fn of_resource(info: &RequestInfo, parts: &Parts, query: &Query) -> Self {
        let subresource = info.subresource.split('/').next().unwrap_or_default();
        let is_apply = || {
            parts
                .headers
                .get(CONTENT_TYPE)
                .is_some_and(|it| it == "application/apply-patch+yaml")
        };
        let verb = match info.verb {
            _ if CONNECTIONS.contains(&subresource) => "CONNECT",
            // The handler ignores `watch` if the path contains a name, but metrics count the request as a watch.
            Verb::Get if query.flag("watch").unwrap_or(false) => "WATCH",
            Verb::Get => "GET",
            Verb::List => "LIST",
            Verb::Watch => "WATCH",
            Verb::Create => "POST",
            Verb::Update => "PUT",
            Verb::Patch if is_apply() => "APPLY",
            Verb::Patch => "PATCH",
            Verb::Delete | Verb::DeleteCollection => "DELETE",
        };
        let scope = match info {
            RequestInfo { name, verb, .. } if !name.is_empty() || *verb == Verb::Create => "resource",
            RequestInfo { namespace, .. } if !namespace.is_empty() => "namespace",
            RequestInfo { .. } => "cluster",
        };
        Self {
            component: "apiserver",
            dry_run: dry_run(query),
            group: info.group.clone(),
            resource: info.resource.clone(),
            scope,
            subresource: subresource.to_owned(),
            verb,
            version: info.version.clone(),
        }
    }

    /// Returns the labels of a watch or a connection while it is open, like `RecordLongRunning` of k8s.io/apiserver.
    /// They differ from the labels with which the response is counted if the path contains `/watch/`, and if the field
    /// selector selects one object by name.
    pub(crate) fn of_long_running(&self, parts: &Parts, query: &Query) -> Self {
        let is_of_one = self.verb == "WATCH" && !selected_name(query).is_empty();
        let scope = if is_of_one { "resource" } else { self.scope };
        let is_legacy = self.verb == "WATCH" && parts.method == Method::GET && !query.flag("watch").unwrap_or(false);
        let verb = match (is_legacy, scope) {
            (true, "resource") => "GET",
            (true, _) => "LIST",
            (false, _) => self.verb,
        };
        Self {
            dry_run: "",
            scope,
            verb,
            ..self.clone()
        }
    }

    /// Returns the labels of a document; only health, OpenAPI v3 and aggregated discovery are counted.
    pub(crate) fn of_document(path: &str, parts: &Parts, answer: &HeaderMap) -> Option<Self> {
        let is_aggregated = || answer.get(CONTENT_TYPE).is_some_and(|it| it == discovery::AGGREGATED);
        let (component, subresource) = match path {
            "/healthz" | "/livez" | "/readyz" => ("", path),
            "/api" | "/apis" if is_aggregated() => ("apiserver", path.trim_start_matches('/')),
            "/openapi/v3" => ("", "openapi/v3"),
            _ if path.starts_with("/openapi/v3/") => ("", "openapi/v3/"),
            _ => return None,
        };
        Some(Self {
            subresource: subresource.to_owned(),
            ..Self::bare(component, &parts.method)
        })
    }

    /// Returns the labels of a request that is neither for a resource nor for a counted document. It is only counted if
    /// it is refused because of the limit on concurrent requests.
    pub(crate) fn bare(component: &'static str, method: &Method) -> Self {
        const KNOWN: [&str; 5] = ["GET", "POST", "PUT", "PATCH", "DELETE"];
        let verb = match method.as_str() {
            "HEAD" => "GET",
            method => KNOWN.into_iter().find(|it| *it == method).unwrap_or("other"),
        };
        Self {
            component,
            dry_run: "",
            group: Text::default(),
            resource: Text::default(),
            scope: "",
            subresource: String::new(),
            verb,
            version: Text::default(),
        }
    }
}

/// Returns the label for `dryRun`.
fn dry_run(query: &Query) -> &'static str {
    match query.get("dryRun") {
        None => "",
        Some(_) if query.all("dryRun").all(|it| it == "All") => "All",
        Some(_) => "invalid",
    }
}
