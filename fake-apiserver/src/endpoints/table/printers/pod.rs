//! Printer of Pods: the columns Status and Restarts summarize the states of the containers.

use jiff::Timestamp;

use super::super::columns::{AGE, Column, NAME};
use super::super::read::{Field, TableRow, or_none};
use super::Printer;
use crate::api::json::{Value, json};

pub(super) const POD: Printer = Printer {
    columns: &[
        NAME,
        Column::text(
            "Ready",
            "The aggregate readiness state of this pod for accepting traffic.",
        ),
        Column::text("Status", "The aggregate status of the containers in this pod."),
        Column::text(
            "Restarts",
            "The number of times the containers in this pod have been restarted and when the last container in \
             this pod has restarted.",
        ),
        AGE,
        Column::text(
            "IP",
            "podIP address allocated to the pod. Routable at least within the cluster. Empty if not yet \
             allocated.",
        )
        .wide(),
        Column::text(
            "Node",
            "NodeName indicates in which node this pod is scheduled. If empty, this pod is a candidate for \
             scheduling by the scheduler defined in schedulerName. Once this field is set, the kubelet for this \
             node becomes responsible for the lifecycle of this pod. This field should not be used to express a \
             desire for the pod to be scheduled on a specific node. \
             https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#nodename",
        )
        .wide(),
        Column::text(
            "Nominated Node",
            "nominatedNodeName is set only when this pod preempts other pods on the node, but it cannot be \
             scheduled right away as preemption victims receive their graceful termination periods. This field \
             does not guarantee that the pod will be scheduled on this node. Scheduler may decide to place the \
             pod elsewhere if other nodes become available sooner. Scheduler may also decide to give the \
             resources on this node to a higher priority pod that is created after preemption. As a result, this \
             field may be different than PodSpec.nodeName when the pod is scheduled.",
        )
        .wide(),
        Column::text(
            "Readiness Gates",
            "If specified, all readiness gates will be evaluated for pod readiness. A pod is ready when all its \
             containers are ready AND all conditions specified in the readiness gates have status equal to \
             \"True\" More info: https://git.k8s.io/enhancements/keps/sig-network/580-pod-readiness-gates",
        )
        .wide(),
    ],
    cells,
};

fn cells(row: TableRow<'_>) -> Vec<Value> {
    let summary = Summary::of(row);
    let restarts = match summary.last_restart {
        Some(time) if summary.restarts != 0 => {
            format!(
                "{} ({} ago)",
                summary.restarts,
                super::super::duration::between(time, row.now)
            )
        }
        _ => summary.restarts.to_string(),
    };
    let first_ip = row
        .at("status.podIPs")
        .items()
        .next()
        .map_or("", |it| it.at("ip").text());
    vec![
        row.name(),
        format!("{}/{}", summary.ready, summary.containers).into(),
        summary.reason.into(),
        restarts.into(),
        row.age(),
        or_none(first_ip.to_owned()).into(),
        row.at("spec.nodeName").text_or("<none>").into(),
        row.at("status.nominatedNodeName").text_or("<none>").into(),
        readiness_gates(row).into(),
    ]
}

/// Returns the `conditions` of a row, which mark a Pod that has ended.
pub(in crate::endpoints::table) fn row_conditions(row: TableRow<'_>) -> Option<Value> {
    let (reason, message) = match row.at("status.phase").text() {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return None,
    };
    Some(json!([{"type": "Completed", "status": "True", "reason": reason, "message": message}]))
}

/// Summary of the containers of a Pod.
struct Summary {
    reason: String,
    ready: usize,
    containers: usize,
    restarts: i64,
    last_restart: Option<Timestamp>,
}

impl Summary {
    fn of(row: TableRow<'_>) -> Self {
        let phase = row.at("status.phase").text();
        let mut summary = Self {
            reason: row.at("status.reason").text_or(phase).to_owned(),
            ready: 0,
            containers: row.at("spec.containers").count(),
            restarts: 0,
            last_restart: None,
        };
        let conditions = row.at("status.conditions");
        let is_gated =
            |it: &Field<'_>| it.at("type").text() == "PodScheduled" && it.at("reason").text() == "SchedulingGated";
        if conditions.items().any(|it| is_gated(&it)) {
            summary.reason = "SchedulingGated".to_owned();
        }
        let is_initializing = summary.add_init_containers(row);
        let is_initialized = conditions
            .find("type", "Initialized")
            .is_some_and(|it| it.at("status").text() == "True");
        if !is_initializing || is_initialized {
            summary.add_containers(row);
        }
        let is_terminal = matches!(phase, "Succeeded" | "Failed");
        if row.is_terminating() && row.at("status.reason").text() == "NodeLost" {
            summary.reason = "Unknown".to_owned();
        } else if row.is_terminating() && !is_terminal {
            summary.reason = "Terminating".to_owned();
        }
        summary
    }

    /// Adds the sidecars to the containers, and the restarts of the init containers up to the first unfinished one.
    /// Sets the reason and returns `true` if any is unfinished. After initialisation, only restarts of sidecars count.
    fn add_init_containers(&mut self, row: TableRow<'_>) -> bool {
        let specs = row.at("spec.initContainers");
        let is_sidecar = |spec: Field<'_>| spec.at("restartPolicy").text() == "Always";
        self.containers += specs.items().filter(|it| is_sidecar(*it)).count();
        let (mut sidecar_restarts, mut sidecar_restart) = (0, None);
        let mut is_initializing = false;
        for (index, status) in row.at("status.initContainerStatuses").items().enumerate() {
            self.add_restarts(status);
            let is_sidecar = specs.find("name", status.at("name").text()).is_some_and(is_sidecar);
            if is_sidecar {
                sidecar_restarts += status.at("restartCount").int();
                sidecar_restart = sidecar_restart.max(last_termination(status));
            }
            let (terminated, waiting) = (status.at("state.terminated"), status.at("state.waiting"));
            if terminated.is_set() && terminated.at("exitCode").int() == 0 {
                continue;
            }
            if is_sidecar && status.at("started").flag() {
                self.ready += usize::from(status.at("ready").flag());
                continue;
            }
            let waits_for = waiting.at("reason").text();
            self.reason = if terminated.is_set() {
                format!("Init:{}", ended(terminated))
            } else if !waits_for.is_empty() && waits_for != "PodInitializing" {
                format!("Init:{waits_for}")
            } else {
                format!("Init:{index}/{}", specs.count())
            };
            is_initializing = true;
            break;
        }
        let is_initialized = row
            .at("status.conditions")
            .find("type", "Initialized")
            .is_some_and(|it| it.at("status").text() == "True");
        if !is_initializing || is_initialized {
            self.restarts = sidecar_restarts;
            self.last_restart = sidecar_restart;
        }
        is_initializing
    }

    fn add_containers(&mut self, row: TableRow<'_>) {
        let mut has_running = false;
        let mut error = None;
        for status in row.at("status.containerStatuses").items().rev() {
            self.add_restarts(status);
            let terminated = status.at("state.terminated");
            let waits_for = status.at("state.waiting.reason").text();
            if !waits_for.is_empty() {
                self.reason = waits_for.to_owned();
            } else if terminated.is_set() {
                self.reason = ended(terminated);
                if terminated.at("exitCode").int() != 0 {
                    error = Some(self.reason.clone());
                }
            } else if status.at("ready").flag() && status.at("state.running").is_set() {
                has_running = true;
                self.ready += 1;
            }
        }
        // A Pod with a running container, or with a container that failed, is not completed.
        if self.reason == "Completed" {
            let mut conditions = row.at("status.conditions").items();
            let is_ready = conditions.any(|it| it.at("type").text() == "Ready" && it.at("status").text() == "True");
            match (has_running, error) {
                (true, _) if is_ready => self.reason = "Running".to_owned(),
                (_, Some(error)) => self.reason = error,
                (true, None) => self.reason = "NotReady".to_owned(),
                (false, None) => {}
            }
        }
    }

    fn add_restarts(&mut self, status: Field<'_>) {
        self.restarts += status.at("restartCount").int();
        self.last_restart = self.last_restart.max(last_termination(status));
    }
}

fn last_termination(status: Field<'_>) -> Option<Timestamp> {
    status.at("lastState.terminated.finishedAt").time()
}

/// Returns the reason why a container ended: the reported reason, otherwise the signal or exit code.
fn ended(terminated: Field<'_>) -> String {
    match (terminated.at("reason").text(), terminated.at("signal").int()) {
        ("", 0) => format!("ExitCode:{}", terminated.at("exitCode").int()),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

fn readiness_gates(row: TableRow<'_>) -> String {
    let gates = row.at("spec.readinessGates");
    if gates.count() == 0 {
        return "<none>".to_owned();
    }
    let conditions = row.at("status.conditions");
    let is_true = |gate: &Field<'_>| {
        let condition = conditions.find("type", gate.at("conditionType").text());
        condition.is_some_and(|it| it.at("status").text() == "True")
    };
    format!("{}/{}", gates.items().filter(is_true).count(), gates.count())
}
