//! `Replica`: a test's hand on how far one client sees, as if its API server lay behind etcd.

use crate::server::ApiServer;
use crate::watch::Position;

/// View of one client; from [`ApiServer::replica`].
///
/// A cluster has several API servers, each with a cache of etcd's state that may lie behind. What the client reads
/// follows Kubernetes' rules for such a cache:
///
/// | request | a replica that is behind answers |
/// |---|---|
/// | get and list with `resourceVersion=0` | its own state, however old |
/// | get and list not older than `N` | its own state if it has come to `N`; else it waits up to 3 s, then 504 |
/// | get and list without a resourceVersion, or exactly at one; pages | the newest state, from etcd |
/// | watch from `N` | the changes after `N` that it has seen; it is quiet while `N` lies ahead of it |
/// | watch from `0` with the initial state | its own state, then what it learns |
/// | watch with an initial state and no resourceVersion | waits up to 3 s to have come to etcd's state, then 504 |
/// | writes | are checked against the newest state, in etcd |
///
/// It cannot lie further behind than the log reaches: where that begins later, what it shows begins there.
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
    /// Returns the view of a client: the name of an in-process client, else its `User-Agent`. By default it sees
    /// everything.
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

    /// The newest resourceVersion the client sees.
    pub fn sees(&self) -> u64 {
        let registry = &self.server.endpoints.registry;
        registry
            .reader
            .replicas
            .sees(&self.client, registry.reader.store.revision())
    }

    /// It learns of nothing that is written from now on.
    pub fn freeze(&self) {
        self.freeze_at(self.sees());
    }

    /// It has come to this resourceVersion and learns of nothing after it. If that lies before what the client has seen
    /// already, open watches are quiet; the client goes back in time when it lists again from `0`, as after a
    /// restart, when it is led to another server.
    pub fn freeze_at(&self, resource_version: u64) {
        self.set(Some(Position::Frozen(resource_version)));
    }

    /// It stays this many changes behind, counted over all resources.
    pub fn lag(&self, changes: u64) {
        self.set(Some(Position::Behind(changes)));
    }

    /// It learns of this many changes more, if it is frozen.
    pub fn advance(&self, changes: u64) {
        self.freeze_at(self.sees().saturating_add(changes));
    }

    /// It sees everything, now and from now on.
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
