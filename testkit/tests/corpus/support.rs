//! Helpers shared by the small controllers of the corpus.

use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::watcher;
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use testkit::objects::{ObjectBuilder, config_map};

/// A reconcile function's result.
pub(crate) type Reconciled = Result<(), kube::Error>;

/// Runs kube-runtime's controller of ConfigMaps, which represent custom resources, and of the Pods they own. It retries
/// after five seconds.
pub(crate) async fn operator<F>(client: Client, reconcile: impl Fn(Arc<ConfigMap>, Client) -> F + Send + Sync + 'static)
where
    F: Future<Output = Reconciled> + Send + 'static,
{
    let retry = |_: Arc<ConfigMap>, _: &kube::Error, _: Arc<Client>| Action::requeue(Duration::from_secs(5));
    let parents: Api<ConfigMap> = Api::all(client.clone());
    let pods: Api<Pod> = Api::all(client.clone());
    Controller::new(parents, watcher::Config::default())
        .owns(pods, watcher::Config::default())
        .run(
            move |parent, client: Arc<Client>| {
                reconcile(parent, Client::clone(&client)).map(|done| done.map(|()| Action::await_change()))
            },
            retry,
            Arc::new(client),
        )
        .for_each(|_| async {})
        .await;
}

/// Returns an `Api` for the objects of a kind in the default namespace.
pub(crate) fn api<K>(client: &Client) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    Api::default_namespaced(client.clone())
}

/// Builds a custom resource.
pub(crate) fn custom(name: &str) -> ObjectBuilder {
    config_map(name)
}

/// Returns a field of a custom resource's specification.
pub(crate) fn spec<'a>(parent: &'a ConfigMap, field: &str) -> &'a str {
    parent
        .data
        .as_ref()
        .and_then(|it| it.get(field))
        .map_or("", String::as_str)
}

/// Returns the number of replicas that the parent requests.
pub(crate) fn replicas(parent: &ConfigMap) -> usize {
    spec(parent, "replicas").parse().unwrap_or_default()
}

fn typed<K: DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).expect("the object has this type")
}

/// Sets an annotation of a custom resource.
pub(crate) async fn annotate(parent: &ConfigMap, client: &Client, name: &str, value: &str) -> Reconciled {
    let patch = Patch::Merge(json!({"metadata": {"annotations": {name: value}}}));
    let parents = api::<ConfigMap>(client);
    parents
        .patch(&parent.name_any(), &PatchParams::default(), &patch)
        .await
        .map(drop)
}

/// Returns an annotation of a custom resource.
pub(crate) fn annotation<'a>(parent: &'a ConfigMap, name: &str) -> Option<&'a str> {
    parent.annotations().get(name).map(String::as_str)
}

/// Builds a Pod of this custom resource.
pub(crate) fn pod_of(parent: &ConfigMap, metadata: Value) -> Pod {
    let mut pod: Pod = typed(json!({
        "metadata": metadata, "spec": {"containers": [{"name": "main", "image": "main"}]},
    }));
    pod.metadata.owner_references = parent.controller_owner_ref(&()).map(|it| vec![it]);
    pod
}

/// Builds a volume claim with this name and annotation.
pub(crate) fn claim(name: &str, size: &str) -> PersistentVolumeClaim {
    typed(json!({
        "metadata": {"name": name, "annotations": {"size": size}},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }))
}

/// Builds a Secret, which represents a volume: a real claim has a finalizer that only its own controller removes.
pub(crate) fn volume(name: &str) -> Secret {
    typed(json!({"metadata": {"name": name}}))
}

/// Creates an object, unless an object with its name exists.
pub(crate) async fn ensure<K>(api: &Api<K>, object: &K) -> Reconciled
where
    K: Resource + Clone + std::fmt::Debug + serde::Serialize + DeserializeOwned,
{
    match api.create(&PostParams::default(), object).await {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        created => created.map(drop),
    }
}

/// Deletes an object, if it exists.
pub(crate) async fn remove<K>(api: &Api<K>, name: &str) -> Reconciled
where
    K: Clone + std::fmt::Debug + DeserializeOwned,
{
    match api.delete(name, &DeleteParams::default()).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        deleted => deleted.map(drop),
    }
}

/// Returns the names of all objects on the server.
pub(crate) async fn names<K>(api: &Api<K>) -> Result<Vec<String>, kube::Error>
where
    K: Resource + Clone + std::fmt::Debug + DeserializeOwned,
{
    let all = api.list(&ListParams::default()).await?;
    Ok(all.items.iter().map(ResourceExt::name_any).collect())
}

/// Streams the events of a watcher of all objects in the default namespace.
pub(crate) fn events<K>(client: &Client) -> impl futures::Stream<Item = watcher::Event<K>> + Send
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned
        + Send
        + 'static,
{
    use kube::runtime::WatchStreamExt;
    watcher(api::<K>(client), watcher::Config::default())
        .default_backoff()
        .filter_map(|event| async { event.ok() })
        .boxed()
}
