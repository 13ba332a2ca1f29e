//! A controller of another version of kube in process: one plain test, and explorations of it and of its flawed twin.

use publisher::{Document, DocumentSpec, DocumentStatus, Makes, run};
use testkit::explore::explore;
use testkit::objects::{config_map, object, serialized};
use testkit::{TestCluster, TestClusterBuilder};

fn document(name: &str) -> Document {
    Document::new(
        name,
        DocumentSpec {
            text: "hello".to_owned(),
        },
    )
}

/// The definition is of the controller's own kube and k8s-openapi.
fn builder() -> TestClusterBuilder {
    TestCluster::builder().object(serialized(&<Document as kube::CustomResourceExt>::crd()))
}

#[tokio::test]
async fn document_is_published() {
    let cluster = builder().start();
    cluster.controller_over("publisher", |service| {
        run(kube::Client::new(service, "default"), Makes::ByApply)
    });
    cluster.create(serialized(&document("readme"))).await;
    cluster.settle().await;

    cluster.assert_has(config_map("readme").data("text", "hello"));
    let stored = cluster.get(object("example.com/v1", "Document", "readme"));
    let status: Option<DocumentStatus> = stored.decode::<Document>().status;
    assert!(status.is_some_and(|it| it.published));
}

async fn scenario(cluster: &TestCluster, makes: Makes) {
    cluster.controller_over("publisher", move |service| {
        run(kube::Client::new(service, "default"), makes)
    });
    cluster.create(serialized(&document("readme"))).await;
    cluster.create(serialized(&document("notes"))).await;
    cluster.settle().await;
}

#[test]
fn publisher_survives_every_fault() {
    explore(async |cluster: &TestCluster| scenario(cluster, Makes::ByApply).await)
        .cluster(builder())
        .run();
}

#[test]
fn lost_response_always_breaks_the_buggy_variant() {
    let exploration = || explore(async |cluster: &TestCluster| scenario(cluster, Makes::Anew).await).cluster(builder());
    let found = exploration().report();
    let failure = found.failure().expect("the exploration fails");
    let again = exploration().replay(&failure.replay()).times(50).report();
    assert_eq!(again.failure().map(|it| it.plan()), Some(failure.plan()));
    assert_eq!(again.nondeterminism(), [""; 0]);
}
