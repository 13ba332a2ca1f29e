//! The strategy of Secrets.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::config_map::{DATA_MAX, decoded_length, validate_immutable, validate_key};
use super::facts::{Facts, FieldLabels};
use super::strategy::{Context, Strategy};
use crate::api::field::FieldErrors;
use crate::api::json::Value;
use crate::api::json::syntax_error;
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::edit::{default_text, ensure_object};
use crate::registry::types::pem::key_pair_error;

const REDACTED: &str = "<secret contents redacted>";
const ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";

/// The strategy of Secrets.
#[derive(Debug)]
pub(crate) struct Secret;

impl Strategy for Secret {
    fn facts(&self) -> &Facts {
        const {
            &Facts {
                fields: FieldLabels::of(&["type"], true),
                ..Facts::DEFAULT
            }
        }
    }

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
        default_text(object, "type", "Opaque");
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        let secret = Cursor::root(object);
        let data = secret.at("data");
        let mut size = 0;
        for (key, value) in data.entries("") {
            validate_key(key, &value, errors);
            size += decoded_length(value.as_text());
        }
        if size > DATA_MAX {
            errors.too_long(data, DATA_MAX);
        }
        validate_type(&secret, &data, errors);
    }

    fn validate_update(&self, object: &Object, old: &Object, errors: &mut FieldErrors, context: &Context<'_>) {
        let old_type = Cursor::root(old);
        Cursor::root(object)
            .at("type")
            .check_text_unchanged(&old_type.at("type"), errors);
        validate_immutable(object, old, &[("data", context.hidden)], errors);
        self.validate(object, errors);
    }

    /// Returns the warnings about a TLS Secret (`warningsForSecret`).
    fn warnings(&self, object: &Object, _old: Option<&Object>) -> Vec<String> {
        if Cursor::root(object).text("type") != "kubernetes.io/tls" {
            return Vec::new();
        }
        let secret = Cursor::root(object);
        let data = secret.at("data");
        let value = |key| data.entry(key).as_text();
        key_pair_error(value("tls.crt"), value("tls.key")).into_iter().collect()
    }
}

/// Checks that a Secret has the keys or annotations that its type requires.
fn validate_type(secret: &Cursor<'_>, data: &Cursor<'_>, errors: &mut FieldErrors) {
    match secret.text("type") {
        "kubernetes.io/service-account-token" => {
            secret
                .at("metadata.annotations")
                .entry(ACCOUNT_NAME)
                .check_required(errors);
        }
        "kubernetes.io/dockercfg" => validate_json(data, ".dockercfg", errors),
        "kubernetes.io/dockerconfigjson" => validate_json(data, ".dockerconfigjson", errors),
        "kubernetes.io/basic-auth" if !data.has_entry("username") && !data.has_entry("password") => {
            require(data, &["username", "password"], errors);
        }
        "kubernetes.io/ssh-auth" => {
            data.entry("ssh-privatekey").check_required(errors);
        }
        "kubernetes.io/tls" => require(data, &["tls.crt", "tls.key"], errors),
        _ => {}
    }
}

fn require(data: &Cursor<'_>, keys: &[&str], errors: &mut FieldErrors) {
    for key in keys.iter().filter(|key| !data.has_entry(key)) {
        errors.required(data.entry(key), "");
    }
}

/// Checks that a key exists and contains a JSON object.
fn validate_json(data: &Cursor<'_>, key: &str, errors: &mut FieldErrors) {
    let entry = data.entry(key);
    if !data.has_entry(key) {
        errors.required(entry, "");
        return;
    }
    let bytes = STANDARD.decode(entry.as_text()).unwrap_or_default();
    if let Some(text) = json_error(&bytes) {
        errors.invalid(entry, REDACTED, text);
    }
}

/// Returns the error of Go's decoder for bytes that are not a JSON object.
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
