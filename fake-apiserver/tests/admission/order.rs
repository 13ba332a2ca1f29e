//! The order of the server's own mutating plugins and of mutating webhooks.

use fake_apiserver::ApiServer;
use rstest::rstest;
use serde_json::{Value, json};

use crate::ask::{Asked, HOST, configure, made, patch, post, reviewed, service};

#[rstest]
#[case::claim("", "persistentvolumeclaims", "/api/v1/namespaces/default/persistentvolumeclaims",
    json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}),
    "/metadata/finalizers", json!(["kubernetes.io/pvc-protection"]))]
#[case::volume("", "persistentvolumes", "/api/v1/persistentvolumes",
    json!({"spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/a"}}}),
    "/metadata/finalizers", json!(["kubernetes.io/pv-protection"]))]
#[case::attributes_class("storage.k8s.io", "volumeattributesclasses", "/apis/storage.k8s.io/v1/volumeattributesclasses",
    json!({"driverName": "d", "parameters": {"a": "b"}}), "/metadata/finalizers",
    json!(["kubernetes.io/vac-protection"]))]
#[case::node("", "nodes", "/api/v1/nodes", json!({}), "/spec/taints",
    json!([{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]))]
#[tokio::test(start_paused = true)]
async fn webhooks_receive_the_values_that_plugins_add(
    #[case] group: &str,
    #[case] resource: &str,
    #[case] path: &str,
    #[case] object: Value,
    #[case] field: &'static str,
    #[case] added: Value,
) {
    let asked = Asked::default();
    let answers = service(&asked, move |_, review| {
        let value = match field {
            "/spec/taints" => json!({"key": "example.com/t", "effect": "NoSchedule"}),
            _ => json!("example.com/f"),
        };
        let path = format!("{field}/-");
        reviewed(review, patch(json!([{"op": "add", "path": path, "value": value}])))
    });
    let server = ApiServer::builder().webhook(HOST, answers).start();
    let rules = json!({"rules": [{"operations": ["CREATE"], "apiGroups": [group], "apiVersions": ["v1"],
        "resources": [resource]}]});
    configure(&server, "Mutating", "m", &[("w.example.com", "/", rules)]).await;
    let mut object = object;
    object["metadata"] = json!({"name": "a"});
    let answer = post(&server, path, object).await;
    made(&answer);
    let stored = answer.body.pointer(field).and_then(Value::as_array);
    assert_eq!(stored.map(Vec::len), Some(2), "{}", answer.body);
    let asked = asked.lock().expect("the lock is not poisoned");
    assert_eq!(asked[0].1["request"]["object"].pointer(field), Some(&added));
}

#[tokio::test(start_paused = true)]
async fn name_of_an_eviction_is_compared_with_the_url_after_mutating_webhooks() {
    let answers = service(&Asked::default(), |_, review| {
        reviewed(
            review,
            json!({"allowed": false, "status": {"message": "no", "code": 403}}),
        )
    });
    let server = ApiServer::builder().webhook(HOST, answers).start();
    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    made(&post(&server, pods, pod).await);
    let path = format!("{pods}/p/eviction");
    let eviction = || json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "other"}});
    let refused = post(&server, &path, eviction()).await;
    let why = "name in URL does not match name in Eviction object";
    assert_eq!(refused.failure(), (400, why));
    let rules = json!({"rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"],
        "resources": ["pods/eviction"]}]});
    configure(&server, "Mutating", "m", &[("w.example.com", "/", rules)]).await;
    let refused = post(&server, &path, eviction()).await;
    let why = "admission webhook \"w.example.com\" denied the request: no";
    assert_eq!(refused.failure(), (403, why));
}
