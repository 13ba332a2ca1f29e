//! Encodes objects for storage, and decodes stored objects.

use std::sync::LazyLock;

use bytes::Bytes;

use super::Row;
use crate::api::json::Value;
use crate::api::nesting;
use crate::api::object::Object;
use crate::api::print::{Printer, write_number};
use crate::api::read::read;
use crate::api::status::Status;
use crate::registry::types::print::TypedPrinter;
use crate::registry::types::schema::builtin::{Shape, object_meta, shape_of};
use crate::storage::{Body, Key, Revision, Stored};

/// Maximum size of a stored object; larger ones are refused with etcd's error (rule A20).
const OBJECT_BYTES_MAX: usize = 3 * 1024 * 1024 / 2;

/// Fields that are not encoded together with the other fields: they are in the head, or are written separately.
const IN_HEAD: [&str; 3] = ["kind", "apiVersion", "metadata"];

/// Fields of metadata that are not stored.
const IN_METADATA: [&str; 1] = ["resourceVersion"];

/// Returns the key of an object.
pub(crate) fn key_of(object: &Object) -> Key {
    Key::new(object.namespace(), object.name())
}

/// An object that has been encoded for storage.
#[derive(Debug)]
pub(crate) struct Encoded {
    /// The encoded object, ready to be stored.
    pub(crate) body: Body,
    /// Set if decoding may return a different value, because the object contains a number with a fraction.
    pub(crate) has_fraction: bool,
}

/// Encodes an object in the storage version; see [`Body`] for the format. Refuses objects that are too large for etcd.
pub(crate) fn encode(row: &Row, object: &Object) -> Result<Encoded, Status> {
    let encoded = encode_unstored(row, object)?;
    match is_too_large(&encoded) {
        true => Err(Status::new(500, "", "etcdserver: request is too large")),
        false => Ok(encoded),
    }
}

fn is_too_large(encoded: &Encoded) -> bool {
    encoded.body.bytes.len() > OBJECT_BYTES_MAX
}

/// Encodes an object for a write. In a dry run, which does not reach etcd, the size is not limited. If the object is
/// too large and the write is not an apply, its managed fields are dropped (`isTooLargeError` of kube-apiserver's
/// handlers).
pub(crate) fn encode_for(row: &Row, object: &mut Object, is_dry_run: bool, is_apply: bool) -> Result<Encoded, Status> {
    let encoded = encode_unstored(row, object)?;
    if is_dry_run || !is_too_large(&encoded) {
        return Ok(encoded);
    }
    if !is_apply {
        object.metadata_mut().remove("managedFields");
    }
    encode(row, object)
}

/// Encodes an object of any size.
fn encode_unstored(row: &Row, object: &Object) -> Result<Encoded, Status> {
    let (object, is_completed_on_read) = row.stored_form(object);
    let object = &*object;
    // The opening braces of the object and its metadata are omitted, because they are in the head.
    let mut out = Printer::new(2);
    let (version_at, metadata_len) = match shape_as_stored(row, object) {
        Some(shape) => print_typed(shape, object, &mut out),
        None => print_sorted(object, &mut out),
    };
    if out.deepest() > nesting::MAX && !nesting::is_readable(object) {
        return Err(Status::bad_request(format!(
            "{} nests deeper than {} levels: {}",
            row.info.kind,
            nesting::MAX,
            nesting::EXCEEDED
        )));
    }
    let pair = |(key, value): (&str, &str)| (key.into(), value.into());
    let fields = row.strategy().selectable_fields(object);
    let has_fraction = out.has_fraction();
    let body = Body {
        bytes: Bytes::from(out.to_bytes()),
        version_at,
        metadata_len,
        is_completed_on_read,
        uid: object.uid().into(),
        labels: object.labels().map(pair).collect(),
        fields: fields
            .into_iter()
            .filter(|(_, value)| !value.is_empty())
            .map(|(label, value)| (label, value.into()))
            .collect(),
    };
    Ok(Encoded { body, has_fraction })
}

/// Returns the built-in type of an object in storage. It may be the type of a different version, or of another group
/// that shares the storage.
fn shape_as_stored(row: &Row, object: &Object) -> Option<&'static Shape> {
    let own = row.shape()?;
    if object.api_version() == &*row.api_version {
        return Some(own);
    }
    let api_version = object.api_version();
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    shape_of(group, version, &row.info.kind).or(Some(own))
}

/// Prints a built-in object in the order of Go's structs. Returns the position for the resourceVersion, and the end of
/// the metadata.
fn print_typed(shape: &'static Shape, object: &Object, out: &mut Printer) -> (usize, usize) {
    let mut printer = TypedPrinter::new();
    let version = version_place();
    let (mut version_at, mut last) = (None, 0);
    if let (Some(of), Some(metadata)) = (object_meta(), object.metadata()) {
        printer.entries(of, metadata, &IN_METADATA, out, &mut |place, out| {
            last = out.len();
            if place > version && version_at.is_none() {
                version_at = Some(last);
            }
        });
    }
    out.close(b'}');
    let metadata_len = out.len();
    out.comma();
    printer.entries(shape, object, &IN_HEAD, out, &mut |_, _| {});
    out.close(b'}');
    // There is no comma after the last entry.
    (version_at.unwrap_or(last), metadata_len)
}

/// Returns the position of the resourceVersion among the fields of metadata.
fn version_place() -> u8 {
    static PLACE: LazyLock<u8> = LazyLock::new(|| {
        let metadata = object_meta().and_then(Shape::structure);
        metadata
            .and_then(|it| it.field("resourceVersion"))
            .map_or(0, |it| it.place())
    });
    *PLACE
}

/// Prints a custom object with sorted fields. Returns the position for the resourceVersion, and the end of the
/// metadata.
fn print_sorted(object: &Object, out: &mut Printer) -> (usize, usize) {
    let (mut version_at, mut last) = (None, 0);
    let metadata = object.metadata().into_iter().flatten();
    for (key, value) in metadata.filter(|(key, _)| !IN_METADATA.contains(&key.as_str())) {
        last = out.len();
        if key.as_str() > "resourceVersion" && version_at.is_none() {
            version_at = Some(last);
        }
        out.entry(key, value);
    }
    out.close(b'}');
    let metadata_len = out.len();
    out.comma();
    for (key, value) in object.iter().filter(|(key, _)| !IN_HEAD.contains(&key.as_str())) {
        out.entry(key, value);
    }
    out.close(b'}');
    (version_at.unwrap_or(last), metadata_len)
}

/// Decodes a stored object into the version of `row`, with kind, apiVersion and resourceVersion.
pub(crate) fn decode(row: &Row, stored: &Stored) -> Object {
    decode_at(row, stored, stored.revision)
}

/// Same as [`decode`], with a different resourceVersion, as in a DELETED event.
pub(crate) fn decode_at(row: &Row, stored: &Stored, revision: Revision) -> Object {
    let mut text = Vec::with_capacity(row.head.len() + 32 + stored.body.bytes.len());
    write_at(row, stored, revision, &mut text);
    let text = std::str::from_utf8(&text).expect("JSON is written as UTF-8");
    let mut object = match read(text).map(|it| it.value) {
        Some(Value::Object(map)) => Object(map),
        _ => Object(serde_json::from_str(text).expect("encoded objects can be decoded")),
    };
    row.restore(&mut object);
    object
}

/// Decodes an object in its storage version, without converting it.
pub(crate) fn decode_as_stored(row: &Row, stored: &Stored) -> Object {
    let mut text = Vec::with_capacity(row.head.len() + 32 + stored.body.bytes.len());
    write_at(row, stored, stored.revision, &mut text);
    let mut object = Object(serde_json::from_slice(&text).expect("encoded objects can be decoded"));
    if let Some(resource) = row.custom_resource() {
        let info = &resource.storage.row;
        object.insert("kind".into(), info.kind.as_ref().into());
        object.insert("apiVersion".into(), info.api_version().into());
    }
    object
}

/// Writes a stored object as JSON with the kind and apiVersion of `row`, without converting it.
pub(crate) fn write_at(row: &Row, stored: &Stored, revision: Revision, out: &mut Vec<u8>) {
    write_with_head(&row.head, stored, revision, out);
}

/// Same as [`write_at`], for callers that have the row's head but not the row.
pub(crate) fn write_with_head(head: &str, stored: &Stored, revision: Revision, out: &mut Vec<u8>) {
    out.extend_from_slice(head.as_bytes());
    write_rest(stored, revision, out);
}

/// Writes the metadata of a stored object after a head that contains its opening brace.
pub(crate) fn write_metadata(head: &str, stored: &Stored, revision: Revision, out: &mut Vec<u8>) {
    out.extend_from_slice(head.as_bytes());
    let (before, after) = stored.body.bytes[..stored.body.metadata_len].split_at(stored.body.version_at);
    out.extend_from_slice(before);
    write_revision(revision, out);
    out.extend_from_slice(after);
    out.push(b'}');
}

/// Writes an object that is not stored, in the storage version, as if it had been stored and read.
pub(crate) fn write_unstored(row: &Row, object: &Object, out: &mut Vec<u8>) -> Result<(), Status> {
    out.extend_from_slice(row.head.as_bytes());
    let version = object.meta_str("resourceVersion");
    let body = encode_unstored(row, object)?.body;
    let (before, after) = body.bytes.split_at(body.version_at);
    out.extend_from_slice(before);
    if !version.is_empty() {
        out.extend_from_slice(b"\"resourceVersion\":\"");
        out.extend_from_slice(version.as_bytes());
        out.extend_from_slice(b"\",");
    }
    out.extend_from_slice(after);
    Ok(())
}

/// Writes a stored object as an item of a typed list, without its kind (rule A33).
pub(crate) fn write_item(stored: &Stored, revision: Revision, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"metadata\":{");
    write_rest(stored, revision, out);
}

fn write_rest(stored: &Stored, revision: Revision, out: &mut Vec<u8>) {
    let (before, after) = stored.body.bytes.split_at(stored.body.version_at);
    out.extend_from_slice(before);
    write_revision(revision, out);
    out.extend_from_slice(after);
}

fn write_revision(revision: Revision, out: &mut Vec<u8>) {
    out.extend_from_slice(b"\"resourceVersion\":\"");
    write_number(revision, out);
    out.extend_from_slice(b"\",");
}
