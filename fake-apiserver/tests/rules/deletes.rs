//! Deletes of Pods in two writes: the first one sets the deletion timestamp, the next one removes the Pod.

use std::time::Duration;

use fake_apiserver::ApiServer;
use futures::poll;
use rstest::rstest;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::ask::{APPLY, MERGE, Watch, get, post, send};

const PODS: &str = "/api/v1/namespaces/default/pods";
const POD: &str = "/api/v1/namespaces/default/pods/p";
const STATUS: &str = "/api/v1/namespaces/default/pods/p/status";
const DELAY: Duration = Duration::from_millis(5);

fn types(events: &[Value]) -> Vec<&str> {
    events
        .iter()
        .map(|it| it["type"].as_str().unwrap_or_default())
        .collect()
}

/// Returns a server with an unscheduled Pod, which therefore has no grace period, and a watch of the Pod.
async fn server(delay: Duration) -> (ApiServer, Watch) {
    let server = ApiServer::builder().removal_delay(delay).start();
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
                     "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let (code, made) = post(&server, PODS, &pod).await;
    assert_eq!(code, 201, "{made}");
    let version = made["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    let watch = Watch::open(&server, &format!("{PODS}?watch=1&resourceVersion={version}")).await;
    (server, watch)
}

#[rstest]
#[case::without_another_write(None)]
// An update removes a Pod if its grace period has ended and it has no finalizers (`deleteWithoutFinalizers`).
#[case::with_an_update(Some(("PATCH", POD, json!({"metadata": {"labels": {"a": "b"}}}))))]
#[case::with_a_status_update(Some(("PATCH", STATUS, json!({"status": {"message": "m"}}))))]
#[case::with_another_delete(Some(("DELETE", POD, Value::Null)))]
#[tokio::test(start_paused = true)]
async fn pod_is_marked_and_removed_after_the_removal_delay(#[case] meanwhile: Option<(&str, &str, Value)>) {
    let (server, mut watch) = server(DELAY).await;
    let started = Instant::now();
    let mut deletion = Box::pin(send(&server, "DELETE", POD, MERGE, &Value::Null));
    assert!(poll!(&mut deletion).is_pending());
    let told = watch.told();
    assert_eq!(types(&told), ["MODIFIED"]);
    assert_eq!(told[0]["object"]["metadata"]["deletionGracePeriodSeconds"], 0);
    assert_eq!(get(&server, POD).await.0, 200);

    if let Some((method, path, body)) = meanwhile {
        let (code, answer) = send(&server, method, path, MERGE, &body).await;
        assert_eq!(code, 200, "{answer}");
    }
    let (code, answer) = deletion.await;
    assert_eq!((code, &answer["kind"]), (200, &json!("Pod")), "{answer}");
    assert_eq!(started.elapsed(), DELAY);
    assert_eq!(types(&watch.told()), ["DELETED"]);
    assert_eq!(get(&server, POD).await.0, 404);
}

#[tokio::test(start_paused = true)]
async fn new_pod_with_the_same_name_is_kept() {
    let (server, mut watch) = server(DELAY).await;
    let mut deletion = Box::pin(send(&server, "DELETE", POD, MERGE, &Value::Null));
    assert!(poll!(&mut deletion).is_pending());
    assert_eq!(send(&server, "DELETE", POD, MERGE, &Value::Null).await.0, 200);
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
                     "spec": {"containers": [{"name": "c", "image": "new"}]}});
    assert_eq!(post(&server, PODS, &pod).await.0, 201);
    assert_eq!(deletion.await.0, 200);
    assert_eq!(types(&watch.told()), ["MODIFIED", "DELETED", "ADDED"]);
    assert_eq!(get(&server, POD).await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn finalizer_cannot_be_added_during_pod_removal() {
    let (server, mut watch) = server(DELAY).await;
    let mut deletion = Box::pin(send(&server, "DELETE", POD, MERGE, &Value::Null));
    assert!(poll!(&mut deletion).is_pending());
    let held = json!({"metadata": {"finalizers": ["example.com/held"]}});
    let (code, answer) = send(&server, "PATCH", POD, MERGE, &held).await;
    assert_eq!(code, 422, "{answer}");
    assert_eq!(deletion.await.0, 200);
    assert_eq!(types(&watch.told()), ["MODIFIED", "DELETED"]);
}

#[tokio::test(start_paused = true)]
async fn pod_is_marked_and_removed_immediately_if_the_removal_delay_is_zero() {
    let (server, mut watch) = server(Duration::ZERO).await;
    let mut deletion = Box::pin(send(&server, "DELETE", POD, MERGE, &Value::Null));
    assert!(poll!(&mut deletion).is_ready());
    assert_eq!(types(&watch.told()), ["MODIFIED", "DELETED"]);
}

#[rstest]
#[case::apply("PATCH", APPLY, true)]
#[case::put("PUT", "application/json", true)]
#[case::post("POST", "application/json", false)]
#[tokio::test(start_paused = true)]
async fn creating_put_and_apply_keep_deletion_timestamps(
    #[case] method: &str,
    #[case] content_type: &str,
    #[case] are_kept: bool,
) {
    let server = ApiServer::start();
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    let item = format!("{leases}/l?fieldManager=m");
    let body = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "l", "deletionTimestamp": "2020-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0},
    });
    let path = if method == "POST" { leases } else { &item };
    let (code, lease) = send(&server, method, path, content_type, &body).await;
    assert_eq!(code, 201);
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds"] {
        let kept = are_kept.then(|| &body["metadata"][field]);
        assert_eq!(lease["metadata"].get(field), kept, "{field}");
    }
    // The object has no finalizers, so any write removes it.
    let labelled = json!({"metadata": {"labels": {"a": "b"}}});
    assert_eq!(send(&server, "PATCH", &item, MERGE, &labelled).await.0, 200);
    assert_eq!(get(&server, &item).await.0, if are_kept { 404 } else { 200 });
}
