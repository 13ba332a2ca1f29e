//! Maintains the EndpointSlices of Services without a selector, which mirror manually written Endpoints
//! (`pkg/controller/endpointslicemirroring`).

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use super::endpoint_parts::{SERVICE_NAME, SLICE_MANAGED_BY};
use super::plan::{Plan, controller_reference};
use super::pods::label;
use super::resource::Resource;
use super::sees::Sees;
use crate::api::json::{Map, Value, json};
use crate::api::object::Object;
use crate::api::selector::LabelSelector;
use crate::registry::types::cursor::Cursor;
use crate::storage::Key;

/// Maximum number of mirrored addresses in a subset.
const SUBSET_MOST: usize = 1000;

/// The service account of the controller.
pub(crate) const ACCOUNT: &str = "endpointslicemirroring-controller";
const COMPONENT: &str = "endpoint-slice-mirroring-controller";
const MANAGER: &str = "endpointslicemirroring-controller.k8s.io";
const SKIP: &str = "endpointslice.kubernetes.io/skip-mirror";
const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";
/// Annotations that are not copied from the Endpoints.
const OWN_ANNOTATIONS: [&str; 2] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    "endpoints.kubernetes.io/last-change-trigger-time",
];

/// Plans the slices of a Service without a selector; plans their removal if the Service was deleted or has a selector.
pub(crate) fn sync(key: &Key, has_no_selector: bool, sees: &Sees<'_>, plan: &mut Plan) {
    let endpoints = sees.cluster.get(Resource::Endpoints, key);
    let mut wanted = Vec::new();
    if let Some(endpoints) = endpoints.filter(|it| has_no_selector && is_mirrored(it)) {
        wanted = slices_of(endpoints);
        let skipped: usize = Cursor::root(endpoints).maps("subsets").map(skipped).sum();
        if skipped > 0 {
            let message = format!(
                "A max of {SUBSET_MOST} addresses can be mirrored to EndpointSlices per Endpoints subset. {skipped} \
                 addresses were skipped"
            );
            plan.warn(
                (Resource::Endpoints, endpoints),
                COMPONENT,
                "TooManyAddressesToMirror",
                message,
            );
        }
    }
    let mine = json!({"matchLabels": {SERVICE_NAME: key.name(), SLICE_MANAGED_BY: MANAGER}});
    let Ok(Some(selector)) = LabelSelector::from_object(&mine) else {
        return;
    };
    let slices = sees
        .cluster
        .selected(Resource::EndpointSlice, key.namespace(), &selector);
    // A slice that is up to date is kept, and a slice with the same ports is changed. Other slices are changed as well
    // instead of creating new ones (Go's `recycleSlices`), or deleted.
    let mut left = Vec::new();
    for slice in slices {
        match wanted.iter().position(|it| is_alike(it, slice)) {
            None => left.push(slice),
            Some(at) => change(slice, &wanted.remove(at), plan),
        }
    }
    for slice in left {
        let kind = Cursor::root(slice).text("addressType");
        match wanted.iter().position(|it| it["addressType"] == kind) {
            None => plan.delete(Resource::EndpointSlice, slice),
            Some(at) => change(slice, &wanted.remove(at), plan),
        }
    }
    for slice in wanted {
        plan.create(Resource::EndpointSlice, slice);
    }
}

/// Changes a slice, unless it is up to date.
fn change(slice: &Object, next: &Value, plan: &mut Plan) {
    if differs(next, slice) {
        let metadata = &next["metadata"];
        let patch = json!({
            "metadata": {
                "labels": replacing(slice, "labels", metadata),
                "annotations": replacing(slice, "annotations", metadata),
            },
            "endpoints": next["endpoints"], "ports": next["ports"],
        });
        plan.merge(Resource::EndpointSlice, slice, patch);
    }
}

/// Returns the number of addresses of a subset that are not mirrored.
fn skipped(subset: &Map) -> usize {
    let count = |field: &str| Cursor::root(subset).list(field).len();
    (count("addresses") + count("notReadyAddresses")).saturating_sub(SUBSET_MOST)
}

/// Returns `true` if the Endpoints are mirrored (`shouldMirror`).
fn is_mirrored(endpoints: &Arc<Object>) -> bool {
    let annotations = endpoints
        .metadata()
        .map(|it| Cursor::root(it).map_or_empty("annotations"));
    !endpoints.is_terminating()
        && label(endpoints, SKIP) != Some("true")
        && annotations.is_none_or(|it| !it.contains_key(LEADER))
}

fn is_alike(wanted: &Value, slice: &Object) -> bool {
    wanted["addressType"] == Cursor::root(slice).text("addressType")
        && wanted["ports"].as_array().map(Vec::as_slice) == Some(Cursor::root(slice).list("ports"))
}

/// Returns the current labels or annotations of a slice.
fn known<'a>(slice: &'a Object, field: &str) -> Option<&'a Map> {
    slice.metadata().and_then(|it| it.get(field)?.as_object())
}

/// Returns the patch that replaces the labels or annotations of a slice.
fn replacing(slice: &Object, field: &str, metadata: &Value) -> Map {
    let gone = known(slice, field).into_iter().flatten();
    let mut patch: Map = gone.map(|(key, _)| (key.clone(), Value::Null)).collect();
    patch.extend(metadata[field].as_object().cloned().unwrap_or_default());
    patch
}

fn differs(wanted: &Value, slice: &Object) -> bool {
    let empty = Map::new();
    let is_other = |field: &str| wanted["metadata"][field].as_object() != Some(known(slice, field).unwrap_or(&empty));
    !is_alike(wanted, slice)
        || wanted["endpoints"].as_array().map(Vec::as_slice) != Some(Cursor::root(slice).list("endpoints"))
        || is_other("labels")
        || is_other("annotations")
}

/// Returns the slices for Endpoints: one for each combination of address family and ports.
fn slices_of(endpoints: &Object) -> Vec<Value> {
    let mut groups: BTreeMap<(bool, String), (Vec<Value>, Vec<Value>)> = BTreeMap::new();
    for subset in Cursor::root(endpoints).maps("subsets") {
        let ports = ports_of(subset);
        let ready = Cursor::root(subset).maps("addresses").map(|it| (it, true));
        let others = Cursor::root(subset).maps("notReadyAddresses").map(|it| (it, false));
        for (address, is_ready) in ready.chain(others).take(SUBSET_MOST) {
            let Ok(ip) = Cursor::root(address).text("ip").parse::<IpAddr>() else {
                continue;
            };
            let group = groups
                .entry((ip.is_ipv6(), Value::from(ports.clone()).to_string()))
                .or_insert_with(|| (ports.clone(), Vec::new()));
            group.1.push(endpoint_of(address, is_ready));
        }
    }
    let (labels, annotations) = metadata_of(endpoints);
    let slice = |((is_v6, _), (ports, endpoints_of)): (_, (Vec<Value>, Vec<Value>))| {
        json!({
            "metadata": {
                "generateName": format!("{}-", endpoints.name()), "namespace": endpoints.namespace(),
                "labels": labels, "annotations": annotations,
                "ownerReferences": [controller_reference(Resource::Endpoints, endpoints)],
            },
            "addressType": if is_v6 { "IPv6" } else { "IPv4" }, "endpoints": endpoints_of, "ports": ports,
        })
    };
    groups.into_iter().map(slice).collect()
}

/// Returns the labels and annotations of the slices.
fn metadata_of(endpoints: &Object) -> (Map, Map) {
    let of = |field: &str| {
        let metadata = endpoints.metadata();
        metadata
            .map(|it| Cursor::root(it).map_or_empty(field).clone())
            .unwrap_or_default()
    };
    let (mut labels, mut annotations) = (of("labels"), of("annotations"));
    labels.insert(SERVICE_NAME.into(), endpoints.name().into());
    labels.insert(SLICE_MANAGED_BY.into(), MANAGER.into());
    annotations.retain(|key, _| !OWN_ANNOTATIONS.contains(&key.as_str()));
    (labels, annotations)
}

/// Converts ports of Endpoints to ports of a slice (`epPortsToEpsPorts`).
fn ports_of(subset: &Map) -> Vec<Value> {
    let port = |port: &Map| {
        let mut out = json!({
            "name": Cursor::root(port).text("name"), "port": port.get("port"), "protocol": Cursor::root(port).text("protocol"),
        });
        if let Some(protocol) = port.get("appProtocol") {
            out["appProtocol"] = protocol.clone();
        }
        out
    };
    Cursor::root(subset).maps("ports").map(port).collect()
}

/// Converts an address in Endpoints to an endpoint of a slice (`addressToEndpoint`).
fn endpoint_of(address: &Map, is_ready: bool) -> Value {
    let mut endpoint = json!({
        "addresses": [Cursor::root(address).text("ip")], "conditions": {"ready": is_ready},
    });
    for field in ["hostname", "nodeName", "targetRef"] {
        if let Some(value) = address.get(field).filter(|it| **it != "") {
            endpoint[field] = value.clone();
        }
    }
    endpoint
}
