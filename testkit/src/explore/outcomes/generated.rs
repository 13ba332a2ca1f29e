//! `Generated`: the values that controllers generate, such as passwords, cookies and ports, and their copies.
//!
//! The runs without faults draw other random numbers. A value that differs between them, and that several objects
//! contain in each of them, is one generated value with copies.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use fake_apiserver::StoredObject;
use jiff::Timestamp;
use serde_json::Value;

use super::end_state::EndState;
use super::times::{is_time, timed};
use crate::mask::Mask;
use crate::text::shortened;

/// Minimum length of a generated value in bytes. Shorter values may be equal by chance.
const LEAST: usize = 5;

/// Fields that the server sets, or that identify objects.
const OWN: [&str; 9] = [
    "kind",
    "apiVersion",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "metadata.resourceVersion",
    "metadata.creationTimestamp",
    "metadata.managedFields",
    "metadata.ownerReferences",
];

/// Maximum number of characters shown of a value.
const VALUE_CHARS: usize = 40;

/// A field: the key of its object, and its path.
type Place = (Arc<str>, String);

/// The texts of a state by place.
type Texts = BTreeMap<Place, String>;

/// Values with copies.
#[derive(Clone, Debug, Default)]
pub(crate) struct Generated {
    copies: BTreeSet<Copy>,
}

/// Two fields of different objects: the text of the copy is the value of the source, or contains it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Copy {
    source: Place,
    copy: Place,
}

impl Generated {
    /// Finds the values that differ between two runs without faults.
    pub(crate) fn of(one: &EndState, other: &EndState, mask: &Mask, ignored: &[String]) -> Self {
        let mut generated = Self::default();
        if mask.paths.is_empty() {
            return generated;
        }
        let ignored = Mask::of(ignored);
        let (ones, others) = (texts(one, &ignored), texts(other, &ignored));
        let differing: Vec<(&Place, [&str; 2])> = ones
            .iter()
            .filter_map(|(place, text)| Some((place, [&**text, others.get(place)?])))
            .filter(|(_, [text, in_other])| text != in_other)
            .collect();
        let sources = differing
            .iter()
            .filter(|(_, [text, in_other])| is_generated(one, text) && is_generated(other, in_other));
        for (source, [text, in_other]) in sources {
            let copies = differing.iter().filter(|(place, [copy, other_copy])| {
                place.0 != source.0 && copy.contains(text) && other_copy.contains(in_other)
            });
            for (copy, _) in copies.filter(|(copy, _)| is_content(&source.1) || is_content(&copy.1)) {
                generated.copies.insert(Copy {
                    source: Place::clone(source),
                    copy: Place::clone(copy),
                });
            }
        }
        generated
    }

    /// Returns the copies that other runs have as well.
    #[cfg(all(feature = "processes", unix))]
    pub(crate) fn common(mut self, other: &Self) -> Self {
        self.copies.retain(|it| other.copies.contains(it));
        self
    }

    /// Describes two copies of a value that are not equal in a state.
    pub(crate) fn disagreement(&self, end: &EndState) -> Option<String> {
        if self.copies.is_empty() {
            return None;
        }
        let texts = texts(end, &Mask::default());
        self.copies.iter().find_map(|Copy { source, copy }| {
            let (value, found) = (texts.get(source)?, texts.get(copy)?);
            let field = |(key, path): &Place| format!("{} {path}", key.replace(" /", " "));
            (!found.contains(&**value)).then(|| {
                format!(
                    "{} is {:?}, but {} is {:?}: without faults they contain the same generated value",
                    field(source),
                    shortened(value, VALUE_CHARS),
                    field(copy),
                    shortened(found, VALUE_CHARS),
                )
            })
        })
    }
}

/// Returns `true` for fields with content, in contrast to metadata and status, which report events: an id of the last
/// reconciliation may differ between objects.
fn is_content(path: &str) -> bool {
    !path.starts_with("metadata.") && !path.starts_with("status.")
}

/// Returns `true` unless a text is a time, or identifies an object or its version.
fn is_generated(state: &EndState, text: &str) -> bool {
    let has_time = || is_time(text) || timed(text, Timestamp::MIN, Timestamp::MAX).is_some();
    let is_version = || text.parse().is_ok_and(|it| state.versions().key(it).is_some());
    text.len() >= LEAST && !has_time() && !is_version() && state.identities().in_text(text).is_empty()
}

/// Reads the texts and numbers of all objects that a run wrote, except for objects that share a key, and of external
/// systems. The data of Secrets is decoded.
fn texts(state: &EndState, ignored: &Mask) -> Texts {
    let mut texts = Texts::new();
    for (key, all) in state.all() {
        let [kept] = &**all else { continue };
        if kept.is_untouched {
            continue;
        }
        let mut value = kept.object.value();
        if is_secret(&kept.object)
            && let Some(data) = value["data"].as_object_mut()
        {
            data.values_mut().for_each(decode);
        }
        collect(key, String::new(), value, ignored, &mut texts);
    }
    for (system, kept) in state.externals() {
        let given = kept.objects.iter().filter(|(key, _)| !kept.generated.contains(*key));
        for (name, value) in given {
            let key: Arc<str> = format!("{system} {name}").into();
            collect(&key, String::new(), value.clone(), ignored, &mut texts);
        }
    }
    texts
}

fn is_secret(object: &StoredObject) -> bool {
    object.resource() == "secrets" && object.group().is_empty()
}

fn collect(key: &Arc<str>, path: String, value: Value, ignored: &Mask, texts: &mut Texts) {
    let resource = key.split(' ').next().unwrap_or_default();
    if OWN.contains(&path.as_str()) || ignored.hides(resource, &path) {
        return;
    }
    let below = |name: &str| match path.as_str() {
        "" => name.to_owned(),
        path => format!("{path}.{name}"),
    };
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                collect(key, below(&name), field, ignored, texts);
            }
        }
        Value::Array(items) => {
            for (at, item) in items.into_iter().enumerate() {
                collect(key, below(&at.to_string()), item, ignored, texts);
            }
        }
        Value::String(text) => drop(texts.insert((Arc::clone(key), path), text)),
        Value::Number(number) => drop(texts.insert((Arc::clone(key), path), number.to_string())),
        Value::Null | Value::Bool(_) => {}
    }
}

/// Decodes a value in base64, unless it is not text.
fn decode(value: &mut Value) {
    let decoded = value
        .as_str()
        .and_then(|it| BASE64_STANDARD.decode(it).ok())
        .and_then(|it| String::from_utf8(it).ok());
    if let Some(text) = decoded {
        *value = text.into();
    }
}
