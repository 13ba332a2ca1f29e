//! `shutdown_signal`: SIGTERM and SIGINT.

use futures::future::select;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::Error;

/// Returns at the first SIGTERM or SIGINT; a second one ends the process with code 1, as in controller-runtime. Not in
/// tests: signals come from outside of virtual time.
///
/// # Errors
///
/// If the process may not listen to signals.
pub async fn shutdown_signal() -> Result<(), Error> {
    let listen = |kind| signal(kind).map_err(|err| Error::refused(format!("signals: {err}")));
    let (mut term, mut int) = (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
    either(&mut term, &mut int).await;
    tracing::info!("a signal came: shutting down");
    tokio::spawn(async move {
        either(&mut term, &mut int).await;
        std::process::exit(1);
    });
    Ok(())
}

async fn either(one: &mut Signal, other: &mut Signal) {
    select(std::pin::pin!(one.recv()), std::pin::pin!(other.recv())).await;
}
