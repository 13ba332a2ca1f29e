//! ServiceCIDRs: their condition, their finalizer and their release.

use rstest::rstest;
use serde_json::{Value, json};

use crate::cluster::Cluster;

const API: &str = "networking.k8s.io/v1";

async fn cidr(cluster: &Cluster, name: &str, range: &str) {
    let object =
        json!({"apiVersion": API, "kind": "ServiceCIDR", "metadata": {"name": name}, "spec": {"cidrs": [range]}});
    cluster.create(object).await;
}

async fn address(cluster: &Cluster, name: &str) {
    let labels = json!({"ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
        "ipaddress.kubernetes.io/ip-family": "IPv4"});
    let parent = json!({"resource": "services", "namespace": "default", "name": "a"});
    let object = json!({"apiVersion": API, "kind": "IPAddress", "metadata": {"name": name, "labels": labels},
        "spec": {"parentRef": parent}});
    cluster.create(object).await;
}

async fn ready(cluster: &Cluster, name: &str) -> Value {
    let conditions = cluster.get(API, "ServiceCIDR", name).await["status"]["conditions"].clone();
    let ready = |it: &&Value| it["type"] == "Ready";
    conditions
        .as_array()
        .into_iter()
        .flatten()
        .find(ready)
        .cloned()
        .unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn new_service_cidr_becomes_ready_and_gets_a_finalizer() {
    let cluster = Cluster::start();
    cidr(&cluster, "more", "10.9.0.0/24").await;
    cluster.pass(1.0).await;
    let object = cluster.get(API, "ServiceCIDR", "more").await;
    assert_eq!(
        object["metadata"]["finalizers"],
        json!(["networking.k8s.io/service-cidr-finalizer"])
    );
    let ready = ready(&cluster, "more").await;
    assert_eq!(
        (&ready["status"], &ready["message"]),
        (&json!("True"), &json!("Kubernetes Service CIDR is ready"))
    );
}

/// A deleted range is kept while it is the only one with an allocated address, and for 10 s afterwards.
#[rstest]
#[case::without_addresses(&[], "", 11.0, true)]
#[case::within_the_grace_period(&[], "", 5.0, false)]
#[case::address_in_the_range(&["10.9.0.7"], "", 60.0, false)]
#[case::address_outside_the_range(&["10.10.0.7"], "", 11.0, true)]
#[case::address_also_in_another_range(&["10.9.0.7"], "10.9.0.0/25", 11.0, true)]
#[case::address_also_in_a_larger_range(&["10.9.0.7"], "10.0.0.0/8", 11.0, true)]
#[case::adjacent_range(&["10.9.0.7"], "10.8.0.0/24", 60.0, false)]
#[tokio::test(start_paused = true)]
async fn deleted_service_cidr_is_removed_if_no_ip_address_requires_the_range(
    #[case] addresses: &[&str],
    #[case] other: &str,
    #[case] seconds: f64,
    #[case] is_gone: bool,
) {
    let cluster = Cluster::start();
    cidr(&cluster, "more", "10.9.0.0/24").await;
    if !other.is_empty() {
        cidr(&cluster, "other", other).await;
    }
    for name in addresses {
        address(&cluster, name).await;
    }
    cluster.pass(1.0).await;
    cluster.delete(API, "ServiceCIDR", "more").await;
    cluster.pass(seconds).await;
    assert_eq!(cluster.get(API, "ServiceCIDR", "more").await.is_null(), is_gone);
}

#[tokio::test(start_paused = true)]
async fn removing_the_last_ip_address_releases_a_deleted_service_cidr() {
    let cluster = Cluster::start();
    cidr(&cluster, "more", "10.9.0.0/24").await;
    address(&cluster, "10.9.0.7").await;
    cluster.pass(1.0).await;
    cluster.delete(API, "ServiceCIDR", "more").await;
    cluster.pass(20.0).await;
    let ready = ready(&cluster, "more").await;
    assert_eq!(
        (&ready["status"], &ready["reason"]),
        (&json!("False"), &json!("Terminating"))
    );
    cluster.delete(API, "IPAddress", "10.9.0.7").await;
    cluster.pass(1.0).await;
    assert!(cluster.get(API, "ServiceCIDR", "more").await.is_null());
}
