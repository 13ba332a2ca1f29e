//! Explores the controllers of the examples: they must reach the same end state with every fault. `readme.rs` explores
//! the controller of README.md.

use examples::document::{self, Document, REGISTER, document};
use examples::web::{self, Web, web};
use examples::web_on_kube_runtime;
use informer::Clock;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;
use rstest::rstest;
use serde_json::json;
use testkit::explore::explore;
use testkit::objects::config_map;
use testkit::{TestCluster, Worker};

/// Number of schedules of each exploration. Takes a few seconds without optimisations.
const SCHEDULES: u64 = if cfg!(debug_assertions) { 100 } else { 2_000 };

#[derive(Clone, Copy, Debug)]
enum On {
    Informer,
    KubeRuntime,
}

impl On {
    fn start(self, cluster: &TestCluster) {
        let server = cluster.server().clone();
        let clock = move || Clock::starting_at(server.now());
        match self {
            Self::Informer => cluster.controller("operator", move |client| web::run(client, clock())),
            Self::KubeRuntime => {
                cluster.controller("operator", move |client| web_on_kube_runtime::run(client, clock()))
            }
        };
    }
}

/// A Web is created, becomes ready, is scaled, and is deleted.
#[rstest]
fn operator_survives_every_fault(#[values(On::Informer, On::KubeRuntime)] on: On) {
    let scenario = async move |cluster: &TestCluster| {
        on.start(cluster);
        cluster.create(web("shop", 2)).await;
        cluster.create(web("blog", 1)).await;
        // `settle` does not wait for messages that a fault holds back.
        cluster.eventually(|c| c.exists::<Deployment>("shop")).await;
        let status = json!({"replicas": 2, "readyReplicas": 2});
        cluster.patch_status::<Deployment>("shop", status).await;
        cluster.patch::<Web>("shop", json!({"spec": {"replicas": 3}})).await;
        cluster.settle().await;
        cluster.delete::<Web>("blog").await;
        cluster.settle().await;
    };
    let cluster = TestCluster::builder().crd::<Web>().workers([Worker::GarbageCollector]);
    explore(scenario)
        .cluster(cluster)
        .eventually("what belonged to a Web that is gone is gone", |cluster| {
            cluster.gone::<Deployment>("blog") && cluster.gone::<Service>("blog")
        })
        .sometimes("the Web is ready", |cluster| {
            let status = cluster.try_get::<Web>("shop").and_then(|it| it.status);
            status.is_some_and(|it| it.ready_replicas == 2)
        })
        .schedules(SCHEDULES)
        .run();
}

/// A Document is published, changed and withdrawn; the register keeps the entry of the other Document.
#[test]
fn publisher_survives_every_fault() {
    explore(async |cluster: &TestCluster| {
        cluster.controller("publisher", document::run);
        cluster.create(document("readme", "Read me")).await;
        cluster.create(document("notes", "Notes")).await;
        cluster.settle().await;
        cluster
            .patch::<Document>("readme", json!({"spec": {"title": "Read this"}}))
            .await;
        cluster.settle().await;
        cluster.delete::<Document>("notes").await;
        cluster.settle().await;
    })
    .cluster(
        TestCluster::builder()
            .crd::<Document>()
            .workers([Worker::GarbageCollector]),
    )
    .eventually("the register has the one that is left", |cluster| {
        let register = cluster.get(config_map(REGISTER));
        (register.data("readme"), register.data("notes")) == (Some("Read this"), None)
    })
    .schedules(SCHEDULES)
    .run();
}
