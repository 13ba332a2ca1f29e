//! `Clocks`: clients with skewed clocks.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Clients with skewed clocks. The offset of a clock is its difference from the server's clock in milliseconds; it is
/// positive if the clock is ahead.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clocks {
    /// The offset of each client.
    ahead_ms: Arc<Mutex<BTreeMap<String, i64>>>,
}

impl Clocks {
    /// Sets the offset of a client's clock.
    pub(crate) fn set(&self, client: &str, ahead_ms: i64) {
        let mut clocks = self.ahead_ms.lock().unwrap_or_else(PoisonError::into_inner);
        match ahead_ms {
            0 => drop(clocks.remove(client)),
            ahead => drop(clocks.insert(client.to_owned(), ahead)),
        }
    }

    /// Returns the offset of a client's clock.
    pub(crate) fn ahead_ms(&self, client: &str) -> i64 {
        let clocks = self.ahead_ms.lock().unwrap_or_else(PoisonError::into_inner);
        clocks.get(client).copied().unwrap_or(0)
    }
}
