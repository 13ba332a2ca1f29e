//! `Generated`: the values that controllers generate, such as passwords, cookies and ports, and their copies.
//!
//! Each run without faults draws different random numbers. A value that differs between these runs, and that several
//! objects contain in each of them, is one generated value with copies. A copy contains the value itself, in base64, or
//! as a SHA-256 hash.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_STANDARD_NO_PAD, BASE64_URL_SAFE_NO_PAD};
use fake_apiserver::StoredObject;
use jiff::Timestamp;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::end_state::EndState;
use super::key::resource_of;
use super::leaves::leaves;
use super::times::{is_time, timed};
use crate::mask::Mask;
use crate::text::shortened;

/// Minimum length in bytes of a generated value. Shorter values may be equal by chance.
const LEAST: usize = 5;

/// Minimum length of a base64 string, and minimum number of hexadecimal digits of a hash.
const ENCODED: usize = 8;

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

/// Maximum number of characters of a value in a message.
const VALUE_CHARS: usize = 40;

/// A field: the key of its object, and its path.
type Place = (Arc<str>, String);

/// The values of fields as strings.
type Texts = BTreeMap<Place, String>;

/// The values that controllers generated, with their copies.
#[derive(Clone, Debug, Default)]
pub(crate) struct Generated {
    copies: BTreeSet<Copy>,
}

/// Two fields of different objects that contain the same generated value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Copy {
    source: Place,
    copy: Place,
    form: Form,
}

/// The form in which a copy contains the value of its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Form {
    /// The value itself, possibly in base64.
    Value,
    /// The first hexadecimal digits of the value's SHA-256 hash.
    Hash,
}

impl Generated {
    /// Compares two runs without faults, and finds the values that controllers generate, with the fields that contain
    /// copies of them.
    pub(crate) fn of(one: &EndState, other: &EndState, mask: &Mask, ignored: &[String]) -> Self {
        let mut generated = Self::default();
        if !mask.has_fields() {
            return generated;
        }
        let ignored = Mask::of(ignored);
        let [ones, others] = [one, other].map(|it| texts(it, &ignored, |_| true));
        let mut places: BTreeMap<[&str; 2], Vec<&Place>> = BTreeMap::new();
        for (place, text) in &ones {
            if let Some(in_other) = others.get(place).filter(|it| *it != text) {
                places.entry([text, in_other]).or_default().push(place);
            }
        }
        let is_value = |[text, in_other]: &[&str; 2]| is_generated(one, text) && is_generated(other, in_other);
        let values: Vec<[&str; 2]> = places.keys().filter(|it| is_value(it)).copied().collect();
        let sources: Vec<&Place> = values.iter().map(|it| source(&places[it])).collect();
        let indexes = [0, 1].map(|side| Index::of(&values, side));
        for (texts, places) in &places {
            let [found, mut in_other] = [0, 1].map(|side| indexes[side].found_in(texts[side]));
            in_other.retain(|it| found.contains(it));
            for (value, form) in in_other {
                let source = sources[value];
                let copies = places
                    .iter()
                    .filter(|place| place.0 != source.0 && (is_content(&source.1) || is_content(&place.1)));
                generated.copies.extend(copies.map(|copy| Copy {
                    source: Place::clone(source),
                    copy: Place::clone(copy),
                    form,
                }));
            }
        }
        generated
    }

    /// Keeps only the copies that `other` contains as well.
    #[cfg(all(feature = "processes", unix))]
    pub(crate) fn common(mut self, other: &Self) -> Self {
        self.copies.retain(|it| other.copies.contains(it));
        self
    }

    /// Describes the first two copies of a value that are not equal in this state.
    pub(crate) fn disagreement(&self, end: &EndState) -> Option<String> {
        let texts = self.texts(end);
        let (Copy { source, copy, form }, [value, found]) = self.unequal(&texts).next()?;
        let field = |(key, path): &Place| format!("{} {path}", key.replace(" /", " "));
        let without_faults = match form {
            Form::Value => "they contain the same generated value",
            Form::Hash => "it contains the SHA-256 hash of that generated value",
        };
        Some(format!(
            "{} is {:?}, but {} is {:?}: without faults {without_faults}",
            field(source),
            shortened(value, VALUE_CHARS),
            field(copy),
            shortened(found, VALUE_CHARS),
        ))
    }

    /// Returns pairs of fields (a source and its copy) with unequal values in an end state.
    pub(crate) fn disagreeing(&self, end: &EndState) -> BTreeSet<[Place; 2]> {
        let texts = self.texts(end);
        let unequal = self.unequal(&texts);
        unequal.map(|(it, _)| [it.source.clone(), it.copy.clone()]).collect()
    }

    /// Returns the strings and numbers in the objects that contain sources or copies, in an end state.
    fn texts(&self, end: &EndState) -> Texts {
        if self.copies.is_empty() {
            return Texts::new();
        }
        let keys: BTreeSet<&str> = self.copies.iter().flat_map(|it| [&*it.source.0, &*it.copy.0]).collect();
        texts(end, &Mask::default(), |key| keys.contains(key))
    }

    /// Returns the copies with values that differ from their sources, each with both values.
    fn unequal<'a>(&'a self, texts: &'a Texts) -> impl Iterator<Item = (&'a Copy, [&'a str; 2])> {
        self.copies.iter().filter_map(|of| {
            let (value, found) = (texts.get(&of.source)?, texts.get(&of.copy)?);
            let is_same = match of.form {
                Form::Value => decoded(found).contains(&**value),
                Form::Hash => hashes(found).any(|it| hash(value).starts_with(it)),
            };
            (!is_same).then_some((of, [&**value, &**found]))
        })
    }
}

/// Returns the field with which the other fields of a value are compared.
fn source<'a>(places: &[&'a Place]) -> &'a Place {
    let content = places.iter().find(|it| is_content(&it.1));
    content.unwrap_or(&places[0])
}

/// Index of the generated values of one run, which finds these values in a string in time proportional to its length.
struct Index<'a> {
    values: Vec<&'a str>,
    /// Values and offsets, by the bytes of the value from this offset on: the first bytes that differ between the two
    /// runs.
    parts: HashMap<[u8; LEAST], Vec<(usize, usize)>>,
    /// The hashes of the values, by their first digits.
    hashes: HashMap<String, (usize, String)>,
}

impl<'a> Index<'a> {
    /// Indexes the values of one of the two runs (`side`).
    fn of(values: &[[&'a str; 2]], side: usize) -> Self {
        let mut index = Self {
            values: values.iter().map(|it| it[side]).collect(),
            parts: HashMap::new(),
            hashes: HashMap::new(),
        };
        for (nth, texts) in values.iter().enumerate() {
            let [one, other] = texts.map(str::as_bytes);
            let equal = one.iter().zip(other).take_while(|(one, other)| one == other).count();
            let value = texts[side].as_bytes();
            let offset = equal.min(value.len() - LEAST);
            if let Some(part) = value[offset..].first_chunk::<LEAST>() {
                index.parts.entry(*part).or_default().push((nth, offset));
            }
            let hash = hash(texts[side]);
            index.hashes.insert(hash[..ENCODED].to_owned(), (nth, hash));
        }
        index
    }

    /// Returns the indexes of the values that a string contains, each with its form.
    fn found_in(&self, text: &str) -> BTreeSet<(usize, Form)> {
        let (mut found, all) = (BTreeSet::new(), decoded(text));
        for (at, part) in all.as_bytes().windows(LEAST).enumerate() {
            let known = <&[u8; LEAST]>::try_from(part).ok().and_then(|it| self.parts.get(it));
            for (nth, offset) in known.into_iter().flatten() {
                let rest = at.checked_sub(*offset).map(|start| &all.as_bytes()[start..]);
                if rest.is_some_and(|it| it.starts_with(self.values[*nth].as_bytes())) {
                    found.insert((*nth, Form::Value));
                }
            }
        }
        let known = hashes(text).filter_map(|it| Some((it, self.hashes.get(&it[..ENCODED])?)));
        let known = known.filter(|(digits, (_, hash))| hash.starts_with(digits));
        found.extend(known.map(|(_, (nth, _))| (*nth, Form::Hash)));
        found
    }
}

/// Returns the SHA-256 hash of a value in hexadecimal digits.
fn hash(value: &str) -> String {
    Sha256::digest(value).iter().fold(String::new(), |mut text, byte| {
        // Writing to a String does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Returns the words in a string that may be hashes.
fn hashes(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|sign: char| !sign.is_ascii_alphanumeric());
    words.filter(|it| it.len() >= ENCODED && it.bytes().all(|it| matches!(it, b'0'..=b'9' | b'a'..=b'f')))
}

/// Returns a string, followed by the decoded base64 strings that it contains.
fn decoded(text: &str) -> Cow<'_, str> {
    let is_encoded = |sign: char| sign.is_ascii_alphanumeric() || matches!(sign, '+' | '/' | '-' | '_');
    let words = text
        .split(|sign: char| !is_encoded(sign))
        .filter(|it| it.len() >= ENCODED);
    let mut all = Cow::Borrowed(text);
    for word in words {
        let bytes = BASE64_STANDARD_NO_PAD
            .decode(word)
            .or_else(|_| BASE64_URL_SAFE_NO_PAD.decode(word));
        if let Some(inner) = bytes.ok().and_then(|it| String::from_utf8(it).ok()) {
            let all = all.to_mut();
            all.push('\n');
            all.push_str(&inner);
        }
    }
    all
}

/// Returns `true` for fields with content. Metadata and status are excluded because they report events: for example,
/// the id of the last reconciliation may differ between objects.
fn is_content(path: &str) -> bool {
    !path.starts_with("metadata.") && !path.starts_with("status.")
}

/// Returns `true` if a string may be a generated value: it is not a time, and does not identify an object or a version.
fn is_generated(state: &EndState, text: &str) -> bool {
    let has_time = || is_time(text) || timed(text, Timestamp::MIN, Timestamp::MAX).is_some();
    let is_version = || text.parse().is_ok_and(|it| state.versions().key(it).is_some());
    text.len() >= LEAST && !has_time() && !is_version() && state.identities().in_text(text).is_empty()
}

/// Collects the strings and numbers in external systems and in objects that the run wrote, if `is_wanted` accepts their
/// keys. Objects that share a key are omitted. The data of Secrets is decoded.
fn texts(state: &EndState, ignored: &Mask, is_wanted: impl Fn(&str) -> bool) -> Texts {
    let mut texts = Texts::new();
    let mut add = |key: &Arc<str>, value: Value| {
        let resource = resource_of(key);
        let is_left_out = |path: &str| OWN.contains(&path) || ignored.hides(resource, path);
        for (path, leaf) in leaves(value, &is_left_out) {
            let text = match leaf {
                Value::String(text) => text,
                Value::Number(number) => number.to_string(),
                _ => continue,
            };
            texts.insert((Arc::clone(key), path), text);
        }
    };
    for (key, all) in state.all().filter(|(key, _)| is_wanted(key)) {
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
        add(key, value);
    }
    for (system, kept) in state.externals() {
        let given = kept.objects.iter().filter(|(key, _)| !kept.generated.contains(*key));
        for (name, value) in given {
            let key: Arc<str> = format!("{system} {name}").into();
            if is_wanted(&key) {
                add(&key, value.clone());
            }
        }
    }
    texts
}

fn is_secret(object: &StoredObject) -> bool {
    object.resource() == "secrets" && object.group().is_empty()
}

/// Decodes a base64 value, unless the result is not valid UTF-8.
fn decode(value: &mut Value) {
    let decoded = value
        .as_str()
        .and_then(|it| BASE64_STANDARD.decode(it).ok())
        .and_then(|it| String::from_utf8(it).ok());
    if let Some(text) = decoded {
        *value = text.into();
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::{Form, Index, hash};

    const VALUES: [[&str; 2]; 2] = [["begin-a1b2c3", "begin-d4e5f6"], ["begin-778899", "begin-aabbcc"]];

    #[rstest]
    #[case::whole_string("begin-778899", &[(1, Form::Value)])]
    #[case::within_another_string("postgres://begin-a1b2c3@db", &[(0, Form::Value)])]
    #[case::two_values("begin-a1b2c3begin-778899", &[(0, Form::Value), (1, Form::Value)])]
    #[case::common_prefix_only("begin-000000", &[])]
    #[case::in_base64("auth: YmVnaW4tYTFiMmMz", &[(0, Form::Value)])]
    #[case::value_of_another_run("begin-d4e5f6", &[])]
    fn generated_values_are_found_in_strings(#[case] text: &str, #[case] expected: &[(usize, Form)]) {
        let found: Vec<_> = Index::of(&VALUES, 0).found_in(text).into_iter().collect();
        assert_eq!(found, expected);
    }

    #[rstest]
    #[case::whole_hash(64, 1)]
    #[case::first_eight_digits(8, 1)]
    #[case::too_few_digits(7, 0)]
    fn hashes_of_generated_values_are_found(#[case] digits: usize, #[case] count: usize) {
        let text = format!("config-{}", &hash(VALUES[1][0])[..digits]);
        let found = Index::of(&VALUES, 0).found_in(&text);
        assert_eq!(found.iter().filter(|it| **it == (1, Form::Hash)).count(), count);
    }
}
