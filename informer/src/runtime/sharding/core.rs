//! `Core`: the keys that a replica may work on, and its work in progress. Shared by all controllers of the replica.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::pin::pin;
use std::sync::{Arc, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use foldhash::fast::RandomState;
use futures::future::select;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::permission::Permission;
use super::view::View;
use crate::reconcile::{Hold, Stay};
use crate::sync::Mutex;
use crate::{Error, deadline};

/// A sharded controller.
pub(super) trait Participant: Send + Sync {
    /// Handles a changed permission, which may include further keys. Called on the task that renews the Lease, so it
    /// must not call user code.
    fn widened(&self, before: &Permission, after: &Permission);
}

/// The permission of a replica, and the keys that it is working on.
pub(super) struct Core {
    state: Mutex<State>,
    /// Notified when work on a key that is moving to another replica ends.
    pub(super) ended: Notify,
    /// Notified when the deadline or the permission changes.
    changed: Notify,
}

struct State {
    permission: Arc<Permission>,
    /// Time at which this replica's permission to work on keys ends; `None` before it is first granted and after a
    /// missed renewal.
    deadline: Option<Instant>,
    /// Time since which the replica participates without a valid Lease.
    without: Option<Instant>,
    /// Keys in progress, by their positions in the hash space.
    active: HashMap<u64, Active, RandomState>,
    /// Keys of this replica that other replicas still hold: the other replica and the key, with the time at which the
    /// wait began.
    awaited: BTreeMap<(Arc<str>, Held), Instant>,
    /// Time for which a reconcile may continue after its key has moved to another replica.
    hand_over_timeout: Duration,
    /// Cancelled when the permission ends without a renewal.
    lost: CancellationToken,
    participants: Vec<Weak<dyn Participant>>,
    lapses: u64,
}

/// A key that this replica is working on.
struct Active {
    count: usize,
    text: String,
    /// Cancelled when this replica must stop working on the key.
    lost: CancellationToken,
    /// Time at which the key moved to another replica.
    moved: Option<Instant>,
}

/// A key of this replica that another replica holds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Held {
    /// The other replica is still working on this key.
    Key(String),
    /// The other replica's view has different members or cannot be parsed, so the other replica may hold any key.
    Unknown,
}

impl Core {
    pub(super) fn new(me: &Arc<str>, hand_over_timeout: Duration) -> Self {
        Self {
            state: Mutex::new(State {
                permission: Arc::new(Permission::none(me)),
                deadline: None,
                without: None,
                active: HashMap::default(),
                awaited: BTreeMap::new(),
                hand_over_timeout,
                lost: CancellationToken::new(),
                participants: Vec::new(),
                lapses: 0,
            }),
            ended: Notify::new(),
            changed: Notify::new(),
        }
    }

    pub(super) fn add(&self, participant: &Arc<dyn Participant>) {
        self.state().participants.push(Arc::downgrade(participant));
    }

    pub(super) fn permission(&self) -> Arc<Permission> {
        Arc::clone(&self.state().permission)
    }

    /// Returns `true` if this replica may currently work on the keys at a position in the hash space.
    pub(super) fn permits(&self, place: u64) -> bool {
        self.state().permits(place)
    }

    /// Begins work on a key at a position in the hash space. Returns `None` if the replica may not work on it.
    pub(super) fn begin(self: &Arc<Self>, place: u64, text: impl FnOnce() -> String) -> Option<Stay> {
        let mut state = self.state();
        if !state.permits(place) {
            return None;
        }
        let lost = state.lost.child_token();
        let active = state.active.entry(place).or_insert_with(|| Active {
            count: 0,
            text: text(),
            lost: lost.clone(),
            moved: None,
        });
        if active.lost.is_cancelled() {
            // Earlier work on the key was aborted but has not ended yet.
            active.lost = lost;
        }
        active.count += 1;
        let hold: Arc<dyn Hold> = Arc::clone(self) as Arc<dyn Hold>;
        Some(Stay::new(place, hold, active.lost.clone()))
    }

    /// Returns the keys that this replica is working on although another replica owns them in `view`.
    pub(super) fn held_beyond(&self, view: &View) -> Vec<String> {
        let state = self.state();
        let me = &state.permission.me;
        let beyond = state.active.iter().filter(|(place, _)| !view.claims(me, **place));
        beyond.map(|(_, active)| active.text.clone()).collect()
    }

    /// Returns the number of keys that this replica is still working on although they have moved to other replicas.
    pub(super) fn handing_over(&self) -> usize {
        self.state().active.values().filter(|it| it.moved.is_some()).count()
    }

    /// Returns the number of keys of this replica that other replicas are still working on, and the number of other
    /// replicas that may hold any key.
    pub(super) fn awaited(&self) -> (usize, usize) {
        let state = self.state();
        let unknown = state.awaited.keys().filter(|(_, held)| *held == Held::Unknown);
        let unknown = unknown.count();
        (state.awaited.len() - unknown, unknown)
    }

    /// Records that the replica begins or stops participating.
    pub(super) fn participates(&self, is_taking_part: bool) {
        self.state().without = is_taking_part.then(Instant::now);
    }

    /// Checks that no key takes too long to move, and that the replica has not been without a Lease for too long.
    ///
    /// # Errors
    ///
    /// Fails if a key has been moving, or the replica has been without a valid Lease, for longer than the hand-over
    /// timeout plus `grace`. The error lists the keys and the replicas that hold them.
    pub(super) fn check(&self, grace: Duration) -> Result<(), Error> {
        let state = self.state();
        let me = &state.permission.me;
        let is_late = |since: Instant| since.elapsed() > state.hand_over_timeout.saturating_add(grace);
        let mut late: Vec<String> = Vec::new();
        for active in state.active.values() {
            if let Some(since) = active.moved.filter(|it| is_late(*it)) {
                let (key, since) = (&active.text, since.elapsed());
                late.push(format!(
                    "{me:?} is still reconciling {key}, which moved to another replica {since:.0?} ago"
                ));
            }
        }
        late.sort();
        if let Some(since) = state.without.filter(|it| is_late(*it)) {
            late.push(format!("{me:?} has had no valid Lease for {:.0?}", since.elapsed()));
        }
        for ((other, held), since) in state.awaited.iter().filter(|(_, since)| is_late(**since)) {
            let held = match held {
                Held::Key(key) => key.as_str(),
                Held::Unknown => "an unknown share of the keys",
            };
            late.push(format!("{other:?} has held {held} for {:.0?}", since.elapsed()));
        }
        if late.is_empty() {
            return Ok(());
        }
        Err(Error::refused(format!(
            "this replica has waited too long for its Lease or for keys: {}",
            late.join("; ")
        )))
    }

    /// Replaces the permission, and notifies the controllers.
    pub(super) fn permit(&self, permission: Permission) {
        let (before, after, participants) = {
            let mut state = self.state();
            if *state.permission == permission {
                return;
            }
            let after = Arc::new(permission);
            let before = std::mem::replace(&mut state.permission, Arc::clone(&after));
            state.note_moves(&after);
            state.participants.retain(|it| it.strong_count() > 0);
            (before, after, state.participants.clone())
        };
        self.changed.notify_one();
        for participant in participants.iter().filter_map(Weak::upgrade) {
            participant.widened(&before, &after);
        }
    }

    /// Extends the permission until `until`.
    pub(super) fn renew(&self, until: Instant) {
        let mut state = self.state();
        state.deadline = Some(until);
        state.without = None;
        drop(state);
        self.changed.notify_one();
    }

    /// Returns `true` if there is no valid permission. The first call after its end aborts the work in progress.
    pub(super) fn has_lapsed(&self) -> bool {
        let mut state = self.state();
        match state.deadline {
            None => true,
            Some(deadline) if deadline > Instant::now() => false,
            Some(deadline) => {
                state.deadline = None;
                state.without = Some(deadline);
                state.lapses += 1;
                std::mem::take(&mut state.lost).cancel();
                let me = &state.permission.me;
                tracing::warn!(replica = &**me, "the lease of this replica was not renewed in time");
                true
            }
        }
    }

    /// Returns the number of times that the permission has ended without a renewal.
    pub(super) fn lapses(&self) -> u64 {
        self.state().lapses
    }

    /// Ends the permission at its deadline, and aborts work on moved keys after the hand-over timeout. Never returns.
    pub(super) async fn keep_time(&self) {
        loop {
            let changed = pin!(self.changed.notified());
            self.has_lapsed();
            let deadline = self.state().deadline;
            match deadline.into_iter().chain(self.drop_overdue()).min() {
                None => changed.await,
                Some(next) => {
                    let _first = select(changed, pin!(sleep_until(next))).await;
                }
            }
        }
    }

    /// Aborts work on keys whose hand-over timeout has expired. Returns the time at which the next hand-over timeout
    /// expires.
    fn drop_overdue(&self) -> Option<Instant> {
        let (mut state, mut next) = (self.state(), None);
        let State {
            active,
            permission,
            hand_over_timeout,
            ..
        } = &mut *state;
        for (place, active) in active.iter().filter(|(_, it)| !it.lost.is_cancelled()) {
            let Some(due) = active.moved.map(|it| deadline::after(it, *hand_over_timeout)) else {
                continue;
            };
            if due <= Instant::now() {
                let (key, owner) = (&active.text, permission.target.owner(*place));
                tracing::warn!(key, owner, after = ?hand_over_timeout, "the reconcile of a moved key is dropped");
                active.lost.cancel();
            } else {
                next = next.into_iter().chain([due]).min();
            }
        }
        next
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn permits(&self, place: u64) -> bool {
        self.deadline.is_some_and(|it| it > Instant::now()) && self.permission.permits(place)
    }

    /// Records the keys in progress that have moved to other replicas, and the keys that other replicas still hold.
    fn note_moves(&mut self, permission: &Permission) {
        let (me, now) = (&permission.me, Instant::now());
        for (place, active) in &mut self.active {
            if permission.target.claims(me, *place) {
                active.moved = None;
            } else {
                active.moved.get_or_insert(now);
            }
        }
        let before = std::mem::take(&mut self.awaited);
        let mut note = |other: &Arc<str>, held: Held| {
            let what = (Arc::clone(other), held);
            let since = before.get(&what).copied().unwrap_or(now);
            self.awaited.insert(what, since);
        };
        for (other, view) in &permission.others {
            let mine = view.held().filter(|(place, _)| permission.target.claims(me, *place));
            mine.for_each(|(_, text)| note(other, Held::Key(text.to_owned())));
            if !view.has_members_of(&permission.target) {
                note(other, Held::Unknown);
            }
        }
    }
}

impl Hold for Core {
    fn check(&self) -> Result<(), Error> {
        let state = self.state();
        if state.deadline.is_some_and(|it| it > Instant::now()) {
            return Ok(());
        }
        let me = &state.permission.me;
        Err(Error::fenced(format!(
            "refused: the lease of {me:?} was not renewed in time"
        )))
    }

    fn end(&self, place: u64) {
        let mut state = self.state();
        if let Some(active) = state.active.get_mut(&place) {
            active.count -= 1;
            if active.count == 0 {
                state.active.remove(&place);
            }
        }
        let (me, target) = (&state.permission.me, &state.permission.target);
        if !target.claims(me, place) {
            self.ended.notify_one();
        }
    }
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("Core")
            .field("permission", &state.permission)
            .field("active", &state.active.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::super::view::place_of;
    use super::*;

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

    #[tokio::test(start_paused = true)]
    async fn check_lists_keys_that_are_still_reconciled_after_the_hand_over_timeout() {
        let (limit, grace) = (Duration::from_secs(60), Duration::from_secs(15));
        let core = Arc::new(Core::new(&Arc::from("a"), limit));
        core.renew(Instant::now() + Duration::from_secs(600));
        core.permit(permission(&["a"]));
        let both = permission(&["a", "b"]);
        let owner = |key: &String| both.target.owner(place_of(key));
        let mut keys = (0..).map(|it| format!("shop/{it}"));
        let key = keys.find(|it| owner(it) == Some("b")).expect("b owns some keys");
        // The reconcile blocks its thread, so that it is not dropped after the timeout.
        let stay = core.begin(place_of(&key), || key.clone());
        let stay = stay.expect("the only replica may work on all keys");
        core.permit(both);
        tokio::time::advance(Duration::from_secs(74)).await;
        core.check(grace).expect("the key may still move in time");
        tokio::time::advance(Duration::from_secs(2)).await;
        let late = core.check(grace).expect_err("the key has not moved").to_string();
        let reason = format!("\"a\" is still reconciling {key}, which moved to another replica 76s ago");
        assert!(late.contains(&reason), "{late}");
        assert_eq!(core.handing_over(), 1);
        drop(stay);
        core.check(grace).expect("the reconcile has ended");
        assert_eq!(core.handing_over(), 0);
    }
}
