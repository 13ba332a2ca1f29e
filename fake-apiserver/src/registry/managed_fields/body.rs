//! Reading the body of an apply, which is YAML or JSON (rule H12).

use serde_json::{Map, Value};
use serde_saphyr::{DuplicateKeyPolicy, Error};

use crate::api::field::quote;
use crate::api::object::Object;
use crate::api::status::Status;
use crate::registry::patch::duplicate_keys;

/// Reads the body. With it come the duplicate keys, as `line 7: key "a" already set in map`, which strict field
/// validation refuses with [`strict_error`].
pub(crate) fn decode_apply_body(body: &[u8]) -> Result<(Object, Vec<String>), Status> {
    let text = String::from_utf8_lossy(body);
    let (value, duplicates) = if text.trim_start().starts_with('{')
        && let Ok(value) = serde_json::from_str::<Value>(&text)
    {
        // YAML counts lines; which line of a JSON body it was is rarely worth a second reading.
        let first_line = |key: String| format!("line 1: key {key} already set in map");
        (value, duplicate_keys(body).into_iter().map(first_line).collect())
    } else {
        parse_yaml(&text)?
    };
    match value {
        Value::Object(map) => Ok((Object(map), duplicates)),
        Value::Null => Ok((Object(Map::new()), duplicates)),
        other => Err(Status::bad_request(format!(
            "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {} into Go value \
             of type map[string]interface {{}}",
            match other {
                Value::Array(_) => "array",
                Value::String(_) => "string",
                Value::Bool(_) => "bool",
                Value::Number(_) | Value::Null | Value::Object(_) => "number",
            }
        ))),
    }
}

/// 400 of strict field validation, of the duplicate keys of the body.
pub(crate) fn strict_error(duplicates: &[String]) -> Status {
    let lines = duplicates.join("\n  ");
    Status::bad_request(format!(
        "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n  {lines}"
    ))
}

fn parse_yaml(text: &str) -> Result<(Value, Vec<String>), Status> {
    let parse = |duplicate_keys| {
        // Numbers such as 0644 are octal in the YAML Kubernetes reads. The body's size is bounded already.
        let options = serde_saphyr::options! {
            duplicate_keys: duplicate_keys,
            legacy_octal_numbers: true,
            with_snippet: false,
        };
        serde_saphyr::from_str_with_options::<Value>(text, options)
    };
    let mut duplicates = Vec::new();
    let parsed = match parse(DuplicateKeyPolicy::Error) {
        Err(Error::DuplicateMappingKey { key, location }) => {
            let key = quote(key.as_deref().unwrap_or_default());
            duplicates.push(format!("line {}: key {key} already set in map", location.line()));
            parse(DuplicateKeyPolicy::LastWins)
        }
        other => other,
    };
    match parsed {
        Ok(value) => Ok((value, duplicates)),
        Err(error) => {
            let line = error.location().map_or(1, |it| it.line());
            Err(Status::bad_request(format!(
                "error decoding YAML: error converting YAML to JSON: yaml: line {line}: {error}"
            )))
        }
    }
}
