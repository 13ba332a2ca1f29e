//! Printers of ResourceClaims and ResourceSlices.

use super::super::columns::{AGE, Column, NAME};
use super::Printer;

pub(super) const RESOURCE_CLAIM: Printer = Printer {
    columns: &[
        NAME,
        Column::text(
            "State",
            "A summary of the current state (allocated, pending, reserved, etc.).",
        ),
        AGE,
    ],
    cells: |row| {
        let mut states = Vec::new();
        if row.is_terminating() {
            states.push("deleted");
        }
        if row.at("status.allocation").is_set() {
            states.push("allocated");
            if row.at("status.reservedFor").count() > 0 {
                states.push("reserved");
            }
        } else if !row.is_terminating() {
            states.push("pending");
        }
        vec![row.name(), states.join(",").into(), row.age()]
    },
};

pub(super) const RESOURCE_SLICE: Printer = Printer {
    columns: &[
        NAME,
        Column::text(
            "Node",
            "NodeName identifies the node which provides the resources in this pool. A field selector can be \
             used to list only ResourceSlice objects belonging to a certain node.\n\nThis field can be used to \
             limit access from nodes to ResourceSlices with the same node name. It also indicates to autoscalers \
             that adding new nodes of the same type as some old node might also make new resources \
             available.\n\nExactly one of NodeName, NodeSelector, AllNodes, and PerDeviceNodeSelection must be \
             set. This field is immutable.",
        ),
        Column::text(
            "Driver",
            "Driver identifies the DRA driver providing the capacity information. A field selector can be used \
             to list only ResourceSlice objects with a certain driver name.\n\nMust be a DNS subdomain and \
             should end with a DNS domain owned by the vendor of the driver. It should use only lower case \
             characters. This field is immutable.",
        ),
        Column::text(
            "Pool",
            "Name is used to identify the pool. For node-local devices, this is often the node name, but this \
             is not required.\n\nIt must not be longer than 253 characters and must consist of one or more DNS \
             sub-domains separated by slashes. This field is immutable.",
        ),
        AGE,
    ],
    cells: |row| {
        vec![
            row.name(),
            row.at("spec.nodeName").text().into(),
            row.at("spec.driver").text().into(),
            row.at("spec.pool.name").text().into(),
            row.age(),
        ]
    },
};
