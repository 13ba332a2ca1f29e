//! kube-runtime's `Controller`, as it is.

use rstest::rstest;
use testkit::objects::{config_map, pod};
use testkit::{TestCluster, Verb, cluster};

use crate::support::{label_pods, own_config_maps};

#[rstest]
#[tokio::test(start_paused = true)]
async fn an_object_is_reconciled(cluster: TestCluster) {
    cluster.run(label_pods(cluster.client()));
    cluster.create(pod("web-0").namespace("shop")).await;
    cluster.settle().await;
    assert_eq!(cluster.get(pod("web-0").namespace("shop")).label("seen"), Some("true"));
    assert_eq!(cluster.requests().on(Verb::List, "pods").count(), 1);
    assert_eq!(cluster.requests().writes().count(), 1);
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn an_owned_object_is_made_anew_when_it_is_deleted(cluster: TestCluster) {
    cluster.run(own_config_maps(cluster.client()));
    let web = cluster.create(pod("web-0")).await;
    cluster.settle().await;
    cluster.assert_has(config_map("web-0").data("pod", "web-0").owned_by(&web));

    cluster.delete(config_map("web-0")).await;
    cluster.settle().await;
    cluster.assert_has(config_map("web-0").data("pod", "web-0"));
}
