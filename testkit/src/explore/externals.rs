//! Effects of a controller outside of the API: points at which it may be struck, and an external system in memory.

use std::collections::BTreeMap;
use std::fmt;
use std::future::pending;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tokio::time::sleep;

use super::gate::Gate;
use super::plan::{Action, escaped};
use super::trace::{Outcome, Step, What};
use crate::report::shortened;
use crate::test_cluster::{TestCluster, lock};

/// The objects of an external system by their keys, shared with its handles.
pub(crate) type Kept = Arc<Mutex<BTreeMap<String, Value>>>;

/// Contents of all external systems, by name.
pub(crate) type Externals = BTreeMap<String, BTreeMap<String, Value>>;

/// The longest value shown.
const VALUE_CHARS: usize = 200;

/// A place in a controller at which [`explore`](super::explore) may crash it, delay it, or let what it does there fail:
/// from [`TestCluster::point`].
#[derive(Clone, Debug)]
pub struct Point {
    gate: Option<Arc<Gate>>,
    client: String,
    name: String,
}

/// Error of a [`Point`]: the action failed, or was done and its answer was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unreachable;

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("connection reset by peer")
    }
}

impl std::error::Error for Unreachable {}

/// Reason for which an [`External`] system refuses a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExternalError {
    /// The request or its answer was lost: it was done or not.
    Unreachable,
    /// There is an object of this key.
    AlreadyExists(String),
    /// There is no object of this key.
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

/// A system outside of the cluster, such as a cloud, that keeps objects in memory: from [`TestCluster::external`]. Each
/// call is a [`Point`], and what it holds is part of the end state.
///
/// ```
/// use serde_json::json;
/// use testkit::TestCluster;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), testkit::explore::ExternalError> {
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
    kept: Kept,
    name: String,
    gate: Option<Arc<Gate>>,
    client: String,
}

impl TestCluster {
    /// A place in a controller outside of the API at which [`explore`](crate::explore) may let something go wrong.
    /// Elsewhere nothing does. Say by [`Point::of`] whose it is, so that it can be crashed there.
    ///
    /// ```
    /// # use testkit::TestCluster;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), testkit::explore::Unreachable> {
    /// let cluster = TestCluster::start();
    /// let billing = cluster.point("billing.charge").of("operator");
    /// billing.pass().await?; // in the controller, before it charges
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn point(&self, name: &str) -> Point {
        Point {
            gate: self.gate.clone(),
            client: "controllers".to_owned(),
            name: name.to_owned(),
        }
    }

    /// The external system of this name; it is empty at first.
    #[must_use]
    pub fn external(&self, name: &str) -> External {
        let kept = match &self.gate {
            Some(gate) => Arc::clone(gate.state().externals.entry(name.to_owned()).or_default()),
            None => Kept::default(),
        };
        External {
            kept,
            name: name.to_owned(),
            gate: self.gate.clone(),
            client: "controllers".to_owned(),
        }
    }
}

impl Point {
    /// The same in the controller `name`.
    #[must_use]
    pub fn of(mut self, name: &str) -> Self {
        name.clone_into(&mut self.client);
        self
    }

    /// Passes it. Fails where an exploration lets what follows fail.
    pub async fn pass(&self) -> Result<(), Unreachable> {
        self.around("", || ()).await
    }

    /// Makes a call, and fails it as the plan says.
    async fn around<T>(&self, object: &str, call: impl FnOnce() -> T) -> Result<T, Unreachable> {
        let Some(gate) = &self.gate else { return Ok(call()) };
        let (index, life, actions) = gate.call(&escaped(&self.client), &escaped(&self.name), object);
        let crash = |down| {
            gate.crash_client(&self.client, down);
            pending::<()>()
        };
        for action in &actions {
            if let Action::CrashBefore(down) = *action {
                crash(down).await;
            } else if let Action::Delay(time) = *action {
                gate.lasts(time);
                sleep(time).await;
            } else if let Action::Fail(_) = action {
                return Err(Unreachable);
            }
        }
        if gate.life_of(&self.client) != life {
            // The controller has died meanwhile.
            pending::<()>().await;
        }
        let done = call();
        gate.called(index);
        gate.check_time();
        for action in actions {
            if let Action::CrashAfter(down) = action {
                crash(down).await;
            } else if action == Action::Lose {
                return Err(Unreachable);
            }
        }
        Ok(done)
    }
}

impl External {
    /// The same as the controller `name` sees it: what goes wrong at it goes wrong for this one, which may be crashed.
    #[must_use]
    pub fn of(mut self, name: &str) -> Self {
        name.clone_into(&mut self.client);
        self
    }

    async fn call<T>(
        &self,
        verb: &str,
        key: &str,
        call: impl FnOnce(&mut BTreeMap<String, Value>) -> Result<T, ExternalError>,
    ) -> Result<T, ExternalError> {
        let point = Point {
            gate: self.gate.clone(),
            client: self.client.clone(),
            name: format!("{}.{verb}", self.name),
        };
        let done = point.around(key, || call(&mut lock(&self.kept))).await;
        done.unwrap_or(Err(ExternalError::Unreachable))
    }

    /// Adds an object under a key of the caller's.
    pub async fn create(&self, key: &str, value: Value) -> Result<(), ExternalError> {
        let create = |kept: &mut BTreeMap<String, Value>| match kept.contains_key(key) {
            true => Err(ExternalError::AlreadyExists(key.to_owned())),
            false => {
                kept.insert(key.to_owned(), value);
                Ok(())
            }
        };
        self.call("create", key, create).await
    }

    /// Adds an object under a key of the system's own, as clouds do; returns the key. Objects with the same content get
    /// the same keys in the same order.
    pub async fn add(&self, value: Value) -> Result<String, ExternalError> {
        let mut hasher = DefaultHasher::new();
        value.to_string().hash(&mut hasher);
        let stem = format!("{}-{:08x}", self.name, hasher.finish() & 0xffff_ffff);
        let add = |kept: &mut BTreeMap<String, Value>| {
            let nth = (1..).find(|nth| !kept.contains_key(&format!("{stem}-{nth}")));
            let key = format!("{stem}-{}", nth.unwrap_or(0));
            kept.insert(key.clone(), value);
            Ok(key)
        };
        self.call("add", "", add).await
    }

    /// An object, if there is one of this key.
    pub async fn get(&self, key: &str) -> Result<Option<Value>, ExternalError> {
        self.call("get", key, |kept| Ok(kept.get(key).cloned())).await
    }

    /// Returns all objects with their keys, in the order of the keys.
    pub async fn list(&self) -> Result<Vec<(String, Value)>, ExternalError> {
        let all = |kept: &mut BTreeMap<String, Value>| {
            let all = kept.iter().map(|(key, value)| (key.clone(), value.clone()));
            Ok(all.collect())
        };
        self.call("list", "", all).await
    }

    /// Replaces an object.
    pub async fn update(&self, key: &str, value: Value) -> Result<(), ExternalError> {
        let update = |kept: &mut BTreeMap<String, Value>| match kept.get_mut(key) {
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
        let delete = |kept: &mut BTreeMap<String, Value>| {
            let removed = kept.remove(key);
            removed.map(drop).ok_or_else(|| ExternalError::NotFound(key.to_owned()))
        };
        self.call("delete", key, delete).await
    }

    /// Returns the contents, for the test: no point is passed.
    #[must_use]
    pub fn objects(&self) -> BTreeMap<String, Value> {
        lock(&self.kept).clone()
    }
}

/// Lists the differences between external systems, one line an object.
pub(crate) fn differences(expected: &Externals, found: &Externals) -> Vec<String> {
    let objects = |all: &Externals| -> BTreeMap<String, Value> {
        let named = all.iter().flat_map(|(name, kept)| {
            kept.iter()
                .map(move |(key, value)| (format!("{name} {key}"), value.clone()))
        });
        named.collect()
    };
    let (expected, mut found) = (objects(expected), objects(found));
    let show = |value: &Value| shortened(&value.to_string(), VALUE_CHARS);
    let mut lines = Vec::new();
    for (key, value) in expected {
        match found.remove(&key) {
            None => lines.push(format!("{key}: missing")),
            Some(other) if other != value => {
                lines.push(format!("{key}: expected {}, found {}", show(&value), show(&other)));
            }
            Some(_) => {}
        }
    }
    lines.extend(
        found
            .iter()
            .map(|(key, value)| format!("{key}: unexpected: {}", show(value))),
    );
    lines
}

impl Gate {
    /// Returns the contents of all external systems.
    pub(crate) fn externals(&self) -> Externals {
        let state = self.state();
        let all = state.externals.iter();
        all.map(|(name, kept)| (name.clone(), lock(kept).clone())).collect()
    }

    /// Registers a call at a point: its place in the trace, the life of its controller, and what is to go wrong.
    fn call(&self, client: &str, name: &str, object: &str) -> (usize, u32, Vec<Action>) {
        let truth = self.server.resource_version();
        let at = self.started.elapsed();
        let life = self.life_of(client);
        let mut state = self.state();
        state.messages += 1;
        let (point, actions) = self.actions(&mut state, format!("{client}:call:{name}:{}", escaped(object)));
        let index = state.trace.len();
        state.trace.push(Step {
            at,
            client: client.into(),
            life,
            what: What::Call {
                name: name.to_owned(),
                object: object.to_owned(),
                outcome: Outcome::Broken,
            },
            view: truth,
            truth,
            point,
        });
        (index, life, actions)
    }

    fn called(&self, index: usize) {
        if let Some(Step {
            what: What::Call { outcome, .. },
            ..
        }) = self.state().trace.get_mut(index)
        {
            *outcome = Outcome::Unseen;
        }
    }
}
