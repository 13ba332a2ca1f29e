//! Worlds: the state of a cluster kept, put back, compared, written out, and changed without a request.
//!
//! ```
//! use testkit::{TestCluster, objects::config_map};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let cluster = TestCluster::start();
//! cluster.create(config_map("settings").data("mode", "fast")).await;
//! let before = cluster.snapshot();
//! let twin = cluster.fork(); // a second cluster with the same state
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

use std::panic::Location;
use std::path::Path;
use std::time::Duration;

use fake_apiserver::{LoadReport, Replica, RestartLog, Snapshot, WatchEventKind, WorldDiff, load};

use crate::report::fail_at;
use crate::target::ToObject;
use crate::test_cluster::{TEST_CLIENT, TestCluster};

impl TestCluster {
    /// Takes a snapshot of the whole state, in constant time.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.server.snapshot()
    }

    /// Puts a state back. Watches end, as when etcd is restored from a backup; the resourceVersion goes back, too.
    pub fn restore(&self, snapshot: &Snapshot) {
        if !self.skips("restore") {
            self.server.restore(snapshot);
        }
    }

    /// A second cluster with the same state, clock and random numbers to come, and no controllers, faults or watches.
    /// From here on each goes its own way.
    #[must_use]
    pub fn fork(&self) -> Self {
        self.with_server(self.server.fork())
    }

    /// Returns the changes since a snapshot, in readable form.
    #[must_use]
    pub fn diff(&self, since: &Snapshot) -> WorldDiff {
        self.server.diff(since, &self.server.snapshot())
    }

    /// Sees to it that nothing has changed since.
    ///
    /// # Panics
    ///
    /// With each object and field that has.
    #[track_caller]
    pub fn assert_unchanged(&self, since: &Snapshot) {
        let diff = self.diff(since);
        if !diff.is_empty() {
            self.fail(&format!("the cluster has changed:\n{diff}"));
        }
    }

    /// All objects as a stream of YAML documents, which [`TestClusterBuilder::yaml`](crate::TestClusterBuilder::yaml)
    /// and the command `fake-apiserver --load` read again.
    #[must_use]
    pub fn to_yaml(&self) -> String {
        self.server.to_yaml(&self.server.snapshot())
    }

    /// Loads the dump of a cluster, a directory as `oc adm must-gather` writes it or a file of `kubectl get -A -o
    /// yaml`, with uids, status and times as they are. What is no object, or of a kind that is not served, is left out,
    /// and named in what is returned.
    ///
    /// # Panics
    ///
    /// If the directory cannot be read.
    #[track_caller]
    pub fn load_dump(&self, path: impl AsRef<Path>) -> LoadReport {
        let (manifests, mut left_out) =
            load::read_dump(path).unwrap_or_else(|err| fail_at(Location::caller(), &err.to_string()));
        if self.skips("load_dump") {
            return LoadReport::default();
        }
        let mut report = self.server.load_dump(manifests);
        report.skipped.append(&mut left_out);
        report
    }

    /// Changes the state as a watch event says, bypassing validation, as if a controller outside of the test had done
    /// it. To send a false event to watchers only, use [`Watches::send`](crate::Watches::send).
    ///
    /// # Panics
    ///
    /// If the kind is not served, and for BOOKMARK and ERROR.
    #[track_caller]
    pub fn apply_event(&self, kind: WatchEventKind, object: impl ToObject) {
        if self.skips("apply_event") {
            return;
        }
        if let Err(err) = self.server.apply_event(kind, object.to_object()) {
            self.fail(&err.to_string());
        }
    }

    /// Returns the replica that serves the client of this name: its API server may lag behind etcd. See [`Replica`].
    ///
    /// ```
    /// # use testkit::{TestCluster, objects::config_map};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let cluster = TestCluster::start();
    /// cluster.replica("operator").freeze();
    /// cluster.create(config_map("unseen")).await;
    /// // … the operator works on a state that is old …
    /// cluster.replica("operator").catch_up();
    /// # }
    /// ```
    #[must_use]
    pub fn replica(&self, client: &str) -> Replica {
        self.skips("replica");
        self.server.replica(client)
    }

    /// Lets the clock of the client of this name be ahead by so many milliseconds, or behind, if it is less than 0: the
    /// times that it writes into Leases and reads from them are moved. So nodes are whose clocks are not kept in step.
    pub fn skew_clock(&self, client: &str, ahead_ms: i64) {
        if !self.skips("skew_clock") {
            self.server.skew_clock(client, ahead_ms);
        }
    }

    /// Restarts the API server: all watches break, and for `down` of virtual time all connections are refused. What is
    /// stored stays; with [`RestartLog::Lost`] every client must list again.
    pub fn restart(&self, log: RestartLog, down: Duration) {
        if !self.skips("restart") {
            self.server.restart(log, down, &[TEST_CLIENT]);
        }
    }

    /// Forgets the history of all objects up to now, as etcd's compaction does every five minutes: a watch that resumes
    /// from an older revision gets 410. Open watches go on; see [`expire_watches`](TestCluster::expire_watches).
    pub fn compact(&self) {
        if !self.skips("compact") {
            self.server.compact();
        }
    }
}
