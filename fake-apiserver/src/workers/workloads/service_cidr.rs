//! ServiceCIDRs: sets their condition `Ready` and their finalizer. Removes the finalizer of a ServiceCIDR that is being
//! deleted once no IPAddress needs it. Modelled on `pkg/controller/servicecidrs`.

use std::net::IpAddr;
use std::sync::Arc;

use jiff::ToSpan;

use super::cluster::Cluster;
use super::controller::{Changed, WorkloadController};
use super::plan::Plan;
use super::pods::{label, status, time};
use super::resource::{Resource, key_of};
use super::sees::{Sees, conditions, drop_condition, find_condition, new_condition};
use super::volumes::release;
use crate::api::json::json;
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::net::parse_cidr;
use crate::storage::Key;
use crate::workers::WorkerRow;

pub(crate) const ROW: WorkerRow = WorkerRow::workloads(
    "servicecidr",
    &[WorkloadController {
        concerns,
        ..WorkloadController::new(Resource::ServiceCIDR, "service-cidrs-controller", sync)
    }],
);

const FINALIZER: &str = "networking.k8s.io/service-cidr-finalizer";

/// Seconds after the deletion of a ServiceCIDR during which allocators may still use it.
const GRACE: i64 = 10;

const IN_USE: &str = "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new \
                      ServiceCIDR";

/// A range of IP addresses.
#[derive(Clone, Copy)]
struct Range {
    first: u128,
    length: u32,
    bits: u32,
}

/// Returns an address as a number, and its number of bits.
fn number(address: IpAddr) -> (u128, u32) {
    match address {
        IpAddr::V4(address) => (u128::from(u32::from(address)), 32),
        IpAddr::V6(address) => (u128::from(address), 128),
    }
}

impl Range {
    fn parse(text: &str) -> Option<Self> {
        let (address, length) = parse_cidr(text)?;
        let (first, bits) = number(address);
        Some(Self { first, length, bits })
    }

    /// Returns `true` if the first `length` bits of two numbers are equal.
    fn shares(&self, other: u128, length: u32) -> bool {
        (self.first ^ other).checked_shr(self.bits - length).unwrap_or(0) == 0
    }

    fn has(&self, address: IpAddr) -> bool {
        let (other, bits) = number(address);
        bits == self.bits && self.shares(other, self.length)
    }

    fn contains(&self, other: &Self) -> bool {
        self.bits == other.bits && self.length <= other.length && self.shares(other.first, self.length)
    }
}

/// Returns the ranges of a ServiceCIDR.
fn ranges(cidr: &Object) -> Vec<Range> {
    let cidr = Cursor::root(cidr);
    let texts = cidr.items("spec.cidrs");
    texts.filter_map(|it| Range::parse(it.as_text())).collect()
}

/// Returns the address of an IPAddress that was allocated by the server.
fn address_of(object: &Object) -> Option<IpAddr> {
    let is_allocated = label(object, "ipaddress.kubernetes.io/managed-by") == Some("ipallocator.k8s.io");
    object.name().parse().ok().filter(|_| is_allocated)
}

/// Returns the ServiceCIDRs that have a range for which `has` returns `true`.
fn with_range(cluster: &Cluster, has: impl Fn(&Range) -> bool) -> Vec<&Arc<Object>> {
    let all = cluster.all(Resource::ServiceCIDR);
    all.filter(|it| ranges(it).iter().any(&has)).collect()
}

/// Enqueues the ServiceCIDRs that overlap a new or removed ServiceCIDR, or that contain the address of a new or removed
/// IPAddress.
fn concerns(change: &Changed<'_>, cluster: &Cluster, add: &mut dyn FnMut(Key)) {
    let is_new_or_gone = change.old.is_none() || change.new.is_none();
    for object in change.versions().filter(|_| is_new_or_gone) {
        let found = match change.resource {
            Resource::ServiceCIDR => {
                let own = ranges(object);
                with_range(cluster, |it| own.iter().any(|own| it.contains(own) || own.contains(it)))
            }
            Resource::IPAddress => match address_of(object) {
                Some(address) => with_range(cluster, |it| it.has(address)),
                None => Vec::new(),
            },
            _ => return,
        };
        found.into_iter().for_each(|it| add(key_of(it)));
    }
}

/// Plans the work for a ServiceCIDR.
fn sync(cidr: &Object, sees: &Sees<'_>) -> Plan {
    let mut plan = Plan::default();
    if !cidr.is_terminating() {
        if !cidr.finalizers().any(|it| it == FINALIZER) {
            let all: Vec<&str> = cidr.finalizers().chain([FINALIZER]).collect();
            plan.merge(Resource::ServiceCIDR, cidr, json!({"metadata": {"finalizers": all}}));
        }
        show(cidr, ("True", "", "Kubernetes Service CIDR is ready"), sees, &mut plan);
    } else if is_needed(cidr, sees.cluster) {
        show(cidr, ("False", "Terminating", IN_USE), sees, &mut plan);
    } else {
        let deleted = time(cidr.meta_str("deletionTimestamp"));
        match deleted.and_then(|it| it.checked_add(GRACE.seconds()).ok()) {
            Some(end) if sees.now < end => plan.look_again(end),
            _ => release(Resource::ServiceCIDR, cidr, FINALIZER, &mut plan),
        }
    }
    plan
}

/// Returns `true` if a ServiceCIDR contains an allocated address that no other ServiceCIDR contains (`canDeleteCIDR`).
fn is_needed(cidr: &Object, cluster: &Cluster) -> bool {
    let is_alone = |found: &[&Arc<Object>]| found.iter().all(|it| it.name() == cidr.name());
    let own = ranges(cidr);
    if own
        .iter()
        .all(|own| !is_alone(&with_range(cluster, |it| it.contains(own))))
    {
        return false;
    }
    let mut addresses = cluster.all(Resource::IPAddress).filter_map(|it| address_of(it));
    addresses
        .any(|address| own.iter().any(|it| it.has(address)) && is_alone(&with_range(cluster, |it| it.has(address))))
}

/// Writes the condition `Ready`, given as status, reason and message, unless it is already set.
fn show(cidr: &Object, (word, reason, message): (&str, &str, &str), sees: &Sees<'_>, plan: &mut Plan) {
    let known = find_condition(status(cidr), "Ready");
    let has = |field: &str, text: &str| known.is_some_and(|it| Cursor::root(it).text(field) == text);
    if has("status", word) && has("reason", reason) && has("message", message) {
        return;
    }
    let mut condition = new_condition("Ready", word, reason, message, &sees.stamp());
    if let Some(since) = known
        .filter(|_| has("status", word))
        .and_then(|it| it.get("lastTransitionTime"))
    {
        condition.insert("lastTransitionTime".into(), since.clone());
    }
    let mut list = conditions(status(cidr));
    drop_condition(&mut list, "Ready");
    list.push(condition.into());
    let mut next = status(cidr).clone();
    next.insert("conditions".into(), list.into());
    plan.status(Resource::ServiceCIDR, cidr, next);
}
