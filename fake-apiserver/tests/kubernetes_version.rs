//! The versions of Kubernetes that a server can be: what it serves, what it names, and which fields it keeps.

use fake_apiserver::{ApiServer, KubernetesVersion};
use http::Request;
use rstest::rstest;
use serde_json::{Value, json};

use KubernetesVersion::{V1_36, V1_37};

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
    let answer = server.call(request.body(body).expect("the request is whole")).await;
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
async fn the_default_is_1_36() {
    assert_eq!(get(&ApiServer::start(), "/version").await["minor"], "36");
}

#[rstest]
#[case(V1_36, "36", "v1.36.2", "35")]
#[case(V1_37, "37", "v1.37.2", "36")]
#[tokio::test]
async fn documents_name_the_version(
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
#[case("1.35", Err("Kubernetes \"1.35\" is not served here; there are 1.36 and 1.37"))]
#[case("1.38", Err("Kubernetes \"1.38\" is not served here; there are 1.36 and 1.37"))]
#[case("latest", Err("Kubernetes \"latest\" is not served here; there are 1.36 and 1.37"))]
fn other_versions_are_refused_by_name(#[case] text: &str, #[case] expected: Result<KubernetesVersion, &str>) {
    let parsed: Result<KubernetesVersion, _> = text.parse();
    assert_eq!(parsed.map_err(|why| why.to_string()), expected.map_err(str::to_owned));
}

/// The names of resources and subresources of a group and version in discovery of both forms.
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
async fn discovery_of_1_37_has_what_became_stable(#[case] group: &str, #[case] new: &[&str]) {
    let (before, after) = (server(V1_36), server(V1_37));
    for name in new {
        let (plain, aggregated) = discovered(&before, group, "v1").await;
        assert!(!plain.iter().chain(&aggregated).any(|it| it == name), "{name} in 1.36");
        let (plain, aggregated) = discovered(&after, group, "v1").await;
        assert!(plain.iter().any(|it| it == name), "{name} in {plain:?}");
        assert!(aggregated.iter().any(|it| it == name), "{name} in {aggregated:?}");
    }
}

#[tokio::test]
async fn an_object_of_a_kind_new_in_1_37_is_served_there_alone() {
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
async fn openapi_has_the_fields_of_the_version(#[case] version: KubernetesVersion, #[case] expected: bool) {
    let document = get(&server(version), "/openapi/v3/api/v1").await;
    let fields = &document["components"]["schemas"]["io.k8s.api.core.v1.PodSpec"]["properties"];
    assert!(fields["containers"].is_object());
    assert_eq!(fields["evictionResponders"].is_object(), expected);
}

/// Answers the code and the object of a strict create of a Pod with a volume.
async fn pod(server: &ApiServer, volume: Value) -> (u16, Value) {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i"}], "volumes": [volume]},
    });
    post(server, "/api/v1/namespaces/default/pods?fieldValidation=Strict", pod).await
}

#[tokio::test]
async fn fields_of_1_37_are_known_there_and_dropped_while_their_gate_is_off() {
    let volume = json!({"name": "v", "emptyDir": {"mode": 511}});
    let (code, answer) = pod(&server(V1_36), volume.clone()).await;
    assert_eq!(code, 400, "{answer}");
    let (code, answer) = pod(&server(V1_37), volume).await;
    assert_eq!(code, 201, "{answer}");
    assert_eq!(answer["spec"]["volumes"][0]["emptyDir"], json!({}));
}

#[tokio::test]
async fn projections_of_certificates_are_kept_from_1_37_on() {
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
async fn stateful_sets_keep_the_most_that_are_away_from_1_37_on(
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
async fn drivers_say_whether_they_keep_pods_away_from_1_37_on(
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
async fn no_replicas_may_be_the_fewest_from_1_37_on(#[case] version: KubernetesVersion, #[case] expected: u16) {
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
async fn autoscalers_have_generations_from_1_37_on(
    #[case] version: KubernetesVersion,
    #[case] generations: [Value; 2],
) {
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
