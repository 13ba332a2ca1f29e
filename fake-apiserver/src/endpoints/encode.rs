//! Encodes objects, lists, Statuses and streams. Stored objects are copied without decoding if the client accepts their
//! stored form.

#[cfg_attr(not(feature = "serve"), path = "encode/no_gzip.rs")]
mod gzip;

use std::collections::BTreeSet;
use std::sync::Arc;

use axum_core::body::Body;
use bytes::Bytes;
use http::header::{self, HeaderName, HeaderValue};
use http::{HeaderMap, Response, StatusCode};

use super::call::{Call, KeptAnswer};
use super::journal::StoredAnswer;
use super::list_body::{ItemForm, ListBody};
use super::negotiation::{self, Encoding, ErrorForm, MetaVersion, View, error_form, go_type};
use super::table::{Columns, IncludeObject, PrinterColumn, Tables};
use super::{Endpoints, decode, partial, status_protobuf};
use crate::api::json::{Map, Value, json};
use crate::api::object::Object;
use crate::api::print::Printer;
use crate::api::status::Status;
use crate::api::yaml;
use crate::registry::answer::{Answer, SuccessStatus};
use crate::registry::reader::verbs::ListPage;
use crate::registry::scheme::Row;
use crate::registry::scheme::codec;
use crate::registry::types::decode::protobuf;
use crate::registry::types::print::AsGoPrints;

/// Size above which a response is compressed if the client accepts compression (rule A29).
const GZIP_BYTES_MIN: usize = 128 * 1024;

const WARNING: HeaderName = HeaderName::from_static("warning");

/// Builds the response to a write or a get.
pub(crate) fn answer(
    server: &Endpoints,
    call: &Call,
    row: &Row,
    form: &negotiation::AnswerForm,
    code: u16,
    answer: Answer,
    warnings: &[String],
) -> Result<Response<Body>, Status> {
    if form.view != View::Whole {
        check_view(row, form, false)?;
    }
    let (code, value) = match &answer {
        // Connections to Pods are handled before encoding.
        Answer::Nothing | Answer::Connection(_) => return Ok(bare(204, Body::empty())),
        Answer::Text(text) => {
            let mut response = bare(code, Body::from(text.clone()));
            let plain = HeaderValue::from_static("text/plain");
            response.headers_mut().insert(http::header::CONTENT_TYPE, plain);
            return Ok(with_warnings(response, warnings));
        }
        Answer::Stored(stored) if is_as_stored(call, row, form) => {
            let stored = StoredAnswer {
                head: Arc::clone(&row.head),
                object: Arc::clone(stored),
            };
            let mut response = whole(call, code, Encoding::Json, stored.bytes());
            response.extensions_mut().insert(KeptAnswer::Stored(stored));
            return Ok(with_warnings(response, warnings));
        }
        Answer::Stored(stored) => {
            let value = view(server, call, row, form, codec::decode(row, stored))?;
            let mut response = respond(call, code, form, value);
            if form.encoding == Encoding::Protobuf && form.view == View::Whole && row.is_as_stored {
                // The journal and the audit log contain the response as JSON.
                let stored = StoredAnswer {
                    head: Arc::clone(&row.head),
                    object: Arc::clone(stored),
                };
                response.extensions_mut().insert(KeptAnswer::Stored(stored));
            }
            return Ok(with_warnings(response, warnings));
        }
        Answer::Object(object) if !row.is_custom() && is_as_stored(call, row, form) && is_of(row, object) => {
            let mut bytes = Vec::with_capacity(512);
            codec::write_unstored(row, object, &mut bytes)?;
            bytes.push(b'\n');
            return Ok(with_warnings(whole(call, code, Encoding::Json, bytes.into()), warnings));
        }
        Answer::Object(object) => (code, view(server, call, row, form, object.clone())?),
        Answer::Status(status) if status.code != 0 => (status.code, success(status)),
        Answer::Status(status) => (code, success(status)),
    };
    Ok(with_warnings(respond(call, code, form, value), warnings))
}

/// Returns `true` if the response is equal to the stored form of the object.
fn is_as_stored(call: &Call, row: &Row, form: &negotiation::AnswerForm) -> bool {
    form.view == View::Whole && row.is_as_stored && is_compact_json(call, form)
}

/// Returns `true` if the response is compact JSON, as in storage.
fn is_compact_json(call: &Call, form: &negotiation::AnswerForm) -> bool {
    form.encoding == Encoding::Json && !form.pretty && !call.wants_pretty()
}

/// Returns `true` if the object has the row's kind, unlike a Scale.
fn is_of(row: &Row, object: &Object) -> bool {
    object.kind() == row.info.kind && object.api_version() == &*row.api_version
}

/// Returns an object in the requested form: the whole object, a Table, or only its metadata.
fn view(
    server: &Endpoints,
    call: &Call,
    row: &Row,
    form: &negotiation::AnswerForm,
    object: Object,
) -> Result<Value, Status> {
    Ok(match form.view {
        View::Whole => Value::Object(object.0),
        View::Table(version) => {
            let columns = columns(row, &object);
            tables(server, row, &columns, version, include_object(call)?).of_object(&object)
        }
        View::Metadata(version) | View::MetadataList(version) => partial::object(&object, version),
    })
}

/// Source of the columns of an object's Table. A subresource may return an object of a different kind.
pub(crate) enum RowColumns {
    /// The columns of a built-in kind.
    Builtin(String, String),
    /// The columns of a custom resource.
    Custom(Vec<PrinterColumn>),
}

/// Returns the columns for a row's objects, or for the response of one of its subresources.
pub(crate) fn columns(row: &Row, object: &Object) -> RowColumns {
    let is_other = !object.kind().is_empty() && object.kind() != row.info.kind;
    match row.custom_version() {
        Some(version) if !is_other => RowColumns::Custom(PrinterColumn::all(&version.columns)),
        Some(_) if object.kind() == "Scale" => RowColumns::Custom(PrinterColumn::of_scale().unwrap_or_default()),
        _ if is_other => {
            let group = object.api_version().split_once('/').map_or("", |(group, _)| group);
            RowColumns::Builtin(group.to_owned(), object.kind().to_owned())
        }
        _ => RowColumns::Builtin(row.info.group.to_string(), row.info.kind.to_string()),
    }
}

/// Returns the Table options for a row's objects.
pub(crate) fn tables<'a>(
    server: &Endpoints,
    row: &'a Row,
    columns: &'a RowColumns,
    version: MetaVersion,
    include: IncludeObject,
) -> Tables<'a> {
    let columns = match columns {
        RowColumns::Builtin(group, kind) => Columns::Builtin { group, kind },
        RowColumns::Custom(columns) => Columns::Custom(columns),
    };
    Tables {
        columns,
        converted: (*row.info.group == *"autoscaling" && !row.is_as_stored).then_some(row),
        version,
        include,
        now: server.registry.reader.entropy.now(),
    }
}

/// Refuses the metadata of a list for a single object, and vice versa.
pub(crate) fn check_view(row: &Row, form: &negotiation::AnswerForm, is_list: bool) -> Result<(), Status> {
    let served = decode::served(row);
    let kind = if is_list { &row.info.list_kind } else { &row.info.kind };
    // Watches are not checked: their events contain single objects, but list metadata is accepted as well.
    form.view.check(is_list, || go_type(served, &row.info.group, kind))
}

/// Parses `includeObject` of a Table.
pub(crate) fn include_object(call: &Call) -> Result<IncludeObject, Status> {
    IncludeObject::parse(call.query.get("includeObject"))
}

/// Builds the response to a list.
pub(crate) fn page(
    server: &Endpoints,
    call: &Call,
    row: &Row,
    form: &negotiation::AnswerForm,
    page: ListPage,
) -> Result<Response<Body>, Status> {
    if form.view != View::Whole {
        check_view(row, form, true)?;
    }
    let (head, items) = match form.view {
        View::Whole if is_as_stored(call, row, form) => (list_head(row, &page), ItemForm::of(row)),
        // An empty list is not copied, because its items are `null`.
        View::Metadata(version) | View::MetadataList(version)
            if is_compact_json(call, form) && partial::is_as_stored(row) && page.items.iter().next().is_some() =>
        {
            let metadata = list_metadata(row, &page);
            (
                partial::list_head(Some(&metadata), version),
                ItemForm::Metadata(partial::head(version)),
            )
        }
        View::Whole | View::Metadata(_) | View::MetadataList(_) | View::Table(_) => {
            let value = page_value(server, call, row, form, &page)?;
            return Ok(respond(call, 200, form, value));
        }
    };
    let tail = match (form.view, row.is_custom()) {
        (View::Whole, true) => list_tail(row, &page),
        _ => "]}\n".to_owned(),
    };
    let mut body = ListBody::new(head.into_bytes(), tail, items, page.items);
    let response = if call.accepts_gzip() {
        whole(call, 200, Encoding::Json, body.collect())
    } else {
        match body.whole_if_small() {
            Some(bytes) => whole(call, 200, Encoding::Json, bytes),
            None => respond_with(200, "application/json", Body::new(body)),
        }
    };
    Ok(response)
}

/// Returns the JSON before the items of a list. Built-in lists have the field order of Go's structs; fields of custom
/// lists are sorted.
fn list_head(row: &Row, page: &ListPage) -> String {
    let version = &row.api_version;
    if row.is_custom() {
        return format!("{{\"apiVersion\":\"{version}\",\"items\":[");
    }
    let kind = &row.info.list_kind;
    let metadata = list_metadata(row, page);
    let mut parts = Vec::new();
    for field in ["resourceVersion", "continue", "remainingItemCount"] {
        parts.extend(metadata.get(field).map(|value| format!("\"{field}\":{value}")));
    }
    let metadata = parts.join(",");
    format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{version}\",\"metadata\":{{{metadata}}},\"items\":[")
}

/// Returns the JSON after the items of a list of custom resources.
fn list_tail(row: &Row, page: &ListPage) -> String {
    let kind = &row.info.list_kind;
    let metadata = Value::Object(list_metadata(row, page));
    format!("],\"kind\":\"{kind}\",\"metadata\":{metadata}}}\n")
}

/// Returns the metadata of a list. Lists of custom resources always have a `continue` field (rule A33).
fn list_metadata(row: &Row, page: &ListPage) -> Map {
    let mut metadata = Map::new();
    metadata.insert("resourceVersion".into(), page.revision.to_string().into());
    if row.is_custom() || !page.continue_token.is_empty() {
        metadata.insert("continue".into(), page.continue_token.as_str().into());
    }
    if let Some(remaining) = page.remaining {
        metadata.insert("remainingItemCount".into(), remaining.into());
    }
    metadata
}

/// Returns a list as a decoded value, for responses that cannot be copied from storage: YAML, protobuf, indented JSON,
/// Tables, and versions other than the stored one.
fn page_value(
    server: &Endpoints,
    call: &Call,
    row: &Row,
    form: &negotiation::AnswerForm,
    page: &ListPage,
) -> Result<Value, Status> {
    let metadata = list_metadata(row, page);
    let objects = page.items.iter().map(|stored| codec::decode(row, stored));
    Ok(match form.view {
        View::Whole => {
            let items = objects.map(|mut object| {
                if !row.is_custom() {
                    object.remove("kind");
                    object.remove("apiVersion");
                }
                Value::Object(object.0)
            });
            let fields = [
                ("kind", Value::from(&*row.info.list_kind)),
                ("apiVersion", Value::from(&*row.api_version)),
                ("items", items.collect()),
                ("metadata", Value::Object(metadata)),
            ];
            fields.into_iter().collect()
        }
        View::Metadata(version) | View::MetadataList(version) => {
            let objects: Vec<Object> = objects.collect();
            partial::list(Some(&metadata), &objects, version)
        }
        View::Table(version) => {
            let objects: Vec<Object> = objects.collect();
            let columns = columns(row, &Object::default());
            tables(server, row, &columns, version, include_object(call)?).of_list(Some(&metadata), &objects)
        }
    })
}

/// Builds the response to a failed request, in a form that the client accepts (rule M5).
pub(crate) fn failure(call: &Call, status: &Status) -> Response<Body> {
    let form = error_form(call.accept());
    let bytes: Bytes = match form {
        ErrorForm::Json if call.wants_pretty() => pretty(status),
        ErrorForm::Json => status_line(status),
        ErrorForm::Protobuf => status_protobuf::encode(status).into(),
        ErrorForm::IndentedJson => pretty(status),
        ErrorForm::Yaml => yaml::to_string(&status.to_value().into()).into(),
    };
    let mut response = respond_whole(status.code, form.content_type(), bytes);
    let retry = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
    if retry > 0 {
        response
            .headers_mut()
            .insert(header::RETRY_AFTER, HeaderValue::from(retry));
    }
    with_warnings(response, &status.warnings)
}

/// Returns the plain-text 404 for paths that no group serves (rule A19).
pub(crate) fn not_found_text() -> Response<Body> {
    let bytes = Bytes::from_static(b"404 page not found\n");
    let mut response = respond_whole(404, "text/plain; charset=utf-8", bytes);
    response
        .headers_mut()
        .insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    response
}

/// Returns the plain-text 503 for groups of an aggregated API server without a route.
pub(crate) fn unavailable_text() -> Response<Body> {
    service_text("service unavailable")
}

/// Returns a plain-text 503.
pub(crate) fn service_text(text: &str) -> Response<Body> {
    let bytes = Bytes::from(format!("{text}\n"));
    let mut response = respond_whole(503, "text/plain; charset=utf-8", bytes);
    response
        .headers_mut()
        .insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    response
}

/// Returns the plain-text 429 for requests above the limit of concurrent requests.
pub(crate) fn too_many_text() -> Response<Body> {
    let bytes = Bytes::from_static(b"Too many requests, please try again later.\n");
    let mut response = respond_whole(429, "text/plain; charset=utf-8", bytes);
    let headers = response.headers_mut();
    headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

/// Returns the response of a watch.
pub(crate) fn stream(body: Body, form: &negotiation::AnswerForm) -> Response<Body> {
    respond_with(200, form.encoding.stream_type(), body)
}

/// Encodes a value in the form that the client requests.
pub(crate) fn respond(call: &Call, code: u16, form: &negotiation::AnswerForm, value: Value) -> Response<Body> {
    let bytes = match form.encoding {
        Encoding::Protobuf => match protobuf::encode_value(&value) {
            Some(bytes) => return whole(call, code, Encoding::Protobuf, bytes.into()),
            // This value does not have a protobuf form, so it is sent as JSON.
            None => return whole(call, code, Encoding::Json, json_line(&AsGoPrints(&value))),
        },
        Encoding::Yaml => yaml::to_string(&value).into(),
        Encoding::Json if form.pretty || call.wants_pretty() => pretty(&AsGoPrints(&value)),
        Encoding::Json => json_line(&AsGoPrints(&value)),
    };
    whole(call, code, form.encoding, bytes)
}

fn pretty(value: &impl serde::Serialize) -> Bytes {
    serde_json::to_vec_pretty(value).unwrap_or_default().into()
}

fn status_line(status: &Status) -> Bytes {
    let mut out = Printer::new(0);
    status.write(&mut out);
    let mut bytes = out.to_bytes();
    bytes.push(b'\n');
    bytes.into()
}

fn json_line(value: &impl serde::Serialize) -> Bytes {
    let mut bytes = serde_json::to_vec(value).unwrap_or_default();
    bytes.push(b'\n');
    bytes.into()
}

/// Returns a response with a complete body, which is compressed if it is large and the client accepts that.
fn whole(call: &Call, code: u16, encoding: Encoding, bytes: Bytes) -> Response<Body> {
    let is_wanted = bytes.len() > GZIP_BYTES_MIN && call.accepts_gzip();
    let Some(compressed) = is_wanted.then(|| gzip::compressed(&bytes)).flatten() else {
        return respond_whole(code, encoding.content_type(), bytes);
    };
    let mut response = respond_with(code, encoding.content_type(), compressed.into());
    response.extensions_mut().insert(KeptAnswer::Whole(bytes));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    response
}

/// Returns a response with a complete body, which the journal keeps.
pub(crate) fn respond_whole(code: u16, content_type: &'static str, bytes: Bytes) -> Response<Body> {
    let mut response = respond_with(code, content_type, Body::from(bytes.clone()));
    response.extensions_mut().insert(KeptAnswer::Whole(bytes));
    response
}

fn respond_with(code: u16, content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = bare(code, body);
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

fn bare(code: u16, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
}

/// Adds `Warning` headers, without duplicates (rule A30).
pub(crate) fn with_warnings(mut response: Response<Body>, warnings: &[String]) -> Response<Body> {
    let headers = response.headers_mut();
    for text in bounded(warnings) {
        add_warning(headers, text);
    }
    response
}

/// Maximum total length of the warnings of a request, in characters. If it is exceeded, each warning is truncated to
/// [`WARNING_MAX`].
const WARNINGS_MAX: usize = 4 * 1024;

/// Length of a truncated warning, in characters.
const WARNING_MAX: usize = 256;

/// Limits warnings like `recorder` of k8s.io/apiserver: without duplicates and control characters. Above the maximum
/// total length, each warning is truncated, and warnings that still do not fit are dropped.
fn bounded(warnings: &[String]) -> Vec<&str> {
    let mut seen = BTreeSet::new();
    let is_shown = |text: &&str| !text.is_empty() && !text.chars().any(char::is_control);
    let texts = warnings.iter().map(String::as_str).filter(is_shown);
    let texts: Vec<&str> = texts.filter(|text| seen.insert(*text)).collect();
    let mut written = 0;
    let fits = |text: &&&str| {
        written += text.chars().count();
        written <= WARNINGS_MAX
    };
    let fitting = texts.iter().take_while(fits).count();
    if fitting == texts.len() {
        return texts;
    }
    let mut written = 0;
    let mut all = Vec::new();
    for (index, text) in texts.into_iter().enumerate() {
        // The first warning that exceeds the limit is always sent; all warnings are then truncated.
        if index > fitting && written >= WARNINGS_MAX {
            break;
        }
        let end = text.char_indices().nth(WARNING_MAX).map_or(text.len(), |(at, _)| at);
        written += text[..end].chars().count();
        all.push(&text[..end]);
    }
    all
}

/// Adds a warning before all others. Go adds warnings about deprecated kinds before it handles the request.
pub(crate) fn add_first_warning(headers: &mut HeaderMap, text: &str) {
    let others: Vec<HeaderValue> = headers.get_all(WARNING).iter().cloned().collect();
    headers.remove(WARNING);
    add_warning(headers, text);
    for value in others {
        headers.append(WARNING, value);
    }
}

/// Adds `Warning: 299 - "text"`, unless the text has a control character (`NewWarningHeader`).
fn add_warning(headers: &mut HeaderMap, text: &str) {
    if text.chars().any(char::is_control) {
        return;
    }
    let mut quoted = String::with_capacity(text.len() + 10);
    quoted.push_str("299 - \"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    if let Ok(value) = HeaderValue::from_bytes(quoted.as_bytes()) {
        headers.append(WARNING, value);
    }
}

/// Builds `{"kind":"Status",…,"status":"Success"}`.
fn success(status: &SuccessStatus) -> Value {
    let mut value = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"});
    if let Some(details) = &status.details {
        let mut shown = Map::new();
        let fields = [
            ("name", &details.name),
            ("group", &details.group),
            ("kind", &details.kind),
            ("uid", &details.uid),
        ];
        for (name, text) in fields.into_iter().filter(|(_, text)| !text.is_empty()) {
            shown.insert(name.into(), text.as_str().into());
        }
        value["details"] = Value::Object(shown);
    }
    if status.code != 0 {
        value["code"] = status.code.into();
    }
    value
}
