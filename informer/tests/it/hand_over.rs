//! Keys that move between replicas: separately for each key, within a time limit, and never to two processes with the
//! same identity.

use std::time::Duration;

use informer::reconcile::{Action, ReconcileError, Request};
use informer::runtime::{Manager, Sharding, ShardingConfig};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;
use testkit::{Running, TestCluster};
use tokio::time::{Instant, sleep};

use crate::sharding::{Ledger, OBJECTS, manager, maps, seconds, touch};

/// A replica with a sharded controller.
struct Replica {
    manager: Manager,
    sharding: Sharding,
    running: Running,
}

fn join(cluster: &TestCluster, client: &str, identity: &str, ledger: &Ledger, hangs: fn(&str) -> bool) -> Replica {
    join_with(
        cluster,
        client,
        ShardingConfig::new("default", "maps", identity),
        ledger,
        hangs,
    )
}

fn join_with(
    cluster: &TestCluster,
    client: &str,
    config: ShardingConfig,
    ledger: &Ledger,
    hangs: fn(&str) -> bool,
) -> Replica {
    let manager = manager(cluster, client);
    let sharding = Sharding::new(&manager, config).expect("the durations are consistent");
    let (noted, replica) = (ledger.clone(), client.to_owned());
    let reconcile = move |request: Request| {
        let (ledger, replica) = (noted.clone(), replica.clone());
        async move {
            let (key, since) = (request.key.to_string(), Instant::now());
            let _working = ledger.begin(&key, &replica);
            if hangs(&key) {
                std::future::pending::<()>().await;
            }
            sleep(Duration::from_millis(300)).await;
            ledger.finish(&key, &replica, since);
            Ok::<_, ReconcileError>(Action::await_change())
        }
    };
    let builder = manager.controller("maps").for_::<ConfigMap>().sharded(&sharding);
    builder
        .concurrency(16)
        .complete(reconcile)
        .expect("the controller is complete");
    let runs = manager.clone();
    let running = cluster.run(async move { runs.run(std::future::pending()).await });
    Replica {
        manager,
        sharding,
        running,
    }
}

/// Selects eight keys: `map-1`, and `map-10` to `map-16`.
fn hangs(key: &str) -> bool {
    let number: usize = key.rsplit_once('-').and_then(|(_, it)| it.parse().ok()).unwrap_or(0);
    number == 1 || (10..17).contains(&number)
}

fn never(_: &str) -> bool {
    false
}

#[tokio::test(start_paused = true)]
async fn hung_reconcile_only_blocks_its_own_key() {
    let (cluster, ledger) = (TestCluster::start(), Ledger::default());
    maps(&cluster).await;
    let a = join(&cluster, "a", "a", &ledger, hangs);
    cluster.advance(seconds(10)).await;
    let b = join(&cluster, "b", "b", &ledger, never);
    cluster.advance(seconds(10)).await;
    let of_b = |key: &String| b.sharding.owner(key).as_deref() == Some("b");
    let moved: Vec<String> = (0..OBJECTS)
        .map(|it| format!("default/map-{it}"))
        .filter(of_b)
        .collect();
    let held: Vec<&String> = moved.iter().filter(|it| hangs(it)).collect();
    assert!(!held.is_empty() && held.len() < moved.len(), "{moved:?}");
    let shares = ledger.shares();
    assert_eq!(
        shares["b"],
        moved.len() - held.len(),
        "the other keys have moved: {shares:?}"
    );
    let metrics = |replica: &Replica| replica.manager.metrics().render();
    let handing = format!("sharding_handing_over_keys{{name=\"maps\"}} {}", held.len());
    assert!(metrics(&a).contains(&handing), "{}", metrics(&a));
    assert!(
        a.sharding.check().is_ok() && b.sharding.check().is_ok(),
        "the hand-over ends within its timeout"
    );
    let awaited = format!("sharding_awaited_keys{{name=\"maps\"}} {}", held.len());
    assert!(metrics(&b).contains(&awaited), "{}", metrics(&b));
    // Within the time limit, the reconciles are dropped, and the keys move.
    cluster.advance(seconds(65)).await;
    assert_eq!(ledger.shares()["b"], moved.len());
    assert!(metrics(&a).contains("sharding_handing_over_keys{name=\"maps\"} 0"));
    assert!(metrics(&b).contains("sharding_awaited_keys{name=\"maps\"} 0"));
    ledger.check();
}

/// Returns the status and the body of a readiness check of a replica.
fn ready(replica: &Replica, path: &str) -> (u16, String) {
    let answer = replica.manager.endpoints().answer(path, "");
    (answer.code, answer.body)
}

#[tokio::test(start_paused = true)]
async fn replica_that_waits_too_long_for_keys_is_not_ready_and_lists_them() {
    let (cluster, ledger) = (TestCluster::start(), Ledger::default());
    maps(&cluster).await;
    // Replica a may continue its reconciles for longer than replica b waits.
    let patient = ShardingConfig {
        hand_over_timeout: seconds(3_600),
        ..ShardingConfig::new("default", "maps", "a")
    };
    let a = join_with(&cluster, "a", patient, &ledger, hangs);
    cluster.advance(seconds(10)).await;
    let b = join(&cluster, "b", "b", &ledger, never);
    // Almost the lease duration plus the hand-over timeout.
    cluster.advance(seconds(70)).await;
    assert_eq!(ready(&b, "/readyz"), (200, "ok".to_owned()));
    cluster.advance(seconds(20)).await;
    let keys = (0..OBJECTS).map(|it| format!("default/map-{it}"));
    let held: Vec<String> = keys
        .filter(|it| hangs(it) && b.sharding.owner(it).as_deref() == Some("b"))
        .collect();
    assert!(!held.is_empty());
    let late = b.sharding.check().expect_err("replica a holds keys").to_string();
    for key in &held {
        assert!(late.contains(&format!("\"a\" has held {key} for ")), "{late}");
    }
    assert_eq!(late.matches("has held").count(), held.len(), "{late}");
    let (code, body) = ready(&b, "/readyz");
    assert_eq!(code, 500);
    assert!(body.contains("[-]sharding-maps failed: reason withheld\n"), "{body}");
    let reason = format!("internal server error: {late}\n");
    assert_eq!(ready(&b, "/readyz/sharding-maps"), (500, reason));
    let metrics = b.manager.metrics().render();
    for line in [
        format!("sharding_awaited_keys{{name=\"maps\"}} {}\n", held.len()),
        "sharding_awaited_replicas{name=\"maps\"} 0\n".to_owned(),
    ] {
        assert!(metrics.contains(&line), "{metrics}");
    }
    a.sharding.check().expect("the reconciles of replica a may continue");
    // The keys move when the Lease of replica a expires.
    a.running.crash();
    cluster.advance(seconds(40)).await;
    b.sharding.check().expect("replica b has all keys");
    assert_eq!(ready(&b, "/readyz"), (200, "ok".to_owned()));
    ledger.check();
}

#[tokio::test(start_paused = true)]
async fn replica_that_may_hold_any_key_is_listed_until_its_lease_expires() {
    let (cluster, ledger) = (TestCluster::start(), Ledger::default());
    maps(&cluster).await;
    let a = join(&cluster, "a", "a", &ledger, never);
    cluster.advance(seconds(10)).await;
    // A replica with a later version of this crate, whose members cannot be read, renews its Lease.
    let leases: Api<Lease> = Api::default_namespaced(cluster.client_named("later"));
    let lease: Lease = serde_json::from_value(json!({
        "metadata": {"name": "later", "labels": {"informer.drydock.dev/sharding": "maps"},
            "annotations": {"informer.drydock.dev/members": "v9:[]"}},
        "spec": {"holderIdentity": "z", "leaseDurationSeconds": 15},
    }))
    .expect("the Lease is valid");
    let created = leases.create(&PostParams::default(), &lease).await;
    created.expect("the Lease does not exist");
    for number in 0..18 {
        cluster.advance(seconds(5)).await;
        let renewal = json!({"metadata": {"annotations": {"renewals": number.to_string()}}});
        let renewed = leases
            .patch("later", &PatchParams::default(), &Patch::Merge(renewal))
            .await;
        renewed.expect("the Lease exists");
    }
    cluster.advance(seconds(1)).await;
    let late = a.sharding.check().expect_err("z may hold any key").to_string();
    assert!(
        late.contains("\"z\" has held an unknown share of the keys for "),
        "{late}"
    );
    assert_eq!(ready(&a, "/readyz").0, 500);
    let metrics = |replica: &Replica| replica.manager.metrics().render();
    assert!(metrics(&a).contains("sharding_awaited_keys{name=\"maps\"} 0\n"));
    assert!(metrics(&a).contains("sharding_awaited_replicas{name=\"maps\"} 1\n"));
    cluster.advance(seconds(40)).await;
    a.sharding.check().expect("the Lease of z has expired");
    assert_eq!(ready(&a, "/readyz"), (200, "ok".to_owned()));
    assert!(metrics(&a).contains("sharding_awaited_replicas{name=\"maps\"} 0\n"));
}

#[tokio::test(start_paused = true)]
async fn processes_with_the_same_identity_never_share_a_key() {
    let (cluster, ledger) = (TestCluster::start(), Ledger::default());
    maps(&cluster).await;
    let first = join(&cluster, "first", "web-0", &ledger, never);
    let _other = join(&cluster, "other", "web-1", &ledger, never);
    cluster.advance(seconds(20)).await;
    // The Pod was force-deleted: the old process is still running when a new process with the same name starts.
    let _second = join(&cluster, "second", "web-0", &ledger, never);
    for number in 0..40 {
        touch(&cluster, &number.to_string()).await;
        cluster.advance(seconds(2)).await;
    }
    assert_eq!(ledger.shares().keys().collect::<Vec<_>>(), ["first", "other"]);
    first.running.crash();
    cluster.advance(seconds(40)).await;
    touch(&cluster, "last").await;
    cluster.advance(seconds(10)).await;
    assert_eq!(ledger.shares().keys().collect::<Vec<_>>(), ["other", "second"]);
    ledger.check();
}
