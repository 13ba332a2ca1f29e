//! Audit events: levels, stages and rules, according to `audit.k8s.io/v1`.

use std::sync::{Arc, Mutex};

use axum::body::Body;
use fake_apiserver::{Anonymous, ApiServer, ApiServerBuilder, AuditPolicy, Authorization};
use http::Request;
use rstest::rstest;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::ask::{CONFIG_MAPS, config_map, get, request, send};

/// The lines written by a server.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<String>>);

impl Log {
    fn of(&self, builder: ApiServerBuilder, policy: &Value) -> ApiServer {
        let mut whole = json!({"apiVersion": "audit.k8s.io/v1", "kind": "Policy"});
        for (name, value) in policy.as_object().expect("a policy is an object") {
            whole[name] = value.clone();
        }
        let policy = AuditPolicy::parse(&whole.to_string()).expect("the policy is valid");
        let log = self.clone();
        builder
            .audit(policy, move |line| {
                log.0.lock().expect("the lock is not poisoned").push_str(line)
            })
            .start()
    }

    fn text(&self) -> String {
        self.0.lock().expect("the lock is not poisoned").clone()
    }

    fn events(&self) -> Vec<Value> {
        let text = self.text();
        text.lines()
            .map(|line| serde_json::from_str(line).expect("a line is JSON"))
            .collect()
    }
}

fn only(rule: Value) -> Value {
    json!({"rules": [rule], "omitStages": ["RequestReceived"]})
}

#[tokio::test(start_paused = true)]
async fn audit_event_has_the_field_order_of_the_go_struct() {
    let log = Log::default();
    let start = "2026-01-02T03:04:05Z".parse().expect("the time is valid");
    let server = log.of(
        ApiServer::builder().start_time(start),
        &json!({"rules": [{"level": "Metadata"}]}),
    );
    let asked = Request::get(format!("{CONFIG_MAPS}/none?pretty=false"))
        .header("user-agent", "test/1")
        .header("audit-id", "one")
        .header("x-forwarded-for", "192.0.2.1, nowhere");
    server.call(asked.body("").expect("the request is valid")).await;
    let before = r#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":"one","stage":""#;
    let about = concat!(
        r#"","requestURI":"/api/v1/namespaces/default/configmaps/none?pretty=false","verb":"get","#,
        r#""user":{"username":"system:admin","groups":["system:masters","system:authenticated"]},"#,
        r#""sourceIPs":["192.0.2.1"],"userAgent":"test/1","#,
        r#""objectRef":{"resource":"configmaps","namespace":"default","name":"none","apiVersion":"v1"},"#,
    );
    let status = concat!(
        r#""responseStatus":{"metadata":{},"status":"Failure","message":"configmaps \"none\" not found","#,
        r#""reason":"NotFound","details":{"name":"none","kind":"configmaps"},"code":404},"#,
    );
    let times = concat!(
        r#""requestReceivedTimestamp":"2026-01-02T03:04:05.000000Z","#,
        r#""stageTimestamp":"2026-01-02T03:04:05.000000Z""#,
    );
    let decided = r#","annotations":{"authorization.k8s.io/decision":"allow","authorization.k8s.io/reason":""}"#;
    let received = format!("{before}RequestReceived{about}{times}}}\n");
    let complete = format!("{before}ResponseComplete{about}{status}{times}{decided}}}\n");
    assert_eq!(log.text(), received + &complete);
}

#[rstest]
#[case::metadata("Metadata", false, false)]
#[case::request("Request", true, false)]
#[case::request_and_response("RequestResponse", true, true)]
#[tokio::test(start_paused = true)]
async fn audit_level_determines_the_recorded_bodies(
    #[case] level: &str,
    #[case] shows_request: bool,
    #[case] shows_response: bool,
) {
    let log = Log::default();
    let server = log.of(ApiServer::builder(), &only(json!({"level": level})));
    assert_eq!(send(&server, "POST", CONFIG_MAPS, config_map("a")).await, 201);
    let patch = json!({"data": {"k": "w"}});
    let asked = Request::patch(format!("{CONFIG_MAPS}/a")).header("content-type", "application/merge-patch+json");
    server
        .call(asked.body(patch.to_string()).expect("the request is valid"))
        .await;
    get(&server, CONFIG_MAPS).await;
    send(
        &server,
        "DELETE",
        &format!("{CONFIG_MAPS}/a"),
        json!({"gracePeriodSeconds": 0}),
    )
    .await;
    let events = log.events();
    let [created, patched, listed, deleted] = events.as_slice() else {
        panic!("expected four events, found {events:?}")
    };
    assert_eq!(created["objectRef"]["name"], "a", "the name is taken from the body");
    for (event, sent) in [
        (created, config_map("a")),
        (patched, patch),
        (
            deleted,
            json!({"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}),
        ),
    ] {
        let shown = event.get("requestObject");
        assert_eq!(shown, shows_request.then_some(&sent), "{event}");
    }
    assert_eq!(
        created.pointer("/responseObject/metadata/uid").is_some(),
        shows_response
    );
    assert_eq!(
        listed.pointer("/responseObject/items/0/data/k").is_some(),
        shows_response
    );
    assert_eq!(deleted["responseStatus"]["status"], "Success");
    assert_eq!(created["responseStatus"], json!({"metadata": {}, "code": 201}));
}

#[tokio::test(start_paused = true)]
async fn omit_managed_fields_removes_managed_fields_from_audit_events() {
    let log = Log::default();
    let rule = only(json!({"level": "RequestResponse", "omitManagedFields": true}));
    let server = log.of(ApiServer::builder(), &rule);
    send(&server, "POST", CONFIG_MAPS, config_map("a")).await;
    get(&server, CONFIG_MAPS).await;
    assert!(log.text().contains("resourceVersion"));
    assert!(!log.text().contains("managedFields"));
}

#[tokio::test(start_paused = true)]
async fn watch_has_three_audit_stages() {
    let log = Log::default();
    let server = log.of(ApiServer::builder(), &json!({"rules": [{"level": "Request"}]}));
    let stages = || -> Vec<String> {
        let events = log.events();
        events
            .iter()
            .map(|it| it["stage"].as_str().expect("the value is a string").to_owned())
            .collect()
    };
    let watch = Request::get(format!("{CONFIG_MAPS}?watch=1")).body(Body::empty());
    let Ok(answer) = server.service().oneshot(watch.expect("the request is valid")).await;
    assert_eq!(stages(), ["RequestReceived", "ResponseStarted"]);
    drop(answer);
    assert_eq!(stages(), ["RequestReceived", "ResponseStarted", "ResponseComplete"]);
    assert_eq!(log.events()[2]["responseStatus"]["code"], 200);
}

#[rstest]
#[case::user(json!({"users": ["system:admin"]}), true)]
#[case::another_user(json!({"users": ["jane"]}), false)]
#[case::group_of_the_user(json!({"userGroups": ["system:masters"]}), true)]
#[case::another_group(json!({"userGroups": ["devs"]}), false)]
#[case::verb(json!({"verbs": ["list"]}), true)]
#[case::another_verb(json!({"verbs": ["watch"]}), false)]
#[case::namespace(json!({"namespaces": ["default"]}), true)]
#[case::cluster_scoped(json!({"namespaces": [""]}), false)]
#[case::resource(json!({"resources": [{"group": "", "resources": ["configmaps"]}]}), true)]
#[case::api_group(json!({"resources": [{"group": ""}]}), true)]
#[case::another_resource(json!({"resources": [{"group": "apps", "resources": ["*"]}]}), false)]
#[case::subresource(json!({"resources": [{"group": "", "resources": ["configmaps/status"]}]}), false)]
#[case::any_subresource(json!({"resources": [{"group": "*", "resources": ["configmaps/*"]}]}), true)]
#[case::resource_name(json!({"resources": [{"resources": ["configmaps"], "resourceNames": ["a"]}]}), false)]
#[case::non_resource_paths(json!({"nonResourceURLs": ["*"]}), false)]
#[tokio::test(start_paused = true)]
async fn audit_rules_match_requests(#[case] mut rule: Value, #[case] matches: bool) {
    rule["level"] = "Metadata".into();
    let log = Log::default();
    let server = log.of(ApiServer::builder(), &only(rule));
    get(&server, CONFIG_MAPS).await;
    assert_eq!(log.events().len(), usize::from(matches));
}

#[rstest]
#[case::first_matching_rule(json!([{"level": "None", "nonResourceURLs": ["/health*"]}, {"level": "Metadata"}]), 0)]
#[case::path(json!([{"level": "Metadata", "nonResourceURLs": ["/healthz"]}]), 1)]
#[case::another_path(json!([{"level": "Metadata", "nonResourceURLs": ["/version", "/readyz*"]}]), 0)]
#[tokio::test(start_paused = true)]
async fn audit_rules_match_paths(#[case] rules: Value, #[case] events: usize) {
    let log = Log::default();
    let server = log.of(
        ApiServer::builder(),
        &json!({"rules": rules, "omitStages": ["RequestReceived"]}),
    );
    get(&server, "/healthz").await;
    assert_eq!(log.events().len(), events);
}

#[tokio::test(start_paused = true)]
async fn audit_events_contain_users_decisions_and_authentication_failures() {
    let log = Log::default();
    let builder = ApiServer::builder()
        .authorization(Authorization::Rbac)
        .anonymous(Anonymous::Admin)
        .token("dev", "dev", ["devs"]);
    let server = log.of(builder, &only(json!({"level": "Metadata"})));
    let asked = |headers: &[(&str, &str)]| {
        let mut asked = Request::get(CONFIG_MAPS);
        for (name, value) in headers {
            asked = asked.header(*name, *value);
        }
        server.call(asked.body("").expect("the request is valid"))
    };
    assert_eq!(asked(&[("authorization", "Bearer dev")]).await.status(), 403);
    assert_eq!(asked(&[("impersonate-user", "jane")]).await.status(), 403);
    assert_eq!(asked(&[("authorization", "Bearer nobody")]).await.status(), 401);
    let events = log.events();
    let [forbidden, impersonated, unknown] = events.as_slice() else {
        panic!("expected three events, found {events:?}")
    };
    assert_eq!(forbidden["user"]["username"], "dev");
    assert_eq!(forbidden["annotations"]["authorization.k8s.io/decision"], "forbid");
    assert_eq!(forbidden["responseStatus"]["reason"], "Forbidden");
    assert_eq!(impersonated["user"]["username"], "system:admin");
    assert_eq!(impersonated["impersonatedUser"]["username"], "jane");
    let constraint = &impersonated["authenticationMetadata"]["impersonationConstraint"];
    assert_eq!(constraint, "impersonate:user-info");
    assert_eq!(unknown["user"], json!({}));
    assert_eq!(unknown["stage"], "ResponseStarted");
    let message = "Authentication failed, attempted: bearer";
    assert_eq!(
        unknown["responseStatus"],
        json!({"metadata": {}, "message": message, "code": 401})
    );
}

#[rstest]
#[case::another_type(
    "{apiVersion: v1, kind: Policy}",
    "unknown group version field /v1, Kind=Policy in policy"
)]
#[case::missing_rules("{apiVersion: audit.k8s.io/v1, kind: Policy}", "loaded illegal policy with 0 rules")]
#[case::missing_level(
    "{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{}]}",
    "rules[0].level: Required value"
)]
#[case::unknown_stage(
    "{apiVersion: audit.k8s.io/v1, kind: Policy, omitStages: [Late], rules: [{level: None}]}",
    "omitStages[0]: Invalid value: \"Late\": allowed stages are RequestReceived,ResponseStarted,ResponseComplete,Panic"
)]
#[case::resources_and_paths(
    "{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: None, namespaces: [a], nonResourceURLs: [/a]}]}",
    "rules[0].nonResourceURLs: Invalid value: [\"/a\"]: rules cannot apply to both regular resources and \
     non-resource URLs"
)]
#[case::wildcard_within_a_path(
    "{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: None, nonResourceURLs: [\"/a*b\"]}]}",
    "rules[0].nonResourceURLs[0]: Invalid value: \"/a*b\": non-resource URL wildcards '*' must be the final \
     character of the rule"
)]
fn invalid_audit_policies_are_refused(#[case] text: &str, #[case] why: &str) {
    assert_eq!(
        AuditPolicy::parse(text).expect_err("the policy is invalid").to_string(),
        why
    );
}

#[tokio::test(start_paused = true)]
async fn requests_at_audit_level_none_are_not_recorded() {
    let log = Log::default();
    let server = log.of(ApiServer::builder(), &json!({"rules": [{"level": "None"}]}));
    server.call(request("GET", CONFIG_MAPS, &Value::Null)).await;
    assert_eq!(log.text(), "");
}
