//! Controllers with a clock: the next slot begins between their last poll and the end of the scenario, so that a run
//! that takes longer, or polls at other times, has one more object.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use testkit::objects::config_map;
use testkit::{TestCluster, TestClusterBuilder};
use tokio::time::sleep;

use crate::support::{now, plain};

twins! {
    world();
    each_slot_has_a_backup: "idempotence", "configmaps default/backup-";
    newest_report_is_named_in_the_parent: "idempotence", "secrets default/report-";
}

/// Length of a slot in seconds.
const SLOT: i64 = 600;

/// Interval of the polls.
const POLL: Duration = Duration::from_secs(60);

/// Returns a cluster at a time of day at which a slot begins 20 seconds after the last poll of the scenarios.
fn world() -> TestClusterBuilder {
    let start = "2026-11-29T12:28:45Z".parse().expect("the time is valid");
    plain().server(|server| server.start_time(start))
}

/// Lasts until shortly after a slot has begun.
async fn pass(cluster: &TestCluster) {
    cluster.advance(Duration::from_secs(1_900)).await;
}

/// Returns the number in the name of the next object. The bug starts another series with each restart.
fn number(started: i64, is_healthy: bool) -> i64 {
    let now = now().as_second();
    match is_healthy {
        true => now / SLOT * SLOT,
        false => started + (now - started) / SLOT * SLOT,
    }
}

/// Ignores the error of an object that exists already. Returns `true` if the object was created.
fn is_made<K>(created: kube::Result<K>) -> kube::Result<bool> {
    match created {
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(false),
        created => created.map(|_| true),
    }
}

async fn each_slot_has_a_backup(cluster: &TestCluster, is_healthy: bool) {
    cluster.controller("backup", move |client: Client| async move {
        let started = now().as_second();
        let maps = Api::<ConfigMap>::default_namespaced(client);
        loop {
            let mut backup = ConfigMap::default();
            backup.metadata.name = Some(format!("backup-{}", number(started, is_healthy)));
            let made = is_made(maps.create(&PostParams::default(), &backup).await);
            sleep(if made.is_ok() { POLL } else { Duration::from_secs(5) }).await;
        }
    });
    pass(cluster).await;
}

/// Creates the report of the slot, and writes its name into the parent.
async fn report(client: &Client, number: i64) -> kube::Result<()> {
    let [secrets, maps] = [client.clone(), client.clone()];
    let (secrets, maps) = (
        Api::<Secret>::default_namespaced(secrets),
        Api::<ConfigMap>::default_namespaced(maps),
    );
    let Some(parent) = maps.get_opt("web").await? else {
        return Ok(());
    };
    let mut report = Secret::default();
    report.metadata.name = Some(format!("report-{number}"));
    is_made(secrets.create(&PostParams::default(), &report).await)?;
    let newest: Value = json!(report.name_any());
    if parent.annotations().get("newest") != newest.as_str().map(str::to_owned).as_ref() {
        let patch = Patch::Merge(json!({"metadata": {"annotations": {"newest": newest}}}));
        maps.patch("web", &PatchParams::default(), &patch).await?;
    }
    Ok(())
}

async fn newest_report_is_named_in_the_parent(cluster: &TestCluster, is_healthy: bool) {
    cluster.controller("reports", move |client: Client| async move {
        let started = now().as_second();
        loop {
            let done = report(&client, number(started, is_healthy)).await;
            sleep(if done.is_ok() { POLL } else { Duration::from_secs(5) }).await;
        }
    });
    cluster.create(config_map("web")).await;
    pass(cluster).await;
}
