//! EndpointSlices and Endpoints: maintains the list of Pods that a Service selects, and mirrors the Endpoints of
//! Services without a selector.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::cluster::{Cluster, selects};
use super::controller::{Changed, WorkloadController};
use super::mirror;
use super::plan::{Plan, controller_reference};
use super::pods::{annotation, is_finished, is_ready, label, spec};
use super::resource::{Resource, key_of};
use super::sees::{Sees, service_selector};
use crate::api::json::{Map, Value, json};
use crate::api::object::Object;
use crate::api::selector::LabelSelector;
use crate::registry::types::cursor::Cursor;
use crate::storage::Key;
use crate::workers::WorkerRow;

pub(crate) const ROW: WorkerRow = WorkerRow::workloads(
    "endpoints",
    &[WorkloadController {
        gone,
        concerns,
        ..WorkloadController::new(Resource::Service, "endpointslice-controller", sync)
    }],
);

/// Maximum number of endpoints in a slice.
const SLICE_MOST: usize = 100;
/// Maximum number of addresses in an Endpoints object; a longer list is truncated and annotated.
const ENDPOINTS_MOST: usize = 1000;

const SERVICE_NAME: &str = "kubernetes.io/service-name";
const SLICE_MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const SLICE_MANAGER: &str = "endpointslice-controller.k8s.io";
const MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
const MANAGER: &str = "endpoint-controller";
const TRIGGER: &str = "endpoints.kubernetes.io/last-change-trigger-time";
const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";
const TRUNCATED: &str = "truncated";
const HEADLESS: &str = "service.kubernetes.io/headless";

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

/// Plans the work for a Service.
pub(crate) fn sync(service: &Object, sees: &Sees<'_>) -> Plan {
    let mut plan = Plan::default();
    let key = Key::new(service.namespace(), service.name());
    let selector = service_selector(service);
    mirror::sync(&key, selector.is_none() && !service.is_terminating(), sees, &mut plan);
    let Some(selector) = selector else {
        return plan;
    };
    if service.is_terminating() || Cursor::root(service).text("spec.type") == "ExternalName" {
        return plan;
    }
    let pods = sees.cluster.selected(Resource::Pod, service.namespace(), &selector);
    let pods: Vec<_> = pods
        .into_iter()
        .filter(|it| !is_finished(it) && !Cursor::root(it).text("status.podIP").is_empty())
        .collect();
    write_slices(service, &pods, sees, &mut plan);
    write_endpoints(service, &pods, sees, &mut plan);
    plan
}

/// Plans the work for a deleted Service: deletes its Endpoints. The garbage collector deletes its slices.
pub(crate) fn gone(service: &Key, sees: &Sees<'_>) -> Plan {
    let mut plan = Plan::default();
    if let Some(endpoints) = sees.cluster.get(Resource::Endpoints, service)
        && label(endpoints, MANAGED_BY) == Some(MANAGER)
    {
        plan.delete(Resource::Endpoints, endpoints);
    }
    mirror::sync(service, false, sees, &mut plan);
    plan
}

fn is_headless(service: &Object) -> bool {
    Cursor::root(service).text("spec.clusterIP") == "None"
}

fn publishes_unready(service: &Object) -> bool {
    Cursor::root(service).flag("spec.publishNotReadyAddresses") == Some(true)
}

/// Returns the labels that the Endpoints and slices of a Service inherit.
fn labels_of(service: &Object) -> Map {
    let labels = service.labels().map(|(key, value)| (key.to_owned(), value.into()));
    let mut labels: Map = labels.filter(|(key, _)| key != HEADLESS).collect();
    if is_headless(service) {
        labels.insert(HEADLESS.into(), "".into());
    }
    labels
}

/// Returns the labels of an object as a map.
fn known_labels(object: &Object) -> Map {
    let labels = object.labels().map(|(key, value)| (key.to_owned(), value.into()));
    labels.collect()
}

/// Returns a patch that replaces the labels `known` by `labels`.
fn label_patch(known: &Map, labels: &Map) -> Map {
    let gone = known.keys().filter(|key| !labels.contains_key(key));
    let gone = gone.map(|key| (key.clone(), Value::Null));
    labels.clone().into_iter().chain(gone).collect()
}

/// Returns the ports of a Service, resolved for a Pod, without named ports that the Pod does not have.
fn ports(service: &Object, pod: &Object) -> Vec<Value> {
    let ports = Cursor::root(service).maps("spec.ports").filter_map(|port| {
        let number = match port.get("targetPort") {
            Some(Value::Number(number)) => number.as_i64().filter(|it| *it > 0),
            Some(Value::String(name)) => named_port(pod, name, Cursor::root(port).text("protocol")),
            _ => None,
        };
        let number = match port.get("targetPort") {
            Some(Value::String(_)) => number?,
            _ => number.or(Cursor::root(port).integer("port"))?,
        };
        let mut value = json!({"name": Cursor::root(port).text("name"), "port": number, "protocol": Cursor::root(port).text("protocol")});
        if let Some(protocol) = port.get("appProtocol") {
            value["appProtocol"] = protocol.clone();
        }
        Some(value)
    });
    ports.collect()
}

/// Returns the number of a port of a container or a sidecar.
fn named_port(pod: &Object, name: &str, protocol: &str) -> Option<i64> {
    let of = |list| Cursor::root(spec(pod)).maps(list);
    let sidecars = of("initContainers").filter(|it| Cursor::root(it).text("restartPolicy") == "Always");
    let mut ports = of("containers")
        .chain(sidecars)
        .flat_map(|it| Cursor::root(it).maps("ports"));
    let found = ports.find(|it| Cursor::root(it).text("name") == name && Cursor::root(it).text("protocol") == protocol);
    found.and_then(|it| Cursor::root(it).integer("containerPort"))
}

fn reference(pod: &Object) -> Value {
    json!({"kind": "Pod", "name": pod.name(), "namespace": pod.namespace(), "uid": pod.uid()})
}

fn endpoint(service: &Object, pod: &Object, sees: &Sees<'_>) -> Value {
    let (serving, terminating) = (is_ready(pod), pod.is_terminating());
    let ready = (serving && !terminating) || publishes_unready(service);
    let mut endpoint = json!({
        "addresses": [Cursor::root(pod).text("status.podIP")],
        "conditions": {"ready": ready, "serving": serving, "terminating": terminating},
        "nodeName": Cursor::root(pod).text("spec.nodeName"), "targetRef": reference(pod),
    });
    let node = sees
        .cluster
        .find(Resource::Node, "", Cursor::root(pod).text("spec.nodeName"));
    if let Some(zone) = node.and_then(|node| label(node, "topology.kubernetes.io/zone")) {
        endpoint["zone"] = zone.into();
    }
    if let Some(name) = host_name(service, pod) {
        endpoint["hostname"] = name.into();
    }
    endpoint
}

/// Returns the host name of a Pod, if the Service is its subdomain.
fn host_name<'a>(service: &Object, pod: &'a Object) -> Option<&'a str> {
    let name = Cursor::root(pod).text("spec.hostname");
    let is_domain = Cursor::root(pod).text("spec.subdomain") == service.name();
    (is_domain && !name.is_empty()).then_some(name)
}

/// Endpoints with the same ports: the ports, and the endpoints by the uid of their Pod.
type Group = (Vec<Value>, BTreeMap<String, Value>);

fn write_slices(service: &Object, pods: &[&Arc<Object>], sees: &Sees<'_>, plan: &mut Plan) {
    let mut groups: BTreeMap<String, Group> = BTreeMap::new();
    for pod in pods {
        let ports = ports(service, pod);
        let group = groups
            .entry(Value::from(ports.clone()).to_string())
            .or_insert_with(|| (ports, BTreeMap::new()));
        group.1.insert(pod.uid().to_owned(), endpoint(service, pod, sees));
    }
    if groups.is_empty() {
        // There is always at least one slice, so that clients can observe that the Service has no endpoints yet.
        groups.insert(String::new(), (Vec::new(), BTreeMap::new()));
    }
    let mine = json!({"matchLabels": {SERVICE_NAME: service.name(), SLICE_MANAGED_BY: SLICE_MANAGER}});
    let Ok(Some(selector)) = LabelSelector::from_object(&mine) else {
        return;
    };
    let mut slices = sees
        .cluster
        .selected(Resource::EndpointSlice, service.namespace(), &selector);
    let mut labels = labels_of(service);
    labels.insert(SERVICE_NAME.into(), service.name().into());
    labels.insert(SLICE_MANAGED_BY.into(), SLICE_MANAGER.into());
    let with_own = groups.into_values().map(|(ports, endpoints)| {
        let same = |slice: &&Arc<Object>| {
            Cursor::root(slice).list("ports") == ports || slice.get("ports").is_none_or(Value::is_null)
        };
        let (own, others) = std::mem::take(&mut slices).into_iter().partition(same);
        slices = others;
        (ports, endpoints, own)
    });
    for (ports, endpoints, mut own) in with_own.collect::<Vec<(_, _, Vec<&Arc<Object>>)>>() {
        // A slice with different ports is reused, instead of deleting it and creating a new one.
        if own.is_empty() && !slices.is_empty() {
            own.push(slices.remove(0));
        }
        fill_slices(service, &own, (&labels, &ports), endpoints, sees, plan);
    }
    for slice in slices {
        plan.delete(Resource::EndpointSlice, slice);
    }
}

/// Keeps endpoints in their slices, adds new ones to slices that are not full, and creates slices for the remaining
/// ones.
fn fill_slices(
    service: &Object,
    slices: &[&Arc<Object>],
    (labels, ports): (&Map, &[Value]),
    mut endpoints: BTreeMap<String, Value>,
    sees: &Sees<'_>,
    plan: &mut Plan,
) {
    let uid_of = |it: &Value| it["targetRef"]["uid"].as_str().unwrap_or_default().to_owned();
    let mut kept: Vec<Vec<Value>> = Vec::new();
    for slice in slices {
        let stay = Cursor::root(slice)
            .list("endpoints")
            .iter()
            .filter_map(|it| endpoints.remove(&uid_of(it)));
        kept.push(stay.collect());
    }
    let mut new = endpoints.into_values();
    for stay in &mut kept {
        let room = SLICE_MOST.saturating_sub(stay.len());
        stay.extend(new.by_ref().take(room));
    }
    let rest: Vec<Value> = new.collect();
    let is_all_empty = rest.is_empty() && kept.iter().all(Vec::is_empty);
    let mut has_placeholder = false;
    for (slice, stay) in slices.iter().zip(kept) {
        if stay.is_empty() && (!is_all_empty || has_placeholder) {
            plan.delete(Resource::EndpointSlice, slice);
            continue;
        }
        has_placeholder = true;
        let known = known_labels(slice);
        if Cursor::root(slice).list("endpoints") != stay
            || (Cursor::root(slice).list("ports") != ports && !stay.is_empty())
            || known != *labels
        {
            let mut patch = json!({
                "metadata": {"annotations": {TRIGGER: sees.stamp()}},
                "endpoints": or_null(&stay), "ports": or_null(ports),
            });
            patch["metadata"]["labels"] = label_patch(&known, labels).into();
            plan.merge(Resource::EndpointSlice, slice, patch);
        }
    }
    let chunks: Vec<&[Value]> = match (rest.is_empty(), slices.is_empty()) {
        (true, true) => vec![&[]],
        _ => rest.chunks(SLICE_MOST).collect(),
    };
    for chunk in chunks {
        let slice = json!({
            "metadata": {
                "generateName": format!("{}-", service.name()), "namespace": service.namespace(), "labels": labels,
                "annotations": {TRIGGER: sees.stamp()},
                "ownerReferences": [controller_reference(Resource::Service, service)],
            },
            "addressType": "IPv4", "endpoints": or_null(chunk), "ports": or_null(ports),
        });
        plan.create(Resource::EndpointSlice, slice);
    }
}

/// Returns the list, or null if it is empty: Go decodes an empty list from protobuf as null.
fn or_null(list: &[Value]) -> Value {
    if list.is_empty() { Value::Null } else { list.into() }
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
        for port in ports
            .iter_mut()
            .filter(|it| it["name"] == "")
            .filter_map(Value::as_object_mut)
        {
            port.remove("name");
        }
        let mut address = json!({
            "ip": Cursor::root(pod).text("status.podIP"), "nodeName": Cursor::root(pod).text("spec.nodeName"), "targetRef": reference(pod),
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
    let is_truncated = truncate(&mut subsets);
    (subsets.into_iter().map(json).collect(), is_truncated)
}

/// Truncates the subsets if they have too many addresses together, and returns `true` in this case. Ready addresses are
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

fn write_endpoints(service: &Object, pods: &[&Arc<Object>], sees: &Sees<'_>, plan: &mut Plan) {
    let (subsets, is_truncated) = subsets_of(service, pods);
    let mut labels = labels_of(service);
    labels.insert(MANAGED_BY.into(), MANAGER.into());
    let current = sees
        .cluster
        .find(Resource::Endpoints, service.namespace(), service.name());
    let mut metadata = json!({"labels": labels, "annotations": {TRIGGER: sees.stamp()}});
    match current {
        None => {
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
