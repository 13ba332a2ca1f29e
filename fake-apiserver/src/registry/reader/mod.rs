//! `Reader`: the state of a server as readers see it: objects at a revision, the served resources, the clock. It never
//! writes an object.
//!
//! `verbs` is GET of an object and of collections, and the start of watches; `objects` is what rules look up.

pub(crate) mod verbs;
pub(crate) mod continue_token;
mod objects;
mod known;
mod compaction;
mod conversion;

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::Notify;

use super::kinds::strategy::Context;
use super::request::Conditions;
use super::scheme::codec;
use super::scheme::{Row, Scheme};
use super::webhook::transport::Transport;
use crate::api::object::Object;
use crate::entropy::Entropy;
use crate::storage::{Store, Stored};
use crate::watch::{Fanout, Replicas, WatchStart, Watcher};
use compaction::Compaction;
use known::Known;

/// Stored state of a server, to be read.
#[derive(Debug)]
pub(crate) struct Reader {
    /// The objects.
    pub(crate) store: Arc<Store>,
    /// Wakes the watchers of changes.
    pub(crate) fanout: Arc<Fanout>,
    /// Simulated watch-cache lag per client.
    pub(crate) replicas: Arc<Replicas>,
    /// The clock and the random numbers.
    pub(crate) entropy: Entropy,
    /// Signalled by each commit, for readers who wait for a revision.
    pub(crate) committed: Arc<Notify>,
    /// Transport to conversion webhooks.
    transport: Arc<dyn Transport>,
    /// Revisions that are forgotten because of their age.
    compaction: Compaction,
    /// Objects that many writes look at.
    known: Known,
    /// The served resources. Replaced as a whole when a CRD changes.
    scheme: RwLock<Arc<Scheme>>,
}

impl Reader {
    pub(super) fn new(
        store: Store,
        entropy: Entropy,
        transport: Arc<dyn Transport>,
        compaction_interval: Option<Duration>,
    ) -> Self {
        Self {
            store: Arc::new(store),
            fanout: Arc::default(),
            replicas: Arc::default(),
            entropy,
            committed: Arc::default(),
            transport,
            compaction: Compaction::new(compaction_interval),
            known: Known::default(),
            scheme: RwLock::default(),
        }
    }

    /// The served resources as they are now.
    pub(crate) fn scheme(&self) -> Arc<Scheme> {
        Arc::clone(&self.scheme.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes the served resources.
    pub(super) fn change_scheme(&self, change: impl FnOnce(&mut Scheme)) {
        let mut scheme = self.scheme.write().unwrap_or_else(PoisonError::into_inner);
        change(Arc::make_mut(&mut scheme));
    }

    /// Starts a watcher.
    pub(crate) fn start_watch(&self, start: WatchStart) -> Watcher {
        Watcher::new(Arc::clone(&self.store), Arc::clone(&self.fanout), start)
    }

    /// Runs `work` with what strategies may consult.
    pub(super) fn with_context<T>(&self, conditions: Conditions<'_>, work: impl FnOnce(&Context<'_>) -> T) -> T {
        let stored = |group: &str, resource: &str| self.known_objects(group, resource);
        work(&Context {
            entropy: &self.entropy,
            stored: &stored,
            subresource: conditions.subresource,
            user: conditions.user,
            dry_run: conditions.dry_run,
            hidden: conditions.hidden,
        })
    }

    /// An object as it is stored, in the version of `row`.
    pub(super) fn decode(&self, row: &Row, stored: &Stored) -> Object {
        codec::decode(row, stored)
    }
}

/// An unsigned number, or the error Go's strconv gives.
pub(crate) fn parse_uint(text: &str) -> Result<u64, String> {
    let quoted = || crate::api::field::quote(text);
    if text.is_empty() || !text.bytes().all(|it| it.is_ascii_digit()) {
        return Err(format!("strconv.ParseUint: parsing {}: invalid syntax", quoted()));
    }
    text.parse()
        .map_err(|_| format!("strconv.ParseUint: parsing {}: value out of range", quoted()))
}
