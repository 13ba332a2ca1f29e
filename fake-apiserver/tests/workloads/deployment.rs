//! Deployments and their ReplicaSets.

use serde_json::json;

use crate::cluster::{Cluster, condition, deployment};

#[tokio::test(start_paused = true)]
async fn a_deployment_comes_up() {
    let cluster = Cluster::start();
    cluster.create(deployment("web", 3)).await;
    cluster.pass(2.0).await;
    let web = cluster.get("apps/v1", "Deployment", "web").await;
    let sets = cluster.list("apps/v1", "ReplicaSet").await;
    let pods = cluster.pods().await;
    eprintln!("{web:#}\n{:#}\n{:#}", sets[0], pods[0]);
    for e in cluster.list("v1", "Event").await { eprintln!("{} {} {}", e["involvedObject"]["kind"], e["reason"], e["message"]); }
    assert_eq!(condition(&web, "Progressing")[1], "NewReplicaSetAvailable");
    assert_eq!(web["status"]["availableReplicas"], json!(3));
}
