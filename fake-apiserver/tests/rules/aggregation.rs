//! Aggregated API servers, which are services in this process.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use axum::body::Body;
use fake_apiserver::api::status::Status;
use fake_apiserver::{ApiServer, ApiServerBuilder, Authorization, Seen, Verdict};
use http::{Request, Response};
use rstest::rstest;
use serde_json::{Value, json};

use crate::ask::{get, post};

const API_SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const HOST: &str = "flunders.default.svc";

/// The requests that the aggregated API server has received: the method with the path, and the headers.
type Received = Arc<Mutex<Vec<(String, Vec<(String, String)>)>>>;

/// Returns a server with an aggregated API server of `wardle.example.com/v1`, which has the resource `flunders`.
fn wardle(builder: ApiServerBuilder) -> (ApiServer, Received) {
    let received = Received::default();
    let seen = Arc::clone(&received);
    let service = tower::service_fn(move |request: Request<Body>| {
        let headers = request.headers().iter();
        let text = |value: &http::HeaderValue| value.to_str().unwrap_or_default().to_owned();
        let headers = headers.map(|(name, value)| (name.to_string(), text(value))).collect();
        let line = format!("{} {}", request.method(), request.uri());
        seen.lock().expect("the lock is not poisoned").push((line, headers));
        let (code, body) = answer(request.uri().path());
        let mut response = Response::new(Body::from(body.to_string()));
        *response.status_mut() = http::StatusCode::from_u16(code).expect("the status code is valid");
        let json = http::HeaderValue::from_static("application/json");
        response.headers_mut().insert("content-type", json);
        if code == 307 {
            let location = http::HeaderValue::from_static("/elsewhere");
            response.headers_mut().insert("location", location);
        }
        std::future::ready(Ok::<_, Infallible>(response))
    });
    (builder.webhook(HOST, service).start(), received)
}

fn answer(path: &str) -> (u16, Value) {
    match path {
        "/apis/wardle.example.com/v1" => (
            200,
            json!({
                "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "wardle.example.com/v1",
                "resources": [
                    {"name": "flunders", "singularName": "flunder", "namespaced": true, "kind": "Flunder",
                        "verbs": ["get", "list"], "shortNames": ["fl"]},
                    {"name": "flunders/status", "singularName": "", "namespaced": true, "kind": "Flunder",
                        "verbs": ["get"]},
                ],
            }),
        ),
        "/apis/wardle.example.com/v1/namespaces/default/flunders/a" => (
            200,
            json!({"kind": "Flunder", "apiVersion": "wardle.example.com/v1", "metadata": {"name": "a"}}),
        ),
        "/apis/wardle.example.com/v1/redirected" => (307, json!({})),
        _ => (404, json!({"kind": "Status", "apiVersion": "v1", "code": 404})),
    }
}

fn api_service(group: &str, service: &str) -> Value {
    json!({
        "metadata": {"name": format!("v1.{group}")},
        "spec": {"group": group, "version": "v1", "groupPriorityMinimum": 2000, "versionPriority": 10,
            "insecureSkipTLSVerify": true, "service": {"namespace": "default", "name": service}},
    })
}

async fn with_wardle() -> (ApiServer, Received) {
    let (server, received) = wardle(ApiServer::builder());
    let (code, answer) = post(&server, API_SERVICES, &api_service("wardle.example.com", "flunders")).await;
    assert_eq!(code, 201, "{answer}");
    (server, received)
}

/// Returns the condition `Available`, after all tasks have run.
async fn available(server: &ApiServer, group: &str) -> (Value, Value) {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    let (_, service) = get(server, &format!("{API_SERVICES}/v1.{group}")).await;
    let condition = &service["status"]["conditions"][0];
    (condition["status"].clone(), condition["reason"].clone())
}

#[tokio::test(start_paused = true)]
async fn aggregated_api_server_receives_the_user_of_the_request() {
    let (server, received) = wardle(ApiServer::builder().authorization(Authorization::Rbac).token_with_uid(
        "t",
        "jane",
        "7",
        ["system:masters", "devs"],
    ));
    let service = api_service("wardle.example.com", "flunders");
    assert_eq!(post(&server, API_SERVICES, &service).await.0, 201);
    received.lock().expect("the lock is not poisoned").clear();
    let path = "/apis/wardle.example.com/v1/namespaces/default/flunders/a?pretty=false";
    let request = Request::get(path)
        .header("authorization", "Bearer t")
        .header("x-remote-user", "admin")
        .header("x-remote-extra-x", "1")
        .header("accept", "application/json")
        .body(String::new());
    let answer = server.call(request.expect("the request is valid")).await;
    assert_eq!(answer.status(), 200);
    let body: Value = serde_json::from_slice(answer.body()).expect("the text is valid JSON");
    assert_eq!(body["kind"], "Flunder");
    let received = received.lock().expect("the lock is not poisoned").clone();
    let (line, headers) = received
        .iter()
        .find(|it| it.0.contains("flunders/a"))
        .expect("the server was called");
    assert_eq!(line, &format!("GET {path}"));
    let values = |name: &str| -> Vec<&str> {
        let named = headers.iter().filter(|it| it.0 == name);
        named.map(|it| &*it.1).collect()
    };
    assert_eq!(values("x-remote-user"), ["jane"]);
    assert_eq!(values("x-remote-uid"), ["7"]);
    assert_eq!(
        values("x-remote-group"),
        ["system:masters", "devs", "system:authenticated"]
    );
    assert_eq!(values("x-remote-extra-x"), Vec::<&str>::new());
    assert_eq!(values("authorization"), Vec::<&str>::new());
    assert_eq!(values("accept"), ["application/json"]);
    assert_eq!(values("host"), [HOST]);
    assert_eq!(values("audit-id").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn rbac_is_checked_before_the_aggregated_server_is_called() {
    let builder = ApiServer::builder()
        .authorization(Authorization::Rbac)
        .token("t", "dev", ["devs"]);
    let (server, received) = wardle(builder);
    let service = api_service("wardle.example.com", "flunders");
    assert_eq!(post(&server, API_SERVICES, &service).await.0, 201);
    received.lock().expect("the lock is not poisoned").clear();
    let request = Request::get("/apis/wardle.example.com/v1/namespaces/default/flunders/a")
        .header("authorization", "Bearer t")
        .body(String::new());
    let answer = server.call(request.expect("the request is valid")).await;
    let body: Value = serde_json::from_slice(answer.body()).expect("the text is valid JSON");
    let expected = "flunders.wardle.example.com \"a\" is forbidden: User \"dev\" cannot get resource \"flunders\" in \
                    API group \"wardle.example.com\" in the namespace \"default\"";
    assert_eq!(
        (answer.status().as_u16(), body["message"].as_str()),
        (403, Some(expected))
    );
    let received = received.lock().expect("the lock is not poisoned").clone();
    assert!(received.iter().all(|it| !it.0.contains("flunders/a")), "{received:?}");
}

#[tokio::test(start_paused = true)]
async fn discovery_lists_aggregated_groups_in_priority_order() {
    let (server, _) = with_wardle().await;
    let (_, list) = get(&server, "/apis").await;
    let names: Vec<_> = list["groups"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|it| &it["name"])
        .collect();
    let at = names.iter().position(|it| **it == "wardle.example.com");
    assert_eq!(at, Some(names.len() - 1), "{names:?}");
    let (code, group) = get(&server, "/apis/wardle.example.com").await;
    let version = json!({"groupVersion": "wardle.example.com/v1", "version": "v1"});
    assert_eq!((code, &group["preferredVersion"]), (200, &version));
    let (code, resources) = get(&server, "/apis/wardle.example.com/v1").await;
    assert_eq!((code, &resources["resources"][0]["name"]), (200, &json!("flunders")));
    let request = Request::get("/apis")
        .header(
            "accept",
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
        )
        .body(String::new());
    let answer = server.call(request.expect("the request is valid")).await;
    let document: Value = serde_json::from_slice(answer.body()).expect("the text is valid JSON");
    let items = document["items"].as_array().expect("the value is a list");
    let item = items.iter().find(|it| it["metadata"]["name"] == "wardle.example.com");
    let kind = json!({"group": "wardle.example.com", "version": "v1", "kind": "Flunder"});
    let expected = json!({
        "version": "v1", "freshness": "Current",
        "resources": [{
            "resource": "flunders", "responseKind": kind, "scope": "Namespaced", "singularResource": "flunder",
            "verbs": ["get", "list"], "shortNames": ["fl"],
            "subresources": [{"subresource": "status", "responseKind": kind, "verbs": ["get"]}],
        }],
    });
    assert_eq!(item.map(|it| &it["versions"][0]), Some(&expected));
}

#[tokio::test(start_paused = true)]
async fn available_condition_is_set_by_calling_the_aggregated_server() {
    let (server, received) = with_wardle().await;
    let passed = (json!("True"), json!("Passed"));
    assert_eq!(available(&server, "wardle.example.com").await, passed);
    let calls = received.lock().expect("the lock is not poisoned").clone();
    let (line, headers) = &calls[0];
    assert_eq!(line, "GET /apis/wardle.example.com/v1");
    let user = headers.iter().find(|it| it.0 == "x-remote-user");
    assert_eq!(user.map(|it| &*it.1), Some("system:kube-aggregator"));

    // The aggregated API server exists, but it does not serve the group.
    assert_eq!(
        post(&server, API_SERVICES, &api_service("other.example.com", "flunders"))
            .await
            .0,
        201
    );
    let failed = (json!("False"), json!("FailedDiscoveryCheck"));
    assert_eq!(available(&server, "other.example.com").await, failed);
}

#[rstest]
#[case::missing_object(
    "/apis/wardle.example.com/v1/namespaces/default/flunders/b",
    404,
    "{\"apiVersion\":\"v1\""
)]
#[case::redirect(
    "/apis/wardle.example.com/v1/redirected",
    502,
    "the backend attempted to redirect this request, which is not permitted"
)]
#[case::address_without_a_route("/apis/lost.example.com/v1/things", 503, "service unavailable\n")]
#[case::missing_api_service("/apis/nothing.example.com/v1/things", 404, "404 page not found\n")]
#[tokio::test(start_paused = true)]
async fn errors_of_aggregated_requests_are_returned(#[case] path: &str, #[case] code: u16, #[case] start: &str) {
    let (server, _) = with_wardle().await;
    assert_eq!(
        post(&server, API_SERVICES, &api_service("lost.example.com", "lost"))
            .await
            .0,
        201
    );
    let request = Request::get(path).body(String::new()).expect("the request is valid");
    let answer = server.call(request).await;
    let text = String::from_utf8_lossy(answer.body()).into_owned();
    assert_eq!(answer.status().as_u16(), code, "{text}");
    assert!(text.starts_with(start), "{text}");
}

#[tokio::test(start_paused = true)]
async fn fault_affects_requests_to_aggregated_api_servers() {
    let (server, _) = with_wardle().await;
    let guard = server.inject(|seen: &Seen<'_>| match &*seen.info.resource {
        "flunders" => Verdict::Fail(Box::new(Status::new(500, "InternalError", "x"))),
        _ => Verdict::Pass,
    });
    let path = "/apis/wardle.example.com/v1/namespaces/default/flunders/a";
    assert_eq!(get(&server, path).await.0, 500);
    drop(guard);
    assert_eq!(get(&server, path).await.0, 200);
}

/// Returns a server with a custom resource, which another server can aggregate.
#[cfg(feature = "tls")]
async fn with_flunders() -> ApiServer {
    let behind = ApiServer::start();
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let definition = json!({
        "metadata": {"name": "flunders.wardle.example.com"},
        "spec": {"group": "wardle.example.com", "scope": "Namespaced",
            "names": {"plural": "flunders", "singular": "flunder", "kind": "Flunder", "listKind": "FlunderList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]},
    });
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(post(&behind, definitions, &definition).await.0, 201);
    let flunders = "/apis/wardle.example.com/v1/namespaces/default/flunders";
    assert_eq!(
        post(
            &behind,
            flunders,
            &json!({"apiVersion": "wardle.example.com/v1", "kind": "Flunder", "metadata": {"name": "a"}})
        )
        .await
        .0,
        201
    );
    behind
}

/// A server at an address is called over TLS. Its certificate must be for the Service's name and signed by the
/// `caBundle`.
#[cfg(feature = "tls")]
#[rstest]
#[case::trusted(HOST, true, 200, "Flunder")]
#[case::certificate_of_another_name(
    "other.default.svc",
    true,
    503,
    "x509: certificate is not valid for flunders.default.svc"
)]
#[case::unknown_authority(HOST, false, 503, "x509: certificate signed by unknown authority")]
#[tokio::test]
async fn certificate_of_an_aggregated_server_is_verified(
    #[case] host: &str,
    #[case] is_trusted: bool,
    #[case] code: u16,
    #[case] part: &str,
) {
    use base64::Engine as _;
    use fake_apiserver::{ServeOptions, signed_certificate};

    let [certificate, key, authority] =
        signed_certificate(&[host.to_owned()]).expect("the certificate can be generated");
    let [_, _, other] = signed_certificate(&[host.to_owned()]).expect("the certificate can be generated");
    let behind = with_flunders().await;
    let flunders = "/apis/wardle.example.com/v1/namespaces/default/flunders";
    let options = ServeOptions::tls().certificate(certificate, key).accept_hosts([HOST]);
    let serving = behind.serve_with(([127, 0, 0, 1], 0).into(), &options).await;
    let serving = serving.expect("a port is free");

    let server = ApiServer::builder().webhook_address(HOST, serving.addr()).start();
    let mut service = api_service("wardle.example.com", "flunders");
    service["spec"]["insecureSkipTLSVerify"] = false.into();
    let bundle = if is_trusted { authority } else { other };
    service["spec"]["caBundle"] = base64::engine::general_purpose::STANDARD.encode(bundle).into();
    assert_eq!(post(&server, API_SERVICES, &service).await.0, 201);
    let request = Request::get(format!("{flunders}/a")).body(String::new());
    let answer = server.call(request.expect("the request is valid")).await;
    let text = String::from_utf8_lossy(answer.body());
    assert_eq!(answer.status(), code, "{text}");
    assert!(text.contains(part), "{text}");
}

/// An APIService is called again when its address is set, without a write.
#[cfg(feature = "tls")]
#[tokio::test]
async fn address_that_is_set_later_makes_the_group_available() {
    use fake_apiserver::ServeOptions;

    let server = ApiServer::start();
    let service = api_service("wardle.example.com", "flunders");
    assert_eq!(post(&server, API_SERVICES, &service).await.0, 201);
    assert_eq!(available(&server, "wardle.example.com").await.0, "False");
    let behind = with_flunders().await;
    let serving = behind
        .serve_with(([127, 0, 0, 1], 0).into(), &ServeOptions::tls().accept_hosts([HOST]))
        .await;
    let serving = serving.expect("a port is free");
    server.webhook_address(HOST, serving.addr());
    for _ in 0..500 {
        if available(&server, "wardle.example.com").await.0 == "True" {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("the APIService did not become available");
}
