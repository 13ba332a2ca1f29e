//! instaclustr/cassandra-operator#398: the volume of a Pod is deleted when the Pod's deletion is observed. If the
//! deletion is missed, the volume is never deleted.

use std::collections::BTreeSet;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::runtime::watcher::Event;
use kube::{Client, ResourceExt};
use testkit::TestCluster;
use testkit::objects::pod;

use crate::support::{api, ensure, events, names, remove, volume};

/// Each Pod has a volume with the same name, which is deleted with the Pod.
async fn volumes(client: Client, is_fixed: bool) {
    let volumes = api::<Secret>(&client);
    let pods = api::<Pod>(&client);
    let mut events = Box::pin(events::<Pod>(&client));
    while let Some(event) = events.next().await {
        loop {
            let done = match &event {
                _ if is_fixed => level(&pods, &volumes).await,
                Event::Apply(pod) | Event::InitApply(pod) => ensure(&volumes, &volume(&pod.name_any())).await,
                Event::Delete(pod) => remove(&volumes, &pod.name_any()).await,
                Event::Init | Event::InitDone => Ok(()),
            };
            match done {
                Ok(()) => break,
                Err(_) => tokio::time::sleep(std::time::Duration::from_secs(1)).await,
            }
        }
    }
}

/// Level-triggered: creates missing objects and deletes superfluous ones.
async fn level(pods: &kube::Api<Pod>, volumes: &kube::Api<Secret>) -> Result<(), kube::Error> {
    let wanted: BTreeSet<String> = names(pods).await?.into_iter().collect();
    let found: BTreeSet<String> = names(volumes).await?.into_iter().collect();
    for name in wanted.difference(&found) {
        ensure(volumes, &volume(name)).await?;
    }
    for name in found.difference(&wanted) {
        remove(volumes, name).await?;
    }
    Ok(())
}

pub(crate) async fn scenario(cluster: &TestCluster, is_fixed: bool) {
    cluster.controller("operator", move |client| volumes(client, is_fixed));
    cluster.create(pod("node-0")).await;
    cluster.create(pod("node-1")).await;
    cluster.settle().await;
    cluster.delete(pod("node-1")).await;
    cluster.settle().await;
}
