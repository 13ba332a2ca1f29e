//! Webhooks that are registered with configuration objects.

use fake_apiserver::ApiServer;
use http::Method;
use rstest::rstest;
use serde_json::{Value, json};

use crate::ask::{Asked, HOST, MAPS, ask, configuration, configure, map, patch, post, reviewed, service};

/// Returns a server with webhooks. Their response depends on the path.
fn server(asked: &Asked) -> ApiServer {
    let answers = service(asked, |path, review| {
        let data = |key: &str| {
            patch(json!([{"op": "add", "path": "/data", "value": {
            "order": review["request"]["object"]["data"]["order"].as_str().unwrap_or_default().to_owned() + key}}]))
        };
        let response = match path {
            "/deny" => json!({"allowed": false, "status": {"message": "not today"}}),
            "/warn" => json!({"warnings": ["first", "second"]}),
            "/a" => data("a"),
            "/b" => data("b"),
            "/same" => patch(json!([{"op": "add", "path": "/metadata/name", "value": "a"}])),
            "/broken" => json!({"uid": "other"}),
            "/undecodable" => patch(json!({})),
            "/operation" => patch(json!([1])),
            "/bad" => patch(json!([{"op": "replace", "path": "/nothing/here", "value": 1}])),
            _ => json!({}),
        };
        reviewed(review, response)
    });
    ApiServer::builder().webhook(HOST, answers).start()
}

fn paths(asked: &Asked) -> Vec<String> {
    asked
        .lock()
        .expect("the lock is not poisoned")
        .iter()
        .map(|(path, _)| path.clone())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn p1_mutating_webhooks_run_in_name_order_before_validating_webhooks() {
    let asked = Asked::default();
    let server = server(&asked);
    configure(&server, "Mutating", "z", &[("z.example.com", "/b", json!({}))]).await;
    configure(&server, "Mutating", "a", &[("a.example.com", "/a", json!({}))]).await;
    configure(&server, "Validating", "v", &[("v.example.com", "/warn", json!({}))]).await;
    let answer = post(&server, MAPS, map("a")).await;
    assert_eq!(answer.body["data"]["order"], "ab");
    assert_eq!(answer.warnings, ["299 - \"first\"", "299 - \"second\""]);
    assert_eq!(paths(&asked), ["/a", "/b", "/warn"]);
    let asked = asked.lock().expect("the lock is not poisoned");
    assert_eq!(asked[2].1["request"]["object"]["data"]["order"], "ab");
}

#[tokio::test(start_paused = true)]
async fn p1_webhook_is_reinvoked_after_a_later_change() {
    let asked = Asked::default();
    let server = server(&asked);
    let again = json!({"reinvocationPolicy": "IfNeeded"});
    let hooks = [("a.example.com", "/a", again), ("b.example.com", "/b", json!({}))];
    configure(&server, "Mutating", "m", &hooks).await;
    let answer = post(&server, MAPS, map("a")).await;
    assert_eq!(answer.body["data"]["order"], "aba");
    assert_eq!(paths(&asked), ["/a", "/b", "/a"]);
}

#[tokio::test(start_paused = true)]
async fn p1_first_webhook_is_reinvoked_if_the_request_has_new_field_owners() {
    let asked = Asked::default();
    let server = server(&asked);
    let again = || json!({"reinvocationPolicy": "IfNeeded"});
    let hooks = [
        ("a.example.com", "/x", again()),
        ("b.example.com", "/same", again()),
        ("c.example.com", "/same", json!({})),
    ];
    configure(&server, "Mutating", "m", &hooks).await;
    let mut owned = map("a");
    owned["data"] = json!({"k": "v"});
    post(&server, MAPS, owned).await;
    assert_eq!(paths(&asked), ["/x", "/same", "/same", "/x"]);
    asked.lock().expect("the lock is not poisoned").clear();
    let unchanged = json!({"metadata": {"name": "a"}});
    ask(&server, Method::PATCH, &format!("{MAPS}/a"), unchanged).await;
    assert_eq!(paths(&asked), ["/x", "/same", "/same"]);
}

#[rstest]
#[case::denial("/deny", json!({}), 400, "admission webhook \"w.example.com\" denied the request: not today")]
#[case::denial_with_failure_policy_ignore("/deny", json!({"failurePolicy": "Ignore"}), 400,
    "admission webhook \"w.example.com\" denied the request: not today")]
#[case::inapplicable_patch("/bad", json!({"failurePolicy": "Ignore"}), 500,
    "Internal error occurred: replace operation does not apply: doc is missing path: /nothing/here: missing value")]
#[case::undecodable_patch("/undecodable", json!({}), 500,
    "Internal error occurred: failed calling webhook \"w.example.com\": received undecodable patch in webhook response: \
     json: cannot unmarshal object into Go value of type jsonpatch.Patch")]
#[case::undecodable_patch_with_failure_policy_ignore("/undecodable", json!({"failurePolicy": "Ignore"}), 201, "")]
#[case::undecodable_operation("/operation", json!({}), 500,
    "Internal error occurred: failed calling webhook \"w.example.com\": received undecodable patch in webhook response: \
     json: cannot unmarshal number into Go value of type jsonpatch.Operation")]
#[case::missing_service("/x", json!({"clientConfig": {"service": {"name": "s", "namespace": "n", "path": "/x"}}}), 500,
    "Internal error occurred: failed calling webhook \"w.example.com\": failed to call webhook: Post \
     \"https://s.n.svc:443/x?timeout=10s\": service \"s\" not found")]
#[tokio::test(start_paused = true)]
async fn p4_webhook_denials_return_400_and_failures_return_500(
    #[case] path: &str,
    #[case] more: Value,
    #[case] code: u16,
    #[case] message: &str,
) {
    let asked = Asked::default();
    let server = server(&asked);
    configure(&server, "Mutating", "m", &[("w.example.com", path, more)]).await;
    let answer = post(&server, MAPS, map("a")).await;
    assert_eq!(answer.failure(), (code, message));
}

#[rstest]
#[case::other_resource(json!({"rules": [rule("CREATE", "", "v1", "secrets")]}), false)]
#[case::any_resource(json!({"rules": [rule("*", "*", "*", "*")]}), true)]
#[case::any_resource_and_subresource(json!({"rules": [rule("*", "*", "*", "*/*")]}), true)]
#[case::subresources_only(json!({"rules": [rule("*", "*", "*", "configmaps/*")]}), true)]
#[case::other_operation(json!({"rules": [rule("DELETE", "", "v1", "configmaps")]}), false)]
#[case::namespaced(json!({"rules": [scoped("Namespaced")]}), true)]
#[case::cluster_scoped(json!({"rules": [scoped("Cluster")]}), false)]
#[case::other_namespace(json!({"namespaceSelector": {"matchLabels": {"a": "b"}}}), false)]
#[case::this_namespace(json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}}}), true)]
#[case::other_object(json!({"objectSelector": {"matchLabels": {"a": "c"}}}), false)]
#[case::this_object(json!({"objectSelector": {"matchLabels": {"a": "b"}}}), true)]
#[tokio::test(start_paused = true)]
async fn p5_rules_and_selectors_match_requests(#[case] more: Value, #[case] meant: bool) {
    let asked = Asked::default();
    let server = server(&asked);
    configure(&server, "Validating", "v", &[("v.example.com", "/ok", more)]).await;
    let mut object = map("a");
    object["metadata"]["labels"] = json!({"a": "b"});
    let answer = post(&server, MAPS, object).await;
    assert_eq!(answer.code, 201, "{}", answer.body);
    assert_eq!(paths(&asked).len(), usize::from(meant));
}

fn rule(operation: &str, group: &str, version: &str, resource: &str) -> Value {
    json!({"operations": [operation], "apiGroups": [group], "apiVersions": [version], "resources": [resource]})
}

fn scoped(scope: &str) -> Value {
    let mut rule = rule("*", "*", "*", "*");
    rule["scope"] = scope.into();
    rule
}

#[rstest]
#[case::equivalent("Equivalent", true)]
#[case::exact("Exact", false)]
#[tokio::test(start_paused = true)]
async fn p5_object_is_converted_for_webhooks_with_match_policy_equivalent(#[case] policy: &str, #[case] meant: bool) {
    let asked = Asked::default();
    let server = server(&asked);
    let rules = json!([rule("CREATE", "autoscaling", "v1", "horizontalpodautoscalers")]);
    let more = json!({"matchPolicy": policy, "rules": rules});
    configure(&server, "Validating", "v", &[("v.example.com", "/ok", more)]).await;
    let autoscaler = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "a"}, "spec": {"maxReplicas": 3,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
            "metrics": [{"type": "Resource", "resource": {"name": "cpu",
                "target": {"type": "Utilization", "averageUtilization": 50}}}]}});
    let path = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
    assert_eq!(post(&server, path, autoscaler).await.code, 201);
    let asked = asked.lock().expect("the lock is not poisoned");
    assert_eq!(asked.len(), usize::from(meant));
    if let Some((_, review)) = asked.first() {
        let request = &review["request"];
        assert_eq!(request["object"]["apiVersion"], "autoscaling/v1");
        assert_eq!(request["object"]["spec"]["targetCPUUtilizationPercentage"], 50);
        assert_eq!(
            (&request["kind"]["version"], &request["requestKind"]["version"]),
            (&json!("v1"), &json!("v2"))
        );
    }
}

#[tokio::test(start_paused = true)]
async fn k3_dry_run_is_passed_to_webhooks_without_side_effects() {
    let asked = Asked::default();
    let server = server(&asked);
    configure(
        &server,
        "Validating",
        "v",
        &[("v.example.com", "/ok", json!({"sideEffects": "NoneOnDryRun"}))],
    )
    .await;
    let answer = post(&server, &format!("{MAPS}?dryRun=All"), map("a")).await;
    assert_eq!(answer.code, 201);
    assert_eq!(
        asked.lock().expect("the lock is not poisoned")[0].1["request"]["dryRun"],
        true
    );
}

#[tokio::test(start_paused = true)]
async fn p5_admission_configuration_is_exempt_from_admission() {
    let asked = Asked::default();
    let server = server(&asked);
    let rules = json!({"rules": [rule("*", "*", "*", "*")]});
    configure(&server, "Validating", "v", &[("v.example.com", "/deny", rules)]).await;
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/v";
    assert_eq!(ask(&server, Method::DELETE, path, Value::Null).await.code, 200);
    assert_eq!(
        post(&server, MAPS, map("a")).await.code,
        201,
        "the deleted configuration has no effect"
    );
}

#[tokio::test(start_paused = true)]
async fn p2_webhook_must_accept_a_supported_review_version() {
    let server = ApiServer::start();
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    let more = json!({"admissionReviewVersions": ["v2"]});
    let body = configuration("Validating", "v", &[("v.example.com", "/", more)]);
    let answer = post(&server, path, body).await;
    let (code, text) = answer.failure();
    assert!(
        code == 422 && text.contains("must include at least one of v1, v1beta1"),
        "{text}"
    );
}

#[tokio::test(start_paused = true)]
async fn p4_slow_webhook_fails_at_its_timeout() {
    let slow = tower::service_fn(|_| async {
        tokio::time::sleep(std::time::Duration::from_secs(3600)).await;
        Ok::<_, std::convert::Infallible>(http::Response::new(axum::body::Body::empty()))
    });
    let server = ApiServer::builder().webhook(HOST, slow).start();
    configure(
        &server,
        "Validating",
        "v",
        &[("w.example.com", "/x", json!({"timeoutSeconds": 3}))],
    )
    .await;
    let begun = tokio::time::Instant::now();
    let answer = post(&server, MAPS, map("a")).await;
    let text = "Internal error occurred: failed calling webhook \"w.example.com\": failed to call webhook: Post \
                \"https://hooks.example.com/x?timeout=3s\": context deadline exceeded";
    assert_eq!(answer.failure(), (500, text));
    assert_eq!(begun.elapsed().as_secs(), 3);
}

#[tokio::test(start_paused = true)]
async fn fork_calls_the_webhooks_of_the_original() {
    let asked = Asked::default();
    let server = server(&asked);
    configure(&server, "Validating", "v", &[("v.example.com", "/deny", json!({}))]).await;
    let answer = post(&server.fork(), MAPS, map("a")).await;
    assert_eq!(answer.code, 400, "{}", answer.body);
}

/// Responses of v1beta1 webhooks lack the kind, the uid, and the type of a patch.
#[rstest]
#[case::v1beta1_first(json!(["v1beta1", "v1"]), "admission.k8s.io/v1beta1")]
#[case::unknown_first(json!(["v2", "v1beta1"]), "admission.k8s.io/v1beta1")]
#[case::v1_first(json!(["v1", "v1beta1"]), "admission.k8s.io/v1")]
#[tokio::test(start_paused = true)]
async fn p2_webhook_receives_the_first_supported_review_version(#[case] versions: Value, #[case] sent: &str) {
    let asked = Asked::default();
    let answers = service(&asked, |_, review| {
        let operations = json!([{"op": "add", "path": "/data", "value": {"k": "v"}}]);
        let mut answer = reviewed(review, patch(operations));
        if review["apiVersion"] == "admission.k8s.io/v1beta1" {
            answer = json!({"response": {"allowed": true, "patch": answer["response"]["patch"]}});
        }
        answer
    });
    let server = ApiServer::builder().webhook(HOST, answers).start();
    let more = json!({"admissionReviewVersions": versions});
    configure(&server, "Mutating", "m", &[("w.example.com", "/", more)]).await;
    let answer = post(&server, MAPS, map("a")).await;
    assert_eq!(
        (answer.code, &answer.body["data"]["k"]),
        (201, &json!("v")),
        "{}",
        answer.body
    );
    assert_eq!(asked.lock().expect("the lock is not poisoned")[0].1["apiVersion"], sent);
}

#[tokio::test(start_paused = true)]
async fn p1_webhook_whose_failure_is_ignored_is_reinvoked() {
    let asked = Asked::default();
    let server = server(&asked);
    let ignored = json!({"failurePolicy": "Ignore", "reinvocationPolicy": "IfNeeded"});
    let hooks = [
        ("a.example.com", "/broken", ignored),
        ("b.example.com", "/b", json!({})),
    ];
    configure(&server, "Mutating", "m", &hooks).await;
    assert_eq!(post(&server, MAPS, map("a")).await.code, 201);
    assert_eq!(paths(&asked), ["/broken", "/b", "/broken"]);
}

#[tokio::test(start_paused = true)]
async fn p5_first_matching_rule_determines_the_equivalent_version() {
    let asked = Asked::default();
    let server = server(&asked);
    let version = |name: &str| json!({"name": name, "served": true, "storage": name == "v1", "schema": {"openAPIV3Schema": {"type": "object"}}});
    let crd = json!({"metadata": {"name": "lamps.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced",
        "names": {"plural": "lamps", "kind": "Lamp"}, "versions": [version("v1"), version("v2"), version("v3")]}});
    let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(post(&server, crds, crd).await.code, 201);
    let rules = json!([
        rule("*", "example.com", "v2", "lamps"),
        rule("*", "example.com", "v1", "lamps")
    ]);
    configure(
        &server,
        "Validating",
        "v",
        &[("v.example.com", "/ok", json!({"rules": rules}))],
    )
    .await;
    let lamp = json!({"apiVersion": "example.com/v3", "kind": "Lamp", "metadata": {"name": "a"}});
    let answer = post(&server, "/apis/example.com/v3/namespaces/default/lamps", lamp).await;
    assert_eq!(answer.code, 201, "{}", answer.body);
    let asked = asked.lock().expect("the lock is not poisoned");
    assert_eq!(asked[0].1["request"]["kind"]["version"], "v2");
}

#[tokio::test(start_paused = true)]
async fn p5_object_selector_does_not_match_connect_requests() {
    let asked = Asked::default();
    let server = server(&asked);
    let selectors = [
        json!({}),
        json!({"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}),
    ];
    let [all, unlabelled] =
        selectors.map(|it| json!({"objectSelector": it, "rules": [rule("CONNECT", "", "v1", "pods/exec")]}));
    let hooks = [
        ("a.example.com", "/all", all),
        ("b.example.com", "/unlabelled", unlabelled),
    ];
    configure(&server, "Validating", "v", &hooks).await;
    post(
        &server,
        "/api/v1/namespaces/default/pods/p/exec?command=sh",
        Value::Null,
    )
    .await;
    assert_eq!(paths(&asked), ["/all"]);
}

#[cfg(feature = "cel")]
#[rstest]
#[case::object("object.apiVersion == 'autoscaling/v1'", true)]
#[case::kind("request.kind.version == 'v1'", true)]
#[case::resource("request.resource.version == 'v2'", true)]
#[case::namespace("namespaceObject == null", true)]
#[case::requested_version("object.apiVersion == 'autoscaling/v2'", false)]
#[tokio::test(start_paused = true)]
async fn p5_match_conditions_receive_the_version_that_matched(#[case] expression: &str, #[case] meant: bool) {
    let asked = Asked::default();
    let server = server(&asked);
    let rules = json!([rule("CREATE", "autoscaling", "v1", "horizontalpodautoscalers")]);
    let more = json!({"rules": rules, "matchConditions": [{"name": "c", "expression": expression}]});
    configure(&server, "Validating", "v", &[("v.example.com", "/ok", more)]).await;
    let autoscaler = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "a"}, "spec": {"maxReplicas": 3,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}}});
    let path = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
    let answer = post(&server, path, autoscaler).await;
    assert_eq!(answer.code, 201, "{}", answer.body);
    assert_eq!(paths(&asked).len(), usize::from(meant));
}

#[cfg(feature = "cel")]
#[tokio::test(start_paused = true)]
async fn p5_match_condition_error_contains_the_name_of_the_object() {
    let asked = Asked::default();
    let server = server(&asked);
    let more = json!({"rules": [rule("DELETE", "", "v1", "configmaps")],
        "matchConditions": [{"name": "c", "expression": "oldObject.data.x == 'y'"}]});
    configure(&server, "Validating", "v", &[("v.example.com", "/ok", more)]).await;
    assert_eq!(post(&server, MAPS, map("a")).await.code, 201);
    let why = "expression 'oldObject.data.x == 'y'' resulted in error: no such key: data";
    let refused = ask(&server, Method::DELETE, MAPS, Value::Null).await;
    assert_eq!(
        refused.failure(),
        (403, format!("configmaps is forbidden: {why}").as_str())
    );
    let refused = ask(&server, Method::DELETE, &format!("{MAPS}/a"), Value::Null).await;
    assert_eq!(
        refused.failure(),
        (403, format!("configmaps \"a\" is forbidden: {why}").as_str())
    );
}

const PODS: &str = "/api/v1/namespaces/default/pods";

fn pod() -> Value {
    json!({"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
}

/// A Pod without a node is marked with a grace period of 0 seconds, and then removed.
#[tokio::test(start_paused = true)]
async fn deletion_without_a_grace_period_is_admitted_before_the_mark_and_before_the_removal() {
    let asked = Asked::default();
    let server = server(&asked);
    let more = json!({"rules": [rule("DELETE", "", "v1", "pods")]});
    configure(&server, "Validating", "v", &[("v.example.com", "/ok", more)]).await;
    assert_eq!(post(&server, PODS, pod()).await.code, 201);
    assert_eq!(
        ask(&server, Method::DELETE, &format!("{PODS}/a"), Value::Null)
            .await
            .code,
        200
    );
    let asked = asked.lock().expect("the lock is not poisoned");
    let requests: Vec<&Value> = asked.iter().map(|(_, review)| &review["request"]).collect();
    assert_eq!(requests.len(), 2, "{requests:?}");
    assert_ne!(requests[0]["uid"], requests[1]["uid"]);
    let grace = |it: &Value| it["oldObject"]["metadata"]["deletionGracePeriodSeconds"].clone();
    assert_eq!((grace(requests[0]), grace(requests[1])), (Value::Null, json!(0)));
}

#[cfg(feature = "cel")]
#[tokio::test(start_paused = true)]
async fn pod_whose_removal_is_denied_remains_marked() {
    let asked = Asked::default();
    let server = server(&asked);
    let more = json!({"rules": [rule("DELETE", "", "v1", "pods")],
        "matchConditions": [{"name": "c", "expression": "has(oldObject.metadata.deletionTimestamp)"}]});
    configure(&server, "Validating", "v", &[("v.example.com", "/deny", more)]).await;
    assert_eq!(post(&server, PODS, pod()).await.code, 201);
    let denied = ask(&server, Method::DELETE, &format!("{PODS}/a"), Value::Null).await;
    assert_eq!(denied.code, 400, "{}", denied.body);
    let kept = ask(&server, Method::GET, &format!("{PODS}/a"), Value::Null).await;
    assert_eq!(kept.body["metadata"]["deletionGracePeriodSeconds"], 0, "{}", kept.body);
}
