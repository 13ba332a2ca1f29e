//! Two replicas with a custom lock in a ConfigMap: only the holder works.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use testkit::explore::External;
use testkit::objects::config_map;
use testkit::{TestCluster, TestClusterBuilder};
use tokio::time::{Instant, sleep, timeout};

use crate::support::{annotation, field, plain};

twins! {
    world();
    lock_is_checked_at_each_write: "end state", "configmaps default/work";
    failed_renewal_ends_the_work: "end state", "configmaps default/work";
}

/// Time without a renewal after which a lock is free.
const LASTS: Duration = Duration::from_secs(15);

fn world() -> TestClusterBuilder {
    plain()
        .ignore("metadata.annotations")
        .ignore("term")
        .object(config_map("lock"))
        .object(config_map("work").data("todo", "1"))
}

/// Flaws of a replica. Writes of a flawed replica do not contain the resourceVersion on which they are based.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flaw {
    /// Its writes contain the resourceVersion of the object, and its calls contain the term of the lock.
    None,
    /// It reads the holder of the lock once per round, before it works.
    ChecksOnce,
    /// It continues when a renewal fails.
    IgnoresRenewal,
}

/// Takes or renews the lock. Returns the term, or `None` if another replica holds the lock.
async fn taken(maps: &Api<ConfigMap>, name: &str, now: i64) -> kube::Result<Option<u64>> {
    let mut lock = maps.get("lock").await?;
    let (holder, until) = (
        annotation(&lock, "holder").to_owned(),
        annotation(&lock, "until").parse::<i64>(),
    );
    if holder != name && until.is_ok_and(|it| it > now) {
        return Ok(None);
    }
    let mut term: u64 = annotation(&lock, "term").parse().unwrap_or(0);
    if holder != name {
        term += 1;
    }
    let until = (now + LASTS.as_secs() as i64).to_string();
    let entries = [
        ("holder", name.to_owned()),
        ("until", until),
        ("term", term.to_string()),
    ];
    lock.annotations_mut()
        .extend(entries.map(|(name, value)| (name.to_owned(), value)));
    match maps.replace("lock", &PostParams::default(), &lock).await {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(None),
        replaced => replaced.map(|_| Some(term)),
    }
}

/// Does the pending piece of work, and records that it is done. A flawed replica remembers its completed work.
async fn work(maps: &Api<ConfigMap>, cloud: &External, term: u64, flaw: Flaw, last: &mut String) -> kube::Result<()> {
    let work = maps.get("work").await?;
    let todo = field(&work, "todo").to_owned();
    let is_done = match flaw {
        Flaw::None => field(&work, "done") == todo,
        _ => *last == todo,
    };
    if is_done {
        return Ok(());
    }
    // The cloud keeps the newest term, so that an earlier holder is refused.
    let record = json!({"piece": todo, "term": term});
    match cloud.get("job").await.map_err(failed)? {
        None => cloud.create("job", record).await.map_err(failed)?,
        Some(known) if known["term"].as_u64() > Some(term) || known["piece"] == todo.as_str() => {}
        Some(_) => cloud.update("job", record).await.map_err(failed)?,
    }
    let mut patch = json!({"data": {"done": todo}});
    if flaw == Flaw::None {
        patch["metadata"] = json!({"resourceVersion": work.resource_version()});
    }
    maps.patch("work", &PatchParams::default(), &Patch::Merge(patch))
        .await?;
    *last = todo;
    Ok(())
}

fn failed(why: impl std::error::Error + Send + Sync + 'static) -> kube::Error {
    kube::Error::Service(Box::new(why))
}

async fn replica(client: Client, cloud: External, name: &'static str, flaw: Flaw, now: impl Fn() -> i64) {
    let maps = Api::<ConfigMap>::default_namespaced(client);
    let mut held: Option<(u64, Instant)> = None;
    let mut last = String::new();
    loop {
        let renewed = timeout(LASTS / 3, taken(&maps, name, now())).await;
        match renewed {
            Ok(Ok(Some(term))) => held = Some((term, Instant::now())),
            Ok(Ok(None)) => held = None,
            _ if flaw == Flaw::IgnoresRenewal => {}
            _ => held = held.filter(|(_, since)| since.elapsed() < LASTS),
        }
        if let Some((term, _)) = held {
            let _ = work(&maps, &cloud, term, flaw, &mut last).await;
        }
        sleep(LASTS / 5).await;
    }
}

async fn two_replicas(cluster: &TestCluster, flaw: Flaw) {
    for name in ["one", "two"] {
        let (server, cloud) = (cluster.server().clone(), cluster.external("cloud").of(name));
        cluster.controller(name, move |client| {
            let server = server.clone();
            replica(client, cloud.clone(), name, flaw, move || server.now().as_second())
        });
    }
    for todo in ["1", "2"] {
        let _: testkit::Object = cluster.patch(config_map("work"), json!({"data": {"todo": todo}})).await;
        cluster.advance(Duration::from_secs(20)).await;
    }
    cluster
        .eventually(|c| {
            let work: testkit::Object = c.get(config_map("work"));
            work.value()["data"]["done"] == "2"
        })
        .await;
}

async fn lock_is_checked_at_each_write(cluster: &TestCluster, is_healthy: bool) {
    two_replicas(cluster, if is_healthy { Flaw::None } else { Flaw::ChecksOnce }).await;
}

async fn failed_renewal_ends_the_work(cluster: &TestCluster, is_healthy: bool) {
    two_replicas(cluster, if is_healthy { Flaw::None } else { Flaw::IgnoresRenewal }).await;
}
