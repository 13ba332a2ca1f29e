//! A custom resource with a finalizer and a status, under kube-runtime's `Controller` and `finalizer`.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::finalizer::{Event, finalizer};
use kube::runtime::watcher;
use kube::{Api, Client, CustomResource, ResourceExt};
use rstest::rstest;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use testkit::objects::{config_map, object};
use testkit::{TestCluster, Verb, cluster, faults};

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "example.com",
    version = "v1",
    kind = "Document",
    namespaced,
    status = "DocumentStatus"
)]
struct DocumentSpec {
    #[schemars(length(min = 1))]
    title: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
struct DocumentStatus {
    published: bool,
}

const FINALIZER: &str = "example.com/unpublish";

type Error = kube::runtime::finalizer::Error<kube::Error>;

/// Publishes a Document as a ConfigMap with the same name and without an owner, so that only the finalizer cleans up.
async fn publish_documents(client: Client) {
    async fn reconcile(document: Arc<Document>, client: Arc<Client>) -> Result<Action, Error> {
        let namespace = document.namespace().expect("the object has a namespace");
        let documents = Api::<Document>::namespaced(Client::clone(&client), &namespace);
        let maps = Api::<ConfigMap>::namespaced(Client::clone(&client), &namespace);
        finalizer(&documents, FINALIZER, document, async |event| match event {
            Event::Apply(document) => publish(&document, &documents, &maps).await,
            Event::Cleanup(document) => {
                maps.delete(&document.name_any(), &DeleteParams::default()).await?;
                Ok(Action::await_change())
            }
        })
        .await
    }
    async fn publish(
        document: &Document,
        documents: &Api<Document>,
        maps: &Api<ConfigMap>,
    ) -> Result<Action, kube::Error> {
        let (name, by) = (document.name_any(), PatchParams::apply("publisher").force());
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name},
            "data": {"title": document.spec.title},
        });
        maps.patch(&name, &by, &Patch::Apply(map)).await?;
        let status = json!({"status": DocumentStatus { published: true }});
        documents
            .patch_status(&name, &PatchParams::default(), &Patch::Merge(status))
            .await?;
        Ok(Action::requeue(Duration::from_secs(600)))
    }
    let on_error = |_: Arc<Document>, _: &Error, _: Arc<Client>| Action::requeue(Duration::from_secs(5));
    Controller::new(Api::<Document>::all(client.clone()), watcher::Config::default())
        .run(reconcile, on_error, Arc::new(client))
        .for_each(|_| async {})
        .await;
}

fn document(name: &str, title: &str) -> Document {
    Document::new(name, DocumentSpec { title: title.into() })
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn document_is_published_and_its_status_is_set(cluster: TestCluster) {
    cluster.crd::<Document>();
    cluster.run(publish_documents(cluster.client()));
    cluster.create(document("readme", "Read me")).await;
    cluster.settle().await;

    cluster.assert_has(config_map("readme").data("title", "Read me"));
    let readme = cluster.get::<Document>("readme");
    assert_eq!(readme.status, Some(DocumentStatus { published: true }));
    assert_eq!(readme.finalizers(), [FINALIZER]);
    assert_eq!(
        readme.metadata.generation,
        Some(1),
        "a status write does not change the generation"
    );

    cluster
        .edit::<Document>("readme", |it| it.spec.title = "Read me first".into())
        .await;
    cluster.settle().await;
    cluster.assert_has(config_map("readme").data("title", "Read me first"));
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn document_is_kept_until_its_finalizer_is_removed(cluster: TestCluster) {
    cluster.crd::<Document>();
    cluster.run(publish_documents(cluster.client()));
    cluster.create(document("readme", "Read me")).await;
    cluster.settle().await;

    let refused = cluster.inject(faults::server_error().on(Verb::Delete, "configmaps"));
    cluster.delete::<Document>("readme").await;
    cluster.advance(Duration::from_secs(30)).await;
    assert!(refused.hits() > 2);
    assert!(cluster.get::<Document>("readme").metadata.deletion_timestamp.is_some());

    drop(refused);
    cluster.settle().await;
    cluster.assert_gone::<Document>("readme");
    cluster.assert_gone(config_map("readme"));
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn schema_of_a_crd_is_enforced(cluster: TestCluster) {
    cluster.crd::<Document>();
    let documents = Api::<Document>::default_namespaced(cluster.client());
    let err = documents
        .create(&Default::default(), &document("readme", ""))
        .await
        .expect_err("the document has no title");
    assert!(err.to_string().contains("spec.title"), "{err}");
    assert!(cluster.gone(object("example.com/v1", "Document", "readme")));
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn testkit_methods_accept_objects_by_value_and_by_reference(cluster: TestCluster) {
    cluster.crd::<Document>();
    let mut readme = document("readme", "Read me");
    let created = cluster.create(&readme).await;
    assert!(created.metadata.uid.is_some());
    cluster.assert_has(&readme);

    readme.spec.title = "Read me first".into();
    let patched = cluster.patch(&created, &readme).await;
    assert_eq!(patched.spec.title, "Read me first");
    let status = DocumentStatus { published: true };
    cluster.patch_status::<Document>("readme", &status).await;
    cluster.update(cluster.get::<Document>("readme")).await;
    cluster.assert_has(&cluster.get::<Document>("readme"));
}
