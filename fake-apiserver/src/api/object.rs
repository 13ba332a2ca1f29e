//! `Object`: a JSON object with typed access to its metadata.

use std::ops::{Deref, DerefMut};

use serde_json::{Map, Value};

/// A Kubernetes object as JSON. `kind`, `apiVersion` and `metadata` lie beside the rest, as in a request body.
///
/// Nothing about the types of its fields is promised: a field of the wrong type reads as absent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Object(pub Map<String, Value>);

impl Deref for Object {
    type Target = Map<String, Value>;
    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for Object {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl Object {
    /// A string field of `metadata`, empty if absent.
    pub fn meta_str(&self, field: &str) -> &str {
        self.metadata()
            .and_then(|meta| meta.get(field))
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    /// `metadata`, if it is an object.
    pub fn metadata(&self) -> Option<&Map<String, Value>> {
        self.0.get("metadata").and_then(Value::as_object)
    }

    /// `metadata`, made an empty object where it is none.
    pub fn metadata_mut(&mut self) -> &mut Map<String, Value> {
        let meta = self.0.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
        if !meta.is_object() {
            *meta = Value::Object(Map::new());
        }
        meta.as_object_mut().expect("made an object on the line above")
    }

    /// `metadata.name`
    pub fn name(&self) -> &str {
        self.meta_str("name")
    }

    /// `metadata.namespace`
    pub fn namespace(&self) -> &str {
        self.meta_str("namespace")
    }

    /// `metadata.uid`
    pub fn uid(&self) -> &str {
        self.meta_str("uid")
    }

    /// `kind`
    pub fn kind(&self) -> &str {
        self.0.get("kind").and_then(Value::as_str).unwrap_or_default()
    }

    /// `apiVersion`
    pub fn api_version(&self) -> &str {
        self.0.get("apiVersion").and_then(Value::as_str).unwrap_or_default()
    }

    /// Whether `metadata.deletionTimestamp` is set.
    pub fn is_terminating(&self) -> bool {
        self.metadata()
            .is_some_and(|meta| meta.get("deletionTimestamp").is_some_and(|it| !it.is_null()))
    }

    /// `metadata.finalizers`
    pub fn finalizers(&self) -> impl Iterator<Item = &str> {
        let list = self
            .metadata()
            .and_then(|meta| meta.get("finalizers"))
            .and_then(Value::as_array);
        list.into_iter().flatten().filter_map(Value::as_str)
    }

    /// `metadata.labels`
    pub fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        let map = self
            .metadata()
            .and_then(|meta| meta.get("labels"))
            .and_then(Value::as_object);
        map.into_iter()
            .flatten()
            .filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)))
    }
}
