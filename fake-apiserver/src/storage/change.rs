//! `Change`: one write, as stored in logs and delivered by watchers.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use super::{Revision, Stored};

/// One write to a resource.
#[derive(Debug)]
pub(crate) struct Change {
    /// The revision of the write; a delete has its own revision.
    pub(crate) revision: Revision,
    /// The object before; `None` if the write created it.
    pub(crate) previous: Option<Arc<Stored>>,
    /// The object after; `None` if the write removed it.
    pub(crate) current: Option<Arc<Stored>>,
    /// The change as a watch event, encoded by the first watcher that delivers it and shared by all others.
    pub(crate) encoded: OnceLock<Bytes>,
}

impl Change {
    /// The object of the write: its current state, or its last state after a delete.
    pub(crate) fn object(&self) -> &Arc<Stored> {
        self.current
            .as_ref()
            .or(self.previous.as_ref())
            .expect("a change has a state before or after it")
    }

    /// Returns the maximum number of bytes retained because of the change: the previous state, and the encoded watch
    /// event.
    pub(super) fn size(&self) -> usize {
        let states = [&self.previous, &self.current].into_iter().flatten();
        size_of::<Self>() + states.map(|it| it.size()).sum::<usize>()
    }
}
