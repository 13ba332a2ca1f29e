//! Closures passed to the builder.

use std::time::Duration;

use fake_apiserver::ApiServer;
use fake_apiserver::api::admission::{AdmissionRequest, AdmissionResponse, Operation};
use http::Method;
use rstest::rstest;
use serde_json::{Value, json};

use crate::ask::{MAPS, ask, made, map, post};

#[rstest]
#[case::message(AdmissionResponse::deny("no"), 400, "denied the request: no", "")]
#[case::code_and_reason(AdmissionResponse::deny("no").code(403).reason("Forbidden"), 403, "denied the request: no", "Forbidden")]
#[case::code_below_400(AdmissionResponse::deny("no").code(200), 400, "denied the request: no", "")]
#[case::reason_only(AdmissionResponse::deny("").reason("Teapot"), 400, "denied the request: Teapot", "Teapot")]
#[case::no_explanation(AdmissionResponse::deny(""), 400, "denied the request without explanation", "")]
#[tokio::test(start_paused = true)]
async fn p3_denial_has_the_message_of_a_webhook_denial(
    #[case] response: AdmissionResponse,
    #[case] code: u16,
    #[case] message: &str,
    #[case] reason: &str,
) {
    let server = ApiServer::builder()
        .validate("w.example.com", move |_| response.clone())
        .start();
    let answer = post(&server, MAPS, map("a")).await;
    let text = format!("admission webhook \"w.example.com\" {message}");
    assert_eq!(answer.failure(), (code, text.as_str()));
    assert_eq!(answer.body["reason"].as_str().unwrap_or_default(), reason);
    assert_eq!(
        server.list("v1", "ConfigMap", "default").await.map(|it| it.len()),
        Ok(0)
    );
}

#[tokio::test(start_paused = true)]
async fn p2_closure_receives_the_complete_review() {
    let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let kept = std::sync::Arc::clone(&seen);
    let server = ApiServer::builder()
        .validate("w.example.com", move |request| {
            let what = |it: &Value| it["data"]["k"].as_str().unwrap_or("-").to_owned();
            kept.lock().expect("the lock is not poisoned").push((
                request.operation,
                request.name.clone(),
                what(&request.object),
                what(&request.old_object),
                request.dry_run,
                request.options["kind"].as_str().unwrap_or_default().to_owned(),
            ));
        })
        .start();
    let mut one = map("a");
    one["data"] = json!({"k": "1"});
    post(&server, MAPS, one).await;
    ask(
        &server,
        Method::PATCH,
        &format!("{MAPS}/a?dryRun=All"),
        json!({"data": {"k": "2"}}),
    )
    .await;
    ask(&server, Method::DELETE, MAPS, Value::Null).await;
    let text = str::to_owned;
    let expected = vec![
        (
            Operation::Create,
            text("a"),
            text("1"),
            text("-"),
            false,
            text("CreateOptions"),
        ),
        (
            Operation::Update,
            text("a"),
            text("2"),
            text("1"),
            true,
            text("UpdateOptions"),
        ),
        (
            Operation::Delete,
            // The request to delete a collection does not contain a name.
            text(""),
            text("-"),
            text("1"),
            false,
            text("DeleteOptions"),
        ),
    ];
    assert_eq!(*seen.lock().expect("the lock is not poisoned"), expected);
}

#[tokio::test(start_paused = true)]
async fn p1_objects_from_a_mutating_closure_are_decoded_defaulted_and_validated() {
    let server = ApiServer::builder()
        .mutate("m.example.com", |request| {
            let mut object = request.object.clone();
            match request.name.as_str() {
                "bad" => object["metadata"]["labels"] = json!({"a": "not a label!"}),
                "typed" => object["spec"] = json!({"containers": "none"}),
                _ => object["spec"]["containers"][0]["ports"] = json!([{"containerPort": 80, "unknown": 1}]),
            }
            AdmissionResponse::patched(object).warn("changed")
        })
        .start();
    let pods = "/api/v1/namespaces/default/pods";
    let pod = |name: &str| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"containers": [{"name": "c", "image": "i"}]}})
    };
    let answer = post(&server, pods, pod("a")).await;
    let ports = json!([{"containerPort": 80, "protocol": "TCP"}]);
    assert_eq!(answer.body["spec"]["containers"][0]["ports"], ports);
    assert_eq!(answer.warnings, ["299 - \"changed\""]);
    let owned = answer.body["metadata"]["managedFields"].to_string();
    assert!(
        !owned.contains("containerPort"),
        "fields set by admission have no owner: {owned}"
    );

    let answer = post(&server, pods, pod("bad")).await;
    assert_eq!((answer.code, answer.warnings.len()), (422, 1), "{}", answer.body);
    let answer = post(&server, pods, pod("typed")).await;
    assert_eq!(answer.code, 500, "{}", answer.body);
}

#[tokio::test(start_paused = true)]
async fn async_admission_closure_can_wait() {
    let server = ApiServer::builder()
        .validate_async("w.example.com", |_| async {
            tokio::time::sleep(Duration::from_secs(60)).await;
            Err::<(), _>("too late")
        })
        .start();
    let begun = tokio::time::Instant::now();
    let answer = post(&server, MAPS, map("a")).await;
    assert_eq!((answer.code, begun.elapsed()), (400, Duration::from_secs(60)));
}

#[tokio::test(start_paused = true)]
async fn p10_managed_fields_broken_by_mutation_are_restored() {
    let server = ApiServer::builder()
        .mutate("m.example.com", |request| {
            let mut object = request.object.clone();
            object["metadata"]["managedFields"] = json!([{"manager": "x", "operation": "Nonsense"}]);
            object
        })
        .start();
    let answer = post(&server, MAPS, json!({"metadata": {"name": "a"}, "data": {"k": "v"}})).await;
    assert_eq!(answer.body["metadata"]["managedFields"][0]["manager"], "test");
    assert!(answer.warnings[0].contains(".metadata.managedFields was in an invalid state after admission"));
}

#[tokio::test(start_paused = true)]
async fn i3_admission_reviews_of_subresources_have_the_kinds_eviction_and_scale() {
    let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let kept = std::sync::Arc::clone(&seen);
    let server = ApiServer::builder()
        .mutate("m.example.com", |request| {
            let mut object = request.object.clone();
            if request.kind.kind == "Scale" {
                object["spec"]["replicas"] = json!(7);
            }
            AdmissionResponse::patched(object)
        })
        .validate("w.example.com", move |request| {
            let line = format!("{} {} {}", request.operation, request.kind.kind, request.sub_resource);
            kept.lock().expect("the lock is not poisoned").push(line);
        })
        .start();
    let labels = json!({"a": "b"});
    let spec = json!({"containers": [{"name": "c", "image": "i"}]});
    post(
        &server,
        "/api/v1/namespaces/default/pods",
        json!({"metadata": {"name": "p"}, "spec": spec}),
    )
    .await;
    let deployment = json!({"metadata": {"name": "d"}, "spec": {
        "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}}});
    post(&server, "/apis/apps/v1/namespaces/default/deployments", deployment).await;
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}});
    let answer = post(&server, "/api/v1/namespaces/default/pods/p/eviction", eviction).await;
    assert_eq!(answer.code, 201, "{}", answer.body);
    let path = "/apis/apps/v1/namespaces/default/deployments/d/scale";
    let answer = ask(&server, Method::PATCH, path, json!({"spec": {"replicas": 2}})).await;
    assert_eq!(answer.body["spec"]["replicas"], 7, "{}", answer.body);
    let seen = seen.lock().expect("the lock is not poisoned");
    let expected = [
        "CREATE Pod ",
        "CREATE Deployment ",
        "CREATE Eviction eviction",
        "UPDATE Scale scale",
    ];
    assert_eq!(*seen, expected);
}

#[rstest]
#[case::eviction("pods/p/eviction", json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}))]
#[case::binding("pods/p/binding", json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}}))]
#[case::token("serviceaccounts/s/token", json!({"spec": {"audiences": ["a"]}}))]
#[tokio::test(start_paused = true)]
async fn i3_posts_to_subresources_return_admission_warnings_and_denials(#[case] path: &str, #[case] body: Value) {
    let build = |denies: bool| {
        let answer = move |request: &AdmissionRequest| match (request.sub_resource.as_str(), denies) {
            ("", _) => AdmissionResponse::allow(),
            (_, false) => AdmissionResponse::allow().warn(format!("a {}", request.kind.kind)),
            (_, true) => AdmissionResponse::deny("not here"),
        };
        let server = ApiServer::builder().validate("v.example.com", answer).start();
        let containers = json!({"containers": [{"name": "c", "image": "i"}]});
        let loaded = server.load([
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": containers}),
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "s"}}),
        ]);
        loaded.expect("the objects are valid");
        server
    };
    let path = format!("/api/v1/namespaces/default/{path}");
    let refused = post(&build(true), &path, body.clone()).await;
    let said = "admission webhook \"v.example.com\" denied the request: not here";
    assert_eq!(refused.failure(), (400, said));
    let answer = post(&build(false), &path, body).await;
    made(&answer);
    assert_eq!(answer.warnings.len(), 1, "{:?}", answer.warnings);
}

#[tokio::test(start_paused = true)]
async fn i5_token_has_the_audiences_of_the_mutated_request() {
    let longer = |request: &AdmissionRequest| {
        let mut object = request.object.clone();
        if request.sub_resource == "token" {
            object["spec"]["audiences"] = json!(["changed"]);
        }
        object
    };
    let server = ApiServer::builder().mutate("m.example.com", longer).start();
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "s"}});
    server.load([account]).expect("the objects are valid");
    let path = "/api/v1/namespaces/default/serviceaccounts/s/token";
    let answer = post(&server, path, json!({"spec": {"audiences": ["a"]}})).await;
    made(&answer);
    assert_eq!(answer.body["spec"]["audiences"], json!(["changed"]));
}

#[rstest]
#[case::exec("pods/a/exec?command=sh&command=-c&stdin=true&tty=1&stderr=false&container=c", "exec",
    json!({"kind": "PodExecOptions", "apiVersion": "v1", "stdin": true, "tty": true, "container": "c",
        "command": ["sh", "-c"]}))]
#[case::attach("pods/a/attach?stdout=true", "attach",
    json!({"kind": "PodAttachOptions", "apiVersion": "v1", "stdout": true}))]
#[case::port_forward("pods/a/portforward?ports=80&ports=443", "portforward",
    json!({"kind": "PodPortForwardOptions", "apiVersion": "v1", "ports": [80, 443]}))]
#[case::proxy_of_a_pod("pods/a/proxy/b/c", "proxy",
    json!({"kind": "PodProxyOptions", "apiVersion": "v1", "path": "/b/c"}))]
#[case::proxy_of_a_service("services/a/proxy", "proxy", json!({"kind": "ServiceProxyOptions", "apiVersion": "v1"}))]
#[tokio::test(start_paused = true)]
async fn p2_connect_request_passes_admission_before_the_object_is_looked_up(
    #[case] path: &str,
    #[case] subresource: &str,
    #[case] options: Value,
    #[values(Method::GET, Method::POST)] method: Method,
) {
    let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let kept = std::sync::Arc::clone(&seen);
    let server = ApiServer::builder()
        .validate("w.example.com", move |request| {
            kept.lock().expect("the lock is not poisoned").push(request.clone());
            Err::<(), _>("no connections")
        })
        .start();
    let path = format!("/api/v1/namespaces/default/{path}");
    let answer = ask(&server, method, &path, Value::Null).await;
    let text = "admission webhook \"w.example.com\" denied the request: no connections";
    assert_eq!(answer.failure(), (400, text));
    let seen = seen.lock().expect("the lock is not poisoned");
    let [request] = seen.as_slice() else {
        panic!("the closure was called {} times", seen.len())
    };
    assert_eq!(request.operation, Operation::Connect);
    assert_eq!(
        (&*request.sub_resource, &*request.name, &*request.namespace),
        (subresource, "a", "default")
    );
    assert_eq!(request.kind.kind, options["kind"].as_str().unwrap_or_default());
    assert_eq!(request.object, options);
    assert_eq!((&request.old_object, &request.options), (&Value::Null, &Value::Null));
}

#[tokio::test(start_paused = true)]
async fn p2_failed_connect_request_returns_admission_warnings() {
    let server = ApiServer::builder()
        .validate("w.example.com", |_| AdmissionResponse::allow().warn("you are seen"))
        .start();
    let pod =
        json!({"metadata": {"name": "a"}, "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}});
    made(&post(&server, "/api/v1/namespaces/default/pods", pod).await);
    let answer = post(
        &server,
        "/api/v1/namespaces/default/pods/a/exec?command=sh",
        Value::Null,
    )
    .await;
    assert_eq!(answer.code, 501, "{}", answer.body);
    assert_eq!(answer.warnings, ["299 - \"you are seen\""]);
}

/// Go's handler of a collection calls admission for each object, although the request contains no name.
#[tokio::test(start_paused = true)]
async fn p2_admission_requests_of_a_collection_delete_have_no_name() {
    let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let kept = std::sync::Arc::clone(&seen);
    let server = ApiServer::builder()
        .validate("w.example.com", move |request| {
            if request.operation == Operation::Delete {
                let old = request.old_object["metadata"]["name"].clone();
                let mut kept = kept.lock().expect("the lock is not poisoned");
                kept.push((request.name.clone(), request.namespace.clone(), old));
            }
            AdmissionResponse::allow()
        })
        .start();
    for name in ["a", "b"] {
        assert_eq!(post(&server, MAPS, map(name)).await.code, 201);
    }
    ask(&server, Method::DELETE, MAPS, Value::Null).await;
    let of = |name: &str| (String::new(), "default".to_owned(), Value::from(name));
    assert_eq!(*seen.lock().expect("the lock is not poisoned"), [of("a"), of("b")]);
}

#[rstest]
#[case::exec("pods/a/exec?dryRun=All&command=sh")]
#[case::empty_value("pods/a/attach?dryRun=")]
#[case::port_forward("pods/a/portforward?dryRun=x")]
#[case::proxy("services/a/proxy?dryRun=All")]
#[tokio::test(start_paused = true)]
async fn i7_dry_run_of_a_connect_request_is_refused_before_admission(
    #[case] path: &str,
    #[values(Method::GET, Method::POST)] method: Method,
) {
    let server = ApiServer::builder()
        .validate("w.example.com", |_| Err::<(), _>("no connections"))
        .start();
    let path = format!("/api/v1/namespaces/default/{path}");
    let answer = ask(&server, method, &path, Value::Null).await;
    assert_eq!(answer.failure(), (400, "dryRun is not supported"));
}

#[rstest]
#[case::binding_of_a_pod("pods/p/binding", "pods/binding")]
#[case::collection_of_bindings("bindings", "bindings/")]
#[tokio::test(start_paused = true)]
async fn i4_mutating_and_validating_admission_receive_the_requested_path_of_a_binding(
    #[case] path: &str,
    #[case] expected: &str,
) {
    let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let see = || {
        let kept = std::sync::Arc::clone(&seen);
        move |request: &AdmissionRequest| {
            let line = format!("{}/{}", request.resource.resource, request.sub_resource);
            kept.lock().expect("the lock is not poisoned").push(line);
            AdmissionResponse::allow()
        }
    };
    let server = ApiServer::builder()
        .mutate("m.example.com", see())
        .validate("v.example.com", see())
        .start();
    let containers = json!({"containers": [{"name": "c", "image": "i"}]});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": containers});
    server.load([pod]).expect("the object is valid");
    let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}});
    made(&post(&server, &format!("/api/v1/namespaces/default/{path}"), binding).await);
    assert_eq!(*seen.lock().expect("the lock is not poisoned"), [expected, expected]);
}
