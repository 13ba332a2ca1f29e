//! `Sorted`: objects ordered by key, in a persistent tree of three levels.
//!
//! Cloning is cheap: it increments a reference count. The first write after a clone copies the nodes on its path: the
//! root, a branch and a chunk, which together contain about 140 references for 100,000 objects. Without clones, writes
//! copy nothing.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::ObjectKey;
use crate::object::CachedObject;

/// Maximum number of parts of a node; larger nodes are split in two. The root is never split: its number of parts is
/// about the number of objects divided by the square of this constant.
const PARTS_MAX: usize = 64;

/// An ordered map from key to object. Only the root may be empty.
pub(crate) struct Sorted<K> {
    root: Arc<Node<Node<Chunk<K>>>>,
    len: usize,
}

/// Ordered parts, each with a lower bound of its keys, so that a search does not access the parts themselves. Only the
/// first part may contain keys below its bound.
struct Node<T> {
    firsts: Arc<Vec<ObjectKey>>,
    parts: Vec<Arc<T>>,
}

/// Consecutive objects. A search scans the contiguous hashes and then accesses a single object, instead of accessing an
/// object in memory at every step.
struct Chunk<K> {
    hashes: Vec<u32>,
    objects: Vec<CachedObject<K>>,
}

impl<K> Sorted<K> {
    /// Builds the tree from objects with ascending keys.
    pub(crate) fn from_sorted(objects: Vec<CachedObject<K>>) -> Self {
        let len = objects.len();
        let chunks = in_runs(objects)
            .into_iter()
            .map(|run| (run[0].key().clone(), Chunk::of(run)));
        let branches = in_runs(chunks.collect())
            .into_iter()
            .map(|run| (run[0].0.clone(), Node::of(run)));
        let root = Arc::new(Node::of(branches.collect()));
        Self { root, len }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the object with this key.
    pub(crate) fn get(&self, key: &ObjectKey) -> Option<&CachedObject<K>> {
        let branch = self.root.parts.get(self.root.place_of(key))?;
        let chunk = branch.parts.get(branch.place_of(key))?;
        chunk.objects.get(chunk.find(key, key.hash_code())?)
    }

    /// Inserts an object and returns the previous object with the same key.
    pub(crate) fn insert(&mut self, object: CachedObject<K>) -> Option<CachedObject<K>> {
        let key = object.key();
        let root = Arc::make_mut(&mut self.root);
        let at_branch = root.place_of(key);
        let Some(branch) = root.parts.get_mut(at_branch) else {
            *self = Self::from_sorted(vec![object]);
            return None;
        };
        let branch = Arc::make_mut(branch);
        let at_chunk = branch.place_of(key);
        let chunk = Arc::make_mut(&mut branch.parts[at_chunk]);
        if let Some(at) = chunk.find(key, key.hash_code()) {
            return Some(std::mem::replace(&mut chunk.objects[at], object));
        }
        let at = chunk.position(key);
        chunk.hashes.insert(at, key.hash_code());
        chunk.objects.insert(at, object);
        self.len += 1;
        if chunk.objects.len() > PARTS_MAX {
            let upper = chunk.split_off(PARTS_MAX / 2);
            branch.insert(at_chunk + 1, upper.objects[0].key().clone(), upper);
        }
        if branch.parts.len() > PARTS_MAX {
            let upper = branch.split_off(PARTS_MAX / 2);
            root.insert(at_branch + 1, upper.firsts[0].clone(), upper);
        }
        None
    }

    /// Removes and returns the object with this key.
    pub(crate) fn remove(&mut self, key: &ObjectKey) -> Option<CachedObject<K>> {
        // Return early if the key is missing, before nodes are copied.
        self.get(key)?;
        let root = Arc::make_mut(&mut self.root);
        let at_branch = root.place_of(key);
        let branch = Arc::make_mut(&mut root.parts[at_branch]);
        let at_chunk = branch.place_of(key);
        let chunk = Arc::make_mut(&mut branch.parts[at_chunk]);
        let at = chunk.find(key, key.hash_code())?;
        chunk.hashes.remove(at);
        let object = chunk.objects.remove(at);
        self.len -= 1;
        if chunk.objects.is_empty() {
            branch.remove(at_chunk);
        }
        if branch.parts.is_empty() {
            root.remove(at_branch);
        }
        Some(object)
    }

    /// Returns all objects, ordered by key.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &CachedObject<K>> {
        let chunks = self.root.parts.iter().flat_map(|branch| &branch.parts);
        chunks.flat_map(|chunk| &chunk.objects)
    }

    /// Returns the objects of a namespace, ordered by name.
    pub(crate) fn namespace<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a CachedObject<K>> {
        let compare = |key: &ObjectKey| key.namespace().cmp(&Some(namespace));
        let is_before = |key: &ObjectKey| compare(key) == Ordering::Less;
        let at_branch = self.root.last_where(is_before);
        let at_chunk = self.root.parts.get(at_branch).map_or(0, |it| it.last_where(is_before));
        let branches = self.root.parts.iter().skip(at_branch);
        let chunks = branches.flat_map(|branch| &branch.parts).skip(at_chunk);
        chunks
            .flat_map(|chunk| &chunk.objects)
            .skip_while(move |it| compare(it.key()) == Ordering::Less)
            .take_while(move |it| compare(it.key()) == Ordering::Equal)
    }
}

/// Splits items into chunks of three quarters of the maximum size, so that later inserts do not immediately split them.
fn in_runs<T>(items: Vec<T>) -> Vec<Vec<T>> {
    let mut rest = items.into_iter();
    let runs = std::iter::from_fn(|| {
        let run: Vec<T> = rest.by_ref().take(PARTS_MAX * 3 / 4).collect();
        (!run.is_empty()).then_some(run)
    });
    runs.collect()
}

impl<T> Node<T> {
    fn of(parts: Vec<(ObjectKey, T)>) -> Self {
        let (firsts, parts) = parts.into_iter().map(|(first, part)| (first, Arc::new(part))).unzip();
        Self {
            firsts: Arc::new(firsts),
            parts,
        }
    }

    /// Returns the index of the part that contains `key`, or into which `key` must be inserted.
    fn place_of(&self, key: &ObjectKey) -> usize {
        self.last_where(|first| first <= key)
    }

    /// Returns the index of the last part whose first key satisfies `is_so`, or 0.
    fn last_where(&self, is_so: impl Fn(&ObjectKey) -> bool) -> usize {
        self.firsts.partition_point(is_so).saturating_sub(1)
    }

    fn insert(&mut self, at: usize, first: ObjectKey, part: T) {
        Arc::make_mut(&mut self.firsts).insert(at, first);
        self.parts.insert(at, Arc::new(part));
    }

    fn remove(&mut self, at: usize) {
        Arc::make_mut(&mut self.firsts).remove(at);
        self.parts.remove(at);
    }

    fn split_off(&mut self, at: usize) -> Self {
        Self {
            firsts: Arc::new(Arc::make_mut(&mut self.firsts).split_off(at)),
            parts: self.parts.split_off(at),
        }
    }
}

impl<K> Chunk<K> {
    fn of(objects: Vec<CachedObject<K>>) -> Self {
        let hashes = objects.iter().map(|it| it.key().hash_code()).collect();
        Self { hashes, objects }
    }

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

    /// Returns the position at which to insert `key`, which must not be in the chunk.
    fn position(&self, key: &ObjectKey) -> usize {
        self.objects.partition_point(|it| it.key() < key)
    }

    fn split_off(&mut self, at: usize) -> Self {
        Self {
            hashes: self.hashes.split_off(at),
            objects: self.objects.split_off(at),
        }
    }
}

impl<K> Default for Sorted<K> {
    fn default() -> Self {
        Self::from_sorted(Vec::new())
    }
}

impl<K> Clone for Sorted<K> {
    fn clone(&self) -> Self {
        Self {
            root: Arc::clone(&self.root),
            len: self.len,
        }
    }
}

impl<T> Clone for Node<T> {
    fn clone(&self) -> Self {
        Self {
            firsts: Arc::clone(&self.firsts),
            parts: self.parts.clone(),
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

    fn object(key: &ObjectKey, version: usize) -> CachedObject<ConfigMap> {
        let namespace = key.namespace().unwrap_or_default();
        let text = format!(
            r#"{{"metadata":{{"name":"{}","namespace":"{namespace}","resourceVersion":"{version}"}}}}"#,
            key.name()
        );
        CachedObject::decode(&text).expect("the object can be decoded")
    }

    fn version(object: &CachedObject<ConfigMap>) -> u64 {
        object.resource_version().number().expect("the value is a number")
    }

    proptest! {
        // Each case has up to 9,000 objects and 1,200 writes.
        #![proptest_config(ProptestConfig::with_cases(48))]

        /// Compares the tree with a `BTreeMap` after each write, and checks that clones do not change.
        #[test]
        fn sorted_tree_behaves_like_a_map(
            writes in prop::collection::vec((any::<bool>(), 0_u16..9000), 0..1200),
            bulk in 0_u16..9000,
        ) {
            let key = |number: u16| match number % 3 {
                0 => ObjectKey::cluster(&format!("{number:05}")),
                namespace => ObjectKey::new(&format!("n{namespace}"), &format!("{number:05}")),
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
