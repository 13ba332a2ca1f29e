//! Requests that fail: which, how, and how often.
//!
//! ```
//! use testkit::{TestCluster, Verb, faults};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let cluster = TestCluster::start();
//! // The second update of a ConfigMap in the namespace `shop` meets a newer version.
//! let conflict = cluster.inject(faults::conflict().on(Verb::Update, "configmaps").namespace("shop").nth(2));
//! // For the rest of the test, every third party is slow.
//! cluster.inject(faults::delay(std::time::Duration::from_secs(3)).client("dashboard")).forget();
//! // … run the controller …
//! assert_eq!(conflict.hits(), 0, "nothing was updated");
//! drop(conflict); // from here on updates are as they were
//! # }
//! ```
//!
//! The test's own doings ([`TestCluster::create`] and its kin) are spared. A failing test prints which faults were
//! injected and how often each of them struck.

use std::fmt;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fake_apiserver::faults::{Effect, Failure, FaultRule, RequestFilter, Unserved};
use fake_apiserver::{ApiServer, FaultGuard, Verb, When};

use crate::report::fail_at;
use crate::test_cluster::{TEST_CLIENT, TestCluster, lock};

/// A fault as a test says it: what happens, narrowed by which requests it happens to. Without narrowing it strikes
/// every request of every controller. See the [module](self).
#[derive(Clone, Debug)]
#[must_use = "a fault is only described until it is injected"]
pub struct FaultBuilder(FaultRule);

/// 409 Conflict: another client has changed the object meanwhile. A real server answers it whenever the resourceVersion
/// of an update is not the newest.
pub fn conflict() -> FaultBuilder {
    FaultBuilder::new(Effect::Conflict)
}

/// 410 Gone, reason Expired: the requested version is no longer kept. On a watch or a list, the client must list
/// anew. A real server says so after etcd was compacted, every five minutes. To end open watches use
/// [`TestCluster::expire_watches`].
pub fn gone() -> FaultBuilder {
    failure(410, "The resourceVersion for the provided watch is too old.")
}

/// 404 Not Found: the object was deleted, or the cache of the server does not have it yet.
pub fn not_found() -> FaultBuilder {
    FaultBuilder::new(Effect::NotFound)
}

/// 429 Too Many Requests, to be tried again after this many seconds: API priority and fairness at work, or an eviction
/// that a PodDisruptionBudget forbids for now.
pub fn too_many_requests(retry_after_seconds: u32) -> FaultBuilder {
    let message = "the server has received too many requests and has asked us to try again later";
    let FaultBuilder(mut rule) = failure(429, message);
    if let Effect::Status(failure) = &mut rule.effect {
        failure.retry_after_seconds = retry_after_seconds;
    }
    FaultBuilder(rule)
}

/// 500 Internal Server Error: an admission webhook that cannot be reached, an etcd without a leader.
pub fn server_error() -> FaultBuilder {
    failure(500, "Internal error occurred: injected by the test")
}

/// 503 Service Unavailable: a server that shuts down, or an aggregated one that is not there.
pub fn unavailable() -> FaultBuilder {
    failure(503, "the server is currently unable to handle the request")
}

/// 504 Gateway Timeout: the server gave up before it did anything. With [`but_applied`](FaultBuilder::but_applied) it
/// gave up waiting for etcd, which did it.
pub fn timeout() -> FaultBuilder {
    failure(
        504,
        "Timeout: request did not complete within requested timeout - context deadline exceeded",
    )
}

/// Any other failure, by its HTTP status and the reason of its Status, which must be one of Kubernetes' own.
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

/// No failure: the request is handled after this much virtual time. So slow networks and busy servers are.
pub fn delay(duration: Duration) -> FaultBuilder {
    FaultBuilder::new(Effect::DelayMs(millis(duration)))
}

/// No failure: the request is handled at once, and its answer comes after this much virtual time, when it may be true
/// no more. So a list of many objects is.
pub fn slow_answer(duration: Duration) -> FaultBuilder {
    FaultBuilder::new(Effect::DelayAnswerMs(millis(duration)))
}

/// Connection refused: no server is listening, as during a restart. The request is not done.
pub fn refused() -> FaultBuilder {
    FaultBuilder::new(Effect::Refuse)
}

/// Connection reset: a server, a load balancer or a node on the way died. Nothing is done; with
/// [`but_applied`](FaultBuilder::but_applied) it is, and the client cannot know.
pub fn reset() -> FaultBuilder {
    FaultBuilder::new(Effect::Reset(When::Before))
}

/// There is no answer, and the connection stays: packets are dropped on the way. The client waits until its own
/// patience ends, which by default kube's does not. With [`but_applied`](FaultBuilder::but_applied) the request is
/// done.
pub fn no_answer() -> FaultBuilder {
    FaultBuilder::new(Effect::Hang(When::Before))
}

/// The request is done, and of its answer so many bytes come before the connection breaks. Of a watch they are counted
/// over all its events.
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

    /// Only requests with this verb for this resource: its plural (`pods`), which may name a group (`deployments.apps`)
    /// and a subresource (`pods/status`). Without the latter all its subresources match, too.
    pub fn on(mut self, verb: Verb, resource: &str) -> Self {
        self.0.on.verbs = vec![verb];
        self.0.on.resource = Some(resource.to_owned());
        self
    }

    /// Only requests that would change something, for this resource.
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

    /// Only requests in this namespace.
    pub fn namespace(mut self, namespace: &str) -> Self {
        self.0.on.namespace = Some(namespace.to_owned());
        self
    }

    /// Only requests for the object of this name. A create names none.
    pub fn name(mut self, name: &str) -> Self {
        self.0.on.name = Some(name.to_owned());
        self
    }

    /// Only requests of the client of this name; see [`TestCluster::client_named`].
    pub fn client(mut self, client: &str) -> Self {
        self.0.on.client = Some(client.to_owned());
        self
    }

    /// Only the first of them.
    pub fn once(self) -> Self {
        self.times(1)
    }

    /// Only the first so many of them.
    pub fn times(mut self, times: u64) -> Self {
        self.0.times = Some(times);
        self
    }

    /// Only the `n`-th of them, counted from 1 when the fault is injected.
    pub fn nth(mut self, n: u64) -> Self {
        self.0.skip = n.saturating_sub(1);
        self.times(1)
    }

    /// Each of them with this probability, from 0 to 1. What is struck is a function of the cluster's seed.
    ///
    /// ```
    /// # use testkit::faults;
    /// let fault = faults::server_error().probability(0.1).times(100);
    /// ```
    pub fn probability(mut self, probability: f64) -> Self {
        self.0.probability = Some(probability);
        self
    }

    /// The request is done, and only its answer is replaced: the client does not learn that it wrote. This is what a
    /// controller meets when a connection breaks, or a server is restarted, at the wrong moment.
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
            // They are done, or say nothing of it.
            Effect::DelayMs(_) | Effect::DelayAnswerMs(_) | Effect::Refuse | Effect::Truncate(_) => {}
        }
        self
    }

    /// Sets the message of the Status, where the fault does not fix it.
    pub fn message(mut self, message: &str) -> Self {
        if let Effect::Status(failure) = &mut self.0.effect {
            failure.message = message.to_owned();
        }
        self
    }

    /// The fault as data, as the control API of the command `fake-apiserver` takes it.
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
    /// `409 Conflict on update configmaps, number 2`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A fault in force. It ends when this is dropped.
#[derive(Debug)]
#[must_use = "the fault ends when this is dropped; call `forget` to keep it"]
pub struct Injected {
    guard: FaultGuard,
    is_asked: Arc<AtomicBool>,
}

impl Injected {
    /// Returns the number of requests struck. A fault that strikes nothing and whose `hits` is never read is named when
    /// the test ends.
    pub fn hits(&self) -> u64 {
        self.is_asked.store(true, Ordering::Relaxed);
        self.guard.hits()
    }

    /// Keeps the fault for the rest of the test.
    pub fn forget(self) {
        self.guard.forget();
    }
}

/// Faults that were injected, for the end of the test.
#[derive(Debug, Default)]
pub(crate) struct Injections(Mutex<Vec<Injection>>);

#[derive(Debug)]
struct Injection {
    what: String,
    place: &'static Location<'static>,
    hits: Arc<AtomicU64>,
    /// Set once the test has read the number of hits.
    is_asked: Arc<AtomicBool>,
    /// It is for something that was not served then.
    waits_for: Option<RequestFilter>,
}

impl Injections {
    /// Lists the faults that struck nothing and whose `hits` was never called, a line each.
    pub(crate) fn idle(&self) -> Vec<String> {
        let is_idle = |it: &&Injection| it.hits.load(Ordering::Relaxed) == 0 && !it.is_asked.load(Ordering::Relaxed);
        let said = |it: &Injection| {
            let (file, line) = (it.place.file(), it.place.line());
            format!("the fault injected at {file}:{line} struck nothing: {}", it.what)
        };
        lock(&self.0).iter().filter(is_idle).map(said).collect()
    }

    /// Returns the reason why a fault could strike nothing: its resource was never served.
    pub(crate) fn unserved(&self, server: &ApiServer) -> Option<String> {
        let injections = lock(&self.0);
        let mut waiting = injections.iter().filter(|it| it.waits_for.is_some()).peekable();
        waiting.peek()?;
        let served = server.resources();
        waiting.find_map(|it| {
            let why = it.waits_for.as_ref()?.check_served(&served).err()?;
            let (file, line, what) = (it.place.file(), it.place.line(), &it.what);
            Some(format!("{file}:{line}: {what}: {why}, then or later"))
        })
    }
}

impl fmt::Display for Injections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for it in lock(&self.0).iter() {
            writeln!(
                f,
                "injected {}: struck {} requests",
                it.what,
                it.hits.load(Ordering::Relaxed)
            )?;
        }
        Ok(())
    }
}

impl TestCluster {
    /// Lets requests fail from now on; see [`faults`](self). Of several faults that strike the same request the first
    /// one injected counts.
    ///
    /// # Panics
    ///
    /// If the fault cannot be: a failure with a code below 400, a reason that Kubernetes does not know, a probability
    /// above 1; a resource that is not served, or not with this verb. A name that is like no other may be that of a
    /// custom resource whose definition the controller brings: then the test fails at its end, if none came.
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
            Err(why @ Unserved::Never(_)) => fail_at(place, &format!("{name}: {why}")),
        };
        let guard = self
            .server
            .inject_rule(rule)
            .unwrap_or_else(|err| fail_at(place, &format!("{name}: {err}")));
        if let Some(gate) = &self.gate {
            gate.slow_workers();
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
