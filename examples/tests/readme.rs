//! The example of README.md, as it stands there.

use testkit::explore::explore;

// README begins
use informer::ObjectKey;
use informer::cache::Lister;
use informer::reconcile::{Action, ReconcileError, Request};
use informer::runtime::{Controller, Manager};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, api::Patch};
use serde_json::json;
use testkit::{TestCluster, Verb, faults, objects::pod};

async fn label_pods(client: Client) -> Result<(), informer::Error> {
    let manager = Manager::builder(client).build()?;
    let (client, pods) = (manager.client(), manager.factory().informer::<Pod>().lister());
    let labels = Controller::builder("labels", &manager.factory())
        .for_::<Pod>()
        .build(move |request: Request| label(client.clone(), pods.clone(), request.key))?;
    manager.add(labels)?;
    manager.run(std::future::pending()).await
}

async fn label(client: Client, pods: Lister<Pod>, key: ObjectKey) -> Result<Action, ReconcileError> {
    if pods.get(&key).is_some_and(|pod| pod.label("seen").is_none()) {
        let api = Api::<Pod>::namespaced(client, key.namespace().unwrap_or_default());
        let patch = Patch::Merge(json!({"metadata": {"labels": {"seen": "true"}}}));
        api.patch(key.name(), &Default::default(), &patch).await?;
    }
    Ok(Action::await_change())
}

#[tokio::test]
async fn a_lost_answer_and_an_expired_watch_cost_no_third_patch() {
    let cluster = TestCluster::start(); // an API server in this test, and a clock that jumps
    cluster.controller("labels", label_pods); // the controller as it is, as `main` runs it
    cluster.create(pod("web-0")).await;
    cluster.settle().await; // until nothing is left to do: no sleeps

    cluster.expire_watches(); // 410 Gone, as after a compaction of etcd
    let lost = cluster.inject(faults::timeout().but_applied().on(Verb::Patch, "pods").once());
    cluster.create(pod("web-1")).await;
    cluster.settle().await;

    cluster.assert_has(pod("web-1").label("seen", "true"));
    assert_eq!(lost.hits(), 1); // the server did it, and its answer never came
    assert_eq!(cluster.requests().on(Verb::Patch, "pods").count(), 2);
}
// README ends

/// Whatever goes wrong, every Pod has its label in the end.
#[test]
fn nothing_breaks_the_controller_of_the_readme() {
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

/// What README.md shows is what is tested here.
#[test]
fn the_readme_shows_this_test() {
    let (_, from) = include_str!("readme.rs")
        .split_once("// README begins\n")
        .expect("it begins");
    let (shown, _) = from.split_once("// README ends\n").expect("it ends");
    let readme = include_str!("../../README.md");
    assert!(
        readme.contains(&format!("```rust\n{shown}```\n")),
        "README.md shows something else than:\n{shown}"
    );
}
