//! Refuses writes before they are sent if this process is no longer the leader.

use futures::future::BoxFuture;
use http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use tower::service_fn;

use super::leader_election::LeaderElector;
use crate::Error;

/// Returns a client that refuses writes once `elector` has lost leadership.
pub(super) fn fenced(client: &Client, elector: &LeaderElector) -> Client {
    let (inner, elector) = (client.clone(), elector.clone());
    let service = service_fn(move |request: Request<Body>| {
        let (client, elector) = (inner.clone(), elector.clone());
        let answer: BoxFuture<'static, Result<Response<Body>, kube::Error>> = Box::pin(async move {
            if !matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS) {
                elector.check_fence().map_err(|err| {
                    let (method, path) = (request.method(), request.uri().path());
                    kube::Error::Service(Error::fenced(format!("{method} {path}: {err}")).into())
                })?;
            }
            client.send(request).await
        });
        answer
    });
    Client::new(service, client.default_namespace())
}
