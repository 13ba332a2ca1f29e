//! Initial state of a server (rule R1): namespaces, PriorityClasses, Roles if RBAC is on, and the ServiceAccounts and
//! ConfigMaps of each namespace if their worker runs (rule R6). Optionally also the Service `kubernetes` and the other
//! initial objects of a cluster, including Roles.
//!
//! The initial state, including uids, is the same for all servers with the same options and start time, regardless of
//! their seeds. It is therefore cached in the process, and servers share it until they write to it.

mod flow_control;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::api::kubernetes_version::KubernetesVersion;
use crate::api::object::Object;
use crate::entropy::{self, Entropy};
use crate::options::{Authorization, ServerOptions};
use crate::registry::authorization;
use crate::registry::kinds::service::ClusterRange;
use crate::registry::scheme::enablement::Enablement;
use crate::server::ApiServer;
use crate::storage::World;
use crate::workers::{self, Kubelet, Worker};

/// The seed of the uids of initial objects. It is fixed, so that all servers can share the objects. A server with the
/// same seed would generate the same uids again, but users are unlikely to choose this seed.
const SEED: u64 = 0x6472_7964_6f63_6b5f;

/// Maximum number of initial states that a process caches; the cache is cleared when it is full.
const WORLDS_MAX: usize = 16;

/// Field manager of the objects that kube-apiserver creates.
const SERVER: &str = "kube-apiserver";

/// Field manager of the objects that kube-controller-manager creates in each namespace.
const CONTROLLER_MANAGER: &str = "kube-controller-manager";

const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

/// Options that determine the initial objects.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    rbac: bool,
    /// The version that determines the built-in resources.
    version: KubernetesVersion,
    enablement: Enablement,
    /// IP range and endpoint of the Service `kubernetes`, if it is created.
    kubernetes_service: Option<(ClusterRange, SocketAddr)>,
    /// Set if the objects that workers create for the ServiceAccounts of each namespace exist from the start, as in a
    /// running cluster.
    service_accounts: bool,
    /// Start time of the server, in seconds.
    second: i64,
}

static WORLDS: Mutex<BTreeMap<Kind, World>> = Mutex::new(BTreeMap::new());

/// Returns the initial state of a server with these options and this start time.
pub(crate) fn world(options: &ServerOptions, start: Timestamp) -> World {
    let kind = Kind {
        rbac: options.authorization == Authorization::Rbac,
        version: options.version,
        enablement: options.enablement.clone(),
        kubernetes_service: options
            .kubernetes_service
            .then_some((options.cluster_range, options.kubernetes_endpoint)),
        service_accounts: options.workers.contains(&Worker::ServiceAccount),
        second: start.as_second(),
    };
    let known = WORLDS
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .get(&kind)
        .cloned();
    if let Some(world) = known {
        return world;
    }
    // Computed outside of the lock; concurrent callers compute the same state.
    let world = make(&kind);
    let mut worlds = WORLDS.lock().unwrap_or_else(PoisonError::into_inner);
    if worlds.len() >= WORLDS_MAX {
        worlds.clear();
    }
    worlds.insert(kind, world.clone());
    world
}

/// Stores `count` ready nodes, named `node-0` and so on.
pub(crate) fn load_nodes(server: &ApiServer, count: usize) {
    let version = server.endpoints.registry.reader.scheme().version;
    // Cannot fail: the names are valid and unused, and the kind is served.
    let _ = server.load((0..count).map(|number| node(number, version)));
}

fn make(kind: &Kind) -> World {
    let second = Timestamp::from_second(kind.second).unwrap_or(Timestamp::UNIX_EPOCH);
    let options = |authorization| ServerOptions {
        authorization,
        version: kind.version,
        enablement: kind.enablement.clone(),
        kubernetes_service: kind.kubernetes_service.is_some(),
        ..ServerOptions::default()
    };
    let plain = options(Authorization::AlwaysAllow);
    let server = ApiServer::assemble(World::default().into(), Entropy::new(SEED, second), plain, Kubelet::new);
    // Cannot fail: the names are valid and unused, because nothing has been stored before.
    put_own(&server, SERVER, NAMESPACES.map(namespace));
    put_own(&server, SERVER, PRIORITY_CLASSES.map(priority_class));
    if let Some((range, endpoint)) = kind.kubernetes_service {
        let _ = server.load([service_cidr(range, second)]);
        let _ = server.load(kubernetes_service(range, endpoint, second));
        let _ = server.load(system_config_maps(second));
        let _ = server.load(COMPONENTS.map(component_status));
        put_own(&server, flow_control::MANAGER, flow_control::objects());
        server.endpoints.registry.register_builtins();
    }
    if kind.service_accounts {
        let objects = NAMESPACES.map(workers::objects_of_namespace);
        put_own(&server, CONTROLLER_MANAGER, objects.into_iter().flatten());
    }
    let world = server.snapshot().world;
    if !kind.rbac && kind.kubernetes_service.is_none() {
        return world;
    }
    // Without RBAC, writes of ClusterRoles do not trigger aggregation, so all roles are aggregated once, at the end.
    put_own(&server, SERVER, authorization::bootstrap_objects());
    let (state, entropy) = (server.snapshot(), server.endpoints.registry.reader.entropy.fork());
    let server = ApiServer::assemble(state, entropy, options(Authorization::Rbac), Kubelet::new);
    server.endpoints.registry.authorization.aggregate_roles();
    server.snapshot().world
}

/// Stores objects that the server creates and manages itself, with `manager` as field manager.
fn put_own(server: &ApiServer, manager: &str, objects: impl IntoIterator<Item = impl Into<crate::api::json::Value>>) {
    let registry = &server.endpoints.registry;
    let scheme = registry.reader.scheme();
    for object in objects {
        let crate::api::json::Value::Object(object) = object.into() else {
            continue;
        };
        let object = Object(object);
        if let Some(row) = scheme.lookup_kind(object.api_version(), object.kind()) {
            // Cannot fail: the names are valid and unused.
            let _ = registry.put_own(&row, object, manager);
        }
    }
}

fn namespace(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}},
    })
}

/// Name, value and description.
const PRIORITY_CLASSES: [(&str, i64, &str); 2] = [
    (
        "system-cluster-critical",
        2_000_000_000,
        "pods that must run in the cluster, but can be moved to another node if necessary.",
    ),
    (
        "system-node-critical",
        2_000_001_000,
        "pods that must not be moved from their current node.",
    ),
];

fn priority_class((name, value, whom): (&str, i64, &str)) -> Value {
    json!({
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value,
        "description": format!("Used for system critical {whom}"), "preemptionPolicy": "PreemptLowerPriority",
    })
}

/// Returns the `managedFields` of an object that the server created itself.
fn owned(api_version: &str, now: Timestamp, fields: &Value) -> Value {
    json!([{
        "manager": SERVER, "operation": "Update", "apiVersion": api_version,
        "time": entropy::seconds(now), "fieldsType": "FieldsV1", "fieldsV1": fields,
    }])
}

/// Builds the Service through which Pods reach the API server, its Endpoints and its EndpointSlice, as kube-apiserver
/// writes them when it starts.
fn kubernetes_service(range: ClusterRange, endpoint: SocketAddr, now: Timestamp) -> [Value; 3] {
    let metadata = |labels: Value, api_version: &str, mut fields: Value| {
        let mut labelled: serde_json::Map<String, Value> = serde_json::Map::new();
        labelled.insert(".".into(), json!({}));
        let names = labels.as_object().into_iter().flat_map(serde_json::Map::keys);
        labelled.extend(names.map(|name| (format!("f:{name}"), json!({}))));
        fields["f:metadata"] = json!({"f:labels": labelled});
        json!({
            "name": "kubernetes", "namespace": "default", "labels": labels,
            "managedFields": owned(api_version, now, &fields),
        })
    };
    let ip = range.first_ip().to_string();
    let (address, port) = (endpoint.ip().to_string(), endpoint.port());
    let spec = json!({
        "clusterIP": ip, "clusterIPs": [ip], "internalTrafficPolicy": "Cluster", "ipFamilies": ["IPv4"],
        "ipFamilyPolicy": "SingleStack", "sessionAffinity": "None", "type": "ClusterIP",
        "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": port}],
    });
    let of_spec = json!({
        "f:clusterIP": {}, "f:internalTrafficPolicy": {}, "f:ipFamilyPolicy": {}, "f:sessionAffinity": {}, "f:type": {},
        "f:ports": {".": {}, "k:{\"port\":443,\"protocol\":\"TCP\"}": {
            ".": {}, "f:name": {}, "f:port": {}, "f:protocol": {}, "f:targetPort": {},
        }},
    });
    let ports = json!([{"name": "https", "port": port, "protocol": "TCP"}]);
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "spec": spec, "status": {"loadBalancer": {}},
        "metadata": metadata(
            json!({"component": "apiserver", "provider": "kubernetes"}),
            "v1",
            json!({"f:spec": of_spec}),
        ),
    });
    let endpoints = json!({
        "apiVersion": "v1", "kind": "Endpoints", "subsets": [{"addresses": [{"ip": address}], "ports": ports}],
        "metadata": metadata(
            json!({"endpointslice.kubernetes.io/skip-mirror": "true"}),
            "v1",
            json!({"f:subsets": {}}),
        ),
    });
    let mut about_slice = metadata(
        json!({"kubernetes.io/service-name": "kubernetes"}),
        "discovery.k8s.io/v1",
        json!({"f:addressType": {}, "f:endpoints": {}, "f:ports": {}}),
    );
    about_slice["generation"] = 1.into();
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": about_slice,
        "addressType": if endpoint.is_ipv4() { "IPv4" } else { "IPv6" },
        "endpoints": [{"addresses": [address], "conditions": {"ready": true}}], "ports": ports,
    });
    [service, endpoints, slice]
}

/// Builds the ServiceCIDR of the cluster IPs, as kube-apiserver creates it when it starts.
fn service_cidr(range: ClusterRange, now: Timestamp) -> Value {
    let ready = json!({
        "type": "Ready", "status": "True", "reason": "", "message": "Kubernetes default Service CIDR is ready",
        "lastTransitionTime": entropy::seconds(now),
    });
    let of_status = json!({"f:status": {"f:conditions": {"k:{\"type\":\"Ready\"}": {
        ".": {}, "f:lastTransitionTime": {}, "f:message": {}, "f:status": {}, "f:type": {},
    }}}});
    let applied = json!({
        "manager": "kubernetes-service-cidr-controller", "operation": "Apply", "apiVersion": "networking.k8s.io/v1",
        "time": entropy::seconds(now), "fieldsType": "FieldsV1", "fieldsV1": of_status, "subresource": "status",
    });
    let mut managed = owned("networking.k8s.io/v1", now, &json!({"f:spec": {"f:cidrs": {}}}));
    managed
        .as_array_mut()
        .into_iter()
        .for_each(|it| it.insert(0, applied.clone()));
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR",
        "metadata": {"name": "kubernetes", "managedFields": managed},
        "spec": {"cidrs": [range.to_string()]}, "status": {"conditions": [ready]},
    })
}

/// Builds the ConfigMaps of `kube-system` that other components read: the authorities of front proxies and client
/// certificates (empty here), and the date from which the use of legacy tokens is tracked.
fn system_config_maps(now: Timestamp) -> [Value; 2] {
    let map = |name: &str, data: Value| {
        let names = data.as_object().into_iter().flat_map(serde_json::Map::keys);
        let mut fields: serde_json::Map<String, Value> = names.map(|name| (format!("f:{name}"), json!({}))).collect();
        fields.insert(".".into(), json!({}));
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": data,
            "metadata": {
                "name": name, "namespace": "kube-system",
                "managedFields": owned("v1", now, &json!({"f:data": fields})),
            },
        })
    };
    let day = entropy::seconds(now);
    let day = day.split('T').next().unwrap_or_default();
    [
        map("extension-apiserver-authentication", json!({})),
        map(
            "kube-apiserver-legacy-service-account-token-tracking",
            json!({"since": day}),
        ),
    ]
}

/// Components of a control plane, with the port of each health check. Only etcd is reported as healthy; the health
/// checks of the other components fail with a refused connection.
const COMPONENTS: [(&str, u16); 3] = [("controller-manager", 10_257), ("etcd-0", 0), ("scheduler", 10_259)];

fn component_status((name, port): (&str, u16)) -> Value {
    let condition = match port {
        0 => json!({"type": "Healthy", "status": "True", "message": "ok"}),
        port => {
            let at = format!("127.0.0.1:{port}");
            let why = format!("Get \"https://{at}/healthz\": dial tcp {at}: connect: connection refused");
            json!({"type": "Healthy", "status": "False", "message": why})
        }
    };
    json!({
        "apiVersion": "v1", "kind": "ComponentStatus", "metadata": {"name": name}, "conditions": [condition],
    })
}

fn node(number: usize, version: KubernetesVersion) -> Value {
    let name = format!("node-{number}");
    let labels = json!({"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"});
    let room = json!({"cpu": "8", "memory": "16Gi", "pods": "110"});
    let ready = json!({
        "type": "Ready", "status": "True", "reason": "KubeletReady",
        "message": "kubelet is posting ready status",
    });
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
        "status": {
            "conditions": [ready], "capacity": room, "allocatable": room, "nodeInfo": workers::node_info(&name, version),
            "addresses": [
                {"type": "InternalIP", "address": workers::node_address(number)}, {"type": "Hostname", "address": name},
            ],
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn boot_objects_are_equal_for_all_seeds_but_later_uids_differ() {
        let with = |seed| {
            ApiServer::builder()
                .seed(seed)
                .nodes(1)
                .authorization(Authorization::Rbac)
                .start()
        };
        let (one, two, again) = (with(1), with(2), with(1));
        for (api_version, kind) in [
            ("v1", "Namespace"),
            ("scheduling.k8s.io/v1", "PriorityClass"),
            ("rbac.authorization.k8s.io/v1", "ClusterRole"),
        ] {
            let of_one = one.list(api_version, kind, "").await.unwrap();
            assert!(!of_one.is_empty(), "the server has no {kind}");
            assert_eq!(of_one, two.list(api_version, kind, "").await.unwrap(), "{kind}");
        }
        let uid =
            async |server: &ApiServer| server.get("v1", "Node", "", "node-0").await.unwrap()["metadata"]["uid"].clone();
        assert_eq!(uid(&one).await, uid(&again).await);
        assert_ne!(uid(&one).await, uid(&two).await);
    }

    #[tokio::test]
    async fn writes_to_one_server_are_invisible_to_another() {
        let (one, two) = (ApiServer::start(), ApiServer::start());
        one.load([namespace("mine")]).unwrap();
        assert!(two.get("v1", "Namespace", "", "mine").await.is_err());
        assert_eq!(one.resource_version(), two.resource_version() + 1);
    }

    #[tokio::test]
    async fn boot_objects_have_the_start_time_of_their_server() {
        let start = Timestamp::from_second(1_000_000_000).unwrap();
        let server = ApiServer::builder().start_time(start).start();
        let namespace = server.get("v1", "Namespace", "", "default").await.unwrap();
        assert_eq!(namespace["metadata"]["creationTimestamp"], "2001-09-09T01:46:40Z");
    }

    #[tokio::test]
    async fn kubernetes_service_has_the_first_cluster_ip() {
        let server = ApiServer::builder().kubernetes_service(true).start();
        let service = server.get("v1", "Service", "default", "kubernetes").await.unwrap();
        assert_eq!(service["spec"]["clusterIP"], "10.0.0.1");
        assert_eq!(service["metadata"]["labels"]["component"], "apiserver");
        let body = r#"{"metadata":{"name":"mine"},"spec":{"clusterIP":"10.0.0.1","ports":[{"port":80}]}}"#;
        let request = http::Request::post("/api/v1/namespaces/default/services")
            .header("content-type", "application/json")
            .body(body)
            .unwrap();
        let answer = server.call(request).await;
        let text = String::from_utf8_lossy(answer.body());
        assert!(
            text.contains("failed to allocate IP 10.0.0.1: provided IP is already allocated"),
            "{text}"
        );
    }

    #[rstest::rstest]
    #[case("10.9.8.7:7443", "IPv4")]
    #[case("[2001:db8::7]:7443", "IPv6")]
    #[tokio::test]
    async fn kubernetes_service_has_the_configured_endpoint(#[case] at: SocketAddr, #[case] family: &str) {
        let builder = ApiServer::builder().kubernetes_service(true);
        let server = builder.kubernetes_endpoint(at).start();
        let service = server.get("v1", "Service", "default", "kubernetes").await.unwrap();
        assert_eq!(service["spec"]["ports"][0]["targetPort"], 7443);
        let endpoints = server.get("v1", "Endpoints", "default", "kubernetes").await.unwrap();
        assert_eq!(endpoints["subsets"][0]["addresses"][0]["ip"], at.ip().to_string());
        assert_eq!(endpoints["subsets"][0]["ports"][0]["port"], 7443);
        let slice = server
            .get("discovery.k8s.io/v1", "EndpointSlice", "default", "kubernetes")
            .await
            .unwrap();
        assert_eq!(slice["addressType"], family);
        assert_eq!(slice["endpoints"][0]["addresses"][0], at.ip().to_string());
    }

    /// An update that writes an object back unchanged does not create a new version, because its defaults and managed
    /// fields match the server's.
    #[rstest::rstest]
    #[case("/api/v1/namespaces/default/services/kubernetes")]
    #[case("/api/v1/namespaces/default")]
    #[case("/apis/scheduling.k8s.io/v1/priorityclasses/system-node-critical")]
    #[case("/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/system-node-high")]
    #[case("/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations/system")]
    #[case("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/system:node")]
    #[case("/api/v1/namespaces/default/endpoints/kubernetes")]
    #[case("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes")]
    #[case("/apis/networking.k8s.io/v1/servicecidrs/kubernetes")]
    #[case("/api/v1/namespaces/kube-system/configmaps/kube-apiserver-legacy-service-account-token-tracking")]
    #[tokio::test]
    async fn replacing_a_boot_object_with_itself_does_not_change_it(#[case] path: &str) {
        let server = ApiServer::builder().kubernetes_service(true).start();
        let before = server.call(http::Request::get(path).body("").unwrap()).await;
        assert_eq!(before.status(), 200);
        let object: Value = serde_json::from_slice(before.body()).unwrap();
        assert!(!object["metadata"]["managedFields"].is_null(), "{object}");
        let request = http::Request::put(path)
            .header("content-type", "application/json")
            .body(before.body().clone())
            .unwrap();
        let after = server.call(request).await;
        assert_eq!(
            String::from_utf8_lossy(before.body()),
            String::from_utf8_lossy(after.body())
        );
    }

    #[tokio::test]
    async fn in_process_server_has_no_kubernetes_service_by_default() {
        let server = ApiServer::start();
        for (api_version, kind) in [
            ("v1", "Service"),
            ("v1", "Endpoints"),
            ("discovery.k8s.io/v1", "EndpointSlice"),
        ] {
            assert_eq!(server.list(api_version, kind, "").await.unwrap().len(), 0, "{kind}");
        }
    }

    #[tokio::test]
    async fn aggregated_roles_have_rules_at_startup() {
        let server = ApiServer::builder().authorization(Authorization::Rbac).start();
        for name in ["admin", "edit", "view"] {
            let role = server
                .get("rbac.authorization.k8s.io/v1", "ClusterRole", "", name)
                .await
                .unwrap();
            assert!(
                role["rules"].as_array().is_some_and(|rules| rules.len() > 3),
                "{name}: {role}"
            );
        }
    }
}
