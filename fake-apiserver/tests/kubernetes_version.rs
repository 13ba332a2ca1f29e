//! The Kubernetes version of a server determines its APIs, its version documents, and the fields that it keeps.

use fake_apiserver::{ApiServer, KubernetesVersion};
use http::Request;
use rstest::rstest;
use serde_json::{Value, json};

use KubernetesVersion::{V1_33, V1_34, V1_35, V1_36, V1_37};

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

fn server(version: KubernetesVersion) -> ApiServer {
    ApiServer::builder().kubernetes_version(version).start()
}

async fn ask(server: &ApiServer, method: &str, path: &str, accept: &str, body: Value) -> (u16, Value) {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("accept", accept)
        .header(
            "content-type",
            if method == "PATCH" {
                "application/merge-patch+json"
            } else {
                "application/json"
            },
        );
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    let answer = server.call(request.body(body).expect("the request is valid")).await;
    let code = answer.status().as_u16();
    (code, serde_json::from_slice(answer.body()).unwrap_or(Value::Null))
}

async fn get(server: &ApiServer, path: &str) -> Value {
    ask(server, "GET", path, "application/json", Value::Null).await.1
}

async fn post(server: &ApiServer, path: &str, body: Value) -> (u16, Value) {
    ask(server, "POST", path, "application/json", body).await
}

#[tokio::test]
async fn default_version_is_1_36() {
    assert_eq!(get(&ApiServer::start(), "/version").await["minor"], "36");
}

#[rstest]
#[case(V1_33, "33", "v1.33.13", "32")]
#[case(V1_34, "34", "v1.34.9", "33")]
#[case(V1_35, "35", "v1.35.8", "34")]
#[case(V1_36, "36", "v1.36.2", "35")]
#[case(V1_37, "37", "v1.37.2", "36")]
#[tokio::test]
async fn documents_contain_the_kubernetes_version(
    #[case] version: KubernetesVersion,
    #[case] minor: &str,
    #[case] release: &str,
    #[case] compatible: &str,
) {
    let server = server(version);
    let info = get(&server, "/version").await;
    assert_eq!(info["minor"], minor);
    assert_eq!(info["emulationMinor"], minor);
    assert_eq!(info["minCompatibilityMinor"], compatible);
    assert_eq!(info["gitVersion"], release);
    assert_eq!(
        get(&server, "/openapi/v3/apis/apps/v1").await["info"]["version"],
        release
    );
    assert_eq!(get(&server, "/openapi/v2").await["info"]["version"], release);
}

#[rstest]
#[case("1.36", Ok(V1_36))]
#[case("v1.37", Ok(V1_37))]
#[case("1.33", Ok(V1_33))]
#[case(
    "1.32",
    Err("Kubernetes \"1.32\" is not supported; the supported versions are 1.33 to 1.37")
)]
#[case(
    "1.38",
    Err("Kubernetes \"1.38\" is not supported; the supported versions are 1.33 to 1.37")
)]
#[case(
    "latest",
    Err("Kubernetes \"latest\" is not supported; the supported versions are 1.33 to 1.37")
)]
fn error_contains_the_unsupported_kubernetes_version(
    #[case] text: &str,
    #[case] expected: Result<KubernetesVersion, &str>,
) {
    let parsed: Result<KubernetesVersion, _> = text.parse();
    assert_eq!(parsed.map_err(|why| why.to_string()), expected.map_err(str::to_owned));
}

/// Returns the names of resources and subresources in a version of a group, from both forms of discovery.
async fn discovered(server: &ApiServer, group: &str, version: &str) -> (Vec<String>, Vec<String>) {
    let list = get(server, &format!("/apis/{group}/{version}")).await;
    let of = |it: &Value, field: &str| it[field].as_str().unwrap_or_default().to_owned();
    let plain = list["resources"].as_array().into_iter().flatten();
    let plain = plain.map(|it| of(it, "name")).collect();
    let (_, aggregated) = ask(server, "GET", "/apis", AGGREGATED, Value::Null).await;
    let groups = aggregated["items"].as_array().into_iter().flatten();
    let groups = groups.filter(|it| it["metadata"]["name"] == group);
    let versions = groups.flat_map(|it| it["versions"].as_array().into_iter().flatten());
    let versions = versions.filter(|it| it["version"] == version);
    let mut names = Vec::new();
    for row in versions.flat_map(|it| it["resources"].as_array().into_iter().flatten()) {
        names.push(of(row, "resource"));
        let subs = row["subresources"].as_array().into_iter().flatten();
        names.extend(subs.map(|sub| format!("{}/{}", of(row, "resource"), of(sub, "subresource"))));
    }
    (plain, names)
}

#[rstest]
#[case("certificates.k8s.io", &["clustertrustbundles", "podcertificaterequests", "podcertificaterequests/status"])]
#[case("resource.k8s.io", &["devicetaintrules", "devicetaintrules/status"])]
#[case("storagemigration.k8s.io", &["storageversionmigrations", "storageversionmigrations/status"])]
#[case("storage.k8s.io", &["csinodes/status"])]
#[tokio::test]
async fn discovery_of_1_37_contains_apis_that_became_stable(#[case] group: &str, #[case] new: &[&str]) {
    let (before, after) = (server(V1_36), server(V1_37));
    for name in new {
        let (plain, aggregated) = discovered(&before, group, "v1").await;
        assert!(
            !plain.iter().chain(&aggregated).any(|it| it == name),
            "{name} is not served in 1.36"
        );
        let (plain, aggregated) = discovered(&after, group, "v1").await;
        assert!(plain.iter().any(|it| it == name), "{plain:?} lacks {name}");
        assert!(aggregated.iter().any(|it| it == name), "{aggregated:?} lacks {name}");
    }
}

#[tokio::test]
async fn kinds_added_in_1_37_are_not_served_in_1_36() {
    let path = "/apis/resource.k8s.io/v1/devicetaintrules";
    let rule = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "DeviceTaintRule", "metadata": {"name": "r"},
        "spec": {"deviceSelector": {"driver": "d.example.com"}, "taint": {"key": "k", "effect": "NoSchedule"}},
    });
    assert_eq!(post(&server(V1_36), path, rule.clone()).await.0, 404);
    let after = server(V1_37);
    let (code, made) = post(&after, path, rule).await;
    assert_eq!(code, 201, "{made}");
    assert_eq!(made["metadata"]["generation"], 1);
    let document = get(&after, "/openapi/v3/apis/resource.k8s.io/v1").await;
    let schemas = &document["components"]["schemas"];
    assert!(schemas["io.k8s.api.resource.v1.DeviceTaintRule"].is_object());
}

#[rstest]
#[case(V1_36, false)]
#[case(V1_37, true)]
#[tokio::test]
async fn openapi_contains_the_fields_of_the_kubernetes_version(
    #[case] version: KubernetesVersion,
    #[case] expected: bool,
) {
    let document = get(&server(version), "/openapi/v3/api/v1").await;
    let fields = &document["components"]["schemas"]["io.k8s.api.core.v1.PodSpec"]["properties"];
    assert!(fields["containers"].is_object());
    assert_eq!(fields["evictionResponders"].is_object(), expected);
}

/// Creates a Pod with a volume and strict validation; returns the code and the object.
async fn pod(server: &ApiServer, volume: Value) -> (u16, Value) {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i"}], "volumes": [volume]},
    });
    post(server, "/api/v1/namespaces/default/pods?fieldValidation=Strict", pod).await
}

#[tokio::test]
async fn fields_of_1_37_are_dropped_while_the_feature_gate_is_disabled() {
    let volume = json!({"name": "v", "emptyDir": {"mode": 511}});
    let (code, answer) = pod(&server(V1_36), volume.clone()).await;
    assert_eq!(code, 400, "{answer}");
    let (code, answer) = pod(&server(V1_37), volume).await;
    assert_eq!(code, 201, "{answer}");
    assert_eq!(answer["spec"]["volumes"][0]["emptyDir"], json!({}));
}

#[tokio::test]
async fn cluster_trust_bundle_projections_are_kept_as_of_1_37() {
    let source = json!({"clusterTrustBundle": {"name": "b", "path": "ca.pem"}});
    let volume = json!({"name": "v", "projected": {"sources": [source]}});
    let (_, before) = pod(&server(V1_36), volume.clone()).await;
    assert!(before["spec"]["volumes"][0]["projected"]["sources"][0]["clusterTrustBundle"].is_null());
    let (code, after) = pod(&server(V1_37), volume).await;
    assert_eq!(code, 201, "{after}");
    assert_eq!(
        after["spec"]["volumes"][0]["projected"]["sources"][0]["clusterTrustBundle"]["path"],
        "ca.pem"
    );
}

#[rstest]
#[case(V1_36, json!({"maxUnavailable": "50%"}), json!({"partition": 0}))]
#[case(V1_37, json!({"maxUnavailable": "50%"}), json!({"partition": 0, "maxUnavailable": "50%"}))]
#[case(V1_37, json!({}), json!({"partition": 0, "maxUnavailable": 1}))]
#[tokio::test]
async fn stateful_sets_support_max_unavailable_as_of_1_37(
    #[case] version: KubernetesVersion,
    #[case] rolling: Value,
    #[case] expected: Value,
) {
    let labels = json!({"app": "a"});
    let set = json!({
        "metadata": {"name": "s"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": rolling},
        },
    });
    let (code, made) = post(&server(version), "/apis/apps/v1/namespaces/default/statefulsets", set).await;
    assert_eq!(code, 201, "{made}");
    assert_eq!(made["spec"]["updateStrategy"]["rollingUpdate"], expected);
}

#[rstest]
#[case(V1_36, json!({"preventPodSchedulingIfMissing": true}), json!(null))]
#[case(V1_37, json!({"preventPodSchedulingIfMissing": true}), json!(true))]
#[case(V1_37, json!({}), json!(false))]
#[tokio::test]
async fn csi_drivers_can_prevent_pod_scheduling_as_of_1_37(
    #[case] version: KubernetesVersion,
    #[case] spec: Value,
    #[case] expected: Value,
) {
    let driver = json!({"metadata": {"name": "d.example.com"}, "spec": spec});
    let (code, made) = post(&server(version), "/apis/storage.k8s.io/v1/csidrivers", driver).await;
    assert_eq!(code, 201, "{made}");
    assert_eq!(made["spec"]["preventPodSchedulingIfMissing"], expected);
}

#[rstest]
#[case(V1_36, 422)]
#[case(V1_37, 201)]
#[tokio::test]
async fn min_replicas_may_be_zero_as_of_1_37(#[case] version: KubernetesVersion, #[case] expected: u16) {
    let path = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"});
    let metric = json!({
        "type": "External",
        "external": {"metric": {"name": "queue"}, "target": {"type": "Value", "value": "3"}},
    });
    let spec = json!({"minReplicas": 0, "maxReplicas": 3, "scaleTargetRef": target, "metrics": [metric]});
    let (code, answer) = post(&server(version), path, json!({"metadata": {"name": "h"}, "spec": spec})).await;
    assert_eq!(code, expected, "{answer}");
}

#[rstest]
#[case(V1_36, [json!(null), json!(null)])]
#[case(V1_37, [json!(1), json!(2)])]
#[tokio::test]
async fn autoscalers_have_generations_as_of_1_37(#[case] version: KubernetesVersion, #[case] generations: [Value; 2]) {
    let server = server(version);
    let [first, second] = generations;
    let path = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"});
    let (code, made) = post(
        &server,
        path,
        json!({"metadata": {"name": "h"}, "spec": {"maxReplicas": 3, "scaleTargetRef": target}}),
    )
    .await;
    assert_eq!(code, 201, "{made}");
    assert_eq!(made["metadata"]["generation"], first);
    let patch = json!({"spec": {"maxReplicas": 4}});
    let (_, changed) = ask(&server, "PATCH", &format!("{path}/h"), "application/json", patch).await;
    assert_eq!(changed["metadata"]["generation"], second);
    let patch = json!({"metadata": {"labels": {"a": "b"}}});
    let (_, labelled) = ask(&server, "PATCH", &format!("{path}/h"), "application/json", patch).await;
    assert_eq!(labelled["metadata"]["generation"], second);
}

/// `WatchList` is enabled in 1.32, disabled in 1.33, and enabled since 1.34.
#[rstest]
#[case(V1_33, 422)]
#[case(V1_34, 200)]
#[tokio::test]
async fn streaming_lists_are_refused_in_1_33(#[case] version: KubernetesVersion, #[case] expected: u16) {
    let server = server(version);
    let list = "/api/v1/configmaps?watch=1&timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    let request = Request::get(list).body(String::new()).expect("the request is valid");
    let answer = server.call(request).await;
    assert_eq!(answer.status().as_u16(), expected);
    let refused = "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch unless the WatchList feature \
                   gate is enabled";
    let text = String::from_utf8_lossy(answer.body());
    assert_eq!(text.contains(refused), expected == 422, "{text}");
}

/// Rules that were added between 1.33 and 1.36: the last version without the rule, the first version with it, and the
/// response codes.
#[rstest]
#[case::service_name([V1_35, V1_36], "/api/v1/namespaces/default/services",
    json!({"metadata": {"name": "1st"}, "spec": {"ports": [{"port": 80}]}}), [422, 201])]
#[case::service_name_of_an_ingress([V1_35, V1_36], "/apis/networking.k8s.io/v1/namespaces/default/ingresses",
    json!({"metadata": {"name": "a"}, "spec": {"defaultBackend": {"service": {"name": "1st", "port": {"number": 80}}}}}),
    [422, 201])]
#[case::traffic_distribution([V1_33, V1_34], "/api/v1/namespaces/default/services",
    json!({"metadata": {"name": "a"}, "spec": {"ports": [{"port": 80}], "trafficDistribution": "PreferSameZone"}}),
    [422, 201])]
#[case::scale_target_without_an_api_version([V1_33, V1_34], "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers",
    json!({"metadata": {"name": "a"}, "spec": {"maxReplicas": 1, "scaleTargetRef": {"kind": "Deployment", "name": "a"}}}),
    [201, 422])]
#[case::stateful_set_template([V1_33, V1_34], "/apis/apps/v1/namespaces/default/statefulsets",
    json!({"metadata": {"name": "a"}, "spec": {
        "selector": {"matchLabels": {"app": "a"}},
        "template": {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"image": "a"}]}},
    }}), [201, 422])]
#[tokio::test]
async fn validation_rules_depend_on_the_kubernetes_version(
    #[case] versions: [KubernetesVersion; 2],
    #[case] path: &str,
    #[case] object: Value,
    #[case] expected: [u16; 2],
) {
    for (version, expected) in versions.into_iter().zip(expected) {
        let (code, answer) = post(&server(version), path, object.clone()).await;
        assert_eq!(code, expected, "{version}: {answer}");
    }
}

/// Gate `MutableCSINodeAllocatableCount`.
#[rstest]
#[case(V1_34, 422)]
#[case(V1_35, 200)]
#[tokio::test]
async fn csi_node_limits_are_mutable_as_of_1_35(#[case] version: KubernetesVersion, #[case] expected: u16) {
    let server = server(version);
    let nodes = "/apis/storage.k8s.io/v1/csinodes";
    let driver = |count: u32| json!({"name": "a.example.com", "nodeID": "a", "allocatable": {"count": count}});
    let node = json!({"metadata": {"name": "a"}, "spec": {"drivers": [driver(1)]}});
    assert_eq!(post(&server, nodes, node).await.0, 201);
    let change = json!({"spec": {"drivers": [driver(2)]}});
    let (code, answer) = ask(&server, "PATCH", &format!("{nodes}/a"), "application/json", change).await;
    assert_eq!(code, expected, "{answer}");
}

/// Gates that were enabled between 1.33 and 1.36, and a field that depends on each gate.
#[rstest]
#[case::pod_level_resources([V1_33, V1_34], json!({"resources": {"limits": {"cpu": "1"}}}), "/spec/resources")]
#[case::dynamic_resource_allocation([V1_33, V1_34],
    json!({"resourceClaims": [{"name": "a", "resourceClaimName": "a"}]}), "/spec/resourceClaims")]
#[case::host_name_override([V1_34, V1_35], json!({"hostnameOverride": "a"}), "/spec/hostnameOverride")]
#[case::container_restart_rules([V1_34, V1_35],
    json!({"restartPolicy": "Never", "containers": [{"name": "a", "image": "a", "restartPolicy": "Never",
        "restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "In", "values": [1]}}]}]}),
    "/spec/containers/0/restartPolicyRules")]
#[tokio::test]
async fn fields_are_kept_as_of_the_version_that_enables_their_feature_gate(
    #[case] versions: [KubernetesVersion; 2],
    #[case] spec: Value,
    #[case] field: &str,
) {
    for (version, is_kept) in versions.into_iter().zip([false, true]) {
        let mut whole = json!({"containers": [{"name": "a", "image": "a"}]});
        let fields = spec.as_object().expect("the value is an object").clone();
        whole.as_object_mut().expect("the value is an object").extend(fields);
        let pod = json!({"metadata": {"name": "a"}, "spec": whole});
        let (code, answer) = post(&server(version), "/api/v1/namespaces/default/pods", pod).await;
        assert_eq!(code, 201, "{version}: {answer}");
        assert_eq!(answer.pointer(field).is_some(), is_kept, "{version}: {answer}");
    }
}

/// Gate `ImageVolume`: without its only source, a volume is refused.
#[rstest]
#[case(V1_34, 422)]
#[case(V1_35, 201)]
#[tokio::test]
async fn image_volumes_are_enabled_as_of_1_35(#[case] version: KubernetesVersion, #[case] expected: u16) {
    let volume = json!({"name": "a", "image": {"reference": "a"}});
    assert_eq!(pod(&server(version), volume).await.0, expected);
}

/// Gate `DeploymentReplicaSetTerminatingReplicas`.
#[rstest]
#[case(V1_34, Value::Null)]
#[case(V1_35, json!(1))]
#[tokio::test]
async fn terminating_replicas_are_counted_as_of_1_35(#[case] version: KubernetesVersion, #[case] expected: Value) {
    let server = server(version);
    let sets = "/apis/apps/v1/namespaces/default/replicasets";
    let labels = json!({"app": "a"});
    let template = json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "a", "image": "a"}]}});
    let spec = json!({"selector": {"matchLabels": labels}, "template": template});
    let (code, _) = post(&server, sets, json!({"metadata": {"name": "a"}, "spec": spec})).await;
    assert_eq!(code, 201);
    let status = json!({"status": {"replicas": 1, "terminatingReplicas": 1}});
    let (code, answer) = ask(
        &server,
        "PATCH",
        &format!("{sets}/a/status"),
        "application/json",
        status,
    )
    .await;
    assert_eq!(code, 200, "{answer}");
    assert_eq!(answer["status"]["terminatingReplicas"], expected);
}

/// New expressions may only use the libraries of the previous version, to which a cluster can be rolled back.
#[rstest]
#[case::semver(V1_33, V1_34, "semver(self.v).major() == 1", "undeclared reference to 'semver'")]
#[case::list_sort(V1_34, V1_35, "self.l.sort() == self.l", "undeclared reference to 'sort'")]
#[case::lists_range(V1_34, V1_35, "lists.range(2) == self.n", "undeclared reference to 'lists'")]
#[case::sort_by_macro(
    V1_34,
    V1_35,
    "self.l.sortBy(x, size(x)) == self.l",
    "undeclared reference to 'sortBy'"
)]
#[tokio::test]
async fn crd_rules_use_the_cel_libraries_of_the_previous_version(
    #[case] before: KubernetesVersion,
    #[case] since: KubernetesVersion,
    #[case] rule: &str,
    #[case] error: &str,
) {
    let schema = json!({"type": "object", "properties": {"spec": {
        "type": "object",
        "properties": {
            "v": {"type": "string", "maxLength": 10},
            "l": {"type": "array", "maxItems": 5, "items": {"type": "string", "maxLength": 5}},
            "n": {"type": "array", "maxItems": 5, "items": {"type": "integer"}},
        },
        "x-kubernetes-validations": [{"rule": rule}],
    }}});
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
    let definition = json!({"metadata": {"name": "foos.e.com"}, "spec": {
        "group": "e.com", "scope": "Cluster", "names": {"plural": "foos", "kind": "Foo"}, "versions": [version],
    }});
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let (code, refused) = post(&server(before), path, definition.clone()).await;
    assert_eq!(code, 422, "{refused}");
    assert!(
        refused["message"].as_str().is_some_and(|it| it.contains(error)),
        "{refused}"
    );
    let (code, answer) = post(&server(since), path, definition).await;
    assert_eq!(code, 201, "{answer}");
}

#[rstest]
#[case(V1_33, V1_34, "semver(object.v).major() == 1")]
#[case(V1_34, V1_35, "object.l.distinct() == object.l")]
#[tokio::test]
async fn policies_and_webhooks_use_the_cel_libraries_of_the_previous_version(
    #[case] before: KubernetesVersion,
    #[case] since: KubernetesVersion,
    #[case] expression: &str,
) {
    let policy = json!({"metadata": {"name": "p"}, "spec": {
        "matchConstraints": {"resourceRules": [
            {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]},
        "validations": [{"expression": expression}],
    }});
    let hook = json!({"metadata": {"name": "w"}, "webhooks": [{
        "name": "w.e.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": "https://e.com/"},
        "matchConditions": [{"name": "c", "expression": expression}],
    }]});
    let group = "/apis/admissionregistration.k8s.io/v1";
    for (resource, object) in [
        ("validatingadmissionpolicies", policy),
        ("validatingwebhookconfigurations", hook),
    ] {
        let path = format!("{group}/{resource}");
        let (code, answer) = post(&server(before), &path, object.clone()).await;
        assert_eq!(code, 422, "{answer}");
        assert!(answer.to_string().contains("undeclared reference"), "{answer}");
        let (code, answer) = post(&server(since), &path, object).await;
        assert_eq!(code, 201, "{answer}");
    }
}

#[rstest]
#[case(V1_34, "[2, 1].sort() == [1, 2]", Some("undeclared reference to 'sort'"))]
#[case(V1_34, "isSemver('v1.0', true)", None)]
#[case(
    V1_35,
    "device.allowMultipleAllocations",
    Some("undefined field 'allowMultipleAllocations'")
)]
#[case(V1_36, "device.allowMultipleAllocations", None)]
#[tokio::test]
async fn device_selectors_use_the_cel_libraries_of_the_server_version(
    #[case] version: KubernetesVersion,
    #[case] expression: &str,
    #[case] error: Option<&str>,
) {
    let server = ApiServer::builder().kubernetes_version(version);
    let server = server
        .runtime_config(["api/beta=true"])
        .expect("the runtime config is valid")
        .start();
    let class = json!({"metadata": {"name": "c"}, "spec": {"selectors": [{"cel": {"expression": expression}}]}});
    let (code, answer) = post(&server, "/apis/resource.k8s.io/v1beta2/deviceclasses", class).await;
    match error {
        None => assert_eq!(code, 201, "{answer}"),
        Some(error) => assert!(
            answer["message"].as_str().is_some_and(|it| it.contains(error)),
            "{answer}"
        ),
    }
}
