//! Validation and warnings of built-in kinds.

use fake_apiserver::ApiServer;
use rstest::rstest;
use serde_json::{Value, json};

use crate::ask::{MERGE, causes, get, post, put, send, warnings, with};

const NAMESPACED: &str = "/namespaces/default";

/// A certificate request in PEM, without its middle part.
const REQUEST: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlISU1IRUNBUUF3RHpFTk1Bc0dBMVVFQXd3RWFtRnVaVEJaTUJN\
     R0J5cUdTTTQ5QWdFR0NDcUdTTTQ5QXdFSApBMElBQk9sbDFhdzRCbXEvaVNpNEJ6ZGFuandReDZoSDFLOGsrQnVVRXVjZnM3Ky9R\
     ZUJrTlM4VHdGWi9RSHltCi9RT00zNkR3T25hVnF1RVl3a0NsWm5ZZExuNmdBREFLQmdncWhrak9QUVFEQWdOSEFEQkVBaUJ6dW01\
     UzFSdHkKTEt1SGVvRFJ0MzArZUR2M0VneHhRbG9JK3Q3YVhDWmZ4UUlnSzdwNXhMM2E4QUduRHFQa05TV3FWOGVMT0VrdwowMmht\
     T0tlckdCKytYVE09Ci0tLS0tRU5EIENFUlRJRklDQVRFIFJFUVVFU1QtLS0tLQo=";

/// Returns the path and a valid object of a kind.
fn kind(name: &str) -> (String, Value) {
    let (prefix, resource, fields) = match name {
        "NetworkPolicy" => (
            "/apis/networking.k8s.io/v1/namespaces/default",
            "networkpolicies",
            json!({"spec": {"podSelector": {}}}),
        ),
        "EndpointSlice" => (
            "/apis/discovery.k8s.io/v1/namespaces/default",
            "endpointslices",
            json!({"addressType": "IPv4", "endpoints": []}),
        ),
        "Endpoints" => ("/api/v1/namespaces/default", "endpoints", json!({})),
        "Secret" => ("/api/v1/namespaces/default", "secrets", json!({})),
        "Node" => ("/api/v1", "nodes", json!({})),
        "PersistentVolume" => (
            "/api/v1",
            "persistentvolumes",
            json!({"spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
                "nfs": {"server": "s", "path": "/p"}}}),
        ),
        "PersistentVolumeClaim" => (
            "/api/v1/namespaces/default",
            "persistentvolumeclaims",
            json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}),
        ),
        "HorizontalPodAutoscaler" => (
            "/apis/autoscaling/v2/namespaces/default",
            "horizontalpodautoscalers",
            json!({"spec": {"maxReplicas": 3,
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}}}),
        ),
        "CertificateSigningRequest" => (
            "/apis/certificates.k8s.io/v1",
            "certificatesigningrequests",
            json!({"spec": {"signerName": "a.b/c", "usages": ["client auth"], "request": REQUEST}}),
        ),
        "FlowSchema" => (
            "/apis/flowcontrol.apiserver.k8s.io/v1",
            "flowschemas",
            json!({"spec": {"priorityLevelConfiguration": {"name": "p"}}}),
        ),
        "PriorityLevelConfiguration" => (
            "/apis/flowcontrol.apiserver.k8s.io/v1",
            "prioritylevelconfigurations",
            json!({"spec": {"type": "Limited", "limited": {"limitResponse": {"type": "Reject"}}}}),
        ),
        "Job" => (
            "/apis/batch/v1/namespaces/default",
            "jobs",
            json!({"spec": {"template": {"spec": {"restartPolicy": "Never",
                "containers": [{"name": "c", "image": "i"}]}}}}),
        ),
        other => unreachable!("unknown kind {other}"),
    };
    let group = prefix.trim_start_matches("/apis/").trim_start_matches("/api/");
    let version = group.trim_end_matches(NAMESPACED);
    let object = json!({"apiVersion": version, "kind": name, "metadata": {"name": "a"}});
    (format!("{prefix}/{resource}"), with(&object, &fields))
}

fn endpoints(address_type: &str, addresses: &[&str]) -> Value {
    json!({"addressType": address_type, "endpoints": [{"addresses": addresses}]})
}

#[rstest]
#[case("NetworkPolicy", json!({"spec": {"policyTypes": ["Egress", "x"]}}),
    &["spec.policyTypes[1]: Unsupported value: \"x\": supported values: \"Ingress\", \"Egress\""])]
#[case("NetworkPolicy", json!({"spec": {"ingress": [{"ports": [{"protocol": ""}]}]}}),
    &["spec.ingress[0].ports[0].protocol: Unsupported value: \"\": supported values: \"TCP\", \"UDP\", \"SCTP\""])]
#[case("NetworkPolicy", json!({"spec": {"egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.1/8",
    "except": ["010.1.0.0/16", "11.0.0.0/16"]}}]}]}}), &[
    "spec.egress[0].to[0].ipBlock.cidr: Invalid value: \"10.0.0.1/8\": must not have bits set beyond the prefix length",
    "spec.egress[0].to[0].ipBlock.except[0]: Invalid value: \"010.1.0.0/16\": must not have leading 0s in IP or prefix \
     length",
    "spec.egress[0].to[0].ipBlock.except[1]: Invalid value: \"11.0.0.0/16\": must be a strict subset of `cidr`"])]
#[case("EndpointSlice", endpoints("IPv6", &["2001:DB8::1", "::ffff:1.2.3.4"]), &[
    "endpoints[0].addresses[0]: Invalid value: \"2001:DB8::1\": must be in canonical form (\"2001:db8::1\")",
    "endpoints[0].addresses[1]: Invalid value: \"::ffff:1.2.3.4\": must not be an IPv4-mapped IPv6 address"])]
#[case("EndpointSlice", endpoints("IPv4", &["fd00::1", "01.2.3.4"]), &[
    "endpoints[0].addresses: Invalid value: \"fd00::1\": must be an IPv4 address",
    "endpoints[0].addresses[1]: Invalid value: \"01.2.3.4\": must not have leading 0s"])]
#[case("EndpointSlice", endpoints("FQDN", &["", "a"]), &[
    "endpoints[0].addresses[0]: Required value",
    "endpoints[0].addresses[1]: Invalid value: \"a\": should be a domain with at least two segments separated by dots"])]
#[case("EndpointSlice", json!({"ports": [{"protocol": ""}]}),
    &["ports[0].protocol: Unsupported value: \"\": supported values: \"SCTP\", \"TCP\", \"UDP\""])]
#[case("Node", json!({"status": {"declaredFeatures": ["a", "A", "A/b"], "nodeInfo": {"swap": {"capacity": 0}}}}), &[
    "metadata.nodeSwapStatus.capacity: Invalid value: 0: must be greater than zero",
    "status.declaredFeatures[0]: Invalid value: \"a\": invalid feature name \"a\": must start with an UpperCamelCase \
     segment, with subsequent segments separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only \
     alphanumeric characters and slashes",
    "status.declaredFeatures[1]: Invalid value: \"A\": list must be sorted alphabetically"])]
#[case("PersistentVolume", json!({"spec": {"volumeMode": "", "capacity": {"storage": "-1"}}}), &[
    "spec.capacity[storage]: Invalid value: -1: must be a valid resource quantity",
    "spec.capacity[storage]: Invalid value: \"-1\": must be greater than zero",
    "spec.volumeMode: Unsupported value: \"\": supported values: \"Block\", \"Filesystem\""])]
#[case("PersistentVolumeClaim", json!({"spec": {"volumeMode": ""}}),
    &["spec.volumeMode: Unsupported value: \"\": supported values: \"Block\", \"Filesystem\""])]
#[case("HorizontalPodAutoscaler", json!({"spec": {"behavior": {"scaleUp": {"selectPolicy": ""}}}}),
    &["spec.behavior.scaleUp.selectPolicy: Unsupported value: \"\": supported values: \"Disabled\", \"Max\", \"Min\""])]
#[case("CertificateSigningRequest", json!({"metadata": {"name": "a/b"}}),
    &["metadata.name: Invalid value: \"a/b\": may not contain '/'"])]
#[case("Job", json!({"spec": {"completionMode": "", "podReplacementPolicy": ""}}), &[
    "spec.completionMode: Unsupported value: \"\": supported values: \"NonIndexed\", \"Indexed\"",
    "spec.podReplacementPolicy: Unsupported value: \"\": supported values: \"Failed\", \"TerminatingOrFailed\""])]
#[tokio::test]
async fn new_objects_are_validated(#[case] name: &str, #[case] changes: Value, #[case] expected: &[&str]) {
    let (path, object) = kind(name);
    let answer = post(&ApiServer::start(), &path, &with(&object, &changes)).await;
    assert_eq!(causes(&answer), expected, "{}", answer.1);
}

#[rstest]
#[case("Secret", json!({"type": "kubernetes.io/tls", "stringData": {"tls.crt": "x", "tls.key": "x"}}),
    &["tls: failed to find any PEM data in certificate input"])]
#[case("Secret", json!({"type": "kubernetes.io/tls", "stringData": {"tls.key": "x",
    "tls.crt": "-----BEGIN RSA PRIVATE KEY-----\nMAA=\n-----END RSA PRIVATE KEY-----\n"}}),
    &["tls: failed to find certificate PEM data in certificate input, but did find a private key; PEM inputs may have \
       been switched"])]
#[case("Secret", json!({"type": "kubernetes.io/tls", "stringData": {"tls.key": "x",
    "tls.crt": "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n"}}),
    &["tls: failed to find any PEM data in key input"])]
#[case("Endpoints", json!({"subsets": [{"addresses": [{"ip": "2001:DB8::1"}]}]}),
    &["v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
       "subsets[0].addresses[0].ip: IPv6 address \"2001:DB8::1\" should be in RFC 5952 canonical format \
       (\"2001:db8::1\")"])]
#[case("NetworkPolicy", json!({"spec": {"ingress": [{"from": [{"ipBlock": {"cidr": "2001:DB8::/64"}}]}]}}),
    &["spec.ingress[0].from[0].ipBlock.cidr: IPv6 CIDR value \"2001:DB8::/64\" should be in RFC 5952 canonical format \
       (\"2001:db8::/64\")"])]
#[case("Job", json!({"spec": {"completionMode": "Indexed", "completions": 100_001, "parallelism": 10_001}}),
    &["spec: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, \
       Kubernetes might not be able to track completedIndexes when a big number of indexes fail"])]
#[case("EndpointSlice", endpoints("FQDN", &["a.b"]), &["spec.addressType: FQDN endpoints are deprecated"])]
#[tokio::test]
async fn permitted_but_discouraged_values_cause_warnings(
    #[case] name: &str,
    #[case] changes: Value,
    #[case] expected: &[&str],
) {
    let (path, object) = kind(name);
    let told = warnings(&ApiServer::start(), &path, &with(&object, &changes)).await;
    assert_eq!(told, expected);
}

/// In v1, `deprecatedTopology` is read-only: a written value is ignored.
#[tokio::test]
async fn deprecated_topology_of_endpoints_is_dropped() {
    let (path, object) = kind("EndpointSlice");
    let topology = json!({"endpoints": [{"addresses": ["10.0.0.1"], "deprecatedTopology": {"a": "-"}}]});
    let (code, made) = post(&ApiServer::start(), &path, &with(&object, &topology)).await;
    assert_eq!(code, 201, "{made}");
    assert!(made["endpoints"][0].get("deprecatedTopology").is_none(), "{made}");
}

/// Only stored ranges are exempt from newer rules, regardless of their position in the policy.
#[tokio::test]
async fn changed_cidr_range_of_a_network_policy_is_validated() {
    let server = ApiServer::start();
    let (path, object) = kind("NetworkPolicy");
    let block = |except: &str| json!({"spec": {"ingress": [{"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": [except]}}]}]}});
    let (_, made) = post(&server, &path, &with(&object, &block("10.1.0.0/16"))).await;
    let answer = put(&server, &format!("{path}/a"), &with(&made, &block("10.1.0.1/16"))).await;
    assert_eq!(causes(&answer).len(), 1, "{}", answer.1);
}

/// A list item without its keys cannot be part of a field set.
#[rstest]
#[case(json!([{"name": "s"}, {"namespace": "n"}]), false)]
#[case(json!([{"name": "s"}, {"name": "s"}]), true)]
#[tokio::test]
async fn objects_with_missing_list_keys_have_no_managed_fields(#[case] secrets: Value, #[case] is_tracked: bool) {
    let account = json!({"metadata": {"name": "a"}, "secrets": secrets});
    let (code, made) = post(
        &ApiServer::start(),
        "/api/v1/namespaces/default/serviceaccounts",
        &account,
    )
    .await;
    assert_eq!(code, 201, "{made}");
    assert_eq!(made["metadata"].get("managedFields").is_some(), is_tracked, "{made}");
}

/// Returns the rules of the built-in FlowSchemas.
fn any_request(groups: &[&str]) -> Value {
    let subjects: Vec<Value> = groups
        .iter()
        .map(|it| json!({"kind": "Group", "group": {"name": it}}))
        .collect();
    json!([{"subjects": subjects,
        "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": true,
            "namespaces": ["*"]}],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}]}])
}

#[rstest]
#[case("FlowSchema", "exempt", json!({"matchingPrecedence": 1, "priorityLevelConfiguration": {"name": "exempt"},
    "rules": any_request(&["system:masters"])}), "")]
#[case("FlowSchema", "exempt", json!({"matchingPrecedence": 2, "priorityLevelConfiguration": {"name": "exempt"},
    "rules": any_request(&["system:masters"])}), "spec of 'exempt' must equal the fixed value")]
#[case("FlowSchema", "catch-all", json!({"matchingPrecedence": 10000, "priorityLevelConfiguration": {"name": "catch-all"},
    "distinguisherMethod": {"type": "ByUser"},
    "rules": any_request(&["system:unauthenticated", "system:authenticated"])}), "")]
#[case("FlowSchema", "catch-all", json!({}), "spec of 'catch-all' must equal the fixed value")]
#[case("PriorityLevelConfiguration", "exempt",
    json!({"type": "Exempt", "limited": null, "exempt": {"lendablePercent": 50}}), "")]
#[case("PriorityLevelConfiguration", "exempt", json!({"type": "Exempt"}),
    "spec of 'exempt' except the 'spec.exempt' field must equal the fixed value")]
#[case("PriorityLevelConfiguration", "catch-all", json!({"limited": {"nominalConcurrencyShares": 5}}), "")]
#[case("PriorityLevelConfiguration", "catch-all", json!({}), "spec of 'catch-all' must equal the fixed value")]
#[tokio::test]
async fn mandatory_flow_schemas_and_priority_levels_have_a_fixed_spec(
    #[case] name: &str,
    #[case] object_name: &str,
    #[case] spec: Value,
    #[case] expected: &str,
) {
    let (path, object) = kind(name);
    let object = with(&object, &json!({"metadata": {"name": object_name}, "spec": spec}));
    let (code, answer) = post(&ApiServer::start(), &path, &object).await;
    let text = answer["message"].as_str().unwrap_or_default();
    assert_eq!(
        (code, text.contains(expected)),
        (if expected.is_empty() { 201 } else { 422 }, true),
        "{answer}"
    );
}

#[tokio::test]
async fn empty_scaling_policies_are_refused_instead_of_defaulted() {
    let (path, object) = kind("HorizontalPodAutoscaler");
    let object = with(&object, &json!({"spec": {"behavior": {"scaleDown": {"policies": []}}}}));
    let answer = post(&ApiServer::start(), &path, &object).await;
    let expected = "spec.behavior.scaleDown.policies: Required value: must specify at least one Policy";
    assert_eq!(causes(&answer), [expected], "{}", answer.1);
}

#[tokio::test(start_paused = true)]
async fn name_of_a_limit_range_defaults_to_a_uuid() {
    let path = "/api/v1/namespaces/default/limitranges";
    let body = json!({"spec": {"limits": [{"type": "Pod", "max": {"cpu": "1"}}]}});
    let (code, made) = post(&ApiServer::start(), path, &body).await;
    let name = made["metadata"]["name"].as_str().unwrap_or_default();
    assert_eq!((code, name.len(), name.matches('-').count()), (201, 36, 4));
}

#[tokio::test]
async fn generate_name_of_a_replication_controller_is_not_validated() {
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let controller = json!({"apiVersion": "v1", "kind": "ReplicationController", "metadata": {"generateName": "Bad_"},
        "spec": {"selector": {"a": "b"}, "template": template}});
    let path = "/api/v1/namespaces/default/replicationcontrollers";
    let found = causes(&post(&ApiServer::start(), path, &controller).await);
    assert!(found.len() == 1 && found[0].starts_with("metadata.name: "), "{found:?}");
}

#[tokio::test]
async fn table_of_a_v1_autoscaler_shows_the_stored_v2_metrics() {
    let server = ApiServer::start();
    let target = json!({"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"});
    let metric = json!({"type": "Resource", "resource": {"name": "memory",
        "target": {"type": "Utilization", "averageUtilization": 50}}});
    let scaler = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "h"},
        "spec": {"scaleTargetRef": target, "maxReplicas": 3, "metrics": [metric]}});
    let path = |version: &str| format!("/apis/autoscaling/{version}/namespaces/default/horizontalpodautoscalers");
    assert_eq!(post(&server, &path("v2"), &scaler).await.0, 201);
    let request = http::Request::get(format!("{}/h", path("v1")))
        .header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
        .body(String::new())
        .expect("the request is valid");
    let table: Value = serde_json::from_slice(server.call(request).await.body()).expect("the text is valid JSON");
    assert_eq!(table["rows"][0]["cells"][2], "memory: <unknown>/50%");
    assert_eq!(table["rows"][0]["object"]["metadata"]["annotations"], Value::Null);
}

#[tokio::test]
async fn unknown_fields_of_another_version_cause_warnings() {
    let scaler = json!({"apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "h"},
        "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "d"}, "maxReplicas": 3, "metrics": []}});
    let path = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
    assert_eq!(
        warnings(&ApiServer::start(), path, &scaler).await,
        ["unknown field \"spec.metrics\""]
    );
}

/// Returns a Pod template with these annotations.
fn template(annotations: &Value) -> Value {
    json!({"metadata": {"labels": {"a": "b"}, "annotations": annotations},
        "spec": {"containers": [{"name": "c", "image": "i"}]}})
}

/// Returns a Deployment with these annotations.
fn deployment(annotations: &Value) -> Value {
    json!({"metadata": {"name": "a", "annotations": annotations},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template(&json!({}))}})
}

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const ROLLBACK: &str = "deprecated.deployment.rollback.to";

#[rstest]
#[case("/apis/autoscaling/v1", "scale-up-tolerance")]
#[case("/apis/autoscaling/v1", "scale-down-tolerance")]
#[case("/apis/autoscaling/v2", "conditions")]
#[case("/apis/autoscaling/v2", "metrics")]
#[case("/apis/autoscaling/v2", "scale-up-tolerance")]
#[tokio::test]
async fn annotations_for_fields_of_other_autoscaler_versions_are_dropped(#[case] group: &str, #[case] name: &str) {
    let server = ApiServer::start();
    let path = format!("{group}/namespaces/default/horizontalpodautoscalers");
    let name = format!("autoscaling.alpha.kubernetes.io/{name}");
    let scaler = with(
        &kind("HorizontalPodAutoscaler").1,
        &json!({"apiVersion": null, "metadata": {"annotations": {name.as_str(): "[]", "a": "b"}}}),
    );
    let (code, made) = post(&server, &path, &scaler).await;
    assert_eq!(code, 201, "{made}");
    for version in ["v1", "v2"] {
        let path = format!("/apis/autoscaling/{version}/namespaces/default/horizontalpodautoscalers/a");
        let annotations = get(&server, &path).await.1["metadata"]["annotations"].clone();
        assert_eq!(annotations["a"], "b");
        assert_ne!(annotations[&name], "[]", "{annotations}");
    }
}

#[tokio::test]
async fn claim_templates_of_a_stateful_set_always_have_the_kind_of_claims() {
    let server = ApiServer::start();
    let path = "/apis/apps/v1/namespaces/default/statefulsets";
    let claim = json!({"kind": "Other", "apiVersion": "core/v1", "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    let set = json!({"metadata": {"name": "a"}, "spec": {"serviceName": "s", "selector": {"matchLabels": {"a": "b"}},
        "template": template(&json!({})), "volumeClaimTemplates": [claim]}});
    let (code, made) = post(&server, path, &set).await;
    assert_eq!(code, 201, "{made}");
    let first = &made["spec"]["volumeClaimTemplates"][0];
    assert_eq!(
        (&first["kind"], &first["apiVersion"]),
        (&json!("PersistentVolumeClaim"), &json!("v1"))
    );
    let (code, same) = put(&server, &format!("{path}/a"), &set).await;
    assert_eq!(
        (code, &same["metadata"]["resourceVersion"]),
        (200, &made["metadata"]["resourceVersion"]),
        "{same}"
    );
}

#[rstest]
#[case::empty("", &Value::Null)]
#[case::sign("+3", &json!("3"))]
#[case::zero("03", &json!("3"))]
#[tokio::test]
async fn rollback_annotation_of_a_deployment_is_printed_as_a_number(#[case] text: &str, #[case] expected: &Value) {
    let (code, made) = post(
        &ApiServer::start(),
        DEPLOYMENTS,
        &deployment(&json!({ ROLLBACK: text })),
    )
    .await;
    assert_eq!(
        (code, &made["metadata"]["annotations"][ROLLBACK]),
        (201, expected),
        "{made}"
    );
}

#[rstest]
#[case(
    "x",
    "Deployment in version \"v1\" cannot be handled as a Deployment: failed to parse \
    annotation[deprecated.deployment.rollback.to]=x as int64: strconv.ParseInt: parsing \"x\": invalid syntax"
)]
#[case("-1", "spec.rollback.version: Invalid value: -1: must be greater than or equal to 0")]
#[tokio::test]
async fn invalid_rollback_annotation_of_a_deployment_is_refused(#[case] text: &str, #[case] expected: &str) {
    let answer = post(
        &ApiServer::start(),
        DEPLOYMENTS,
        &deployment(&json!({ ROLLBACK: text })),
    )
    .await;
    assert_eq!(causes(&answer), [expected]);
}

/// In kube-apiserver, the annotation is a field of the spec.
#[tokio::test]
async fn status_write_keeps_the_rollback_annotation_of_a_deployment() {
    let server = ApiServer::start();
    post(&server, DEPLOYMENTS, &deployment(&json!({ ROLLBACK: "1" }))).await;
    let status = format!("{DEPLOYMENTS}/a/status");
    for change in [json!("2"), Value::Null] {
        let patch = json!({"metadata": {"annotations": {ROLLBACK: change}}});
        let (_, answer) = send(&server, "PATCH", &status, MERGE, &patch).await;
        assert_eq!(answer["metadata"]["annotations"][ROLLBACK], "1", "{answer}");
    }
}

/// An absent map is defaulted to an empty one, unlike `binaryData` and the data of Secrets.
#[tokio::test]
async fn data_of_an_immutable_config_map_may_become_an_empty_map() {
    let server = ApiServer::start();
    let path = "/api/v1/namespaces/default/configmaps";
    let map = json!({"metadata": {"name": "a"}, "immutable": true, "binaryData": {"a": "AAEC"}});
    let (_, made) = post(&server, path, &map).await;
    let (code, same) = put(&server, &format!("{path}/a"), &with(&map, &json!({"data": {}}))).await;
    assert_eq!(code, 200, "{same}");
    assert_eq!(same["metadata"]["resourceVersion"], made["metadata"]["resourceVersion"]);
}

#[tokio::test]
async fn legacy_annotations_of_init_containers_are_dropped() {
    let server = ApiServer::start();
    for name in ["init-containers", "init-container-statuses"] {
        let annotations = json!({format!("pod.beta.kubernetes.io/{name}"): "[]",
            format!("pod.alpha.kubernetes.io/{name}"): "[]", "a": "b"});
        let pod = with(&template(&annotations), &json!({"metadata": {"name": name}}));
        let (code, made) = post(&server, "/api/v1/namespaces/default/pods", &pod).await;
        assert_eq!(
            (code, &made["metadata"]["annotations"]),
            (201, &json!({"a": "b"})),
            "{made}"
        );
        let mut owner = deployment(&json!({}));
        owner["metadata"]["name"] = name.into();
        owner["spec"]["template"] = template(&annotations);
        let (code, made) = post(&server, DEPLOYMENTS, &owner).await;
        let kept = &made["spec"]["template"]["metadata"]["annotations"];
        assert_eq!((code, kept), (201, &json!({"a": "b"})), "{made}");
    }
}

#[tokio::test]
async fn dropped_topology_of_endpoints_increments_the_generation() {
    let server = ApiServer::start();
    let (path, object) = kind("EndpointSlice");
    let (_, made) = post(&server, &path, &with(&object, &endpoints("IPv4", &["10.0.0.1"]))).await;
    let mut changed = made.clone();
    changed["endpoints"][0]["deprecatedTopology"] = json!({"a": "b"});
    let (code, written) = put(&server, &format!("{path}/a"), &changed).await;
    assert_eq!(
        (code, &written["metadata"]["generation"]),
        (200, &json!(2)),
        "{written}"
    );
    assert!(written["endpoints"][0].get("deprecatedTopology").is_none(), "{written}");
}

const EMPTY_SELECTOR: &str = "pdb.kubernetes.io/deprecated-v1beta1-empty-selector-match";

#[rstest]
#[case::none(json!({"matchExpressions": [{"key": EMPTY_SELECTOR, "operator": "Exists"}]}), None)]
#[case::with_another_label(json!({"matchLabels": {"a": "b"},
    "matchExpressions": [{"key": EMPTY_SELECTOR, "operator": "DoesNotExist"}]}), Some(json!({"matchLabels": {"a": "b"}})))]
#[case::with_another_expression(json!({"matchExpressions": [{"key": EMPTY_SELECTOR, "operator": "Exists"},
    {"key": "a", "operator": "Exists"}]}), Some(json!({"matchExpressions": [{"key": "a", "operator": "Exists"}]})))]
#[case::any(json!({"matchExpressions": [{"key": EMPTY_SELECTOR, "operator": "DoesNotExist"}]}), Some(json!({})))]
#[tokio::test]
async fn label_for_empty_selectors_of_disruption_budgets_is_dropped(
    #[case] selector: Value,
    #[case] expected: Option<Value>,
) {
    let path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let budget = json!({"metadata": {"name": "a"}, "spec": {"minAvailable": 1, "selector": selector}});
    let (code, made) = post(&ApiServer::start(), path, &budget).await;
    assert_eq!(
        (code, &made["spec"]["selector"]),
        (201, &expected.unwrap_or(selector)),
        "{made}"
    );
}
