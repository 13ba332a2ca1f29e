//! Printers of workload controllers and disruption budgets.

use super::super::columns::{AGE, CONTAINERS, Column, IMAGES, NAME};
use super::super::read::{Field, TableRow};
use super::Printer;
use crate::api::json::Value;

const READY: Column = Column::text("Ready", "Number of the pod with ready state");

pub(super) const POD_TEMPLATE: Printer = Printer {
    columns: &[
        NAME,
        Column {
            priority: 0,
            ..CONTAINERS
        },
        Column { priority: 0, ..IMAGES },
        Column::text("Pod Labels", "The labels for the pod template."),
    ],
    cells: |row| {
        let (names, images) = row.at("template.spec.containers").containers();
        vec![
            row.name(),
            names.into(),
            images.into(),
            row.at("template.metadata.labels").labels().into(),
        ]
    },
};

pub(super) const REPLICATION_CONTROLLER: Printer = Printer {
    columns: &[
        NAME,
        Column::integer(
            "Desired",
            "Replicas is the number of desired replicas. This is a pointer to distinguish between explicit zero \
             and unspecified. Defaults to 1. More info: \
             https://kubernetes.io/docs/concepts/workloads/controllers/replicationcontroller\
             #what-is-a-replicationcontroller",
        ),
        Column::integer(
            "Current",
            "Replicas is the most recently observed number of replicas. More info: \
             https://kubernetes.io/docs/concepts/workloads/controllers/replicationcontroller\
             #what-is-a-replicationcontroller",
        ),
        Column::integer("Ready", "The number of ready replicas for this replication controller."),
        AGE,
        CONTAINERS,
        IMAGES,
        Column::text(
            "Selector",
            "Selector is a label query over pods that should match the Replicas count. If Selector is empty, it \
             is defaulted to the labels present on the Pod template. Label keys and values that must match in \
             order to be controlled by this replication controller, if empty defaulted to labels on Pod \
             template. More info: \
             https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors",
        )
        .wide(),
    ],
    cells: |row| replicas(row, row.at("spec.selector").labels()),
};

pub(super) const REPLICA_SET: Printer = Printer {
    columns: &[
        NAME,
        Column::integer(
            "Desired",
            "Replicas is the number of desired pods. This is a pointer to distinguish between explicit zero and \
             unspecified. Defaults to 1. More info: \
             https://kubernetes.io/docs/concepts/workloads/controllers/replicaset",
        ),
        Column::integer(
            "Current",
            "Replicas is the most recently observed number of non-terminating pods. More info: \
             https://kubernetes.io/docs/concepts/workloads/controllers/replicaset",
        ),
        Column::integer(
            "Ready",
            "The number of non-terminating pods targeted by this ReplicaSet with a Ready Condition.",
        ),
        AGE,
        CONTAINERS,
        IMAGES,
        Column::text(
            "Selector",
            "Selector is a label query over pods that should match the replica count. Label keys and values \
             that must match in order to be controlled by this replica set. It must match the pod template's \
             labels. More info: \
             https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors",
        )
        .wide(),
    ],
    cells: |row| replicas(row, row.at("spec.selector").selector()),
};

fn replicas(row: TableRow<'_>, selector: String) -> Vec<Value> {
    let (names, images) = template_containers(row);
    vec![
        row.name(),
        row.at("spec.replicas").int().into(),
        row.at("status.replicas").int().into(),
        row.at("status.readyReplicas").int().into(),
        row.age(),
        names.into(),
        images.into(),
        selector.into(),
    ]
}

fn template_containers(row: TableRow<'_>) -> (String, String) {
    row.at("spec.template.spec.containers").containers()
}

pub(super) const DAEMON_SET: Printer = Printer {
    columns: &[
        NAME,
        Column::integer(
            "Desired",
            "The total number of nodes that should be running the daemon pod (including nodes correctly running \
             the daemon pod). More info: https://kubernetes.io/docs/concepts/workloads/controllers/daemonset/",
        ),
        Column::integer(
            "Current",
            "The number of nodes that are running at least 1 daemon pod and are supposed to run the daemon pod. \
             More info: https://kubernetes.io/docs/concepts/workloads/controllers/daemonset/",
        ),
        Column::integer(
            "Ready",
            "numberReady is the number of nodes that should be running the daemon pod and have one or more of \
             the daemon pod running with a Ready Condition.",
        ),
        Column::integer(
            "Up-to-date",
            "The total number of nodes that are running updated daemon pod",
        ),
        Column::integer(
            "Available",
            "The number of nodes that should be running the daemon pod and have one or more of the daemon pod \
             running and available (ready for at least spec.minReadySeconds)",
        ),
        Column::text(
            "Node Selector",
            "NodeSelector is a selector which must be true for the pod to fit on a node. Selector which must \
             match a node's labels for the pod to be scheduled on that node. More info: \
             https://kubernetes.io/docs/concepts/configuration/assign-pod-node/",
        ),
        AGE,
        CONTAINERS,
        IMAGES,
        Column::text(
            "Selector",
            "A label query over pods that are managed by the daemon set. Must match in order to be controlled. \
             It must match the pod template's labels. More info: \
             https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors",
        )
        .wide(),
    ],
    cells: |row| {
        let (names, images) = template_containers(row);
        vec![
            row.name(),
            row.at("status.desiredNumberScheduled").int().into(),
            row.at("status.currentNumberScheduled").int().into(),
            row.at("status.numberReady").int().into(),
            row.at("status.updatedNumberScheduled").int().into(),
            row.at("status.numberAvailable").int().into(),
            row.at("spec.template.spec.nodeSelector").labels().into(),
            row.age(),
            names.into(),
            images.into(),
            row.at("spec.selector").selector().into(),
        ]
    },
};

pub(super) const DEPLOYMENT: Printer = Printer {
    columns: &[
        NAME,
        READY,
        Column::text(
            "Up-to-date",
            "Total number of non-terminating pods targeted by this deployment that have the desired template \
             spec.",
        ),
        Column::text(
            "Available",
            "Total number of available non-terminating pods (ready for at least minReadySeconds) targeted by \
             this deployment.",
        ),
        AGE,
        CONTAINERS,
        IMAGES,
        Column::text(
            "Selector",
            "Label selector for pods. Existing ReplicaSets whose pods are selected by this will be the ones \
             affected by this deployment. It must match the pod template's labels.",
        )
        .wide(),
    ],
    cells: |row| {
        let (names, images) = template_containers(row);
        let selector = row.at("spec.selector").plain_selector();
        vec![
            row.name(),
            ready(row),
            row.at("status.updatedReplicas").int().into(),
            row.at("status.availableReplicas").int().into(),
            row.age(),
            names.into(),
            images.into(),
            selector.unwrap_or_else(|()| "<invalid>".to_owned()).into(),
        ]
    },
};

pub(super) const STATEFUL_SET: Printer = Printer {
    columns: &[NAME, READY, AGE, CONTAINERS, IMAGES],
    cells: |row| {
        let (names, images) = template_containers(row);
        vec![row.name(), ready(row), row.age(), names.into(), images.into()]
    },
};

fn ready(row: TableRow<'_>) -> Value {
    format!(
        "{}/{}",
        row.at("status.readyReplicas").int(),
        row.at("spec.replicas").int()
    )
    .into()
}

pub(super) const CONTROLLER_REVISION: Printer = Printer {
    columns: &[
        NAME,
        Column::text("Controller", "Controller of the object"),
        Column::text(
            "Revision",
            "Revision indicates the revision of the state represented by Data.",
        ),
        AGE,
    ],
    cells: |row| {
        let mut owners = row.at("metadata.ownerReferences").items();
        let controller = owners.find(|it| it.at("controller").flag());
        let controller = controller.map_or_else(|| "<none>".to_owned(), qualified_name);
        vec![
            row.name(),
            controller.into(),
            row.at("revision").int().into(),
            row.age(),
        ]
    },
};

/// Returns the qualified name of an owner: `statefulset.apps/web`.
fn qualified_name(owner: Field<'_>) -> String {
    let kind = owner.at("kind").text().to_ascii_lowercase();
    let name = owner.at("name").text();
    match owner.at("apiVersion").text().split_once('/') {
        Some((group, _)) => format!("{kind}.{}/{name}", group.to_ascii_lowercase()),
        None => format!("{kind}/{name}"),
    }
}

pub(super) const POD_DISRUPTION_BUDGET: Printer = Printer {
    columns: &[
        NAME,
        Column::text("Min Available", "The minimum number of pods that must be available."),
        Column::text("Max Unavailable", "The maximum number of pods that may be unavailable."),
        Column::integer(
            "Allowed Disruptions",
            "Calculated number of pods that may be disrupted at this time.",
        ),
        AGE,
    ],
    cells: |row| {
        let bound = |path: &str| {
            let field = row.at(path);
            if field.is_set() {
                field.print()
            } else {
                "N/A".to_owned()
            }
        };
        vec![
            row.name(),
            bound("spec.minAvailable").into(),
            bound("spec.maxUnavailable").into(),
            row.at("status.disruptionsAllowed").int().into(),
            row.age(),
        ]
    },
};
