//! `ShardKeys`: selects the keys of a controller that this replica owns.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use foldhash::fast::RandomState;
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::core::{Core, Participant};
use super::permission::Permission;
use super::view::place_of;
use crate::queue::{AddOptions, LOW_PRIORITY, WorkQueue};
use crate::reconcile::{Shard, Stay};
use crate::runtime::request_key::RequestKey;
use crate::sync::Mutex;

/// Minimum number of remembered keys at which old keys are removed.
const SWEEP_AT: usize = 1024;

/// Maximum number of earlier permissions that are kept for a replay. If there are more, the replay includes all keys
/// that this replica may work on.
const EARLIER_MAX: usize = 8;

/// Functions that return the position of a key in the hash space, and its string form.
pub(crate) struct Places<R> {
    place: fn(&R) -> u64,
    text: fn(&R) -> String,
}

impl<R: fmt::Display> Places<R> {
    pub(crate) fn of_texts() -> Self {
        Self {
            place: place_of::<R>,
            text: R::to_string,
        }
    }
}

impl<R> Clone for Places<R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R> Copy for Places<R> {}

/// Function that receives the keys of a replay.
type Push<R> = Box<dyn FnMut(R) + Send>;

/// Function that calls its argument with all keys of a watch. Returns `false` if the watch has ended.
type Replay<R> = Arc<dyn Fn(Push<R>) -> BoxFuture<'static, bool> + Send + Sync>;

/// Restricts a controller to the keys that this replica owns.
///
/// When this replica takes over keys, its watches deliver these keys again, as after a start. In addition, it
/// reconciles keys that it recently received while another replica owned them, even if their objects no longer exist:
/// an object may have been deleted while its key was moving, or just before the owner of the key crashed. A key that is
/// due for both reasons is only reconciled once.
pub(crate) struct ShardKeys<R: RequestKey> {
    core: Arc<Core>,
    places: Places<R>,
    queue: WorkQueue<R>,
    /// Minimum time for which keys of other replicas are remembered.
    memory: Duration,
    /// Guards the remembered keys.
    aside: Mutex<Aside<R>>,
    gains: Arc<Mutex<Gains<R>>>,
    /// Notified when a replay is necessary.
    gained: Notify,
    replays: Mutex<Vec<Replay<R>>>,
}

/// The changes that a replay has not covered yet.
struct Gains<R> {
    /// For each change since the last replay that may have added keys, the permission before this change. If there are
    /// too many changes, a single permission without keys.
    earlier: Vec<Permission>,
    /// Keys with a reconcile that began after the last of these changes; a replay skips them. `None` unless a replay
    /// is necessary or in progress. The set is never iterated.
    begun: Option<HashSet<R, RandomState>>,
}

impl<R: RequestKey> Gains<R> {
    /// Returns `true` if a reconcile of the key has begun after the last change.
    fn has_begun(&self, key: &R) -> bool {
        self.begun.as_ref().is_some_and(|it| it.contains(key))
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Aside<R> {
    /// For each key, the number and the time of its last arrival. The map is only iterated if the result is sorted, or
    /// to remove entries.
    keys: HashMap<R, (u64, Instant), RandomState>,
    sweep_at: usize,
    /// Number of the last arrival. Keys are returned in the order of arrival.
    last: u64,
}

impl<R: RequestKey> ShardKeys<R> {
    pub(super) fn new(core: &Arc<Core>, places: Places<R>, queue: &WorkQueue<R>, memory: Duration) -> Arc<Self> {
        let this = Arc::new(Self {
            core: Arc::clone(core),
            places,
            queue: queue.clone(),
            memory,
            aside: Mutex::new(Aside {
                keys: HashMap::default(),
                sweep_at: SWEEP_AT,
                last: 0,
            }),
            gains: Arc::new(Mutex::new(Gains {
                earlier: Vec::new(),
                begun: None,
            })),
            gained: Notify::new(),
            replays: Mutex::default(),
        });
        let participant: Arc<dyn Participant> = Arc::clone(&this) as Arc<dyn Participant>;
        core.add(&participant);
        this
    }

    /// Returns `true` if this replica owns the key and must queue it. Otherwise remembers the key.
    pub(crate) fn takes(&self, key: &R) -> bool {
        let takes = self.core.permission().expects((self.places.place)(key));
        if !takes {
            self.set_aside(key);
        }
        takes
    }

    /// Adds a watch. Its keys are delivered again when this replica takes over keys.
    pub(crate) fn replay_by(&self, replay: Replay<R>) {
        self.replays().push(replay);
    }

    fn aside(&self) -> MutexGuard<'_, Aside<R>> {
        locked(&self.aside)
    }

    fn gains(&self) -> MutexGuard<'_, Gains<R>> {
        locked(&self.gains)
    }

    async fn replay_whenever_gained(&self) {
        loop {
            self.gained.notified().await;
            self.replay().await;
        }
    }

    /// Calls the mapping functions of all watches, and adds the keys that this replica has gained to the queue, unless
    /// their reconciles have begun since.
    async fn replay(&self) {
        let earlier: Arc<[Permission]> = std::mem::take(&mut self.gains().earlier).into();
        if earlier.is_empty() {
            return;
        }
        let options = AddOptions {
            priority: if self.queue.has_priorities() { LOW_PRIORITY } else { 0 },
            ..AddOptions::default()
        };
        // If a key is lost again in the meantime, its worker sets it aside.
        let now = self.core.permission();
        // The mapping functions of a watch may add further watches, so the lock must not be held.
        let replays = self.replays().clone();
        let mut ended = Vec::new();
        for replay in replays {
            let (queue, places, gains) = (self.queue.clone(), self.places, Arc::clone(&self.gains));
            let (earlier, now) = (Arc::clone(&earlier), Arc::clone(&now));
            let push = Box::new(move |key: R| {
                let place = (places.place)(&key);
                let is_gained = now.permits(place) && !earlier.iter().all(|it| it.permits(place));
                if is_gained && !locked(&gains).has_begun(&key) {
                    queue.add_with(key, options);
                }
            });
            if !replay(push).await {
                ended.push(replay);
            }
        }
        self.replays()
            .retain(|it| !ended.iter().any(|ended| Arc::ptr_eq(it, ended)));
        let mut gains = self.gains();
        if gains.earlier.is_empty() {
            gains.begun = None;
        }
    }

    /// Records a change of the permission that may have added keys.
    fn note_gain(&self, before: &Permission, after: &Permission) {
        let mut gains = self.gains();
        if gains.earlier.len() < EARLIER_MAX {
            gains.earlier.push(before.clone());
        } else {
            gains.earlier = vec![Permission::none(&after.me)];
        }
        gains.begun = Some(HashSet::default());
    }

    fn replays(&self) -> MutexGuard<'_, Vec<Replay<R>>> {
        locked(&self.replays)
    }

    fn remember(&self, key: &R) {
        let now = Instant::now();
        let permission = self.core.permission();
        let mut aside = self.aside();
        if aside.keys.len() >= aside.sweep_at {
            let is_kept = |key: &R, since: Instant| {
                now.saturating_duration_since(since) < self.memory || permission.expects((self.places.place)(key))
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
        let stay = self.core.begin((self.places.place)(key), || (self.places.text)(key));
        if stay.is_none() {
            self.set_aside(key);
        } else if let Some(begun) = &mut self.gains().begun {
            // The reconcile starts after this point, so it reads the state after the change.
            begun.insert(key.clone());
        }
        stay
    }

    fn set_aside(&self, key: &R) {
        self.remember(key);
        // The permission may have changed after the key was checked and before it was remembered.
        if self.core.permits((self.places.place)(key)) && self.aside().keys.remove(key).is_some() {
            self.queue.add(key.clone());
        }
    }

    fn replay_gained(&self) -> BoxFuture<'_, ()> {
        self.replay_whenever_gained().boxed()
    }
}

impl<R: RequestKey> Participant for ShardKeys<R> {
    fn widened(&self, before: &Permission, after: &Permission) {
        let may_gain = !before.includes(after);
        if may_gain {
            self.note_gain(before, after);
        }
        let mut coming: Vec<(u64, R)> = {
            let mut aside = self.aside();
            let permitted = aside
                .keys
                .iter()
                .filter(|(key, _)| after.permits((self.places.place)(key)));
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
        if may_gain {
            // A replay calls the mapping functions for all objects.
            self.gained.notify_one();
        }
    }
}

impl<R: RequestKey> fmt::Debug for ShardKeys<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShardKeys")
            .field("aside", &self.aside().keys.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::view::View;
    use super::*;
    use crate::interleave::interleave;

    fn permission(members: &[&str]) -> Permission {
        let view = View::of(members.iter().map(|it| Arc::from(*it)));
        Permission {
            me: Arc::from("a"),
            claim: Some(view.clone()),
            doubts: Vec::new(),
            target: view,
            others: Vec::new(),
        }
    }

    /// State of the test: the keys in progress, and the keys that were worked on.
    #[derive(Default)]
    struct Work {
        working: BTreeSet<u32>,
        done: BTreeSet<u32>,
    }

    /// Works on the next key as a worker does. Returns `false` if the queue is empty.
    fn work_once(keys: &ShardKeys<u32>, work: &Mutex<Work>) -> bool {
        let all = || work.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(item) = keys.queue.try_get() else {
            return false;
        };
        if let Some(stay) = keys.begin(&item) {
            assert!(all().working.insert(*item), "two workers process the key {}", *item);
            all().working.remove(&*item);
            all().done.insert(*item);
            drop(stay);
        }
        true
    }

    #[test]
    fn sharding_does_not_lose_keys_when_members_change() {
        for seed in 0..500 {
            let core = Arc::new(Core::new(&Arc::from("a"), Duration::from_secs(60)));
            let queue = WorkQueue::new();
            let keys = ShardKeys::<u32>::new(&core, Places::of_texts(), &queue, Duration::from_secs(60));
            let work = Mutex::new(Work::default());
            let events = || {
                for key in (0..6).filter(|key| keys.takes(key)) {
                    queue.add(key);
                }
            };
            let members = || {
                core.renew(Instant::now() + Duration::from_secs(600));
                for members in [["a"].as_slice(), &["a", "b"], &["a"]] {
                    core.permit(permission(members));
                }
            };
            let worker = || {
                for _ in 0..8 {
                    work_once(&keys, &work);
                }
            };
            interleave(
                seed,
                vec![Box::new(events), Box::new(members), Box::new(worker), Box::new(worker)],
            );
            while work_once(&keys, &work) {}
            let done = work.lock().unwrap_or_else(PoisonError::into_inner).done.clone();
            assert_eq!(done, (0..6).collect(), "the results differ with seed {seed}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn mapping_function_may_add_a_watch_during_a_replay() {
        let core = Arc::new(Core::new(&Arc::from("a"), Duration::from_secs(60)));
        let queue = WorkQueue::new();
        let keys = ShardKeys::<u32>::new(&core, Places::of_texts(), &queue, Duration::from_secs(60));
        let adding = Arc::downgrade(&keys);
        keys.replay_by(Arc::new(move |mut push: Push<u32>| {
            let another = Arc::new(|_: Push<u32>| std::future::ready(true).boxed());
            adding.upgrade().expect("the keys exist").replay_by(another);
            push(1);
            std::future::ready(false).boxed()
        }));
        core.renew(Instant::now() + Duration::from_secs(600));
        core.permit(permission(&["a"]));
        keys.replay().await;
        assert_eq!(queue.len(), 1);
        assert_eq!(keys.replays().len(), 1, "the first watch has ended");
    }

    /// Creates the keys of a controller with a watch that delivers the keys 0 to 19.
    fn watching_twenty() -> (Arc<Core>, WorkQueue<u32>, Arc<ShardKeys<u32>>) {
        let core = Arc::new(Core::new(&Arc::from("a"), Duration::from_secs(60)));
        let queue = WorkQueue::new();
        let keys = ShardKeys::<u32>::new(&core, Places::of_texts(), &queue, Duration::from_secs(60));
        keys.replay_by(Arc::new(|mut push: Push<u32>| {
            (0..20).for_each(&mut push);
            std::future::ready(true).boxed()
        }));
        (core, queue, keys)
    }

    #[tokio::test(start_paused = true)]
    async fn gained_key_is_not_replayed_if_its_reconcile_has_begun_since() {
        let (core, queue, keys) = watching_twenty();
        let work = Mutex::new(Work::default());
        let replayed = async || {
            keys.replay().await;
            let items = std::iter::from_fn(|| queue.try_get());
            items.map(|it| *it).collect::<BTreeSet<u32>>()
        };
        core.renew(Instant::now() + Duration::from_secs(600));
        // Two keys arrive before the replica may work on them, and are reconciled as soon as it may.
        (0..2).for_each(|key| keys.set_aside(&key));
        core.permit(permission(&["a"]));
        while work_once(&keys, &work) {}
        assert_eq!(work.lock().unwrap_or_else(PoisonError::into_inner).done.len(), 2);
        assert_eq!(replayed().await, (2..20).collect());
        // If the replica loses the keys and gains them again, the earlier reconciles do not count.
        core.permit(Permission::none(&Arc::from("a")));
        core.permit(permission(&["a"]));
        assert_eq!(replayed().await, (0..20).collect());
        assert!(keys.gains().begun.is_none(), "nothing is recorded after a replay");
    }

    #[tokio::test(start_paused = true)]
    async fn gained_keys_are_replayed_on_another_task_than_the_renewal() {
        let (core, queue, keys) = watching_twenty();
        let replaying = Arc::clone(&keys);
        tokio::spawn(async move { replaying.replay_gained().await });
        let replayed = async || {
            // `permit` must not wait for the mapping functions of a replay.
            assert!(queue.is_empty());
            tokio::time::sleep(Duration::from_secs(1)).await;
            let items = std::iter::from_fn(|| queue.try_get());
            items.map(|it| *it).collect::<BTreeSet<u32>>()
        };
        core.renew(Instant::now() + Duration::from_secs(600));
        core.permit(permission(&["a"]));
        assert_eq!(replayed().await, (0..20).collect());
        // The keys of another replica are lost, and gained again before the replay begins.
        for members in [["a", "b"].as_slice(), &["a"]] {
            core.permit(permission(members));
        }
        let both = permission(&["a", "b"]);
        let of_b: BTreeSet<u32> = (0..20).filter(|it| !both.permits(place_of(it))).collect();
        assert!(!of_b.is_empty() && of_b.len() < 20);
        assert_eq!(replayed().await, of_b);
        // More changes than are recorded.
        for _ in 0..EARLIER_MAX {
            core.permit(permission(&["a", "b"]));
            core.permit(permission(&["a"]));
        }
        assert_eq!(replayed().await, (0..20).collect());
    }
}
