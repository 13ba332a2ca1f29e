//! `shutdown_signal`: SIGTERM and SIGINT.

use futures::future::select;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::Error;

/// A future that is ready at the first SIGTERM or SIGINT; a second one ends the process with code 1, as in
/// controller-runtime. It listens from the call on, not only from when it is waited for. Not in tests: signals come
/// from outside of virtual time.
///
/// ```no_run
/// use informer::runtime::{Manager, shutdown_signal};
///
/// # async fn run(manager: Manager) -> Result<(), informer::Error> {
/// manager.run(shutdown_signal()?).await
/// # }
/// ```
///
/// # Errors
///
/// If the process may not listen to signals. It must be called within a tokio runtime.
pub fn shutdown_signal() -> Result<impl Future<Output = ()> + Send + 'static, Error> {
    let listen = |kind| signal(kind).map_err(|err| Error::refused(format!("signals: {err}")));
    let (mut term, mut int) = (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
    Ok(async move {
        either(&mut term, &mut int).await;
        tracing::info!("a signal came: shutting down");
        // It outlives whatever is shut down, and has the process's own end to wait for.
        tokio::spawn(async move {
            either(&mut term, &mut int).await;
            std::process::exit(1);
        });
    })
}

async fn either(one: &mut Signal, other: &mut Signal) {
    select(std::pin::pin!(one.recv()), std::pin::pin!(other.recv())).await;
}
