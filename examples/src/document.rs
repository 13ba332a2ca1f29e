//! The controller of `Document`s: publishes each Document as a ConfigMap, adds it to a register, and updates its
//! status.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::finalizer::{self, Event, finalizer};
use kube::runtime::watcher;
use kube::{Api, Client, CustomResource, Resource, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// A document to be published.
#[derive(CustomResource, Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "example.com",
    version = "v1",
    kind = "Document",
    namespaced,
    status = "DocumentStatus"
)]
pub struct DocumentSpec {
    /// Title of the document.
    #[schemars(length(min = 1))]
    pub title: String,
    /// Text of the document.
    pub text: String,
}

/// Observed state of a Document.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
pub struct DocumentStatus {
    /// `true` if the ConfigMap exists.
    pub published: bool,
}

/// Finalizer that keeps a deleted Document until its entry in the register is removed.
pub const FINALIZER: &str = "example.com/register";

/// The ConfigMap with an entry for each published Document.
pub const REGISTER: &str = "register";

/// Reasons why a Document could not be reconciled.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A request failed.
    #[error(transparent)]
    Kube(#[from] kube::Error),
    /// An error of the finalizer, or of its work.
    #[error(transparent)]
    Finalizer(#[from] Box<finalizer::Error<Error>>),
}

/// Runs until the process ends.
pub async fn run(client: Client) {
    let documents = Api::<Document>::all(client.clone());
    let maps = Api::<ConfigMap>::all(client.clone());
    Controller::new(documents, watcher::Config::default())
        .owns(maps, watcher::Config::default())
        .run(
            reconcile,
            |_, _, _| Action::requeue(Duration::from_secs(5)),
            Arc::new(client),
        )
        .for_each(|_| async {})
        .await;
}

async fn reconcile(document: Arc<Document>, client: Arc<Client>) -> Result<Action, Error> {
    let namespace = document.namespace().unwrap_or_default();
    let documents = Api::<Document>::namespaced(Client::clone(&client), &namespace);
    let maps = Api::<ConfigMap>::namespaced(Client::clone(&client), &namespace);
    finalizer(&documents, FINALIZER, document, async |event| match event {
        Event::Apply(document) => publish(&document, &documents, &maps).await,
        Event::Cleanup(document) => withdraw(&document, &maps).await,
    })
    .await
    .map_err(|err| Box::new(err).into())
}

/// Writes the ConfigMap, the entry and the status in this order, so that entries and statuses only refer to existing
/// ConfigMaps.
async fn publish(document: &Document, documents: &Api<Document>, maps: &Api<ConfigMap>) -> Result<Action, Error> {
    let (name, params) = (document.name_any(), PatchParams::apply("publisher").force());
    let map = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "ownerReferences": [document.controller_owner_ref(&())]},
        "data": {"title": document.spec.title, "text": document.spec.text},
    });
    maps.patch(&name, &params, &Patch::Apply(map)).await?;
    enter(&name, Some(&document.spec.title), maps).await?;
    let status = json!({"status": DocumentStatus { published: true }});
    documents
        .patch_status(&name, &PatchParams::default(), &Patch::Merge(status))
        .await?;
    Ok(Action::requeue(Duration::from_secs(3600)))
}

/// Removes the entry of a deleted Document from the register. The garbage collector deletes the owned ConfigMap.
async fn withdraw(document: &Document, maps: &Api<ConfigMap>) -> Result<Action, Error> {
    enter(&document.name_any(), None, maps).await?;
    Ok(Action::await_change())
}

/// Reads the register, changes one entry, and writes the register back. This fails if another client has changed the
/// register in the meantime.
async fn enter(name: &str, title: Option<&str>, maps: &Api<ConfigMap>) -> Result<(), Error> {
    let found = maps.get_opt(REGISTER).await?;
    let is_new = found.is_none();
    let mut register = found.unwrap_or_default();
    register.metadata.name = Some(REGISTER.into());
    let entries = register.data.get_or_insert_default();
    if entries.get(name).map(String::as_str) == title {
        return Ok(());
    }
    match title {
        Some(title) => entries.insert(name.into(), title.into()),
        None => entries.remove(name),
    };
    if is_new {
        maps.create(&Default::default(), &register).await?;
    } else {
        maps.replace(REGISTER, &Default::default(), &register).await?;
    }
    Ok(())
}

/// Returns a Document, for the examples.
#[must_use]
pub fn document(name: &str, title: &str) -> Document {
    Document::new(
        name,
        DocumentSpec {
            title: title.into(),
            text: "…".into(),
        },
    )
}
