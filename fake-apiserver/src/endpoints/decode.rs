//! A body to JSON: from JSON itself or from YAML, as `Content-Type` says.

use http::header::CONTENT_TYPE;
use serde_json::Value;

use super::filters::Call;
use super::negotiation::{BodyForm, Served, body_form};
use super::yaml;
use crate::api::json::syntax_error;
use crate::api::options::{DeleteOptions, FieldValidation};
use crate::api::status::Status;
use crate::registry::body::{self, Decoded};
use crate::registry::decode;
use crate::registry::scheme::Row;

/// Who serves a row, as negotiation asks.
pub(crate) fn served(row: &Row) -> Served {
    if row.is_custom() {
        Served::Custom
    } else {
        Served::BuiltIn
    }
}

/// The body of POST or PUT as an object of the row's kind.
pub(crate) fn object(row: &Row, call: &Call, validation: FieldValidation) -> Result<Decoded, Status> {
    let kind = row.info.kind.as_ref();
    match body_form(call.header(&CONTENT_TYPE), served(row))? {
        BodyForm::Json => body::read(row, decode::parse(&call.body, kind)?, &call.body, validation),
        BodyForm::Yaml => {
            let text = yaml_as_json(&call.body, kind, validation)?;
            body::read(row, decode::parse(&text, kind)?, &text, validation)
        }
        BodyForm::Protobuf => Err(protobuf_refused()),
    }
}

/// A YAML body as the JSON text the rest of the server reads.
fn yaml_as_json(body: &[u8], kind: &str, validation: FieldValidation) -> Result<Vec<u8>, Status> {
    let parsed = yaml::parse(body).map_err(|why| decode::unrecognized(&why, body, kind))?;
    match parsed.strict_error().filter(|_| validation == FieldValidation::Strict) {
        Some(error) => Err(Status::bad_request(error)),
        None => Ok(serde_json::to_vec(&parsed.value).unwrap_or_default()),
    }
}

/// The body of a subresource as JSON, whatever its kind.
pub(crate) fn any(row: &Row, call: &Call) -> Result<Value, Status> {
    let kind = row.info.kind.as_ref();
    match body_form(call.header(&CONTENT_TYPE), served(row))? {
        BodyForm::Json => decode::parse(&call.body, kind).map(|object| Value::Object(object.0)),
        BodyForm::Yaml => yaml::parse(&call.body)
            .map(|parsed| parsed.value)
            .map_err(Status::bad_request),
        BodyForm::Protobuf => Err(protobuf_refused()),
    }
}

/// The options of a delete: from the body if it has one, else from the query (rule B22).
pub(crate) fn delete_options(row: &Row, call: &Call) -> Result<DeleteOptions, Status> {
    if call.body.is_empty() {
        return DeleteOptions::from_query(&call.query);
    }
    let value = match body_form(call.header(&CONTENT_TYPE), served(row))? {
        BodyForm::Json => serde_json::from_slice(&call.body).map_err(|error| {
            let why = syntax_error(&call.body).unwrap_or_else(|| error.to_string());
            Status::bad_request(format!("couldn't get version/kind; json parse error: {why}"))
        })?,
        BodyForm::Yaml => yaml::parse(&call.body).map_err(Status::bad_request)?.value,
        BodyForm::Protobuf => return Err(protobuf_refused()),
    };
    check_delete_options(row, &value)?;
    DeleteOptions::from_body(&value)
}

/// The kind and the types of a body that should be DeleteOptions.
fn check_delete_options(row: &Row, value: &Value) -> Result<(), Status> {
    let text = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default();
    let (kind, version) = (text("kind"), text("apiVersion"));
    let known_version = matches!(version, "" | "v1" | "meta.k8s.io/v1") || *version == *row.api_version;
    if !matches!(kind, "" | "DeleteOptions") || !known_version {
        return Err(Status::bad_request(format!(
            "no kind \"{kind}\" is registered for version \"{version}\" in scheme \
             \"k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme/register.go:27\""
        )));
    }
    let Value::Object(map) = value else {
        let found = type_name(value);
        let why = format!("json: cannot unmarshal {found} into Go value of type v1.DeleteOptions");
        return Err(Status::bad_request(why));
    };
    let wrong = |field: &str, go_type: &str, is_right: &dyn Fn(&Value) -> bool| match map.get(field) {
        Some(value) if !value.is_null() && !is_right(value) => Err(Status::bad_request(format!(
            "json: cannot unmarshal {} into Go struct field DeleteOptions.{field} of type {go_type}",
            type_name(value)
        ))),
        _ => Ok(()),
    };
    wrong("gracePeriodSeconds", "int64", &Value::is_i64)?;
    wrong("preconditions", "v1.Preconditions", &Value::is_object)?;
    wrong("orphanDependents", "bool", &Value::is_boolean)?;
    wrong("propagationPolicy", "v1.DeletionPropagation", &Value::is_string)?;
    wrong("dryRun", "[]string", &Value::is_array)
}

fn protobuf_refused() -> Status {
    let why = "the fake API server does not read protobuf bodies: ask the client to send application/json";
    Status::new(415, "UnsupportedMediaType", why)
}

/// What Go calls a JSON value.
pub(crate) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
