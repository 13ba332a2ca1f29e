//! `Fault`, `Seen`, `FaultGuard`: rules that examine each request before it is handled.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::Method;

use super::{Verdict, WatchHandle};
use crate::api::request_info::RequestInfo;

/// A request as a fault receives it: routed and read, but not yet handled.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Seen<'a> {
    /// The request's number among all requests of the server, from 1.
    pub number: u64,
    /// Time of arrival, on the server's clock from its start.
    pub at: Duration,
    /// The parsed request.
    pub info: &'a RequestInfo,
    /// Client that sent it: the name of an in-process client, else its `User-Agent`.
    pub client: &'a str,
    /// `User-Agent`
    pub user_agent: &'a str,
    /// The worker that sends it, such as `generic-garbage-collector`; `None` for a client.
    pub worker: Option<&'static str>,
    /// Method.
    pub method: &'a Method,
    /// Path and query as sent.
    pub path: &'a str,
    /// The body as sent; may be empty.
    pub body: &'a Bytes,
}

/// A rule. Closures are rules.
///
/// A rule is called with exclusive access, so it may count without locks. Rules are called in the order of
/// installation; the first verdict other than [`Verdict::Pass`] applies.
pub trait Fault: Send {
    /// Judges a request for a resource, before it is handled.
    fn on_request(&mut self, request: &Seen<'_>) -> Verdict;

    /// Called when a watch starts, before it delivers anything; the rule may hold it. The rule must not install or
    /// remove rules here.
    fn on_watch(&mut self, watch: &WatchHandle) {
        let _ = watch;
    }

    /// Returns `true` if the rule applies to no further request, as after its last time. The control API shows it.
    fn is_spent(&self) -> bool {
        false
    }
}

impl<F: FnMut(&Seen<'_>) -> Verdict + Send> Fault for F {
    fn on_request(&mut self, request: &Seen<'_>) -> Verdict {
        self(request)
    }
}

/// The installed rules, in order.
#[derive(Clone, Default)]
pub(crate) struct Rules {
    /// Guards the rules and their own state.
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
    /// Number of requests affected.
    hits: Arc<AtomicU64>,
}

/// Summary of an installed rule.
#[derive(Clone, Debug)]
pub(crate) struct RuleSummary {
    pub(crate) id: u64,
    pub(crate) description: String,
    pub(crate) hits: u64,
    /// Set if the rule applies to no further request.
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

    /// Installs the rule that `make` returns for its number.
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

    /// The installed rules, in the order of their evaluation.
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
        self.lock().rules.remove(&id).is_some()
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

    /// Notifies every rule of a new watch.
    pub(crate) fn watch_begins(&self, watch: &WatchHandle) {
        for rule in self.lock().rules.values_mut() {
            rule.fault.on_watch(watch);
        }
    }
}

/// Removes its fault when it is dropped.
#[derive(Debug)]
#[must_use = "the fault is removed when the guard is dropped; call `forget` to keep it"]
pub struct FaultGuard {
    rules: Rules,
    id: u64,
    hits: Arc<AtomicU64>,
}

impl FaultGuard {
    /// The number of the fault, counted from 1 over the life of the server.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns the number of requests affected.
    pub fn hits(&self) -> u64 {
        self.hits.load(Ordering::Relaxed)
    }

    /// Returns the count in a form that can be read after the guard was dropped.
    pub fn hits_shared(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.hits)
    }

    /// Keeps the fault for the rest of the server's life.
    pub fn forget(self) {
        std::mem::forget(self);
    }
}

impl Drop for FaultGuard {
    fn drop(&mut self) {
        self.rules.remove(self.id);
    }
}
