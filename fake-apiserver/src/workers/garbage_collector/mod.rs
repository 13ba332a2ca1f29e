//! The garbage_collector controller.

use super::{Context, Controller, Failure, Follows, Identity, Observed, WorkQueue};
use crate::storage::Key;

/// Does nothing yet.
#[derive(Debug, Default)]
pub(super) struct GarbageCollector;

impl Controller for GarbageCollector {
    type Key = Key;

    fn identity(&self) -> Identity {
        Identity::controller("garbage_collector")
    }

    fn follows(&self) -> Follows {
        Follows::These(&[])
    }

    fn observe(&mut self, _change: &Observed<'_>, _queue: &mut WorkQueue<Key>) {}

    async fn sync(&mut self, _key: Key, _context: &mut Context<'_, Key>) -> Result<(), Failure> {
        Ok(())
    }
}
