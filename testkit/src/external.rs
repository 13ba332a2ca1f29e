//! Side effects of a controller outside of the API: points for faults, and an in-memory external system.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use serde_json::Value;

use crate::externals::{Externals, Kept};
use crate::hooks::{Hooks, Unreachable};
use crate::test_cluster::TestCluster;

/// A point in a controller at which [`explore`](fn@crate::explore::explore) may crash the controller, delay it, or make
/// its next action fail. Created by [`TestCluster::point`].
#[derive(Clone, Debug)]
pub struct Point {
    systems: Arc<Externals>,
    hooks: Option<Arc<dyn Hooks>>,
    client: String,
    name: String,
}

/// Reason for the failure of a call to an [`External`] system.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExternalError {
    /// The request or its response was lost. The call may have been executed.
    Unreachable,
    /// An object with this key exists.
    AlreadyExists(String),
    /// There is no object with this key.
    NotFound(String),
}

impl fmt::Display for ExternalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable => Unreachable.fmt(f),
            Self::AlreadyExists(key) => write!(f, "{key:?} already exists"),
            Self::NotFound(key) => write!(f, "{key:?} not found"),
        }
    }
}

impl std::error::Error for ExternalError {}

/// A system outside of the cluster, such as a cloud provider, that stores objects in memory. Created by
/// [`TestCluster::external`]. Each call is a [`Point`], and the contents are part of the end state of a run. Before
/// states are compared, uids, generated names, versions of objects and terms of Leases in keys and values are replaced
/// with the objects that they refer to. [`ignore`](crate::explore::Explore::ignore) excludes fields of the values.
///
/// ```
/// use serde_json::json;
/// use testkit::TestCluster;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), testkit::ExternalError> {
/// let cluster = TestCluster::start();
/// let cloud = cluster.external("cloud").of("operator");
/// cloud.create("disk-1", json!({"size": 10})).await?;
/// let id = cloud.add(json!({"zone": "a"})).await?;
/// assert_eq!(cloud.get("disk-1").await?, Some(json!({"size": 10})));
/// cloud.delete(&id).await?;
/// assert_eq!(cloud.list().await?.len(), 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct External {
    systems: Arc<Externals>,
    name: String,
    hooks: Option<Arc<dyn Hooks>>,
    client: String,
}

impl TestCluster {
    /// Returns a point in a controller, outside of the API, at which [`explore`](crate::explore) may inject faults.
    /// Outside of an exploration it has no effect. Set the controller with [`Point::of`], so that it can be crashed at
    /// this point.
    ///
    /// ```
    /// # use testkit::TestCluster;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), testkit::Unreachable> {
    /// let cluster = TestCluster::start();
    /// let billing = cluster.point("billing.charge").of("operator");
    /// billing.pass().await?; // in the controller, before it charges
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn point(&self, name: &str) -> Point {
        Point {
            systems: Arc::clone(&self.externals),
            hooks: self.hooks.clone(),
            client: "controllers".to_owned(),
            name: name.to_owned(),
        }
    }

    /// Returns the external system with this name. A cluster has one system per name. Each system is initially empty.
    #[must_use]
    pub fn external(&self, name: &str) -> External {
        External {
            systems: Arc::clone(&self.externals),
            name: name.to_owned(),
            hooks: self.hooks.clone(),
            client: "controllers".to_owned(),
        }
    }
}

impl Point {
    /// Sets the controller that this point belongs to.
    #[must_use]
    pub fn of(mut self, name: &str) -> Self {
        name.clone_into(&mut self.client);
        self
    }

    /// Passes the point. Fails if an exploration makes the controller's next action fail.
    pub async fn pass(&self) -> Result<(), Unreachable> {
        self.around("", || ()).await
    }

    /// Executes `call`, with the faults that the exploration injects before and after it.
    async fn around<T>(&self, object: &str, call: impl FnOnce() -> T) -> Result<T, Unreachable> {
        let Some(hooks) = &self.hooks else { return Ok(call()) };
        let failed = |err| {
            self.systems.failed();
            err
        };
        let after = Arc::clone(hooks).call(&self.client, &self.name, object).await;
        let after = after.map_err(failed)?;
        let done = call();
        after.await.map_err(failed)?;
        Ok(done)
    }
}

impl External {
    /// Sets the controller that uses this handle. Faults that are injected into the handle's calls affect this
    /// controller; some of them crash it.
    #[must_use]
    pub fn of(mut self, name: &str) -> Self {
        name.clone_into(&mut self.client);
        self
    }

    async fn call<T>(
        &self,
        verb: &str,
        key: &str,
        call: impl FnOnce(&mut Kept) -> Result<T, ExternalError>,
    ) -> Result<T, ExternalError> {
        let point = Point {
            systems: Arc::clone(&self.systems),
            hooks: self.hooks.clone(),
            client: self.client.clone(),
            name: format!("{}.{verb}", self.name),
        };
        let done = point.around(key, || self.systems.call(&self.name, call)).await;
        done.unwrap_or(Err(ExternalError::Unreachable))
    }

    /// Adds an object with the given key.
    pub async fn create(&self, key: &str, value: Value) -> Result<(), ExternalError> {
        let create = |kept: &mut Kept| match kept.objects.contains_key(key) {
            true => Err(ExternalError::AlreadyExists(key.to_owned())),
            false => {
                kept.objects.insert(key.to_owned(), value);
                Ok(())
            }
        };
        self.call("create", key, create).await
    }

    /// Adds an object with a key that the system generates, as cloud providers do, and returns the key. The key
    /// consists of the system's name, a hash of the content, and the first unused number.
    pub async fn add(&self, value: Value) -> Result<String, ExternalError> {
        let mut hasher = DefaultHasher::new();
        value.to_string().hash(&mut hasher);
        let stem = format!("{}-{:08x}", self.name, hasher.finish() & 0xffff_ffff);
        let add = |kept: &mut Kept| {
            let nth = (1..).find(|nth| !kept.objects.contains_key(&format!("{stem}-{nth}")));
            let key = format!("{stem}-{}", nth.unwrap_or(0));
            kept.objects.insert(key.clone(), value);
            kept.generated.insert(key.clone());
            Ok(key)
        };
        self.call("add", "", add).await
    }

    /// Returns the object with this key, if there is one.
    pub async fn get(&self, key: &str) -> Result<Option<Value>, ExternalError> {
        self.call("get", key, |kept| Ok(kept.objects.get(key).cloned())).await
    }

    /// Returns all objects with their keys, sorted by key.
    pub async fn list(&self) -> Result<Vec<(String, Value)>, ExternalError> {
        let all = |kept: &mut Kept| {
            let all = kept.objects.iter().map(|(key, value)| (key.clone(), value.clone()));
            Ok(all.collect())
        };
        self.call("list", "", all).await
    }

    /// Replaces an object.
    pub async fn update(&self, key: &str, value: Value) -> Result<(), ExternalError> {
        let update = |kept: &mut Kept| match kept.objects.get_mut(key) {
            Some(old) => {
                *old = value;
                Ok(())
            }
            None => Err(ExternalError::NotFound(key.to_owned())),
        };
        self.call("update", key, update).await
    }

    /// Removes an object.
    pub async fn delete(&self, key: &str) -> Result<(), ExternalError> {
        let delete = |kept: &mut Kept| {
            kept.generated.remove(key);
            let removed = kept.objects.remove(key);
            removed.map(drop).ok_or_else(|| ExternalError::NotFound(key.to_owned()))
        };
        self.call("delete", key, delete).await
    }

    /// Returns the contents, for the test. Faults do not affect this call.
    #[must_use]
    pub fn objects(&self) -> BTreeMap<String, Value> {
        self.systems.call(&self.name, |kept| kept.objects.clone())
    }
}
