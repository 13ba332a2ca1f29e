//! `Watcher`: a cursor into a resource's log. It delivers the changes after the cursor, then waits for a wake-up. Every
//! pass checks the log's floor, so a watcher that falls behind ends with 410 and never skips a change.

use std::collections::VecDeque;
#[cfg(feature = "bench-internals")]
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

use super::fanout::{Fanout, SleeperId};
use super::filter::{EventType, Filter};
use super::replica::Horizon;
use crate::storage::store::{CursorLost, Fresh};
use crate::storage::{Change, ResourceSnapshot, Revision, Store, Stored};

/// Maximum number of changes read from the log in one pass.
const BATCH_MAX: usize = 256;

/// Time between bookmarks (rule E13).
const BOOKMARK_INTERVAL: Duration = Duration::from_secs(60);

/// Time before its end at which a watch sends a last bookmark (rule E13).
const LAST_BOOKMARK: Duration = Duration::from_secs(2);

/// Start of a watch and its options.
#[derive(Debug)]
pub(crate) struct WatchStart {
    /// The storage name of the resource.
    pub(crate) resource: Arc<str>,
    /// Selects the delivered changes.
    pub(crate) filter: Filter,
    /// The state to send as ADDED events first; the watch continues from its revision.
    pub(crate) initial: Option<ResourceSnapshot>,
    /// Without an initial state: events after this revision.
    pub(crate) after: Revision,
    /// Set if bookmarks are requested.
    pub(crate) bookmarks: bool,
    /// Set if the initial state ends with an annotated bookmark (rule E5); only with `bookmarks`.
    pub(crate) initial_end_bookmark: bool,
    /// Limit of the view; `None` if it is current.
    pub(crate) horizon: Option<Horizon>,
    /// Time at which the watch ends (rule E14).
    pub(crate) deadline: Instant,
}

/// Item that a watcher delivers.
#[derive(Clone, Debug)]
pub(crate) enum Delivery {
    /// An object of the initial state.
    Initial(Arc<Stored>),
    /// A change, and its event for this watcher.
    Change(Arc<Change>, EventType),
    /// There are no further changes up to this revision.
    Bookmark {
        /// Every change up to it has been delivered.
        revision: Revision,
        /// Set if it ends the initial state.
        initial_end: bool,
    },
    /// The cursor fell below the floor of the log; the last delivery.
    Expired {
        /// The cursor.
        wanted: Revision,
        /// The oldest revision from which a watch may start.
        floor: Revision,
    },
}

/// An open watch.
#[derive(Debug)]
pub(crate) struct Watcher {
    store: Arc<Store>,
    fanout: Arc<Fanout>,
    id: SleeperId,
    start: WatchStart,
    /// Epoch of the world that the cursor points into.
    epoch: u64,
    cursor: Revision,
    /// Set after all changes up to the cursor were delivered. A client may start from a version older than the log.
    is_caught_up: bool,
    /// Read but not yet delivered.
    ready: VecDeque<Delivery>,
    /// The next bookmark or the deadline, whichever is earlier; created at the first wait.
    timer: Option<Pin<Box<Sleep>>>,
    next_bookmark: Option<Instant>,
    ended: bool,
}

impl Watcher {
    /// Begins a watch. Nothing is read from the log before the first poll.
    pub(crate) fn new(store: Arc<Store>, fanout: Arc<Fanout>, mut start: WatchStart) -> Self {
        let mut ready = VecDeque::new();
        let mut cursor = start.after;
        let is_caught_up = start.initial.is_some();
        if let Some(snapshot) = start.initial.take() {
            cursor = snapshot.revision;
            let range = start.filter.scope.range();
            let wanted = snapshot.range(&range).filter(|it| start.filter.selects(it));
            ready.extend(wanted.map(|it| Delivery::Initial(Arc::clone(it))));
            if start.bookmarks && start.initial_end_bookmark {
                ready.push_back(Delivery::Bookmark {
                    revision: cursor,
                    initial_end: true,
                });
            }
        }
        let id = fanout.register();
        let epoch = store.epoch();
        let next_bookmark = match start.bookmarks {
            true => next_bookmark(Instant::now(), start.deadline),
            false => None,
        };
        Self {
            store,
            fanout,
            id,
            start,
            epoch,
            cursor,
            is_caught_up,
            ready,
            timer: None,
            next_bookmark,
            ended: false,
        }
    }

    /// Returns the revision after which the client requested changes; 0 if it requested the state first.
    pub(crate) fn began_after(&self) -> Revision {
        self.start.after
    }

    /// Returns the revision up to which it has read.
    pub(crate) fn position(&self) -> Revision {
        self.cursor
    }

    /// Returns all ready deliveries, at least one; empty when the watch has ended.
    #[cfg(feature = "bench-internals")]
    pub(crate) async fn next_batch(&mut self) -> VecDeque<Delivery> {
        poll_fn(|cx| {
            std::task::ready!(self.poll_ready(cx));
            Poll::Ready(std::mem::take(&mut self.ready))
        })
        .await
    }

    /// Polls for the next delivery; `None` when the watch has ended.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Delivery>> {
        std::task::ready!(self.poll_ready(cx));
        Poll::Ready(self.ready.pop_front())
    }

    /// Returns the next deliveries without delivering them, for a held watch. It reads a little ahead, and wakes the
    /// task when there is more to read.
    pub(crate) fn look_ahead(&mut self, cx: &Context<'_>) -> &VecDeque<Delivery> {
        if !self.ended && self.ready.len() < BATCH_MAX {
            self.read_log(cx);
        }
        &self.ready
    }

    /// Resolves when a delivery is ready or the watch has ended.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            if !self.ready.is_empty() || self.ended {
                return Poll::Ready(());
            }
            self.read_log(cx);
            if self.ready.is_empty() && !self.ended {
                std::task::ready!(self.poll_timer(cx));
            }
        }
    }

    /// Moves the cursor over new changes. It registers for the wake-up before it reads, so that no commit is missed.
    fn read_log(&mut self, cx: &Context<'_>) {
        self.fanout
            .sleep(self.id, &self.start.resource, &self.start.filter.scope, cx.waker());
        loop {
            // This is read first: a commit in between is delivered in the next round.
            let horizon = self.start.horizon.as_ref().map(|it| it.sees(self.store.revision()));
            match self.read_batch() {
                Ok(mut fresh) => {
                    self.is_caught_up = true;
                    if let Some(horizon) = horizon {
                        fresh.end_at(horizon.max(self.cursor));
                    }
                    self.cursor = fresh.revision;
                    let filter = &self.start.filter;
                    let is_full = fresh.changes.len() == BATCH_MAX;
                    let events = fresh.changes.into_iter().filter_map(|change| {
                        let kind = filter.event_of(&change)?;
                        Some(Delivery::Change(change, kind))
                    });
                    self.ready.extend(events);
                    // A full batch of filtered changes: the log may contain more.
                    if !is_full || !self.ready.is_empty() {
                        return;
                    }
                }
                Err(CursorLost::Compacted(at)) => {
                    self.ready.push_back(Delivery::Expired {
                        wanted: self.cursor,
                        floor: at.floor,
                    });
                    self.ended = true;
                    return;
                }
                Err(CursorLost::Replaced) => {
                    self.ended = true;
                    return;
                }
            }
        }
    }

    /// The next changes of the resource. While a watcher sleeps, its scope does not change, so changes that the log has
    /// dropped meanwhile do not concern it.
    fn read_batch(&self) -> Result<Fresh, CursorLost> {
        let (store, start) = (&self.store, &self.start);
        match self.is_caught_up {
            true => {
                let part = start.filter.scope.part();
                store.changes_unless_missed(&start.resource, self.epoch, self.cursor, BATCH_MAX, part)
            }
            false => store.changes_after(&start.resource, self.epoch, self.cursor, BATCH_MAX),
        }
    }

    /// Waits for the next bookmark or the end of the watch.
    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let now = Instant::now();
        if now >= self.start.deadline {
            self.ended = true;
            return Poll::Ready(());
        }
        if self.next_bookmark.is_some_and(|at| now >= at) {
            self.next_bookmark = next_bookmark(now, self.start.deadline);
            self.timer = None;
            // No bookmark before the revision that the client named, which a restored server may not have reached.
            if self.cursor <= self.store.revision() {
                self.ready.push_back(Delivery::Bookmark {
                    revision: self.cursor,
                    initial_end: false,
                });
                return Poll::Ready(());
            }
        }
        let at = self
            .next_bookmark
            .map_or(self.start.deadline, |at| at.min(self.start.deadline));
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(at)));
        std::task::ready!(timer.as_mut().poll(cx));
        self.timer = None;
        Poll::Ready(())
    }
}

/// The time of the bookmark after `now`: in a minute, or shortly before the watch ends.
fn next_bookmark(now: Instant, deadline: Instant) -> Option<Instant> {
    let last = deadline - LAST_BOOKMARK.min(deadline.saturating_duration_since(now));
    match now + BOOKMARK_INTERVAL {
        next if next < last => Some(next),
        _ if now < last => Some(last),
        _ => None,
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.fanout
            .forget(self.id, &self.start.resource, &self.start.filter.scope);
    }
}

#[cfg(test)]
mod tests {
    use crate::api::json::Value;
    use http::Request;
    use rstest::rstest;

    use crate::ApiServer;

    /// Rule E13: once a minute, and two seconds before the end.
    #[rstest]
    #[case::shorter_than_a_minute(30, &[28])]
    #[case::of_some_minutes(150, &[60, 120, 148])]
    #[case::that_ends_at_once(1, &[])]
    #[tokio::test(start_paused = true)]
    async fn e13_a_watch_has_bookmarks_up_to_its_end(#[case] seconds: u64, #[case] at: &[u64]) {
        let server = ApiServer::start();
        let from = server.resource_version();
        let path = format!(
            "/api/v1/configmaps?watch=1&allowWatchBookmarks=true&resourceVersion={from}&timeoutSeconds={seconds}"
        );
        let answer = server
            .call(Request::get(path).body("").expect("the request is valid"))
            .await;
        let lines = answer.body().split(|it| *it == b'\n').filter(|it| !it.is_empty());
        let told = lines
            .filter(|it| serde_json::from_slice::<Value>(it).expect("the text is valid JSON")["type"] == "BOOKMARK");
        let events = server.journal().events();
        let times: Vec<u64> = events.iter().map(|it| it.at.as_secs()).collect();
        assert_eq!((told.count(), &*times), (at.len(), at));
    }
}
