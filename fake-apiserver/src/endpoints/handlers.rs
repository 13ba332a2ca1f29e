//! A function for each verb, which parses the options, negotiates, calls the registry, and encodes the response.

use std::borrow::Cow;
use std::sync::Arc;

use axum_core::body::Body;
use http::Response;
use http::header::CONTENT_TYPE;

use super::call::Call;
use super::negotiation::{self, Route, View};
use super::table::IncludeObject;
use super::watch_body::WatchBody;
use super::{Endpoints, decode, encode, upgrade, websocket};
use crate::api::json::Value;
use crate::api::object::Object;
use crate::api::options::{FieldValidation, ListOptions, PatchKind, WriteKind, WriteOptions};
use crate::api::request_info::{RequestInfo, Verb};
use crate::api::status::Status;
use crate::api::yaml;
use crate::registry::answer::{Answer, Written};
use crate::registry::request::WriteRequest;
use crate::registry::scheme::Row;
use crate::registry::subresources;
use crate::registry::types::decode::Text;
use crate::registry::types::edit::round_large_numbers;
use crate::registry::types::names;

/// Handles a request for a resource.
pub(crate) async fn handle(
    server: &Arc<Endpoints>,
    call: &Call,
    row: &Row,
    info: &RequestInfo,
) -> Result<Response<Body>, Status> {
    let answered = handle_verb(server, call, row, info).await;
    answered.map_err(|status| status.warned(call.remarks.warnings.take()))
}

async fn handle_verb(
    server: &Arc<Endpoints>,
    call: &Call,
    row: &Row,
    info: &RequestInfo,
) -> Result<Response<Body>, Status> {
    if !info.subresource.is_empty() && info.subresource != "status" {
        // The futures of rare requests are in boxes, so that they do not enlarge the future of every request.
        return Box::pin(other_subresource(server, call, row, info)).await;
    }
    if !row.is_stored() {
        return Box::pin(review(server, call, row, info)).await;
    }
    match info.verb {
        Verb::Get => get(server, call, row, info).await,
        Verb::List => list(server, call, row, info).await,
        Verb::Watch => watch(server, call, row, info).await,
        Verb::Create | Verb::Update => write(server, call, row, info).await,
        Verb::Patch => patch(server, call, row, info).await,
        Verb::Delete => delete(server, call, row, info).await,
        Verb::DeleteCollection => Box::pin(delete_collection(server, call, row, info)).await,
    }
}

async fn get(server: &Endpoints, call: &Call, row: &Row, info: &RequestInfo) -> Result<Response<Body>, Status> {
    let form = form(call, row, Route::Object)?;
    if call.query.flag("export") == Some(true) {
        let why = "the export parameter, deprecated since v1.14, is no longer supported";
        return Err(Status::bad_request(why));
    }
    check_path_name(info)?;
    let version = call.query.get("resourceVersion").unwrap_or_default();
    let stored = server.registry.reader.get_for(&call.client, row, info, version).await?;
    encode::answer(server, call, row, &form, 200, Answer::Stored(stored), &[])
}

/// Refuses a name that cannot be part of a storage key (`NamespaceKeyFunc`).
fn check_path_name(info: &RequestInfo) -> Result<(), Status> {
    let why = names::path_segment(&info.name, false);
    if why.is_empty() {
        return Ok(());
    }
    let why = format!("Name parameter invalid: {:?}: {}", info.name, why.join(";"));
    Err(Status::bad_request(why))
}

async fn list(server: &Endpoints, call: &Call, row: &Row, info: &RequestInfo) -> Result<Response<Body>, Status> {
    let form = form(call, row, Route::Collection)?;
    let options = list_options(server, call, false)?;
    let page = server
        .registry
        .reader
        .list_for(&call.client, row, info, &options)
        .await?;
    encode::page(server, call, row, &form, page)
}

fn list_options(server: &Endpoints, call: &Call, watch: bool) -> Result<ListOptions, Status> {
    ListOptions::parse(&call.query, watch, server.registry.reader.scheme().version)
}

async fn watch(server: &Arc<Endpoints>, call: &Call, row: &Row, info: &RequestInfo) -> Result<Response<Body>, Status> {
    let options = list_options(server, call, true)?;
    let plan = server.registry.reader.watch(row, info, &options, &call.client)?;
    // The response form is negotiated after the watch was prepared, so that other errors take precedence.
    let form = negotiation::watch_answer(call.accept(), decode::served(row))?;
    let include = if let View::Table(_) = form.view {
        encode::include_object(call)?
    } else {
        IncludeObject::default()
    };
    let row = server
        .registry
        .reader
        .scheme()
        .lookup(&info.group, &info.version, &info.resource);
    let row = row.ok_or_else(Status::unknown_path)?;
    let body = WatchBody::new(
        Arc::clone(server),
        row,
        server
            .faults
            .watches
            .enter(info.clone(), &call.client, call.user_agent()),
        plan,
        form,
        include,
    );
    let answer = encode::stream(Body::new(body), &form);
    match upgrade::is_asked_for(&call.parts.headers) {
        true => websocket::watch(call, answer),
        false => Ok(answer),
    }
}

/// Builds the registry's request for a write.
fn write_request<'a>(
    call: &'a Call,
    row: &'a Row,
    info: &'a RequestInfo,
    options: &'a WriteOptions,
) -> WriteRequest<'a> {
    WriteRequest {
        row,
        info,
        options,
        user_agent: call.user_agent(),
        user: &call.user,
        remarks: &call.remarks,
    }
}

/// Handles POST and PUT.
async fn write(server: &Endpoints, call: &Call, row: &Row, info: &RequestInfo) -> Result<Response<Body>, Status> {
    let form = form(call, row, Route::Object)?;
    let creates = info.verb == Verb::Create;
    if creates {
        // A create checks the media type before the options, an update afterwards.
        negotiation::body_form(call.header(&CONTENT_TYPE), decode::served(row))?;
    }
    let kind = if creates { WriteKind::Create } else { WriteKind::Update };
    let options = WriteOptions::parse(&call.query, kind)?;
    let before = match creates {
        true => None,
        false => server.registry.replaced(row, info),
    };
    let decoded = decode::object(row, call, before.as_deref(), options.field_validation)?;
    drop(before);
    let request = write_request(call, row, info, &options);
    let written = if creates {
        server.registry.create(&request, decoded).await?
    } else {
        server.registry.update(&request, decoded).await?
    };
    answer(server, call, row, &form, written)
}

async fn patch(server: &Endpoints, call: &Call, row: &Row, info: &RequestInfo) -> Result<Response<Body>, Status> {
    let kind = negotiation::patch_form(call.header(&CONTENT_TYPE), decode::served(row))?;
    let form = form(call, row, Route::Object)?;
    let options = WriteOptions::parse(
        &call.query,
        WriteKind::Patch {
            apply: kind == PatchKind::Apply,
        },
    )?;
    let request = write_request(call, row, info, &options);
    let written = match kind {
        PatchKind::Apply => {
            let configuration = applied(call, options.field_validation)?;
            server.registry.apply(&request, &configuration).await?
        }
        PatchKind::Json | PatchKind::Merge | PatchKind::Strategic => {
            server.registry.patch(&request, kind, &call.body).await?
        }
    };
    answer(server, call, row, &form, written)
}

/// Decodes the body of an apply: YAML, which includes JSON (rule H1). Depending on the field validation, duplicate
/// fields cause an error or warnings, or are ignored.
fn applied(call: &Call, validation: FieldValidation) -> Result<Object, Status> {
    let parsed = yaml::parse(&call.body)
        .map_err(|why| Status::bad_request(format!("error decoding YAML: error converting YAML to JSON: {why}")))?;
    if let (FieldValidation::Strict, Some(error)) = (validation, parsed.strict_error()) {
        let why = format!("error strict decoding YAML: error converting YAML to JSON: {error}");
        return Err(Status::bad_request(why));
    }
    match validation {
        FieldValidation::Ignore => {}
        FieldValidation::Warn | FieldValidation::Strict => call.remarks.warnings.extend(parsed.duplicates),
    }
    let mut value = parsed.value;
    round_large_numbers(&mut value);
    match value {
        Value::Object(map) => Ok(Object(map)),
        Value::Null => Ok(Object::default()),
        other => Err(Status::bad_request(format!(
            "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {} into Go value \
             of type map[string]interface {{}}",
            crate::api::json::type_name(&other)
        ))),
    }
}

async fn delete(server: &Endpoints, call: &Call, row: &Row, info: &RequestInfo) -> Result<Response<Body>, Status> {
    let form = form(call, row, Route::Object)?;
    let options = decode::delete_options(row, call)?;
    check_path_name(info)?;
    let written = server
        .registry
        .delete(row, info, &call.user, &options, &call.remarks)
        .await?;
    answer(server, call, row, &form, written)
}

async fn delete_collection(
    server: &Endpoints,
    call: &Call,
    row: &Row,
    info: &RequestInfo,
) -> Result<Response<Body>, Status> {
    let form = form(call, row, Route::Collection)?;
    let list = list_options(server, call, false)?;
    let options = decode::delete_options(row, call)?;
    let page = server
        .registry
        .delete_collection(row, info, &call.user, &list, &options, &call.remarks)
        .await?;
    let response = encode::page(server, call, row, &form, page)?;
    Ok(encode::with_warnings(response, &call.remarks.warnings.take()))
}

/// Handles subresources that do not behave like their resource: scale, binding, eviction and others.
async fn other_subresource(
    server: &Endpoints,
    call: &Call,
    row: &Row,
    info: &RequestInfo,
) -> Result<Response<Body>, Status> {
    let patch = match info.verb {
        Verb::Patch => Some(negotiation::patch_form(
            call.header(&CONTENT_TYPE),
            decode::served(row),
        )?),
        _ => None,
    };
    let form = form(call, row, Route::Object)?;
    // `scale` is the only subresource with its own storage that converts its objects to Tables.
    if info.subresource != "scale" && !subresources::is_connection(&info.subresource) {
        form.refuse_table()?;
    }
    let mut sent = decode::Sent::default();
    match (info.verb, patch) {
        (Verb::Create | Verb::Update, _) if !subresources::is_connection(&info.subresource) => {
            sent = decode::sent(row, call)?;
        }
        (Verb::Patch, Some(PatchKind::Apply)) => {
            let options = WriteOptions::parse(&call.query, WriteKind::Patch { apply: true })?;
            sent.object = applied(call, options.field_validation)?;
        }
        (Verb::Patch, _) => sent.text = Cow::Borrowed(&call.body),
        _ => {}
    }
    let request = subresources::SubresourceRequest {
        row,
        info,
        query: &call.query,
        patch,
        object: sent.object,
        text: Text {
            raw: &sent.text,
            repeats_key: sent.repeats_key,
        },
        remarks: &call.remarks,
        user_agent: call.user_agent(),
        user: &call.user,
    };
    let written = server.registry.subresource(&request).await?;
    match written.answer {
        Answer::Connection(connection) => return websocket::connect(call, connection),
        Answer::Text(text) if upgrade::is_asked_for(&call.parts.headers) => return websocket::text(call, text),
        _ => {}
    }
    answer(server, call, row, &form, written)
}

/// Handles the POST of a resource that is not stored, such as a review or a binding.
async fn review(server: &Endpoints, call: &Call, row: &Row, info: &RequestInfo) -> Result<Response<Body>, Status> {
    let form = form(call, row, Route::Object)?;
    form.refuse_table()?;
    let options = WriteOptions::parse(&call.query, WriteKind::Create)?;
    let decoded = decode::object(row, call, None, options.field_validation)?;
    let request = write_request(call, row, info, &options);
    let written = match (&*row.info.group, &*row.info.resource) {
        ("", "bindings") => server.registry.bind_named(&request, decoded).await?,
        _ => server.registry.review(&request, decoded)?,
    };
    answer(server, call, row, &form, written)
}

/// Returns the form in which the client requests an object or a list.
fn form(call: &Call, row: &Row, route: Route) -> Result<negotiation::AnswerForm, Status> {
    let form = match call.parts.headers.get(http::header::ACCEPT) {
        None => negotiation::AnswerForm::default(),
        Some(_) => negotiation::answer(call.accept(), decode::served(row), route)?,
    };
    Ok(form)
}

fn answer(
    server: &Endpoints,
    call: &Call,
    row: &Row,
    form: &negotiation::AnswerForm,
    written: Written,
) -> Result<Response<Body>, Status> {
    encode::answer(
        server,
        call,
        row,
        form,
        written.code,
        written.answer,
        &call.remarks.warnings.take(),
    )
}
