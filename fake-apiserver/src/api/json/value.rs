//! `Value`: the server's representation of JSON values in memory.

use std::borrow::Cow;
use std::ops::{Index, IndexMut};

use serde::de::{Deserialize, Deserializer};
use serde::ser::{Serialize, Serializer};
use serde_json::Number;
use smol_str::SmolStr;

use super::map::{self, SortedMap};

/// A JSON value with the interface of `serde_json::Value` but a different memory layout: strings and field names of up
/// to 23 bytes are stored inline, and copies share longer strings. This matters because each write creates, copies and
/// frees the strings of an object several times.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Value {
    /// `null`
    #[default]
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number.
    Number(Number),
    /// A string.
    String(SmolStr),
    /// A list.
    Array(Vec<Value>),
    /// An object.
    Object(Map),
}

/// The fields of an object.
pub(crate) type Map = SortedMap<Value>;

/// The entries of a map in the order of their keys.
pub(crate) type Iter<'a> = map::Iter<'a, Value>;

/// The value of an absent field.
static NULL: Value = Value::Null;

impl Value {
    /// Returns `true` if the value is `null`.
    pub(crate) fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// Returns `true` if the value is a boolean.
    pub(crate) fn is_boolean(&self) -> bool {
        matches!(self, Self::Bool(_))
    }

    /// Returns `true` if the value is a number.
    pub(crate) fn is_number(&self) -> bool {
        matches!(self, Self::Number(_))
    }

    /// Returns `true` if the value is an integer that fits an `i64`.
    pub(crate) fn is_i64(&self) -> bool {
        matches!(self, Self::Number(number) if number.is_i64())
    }

    /// Returns `true` if the value is an integer that is not negative.
    pub(crate) fn is_u64(&self) -> bool {
        matches!(self, Self::Number(number) if number.is_u64())
    }

    /// Returns `true` if the value is a string.
    pub(crate) fn is_string(&self) -> bool {
        matches!(self, Self::String(_))
    }

    /// Returns `true` if the value is a list.
    pub(crate) fn is_array(&self) -> bool {
        matches!(self, Self::Array(_))
    }

    /// Returns `true` if the value is an object.
    pub(crate) fn is_object(&self) -> bool {
        matches!(self, Self::Object(_))
    }

    /// Returns the value as a boolean; `None` for other types.
    pub(crate) fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(it) => Some(*it),
            _ => None,
        }
    }

    /// Returns the value as an integer; `None` for other types, and for numbers that do not fit an `i64`.
    pub(crate) fn as_i64(&self) -> Option<i64> {
        match self {
            Self::Number(number) => number.as_i64(),
            _ => None,
        }
    }

    /// Returns the value as an unsigned integer; `None` for other types and negative numbers.
    pub(crate) fn as_u64(&self) -> Option<u64> {
        match self {
            Self::Number(number) => number.as_u64(),
            _ => None,
        }
    }

    /// Returns the number as a float; `None` for other types.
    pub(crate) fn as_f64(&self) -> Option<f64> {
        match self {
            Self::Number(number) => number.as_f64(),
            _ => None,
        }
    }

    /// Returns the value as a string; `None` for other types.
    pub(crate) fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the value as a list; `None` for other types.
    pub(crate) fn as_array(&self) -> Option<&Vec<Value>> {
        match self {
            Self::Array(items) => Some(items),
            _ => None,
        }
    }

    /// Returns the value as a mutable list; `None` for other types.
    pub(crate) fn as_array_mut(&mut self) -> Option<&mut Vec<Value>> {
        match self {
            Self::Array(items) => Some(items),
            _ => None,
        }
    }

    /// Returns the value as an object; `None` for other types.
    pub(crate) fn as_object(&self) -> Option<&Map> {
        match self {
            Self::Object(map) => Some(map),
            _ => None,
        }
    }

    /// Returns the value as a mutable object; `None` for other types.
    pub(crate) fn as_object_mut(&mut self) -> Option<&mut Map> {
        match self {
            Self::Object(map) => Some(map),
            _ => None,
        }
    }

    /// Returns the value of a field, or the item of a list.
    pub(crate) fn get(&self, place: impl Place) -> Option<&Value> {
        place.of(self)
    }

    /// Mutable version of [`Value::get`].
    pub(crate) fn get_mut(&mut self, place: impl Place) -> Option<&mut Value> {
        place.of_mut(self)
    }

    /// Takes the value and leaves `null`.
    pub(crate) fn take(&mut self) -> Value {
        std::mem::take(self)
    }

    /// Returns the value at a JSON pointer.
    pub(crate) fn pointer(&self, pointer: &str) -> Option<&Value> {
        steps(pointer)?.try_fold(self, |value, step| match value {
            Self::Object(map) => map.get(&step),
            Self::Array(items) => items.get(index(&step)?),
            _ => None,
        })
    }

    /// Mutable version of [`Value::pointer`].
    pub(crate) fn pointer_mut(&mut self, pointer: &str) -> Option<&mut Value> {
        steps(pointer)?.try_fold(self, |value, step| match value {
            Self::Object(map) => map.get_mut(&step),
            Self::Array(items) => items.get_mut(index(&step)?),
            _ => None,
        })
    }
}

impl Map {
    /// Returns the value at a dotted path, such as `spec.template`.
    pub(crate) fn at(&self, way: &str) -> Option<&Value> {
        let (mut map, mut way) = (self, way);
        loop {
            // Fast path: most fields that validation rules look up are absent.
            if !map.may_lead(way) {
                return None;
            }
            let (step, rest) = map::next_step(way);
            let value = map.find(step)?;
            if rest.is_empty() {
                return Some(value);
            }
            (map, way) = (value.as_object()?, rest);
        }
    }
}

impl Index<&str> for Map {
    type Output = Value;

    /// Returns the value of a key; null if it is missing.
    fn index(&self, key: &str) -> &Value {
        self.get(key).unwrap_or(&NULL)
    }
}

impl IndexMut<&str> for Map {
    /// Returns the value of a key, after inserting `null` if it is absent.
    fn index_mut(&mut self, key: &str) -> &mut Value {
        self.entry(key).or_insert(Value::Null)
    }
}

/// Splits a JSON pointer into steps; `None` if the string is not a JSON pointer.
fn steps(pointer: &str) -> Option<impl Iterator<Item = String>> {
    (pointer.is_empty() || pointer.starts_with('/')).then(|| {
        let steps = pointer.split('/').skip(1);
        steps.map(|step| step.replace("~1", "/").replace("~0", "~"))
    })
}

/// Parses an index of a JSON pointer.
fn index(step: &str) -> Option<usize> {
    let is_padded = step.starts_with('+') || (step.starts_with('0') && step.len() > 1);
    if is_padded { None } else { step.parse().ok() }
}

/// A step into a value: the name of a field, or an index.
pub(crate) trait Place {
    /// Returns the value at this step.
    fn of(self, value: &Value) -> Option<&Value>;
    /// Mutable version of [`Place::of`].
    fn of_mut(self, value: &mut Value) -> Option<&mut Value>;
    /// Returns a mutable reference to the value at this step. Creates missing fields, and replaces nulls with objects.
    /// Panics in the same cases as `serde_json`.
    fn made(self, value: &mut Value) -> &mut Value;
}

impl Place for &str {
    fn of(self, value: &Value) -> Option<&Value> {
        value.as_object()?.get(self)
    }

    fn of_mut(self, value: &mut Value) -> Option<&mut Value> {
        value.as_object_mut()?.get_mut(self)
    }

    fn made(self, value: &mut Value) -> &mut Value {
        if value.is_null() {
            *value = Value::Object(Map::new());
        }
        match value {
            Value::Object(map) => map.entry(self).or_insert(Value::Null),
            other => panic!("cannot access field {self:?} of {other}"),
        }
    }
}

impl Place for &SmolStr {
    fn of(self, value: &Value) -> Option<&Value> {
        self.as_str().of(value)
    }

    fn of_mut(self, value: &mut Value) -> Option<&mut Value> {
        self.as_str().of_mut(value)
    }

    fn made(self, value: &mut Value) -> &mut Value {
        self.as_str().made(value)
    }
}

impl Place for &String {
    fn of(self, value: &Value) -> Option<&Value> {
        self.as_str().of(value)
    }

    fn of_mut(self, value: &mut Value) -> Option<&mut Value> {
        self.as_str().of_mut(value)
    }

    fn made(self, value: &mut Value) -> &mut Value {
        self.as_str().made(value)
    }
}

impl Place for usize {
    fn of(self, value: &Value) -> Option<&Value> {
        value.as_array()?.get(self)
    }

    fn of_mut(self, value: &mut Value) -> Option<&mut Value> {
        value.as_array_mut()?.get_mut(self)
    }

    fn made(self, value: &mut Value) -> &mut Value {
        match value {
            Value::Array(items) => &mut items[self],
            other => panic!("cannot access item {self} of {other}"),
        }
    }
}

impl<P: Place> Index<P> for Value {
    type Output = Value;

    /// Returns the value of a field or list item; null if it is missing.
    fn index(&self, place: P) -> &Value {
        place.of(self).unwrap_or(&NULL)
    }
}

impl<P: Place> IndexMut<P> for Value {
    fn index_mut(&mut self, place: P) -> &mut Value {
        place.made(self)
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(it) => serializer.serialize_bool(*it),
            Self::Number(number) => number.serialize(serializer),
            Self::String(text) => serializer.serialize_str(text),
            Self::Array(items) => serializer.collect_seq(items),
            Self::Object(map) => map.serialize(serializer),
        }
    }
}

impl Serialize for Map {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter().map(|(key, value)| (key.as_str(), value)))
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        serde_json::Value::deserialize(deserializer).map(Self::from)
    }
}

impl<'de> Deserialize<'de> for Map {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        serde_json::Map::deserialize(deserializer).map(Self::from)
    }
}

impl From<serde_json::Value> for Value {
    fn from(value: serde_json::Value) -> Self {
        use serde_json::Value as From;
        match value {
            From::Null => Self::Null,
            From::Bool(it) => Self::Bool(it),
            From::Number(number) => Self::Number(number),
            From::String(text) => Self::String(text.into()),
            From::Array(items) => Self::Array(items.into_iter().map(Self::from).collect()),
            From::Object(map) => Self::Object(map.into()),
        }
    }
}

impl From<serde_json::Map<String, serde_json::Value>> for Map {
    fn from(map: serde_json::Map<String, serde_json::Value>) -> Self {
        map.into_iter().map(|(key, value)| (key, Value::from(value))).collect()
    }
}

impl From<Value> for serde_json::Value {
    fn from(value: Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(it) => Self::Bool(it),
            Value::Number(number) => Self::Number(number),
            Value::String(text) => Self::String(text.into()),
            Value::Array(items) => Self::Array(items.into_iter().map(Self::from).collect()),
            Value::Object(map) => Self::Object(map.into()),
        }
    }
}

impl From<Map> for serde_json::Map<String, serde_json::Value> {
    fn from(map: Map) -> Self {
        map.into_iter().map(|(key, value)| (key.into(), value.into())).collect()
    }
}

impl From<bool> for Value {
    fn from(it: bool) -> Self {
        Self::Bool(it)
    }
}

macro_rules! of_numbers {
    ($($number:ty)*) => {$(
        impl From<$number> for Value {
            fn from(number: $number) -> Self {
                Self::Number(number.into())
            }
        }

        impl PartialEq<$number> for Value {
            fn eq(&self, other: &$number) -> bool {
                matches!(self, Self::Number(number) if *number == Number::from(*other))
            }
        }
    )*};
}

of_numbers!(u8 u16 u32 u64 usize i32 i64);

/// NaN and infinities become `null`.
impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Number::from_f64(number).map_or(Self::Null, Self::Number)
    }
}

macro_rules! of_texts {
    ($($text:ty)*) => {$(
        impl From<$text> for Value {
            fn from(text: $text) -> Self {
                Self::String(SmolStr::from(text))
            }
        }
    )*};
}

of_texts!(&str String &String Cow<'_, str> SmolStr);

impl From<&SmolStr> for Value {
    fn from(text: &SmolStr) -> Self {
        Self::String(text.clone())
    }
}

impl From<Number> for Value {
    fn from(number: Number) -> Self {
        Self::Number(number)
    }
}

impl From<Map> for Value {
    fn from(map: Map) -> Self {
        Self::Object(map)
    }
}

impl<T: Into<Value>> From<Vec<T>> for Value {
    fn from(items: Vec<T>) -> Self {
        items.into_iter().collect()
    }
}

impl<T: Clone + Into<Value>> From<&[T]> for Value {
    fn from(items: &[T]) -> Self {
        items.iter().cloned().collect()
    }
}

impl<T: Into<Value>, const N: usize> From<[T; N]> for Value {
    fn from(items: [T; N]) -> Self {
        items.into_iter().collect()
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

impl<T: Into<Value>> FromIterator<T> for Value {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        Self::Array(items.into_iter().map(Into::into).collect())
    }
}

impl<K: Into<SmolStr>, V: Into<Value>> FromIterator<(K, V)> for Value {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        Self::Object(entries.into_iter().map(|(key, value)| (key, value.into())).collect())
    }
}

impl PartialEq<str> for Value {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == Some(other)
    }
}

impl PartialEq<&str> for Value {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == Some(other)
    }
}

impl PartialEq<String> for Value {
    fn eq(&self, other: &String) -> bool {
        self.as_str() == Some(other)
    }
}

impl PartialEq<bool> for Value {
    fn eq(&self, other: &bool) -> bool {
        self.as_bool() == Some(*other)
    }
}

impl PartialEq<Value> for &str {
    fn eq(&self, other: &Value) -> bool {
        other == self
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn document() -> serde_json::Value {
        json!({
            "a": {"b": [1, -2, 2.5, "x", null, true, {"c/d": {"~": "deep"}}], "": {}},
            "a name of more than 23 bytes": "a text of more than 23 bytes, too",
            "z": 18_446_744_073_709_551_615_u64,
        })
    }

    #[rstest]
    #[case("")]
    #[case("/")]
    #[case("a")]
    #[case("/a/b/0")]
    #[case("/a/b/00")]
    #[case("/a/b/+1")]
    #[case("/a/b/7")]
    #[case("/a/b/-")]
    #[case("/a/b/6/c~1d/~0")]
    #[case("/a/b/3/x")]
    #[case("/a//")]
    fn pointer_finds_the_same_value_as_serde_json(#[case] pointer: &str) {
        let mut value = Value::from(document());
        let expected = document().pointer(pointer).cloned().map(Value::from);
        assert_eq!(value.pointer(pointer), expected.as_ref());
        assert_eq!(value.pointer_mut(pointer).map(|it| it.take()), expected);
    }

    #[test]
    fn value_is_printed_and_parsed_as_in_serde_json() {
        let value = Value::from(document());
        let text = document().to_string();
        assert_eq!(serde_json::from_str::<Value>(&text).ok().as_ref(), Some(&value));
        assert_eq!(serde_json::Value::from(value.clone()), document());
        assert_eq!(
            format!("{value:#}"),
            serde_json::to_string_pretty(&value).expect("the value can be serialized")
        );
        assert_eq!(serde_json::to_string(&value).ok(), Some(value.to_string()));
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&value.to_string()).ok(),
            Some(document())
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn path_resolves_nested_fields(
            names in prop::collection::vec("[a-c]{0,2}[.x]{0,1}[a-cé]{0,20}", 1..5), way in "[a-cé.x]{1,30}",
        ) {
            let mut value = Value::from(1);
            for name in &names {
                value = [(name.as_str(), value)].into_iter().collect();
            }
            let Value::Object(map) = value else { unreachable!("there is at least one name") };
            for way in [way, names.iter().rev().cloned().collect::<Vec<_>>().join(".")] {
                let way = way.trim_end_matches('.');
                let found = way.split('.').try_fold(None, |at: Option<&Value>, step| {
                    Some(Some(at.map_or(map.get(step), |at| at.get(step))?))
                });
                prop_assert_eq!(map.at(way), found.flatten(), "{}", way);
            }
        }
    }

    #[test]
    fn missing_fields_are_created_as_in_serde_json() {
        let (mut value, mut expected) = (Value::Null, serde_json::Value::Null);
        value["a"]["b"] = 1.into();
        expected["a"]["b"] = 1.into();
        assert_eq!(value, Value::from(expected));
        assert_eq!((&value["a"]["c"]["d"], &value[3]), (&Value::Null, &Value::Null));
    }
}
