//! kube-runtime's `watcher` and `reflector` against the server, with pages, ended watches, gaps and hours without
//! changes.

use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Api, ResourceExt};
use rstest::rstest;
use testkit::objects::{config_map, pod};
use testkit::{TestCluster, Verb, cluster, faults};

use crate::support::{Told, watch_pods};

/// Starts a cluster with a watcher that has received the Pods `web-0` and `web-1`.
async fn watching(config: watcher::Config) -> (TestCluster, Told) {
    let cluster = TestCluster::builder().object(pod("web-0")).object(pod("web-1")).start();
    let told = Told::default();
    cluster.run(watch_pods(cluster.client(), config, told.clone()));
    cluster.settle().await;
    assert_eq!(told.take(), ["init", "init web-0", "init web-1", "init done"]);
    (cluster, told)
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn list_is_read_in_pages(cluster: TestCluster) {
    for n in 0..5 {
        cluster.create(pod(&format!("web-{n}"))).await;
    }
    let told = Told::default();
    cluster.run(watch_pods(
        cluster.client(),
        watcher::Config::default().page_size(2),
        told.clone(),
    ));
    cluster.settle().await;
    assert_eq!(
        told.take().join(", "),
        "init, init web-0, init web-1, init web-2, init web-3, init web-4, init done"
    );
    assert_eq!(cluster.requests().on(Verb::List, "pods").count(), 3);
}

#[tokio::test(start_paused = true)]
async fn streaming_list_replaces_the_list() {
    let (cluster, told) = watching(watcher::Config::default().streaming_lists()).await;
    cluster.create(pod("web-2")).await;
    cluster.settle().await;
    assert_eq!(told.take(), ["apply web-2"]);
    assert_eq!(cluster.requests().on(Verb::List, "pods").count(), 0);
    assert_eq!(cluster.requests().on(Verb::Watch, "pods").count(), 1);
}

#[tokio::test(start_paused = true)]
async fn ended_watch_is_resumed() {
    let (cluster, told) = watching(watcher::Config::default()).await;
    cluster.watches().on("pods").end();
    cluster.create(pod("web-2")).await;
    cluster.settle().await;
    assert_eq!(told.take(), ["apply web-2"]);
    assert_eq!(cluster.requests().on(Verb::List, "pods").count(), 1);
    assert_eq!(cluster.requests().on(Verb::Watch, "pods").count(), 2);
}

#[tokio::test(start_paused = true)]
async fn delete_during_a_gap_is_delivered_afterwards() {
    let (cluster, told) = watching(watcher::Config::default()).await;
    let gap = cluster.inject(faults::server_error().on(Verb::Watch, "pods").times(2));
    cluster.watches().on("pods").end();
    cluster.delete(pod("web-0")).await;
    cluster.settle().await;
    // A Pod is marked before it is removed, so there are two changes.
    assert_eq!(told.take(), ["error", "error", "apply web-0", "delete web-0"]);
    assert_eq!(gap.hits(), 2);
}

#[tokio::test(start_paused = true)]
async fn expired_watch_causes_one_relist() {
    let (cluster, told) = watching(watcher::Config::default()).await;
    cluster.delete(pod("web-0")).await;
    cluster.expire_watches();
    cluster.settle().await;
    // The deletion was ready for delivery, but an expired watch does not deliver further events.
    assert_eq!(told.take().join(", "), "error, init, init web-1, init done");
    assert_eq!(cluster.requests().on(Verb::List, "pods").count(), 2);
}

#[tokio::test(start_paused = true)]
async fn bookmarks_keep_a_quiet_watch_from_expiring() {
    let (cluster, told) = watching(watcher::Config::default()).await;
    for n in 0..20 {
        cluster.create(config_map(&format!("other-{n}"))).await;
    }
    cluster.advance(Duration::from_secs(61)).await;
    cluster.server().compact();
    cluster.watches().on("pods").end();
    cluster.create(pod("web-2")).await;
    cluster.settle().await;
    assert_eq!(told.take(), ["apply web-2"]);
    assert_eq!(cluster.requests().on(Verb::List, "pods").count(), 1);
}

#[tokio::test(start_paused = true)]
async fn idle_watcher_does_not_list_again_within_a_day() {
    let (cluster, told) = watching(watcher::Config::default()).await;
    cluster.advance(Duration::from_secs(24 * 3600)).await;
    assert_eq!(told.take().len(), 0);
    assert_eq!(cluster.requests().on(Verb::List, "pods").count(), 1);
    let watches = cluster.requests().on(Verb::Watch, "pods").count();
    assert!(
        (290..310).contains(&watches),
        "a watch ends after 290 s, but there were {watches} in a day"
    );
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn reflector_store_equals_the_state_of_the_cluster(cluster: TestCluster) {
    let (store, writer) = reflector::store::<Pod>();
    let events = watcher(Api::<Pod>::all(cluster.client()), watcher::Config::default()).default_backoff();
    cluster.run(reflector(writer, events).for_each(|_| async {}));
    let names = || {
        let mut names: Vec<_> = store.state().iter().map(|pod| pod.name_any()).collect();
        names.sort();
        names
    };
    cluster.create(pod("web-0")).await;
    cluster.create(pod("web-1")).await;
    cluster.eventually(|_| assert_eq!(names(), ["web-0", "web-1"])).await;

    // The Pod was deleted while there was no watch, and the history is lost: only the new list shows the deletion.
    let gap = cluster.inject(faults::server_error().on(Verb::Watch, "pods"));
    cluster.expire_watches();
    cluster.delete(pod("web-0")).await;
    cluster.advance(Duration::from_secs(10)).await;
    drop(gap);
    cluster.eventually(|_| assert_eq!(names(), ["web-1"])).await;
}
