//! `EndState`: what a run leaves behind, in a form in which two runs can be compared.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use fake_apiserver::{ApiServer, StoredObject, Worker};
use memchr::memmem;
use serde_json::{Map, Value};

use super::sameness::are_the_same;
use crate::report::shortened;

/// Resources that are the by-products of a run: nobody's state.
const NOT_STATE: &[&str] = &["events", "leases"];

/// How many differences are told.
const SHOWN: usize = 12;

/// The longest value shown.
const VALUE_CHARS: usize = 200;

/// All objects by resource, namespace and name. Objects with a generated name share the key of what it begins with.
#[derive(Clone, Debug, Default)]
pub(crate) struct EndState {
    objects: BTreeMap<String, Vec<Kept>>,
    /// The uids of all objects, for telling owners that are gone.
    uids: BTreeSet<String>,
    /// A garbage collector runs, so that nothing is left that it would take away.
    is_collected: bool,
}

#[derive(Clone, Debug)]
struct Kept {
    object: StoredObject,
    /// It is as it was before the run.
    is_untouched: bool,
}

/// What differs between two runs in which nothing went wrong, and so is not compared.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mask {
    /// Resource and path, with `*` for the places in lists.
    paths: BTreeSet<(String, String)>,
    /// Resources whose objects have other names.
    names: BTreeSet<String>,
}

/// A field that differs.
struct Difference {
    key: String,
    path: String,
    text: String,
}

impl EndState {
    /// What is there now; `base` is the revision at which the run began.
    pub(crate) fn of(server: &ApiServer, base: u64) -> Self {
        let mut state = Self {
            is_collected: server.runs(Worker::GarbageCollector),
            ..Self::default()
        };
        for object in server.stored_objects() {
            state.uids.insert(object.uid().to_owned());
            if NOT_STATE.contains(&object.resource()) {
                continue;
            }
            let is_untouched = object.revision() <= base;
            let mut key = format!("{} {}/{}", resource(&object), object.namespace(), object.name());
            // Looked for in the text first: decoding is dear.
            if !is_untouched
                && memmem::find(object.stored_bytes(), b"\"generateName\":").is_some()
                && let Some(prefix) = object.value()["metadata"]["generateName"].as_str()
                && object.name().starts_with(prefix)
            {
                key = format!("{} {}/{prefix}*", resource(&object), object.namespace());
            }
            let kept = Kept { object, is_untouched };
            state.objects.entry(key).or_default().push(kept);
        }
        state
    }

    /// What differs from another run's that was to be the same.
    pub(crate) fn mask(&self, other: &Self, ignored: &[String]) -> Mask {
        let mut mask = Mask::default();
        for difference in self.differences(other, &Mask::default()) {
            let resource = difference.key.split(' ').next().unwrap_or_default().to_owned();
            match difference.path.is_empty() {
                true => mask.names.insert(resource),
                false => mask.paths.insert((resource, general(&difference.path))),
            };
        }
        mask.paths.extend(ignored.iter().map(|it| ("*".to_owned(), it.clone())));
        mask
    }

    /// How `found` differs, for people, one line a field; empty if it does not.
    pub(crate) fn compare(&self, found: &Self, mask: &Mask) -> Vec<String> {
        let differences = self.differences(found, mask);
        let left_out = differences.len().saturating_sub(SHOWN);
        let mut lines: Vec<String> = differences
            .into_iter()
            .take(SHOWN)
            .map(|it| format!("{}{}: {}", it.key.replace(" /", " "), prefixed(&it.path), it.text))
            .collect();
        if left_out > 0 {
            lines.push(format!("and {left_out} more"));
        }
        lines
    }

    fn differences(&self, found: &Self, mask: &Mask) -> Vec<Difference> {
        let mut differences = Vec::new();
        let keys: BTreeSet<&String> = self.objects.keys().chain(found.objects.keys()).collect();
        for key in keys {
            let (left, right) = (self.named(key), found.named(key));
            let mut fields = self.fields_of_one(found, mask, key, left, right);
            if !fields.is_empty() && !self.is_collected {
                let (left, right) = self.without_garbage(found, left.to_vec(), right.to_vec());
                fields = self.fields_of_one(found, mask, key, &left, &right);
            }
            differences.extend(fields.into_iter().map(|(path, text)| Difference {
                key: key.clone(),
                path,
                text,
            }));
        }
        differences
    }

    fn named(&self, key: &str) -> &[Kept] {
        self.objects.get(key).map_or(&[], Vec::as_slice)
    }

    /// What differs in the objects of one key: paths, and texts for people.
    fn fields_of_one(
        &self,
        found: &Self,
        mask: &Mask,
        key: &str,
        left: &[Kept],
        right: &[Kept],
    ) -> Vec<(String, String)> {
        let resource = key.split(' ').next().unwrap_or_default();
        if left.len() != right.len() {
            let is_masked = mask.names.contains(resource);
            let difference = (!is_masked).then(|| (String::new(), number(left.len(), right.len())));
            return difference.into_iter().collect();
        }
        let unmasked = |left: &Value, right: &Value| {
            let mut fields = Vec::new();
            fields_that_differ("", left, right, &mut fields);
            fields.retain(|(path, _)| !mask.hides(resource, path));
            fields
        };
        if let ([left], [right]) = (left, right) {
            let is_the_same = left.is_untouched && right.is_untouched || self.are_the_same(left, found, right);
            return match is_the_same {
                true => Vec::new(),
                false => unmasked(&self.shown(left), &found.shown(right)),
            };
        }
        // Objects with generated names: which is which does not matter.
        let mut differences = Vec::new();
        let mut remaining: Vec<Value> = right.iter().map(|it| found.shown(it)).collect();
        for object in left.iter().map(|it| self.shown(it)) {
            match remaining.iter().position(|other| unmasked(&object, other).is_empty()) {
                Some(at) => drop(remaining.remove(at)),
                None => {
                    let nearest = remaining
                        .iter()
                        .map(|other| unmasked(&object, other))
                        .min_by_key(Vec::len);
                    differences.extend(nearest.unwrap_or_default());
                }
            }
        }
        differences
    }

    /// The objects of one key that are no garbage. Garbage of one run stands for what is missing there, so that an
    /// object that should be in use and has lost its owner is told as such.
    fn without_garbage(&self, found: &Self, left: Vec<Kept>, right: Vec<Kept>) -> (Vec<Kept>, Vec<Kept>) {
        let (gone_left, mut left): (Vec<Kept>, Vec<Kept>) = left.into_iter().partition(|it| self.is_garbage(it));
        let (gone_right, mut right): (Vec<Kept>, Vec<Kept>) = right.into_iter().partition(|it| found.is_garbage(it));
        let (missing_left, missing_right) = (
            right.len().saturating_sub(left.len()),
            left.len().saturating_sub(right.len()),
        );
        left.extend(gone_left.into_iter().take(missing_left));
        right.extend(gone_right.into_iter().take(missing_right));
        (left, right)
    }

    /// Whether a garbage collector would take it away: it has owners, and none of them is there and stays.
    fn is_garbage(&self, kept: &Kept) -> bool {
        let mut looked_at = BTreeSet::new();
        self.has_lost_owners(&kept.object, &mut looked_at)
    }

    fn has_lost_owners(&self, object: &StoredObject, looked_at: &mut BTreeSet<String>) -> bool {
        // Owners in a circle keep each other.
        if !looked_at.insert(object.uid().to_owned()) {
            return false;
        }
        let value = object.value();
        let owners = value["metadata"]["ownerReferences"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let mut owners = owners.iter().filter_map(|it| it["uid"].as_str()).peekable();
        let all = || self.objects.values().flatten();
        owners.peek().is_some()
            && owners.all(|uid| match all().find(|it| it.object.uid() == uid) {
                Some(owner) => self.has_lost_owners(&owner.object, looked_at),
                None => !self.uids.contains(uid),
            })
    }

    /// Whether two objects need not be decoded to know that they are the same.
    fn are_the_same(&self, left: &Kept, found: &Self, right: &Kept) -> bool {
        let in_left = |uid: &str| self.uids.contains(uid);
        let in_right = |uid: &str| found.uids.contains(uid);
        are_the_same([&left.object, &right.object], [&in_left, &in_right])
    }

    /// An object without what two runs never have in common.
    fn shown(&self, kept: &Kept) -> Value {
        let mut object = kept.object.value();
        let Some(metadata) = object["metadata"].as_object_mut() else {
            return object;
        };
        for field in [
            "resourceVersion",
            "uid",
            "creationTimestamp",
            "managedFields",
            "generation",
        ] {
            metadata.remove(field);
        }
        if let Some(time) = metadata.get_mut("deletionTimestamp") {
            *time = "is set".into();
        }
        if metadata.contains_key("generateName") {
            metadata.remove("name");
        }
        if let Some(owners) = metadata.get_mut("ownerReferences").and_then(Value::as_array_mut) {
            for owner in owners.iter_mut().filter_map(Value::as_object_mut) {
                let is_there = owner
                    .get("uid")
                    .and_then(Value::as_str)
                    .is_some_and(|it| self.uids.contains(it));
                let uid = if is_there {
                    "of an object that exists"
                } else {
                    "of nothing: an orphan"
                };
                owner.insert("uid".into(), uid.into());
            }
        }
        object
    }

    /// The newest write to anything that is state, and how many objects there are.
    pub(crate) fn newest(&self) -> (u64, usize) {
        let all = self.objects.values().flatten();
        let newest = all.clone().map(|it| it.object.revision()).max().unwrap_or_default();
        (newest, all.count())
    }

    /// The objects written after a revision.
    pub(crate) fn written_after(&self, revision: u64) -> Vec<String> {
        let written = self
            .objects
            .iter()
            .filter(|(_, all)| all.iter().any(|it| it.object.revision() > revision));
        written.map(|(key, _)| key.replace(" /", " ")).collect()
    }
}

impl Mask {
    /// Hides what another mask hides, too.
    pub(crate) fn add(&mut self, other: Self) {
        self.paths.extend(other.paths);
        self.names.extend(other.names);
    }

    fn hides(&self, resource: &str, path: &str) -> bool {
        if self.paths.is_empty() {
            return false;
        }
        let path = general(path);
        let covers = |hidden: &str| {
            path.strip_prefix(hidden)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        self.paths
            .iter()
            .any(|(of, hidden)| (of == resource || of == "*") && covers(hidden))
    }
}

fn resource(object: &StoredObject) -> String {
    match object.group() {
        "" => object.resource().to_owned(),
        group => format!("{}.{group}", object.resource()),
    }
}

fn number(expected: usize, found: usize) -> String {
    match (expected, found) {
        (1, 0) => "it is missing".to_owned(),
        (0, 1) => "it should not be there".to_owned(),
        _ => format!("there should be {expected} of them, and there are {found}"),
    }
}

fn prefixed(path: &str) -> String {
    if path.is_empty() {
        String::new()
    } else {
        format!(" {path}")
    }
}

/// `spec.containers.0.image` → `spec.containers.*.image`
fn general(path: &str) -> String {
    let steps = path.split('.').map(|it| {
        if it.bytes().all(|it| it.is_ascii_digit()) {
            "*"
        } else {
            it
        }
    });
    steps.collect::<Vec<_>>().join(".")
}

fn fields_that_differ(path: &str, expected: &Value, found: &Value, out: &mut Vec<(String, String)>) {
    let step = |name: &str| match path {
        "" => name.to_owned(),
        _ => format!("{path}.{name}"),
    };
    match (expected, found) {
        (Value::Object(expected), Value::Object(found)) => {
            let names: BTreeSet<&String> = Map::keys(expected).chain(found.keys()).collect();
            for name in names {
                let nothing = Value::Null;
                let (left, right) = (
                    expected.get(name).unwrap_or(&nothing),
                    found.get(name).unwrap_or(&nothing),
                );
                fields_that_differ(&step(name), left, right, out);
            }
        }
        (Value::Array(expected), Value::Array(found)) if expected.len() == found.len() => {
            for (at, (left, right)) in expected.iter().zip(found).enumerate() {
                fields_that_differ(&step(&at.to_string()), left, right, out);
            }
        }
        _ if expected == found => {}
        _ => {
            let show = |value: &Value| match value {
                Value::Null => "nothing".to_owned(),
                value => shortened(&value.to_string(), VALUE_CHARS),
            };
            let mut text = String::new();
            // Writing to a String does not fail.
            let _ = write!(text, "expected {}, found {}", show(expected), show(found));
            out.push((path.to_owned(), text));
        }
    }
}
