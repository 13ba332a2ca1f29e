//! The in-process `kube::Client`: the one file that knows kube. No socket, no task: a request is a function call.

use std::convert::Infallible;

use axum::body::Body;
use http::{Request, Response};
use tower::{Service, ServiceExt};

use crate::server::ApiServer;

impl ApiServer {
    /// A `kube::Client` of this server, with the default namespace `default`.
    ///
    /// ```
    /// use fake_apiserver::ApiServer;
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use kube::api::{Api, PostParams};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), kube::Error> {
    /// let server = ApiServer::start();
    /// let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
    /// let mut map = ConfigMap::default();
    /// map.metadata.name = Some("settings".into());
    /// maps.create(&PostParams::default(), &map).await?;
    /// assert!(maps.get("settings").await?.metadata.uid.is_some());
    /// # Ok(())
    /// # }
    /// ```
    pub fn client(&self) -> kube::Client {
        self.client_named("kube-rs")
    }

    /// The same for a client with a name of its own: it is sent as `User-Agent`, by which the journal and faults tell
    /// clients apart and which names the owner of fields.
    pub fn client_named(&self, user_agent: &str) -> kube::Client {
        kube::Client::new(self.client_service(user_agent), "default")
    }

    /// What such a client is made of: a service to be wrapped by those who want to stand between a client and the
    /// server.
    pub fn client_service(
        &self,
        user_agent: &str,
    ) -> impl Service<
        Request<kube::client::Body>,
        Response = Response<Body>,
        Error = Infallible,
        Future: Send,
    > + Clone
    + Send
    + Sync
    + 'static {
        let agent = http::HeaderValue::from_str(user_agent).unwrap_or(http::HeaderValue::from_static("kube-rs"));
        self.service().map_request(move |request: Request<kube::client::Body>| {
            let (mut parts, body) = request.into_parts();
            parts
                .headers
                .entry(http::header::USER_AGENT)
                .or_insert_with(|| agent.clone());
            Request::from_parts(parts, Body::new(body))
        })
    }
}
