//! Printers of Nodes, RuntimeClasses, PriorityClasses and Workloads.

use std::collections::BTreeSet;

use super::super::columns::{AGE, Column, NAME};
use super::super::read::{Field, TableRow, or_none};
use super::Printer;
use crate::api::json::Value;

pub(super) const NODE: Printer = Printer {
    columns: &[
        NAME,
        Column::text("Status", "The status of the node"),
        Column::text("Roles", "The roles of the node"),
        AGE,
        Column::text("Version", "Kubelet Version reported by the node."),
        Column::text("Internal-IP", ADDRESSES).wide(),
        Column::text("External-IP", ADDRESSES).wide(),
        Column::text(
            "OS-Image",
            "OS Image reported by the node from /etc/os-release (e.g. Debian GNU/Linux 7 (wheezy)).",
        )
        .wide(),
        Column::text(
            "Kernel-Version",
            "Kernel Version reported by the node from 'uname -r' (e.g. 3.16.0-0.bpo.4-amd64).",
        )
        .wide(),
        Column::text(
            "Container-Runtime",
            "ContainerRuntime Version reported by the node through runtime remote API (e.g. containerd://1.4.2).",
        )
        .wide(),
    ],
    cells: node,
};
const ADDRESSES: &str = "List of addresses reachable to the node. Queried from cloud provider, if available. \
     More info: \
     https://kubernetes.io/docs/reference/node/node-status/#addresses Note: This field is declared as mergeable, \
     but the merge key is not sufficiently unique, which can cause data corruption when it is merged. Callers \
     should instead use a full-replacement patch. See https://pr.k8s.io/79391 for an example. Consumers should \
     assume that addresses can change during the lifetime of a Node. However, there are some exceptions where \
     this may not be possible, such as Pods that inherit a Node's address in its own status or consumers of the \
     downward API (status.hostIP).";

fn node(row: TableRow<'_>) -> Vec<Value> {
    // If a type occurs twice, the last condition applies.
    let ready = row
        .at("status.conditions")
        .items()
        .rev()
        .find(|it| it.at("type").text() == "Ready");
    let mut status = match ready.map(|it| it.at("status").text()) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }
    .to_owned();
    if row.at("spec.unschedulable").flag() {
        status.push_str(",SchedulingDisabled");
    }
    let address = |kind: &str| {
        let found = row.at("status.addresses").find("type", kind);
        found.map_or("<none>", |it| it.at("address").text())
    };
    let info = row.at("status.nodeInfo");
    vec![
        row.name(),
        status.into(),
        roles(row).into(),
        row.age(),
        info.at("kubeletVersion").text().into(),
        address("InternalIP").into(),
        address("ExternalIP").into(),
        info.at("osImage").text_or("<unknown>").into(),
        kernel(info).into(),
        info.at("containerRuntimeVersion").text_or("<unknown>").into(),
    ]
}

/// Returns the kernel version, followed by the machine's architecture if the Node reports it.
fn kernel(info: Field<'_>) -> String {
    let version = info.at("kernelVersion").text_or("<unknown>");
    match info.at("architecture").text() {
        "" => version.to_owned(),
        architecture => format!("{version} ({architecture})"),
    }
}

/// Returns the roles, which are labels: `node-role.kubernetes.io/<role>`, or `kubernetes.io/role=<role>`.
fn roles(row: TableRow<'_>) -> String {
    let labels = row.object.labels();
    let roles: BTreeSet<&str> = labels
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            None => (key == "kubernetes.io/role").then_some(value),
            role => role,
        })
        .filter(|role| !role.is_empty())
        .collect();
    or_none(roles.into_iter().collect::<Vec<_>>().join(","))
}

pub(super) const RUNTIME_CLASS: Printer = Printer {
    columns: &[NAME, Column::text("Handler", ""), AGE],
    cells: |row| vec![row.name(), row.at("handler").text().into(), row.age()],
};

pub(super) const WORKLOAD: Printer = Printer {
    columns: &[NAME, AGE],
    cells: |row| vec![row.name(), row.age()],
};

pub(super) const PRIORITY_CLASS: Printer = Printer {
    columns: &[
        NAME,
        Column::integer(
            "Value",
            "value represents the integer value of this priority class. This is the actual priority that pods \
             receive when they have the name of this class in their pod spec.",
        ),
        Column::boolean(
            "Global-Default",
            "globalDefault specifies whether this PriorityClass should be considered as the default priority \
             for pods that do not have any priority class. Only one PriorityClass can be marked as \
             `globalDefault`. However, if more than one PriorityClasses exists with their `globalDefault` field \
             set to true, the smallest value of such global default PriorityClasses will be used as the default \
             priority.",
        ),
        AGE,
        Column::text(
            "PreemptionPolicy",
            "preemptionPolicy is the Policy for preempting pods with lower priority. One of Never, \
             PreemptLowerPriority. Defaults to PreemptLowerPriority if unset.",
        ),
    ],
    cells: |row| {
        vec![
            row.name(),
            row.at("value").int().into(),
            row.at("globalDefault").flag().into(),
            row.age(),
            row.at("preemptionPolicy").text().into(),
        ]
    },
};
