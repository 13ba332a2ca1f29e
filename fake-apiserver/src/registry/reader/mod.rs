//! `Reader`: read access to the state of a server: objects at a revision, the served resources, the clock. It never
//! writes an object.
//!
//! `verbs` implements GET of objects and collections, and starts watches; `objects` contains lookups for rules.

pub(crate) mod verbs;
pub(crate) mod continue_token;
mod objects;
mod known;
mod compaction;
mod conversion;
mod remote;

use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::Notify;

use super::kinds::strategy::Context;
use super::request::Conditions;
use super::scheme::codec;
use super::scheme::{Row, Scheme};
use super::types::plugins::PluginSet;
use super::types::remote_server::RemoteServer;
use super::webhook::transport::Transport;
use crate::api::object::Object;
use crate::entropy::Entropy;
use crate::storage::{Store, Stored};
use crate::watch::{Fanout, Replicas, WatchStart, Watcher};
use compaction::Compaction;
use known::Known;

/// Read access to the state of a server.
#[derive(Debug)]
pub(crate) struct Reader {
    /// The stored objects.
    pub(crate) store: Arc<Store>,
    /// Wakes watchers after changes.
    pub(crate) fanout: Arc<Fanout>,
    /// Simulated lag of the watch cache, for each client.
    pub(crate) replicas: Arc<Replicas>,
    /// The clock and the random number generator.
    pub(crate) entropy: Entropy,
    /// Signalled by each commit, for readers waiting for a revision.
    pub(crate) committed: Arc<Notify>,
    /// Transport to conversion webhooks.
    pub(in crate::registry) transport: Arc<dyn Transport>,
    /// The aggregated API server in this process, if any.
    pub(in crate::registry) own_remote: OnceLock<RemoteServer>,
    /// The enabled admission plugins.
    pub(in crate::registry) plugins: PluginSet,
    /// Determines the revisions that are unavailable because of their age.
    compaction: Compaction,
    /// Cached objects that are read by many writes.
    known: Known,
    /// The served resources. Replaced by each change, for example of a CRD.
    scheme: RwLock<Arc<Scheme>>,
}

impl Reader {
    pub(super) fn new(
        store: Store,
        entropy: Entropy,
        transport: Arc<dyn Transport>,
        compaction_interval: Option<Duration>,
        plugins: PluginSet,
    ) -> Self {
        Self {
            store: Arc::new(store),
            fanout: Arc::default(),
            replicas: Arc::default(),
            entropy,
            committed: Arc::default(),
            transport,
            own_remote: OnceLock::new(),
            plugins,
            compaction: Compaction::new(compaction_interval),
            known: Known::default(),
            scheme: RwLock::default(),
        }
    }

    /// Returns the currently served resources.
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

    /// Runs `work` with a context for strategies.
    pub(super) fn with_context<T>(&self, conditions: Conditions<'_>, work: impl FnOnce(&Context<'_>) -> T) -> T {
        let stored = |group: &str, resource: &str| self.known_objects(group, resource);
        work(&Context {
            entropy: &self.entropy,
            stored: &stored,
            subresource: conditions.subresource,
            user: conditions.user,
            dry_run: conditions.dry_run,
            hidden: conditions.hidden,
            plugins: self.plugins,
        })
    }

    /// Returns the stored object, in the version of `row`.
    pub(super) fn decode(&self, row: &Row, stored: &Stored) -> Object {
        codec::decode(row, stored)
    }
}

/// Parses an unsigned integer. Fails with the messages of Go's `strconv`.
pub(crate) fn parse_uint(text: &str) -> Result<u64, String> {
    let quoted = || crate::api::field::quote(text);
    if text.is_empty() || !text.bytes().all(|it| it.is_ascii_digit()) {
        return Err(format!("strconv.ParseUint: parsing {}: invalid syntax", quoted()));
    }
    text.parse()
        .map_err(|_| format!("strconv.ParseUint: parsing {}: value out of range", quoted()))
}
