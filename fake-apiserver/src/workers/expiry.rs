//! Expiry of Events. In a real cluster, etcd expires them, so this is not a [`Worker`](super::Worker).

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use futures::future::select;
use tokio::runtime::Handle;
use tokio::time::sleep_until;

use super::host::Host;
use crate::tasks::TaskGroup;

/// Removes Events when they expire. The task is started with the first Event, in the runtime in which the Event is
/// written, and has a timer only while Events exist.
pub(crate) fn expire_events(host: &Arc<dyn Host>, group: &TaskGroup) {
    let (weak, group, is_kept) = (
        Arc::downgrade(host),
        group.downgrade(),
        Arc::new(AtomicBool::new(false)),
    );
    host.registry().writer.event_leases.kept_by(move || {
        // Without a runtime there is no timer.
        if Handle::try_current().is_ok() && !is_kept.swap(true, Ordering::SeqCst) {
            group.spawn(keep(Weak::clone(&weak), Kept(Arc::clone(&is_kept))));
        }
    });
}

/// Guard that the task holds while it removes Events. If the runtime of the task ends, the next Event starts a new
/// task.
struct Kept(Arc<AtomicBool>);

impl Drop for Kept {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

async fn keep(host: Weak<dyn Host>, _kept: Kept) {
    let Some(changed) = host
        .upgrade()
        .map(|it| Arc::clone(&it.registry().writer.event_leases.changed))
    else {
        return;
    };
    loop {
        let next = {
            let Some(host) = host.upgrade() else { return };
            host.registry().expire_events()
        };
        // A signal that is sent before the wait is not lost.
        let signalled = pin!(changed.notified());
        match next {
            Some(end) => _ = select(signalled, pin!(sleep_until(end))).await,
            None => signalled.await,
        }
    }
}
