//! `Clocks`: clients whose clock goes wrong.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// By how much the clocks of clients are ahead, in milliseconds; those that are right are not in it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clocks {
    /// Guards the list.
    ahead_ms: Arc<Mutex<BTreeMap<String, i64>>>,
}

impl Clocks {
    /// Sets a client's clock.
    pub(crate) fn set(&self, client: &str, ahead_ms: i64) {
        let mut clocks = self.ahead_ms.lock().unwrap_or_else(PoisonError::into_inner);
        match ahead_ms {
            0 => drop(clocks.remove(client)),
            ahead => drop(clocks.insert(client.to_owned(), ahead)),
        }
    }

    /// By how much a client's clock is ahead.
    pub(crate) fn ahead_ms(&self, client: &str) -> i64 {
        let clocks = self.ahead_ms.lock().unwrap_or_else(PoisonError::into_inner);
        clocks.get(client).copied().unwrap_or(0)
    }
}
