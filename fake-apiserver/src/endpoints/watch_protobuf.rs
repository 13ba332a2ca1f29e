//! Watch events in protobuf: a length, then a `WatchEvent` that contains the object in Kubernetes' envelope.

use bytes::Bytes;
use serde::Deserialize;

use crate::api::json::Value;
use crate::api::protobuf::write_bytes;
use crate::registry::types::decode::protobuf;

/// Size of the length prefix of each event, in bytes.
pub(super) const LENGTH_BYTES: usize = 4;

/// Converts an event from a line of JSON to a frame: a length of four bytes in network order, then the message.
pub(super) fn frame(line: &[u8]) -> Bytes {
    #[derive(Deserialize)]
    struct Event {
        #[serde(rename = "type")]
        kind: String,
        object: Value,
    }
    let Ok(event) = serde_json::from_slice::<Event>(line) else {
        // A line that is not an event is sent unchanged.
        return framed(line);
    };
    let object = protobuf::encode_value(&event.object).unwrap_or_else(|| envelope_of_json(&event.object));
    let mut raw = Vec::with_capacity(object.len() + 8);
    write_bytes(&mut raw, 1, &object);
    let mut message = Vec::with_capacity(raw.len() + 16);
    write_bytes(&mut message, 1, event.kind.as_bytes());
    write_bytes(&mut message, 2, &raw);
    framed(&message)
}

/// Adds a length prefix to a message.
fn framed(message: &[u8]) -> Bytes {
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    [&length.to_be_bytes()[..], message].concat().into()
}

/// Encodes an object without a protobuf form, such as an injected one, as JSON in the envelope.
fn envelope_of_json(object: &Value) -> Vec<u8> {
    let text = |name: &str| object[name].as_str().unwrap_or_default();
    let mut names = Vec::new();
    write_bytes(&mut names, 1, text("apiVersion").as_bytes());
    write_bytes(&mut names, 2, text("kind").as_bytes());
    let mut out = b"k8s\0".to_vec();
    write_bytes(&mut out, 1, &names);
    write_bytes(&mut out, 2, object.to_string().as_bytes());
    write_bytes(&mut out, 3, b"");
    write_bytes(&mut out, 4, b"application/json");
    out
}
