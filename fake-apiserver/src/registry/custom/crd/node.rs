//! A schema of a CRD as JSON, read with Go's eyes: a keyword with a zero value is one that is not there.

use serde_json::{Map, Value};

use crate::registry::types::cursor::Cursor;

/// One schema.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node<'a>(pub(super) &'a Map<String, Value>);

impl<'a> Node<'a> {
    /// A string; empty if absent.
    pub(super) fn text(self, key: &str) -> &'a str {
        self.0.get(key).and_then(Value::as_str).unwrap_or_default()
    }

    /// Returns `true` if a keyword is `true`.
    pub(super) fn flag(self, key: &str) -> bool {
        self.0.get(key) == Some(&Value::Bool(true))
    }

    /// A list; empty if absent.
    pub(super) fn list(self, key: &str) -> &'a [Value] {
        self.0.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    /// A keyword that holds one schema.
    pub(super) fn schema(self, key: &str) -> Option<Node<'a>> {
        self.0.get(key).and_then(Value::as_object).map(Node)
    }

    /// Returns `true` if the keyword is present.
    pub(super) fn has(self, key: &str) -> bool {
        self.0.get(key).is_some_and(|it| !it.is_null())
    }

    /// Returns `true` if the keyword is there and neither an empty string nor an empty list or map.
    pub(super) fn has_some(self, key: &str) -> bool {
        !Cursor::root(self.0).is_empty(key)
    }

    pub(super) fn has_additional(self) -> bool {
        self.has("additionalProperties")
    }

    pub(super) fn properties(self) -> impl Iterator<Item = (&'a str, Node<'a>)> {
        let map = self.0.get("properties").and_then(Value::as_object);
        map.into_iter()
            .flatten()
            .filter_map(|(name, it)| Some((name.as_str(), Node(it.as_object()?))))
    }

    pub(super) fn property(self, name: &str) -> Option<Node<'a>> {
        self.0.get("properties")?.get(name)?.as_object().map(Node)
    }

    /// The schemas under `not`, `allOf`, `anyOf` and `oneOf`, with their index.
    pub(super) fn branches(self) -> impl Iterator<Item = (&'static str, Option<usize>, Node<'a>)> {
        let not = self.schema("not").map(|it| ("not", None, it));
        let lists = ["allOf", "anyOf", "oneOf"].into_iter().flat_map(move |junctor| {
            let branches = self.list(junctor).iter().enumerate();
            branches.filter_map(move |(index, it)| Some((junctor, Some(index), Node(it.as_object()?))))
        });
        not.into_iter().chain(lists)
    }

    /// The schemas right below this one.
    pub(super) fn children(self) -> impl Iterator<Item = Node<'a>> {
        let properties = self.properties().map(|(_, it)| it);
        let branches = self.branches().map(|(_, _, it)| it);
        let others = [self.schema("items"), self.schema("additionalProperties")];
        properties.chain(branches).chain(others.into_iter().flatten())
    }

    /// Calls `visit` on this schema and all below.
    pub(super) fn visit(self, visit: &mut dyn FnMut(Node<'a>)) {
        visit(self);
        for child in self.children() {
            child.visit(visit);
        }
    }
}
