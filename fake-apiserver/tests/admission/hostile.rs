//! Webhooks with invalid responses: each call fails with a message that describes the problem, and the server does not
//! panic.

use axum::body::Body;
use fake_apiserver::ApiServer;
use http::Response;
use http_body_util::BodyExt as _;
use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Value, json};

use crate::ask::{Asked, HOST, MAPS, configure, map, patch, post, reviewed, service};

/// Returns a server with webhooks that always return this response.
fn server(code: u16, content_type: &'static str, body: Vec<u8>) -> ApiServer {
    let answer = tower::service_fn(move |_| {
        let body = Body::from(body.clone());
        let response = Response::builder().status(code).header("content-type", content_type);
        async move { Ok::<_, std::convert::Infallible>(response.body(body).expect("the response is valid")) }
    });
    ApiServer::builder().webhook(HOST, answer).start()
}

#[rstest]
#[case::not_json(
    200,
    "application/json",
    "hello",
    "failed to call webhook: couldn't get version/kind; json parse error: invalid character 'h' looking for beginning of \
     value"
)]
#[case::server_error_as_text(
    500,
    "text/plain",
    "oops",
    "failed to call webhook: an error on the server (\"oops\") has prevented the request from succeeding"
)]
#[case::server_error_as_json(
    500,
    "application/json",
    "oops",
    "failed to call webhook: an error on the server (\"unknown\") has prevented the request from succeeding"
)]
#[case::not_found(
    404,
    "text/plain",
    "",
    "failed to call webhook: the server could not find the requested resource"
)]
#[case::missing_kind(
    200,
    "application/json",
    "{}",
    "received invalid webhook response: webhook response was absent"
)]
#[case::missing_response(
    200,
    "application/json",
    r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1"}"#,
    "received invalid webhook response: webhook response was absent"
)]
#[tokio::test(start_paused = true)]
async fn p4_invalid_webhook_responses_fail_the_request(
    #[case] code: u16,
    #[case] content_type: &'static str,
    #[case] body: &str,
    #[case] message: &str,
) {
    let server = server(code, content_type, body.into());
    configure(&server, "Validating", "v", &[("w.example.com", "/x", json!({}))]).await;
    let answer = post(&server, MAPS, map("a")).await;
    let text = format!("Internal error occurred: failed calling webhook \"w.example.com\": {message}");
    assert_eq!(answer.failure(), (500, text.as_str()));
}

#[rstest]
#[case::other_uid("Mutating", json!({"uid": "other"}), "expected response.uid=")]
#[case::patch_without_type("Mutating", json!({"patch": "W10="}), "webhook returned response.patch but not")]
#[case::type_without_patch("Mutating", json!({"patchType": "JSONPatch"}), "webhook returned response.patchType but not")]
#[case::empty_patch_type("Mutating", json!({"patchType": "", "patch": "W10="}), "webhook returned invalid response.patchType")]
#[case::patch_that_is_not_base64("Mutating", json!({"patchType": "JSONPatch", "patch": "!"}), "illegal base64 data")]
#[case::unknown_patch_type("Mutating", json!({"patchType": "Magic", "patch": "W3sib3AiOiJyZW1vdmUiLCJwYXRoIjoiL2RhdGEifV0="}), "unsupported patch type \"Magic\"")]
#[case::patch_of_a_validating_webhook("Validating", json!({"patchType": "JSONPatch", "patch": "W10="}), "may not return response.patch")]
#[tokio::test(start_paused = true)]
async fn p2_contradictory_webhook_responses_fail_the_request(
    #[case] kind: &str,
    #[case] response: Value,
    #[case] message: &str,
) {
    let answers = service(&Asked::default(), move |_, review| reviewed(review, response.clone()));
    let server = ApiServer::builder().webhook(HOST, answers).start();
    configure(&server, kind, "m", &[("w.example.com", "/x", json!({}))]).await;
    let answer = post(&server, MAPS, map("a")).await;
    let (code, text) = answer.failure();
    assert!(
        code == 500 && text.contains("failed calling webhook \"w.example.com\"") && text.contains(message),
        "{text}"
    );
}

#[rstest]
#[case::missing_kind(json!({"kind": null, "apiVersion": null}), "/, Kind=")]
#[case::older_version(json!({"apiVersion": "admission.k8s.io/v1beta1"}), "admission.k8s.io/v1beta1, Kind=AdmissionReview")]
#[case::other_kind(json!({"kind": "Pod", "apiVersion": "v1"}), "/v1, Kind=Pod")]
#[tokio::test(start_paused = true)]
async fn p2_webhook_responses_of_another_kind_fail_the_request(#[case] names: Value, #[case] got: &str) {
    let answers = service(&Asked::default(), move |_, review| {
        let mut answer = reviewed(review, json!({}));
        for field in ["kind", "apiVersion"] {
            if let Some(name) = names.get(field) {
                answer[field] = name.clone();
            }
        }
        answer
    });
    let server = ApiServer::builder().webhook(HOST, answers).start();
    configure(&server, "Validating", "v", &[("w.example.com", "/x", json!({}))]).await;
    let answer = post(&server, MAPS, map("a")).await;
    let text = format!(
        "Internal error occurred: failed calling webhook \"w.example.com\": received invalid webhook response: \
         expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got {got}"
    );
    assert_eq!(answer.failure(), (500, text.as_str()));
}

#[tokio::test(start_paused = true)]
async fn oversized_webhook_response_fails_the_request() {
    let server = server(200, "application/json", vec![b' '; 129 * 1024 * 1024]);
    configure(&server, "Validating", "v", &[("w.example.com", "/x", json!({}))]).await;
    let answer = post(&server, MAPS, map("a")).await;
    assert_eq!(answer.code, 500, "{}", answer.body);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The client receives a Status for any bytes that a webhook returns.
    #[test]
    fn arbitrary_webhook_responses_do_not_break_the_server(body in prop::collection::vec(any::<u8>(), 0..64), code in 200u16..600) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("the runtime can be built");
        runtime.block_on(async {
            let server = server(code, "application/json", body);
            configure(&server, "Mutating", "m", &[("w.example.com", "/x", json!({}))]).await;
            let answer = post(&server, MAPS, map("a")).await;
            assert_eq!(answer.body["kind"], "Status");
        });
    }

    /// For any patch from a webhook, the response is an object or a Status, and the server continues to work.
    #[test]
    fn arbitrary_webhook_patches_do_not_break_the_server(
        op in "add|remove|replace|move|copy|test|other",
        path in "(/(metadata|labels|name|namespace|data|managedFields|ownerReferences|uid|kind|-|0|9)){0,3}",
        value in prop::sample::select(vec![json!(null), json!(1), json!("x"), json!([1]), json!({"a": {}}), json!([{}])]),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("the runtime can be built");
        runtime.block_on(async {
            let operations = json!([{"op": op, "path": path, "from": "/metadata", "value": value}]);
            let answers = service(&Asked::default(), move |_, review| reviewed(review, patch(operations.clone())));
            let server = ApiServer::builder().webhook(HOST, answers).start();
            configure(&server, "Mutating", "m", &[("w.example.com", "/x", json!({}))]).await;
            let answer = post(&server, MAPS, map("a")).await;
            let kind = answer.body["kind"].clone();
            assert!(kind == "Status" || kind == "ConfigMap", "{}", answer.body);
            let message = answer.body["message"].as_str().unwrap_or_default();
            assert!(!message.contains("panicked"), "{message}");
            let body = server_get(&server).await;
            assert_eq!(body["kind"], "ConfigMapList");
        });
    }
}

async fn server_get(server: &ApiServer) -> Value {
    let request = http::Request::get(MAPS)
        .body(String::new())
        .expect("the request is valid");
    let response = server.call(request).await.into_parts();
    let body = http_body_util::Full::new(response.1)
        .collect()
        .await
        .expect("the body is in memory")
        .to_bytes();
    serde_json::from_slice(&body).unwrap_or_default()
}
