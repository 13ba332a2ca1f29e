//! `Workloads`: all controllers of workloads, with a single queue. They share a view of the cluster, so that each
//! change is decoded only once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::Task;
use super::cluster::Cluster;
use super::controller::{Changed, Sender, Sync};
use super::execute::Executor;
use super::kubelet::{Kubelet, Nodes};
use super::plan::{Plan, Write};
use super::recorder::Recorder;
use super::resource::{Resource, key_of};
use super::sees::Sees;
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;
use crate::workers::Identity;
use crate::workers::{Api, Context, Controller, Follows, Observed, RequestFailure, WorkQueue, Worker};

/// The names in storage of [`Resource::WATCHED`].
const FOLLOWED: [&str; Resource::WATCHED.len()] = {
    let mut names = [""; Resource::WATCHED.len()];
    let mut index = 0;
    while index < names.len() {
        names[index] = Resource::WATCHED[index].storage();
        index += 1;
    }
    names
};

/// The enabled controllers of workloads.
#[derive(Debug)]
pub(crate) struct Workloads {
    workers: Vec<Worker>,
    nodes: Nodes,
    cluster: Cluster,
    recorder: Recorder,
    /// The reason why the last creation or deletion of an object failed, by task.
    failures: BTreeMap<Task, String>,
    /// Removed Nodes and Services, until their tasks have been synced.
    removed: BTreeMap<Task, Arc<Object>>,
    identities: BTreeMap<&'static str, Identity>,
}

impl Workloads {
    /// Creates the controllers of these workers; Pods behave according to the scripts of `kubelet`.
    pub(crate) fn new(workers: Vec<Worker>, kubelet: Kubelet) -> Self {
        Self {
            workers,
            nodes: Nodes::new(kubelet),
            cluster: Cluster::default(),
            recorder: Recorder::default(),
            failures: BTreeMap::new(),
            removed: BTreeMap::new(),
            identities: BTreeMap::new(),
        }
    }

    /// Plans the work for an object.
    fn plan(&mut self, task: &Task, api: &Api<'_>) -> Plan {
        let Some(controller) = task.controller() else {
            return Plan::default();
        };
        let sees = Sees {
            cluster: &self.cluster,
            api: Some(*api),
            now: api.now(),
            version: api.version(),
            failure: self.failures.get(task).map(String::as_str),
            removed: self.removed.get(task),
        };
        let Some(object) = self.cluster.get(task.resource, &task.key) else {
            return (controller.gone)(&task.key, &sees);
        };
        match controller.sync {
            Sync::Objects(sync) => sync(object, &sees),
            Sync::Nodes(sync) => sync(object, &sees, &mut self.nodes),
        }
    }

    /// Returns the identity for the requests of a task.
    fn identity(&mut self, sender: Sender, node: Option<&str>) -> Identity {
        match (sender, node) {
            (Sender::Account(name), _) => self
                .identities
                .entry(name)
                .or_insert_with(|| Identity::controller(name))
                .clone(),
            (Sender::Kubelet, None) => Identity::component("kube-scheduler", "system:kube-scheduler", &[]),
            (Sender::Kubelet, Some(node)) => {
                Identity::component("kubelet", format!("system:node:{node}"), &["system:nodes"])
            }
        }
    }
}

impl Controller for Workloads {
    type Key = Task;

    fn identity(&self) -> Identity {
        Identity::controller("workloads")
    }

    fn follows(&self) -> Follows {
        Follows::These(&FOLLOWED)
    }

    fn reset(&mut self) {
        *self = Self::new(std::mem::take(&mut self.workers), self.nodes.kubelet.clone());
    }

    fn observe(&mut self, change: &Observed<'_>, queue: &mut WorkQueue<Task>) {
        let (Some(resource), Some(key)) = (Resource::of_storage(change.resource), change.key()) else {
            return;
        };
        let old = self.cluster.put(resource, key, change.new_object().cloned());
        let new = self.cluster.get(resource, key).cloned();
        self.nodes.forget(old.as_deref(), new.as_deref());
        if resource == Resource::Pod {
            self.nodes.count_pod(old.as_deref(), new.as_deref());
        }
        let heartbeats = &mut self.nodes.heartbeats;
        heartbeats.observe(resource, key, old.as_deref(), new.as_deref());
        let changed = Changed {
            resource,
            key,
            old: old.as_deref(),
            new: new.as_deref(),
        };
        let removed = old
            .as_ref()
            .filter(|_| new.is_none() && matches!(resource, Resource::Node | Resource::Service));
        for worker in &self.workers {
            for controller in worker.workloads() {
                if let Some(removed) = removed.filter(|_| controller.resource == resource) {
                    let task = Task {
                        worker: *worker,
                        resource,
                        key: key.clone(),
                    };
                    self.removed.insert(task, Arc::clone(removed));
                }
                controller.keys(&changed, &self.cluster, &mut |key| {
                    queue.add(Task {
                        worker: *worker,
                        resource: controller.resource,
                        key,
                    });
                });
            }
        }
    }

    fn poked(&mut self, queue: &mut WorkQueue<Task>) {
        if !self.workers.contains(&Worker::Kubelet) || !self.nodes.scripts_changed() {
            return;
        }
        let tasks = [
            (Worker::Kubelet, Resource::Node),
            (Worker::Kubelet, Resource::Pod),
            (Worker::NodeLifecycle, Resource::Node),
        ];
        let tasks = tasks.into_iter().filter(|(worker, _)| self.workers.contains(worker));
        for (worker, resource) in tasks {
            for object in self.cluster.all(resource) {
                let key = key_of(object);
                queue.add(Task { worker, resource, key });
            }
        }
    }

    async fn sync(&mut self, task: Task, context: &mut Context<'_, Task>) -> Result<(), RequestFailure> {
        let now = context.api.now();
        let plan = self.plan(&task, &context.api);
        if let Some(at) = plan.again {
            let wait = Duration::try_from(at.duration_since(now)).unwrap_or(Duration::ZERO);
            context.queue.add_after(task.clone(), wait);
        }
        if plan.writes.is_empty() {
            self.removed.remove(&task);
            self.failures.remove(&task);
            return Ok(());
        }
        let object = self.cluster.get(task.resource, &task.key).cloned();
        let node = object.as_deref().map(|it| match task.resource {
            Resource::Node => it.name(),
            _ => Cursor::root(it).text("spec.nodeName"),
        });
        let registers = |write: &Write| match write {
            Write::Create { resource, object, .. } if *resource == Resource::Node => Some(object.name().to_owned()),
            _ => None,
        };
        let registered = plan.writes.iter().find_map(registers);
        let node = registered.as_deref().or(node.filter(|it| !it.is_empty()));
        let Some(controller) = task.controller() else {
            return Ok(());
        };
        let identity = self.identity(controller.sender, node);
        for write in &plan.writes {
            if let Write::As { account, .. } = write {
                self.identity(Sender::Account(account), None);
            }
        }
        let Self {
            cluster,
            recorder,
            identities,
            ..
        } = self;
        let mut executor = Executor {
            api: Api {
                identity: &identity,
                ..context.api
            },
            recorder,
            accounts: identities,
            latest: None,
            refused: None,
        };
        let seen: &Cluster = cluster;
        let read = |at: &super::resource::Target| -> Option<Arc<Object>> { seen.get(at.resource, &at.key).cloned() };
        let done = executor.run(plan.writes, &read).await;
        if done.is_ok() {
            self.removed.remove(&task);
        }
        match executor.refused.take() {
            Some(why) => drop(self.failures.insert(task.clone(), why)),
            None => drop(self.failures.remove(&task)),
        }
        if done.is_err() && self.failures.contains_key(&task) && controller.reports_refusals {
            self.tell_status(&task, &identity, context).await?;
        }
        done
    }
}

impl Workloads {
    /// Writes only the status of an object, after the server has refused a write.
    async fn tell_status(
        &mut self,
        task: &Task,
        identity: &Identity,
        context: &mut Context<'_, Task>,
    ) -> Result<(), RequestFailure> {
        let mut writes = self.plan(task, &context.api).writes;
        writes.retain(|it| matches!(it, Write::Status { at, .. } if at.resource == task.resource));
        let Self {
            cluster,
            recorder,
            identities,
            ..
        } = self;
        let mut executor = Executor {
            api: Api {
                identity,
                ..context.api
            },
            recorder,
            accounts: identities,
            latest: None,
            refused: None,
        };
        let seen: &Cluster = cluster;
        let read = |at: &super::resource::Target| -> Option<Arc<Object>> { seen.get(at.resource, &at.key).cloned() };
        executor.run(writes, &read).await
    }
}
