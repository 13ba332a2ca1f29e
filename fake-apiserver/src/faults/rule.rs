//! `Fault`, `Seen`, `FaultGuard`: rules that examine each request before it is handled.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::Method;

use super::{Verdict, WatchHandle};
use crate::api::request_info::RequestInfo;

/// A request as passed to a fault: parsed, but not yet handled.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Seen<'a> {
    /// Number of the request among all requests of the server, from 1.
    pub number: u64,
    /// Time of arrival since the start of the server, on the server's clock.
    pub at: Duration,
    /// The parsed request.
    pub info: &'a RequestInfo,
    /// The client: the name of an in-process client, otherwise the `User-Agent`.
    pub client: &'a str,
    /// `User-Agent`
    pub user_agent: &'a str,
    /// The worker that sent the request, such as `generic-garbage-collector`; `None` for a client.
    pub worker: Option<&'static str>,
    /// HTTP method.
    pub method: &'a Method,
    /// Path and query as sent.
    pub path: &'a str,
    /// The body as sent; may be empty.
    pub body: &'a Bytes,
}

/// A rule that decides how requests are handled. Closures implement this trait.
///
/// Rules are called under a lock, so they can have mutable state without their own locks, and they must not install or
/// remove rules. Rules are called in the order of installation; the first verdict other than [`Verdict::Pass`] applies.
pub trait Fault: Send {
    /// Returns the verdict on a request for a resource, before it is handled.
    fn on_request(&mut self, request: &Seen<'_>) -> Verdict;

    /// Called when a watch starts, before it delivers events; the rule may hold the watch.
    fn on_watch(&mut self, watch: &WatchHandle) {
        let _ = watch;
    }

    /// Returns `true` if the rule will not affect any further requests, for example because it has already affected its
    /// maximum number of requests. The control API shows this value.
    fn is_spent(&self) -> bool {
        false
    }
}

impl<F: FnMut(&Seen<'_>) -> Verdict + Send> Fault for F {
    fn on_request(&mut self, request: &Seen<'_>) -> Verdict {
        self(request)
    }
}

/// The installed rules, in the order of installation.
#[derive(Clone, Default)]
pub(crate) struct Rules {
    /// The rules and their state.
    installed: Arc<Mutex<Installed>>,
}

#[derive(Default)]
struct Installed {
    next_id: u64,
    rules: BTreeMap<u64, Rule>,
}

struct Rule {
    fault: Box<dyn Fault>,
    description: String,
    /// Number of affected requests.
    hits: Arc<AtomicU64>,
}

/// Summary of an installed rule, for the control API.
#[derive(Clone, Debug)]
pub(crate) struct RuleSummary {
    pub(crate) id: u64,
    pub(crate) description: String,
    pub(crate) hits: u64,
    /// Set if the rule will not affect any further requests.
    pub(crate) is_spent: bool,
}

impl std::fmt::Debug for Rules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rules")
            .field("installed", &self.lock().rules.len())
            .finish()
    }
}

impl Rules {
    fn lock(&self) -> MutexGuard<'_, Installed> {
        self.installed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Installs the rule that `make` creates from its id.
    pub(crate) fn install<F: Fault + 'static>(&self, description: String, make: impl FnOnce(u64) -> F) -> FaultGuard {
        let mut installed = self.lock();
        installed.next_id += 1;
        let id = installed.next_id;
        let hits = Arc::new(AtomicU64::new(0));
        let rule = Rule {
            fault: Box::new(make(id)),
            description,
            hits: Arc::clone(&hits),
        };
        installed.rules.insert(id, rule);
        FaultGuard {
            rules: self.clone(),
            id,
            hits,
        }
    }

    /// Returns the installed rules, in the order of their evaluation.
    pub(crate) fn list(&self) -> Vec<RuleSummary> {
        let summary = |(id, rule): (&u64, &Rule)| RuleSummary {
            id: *id,
            description: rule.description.clone(),
            hits: rule.hits.load(Ordering::Relaxed),
            is_spent: rule.fault.is_spent(),
        };
        self.lock().rules.iter().map(summary).collect()
    }

    /// Removes a rule; returns `true` if it existed.
    pub(crate) fn remove(&self, id: u64) -> bool {
        // The rule is dropped without the lock, because it may own the guard of another rule.
        let removed = self.lock().rules.remove(&id);
        removed.is_some()
    }

    pub(crate) fn verdict(&self, request: &Seen<'_>) -> Verdict {
        let mut installed = self.lock();
        for rule in installed.rules.values_mut() {
            match rule.fault.on_request(request) {
                Verdict::Pass => {}
                verdict => {
                    rule.hits.fetch_add(1, Ordering::Relaxed);
                    return verdict;
                }
            }
        }
        Verdict::Pass
    }

    /// Calls every rule for a new watch.
    pub(crate) fn watch_begins(&self, watch: &WatchHandle) {
        for rule in self.lock().rules.values_mut() {
            rule.fault.on_watch(watch);
        }
    }
}

/// Guard of an installed fault, which is removed when the guard is dropped.
#[derive(Debug)]
#[must_use = "the fault is removed when the guard is dropped; call `forget` to keep it"]
pub struct FaultGuard {
    rules: Rules,
    id: u64,
    hits: Arc<AtomicU64>,
}

impl FaultGuard {
    /// Returns the id of the fault. Ids are counted from 1 and not reused.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns the number of affected requests.
    pub fn hits(&self) -> u64 {
        self.hits.load(Ordering::Relaxed)
    }

    /// Returns the shared counter of affected requests, which can also be read after the guard was dropped.
    pub fn hits_shared(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.hits)
    }

    /// Keeps the fault installed after the guard is gone.
    pub fn forget(self) {
        std::mem::forget(self);
    }
}

impl Drop for FaultGuard {
    fn drop(&mut self) {
        self.rules.remove(self.id);
    }
}
