//! `ShardKeys`: the keys of one controller, as far as they are for this replica or may come to be.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use foldhash::fast::RandomState;
use tokio::time::Instant;

use super::core::{Core, Participant};
use super::permission::Permission;
use crate::queue::{AddOptions, LOW_PRIORITY, WorkQueue};
use crate::reconcile::{Shard, Stay};
use crate::runtime::controller_builder::RequestKey;

/// Number of remembered keys at which old ones are swept.
const SWEEP_AT: usize = 1024;

/// Calls back with all current keys of a watch; returns `false` once the watch has ended.
type Replay<R> = Box<dyn Fn(&mut dyn FnMut(R)) -> bool + Send + Sync>;

/// Keys of a controller that other replicas own.
///
/// When this replica takes over keys, its watches replay them, as after a start. It also works on keys that it received
/// recently for another replica, even if their objects are gone: the object may have been deleted while its key changed
/// hands, or just before its owner died.
pub(crate) struct ShardKeys<R: RequestKey> {
    core: Arc<Core>,
    place: fn(&R) -> u64,
    queue: WorkQueue<R>,
    /// Time for which keys of other replicas are remembered.
    memory: Duration,
    /// Guards the keys set aside.
    aside: Mutex<Aside<R>>,
    replays: Mutex<Vec<Replay<R>>>,
}

struct Aside<R> {
    /// Number and time of the last arrival of each key. Iterated only to sort or to sweep.
    keys: HashMap<R, (u64, Instant), RandomState>,
    sweep_at: usize,
    /// Number of the last arrival; keys leave in the order of arrival.
    last: u64,
}

impl<R: RequestKey> ShardKeys<R> {
    pub(super) fn new(core: &Arc<Core>, place: fn(&R) -> u64, queue: &WorkQueue<R>, memory: Duration) -> Arc<Self> {
        let this = Arc::new(Self {
            core: Arc::clone(core),
            place,
            queue: queue.clone(),
            memory,
            aside: Mutex::new(Aside {
                keys: HashMap::default(),
                sweep_at: SWEEP_AT,
                last: 0,
            }),
            replays: Mutex::default(),
        });
        let participant: Arc<dyn Participant> = Arc::clone(&this) as Arc<dyn Participant>;
        core.add(&participant);
        this
    }

    /// Returns `true` if the key of an event goes into the queue; otherwise it is set aside.
    pub(crate) fn takes(&self, key: &R) -> bool {
        let takes = self.core.permission().expects((self.place)(key));
        if !takes {
            self.set_aside(key);
        }
        takes
    }

    /// Adds a watch that can replay its keys.
    pub(crate) fn replay_by(&self, replay: Replay<R>) {
        self.replays().push(replay);
    }

    fn aside(&self) -> MutexGuard<'_, Aside<R>> {
        self.aside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn replays(&self) -> MutexGuard<'_, Vec<Replay<R>>> {
        self.replays.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remember(&self, key: &R) {
        let now = Instant::now();
        let permission = self.core.permission();
        let mut aside = self.aside();
        if aside.keys.len() >= aside.sweep_at {
            let is_kept = |key: &R, since: Instant| {
                now.saturating_duration_since(since) < self.memory || permission.expects((self.place)(key))
            };
            aside.keys.retain(|key, (_, since)| is_kept(key, *since));
            aside.sweep_at = SWEEP_AT.max(aside.keys.len() * 2);
            let room = aside.sweep_at;
            aside.keys.shrink_to(room);
        }
        aside.last += 1;
        let number = aside.last;
        aside.keys.insert(key.clone(), (number, now));
    }
}

impl<R: RequestKey> Shard<R> for ShardKeys<R> {
    fn begin(&self, key: &R) -> Option<Stay> {
        let stay = self.core.begin((self.place)(key));
        if stay.is_none() {
            self.set_aside(key);
        }
        stay
    }

    fn set_aside(&self, key: &R) {
        self.remember(key);
        // The key may have become permitted after the check and before it was set aside.
        if self.core.permits((self.place)(key)) && self.aside().keys.remove(key).is_some() {
            self.queue.add(key.clone());
        }
    }
}

impl<R: RequestKey> Participant for ShardKeys<R> {
    fn widened(&self, before: &Permission, after: &Permission) {
        let mut coming: Vec<(u64, R)> = {
            let mut aside = self.aside();
            let permitted = aside.keys.iter().filter(|(key, _)| after.permits((self.place)(key)));
            let coming: Vec<_> = permitted.map(|(key, (number, _))| (*number, key.clone())).collect();
            for (_, key) in &coming {
                aside.keys.remove(key);
            }
            coming
        };
        coming.sort_unstable_by_key(|(number, _)| *number);
        for (_, key) in coming {
            self.queue.add(key);
        }
        let options = AddOptions {
            priority: if self.queue.has_priorities() { LOW_PRIORITY } else { 0 },
            ..AddOptions::default()
        };
        let mut push = |key: R| {
            let place = (self.place)(&key);
            if after.permits(place) && !before.permits(place) {
                self.queue.add_with(key, options);
            }
        };
        self.replays().retain(|replay| replay(&mut push));
    }
}

impl<R: RequestKey> fmt::Debug for ShardKeys<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShardKeys")
            .field("aside", &self.aside().keys.len())
            .finish_non_exhaustive()
    }
}
