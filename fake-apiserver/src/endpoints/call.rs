//! `Call`: a request in progress, shared by the steps from its arrival to its response.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderName, HeaderValue};
use http::request::Parts;
use http::{HeaderMap, Method};

use super::audit::Record;
use super::journal::StoredAnswer;
use super::metrics::Seat;
use crate::api::options::Query;
use crate::api::request_info::{ClientName, RequestInfo, ResourcePath};
use crate::api::selector::FieldSelector;
use crate::api::user::{SentBy, UserInfo};
use crate::entropy::Entropy;
use crate::faults::{Lost, Seen};
use crate::registry::request::Remarks;

/// Header with the identifier of a request in logs.
pub(super) const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// Subresources that open connections.
pub(super) const CONNECTIONS: [&str; 5] = ["attach", "exec", "log", "portforward", "proxy"];

/// A request that is being handled.
#[derive(Debug)]
pub(crate) struct Call {
    /// Method, path and headers.
    pub(crate) parts: Parts,
    /// Query parameters.
    pub(crate) query: Query,
    /// The body, once it has been read.
    pub(crate) body: Bytes,
    /// The resource request, once it has been routed.
    pub(crate) info: Option<RequestInfo>,
    /// Warning for a deprecated kind (rules O13, U5).
    pub(crate) deprecation: Option<String>,
    /// Set for built-in kinds. If the router refuses the method of such a request, or the media type of a patch, the
    /// response does not contain a deprecation warning.
    pub(crate) has_routes: bool,
    /// User that sent the request.
    pub(crate) user: Arc<UserInfo>,
    /// Warnings for the client and annotations of the audit event, collected during the request.
    pub(crate) remarks: Remarks,
    /// Client that sent the request: the name of an in-process client, otherwise its `User-Agent`.
    pub(crate) client: Arc<str>,
    /// Descriptions of the injected faults that were applied.
    pub(crate) struck: Vec<String>,
    /// The successful response that was not sent because of a fault, if any.
    pub(crate) lost: Option<Lost>,
    /// Set after the user's permissions were checked.
    pub(crate) is_admitted: bool,
    /// Guard that counts the request as in progress; `None` if the request is not counted.
    pub(crate) seat: Option<Seat>,
    /// The request's audit event, if it is recorded.
    pub(crate) record: Option<Box<Record>>,
    /// Time of arrival, since the server's start.
    pub(crate) started: Duration,
    /// Set for watches, logs and connections, which have no time limit.
    pub(crate) is_long_running: bool,
    pub(super) audit_id: HeaderValue,
    /// `User-Agent`; empty if it is absent.
    pub(super) user_agent: String,
    /// Ordinal of the request, from 1.
    number: u64,
}

impl Call {
    pub(crate) fn new(parts: Parts, entropy: &Entropy, user: Arc<UserInfo>, number: u64) -> Self {
        let audit_id = parts.headers.get(AUDIT_ID).cloned();
        let audit_id = audit_id.or_else(|| HeaderValue::try_from(entropy.uid()).ok());
        let client = match parts.extensions.get::<ClientName>() {
            Some(ClientName(name)) => Arc::clone(name),
            None => text(&parts.headers, &header::USER_AGENT).unwrap_or_default().into(),
        };
        let user_agent = text(&parts.headers, &header::USER_AGENT).unwrap_or_default();
        let query = Query::parse(parts.uri.query());
        Self {
            user_agent: user_agent.to_owned(),
            is_long_running: is_long_running(&parts.method, parts.uri.path(), &query),
            client,
            remarks: Remarks::default(),
            struck: Vec::new(),
            lost: None,
            is_admitted: false,
            seat: None,
            record: None,
            number,
            query,
            body: Bytes::new(),
            info: None,
            deprecation: None,
            has_routes: false,
            user,
            audit_id: audit_id.unwrap_or(HeaderValue::from_static("")),
            started: entropy.elapsed(),
            parts,
        }
    }

    /// Returns the identifier of the request in logs.
    pub(crate) fn audit_id(&self) -> &str {
        self.audit_id.to_str().unwrap_or_default()
    }

    /// Returns a header as a string; `None` if it is absent or not valid text.
    pub(crate) fn header(&self, name: &HeaderName) -> Option<&str> {
        text(&self.parts.headers, name)
    }

    /// Returns `Accept`. As in Go, further headers of this name are ignored.
    pub(crate) fn accept(&self) -> Option<&str> {
        self.header(&header::ACCEPT)
    }

    /// Returns `User-Agent`; empty if it is absent.
    pub(crate) fn user_agent(&self) -> &str {
        &self.user_agent
    }

    /// Returns `true` if the client requests indented JSON (rule A31).
    pub(crate) fn wants_pretty(&self) -> bool {
        let browser = |agent: &str| ["curl", "Wget", "Mozilla/5.0"].iter().any(|it| agent.starts_with(it));
        match self.query.get("pretty") {
            None | Some("") => browser(self.user_agent()),
            // The values that Go's `strconv.ParseBool` accepts.
            Some(value) => matches!(value, "1" | "t" | "T" | "true" | "True" | "TRUE"),
        }
    }

    /// Returns `true` if a large response may be compressed.
    pub(crate) fn accepts_gzip(&self) -> bool {
        self.header(&header::ACCEPT_ENCODING).is_some_and(|list| {
            list.split(',')
                .any(|it| it.split(';').next().unwrap_or_default().trim() == "gzip")
        })
    }

    /// Returns `true` if the request is treated as a write: any method except GET and HEAD.
    pub(crate) fn is_mutating(&self) -> bool {
        !matches!(self.parts.method, Method::GET | Method::HEAD)
    }

    /// Returns the properties of the request that faults can match.
    pub(crate) fn seen<'a>(&'a self, info: &'a RequestInfo) -> Seen<'a> {
        Seen {
            number: self.number,
            at: self.started,
            info,
            client: &self.client,
            user_agent: self.user_agent(),
            worker: self.parts.extensions.get::<SentBy>().map(|it| it.0),
            method: &self.parts.method,
            path: self.parts.uri.path_and_query().map_or("", |it| it.as_str()),
            body: &self.body,
        }
    }
}

/// Returns `true` for watches, logs and connections, like `BasicLongRunningRequestCheck` of k8s.io/apiserver.
fn is_long_running(method: &Method, path: &str, query: &Query) -> bool {
    ResourcePath::parse(path).is_some_and(|it| {
        let connection = it
            .subresource
            .split_once('/')
            .map_or(it.subresource, |(first, _)| first);
        let is_watch = it.legacy_watch || (it.name.is_empty() && query.flag("watch").unwrap_or(false));
        (is_watch && *method == Method::GET) || CONNECTIONS.contains(&connection)
    })
}

/// Returns the name in `fieldSelector=metadata.name=x`; empty for other selectors.
pub(super) fn selected_name(query: &Query) -> String {
    let selector = query.get("fieldSelector").filter(|it| !it.is_empty());
    let selector = selector.and_then(|text| FieldSelector::parse(text).ok());
    let name = selector.and_then(|selector| selector.requires_name().map(str::to_owned));
    name.filter(|name| !name.contains(['/', '%']) && name != "." && name != "..")
        .unwrap_or_default()
}

/// The complete response, which the journal records.
#[derive(Clone, Debug)]
pub(crate) enum KeptAnswer {
    /// The whole response body.
    Whole(Bytes),
    /// The stored object in the response.
    Stored(StoredAnswer),
}

/// Returns a header as a string; `None` if it is absent or not valid text.
pub(super) fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}
