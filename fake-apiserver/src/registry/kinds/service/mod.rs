//! The strategy of Services (rules T4, C8).

mod allocation;
mod ranges;
mod node_ports;
mod validation;
mod cluster_ips;
mod warnings;

pub(crate) use ranges::ClusterRange;
pub(crate) use validation::validate_protocol;

use super::facts::{Facts, FieldLabels};
use super::strategy::{Context, Strategy};
use crate::api::field::FieldErrors;
use crate::api::json::{Map, json};
use crate::api::kubernetes_version::KubernetesVersion;
use crate::api::object::Object;
use crate::api::status::Status;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::edit::{copy_field, default_text, default_value, ensure_object, items_mut, object_mut};
use crate::registry::types::{names, net};

/// Default timeout of session affinity, in seconds.
const AFFINITY_SECONDS: i64 = 10_800;

/// The strategy of Services.
#[derive(Debug)]
pub(crate) struct Service {
    /// The version of Kubernetes.
    pub(crate) version: KubernetesVersion,
}

impl Strategy for Service {
    fn facts(&self) -> &Facts {
        const RELAXED: Facts = Facts {
            name: names::dns1123_label,
            allows_create_on_update: true,
            returns_deleted_object: true,
            fields: FieldLabels::of(&["spec.clusterIP", "spec.type"], true),
            ..Facts::DEFAULT
        };
        match self.version.has_relaxed_service_names() {
            true => &RELAXED,
            false => &Facts {
                name: names::dns1035_label,
                ..RELAXED
            },
        }
    }

    fn default(&self, object: &mut Object) {
        default_spec(ensure_object(object, "spec"));
        let is_load_balancer = Cursor::root(object).text("spec.type") == "LoadBalancer";
        for ingress in items_mut(object, "status.loadBalancer.ingress") {
            if is_load_balancer && !Cursor::root(ingress).is_empty("ip") {
                default_value(ingress, "ipMode", "VIP");
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
        validation::validate(self.version, object, None, errors);
    }

    fn prepare_for_update(&self, object: &mut Object, old: &Object, context: &Context<'_>) {
        if context.subresource == "status" {
            copy_field(old, object, "spec");
        } else if Cursor::root(object).text("spec.type") != "LoadBalancer"
            && let Some(status) = object_mut(object, "status")
        {
            status.insert("loadBalancer".into(), json!({}));
        }
    }

    fn validate_update(&self, object: &Object, old: &Object, errors: &mut FieldErrors, context: &Context<'_>) {
        if context.subresource.is_empty() {
            validation::validate_update(self.version, object, old, errors);
        } else if context.subresource == "status" {
            validation::validate_status(object, old, errors);
        }
    }
}

fn default_spec(spec: &mut Map) {
    default_text(spec, "sessionAffinity", "None");
    match Cursor::root(spec).text("sessionAffinity") {
        "None" => {
            spec.remove("sessionAffinityConfig");
        }
        "ClientIP" if !Cursor::root(spec).is_set("sessionAffinityConfig.clientIP.timeoutSeconds") => {
            let config = json!({"clientIP": {"timeoutSeconds": AFFINITY_SECONDS}});
            spec.insert("sessionAffinityConfig".into(), config);
        }
        _ => {}
    }
    default_text(spec, "type", "ClusterIP");
    for port in items_mut(spec, "ports") {
        default_text(port, "protocol", "TCP");
        if port
            .get("targetPort")
            .is_none_or(|it| *it == 0 || it == "" || it.is_null())
        {
            let number = port.get("port").cloned().unwrap_or(json!(0));
            port.insert("targetPort".into(), number);
        }
    }
    let read = Cursor::root(spec);
    let is_accessible = is_externally_accessible(&read);
    let service_type = read.text("type").to_owned();
    if is_accessible {
        default_text(spec, "externalTrafficPolicy", "Cluster");
    }
    if matches!(service_type.as_str(), "NodePort" | "LoadBalancer" | "ClusterIP") {
        default_value(spec, "internalTrafficPolicy", "Cluster");
    }
    if service_type == "LoadBalancer" {
        default_value(spec, "allocateLoadBalancerNodePorts", true);
    }
}

/// Returns `true` if the Service accepts external traffic, and so has an `externalTrafficPolicy`.
fn is_externally_accessible(spec: &Cursor<'_>) -> bool {
    match spec.text("type") {
        "LoadBalancer" | "NodePort" => true,
        "ClusterIP" => !spec.is_empty("externalIPs"),
        _ => false,
    }
}

fn needs_cluster_ip(spec: &Cursor<'_>) -> bool {
    spec.text("type") != "ExternalName"
}

/// Returns `true` if the Service may have node ports.
fn has_node_ports(spec: &Cursor<'_>) -> bool {
    matches!(spec.text("type"), "NodePort" | "LoadBalancer")
}

/// Returns `true` if ports without a node port get one.
fn allocates_node_ports(spec: &Cursor<'_>) -> bool {
    match spec.text("type") {
        "NodePort" => true,
        "LoadBalancer" => spec.flag("allocateLoadBalancerNodePorts") != Some(false),
        _ => false,
    }
}

fn needs_health_check(spec: &Cursor<'_>) -> bool {
    spec.text("type") == "LoadBalancer" && spec.text("externalTrafficPolicy") == "Local"
}

fn is_headless(spec: &Cursor<'_>) -> bool {
    spec.texts("clusterIPs").eq(["None"])
}

#[cfg(test)]
mod tests;
