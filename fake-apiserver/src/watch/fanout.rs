//! `Fanout`: a commit wakes the watchers that may care, and no others.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use super::filter::Scope;
use crate::storage::Key;

/// Who sleeps for what. A commit looks up three places, so watchers of other resources, namespaces and objects cost it
/// nothing, however many they are.
#[derive(Debug, Default)]
pub(crate) struct Fanout {
    /// The sleepers of each resource.
    sleepers: Mutex<Sleepers>,
}

#[derive(Debug, Default)]
struct Sleepers {
    next_id: u64,
    resources: HashMap<Arc<str>, HashMap<Scope, BTreeMap<u64, Waker>>>,
}

/// The name of a watcher among the sleepers. Watchers are woken in the order of their ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SleeperId(u64);

impl Fanout {
    fn lock(&self) -> MutexGuard<'_, Sleepers> {
        self.sleepers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A name for a new watcher.
    pub(crate) fn register(&self) -> SleeperId {
        let mut sleepers = self.lock();
        sleepers.next_id += 1;
        SleeperId(sleepers.next_id)
    }

    /// Asks to be woken by the next commit in `scope`. Call it **before** looking for changes, so that a commit in
    /// between is not missed.
    pub(crate) fn sleep(&self, id: SleeperId, resource: &Arc<str>, scope: &Scope, waker: &Waker) {
        let mut sleepers = self.lock();
        if !sleepers.resources.contains_key(resource) {
            sleepers.resources.insert(Arc::clone(resource), HashMap::new());
        }
        let Some(scopes) = sleepers.resources.get_mut(resource) else {
            return;
        };
        if !scopes.contains_key(scope) {
            scopes.insert(scope.clone(), BTreeMap::new());
        }
        let Some(ids) = scopes.get_mut(scope) else { return };
        match ids.get_mut(&id.0) {
            Some(known) => known.clone_from(waker),
            None => drop(ids.insert(id.0, waker.clone())),
        }
    }

    /// Forgets a watcher that is no more.
    pub(crate) fn forget(&self, id: SleeperId, resource: &Arc<str>, scope: &Scope) {
        let mut sleepers = self.lock();
        let Some(scopes) = sleepers.resources.get_mut(resource) else {
            return;
        };
        if let Some(ids) = scopes.get_mut(scope) {
            ids.remove(&id.0);
            if ids.is_empty() {
                scopes.remove(scope);
            }
        }
    }

    /// Wakes those who sleep for this object, its namespace, or its whole resource.
    pub(crate) fn wake(&self, resource: &str, key: &Key) {
        let mut woken = Vec::new();
        {
            let mut sleepers = self.lock();
            let Some(scopes) = sleepers.resources.get_mut(resource) else {
                return;
            };
            if scopes.is_empty() {
                return;
            }
            woken.extend(scopes.get_mut(&Scope::All).map(std::mem::take));
            if scopes.len() > 1 || woken.is_empty() {
                let namespace = Scope::Namespace(key.namespace().into());
                woken.extend(scopes.get_mut(&namespace).map(std::mem::take));
                woken.extend(scopes.get_mut(&Scope::Object(key.clone())).map(std::mem::take));
            }
        }
        for waker in woken.into_iter().flatten().map(|(_, waker)| waker) {
            waker.wake();
        }
    }

    /// Wakes everyone, as when the world is replaced.
    pub(crate) fn wake_all(&self) {
        let all = std::mem::take(&mut self.lock().resources);
        let mut woken: Vec<_> = all.into_values().flat_map(HashMap::into_values).flatten().collect();
        woken.sort_by_key(|(id, _)| *id);
        for (_, waker) in woken {
            waker.wake();
        }
    }
}
