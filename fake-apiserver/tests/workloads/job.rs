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
#[case::backoff_limit(json!({"backoffLimit": 1}), 1, 60.0, "BackoffLimitExceeded",
    "Job has reached the specified backoff limit")]
#[case::backoff_limit_of_zero(json!({"backoffLimit": 0}), 1, 10.0, "BackoffLimitExceeded",
    "Job has reached the specified backoff limit")]
#[case::active_deadline(json!({"activeDeadlineSeconds": 5, "backoffLimit": 9}), 1, 8.0, "DeadlineExceeded",
    "Job was active longer than specified deadline")]
#[case::pod_failure_policy(
    json!({"podFailurePolicy": {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}]}}), 42,
    10.0, "PodFailurePolicy", "matching FailJob rule at index 0",
)]
#[case::backoff_limit_per_index(
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
async fn job_managed_by_another_controller_is_ignored(#[case] manager: &str, #[case] pods: usize) {
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
#[case::suspended_job(json!({}), json!({"spec": {"suspend": true}}))]
#[case::reduced_parallelism(json!({}), json!({"spec": {"parallelism": 0}}))]
#[case::succeeded_index(
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
async fn backoff_is_per_index_if_the_limit_is_per_index() {
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

/// Returns a cluster without kubelets, with this Job.
async fn without_kubelet(job: Value) -> Cluster {
    let cluster = Cluster::with(&[Worker::Job]);
    cluster.create(job).await;
    cluster.pass(0.1).await;
    cluster
}

/// Sets the phase of the Pods that have not ended.
async fn end(cluster: &Cluster, status: Value) {
    for pod in cluster.pods().await {
        if pod["status"]["phase"] == "Pending" {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            let path = format!("/api/v1/namespaces/default/pods/{name}/status");
            let (code, _) = cluster.send("PATCH", &path, &json!({"status": status})).await;
            assert_eq!(code, 200);
        }
    }
    cluster.pass(0.1).await;
}

fn is_pending(pod: &&Value) -> bool {
    pod["status"]["phase"] == "Pending" && pod["metadata"].get("deletionTimestamp").is_none()
}

async fn pending(cluster: &Cluster) -> Vec<Value> {
    cluster.pods().await.iter().filter(is_pending).cloned().collect()
}

/// Ignored failures of an index are counted in another annotation, which only delays the next Pod.
#[tokio::test(start_paused = true)]
async fn ignored_failures_of_an_index_are_counted_separately() {
    let rule = json!({"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]});
    let cluster = without_kubelet(job(json!({
        "completions": 1, "completionMode": "Indexed", "backoffLimitPerIndex": 1, "podFailurePolicy": {"rules": [rule]},
    })))
    .await;
    let disrupted = json!({"phase": "Failed", "conditions": [{"type": "DisruptionTarget", "status": "True"}]});
    let counts = async || {
        let pod = pending(&cluster).await.remove(0);
        ["failure-count", "ignored-failure-count"]
            .map(|it| pod["metadata"]["annotations"][format!("batch.kubernetes.io/job-index-{it}")].clone())
    };
    assert_eq!(counts().await, [json!("0"), Value::Null]);
    for (number, wait) in [("1", 11.0), ("2", 21.0)] {
        end(&cluster, disrupted.clone()).await;
        cluster.pass(wait).await;
        assert_eq!(counts().await, [json!("0"), json!(number)]);
    }
    end(&cluster, json!({"phase": "Failed"})).await;
    cluster.pass(41.0).await;
    assert_eq!(counts().await, [json!("1"), json!("2")]);
    assert_eq!(work(&cluster).await["status"]["failedIndexes"], "");
}

/// The time of a failure is estimated if no container of the Pod has terminated (`getFinishedTime`).
#[rstest]
#[case::failed_pod(false, json!({}), 1)]
#[case::deleted_pod(true, json!({}), 1)]
#[case::deleted_pod_of_an_index(
    true, json!({"completions": 1, "completionMode": "Indexed", "backoffLimitPerIndex": 2}), 1)]
#[tokio::test(start_paused = true)]
async fn pod_is_replaced_after_a_backoff(#[case] is_deleted: bool, #[case] spec: Value, #[case] pods: usize) {
    let cluster = without_kubelet(job(spec)).await;
    if is_deleted {
        let name = cluster.pods().await[0]["metadata"]["name"].clone();
        cluster.delete("v1", "Pod", name.as_str().unwrap_or_default()).await;
    } else {
        end(&cluster, json!({"phase": "Failed"})).await;
    }
    cluster.pass(8.5).await;
    assert_eq!(pending(&cluster).await.len(), 0);
    cluster.pass(2.0).await;
    let new = pending(&cluster).await;
    assert_eq!(new.len(), pods);
    if is_deleted && new[0]["metadata"]["annotations"].is_object() {
        assert_eq!(
            new[0]["metadata"]["annotations"]["batch.kubernetes.io/job-index-failure-count"],
            "1"
        );
    }
}

/// The failure count of the next Pod is derived from the last failed Pod.
#[tokio::test(start_paused = true)]
async fn last_failed_pod_of_an_index_keeps_its_finalizer_until_it_is_replaced() {
    let spec = json!({"completions": 1, "completionMode": "Indexed", "backoffLimitPerIndex": 2});
    let cluster = without_kubelet(job(spec)).await;
    end(&cluster, json!({"phase": "Failed"})).await;
    let held = async || {
        let pods = cluster.pods().await;
        let failed = pods.iter().find(|it| it["status"]["phase"] == "Failed");
        failed.expect("the Pod exists")["metadata"].get("finalizers").is_some()
    };
    assert!(held().await);
    cluster.pass(11.0).await;
    assert_eq!(pending(&cluster).await.len(), 1);
    assert!(!held().await);
    assert_eq!(work(&cluster).await["status"]["failed"], 1);
}

#[tokio::test(start_paused = true)]
async fn adopted_pod_receives_the_job_tracking_finalizer_and_is_counted() {
    let cluster = Cluster::with(&[Worker::Job]);
    let labels = json!({"app": "work"});
    let mut adopting = job(json!({"manualSelector": true, "selector": {"matchLabels": labels}}));
    adopting["spec"]["template"]["metadata"] = json!({"labels": labels});
    let mut orphan = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "orphan", "labels": labels}});
    orphan["spec"] = adopting["spec"]["template"]["spec"].clone();
    cluster.create(orphan).await;
    cluster.create(adopting).await;
    cluster.pass(0.1).await;
    let pods = cluster.pods().await;
    assert_eq!(pods.len(), 1);
    assert_eq!(
        pods[0]["metadata"]["finalizers"],
        json!(["batch.kubernetes.io/job-tracking"])
    );
    end(&cluster, json!({"phase": "Succeeded"})).await;
    assert_eq!(condition(&work(&cluster).await, "Complete")[0], "True");
}

#[rstest]
#[case::no_longer_matching_labels(json!({"labels": {"batch.kubernetes.io/controller-uid": "other"}}))]
#[case::removed_owner_reference(json!({"ownerReferences": null, "labels": {"batch.kubernetes.io/controller-uid": "other"}}))]
#[tokio::test(start_paused = true)]
async fn released_pod_of_a_job_loses_the_finalizer(#[case] metadata: Value) {
    let cluster = without_kubelet(job(json!({}))).await;
    let name = cluster.pods().await[0]["metadata"]["name"].clone();
    let name = name.as_str().unwrap_or_default();
    cluster.patch("v1", "Pod", name, json!({"metadata": metadata})).await;
    cluster.pass(1.0).await;
    let pod = cluster.get("v1", "Pod", name).await;
    assert_eq!(pod["metadata"].get("finalizers"), None, "{pod:#}");
    assert_eq!(pod["metadata"].get("ownerReferences"), None);
}

#[tokio::test(start_paused = true)]
async fn suspended_job_without_completions_completes() {
    let cluster = without_kubelet(job(json!({"suspend": true, "completions": 0}))).await;
    let work = work(&cluster).await;
    assert_eq!(condition(&work, "Complete")[0], "True", "{work:#}");
    assert_eq!(condition(&work, "Suspended")[0], "");
}

/// The index of a succeeded Pod is sufficient to count it once, and the end is written after the reason for it.
#[rstest]
#[case::succeeded("Succeeded", json!({}), ["SuccessCriteriaMet", "Complete"])]
#[case::failed("Failed", json!({"backoffLimit": 0}), ["FailureTarget", "Failed"])]
#[tokio::test(start_paused = true)]
async fn each_status_of_an_indexed_job_is_consistent(
    #[case] phase: &str,
    #[case] spec: Value,
    #[case] conditions: [&str; 2],
) {
    let mut indexed = job(json!({"completions": 1, "completionMode": "Indexed"}));
    for (field, value) in spec.as_object().expect("the value is an object") {
        indexed["spec"][field] = value.clone();
    }
    let cluster = Cluster::with(&[Worker::Job]);
    let created = cluster.create(indexed).await;
    cluster.pass(0.1).await;
    end(&cluster, json!({"phase": phase})).await;
    let versions = cluster.versions(&created).await;
    let first = versions.first().expect("the status was written")["status"].clone();
    assert_eq!(
        (&first["active"], &first["ready"], first["startTime"].is_string()),
        (&json!(1), &json!(0), true),
        "{first:#}"
    );
    for it in &versions {
        let status = &it["status"];
        assert_eq!(status["uncountedTerminatedPods"].get("succeeded"), None, "{status:#}");
        let count = if status["completedIndexes"] == "0" {
            json!(1)
        } else {
            Value::Null
        };
        assert_eq!(status["succeeded"], count, "{status:#}");
    }
    let has = |it: &&Value, kind: &str| condition(it, kind)[0] == "True";
    let interim = versions.iter().find(|it| has(it, conditions[0]));
    let interim = interim.expect("the interim condition was written");
    assert!(!has(&interim, conditions[1]), "{:#}", interim["status"]);
    assert!(has(&versions.last().expect("the status was written"), conditions[1]));
}

#[tokio::test(start_paused = true)]
async fn too_many_succeeded_pods_are_reported() {
    let cluster = Cluster::with(&[Worker::Job]);
    let labels = json!({"app": "work"});
    let mut adopting = job(json!({"manualSelector": true, "selector": {"matchLabels": labels}}));
    adopting["spec"]["template"]["metadata"] = json!({"labels": labels});
    for name in ["one", "two"] {
        let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}});
        pod["spec"] = adopting["spec"]["template"]["spec"].clone();
        cluster.create(pod).await;
    }
    end(&cluster, json!({"phase": "Succeeded"})).await;
    cluster.create(adopting).await;
    cluster.pass(1.0).await;
    assert_eq!(condition(&work(&cluster).await, "Complete")[0], "True");
    let message = "Too many succeeded pods running after completion count reached";
    assert_eq!(cluster.events("TooManySucceededPods").await, [message]);
}

#[tokio::test(start_paused = true)]
async fn long_name_of_an_indexed_job_is_shortened_in_the_names_of_its_pods() {
    let mut long = job(json!({"completions": 1, "completionMode": "Indexed"}));
    long["metadata"]["name"] = json!("w".repeat(60));
    let cluster = without_kubelet(long).await;
    let prefix = format!("{}-0-", "w".repeat(55));
    assert_eq!(cluster.pods().await[0]["metadata"]["generateName"], prefix);
}

#[tokio::test(start_paused = true)]
async fn pods_are_deleted_before_the_job_is_reported_as_suspended() {
    let cluster = without_kubelet(job(json!({}))).await;
    cluster
        .patch("batch/v1", "Job", "work", json!({"spec": {"suspend": true}}))
        .await;
    cluster.pass(1.0).await;
    let mut events = cluster.list("v1", "Event").await;
    events.sort_by_key(|it| it["metadata"]["name"].as_str().map(str::to_owned));
    let reasons: Vec<&str> = events.iter().filter_map(|it| it["reason"].as_str()).collect();
    assert_eq!(reasons, ["SuccessfulCreate", "SuccessfulDelete", "Suspended"]);
}
