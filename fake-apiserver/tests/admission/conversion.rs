//! Conversion of custom resources by webhook (rule O10).

use axum::body::Body;
use fake_apiserver::ApiServer;
use http::{Method, Request};
use http_body_util::BodyExt as _;
use rstest::rstest;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::ask::{Answer, Asked, HOST, ask, made, post, service};

const V1: &str = "/apis/example.com/v1/namespaces/default/widgets";
const V2: &str = "/apis/example.com/v2/namespaces/default/widgets";

/// v1 has `spec.size`, v2 has `spec.width`; v1 is the storage version.
fn definition() -> Value {
    let version = |name: &str, field: &str, storage: bool| {
        json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": {"type": "object",
            "properties": {"spec": {"type": "object", "properties": {field: {"type": "integer"}}}}}}})
    };
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [version("v1", "size", true), version("v2", "width", false)],
            "conversion": {"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"],
                "clientConfig": {"url": format!("https://{HOST}/convert")}}}}})
}

/// Converts objects as requested, and then corrupts the response as `spoil` specifies.
fn converted(review: &Value, spoil: &str) -> Value {
    let request = &review["request"];
    let wanted = request["desiredAPIVersion"].clone();
    let objects = request["objects"]
        .as_array()
        .expect("the value is a list")
        .iter()
        .map(|object| {
            let mut object = object.clone();
            let (from, to) = if wanted == "example.com/v2" {
                ("size", "width")
            } else {
                ("width", "size")
            };
            if let Some(value) = object["spec"].as_object_mut().and_then(|spec| spec.remove(from)) {
                object["spec"][to] = value;
            }
            object["apiVersion"] = wanted.clone();
            object["metadata"]["labels"] = json!({"converted": "yes"});
            match spoil {
                "name" => object["metadata"]["name"] = "other".into(),
                "version" => object["apiVersion"] = "example.com/v9".into(),
                "kind" => object["kind"] = "Gadget".into(),
                "no labels" => object["metadata"]["labels"] = Value::Null,
                "metadata" => object["metadata"]["finalizers"] = json!(["a.example.com/b"]),
                "label" => object["metadata"]["labels"] = json!({"a b": "c"}),
                "label type" => object["metadata"]["labels"] = json!({"a": 1}),
                "annotation" => object["metadata"]["annotations"] = json!({"a b": "c"}),
                _ => {}
            }
            object
        });
    let mut objects: Vec<Value> = objects.collect();
    if spoil == "count" {
        objects.clear();
    }
    if review["apiVersion"] == "apiextensions.k8s.io/v1beta1" {
        // The response of a v1beta1 webhook does not contain the kind, the version and the uid.
        return json!({"response": {"result": {"status": "Success"}, "convertedObjects": objects}});
    }
    let uid = if spoil == "uid" {
        json!("other")
    } else {
        request["uid"].clone()
    };
    let result = if spoil == "failed" {
        json!({"status": "Failure", "message": "cannot"})
    } else {
        json!({"status": "Success"})
    };
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
        "response": {"uid": uid, "result": result, "convertedObjects": objects}})
}

async fn server(asked: &Asked, spoil: &'static str) -> ApiServer {
    let answers = service(asked, move |_, review| converted(review, spoil));
    let server = ApiServer::builder().webhook(HOST, answers).start();
    made(
        &post(
            &server,
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
            definition(),
        )
        .await,
    );
    server
}

fn widget(version: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": format!("example.com/{version}"), "kind": "Widget", "metadata": {"name": name}, "spec": spec})
}

#[tokio::test(start_paused = true)]
async fn o10_writes_and_reads_are_converted_by_the_webhook() {
    let asked = Asked::default();
    let server = server(&asked, "").await;
    let answer = post(&server, V2, widget("v2", "a", json!({"width": 3}))).await;
    made(&answer);
    assert_eq!(answer.body["spec"], json!({"width": 3}));
    let stored = ask(&server, Method::GET, &format!("{V1}/a"), Value::Null).await;
    assert_eq!(stored.body["spec"], json!({"size": 3}));
    let answer = ask(
        &server,
        Method::PATCH,
        &format!("{V2}/a"),
        json!({"spec": {"width": 4}}),
    )
    .await;
    assert_eq!(answer.body["spec"], json!({"width": 4}), "{}", answer.body);
    let stored = server
        .get("example.com/v1", "Widget", "default", "a")
        .await
        .expect("the object exists");
    assert_eq!(stored["spec"], json!({"size": 4}));
    let shown = server
        .get("example.com/v2", "Widget", "default", "a")
        .await
        .expect("the object exists");
    assert_eq!(shown["spec"], json!({"width": 4}));
    assert_eq!(shown["metadata"]["labels"], json!({"converted": "yes"}));
    let gone = ask(&server, Method::DELETE, &format!("{V2}/a"), Value::Null).await;
    assert_eq!(gone.code, 200, "{}", gone.body);
}

#[tokio::test(start_paused = true)]
async fn o10_list_converts_each_object_in_a_review_of_its_own() {
    let asked = Asked::default();
    let server = server(&asked, "").await;
    for name in ["a", "b", "c"] {
        made(&post(&server, V1, widget("v1", name, json!({"size": 1}))).await);
    }
    assert_eq!(
        asked.lock().expect("the lock is not poisoned").len(),
        0,
        "the stored version needs no webhook"
    );
    let list = ask(&server, Method::GET, V2, Value::Null).await;
    let widths: Vec<&Value> = list.body["items"]
        .as_array()
        .expect("the value is a list")
        .iter()
        .map(|it| &it["spec"]["width"])
        .collect();
    assert_eq!(widths, [1, 1, 1]);
    let asked = asked.lock().expect("the lock is not poisoned");
    let sizes: Vec<_> = asked
        .iter()
        .map(|(_, review)| review["request"]["objects"].as_array().map(Vec::len))
        .collect();
    assert_eq!(sizes, [Some(1); 3]);
}

#[tokio::test(start_paused = true)]
async fn o10_watch_converts_each_event() {
    let asked = Asked::default();
    let server = server(&asked, "").await;
    let before = server.resource_version();
    made(&post(&server, V1, widget("v1", "a", json!({"size": 1}))).await);
    let request = Request::get(format!("{V2}?watch=true&resourceVersion={before}&timeoutSeconds=5"));
    let request = request.body(Body::empty()).expect("the request is valid");
    let mut body = server
        .service()
        .oneshot(request)
        .await
        .expect("the service is infallible")
        .into_body();
    let frame = body
        .frame()
        .await
        .expect("the watch delivers an event")
        .expect("the stream has no error");
    let event: Value =
        serde_json::from_slice(frame.data_ref().expect("the frame has data")).expect("the text is valid JSON");
    assert_eq!(
        (&event["type"], &event["object"]["spec"]),
        (&json!("ADDED"), &json!({"width": 1})),
        "{event}"
    );
}

#[tokio::test(start_paused = true)]
async fn o10_object_pending_deletion_is_stored_in_the_storage_version() {
    let asked = Asked::default();
    let server = server(&asked, "").await;
    let mut object = widget("v2", "a", json!({"width": 3}));
    object["metadata"]["finalizers"] = json!(["example.com/wait"]);
    made(&post(&server, V2, object).await);
    let answer = ask(&server, Method::DELETE, &format!("{V2}/a"), Value::Null).await;
    assert_eq!(answer.body["spec"], json!({"width": 3}), "{}", answer.body);
    let stored = server
        .get("example.com/v1", "Widget", "default", "a")
        .await
        .expect("the object exists");
    assert_eq!(stored["spec"], json!({"size": 3}));
    assert!(stored["metadata"]["deletionTimestamp"].is_string());
}

#[rstest]
#[case::failure("failed", "conversion webhook for example.com/v1, Kind=Widget failed: cannot")]
#[case::another_uid(
    "uid",
    "conversion webhook for example.com/v1, Kind=Widget failed: expected response.uid="
)]
#[case::missing_object(
    "count",
    "conversion webhook for example.com/v1, Kind=Widget returned 0 objects, expected 1"
)]
#[case::another_name("name", "returned invalid object: must have the same name: a != other")]
#[case::another_version(
    "version",
    "returned invalid object at index 0: invalid groupVersion (expected example.com/v2, received \
     example.com/v9)"
)]
#[case::another_kind(
    "kind",
    "returned invalid object at index 0: invalid kind (expected Widget, received Gadget)"
)]
#[tokio::test(start_paused = true)]
async fn o10_invalid_conversion_responses_are_refused(#[case] spoil: &'static str, #[case] message: &str) {
    let asked = Asked::default();
    let server = server(&asked, spoil).await;
    made(&post(&server, V1, widget("v1", "a", json!({"size": 1}))).await);
    let answer = ask(&server, Method::GET, &format!("{V2}/a"), Value::Null).await;
    let (code, text) = answer.failure();
    assert!(code == 500 && text.contains(message), "{text}");
    assert_eq!(ask(&server, Method::GET, V2, Value::Null).await.code, 500);
}

#[tokio::test(start_paused = true)]
async fn o10_conversion_can_only_change_labels_and_annotations() {
    let asked = Asked::default();
    let server = server(&asked, "metadata").await;
    made(&post(&server, V1, widget("v1", "a", json!({"size": 1}))).await);
    let answer = ask(&server, Method::GET, &format!("{V2}/a"), Value::Null).await;
    let meta = &answer.body["metadata"];
    assert_eq!(
        (&meta["finalizers"], &meta["labels"]),
        (&Value::Null, &json!({"converted": "yes"}))
    );
}

#[tokio::test(start_paused = true)]
async fn o10_null_labels_from_a_conversion_webhook_are_dropped() {
    let server = server(&Asked::default(), "no labels").await;
    made(&post(&server, V2, widget("v2", "a", json!({"width": 1}))).await);
    let path = format!("{V1}/a");
    let answer = ask(&server, Method::GET, &path, Value::Null).await;
    assert_eq!(answer.body["metadata"].get("labels"), None, "{}", answer.body);
}

#[tokio::test(start_paused = true)]
async fn o10_conversion_webhook_receives_the_first_supported_review_version() {
    let asked = Asked::default();
    let answers = service(&asked, |_, review| converted(review, ""));
    let server = ApiServer::builder().webhook(HOST, answers).start();
    let mut crd = definition();
    crd["spec"]["conversion"]["webhook"]["conversionReviewVersions"] = json!(["v1beta1", "v1beta2"]);
    made(&post(&server, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd).await);
    let answer = post(&server, V2, widget("v2", "a", json!({"width": 3}))).await;
    made(&answer);
    assert_eq!(answer.body["spec"], json!({"width": 3}));
    assert_eq!(
        asked.lock().expect("the lock is not poisoned")[0].1["apiVersion"],
        "apiextensions.k8s.io/v1beta1"
    );
}

/// Applies a widget `a` with this spec.
async fn apply(server: &ApiServer, version: &str, manager: &str, spec: Value) -> Answer {
    let path = format!("/apis/example.com/{version}/namespaces/default/widgets/a?fieldManager={manager}");
    ask(server, Method::PATCH, &path, widget(version, "a", spec)).await
}

/// Returns the managers of an object, with the fields of its spec that they own.
fn owners(answer: &Answer) -> Value {
    let entries = answer.body["metadata"]["managedFields"].as_array();
    let owner = |it: &Value| json!([it["manager"], it["apiVersion"], it["fieldsV1"]["f:spec"]]);
    entries.into_iter().flatten().map(owner).collect()
}

#[tokio::test(start_paused = true)]
async fn o10_fields_applied_in_another_version_are_removed_after_conversion() {
    let server = server(&Asked::default(), "").await;
    made(&apply(&server, "v1", "one", json!({"size": 3})).await);
    let answer = apply(&server, "v2", "one", json!({})).await;
    assert_eq!(
        (answer.code, &answer.body["spec"]),
        (200, &json!({})),
        "{}",
        answer.body
    );
}

#[tokio::test(start_paused = true)]
async fn o10_conflicts_with_managers_of_another_version_are_found_by_conversion() {
    let server = server(&Asked::default(), "").await;
    made(&apply(&server, "v1", "one", json!({"size": 3})).await);
    let answer = apply(&server, "v2", "two", json!({"width": 4})).await;
    let text = "Apply failed with 1 conflict: conflict with \"one\": .spec.size";
    assert_eq!(answer.failure(), (409, text));

    let patch = json!({"spec": {"width": 4}});
    let answer = ask(&server, Method::PATCH, &format!("{V2}/a?fieldManager=two"), patch).await;
    let two = json!([["two", "example.com/v2", {"f:width": {}}]]);
    assert_eq!(owners(&answer), two, "{}", answer.body);
}

#[tokio::test(start_paused = true)]
async fn o10_apply_fails_if_managed_fields_refer_to_a_removed_version() {
    let server = ApiServer::start();
    let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let mut crd = definition();
    crd["spec"]["conversion"].take();
    for version in 0..2 {
        crd["spec"]["versions"][version]["storage"] = json!(version == 1);
    }
    made(&post(&server, crds, crd.clone()).await);
    made(&apply(&server, "v1", "one", json!({})).await);
    crd["spec"]["versions"]
        .as_array_mut()
        .expect("the value is a list")
        .remove(0);
    let versions = json!({"spec": {"versions": crd["spec"]["versions"]}});
    let crd = format!("{crds}/widgets.example.com");
    assert_eq!(ask(&server, Method::PATCH, &crd, versions).await.code, 200);

    let text = "request to convert CR to an invalid group/version: example.com/v1";
    for spec in [json!({}), json!({"width": 4})] {
        assert_eq!(apply(&server, "v2", "one", spec).await.failure(), (500, text));
    }
    let patch = json!({"spec": {"width": 4}});
    let answer = ask(&server, Method::PATCH, &format!("{V2}/a?fieldManager=two"), patch).await;
    assert_eq!((answer.code, owners(&answer)), (200, json!([])), "{}", answer.body);
}

#[rstest]
#[case::invalid_label(
    "label",
    "returned invalid metadata: metadata.labels: Invalid value: \"a b\": name part must consist of"
)]
#[case::label_of_another_type(
    "label type",
    "returned invalid metadata: metadata.labels[a] must be a string, but is int64 in \
    converted object"
)]
#[case::invalid_annotation(
    "annotation",
    "returned invalid metadata: metadata.annotation: Invalid value: \"a b\": name part"
)]
#[tokio::test(start_paused = true)]
async fn metadata_from_a_conversion_webhook_is_validated(#[case] spoil: &'static str, #[case] message: &str) {
    let server = server(&Asked::default(), spoil).await;
    let answer = post(&server, V2, widget("v2", "a", json!({"width": 3}))).await;
    let (code, text) = answer.failure();
    assert!(code == 500 && text.contains(message), "{code} {text}");
}

#[tokio::test(start_paused = true)]
async fn list_of_several_megabytes_is_converted() {
    let server = server(&Asked::default(), "").await;
    for index in 0..400 {
        let mut object = widget("v1", &format!("w{index}"), json!({"size": 1}));
        object["metadata"]["annotations"] = json!({"note": "x".repeat(8 * 1024)});
        server.load([object]).expect("the object is a Widget");
    }
    let list = ask(&server, Method::GET, V2, Value::Null).await;
    assert_eq!(list.code, 200, "{}", list.body);
    assert_eq!(list.body["items"].as_array().map(Vec::len), Some(400));
}
