//! The events that end a server: a signal, or the end of the process that started it.

use std::io;
use std::time::Duration;

use crate::parent::Parent;

/// Interval at which the process that started the server is checked.
const PARENT_INTERVAL: Duration = Duration::from_millis(500);

/// Waits for a signal, or for the end of the process that started this one. Signals are caught as soon as this function
/// is called, not only when the future is polled. Fails with a message to show to the user.
pub(crate) fn interruption(exit_with_parent: bool) -> Result<impl Future<Output = ()>, String> {
    let parent = exit_with_parent.then(Parent::current).transpose();
    let parent = parent.map_err(|err| format!("cannot watch the parent process: {err}"))?;
    let signal = signal().map_err(|err| format!("cannot listen for signals: {err}"))?;
    Ok(async move {
        tokio::select! {
            () = signal => {}
            () = end_of(parent) => {}
        }
    })
}

async fn end_of(parent: Option<Parent>) {
    let Some(parent) = parent else {
        return std::future::pending().await;
    };
    while !parent.has_ended() {
        tokio::time::sleep(PARENT_INTERVAL).await;
    }
}

/// Waits for SIGINT or SIGTERM.
#[cfg(unix)]
fn signal() -> io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};

    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

/// Waits for Ctrl-C, Ctrl-Break, the end of the console, or the shutdown of the system. A shutdown event also stops a
/// service without its own handler.
#[cfg(windows)]
fn signal() -> io::Result<impl Future<Output = ()>> {
    use tokio::signal::windows::{ctrl_break, ctrl_c, ctrl_close, ctrl_shutdown};

    let (mut interrupt, mut pause) = (ctrl_c()?, ctrl_break()?);
    let (mut close, mut shutdown) = (ctrl_close()?, ctrl_shutdown()?);
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = pause.recv() => {}
            _ = close.recv() => {}
            _ = shutdown.recv() => {}
        }
    })
}
