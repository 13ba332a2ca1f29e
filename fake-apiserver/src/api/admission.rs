//! The request of an `AdmissionReview` (`admission.k8s.io/v1`), and the response of an admission closure. Also
//! [`Operation`], the type of change that a request makes.

use serde_json::{Map, Value, json};

use super::user::UserInfo;

/// Operation of a request, named as in webhook rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// Creation of an object, or a POST to a subresource that is not a connection.
    Create,
    /// Change of an object: PUT, PATCH and apply.
    Update,
    /// Deletion of an object, by name or with its collection.
    Delete,
    /// A client connects to a Pod, Service or Node: `exec`, `attach`, `portforward`, `proxy`.
    Connect,
}

impl Operation {
    /// Returns the name in webhook rules and reviews, such as `CREATE`.
    pub fn as_str(self) -> &'static str {
        match self {
            Operation::Create => "CREATE",
            Operation::Update => "UPDATE",
            Operation::Delete => "DELETE",
            Operation::Connect => "CONNECT",
        }
    }
}

impl std::fmt::Display for Operation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Group, version and kind of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupVersionKind {
    /// API group; empty for the core group.
    pub group: String,
    /// Version, such as `v1`.
    pub version: String,
    /// Kind, such as `Pod`.
    pub kind: String,
}

impl GroupVersionKind {
    /// Returns the `apiVersion` of objects of this kind.
    pub fn api_version(&self) -> String {
        match self.group.as_str() {
            "" => self.version.clone(),
            group => format!("{group}/{}", self.version),
        }
    }

    fn to_value(&self) -> Value {
        json!({"group": self.group, "version": self.version, "kind": self.kind})
    }
}

/// Group, version and plural name of a resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupVersionResource {
    /// API group; empty for the core group.
    pub group: String,
    /// Version, such as `v1`.
    pub version: String,
    /// Plural name, such as `pods`.
    pub resource: String,
}

impl GroupVersionResource {
    fn to_value(&self) -> Value {
        json!({"group": self.group, "version": self.version, "resource": self.resource})
    }
}

/// An admission request: the field `request` of an `AdmissionReview` (rule P2).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct AdmissionRequest {
    /// Identifier of this call, which the response repeats.
    pub uid: String,
    /// Operation of the request.
    pub operation: Operation,
    /// The kind of [`AdmissionRequest::object`].
    pub kind: GroupVersionKind,
    /// The resource in the version that matched a webhook's rule.
    pub resource: GroupVersionResource,
    /// The kind in the client's request; it differs from `kind` if an equivalent version matched.
    pub request_kind: GroupVersionKind,
    /// The resource in the client's request.
    pub request_resource: GroupVersionResource,
    /// The subresource; empty for the resource itself.
    pub sub_resource: String,
    /// The object's name; empty if the server has not generated it yet, or if the request deletes a collection.
    pub name: String,
    /// The object's namespace; empty for cluster-scoped objects. For a Namespace, its own name.
    pub namespace: String,
    /// User that sent the request.
    pub user: UserInfo,
    /// The new object, or for CONNECT the options, such as `PodExecOptions`; null for DELETE.
    pub object: Value,
    /// The stored object; null for CREATE and CONNECT.
    pub old_object: Value,
    /// Set for a dry run: the object is not stored.
    pub dry_run: bool,
    /// CreateOptions, UpdateOptions or DeleteOptions with their kind; null for CONNECT.
    pub options: Value,
}

impl AdmissionRequest {
    /// Returns the JSON of the field `request` of an `AdmissionReview`.
    pub fn to_value(&self) -> Value {
        let mut map = Map::new();
        let mut set = |key: &str, value: Value| {
            map.insert(key.to_owned(), value);
        };
        set("uid", self.uid.as_str().into());
        set("kind", self.kind.to_value());
        set("resource", self.resource.to_value());
        if !self.sub_resource.is_empty() {
            set("subResource", self.sub_resource.as_str().into());
        }
        set("requestKind", self.request_kind.to_value());
        set("requestResource", self.request_resource.to_value());
        if !self.sub_resource.is_empty() {
            set("requestSubResource", self.sub_resource.as_str().into());
        }
        for (key, text) in [("name", &self.name), ("namespace", &self.namespace)] {
            if !text.is_empty() {
                set(key, text.as_str().into());
            }
        }
        set("operation", self.operation.as_str().into());
        set("userInfo", user_value(&self.user));
        set("object", self.object.clone());
        set("oldObject", self.old_object.clone());
        set("dryRun", self.dry_run.into());
        set("options", self.options.clone());
        Value::Object(map)
    }
}

/// Converts a user to UserInfo of `authentication.k8s.io/v1`; empty fields are omitted.
pub(crate) fn user_value(user: &UserInfo) -> Value {
    let mut map = Map::new();
    if !user.name.is_empty() {
        map.insert("username".into(), user.name.as_str().into());
    }
    if !user.uid.is_empty() {
        map.insert("uid".into(), user.uid.as_str().into());
    }
    if !user.groups.is_empty() {
        map.insert("groups".into(), user.groups.clone().into());
    }
    if !user.extra.is_empty() {
        let extra: Map<String, Value> = user
            .extra
            .iter()
            .map(|(key, values)| (key.clone(), values.clone().into()))
            .collect();
        map.insert("extra".into(), extra.into());
    }
    Value::Object(map)
}

/// Response of an admission closure. A denial has the same message as a denial by a webhook with the closure's name.
///
/// ```
/// use fake_apiserver::api::admission::AdmissionResponse;
///
/// let allowed = AdmissionResponse::allow().warn("this field goes away in v2");
/// let denied = AdmissionResponse::deny("no more than three").code(403).reason("Forbidden");
/// assert!(allowed.is_allowed() && !denied.is_allowed());
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[must_use]
pub struct AdmissionResponse {
    pub(crate) denied: Option<Denial>,
    pub(crate) object: Option<Value>,
    pub(crate) warnings: Vec<String>,
}

/// `status` of a denial, in the form that webhooks send.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Denial {
    pub(crate) code: u16,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) details: Option<Box<super::status::StatusDetails>>,
}

impl AdmissionResponse {
    /// Allows the request, without a change to the object.
    pub fn allow() -> Self {
        Self::default()
    }

    /// Allows the request with a changed object. Only mutating closures may return it.
    pub fn patched(object: impl Into<Value>) -> Self {
        Self {
            object: Some(object.into()),
            ..Self::default()
        }
    }

    /// Refuses the request with status 400 and without a reason. [`AdmissionResponse::code`] and
    /// [`AdmissionResponse::reason`] override these defaults.
    pub fn deny(message: impl Into<String>) -> Self {
        Self {
            denied: Some(Denial {
                message: message.into(),
                ..Denial::default()
            }),
            ..Self::default()
        }
    }

    /// Sets the HTTP status of a denial. It is clamped to the range from 400 to 599.
    pub fn code(mut self, code: u16) -> Self {
        if let Some(denial) = &mut self.denied {
            denial.code = code;
        }
        self
    }

    /// Sets the reason of a denial, such as `Forbidden`.
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        if let Some(denial) = &mut self.denied {
            denial.reason = reason.into();
        }
        self
    }

    /// Adds a `Warning` header for the client.
    pub fn warn(mut self, text: impl Into<String>) -> Self {
        self.warnings.push(text.into());
        self
    }

    /// Returns `true` if the request is allowed.
    pub fn is_allowed(&self) -> bool {
        self.denied.is_none()
    }
}

impl From<()> for AdmissionResponse {
    fn from((): ()) -> Self {
        Self::allow()
    }
}

/// `Ok` allows the request; an error denies it, with the error as the message.
impl<E: std::fmt::Display> From<Result<(), E>> for AdmissionResponse {
    fn from(result: Result<(), E>) -> Self {
        result.map_or_else(|error| Self::deny(error.to_string()), |()| Self::allow())
    }
}

/// `Ok` contains the changed object; an error denies the request, with the error as the message.
impl<E: std::fmt::Display> From<Result<Value, E>> for AdmissionResponse {
    fn from(result: Result<Value, E>) -> Self {
        result.map_or_else(|error| Self::deny(error.to_string()), Self::patched)
    }
}

/// Allows the request with this changed object.
impl From<Value> for AdmissionResponse {
    fn from(object: Value) -> Self {
        Self::patched(object)
    }
}
