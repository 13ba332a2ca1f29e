//! Objects and lists reduced to their metadata (rule M3).

use serde_json::{Map, Value, json};

use super::negotiation::MetaVersion;
use crate::api::object::Object;

/// An object as PartialObjectMetadata.
pub(crate) fn object(object: &Object, version: MetaVersion) -> Value {
    let mut metadata = object.metadata().cloned().unwrap_or_default();
    if object.kind() == "DaemonSet" {
        drop_template_generation(&mut metadata);
    }
    json!({"kind": "PartialObjectMetadata", "apiVersion": version.api_version(), "metadata": metadata})
}

/// Metadata is taken from the internal form of an object, where the count of a DaemonSet's templates is a field yet.
fn drop_template_generation(metadata: &mut Map<String, Value>) {
    let Some(Value::Object(annotations)) = metadata.get_mut("annotations") else {
        return;
    };
    annotations.remove("deprecated.daemonset.template.generation");
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
}

/// A list as PartialObjectMetadataList; `metadata` is the list's. Items of an empty list are null.
pub(crate) fn list<'o>(
    metadata: Option<&Map<String, Value>>,
    items: impl IntoIterator<Item = &'o Object>,
    version: MetaVersion,
) -> Value {
    let items: Vec<Value> = items.into_iter().map(|it| self::object(it, version)).collect();
    json!({
        "kind": "PartialObjectMetadataList",
        "apiVersion": version.api_version(),
        "metadata": list_metadata(metadata),
        "items": if items.is_empty() { Value::Null } else { Value::Array(items) },
    })
}

/// The metadata of a list as a typed one has it: without the empty `continue` that lists of custom resources carry.
pub(super) fn list_metadata(metadata: Option<&Map<String, Value>>) -> Value {
    let known = ["resourceVersion", "continue", "remainingItemCount"];
    let fields = metadata.into_iter().flatten();
    let kept = fields.filter(|(name, value)| known.contains(&name.as_str()) && !value.is_null() && *value != "");
    Value::Object(kept.map(|(name, value)| (name.clone(), value.clone())).collect())
}
