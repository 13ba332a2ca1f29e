//! `Replica`: controls how stale the reads of a client are, as if its API server lagged behind etcd.

use crate::server::ApiServer;
use crate::watch::Position;

/// The state that a client reads, returned by [`ApiServer::replica`].
///
/// A cluster has several API servers, each with a cache of etcd's state that may lag. The reads of the client follow
/// Kubernetes' rules for such a cache:
///
/// | request | response of a replica that is behind |
/// |---|---|
/// | get and list with `resourceVersion=0` | its own state, however old |
/// | get and list not older than `N` | its own state once it has reached `N`; fails with 504 after waiting for 3 s |
/// | get and list without a resourceVersion, or exactly at one; pages | the newest state, from etcd |
/// | watch from `N` | the changes after `N` that it has received; nothing while `N` is ahead of it |
/// | watch from `0` with the initial state | its own state, then the changes that it receives |
/// | watch with an initial state and no resourceVersion | waits for etcd's state; fails with 504 after 3 s |
/// | writes | are checked against the newest state, in etcd |
///
/// The log limits the lag: if the log begins later, the replica shows the state at the beginning of the log.
///
/// ```
/// use fake_apiserver::ApiServer;
/// use serde_json::json;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let server = ApiServer::start();
/// let operator = server.replica("operator");
/// operator.freeze();
/// server.load([json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "new"}})])?;
/// assert!(operator.sees() < server.resource_version());
///
/// let list = |version: &str| {
///     let path = format!("/api/v1/configmaps{version}");
///     http::Request::get(path).header("User-Agent", "operator").body("")
/// };
/// let cached = server.call(list("?resourceVersion=0")?).await;
/// assert!(!cached.body().windows(5).any(|it| it == b"\"new\""));
/// let newest = server.call(list("")?).await;
/// assert!(newest.body().windows(5).any(|it| it == b"\"new\""));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Replica {
    server: ApiServer,
    client: String,
}

impl ApiServer {
    /// Returns the view of a client, which is identified by the name of an in-process client or by its `User-Agent`. By
    /// default the view is up to date.
    pub fn replica(&self, client: &str) -> Replica {
        Replica {
            server: self.clone(),
            client: client.to_owned(),
        }
    }
}

impl Replica {
    /// Returns the client's name.
    pub fn client(&self) -> &str {
        &self.client
    }

    /// Returns the resourceVersion of the view.
    pub fn sees(&self) -> u64 {
        let registry = &self.server.endpoints.registry;
        registry
            .reader
            .replicas
            .sees(&self.client, registry.reader.store.revision())
    }

    /// Stops the view at the current state.
    pub fn freeze(&self) {
        self.freeze_at(self.sees());
    }

    /// Stops the view at this resourceVersion. If the client has already read later versions, open watches deliver
    /// nothing, and a list with `resourceVersion=0` returns an older state, as after a reconnection to a different
    /// server.
    pub fn freeze_at(&self, resource_version: u64) {
        self.set(Some(Position::Frozen(resource_version)));
    }

    /// Keeps the view behind by this many changes, counted over all resources.
    pub fn lag(&self, changes: u64) {
        self.set(Some(Position::Behind(changes)));
    }

    /// Advances the view by this many changes, and stops it there.
    pub fn advance(&self, changes: u64) {
        self.freeze_at(self.sees().saturating_add(changes));
    }

    /// Updates the view to the current state, and keeps it up to date.
    pub fn catch_up(&self) {
        self.set(None);
    }

    fn set(&self, position: Option<Position>) {
        self.server
            .endpoints
            .registry
            .reader
            .set_replica(&self.client, position);
    }
}
