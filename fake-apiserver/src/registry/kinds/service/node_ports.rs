//! Allocates the node ports of Services. Follows `alloc.go` in `pkg/registry/core/service/storage`.

use std::collections::BTreeSet;

use super::ranges::{NODE_PORTS, Taken, choose_node_port, node_ports};
use super::{allocates_node_ports, has_node_ports, needs_health_check};
use crate::api::field::{FieldErrors, FieldPath};
use crate::api::json::Map;
use crate::api::status::Status;
use crate::registry::kinds::strategy::Context;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::edit::items_mut;

const ALLOCATED: &str = "provided port is already allocated";

/// The port allocations of one write (`PortAllocationOperation`).
struct Operation<'a> {
    context: &'a Context<'a>,
    taken: Taken,
    own: Vec<i64>,
}

impl Operation<'_> {
    /// Allocates a port that the client requests. A dry run also accepts ports outside of the range.
    fn allocate(&mut self, port: i64) -> Result<(), String> {
        if !self.context.dry_run && !NODE_PORTS.contains(&port) {
            let (first, last) = (NODE_PORTS.start(), NODE_PORTS.end());
            return Err(format!(
                "provided port is not in the valid range. The range of valid ports is {first}-{last}"
            ));
        }
        if self.taken.ports.contains(&port) || self.own.contains(&port) {
            return Err(ALLOCATED.to_owned());
        }
        self.own.push(port);
        Ok(())
    }

    /// Allocates a free port. A dry run returns the next number above the ports of this write, or above the range.
    fn allocate_next(&mut self) -> Result<i64, String> {
        let port = if self.context.dry_run {
            self.own.iter().max().unwrap_or(&32_768) + 1
        } else {
            let is_free = |port| !self.taken.ports.contains(&port) && !self.own.contains(&port);
            choose_node_port(self.context, is_free).ok_or("range is full")?
        };
        self.own.push(port);
        Ok(port)
    }
}

/// Allocates the node ports and the port of health checks. Returns `Err` for errors that are not about a field.
pub(super) fn allocate(
    spec: &mut Map,
    old: Option<&Cursor<'_>>,
    errors: &mut FieldErrors,
    context: &Context<'_>,
) -> Result<(), Status> {
    let read = Cursor::root(spec);
    let has_ports = has_node_ports(&read);
    let needs_check = needs_health_check(&read) && !old.is_some_and(needs_health_check);
    if !has_ports && !needs_check {
        return Ok(());
    }
    let mut taken = Taken::read(old, context);
    // The old ports of the Service are still allocated during the write.
    let former: Vec<i64> = old.map(|old| node_ports(old).collect()).unwrap_or_default();
    taken.ports.extend(&former);
    let mut operation = Operation {
        context,
        taken,
        own: Vec::new(),
    };
    if has_ports {
        let refused = match old {
            None => create(spec, &mut operation)?,
            Some(_) => update(spec, &former, &mut operation)?,
        };
        if let Some((index, port, why)) = refused {
            let path = FieldPath::new("spec.ports").index(index).child("nodePort");
            errors.invalid(path, port, why);
            return Ok(());
        }
    }
    if needs_check {
        health_check(spec, &mut operation)?;
    }
    Ok(())
}

/// The port that cannot be allocated, if any: its index in the list, its number and the reason.
type Refused = Option<(usize, i64, String)>;

fn full(why: String) -> Status {
    Status::internal(format!("failed to allocate a nodePort: {why}"))
}

/// Allocates the node ports of a new Service (`initNodePorts`). Ports with the same number but different protocols
/// share a node port.
fn create(spec: &mut Map, operation: &mut Operation<'_>) -> Result<Refused, Status> {
    let allocates = allocates_node_ports(&Cursor::root(spec));
    let wanted: Vec<(i64, i64)> = Cursor::root(spec)
        .items("ports")
        .map(|it| (it.integer("port").unwrap_or(0), it.integer("nodePort").unwrap_or(0)))
        .collect();
    let mut shared: Vec<(i64, i64)> = Vec::new();
    for (index, port) in items_mut(spec, "ports").enumerate() {
        let (number, own) = wanted.get(index).copied().unwrap_or_default();
        if own == 0 && !allocates {
            continue;
        }
        let known = shared.iter().find(|(it, _)| *it == number).map(|(_, node)| *node);
        let node = match known {
            None => {
                let asked = wanted.iter().find(|(it, node)| *it == number && *node != 0);
                let node = match asked {
                    Some(&(_, node)) => match operation.allocate(node) {
                        Ok(()) => node,
                        Err(why) => return Ok(Some((index, node, why))),
                    },
                    None => operation.allocate_next().map_err(full)?,
                };
                shared.push((number, node));
                node
            }
            Some(node) if own == 0 || own == node => node,
            Some(_) => match operation.allocate(own) {
                Ok(()) => own,
                Err(why) => return Ok(Some((index, own, why))),
            },
        };
        port.insert("nodePort".into(), node.into());
    }
    Ok(None)
}

/// Allocates the node ports of an updated Service (`updateNodePorts`).
fn update(spec: &mut Map, former: &[i64], operation: &mut Operation<'_>) -> Result<Refused, Status> {
    let allocates = allocates_node_ports(&Cursor::root(spec));
    let mut seen: BTreeSet<(String, i64)> = BTreeSet::new();
    for (index, port) in items_mut(spec, "ports").enumerate() {
        let mut node = Cursor::root(port).integer("nodePort").unwrap_or(0);
        if node == 0 && !allocates {
            continue;
        }
        if node == 0 {
            node = operation.allocate_next().map_err(full)?;
            port.insert("nodePort".into(), node.into());
        } else if !former.contains(&node)
            && !operation.own.contains(&node)
            && let Err(why) = operation.allocate(node)
        {
            return Ok(Some((index, node, why)));
        }
        let pair = (Cursor::root(port).text("protocol").to_owned(), node);
        if seen.contains(&pair) {
            let (protocol, node) = pair;
            return Err(Status::new(
                500,
                "",
                format!("duplicate nodePort: {{{protocol} {node}}}"),
            ));
        }
        seen.insert(pair);
    }
    Ok(None)
}

/// Allocates the node port of health checks (`allocHealthCheckNodePort`).
fn health_check(spec: &mut Map, operation: &mut Operation<'_>) -> Result<(), Status> {
    let wanted = Cursor::root(spec).integer("healthCheckNodePort").unwrap_or(0);
    if wanted == 0 {
        let next = operation.allocate_next();
        let port =
            next.map_err(|why| Status::internal(format!("failed to allocate a HealthCheck NodePort 0: {why}")))?;
        spec.insert("healthCheckNodePort".into(), port.into());
        return Ok(());
    }
    operation.allocate(wanted).map_err(|why| {
        Status::internal(format!(
            "failed to allocate requested HealthCheck NodePort {wanted}: {why}"
        ))
    })
}
