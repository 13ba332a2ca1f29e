//! Measures explorations of controllers with both libraries: the cost of a run with all oracles.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use testkit::TestCluster;
use testkit::explore::{Explore, explore};

use crate::measure::process_cpu_time;
use crate::objects;
use crate::reconciles::Peer;

/// Time limit that these explorations never reach.
const BUDGET: Duration = Duration::from_secs(3600);

/// Costs of several runs.
#[derive(Clone, Copy, Debug)]
pub struct Runs {
    /// Number of requests in a run without faults, including the requests of the test.
    pub requests: usize,
    /// Number of these requests and of the events.
    pub messages: usize,
    /// Number of runs.
    pub count: u64,
    /// CPU time of all threads.
    pub cpu: Duration,
}

impl Runs {
    /// Returns the runs per second on one core.
    pub fn per_second(self) -> f64 {
        self.count as f64 / self.cpu.as_secs_f64()
    }

    /// Returns the microseconds per request, assuming that each run has as many requests as the run without faults.
    pub fn micros_a_request(self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.count as f64 / self.requests as f64
    }
}

/// Numbers of requests and of messages in a run without faults.
type Counts = Arc<[AtomicUsize; 2]>;

/// Returns an exploration of a controller that creates a Secret for each ConfigMap that the test creates.
fn exploration(peer: Peer, objects: usize, counts: &Counts) -> Explore {
    let counts = Arc::clone(counts);
    explore(async move |cluster: &TestCluster| {
        match peer {
            Peer::Informer => cluster.controller("parents", crate::our_controllers::parents),
            Peer::KubeRuntime => cluster.controller("parents", crate::controllers::parents),
        };
        for at in 0..objects {
            let map = objects::config_map(&format!("parent-{at}"));
            let map: ConfigMap = serde_json::from_value(map).expect("the object is a ConfigMap");
            cluster.create(map).await;
        }
        cluster.settle().await;
        let [requests, messages] = &*counts;
        if requests.load(Ordering::Relaxed) == 0 {
            requests.store(cluster.journal().requests().len(), Ordering::Relaxed);
            messages.store(cluster.journal().entries().len(), Ordering::Relaxed);
        }
    })
    .budget(BUDGET)
}

/// Measures runs without faults. Each run is compared with the reference run. One thread makes all runs, so that the
/// number of instructions does not depend on the order of threads.
pub fn undisturbed(peer: Peer, objects: usize, count: u64) -> Runs {
    let counts = Counts::default();
    let all = (0..count).fold(exploration(peer, objects, &counts), |all, _| all.replay(""));
    let all = all.threads(1);
    measured(all.schedules(count), &counts)
}

/// Measures runs in the order of the search, which begins with every single fault.
pub fn disturbed(peer: Peer, objects: usize, count: u64) -> Runs {
    let counts = Counts::default();
    measured(exploration(peer, objects, &counts).schedules(count), &counts)
}

fn measured(exploration: Explore, [requests, messages]: &[AtomicUsize; 2]) -> Runs {
    let start = process_cpu_time();
    let report = exploration.run();
    let cpu = process_cpu_time() - start;
    Runs {
        requests: requests.load(Ordering::Relaxed),
        messages: messages.load(Ordering::Relaxed),
        count: report.coverage().schedules,
        cpu,
    }
}
