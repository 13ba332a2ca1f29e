//! Conversion of partial and of large objects, and metrics of abandoned requests.

use std::time::Duration;

use futures::FutureExt;
use http::{Request, header};
use informer::metrics::Metrics;
use informer::webhook::{AdmissionRequest, Denial, Validator, Webhooks};
use k8s_openapi::api::core::v1::ConfigMap;
use rstest::rstest;
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::webhooks::{ask, documents, review};

async fn converted(object: Value, to: &str) -> Value {
    let request = json!({"uid": "u", "desiredAPIVersion": format!("example.com/{to}"), "objects": [object]});
    let body = json!({"kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1", "request": request});
    let webhooks = Webhooks::new().convert(documents());
    let (code, answer) = ask(&webhooks, "/convert", "application/json", body.to_string()).await;
    assert_eq!(
        (code, &answer["response"]["result"]["status"]),
        (200, &json!("Success")),
        "{answer}"
    );
    answer["response"]["convertedObjects"][0].clone()
}

fn document(version: &str, spec: Option<Value>) -> Value {
    let mut document = json!({"apiVersion": format!("example.com/{version}"), "kind": "Document",
        "metadata": {"name": "d", "namespace": "shop"}});
    if let Some(spec) = spec {
        document["spec"] = spec;
    }
    document
}

/// For server-side apply, the server converts the fields of each field manager separately.
#[rstest]
#[case::all_fields(Some(json!({"name": "n", "language": "en"})), Some(json!({"title": "n", "language": "en"})))]
#[case::missing_required_field(Some(json!({"language": "en"})), Some(json!({"language": "en"})))]
#[case::empty_spec(Some(json!({})), Some(json!({})))]
#[case::missing_spec(None, None)]
#[tokio::test]
async fn partial_object_is_converted_without_adding_fields(#[case] spec: Option<Value>, #[case] wanted: Option<Value>) {
    let answer = converted(document("v1beta1", spec.clone()), "v1").await;
    assert_eq!(
        answer.get("spec").cloned().unwrap_or(json!({})),
        wanted.clone().unwrap_or(json!({}))
    );
    let back = converted(document("v1", wanted), "v1beta1").await;
    assert_eq!(
        back.get("spec").cloned().unwrap_or(json!({})),
        spec.unwrap_or(json!({}))
    );
}

#[tokio::test]
async fn conversion_review_of_nine_megabytes_is_accepted() {
    let text = "x".repeat(9 * 1024 * 1024);
    let answer = converted(document("v1beta1", Some(json!({"name": text}))), "v1").await;
    assert_eq!(answer["spec"]["title"].as_str().map(str::len), Some(text.len()));
}

#[tokio::test]
async fn conversion_review_longer_than_the_configured_maximum_is_refused() {
    let object = document("v1beta1", Some(json!({"name": "n"})));
    let request = json!({"uid": "u", "desiredAPIVersion": "example.com/v1", "objects": [object]});
    let body = json!({"kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1", "request": request});
    let body = body.to_string();
    let asked = async |longest: usize| {
        let webhooks = Webhooks::new().convert(documents()).longest_conversion(longest);
        let (code, answer) = ask(&webhooks, "/convert", "application/json", body.clone()).await;
        assert_eq!(code, 200, "{answer}");
        answer["response"].clone()
    };
    let accepted = asked(body.len()).await;
    assert_eq!(accepted["result"]["status"], "Success", "{accepted}");
    assert_eq!(accepted["convertedObjects"][0]["spec"]["title"], "n");
    let maximum = body.len() - 1;
    let refused = asked(maximum).await;
    assert_eq!(refused["result"]["status"], "Failure", "{refused}");
    let message = format!("the review is longer than the maximum of {maximum} bytes");
    assert_eq!(refused["result"]["message"], message.as_str());
    assert_eq!(refused["convertedObjects"], json!([]));
}

/// A validator that never responds.
struct Undecided;

impl Validator<ConfigMap> for Undecided {
    async fn validate_create(&self, _: &ConfigMap, _: &AdmissionRequest) -> Result<Vec<String>, Denial> {
        std::future::pending().await
    }
}

#[tokio::test(start_paused = true)]
async fn cancelled_request_is_counted_and_no_longer_in_flight() {
    let metrics = Metrics::new();
    let webhooks = Webhooks::new()
        .validate::<ConfigMap>(Undecided)
        .expect("the webhook path is unused")
        .metrics(&metrics);
    let body = review("CREATE", json!({"metadata": {"name": "m"}}), Value::Null).to_string();
    for _ in 0..5 {
        let request = Request::post("/validate--v1-configmap").header(header::CONTENT_TYPE, "application/json");
        let request = request
            .body(axum::body::Body::from(body.clone()))
            .expect("the request is valid");
        let mut asking = Box::pin(webhooks.service().oneshot(request));
        assert!((&mut asking).now_or_never().is_none());
        tokio::time::sleep(Duration::from_secs(10)).await;
        let text = metrics.render();
        assert!(
            text.contains("in_flight{webhook=\"/validate--v1-configmap\"} 1"),
            "{text}"
        );
        drop(asking);
    }
    let text = metrics.render();
    assert!(
        text.contains("in_flight{webhook=\"/validate--v1-configmap\"} 0"),
        "{text}"
    );
    let total = "requests_total{code=\"499\",webhook=\"/validate--v1-configmap\"} 5";
    assert!(text.contains(total), "{text}");
    assert!(
        text.contains("latency_seconds_sum{webhook=\"/validate--v1-configmap\"} 50"),
        "{text}"
    );
}
