//! kubizone 0.4.1: zones and records of DNS, on kube 0.92. It explores without a failure.
#![cfg(test)]

use std::time::Duration;

use kube::CustomResourceExt;
use kubizone::{ingress, record, zone};
use kubizone_crds::v1alpha1::{Record, Zone};
use serde_json::json;
use testkit::explore::explore;
use testkit::objects::{ObjectBuilder, object, serialized};
use testkit::{TestCluster, TestClusterBuilder, Worker};

const REQUEUE: Duration = Duration::from_secs(30);

fn builder() -> TestClusterBuilder {
    let cluster = TestCluster::builder().workers(Worker::ALL);
    cluster.object(serialized(&Zone::crd())).object(serialized(&Record::crd()))
}

async fn run(client: kube::Client) {
    futures::join!(
        zone::controller(zone::ZoneControllerContext { client: client.clone(), requeue_time: REQUEUE }),
        record::controller(record::RecordControllerContext { client: client.clone(), requeue_time: REQUEUE }),
        ingress::controller(ingress::IngressControllerContext { client, requeue_time: REQUEUE }),
    );
}

fn www() -> ObjectBuilder {
    object("kubi.zone/v1alpha1", "Record", "www")
}

async fn record_is_created_changed_and_deleted(cluster: &TestCluster) {
    cluster.controller_over("kubizone", |service| run(kube::Client::new(service, "default")));
    let delegations = json!([{"namespaces": [], "zones": ["*"], "records": [{"pattern": "*", "types": []}]}]);
    let zone = object("kubi.zone/v1alpha1", "Zone", "example-org").set("spec.domainName", "example.org.");
    cluster.create(zone.set("spec.delegations", delegations)).await;
    let spec = json!({"domainName": "www.example.org.", "type": "A", "rdata": "192.168.0.2"});
    cluster.create(www().set("spec", spec)).await;
    cluster.settle().await;
    cluster.patch(www(), json!({"spec": {"rdata": "192.168.0.3"}})).await;
    cluster.settle().await;
    cluster.delete(www()).await;
    cluster.settle().await;
}

#[test]
fn only_serial_and_rdata_depend_on_the_schedule() {
    // It grows with each change that the operator observes, and this number may differ.
    explore(record_is_created_changed_and_deleted)
        .cluster(builder())
        .ignore("status.entries.*.rdata")
        .ignore("status.serial")
        .run();
}
