//! Identification of objects in a test, and the objects that a test can create.

use std::fmt;

use kube::Resource;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::json;
use crate::object::Object;
use crate::objects::ObjectBuilder;

/// Identity of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectId {
    /// `apiVersion`
    pub api_version: String,
    /// `kind`
    pub kind: String,
    /// Namespace. For namespaced kinds, `None` stands for `default`.
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
}

impl ObjectId {
    /// Extracts the identity from an object.
    pub(crate) fn of(object: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let metadata = &object["metadata"];
        Self {
            api_version: text(&object["apiVersion"]),
            kind: text(&object["kind"]),
            namespace: metadata["namespace"]
                .as_str()
                .filter(|it| !it.is_empty())
                .map(str::to_owned),
            name: text(&metadata["name"]),
        }
    }
}

impl fmt::Display for ObjectId {
    /// Formats the identity as `Pod shop/web-0`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{} {namespace}/{}", self.kind, self.name),
            None => write!(f, "{} {}", self.kind, self.name),
        }
    }
}

/// Identifies an object of type `K`: by its name (`"web-0"`, or `"shop/web-0"` in a namespace other than `default`) if
/// the type is known, by an [`ObjectBuilder`], or by the object itself.
///
/// ```
/// # use testkit::{TestCluster, objects::config_map};
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let cluster = TestCluster::start();
/// cluster.create(config_map("settings").namespace("shop")).await;
///
/// let typed = cluster.get::<ConfigMap>("shop/settings");
/// assert!(cluster.exists(&typed));
/// assert!(cluster.exists(config_map("settings").namespace("shop")));
/// // The namespace `default` does not contain a ConfigMap with this name.
/// assert!(cluster.gone::<ConfigMap>("settings"));
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not name an object of type `{K}`",
    label = "expected a name, a reference to the object, or a builder",
    note = "with the type: `get::<Pod>(\"web-0\")`, or `\"shop/web-0\"` in another namespace; `get(&pod)` for an object \
            you have; `get(pod(\"web-0\").namespace(\"shop\"))` returns an `Object` of any kind"
)]
pub trait Target<K> {
    /// Returns the identity of the object.
    fn id(&self) -> ObjectId;
}

impl<K: Resource<DynamicType = ()>> Target<K> for &str {
    fn id(&self) -> ObjectId {
        let (namespace, name) = match self.split_once('/') {
            Some((namespace, name)) => (Some(namespace.to_owned()), name),
            None => (None, *self),
        };
        ObjectId {
            api_version: K::api_version(&()).into_owned(),
            kind: K::kind(&()).into_owned(),
            namespace,
            name: name.to_owned(),
        }
    }
}

impl<K: Resource<DynamicType = ()>> Target<K> for String {
    fn id(&self) -> ObjectId {
        <&str as Target<K>>::id(&self.as_str())
    }
}

impl<K: Resource<DynamicType = ()>> Target<K> for &K {
    fn id(&self) -> ObjectId {
        ObjectId {
            api_version: K::api_version(&()).into_owned(),
            kind: K::kind(&()).into_owned(),
            namespace: self.meta().namespace.clone(),
            name: self.meta().name.clone().unwrap_or_default(),
        }
    }
}

impl Target<Object> for ObjectBuilder {
    fn id(&self) -> ObjectId {
        ObjectId::of(self.value())
    }
}

impl Target<Object> for &ObjectBuilder {
    fn id(&self) -> ObjectId {
        ObjectId::of(self.value())
    }
}

impl Target<Object> for &Object {
    fn id(&self) -> ObjectId {
        ObjectId::of(self.value())
    }
}

impl Target<Object> for ObjectId {
    fn id(&self) -> ObjectId {
        self.clone()
    }
}

/// Marker type that distinguishes the implementation of [`ToObject`] for references. Inferred by the compiler.
#[derive(Debug)]
pub enum ByReference {}

/// An object that a test can create, update and expect: an [`ObjectBuilder`], an [`Object`], an object of a typed
/// resource of kube or k8s-openapi, or a reference to one of these.
///
/// `Form` distinguishes the implementations for values and for references; the compiler chooses it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an object that a test can create or compare",
    label = "expected a Kubernetes object or a builder",
    note = "pass `pod(\"web-0\")` or another builder of `testkit::objects`, `object(api_version, kind, name)` for any \
            kind, or a type with `#[derive(CustomResource, Serialize, Deserialize)]`"
)]
pub trait ToObject<Form = ()> {
    /// The type that the cluster returns.
    type Stored: DeserializeOwned;

    /// Returns the object as JSON, with `apiVersion` and `kind`.
    fn to_object(&self) -> Value;
}

impl ToObject for ObjectBuilder {
    type Stored = Object;

    fn to_object(&self) -> Value {
        self.value().clone()
    }
}

impl ToObject for Object {
    type Stored = Object;

    fn to_object(&self) -> Value {
        self.value().clone()
    }
}

impl<K: Resource<DynamicType = ()> + Serialize + DeserializeOwned> ToObject for K {
    type Stored = K;

    fn to_object(&self) -> Value {
        let mut object = json::encode(self).expect("Kubernetes objects can be serialized as JSON");
        object["apiVersion"] = K::api_version(&()).into();
        object["kind"] = K::kind(&()).into();
        object
    }
}

impl<T: ToObject> ToObject<ByReference> for &T {
    type Stored = T::Stored;

    fn to_object(&self) -> Value {
        <T as ToObject>::to_object(self)
    }
}
