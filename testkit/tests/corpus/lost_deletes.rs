//! kube-rs/kube#1590 and #1768: after a list, a cache built from a watcher's events must remove objects that the list
//! lacks. A cache that only adds objects keeps deleted objects forever.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Patch, PatchParams};
use kube::runtime::watcher::Event;
use kube::{Client, ResourceExt};
use serde_json::json;
use testkit::TestCluster;
use testkit::objects::pod;

use crate::support::{api, events};

/// Keeps a ConfigMap with the names of all Pods.
async fn index(client: Client, is_fixed: bool) {
    let maps = api::<ConfigMap>(&client);
    let (mut known, mut listed) = (BTreeSet::new(), BTreeSet::new());
    let mut is_ready = false;
    let mut events = Box::pin(events::<Pod>(&client));
    while let Some(event) = events.next().await {
        match event {
            Event::Init => listed.clear(),
            Event::InitApply(pod) => drop(listed.insert(pod.name_any())),
            Event::InitDone if is_fixed => (known, is_ready) = (std::mem::take(&mut listed), true),
            Event::InitDone => {
                known.append(&mut listed); // objects that are no longer listed stay
                is_ready = true;
            }
            Event::Apply(pod) => drop(known.insert(pod.name_any())),
            Event::Delete(pod) => drop(known.remove(&pod.name_any())),
        }
        let names = known.iter().cloned().collect::<Vec<_>>().join(",");
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "index"}, "data": {"pods": names},
        });
        let params = PatchParams::apply("index").force();
        while is_ready && maps.patch("index", &params, &Patch::Apply(&map)).await.is_err() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
}

pub(crate) async fn scenario(cluster: &TestCluster, is_fixed: bool) {
    cluster.controller("index", move |client| index(client, is_fixed));
    cluster.create(pod("web-0")).await;
    cluster.create(pod("web-1")).await;
    cluster.settle().await;
    cluster.delete(pod("web-0")).await;
    cluster.settle().await;
}
