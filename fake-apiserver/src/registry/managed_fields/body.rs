//! Reading the body of an apply, which is YAML or JSON (rule H12).

use serde_json::{Map, Value};
use serde_saphyr::{DuplicateKeyPolicy, Error};

use crate::api::field::quote;
use crate::api::object::Object;
use crate::api::status::Status;
use crate::registry::patch::parse_with_duplicates;

/// Reads the body. With it come the duplicate keys, as `line 7: key "a" already set in map`, which strict field
/// validation refuses with [`strict_error`].
pub(crate) fn decode_apply_body(body: &[u8]) -> Result<(Object, Vec<String>), Status> {
    let is_json = body.iter().find(|it| !it.is_ascii_whitespace()) == Some(&b'{');
    let json = is_json.then(|| parse_with_duplicates(body).ok()).flatten();
    let (value, duplicates) = match json {
        Some((value, duplicates)) => {
            // YAML counts lines; which line of a JSON body it was is rarely worth a second reading.
            let name = |path: &String| quote(path.rsplit('.').next().unwrap_or_default());
            let text = |path| format!("line 1: key {} already set in map", name(&path));
            (value, duplicates.into_iter().map(text).collect())
        }
        None => parse_yaml(&String::from_utf8_lossy(body))?,
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
