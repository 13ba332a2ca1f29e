//! kubernetes#56261: the scheduler's cache contains a deleted Node, because the event has not arrived yet, and Pods are
//! bound to it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::PostParams;
use kube::runtime::controller::{Action, Controller};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use testkit::TestCluster;
use testkit::objects::{node, pod};

use crate::support::{Reconciled, api};

#[derive(Clone)]
struct Scheduler {
    client: Client,
    nodes: Arc<Mutex<BTreeSet<String>>>,
    is_fixed: bool,
}

impl Scheduler {
    async fn schedule(&self, pod: &Pod) -> Reconciled {
        if pod.spec.as_ref().is_some_and(|it| it.node_name.is_some()) {
            return Ok(());
        }
        let first = self.nodes.lock().expect("the lock is not poisoned").first().cloned();
        let Some(name) = first else {
            return Err(kube::Error::LinesCodecMaxLineLengthExceeded);
        };
        if self.is_fixed && Api::<Node>::all(self.client.clone()).get_opt(&name).await?.is_none() {
            self.nodes.lock().expect("the lock is not poisoned").remove(&name);
            return Err(kube::Error::LinesCodecMaxLineLengthExceeded); // to be tried again
        }
        let target = json!({
            "apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod.name_any()},
            "target": {"apiVersion": "v1", "kind": "Node", "name": name},
        });
        let pods = api::<Pod>(&self.client);
        let bound: Result<serde_json::Value, _> = pods
            .create_subresource("binding", &pod.name_any(), &PostParams::default(), &target)
            .await;
        match bound {
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            bound => bound.map(drop),
        }
    }

    fn learn(&self, event: Event<Node>, listed: &mut BTreeSet<String>) {
        let mut nodes = self.nodes.lock().expect("the lock is not poisoned");
        match event {
            Event::Init => listed.clear(),
            Event::InitApply(node) => drop(listed.insert(node.name_any())),
            Event::InitDone => *nodes = std::mem::take(listed),
            Event::Apply(node) => drop(nodes.insert(node.name_any())),
            Event::Delete(node) => drop(nodes.remove(&node.name_any())),
        }
    }
}

async fn scheduler(client: Client, is_fixed: bool) {
    let scheduler = Arc::new(Scheduler {
        client: client.clone(),
        nodes: Arc::default(),
        is_fixed,
    });
    let learning = {
        let mut listed = BTreeSet::new();
        let scheduler = Arc::clone(&scheduler);
        watch(Api::<Node>::all(client.clone()), watcher::Config::default())
            .default_backoff()
            .for_each(move |event| {
                if let Ok(event) = event {
                    scheduler.learn(event, &mut listed);
                }
                async {}
            })
    };
    let scheduling = Controller::new(api::<Pod>(&client), watcher::Config::default())
        .run(
            |pod, scheduler: Arc<Scheduler>| async move {
                scheduler
                    .schedule(&pod)
                    .map(|done| done.map(|()| Action::await_change()))
                    .await
            },
            |_, _: &kube::Error, _| Action::requeue(Duration::from_secs(2)),
            scheduler,
        )
        .for_each(|_| async {});
    futures::future::join(learning, scheduling).await;
}

pub(crate) async fn scenario(cluster: &TestCluster, is_fixed: bool) {
    cluster.controller("scheduler", move |client| scheduler(client, is_fixed));
    cluster.create(node("node-1")).await;
    cluster.create(node("node-2")).await;
    cluster.settle().await;
    cluster.delete(node("node-1")).await;
    cluster.settle().await;
    cluster.create(pod("web-0")).await;
    cluster.settle().await;
}
