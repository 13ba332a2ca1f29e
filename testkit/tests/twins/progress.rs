//! Progress in the status of a custom resource: failed attempts, pending work, a list of the last changes, the observed
//! generation, the completion time, and ready Pods.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::watcher;
use kube::{Api, Client, CustomResource, CustomResourceExt, Resource, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use testkit::explore::{External, ExternalError, errors};
use testkit::objects::{object, serialized};
use testkit::{TestCluster, TestClusterBuilder};

use crate::support::{Done, Error, STOOD, again, done, exploration, now, plain};

twins! {
    tasks();
    failed_attempts_are_counted: "end state", "default/web status.phase: expected \"Ready\", found \"Failed\"";
    only_failures_caused_by_foreign_disks_are_counted: "end state", "default/web status.failedAttempts";
    pending_work_is_reported: "end state", "default/web status.pending: expected 0, found 1";
    status_lists_the_last_changes: "end state", "secrets default/web";
    observed_generation_is_the_reconciled_generation: "end state", "secrets default/web";
    finished_task_expires: "no delete by name of another object", "tasks deleted tasks.example.com default/web by name";
    ready_pods_are_counted: "end state", "tasks.example.com default/web status";
}

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "example.com",
    version = "v1",
    kind = "Task",
    namespaced,
    status = "TaskStatus"
)]
struct TaskSpec {
    size: u32,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
struct TaskStatus {
    phase: String,
    failed_attempts: u32,
    last_error: Option<String>,
    observed_generation: Option<i64>,
    changes: Vec<Change>,
    finished_at: Option<String>,
    ready: u32,
    pending: u32,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
struct Change {
    size: u32,
    time: String,
}

fn tasks() -> TestClusterBuilder {
    plain().object(serialized(&Task::crd()))
}

#[derive(Clone)]
struct Context {
    client: Client,
    cloud: External,
}

impl Context {
    fn tasks(&self) -> Api<Task> {
        Api::default_namespaced(self.client.clone())
    }

    fn secrets(&self) -> Api<Secret> {
        Api::default_namespaced(self.client.clone())
    }

    fn pods(&self) -> Api<Pod> {
        Api::default_namespaced(self.client.clone())
    }

    async fn patch_status(&self, name: &str, status: Value) -> Result<(), Error> {
        let patch = Patch::Merge(json!({"status": status}));
        let params = PatchParams::default();
        Ok(self.tasks().patch_status(name, &params, &patch).await.map(drop)?)
    }

    async fn apply_secret(&self, task: &Task) -> Result<(), Error> {
        let name = task.name_any();
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": name, "ownerReferences": [task.controller_owner_ref(&())]},
            "stringData": {"size": task.spec.size.to_string()},
        });
        let params = PatchParams::apply("tasks").force();
        Ok(self
            .secrets()
            .patch(&name, &params, &Patch::Apply(secret))
            .await
            .map(drop)?)
    }
}

fn status(task: &Task) -> TaskStatus {
    task.status.clone().unwrap_or_default()
}

/// Returns a recorded time in seconds, or 0 without a recorded time.
fn since(recorded: Option<String>) -> i64 {
    let time = recorded.and_then(|it| it.parse::<Timestamp>().ok());
    time.map_or(0, Timestamp::as_second)
}

/// Starts a controller of Tasks that retries after ten seconds.
fn start<F>(cluster: &TestCluster, reconcile: impl Fn(Arc<Task>, Context) -> F + Clone + Send + Sync + 'static)
where
    F: Future<Output = Done> + Send + 'static,
{
    let cloud = cluster.external("cloud").of("tasks");
    cluster.controller("tasks", move |client: Client| {
        let (reconcile, cloud) = (reconcile.clone(), cloud.clone());
        async move {
            let context = Context { client, cloud };
            Controller::new(context.tasks(), watcher::Config::default())
                .owns(context.pods(), watcher::Config::default())
                .run(
                    move |task, context: Arc<Context>| reconcile(task, Context::clone(&context)),
                    |_, _: &Error, _| Action::requeue(Duration::from_secs(10)),
                    Arc::new(context),
                )
                .for_each(|_| async {})
                .await;
        }
    });
}

fn task(name: &str, size: u32) -> Task {
    Task::new(name, TaskSpec { size })
}

async fn patch(cluster: &TestCluster, spec: serde_json::Value) {
    let _: testkit::Object = cluster
        .patch(object("example.com/v1", "Task", "web"), json!({"spec": spec}))
        .await;
}

async fn made_and_resized(cluster: &TestCluster) {
    cluster.create(serialized(&task("web", 1))).await;
    cluster.settle().await;
    patch(cluster, json!({"size": 2})).await;
    cluster.settle().await;
}

/// Counts failed calls in the status, and waits after each. The buggy variant does not retry after the first failure.
async fn failed_attempts_are_counted(cluster: &TestCluster, is_healthy: bool) {
    start(cluster, move |task, cx| async move {
        let (name, status) = (task.name_any(), status(&task));
        if status.phase == "Ready" || (!is_healthy && status.phase == "Failed") {
            return done();
        }
        let left = since(status.finished_at) + 10 - now().as_second();
        if left > 0 {
            return again(left.unsigned_abs());
        }
        match cx.cloud.create(&name, json!({"kind": "disk"})).await {
            Ok(()) | Err(ExternalError::AlreadyExists(_)) => {
                cx.patch_status(&name, json!({"phase": "Ready", "lastError": null, "finishedAt": null}))
                    .await?;
                done()
            }
            Err(err) => {
                let failed = json!({
                    "phase": "Failed", "failedAttempts": status.failed_attempts + 1, "lastError": err.to_string(),
                    "finishedAt": now().to_string(),
                });
                cx.patch_status(&name, failed).await?;
                again(10)
            }
        }
    });
    made_and_resized(cluster).await;
}

/// Resizes the disk of each generation, and counts the failures of all of them. The buggy variant ignores further
/// changes of a ready task that has ever failed.
async fn each_generation_may_fail(cluster: &TestCluster, is_healthy: bool) {
    start(cluster, move |task, cx| async move {
        let (name, status) = (task.name_any(), status(&task));
        let is_given_up = !is_healthy && status.phase == "Ready" && status.failed_attempts > 0;
        if is_given_up || status.observed_generation == task.metadata.generation {
            return done();
        }
        let left = since(status.finished_at) + 10 - now().as_second();
        if left > 0 {
            return again(left.unsigned_abs());
        }
        let size = json!({"size": task.spec.size});
        let made = match cx.cloud.create(&name, size.clone()).await {
            Err(ExternalError::AlreadyExists(_)) => cx.cloud.update(&name, size).await,
            made => made,
        };
        let failures = status.failed_attempts;
        let status = match made {
            Ok(()) => json!({"phase": "Ready", "observedGeneration": task.metadata.generation, "finishedAt": null}),
            Err(_) => json!({"phase": "Failed", "failedAttempts": failures + 1, "finishedAt": now().to_string()}),
        };
        cx.patch_status(&name, status).await?;
        again(10)
    });
    made_and_resized(cluster).await;
}

/// The test waits for the end of all faults, so the count differs at the first step, and the size at the next one.
#[test]
fn step_after_an_accepted_failure_count_is_still_compared() {
    let explored = |is_healthy| {
        let exploration = exploration(tasks(), each_generation_may_fail, is_healthy);
        exploration.faults(errors()).schedules(STOOD).report()
    };
    let report = explored(false);
    let failure = report.failure().map(|it| (it.oracle().to_owned(), it.plan().to_vec()));
    let (oracle, plan) = failure.unwrap_or_else(|| panic!("the bug is not found: {report}"));
    let has_count = plan
        .iter()
        .any(|it| it.contains("default/web status.failedAttempts, which counts failures"));
    assert!(
        oracle == "end state" && has_count && report.to_string().contains("cloud web size"),
        "{report}"
    );
    let report = explored(true);
    assert!(report.is_success(), "{report}");
}

/// Reports that work is pending until it is done. The buggy variant does not remove the report of an earlier process.
async fn pending_work_is_reported(cluster: &TestCluster, is_healthy: bool) {
    start(cluster, move |task, cx| async move {
        let (name, status) = (task.name_any(), status(&task));
        if status.observed_generation == task.metadata.generation && (status.pending == 0 || !is_healthy) {
            return done();
        }
        let begun = json!({"pending": 1, "observedGeneration": task.metadata.generation});
        cx.patch_status(&name, begun).await?;
        cx.apply_secret(&task).await?;
        cx.patch_status(&name, json!({"pending": 0})).await?;
        done()
    });
    made_and_resized(cluster).await;
}

/// Counts the calls that fail because of another owner's disk. The buggy variant also counts a disk that was created by
/// its own call, if the response was lost.
async fn only_failures_caused_by_foreign_disks_are_counted(cluster: &TestCluster, is_healthy: bool) {
    start(cluster, move |task, cx| async move {
        let (name, status) = (task.name_any(), status(&task));
        if status.phase == "Ready" {
            return done();
        }
        let disk = json!({"uid": task.uid()});
        match cx.cloud.create(&name, disk.clone()).await {
            Ok(()) => {}
            Err(ExternalError::AlreadyExists(_)) if is_healthy && cx.cloud.get(&name).await? == Some(disk) => {}
            Err(ExternalError::AlreadyExists(_)) => {
                let refused = json!({"phase": "Ready", "failedAttempts": status.failed_attempts + 1});
                cx.patch_status(&name, refused).await?;
                return done();
            }
            Err(err) => return Err(err.into()),
        }
        cx.patch_status(&name, json!({"phase": "Ready"})).await?;
        done()
    });
    made_and_resized(cluster).await;
}

/// Keeps the last three sizes with their times. The buggy variant records a size before its work is done.
async fn status_lists_the_last_changes(cluster: &TestCluster, is_healthy: bool) {
    start(cluster, move |task, cx| async move {
        let mut changes = status(&task).changes;
        if changes.last().is_some_and(|it| it.size == task.spec.size) {
            return done();
        }
        if is_healthy {
            cx.apply_secret(&task).await?;
        }
        changes.push(Change {
            size: task.spec.size,
            time: now().to_string(),
        });
        while changes.len() > 3 {
            changes.remove(0);
        }
        let patch = json!({
            "metadata": {"resourceVersion": task.resource_version()}, "status": {"changes": changes},
        });
        cx.tasks()
            .patch_status(&task.name_any(), &PatchParams::default(), &Patch::Merge(patch))
            .await?;
        if !is_healthy {
            cx.apply_secret(&task).await?;
        }
        done()
    });
    made_and_resized(cluster).await;
    for size in [3, 4, 5] {
        patch(cluster, json!({"size": size})).await;
        cluster.settle().await;
    }
}

/// Reports the generation that was reconciled. The buggy variant reports the newest generation, which may not have been
/// reconciled.
async fn observed_generation_is_the_reconciled_generation(cluster: &TestCluster, is_healthy: bool) {
    start(cluster, move |task, cx| async move {
        if status(&task).observed_generation == task.metadata.generation {
            return done();
        }
        cx.apply_secret(&task).await?;
        let mut newest = if is_healthy {
            Task::clone(&task)
        } else {
            cx.tasks().get(&task.name_any()).await?
        };
        let generation = newest.metadata.generation;
        let status = newest.status.get_or_insert_default();
        status.observed_generation = generation;
        status.phase = "Ready".to_owned();
        cx.tasks()
            .replace_status(&task.name_any(), &PostParams::default(), &newest)
            .await?;
        done()
    });
    made_and_resized(cluster).await;
}

/// Deletes a Task five minutes after its end. The buggy variant may delete a newer Task with the same name.
async fn finished_task_expires(cluster: &TestCluster, is_healthy: bool) {
    start(cluster, move |task, cx| async move {
        let name = task.name_any();
        let finished = status(&task).finished_at;
        if finished.is_none() {
            cx.apply_secret(&task).await?;
            let patch = json!({
                "metadata": {"resourceVersion": task.resource_version(), "uid": task.uid()},
                "status": {"phase": "Done", "finishedAt": now().to_string()},
            });
            cx.tasks()
                .patch_status(&name, &PatchParams::default(), &Patch::Merge(patch))
                .await?;
            return done();
        }
        let left = since(finished) + 300 - now().as_second();
        if left > 0 {
            return again(left.unsigned_abs());
        }
        let mut params = DeleteParams::default();
        if is_healthy {
            params.preconditions = Some(Preconditions {
                uid: task.uid(),
                resource_version: None,
            });
        }
        match cx.tasks().delete(&name, &params).await {
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => done(),
            deleted => {
                deleted?;
                done()
            }
        }
    });
    cluster.create(serialized(&task("web", 1))).await;
    cluster.advance(Duration::from_secs(299)).await;
    cluster.delete(object("example.com/v1", "Task", "web")).await;
    cluster.create(serialized(&task("web", 2))).await;
    cluster.advance(Duration::from_secs(60)).await;
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|it| it.conditions.as_ref());
    conditions.is_some_and(|it| it.iter().any(|it| it.type_ == "Ready" && it.status == "True"))
}

/// Counts the Pods of a Task that are ready. The buggy variant adds observed changes to the last count.
async fn ready_pods_are_counted(cluster: &TestCluster, is_healthy: bool) {
    start(cluster, move |task, cx| async move {
        let name = task.name_any();
        let selector = ListParams::default().labels(&format!("task={name}"));
        let pods = cx.pods().list(&selector).await?.items;
        for nth in 0..task.spec.size {
            let pod = format!("{name}-{nth}");
            if pods.iter().any(|it| it.name_any() == pod) {
                continue;
            }
            let pod: Pod = serde_json::from_value(json!({
                "metadata": {
                    "name": pod, "labels": {"task": name}, "ownerReferences": [task.controller_owner_ref(&())],
                },
                "spec": {"containers": [{"name": "main", "image": "task"}]},
            }))
            .map_err(kube::Error::SerdeError)?;
            match cx.pods().create(&PostParams::default(), &pod).await {
                Err(kube::Error::Api(status)) if status.is_already_exists() => {}
                created => drop(created?),
            }
        }
        let known = status(&task).ready;
        let ready = if is_healthy {
            pods.iter().filter(|it| is_ready(it)).count() as u32
        } else {
            let unseen = pods
                .iter()
                .filter(|it| is_ready(it) && !it.annotations().contains_key("seen"));
            let names: Vec<_> = unseen.map(ResourceExt::name_any).collect();
            for pod in &names {
                let seen = BTreeMap::from([("seen", "true")]);
                let patch = Patch::Merge(json!({"metadata": {"annotations": seen}}));
                cx.pods().patch(pod, &PatchParams::default(), &patch).await?;
            }
            known + names.len() as u32
        };
        if ready != known {
            let phase = if ready >= task.spec.size {
                "Ready"
            } else {
                "Progressing"
            };
            cx.patch_status(&name, json!({"ready": ready, "phase": phase})).await?;
        }
        done()
    });
    cluster.create(serialized(&task("web", 1))).await;
    cluster.settle().await;
    let ready = json!({"conditions": [{"type": "Ready", "status": "True"}]});
    let _: testkit::Object = cluster.patch_status(object("v1", "Pod", "web-0"), ready).await;
    cluster.settle().await;
}
