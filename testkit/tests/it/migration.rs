//! The tests of kube-rs's example controller, rewritten for the testkit; `testkit/docs/migration.md` compares their
//! numbers of lines. The controller behaves like the original: it sets a finalizer and a status, writes Events when a
//! document is hidden or deleted, and fails for the name `illegal`.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::events::{Event, EventType, Recorder};
use kube::runtime::finalizer::{self, finalizer};
use kube::runtime::watcher;
use kube::{Client, CustomResource, Resource, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

const FINALIZER: &str = "documents.example.com/cleanup";

#[derive(CustomResource, Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "example.com",
    version = "v1",
    kind = "Document",
    namespaced,
    status = "DocumentStatus"
)]
struct DocumentSpec {
    hide: bool,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
struct DocumentStatus {
    hidden: bool,
}

type Error = Box<dyn std::error::Error + Send + Sync>;

#[derive(Debug, thiserror::Error)]
#[error(transparent)]
struct Failure(#[from] finalizer::Error<Told>);

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Told(Error);

async fn tell(document: &Document, client: &Client, reason: &str) -> Result<(), Told> {
    let event = Event {
        type_: EventType::Normal,
        reason: reason.to_owned(),
        note: None,
        action: reason.to_owned(),
        secondary: None,
    };
    let recorder = Recorder::new(client.clone(), "documents".into());
    let told = recorder.publish(&event, &document.object_ref(&())).await;
    told.map_err(|err| Told(err.into()))
}

async fn apply(document: Arc<Document>, client: &Client) -> Result<Action, Told> {
    let documents = Api::<Document>::namespaced(
        client.clone(),
        &document.namespace().expect("the object has a namespace"),
    );
    let was_hidden = document.status.as_ref().is_some_and(|it| it.hidden);
    if document.spec.hide && !was_hidden {
        tell(&document, client, "HideRequested").await?;
    }
    if document.name_any() == "illegal" {
        return Err(Told("illegal document".into()));
    }
    let status = json!({
        "apiVersion": "example.com/v1", "kind": "Document", "status": {"hidden": document.spec.hide},
    });
    let params = PatchParams::apply("documents").force();
    let patched = documents
        .patch_status(&document.name_any(), &params, &Patch::Apply(status))
        .await;
    patched.map_err(|err| Told(err.into()))?;
    Ok(Action::requeue(Duration::from_secs(300)))
}

async fn run(client: Client) {
    let reconcile = async |document: Arc<Document>, client: Arc<Client>| {
        let documents = Api::namespaced(
            Client::clone(&client),
            &document.namespace().expect("the object has a namespace"),
        );
        let action = finalizer(&documents, FINALIZER, document, async |event| match event {
            finalizer::Event::Apply(document) => apply(document, &client).await,
            finalizer::Event::Cleanup(document) => tell(&document, &client, "DeleteRequested")
                .await
                .map(|()| Action::await_change()),
        });
        action.await.map_err(Failure)
    };
    let on_error = |_: Arc<Document>, _: &Failure, _: Arc<Client>| Action::requeue(Duration::from_secs(300));
    Controller::new(Api::<Document>::all(client.clone()), watcher::Config::default())
        .run(reconcile, on_error, Arc::new(client))
        .for_each(|_| async {})
        .await;
}

// The following code represents a user's test; the migration page counts its lines.
use rstest::{fixture, rstest};
use testkit::{TestCluster, Verb};

#[fixture]
fn documents() -> TestCluster {
    let cluster = TestCluster::start();
    cluster.crd::<Document>();
    cluster.run(run(cluster.client_named("documents")));
    cluster
}

fn document(name: &str, hide: bool) -> Document {
    Document::new(name, DocumentSpec { hide })
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn document_receives_a_finalizer_and_a_status(#[from(documents)] cluster: TestCluster) {
    cluster.create(document("doc", false)).await;
    cluster.settle().await;
    let doc = cluster.get::<Document>("doc");
    assert_eq!(doc.finalizers(), [FINALIZER]);
    assert!(!doc.status.expect("the document has a status").hidden);
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn hide_event_is_written_once(#[from(documents)] cluster: TestCluster) {
    let doc = cluster.create(document("doc", true)).await;
    cluster.settle().await;
    cluster.assert_event(&doc, "HideRequested");
    cluster.advance(Duration::from_secs(3600)).await;
    cluster.requests().on(Verb::Create, "events").assert_count(1);
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn deleted_document_is_removed_with_an_event(#[from(documents)] cluster: TestCluster) {
    let doc = cluster.create(document("doc", false)).await;
    cluster.settle().await;
    cluster.delete(&doc).await;
    cluster.settle().await;
    cluster.assert_gone(&doc);
    cluster.assert_event(&doc, "DeleteRequested");
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn status_of_an_invalid_document_is_not_set(#[from(documents)] cluster: TestCluster) {
    cluster.create(document("illegal", false)).await;
    cluster.advance(Duration::from_secs(3600)).await;
    assert!(cluster.get::<Document>("illegal").status.is_none());
}
