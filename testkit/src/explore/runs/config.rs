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

/// The scenario, with its type erased. Its input may depend on the plan of the run.
pub(crate) type Scenario = Box<dyn for<'a> Fn(&'a TestCluster, &'a Plan) -> LocalBoxFuture<'a, ()> + Send + Sync>;

/// Keeps a run alive at its end, for inspection by a person.
pub(crate) type Linger = Box<dyn for<'a> Fn(&'a TestCluster) -> LocalBoxFuture<'a, ()> + Send + Sync>;

/// The runs in progress by the names of their threads, with their start times.
pub(crate) type Current = Arc<Mutex<BTreeMap<String, (WallClock, Plan)>>>;

/// Configuration shared by all runs of an exploration.
pub(crate) struct Config {
    pub(crate) scenario: Scenario,
    /// Set if controllers read the machine's clocks.
    pub(crate) has_machine_clock: bool,
    /// The `always` and `sometimes` checks.
    pub(crate) checks: Arc<[Check]>,
    /// The `eventually` checks.
    pub(crate) at_last: Vec<Check>,
    /// Checks that take time.
    pub(crate) inquiries: Arc<[Inquiry]>,
    /// The kind of time, and the bounds of waiting.
    pub(crate) timing: Timing,
    /// Set by another thread to end all runs.
    pub(crate) stop: Arc<AtomicBool>,
    /// Set when the search is over: runs that try plans end.
    pub(crate) is_over: AtomicBool,
    /// Set when a verdict was too early: later runs judge a wrong state after `within`.
    pub(crate) is_patient: AtomicBool,
    /// Called at the end of each run, when its cluster still exists.
    pub(crate) linger: Option<Linger>,
    /// Time from the last fault within which the end state must be right.
    pub(crate) within: Duration,
    /// Fields that are ignored in comparisons.
    pub(crate) ignored: Vec<String>,
    /// Defines which changes count as work.
    pub(crate) work: Work,
    pub(crate) oracles: Oracles,
    /// The explored spec, if the exploration changes one.
    pub(crate) spec: Option<Arc<Spec>>,
    /// Files with the runs in progress, which survive the end of the process.
    pub(crate) flight: Flight,
    /// The machine's time of day when the exploration began.
    pub(crate) began: Timestamp,
    /// Set if all sent bytes are hashed, so that two runs can be compared byte by byte.
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

/// A check of the cluster.
pub(crate) type Look = dyn Fn(&TestCluster) -> Result<(), String> + Send + Sync;

/// A user's condition.
#[derive(Clone)]
pub(crate) struct Check {
    pub(crate) name: String,
    /// Name of its oracle in reports, if it differs from the default.
    pub(crate) oracle: Option<&'static str>,
    /// Set if it must hold after every write; otherwise it must hold at least once in all runs.
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

/// A condition whose evaluation takes time, such as a command. It is evaluated when the cluster has settled.
pub(crate) struct Inquiry {
    pub(crate) name: String,
    pub(crate) oracle: &'static str,
    pub(crate) must_hold: MustHold,
    pub(crate) look: Box<Ask>,
}

/// Evaluation of an [`Inquiry`].
pub(crate) type Ask = dyn for<'a> Fn(&'a TestCluster) -> BoxFuture<'a, Result<(), String>> + Send + Sync;

/// Times at which a condition must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    not(all(feature = "processes", unix)),
    expect(dead_code, reason = "only scenarios of processes have commands")
)]
pub(crate) enum MustHold {
    /// Each time the cluster has settled.
    Always,
    /// At the end of every run.
    Eventually,
    /// At least once in all runs.
    Sometimes,
}

impl Config {
    /// Lists the `sometimes` checks that did not hold; `held` has the indices of checks and then of inquiries.
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
    /// A run that may end before the last chance of the controllers: in virtual time after `within`, in real time if
    /// nothing changes in a wrong state, or if the search is over. Its failure is confirmed by usual runs.
    Tried,
    /// A usual run with bodies and tracing output recorded.
    Shown,
    /// The reference with other uids and another time of day.
    Other,
    /// The reference with a pause at each settled step, to find steps with a state that changes by itself.
    Waiting,
    /// The reference (or the one with other uids) with a pause at the end, until nothing changes any more.
    Resting,
    OtherResting,
}

/// Action at the end of each `settle`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Record the state.
    Keep,
    /// Wait; record the state unless it changes by itself.
    Wait,
    /// Compare the state with the reference.
    Compare,
}
