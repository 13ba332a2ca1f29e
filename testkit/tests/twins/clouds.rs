//! External systems: repairs, ids, tokens and errors.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use serde_json::{Value, json};
use testkit::TestCluster;
use testkit::explore::ExternalError;
use testkit::objects::config_map;

use crate::support::{
    Context, Error, FINALIZER, OPERATOR, again, annotation, done, field, has_finalizer, is_deleted, now, plain,
};

twins! {
    plain();
    disk_is_created_by_a_retry: "end state", "cloud web: missing";
    error_does_not_end_the_batch: "end state", "missing";
    finalizer_is_added_before_the_disk_is_created: "end state", "cloud web: unexpected";
    deleted_disk_counts_as_deleted: "end state", "configmaps default/web: unexpected";
    disk_is_named_by_uid: "end state", "cloud";
    generated_id_is_looked_up: "end state", "cloud";
    cloud_id_is_recorded_in_the_object_before_its_use: "end state", "cloud";
    older_resource_versions_do_not_replace_a_record: "end state", "cloud web";
    failed_update_of_a_record_is_retried: "end state", "cloud web";
    resize_is_retried: "end state", "cloud web";
    two_controllers_share_a_cloud: "end state", "cloud";
    lost_response_is_checked_by_a_read: "end state", "cloud";
    attempts_are_counted_in_the_object: "end state", "configmaps default/web metadata.annotations.phase";
}

async fn made(cluster: &TestCluster) {
    cluster.create(config_map("web").data("size", "1")).await;
    cluster.settle().await;
}

async fn made_and_deleted(cluster: &TestCluster) {
    made(cluster).await;
    cluster.delete(config_map("web")).await;
    cluster.settle().await;
}

async fn made_and_changed(cluster: &TestCluster) {
    made(cluster).await;
    let _: testkit::Object = cluster.patch(config_map("web"), json!({"data": {"size": "2"}})).await;
    cluster.settle().await;
}

/// Creates a disk if it is missing; the next attempt after an error is a minute later.
async fn disk_is_created_by_a_retry(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR.retries_after(60).start(cluster, move |parent, cx| async move {
        if cx.cloud.get(&parent.name_any()).await?.is_none() {
            let created = cx.cloud.create(&parent.name_any(), json!({"size": 1})).await;
            if is_healthy {
                created?;
            }
        }
        done()
    });
    made(cluster).await;
}

/// Creates three disks; the buggy variant abandons the batch at the first error and reports success.
async fn error_does_not_end_the_batch(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR.start(cluster, move |_, cx| async move {
        let mut failed = None;
        for name in ["a", "b", "c"] {
            match cx.cloud.create(name, json!({})).await {
                Ok(()) | Err(ExternalError::AlreadyExists(_)) => {}
                Err(_) if !is_healthy => break,
                Err(err) => failed = Some(err),
            }
        }
        failed.map_or_else(done, |err| Err(err.into()))
    });
    made(cluster).await;
}

async fn make_disk(cx: &Context, name: &str, size: &str) -> Result<(), Error> {
    match cx.cloud.create(name, json!({"size": size})).await {
        Err(ExternalError::AlreadyExists(_)) => Ok(()),
        created => Ok(created?),
    }
}

async fn delete_disk(cx: &Context, name: &str) -> Result<(), Error> {
    match cx.cloud.delete(name).await {
        Err(ExternalError::NotFound(_)) => Ok(()),
        deleted => Ok(deleted?),
    }
}

/// The buggy variant creates the disk before the finalizer: if a user deletes the object in between, the disk is left
/// behind.
async fn finalizer_is_added_before_the_disk_is_created(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR.start(cluster, move |parent, cx| async move {
        let name = parent.name_any();
        if is_deleted(&parent) {
            if has_finalizer(&parent) {
                delete_disk(&cx, &name).await?;
                cx.remove_finalizer(&parent, FINALIZER).await?;
            }
            return done();
        }
        if !is_healthy {
            make_disk(&cx, &name, "1").await?;
        }
        if !has_finalizer(&parent) {
            cx.add_finalizer(&parent, FINALIZER).await?;
        }
        if is_healthy {
            make_disk(&cx, &name, "1").await?;
        }
        done()
    });
    made_and_deleted(cluster).await;
}

/// The buggy variant treats a missing disk as an error, so that a lost response keeps the object forever.
async fn deleted_disk_counts_as_deleted(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR.start(cluster, move |parent, cx| async move {
        let name = parent.name_any();
        if is_deleted(&parent) {
            if has_finalizer(&parent) {
                match is_healthy {
                    true => delete_disk(&cx, &name).await?,
                    // A failed deletion waits for the next change.
                    false if cx.cloud.delete(&name).await.is_err() => return done(),
                    false => {}
                }
                cx.remove_finalizer(&parent, FINALIZER).await?;
            }
            return done();
        }
        if !has_finalizer(&parent) {
            cx.add_finalizer(&parent, FINALIZER).await?;
        }
        make_disk(&cx, &name, "1").await?;
        done()
    });
    made_and_deleted(cluster).await;
}

/// The key of the disk contains the uid of the object, so that a new object gets a new disk.
async fn disk_is_named_by_uid(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR.start(cluster, move |parent, cx| async move {
        let key = format!("disk-{}", parent.uid().unwrap_or_default());
        if is_deleted(&parent) {
            if has_finalizer(&parent) {
                let deleted = delete_disk(&cx, &key).await;
                if is_healthy {
                    deleted?;
                }
                cx.remove_finalizer(&parent, FINALIZER).await?;
            }
            return done();
        }
        if !has_finalizer(&parent) {
            cx.add_finalizer(&parent, FINALIZER).await?;
        }
        make_disk(&cx, &key, "1").await?;
        done()
    });
    made_and_deleted(cluster).await;
    made(cluster).await;
}

/// The cloud generates the ids; the disk is found by a tag with the uid.
async fn generated_id_is_looked_up(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR.start(cluster, move |parent, cx| async move {
        if !annotation(&parent, "id").is_empty() {
            return done();
        }
        let tag = Value::from(parent.uid());
        let all = cx.cloud.list().await?;
        let known = all.into_iter().find(|(_, disk)| is_healthy && disk["tag"] == tag);
        let id = match known {
            Some((id, _)) => id,
            None => cx.cloud.add(json!({"tag": tag})).await?,
        };
        cx.annotate(&parent, "id", &id).await?;
        done()
    });
    made(cluster).await;
}

/// The controller generates an id from the time, and records it before it uses it.
async fn cloud_id_is_recorded_in_the_object_before_its_use(cluster: &TestCluster, is_healthy: bool) {
    let server = cluster.server().clone();
    OPERATOR.start(cluster, move |parent, cx| {
        let now = server.now().as_millisecond();
        async move {
            let id = match annotation(&parent, "id") {
                "" => format!("disk-{now}"),
                known => known.to_owned(),
            };
            if is_healthy && annotation(&parent, "id").is_empty() {
                let metadata = json!({"annotations": {"id": id}, "resourceVersion": parent.resource_version()});
                cx.merge::<ConfigMap>(&parent.name_any(), json!({"metadata": metadata}))
                    .await?;
                return done();
            }
            make_disk(&cx, &id, "1").await?;
            if annotation(&parent, "id").is_empty() {
                cx.annotate(&parent, "id", &id).await?;
            }
            done()
        }
    });
    made(cluster).await;
    let _: testkit::Object = cluster
        .patch(config_map("web"), json!({"metadata": {"labels": {"a": "b"}}}))
        .await;
    cluster.settle().await;
}

/// The record contains the resourceVersion of the object from which it was written, and older versions do not replace
/// it. The buggy variant reads versions as floating-point numbers.
async fn older_resource_versions_do_not_replace_a_record(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR.start(cluster, move |parent, cx| async move {
        let name = parent.name_any();
        let version = parent.resource_version().unwrap_or_default();
        let record = json!({"size": field(&parent, "size"), "token": version});
        let Some(known) = cx.cloud.get(&name).await? else {
            cx.cloud.create(&name, record).await?;
            return done();
        };
        let known = known["token"].as_str().unwrap_or_default();
        let is_newer = match is_healthy {
            true => version.parse::<u64>().ok() > known.parse().ok(),
            false => version.parse::<f32>().ok() > known.parse().ok(),
        };
        if is_newer {
            cx.cloud.update(&name, record).await?;
        }
        done()
    });
    made_and_changed(cluster).await;
}

/// The record contains the time of its creation; the buggy variant ignores the error of an update.
async fn failed_update_of_a_record_is_retried(cluster: &TestCluster, is_healthy: bool) {
    let server = cluster.server().clone();
    OPERATOR.start(cluster, move |parent, cx| {
        let now = server.now().to_string();
        async move {
            let (name, size) = (parent.name_any(), field(&parent, "size"));
            match cx.cloud.get(&name).await? {
                None => cx.cloud.create(&name, json!({"size": size, "since": now})).await?,
                Some(known) if known["size"] != size => {
                    let updated = cx
                        .cloud
                        .update(&name, json!({"size": size, "since": known["since"]}))
                        .await;
                    if is_healthy {
                        updated?;
                    }
                }
                Some(_) => {}
            }
            done()
        }
    });
    made_and_changed(cluster).await;
}

/// Resizes the disk and records the requested size. The buggy variant records the size first, so a retry finds nothing
/// to do.
async fn resize_is_retried(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR.start(cluster, move |parent, cx| async move {
        let (name, size) = (parent.name_any(), field(&parent, "size"));
        make_disk(&cx, &name, "1").await?;
        if annotation(&parent, "resized") == size {
            return done();
        }
        if !is_healthy {
            cx.annotate(&parent, "resized", size).await?;
        }
        cx.cloud.update(&name, json!({"size": size})).await?;
        if is_healthy {
            cx.annotate(&parent, "resized", size).await?;
        }
        done()
    });
    made_and_changed(cluster).await;
}

/// One controller creates a network. The other controller creates a machine in it, and retries until the network
/// exists.
async fn two_controllers_share_a_cloud(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR.named("networks").start(cluster, move |parent, cx| async move {
        make_disk(&cx, &format!("network-{}", parent.name_any()), "1").await?;
        done()
    });
    OPERATOR.named("machines").start(cluster, move |parent, cx| async move {
        let network = format!("network-{}", parent.name_any());
        if cx.cloud.get(&network).await?.is_none() {
            return if is_healthy { again(30) } else { done() };
        }
        make_disk(&cx, &format!("machine-{}", parent.name_any()), "1").await?;
        done()
    });
    made(cluster).await;
}

/// Reads the object after a lost response to a change.
async fn lost_response_is_checked_by_a_read(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR.start(cluster, move |parent, cx| async move {
        let name = parent.name_any();
        if annotation(&parent, "machine").is_empty() {
            let all = cx.cloud.list().await?;
            let has_one = all.iter().any(|(_, it)| it["name"] == name.as_str());
            if !(is_healthy && has_one) {
                let added = cx.cloud.add(json!({"name": name})).await;
                if is_healthy {
                    added?;
                }
            }
            cx.annotate(&parent, "machine", "made").await?;
        }
        done()
    });
    made(cluster).await;
}

/// Records the attempts and the time of the next one, with jitter. The buggy variant gives up at the second attempt.
async fn attempts_are_counted_in_the_object(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR.start(cluster, move |parent, cx| async move {
        if matches!(annotation(&parent, "phase"), "Done" | "Failed") {
            return done();
        }
        let attempts: u32 = annotation(&parent, "attempts").parse().unwrap_or(0);
        let next: i64 = annotation(&parent, "next").parse().unwrap_or(0);
        let now = now().as_second();
        if let Ok(left @ 1..) = u64::try_from(next - now) {
            return again(left);
        }
        let annotations = match cx.cloud.create(&parent.name_any(), json!({})).await {
            Ok(()) | Err(ExternalError::AlreadyExists(_)) => json!({"phase": "Done", "attempts": null, "next": null}),
            Err(_) if !is_healthy && attempts > 0 => json!({"phase": "Failed"}),
            Err(_) => {
                let pause = (2_i64 << attempts.min(6)) + i64::from(fastrand::u8(0..3));
                json!({"attempts": (attempts + 1).to_string(), "next": (now + pause).to_string()})
            }
        };
        let metadata = json!({"annotations": annotations, "resourceVersion": parent.resource_version()});
        cx.merge::<ConfigMap>(&parent.name_any(), json!({"metadata": metadata}))
            .await?;
        again(1)
    });
    made(cluster).await;
}
