//! `Object`: a stored object of any kind, with accessors for tests.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::json;

/// A stored object of any kind.
///
/// ```
/// # use testkit::{TestCluster, objects::pod};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let cluster = TestCluster::start();
/// cluster.create(pod("web-0").label("app", "web")).await;
///
/// let web = cluster.get(pod("web-0"));
/// assert_eq!(web.label("app"), Some("web"));
/// assert_eq!(web.get("spec.containers.0.name"), Some(&"main".into()));
/// assert!(!web.is_terminating());
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Object(pub(crate) Value);

impl Object {
    /// Returns `metadata.name`.
    pub fn name(&self) -> &str {
        self.text("metadata.name")
    }

    /// Returns `metadata.namespace`; empty for cluster-scoped objects.
    pub fn namespace(&self) -> &str {
        self.text("metadata.namespace")
    }

    /// Returns `metadata.uid`.
    pub fn uid(&self) -> &str {
        self.text("metadata.uid")
    }

    /// Returns `metadata.resourceVersion`.
    pub fn resource_version(&self) -> &str {
        self.text("metadata.resourceVersion")
    }

    /// Returns the label with this key.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.0["metadata"]["labels"][key].as_str()
    }

    /// Returns the annotation with this key.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.0["metadata"]["annotations"][key].as_str()
    }

    /// Returns an entry of `data` as it is stored: in base64 for a Secret.
    pub fn data(&self, key: &str) -> Option<&str> {
        self.0["data"][key].as_str()
    }

    /// Returns the finalizers.
    pub fn finalizers(&self) -> Vec<&str> {
        let list = self.0["metadata"]["finalizers"].as_array();
        list.into_iter().flatten().filter_map(Value::as_str).collect()
    }

    /// Returns `true` if the object has a deletionTimestamp: it was deleted, but still exists because of a finalizer or
    /// a grace period.
    pub fn is_terminating(&self) -> bool {
        self.0["metadata"]["deletionTimestamp"].is_string()
    }

    /// Returns the `status` of the condition with this type: `True`, `False` or `Unknown`.
    pub fn condition(&self, kind: &str) -> Option<&str> {
        let conditions = self.0["status"]["conditions"].as_array()?;
        conditions.iter().find(|it| it["type"] == kind)?["status"].as_str()
    }

    /// Returns a field by its path: names separated by dots, indexes for list items.
    pub fn get(&self, path: &str) -> Option<&Value> {
        path.split('.').try_fold(&self.0, |value, step| match value {
            Value::Array(items) => items.get(step.parse::<usize>().ok()?),
            _ => value.get(step),
        })
    }

    /// Decodes the object as a type, such as a type of a different version of kube.
    ///
    /// # Panics
    ///
    /// If the object cannot be decoded as this type.
    #[track_caller]
    pub fn decode<T: serde::de::DeserializeOwned>(&self) -> T {
        json::decode(&self.0).unwrap_or_else(|err| panic!("the object cannot be decoded: {err}: {}", self.0))
    }

    /// Returns the object as JSON.
    pub fn value(&self) -> &Value {
        &self.0
    }

    fn text(&self, path: &str) -> &str {
        self.get(path).and_then(Value::as_str).unwrap_or_default()
    }
}
