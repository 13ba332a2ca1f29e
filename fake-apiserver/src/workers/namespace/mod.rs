//! The namespace controller.

use super::{Context, Controller, Failure, Follows, Identity, Observed, WorkQueue};
use crate::storage::Key;

/// Does nothing yet.
#[derive(Debug, Default)]
pub(super) struct NamespaceController;

impl Controller for NamespaceController {
    type Key = Key;

    fn identity(&self) -> Identity {
        Identity::controller("namespace")
    }

    fn follows(&self) -> Follows {
        Follows::These(&[])
    }

    fn observe(&mut self, _change: &Observed<'_>, _queue: &mut WorkQueue<Key>) {}

    async fn sync(&mut self, _key: Key, _context: &mut Context<'_, Key>) -> Result<(), Failure> {
        Ok(())
    }
}
