//! Idioms of correct controllers, without a buggy twin.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Event, Secret};
use kube::{Resource, ResourceExt};
use serde_json::json;
use testkit::TestCluster;
use testkit::objects::config_map;

use crate::support::{FINALIZER, OPERATOR, again, annotation, done, field, has_finalizer, is_deleted, plain, silent};

async fn made_and_changed(cluster: &TestCluster) {
    cluster.create(config_map("web").data("size", "1")).await;
    cluster.settle().await;
    let _: testkit::Object = cluster.patch(config_map("web"), json!({"data": {"size": "2"}})).await;
    cluster.settle().await;
}

/// Applies the child at each reconciliation, even without changes.
#[test]
fn child_applied_each_time_is_not_reported() {
    silent(
        "child_applied_each_time_is_not_reported",
        plain(),
        async |cluster: &TestCluster, _| {
            OPERATOR.owns_secrets().start(cluster, async |parent, cx| {
                let child = json!({
                    "metadata": {"ownerReferences": [parent.controller_owner_ref(&())]},
                    "stringData": {"size": field(&parent, "size")},
                });
                cx.apply::<Secret>("operator", &parent.name_any(), child).await?;
                done()
            });
            made_and_changed(cluster).await;
        },
    );
}

/// Writes the time of its last reconciliation every five minutes.
#[test]
fn heartbeat_annotation_is_not_reported() {
    silent(
        "heartbeat_annotation_is_not_reported",
        plain().ignore("metadata.annotations.seen"),
        async |cluster: &TestCluster, _| {
            let server = cluster.server().clone();
            OPERATOR.start(cluster, move |parent, cx| {
                let now = server.now().as_second();
                async move {
                    let seen: i64 = annotation(&parent, "seen").parse().unwrap_or(0);
                    if now - seen >= 300 {
                        cx.annotate(&parent, "seen", &now.to_string()).await?;
                    }
                    again(300)
                }
            });
            made_and_changed(cluster).await;
        },
    );
}

/// Records Events and ignores their errors.
#[test]
fn best_effort_events_are_not_reported() {
    silent(
        "best_effort_events_are_not_reported",
        plain(),
        async |cluster: &TestCluster, _| {
            OPERATOR.start(cluster, async |parent, cx| {
                let made = cx.create_secret(&parent, &parent.name_any(), json!({})).await?;
                if made {
                    let event = json!({
                        "metadata": {"generateName": "web-"}, "reason": "Made", "type": "Normal",
                        "involvedObject": {"kind": "ConfigMap", "name": parent.name_any(), "namespace": "default"},
                    });
                    let _ = cx.create::<Event>(event).await;
                }
                done()
            });
            made_and_changed(cluster).await;
        },
    );
}

/// Records its result: writes errors into an annotation, and removes them after a success.
#[test]
fn annotation_with_current_errors_is_not_reported() {
    silent(
        "annotation_with_current_errors_is_not_reported",
        plain(),
        async |cluster: &TestCluster, _| {
            OPERATOR.start(cluster, async |parent, cx| {
                let made = cx.create_secret(&parent, &parent.name_any(), json!({})).await;
                let state = if made.is_ok() { "ready" } else { "failed" };
                if annotation(&parent, "state") != state {
                    cx.annotate(&parent, "state", state).await?;
                }
                made.map_or_else(Err, |_| done())
            });
            made_and_changed(cluster).await;
        },
    );
}

/// Keeps a disk that is resized in place, and deletes it at the end.
#[test]
fn disk_resized_in_place_is_not_reported() {
    silent(
        "disk_resized_in_place_is_not_reported",
        plain(),
        async |cluster: &TestCluster, _| {
            OPERATOR.retries_after(30).start(cluster, async |parent, cx| {
                let (name, size) = (parent.name_any(), json!({"size": field(&parent, "size")}));
                if is_deleted(&parent) {
                    if has_finalizer(&parent) {
                        if cx.cloud.get(&name).await?.is_some() {
                            cx.cloud.delete(&name).await?;
                        }
                        cx.remove_finalizer(&parent, FINALIZER).await?;
                    }
                    return done();
                }
                if !has_finalizer(&parent) {
                    cx.add_finalizer(&parent, FINALIZER).await?;
                }
                match cx.cloud.get(&name).await? {
                    None => cx.cloud.create(&name, size).await?,
                    Some(known) if known != size => cx.cloud.update(&name, size).await?,
                    Some(_) => {}
                }
                again(300)
            });
            made_and_changed(cluster).await;
            cluster.delete(config_map("web")).await;
            cluster.settle().await;
        },
    );
}

/// Reads everything again every minute, without a watch.
#[test]
fn polling_is_not_reported() {
    silent("polling_is_not_reported", plain(), async |cluster: &TestCluster, _| {
        cluster.controller("operator", async |client| {
            let maps = kube::Api::<ConfigMap>::default_namespaced(client);
            loop {
                let all = maps
                    .list(&Default::default())
                    .await
                    .map(|it| it.items)
                    .unwrap_or_default();
                for map in all.iter().filter(|it| annotation(it, "size") != field(it, "size")) {
                    let patch = json!({"metadata": {"annotations": {"size": field(map, "size")}}});
                    let _ = maps
                        .patch(&map.name_any(), &Default::default(), &kube::api::Patch::Merge(patch))
                        .await;
                }
                tokio::time::sleep(Duration::from_secs(60)).await;
            }
        });
        cluster.create(config_map("web").data("size", "1")).await;
        cluster.advance(Duration::from_secs(90)).await;
        let _: testkit::Object = cluster.patch(config_map("web"), json!({"data": {"size": "2"}})).await;
        cluster.advance(Duration::from_secs(90)).await;
    });
}

/// Names the child after a hash of the spec, and deletes children of other specs.
#[test]
fn child_named_by_its_content_is_not_reported() {
    silent(
        "child_named_by_its_content_is_not_reported",
        plain(),
        async |cluster: &TestCluster, _| {
            OPERATOR.start(cluster, async |parent, cx| {
                let name = format!("{}-{}", parent.name_any(), field(&parent, "size"));
                cx.create_secret(&parent, &name, json!({"size": field(&parent, "size")}))
                    .await?;
                for other in cx.list::<Secret>(&format!("of={}", parent.name_any())).await? {
                    if other.name_any() != name {
                        cx.delete::<Secret>(&other.name_any()).await?;
                    }
                }
                done()
            });
            made_and_changed(cluster).await;
        },
    );
}
