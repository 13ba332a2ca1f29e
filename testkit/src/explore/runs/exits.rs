//! Prints the replay string of a run whose code exits the process, which would otherwise end the test without a report.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, Once};

use crate::explore::plans::Plan;
use crate::lock::lock;

/// The plans of the runs in progress, by the numbers in `RUN`.
static PLANS: Mutex<BTreeMap<u64, String>> = Mutex::new(BTreeMap::new());

thread_local! {
    /// Number of this thread's run, or 0. A number does not need a destructor, so it can still be read while the
    /// process exits.
    static RUN: Cell<u64> = const { Cell::new(0) };
}

/// A run in progress on this thread, until it is dropped.
#[derive(Debug)]
pub(crate) struct Exits {
    number: u64,
}

impl Exits {
    /// Registers the run on this thread, so that a call of `exit` by the thread prints the replay string of this plan.
    pub(crate) fn of(plan: &Plan) -> Self {
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        static REGISTERED: Once = Once::new();
        REGISTERED.call_once(register);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        lock(&PLANS).insert(number, plan.to_string());
        RUN.set(number);
        Self { number }
    }
}

impl Drop for Exits {
    fn drop(&mut self) {
        RUN.set(0);
        lock(&PLANS).remove(&self.number);
    }
}

/// Prints the replay string of the run whose thread exits the process. Writes to stderr directly, because the test
/// harness captures the output of `eprintln!`.
extern "C" fn report() {
    let Some(plan) = lock(&PLANS).remove(&RUN.get()) else {
        return;
    };
    let text = format!(
        "\na controller or the test exits the process (`std::process::exit`), which ends the exploration without a \
         report: return an error or panic instead\nto replay: EXPLORE_REPLAY='{plan}'\n"
    );
    // Ignore errors: the process ends anyway.
    let _ = std::io::stderr().write_all(text.as_bytes());
}

#[cfg(any(target_os = "linux", target_vendor = "apple"))]
#[expect(unsafe_code, reason = "the C library calls the function at exit")]
fn register() {
    // SAFETY: `report` does not unwind, and is never unloaded. If it cannot be registered, it is not called.
    let _ = unsafe { libc::atexit(report) };
}

#[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
fn register() {
    let _ = report;
}
