//! restate-operator 2.8: a StatefulSet and related objects for each cluster, on kube 2. With claims that cannot grow, a
//! cluster is reported as ready from a stale cache.
#![cfg(test)]

use kube::Client;
use restate_operator::controllers::{State, report_pending_crds, restatecloudenvironment, restatecluster};
use serde_json::json;
use testkit::explore::explore;
use testkit::objects::{object, secret};
use testkit::{TestCluster, TestClusterBuilder, Worker};

fn builder(claims_grow: bool) -> TestClusterBuilder {
    let class = object("storage.k8s.io/v1", "StorageClass", "standard")
        .annotation("storageclass.kubernetes.io/is-default-class", "true")
        .set("provisioner", "example.com/disk")
        .set("allowVolumeExpansion", claims_grow);
    let crds = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../target/operators/restate-operator/crd/");
    TestCluster::builder()
        .workers(Worker::ALL)
        .file(format!("{crds}restateclusters.yaml"))
        .file(format!("{crds}restatecloudenvironments.yaml"))
        .object(class)
}

async fn run(client: Client) {
    let text = |text: &str| text.to_owned();
    let names = [text("default"), text("tunnel:1"), text("cluster.local"), text("alpine:1")];
    let [namespace, tunnel, domain, canary] = names;
    let state = State::new(None, false, namespace, None, None, tunnel, domain, canary, None, None);
    let metrics = restate_operator::Metrics::default();
    let metrics = metrics.register(&state.registry).expect("names of metrics are unique");
    tokio::join!(
        restatecluster::run(client.clone(), metrics.clone(), state.clone()),
        restatecloudenvironment::run(client.clone(), metrics, state.clone()),
        report_pending_crds(client, state),
    );
}

async fn cluster_is_created_changed_and_deleted(cluster: &TestCluster) {
    cluster
        .controller_over("restate", |service| run(Client::new(service, "default")))
        .restarts();
    let dev = || object("restate.dev/v1", "RestateCluster", "dev");
    let spec = |image: &str, bytes: u64| {
        let compute = json!({"image": image, "replicas": 1});
        json!({"compute": compute, "storage": {"storageRequestBytes": bytes}})
    };
    cluster.create(dev().set("spec", spec("restatedev/restate:1.6.2", 2 << 30))).await;
    cluster.settle().await;
    cluster.patch(dev(), json!({"spec": spec("restatedev/restate:1.6.3", 4 << 30)})).await;
    cluster.settle().await;
    cluster.create(secret("cloud").set("stringData", json!({"token": "t"}))).await;
    let environment = || object("restate.dev/v1beta1", "RestateCloudEnvironment", "env");
    let authentication = json!({"secret": {"name": "cloud", "key": "token"}});
    let cloud = json!({"environmentId": "env_1", "region": "us", "signingPublicKey": "publickeyv1_x",
        "authentication": authentication});
    cluster.create(environment().set("spec", cloud)).await;
    cluster.settle().await;
    cluster.delete(dev()).await;
    cluster.settle().await;
    cluster.delete(environment()).await;
    cluster.settle().await;
}

#[test]
fn growing_volume_claims_are_not_reported() {
    explore(cluster_is_created_changed_and_deleted).cluster(builder(true)).run();
}
