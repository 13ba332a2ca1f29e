//! Faults: which requests fail, how, and how often.
//!
//! ```
//! use testkit::{TestCluster, Verb, faults};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let cluster = TestCluster::start();
//! // The second update of a ConfigMap in the namespace `shop` fails with a conflict.
//! let conflict = cluster.inject(faults::conflict().on(Verb::Update, "configmaps").namespace("shop").nth(2));
//! // For the rest of the test, requests of the client `dashboard` are delayed by three seconds.
//! cluster.inject(faults::delay(std::time::Duration::from_secs(3)).client("dashboard")).forget();
//! // … run the controller …
//! assert_eq!(conflict.hits(), 0, "nothing was updated");
//! drop(conflict); // ends the fault
//! # }
//! ```
//!
//! Requests of the test itself ([`TestCluster::create`] and similar methods) are not affected. A failing test prints
//! the injected faults and their hit counts.

use std::fmt;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fake_apiserver::faults::{Effect, Failure, FaultRule, RequestFilter, Unserved};
use fake_apiserver::{ApiServer, FaultGuard, Verb, When};

use crate::lock::lock;
use crate::report::fail;
use crate::test_cluster::{TEST_CLIENT, TestCluster};

/// Builder of a fault: an effect, restricted to some requests. Without restrictions, the fault affects all requests for
/// resources that controllers send. See the [module](self).
#[derive(Clone, Debug)]
#[must_use = "a fault has no effect until it is injected"]
pub struct FaultBuilder(FaultRule);

/// 409 Conflict: another client has changed the object in the meantime. A real server returns it if the resourceVersion
/// of an update is not the newest.
pub fn conflict() -> FaultBuilder {
    FaultBuilder::new(Effect::Conflict)
}

/// 410 Gone with the reason Expired: the requested version is no longer available, and the client of a watch or list
/// must list again. A real server returns it for a version that etcd has compacted, which happens every five minutes.
/// To end open watches, use [`TestCluster::expire_watches`].
pub fn gone() -> FaultBuilder {
    failure(410, "The resourceVersion for the provided watch is too old.")
}

/// 404 Not Found: the object was deleted, or the server's cache does not contain it yet.
pub fn not_found() -> FaultBuilder {
    FaultBuilder::new(Effect::NotFound)
}

/// 429 Too Many Requests, with a `Retry-After` of this many seconds: caused by API priority and fairness, or by a
/// PodDisruptionBudget that currently forbids an eviction.
pub fn too_many_requests(retry_after_seconds: u32) -> FaultBuilder {
    let message = "the server has received too many requests and has asked us to try again later";
    let FaultBuilder(mut rule) = failure(429, message);
    if let Effect::Status(failure) = &mut rule.effect {
        failure.retry_after_seconds = retry_after_seconds;
    }
    FaultBuilder(rule)
}

/// 500 Internal Server Error: for example an unreachable admission webhook, or an etcd without a leader.
pub fn server_error() -> FaultBuilder {
    failure(500, "Internal error occurred: injected by the test")
}

/// 503 Service Unavailable: a server that is shutting down, or an aggregated server that is missing.
pub fn unavailable() -> FaultBuilder {
    failure(503, "the server is currently unable to handle the request")
}

/// 504 Gateway Timeout: the server gave up without executing the request. With
/// [`but_applied`](FaultBuilder::but_applied) it gave up waiting for etcd, which executed the request.
pub fn timeout() -> FaultBuilder {
    failure(
        504,
        "Timeout: request did not complete within requested timeout - context deadline exceeded",
    )
}

/// Any other failure, given by its HTTP status and one of Kubernetes' reasons.
///
/// ```
/// # use testkit::{Verb, faults};
/// let fault = faults::status(403, "Forbidden").message("not on Fridays").on(Verb::Create, "deployments.apps");
/// ```
pub fn status(code: u16, reason: &str) -> FaultBuilder {
    FaultBuilder::new(Effect::Status(Failure {
        code,
        reason: reason.to_owned(),
        ..Failure::default()
    }))
}

/// Handles the request after this virtual time, as with a slow network or a busy server. The request does not fail.
pub fn delay(duration: Duration) -> FaultBuilder {
    FaultBuilder::new(Effect::DelayMs(millis(duration)))
}

/// Handles the request immediately, but delivers the response after this virtual time. The response may be outdated by
/// then, as with a list of many objects. The request does not fail.
pub fn slow_answer(duration: Duration) -> FaultBuilder {
    FaultBuilder::new(Effect::DelayAnswerMs(millis(duration)))
}

/// Connection refused: no server is listening, as during a restart. The request is not executed.
pub fn refused() -> FaultBuilder {
    FaultBuilder::new(Effect::Refuse)
}

/// Connection reset: the server, a load balancer or an intermediate machine failed. The request is not executed. With
/// [`but_applied`](FaultBuilder::but_applied) it is executed, and the client cannot distinguish the two cases.
pub fn reset() -> FaultBuilder {
    FaultBuilder::new(Effect::Reset(When::Before))
}

/// No response, although the connection stays open: packets are dropped. The client waits until its timeout; kube does
/// not set one by default. With [`but_applied`](FaultBuilder::but_applied) the request is executed.
pub fn no_answer() -> FaultBuilder {
    FaultBuilder::new(Effect::Hang(When::Before))
}

/// The request is executed, and the connection breaks after this many bytes of the response. For a watch, the limit
/// applies to all its events together.
pub fn truncated(bytes: usize) -> FaultBuilder {
    FaultBuilder::new(Effect::Truncate(bytes))
}

fn failure(code: u16, message: &str) -> FaultBuilder {
    let FaultBuilder(rule) = status(code, "");
    FaultBuilder(rule).message(message)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl FaultBuilder {
    fn new(effect: Effect) -> Self {
        Self(FaultRule::new(effect))
    }

    /// Restricts the fault to this verb and resource: the plural (`pods`), optionally with a group (`deployments.apps`)
    /// and a subresource (`pods/status`). Without a subresource, requests for any subresource match as well.
    pub fn on(mut self, verb: Verb, resource: &str) -> Self {
        self.0.on.verbs = vec![verb];
        self.0.on.resource = Some(resource.to_owned());
        self
    }

    /// Restricts the fault to writes of this resource.
    pub fn on_writes(mut self, resource: &str) -> Self {
        self.0.on.verbs = vec![
            Verb::Create,
            Verb::Update,
            Verb::Patch,
            Verb::Delete,
            Verb::DeleteCollection,
        ];
        self.0.on.resource = Some(resource.to_owned());
        self
    }

    /// Restricts the fault to requests in this namespace.
    pub fn namespace(mut self, namespace: &str) -> Self {
        self.0.on.namespace = Some(namespace.to_owned());
        self
    }

    /// Restricts the fault to requests for the object with this name. Requests that create an object do not match,
    /// because their path does not contain a name.
    pub fn name(mut self, name: &str) -> Self {
        self.0.on.name = Some(name.to_owned());
        self
    }

    /// Restricts the fault to the client with this name; see [`TestCluster::client_named`]. A client in another process
    /// is named by its `User-Agent`, or by the part of it before the first slash.
    pub fn client(mut self, client: &str) -> Self {
        self.0.on.client = Some(client.to_owned());
        self
    }

    /// Limits the fault to one affected request.
    pub fn once(self) -> Self {
        self.times(1)
    }

    /// Limits the fault to this number of affected requests.
    pub fn times(mut self, times: u64) -> Self {
        self.0.times = Some(times);
        self
    }

    /// Restricts the fault to the `n`-th matching request, counted from 1 when the fault is injected.
    pub fn nth(mut self, n: u64) -> Self {
        self.0.skip = n.saturating_sub(1);
        self.times(1)
    }

    /// Applies the fault to each matching request with this probability, from 0 to 1. The cluster's seed determines
    /// which requests are affected.
    ///
    /// ```
    /// # use testkit::faults;
    /// let fault = faults::server_error().probability(0.1).times(100);
    /// ```
    pub fn probability(mut self, probability: f64) -> Self {
        self.0.probability = Some(probability);
        self
    }

    /// Executes the request, and only replaces or drops its response, so that the client cannot determine whether its
    /// write succeeded. In a real cluster, this happens if a connection breaks or a server restarts at the wrong
    /// moment.
    ///
    /// ```
    /// # use testkit::{Verb, faults};
    /// let fault = faults::timeout().but_applied().on(Verb::Create, "configmaps").once();
    /// ```
    pub fn but_applied(mut self) -> Self {
        match &mut self.0.effect {
            Effect::Status(failure) => failure.applied = true,
            Effect::Reset(when) | Effect::Hang(when) => *when = When::After,
            Effect::Conflict => self.0.effect = applied(409),
            Effect::NotFound => self.0.effect = applied(404),
            // Requests with delayed or truncated responses are always executed, and refused requests never are.
            _ => {}
        }
        self
    }

    /// Sets the message of the Status. Ignored by faults that have a fixed message or no Status.
    pub fn message(mut self, message: &str) -> Self {
        if let Effect::Status(failure) = &mut self.0.effect {
            failure.message = message.to_owned();
        }
        self
    }

    /// Returns the fault as data, in the form that the control API of the command `fake-apiserver` accepts.
    pub fn rule(&self) -> &FaultRule {
        &self.0
    }
}

fn applied(code: u16) -> Effect {
    Effect::Status(Failure {
        code,
        applied: true,
        ..Failure::default()
    })
}

impl fmt::Display for FaultBuilder {
    /// Formats the fault as `409 Conflict on update configmaps, number 2`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Guard of an active fault. The fault ends when the guard is dropped.
#[derive(Debug)]
#[must_use = "the fault is removed when the guard is dropped; call `forget` to keep it"]
pub struct Injected {
    guard: FaultGuard,
    is_asked: Arc<AtomicBool>,
}

impl Injected {
    /// Returns the number of affected requests. If a fault matches no request and its `hits` are never read, the
    /// message at the end of the test lists it.
    pub fn hits(&self) -> u64 {
        self.is_asked.store(true, Ordering::Relaxed);
        self.guard.hits()
    }

    /// Keeps the fault active for the rest of the test.
    pub fn forget(self) {
        self.guard.forget();
    }
}

/// Faults that were injected, for the report at the end of the test.
#[derive(Debug, Default)]
pub(crate) struct Injections(Mutex<Vec<Injection>>);

#[derive(Debug)]
struct Injection {
    what: String,
    place: &'static Location<'static>,
    hits: Arc<AtomicU64>,
    /// Set once the test has read the number of hits.
    is_asked: Arc<AtomicBool>,
    /// Filter for a resource that was not yet served when the fault was injected.
    waits_for: Option<RequestFilter>,
}

impl Injections {
    /// Lists the faults that matched no request and for which `hits` was never called, one per line.
    pub(crate) fn idle(&self) -> Vec<String> {
        let is_idle = |it: &&Injection| it.hits.load(Ordering::Relaxed) == 0 && !it.is_asked.load(Ordering::Relaxed);
        let said = |it: &Injection| {
            let (file, line) = (it.place.file(), it.place.line());
            format!("the fault injected at {file}:{line} matched no request: {}", it.what)
        };
        lock(&self.0).iter().filter(is_idle).map(said).collect()
    }

    /// Describes a fault that could not take effect because its resource was never served.
    pub(crate) fn unserved(&self, server: &ApiServer) -> Option<String> {
        let injections = lock(&self.0);
        let mut waiting = injections.iter().filter(|it| it.waits_for.is_some()).peekable();
        waiting.peek()?;
        let served = server.resources();
        waiting.find_map(|it| {
            let why = it.waits_for.as_ref()?.check_served(&served).err()?;
            let (file, line, what) = (it.place.file(), it.place.line(), &it.what);
            Some(format!("{file}:{line}: the fault never took effect: {what}: {why}"))
        })
    }
}

impl fmt::Display for Injections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for it in lock(&self.0).iter() {
            writeln!(
                f,
                "injected {}: affected {} requests",
                it.what,
                it.hits.load(Ordering::Relaxed)
            )?;
        }
        Ok(())
    }
}

impl TestCluster {
    /// Makes requests fail from now on; see [`faults`](self). If several faults match a request, the fault that was
    /// injected first applies.
    ///
    /// # Panics
    ///
    /// If the fault is invalid: a code that is not from 400 to 599, a reason that does not exist in Kubernetes, a
    /// probability that is not from 0 to 1, a resource that is not served, or a verb that the resource does not
    /// support. A resource with a name that is not similar to a served one may be a custom resource that the controller
    /// will define; in that case the test fails at its end if the resource was never served.
    #[track_caller]
    pub fn inject(&self, fault: FaultBuilder) -> Injected {
        let FaultBuilder(mut rule) = fault;
        let name = rule.to_string();
        if rule.on.client.is_none() {
            rule.on.except_clients = vec![TEST_CLIENT.to_owned()];
        }
        let place = Location::caller();
        let waits_for = match rule.on.check_served(&self.server.resources()) {
            Ok(()) => None,
            Err(Unserved::NotYet(_)) => Some(rule.on.clone()),
            Err(why @ Unserved::Never(_)) => fail(&format!("{name}: {why}")),
        };
        let guard = match self.server.inject_rule(rule) {
            Ok(guard) => guard,
            Err(err) => fail(&format!("{name}: {err}")),
        };
        if let Some(hooks) = &self.hooks {
            Arc::clone(hooks).test_injected();
        }
        let is_asked = Arc::<AtomicBool>::default();
        lock(&self.injections.0).push(Injection {
            what: name,
            place,
            hits: guard.hits_shared(),
            is_asked: Arc::clone(&is_asked),
            waits_for,
        });
        Injected { guard, is_asked }
    }
}
