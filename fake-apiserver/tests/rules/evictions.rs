//! Evictions of Pods, and the budgets that refuse them.

use std::time::Duration;

use fake_apiserver::ApiServer;
use rstest::rstest;
use serde_json::{Value, json};

use crate::ask::{get, message, post};

const POD: &str = "/api/v1/namespaces/default/pods/p";

/// Returns a server with a running, ready Pod and a budget with this status, which the controller has observed.
fn server(mut status: Value) -> ApiServer {
    status["observedGeneration"] = json!(1);
    let server = ApiServer::start();
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"a": "b"}},
        "spec": {"nodeName": "n", "terminationGracePeriodSeconds": 30, "containers": [{"name": "c", "image": "i"}]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}}, "status": status});
    server.load([pod, budget]).expect("the objects are valid");
    server
}

async fn evict(server: &ApiServer, options: Value) -> (u16, Value) {
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"},
        "deleteOptions": options});
    post(server, &format!("{POD}/eviction"), &eviction).await
}

fn condition(status: &str, reason: &str, message: &str) -> Value {
    json!([{"type": "DisruptionAllowed", "status": status, "reason": reason, "message": message,
        "lastTransitionTime": "2026-01-01T00:00:00Z"}])
}

#[rstest]
#[case::failed_sync(
    3,
    condition("False", "SyncFailed", "why"),
    "does not allow evicting pods currently because it failed sync: why"
)]
#[case::failed_sync_without_a_message(
    1,
    condition("False", "SyncFailed", ""),
    "needs 2 healthy pods and has 1 currently"
)]
#[case::insufficient_pods(
    3,
    condition("False", "InsufficientPods", "why"),
    "does not allow evicting pods currently (InsufficientPods): why"
)]
#[case::sufficient_pods(
    3,
    condition("True", "SufficientPods", "why"),
    "does not allow evicting pods currently"
)]
#[case::no_condition(3, json!([]), "does not allow evicting pods currently")]
#[tokio::test(start_paused = true)]
async fn eviction_error_explains_the_state_of_the_budget(
    #[case] healthy: u32,
    #[case] conditions: Value,
    #[case] expected: &str,
) {
    let server = server(
        json!({"disruptionsAllowed": 0, "currentHealthy": healthy, "desiredHealthy": 2,
        "expectedPods": 3, "conditions": conditions}),
    );
    let (code, answer) = evict(&server, Value::Null).await;
    let expected = format!("The disruption budget b {expected}");
    let cause = &answer["details"]["causes"][0]["message"];
    assert_eq!((code, cause), (429, &json!(expected)), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn negative_budget_is_reported_before_unconfirmed_evictions() {
    let time = "2026-01-01T00:00:00Z";
    let unconfirmed: Value = (0..2001).map(|it| (format!("p{it}"), json!(time))).collect();
    let status = |allowed: i32| json!({"disruptionsAllowed": allowed, "disruptedPods": unconfirmed});
    let (code, answer) = evict(&server(status(-1)), Value::Null).await;
    let why = "poddisruptionbudget.policy \"b\" is forbidden: pdb disruptions allowed is negative";
    assert_eq!((code, message(&answer)), (403, why));
    let (code, answer) = evict(&server(status(1)), Value::Null).await;
    assert_eq!(code, 403);
    assert!(message(&answer).contains("DisruptedPods map too big"), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn eviction_cannot_ignore_read_errors() {
    let server = server(json!({"disruptionsAllowed": 1}));
    let options = json!({"ignoreStoreReadErrorWithClusterBreakingPotential": true});
    let (code, answer) = evict(&server, options).await;
    let why = "Eviction.policy \"p\" is invalid: deleteOptions.ignoreStoreReadErrorWithClusterBreakingPotential: \
               Invalid value: true: can not be set for pod eviction, try after removing the option";
    assert_eq!((code, message(&answer)), (422, why));
}

#[tokio::test(start_paused = true)]
async fn second_eviction_does_not_change_the_pod() {
    let server = server(json!({"disruptionsAllowed": 1}));
    assert_eq!(evict(&server, Value::Null).await.0, 201);
    let (_, first) = get(&server, POD).await;
    assert_eq!(first["status"]["conditions"][1]["reason"], "EvictionByEvictionAPI");
    tokio::time::advance(Duration::from_secs(5)).await;
    assert_eq!(evict(&server, Value::Null).await.0, 201);
    assert_eq!(get(&server, POD).await.1, first);
}
