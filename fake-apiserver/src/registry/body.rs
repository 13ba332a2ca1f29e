//! A request's body: from JSON to an object of the right kind, with its defaults (rules A15, L1 to L5).

use serde_json::Value;

use super::patch::Patched;
use super::scheme::Row;
use super::{custom, decode};
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
        Some(version) => custom::decode(version, &mut object, raw, validation)?,
        None => {
            let info = &row.info;
            let wanted = decode::Wanted {
                group: &info.group,
                version: &info.version,
                kind: &info.kind,
            };
            decode::decode(wanted, &mut object, raw, validation)?
        }
    };
    row.strategy().default(&mut object);
    Ok(Decoded { object, warnings })
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
        (Some(version), _) => custom::decode(version, &mut object, text.as_bytes(), FieldValidation::Warn)?,
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
