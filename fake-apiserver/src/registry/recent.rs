//! `Recent`: a cache of the most recently written objects, decoded. Clients often write the same object several times,
//! and decoding its previous state takes a sixth of the time of an update or an apply.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::scheme::Row;
use super::scheme::codec;
use crate::api::object::Object;
use crate::storage::Stored;

/// Maximum number of cached objects; the oldest are dropped first.
const OBJECTS_MAX: usize = 64;
/// Maximum total size of the encoded objects in bytes (the decoded objects need several times as much memory); the
/// oldest are dropped first.
const BYTES_MAX: usize = 128 * 1024;

/// Decoded objects, each with its stored form.
#[derive(Debug, Default)]
pub(super) struct Recent(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    /// In the order of their writes, newest last.
    objects: VecDeque<(Arc<Stored>, Arc<Object>)>,
    bytes: usize,
}

impl Recent {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Caches an object that has just been stored, in the version of `row`. The caller must exclude objects that may
    /// change when they are encoded and decoded, such as objects with fractional numbers.
    pub(super) fn keep(&self, row: &Row, stored: &Arc<Stored>, mut object: Object) {
        let bytes = stored.body.bytes.len();
        if !row.is_as_stored || bytes > BYTES_MAX {
            return;
        }
        row.name_kind(&mut object);
        object
            .metadata_mut()
            .insert("resourceVersion".into(), stored.revision.to_string().into());
        let mut kept = self.lock();
        kept.bytes += bytes;
        kept.objects.push_back((Arc::clone(stored), Arc::new(object)));
        let mut gone = Vec::new();
        while kept.objects.len() > OBJECTS_MAX || kept.bytes > BYTES_MAX {
            let Some((stored, object)) = kept.objects.pop_front() else {
                break;
            };
            kept.bytes -= stored.body.bytes.len();
            gone.push(object);
        }
        drop(kept);
    }

    /// Returns a stored object in the version of `row`, and removes it from the cache, because it is about to change.
    pub(super) fn take(&self, row: &Row, stored: &Arc<Stored>) -> Object {
        match self.lock().remove(row, stored) {
            Some(object) => Arc::unwrap_or_clone(object),
            None => codec::decode(row, stored),
        }
    }

    /// Returns the cached object without removing it from the cache; `None` if it is not cached.
    pub(super) fn peek(&self, row: &Row, stored: &Arc<Stored>) -> Option<Arc<Object>> {
        let kept = self.lock();
        let at = kept.find(row, stored)?;
        kept.objects.get(at).map(|(_, object)| Arc::clone(object))
    }
}

impl Kept {
    fn find(&self, row: &Row, stored: &Arc<Stored>) -> Option<usize> {
        let mut kept = self.objects.iter();
        let at = kept.rposition(|(it, _)| Arc::ptr_eq(it, stored))?;
        // Versions with the same types have the same stored form.
        let is_of_version = self.objects[at].1.api_version() == &*row.api_version;
        (row.is_as_stored && is_of_version).then_some(at)
    }

    fn remove(&mut self, row: &Row, stored: &Arc<Stored>) -> Option<Arc<Object>> {
        let at = self.find(row, stored)?;
        let (stored, object) = self.objects.remove(at)?;
        self.bytes -= stored.body.bytes.len();
        Some(object)
    }
}

#[cfg(test)]
mod tests {
    use crate::api::json::{Value, json};
    use proptest::prelude::*;

    use super::*;
    use crate::registry::scheme::Scheme;

    fn row() -> Arc<Row> {
        let row = Scheme::default().lookup("", "v1", "configmaps");
        row.expect("the kind is built in")
    }

    fn object(value: Value) -> Object {
        let value = json!({"metadata": {"name": "a", "namespace": "b", "labels": {"k": "v"}}, "data": value});
        Object(value.as_object().cloned().unwrap_or_default())
    }

    fn stored(row: &Row, object: &Object, revision: u64) -> Arc<Stored> {
        let body = codec::encode(row, object).expect("the object is small").body;
        let key = codec::key_of(object);
        Arc::new(Stored { key, revision, body })
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn cached_objects_equal_decoded_objects(
            text in ".{0,8}", whole in any::<i64>(), float in any::<f64>(), is_float in any::<bool>(),
        ) {
            let (row, recent) = (row(), Recent::default());
            let number = if is_float { json!(float) } else { json!(whole) };
            let object = object(json!({"text": text, "list": [number, null, {}]}));
            let stored = stored(&row, &object, 7);
            if !codec::encode(&row, &object).expect("the object is small").has_fraction {
                recent.keep(&row, &stored, object);
            }
            prop_assert_eq!(recent.take(&row, &stored), codec::decode(&row, &stored));
        }
    }

    #[test]
    fn cached_object_is_only_returned_once_and_the_oldest_is_dropped() {
        let (row, recent) = (row(), Recent::default());
        let object = object(json!({}));
        let all: Vec<_> = (0..=OBJECTS_MAX as u64).map(|it| stored(&row, &object, it)).collect();
        for stored in &all {
            recent.keep(&row, stored, object.clone());
        }
        let found = |at: usize| recent.lock().remove(&row, &all[at]).is_some();
        assert_eq!(
            [found(0), found(1), found(1), found(OBJECTS_MAX)],
            [false, true, false, true]
        );
        // The stored object was written again with the same contents, so the cached one is outdated.
        assert!(recent.lock().remove(&row, &stored(&row, &object, 2)).is_none());
    }
}
