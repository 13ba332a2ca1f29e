//! `Object`: a JSON object with typed access to its metadata.

use std::iter::Peekable;
use std::ops::{Deref, DerefMut};

use crate::api::json::{Iter, Map, Value};

/// A Kubernetes object as JSON, with `kind`, `apiVersion` and `metadata` as ordinary fields, as in a request body.
///
/// The types of its fields are not guaranteed: a field of the wrong type is treated as absent.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Object(pub Map);

impl Deref for Object {
    type Target = Map;
    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for Object {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

/// A cursor that looks up fields of a map in ascending order, while the caller iterates over another sorted map.
#[derive(Debug)]
pub(crate) struct Beside<'a>(Peekable<Iter<'a>>);

impl<'a> Beside<'a> {
    pub(crate) fn new(map: &'a Map) -> Self {
        Self(map.iter().peekable())
    }

    /// Returns the value of a field. Names must be requested in strictly ascending order.
    pub(crate) fn get(&mut self, name: &str) -> Option<&'a Value> {
        while self.0.next_if(|(it, _)| it.as_str() < name).is_some() {}
        self.0.next_if(|(it, _)| *it == name).map(|(_, value)| value)
    }
}

impl Object {
    /// Returns a string field of `metadata`; empty if it is absent.
    pub(crate) fn meta_str(&self, field: &str) -> &str {
        self.metadata()
            .and_then(|meta| meta.get(field))
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    /// Returns `metadata`, if it is an object.
    pub(crate) fn metadata(&self) -> Option<&Map> {
        self.0.get("metadata").and_then(Value::as_object)
    }

    /// Returns `metadata`, after replacing it with an empty object if it is not an object.
    pub(crate) fn metadata_mut(&mut self) -> &mut Map {
        if self.metadata().is_none() {
            self.0.insert("metadata".into(), Value::Object(Map::new()));
        }
        let metadata = self.0.get_mut("metadata").and_then(Value::as_object_mut);
        metadata.expect("the value is an object")
    }

    /// Returns `metadata.name`; empty if it is absent.
    pub(crate) fn name(&self) -> &str {
        self.meta_str("name")
    }

    /// Returns `metadata.namespace`; empty if it is absent.
    pub(crate) fn namespace(&self) -> &str {
        self.meta_str("namespace")
    }

    /// Returns `metadata.uid`; empty if it is absent.
    pub(crate) fn uid(&self) -> &str {
        self.meta_str("uid")
    }

    /// Returns `kind`; empty if it is absent.
    pub(crate) fn kind(&self) -> &str {
        self.0.get("kind").and_then(Value::as_str).unwrap_or_default()
    }

    /// Returns `apiVersion`; empty if it is absent.
    pub(crate) fn api_version(&self) -> &str {
        self.0.get("apiVersion").and_then(Value::as_str).unwrap_or_default()
    }

    /// Returns `true` if `metadata.deletionTimestamp` is set.
    pub(crate) fn is_terminating(&self) -> bool {
        self.metadata()
            .is_some_and(|meta| meta.get("deletionTimestamp").is_some_and(|it| !it.is_null()))
    }

    /// Returns `metadata.finalizers`.
    pub(crate) fn finalizers(&self) -> impl Iterator<Item = &str> {
        let list = self
            .metadata()
            .and_then(|meta| meta.get("finalizers"))
            .and_then(Value::as_array);
        list.into_iter().flatten().filter_map(Value::as_str)
    }

    /// Returns the entries of `metadata.labels`.
    pub(crate) fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        let map = self
            .metadata()
            .and_then(|meta| meta.get("labels"))
            .and_then(Value::as_object);
        map.into_iter()
            .flatten()
            .filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)))
    }
}
