//! Validation of a Service.

use std::net::IpAddr;

use serde_json::{Map, Value};

use super::{is_externally_accessible, is_headless, needs_health_check};
use crate::api::field::{FieldError, FieldErrorKind, FieldErrors, FieldPath, quote};
use crate::api::object::Object;
use crate::registry::types::access::{at, is_empty, list, number, objects, text};
use crate::registry::types::{labels, names, net};

type Spec = Map<String, Value>;

const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";
const KUBELET_PORT: i64 = 10_250;

fn spec_of(object: &Object) -> Option<&Spec> {
    at(object, "spec").and_then(Value::as_object)
}

fn path(field: &str) -> FieldPath {
    FieldPath::new("spec").child(field)
}

pub(super) fn validate(object: &Object, errors: &mut FieldErrors) {
    let empty = Map::new();
    let spec = spec_of(object).unwrap_or(&empty);
    let service_type = text(spec, "type");
    if list(spec, "ports").is_empty() && !is_headless(spec) && service_type != "ExternalName" {
        errors.required(path("ports"), "");
    }
    validate_by_type(spec, errors);
    validate_ports(spec, errors);
    labels::validate_labels(at(spec, "selector"), || path("selector"), errors);
    validate_affinity(spec, errors);
    validate_cluster_ips(spec, errors);
    for (index, ip) in list(spec, "externalIPs").iter().enumerate() {
        let (ip, at) = (ip.as_str().unwrap_or_default(), path("externalIPs").index(index));
        if let Some(address) = net::validate_ip(ip, || at.clone(), errors) {
            net::validate_ordinary_ip(address, ip, &at, errors);
        }
    }
    match service_type {
        "ClusterIP" | "ExternalName" | "LoadBalancer" | "NodePort" => {}
        "" => errors.required(path("type"), ""),
        other => errors.not_supported(
            path("type"),
            other,
            &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"],
        ),
    }
    validate_port_uniqueness(spec, errors);
    validate_source_ranges(object, spec, errors);
    if service_type != "LoadBalancer" && at(spec, "allocateLoadBalancerNodePorts").is_some() {
        let text = "may only be used when `type` is 'LoadBalancer'";
        errors.forbidden(path("allocateLoadBalancerNodePorts"), text);
    }
    validate_load_balancer_class(spec, errors);
    validate_traffic(spec, errors);
}

fn validate_by_type(spec: &Spec, errors: &mut FieldErrors) {
    let service_type = text(spec, "type");
    match service_type {
        "LoadBalancer" | "NodePort" => {
            if service_type == "LoadBalancer" {
                for (index, port) in objects(spec, "ports") {
                    if number(port, "port") == Some(KUBELET_PORT) {
                        let text = "may not expose port 10250 externally since it is used by kubelet";
                        errors.invalid(path("ports").index(index), KUBELET_PORT, text);
                    }
                }
            }
            if is_headless(spec) {
                let text = format!("may not be set to 'None' for {service_type} services");
                errors.invalid(path("clusterIPs").index(0), "None", text);
            }
        }
        "ExternalName" => {
            for field in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
                if !is_empty(spec, field) {
                    errors.forbidden(path(field), "may not be set for ExternalName services");
                }
            }
            let name = text(spec, "externalName");
            let name = name.strip_suffix('.').unwrap_or(name);
            if name.is_empty() {
                errors.required(path("externalName"), "");
            } else {
                for text in names::dns1123_subdomain(name, false) {
                    errors.invalid(path("externalName"), name, text);
                }
            }
        }
        _ => {}
    }
}

fn validate_ports(spec: &Spec, errors: &mut FieldErrors) {
    let needs_name = list(spec, "ports").len() > 1;
    let mut seen: Vec<&str> = Vec::new();
    for (index, port) in objects(spec, "ports") {
        let path = path("ports").index(index);
        let name = text(port, "name");
        if !name.is_empty() {
            for text in names::dns1123_label(name, false) {
                errors.invalid(path.child("name"), name, text);
            }
            if seen.contains(&name) {
                errors.duplicate(path.child("name"), name);
            }
            seen.push(name);
        } else if needs_name {
            errors.required(path.child("name"), "");
        }
        net::validate_port_number(number(port, "port").unwrap_or(0), &path.child("port"), errors);
        validate_protocol(text(port, "protocol"), &path, errors);
        net::validate_port(port.get("targetPort"), &path.child("targetPort"), errors);
        if let Some(protocol) = at(port, "appProtocol").and_then(Value::as_str) {
            labels::validate_key(protocol, &path.child("appProtocol"), errors);
        }
    }
}

/// Checks the protocol of a port at `path`.
pub(crate) fn validate_protocol(protocol: &str, path: &FieldPath, errors: &mut FieldErrors) {
    match protocol {
        "TCP" | "UDP" | "SCTP" => {}
        "" => errors.required(path.child("protocol"), ""),
        other => errors.not_supported(path.child("protocol"), other, &["SCTP", "TCP", "UDP"]),
    }
}

fn validate_affinity(spec: &Spec, errors: &mut FieldErrors) {
    let config = path("sessionAffinityConfig");
    match text(spec, "sessionAffinity") {
        "None" => {
            if at(spec, "sessionAffinityConfig").is_some() {
                errors.forbidden(config, "must not be set when session affinity is None");
            }
        }
        "ClientIP" => {
            let seconds = number(spec, "sessionAffinityConfig.clientIP.timeoutSeconds");
            let path = config.child("clientIP.timeoutSeconds");
            match seconds {
                None => errors.required(path, "when session affinity type is ClientIP"),
                Some(1..=86_400) => {}
                Some(seconds) => errors.invalid(path, seconds, "must be greater than 0 and less than 86400"),
            }
        }
        "" => errors.required(path("sessionAffinity"), ""),
        other => errors.not_supported(path("sessionAffinity"), other, &["ClientIP", "None"]),
    }
}

/// Checks `clusterIP`, `clusterIPs`, `ipFamilies` and `ipFamilyPolicy` against each other.
pub(super) fn validate_cluster_ips(spec: &Spec, errors: &mut FieldErrors) {
    if text(spec, "type") == "ExternalName" {
        return;
    }
    let (ip, ips) = (text(spec, "clusterIP"), list(spec, "clusterIPs"));
    if !ip.is_empty() && ips.is_empty() {
        errors.required(path("clusterIPs"), "");
    } else if ip.is_empty() && !ips.is_empty() {
        errors.invalid(
            path("clusterIPs"),
            ips,
            "must be empty when `clusterIP` is not specified",
        );
    } else if ips.first().is_some_and(|first| first != ip) {
        errors.invalid(path("clusterIPs"), ips, "first value must match `clusterIP`");
    }
    if let Some(policy) = at(spec, "ipFamilyPolicy").and_then(Value::as_str)
        && !matches!(policy, "SingleStack" | "PreferDualStack" | "RequireDualStack")
    {
        let supported = ["PreferDualStack", "RequireDualStack", "SingleStack"];
        errors.not_supported(path("ipFamilyPolicy"), policy, &supported);
    }
    let families = list(spec, "ipFamilies");
    for (index, family) in families.iter().enumerate() {
        let path = path("ipFamilies").index(index);
        if family != "IPv4" && family != "IPv6" {
            errors.not_supported(path, family.clone(), &["IPv4", "IPv6"]);
        } else if families[..index].contains(family) {
            errors.duplicate(path, family.clone());
        }
    }
    let mut are_valid = true;
    for (index, ip) in ips.iter().enumerate() {
        let (ip, path) = (ip.as_str().unwrap_or_default(), path("clusterIPs").index(index));
        if ip == "None" {
            if ips.len() > 1 {
                errors.invalid(path, ip, "'None' must be the first and only value");
            }
            continue;
        }
        let Some(address) = net::validate_ip(ip, || path.clone(), errors) else {
            are_valid = false;
            continue;
        };
        let family = if address.is_ipv4() { "IPv4" } else { "IPv6" };
        if families.get(index).is_some_and(|wanted| wanted != family) {
            let wanted = families.get(index).and_then(Value::as_str).unwrap_or_default();
            let text = format!("expected an {wanted} value as indicated by `ipFamilies[{index}]`");
            errors.invalid(path, ip, text);
        }
    }
    if ips.len() > 2 {
        errors.invalid(path("clusterIPs"), ips, "may only hold up to 2 values");
    } else if ips.len() == 2 && are_valid {
        let is_v4 = |ip: &Value| matches!(ip.as_str().unwrap_or_default().parse(), Ok(IpAddr::V4(_)));
        if is_v4(&ips[0]) == is_v4(&ips[1]) {
            let text = "may specify no more than one IP for each IP family";
            errors.invalid(path("clusterIPs"), ips, text);
        }
    }
}

fn validate_port_uniqueness(spec: &Spec, errors: &mut FieldErrors) {
    let key = |port: &Spec, field| (text(port, "protocol").to_owned(), number(port, field).unwrap_or(0));
    if text(spec, "type") == "ClusterIP" {
        for (index, port) in objects(spec, "ports") {
            if key(port, "nodePort").1 != 0 {
                let path = path("ports").index(index).child("nodePort");
                errors.forbidden(path, "may not be used when `type` is 'ClusterIP'");
            }
        }
    }
    let mut seen = Vec::new();
    for (index, port) in objects(spec, "ports") {
        let key = key(port, "nodePort");
        if key.1 != 0 && seen.contains(&key) {
            errors.duplicate(path("ports").index(index).child("nodePort"), key.1);
        }
        seen.push(key);
    }
    let mut seen = Vec::new();
    for (index, port) in objects(spec, "ports") {
        let key = key(port, "port");
        if seen.contains(&key) {
            // The fields of the server's own type, in its order.
            let printed = format!(
                "{{\"Name\":\"\",\"Protocol\":{},\"AppProtocol\":null,\"Port\":{},\"TargetPort\":0,\"NodePort\":0}}",
                quote(&key.0),
                key.1
            );
            errors.push(FieldError {
                path: path("ports").index(index),
                kind: FieldErrorKind::Duplicate,
                value: None,
                detail: printed,
            });
        }
        seen.push(key);
    }
}

fn validate_source_ranges(object: &Object, spec: &Spec, errors: &mut FieldErrors) {
    let text_elsewhere = "may only be used when `type` is 'LoadBalancer'";
    let is_load_balancer = text(spec, "type") == "LoadBalancer";
    let ranges = list(spec, "loadBalancerSourceRanges");
    let annotations = object.metadata().and_then(|meta| meta.get("annotations"));
    let annotation = annotations.and_then(|it| it.get(SOURCE_RANGES)).and_then(Value::as_str);
    if !ranges.is_empty() {
        let path = path("LoadBalancerSourceRanges");
        if !is_load_balancer {
            errors.forbidden(path.clone(), text_elsewhere);
        }
        for (index, range) in ranges.iter().enumerate() {
            let range = range.as_str().unwrap_or_default().trim();
            net::validate_cidr(range, &path.index(index), errors);
        }
    } else if let Some(annotation) = annotation {
        let path = FieldPath::new("metadata.annotations").key(SOURCE_RANGES);
        if !is_load_balancer {
            errors.forbidden(path.clone(), text_elsewhere);
        }
        for range in annotation.split(',').filter(|_| !annotation.trim().is_empty()) {
            net::validate_cidr(range.trim(), &path, errors);
        }
    }
}

fn validate_load_balancer_class(spec: &Spec, errors: &mut FieldErrors) {
    let Some(class) = at(spec, "loadBalancerClass").and_then(Value::as_str) else {
        return;
    };
    if text(spec, "type") != "LoadBalancer" {
        let text = "may only be used when `type` is 'LoadBalancer'";
        errors.forbidden(path("loadBalancerClass"), text);
    } else {
        labels::validate_key(class, &path("loadBalancerClass"), errors);
    }
}

fn validate_traffic(spec: &Spec, errors: &mut FieldErrors) {
    let policy = text(spec, "externalTrafficPolicy");
    let policies = ["Cluster", "Local"];
    if !is_externally_accessible(spec) {
        if !policy.is_empty() {
            let text = "may only be set for externally-accessible services";
            errors.invalid(path("externalTrafficPolicy"), policy, text);
        }
    } else if policy.is_empty() {
        errors.required(path("externalTrafficPolicy"), "");
    } else if !policies.contains(&policy) {
        errors.not_supported(path("externalTrafficPolicy"), policy, &policies);
    }
    let port = number(spec, "healthCheckNodePort").unwrap_or(0);
    if needs_health_check(spec) {
        if port == 0 {
            errors.required(path("healthCheckNodePort"), "");
        } else {
            net::validate_port_number(port, &path("healthCheckNodePort"), errors);
        }
    } else if port != 0 {
        let text = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
        errors.invalid(path("healthCheckNodePort"), port, text);
    }
    let internal = text(spec, "internalTrafficPolicy");
    if !internal.is_empty() && !policies.contains(&internal) {
        errors.not_supported(path("internalTrafficPolicy"), internal, &policies);
    }
    if let Some(distribution) = at(spec, "trafficDistribution").and_then(Value::as_str) {
        let supported = ["PreferClose", "PreferSameZone", "PreferSameNode"];
        if !supported.contains(&distribution) {
            errors.not_supported(path("trafficDistribution"), distribution, &supported);
        }
    }
}

/// Validates the immutable fields.
pub(super) fn validate_update(object: &Object, old: &Object, errors: &mut FieldErrors) {
    let empty = Map::new();
    let (spec, old) = (spec_of(object).unwrap_or(&empty), spec_of(old).unwrap_or(&empty));
    let either_is_external = [spec, old].iter().any(|it| text(it, "type") == "ExternalName");
    let both_are_headless = is_headless(old) && is_headless(spec);
    if !either_is_external && !both_are_headless {
        let (ips, old_ips) = (list(spec, "clusterIPs"), list(old, "clusterIPs"));
        if ips.is_empty() && !old_ips.is_empty() {
            let text = "primary clusterIP can not be unset";
            errors.invalid(path("clusterIPs").index(0), ips, text);
        }
        for (index, (ip, old_ip)) in ips.iter().zip(old_ips).enumerate() {
            if ip != old_ip {
                errors.invalid(path("clusterIPs").index(index), ips, "may not change once set");
            }
        }
    }
    let (families, old_families) = (list(spec, "ipFamilies"), list(old, "ipFamilies"));
    if !either_is_external
        && let (Some(first), Some(old_first)) = (families.first(), old_families.first())
        && first != old_first
        && !(is_headless(spec) && is_empty(spec, "selector"))
    {
        errors.invalid(path("ipFamilies").index(0), families, "may not change once set");
    }
    let class = at(spec, "loadBalancerClass");
    let both_balance = [spec, old].iter().all(|it| text(it, "type") == "LoadBalancer");
    if both_balance && class != at(old, "loadBalancerClass") {
        let class = class.cloned().unwrap_or_default();
        errors.invalid(path("loadBalancerClass"), class, "may not change once set");
    }
    validate_load_balancer_class(spec, errors);
    if needs_health_check(old)
        && needs_health_check(spec)
        && number(old, "healthCheckNodePort") != number(spec, "healthCheckNodePort")
    {
        errors.forbidden(path("healthCheckNodePort"), "field is immutable");
    }
}

pub(super) fn validate_status(object: &Object, errors: &mut FieldErrors) {
    let service_type = text(object, "spec.type");
    let base = FieldPath::new("status.loadBalancer.ingress");
    if service_type != "LoadBalancer" && !list(object, "status.loadBalancer.ingress").is_empty() {
        errors.forbidden(base.clone(), "may only be used when `spec.type` is \"LoadBalancer\"");
        return;
    }
    for (index, ingress) in objects(object, "status.loadBalancer.ingress") {
        validate_ingress(ingress, &base.index(index), errors);
    }
}

/// Checks one address of a load balancer.
fn validate_ingress(ingress: &Spec, path: &FieldPath, errors: &mut FieldErrors) {
    let (ip, host) = (text(ingress, "ip"), text(ingress, "hostname"));
    if !ip.is_empty() {
        net::validate_ip(ip, || path.child("ip"), errors);
    }
    if let Some(mode) = at(ingress, "ipMode").and_then(Value::as_str) {
        if ip.is_empty() {
            errors.forbidden(path.child("ipMode"), "may not be specified when `ip` is not set");
        } else if !matches!(mode, "VIP" | "Proxy") {
            errors.not_supported(path.child("ipMode"), mode, &["Proxy", "VIP"]);
        }
    }
    if !host.is_empty() {
        for text in names::dns1123_subdomain(host, false) {
            errors.invalid(path.child("hostname"), host, text);
        }
        if host.parse::<IpAddr>().is_ok() {
            errors.invalid(path.child("hostname"), host, "must be a DNS name, not an IP address");
        }
    }
}
