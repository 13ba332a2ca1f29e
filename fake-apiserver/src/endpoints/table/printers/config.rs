//! Printers of ConfigMaps, Secrets, namespaces, quotas, Leases and similar kinds.

use super::super::columns::{AGE, Column, NAME};
use super::Printer;

pub(super) const CONFIG_MAP: Printer = Printer {
    columns: &[
        NAME,
        Column::text(
            "Data",
            "Data contains the configuration data. Each key must consist of alphanumeric characters, '-', '_' or \
         '.'. Values with non-UTF-8 byte sequences must use the BinaryData field. The keys stored in Data must \
         not overlap with the keys in the BinaryData field, this is enforced during validation process.",
        ),
        AGE,
    ],
    cells: |row| {
        vec![
            row.name(),
            (row.at("data").count() + row.at("binaryData").count()).into(),
            row.age(),
        ]
    },
};

pub(super) const SECRET: Printer = Printer {
    columns: &[
        NAME,
        Column::text(
            "Type",
            "Used to facilitate programmatic handling of secret data. More info: \
             https://kubernetes.io/docs/concepts/configuration/secret/#secret-types",
        ),
        Column::text(
            "Data",
            "Data contains the secret data. Each key must consist of alphanumeric characters, '-', '_' or '.'. \
             The serialized form of the secret data is a base64 encoded string, representing the arbitrary \
             (possibly non-string) data value here. Described in https://tools.ietf.org/html/rfc4648#section-4",
        ),
        AGE,
    ],
    cells: |row| {
        vec![
            row.name(),
            row.at("type").text().into(),
            row.at("data").count().into(),
            row.age(),
        ]
    },
};

pub(super) const NAMESPACE: Printer = Printer {
    columns: &[NAME, Column::text("Status", "The status of the namespace"), AGE],
    cells: |row| vec![row.name(), row.at("status.phase").text().into(), row.age()],
};

pub(super) const RESOURCE_QUOTA: Printer = Printer {
    columns: &[
        NAME,
        Column::text(
            "Request",
            "Request represents a minimum amount of cpu/memory that a container may consume.",
        ),
        Column::text(
            "Limit",
            "Limits control the maximum amount of cpu/memory that a container may use independent of contention \
             on the node.",
        ),
        AGE,
    ],
    cells: |row| {
        let (mut requests, mut limits) = (Vec::new(), Vec::new());
        for (resource, hard) in row.at("status.hard").entries() {
            let used = row.at("status.used").entries().find(|(it, _)| *it == resource);
            let used = used.map_or_else(|| "0".to_owned(), |(_, used)| used.print());
            let column = if resource.starts_with("limits.") {
                &mut limits
            } else {
                &mut requests
            };
            column.push(format!("{resource}: {used}/{}", hard.print()));
        }
        vec![
            row.name(),
            requests.join(", ").into(),
            limits.join(", ").into(),
            row.age(),
        ]
    },
};

pub(super) const COMPONENT_STATUS: Printer = Printer {
    columns: &[
        NAME,
        Column::text("Status", "Status of the component conditions"),
        Column::text("Message", "Message of the component conditions"),
        Column::text("Error", "Error of the component conditions"),
    ],
    cells: |row| {
        let Some(condition) = row.at("conditions").find("type", "Healthy") else {
            return vec![row.name(), "Unknown".into(), "".into(), "".into()];
        };
        let is_healthy = condition.at("status").text() == "True";
        vec![
            row.name(),
            if is_healthy { "Healthy" } else { "Unhealthy" }.into(),
            condition.at("message").text().into(),
            condition.at("error").text().into(),
        ]
    },
};

pub(super) const LEASE: Printer = Printer {
    columns: &[
        NAME,
        Column::text(
            "Holder",
            "holderIdentity contains the identity of the holder of a current lease. If Coordinated Leader Election \
         is used, the holder identity must be equal to the elected LeaseCandidate.metadata.name field.",
        ),
        AGE,
    ],
    cells: |row| vec![row.name(), row.at("spec.holderIdentity").text().into(), row.age()],
};

pub(super) const LEASE_CANDIDATE: Printer = Printer {
    columns: &[
        NAME,
        Column::text(
            "LeaseName",
            "LeaseName is the name of the lease for which this candidate is contending. This field is immutable.",
        ),
        Column::text("BinaryVersion", ""),
        Column::text("EmulationVersion", ""),
        AGE,
    ],
    cells: |row| {
        vec![
            row.name(),
            row.at("spec.leaseName").text().into(),
            row.at("spec.binaryVersion").text().into(),
            row.at("spec.emulationVersion").text().into(),
            row.age(),
        ]
    },
};
