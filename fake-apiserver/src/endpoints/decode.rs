//! Decodes a request body to JSON: from JSON, YAML or protobuf, according to `Content-Type`.

use std::borrow::Cow;

use http::header::CONTENT_TYPE;

use super::call::Call;
use super::negotiation::{BodyForm, Served, body_form};
use crate::api::json::Value;
use crate::api::json::syntax_error;
use crate::api::json::type_name;
use crate::api::object::Object;
use crate::api::options::{DeleteOptions, FieldValidation};
use crate::api::status::Status;
use crate::api::yaml;
use crate::registry::scheme::Row;
use crate::registry::scheme::body::{self, Decoded};
use crate::registry::types::decode::{self, Text, protobuf};
use crate::registry::types::schema::builtin::shape_of;

/// Returns the type of handler that serves the resource of a row, for negotiation.
pub(crate) fn served(row: &Row) -> Served {
    if row.is_custom() {
        Served::Custom
    } else {
        Served::BuiltIn
    }
}

/// A decoded body, before its conversion to a type.
#[derive(Debug, Default)]
pub(crate) struct Sent<'a> {
    /// The decoded object.
    pub(crate) object: Object,
    /// The JSON text of the body, for details that `object` does not contain; may be empty.
    pub(crate) text: Cow<'a, [u8]>,
    /// Set if an object in the text has a duplicate key.
    pub(crate) repeats_key: bool,
    /// Error of strict decoding for the duplicate keys of a YAML body.
    yaml_error: Option<String>,
    /// Warnings for the duplicate keys of a YAML body.
    yaml_warnings: Vec<String>,
}

/// Decodes the body of a POST or PUT.
pub(crate) fn sent<'a>(row: &Row, call: &'a Call) -> Result<Sent<'a>, Status> {
    let kind = row.info.kind.as_ref();
    match body_form(call.header(&CONTENT_TYPE), served(row))? {
        BodyForm::Json => {
            let text = Cow::Borrowed(&*call.body);
            let (object, repeats_key) = decode::parse(&text, kind)?;
            Ok(Sent {
                object,
                text,
                repeats_key,
                ..Sent::default()
            })
        }
        BodyForm::Yaml => {
            let parsed = yaml::parse(&call.body).map_err(|why| decode::unrecognized(&why, &call.body, kind))?;
            let yaml_error = parsed.strict_error();
            let text = Cow::Owned(serde_json::to_vec(&parsed.value).unwrap_or_default());
            let (object, repeats_key) = decode::parse(&text, kind)?;
            Ok(Sent {
                object,
                text,
                repeats_key,
                yaml_error,
                yaml_warnings: parsed.duplicates,
            })
        }
        BodyForm::Protobuf => {
            let object = from_protobuf(row, &call.body).map_err(|why| decode::unrecognized(&why, &call.body, kind))?;
            Ok(Sent {
                object,
                ..Sent::default()
            })
        }
    }
}

/// Decodes the body of a POST or PUT to an object of the row's kind. `before` is the object that a PUT replaces, if the
/// caller has read it.
pub(crate) fn object(
    row: &Row,
    call: &Call,
    before: Option<&Object>,
    validation: FieldValidation,
) -> Result<Decoded, Status> {
    let Sent {
        object,
        text,
        repeats_key,
        yaml_error,
        yaml_warnings,
    } = sent(row, call)?;
    let text = Text {
        raw: &text,
        repeats_key,
    };
    if let (FieldValidation::Strict, Some(error)) = (validation, yaml_error) {
        let (kind, version) = (&row.info.kind, &row.info.version);
        return Err(Status::bad_request(format!(
            "{kind} in version \"{version}\" cannot be handled as a {kind}: strict decoding error: {error}"
        )));
    }
    let mut decoded = body::read(row, object, text, before, validation)?;
    if validation != FieldValidation::Ignore {
        decoded.warnings.splice(0..0, yaml_warnings);
    }
    Ok(decoded)
}

/// Decodes a built-in object from protobuf. For other kinds, the object only contains kind and version.
fn from_protobuf(row: &Row, body: &[u8]) -> Result<Object, String> {
    let envelope = protobuf::open(body)?;
    let (group, version) = envelope
        .api_version
        .split_once('/')
        .unwrap_or(("", &envelope.api_version));
    let shape = match envelope.kind.as_str() {
        // These kinds exist in every group.
        "DeleteOptions" => shape_of("meta.k8s.io", "v1", "DeleteOptions"),
        kind if kind == row.info.kind && envelope.api_version == *row.api_version => row.shape(),
        kind => shape_of(group, version, kind),
    };
    let mut object = Object::default();
    if let Some(shape) = shape {
        object.0 = protobuf::decode(shape, envelope.message)?;
    }
    object.insert("apiVersion".into(), envelope.api_version.into());
    object.insert("kind".into(), envelope.kind.into());
    Ok(object)
}

/// Returns the options of a delete: from the body if there is one, otherwise from the query (rule B22).
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
        BodyForm::Protobuf => {
            let object = from_protobuf(row, &call.body).map_err(Status::bad_request)?;
            Value::Object(object.0)
        }
    };
    check_delete_options(&value)?;
    DeleteOptions::from_body(&value)
}

/// Kinds of responses, which are the same in every version.
const UNVERSIONED: [&str; 5] = ["Status", "APIVersions", "APIGroupList", "APIGroup", "APIResourceList"];

/// Checks that a body is DeleteOptions and that its fields have the right types.
fn check_delete_options(value: &Value) -> Result<(), Status> {
    if !value.is_object() {
        let found = type_name(value);
        let why = format!(
            "couldn't get version/kind; json parse error: json: cannot unmarshal {found} into Go value of type struct \
             {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}"
        );
        return Err(Status::bad_request(why));
    }
    let text = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default();
    let (kind, version) = (text("kind"), text("apiVersion"));
    // Unversioned kinds exist in every version (`AddUnversionedTypes`), including this one.
    if UNVERSIONED.contains(&kind) {
        let why = format!("converting (v1.{kind}) to (v1.DeleteOptions): unknown conversion");
        return Err(Status::bad_request(why));
    }
    if !matches!(kind, "" | "DeleteOptions") {
        return Err(Status::bad_request(format!(
            "no kind \"{kind}\" is registered for version \"{version}\" in scheme \
             \"k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme/register.go:27\""
        )));
    }
    let wrong_value = |value: &Value, field: &str, go_type: &str, is_right: &dyn Fn(&Value) -> bool| match value {
        value if !value.is_null() && !is_right(value) => Err(Status::bad_request(format!(
            "json: cannot unmarshal {} into Go struct field {field} of type {go_type}",
            type_name(value)
        ))),
        _ => Ok(()),
    };
    let wrong = |field: &str, go_type: &str, is_right: &dyn Fn(&Value) -> bool| {
        let found = value.get(field).unwrap_or(&Value::Null);
        wrong_value(found, &format!("DeleteOptions.{field}"), go_type, is_right)
    };
    wrong("gracePeriodSeconds", "int64", &Value::is_i64)?;
    wrong("preconditions", "v1.Preconditions", &Value::is_object)?;
    for (field, go_type) in [("uid", "types.UID"), ("resourceVersion", "string")] {
        let found = value.get("preconditions").and_then(|it| it.get(field));
        let path = format!("Preconditions.preconditions.{field}");
        wrong_value(found.unwrap_or(&Value::Null), &path, go_type, &Value::is_string)?;
    }
    wrong("orphanDependents", "bool", &Value::is_boolean)?;
    wrong("propagationPolicy", "v1.DeletionPropagation", &Value::is_string)?;
    wrong("dryRun", "[]string", &Value::is_array)?;
    for item in value.get("dryRun").and_then(Value::as_array).into_iter().flatten() {
        wrong_value(item, "DeleteOptions.dryRun", "string", &Value::is_string)?;
    }
    wrong(
        "ignoreStoreReadErrorWithClusterBreakingPotential",
        "bool",
        &Value::is_boolean,
    )
}
