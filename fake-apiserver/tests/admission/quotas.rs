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
