//! echo-operator: a Deployment for each Echo, on kube 0.95. Its conditions depend on the history of an object.
#![cfg(test)]

use echo_operator::controller::State;
use echo_operator::crd::echo::{Echo, EchoSpec};
use echo_operator::echo::controller::{CONTROLLER_ID, run};
use kube::CustomResourceExt;
use serde_json::json;
use testkit::explore::explore;
use testkit::objects::{node, object, serialized};
use testkit::{TestCluster, TestClusterBuilder, Worker};

fn builder() -> TestClusterBuilder {
    let cluster = TestCluster::builder().workers(Worker::ALL);
    cluster.object(serialized(&Echo::crd())).object(node("n1"))
}

async fn echo_is_created_scaled_and_deleted(cluster: &TestCluster) {
    cluster.controller_over("echo", |service| {
        let state = State::new(Default::default(), &[CONTROLLER_ID]);
        run(state, kube::Client::new(service, "default"))
    });
    let hello = || object("example.com/v1", "Echo", "hello");
    cluster.create(serialized(&Echo::new("hello", EchoSpec { replicas: 2 }))).await;
    cluster.settle().await;
    cluster.patch(hello(), json!({"spec": {"replicas": 3}})).await;
    cluster.settle().await;
    cluster.delete(hello()).await;
    cluster.settle().await;
}

#[test]
fn conditions_that_are_never_removed_are_reported() {
    let report = explore(echo_is_created_scaled_and_deleted).cluster(builder()).report();
    let failure = report.failure().expect("the exploration fails");
    assert!(failure.what().contains("status.conditions"), "{report}");
}
