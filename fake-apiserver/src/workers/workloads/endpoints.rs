//! EndpointSlices and Endpoints: maintains the list of Pods that a Service selects, and mirrors the Endpoints of
//! Services without a selector.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::cluster::{Cluster, selects};
use super::controller::{Changed, Sync, WorkloadController};
use super::endpoint_parts::{
    SERVICE_NAME, TRIGGER, ZONE, address_of, host_name, is_headless, known_labels, label_patch, labels_of, ports,
    publishes_unready, reference, trigger_annotation,
};
use super::endpoint_slices::write_slices;
use super::kubelet::Nodes;
use super::mirror;
use super::plan::Plan;
use super::pods::{annotation, is_finished, is_ready, label};
use super::resource::{Resource, key_of};
use super::sees::{Sees, service_selector};
use crate::api::json::{Map, Value, json};
use crate::api::object::Object;
use crate::entropy;
use crate::registry::types::cursor::Cursor;
use crate::storage::Key;
use crate::workers::WorkerRow;

pub(crate) const ROW: WorkerRow = WorkerRow::workloads(
    "endpoints",
    &[WorkloadController {
        gone,
        concerns,
        sync: Sync::Nodes(sync),
        ..WorkloadController::new(Resource::Service, "endpointslice-controller", |_, _| Plan::EMPTY)
    }],
);

/// The service account of the controller of Endpoints.
const ENDPOINTS_ACCOUNT: &str = "endpoint-controller";

/// Maximum number of addresses in an Endpoints object; a longer list is truncated and annotated.
const ENDPOINTS_MOST: usize = 1000;

const MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
const MANAGER: &str = "endpoint-controller";
const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";
const TRUNCATED: &str = "truncated";

/// Enqueues the Services of slices and Endpoints, and the Services that select a Pod.
fn concerns(change: &Changed<'_>, cluster: &Cluster, add: &mut dyn FnMut(Key)) {
    let namespace = change.key.namespace();
    match change.resource {
        Resource::EndpointSlice | Resource::Endpoints => {
            for object in change.versions() {
                add(Key::new(
                    namespace,
                    label(object, SERVICE_NAME).unwrap_or(object.name()),
                ));
            }
        }
        // A Node that is new, or has another zone, changes the slices of the Services of its Pods.
        Resource::Node if change.old.map(zone) != change.new.map(zone) => {
            let there = |pod: &&Arc<Object>| Cursor::root(pod).text("spec.nodeName") == change.key.name();
            for pod in cluster.all(Resource::Pod).filter(there) {
                for service in cluster.within(Resource::Service, pod.namespace()) {
                    if service_selector(service).is_some_and(|it| selects(&it, pod)) {
                        add(key_of(service));
                    }
                }
            }
        }
        Resource::Pod => {
            for service in cluster.within(Resource::Service, namespace) {
                let selector = service_selector(service);
                if selector.is_some_and(|it| change.versions().any(|pod| selects(&it, pod))) {
                    add(key_of(service));
                }
            }
        }
        _ => {}
    }
}

fn zone(node: &Object) -> Option<String> {
    label(node, ZONE).map(str::to_owned)
}

/// Plans the work for a Service.
fn sync(service: &Object, sees: &Sees<'_>, nodes: &mut Nodes) -> Plan {
    let mut plan = Plan::default();
    let key = Key::new(service.namespace(), service.name());
    let selector = service_selector(service);
    let is_mirrored = selector.is_none() && !service.is_terminating();
    plan.send_as(mirror::ACCOUNT, |plan| mirror::sync(&key, is_mirrored, sees, plan));
    let Some(selector) = selector else {
        return plan;
    };
    if service.is_terminating() || Cursor::root(service).text("spec.type") == "ExternalName" {
        return plan;
    }
    let pods = sees.cluster.selected(Resource::Pod, service.namespace(), &selector);
    let times = nodes.services.entry(service.uid().to_owned()).or_default();
    let trigger = times.next(service, &pods).map(entropy::seconds);
    let trigger = trigger.as_deref();
    let pods: Vec<_> = pods
        .into_iter()
        .filter(|it| !is_finished(it) && !Cursor::root(it).text("status.podIP").is_empty())
        .collect();
    write_slices(service, &pods, trigger, sees, &mut plan);
    plan.send_as(ENDPOINTS_ACCOUNT, |plan| {
        write_endpoints(service, &pods, trigger, sees, plan)
    });
    plan
}

/// Plans the work for a deleted Service: deletes the Endpoints of this name. The garbage collector deletes its slices.
/// Other Endpoints without a Service are only deleted if this controller has created them.
pub(crate) fn gone(service: &Key, sees: &Sees<'_>) -> Plan {
    let mut plan = Plan::default();
    if let Some(endpoints) = sees.cluster.get(Resource::Endpoints, service)
        && (sees.removed.is_some() || label(endpoints, MANAGED_BY) == Some(MANAGER))
    {
        plan.send_as(ENDPOINTS_ACCOUNT, |plan| plan.delete(Resource::Endpoints, endpoints));
    }
    plan.send_as(mirror::ACCOUNT, |plan| mirror::sync(service, false, sees, plan));
    plan
}

/// Addresses of Pods with the same ports.
#[derive(Default)]
struct Subset {
    ports: Vec<Value>,
    ready: Vec<Value>,
    unready: Vec<Value>,
}

/// Returns the subsets of the Endpoints of a Service, in the order of their ports, and `true` if they are truncated.
fn subsets_of(service: &Object, pods: &[&Arc<Object>]) -> (Vec<Value>, bool) {
    let mut subsets: BTreeMap<String, Subset> = BTreeMap::new();
    let unready_too = publishes_unready(service);
    for pod in pods.iter().filter(|it| unready_too || !it.is_terminating()) {
        let mut ports = ports(service, pod);
        if ports.is_empty() && (!is_headless(service) || !Cursor::root(service).is_empty("spec.ports")) {
            continue;
        }
        let Some(ip) = address_of(pod) else {
            continue;
        };
        for port in ports
            .iter_mut()
            .filter(|it| it["name"] == "")
            .filter_map(Value::as_object_mut)
        {
            port.remove("name");
        }
        let mut address = json!({
            "ip": ip, "nodeName": Cursor::root(pod).text("spec.nodeName"), "targetRef": reference(pod),
        });
        if let Some(name) = host_name(service, pod) {
            address["hostname"] = name.into();
        }
        let subset = subsets.entry(Value::from(ports.clone()).to_string());
        let subset = subset.or_insert_with(|| Subset {
            ports,
            ..Subset::default()
        });
        if is_ready(pod) || unready_too {
            subset.ready.push(address);
        } else {
            subset.unready.push(address);
        }
    }
    let json = |Subset { ports, ready, unready }| {
        let mut subset = Map::new();
        for (field, list) in [("addresses", ready), ("notReadyAddresses", unready), ("ports", ports)] {
            if !list.is_empty() {
                subset.insert(field.into(), list.into());
            }
        }
        Value::Object(subset)
    };
    let mut subsets: Vec<Subset> = subsets.into_values().collect();
    for subset in &mut subsets {
        // Addresses are sorted as strings (Go's `SortSubsets`).
        let rank = |it: &Value| {
            let text = |it: &Value| it.as_str().unwrap_or_default().to_owned();
            (text(&it["ip"]), text(&it["targetRef"]["uid"]))
        };
        subset.ready.sort_by_key(rank);
        subset.unready.sort_by_key(rank);
    }
    let is_truncated = truncate(&mut subsets);
    (subsets.into_iter().map(json).collect(), is_truncated)
}

/// Truncates the subsets if they have too many addresses in total, and returns `true` in this case. Ready addresses are
/// kept first. Each subset keeps a share that is proportional to its number of addresses and rounded up, so the last
/// one may keep fewer (`truncateEndpoints`).
fn truncate(subsets: &mut [Subset]) -> bool {
    let ready: usize = subsets.iter().map(|it| it.ready.len()).sum();
    let unready: usize = subsets.iter().map(|it| it.unready.len()).sum();
    if ready + unready <= ENDPOINTS_MOST {
        return false;
    }
    let cuts_ready = ready > ENDPOINTS_MOST;
    let (total, room) = match cuts_ready {
        true => (ready, ENDPOINTS_MOST),
        false => (unready, ENDPOINTS_MOST - ready),
    };
    let mut left = room;
    for subset in subsets {
        let list = match cuts_ready {
            true => {
                subset.unready.clear();
                &mut subset.ready
            }
            false => &mut subset.unready,
        };
        let share = (list.len() * room).div_ceil(total);
        list.truncate(share.min(left));
        left -= list.len();
    }
    true
}

fn write_endpoints(service: &Object, pods: &[&Arc<Object>], trigger: Option<&str>, sees: &Sees<'_>, plan: &mut Plan) {
    let (subsets, is_truncated) = subsets_of(service, pods);
    let mut labels = labels_of(service);
    labels.insert(MANAGED_BY.into(), MANAGER.into());
    let current = sees
        .cluster
        .find(Resource::Endpoints, service.namespace(), service.name());
    let mut metadata = json!({"labels": labels, "annotations": {TRIGGER: trigger}});
    match current {
        None => {
            metadata["annotations"] = trigger_annotation(trigger).into();
            if is_truncated {
                metadata["annotations"][OVER_CAPACITY] = TRUNCATED.into();
            }
            metadata["name"] = service.name().into();
            metadata["namespace"] = service.namespace().into();
            plan.create(Resource::Endpoints, json!({"metadata": metadata, "subsets": subsets}));
        }
        Some(current) => {
            let known = known_labels(current);
            let is_annotated = annotation(current, OVER_CAPACITY).is_some();
            if Cursor::root(current).list("subsets") != subsets || known != labels || is_annotated != is_truncated {
                metadata["labels"] = label_patch(&known, &labels).into();
                metadata["annotations"][OVER_CAPACITY] = is_truncated.then_some(TRUNCATED).into();
                let subsets = if subsets.is_empty() {
                    Value::Null
                } else {
                    subsets.into()
                };
                plan.merge(
                    Resource::Endpoints,
                    current,
                    json!({"metadata": metadata, "subsets": subsets}),
                );
            }
        }
    }
}
