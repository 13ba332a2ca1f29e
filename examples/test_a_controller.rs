//! Tests of an unmodified kube-rs controller: a custom resource with a finalizer, an owned ConfigMap and a status.
//!
//! `cargo run --example test_a_controller`. The controller is in `src/document.rs`; in a real project, each of the four
//! scenarios would be a test:
//!
//! ```text
//! #[rstest]
//! #[tokio::test(start_paused = true)]
//! async fn document_is_published(cluster: TestCluster) { … }
//! ```

use examples::document::{self, Document, REGISTER, document};
use testkit::objects::config_map;
use testkit::{TestCluster, Verb, faults};

#[tokio::main(flavor = "current_thread")]
async fn main() {
    document_is_published().await;
    update_of_the_register_is_retried_after_a_conflict().await;
    deleted_document_is_removed_from_the_register().await;
    restart_does_not_change_any_object().await;
    println!("all four scenarios passed");
}

/// A cluster in which the controller runs.
fn cluster() -> TestCluster {
    let cluster = TestCluster::builder().crd::<Document>().start();
    cluster.run(document::run(cluster.client()));
    cluster
}

async fn document_is_published() {
    let cluster = cluster();
    let readme = cluster.create(document("readme", "Read me")).await;
    cluster.settle().await;

    cluster.assert_has(config_map("readme").data("title", "Read me").owned_by(&readme));
    cluster.assert_has(config_map(REGISTER).data("readme", "Read me"));
    assert!(cluster.get::<Document>("readme").status.is_some_and(|it| it.published));
}

async fn update_of_the_register_is_retried_after_a_conflict() {
    let cluster = cluster();
    cluster.create(config_map(REGISTER).data("older", "An older one")).await;
    let conflict = cluster.inject(faults::conflict().on(Verb::Update, "configmaps").name(REGISTER).once());
    cluster.create(document("readme", "Read me")).await;
    cluster.settle().await;

    assert_eq!(conflict.hits(), 1);
    cluster.assert_has(
        config_map(REGISTER)
            .data("older", "An older one")
            .data("readme", "Read me"),
    );
}

async fn deleted_document_is_removed_from_the_register() {
    let cluster = cluster();
    cluster.create(document("readme", "Read me")).await;
    cluster.settle().await;

    cluster.delete::<Document>("readme").await;
    cluster.settle().await;
    cluster.assert_gone::<Document>("readme");
    assert_eq!(cluster.get(config_map(REGISTER)).data("readme"), None);
}

async fn restart_does_not_change_any_object() {
    let cluster = TestCluster::builder().crd::<Document>().start();
    let controller = cluster.run(document::run(cluster.client_named("before")));
    cluster.create(document("readme", "Read me")).await;
    cluster.settle().await;

    controller.crash();
    let revision = cluster.server().resource_version();
    cluster.run(document::run(cluster.client_named("after")));
    cluster.settle().await;
    assert!(
        cluster.requests().client("after").writes().count() > 0,
        "the restarted controller applies its objects again"
    );
    assert_eq!(
        cluster.server().resource_version(),
        revision,
        "the repeated applies change nothing"
    );
}
