//! Objects that a scenario refers to by `RESOURCE/NAME`, and requests about them.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use fake_apiserver::api::resource::ResourceInfo;
use http::{Method, Request, header};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::old_crds::as_v1;
use super::webhooks::Trust;
use crate::test_cluster::{TEST_CLIENT, TestCluster};

/// Field manager of applied objects, as in `kubectl apply --server-side`.
const MANAGER: &str = "kubectl";
/// Field manager of `apply` patches: the default of `kubectl patch`.
pub(crate) const PATCHES: &str = "kubectl-patch";

/// Hint about a resource that is not served.
const DEFINED: &str = "custom resources need their CustomResourceDefinitions in `cluster.crds`";

/// Time for which a request is retried if the server is temporarily unable to handle it, and the pause before each
/// retry.
const TRY_AGAIN: [Duration; 2] = [Duration::from_secs(30), Duration::from_millis(250)];

/// An object that a scenario refers to.
pub(crate) struct Named {
    pub(crate) info: ResourceInfo,
    namespace: String,
    name: String,
}

/// The cluster, with the access that a user of a scenario has.
#[derive(Clone, Copy)]
pub(crate) struct Access<'a> {
    pub(crate) cluster: &'a TestCluster,
    /// The user, unless it is an administrator.
    pub(crate) user: Option<&'a str>,
    /// CA that is added to webhook configurations.
    pub(crate) trust: &'a Trust,
}

/// The error response to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) code: u16,
    text: String,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<Refused> for String {
    fn from(refused: Refused) -> Self {
        refused.text
    }
}

/// Finds a resource by its plural, singular, kind or short name, or by its plural with its group.
pub(crate) fn resource_of(cluster: &TestCluster, resource: &str) -> Result<ResourceInfo, String> {
    let wanted = resource.to_lowercase();
    let is_meant = |it: &ResourceInfo| {
        let with_group = format!("{}.{}", it.resource, it.group);
        let kind = it.kind.to_lowercase();
        let names = [&*it.resource, &*it.singular, with_group.as_str(), kind.as_str()];
        names.contains(&wanted.as_str()) || it.short_names.iter().any(|it| **it == *wanted)
    };
    let resources = cluster.server().resources();
    let info = resources.into_iter().find(is_meant);
    info.ok_or_else(|| format!("no resource {resource:?} is served; {DEFINED}"))
}

/// Resolves the reference `RESOURCE/NAME` to an object, which need not exist.
pub(crate) fn named(cluster: &TestCluster, object: &str, namespace: &str) -> Result<Named, String> {
    let (resource, name) = object.split_once('/').unwrap_or((object, ""));
    let info = resource_of(cluster, resource)?;
    let namespace = match info.is_namespaced() {
        true => namespace.to_owned(),
        false => String::new(),
    };
    let name = name.to_owned();
    Ok(Named { info, namespace, name })
}

impl Named {
    pub(crate) fn path(&self, subresource: &str) -> String {
        format!("{}/{}{subresource}", collection(&self.info, &self.namespace), self.name)
    }

    /// Reads the object without a request; `None` if it does not exist.
    pub(crate) async fn read(&self, cluster: &TestCluster) -> Option<Value> {
        let (version, kind) = (self.info.api_version(), &self.info.kind);
        let server = cluster.server();
        server.get(&version, kind, &self.namespace, &self.name).await.ok()
    }

    /// Returns the fields that identify the object.
    pub(crate) fn identity(&self) -> Value {
        let mut object = serde_json::json!({
            "apiVersion": self.info.api_version(), "kind": self.info.kind, "metadata": {"name": self.name},
        });
        if !self.namespace.is_empty() {
            object["metadata"]["namespace"] = self.namespace.as_str().into();
        }
        object
    }
}

/// Returns the path of the objects of a resource.
fn collection(info: &ResourceInfo, namespace: &str) -> String {
    let root = if info.group.is_empty() { "/api" } else { "/apis" };
    let version = info.api_version();
    match namespace.is_empty() {
        true => format!("{root}/{version}/{}", info.resource),
        false => format!("{root}/{version}/namespaces/{namespace}/{}", info.resource),
    }
}

/// Returns the groups of a user.
pub(crate) fn groups(user: &str) -> Vec<String> {
    let mut groups = vec!["system:authenticated".to_owned()];
    let account = user.strip_prefix("system:serviceaccount:");
    if let Some((namespace, _)) = account.and_then(|it| it.split_once(':')) {
        groups.push("system:serviceaccounts".to_owned());
        groups.push(format!("system:serviceaccounts:{namespace}"));
    }
    groups
}

impl Access<'_> {
    /// Applies an object like `kubectl apply --server-side --force-conflicts`; creates an object with a `generateName`.
    pub(crate) async fn apply(self, object: Value, namespace: &str) -> Result<(), String> {
        let mut object = as_v1(object);
        self.trust.add_to(&mut object);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
        let info = self.cluster.server().resource(&version, &kind);
        let info = info.ok_or_else(|| format!("{kind} of {version} is not served; {DEFINED}"))?;
        let namespace = match (info.is_namespaced(), object["metadata"]["namespace"].as_str()) {
            (false, _) => String::new(),
            (true, Some(own)) => own.to_owned(),
            (true, None) => {
                object["metadata"]["namespace"] = namespace.into();
                namespace.to_owned()
            }
        };
        let collection = collection(&info, &namespace);
        let name = text(&object["metadata"]["name"]);
        if name.is_empty() {
            let sent = self.send(Method::POST, &collection, "application/json", Some(&object));
            return Ok(sent.await.map(drop)?);
        }
        Ok(self.apply_at(&format!("{collection}/{name}"), MANAGER, &object).await?)
    }

    /// Applies an object at its path, with the given field manager.
    pub(crate) async fn apply_at(self, path: &str, manager: &str, object: &Value) -> Result<(), Refused> {
        let path = format!("{path}?fieldManager={manager}&force=true");
        let sent = self.send(Method::PATCH, &path, "application/apply-patch+yaml", Some(object));
        sent.await.map(drop)
    }

    /// Sends a request of the test, and retries it if the server is temporarily unable to handle it. The error contains
    /// the reason and the message of the server's response.
    pub(crate) async fn send(
        self,
        method: Method,
        path: &str,
        content_type: &str,
        body: Option<&Value>,
    ) -> Result<Bytes, Refused> {
        let began = Instant::now();
        let [bound, pause] = TRY_AGAIN;
        loop {
            let answer = self.send_once(&method, path, content_type, body).await;
            match answer {
                Err(Refused { code: 429 | 500.., .. }) if began.elapsed() < bound => sleep(pause).await,
                answer => return answer,
            }
        }
    }

    async fn send_once(
        self,
        method: &Method,
        path: &str,
        content_type: &str,
        body: Option<&Value>,
    ) -> Result<Bytes, Refused> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::CONTENT_TYPE, content_type)
            .header(header::USER_AGENT, TEST_CLIENT);
        if let Some(user) = self.user {
            request = request.header("Impersonate-User", user);
            for group in groups(user) {
                request = request.header("Impersonate-Group", group);
            }
        }
        let request = request.body(body.map(|it| it.to_string().into_bytes()).unwrap_or_default());
        let request = request.map_err(|err| Refused {
            code: 0,
            text: format!("{path}: {err}"),
        })?;
        let answer = self.cluster.server().call(request).await;
        if let Some(hooks) = &self.cluster.hooks {
            hooks.test_sent();
        }
        let (parts, body) = answer.into_parts();
        if parts.status.is_success() {
            return Ok(body);
        }
        let value: Value = serde_json::from_slice(&body).unwrap_or_default();
        let text = |field: &str| value[field].as_str().unwrap_or_default().to_owned();
        let code = parts.status.as_u16();
        let text = format!("{code} {}: {}", text("reason"), text("message"));
        Err(Refused { code, text })
    }
}
