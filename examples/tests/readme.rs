//! The example of README.md, verbatim.

use testkit::explore::explore;

// README begins
use std::sync::Arc;

use informer::reconcile::{Action, ReconcileError};
use informer::runtime::{Manager, as_reconciler};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, ResourceExt, api::Patch};
use serde_json::json;
use testkit::{TestCluster, Verb, faults, objects::pod};

async fn label_pods(client: Client) -> Result<(), informer::Error> {
    let manager = Manager::new(client);
    let client = manager.client();
    let labels = as_reconciler(manager.lister(), move |pod| label(client.clone(), pod));
    manager.controller("labels").for_::<Pod>().complete(labels)?;
    manager.run(std::future::pending()).await
}

async fn label(client: Client, pod: Arc<Pod>) -> Result<Action, ReconcileError> {
    if !pod.labels().contains_key("seen") {
        let api = Api::<Pod>::namespaced(client, &pod.namespace().unwrap_or_default());
        let patch = Patch::Merge(json!({"metadata": {"labels": {"seen": "true"}}}));
        api.patch(&pod.name_any(), &Default::default(), &patch).await?;
    }
    Ok(Action::await_change())
}

#[tokio::test]
async fn lost_response_and_expired_watch_do_not_cause_a_third_patch() {
    let cluster = TestCluster::start(); // an API server in this test, and a clock that jumps
    cluster.controller("labels", label_pods); // the same function that `main` runs
    cluster.create(pod("web-0")).await;
    cluster.settle().await; // returns when the controller has no work left, without sleeping

    cluster.expire_watches(); // 410 Gone: every client must list again
    let lost = cluster.inject(faults::timeout().but_applied().on(Verb::Patch, "pods").once());
    cluster.create(pod("web-1")).await;
    cluster.settle().await;

    cluster.assert_has(pod("web-1").label("seen", "true"));
    assert_eq!(lost.hits(), 1); // the server applied the patch, but the response was lost
    assert_eq!(cluster.requests().on(Verb::Patch, "pods").count(), 2);
}
// README ends

/// With every fault, each Pod has its label in the end.
#[test]
fn readme_controller_survives_every_fault() {
    explore(async |cluster: &TestCluster| {
        cluster.controller("labels", label_pods);
        cluster.create(pod("web-0")).await;
        cluster.settle().await;
        cluster.create(pod("web-1")).await;
        cluster.settle().await;
        cluster.delete(pod("web-0")).await;
        cluster.settle().await;
    })
    .run();
}

/// Checks that README.md contains exactly this test.
#[test]
fn readme_contains_the_test_in_this_file() {
    let (_, from) = include_str!("readme.rs")
        .split_once("// README begins\n")
        .expect("the example has a start marker");
    let (shown, _) = from
        .split_once("// README ends\n")
        .expect("the example has an end marker");
    let readme = include_str!("../../README.md");
    assert!(
        readme.contains(&format!("```rust\n{shown}```\n")),
        "README.md does not show:\n{shown}"
    );
}
