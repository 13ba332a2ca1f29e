//! Tests of both implementations of the operator, with `informer` and with kube-runtime.

use examples::web::{self, Web, web};
use examples::web_on_kube_runtime;
use informer::Clock;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;
use rstest::rstest;
use serde_json::json;
use testkit::{Running, TestCluster, Verb, faults};

/// The library on which the operator is based.
#[derive(Clone, Copy, Debug)]
enum On {
    Informer,
    KubeRuntime,
}

impl On {
    fn start(self) -> TestCluster {
        let cluster = TestCluster::builder().crd::<Web>().start();
        self.run(&cluster);
        cluster
    }

    fn run(self, cluster: &TestCluster) -> Running {
        let clock = Clock::starting_at(cluster.server().now());
        match self {
            Self::Informer => cluster.run(web::run(cluster.client(), clock)),
            Self::KubeRuntime => cluster.run(web_on_kube_runtime::run(cluster.client(), clock)),
        }
    }
}

fn ready(cluster: &TestCluster) -> (i32, String) {
    let status = cluster.get::<Web>("shop").status.expect("the object has a status");
    let [condition] = &status.conditions[..] else {
        panic!("{status:?}")
    };
    (status.ready_replicas, condition.status.clone())
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn operator_creates_an_owned_deployment_and_a_service(#[values(On::Informer, On::KubeRuntime)] on: On) {
    let cluster = on.start();
    let shop = cluster.create(web("shop", 2)).await;
    cluster.settle().await;
    let deployment = cluster.get::<Deployment>("shop");
    assert_eq!(deployment.spec.as_ref().and_then(|it| it.replicas), Some(2));
    let owners = deployment
        .metadata
        .owner_references
        .expect("the object has owner references");
    assert_eq!(Some(&owners[0].uid), shop.metadata.uid.as_ref());
    assert!(cluster.exists::<Service>("shop"));
    assert_eq!(ready(&cluster), (0, "False".to_owned()));
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn status_follows_the_deployment(#[values(On::Informer, On::KubeRuntime)] on: On) {
    let cluster = on.start();
    cluster.create(web("shop", 2)).await;
    cluster.settle().await;
    cluster
        .patch_status::<Deployment>("shop", json!({"replicas": 2, "readyReplicas": 2}))
        .await;
    cluster.settle().await;
    assert_eq!(ready(&cluster), (2, "True".to_owned()));
    cluster.patch::<Web>("shop", json!({"spec": {"replicas": 3}})).await;
    cluster.settle().await;
    assert_eq!(
        cluster.get::<Deployment>("shop").spec.and_then(|it| it.replicas),
        Some(3)
    );
    assert_eq!(ready(&cluster), (2, "False".to_owned()));
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn changes_by_other_clients_are_reverted(#[values(On::Informer, On::KubeRuntime)] on: On) {
    let cluster = on.start();
    cluster.create(web("shop", 2)).await;
    cluster.settle().await;
    cluster
        .patch::<Deployment>("shop", json!({"spec": {"replicas": 9}}))
        .await;
    cluster.delete::<Service>("shop").await;
    cluster.settle().await;
    assert_eq!(
        cluster.get::<Deployment>("shop").spec.and_then(|it| it.replicas),
        Some(2)
    );
    assert!(cluster.exists::<Service>("shop"));
}

#[rstest]
#[case::conflict(faults::conflict().once())]
#[case::server_error(faults::server_error().times(3))]
#[case::lost_response(faults::timeout().but_applied().once())]
#[tokio::test(start_paused = true)]
async fn failed_requests_are_retried(
    #[values(On::Informer, On::KubeRuntime)] on: On,
    #[case] fault: testkit::FaultBuilder,
) {
    let cluster = on.start();
    cluster.inject(fault.on_writes("deployments.apps")).forget();
    cluster.create(web("shop", 1)).await;
    cluster.settle().await;
    assert!(cluster.exists::<Deployment>("shop") && cluster.exists::<Service>("shop"));
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn restart_and_expired_watch_do_not_change_objects(#[values(On::Informer, On::KubeRuntime)] on: On) {
    let cluster = TestCluster::builder().crd::<Web>().start();
    let running = on.run(&cluster);
    cluster.create(web("shop", 1)).await;
    cluster.settle().await;
    let revision = cluster.server().resource_version();
    running.crash();
    on.run(&cluster);
    cluster.settle().await;
    cluster.expire_watches();
    cluster.settle().await;
    assert_eq!(cluster.server().resource_version(), revision);
}

#[tokio::test(start_paused = true)]
async fn operator_does_not_send_requests_if_only_labels_change() {
    let cluster = On::Informer.start();
    cluster.create(web("shop", 1)).await;
    cluster.settle().await;
    let before = requests(&cluster);
    cluster
        .patch::<Web>("shop", json!({"metadata": {"labels": {"seen": "true"}}}))
        .await;
    cluster.settle().await;
    assert_eq!(requests(&cluster), before);
}

/// Returns the operator's requests except for watches.
fn requests(cluster: &TestCluster) -> usize {
    let reads = ["deployments.apps", "services", "webs.example.com"];
    let reads = reads.map(|it| cluster.requests().on(Verb::Get, it).count());
    reads.iter().sum::<usize>() + cluster.requests().writes().count()
}
