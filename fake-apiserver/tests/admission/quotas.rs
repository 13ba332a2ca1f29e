//! The plugin ResourceQuota without the quota controller: quotas whose status is written by the tests.

use fake_apiserver::ApiServer;
use http::Method;
use rstest::rstest;
use serde_json::{Value, json};

use crate::ask::{Answer, ask, made, post};

const PODS: &str = "/api/v1/namespaces/default/pods";
const QUOTAS: &str = "/api/v1/namespaces/default/resourcequotas";

fn pod(name: &str, more: Value) -> Value {
    let mut pod = json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    for (field, value) in more.as_object().into_iter().flatten() {
        pod["spec"][field] = value.clone();
    }
    pod
}

/// Creates a quota named `q`, and sets its status.
async fn limit(server: &ApiServer, spec: Value, used: Value) {
    let status = json!({"status": {"hard": spec["hard"], "used": used}});
    made(&post(server, QUOTAS, json!({"metadata": {"name": "q"}, "spec": spec})).await);
    let answer = ask(server, Method::PATCH, &format!("{QUOTAS}/q/status"), status).await;
    assert_eq!(answer.code, 200, "{}", answer.body);
}

async fn used(server: &ApiServer) -> Value {
    let quota = server.get("v1", "ResourceQuota", "default", "q").await;
    quota.expect("the object exists")["status"]["used"].clone()
}

async fn patch(server: &ApiServer, path: &str, body: Value) -> Answer {
    ask(server, Method::PATCH, path, body).await
}

#[rstest]
#[case::ephemeral_storage(json!({"requests.ephemeral-storage": "1Gi"}), json!({}))]
#[case::pod_level_resources(json!({"requests.cpu": "1", "requests.memory": "1Gi"}),
    json!({"resources": {"requests": {"cpu": "1m"}}}))]
#[case::pod_level_limits(json!({"limits.cpu": "1", "requests.memory": "1Gi"}),
    json!({"resources": {"limits": {"cpu": "1m"}}}))]
#[tokio::test(start_paused = true)]
async fn pod_without_requests_is_admitted(#[case] hard: Value, #[case] spec: Value) {
    let server = ApiServer::start();
    let none: Value = hard
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, _)| (name.clone(), json!("0")))
        .collect();
    limit(&server, json!({"hard": hard}), none).await;
    made(&post(&server, PODS, pod("a", spec)).await);
}

#[tokio::test(start_paused = true)]
async fn update_that_lowers_the_usage_is_admitted_and_not_counted() {
    let server = ApiServer::start();
    let services = "/api/v1/namespaces/default/services";
    let ports = |count: u16| -> Value {
        (1..=count)
            .map(|it| json!({"name": format!("p{it}"), "port": it}))
            .collect()
    };
    let service = json!({"metadata": {"name": "s"}, "spec": {"type": "NodePort", "ports": ports(3)}});
    made(&post(&server, services, service).await);
    let hard = json!({"services.nodeports": "1"});
    limit(&server, json!({"hard": hard}), json!({"services.nodeports": "3"})).await;
    let path = format!("{services}/s");
    let answer = patch(&server, &path, json!({"spec": {"ports": ports(2)}})).await;
    assert_eq!(answer.code, 200, "{}", answer.body);
    assert_eq!(used(&server).await, json!({"services.nodeports": "3"}));
    let answer = patch(&server, &path, json!({"spec": {"ports": ports(3)}})).await;
    let why = "services \"s\" is forbidden: exceeded quota: q, requested: services.nodeports=1, used: \
               services.nodeports=3, limited: services.nodeports=1";
    assert_eq!(answer.failure(), (403, why));
}

const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const DEVICES: &str = "gpu.deviceclass.resource.k8s.io/devices";

fn exactly(name: &str, fields: Value) -> Value {
    let mut request = json!({"name": name, "exactly": {"deviceClassName": "gpu"}});
    for (field, value) in fields.as_object().into_iter().flatten() {
        request["exactly"][field] = value.clone();
    }
    request
}

#[rstest]
#[case::default_count(json!([exactly("r", json!({}))]), 1)]
#[case::explicit_count(json!([exactly("r", json!({"count": 2}))]), 2)]
#[case::all_devices(json!([exactly("r", json!({"allocationMode": "All"}))]), 32)]
#[case::alternatives(json!([{"name": "r", "firstAvailable": [
    {"name": "x", "deviceClassName": "gpu", "count": 3}, {"name": "y", "deviceClassName": "gpu", "count": 4},
    {"name": "z", "deviceClassName": "other", "count": 9}]}]), 4)]
#[case::several_requests(json!([exactly("r", json!({})), exactly("s", json!({"count": 2}))]), 3)]
#[case::other_class(json!([{"name": "r", "exactly": {"deviceClassName": "other"}}]), 0)]
#[tokio::test(start_paused = true)]
async fn devices_of_claims_are_counted(#[case] requests: Value, #[case] count: u32) {
    let server = ApiServer::start();
    limit(&server, json!({"hard": {DEVICES: "1"}}), json!({DEVICES: "0"})).await;
    let claim = json!({"metadata": {"name": "a"}, "spec": {"devices": {"requests": requests}}});
    let answer = post(
        &server,
        "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims",
        claim,
    )
    .await;
    if count < 2 {
        made(&answer);
        assert_eq!(used(&server).await, json!({DEVICES: count.to_string()}));
        return;
    }
    let why = format!(
        "resourceclaims.resource.k8s.io \"a\" is forbidden: exceeded quota: q, requested: {DEVICES}={count}, used: \
         {DEVICES}=0, limited: {DEVICES}=1"
    );
    assert_eq!(answer.failure(), (403, why.as_str()));
}

#[rstest]
#[case::exhausted_quota("0", 403, "0")]
#[case::available_quota("3", 200, "1")]
#[tokio::test(start_paused = true)]
async fn pod_that_enters_a_scope_is_counted(#[case] hard: &str, #[case] code: u16, #[case] count: &str) {
    let server = ApiServer::start();
    made(&post(&server, PODS, pod("p", json!({}))).await);
    limit(
        &server,
        json!({"hard": {"pods": hard}, "scopes": ["Terminating"]}),
        json!({"pods": "0"}),
    )
    .await;
    for seconds in [5, 4] {
        let change = json!({"spec": {"activeDeadlineSeconds": seconds}});
        assert_eq!(patch(&server, &format!("{PODS}/p"), change).await.code, code);
    }
    assert_eq!(used(&server).await, json!({"pods": count}));
}

fn claim(name: &str, spec: Value) -> Value {
    let mut claim = json!({"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"],
        "storageClassName": "x", "resources": {"requests": {"storage": "1Gi"}}}});
    for (field, value) in spec.as_object().into_iter().flatten() {
        claim["spec"][field] = value.clone();
    }
    claim
}

#[tokio::test(start_paused = true)]
async fn claim_that_enters_a_scope_is_counted() {
    let server = ApiServer::start();
    let gold = json!([{"scopeName": "VolumeAttributesClass", "operator": "In", "values": ["gold"]}]);
    let hard = json!({"persistentvolumeclaims": "0"});
    let spec = json!({"hard": hard, "scopeSelector": {"matchExpressions": gold}});
    limit(&server, spec, json!({"persistentvolumeclaims": "0"})).await;
    let silver = json!({"volumeAttributesClassName": "silver", "volumeName": "v"});
    made(&post(&server, CLAIMS, claim("s", silver)).await);
    patch(
        &server,
        &format!("{CLAIMS}/s/status"),
        json!({"status": {"phase": "Bound"}}),
    )
    .await;
    let change = json!({"spec": {"volumeAttributesClassName": "gold"}});
    let answer = patch(&server, &format!("{CLAIMS}/s"), change).await;
    let why = "persistentvolumeclaims \"s\" is forbidden: exceeded quota: q, requested: persistentvolumeclaims=1, used: \
               persistentvolumeclaims=0, limited: persistentvolumeclaims=0";
    assert_eq!(answer.failure(), (403, why));
}

#[tokio::test(start_paused = true)]
async fn allocated_storage_of_a_claim_is_counted_even_above_the_quota() {
    let server = ApiServer::start();
    limit(
        &server,
        json!({"hard": {"requests.storage": "3Gi"}}),
        json!({"requests.storage": "0"}),
    )
    .await;
    made(&post(&server, CLAIMS, claim("c", json!({}))).await);
    assert_eq!(used(&server).await, json!({"requests.storage": "1Gi"}));
    let status = json!({"status": {"allocatedResources": {"storage": "5Gi"}}});
    let answer = patch(&server, &format!("{CLAIMS}/c/status"), status).await;
    assert_eq!(answer.code, 200, "{}", answer.body);
    assert_eq!(used(&server).await, json!({"requests.storage": "5Gi"}));
}

#[rstest]
#[case::annotation_only(json!({"storageClassName": null}))]
#[case::annotation_and_field(json!({"storageClassName": "other"}))]
#[tokio::test(start_paused = true)]
async fn quota_uses_the_storage_class_in_the_annotation(#[case] spec: Value) {
    let server = ApiServer::start();
    let name = "gold.storageclass.storage.k8s.io/persistentvolumeclaims";
    limit(&server, json!({"hard": {name: "0"}}), json!({name: "0"})).await;
    let mut claim = claim("c", spec);
    claim["metadata"]["annotations"] = json!({"volume.beta.kubernetes.io/storage-class": "gold"});
    assert_eq!(post(&server, CLAIMS, claim).await.code, 403);
}

#[tokio::test(start_paused = true)]
async fn fractions_of_storage_are_rounded_up() {
    let server = ApiServer::start();
    limit(
        &server,
        json!({"hard": {"requests.storage": "3Gi"}}),
        json!({"requests.storage": "0"}),
    )
    .await;
    let fraction = json!({"resources": {"requests": {"storage": "1500m"}}});
    made(&post(&server, CLAIMS, claim("c", fraction)).await);
    assert_eq!(used(&server).await, json!({"requests.storage": "2"}));
}

#[tokio::test(start_paused = true)]
async fn overhead_is_not_added_to_missing_limits() {
    let server = ApiServer::start();
    let class = json!({"metadata": {"name": "r"}, "handler": "h", "overhead": {"podFixed": {"cpu": "250m"}}});
    made(&post(&server, "/apis/node.k8s.io/v1/runtimeclasses", class).await);
    limit(
        &server,
        json!({"hard": {"limits.cpu": "1"}}),
        json!({"limits.cpu": "0"}),
    )
    .await;
    let spec = json!({"runtimeClassName": "r", "resources": {"requests": {"cpu": "1m"}}});
    made(&post(&server, PODS, pod("a", spec)).await);
    assert_eq!(used(&server).await, json!({"limits.cpu": "0"}));
}

#[tokio::test(start_paused = true)]
async fn controller_counts_a_claim_for_its_requested_and_current_attributes_class() {
    let server = ApiServer::builder().resource_quota_controller().start();
    for class in ["gold", "silver"] {
        let terms = json!([{"scopeName": "VolumeAttributesClass", "operator": "In", "values": [class]}]);
        let spec = json!({"hard": {"persistentvolumeclaims": "5"}, "scopeSelector": {"matchExpressions": terms}});
        made(&post(&server, QUOTAS, json!({"metadata": {"name": class}, "spec": spec})).await);
    }
    let spec = json!({"volumeAttributesClassName": "silver", "volumeName": "v"});
    made(&post(&server, CLAIMS, claim("c", spec)).await);
    let status = json!({"status": {"phase": "Bound", "currentVolumeAttributesClassName": "gold"}});
    assert_eq!(patch(&server, &format!("{CLAIMS}/c/status"), status).await.code, 200);
    for class in ["gold", "silver"] {
        let quota = server.get("v1", "ResourceQuota", "default", class).await;
        let used = quota.expect("the object exists")["status"]["used"].clone();
        assert_eq!(used, json!({"persistentvolumeclaims": "1"}), "{class}");
    }
}

#[tokio::test(start_paused = true)]
async fn resize_fills_in_the_defaults_of_limit_ranges() {
    let server = ApiServer::start();
    let resources = json!({"requests": {"cpu": "100m"}, "limits": {"memory": "1Gi"}});
    let burstable = json!({"containers": [{"name": "c", "image": "i", "resources": resources}]});
    made(&post(&server, PODS, pod("a", burstable)).await);
    made(&post(&server, PODS, pod("b", json!({}))).await);
    let limits = json!([{"type": "Container", "default": {"cpu": "1"}}]);
    let range = json!({"metadata": {"name": "l"}, "spec": {"limits": limits}});
    made(&post(&server, "/api/v1/namespaces/default/limitranges", range).await);
    let requests = json!({"requests": {"cpu": "200m", "memory": "1Gi"}, "limits": {"memory": "1Gi"}});
    let change = json!({"spec": {"containers": [{"name": "c", "image": "i", "resources": requests}]}});
    let answer = patch(&server, &format!("{PODS}/a/resize"), change).await;
    assert_eq!(answer.code, 200, "{}", answer.body);
    let limits = &answer.body["spec"]["containers"][0]["resources"]["limits"];
    assert_eq!(limits, &json!({"cpu": "1", "memory": "1Gi"}));
    assert_eq!(answer.body["metadata"].get("annotations"), None);
    let change = json!({"metadata": {"labels": {"a": "b"}}});
    let answer = patch(&server, &format!("{PODS}/b/resize"), change).await;
    let why = "Pod \"b\" is invalid: spec: Invalid value: \"BestEffort\": Pod QOS Class may not change as a result of \
               resizing";
    assert_eq!(answer.failure(), (422, why));
}

#[tokio::test(start_paused = true)]
async fn controller_does_not_count_pods_that_are_stuck_in_deletion() {
    let server = ApiServer::builder().resource_quota_controller().start();
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"pods": "5", "count/pods": "5"}}});
    made(&post(&server, QUOTAS, quota).await);
    let mut pod = pod("p", json!({"nodeName": "n", "terminationGracePeriodSeconds": 30}));
    pod["metadata"]["finalizers"] = json!(["example.com/f"]);
    made(&post(&server, PODS, pod).await);
    let path = format!("{PODS}/p");
    ask(&server, Method::DELETE, &path, Value::Null).await;
    let label = |value: &str| patch(&server, &path, json!({"metadata": {"labels": {"a": value}}}));
    for (seconds, count) in [(59, "1"), (3, "0"), (1, "0")] {
        tokio::time::advance(std::time::Duration::from_secs(seconds)).await;
        assert_eq!(label(&seconds.to_string()).await.code, 200);
        assert_eq!(
            used(&server).await,
            json!({"pods": count, "count/pods": "1"}),
            "after {seconds} s"
        );
    }
    let freed = json!({"metadata": {"finalizers": null}});
    patch(&server, &path, freed).await;
    ask(
        &server,
        Method::DELETE,
        &format!("{path}?gracePeriodSeconds=0"),
        Value::Null,
    )
    .await;
    assert_eq!(used(&server).await, json!({"pods": "0", "count/pods": "0"}));
}
