//! `QuotaController`: keeps `status` of ResourceQuotas up to date, like kube-controller-manager's quota controller. It
//! follows the change logs with a cursor: each write adds the usage of the new object and subtracts the usage of the
//! old one, so its cost does not depend on the number of objects.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};

use super::resource_quota::{RESOURCE, is_used, written};
use super::usage::{Amounts, amounts, in_scope, is_about, usage};
use crate::api::json::{Value, json};
use crate::api::object::Object;
use crate::registry::reader::Reader;
use crate::registry::scheme::codec;
use crate::registry::scheme::{Row, Scheme};
use crate::registry::types::cursor::Cursor;
use crate::registry::types::quantity::Quantity;
use crate::registry::writer::Writer;
use crate::storage::{Change, Compacted, Key, KeyRange, Revision, Stored};

/// The state of the controller; empty until the first quota exists.
#[derive(Debug, Default)]
pub(crate) struct QuotaController(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    /// The store's epoch and the revision up to which changes are counted; `None` before the first quota exists.
    cursor: Option<(u64, Revision)>,
    /// Quotas by key, formatted as a string, so that the quotas of a namespace are adjacent.
    quotas: BTreeMap<String, Counted>,
}

/// A ResourceQuota and its counted usage.
#[derive(Debug)]
struct Counted {
    key: Key,
    /// The quota's `spec`, which determines the counted objects.
    spec: Object,
    hard: Amounts,
    used: Amounts,
    /// Keys of the Pods that were stuck in deletion when they were counted.
    stuck: BTreeSet<String>,
}

impl QuotaController {
    /// Counts the writes since the last call, and updates the status of the affected quotas.
    pub(super) fn catch_up(&self, reader: &Reader, writer: &Writer) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !is_used(reader) {
            *counts = Counts::default();
            return;
        }
        let scheme = reader.scheme();
        let Some(row) = scheme.lookup("", "v1", RESOURCE) else {
            return;
        };
        let dirty = match counts.follow(reader, &scheme, &row) {
            Some(Ok(dirty)) => dirty,
            // Nothing has been counted yet, or the log no longer contains all writes since the last call.
            Some(Err(Compacted { .. })) | None => counts.start(reader, &scheme, &row),
        };
        for key in dirty {
            if let Some(counted) = counts.quotas.get(&key) {
                counted.store(reader, writer, &row);
            }
        }
    }
}

impl Counts {
    /// Computes the usage of all quotas from the existing objects, and returns the keys of the quotas.
    fn start(&mut self, reader: &Reader, scheme: &Scheme, row: &Row) -> BTreeSet<String> {
        let everything = reader.store.everything();
        self.cursor = Some((everything.epoch, everything.revision));
        self.quotas.clear();
        let snapshot = |storage: &str| everything.resources.iter().find(|(it, _)| **it == *storage);
        let Some((_, quotas)) = snapshot(RESOURCE) else {
            return BTreeSet::new();
        };
        let now = reader.entropy.now();
        for stored in quotas.range(&KeyRange::of(None)) {
            let mut counted = Counted::read(row, stored);
            for other in counted.rows(scheme) {
                if let Some((_, objects)) = snapshot(&other.storage) {
                    let range = KeyRange::of(Some(stored.key.namespace()));
                    objects.range(&range).for_each(|it| counted.add(other, it, now));
                }
            }
            self.quotas.insert(stored.key.as_str().to_owned(), counted);
        }
        self.quotas.keys().cloned().collect()
    }

    /// Counts the changes since the cursor, and returns the keys of the affected quotas; `None` without a cursor, or if
    /// the log no longer contains all these changes. Fails if a changed quota has to be counted at a revision that is
    /// no longer available.
    fn follow(&mut self, reader: &Reader, scheme: &Scheme, row: &Row) -> Option<Result<BTreeSet<String>, Compacted>> {
        let (epoch, revision) = self.cursor?;
        let fresh = reader.store.all_changes_after(epoch, revision).ok()?;
        self.cursor = Some((epoch, fresh.revision));
        let (mut dirty, mut written) = (BTreeSet::new(), BTreeSet::new());
        for (resource, change) in &fresh.changes {
            if **resource == *RESOURCE {
                written.insert(change.object().key.clone());
            }
            self.count(scheme, resource, change, reader.entropy.now(), &mut dirty);
        }
        for key in written {
            if let Err(compacted) = self.quota_written(reader, scheme, row, &key, fresh.revision) {
                return Some(Err(compacted));
            }
            dirty.insert(key.as_str().to_owned());
        }
        Some(Ok(dirty))
    }

    /// Updates the usage of the quotas in the namespace of a changed object.
    fn count(
        &mut self,
        scheme: &Scheme,
        resource: &str,
        change: &Change,
        now: Timestamp,
        dirty: &mut BTreeSet<String>,
    ) {
        let range = KeyRange::of(Some(change.object().key.namespace()));
        let end = range.end.unwrap_or_default();
        let mut quotas = self.quotas.range_mut(range.start..end).peekable();
        if quotas.peek().is_none() {
            return;
        }
        let Some(row) = counted_rows(scheme).find(|it| *it.storage == *resource) else {
            return;
        };
        for (key, counted) in quotas.filter(|(_, it)| it.is_about(row)) {
            if let Some(previous) = &change.previous {
                counted.take_away(row, previous);
            }
            if let Some(current) = &change.current {
                counted.add(row, current, now);
            }
            dirty.insert(key.clone());
        }
    }

    /// Updates the state of a written quota. If its spec has changed, its usage is counted again from the existing
    /// objects.
    fn quota_written(
        &mut self,
        reader: &Reader,
        scheme: &Scheme,
        row: &Row,
        key: &Key,
        revision: Revision,
    ) -> Result<(), Compacted> {
        let Some(stored) = reader.store.get(RESOURCE, key) else {
            self.quotas.remove(key.as_str());
            return Ok(());
        };
        let mut fresh = Counted::read(row, &stored);
        if self.quotas.get(key.as_str()).is_some_and(|it| it.spec == fresh.spec) {
            return Ok(());
        }
        let range = KeyRange::of(Some(key.namespace()));
        let now = reader.entropy.now();
        for other in fresh.rows(scheme) {
            let objects = reader.store.snapshot_at(&other.storage, revision)?;
            objects.range(&range).for_each(|it| fresh.add(other, it, now));
        }
        self.quotas.insert(key.as_str().to_owned(), fresh);
        Ok(())
    }
}

/// Returns the rows for decoding all stored namespaced objects.
fn counted_rows(scheme: &Scheme) -> impl Iterator<Item = &Arc<Row>> {
    let is_counted = |it: &&Arc<Row>| it.is_storage_version && it.is_stored() && it.info.is_namespaced();
    scheme.rows().filter(is_counted)
}

fn is_pod(row: &Row) -> bool {
    row.info.group.is_empty() && row.info.resource == "pods"
}

/// Returns `true` for a Pod that still exists after its grace period has ended.
fn is_stuck(row: &Row, pod: &Object, now: Timestamp) -> bool {
    let seconds = Cursor::root(pod).integer("metadata.deletionGracePeriodSeconds");
    let (Some(seconds), Ok(deleted)) = (seconds, pod.meta_str("deletionTimestamp").parse::<Timestamp>()) else {
        return false;
    };
    let end = deleted.checked_add(SignedDuration::from_secs(seconds));
    is_pod(row) && end.is_ok_and(|end| now > end)
}

impl Counted {
    /// Reads a quota, and sets its usage to 0.
    fn read(row: &Row, stored: &Stored) -> Self {
        let mut quota = codec::decode(row, stored);
        let hard = amounts(&Cursor::root(&quota).at("spec.hard"));
        let used = hard.keys().map(|name| (name.clone(), Quantity::from_int(0)));
        Self {
            key: stored.key.clone(),
            used: used.collect(),
            hard,
            stuck: BTreeSet::new(),
            spec: Object(quota.remove("spec").map(|spec| ("spec", spec)).into_iter().collect()),
        }
    }

    fn is_about(&self, row: &Row) -> bool {
        let (group, resource) = (&*row.info.group, &*row.info.resource);
        self.hard.keys().any(|name| is_about(name, group, resource))
    }

    fn rows<'a>(&self, scheme: &'a Scheme) -> Vec<&'a Arc<Row>> {
        counted_rows(scheme).filter(|it| self.is_about(it)).collect()
    }

    /// Returns the usage of an object. A Pod that still exists after its grace period has ended only counts as an
    /// object (`QuotaV1Pod`).
    fn usage(&self, row: &Row, object: &Object, is_stuck: bool) -> Amounts {
        let mut amounts = match in_scope(&self.spec, &row.info.resource, object) {
            true => usage(self.hard.keys(), &row.info.group, &row.info.resource, object),
            false => Amounts::new(),
        };
        amounts.retain(|name, _| !is_stuck || name.starts_with("count/"));
        amounts
    }

    fn add(&mut self, row: &Row, stored: &Stored, now: Timestamp) {
        let object = codec::decode(row, stored);
        let is_stuck = is_stuck(row, &object, now);
        if is_stuck {
            self.stuck.insert(stored.key.as_str().to_owned());
        }
        for (name, amount) in self.usage(row, &object, is_stuck) {
            let sum = self.used.entry(name).or_insert(Quantity::from_int(0));
            *sum = sum.add(&amount);
        }
    }

    fn take_away(&mut self, row: &Row, stored: &Stored) {
        let is_stuck = is_pod(row) && self.stuck.remove(stored.key.as_str());
        for (name, amount) in self.usage(row, &codec::decode(row, stored), is_stuck) {
            if let Some(sum) = self.used.get_mut(&name) {
                *sum = sum.subtract(&amount);
            }
        }
    }

    /// Writes `status` if it has changed.
    fn store(&self, reader: &Reader, writer: &Writer, row: &Row) {
        let Some(stored) = reader.store.get(RESOURCE, &self.key) else {
            return;
        };
        let mut next = codec::decode(row, &stored);
        let status: Value = json!({"hard": written(&self.hard), "used": written(&self.used)});
        if next.get("status") == Some(&status) {
            return;
        }
        next.insert("status".into(), status);
        if let Ok(codec::Encoded { body, .. }) = codec::encode(row, &next) {
            // On a conflict, the usage is counted again because of the other write.
            let _ = writer.replace(row, &stored, body);
        }
    }
}
