//! `Known`: caches the decoded objects of small resources that rarely change, such as classes and address ranges. Some
//! rules read all of them at each write of another resource.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::api::object::Object;
use crate::registry::scheme::{Row, codec};
use crate::storage::Stored;

/// Maximum number of objects of a resource; larger resources are not cached.
const OBJECTS_MAX: usize = 32;
/// Maximum total size of the encoded objects in bytes; larger resources are not cached.
const BYTES_MAX: usize = 32 * 1024;

/// Decoded objects with their stored form, by the storage name of the resource.
#[derive(Debug, Default)]
pub(super) struct Known(Mutex<HashMap<Arc<str>, Vec<Decoded>>>);

#[derive(Clone, Debug)]
struct Decoded {
    stored: Arc<Stored>,
    object: Arc<Object>,
}

impl Known {
    /// Returns the decoded objects, in the order of `stored`.
    pub(super) fn objects(&self, row: &Row, stored: &[&Arc<Stored>]) -> Vec<Arc<Object>> {
        let decode = |stored: &Arc<Stored>| Arc::new(codec::decode(row, stored));
        let bytes: usize = stored.iter().map(|it| it.body.bytes.len()).sum();
        if stored.len() > OBJECTS_MAX || bytes > BYTES_MAX {
            return stored.iter().map(|it| decode(it)).collect();
        }
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = known.get(&row.storage).map_or(&[][..], Vec::as_slice);
        let is_same = |(it, stored): (&Decoded, &&Arc<Stored>)| Arc::ptr_eq(&it.stored, stored);
        if before.len() != stored.len() || !before.iter().zip(stored).all(is_same) {
            let known_or_new = |stored: &&Arc<Stored>| Decoded {
                stored: Arc::clone(stored),
                object: match before.iter().find(|it| Arc::ptr_eq(&it.stored, stored)) {
                    Some(it) => Arc::clone(&it.object),
                    None => decode(stored),
                },
            };
            let now = stored.iter().map(known_or_new).collect();
            known.insert(Arc::clone(&row.storage), now);
        }
        let now = known.get(&row.storage).map_or(&[][..], Vec::as_slice);
        now.iter().map(|it| Arc::clone(&it.object)).collect()
    }
}
