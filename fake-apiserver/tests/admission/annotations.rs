//! Annotations that admission adds to the audit event of a request.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body;
use fake_apiserver::{ApiServer, ApiServerBuilder, AuditPolicy};
use http::{Method, Request, Response};
use rstest::rstest;
use serde_json::{Value, json};

use crate::ask::{Asked, HOST, MAPS, ask, configure, made, map, patch, post, read_review, reviewed, service};

type Lines = Arc<Mutex<Vec<String>>>;

/// Starts a server with an audit log of this level.
fn audited(builder: ApiServerBuilder, level: &str) -> (ApiServer, Lines) {
    let policy = format!(
        "{{apiVersion: audit.k8s.io/v1, kind: Policy, omitStages: [RequestReceived], rules: [{{level: {level}}}]}}"
    );
    let policy = AuditPolicy::parse(&policy).expect("the policy is valid");
    let lines = Lines::default();
    let kept = Arc::clone(&lines);
    let server = builder
        .audit(policy, move |line| {
            kept.lock().expect("the lock is not poisoned").push(line.to_owned());
        })
        .start();
    (server, lines)
}

/// Returns the annotations of the last event, except for annotations of the authorizer.
fn annotations(lines: &Lines) -> Value {
    let lines = lines.lock().expect("the lock is not poisoned");
    let last = lines.last().expect("the request has an event");
    let mut event: Value = serde_json::from_str(last).expect("a line is JSON");
    let found = event["annotations"].as_object_mut().expect("the event has annotations");
    found.retain(|key, _| !key.starts_with("authorization."));
    Value::Object(std::mem::take(found))
}

/// Returns a server with webhooks. Their response depends on the path.
fn with_webhooks(level: &str) -> (ApiServer, Lines) {
    let answers = service(&Asked::default(), |path, review| {
        let response = match path {
            "/deny" => json!({"allowed": false, "auditAnnotations": {"verdict": "no"}}),
            "/note" => json!({"auditAnnotations": {"why": "<b>", "no key": "x"}}),
            "/data" => patch(json!([{"value": {"k": "<"}, "path": "/data", "op": "add"}])),
            "/empty" => patch(json!([])),
            "/broken" => return json!({}),
            _ => json!({}),
        };
        reviewed(review, response)
    });
    audited(ApiServer::builder().webhook(HOST, answers), level)
}

fn mutation(webhook: &str, mutated: bool) -> String {
    format!(r#"{{"configuration":"m","webhook":"{webhook}","mutated":{mutated}}}"#)
}

#[rstest]
#[case::changed_object("Metadata", &[("a.example.com", "/data", json!({}))], json!({
    "mutation.webhook.admission.k8s.io/round_0_index_0": mutation("a.example.com", true)}))]
#[case::patch_at_audit_level_request("Request", &[("a.example.com", "/data", json!({}))], json!({
    "mutation.webhook.admission.k8s.io/round_0_index_0": mutation("a.example.com", true),
    "patch.webhook.admission.k8s.io/round_0_index_0": concat!(r#"{"configuration":"m","webhook":"a.example.com","#,
        r#""patch":[{"op":"add","path":"/data","value":{"k":"\u003c"}}],"patchType":"JSONPatch"}"#)}))]
#[case::unchanged_object("Request", &[("a.example.com", "/empty", json!({}))], json!({
    "mutation.webhook.admission.k8s.io/round_0_index_0": mutation("a.example.com", false)}))]
#[case::index_counts_skipped_webhooks("Metadata",
    &[("a.example.com", "/data", json!({"objectSelector": {"matchLabels": {"no": "no"}}})),
      ("b.example.com", "/x", json!({}))],
    json!({"mutation.webhook.admission.k8s.io/round_0_index_1": mutation("b.example.com", false)}))]
#[case::reinvoked_webhook("Metadata",
    &[("a.example.com", "/x", json!({"reinvocationPolicy": "IfNeeded"})), ("b.example.com", "/data", json!({}))],
    json!({"mutation.webhook.admission.k8s.io/round_0_index_0": mutation("a.example.com", false),
        "mutation.webhook.admission.k8s.io/round_0_index_1": mutation("b.example.com", true),
        "mutation.webhook.admission.k8s.io/round_1_index_0": mutation("a.example.com", false)}))]
#[case::ignored_failure("Metadata", &[("a.example.com", "/broken", json!({"failurePolicy": "Ignore"}))], json!({
    "mutation.webhook.admission.k8s.io/round_0_index_0": mutation("a.example.com", false),
    "failed-open.mutation.webhook.admission.k8s.io/round_0_index_0": "a.example.com"}))]
#[case::annotations_of_the_webhook("Metadata", &[("a.example.com", "/note", json!({}))], json!({
    "a.example.com/why": "<b>", "mutation.webhook.admission.k8s.io/round_0_index_0": mutation("a.example.com", false)}))]
#[case::annotations_of_a_denial("Metadata", &[("a.example.com", "/deny", json!({}))], json!({
    "a.example.com/verdict": "no", "mutation.webhook.admission.k8s.io/round_0_index_0": mutation("a.example.com", false)}))]
#[tokio::test(start_paused = true)]
async fn mutating_webhooks_annotate_the_audit_event(
    #[case] level: &str,
    #[case] hooks: &[(&str, &str, Value)],
    #[case] expected: Value,
) {
    let (server, lines) = with_webhooks(level);
    configure(&server, "Mutating", "m", hooks).await;
    post(&server, MAPS, map("a")).await;
    assert_eq!(annotations(&lines), expected);
}

#[tokio::test(start_paused = true)]
async fn validating_webhooks_annotate_the_audit_event() {
    let (server, lines) = with_webhooks("Metadata");
    let hooks = [
        (
            "a.example.com",
            "/x",
            json!({"objectSelector": {"matchLabels": {"no": "no"}}}),
        ),
        ("b.example.com", "/note", json!({})),
        ("c.example.com", "/broken", json!({"failurePolicy": "Ignore"})),
        ("d.example.com", "/deny", json!({})),
    ];
    configure(&server, "Validating", "v", &hooks).await;
    assert_eq!(post(&server, MAPS, map("a")).await.code, 400);
    // The index only counts webhooks that are called.
    let expected = json!({"b.example.com/why": "<b>", "d.example.com/verdict": "no",
        "failed-open.validating.webhook.admission.k8s.io/round_0_index_1": "c.example.com"});
    assert_eq!(annotations(&lines), expected);
}

/// The latencies are exact because of virtual time. Mutating webhooks are called one by one, validating webhooks
/// concurrently.
#[rstest]
#[case::mutating("Mutating", &["/300", "/400"], json!({"total": "700ms", "mutating-webhook": "700ms"}))]
#[case::validating("Validating", &["/600", "/1500", "/0"], json!({"total": "1.5s", "validating-webhook": "1.5s"}))]
#[case::fast_webhook("Validating", &["/500"], json!({}))]
#[tokio::test(start_paused = true)]
async fn latency_of_slow_webhooks_annotates_the_audit_event(
    #[case] kind: &str,
    #[case] paths: &[&str],
    #[case] expected: Value,
) {
    let hook = tower::service_fn(|request: Request<Body>| async move {
        let delay = request.uri().path()[1..]
            .parse()
            .expect("the text has a number of milliseconds");
        tokio::time::sleep(Duration::from_millis(delay)).await;
        let review = read_review(request).await;
        Ok::<_, Infallible>(Response::new(Body::from(reviewed(&review, json!({})).to_string())))
    });
    let (server, lines) = audited(ApiServer::builder().webhook(HOST, hook), "Metadata");
    let names = ["a.example.com", "b.example.com", "c.example.com"];
    let hooks: Vec<(&str, &str, Value)> = names
        .into_iter()
        .zip(paths)
        .map(|(it, path)| (it, *path, json!({})))
        .collect();
    configure(&server, kind, "c", &hooks).await;
    post(&server, MAPS, map("a")).await;
    let found = annotations(&lines);
    let found = found.as_object().into_iter().flatten();
    let found = found.filter_map(|(key, value)| Some((key.strip_prefix("apiserver.latency.k8s.io/")?, value.clone())));
    assert_eq!(Value::from_iter(found), expected);
}

#[cfg(feature = "cel")]
#[rstest]
#[case::failed_validation(json!({"validations": [{"expression": "true"}, {"expression": "false", "message": "<no>"}]}),
    json!(["Audit", "Warn"]), 201, json!({"validation.policy.admission.k8s.io/validation_failure": concat!(
        r#"[{"message":"\u003cno\u003e","policy":"p.example.com","binding":"b","expressionIndex":1,"#,
        r#""validationActions":["Audit","Warn"]}]"#)}))]
#[case::no_annotation_without_audit(json!({"validations": [{"expression": "false"}]}), json!(["Warn"]), 201, json!({}))]
#[case::audit_annotations(json!({"auditAnnotations": [{"key": "name", "valueExpression": "' ' + object.metadata.name"},
    {"key": "none", "valueExpression": "null"}, {"key": "empty", "valueExpression": "' '"}]}),
    json!(["Deny"]), 201, json!({"p.example.com/name": "a"}))]
#[case::error_that_denies_the_request(json!({"auditAnnotations": [{"key": "x", "valueExpression": "string(object.data.no)"}]}),
    json!(["Warn"]), 422, json!({}))]
#[case::ignored_error(json!({"failurePolicy": "Ignore",
    "auditAnnotations": [{"key": "x", "valueExpression": "string(object.data.no)"}]}), json!(["Deny"]), 201, json!({}))]
#[case::missing_params_that_deny_the_request(json!({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
    "validations": [{"expression": "true"}]}), json!(["Audit"]), 422, json!({}))]
#[tokio::test(start_paused = true)]
async fn policies_annotate_the_audit_event(
    #[case] mut spec: Value,
    #[case] actions: Value,
    #[case] code: u16,
    #[case] expected: Value,
) {
    let (server, lines) = audited(ApiServer::builder(), "Metadata");
    spec["matchConstraints"] = json!({"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"],
        "operations": ["CREATE"], "resources": ["configmaps"]}]});
    let group = "/apis/admissionregistration.k8s.io/v1";
    let has_params = spec.get("paramKind").is_some();
    let policy = json!({"metadata": {"name": "p.example.com"}, "spec": spec});
    made(&post(&server, &format!("{group}/validatingadmissionpolicies"), policy).await);
    let mut binding = json!({"policyName": "p.example.com", "validationActions": actions});
    if has_params {
        binding["paramRef"] = json!({"name": "no", "namespace": "default", "parameterNotFoundAction": "Deny"});
    }
    let binding = json!({"metadata": {"name": "b"}, "spec": binding});
    made(&post(&server, &format!("{group}/validatingadmissionpolicybindings"), binding).await);
    assert_eq!(post(&server, MAPS, map("a")).await.code, code);
    assert_eq!(annotations(&lines), expected);
}

fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "a", "image": "b"}]}})
}

#[tokio::test(start_paused = true)]
async fn pod_security_annotates_the_audit_event() {
    let (server, lines) = audited(ApiServer::builder(), "Metadata");
    let pods = "/api/v1/namespaces/default/pods";
    made(&post(&server, pods, pod("a")).await);
    let enforced = |level: &str| json!({"pod-security.kubernetes.io/enforce-policy": format!("{level}:latest")});
    assert_eq!(annotations(&lines), enforced("privileged"));
    let labels = json!({"pod-security.kubernetes.io/enforce": "baseline"});
    let space = json!({"metadata": {"labels": labels}});
    ask(&server, Method::PATCH, "/api/v1/namespaces/default", space).await;
    made(&post(&server, pods, pod("b")).await);
    assert_eq!(annotations(&lines), enforced("baseline"));
    let labels = json!({"pod-security.kubernetes.io/audit": "restricted"});
    let space = json!({"metadata": {"labels": labels}});
    ask(&server, Method::PATCH, "/api/v1/namespaces/default", space).await;
    made(&post(&server, pods, pod("c")).await);
    let found = annotations(&lines);
    let violations = found["pod-security.kubernetes.io/audit-violations"].as_str();
    let violations = violations.expect("the Pod violates the Pod Security level");
    assert!(
        violations.starts_with("would violate PodSecurity \"restricted:latest\": allowPrivilegeEscalation != false"),
        "{violations}"
    );
}

#[tokio::test(start_paused = true)]
async fn malformed_pod_security_labels_annotate_the_audit_event() {
    let (server, lines) = audited(ApiServer::builder(), "Metadata");
    let label = "pod-security.kubernetes.io/audit";
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a",
        "labels": {label: "bad"}}});
    server.load([namespace]).expect("the object is a namespace");
    made(&post(&server, "/api/v1/namespaces/a/pods", pod("p")).await);
    let why = format!(
        "Failed to parse policy: metadata.labels[{label}]: Invalid value: \"bad\": must be one of privileged, baseline, \
         restricted"
    );
    assert_eq!(annotations(&lines)["pod-security.kubernetes.io/error"], why);
}

#[tokio::test(start_paused = true)]
async fn issued_tokens_and_deprecated_kinds_annotate_the_audit_event() {
    let (server, lines) = audited(ApiServer::builder(), "Request");
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    made(&post(&server, accounts, json!({"metadata": {"name": "op"}})).await);
    made(&post(&server, &format!("{accounts}/op/token"), json!({"spec": {}})).await);
    let found = annotations(&lines);
    let credential = found["authentication.kubernetes.io/issued-credential-id"].as_str();
    assert!(credential.is_some_and(|it| it.starts_with("JTI=")), "{found}");
    let event = lines.lock().expect("the lock is not poisoned").last().cloned();
    let event: Value = serde_json::from_str(&event.unwrap_or_default()).expect("the text is an event");
    let shown = &event["requestObject"];
    assert_eq!(shown["kind"], "TokenRequest", "{event}");
    assert_eq!(shown["apiVersion"], "authentication.k8s.io/v1");
    ask(
        &server,
        Method::GET,
        "/api/v1/namespaces/default/endpoints",
        Value::Null,
    )
    .await;
    assert_eq!(annotations(&lines), json!({"k8s.io/deprecated": "true"}));
}

#[tokio::test(start_paused = true)]
async fn audit_events_contain_bodies_after_defaulting() {
    let (server, lines) = audited(ApiServer::builder(), "Request");
    made(&post(&server, "/api/v1/namespaces/default/pods", pod("a")).await);
    let lines = lines.lock().expect("the lock is not poisoned");
    assert!(lines[0].contains(r#""imagePullPolicy":"Always""#), "{}", lines[0]);
}
