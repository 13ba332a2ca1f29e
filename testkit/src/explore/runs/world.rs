//! `World`: the initial state of the clusters of all runs.

use std::sync::Arc;
use std::time::Duration;

use fake_apiserver::{ApiServer, ApiServerBuilder};
use jiff::Timestamp;
use tokio::time::Instant;

use super::harness::Harness;
use crate::explore::machine::time_of_day;
use crate::explore::plans::LARGE;
use crate::hooks::Hooks;
use crate::test_cluster::{TestCluster, TestClusterBuilder};

/// Difference between the times of day at which the two reference runs of an exploration begin.
const OTHER_TIME: Duration = Duration::from_secs(4_391);

/// The state from which the clusters of all runs are started.
#[derive(Debug)]
pub(crate) struct World {
    pub(super) builder: TestClusterBuilder,
    /// The server for the first reference run and for nearly all other runs.
    server: ApiServerBuilder,
    /// The server for the other reference run, with different uids and a different time of day.
    other: ApiServerBuilder,
    /// Same as `server`, with very large revisions.
    large: ApiServerBuilder,
    /// The time of day at which runs begin.
    start: Timestamp,
    /// Set if the test has set the start time.
    is_start_set: bool,
}

/// Bits in which the seeds of runs and of their initial objects differ.
const RUNS: u64 = 1 << 63;

/// Variant of the server for a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Variant {
    Usual,
    Other,
    Large,
}

impl TestClusterBuilder {
    /// Builds the state from which clusters are started. Their time of day is `start`. Default: the configured start
    /// time, or else the machine's time.
    pub(crate) fn world(mut self, start: Option<Timestamp>) -> World {
        let set = self.server_to_be().configured_start_time();
        if let Some(start) = start {
            self = self.server(|server| server.start_time(start));
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build();
        let runtime = runtime.unwrap_or_else(|err| panic!("cannot create a tokio runtime for the exploration: {err}"));
        runtime.block_on(async { self.begun(set.is_some()) })
    }

    fn begun(self, is_start_set: bool) -> World {
        let cluster = self.clone().start();
        let (state, now) = (cluster.server.snapshot(), cluster.server.now());
        let server = |shift| self.server_to_be().world(&state).start_time(now + shift);
        // With the seed of the initial objects, new objects would get their uids again.
        let seed = self.seed ^ RUNS;
        World {
            server: server(Duration::ZERO).seed(seed),
            other: server(OTHER_TIME).seed(!seed),
            large: server(Duration::ZERO).seed(seed).revision(LARGE),
            start: now,
            is_start_set,
            builder: self,
        }
    }
}

impl World {
    /// Returns the time of day at which runs begin, for replay strings; `None` if the test sets it.
    pub(crate) fn start_to_replay(&self) -> Option<Timestamp> {
        (!self.is_start_set).then_some(self.start)
    }

    /// Returns the same state at a different time of day, if a replay requires one.
    pub(crate) fn at(&self, start: Option<Timestamp>) -> Option<Self> {
        let start = start.filter(|it| *it != self.start && !self.is_start_set)?;
        Some(self.builder.clone().world(Some(start)))
    }

    /// Starts the cluster of a run, with a harness between its clients and its server.
    pub(crate) fn cluster(
        &self,
        variant: Variant,
        is_real: bool,
        harness: impl FnOnce(ApiServer) -> Harness,
    ) -> (TestCluster, Arc<Harness>) {
        let server = match variant {
            Variant::Usual => &self.server,
            Variant::Other => &self.other,
            Variant::Large => &self.large,
        };
        let mut server = server.clone();
        if is_real {
            // Processes read the machine's clock, so the server must use the same time.
            server = server.start_time(time_of_day());
        }
        let server = server.start();
        let harness = Arc::new(harness(server.clone()));
        let mut cluster = TestCluster::of_server(server, Instant::now(), self.builder.bounds);
        cluster.hooks = Some(Arc::clone(&harness) as Arc<dyn Hooks>);
        (cluster.work, cluster.boot) = (self.builder.work.clone(), 0);
        (cluster, harness)
    }
}
