//! Decodes a request's body into a custom resource: checks its apiVersion and kind, decodes its metadata, and removes
//! fields that the schema does not declare. Undeclared fields of stored objects are also removed, because the schema
//! may have changed.
//!
//! The order for POST and PUT is: [`check_named`], [`coerce`] (unknown fields are warnings, or a 400 under Strict),
//! [`check_version`], [`check_kind`] and `Strategy::default`. For the result of a patch, [`check_version`] and
//! [`check_kind`] precede [`coerce`].

use super::definition::{CustomResource, CustomVersion};
use super::schema::Structural;
use super::{default, embedded, metadata, number, prune};
use crate::api::field::{FieldErrors, FieldPath};
use crate::api::json::type_name;
use crate::api::json::{Map, Value};
use crate::api::object::Object;
use crate::api::options::FieldValidation;
use crate::api::resource::GroupKind;
use crate::api::status::Status;
use crate::registry::types::edit::round_large_numbers;

/// Maximum number of bytes of a body that an error quotes.
const QUOTED_BODY_MAX: usize = 30;

/// Checks that the body contains a kind, and that `kind` and `apiVersion` are strings; `raw` is the unparsed body (rule
/// A15). Without field validation, Go decodes the body as the kind of the path and returns a different error for a
/// missing kind.
pub(crate) fn check_named(
    object: &Object,
    raw: &[u8],
    version: &CustomVersion,
    validation: FieldValidation,
) -> Result<(), Status> {
    let problem = ["kind", "apiVersion"].iter().find_map(|key| match object.get(key) {
        None | Some(Value::Null | Value::String(_)) => None,
        Some(other) => Some(format!(
            "couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go struct field .{key} of \
             type string",
            type_name(other)
        )),
    });
    if problem.is_none() && !object.kind().is_empty() {
        return Ok(());
    }
    let raw = &*String::from_utf8_lossy(raw);
    let is_typed = problem.is_none();
    let why = problem.unwrap_or_else(|| format!("Object 'Kind' is missing in '{raw}'"));
    if is_typed && validation == FieldValidation::Ignore {
        let mut named = Object::default();
        named.insert("kind".into(), version.row.kind.as_ref().into());
        let api_version = match object.api_version() {
            "" => version.row.api_version(),
            given => given.to_owned(),
        };
        named.insert("apiVersion".into(), api_version.into());
        return Err(cannot_be_handled(&named, version, &why));
    }
    let end = (0..=QUOTED_BODY_MAX.min(raw.len()))
        .rev()
        .find(|&end| raw.is_char_boundary(end));
    let start = &raw[..end.unwrap_or(0)];
    let dots = if start.len() < raw.len() { " ..." } else { "" };
    let kind = &version.row.kind;
    Err(Status::bad_request(format!(
        "the object provided is unrecognized (must be of type {kind}): {why} ({start}{dots})"
    )))
}

/// Decodes the metadata, and removes unknown fields and forbidden nulls. Returns the paths of the unknown fields in the
/// order in which errors list them. An object of a different kind keeps its fields. Fails with Go's message; see
/// [`cannot_be_handled`].
pub(crate) fn coerce(
    object: &mut Object,
    resource: &CustomResource,
    version: &CustomVersion,
) -> Result<Vec<String>, String> {
    coerce_with(object, resource, version, default::drop_nulls)
}

/// Same as [`coerce`], for the result of an apply: nulls are kept.
pub(crate) fn coerce_merged(
    object: &mut Object,
    resource: &CustomResource,
    version: &CustomVersion,
) -> Result<Vec<String>, String> {
    coerce_with(object, resource, version, |_, _| {})
}

fn coerce_with(
    object: &mut Object,
    resource: &CustomResource,
    version: &CustomVersion,
    treat_nulls: fn(&mut Map, &Structural),
) -> Result<Vec<String>, String> {
    let mut unknown = Vec::new();
    if let Some(metadata) = object.get_mut("metadata") {
        // Go encodes the metadata and then decodes it as `ObjectMeta`, so that `1.0` becomes an integer.
        number::normalize(metadata);
        metadata::decode(metadata, "metadata", &mut unknown)?;
    }
    for value in object.values_mut() {
        round_large_numbers(value);
        number::normalize(value);
    }
    let (group, name) = object
        .api_version()
        .split_once('/')
        .unwrap_or(("", object.api_version()));
    if group != version.row.group || object.kind() != version.row.kind {
        return Ok(unknown);
    }
    let schema = match name == version.row.version {
        true => Some(&*version.schema),
        false => resource.version(name).map(|it| &*it.schema),
    };
    unknown.extend(prune::prune(object, schema));
    if let Some(schema) = schema {
        treat_nulls(object, schema);
        embedded::decode(object, schema, &mut unknown)?;
    }
    Ok(unknown)
}

/// Returns the error 400 for a body that cannot be decoded. `error` is the error of [`coerce`], or `strict decoding
/// error: …`.
pub(crate) fn cannot_be_handled(object: &Object, version: &CustomVersion, error: &str) -> Status {
    let (kind, body_version) = (object.kind(), object.api_version());
    let body_version = body_version.rsplit('/').next().unwrap_or_default();
    let wanted = &version.row.kind;
    Status::bad_request(format!(
        "{kind} in version \"{body_version}\" cannot be handled as a {wanted}: {error}"
    ))
}

/// Checks `apiVersion` against the URL.
pub(crate) fn check_version(object: &Object, version: &CustomVersion) -> Result<(), Status> {
    let (given, expected) = (object.api_version(), version.row.api_version());
    if given == expected {
        return Ok(());
    }
    Err(Status::bad_request(format!(
        "the API version in the data ({given}) does not match the expected API version ({expected})"
    )))
}

/// Checks `kind`. An object of a different kind is reported as invalid under its own kind, without further validation.
pub(crate) fn check_kind(object: &Object, version: &CustomVersion) -> Result<(), Status> {
    let wanted = &version.row.kind;
    if object.kind() == wanted {
        return Ok(());
    }
    let mut errors = FieldErrors::new();
    errors.invalid(FieldPath::new("kind"), object.kind(), format!("must be {wanted}"));
    let kind = GroupKind {
        group: version.row.group.clone(),
        kind: object.kind().to_owned().into(),
    };
    Err(Status::invalid(&kind, object.name(), &errors))
}

/// Converts a validated object to the storage version: rewrites `apiVersion`, drops fields that are unknown to that
/// version, and fills in its defaults as on a read (rules O6, O10). The response to a write contains the stored object,
/// converted by [`restore`].
///
/// Go stores the object without these defaults. Returns `true` if the next write through `version` would add them,
/// which is the case if `version` has the defaulted fields.
pub(crate) fn to_stored(object: &mut Object, resource: &CustomResource, version: &CustomVersion) -> bool {
    if resource.storage.row.version == version.row.version {
        return false;
    }
    convert_between(object, resource, &resource.storage);
    let before = object.clone();
    default::fill(object, &resource.storage.schema);
    if *object == before || resource.conversion.is_some() {
        return false;
    }
    let mut next = object.clone();
    convert(&mut next, version);
    convert(&mut next, &resource.storage);
    next != before
}

/// Converts a stored object to `version`. Pruning and defaults of the storage version are applied first, because its
/// schema may have changed (rules O5, O6). Fields unknown to the requested version are pruned, but its defaults are not
/// filled in.
pub(crate) fn restore(object: &mut Object, resource: &CustomResource, version: &CustomVersion) {
    let stored = &resource.storage;
    freshen(object, stored);
    if stored.row.version != version.row.version {
        convert_between(object, resource, version);
    }
}

/// Applies the current schema of the storage version to an object read from storage.
pub(crate) fn freshen(object: &mut Object, stored: &CustomVersion) {
    convert(object, stored);
    default::fill(object, &stored.schema);
}

/// Converts an object to another version. Uses the cached result of the webhook if there is one; otherwise replaces the
/// apiVersion. Then removes fields that the version's schema does not allow.
pub(crate) fn convert_between(object: &mut Object, resource: &CustomResource, version: &CustomVersion) {
    convert_whole(object, resource, version);
    convert(object, version);
}

/// Same as `convert_between`, but keeps fields that the version's schema does not allow.
pub(crate) fn convert_whole(object: &mut Object, resource: &CustomResource, version: &CustomVersion) {
    let said = resource
        .conversion
        .as_ref()
        .and_then(|it| it.answer(object, &version.row.api_version()));
    if let Some(said) = said {
        *object = said;
    }
    let api_version = version.row.api_version();
    if object.api_version() != api_version {
        object.insert("apiVersion".into(), api_version.into());
    }
}

/// Converts an object without a webhook (strategy `None`): replaces `apiVersion`, and removes fields that the version's
/// schema does not allow.
pub(crate) fn convert(object: &mut Object, version: &CustomVersion) {
    let api_version = version.row.api_version();
    if object.api_version() != api_version {
        object.insert("apiVersion".into(), api_version.into());
    }
    prune::prune(object, Some(&*version.schema));
    default::drop_nulls(object, &version.schema);
}

#[cfg(test)]
mod tests {
    use crate::api::json::json;

    use super::super::tests::{object, resource, resource_of};
    use super::*;

    fn decode(spec: Value, mut body: Object) -> Result<(Object, Vec<String>), String> {
        let resource = resource(json!({"type": "object", "properties": {"spec": spec}}), json!({}));
        let version = resource.version("v1").expect("v1 is served");
        let unknown = coerce(&mut body, &resource, version)?;
        Ok((body, unknown))
    }

    #[test]
    fn l4_unknown_fields_are_removed_and_reported() {
        let item = json!({"type": "object", "properties": {"a": {"type": "string"}}});
        let spec = json!({"type": "object", "properties": {
            "size": {"type": "integer"}, "nested": item, "list": {"type": "array", "items": item},
            "m": {"type": "object", "additionalProperties": true},
            "any": {"x-kubernetes-preserve-unknown-fields": true},
        }});
        let body = object(json!({
            "size": 1.0, "zz": 2, "nested": {"a": "x", "b": "y"}, "list": [{"a": "x", "b": "y"}],
            "m": {"x": 1, "y": {"z": [1]}}, "any": {"k": [null, {"l": 1}]},
        }));
        let (decoded, unknown) = decode(spec, body).expect("the body can be decoded");
        assert_eq!(unknown, ["spec.list[0].b", "spec.m.y.z", "spec.nested.b", "spec.zz"]);
        let expected = json!({
            "size": 1, "nested": {"a": "x"}, "list": [{"a": "x"}], "m": {"x": 1, "y": {}},
            "any": {"k": [null, {"l": 1}]},
        });
        assert_eq!(decoded["spec"], expected);
        assert_eq!(decoded["spec"]["size"].to_string(), "1");
    }

    #[test]
    fn whole_floats_in_metadata_become_integers() {
        let mut body = object(json!({}));
        body.metadata_mut().insert("generation".into(), json!(2.0));
        let (decoded, _) = decode(json!({"type": "object"}), body).expect("the body can be decoded");
        assert_eq!(decoded["metadata"]["generation"], json!(2));
    }

    #[test]
    fn o6_nulls_of_non_nullable_fields_are_dropped() {
        let spec = json!({"type": "object", "properties": {
            "c": {"type": "string"}, "n": {"type": "string", "nullable": true},
            "l": {"type": "array", "items": {"type": "string"}},
            "m": {"type": "object", "additionalProperties": {"type": "string"}},
        }});
        let body = object(json!({"c": null, "n": null, "l": [null], "m": {"k": null}}));
        let (decoded, unknown) = decode(spec, body).expect("the body can be decoded");
        assert_eq!(unknown, Vec::<String>::new());
        assert_eq!(decoded["spec"], json!({"n": null, "l": [null], "m": {}}));
    }

    #[test]
    fn o20_embedded_resources_keep_their_metadata() {
        let template = json!({"type": "object", "x-kubernetes-embedded-resource": true, "properties": {
            "spec": {"type": "object", "properties": {"x": {"type": "integer"}}}}});
        let spec = json!({"type": "object", "properties": {"template": template}});
        let body = object(json!({"template": {
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "junk": 1}, "spec": {"x": 1, "y": 2}, "zz": 1,
        }}));
        let (decoded, unknown) = decode(spec, body).expect("the body can be decoded");
        assert_eq!(
            unknown,
            [
                "spec.template.spec.y",
                "spec.template.zz",
                "spec.template.metadata.junk"
            ]
        );
        let expected = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": {"x": 1}});
        assert_eq!(decoded["spec"]["template"], expected);
    }

    #[test]
    fn a15_kind_and_version_of_a_custom_resource_are_checked() {
        let resource = resource(json!({"type": "object"}), json!({}));
        let version = resource.version("v1").expect("v1 is served");
        let mut nameless = object(json!({}));
        nameless.remove("kind");
        let raw = "{\"apiVersion\": \"example.com/v1\", \"spec\": {}}";
        let error =
            check_named(&nameless, raw.as_bytes(), version, FieldValidation::Warn).expect_err("the body has no kind");
        let start = "{\"apiVersion\": \"example.com/v1\"";
        assert_eq!(
            error.message,
            format!(
                "the object provided is unrecognized (must be of type Widget): Object 'Kind' is missing in '{raw}' \
                 ({} ...)",
                &start[..30]
            )
        );
        let mut other = object(json!({}));
        other.insert("kind".into(), "Gadget".into());
        let error = check_kind(&other, version).expect_err("the body has another kind");
        let text = "Gadget.example.com \"a\" is invalid: kind: Invalid value: \"Gadget\": must be Widget";
        assert_eq!((error.code, error.message.as_str()), (422, text));
        other.insert("apiVersion".into(), "example.com/v2".into());
        let error = check_version(&other, version).expect_err("the body has another version");
        assert_eq!(
            error.message,
            "the API version in the data (example.com/v2) does not match the expected API version (example.com/v1)"
        );
    }

    #[test]
    fn o10_conversion_between_versions_prunes_undeclared_fields_and_adds_no_defaults() {
        let schema = |spec: Value| json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}});
        let version = |name: &str, storage: bool, properties: Value| {
            let schema = schema(json!({"type": "object", "properties": properties}));
            json!({"name": name, "served": true, "storage": storage, "schema": schema})
        };
        let old = json!({"size": {"type": "integer"}, "old": {"type": "string"}});
        let new = json!({"size": {"type": "integer"}, "extra": {"type": "string", "default": "d"}});
        let resource = resource_of(json!([version("v1", true, old), version("v2", false, new)]));
        let v2 = resource.version("v2").expect("v2 is served");
        let mut stored = object(json!({"size": 1, "old": "x", "gone": 1}));
        restore(&mut stored, &resource, v2);
        assert_eq!(stored["apiVersion"], "example.com/v2");
        assert_eq!(stored["spec"], json!({"size": 1}));
        let mut written = object(json!({"size": 7, "extra": "d"}));
        to_stored(&mut written, &resource, v2);
        assert_eq!(written["apiVersion"], "example.com/v1");
        assert_eq!(written["spec"], json!({"size": 7}));
    }
}
