//! Secrets.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use super::config_map::{DATA_MAX, decoded_length, validate_immutable, validate_key};
use super::plain;
use super::strategy::{Context, FieldLabels, Strategy};
use crate::api::field::{FieldErrors, FieldPath};
use crate::api::json::syntax_error;
use crate::api::object::Object;
use crate::registry::types::access::{at, default_to, ensure_object, text};
use crate::registry::types::pem::key_pair_error;

const REDACTED: &str = "<secret contents redacted>";
const ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";

/// The strategy of Secrets.
#[derive(Debug)]
pub(crate) struct Secret;

impl Strategy for Secret {
    fn default(&self, object: &mut Object) {
        if let Some(Value::Object(strings)) = object.remove("stringData")
            && !strings.is_empty()
        {
            let data = ensure_object(object, "data");
            for (key, value) in strings {
                let encoded = STANDARD.encode(value.as_str().unwrap_or_default());
                data.insert(key, encoded.into());
            }
        }
        default_to(object, "type", "Opaque");
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        let empty = Map::new();
        let data = at(object, "data").and_then(Value::as_object).unwrap_or(&empty);
        let mut size = 0;
        for (key, value) in data {
            validate_key(key, "data", errors);
            size += decoded_length(value);
        }
        if size > DATA_MAX {
            errors.too_long(FieldPath::new("data"), DATA_MAX);
        }
        validate_type(object, data, errors);
    }

    fn validate_update(&self, object: &Object, old: &Object, errors: &mut FieldErrors, _context: &Context<'_>) {
        if object.get("type") != old.get("type") {
            errors.invalid(FieldPath::new("type"), text(object, "type"), "field is immutable");
        }
        validate_immutable(object, old, &["data"], errors);
        self.validate(object, errors);
    }

    /// `warningsForSecret`
    fn warnings(&self, object: &Object, _old: Option<&Object>) -> Vec<String> {
        if text(object, "type") != "kubernetes.io/tls" {
            return Vec::new();
        }
        let empty = Map::new();
        let data = at(object, "data").and_then(Value::as_object).unwrap_or(&empty);
        let value = |key: &str| data.get(key).and_then(Value::as_str).unwrap_or_default();
        key_pair_error(value("tls.crt"), value("tls.key")).into_iter().collect()
    }

    fn field_labels(&self) -> FieldLabels {
        plain::field_labels(&["type"], true)
    }

    fn field_values(&self, object: &Object) -> Vec<(&'static str, String)> {
        vec![("type", text(object, "type").to_owned())]
    }
}

/// Secrets of some types must have certain keys.
fn validate_type(object: &Object, data: &Map<String, Value>, errors: &mut FieldErrors) {
    let path = |key: &str| FieldPath::new("data").key(key);
    match text(object, "type") {
        "kubernetes.io/service-account-token" => {
            let annotations = object.metadata().and_then(|meta| meta.get("annotations"));
            let account = annotations.and_then(|it| it.get(ACCOUNT_NAME)).and_then(Value::as_str);
            if account.unwrap_or_default().is_empty() {
                errors.required(FieldPath::new("metadata.annotations").key(ACCOUNT_NAME), "");
            }
        }
        "kubernetes.io/dockercfg" => validate_json(data, ".dockercfg", errors),
        "kubernetes.io/dockerconfigjson" => validate_json(data, ".dockerconfigjson", errors),
        "kubernetes.io/basic-auth" if !data.contains_key("username") && !data.contains_key("password") => {
            require(data, &["username", "password"], errors);
        }
        "kubernetes.io/ssh-auth" if !text(data, "ssh-privatekey").is_empty() => {}
        "kubernetes.io/ssh-auth" => errors.required(path("ssh-privatekey"), ""),
        "kubernetes.io/tls" => require(data, &["tls.crt", "tls.key"], errors),
        _ => {}
    }
}

fn require(data: &Map<String, Value>, keys: &[&str], errors: &mut FieldErrors) {
    for key in keys.iter().filter(|key| !data.contains_key(**key)) {
        errors.required(FieldPath::new("data").key(key), "");
    }
}

/// Checks that a key is there and holds a JSON object.
fn validate_json(data: &Map<String, Value>, key: &str, errors: &mut FieldErrors) {
    let path = FieldPath::new("data").key(key);
    let Some(value) = data.get(key) else {
        errors.required(path, "");
        return;
    };
    let bytes = STANDARD.decode(value.as_str().unwrap_or_default()).unwrap_or_default();
    if let Some(text) = json_error(&bytes) {
        errors.invalid(path, REDACTED, text);
    }
}

/// Returns the error of bytes that are not a JSON object, in the words of Go's decoder.
fn json_error(bytes: &[u8]) -> Option<String> {
    if let Some(text) = syntax_error(bytes) {
        return Some(text);
    }
    let found = match serde_json::from_slice::<Value>(bytes).ok()? {
        Value::Array(_) => "array",
        Value::String(_) => "string",
        Value::Number(_) => "number",
        Value::Bool(_) => "bool",
        Value::Object(_) | Value::Null => return None,
    };
    Some(format!(
        "json: cannot unmarshal {found} into Go value of type map[string]interface {{}}"
    ))
}
