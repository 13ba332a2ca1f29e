//! Inner parts for the project's own benchmarks, which measure them without the layers above. Not an interface.

use std::time::Duration;

use tokio::time::Instant;

use crate::api::selector::{FieldSelector, LabelSelector};
use crate::server::ApiServer;
use crate::watch::{self, Filter, Scope, WatchStart};

/// A cursor into a resource's log, without the body that shows it.
#[derive(Debug)]
pub struct Watcher(watch::Watcher);

impl Watcher {
    /// Watches all of a built-in resource from now on; `storage` is what storage calls it.
    pub fn open(server: &ApiServer, storage: &str) -> Self {
        let registry = &server.endpoints.registry;
        let (labels, fields) = (LabelSelector::default(), FieldSelector::default());
        Self(registry.start_watch(WatchStart {
            resource: storage.into(),
            filter: Filter {
                scope: Scope::All,
                labels,
                fields,
            },
            initial: None,
            after: registry.store.revision(),
            bookmarks: false,
            initial_end_bookmark: false,
            horizon: None,
            deadline: Instant::now() + Duration::from_secs(3600),
        }))
    }

    /// Waits for deliveries and answers how many there were.
    pub async fn next_batch(&mut self) -> usize {
        self.0.next_batch().await.len()
    }
}
