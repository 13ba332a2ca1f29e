//! Pending calls to the aggregated API servers of APIServices.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Mutex, OnceLock, PoisonError};

use tokio::sync::Notify;

use super::Registry;

/// Pending calls to the servers of APIServices. Each call determines the condition `Available` of an APIService.
#[derive(Debug, Default)]
pub(crate) struct RemoteChecks {
    /// Names of the APIServices whose servers have to be called.
    pending: Mutex<BTreeSet<String>>,
    /// Signalled when a name is added.
    pub(crate) added: Notify,
    caller: OnceLock<Caller>,
}

/// The function that starts the task that calls the servers of APIServices.
struct Caller(Box<dyn Fn() + Send + Sync>);

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Caller")
    }
}

impl RemoteChecks {
    /// Sets the function that starts the task if it is not running. The function is called whenever a name is added.
    /// Only the first call of `called_by` has an effect.
    pub(crate) fn called_by(&self, start: impl Fn() + Send + Sync + 'static) {
        let _ = self.caller.set(Caller(Box::new(start)));
    }

    /// Adds the name of an APIService.
    pub(super) fn add(&self, name: &str) {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        pending.insert(name.to_owned());
        drop(pending);
        self.added.notify_one();
        if let Some(Caller(start)) = self.caller.get() {
            start();
        }
    }

    /// Removes and returns the names of all pending calls.
    pub(crate) fn take(&self) -> BTreeSet<String> {
        std::mem::take(&mut self.pending.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Registry {
    /// Requests a call to the server of each APIService that has a route. Called at startup and after a route was
    /// added.
    pub(crate) fn routes_changed(&self) {
        let servers = self.reader.remote_servers();
        for remote in servers.iter().filter(|it| self.reader.has_route(it)) {
            self.remote_checks.add(&remote.name);
        }
    }
}
