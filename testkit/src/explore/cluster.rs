//! The cluster of a run: begun with a state that is made once, and with a gate before its server.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use fake_apiserver::{ApiServer, ApiServerBuilder};
use jiff::Timestamp;
use tokio::time::Instant;

use super::gate::Gate;
use super::plan::LARGE;
use crate::controller::Running;
use crate::service::ClientService;
use crate::test_cluster::{TestCluster, TestClusterBuilder};

/// Difference between the times of day of an exploration's two reference runs.
const OTHER_TIME: Duration = Duration::from_secs(4_391);

/// A state to begin many clusters with.
#[derive(Debug)]
pub(crate) struct World {
    builder: TestClusterBuilder,
    /// The server of the first reference run and of nearly all others.
    server: ApiServerBuilder,
    /// Server of the other reference run, with other uids and another time of day.
    other: ApiServerBuilder,
    /// The first one with very large revisions.
    large: ApiServerBuilder,
    /// The time of day at which runs begin.
    start: Timestamp,
    /// The test set it.
    is_start_set: bool,
}

/// Variant of the server in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Variant {
    Usual,
    Other,
    Large,
}

/// Makes clients of a cluster.
#[derive(Clone)]
pub(crate) struct Clients {
    server: ApiServer,
    gate: Option<Arc<Gate>>,
    /// A real server that answers.
    remote: Option<kube::Client>,
}

impl Clients {
    pub(crate) fn client(&self, name: &str) -> kube::Client {
        match (&self.gate, &self.remote) {
            (Some(gate), _) => gate.client(name),
            (None, Some(remote)) => self.server.relay(remote, name),
            (None, None) => self.server.client_named(name),
        }
    }
}

impl Clients {
    /// Builds the service for clients of any version of kube.
    pub(crate) fn service(&self, name: &str) -> ClientService {
        match (&self.gate, &self.remote) {
            (Some(gate), _) => ClientService::gated(gate.service(name)),
            (None, Some(remote)) => ClientService::remote(self.server.relay(remote, name)),
            (None, None) => ClientService::of_server(self.server.client_service(name)),
        }
    }
}

impl fmt::Debug for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clients")
            .field("gate", &self.gate)
            .finish_non_exhaustive()
    }
}

impl TestClusterBuilder {
    /// Makes the state, to begin many clusters with, which begin at this time of day; by default at the one that is
    /// set, or at the machine's.
    pub(crate) fn world(mut self, start: Option<Timestamp>) -> World {
        let set = self.server_to_be().configured_start_time();
        if let Some(start) = start {
            self = self.server(|server| server.start_time(start));
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build();
        let runtime = runtime.unwrap_or_else(|err| panic!("an exploration needs tokio runtimes: {err}"));
        runtime.block_on(async { self.begun(set.is_some()) })
    }

    fn begun(self, is_start_set: bool) -> World {
        let cluster = self.clone().start();
        let (state, now) = (cluster.server.snapshot(), cluster.server.now());
        let server = |shift| self.server_to_be().world(&state).start_time(now + shift);
        World {
            server: server(Duration::ZERO).seed(self.seed),
            other: server(OTHER_TIME).seed(!self.seed),
            large: server(Duration::ZERO).seed(self.seed).revision(LARGE),
            start: now,
            is_start_set,
            builder: self,
        }
    }
}

impl World {
    /// The time of day at which runs begin, for replay strings; `None` if the test sets it.
    pub(crate) fn start_to_replay(&self) -> Option<Timestamp> {
        (!self.is_start_set).then_some(self.start)
    }

    /// The same state made at another time of day, if a replay asks for it.
    pub(crate) fn at(&self, start: Option<Timestamp>) -> Option<Self> {
        let start = start.filter(|it| *it != self.start && !self.is_start_set)?;
        Some(self.builder.clone().world(Some(start)))
    }
}

impl TestCluster {
    pub(crate) fn clients(&self) -> Clients {
        Clients {
            server: self.server.clone(),
            gate: self.gate.clone(),
            remote: self.real.as_ref().map(|real| real.client().clone()),
        }
    }

    /// A controller that can be started again.
    pub(crate) fn entered(&self, name: &str, running: &Running) {
        if let Some(gate) = &self.gate {
            gate.enter(name, running);
        }
    }

    /// A cluster of an exploration, with a state it begins with.
    pub(crate) fn explored(world: &World, variant: Variant, gate: impl FnOnce(ApiServer) -> Gate) -> Self {
        let server = match variant {
            Variant::Usual => &world.server,
            Variant::Other => &world.other,
            Variant::Large => &world.large,
        };
        let server = server.clone().start();
        let gate = Arc::new(gate(server.clone()));
        let mut cluster = Self::of_server(server, Instant::now(), world.builder.bounds);
        cluster.gate = Some(gate);
        cluster.work = world.builder.work.clone();
        cluster
    }

    /// A step of the workload that [`explore`](crate::explore) may leave out to make a failure shorter. Elsewhere it
    /// is awaited as it is.
    ///
    /// ```
    /// # use testkit::{TestCluster, objects::pod};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let cluster = TestCluster::start();
    /// cluster.step("make web-0", async { cluster.create(pod("web-0")).await; }).await;
    /// assert!(cluster.exists(pod("web-0")));
    /// # }
    /// ```
    pub async fn step(&self, name: &str, step: impl Future<Output = ()>) {
        if self.gate.as_ref().is_some_and(|gate| gate.skips(name)) {
            return;
        }
        if let Some(gate) = &self.gate {
            gate.step(name);
        }
        step.await;
    }
}
