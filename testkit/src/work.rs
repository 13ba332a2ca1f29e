//! `Work`: distinguishes changes that are progress towards a state from by-products, such as Leases.

use std::collections::{BTreeMap, BTreeSet};

use fake_apiserver::api::request_info::RequestInfo;
use fake_apiserver::{ApiServer, StoredChange, StoredObject};
use serde_json::Value;

use crate::mask::Mask;

/// Maximum number of newest changes that are examined for fields that keep changing.
const LOOKED_AT: usize = 20;

/// Minimum number of changes for which the changing fields are reported.
const HABIT: usize = 5;

/// Maximum number of fields that are listed as repeatedly changing.
const NAMED: usize = 4;

/// Fields of `metadata` that the server updates by itself when other fields change.
const BOOKKEEPING: [&str; 3] = ["resourceVersion", "managedFields", "generation"];

/// Determines which changes count as work.
#[derive(Clone, Debug, Default)]
pub(crate) struct Work {
    /// Ignored fields, such as the time of a probe.
    pub(crate) ignored: Vec<String>,
    /// Set if changes of Events count as work.
    pub(crate) counts_events: bool,
    /// Set if the order of names in a status is irrelevant. Programs in Go and other languages copy them from caches
    /// with a random order.
    pub(crate) sorts_names: bool,
    /// Set if objects that only record earlier rollouts are not compared. In real time, it depends on chance which
    /// intermediate templates the server's workers observe.
    pub(crate) ignores_rollouts: bool,
}

/// The changes since a revision.
#[derive(Debug)]
pub(crate) struct Done {
    /// Number of changes that count as work.
    pub(crate) count: u64,
    /// Revisions of the changes that do not count as work.
    pub(crate) beside: BTreeSet<u64>,
    /// Resource, namespace and name of the objects with changes that count. The group is omitted, because Events are
    /// written in two groups and stored in one.
    changed: BTreeSet<[String; 3]>,
}

impl Done {
    /// Returns `true` if a write may have made one of the changes: its object has changed, or the write does not
    /// contain a name.
    pub(crate) fn may_be_of(&self, info: &RequestInfo) -> bool {
        let object = [&*info.resource, &info.namespace, &info.name].map(str::to_owned);
        info.name.is_empty() || self.changed.contains(&object)
    }
}

fn identity(object: &StoredObject) -> [String; 3] {
    [object.resource(), object.namespace(), object.name()].map(str::to_owned)
}

/// The number of changes since a revision that count as work. Each change is examined only once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted {
    count: u64,
    /// The revision up to which changes have been examined.
    revision: u64,
}

impl Counted {
    /// Counts changes from now on.
    pub(crate) fn from(server: &ApiServer) -> Self {
        Self {
            count: 0,
            revision: server.resource_version(),
        }
    }

    /// Returns the number of changes that count as work, up to now.
    pub(crate) fn up_to_now(&mut self, work: &Work, server: &ApiServer) -> u64 {
        let revision = server.resource_version();
        self.count += work.since(server, self.revision).count;
        self.revision = revision;
        self.count
    }
}

impl Work {
    /// Returns `true` for resources that report work instead of being its result: Events and Leases.
    pub(crate) fn is_beside(&self, group: &str, resource: &str) -> bool {
        match (group, resource) {
            ("" | "events.k8s.io", "events") => !self.counts_events,
            ("coordination.k8s.io", "leases") => true,
            _ => false,
        }
    }

    /// Returns the changes after a revision. Changes that are no longer in the history count as work.
    pub(crate) fn since(&self, server: &ApiServer, after: u64) -> Done {
        let all = server.resource_version().saturating_sub(after);
        let (mut beside, mut changed) = (BTreeSet::new(), BTreeSet::new());
        let changes = if all > 0 {
            server.changes_after(after)
        } else {
            Vec::new()
        };
        for change in changes {
            if self.counts(&change) {
                changed.extend(change.object().map(identity));
            } else {
                beside.insert(change.revision);
            }
        }
        Done {
            count: all.saturating_sub(beside.len() as u64),
            beside,
            changed,
        }
    }

    fn counts(&self, change: &StoredChange) -> bool {
        let Some(object) = change.object() else { return false };
        if self.is_beside(object.group(), object.resource()) {
            return false;
        }
        // Deletions and creations count regardless of their fields.
        let (Some(before), Some(after)) = (&change.before, &change.after) else {
            return true;
        };
        self.ignored.is_empty() || {
            let mask = Mask::of(&self.ignored);
            let [before, after] = [before, after].map(|it| {
                let mut value = bare(it.value());
                mask.remove(it.resource(), "", &mut value);
                value
            });
            before != after
        }
    }

    /// Describes the fields that keep changing after a revision, if the newest changes only affect the same few fields;
    /// otherwise returns an empty string.
    pub(crate) fn restless_fields(&self, server: &ApiServer, after: u64) -> String {
        let changes: Vec<StoredChange> = server.changes_after(after);
        let newest: Vec<&StoredChange> = changes
            .iter()
            .rev()
            .filter(|it| self.counts(it))
            .take(LOOKED_AT)
            .collect();
        let mut fields: BTreeMap<(String, String), Vec<Value>> = BTreeMap::new();
        for change in &newest {
            let (Some(before), Some(after)) = (&change.before, &change.after) else {
                return String::new();
            };
            let object = format!("{} {}/{}", after.resource(), after.namespace(), after.name()).replace(" /", " ");
            let mut changed = Vec::new();
            differing("", &bare(before.value()), &bare(after.value()), &mut changed);
            for (path, value) in changed {
                fields.entry((object.clone(), path)).or_default().push(value);
            }
        }
        let is_habit = newest.len() >= HABIT && fields.len() <= NAMED;
        if !is_habit || fields.is_empty() {
            return String::new();
        }
        let lines: String = fields
            .keys()
            .map(|(object, path)| format!("\n        {path} of {object}"))
            .collect();
        let told = format!("\nthe last {} changes were all made to:{lines}", newest.len());
        // Values of a clock or a counter never recur, in contrast to a field that two controllers overwrite in turn.
        let is_clock = fields
            .values()
            .all(|values| (1..values.len()).all(|at| !values[..at].contains(&values[at])));
        if !is_clock {
            return told;
        }
        let paths: BTreeSet<&String> = fields.keys().map(|(_, path)| path).collect();
        let calls: String = paths.iter().map(|path| format!(".ignore({path:?})")).collect();
        format!("{told}\nif this is only a time or a counter, ignore it: `TestCluster::builder(){calls}`")
    }
}

fn bare(mut object: Value) -> Value {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.retain(|name, _| !BOOKKEEPING.contains(&name.as_str()));
    }
    object
}

/// Collects the fields in which two values differ, with their later values; `*` replaces list indexes.
fn differing(path: &str, before: &Value, after: &Value, found: &mut Vec<(String, Value)>) {
    let step = |name: &str| match path {
        "" => name.to_owned(),
        _ => format!("{path}.{name}"),
    };
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            for (name, value) in after {
                differing(&step(name), before.get(name).unwrap_or(&Value::Null), value, found);
            }
            let gone = before.keys().filter(|name| !after.contains_key(*name));
            found.extend(gone.map(|name| (step(name), Value::Null)));
        }
        (Value::Array(before), Value::Array(after)) if before.len() == after.len() => {
            for (before, after) in before.iter().zip(after) {
                differing(&step("*"), before, after, found);
            }
        }
        _ if before == after => {}
        _ => found.push((path.to_owned(), after.clone())),
    }
}
