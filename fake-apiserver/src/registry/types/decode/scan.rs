//! Scans the raw bytes of a JSON body for facts that a parsed value does not contain: duplicate keys, the order of
//! fields, and the spelling of numbers.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::Text;
use super::convert::Step;
use crate::registry::types::schema::builtin::{Kind, Shape};

/// Maximum number of strict errors that the server collects for a body.
pub(crate) const MOST_ERRORS: usize = 100;

/// Returns the paths of duplicate keys, in the order of the document. The list is empty if the bytes are not JSON.
pub(crate) fn duplicate_fields(text: Text<'_>) -> Vec<String> {
    if !text.repeats_key {
        return Vec::new();
    }
    let mut walk = Walk::default();
    if let Ok(node) = serde_json::from_slice::<Node>(text.raw) {
        walk.untyped(&node);
    }
    walk.errors
        .iter()
        .filter_map(|error| error.strip_prefix("duplicate field \"")?.strip_suffix('"'))
        .map(str::to_owned)
        .collect()
}

/// Returns the first strict decoding errors of a body for a built-in type: `unknown field "spec.x"`, `duplicate field
/// "spec.y"`, in the order of the document.
pub(super) fn strict_errors(raw: &[u8], shape: &'static Shape) -> Vec<String> {
    let mut walk = Walk::default();
    if let Ok(node) = serde_json::from_slice::<Node>(raw) {
        walk.typed(&node, shape);
    }
    walk.errors
}

/// A JSON document with the order of its keys, including duplicates.
enum Node {
    Scalar,
    List(Vec<Node>),
    Map(Vec<(String, Node)>),
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Node, E> {
        Ok(Node::Scalar)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Node, E> {
        Ok(Node::Scalar)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Node, E> {
        Ok(Node::Scalar)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Node, E> {
        Ok(Node::Scalar)
    }

    fn visit_str<E>(self, _: &str) -> Result<Node, E> {
        Ok(Node::Scalar)
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Scalar)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Node, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Node::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Node::Map(entries))
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

/// The order of keys in a document.
pub(super) struct Order(Node);

impl Order {
    /// Parses a document; `None` if the bytes are not JSON.
    pub(super) fn of(raw: &[u8]) -> Option<Self> {
        serde_json::from_slice(raw).ok().map(Self)
    }

    /// Returns the position of a value in the document, for sorting.
    pub(super) fn place(&self, path: &[Step]) -> Vec<usize> {
        let mut at = Some(&self.0);
        let step = |step: &Step| {
            let place = match (step, at) {
                (Step::Index(index), _) => *index,
                (Step::Field(_, field), Some(Node::Map(entries))) => place_of(field.name(), entries),
                (Step::Key(key), Some(Node::Map(entries))) => place_of(key, entries),
                (Step::Field(..) | Step::Key(_), _) => 0,
            };
            at = match at {
                Some(Node::Map(entries)) => entries.get(place).map(|(_, node)| node),
                Some(Node::List(items)) => items.get(place),
                Some(Node::Scalar) | None => None,
            };
            place
        };
        path.iter().map(step).collect()
    }
}

/// Returns the number at a path as it is written in the document, if there is one.
pub(super) fn number_at(raw: &[u8], path: &[Step]) -> Option<String> {
    let mut at: &RawValue = serde_json::from_slice(raw).ok()?;
    for step in path {
        at = match step {
            Step::Index(index) => *serde_json::from_str::<Vec<&RawValue>>(at.get()).ok()?.get(*index)?,
            Step::Field(_, field) => entry_at(at, field.name())?,
            Step::Key(key) => entry_at(at, key)?,
        };
    }
    let is_number = at
        .get()
        .starts_with(|first: char| first == '-' || first.is_ascii_digit());
    is_number.then(|| at.get().to_owned())
}

fn entry_at<'a>(map: &'a RawValue, key: &str) -> Option<&'a RawValue> {
    serde_json::from_str::<BTreeMap<String, &RawValue>>(map.get())
        .ok()?
        .remove(key)
}

fn place_of(name: &str, entries: &[(String, Node)]) -> usize {
    let place = entries.iter().rposition(|(key, _)| key == name);
    place.unwrap_or(entries.len())
}

/// A traversal of a document that collects strict errors.
#[derive(Default)]
struct Walk {
    path: String,
    errors: Vec<String>,
}

impl Walk {
    fn report(&mut self, what: &str, name: &str) {
        let dot = if self.path.is_empty() { "" } else { "." };
        let error = format!("{what} field \"{}{dot}{name}\"", self.path);
        if self.errors.len() < MOST_ERRORS && !self.errors.contains(&error) {
            self.errors.push(error);
        }
    }

    fn below(&mut self, step: &str, walk: impl FnOnce(&mut Self)) {
        let len = self.path.len();
        if len > 0 && !step.starts_with('[') {
            self.path.push('.');
        }
        self.path.push_str(step);
        walk(self);
        self.path.truncate(len);
    }

    fn entries(&mut self, entries: &[(String, Node)], mut walk: impl FnMut(&mut Self, &str, &Node)) {
        let mut seen = std::collections::HashSet::with_capacity(entries.len());
        for (name, node) in entries {
            if !seen.insert(name.as_str()) {
                self.report("duplicate", name);
            }
            walk(self, name, node);
        }
    }

    fn untyped(&mut self, node: &Node) {
        match node {
            Node::Scalar => {}
            Node::List(items) => {
                for (at, item) in items.iter().enumerate() {
                    self.below(&format!("[{at}]"), |walk| walk.untyped(item));
                }
            }
            Node::Map(entries) => self.entries(entries, |walk, name, node| {
                walk.below(name, |walk| walk.untyped(node));
            }),
        }
    }

    /// Collects the errors of a value of this type. Skips the values of unknown fields, and of types with a custom
    /// decoder.
    fn typed(&mut self, node: &Node, shape: &'static Shape) {
        match (node, shape.kind()) {
            (Node::List(items), Kind::List(_)) => {
                for (at, item) in items.iter().enumerate() {
                    if let Some(shape) = shape.items() {
                        self.below(&format!("[{at}]"), |walk| walk.typed(item, shape));
                    }
                }
            }
            (Node::Map(entries), Kind::Struct(_)) => {
                let mut seen = std::collections::HashSet::with_capacity(entries.len());
                for (name, node) in entries {
                    let Some(field) = shape.field(name) else {
                        self.report("unknown", name);
                        continue;
                    };
                    if !seen.insert(name.as_str()) {
                        self.report("duplicate", name);
                    }
                    self.below(name, |walk| walk.typed(node, field));
                }
            }
            (Node::Map(entries), Kind::Map(_)) => self.entries(entries, |walk, name, node| {
                if let Some(shape) = shape.values() {
                    walk.below(name, |walk| walk.typed(node, shape));
                }
            }),
            _ => {}
        }
    }
}
