//! The annotation of client-side apply: migration to server-side apply, and updates of the annotation (rule H14).

use super::compare::compare;
use super::set::FieldSet;
use super::typed::{field_set, validate};
use crate::api::json::{Map, SmolStr, Value};
use crate::api::object::Object;
use crate::registry::types::schema::SchemaRef;

/// The manager for which the annotation is honoured.
pub(super) const KUBECTL: &str = "kubectl";

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Maximum total size of all annotations, in bytes.
const MAX_ANNOTATION_BYTES: usize = 256 * 1024;

fn annotation(object: &Object) -> Option<&str> {
    let annotations = object.metadata()?.get("annotations")?;
    annotations.get(ANNOTATION)?.as_str().filter(|text| !text.is_empty())
}

/// Returns the fields that client-side apply set and that have not changed since. They do not cause conflicts for
/// kubectl.
pub(super) fn allowed_conflicts(schema: SchemaRef<'_>, live: &Object, api_version: &str) -> Option<FieldSet<'static>> {
    let applied: Map = serde_json::from_str(annotation(live)?).ok()?;
    let applied = Object(applied);
    if applied.api_version() != api_version || validate(schema, &applied.0).is_err() {
        return None;
    }
    let changes = compare(schema, &applied.0, &live.0, &[]);
    let set = field_set(schema, &applied.0)
        .difference(&changes.touched)
        .difference(&changes.removed);
    Some(set.into_owned())
}

/// Sets the annotation of `object` to the applied configuration, if the object has the annotation. Removes it if the
/// annotations become too large.
pub(super) fn sync(object: &mut Object, applied: &Object) {
    if annotation(object).is_none() {
        return;
    }
    let mut shown = applied.clone();
    if let Some(Value::Object(metadata)) = shown.0.get_mut("metadata") {
        match metadata.get_mut("annotations") {
            Some(Value::Object(annotations)) => {
                annotations.remove(ANNOTATION);
            }
            Some(_) => {
                metadata.remove("annotations");
            }
            None => {}
        }
    }
    let text = go_json(&shown);
    let metadata = object.metadata_mut();
    if let Some(Value::Object(annotations)) = metadata.get_mut("annotations") {
        annotations.insert(ANNOTATION.into(), text.into());
        let size = |(key, value): (&SmolStr, &Value)| key.len() + value.as_str().map_or(0, str::len);
        if annotations.iter().map(size).sum::<usize>() > MAX_ANNOTATION_BYTES {
            annotations.remove(ANNOTATION);
        }
    }
}

/// Formats an object like Go's JSON encoder, which escapes characters that are special in HTML, and adds a line feed.
fn go_json(object: &Object) -> String {
    let json = Value::Object(object.0.clone()).to_string();
    let mut out = String::with_capacity(json.len() + 1);
    for c in json.chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('\n');
    out
}
