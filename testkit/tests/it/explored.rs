//! Exploration of controllers beside the server's own, and of what it says where it can do less than it seems.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use rstest::rstest;
use testkit::explore::{Explore, explore};
use testkit::objects::pod;
use testkit::{TestCluster, Worker};

use crate::support::own_config_maps;

/// A Pod comes and goes; its ConfigMap belongs to it.
fn owners_come_and_go() -> Explore {
    explore(async |cluster: &TestCluster| {
        cluster.controller("operator", own_config_maps);
        cluster.create(pod("web-0")).await;
        cluster.settle().await;
        cluster.delete::<Pod>("web-0").await;
        cluster.settle().await;
    })
    .budget(Duration::from_secs(120))
    .schedules(if cfg!(debug_assertions) { 300 } else { 2_000 })
}

/// While its watch is held it makes anew what the collector deletes, again and again: the fault does that.
#[test]
fn a_correct_controller_beside_the_garbage_collector_raises_no_alarm() {
    let cluster = TestCluster::builder().workers([Worker::GarbageCollector]);
    owners_come_and_go().cluster(cluster).run();
}

/// Nobody collects what belonged to an owner that is gone; whether it was made in time does not matter.
#[test]
fn what_a_collector_would_take_away_is_no_part_of_the_end_state() {
    owners_come_and_go().run();
}
