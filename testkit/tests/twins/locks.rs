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
    lock_is_renewed_before_a_call: "end state", "cloud job";
    failed_renewal_does_not_extend_the_lock: "end state", "cloud job";
}

/// Time without a renewal after which a lock is free.
const LASTS: Duration = Duration::from_secs(15);

fn world() -> TestClusterBuilder {
    plain()
        .ignore("metadata.annotations")
        .ignore("term")
        .object(config_map("lock"))
        .object(config_map("log"))
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

/// Time after which a renewal without a response counts as failed.
const ANSWERS: Duration = Duration::from_secs(4);

/// Check of a replica before its call. All replicas first record a piece of work in a log, and retry until the log is
/// written. Meanwhile they try to renew the lock, but writing the log may take longer than the lock lasts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Check {
    /// It calls without a check.
    None,
    /// It renews the lock, and only calls if this succeeds.
    Renewal,
    /// It only calls until a time limit, which each renewal extends, even if the renewal fails.
    OwnClock,
    /// It only calls until a time limit, which only a successful renewal extends.
    TimeLimit,
}

/// A replica whose calls do not contain the term of the lock.
struct Caller<N> {
    maps: Api<ConfigMap>,
    cloud: External,
    name: &'static str,
    check: Check,
    now: N,
    /// Time until which the replica assumes that it holds the lock.
    until: Instant,
}

impl<N: Fn() -> i64> Caller<N> {
    async fn run(mut self) {
        loop {
            if self.renews().await {
                let _ = self.work().await;
            }
            sleep(LASTS / 5).await;
        }
    }

    async fn renews(&mut self) -> bool {
        let limit = Instant::now() + LASTS;
        match timeout(ANSWERS, taken(&self.maps, self.name, (self.now)())).await {
            Ok(Ok(Some(_))) => {
                self.until = limit;
                true
            }
            Ok(Ok(None)) => {
                self.until = Instant::now();
                false
            }
            _ => {
                if self.check == Check::OwnClock {
                    self.until = limit;
                }
                false
            }
        }
    }

    async fn work(&mut self) -> kube::Result<()> {
        let work = self.maps.get("work").await?;
        let todo = field(&work, "todo").to_owned();
        if field(&work, "done") == todo {
            return Ok(());
        }
        let log = self.maps.clone();
        let started = Patch::Merge(json!({"metadata": {"annotations": {"started": todo}}}));
        let logged = async move {
            while log.patch("log", &PatchParams::default(), &started).await.is_err() {
                sleep(LASTS / 5).await;
            }
        };
        let mut logged = std::pin::pin!(logged);
        while timeout(LASTS / 3, &mut logged).await.is_err() {
            self.renews().await;
        }
        let may_call = match self.check {
            Check::None => true,
            Check::Renewal => self.renews().await,
            // A call may take some seconds.
            Check::OwnClock | Check::TimeLimit => Instant::now() + LASTS / 3 < self.until,
        };
        if !may_call {
            return Ok(());
        }
        let record = json!({"piece": todo});
        match self.cloud.get("job").await.map_err(failed)? {
            None => self.cloud.create("job", record).await.map_err(failed)?,
            Some(known) if known == record => {}
            Some(_) => self.cloud.update("job", record).await.map_err(failed)?,
        }
        let patch = json!({"metadata": {"resourceVersion": work.resource_version()}, "data": {"done": todo}});
        self.maps
            .patch("work", &PatchParams::default(), &Patch::Merge(patch))
            .await
            .map(drop)
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
    two_pieces(cluster).await;
}

async fn two_callers(cluster: &TestCluster, check: Check) {
    for name in ["one", "two"] {
        let (server, cloud) = (cluster.server().clone(), cluster.external("cloud").of(name));
        cluster.controller(name, move |client| {
            let server = server.clone();
            let caller = Caller {
                maps: Api::default_namespaced(client),
                cloud: cloud.clone(),
                name,
                check,
                now: move || server.now().as_second(),
                until: Instant::now(),
            };
            caller.run()
        });
    }
    two_pieces(cluster).await;
}

async fn two_pieces(cluster: &TestCluster) {
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

async fn lock_is_renewed_before_a_call(cluster: &TestCluster, is_healthy: bool) {
    two_callers(cluster, if is_healthy { Check::Renewal } else { Check::None }).await;
}

async fn failed_renewal_does_not_extend_the_lock(cluster: &TestCluster, is_healthy: bool) {
    let check = if is_healthy { Check::TimeLimit } else { Check::OwnClock };
    two_callers(cluster, check).await;
}
