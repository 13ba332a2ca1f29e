//! The builder's options for admission: closures, in-process webhooks, plugins.

use std::convert::Infallible;
use std::net::SocketAddr;

use axum_core::body::Body;
use http::{Request, Response};
use tower::Service;

use super::ApiServerBuilder;
use crate::api::admission::{AdmissionRequest, AdmissionResponse};
use crate::egress::Handler;
use crate::registry::admission::hooks::Hook;

impl ApiServerBuilder {
    /// Adds a closure that may change or refuse each written object, like a mutating webhook of this name. Closures are
    /// called in the order in which they were added: after the server's own plugins, before policies and webhooks from
    /// configuration objects. The returned object is decoded and defaulted like the response of a webhook. The closure
    /// is called for every create, update, delete and connection, except in the group `admissionregistration.k8s.io`.
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

    /// Like [`mutate`](Self::mutate), for an asynchronous closure; the request waits for it.
    pub fn mutate_async<F, W, R>(mut self, name: impl Into<String>, closure: F) -> Self
    where
        F: Fn(AdmissionRequest) -> W + Send + Sync + 'static,
        W: Future<Output = R> + Send + 'static,
        R: Into<AdmissionResponse>,
    {
        self.options.admission.hooks.mutating.push(Hook::new(name, closure));
        self
    }

    /// Adds a closure that may refuse each write, like a validating webhook of this name. It receives the object as it
    /// will be stored; an object in the closure's response is ignored.
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

    /// Like [`validate`](Self::validate), for an asynchronous closure; the request waits for it.
    pub fn validate_async<F, W, R>(mut self, name: impl Into<String>, closure: F) -> Self
    where
        F: Fn(AdmissionRequest) -> W + Send + Sync + 'static,
        W: Future<Output = R> + Send + 'static,
        R: Into<AdmissionResponse>,
    {
        self.options.admission.hooks.validating.push(Hook::new(name, closure));
        self
    }

    /// Sets a service in this process, such as an axum router, that handles calls of webhooks at `host`. `host` is the
    /// host of a `clientConfig.url`, optionally with its port, or `name.namespace.svc` for a `clientConfig.service`.
    /// Such calls do not open sockets or check certificates, and their timeouts use tokio's clock. Conversion webhooks
    /// of CRDs are called in the same way.
    ///
    /// If `host` names a Service, `service` also handles requests for the groups of APIServices that refer to that
    /// Service. The requests contain the user in the headers `X-Remote-User`, `X-Remote-Group`, `X-Remote-Uid` and
    /// `X-Remote-Extra-…`. Discovery documents contain the group, and the condition `Available` is the result of a call
    /// of `/apis/GROUP/VERSION`. The Service object does not have to exist. Requests for a group and version that this
    /// server serves itself, and upgrades of connections, are not passed on.
    pub fn webhook<S>(self, host: &str, service: S) -> Self
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Clone + Send + Sync + 'static,
        S::Future: Send,
    {
        self.options.routes.answer(host, Handler::new(service));
        self
    }

    /// Sets the address at which webhooks and aggregated API servers of `host` are called over HTTPS; for `host` see
    /// [`ApiServerBuilder::webhook`]. Without it, a URL is called at its own address, and calls to a service fail. The
    /// certificate must be valid for `host` under the configuration's `caBundle`. Sockets use real time, so tokio's
    /// clock must not be paused.
    pub fn webhook_address(self, host: &str, address: SocketAddr) -> Self {
        self.options.routes.resolve(host, address);
        self
    }

    /// Sets the client certificate and the key, in PEM, that this server uses as a front proxy of aggregated API
    /// servers. Unset by default. Corresponds to `--proxy-client-cert-file` and `--proxy-client-key-file` of
    /// kube-apiserver. If they are invalid, requests for these servers fail with 503.
    #[cfg(feature = "tls")]
    pub fn proxy_client_certificate(self, certificate: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.options.routes.identify(certificate.into(), key.into());
        self
    }

    /// Enables the admission plugin `ServiceAccount`, which is off by default: Pods get a volume with a token, pull
    /// secrets and, unless they set another one, the account `default`. The account must exist.
    pub fn service_account_admission(mut self) -> Self {
        self.options.admission.plugins.service_account = true;
        self
    }

    /// Enables admission plugins by their names in Kubernetes. Fails with the name of a plugin that is unknown or not
    /// supported. Of the plugins that are disabled by default in Kubernetes, only
    /// `OwnerReferencesPermissionEnforcement` is supported: with RBAC, users need the permission to delete an object to
    /// change its owners, and the permission to update the finalizers of an owner to set `blockOwnerDeletion`. Some
    /// clusters, such as OpenShift, enable this plugin.
    ///
    /// ```
    /// use fake_apiserver::{ApiServer, Authorization};
    ///
    /// # fn main() -> Result<(), String> {
    /// let builder = ApiServer::builder().authorization(Authorization::Rbac);
    /// let server = builder.enable_admission_plugins(["OwnerReferencesPermissionEnforcement"])?.start();
    /// # drop(server);
    /// # Ok(())
    /// # }
    /// ```
    pub fn enable_admission_plugins<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let plugins = &mut self.options.admission.plugins;
        match names.into_iter().find(|name| !plugins.turn_on(name)) {
            Some(name) => Err(name.to_owned()),
            None => Ok(self),
        }
    }

    /// Disables admission plugins that are enabled by default, by their names in Kubernetes. Fails with the name of a
    /// plugin that is unknown or cannot be disabled.
    ///
    /// ```
    /// use fake_apiserver::ApiServer;
    ///
    /// # fn main() -> Result<(), String> {
    /// let server = ApiServer::builder().disable_admission_plugins(["PodSecurity", "LimitRanger"])?.start();
    /// let unknown = ApiServer::builder().disable_admission_plugins(["Podsecurity"]).map(|_| ());
    /// assert_eq!(unknown, Err("Podsecurity".to_owned()));
    /// # Ok(())
    /// # }
    /// ```
    pub fn disable_admission_plugins<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let plugins = &mut self.options.admission.plugins;
        match names.into_iter().find(|name| !plugins.turn_off(name)) {
            Some(name) => Err(name.to_owned()),
            None => Ok(self),
        }
    }

    /// Keeps the status of ResourceQuotas up to date, like the quota controller. Off by default, and always on with
    /// [`Worker::ResourceQuota`](crate::Worker::ResourceQuota). If it is off, a quota is not enforced until a client
    /// writes its `status.hard` and `status.used`, as without a controller manager.
    pub fn resource_quota_controller(mut self) -> Self {
        self.options.admission.plugins.counts_quota = true;
        self
    }
}
