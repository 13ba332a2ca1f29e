//! Services (rules T4, C8).

mod allocation;
mod ranges;
mod node_ports;
mod validation;
mod cluster_ips;
mod warnings;

pub(crate) use ranges::ClusterRange;
pub(crate) use validation::validate_protocol;

use serde_json::{Map, Value, json};

use super::plain;
use super::strategy::{Context, FieldLabels, Strategy};
use crate::api::field::FieldErrors;
use crate::api::object::Object;
use crate::api::status::Status;
use crate::registry::types::access::{
    at, default_absent, default_to, ensure_object, list, object_mut, objects_mut, restore, text,
};
use crate::registry::types::cursor::Cursor;
use crate::registry::types::{names, net};

/// Seconds a client stays with its backend.
const AFFINITY_SECONDS: i64 = 10_800;

/// The strategy of Services.
#[derive(Debug)]
pub(crate) struct Service;

impl Strategy for Service {
    fn default(&self, object: &mut Object) {
        default_spec(ensure_object(object, "spec"));
        let is_load_balancer = service_type(object) == "LoadBalancer";
        for ingress in objects_mut(object, "status.loadBalancer.ingress") {
            if is_load_balancer && !text(ingress, "ip").is_empty() {
                default_absent(ingress, "ipMode", "VIP");
            }
        }
    }

    fn warnings(&self, object: &Object, _old: Option<&Object>) -> Vec<String> {
        warnings::warnings_of(object)
    }

    fn status_warnings(&self, object: &Object) -> Vec<String> {
        net::warnings_of_points(&Cursor::root(object).at("status.loadBalancer.ingress"))
    }

    fn allocate(
        &self,
        object: &mut Object,
        old: Option<&Object>,
        errors: &mut FieldErrors,
        context: &Context<'_>,
    ) -> Result<(), Status> {
        if context.subresource.is_empty() {
            allocation::allocate(object, old, errors, context)?;
        }
        Ok(())
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        validation::validate(object, None, errors);
    }

    fn prepare_for_update(&self, object: &mut Object, old: &Object, context: &Context<'_>) {
        if context.subresource == "status" {
            restore(object, old, "spec");
        } else if service_type(object) != "LoadBalancer"
            && let Some(status) = object_mut(object, "status")
        {
            status.insert("loadBalancer".into(), serde_json::json!({}));
        }
    }

    fn validate_update(&self, object: &Object, old: &Object, errors: &mut FieldErrors, context: &Context<'_>) {
        if context.subresource.is_empty() {
            validation::validate_update(object, old, errors);
        } else if context.subresource == "status" {
            validation::validate_status(object, old, errors);
        }
    }

    fn validate_name(&self, name: &str, is_prefix: bool) -> Vec<String> {
        names::dns1123_label(name, is_prefix)
    }

    fn allows_create_on_update(&self) -> bool {
        true
    }

    fn returns_deleted_object(&self) -> bool {
        true
    }

    fn field_labels(&self) -> FieldLabels {
        plain::field_labels(&["spec.clusterIP", "spec.type"], true)
    }

    fn field_values(&self, object: &Object) -> Vec<(&'static str, String)> {
        let value = |label: &'static str| (label, text(object, label).to_owned());
        vec![value("spec.clusterIP"), value("spec.type")]
    }
}

fn default_spec(spec: &mut Map<String, Value>) {
    default_to(spec, "sessionAffinity", "None");
    match text(spec, "sessionAffinity") {
        "None" => {
            spec.remove("sessionAffinityConfig");
        }
        "ClientIP" if at(spec, "sessionAffinityConfig.clientIP.timeoutSeconds").is_none() => {
            let config = json!({"clientIP": {"timeoutSeconds": AFFINITY_SECONDS}});
            spec.insert("sessionAffinityConfig".into(), config);
        }
        _ => {}
    }
    default_to(spec, "type", "ClusterIP");
    for port in objects_mut(spec, "ports") {
        default_to(port, "protocol", "TCP");
        if port
            .get("targetPort")
            .is_none_or(|it| it == 0 || it == "" || it.is_null())
        {
            let number = port.get("port").cloned().unwrap_or(json!(0));
            port.insert("targetPort".into(), number);
        }
    }
    if is_externally_accessible(spec) {
        default_to(spec, "externalTrafficPolicy", "Cluster");
    }
    if matches!(text(spec, "type"), "NodePort" | "LoadBalancer" | "ClusterIP") {
        default_absent(spec, "internalTrafficPolicy", "Cluster");
    }
    if text(spec, "type") == "LoadBalancer" {
        default_absent(spec, "allocateLoadBalancerNodePorts", true);
    }
}

fn service_type(object: &Object) -> &str {
    text(object, "spec.type")
}

/// Returns `true` if traffic from outside reaches the Service, so that it has a policy for it.
fn is_externally_accessible(spec: &Map<String, Value>) -> bool {
    match text(spec, "type") {
        "LoadBalancer" | "NodePort" => true,
        "ClusterIP" => !list(spec, "externalIPs").is_empty(),
        _ => false,
    }
}

fn needs_cluster_ip(spec: &Map<String, Value>) -> bool {
    text(spec, "type") != "ExternalName"
}

/// Returns `true` if the Service may have node ports.
fn has_node_ports(spec: &Map<String, Value>) -> bool {
    matches!(text(spec, "type"), "NodePort" | "LoadBalancer")
}

/// Returns `true` if ports without a node port get one.
fn allocates_node_ports(spec: &Map<String, Value>) -> bool {
    match text(spec, "type") {
        "NodePort" => true,
        "LoadBalancer" => at(spec, "allocateLoadBalancerNodePorts") != Some(&Value::Bool(false)),
        _ => false,
    }
}

fn needs_health_check(spec: &Map<String, Value>) -> bool {
    text(spec, "type") == "LoadBalancer" && text(spec, "externalTrafficPolicy") == "Local"
}

fn is_headless(spec: &Map<String, Value>) -> bool {
    let ips = list(spec, "clusterIPs");
    ips.len() == 1 && ips[0] == "None"
}

#[cfg(test)]
mod tests;
