//! `Change`: one write, as stored in logs and delivered by watchers.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use super::{Revision, Stored};

/// One write to a resource.
#[derive(Debug)]
pub(crate) struct Change {
    /// Revision of the write. A delete has its own revision.
    pub(crate) revision: Revision,
    /// The object before the write; `None` if the write created it.
    pub(crate) previous: Option<Arc<Stored>>,
    /// The object after the write; `None` if the write removed it.
    pub(crate) current: Option<Arc<Stored>>,
    /// The change encoded as a watch event, shared by all watchers that deliver it unmodified. The first of them
    /// encodes it.
    pub(crate) encoded: OnceLock<Bytes>,
}

impl Change {
    /// Returns the object after the write, or its last state if it was deleted.
    pub(crate) fn object(&self) -> &Arc<Stored> {
        self.current
            .as_ref()
            .or(self.previous.as_ref())
            .expect("a change has a previous or current object")
    }

    /// Returns the approximate number of bytes retained for the change: the previous state and the encoded watch event,
    /// which is about as large as the current state.
    pub(super) fn size(&self) -> usize {
        let states = [&self.previous, &self.current].into_iter().flatten();
        size_of::<Self>() + states.map(|it| it.size()).sum::<usize>()
    }
}
