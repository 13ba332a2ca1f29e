//! EndpointSlices of a Service: at most 100 endpoints in each, grouped by their ports.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::endpoint_parts::{
    SERVICE_NAME, SLICE_MANAGED_BY, TRIGGER, ZONE, address_of, host_name, known_labels, label_patch, labels_of, ports,
    publishes_unready, reference, trigger_annotation,
};
use super::plan::{Plan, controller_reference};
use super::pods::{is_ready, label};
use super::resource::Resource;
use super::sees::Sees;
use crate::api::json::{Map, Value, json};
use crate::api::object::Object;
use crate::api::selector::LabelSelector;
use crate::registry::types::cursor::Cursor;

/// Maximum number of endpoints in a slice.
const SLICE_MOST: usize = 100;
const SLICE_MANAGER: &str = "endpointslice-controller.k8s.io";

/// Endpoints with the same ports: the ports, and the endpoints by the uid of their Pod.
type Group = (Vec<Value>, BTreeMap<String, Value>);

/// Writes the slices of a Service.
pub(crate) fn write_slices(
    service: &Object,
    pods: &[&Arc<Object>],
    trigger: Option<&str>,
    sees: &Sees<'_>,
    plan: &mut Plan,
) {
    let mine = json!({"matchLabels": {SERVICE_NAME: service.name(), SLICE_MANAGED_BY: SLICE_MANAGER}});
    let Ok(Some(selector)) = LabelSelector::from_object(&mine) else {
        return;
    };
    let mut slices = sees
        .cluster
        .selected(Resource::EndpointSlice, service.namespace(), &selector);
    let mut groups: BTreeMap<String, Group> = BTreeMap::new();
    for pod in pods {
        let Some(address) = address_of(pod) else { continue };
        let node = Cursor::root(pod).text("spec.nodeName");
        // The Pod of a missing Node is about to be removed.
        if sees.cluster.find(Resource::Node, "", node).is_none() && !publishes_unready(service) {
            continue;
        }
        let ports = ports(service, pod);
        let group = groups
            .entry(Value::from(ports.clone()).to_string())
            .or_insert_with(|| (ports, BTreeMap::new()));
        group
            .1
            .insert(pod.uid().to_owned(), endpoint(service, pod, address, sees));
    }
    if groups.is_empty() {
        // There is always at least one slice, so that clients can observe that the Service has no endpoints yet.
        groups.insert(String::new(), (Vec::new(), BTreeMap::new()));
    }
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
        fill_slices(service, &own, (&labels, &ports), endpoints, trigger, plan);
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
    trigger: Option<&str>,
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
                "metadata": {"annotations": {TRIGGER: trigger}},
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
                "annotations": trigger_annotation(trigger),
                "ownerReferences": [controller_reference(Resource::Service, service)],
            },
            "addressType": "IPv4", "endpoints": or_null(chunk), "ports": or_null(ports),
        });
        plan.create(Resource::EndpointSlice, slice);
    }
}

fn endpoint(service: &Object, pod: &Object, address: &str, sees: &Sees<'_>) -> Value {
    let (serving, terminating) = (is_ready(pod), pod.is_terminating());
    let ready = (serving && !terminating) || publishes_unready(service);
    let mut endpoint = json!({
        "addresses": [address], "conditions": {"ready": ready, "serving": serving, "terminating": terminating},
        "targetRef": reference(pod),
    });
    let name = Cursor::root(pod).text("spec.nodeName");
    if !name.is_empty() {
        endpoint["nodeName"] = name.into();
    }
    let node = sees
        .cluster
        .find(Resource::Node, "", Cursor::root(pod).text("spec.nodeName"));
    if let Some(zone) = node.and_then(|node| label(node, ZONE)) {
        endpoint["zone"] = zone.into();
    }
    if ready {
        put_hints(service, &mut endpoint);
    }
    if let Some(name) = host_name(service, pod) {
        endpoint["hostname"] = name.into();
    }
    endpoint
}

/// Adds the hints for the traffic distribution of a Service to a ready endpoint (Go's `trafficdist.ReconcileHints`).
fn put_hints(service: &Object, endpoint: &mut Value) {
    let distribution = Cursor::root(service).text("spec.trafficDistribution");
    if !matches!(distribution, "PreferClose" | "PreferSameZone" | "PreferSameNode") {
        return;
    }
    if endpoint["zone"].is_string() {
        endpoint["hints"]["forZones"] = json!([{"name": endpoint["zone"]}]);
    }
    if distribution == "PreferSameNode" && endpoint["nodeName"].is_string() {
        endpoint["hints"]["forNodes"] = json!([{"name": endpoint["nodeName"]}]);
    }
}

/// Returns the list, or null if it is empty: Go decodes an empty list from protobuf as null.
fn or_null(list: &[Value]) -> Value {
    if list.is_empty() { Value::Null } else { list.into() }
}
