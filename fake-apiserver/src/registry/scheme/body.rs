//! Decodes the JSON body of a request as an object of the row's kind, with defaults (rules A15, L1 to L5).

use super::Row;
use crate::api::field::{FieldErrors, FieldPath};
use crate::api::json::{Map, Value};
use crate::api::object::Object;
use crate::api::options::FieldValidation;
use crate::api::resource::GroupKind;
use crate::api::status::Status;
use crate::registry::custom::decode as custom;
use crate::registry::custom::definition::CustomVersion;
use crate::registry::patch::{self, Patched};
use crate::registry::types::decode::{self, Claim, Text};
use crate::registry::types::hidden::Hidden;
use crate::registry::types::schema::builtin::Shape;

/// Lists and maps of metadata that are null if an apply configuration sets them to null.
const NILLABLE_METADATA: [&str; 4] = ["annotations", "finalizers", "labels", "ownerReferences"];

/// The body of a request, decoded as an object.
#[derive(Clone, Debug)]
pub(crate) struct Decoded {
    /// The decoded object, with kind, apiVersion and defaults.
    pub(crate) object: Object,
    /// Warnings for the client.
    pub(crate) warnings: Vec<String>,
    /// Facts about the body that are lost in the decoded object.
    pub(crate) hidden: Hidden,
}

impl Decoded {
    /// Wraps an object created by the server.
    pub(crate) fn made(object: Object) -> Self {
        Self {
            object,
            warnings: Vec::new(),
            hidden: Hidden::default(),
        }
    }
}

/// Decodes the body of a POST or PUT as an object of the row's kind. `text` is the unparsed JSON, which contains
/// duplicate fields and the order of fields. `before` is the stored object to be replaced, if available.
pub(crate) fn read(
    row: &Row,
    mut object: Object,
    text: Text<'_>,
    before: Option<&Object>,
    validation: FieldValidation,
) -> Result<Decoded, Status> {
    let (warnings, mut hidden) = match row.custom_version() {
        Some(version) => {
            let warnings = read_custom(row, version, &mut object, text, validation)?;
            (warnings, Hidden::default())
        }
        None => {
            let info = &row.info;
            let wanted = decode::Wanted {
                group: &info.group,
                version: &info.version,
                kind: &info.kind,
                shape: row.shape(),
            };
            let decoded = decode::decode(wanted, &mut object, text, before, validation)?;
            if let Some(why) = row.strategy().conversion_error(&object) {
                let (kind, version) = (&info.kind, &info.version);
                return Err(Status::bad_request(format!(
                    "{kind} in version \"{version}\" cannot be handled as a {kind}: {why}"
                )));
            }
            decoded
        }
    };
    hidden.shares_labels = row.strategy().shares_labels(&object);
    row.strategy().default(&mut object);
    Ok(Decoded {
        object,
        warnings,
        hidden,
    })
}

/// Decodes the body as a custom resource.
fn read_custom(
    row: &Row,
    version: &CustomVersion,
    object: &mut Object,
    text: Text<'_>,
    validation: FieldValidation,
) -> Result<Vec<String>, Status> {
    custom::check_named(object, text.raw, version, validation)?;
    let unknown = coerce(row, version, object).map_err(|why| custom::cannot_be_handled(object, version, &why))?;
    let quoted = |path: &String| format!("duplicate field {}", crate::api::field::quote(path));
    let mut warnings: Vec<String> = decode::duplicate_fields(text).iter().map(quoted).collect();
    warnings.extend(unknown);
    if validation == FieldValidation::Strict && !warnings.is_empty() {
        let why = format!("strict decoding error: {}", warnings.join(", "));
        return Err(custom::cannot_be_handled(object, version, &why));
    }
    if validation == FieldValidation::Ignore {
        warnings.clear();
    }
    match custom::check_version(object, version).and_then(|()| custom::check_kind(object, version)) {
        Ok(()) => Ok(warnings),
        Err(status) => Err(status.warned(warnings)),
    }
}

/// Applies the schema to a custom resource; returns messages about unknown fields.
fn coerce(row: &Row, version: &CustomVersion, object: &mut Object) -> Result<Vec<String>, String> {
    let Some(resource) = row.custom_resource() else {
        return Ok(Vec::new());
    };
    let unknown = custom::coerce(object, resource, version)?;
    Ok(unknown
        .into_iter()
        .map(|path| format!("unknown field {}", crate::api::field::quote(&path)))
        .collect())
}

/// Function that applies a patch. It is called again if the result is refused, to print the result in the error.
pub(crate) type MakePatched<'a> = dyn Fn() -> Result<Patched, Status> + 'a;

/// Decodes the result of a patch as an object of the row's kind. Most errors have the code 422 and contain the result
/// (rules G8, L3). `make` creates the result, and is called again to print it; `patch` is the body, which determines
/// the order of fields in the error; `before` is the object before the patch.
pub(crate) fn read_patched(
    row: &Row,
    before: Option<&Object>,
    make: &MakePatched<'_>,
    patch: &[u8],
    validation: FieldValidation,
) -> Result<Decoded, Status> {
    let mut hidden = Hidden::default();
    let mut decoded = read_result(row.shape(), make, patch, validation, |object, text, is_text| {
        match (row.custom_version(), row.shape()) {
            (Some(version), _) => {
                if object.kind().is_empty() && is_text {
                    return Err(Refusal::Shown(format!("Object 'Kind' is missing in '{}'", text())));
                }
                custom::check_version(object, version).map_err(Refusal::Whole)?;
                custom::check_kind(object, version).map_err(Refusal::Whole)?;
                coerce(row, version, object).map_err(Refusal::Shown)
            }
            (None, Some(shape)) => {
                let warnings = match is_text {
                    true => read_claimed(row, shape, before, object, text, validation)?,
                    false => convert_tree(shape, before, object, make, text, validation)?,
                };
                let (warnings, left_out) = warnings;
                hidden = left_out;
                match row.strategy().conversion_error(object) {
                    Some(why) if is_text => Err(Refusal::Shown(why)),
                    // The result of a strategic merge patch is converted without a decoder, so the error becomes a 500
                    // (`smpPatcher.applyPatchToCurrentObject`).
                    Some(why) => Err(Refusal::Whole(Status::new(500, "", why))),
                    None => Ok(warnings),
                }
            }
            (None, None) => Ok(Vec::new()),
        }
    })?;
    decoded.hidden = hidden;
    row.name_kind(&mut decoded.object);
    row.strategy().default(&mut decoded.object);
    Ok(decoded)
}

/// Decodes the result of applying `configuration` to `before`. Fails with kube-apiserver's message if the result cannot
/// be converted.
pub(crate) fn read_applied(
    row: &Row,
    before: Option<&Object>,
    mut object: Object,
    configuration: &Object,
) -> Result<Decoded, Status> {
    let mut hidden = Hidden::default();
    if let Some(shape) = row.shape() {
        let before = before.map(|it| &it.0);
        // Managed fields are not converted: the server created them, so they are valid, and there may be many of them.
        let owners = object.metadata_mut().remove("managedFields");
        let converted = decode::convert_changed(shape, &mut object, before).or_else(|_| {
            decode::restore(shape, &mut object)?;
            decode::convert_changed(shape, &mut object, None)
        });
        hidden = converted.map_err(|why| {
            let slash = if row.info.group.is_empty() { "/" } else { "" };
            let kind = format!("{slash}{}, Kind={}", row.api_version, row.info.kind);
            let (namespace, name) = (configuration.namespace(), configuration.name());
            Status::new(
                500,
                "",
                format!(
                    "failed to convert new object ({namespace}/{name}; {kind}) to proper version: unable to convert \
                     unstructured object to {kind}: {why}"
                ),
            )
        })?;
        let owners = owners.map(|it| ("managedFields", it));
        object.metadata_mut().extend(owners);
    }
    row.name_kind(&mut object);
    hidden.shares_labels = row.strategy().shares_labels(&object);
    row.strategy().default(&mut object);
    Ok(Decoded {
        object,
        warnings: Vec::new(),
        hidden,
    })
}

/// Returns the result of applying a configuration to a custom resource. It is not decoded, so that nulls are refused in
/// fields that do not permit them.
pub(crate) fn read_merged(row: &Row, make: &MakePatched<'_>) -> Result<Decoded, Status> {
    let mut has_null_metadata = false;
    let mut decoded = read_result(None, make, b"", FieldValidation::Ignore, |object, _, _| {
        let is_null = |field: &&str| {
            object
                .metadata()
                .and_then(|it| it.get(field))
                .is_some_and(Value::is_null)
        };
        has_null_metadata = NILLABLE_METADATA.iter().any(is_null);
        let (Some(version), Some(resource)) = (row.custom_version(), row.custom_resource()) else {
            return Ok(Vec::new());
        };
        custom::check_version(object, version).map_err(Refusal::Whole)?;
        custom::check_kind(object, version).map_err(Refusal::Whole)?;
        custom::coerce_merged(object, resource, version).map_err(Refusal::Shown)
    })?;
    decoded.hidden.has_null_metadata = has_null_metadata;
    row.name_kind(&mut decoded.object);
    row.strategy().default(&mut decoded.object);
    Ok(decoded)
}

/// Refuses a custom resource if admission has changed its kind or version.
pub(crate) fn check_admitted(row: &Row, object: &Object) -> Result<(), Status> {
    let Some(version) = row.custom_version() else {
        return Ok(());
    };
    let given = object.api_version();
    if given != version.row.api_version() {
        let why = format!("request to convert CR from an invalid group/version: {given}");
        return Err(Status::new(500, "", why));
    }
    custom::check_kind(object, version)
}

/// Decodes, prunes and defaults an object that admission has changed. Fails with the decoder's message.
pub(crate) fn read_admitted(row: &Row, object: &mut Object) -> Result<(), String> {
    match (row.custom_version(), row.shape()) {
        (Some(version), _) => {
            coerce(row, version, object)?;
        }
        (None, Some(shape)) => decode::convert(shape, object)?,
        (None, None) => {}
    }
    row.name_kind(object);
    row.strategy().default(object);
    Ok(())
}

/// Same as [`read_patched`], for the object of a subresource with a kind other than the row's.
pub(crate) fn read_patched_as(
    shape: &'static Shape,
    make: &MakePatched<'_>,
    patch: &[u8],
    validation: FieldValidation,
) -> Result<Decoded, Status> {
    read_result(Some(shape), make, patch, validation, |object, text, is_text| {
        let converted = match is_text {
            true => convert(shape, None, object, text, validation),
            false => convert_tree(shape, None, object, make, text, validation),
        };
        converted.map(|(warnings, _)| warnings)
    })
}

/// Decodes the result of a JSON patch or merge patch according to its own `apiVersion` and `kind`.
fn read_claimed(
    row: &Row,
    shape: &'static Shape,
    before: Option<&Object>,
    object: &mut Object,
    text: &dyn Fn() -> String,
    validation: FieldValidation,
) -> Result<(Vec<String>, Hidden), Refusal> {
    let info = &row.info;
    let wanted = decode::Wanted {
        group: &info.group,
        version: &info.version,
        kind: &info.kind,
        shape: Some(shape),
    };
    match Claim::of(wanted, object).map_err(Refusal::Shown)? {
        Claim::Wanted => convert(shape, before, object, text, validation),
        Claim::Version(other) => {
            let warnings = convert(other, None, object, text, validation)?;
            if let Ok((_, converted)) = row.in_version(object, &row.api_version) {
                *object = converted.into_owned();
            }
            Ok(warnings)
        }
        Claim::Internal => {
            // The fields of the internal type do not have JSON names.
            let named = object.keys().filter(|it| !matches!(it.as_str(), "kind" | "apiVersion"));
            let unknown = named
                .map(|it| format!("unknown field {}", crate::api::field::quote(it)))
                .collect();
            object.clear();
            Ok((unknown, Hidden::default()))
        }
        Claim::Other(other, why) => {
            if let Some(other) = other {
                convert(other, None, object, text, FieldValidation::Ignore)?;
            }
            Err(Refusal::Shown(why))
        }
    }
}

/// Reason why the result of a patch is refused.
enum Refusal {
    /// The complete response.
    Whole(Status),
    /// An error for a response that also contains the result.
    Shown(String),
}

fn convert(
    shape: &'static Shape,
    before: Option<&Object>,
    object: &mut Object,
    text: &dyn Fn() -> String,
    validation: FieldValidation,
) -> Result<(Vec<String>, Hidden), Refusal> {
    let before = before.map(|it| &it.0);
    let document = decode::Document::Made { text };
    decode::convert_strictly(shape, object, before, document, validation).map_err(Refusal::Shown)
}

/// Converts the result of a strategic merge patch, which kube-apiserver never encodes as JSON. A value that the JSON
/// decoder refuses may still be converted, or is refused with a different message.
fn convert_tree(
    shape: &'static Shape,
    before: Option<&Object>,
    object: &mut Object,
    make: &MakePatched<'_>,
    text: &dyn Fn() -> String,
    validation: FieldValidation,
) -> Result<(Vec<String>, Hidden), Refusal> {
    convert(shape, before, object, text, validation).or_else(|_| {
        if let Ok(Patched {
            value: Value::Object(map),
            ..
        }) = make()
        {
            *object = Object(map);
        }
        decode::restore(shape, object).map_err(Refusal::Shown)?;
        convert(shape, None, object, text, validation)
    })
}

/// Decodes the result of a patch with `read`, which returns the strict errors. Its last argument is `true` if
/// kube-apiserver encodes the result as JSON before it decodes it.
fn read_result(
    shape: Option<&'static Shape>,
    make: &MakePatched<'_>,
    patch: &[u8],
    validation: FieldValidation,
    read: impl FnOnce(&mut Object, &dyn Fn() -> String, bool) -> Result<Vec<String>, Refusal>,
) -> Result<Decoded, Status> {
    let Patched {
        value,
        strict_errors,
        shown,
    } = make()?;
    let text = || match make() {
        Ok(Patched { value, .. }) => value.to_string(),
        Err(_) => String::new(),
    };
    let refused = |why: &str| {
        let mut errors = FieldErrors::new();
        let shown = shown
            .clone()
            .unwrap_or_else(|| patch::shown_document(shape, &text(), patch));
        errors.invalid(FieldPath::new("patch"), shown, why);
        Status::invalid(
            &GroupKind {
                group: "".into(),
                kind: "".into(),
            },
            "",
            &errors,
        )
    };
    let map = match value {
        Value::Object(map) => map,
        Value::Null => Map::new(),
        other => return Err(refused(&decode::no_object(&other))),
    };
    let mut object = Object(map);
    let mut warnings = read(&mut object, &text, shown.is_none()).map_err(|refusal| match refusal {
        Refusal::Whole(status) => status,
        Refusal::Shown(why) => refused(&why),
    })?;
    warnings.splice(0..0, strict_errors);
    match validation {
        FieldValidation::Strict if !warnings.is_empty() => {
            Err(refused(&format!("strict decoding error: {}", warnings.join(", "))))
        }
        FieldValidation::Ignore => Ok(Decoded::made(object)),
        FieldValidation::Strict | FieldValidation::Warn => Ok(Decoded {
            warnings,
            ..Decoded::made(object)
        }),
    }
}
