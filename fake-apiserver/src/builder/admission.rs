//! The part of the builder that is about admission: closures, webhooks in the process, plugins.

use std::convert::Infallible;
use std::net::SocketAddr;

use axum::body::Body;
use http::{Request, Response};
use tower::Service;

use super::ApiServerBuilder;
use crate::api::admission::{AdmissionRequest, AdmissionResponse};
use crate::registry::admission::hooks::Hook;
use crate::webhooks::Handler;

impl ApiServerBuilder {
    /// A closure that may change each object that is written, or refuse it, as a mutating webhook of this name would.
    /// Closures are asked in the given order: after the server's own plugins, before the policies
    /// and webhooks of configuration objects. What they answer is typed and defaulted like the answer of a webhook.
    /// They see every write but those of `admissionregistration.k8s.io`.
    ///
    /// ```
    /// use fake_apiserver::ApiServer;
    /// use serde_json::json;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let server = ApiServer::builder()
    ///     .mutate("team.example.com", |request| {
    ///         let mut object = request.object.clone();
    ///         object["metadata"]["labels"]["team"] = json!("web");
    ///         object
    ///     })
    ///     .start();
    /// let map = r#"{"metadata":{"name":"a"}}"#;
    /// let request = http::Request::post("/api/v1/namespaces/default/configmaps")
    ///     .header("content-type", "application/json")
    ///     .body(map)?;
    /// let answer: serde_json::Value = serde_json::from_slice(server.call(request).await.body())?;
    /// assert_eq!(answer["metadata"]["labels"]["team"], "web");
    /// # Ok(())
    /// # }
    /// ```
    pub fn mutate<F, R>(self, name: impl Into<String>, closure: F) -> Self
    where
        F: Fn(&AdmissionRequest) -> R + Send + Sync + 'static,
        R: Into<AdmissionResponse>,
    {
        self.mutate_async(name, move |request| std::future::ready(closure(&request).into()))
    }

    /// The same for a closure that waits: requests wait with it.
    pub fn mutate_async<F, W, R>(mut self, name: impl Into<String>, closure: F) -> Self
    where
        F: Fn(AdmissionRequest) -> W + Send + Sync + 'static,
        W: Future<Output = R> + Send + 'static,
        R: Into<AdmissionResponse>,
    {
        self.options.admission.hooks.mutating.push(Hook::new(name, closure));
        self
    }

    /// A closure that may refuse each write, as a validating webhook of this name would. It sees the object as it is
    /// about to be stored; an object in its answer is ignored.
    ///
    /// ```
    /// use fake_apiserver::ApiServer;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let server = ApiServer::builder()
    ///     .validate("names.example.com", |request| match request.name.as_str() {
    ///         "forbidden" => Err("not this name"),
    ///         _ => Ok(()),
    ///     })
    ///     .start();
    /// let map = r#"{"metadata":{"name":"forbidden"}}"#;
    /// let request = http::Request::post("/api/v1/namespaces/default/configmaps")
    ///     .header("content-type", "application/json")
    ///     .body(map)?;
    /// let answer: serde_json::Value = serde_json::from_slice(server.call(request).await.body())?;
    /// assert_eq!(answer["message"], "admission webhook \"names.example.com\" denied the request: not this name");
    /// # Ok(())
    /// # }
    /// ```
    pub fn validate<F, R>(self, name: impl Into<String>, closure: F) -> Self
    where
        F: Fn(&AdmissionRequest) -> R + Send + Sync + 'static,
        R: Into<AdmissionResponse>,
    {
        self.validate_async(name, move |request| std::future::ready(closure(&request).into()))
    }

    /// The same for a closure that waits: requests wait with it.
    pub fn validate_async<F, W, R>(mut self, name: impl Into<String>, closure: F) -> Self
    where
        F: Fn(AdmissionRequest) -> W + Send + Sync + 'static,
        W: Future<Output = R> + Send + 'static,
        R: Into<AdmissionResponse>,
    {
        self.options.admission.hooks.validating.push(Hook::new(name, closure));
        self
    }

    /// A service in this process, such as an axum router, that answers every call of webhooks to `host`: that of a
    /// `clientConfig.url`, with its port unless it is 443, or `name.namespace.svc` of a `clientConfig.service`. No
    /// socket is opened and no certificate checked, and time-outs use tokio's clock. Conversion webhooks of
    /// CRDs are called the same way.
    pub fn webhook<S>(self, host: &str, service: S) -> Self
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Clone + Send + Sync + 'static,
        S::Future: Send,
    {
        self.options.routes.answer(host, Handler::new(service));
        self
    }

    /// The address at which webhooks of `host` are called over HTTPS, as in [`ApiServerBuilder::webhook`]. Without it
    /// a URL is called as it stands, and a service cannot be found. The certificate must be for `host`, and from the
    /// configuration's `caBundle`. Sockets live in real time: no tokio clock must be paused.
    pub fn webhook_address(self, host: &str, address: SocketAddr) -> Self {
        self.options.routes.resolve(host, address);
        self
    }

    /// Turns on the admission plugin `ServiceAccount`, off by default: Pods get the account `default`, which must
    /// exist, a volume with a token, and pull secrets.
    pub fn service_account_admission(mut self) -> Self {
        self.options.admission.plugins.service_account = true;
        self
    }

    /// Keeps the status of ResourceQuotas up to date, as the quota controller does; off by default, and on with
    /// [`Worker::ResourceQuota`](crate::Worker::ResourceQuota). Without it a quota counts nothing until a client
    /// writes its `status.hard` and `status.used`, as against a bare API server.
    pub fn resource_quota_controller(mut self) -> Self {
        self.options.admission.plugins.counts_quota = true;
        self
    }
}
