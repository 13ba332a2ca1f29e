//! `EndState`: the result of a run, in a form that can be compared with another run's.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use fake_apiserver::{ApiServer, StoredObject, Worker};
use jiff::Timestamp;
use serde_json::Value;

use super::derived::Deciders;
use super::identities::{Identities, Keys, Referent, Which, resource};
use super::pair::Pair;
use super::sameness::owners;
use super::times::{machine_since, times_within};
use super::trace::timeless;
use super::versions::Versions;
use crate::work::Work;

/// Most differences that are reported.
const SHOWN: usize = 12;

/// Most objects that are named when their fields were derived by workers.
const FOLDED: usize = 4;

/// All objects by resource, namespace and name. Objects with generated names share the key of their prefix.
#[derive(Clone, Debug, Default)]
pub(crate) struct EndState {
    objects: BTreeMap<Arc<str>, Vec<Kept>>,
    /// By-products, which others may name.
    others: Vec<StoredObject>,
    /// Objects that were deleted in the run, oldest first.
    deleted: Vec<StoredObject>,
    keys: Arc<Keys>,
    /// Made when they are first asked for.
    identities: OnceLock<Identities>,
    /// The server, and the revision at which the run began.
    history: Option<(ApiServer, u64)>,
    /// Made when they are first asked for.
    versions: OnceLock<Versions>,
    /// A garbage collector runs, so that nothing is left that it would take away.
    is_collected: bool,
    deciders: Deciders,
}

/// An object of an end state.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) object: StoredObject,
    /// The run has not changed it.
    pub(crate) is_untouched: bool,
    /// The tokens it has, its own uid aside; made when they are first asked for.
    mentions: OnceLock<Vec<String>>,
    /// The uids of its owners; found when they are first asked for.
    owners: OnceLock<Vec<String>>,
}

impl Kept {
    pub(crate) fn owners(&self) -> &[String] {
        self.owners.get_or_init(|| owners(&self.object))
    }
}

/// Differences between two runs without faults, which are not compared.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mask {
    /// Resource and path, with `*` for the places in lists.
    paths: BTreeSet<(String, String)>,
    /// Resources whose objects have other names.
    names: BTreeSet<String>,
}

/// A field that differs.
struct Difference {
    key: Arc<str>,
    path: String,
    text: String,
    /// The server's workers wrote it, because of what controllers wrote.
    is_derived: bool,
}

impl Difference {
    fn line(&self) -> String {
        format!("{}{}: {}", self.key.replace(" /", " "), prefixed(&self.path), self.text)
    }
}

impl EndState {
    /// Reads the current state; `base` is the revision at which the run began.
    pub(crate) fn of(server: &ApiServer, base: u64, work: &Work) -> Self {
        let (others, objects) = server
            .stored_objects()
            .into_iter()
            .partition::<Vec<_>, _>(|it| work.is_beside(it.group(), it.resource()));
        let keys = Keys::of(objects.iter());
        let mut state = Self {
            is_collected: server.runs(Worker::GarbageCollector),
            deciders: Deciders::of(server),
            deleted: server.deleted_objects(base),
            others,
            history: Some((server.clone(), base)),
            ..Self::default()
        };
        for object in objects {
            let is_untouched = object.revision() <= base;
            let key = match is_untouched {
                true => plain_key(&object),
                false => keys.key(&object),
            };
            let key: Arc<str> = (*timeless(&resource(&object), &key)).into();
            let kept = Kept {
                object,
                is_untouched,
                mentions: OnceLock::new(),
                owners: OnceLock::new(),
            };
            state.objects.entry(key).or_default().push(kept);
        }
        state.keys = Arc::new(keys);
        state
    }

    /// Returns the names handed out in the run and the objects they belong to.
    pub(crate) fn identities(&self) -> &Identities {
        self.identities.get_or_init(|| {
            let existing = self.objects.iter().flat_map(|(key, all)| {
                let all = all.iter().enumerate();
                all.map(move |(place, kept)| (Arc::clone(key), place, &kept.object))
            });
            let others = self.others.iter().map(|it| (plain_key(it).into(), 0, it));
            Identities::of(&self.keys, existing.chain(others), &self.deleted)
        })
    }

    /// Returns the object that a token refers to.
    pub(crate) fn identity(&self, token: &str) -> Option<&Referent> {
        self.identities().get(token)
    }

    /// Returns the versions that objects had in the run.
    pub(crate) fn versions(&self) -> &Versions {
        self.versions.get_or_init(|| match &self.history {
            Some((server, base)) => Versions::of(server, *base, &self.keys),
            None => Versions::default(),
        })
    }

    /// The object that has this uid and is not deleted.
    fn existing(&self, uid: &str) -> Option<&Referent> {
        let found = self.identity(uid);
        found.filter(|it| matches!(it.which, Which::Existing(_)))
    }

    pub(crate) fn exists(&self, uid: &str) -> bool {
        self.existing(uid).is_some()
    }

    /// Returns `true` if only one object has this key.
    pub(crate) fn is_single(&self, key: &str) -> bool {
        self.named(key).len() <= 1
    }

    pub(crate) fn keys_of_several(&self) -> impl Iterator<Item = &Arc<str>> {
        self.objects.iter().filter(|(_, all)| all.len() > 1).map(|(key, _)| key)
    }

    /// The tokens of an object, its own uid aside.
    pub(crate) fn mentions<'a>(&self, kept: &'a Kept) -> &'a [String] {
        kept.mentions.get_or_init(|| {
            let mut object = kept.object.value();
            if let Some(metadata) = object["metadata"].as_object_mut() {
                metadata.retain(|field, _| !matches!(field.as_str(), "name" | "uid" | "managedFields"));
            }
            let text = object.to_string();
            let found = self.identities().in_text(&text).into_iter();
            found.map(|(_, token, _)| token.to_owned()).collect()
        })
    }

    pub(crate) fn hide_choices(&self, key: &str, object: &mut Value) {
        let resource = key.split(' ').next().unwrap_or_default();
        self.deciders.hide_choice(resource, object);
    }

    /// Collects the differences from another run without faults, and the fields that hold a time of the machine since
    /// `began`: a controller that reads its clock writes another one in each run, though often not in the first ones.
    pub(crate) fn mask(&self, other: &Self, ignored: &[String], began: Timestamp) -> Mask {
        let mut mask = Mask::default();
        for difference in self.differences(other, &Mask::default()) {
            let resource = difference.key.split(' ').next().unwrap_or_default().to_owned();
            match difference.path.is_empty() {
                true => mask.names.insert(resource),
                false => mask.paths.insert((resource, general(&difference.path))),
            };
        }
        mask.add(Mask::of(ignored));
        let machine = machine_since(began);
        for (key, kept) in self
            .objects
            .iter()
            .flat_map(|(key, all)| all.iter().map(move |it| (key, it)))
        {
            let resource = key.split(' ').next().unwrap_or_default();
            let paths = times_within(&kept.object.value(), &machine);
            mask.paths
                .extend(paths.iter().map(|it| (resource.to_owned(), general(it))));
        }
        mask
    }

    /// Lists the differences of `found`, one line a field; empty if there are none. Fields written by controllers come
    /// first; fields that workers derived from them are then folded into one line.
    pub(crate) fn compare(&self, found: &Self, mask: &Mask) -> Vec<String> {
        let (derived, mut differences): (Vec<_>, Vec<_>) =
            self.differences(found, mask).into_iter().partition(|it| it.is_derived);
        let folded = match differences.is_empty() {
            true => {
                differences = derived;
                None
            }
            false => folded(&derived),
        };
        let left_out = differences.len().saturating_sub(SHOWN);
        // Counters in a status depend on the history of the run.
        let mut counted: Vec<String> = differences.iter().map(|it| general(&it.path)).collect();
        counted.sort();
        counted.dedup();
        counted.retain(|it| folded.is_none() && it.starts_with("status."));
        let is_counted = !counted.is_empty() && counted.len() <= FOLDED;
        let is_counted = is_counted && differences.iter().all(|it| it.path.starts_with("status."));
        let mut lines: Vec<String> = differences.into_iter().take(SHOWN).map(|it| it.line()).collect();
        if left_out > 0 {
            lines.push(format!("and {left_out} more"));
        }
        lines.extend(folded);
        if is_counted {
            let calls: String = counted.iter().map(|it| format!(".ignore({it:?})")).collect();
            lines.push(format!(
                "if a status may depend on the way it came about, leave it out: `{calls}`"
            ));
        }
        lines
    }

    /// The same without what workers derived, for runs whose ways were not the same.
    pub(crate) fn compare_decided(&self, found: &Self, mask: &Mask) -> Vec<String> {
        let differences = self.differences(found, mask).into_iter().filter(|it| !it.is_derived);
        let lines = differences.map(|it| it.line());
        lines.take(SHOWN).collect()
    }

    fn differences(&self, found: &Self, mask: &Mask) -> Vec<Difference> {
        let pair = Pair::new([self, found], mask);
        let mut differences = Vec::new();
        let keys: BTreeSet<&Arc<str>> = self.objects.keys().chain(found.objects.keys()).collect();
        for key in keys {
            let (left, right) = (self.named(key), found.named(key));
            let mut fields = pair.fields_of_one(key, left, right);
            if !fields.is_empty() && !self.is_collected {
                let (left, right) = self.without_garbage(found, left.to_vec(), right.to_vec());
                fields = pair.fields_of_one(key, &left, &right);
            }
            let kept = || left.iter().chain(right).map(|it| it.object.value());
            differences.extend(fields.into_iter().map(|(path, text)| Difference {
                key: Arc::clone(key),
                is_derived: kept().all(|it| self.deciders.is_derived(&it, &path)),
                path,
                text,
            }));
        }
        differences
    }

    /// Returns whether workers alone wrote an object.
    pub(crate) fn is_derived(&self, kept: &Kept) -> bool {
        self.deciders.is_derived(&kept.object.value(), "")
    }

    /// All objects, in the order of their keys.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&Arc<str>, &Vec<Kept>)> {
        self.objects.iter()
    }

    pub(crate) fn named(&self, key: &str) -> &[Kept] {
        self.objects.get(key).map_or(&[], Vec::as_slice)
    }

    /// Returns the objects of one key that are not garbage. Garbage of one run is kept where the other run lacks the
    /// object, so that an object in use that has lost its owner is reported as an orphan.
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

    /// Returns `true` if a garbage collector would delete the object: it has owners, and none of them exists and stays.
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
        owners.peek().is_some()
            && owners.all(|uid| {
                let Some(owner) = self.existing(uid) else { return true };
                match (owner.which, self.named(&owner.key)) {
                    (Which::Existing(place), all) if place < all.len() => {
                        self.has_lost_owners(&all[place].object, looked_at)
                    }
                    // Events and Leases own nothing that counts.
                    _ => false,
                }
            })
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
    /// Hides these fields of every resource.
    pub(crate) fn of(ignored: &[String]) -> Self {
        Self {
            paths: ignored.iter().map(|it| ("*".to_owned(), it.clone())).collect(),
            names: BTreeSet::new(),
        }
    }

    /// Hides what another mask hides, too.
    pub(crate) fn add(&mut self, other: Self) {
        self.paths.extend(other.paths);
        self.names.extend(other.names);
    }

    /// Returns `true` if objects of a resource have other names in each run.
    pub(crate) fn hides_names(&self, resource: &str) -> bool {
        self.names.contains(resource)
    }

    /// Removes from a value, which stands at `path`, the parts that are hidden.
    pub(crate) fn remove(&self, resource: &str, path: &str, value: &mut Value) {
        let step = |name: &str| match path {
            "" => name.to_owned(),
            _ => format!("{path}.{name}"),
        };
        match value {
            Value::Object(fields) => {
                fields.retain(|name, _| !self.hides(resource, &step(name)));
                for (name, field) in fields.iter_mut() {
                    self.remove(resource, &step(name), field);
                }
            }
            Value::Array(items) => {
                for item in items {
                    self.remove(resource, &step("0"), item);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    pub(crate) fn hides(&self, resource: &str, path: &str) -> bool {
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

fn plain_key(object: &StoredObject) -> String {
    format!("{} {}/{}", resource(object), object.namespace(), object.name())
}

/// `3 fields of pods default/web-*, …`, in one line.
fn folded(derived: &[Difference]) -> Option<String> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for difference in derived {
        *counts.entry(difference.key.replace(" /", " ")).or_default() += 1;
    }
    let left_out = counts.len().saturating_sub(FOLDED);
    let mut parts: Vec<String> = counts
        .iter()
        .take(FOLDED)
        .map(|(key, count)| format!("{key} ({count})"))
        .collect();
    if left_out > 0 {
        parts.push(format!("{left_out} more objects"));
    }
    (!parts.is_empty()).then(|| format!("and fields derived by workers: {}", parts.join(", ")))
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
