//! Records of failed attempts: a history of releases, a message with a count, and the time of a failure in an
//! annotation. A run without faults does not contain any failed attempts.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::watcher;
use kube::{Client, CustomResource, CustomResourceExt, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use testkit::explore::ExternalError;
use testkit::objects::{config_map, object, serialized};
use testkit::{TestCluster, TestClusterBuilder};

use crate::support::{Context, Done, Error, OPERATOR, again, annotation, done, field, now, plain};

twins! {
    releases();
    failed_release_is_retried: "end state", "cloud web";
    each_release_is_listed_once: "end state", "releases.example.com default/web status.history";
    message_contains_the_number_of_attempts: "end state", "cloud web";
}

mod annotations {
    use super::*;

    twins! {
        plain();
        failed_creation_is_recorded_in_an_annotation: "end state", "cloud web";
        failed_request_is_kept: "end state", "cloud web";
    }
}

#[derive(CustomResource, Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "example.com",
    version = "v1",
    kind = "Release",
    namespaced,
    status = "ReleaseStatus"
)]
struct ReleaseSpec {
    image: String,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
struct ReleaseStatus {
    revision: u32,
    history: Vec<Attempt>,
    failures: u32,
    failed_at: Option<String>,
    conditions: Vec<Condition>,
    observed_generation: Option<i64>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
struct Attempt {
    revision: u32,
    image: String,
    result: String,
    time: String,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
struct Condition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
    message: String,
}

fn releases() -> TestClusterBuilder {
    plain().object(serialized(&Release::crd()))
}

/// Starts a controller of Releases that retries after ten seconds.
fn start<F>(cluster: &TestCluster, reconcile: impl Fn(Arc<Release>, Context) -> F + Clone + Send + Sync + 'static)
where
    F: Future<Output = Done> + Send + 'static,
{
    let cloud = cluster.external("cloud").of("releases");
    cluster.controller("releases", move |client: Client| {
        let (reconcile, cloud) = (reconcile.clone(), cloud.clone());
        async move {
            let cx = Context { client, cloud };
            Controller::new(cx.api::<Release>(), watcher::Config::default())
                .run(
                    move |release, cx: Arc<Context>| reconcile(release, Context::clone(&cx)),
                    |_, _: &Error, _| Action::requeue(Duration::from_secs(10)),
                    Arc::new(cx),
                )
                .for_each(|_| async {})
                .await;
        }
    });
}

/// Changes the status, if the Release has not changed since it was read.
async fn patch_status(cx: &Context, release: &Release, status: Value) -> Result<(), Error> {
    let patch = json!({"metadata": {"resourceVersion": release.resource_version()}, "status": status});
    let (params, name) = (PatchParams::default(), release.name_any());
    let (api, patch) = (cx.api::<Release>(), Patch::Merge(patch));
    Ok(api.patch_status(&name, &params, &patch).await.map(drop)?)
}

/// Returns the number of seconds until the next attempt, which follows ten seconds after a failure.
fn wait(failed: &str) -> Option<u64> {
    let failed: jiff::Timestamp = failed.parse().ok()?;
    let rest = failed.as_second() + 10 - now().as_second();
    u64::try_from(rest).ok().filter(|it| *it > 0)
}

/// Creates or updates the deployment in the external system.
async fn deploy(cx: &Context, name: &str, image: &str) -> Result<(), ExternalError> {
    let wanted = json!({"image": image});
    match cx.cloud.get(name).await? {
        None => cx.cloud.create(name, wanted).await,
        Some(known) if known != wanted => cx.cloud.update(name, wanted).await,
        Some(_) => Ok(()),
    }
}

/// Creates a Release, and changes its image.
async fn two_images(cluster: &TestCluster) {
    let spec = |image: &str| ReleaseSpec {
        image: image.to_owned(),
    };
    cluster.create(serialized(&Release::new("web", spec("one")))).await;
    cluster.settle().await;
    let web = object("example.com/v1", "Release", "web");
    let _: testkit::Object = cluster.patch(web, json!({"spec": spec("two")})).await;
    cluster.settle().await;
}

/// Deploys each image, and adds each attempt with its result to the history of releases.
async fn release(cx: &Context, known: &Release, is_retried: bool, is_listed_first: bool) -> Done {
    let Some(release) = cx.get::<Release>(&known.name_any()).await? else {
        return done();
    };
    let (name, image) = (release.name_any(), release.spec.image.clone());
    let mut history = release.status.clone().unwrap_or_default().history;
    let is_deployed = |it: &Attempt| it.image == image && (it.result == "deployed" || !is_retried);
    if history.last().is_some_and(is_deployed) && !is_listed_first {
        return done();
    }
    let failed = history.last().filter(|it| it.result == "failed");
    if let Some(wait) = failed.and_then(|it| wait(&it.time)) {
        return again(wait);
    }
    let revision = history.last().map_or(0, |it| it.revision) + 1;
    let attempt = |result: &str| Attempt {
        revision,
        image: image.clone(),
        result: result.to_owned(),
        time: now().to_string(),
    };
    if is_listed_first {
        // The generation is only observed after the deployment.
        let observed = release.status.as_ref().and_then(|it| it.observed_generation);
        if observed == release.metadata.generation {
            return done();
        }
        history.push(attempt("deployed"));
        patch_status(cx, &release, json!({"revision": revision, "history": history})).await?;
        deploy(cx, &name, &image).await?;
        let status = json!({"status": {"observedGeneration": release.metadata.generation}});
        let (params, patch) = (PatchParams::default(), Patch::Merge(status));
        cx.api::<Release>().patch_status(&name, &params, &patch).await?;
        return done();
    }
    let deployed = deploy(cx, &name, &image).await;
    history.push(attempt(if deployed.is_ok() { "deployed" } else { "failed" }));
    patch_status(cx, &release, json!({"revision": revision, "history": history})).await?;
    if deployed.is_ok() { done() } else { again(10) }
}

/// The buggy variant does not retry an image that is already in the history.
async fn failed_release_is_retried(cluster: &TestCluster, is_healthy: bool) {
    start(cluster, move |known, cx| async move {
        release(&cx, &known, is_healthy, false).await
    });
    two_images(cluster).await;
}

/// The buggy variant adds a release to the history before it is deployed, and adds it again in each retry.
async fn each_release_is_listed_once(cluster: &TestCluster, is_healthy: bool) {
    start(cluster, move |known, cx| async move {
        release(&cx, &known, true, !is_healthy).await
    });
    two_images(cluster).await;
}

/// Writes the number of attempts into the message of the condition. The buggy variant writes the condition after a
/// failure as well.
async fn message_contains_the_number_of_attempts(cluster: &TestCluster, is_healthy: bool) {
    start(cluster, move |known, cx| async move {
        let Some(release) = cx.get::<Release>(&known.name_any()).await? else {
            return done();
        };
        let status = release.status.clone().unwrap_or_default();
        if status.observed_generation == release.metadata.generation {
            return done();
        }
        if let Some(wait) = status.failed_at.as_deref().and_then(wait) {
            return again(wait);
        }
        let deployed = deploy(&cx, &release.name_any(), &release.spec.image).await;
        if is_healthy && deployed.is_err() {
            let failed = json!({"failures": status.failures + 1, "failedAt": now().to_string()});
            patch_status(&cx, &release, failed).await?;
            return again(10);
        }
        let message = format!("synced after {} attempts", status.failures + 1);
        let ready = Condition {
            type_: "Ready".to_owned(),
            status: "True".to_owned(),
            message,
        };
        let status = json!({
            "failures": 0, "failedAt": null, "conditions": [ready], "observedGeneration": release.metadata.generation,
        });
        patch_status(&cx, &release, status).await?;
        done()
    });
    two_images(cluster).await;
}

/// Records the time of the last failed creation in an annotation, and retries. The buggy variant regards the annotation
/// as a finished creation.
async fn failed_creation_is_recorded_in_an_annotation(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR.start(cluster, move |parent, cx| async move {
        let name = parent.name_any();
        let is_over = |mark: &str| !annotation(&parent, mark).is_empty();
        if is_over("create-succeeded") || !is_healthy && is_over("create-failed") {
            return done();
        }
        if let Some(wait) = wait(annotation(&parent, "create-failed")) {
            return again(wait);
        }
        match deploy(&cx, &name, "one").await {
            Ok(()) => {
                cx.annotate(&parent, "create-succeeded", "yes").await?;
                done()
            }
            Err(_) => {
                cx.annotate(&parent, "create-failed", &now().to_string()).await?;
                again(10)
            }
        }
    });
    cluster.create(config_map("web")).await;
    cluster.settle().await;
}

/// Creates a numbered request for each image. A failed request is kept, and another one is created. The buggy variant
/// regards a failed request as finished.
async fn failed_request_is_kept(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR
        .selects("kind=app")
        .start(cluster, move |parent, cx| async move {
            let image = field(&parent, "image");
            let number = |it: &ConfigMap| field(it, "number").parse().unwrap_or(0_u32);
            let newest = cx
                .list::<ConfigMap>("kind=request")
                .await?
                .into_iter()
                .max_by_key(number);
            let last = newest.as_ref().map_or(0, number);
            let result = newest.as_ref().map_or("", |it| field(it, "result"));
            match &newest {
                // The image may have changed since the request was created.
                Some(request) if result.is_empty() => {
                    let deployed = deploy(&cx, &parent.name_any(), field(request, "image")).await;
                    let result = if deployed.is_ok() { "issued" } else { "failed" };
                    let metadata = json!({"resourceVersion": request.resource_version()});
                    let patch = json!({"metadata": metadata, "data": {"result": result}});
                    cx.merge::<ConfigMap>(&request.name_any(), patch).await?;
                    if deployed.is_ok() { again(1) } else { again(10) }
                }
                Some(request) if field(request, "image") == image && (result == "issued" || !is_healthy) => {
                    if annotation(&parent, "request") != last.to_string() {
                        cx.annotate(&parent, "request", &last.to_string()).await?;
                    }
                    done()
                }
                _ => {
                    let next = last + 1;
                    let request = json!({
                        "metadata": {"name": format!("web-request-{next}"), "labels": {"kind": "request"}},
                        "data": {"number": next.to_string(), "image": image},
                    });
                    match cx.create::<ConfigMap>(request).await? {
                        true => again(1),
                        false => Err(Error::NotYet("another request has this number")),
                    }
                }
            }
        });
    let image = |image: &str| json!({"data": {"image": image}});
    cluster
        .create(config_map("web").label("kind", "app").data("image", "one"))
        .await;
    cluster.settle().await;
    let _: testkit::Object = cluster.patch(config_map("web"), image("two")).await;
    cluster.settle().await;
}
