//! Between an object as the registry works on it and as storage keeps it.

use bytes::Bytes;
use serde_json::Value;

use super::Row;
use crate::api::nesting;
use crate::api::object::Object;
use crate::api::print::{Printer, write_number};
use crate::api::read::read;
use crate::api::status::Status;
use crate::storage::{Body, Key, Revision, Stored};

/// Objects larger than this are refused as etcd refuses them (rule A20).
const OBJECT_BYTES_MAX: usize = 3 * 1024 * 1024 / 2;

/// The key of an object.
pub(crate) fn key_of(object: &Object) -> Key {
    Key::new(object.namespace(), object.name())
}

/// An object as storage keeps it.
#[derive(Debug)]
pub(crate) struct Encoded {
    /// For storage.
    pub(crate) body: Body,
    /// Set if the object may be another one when it is read back: it holds a number with a fraction.
    pub(crate) has_fraction: bool,
}

/// Encodes an object of the storage version for storage; see [`Body`] for the form.
pub(crate) fn encode(row: &Row, object: &Object) -> Result<Encoded, Status> {
    let object = &*row.stored_form(object);
    let object = &*object.sorted();
    // The object itself and its metadata are open: the head opens them.
    let mut out = Printer::new(2, 512);
    // People look for these first, and Go's struct begins with them.
    const FIRST: [&str; 3] = ["name", "namespace", "uid"];
    let is_first = |key: &str| !row.is_custom() && FIRST.contains(&key);
    let metadata = || {
        object
            .metadata()
            .into_iter()
            .flatten()
            .filter(|(key, _)| *key != "resourceVersion")
    };
    for (key, value) in FIRST.iter().filter_map(|key| object.metadata()?.get_key_value(*key)) {
        if is_first(key) {
            out.entry(key, value);
        }
    }
    for (key, value) in metadata().filter(|(key, _)| !is_first(key)) {
        match value.as_array() {
            Some(entries) if key == "managedFields" && !row.is_custom() => print_managed_fields(entries, &mut out),
            Some(_) | None => out.entry(key, value),
        }
    }
    out.close(b'}');
    let metadata_len = out.len();
    out.comma();
    for (key, value) in object
        .iter()
        .filter(|(key, _)| !matches!(key.as_str(), "kind" | "apiVersion" | "metadata"))
    {
        out.entry(key, value);
    }
    out.close(b'}');
    if out.deepest() > nesting::MAX && !nesting::is_readable(object) {
        return Err(Status::bad_request(format!(
            "{} nests deeper than {} levels: {}",
            row.info.kind,
            nesting::MAX,
            nesting::EXCEEDED
        )));
    }
    if out.len() > OBJECT_BYTES_MAX {
        return Err(Status::new(500, "", "etcdserver: request is too large"));
    }
    let pair = |(key, value): (&str, &str)| (key.into(), value.into());
    let fields = row.strategy().selectable_fields(object);
    let has_fraction = out.has_fraction();
    let mut bytes = out.into_bytes();
    bytes.shrink_to_fit();
    let body = Body {
        bytes: Bytes::from(bytes),
        metadata_len,
        uid: object.uid().into(),
        labels: object.labels().map(pair).collect(),
        fields: fields
            .into_iter()
            .map(|(label, value)| (label.as_ref().into(), value.into()))
            .collect(),
    };
    Ok(Encoded { body, has_fraction })
}

/// The field owners of a built-in object, in the order of Go's struct: where one writer's entry ends and the next
/// begins is hard enough to see.
fn print_managed_fields(entries: &[Value], out: &mut Printer) {
    const ORDER: [&str; 7] = [
        "manager",
        "operation",
        "apiVersion",
        "time",
        "fieldsType",
        "fieldsV1",
        "subresource",
    ];
    out.key("managedFields");
    out.open(b'[');
    for entry in entries {
        out.open(b'{');
        for (key, value) in ORDER.iter().filter_map(|key| Some((key, entry.get(key)?))) {
            out.entry(key, value);
        }
        out.close(b'}');
        out.comma();
    }
    out.close(b']');
    out.comma();
}

/// Decodes a stored object into the version of `row`, with kind, apiVersion and resourceVersion.
pub(crate) fn decode(row: &Row, stored: &Stored) -> Object {
    decode_at(row, stored, stored.revision)
}

/// The same with another resourceVersion, as the event of a delete has it.
pub(crate) fn decode_at(row: &Row, stored: &Stored, revision: Revision) -> Object {
    let mut text = Vec::with_capacity(row.head.len() + 32 + stored.body.bytes.len());
    write_at(row, stored, revision, &mut text);
    let text = std::str::from_utf8(&text).expect("JSON is written as UTF-8");
    let mut object = match read(text).map(|it| it.value) {
        Some(Value::Object(map)) => Object(map),
        _ => Object(serde_json::from_str(text).expect("what is encoded can be read")),
    };
    row.restore(&mut object);
    object.sort();
    object
}

/// The same in the version it is stored in, before anything is done to it.
pub(crate) fn decode_as_stored(row: &Row, stored: &Stored) -> Object {
    let mut text = Vec::with_capacity(row.head.len() + 32 + stored.body.bytes.len());
    write_at(row, stored, stored.revision, &mut text);
    let mut object = Object(serde_json::from_slice(&text).expect("what is encoded can be read"));
    if let Some(resource) = row.custom_resource() {
        let info = &resource.storage.row;
        object.insert("kind".into(), info.kind.as_ref().into());
        object.insert("apiVersion".into(), info.api_version().into());
    }
    object.sort();
    object
}

/// Writes a stored object, which must be of the storage version, as JSON with its kind.
pub(crate) fn write_at(row: &Row, stored: &Stored, revision: Revision, out: &mut Vec<u8>) {
    write_with_head(&row.head, stored, revision, out);
}

/// The same where the row's head is at hand, but not the row.
pub(crate) fn write_with_head(head: &str, stored: &Stored, revision: Revision, out: &mut Vec<u8>) {
    out.extend_from_slice(head.as_bytes());
    write_rest(stored, revision, out);
}

/// Writes the metadata of a stored object, behind a head that begins it.
pub(crate) fn write_metadata(head: &str, stored: &Stored, revision: Revision, out: &mut Vec<u8>) {
    out.extend_from_slice(head.as_bytes());
    write_revision(revision, out);
    out.extend_from_slice(&stored.body.bytes[..stored.body.metadata_len]);
    out.push(b'}');
}

/// Writes an object of the storage version that is not stored, as it would be read if it were.
pub(crate) fn write_unstored(row: &Row, object: &Object, out: &mut Vec<u8>) -> Result<(), Status> {
    out.extend_from_slice(row.head.as_bytes());
    let version = object.meta_str("resourceVersion");
    if !version.is_empty() {
        out.extend_from_slice(b"\"resourceVersion\":\"");
        out.extend_from_slice(version.as_bytes());
        out.extend_from_slice(b"\",");
    }
    out.extend_from_slice(&encode(row, object)?.body.bytes);
    Ok(())
}

/// Writes a stored object as an item of a typed list, which has no kind (rule A33).
pub(crate) fn write_item(stored: &Stored, revision: Revision, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"metadata\":{");
    write_rest(stored, revision, out);
}

fn write_rest(stored: &Stored, revision: Revision, out: &mut Vec<u8>) {
    write_revision(revision, out);
    out.extend_from_slice(&stored.body.bytes);
}

fn write_revision(revision: Revision, out: &mut Vec<u8>) {
    out.extend_from_slice(b"\"resourceVersion\":\"");
    write_number(revision, out);
    out.extend_from_slice(b"\",");
}
