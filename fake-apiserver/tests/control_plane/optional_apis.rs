//! APIs that are off by default, compared with a list of kube-apiserver's APIs in each minor version.

use std::collections::BTreeSet;

use bytes::Bytes;
use fake_apiserver::{ApiServer, ApiServerBuilder, KubernetesVersion};
use http::Request;
use rstest::rstest;
use serde_json::{Value, json};

use crate::ask::{get, read, request};

/// The list: minor version, group version, resource, required gate or `-`, storage version hash or `-`.
const LIST: &str = include_str!("../data/optional_apis.txt");

/// A line of the list.
struct Listed {
    api_version: &'static str,
    resource: &'static str,
    gate: &'static str,
    hash: &'static str,
}

impl Listed {
    fn path(&self) -> String {
        format!("/apis/{}/{}", self.api_version, self.resource)
    }

    fn name(&self) -> String {
        format!("{}/{}", self.api_version, self.resource)
    }
}

fn list(version: KubernetesVersion) -> impl Iterator<Item = Listed> {
    LIST.lines().filter_map(move |line| {
        let words: Vec<&'static str> = line.split(' ').collect();
        let [minor, api_version, resource, gate, hash] = words[..] else {
            return None;
        };
        let is_it = minor.parse() == Ok(version);
        is_it.then_some(Listed {
            api_version,
            resource,
            gate,
            hash,
        })
    })
}

fn with_all(version: KubernetesVersion) -> ApiServerBuilder {
    let builder = ApiServer::builder().kubernetes_version(version);
    builder.runtime_config(["api/all=true"]).expect("the pair is valid")
}

fn with_gates(version: KubernetesVersion) -> ApiServerBuilder {
    let gates = ApiServerBuilder::api_feature_gates();
    with_all(version).feature_gates(gates).expect("the gates exist")
}

async fn json_of(server: &ApiServer, path: &str) -> Value {
    let (code, text) = get(server, path).await;
    assert_eq!(code, 200, "{path}: {text}");
    serde_json::from_str(&text).expect("the text is valid JSON")
}

/// Returns the group versions in the order of aggregated discovery, and all resources.
async fn discovered(server: &ApiServer) -> (Vec<String>, BTreeSet<String>) {
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let request = Request::get("/apis").header("accept", accept).body(Bytes::new());
    let (_, text) = read(server.call(request.expect("the request is valid")).await);
    let found: Value = serde_json::from_str(&text).expect("the text is valid JSON");
    let (mut order, mut resources) = (Vec::new(), BTreeSet::new());
    for group in found["items"].as_array().into_iter().flatten() {
        for version in group["versions"].as_array().into_iter().flatten() {
            let text = |value: &Value| value.as_str().expect("a name is a string").to_owned();
            let name = format!("{}/{}", text(&group["metadata"]["name"]), text(&version["version"]));
            let named = version["resources"].as_array().into_iter().flatten();
            resources.extend(named.map(|it| format!("{name}/{}", text(&it["resource"]))));
            order.push(name);
        }
    }
    (order, resources)
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn apis_disabled_by_default_are_the_same_as_in_kube_apiserver(
    #[values("1.33", "1.34", "1.35", "1.36", "1.37")] minor: KubernetesVersion,
) {
    let (_, by_default) = discovered(&ApiServer::builder().kubernetes_version(minor).start()).await;
    let listed = |with_gates: bool| -> BTreeSet<String> {
        let on = list(minor)
            .filter(|it| with_gates || it.gate == "-")
            .map(|it| it.name());
        by_default.iter().cloned().chain(on).collect()
    };
    assert!(list(minor).all(|it| !by_default.contains(&it.name())));
    let (_, all) = discovered(&with_all(minor).start()).await;
    assert_eq!(all, listed(false), "APIs without enabled gates");
    let (order, all) = discovered(&with_gates(minor).start()).await;
    assert_eq!(all, listed(true), "APIs with enabled gates");
    let expected = LIST
        .lines()
        .find_map(|line| line.strip_prefix(&format!("order {minor} ")));
    assert_eq!(order.join(" "), expected.expect("the version is listed"));
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn optional_resources_have_documents_tables_and_storage_versions(
    #[values("1.33", "1.34", "1.35", "1.36", "1.37")] minor: KubernetesVersion,
) {
    let server = with_gates(minor).start();
    for it in list(minor) {
        let discovery = json_of(&server, &format!("/apis/{}", it.api_version)).await;
        let found = discovery["resources"]
            .as_array()
            .into_iter()
            .flatten()
            .find(|row| row["name"] == it.resource);
        let found = found.expect("the resource is discovered");
        assert_eq!(
            found["storageVersionHash"].as_str().unwrap_or("-"),
            it.hash,
            "{}",
            it.name()
        );
        let document = json_of(&server, &format!("/openapi/v3/apis/{}", it.api_version)).await;
        let version = it.api_version.split_once('/').map_or("", |(_, version)| version);
        let kind = found["kind"].as_str().expect("a kind is a string");
        let schemas = document["components"]["schemas"]
            .as_object()
            .expect("the document has schemas");
        for kind in [kind.to_owned(), format!("{kind}List")] {
            let name = format!(".{version}.{kind}");
            let schema = schemas.iter().find(|(key, _)| key.ends_with(&name));
            let (_, schema) = schema.unwrap_or_else(|| panic!("the OpenAPI document of {minor} lacks {name}"));
            assert_eq!(
                schema["x-kubernetes-group-version-kind"][0]["version"], version,
                "{name}"
            );
        }
        let list = json_of(&server, &it.path()).await;
        assert_eq!(
            (&list["apiVersion"], &list["kind"]),
            (&json!(it.api_version), &json!(format!("{kind}List")))
        );
        for accept in [
            "application/json;as=Table;g=meta.k8s.io;v=v1",
            "application/vnd.kubernetes.protobuf",
        ] {
            let request = Request::get(it.path()).header("accept", accept).body(Bytes::new());
            let answer = server.call(request.expect("the request is valid")).await;
            assert_eq!(answer.status(), 200, "{} as {accept}", it.name());
        }
    }
}

/// Names of the metadata fields that the server sets.
const SET_BY_SERVER: [&str; 5] = [
    "creationTimestamp",
    "managedFields",
    "resourceVersion",
    "uid",
    "generation",
];

fn without_identity(mut object: Value) -> Value {
    for field in SET_BY_SERVER {
        object["metadata"][field] = Value::Null;
    }
    object
}

fn claim(request: Value) -> Value {
    json!({"kind": "ResourceClaim", "metadata": {"name": "a"}, "spec": {"devices": {"requests": [request]}}})
}

fn slice(device: Value) -> Value {
    json!({"kind": "ResourceSlice", "metadata": {"name": "a"}, "spec": {
        "driver": "d.example.com", "nodeName": "n", "devices": [device],
        "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}}})
}

/// Each version returns the same object with its own fields, and accepts the object that the other version returns.
#[rstest]
#[case::device_request(
    "namespaces/default/resourceclaims",
    claim(json!({"name": "r", "deviceClassName": "c", "selectors": [{"cel": {"expression": "true"}}]})),
    claim(json!({"name": "r", "exactly": {"deviceClassName": "c", "allocationMode": "ExactCount", "count": 1,
        "selectors": [{"cel": {"expression": "true"}}]}})),
    "1.33"
)]
#[case::alternative_device_requests(
    "namespaces/default/resourceclaims",
    claim(json!({"name": "r", "firstAvailable": [{"name": "s", "deviceClassName": "c"}]})),
    claim(json!({"name": "r", "firstAvailable": [{"name": "s", "deviceClassName": "c",
        "allocationMode": "ExactCount", "count": 1}]})),
    "1.34"
)]
#[case::device(
    "resourceslices",
    slice(json!({"name": "d", "basic": {"attributes": {"a": {"bool": true}}, "capacity": {"m": {"value": "1Gi"}}}})),
    slice(json!({"name": "d", "attributes": {"a": {"bool": true}}, "capacity": {"m": {"value": "1Gi"}}})),
    "1.33"
)]
#[tokio::test(start_paused = true)]
async fn objects_are_converted_between_versions_with_different_fields(
    #[case] resource: &str,
    #[case] old: Value,
    #[case] new: Value,
    #[case] since: KubernetesVersion,
) {
    for minor in KubernetesVersion::ALL.into_iter().filter(|it| *it >= since) {
        show_alike(minor, resource, &old, &new).await;
    }
}

/// In `v1alpha3`, a capacity is a quantity and not an object.
#[rstest]
#[case::to_v1beta2("v1beta2", |capacity| json!({"name": "d", "capacity": {"m": capacity}}))]
#[case::to_v1beta1("v1beta1", |capacity| json!({"name": "d", "basic": {"capacity": {"m": capacity}}}))]
#[tokio::test(start_paused = true)]
async fn capacities_are_converted_between_versions(#[case] version: &str, #[case] device: fn(Value) -> Value) {
    let server = with_all(KubernetesVersion::V1_33).start();
    let path = |version: &str| format!("/apis/resource.k8s.io/{version}/resourceslices");
    let alpha = slice(json!({"name": "d", "basic": {"capacity": {"m": "1Gi"}}}));
    let (code, text) = read(server.call(request("POST", &path("v1alpha3"), &alpha)).await);
    assert_eq!(code, 201, "{text}");
    let devices = async |version: &str, name: &str| {
        let shown = json_of(&server, &format!("{}/{name}", path(version))).await;
        shown["spec"]["devices"].clone()
    };
    let shown = device(json!({"value": "1Gi"}));
    assert_eq!(devices(version, "a").await, json!([shown]));
    assert_eq!(devices("v1alpha3", "a").await, alpha["spec"]["devices"]);

    let mut other = slice(shown);
    other["metadata"]["name"] = "b".into();
    let (code, text) = read(server.call(request("POST", &path(version), &other)).await);
    assert_eq!(code, 201, "{text}");
    assert_eq!(devices("v1alpha3", "b").await, alpha["spec"]["devices"]);
}

async fn show_alike(minor: KubernetesVersion, resource: &str, old: &Value, new: &Value) {
    let server = with_all(minor).start();
    let newest = if minor == KubernetesVersion::V1_33 {
        "v1beta2"
    } else {
        "v1"
    };
    let path = |version: &str| format!("/apis/resource.k8s.io/{version}/{resource}");
    let (code, text) = read(server.call(request("POST", &path("v1beta1"), old)).await);
    assert_eq!(code, 201, "{text}");
    let mut shown = without_identity(json_of(&server, &format!("{}/a", path(newest))).await);
    shown.as_object_mut().expect("a response is an object").remove("status");
    let mut expected = without_identity(new.clone());
    expected["apiVersion"] = format!("resource.k8s.io/{newest}").into();
    expected["metadata"]["namespace"] = shown["metadata"]["namespace"].clone();
    let (mut shown, mut expected) = (shown, expected);
    for object in [&mut shown, &mut expected] {
        let metadata = object["metadata"].as_object_mut().expect("an object has metadata");
        metadata.retain(|_, value| !value.is_null());
    }
    assert_eq!(shown, expected);
    let as_old = json_of(&server, &format!("{}/a", path("v1beta1"))).await;
    let (code, put) = read(
        server
            .call(request("PUT", &format!("{}/a", path("v1beta1")), &as_old))
            .await,
    );
    assert_eq!(code, 200, "{put}");
    let put: Value = serde_json::from_str(&put).expect("the text is valid JSON");
    assert_eq!(
        put["metadata"]["resourceVersion"], as_old["metadata"]["resourceVersion"],
        "the PUT changes nothing"
    );
    let mut created = as_old.clone();
    created["metadata"] = json!({"name": "b"});
    created
        .as_object_mut()
        .expect("a response is an object")
        .remove("status");
    let (code, text) = read(server.call(request("POST", &path("v1beta1"), &created)).await);
    assert_eq!(code, 201, "{text}");
    let list = json_of(&server, &path("v1beta1")).await;
    assert_eq!(list["items"][0]["spec"], list["items"][1]["spec"]);
    let protobuf = Request::get(path("v1beta1")).header("accept", "application/vnd.kubernetes.protobuf");
    let answer = server
        .call(protobuf.body(Bytes::new()).expect("the request is valid"))
        .await;
    assert_eq!(answer.status(), 200);
}

/// Before 1.36, the feature gate enables the plugin, as in kube-apiserver.
#[rstest]
#[case::gate_disabled("1.35", false, false)]
#[case::gate_enabled("1.35", true, true)]
#[case::version_without_a_gate("1.36", false, true)]
#[tokio::test(start_paused = true)]
async fn mutating_policies_apply_if_their_gate_is_enabled(
    #[case] minor: KubernetesVersion,
    #[case] is_on: bool,
    #[case] applies: bool,
) {
    let gates = is_on.then_some("MutatingAdmissionPolicy");
    let server = with_all(minor).feature_gates(gates).expect("the gate exists").start();
    let spec = json!({"matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"],
        "operations": ["CREATE"], "resources": ["configmaps"]}]}, "reinvocationPolicy": "Never", "mutations": [
        {"patchType": "JSONPatch", "jsonPatch": {"expression":
            "[JSONPatch{op: 'add', path: '/data', value: {'seen': 'yes'}}]"}}]});
    let group = "/apis/admissionregistration.k8s.io/v1beta1";
    for (resource, kind, spec) in [
        ("mutatingadmissionpolicies", "MutatingAdmissionPolicy", spec),
        (
            "mutatingadmissionpolicybindings",
            "MutatingAdmissionPolicyBinding",
            json!({"policyName": "p"}),
        ),
    ] {
        let object = json!({"kind": kind, "metadata": {"name": "p"}, "spec": spec});
        let (code, text) = read(
            server
                .call(request("POST", &format!("{group}/{resource}"), &object))
                .await,
        );
        assert_eq!(code, 201, "{text}");
    }
    let object = json!({"metadata": {"name": "c"}});
    let created = server
        .call(request("POST", "/api/v1/namespaces/default/configmaps", &object))
        .await;
    let created: Value = serde_json::from_str(&read(created).1).expect("the text is valid JSON");
    assert_eq!(created["data"]["seen"] == "yes", applies, "{created}");
}

/// An exported snapshot includes objects of resources that have no version enabled by default.
#[tokio::test(start_paused = true)]
async fn objects_of_optional_resources_are_exported() {
    let server = with_all(KubernetesVersion::V1_36).start();
    let spec = json!({"leaseName": "l", "binaryVersion": "1.36.0", "emulationVersion": "1.36.0",
        "strategy": "OldestEmulationVersion"});
    let candidate = json!({"kind": "LeaseCandidate", "metadata": {"name": "c"}, "spec": spec});
    let path = "/apis/coordination.k8s.io/v1alpha2/namespaces/default/leasecandidates";
    let (code, text) = read(server.call(request("POST", path, &candidate)).await);
    assert_eq!(code, 201, "{text}");
    let objects = server.objects(&server.snapshot());
    let found: Vec<&Value> = objects.iter().filter(|it| it["kind"] == "LeaseCandidate").collect();
    assert_eq!(found.len(), 1, "{objects:?}");
    assert_eq!(found[0]["apiVersion"], "coordination.k8s.io/v1beta1");
}

/// The methods of the builder may be called in any order.
#[tokio::test(start_paused = true)]
async fn runtime_config_does_not_replace_gates_and_retired_apis() {
    let builder = ApiServer::builder()
        .retired_apis(["policy/v1beta1"])
        .expect("the version exists");
    let builder = builder.feature_gates(["ClusterTrustBundle"]).expect("the gate exists");
    let server = builder
        .runtime_config(["api/all=true"])
        .expect("the pair is valid")
        .start();
    for path in [
        "/apis/certificates.k8s.io/v1beta1/clustertrustbundles",
        "/apis/policy/v1beta1/poddisruptionbudgets",
    ] {
        json_of(&server, path).await;
    }
}
