//! `Work`: the changes that are progress towards a state, and those that are only made beside it.

use std::collections::{BTreeMap, BTreeSet};

use fake_apiserver::{ApiServer, StoredChange};
use serde_json::Value;

use crate::explore::Mask;

/// Changes that a report of unrest looks at, the newest ones; and the least of them that make a habit.
const LOOKED_AT: usize = 20;
const HABIT: usize = 5;

/// Most fields that are named as those that keep changing.
const NAMED: usize = 4;

/// Fields of `metadata` that change with others.
const BOOKKEEPING: [&str; 3] = ["resourceVersion", "managedFields", "generation"];

/// The changes that count.
#[derive(Clone, Debug, Default)]
pub(crate) struct Work {
    /// Fields that do not count, such as the time of a probe.
    pub(crate) ignored: Vec<String>,
    /// Events count.
    pub(crate) counts_events: bool,
}

/// The changes since a revision.
#[derive(Debug)]
pub(crate) struct Done {
    /// Number of those that count.
    pub(crate) count: u64,
    /// Revisions of the others.
    pub(crate) beside: BTreeSet<u64>,
}

impl Work {
    /// Returns `true` if objects of a resource report work and are no result of it: Events and Leases.
    pub(crate) fn is_beside(&self, group: &str, resource: &str) -> bool {
        match (group, resource) {
            ("" | "events.k8s.io", "events") => !self.counts_events,
            ("coordination.k8s.io", "leases") => true,
            _ => false,
        }
    }

    /// Finds the changes after a revision. Those that have left the history count.
    pub(crate) fn since(&self, server: &ApiServer, after: u64) -> Done {
        let all = server.resource_version().saturating_sub(after);
        let beside: BTreeSet<u64> = match all {
            0 => BTreeSet::new(),
            _ => {
                let changes = server.changes_after(after).into_iter();
                changes.filter(|it| !self.counts(it)).map(|it| it.revision).collect()
            }
        };
        Done {
            count: all.saturating_sub(beside.len() as u64),
            beside,
        }
    }

    fn counts(&self, change: &StoredChange) -> bool {
        let Some(object) = change.object() else { return false };
        if self.is_beside(object.group(), object.resource()) {
            return false;
        }
        // Deletions and creations are never a matter of some field.
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

    /// Says which fields keep changing after a revision, if it is always the same few; else empty.
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
        // The value of a clock or a counter never returns; that of a field that two writers fight about does.
        let is_clock = fields
            .values()
            .all(|values| (1..values.len()).all(|at| !values[..at].contains(&values[at])));
        if !is_clock {
            return told;
        }
        let paths: BTreeSet<&String> = fields.keys().map(|(_, path)| path).collect();
        let calls: String = paths.iter().map(|path| format!(".ignore({path:?})")).collect();
        format!("{told}\nif that only tells the time or counts, leave it out: `TestCluster::builder(){calls}`")
    }
}

fn bare(mut object: Value) -> Value {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.retain(|name, _| !BOOKKEEPING.contains(&name.as_str()));
    }
    object
}

/// Collects the fields in which two values differ, with the later value; `*` stands for the places in lists.
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
