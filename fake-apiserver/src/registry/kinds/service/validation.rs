//! Validation of a Service (`validateService`, `ValidateServiceUpdate` and `ValidateServiceStatusUpdate` in
//! `pkg/apis/core/validation`).

use std::collections::BTreeSet;

use super::cluster_ips::{validate_change, validate_cluster_ips};
use super::{is_externally_accessible, is_headless, needs_health_check};
use crate::api::field::{FieldError, FieldErrorKind, FieldErrors, FieldPath, quote};
use crate::api::json::{Value, json};
use crate::api::kubernetes_version::KubernetesVersion;
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::{labels, names, net};

const HINTS: &str = "service.kubernetes.io/topology-aware-hints";
const MODE: &str = "service.kubernetes.io/topology-mode";
const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";
const LOAD_BALANCER_ONLY: &str = "may only be used when `type` is 'LoadBalancer'";
const TRAFFIC_POLICIES: [&str; 2] = ["Cluster", "Local"];

/// Checks a new or updated Service (`validateService`).
pub(super) fn validate(version: KubernetesVersion, object: &Object, old: Option<&Object>, errors: &mut FieldErrors) {
    let (root, old) = (Cursor::root(object), old.map(|old| Cursor::root(old)));
    let (spec, old_spec) = (root.at("spec"), old.as_ref().map(|old| old.at("spec")));
    validate_topology(&root, errors);
    let service_type = spec.text("type");
    if spec.is_empty("ports") && !is_headless(&spec) && service_type != "ExternalName" {
        errors.required(spec.at("ports"), "");
    }
    validate_by_type(&spec, is_headless(&spec), errors);
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    let needs_name = spec.list("ports").len() > 1;
    for port in spec.items("ports") {
        validate_port(&port, needs_name, &mut seen, errors);
    }
    labels::validate_labels(&spec.at("selector"), errors);
    validate_affinity(&spec, errors);
    validate_cluster_ips(&spec, old_spec.as_ref(), errors);
    let kept = old_spec.as_ref().map(|old| old.list("externalIPs")).unwrap_or_default();
    for ip in spec.items("externalIPs") {
        if ip.check_legacy_ip(kept, errors) {
            net::validate_endpoint_ip(&ip, errors);
        }
    }
    let types = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
    spec.at("type").check_required_one_of(&types, errors);
    validate_port_uniqueness(&spec, errors);
    validate_source_ranges(&root, old.as_ref(), errors);
    let allocates = spec.at("allocateLoadBalancerNodePorts");
    match (service_type == "LoadBalancer", allocates.is_set("")) {
        (false, true) => errors.forbidden(allocates, LOAD_BALANCER_ONLY),
        (true, false) => errors.required(FieldPath::new("allocateLoadBalancerNodePorts"), ""),
        (true, true) | (false, false) => {}
    }
    validate_load_balancer_class(&spec, errors);
    validate_traffic(version, &spec, errors);
}

fn validate_topology(service: &Cursor<'_>, errors: &mut FieldErrors) {
    let annotations = service.at("metadata.annotations");
    let value = |key: &str| annotations.map("")?.get(key)?.as_str();
    if let (Some(mode), Some(hints)) = (value(MODE), value(HINTS))
        && mode != hints
    {
        let text = format!("must match annotations[{HINTS}] when both are specified");
        errors.invalid(annotations.path().key(MODE), mode, text);
    }
}

fn validate_by_type(spec: &Cursor<'_>, headless: bool, errors: &mut FieldErrors) {
    match spec.text("type") {
        service_type @ ("LoadBalancer" | "NodePort") if headless => {
            let text = format!("may not be set to 'None' for {service_type} services");
            errors.invalid(spec.at("clusterIPs").path().index(0), "None", text);
        }
        "ExternalName" => {
            for field in ["clusterIPs", "ipFamilies"] {
                if !spec.is_empty(field) {
                    errors.forbidden(spec.at(field), "may not be set for ExternalName services");
                }
            }
            if spec.is_set("ipFamilyPolicy") {
                errors.forbidden(spec.at("ipFamilyPolicy"), "may not be set for ExternalName services");
            }
            let path = spec.at("externalName");
            let name = path.as_text().strip_suffix('.').unwrap_or(path.as_text());
            match name.is_empty() {
                true => errors.required(path, ""),
                false => path.refuse(name, names::dns1123_subdomain(name, false), errors),
            }
        }
        _ => {}
    }
}

/// Checks a port (`validateServicePort`).
fn validate_port<'a>(port: &Cursor<'a>, needs_name: bool, seen: &mut BTreeSet<&'a str>, errors: &mut FieldErrors) {
    let name = port.at("name");
    match port.get("name").and_then(Value::as_str).unwrap_or_default() {
        "" if needs_name => errors.required(name, ""),
        "" => {}
        text => {
            name.check_label(errors);
            if seen.contains(&text) {
                errors.duplicate(name, text);
            }
            seen.insert(text);
        }
    }
    port.at("port").check_port_number(errors);
    validate_protocol(&port.at("protocol"), errors);
    port.at("targetPort").check_port(errors);
    let protocol = port.at("appProtocol");
    if protocol.is_set("") {
        labels::validate_key(&protocol, errors);
    }
}

/// Checks the protocol of a port.
pub(crate) fn validate_protocol(protocol: &Cursor<'_>, errors: &mut FieldErrors) {
    protocol.check_required_one_of(&["SCTP", "TCP", "UDP"], errors);
}

fn validate_affinity(spec: &Cursor<'_>, errors: &mut FieldErrors) {
    let affinity = spec.at("sessionAffinity");
    affinity.check_required_one_of(&["ClientIP", "None"], errors);
    let config = spec.at("sessionAffinityConfig");
    match affinity.as_text() {
        "None" if config.is_set("") => {
            errors.forbidden(config, "must not be set when session affinity is None");
        }
        "ClientIP" => {
            let missing = ["", "clientIP", "clientIP.timeoutSeconds"];
            if let Some(way) = missing.into_iter().find(|way| !config.is_set(way)) {
                let path = if way.is_empty() {
                    config.path()
                } else {
                    config.at(way).path()
                };
                errors.required(path, "when session affinity type is ClientIP");
                return;
            }
            let seconds = config.at("clientIP.timeoutSeconds");
            if let Some(value) = seconds.integer("").filter(|it| !(1..=86_400).contains(it)) {
                errors.invalid(seconds, value, "must be greater than 0 and less than 86400");
            }
        }
        _ => {}
    }
}

fn validate_port_uniqueness(spec: &Cursor<'_>, errors: &mut FieldErrors) {
    let key = |port: &Cursor<'_>, field: &str| (port.text("protocol").to_owned(), port.integer(field).unwrap_or(0));
    if spec.text("type") == "ClusterIP" {
        for port in spec.items("ports") {
            if key(&port, "nodePort").1 != 0 {
                errors.forbidden(port.at("nodePort"), "may not be used when `type` is 'ClusterIP'");
            }
        }
    }
    let mut seen = BTreeSet::new();
    for port in spec.items("ports") {
        let key = key(&port, "nodePort");
        if key.1 != 0 && seen.contains(&key) {
            errors.duplicate(port.at("nodePort"), key.1);
        }
        seen.insert(key);
    }
    let mut seen = BTreeSet::new();
    for port in spec.items("ports") {
        let key = key(&port, "port");
        if seen.contains(&key) {
            // The error prints the fields in the order of kube-apiserver's internal type.
            let printed = format!(
                "{{\"Name\":\"\",\"Protocol\":{},\"AppProtocol\":null,\"Port\":{},\"TargetPort\":0,\"NodePort\":0}}",
                quote(&key.0),
                key.1
            );
            errors.push(FieldError {
                path: port.path(),
                kind: FieldErrorKind::Duplicate,
                value: None,
                detail: printed,
            });
        }
        seen.insert(key);
    }
}

fn validate_source_ranges(service: &Cursor<'_>, old: Option<&Cursor<'_>>, errors: &mut FieldErrors) {
    let is_load_balancer = service.text("spec.type") == "LoadBalancer";
    let annotation = |service: &Cursor<'_>| {
        let value = service.map("metadata.annotations")?.get(SOURCE_RANGES)?.as_str()?;
        Some(value.to_owned())
    };
    if !service.is_empty("spec.loadBalancerSourceRanges") {
        let path = FieldPath::new("spec.LoadBalancerSourceRanges");
        if !is_load_balancer {
            errors.forbidden(path.clone(), LOAD_BALANCER_ONLY);
        }
        let former = old
            .map(|old| old.list("spec.loadBalancerSourceRanges"))
            .unwrap_or_default();
        let kept: Vec<Value> = former
            .iter()
            .map(|it| json!(it.as_str().unwrap_or_default().trim()))
            .collect();
        for (index, range) in service.list("spec.loadBalancerSourceRanges").iter().enumerate() {
            let range = json!(range.as_str().unwrap_or_default().trim());
            let path = path.index(index);
            Cursor::value_at(Some(&range), &path).check_legacy_cidr(&kept, errors);
        }
    } else if let Some(ranges) = annotation(service) {
        let path = FieldPath::new("metadata.annotations").key(SOURCE_RANGES);
        if !is_load_balancer {
            errors.forbidden(path.clone(), LOAD_BALANCER_ONLY);
        }
        let is_kept = old.and_then(annotation).as_ref() == Some(&ranges);
        for range in ranges.split(',').filter(|_| !is_kept && !ranges.trim().is_empty()) {
            let range = json!(range.trim());
            Cursor::value_at(Some(&range), &path).check_legacy_cidr(&[], errors);
        }
    }
}

fn validate_load_balancer_class(spec: &Cursor<'_>, errors: &mut FieldErrors) {
    let class = spec.at("loadBalancerClass");
    if !class.is_set("") {
        return;
    }
    if spec.text("type") == "LoadBalancer" {
        labels::validate_key(&class, errors);
    } else {
        errors.forbidden(class, LOAD_BALANCER_ONLY);
    }
}

fn validate_traffic(version: KubernetesVersion, spec: &Cursor<'_>, errors: &mut FieldErrors) {
    let policy = spec.at("externalTrafficPolicy");
    if is_externally_accessible(spec) {
        policy.check_required_one_of(&TRAFFIC_POLICIES, errors);
    } else if !policy.as_text().is_empty() {
        let text = "may only be set for externally-accessible services";
        errors.invalid(policy, policy.as_text(), text);
    }
    let port = spec.at("healthCheckNodePort");
    let number = port.integer("").unwrap_or(0);
    match (needs_health_check(spec), number) {
        (true, 0) => errors.required(port, ""),
        (true, _) => port.check_port_number(errors),
        (false, 0) => {}
        (false, number) => {
            let text = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
            errors.invalid(port, number, text);
        }
    }
    let internal = spec.at("internalTrafficPolicy");
    if internal.is_set("") {
        internal.check_one_of(&TRAFFIC_POLICIES, errors);
    } else if matches!(spec.text("type"), "ClusterIP" | "LoadBalancer" | "NodePort") {
        errors.required(internal, "");
    }
    // The newer values depend on the gate PreferSameTrafficDistribution, which is enabled since 1.34.
    let distributions: &[&str] = match version >= KubernetesVersion::V1_34 {
        true => &["PreferClose", "PreferSameZone", "PreferSameNode"],
        false => &["PreferClose"],
    };
    spec.at("trafficDistribution").check_one_of(distributions, errors);
}

/// Checks an update of a Service (`ValidateServiceUpdate`).
pub(super) fn validate_update(version: KubernetesVersion, object: &Object, old: &Object, errors: &mut FieldErrors) {
    let (root, old_root) = (Cursor::root(object), Cursor::root(old));
    let (spec, old_spec) = (root.at("spec"), old_root.at("spec"));
    validate_change(&spec, &old_spec, errors);
    let class = spec.at("loadBalancerClass");
    let both_balance = [&spec, &old_spec].iter().all(|it| it.text("type") == "LoadBalancer");
    if both_balance && !spec.same(&old_spec, "loadBalancerClass") {
        errors.invalid(class, class.to_value(), "may not change once set");
    }
    validate_load_balancer_class(&spec, errors);
    if needs_health_check(&old_spec)
        && needs_health_check(&spec)
        && old_spec.integer("healthCheckNodePort") != spec.integer("healthCheckNodePort")
    {
        errors.forbidden(spec.at("healthCheckNodePort"), "field is immutable");
    }
    validate(version, object, Some(old), errors);
}

/// Checks the load balancer status (`ValidateLoadBalancerStatus`).
pub(super) fn validate_status(object: &Object, old: &Object, errors: &mut FieldErrors) {
    let object = Cursor::root(object);
    let ingress = object.at("status.loadBalancer.ingress");
    if object.text("spec.type") != "LoadBalancer" && !ingress.is_empty("") {
        errors.forbidden(ingress, "may only be used when `spec.type` is 'LoadBalancer'");
        return;
    }
    let former = Cursor::root(old).list("status.loadBalancer.ingress");
    let kept: Vec<Value> = former.iter().filter_map(|it| it.get("ip").cloned()).collect();
    for address in ingress.items("") {
        validate_address(&address, &kept, errors);
    }
}

/// Checks one address of a load balancer.
fn validate_address(address: &Cursor<'_>, kept: &[Value], errors: &mut FieldErrors) {
    let (ip, host, mode) = (address.at("ip"), address.at("hostname"), address.at("ipMode"));
    if !ip.as_text().is_empty() {
        ip.check_legacy_ip(kept, errors);
    }
    match (mode.is_set(""), ip.as_text().is_empty()) {
        (false, false) => errors.required(mode, "must be specified when `ip` is set"),
        (true, true) => errors.forbidden(mode, "may not be specified when `ip` is not set"),
        (true, false) => mode.check_one_of(&["Proxy", "VIP"], errors),
        (false, true) => {}
    }
    host.check_subdomain(errors);
    if net::parse_sloppy(host.as_text()).is_some() {
        errors.invalid(host, host.as_text(), "must be a DNS name, not an IP address");
    }
}
