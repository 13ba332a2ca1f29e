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

#[rstest]
#[case::utc(json!({"schedule": "0 1 * * *"}), "2026-01-01T01:00:00Z")]
#[case::time_zone(json!({"schedule": "0 2 * * *", "timeZone": "Europe/Berlin"}), "2026-01-01T02:00:00+01:00")]
#[tokio::test(start_paused = true)]
async fn job_is_annotated_with_its_time_in_the_time_zone_of_the_schedule(#[case] spec: Value, #[case] time: &str) {
    let cluster = Cluster::start();
    cluster.create(cron(spec)).await;
    cluster.pass(3601.0).await;
    let job = cluster.list("batch/v1", "Job").await.remove(0);
    let annotation = &job["metadata"]["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"];
    assert_eq!(annotation, time);
}

#[tokio::test(start_paused = true)]
async fn job_that_the_controller_did_not_create_is_not_listed_as_active() {
    let cluster = Cluster::start();
    let long = PodScript::default().runs_for(Duration::from_secs(1000));
    cluster.0.kubelet().script(PodSelector::all(), long);
    let tick = cluster.create(cron(json!({"concurrencyPolicy": "Forbid"}))).await;
    let owner = json!({"apiVersion": "batch/v1", "kind": "CronJob", "name": "tick", "controller": true,
        "uid": tick["metadata"]["uid"]});
    let spec = tick["spec"]["jobTemplate"]["spec"].clone();
    cluster
        .create(
            json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "manual", "ownerReferences": [owner]},
            "spec": spec}),
        )
        .await;
    cluster.pass(10.0).await;
    assert_eq!(
        cluster.get("batch/v1", "CronJob", "tick").await["status"]["active"],
        Value::Null
    );
    assert_eq!(
        cluster.events("UnexpectedJob").await,
        ["Saw a job that the controller did not create or forgot: manual"]
    );
    cluster.pass(60.0).await;
    let active = cluster.get("batch/v1", "CronJob", "tick").await["status"]["active"].clone();
    let [active] = active.as_array().map(Vec::as_slice).unwrap_or_default() else {
        panic!("the manual Job does not prevent the scheduled Job: {active}");
    };
    let name = active["name"].as_str().unwrap_or_default();
    cluster.0.kubelet().script(PodSelector::all(), PodScript::default());
    cluster.delete("batch/v1", "Job", name).await;
    cluster.pass(5.0).await;
    assert_eq!(
        cluster.events("MissingJob").await,
        [format!("Active job went missing: {name}")]
    );
    assert_eq!(
        cluster.get("batch/v1", "CronJob", "tick").await["status"]["active"],
        Value::Null
    );
}

/// Changes of the CronJob do not postpone the next time.
#[tokio::test(start_paused = true)]
async fn interval_starts_at_the_last_scheduled_time() {
    let cluster = Cluster::start();
    cluster.create(cron(json!({"schedule": "@every 1h"}))).await;
    for hour in 1..=3 {
        cluster.pass(1800.0).await;
        let labels = json!({"metadata": {"labels": {"hour": hour.to_string()}}});
        cluster.patch("batch/v1", "CronJob", "tick", labels).await;
        cluster.pass(1801.0).await;
        let tick = cluster.get("batch/v1", "CronJob", "tick").await;
        assert_eq!(tick["status"]["lastScheduleTime"], format!("2026-01-01T0{hour}:00:00Z"));
    }
}

#[tokio::test(start_paused = true)]
async fn replaced_job_is_not_reported_as_missing() {
    let cluster = Cluster::start();
    let long = PodScript::default().runs_for(Duration::from_secs(1000));
    cluster.0.kubelet().script(PodSelector::all(), long);
    cluster.create(cron(json!({"concurrencyPolicy": "Replace"}))).await;
    cluster.pass(200.0).await;
    assert_eq!(cluster.events("SuccessfulDelete").await.len(), 2);
    assert_eq!(cluster.events("MissingJob").await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn created_job_is_listed_as_active_together_with_its_time() {
    let cluster = Cluster::start();
    let long = PodScript::default().runs_for(Duration::from_secs(1000));
    cluster.0.kubelet().script(PodSelector::all(), long);
    let created = cluster.create(cron(json!({}))).await;
    cluster.pass(61.0).await;
    let versions = cluster.versions(&created).await;
    let scheduled = versions.iter().find(|it| it["status"]["lastScheduleTime"].is_string());
    let status = scheduled.expect("a Job was created")["status"].clone();
    let job = cluster.list("batch/v1", "Job").await.remove(0);
    assert_eq!(status["active"][0]["uid"], job["metadata"]["uid"], "{status:#}");
    assert!(status["active"][0]["resourceVersion"].is_string());
}

#[tokio::test(start_paused = true)]
async fn foreign_job_with_the_name_of_the_next_job_is_ignored() {
    let cluster = Cluster::start();
    let mut foreign = cron(json!({}))["spec"]["jobTemplate"].clone();
    foreign["apiVersion"] = json!("batch/v1");
    foreign["kind"] = json!("Job");
    foreign["metadata"] = json!({"name": "tick-29453761"});
    cluster.create(foreign).await;
    cluster.create(cron(json!({}))).await;
    cluster.pass(70.0).await;
    let tick = cluster.get("batch/v1", "CronJob", "tick").await;
    assert_eq!(tick["status"]["lastScheduleTime"], Value::Null, "{:#}", tick["status"]);
    assert_eq!(cluster.events("FailedCreate").await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn job_that_is_deleted_by_a_history_limit_of_zero_is_not_reported_as_completed() {
    let cluster = Cluster::start();
    cluster.create(cron(json!({"successfulJobsHistoryLimit": 0}))).await;
    cluster.pass(70.0).await;
    assert_eq!(cluster.events("SuccessfulDelete").await, ["Deleted job tick-29453761"]);
    assert_eq!(cluster.events("SawCompletedJob").await, Vec::<String>::new());
}
