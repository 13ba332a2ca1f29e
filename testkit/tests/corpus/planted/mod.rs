//! Planted bugs, each with a fixed twin, and idioms of correct controllers that must pass. All tests use the defaults
//! of exploration.

mod bugs;
mod habits;
mod idioms;
mod threads;

use testkit::TestCluster;
use testkit::explore::{Explore, Report, explore};

/// Returns the number of runs that a correct controller must pass, which exceeds the number of single faults of each
/// controller.
fn most() -> u64 {
    if crate::is_measured() { 3_000 } else { 150 }
}

/// A scenario.
trait Scenario: AsyncFn(&TestCluster) + Send + Sync + 'static {}

impl<S: AsyncFn(&TestCluster) + Send + Sync + 'static> Scenario for S {}

/// Returns an exploration without a time limit.
fn exploration(scenario: impl Scenario) -> Explore {
    explore(scenario).budget(std::time::Duration::from_secs(600))
}

/// Asserts that nothing is reported about a correct controller.
#[track_caller]
fn is_silent(scenario: impl Scenario) -> Report {
    let report = exploration(scenario).schedules(most()).run();
    assert_eq!(report.nondeterminism(), Vec::<String>::new(), "{report}");
    report
}
