//! `WebhookServer`: serves webhooks over TLS. A manager runs it.

use std::convert::Infallible;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::body::Body;
use futures::future::{BoxFuture, FutureExt, join};
use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use super::webhooks::Webhooks;
use crate::Error;
use crate::reconcile::BoxError;
use crate::runtime::{CertWatcher, Runnable, RunnableGroup, listen};

/// Serves [`Webhooks`] over HTTP/1.1 with TLS. A manager starts it before its caches, and stops it after them.
///
/// ```
/// use informer::runtime::{CertWatcher, Manager};
/// use informer::webhook::{WebhookServer, Webhooks};
///
/// # async fn add(manager: &Manager, webhooks: Webhooks) -> Result<(), informer::Error> {
/// // cert-manager and the kubelet replace these files while the process runs
/// let certificates = CertWatcher::new("certs/tls.crt", "certs/tls.key")?.metrics(&manager.metrics());
/// let webhooks = webhooks.metrics(&manager.metrics());
/// let server = WebhookServer::bind(&webhooks, ([0, 0, 0, 0], 9443).into(), certificates).await?;
/// manager.add_readyz("webhooks", server.started_check());
/// manager.add(server)
/// # }
/// ```
pub struct WebhookServer {
    listener: TcpListener,
    service: Router,
    certificates: CertWatcher,
    is_started: Arc<AtomicBool>,
}

impl WebhookServer {
    /// Listens on an address. Port 0 selects a free port. `certificates` is a [`CertWatcher`], or a fixed
    /// [`Certificate`](crate::runtime::Certificate).
    ///
    /// # Errors
    ///
    /// Fails if the server cannot listen on the address.
    pub async fn bind(
        webhooks: &Webhooks,
        address: SocketAddr,
        certificates: impl Into<CertWatcher>,
    ) -> Result<Self, Error> {
        let listener = TcpListener::bind(address).await;
        let listener = listener.map_err(|err| Error::refused(format!("cannot listen on {address}: {err}")))?;
        Ok(Self {
            listener,
            service: webhooks.service(),
            certificates: certificates.into(),
            is_started: Arc::default(),
        })
    }

    /// Returns the address on which the server listens.
    pub fn address(&self) -> Option<SocketAddr> {
        self.listener.local_addr().ok()
    }

    /// Returns a check that passes while the server accepts connections (controller-runtime's `StartedChecker`).
    pub fn started_check(&self) -> impl Fn() -> Result<(), BoxError> + Send + Sync + 'static {
        let is_started = Arc::clone(&self.is_started);
        move || match is_started.load(Ordering::Acquire) {
            true => Ok(()),
            false => Err("webhook server has not been started yet".into()),
        }
    }

    async fn serve(self, stop: CancellationToken) {
        let service = service_fn(move |request: Request<Incoming>| {
            let service = self.service.clone();
            async move {
                Ok::<_, Infallible>(
                    service
                        .oneshot(request.map(Body::new))
                        .await
                        .unwrap_or_else(|it| match it {}),
                )
            }
        });
        let config = self.certificates.server_config();
        self.is_started.store(true, Ordering::Release);
        let serving = listen::serve(&self.listener, Some(config), service, &stop);
        join(serving, self.certificates.run(stop.clone())).await;
        self.is_started.store(false, Ordering::Release);
    }
}

impl Runnable for WebhookServer {
    fn name(&self) -> String {
        match self.address() {
            Some(address) => format!("webhooks on {address}"),
            None => "webhooks".to_owned(),
        }
    }

    fn group(&self) -> RunnableGroup {
        RunnableGroup::Server
    }

    fn run(self: Box<Self>, stop: CancellationToken) -> BoxFuture<'static, Result<(), BoxError>> {
        self.serve(stop).map(Ok).boxed()
    }
}

impl fmt::Debug for WebhookServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhookServer")
            .field("address", &self.address())
            .finish_non_exhaustive()
    }
}
