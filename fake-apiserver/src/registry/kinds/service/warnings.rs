//! Warnings about Services (`pkg/api/service/warnings.go`).

use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::net::{warn_of_cidr, warn_of_ip};

const HINTS: &str = "service.kubernetes.io/topology-aware-hints";

/// Returns the warnings about a Service (`GetWarningsForService`).
pub(super) fn warnings_of(service: &Object) -> Vec<String> {
    let service = Cursor::root(service);
    let spec = service.at("spec");
    let mut warnings = Vec::new();
    if service
        .map("metadata.annotations")
        .is_some_and(|it| it.contains_key(HINTS))
    {
        warnings.push(format!(
            "annotation {HINTS} is deprecated, please use service.kubernetes.io/topology-mode instead"
        ));
    }
    let warn_each_ip = |list: &str, warnings: &mut Vec<String>| {
        warnings.extend(spec.items(list).filter_map(|ip| warn_of_ip(&ip.path(), ip.as_text())));
    };
    let (kind, cluster_ip) = (spec.text("type"), spec.text("clusterIP"));
    let is_external = kind == "ExternalName";
    let is_headless = kind == "ClusterIP" && cluster_ip == "None";
    if !is_external && !matches!(cluster_ip, "" | "None") {
        warn_each_ip("clusterIPs", &mut warnings);
    }
    let has = |field: &str| !spec.is_empty(field);
    if is_headless {
        for (is_ignored, shown) in [
            (has("loadBalancerIP"), "loadBalancerIP"),
            (has("externalIPs"), "externalIPs"),
            (spec.text("sessionAffinity") != "None", "SessionAffinity"),
        ] {
            if is_ignored {
                warnings.push(format!("spec.{shown} is ignored for headless services"));
            }
        }
    }
    warn_each_ip("externalIPs", &mut warnings);
    if has("externalIPs") && !is_headless && !is_external {
        let text = "spec.externalIPs is deprecated and may no longer be implemented in some clusters";
        warnings.push(text.to_owned());
    }
    if has("loadBalancerIP") {
        let ip = spec.at("loadBalancerIP");
        warnings.extend(warn_of_ip(&ip.path(), ip.as_text()));
    }
    for range in spec.items("loadBalancerSourceRanges") {
        warnings.extend(warn_of_cidr(&range.path(), range.as_text()));
    }
    if is_external && has("externalIPs") {
        warnings.push("spec.externalIPs is ignored when spec.type is \"ExternalName\"".to_owned());
    }
    if !is_external && has("externalName") {
        warnings.push("spec.externalName is ignored when spec.type is not \"ExternalName\"".to_owned());
    }
    if spec.text("trafficDistribution") == "PreferClose" {
        let text = "spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"";
        warnings.push(text.to_owned());
    }
    warnings
}
