//! Reads of the cluster's state, without a request.

use std::sync::Mutex;

use futures::FutureExt;
use kube::Resource;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::create::not_served;
use crate::object::Object;
use crate::target::{ObjectId, Target};
use crate::test_cluster::{TestCluster, lock};

/// Number of reads that a failing condition shows.
const REMEMBERED: usize = 4;

/// The last reads, for the message of a condition that does not hold.
#[derive(Debug, Default)]
pub(crate) struct Reads(Mutex<Vec<(ObjectId, Option<Value>)>>);

impl Reads {
    fn remember(&self, id: &ObjectId, object: Option<&Value>) {
        let mut reads = lock(&self.0);
        reads.retain(|(known, _)| known != id);
        if reads.len() == REMEMBERED {
            reads.remove(0);
        }
        reads.push((id.clone(), object.cloned()));
    }

    /// Forgets and returns them, oldest first.
    pub(crate) fn take(&self) -> Vec<(ObjectId, Option<Value>)> {
        std::mem::take(&mut *lock(&self.0))
    }
}

/// Reading the cluster. These are no requests: they take no time, faults do not strike them, and the journal does not
/// show them.
impl TestCluster {
    /// The object, as it is now. See [`Target`] for the ways to name it.
    ///
    /// ```
    /// # use k8s_openapi::api::core::v1::Pod;
    /// # use testkit::{TestCluster, objects::pod};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let cluster = TestCluster::start();
    /// cluster.create(pod("web-0").namespace("shop").label("app", "web")).await;
    ///
    /// assert_eq!(cluster.get(pod("web-0").namespace("shop")).label("app"), Some("web"));
    /// assert_eq!(cluster.get::<Pod>("shop/web-0").spec.unwrap_or_default().containers.len(), 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// If there is none, or if it is not a `K`.
    #[track_caller]
    pub fn get<K: DeserializeOwned>(&self, target: impl Target<K>) -> K {
        let id = target.id();
        match self.find(&id) {
            Some(value) => self.typed(&id, value),
            None => self.fail(&format!("there is no {}{}", self.located(&id), self.others_of(&id))),
        }
    }

    /// The object, if there is one.
    ///
    /// # Panics
    ///
    /// If it is not a `K`.
    #[track_caller]
    pub fn try_get<K: DeserializeOwned>(&self, target: impl Target<K>) -> Option<K> {
        let id = target.id();
        self.find(&id).map(|value| self.typed(&id, value))
    }

    /// Returns `true` if the object exists; a terminating one exists.
    #[track_caller]
    pub fn exists<K>(&self, target: impl Target<K>) -> bool {
        self.find(&target.id()).is_some()
    }

    /// Returns `true` if the object does not exist.
    #[track_caller]
    pub fn gone<K>(&self, target: impl Target<K>) -> bool {
        !self.exists(target)
    }

    /// All objects of a type in all namespaces, by namespace and name.
    ///
    /// ```
    /// # use k8s_openapi::api::core::v1::Pod;
    /// # use testkit::{TestCluster, objects::pod};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let cluster = TestCluster::start();
    /// assert!(cluster.list::<Pod>().is_empty());
    /// # }
    /// ```
    #[track_caller]
    pub fn list<K: Resource<DynamicType = ()> + DeserializeOwned>(&self) -> Vec<K> {
        self.list_in("")
    }

    /// All objects of a type in one namespace, by name.
    #[track_caller]
    pub fn list_in<K: Resource<DynamicType = ()> + DeserializeOwned>(&self, namespace: &str) -> Vec<K> {
        let objects = self.values(&K::api_version(&()), &K::kind(&()), namespace);
        objects
            .into_iter()
            .map(|value| self.typed(&ObjectId::of(&value), value))
            .collect()
    }

    /// All objects of any kind in all namespaces, by namespace and name.
    ///
    /// ```
    /// # use testkit::TestCluster;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let cluster = TestCluster::start();
    /// let names: Vec<_> = cluster.list_all("v1", "Namespace").iter().map(|it| it.name().to_owned()).collect();
    /// assert_eq!(names, ["default", "kube-node-lease", "kube-public", "kube-system"]);
    /// # }
    /// ```
    #[track_caller]
    pub fn list_all(&self, api_version: &str, kind: &str) -> Vec<Object> {
        self.values(api_version, kind, "").into_iter().map(Object).collect()
    }

    #[track_caller]
    fn values(&self, api_version: &str, kind: &str, namespace: &str) -> Vec<Value> {
        match self.server.list(api_version, kind, namespace).now_or_never() {
            Some(Ok(values)) => values.into_iter().map(|it| self.with_real_version(it)).collect(),
            Some(Err(_)) => self.fail(&not_served(api_version, kind)),
            None => unreachable!("the state is in memory"),
        }
    }

    /// The object as it is stored; fails the test if the kind is not served.
    #[track_caller]
    pub(crate) fn find(&self, id: &ObjectId) -> Option<Value> {
        if self.server.resource(&id.api_version, &id.kind).is_none() {
            self.fail(&not_served(&id.api_version, &id.kind));
        }
        let id = self.located(id);
        let found = self.read(
            &id.api_version,
            &id.kind,
            id.namespace.as_deref().unwrap_or_default(),
            &id.name,
        );
        self.reads.remember(&id, found.as_ref());
        found
    }

    /// The same with the namespace the object must be in.
    pub(crate) fn located(&self, id: &ObjectId) -> ObjectId {
        let mut id = id.clone();
        let info = self.server.resource(&id.api_version, &id.kind);
        id.namespace = match info.is_some_and(|info| info.is_namespaced()) {
            true => id.namespace.or_else(|| Some("default".to_owned())),
            false => None,
        };
        id
    }

    pub(crate) fn read(&self, api_version: &str, kind: &str, namespace: &str, name: &str) -> Option<Value> {
        self.server
            .get(api_version, kind, namespace, name)
            .now_or_never()
            .and_then(Result::ok)
            .map(|it| self.with_real_version(it))
    }

    #[track_caller]
    fn typed<K: DeserializeOwned>(&self, id: &ObjectId, value: Value) -> K {
        serde_json::from_value(value)
            .unwrap_or_else(|err| self.fail(&format!("{id} does not decode as the requested type: {err}")))
    }
}
