//! `shutdown_signal`: SIGTERM and SIGINT, or their counterparts on Windows.

use std::io;

use futures::future::select_all;
#[cfg(unix)]
use tokio::signal::unix::Signal;

use crate::Error;

/// Returns a future that is ready at the first SIGTERM or SIGINT. Another signal ends the process with code 1, as in
/// controller-runtime. On Windows it is ready at Ctrl-C and Ctrl-Break, and if the console closes or the system shuts
/// down.
///
/// It listens from the call on, not from the first poll. Do not use it in tests, because signals do not follow virtual
/// time.
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
/// If the process may not listen to signals. Must be called within a tokio runtime.
pub fn shutdown_signal() -> Result<impl Future<Output = ()> + Send + 'static, Error> {
    let mut signals = listen().map_err(|err| Error::refused(format!("signals: {err}")))?;
    Ok(async move {
        any(&mut signals).await;
        tracing::info!("a signal was received: shutting down");
        // This task continues during the shutdown, until the process ends.
        tokio::spawn(async move {
            any(&mut signals).await;
            std::process::exit(1);
        });
    })
}

/// Waits for the next signal of any kind.
async fn any(signals: &mut [Signal]) {
    select_all(signals.iter_mut().map(|it| Box::pin(it.recv()))).await;
}

#[cfg(unix)]
fn listen() -> io::Result<Vec<Signal>> {
    use tokio::signal::unix::{SignalKind, signal};

    Ok(vec![signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?])
}

/// On Windows, each kind of signal has its own type.
#[cfg(windows)]
enum Signal {
    Interrupt(tokio::signal::windows::CtrlC),
    Break(tokio::signal::windows::CtrlBreak),
    Close(tokio::signal::windows::CtrlClose),
    Shutdown(tokio::signal::windows::CtrlShutdown),
}

#[cfg(windows)]
impl Signal {
    async fn recv(&mut self) -> Option<()> {
        match self {
            Self::Interrupt(signal) => signal.recv().await,
            Self::Break(signal) => signal.recv().await,
            Self::Close(signal) => signal.recv().await,
            Self::Shutdown(signal) => signal.recv().await,
        }
    }
}

#[cfg(windows)]
fn listen() -> io::Result<Vec<Signal>> {
    use tokio::signal::windows::{ctrl_break, ctrl_c, ctrl_close, ctrl_shutdown};

    Ok(vec![
        Signal::Interrupt(ctrl_c()?),
        Signal::Break(ctrl_break()?),
        Signal::Close(ctrl_close()?),
        Signal::Shutdown(ctrl_shutdown()?),
    ])
}
