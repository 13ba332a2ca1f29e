//! `Config`: the configuration that all runs of an exploration share.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::{BoxFuture, LocalBoxFuture};
use jiff::Timestamp;

use super::flight::Flight;
use super::timing::Timing;
use crate::explore::machine::WallClock;
use crate::explore::oracles::Oracles;
use crate::explore::plans::Plan;
use crate::explore::specs::Spec;
use crate::panics::quietly;
use crate::test_cluster::TestCluster;
use crate::work::Work;

/// The type-erased scenario. It also receives the plan of the run, on which its input may depend.
pub(crate) type Scenario = Box<dyn for<'a> Fn(&'a TestCluster, &'a Plan) -> LocalBoxFuture<'a, ()> + Send + Sync>;

/// Called at the end of a run. Keeps the run alive, so that its cluster can be inspected.
pub(crate) type Linger = Box<dyn for<'a> Fn(&'a TestCluster) -> LocalBoxFuture<'a, ()> + Send + Sync>;

/// The runs in progress by the names of their threads, with their start times.
pub(crate) type Current = Arc<Mutex<BTreeMap<String, (WallClock, Plan)>>>;

/// Configuration that all runs of an exploration share.
pub(crate) struct Config {
    pub(crate) scenario: Scenario,
    /// Set if controllers read the machine's clocks.
    pub(crate) has_machine_clock: bool,
    /// The `always` and `sometimes` checks.
    pub(crate) checks: Arc<[Check]>,
    /// The `eventually` checks.
    pub(crate) at_last: Vec<Check>,
    /// Conditions that take time to evaluate, such as commands.
    pub(crate) inquiries: Arc<[Inquiry]>,
    /// Virtual or real time, and the limits on waiting.
    pub(crate) timing: Timing,
    /// Set by another thread to end all runs in real time.
    pub(crate) stop: Arc<AtomicBool>,
    /// Set when the search is over. Runs in real time that are still trying a plan then stop early.
    pub(crate) is_over: AtomicBool,
    /// Set if a run failed too early because of a wrong state. Later runs wait longer before they fail.
    pub(crate) is_patient: AtomicBool,
    /// Called at the end of each run, while its cluster still exists.
    pub(crate) linger: Option<Linger>,
    /// Time from the last fault within which the end state must be correct.
    pub(crate) within: Duration,
    /// Fields that are ignored in comparisons.
    pub(crate) ignored: Vec<String>,
    /// Determines which changes count as work.
    pub(crate) work: Work,
    pub(crate) oracles: Oracles,
    /// The explored spec, if the exploration changes one.
    pub(crate) spec: Option<Arc<Spec>>,
    /// Files that record the runs in progress and remain if the process is killed.
    pub(crate) flight: Flight,
    /// The machine's time of day when the exploration began.
    pub(crate) began: Timestamp,
    /// Set if all bytes that are sent or stored are hashed, so that two runs can be compared byte by byte.
    pub(crate) has_digests: bool,
    /// The runs in progress and their start times.
    pub(crate) current: Current,
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("checks", &self.checks)
            .finish_non_exhaustive()
    }
}

/// Checks the cluster. The error is the reason why the check fails.
pub(crate) type Look = dyn Fn(&TestCluster) -> Result<(), String> + Send + Sync;

/// An `always`, `sometimes` or `eventually` check of the test.
#[derive(Clone)]
pub(crate) struct Check {
    pub(crate) name: String,
    /// Name of the oracle in reports, if it differs from the default.
    pub(crate) oracle: Option<&'static str>,
    /// Set for `always` and `eventually` checks. A `sometimes` check must hold at least once across all runs.
    pub(crate) must_always: bool,
    pub(crate) look: Arc<Look>,
}

impl Check {
    /// Evaluates the condition; a panic counts as a failure.
    pub(crate) fn look(&self, cluster: &TestCluster) -> Result<(), String> {
        quietly(|| (self.look)(cluster))?
    }
}

impl fmt::Debug for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Check")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// A condition that takes time to evaluate, such as a command. It is evaluated when the cluster has settled.
pub(crate) struct Inquiry {
    pub(crate) name: String,
    pub(crate) oracle: &'static str,
    pub(crate) must_hold: MustHold,
    pub(crate) look: Box<Ask>,
}

/// Function that evaluates an [`Inquiry`].
pub(crate) type Ask = dyn for<'a> Fn(&'a TestCluster) -> BoxFuture<'a, Result<(), String>> + Send + Sync;

/// Times at which a condition must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    not(all(feature = "processes", unix)),
    expect(dead_code, reason = "only scenarios of processes have commands")
)]
pub(crate) enum MustHold {
    /// The condition must hold each time the cluster has settled.
    Always,
    /// The condition must hold at the end of every run.
    Eventually,
    /// The condition must hold at least once across all runs.
    Sometimes,
}

impl Config {
    /// Lists the `sometimes` conditions that never held. `held` contains indexes of checks, followed by indexes of
    /// inquiries.
    pub(crate) fn never(&self, held: &BTreeSet<usize>) -> Vec<String> {
        let checks = self.checks.iter().map(|it| (&it.name, !it.must_always));
        let inquiries = self.inquiries.iter();
        let inquiries = inquiries.map(|it| (&it.name, it.must_hold == MustHold::Sometimes));
        let all = checks.chain(inquiries).enumerate();
        let never = all.filter(|(index, (_, is_sometimes))| *is_sometimes && !held.contains(index));
        never.map(|(_, (name, _))| name.clone()).collect()
    }
}

/// Purpose of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Usual,
    /// A run that tries a plan. It may fail early because of a wrong state: in virtual time after `within`, in real
    /// time once the state no longer changes. In real time, it also ends when the search ends. Failures are confirmed
    /// by `Usual` runs.
    Tried,
    /// Same as `Usual`, but also records bodies and tracing output.
    Shown,
    /// The reference with different uids, random numbers and time of day.
    Other,
    /// The reference with a pause at each settled step, to find steps after which the state still changes.
    Waiting,
    /// The reference, continued after its end so that its timers fire. `OtherResting` differs from it as `Other`
    /// differs from `Usual`.
    Resting,
    OtherResting,
    /// The reference, continued after its end for as long as it took, but at least for an hour.
    Passing,
}

/// Calls `attempt` with `Tried`, which is sufficient for most failures, and with `Usual` if that returns `None`. In
/// real time, calls it only with `Usual`.
pub(crate) fn early_then_usual<T>(is_real: bool, mut attempt: impl FnMut(Role) -> Option<T>) -> Option<T> {
    let early = (!is_real).then(|| attempt(Role::Tried)).flatten();
    early.or_else(|| attempt(Role::Usual))
}

/// Action at each return of `settle`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Record the state.
    Keep,
    /// Wait, and record the state unless it changes without further input.
    Wait,
    /// Compare the state with the reference.
    Compare,
}
