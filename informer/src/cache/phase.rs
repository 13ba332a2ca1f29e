//! `Phase`: the life cycle of an informer.

use tokio::sync::watch;

use crate::Error;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    New,
    Syncing,
    Synced,
    Stopped { was_synced: bool },
}

impl Phase {
    pub(crate) fn has_synced(self) -> bool {
        matches!(self, Self::Synced | Self::Stopped { was_synced: true })
    }

    pub(crate) fn is_stopped(self) -> bool {
        matches!(self, Self::Stopped { .. })
    }
}

/// Waits until an informer has synced. The error contains `name`.
pub(crate) async fn synced(mut phase: watch::Receiver<Phase>, name: &str) -> Result<(), Error> {
    let reached = phase.wait_for(|it| it.has_synced() || it.is_stopped()).await;
    match reached.map(|it| *it) {
        Ok(phase) if phase.has_synced() => Ok(()),
        Ok(_) | Err(_) => Err(Error::refused(format!(
            "the informer for {name} stopped before it synced"
        ))),
    }
}
