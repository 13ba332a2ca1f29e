//! `QuotaController`: keeps `status` of ResourceQuotas up to date as the controller of that name does. It is a cursor
//! into the logs: a write adds what the new object uses and takes away what the old one used, so that it costs the same
//! however many objects there are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

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

/// The state of the controller; empty until there is a quota.
#[derive(Debug, Default)]
pub(crate) struct QuotaController(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    /// The epoch of the store and the revision up to which changes are counted; `None` before the first quota.
    cursor: Option<(u64, Revision)>,
    /// The quotas by the text of their keys, so that those of a namespace lie side by side.
    quotas: BTreeMap<String, Counted>,
}

/// A quota and what is used of it.
#[derive(Debug)]
struct Counted {
    key: Key,
    /// Its `spec`, which says what is counted.
    spec: Object,
    hard: Amounts,
    used: Amounts,
}

impl QuotaController {
    /// Counts the writes since the last call and stores the result.
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
            // There is no cursor, or the log is shorter than what was written since.
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
    /// Counts all quotas from the objects there are; returns the keys of all.
    fn start(&mut self, reader: &Reader, scheme: &Scheme, row: &Row) -> BTreeSet<String> {
        let everything = reader.store.everything();
        self.cursor = Some((everything.epoch, everything.revision));
        self.quotas.clear();
        let snapshot = |storage: &str| everything.resources.iter().find(|(it, _)| **it == *storage);
        let Some((_, quotas)) = snapshot(RESOURCE) else {
            return BTreeSet::new();
        };
        for stored in quotas.range(&KeyRange::of(None)) {
            let mut counted = Counted::read(row, stored);
            for other in counted.rows(scheme) {
                if let Some((_, objects)) = snapshot(&other.storage) {
                    let range = KeyRange::of(Some(stored.key.namespace()));
                    objects.range(&range).for_each(|it| counted.add(other, it));
                }
            }
            self.quotas.insert(stored.key.as_str().to_owned(), counted);
        }
        self.quotas.keys().cloned().collect()
    }

    /// Counts the changes since the cursor; returns the keys of the quotas they are about. `None` without a cursor.
    fn follow(&mut self, reader: &Reader, scheme: &Scheme, row: &Row) -> Option<Result<BTreeSet<String>, Compacted>> {
        let (epoch, revision) = self.cursor?;
        let fresh = reader.store.all_changes_after(epoch, revision).ok()?;
        self.cursor = Some((epoch, fresh.revision));
        let (mut dirty, mut written) = (BTreeSet::new(), BTreeSet::new());
        for (resource, change) in &fresh.changes {
            if **resource == *RESOURCE {
                written.insert(change.object().key.clone());
            }
            self.count(scheme, resource, change, &mut dirty);
        }
        for key in written {
            if let Err(compacted) = self.quota_written(reader, scheme, row, &key, fresh.revision) {
                return Some(Err(compacted));
            }
            dirty.insert(key.as_str().to_owned());
        }
        Some(Ok(dirty))
    }

    /// Counts a change for the quotas of its namespace.
    fn count(&mut self, scheme: &Scheme, resource: &str, change: &Change, dirty: &mut BTreeSet<String>) {
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
                counted.add(row, current);
            }
            dirty.insert(key.clone());
        }
    }

    /// Takes note of what a written quota counts now. One that counts something new is counted from the objects.
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
        for other in fresh.rows(scheme) {
            let objects = reader.store.snapshot_at(&other.storage, revision)?;
            objects.range(&range).for_each(|it| fresh.add(other, it));
        }
        self.quotas.insert(key.as_str().to_owned(), fresh);
        Ok(())
    }
}

/// The rows by which stored objects of namespaces are read.
fn counted_rows(scheme: &Scheme) -> impl Iterator<Item = &Arc<Row>> {
    let is_counted = |it: &&Arc<Row>| it.is_storage_version && it.is_stored() && it.info.is_namespaced();
    scheme.rows().filter(is_counted)
}

impl Counted {
    /// A quota of which nothing is used.
    fn read(row: &Row, stored: &Stored) -> Self {
        let mut quota = codec::decode(row, stored);
        let hard = amounts(&Cursor::root(&quota).at("spec.hard"));
        let used = hard.keys().map(|name| (name.clone(), Quantity::from_int(0)));
        Self {
            key: stored.key.clone(),
            used: used.collect(),
            hard,
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

    fn usage(&self, row: &Row, stored: &Stored) -> Amounts {
        let object = codec::decode(row, stored);
        match in_scope(&self.spec, &row.info.resource, &object) {
            true => usage(self.hard.keys(), &row.info.group, &row.info.resource, &object),
            false => Amounts::new(),
        }
    }

    fn add(&mut self, row: &Row, stored: &Stored) {
        for (name, amount) in self.usage(row, stored) {
            let sum = self.used.entry(name).or_insert(Quantity::from_int(0));
            *sum = sum.add(&amount);
        }
    }

    fn take_away(&mut self, row: &Row, stored: &Stored) {
        for (name, amount) in self.usage(row, stored) {
            if let Some(sum) = self.used.get_mut(&name) {
                *sum = sum.subtract(&amount);
            }
        }
    }

    /// Writes `status` where it says something else.
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
            // A write that came first counts again itself.
            let _ = writer.replace(row, &stored, body);
        }
    }
}
