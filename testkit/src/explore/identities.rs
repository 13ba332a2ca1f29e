//! `Identities`: canonical names for what a server and its workers hand out, so that two runs can be compared.
//!
//! A uid, a generated name, a Pod's address and the hash of a template are names of objects that differ between runs.
//! Wherever one stands in an object it is replaced by the object it means: `uid of configmaps default/a`. So a uid of
//! another object is a difference, and the order in which uids were drawn is none.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::Bound;
use std::sync::Arc;

use fake_apiserver::StoredObject;
use memchr::memmem;
use serde_json::{Map, Value};

use super::owners::generate_name;

/// The length of a uid.
const UID_CHARS: usize = 36;

/// Labels whose values are hashes of templates; names of ReplicaSets and ControllerRevisions end with them.
const HASH_LABELS: [&str; 3] = [
    "pod-template-hash",
    "controller.kubernetes.io/hash",
    "controller-revision-hash",
];

/// Resources whose objects are named after the hash of a template.
const HASHED: [&str; 2] = ["replicasets.apps", "controllerrevisions.apps"];

/// Fields in which addresses are handed out.
const ADDRESSES: [(&str, [&str; 3]); 2] = [
    ("pods", ["status", "podIP", "podIPs"]),
    ("services", ["spec", "clusterIP", "clusterIPs"]),
];

/// The object that a token refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Referent {
    /// `uid`, `name`, `address` or `hash`
    pub(crate) what: &'static str,
    /// The key of the object; objects with generated names share one.
    pub(crate) key: Arc<str>,
    pub(crate) which: Which,
}

/// Distinguishes the objects that share a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    /// The one at this place among those that exist.
    Existing(usize),
    /// The n-th that was deleted, counted from 1.
    Deleted(usize),
}

/// The tokens of one state: uids, generated names, addresses and hashes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Identities {
    tokens: BTreeMap<String, Referent>,
}

/// The keys of objects: `pods default/web-0`, and `pods default/web-*` for generated names.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    hashes: BTreeSet<String>,
    uids: BTreeSet<String>,
}

impl Keys {
    /// Finds out what in names was handed out.
    pub(crate) fn of<'a>(objects: impl Iterator<Item = &'a StoredObject> + Clone) -> Self {
        let mut keys = Self::default();
        for object in objects.clone() {
            let resource = resource(object);
            if HASHED.contains(&&*resource)
                && let Some(hash) = hash_in_name(object)
            {
                keys.hashes.insert(hash);
            }
        }
        if objects.clone().any(|it| has_uid(it.name())) {
            keys.uids = objects.map(|it| it.uid().to_owned()).collect();
        }
        keys
    }

    /// The key of an object; what in its name was handed out is a `*`.
    pub(crate) fn key(&self, object: &StoredObject) -> String {
        let mut name = Cow::Borrowed(object.name());
        if let Some(prefix) = generate_name(object) {
            name = format!("{prefix}*").into();
        }
        let uids = has_uid(&name).then(|| self.uids.iter());
        let mut tokens = self.hashes.iter().chain(uids.into_iter().flatten());
        if let Some(starred) = tokens.find_map(|token| starred(&name, token)) {
            name = starred.into();
        }
        format!("{} {}/{name}", resource(object), object.namespace())
    }

    fn has_hashes(&self) -> bool {
        !self.hashes.is_empty()
    }
}

/// `web-7d4b8fdd` → `web-*`, if the name has the token as a word.
fn starred(name: &str, token: &str) -> Option<String> {
    let start = memmem::find(name.as_bytes(), token.as_bytes())?;
    let end = start + token.len();
    is_word(name, start, end).then(|| format!("{}*{}", &name[..start], &name[end..]))
}

/// Returns `true` if no letter or digit stands right before or after.
fn is_word(text: &str, start: usize, end: usize) -> bool {
    let is_part = |it: Option<&u8>| it.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    !is_part(start.checked_sub(1).and_then(|it| bytes.get(it))) && !is_part(bytes.get(end))
}

/// Returns `true` if a text contains a uid.
fn has_uid(text: &str) -> bool {
    let is_uid = |it: &[u8]| {
        it.iter().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => *byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
    };
    text.len() >= UID_CHARS && text.as_bytes().windows(UID_CHARS).any(is_uid)
}

/// The hash of a template with which a name ends.
fn hash_in_name(object: &StoredObject) -> Option<String> {
    let value = object.value();
    let labels = &value["metadata"]["labels"];
    let hashes = HASH_LABELS.iter().filter_map(|it| labels[*it].as_str());
    let mut ends = hashes.filter(|it| object.name().ends_with(&format!("-{it}")));
    ends.next().map(str::to_owned)
}

impl Identities {
    /// The tokens of objects that exist, in groups by their keys, and of those that were deleted, oldest first.
    pub(crate) fn of<'a>(
        keys: &Keys,
        existing: impl Iterator<Item = (Arc<str>, usize, &'a StoredObject)>,
        deleted: &[StoredObject],
    ) -> Self {
        let mut identities = Self::default();
        let mut ambiguous = Vec::new();
        for (key, place, object) in existing {
            identities.enter(keys, &key, Which::Existing(place), object, &mut ambiguous);
        }
        let mut counts: BTreeMap<Arc<str>, usize> = BTreeMap::new();
        for object in deleted {
            let key: Arc<str> = keys.key(object).into();
            let count = counts.entry(Arc::clone(&key)).or_default();
            *count += 1;
            identities.enter(keys, &key, Which::Deleted(*count), object, &mut ambiguous);
        }
        for token in ambiguous {
            identities.tokens.remove(&token);
        }
        identities
    }

    fn enter(&mut self, keys: &Keys, key: &Arc<str>, which: Which, object: &StoredObject, ambiguous: &mut Vec<String>) {
        let mut enter = |what: &'static str, token: &str| {
            let key = Arc::clone(key);
            let referent = Referent { what, key, which };
            match self.tokens.get(token) {
                // The address of a Pod that is gone is given to the next one.
                Some(known) if matches!(known.which, Which::Existing(_)) && matches!(which, Which::Deleted(_)) => {}
                Some(known) if *known == referent => {}
                // Pods on the host's network share its address, and equal templates their hash.
                Some(known) if what != "uid" && known.what == what => ambiguous.push(token.to_owned()),
                Some(_) | None => drop(self.tokens.insert(token.to_owned(), referent)),
            }
        };
        if !object.uid().is_empty() {
            enter("uid", object.uid());
        }
        if key.contains('*') {
            enter("name", object.name());
        }
        let resource = key.split(' ').next().unwrap_or_default();
        if keys.has_hashes()
            && HASHED.contains(&resource)
            && let Some(hash) = hash_in_name(object)
        {
            enter("hash", &hash);
        }
        if let Some((_, [part, one, all])) = ADDRESSES.iter().find(|(of, _)| *of == resource)
            && memmem::find(object.stored_bytes(), one.as_bytes()).is_some()
        {
            let value = object.value();
            let fields = &value[*part];
            let all = fields[*all].as_array().into_iter().flatten();
            let all = all.filter_map(|it| it["ip"].as_str().or(it.as_str()));
            let addresses = fields[*one].as_str().into_iter().chain(all);
            for address in addresses.filter(|it| it.parse::<IpAddr>().is_ok()) {
                enter("address", address);
            }
        }
    }

    /// Returns the object that a token refers to.
    pub(crate) fn get(&self, token: &str) -> Option<&Referent> {
        self.tokens.get(token)
    }

    /// The longest token that stands at a place in a text as a word.
    fn at<'t>(&self, text: &'t str, start: usize) -> Option<(&'t str, &Referent)> {
        let mut end = text.len();
        loop {
            let below = (Bound::Unbounded, Bound::Included(&text[start..end]));
            let (token, referent) = self.tokens.range::<str, _>(below).next_back()?;
            let same = text.as_bytes()[start..end].iter().zip(token.as_bytes());
            let common = same.take_while(|(one, other)| one == other).count();
            if common == token.len() && is_word(text, start, start + common) {
                return Some((&text[start..start + common], referent));
            }
            // A shorter token may still fit.
            let shorter = start + common.min((end - start).saturating_sub(1));
            end = (start..=shorter).rev().find(|it| text.is_char_boundary(*it))?;
            if end == start {
                return None;
            }
        }
    }

    /// The tokens in a text, each with its place.
    pub(crate) fn in_text<'t>(&self, text: &'t str) -> Vec<(usize, &'t str, &Referent)> {
        let mut found = Vec::new();
        let mut at = 0;
        while at < text.len() {
            let is_start = text.is_char_boundary(at) && text.as_bytes()[at].is_ascii_alphanumeric();
            match is_start.then(|| self.at(text, at)).flatten() {
                Some((token, referent)) => {
                    found.push((at, token, referent));
                    at += token.len();
                }
                None => {
                    let rest = &text.as_bytes()[at..];
                    at += rest.iter().take_while(|it| it.is_ascii_alphanumeric()).count().max(1);
                }
            }
        }
        found
    }
}

/// Replaces the tokens in a value by what `label` calls them. Lists whose parts have tokens are sorted then, since the
/// order of handed-out names does not count. Returns `true` if there were any.
pub(crate) fn replace(value: &mut Value, identities: &Identities, label: &dyn Fn(&Referent) -> String) -> bool {
    match value {
        Value::String(text) => match replaced(text, identities, label) {
            Some(replaced) => {
                *text = replaced;
                true
            }
            None => false,
        },
        Value::Array(items) => {
            let mut has_any = false;
            for item in items.iter_mut() {
                has_any |= replace(item, identities, label);
            }
            if has_any {
                items.sort_by_cached_key(Value::to_string);
            }
            has_any
        }
        Value::Object(fields) => {
            let mut has_any = false;
            for (_, field) in fields.iter_mut() {
                has_any |= replace(field, identities, label);
            }
            let has_named = |it: &String| !identities.in_text(it).is_empty();
            if fields.keys().any(has_named) {
                let named = std::mem::take(fields).into_iter();
                let named = named.map(|(name, field)| (replaced(&name, identities, label).unwrap_or(name), field));
                *fields = named.collect::<Map<String, Value>>();
                has_any = true;
            }
            has_any
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

fn replaced(text: &str, identities: &Identities, label: &dyn Fn(&Referent) -> String) -> Option<String> {
    let tokens = identities.in_text(text);
    match tokens.as_slice() {
        [] => None,
        [(0, token, referent)] if token.len() == text.len() => Some(label(referent)),
        _ => {
            let (mut replaced, mut end) = (String::new(), 0);
            for (at, token, referent) in tokens {
                replaced.push_str(&text[end..at]);
                replaced.push_str(&format!("{{{}}}", label(referent)));
                end = at + token.len();
            }
            replaced.push_str(&text[end..]);
            Some(replaced)
        }
    }
}

impl Referent {
    /// In words; `ordinal` tells objects of the same key apart.
    pub(crate) fn words(&self, ordinal: Option<usize>) -> String {
        let key = self.key.replace(" /", " ");
        let mut words = format!("{} of {key}", self.what);
        match self.which {
            Which::Existing(_) => {}
            Which::Deleted(1) => words.push_str(", deleted"),
            Which::Deleted(nth) => words.push_str(&format!(", deleted ({nth})")),
        }
        if let Some(ordinal) = ordinal {
            words.push_str(&format!(", {ordinal} of its kind"));
        }
        words
    }
}

/// The plural and the group: `deployments.apps`.
pub(crate) fn resource(object: &StoredObject) -> Cow<'_, str> {
    match object.group() {
        "" => object.resource().into(),
        group => format!("{}.{group}", object.resource()).into(),
    }
}
