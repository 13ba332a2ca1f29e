//! Parts of Endpoints and EndpointSlices that both kinds have: labels, ports and addresses of Pods.

use std::net::Ipv4Addr;

use super::pods::{sidecars, spec};
use crate::api::json::{Map, Value, json};
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;

/// The label of Nodes with their zone.
pub(crate) const ZONE: &str = "topology.kubernetes.io/zone";
pub(crate) const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// Label of an EndpointSlice with the name of its controller.
pub(crate) const SLICE_MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
pub(crate) const TRIGGER: &str = "endpoints.kubernetes.io/last-change-trigger-time";
const HEADLESS: &str = "service.kubernetes.io/headless";

pub(crate) fn is_headless(service: &Object) -> bool {
    Cursor::root(service).text("spec.clusterIP") == "None"
}

pub(crate) fn publishes_unready(service: &Object) -> bool {
    Cursor::root(service).flag("spec.publishNotReadyAddresses") == Some(true)
}

/// Returns the labels that the Endpoints and slices of a Service inherit.
pub(crate) fn labels_of(service: &Object) -> Map {
    let labels = service.labels().map(|(key, value)| (key.to_owned(), value.into()));
    let mut labels: Map = labels.filter(|(key, _)| key != HEADLESS).collect();
    if is_headless(service) {
        labels.insert(HEADLESS.into(), "".into());
    }
    labels
}

/// Returns the labels of an object as a map.
pub(crate) fn known_labels(object: &Object) -> Map {
    let labels = object.labels().map(|(key, value)| (key.to_owned(), value.into()));
    labels.collect()
}

/// Returns a patch that replaces the labels `known` with `labels`.
pub(crate) fn label_patch(known: &Map, labels: &Map) -> Map {
    let gone = known.keys().filter(|key| !labels.contains_key(key));
    let gone = gone.map(|key| (key.clone(), Value::Null));
    labels.clone().into_iter().chain(gone).collect()
}

/// Returns the annotation with the time of the triggering change, for new objects.
pub(crate) fn trigger_annotation(trigger: Option<&str>) -> Map {
    let mut annotations = Map::new();
    if let Some(trigger) = trigger {
        annotations.insert(TRIGGER.into(), trigger.into());
    }
    annotations
}

/// Returns the ports of a Service, resolved for a Pod, without named ports that the Pod does not have.
pub(crate) fn ports(service: &Object, pod: &Object) -> Vec<Value> {
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
    let mut ports = Cursor::root(spec(pod))
        .maps("containers")
        .chain(sidecars(pod))
        .flat_map(|it| Cursor::root(it).maps("ports"));
    let found = ports.find(|it| Cursor::root(it).text("name") == name && Cursor::root(it).text("protocol") == protocol);
    found.and_then(|it| Cursor::root(it).integer("containerPort"))
}

/// Returns the IPv4 address of a Pod. The server only supports Services with this family.
pub(crate) fn address_of(pod: &Object) -> Option<&str> {
    let all = Cursor::root(pod)
        .maps("status.podIPs")
        .map(|it| Cursor::root(it).text("ip"));
    let mut all = all.chain([Cursor::root(pod).text("status.podIP")]);
    all.find(|it| it.parse::<Ipv4Addr>().is_ok())
}

pub(crate) fn reference(pod: &Object) -> Value {
    json!({"kind": "Pod", "name": pod.name(), "namespace": pod.namespace(), "uid": pod.uid()})
}

/// Returns the host name of a Pod, if the Service is its subdomain.
pub(crate) fn host_name<'a>(service: &Object, pod: &'a Object) -> Option<&'a str> {
    let name = Cursor::root(pod).text("spec.hostname");
    let is_domain = Cursor::root(pod).text("spec.subdomain") == service.name();
    (is_domain && !name.is_empty()).then_some(name)
}
