//! The entries of `metadata.managedFields` as JSON: parsing, sorting, and merging the oldest entries (rules H6, H8).

use std::collections::{BTreeMap, BTreeSet};

use super::element::BadFields;
use super::set::FieldSet;
use super::{Manager, json};
use crate::api::json::{Map, Value};

/// Maximum number of `Update` entries. If there are more, the oldest ones are merged.
const MAX_UPDATERS: usize = 10;

/// The manager of merged entries.
const ANCIENT: &str = "ancient-changes";

/// The fields of an entry that identify its manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity<'a> {
    pub(super) manager: &'a str,
    /// Set for the operation `Apply`, unset for `Update`.
    pub(super) applied: bool,
    pub(super) api_version: &'a str,
    pub(super) subresource: &'a str,
}

impl<'a> Identity<'a> {
    /// Returns the identity of an entry's manager.
    pub(super) fn of(entry: &'a Value) -> Self {
        Self::and_time(entry).0
    }

    /// Reads the identity and the time of the entry. An object may have hundreds of entries, so each is read in one
    /// pass, which takes a fifth of the time of looking up five fields.
    fn and_time(entry: &'a Value) -> (Self, &'a str) {
        let mut id = Self {
            manager: "",
            applied: false,
            api_version: "",
            subresource: "",
        };
        let mut time = "";
        for (field, value) in entry.as_object().into_iter().flatten() {
            let Some(text) = value.as_str() else { continue };
            match field.as_str() {
                "manager" => id.manager = text,
                "operation" => id.applied = text == "Apply",
                "apiVersion" => id.api_version = text,
                "subresource" => id.subresource = text,
                "time" => time = text,
                _ => {}
            }
        }
        (id, time)
    }

    /// Returns the identity of the manager of a create, update or patch.
    pub(super) fn of_update(manager: &Manager<'a>) -> Self {
        Self {
            manager: manager.name,
            applied: false,
            api_version: manager.api_version,
            subresource: manager.subresource,
        }
    }

    /// Returns `true` if both are the same manager. A manager that uses `Apply` has one entry for all versions.
    pub(super) fn is(&self, other: &Identity<'_>) -> bool {
        self.manager == other.manager
            && self.applied == other.applied
            && self.subresource == other.subresource
            && (self.applied || self.api_version == other.api_version)
    }

    /// Returns `true` if an entry belongs to this manager.
    pub(super) fn is_of(&self, entry: &Value) -> bool {
        // Nearly all other entries have a different manager name, so their other fields are not read.
        text(entry, "manager") == self.manager && Identity::of(entry).is(self)
    }

    /// Returns the sort key of managers, for output in which their order is visible.
    pub(super) fn key(&self) -> (&'a str, bool, &'a str, bool, &'a str) {
        let version = if self.applied { "" } else { self.api_version };
        // Entries of subresources are first, as in the order of Go's identifier strings.
        (
            self.manager,
            !self.applied,
            version,
            self.subresource.is_empty(),
            self.subresource,
        )
    }

    /// Creates an entry of this manager.
    pub(super) fn entry(&self, fields: Map, time: Option<&str>) -> Value {
        let operation = if self.applied { "Apply" } else { "Update" };
        // In the order of the names, so that the map is built without searches.
        let mut entry = vec![
            ("apiVersion".into(), self.api_version.into()),
            ("fieldsType".into(), "FieldsV1".into()),
            ("fieldsV1".into(), fields.into()),
            ("manager".into(), self.manager.into()),
            ("operation".into(), operation.into()),
        ];
        if !self.subresource.is_empty() {
            entry.push(("subresource".into(), self.subresource.into()));
        }
        if let Some(time) = time {
            entry.push(("time".into(), time.into()));
        }
        Value::Object(Map::of_entries(entry))
    }
}

/// Returns a string field of an entry; empty if absent.
pub(super) fn text<'a>(entry: &'a Value, field: &str) -> &'a str {
    entry.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// Returns `fieldsV1` of an entry, if it is an object.
pub(super) fn fields(entry: &Value) -> Option<&Map> {
    entry.get("fieldsV1").and_then(Value::as_object)
}

/// Replaces the fields of an entry.
pub(super) fn set_fields(entry: &mut Value, fields: Map) {
    if let Some(entry) = entry.as_object_mut() {
        entry.insert("fieldsV1".into(), fields.into());
    }
}

/// Returns `true` if the entry does not own any fields.
pub(super) fn is_empty(entry: &Value) -> bool {
    fields(entry).is_none_or(Map::is_empty)
}

/// Returns `true` if a list of entries requests a reset: it is empty, or contains one empty entry.
pub(super) fn is_reset(entries: &[Value]) -> bool {
    match entries {
        [] => true,
        [only] => only
            .as_object()
            .is_some_and(|entry| entry.values().all(|it| it.is_null() || it.as_str() == Some(""))),
        _ => false,
    }
}

/// Converts entries from a client to the server's form; fails if an entry cannot be parsed.
pub(super) fn canonical(entries: Vec<Value>) -> Result<Vec<Value>, BadFields> {
    let mut out: Vec<Value> = Vec::with_capacity(entries.len());
    for entry in entries {
        let id = Identity::of(&entry);
        let known = matches!(text(&entry, "operation"), "Apply" | "Update");
        if !known || id.api_version.is_empty() || text(&entry, "fieldsType") != "FieldsV1" {
            return Err(BadFields);
        }
        let set = json::decode(entry.get("fieldsV1"))?;
        let time = canonical_time(text(&entry, "time"));
        out.push(id.entry(json::encode(&set), time.as_deref()));
    }
    // If a manager has two entries, the later one is kept.
    let mut later = BTreeSet::new();
    let are_last: Vec<bool> = out
        .iter()
        .rev()
        .map(|it| later.insert(Identity::of(it).key()))
        .collect();
    let mut are_last = are_last.into_iter().rev();
    out.retain(|entry| are_last.next() == Some(true) && !is_empty(entry));
    sort(&mut out);
    Ok(out)
}

fn canonical_time(text: &str) -> Option<String> {
    let time: jiff::Timestamp = text.parse().ok()?;
    Some(time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

/// Sorts entries into the order in which they are stored.
pub(super) fn sort(entries: &mut [Value]) {
    fn key(entry: &Value) -> (bool, &str, &str, &str, &str) {
        let (id, time) = Identity::and_time(entry);
        (!id.applied, time, id.manager, id.api_version, id.subresource)
    }
    // Fast path: usually only the last entry changed, and it has the latest time.
    let keys: Vec<_> = entries.iter().map(key).collect();
    if keys.is_sorted() {
        return;
    }
    let mut order: Vec<usize> = (0..entries.len()).collect();
    order.sort_by_key(|at| keys[*at]);
    let sorted: Vec<Value> = order.into_iter().map(|at| entries[at].take()).collect();
    entries.iter_mut().zip(sorted).for_each(|(entry, it)| *entry = it);
}

/// Merges the oldest `Update` entries into one per version, until their number is within the limit.
pub(super) fn cap_updaters(entries: &mut Vec<Value>) {
    let mut updaters: Vec<usize> = (0..entries.len())
        .filter(|&i| !Identity::of(&entries[i]).applied)
        .collect();
    let mut count = updaters.len();
    if count <= MAX_UPDATERS {
        return;
    }
    updaters.sort_by(|&a, &b| {
        let key = |i: usize| (text(&entries[i], "time"), Identity::of(&entries[i]).key());
        key(a).cmp(&key(b))
    });
    let mut buckets = existing_buckets(entries);
    // The index of the oldest entry of each version.
    let mut oldest: BTreeMap<&str, usize> = BTreeMap::new();
    let mut merges: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for i in updaters {
        if count <= MAX_UPDATERS {
            break;
        }
        let version = text(&entries[i], "apiVersion");
        let Some(first) = oldest.get(version) else {
            oldest.insert(version, i);
            continue;
        };
        let bucket = *buckets.entry(version).or_insert(*first);
        if bucket != i {
            merges.entry(bucket).or_default().push(i);
            count -= 1;
        }
    }
    let mut merged = BTreeSet::new();
    for (bucket, sources) in merges {
        merge_into_bucket(entries, bucket, &sources);
        merged.extend(sources);
    }
    let mut at = 0..;
    entries.retain(|_| at.next().is_none_or(|it| !merged.contains(&it)));
}

/// Returns the indexes of the entries into which earlier updates were merged, by version.
fn existing_buckets(entries: &[Value]) -> BTreeMap<&str, usize> {
    let mut buckets = BTreeMap::new();
    for (at, entry) in entries.iter().enumerate() {
        let id = Identity::of(entry);
        if id.manager == ANCIENT && !id.applied && id.subresource.is_empty() {
            buckets.entry(id.api_version).or_insert(at);
        }
    }
    buckets
}

/// Merges the entries `sources`, which are sorted by age, into the entry `bucket`.
fn merge_into_bucket(entries: &mut [Value], bucket: usize, sources: &[usize]) {
    let sets = sources.iter().map(|&it| json::decode(entries[it].get("fieldsV1")));
    let sets = FieldSet::union_of(sets.filter_map(Result::ok).collect());
    let all = fields(&entries[bucket]).and_then(|into| json::add(into, &sets));
    let time = sources.last().and_then(|&it| entries[it].get("time")).cloned();
    let bucket = &mut entries[bucket];
    if let Some(all) = all {
        set_fields(bucket, all);
    }
    if let Some(bucket) = bucket.as_object_mut() {
        bucket.insert("manager".into(), ANCIENT.into());
        bucket.remove("subresource");
        // The merged entry gets the time of the latest source.
        match time {
            Some(time) => bucket.insert("time".into(), time),
            None => bucket.remove("time"),
        };
    }
}
