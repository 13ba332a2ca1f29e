//! Statics of a program: metrics, caches, compiled expressions.

use std::collections::HashMap;
use std::sync::LazyLock;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::DeleteParams;
use kube::{Api, Client};
use testkit::TestCluster;
use testkit::explore::explore;
use testkit::objects::config_map;

static METRICS: LazyLock<HashMap<&str, u64>> = LazyLock::new(|| HashMap::from([("deletes", 0)]));

/// Deletes ConfigMaps in the iteration order of a map.
async fn clear(client: Client) {
    assert!(METRICS.contains_key("deletes"));
    let names: HashMap<String, ()> = (0..9).map(|it| (name(it), ())).collect();
    let maps = Api::<ConfigMap>::default_namespaced(client);
    for name in names.into_keys() {
        let _ = maps.delete(&name, &DeleteParams::default()).await;
    }
    std::future::pending().await
}

fn name(number: u32) -> String {
    format!("map-{number}")
}

/// Keys of maps are drawn one after the other, so a map that is only created in the first run changes the order of
/// other maps.
#[cfg(target_os = "linux")]
#[test]
fn lazily_initialised_static_is_not_reported_as_nondeterminism() {
    let report = explore(async |cluster: &TestCluster| {
        for number in 0..9 {
            cluster.create(config_map(&name(number))).await;
        }
        cluster.controller("cleaner", clear);
        cluster.settle().await;
    })
    .schedules(3)
    .report();
    assert_eq!(report.nondeterminism(), Vec::<String>::new(), "{report}");
}
