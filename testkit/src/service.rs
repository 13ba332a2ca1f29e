//! Controllers with a different major version of kube: a service for `kube::Client::new` of that version.
//!
//! The testkit is built with kube 5. In a controller that is built with a different major version, `kube::Client` is a
//! different type. Since version 0.90, a client of kube can be built from a tower service for requests of the crate
//! `http` 1.x. [`TestCluster::service`] returns such a service, and [`TestCluster::controller_over`] starts a
//! controller with one. Objects of the other version's types can be used in [serialized](crate::objects::serialized)
//! form.
//!
//! ```
//! use testkit::TestCluster;
//!
//! # mod old { pub use kube; } // the controller's own version
//! use old::kube;
//! # async fn operator(_: kube::Client) { std::future::pending().await }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let cluster = TestCluster::start();
//! cluster.controller_over("operator", |service| operator(kube::Client::new(service, "default")));
//! cluster.settle().await;
//! # }
//! ```

use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, Full};
use tower::{BoxError, Service, ServiceExt};

use crate::controller::Running;
use crate::hooks::{AnswerBody, Passage};
use crate::test_cluster::TestCluster;

/// A tower service that handles the requests of one client, from [`TestCluster::service`].
#[derive(Clone)]
pub struct ClientService(Kind);

#[derive(Clone)]
enum Kind {
    Server(fake_apiserver::ClientService),
    Explored(Passage),
    Remote(kube::Client),
}

/// Body of a response. For a watch, each event is a frame.
pub struct ResponseBody(AnswerBody);

impl TestCluster {
    /// Returns a service for the client of a controller that uses a different version of kube. Pass it to
    /// `kube::Client::new` of that version. This works with every version that uses the crate `http` 1.x, that is, kube
    /// 0.90 and later. `name` identifies the client in faults, watches and requests, as with
    /// [`client_named`](Self::client_named).
    #[must_use]
    pub fn service(&self, name: &str) -> ClientService {
        self.clients().service(name)
    }

    /// Runs a controller that can be restarted and builds its client from a service. Otherwise the same as
    /// [`controller`](Self::controller).
    #[track_caller]
    pub fn controller_over<C, F>(&self, name: &str, controller: C) -> Running
    where
        C: Fn(ClientService) -> F + Send + Sync + 'static,
        F: Future<Output: Send> + Send + 'static,
    {
        let (clients, owned) = (self.clients(), name.to_owned());
        self.start_controller(name, move || controller(clients.service(&owned)))
    }
}

impl ClientService {
    pub(crate) fn of_server(service: fake_apiserver::ClientService) -> Self {
        Self(Kind::Server(service))
    }

    /// Wraps the service of a client in an exploration.
    pub(crate) fn explored(service: Passage) -> Self {
        Self(Kind::Explored(service))
    }

    /// Wraps a client of a real server.
    pub(crate) fn remote(client: kube::Client) -> Self {
        Self(Kind::Remote(client))
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
        match &mut self.0 {
            Kind::Server(service) => boxed(service.call(request)),
            Kind::Explored(service) => {
                let service = service.clone();
                Box::pin(async move {
                    let (parts, body) = request.into_parts();
                    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
                    let answer = service.oneshot(Request::from_parts(parts, Full::new(body))).await?;
                    Ok(answer.map(ResponseBody))
                })
            }
            Kind::Remote(client) => {
                let client = client.clone();
                boxed(async move {
                    let (parts, body) = request.into_parts();
                    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
                    let request = Request::from_parts(parts, kube::client::Body::from(body));
                    client.send(request).await.map_err(io::Error::other)
                })
            }
        }
    }
}

fn boxed<B>(
    answer: impl Future<Output = io::Result<Response<B>>> + Send + 'static,
) -> Pin<Box<dyn Future<Output = io::Result<Response<ResponseBody>>> + Send>>
where
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    Box::pin(async move {
        let answer = answer.await?;
        Ok(answer.map(|body| ResponseBody(body.map_err(Into::into).boxed_unsync())))
    })
}

impl http_body::Body for ResponseBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Pin::new(&mut self.get_mut().0).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.0.size_hint()
    }
}

impl fmt::Debug for ClientService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientService").finish_non_exhaustive()
    }
}

impl fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseBody").finish_non_exhaustive()
    }
}
