//! Deployments: rollout, history, scaling, conditions.

use fake_apiserver::{PodScript, PodSelector, Worker};
use rstest::rstest;
use serde_json::{Value, json};

use crate::cluster::{Cluster, condition, deployment};

const APPS: &str = "apps/v1";

async fn web(cluster: &Cluster) -> Value {
    cluster.get(APPS, "Deployment", "web").await
}

/// Returns the revision and the size of each ReplicaSet, oldest revision first.
async fn sets(cluster: &Cluster) -> Vec<(u64, u64)> {
    let revision = |set: &Value| {
        let text = set["metadata"]["annotations"]["deployment.kubernetes.io/revision"].as_str();
        text.and_then(|it| it.parse().ok()).unwrap_or_default()
    };
    let all = cluster.list(APPS, "ReplicaSet").await;
    let mut sets: Vec<(u64, u64)> = all
        .iter()
        .map(|set| (revision(set), set["spec"]["replicas"].as_u64().unwrap_or_default()))
        .collect();
    sets.sort_unstable();
    sets
}

fn image(image: &str) -> Value {
    json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "image": image}]}}}})
}

#[tokio::test(start_paused = true)]
async fn rollout_reports_the_same_conditions_as_kubernetes() {
    let cluster = Cluster::start();
    cluster.create(deployment("web", 3)).await;
    cluster.pass(0.5).await;
    let early = web(&cluster).await;
    let set = cluster.list(APPS, "ReplicaSet").await.remove(0);
    let name = set["metadata"]["name"].as_str().expect("the name is a string");
    assert_eq!(
        condition(&early, "Available"),
        [
            "False",
            "MinimumReplicasUnavailable",
            "Deployment does not have minimum availability."
        ]
    );
    let progressing = format!("ReplicaSet \"{name}\" is progressing.");
    assert_eq!(
        condition(&early, "Progressing"),
        ["True", "ReplicaSetUpdated", &progressing]
    );
    cluster.pass(1.5).await;
    let late = web(&cluster).await;
    assert_eq!(
        condition(&late, "Available"),
        [
            "True",
            "MinimumReplicasAvailable",
            "Deployment has minimum availability."
        ]
    );
    let done = format!("ReplicaSet \"{name}\" has successfully progressed.");
    assert_eq!(
        condition(&late, "Progressing"),
        ["True", "NewReplicaSetAvailable", &done]
    );
    let status = &late["status"];
    for field in ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas"] {
        assert_eq!(status[field], 3, "{field}");
    }
    assert_eq!(status["observedGeneration"], late["metadata"]["generation"]);
    assert_eq!(
        late["metadata"]["annotations"]["deployment.kubernetes.io/revision"],
        "1"
    );
    assert_eq!(
        cluster.events("ScalingReplicaSet").await,
        [format!("Scaled up replica set {name} from 0 to 3")]
    );
    assert_eq!(
        set["metadata"]["labels"]["pod-template-hash"],
        set["spec"]["selector"]["matchLabels"]["pod-template-hash"]
    );
}

#[tokio::test(start_paused = true)]
async fn rolling_update_stays_within_surge_and_unavailability() {
    let cluster = Cluster::start();
    cluster.create(deployment("web", 4)).await;
    cluster.pass(3.0).await;
    cluster.patch(APPS, "Deployment", "web", image("nginx:2")).await;
    let mut steps = 0;
    while sets(&cluster).await != [(1, 0), (2, 4)] || web(&cluster).await["status"]["availableReplicas"] != 4 {
        let ready = cluster
            .pods()
            .await
            .iter()
            .filter(|it| condition(it, "Ready")[0] == "True")
            .count();
        assert!(ready >= 3, "at most one of four may be missing, {ready} are ready");
        let asked: u64 = sets(&cluster).await.iter().map(|(_, size)| size).sum();
        assert!(asked <= 5, "at most five Pods may exist, not {asked}");
        cluster.pass(0.25).await;
        steps += 1;
        assert!(steps < 100, "the roll-out never ends");
    }
    cluster.pass(2.0).await;
    assert_eq!(cluster.pods().await.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn rollback_assigns_a_new_revision_to_the_old_replica_set() {
    let cluster = Cluster::start();
    cluster.create(deployment("web", 1)).await;
    cluster.pass(3.0).await;
    cluster.patch(APPS, "Deployment", "web", image("nginx:2")).await;
    cluster.pass(5.0).await;
    cluster.patch(APPS, "Deployment", "web", image("nginx:1")).await;
    cluster.pass(5.0).await;
    assert_eq!(sets(&cluster).await, [(2, 0), (3, 1)]);
    let all = cluster.list(APPS, "ReplicaSet").await;
    let back = all
        .iter()
        .find(|it| it["spec"]["replicas"] == 1)
        .expect("the ReplicaSet exists");
    assert_eq!(
        back["metadata"]["annotations"]["deployment.kubernetes.io/revision-history"],
        "1"
    );
}

#[tokio::test(start_paused = true)]
async fn old_replica_sets_above_the_history_limit_are_deleted() {
    let cluster = Cluster::start();
    let mut it = deployment("web", 1);
    it["spec"]["revisionHistoryLimit"] = json!(1);
    cluster.create(it).await;
    for version in 1..5 {
        cluster
            .patch(APPS, "Deployment", "web", image(&format!("nginx:1.{version}")))
            .await;
        cluster.pass(5.0).await;
    }
    assert_eq!(
        sets(&cluster).await,
        [(4, 0), (5, 1)].map(|(revision, size)| (revision - 1, size))
    );
}

#[tokio::test(start_paused = true)]
async fn recreate_strategy_waits_until_the_old_pods_are_gone() {
    let cluster = Cluster::start();
    cluster.0.kubelet().script(
        PodSelector::all(),
        PodScript::default().stops_after(std::time::Duration::from_secs(5)),
    );
    let mut it = deployment("web", 2);
    it["spec"]["strategy"] = json!({"type": "Recreate"});
    cluster.create(it).await;
    cluster.pass(3.0).await;
    cluster.patch(APPS, "Deployment", "web", image("nginx:2")).await;
    cluster.pass(3.0).await;
    assert_eq!(sets(&cluster).await, [(1, 0)]);
    cluster.pass(5.0).await;
    assert_eq!(sets(&cluster).await, [(1, 0), (2, 2)]);
}

#[tokio::test(start_paused = true)]
async fn paused_deployment_scales_but_does_not_roll_out() {
    let cluster = Cluster::start();
    cluster.create(deployment("web", 1)).await;
    cluster.pass(3.0).await;
    cluster
        .patch(APPS, "Deployment", "web", json!({"spec": {"paused": true}}))
        .await;
    cluster.patch(APPS, "Deployment", "web", image("nginx:2")).await;
    cluster
        .patch(APPS, "Deployment", "web", json!({"spec": {"replicas": 3}}))
        .await;
    cluster.pass(3.0).await;
    assert_eq!(sets(&cluster).await, [(1, 3)]);
    assert_eq!(
        condition(&web(&cluster).await, "Progressing"),
        ["Unknown", "DeploymentPaused", "Deployment is paused"]
    );
    cluster
        .patch(APPS, "Deployment", "web", json!({"spec": {"paused": false}}))
        .await;
    cluster.pass(10.0).await;
    assert_eq!(sets(&cluster).await, [(1, 0), (2, 3)]);
    assert_eq!(
        condition(&web(&cluster).await, "Progressing")[1],
        "NewReplicaSetAvailable"
    );
}

#[rstest]
#[case::pods_never_ready(PodScript::default().never_ready())]
#[case::missing_image(PodScript::default().image_pull_error())]
#[tokio::test(start_paused = true)]
async fn stalled_rollout_exceeds_its_progress_deadline(#[case] script: PodScript) {
    let cluster = Cluster::start();
    cluster
        .0
        .kubelet()
        .script(PodSelector::labelled("app=web").expect("the selector is valid"), script);
    let mut it = deployment("web", 1);
    it["spec"]["progressDeadlineSeconds"] = json!(30);
    cluster.create(it).await;
    cluster.pass(29.0).await;
    assert_eq!(condition(&web(&cluster).await, "Progressing")[1], "ReplicaSetUpdated");
    cluster.pass(4.0).await;
    let web = web(&cluster).await;
    let [status, reason, message] = condition(&web, "Progressing");
    assert_eq!([status, reason], ["False", "ProgressDeadlineExceeded"]);
    assert!(message.ends_with("has timed out progressing."), "{message}");
}

#[tokio::test(start_paused = true)]
async fn refused_replica_set_is_reported() {
    let cluster = Cluster::start();
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"},
        "spec": {"hard": {"count/replicasets.apps": "0"}}});
    cluster.create(quota).await;
    cluster.pass(1.0).await;
    cluster.create(deployment("web", 1)).await;
    cluster.pass(1.0).await;
    let web = web(&cluster).await;
    let [status, reason, message] = condition(&web, "Progressing");
    assert_eq!(
        [status, reason],
        ["False", "ReplicaSetCreateError"],
        "{:#}",
        web["status"]
    );
    assert!(
        message.starts_with("Failed to create new replica set \"web-"),
        "{message}"
    );
    assert!(message.contains("\": replicasets.apps \"web-"), "{message}");
    assert!(
        cluster
            .events("ReplicaSetCreateError")
            .await
            .contains(&message.to_owned())
    );
    assert_eq!(cluster.events("ScalingReplicaSet").await, Vec::<String>::new());
    cluster.delete("v1", "ResourceQuota", "none").await;
    cluster.pass(1200.0).await;
    assert_eq!(condition(&self::web(&cluster).await, "Available")[0], "True");
}

/// `oldPodsRunning` first trusts the status of the old ReplicaSets.
#[tokio::test(start_paused = true)]
async fn recreate_waits_until_old_replica_sets_report_no_pods() {
    let cluster = Cluster::with(&[Worker::Deployment]);
    let mut recreating = deployment("web", 1);
    recreating["spec"]["strategy"] = json!({"type": "Recreate"});
    cluster.create(recreating).await;
    cluster.pass(0.1).await;
    let set = cluster.list(APPS, "ReplicaSet").await.remove(0);
    let name = set["metadata"]["name"].as_str().unwrap_or_default();
    let put = async |replicas: u32| {
        let path = format!("/apis/apps/v1/namespaces/default/replicasets/{name}/status");
        let (code, _) = cluster
            .send("PATCH", &path, &json!({"status": {"replicas": replicas}}))
            .await;
        assert_eq!(code, 200);
        cluster.pass(0.1).await;
    };
    put(1).await;
    cluster.patch(APPS, "Deployment", "web", image("nginx:2")).await;
    cluster.pass(1.0).await;
    assert_eq!(sets(&cluster).await, [(1, 0)]);
    put(0).await;
    assert_eq!(sets(&cluster).await, [(1, 0), (2, 1)]);
}

#[tokio::test(start_paused = true)]
async fn annotations_of_a_replica_set_are_only_written_when_it_is_scaled() {
    let cluster = Cluster::with(&[Worker::Deployment]);
    cluster.create(deployment("web", 4)).await;
    cluster.pass(0.1).await;
    let most = async || {
        let set = cluster.list(APPS, "ReplicaSet").await.remove(0);
        set["metadata"]["annotations"]["deployment.kubernetes.io/max-replicas"].clone()
    };
    assert_eq!(most().await, "5");
    let surge = json!({"spec": {"paused": true, "strategy": {"rollingUpdate": {"maxSurge": 3}}}});
    cluster.patch(APPS, "Deployment", "web", surge).await;
    cluster.pass(0.1).await;
    assert_eq!(most().await, "5");
    cluster
        .patch(APPS, "Deployment", "web", json!({"spec": {"replicas": 6}}))
        .await;
    cluster.pass(0.1).await;
    assert_eq!(most().await, "9");
}
