//! `Indexer`: a store of objects with indexes.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use tokio::sync::Notify;
use tokio::time::Instant;

use super::index::{Index, IndexFn, IndexValues};
use super::lister::Lister;
use super::sorted::Sorted;
use crate::metrics::Samples;
use crate::object::{Cacheable, CachedObject};
use crate::{Error, ObjectKey, ResourceVersion};

/// A store with indexes, filled by the caller (client-go's `Indexer`). The stores of informers are separate, and
/// callers can only read them. Clones share the store.
///
/// ```
/// use informer::{CachedObject, ObjectKey};
/// use informer::cache::{IndexFn, Indexer};
/// use k8s_openapi::api::core::v1::ConfigMap;
///
/// let maps = Indexer::<ConfigMap>::new();
/// maps.insert(CachedObject::decode(r#"{"metadata": {"name": "a"}, "data": {"color": "red"}}"#)?);
/// // A new index contains the existing objects.
/// maps.add_index(IndexFn::new("color", |map: &CachedObject<ConfigMap>|
/// map.typed().ok()?.data.as_ref()?.get("color").cloned()))?;
///
/// let lister = maps.lister();
/// assert_eq!(lister.index_keys("color", "red")?, [ObjectKey::cluster("a")]);
/// # Ok::<(), informer::Error>(())
/// ```
pub struct Indexer<K> {
    shared: Arc<Shared<K>>,
}

pub(crate) struct Shared<K> {
    /// Guards objects, indexes and versions. Readers hold it briefly, usually to clone a reference, and writers for at
    /// most one batch of changes. It is not held while user code runs.
    state: RwLock<State<K>>,
    /// Held by a writer from its first read to its last change. Always locked before `state`, if both are locked.
    turn: Mutex<()>,
    /// Number of tasks that wait for a version.
    waiting: AtomicUsize,
    moved: Notify,
}

impl<K> Shared<K> {
    fn write(&self) -> RwLockWriteGuard<'_, State<K>> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self) -> RwLockReadGuard<'_, State<K>> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) struct State<K> {
    pub(crate) objects: Sorted<K>,
    pub(crate) indexes: BTreeMap<String, Index<K>>,
    /// Version that each source has reached.
    versions: Vec<ResourceVersion>,
    /// For each source, the arrival time of the last list that was older than the store.
    restored: Vec<Option<Instant>>,
}

/// The part of a store that a list replaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    All,
    Namespace(Arc<str>),
}

impl Scope {
    pub(crate) fn contains(&self, key: &ObjectKey) -> bool {
        match self {
            Self::All => true,
            Self::Namespace(namespace) => key.namespace() == Some(namespace),
        }
    }

    /// Returns the objects within the scope.
    pub(crate) fn of<'a, K>(&'a self, objects: &'a Sorted<K>) -> Box<dyn Iterator<Item = &'a CachedObject<K>> + 'a> {
        match self {
            Self::All => Box::new(objects.iter()),
            Self::Namespace(namespace) => Box::new(objects.namespace(namespace)),
        }
    }
}

impl<K: Cacheable> Indexer<K> {
    /// Creates an empty store without indexes.
    pub fn new() -> Self {
        Self::with_sources(1)
    }

    /// Creates a store that is filled by `count` sources.
    pub(crate) fn with_sources(count: usize) -> Self {
        Self {
            shared: Arc::new(Shared {
                state: RwLock::new(State {
                    objects: Sorted::default(),
                    indexes: BTreeMap::new(),
                    versions: vec![ResourceVersion::default(); count],
                    restored: vec![None; count],
                }),
                turn: Mutex::default(),
                waiting: AtomicUsize::new(0),
                moved: Notify::new(),
            }),
        }
    }

    /// Adds an index, which immediately contains all existing objects.
    ///
    /// # Errors
    ///
    /// Fails if an index with this name exists.
    pub fn add_index(&self, index: IndexFn<K>) -> Result<(), Error> {
        let _turn = self.shared.turn();
        let objects = {
            let state = self.read();
            if state.indexes.contains_key(&index.name) {
                return Err(Error::refused(format!(
                    "an index with the name {:?} already exists",
                    index.name
                )));
            }
            state.objects.clone()
        };
        let name = index.name.clone();
        let index = Index::new(index, objects.iter());
        self.write().indexes.insert(name, index);
        Ok(())
    }

    /// Inserts an object and returns the previous object with the same key. The object's version becomes the store's
    /// version, unless it is older or the object has none.
    pub fn insert(&self, object: CachedObject<K>) -> Option<CachedObject<K>> {
        let mut writer = self.writer();
        writer.moved_to(0, object.resource_version().clone());
        writer.insert(object)
    }

    /// Removes an object. The version of the store is not changed.
    pub fn remove(&self, key: &ObjectKey) -> Option<CachedObject<K>> {
        self.writer().remove(key)
    }

    /// Replaces all objects. If several objects have the same key, the last one is kept. `version` becomes the version
    /// of the store.
    pub fn replace(&self, objects: Vec<CachedObject<K>>, version: ResourceVersion) {
        let mut writer = self.writer();
        writer.replace(&Scope::All, in_order(objects));
        let _is_restored = writer.listed_at(0, version);
    }

    /// Returns a lister, which reads the store.
    pub fn lister(&self) -> Lister<K> {
        Lister::new(self.clone())
    }

    /// Starts a batch of changes. If all index values were precomputed, readers see all changes of the batch together.
    pub(crate) fn writer(&self) -> Writer<'_, K> {
        self.writer_with(self.index_values())
    }

    /// Same as [`writer`](Self::writer), with precomputed index values.
    pub(crate) fn writer_with(&self, mut values: IndexValues<K>) -> Writer<'_, K> {
        let turn = self.shared.turn();
        if values.functions() != self.read().indexes.len() {
            // An index was added after the values had been computed.
            values = self.index_values();
        }
        Writer {
            shared: &self.shared,
            _turn: turn,
            state: None,
            values,
            has_moved: false,
        }
    }

    /// Returns an empty set of values for the current index functions.
    pub(crate) fn index_values(&self) -> IndexValues<K> {
        IndexValues::new(self.read().indexes.values().map(|it| it.function.clone()).collect())
    }

    /// Adds the metrics of the index functions. `name` and `kind` are the labels `name` and `type` of the informer.
    pub(crate) fn collect(&self, name: &str, kind: &str, samples: &mut Samples) {
        let help = "Panics of the index functions of the informer.";
        for (index, it) in &self.read().indexes {
            let labels = &[("name", name), ("type", kind), ("index", index.as_str())];
            samples.counter("informer_index_panics_total", help, labels, it.function.panics() as f64);
        }
    }

    fn write(&self) -> RwLockWriteGuard<'_, State<K>> {
        self.shared.write()
    }

    pub(crate) fn read(&self) -> RwLockReadGuard<'_, State<K>> {
        self.shared.read()
    }

    /// Returns the version that all sources have reached; empty while a source does not have a version.
    pub(crate) fn version(&self) -> ResourceVersion {
        let state = self.read();
        let least = state
            .versions
            .iter()
            .reduce(|least, it| if it < least || it.is_empty() { it } else { least });
        least.cloned().unwrap_or_default()
    }

    /// Returns the version that a source has reached.
    pub(crate) fn version_of(&self, source: usize) -> ResourceVersion {
        self.read().versions.get(source).cloned().unwrap_or_default()
    }

    /// Returns the arrival time of the last list of this source that was older than the store. Such a list shows that
    /// the server was restored from a backup, and may never send some of the earlier versions.
    pub(crate) fn restored(&self, source: usize) -> Option<Instant> {
        *self.read().restored.get(source)?
    }

    /// Waits until `is_reached` returns `true` for the version of the store.
    pub(crate) async fn wait_for_version(&self, mut is_reached: impl FnMut(&ResourceVersion) -> bool) {
        let waiting = Waiting::new(&self.shared.waiting);
        loop {
            let moved = self.shared.moved.notified();
            let mut moved = std::pin::pin!(moved);
            moved.as_mut().enable();
            if is_reached(&self.version()) {
                drop(waiting);
                return;
            }
            moved.await;
        }
    }
}

/// Guard that counts a waiting task until it is dropped.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A batch of changes. Other writers wait until it is dropped.
pub(crate) struct Writer<'a, K> {
    shared: &'a Shared<K>,
    _turn: MutexGuard<'a, ()>,
    /// Lock on the state, acquired by the first change and released while index values are computed.
    state: Option<RwLockWriteGuard<'a, State<K>>>,
    values: IndexValues<K>,
    has_moved: bool,
}

/// The changes between the store and a list, in the order in which handlers receive them.
pub(crate) struct Difference<K> {
    pub(crate) deleted: Vec<CachedObject<K>>,
    /// All objects in the list, each with its previous state.
    pub(crate) present: Vec<(Option<CachedObject<K>>, CachedObject<K>)>,
}

impl<K: Cacheable> Writer<'_, K> {
    pub(crate) fn insert(&mut self, object: CachedObject<K>) -> Option<CachedObject<K>> {
        if self.values.is_void() {
            return self.state().objects.insert(object);
        }
        self.prepare(Some(&object), object.key());
        let (state, values) = self.state_and_values();
        let old = state.objects.insert(object.clone());
        for (number, index) in state.indexes.values_mut().enumerate() {
            index.change(old.as_ref(), Some(&object), values, number);
        }
        old
    }

    pub(crate) fn remove(&mut self, key: &ObjectKey) -> Option<CachedObject<K>> {
        self.prepare(None, key);
        let (state, values) = self.state_and_values();
        let old = state.objects.remove(key)?;
        for (number, index) in state.indexes.values_mut().enumerate() {
            index.change(Some(&old), None, values, number);
        }
        // Tasks may wait for the deletion itself, whose event may have an old version.
        self.has_moved = true;
        Some(old)
    }

    /// Replaces the objects within `scope` with the sorted `list`. Readers see the old state until the new one is
    /// complete.
    pub(crate) fn replace(&mut self, scope: &Scope, list: Vec<CachedObject<K>>) -> Difference<K> {
        self.state = None;
        let before = self.shared.read().objects.clone();
        let difference = Difference::new(scope.of(&before), &list);
        let changed = || {
            difference
                .present
                .iter()
                .filter(|(old, new)| !old.as_ref().is_some_and(|it| it.ptr_eq(new)))
        };
        if !self.values.is_void() {
            let (new, old) = (changed().map(|it| &it.1), changed().filter_map(|it| it.0.as_ref()));
            new.chain(old)
                .chain(&difference.deleted)
                .for_each(|it| self.values.compute(it));
        }
        let objects = match scope {
            Scope::All => Sorted::from_sorted(list),
            Scope::Namespace(_) => {
                let mut objects = before.clone();
                difference.deleted.iter().for_each(|it| drop(objects.remove(it.key())));
                changed().for_each(|(_, new)| drop(objects.insert(new.clone())));
                objects
            }
        };
        let mut indexes = self.shared.read().indexes.clone();
        for (number, index) in indexes.values_mut().enumerate() {
            if index.buckets.is_empty() {
                // In an empty index, unchanged objects have no values, so only the computed values are needed.
                *index = index.filled(objects.iter(), &self.values, number);
                continue;
            }
            for gone in &difference.deleted {
                index.change(Some(gone), None, &self.values, number);
            }
            for (old, new) in changed() {
                index.change(old.as_ref(), Some(new), &self.values, number);
            }
        }
        let state = self.state();
        let old = (
            std::mem::replace(&mut state.objects, objects),
            std::mem::replace(&mut state.indexes, indexes),
        );
        self.state = None;
        drop(old);
        difference
    }

    /// Records that the store contains all changes from this source up to `version`. Does nothing if `version` is empty
    /// or lower than the recorded version.
    pub(crate) fn moved_to(&mut self, source: usize, version: ResourceVersion) {
        if let Some(slot) = self.state().versions.get_mut(source) {
            let is_older = version < *slot;
            if !version.is_empty() && !is_older {
                *slot = version;
                self.has_moved = true;
            }
        }
    }

    /// Records the version of a list. Returns `true` if it is lower than the recorded version, which shows that the
    /// server was restored from a backup.
    pub(crate) fn listed_at(&mut self, source: usize, version: ResourceVersion) -> bool {
        let state = self.state();
        let is_restored = state.versions.get(source).is_some_and(|before| version < *before);
        if let Some(restored) = state.restored.get_mut(source).filter(|_| is_restored) {
            *restored = Some(Instant::now());
        }
        if let Some(slot) = state.versions.get_mut(source) {
            *slot = version;
            self.has_moved = true;
        }
        is_restored
    }

    pub(crate) fn get(&mut self, key: &ObjectKey) -> Option<&CachedObject<K>> {
        self.state().objects.get(key)
    }

    pub(crate) fn snapshot(&mut self) -> Sorted<K> {
        self.state().objects.clone()
    }

    /// Computes the index values of the stored object and of the new one, without holding the lock.
    fn prepare(&mut self, new: Option<&CachedObject<K>>, key: &ObjectKey) {
        if self.values.is_void() {
            return;
        }
        let old = self.state().objects.get(key).cloned();
        if new.into_iter().chain(&old).all(|it| self.values.has(it)) {
            return;
        }
        self.state = None;
        new.into_iter().chain(&old).for_each(|it| self.values.compute(it));
    }

    fn state(&mut self) -> &mut State<K> {
        self.state_and_values().0
    }

    fn state_and_values(&mut self) -> (&mut State<K>, &IndexValues<K>) {
        let shared = self.shared;
        (self.state.get_or_insert_with(|| shared.write()), &self.values)
    }
}

impl<K> Difference<K> {
    /// Computes the difference between the old objects and a list, both sorted by key.
    fn new<'a>(before: impl Iterator<Item = &'a CachedObject<K>>, list: &[CachedObject<K>]) -> Self
    where
        K: 'a,
    {
        let mut old = before.peekable();
        let mut difference = Self {
            deleted: Vec::new(),
            present: Vec::with_capacity(list.len()),
        };
        for object in list {
            while let Some(gone) = old.next_if(|it| it.key() < object.key()) {
                difference.deleted.push(gone.clone());
            }
            let was = old.next_if(|it| it.key() == object.key());
            difference.present.push((was.cloned(), object.clone()));
        }
        difference.deleted.extend(old.cloned());
        difference
    }
}

impl<K> Drop for Writer<'_, K> {
    fn drop(&mut self) {
        self.state = None;
        // A task that is not counted yet does not miss the change, because it increments the counter before it reads
        // the version.
        if self.has_moved && self.shared.waiting.load(Ordering::SeqCst) > 0 {
            self.shared.moved.notify_waiters();
        }
    }
}

/// Sorts objects by key. If several objects have the same key, keeps the last one.
pub(crate) fn in_order<K>(mut objects: Vec<CachedObject<K>>) -> Vec<CachedObject<K>> {
    if objects.windows(2).all(|pair| pair[0].key() < pair[1].key()) {
        return objects;
    }
    objects.sort_by(|one, other| one.key().cmp(other.key()));
    let mut kept: Vec<CachedObject<K>> = Vec::with_capacity(objects.len());
    for object in objects {
        match kept.last_mut() {
            Some(last) if last.key() == object.key() => *last = object,
            Some(_) | None => kept.push(object),
        }
    }
    kept
}

impl<K: Cacheable> Default for Indexer<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K> Clone for Indexer<K> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<K> fmt::Debug for Indexer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.shared.state.read().unwrap_or_else(PoisonError::into_inner);
        let indexes: Vec<_> = state.indexes.keys().collect();
        f.debug_struct("Indexer")
            .field("objects", &state.objects.len())
            .field("indexes", &indexes)
            .finish()
    }
}

impl<K: Cacheable> super::reflector::ReflectorStore<K> for Indexer<K> {
    fn add(&self, object: CachedObject<K>) {
        self.insert(object);
    }

    fn update(&self, object: CachedObject<K>) {
        self.insert(object);
    }

    fn delete(&self, object: CachedObject<K>) {
        let mut writer = self.writer();
        writer.moved_to(0, object.resource_version().clone());
        writer.remove(object.key());
    }

    fn replace(&self, objects: Vec<CachedObject<K>>, version: ResourceVersion) {
        Self::replace(self, objects, version);
    }

    fn bookmark(&self, version: &ResourceVersion) {
        self.writer().moved_to(0, version.clone());
    }

    fn known(&self, key: &ObjectKey) -> Option<CachedObject<K>> {
        self.read().objects.get(key).cloned()
    }
}
