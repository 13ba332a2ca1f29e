//! HorizontalPodAutoscalers: scale workloads by the usage that scripts of Pods report and by metrics that a test sets.
//! They are evaluated every 15 s, as in `HorizontalController` of kube-controller-manager.

mod look;
mod measure;
mod amounts;
mod limits;
pub(crate) mod history;

use super::controller::{Sync, WorkloadController};
use super::plan::Plan;
use super::resource::Resource;
use crate::workers::WorkerRow;

pub(crate) const ROW: WorkerRow = WorkerRow::workloads(
    "horizontalpodautoscaler",
    &[WorkloadController {
        sync: Sync::Nodes(look::sync),
        ..WorkloadController::new(Resource::HorizontalPodAutoscaler, look::COMPONENT, |_, _| Plan::EMPTY)
    }],
);
