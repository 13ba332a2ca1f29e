//! `Sorted`: objects in the order of their keys, in chunks that copies share.
//!
//! A copy costs one reference, whatever the number of objects. The first write after a copy was taken copies a pointer
//! for each chunk and one chunk; without a copy nothing is copied.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::ObjectKey;
use crate::object::Object;

/// Objects in a chunk before it is split in two: large enough that the list of chunks stays small, small enough that
/// copying a chunk on write costs little.
const CHUNK_MAX: usize = 128;

/// An ordered map from key to object. No chunk is empty.
pub(crate) struct Sorted<K> {
    chunks: Arc<Vec<Part<K>>>,
    len: usize,
}

/// A chunk with the key it begins with, which the search for it reads without touching the chunk.
struct Part<K> {
    first: ObjectKey,
    chunk: Arc<Chunk<K>>,
}

/// A run of objects. A search looks through the hashes, which lie side by side, and then at one object alone; without
/// them it would wait for memory at every step.
struct Chunk<K> {
    hashes: Vec<u32>,
    objects: Vec<Object<K>>,
}

impl<K> Sorted<K> {
    /// Objects of which each has a greater key than the one before.
    pub(crate) fn from_sorted(objects: Vec<Object<K>>) -> Self {
        let len = objects.len();
        let mut parts = Vec::with_capacity(len.div_ceil(CHUNK_MAX));
        let mut rest = objects.into_iter();
        loop {
            let objects: Vec<_> = rest.by_ref().take(CHUNK_MAX * 3 / 4).collect();
            if objects.is_empty() {
                break;
            }
            parts.extend(Part::of(objects));
        }
        Self {
            chunks: Arc::new(parts),
            len,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The object at `key`.
    pub(crate) fn get(&self, key: &ObjectKey) -> Option<&Object<K>> {
        let chunk = &self.chunks.get(self.part_of(key))?.chunk;
        chunk.objects.get(chunk.find(key, key.hash_code())?)
    }

    /// Puts an object at its key and returns the one that was there.
    pub(crate) fn insert(&mut self, object: Object<K>) -> Option<Object<K>> {
        let index = self.part_of(object.key());
        let hash = object.key().hash_code();
        let parts = Arc::make_mut(&mut self.chunks);
        let Some(part) = parts.get_mut(index) else {
            parts.extend(Part::of(vec![object]));
            self.len += 1;
            return None;
        };
        let chunk = Arc::make_mut(&mut part.chunk);
        if let Some(at) = chunk.find(object.key(), hash) {
            return Some(std::mem::replace(&mut chunk.objects[at], object));
        }
        let at = chunk.position(object.key());
        if at == 0 {
            part.first = object.key().clone();
        }
        chunk.hashes.insert(at, hash);
        chunk.objects.insert(at, object);
        self.len += 1;
        if chunk.objects.len() > CHUNK_MAX {
            let upper = Part::of(chunk.objects.split_off(CHUNK_MAX / 2));
            chunk.hashes.truncate(CHUNK_MAX / 2);
            if let Some(upper) = upper {
                parts.insert(index + 1, upper);
            }
        }
        None
    }

    /// Takes the object at `key` out.
    pub(crate) fn remove(&mut self, key: &ObjectKey) -> Option<Object<K>> {
        let index = self.part_of(key);
        let at = self.chunks.get(index)?.chunk.find(key, key.hash_code())?;
        let parts = Arc::make_mut(&mut self.chunks);
        let part = &mut parts[index];
        let chunk = Arc::make_mut(&mut part.chunk);
        chunk.hashes.remove(at);
        let object = chunk.objects.remove(at);
        match chunk.objects.first() {
            Some(first) if at == 0 => part.first = first.key().clone(),
            Some(_) => {}
            None => drop(parts.remove(index)),
        }
        self.len -= 1;
        Some(object)
    }

    /// All objects.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Object<K>> {
        self.chunks.iter().flat_map(|part| &part.chunk.objects)
    }

    /// Those of a namespace.
    pub(crate) fn namespace<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a Object<K>> {
        let compare = |key: &ObjectKey| key.namespace().cmp(&Some(namespace));
        let after = self
            .chunks
            .partition_point(|part| compare(&part.first) == Ordering::Less);
        let begin = after.saturating_sub(1);
        let parts = self.chunks.iter().skip(begin).flat_map(|part| &part.chunk.objects);
        parts
            .skip_while(move |it| compare(it.key()) == Ordering::Less)
            .take_while(move |it| compare(it.key()) == Ordering::Equal)
    }

    /// The chunk in which `key` is or would be: the last one that begins at or before it.
    fn part_of(&self, key: &ObjectKey) -> usize {
        self.chunks.partition_point(|part| part.first <= *key).saturating_sub(1)
    }
}

impl<K> Part<K> {
    /// `None` of no objects.
    fn of(objects: Vec<Object<K>>) -> Option<Self> {
        let first = objects.first()?.key().clone();
        let hashes = objects.iter().map(|it| it.key().hash_code()).collect();
        let chunk = Arc::new(Chunk { hashes, objects });
        Some(Self { first, chunk })
    }
}

impl<K> Chunk<K> {
    fn find(&self, key: &ObjectKey, hash: u32) -> Option<usize> {
        let mut from = 0;
        while let Some(at) = self.hashes[from..].iter().position(|it| *it == hash) {
            if self.objects[from + at].key() == key {
                return Some(from + at);
            }
            from += at + 1;
        }
        None
    }

    /// Where `key`, which is not here, would be.
    fn position(&self, key: &ObjectKey) -> usize {
        self.objects.partition_point(|it| it.key() < key)
    }
}

impl<K> Default for Sorted<K> {
    fn default() -> Self {
        Self {
            chunks: Arc::default(),
            len: 0,
        }
    }
}

impl<K> Clone for Sorted<K> {
    fn clone(&self) -> Self {
        Self {
            chunks: Arc::clone(&self.chunks),
            len: self.len,
        }
    }
}

impl<K> Clone for Part<K> {
    fn clone(&self) -> Self {
        Self {
            first: self.first.clone(),
            chunk: Arc::clone(&self.chunk),
        }
    }
}

impl<K> Clone for Chunk<K> {
    fn clone(&self) -> Self {
        Self {
            hashes: self.hashes.clone(),
            objects: self.objects.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use k8s_openapi::api::core::v1::ConfigMap;
    use proptest::prelude::*;

    use super::*;

    fn object(key: &ObjectKey, version: usize) -> Object<ConfigMap> {
        let namespace = key.namespace().unwrap_or_default();
        let text = format!(
            r#"{{"metadata":{{"name":"{}","namespace":"{namespace}","resourceVersion":"{version}"}}}}"#,
            key.name()
        );
        Object::decode(&text).expect("an object")
    }

    fn version(object: &Object<ConfigMap>) -> u64 {
        object.resource_version().number().expect("a number")
    }

    proptest! {
        /// Against a `BTreeMap`: the same objects after any writes; copies stay as they were.
        #[test]
        fn behaves_like_a_map(
            writes in prop::collection::vec((any::<bool>(), 0_u16..600), 0..1200),
            bulk in 0_u16..600,
        ) {
            let key = |number: u16| match number % 3 {
                0 => ObjectKey::cluster(&format!("{number:03}")),
                namespace => ObjectKey::new(&format!("n{namespace}"), &format!("{number:03}")),
            };
            let mut model: BTreeMap<ObjectKey, u64> = (0..bulk).map(|it| (key(it), 1)).collect();
            let mut sorted = Sorted::from_sorted(model.keys().map(|key| object(key, 1)).collect());
            let mut copy = None;
            for (at, (insert, number)) in writes.iter().enumerate() {
                let (key, new) = (key(*number), at + 2);
                let (old, expected) = if *insert {
                    (sorted.insert(object(&key, new)), model.insert(key, new as u64))
                } else {
                    (sorted.remove(&key), model.remove(&key))
                };
                prop_assert_eq!(old.as_ref().map(version), expected);
                if at == writes.len() / 2 {
                    copy = Some((sorted.clone(), model.clone()));
                }
            }
            for (sorted, model) in copy.iter().chain([&(sorted, model)]) {
                prop_assert_eq!(sorted.len(), model.len());
                let all: Vec<_> = sorted.iter().map(|it| (it.key().clone(), version(it))).collect();
                let expected: Vec<_> = model.iter().map(|(key, version)| (key.clone(), *version)).collect();
                prop_assert_eq!(all, expected);
                for namespace in ["n1", "n2", "n3"] {
                    let some: Vec<_> = sorted.namespace(namespace).map(version).collect();
                    let keys = model.iter().filter(|(key, _)| key.namespace() == Some(namespace));
                    prop_assert_eq!(some, keys.map(|(_, version)| *version).collect::<Vec<_>>());
                }
                for key in model.keys() {
                    prop_assert_eq!(sorted.get(key).map(version), model.get(key).copied());
                }
            }
        }
    }
}
