//! Encodes the OpenAPI v2 document in protobuf: the messages of gnostic's `openapi.v2`, with their field numbers.

use crate::api::json::{Map, SmolStr, Value};
use crate::api::protobuf::{write_bytes, write_number, write_text};
type Fields = Map;

/// Encodes the message `Document`.
pub(super) fn document(document: &Value) -> Vec<u8> {
    let mut info = Vec::new();
    texts(&mut info, &document["info"], &[("title", 1), ("version", 2)]);
    let mut paths = Vec::new();
    for (path, item) in entries(&document["paths"]) {
        named(&mut paths, 2, path, &path_item(item));
    }
    let mut definitions = Vec::new();
    for (name, definition) in entries(&document["definitions"]) {
        named(&mut definitions, 1, name, &schema(definition));
    }
    let mut security = Vec::new();
    for (name, definition) in entries(&document["securityDefinitions"]) {
        let mut key = Vec::new();
        let fields = [("type", 1), ("name", 2), ("in", 3), ("description", 4)];
        texts(&mut key, definition, &fields);
        // Field 2 of the message is the alternative `api_key_security`.
        named(&mut security, 1, name, &within(2, &key));
    }
    let mut parameters = Vec::new();
    for (name, shared) in entries(&document["parameters"]) {
        named(&mut parameters, 1, name, &parameter(shared));
    }
    let mut out = Vec::new();
    texts(&mut out, document, &[("swagger", 1)]);
    write_bytes(&mut out, 2, &info);
    write_bytes(&mut out, 8, &paths);
    write_bytes(&mut out, 9, &definitions);
    write_bytes(&mut out, 10, &parameters);
    write_bytes(&mut out, 13, &security);
    out
}

fn path_item(item: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    for (method, field) in [("get", 2), ("put", 3), ("post", 4), ("delete", 5), ("patch", 8)] {
        if let Some(it) = item.get(method) {
            write_bytes(&mut out, field, &operation(it));
        }
    }
    for it in items(&item["parameters"]) {
        write_bytes(&mut out, 9, &parameters_item(it));
    }
    out
}

fn operation(operation: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    repeated_texts(&mut out, 1, &operation["tags"]);
    texts(&mut out, operation, &[("description", 3), ("operationId", 5)]);
    repeated_texts(&mut out, 6, &operation["produces"]);
    repeated_texts(&mut out, 7, &operation["consumes"]);
    for it in items(&operation["parameters"]) {
        write_bytes(&mut out, 8, &parameters_item(it));
    }
    let mut responses = Vec::new();
    for (code, it) in entries(&operation["responses"]) {
        let mut response = Vec::new();
        texts(&mut response, it, &[("description", 1)]);
        if let Some(it) = it.get("schema") {
            write_bytes(&mut response, 2, &within(1, &schema(it)));
        }
        named(&mut responses, 1, code, &within(1, &response));
    }
    write_bytes(&mut out, 9, &responses);
    repeated_texts(&mut out, 10, &operation["schemes"]);
    extensions(&mut out, 13, operation.as_object());
    out
}

/// Encodes the message `ParametersItem`: a parameter, or a reference to a shared one.
fn parameters_item(item: &Value) -> Vec<u8> {
    if item.get("$ref").is_none() {
        return within(1, &parameter(item));
    }
    let mut reference = Vec::new();
    texts(&mut reference, item, &[("$ref", 1)]);
    within(2, &reference)
}

/// Encodes the message `Parameter`.
fn parameter(parameter: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    let place = parameter["in"].as_str().unwrap_or_default();
    if place == "body" {
        texts(&mut out, parameter, &[("description", 1), ("name", 2), ("in", 3)]);
        flag(&mut out, 4, &parameter["required"]);
        write_bytes(&mut out, 5, &schema(&parameter["schema"]));
        within(1, &out)
    } else {
        let (sub_schema, kind, unique) = if place == "query" { (3, 6, 20) } else { (4, 5, 19) };
        flag(&mut out, 1, &parameter["required"]);
        let fields = [("in", 2), ("description", 3), ("name", 4), ("type", kind)];
        texts(&mut out, parameter, &fields);
        flag(&mut out, unique, &parameter["uniqueItems"]);
        within(2, &within(sub_schema, &out))
    }
}

/// Encodes the message `Schema`.
fn schema(schema: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    let fields = [
        ("$ref", 1),
        ("format", 2),
        ("title", 3),
        ("description", 4),
        ("pattern", 13),
    ];
    texts(&mut out, schema, &fields);
    for (name, field) in [("multipleOf", 6), ("maximum", 7), ("minimum", 9)] {
        if let Some(value) = schema.get(name).and_then(Value::as_f64) {
            double(&mut out, field, value);
        }
    }
    for (name, field) in [("exclusiveMaximum", 8), ("exclusiveMinimum", 10), ("uniqueItems", 16)] {
        flag(&mut out, field, &schema[name]);
    }
    let counts = [
        ("maxLength", 11),
        ("minLength", 12),
        ("maxItems", 14),
        ("minItems", 15),
        ("maxProperties", 17),
        ("minProperties", 18),
    ];
    for (name, field) in counts {
        if let Some(value) = schema.get(name).and_then(Value::as_u64) {
            write_number(&mut out, field, value);
        }
    }
    repeated_texts(&mut out, 19, &schema["required"]);
    for value in items(&schema["enum"]) {
        write_bytes(&mut out, 20, &any(value));
    }
    match schema.get("additionalProperties") {
        None => {}
        Some(Value::Bool(allowed)) => {
            let mut item = Vec::new();
            write_number(&mut item, 2, u64::from(*allowed));
            write_bytes(&mut out, 21, &item);
        }
        Some(inner) => write_bytes(&mut out, 21, &within(1, &self::schema(inner))),
    }
    if let Some(kind) = schema["type"].as_str() {
        let mut item = Vec::new();
        write_text(&mut item, 1, kind);
        write_bytes(&mut out, 22, &item);
    }
    if let Some(inner) = schema.get("items") {
        write_bytes(&mut out, 23, &within(1, &self::schema(inner)));
    }
    if schema["properties"].is_object() {
        let mut properties = Vec::new();
        for (name, inner) in entries(&schema["properties"]) {
            named(&mut properties, 1, name, &self::schema(inner));
        }
        write_bytes(&mut out, 25, &properties);
    }
    extensions(&mut out, 31, schema.as_object());
    out
}

/// Writes the `x-` extensions, each as a string in YAML, which includes JSON.
fn extensions(out: &mut Vec<u8>, field: u64, fields: Option<&Fields>) {
    for (name, value) in fields.into_iter().flatten().filter(|(name, _)| name.starts_with("x-")) {
        named(out, field, name, &any(value));
    }
}

/// Encodes the message `Any`.
fn any(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    write_text(&mut out, 2, &format!("{value}\n"));
    out
}

/// Writes an entry of a map: a name and a message.
fn named(out: &mut Vec<u8>, field: u64, name: &str, message: &[u8]) {
    let mut entry = Vec::with_capacity(name.len() + message.len() + 8);
    write_text(&mut entry, 1, name);
    write_bytes(&mut entry, 2, message);
    write_bytes(out, field, &entry);
}

/// Encodes a message that contains only another message.
fn within(field: u64, message: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(message.len() + 8);
    write_bytes(&mut out, field, message);
    out
}

fn texts(out: &mut Vec<u8>, value: &Value, fields: &[(&str, u64)]) {
    for (name, field) in fields {
        if let Some(value) = value[*name].as_str() {
            write_text(out, *field, value);
        }
    }
}

fn repeated_texts(out: &mut Vec<u8>, field: u64, list: &Value) {
    for it in items(list).filter_map(Value::as_str) {
        write_text(out, field, it);
    }
}

fn flag(out: &mut Vec<u8>, field: u64, value: &Value) {
    if value == &Value::Bool(true) {
        write_number(out, field, 1);
    }
}

/// Writes a 64-bit float in its binary form.
fn double(out: &mut Vec<u8>, field: u64, value: f64) {
    // The tag needs wire type 1, but `write_number` writes type 0.
    let mut tag = Vec::new();
    write_number(&mut tag, field, 0);
    tag.pop();
    if let Some(first) = tag.first_mut() {
        *first |= 1;
    }
    out.extend(tag);
    out.extend(value.to_le_bytes());
}

fn entries(value: &Value) -> impl Iterator<Item = (&SmolStr, &Value)> {
    value.as_object().into_iter().flatten()
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use crate::api::json::json;

    use super::*;

    #[test]
    fn n6_schema_is_encoded_as_in_gnostic() {
        let written = schema(&json!({
            "type": "object", "maximum": 1.5, "properties": {"a": {"$ref": "#/definitions/b"}}, "x-k": 1,
        }));
        let mut expected = b"\x39\0\0\0\0\0\0\xf8\x3f".to_vec();
        expected.extend(b"\xb2\x01\x08\x0a\x06object");
        expected.extend(b"\xca\x01\x18\x0a\x16\x0a\x01a\x12\x11\x0a\x0f#/definitions/b");
        expected.extend(b"\xfa\x01\x0b\x0a\x03x-k\x12\x04\x12\x021\n");
        assert_eq!(written, expected);
    }
}
