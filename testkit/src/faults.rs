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
//! assert_eq!(conflict.hits(), 0, "nobody updated anything");
//! drop(conflict); // from here on updates are as they were
//! # }
//! ```
//!
//! The test's own doings ([`TestCluster::create`] and its kin) are spared. A failing test prints which faults were
//! injected and how often each of them struck.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fake_apiserver::api::resource::GroupResource;
use fake_apiserver::api::status::Status;
use fake_apiserver::{Fault, FaultGuard, Seen, Verb, Verdict};

use crate::filter::Filter;
use crate::test_cluster::{TestCluster, lock};

/// What happens to a request that is struck.
#[derive(Clone, Debug)]
enum Effect {
    Conflict,
    NotFound,
    Status(Box<Status>),
    Delay(Duration),
}

/// A fault as a test says it: what happens, narrowed by which requests it happens to. Without narrowing it strikes
/// every request of every controller. See the [module](self).
#[derive(Clone, Debug)]
#[must_use = "a fault is only described until it is injected"]
pub struct FaultBuilder {
    name: String,
    effect: Effect,
    filter: Filter,
    /// Matching requests that pass before the first is struck.
    skip: u64,
    /// How many are struck.
    times: u64,
    /// Whether a request that fails is done nevertheless.
    is_applied: bool,
}

/// 409 Conflict: the object was changed by somebody else meanwhile.
pub fn conflict() -> FaultBuilder {
    FaultBuilder::new("409 Conflict", Effect::Conflict)
}

/// 410 Gone, reason Expired: what was asked for is no longer remembered. On a watch or a list, the client must list
/// anew. To end watches that are under way use [`TestCluster::expire_watches`].
pub fn gone() -> FaultBuilder {
    let message = "The resourceVersion for the provided watch is too old.";
    FaultBuilder::new("410 Expired", Effect::Status(Box::new(Status::expired(message))))
}

/// 404 Not Found.
pub fn not_found() -> FaultBuilder {
    FaultBuilder::new("404 NotFound", Effect::NotFound)
}

/// 429 Too Many Requests, to be tried again after this many seconds.
pub fn too_many_requests(retry_after_seconds: u32) -> FaultBuilder {
    let message = "the server has received too many requests and has asked us to try again later";
    let status = Status::new(429, "TooManyRequests", message).with_retry_after(retry_after_seconds);
    FaultBuilder::new("429 TooManyRequests", Effect::Status(Box::new(status)))
}

/// 500 Internal Server Error.
pub fn server_error() -> FaultBuilder {
    FaultBuilder::new(
        "500 InternalError",
        Effect::Status(Box::new(Status::internal("injected by the test"))),
    )
}

/// 504 Gateway Timeout: the server gave up before it did anything.
pub fn timeout() -> FaultBuilder {
    let message = "Timeout: request did not complete within requested timeout - context deadline exceeded";
    FaultBuilder::new(
        "504 Timeout",
        Effect::Status(Box::new(Status::new(504, "Timeout", message))),
    )
}

/// Any other failure, by its HTTP status and the reason of its Status.
///
/// ```
/// # use testkit::{Verb, faults};
/// let fault = faults::status(403, "Forbidden").message("not on Fridays").on(Verb::Create, "deployments.apps");
/// ```
pub fn status(code: u16, reason: &'static str) -> FaultBuilder {
    let status = Status::new(code, reason, "injected by the test");
    FaultBuilder::new(&format!("{code} {reason}"), Effect::Status(Box::new(status)))
}

/// No failure: the request is handled after this much virtual time.
pub fn delay(duration: Duration) -> FaultBuilder {
    FaultBuilder::new(&format!("delay of {duration:?}"), Effect::Delay(duration))
}

impl FaultBuilder {
    fn new(name: &str, effect: Effect) -> Self {
        Self {
            name: name.to_owned(),
            effect,
            filter: Filter::default(),
            skip: 0,
            times: u64::MAX,
            is_applied: false,
        }
    }

    /// Only requests with this verb for this resource: its plural (`pods`), which may name a group (`deployments.apps`)
    /// and a subresource (`pods/status`). Without the latter all its subresources are meant, too.
    pub fn on(mut self, verb: Verb, resource: &str) -> Self {
        self.filter.verbs = Some(vec![verb]);
        self.filter.resource = Some(resource.to_owned());
        self
    }

    /// Only requests that would change something, for this resource.
    pub fn on_writes(mut self, resource: &str) -> Self {
        self.filter.verbs = Some(vec![
            Verb::Create,
            Verb::Update,
            Verb::Patch,
            Verb::Delete,
            Verb::DeleteCollection,
        ]);
        self.filter.resource = Some(resource.to_owned());
        self
    }

    /// Only requests in this namespace.
    pub fn namespace(mut self, namespace: &str) -> Self {
        self.filter.namespace = Some(namespace.to_owned());
        self
    }

    /// Only requests for the object of this name. A create names none.
    pub fn name(mut self, name: &str) -> Self {
        self.filter.name = Some(name.to_owned());
        self
    }

    /// Only requests of the client of this name; see [`TestCluster::client_named`].
    pub fn client(mut self, client: &str) -> Self {
        self.filter.client = Some(client.to_owned());
        self
    }

    /// Only the first of them.
    pub fn once(self) -> Self {
        self.times(1)
    }

    /// Only the first so many of them.
    pub fn times(mut self, times: u64) -> Self {
        self.times = times;
        self
    }

    /// Only the `n`-th of them, counted from 1 when the fault is injected.
    pub fn nth(mut self, n: u64) -> Self {
        self.skip = n.saturating_sub(1);
        self.times(1)
    }

    /// The request is done, and only its answer is replaced: the client does not learn that it wrote. This is what a
    /// controller meets when a connection breaks, or a server is restarted, at the wrong moment.
    ///
    /// ```
    /// # use testkit::{Verb, faults};
    /// let fault = faults::timeout().but_applied().on(Verb::Create, "configmaps").once();
    /// ```
    pub fn but_applied(mut self) -> Self {
        self.is_applied = true;
        self
    }

    /// What the Status says, where it is not fixed by the fault.
    pub fn message(mut self, message: &str) -> Self {
        if let Effect::Status(status) = &mut self.effect {
            status.message = message.to_owned();
        }
        self
    }

    fn verdict(&self, request: &Seen<'_>) -> Verdict {
        let (info, name) = (request.info, &request.info.name);
        let resource = GroupResource {
            group: info.group.clone(),
            resource: info.resource.clone(),
        };
        let status = match &self.effect {
            Effect::Conflict => Box::new(Status::object_modified(&resource, name)),
            Effect::NotFound => Box::new(Status::not_found(&resource, name)),
            Effect::Status(status) => status.clone(),
            Effect::Delay(duration) => return Verdict::Delay(*duration),
        };
        if self.is_applied {
            Verdict::Lose(status)
        } else {
            Verdict::Fail(status)
        }
    }
}

impl fmt::Display for FaultBuilder {
    /// `409 Conflict on update configmaps, number 2`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let but = if self.is_applied { ", but applied," } else { "" };
        write!(f, "{}{but} {}", self.name, self.filter)?;
        match (self.skip, self.times) {
            (0, u64::MAX) => Ok(()),
            (0, 1) => f.write_str(", once"),
            (skip, 1) => write!(f, ", number {}", skip + 1),
            (0, times) => write!(f, ", {times} times"),
            (skip, times) => write!(f, ", {times} times after {skip}"),
        }
    }
}

/// A fault in force. It ends when this is dropped.
#[derive(Debug)]
#[must_use = "the fault ends when this is dropped; call `forget` to keep it"]
pub struct Injected {
    guard: FaultGuard,
    hits: Arc<AtomicU64>,
}

impl Injected {
    /// How many requests it has struck.
    pub fn hits(&self) -> u64 {
        self.hits.load(Ordering::Relaxed)
    }

    /// Keeps the fault for the rest of the test.
    pub fn forget(self) {
        self.guard.forget();
    }
}

/// What was injected, for the report of a failing test.
#[derive(Debug, Default)]
pub(crate) struct Injections(Mutex<Vec<(String, Arc<AtomicU64>)>>);

impl fmt::Display for Injections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (what, hits) in lock(&self.0).iter() {
            writeln!(f, "injected {what}: struck {} requests", hits.load(Ordering::Relaxed))?;
        }
        Ok(())
    }
}

struct Rule {
    fault: FaultBuilder,
    /// Matching requests so far.
    seen: u64,
    hits: Arc<AtomicU64>,
}

impl Fault for Rule {
    fn on_request(&mut self, request: &Seen<'_>) -> Verdict {
        if !self
            .fault
            .filter
            .matches(request.info, request.user_agent, request.worker)
        {
            return Verdict::Pass;
        }
        self.seen += 1;
        let past = self.seen - 1;
        if past < self.fault.skip || past - self.fault.skip >= self.fault.times {
            return Verdict::Pass;
        }
        self.hits.fetch_add(1, Ordering::Relaxed);
        self.fault.verdict(request)
    }
}

impl TestCluster {
    /// Lets requests fail from now on; see [`faults`](self). Of several faults that strike the same request the first
    /// one injected counts.
    pub fn inject(&self, fault: FaultBuilder) -> Injected {
        let hits = Arc::new(AtomicU64::new(0));
        lock(&self.injections.0).push((fault.to_string(), Arc::clone(&hits)));
        let guard = self.server.inject(Rule {
            fault,
            seen: 0,
            hits: Arc::clone(&hits),
        });
        Injected { guard, hits }
    }
}
