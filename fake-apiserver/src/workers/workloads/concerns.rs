//! Maps a change to the keys that controllers have to look at because an object came, changed or went.

use super::cluster::{Cluster, controller_of, selects};
use super::pods::{is_finished, spec};
use super::resource::Resource;
use super::sees::selector_of;
use super::{Task, fit, scheduler, token_secret};
use crate::api::object::Object;
use crate::api::selector::LabelSelector;
use crate::registry::types::cursor::Cursor;
use crate::storage::Key;
use crate::workers::Worker;

/// A change of an object.
pub(super) struct Changed<'a> {
    pub(super) resource: Resource,
    pub(super) key: &'a Key,
    pub(super) old: Option<&'a Object>,
    pub(super) new: Option<&'a Object>,
}

/// The controllers whose Pods or other children name them as their controller.
fn keeper(kind: &str) -> Option<(Worker, Resource)> {
    match kind {
        "ReplicaSet" => Some((Worker::ReplicaSet, Resource::ReplicaSet)),
        "ReplicationController" => Some((Worker::ReplicaSet, Resource::ReplicationController)),
        "StatefulSet" => Some((Worker::StatefulSet, Resource::StatefulSet)),
        "DaemonSet" => Some((Worker::DaemonSet, Resource::DaemonSet)),
        "Job" => Some((Worker::Job, Resource::Job)),
        "Deployment" => Some((Worker::Deployment, Resource::Deployment)),
        "CronJob" => Some((Worker::CronJob, Resource::CronJob)),
        _ => None,
    }
}

/// Calls `add` for every task that a change brings.
pub(super) fn of(change: &Changed<'_>, cluster: &Cluster, add: &mut dyn FnMut(Task)) {
    let mut task = |worker, resource, key: Key| add(Task { worker, resource, key });
    for object in [change.old, change.new].into_iter().flatten() {
        if let Some((kind, name, _)) = controller_of(object)
            && let Some((worker, resource)) = keeper(kind)
        {
            task(worker, resource, Key::new(object.namespace(), name));
        }
    }
    let itself = |worker| (worker, change.resource, change.key.clone());
    match change.resource {
        Resource::Pod => of_pod(change, cluster, &mut task),
        Resource::ReplicaSet => {
            let (worker, resource, key) = itself(Worker::ReplicaSet);
            task(worker, resource, key);
            of_orphan(
                change,
                &[(Worker::Deployment, Resource::Deployment)],
                cluster,
                &mut task,
            );
        }
        Resource::ReplicationController => task(Worker::ReplicaSet, change.resource, change.key.clone()),
        Resource::Deployment => task(Worker::Deployment, change.resource, change.key.clone()),
        Resource::StatefulSet => task(Worker::StatefulSet, change.resource, change.key.clone()),
        Resource::DaemonSet => task(Worker::DaemonSet, change.resource, change.key.clone()),
        Resource::Job => task(Worker::Job, change.resource, change.key.clone()),
        Resource::CronJob => task(Worker::CronJob, change.resource, change.key.clone()),
        Resource::Service => task(Worker::Endpoints, change.resource, change.key.clone()),
        Resource::EndpointSlice | Resource::Endpoints => {
            for object in [change.old, change.new].into_iter().flatten() {
                let service = super::pods::label(object, "kubernetes.io/service-name").unwrap_or(object.name());
                task(
                    Worker::Endpoints,
                    Resource::Service,
                    Key::new(object.namespace(), service),
                );
            }
        }
        Resource::PodDisruptionBudget => task(Worker::Disruption, change.resource, change.key.clone()),
        Resource::Namespace => task(Worker::ServiceAccount, change.resource, change.key.clone()),
        Resource::ServiceAccount => of_account(change.key, cluster, &mut task),
        Resource::ConfigMap => task(
            Worker::ServiceAccount,
            Resource::Namespace,
            Key::new("", change.key.namespace()),
        ),
        Resource::Secret if change.new.is_some_and(|it| token_secret::account_of(it).is_some()) => {
            task(Worker::ServiceAccount, change.resource, change.key.clone());
        }
        Resource::PersistentVolumeClaim => of_claim(change, cluster, &mut task),
        Resource::PersistentVolume => of_volume(change, cluster, &mut task),
        Resource::Node => {
            task(Worker::Kubelet, Resource::Node, change.key.clone());
            of_node(cluster, &mut task);
        }
        Resource::StorageClass => {
            for claim in cluster.all(Resource::PersistentVolumeClaim) {
                task(
                    Worker::Volumes,
                    Resource::PersistentVolumeClaim,
                    Key::new(claim.namespace(), claim.name()),
                );
            }
        }
        Resource::ControllerRevision | Resource::Event | Resource::Secret => {}
    }
}

type AddTask<'a> = dyn FnMut(Worker, Resource, Key) + 'a;

/// The namespace of a ServiceAccount, and the Secrets for its tokens.
fn of_account(account: &Key, cluster: &Cluster, task: &mut AddTask<'_>) {
    task(
        Worker::ServiceAccount,
        Resource::Namespace,
        Key::new("", account.namespace()),
    );
    for secret in cluster.within(Resource::Secret, account.namespace()) {
        if token_secret::account_of(secret) == Some(account.name()) {
            task(
                Worker::ServiceAccount,
                Resource::Secret,
                Key::new(secret.namespace(), secret.name()),
            );
        }
    }
}

fn of_pod(change: &Changed<'_>, cluster: &Cluster, task: &mut AddTask<'_>) {
    task(Worker::Kubelet, Resource::Pod, change.key.clone());
    let sets = [
        (Worker::ReplicaSet, Resource::ReplicaSet),
        (Worker::ReplicaSet, Resource::ReplicationController),
        (Worker::StatefulSet, Resource::StatefulSet),
        (Worker::DaemonSet, Resource::DaemonSet),
        (Worker::Job, Resource::Job),
    ];
    of_orphan(change, &sets, cluster, task);
    let namespace = change.key.namespace();
    let both = || [change.old, change.new].into_iter().flatten();
    for service in cluster.within(Resource::Service, namespace) {
        let Some(selector) = service_selector(service) else {
            continue;
        };
        if both().any(|pod| selects(&selector, pod)) {
            task(
                Worker::Endpoints,
                Resource::Service,
                Key::new(namespace, service.name()),
            );
        }
    }
    for budget in cluster.within(Resource::PodDisruptionBudget, namespace) {
        let Some(selector) = selector_of(spec(budget), "selector") else {
            continue;
        };
        if both().any(|pod| selects(&selector, pod)) {
            task(
                Worker::Disruption,
                Resource::PodDisruptionBudget,
                Key::new(namespace, budget.name()),
            );
        }
    }
    if let Some(old) = change.old
        && !Cursor::root(old).text("spec.nodeName").is_empty()
        && change.new.is_none_or(is_finished)
        && !fit::requests(old).is_empty()
    {
        // There is room for a Pod that waits.
        for pod in cluster.all(Resource::Pod) {
            if Cursor::root(pod).text("spec.nodeName").is_empty() {
                task(Worker::Kubelet, Resource::Pod, Key::new(pod.namespace(), pod.name()));
            }
        }
    }
    if change.new.is_none() {
        // A Deployment that recreates waits for the last Pod of its old sets.
        if let Some((_, name, _)) = change.old.and_then(controller_of)
            && let Some(set) = cluster.find(Resource::ReplicaSet, namespace, name)
            && let Some(("Deployment", deployment, _)) = controller_of(set)
        {
            task(
                Worker::Deployment,
                Resource::Deployment,
                Key::new(namespace, deployment),
            );
        }
        if let Some(pod) = change.old {
            of_claims_of(pod, task);
        }
    }
}

/// A claim that was in use may go now.
fn of_claims_of(pod: &Object, task: &mut AddTask<'_>) {
    for claim in scheduler::claims(pod) {
        task(
            Worker::Volumes,
            Resource::PersistentVolumeClaim,
            Key::new(pod.namespace(), &claim),
        );
    }
}

/// An object without a controller may be adopted by a set that selects it.
fn of_orphan(change: &Changed<'_>, sets: &[(Worker, Resource)], cluster: &Cluster, task: &mut AddTask<'_>) {
    let Some(object) = change.new.filter(|it| controller_of(it).is_none()) else {
        return;
    };
    for (worker, resource) in sets {
        for set in cluster.within(*resource, change.key.namespace()) {
            let selector = match resource {
                Resource::ReplicationController => service_selector(set),
                _ => selector_of(spec(set), "selector"),
            };
            if selector.is_some_and(|it| selects(&it, object)) {
                task(*worker, *resource, Key::new(change.key.namespace(), set.name()));
            }
        }
    }
}

/// The selector of a Service or a ReplicationController, which is a map; an empty one selects nothing.
pub(super) fn service_selector(service: &Object) -> Option<LabelSelector> {
    let labels = Cursor::root(service).map("spec.selector").filter(|it| !it.is_empty())?;
    LabelSelector::from_object(&serde_json::json!({"matchLabels": labels}))
        .ok()
        .flatten()
}

fn of_claim(change: &Changed<'_>, cluster: &Cluster, task: &mut AddTask<'_>) {
    task(Worker::Volumes, Resource::PersistentVolumeClaim, change.key.clone());
    for object in [change.old, change.new].into_iter().flatten() {
        let volume = Cursor::root(object).text("spec.volumeName");
        if !volume.is_empty() {
            task(Worker::Volumes, Resource::PersistentVolume, Key::new("", volume));
        }
    }
    let namespace = change.key.namespace();
    for pod in cluster
        .within(Resource::Pod, namespace)
        .filter(|it| Cursor::root(it).text("spec.nodeName").is_empty())
    {
        if scheduler::claims(pod).iter().any(|it| it == change.key.name()) {
            task(Worker::Kubelet, Resource::Pod, Key::new(namespace, pod.name()));
        }
    }
    if change.new.is_none() {
        for set in cluster.within(Resource::StatefulSet, namespace) {
            task(
                Worker::StatefulSet,
                Resource::StatefulSet,
                Key::new(namespace, set.name()),
            );
        }
    }
}

fn of_volume(change: &Changed<'_>, cluster: &Cluster, task: &mut AddTask<'_>) {
    task(Worker::Volumes, Resource::PersistentVolume, change.key.clone());
    for object in [change.old, change.new].into_iter().flatten() {
        if let Some(claim) = object
            .get("spec")
            .and_then(|it| it.get("claimRef"))
            .and_then(|it| it.as_object())
        {
            let key = Key::new(Cursor::root(claim).text("namespace"), Cursor::root(claim).text("name"));
            task(Worker::Volumes, Resource::PersistentVolumeClaim, key);
        }
    }
    let is_free = change
        .new
        .is_some_and(|it| Cursor::root(it).text("status.phase") == "Available");
    if is_free {
        for claim in cluster.all(Resource::PersistentVolumeClaim) {
            if Cursor::root(claim).text("spec.volumeName").is_empty() {
                let key = Key::new(claim.namespace(), claim.name());
                task(Worker::Volumes, Resource::PersistentVolumeClaim, key);
            }
        }
    }
}

/// A node that came or changed may take Pods that wait, and DaemonSets want one there.
fn of_node(cluster: &Cluster, task: &mut AddTask<'_>) {
    for pod in cluster
        .all(Resource::Pod)
        .filter(|it| Cursor::root(it).text("spec.nodeName").is_empty())
    {
        task(Worker::Kubelet, Resource::Pod, Key::new(pod.namespace(), pod.name()));
    }
    for set in cluster.all(Resource::DaemonSet) {
        task(
            Worker::DaemonSet,
            Resource::DaemonSet,
            Key::new(set.namespace(), set.name()),
        );
    }
}
