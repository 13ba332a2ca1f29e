//! `Store`: all objects of the server, the revision counter, and a log for each resource.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use super::history::History;
use super::sorted::Sorted;
use super::{Body, Change, Compacted, Key, ResourcePart, ResourceSnapshot, Revision, Stored};

/// Reason why a write is refused. A refused write does not change anything.
#[derive(Clone, Debug)]
pub(crate) enum StoreError {
    /// Create: an object with this key exists.
    Exists(Arc<Stored>),
    /// Update or delete: an object with this key does not exist.
    NotFound,
    /// Update or delete: the object has changed since the expected revision.
    Stale,
}

/// The objects and the log of one resource.
#[derive(Clone, Debug, Default)]
struct Table {
    objects: Sorted,
    history: Arc<History>,
}

/// The whole state at one revision. Clones share everything until one of them is written to. Cloning costs one
/// reference per resource, independent of the number of objects.
#[derive(Clone, Debug)]
pub(crate) struct World {
    revision: Revision,
    /// Earliest revision at which any log may start.
    compacted: Revision,
    /// Total size of all logs, in bytes.
    logged: usize,
    tables: BTreeMap<Arc<str>, Table>,
}

/// Limits of the logs; older changes are dropped (rule E22).
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogBounds {
    /// Maximum number of changes in the log of a resource.
    pub(crate) changes: usize,
    /// Maximum total size of all logs in bytes; the newest change is always kept.
    pub(crate) bytes: usize,
}

/// The state of a server, protected by a lock.
#[derive(Debug)]
pub(crate) struct Store {
    /// The only lock of the state. It is held while maps are read and written, but not while encoding or waiting.
    state: Mutex<State>,
    bounds: LogBounds,
}

#[derive(Debug)]
struct State {
    world: World,
    /// Incremented when the state is replaced, so that existing cursors become invalid.
    epoch: u64,
}

/// Changes of one resource after a cursor, for a watcher.
#[derive(Debug)]
pub(crate) struct Fresh {
    /// The changes, oldest first.
    pub(crate) changes: Vec<Arc<Change>>,
    /// The cursor for the next read: the revision up to which all changes were read.
    pub(crate) revision: Revision,
}

/// Changes of all resources after a cursor.
#[derive(Debug)]
pub(crate) struct FreshOfAll {
    /// The changes with their resources, ordered by revision.
    pub(crate) changes: Vec<(Arc<str>, Arc<Change>)>,
    /// The cursor for the next read.
    pub(crate) revision: Revision,
}

/// All objects of the server at one revision: the initial state for a reader of all resources.
#[derive(Debug)]
pub(crate) struct Everything {
    /// Epoch of the state.
    pub(crate) epoch: u64,
    /// The cursor for later changes.
    pub(crate) revision: Revision,
    /// The objects of each resource, with the resource's storage name.
    pub(crate) resources: Vec<(Arc<str>, ResourceSnapshot)>,
}

impl Fresh {
    /// Drops the changes after `revision`.
    pub(crate) fn end_at(&mut self, revision: Revision) {
        self.changes.retain(|it| it.revision <= revision);
        self.revision = self.revision.min(revision);
    }
}

/// Reason why a cursor has become invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CursorLost {
    /// Changes after the cursor have been dropped from the log.
    Compacted(Compacted),
    /// The state to which the cursor belongs was replaced.
    Replaced,
}

impl Store {
    /// Creates a store with the state `world`.
    pub(crate) fn new(world: World, bounds: LogBounds) -> Self {
        Self {
            state: Mutex::new(State { world, epoch: 0 }),
            bounds: LogBounds {
                changes: bounds.changes.max(1),
                ..bounds
            },
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Code of callers cannot change the maps while the lock is held, so they are consistent even after a panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the newest revision.
    pub(crate) fn revision(&self) -> Revision {
        self.lock().world.revision
    }

    /// Returns the epoch of the current state. It changes when the state is replaced.
    pub(crate) fn epoch(&self) -> u64 {
        self.lock().epoch
    }

    /// Stores a new object.
    pub(crate) fn create(&self, resource: &Arc<str>, key: Key, body: Body) -> Result<Arc<Stored>, StoreError> {
        let mut state = self.lock();
        if let Some(existing) = state.world.get(resource, key.as_str()) {
            return Err(StoreError::Exists(Arc::clone(existing)));
        }
        Ok(state.world.put(resource, key, body, self.bounds))
    }

    /// Replaces the object with this key, if it was last written at revision `expected`.
    pub(crate) fn update(
        &self,
        resource: &Arc<str>,
        key: &Key,
        expected: Revision,
        body: Body,
    ) -> Result<Arc<Stored>, StoreError> {
        let mut state = self.lock();
        state.world.expect(resource, key, expected)?;
        Ok(state.world.put(resource, key.clone(), body, self.bounds))
    }

    /// Removes the object with this key, if it was last written at revision `expected`. Returns the revision of the
    /// delete.
    pub(crate) fn delete(&self, resource: &Arc<str>, key: &Key, expected: Revision) -> Result<Revision, StoreError> {
        let mut state = self.lock();
        state.world.expect(resource, key, expected)?;
        Ok(state.world.remove(resource, key, self.bounds))
    }

    /// Returns the object with this key.
    pub(crate) fn get(&self, resource: &str, key: &Key) -> Option<Arc<Stored>> {
        self.lock().world.get(resource, key.as_str()).cloned()
    }

    /// Returns the current objects of a resource.
    pub(crate) fn snapshot(&self, resource: &str) -> ResourceSnapshot {
        let state = self.lock();
        let objects = state
            .world
            .tables
            .get(resource)
            .map(|it| it.objects.clone())
            .unwrap_or_default();
        ResourceSnapshot::now(state.world.revision, objects)
    }

    /// Returns the objects of a resource at `revision`, which must not be in the future.
    pub(crate) fn snapshot_at(&self, resource: &str, revision: Revision) -> Result<ResourceSnapshot, Compacted> {
        let state = self.lock();
        if revision < state.world.compacted {
            return Err(Compacted {
                floor: state.world.compacted,
            });
        }
        let Some(table) = state.world.tables.get(resource) else {
            return Ok(ResourceSnapshot::now(revision, Sorted::default()));
        };
        let later = table.history.after(revision)?;
        Ok(ResourceSnapshot::before(revision, table.objects.clone(), later))
    }

    /// Returns at most `most` changes after `cursor`.
    pub(crate) fn changes_after(
        &self,
        resource: &str,
        epoch: u64,
        cursor: Revision,
        most: usize,
    ) -> Result<Fresh, CursorLost> {
        self.fresh(resource, epoch, cursor, most, |history| history.after(cursor).map(drop))
    }

    /// Same as [`changes_after`](Self::changes_after), for a reader of `part` that has read all its changes up to
    /// `cursor`: the cursor is only invalid if a change of that part has been dropped.
    pub(crate) fn changes_unless_missed(
        &self,
        resource: &str,
        epoch: u64,
        cursor: Revision,
        most: usize,
        part: ResourcePart<'_>,
    ) -> Result<Fresh, CursorLost> {
        self.fresh(resource, epoch, cursor, most, |history| {
            history.unless_missed(cursor, part).map(drop)
        })
    }

    /// Returns the changes after `cursor`, unless `check` fails because the cursor is invalid.
    fn fresh(
        &self,
        resource: &str,
        epoch: u64,
        cursor: Revision,
        most: usize,
        check: impl FnOnce(&History) -> Result<(), Compacted>,
    ) -> Result<Fresh, CursorLost> {
        let state = self.lock();
        if state.epoch != epoch {
            return Err(CursorLost::Replaced);
        }
        let revision = state.world.revision;
        let Some(table) = state.world.tables.get(resource) else {
            check(&History::new(state.world.compacted)).map_err(CursorLost::Compacted)?;
            return Ok(Fresh {
                changes: Vec::new(),
                revision: revision.max(cursor),
            });
        };
        check(&table.history).map_err(CursorLost::Compacted)?;
        let changes: Vec<_> = table.history.retained_after(cursor).take(most).cloned().collect();
        let read_to = match changes.last() {
            Some(last) if changes.len() == most => last.revision,
            _ => revision.max(cursor),
        };
        Ok(Fresh {
            changes,
            revision: read_to,
        })
    }

    /// Returns the changes of all resources after `cursor`.
    pub(crate) fn all_changes_after(&self, epoch: u64, cursor: Revision) -> Result<FreshOfAll, CursorLost> {
        let state = self.lock();
        if state.epoch != epoch {
            return Err(CursorLost::Replaced);
        }
        let mut changes = Vec::new();
        if state.world.revision > cursor {
            for (resource, table) in &state.world.tables {
                let fresh = table.history.unless_missed(cursor, ResourcePart::All);
                let fresh = fresh.map_err(CursorLost::Compacted)?;
                changes.extend(fresh.map(|change| (Arc::clone(resource), Arc::clone(change))));
            }
        }
        changes.sort_by_key(|(_, change)| change.revision);
        Ok(FreshOfAll {
            changes,
            revision: state.world.revision,
        })
    }

    /// Returns the last states of the objects that were removed after `cursor`, oldest first. Removals that are no
    /// longer in the logs are missing.
    pub(crate) fn removed_after(&self, cursor: Revision) -> Vec<(Arc<str>, Arc<Stored>)> {
        let state = self.lock();
        let mut removed = Vec::new();
        for (resource, table) in &state.world.tables {
            let changes = table.history.retained_after(cursor);
            for change in changes.filter(|it| it.current.is_none()) {
                removed.push((change.revision, Arc::clone(resource), Arc::clone(change.object())));
            }
        }
        removed.sort_by_key(|(revision, _, _)| *revision);
        removed
            .into_iter()
            .map(|(_, resource, stored)| (resource, stored))
            .collect()
    }

    /// Returns the objects that were written after `cursor`, one for each retained write, oldest first.
    pub(crate) fn written_after(&self, cursor: Revision) -> Vec<(Arc<str>, Arc<Stored>)> {
        let state = self.lock();
        let mut written = Vec::new();
        for (resource, table) in &state.world.tables {
            let changes = table.history.retained_after(cursor);
            let current = changes.filter_map(|it| it.current.as_ref());
            written.extend(current.map(|stored| (Arc::clone(resource), Arc::clone(stored))));
        }
        written.sort_by_key(|(_, stored)| stored.revision);
        written
    }

    /// Returns the retained changes of all resources after `cursor`, oldest first.
    pub(crate) fn retained_after(&self, cursor: Revision) -> Vec<(Arc<str>, Arc<Change>)> {
        let state = self.lock();
        let mut changes = Vec::new();
        for (resource, table) in &state.world.tables {
            let retained = table.history.retained_after(cursor);
            changes.extend(retained.map(|change| (Arc::clone(resource), Arc::clone(change))));
        }
        changes.sort_by_key(|(_, change)| change.revision);
        changes
    }

    /// Returns the number of retained changes of a resource after `cursor` for which `is_wanted` accepts the key.
    pub(crate) fn count_after(&self, resource: &str, cursor: Revision, is_wanted: impl Fn(&Key) -> bool) -> usize {
        let state = self.lock();
        let Some(table) = state.world.tables.get(resource) else {
            return 0;
        };
        let changes = table.history.retained_after(cursor);
        changes.filter(|it| is_wanted(&it.object().key)).count()
    }

    /// Returns the current objects of all resources.
    pub(crate) fn everything(&self) -> Everything {
        let state = self.lock();
        let revision = state.world.revision;
        let tables = state.world.tables.iter();
        Everything {
            epoch: state.epoch,
            revision,
            resources: tables
                .map(|(resource, table)| {
                    (
                        Arc::clone(resource),
                        ResourceSnapshot::now(revision, table.objects.clone()),
                    )
                })
                .collect(),
        }
    }

    /// Returns the number of objects of each resource.
    pub(crate) fn counts(&self) -> BTreeMap<Arc<str>, usize> {
        let state = self.lock();
        let tables = state.world.tables.iter();
        tables
            .map(|(resource, table)| (Arc::clone(resource), table.objects.len()))
            .collect()
    }

    /// Refuses new readers from before `revision`, like a compaction of etcd. Open watches can still read older
    /// changes.
    pub(crate) fn compact(&self, revision: Revision) {
        let world = &mut self.lock().world;
        world.compact(revision.min(world.revision));
    }

    /// Returns the whole state.
    pub(crate) fn world(&self) -> World {
        self.lock().world.clone()
    }

    /// Returns the whole state at `revision`, without history. For a future revision, returns the current state.
    pub(crate) fn world_at(&self, revision: Revision) -> Result<World, Compacted> {
        let mut world = self.lock().world.clone();
        let revision = revision.min(world.revision);
        let floor = world.floor();
        if revision < floor {
            return Err(Compacted { floor });
        }
        for table in world.tables.values_mut() {
            let history = Arc::clone(&table.history);
            for change in history.after(revision)?.rev() {
                match &change.previous {
                    Some(previous) => drop(table.objects.insert(Arc::clone(previous))),
                    None => drop(table.objects.remove(change.object().key.as_str())),
                }
            }
            table.history = Arc::new(History::new(revision));
        }
        (world.revision, world.compacted, world.logged) = (revision, revision, 0);
        Ok(world)
    }

    /// Returns the oldest revision after which all logs are complete.
    pub(crate) fn floor(&self) -> Revision {
        self.lock().world.floor()
    }

    /// Replaces the whole state. Existing cursors become invalid.
    pub(crate) fn replace(&self, world: World) {
        let mut state = self.lock();
        state.world = world;
        state.epoch += 1;
    }
}

impl Default for World {
    /// Creates an empty state. In kube-apiserver, revisions have been written and compacted before the first client
    /// connects, so small revisions are too old to be read.
    fn default() -> Self {
        Self {
            revision: 100,
            compacted: 100,
            logged: 0,
            tables: BTreeMap::new(),
        }
    }
}

impl World {
    /// Returns the same state at `revision`, or at its own revision if that is higher. Watches and lists cannot start
    /// at a revision between the two.
    pub(crate) fn advanced_to(mut self, revision: Revision) -> Self {
        if revision > self.revision {
            self.revision = revision;
            self.compact(revision);
        }
        self
    }

    /// Returns the oldest revision after which all logs are complete.
    fn floor(&self) -> Revision {
        let floors = self.tables.values().map(|it| it.history.floor());
        floors.fold(self.compacted, Revision::max)
    }

    fn compact(&mut self, revision: Revision) {
        self.compacted = self.compacted.max(revision);
        for table in self.tables.values_mut() {
            Arc::make_mut(&mut table.history).compact(revision);
        }
        self.logged = self.tables.values().map(|it| it.history.size()).sum();
    }

    fn get(&self, resource: &str, key: &str) -> Option<&Arc<Stored>> {
        self.tables.get(resource)?.objects.get(key)
    }

    fn expect(&self, resource: &str, key: &Key, expected: Revision) -> Result<(), StoreError> {
        match self.get(resource, key.as_str()) {
            None => Err(StoreError::NotFound),
            Some(current) if current.revision != expected => Err(StoreError::Stale),
            Some(_) => Ok(()),
        }
    }

    fn table(&mut self, resource: &Arc<str>) -> &mut Table {
        let floor = self.compacted;
        let new = || Table {
            objects: Sorted::default(),
            history: Arc::new(History::new(floor)),
        };
        self.tables.entry(Arc::clone(resource)).or_insert_with(new)
    }

    fn put(&mut self, resource: &Arc<str>, key: Key, body: Body, bounds: LogBounds) -> Arc<Stored> {
        self.revision += 1;
        let object = Arc::new(Stored {
            key,
            revision: self.revision,
            body,
        });
        let table = self.table(resource);
        let previous = table.objects.insert(Arc::clone(&object));
        self.logged += table.log(object.revision, previous, Some(Arc::clone(&object)));
        self.shorten_logs(resource, bounds);
        object
    }

    fn remove(&mut self, resource: &Arc<str>, key: &Key, bounds: LogBounds) -> Revision {
        self.revision += 1;
        let revision = self.revision;
        let table = self.table(resource);
        if let Some(previous) = table.objects.remove(key.as_str()) {
            self.logged += table.log(revision, Some(previous), None);
            self.shorten_logs(resource, bounds);
        }
        revision
    }

    /// Drops the oldest changes of the log that has grown, and then of all logs, until they are within their limits. If
    /// the logs have too many bytes, an eighth of the limit is freed, so that most writes need not visit all logs.
    fn shorten_logs(&mut self, grown: &Arc<str>, bounds: LogBounds) {
        self.logged -= self.table(grown).keep_newest(bounds.changes);
        if self.logged <= bounds.bytes {
            return;
        }
        let room = bounds.bytes - bounds.bytes / 8;
        let oldest =
            |(resource, table): (&Arc<str>, &Table)| Some(Reverse((table.history.oldest()?, Arc::clone(resource))));
        let mut logs: BinaryHeap<_> = self.tables.iter().filter_map(oldest).collect();
        while self.logged > room
            && let Some(Reverse((revision, resource))) = logs.pop()
            && revision < self.revision
        {
            let table = self.table(&resource);
            let dropped = table.keep_newest(table.history.len() - 1);
            logs.extend(table.history.oldest().map(|it| Reverse((it, resource))));
            self.logged -= dropped;
        }
    }
}

impl Table {
    /// Adds a change to the log, and returns the number of bytes by which it has grown.
    fn log(&mut self, revision: Revision, previous: Option<Arc<Stored>>, current: Option<Arc<Stored>>) -> usize {
        let change = Change {
            revision,
            previous,
            current,
            encoded: OnceLock::new(),
        };
        Arc::make_mut(&mut self.history).push(Arc::new(change))
    }

    /// Drops all but the newest `count` changes, and returns the number of bytes freed.
    fn keep_newest(&mut self, count: usize) -> usize {
        match self.history.len() > count {
            true => Arc::make_mut(&mut self.history).keep_newest(count),
            false => 0,
        }
    }
}
