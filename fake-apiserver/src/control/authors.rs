//! `Authors`: finds the request that caused a change.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::Verb;
use crate::endpoints::journal::{Entry, Journal, RecordedRequest};
use crate::world::{StoredChange, StoredObject};

/// The successful writes of a journal.
#[derive(Debug)]
pub(super) struct Authors {
    /// The writes by their number in the journal.
    writes: BTreeMap<u64, RecordedRequest>,
    /// The journal number of the write that returned each revision. Only the first write is kept, because later
    /// requests may return the same revision.
    by_revision: BTreeMap<u64, u64>,
}

impl Authors {
    /// Collects the writes that are still in the journal.
    pub(super) fn of(journal: &Journal) -> Self {
        let page = journal.page(0, usize::MAX);
        let (mut writes, mut by_revision) = (BTreeMap::new(), BTreeMap::new());
        for (number, entry) in (page.first..).zip(page.entries) {
            if let Entry::Request(it) = entry
                && it.is_write()
                && is_done(&it)
            {
                if let Some(revision) = shown(&it) {
                    by_revision.entry(revision).or_insert(number);
                }
                writes.insert(number, it);
            }
        }
        Self { writes, by_revision }
    }

    /// Returns the author of a change; null if its request is not in the journal, or if it was not caused by a request.
    pub(super) fn of_change(&self, change: &StoredChange) -> Value {
        let number = match (&change.before, &change.after) {
            (_, Some(_)) => self.by_revision.get(&change.revision).copied(),
            (Some(before), None) => self.remover_of(before),
            (None, None) => None,
        };
        let Some((number, request)) = number.and_then(|it| self.writes.get_key_value(&it)) else {
            return Value::Null;
        };
        json!({
            "number": number, "atMs": request.started.as_millis() as u64,
            "client": request.worker.unwrap_or(&request.client), "user": request.user.name,
            "verb": request.verb().map(Verb::as_str), "faults": request.faults,
        })
    }

    /// Returns the request that removed an object: the first request for the object after the object's last write.
    /// Skips requests that returned the object unchanged.
    fn remover_of(&self, object: &StoredObject) -> Option<u64> {
        let before = self.by_revision.range(..=object.revision()).next_back();
        let mut later = self.writes.range(before.map_or(0, |(_, number)| number + 1)..);
        let remover = later.find(|(_, it)| is_about(it, object) && shown(it) != Some(object.revision()));
        remover.map(|(number, _)| *number)
    }
}

/// Returns `true` if a request took effect, even if a fault suppressed its response.
fn is_done(request: &RecordedRequest) -> bool {
    (200..300).contains(&request.code) || request.lost.is_some()
}

/// Returns the revision of the stored object in a response, even if a fault suppressed the response.
fn shown(request: &RecordedRequest) -> Option<u64> {
    let lost = || request.lost.and_then(|it| it.revision);
    request.stored.as_ref().map(|it| it.object.revision).or_else(lost)
}

/// Returns `true` if a request is for the object, or deletes the object's collection.
fn is_about(request: &RecordedRequest, object: &StoredObject) -> bool {
    request.info.as_ref().is_some_and(|info| {
        let is_collection = info.verb == Verb::DeleteCollection;
        *info.resource == *object.resource()
            && *info.group == *object.group()
            && (info.namespace == object.namespace() || (is_collection && info.namespace.is_empty()))
            && (info.name == object.name() || is_collection)
    })
}
