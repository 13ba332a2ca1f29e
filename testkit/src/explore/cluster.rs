//! The cluster of a run: begun with a state that is made once, and with a gate before its server.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use fake_apiserver::{ApiServer, ApiServerBuilder};
use tokio::time::Instant;

use super::gate::Gate;
use super::plan::LARGE;
use crate::controller::Running;
use crate::test_cluster::{TestCluster, TestClusterBuilder};

/// How far the time of day of an exploration's second reference run lies from that of the first.
const OTHER_TIME: Duration = Duration::from_secs(4_391);

/// A state to begin many clusters with.
#[derive(Debug)]
pub(crate) struct World {
    builder: TestClusterBuilder,
    /// The server of the first reference run and of nearly all others.
    server: ApiServerBuilder,
    /// That of the other reference run, with other uids and another time of day.
    other: ApiServerBuilder,
    /// The first one with very large revisions.
    large: ApiServerBuilder,
}

/// Which server a run has.
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

impl fmt::Debug for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clients")
            .field("gate", &self.gate)
            .finish_non_exhaustive()
    }
}

impl TestClusterBuilder {
    /// Makes the state, to begin many clusters with.
    pub(crate) fn world(self) -> World {
        let cluster = self.clone().start();
        let (state, now) = (cluster.server.snapshot(), cluster.server.now());
        let server = |shift| self.server_to_be().world(&state).start_time(now + shift);
        World {
            server: server(Duration::ZERO).seed(self.seed),
            other: server(OTHER_TIME).seed(!self.seed),
            large: server(Duration::ZERO).seed(self.seed).revision(LARGE),
            builder: self,
        }
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
