//! A request's body: from JSON to an object of the right kind, with its defaults (rules A15, L1 to L5).

use serde_json::{Map, Value};

use super::scheme::{Row, Scheme};
use super::{custom, decode};
use crate::api::json::syntax_error;
use crate::api::object::Object;
use crate::api::options::FieldValidation;
use crate::api::status::Status;

/// A body that has been read.
#[derive(Clone, Debug)]
pub(crate) struct Decoded {
    /// The object, with kind and apiVersion, typed and defaulted.
    pub(crate) object: Object,
    /// What the client is told about it.
    pub(crate) warnings: Vec<String>,
}

/// Bytes of an unreadable body that a message shows.
const SHOWN_BYTES: usize = 30;

/// Reads a JSON body; `kind` is the one the path expects.
pub(crate) fn parse(raw: &[u8], kind: &str) -> Result<Value, Status> {
    serde_json::from_slice(raw).map_err(|error| {
        let why = syntax_error(raw).unwrap_or_else(|| error.to_string());
        unrecognized(raw, kind, &format!("couldn't get version/kind; json parse error: {why}"))
    })
}

/// 400 of a body in which no object can be seen.
pub(crate) fn unrecognized(raw: &[u8], kind: &str, why: &str) -> Status {
    let shown = match raw {
        [] => "<empty>".to_owned(),
        _ => {
            let head = &raw[..raw.len().min(SHOWN_BYTES)];
            // What looks like JSON is shown as text, anything else in hexadecimal.
            let text = match std::str::from_utf8(head) {
                Ok(text) if text.trim_start().starts_with('{') => text.to_owned(),
                _ => head.iter().map(|byte| format!("{byte:02x}")).collect(),
            };
            if raw.len() > SHOWN_BYTES { format!("{text} ...") } else { text }
        }
    };
    Status::bad_request(format!("the object provided is unrecognized (must be of type {kind}): {why} ({shown})"))
}

/// The body of POST or PUT as an object of the row's kind. `raw` is its JSON text, for what a parsed value no longer
/// shows: repeated fields.
pub(crate) fn decode(
    scheme: &Scheme,
    row: &Row,
    value: Value,
    raw: &[u8],
    validation: FieldValidation,
) -> Result<Decoded, Status> {
    let Value::Object(mut map) = value else {
        let why = format!(
            "couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go value of type struct \
             {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}",
            type_name(&value)
        );
        return Err(unrecognized(raw, &row.info.kind, &why));
    };
    check_kind(scheme, row, &mut map)?;
    let duplicates = match validation {
        FieldValidation::Ignore => Vec::new(),
        FieldValidation::Warn | FieldValidation::Strict => decode::duplicate_fields(raw),
    };
    let kind = row.info.kind.as_ref();
    let refused = |why: String| {
        let version = &row.info.version;
        Status::bad_request(format!("{kind} in version \"{version}\" cannot be handled as a {kind}: {why}"))
    };
    let (object, unknown) = typed(row, Object(map), validation).map_err(|error| match error {
        DecodeError::Text(why) => refused(why),
        DecodeError::Status(status) => *status,
    })?;
    let warnings: Vec<String> = duplicates.into_iter().chain(unknown).collect();
    if validation == FieldValidation::Strict && !warnings.is_empty() {
        return Err(refused(format!("strict decoding error: {}", warnings.join(", "))));
    }
    Ok(Decoded { object, warnings })
}

/// The result of a patch as an object of the row's kind. What is wrong with it is a 422 that shows it (rules G8, L3).
pub(crate) fn decode_patched(row: &Row, value: Value, validation: FieldValidation) -> Result<Decoded, Status> {
    let shown = |why: &str, value: &Value| {
        let mut errors = crate::api::field::FieldErrors::new();
        errors.invalid(crate::api::field::FieldPath::new("patch"), value.to_string(), why);
        let kind = crate::api::resource::GroupKind { group: "".into(), kind: "".into() };
        Status::invalid(&kind, "", &errors)
    };
    let before = value.clone();
    let Value::Object(map) = value else {
        return Err(shown("json: cannot unmarshal patch into Go value of type map[string]interface {}", &before));
    };
    let (object, unknown) = typed(row, Object(map), validation).map_err(|error| match error {
        DecodeError::Text(why) => shown(&why, &before),
        DecodeError::Status(status) => *status,
    })?;
    if validation == FieldValidation::Strict && !unknown.is_empty() {
        return Err(shown(&format!("strict decoding error: {}", unknown.join(", ")), &before));
    }
    Ok(Decoded { object, warnings: unknown })
}

/// Why a body is not what its kind says.
pub(crate) enum DecodeError {
    /// In the decoder's words, without saying where.
    Text(String),
    /// With an answer of its own.
    Status(Box<Status>),
}

/// Types, prunes and defaults an object; returns the fields its kind does not know, as messages name them.
fn typed(row: &Row, mut object: Object, validation: FieldValidation) -> Result<(Object, Vec<String>), DecodeError> {
    let unknown = match (row.custom_version(), row.shape()) {
        (Some(version), _) => custom::decode(version, &mut object)?,
        (None, Some(shape)) => decode::decode(shape, &mut object).map_err(DecodeError::Text)?,
        (None, None) => Vec::new(),
    };
    row.name_kind(&mut object);
    row.strategy().default(&mut object);
    let told = match validation {
        FieldValidation::Ignore => Vec::new(),
        FieldValidation::Warn | FieldValidation::Strict => unknown,
    };
    Ok((object, told))
}

/// The body must be of the kind and version of its path. Built-ins take what they lack from the path; custom
/// resources have nowhere to take it from.
fn check_kind(scheme: &Scheme, row: &Row, map: &mut Map<String, Value>) -> Result<(), Status> {
    let text = |name: &str| map.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    if row.is_custom() {
        if api_version != *row.api_version {
            return Err(Status::bad_request(format!(
                "the API version in the data ({api_version}) does not match the expected API version ({})",
                row.api_version
            )));
        }
        return Ok(());
    }
    let want = row.info.kind.as_ref();
    if (api_version.is_empty() || api_version == *row.api_version) && (kind.is_empty() || kind == want) {
        return Ok(());
    }
    let api_version = if api_version.is_empty() { row.api_version.to_string() } else { api_version };
    let kind = if kind.is_empty() { want.to_owned() } else { kind };
    let known_list = kind.strip_suffix("List").is_some_and(|item| scheme.lookup_kind(&api_version, item).is_some());
    let version = &row.info.version;
    let handled = format!("{kind} in version \"{version}\" cannot be handled as a {want}");
    if !known_list && scheme.lookup_kind(&api_version, &kind).is_none_or(|it| it.is_custom()) {
        return Err(Status::bad_request(format!(
            "{handled}: no kind \"{kind}\" is registered for version \"{api_version}\" in scheme \
             \"pkg/api/legacyscheme/scheme.go:30\""
        )));
    }
    if kind == want {
        return Err(Status::bad_request(format!(
            "the API version in the data ({api_version}) does not match the expected API version ({})",
            row.api_version
        )));
    }
    let package = |group: &str| match group {
        "" => "core".to_owned(),
        group => group.split('.').next().unwrap_or(group).to_owned(),
    };
    let data_version = api_version.rsplit('/').next().unwrap_or_default();
    Err(Status::bad_request(format!(
        "{handled}: converting ({data_version}.{kind}) to ({}.{want}): unknown conversion",
        package(&row.info.group)
    )))
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
