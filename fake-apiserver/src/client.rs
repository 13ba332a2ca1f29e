//! The in-process `kube::Client`, without a socket or a task: a request is a function call. No other file uses the
//! crate kube.

use std::sync::Arc;

use axum_core::body::Body;
use http::Request;

use crate::api::request_info::ClientName;
use crate::api::user::UserInfo;
use crate::server::ApiServer;

impl ApiServer {
    /// Returns a `kube::Client` of this server, with the default namespace `default`.
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

    /// Returns a client with its own name, which identifies it in the journal and in faults. The name is also sent as
    /// the `User-Agent` of requests that have none, and therefore becomes their field manager.
    ///
    /// If a fault breaks the connection, requests fail with [`kube::Error::Service`]. Its source is the
    /// [`std::io::Error`] that a socket would return.
    pub fn client_named(&self, user_agent: &str) -> kube::Client {
        kube::Client::new(self.client_service(user_agent), "default")
    }

    /// Returns a client that is authenticated as a user without a token. `user_agent` has the same meaning as in
    /// [`client_named`](Self::client_named). The user's permissions depend on
    /// [`authorization`](crate::ApiServerBuilder::authorization).
    ///
    /// ```
    /// use fake_apiserver::{ApiServer, Authorization, UserInfo};
    /// use k8s_openapi::api::core::v1::Pod;
    /// use kube::api::{Api, ListParams};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let server = ApiServer::builder().authorization(Authorization::Rbac).start();
    /// let operator = server.client_as("operator", UserInfo::service_account("shop", "operator"));
    /// let refused = Api::<Pod>::all(operator).list(&ListParams::default()).await.unwrap_err();
    /// assert_eq!(
    ///     refused.to_string().split(": ").nth(2),
    ///     Some(r#"User "system:serviceaccount:shop:operator" cannot list resource "pods" in API group "" at the cluster scope"#),
    /// );
    /// # }
    /// ```
    pub fn client_as(&self, user_agent: &str, user: UserInfo) -> kube::Client {
        kube::Client::new(self.client_service(user_agent).of_user(user), "default")
    }

    /// Returns a client that sends its requests to `remote`, through this server's faults and journal, so that a test
    /// can inject faults between a controller and a real API server. Faults apply to requests for resources that this
    /// server also serves; watches cannot be controlled.
    pub fn relay(&self, remote: &kube::Client, name: &str) -> kube::Client {
        let (server, remote, name) = (self.clone(), remote.clone(), Arc::<str>::from(name));
        let namespace = remote.default_namespace().to_owned();
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let (endpoints, remote, name) = (Arc::clone(&server.endpoints), remote.clone(), Arc::clone(&name));
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(ClientName(name));
            endpoints.relay(request, async move |request| {
                let answer = remote.send(request.map(kube::client::Body::from)).await;
                answer.map(|it| it.map(Body::new)).map_err(std::io::Error::other)
            })
        });
        kube::Client::new(service, namespace)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Api;
    use kube::api::ListParams;

    use crate::{ApiServer, RestartLog, Seen, Verdict, When};

    #[tokio::test(start_paused = true)]
    async fn restart_ends_unanswered_relayed_requests() {
        let (server, remote) = (ApiServer::start(), ApiServer::start());
        server.inject(|_: &Seen<'_>| Verdict::Hang(When::After)).forget();
        let maps: Api<ConfigMap> = Api::default_namespaced(server.relay(&remote.client(), "operator"));
        let params = ListParams::default();
        let restart = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            server.restart(RestartLog::Kept, Duration::ZERO, &[]);
        };
        let list = tokio::time::timeout(Duration::from_secs(60), maps.list(&params));
        let (listed, ()) = futures::join!(list, restart);
        let listed = listed.expect("the restart ends the request");
        assert!(matches!(listed, Err(kube::Error::Service(_))), "{listed:?}");
    }
}
