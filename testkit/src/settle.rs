//! `settle` and `advance`: letting virtual time pass, with an eye on controllers that never rest.
//!
//! All waiting of a test goes through [`TestCluster::pass`], which notices a hot loop even where it keeps the clock
//! from ever moving.

use std::panic::Location;
use std::time::Duration;

use fake_apiserver::api::request_info::RequestInfo;
use fake_apiserver::{Entry, RecordedRequest, Verb};
use futures::future::{Either, select};
use tokio::time::{Instant, sleep_until};

use crate::report::most_frequent;
use crate::test_cluster::{Cause, TestCluster};
use crate::work::Done;

/// Bounds of waiting; all times are virtual.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// `settle` returns when nothing has happened for this long. A little more than five seconds, so that a retry after
    /// five seconds, which is what many controllers do, counts as something left to do.
    pub(crate) quiet: Duration,
    /// `settle` fails after this.
    pub(crate) settle: Duration,
    /// `eventually` fails after this.
    pub(crate) eventually: Duration,
    /// Requests of one `settle`, and of all clients at one instant.
    pub(crate) requests: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            quiet: Duration::from_millis(5_100),
            settle: Duration::from_secs(600),
            eventually: Duration::from_secs(60),
            requests: 10_000,
        }
    }
}

impl TestCluster {
    /// Waits until nothing is left to do.
    ///
    /// It returns when for 5.1 s of virtual time ([`quiet`](crate::TestClusterBuilder::quiet)) no object has changed,
    /// no watcher has received anything but bookmarks, and no request has failed, other than reads that found nothing.
    /// Retries within that time are awaited; long timers, such as a requeue after five minutes or the end of a watch,
    /// are not. A controller may poll: reads, writes that change nothing, Leases, and Events do not count, nor does
    /// [what the test leaves out](crate::TestClusterBuilder::ignore). Events do if the test
    /// [says so](crate::TestClusterBuilder::count_events).
    ///
    /// A controller that [restarts](crate::Running::restarts) is awaited.
    /// In an [exploration](crate::explore) held watches, delays and crashed controllers are awaited, too.
    ///
    /// It takes hardly any real time.
    ///
    /// # Panics
    ///
    /// If a controller panicked, and if it does not settle: after ten virtual minutes, or 10,000 requests. Then the
    /// message names the requests that kept coming.
    #[track_caller]
    pub fn settle(&self) -> impl Future<Output = ()> {
        let place = Location::caller();
        async move {
            let journal = self.server.journal();
            let (began, first) = (Instant::now(), journal.total());
            let (mut last, at_first) = (began, self.server.resource_version());
            let (mut total, mut revision) = (first, at_first);
            loop {
                self.pass(place, last + self.bounds.quiet).await;
                let (moved, done);
                (done, revision) = (self.work.since(&self.server, revision), self.server.resource_version());
                (moved, total) = self.last_activity(total, &done);
                let what = if total - first > self.bounds.requests {
                    Some(format!("{} requests and events", total - first))
                } else if began.elapsed() > self.bounds.settle {
                    Some(format!("{} s of virtual time", began.elapsed().as_secs()))
                } else {
                    None
                };
                match (moved, what) {
                    (None, None) if self.goes_on_until() > Some(Instant::now()) => {
                        // The faults are over then, and reactions to them have begun.
                        let until = self.goes_on_until().unwrap_or(last);
                        self.pass(place, until).await;
                        last = Instant::now();
                    }
                    (None, _) => {
                        if let Some(gate) = &self.gate {
                            gate.settled(place).await;
                        }
                        return;
                    }
                    (Some(_), Some(what)) => {
                        let fields = self.work.restless_fields(&self.server, at_first);
                        self.fail_restless(Cause::Restless, place, &what, first, &fields)
                    }
                    (Some(at), None) => last = at,
                }
            }
        }
    }

    /// Returns the time until which changes are known to come: in an exploration, the end of the faults.
    fn goes_on_until(&self) -> Option<Instant> {
        let windows_end = self.gate.as_ref().and_then(|gate| gate.settles_at());
        windows_end.max(self.controllers.next_start())
    }

    /// Lets this much virtual time pass, with all that happens in it, in order.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use testkit::TestCluster;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let cluster = TestCluster::start();
    /// let before = cluster.server().now();
    /// cluster.advance(Duration::from_secs(24 * 3600)).await;
    /// assert_eq!(cluster.server().now().duration_since(before).as_hours(), 24);
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// If a controller panicked, or sends requests without end while the clock stands.
    #[track_caller]
    pub fn advance(&self, duration: Duration) -> impl Future<Output = ()> {
        let place = Location::caller();
        self.pass(place, Instant::now() + duration)
    }

    /// Lets virtual time pass up to an instant.
    pub(crate) async fn pass(&self, place: &'static Location<'static>, until: Instant) {
        let journal = self.server.journal();
        let first = journal.total();
        let mut timer = std::pin::pin!(sleep_until(until));
        let (mut checked, mut at) = (first, None);
        // A task that never waits keeps the clock from moving, and so this timer from firing.
        while let Either::Right(_) = select(
            timer.as_mut(),
            std::pin::pin!(journal.reached(checked + self.bounds.requests)),
        )
        .await
        {
            let now = Instant::now();
            if at == Some(now) {
                let what = format!("{} requests at one instant", self.bounds.requests);
                self.fail_restless(Cause::AtOneInstant, place, &what, first, "");
            }
            (checked, at) = (journal.total(), Some(now));
        }
        self.refresh().await;
        if let Some(message) = self.controllers.panicked() {
            self.fail_for(Cause::ControllerPanicked, place, &message);
        }
    }

    /// Returns the time of the last activity among the entries after `total`, `None` if there was none, and the number
    /// of entries.
    fn last_activity(&self, total: u64, done: &Done) -> (Option<Instant>, u64) {
        let mut last = None;
        let total = self.server.journal().visit(total, |entry| {
            let at = match entry {
                Entry::Request(request) if is_lease_write(request) => return,
                Entry::Request(request) if is_failure(request) => request.answered,
                // A write that changes nothing takes no revision.
                Entry::Request(request) if done.count > 0 && self.is_progress(request) => request.answered,
                Entry::Event(event) if event.kind == "BOOKMARK" => return,
                Entry::Event(event) if self.work.is_beside(&event.group, &event.resource) => return,
                Entry::Event(event) if done.beside.contains(&event.revision) => return,
                Entry::Event(event) => event.at,
                Entry::Request(_) => return,
            };
            last = Some(at).max(last);
        });
        let last = last.map(|at| self.started + at);
        // The server's own controllers write without requests, and there may be no watcher.
        let unseen = last.is_none() && done.count > 0;
        (last.or_else(|| unseen.then(Instant::now)), total)
    }

    fn is_progress(&self, request: &RecordedRequest) -> bool {
        let is_beside = |info: &RequestInfo| self.work.is_beside(&info.group, &info.resource);
        request.is_write() && !request.info.as_ref().is_some_and(is_beside)
    }

    /// Fails the test because controllers never rest.
    fn fail_restless(&self, cause: Cause, place: &Location<'_>, what: &str, first: u64, fields: &str) -> ! {
        let entries = self.server.journal().since(first);
        let what = format!(
            "the cluster does not settle: {what}, and these keep coming:{}{fields}",
            most_frequent(&entries)
        );
        self.fail_for(cause, place, &what)
    }
}

fn is_lease_write(request: &RecordedRequest) -> bool {
    request.is_write() && request.is_for("leases.coordination.k8s.io")
}

/// Returns `true` if a client will want to retry. Not finding an object is an answer.
fn is_failure(request: &RecordedRequest) -> bool {
    (request.code == 0 || request.code >= 400) && !(request.code == 404 && request.verb() == Some(Verb::Get))
}
