//! `Core`: what a replica may do and what it does, of all its controllers.

use std::collections::HashMap;
use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use foldhash::fast::RandomState;
use futures::future::select;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::permission::Permission;
use super::view::View;
use crate::Error;
use crate::reconcile::{Hold, Stay};

/// A controller that shares its keys.
pub(super) trait Participant: Send + Sync {
    /// There may be keys that may be worked on from now on, and might not before.
    fn widened(&self, before: &Permission, after: &Permission);
}

/// The permission of a replica, and the keys it works on.
pub(super) struct Core {
    state: Mutex<State>,
    /// Work on a key has ended while somebody waits for that.
    pub(super) ended: Notify,
    /// There is a deadline again.
    renewed: Notify,
}

struct State {
    permission: Arc<Permission>,
    /// Until when it holds; `None` before the first claim, and when it was missed.
    deadline: Option<Instant>,
    /// The number of keys worked on at each place.
    active: HashMap<u64, usize, RandomState>,
    /// Cancelled when the deadline is missed.
    lost: CancellationToken,
    participants: Vec<Weak<dyn Participant>>,
    lapses: u64,
}

impl Core {
    pub(super) fn new(me: &Arc<str>) -> Self {
        Self {
            state: Mutex::new(State {
                permission: Arc::new(Permission::none(me)),
                deadline: None,
                active: HashMap::default(),
                lost: CancellationToken::new(),
                participants: Vec::new(),
                lapses: 0,
            }),
            ended: Notify::new(),
            renewed: Notify::new(),
        }
    }

    pub(super) fn add(&self, participant: &Arc<dyn Participant>) {
        self.state().participants.push(Arc::downgrade(participant));
    }

    pub(super) fn permission(&self) -> Arc<Permission> {
        Arc::clone(&self.state().permission)
    }

    /// True if keys of a place may be worked on now.
    pub(super) fn permits(&self, place: u64) -> bool {
        self.state().permits(place)
    }

    /// Begins to work on a key of a place.
    pub(super) fn begin(self: &Arc<Self>, place: u64) -> Option<Stay> {
        let mut state = self.state();
        if !state.permits(place) {
            return None;
        }
        *state.active.entry(place).or_default() += 1;
        let hold: Arc<dyn Hold> = Arc::clone(self) as Arc<dyn Hold>;
        Some(Stay::new(place, hold, state.lost.clone()))
    }

    /// True if all work has ended on keys that this replica does not own by `view`.
    pub(super) fn is_drained_to(&self, view: &View) -> bool {
        let state = self.state();
        let me = &state.permission.me;
        state.active.keys().all(|place| view.claims(me, *place))
    }

    /// From now on this is permitted.
    pub(super) fn permit(&self, permission: Permission) {
        let (before, after, participants) = {
            let mut state = self.state();
            if *state.permission == permission {
                return;
            }
            let after = Arc::new(permission);
            let before = std::mem::replace(&mut state.permission, Arc::clone(&after));
            state.participants.retain(|it| it.strong_count() > 0);
            (before, after, state.participants.clone())
        };
        for participant in participants.iter().filter_map(Weak::upgrade) {
            participant.widened(&before, &after);
        }
    }

    /// Prolongs the permission until then.
    pub(super) fn renew(&self, until: Instant) {
        self.state().deadline = Some(until);
        self.renewed.notify_one();
    }

    /// True if there is no deadline, or it has passed. In the latter case the work under way has lost its keys.
    pub(super) fn has_lapsed(&self) -> bool {
        let mut state = self.state();
        match state.deadline {
            None => true,
            Some(deadline) if deadline > Instant::now() => false,
            Some(_) => {
                state.deadline = None;
                state.lapses += 1;
                std::mem::take(&mut state.lost).cancel();
                let me = &state.permission.me;
                tracing::warn!(replica = &**me, "the lease of this replica was not renewed in time");
                true
            }
        }
    }

    /// The number of deadlines missed.
    pub(super) fn lapses(&self) -> u64 {
        self.state().lapses
    }

    /// Looks after the deadline; never returns.
    pub(super) async fn keep_time(&self) {
        loop {
            let renewed = pin!(self.renewed.notified());
            let deadline = self.state().deadline;
            if self.has_lapsed() {
                renewed.await;
            } else if let Some(deadline) = deadline {
                select(renewed, pin!(sleep_until(deadline))).await;
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn permits(&self, place: u64) -> bool {
        self.deadline.is_some_and(|it| it > Instant::now()) && self.permission.permits(place)
    }
}

impl Hold for Core {
    fn check(&self) -> Result<(), Error> {
        let state = self.state();
        if state.deadline.is_some_and(|it| it > Instant::now()) {
            return Ok(());
        }
        let me = &state.permission.me;
        Err(Error::refused(format!(
            "refused: the lease of {me:?} was not renewed in time"
        )))
    }

    fn end(&self, place: u64) {
        let mut state = self.state();
        if let Some(count) = state.active.get_mut(&place) {
            *count -= 1;
            if *count == 0 {
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
