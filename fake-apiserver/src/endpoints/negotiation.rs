//! Negotiates the encodings of request bodies and responses: the rules of `Content-Type` and `Accept` (A16, A17, M1 to
//! M6).
//!
//! As in kube-apiserver, requests for built-in resources are checked twice: by the router, which compares media types
//! literally, and by the handler, which evaluates parameters and qualities. Requests for custom resources are checked
//! only by the handler.

use crate::api::options::PatchKind;
use crate::api::status::{Status, StatusDetails};

use super::accept::{Clause, clauses};

const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const STREAMS: [&str; 2] = [
    "application/json;stream=watch",
    "application/vnd.kubernetes.protobuf;stream=watch",
];

/// Type of the handler that serves a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Served {
    /// A built-in resource: the router checks media types first.
    BuiltIn,
    /// A custom resource.
    Custom,
}

/// Responses that the route of a request can produce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// A single object: every verb except list, watch and deletecollection.
    Object,
    /// A collection, which is listed, watched or deleted.
    Collection,
}

/// Encoding of the response body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// JSON, compact unless the client requests indentation (rule A31).
    #[default]
    Json,
    /// YAML with sorted keys.
    Yaml,
    /// Kubernetes' protobuf envelope.
    Protobuf,
}

/// A version of the group meta.k8s.io.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MetaVersion {
    /// `meta.k8s.io/v1`
    V1,
    /// `meta.k8s.io/v1beta1`
    V1Beta1,
}

/// Form of an object or a list in a response (rules M2, M3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum View {
    /// The whole object.
    #[default]
    Whole,
    /// A Table of rows and columns.
    Table(MetaVersion),
    /// The metadata of an object.
    Metadata(MetaVersion),
    /// The metadata of the items of a list.
    MetadataList(MetaVersion),
}

/// The form of a successful response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AnswerForm {
    /// Encoding of the response.
    pub(crate) encoding: Encoding,
    /// Form of the object or list.
    pub(crate) view: View,
    /// Set if `;pretty=1` requests indented JSON.
    pub(crate) pretty: bool,
}

/// The form of a failure's Status (rule M5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorForm {
    /// Compact JSON.
    Json,
    /// JSON indented by two spaces, for a client that accepts no available encoding.
    IndentedJson,
    /// YAML.
    Yaml,
    /// Protobuf, for a client that accepts nothing else.
    Protobuf,
}

/// The form of a discovery document (rule N2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Discovery {
    /// `APIVersions`, `APIGroupList`, …
    Plain(Encoding),
    /// `APIGroupDiscoveryList`
    Aggregated,
}

/// Encoding of a request body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyForm {
    /// JSON; also the default.
    Json,
    /// YAML.
    Yaml,
    /// Kubernetes' protobuf envelope; only for built-in kinds.
    Protobuf,
}

impl Encoding {
    /// Returns the `Content-Type` of a watch.
    pub(crate) fn stream_type(self) -> &'static str {
        match self {
            Encoding::Json | Encoding::Yaml => JSON,
            Encoding::Protobuf => STREAMS[1],
        }
    }

    /// Returns the `Content-Type` of a response.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Encoding::Json => JSON,
            Encoding::Yaml => YAML,
            Encoding::Protobuf => PROTOBUF,
        }
    }
}

impl AnswerForm {
    /// Refuses a Table as the form of a response that cannot be converted to a Table.
    pub(crate) fn refuse_table(&self) -> Result<(), Status> {
        match self.view {
            View::Table(_) => Err(Status::not_acceptable(&[JSON, YAML, PROTOBUF])),
            View::Whole | View::Metadata(_) | View::MetadataList(_) => Ok(()),
        }
    }
}

impl ErrorForm {
    /// Returns the `Content-Type` of a response.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            ErrorForm::Json | ErrorForm::IndentedJson => JSON,
            ErrorForm::Yaml => YAML,
            ErrorForm::Protobuf => PROTOBUF,
        }
    }
}

impl Discovery {
    /// Returns the `Content-Type` of a response.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Discovery::Plain(encoding) => encoding.content_type(),
            Discovery::Aggregated => "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
        }
    }
}

impl MetaVersion {
    /// Returns the `apiVersion` of a Table or PartialObjectMetadata.
    pub(crate) fn api_version(self) -> &'static str {
        match self {
            MetaVersion::V1 => "meta.k8s.io/v1",
            MetaVersion::V1Beta1 => "meta.k8s.io/v1beta1",
        }
    }
}

impl View {
    /// Refuses list metadata for a single object, and vice versa (rule M3). `go_type` returns the Go type for the
    /// message.
    pub(crate) fn check(self, is_list: bool, go_type: impl FnOnce() -> String) -> Result<(), Status> {
        let message = match self {
            View::Metadata(_) if is_list => format!(
                "you requested PartialObjectMetadata, but the requested object is a list ({})",
                go_type()
            ),
            View::MetadataList(_) if !is_list => format!(
                "you requested PartialObjectMetadataList, but the requested object is not a list ({})",
                go_type()
            ),
            View::Whole | View::Table(_) | View::Metadata(_) | View::MetadataList(_) => return Ok(()),
        };
        Err(Status::new(406, "NotAcceptable", message))
    }
}

/// Returns the Go type of a kind for messages: `*core.ConfigMap`, `*apps.DeploymentList`.
pub(crate) fn go_type(served: Served, group: &str, kind: &str) -> String {
    let package = match (served, group) {
        (Served::Custom, _) if kind.ends_with("List") => return "*unstructured.UnstructuredList".to_owned(),
        (Served::Custom, _) => return "*unstructured.Unstructured".to_owned(),
        (Served::BuiltIn, "" | "events.k8s.io") => "core",
        (Served::BuiltIn, "internal.apiserver.k8s.io") => "apiserverinternal",
        (Served::BuiltIn, group) => group.split('.').next().unwrap_or(group),
    };
    format!("*{package}.{kind}")
}

/// Returns `true` if no negotiation is needed, as for nearly every request.
fn is_plain(accept: Option<&str>) -> bool {
    accept.is_none_or(|it| matches!(it, "" | JSON | "*/*"))
}

/// Error for Tables in builds without `serve`.
const NO_TABLES: &str = "Tables need the feature \"serve\" of the crate fake-apiserver";

/// Negotiates the form of any response except a watch.
pub(crate) fn answer(accept: Option<&str>, served: Served, route: Route) -> Result<AnswerForm, Status> {
    if is_plain(accept) {
        return Ok(AnswerForm::default());
    }
    let accept = accept.unwrap_or_default();
    check_route(accept, served, route)?;
    let refused = || Status::not_acceptable(&[JSON, YAML, PROTOBUF]);
    let answer = clauses(accept).iter().find_map(|it| accepted(it, served));
    let answer = answer.ok_or_else(refused)?;
    match answer.view {
        View::Table(_) if !cfg!(feature = "serve") => Err(Status::new(501, "NotImplemented", NO_TABLES)),
        _ => Ok(answer),
    }
}

/// Negotiates the form of the events of a watch. The first acceptable clause applies, even if it is YAML, which does
/// not support streams.
pub(crate) fn watch_answer(accept: Option<&str>, served: Served) -> Result<AnswerForm, Status> {
    let answer = answer(accept, served, Route::Collection)?;
    match answer.encoding {
        Encoding::Json | Encoding::Protobuf => Ok(answer),
        Encoding::Yaml => Err(Status::not_acceptable(&STREAMS)),
    }
}

/// Chooses the encoding of an error response from the Accept header.
pub(crate) fn error_form(accept: Option<&str>) -> ErrorForm {
    if is_plain(accept) {
        return ErrorForm::Json;
    }
    let clauses = clauses(accept.unwrap_or_default());
    // Custom resources have the same forms of errors as built-in resources.
    let plain = |clause: &Clause<'_>| match accepted(clause, Served::BuiltIn) {
        Some(AnswerForm {
            encoding,
            view: View::Whole,
            ..
        }) => Some(encoding),
        _ => None,
    };
    match clauses.iter().find_map(plain) {
        Some(Encoding::Json) => ErrorForm::Json,
        Some(Encoding::Yaml) => ErrorForm::Yaml,
        Some(Encoding::Protobuf) => ErrorForm::Protobuf,
        None => ErrorForm::IndentedJson,
    }
}

/// Negotiates the form of a discovery document. A clause for the aggregated form takes precedence at any position.
/// `aggregated` is set if the path has such a form (`/api` and `/apis`).
pub(crate) fn discovery(accept: Option<&str>, served: Served, aggregated: bool) -> Result<Discovery, Status> {
    if is_plain(accept) {
        return Ok(Discovery::Plain(Encoding::Json));
    }
    let header = accept.unwrap_or_default();
    let asks = |it: &Clause<'_>| {
        it.names(JSON) && it.view() == Some(("apidiscovery.k8s.io", "v2", "APIGroupDiscoveryList")) && !it.is_foreign()
    };
    if aggregated && clauses(header).iter().any(asks) {
        return Ok(Discovery::Aggregated);
    }
    check_route(header, served, Route::Object)?;
    match error_form(accept) {
        ErrorForm::Json => Ok(Discovery::Plain(Encoding::Json)),
        ErrorForm::Yaml => Ok(Discovery::Plain(Encoding::Yaml)),
        ErrorForm::Protobuf => Ok(Discovery::Plain(Encoding::Protobuf)),
        ErrorForm::IndentedJson => Err(Status::not_acceptable(&[JSON, YAML, PROTOBUF])),
    }
}

/// Returns the 406 for documents without a protobuf encoding.
pub(crate) fn no_protobuf() -> Status {
    Status::not_acceptable(&[JSON, YAML, PROTOBUF])
}

/// Determines the form of a request's body, for every verb except PATCH.
pub(crate) fn body_form(content_type: Option<&str>, served: Served) -> Result<BodyForm, Status> {
    let written = content_type.unwrap_or_default();
    let media_type = written.split_once(';').map_or(written, |(it, _)| it).trim();
    let is = |name: &str| media_type.eq_ignore_ascii_case(name);
    if written.is_empty() || is(JSON) {
        Ok(BodyForm::Json)
    } else if is(YAML) {
        Ok(BodyForm::Yaml)
    } else if is(PROTOBUF) && served == Served::BuiltIn {
        Ok(BodyForm::Protobuf)
    } else {
        Err(Status::unsupported_media_type(&[JSON, YAML, PROTOBUF]))
    }
}

const PATCHES: [(&str, PatchKind); 4] = [
    ("application/json-patch+json", PatchKind::Json),
    ("application/merge-patch+json", PatchKind::Merge),
    ("application/strategic-merge-patch+json", PatchKind::Strategic),
    ("application/apply-patch+yaml", PatchKind::Apply),
];

/// Determines the form of a PATCH.
pub(crate) fn patch_form(content_type: Option<&str>, served: Served) -> Result<PatchKind, Status> {
    let written = content_type.unwrap_or_default();
    let known = |name: &str| {
        let found = PATCHES.iter().find(|(it, _)| *it == name).map(|(_, form)| *form);
        found.filter(|it| *it != PatchKind::Strategic || served == Served::BuiltIn)
    };
    let media_type = written.split_once(';').map_or(written, |(it, _)| it);
    if let Some(form) = known(media_type) {
        return Ok(form);
    }
    // The router trims spaces, unlike the handler.
    if served == Served::BuiltIn && known(media_type.trim_matches(' ')).is_none() {
        return Err(router_refusal(
            415,
            "UnsupportedMediaType",
            "415: Unsupported Media Type".to_owned(),
        ));
    }
    let accepted = PATCHES.iter().map(|(name, _)| *name).filter(|it| known(it).is_some());
    Err(Status::unsupported_media_type(&accepted.collect::<Vec<_>>()))
}

/// Checks that a client accepts the only encoding of a document.
pub(crate) fn check_document(accept: Option<&str>, media_type: &str) -> Result<(), Status> {
    let accept = accept.unwrap_or_default();
    let takes = |clause: &str| {
        let named = clause.split_once(';').map_or(clause, |(it, _)| it).trim_matches(' ');
        named == media_type || named == "*/*"
    };
    match accept.is_empty() || accept.split(',').any(takes) {
        true => Ok(()),
        false => {
            let message = format!("406: Not Acceptable\n\nAvailable representations: {media_type}");
            Err(router_refusal(406, "NotAcceptable", message))
        }
    }
}

/// Checks `Accept` like kube-apiserver's router, which only handles built-in resources: one clause must be JSON, YAML,
/// protobuf or `*/*`. Other wildcards and all parameters are ignored.
fn check_route(accept: &str, served: Served, route: Route) -> Result<(), Status> {
    let known = accept.split(',').any(|clause| {
        let media_type = clause.split_once(';').map_or(clause, |(it, _)| it).trim_matches(' ');
        matches!(media_type, JSON | YAML | PROTOBUF | "*/*")
    });
    if known || served == Served::Custom {
        return Ok(());
    }
    let mut message = format!("406: Not Acceptable\n\nAvailable representations: {JSON}, {YAML}, {PROTOBUF}");
    if route == Route::Collection {
        for stream in STREAMS {
            message.push_str(", ");
            message.push_str(stream);
        }
    }
    Err(router_refusal(406, "NotAcceptable", message))
}

fn router_refusal(code: u16, reason: &'static str, message: String) -> Status {
    Status::new(code, reason, message).with_details(StatusDetails::default())
}

/// Returns the form that a clause requests, if it is available. For custom resources, only metadata can be encoded as
/// protobuf.
fn accepted(clause: &Clause<'_>, served: Served) -> Option<AnswerForm> {
    let encoding = if clause.names(PROTOBUF) && !clause.is_foreign() {
        Encoding::Protobuf
    } else if clause.covers(JSON) && !clause.is_foreign() {
        Encoding::Json
    } else if clause.covers(YAML) && !clause.is_foreign() && clause.param("stream").is_none_or(str::is_empty) {
        Encoding::Yaml
    } else {
        return None;
    };
    let view = match clause.view() {
        None => View::Whole,
        Some((group, version, kind)) => {
            let version = match (group, version) {
                ("meta.k8s.io", "v1") => MetaVersion::V1,
                ("meta.k8s.io", "v1beta1") => MetaVersion::V1Beta1,
                _ => return None,
            };
            match kind {
                "Table" => View::Table(version),
                "PartialObjectMetadata" => View::Metadata(version),
                "PartialObjectMetadataList" => View::MetadataList(version),
                _ => return None,
            }
        }
    };
    let is_metadata = matches!(view, View::Metadata(_) | View::MetadataList(_));
    let has_protobuf = is_metadata || (view == View::Whole && served == Served::BuiltIn);
    if encoding == Encoding::Protobuf && !has_protobuf {
        return None;
    }
    Some(AnswerForm {
        encoding,
        view,
        pretty: clause.param("pretty") == Some("1"),
    })
}

#[cfg(test)]
#[path = "negotiation_tests.rs"]
mod tests;
