//! A controller of a custom resource: each `Web` gets a Deployment and a Service, and its status reports their state.
//!
//! `cargo run --example custom_resource_controller`. The operator is in `src/web.rs`, its tests are in `tests/web.rs`.

use examples::web::{self, Web, web};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;
use testkit::TestCluster;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let cluster = TestCluster::builder().crd::<Web>().start();
    cluster.run(web::run(
        cluster.client(),
        informer::Clock::starting_at(cluster.server().now()),
    ));
    cluster.create(web("shop", 2)).await;
    cluster.settle().await;
    println!("Deployments: {:?}", cluster.list::<Deployment>().len());
    println!("Services: {:?}", cluster.list::<Service>().len());

    // No kubelet runs the Pods in this cluster, so the example reports them as running.
    cluster
        .patch_status::<Deployment>("shop", serde_json::json!({"replicas": 2, "readyReplicas": 2}))
        .await;
    cluster.settle().await;
    let status = cluster.get::<Web>("shop").status.unwrap_or_default();
    println!(
        "{}: {:?}",
        status.ready_replicas,
        status.conditions.first().map(|it| &it.message)
    );
}
