//! Reads of the cluster's state without requests.

use std::sync::Mutex;

use futures::FutureExt;
use kube::Resource;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::json;
use crate::lock::lock;
use crate::object::Object;
use crate::target::{ObjectId, Target};
use crate::test_cluster::TestCluster;
use crate::text::not_served;

/// Maximum number of objects in the message of a failed condition.
const REMEMBERED: usize = 4;

/// The objects that were read last, for the message of a condition that does not hold. Only their identities are
/// stored, because a condition is evaluated many times, and its objects do not change between its last evaluation and
/// the failure.
#[derive(Debug, Default)]
pub(crate) struct Reads(Mutex<Vec<ObjectId>>);

impl Reads {
    fn remember(&self, id: &ObjectId) {
        let mut reads = lock(&self.0);
        reads.retain(|known| known != id);
        if reads.len() == REMEMBERED {
            reads.remove(0);
        }
        reads.push(id.clone());
    }

    /// Removes and returns the recorded reads, oldest first.
    pub(crate) fn take(&self) -> Vec<ObjectId> {
        std::mem::take(&mut *lock(&self.0))
    }
}

/// Reads of the cluster. They are not requests: they take no time, faults do not affect them, and the journal does not
/// contain them.
impl TestCluster {
    /// Returns the current state of the object. See [`Target`] for the ways to identify it.
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
    /// If the object does not exist, cannot be decoded as `K`, or is of a kind that is not served.
    #[track_caller]
    pub fn get<K: DeserializeOwned>(&self, target: impl Target<K>) -> K {
        let id = target.id();
        match self.find(&id) {
            Some(value) => self.typed(&id, value),
            None => self.fail_about(
                &id,
                &format!("there is no {}{}", self.located(&id), self.others_of(&id)),
            ),
        }
    }

    /// Returns the object, if it exists.
    ///
    /// # Panics
    ///
    /// If the object cannot be decoded as `K`, or is of a kind that is not served.
    #[track_caller]
    pub fn try_get<K: DeserializeOwned>(&self, target: impl Target<K>) -> Option<K> {
        let id = target.id();
        Some(self.typed(&id, self.find(&id)?))
    }

    /// Returns `true` if the object exists; this includes terminating objects. Panics if the kind is not served.
    #[track_caller]
    pub fn exists<K>(&self, target: impl Target<K>) -> bool {
        let id = self.sought(&target.id());
        let namespace = id.namespace.as_deref().unwrap_or_default();
        let uid = self.server.uid_of(&id.api_version, &id.kind, namespace, &id.name);
        uid.is_some()
    }

    /// Returns `true` if the object does not exist. Panics if the kind is not served.
    #[track_caller]
    pub fn gone<K>(&self, target: impl Target<K>) -> bool {
        !self.exists(target)
    }

    /// Lists all objects of a type in all namespaces, by namespace and name.
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

    /// Lists all objects of a type in one namespace, by name.
    #[track_caller]
    pub fn list_in<K: Resource<DynamicType = ()> + DeserializeOwned>(&self, namespace: &str) -> Vec<K> {
        let mut objects = Vec::new();
        // A loop instead of a closure, because a failure must report the caller's location.
        for value in self.values(&K::api_version(&()), &K::kind(&()), namespace) {
            objects.push(self.typed(&ObjectId::of(&value), value));
        }
        objects
    }

    /// Lists all objects of any kind in all namespaces, by namespace and name.
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
            None => unreachable!("an in-process server responds immediately"),
        }
    }

    /// Returns the stored object. Fails the test if the kind is not served.
    #[track_caller]
    pub(crate) fn find(&self, id: &ObjectId) -> Option<Value> {
        self.read(&self.sought(id))
    }

    /// Returns the identity of an object with its namespace, and records that the object was read. Fails the test if
    /// the kind is not served.
    #[track_caller]
    fn sought(&self, id: &ObjectId) -> ObjectId {
        if self.server.resource(&id.api_version, &id.kind).is_none() {
            self.fail(&not_served(&id.api_version, &id.kind));
        }
        let id = self.located(id);
        self.reads.remember(&id);
        id
    }

    /// Returns the identity with the object's actual namespace: `default` if none is set, and none for cluster-scoped
    /// kinds.
    pub(crate) fn located(&self, id: &ObjectId) -> ObjectId {
        let mut id = id.clone();
        let info = self.server.resource(&id.api_version, &id.kind);
        id.namespace = match info.is_some_and(|info| info.is_namespaced()) {
            true => id.namespace.or_else(|| Some("default".to_owned())),
            false => None,
        };
        id
    }

    /// Returns the object with this name and namespace, if it exists.
    pub(crate) fn read(&self, id: &ObjectId) -> Option<Value> {
        let namespace = id.namespace.as_deref().unwrap_or_default();
        self.server
            .get(&id.api_version, &id.kind, namespace, &id.name)
            .now_or_never()
            .and_then(Result::ok)
            .map(|it| self.with_real_version(it))
    }

    #[track_caller]
    fn typed<K: DeserializeOwned>(&self, id: &ObjectId, value: Value) -> K {
        match json::decode(&value) {
            Ok(object) => object,
            Err(err) => self.fail(&format!("{id} cannot be decoded as the requested type: {err}")),
        }
    }
}
