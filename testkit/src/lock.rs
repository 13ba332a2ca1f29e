//! Locks mutexes.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, ignoring poison.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
