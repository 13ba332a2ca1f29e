//! Saves, restores, compares and exports the state of a cluster, and changes it without requests.
//!
//! ```
//! use testkit::{TestCluster, objects::config_map};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let cluster = TestCluster::start();
//! cluster.create(config_map("settings").data("mode", "fast")).await;
//! let before = cluster.snapshot();
//! let twin = cluster.fork(); // another cluster with the same state
//!
//! cluster.patch(config_map("settings"), serde_json::json!({"data": {"mode": "slow"}})).await;
//! assert_eq!(
//!     cluster.diff(&before).to_string(),
//!     "~ ConfigMap default/settings\n    data.mode: \"fast\" -> \"slow\"\n",
//! );
//! assert_eq!(twin.get(config_map("settings")).data("mode"), Some("fast"));
//! cluster.restore(&before);
//! assert!(cluster.diff(&before).is_empty());
//! # }
//! ```

use std::path::Path;
use std::time::Duration;

use fake_apiserver::{LoadReport, Replica, RestartLog, Snapshot, WatchEventKind, WorldDiff, load};

use crate::target::ToObject;
use crate::test_cluster::{TEST_CLIENT, TestCluster};

impl TestCluster {
    /// Takes a snapshot of the whole state, in constant time.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.server.snapshot()
    }

    /// Restores a state. Watches end, as when etcd is restored from a backup, and the resourceVersion is reset as well.
    pub fn restore(&self, snapshot: &Snapshot) {
        if !self.skips("restore") {
            self.server.restore(snapshot);
        }
    }

    /// Returns a new cluster with the same state, clock and future random numbers, without controllers, faults or
    /// watches. From then on, the two clusters are independent.
    #[must_use]
    pub fn fork(&self) -> Self {
        self.with_server(self.server.fork())
    }

    /// Returns the changes since a snapshot, in readable form.
    #[must_use]
    pub fn diff(&self, since: &Snapshot) -> WorldDiff {
        self.server.diff(since, &self.server.snapshot())
    }

    /// Asserts that nothing has changed since a snapshot.
    ///
    /// # Panics
    ///
    /// If something has changed. The message lists each object and field.
    #[track_caller]
    pub fn assert_unchanged(&self, since: &Snapshot) {
        let diff = self.diff(since);
        if !diff.is_empty() {
            self.fail(&format!("the cluster has changed:\n{diff}"));
        }
    }

    /// Returns all objects as a stream of YAML documents, which
    /// [`TestClusterBuilder::yaml`](crate::TestClusterBuilder::yaml) and the command `fake-apiserver --load` accept.
    #[must_use]
    pub fn to_yaml(&self) -> String {
        self.server.to_yaml(&self.server.snapshot())
    }

    /// Loads the dump of a cluster: a directory written by `oc adm must-gather`, or a file written by `kubectl get -A
    /// -o yaml`. Uids, status and times are kept. Other documents, and objects of kinds that are not served, are
    /// skipped and listed in the report.
    ///
    /// # Panics
    ///
    /// If the path does not exist, or a directory cannot be read.
    #[track_caller]
    pub fn load_dump(&self, path: impl AsRef<Path>) -> LoadReport {
        let (manifests, mut left_out) = match load::read_dump(path) {
            Ok(read) => read,
            Err(err) => self.fail(&err.to_string()),
        };
        if self.skips("load_dump") {
            return LoadReport::default();
        }
        let mut report = self.server.load_dump(manifests);
        report.skipped.append(&mut left_out);
        report
    }

    /// Applies a watch event to the state without validation, as if a controller outside of the test had made the
    /// change. To send an event to watchers without changing the state, use [`Watches::send`](crate::Watches::send).
    ///
    /// # Panics
    ///
    /// If the kind is not served, if the object cannot be stored, if a DELETED object does not exist, or for BOOKMARK
    /// and ERROR.
    #[track_caller]
    pub fn apply_event<Form>(&self, kind: WatchEventKind, object: impl ToObject<Form>) {
        if self.skips("apply_event") {
            return;
        }
        if let Err(err) = self.server.apply_event(kind, object.to_object()) {
            self.fail(&err.to_string());
        }
    }

    /// Returns the replica of the API server that serves the client with this name. The replica can lag behind etcd.
    /// See [`Replica`].
    ///
    /// ```
    /// # use testkit::{TestCluster, objects::config_map};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let cluster = TestCluster::start();
    /// cluster.replica("operator").freeze();
    /// cluster.create(config_map("unseen")).await;
    /// // … the operator works with an outdated state …
    /// cluster.replica("operator").catch_up();
    /// # }
    /// ```
    #[must_use]
    pub fn replica(&self, client: &str) -> Replica {
        self.skips("replica");
        self.server.replica(client)
    }

    /// Sets the clock of the client with this name ahead by this many milliseconds, or behind if the number is
    /// negative. This shifts the times that the client writes into Leases and reads from them, as on nodes with
    /// unsynchronised clocks.
    pub fn skew_clock(&self, client: &str, ahead_ms: i64) {
        if !self.skips("skew_clock") {
            self.server.skew_clock(client, ahead_ms);
        }
    }

    /// Restarts the API server: all watches break, and connections of controllers are refused for the virtual time
    /// `down`. Stored objects are kept; with [`RestartLog::Lost`] every client must list again.
    pub fn restart(&self, log: RestartLog, down: Duration) {
        if !self.skips("restart") {
            self.server.restart(log, down, &[TEST_CLIENT]);
        }
    }

    /// Removes the history of all objects up to now, as etcd's compaction does every five minutes: a watch that resumes
    /// from an older revision gets 410. Open watches continue; see [`expire_watches`](TestCluster::expire_watches).
    pub fn compact(&self) {
        if !self.skips("compact") {
            self.server.compact();
        }
    }
}
