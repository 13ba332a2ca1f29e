//! `settle` and `advance`: let virtual time pass, and detect controllers that never settle.
//!
//! A test always waits with [`TestCluster::pass`], which detects a hot loop even if the loop stops the clock.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use fake_apiserver::api::request_info::RequestInfo;
use fake_apiserver::{Entry, RecordedRequest, Verb};
use futures::future::{Either, select};
use tokio::time::{Instant, sleep_until};

use crate::bounds::Bounds;
use crate::report::{Checked, Failed, at_the_test, most_frequent};
use crate::test_cluster::{Cause, TestCluster};
use crate::work::Done;

/// Minimum average number of messages per object at one instant for a burst of messages below the limit of requests to
/// count as a hot loop.
const MESSAGES_EACH: u64 = 10;

/// Number of additional messages after which a burst is checked again.
const LOOK_AGAIN: u64 = 500;

/// Time after the last activity for which `settle` continues to wait for busy processes.
const BUSY: Duration = Duration::from_secs(10);

/// The messages at one instant of virtual time.
struct Burst {
    messages: u64,
    /// Number of different objects and paths.
    objects: u64,
}

impl Burst {
    /// Returns `true` if a controller repeats itself. A controller with a lot of work also sends many messages, but
    /// only a few for each object.
    fn is_hot_loop(&self, bounds: &Bounds) -> bool {
        let repeats = self.messages >= bounds.at_one_instant && self.messages >= MESSAGES_EACH * self.objects;
        repeats || self.messages >= bounds.requests
    }

    fn objects_named(&self) -> String {
        match self.objects {
            1 => "1 object".to_owned(),
            count => format!("{count} objects"),
        }
    }
}

/// Returns the object of a request, or its path if it does not concern an object.
fn object_of(request: &RecordedRequest) -> String {
    match &request.info {
        Some(it) => format!("{} {}/{}", it.resource, it.namespace, it.name),
        None => request.path.clone(),
    }
}

impl TestCluster {
    /// Waits until all work has been done.
    ///
    /// Returns after 5.1 s of virtual time ([`quiet`](crate::TestClusterBuilder::quiet)) in which no object has
    /// changed, no watcher has received anything except for bookmarks, and no request has failed, except for reads of
    /// missing objects and requests for features that the server does not support (501). It waits for retries within
    /// that time, but not for long timers, such as a requeue after five minutes or the end of a watch. Polling is
    /// permitted: reads, writes that change nothing, Leases, Events and
    /// [ignored fields](crate::TestClusterBuilder::ignore) do not count as work. Events count as work if the test
    /// [enables this](crate::TestClusterBuilder::count_events).
    ///
    /// It also waits for a controller that [restarts](crate::Running::restarts), and in an
    /// [exploration](crate::explore) for held watches, delays and crashed controllers.
    ///
    /// This takes almost no real time.
    ///
    /// # Panics
    ///
    /// If a controller panicked, or if the cluster does not settle: after ten virtual minutes, after 10,000 requests
    /// and events, or in a hot loop of 2,000 requests and events at one instant, with an average of at least ten per
    /// object. The message lists the most frequent requests.
    #[track_caller]
    pub fn settle(&self) -> impl Future<Output = ()> {
        at_the_test(self.settled(Location::caller()))
    }

    /// Waits until all work has been done, in a cluster that has been quiet since `quiet_since`.
    #[track_caller]
    pub(crate) fn settle_since(&self, quiet_since: Instant) -> impl Future<Output = ()> {
        let place = Location::caller();
        at_the_test(async move {
            self.rest_since(place, quiet_since).await?;
            self.has_settled(place).await;
            Ok(())
        })
    }

    /// Same as [`settle`](Self::settle), at the given location in the test.
    pub(crate) async fn settled(&self, place: &'static Location<'static>) -> Checked<()> {
        self.rest(place).await?;
        self.has_settled(place).await;
        Ok(())
    }

    async fn has_settled(&self, place: &'static Location<'static>) {
        if let Some(hooks) = &self.hooks {
            hooks.settled(&format!("{}:{}", place.file(), place.line())).await;
        }
    }

    /// Same as `settle`, at a location given as a string, such as a line of a file.
    ///
    /// # Panics
    ///
    /// See `settle`.
    #[cfg(all(feature = "processes", unix))]
    pub(crate) async fn settle_at(&self, place: &str) {
        if let Err(Failed(message)) = self.rest(Location::caller()).await {
            let what = message.split_once("the cluster does not settle").map(|(_, it)| it);
            let cause = self.cause_of(&message).unwrap_or(Cause::Restless);
            let message = match what {
                Some(what) => format!("{place}: the cluster does not settle{what}"),
                None => message,
            };
            let Failed(message) = self.failed_with(cause, message);
            std::panic::resume_unwind(Box::new(message));
        }
        if let Some(hooks) = &self.hooks {
            hooks.settled(place).await;
        }
    }

    /// Waits until no work is left.
    async fn rest(&self, place: &'static Location<'static>) -> Checked<()> {
        self.rest_since(place, Instant::now()).await
    }

    /// Waits until no work is left, in a cluster that has been quiet since `quiet_since`.
    async fn rest_since(&self, place: &'static Location<'static>, quiet_since: Instant) -> Checked<()> {
        let journal = self.server.journal();
        let (began, first) = (Instant::now(), journal.total());
        // Controllers react after the end of a fault, so the quiet time begins then.
        let faults_end = self.goes_on_until().filter(|it| *it <= began);
        let (mut last, at_first) = (
            Some(quiet_since).max(faults_end).unwrap_or(began),
            self.server.resource_version(),
        );
        let (mut total, mut revision) = (first, at_first);
        let mut acted = last;
        let mut failures = Failures::new(self.bounds.repeats);
        loop {
            let (since, (busy, _)) = (Instant::now(), self.controllers_busy());
            if self.pass_or_expect(place, began, last + self.bounds.quiet).await? {
                return Ok(());
            }
            let (more, is_running) = self.controllers_busy();
            let is_busy = is_running || more.saturating_sub(busy) * 4 > since.elapsed();
            let (moved, done): (_, Done);
            (done, revision) = (self.work.since(&self.server, revision), self.server.resource_version());
            (moved, total) = self.last_activity(total, &done, &mut failures);
            let moved = moved.max(self.externals.active_after(last));
            let what = if total - first > self.bounds.requests {
                Some(format!("{} requests and events", total - first))
            } else if began.elapsed() > self.bounds.settle {
                Some(format!("{} s{}", began.elapsed().as_secs(), self.bounds.clock()))
            } else {
                None
            };
            match (moved, what) {
                (None, None) if self.goes_on_until() > Some(Instant::now()) => {
                    // When `pass` returns, the faults have ended, and controllers have begun to react.
                    let until = self.goes_on_until().unwrap_or(last);
                    self.pass(place, until).await?;
                    last = Instant::now();
                }
                (None, None) if !self.are_controllers_ready() => last = Instant::now(),
                // A process that is computing, or waiting for a processor, has not settled.
                (None, None) if is_busy && acted.elapsed() < BUSY => last = Instant::now(),
                (None, _) => return Ok(()),
                (Some(_), Some(what)) => {
                    let fields = self.work.restless_fields(&self.server, at_first);
                    return Err(self.restless(Cause::Restless, place, &what, first, &fields));
                }
                (Some(at), None) => (last, acted) = (at, at),
            }
        }
    }

    /// Advances the time to an instant, or until the exploration finds the expected state or continues during a fault.
    /// Returns `true` in the latter cases. `began` is the start of the wait.
    async fn pass_or_expect(&self, place: &'static Location<'static>, began: Instant, until: Instant) -> Checked<bool> {
        let hooks = self.hooks.as_ref();
        let Some((hooks, [mut pause, every])) = hooks.and_then(|it| Some((it, it.looks_every()?))) else {
            self.pass(place, until).await?;
            return Ok(false);
        };
        loop {
            let next = until.min(Instant::now() + pause);
            self.pass(place, next).await?;
            if hooks.is_as_expected() || hooks.goes_on_during_faults(began) {
                return Ok(true);
            }
            if next >= until {
                return Ok(false);
            }
            pause = every;
        }
    }

    /// Returns the time until which further changes are expected: the end of the faults or the last pending restart of
    /// a controller, whichever is later.
    fn goes_on_until(&self) -> Option<Instant> {
        let windows_end = self.hooks.as_ref().and_then(|hooks| hooks.settles_at());
        windows_end.max(self.controllers.next_start())
    }

    fn are_controllers_ready(&self) -> bool {
        self.hooks.as_ref().is_none_or(|hooks| hooks.are_controllers_ready())
    }

    fn controllers_busy(&self) -> (Duration, bool) {
        let hooks = self.hooks.as_ref();
        hooks.map_or((Duration::ZERO, false), |hooks| hooks.controllers_busy())
    }

    /// Advances the virtual time by this amount. Timers that expire in the meantime fire in order.
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
    /// If a controller panicked, or if it stops the clock by sending requests without end.
    #[track_caller]
    pub fn advance(&self, duration: Duration) -> impl Future<Output = ()> {
        at_the_test(self.pass(Location::caller(), Instant::now() + duration))
    }

    /// Advances the virtual time to an instant.
    pub(crate) async fn pass(&self, place: &'static Location<'static>, until: Instant) -> Checked<()> {
        let journal = self.server.journal();
        let first = journal.total();
        let mut timer = std::pin::pin!(sleep_until(until));
        let least = self.bounds.at_one_instant.min(self.bounds.requests);
        let mut look_at = first + least;
        // A task that never waits stops the clock, so this timer would never fire.
        while let Either::Right(_) = select(timer.as_mut(), std::pin::pin!(journal.reached(look_at))).await {
            let burst = self.burst(first);
            if burst.is_hot_loop(&self.bounds) {
                let what = format!(
                    "more than {least} requests at one instant of virtual time ({} including events, about {}), while \
                     the clock did not advance",
                    burst.messages,
                    burst.objects_named()
                );
                return Err(self.restless(Cause::AtOneInstant, place, &what, journal.total() - burst.messages, ""));
            }
            // A hot loop is detected at most `LOOK_AGAIN` messages late.
            let missing = least.saturating_sub(burst.messages);
            look_at = journal.total() + if missing > 0 { missing } else { LOOK_AGAIN };
        }
        self.refresh().await;
        match self.controllers.panicked() {
            Some(message) => Err(self.failed_for(Cause::ControllerPanicked, place, &message)),
            None => Ok(()),
        }
    }

    /// Counts the messages at this instant among the journal entries after `first`.
    fn burst(&self, first: u64) -> Burst {
        let now = self.started.elapsed();
        let (mut messages, mut objects) = (0, BTreeSet::new());
        self.server.journal().visit(first, |entry| {
            let (at, object) = match entry {
                Entry::Request(it) => (it.answered, object_of(it)),
                Entry::Event(it) => (it.at, format!("{} {}/{}", it.resource, it.namespace, it.name)),
            };
            if at >= now {
                messages += 1;
                objects.insert(object);
            }
        });
        Burst {
            messages,
            objects: objects.len() as u64,
        }
    }

    /// Returns the time of the last activity among the journal entries after `total` (`None` if there was none), and
    /// the number of journal entries.
    fn last_activity(&self, total: u64, done: &Done, failures: &mut Failures) -> (Option<Instant>, u64) {
        let mut last = None;
        let total = self.server.journal().visit(total, |entry| {
            let at = match entry {
                Entry::Request(request) if is_lease_write(request) => return,
                Entry::Request(request) if is_failure(request) => match failures.is_repetition(request) {
                    true => return,
                    false => request.answered,
                },
                // A write that changes nothing does not count.
                Entry::Request(request) if done.count > 0 && self.is_progress(request, done) => request.answered,
                Entry::Event(event) if event.kind == "BOOKMARK" => return,
                Entry::Event(event) if self.work.is_beside(&event.group, &event.resource) => return,
                Entry::Event(event) if done.beside.contains(&event.revision) => return,
                Entry::Event(event) => event.at,
                Entry::Request(_) => return,
            };
            if !matches!(entry, Entry::Request(request) if is_failure(request)) {
                failures.forget();
            }
            last = Some(at).max(last);
        });
        let last = last.map(|at| self.started + at);
        // Some workers change objects without requests, and these objects may not have watchers.
        let unseen = last.is_none() && done.count > 0;
        (last.or_else(|| unseen.then(Instant::now)), total)
    }

    fn is_progress(&self, request: &RecordedRequest, done: &Done) -> bool {
        let is_beside = |info: &RequestInfo| self.work.is_beside(&info.group, &info.resource) || !done.may_be_of(info);
        request.is_write() && !request.info.as_ref().is_some_and(is_beside)
    }

    /// Returns the failure for controllers that do not settle.
    fn restless(&self, cause: Cause, place: &Location<'_>, what: &str, first: u64, fields: &str) -> Failed {
        let entries = self.server.journal().since(first);
        let what = format!(
            "the cluster does not settle: {what}; the most frequent requests are:{}{fields}",
            most_frequent(&entries)
        );
        self.failed_for(cause, place, &what)
    }
}

/// Failed requests since the last change of the cluster. A controller that reconciles at intervals may send the same
/// failing request every time, for example the deletion of an object that does not exist.
struct Failures {
    /// Time after which a repeated failure no longer counts as activity, if there is one.
    bound: Option<Duration>,
    /// The time of the first failure, by client, method, path and status.
    first: BTreeMap<(Arc<str>, String, String, u16), Duration>,
}

impl Failures {
    const fn new(bound: Option<Duration>) -> Self {
        let first = BTreeMap::new();
        Self { bound, first }
    }

    /// Returns `true` if the request has failed in the same way for so long that the failure no longer counts as
    /// activity.
    fn is_repetition(&mut self, request: &RecordedRequest) -> bool {
        let Some(bound) = self.bound else { return false };
        let (method, path) = (request.method.to_string(), request.path.clone());
        let key = (Arc::clone(&request.client), method, path, request.code);
        let first = *self.first.entry(key).or_insert(request.answered);
        request.answered.saturating_sub(first) >= bound
    }

    /// Called when the cluster changes, because a repeated request may then succeed.
    fn forget(&mut self) {
        self.first.clear();
    }
}

fn is_lease_write(request: &RecordedRequest) -> bool {
    request.is_write() && request.is_for("leases.coordination.k8s.io")
}

/// Returns `true` for a failure after which the client is likely to retry. Reads of missing objects and features that
/// the server does not support do not count.
fn is_failure(request: &RecordedRequest) -> bool {
    request.code != 501
        && (request.code == 0 || request.code >= 400)
        && !(request.code == 404 && request.verb() == Some(Verb::Get))
}
