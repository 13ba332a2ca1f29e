//! `webhooks`: admission and conversion webhooks that a service in the test handles.

use std::convert::Infallible;
use std::panic::Location;

use axum_core::body::Body;
use http::{Method, Request, Response};
use serde_json::Value;
use tower::Service;

use crate::report::{Failed, at_the_test};
use crate::target::ObjectId;
use crate::test_cluster::TestCluster;

impl TestCluster {
    /// Installs webhooks: writes the `configurations` to the server, and routes calls to all hosts in them to
    /// `service`, such as an axum router, within this process.
    ///
    /// Configurations are `ValidatingWebhookConfiguration`s, `MutatingWebhookConfiguration`s, and
    /// `CustomResourceDefinition`s; for an existing definition, `spec.conversion` is sufficient. Existing objects are
    /// patched, and other objects are created. A `clientConfig` without a `caBundle` gets a placeholder, because
    /// certificates are not checked: there are no sockets, and timeouts use the cluster's clock.
    ///
    /// ```
    /// use axum::{Router, body::Body, routing::post};
    /// use serde_json::{Value, json};
    /// use testkit::{TestCluster, objects::pod};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let cluster = TestCluster::start();
    /// let refuse = |body: axum::body::Bytes| async move {
    ///     let review: Value = serde_json::from_slice(&body).unwrap();
    ///     let response = json!({"uid": review["request"]["uid"], "allowed": false, "status": {"message": "no Pods"}});
    ///     json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}).to_string()
    /// };
    /// let configuration = json!({
    ///     "apiVersion": "admissionregistration.k8s.io/v1",
    ///     "kind": "ValidatingWebhookConfiguration",
    ///     "metadata": {"name": "pods"},
    ///     "webhooks": [{
    ///         "name": "pods.example.com",
    ///         "clientConfig": {"service": {"namespace": "shop", "name": "webhooks", "path": "/pods"}},
    ///         "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}],
    ///         "admissionReviewVersions": ["v1"],
    ///         "sideEffects": "None",
    ///     }],
    /// });
    /// cluster.webhooks(Router::new().route("/pods", post(refuse)), [configuration]).await;
    /// let pods = kube::Api::<k8s_openapi::api::core::v1::Pod>::default_namespaced(cluster.client());
    /// let web = serde_json::from_value(json!({"metadata": {"name": "web"}, "spec": {"containers": [{"name": "web", "image": "web"}]}})).unwrap();
    /// let err = pods.create(&Default::default(), &web).await.unwrap_err();
    /// assert!(err.to_string().contains("denied the request: no Pods"), "{err}");
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// If a `clientConfig` has neither a service nor a URL, if the server refuses a configuration, or if the cluster is
    /// a [real API server](Self::connect).
    #[track_caller]
    pub fn webhooks<S, C>(&self, service: S, configurations: C) -> impl Future<Output = ()>
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Clone + Send + Sync + 'static,
        S::Future: Send,
        C: IntoIterator<Item = Value>,
    {
        let place = Location::caller();
        if self.is_real() {
            self.fail("a real API server cannot call a service of the test");
        }
        let mut objects: Vec<Value> = configurations.into_iter().collect();
        for config in objects.iter_mut().flat_map(client_configs) {
            match host_of(config) {
                Some(host) => self.server.answer_webhooks(&host, service.clone()),
                None => self.fail(&format!("a clientConfig has neither a service nor a URL: {config}")),
            }
            // Placeholders such as kubebuilder's `Cg==` are replaced, because the server refuses them.
            if !config["caBundle"].as_str().is_some_and(|it| it.starts_with(PEM)) {
                config["caBundle"] = CA_BUNDLE.into();
            }
        }
        at_the_test(async move {
            for object in objects {
                let id = ObjectId::of(&object);
                let is_there = self.server.uid_of(&id.api_version, &id.kind, "", &id.name).is_some();
                let written = if is_there {
                    self.send(Method::PATCH, &id, "", Some(&object)).await
                } else {
                    self.put_new(object).await
                };
                written.map_err(|reason| Failed::at(place, &reason))?;
            }
            Ok(())
        })
    }
}

/// The beginning of a PEM file in base64: `-----BEGIN`.
const PEM: &str = "LS0tLS1CRUdJTi";

/// A certificate in base64 that only consists of an empty DER sequence. The server does not check its contents.
const CA_BUNDLE: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1BQT0KLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo=";

/// Returns each `clientConfig` of a configuration.
pub(crate) fn client_configs(object: &mut Value) -> Vec<&mut Value> {
    if object["kind"] == "CustomResourceDefinition" {
        return object
            .pointer_mut("/spec/conversion/webhook/clientConfig")
            .into_iter()
            .collect();
    }
    let webhooks = object["webhooks"].as_array_mut().into_iter().flatten();
    webhooks.filter_map(|it| it.get_mut("clientConfig")).collect()
}

/// Returns the host in a `clientConfig`: the host and port of its URL, or the host name of its Service, with the port
/// unless it is 443.
pub(crate) fn host_of(config: &Value) -> Option<String> {
    if let Some(url) = config["url"].as_str() {
        let (_, rest) = url.split_once("://")?;
        return rest.split(['/', '?']).next().map(str::to_owned);
    }
    let service = &config["service"];
    let (name, namespace) = (service["name"].as_str()?, service["namespace"].as_str()?);
    Some(match service["port"].as_u64() {
        Some(port) if port != 443 => format!("{name}.{namespace}.svc:{port}"),
        Some(_) | None => format!("{name}.{namespace}.svc"),
    })
}
