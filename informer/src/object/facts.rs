//! Fields of a cached object that are parsed from its JSON text on demand: labels, annotations, owners.

use std::collections::BTreeMap;
use std::fmt;

use kube::core::{Expression, Selector};
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

use super::cached_object::{Cacheable, CachedObject};
use super::header::Text;

/// An owner reference of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OwnerRef<'a> {
    /// API version of the owner: `apps/v1`, or `v1`.
    pub api_version: &'a str,
    /// Kind of the owner, such as `ReplicaSet`.
    pub kind: &'a str,
    /// Name of the owner. If the owner is namespaced, it is in the same namespace as the object.
    pub name: &'a str,
    /// Uid of the owner.
    pub uid: &'a str,
    /// Set if the owner is the controller of the object.
    pub is_controller: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct EncodedOwner<'a> {
    #[serde(borrow, default)]
    api_version: Text<'a>,
    #[serde(borrow, default)]
    kind: Text<'a>,
    #[serde(borrow, default)]
    name: Text<'a>,
    #[serde(borrow, default)]
    uid: Text<'a>,
    controller: Option<bool>,
}

/// Labels or annotations, borrowed from the text unless they contain escapes.
type Pairs<'a> = BTreeMap<Text<'a>, Text<'a>>;

/// Selects labels or annotations.
#[derive(Clone, Copy)]
enum Map {
    Labels,
    Annotations,
}

impl<K: Cacheable> CachedObject<K> {
    /// Returns the value of a label.
    pub fn label(&self, name: &str) -> Option<String> {
        self.value(Map::Labels, name)
    }

    /// Returns the value of an annotation.
    pub fn annotation(&self, name: &str) -> Option<String> {
        self.value(Map::Annotations, name)
    }

    /// Returns all labels.
    pub fn labels(&self) -> BTreeMap<String, String> {
        self.map(Map::Labels)
    }

    /// Returns all annotations.
    pub fn annotations(&self) -> BTreeMap<String, String> {
        self.map(Map::Annotations)
    }

    /// Returns `true` if both objects have the same labels.
    pub fn has_labels_of(&self, other: &Self) -> bool {
        self.is_equal(other, Map::Labels)
    }

    /// Returns `true` if both objects have the same annotations.
    pub fn has_annotations_of(&self, other: &Self) -> bool {
        self.is_equal(other, Map::Annotations)
    }

    /// Returns `true` if the labels match a selector.
    pub fn matches(&self, selector: &Selector) -> bool {
        if selector.selects_all() {
            return true;
        }
        let expressions: Vec<Expression> = selector.clone().into_iter().collect();
        self.matches_all(&expressions)
    }

    /// Returns `true` if the labels match all expressions.
    pub(crate) fn matches_all(&self, expressions: &[Expression]) -> bool {
        self.with_pairs(Map::Labels, |labels| {
            expressions.iter().all(|expression| {
                let value = |name: &str| labels.iter().find(|(it, _)| *it == name).map(|(_, value)| *value);
                match expression {
                    Expression::In(name, values) => value(name).is_some_and(|it| values.contains(it)),
                    Expression::NotIn(name, values) => value(name).is_none_or(|it| !values.contains(it)),
                    Expression::Equal(name, wanted) => value(name) == Some(wanted),
                    Expression::NotEqual(name, wanted) => value(name) != Some(wanted),
                    Expression::Exists(name) => value(name).is_some(),
                    Expression::DoesNotExist(name) => value(name).is_none(),
                }
            })
        })
    }

    /// Calls `f` with each owner reference, in order.
    pub fn each_owner(&self, f: &mut dyn FnMut(OwnerRef<'_>)) {
        if let Some(typed) = self.held_typed() {
            for owner in typed.meta().owner_references.iter().flatten() {
                f(OwnerRef {
                    api_version: &owner.api_version,
                    kind: &owner.kind,
                    name: &owner.name,
                    uid: &owner.uid,
                    is_controller: owner.controller == Some(true),
                });
            }
            return;
        }
        self.with_text(|text, places| {
            let owners = places.owners.slice(text);
            for owner in serde_json::from_str::<Vec<EncodedOwner<'_>>>(owners).unwrap_or_default() {
                f(OwnerRef {
                    api_version: &owner.api_version.0,
                    kind: &owner.kind.0,
                    name: &owner.name.0,
                    uid: &owner.uid.0,
                    is_controller: owner.controller == Some(true),
                });
            }
        });
    }

    fn value(&self, map: Map, name: &str) -> Option<String> {
        self.with_pairs(map, |pairs| {
            pairs
                .iter()
                .find(|(it, _)| *it == name)
                .map(|(_, value)| (*value).to_owned())
        })
    }

    fn map(&self, map: Map) -> BTreeMap<String, String> {
        self.with_pairs(map, |pairs| {
            pairs
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect()
        })
    }

    fn is_equal(&self, other: &Self, map: Map) -> bool {
        self.with_pairs(map, |mine| other.with_pairs(map, |others| mine == others))
    }

    /// Calls `f` with the labels or annotations, sorted by name. The slice is empty if the field is missing or not a
    /// map of strings.
    fn with_pairs<R>(&self, map: Map, f: impl FnOnce(&[(&str, &str)]) -> R) -> R {
        if let Some(typed) = self.held_typed() {
            let metadata = typed.meta();
            let pairs = match map {
                Map::Labels => &metadata.labels,
                Map::Annotations => &metadata.annotations,
            };
            let pairs: Vec<_> = pairs
                .iter()
                .flatten()
                .map(|(name, value)| (name.as_str(), value.as_str()))
                .collect();
            return f(&pairs);
        }
        self.with_text(|text, places| {
            let span = match map {
                Map::Labels => places.labels,
                Map::Annotations => places.annotations,
            };
            if span.is_empty() {
                return f(&[]);
            }
            let pairs = serde_json::from_str::<Pairs<'_>>(span.slice(text)).unwrap_or_default();
            let pairs: Vec<_> = pairs.iter().map(|(name, value)| (&*name.0, &*value.0)).collect();
            f(&pairs)
        })
    }
}

impl<K: Cacheable + serde::Serialize> CachedObject<K> {
    /// Returns the value at a path of field names, if it is a string, a number or a boolean.
    pub(crate) fn field(&self, names: &[String]) -> Option<String> {
        let value = match self.held_typed() {
            Some(typed) => {
                let whole = serde_json::to_value(typed).ok()?;
                names.iter().try_fold(&whole, |value, name| value.get(name))?.clone()
            }
            None => self.with_text(|text, _| {
                let mut reader = serde_json::Deserializer::from_str(text);
                FieldOf(names).deserialize(&mut reader).ok()?
            })?,
        };
        match value {
            Value::String(text) => Some(text),
            Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
            Value::Null | Value::Array(_) | Value::Object(_) => None,
        }
    }
}

/// Deserializes only the value at a path of field names.
struct FieldOf<'a>(&'a [String]);

impl<'de> DeserializeSeed<'de> for FieldOf<'_> {
    type Value = Option<Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        if self.0.is_empty() {
            Value::deserialize(deserializer).map(Some)
        } else {
            deserializer.deserialize_map(self)
        }
    }
}

impl<'de> Visitor<'de> for FieldOf<'_> {
    type Value = Option<Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(name) = map.next_key::<Text<'de>>()? {
            if self.0.first().is_some_and(|it| *it == name.0) {
                found = map.next_value_seed(FieldOf(&self.0[1..]))?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }
}
