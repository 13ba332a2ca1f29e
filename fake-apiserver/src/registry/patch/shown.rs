//! Formats a patched document for errors: maps that the patch changed have sorted keys; all other objects have their
//! fields in the order of the protobuf numbers, which usually is the order of Go's structs.

use serde::ser::{Serialize, Serializer};

use crate::api::json::{Map, SmolStr, Value};
use crate::registry::types::schema::builtin::{Shape, StructType};

/// Formats the document `text`, which is the result of `patch`: a merge patch or a JSON patch.
pub(crate) fn shown_document(shape: Option<&'static Shape>, text: &str, patch: &[u8]) -> String {
    let Some(structure) = shape.and_then(Shape::structure) else {
        return text.to_owned();
    };
    let (Ok(Value::Object(document)), Ok(patch)) = (serde_json::from_str(text), serde_json::from_slice(patch)) else {
        return text.to_owned();
    };
    serde_json::to_string(&Root {
        structure,
        document: &document,
        patch: &patch,
    })
    .unwrap_or_default()
}

/// Returns `true` if a patch changes something within a field of the document.
fn goes_through(patch: &Value, field: &str) -> bool {
    let enters = |path: &str| {
        path.strip_prefix('/')
            .and_then(|it| it.split_once('/'))
            .is_some_and(|it| it.0 == field)
    };
    match patch {
        Value::Object(patch) => patch.get(field).is_some_and(Value::is_object),
        Value::Array(operations) => operations.iter().any(|operation| {
            let paths = ["path", "from"].map(|name| operation.get(name).and_then(Value::as_str));
            paths.into_iter().flatten().any(enters)
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// The document. Its top-level keys are sorted.
struct Root<'a> {
    structure: &'static StructType,
    document: &'a Map,
    patch: &'a Value,
}

impl Serialize for Root<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.document.iter().map(|(name, value)| {
            let field = self.structure.field(name).filter(|_| !goes_through(self.patch, name));
            (
                name,
                Typed {
                    shape: field.map(|it| it.shape()),
                    value,
                },
            )
        }))
    }
}

/// A value in Go's format: the fields of a struct are in the order of their protobuf numbers.
struct Typed<'a> {
    /// Type of the value; `None` if its keys are sorted.
    shape: Option<&'static Shape>,
    value: &'a Value,
}

impl Serialize for Typed<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.value {
            Value::Object(map) => match self.shape.and_then(Shape::structure) {
                Some(structure) => serializer.collect_map(in_order(structure, map)),
                None => {
                    let shape = self.shape.and_then(Shape::values);
                    serializer.collect_map(map.iter().map(|(key, value)| (key, Typed { shape, value })))
                }
            },
            Value::Array(items) => {
                let shape = self.shape.and_then(Shape::items);
                serializer.collect_seq(items.iter().map(|value| Typed { shape, value }))
            }
            other => other.serialize(serializer),
        }
    }
}

fn in_order<'a>(structure: &'static StructType, map: &'a Map) -> Vec<(&'a SmolStr, Typed<'a>)> {
    let mut fields: Vec<(u8, &SmolStr, Typed<'_>)> = map
        .iter()
        .map(|(name, value)| {
            let field = structure.field(name);
            let number = field
                .and_then(|it| it.protobuf(0))
                .map_or(u8::MAX, |(number, _)| number);
            (
                number,
                name,
                Typed {
                    shape: field.map(|it| it.shape()),
                    value,
                },
            )
        })
        .collect();
    fields.sort_by_key(|(number, ..)| *number);
    fields.into_iter().map(|(_, name, typed)| (name, typed)).collect()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::registry::types::schema::builtin::shape_of;

    #[rstest]
    #[case::unpatched_metadata(r#"{"data":{"a":"b"}}"#, r#"{"name":"a","uid":"u","labels":{"l":"m"}}"#)]
    #[case::metadata_in_a_merge_patch(
        r#"{"metadata":{"labels":{"l":"m"}}}"#,
        r#"{"labels":{"l":"m"},"name":"a","uid":"u"}"#
    )]
    #[case::path_in_a_json_patch(
        r#"[{"op":"add","path":"/metadata/labels","value":{}}]"#,
        r#"{"labels":{"l":"m"},"name":"a","uid":"u"}"#
    )]
    fn metadata_keeps_the_field_order_of_structs_unless_it_is_merged(#[case] patch: &str, #[case] metadata: &str) {
        let shape = shape_of("", "v1", "ConfigMap");
        let text = r#"{"kind":"ConfigMap","metadata":{"labels":{"l":"m"},"name":"a","uid":"u"}}"#;
        let shown = shown_document(shape, text, patch.as_bytes());
        assert_eq!(shown, format!(r#"{{"kind":"ConfigMap","metadata":{metadata}}}"#));
    }
}
