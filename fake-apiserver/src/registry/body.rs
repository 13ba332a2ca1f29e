//! A request's body: from JSON to an object of the right kind, with its defaults (rules A15, L1 to L5).

use serde_json::Value;

use super::patch::Patched;
use super::scheme::Row;
use super::custom::decode as custom;
use super::custom::definition::CustomVersion;
use super::decode;
use crate::api::field::{FieldErrors, FieldPath};
use crate::api::object::Object;
use crate::api::options::FieldValidation;
use crate::api::resource::GroupKind;
use crate::api::status::Status;

/// A body that has been read.
#[derive(Clone, Debug)]
pub(crate) struct Decoded {
    /// The object, with kind and apiVersion, typed and defaulted.
    pub(crate) object: Object,
    /// What the client is told about it.
    pub(crate) warnings: Vec<String>,
}

/// The body of POST or PUT as an object of the row's kind. `raw` is its JSON text, for what a parsed value no longer
/// shows: repeated fields and the order of the others.
pub(crate) fn read(row: &Row, mut object: Object, raw: &[u8], validation: FieldValidation) -> Result<Decoded, Status> {
    let warnings = match row.custom_version() {
        Some(version) => read_custom(row, version, &mut object, raw, validation)?,
        None => {
            let info = &row.info;
            let wanted = decode::Wanted {
                group: &info.group,
                version: &info.version,
                kind: &info.kind,
                shape: row.shape(),
            };
            decode::decode(wanted, &mut object, raw, validation)?
        }
    };
    row.strategy().default(&mut object);
    Ok(Decoded { object, warnings })
}

/// The body of a custom resource.
fn read_custom(
    row: &Row,
    version: &CustomVersion,
    object: &mut Object,
    raw: &[u8],
    validation: FieldValidation,
) -> Result<Vec<String>, Status> {
    custom::check_named(object, &String::from_utf8_lossy(raw), version)?;
    let unknown =
        coerce(row, version, object).map_err(|why| custom::cannot_be_handled(object, version, &why))?;
    let quoted = |path: &String| format!("duplicate field {}", crate::api::field::quote(path));
    let mut warnings: Vec<String> = decode::duplicate_fields(raw).iter().map(quoted).collect();
    warnings.extend(unknown);
    if validation == FieldValidation::Strict && !warnings.is_empty() {
        let why = format!("strict decoding error: {}", warnings.join(", "));
        return Err(custom::cannot_be_handled(object, version, &why));
    }
    custom::check_version(object, version)?;
    custom::check_kind(object, version)?;
    Ok(if validation == FieldValidation::Ignore { Vec::new() } else { warnings })
}

/// Types and prunes a custom resource; answers its unknown fields as messages name them.
fn coerce(row: &Row, version: &CustomVersion, object: &mut Object) -> Result<Vec<String>, String> {
    let Some(resource) = row.custom_resource() else { return Ok(Vec::new()) };
    let unknown = custom::coerce(object, resource, version)?;
    Ok(unknown.into_iter().map(|path| format!("unknown field \"{path}\"")).collect())
}

/// The result of a patch as an object of the row's kind. What is wrong with it is a 422 that shows it (rules G8, L3).
pub(crate) fn read_patched(row: &Row, patched: Patched, validation: FieldValidation) -> Result<Decoded, Status> {
    let Patched {
        value,
        strict_errors,
        shown: patch,
    } = patched;
    let text = value.to_string();
    let shown = |why: &str| {
        let mut errors = FieldErrors::new();
        errors.invalid(FieldPath::new("patch"), patch.as_deref().unwrap_or(&text), why);
        Status::invalid(
            &GroupKind {
                group: "".into(),
                kind: "".into(),
            },
            "",
            &errors,
        )
    };
    let Value::Object(map) = value else {
        return Err(shown(
            "json: cannot unmarshal patch into Go value of type map[string]interface {}",
        ));
    };
    let mut object = Object(map);
    let mut unknown = match (row.custom_version(), row.shape()) {
        (Some(version), _) => {
            custom::check_version(&object, version)?;
            custom::check_kind(&object, version)?;
            coerce(row, version, &mut object).map_err(|why| shown(&why))?
        }
        (None, Some(shape)) => {
            decode::convert_strictly(shape, &mut object, text.as_bytes(), validation).map_err(|why| shown(&why))?
        }
        (None, None) => Vec::new(),
    };
    unknown.splice(0..0, strict_errors);
    if validation == FieldValidation::Strict && !unknown.is_empty() {
        return Err(shown(&format!("strict decoding error: {}", unknown.join(", "))));
    }
    let warnings = if validation == FieldValidation::Ignore {
        Vec::new()
    } else {
        unknown
    };
    row.name_kind(&mut object);
    row.strategy().default(&mut object);
    Ok(Decoded { object, warnings })
}
