//! What exploration costs. The figures are for reading, with
//! `cargo test --release -p drydock-testkit --test corpus -- figures --nocapture --test-threads 1`; without
//! optimisation few runs are made, to see that it works.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Client, ResourceExt};
use testkit::TestCluster;
use testkit::explore::explore;

use crate::support::{Reconciled, api, custom, operator, volume};
use crate::{exploration, measured};

/// Makes a Secret for each custom resource.
async fn reconcile(parent: std::sync::Arc<ConfigMap>, client: Client) -> Reconciled {
    let secrets = api::<Secret>(&client);
    let name = parent.name_any();
    if secrets.get_opt(&name).await?.is_none() {
        crate::support::ensure(&secrets, &volume(&name)).await?;
    }
    Ok(())
}

#[test]
fn figures_of_runs_per_second() {
    println!("objects  messages a run  runs a second  µs a run  µs a message");
    for (objects, runs) in [(1_usize, 2_000), (5, 2_000), (50, 300)] {
        let scenario = async move |cluster: &TestCluster| {
            cluster.controller("operator", |client| operator(client, reconcile));
            for index in 0..objects {
                cluster.create(custom(&format!("parent-{index}"))).await;
            }
            cluster.settle().await;
        };
        let runs = if cfg!(debug_assertions) { 5 } else { runs };
        let report = explore(scenario).budget(Duration::from_secs(600)).schedules(runs).run();
        let coverage = report.coverage();
        let micros = coverage.elapsed.as_secs_f64() * 1e6 / coverage.schedules as f64;
        let messages = coverage.messages as f64 / coverage.schedules as f64;
        let (rate, each) = (1e6 / micros, micros / messages);
        println!("{objects:>7}  {messages:>14.1}  {rate:>13.0}  {micros:>8.0}  {each:>12.1}");
        assert!((1..=runs).contains(&coverage.schedules));
    }
}

#[test]
fn figures_of_the_order_of_search() {
    let most = if cfg!(debug_assertions) { 3 } else { 2_000 };
    println!("bug: schedules in order, and at random from five seeds");
    for bug in measured() {
        let in_order = exploration(bug, false).schedules(most).report();
        let at_random: Vec<String> = (0..5)
            .map(|seed| {
                let report = exploration(bug, false).schedules(most).at_random(seed).report();
                let found = report.failure().is_some();
                format!("{}{}", if found { "" } else { ">" }, report.coverage().schedules)
            })
            .collect();
        println!(
            "{}: {}; {}",
            bug.name,
            in_order.coverage().schedules,
            at_random.join(" ")
        );
        assert!(in_order.coverage().schedules <= most);
    }
}

#[test]
fn figures_of_replays() {
    let replays = if cfg!(debug_assertions) { 2 } else { 1_000 };
    let mut mismatches = 0;
    for bug in measured() {
        let first = exploration(bug, false).report();
        let failure = first.failure().expect("each is found");
        for _ in 0..replays {
            let again = exploration(bug, false).replay(&failure.replay()).schedules(1).report();
            mismatches += usize::from(again.failure().map(|it| it.what()) != Some(failure.what()));
        }
    }
    println!("{} replays, {mismatches} mismatches", replays * measured().count());
    assert_eq!(mismatches, 0);
}
