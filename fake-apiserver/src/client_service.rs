//! `ClientService`: the tower service below a client of any version of kube.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum_core::body::Body;
use bytes::Bytes;
use http::{HeaderValue, Request, Response, header};
use http_body::Frame;
use tower::{BoxError, Service};

use crate::api::request_info::ClientName;
use crate::api::user::UserInfo;
#[cfg(feature = "serve")]
use crate::serve;
use crate::server::ApiServer;

/// A tower service that handles the requests of one client, from [`ApiServer::client_service`].
///
/// It accepts requests of the crate `http` 1.x with any body, as `kube::Client::new` of kube 0.90 and later sends them.
/// If a fault breaks the connection, a request fails with the [`io::Error`] that a socket would return.
#[derive(Clone, Debug)]
pub struct ClientService {
    server: ApiServer,
    name: Arc<str>,
    agent: HeaderValue,
    user: Option<Arc<UserInfo>>,
}

/// A response body. The body of a watch has a frame for each event.
#[derive(Debug)]
pub struct ResponseBody(Body);

impl ApiServer {
    /// Returns a tower service for clients of any version of kube: pass it to `kube::Client::new`, or wrap it to
    /// intercept requests. `user_agent` identifies the client in the journal and for faults, and is sent as
    /// `User-Agent` unless a request has one.
    ///
    /// ```
    /// use bytes::Bytes;
    /// use fake_apiserver::ApiServer;
    /// use http_body_util::{BodyExt, Empty};
    /// use tower::ServiceExt;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    /// let server = ApiServer::start();
    /// // kube::Client::new(server.client_service("operator"), "default")
    /// let request = http::Request::get("/version").body(Empty::<Bytes>::new())?;
    /// let response = server.client_service("operator").oneshot(request).await?;
    /// let version = response.into_body().collect().await?.to_bytes();
    /// assert!(std::str::from_utf8(&version)?.contains("\"gitVersion\""));
    /// # Ok(())
    /// # }
    /// ```
    pub fn client_service(&self, user_agent: &str) -> ClientService {
        ClientService {
            server: self.clone(),
            name: user_agent.into(),
            agent: HeaderValue::from_str(user_agent).unwrap_or(HeaderValue::from_static("kube-rs")),
            user: None,
        }
    }
}

impl ClientService {
    /// Authenticates the requests as a user, without a token.
    #[must_use]
    pub fn of_user(mut self, user: UserInfo) -> Self {
        self.user = Some(Arc::new(user));
        self
    }
}

impl<B> Service<Request<B>> for ClientService
where
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    type Response = Response<ResponseBody>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Response<ResponseBody>>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (mut parts, body) = request.into_parts();
        let agent = parts.headers.entry(header::USER_AGENT);
        agent.or_insert_with(|| self.agent.clone());
        parts.extensions.insert(ClientName(Arc::clone(&self.name)));
        if let Some(user) = &self.user {
            parts.extensions.insert(Arc::clone(user));
        }
        let request = Request::from_parts(parts, Body::new(body));
        let (mut connection, tasks) = (self.server.connection(), self.server.tasks.clone());
        Box::pin(async move {
            #[cfg(feature = "serve")]
            if request.headers().contains_key(header::UPGRADE) {
                let answer = serve::converse(request, connection, &tasks).await?;
                return Ok(answer.map(ResponseBody));
            }
            // Keeps the workers running as long as the server has clients.
            let _ = &tasks;
            connection.call(request).await.map(|it| it.map(ResponseBody))
        })
    }
}

impl http_body::Body for ResponseBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let body = Pin::new(&mut self.get_mut().0);
        body.poll_frame(cx).map(|frame| frame.map(|it| it.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.0.size_hint()
    }
}
