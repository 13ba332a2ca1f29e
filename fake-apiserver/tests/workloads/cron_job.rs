//! CronJobs: schedule, concurrency, history.

use std::time::Duration;

use fake_apiserver::{PodScript, PodSelector};
use rstest::rstest;
use serde_json::{Value, json};

use crate::cluster::Cluster;

fn cron(spec: Value) -> Value {
    let pod =
        json!({"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox:1", "command": ["true"]}]});
    let mut cron = json!({
        "apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "tick"},
        "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": {"spec": pod}}}},
    });
    for (field, value) in spec.as_object().expect("the value is an object") {
        cron["spec"][field] = value.clone();
    }
    cron
}

#[tokio::test(start_paused = true)]
async fn cron_job_creates_a_job_each_minute_and_keeps_its_history() {
    let cluster = Cluster::start();
    cluster.create(cron(json!({"successfulJobsHistoryLimit": 2}))).await;
    cluster.pass(59.0).await;
    assert_eq!(cluster.list("batch/v1", "Job").await.len(), 0);
    cluster.pass(301.5).await;
    let tick = cluster.get("batch/v1", "CronJob", "tick").await;
    assert_eq!(tick["status"]["lastScheduleTime"], "2026-01-01T00:06:00Z");
    cluster.pass(20.0).await;
    let names: Vec<Value> = cluster
        .list("batch/v1", "Job")
        .await
        .into_iter()
        .map(|it| it["metadata"]["name"].clone())
        .collect();
    // The suffixes are minutes since 1970.
    assert_eq!(names, ["tick-29453765", "tick-29453766"]);
    let tick = cluster.get("batch/v1", "CronJob", "tick").await;
    assert_eq!(tick["status"]["active"], Value::Null);
    assert_eq!(tick["status"]["lastSuccessfulTime"], "2026-01-01T00:06:02Z");
    let saw = cluster.events("SawCompletedJob").await;
    assert_eq!(
        saw.last().map(String::as_str),
        Some("Saw completed job: tick-29453766, condition: Complete")
    );
}

#[rstest]
#[case::allow("Allow", 3)]
#[case::forbid("Forbid", 1)]
#[case::replace("Replace", 1)]
#[tokio::test(start_paused = true)]
async fn concurrency_policy_limits_running_jobs(#[case] policy: &str, #[case] active: usize) {
    let cluster = Cluster::start();
    let long = PodScript::default().runs_for(Duration::from_secs(1000));
    cluster.0.kubelet().script(PodSelector::all(), long);
    cluster.create(cron(json!({"concurrencyPolicy": policy}))).await;
    cluster.pass(190.0).await;
    let tick = cluster.get("batch/v1", "CronJob", "tick").await;
    assert_eq!(
        tick["status"]["active"].as_array().map(Vec::len),
        Some(active),
        "{:#}",
        tick["status"]
    );
    let last = if policy == "Forbid" {
        "2026-01-01T00:01:00Z"
    } else {
        "2026-01-01T00:03:00Z"
    };
    assert_eq!(tick["status"]["lastScheduleTime"], last);
}

#[tokio::test(start_paused = true)]
async fn cron_schedule_uses_the_time_zone() {
    let cluster = Cluster::start();
    cluster
        .create(cron(json!({"schedule": "0 2 * * *", "timeZone": "Europe/Berlin"})))
        .await;
    cluster.pass(3599.0).await;
    assert_eq!(cluster.list("batch/v1", "Job").await.len(), 0);
    cluster.pass(2.0).await;
    assert_eq!(cluster.list("batch/v1", "Job").await.len(), 1);
}
