//! Aggregated API servers: passes requests on to them, and checks their availability.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use axum_core::body::Body;
use futures::future::BoxFuture;
use http::{Request, Response};
use tokio::runtime::Handle;
use tokio::time::timeout;

use crate::egress::Routes;
use crate::endpoints::Endpoints;
use crate::endpoints::aggregation::Forward;
use crate::registry::types::remote_server::RemoteServer;
use crate::tasks::TaskGroup;

/// Time limit for a call that checks a server, as in `AvailableConditionController`.
const CALL_BOUND: Duration = Duration::from_secs(5);

/// Minimum and maximum interval between two calls of an unavailable server; the interval doubles with each call.
const RETRIES: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(30));

/// Aggregated API servers that have a route.
#[derive(Debug)]
pub(super) struct Backends(pub(super) Routes);

impl Forward for Backends {
    fn forward<'a>(
        &'a self,
        remote: &'a RemoteServer,
        request: Request<Body>,
    ) -> BoxFuture<'a, Result<Response<Body>, String>> {
        Box::pin(self.0.forward(&remote.endpoint, remote.skips_checks, request))
    }
}

/// Keeps the condition `Available` of APIServices up to date. The task starts when a call of a server with a route is
/// first requested, in the runtime of the caller. A timer exists only while a server at an address is unavailable.
pub(super) fn check_remote(endpoints: &Arc<Endpoints>, routes: &Routes, group: &TaskGroup) {
    let (weak, group, routes) = (Arc::downgrade(endpoints), group.downgrade(), routes.clone());
    let runs = Arc::new(AtomicBool::new(false));
    endpoints.registry.remote_checks.called_by(move || {
        // Without a runtime no server can be called.
        if Handle::try_current().is_ok() && !runs.swap(true, Ordering::SeqCst) {
            let running = Running(Arc::clone(&runs));
            group.spawn(check(Weak::clone(&weak), routes.clone(), running));
        }
    });
}

/// Guard that the task holds while it runs. If the runtime of the task ends, the next APIService starts a new task.
struct Running(Arc<AtomicBool>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

async fn check(endpoints: Weak<Endpoints>, routes: Routes, _running: Running) {
    let mut wait = RETRIES.0;
    let mut unavailable = Vec::new();
    loop {
        let Some(server) = endpoints.upgrade() else { return };
        let mut names = server.registry.remote_checks.take();
        if !names.is_empty() {
            wait = RETRIES.0;
        }
        names.extend(unavailable.drain(..));
        for name in names {
            let called = timeout(CALL_BOUND, server.check_remote(&name)).await;
            let is_available = called.unwrap_or_else(|_| {
                let late = Err("context deadline exceeded".to_owned());
                server.registry.remote_called(&name, late);
                false
            });
            if !is_available && is_at_an_address(&server, &routes, &name) {
                unavailable.push(name);
            }
        }
        // A signal that is sent before the wait is not lost.
        let checks = Arc::clone(&server.registry.remote_checks);
        drop(server);
        match unavailable.is_empty() {
            true => checks.added.notified().await,
            false if timeout(wait, checks.added.notified()).await.is_err() => wait = (wait * 2).min(RETRIES.1),
            false => {}
        }
    }
}

/// Returns `true` if the server of an APIService is at an address, which may become available at any time.
fn is_at_an_address(server: &Endpoints, routes: &Routes, name: &str) -> bool {
    let (version, group) = name.split_once('.').unwrap_or_default();
    let remote = server.registry.reader.remote_server(group, version);
    remote.is_some_and(|it| routes.is_at_an_address(&it.endpoint))
}
