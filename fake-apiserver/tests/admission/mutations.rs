//! Mutations that kube-apiserver refuses, which rename objects or change their kind, and other unusual responses of
//! webhooks.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::Body;
use fake_apiserver::ApiServer;
use http::{Method, Request, Response};
use http_body_util::BodyExt as _;
use rstest::rstest;
use serde_json::{Value, json};

use crate::ask::{
    Answer, Asked, HOST, MAPS, ask, configuration, configure, made, map, patch, post, read_review, reviewed, service,
};

const MOVED: &str = "the namespace of the provided object does not match the namespace sent on the request";

/// Returns a server with a webhook for ConfigMaps and widgets that always returns this response.
async fn answered(response: Value) -> ApiServer {
    let answers = service(&Asked::default(), move |_, review| reviewed(review, response.clone()));
    let server = ApiServer::builder().webhook(HOST, answers).start();
    made(&post(&server, "/api/v1/namespaces", json!({"metadata": {"name": "other"}})).await);
    let rules = json!({"rules": [{"operations": ["*"], "apiGroups": ["", "example.com"], "apiVersions": ["*"],
        "resources": ["configmaps", "widgets"]}]});
    configure(&server, "Mutating", "m", &[("w.example.com", "/x", rules)]).await;
    server
}

fn replaces(path: &str, value: &str) -> Value {
    patch(json!([{"op": "replace", "path": path, "value": value}]))
}

#[rstest]
#[case::namespace("/metadata/namespace", "other", 400, MOVED)]
#[case::registered_kind(
    "/kind",
    "Secret",
    500,
    "converting (v1.Secret) to (core.ConfigMap): unknown conversion"
)]
#[case::unknown_kind(
    "/kind",
    "Nothing",
    500,
    "Internal error occurred: no kind \"Nothing\" is registered for version \
    \"v1\" in scheme \"pkg/api/legacyscheme/scheme.go:30\""
)]
#[case::unknown_version(
    "/apiVersion",
    "v9",
    500,
    "Internal error occurred: no kind \"ConfigMap\" is registered for \
    version \"v9\" in scheme \"pkg/api/legacyscheme/scheme.go:30\""
)]
#[tokio::test(start_paused = true)]
async fn mutating_webhook_cannot_change_namespace_or_type(
    #[case] path: &str,
    #[case] value: &str,
    #[case] code: u16,
    #[case] message: &str,
) {
    let server = answered(replaces(path, value)).await;
    let created = post(&server, MAPS, map("a")).await;
    assert_eq!(created.failure(), (code, message));
    server.load([map("b")]).expect("the object is a ConfigMap");
    let changed = ask(
        &server,
        Method::PATCH,
        &format!("{MAPS}/b"),
        json!({"data": {"k": "v"}}),
    )
    .await;
    assert_eq!(changed.failure(), (code, message));
    let moved = ask(&server, Method::GET, "/api/v1/namespaces/other/configmaps", Value::Null).await;
    assert_eq!(moved.body["items"], json!([]));
}

#[rstest]
#[case::namespace("/metadata/namespace", "other", 400, MOVED)]
#[case::kind(
    "/kind",
    "Gadget",
    422,
    "Gadget.example.com \"a\" is invalid: kind: Invalid value: \"Gadget\": must be Widget"
)]
#[case::version(
    "/apiVersion",
    "example.com/v9",
    500,
    "request to convert CR from an invalid group/version: \
    example.com/v9"
)]
#[tokio::test(start_paused = true)]
async fn mutating_webhook_cannot_change_namespace_or_type_of_a_custom_resource(
    #[case] path: &str,
    #[case] value: &str,
    #[case] code: u16,
    #[case] message: &str,
) {
    let server = answered(replaces(path, value)).await;
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let definition = json!({"metadata": {"name": "widgets.example.com"}, "spec": {"group": "example.com",
        "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}});
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    made(&post(&server, definitions, definition).await);
    let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"}});
    let answer = post(&server, "/apis/example.com/v1/namespaces/default/widgets", widget).await;
    assert_eq!(answer.failure(), (code, message));
}

#[cfg(feature = "cel")]
#[rstest]
#[case::namespace("/metadata/namespace", "other", 400, MOVED)]
#[case::kind(
    "/kind",
    "Secret",
    500,
    "converting (v1.Secret) to (core.ConfigMap): unknown conversion"
)]
#[tokio::test(start_paused = true)]
async fn mutating_policy_cannot_change_namespace_or_kind(
    #[case] path: &str,
    #[case] value: &str,
    #[case] code: u16,
    #[case] message: &str,
) {
    const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
    let server = ApiServer::start();
    made(&post(&server, "/api/v1/namespaces", json!({"metadata": {"name": "other"}})).await);
    let expression = format!("[JSONPatch{{op: 'replace', path: '{path}', value: '{value}'}}]");
    let spec = json!({"matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"],
        "operations": ["CREATE"], "resources": ["configmaps"]}]}, "failurePolicy": "Ignore",
        "reinvocationPolicy": "Never",
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}]});
    let policy = json!({"metadata": {"name": "p"}, "spec": spec});
    made(&post(&server, &format!("{GROUP}/mutatingadmissionpolicies"), policy).await);
    let binding = json!({"metadata": {"name": "b"}, "spec": {"policyName": "p"}});
    made(&post(&server, &format!("{GROUP}/mutatingadmissionpolicybindings"), binding).await);
    assert_eq!(post(&server, MAPS, map("a")).await.failure(), (code, message));
}

#[rstest]
#[case::allowed(json!({"allowed": "true"}), "string into Go struct field AdmissionResponse.response.allowed of type bool")]
#[case::uid(json!({"uid": 1}), "number into Go struct field AdmissionResponse.response.uid of type types.UID")]
#[case::warning(json!({"warnings": [1]}), "number into Go struct field AdmissionResponse.response.warnings of type string")]
#[case::patch_type(json!({"patchType": {}}), "object into Go struct field AdmissionResponse.response.patchType of type \
    v1.PatchType")]
#[case::code(json!({"status": {"code": "403"}}), "string into Go struct field Status.response.status.code of type int32")]
#[tokio::test(start_paused = true)]
async fn webhook_response_with_a_wrong_type_fails_the_request(#[case] response: Value, #[case] message: &str) {
    let server = answered(response).await;
    let text = format!(
        "Internal error occurred: failed calling webhook \"w.example.com\": failed to call webhook: json: cannot \
         unmarshal {message}"
    );
    assert_eq!(post(&server, MAPS, map("a")).await.failure(), (500, text.as_str()));
}

#[tokio::test(start_paused = true)]
async fn number_of_operations_in_webhook_patches_is_unlimited() {
    let operations = (0..10_001).map(|it| json!({"op": "add", "path": "/data", "value": {"n": it.to_string()}}));
    let server = answered(patch(operations.collect())).await;
    let answer = post(&server, MAPS, map("a")).await;
    made(&answer);
    assert_eq!(answer.body["data"]["n"], "10000");
}

#[rstest]
#[case::long_warning(vec!["x".repeat(1_000_000)], vec!["x".repeat(256)])]
#[case::control_character(vec!["a\nb".to_owned(), "c".to_owned()], vec!["c".to_owned()])]
#[case::repeated_warning(vec!["a".to_owned(), "a".to_owned(), String::new()], vec!["a".to_owned()])]
#[case::total_size_at_the_limit(vec!["x".repeat(4_000), "y".repeat(96)], vec!["x".repeat(4_000), "y".repeat(96)])]
#[case::total_size_above_the_limit(vec!["x".repeat(4_000), "y".repeat(97)], vec!["x".repeat(256), "y".repeat(97)])]
#[tokio::test(start_paused = true)]
async fn invalid_and_repeated_warnings_are_dropped_and_long_warnings_are_truncated(
    #[case] warnings: Vec<String>,
    #[case] shown: Vec<String>,
) {
    let server = answered(json!({ "warnings": warnings })).await;
    let answer = post(&server, MAPS, map("a")).await;
    let shown: Vec<String> = shown.iter().map(|it| format!("299 - \"{it}\"")).collect();
    assert_eq!(answer.warnings, shown);
}

/// 10,000 environment variables with the same name cause as many warnings. kube-apiserver sends 37 headers for these
/// warnings.
#[tokio::test(start_paused = true)]
async fn total_size_of_server_warnings_is_limited() {
    let env: Vec<Value> = (0..10_000)
        .map(|it| json!({"name": "A", "value": it.to_string()}))
        .collect();
    let pod = json!({"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "i", "env": env}]}});
    let answer = post(&ApiServer::start(), "/api/v1/namespaces/default/pods", pod).await;
    made(&answer);
    let bytes: usize = answer.warnings.iter().map(String::len).sum();
    assert!(
        answer.warnings.len() > 10 && bytes < 8 * 1024,
        "{} {bytes}",
        answer.warnings.len()
    );
}

/// Returns a server with a webhook that responds to its first calls with `first`, and allows all later requests.
fn hesitant(times: usize, first: impl Fn() -> Response<Body> + Send + Sync + 'static) -> (ApiServer, Arc<AtomicUsize>) {
    let (calls, first) = (Arc::new(AtomicUsize::new(0)), Arc::new(first));
    let counted = Arc::clone(&calls);
    let answers = tower::service_fn(move |request: Request<Body>| {
        let (number, first) = (counted.fetch_add(1, Ordering::SeqCst), Arc::clone(&first));
        async move {
            if number < times {
                return Ok::<_, std::convert::Infallible>(first());
            }
            let review = read_review(request).await;
            Ok(Response::new(Body::from(reviewed(&review, json!({})).to_string())))
        }
    });
    (ApiServer::builder().webhook(HOST, answers).start(), calls)
}

async fn validated(server: &ApiServer) -> Answer {
    let hooks = configuration("Validating", "v", &[("w.example.com", "/x", json!({}))]);
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    made(&post(server, path, hooks).await);
    post(server, MAPS, map("a")).await
}

/// Go replaces invalid UTF-8 when it decodes JSON.
#[tokio::test(start_paused = true)]
async fn invalid_utf8_in_a_webhook_response_is_replaced() {
    let answers = tower::service_fn(|request: Request<Body>| async move {
        let review = read_review(request).await;
        let refusal = json!({"allowed": false, "status": {"code": 403, "message": "caf@"}});
        let text = reviewed(&review, refusal).to_string();
        let bytes = text.bytes().map(|it| if it == b'@' { 0xe9 } else { it });
        Ok::<_, std::convert::Infallible>(Response::new(Body::from(Vec::from_iter(bytes))))
    });
    let server = ApiServer::builder().webhook(HOST, answers).start();
    let answer = validated(&server).await;
    let message = "admission webhook \"w.example.com\" denied the request: caf\u{fffd}";
    assert_eq!(answer.failure(), (403, message));
}

fn status(code: u16, header: &str, value: &str) -> Response<Body> {
    let response = Response::builder().status(code).header(header, value);
    response.body(Body::empty()).expect("the response is valid")
}

#[rstest]
#[case::too_many_requests(429, 3, 201)]
#[case::service_unavailable(503, 1, 201)]
#[case::delay_beyond_the_timeout(429, 11, 500)]
#[tokio::test(start_paused = true)]
async fn webhook_call_is_retried_if_the_response_has_retry_after(
    #[case] code: u16,
    #[case] times: usize,
    #[case] created: u16,
) {
    let (server, calls) = hesitant(times, move || status(code, "retry-after", "0"));
    let answer = validated(&server).await;
    assert_eq!(answer.code, created, "{}", answer.body);
    assert_eq!(calls.load(Ordering::SeqCst), (times + 1).min(11));
}

#[tokio::test(start_paused = true)]
async fn retries_end_at_the_timeout_of_the_webhook() {
    let (server, _) = hesitant(1, || status(429, "retry-after", "11"));
    let (code, message) = (validated(&server).await.code, "context deadline exceeded");
    assert_eq!(code, 500, "{message}");
}

#[rstest]
#[case::absolute_location(307, &format!("https://{HOST}/y"), 201)]
#[case::relative_location(308, "/y", 201)]
#[case::found_302(302, "/y", 500)]
#[tokio::test(start_paused = true)]
async fn only_webhook_redirects_307_and_308_are_followed(
    #[case] code: u16,
    #[case] location: &str,
    #[case] created: u16,
) {
    let location = location.to_owned();
    let answers = tower::service_fn(move |request: Request<Body>| {
        let location = location.clone();
        async move {
            if request.uri().path() == "/x" {
                return Ok::<_, std::convert::Infallible>(status(code, "location", &location));
            }
            let body = request
                .into_body()
                .collect()
                .await
                .expect("the body is in memory")
                .to_bytes();
            let review: Value = serde_json::from_slice(&body).unwrap_or_default();
            Ok(Response::new(Body::from(reviewed(&review, json!({})).to_string())))
        }
    });
    let server = ApiServer::builder().webhook(HOST, answers).start();
    let answer = validated(&server).await;
    assert_eq!(answer.code, created, "{}", answer.body);
}

#[tokio::test(start_paused = true)]
async fn endless_webhook_redirects_fail_the_request() {
    let (server, calls) = hesitant(usize::MAX, || status(307, "location", "/x"));
    let answer = validated(&server).await;
    assert!(
        answer.failure().1.ends_with("stopped after 10 redirects"),
        "{}",
        answer.body
    );
    assert_eq!(calls.load(Ordering::SeqCst), 10);
}
