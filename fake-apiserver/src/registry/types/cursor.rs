//! `Cursor`: a JSON value together with its path. Validation rules use it to read objects.
//!
//! A field of the wrong type is treated as absent, because decoding has already checked the types. The path is only
//! built for errors, so reading a valid object does not allocate.

use std::borrow::Cow;
use std::sync::LazyLock;

use crate::api::field::FieldPath;
use crate::api::json::{Map, Value};
use crate::api::object::Beside;

/// A possibly absent value at a path of an object.
///
/// Cursors are small and cheap to copy. A cursor borrows the cursor from which it was created, so a chain of cursors
/// does not allocate: `for port in subset.items("ports") { errors.required(port.at("name"), "") }`. If a cursor must
/// outlive its statement, create it with the full path: `object.at("spec.template.spec")`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor<'a> {
    node: Node<'a>,
    step: Step<'a>,
}

/// The value under a cursor. A complete object is a [`Map`] that is not wrapped in a [`Value`].
#[derive(Clone, Copy, Debug)]
enum Node<'a> {
    Absent,
    Map(&'a Map),
    Value(&'a Value),
}

/// The last step of a cursor's path.
#[derive(Clone, Copy, Debug)]
enum Step<'a> {
    /// The object itself, with an empty path.
    Root,
    /// A value with an explicit path.
    Path(&'a FieldPath),
    /// A field, or several separated by dots.
    Field(&'a Cursor<'a>, &'a str),
    /// An item of a list field; the field is empty if the cursor itself is the list.
    Item(&'a Cursor<'a>, &'a str, usize),
    /// An entry of a map field; its key may contain dots. The field is empty if the cursor itself is the map.
    Entry(&'a Cursor<'a>, &'a str, &'a str),
}

impl<'a> Cursor<'a> {
    /// Returns a cursor at an object. Its path prints as `<nil>`.
    pub(crate) fn root(object: &'a Map) -> Self {
        Self {
            node: Node::Map(object),
            step: Step::Root,
        }
    }

    /// Returns a cursor at a value that is a complete object. Its path prints as `<nil>`.
    pub(crate) fn document(value: &'a Value) -> Self {
        Self {
            node: Node::of(Some(value)),
            step: Step::Root,
        }
    }

    /// Returns a cursor at an object with this path.
    pub(crate) fn map_at(map: &'a Map, path: &'a FieldPath) -> Self {
        Self {
            node: Node::Map(map),
            step: Step::Path(path),
        }
    }

    /// Returns a cursor at a value with this path.
    pub(crate) fn value_at(value: Option<&'a Value>, path: &'a FieldPath) -> Self {
        Self {
            node: Node::of(value),
            step: Step::Path(path),
        }
    }

    /// Returns a cursor with the same path at a different value, such as the value in the stored object.
    #[must_use]
    pub(crate) fn in_other(self, value: Option<&'a Value>) -> Self {
        Self {
            node: Node::of(value),
            ..self
        }
    }

    /// Returns the field at a dotted path below this value.
    pub(crate) fn at(&'a self, way: &'a str) -> Cursor<'a> {
        Cursor {
            node: Node::of(self.get(way)),
            step: Step::Field(self, way),
        }
    }

    /// Same as `at`; `None` if the field is absent or null.
    pub(crate) fn present(&'a self, way: &'a str) -> Option<Cursor<'a>> {
        let field = self.at(way);
        field.is_set("").then_some(field)
    }

    /// Returns the entry of this map with a key, which may contain dots.
    pub(crate) fn entry(&'a self, key: &'a str) -> Cursor<'a> {
        self.entry_of("", key)
    }

    /// Returns the entry of a map field with a key, which may contain dots.
    pub(crate) fn entry_of(&'a self, way: &'a str, key: &'a str) -> Cursor<'a> {
        Cursor {
            node: Node::of(self.map(way).and_then(|map| map.get(key))),
            step: Step::Entry(self, way, key),
        }
    }

    /// Returns `true` if this map has an entry with a key, even if it is null.
    pub(crate) fn has_entry(&self, key: &str) -> bool {
        self.map("").is_some_and(|map| map.contains_key(key))
    }

    /// Returns the items of a list field. The path of an item ends with its index. An empty `way` means the items of
    /// this value.
    pub(crate) fn items(&'a self, way: &'a str) -> impl ExactSizeIterator<Item = Cursor<'a>> {
        let items = self.list(way).iter().enumerate();
        items.map(move |(index, item)| Cursor {
            node: Node::of(Some(item)),
            step: Step::Item(self, way, index),
        })
    }

    /// Returns the entries of a map field in the order of their keys. The path of an entry ends with its key. An empty
    /// `way` means the entries of this value.
    pub(crate) fn entries(&'a self, way: &'a str) -> impl Iterator<Item = (&'a str, Cursor<'a>)> {
        self.map(way).into_iter().flatten().map(move |(key, value)| {
            let entry = Cursor {
                node: Node::of(Some(value)),
                step: Step::Entry(self, way, key),
            };
            (key.as_str(), entry)
        })
    }

    /// Returns the fields of this object. The path of a field ends with its name, which may contain dots.
    pub(crate) fn fields(&'a self) -> impl Iterator<Item = (&'a str, Cursor<'a>)> {
        self.map("").into_iter().flatten().map(move |(name, value)| {
            let field = Cursor {
                node: Node::of(Some(value)),
                step: Step::Field(self, name),
            };
            (name.as_str(), field)
        })
    }

    /// Returns a cursor at the same value, with a path that ends with a map key (`[a]`) instead of a field (`.a`).
    #[must_use]
    pub(crate) fn as_entry(self) -> Self {
        match self.step {
            Step::Field(parent, name) => Self {
                step: Step::Entry(parent, "", name),
                ..self
            },
            Step::Root | Step::Path(_) | Step::Item(..) | Step::Entry(..) => self,
        }
    }

    /// Returns the value at a dotted path; `None` if it is absent or null. An empty `way` means this value itself, or
    /// `None` for a complete object, which is not a [`Value`].
    pub(crate) fn get(&self, way: &str) -> Option<&'a Value> {
        let map = match (self.node, way) {
            (Node::Absent, _) | (Node::Map(_), "") => return None,
            (Node::Value(value), "") => return Some(value),
            (Node::Map(map), _) => map,
            (Node::Value(value), _) => value.as_object()?,
        };
        map.at(way).filter(|value| !value.is_null())
    }

    /// Returns a copy of the value under the cursor; null if it is absent.
    pub(crate) fn to_value(self) -> Value {
        match self.node {
            Node::Absent => Value::Null,
            Node::Map(map) => Value::Object(map.clone()),
            Node::Value(value) => value.clone(),
        }
    }

    /// Returns the string under the cursor; empty if it is absent.
    pub(crate) fn as_text(&self) -> &'a str {
        self.text("")
    }

    /// Returns the string at a dotted path; empty if it is absent.
    pub(crate) fn text(&self, way: &str) -> &'a str {
        self.get(way).and_then(Value::as_str).unwrap_or_default()
    }

    /// Returns the integer at a dotted path.
    pub(crate) fn integer(&self, way: &str) -> Option<i64> {
        self.get(way).and_then(Value::as_i64)
    }

    /// Returns the boolean at a dotted path.
    pub(crate) fn flag(&self, way: &str) -> Option<bool> {
        self.get(way).and_then(Value::as_bool)
    }

    /// Returns `true` if the field at a dotted path is `true`.
    pub(crate) fn is_true(&self, way: &str) -> bool {
        self.flag(way) == Some(true)
    }

    /// Returns the list at a dotted path; empty if it is absent.
    pub(crate) fn list(&self, way: &str) -> &'a [Value] {
        self.get(way).and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    /// Returns the strings of the list at a dotted path.
    pub(crate) fn texts(&self, way: &str) -> impl Iterator<Item = &'a str> + use<'a> {
        self.list(way).iter().map(|item| item.as_str().unwrap_or_default())
    }

    /// Returns the object at a dotted path.
    pub(crate) fn map(&self, way: &str) -> Option<&'a Map> {
        match (self.node, way) {
            (Node::Map(map), "") => Some(map),
            _ => self.get(way).and_then(Value::as_object),
        }
    }

    /// Returns the object at a dotted path; empty if it is absent.
    pub(crate) fn map_or_empty(&self, way: &str) -> &'a Map {
        static EMPTY: LazyLock<Map> = LazyLock::new(Map::new);
        self.map(way).unwrap_or(&EMPTY)
    }

    /// Returns the objects in the list at a dotted path.
    pub(crate) fn maps(&self, way: &str) -> impl Iterator<Item = &'a Map> + use<'a> {
        self.list(way).iter().filter_map(Value::as_object)
    }

    /// Returns `true` if the field is present and not null.
    pub(crate) fn is_set(&self, way: &str) -> bool {
        self.map(way).is_some() || self.get(way).is_some()
    }

    /// Returns `true` if the field is absent, null, or an empty string, list or object.
    pub(crate) fn is_empty(&self, way: &str) -> bool {
        match self.get(way) {
            None => self.map(way).is_none_or(Map::is_empty),
            Some(Value::String(text)) => text.is_empty(),
            Some(Value::Array(items)) => items.is_empty(),
            Some(Value::Object(fields)) => fields.is_empty(),
            Some(Value::Null | Value::Bool(_) | Value::Number(_)) => false,
        }
    }

    /// Returns `true` if both cursors have the same value at a dotted path. Absent and null are equal.
    pub(crate) fn same(&self, other: &Cursor<'_>, way: &str) -> bool {
        match (self.node, other.node, way) {
            // Complete objects are compared as maps.
            (Node::Map(_), _, "") | (_, Node::Map(_), "") => self.map("") == other.map(""),
            _ => self.get(way) == other.get(way),
        }
    }

    /// Returns `true` if both objects have the same fields and entries, ignoring the fields in `names`. Absent and null
    /// are equal.
    pub(crate) fn same_but(&self, other: &Cursor<'_>, names: &[&str]) -> bool {
        let covers = |one: &Cursor<'_>, other: &Cursor<'_>, is_same: &dyn Fn(&Value, &Value) -> bool| {
            let mut beside = Beside::new(other.map_or_empty(""));
            let mut entries = one
                .map_or_empty("")
                .iter()
                .filter(|(key, value)| !value.is_null() && !names.contains(&key.as_str()));
            entries.all(|(key, value)| beside.get(key).is_some_and(|it| is_same(value, it)))
        };
        // The second pass only looks for additional fields, because the first pass has compared the common ones.
        covers(self, other, &|value, it| value == it) && covers(other, self, &|_, it| !it.is_null())
    }

    /// Returns the path of this value.
    pub(crate) fn path(&self) -> FieldPath {
        match self.step {
            Step::Root => FieldPath::root(),
            Step::Path(path) => path.clone(),
            Step::Field(parent, way) => parent.path_of(way).into_owned(),
            Step::Item(parent, way, index) => parent.path_of(way).index(index),
            Step::Entry(parent, way, key) => parent.path_of(way).key(key),
        }
    }

    fn path_of(&self, way: &str) -> Cow<'_, FieldPath> {
        match (self.step, way) {
            (Step::Path(path), "") => Cow::Borrowed(path),
            (_, "") => Cow::Owned(self.path()),
            (_, way) => Cow::Owned(self.path().child(way)),
        }
    }
}

impl<'a> Node<'a> {
    fn of(value: Option<&'a Value>) -> Self {
        match value {
            None | Some(Value::Null) => Node::Absent,
            Some(value) => Node::Value(value),
        }
    }
}

impl From<Cursor<'_>> for FieldPath {
    fn from(cursor: Cursor<'_>) -> Self {
        cursor.path()
    }
}

impl From<&Cursor<'_>> for FieldPath {
    fn from(cursor: &Cursor<'_>) -> Self {
        cursor.path()
    }
}

#[cfg(test)]
mod tests {
    use crate::api::json::json;

    use super::*;

    fn object() -> Map {
        let object = json!({
            "spec": {
                "ports": [{"name": "web", "port": 80}, {"port": 81}],
                "nodeSelector": {"a.b/c": "d"},
                "paused": null,
                "args": ["x", "y"],
            },
        });
        object.as_object().expect("the value is an object").clone()
    }

    #[test]
    fn cursor_paths_contain_fields_indexes_and_keys() {
        let object = object();
        let root = Cursor::root(&object);
        assert_eq!(root.path().to_string(), "<nil>");
        assert_eq!(root.at("spec.ports").path().to_string(), "spec.ports");
        let spec = root.at("spec");
        let names: Vec<String> = spec.items("ports").map(|it| it.at("name").path().to_string()).collect();
        assert_eq!(names, ["spec.ports[0].name", "spec.ports[1].name"]);
        let (key, entry) = spec.entries("nodeSelector").next().expect("the map has an entry");
        assert_eq!(
            (key, entry.path().to_string()),
            ("a.b/c", "spec.nodeSelector[a.b/c]".into())
        );
        let args = root.at("spec.args");
        let second = args.items("").nth(1).expect("the list has two items");
        assert_eq!(
            (second.as_text(), second.path().to_string()),
            ("y", "spec.args[1]".into())
        );
    }

    #[test]
    fn cursor_paths_start_at_a_given_path() {
        let (object, path) = (object(), FieldPath::new("items").index(3));
        let cursor = Cursor::map_at(&object, &path);
        assert_eq!(cursor.at("spec.paused").path().to_string(), "items[3].spec.paused");
        assert_eq!(cursor.path(), path);
    }

    #[test]
    fn null_and_values_of_wrong_types_are_read_as_absent() {
        let object = object();
        let root = Cursor::root(&object);
        for way in ["spec.paused", "spec.missing", "spec.ports.name", "missing.deep"] {
            assert!(!root.is_set(way) && root.is_empty(way), "{way}");
            assert_eq!((root.text(way), root.integer(way), root.flag(way)), ("", None, None));
            assert_eq!(root.items(way).len() + root.entries(way).count(), 0);
        }
        assert_eq!(root.text("spec.ports"), "");
        assert_eq!(root.at("spec.paused").to_value(), Value::Null);
        assert!(root.is_set("") && !root.is_empty(""));
    }

    #[test]
    fn absent_fields_equal_null_fields() {
        let object = object();
        let mut other = object.clone();
        other
            .get_mut("spec")
            .and_then(Value::as_object_mut)
            .expect("the value is an object")
            .remove("paused");
        let (one, two) = (Cursor::root(&object), Cursor::root(&other));
        assert!(one.same(&two, "spec.paused"));
        assert!(!one.same(&two, "spec") && !one.same(&two, ""));
        assert!(one.at("spec").same_but(&two.at("spec"), &[]) && one.same(&one.in_other(None), "missing"));
    }
}
