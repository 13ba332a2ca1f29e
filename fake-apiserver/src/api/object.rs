//! `Object`: a JSON object with typed access to its metadata.

use std::borrow::Cow;
use std::iter::Peekable;
use std::ops::{Deref, DerefMut};
use std::sync::LazyLock;

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

/// The fields of a map in the order of their names; see [`Object::sort`].
pub(crate) fn in_order(map: &Map<String, Value>) -> InOrder<'_> {
    if !keeps_order() {
        return InOrder::AsTheyAre(map.iter());
    }
    let mut fields: Vec<(&String, &Value)> = map.iter().collect();
    fields.sort_unstable_by_key(|(name, _)| *name);
    InOrder::Sorted(fields.into_iter())
}

/// The fields of a map, from [`in_order`].
#[derive(Debug)]
pub(crate) enum InOrder<'a> {
    AsTheyAre(serde_json::map::Iter<'a>),
    Sorted(std::vec::IntoIter<(&'a String, &'a Value)>),
}

impl<'a> Iterator for InOrder<'a> {
    type Item = (&'a String, &'a Value);

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::AsTheyAre(fields) => fields.next(),
            Self::Sorted(fields) => fields.next(),
        }
    }
}

/// The fields of a map beside a walk through another one, as whose fields they are asked for in order.
#[derive(Debug)]
pub(crate) struct Beside<'a>(Peekable<InOrder<'a>>);

impl<'a> Beside<'a> {
    pub(crate) fn new(map: &'a Map<String, Value>) -> Self {
        Self(in_order(map).peekable())
    }

    /// The value of a field. Names are asked for in their order.
    pub(crate) fn get(&mut self, name: &str) -> Option<&'a Value> {
        while self.0.next_if(|(it, _)| it.as_str() < name).is_some() {}
        self.0.next_if(|(it, _)| *it == name).map(|(_, value)| value)
    }
}

/// Set if maps keep their insertion order: some crate of the build has turned on serde_json's feature `preserve_order`,
/// for all.
static KEEPS_ORDER: LazyLock<bool> = LazyLock::new(|| {
    let map: Map<String, Value> = [("b", Value::Null), ("a", Value::Null)].into_iter().map(own).collect();
    map.keys().next().is_some_and(|first| first == "b")
});

/// Returns `true` if the fields of a map may be in any order; see [`Object::sort`].
pub(crate) fn keeps_order() -> bool {
    *KEEPS_ORDER
}

fn own((key, value): (&str, Value)) -> (String, Value) {
    (key.to_owned(), value)
}

impl Object {
    /// Sorts the fields of all maps by name. Code that walks through two objects side by side relies on this order. The
    /// fields are sorted already unless some crate of the build turns on serde_json's `preserve_order`.
    pub(crate) fn sort(&mut self) {
        self.0.sort_keys();
        self.0.values_mut().for_each(Value::sort_all_objects);
    }

    /// The same of one that is not to be changed.
    pub(crate) fn sorted(&self) -> Cow<'_, Self> {
        if !*KEEPS_ORDER {
            return Cow::Borrowed(self);
        }
        let mut object = self.clone();
        object.sort();
        Cow::Owned(object)
    }

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

    /// Returns `true` if `metadata.deletionTimestamp` is set.
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
