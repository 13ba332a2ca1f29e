//! Correct controllers in the style of kube's examples and users: nothing is reported.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::runtime::finalizer::{Event as Finalizer, finalizer};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::{Value, json};
use testkit::TestCluster;
use testkit::objects::config_map;
use tokio::time::{sleep, timeout};

use crate::support::{field, now, plain, silent};

/// Generates a test for each scenario, which asserts that nothing is reported.
macro_rules! idioms {
    ($($name:ident),+ $(,)?) => {
        mod idiom_is_not_reported {
            use super::*;
            $(#[test] fn $name() {
                silent(stringify!($name), plain(), async |cluster: &TestCluster, _| super::$name(cluster).await);
            })+
        }
    };
}

idioms!(
    child_is_applied_with_force_under_a_finalizer,
    status_has_the_time_of_the_last_change,
    settings_are_mapped_to_all_parents,
    timer_reconciles_all_objects,
    requeue_writes_a_heartbeat,
    recorder_reports_each_step,
    only_the_elected_leader_writes,
    every_slot_has_its_backup,
    reflector_feeds_a_stream,
    password_is_rotated_by_a_timer,
    instance_has_a_random_identity,
    name_is_generated_and_recorded_first,
);

type Maps = Api<ConfigMap>;

fn retry<K, C>(_: Arc<K>, _: &kube::Error, _: Arc<C>) -> Action {
    Action::requeue(Duration::from_secs(5))
}

fn maps(client: &Client) -> Maps {
    Api::default_namespaced(client.clone())
}

/// Applies a child with the fields of its parent.
async fn apply_child(parent: &ConfigMap, client: &Client, data: Value) -> kube::Result<()> {
    let name = parent.name_any();
    let child = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": name, "ownerReferences": [parent.controller_owner_ref(&())]},
        "stringData": data,
    });
    let secrets = Api::<Secret>::default_namespaced(client.clone());
    let params = PatchParams::apply("operator").force();
    secrets.patch(&name, &params, &Patch::Apply(child)).await.map(drop)
}

async fn annotate(client: &Client, name: &str, annotations: Value) -> kube::Result<()> {
    let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
    maps(client)
        .patch(name, &PatchParams::default(), &patch)
        .await
        .map(drop)
}

fn annotation<'a>(parent: &'a ConfigMap, name: &str) -> &'a str {
    parent.annotations().get(name).map_or("", String::as_str)
}

fn parents() -> watcher::Config {
    watcher::Config::default().labels("kind=parent")
}

async fn made_and_changed(cluster: &TestCluster) {
    for name in ["web", "shop"] {
        cluster
            .create(config_map(name).label("kind", "parent").data("size", "1"))
            .await;
    }
    cluster.settle().await;
    let _: testkit::Object = cluster.patch(config_map("web"), json!({"data": {"size": "2"}})).await;
    cluster.settle().await;
}

/// Starts a controller of the parents.
fn start<F>(cluster: &TestCluster, reconcile: impl Fn(Arc<ConfigMap>, Arc<Client>) -> F + Clone + Send + Sync + 'static)
where
    F: Future<Output = kube::Result<Action>> + Send + 'static,
{
    cluster.controller("operator", move |client: Client| {
        let reconcile = reconcile.clone();
        async move {
            let secrets = Api::<Secret>::default_namespaced(client.clone());
            Controller::new(maps(&client), parents())
                .owns(secrets, watcher::Config::default())
                .run(reconcile, retry, Arc::new(client))
                .for_each(|_| async {})
                .await;
        }
    });
}

/// The finalizer writes a ConfigMap that counts as the archive of a deleted parent.
async fn child_is_applied_with_force_under_a_finalizer(cluster: &TestCluster) {
    cluster.controller("operator", |client: Client| async move {
        let reconcile = async |parent: Arc<ConfigMap>, client: Arc<Client>| {
            finalizer(
                &maps(&client),
                "example.com/archive",
                parent,
                async |event| match event {
                    Finalizer::Apply(parent) => {
                        apply_child(&parent, &client, json!({"size": field(&parent, "size")})).await?;
                        Ok(Action::requeue(Duration::from_secs(3600)))
                    }
                    Finalizer::Cleanup(parent) => {
                        let archive = json!({
                            "apiVersion": "v1", "kind": "ConfigMap",
                            "metadata": {"name": format!("archive-{}", parent.name_any())}, "data": parent.data,
                        });
                        let (name, params) = (format!("archive-{}", parent.name_any()), PatchParams::apply("operator"));
                        maps(&client).patch(&name, &params, &Patch::Apply(archive)).await?;
                        Ok(Action::await_change())
                    }
                },
            )
            .await
        };
        Controller::new(maps(&client), parents())
            .run(
                reconcile,
                |_, _: &kube::runtime::finalizer::Error<kube::Error>, _| Action::requeue(Duration::from_secs(5)),
                Arc::new(client),
            )
            .for_each(|_| async {})
            .await;
    });
    made_and_changed(cluster).await;
    cluster.delete(config_map("web")).await;
    cluster.settle().await;
}

async fn status_has_the_time_of_the_last_change(cluster: &TestCluster) {
    start(cluster, async |parent, client| {
        apply_child(&parent, &client, json!({"size": field(&parent, "size")})).await?;
        if annotation(&parent, "size") != field(&parent, "size") {
            let now = now().to_string();
            let annotations = json!({"size": field(&parent, "size"), "changed": now});
            annotate(&client, &parent.name_any(), annotations).await?;
        }
        Ok(Action::await_change())
    });
    made_and_changed(cluster).await;
}

async fn settings_are_mapped_to_all_parents(cluster: &TestCluster) {
    cluster.controller("operator", |client: Client| async move {
        let controller = Controller::new(maps(&client), parents());
        let store = controller.store();
        let settings = watcher::Config::default().fields("metadata.name=settings");
        controller
            .watches(maps(&client), settings, move |_| {
                let all: Vec<_> = store.state().iter().map(|it| ObjectRef::from_obj(&**it)).collect();
                all
            })
            .run(
                async |parent: Arc<ConfigMap>, client: Arc<Client>| {
                    let settings = maps(&client).get_opt("settings").await?;
                    let mode = settings.map_or_else(String::new, |it| field(&it, "mode").to_owned());
                    apply_child(&parent, &client, json!({"mode": mode})).await?;
                    Ok(Action::await_change())
                },
                retry,
                Arc::new(client),
            )
            .for_each(|_| async {})
            .await;
    });
    cluster.create(config_map("settings").data("mode", "slow")).await;
    made_and_changed(cluster).await;
    let _: testkit::Object = cluster
        .patch(config_map("settings"), json!({"data": {"mode": "fast"}}))
        .await;
    cluster.settle().await;
}

async fn timer_reconciles_all_objects(cluster: &TestCluster) {
    cluster.controller("operator", |client: Client| async move {
        let ticks = futures::stream::unfold((), async |()| {
            sleep(Duration::from_secs(300)).await;
            Some(((), ()))
        });
        Controller::new(maps(&client), parents())
            .reconcile_all_on(ticks.boxed())
            .run(
                async |parent: Arc<ConfigMap>, client: Arc<Client>| {
                    apply_child(&parent, &client, json!({"size": field(&parent, "size")})).await?;
                    Ok(Action::await_change())
                },
                retry,
                Arc::new(client),
            )
            .for_each(|_| async {})
            .await;
    });
    made_and_changed(cluster).await;
    cluster.advance(Duration::from_secs(700)).await;
}

async fn requeue_writes_a_heartbeat(cluster: &TestCluster) {
    start(cluster, async |parent, client| {
        let now = now();
        let last = annotation(&parent, "heartbeat").parse::<Timestamp>();
        let age = last.map_or(i64::MAX, |it| now.as_second() - it.as_second());
        if age >= 600 {
            annotate(&client, &parent.name_any(), json!({"heartbeat": now.to_string()})).await?;
        }
        apply_child(&parent, &client, json!({"size": field(&parent, "size")})).await?;
        Ok(Action::requeue(Duration::from_secs(600)))
    });
    cluster
        .create(config_map("web").label("kind", "parent").data("size", "1"))
        .await;
    cluster.advance(Duration::from_secs(1300)).await;
}

async fn recorder_reports_each_step(cluster: &TestCluster) {
    start(cluster, async |parent, client| {
        let recorder = Recorder::new(Client::clone(&client), Reporter::from("operator"));
        apply_child(&parent, &client, json!({"size": field(&parent, "size")})).await?;
        let event = Event {
            type_: EventType::Normal,
            reason: "Applied".to_owned(),
            note: Some(format!("size {}", field(&parent, "size"))),
            action: "Apply".to_owned(),
            secondary: None,
        };
        recorder.publish(&event, &parent.object_ref(&())).await?;
        Ok(Action::await_change())
    });
    made_and_changed(cluster).await;
}

/// Takes or renews the Lease, as the crate kube-leader-election does. Returns `true` if this instance holds the Lease.
async fn lead(leases: &Api<Lease>, name: &str) -> kube::Result<bool> {
    let now = now();
    let Some(known) = leases.get_opt("operator").await? else {
        let lease: Lease = serde_json::from_value(json!({
            "metadata": {"name": "operator"},
            "spec": {
                "holderIdentity": name, "leaseDurationSeconds": 15, "leaseTransitions": 0,
                "acquireTime": MicroTime(now), "renewTime": MicroTime(now),
            },
        }))
        .map_err(kube::Error::SerdeError)?;
        return leases.create(&PostParams::default(), &lease).await.map(|_| true);
    };
    let spec = known.spec.clone().unwrap_or_default();
    let renewed = spec.renew_time.map_or(0, |it| it.0.as_second());
    let is_own = spec.holder_identity.as_deref() == Some(name);
    if !is_own && renewed + 15 > now.as_second() {
        return Ok(false);
    }
    let terms = spec.lease_transitions.unwrap_or(0) + i32::from(!is_own);
    let patch = json!({
        "metadata": {"resourceVersion": known.resource_version()},
        "spec": {"holderIdentity": name, "renewTime": MicroTime(now), "leaseTransitions": terms},
    });
    leases
        .patch("operator", &PatchParams::default(), &Patch::Merge(patch))
        .await
        .map(|_| true)
}

async fn apply_all(client: &Client) -> kube::Result<()> {
    for parent in maps(client).list(&Default::default()).await? {
        apply_child(&parent, client, json!({"size": field(&parent, "size")})).await?;
    }
    Ok(())
}

async fn only_the_elected_leader_writes(cluster: &TestCluster) {
    for name in ["one", "two"] {
        cluster.controller(name, move |client: Client| async move {
            let leases = Api::<Lease>::default_namespaced(client.clone());
            loop {
                if lead(&leases, name).await.unwrap_or(false) {
                    // The Lease lasts for 15 seconds, and the work must end before the Lease expires.
                    let _ = timeout(Duration::from_secs(10), apply_all(&client)).await;
                }
                sleep(Duration::from_secs(5)).await;
            }
        });
    }
    for size in ["1", "2"] {
        let web = config_map("web").data("size", size);
        match size {
            "1" => drop(cluster.create(web).await),
            _ => {
                let _: testkit::Object = cluster.patch(config_map("web"), json!({"data": {"size": size}})).await;
            }
        }
        cluster.advance(Duration::from_secs(20)).await;
    }
}

/// Creates a backup every ten minutes, and keeps all of them.
async fn every_slot_has_its_backup(cluster: &TestCluster) {
    cluster.controller("backup", |client: Client| async move {
        loop {
            let slot = now().as_second() / 600 * 600;
            let mut backup = ConfigMap::default();
            backup.metadata.name = Some(format!("backup-{}", slot / 60));
            let pause = match maps(&client).create(&PostParams::default(), &backup).await {
                Err(kube::Error::Api(status)) if status.is_already_exists() => 60,
                Err(_) => 5,
                Ok(_) => 60,
            };
            sleep(Duration::from_secs(pause)).await;
        }
    });
    cluster.advance(Duration::from_secs(1900)).await;
}

/// Applies the children in the order of the events, and keeps a store of the parents for other tasks.
async fn reflector_feeds_a_stream(cluster: &TestCluster) {
    cluster.controller("operator", |client: Client| async move {
        let (_reader, writer) = reflector::store::<ConfigMap>();
        let stream = watcher(maps(&client), parents()).default_backoff().reflect(writer);
        let mut applied = std::pin::pin!(stream.applied_objects());
        while let Some(parent) = applied.next().await {
            let Ok(parent) = parent else { continue };
            let data = json!({"size": field(&parent, "size")});
            while apply_child(&parent, &client, data.clone()).await.is_err() {
                sleep(Duration::from_secs(5)).await;
            }
        }
    });
    made_and_changed(cluster).await;
}

fn random_text() -> String {
    std::iter::repeat_with(fastrand::alphanumeric).take(20).collect()
}

/// Rotates a password every ten minutes. The consumer is configured with the stored password afterwards.
async fn password_is_rotated_by_a_timer(cluster: &TestCluster) {
    cluster.controller("rotation", |client: Client| async move {
        let secrets = Api::<Secret>::default_namespaced(client);
        loop {
            let now = now();
            let rotated = match secrets.get_opt("login").await {
                Ok(known) => {
                    let last = known
                        .as_ref()
                        .and_then(|it| it.annotations().get("rotated")?.parse().ok());
                    let due = last.map_or(0, |it: i64| it + 600 - now.as_second());
                    if due > 0 {
                        sleep(Duration::from_secs(due.unsigned_abs())).await;
                        continue;
                    }
                    let login = json!({
                        "apiVersion": "v1", "kind": "Secret",
                        "metadata": {"name": "login", "annotations": {"rotated": now.as_second().to_string()}},
                        "stringData": {"password": random_text()},
                    });
                    let params = PatchParams::apply("rotation").force();
                    secrets.patch("login", &params, &Patch::Apply(login)).await.map(drop)
                }
                Err(err) => Err(err),
            };
            if rotated.is_err() {
                sleep(Duration::from_secs(5)).await;
            }
        }
    });
    cluster.controller("consumer", |client: Client| async move {
        let secrets = Api::<Secret>::default_namespaced(client.clone());
        let config = watcher::Config::default().fields("metadata.name=login");
        Controller::new(secrets, config)
            .run(
                async |login: Arc<Secret>, client: Arc<Client>| {
                    let password = login
                        .data
                        .clone()
                        .unwrap_or_default()
                        .remove("password")
                        .unwrap_or_default();
                    let password = String::from_utf8(password.0).unwrap_or_default();
                    let consumer = json!({
                        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "consumer"},
                        "data": {"url": format!("https://web:{password}@db")},
                    });
                    let params = PatchParams::apply("consumer").force();
                    maps(&client)
                        .patch("consumer", &params, &Patch::Apply(consumer))
                        .await?;
                    Ok(Action::await_change())
                },
                retry,
                Arc::new(client),
            )
            .for_each(|_| async {})
            .await;
    });
    cluster.advance(Duration::from_secs(1300)).await;
}

/// Each process has a random identity, which it writes into its objects as their last writer.
async fn instance_has_a_random_identity(cluster: &TestCluster) {
    cluster.controller("operator", |client: Client| async move {
        let identity = random_text();
        let reconcile = move |parent: Arc<ConfigMap>, client: Arc<Client>| {
            let identity = identity.clone();
            async move {
                if annotation(&parent, "size") != field(&parent, "size") {
                    let size = field(&parent, "size");
                    let annotations = json!({"size": size, "written-by": identity});
                    annotate(&client, &parent.name_any(), annotations).await?;
                }
                Ok(Action::await_change())
            }
        };
        Controller::new(maps(&client), parents())
            .run(reconcile, retry, Arc::new(client))
            .for_each(|_| async {})
            .await;
    });
    made_and_changed(cluster).await;
}

/// Records a random name before it creates the object.
async fn name_is_generated_and_recorded_first(cluster: &TestCluster) {
    start(cluster, async |parent, client| {
        let name = annotation(&parent, "child").to_owned();
        if name.is_empty() {
            let name = format!("{}-{:x}", parent.name_any(), fastrand::u64(..));
            let patch = json!({"metadata": {
                "annotations": {"child": name}, "resourceVersion": parent.resource_version(),
            }});
            maps(&client)
                .patch(&parent.name_any(), &PatchParams::default(), &Patch::Merge(patch))
                .await?;
            return Ok(Action::await_change());
        }
        let mut child = Secret::default();
        child.metadata.name = Some(name);
        child.metadata.owner_references = Some(parent.controller_owner_ref(&()).into_iter().collect());
        let secrets = Api::<Secret>::default_namespaced(Client::clone(&client));
        match secrets.create(&PostParams::default(), &child).await {
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            created => drop(created?),
        }
        Ok(Action::await_change())
    });
    made_and_changed(cluster).await;
}
