//! `Hooks`: the interface through which a cluster calls its exploration.
//!
//! A cluster outside of an exploration has no hooks. The trait depends neither on the cluster nor on the exploration,
//! so that both can use it.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fake_apiserver::UserInfo;
use futures::future::BoxFuture;
use http_body_util::Full;
use http_body_util::combinators::UnsyncBoxBody;
use tokio::time::Instant;
use tower::BoxError;
use tower::util::BoxCloneSyncService;

/// Service that handles the requests of one client.
pub(crate) type Passage = BoxCloneSyncService<http::Request<Full<Bytes>>, http::Response<AnswerBody>, io::Error>;

/// Body of a response. For a watch, each event is a frame.
pub(crate) type AnswerBody = UnsyncBoxBody<Bytes, BoxError>;

/// Error of a [`Point`](crate::explore::Point): the action failed, or it was executed and its response was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unreachable;

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("connection reset by peer")
    }
}

impl std::error::Error for Unreachable {}

/// A controller that can be killed and restarted.
pub(crate) trait Restart: Send + Sync {
    fn crash(&self);
    fn restart(&self);

    /// Pauses the controller until `thaw` is called. Only processes can be paused.
    fn freeze(&self) {}

    fn thaw(&self) {}

    /// Returns `false` while a started controller is not ready yet.
    fn is_ready(&self) -> bool {
        true
    }

    /// Returns the time for which the controller's threads have run or waited for a processor, excluding waits that
    /// have not ended, and whether one of them runs or waits now. Zero and `false` on systems that do not measure this.
    fn busy(&self) -> (Duration, bool) {
        (Duration::ZERO, false)
    }
}

/// A future that must be awaited after a call outside of the API. It injects the faults that follow the call.
pub(crate) type AfterCall<'a> = BoxFuture<'a, Result<(), Unreachable>>;

/// Callbacks of a cluster to its exploration.
pub(crate) trait Hooks: fmt::Debug + Send + Sync {
    /// Builds the client for a new run of the controller `name`, which acts as `user` or as the default user.
    fn client(self: Arc<Self>, name: &str, user: Option<UserInfo>) -> kube::Client;

    /// Builds the service for clients of any version of kube, for a new run of the controller `name`.
    fn service(self: Arc<Self>, name: &str) -> Passage;

    /// Registers that the controller `name` can be crashed. Returns the delay of its start; `None` if it starts
    /// immediately.
    fn controller_starts(&self, name: &str, controller: Arc<dyn Restart>) -> Option<Duration>;

    /// Records a line of the output of the controller `name`.
    #[cfg(all(feature = "processes", unix))]
    fn controller_wrote(&self, name: &str, line: String);

    /// Records that the controller `name` failed, for example by a panic. `what` describes the failure.
    #[cfg(all(feature = "processes", unix))]
    fn controller_broke(&self, name: &str, what: String);

    /// Records that the controller `name` was killed, because it did not exit in time when it was stopped.
    #[cfg(all(feature = "processes", unix))]
    fn controller_was_killed(&self, name: &str, why: String);

    /// Returns `true` if no controller is starting, that is, if all of them are ready.
    fn are_controllers_ready(&self) -> bool;

    /// Returns the sum of [`Restart::busy`] over all controllers, and whether any controller is busy now.
    fn controllers_busy(&self) -> (Duration, bool);

    /// Records that the controller `name` ended by itself; `back_off` is the pause before its restart, if there is one.
    fn controller_ended(&self, name: &str, how: &str, back_off: Option<Duration>);

    /// Registers that the test itself has injected a fault, which has precedence over the faults of the exploration.
    fn test_injected(self: Arc<Self>);

    /// Registers that a step of the test begins at this source location.
    fn test_goes_on(&self, place: &str);

    /// Registers that the test begins to wait for a condition.
    fn test_waits(&self);

    /// Registers that the test waited for a condition longer than its limit, because of a fault.
    #[cfg(all(feature = "processes", unix))]
    fn test_waited(&self, time: Duration);

    /// Returns `true` if a fault is active although the test has continued.
    fn is_overlapped(&self) -> bool;

    /// Returns `true` if a wait in real time that began at `began` must end, because the next step of the test has to
    /// begin while a fault is active.
    fn goes_on_during_faults(&self, began: Instant) -> bool;

    /// Registers that the test has sent a request.
    fn test_sent(&self);

    /// Returns the pause that the test must make before its next request.
    fn test_sends(&self) -> Option<Duration> {
        None
    }

    /// Records a note about the test.
    fn test_notes(&self, note: String);

    /// Registers the start of a named step of the scenario. `place` is the step's source location, or empty. Returns
    /// `false` if the step must be skipped.
    fn step_begins(&self, name: &str, place: &str) -> bool;

    /// Returns the end of the last fault that has begun.
    fn faults_end(&self) -> Option<Instant>;

    /// Returns the time until which `settle` waits for the end of faults; `None` if it does not wait.
    fn settles_at(&self) -> Option<Instant>;

    /// Returns the pause before a wait first checks [`is_as_expected`](Self::is_as_expected), and the pause before each
    /// later check; `None` if waits always last until the cluster is quiet.
    fn looks_every(&self) -> Option<[Duration; 2]>;

    /// Returns `true` if the cluster has reached the state that the reference has at the end of this wait, and no fault
    /// or request is in progress.
    fn is_as_expected(&self) -> bool;

    /// Registers that the test has settled at this source location.
    fn settled<'a>(&'a self, place: &'a str) -> BoxFuture<'a, ()>;

    /// Begins a call of the controller `client` to a system outside of the API. The call succeeds, fails, or never
    /// returns.
    fn call<'a>(
        self: Arc<Self>,
        client: &'a str,
        name: &'a str,
        object: &'a str,
    ) -> BoxFuture<'a, Result<AfterCall<'a>, Unreachable>>;

    /// Makes the server's call to a webhook of the controller `client`, or fails it with an error message.
    #[cfg(all(feature = "processes", unix))]
    fn webhook<'a>(
        self: Arc<Self>,
        client: String,
        path: &'a str,
        call: BoxFuture<'a, ()>,
    ) -> BoxFuture<'a, Result<(), String>>;

    /// Registers the end of the cluster, and drops references to its controllers.
    fn cluster_ends(&self);
}
