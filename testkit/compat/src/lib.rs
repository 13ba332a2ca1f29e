//! A controller of kube-runtime, built with versions of kube other than the testkit's: each Document becomes a
//! ConfigMap, and its status is updated. The crates next to this folder build the same text with one version each.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::watcher;
use kube::{Api, Client, CustomResource, Resource, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// A document to be published.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "example.com",
    version = "v1",
    kind = "Document",
    namespaced,
    status = "DocumentStatus"
)]
pub struct DocumentSpec {
    /// The text.
    pub text: String,
}

/// The state of a Document.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
pub struct DocumentStatus {
    /// The ConfigMap of the document exists.
    pub published: bool,
}

/// The ways to make ConfigMaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Makes {
    /// By server-side apply.
    ByApply,
    /// By a create with a generated name, if the status does not name the object: a lost response leads to a duplicate.
    Anew,
}

/// Runs until the process ends.
pub async fn run(client: Client, makes: Makes) {
    Controller::new(Api::<Document>::all(client.clone()), watcher::Config::default())
        .owns(Api::<ConfigMap>::all(client.clone()), watcher::Config::default())
        .run(
            reconcile,
            |_, _, _| Action::requeue(Duration::from_secs(5)),
            Arc::new((client, makes)),
        )
        .for_each(|_| std::future::ready(()))
        .await;
}

async fn reconcile(document: Arc<Document>, context: Arc<(Client, Makes)>) -> Result<Action, kube::Error> {
    let (client, makes) = &*context;
    let (name, namespace) = (document.name_any(), document.namespace().unwrap_or_default());
    let maps = Api::<ConfigMap>::namespaced(client.clone(), &namespace);
    let mut map = ConfigMap::default();
    map.metadata.owner_references = Some(vec![document.controller_owner_ref(&()).expect("the object has a uid")]);
    map.data = Some([("text".to_owned(), document.spec.text.clone())].into());
    let published = document.status.as_ref().is_some_and(|it| it.published);
    match makes {
        Makes::ByApply => {
            map.metadata.name = Some(name.clone());
            maps.patch(&name, &PatchParams::apply("publisher").force(), &Patch::Apply(&map))
                .await?;
        }
        Makes::Anew if !published => {
            map.metadata.generate_name = Some(format!("{name}-"));
            maps.create(&PostParams::default(), &map).await?;
        }
        Makes::Anew => {}
    }
    if !published {
        let status = Patch::Merge(json!({"status": {"published": true}}));
        Api::<Document>::namespaced(client.clone(), &namespace)
            .patch_status(&name, &PatchParams::default(), &status)
            .await?;
    }
    Ok(Action::await_change())
}
