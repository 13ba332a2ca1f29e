//! The ranges of cluster IPs and node ports, and the values in them that are already allocated.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use crate::api::object::Object;
use crate::registry::kinds::strategy::Context;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::net::masked;

/// A range of cluster IPs.
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

    /// Parses an IPv4 range, like the option `--service-cluster-ip-range` of kube-apiserver.
    fn from_str(text: &str) -> Result<Self, String> {
        let (address, prefix) = text.split_once('/').ok_or("the prefix length is missing")?;
        let address: Ipv4Addr = address
            .parse()
            .map_err(|_| format!("{address:?} is not an IPv4 address"))?;
        let prefix: u32 = prefix
            .parse()
            .map_err(|_| format!("{prefix:?} is not a prefix length"))?;
        // The prefix lengths that kube-apiserver accepts and that leave at least two usable addresses.
        if !(12..=30).contains(&prefix) {
            return Err(format!("the prefix length must be from 12 to 30, not {prefix}"));
        }
        let first = Ipv4Addr::from_bits(address.to_bits() >> (32 - prefix) << (32 - prefix));
        Ok(Self { first, prefix })
    }
}

impl ClusterRange {
    /// Returns the first usable address of the range, which is the cluster IP of the Service `default/kubernetes`.
    pub(crate) fn first_ip(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.first.to_bits() | 1)
    }

    /// Returns the network address, which a dry run allocates.
    pub(super) fn network(self) -> Ipv4Addr {
        self.first
    }

    /// Returns the number of addresses in the range, excluding the network and the broadcast address.
    pub(super) fn len(self) -> u64 {
        (1 << (32 - self.prefix)) - 2
    }

    /// Returns the number of addresses at the beginning of the range that are only allocated if all other addresses are
    /// in use. This makes them available to clients that request an address (`calculateRangeOffset`).
    pub(super) fn reserved(self) -> u64 {
        reserved(1 << (32 - self.prefix), (16, 256, 16))
    }

    /// Returns the allocatable address with this index.
    pub(super) fn at(self, index: u64) -> Ipv4Addr {
        let offset = u32::try_from(index + 1).unwrap_or(1);
        Ipv4Addr::from_bits(self.first.to_bits() | offset)
    }

    /// Returns `true` if the address is in the range, even if it cannot be allocated.
    pub(super) fn contains(self, address: IpAddr) -> bool {
        masked(address, self.prefix) == IpAddr::V4(self.first)
    }

    /// Returns `true` if the address can be allocated.
    pub(super) fn gives_away(self, address: IpAddr) -> bool {
        let last = Ipv4Addr::from_bits(self.first.to_bits() + (1 << (32 - self.prefix)) - 1);
        self.contains(address) && address != IpAddr::V4(self.first) && address != IpAddr::V4(last)
    }
}

/// Returns the ranges of the stored ServiceCIDRs that are not being deleted, in the order of their names, or the
/// default range if there are none.
pub(super) fn ranges(context: &Context<'_>) -> Vec<ClusterRange> {
    let stored = (context.stored)("networking.k8s.io", "servicecidrs");
    let going = |cidr: &&Arc<Object>| cidr.meta_str("deletionTimestamp").is_empty();
    let texts = stored
        .iter()
        .filter(going)
        .flat_map(|cidr| Cursor::root(cidr).texts("spec.cidrs"));
    let ranges: Vec<ClusterRange> = texts.filter_map(|text| text.parse().ok()).collect();
    if ranges.is_empty() {
        vec![ClusterRange::default()]
    } else {
        ranges
    }
}

/// The range of node ports.
pub(super) const NODE_PORTS: std::ops::RangeInclusive<i64> = 30_000..=32_767;
const NODE_PORT_COUNT: u64 = 2_768;

/// Returns the size of the reserved part at the beginning of a range, which is allocated last: `size / step`, limited
/// to `min..=max`, or 0 for a range of at most `min` values.
fn reserved(size: u64, (min, max, step): (u64, u64, u64)) -> u64 {
    if size <= min {
        return 0;
    }
    (size / step).clamp(min, max)
}

/// Returns a random free number below `size`. Numbers below `reserved` are only used if all others are taken.
pub(super) fn choose(size: u64, reserved: u64, context: &Context<'_>, is_free: impl Fn(u64) -> bool) -> Option<u64> {
    [(reserved, size), (0, reserved)].into_iter().find_map(|(from, to)| {
        let len = to.checked_sub(from).filter(|&it| it > 0)?;
        let start = context.entropy.below(len);
        (0..len).map(|step| from + (start + step) % len).find(|it| is_free(*it))
    })
}

/// Returns a free node port.
pub(super) fn choose_node_port(context: &Context<'_>, is_free: impl Fn(i64) -> bool) -> Option<i64> {
    let port = |offset: u64| NODE_PORTS.start() + i64::try_from(offset).unwrap_or(0);
    let reserved = reserved(NODE_PORT_COUNT, (16, 128, 32));
    choose(NODE_PORT_COUNT, reserved, context, |offset| is_free(port(offset))).map(port)
}

/// Addresses and node ports that are already allocated.
pub(super) struct Taken {
    pub(super) ips: BTreeSet<IpAddr>,
    pub(super) ports: BTreeSet<i64>,
}

impl Taken {
    /// Collects the addresses of IPAddress objects, and the addresses and ports of all Services except the Service with
    /// the spec `old`.
    pub(super) fn read(old: Option<&Cursor<'_>>, context: &Context<'_>) -> Self {
        let mut taken = Self {
            ips: BTreeSet::new(),
            ports: BTreeSet::new(),
        };
        for service in (context.stored)("", "services") {
            let service = Cursor::root(&service);
            let spec = service.at("spec");
            if old.is_some_and(|old| spec.same(old, "")) {
                continue;
            }
            let ips = spec.texts("clusterIPs");
            taken.ips.extend(ips.filter_map(|ip| ip.parse::<IpAddr>().ok()));
            taken.ports.extend(node_ports(&spec));
            let check = spec.integer("healthCheckNodePort");
            taken.ports.extend(check.filter(|&it| it != 0));
        }
        let addresses = (context.stored)("networking.k8s.io", "ipaddresses");
        let names = addresses.iter().filter_map(|it| it.name().parse::<IpAddr>().ok());
        taken.ips.extend(names);
        taken
    }
}

/// Returns the node ports of a Service.
pub(super) fn node_ports(spec: &Cursor<'_>) -> impl Iterator<Item = i64> {
    spec.items("ports")
        .filter_map(|port| port.integer("nodePort"))
        .filter(|&port| port != 0)
}
