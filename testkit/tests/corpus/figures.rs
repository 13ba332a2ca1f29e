//! Measurements of exploration, printed by `cargo test --release -p drydock-testkit --test corpus -- figures
//! --nocapture --test-threads 1`. Without optimisation, only a few runs are executed, to check that the measurements
//! work, unless `DRYDOCK_FIGURES` is set.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Client, ResourceExt};
use testkit::TestCluster;
use testkit::explore::explore;

use crate::support::{Reconciled, api, custom, operator, volume};
use crate::{BUGS, exploration, is_measured, measured};

/// Creates a Secret for each custom resource.
async fn reconcile(parent: std::sync::Arc<ConfigMap>, client: Client) -> Reconciled {
    let secrets = api::<Secret>(&client);
    let name = parent.name_any();
    if secrets.get_opt(&name).await?.is_none() {
        crate::support::ensure(&secrets, &volume(&name)).await?;
    }
    Ok(())
}

#[test]
fn runs_per_second_are_measured() {
    println!("objects  messages a run  runs a second  µs a run  µs a message");
    for (objects, runs) in [(1_usize, 2_000), (5, 2_000), (50, 300)] {
        let scenario = async move |cluster: &TestCluster| {
            cluster.controller("operator", |client| operator(client, reconcile));
            for index in 0..objects {
                cluster.create(custom(&format!("parent-{index}"))).await;
            }
            cluster.settle().await;
        };
        let runs = if is_measured() { runs } else { 5 };
        let report = explore(scenario).budget(Duration::from_secs(600)).schedules(runs).run();
        let coverage = report.coverage();
        let micros = coverage.elapsed.as_secs_f64() * 1e6 / coverage.schedules as f64;
        let messages = coverage.messages as f64 / coverage.schedules as f64;
        let (rate, each) = (1e6 / micros, micros / messages);
        println!("{objects:>7}  {messages:>14.1}  {rate:>13.0}  {micros:>8.0}  {each:>12.1}");
        assert!((1..=runs).contains(&coverage.schedules));
    }
}

/// Maximum number of random schedules.
const AT_RANDOM_MOST: u64 = 2_000;

#[test]
fn search_order_is_compared_with_random_order() {
    let most = if is_measured() { AT_RANDOM_MOST } else { 3 };
    println!("bug: schedules in order; at random, from five seeds; their middle");
    for bug in measured() {
        let found = exploration(bug, false).schedules(AT_RANDOM_MOST).report();
        assert!(
            found.failure().is_some(),
            "{} is not found by the ordered search: {found}",
            bug.name
        );
        let in_order = found.coverage().schedules;
        let mut at_random: Vec<(u64, bool)> = (0..5)
            .map(|seed| {
                let report = exploration(bug, false).schedules(most).at_random(seed).report();
                (report.coverage().schedules, report.failure().is_none())
            })
            .collect();
        let shown = |(schedules, is_open): (u64, bool)| format!("{}{schedules}", if is_open { ">" } else { "" });
        let all: Vec<String> = at_random.iter().copied().map(shown).collect();
        at_random.sort_by_key(|(schedules, is_open)| (*is_open, *schedules));
        println!("{}: {in_order}; {}; {}", bug.name, all.join(" "), shown(at_random[2]));
        // Searches without a finding have used all of their budget.
        assert!(
            at_random
                .iter()
                .all(|(schedules, is_open)| !is_open || *schedules == most),
            "{}: {at_random:?} of {most}",
            bug.name
        );
    }
}

/// Repeats the failures of the corpus; `DRYDOCK_REPLAYS` sets the total number of runs. All requests, events,
/// responses, times and the final state must be equal byte for byte.
#[test]
fn replays_of_the_corpus_are_deterministic() {
    let few = if is_measured() { 500 } else { 40 };
    let asked = std::env::var("DRYDOCK_REPLAYS")
        .ok()
        .and_then(|it| it.parse::<u64>().ok());
    // Runs are compared with the first.
    let times = asked.unwrap_or(few).div_ceil(BUGS.len() as u64).max(2);
    let (mut replays, mut mismatches) = (0, Vec::new());
    for bug in measured() {
        let first = exploration(bug, false).report();
        let failure = first.failure().expect("the exploration fails");
        let again = exploration(bug, false).replay(&failure.replay()).times(times).report();
        let found = again.nondeterminism();
        println!(
            "{}: {} replays, {} mismatches",
            bug.name,
            again.coverage().schedules,
            found.len()
        );
        replays += again.coverage().schedules;
        mismatches.extend(found);
        assert_eq!(
            again.failure().map(|it| it.what()),
            Some(failure.what()),
            "{}",
            bug.name
        );
    }
    println!("{replays} replays, {} mismatches", mismatches.len());
    assert_eq!(mismatches, Vec::<String>::new());
}
