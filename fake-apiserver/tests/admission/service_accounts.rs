//! The plugin ServiceAccount: references to Secrets, and accounts that webhooks set.

use fake_apiserver::ApiServer;
use http::Method;
use rstest::rstest;
use serde_json::{Value, json};

use crate::ask::{Answer, Asked, HOST, ask, configure, made, patch, post, reviewed, service};

const PODS: &str = "/api/v1/namespaces/default/pods";

fn pod(spec: &Value) -> Value {
    let mut pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    for (field, value) in spec.as_object().into_iter().flatten() {
        pod["spec"][field] = value.clone();
    }
    pod
}

async fn make_account(server: &ApiServer, name: &str, fields: &Value) {
    let mut account = fields.clone();
    account["metadata"]["name"] = json!(name);
    made(&post(server, "/api/v1/namespaces/default/serviceaccounts", account).await);
}

/// Creates a Pod with this spec for an account that only references the Secret `own`.
async fn create_limited(annotation: &str, spec: &Value) -> Answer {
    let server = ApiServer::builder().service_account_admission().start();
    let account = json!({
        "metadata": {"annotations": {"kubernetes.io/enforce-mountable-secrets": annotation}},
        "secrets": [{"name": "own"}], "imagePullSecrets": [{"name": "own"}],
    });
    make_account(&server, "default", &account).await;
    post(&server, PODS, pod(spec)).await
}

fn volume(secret: &str) -> Value {
    json!({"volumes": [{"name": "v", "secret": {"secretName": secret}}]})
}

fn containers(list: &str, fields: Value) -> Value {
    let mut container = fields;
    container["name"] = json!("a");
    container["image"] = json!("i");
    json!({ list: [container] })
}

fn env() -> Value {
    json!({"env": [{"name": "E", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]})
}

fn env_from() -> Value {
    json!({"envFrom": [{"secretRef": {"name": "s"}}]})
}

#[rstest]
#[case::volume(volume("s"), "volume with secret.secretName=\"s\" is")]
#[case::env(
    containers("containers", env()),
    "container a with envVar E referencing secret.secretName=\"s\" is"
)]
#[case::env_from(
    containers("containers", env_from()),
    "container a with envFrom referencing secret.secretName=\"s\" is"
)]
#[case::env_of_an_init_container(
    containers("initContainers", env()),
    "init container a with envVar E referencing secret.secretName=\"s\" is"
)]
#[case::env_from_of_an_init_container(
    containers("initContainers", env_from()),
    "init container a with envFrom referencing secret.secretName=\"s\" is"
)]
#[tokio::test(start_paused = true)]
async fn account_may_restrict_the_secrets_of_its_pods(#[case] spec: Value, #[case] why: &str) {
    let answer = create_limited("true", &spec).await;
    let why = format!(
        "pods \"p\" is forbidden: {why} not allowed because service account default does not reference that secret"
    );
    assert_eq!(answer.failure(), (403, why.as_str()));
    made(&create_limited("false", &spec).await);
}

#[tokio::test(start_paused = true)]
async fn account_may_restrict_the_pull_secrets_of_its_pods() {
    let answer = create_limited("T", &json!({"imagePullSecrets": [{"name": "own"}, {"name": "s"}]})).await;
    let why = "pods \"p\" is forbidden: imagePullSecrets[1].name=\"s\" is not allowed because service account default \
               does not reference that imagePullSecret";
    assert_eq!(answer.failure(), (403, why));
    made(&create_limited("T", &volume("own")).await);
}

#[tokio::test(start_paused = true)]
async fn account_may_restrict_the_secrets_of_ephemeral_containers() {
    let server = ApiServer::builder().service_account_admission().start();
    let account = json!({"metadata": {"annotations": {"kubernetes.io/enforce-mountable-secrets": "true"}}});
    make_account(&server, "default", &account).await;
    made(&post(&server, PODS, pod(&json!({}))).await);
    let change = json!({"spec": containers("ephemeralContainers", env())});
    let answer = ask(&server, Method::PATCH, &format!("{PODS}/p/ephemeralcontainers"), change).await;
    let why = "ephemeral container a with envVar E referencing secret.secretName=\"s\" is not allowed because service \
               account default does not reference that secret";
    assert_eq!(answer.failure(), (500, why));
}

#[rstest]
#[case::volume(volume("s"))]
#[case::projection(json!({"volumes": [{"name": "v", "projected": {"sources": [{"secret": {"name": "s"}}]}}]}))]
#[case::pull_secret(json!({"imagePullSecrets": [{"name": "s"}]}))]
#[case::env(containers("containers", env()))]
#[case::env_from(containers("initContainers", env_from()))]
#[case::csi_driver(json!({"volumes": [{"name": "v", "csi": {"driver": "d", "nodePublishSecretRef": {"name": "s"}}}]}))]
#[tokio::test(start_paused = true)]
async fn mirror_pods_cannot_reference_secrets(#[case] spec: Value) {
    let server = ApiServer::builder().service_account_admission().start();
    let mut pod = pod(&spec);
    pod["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
    let answer = post(&server, PODS, pod).await;
    let why = "pods \"p\" is forbidden: a mirror pod may not reference secrets";
    assert_eq!(answer.failure(), (403, why));
}

#[rstest]
#[case::missing_account(
    "x",
    403,
    "pods \"p\" is forbidden: error looking up service account default/x: serviceaccount \"x\" not found"
)]
#[case::existing_account("y", 201, "")]
#[tokio::test(start_paused = true)]
async fn account_set_by_a_webhook_must_exist(#[case] name: &'static str, #[case] code: u16, #[case] why: &str) {
    let answers = service(&Asked::default(), move |_, review| {
        let set = json!([{"op": "replace", "path": "/spec/serviceAccountName", "value": name}]);
        reviewed(review, patch(set))
    });
    let builder = ApiServer::builder().service_account_admission();
    let server = builder.webhook(HOST, answers).start();
    make_account(&server, "default", &json!({})).await;
    make_account(&server, "y", &json!({})).await;
    let rules = json!({"rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"],
        "resources": ["pods"]}]});
    configure(&server, "Mutating", "m", &[("w.example.com", "/", rules)]).await;
    assert_eq!(post(&server, PODS, pod(&json!({}))).await.failure(), (code, why));
}
