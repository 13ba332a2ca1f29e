//! Controllers under test: unmodified kube-runtime code, as an operator author writes it.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Patch, PatchParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};

/// Gives each Pod the label `seen`, by a read, a change and a PUT, so that it can meet conflicts. Looks again after five
/// minutes, and after five seconds where something failed.
pub(crate) async fn label_pods(client: Client) {
    async fn reconcile(pod: Arc<Pod>, client: Arc<Client>) -> Result<Action, kube::Error> {
        let pods = Api::<Pod>::namespaced(Client::clone(&client), &pod.namespace().expect("pods have one"));
        if pod.labels().get("seen").is_none_or(|it| it != "true") {
            let mut seen = Pod::clone(&pod);
            seen.labels_mut().insert("seen".into(), "true".into());
            pods.replace(&pod.name_any(), &Default::default(), &seen).await?;
        }
        Ok(Action::requeue(Duration::from_secs(300)))
    }
    let on_error = |_: Arc<Pod>, _: &kube::Error, _: Arc<Client>| Action::requeue(Duration::from_secs(5));
    Controller::new(Api::<Pod>::all(client.clone()), watcher::Config::default())
        .run(reconcile, on_error, Arc::new(client))
        .for_each(|_| async {})
        .await;
}

/// Makes a ConfigMap of the same name for each Pod, owned by it, and makes it anew where it is changed or deleted.
pub(crate) async fn own_config_maps(client: Client) {
    async fn reconcile(pod: Arc<Pod>, client: Arc<Client>) -> Result<Action, kube::Error> {
        let maps = Api::<ConfigMap>::namespaced(Client::clone(&client), &pod.namespace().expect("pods have one"));
        let map = serde_json::json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": pod.name_any(), "ownerReferences": [kube::Resource::controller_owner_ref(&*pod, &())]},
            "data": {"pod": pod.name_any()},
        });
        maps.patch(&pod.name_any(), &PatchParams::apply("own-config-maps").force(), &Patch::Apply(map)).await?;
        Ok(Action::await_change())
    }
    let on_error = |_: Arc<Pod>, _: &kube::Error, _: Arc<Client>| Action::requeue(Duration::from_secs(5));
    Controller::new(Api::<Pod>::all(client.clone()), watcher::Config::default())
        .owns(Api::<ConfigMap>::all(client.clone()), watcher::Config::default())
        .run(reconcile, on_error, Arc::new(client))
        .for_each(|_| async {})
        .await;
}
