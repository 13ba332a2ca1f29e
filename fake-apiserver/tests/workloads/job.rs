//! Jobs: completions, failures, indexes, suspension, and the cleanup afterwards.

use std::time::Duration;

use fake_apiserver::{PodScript, PodSelector, Worker};
use rstest::rstest;
use serde_json::{Value, json};

use crate::cluster::{Cluster, condition};

fn job(spec: Value) -> Value {
    let mut job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "work"},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox:1", "command": ["true"]}]}}},
    });
    for (field, value) in spec.as_object().expect("the value is an object") {
        job["spec"][field] = value.clone();
    }
    job
}

async fn work(cluster: &Cluster) -> Value {
    cluster.get("batch/v1", "Job", "work").await
}

#[rstest]
#[case::one_pod(json!({}), 5.0, json!({"succeeded": 1}))]
#[case::three_pods_in_parallel(json!({"completions": 3, "parallelism": 3}), 5.0, json!({"succeeded": 3}))]
#[case::three_pods_in_sequence(json!({"completions": 3}), 10.0, json!({"succeeded": 3}))]
#[case::work_queue(json!({"parallelism": 2}), 5.0, json!({"succeeded": 2}))]
#[case::indexed(
    json!({"completions": 4, "parallelism": 2, "completionMode": "Indexed"}), 10.0,
    json!({"succeeded": 4, "completedIndexes": "0-3"}),
)]
#[tokio::test(start_paused = true)]
async fn job_completes_after_its_pods_succeed(#[case] spec: Value, #[case] after: f64, #[case] want: Value) {
    let cluster = Cluster::start();
    cluster.create(job(spec)).await;
    cluster.pass(after).await;
    let work = work(&cluster).await;
    let reached = [
        "True",
        "CompletionsReached",
        "Reached expected number of succeeded pods",
    ];
    assert_eq!(condition(&work, "Complete"), reached, "{:#}", work["status"]);
    assert_eq!(condition(&work, "SuccessCriteriaMet"), reached);
    for (field, value) in want.as_object().expect("the value is an object") {
        assert_eq!(&work["status"][field], value, "{field}");
    }
    assert_eq!(work["status"]["uncountedTerminatedPods"], json!({}));
    assert!(work["status"]["completionTime"].is_string());
    let held = cluster
        .pods()
        .await
        .into_iter()
        .filter(|it| it["metadata"].get("finalizers").is_some())
        .count();
    assert_eq!(held, 0, "counted Pods have no finalizer");
    assert_eq!(cluster.events("Completed").await, ["Job completed"]);
}

#[rstest]
#[case::back_off_limit(json!({"backoffLimit": 1}), 1, 60.0, "BackoffLimitExceeded",
    "Job has reached the specified backoff limit")]
#[case::back_off_limit_of_zero(json!({"backoffLimit": 0}), 1, 10.0, "BackoffLimitExceeded",
    "Job has reached the specified backoff limit")]
#[case::active_deadline(json!({"activeDeadlineSeconds": 5, "backoffLimit": 9}), 1, 8.0, "DeadlineExceeded",
    "Job was active longer than specified deadline")]
#[case::pod_failure_policy(
    json!({"podFailurePolicy": {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}]}}), 42,
    10.0, "PodFailurePolicy", "matching FailJob rule at index 0",
)]
#[case::back_off_limit_per_index(
    json!({"completions": 2, "parallelism": 2, "completionMode": "Indexed", "backoffLimitPerIndex": 0}), 1, 10.0,
    "FailedIndexes", "Job has failed indexes",
)]
#[tokio::test(start_paused = true)]
async fn failed_job_reports_the_reason_of_its_failure(
    #[case] spec: Value,
    #[case] code: i32,
    #[case] after: f64,
    #[case] reason: &str,
    #[case] message: &str,
) {
    let cluster = Cluster::start();
    cluster
        .0
        .kubelet()
        .script(PodSelector::all(), PodScript::default().exits_with(code));
    cluster.create(job(spec)).await;
    cluster.pass(after).await;
    let work = work(&cluster).await;
    for kind in ["FailureTarget", "Failed"] {
        let [status, got, text] = condition(&work, kind);
        assert_eq!([status, got], ["True", reason], "{:#}", work["status"]);
        assert!(text.ends_with(message), "{text}");
    }
}

/// The commands of images are unknown to the server, and a Job with Pods that run forever would never complete.
#[tokio::test(start_paused = true)]
async fn job_with_an_unknown_command_completes() {
    let cluster = Cluster::start();
    let mut job = job(json!({}));
    job["spec"]["template"]["spec"]["containers"] = json!([{"name": "main", "image": "migrate:1"}]);
    cluster.create(job).await;
    cluster.pass(5.0).await;
    assert_eq!(condition(&work(&cluster).await, "Complete")[0], "True");
}

#[tokio::test(start_paused = true)]
async fn suspended_job_has_no_pods() {
    let cluster = Cluster::start();
    let long = PodScript::default().runs_for(Duration::from_secs(60));
    cluster.0.kubelet().script(PodSelector::all(), long);
    cluster.create(job(json!({"suspend": true}))).await;
    cluster.pass(3.0).await;
    assert_eq!(cluster.pods().await.len(), 0);
    assert_eq!(
        condition(&work(&cluster).await, "Suspended"),
        ["True", "JobSuspended", "Job suspended"]
    );
    cluster
        .patch("batch/v1", "Job", "work", json!({"spec": {"suspend": false}}))
        .await;
    cluster.pass(3.0).await;
    assert_eq!(cluster.pods().await.len(), 1);
    assert_eq!(
        condition(&work(&cluster).await, "Suspended"),
        ["False", "JobResumed", "Job resumed"]
    );
    assert_eq!(work(&cluster).await["status"]["active"], 1);
}

#[tokio::test(start_paused = true)]
async fn finished_job_is_deleted_after_its_ttl() {
    let cluster = Cluster::start();
    cluster.create(job(json!({"ttlSecondsAfterFinished": 30}))).await;
    cluster.pass(20.0).await;
    assert_eq!(condition(&work(&cluster).await, "Complete")[0], "True");
    cluster.pass(30.0).await;
    let work = work(&cluster).await;
    assert!(
        work.is_null() || work["metadata"]["deletionTimestamp"].is_string(),
        "{work:#}"
    );
}

/// Go's `syncOrphanPod`: Pods of a deleted Job are not counted.
#[rstest]
#[case::orphan("Orphan")]
#[case::background("Background")]
#[case::foreground("Foreground")]
#[tokio::test(start_paused = true)]
async fn pods_of_a_deleted_job_lose_the_job_tracking_finalizer(#[case] propagation: &str) {
    let cluster = Cluster::start();
    let mut running = job(json!({"parallelism": 2, "completions": 2}));
    running["spec"]["template"]["spec"]["containers"][0]["command"] = json!(["sleep", "1000"]);
    cluster.create(running).await;
    cluster.pass(5.0).await;
    let held = |pods: &[Value]| {
        let held = |it: &&Value| it["metadata"].get("finalizers").is_some();
        pods.iter().filter(held).count()
    };
    assert_eq!(held(&cluster.pods().await), 2);
    let path = "/apis/batch/v1/namespaces/default/jobs/work";
    let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": propagation});
    assert_eq!(cluster.send("DELETE", path, &options).await.0, 200);
    cluster.pass(60.0).await;
    assert_eq!(work(&cluster).await, Value::Null);
    let pods = cluster.pods().await;
    assert_eq!(pods.len(), if propagation == "Orphan" { 2 } else { 0 });
    assert_eq!(held(&pods), 0);
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_deleted_job_lose_the_finalizer_without_a_garbage_collector() {
    let cluster = Cluster::with(&[Worker::Job, Worker::Kubelet]);
    cluster
        .create(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}))
        .await;
    let mut running = job(json!({}));
    running["spec"]["template"]["spec"]["containers"][0]["command"] = json!(["sleep", "1000"]);
    cluster.create(running).await;
    cluster.pass(5.0).await;
    let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"});
    cluster
        .send("DELETE", "/apis/batch/v1/namespaces/default/jobs/work", &options)
        .await;
    cluster.pass(5.0).await;
    let pods = cluster.pods().await;
    assert_eq!(pods.len(), 1);
    assert_eq!(pods[0]["metadata"].get("finalizers"), None);
}

#[tokio::test(start_paused = true)]
async fn job_sets_its_start_time_if_a_quota_forbids_pods() {
    let cluster = Cluster::start();
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"},
        "spec": {"hard": {"pods": "0"}}});
    cluster.create(quota).await;
    cluster.pass(5.0).await;
    cluster.create(job(json!({}))).await;
    cluster.pass(5.0).await;
    assert_eq!(cluster.pods().await, Vec::<Value>::new());
    let status = &cluster.get("batch/v1", "Job", "work").await["status"];
    assert!(status["startTime"].is_string(), "{status}");
    let failed = cluster.events("FailedCreate").await;
    assert!(
        failed.iter().any(|it| it.contains("exceeded quota: none")),
        "{failed:?}"
    );
    cluster.delete("v1", "ResourceQuota", "none").await;
    cluster.pass(1200.0).await;
    assert!(!cluster.pods().await.is_empty());
}

/// Kueue and other controllers manage their own Jobs (KEP-4368).
#[rstest]
#[case("kubernetes.io/job-controller", 1)]
#[case("example.com/queue", 0)]
#[tokio::test(start_paused = true)]
async fn job_of_another_controller_is_ignored(#[case] manager: &str, #[case] pods: usize) {
    let cluster = Cluster::start();
    let spec = json!({"managedBy": manager, "ttlSecondsAfterFinished": 60});
    cluster.create(job(spec)).await;
    cluster.pass(3.0).await;
    assert_eq!(cluster.pods().await.len(), pods);
    assert_eq!(work(&cluster).await["status"] == json!({}), pods == 0);
    cluster.delete("batch/v1", "Job", "work").await;
    cluster.pass(3.0).await;
    assert_eq!(work(&cluster).await, Value::Null);
}

/// Go's `deleteJobPods` deletes Pods without counting them; after a success the remaining ones are superfluous.
#[rstest]
#[case::suspended(json!({}), json!({"spec": {"suspend": true}}))]
#[case::scaled_down(json!({}), json!({"spec": {"parallelism": 0}}))]
#[case::succeeded(
    json!({"completions": 3, "completionMode": "Indexed", "successPolicy": {"rules": [{"succeededIndexes": "0"}]}}),
    Value::Null,
)]
#[tokio::test(start_paused = true)]
async fn superfluous_pod_does_not_count_as_failed(#[case] spec: Value, #[case] change: Value) {
    let cluster = Cluster::start();
    let kubelet = cluster.0.kubelet();
    kubelet.script(
        PodSelector::all(),
        PodScript::default().runs_for(Duration::from_secs(600)),
    );
    let first = PodSelector::labelled("batch.kubernetes.io/job-completion-index=0").expect("the selector is valid");
    kubelet.script(first, PodScript::default().runs_for(Duration::from_secs(1)));
    let mut job = job(spec);
    job["spec"]["parallelism"] = 3.into();
    cluster.create(job).await;
    cluster.pass(0.8).await;
    assert_eq!(work(&cluster).await["status"]["active"], 3);
    if !change.is_null() {
        cluster.patch("batch/v1", "Job", "work", change).await;
    }
    cluster.pass(60.0).await;
    let status = &work(&cluster).await["status"];
    assert_eq!(status.get("failed"), None, "{status:#}");
    let running = cluster.pods().await;
    assert!(
        running.iter().all(|it| it["status"]["phase"] == "Succeeded"),
        "{running:#?}"
    );
}

fn names_of(pods: &[Value]) -> Vec<String> {
    let index = |it: &Value| {
        let index = &it["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"];
        index.as_str().unwrap_or_default().to_owned()
    };
    let mut all: Vec<String> = pods.iter().map(index).collect();
    all.sort();
    all
}

#[tokio::test(start_paused = true)]
async fn indexes_at_or_above_the_completions_are_dropped() {
    let cluster = Cluster::start();
    let long = PodScript::default().runs_for(Duration::from_secs(1000));
    cluster.0.kubelet().script(PodSelector::all(), long);
    let indexed = json!({"completions": 4, "parallelism": 4, "completionMode": "Indexed"});
    cluster.create(job(indexed)).await;
    cluster.pass(3.0).await;
    let pods = cluster.pods().await;
    let of = |index: &str| {
        let is = |it: &&Value| it["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"] == index;
        pods.iter().find(is).expect("the index has a Pod")["metadata"]["name"].clone()
    };
    let done = of("3");
    let done = PodSelector::named("default", done.as_str().unwrap_or_default());
    cluster
        .0
        .kubelet()
        .script(done, PodScript::default().runs_for(Duration::from_secs(5)));
    cluster.pass(6.0).await;
    assert_eq!(work(&cluster).await["status"]["completedIndexes"], "3");
    let spec = json!({"spec": {"completions": 2, "parallelism": 2}});
    cluster.patch("batch/v1", "Job", "work", spec).await;
    cluster.pass(40.0).await;
    let status = work(&cluster).await["status"].clone();
    assert_eq!(status["completedIndexes"], Value::Null, "{status:#}");
    assert_eq!(
        (&status["succeeded"], &status["active"]),
        (&Value::Null, &json!(2)),
        "{status:#}"
    );
    let mut left = cluster.pods().await;
    left.retain(|it| it["status"]["phase"] == "Running");
    assert_eq!(names_of(&left), ["0", "1"]);
}

#[tokio::test(start_paused = true)]
async fn pods_of_an_indexed_job_get_the_name_of_their_index_as_host_name() {
    let cluster = Cluster::start();
    let mut indexed = job(json!({"completions": 1, "completionMode": "Indexed"}));
    indexed["spec"]["template"]["spec"]["hostname"] = json!("mine");
    cluster.create(indexed).await;
    cluster.pass(1.0).await;
    assert_eq!(cluster.pods().await[0]["spec"]["hostname"], "work-0");
}

#[tokio::test(start_paused = true)]
async fn each_index_with_its_own_limit_has_its_own_back_off() {
    let cluster = Cluster::start();
    cluster
        .0
        .kubelet()
        .script(PodSelector::all(), PodScript::default().exits_with(1));
    let indexed = json!({"completions": 1, "completionMode": "Indexed", "backoffLimitPerIndex": 3});
    cluster.create(job(indexed)).await;
    for (after, pods) in [(9.0, 1), (6.0, 2), (12.0, 2), (12.0, 3)] {
        cluster.pass(after).await;
        assert_eq!(cluster.pods().await.len(), pods, "after {after} more seconds");
    }
}

/// An ended Pod is adopted and counted, like a running one.
#[tokio::test(start_paused = true)]
async fn ended_pod_without_an_owner_is_adopted_by_a_job() {
    let cluster = Cluster::start();
    let labels = json!({"app": "work"});
    let mut adopting = job(json!({"manualSelector": true, "selector": {"matchLabels": labels}}));
    adopting["spec"]["template"]["metadata"] = json!({"labels": labels});
    let done = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "done", "namespace": "default", "labels": labels,
            "finalizers": ["batch.kubernetes.io/job-tracking"]},
        "spec": adopting["spec"]["template"]["spec"], "status": {"phase": "Succeeded"},
    });
    cluster.0.load([done]).expect("the Pod is valid");
    cluster.create(adopting).await;
    cluster.pass(5.0).await;
    assert_eq!(cluster.pods().await.len(), 1);
    assert_eq!(condition(&work(&cluster).await, "Complete")[0], "True");
}
