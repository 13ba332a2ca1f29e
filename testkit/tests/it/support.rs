//! Controllers under test: unmodified kube-runtime code, as an operator author writes it.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Patch, PatchParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};

/// Gives each Pod the label `seen`, by a read, a change and a PUT, so that conflicts are possible. Requeues after five
/// minutes, and after five seconds on a failure.
pub(crate) async fn label_pods(client: Client) {
    async fn reconcile(pod: Arc<Pod>, client: Arc<Client>) -> Result<Action, kube::Error> {
        let pods = Api::<Pod>::namespaced(
            Client::clone(&client),
            &pod.namespace().expect("the object has a namespace"),
        );
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

/// Creates a ConfigMap with the same name for each Pod, owned by the Pod, and recreates it after changes and deletions.
pub(crate) async fn own_config_maps(client: Client) {
    async fn reconcile(pod: Arc<Pod>, client: Arc<Client>) -> Result<Action, kube::Error> {
        let maps = Api::<ConfigMap>::namespaced(
            Client::clone(&client),
            &pod.namespace().expect("the object has a namespace"),
        );
        let map = serde_json::json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": pod.name_any(), "ownerReferences": [kube::Resource::controller_owner_ref(&*pod, &())]},
            "data": {"pod": pod.name_any()},
        });
        maps.patch(
            &pod.name_any(),
            &PatchParams::apply("own-config-maps").force(),
            &Patch::Apply(map),
        )
        .await?;
        Ok(Action::await_change())
    }
    let on_error = |_: Arc<Pod>, _: &kube::Error, _: Arc<Client>| Action::requeue(Duration::from_secs(5));
    Controller::new(Api::<Pod>::all(client.clone()), watcher::Config::default())
        .owns(Api::<ConfigMap>::all(client.clone()), watcher::Config::default())
        .run(reconcile, on_error, Arc::new(client))
        .for_each(|_| async {})
        .await;
}

/// The events of a kube-runtime watcher, one line per event; shared with the task that runs it.
#[derive(Clone, Default)]
pub(crate) struct Told(Arc<Mutex<Vec<String>>>);

impl Told {
    /// Returns the lines since the last call.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().expect("the lock is not poisoned"))
    }

    fn push(&self, line: String) {
        self.0.lock().expect("the lock is not poisoned").push(line);
    }
}

/// Runs kube-runtime's watcher over all Pods and records its events.
pub(crate) async fn watch_pods(client: Client, config: watcher::Config, told: Told) {
    use kube::runtime::watcher::Event;

    let events = watcher(Api::<Pod>::all(client), config).default_backoff();
    events
        .for_each(|event| {
            told.push(match event {
                Ok(Event::Init) => "init".to_owned(),
                Ok(Event::InitApply(pod)) => format!("init {}", pod.name_any()),
                Ok(Event::InitDone) => "init done".to_owned(),
                Ok(Event::Apply(pod)) => format!("apply {}", pod.name_any()),
                Ok(Event::Delete(pod)) => format!("delete {}", pod.name_any()),
                Err(_) => "error".to_owned(),
            });
            async {}
        })
        .await;
}

/// Returns the message of the panic with which a future fails.
pub(crate) async fn failure(of: impl Future<Output = ()>) -> String {
    let payload = AssertUnwindSafe(of)
        .catch_unwind()
        .await
        .expect_err("the assertion fails");
    payload
        .downcast_ref::<String>()
        .cloned()
        .expect("the message is formatted")
}

/// Returns the message of the panic with which a call fails.
pub(crate) fn failure_of<T>(call: impl FnOnce() -> T) -> String {
    let payload = std::panic::catch_unwind(AssertUnwindSafe(call))
        .map(drop)
        .expect_err("the assertion fails");
    let text = payload.downcast_ref::<&str>().map(|it| (*it).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned())
        .expect("the message is text")
}
