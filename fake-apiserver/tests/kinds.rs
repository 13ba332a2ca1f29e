//! Rules of individual built-in kinds at the HTTP boundary, with the responses of kube-apiserver 1.36.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use fake_apiserver::{ApiServer, Authorization, KubernetesVersion};
use http::Request;
use rstest::rstest;
use serde_json::{Value, json};

async fn send_as(server: &ApiServer, token: &str, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let media = if method == "PATCH" {
        "application/merge-patch+json"
    } else {
        "application/json"
    };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", media)
        .header("authorization", format!("Bearer {token}"));
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    let answer = server.call(request.body(body).expect("the request is valid")).await;
    let code = answer.status().as_u16();
    (code, serde_json::from_slice(answer.body()).unwrap_or(Value::Null))
}

async fn send(server: &ApiServer, method: &str, path: &str, body: &Value) -> (u16, Value) {
    send_as(server, "admin", method, path, body).await
}

fn server() -> ApiServer {
    ApiServer::builder()
        .authorization(Authorization::Rbac)
        .token("admin", "admin", ["system:masters"])
        .start()
}

/// Returns the causes in a response, each as `field: message`.
fn causes(answer: &Value) -> Vec<String> {
    let list = answer["details"]["causes"].as_array().cloned().unwrap_or_default();
    let text = |it: &Value| {
        format!(
            "{}: {}",
            it["field"].as_str().unwrap_or_default(),
            it["message"].as_str().unwrap_or_default()
        )
    };
    list.iter().map(text).collect()
}

#[rstest]
#[case::not_a_number("x", "invalid syntax")]
#[case::too_large("9223372036854775808", "value out of range")]
#[tokio::test(start_paused = true)]
async fn invalid_template_generation_of_a_daemon_set_is_refused(#[case] generation: &str, #[case] why: &str) {
    const SETS: &str = "/apis/apps/v1/namespaces/default/daemonsets";
    let server = server();
    let labels = json!({"app": "a"});
    let mut set = json!({
        "metadata": {"name": "d"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
        },
    });
    let (code, made) = send(&server, "POST", SETS, &set).await;
    assert_eq!(code, 201, "{made}");
    let annotations = json!({ "deprecated.daemonset.template.generation": generation });
    set["metadata"]["annotations"] = annotations.clone();
    let why = format!("strconv.ParseInt: parsing \"{generation}\": {why}");
    let (code, answer) = send(&server, "PUT", &format!("{SETS}/d"), &set).await;
    let expected = format!("DaemonSet in version \"v1\" cannot be handled as a DaemonSet: {why}");
    assert_eq!((code, answer["message"].as_str()), (400, Some(expected.as_str())));
    let patch = json!({"metadata": {"annotations": annotations}});
    let (code, answer) = send(&server, "PATCH", &format!("{SETS}/d"), &patch).await;
    assert_eq!(code, 422);
    assert!(
        answer["message"].as_str().is_some_and(|it| it.ends_with(&why)),
        "{answer}"
    );
}

const CSRS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const PEM_REQUEST: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlISU1IRUNBUUF3RHpFTk1Bc0dBMVVFQXd3RWFtRnVaVEJaTUJN\
     R0J5cUdTTTQ5QWdFR0NDcUdTTTQ5QXdFSApBMElBQk9sbDFhdzRCbXEvaVNpNEJ6ZGFuandReDZoSDFLOGsrQnVVRXVjZnM3Ky9R\
     ZUJrTlM4VHdGWi9RSHltCi9RT00zNkR3T25hVnF1RVl3a0NsWm5ZZExuNmdBREFLQmdncWhrak9QUVFEQWdOSEFEQkVBaUJ6dW01\
     UzFSdHkKTEt1SGVvRFJ0MzArZUR2M0VneHhRbG9JK3Q3YVhDWmZ4UUlnSzdwNXhMM2E4QUduRHFQa05TV3FWOGVMT0VrdwowMmht\
     T0tlckdCKytYVE09Ci0tLS0tRU5EIENFUlRJRklDQVRFIFJFUVVFU1QtLS0tLQo=";

fn signing_request(spec: Value) -> Value {
    let mut whole = json!({"request": PEM_REQUEST, "signerName": "example.com/s", "usages": ["client auth"]});
    for (field, value) in spec.as_object().into_iter().flatten() {
        whole[field] = value.clone();
    }
    json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": "c"},
        "spec": whole})
}

#[tokio::test(start_paused = true)]
async fn certificate_signing_request_contains_its_creator() {
    let server = server();
    let body = signing_request(json!({"username": "mallory", "groups": ["g"], "extra": {"k": ["v"]}}));
    let (code, made) = send(&server, "POST", CSRS, &body).await;
    assert_eq!(code, 201, "{made}");
    assert_eq!(made["spec"]["username"], "admin");
    assert_eq!(made["spec"]["uid"], "admin");
    assert_eq!(
        made["spec"]["groups"],
        json!(["system:masters", "system:authenticated"])
    );
    assert_eq!(made["spec"]["extra"], Value::Null);
}

#[rstest]
#[case(json!({"expirationSeconds": 2}),
    "spec.expirationSeconds: Invalid value: 2: may not specify a duration less than 600 seconds (10 minutes)")]
#[case(json!({"usages": ["any", "any"]}), "spec.usages[1]: Duplicate value: \"any\"")]
#[case(json!({"signerName": "local/s"}),
    "spec.signerName: Invalid value: \"local\": should be a domain with at least two segments separated by dots")]
#[case(json!({"signerName": "kubernetes.io/legacy-unknown"}), "spec.signerName: Invalid value: \
    \"kubernetes.io/legacy-unknown\": the legacy signerName is not allowed via this API version")]
#[case(json!({"request": null}), "spec.request: Invalid value: null: PEM block type must be CERTIFICATE REQUEST")]
#[tokio::test(start_paused = true)]
async fn certificate_signing_request_is_validated(#[case] spec: Value, #[case] expected: &str) {
    let (code, answer) = send(&server(), "POST", CSRS, &signing_request(spec)).await;
    assert_eq!((code, causes(&answer)), (422, vec![expected.to_owned()]));
}

/// Returns a certificate request with these bytes.
fn pem_request(der: &[u8]) -> String {
    let body = STANDARD.encode(der);
    STANDARD.encode(format!(
        "-----BEGIN CERTIFICATE REQUEST-----\n{body}\n-----END CERTIFICATE REQUEST-----\n"
    ))
}

#[rstest]
#[case::empty_sequence(b"\x30\x00", "asn1: syntax error: sequence truncated")]
#[case::truncated_sequence(b"\x30\x05\x30\x00", "asn1: syntax error: data truncated")]
#[case::integer(
    b"\x02\x01\x05",
    "asn1: structure error: tags don't match (16 vs {class:0 tag:2 length:1 isCompound:false}) {optional:false \
     explicit:false application:false private:false defaultValue:<nil> tag:<nil> stringType:0 timeType:0 set:false \
     omitEmpty:false} certificateRequest @2"
)]
#[case::integer_within_a_sequence(
    b"\x30\x03\x02\x01\x05",
    "asn1: structure error: tags don't match (16 vs {class:0 tag:2 length:1 isCompound:false}) {optional:false \
     explicit:false application:false private:false defaultValue:<nil> tag:<nil> stringType:0 timeType:0 set:false \
     omitEmpty:false} tbsCertificateRequest @2"
)]
#[tokio::test(start_paused = true)]
async fn pem_request_of_a_certificate_signing_request_is_validated(#[case] der: &[u8], #[case] why: &str) {
    let request = pem_request(der);
    let body = signing_request(json!({ "request": request }));
    let (code, answer) = send(&server(), "POST", CSRS, &body).await;
    let expected = format!("spec.request: Invalid value: \"{request}\": {why}");
    assert_eq!((code, causes(&answer)), (422, vec![expected]));
}

#[tokio::test(start_paused = true)]
async fn approval_and_status_of_a_signing_request_are_written_separately() {
    let server = server();
    send(&server, "POST", CSRS, &signing_request(json!({}))).await;
    let approved = json!({"status": {"certificate": "YQ==", "conditions": [{"type": "Approved", "status": "True",
        "reason": "r"}]}});
    let (code, answer) = send(&server, "PATCH", &format!("{CSRS}/c/approval"), &approved).await;
    assert_eq!(code, 200, "{answer}");
    assert_eq!(answer["status"]["certificate"], Value::Null);
    assert!(answer["status"]["conditions"][0]["lastTransitionTime"].is_string());

    let none = json!({"status": {"conditions": null}});
    let (code, answer) = send(&server, "PATCH", &format!("{CSRS}/c/status"), &none).await;
    let expected = "status.conditions: Forbidden: updates may not remove a condition of type \"Approved\"";
    assert_eq!((code, causes(&answer)), (422, vec![expected.to_owned()]));

    let denied = json!({"status": {"conditions": [{"type": "Approved", "status": "True", "reason": "other"}]}});
    let (code, answer) = send(&server, "PATCH", &format!("{CSRS}/c/status"), &denied).await;
    assert_eq!((code, &answer["status"]["conditions"][0]["reason"]), (200, &json!("r")));
}

#[tokio::test(start_paused = true)]
async fn namespace_with_a_generated_name_is_labelled_with_the_name() {
    let server = server();
    let body = json!({"metadata": {"generateName": "g-"}});
    let (code, made) = send(&server, "POST", "/api/v1/namespaces", &body).await;
    assert_eq!(code, 201, "{made}");
    assert_eq!(
        made["metadata"]["labels"]["kubernetes.io/metadata.name"],
        made["metadata"]["name"]
    );
}

/// The name is generated before other fields are derived from it.
#[tokio::test(start_paused = true)]
async fn job_with_a_generated_name_labels_its_pods_with_the_name() {
    let server = server();
    let pod = json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]});
    let body = json!({"metadata": {"generateName": "g-"}, "spec": {"template": {"spec": pod}}});
    let (code, made) = send(&server, "POST", "/apis/batch/v1/namespaces/default/jobs", &body).await;
    assert_eq!(code, 201, "{made}");
    let labels = &made["spec"]["template"]["metadata"]["labels"];
    assert_eq!(labels["batch.kubernetes.io/job-name"], made["metadata"]["name"]);
}

/// Expects one error for each check of metadata: the checks of all objects, and the checks of the kind.
#[rstest]
#[case("/api/v1/namespaces/default/configmaps", json!({}), 4)]
#[case("/api/v1/namespaces/default/services", json!({"spec": {"ports": [{"port": 80}]}}), 3)]
#[case("/apis/policy/v1/namespaces/default/poddisruptionbudgets", json!({}), 2)]
#[case("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", json!({"addressType": "IPv4",
    "endpoints": []}), 3)]
#[tokio::test(start_paused = true)]
async fn every_failed_check_of_a_label_is_reported(#[case] path: &str, #[case] body: Value, #[case] times: usize) {
    let server = server();
    let mut body = body;
    body["metadata"] = json!({"name": "a"});
    let (code, made) = send(&server, "POST", path, &body).await;
    assert_eq!(code, 201, "{made}");
    let patch = json!({"metadata": {"labels": {"Bad Key!": "x"}}});
    let (code, answer) = send(&server, "PATCH", &format!("{path}/a"), &patch).await;
    assert_eq!((code, causes(&answer).len()), (422, times), "{answer}");
}

#[rstest]
#[case("/apis/apps/v1/namespaces/default/deployments", false)]
#[case("/apis/apps/v1/namespaces/default/replicasets", true)]
#[tokio::test(start_paused = true)]
async fn status_write_only_changes_labels_if_the_kind_permits_it(#[case] path: &str, #[case] keeps: bool) {
    let server = server();
    let body = json!({"metadata": {"name": "a"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template":
        {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    let (code, made) = send(&server, "POST", path, &body).await;
    assert_eq!(code, 201, "{made}");
    let patch = json!({"metadata": {"labels": {"new": "x"}, "annotations": {"n": "x"}}});
    let (_, answer) = send(&server, "PATCH", &format!("{path}/a/status"), &patch).await;
    assert_eq!(answer["metadata"]["labels"]["new"].is_string(), keeps);
    assert_eq!(answer["metadata"]["annotations"]["n"], "x");
}

const EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/default/events";

fn event(fields: Value) -> Value {
    let mut event = json!({"metadata": {"name": "e"}, "eventTime": "2020-01-01T00:00:00.000000Z", "type": "Normal",
        "reason": "R", "action": "A", "reportingController": "example.com/c", "reportingInstance": "i", "note": "n",
        "regarding": {"kind": "Pod", "name": "p", "namespace": "default"}});
    for (field, value) in fields.as_object().into_iter().flatten() {
        event[field] = value.clone();
    }
    event
}

#[tokio::test(start_paused = true)]
async fn field_selectors_of_both_event_groups_find_all_events() {
    let server = server();
    let (code, made) = send(&server, "POST", EVENTS, &event(json!({}))).await;
    assert_eq!(code, 201, "{made}");
    let core = json!({"metadata": {"name": "old"},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"},
        "source": {"component": "kubelet"}, "reason": "R"});
    let (code, made) = send(&server, "POST", "/api/v1/namespaces/default/events", &core).await;
    assert_eq!(code, 201, "{made}");
    for (path, selector, expected) in [
        (
            "/api/v1/namespaces/default/events",
            "involvedObject.name=p,involvedObject.kind=Pod",
            2,
        ),
        ("/api/v1/namespaces/default/events", "source=example.com/c", 1),
        ("/api/v1/namespaces/default/events", "source=kubelet", 1),
        (EVENTS, "regarding.name=p,regarding.namespace=default", 2),
        (EVENTS, "reportingController=example.com/c", 1),
    ] {
        let path = format!(
            "{path}?fieldSelector={}",
            selector.replace('=', "%3D").replace(',', "%2C")
        );
        let (_, list) = send(&server, "GET", &path, &Value::Null).await;
        assert_eq!(list["items"].as_array().map(Vec::len), Some(expected), "{selector}");
    }
}

#[rstest]
#[case(json!({"reason": ""}), "reason: Required value")]
#[case(json!({"regarding": {"kind": "Pod"}}), "", )]
#[case(json!({"series": {"count": 1, "lastObservedTime": "2020-01-01T00:00:00.000000Z"}}),
    "series.count: Invalid value: \"\": should be at least 2")]
#[tokio::test(start_paused = true)]
async fn errors_of_an_events_k8s_io_event_use_the_kind_without_a_group(#[case] fields: Value, #[case] expected: &str) {
    let (code, answer) = send(&server(), "POST", EVENTS, &event(fields)).await;
    if expected.is_empty() {
        assert_eq!(code, 201, "{answer}");
        return;
    }
    assert_eq!((code, causes(&answer)), (422, vec![expected.to_owned()]));
    assert_eq!(answer["message"], format!("Event \"e\" is invalid: {expected}"));
}

#[tokio::test(start_paused = true)]
async fn update_of_an_event_can_only_change_its_series() {
    let server = server();
    send(&server, "POST", EVENTS, &event(json!({}))).await;
    let patch = json!({"note": "other", "action": ""});
    let (code, answer) = send(&server, "PATCH", &format!("{EVENTS}/e"), &patch).await;
    let expected = [
        "action: Required value",
        "message: Invalid value: \"other\": field is immutable",
        "action: Invalid value: \"\": field is immutable",
    ];
    assert_eq!((code, causes(&answer)), (422, expected.map(str::to_owned).to_vec()));
}

#[rstest]
#[case(json!({"podCIDR": "10.1.0.0/24"}), json!({"podCIDR": "10.1.0.0/24", "podCIDRs": ["10.1.0.0/24"]}))]
#[case(json!({"podCIDRs": ["10.1.0.0/24"]}), json!({"podCIDR": "10.1.0.0/24", "podCIDRs": ["10.1.0.0/24"]}))]
#[case(json!({"podCIDR": "10.1.0.0/24", "podCIDRs": ["10.2.0.0/24", "fd00::/64"]}),
    json!({"podCIDR": "10.1.0.0/24", "podCIDRs": ["10.1.0.0/24"]}))]
#[tokio::test(start_paused = true)]
async fn pod_cidr_of_a_node_equals_the_first_of_its_pod_cidrs(#[case] spec: Value, #[case] expected: Value) {
    let body = json!({"metadata": {"name": "n"}, "spec": spec});
    let (code, made) = send(&server(), "POST", "/api/v1/nodes", &body).await;
    assert_eq!(code, 201, "{made}");
    for field in ["podCIDR", "podCIDRs"] {
        assert_eq!(made["spec"][field], expected[field]);
    }
}

#[rstest]
#[case(json!({"status": {"capacity": {"cpu": "-1"}}}),
    "status.capacity.cpu: Invalid value: \"-1\": must be greater than or equal to 0")]
#[case(json!({"spec": {"podCIDRs": ["10.1.0.0/24", "10.2.0.0/24"]}}), "spec.podCIDRs: Invalid value: \
    [\"10.1.0.0/24\",\"10.2.0.0/24\"]: may specify no more than one CIDR for each IP family")]
#[tokio::test(start_paused = true)]
async fn node_is_validated(#[case] node: Value, #[case] expected: &str) {
    let mut node = node;
    node["metadata"] = json!({"name": "n"});
    let (code, answer) = send(&server(), "POST", "/api/v1/nodes", &node).await;
    assert_eq!(code, 422, "{answer}");
    assert!(causes(&answer).contains(&expected.to_owned()), "{answer}");
}

#[rstest]
#[case(json!({"forZones": [{"name": "a"}, {"name": "a"}]}),
    "endpoints[0].hints.forZones[1].name: Duplicate value: \"a\"")]
#[case(json!({"forNodes": [{}, {}, {}, {}, {}, {}, {}, {}, {}]}),
    "endpoints[0].hints.forNodes: Too many: 9: must have at most 8 items")]
#[tokio::test(start_paused = true)]
async fn endpoint_hints_are_validated(#[case] hints: Value, #[case] expected: &str) {
    let body = json!({"metadata": {"name": "s"}, "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.0.0.1"], "hints": hints}]});
    let path = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    let (code, answer) = send(&server(), "POST", path, &body).await;
    assert_eq!((code, causes(&answer)), (422, vec![expected.to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn fields_of_disabled_feature_gates_are_dropped_before_validation() {
    let body = json!({"metadata": {"name": "p"}, "spec": {"schedulingGroup": {}, "containers": [{"name": "c",
        "image": "i", "lifecycle": {"stopSignal": "NONE"}}], "volumes": [{"name": "v", "projected": {"sources":
        [{"podCertificate": {"keyType": "none"}}]}}]}});
    let path = "/api/v1/namespaces/default/pods";
    let (code, made) = send(&server(), "POST", path, &body).await;
    assert_eq!(code, 201, "{made}");
    assert_eq!(made["spec"]["schedulingGroup"], Value::Null);
    assert_eq!(made["spec"]["containers"][0]["lifecycle"], Value::Null);
    assert_eq!(made["spec"]["volumes"][0]["projected"]["sources"], json!([{}]));
}

const PODS: &str = "/api/v1/namespaces/default/pods";

async fn server_with_pod(spec: Value) -> ApiServer {
    let server = server();
    let mut pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    for (field, value) in spec.as_object().into_iter().flatten() {
        pod["spec"][field] = value.clone();
    }
    let (code, made) = send(&server, "POST", PODS, &pod).await;
    assert_eq!(code, 201, "{made}");
    server
}

#[tokio::test(start_paused = true)]
async fn both_binding_paths_set_node_and_metadata_of_the_pod() {
    for path in [
        format!("{PODS}/p/binding"),
        "/api/v1/namespaces/default/bindings".to_owned(),
    ] {
        let server = server_with_pod(json!({})).await;
        let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p", "annotations": {"a": "b"},
            "labels": {"l": "m"}}, "target": {"kind": "Node", "name": "n"}});
        let (code, answer) = send(&server, "POST", &path, &binding).await;
        assert_eq!((code, &answer["status"]), (201, &json!("Success")), "{path}");
        let (_, pod) = send(&server, "GET", &format!("{PODS}/p"), &Value::Null).await;
        assert_eq!(pod["spec"]["nodeName"], "n");
        assert_eq!(
            (&pod["metadata"]["annotations"]["a"], &pod["metadata"]["labels"]["l"]),
            (&json!("b"), &json!("m"))
        );
        let (code, answer) = send(&server, "POST", &path, &binding).await;
        let expected = "Operation cannot be fulfilled on pods/binding \"p\": pod p is already assigned to node \"n\"";
        assert_eq!((code, &answer["message"]), (409, &json!(expected)));
    }
}

#[rstest]
#[case::bound_to_the_node(KubernetesVersion::V1_36, json!({}), json!({"kind": "Node", "name": "n"}), json!(["z", "r"]))]
#[case::created_with_a_node_name(KubernetesVersion::V1_36, json!({"nodeName": "n"}), Value::Null, json!(["z", "r"]))]
#[case::binding_without_a_kind(KubernetesVersion::V1_36, json!({}), json!({"name": "n"}), json!([null, null]))]
#[case::missing_node(KubernetesVersion::V1_36, json!({}), json!({"kind": "Node", "name": "m"}), json!([null, null]))]
#[case::older_version(KubernetesVersion::V1_34, json!({}), json!({"kind": "Node", "name": "n"}), json!([null, null]))]
#[tokio::test(start_paused = true)]
async fn pods_receive_the_topology_labels_of_their_node(
    #[case] version: KubernetesVersion,
    #[case] spec: Value,
    #[case] target: Value,
    #[case] expected: Value,
) {
    let server = ApiServer::builder().kubernetes_version(version).start();
    let labels = ["zone", "region"].map(|it| format!("topology.kubernetes.io/{it}"));
    let node = json!({"metadata": {"name": "n", "labels": {&labels[0]: "z", &labels[1]: "r", "a": "b"}}});
    assert_eq!(send(&server, "POST", "/api/v1/nodes", &node).await.0, 201);
    let mut pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    pod["spec"]
        .as_object_mut()
        .expect("the spec is an object")
        .extend(spec.as_object().cloned().unwrap_or_default());
    assert_eq!(send(&server, "POST", PODS, &pod).await.0, 201);
    if !target.is_null() {
        let binding = json!({"metadata": {"name": "p"}, "target": target});
        assert_eq!(
            send(&server, "POST", &format!("{PODS}/p/binding"), &binding).await.0,
            201
        );
    }
    let (_, pod) = send(&server, "GET", &format!("{PODS}/p"), &Value::Null).await;
    let found = labels.map(|it| pod["metadata"]["labels"][it].clone());
    assert_eq!(json!(found), expected);
    assert_eq!(pod["metadata"]["labels"]["a"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn topology_labels_of_a_pod_are_overwritten() {
    let server = server();
    let zone = "topology.kubernetes.io/zone";
    let node = json!({"metadata": {"name": "n", "labels": {zone: "z"}}});
    assert_eq!(send(&server, "POST", "/api/v1/nodes", &node).await.0, 201);
    let pod = json!({"metadata": {"name": "p", "labels": {zone: "own"}},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}});
    let (code, pod) = send(&server, "POST", PODS, &pod).await;
    assert_eq!((code, &pod["metadata"]["labels"][zone]), (201, &json!("z")));
}

#[rstest]
#[case::binding_of_a_pod("pods/p/binding")]
#[case::collection_of_bindings("bindings")]
#[tokio::test(start_paused = true)]
async fn binding_with_another_resource_version_is_refused(#[case] path: &str) {
    let server = server_with_pod(json!({})).await;
    let (_, pod) = send(&server, "GET", &format!("{PODS}/p"), &Value::Null).await;
    let found = pod["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    let path = format!("/api/v1/namespaces/default/{path}");
    let bind = |version: &str| json!({"metadata": {"name": "p", "resourceVersion": version}, "target": {"kind": "Node", "name": "n"}});
    let (code, answer) = send(&server, "POST", &path, &bind("1")).await;
    let why = format!(
        "Operation cannot be fulfilled on pods \"p\": StorageError: invalid object, Code: 4, Key: \
         /registry/pods/default/p, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: ResourceVersion in \
         precondition: 1, ResourceVersion in object meta: {found}"
    );
    assert_eq!((code, &answer["message"]), (409, &json!(why)));
    assert_eq!(send(&server, "POST", &path, &bind(found)).await.0, 201);
}

#[rstest]
#[case::other_kind("", json!({"kind": "Pod", "apiVersion": "v1"}), "Pod")]
#[case::wrong_type("", json!({"target": 5}), "json: cannot unmarshal number into Go struct field Binding.target of type v1.ObjectReference")]
#[case::unknown_field("?fieldValidation=Strict", json!({"extra": 1}), "strict decoding error: unknown field \"extra\"")]
#[tokio::test(start_paused = true)]
async fn invalid_body_of_a_binding_is_refused(#[case] query: &str, #[case] body: Value, #[case] why: &str) {
    let server = server_with_pod(json!({})).await;
    let mut binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}});
    for (field, value) in body.as_object().into_iter().flatten() {
        binding[field] = value.clone();
    }
    let (code, answer) = send(&server, "POST", &format!("{PODS}/p/binding{query}"), &binding).await;
    assert_eq!(code, 400, "{answer}");
    assert!(
        answer["message"].as_str().is_some_and(|it| it.contains(why)),
        "{answer}"
    );
}

#[rstest]
#[case(json!({"target": {"kind": "Node"}}), 500, "target.name: Required value")]
#[case(json!({"target": {"kind": "Pod", "name": "n"}}), 500,
    "target.kind: Unsupported value: \"Pod\": supported values: \"Node\", \"<empty>\"")]
#[case(json!({"metadata": {"name": "q"}, "target": {"name": "n"}}), 400,
    "name in URL does not match name in Binding object")]
#[case(json!({"target": {"name": "n"}}), 409,
    "Operation cannot be fulfilled on pods/binding \"p\": pod p has non-empty .spec.schedulingGates")]
#[tokio::test(start_paused = true)]
async fn invalid_binding_is_refused(#[case] body: Value, #[case] code: u16, #[case] expected: &str) {
    let server = server_with_pod(json!({"schedulingGates": [{"name": "example.com/g"}]})).await;
    let mut binding = json!({"metadata": {"name": "p"}});
    for (field, value) in body.as_object().into_iter().flatten() {
        binding[field] = value.clone();
    }
    let (found, answer) = send(&server, "POST", &format!("{PODS}/p/binding"), &binding).await;
    assert_eq!((found, &answer["message"]), (code, &json!(expected)));
}

#[tokio::test(start_paused = true)]
async fn dry_run_create_accepts_a_resource_version_that_a_real_create_refuses() {
    let server = server();
    let body = json!({"metadata": {"name": "a", "resourceVersion": "5"}});
    let path = "/api/v1/namespaces/default/configmaps";
    let (code, made) = send(&server, "POST", &format!("{path}?dryRun=All"), &body).await;
    assert_eq!((code, &made["metadata"]["resourceVersion"]), (201, &json!("5")));
    let (code, answer) = send(&server, "POST", path, &body).await;
    let expected = "resourceVersion should not be set on objects to be created";
    assert_eq!((code, &answer["message"]), (500, &json!(expected)));
}

#[tokio::test(start_paused = true)]
async fn delete_with_orphan_dependents_false_returns_202_for_objects_with_finalizers() {
    let server = server();
    let path = "/api/v1/namespaces/default/configmaps";
    let body = json!({"metadata": {"name": "a", "finalizers": ["example.com/f"]}});
    send(&server, "POST", path, &body).await;
    let (code, _) = send(
        &server,
        "DELETE",
        &format!("{path}/a"),
        &json!({"orphanDependents": false}),
    )
    .await;
    assert_eq!(code, 202);
    let (code, _) = send(&server, "DELETE", &format!("{path}/a"), &json!({})).await;
    assert_eq!(code, 200);
}

#[rstest]
#[case(json!({"labelSelector": {"requirements": [{"key": "a", "operator": "Nope"}]}}),
    "spec.resourceAttributes.labelSelector ignored due to parse error")]
#[case(json!({"fieldSelector": {"requirements": [{"key": "a", "operator": "In", "values": ["x"]},
    {"key": "b", "operator": "Exists"}]}}),
    "spec.resourceAttributes.fieldSelector partially ignored due to parse error")]
#[tokio::test(start_paused = true)]
async fn access_review_reports_malformed_selectors(#[case] attributes: Value, #[case] expected: &str) {
    let mut body = json!({"spec": {"user": "u", "resourceAttributes": attributes}});
    body["spec"]["resourceAttributes"]["verb"] = json!("list");
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let (code, answer) = send(&server(), "POST", path, &body).await;
    assert_eq!(
        (code, &answer["status"]["evaluationError"]),
        (201, &json!(expected)),
        "{answer}"
    );
}

#[tokio::test(start_paused = true)]
async fn scale_selector_is_sorted_by_key() {
    let server = server();
    let body = json!({"metadata": {"name": "a"}, "spec": {"selector": {"matchLabels": {"a": "b"}, "matchExpressions":
        [{"key": "t", "operator": "DoesNotExist"}]}, "template": {"metadata": {"labels": {"a": "b"}}, "spec":
        {"containers": [{"name": "c", "image": "i"}]}}}});
    let path = "/apis/apps/v1/namespaces/default/deployments";
    send(&server, "POST", path, &body).await;
    let (_, scale) = send(&server, "GET", &format!("{path}/a/scale"), &Value::Null).await;
    assert_eq!(scale["status"]["selector"], "a=b,!t");
}

const API_SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";

#[tokio::test(start_paused = true)]
async fn api_service_reports_its_missing_service() {
    let server = server();
    let condition = async |what: &str| {
        let (code, answer) = send(&server, "GET", &format!("{API_SERVICES}/v1.things.io"), &Value::Null).await;
        let condition = &answer["status"]["conditions"][0];
        assert_eq!((code, &condition["status"]), (200, &json!("False")), "{what}");
        condition["reason"].as_str().unwrap_or_default().to_owned()
    };
    let body = json!({
        "metadata": {"name": "v1.things.io"},
        "spec": {"group": "things.io", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 10,
            "insecureSkipTLSVerify": true, "service": {"namespace": "default", "name": "things"}},
    });
    assert_eq!(send(&server, "POST", API_SERVICES, &body).await.0, 201);
    assert_eq!(condition("no service").await, "ServiceNotFound");

    let service = json!({"metadata": {"name": "things"}, "spec": {"ports": [{"port": 80, "name": "web"}]}});
    let services = "/api/v1/namespaces/default/services";
    assert_eq!(send(&server, "POST", services, &service).await.0, 201);
    assert_eq!(condition("another port").await, "ServicePortError");
    let ports = json!({"spec": {"ports": [{"port": 443, "name": "https"}]}});
    assert_eq!(
        send(&server, "PATCH", &format!("{services}/things"), &ports).await.0,
        200
    );
    assert_eq!(condition("no slice").await, "EndpointsNotFound");

    let slice = json!({
        "metadata": {"name": "things-1", "labels": {"kubernetes.io/service-name": "things"}},
        "addressType": "IPv4", "endpoints": [], "ports": [{"port": 443, "name": "https"}],
    });
    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    assert_eq!(send(&server, "POST", slices, &slice).await.0, 201);
    assert_eq!(condition("no address").await, "MissingEndpoints");
    let endpoints = json!({"endpoints": [{"addresses": ["10.1.2.3"]}]});
    assert_eq!(
        send(&server, "PATCH", &format!("{slices}/things-1"), &endpoints)
            .await
            .0,
        200
    );
    assert_eq!(condition("it is not called").await, "FailedDiscoveryCheck");
}

#[tokio::test(start_paused = true)]
async fn flow_schema_reports_a_missing_priority_level() {
    let server = server();
    let group = "/apis/flowcontrol.apiserver.k8s.io/v1";
    let reason = async || {
        let (_, answer) = send(&server, "GET", &format!("{group}/flowschemas/f"), &Value::Null).await;
        let condition = &answer["status"]["conditions"][0];
        assert_eq!(condition["type"], "Dangling");
        condition["reason"].as_str().unwrap_or_default().to_owned()
    };
    let schema = json!({"metadata": {"name": "f"}, "spec": {"priorityLevelConfiguration": {"name": "l"}}});
    assert_eq!(
        send(&server, "POST", &format!("{group}/flowschemas"), &schema).await.0,
        201
    );
    assert_eq!(reason().await, "NotFound");
    let level = json!({
        "metadata": {"name": "l"},
        "spec": {"type": "Limited", "limited": {"limitResponse": {"type": "Reject"}}},
    });
    let levels = format!("{group}/prioritylevelconfigurations");
    assert_eq!(send(&server, "POST", &levels, &level).await.0, 201);
    assert_eq!(reason().await, "Found");
}

#[tokio::test(start_paused = true)]
async fn crd_status_is_owned_by_the_field_manager_kube_apiserver() {
    let server = server();
    let body = json!({
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com", "scope": "Cluster", "names": {"plural": "things", "kind": "Thing"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}}}],
        },
    });
    let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(send(&server, "POST", crds, &body).await.0, 201);
    let (_, answer) = send(&server, "GET", &format!("{crds}/things.example.com"), &Value::Null).await;
    let managers = answer["metadata"]["managedFields"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let of_status = managers.iter().find(|it| it["subresource"] == "status");
    let of_status = of_status.expect("a manager owns the status");
    assert_eq!(
        (&of_status["manager"], &of_status["operation"]),
        (&json!("kube-apiserver"), &json!("Update"))
    );
}

#[tokio::test(start_paused = true)]
async fn system_priority_classes_cannot_be_deleted() {
    let path = "/apis/scheduling.k8s.io/v1/priorityclasses/system-node-critical";
    let (code, answer) = send(&server(), "DELETE", path, &Value::Null).await;
    let why = "priorityclasses.scheduling.k8s.io \"system-node-critical\" is forbidden: \
        this is a system priority class and cannot be deleted";
    assert_eq!((code, answer["message"].as_str()), (403, Some(why)));
}

#[tokio::test(start_paused = true)]
async fn pod_is_validated_before_the_limit_range_applies() {
    let server = server();
    let range = json!({"metadata": {"name": "r"}, "spec": {"limits": [{"type": "Pod", "max": {"cpu": "1"}}]}});
    let ranges = "/api/v1/namespaces/default/limitranges";
    assert_eq!(send(&server, "POST", ranges, &range).await.0, 201);
    let pod = |image: &str| json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": image}]}});
    let pods = "/api/v1/namespaces/default/pods";
    assert_eq!(send(&server, "POST", pods, &pod("")).await.0, 422);
    assert_eq!(send(&server, "POST", pods, &pod("i")).await.0, 403);
}

/// Returns a DER element of less than 128 bytes.
fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = u8::try_from(content.len()).expect("the length fits into a byte");
    [&[tag, length], content].concat()
}

/// Returns the PEM of a certificate authority without names and keys.
fn authority() -> String {
    let sequence = |content: &[u8]| element(0x30, content);
    let basic_constraints = [
        element(6, &[0x55, 0x1d, 0x13]),
        element(4, &sequence(&element(1, &[0xff]))),
    ];
    let extensions = element(0xa3, &sequence(&sequence(&basic_constraints.concat())));
    let signed = [element(2, &[1]), sequence(&[]).repeat(5), extensions].concat();
    let certificate = sequence(&[sequence(&signed), sequence(&[]), element(3, &[0])].concat());
    let body = STANDARD.encode(certificate);
    format!("-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n")
}

/// Returns a certificate request with these organizations in its subject.
fn pem_request_of(organizations: &[&str]) -> String {
    let name = |text: &&str| {
        let kind = element(6, &[0x55, 4, 10]);
        element(0x31, &element(0x30, &[kind, element(0x0c, text.as_bytes())].concat()))
    };
    let names: Vec<u8> = organizations.iter().flat_map(name).collect();
    let signed = [element(2, &[0]), element(0x30, &names), element(0x30, &[])].concat();
    let request = [element(0x30, &signed), element(0x30, &[]), element(3, &[0])].concat();
    pem_request(&element(0x30, &request))
}

#[rstest]
#[case::system_masters("kubernetes.io/kube-apiserver-client", &["a", "system:masters"], 403)]
#[case::other_groups("kubernetes.io/kube-apiserver-client", &["a"], 201)]
#[case::another_signer("example.com/s", &["system:masters"], 201)]
#[tokio::test(start_paused = true)]
async fn signing_requests_for_client_certificates_of_system_masters_are_refused(
    #[case] signer: &str,
    #[case] groups: &[&str],
    #[case] code: u16,
) {
    let body = signing_request(json!({"signerName": signer, "request": pem_request_of(groups)}));
    let (found, answer) = send(&server(), "POST", CSRS, &body).await;
    assert_eq!(found, code, "{answer}");
    if code == 403 {
        let message = "certificatesigningrequests.certificates.k8s.io \"c\" is forbidden: use of \
                       kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed";
        assert_eq!(answer["message"], message);
    }
}

#[rstest]
#[case::no_permission(&[], None, 403)]
#[case::permission_for_the_signer(&["example.com/s"], None, 200)]
#[case::permission_for_the_domain(&["example.com/*"], None, 200)]
#[case::permission_for_another_signer(&["example.com/other"], None, 403)]
#[case::disabled_plugin(&[], Some(["CertificateApproval", "CertificateSigning"]), 200)]
#[tokio::test(start_paused = true)]
async fn signing_requires_permission_for_the_signer(
    #[values(("approval", "approve", "Approved"), ("status", "sign", "Failed"))] part: (&str, &str, &str),
    #[case] names: &[&str],
    #[case] off: Option<[&'static str; 2]>,
    #[case] code: u16,
) {
    let (subresource, verb, condition) = part;
    let builder = ApiServer::builder()
        .authorization(Authorization::Rbac)
        .token("dev-token", "dev", ["devs"])
        .disable_admission_plugins(off.into_iter().flatten());
    let server = builder.expect("the plugins can be disabled").start();
    let resource = format!("certificatesigningrequests/{subresource}");
    grant(&server, &["update", "patch"], &[&resource], (verb, names));
    server.load([signing_request(json!({}))]).expect("the request is valid");
    let status = json!({"status": {"conditions": [{"type": condition, "status": "True", "reason": "r"}]}});
    let path = format!("{CSRS}/c/{subresource}");
    let (found, body) = send_as_dev(&server, "PATCH", &path, &status).await;
    assert_eq!(found, code, "{body}");
    if code == 403 {
        let why = format!("user not permitted to {verb} requests with signerName \"example.com/s\"");
        let message = format!("certificatesigningrequests.certificates.k8s.io \"c\" is forbidden: {why}");
        assert_eq!(body["message"], message);
    }
}

/// Lets the user `dev` use these resources of `certificates.k8s.io`, and a verb on these signers.
fn grant(server: &ApiServer, verbs: &[&str], resources: &[&str], (verb, signers): (&str, &[&str])) {
    let group = "certificates.k8s.io";
    let mut rules = vec![json!({"apiGroups": [group], "verbs": verbs, "resources": resources})];
    if !signers.is_empty() {
        rules.push(json!({"apiGroups": [group], "verbs": [verb], "resources": ["signers"], "resourceNames": signers}));
    }
    let of = "rbac.authorization.k8s.io";
    let objects = [
        json!({"apiVersion": format!("{of}/v1"), "kind": "ClusterRole", "metadata": {"name": "r"}, "rules": rules}),
        json!({"apiVersion": format!("{of}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": "b"},
            "roleRef": {"apiGroup": of, "kind": "ClusterRole", "name": "r"},
            "subjects": [{"apiGroup": of, "kind": "User", "name": "dev"}]}),
    ];
    server.load(objects).expect("the objects are valid");
}

/// Starts a server of Kubernetes 1.37 on which the user `dev` may use trust bundles and PodCertificateRequests, and
/// `verb` on these signers.
fn server_with_signers(verb: &str, signers: &[&str]) -> ApiServer {
    let server = ApiServer::builder()
        .kubernetes_version(KubernetesVersion::V1_37)
        .authorization(Authorization::Rbac)
        .token("dev-token", "dev", ["devs"])
        .start();
    let resources = [
        "clustertrustbundles",
        "podcertificaterequests",
        "podcertificaterequests/status",
    ];
    grant(&server, &["*"], &resources, (verb, signers));
    server
}

async fn send_as_dev(server: &ApiServer, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let media = match method {
        "PATCH" => "application/merge-patch+json",
        _ => "application/json",
    };
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", media)
        .header("authorization", "Bearer dev-token")
        .body(body.to_string())
        .expect("the request is valid");
    let response = server.call(request).await;
    let body = serde_json::from_slice(response.body()).expect("the text is valid JSON");
    (response.status().as_u16(), body)
}

const BUNDLES: &str = "/apis/certificates.k8s.io/v1/clustertrustbundles";

#[rstest]
#[case::no_permission(&[], "example.com/s", 403)]
#[case::permission_for_the_signer(&["example.com/s"], "example.com/s", 201)]
#[case::permission_for_the_domain(&["example.com/*"], "example.com/s", 201)]
#[case::permission_for_another_signer(&["example.com/other"], "example.com/s", 403)]
#[case::bundle_without_a_signer(&[], "", 201)]
#[tokio::test(start_paused = true)]
async fn trust_bundle_requires_permission_to_attest_for_the_signer(
    #[case] signers: &[&str],
    #[case] signer: &str,
    #[case] code: u16,
) {
    let server = server_with_signers("attest", signers);
    let name = if signer.is_empty() { "a" } else { "example.com:s:a" };
    let body = json!({"metadata": {"name": name}, "spec": {"signerName": signer, "trustBundle": authority()}});
    let (found, answer) = send_as_dev(&server, "POST", BUNDLES, &body).await;
    assert_eq!(found, code, "{answer}");
    if code == 403 {
        let message = "clustertrustbundles.certificates.k8s.io \"example.com:s:a\" is forbidden: user not permitted to \
                       attest for signerName \"example.com/s\"";
        assert_eq!(answer["message"], message);
    }
}

#[tokio::test(start_paused = true)]
async fn finalizers_of_a_trust_bundle_may_change_without_permission_to_attest() {
    let server = server_with_signers("attest", &[]);
    let body = json!({"apiVersion": "certificates.k8s.io/v1", "kind": "ClusterTrustBundle",
        "metadata": {"name": "example.com:s:a"},
        "spec": {"signerName": "example.com/s", "trustBundle": authority()}});
    server.load([body]).expect("the bundle is valid");
    let path = format!("{BUNDLES}/example.com:s:a");
    let finalizers = json!({"metadata": {"finalizers": ["example.com/a"]}});
    assert_eq!(send_as_dev(&server, "PATCH", &path, &finalizers).await.0, 200);
    let labels = json!({"metadata": {"labels": {"a": "b"}}});
    assert_eq!(send_as_dev(&server, "PATCH", &path, &labels).await.0, 403);
}

#[rstest]
#[case::no_permission(&[], "Issued", 422)]
#[case::no_permission_to_deny(&[], "Denied", 422)]
#[case::permission_for_the_signer(&["example.com/s"], "Issued", 200)]
#[tokio::test(start_paused = true)]
async fn pod_certificate_requires_permission_to_sign(
    #[case] signers: &[&str],
    #[case] condition: &str,
    #[case] code: u16,
) {
    let server = server_with_signers("sign", signers);
    let request = json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "PodCertificateRequest",
        "metadata": {"name": "a", "namespace": "default"},
        "spec": {"signerName": "example.com/s", "podName": "p", "podUID": "1", "serviceAccountName": "s",
            "serviceAccountUID": "2", "nodeName": "n", "nodeUID": "3"},
    });
    server.load([request]).expect("the request is valid");
    let times = ["2026-01-01T00:00:00Z", "2026-01-01T12:00:00Z", "2026-01-02T00:00:00Z"];
    let condition = json!({"type": condition, "status": "True", "reason": "r", "lastTransitionTime": times[0]});
    let mut status = json!({"status": {"conditions": [condition]}});
    if condition["type"] == "Issued" {
        status = json!({"status": {"conditions": [condition], "certificateChain": authority(), "notBefore": times[0],
            "beginRefreshAt": times[1], "notAfter": times[2]}});
    }
    let path = "/apis/certificates.k8s.io/v1/namespaces/default/podcertificaterequests/a/status";
    let (found, answer) = send_as_dev(&server, "PATCH", path, &status).await;
    assert_eq!(found, code, "{answer}");
    if code == 422 {
        let why = "spec.signerName: Forbidden: User \"dev\" is not permitted to \"sign\" for signer \"example.com/s\"";
        assert_eq!(causes(&answer), [why]);
    }
}

/// Creates an object, and returns a part of the response.
async fn created_part(server: &ApiServer, path: &str, body: Value, part: &str) -> Value {
    let (code, answer) = send(server, "POST", path, &body).await;
    match code {
        201 => answer.pointer(part).cloned().unwrap_or_default(),
        _ => answer["message"].clone(),
    }
}

#[rstest]
#[case::tolerations("DefaultTolerationSeconds", "/api/v1/namespaces/default/pods",
    json!({"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}),
    "/spec/tolerations/0/key", json!("node.kubernetes.io/not-ready"), Value::Null)]
#[case::priority("Priority", "/api/v1/namespaces/default/pods",
    json!({"metadata": {"name": "a"}, "spec": {"priorityClassName": "none", "containers": [{"name": "c", "image": "i"}]}}),
    "/spec/priority", json!("pods \"a\" is forbidden: no PriorityClass with name none was found"), Value::Null)]
#[case::missing_namespace("NamespaceLifecycle", "/api/v1/namespaces/none/configmaps", json!({"metadata": {"name": "a"}}),
    "/metadata/name", json!("namespaces \"none\" not found"), json!("a"))]
#[case::finalizer("StorageObjectInUseProtection", "/api/v1/persistentvolumes",
    json!({"metadata": {"name": "a"}, "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
        "hostPath": {"path": "/v"}}}),
    "/metadata/finalizers", json!(["kubernetes.io/pv-protection"]), Value::Null)]
#[case::taint("TaintNodesByCondition", "/api/v1/nodes", json!({"metadata": {"name": "a"}}),
    "/spec/taints/0/key", json!("node.kubernetes.io/not-ready"), Value::Null)]
#[tokio::test(start_paused = true)]
async fn disabled_admission_plugin_has_no_effect(
    #[case] plugin: &str,
    #[case] path: &str,
    #[case] body: Value,
    #[case] part: &str,
    #[case] with: Value,
    #[case] without: Value,
) {
    let builder = ApiServer::builder().disable_admission_plugins([plugin]);
    let off = builder.expect("the plugin can be disabled").start();
    assert_eq!(created_part(&server(), path, body.clone(), part).await, with);
    assert_eq!(created_part(&off, path, body, part).await, without);
}

#[tokio::test(start_paused = true)]
async fn disabled_namespace_lifecycle_plugin_permits_deletion_of_system_namespaces() {
    let builder = ApiServer::builder().disable_admission_plugins(["NamespaceLifecycle"]);
    let off = builder.expect("the plugin can be disabled").start();
    let path = "/api/v1/namespaces/kube-public";
    assert_eq!(send(&server(), "DELETE", path, &Value::Null).await.0, 403);
    assert_eq!(send(&off, "DELETE", path, &Value::Null).await.0, 200);
}
