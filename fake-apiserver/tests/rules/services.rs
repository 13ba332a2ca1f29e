//! Validation and allocations of Services.

use fake_apiserver::ApiServer;
use rstest::rstest;
use serde_json::{Value, json};

use crate::ask::{MERGE, causes, get, post, put, send, with};

const SERVICES: &str = "/api/v1/namespaces/default/services";
const DRY: &str = "/api/v1/namespaces/default/services?dryRun=All";
const CHANGED: &str = "may not change once set";

fn service(changes: &Value) -> Value {
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"},
        "spec": {"ports": [{"port": 80}], "selector": {"a": "b"}}});
    with(&service, changes)
}

#[rstest]
#[case(json!({"metadata": {"annotations": {"service.kubernetes.io/topology-mode": "a",
    "service.kubernetes.io/topology-aware-hints": "b"}}}),
    &["metadata.annotations[service.kubernetes.io/topology-mode]: Invalid value: \"a\": must match \
       annotations[service.kubernetes.io/topology-aware-hints] when both are specified"])]
#[case(json!({"spec": {"externalIPs": ["010.0.0.1", "::ffff:1.2.3.4", "0.0.0.0"]}}), &[
    "spec.externalIPs[0]: Invalid value: \"010.0.0.1\": must not have leading 0s",
    "spec.externalIPs[1]: Invalid value: \"::ffff:1.2.3.4\": must not be an IPv4-mapped IPv6 address",
    "spec.externalIPs[2]: Invalid value: \"0.0.0.0\": may not be unspecified (0.0.0.0)"])]
#[case(json!({"spec": {"type": "LoadBalancer", "loadBalancerSourceRanges": [" 10.0.0.0/8 ", "10.0.0.1/8", "010.0.0.0/8"]}}), &[
    "spec.LoadBalancerSourceRanges[1]: Invalid value: \"10.0.0.1/8\": must not have bits set beyond the prefix length",
    "spec.LoadBalancerSourceRanges[2]: Invalid value: \"010.0.0.0/8\": must not have leading 0s in IP or prefix length"])]
#[case(json!({"spec": {"type": "LoadBalancer", "ports": [{"port": 10250}]}}), &[])]
#[case(json!({"spec": {"internalTrafficPolicy": ""}}),
    &["spec.internalTrafficPolicy: Unsupported value: \"\": supported values: \"Cluster\", \"Local\""])]
#[case(json!({"spec": {"trafficDistribution": ""}}), &["spec.trafficDistribution: Unsupported value: \"\": supported \
    values: \"PreferClose\", \"PreferSameZone\", \"PreferSameNode\""])]
#[case(json!({"spec": {"clusterIP": "None", "clusterIPs": ["None", "10.0.0.5"]}}),
    &["spec.clusterIPs: Invalid value: [\"None\",\"10.0.0.5\"]: 'None' must be the first and only value"])]
#[case(json!({"spec": {"ipFamilies": ["X"], "ipFamilyPolicy": "Y"}}), &[
    "spec.ipFamilies[0]: Unsupported value: \"X\": supported values: \"IPv4\", \"IPv6\"",
    "spec.ipFamilyPolicy: Unsupported value: \"Y\": supported values: \"PreferDualStack\", \"RequireDualStack\", \
     \"SingleStack\""])]
#[case(json!({"spec": {"ipFamilies": ["IPv4", "IPv6"]}}), &["spec.ipFamilyPolicy: Invalid value: \"SingleStack\": must \
    be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified"])]
#[case(json!({"spec": {"clusterIP": "fd00::1"}}), &["spec.clusterIPs[0]: Invalid value: [\"fd00::1\"]: IPv6 is not \
    configured on this cluster"])]
#[case(json!({"spec": {"ipFamilies": ["IPv6"]}}),
    &["spec.ipFamilies[0]: Invalid value: \"IPv6\": not configured on this cluster"])]
#[case(json!({"spec": {"clusterIP": "192.168.0.1"}}), &["spec.clusterIPs: Invalid value: [\"192.168.0.1\"]: failed to \
    allocate IP 192.168.0.1: the provided network does not match the current range"])]
#[case(json!({"spec": {"type": "Odd"}}), &["spec.type: Unsupported value: \"Odd\": supported values: \"ClusterIP\", \
    \"ExternalName\", \"LoadBalancer\", \"NodePort\""])]
#[case(json!({"spec": {"type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": 5}}),
    &["Internal error occurred: failed to allocate requested HealthCheck NodePort 5: provided port is not in the valid \
       range. The range of valid ports is 30000-32767"])]
#[tokio::test]
async fn new_services_are_validated(#[case] changes: Value, #[case] expected: &[&str]) {
    let server = ApiServer::start();
    let answer = post(&server, SERVICES, &service(&changes)).await;
    assert_eq!(causes(&answer), expected, "{}", answer.1);
    if answer.0 == 201 {
        let same_ip = json!({"metadata": {"name": "b"}, "spec": {"clusterIP": answer.1["spec"]["clusterIP"]}});
        let refused = causes(&post(&server, SERVICES, &service(&same_ip)).await);
        assert!(
            refused[0].ends_with(": provided IP is already allocated"),
            "{refused:?}"
        );
    }
}

/// A dry run checks the range of the cluster IP, but neither the range of node ports nor allocations of other Services.
#[rstest]
#[case(json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 1}]}), &[])]
#[case(json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": -1}]}), &[])]
#[case(json!({"clusterIP": "10.0.0.1"}), &[])]
#[case(json!({"clusterIP": "192.168.0.1"}), &["spec.clusterIPs: Invalid value: [\"192.168.0.1\"]: failed to allocate IP \
    192.168.0.1: the provided IP (192.168.0.1) is not in the valid range. The range of valid IPs is 10.0.0.0/16"])]
#[tokio::test]
async fn dry_runs_only_check_the_range_of_cluster_ips(#[case] spec: Value, #[case] expected: &[&str]) {
    let server = ApiServer::start();
    let answer = post(&server, DRY, &service(&json!({"spec": spec}))).await;
    assert_eq!(causes(&answer), expected, "{}", answer.1);
}

#[tokio::test]
async fn dry_run_returns_a_placeholder_ip_and_ports_outside_of_the_ranges() {
    let server = ApiServer::start();
    let spec = json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local"});
    let (code, made) = post(&server, DRY, &service(&json!({"spec": spec}))).await;
    assert_eq!(code, 201, "{made}");
    let spec = &made["spec"];
    assert_eq!(
        (
            &spec["clusterIP"],
            &spec["ports"][0]["nodePort"],
            &spec["healthCheckNodePort"]
        ),
        (&json!("10.0.0.0"), &json!(32_769), &json!(32_770))
    );
}

#[tokio::test]
async fn ports_with_the_same_number_share_a_node_port() {
    let server = ApiServer::start();
    let ports = json!([{"name": "t", "port": 53}, {"name": "u", "port": 53, "protocol": "UDP"}]);
    let (_, made) = post(
        &server,
        SERVICES,
        &service(&json!({"spec": {"type": "NodePort", "ports": ports}})),
    )
    .await;
    let ports = &made["spec"]["ports"];
    assert_eq!(ports[0]["nodePort"], ports[1]["nodePort"], "{made}");
    assert!(ports[0]["nodePort"].as_i64() >= Some(30_086), "{made}");
}

#[rstest]
#[case(json!({"clusterIP": "10.0.0.9"}), &[CHANGED])]
#[case(json!({"type": "LoadBalancer", "loadBalancerClass": "a.b/c"}), &[])]
#[case(json!({"ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "PreferDualStack"}),
    &["spec.ipFamilies[1]: Invalid value: \"IPv6\": not configured on this cluster"])]
#[case(json!({"type": "NodePort", "ports": [{"name": "a", "port": 1, "nodePort": 30001},
    {"name": "b", "port": 2, "nodePort": 30001}]}), &["duplicate nodePort: {TCP 30001}"])]
#[case(json!({"type": "ExternalName", "externalName": "a.b", "clusterIP": null, "clusterIPs": null}), &[])]
#[tokio::test]
async fn service_updates_are_validated(#[case] spec: Value, #[case] expected: &[&str]) {
    let server = ApiServer::start();
    let (_, made) = post(&server, SERVICES, &service(&json!({}))).await;
    let changed = with(&made, &json!({"spec": spec}));
    let answer = put(&server, &format!("{SERVICES}/a"), &changed).await;
    let texts = causes(&answer);
    assert_eq!(texts.len(), expected.len(), "{texts:?}");
    for (text, expected) in texts.iter().zip(expected) {
        assert!(text.ends_with(expected), "{texts:?}");
    }
}

/// Existing values that older rules permitted are still accepted.
#[rstest]
#[case(json!([{"ip": "1.2.3.4", "ipMode": "VIP"}]), "LoadBalancer", &[])]
#[case(json!([{"ip": "1.2.3.4"}]), "ClusterIP",
    &["status.loadBalancer.ingress: Forbidden: may only be used when `spec.type` is 'LoadBalancer'"])]
#[case(json!([{"ip": "01.2.3.4", "hostname": "1.2.3.4"}, {"ipMode": "VIP"}, {"ip": "1.2.3.4", "ipMode": "x"}]),
    "LoadBalancer", &[
    "status.loadBalancer.ingress[0].ip: Invalid value: \"01.2.3.4\": must not have leading 0s",
    "status.loadBalancer.ingress[0].hostname: Invalid value: \"1.2.3.4\": must be a DNS name, not an IP address",
    "status.loadBalancer.ingress[1].ipMode: Forbidden: may not be specified when `ip` is not set",
    "status.loadBalancer.ingress[2].ipMode: Unsupported value: \"x\": supported values: \"Proxy\", \"VIP\""])]
#[tokio::test]
async fn service_statuses_are_validated(#[case] points: Value, #[case] kind: &str, #[case] expected: &[&str]) {
    let server = ApiServer::start();
    let (_, made) = post(&server, SERVICES, &service(&json!({"spec": {"type": kind}}))).await;
    let changed = with(&made, &json!({"status": {"loadBalancer": {"ingress": points}}}));
    let answer = put(&server, &format!("{SERVICES}/a/status"), &changed).await;
    assert_eq!(causes(&answer), expected, "{}", answer.1);
}

#[tokio::test]
async fn status_write_may_create_a_service_without_an_address() {
    let server = ApiServer::start();
    let sent = service(&json!({"status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}}));
    let (code, made) = put(&server, &format!("{SERVICES}/a/status"), &sent).await;
    assert_eq!(code, 201, "{made}");
    assert_eq!(
        (&made["spec"]["clusterIP"], &made["spec"]["type"]),
        (&Value::Null, &json!("ClusterIP"))
    );
    assert_eq!(made["status"], json!({"loadBalancer": {}}));
}

#[rstest]
#[case::not_a_number("/api/v1/namespaces/default/services/a", "x", 500)]
#[case::not_a_number_in_a_status_update("/api/v1/namespaces/default/services/a/status", "x", 500)]
#[case::any_number("/api/v1/namespaces/default/services/a", "7", 201)]
#[tokio::test]
async fn resource_version_of_a_creating_update_must_be_a_number(
    #[case] path: &str,
    #[case] version: &str,
    #[case] expected: u16,
) {
    let sent = service(&json!({"metadata": {"resourceVersion": version}}));
    let (code, answer) = put(&ApiServer::start(), path, &sent).await;
    assert_eq!(code, expected, "{answer}");
}

#[tokio::test]
async fn no_ip_is_allocated_for_a_service_without_a_name() {
    let server = ApiServer::start();
    let nameless = service(&json!({"metadata": {"name": null}, "spec": {"clusterIP": "10.0.0.77"}}));
    let expected = "spec.clusterIPs: Invalid value: [\"10.0.0.77\"]: failed to allocate IP 10.0.0.77: \
                    IPAddress.networking.k8s.io \"10.0.0.77\" is invalid: spec.parentRef.name: Required value";
    assert_eq!(causes(&post(&server, SERVICES, &nameless).await), [expected]);
    let free = with(&nameless, &json!({"spec": {"clusterIP": null}}));
    let found = causes(&post(&server, SERVICES, &free).await);
    let start = "spec.clusterIPs: Invalid value: [\"\"]: failed to allocate IP: IPAddress.networking.k8s.io ";
    assert!(found.len() == 1 && found[0].starts_with(start), "{found:?}");
}

#[tokio::test(start_paused = true)]
async fn cluster_ip_of_a_service_has_an_ip_address_object() {
    let server = ApiServer::builder().kubernetes_service(true).start();
    let services = "/api/v1/namespaces/default/services";
    let address = "/apis/networking.k8s.io/v1/ipaddresses/10.0.0.99";
    let body =
        |name: &str| json!({"metadata": {"name": name}, "spec": {"clusterIP": "10.0.0.99", "ports": [{"port": 1}]}});
    assert_eq!(post(&server, services, &body("a")).await.0, 201);
    let (code, found) = get(&server, address).await;
    assert_eq!(code, 200, "{found}");
    let parent = json!({"resource": "services", "namespace": "default", "name": "a"});
    let labels = json!({
        "ipaddress.kubernetes.io/ip-family": "IPv4", "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
    });
    assert_eq!(
        (&found["spec"]["parentRef"], &found["metadata"]["labels"]),
        (&parent, &labels)
    );
    assert_eq!(found["metadata"]["managedFields"][0]["manager"], "kube-apiserver");

    let external = json!({"spec": {"type": "ExternalName", "externalName": "a.b", "clusterIP": "", "clusterIPs": []}});
    let (code, changed) = send(&server, "PATCH", &format!("{services}/a"), MERGE, &external).await;
    assert_eq!(code, 200, "{changed}");
    assert_eq!(
        get(&server, address).await.0,
        404,
        "a Service of another type releases its address"
    );
    assert_eq!(post(&server, services, &body("b")).await.0, 201);
    assert_eq!(get(&server, address).await.1["spec"]["parentRef"]["name"], "b");
    assert_eq!(
        send(&server, "DELETE", &format!("{services}/b"), MERGE, &Value::Null)
            .await
            .0,
        200
    );
    assert_eq!(
        get(&server, address).await.0,
        404,
        "a deleted Service releases its address"
    );
}

#[tokio::test(start_paused = true)]
async fn ip_address_created_by_a_client_is_reserved() {
    let server = ApiServer::builder().kubernetes_service(true).start();
    let address = json!({
        "metadata": {"name": "10.0.0.98"},
        "spec": {"parentRef": {"resource": "gateways", "group": "example.com", "name": "g"}},
    });
    assert_eq!(
        post(&server, "/apis/networking.k8s.io/v1/ipaddresses", &address)
            .await
            .0,
        201
    );
    let body = json!({"metadata": {"name": "a"}, "spec": {"clusterIP": "10.0.0.98", "ports": [{"port": 1}]}});
    let answer = post(&server, "/api/v1/namespaces/default/services", &body).await;
    let expected = "spec.clusterIPs: Invalid value: [\"10.0.0.98\"]: failed to allocate IP 10.0.0.98: provided IP is \
                    already allocated";
    assert_eq!(causes(&answer), [expected]);
}

#[rstest]
#[case::deletion("", 404)]
#[case::dry_run("?dryRun=All", 200)]
#[tokio::test]
async fn deletion_of_a_service_deletes_its_endpoints(#[case] query: &str, #[case] code: u16) {
    let server = ApiServer::start();
    let endpoints = "/api/v1/namespaces/default/endpoints";
    assert_eq!(post(&server, SERVICES, &service(&json!({}))).await.0, 201);
    for name in ["a", "b"] {
        assert_eq!(
            post(&server, endpoints, &json!({"metadata": {"name": name}})).await.0,
            201
        );
    }
    let (removed, answer) = send(&server, "DELETE", &format!("{SERVICES}/a{query}"), MERGE, &Value::Null).await;
    assert_eq!(removed, 200, "{answer}");
    assert_eq!(get(&server, &format!("{endpoints}/a")).await.0, code);
    assert_eq!(get(&server, &format!("{endpoints}/b")).await.0, 200);
}
