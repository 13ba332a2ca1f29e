//! Patterns of correct controllers, which must not be reported.

use std::sync::Arc;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, ResourceExt};
use serde_json::json;
use testkit::TestCluster;
use testkit::explore::errors;

use super::{exploration, is_silent};
use crate::support::{Reconciled, api, custom, operator, replicas};

/// Records the number of replicas in an annotation, by an update that contains the resourceVersion. A conflict is not
/// an error, because the watch delivers the other writer's object.
async fn annotate(parent: Arc<ConfigMap>, client: Client) -> Reconciled {
    let mut parent = ConfigMap::clone(&parent);
    let (name, count) = (parent.name_any(), replicas(&parent).to_string());
    if parent.annotations().get("count") == Some(&count) {
        return Ok(());
    }
    parent.annotations_mut().insert("count".to_owned(), count);
    let parents = api::<ConfigMap>(&client);
    match parents.replace(&name, &PostParams::default(), &parent).await {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        replaced => replaced.map(drop),
    }
}

async fn scaled(cluster: &TestCluster) {
    cluster.controller("operator", |client| operator(client, annotate));
    cluster.create(custom("web").data("replicas", "1")).await;
    cluster.settle().await;
    let _: testkit::Object = cluster.patch(custom("web"), json!({"data": {"replicas": "2"}})).await;
    cluster.settle().await;
}

#[test]
fn conflict_that_is_not_retried_is_not_reported() {
    is_silent(scaled);
}

/// A conflict has a cause: a client that reads again receives a newer version.
#[test]
fn conflict_fault_changes_the_version_of_the_object() {
    let report = exploration(scaled)
        .faults(errors())
        .replay("conflict@operator:update:configmaps:default/web#1")
        .always("a refused update follows a newer version", |cluster| {
            let updates = cluster
                .requests()
                .client("operator")
                .on(testkit::Verb::Update, "configmaps");
            let refused = updates.iter().filter(|it| it.code == 409).count();
            // One event for the test's create, and one for the other writer's change.
            refused == 0 || cluster.server().resource_version() > 102
        })
        .schedules(1)
        .run();
    assert!(report.notes().is_empty(), "the fault has an effect: {report}");
}

/// Keeps as many Secrets with generated names as the custom resource requests.
async fn keep_secrets(parent: Arc<ConfigMap>, client: Client) -> Reconciled {
    let secrets = api::<Secret>(&client);
    let labels = ListParams::default().labels(&format!("of={}", parent.name_any()));
    let found = secrets.list(&labels).await?.items;
    for _ in found.len()..replicas(&parent) {
        let mut secret = Secret::default();
        secret.metadata.generate_name = Some(format!("{}-", parent.name_any()));
        secret.labels_mut().insert("of".to_owned(), parent.name_any());
        secrets.create(&PostParams::default(), &secret).await?;
    }
    for surplus in found.iter().skip(replicas(&parent)) {
        let precondition = DeleteParams::default().preconditions(kube::api::Preconditions {
            uid: surplus.uid(),
            resource_version: None,
        });
        match secrets.delete(&surplus.name_any(), &precondition).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            deleted => drop(deleted?),
        }
    }
    Ok(())
}

/// The response to the delete of a Secret is a Status, which does not contain the `generateName`.
#[test]
fn objects_with_generated_names_are_interchangeable() {
    is_silent(async |cluster: &TestCluster| {
        cluster.controller("operator", |client| operator(client, keep_secrets));
        cluster.create(custom("web").data("replicas", "3")).await;
        cluster.settle().await;
        let _: testkit::Object = cluster.patch(custom("web"), json!({"data": {"replicas": "1"}})).await;
        cluster.settle().await;
    });
}

/// Copies the names of all custom resources into one object, in the order of a reflector's cache.
async fn collect(client: Client) {
    let (store, writer) = kube::runtime::reflector::store();
    let parents = watcher(api::<ConfigMap>(&client), watcher::Config::default());
    let mut touched = parents.default_backoff().reflect(writer).touched_objects().boxed();
    let secrets = api::<Secret>(&client);
    while let Some(touched) = touched.next().await {
        let Ok(_) = touched else { continue };
        for parent in store.state() {
            let _ = crate::support::ensure(&secrets, &crate::support::volume(&parent.name_any())).await;
        }
    }
}

/// kube-runtime's cache has the order of a map, with keys that are random outside of explorations.
#[test]
fn iteration_order_of_caches_is_the_same_in_each_run() {
    let report = exploration(async |cluster: &TestCluster| {
        for index in 0..12 {
            cluster.create(custom(&format!("parent-{index}"))).await;
        }
        cluster.controller("operator", collect);
        cluster.settle().await;
    })
    .replay("crash=1000@operator:event:configmaps:default/parent-3#1")
    .times(20)
    .schedules(1)
    .report();
    assert_eq!(report.nondeterminism(), Vec::<String>::new(), "{report}");
}
