//! Status conditions that controllers within kube-apiserver write after a client's write: `Dangling` of FlowSchemas
//! (`presyncFlowSchemaStatus` of `apiserver/pkg/util/flowcontrol`) and `Available` of APIServices (the remote
//! `AvailableConditionController` of kube-aggregator). kube-apiserver writes them asynchronously.

use std::sync::Arc;

use super::managed_fields::{self, Manager, Types};
use super::reader::Reader;
use super::registrations::API_SERVICES;
use super::remote::RemoteChecks;
use super::scheme::{Row, codec};
use super::types::cursor::Cursor;
use super::types::remote_server::RemoteServer;
use super::writer::Writer;
use crate::api::json::{Value, json};
use crate::api::object::Object;
use crate::storage::{Key, KeyRange, Stored};

const FLOW_SCHEMAS: &str = "flowcontrol.apiserver.k8s.io/flowschemas";
const PRIORITY_LEVELS: &str = "flowcontrol.apiserver.k8s.io/prioritylevelconfigurations";
const SLICES: &str = "discovery.k8s.io/endpointslices";
/// Field manager that applies the status of FlowSchemas.
const CONFIG_CONSUMER: &str = "api-priority-and-fairness-config-consumer-v1";
/// Reasons for an unavailable APIService that depend on its Service and EndpointSlices. Once these are available, a
/// condition with one of the reasons is replaced. A condition with a different reason, for example set by a test, is
/// kept.
const REASONS: [&str; 4] = [
    "ServiceNotFound",
    "ServicePortError",
    "EndpointsNotFound",
    "MissingEndpoints",
];

/// A status condition without its transition time.
struct Condition {
    kind: &'static str,
    status: &'static str,
    reason: &'static str,
    message: String,
}

impl Condition {
    /// Returns `true` if the object already has this condition.
    fn is_in(&self, object: &Cursor<'_>) -> bool {
        object.items("status.conditions").any(|it| {
            let found = ["type", "status", "reason", "message"].map(|field| it.text(field));
            found == [self.kind, self.status, self.reason, &self.message]
        })
    }

    fn to_value(&self, now: &str) -> Value {
        json!({
            "type": self.kind, "status": self.status, "lastTransitionTime": now,
            "reason": self.reason, "message": self.message,
        })
    }
}

/// Controllers that keep conditions up to date.
#[derive(Clone, Copy)]
pub(super) struct OwnLoops<'a> {
    pub(super) reader: &'a Reader,
    pub(super) writer: &'a Writer,
    pub(super) checks: &'a RemoteChecks,
}

impl OwnLoops<'_> {
    /// Updates the conditions that may depend on an object that was just written.
    pub(super) fn sync(&self, row: &Row, key: &Key) {
        match &*row.storage {
            FLOW_SCHEMAS => self.sync_flow_schema(row, key),
            PRIORITY_LEVELS => self.sync_all("flowcontrol.apiserver.k8s.io", "flowschemas"),
            API_SERVICES => self.sync_api_service(row, key),
            "services" | SLICES => self.sync_all("apiregistration.k8s.io", "apiservices"),
            _ => {}
        }
    }

    fn sync_all(&self, group: &str, resource: &str) {
        let Some(row) = self.reader.scheme().lookup(group, "v1", resource) else {
            return;
        };
        let everything = KeyRange::of(None);
        for stored in self.reader.store.snapshot(&row.storage).range(&everything) {
            match &*row.storage {
                FLOW_SCHEMAS => self.sync_flow_schema(&row, &stored.key),
                _ => self.sync_api_service(&row, &stored.key),
            }
        }
    }

    fn sync_flow_schema(&self, row: &Row, key: &Key) {
        let Some((stored, schema)) = self.present(row, key) else {
            return;
        };
        let level = Cursor::root(&schema)
            .text("spec.priorityLevelConfiguration.name")
            .to_owned();
        let is_there = self.reader.store.get(PRIORITY_LEVELS, &Key::new("", &level)).is_some();
        let condition = dangling(&level, is_there);
        if condition.is_in(&Cursor::root(&schema)) {
            return;
        }
        let now = self.reader.entropy.now_seconds();
        let applied = json!({
            "apiVersion": &*row.api_version, "kind": "FlowSchema", "metadata": {"name": schema.name()},
            "status": {"conditions": [condition.to_value(&now)]},
        });
        let Value::Object(applied) = applied else { return };
        let manager = own_manager(row, CONFIG_CONSUMER, &now);
        let types = Types {
            schema: row.schema(),
            other: &|object, version| row.in_version(object, version),
        };
        let kind = &row.info.kind;
        if let Ok(next) = managed_fields::apply(&types, Some(&schema), &Object(applied), &manager, kind, true) {
            self.store_own(row, &stored, &next);
        }
    }

    fn sync_api_service(&self, row: &Row, key: &Key) {
        let Some((stored, service)) = self.present(row, key) else {
            return;
        };
        let Some(remote) = RemoteServer::of(&service) else {
            return;
        };
        if self.reader.has_route(&remote) {
            return self.checks.add(&remote.name);
        }
        if let Some(condition) = self.availability(&Cursor::root(&service)) {
            self.store_condition(row, &stored, &service, &condition);
        }
    }

    /// Updates the condition of an APIService after a call to its server.
    pub(super) fn remote_called(&self, name: &str, result: Result<(), String>) {
        let Some(row) = self
            .reader
            .scheme()
            .lookup("apiregistration.k8s.io", "v1", "apiservices")
        else {
            return;
        };
        let Some((stored, service)) = self.present(&row, &Key::new("", name)) else {
            return;
        };
        let (status, reason, message) = match result {
            Ok(()) => ("True", "Passed", "all checks passed".to_owned()),
            Err(why) => ("False", "FailedDiscoveryCheck", why),
        };
        let condition = Condition {
            kind: "Available",
            status,
            reason,
            message,
        };
        self.store_condition(&row, &stored, &service, &condition);
    }

    fn store_condition(&self, row: &Row, stored: &Stored, service: &Object, condition: &Condition) {
        if condition.is_in(&Cursor::root(service)) {
            return;
        }
        let now = self.reader.entropy.now_seconds();
        let mut next = service.clone();
        let object = Cursor::root(service);
        let mut conditions = object.list("status.conditions").to_vec();
        let is_same_status = |it: &Value| it["type"] == condition.kind && it["status"] == condition.status;
        let since = conditions.iter().find(|it| is_same_status(it));
        let since = since.and_then(|it| it["lastTransitionTime"].as_str()).unwrap_or(&now);
        let condition_value = condition.to_value(since);
        conditions.retain(|it| it["type"] != condition.kind);
        conditions.push(condition_value);
        next.insert("status".into(), json!({"conditions": conditions}));
        let manager = own_manager(row, "kube-apiserver", &now);
        let types = Types {
            schema: row.schema(),
            other: &|object, version| row.in_version(object, version),
        };
        managed_fields::track_update(&types, Some(service), &mut next, &manager);
        self.store_own(row, stored, &next);
    }

    /// Returns the condition `Available` of an APIService if it can be set without a call to the server.
    fn availability(&self, service: &Cursor<'_>) -> Option<Condition> {
        let target = service.at("spec.service");
        if !target.is_set("") {
            return None;
        }
        let (namespace, name) = (target.text("namespace"), target.text("name"));
        let port = target.integer("port").unwrap_or(443);
        let unavailable = |reason, message| {
            Some(Condition {
                kind: "Available",
                status: "False",
                reason,
                message,
            })
        };
        let found = self.reader.scheme().lookup("", "v1", "services")?;
        let Some((_, backend)) = self.present(&found, &Key::new(namespace, name)) else {
            return unavailable(
                "ServiceNotFound",
                format!("service/{name} in {namespace:?} is not present"),
            );
        };
        let backend = Cursor::root(&backend);
        if backend.text("spec.type") == "ClusterIP" {
            let Some(port_name) = port_name(&backend, port) else {
                let text = format!("service/{name} in {namespace:?} is not listening on port {port}");
                return unavailable("ServicePortError", text);
            };
            let slices = self.slices_of(namespace, name);
            if slices.is_empty() {
                let text = format!("cannot find endpointslices for service/{name} in {namespace:?}");
                return unavailable("EndpointsNotFound", text);
            }
            if !slices
                .iter()
                .any(|it| has_ready_endpoint(&Cursor::root(it), &port_name))
            {
                let text = format!(
                    "endpointslices for service/{name} in {namespace:?} have no addresses with port name {port_name:?}"
                );
                return unavailable("MissingEndpoints", text);
            }
        }
        // kube-apiserver calls the server at this point. Without a route, the address of the server is unknown here.
        let mut conditions = service.items("status.conditions");
        let present = conditions.find(|it| it.text("type") == "Available");
        if present.is_none_or(|it| REASONS.contains(&it.text("reason"))) {
            let text = format!("no address is set for the service {name}.{namespace}.svc");
            return unavailable("FailedDiscoveryCheck", text);
        }
        None
    }

    fn slices_of(&self, namespace: &str, service: &str) -> Vec<Object> {
        let Some(row) = self.reader.scheme().lookup("discovery.k8s.io", "v1", "endpointslices") else {
            return Vec::new();
        };
        let range = KeyRange::of(Some(namespace));
        let snapshot = self.reader.store.snapshot(&row.storage);
        let slices = snapshot.range(&range).map(|stored| codec::decode(&row, stored));
        slices
            .filter(|it| {
                it.labels()
                    .any(|label| label == ("kubernetes.io/service-name", service))
            })
            .collect()
    }

    fn present(&self, row: &Row, key: &Key) -> Option<(Arc<Stored>, Object)> {
        let stored = self.reader.store.get(&row.storage, key)?;
        let object = codec::decode(row, &stored);
        Some((stored, object))
    }

    /// Stores the object. Does nothing if it has changed in the meantime, because the other write updates the
    /// conditions.
    fn store_own(&self, row: &Row, stored: &Stored, next: &Object) {
        if let Ok(codec::Encoded { body, .. }) = codec::encode(row, next) {
            let _ = self.writer.replace(row, stored, body);
        }
    }
}

fn own_manager<'a>(row: &'a Row, name: &'a str, now: &'a str) -> Manager<'a> {
    Manager {
        name,
        api_version: &row.api_version,
        subresource: "status",
        time: now,
        reset: row.unowned_paths("status"),
    }
}

fn dangling(level: &str, is_there: bool) -> Condition {
    let (status, reason, rest) = match is_there {
        true => ("False", "Found", "and it exists"),
        false => ("True", "NotFound", "but there is no such object"),
    };
    Condition {
        kind: "Dangling",
        status,
        reason,
        message: format!("This FlowSchema references the PriorityLevelConfiguration object named {level:?} {rest}"),
    }
}

/// Returns the name of a Service's port, which may be empty; `None` if the number is not among its ports.
fn port_name(service: &Cursor<'_>, number: i64) -> Option<String> {
    let spec = service.at("spec");
    let mut ports = spec.items("ports");
    ports
        .find(|it| it.integer("port") == Some(number))
        .map(|it| it.text("name").to_owned())
}

/// Returns `true` if a slice has a port with this name and a ready endpoint (Go's `hasAvailableEndpoint`).
fn has_ready_endpoint(slice: &Cursor<'_>, port_name: &str) -> bool {
    let has_port = slice.items("ports").any(|it| it.text("name") == port_name);
    has_port
        && slice
            .items("endpoints")
            .any(|it| it.flag("conditions.ready") != Some(false) && !it.is_empty("addresses"))
}
