//! `Workloads`: all controllers of the small cluster life behind one queue. They share one view of the cluster, so that
//! a change is decoded once, however many of them look at it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::cluster::Cluster;
use super::concerns::{self, Changed};
use super::execute::Executor;
use super::fit::Load;
use super::kubelet::{Kubelet, Memory};
use super::plan::{Plan, Write};
use super::pods::is_finished;
use super::recorder::Recorder;
use super::resource::Resource;
use super::sees::Sees;
use super::{
    Task, cron_job, daemon_set, deployment, disruption, endpoints, job, kubelet, replica_set, scheduler,
    service_account, stateful_set, token_secret, volumes,
};
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;
use crate::storage::Key;
use crate::workers::controller::Identity;
use crate::workers::{Api, Context, Controller, Failure, Follows, Observed, WorkQueue, Worker};

/// The address of a node that has none.
const HOST: &str = "172.18.0.2";

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

/// The controllers of workloads that were asked for.
#[derive(Debug)]
pub(crate) struct Workloads {
    workers: Vec<Worker>,
    kubelet: Kubelet,
    /// The version of the scripts that Pods were last looked at by.
    scripts: u64,
    cluster: Cluster,
    recorder: Recorder,
    /// Reason for which the last try to create something failed.
    failures: BTreeMap<Task, String>,
    /// Memory of each Pod, by uid.
    memories: HashMap<String, Memory>,
    /// Load of each node.
    load: BTreeMap<String, Load>,
    /// The last address a Pod was given.
    addresses: u32,
    identities: BTreeMap<&'static str, Identity>,
}

impl Workloads {
    /// Those of `workers` that belong to the small cluster life, with Pods that do what `kubelet` says.
    pub(crate) fn new(workers: Vec<Worker>, kubelet: Kubelet) -> Self {
        Self {
            workers,
            scripts: kubelet.version(),
            kubelet,
            cluster: Cluster::default(),
            recorder: Recorder::default(),
            failures: BTreeMap::new(),
            memories: HashMap::new(),
            load: BTreeMap::new(),
            addresses: 0,
            identities: BTreeMap::new(),
        }
    }

    /// Plans the work for one object.
    fn plan(&mut self, task: &Task, now: Timestamp) -> Plan {
        let failure = self.failures.get(task).map(String::as_str);
        let sees = Sees {
            cluster: &self.cluster,
            now,
            failure,
        };
        let Some(object) = self.cluster.get(task.resource, &task.key).cloned() else {
            return match task.worker {
                Worker::Endpoints => endpoints::gone(&task.key, &sees),
                Worker::Job => job::gone(&task.key, &sees),
                _ => Plan::default(),
            };
        };
        match task.worker {
            Worker::ReplicaSet => replica_set::sync(task.resource, &object, &sees),
            Worker::Deployment => deployment::sync(&object, &sees),
            Worker::StatefulSet => stateful_set::sync(&object, &sees),
            Worker::DaemonSet => daemon_set::sync(&object, &sees),
            Worker::Job => job::sync(&object, &sees),
            Worker::CronJob => cron_job::sync(&object, &sees),
            Worker::Endpoints => endpoints::sync(&object, &sees),
            Worker::Disruption => disruption::sync(&object, &sees),
            Worker::Volumes => volumes::sync(task.resource, &object, &sees),
            Worker::ServiceAccount if task.resource == Resource::Secret => token_secret::sync(&object, &sees),
            Worker::ServiceAccount => service_account::sync(&object, &sees),
            Worker::Kubelet if task.resource == Resource::Node => kubelet::node::sync(&object, &sees),
            Worker::Kubelet if Cursor::root(&object).text("spec.nodeName").is_empty() => {
                scheduler::sync(&object, &self.load, &sees)
            }
            Worker::Kubelet => {
                let script = self.kubelet.script_of(&object);
                let memory = self.memories.entry(object.uid().to_owned()).or_default();
                if memory.host.is_empty() {
                    memory.host = host_address(&self.cluster, Cursor::root(&object).text("spec.nodeName"));
                    memory.address = match Cursor::root(&object).text("status.podIP") {
                        "" => {
                            self.addresses += 1;
                            address(self.addresses)
                        }
                        known => known.to_owned(),
                    };
                }
                kubelet::sync(&object, &script, memory, &sees)
            }
            Worker::GarbageCollector | Worker::Namespace | Worker::ResourceQuota | Worker::ClusterRoleAggregation => {
                Plan::default()
            }
        }
    }

    /// Returns the sender of a task's requests.
    fn identity(&mut self, task: &Task, node: Option<&str>) -> Identity {
        let name = match (task.worker, task.resource) {
            (Worker::ReplicaSet, Resource::ReplicationController) => "replication-controller",
            (Worker::ReplicaSet, _) => "replicaset-controller",
            (Worker::Deployment, _) => "deployment-controller",
            (Worker::StatefulSet, _) => "statefulset-controller",
            (Worker::DaemonSet, _) => "daemon-set-controller",
            (Worker::Job, _) => "job-controller",
            (Worker::CronJob, _) => "cronjob-controller",
            (Worker::Endpoints, _) => "endpointslice-controller",
            (Worker::Disruption, _) => "disruption-controller",
            (Worker::Volumes, _) => "persistent-volume-binder",
            (Worker::ServiceAccount, Resource::Secret) => "tokens-controller",
            (Worker::ServiceAccount, _) => "service-account-controller",
            (Worker::Kubelet, _) => match node {
                None => return Identity::component("kube-scheduler", "system:kube-scheduler", &[]),
                Some(node) => return Identity::component("kubelet", format!("system:node:{node}"), &["system:nodes"]),
            },
            (
                Worker::GarbageCollector | Worker::Namespace | Worker::ResourceQuota | Worker::ClusterRoleAggregation,
                _,
            ) => "generic-garbage-collector",
        };
        self.identities
            .entry(name)
            .or_insert_with(|| Identity::controller(name))
            .clone()
    }

    /// Keeps count of Pods by node, and of the addresses given out.
    fn count_pod(&mut self, old: Option<&Object>, new: Option<&Object>) {
        let place = |pod: &Object| {
            Some(Cursor::root(pod).text("spec.nodeName").to_owned()).filter(|it| !it.is_empty() && !is_finished(pod))
        };
        let (was, is) = (old.and_then(place), new.and_then(place));
        if was != is {
            if let (Some(old), Some(load)) = (old, was.and_then(|node| self.load.get_mut(&node))) {
                load.remove(old);
            }
            if let (Some(new), Some(node)) = (new, is) {
                self.load.entry(node).or_default().add(new);
            }
        }
        match (old, new) {
            (Some(old), None) => drop(self.memories.remove(old.uid())),
            (None, Some(new)) => {
                // After a relist no address is given out twice.
                let known = number_of(Cursor::root(new).text("status.podIP"));
                self.addresses = self.addresses.max(known.unwrap_or(0));
            }
            (Some(_), Some(_)) | (None, None) => {}
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
        *self = Self::new(std::mem::take(&mut self.workers), self.kubelet.clone());
    }

    fn observe(&mut self, change: &Observed<'_>, queue: &mut WorkQueue<Task>) {
        let (Some(resource), Some(key)) = (Resource::of_storage(change.resource), change.key()) else {
            return;
        };
        let old = self.cluster.put(resource, key, change.new_object().cloned());
        let new = self.cluster.get(resource, key).cloned();
        if resource == Resource::Pod {
            self.count_pod(old.as_deref(), new.as_deref());
        }
        let changed = Changed {
            resource,
            key,
            old: old.as_deref(),
            new: new.as_deref(),
        };
        let workers = &self.workers;
        concerns::of(&changed, &self.cluster, &mut |task| {
            if workers.contains(&task.worker) {
                queue.add(task);
            }
        });
    }

    fn poked(&mut self, queue: &mut WorkQueue<Task>) {
        let version = self.kubelet.version();
        if version == self.scripts || !self.workers.contains(&Worker::Kubelet) {
            return;
        }
        self.scripts = version;
        for pod in self.cluster.all(Resource::Pod) {
            let key = Key::new(pod.namespace(), pod.name());
            queue.add(Task {
                worker: Worker::Kubelet,
                resource: Resource::Pod,
                key,
            });
        }
    }

    async fn sync(&mut self, task: Task, context: &mut Context<'_, Task>) -> Result<(), Failure> {
        let now = context.api.now();
        let plan = self.plan(&task, now);
        if let Some(at) = plan.again {
            let wait = Duration::try_from(at.duration_since(now)).unwrap_or(Duration::ZERO);
            context.queue.add_after(task.clone(), wait);
        }
        if plan.writes.is_empty() {
            self.failures.remove(&task);
            return Ok(());
        }
        let object = self.cluster.get(task.resource, &task.key).cloned();
        let node = object.as_deref().map(|it| match task.resource {
            Resource::Node => it.name(),
            _ => Cursor::root(it).text("spec.nodeName"),
        });
        let node = node.filter(|it| !it.is_empty());
        let identity = self.identity(&task, node);
        let Self { cluster, recorder, .. } = self;
        let mut executor = Executor {
            api: Api {
                identity: &identity,
                ..context.api
            },
            recorder,
            latest: None,
            refused: None,
        };
        let seen: &Cluster = cluster;
        let read = |at: &super::resource::Target| -> Option<Arc<Object>> { seen.get(at.resource, &at.key).cloned() };
        let done = executor.run(plan.writes, &read).await;
        match executor.refused.take() {
            Some(why) => drop(self.failures.insert(task.clone(), why)),
            None => drop(self.failures.remove(&task)),
        }
        if done.is_err() && self.failures.contains_key(&task) && tells_of_refusals(task.worker) {
            self.tell_status(&task, &identity, context).await?;
        }
        done
    }
}

/// Returns `true` for the controllers that write the status of an object though they could not create what it wants.
fn tells_of_refusals(worker: Worker) -> bool {
    matches!(
        worker,
        Worker::ReplicaSet | Worker::StatefulSet | Worker::DaemonSet | Worker::Job
    )
}

impl Workloads {
    /// Writes the status that an object has now that something was refused, and nothing else.
    async fn tell_status(
        &mut self,
        task: &Task,
        identity: &Identity,
        context: &mut Context<'_, Task>,
    ) -> Result<(), Failure> {
        let mut writes = self.plan(task, context.api.now()).writes;
        writes.retain(|it| matches!(it, Write::Status { at, .. } if at.resource == task.resource));
        let Self { cluster, recorder, .. } = self;
        let mut executor = Executor {
            api: Api {
                identity,
                ..context.api
            },
            recorder,
            latest: None,
            refused: None,
        };
        let seen: &Cluster = cluster;
        let read = |at: &super::resource::Target| -> Option<Arc<Object>> { seen.get(at.resource, &at.key).cloned() };
        executor.run(writes, &read).await
    }
}

/// The address of a node.
fn host_address(cluster: &Cluster, node: &str) -> String {
    let node = cluster.find(Resource::Node, "", node);
    let address = node.and_then(|node| {
        let mut addresses = Cursor::root(node).maps("status.addresses");
        addresses
            .find(|it| Cursor::root(it).text("type") == "InternalIP")
            .map(|it| Cursor::root(it).text("address").to_owned())
    });
    address.unwrap_or_else(|| HOST.to_owned())
}

/// The address with a number, within 10.244.0.0/16 as long as there are some.
fn address(number: u32) -> String {
    let [_, high, middle, low] = number.to_be_bytes();
    format!("10.{}.{middle}.{low}", 244_u8.wrapping_add(high))
}

/// The number of an address; `None` if it is none of ours.
fn number_of(address: &str) -> Option<u32> {
    let mut parts = address.split('.').map(|it| it.parse::<u8>());
    let mut next = || parts.next()?.ok();
    let (ten, high, middle, low) = (next()?, next()?, next()?, next()?);
    (ten == 10 && high >= 244).then(|| u32::from_be_bytes([0, high - 244, middle, low]))
}
