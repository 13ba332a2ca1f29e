//! `EndState`: the final state of a run, in a form that can be compared with other runs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use fake_apiserver::{ApiServer, StoredObject, Worker};
use jiff::Timestamp;
use serde_json::Value;

use super::counts::Count;
use super::derived::Deciders;
use super::difference::Difference;
use super::identities::{Identities, Keys, Referent, Which, has_time_in_name, resource};
use super::key::resource_of;
use super::pair::Pair;
use super::permutations::{is_list_reordered, take_permuted};
use super::sameness::owners;
use super::times::{is_time, machine_since, times_within};
use super::versions::Versions;
use crate::explore::trace::timeless;
use crate::externals::Contents;
use crate::mask::{Mask, general};
use crate::templates::Templates;
use crate::work::Work;

/// Maximum number of reported differences.
const SHOWN: usize = 12;

/// Maximum number of objects in the summary of fields that workers derived, and of fields that a hint suggests to
/// ignore.
const FOLDED: usize = 4;

/// All objects by resource, namespace and name. Objects with generated names share the key of their prefix.
#[derive(Clone, Debug, Default)]
pub(crate) struct EndState {
    objects: BTreeMap<Arc<str>, Vec<Kept>>,
    /// Events and Leases, which are not compared but which other objects may refer to.
    others: Vec<StoredObject>,
    /// Objects that were deleted in the run, oldest first.
    deleted: Vec<StoredObject>,
    keys: Arc<Keys>,
    /// Generated values and the objects that they identify; computed on first use.
    identities: OnceLock<Identities>,
    /// The server, and the revision at which the run began.
    history: Option<(ApiServer, u64)>,
    /// The last revision in the state. The run may continue, for example if this is the state after a step.
    last: u64,
    /// Versions of the objects written in the run; computed on first use.
    versions: OnceLock<Versions>,
    /// Holders of the Leases; computed on first use.
    holders: OnceLock<BTreeSet<String>>,
    /// Set if a garbage collector runs, so that the state does not contain garbage.
    is_collected: bool,
    /// Set if the order of names in a status is irrelevant.
    pub(super) sorts_names: bool,
    /// Set if objects that only record earlier rollouts are not compared.
    pub(super) ignores_rollouts: bool,
    deciders: Deciders,
    /// Contents of external systems.
    externals: Contents,
}

/// An object of an end state.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) object: StoredObject,
    /// Set if the run did not change the object.
    pub(crate) is_untouched: bool,
    /// Uids, generated names and similar tokens in the object, except in its name and uid; computed on first use.
    mentions: OnceLock<Vec<String>>,
    /// Uids of the object's owners; computed on first use.
    owners: OnceLock<Vec<String>>,
}

impl Kept {
    pub(crate) fn owners(&self) -> &[String] {
        self.owners.get_or_init(|| owners(&self.object))
    }
}

/// The result of comparing an end state with the end state of the reference.
#[derive(Debug, Default)]
pub(crate) struct Judged {
    /// Descriptions of the differences, one line per field.
    pub(crate) lines: Vec<String>,
    /// Values that were assigned to different objects than in the reference, one line per field.
    pub(crate) permuted: Vec<String>,
    /// Resources and paths of the fields that differ. Objects that are missing are not listed.
    pub(crate) fields: BTreeSet<(String, String)>,
    /// The differences, if all of them may be counters of failures.
    pub(crate) counts: Vec<Count>,
}

impl EndState {
    /// Reads the current state; `base` is the revision at which the run began.
    pub(crate) fn of(server: &ApiServer, base: u64, work: &Work) -> Self {
        let stored = server.stored_objects();
        // The state only refers to versions that were written before its newest object.
        let last = stored.iter().map(StoredObject::revision).max().unwrap_or(base);
        let (others, objects) = stored
            .into_iter()
            .partition::<Vec<_>, _>(|it| work.is_beside(it.group(), it.resource()));
        let keys = Keys::of(objects.iter());
        let mut state = Self {
            is_collected: server.runs(Worker::GarbageCollector),
            sorts_names: work.sorts_names,
            ignores_rollouts: work.ignores_rollouts,
            deciders: Deciders::of(server),
            deleted: server.deleted_objects(base),
            others,
            history: Some((server.clone(), base)),
            last,
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

    /// Adds the contents of external systems.
    pub(crate) fn with_externals(mut self, externals: Contents) -> Self {
        self.externals = externals;
        self
    }

    /// Returns the server of the run, and the revision at which the run began; `None` without a run.
    pub(crate) fn history(&self) -> Option<&(ApiServer, u64)> {
        self.history.as_ref()
    }

    pub(crate) fn externals(&self) -> &Contents {
        &self.externals
    }

    /// Returns the greatest number of times that a Lease has changed its holder.
    pub(crate) fn last_term(&self) -> Option<u64> {
        let leases = self.others.iter().filter(|it| it.resource() == "leases");
        leases
            .filter_map(|it| it.value()["spec"]["leaseTransitions"].as_u64())
            .max()
    }

    /// Returns all holders that the Leases have had in the run.
    pub(crate) fn holders(&self) -> &BTreeSet<String> {
        self.holders.get_or_init(|| {
            let is_lease = |it: &StoredObject| it.resource() == "leases";
            let changes = self.history.as_ref().map(|(server, base)| server.changes_after(*base));
            let changed = changes.into_iter().flatten().filter_map(|it| it.after);
            let leases = changed.chain(self.others.iter().cloned()).filter(is_lease);
            let holders = leases.filter_map(|it| Some(it.value()["spec"]["holderIdentity"].as_str()?.to_owned()));
            holders.filter(|it| !it.is_empty()).collect()
        })
    }

    /// Returns `true` if each of the values is the name of a replica that was the leader in its run. Any replica may
    /// become the leader.
    fn are_leaders(&self, found: &Self, (expected, value): &(Value, Value)) -> bool {
        let is_holder = |state: &Self, value: &Value| value.as_str().is_some_and(|it| state.holders().contains(it));
        is_holder(self, expected) && is_holder(found, value)
    }

    /// Returns the generated values of the run, with the objects that they identify.
    pub(crate) fn identities(&self) -> &Identities {
        self.identities.get_or_init(|| {
            let existing = self.objects.iter().flat_map(|(key, all)| {
                let all = all.iter().enumerate();
                all.map(move |(place, kept)| (Arc::clone(key), place, &kept.object))
            });
            let others = self.others.iter().map(|it| (plain_key(it).into(), 0, it));
            let mut identities = Identities::of(&self.keys, existing.chain(others), &self.deleted);
            for (id, words) in self.ids_outside(&identities) {
                identities.enter_outside(id, &words);
            }
            identities
        })
    }

    /// Returns the object that a token, such as a uid or a generated name, refers to.
    pub(crate) fn identity(&self, token: &str) -> Option<&Referent> {
        self.identities().get(token)
    }

    /// Returns the versions of the objects written in the run.
    pub(crate) fn versions(&self) -> &Versions {
        self.versions.get_or_init(|| match &self.history {
            Some((server, base)) => Versions::of(server, *base, self.last, &self.keys),
            None => Versions::default(),
        })
    }

    /// Returns the object with this uid, if it still exists.
    fn existing(&self, uid: &str) -> Option<&Referent> {
        let found = self.identity(uid);
        found.filter(|it| matches!(it.which, Which::Existing(_)))
    }

    pub(crate) fn exists(&self, uid: &str) -> bool {
        self.existing(uid).is_some()
    }

    /// Returns the newest object of each series of objects with a time in their names, with the number of objects of
    /// the series. Only contains objects that the run wrote.
    pub(crate) fn newest_of_series(&self) -> BTreeMap<String, usize> {
        let newest = self.objects.values().filter_map(|all| {
            let newest = newest(all).filter(|it| !it.is_untouched && has_time_in_name(&it.object))?;
            Some((plain_key(&newest.object), all.len()))
        });
        newest.collect()
    }

    /// Returns `true` if at most one object has this key.
    pub(crate) fn is_single(&self, key: &str) -> bool {
        self.named(key).len() <= 1
    }

    pub(crate) fn keys_of_several(&self) -> impl Iterator<Item = &Arc<str>> {
        self.objects.iter().filter(|(_, all)| all.len() > 1).map(|(key, _)| key)
    }

    /// Returns the uids, generated names and similar tokens in an object, except in its name and uid.
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
        let resource = resource_of(key);
        self.deciders.hide_choice(resource, object);
    }

    /// Collects the differences from another run without faults, and the fields that contain a time of the machine's
    /// clock since `began`: a controller that reads this clock writes a different time in each run, but the first two
    /// runs may agree by chance.
    pub(crate) fn mask(&self, other: &Self, ignored: &[String], began: Timestamp) -> Mask {
        let mut mask = Mask::with(self.templates(other));
        // Values that are only assigned to different objects are not masked, because later comparisons recognise them
        // as well.
        let differences = self.differences_but_for_order(other, &mask).0;
        hide(&mut mask, differences);
        if !mask.names.is_empty() {
            // Masked names change the keys of objects of external systems, and the contents of other objects have not
            // been compared if their numbers differ, so compare the contents again.
            mask.is_derived = true;
            let more = self.differences_but_for_order(other, &mask).0;
            hide(&mut mask, more);
            mask.is_derived = false;
        }
        mask.add(Mask::of(ignored));
        let machine = machine_since(began);
        for (key, kept) in self
            .objects
            .iter()
            .flat_map(|(key, all)| all.iter().map(move |it| (key, it)))
        {
            let resource = resource_of(key);
            let paths = times_within(&kept.object.value(), &machine);
            mask.paths
                .extend(paths.iter().map(|it| (resource.to_owned(), general(it))));
        }
        mask
    }

    /// Derives the templates of generated names from another run without faults.
    fn templates(&self, other: &Self) -> Templates {
        let only = |one: &'_ Self, other: &Self| {
            let keys = one.objects.iter().filter(|(key, all)| {
                !key.contains('*') && !other.objects.contains_key(*key) && all.iter().all(|it| !it.is_untouched)
            });
            let outside = one.externals.iter().flat_map(|(system, kept)| {
                let others = other.externals.get(system);
                let keys = kept.objects.keys().filter(move |key| {
                    !kept.generated.contains(*key) && others.is_none_or(|it| !it.objects.contains_key(*key))
                });
                keys.map(move |key| format!("{system} /{key}"))
            });
            let keys = keys.map(|(key, _)| key.to_string()).chain(outside);
            keys.collect::<Vec<String>>()
        };
        let (one, others) = (only(self, other), only(other, self));
        Templates::between(one.iter().map(String::as_str), others.iter().map(String::as_str))
    }

    /// Returns the state with templates as the keys of objects with generated names; `None` if there are no such
    /// objects.
    pub(super) fn under(&self, templates: &Templates) -> Option<Self> {
        let is_of =
            |(key, all): (&Arc<str>, &Vec<Kept>)| all.iter().any(|it| !it.is_untouched) && templates.key(key).is_some();
        if templates.is_empty() || !self.objects.iter().any(is_of) {
            return None;
        }
        let mut objects: BTreeMap<Arc<str>, Vec<Kept>> = BTreeMap::new();
        for (key, all) in &self.objects {
            for kept in all {
                let starred = templates.key(key).filter(|_| !kept.is_untouched);
                let key = starred.map_or_else(|| Arc::clone(key), Arc::from);
                let kept = Kept {
                    mentions: OnceLock::new(),
                    ..kept.clone()
                };
                objects.entry(key).or_default().push(kept);
            }
        }
        Some(Self {
            objects,
            keys: Arc::new(self.keys.with(templates)),
            identities: OnceLock::new(),
            versions: OnceLock::new(),
            ..self.clone()
        })
    }

    /// Lists the differences between this state and `found`, one line per field; empty if there are none.
    pub(crate) fn compare(&self, found: &Self, mask: &Mask) -> Vec<String> {
        lines(self.differences(found, mask))
    }

    /// Same as `compare`, but lists values that were assigned to different objects separately.
    pub(crate) fn judge(&self, found: &Self, mask: &Mask) -> Judged {
        self.judged(found, mask, |_| true)
    }

    /// Same as `judge`, but only for the differences that count.
    pub(super) fn judged(&self, found: &Self, mask: &Mask, counts: impl Fn(&Difference) -> bool) -> Judged {
        let (mut differences, permuted) = self.differences_but_for_order(found, mask);
        differences.retain(counts);
        let fields = differences.iter().filter(|it| it.values.is_some());
        let fields = fields.map(|it| {
            let resource = resource_of(&it.key);
            (resource.to_owned(), general(&it.path))
        });
        Judged {
            fields: fields.collect(),
            counts: self.failures(found, mask, &differences),
            lines: lines(differences),
            permuted,
        }
    }

    /// Same as `compare`, but ignores fields derived by workers, and values that were only assigned to different
    /// objects. For runs with different sequences of changes.
    pub(crate) fn compare_decided(&self, found: &Self, mask: &Mask) -> Vec<String> {
        let (differences, _) = self.differences_but_for_order(found, mask);
        let differences = differences.into_iter().filter(|it| !it.is_derived);
        let lines = differences.map(|it| it.line());
        lines.take(SHOWN).collect()
    }

    /// Returns two lists: the differences without values that were only assigned to different objects, and descriptions
    /// of these values.
    pub(super) fn differences_but_for_order(&self, found: &Self, mask: &Mask) -> (Vec<Difference>, Vec<String>) {
        let mut differences = self.differences(found, mask);
        let permuted = take_permuted(&mut differences);
        (differences, permuted)
    }

    /// Returns `true` if `found` has the items of a list in a different order, although the order is significant.
    pub(crate) fn has_other_order_of_items(&self, found: &Self, mask: &Mask) -> bool {
        is_list_reordered(&self.differences(found, mask))
    }

    pub(super) fn differences(&self, found: &Self, mask: &Mask) -> Vec<Difference> {
        let [left, right] = [self, found].map(|it| it.under(&mask.templates));
        match (&left, &right) {
            (None, None) => self.differences_of_keys(found, mask),
            _ => left
                .as_ref()
                .unwrap_or(self)
                .differences_of_keys(right.as_ref().unwrap_or(found), mask),
        }
    }

    /// Lists the differences between two states with keys that are based on the same templates.
    fn differences_of_keys(&self, found: &Self, mask: &Mask) -> Vec<Difference> {
        let pair = Pair::new([self, found], mask);
        let mut differences = Vec::new();
        let keys: BTreeSet<&Arc<str>> = self.objects.keys().chain(found.objects.keys()).collect();
        for key in keys {
            let left = self.without_earlier_rollouts(key, self.named(key));
            let right = found.without_earlier_rollouts(key, found.named(key));
            let (left, right) = (&*left, &*right);
            let mut fields = pair.fields_of_one(key, left, right);
            if !fields.is_empty() && !self.is_collected {
                let (left, right) = self.without_garbage(found, left.to_vec(), right.to_vec());
                fields = pair.fields_of_one(key, &left, &right);
            }
            fields.retain(|it| !it.values.as_ref().is_some_and(|it| self.are_leaders(found, it)));
            let kept = || left.iter().chain(right).map(|it| it.object.value());
            differences.extend(fields.into_iter().map(|field| Difference {
                key: Arc::clone(key),
                is_derived: kept().all(|it| self.deciders.is_derived(&it, &field.path)),
                path: field.path,
                text: field.text,
                values: field.values,
                is_copied: field.is_copied,
            }));
        }
        let outside = pair.fields_outside().into_iter();
        differences.extend(outside.map(|(key, field)| Difference {
            key,
            path: field.path,
            text: field.text,
            values: field.values,
            is_copied: field.is_copied,
            is_derived: false,
        }));
        differences
    }

    /// Returns `true` if only workers wrote an object.
    pub(crate) fn is_derived(&self, kept: &Kept) -> bool {
        self.deciders.is_derived(&kept.object.value(), "")
    }

    /// Returns all objects, in the order of their keys.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&Arc<str>, &Vec<Kept>)> {
        self.objects.iter()
    }

    pub(crate) fn named(&self, key: &str) -> &[Kept] {
        self.objects.get(key).map_or(&[], Vec::as_slice)
    }

    /// Returns the objects of one key without garbage. Garbage of one run is kept if the object is not garbage in the
    /// other run, so that an object that has lost its owner in only one run is reported as an orphan.
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

    /// Returns `true` if a garbage collector would delete the object: it has owners, but each of them is missing or
    /// garbage itself.
    fn is_garbage(&self, kept: &Kept) -> bool {
        self.has_lost_owners(&kept.object, &mut BTreeMap::new())
    }

    /// `known` contains the results by uid.
    fn has_lost_owners(&self, object: &StoredObject, known: &mut BTreeMap<String, bool>) -> bool {
        if let Some(has_lost) = known.get(object.uid()) {
            return *has_lost;
        }
        // Owners in a cycle do not count as lost.
        known.insert(object.uid().to_owned(), false);
        let value = object.value();
        let owners = value["metadata"]["ownerReferences"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let mut owners = owners.iter().filter_map(|it| it["uid"].as_str()).peekable();
        let has_lost = owners.peek().is_some()
            && owners.all(|uid| {
                let Some(owner) = self.existing(uid) else { return true };
                match (owner.which, self.named(&owner.key)) {
                    (Which::Existing(place), all) if place < all.len() => {
                        self.has_lost_owners(&all[place].object, known)
                    }
                    // Owners that are Events or Leases count as existing.
                    _ => false,
                }
            });
        known.insert(object.uid().to_owned(), has_lost);
        has_lost
    }

    /// Returns `true` if all objects with other keys are the same.
    pub(crate) fn has_same_others(&self, found: &Self, mask: &Mask, key: &str) -> bool {
        self.differences(found, mask).iter().all(|it| &*it.key == key)
    }

    /// Returns the objects that were deleted in the run, oldest first.
    pub(crate) fn deleted(&self) -> &[StoredObject] {
        &self.deleted
    }

    /// Returns the keys of the objects written after a revision.
    pub(crate) fn written_after(&self, revision: u64) -> Vec<String> {
        let written = self
            .objects
            .iter()
            .filter(|(_, all)| all.iter().any(|it| it.object.revision() > revision));
        written.map(|(key, _)| key.replace(" /", " ")).collect()
    }
}

/// Adds the fields and object names of differences to a mask.
fn hide(mask: &mut Mask, differences: Vec<Difference>) {
    for difference in differences {
        let resource = resource_of(&difference.key).to_owned();
        let is_set = |(one, other): &(Value, Value)| !one.is_null() && !other.is_null();
        match difference.path.is_empty() {
            true => mask.names.insert(resource),
            false if difference.values.as_ref().is_some_and(is_set) => {
                mask.values.insert((resource, general(&difference.path)))
            }
            false => mask.paths.insert((resource, general(&difference.path))),
        };
    }
}

/// Describes differences, one line per field. Fields written by controllers precede the fields that workers derived
/// from them, which are folded into one line. If only derived fields differ, each of them has its own line.
fn lines(differences: Vec<Difference>) -> Vec<String> {
    let (derived, mut differences): (Vec<_>, Vec<_>) = differences.into_iter().partition(|it| it.is_derived);
    let folded = match differences.is_empty() {
        true => {
            differences = derived;
            None
        }
        false => folded(&derived),
    };
    let left_out = differences.len().saturating_sub(SHOWN);
    let hint = hint(&differences).filter(|_| folded.is_none());
    let mut lines: Vec<String> = differences.into_iter().take(SHOWN).map(|it| it.line()).collect();
    if left_out > 0 {
        lines.push(format!("and {left_out} more"));
    }
    lines.extend(folded);
    lines.extend(hint);
    lines
}

/// Suggests ignoring fields of a status if they differ only in a number or a time, because these may depend on the
/// history of the run. Does not suggest fields if the expected value is also in another field, such as the number of
/// replicas in the spec.
fn hint(differences: &[Difference]) -> Option<String> {
    let is_history = |value: &Value| value.is_number() || value.as_str().is_some_and(is_time);
    let is_counted = |it: &Difference| {
        let values = it.values.as_ref();
        let may_depend = it.path.starts_with("status.") && !it.is_copied;
        may_depend && values.is_some_and(|(one, other)| is_history(one) && is_history(other))
    };
    let mut counted: Vec<String> = differences.iter().map(|it| general(&it.path)).collect();
    counted.sort();
    counted.dedup();
    if counted.is_empty() || counted.len() > FOLDED || !differences.iter().all(is_counted) {
        return None;
    }
    let calls: String = counted.iter().map(|it| format!(".ignore({it:?})")).collect();
    Some(format!(
        "if this may depend on the history of the run, ignore it: `{calls}`; otherwise the controller must handle it"
    ))
}

/// Returns the object that was created last.
pub(super) fn newest(all: &[Kept]) -> Option<&Kept> {
    let created = |it: &&Kept| {
        let time = it.object.value()["metadata"]["creationTimestamp"]
            .as_str()
            .map(str::to_owned);
        (time, it.object.name().to_owned())
    };
    all.iter().max_by_key(created)
}

pub(crate) fn plain_key(object: &StoredObject) -> String {
    format!("{} {}/{}", resource(object), object.namespace(), object.name())
}

/// Summarises fields derived by workers in one line, with the number of fields of each object: `pods default/web-* (3),
/// …`.
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
    match left_out {
        0 => {}
        1 => parts.push("1 more object".to_owned()),
        _ => parts.push(format!("{left_out} more objects")),
    }
    (!parts.is_empty()).then(|| format!("and fields derived by workers: {}", parts.join(", ")))
}
