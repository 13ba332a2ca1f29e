//! `shutdown_signal`: SIGTERM and SIGINT, or their counterparts on Windows.

use std::io;

use futures::future::select_all;
#[cfg(unix)]
use tokio::signal::unix::Signal;

use crate::Error;

/// Returns a future that completes at the first SIGTERM or SIGINT. The next signal ends the process with exit code 1,
/// as in controller-runtime. On Windows, the signals are Ctrl-C, Ctrl-Break, the closing of the console, and a system
/// shutdown.
///
/// Signals are received from the time of the call, not from the first poll. Must be called within a tokio runtime. Do
/// not use it in tests, because signals do not follow virtual time.
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
/// Fails if the process cannot listen for signals.
pub fn shutdown_signal() -> Result<impl Future<Output = ()> + Send + 'static, Error> {
    let mut signals = listen().map_err(|err| Error::refused(format!("signals: {err}")))?;
    Ok(async move {
        any(&mut signals).await;
        tracing::info!("a signal was received: shutting down");
        // This task keeps running during the shutdown.
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

/// On Windows, each signal has its own type.
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
