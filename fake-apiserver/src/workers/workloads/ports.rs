//! Host ports of Pods: each port of a Node can only be used once (`NodePorts` of the scheduler).

use std::sync::Arc;

use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;

/// The scheduler's message for nodes on which a host port of the Pod is in use.
pub(crate) const NO_FREE_PORTS: &str = "node(s) didn't have free ports for the requested pod ports";

/// A host port of a Node: address, protocol and number.
type HostPort<'a> = (&'a str, &'a str, i64);

/// Returns `true` if a Pod needs a host port that one of the other Pods of a Node uses.
pub(crate) fn conflict<'a>(pod: &Object, others: impl Iterator<Item = &'a Arc<Object>>) -> bool {
    let wanted = host_ports(pod);
    if wanted.is_empty() {
        return false;
    }
    let mut taken = others.flat_map(|it| host_ports(it));
    taken.any(|taken| wanted.iter().any(|wanted| is_same(wanted, &taken)))
}

fn is_same(one: &HostPort<'_>, other: &HostPort<'_>) -> bool {
    let is_any = |address: &str| matches!(address, "" | "0.0.0.0");
    one.1 == other.1 && one.2 == other.2 && (one.0 == other.0 || is_any(one.0) || is_any(other.0))
}

fn host_ports(pod: &Object) -> Vec<HostPort<'_>> {
    let sidecars = Cursor::root(pod).maps("spec.initContainers");
    let sidecars = sidecars.filter(|it| Cursor::root(it).text("restartPolicy") == "Always");
    let containers = Cursor::root(pod).maps("spec.containers").chain(sidecars);
    let ports = containers.flat_map(|it| Cursor::root(it).maps("ports"));
    let host_port = |port| {
        let port = Cursor::root(port);
        let number = port.integer("hostPort").filter(|it| *it > 0)?;
        let protocol = match port.text("protocol") {
            "" => "TCP",
            protocol => protocol,
        };
        Some((port.text("hostIP"), protocol, number))
    };
    ports.filter_map(host_port).collect()
}
