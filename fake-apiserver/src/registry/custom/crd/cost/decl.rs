//! `Decl`: the type a schema has for CEL, with the most elements of a value and the fewest bytes it is written in.

use std::collections::BTreeMap;
use std::rc::Rc;

use serde_json::Value;

use super::super::node::Node;
use crate::registry::custom::parse::escape;

/// The bytes of the largest request.
pub(super) const REQUEST_BYTES_MAX: u64 = 3 * 1024 * 1024;

/// The longest text in a request, without its quotation marks.
const TEXT_MAX: u64 = REQUEST_BYTES_MAX - 2;

/// Most bytes of a character.
const CHAR_BYTES: u64 = 4;

/// A type.
#[derive(Debug)]
pub(super) struct Decl {
    pub(super) kind: Kind,
    /// Most characters, bytes, items or entries; 0 for what has none.
    pub(super) max_elements: u64,
    pub(super) min_size: u64,
}

/// The sort of a type.
#[derive(Debug)]
pub(super) enum Kind {
    Dyn,
    Bool,
    Int,
    Double,
    String,
    Bytes,
    Duration,
    Timestamp,
    List(Rc<Decl>),
    Map(Rc<Decl>),
    Object(BTreeMap<String, Rc<Decl>>),
}

impl Decl {
    fn new(kind: Kind, max_elements: u64, min_size: u64) -> Rc<Self> {
        Rc::new(Self {
            kind,
            max_elements,
            min_size,
        })
    }

    /// The type of a schema; `None` if rules cannot see its values.
    pub(super) fn of(node: Node<'_>, is_resource: bool) -> Option<Rc<Self>> {
        if node.flag("x-kubernetes-int-or-string") {
            return Some(Self::new(Kind::Dyn, text_max(node), 1));
        }
        match node.text("type") {
            "array" => {
                let items = node.schema("items")?;
                let items = Self::of(items, items.flag("x-kubernetes-embedded-resource"))?;
                let most = limit(node, "maxItems").unwrap_or((REQUEST_BYTES_MAX - 2) / (items.min_size + 1));
                Some(Self::new(Kind::List(items), most, 2))
            }
            "object" => Self::of_object(node, is_resource),
            "string" => Some(Self::of_string(node)),
            "boolean" => Some(Self::new(Kind::Bool, 0, 4)),
            "number" => Some(Self::new(Kind::Double, 0, 1)),
            "integer" => Some(Self::new(Kind::Int, 0, 1)),
            _ => None,
        }
    }

    fn of_object(node: Node<'_>, is_resource: bool) -> Option<Rc<Self>> {
        if let Some(values) = node.schema("additionalProperties") {
            let values = Self::of(values, values.flag("x-kubernetes-embedded-resource"))?;
            // A key, two quotation marks, a colon and a comma.
            let most = limit(node, "maxProperties").unwrap_or((REQUEST_BYTES_MAX - 2) / (values.min_size + 6));
            return Some(Self::new(Kind::Map(values), most, 2));
        }
        let mut fields = BTreeMap::new();
        let mut min_size = 2;
        for (name, property) in node.properties() {
            let Some(decl) = Self::of(property, property.flag("x-kubernetes-embedded-resource")) else {
                continue;
            };
            if node.list("required").iter().any(|it| it == name) && !property.has("default") {
                min_size += name.len() as u64 + decl.min_size + 4;
            }
            if is_escapable(name) {
                fields.insert(escape(name), decl);
            }
        }
        if is_resource {
            let text = || Self::new(Kind::String, TEXT_MAX, 2);
            let names = ["name", "generateName"].map(|name| (name.to_owned(), text()));
            fields.insert("apiVersion".to_owned(), text());
            fields.insert("kind".to_owned(), text());
            fields.insert("metadata".to_owned(), Self::new(Kind::Object(names.into()), 0, 2));
        }
        Some(Self::new(Kind::Object(fields), 0, min_size))
    }

    fn of_string(node: Node<'_>) -> Rc<Self> {
        match node.text("format") {
            "byte" => {
                let most = limit(node, "maxLength").unwrap_or(TEXT_MAX);
                Self::new(Kind::Bytes, most, 2)
            }
            "duration" => Self::new(Kind::Duration, 32, 3),
            "date" => Self::new(Kind::Timestamp, 12, 12),
            "date-time" => Self::new(Kind::Timestamp, 32, 21),
            _ => {
                let names = node.list("enum");
                let longest = names.iter().filter_map(Value::as_str).map(str::len).max();
                let most = match limit(node, "maxLength") {
                    None if !names.is_empty() => longest.unwrap_or_default() as u64,
                    Some(_) | None => text_max(node),
                };
                Self::new(Kind::String, most, 2)
            }
        }
    }

    /// The type of a field of an object, by its escaped name.
    pub(super) fn field(&self, name: &str) -> Option<Rc<Self>> {
        match &self.kind {
            Kind::Object(fields) => fields.get(name).cloned(),
            _ => None,
        }
    }

    /// The type of the items of a list, or of the values of a map.
    pub(super) fn element(&self) -> Option<Rc<Self>> {
        match &self.kind {
            Kind::List(element) | Kind::Map(element) => Some(Rc::clone(element)),
            _ => None,
        }
    }

    /// The type of the keys of a map, of which no bound is known, and none is assumed.
    pub(super) fn key(&self) -> Option<Rc<Self>> {
        matches!(self.kind, Kind::Map(_)).then(|| Self::new(Kind::String, 0, 2))
    }
}

/// A limit that a schema states; a negative one is 0.
pub(super) fn limit(node: Node<'_>, key: &str) -> Option<u64> {
    let value = node.0.get(key)?.as_f64()?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "casts end at 0")]
    Some(value as u64)
}

/// The most bytes of a text.
fn text_max(node: Node<'_>) -> u64 {
    limit(node, "maxLength").map_or(TEXT_MAX, |most| most.saturating_mul(CHAR_BYTES))
}

/// Whether expressions can name a field.
fn is_escapable(name: &str) -> bool {
    let is_inside = |c: char| c.is_ascii_alphanumeric() || "_./-".contains(c);
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && name.chars().all(is_inside)
}
