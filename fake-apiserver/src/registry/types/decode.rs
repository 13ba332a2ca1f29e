//! Decodes request bodies and patched objects into built-in types, like Go's decoder (rules A15, L1 to L5 and T7 in
//! `docs/rules.md`).

mod convert;
pub(crate) mod protobuf;
mod scan;
mod time;
mod unstructured;
mod zero;

use super::hidden::Hidden;
use super::schema::builtin::{Shape, is_unserved, shape_of};
use crate::api::field::quote;
use crate::api::json::type_name;
use crate::api::json::{Map, Value};
use crate::api::nesting;
use crate::api::object::Object;
use crate::api::options::FieldValidation;
use crate::api::read::{Read, read};
use crate::api::status::Status;

pub(crate) use scan::{MOST_ERRORS, duplicate_fields};
pub(crate) use time::canonical_seconds;
#[cfg(feature = "cel")]
pub(crate) use time::read_rfc3339;
pub(crate) use zero::ROOT_KEYWORDS;

/// Prefix of error messages for documents without a readable kind.
const UNREADABLE: &str = "couldn't get version/kind; json parse error: ";

/// The kind of object that a request path accepts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    /// API group; empty for the core group.
    pub(crate) group: &'a str,
    /// Version of the API.
    pub(crate) version: &'a str,
    /// Kind of the object.
    pub(crate) kind: &'a str,
    /// Type of the kind, if the caller has already looked it up.
    pub(crate) shape: Option<&'static Shape>,
}

impl Wanted<'_> {
    fn api_version(&self) -> String {
        join(self.group, self.version)
    }
}

/// The JSON of a request body, for facts that the decoded object does not contain, such as duplicate keys. Empty if
/// there is no body.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Text<'a> {
    /// The JSON of the body.
    pub(crate) raw: &'a [u8],
    /// Set if an object in the body may have a duplicate key.
    pub(crate) repeats_key: bool,
}

/// Parses a JSON body, which must be an object or `null`. Also returns `true` if an object may have a duplicate key.
/// Fails with kube-apiserver's error for a body without a readable kind (rule A15).
pub(crate) fn parse(raw: &[u8], kind: &str) -> Result<(Object, bool), Status> {
    let read = std::str::from_utf8(raw).ok().and_then(read);
    let parsed = match read {
        Some(read) => Ok(read),
        None => serde_json::from_slice(raw).map(|value| Read {
            levels: nesting::levels(&value),
            value,
            repeats_key: true,
            has_fraction: true,
        }),
    };
    match parsed {
        Ok(Read { value, levels, .. }) if levels > nesting::MAX && nesting::levels_of_object(&value) > nesting::MAX => {
            Err(unreadable(nesting::EXCEEDED, raw, kind))
        }
        Ok(Read { value, repeats_key, .. }) => match value {
            Value::Object(map) => Ok((Object(map), repeats_key)),
            Value::Null => Ok((Object::default(), repeats_key)),
            other => Err(unrecognized(&no_object(&other), raw, kind)),
        },
        Err(error) => {
            let text = match crate::api::json::syntax_error(raw) {
                Some(text) => text,
                None if error.to_string().starts_with("recursion limit") => nesting::EXCEEDED.to_owned(),
                None => error.to_string(),
            };
            Err(unreadable(&text, raw, kind))
        }
    }
}

/// Returns the error for a document that is not a JSON object, and therefore lacks a kind.
pub(crate) fn no_object(found: &Value) -> String {
    let target = "struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; \
                  Kind string \"json:\\\"kind,omitempty\\\"\" }";
    let what = type_name(found);
    format!("{UNREADABLE}json: cannot unmarshal {what} into Go value of type {target}")
}

fn unreadable(error: &str, raw: &[u8], kind: &str) -> Status {
    unrecognized(&format!("{UNREADABLE}{error}"), raw, kind)
}

/// Returns the error (status 400) for a body without a known kind.
pub(crate) fn unrecognized(error: &str, raw: &[u8], kind: &str) -> Status {
    let summary = summary(raw);
    Status::bad_request(format!(
        "the object provided is unrecognized (must be of type {kind}): {error} ({summary})"
    ))
}

/// Returns the first 30 bytes of a body for an error message: unchanged if they begin with `{`, otherwise in hex.
fn summary(raw: &[u8]) -> String {
    let head = &raw[..raw.len().min(30)];
    let more = if raw.len() > 30 { " ..." } else { "" };
    match raw.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => format!("{}{more}", String::from_utf8_lossy(head)),
        Some(_) => {
            let hex: String = head.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("{hex}{more}")
        }
    }
}

/// Returns the location in the source of kube-apiserver where the scheme of a group is declared.
fn scheme_of(group: &str) -> &'static str {
    match group {
        "apiextensions.k8s.io" => "k8s.io/apiextensions-apiserver/pkg/apiserver/apiserver.go:55",
        "apiregistration.k8s.io" => "k8s.io/kube-aggregator/pkg/apiserver/scheme/scheme.go:28",
        _ => "pkg/api/legacyscheme/scheme.go:30",
    }
}

/// Decodes the body of a create or update into a built-in kind, and fills in its kind and apiVersion.
///
/// `text` is the JSON from which the object was parsed, for duplicate keys and for the order of errors. `before` is the
/// stored object of the same kind that the body replaces, if the caller has it. Returns the warnings (rule L1), and the
/// facts that the object does not contain.
pub(crate) fn decode(
    wanted: Wanted<'_>,
    object: &mut Object,
    text: Text<'_>,
    before: Option<&Object>,
    strictness: FieldValidation,
) -> Result<(Vec<String>, Hidden), Status> {
    let (kind, api_version) = kind_of(object).map_err(|why| unrecognized(&why, text.raw, wanted.kind))?;
    let kind = if kind.is_empty() { wanted.kind } else { kind }.to_owned();
    let api_version = match api_version {
        "" | "/" => wanted.api_version(),
        named => named.to_owned(),
    };
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    let refuse = |error: &str| {
        Status::bad_request(format!(
            "{kind} in version \"{version}\" cannot be handled as a {}: {error}",
            wanted.kind
        ))
    };
    let known = registered(wanted, &kind, &api_version).map_err(|why| refuse(&why))?;
    if let Some(why) = unconvertible(wanted, &kind, &api_version) {
        return Err(refuse(&why));
    }
    let served = known.filter(|_| group == wanted.group && version == wanted.version);
    let Some(shape) = served else {
        let mismatch = Status::bad_request(format!(
            "the API version in the data ({api_version}) does not match the expected API version ({})",
            wanted.api_version()
        ));
        let Some(shape) = known else { return Err(mismatch) };
        let converted = convert_strictly(shape, object, None, Document::Sent(text), strictness);
        let (errors, _) = converted.map_err(|error| refuse(&error))?;
        return Err(match strictness == FieldValidation::Strict && !errors.is_empty() {
            true => refuse(&format!("strict decoding error: {}", errors.join(", "))),
            false => mismatch.warned(errors),
        });
    };
    let before = before.map(|it| &it.0);
    let converted = convert_strictly(shape, object, before, Document::Sent(text), strictness);
    let (errors, hidden) = converted.map_err(|error| refuse(&error))?;
    if strictness == FieldValidation::Strict && !errors.is_empty() {
        return Err(refuse(&format!("strict decoding error: {}", errors.join(", "))));
    }
    if object.kind().is_empty() {
        object.insert("kind".into(), Value::String(kind.into()));
    }
    if object.api_version() != api_version {
        object.insert("apiVersion".into(), Value::String(api_version.into()));
    }
    Ok((errors, hidden))
}

/// Returns the type of a registered kind, or of the items of a registered list kind; `None` if its version is not
/// served. Fails if the kind is not registered.
fn registered(wanted: Wanted<'_>, kind: &str, api_version: &str) -> Result<Option<&'static Shape>, String> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let is_wanted = kind == wanted.kind && group == wanted.group && version == wanted.version;
    let known = wanted
        .shape
        .filter(|_| is_wanted)
        .or_else(|| shape_of(group, version, kind));
    let known = known.or_else(|| shape_of(group, version, kind.strip_suffix("List")?));
    if known.is_none() && !is_unserved(group, version, kind) {
        return Err(format!(
            "no kind {} is registered for version \"{api_version}\" in scheme \"{}\"",
            quote(kind),
            scheme_of(wanted.group)
        ));
    }
    Ok(known)
}

/// Returns the error for an object of a registered kind that cannot be converted to the requested kind.
fn unconvertible(wanted: Wanted<'_>, kind: &str, api_version: &str) -> Option<String> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let package = internal_package(wanted.group, wanted.kind);
    let differs = kind != wanted.kind || internal_package(group, kind) != package;
    differs.then(|| {
        format!(
            "converting ({version}.{kind}) to ({package}.{}): unknown conversion",
            wanted.kind
        )
    })
}

/// Declared type of a patched document.
pub(crate) enum Claim {
    /// The type of the original object, or a version of the kind that is not served.
    Wanted,
    /// The same kind in another served version, with this type.
    Version(&'static Shape),
    /// The internal version, in which fields do not have JSON names.
    Internal,
    /// A type that cannot be converted: its shape, if it has one, and the reason.
    Other(Option<&'static Shape>, String),
}

impl Claim {
    /// Determines the type that the document declares, like Go's decoder with an internal object as its target. Fails
    /// with the decoder's message.
    pub(crate) fn of(wanted: Wanted<'_>, object: &Object) -> Result<Self, String> {
        let (kind, api_version) = kind_of(object)?;
        if matches!(api_version, "" | "/") {
            if kind.is_empty() || kind == wanted.kind {
                return Ok(Self::Internal);
            }
            let package = internal_package(wanted.group, wanted.kind);
            return Err(match shape_of(wanted.group, wanted.version, kind) {
                Some(_) => {
                    let to = wanted.kind;
                    format!("converting ({package}.{kind}) to ({package}.{to}): unknown conversion")
                }
                None => format!(
                    "no kind {} is registered for the internal version of group \"{}\" in scheme \"{}\"",
                    quote(kind),
                    wanted.group,
                    scheme_of(wanted.group)
                ),
            });
        }
        let kind = if kind.is_empty() { wanted.kind } else { kind };
        if kind == wanted.kind && api_version == wanted.api_version() {
            return Ok(Self::Wanted);
        }
        let shape = registered(wanted, kind, api_version)?;
        match (unconvertible(wanted, kind, api_version), shape) {
            (Some(why), shape) => Ok(Self::Other(shape, why)),
            (None, Some(shape)) => Ok(Self::Version(shape)),
            (None, None) => Ok(Self::Wanted),
        }
    }
}

/// Source of an object, for facts that a parsed value does not contain.
#[derive(Clone, Copy)]
pub(crate) enum Document<'a> {
    /// JSON that a client sent.
    Sent(Text<'a>),
    /// A value that this server created, which cannot have duplicate keys. Its JSON is only printed if it is needed.
    Made {
        /// Prints the value as JSON.
        text: &'a dyn Fn() -> String,
    },
}

/// Converts an object of a known type, such as the result of a patch. `before` is an object of the same type, from
/// which the object was created or which it replaces; equal top-level fields are not converted again. Returns
/// the messages of strict errors (`unknown field "spec.x"`), which the caller returns as warnings or as an error, and
/// the facts that the object no longer contains. The list of messages is empty if `strictness` ignores strict errors.
/// Fails with Go's error message.
pub(crate) fn convert_strictly(
    shape: &'static Shape,
    object: &mut Map,
    before: Option<&Map>,
    document: Document<'_>,
    strictness: FieldValidation,
) -> Result<(Vec<String>, Hidden), String> {
    // The conversion drops an empty `managedFields`, which must be kept because it removes all field owners (rule H16).
    let owners = object
        .get("metadata")
        .and_then(|it| it.get("managedFields"))
        .and_then(Value::as_array);
    let forgets_owners = owners.is_some_and(Vec::is_empty);
    let removed = convert::convert(shape, object, before).map_err(|misfits| match document {
        Document::Sent(text) => misfits.first_in(text.raw),
        Document::Made { .. } => misfits.first(),
    })?;
    if let (true, Some(Value::Object(metadata))) = (forgets_owners, object.get_mut("metadata")) {
        metadata.insert("managedFields".into(), Value::Array(Vec::new()));
    }
    let convert::Removed { unknown, hidden } = removed;
    if strictness == FieldValidation::Ignore {
        return Ok((Vec::new(), hidden));
    }
    // Duplicate keys, and the order of several errors, can only be determined from the JSON of the document.
    match document {
        Document::Sent(text) if !text.raw.is_empty() && (unknown.len() > 1 || text.repeats_key) => {
            return Ok((scan::strict_errors(text.raw, shape), hidden));
        }
        Document::Made { text, .. } if unknown.len() > 1 => {
            return Ok((scan::strict_errors(text().as_bytes(), shape), hidden));
        }
        Document::Sent(_) | Document::Made { .. } => {}
    }
    let unknown = unknown.iter().map(|path| format!("unknown field {}", quote(path)));
    Ok((unknown.collect(), hidden))
}

/// Sets empty lists, maps and bytes to `null` if Go always encodes the field, as kube-apiserver's storage does.
pub(crate) fn settle(shape: &'static Shape, object: &mut Map) {
    convert::settle_map(shape, object);
}

/// Removes unknown fields without an error, and converts the other fields to their canonical form.
pub(crate) fn convert(shape: &'static Shape, object: &mut Map) -> Result<(), String> {
    convert_changed(shape, object, None).map(|_| ())
}

/// Like [`convert()`], for an object that was created from `before`, an object of the same type. Returns the facts that
/// the object no longer contains.
pub(crate) fn convert_changed(shape: &'static Shape, object: &mut Map, before: Option<&Map>) -> Result<Hidden, String> {
    match convert::convert(shape, object, before) {
        Ok(removed) => Ok(removed.hidden),
        Err(misfits) => Err(misfits.first()),
    }
}

/// Converts the numbers in the result of a strategic merge patch or an apply to the types of their fields
/// (`runtime.FromUnstructured`). The errors for values of the wrong type differ from the errors of the JSON decoder.
pub(crate) fn restore(shape: &'static Shape, object: &mut Object) -> Result<(), String> {
    unstructured::restore_struct(shape, &mut object.0)
}

/// Returns kind and apiVersion of a document; absent fields are empty. Fails with the message of Go's
/// `SimpleMetaFactory`.
fn kind_of(object: &Object) -> Result<(&str, &str), String> {
    let text = |name: &str| match object.get(name) {
        None | Some(Value::Null) => Ok(""),
        Some(Value::String(text)) => Ok(text.as_str()),
        Some(other) => {
            let what = type_name(other);
            Err(format!(
                "{UNREADABLE}json: cannot unmarshal {what} into Go struct field .{name} of type string"
            ))
        }
    };
    let (api_version, kind) = (text("apiVersion")?, text("kind")?);
    if api_version.matches('/').count() > 1 {
        return Err(format!("unexpected GroupVersion string: {api_version}"));
    }
    Ok((kind, api_version))
}

fn join(group: &str, version: &str) -> String {
    if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    }
}

/// Returns the name of the Go package with the internal types of a group, for conversion errors.
fn internal_package<'a>(group: &'a str, kind: &str) -> &'a str {
    match (group, kind) {
        ("" | "events.k8s.io", _) => "core",
        ("extensions", "Ingress" | "NetworkPolicy") => "networking",
        ("extensions" | "apps", "Scale") => "autoscaling",
        ("extensions", _) => "apps",
        _ => group.split('.').next().unwrap_or(group),
    }
}

#[cfg(test)]
mod tests;
