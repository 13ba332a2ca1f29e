//! IPAddresses of cluster IPs, as the allocator `ipallocator` of kube-apiserver creates and deletes them with their
//! Services.

use super::Registry;
use super::scheme::{Row, codec};
use super::types::cursor::Cursor;
use crate::api::json::{Value, json};
use crate::api::object::Object;
use crate::storage::{Key, Stored};

/// Storage name of Services.
pub(super) const SERVICES: &str = "services";

/// Field manager of the server's own writes.
const SERVER: &str = "kube-apiserver";

const FAMILY: &str = "ipaddress.kubernetes.io/ip-family";
const MANAGED_BY: &str = "ipaddress.kubernetes.io/managed-by";
const ALLOCATOR: &str = "ipallocator.k8s.io";

impl Registry {
    /// Creates the IPAddresses of a Service that was written, and deletes the addresses that only `old` has.
    pub(super) fn sync_addresses(&self, row: &Row, old: Option<&Stored>, key: &Key) {
        if *row.storage != *SERVICES || !self.keeps_own_objects {
            return;
        }
        let Some(addresses) = self.reader.scheme().lookup("networking.k8s.io", "v1", "ipaddresses") else {
            return;
        };
        let new = self.reader.store.get(SERVICES, key);
        let ips = |stored: Option<&Stored>| stored.map(|it| cluster_ips(row, it)).unwrap_or_default();
        let (before, after) = (ips(old), ips(new.as_deref()));
        for ip in before.iter().filter(|it| !after.contains(it)) {
            let found = self.reader.store.get(&addresses.storage, &Key::new("", ip));
            // If a client has changed the object in the meantime, the removal fails and the object is kept.
            if let Some(stored) = found.filter(|it| is_of(&codec::decode(&addresses, it), key)) {
                let _ = self.remove(&addresses, &stored);
            }
        }
        for ip in after.iter().filter(|it| !before.contains(it)) {
            if self.reader.store.get(&addresses.storage, &Key::new("", ip)).is_none() {
                let _ = self.put_own(&addresses, address(ip, key), SERVER);
            }
        }
    }
}

/// Returns the cluster IPs of a stored Service.
fn cluster_ips(row: &Row, stored: &Stored) -> Vec<String> {
    let service = codec::decode(row, stored);
    let service = Cursor::root(&service);
    let spec = service.at("spec");
    if spec.text("type") == "ExternalName" {
        return Vec::new();
    }
    let ips = spec.texts("clusterIPs").filter(|it| *it != "None");
    ips.map(str::to_owned).collect()
}

/// Returns `true` if an IPAddress belongs to the Service.
fn is_of(address: &Object, service: &Key) -> bool {
    let address = Cursor::root(address);
    let parent = address.at("spec.parentRef");
    let parent = [parent.text("resource"), parent.text("namespace"), parent.text("name")];
    parent == ["services", service.namespace(), service.name()]
}

fn address(ip: &str, service: &Key) -> Object {
    let family = if ip.contains(':') { "IPv6" } else { "IPv4" };
    let object = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "IPAddress",
        "metadata": {"name": ip, "labels": {FAMILY: family, MANAGED_BY: ALLOCATOR}},
        "spec": {"parentRef": {
            "resource": "services", "namespace": service.namespace(), "name": service.name(),
        }},
    });
    match object {
        Value::Object(map) => Object(map),
        _ => Object::default(),
    }
}
