//! `Pace`: chooses the number of concurrent runs, based on their processor time and other load on the machine.

use std::num::NonZero;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::usage::{self, Usage, Used};
use crate::explore::parts::{WallClock, process_time};
use crate::lock::lock;

/// Maximum number of concurrent runs.
const PARALLEL_MAX: usize = 32;

/// Maximum share of the processors, in percent, that concurrent runs may use. On a busy machine, timeouts would cause
/// failures.
const LOAD_PERCENT: u32 = 70;

/// Number of completed runs after which the measured processor time replaces the estimate.
const MEASURED: u32 = 8;

/// Minimum interval between measurements of the load of other programs.
const LOOK: Duration = Duration::from_secs(10);

/// Minimum number of concurrent runs while other programs use the processors, as a percentage of the number that an
/// idle machine could execute.
const SHARE_PERCENT: u32 = 50;

/// Chooses the number of concurrent runs.
#[derive(Debug)]
pub(crate) struct Pace {
    usage: Arc<Usage>,
    /// Number of concurrent runs that the scenario sets, if any.
    fixed: Option<usize>,
    /// Estimated number of concurrent runs, used until enough runs have completed.
    first: usize,
    /// Usage by the references. It is subtracted, because references wait longer than other runs.
    before: Used,
    own_before: Duration,
    /// The last measurement of the load of other programs.
    others: Mutex<Others>,
}

/// The load caused by other programs.
#[derive(Debug)]
struct Others {
    since: WallClock,
    /// Processor time of the machine at `since`.
    machine: Duration,
    /// Processor time of this exploration at `since`.
    own: Duration,
    /// Number of processors that other programs use.
    busy: f64,
}

impl Pace {
    /// Estimates the number of concurrent runs from the references. `took` is the expected time of a run.
    pub(crate) fn new(usage: Arc<Usage>, fixed: Option<usize>, references: u32, took: Duration) -> Self {
        let (before, own_before) = (usage.used(), process_time());
        let used = (before.processor + own_before) / references.max(1);
        let fit = fitting(took.div_duration_f64(used.max(Duration::from_millis(1))));
        // Other programs may use the machine as well.
        let cores = cores();
        let fit = fit * cores / (cores + usage::load().unwrap_or_default());
        let own = before.processor + own_before;
        Self {
            usage,
            fixed,
            first: bounded(fit),
            before,
            own_before,
            others: Mutex::new(Others {
                since: WallClock::start(),
                machine: usage::of_the_machine().unwrap_or_default(),
                own,
                busy: 0.0,
            }),
        }
    }

    /// Returns the number of runs to execute concurrently from now on.
    pub(crate) fn at_once(&self) -> usize {
        if let Some(fixed) = self.fixed {
            return fixed.max(1);
        }
        let used = self.usage.used();
        let own = used.processor + process_time();
        let busy = lock(&self.others).measure(own);
        let (runs, took) = (used.ended.0 - self.before.ended.0, used.ended.1 - self.before.ended.1);
        if runs < MEASURED {
            return self.first;
        }
        let spent = own.saturating_sub(self.before.processor + self.own_before);
        let fit = fitting(took.div_duration_f64(spent.max(Duration::from_millis(1))));
        let share = (1.0 - busy / cores()).max(f64::from(SHARE_PERCENT) / 100.0);
        bounded(fit * share)
    }
}

impl Others {
    /// Returns the number of processors that other programs use, measured at intervals of `LOOK`.
    fn measure(&mut self, own: Duration) -> f64 {
        let elapsed = self.since.elapsed();
        if let Some(machine) = usage::of_the_machine().filter(|_| elapsed >= LOOK) {
            let all = machine.saturating_sub(self.machine);
            let others = all.saturating_sub(own.saturating_sub(self.own));
            *self = Self {
                since: WallClock::start(),
                machine,
                own,
                busy: others.div_duration_f64(elapsed),
            };
        }
        self.busy
    }
}

/// Returns the number of runs that the processors can execute concurrently. `waits` is the ratio of the duration of a
/// run to its processor time.
fn fitting(waits: f64) -> f64 {
    waits * cores() * f64::from(LOAD_PERCENT) / 100.0
}

fn cores() -> f64 {
    std::thread::available_parallelism().map_or(1.0, |it| NonZero::get(it) as f64)
}

fn bounded(number: f64) -> usize {
    (number as usize).clamp(1, PARALLEL_MAX)
}
