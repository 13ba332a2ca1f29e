//! Controllers under test and the server's own controllers on each minor version of Kubernetes.

use fake_apiserver::KubernetesVersion;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use rstest::rstest;
use testkit::objects::pod;
use testkit::{TestCluster, Worker};

use crate::support::label_pods;

const DEPLOYMENT: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: web}]}
";

#[rstest]
#[tokio::test(start_paused = true)]
async fn controller_and_workers_run_on_every_kubernetes_version() {
    for version in KubernetesVersion::ALL {
        let cluster = TestCluster::builder()
            .server(|it| it.kubernetes_version(version))
            .workers(Worker::ALL)
            .yaml(DEPLOYMENT)
            .start();
        cluster.run(label_pods(cluster.client()));
        cluster.create(pod("alone")).await;
        cluster.settle().await;

        let client = cluster.client();
        let deployment: Api<Deployment> = Api::default_namespaced(client.clone());
        let web = deployment.get("web").await.expect("the object exists");
        assert_eq!(web.status.and_then(|it| it.ready_replicas), Some(2), "{version}");
        let pods: Api<Pod> = Api::default_namespaced(client);
        let pods = pods
            .list(&ListParams::default().labels("seen=true"))
            .await
            .expect("the list succeeds");
        assert_eq!(pods.items.len(), 3, "{version}");
    }
}
