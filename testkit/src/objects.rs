//! Builders of test objects: `pod("web-0").namespace("shop").label("app", "web")`.
//!
//! Each function returns an [`ObjectBuilder`] with a minimal object. Its methods set other fields. Objects of your own
//! types need no builder: [`TestCluster::create`](crate::TestCluster::create) takes them directly.
//!
//! ```
//! use testkit::objects::{deployment, object, pod};
//!
//! let web = pod("web-0").namespace("shop").label("app", "web").set("spec.nodeName", "node-1");
//! assert_eq!(web.value()["spec"]["nodeName"], "node-1");
//!
//! let big = deployment("web").set("spec.replicas", 3).set("spec.template.spec.containers.0.image", "web:2");
//! assert_eq!(big.value()["spec"]["template"]["spec"]["containers"][0]["image"], "web:2");
//!
//! let ingress = object("networking.k8s.io/v1", "Ingress", "front").annotation("team", "edge");
//! assert_eq!(ingress.value()["kind"], "Ingress");
//! ```

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::json;

/// Builder of an object, from [`pod`], [`object`] or a similar function; see the [module](self).
#[derive(Clone, Debug, PartialEq)]
#[must_use = "an object builder does nothing until the object is created"]
pub struct ObjectBuilder(Value);

/// Builds an object of any kind with only `apiVersion`, `kind` and a name.
pub fn object(api_version: &str, kind: &str, name: &str) -> ObjectBuilder {
    ObjectBuilder(json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}}))
}

/// Builds an object from a serializable value, such as a type of k8s-openapi or of a different version of kube.
/// [`Object::decode`](crate::Object::decode) is the inverse.
///
/// ```
/// use testkit::objects::serialized;
///
/// let manifest = serde_json::json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web-0"}});
/// assert_eq!(serialized(&manifest).value(), &manifest);
/// ```
///
/// # Panics
///
/// If the value cannot be serialized as JSON, or has no `apiVersion` or `kind`.
#[track_caller]
pub fn serialized(object: &impl Serialize) -> ObjectBuilder {
    let object = json::encode(object).unwrap_or_else(|err| panic!("the object cannot be serialized: {err}"));
    for field in ["apiVersion", "kind"] {
        assert!(object[field].is_string(), "the object has no {field}: {object}");
    }
    ObjectBuilder(object)
}

/// Builds a Pod with one container.
pub fn pod(name: &str) -> ObjectBuilder {
    object("v1", "Pod", name).set("spec", json!({"containers": [container()]}))
}

/// Builds a ConfigMap; see [`ObjectBuilder::data`].
pub fn config_map(name: &str) -> ObjectBuilder {
    object("v1", "ConfigMap", name)
}

/// Builds an opaque Secret. [`ObjectBuilder::data`] takes plain text, which the server encodes.
pub fn secret(name: &str) -> ObjectBuilder {
    object("v1", "Secret", name)
}

/// Builds a Namespace.
pub fn namespace(name: &str) -> ObjectBuilder {
    object("v1", "Namespace", name)
}

/// Builds a Node.
pub fn node(name: &str) -> ObjectBuilder {
    object("v1", "Node", name)
}

/// Builds a Service on port 80 for Pods with the label `app` set to the Service's name.
pub fn service(name: &str) -> ObjectBuilder {
    object("v1", "Service", name).set("spec", json!({"selector": {"app": name}, "ports": [{"port": 80}]}))
}

/// Builds a Deployment of one Pod, with the label `app` set to the Deployment's name.
pub fn deployment(name: &str) -> ObjectBuilder {
    let template = json!({"metadata": {"labels": {"app": name}}, "spec": {"containers": [container()]}});
    object("apps/v1", "Deployment", name).set(
        "spec",
        json!({"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": template}),
    )
}

/// Builds a Job of one Pod with a container that runs `true`.
pub fn job(name: &str) -> ObjectBuilder {
    let mut container = container();
    container["command"] = json!(["true"]);
    let template = json!({"spec": {"containers": [container], "restartPolicy": "Never"}});
    object("batch/v1", "Job", name).set("spec", json!({"template": template}))
}

fn container() -> Value {
    json!({"name": "main", "image": "registry.example/app:1"})
}

impl ObjectBuilder {
    /// Sets the namespace. The default is `default`.
    pub fn namespace(self, namespace: &str) -> Self {
        self.set("metadata.namespace", namespace)
    }

    /// Adds a label.
    pub fn label(self, key: &str, value: &str) -> Self {
        self.entry("labels", key, value)
    }

    /// Adds an annotation.
    pub fn annotation(self, key: &str, value: &str) -> Self {
        self.entry("annotations", key, value)
    }

    /// Adds a finalizer.
    pub fn finalizer(mut self, name: &str) -> Self {
        push(&mut self.0["metadata"]["finalizers"], name.into());
        self
    }

    /// Adds an entry to `data`, or to `stringData` of a Secret, as plain text.
    pub fn data(mut self, key: &str, value: &str) -> Self {
        let field = if self.0["kind"] == "Secret" {
            "stringData"
        } else {
            "data"
        };
        map(&mut self.0[field]).insert(key.to_owned(), value.into());
        self
    }

    /// Adds an owner reference with `controller: true`. The owner must have been created, because its uid is required.
    ///
    /// # Panics
    ///
    /// If the owner does not have a uid.
    #[track_caller]
    pub fn owned_by(mut self, owner: &impl Serialize) -> Self {
        let owner = json::encode(owner).expect("Kubernetes objects can be serialized as JSON");
        let uid = &owner["metadata"]["uid"];
        assert!(
            uid.is_string(),
            "the owner has no uid: pass the object that `create` returned"
        );
        let reference = json!({
            "apiVersion": owner["apiVersion"], "kind": owner["kind"],
            "name": owner["metadata"]["name"], "uid": uid, "controller": true,
        });
        push(&mut self.0["metadata"]["ownerReferences"], reference);
        self
    }

    /// Sets the status. [`TestCluster::create`](crate::TestCluster::create) writes it through the `status` subresource
    /// if the kind has one.
    pub fn status(mut self, status: impl Serialize) -> Self {
        self.0["status"] = json::encode(&status).expect("a status can be serialized as JSON");
        self
    }

    /// Sets any field by its path: names separated by dots, indexes for list items. Missing parents are created as
    /// objects. The length of a list as an index appends an item.
    ///
    /// # Panics
    ///
    /// If an existing field on the path is neither an object nor a list, if a step within a list is not an index or is
    /// out of range, or if the value cannot be serialized as JSON.
    #[track_caller]
    pub fn set(mut self, path: &str, value: impl Serialize) -> Self {
        let value = json::encode(&value).expect("the value can be serialized as JSON");
        let mut place = &mut self.0;
        for step in path.split('.') {
            if place.is_null() {
                *place = Value::Object(Map::new());
            }
            place = match place {
                Value::Object(fields) => fields.entry(step).or_insert(Value::Null),
                Value::Array(items) => item(items, step).unwrap_or_else(|why| panic!("{path}: {why}")),
                other => panic!("{path}: {step:?} cannot be set within {other}"),
            };
        }
        *place = value;
        self
    }

    /// Returns the object as JSON.
    pub fn value(&self) -> &Value {
        &self.0
    }

    /// Converts the builder to JSON.
    pub fn into_value(self) -> Value {
        self.0
    }

    fn entry(mut self, field: &str, key: &str, value: &str) -> Self {
        map(&mut self.0["metadata"][field]).insert(key.to_owned(), value.into());
        self
    }
}

impl From<Value> for ObjectBuilder {
    /// Accepts any JSON. It should have `apiVersion`, `kind` and `metadata.name`, which is not checked.
    fn from(value: Value) -> Self {
        Self(value)
    }
}

/// Returns the list item at the index `step`. Appends a new item if the index is the length of the list.
fn item<'a>(items: &'a mut Vec<Value>, step: &str) -> Result<&'a mut Value, String> {
    let length = items.len();
    let index: usize = step.parse().map_err(|_| format!("{step:?} is not an index"))?;
    if index == length {
        items.push(Value::Null);
    }
    items
        .get_mut(index)
        .ok_or_else(|| format!("the index {index} is out of range for a list of length {length}"))
}

/// Returns the value as an object. Replaces a value of any other type with an empty object.
fn map(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut().expect("the value is an object")
}

fn push(list: &mut Value, item: Value) {
    if !list.is_array() {
        *list = Value::Array(Vec::new());
    }
    list.as_array_mut().expect("the value is a list").push(item);
}
