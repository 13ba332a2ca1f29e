//! Conversion between typed objects and JSON. It uses the functions of serde_json that kube uses: the code for
//! a type is then compiled once for both.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Decodes a value as a type. The error does not contain a position.
pub(crate) fn decode<T: DeserializeOwned>(value: &Value) -> Result<T, String> {
    decode_text(&value.to_string())
}

/// Decodes JSON text as a type. The error does not contain a position.
pub(crate) fn decode_text<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|err| without_position(&err))
}

/// Returns a value as JSON. Fails if it cannot be serialized, such as a map with keys that are not strings.
pub(crate) fn encode(value: &impl Serialize) -> Result<Value, serde_json::Error> {
    serde_json::from_slice(&serde_json::to_vec(value)?)
}

/// The text that was decoded is not visible to users, so a position in it is not useful.
fn without_position(err: &serde_json::Error) -> String {
    let text = err.to_string();
    let position = format!(" at line {} column {}", err.line(), err.column());
    text.strip_suffix(&position).unwrap_or(&text).to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn decoding_error_has_no_position() {
        let err = decode::<Vec<u8>>(&json!({"a": 1})).expect_err("an object is not a list");
        assert_eq!(err, "invalid type: map, expected a sequence");
    }
}
