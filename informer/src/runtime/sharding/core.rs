//! `Core`: the permission of a replica and its work in progress, shared by its controllers.

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

/// Controller that shares its keys.
pub(super) trait Participant: Send + Sync {
    /// Called when the permission changes: some keys may have become permitted.
    fn widened(&self, before: &Permission, after: &Permission);
}

/// Permission of a replica, and the keys it works on.
pub(super) struct Core {
    state: Mutex<State>,
    /// Notified when work on a key ends.
    pub(super) ended: Notify,
    /// Notified when the deadline is set.
    renewed: Notify,
}

struct State {
    permission: Arc<Permission>,
    /// End of the permission; `None` before the first claim and after a missed renewal.
    deadline: Option<Instant>,
    /// Number of keys in progress at each place.
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

    /// Returns `true` if keys of a place may be worked on now.
    pub(super) fn permits(&self, place: u64) -> bool {
        self.state().permits(place)
    }

    /// Begins work on a key of a place; `None` if it is not permitted.
    pub(super) fn begin(self: &Arc<Self>, place: u64) -> Option<Stay> {
        let mut state = self.state();
        if !state.permits(place) {
            return None;
        }
        *state.active.entry(place).or_default() += 1;
        let hold: Arc<dyn Hold> = Arc::clone(self) as Arc<dyn Hold>;
        Some(Stay::new(place, hold, state.lost.clone()))
    }

    /// Returns `true` if this replica works on no key that it does not own in `view`.
    pub(super) fn is_drained_to(&self, view: &View) -> bool {
        let state = self.state();
        let me = &state.permission.me;
        state.active.keys().all(|place| view.claims(me, *place))
    }

    /// Replaces the permission.
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

    /// Extends the permission.
    pub(super) fn renew(&self, until: Instant) {
        self.state().deadline = Some(until);
        self.renewed.notify_one();
    }

    /// Returns `true` if there is no deadline or it has passed; in the latter case the work in progress loses its keys.
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

    /// Returns the number of missed deadlines.
    pub(super) fn lapses(&self) -> u64 {
        self.state().lapses
    }

    /// Enforces the deadline; never returns.
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
