//! Printers of the kinds that configure kube-apiserver: flow control, storage versions, aggregated APIs.

use super::super::columns::{AGE, Column, NAME, NAME_DOC};
use super::super::read::{TableRow, with_more};
use super::Printer;
use crate::api::json::Value;

pub(super) const FLOW_SCHEMA: Printer = Printer {
    columns: &[
        NAME,
        Column::text(
            "PriorityLevel",
            "`name` is the name of the priority level configuration being referenced Required.",
        ),
        Column::text(
            "MatchingPrecedence",
            "`matchingPrecedence` is used to choose among the FlowSchemas that match a given request. The \
             chosen FlowSchema is among those with the numerically lowest (which we take to be logically \
             highest) MatchingPrecedence.  Each MatchingPrecedence value must be ranged in [1,10000]. Note that \
             if the precedence is not specified, it will be set to 1000 as default.",
        ),
        Column::text(
            "DistinguisherMethod",
            "`distinguisherMethod` defines how to compute the flow distinguisher for requests that match this \
             schema. `nil` specifies that the distinguisher is disabled and thus will always be the empty string.",
        ),
        AGE,
        Column::text(
            "MissingPL",
            "references a broken or non-existent PriorityLevelConfiguration",
        ),
    ],
    cells: |row| {
        let method = row.at("spec.distinguisherMethod");
        let dangling = row.at("status.conditions").find("type", "Dangling");
        vec![
            row.name(),
            row.at("spec.priorityLevelConfiguration.name").text().into(),
            row.at("spec.matchingPrecedence").int().into(),
            if method.is_set() {
                method.at("type").text()
            } else {
                "<none>"
            }
            .into(),
            row.age(),
            dangling.map_or("?", |it| it.at("status").text()).into(),
        ]
    },
};

pub(super) const PRIORITY_LEVEL: Printer = Printer {
    columns: &[
        NAME,
        Column::text(
            "Type",
            "`type` indicates whether this priority level is subject to limitation on request execution.  A \
             value of `\"Exempt\"` means that requests of this priority level are not subject to a limit (and \
             thus are never queued) and do not detract from the capacity made available to other priority \
             levels.  A value of `\"Limited\"` means that (a) requests of this priority level _are_ subject to \
             limits and (b) some of the server's limited capacity is made available exclusively to this priority \
             level. Required.",
        ),
        Column::text(
            "NominalConcurrencyShares",
            "`nominalConcurrencyShares` (NCS) contributes to the computation of the NominalConcurrencyLimit \
             (NominalCL) of this level. This is the number of execution seats available at this priority level. \
             This is used both for requests dispatched from this priority level as well as requests dispatched \
             from other priority levels borrowing seats from this level. The server's concurrency limit \
             (ServerCL) is divided among the Limited priority levels in proportion to their NCS \
             values:\n\nNominalCL(i)  = ceil( ServerCL * NCS(i) / sum_ncs ) sum_ncs = sum[priority level k] \
             NCS(k)\n\nBigger numbers mean a larger nominal concurrency limit, at the expense of every other \
             priority level.\n\nIf not specified, this field defaults to a value of 30.\n\nSetting this field to \
             zero supports the construction of a \"jail\" for this priority level that is used to hold some \
             request(s)",
        ),
        Column::text(
            "Queues",
            "`queues` is the number of queues for this priority level. The queues exist independently at each \
             apiserver. The value must be positive.  Setting it to 1 effectively precludes shufflesharding and \
             thus makes the distinguisher method of associated flow schemas irrelevant.  This field has a \
             default value of 64.",
        ),
        Column::text(
            "HandSize",
            "`handSize` is a small positive number that configures the shuffle sharding of requests into \
             queues.  When enqueuing a request at this priority level the request's flow identifier (a string \
             pair) is hashed and the hash value is used to shuffle the list of queues and deal a hand of the \
             size specified here.  The request is put into one of the shortest queues in that hand. `handSize` \
             must be no larger than `queues`, and should be significantly smaller (so that a few heavy flows do \
             not saturate most of the queues).  See the user-facing documentation for more extensive guidance on \
             setting this field.  This field has a default value of 8.",
        ),
        Column::text(
            "QueueLengthLimit",
            "`queueLengthLimit` is the maximum number of requests allowed to be waiting in a given queue of \
             this priority level at a time; excess requests are rejected.  This value must be positive.  If not \
             specified, it will be defaulted to 50.",
        ),
        AGE,
    ],
    cells: |row| {
        let limited = row.at("spec.limited");
        let queuing = limited.at("limitResponse.queuing");
        let number = |is_set: bool, value: i64| if is_set { Value::from(value) } else { "<none>".into() };
        vec![
            row.name(),
            row.at("spec.type").text().into(),
            number(limited.is_set(), limited.at("nominalConcurrencyShares").int()),
            number(queuing.is_set(), queuing.at("queues").int()),
            number(queuing.is_set(), queuing.at("handSize").int()),
            number(queuing.is_set(), queuing.at("queueLengthLimit").int()),
            row.age(),
        ]
    },
};

pub(super) const STORAGE_VERSION: Printer = Printer {
    columns: &[
        NAME,
        Column::text(
            "CommonEncodingVersion",
            "commonEncodingVersion is set to an encoding storage version if all API server instances share that same \
             version. If they don't share one storage version, this field is left empty. API servers should finish \
             updating its storageVersionStatus entry before serving write operations, so that this field will be in \
             sync with the reality.",
        ),
        Column::text("StorageVersions", "The reported versions per API server instance."),
        AGE,
    ],
    cells: |row| {
        let common = row.at("status.commonEncodingVersion");
        let versions = row.at("status.storageVersions").items();
        let versions: Vec<String> = versions
            .map(|it| format!("{}={}", it.at("apiServerID").text(), it.at("encodingVersion").text()))
            .collect();
        let versions = if versions.is_empty() {
            "<unset>".to_owned()
        } else {
            with_more(&versions, 3)
        };
        vec![
            row.name(),
            if common.is_set() { common.text() } else { "<unset>" }.into(),
            versions.into(),
            row.age(),
        ]
    },
};

pub(super) const STORAGE_VERSION_MIGRATION: Printer = Printer {
    columns: &[
        Column::text("Name", NAME_DOC),
        Column::text("Resource", "Fully qualified resource to migrate"),
    ],
    cells: migration,
};

fn migration(row: TableRow<'_>) -> Vec<Value> {
    let resource = row.at("spec.resource");
    let parts = ["resource", "version", "group"].map(|it| resource.at(it));
    let parts: Vec<&str> = parts.iter().filter(|it| it.is_set()).map(|it| it.text()).collect();
    vec![row.name(), parts.join(".").into()]
}

pub(super) const API_SERVICE: Printer = Printer {
    columns: &[
        NAME,
        Column::text("Service", "The reference to the service that hosts this API endpoint."),
        Column::text("Available", "Whether this service is available."),
        AGE,
    ],
    cells: |row| {
        let service = row.at("spec.service");
        let service = if service.is_set() {
            format!("{}/{}", service.at("namespace").text(), service.at("name").text())
        } else {
            "Local".to_owned()
        };
        let available = row.at("status.conditions").find("type", "Available");
        let available = available.map_or_else(
            || "Unknown".to_owned(),
            |it| match (it.at("status").text(), it.at("reason").text()) {
                ("True", _) => "True".to_owned(),
                (status, "") => status.to_owned(),
                (status, reason) => format!("{status} ({reason})"),
            },
        );
        vec![row.name(), service.into(), available.into(), row.age()]
    },
};
