//! Writes of the test: create, update, edit, patch, delete.

use std::panic::Location;

use bytes::Bytes;
use http::{Method, Request};
use kube::Resource;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::json;
use crate::report::{Checked, Failed, at_the_test};
use crate::target::{ObjectId, Target, ToObject};
use crate::test_cluster::{TEST_CLIENT, TestCluster};
use crate::text::not_served;

/// Namespace of objects that do not set a namespace.
const DEFAULT_NAMESPACE: &str = "default";

/// Writes to the cluster, as a user with kubectl would. These methods send requests, which the server validates and
/// records in its journal; injected faults do not affect them. The test fails if the server refuses a request.
impl TestCluster {
    /// Creates an object and returns it as the server stored it. Takes the object or a reference to it.
    ///
    /// A missing namespace is created first. The status is written as well, through the `status` subresource if the
    /// kind has one.
    ///
    /// ```
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use testkit::{TestCluster, objects::pod};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let cluster = TestCluster::start();
    /// let web = cluster.create(pod("web-0").namespace("shop").status(serde_json::json!({"phase": "Running"}))).await;
    /// assert_eq!(web.get("status.phase"), Some(&"Running".into()));
    ///
    /// let mut settings = ConfigMap::default();
    /// settings.metadata.name = Some("settings".into());
    /// let settings = cluster.create(settings).await;
    /// assert!(settings.metadata.uid.is_some());
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// If the server refuses the object.
    #[track_caller]
    pub fn create<T: ToObject<Form>, Form>(&self, object: T) -> impl Future<Output = T::Stored> {
        let place = Location::caller();
        let object = object.to_object();
        at_the_test(async move {
            self.goes_on(place);
            typed(place, self.put_new(object).await)
        })
    }

    /// Replaces an object. Takes the object or a reference to it. If it has a resourceVersion, this must be the newest
    /// one.
    ///
    /// # Panics
    ///
    /// If the server refuses the object.
    #[track_caller]
    pub fn update<T: ToObject<Form>, Form>(&self, object: T) -> impl Future<Output = T::Stored> {
        let place = Location::caller();
        let object = object.to_object();
        at_the_test(async move {
            self.goes_on(place);
            let id = ObjectId::of(&object);
            typed(place, self.send(Method::PUT, &id, "", Some(&object)).await)
        })
    }

    /// Reads an object, applies `change`, and writes it back.
    ///
    /// ```
    /// # use testkit::{TestCluster, objects::config_map};
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let cluster = TestCluster::start();
    /// # cluster.create(config_map("settings")).await;
    /// cluster.edit::<ConfigMap>("settings", |map| map.immutable = Some(true)).await;
    /// # assert_eq!(cluster.get::<ConfigMap>("settings").immutable, Some(true));
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// If the object does not exist or the server refuses the change.
    #[track_caller]
    pub fn edit<K>(&self, target: impl Target<K>, change: impl FnOnce(&mut K)) -> impl Future<Output = K>
    where
        K: Resource<DynamicType = ()> + Serialize + DeserializeOwned,
    {
        let mut object = self.get(target);
        change(&mut object);
        self.update(object)
    }

    /// Changes an object with a JSON merge patch, `json!({…})` or a typed object: a field replaces the stored one, and
    /// `null` removes it. An `Option` of your types that is `None` and not skipped by serde becomes `null`.
    ///
    /// ```
    /// # use testkit::{TestCluster, objects::config_map};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let cluster = TestCluster::start();
    /// # cluster.create(config_map("settings").data("a", "1")).await;
    /// let settings = cluster.patch(config_map("settings"), serde_json::json!({"data": {"a": null, "b": "2"}})).await;
    /// assert_eq!((settings.data("a"), settings.data("b")), (None, Some("2")));
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// If the object does not exist or the server refuses the change.
    #[track_caller]
    pub fn patch<K: DeserializeOwned>(&self, target: impl Target<K>, patch: impl Serialize) -> impl Future<Output = K> {
        self.patched(target, "", json!(patch))
    }

    /// Changes the status of an object with a JSON merge patch, as a kubelet or another controller would.
    ///
    /// ```
    /// # use testkit::{TestCluster, objects::pod};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let cluster = TestCluster::start();
    /// # cluster.create(pod("web-0")).await;
    /// cluster.patch_status(pod("web-0"), serde_json::json!({"phase": "Failed"})).await;
    /// # assert_eq!(cluster.get(pod("web-0")).get("status.phase"), Some(&"Failed".into()));
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// If the object does not exist, or its kind does not have a `status` subresource.
    #[track_caller]
    pub fn patch_status<K: DeserializeOwned>(
        &self,
        target: impl Target<K>,
        status: impl Serialize,
    ) -> impl Future<Output = K> {
        self.patched(target, "/status", json!({"status": status}))
    }

    #[track_caller]
    fn patched<K: DeserializeOwned>(
        &self,
        target: impl Target<K>,
        subresource: &'static str,
        patch: Value,
    ) -> impl Future<Output = K> {
        let place = Location::caller();
        let id = target.id();
        at_the_test(async move {
            self.goes_on(place);
            typed(place, self.send(Method::PATCH, &id, subresource, Some(&patch)).await)
        })
    }

    /// Deletes an object. If it has a finalizer or a grace period, it is terminating afterwards; otherwise it no longer
    /// exists.
    ///
    /// # Panics
    ///
    /// If the object does not exist.
    #[track_caller]
    pub fn delete<K>(&self, target: impl Target<K>) -> impl Future<Output = ()> {
        let place = Location::caller();
        let id = target.id();
        at_the_test(async move {
            self.goes_on(place);
            let answer = self.send(Method::DELETE, &id, "", None).await;
            answer.map(drop).map_err(|reason| Failed::at(place, &reason))
        })
    }

    /// Runs a step of the scenario. [`explore`](crate::explore) may skip the step in order to find a smaller failing
    /// run. Outside of an exploration, the step is simply awaited.
    ///
    /// ```
    /// # use testkit::{TestCluster, objects::pod};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let cluster = TestCluster::start();
    /// cluster.step("make web-0", async { cluster.create(pod("web-0")).await; }).await;
    /// assert!(cluster.exists(pod("web-0")));
    /// # }
    /// ```
    pub async fn step(&self, name: &str, step: impl Future<Output = ()>) {
        if self.hooks.as_ref().is_none_or(|hooks| hooks.step_begins(name, "")) {
            step.await;
        }
    }

    /// Registers that a step of the test begins at this location in the test.
    fn goes_on(&self, place: &Location<'_>) {
        if let Some(hooks) = &self.hooks {
            hooks.test_goes_on(&format!("{}:{}", place.file(), place.line()));
        }
    }

    /// Deletes an object. The error is a failure message for the test.
    pub(crate) async fn remove(&self, id: &ObjectId) -> Result<Bytes, String> {
        self.send(Method::DELETE, id, "", None).await
    }

    /// Creates an object and writes its status. Creates the object's namespace first if it does not exist.
    pub(crate) async fn put_new(&self, object: Value) -> Result<Bytes, String> {
        let id = ObjectId::of(&object);
        let (_, namespace) = self.path(&id)?;
        if !namespace.is_empty() && self.server.uid_of("v1", "Namespace", "", &namespace).is_none() {
            let missing = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
            self.send(Method::POST, &ObjectId::of(&missing), "", Some(&missing))
                .await?;
            self.note_created(&ObjectId::of(&missing));
        }
        let created = self.send(Method::POST, &id, "", Some(&object)).await?;
        // The server may have generated the name.
        let created_id = || ObjectId::of(&serde_json::from_slice(&created).unwrap_or_default());
        if self.is_real() {
            self.note_created(&created_id());
        }
        let status = object.get("status");
        let Some(status) = status.filter(|it| it.as_object().is_some_and(|it| !it.is_empty())) else {
            return Ok(created);
        };
        let info = self.server.resource(&id.api_version, &id.kind);
        if info.is_none_or(|info| info.subresource("status").is_none()) {
            return Ok(created);
        }
        let status = json!({"status": status});
        self.send(Method::PATCH, &created_id(), "/status", Some(&status)).await
    }

    /// Returns the path of a kind's collection, and the namespace of the object, which is empty for cluster-scoped
    /// kinds.
    fn path(&self, id: &ObjectId) -> Result<(String, String), String> {
        let Some(info) = self.server.resource(&id.api_version, &id.kind) else {
            return Err(not_served(&id.api_version, &id.kind));
        };
        let prefix = if info.group.is_empty() { "/api" } else { "/apis" };
        let version = info.api_version();
        if !info.is_namespaced() {
            return Ok((format!("{prefix}/{version}/{}", info.resource), String::new()));
        }
        let namespace = id.namespace.clone().unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned());
        Ok((
            format!("{prefix}/{version}/namespaces/{namespace}/{}", info.resource),
            namespace,
        ))
    }

    /// Sends one request as the test's own client and returns the response body. The error is a failure message for the
    /// test.
    pub(crate) async fn send(
        &self,
        method: Method,
        id: &ObjectId,
        subresource: &str,
        body: Option<&Value>,
    ) -> Result<Bytes, String> {
        let (mut path, _) = self.path(id)?;
        let what = format!("{} {id}", verb(&method));
        if method != Method::POST {
            path = format!("{path}/{}{subresource}", id.name);
        }
        let content_type = if method == Method::PATCH {
            "application/merge-patch+json"
        } else {
            "application/json"
        };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(http::header::CONTENT_TYPE, content_type)
            .header(http::header::USER_AGENT, TEST_CLIENT)
            .body(body.map(|it| it.to_string().into_bytes()).unwrap_or_default())
            .map_err(|err| format!("{what}: {err}"))?;
        if let Some(real) = &self.real {
            let answer = real.send(request).await;
            self.refresh().await;
            let answer = answer.map_err(|err| format!("{what}: {err}"))?;
            return Ok(answer.to_string().into());
        }
        if let Some(pause) = self.hooks.as_ref().and_then(|it| it.test_sends()) {
            tokio::time::sleep(pause).await;
        }
        let answer = self.server.call(request).await;
        if let Some(hooks) = &self.hooks {
            hooks.test_sent();
        }
        let (parts, body) = answer.into_parts();
        if parts.status.is_success() {
            return Ok(body);
        }
        let value: Value = serde_json::from_slice(&body).unwrap_or_default();
        let text = |field: &str| value[field].as_str().unwrap_or_default().to_owned();
        Err(format!(
            "{what}: {} {}: {}",
            parts.status.as_u16(),
            text("reason"),
            text("message")
        ))
    }
}

fn verb(method: &Method) -> &'static str {
    match *method {
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        _ => "delete",
    }
}

/// Decodes the object in a response.
fn typed<K: DeserializeOwned>(place: &Location<'_>, answer: Result<Bytes, String>) -> Checked<K> {
    let answer = answer.map_err(|reason| Failed::at(place, &reason))?;
    let text = String::from_utf8_lossy(&answer);
    json::decode_text(&text).map_err(|err| {
        let id = ObjectId::of(&serde_json::from_slice(&answer).unwrap_or_default());
        Failed::at(place, &format!("{id} cannot be decoded as the requested type: {err}"))
    })
}
