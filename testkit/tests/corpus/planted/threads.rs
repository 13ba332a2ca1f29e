//! Exploration on one core and on several cores.

use std::time::Duration;

use rstest::rstest;
use serde_json::Value;
use testkit::explore::Report;
use testkit::{TestCluster, TestClusterBuilder};

use super::exploration;
use crate::{BUGS, Bug};

fn of_bug(bug: Bug, is_fixed: bool, threads: usize, schedules: u64) -> Report {
    let scenario = bug.scenario;
    exploration(async move |cluster: &TestCluster| scenario(cluster, is_fixed).await)
        .cluster(at_one_time())
        .schedules(schedules)
        .threads(threads)
        .report()
}

/// Builds a cluster that starts at a fixed time, because replay strings contain the start time.
fn at_one_time() -> TestClusterBuilder {
    TestCluster::builder().server(|server| server.start_time(jiff::Timestamp::UNIX_EPOCH))
}

/// Returns the report without the times that depend on the machine.
fn timeless(report: &Report) -> Value {
    let mut document = report.to_json();
    for time in ["seconds", "processorSeconds"] {
        document["coverage"][time] = Value::Null;
    }
    document
}

/// Bugs that are found by one fault, and by two faults.
#[rstest]
fn failures_do_not_depend_on_the_number_of_cores(#[values(0, 3, 6)] bug: usize) {
    let one = of_bug(BUGS[bug], false, 1, 2_000);
    assert!(one.failure().is_some(), "{one}");
    for threads in [2, 5] {
        assert_eq!(timeless(&of_bug(BUGS[bug], false, threads, 2_000)), timeless(&one));
    }
}

/// A search that includes pairs, delivery orders and random plans.
#[test]
fn coverage_does_not_depend_on_the_number_of_cores() {
    let explored = |threads| {
        let report = exploration(async |cluster: &TestCluster| {
            cluster.controller("operator", |client| async move {
                let maps = crate::support::api::<k8s_openapi::api::core::v1::ConfigMap>(&client);
                while maps.get_opt("a").await.is_err() {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            });
            cluster.settle().await;
        })
        .cluster(at_one_time())
        .schedules(120)
        .threads(threads)
        .report();
        assert!(report.coverage().swarms > 0, "{report}");
        timeless(&report)
    };
    assert_eq!(explored(1), explored(3));
}

/// Waiting in real time does not use processor time.
#[test]
fn budget_counts_processor_time() {
    let bug = BUGS[0].scenario;
    let report = exploration(async move |cluster: &TestCluster| bug(cluster, true).await)
        .budget(Duration::from_millis(1))
        .report();
    let coverage = report.coverage();
    assert!(coverage.processor_time >= Duration::from_millis(1), "{report}");
    assert!(coverage.schedules < 2_000, "{report}");
}
