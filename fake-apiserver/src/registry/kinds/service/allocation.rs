//! Allocates cluster IPs and IP families of Services, and releases them when the type of a Service changes. Follows
//! `storage.go` and `alloc.go` in `pkg/registry/core/service/storage`.

use std::collections::BTreeSet;

use super::cluster_ips::validate_cluster_ips;
use super::ranges::{Taken, choose, node_ports, ranges};
use super::{has_node_ports, is_externally_accessible, needs_cluster_ip, needs_health_check, node_ports as ports};
use crate::api::field::{FieldErrors, FieldPath};
use crate::api::json::{Map, Value, json};
use crate::api::object::Object;
use crate::api::status::Status;
use crate::registry::kinds::strategy::Context;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::edit::{ensure_object, items_mut};
use crate::registry::types::net;

const SINGLE_STACK: &str = "SingleStack";

/// Fills in the fields that the server allocates, and drops fields that are not needed after a change of the type.
/// Returns `Err` for errors that are not about a field.
pub(super) fn allocate(
    object: &mut Object,
    old: Option<&Object>,
    errors: &mut FieldErrors,
    context: &Context<'_>,
) -> Result<(), Status> {
    let name = object.name().to_owned();
    let old = old.map(|old| Cursor::root(old));
    let old_spec = old.as_ref().map(|old| old.at("spec"));
    let old_spec = old_spec.as_ref();
    let spec = ensure_object(object, "spec");
    if let Some(old) = old_spec {
        keep_allocated(spec, old);
    }
    normalize_cluster_ips(spec, old_spec);
    if !is_unchanged_dual_stack(&Cursor::root(spec), old_spec) {
        init_families(spec, old_spec, errors);
        if errors.is_empty() {
            allocate_cluster_ip(spec, old_spec, &name, errors, context)?;
        }
    }
    if errors.is_empty() {
        ports::allocate(spec, old_spec, errors, context)?;
    }
    if let Some(old) = old_spec
        && errors.is_empty()
    {
        drop_unneeded(spec, old);
    }
    // kube-apiserver stores this field, but never returns it (`defaultOnReadInternalTrafficPolicy`).
    if Cursor::root(spec).text("type") == "ExternalName"
        && matches!(Cursor::root(spec).text("internalTrafficPolicy"), "Cluster" | "Local")
    {
        spec.remove("internalTrafficPolicy");
    }
    Ok(())
}

/// Fills in or clears `clusterIPs` for clients that only set `clusterIP` (`normalizeClusterIPs`).
fn normalize_cluster_ips(spec: &mut Map, old: Option<&Cursor<'_>>) {
    let ip = Cursor::root(spec).text("clusterIP").to_owned();
    let Some(old) = old else {
        if !ip.is_empty() && Cursor::root(spec).is_empty("clusterIPs") {
            spec.insert("clusterIPs".into(), json!([ip]));
        }
        return;
    };
    let old_ip = old.text("clusterIP");
    if ip == old_ip {
        if Cursor::root(spec).is_empty("clusterIPs") && !old.is_empty("clusterIPs") {
            spec.insert("clusterIPs".into(), old.list("clusterIPs").into());
        }
    } else if Cursor::root(spec).list("clusterIPs") == old.list("clusterIPs") {
        if ip.is_empty() {
            spec.remove("clusterIPs");
        } else {
            spec.insert("clusterIPs".into(), json!([ip]));
        }
    }
}

/// Restores allocated values that the client omitted (`patchAllocatedValues`).
fn keep_allocated(spec: &mut Map, old: &Cursor<'_>) {
    if needs_cluster_ip(old) && needs_cluster_ip(&Cursor::root(spec)) {
        if Cursor::root(spec).is_empty("clusterIP") && !old.is_empty("clusterIP") {
            spec.insert("clusterIP".into(), old.text("clusterIP").into());
        }
        if Cursor::root(spec).is_empty("clusterIPs") && !old.is_empty("clusterIPs") {
            spec.insert("clusterIPs".into(), old.list("clusterIPs").into());
        }
    }
    if has_node_ports(old) && has_node_ports(&Cursor::root(spec)) {
        let stays: BTreeSet<i64> = node_ports(&Cursor::root(spec)).collect();
        let used: BTreeSet<i64> = node_ports(old).filter(|port| stays.contains(port)).collect();
        for port in items_mut(spec, "ports") {
            if Cursor::root(port).integer("nodePort").unwrap_or(0) != 0 {
                continue;
            }
            let same_name = old
                .items("ports")
                .filter(|it| it.text("name") == Cursor::root(port).text("name"));
            let former = same_name.last().and_then(|it| it.integer("nodePort")).unwrap_or(0);
            if former != 0 && !used.contains(&former) {
                port.insert("nodePort".into(), former.into());
            }
        }
    }
    if needs_health_check(old)
        && needs_health_check(&Cursor::root(spec))
        && Cursor::root(spec).integer("healthCheckNodePort").unwrap_or(0) == 0
    {
        let former = old.integer("healthCheckNodePort").unwrap_or(0);
        spec.insert("healthCheckNodePort".into(), former.into());
    }
}

/// Drops fields that the new type does not need, unless the client also changed them (`dropTypeDependentFields`).
fn drop_unneeded(spec: &mut Map, old: &Cursor<'_>) {
    let drop_same = |spec: &mut Map, fields: &[&str]| {
        if same(&Cursor::root(spec), old, fields) {
            for field in fields {
                spec.remove(field);
            }
        }
    };
    if needs_cluster_ip(old) && !needs_cluster_ip(&Cursor::root(spec)) {
        drop_same(spec, &["clusterIP", "clusterIPs"]);
        drop_same(spec, &["ipFamilies"]);
        drop_same(spec, &["ipFamilyPolicy"]);
    }
    if has_node_ports(old) && !has_node_ports(&Cursor::root(spec)) {
        let former: BTreeSet<i64> = node_ports(old).collect();
        if node_ports(&Cursor::root(spec)).all(|port| former.contains(&port)) {
            for port in items_mut(spec, "ports") {
                port.remove("nodePort");
            }
        }
    }
    if needs_health_check(old) && !needs_health_check(&Cursor::root(spec)) {
        drop_same(spec, &["healthCheckNodePort"]);
    }
    if old.text("type") == "LoadBalancer" && Cursor::root(spec).text("type") != "LoadBalancer" {
        drop_same(spec, &["allocateLoadBalancerNodePorts"]);
        drop_same(spec, &["loadBalancerClass"]);
    }
    if is_externally_accessible(old) && !is_externally_accessible(&Cursor::root(spec)) {
        drop_same(spec, &["externalTrafficPolicy"]);
    }
}

fn policy_of<'a>(spec: &Cursor<'a>) -> Option<&'a str> {
    spec.get("ipFamilyPolicy").and_then(Value::as_str)
}

fn same(spec: &Cursor<'_>, old: &Cursor<'_>, fields: &[&str]) -> bool {
    fields.iter().all(|field| spec.same(old, field))
}

/// Returns `true` if a Service that prefers dual-stack keeps its type, cluster IPs and IP families
/// (`isMatchingPreferDualStackClusterIPFields`).
fn is_unchanged_dual_stack(spec: &Cursor<'_>, old: Option<&Cursor<'_>>) -> bool {
    let prefers = |it: &Cursor<'_>| policy_of(it).is_none_or(|policy| policy == "PreferDualStack");
    old.is_some_and(|old| {
        policy_of(spec).is_some()
            && needs_cluster_ip(spec)
            && prefers(spec)
            && prefers(old)
            && same(spec, old, &["type", "clusterIPs", "ipFamilies"])
    })
}

/// Fills in the IP families and their policy, for a cluster that only supports IPv4 (`initIPFamilyFields`).
fn init_families(spec: &mut Map, old: Option<&Cursor<'_>>, errors: &mut FieldErrors) {
    if Cursor::root(spec).text("type") == "ExternalName" {
        return;
    }
    // Kubernetes does not manage the endpoints of headless Services without a selector, so they may have both families.
    let is_open = Cursor::root(spec).text("clusterIP") == "None" && Cursor::root(spec).is_empty("selector");
    if policy_of(&Cursor::root(spec)).is_none() {
        let policy = match old.and_then(policy_of) {
            Some(policy) => policy,
            None if is_open => "RequireDualStack",
            None => SINGLE_STACK,
        };
        spec.insert("ipFamilyPolicy".into(), policy.into());
    }
    let path = FieldPath::new("spec");
    validate_cluster_ips(&Cursor::map_at(spec, &path), old, errors);
    if !errors.is_empty() {
        return;
    }
    let policy = policy_of(&Cursor::root(spec)).unwrap_or_default().to_owned();
    check_policy(spec, old, &policy, errors);
    let mut families: Vec<Value> = Cursor::root(spec).list("ipFamilies").to_vec();
    for (index, ip) in Cursor::root(spec).list("clusterIPs").iter().enumerate() {
        if ip == "None" {
            break;
        }
        let is_v6 = net::parse_sloppy(ip.as_str().unwrap_or_default()).is_some_and(|it| it.is_ipv6());
        if index < families.len() {
            continue;
        }
        if is_v6 {
            let path = FieldPath::new("spec.clusterIPs").index(index);
            let text = "IPv6 is not configured on this cluster";
            errors.invalid(path, Cursor::root(spec).list("clusterIPs"), text);
        } else {
            families.push("IPv4".into());
        }
    }
    if !errors.is_empty() {
        return;
    }
    if is_open {
        if families.is_empty() {
            families.push("IPv4".into());
        }
        if policy != SINGLE_STACK && families.len() == 1 {
            let other = if families[0] == "IPv4" { "IPv6" } else { "IPv4" };
            families.push(other.into());
        }
        spec.insert("ipFamilies".into(), families.into());
        return;
    }
    if policy == "RequireDualStack" {
        let text = "this cluster is not configured for dual-stack services";
        errors.invalid(FieldPath::new("spec.ipFamilyPolicy"), policy, text);
    }
    for (index, family) in families.iter().enumerate().filter(|(_, family)| *family != "IPv4") {
        let path = FieldPath::new("spec.ipFamilies").index(index);
        errors.invalid(path, family.clone(), "not configured on this cluster");
    }
    if families.is_empty() {
        families.push("IPv4".into());
    }
    spec.insert("ipFamilies".into(), families.into());
}

/// Checks that the policy is consistent with the addresses and the families. If the policy is single-stack, drops an
/// unchanged secondary address or family.
fn check_policy(spec: &mut Map, old: Option<&Cursor<'_>>, policy: &str, errors: &mut FieldErrors) {
    const FIELDS: [(&str, &str, &str); 2] = [
        ("clusterIPs", "cluster IP", "cluster IPs"),
        ("ipFamilies", "IP family", "IP families"),
    ];
    let path = || FieldPath::new("spec.ipFamilyPolicy");
    if let Some(old) = old {
        for (field, one, _) in FIELDS {
            let items = Cursor::root(spec).list(field);
            if policy == SINGLE_STACK {
                if same(&Cursor::root(spec), old, &[field]) && items.len() > 1 {
                    let first = items[..1].to_vec();
                    spec.insert(field.into(), first.into());
                }
            } else if !items.is_empty() && items.len() < old.list(field).len() {
                let text = format!("must be 'SingleStack' to release the secondary {one}");
                errors.invalid(path(), policy, text);
            }
        }
    }
    if policy == SINGLE_STACK {
        for (field, _, many) in FIELDS {
            if Cursor::root(spec).list(field).len() == 2 {
                let text =
                    format!("must be 'RequireDualStack' or 'PreferDualStack' when multiple {many} are specified");
                errors.invalid(path(), policy, text);
            }
        }
    }
}

fn allocate_cluster_ip(
    spec: &mut Map,
    old: Option<&Cursor<'_>>,
    name: &str,
    errors: &mut FieldErrors,
    context: &Context<'_>,
) -> Result<(), Status> {
    if Cursor::root(spec).text("type") == "ExternalName"
        || Cursor::root(spec)
            .list("clusterIPs")
            .first()
            .is_some_and(|it| it == "None")
    {
        return Ok(());
    }
    // A Service keeps its address. Changes are refused by validation.
    if old.is_some_and(|old| old.text("type") != "ExternalName") {
        return Ok(());
    }
    let ip = Cursor::root(spec)
        .list("clusterIPs")
        .first()
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    if ip.is_empty() {
        let free = free_ip(old, context);
        let full = || format!("failed to allocate a serviceIP for Service {name:?}: range is full");
        let free = free.ok_or_else(|| Status::internal(full()))?;
        if name.is_empty() && !context.dry_run {
            let detail = format!("failed to allocate IP: {}", nameless(&free));
            errors.invalid(FieldPath::new("spec.clusterIPs"), json!([""]), detail);
            return Ok(());
        }
        spec.insert("clusterIP".into(), free.clone().into());
        spec.insert("clusterIPs".into(), json!([free]));
        return Ok(());
    }
    let nameless = (name.is_empty() && !context.dry_run).then(|| nameless(&ip));
    if let Some(why) = wrong_ip(&ip, old, context).or(nameless) {
        let text = format!("failed to allocate IP {ip}: {why}");
        errors.invalid(
            FieldPath::new("spec.clusterIPs"),
            Cursor::root(spec).list("clusterIPs"),
            text,
        );
    }
    Ok(())
}

/// Returns the error for a Service without a name: the IPAddress object cannot refer to the Service.
fn nameless(ip: &str) -> String {
    format!("IPAddress.networking.k8s.io \"{ip}\" is invalid: spec.parentRef.name: Required value")
}

/// Returns a free address (`AllocateNext`). In a dry run, returns the network address of the first range.
fn free_ip(old: Option<&Cursor<'_>>, context: &Context<'_>) -> Option<String> {
    let ranges = ranges(context);
    if context.dry_run {
        return ranges.first().map(|range| range.network().to_string());
    }
    let taken = Taken::read(old, context);
    ranges.into_iter().find_map(|range| {
        let is_free = |index| !taken.ips.contains(&range.at(index).into());
        let index = choose(range.len(), range.reserved(), context, is_free)?;
        Some(range.at(index).to_string())
    })
}

/// Returns the reason why an address that the client requests cannot be allocated (`Allocate`). A dry run only checks
/// the first range, and ignores other Services.
fn wrong_ip(ip: &str, old: Option<&Cursor<'_>>, context: &Context<'_>) -> Option<String> {
    let address = net::parse_sloppy(ip)?;
    let ranges = ranges(context);
    let range = match context.dry_run {
        true => ranges.first(),
        false => ranges.iter().find(|range| range.contains(address)),
    };
    let Some(range) = range else {
        return Some("the provided network does not match the current range".to_owned());
    };
    if !range.gives_away(address) {
        let text = "is not in the valid range. The range of valid IPs is";
        return Some(format!("the provided IP ({address}) {text} {range}"));
    }
    let is_taken = !context.dry_run && Taken::read(old, context).ips.contains(&address);
    is_taken.then(|| "provided IP is already allocated".to_owned())
}
