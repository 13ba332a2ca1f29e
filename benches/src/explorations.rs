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

/// Returns an exploration of a controller that creates a Secret for each ConfigMap that the test creates.
fn exploration(peer: Peer, objects: usize, requests: &Arc<AtomicUsize>) -> Explore {
    let requests = Arc::clone(requests);
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
        if requests.load(Ordering::Relaxed) == 0 {
            requests.store(cluster.journal().requests().len(), Ordering::Relaxed);
        }
    })
    .budget(BUDGET)
}

/// Measures runs without faults. Each run is compared with the reference run.
pub fn undisturbed(peer: Peer, objects: usize, count: u64) -> Runs {
    let requests = Arc::default();
    let all = (0..count).fold(exploration(peer, objects, &requests), |all, _| all.replay(""));
    measured(all.schedules(count), &requests)
}

/// Measures runs in the order of the search, which begins with every single fault.
pub fn disturbed(peer: Peer, objects: usize, count: u64) -> Runs {
    let requests = Arc::default();
    measured(exploration(peer, objects, &requests).schedules(count), &requests)
}

fn measured(exploration: Explore, requests: &AtomicUsize) -> Runs {
    let start = process_cpu_time();
    let report = exploration.run();
    let cpu = process_cpu_time() - start;
    Runs {
        requests: requests.load(Ordering::Relaxed),
        count: report.coverage().schedules,
        cpu,
    }
}
