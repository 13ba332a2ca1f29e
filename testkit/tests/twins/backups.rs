//! Objects with a time in their names: backups, snapshots and runs of a schedule.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use testkit::TestCluster;
use testkit::objects::config_map;
use tokio::time::sleep;

use crate::support::{Context, Error, OPERATOR, annotation, done, field, now, plain};

twins! {
    plain();
    newest_three_backups_are_kept: "end state", "configmaps default/backup-";
    each_request_gets_one_backup: "end state", "secrets default/";
    each_slot_runs_once: "end state", "secrets default/";
    newest_snapshot_is_named_in_the_parent: "end state", "secrets default/";
}

/// Takes a backup, and deletes the old ones. The buggy variant deletes one old backup for each new one.
async fn back_up(maps: &Api<ConfigMap>, is_healthy: bool) -> kube::Result<()> {
    let now = now();
    let mut backup = ConfigMap::default();
    backup.metadata.name = Some(format!("backup-{}", now.strftime("%Y%m%dt%H%M")));
    backup.metadata.labels = Some([("app".to_owned(), "backup".to_owned())].into());
    backup.data = Some([("taken".to_owned(), now.to_string())].into());
    match maps.create(&PostParams::default(), &backup).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => {}
        created => drop(created?),
    }
    let mut all = maps.list(&ListParams::default().labels("app=backup")).await?.items;
    all.sort_by_key(ResourceExt::name_any);
    let old = all.len().saturating_sub(3);
    if !is_healthy && old > 0 {
        let _ = maps.delete(&all[0].name_any(), &DeleteParams::default()).await;
        return Ok(());
    }
    for backup in &all[..old] {
        match maps.delete(&backup.name_any(), &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            deleted => drop(deleted?),
        }
    }
    Ok(())
}

/// Takes a backup every five minutes, in a loop.
async fn newest_three_backups_are_kept(cluster: &TestCluster, is_healthy: bool) {
    cluster.controller("backup", move |client: Client| async move {
        let maps = Api::<ConfigMap>::default_namespaced(client);
        loop {
            let pause = match back_up(&maps, is_healthy).await {
                Ok(()) => 300,
                Err(_) => 10,
            };
            sleep(Duration::from_secs(pause)).await;
        }
    });
    cluster.advance(Duration::from_secs(27 * 60)).await;
}

/// Takes one backup for each request. The buggy variant only reads its own record of the last request.
async fn each_request_gets_one_backup(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR.start(cluster, move |parent, cx| async move {
        let request = field(&parent, "backup");
        if request.is_empty() || annotation(&parent, "done") == request {
            return done();
        }
        let selector = format!("of={},request={request}", parent.name_any());
        if !is_healthy || cx.list::<Secret>(&selector).await?.is_empty() {
            let name = format!("{}-backup-{}", parent.name_any(), now().as_second());
            let labels = json!({"of": parent.name_any(), "request": request});
            cx.create::<Secret>(json!({"metadata": {"name": name, "labels": labels}}))
                .await?;
        }
        cx.annotate(&parent, "done", request).await?;
        done()
    });
    cluster.create(config_map("web").data("backup", "1")).await;
    cluster.settle().await;
    cluster.advance(Duration::from_secs(130)).await;
    let _: testkit::Object = cluster.patch(config_map("web"), json!({"data": {"backup": "2"}})).await;
    cluster.settle().await;
}

/// Starts the run of a slot, with the minute in its name as a CronJob does.
async fn run_slot(cx: &Context, parent: &ConfigMap, slot: i64, is_healthy: bool) -> Result<(), Error> {
    let minute = match is_healthy {
        true => slot / 60,
        // The minute differs if an earlier attempt has failed.
        false => now().as_second() / 60,
    };
    let name = format!("{}-{minute}", parent.name_any());
    let labels = json!({"of": parent.name_any()});
    cx.create::<Secret>(json!({"metadata": {"name": name, "labels": labels}}))
        .await?;
    cx.annotate(parent, "last", &slot.to_string()).await
}

/// Starts a run in each of the first two slots of ten minutes.
async fn each_slot_runs_once(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR.retries_after(70).start(cluster, move |parent, cx| async move {
        let made = parent.metadata.creation_timestamp.as_ref();
        let made = made.map_or(0, |it| it.0.as_second());
        let now = now().as_second();
        let last: i64 = annotation(&parent, "last").parse().unwrap_or(made);
        let slot = last + 600;
        if slot > made + 1_200 {
            return done();
        }
        if slot <= now {
            run_slot(&cx, &parent, slot, is_healthy).await?;
            return done();
        }
        crate::support::again(u64::try_from(slot - now).unwrap_or(1))
    });
    cluster.create(config_map("web")).await;
    cluster.settle().await;
    cluster.advance(Duration::from_secs(1_500)).await;
    cluster.settle().await;
}

/// Takes a snapshot of each size, and records the newest one in the parent. The buggy variant deletes the recorded
/// snapshot, and then creates another one.
async fn newest_snapshot_is_named_in_the_parent(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR.start(cluster, move |parent, cx| async move {
        let size = field(&parent, "size");
        let of = format!("of={}", parent.name_any());
        let known = cx.list::<Secret>(&of).await?;
        let current = known
            .iter()
            .find(|it| it.labels()["size"] == size)
            .map(ResourceExt::name_any);
        let name = match current.filter(|_| is_healthy || annotation(&parent, "size") == size) {
            Some(name) => name,
            None => {
                let time = now().strftime("%Y-%m-%d-%H-%M-%S");
                let name = format!("snapshot-{time}");
                let labels = json!({"of": parent.name_any(), "size": size});
                let made = cx
                    .create::<Secret>(json!({"metadata": {"name": name, "labels": labels}}))
                    .await?;
                if !made {
                    // Another snapshot was taken in this second.
                    return crate::support::again(1);
                }
                name
            }
        };
        if annotation(&parent, "snapshot") != name {
            let annotations = json!({"snapshot": name, "size": size});
            cx.merge::<ConfigMap>(&parent.name_any(), json!({"metadata": {"annotations": annotations}}))
                .await?;
        }
        for other in known.iter().filter(|it| is_healthy && it.name_any() != name) {
            cx.delete::<Secret>(&other.name_any()).await?;
        }
        let former = annotation(&parent, "snapshot");
        if !is_healthy && !former.is_empty() && former != name {
            cx.delete::<Secret>(former).await?;
        }
        done()
    });
    cluster.create(config_map("web").data("size", "1")).await;
    cluster.settle().await;
    let _: testkit::Object = cluster.patch(config_map("web"), json!({"data": {"size": "2"}})).await;
    cluster.settle().await;
}
