//! A controller whose watch expires while objects are created and deleted. Prints the resulting requests.
//!
//! `cargo run --example expired_watch`

use examples::document::{self, Document, REGISTER, document};
use testkit::objects::config_map;
use testkit::{TestCluster, Verb, faults};

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let cluster = TestCluster::builder().crd::<Document>().start();
    cluster.run(document::run(cluster.client()));
    cluster.create(document("readme", "Read me")).await;
    cluster.settle().await;
    assert_eq!(cluster.requests().on(Verb::List, "documents").count(), 1);

    // The server drops its history, so the watch expires, and refuses the next two lists with 429. Meanwhile, objects
    // change.
    cluster.expire_watches();
    let busy = cluster.inject(faults::too_many_requests(1).on(Verb::List, "documents").times(2));
    cluster.create(document("licence", "Who may copy it")).await;
    cluster
        .edit::<Document>("readme", |it| it.spec.title = "Read me first".into())
        .await;
    cluster.settle().await;

    cluster.assert_has(
        config_map(REGISTER)
            .data("readme", "Read me first")
            .data("licence", "Who may copy it"),
    );
    assert_eq!(busy.hits(), 2);
    let lists = cluster.requests().on(Verb::List, "documents");
    assert_eq!(
        lists.clone().answered(200).count(),
        2,
        "the controller lists at the start and after the expiry"
    );
    println!("what it asked for:\n{lists}");
}
