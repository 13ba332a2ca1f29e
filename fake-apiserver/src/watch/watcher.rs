//! `Watcher`: a cursor in a resource's log. It delivers the changes after the cursor, and then waits to be woken. Each
//! read checks whether the log still contains these changes, so a watcher that falls behind ends with 410 instead of
//! skipping changes.

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

/// Time before the end of a watch at which the last bookmark is sent (rule E13).
const LAST_BOOKMARK: Duration = Duration::from_secs(2);

/// The start of a watch and its options.
#[derive(Debug)]
pub(crate) struct WatchStart {
    /// Storage name of the resource.
    pub(crate) resource: Arc<str>,
    /// Selects the delivered changes.
    pub(crate) filter: Filter,
    /// State that is sent first, as ADDED events. The watch continues from the revision of this snapshot.
    pub(crate) initial: Option<ResourceSnapshot>,
    /// Revision after which events are sent, unless the watch has an initial state.
    pub(crate) after: Revision,
    /// Set if bookmarks are requested.
    pub(crate) bookmarks: bool,
    /// Set if the initial state ends with an annotated bookmark (rule E5); only with `bookmarks`.
    pub(crate) initial_end_bookmark: bool,
    /// The stale view of the client; `None` for a current view.
    pub(crate) horizon: Option<Horizon>,
    /// Time at which the watch ends (rule E14).
    pub(crate) deadline: Instant,
}

/// An item delivered by a watcher.
#[derive(Clone, Debug)]
pub(crate) enum Delivery {
    /// An object of the initial state.
    Initial(Arc<Stored>),
    /// A change, and its event for this watcher.
    Change(Arc<Change>, EventType),
    /// A bookmark: all changes up to a revision were delivered.
    Bookmark {
        /// Revision up to which all changes were delivered.
        revision: Revision,
        /// Set if the bookmark ends the initial state.
        initial_end: bool,
    },
    /// The last delivery: changes after the cursor were dropped from the log.
    Expired {
        /// Revision of the cursor.
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
    /// Epoch of the state to which the cursor belongs.
    epoch: u64,
    cursor: Revision,
    /// Set once all changes up to the cursor were delivered. Unset at first, because a client may request changes from
    /// before the start of the log.
    is_caught_up: bool,
    /// Deliveries that were read but not yet delivered.
    ready: VecDeque<Delivery>,
    /// Timer for the next bookmark or the deadline, whichever is earlier; created when the watcher first waits.
    timer: Option<Pin<Box<Sleep>>>,
    next_bookmark: Option<Instant>,
    ended: bool,
}

impl Watcher {
    /// Starts a watch. The log is not read before the first poll.
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

    /// Returns the revision after which the client requested changes; if it did not request one, the revision at which
    /// the watch started.
    pub(crate) fn began_after(&self) -> Revision {
        self.start.after
    }

    /// Returns the revision up to which changes were read.
    pub(crate) fn position(&self) -> Revision {
        self.cursor
    }

    /// Returns all ready deliveries, at least one; empty if the watch has ended.
    #[cfg(feature = "bench-internals")]
    pub(crate) async fn next_batch(&mut self) -> VecDeque<Delivery> {
        poll_fn(|cx| {
            std::task::ready!(self.poll_ready(cx));
            Poll::Ready(std::mem::take(&mut self.ready))
        })
        .await
    }

    /// Polls for the next delivery; `None` if the watch has ended.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Delivery>> {
        std::task::ready!(self.poll_ready(cx));
        Poll::Ready(self.ready.pop_front())
    }

    /// Returns the next deliveries without removing them, for a held watch. Reads ahead by a limited number of changes.
    pub(crate) fn look_ahead(&mut self, cx: &Context<'_>) -> &VecDeque<Delivery> {
        if !self.ended && self.ready.len() < BATCH_MAX {
            self.read_log(cx);
        }
        &self.ready
    }

    /// Completes when a delivery is ready or the watch has ended.
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

    /// Reads new changes and advances the cursor. Registers to be woken before it reads, so that no commit is missed.
    fn read_log(&mut self, cx: &Context<'_>) {
        self.fanout
            .sleep(self.id, &self.start.resource, &self.start.filter.scope, cx.waker());
        loop {
            // Read before the changes: a commit in between is delivered in the next iteration.
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
                    // If all changes of a full batch were filtered out, the next batch is read immediately, because the
                    // log may contain more changes.
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

    /// Returns the next changes of the resource. Once the watcher is caught up, changes that were dropped from the log
    /// only make the read fail if they are in the watcher's scope.
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
            // No bookmark is sent before the requested revision, which a restored server may not have reached yet.
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

/// Returns the time of the next bookmark: in a minute, or shortly before the watch ends; `None` after the last one.
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

    /// Rule E13: a bookmark every minute, and two seconds before the end.
    #[rstest]
    #[case::shorter_than_a_minute(30, &[28])]
    #[case::longer_than_two_minutes(150, &[60, 120, 148])]
    #[case::one_second(1, &[])]
    #[tokio::test(start_paused = true)]
    async fn e13_bookmarks_are_sent_each_minute_and_before_the_end(#[case] seconds: u64, #[case] at: &[u64]) {
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
