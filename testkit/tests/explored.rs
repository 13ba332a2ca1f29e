//! Exploration with the server's own workers, the less common faults, and the notes about limited scenarios.

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Patch, PatchParams, WatchParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use rstest::rstest;
use serde_json::json;
use testkit::explore::{Explore, Faults, clock_skew, crashes, delays, errors, explore, stale_watches, variants};
use testkit::objects::{config_map, pod};
use testkit::{PodScript, PodSelector, TestCluster, Verb, Worker, faults};

/// Creates a ConfigMap with the same name for each Pod, owned by the Pod, and recreates it after changes and deletions.
async fn own_config_maps(client: Client) {
    async fn reconcile(pod: Arc<Pod>, client: Arc<Client>) -> Result<Action, kube::Error> {
        let maps = Api::<ConfigMap>::default_namespaced(Client::clone(&client));
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": pod.name_any(), "ownerReferences": [kube::Resource::controller_owner_ref(&*pod, &())]},
        });
        let params = PatchParams::apply("own-config-maps").force();
        maps.patch(&pod.name_any(), &params, &Patch::Apply(map)).await?;
        Ok(Action::await_change())
    }
    let on_error = |_: Arc<Pod>, _: &kube::Error, _: Arc<Client>| Action::requeue(Duration::from_secs(5));
    Controller::new(Api::<Pod>::all(client.clone()), watcher::Config::default())
        .owns(Api::<ConfigMap>::all(client.clone()), watcher::Config::default())
        .run(reconcile, on_error, Arc::new(client))
        .for_each(|_| async {})
        .await;
}

/// A Pod is created and deleted together with its ConfigMap.
async fn owners_come_and_go(cluster: &TestCluster) {
    cluster.controller("operator", own_config_maps);
    cluster.create(pod("web-0")).await;
    cluster.settle().await;
    cluster.delete::<Pod>("web-0").await;
    cluster.settle().await;
}

/// Limits the number of runs in builds without optimisation.
fn bounded(explore: Explore, most: u64) -> Explore {
    let runs = if cfg!(debug_assertions) { most } else { 2_000 };
    explore.budget(Duration::from_secs(600)).schedules(runs)
}

/// While its watch is held, the controller repeatedly recreates the object that the collector deletes. This is an
/// effect of the fault, not a bug.
#[test]
fn correct_controller_with_garbage_collector_passes() {
    let cluster = TestCluster::builder().workers([Worker::GarbageCollector]);
    bounded(explore(owners_come_and_go).cluster(cluster), 120).run();
}

/// Objects of a deleted owner remain without a collector; it does not matter whether they were created in time.
#[test]
fn garbage_is_not_part_of_the_end_state() {
    bounded(explore(owners_come_and_go), 120).run();
}

/// The collector identifies owners by their uids, so it would confuse objects with the same uid.
#[test]
fn objects_of_a_run_do_not_get_the_uids_of_initial_objects() {
    let initial = TestCluster::builder().object(config_map("a")).object(config_map("b"));
    explore(async |cluster: &TestCluster| {
        cluster.controller("operator", own_config_maps);
        cluster.create(pod("c")).await;
        cluster.settle().await;
        let server = cluster.server();
        let objects = server.objects(&server.snapshot());
        let uids = objects.iter().filter_map(|it| it["metadata"]["uid"].as_str());
        let different: std::collections::BTreeSet<&str> = uids.clone().collect();
        assert_eq!(different.len(), uids.count());
    })
    .cluster(initial)
    .schedules(1)
    .run();
}

/// Requests of the garbage collector may be late, like other requests.
#[test]
fn exploration_delays_requests_of_workers() {
    let cluster = TestCluster::builder().workers([Worker::GarbageCollector]);
    let report = explore(owners_come_and_go)
        .cluster(cluster)
        .eventually("the ConfigMap is there no more", |cluster| {
            cluster.gone(config_map("web-0"))
        })
        .eventually("nothing is late", |cluster| {
            let deletes = cluster.journal().entries().into_iter().filter_map(|it| match it {
                testkit::Entry::Request(request) if request.worker.is_some() => Some(request),
                _ => None,
            });
            deletes
                .map(|it| it.answered - it.started)
                .all(|it| it < Duration::from_secs(1))
        })
        .faults(delays())
        .budget(Duration::from_secs(600))
        .schedules(200)
        .report();
    let failure = report.failure().expect("the exploration fails");
    assert_eq!(
        failure.plan(),
        ["delay delete configmaps default/web-0 of generic-garbage-collector by 1s"],
        "{report}"
    );
}

/// Takes over a Lease that appears old by the machine's clock. client-go only compares the times at which its own clock
/// observed changes.
async fn elect(client: Client, me: &str, clock: impl Fn() -> jiff::Timestamp) {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
    let leases = Api::<Lease>::default_namespaced(client);
    loop {
        let found = leases.get_opt("leader").await.ok().flatten();
        let spec = found.as_ref().and_then(|it| it.spec.clone()).unwrap_or_default();
        let MicroTime(renewed) = spec.renew_time.unwrap_or(MicroTime(jiff::Timestamp::UNIX_EPOCH));
        let is_mine = spec.holder_identity.as_deref() == Some(me);
        if is_mine || clock().duration_since(renewed).as_secs() > 15 {
            let lease = json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "leader"},
                "spec": {
                    "holderIdentity": me, "renewTime": MicroTime(clock()),
                    "leaseTransitions": spec.lease_transitions.unwrap_or_default() + i32::from(!is_mine),
                },
            });
            let params = PatchParams::apply("elector").force();
            let _ = leases.patch("leader", &params, &Patch::Apply(lease)).await;
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
}

#[test]
fn elector_that_trusts_clocks_has_two_leaders_with_a_skewed_clock() {
    let report = explore(async |cluster: &TestCluster| {
        let server = cluster.server().clone();
        let clock = move || server.now();
        for name in ["one", "two"] {
            let clock = clock.clone();
            cluster.controller(name, move |client| elect(client, name, clock.clone()));
            cluster.advance(Duration::from_secs(2)).await;
        }
        cluster.advance(Duration::from_secs(60)).await;
    })
    .faults(clock_skew())
    .always("the first one leads for ever", |cluster| {
        let lease = cluster
            .try_get::<Lease>("leader")
            .and_then(|it| it.spec?.lease_transitions);
        lease.unwrap_or(1) == 1
    })
    .report();
    let failure = report.failure().expect("the exploration fails");
    assert!(failure.plan()[0].starts_with("the clock of "), "{report}");
}

/// Records the version of each ConfigMap as a 32-bit number.
async fn number(client: Client) {
    let maps = Api::<ConfigMap>::default_namespaced(client);
    let events = watcher(maps.clone(), watcher::Config::default());
    let applied = kube::runtime::WatchStreamExt::applied_objects(events);
    let _ = applied
        .try_for_each(|map| {
            let maps = maps.clone();
            async move {
                let version: u32 = map
                    .resource_version()
                    .unwrap_or_default()
                    .parse()
                    .expect("the value is a number");
                if map.annotations().is_empty() {
                    let patch = json!({"metadata": {"annotations": {"is-new": (version > 0).to_string()}}});
                    let _ = maps
                        .patch(&map.name_any(), &Default::default(), &Patch::Merge(patch))
                        .await;
                }
                Ok(())
            }
        })
        .await;
}

async fn numbered(cluster: &TestCluster) {
    cluster.controller("operator", number);
    cluster.create(config_map("a")).await;
    cluster.settle().await;
}

#[test]
fn large_resource_versions_are_a_server_variant() {
    let report = explore(numbered).faults(variants()).report();
    let failure = report.failure().expect("the exploration fails");
    assert_eq!(failure.oracle(), "no panic", "{report}");
    assert_eq!(failure.plan(), ["the server's revisions start at 9007199254740993"]);
}

/// Watches once, and ends with the watch.
async fn watch_once(client: Client) {
    let maps = Api::<ConfigMap>::default_namespaced(client.clone());
    let Ok(events) = maps.watch(&WatchParams::default(), "0").await else {
        return;
    };
    let mut events = events.boxed();
    while let Some(Ok(event)) = events.next().await {
        if let kube::api::WatchEvent::Added(map) = event {
            let patch = Patch::Merge(json!({"metadata": {"labels": {"seen": "true"}}}));
            let _ = maps.patch(&map.name_any(), &Default::default(), &patch).await;
        }
    }
}

#[rstest]
#[case::half_open_watch(
    "half-open=295000@operator:event:configmaps:default/a#1",
    "deliver no events to operator, starting at the event for configmaps default/a; the connection of the watch \
     breaks after 295s"
)]
#[case::missed_event(
    "drop@operator:event:configmaps:default/a#1",
    "do not deliver the event for configmaps default/a to operator"
)]
fn silent_watch_is_replayed(#[case] replay: &str, #[case] words: &str) {
    let report = explore(async |cluster: &TestCluster| {
        cluster.controller("operator", watch_once);
        cluster.create(config_map("a")).await;
        cluster.settle().await;
    })
    .replay(replay)
    .report();
    let failure = report.failure().expect("the exploration fails");
    assert_eq!(
        (failure.oracle(), failure.plan()),
        ("end state", vec![words.to_owned()])
    );
    assert!(report.to_string().contains("never delivered ← here"), "{report}");
}

/// The timeline lists a held event at the time when the client received it.
#[test]
fn held_event_is_shown_at_its_delivery() {
    let report = explore(async |cluster: &TestCluster| {
        cluster.controller("operator", number);
        cluster.settle().await;
        cluster.create(config_map("a")).await;
        cluster.settle().await;
    })
    .replay("hold=12000@operator:event:configmaps:default/a#1")
    .always("it is seen within ten seconds", |cluster| {
        let patches = cluster.requests().on(Verb::Patch, "configmaps");
        patches.iter().all(|it| it.started < Duration::from_secs(15))
    })
    .report();
    let text = report.to_string();
    let came = text.find("5.100 operator event ADDED configmaps default/a @107 is held");
    let told = text.find("17.100 operator event ADDED configmaps default/a @107");
    assert!(
        came.is_some() && came < told && text.contains("→ held for 12s"),
        "{text}"
    );
}

/// A controller started by `run` cannot be started again.
#[rstest]
#[case::with_crashes(crashes() | errors(), Some("a controller can be crashed"))]
#[case::without_crashes(errors(), None)]
fn controllers_that_cannot_be_crashed_are_listed(#[case] kinds: Faults, #[case] oracle: Option<&str>) {
    let report = explore(async |cluster: &TestCluster| {
        cluster.run(own_config_maps(cluster.client()));
        cluster.create(pod("web-0")).await;
        cluster.settle().await;
    })
    .faults(kinds)
    .schedules(10)
    .report();
    assert_eq!(report.failure().map(|it| it.oracle()), oracle, "{report}");
    let text = report.to_string();
    assert!(
        text.contains("use `cluster.controller(\"name\", |client| …)`"),
        "{text}"
    );
    assert!(text.contains("explored.rs:"), "{text}");
}

#[test]
fn scenario_without_requests_fails_the_exploration() {
    let report = explore(async |cluster: &TestCluster| {
        cluster.create(pod("web-0")).await;
    })
    .report();
    assert_eq!(
        report.failure().map(|it| it.oracle()),
        Some("the scenario sends requests"),
        "{report}"
    );
}

#[rstest]
#[case::without_a_matching_request("pods", "matched no request: 409 Conflict on update pods")]
#[case::on_an_unserved_resource("widgets.example.com", "the resource widgets.example.com is not served")]
fn unused_fault_of_the_scenario_is_listed(#[case] resource: &'static str, #[case] said: &str) {
    let report = explore(async move |cluster: &TestCluster| {
        cluster.controller("operator", own_config_maps);
        cluster.inject(faults::conflict().on(Verb::Update, resource)).forget();
        cluster.create(pod("web-0")).await;
        cluster.settle().await;
    })
    .faults(stale_watches())
    .schedules(5)
    .report();
    assert!(report.to_string().contains(said), "{report}");
}

#[test]
fn replay_string_that_matches_no_message_causes_a_note() {
    let report = explore(numbered)
        .replay("cut@operator:event:secrets:default/a#1")
        .faults(variants())
        .report();
    let said = "`cut@operator:event:secrets:default/a#1` in the replay string has no effect";
    assert!(report.to_string().contains(said), "{report}");
}

#[rstest]
fn pod_scripts_apply_to_every_run() {
    let once = || pod("once").set("spec.restartPolicy", "Never");
    let scenario = async move |cluster: &TestCluster| {
        cluster.controller("operator", own_config_maps);
        cluster.create(once()).await;
        cluster.settle().await;
        assert_eq!(cluster.get(once()).get("status.phase"), Some(&"Failed".into()));
    };
    let cluster = TestCluster::builder()
        .workers(Worker::ALL)
        .pod_script(PodSelector::all(), PodScript::default().exits_with(1));
    bounded(explore(scenario).cluster(cluster), 20).run();
}
