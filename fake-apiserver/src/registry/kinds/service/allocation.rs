//! Allocation for a Service: cluster IPs, IP families and node ports; and their release when its type changes.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use serde_json::{Map, Value, json};

use super::{is_externally_accessible, is_headless, needs_cluster_ip, needs_health_check, needs_node_port, validation};
use crate::api::field::{FieldErrors, FieldPath};
use crate::api::object::Object;
use crate::registry::kinds::strategy::Context;
use crate::registry::types::access::{at, ensure_object, is_empty, list, number, objects, objects_mut, text};
use crate::registry::types::net::masked;

/// A range cluster IPs come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ClusterRange {
    first: Ipv4Addr,
    prefix: u32,
}

impl Default for ClusterRange {
    fn default() -> Self {
        Self {
            first: Ipv4Addr::new(10, 0, 0, 0),
            prefix: 16,
        }
    }
}

impl std::fmt::Display for ClusterRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.first, self.prefix)
    }
}

impl std::str::FromStr for ClusterRange {
    type Err = String;

    /// A range as kube-apiserver takes it in `--service-cluster-ip-range`, of IPv4 alone.
    fn from_str(text: &str) -> Result<Self, String> {
        let (address, prefix) = text.split_once('/').ok_or("there is no prefix length")?;
        let address: Ipv4Addr = address.parse().map_err(|_| format!("{address:?} is no IPv4 address"))?;
        let prefix: u32 = prefix.parse().map_err(|_| format!("{prefix:?} is no prefix length"))?;
        // As large as kube-apiserver takes it, and with room for two Services.
        if !(12..=30).contains(&prefix) {
            return Err(format!("the prefix length must be from 12 to 30, not {prefix}"));
        }
        let first = Ipv4Addr::from_bits(address.to_bits() >> (32 - prefix) << (32 - prefix));
        Ok(Self { first, prefix })
    }
}

impl ClusterRange {
    /// The first address of the range that is given away: the Service `default/kubernetes` has it.
    pub(crate) fn first_ip(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.first.to_bits() | 1)
    }

    /// Addresses of the range but its first and its last.
    fn len(self) -> u64 {
        (1 << (32 - self.prefix)) - 2
    }

    /// An address of the range, from the first that is given away on.
    fn at(self, index: u64) -> IpAddr {
        let offset = u32::try_from(index + 1).unwrap_or(1);
        IpAddr::V4(Ipv4Addr::from_bits(self.first.to_bits() | offset))
    }

    fn contains(self, address: IpAddr) -> bool {
        masked(address, self.prefix) == IpAddr::V4(self.first)
    }
}

/// The ranges of the stored ServiceCIDRs that are not about to go, in the order of their names; the default if there is
/// none.
fn ranges(context: &Context<'_>) -> Vec<ClusterRange> {
    let stored = (context.stored)("networking.k8s.io", "servicecidrs");
    let going = |cidr: &&Object| cidr.meta_str("deletionTimestamp").is_empty();
    let texts = stored.iter().filter(going).flat_map(|cidr| {
        let cidrs = at(cidr, "spec")
            .and_then(|spec| spec.get("cidrs"))
            .and_then(Value::as_array);
        cidrs.into_iter().flatten().filter_map(Value::as_str)
    });
    let ranges: Vec<ClusterRange> = texts.filter_map(|text| text.parse().ok()).collect();
    if ranges.is_empty() {
        vec![ClusterRange::default()]
    } else {
        ranges
    }
}
/// The range node ports come from.
const NODE_PORTS: std::ops::RangeInclusive<i64> = 30_000..=32_767;
const NODE_PORT_COUNT: u64 = 2_768;

type Spec = Map<String, Value>;

/// Fills in what the server allocates, and drops what a changed type no longer needs.
pub(super) fn allocate(object: &mut Object, old: Option<&Object>, errors: &mut FieldErrors, context: &Context<'_>) {
    let no_spec = Map::new();
    let old_spec = old.map(|old| at(old, "spec").and_then(Value::as_object).unwrap_or(&no_spec));
    let spec = ensure_object(object, "spec");
    normalize_cluster_ips(spec, old_spec);
    if let Some(old) = old_spec {
        keep_allocated(spec, old);
        drop_unneeded(spec, old);
    }
    if needs_cluster_ip(spec) {
        init_families(spec, errors);
    }
    if !errors.is_empty() {
        return;
    }
    let mut taken = None;
    allocate_cluster_ip(spec, old_spec, &mut taken, errors, context);
    allocate_node_ports(spec, old_spec, &mut taken, errors, context);
}

/// Allocations of other Services; read once, and only where something is to be allocated.
struct Taken {
    ips: BTreeSet<IpAddr>,
    ports: BTreeSet<i64>,
}

fn taken<'t>(slot: &'t mut Option<Taken>, old: Option<&Spec>, context: &Context<'_>) -> &'t mut Taken {
    slot.get_or_insert_with(|| {
        let mut taken = Taken {
            ips: BTreeSet::new(),
            ports: BTreeSet::new(),
        };
        for service in (context.stored)("", "services") {
            let Some(spec) = at(&service, "spec").and_then(Value::as_object) else {
                continue;
            };
            // What the Service itself has is its own to keep.
            if old == Some(spec) {
                continue;
            }
            let ips = list(spec, "clusterIPs").iter().filter_map(Value::as_str);
            taken.ips.extend(ips.filter_map(|ip| ip.parse::<IpAddr>().ok()));
            taken.ports.extend(node_ports(spec));
            taken.ports.extend(number(spec, "healthCheckNodePort"));
        }
        taken
    })
}

fn node_ports(spec: &Spec) -> impl Iterator<Item = i64> {
    objects(spec, "ports")
        .filter_map(|(_, port)| number(port, "nodePort"))
        .filter(|&port| port != 0)
}

/// Clients that know only `clusterIP` get `clusterIPs` filled in or cleared on their behalf.
fn normalize_cluster_ips(spec: &mut Spec, old: Option<&Spec>) {
    let ip = text(spec, "clusterIP").to_owned();
    let Some(old) = old else {
        if !ip.is_empty() && is_empty(spec, "clusterIPs") {
            spec.insert("clusterIPs".into(), json!([ip]));
        }
        return;
    };
    let old_ip = text(old, "clusterIP");
    if ip == old_ip {
        if is_empty(spec, "clusterIPs") && !is_empty(old, "clusterIPs") {
            spec.insert("clusterIPs".into(), list(old, "clusterIPs").into());
        }
    } else if list(spec, "clusterIPs") == list(old, "clusterIPs") {
        if ip.is_empty() {
            spec.remove("clusterIPs");
        } else {
            spec.insert("clusterIPs".into(), json!([ip]));
        }
    }
}

/// Puts allocated values back that the client left out.
fn keep_allocated(spec: &mut Spec, old: &Spec) {
    if needs_cluster_ip(old) && needs_cluster_ip(spec) {
        if is_empty(spec, "clusterIP") && !is_empty(old, "clusterIP") {
            spec.insert("clusterIP".into(), text(old, "clusterIP").into());
        }
        if is_empty(spec, "clusterIPs") && text(spec, "clusterIP") == text(old, "clusterIP") {
            let ips = list(old, "clusterIPs");
            if !ips.is_empty() {
                spec.insert("clusterIPs".into(), ips.into());
            }
        }
    }
    if needs_node_port(old) && needs_node_port(spec) {
        let stays: BTreeSet<i64> = node_ports(spec).collect();
        let mut used: BTreeSet<i64> = node_ports(old).filter(|port| stays.contains(port)).collect();
        for port in objects_mut(spec, "ports") {
            if number(port, "nodePort").unwrap_or(0) != 0 {
                continue;
            }
            let same_name = objects(old, "ports").find(|(_, it)| text(it, "name") == text(port, "name"));
            let former = same_name.and_then(|(_, it)| number(it, "nodePort")).unwrap_or(0);
            if former != 0 && used.insert(former) {
                port.insert("nodePort".into(), former.into());
            }
        }
    }
    if needs_health_check(old) && needs_health_check(spec) && is_zero(spec, "healthCheckNodePort") {
        let former = number(old, "healthCheckNodePort").unwrap_or(0);
        spec.insert("healthCheckNodePort".into(), former.into());
    }
}

fn is_zero(spec: &Spec, field: &str) -> bool {
    number(spec, field).unwrap_or(0) == 0
}

/// Drops what the new type does not need, where the client did not change it too.
fn drop_unneeded(spec: &mut Spec, old: &Spec) {
    let drop_same = |spec: &mut Spec, fields: &[&str]| {
        for field in fields {
            if spec.get(*field) == old.get(*field) {
                spec.remove(*field);
            }
        }
    };
    if needs_cluster_ip(old) && !needs_cluster_ip(spec) {
        let fields = ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"];
        drop_same(spec, &fields);
        drop_same(spec, &["internalTrafficPolicy"]);
    }
    if needs_node_port(old) && !needs_node_port(spec) && node_ports(spec).eq(node_ports(old)) {
        for port in objects_mut(spec, "ports") {
            port.remove("nodePort");
        }
    }
    if needs_health_check(old) && !needs_health_check(spec) {
        drop_same(spec, &["healthCheckNodePort"]);
    }
    if text(old, "type") == "LoadBalancer" && text(spec, "type") != "LoadBalancer" {
        drop_same(spec, &["allocateLoadBalancerNodePorts", "loadBalancerClass"]);
    }
    if is_externally_accessible(old) && !is_externally_accessible(spec) {
        drop_same(spec, &["externalTrafficPolicy"]);
    }
}

/// IP families of a cluster that has IPv4 alone.
fn init_families(spec: &mut Spec, errors: &mut FieldErrors) {
    validation::validate_cluster_ips(spec, errors);
    if !errors.is_empty() {
        return;
    }
    let mut families: Vec<Value> = list(spec, "ipFamilies").to_vec();
    // The endpoints of a headless Service without a selector are not managed, so it may have both families.
    let is_open = is_headless(spec) && is_empty(spec, "selector");
    if is_empty(spec, "ipFamilyPolicy") {
        let wants_both = is_open || families.len() > 1 || list(spec, "clusterIPs").len() > 1;
        let policy = if wants_both { "RequireDualStack" } else { "SingleStack" };
        spec.insert("ipFamilyPolicy".into(), policy.into());
    }
    let policy = text(spec, "ipFamilyPolicy");
    if is_open {
        if families.is_empty() {
            families.push("IPv4".into());
        }
        if policy != "SingleStack" && families.len() == 1 {
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
    if families.is_empty() {
        let first = list(spec, "clusterIPs")
            .first()
            .and_then(Value::as_str)
            .unwrap_or_default();
        let is_v6 = matches!(first.parse(), Ok(IpAddr::V6(_)));
        families.push(if is_v6 { "IPv6" } else { "IPv4" }.into());
    }
    for index in 0..families.len() {
        if families[index] != "IPv4" {
            let path = FieldPath::new("spec.ipFamilies").index(index);
            errors.invalid(path, families.clone(), "not configured on this cluster");
        }
    }
    spec.insert("ipFamilies".into(), families.into());
}

fn allocate_cluster_ip(
    spec: &mut Spec,
    old: Option<&Spec>,
    slot: &mut Option<Taken>,
    errors: &mut FieldErrors,
    context: &Context<'_>,
) {
    if !needs_cluster_ip(spec) || is_headless(spec) {
        return;
    }
    // A Service that has an address keeps it; that it may not change is for validation to say.
    if old.is_some_and(|old| needs_cluster_ip(old) && !is_empty(old, "clusterIPs")) {
        return;
    }
    let taken = taken(slot, old, context);
    let ip = text(spec, "clusterIP");
    if ip.is_empty() {
        let free = ranges(context).into_iter().find_map(|range| {
            let start = context.entropy.below(range.len());
            (0..range.len())
                .map(|step| range.at((start + step) % range.len()))
                .find(|ip| !taken.ips.contains(ip))
        });
        let Some(free) = free else {
            let text = "failed to allocate a serviceIP: range is full";
            errors.invalid(FieldPath::new("spec.clusterIPs"), Value::Null, text);
            return;
        };
        spec.insert("clusterIP".into(), free.to_string().into());
        spec.insert("clusterIPs".into(), json!([free.to_string()]));
        return;
    }
    let Ok(address) = ip.parse::<IpAddr>() else {
        return;
    };
    let ranges = ranges(context);
    let why = if !ranges.iter().any(|range| range.contains(address)) {
        let valid: Vec<String> = ranges.iter().map(ToString::to_string).collect();
        let valid = valid.join(", ");
        format!("the provided IP ({ip}) is not in the valid range. The range of valid IPs is {valid}")
    } else if taken.ips.contains(&address) {
        "provided IP is already allocated".to_owned()
    } else {
        return;
    };
    let text = format!("failed to allocate IP {ip}: {why}");
    errors.invalid(FieldPath::new("spec.clusterIPs"), list(spec, "clusterIPs"), text);
}

fn allocate_node_ports(
    spec: &mut Spec,
    old: Option<&Spec>,
    slot: &mut Option<Taken>,
    errors: &mut FieldErrors,
    context: &Context<'_>,
) {
    // A LoadBalancer that wants none allocated may still name its own.
    let needs = needs_node_port(spec);
    if !needs && text(spec, "type") != "LoadBalancer" {
        return;
    }
    let kept: BTreeSet<i64> = old.map(|old| node_ports(old).collect()).unwrap_or_default();
    let mut own: Vec<(i64, String)> = Vec::new();
    for (index, port) in objects_mut(spec, "ports").enumerate() {
        let path = || FieldPath::new("spec.ports").index(index).child("nodePort");
        let protocol = text(port, "protocol").to_owned();
        let wanted = number(port, "nodePort").unwrap_or(0);
        if wanted != 0 {
            // TCP and UDP of one Service may share a number.
            let shared = own.iter().any(|(it, other)| *it == wanted && *other != protocol);
            if !kept.contains(&wanted) && !shared {
                claim(wanted, taken(slot, old, context), path, errors);
            }
            own.push((wanted, protocol));
        } else if needs {
            let taken = taken(slot, old, context);
            if let Some(free) = next_node_port(taken, &kept, context) {
                taken.ports.insert(free);
                port.insert("nodePort".into(), free.into());
                own.push((free, protocol));
            } else {
                errors.invalid(path(), wanted, "failed to allocate a nodePort: range is full");
            }
        }
    }
    if needs_health_check(spec) {
        let path = || FieldPath::new("spec.healthCheckNodePort");
        let wanted = number(spec, "healthCheckNodePort").unwrap_or(0);
        let former = old.and_then(|old| number(old, "healthCheckNodePort"));
        if wanted == 0 {
            let free = next_node_port(taken(slot, old, context), &kept, context);
            spec.insert("healthCheckNodePort".into(), free.unwrap_or(0).into());
        } else if former != Some(wanted) {
            claim(wanted, taken(slot, old, context), path, errors);
        }
    }
}

/// Takes the port the client asks for.
fn claim(port: i64, taken: &mut Taken, path: impl Fn() -> FieldPath, errors: &mut FieldErrors) {
    if !NODE_PORTS.contains(&port) {
        let (first, last) = (NODE_PORTS.start(), NODE_PORTS.end());
        let text = format!("provided port is not in the valid range. The range of valid ports is {first}-{last}");
        errors.invalid(path(), port, text);
    } else if !taken.ports.insert(port) {
        errors.invalid(path(), port, "provided port is already allocated");
    }
}

fn next_node_port(taken: &Taken, kept: &BTreeSet<i64>, context: &Context<'_>) -> Option<i64> {
    let start = context.entropy.below(NODE_PORT_COUNT);
    (0..NODE_PORT_COUNT)
        .filter_map(|step| i64::try_from((start + step) % NODE_PORT_COUNT).ok())
        .map(|offset| NODE_PORTS.start() + offset)
        .find(|port| !taken.ports.contains(port) && !kept.contains(port))
}
