//! `Fault`, `Verdict`, `FaultGuard`: rules that look at each request before it is handled.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::api::request_info::RequestInfo;
use crate::api::status::Status;

/// A request as a fault sees it: routed and read, not yet handled.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// What it asks for.
    pub info: &'a RequestInfo,
    /// `User-Agent`, by which clients tell themselves apart.
    pub user_agent: &'a str,
    /// The worker that sends it, such as `generic-garbage-collector`; `None` for a client.
    pub worker: Option<&'static str>,
}

/// What is to happen to a request.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// Nothing: the next rule is asked.
    Pass,
    /// It is answered with this Status and not handled.
    Fail(Box<Status>),
    /// It is handled, and then answered with this Status: the client does not learn what came of it.
    Lose(Box<Status>),
    /// It is handled after this time, on the server's clock.
    Delay(Duration),
}

/// A rule. Closures are rules.
///
/// A rule has itself to itself while it is asked, so it may count without locks. Rules are asked in the order in which
/// they were installed; the first verdict that is not [`Verdict::Pass`] counts.
pub trait Fault: Send {
    /// Judges a request.
    fn on_request(&mut self, request: &Seen<'_>) -> Verdict;
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
    rules: BTreeMap<u64, Box<dyn Fault>>,
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

    pub(crate) fn install(&self, fault: impl Fault + 'static) -> FaultGuard {
        let mut installed = self.lock();
        installed.next_id += 1;
        let id = installed.next_id;
        installed.rules.insert(id, Box::new(fault));
        FaultGuard {
            rules: self.clone(),
            id,
        }
    }

    pub(crate) fn verdict(&self, request: &Seen<'_>) -> Verdict {
        let mut installed = self.lock();
        for rule in installed.rules.values_mut() {
            match rule.on_request(request) {
                Verdict::Pass => {}
                verdict => return verdict,
            }
        }
        Verdict::Pass
    }
}

/// A fault is gone when its guard is.
#[derive(Debug)]
#[must_use = "the fault is removed when the guard is dropped; call `forget` to keep it"]
pub struct FaultGuard {
    rules: Rules,
    id: u64,
}

impl FaultGuard {
    /// Keeps the fault for as long as the server lives.
    pub fn forget(self) {
        std::mem::forget(self);
    }
}

impl Drop for FaultGuard {
    fn drop(&mut self) {
        self.rules.lock().rules.remove(&self.id);
    }
}
