//! `Sorted`: the objects of one resource in key order, in chunks shared between copies.
//!
//! Cloning is cheap. The first write to a clone copies the pointers to all chunks and one chunk; later writes copy at
//! most one chunk. Ranges are counted chunk by chunk, so the number of objects after a page is computed without
//! visiting each object.

use std::sync::Arc;

use super::{KeyRange, Stored};

/// Maximum number of objects in a chunk; larger chunks are split. Large chunks keep the list of chunks short; small
/// chunks make copy-on-write cheap.
const CHUNK_MAX: usize = 128;

type Chunk = Vec<Arc<Stored>>;

/// An ordered map from keys to objects. Chunks are not empty.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sorted {
    chunks: Arc<Vec<Arc<Chunk>>>,
    len: usize,
}

impl Sorted {
    /// Returns the number of objects.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the object with this key.
    pub(crate) fn get(&self, key: &str) -> Option<&Arc<Stored>> {
        let chunk = self.chunks.get(self.chunk_of(key))?;
        let at = chunk.binary_search_by(|it| it.key.as_str().cmp(key)).ok()?;
        chunk.get(at)
    }

    /// Inserts an object, and returns the previous one with the same key.
    pub(crate) fn insert(&mut self, object: Arc<Stored>) -> Option<Arc<Stored>> {
        let index = self.chunk_of(object.key.as_str());
        let chunks = Arc::make_mut(&mut self.chunks);
        let Some(chunk) = chunks.get_mut(index) else {
            chunks.push(Arc::new(vec![object]));
            self.len += 1;
            return None;
        };
        let chunk = Arc::make_mut(chunk);
        match chunk.binary_search_by(|it| it.key.cmp(&object.key)) {
            Ok(at) => Some(std::mem::replace(&mut chunk[at], object)),
            Err(at) => {
                chunk.insert(at, object);
                self.len += 1;
                if chunk.len() > CHUNK_MAX {
                    let upper = chunk.split_off(CHUNK_MAX / 2);
                    chunks.insert(index + 1, Arc::new(upper));
                }
                None
            }
        }
    }

    /// Removes and returns the object with this key.
    pub(crate) fn remove(&mut self, key: &str) -> Option<Arc<Stored>> {
        let index = self.chunk_of(key);
        let at = self
            .chunks
            .get(index)?
            .binary_search_by(|it| it.key.as_str().cmp(key))
            .ok()?;
        let chunks = Arc::make_mut(&mut self.chunks);
        let chunk = Arc::make_mut(&mut chunks[index]);
        let object = chunk.remove(at);
        if chunk.is_empty() {
            chunks.remove(index);
        }
        self.len -= 1;
        Some(object)
    }

    /// Returns the objects in a range, in key order.
    pub(crate) fn range<'a>(&'a self, range: &'a KeyRange) -> impl Iterator<Item = &'a Arc<Stored>> {
        let first = self.chunk_of(&range.start);
        let from = self.chunks.get(first).map_or(0, |chunk| position(chunk, &range.start));
        let head = self.chunks.get(first).into_iter().flat_map(move |chunk| &chunk[from..]);
        let rest = self.chunks.iter().skip(first + 1).flat_map(|chunk| chunk.iter());
        head.chain(rest)
            .take_while(|it| range.end.as_deref().is_none_or(|end| it.key.as_str() < end))
    }

    /// Returns the number of objects in a range.
    pub(crate) fn count(&self, range: &KeyRange) -> usize {
        let end = range.end.as_deref().map_or(self.len, |end| self.rank(end));
        end.saturating_sub(self.rank(&range.start))
    }

    /// Returns the number of objects before `key`.
    fn rank(&self, key: &str) -> usize {
        let index = self.chunk_of(key);
        let before: usize = self.chunks.iter().take(index).map(|chunk| chunk.len()).sum();
        before + self.chunks.get(index).map_or(0, |chunk| position(chunk, key))
    }

    /// Returns the index of the chunk in which `key` belongs: the last chunk that begins at or before it.
    fn chunk_of(&self, key: &str) -> usize {
        let after = self
            .chunks
            .partition_point(|chunk| chunk.first().is_some_and(|it| it.key.as_str() <= key));
        after.saturating_sub(1)
    }
}

/// Returns the index of `key` in a chunk, or the index at which it would be inserted.
fn position(chunk: &Chunk, key: &str) -> usize {
    chunk.partition_point(|it| it.key.as_str() < key)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;
    use crate::storage::{Body, Key};

    fn stored(key: &str, revision: u64) -> Arc<Stored> {
        let body = Body {
            bytes: Bytes::new(),
            version_at: 0,
            metadata_len: 0,
            is_completed_on_read: false,
            uid: "".into(),
            labels: Box::default(),
            fields: Box::default(),
        };
        Arc::new(Stored {
            key: Key::new("", key),
            revision,
            body,
        })
    }

    proptest! {
        /// Compares with a `BTreeMap`: after any writes, objects, ranges and counts are the same, and clones are
        /// unaffected.
        #[test]
        fn sorted_map_behaves_like_a_btree_map(
            writes in prop::collection::vec((any::<bool>(), 0u16..600), 0..1500),
            cut in 0u16..600,
        ) {
            let mut sorted = Sorted::default();
            let mut model = BTreeMap::new();
            let mut copy = None;
            for (revision, (insert, number)) in writes.iter().enumerate() {
                let key = format!("n{}/{number:03}", number % 3);
                if *insert {
                    sorted.insert(stored(&key, revision as u64));
                    model.insert(key, revision as u64);
                } else {
                    prop_assert_eq!(sorted.remove(&key).map(|it| it.revision), model.remove(&key));
                }
                if revision == writes.len() / 2 {
                    copy = Some((sorted.clone(), model.clone()));
                }
            }
            let ranges = [KeyRange::of(None), KeyRange::of(Some("n1")), KeyRange::of(Some("n1")).from(format!("n1/{cut:03}"))];
            for (sorted, model) in copy.iter().chain([&(sorted, model)]) {
                for range in &ranges {
                    let inside = model.iter().filter(|(key, _)| range.contains(key));
                    let want: Vec<_> = inside.map(|(_, rev)| *rev).collect();
                    prop_assert_eq!(sorted.count(range), want.len());
                    prop_assert_eq!(sorted.range(range).map(|it| it.revision).collect::<Vec<_>>(), want);
                }
                prop_assert_eq!(sorted.len(), model.len());
            }
        }
    }
}
