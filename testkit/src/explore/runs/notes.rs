//! Notes about a reference: parts of the scenario that test less than they appear to, and controllers that read a
//! different clock.

use jiff::Timestamp;

use crate::explore::outcomes::{ForeignTime, OTHER_CLOCK, foreign_times};
use crate::test_cluster::TestCluster;

/// Lists parts of the scenario that test less than they appear to.
pub(crate) fn of_the_scenario(cluster: &TestCluster) -> Vec<String> {
    let cannot = |place| {
        format!(
            "the controller started at {place} by `run` is never crashed, since it cannot be restarted: use \
             `cluster.controller(\"name\", |client| …)`"
        )
    };
    let fixed = cluster.controllers.fixed().into_iter().map(cannot);
    fixed.chain(cluster.injections.idle()).collect()
}

/// Lists times that controllers read from the machine's clock instead of the server's, and wrote into objects.
pub(crate) fn of_clocks(cluster: &TestCluster, began: Timestamp) -> Vec<String> {
    let note = |it: ForeignTime| {
        format!(
            "{} wrote {} into {} at {} when the cluster's time was {}: {OTHER_CLOCK}, which uses virtual time; use \
             `cluster.server().now()`",
            it.client, it.time, it.object, it.path, it.now
        )
    };
    foreign_times(cluster, began).into_iter().map(note).collect()
}
