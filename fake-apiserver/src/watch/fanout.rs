//! `Fanout`: wakes only the watchers that a commit may affect.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use super::filter::WatchScope;
use crate::storage::Key;

/// Sleeping watchers, grouped by the resource, namespace or object that they watch. Each commit looks up three groups,
/// regardless of the number of other watchers.
#[derive(Debug, Default)]
pub(crate) struct Fanout {
    /// The sleeping watchers of each resource.
    sleepers: Mutex<Sleepers>,
}

#[derive(Debug, Default)]
struct Sleepers {
    next_id: u64,
    resources: BTreeMap<Arc<str>, Scopes>,
}

/// Wakers of watchers, by id.
type Wakers = BTreeMap<u64, Waker>;

/// The sleeping watchers of one resource.
#[derive(Debug, Default)]
struct Scopes {
    /// Watchers of the whole resource.
    all: Wakers,
    /// Watchers of a part of the resource.
    parts: BTreeMap<WatchScope, Wakers>,
}

impl Scopes {
    fn of(&mut self, scope: &WatchScope) -> Option<&mut Wakers> {
        match scope {
            WatchScope::All => Some(&mut self.all),
            WatchScope::Namespace(_) | WatchScope::Object(_) => self.parts.get_mut(scope),
        }
    }
}

/// Id of a watcher. Watchers of the same scope are woken in the order of their ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SleeperId(u64);

impl Fanout {
    fn lock(&self) -> MutexGuard<'_, Sleepers> {
        self.sleepers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Assigns an id to a new watcher.
    pub(crate) fn register(&self) -> SleeperId {
        let mut sleepers = self.lock();
        sleepers.next_id += 1;
        SleeperId(sleepers.next_id)
    }

    /// Registers a watcher to be woken by the next commit in `scope`. Call this **before** reading changes, so that a
    /// commit in between is not missed.
    pub(crate) fn sleep(&self, id: SleeperId, resource: &Arc<str>, scope: &WatchScope, waker: &Waker) {
        let mut sleepers = self.lock();
        if let Some(wakers) = sleepers.resources.get_mut(resource).and_then(|scopes| scopes.of(scope)) {
            match wakers.get_mut(&id.0) {
                Some(known) => known.clone_from(waker),
                None => drop(wakers.insert(id.0, waker.clone())),
            }
            return;
        }
        let scopes = sleepers.resources.entry(Arc::clone(resource)).or_default();
        let wakers = match scope {
            WatchScope::All => &mut scopes.all,
            WatchScope::Namespace(_) | WatchScope::Object(_) => scopes.parts.entry(scope.clone()).or_default(),
        };
        wakers.insert(id.0, waker.clone());
    }

    /// Removes a watcher that has ended.
    pub(crate) fn forget(&self, id: SleeperId, resource: &Arc<str>, scope: &WatchScope) {
        let mut sleepers = self.lock();
        let Some(scopes) = sleepers.resources.get_mut(resource) else {
            return;
        };
        if let Some(wakers) = scopes.of(scope) {
            wakers.remove(&id.0);
            if wakers.is_empty() {
                scopes.parts.remove(scope);
            }
        }
    }

    /// Wakes the watchers of the object, of its namespace, and of the whole resource.
    pub(crate) fn wake(&self, resource: &str, key: &Key) {
        let woken = {
            let mut sleepers = self.lock();
            let Some(scopes) = sleepers.resources.get_mut(resource) else {
                return;
            };
            let mut woken = [std::mem::take(&mut scopes.all), Wakers::new(), Wakers::new()];
            if !scopes.parts.is_empty() {
                let parts = [
                    WatchScope::Namespace(key.namespace().into()),
                    WatchScope::Object(key.clone()),
                ];
                for (wakers, part) in woken[1..].iter_mut().zip(&parts) {
                    if let Some(sleeping) = scopes.parts.get_mut(part) {
                        *wakers = std::mem::take(sleeping);
                    }
                }
            }
            woken
        };
        for wakers in woken {
            for (_, waker) in wakers {
                waker.wake();
            }
        }
    }

    /// Wakes all watchers, for example when the state is replaced.
    pub(crate) fn wake_all(&self) {
        let all = std::mem::take(&mut self.lock().resources);
        let scopes = all.into_values();
        let mut woken: Vec<_> = scopes
            .flat_map(|scopes| scopes.parts.into_values().chain([scopes.all]))
            .flatten()
            .collect();
        woken.sort_by_key(|(id, _)| *id);
        for (_, waker) in woken {
            waker.wake();
        }
    }
}
