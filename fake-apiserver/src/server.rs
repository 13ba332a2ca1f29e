//! `ApiServer`: a stand-in until the core is there.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;

use axum::body::Body;
use http::{Request, Response};
use serde_json::Value;
use tower::Service;

use crate::serve::{Serving, Transport, serve};

/// A fake Kubernetes API server.
#[derive(Clone, Debug)]
pub struct ApiServer {
    seed: u64,
}

/// How an [`ApiServer`] is to be.
#[derive(Debug, Default)]
#[must_use]
pub struct ApiServerBuilder {
    seed: u64,
}

impl ApiServerBuilder {
    /// The seed of all random numbers.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// The time of day at the start.
    pub fn start_time(self, _time: jiff::Timestamp) -> Self {
        self
    }

    /// Starts the server.
    pub fn start(self) -> ApiServer {
        ApiServer { seed: self.seed }
    }
}

/// An object could not be loaded.
#[derive(Debug, thiserror::Error)]
#[error("not supported yet")]
pub struct LoadError;

impl ApiServer {
    /// A server to be configured.
    pub fn builder() -> ApiServerBuilder {
        ApiServerBuilder::default()
    }

    /// The seed of all random numbers.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The server as a function from requests to answers.
    pub fn service(
        &self,
    ) -> impl Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send>
    + Clone
    + Send
    + Sync
    + 'static {
        tower::service_fn(|_request: Request<Body>| async { Ok(Response::new(Body::from("{}"))) })
    }

    /// Stores objects as they are.
    pub fn load(&self, objects: impl IntoIterator<Item = Value>) -> Result<usize, LoadError> {
        Ok(objects.into_iter().count())
    }

    /// Listens for HTTP.
    pub async fn serve(&self, addr: SocketAddr) -> io::Result<Serving> {
        serve(addr, Transport::Http, self.service()).await
    }

    /// Listens for HTTPS.
    #[cfg(feature = "tls")]
    pub async fn serve_tls(&self, addr: SocketAddr) -> io::Result<Serving> {
        serve(addr, Transport::Https, self.service()).await
    }
}
