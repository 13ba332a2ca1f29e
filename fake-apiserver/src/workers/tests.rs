//! Tests of the framework with a controller that labels ConfigMaps.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::controller::Runner;
use super::pump::Pump;
use super::{Context, Controller, Follows, Host, Identity, Observed, RequestFailure, WorkQueue};
use crate::api::json::json;
use crate::api::options::PatchKind;
use crate::server::ApiServer;
use crate::storage::Key;
use crate::tasks::TaskGroup;

/// Adds a label to every ConfigMap. A ConfigMap named `later` gets the label after a minute; `broken` never gets it.
struct Labeller;

impl Controller for Labeller {
    type Key = Key;

    fn identity(&self) -> Identity {
        Identity::controller("labeller")
    }

    fn follows(&self) -> Follows {
        Follows::These(&["configmaps"])
    }

    fn observe(&mut self, change: &Observed<'_>, queue: &mut WorkQueue<Key>) {
        match change.new {
            Some(stored) if stored.key.name() == "later" && change.old.is_none() => {
                queue.add_after(stored.key.clone(), Duration::from_secs(60));
            }
            Some(stored) => queue.add(stored.key.clone()),
            None => {}
        }
    }

    async fn sync(&mut self, key: Key, context: &mut Context<'_, Key>) -> Result<(), RequestFailure> {
        let api = context.api;
        let Some(map) = api.get("configmaps", &key) else {
            return Ok(());
        };
        if map.labels().any(|(key, _)| key == "seen") {
            return Ok(());
        }
        let value = if key.name() == "broken" { "no value!" } else { "true" };
        let patch = json!({"metadata": {"labels": {"seen": value}}});
        api.patch("configmaps", "", &key, PatchKind::Merge, &patch).await?;
        Ok(())
    }
}

fn run(server: &ApiServer) -> TaskGroup {
    let host: Arc<dyn Host> = server.endpoints.clone();
    let group = TaskGroup::default();
    group.spawn(Pump::new(&host, vec![Box::new(Runner::new(Labeller))]).run());
    group
}

fn load(server: &ApiServer, name: &str) {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    server.load([map.into()]).expect("the ConfigMap is valid");
}

async fn is_seen(server: &ApiServer, name: &str) -> bool {
    let map = server
        .get("v1", "ConfigMap", "default", name)
        .await
        .expect("the object exists");
    map["metadata"]["labels"]["seen"] == "true"
}

/// Waits until all other tasks are idle.
async fn rest() {
    sleep(Duration::from_millis(1)).await;
}

#[tokio::test(start_paused = true)]
async fn workers_sync_existing_and_new_objects() {
    let server = ApiServer::start();
    load(&server, "before");
    let _workers = run(&server);
    load(&server, "after");
    rest().await;

    assert!(is_seen(&server, "before").await && is_seen(&server, "after").await);
}

#[tokio::test(start_paused = true)]
async fn worker_requests_are_recorded_and_set_a_field_manager() {
    let server = ApiServer::start();
    let _workers = run(&server);
    let request = http::Request::post("/api/v1/namespaces/default/configmaps");
    let request = request.body(r#"{"metadata": {"name": "one"}, "data": {"key": "value"}}"#);
    server.call(request.expect("the request is valid")).await;
    rest().await;

    let requests = server.journal().requests();
    let senders: Vec<_> = requests.iter().map(|it| (it.worker, it.method.as_str())).collect();
    assert_eq!(senders, [(None, "POST"), (Some("labeller"), "PATCH")]);
    assert_eq!(server.journal().count(crate::Verb::Patch, "configmaps"), 0);
    let map = server
        .get("v1", "ConfigMap", "default", "one")
        .await
        .expect("the object exists");
    let managers = map["metadata"]["managedFields"]
        .as_array()
        .expect("the value is a list");
    assert!(managers.iter().any(|it| it["manager"] == "kube-controller-manager"));
}

#[tokio::test(start_paused = true)]
async fn delayed_key_is_synced_when_due_and_leaves_no_timer() {
    let server = ApiServer::start();
    let _workers = run(&server);
    load(&server, "later");
    sleep(Duration::from_secs(59)).await;
    assert!(!is_seen(&server, "later").await);
    sleep(Duration::from_secs(2)).await;
    assert!(is_seen(&server, "later").await);

    let before = Instant::now();
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(before.elapsed(), Duration::from_secs(3600));
    assert_eq!(server.journal().requests().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn failed_key_is_retried_with_doubled_delays() {
    let server = ApiServer::start();
    let _workers = run(&server);
    load(&server, "broken");
    sleep(Duration::from_secs(3)).await;

    let times: Vec<_> = server
        .journal()
        .requests()
        .iter()
        .map(|it| it.started.as_millis())
        .collect();
    assert_eq!(times[..5], [0, 5, 15, 35, 75]);
    assert_eq!(times.len(), 10);
}

#[tokio::test(start_paused = true)]
async fn workers_observe_all_objects_after_a_restore() {
    let server = ApiServer::start();
    load(&server, "one");
    let unseen = server.snapshot();
    let _workers = run(&server);
    rest().await;
    assert!(is_seen(&server, "one").await);

    server.restore(&unseen);
    rest().await;
    assert!(is_seen(&server, "one").await);
}

#[tokio::test(start_paused = true)]
async fn workers_relist_after_compaction() {
    let server = ApiServer::builder().history(1).start();
    let _workers = run(&server);
    rest().await;
    for name in ["a", "b", "c"] {
        load(&server, name);
    }
    rest().await;
    for name in ["a", "b", "c"] {
        assert!(is_seen(&server, name).await, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn running_workers_do_not_keep_the_server_alive() {
    let server = ApiServer::start();
    let _workers = run(&server);
    rest().await;
    let endpoints = Arc::downgrade(&server.endpoints);
    drop(server);
    assert!(endpoints.upgrade().is_none());
}
