//! Published bugs of controllers, each as a small controller with and without the bug. Exploration with the default
//! options finds each of them, and the fixed variants pass.

#![expect(clippy::print_stdout, reason = "reports, tables and figures are for reading")]

mod support;
mod dependent_writes;
mod deletion_timestamp;
mod early_finalizer;
mod edge_triggered;
mod external_resources;
mod figures;
mod generated_names;
mod ignored_conflict;
mod lost_deletes;
mod marked_work;
mod name_for_uid;
mod over_creation;
mod planted;
mod skipped_work;
mod stale_reads;
mod stale_scheduler;
mod standby;

use std::fmt::Write as _;
use std::time::Duration;

use futures::future::LocalBoxFuture;
use rstest::rstest;
use testkit::TestCluster;
use testkit::explore::{Explore, explore};

/// Number of runs that a fixed twin must pass: all likely faults, and many more than all single faults if figures are
/// requested.
fn twin_schedules() -> u64 {
    if is_measured() { 3_000 } else { 120 }
}

type Scenario = for<'a> fn(&'a TestCluster, bool) -> LocalBoxFuture<'a, ()>;

/// A bug: its name, its source, and its scenario.
#[derive(Clone, Copy)]
struct Bug {
    name: &'static str,
    source: &'static str,
    scenario: Scenario,
}

macro_rules! bug {
    ($name:literal, $source:literal, $scenario:path) => {
        Bug {
            name: $name,
            source: $source,
            scenario: |cluster, is_fixed| Box::pin($scenario(cluster, is_fixed)),
        }
    };
}

const BUGS: [Bug; 20] = [
    bug!(
        "dependent writes",
        "rabbitmq/cluster-operator#782",
        dependent_writes::scenario
    ),
    bug!(
        "deletion by deletionTimestamp",
        "Percona MongoDB operator (Sieve)",
        deletion_timestamp::scenario
    ),
    bug!(
        "edge-triggered cleanup",
        "instaclustr/cassandra-operator#398",
        edge_triggered::scenario
    ),
    bug!("over-creation", "kubernetes/kubernetes#129795", over_creation::scenario),
    bug!(
        "spurious creation",
        "ray-project/kuberay#715",
        over_creation::scenario_with_readjustment
    ),
    bug!("name for uid", "kubernetes/kubernetes#69376", name_for_uid::scenario),
    bug!(
        "deletes lost at relist",
        "kube-rs/kube#1590, #1768",
        lost_deletes::scenario
    ),
    bug!(
        "stale deletion",
        "pravega/zookeeper-operator#312",
        stale_reads::recreated
    ),
    bug!(
        "stale replicas",
        "pravega/zookeeper-operator#314",
        stale_reads::rescaled
    ),
    bug!(
        "a node that is gone",
        "kubernetes/kubernetes#56261",
        stale_scheduler::scenario
    ),
    bug!(
        "a reference that is lost",
        "crossplane/crossplane#1910",
        generated_names::contended
    ),
    bug!(
        "a new object read from a cache",
        "reddit/achilles-sdk#71",
        generated_names::read_back
    ),
    bug!(
        "an interrupted creation",
        "aws-controllers-k8s/community#2062",
        external_resources::interrupted
    ),
    bug!(
        "an id that the cache lacks",
        "openshift/machine-api-operator#1011",
        external_resources::cached
    ),
    bug!(
        "an ignored conflict",
        "Azure/azure-service-operator#2719",
        ignored_conflict::scenario
    ),
    bug!("skipped work", "openkruise/agents#776", skipped_work::scenario),
    bug!(
        "a finalizer removed too early",
        "pingcap/tidb-operator#6532",
        early_finalizer::scenario
    ),
    bug!(
        "a mark that outlives its process",
        "eclipse-theia/theia-cloud#221",
        marked_work::interrupted
    ),
    bug!(
        "an existing object as an error",
        "nuclio/nuclio#1642",
        marked_work::already_there
    ),
    bug!("events before the lead", "hadron-project/hadron#71", standby::scenario),
];

/// Returns `true` if figures are requested. Default: only in builds with optimisation.
fn is_measured() -> bool {
    !cfg!(debug_assertions) || std::env::var_os("DRYDOCK_FIGURES").is_some()
}

/// Returns the measured bugs: all, or a few to check that the measurement works.
fn measured() -> impl Iterator<Item = Bug> {
    BUGS.into_iter().take(if is_measured() { BUGS.len() } else { 2 })
}

fn exploration(bug: Bug, is_fixed: bool) -> Explore {
    let scenario = bug.scenario;
    explore(async move |cluster: &TestCluster| scenario(cluster, is_fixed).await).budget(Duration::from_secs(600))
}

#[rstest]
fn each_bug_of_the_corpus_is_found(
    #[values(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19)] index: usize,
) {
    let bug = BUGS[index];
    let report = exploration(bug, false).report();
    let failure = report
        .failure()
        .unwrap_or_else(|| panic!("{} is not found: {report}", bug.name));
    assert!(
        !failure.plan().is_empty(),
        "the scenario fails without any fault: {report}"
    );
    assert_eq!(report.nondeterminism(), Vec::<String>::new(), "{report}");
    // The replay string reproduces the same failure, without differences between the runs.
    let again = exploration(bug, false).replay(&failure.replay()).times(2).report();
    assert_eq!(again.failure().map(|it| it.what()), Some(failure.what()));
    assert_eq!(again.nondeterminism(), Vec::<String>::new(), "{again}");
    println!("{report}");
}

#[rstest]
fn fixed_variants_of_the_bugs_pass(
    #[values(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19)] index: usize,
) {
    let report = exploration(BUGS[index], true).schedules(twin_schedules()).run();
    assert_eq!(report.nondeterminism(), Vec::<String>::new(), "{report}");
}

/// The documentation of exploration, which has a table of the bugs.
const GUIDE: &str = include_str!("../../src/explore/guide.md");

/// Returns the number of schedules until each bug is found, as in the documentation.
fn documented_schedules() -> Vec<u64> {
    let rows = GUIDE.lines().skip_while(|it| !it.starts_with("| bug |")).skip(2);
    let schedules = rows
        .map_while(|row| row.strip_prefix('|'))
        .map(|row| row.split('|').nth(2)?.trim().parse().ok());
    schedules.collect::<Option<_>>().expect("each row has a number")
}

/// Prints the table of the documentation: `cargo test --release --test corpus -- table --nocapture`. The schedules are
/// the same on each machine with seeded hashes.
#[test]
fn table_of_the_corpus_matches_the_documentation() {
    let mut table = String::from("| bug | source | schedules | found by |\n|---|---|---|---|\n");
    let mut needed = Vec::new();
    for bug in measured() {
        let report = exploration(bug, false).report();
        let coverage = report.coverage();
        let failure = report.failure().expect("the exploration fails");
        let schedules = coverage.schedules;
        let plan = failure.plan().join("; ");
        writeln!(table, "| {} | {} | {schedules} | {plan} |", bug.name, bug.source)
            .expect("writing to a String cannot fail");
        needed.push(schedules);
    }
    println!("{table}");
    let documented = documented_schedules();
    assert_eq!(documented.len(), BUGS.len());
    if cfg!(target_os = "linux") {
        assert_eq!(needed, documented[..needed.len()]);
    }
}
