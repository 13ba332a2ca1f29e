//! Access control at the HTTP boundary: tokens, impersonation, RBAC, reviews and ServiceAccount tokens.

use std::time::Duration;

use fake_apiserver::{Anonymous, ApiServer, ApiServerBuilder, Authorization, UserInfo, Worker};
use http::Request;
use rstest::rstest;
use serde_json::{Value, json};

/// A request that is built step by step and then sent.
struct Ask<'a> {
    server: &'a ApiServer,
    headers: Vec<(&'a str, String)>,
}

impl<'a> Ask<'a> {
    fn of(server: &'a ApiServer) -> Self {
        let headers = vec![("content-type", "application/json".to_owned())];
        Self { server, headers }
    }

    fn token(self, token: &str) -> Self {
        self.header("authorization", &format!("Bearer {token}"))
    }

    fn header(mut self, name: &'a str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }

    async fn send(&self, method: &str, path: &str, body: Value) -> (u16, Value) {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let answer = self
            .server
            .call(request.body(body).expect("the request is valid"))
            .await;
        let code = answer.status().as_u16();
        (code, serde_json::from_slice(answer.body()).unwrap_or(Value::Null))
    }

    async fn get(&self, path: &str) -> (u16, Value) {
        self.send("GET", path, Value::Null).await
    }
}

fn rbac() -> ApiServerBuilder {
    ApiServer::builder()
        .authorization(Authorization::Rbac)
        .token("dev-token", "dev", ["devs"])
}

fn role(rules: Value) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": {"name": "r", "namespace": "default"}, "rules": rules,
    })
}

fn binding(kind: &str, subject: Value) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind,
        "metadata": {"name": "r", "namespace": if kind == "RoleBinding" { "default" } else { "" }},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "name": if kind == "RoleBinding" { "r" } else { "view" },
            "kind": if kind == "RoleBinding" { "Role" } else { "ClusterRole" },
        },
        "subjects": [subject],
    })
}

const SECRETS: &str = "/api/v1/namespaces/default/secrets";

#[rstest]
#[case::without_authorization(ApiServer::builder(), None, 200)]
#[case::anonymous_refused_without_authorization(ApiServer::builder().anonymous(Anonymous::Refused), None, 401)]
#[case::unknown_token_without_authorization(ApiServer::builder(), Some("x"), 200)]
#[case::admin(rbac(), None, 200)]
#[case::anonymous_with_rbac(rbac().anonymous(Anonymous::Allowed), None, 403)]
#[case::anonymous_refused_with_rbac(rbac().anonymous(Anonymous::Refused), None, 401)]
#[case::unknown_token_with_rbac(rbac(), Some("x"), 401)]
#[case::user_without_permissions(rbac(), Some("dev-token"), 403)]
#[case::member_of_system_masters(rbac().token("m", "root", ["system:masters"]), Some("m"), 200)]
#[tokio::test(start_paused = true)]
async fn only_permitted_users_can_read_secrets(
    #[case] server: ApiServerBuilder,
    #[case] token: Option<&str>,
    #[case] code: u16,
) {
    let server = server.start();
    let ask = Ask::of(&server);
    let ask = match token {
        Some(token) => ask.token(token),
        None => ask,
    };
    assert_eq!(ask.get(SECRETS).await.0, code);
}

#[tokio::test(start_paused = true)]
async fn invalid_token_is_refused_with_401() {
    let server = rbac().start();
    let expected = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "Unauthorized",
        "reason": "Unauthorized", "code": 401,
    });
    assert_eq!(Ask::of(&server).token("x").get(SECRETS).await, (401, expected));
}

#[rstest]
#[case::object(
    "/api/v1/namespaces/a/pods/p",
    r#"pods "p" is forbidden: User "dev" cannot get resource "pods" in API group "" in the namespace "a""#
)]
#[case::subresource(
    "/api/v1/namespaces/a/pods/p/log",
    r#"pods "p" is forbidden: User "dev" cannot get resource "pods/log" in API group "" in the namespace "a""#
)]
#[case::list_in_all_namespaces("/apis/apps/v1/deployments",
    r#"deployments.apps is forbidden: User "dev" cannot list resource "deployments" in API group "apps" at the cluster scope"#)]
#[case::watch(
    "/api/v1/pods?watch=true",
    r#"pods is forbidden: User "dev" cannot watch resource "pods" in API group "" at the cluster scope"#
)]
#[case::namespace(
    "/api/v1/namespaces/a",
    r#"namespaces "a" is forbidden: User "dev" cannot get resource "namespaces" in API group "" in the namespace "a""#
)]
#[case::unserved_resource(
    "/apis/x.io/v1/things",
    r#"things.x.io is forbidden: User "dev" cannot list resource "things" in API group "x.io" at the cluster scope"#
)]
#[case::selected_name(
    "/api/v1/nodes?fieldSelector=metadata.name%3Dn",
    r#"nodes "n" is forbidden: User "dev" cannot list resource "nodes" in API group "" at the cluster scope"#
)]
#[case::selected_name_of_a_legacy_watch(
    "/api/v1/watch/nodes?fieldSelector=metadata.name%3Dn",
    r#"nodes is forbidden: User "dev" cannot watch resource "nodes" in API group "" at the cluster scope"#
)]
#[case::non_resource_path("/metrics", r#"forbidden: User "dev" cannot get path "/metrics""#)]
#[tokio::test(start_paused = true)]
async fn a23_forbidden_errors_describe_the_request(#[case] path: &str, #[case] message: &str) {
    let server = rbac().start();
    let (code, status) = Ask::of(&server).token("dev-token").get(path).await;
    assert_eq!((code, status["message"].as_str()), (403, Some(message)));
}

/// Only the requests for resources have other verbs.
#[rstest]
#[case("get", 403)]
#[case("head", 200)]
#[tokio::test(start_paused = true)]
async fn verb_of_a_request_for_a_path_is_its_method(#[case] verb: &str, #[case] code: u16) {
    let server = rbac().start();
    let mut role = role(json!([{"nonResourceURLs": ["/metrics"], "verbs": [verb]}]));
    role["kind"] = "ClusterRole".into();
    role["metadata"] = json!({"name": "view"});
    let binding = binding("ClusterRoleBinding", json!({"kind": "User", "name": "dev"}));
    server.load([role, binding]).expect("the objects are valid");
    let dev = Ask::of(&server).token("dev-token");
    assert_eq!(dev.send("HEAD", "/metrics", Value::Null).await.0, code);
}

/// Otherwise, a rule with `resourceNames` would allow the deletion of a collection.
#[tokio::test(start_paused = true)]
async fn collection_delete_is_authorized_without_the_name_in_its_field_selector() {
    let server = rbac().start();
    let path = format!("{SECRETS}?fieldSelector=metadata.name%3Da");
    let dev = Ask::of(&server).token("dev-token");
    let (code, status) = dev.send("DELETE", &path, Value::Null).await;
    let message = r#"secrets is forbidden: User "dev" cannot deletecollection resource "secrets" in API group "" in the namespace "default""#;
    assert_eq!((code, status["message"].as_str()), (403, Some(message)));
}

#[rstest]
#[case::user(json!({"kind": "User", "name": "dev"}), 200)]
#[case::group_of_the_user(json!({"kind": "Group", "name": "devs"}), 200)]
#[case::all_authenticated_users(json!({"kind": "Group", "name": "system:authenticated"}), 200)]
#[case::another_user(json!({"kind": "User", "name": "devs"}), 403)]
#[tokio::test(start_paused = true)]
async fn role_binding_applies_until_it_is_deleted(#[case] subject: Value, #[case] code: u16) {
    let server = rbac().start();
    let dev = Ask::of(&server).token("dev-token");
    let rules = json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["list"]}]);
    let bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
    let admin = Ask::of(&server);
    let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
    assert_eq!(admin.send("POST", roles, role(rules)).await.0, 201);
    assert_eq!(dev.get(SECRETS).await.0, 403);
    assert_eq!(
        admin.send("POST", bindings, binding("RoleBinding", subject)).await.0,
        201
    );
    assert_eq!(dev.get(SECRETS).await.0, code);
    assert_eq!(
        dev.get("/api/v1/secrets").await.0,
        403,
        "a Role only grants rights in its namespace"
    );
    assert_eq!(admin.send("DELETE", &format!("{bindings}/r"), Value::Null).await.0, 200);
    assert_eq!(dev.get(SECRETS).await.0, 403);
}

#[tokio::test(start_paused = true)]
async fn view_role_aggregates_labelled_roles() {
    let server = rbac().workers([Worker::ClusterRoleAggregation]).start();
    let user = json!({"kind": "User", "name": "dev"});
    let path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    let mut viewer = binding("ClusterRoleBinding", user);
    viewer["metadata"] = json!({"name": "viewer"});
    let admin = Ask::of(&server);
    assert_eq!(admin.send("POST", path, viewer).await.0, 201);
    let dev = Ask::of(&server).token("dev-token");
    assert_eq!(dev.get("/api/v1/pods").await.0, 200);
    assert_eq!(dev.get("/api/v1/secrets").await.0, 403);

    let lamps = "/apis/example.com/v1/lamps";
    assert_eq!(dev.get(lamps).await.0, 403);
    let more = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "lamps", "labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}},
        "rules": [{"apiGroups": ["example.com"], "resources": ["lamps"], "verbs": ["list"]}],
    });
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    assert_eq!(admin.send("POST", roles, more).await.0, 201);
    assert_eq!(
        dev.get(lamps).await.0,
        404,
        "the user has the right, but the object does not exist"
    );
    let (_, edit) = admin.get(&format!("{roles}/edit")).await;
    let has_lamps = |role: &Value| role["rules"].to_string().contains("lamps");
    assert!(has_lamps(&edit), "the role edit aggregates the role view");
    assert_eq!(
        admin.send("DELETE", &format!("{roles}/lamps"), Value::Null).await.0,
        200
    );
    let (_, edit) = admin.get(&format!("{roles}/edit")).await;
    assert!(!has_lamps(&edit));
}

#[rstest]
#[case::user_mode(&[("impersonate-user", "jane")], r#"cannot impersonate-on:user-info:list resource "secrets""#)]
#[case::account_mode(&[("impersonate-user", "system:serviceaccount:a:b")], r#"cannot impersonate-on:serviceaccount:list resource "secrets""#)]
#[case::account_with_groups(&[("impersonate-user", "system:serviceaccount:a:b"), ("impersonate-group", "g")], r#"cannot impersonate resource "serviceaccounts" in API group "" in the namespace "a""#)]
#[case::node(&[("impersonate-user", "system:node:n")], r#"cannot impersonate-on:arbitrary-node:list resource "secrets""#)]
#[tokio::test(start_paused = true)]
async fn q1_refused_impersonation_reports_the_missing_permission(
    #[case] headers: &[(&str, &str)],
    #[case] expected: &str,
) {
    let server = rbac().start();
    let mut ask = Ask::of(&server).token("dev-token");
    for (name, value) in headers {
        ask = ask.header(name, value);
    }
    let (code, status) = ask.get(SECRETS).await;
    let message = status["message"].as_str().unwrap_or_default();
    assert!(code == 403 && message.contains(expected), "{code} {message}");
}

#[tokio::test(start_paused = true)]
async fn q1_legacy_impersonate_permission_suffices() {
    let server = rbac().start();
    let objects = [
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "i"},
            "rules": [{"apiGroups": [""], "resources": ["users", "groups"], "verbs": ["impersonate"], "resourceNames": ["jane", "system:masters"]}],
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "i"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "i"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "dev"}],
        }),
    ];
    server.load(objects).expect("the objects are valid");
    let jane = || Ask::of(&server).token("dev-token").header("impersonate-user", "jane");
    assert_eq!(jane().get(SECRETS).await.0, 403);
    let master = jane().header("impersonate-group", "system:masters");
    assert_eq!(master.get(SECRETS).await.0, 200);
    let joe = Ask::of(&server).token("dev-token").header("impersonate-user", "joe");
    let (_, status) = joe.get(SECRETS).await;
    assert!(
        status["message"]
            .as_str()
            .is_some_and(|it| it.contains("\"dev\" cannot impersonate-on")),
        "{status}"
    );
}

/// Returns a server on which the user `dev` may impersonate users with the mode `user-info`.
fn impersonating(groups: &[&str]) -> ApiServer {
    let server = rbac().start();
    let identities = "authentication.k8s.io";
    let rules = json!([
        {"apiGroups": [identities], "resources": ["users", "uids"], "verbs": ["impersonate:user-info"]},
        {"apiGroups": [identities], "resources": ["groups"], "verbs": ["impersonate:user-info"], "resourceNames": groups},
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["impersonate-on:user-info:list"]},
    ]);
    let group = "rbac.authorization.k8s.io";
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "i"},
        "rules": rules});
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "i"}, "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "i"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": "dev"}]});
    server.load([role, binding]).expect("the objects are valid");
    server
}

const NO_EXTRA: &str = "userextras.authentication.k8s.io is forbidden: User \"dev\" cannot impersonate:user-info resource \
    \"userextras\" in API group \"authentication.k8s.io\" at the cluster scope: impersonating";
const GROUP_OF_DEV: &str = "is forbidden: User \"dev\" cannot impersonate:user-info resource \"groups\" in API group \
    \"authentication.k8s.io\" at the cluster scope: impersonating the";

#[rstest]
#[case::key_without_a_domain(&[("impersonate-extra-scopes", "view")], &format!("{NO_EXTRA} an invalid key in extra is \
    not allowed: extra.key: Invalid value: \"scopes\": must be a domain-prefixed path (such as \"acme.io/foo\")"))]
#[case::uppercase_key(&[("impersonate-extra-example.com%2F%41", "view")],
    &format!("{NO_EXTRA} a non-lowercase key in extra is not allowed: \"example.com/A\""))]
#[case::empty_value(&[("impersonate-extra-example.com%2Fa", "")],
    &format!("{NO_EXTRA} the empty string value in extra is not allowed"))]
#[case::empty_group(&[("impersonate-group", "")],
    &format!("groups.authentication.k8s.io {GROUP_OF_DEV} empty string group is not allowed"))]
#[case::masters_are_refused_first(&[("impersonate-group", "other"), ("impersonate-group", "system:masters")],
    &format!("groups.authentication.k8s.io \"system:masters\" {GROUP_OF_DEV} system:masters group is not allowed"))]
#[tokio::test(start_paused = true)]
async fn q1_constrained_impersonation_restricts_groups_and_extra_fields(
    #[case] headers: &[(&str, &str)],
    #[case] expected: &str,
) {
    let server = impersonating(&["*"]);
    let mut ask = Ask::of(&server).token("dev-token").header("impersonate-user", "jane");
    for (name, value) in headers {
        ask = ask.header(name, value);
    }
    let (code, status) = ask.get(SECRETS).await;
    assert_eq!((code, &status["message"]), (403, &json!(expected)));
}

const AS_JANE: &str = "secrets is forbidden: User \"jane\" cannot list";

#[rstest]
#[case::three_groups(&["a", "b", "c"], "groups.authentication.k8s.io \"a\" is forbidden")]
#[case::four_groups(&["a", "b", "c", "d"], AS_JANE)]
#[tokio::test(start_paused = true)]
async fn q1_wildcard_group_permission_suffices_for_more_than_three_groups(
    #[case] groups: &[&str],
    #[case] expected: &str,
) {
    let server = impersonating(&["*"]);
    let mut ask = Ask::of(&server).token("dev-token").header("impersonate-user", "jane");
    for group in groups {
        ask = ask.header("impersonate-group", group);
    }
    let (_, status) = ask.get(SECRETS).await;
    assert!(
        status["message"].as_str().is_some_and(|it| it.starts_with(expected)),
        "{status}"
    );
}

#[rstest]
#[case::account_with_three_parts("system:serviceaccount:ns:a:b", true)]
#[case::account("system:serviceaccount:ns:a", false)]
#[case::malformed_node("system:node:A_b", true)]
#[case::node("system:node:a", false)]
#[tokio::test(start_paused = true)]
async fn q1_malformed_node_and_account_names_are_treated_as_users(#[case] name: &str, #[case] is_plain: bool) {
    let server = impersonating(&[]);
    let ask = Ask::of(&server).token("dev-token").header("impersonate-user", name);
    let (_, status) = ask.get(SECRETS).await;
    let user = if is_plain { name } else { "dev" };
    let expected = format!("secrets is forbidden: User \"{user}\" cannot");
    assert!(
        status["message"].as_str().is_some_and(|it| it.starts_with(&expected)),
        "{status}"
    );
}

#[tokio::test(start_paused = true)]
async fn impersonated_groups_without_a_user_are_refused_with_400() {
    let server = ApiServer::start();
    let ask = Ask::of(&server).header("impersonate-group", "g");
    assert_eq!(ask.get(SECRETS).await.0, 400);
}

#[tokio::test(start_paused = true)]
async fn journal_contains_the_impersonated_user() {
    let server = ApiServer::start();
    Ask::of(&server).header("impersonate-user", "jane").get(SECRETS).await;
    let users: Vec<String> = server
        .journal()
        .entries()
        .into_iter()
        .filter_map(|entry| match entry {
            fake_apiserver::Entry::Request(request) => Some(request.user.name.clone()),
            fake_apiserver::Entry::Event(_) => None,
        })
        .collect();
    assert_eq!(users, ["jane"]);
}

const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";

async fn token(server: &ApiServer, spec: Value) -> (String, Value) {
    let admin = Ask::of(server);
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}});
    admin.send("POST", ACCOUNTS, account).await;
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
    let (code, answer) = admin.send("POST", &format!("{ACCOUNTS}/robot/token"), request).await;
    assert_eq!(code, 201, "{answer}");
    let token = answer["status"]["token"].as_str().unwrap_or_default().to_owned();
    (token, answer)
}

async fn whoami(server: &ApiServer, token: &str) -> (u16, Value) {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let (code, answer) = Ask::of(server).token(token).send("POST", path, review).await;
    (code, answer["status"]["userInfo"].clone())
}

#[tokio::test(start_paused = true)]
async fn i5_token_authenticates_its_account_until_it_expires() {
    let server = rbac().start();
    let (token, answer) = token(&server, json!({"expirationSeconds": 600})).await;
    assert_eq!(
        answer["spec"]["audiences"],
        json!(["https://kubernetes.default.svc.cluster.local"])
    );
    let (code, user) = whoami(&server, &token).await;
    assert_eq!(code, 201);
    assert_eq!(user["username"], "system:serviceaccount:default:robot");
    let groups = json!([
        "system:serviceaccounts",
        "system:serviceaccounts:default",
        "system:authenticated"
    ]);
    assert_eq!(user["groups"], groups);

    tokio::time::advance(Duration::from_secs(600)).await;
    assert_eq!(
        whoami(&server, &token).await.0,
        201,
        "a token is valid for another minute after its expiry"
    );
    tokio::time::advance(Duration::from_secs(62)).await;
    assert_eq!(whoami(&server, &token).await.0, 401);
}

#[tokio::test(start_paused = true)]
async fn i5_token_is_invalid_after_the_deletion_of_its_account() {
    let server = rbac().start();
    let (token, _) = token(&server, json!({})).await;
    assert_eq!(
        Ask::of(&server)
            .send("DELETE", &format!("{ACCOUNTS}/robot"), Value::Null)
            .await
            .0,
        200
    );
    assert_eq!(whoami(&server, &token).await.0, 401);
    self::token(&server, json!({})).await;
    assert_eq!(
        whoami(&server, &token).await.0,
        401,
        "a token is invalid for a new account with the same name"
    );
}

#[tokio::test(start_paused = true)]
async fn i5_token_for_another_audience_is_refused() {
    let server = rbac().start();
    let (token, _) = token(&server, json!({"audiences": ["vault"]})).await;
    assert_eq!(whoami(&server, &token).await.0, 401);
    let path = "/apis/authentication.k8s.io/v1/tokenreviews";
    let review = |audiences: Value| {
        json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
            "spec": {"token": token, "audiences": audiences},
        })
    };
    let (_, answer) = Ask::of(&server).send("POST", path, review(json!(["vault"]))).await;
    assert_eq!(answer["status"]["audiences"], json!(["vault"]));
    let (_, answer) = Ask::of(&server).send("POST", path, review(json!([]))).await;
    assert_eq!(answer["status"]["authenticated"], Value::Null, "{answer}");
    let why = answer["status"]["error"].as_str().unwrap_or_default();
    assert!(why.contains(r#"token audiences ["vault"] is invalid"#), "{why}");
}

#[tokio::test(start_paused = true)]
async fn i5_bound_token_contains_the_pod_and_is_invalid_after_the_pod_is_deleted() {
    let server = rbac().start();
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"},
        "spec": {"serviceAccountName": "robot", "nodeName": "n", "containers": [{"name": "c", "image": "i"}]},
    });
    server.load([pod]).expect("the object is valid");
    let bound = json!({"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "p"}});
    let (token, _) = token(&server, bound).await;
    let (_, user) = whoami(&server, &token).await;
    assert_eq!(user["extra"]["authentication.kubernetes.io/pod-name"], json!(["p"]));
    assert_eq!(user["extra"]["authentication.kubernetes.io/node-name"], json!(["n"]));
    let path = "/api/v1/namespaces/default/pods/p?gracePeriodSeconds=0";
    assert_eq!(Ask::of(&server).send("DELETE", path, Value::Null).await.0, 200);
    assert_eq!(whoami(&server, &token).await.0, 401);
}

/// Creates a Pod or Secret, and returns its uid.
async fn bound_object(server: &ApiServer, kind: &str) -> String {
    let fields = match kind {
        "Pod" => json!({"spec": {"serviceAccountName": "robot", "containers": [{"name": "c", "image": "i"}]}}),
        _ => json!({}),
    };
    let mut object = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "x", "namespace": "default"}});
    object["spec"] = fields["spec"].clone();
    let path = format!("/api/v1/namespaces/default/{}s", kind.to_lowercase());
    let _ = Ask::of(server).send("DELETE", &format!("{path}/x"), Value::Null).await;
    let (code, made) = Ask::of(server).send("POST", &path, object).await;
    assert_eq!(code, 201, "{made}");
    made["metadata"]["uid"].as_str().unwrap_or_default().to_owned()
}

#[rstest]
#[case("Pod", "pod")]
#[case("Secret", "secret")]
#[tokio::test(start_paused = true)]
async fn token_bound_to_a_recreated_object_is_invalid(#[case] kind: &str, #[case] name: &str) {
    let server = rbac().start();
    token(&server, json!({})).await;
    let old = bound_object(&server, kind).await;
    let bound = json!({"boundObjectRef": {"apiVersion": "v1", "kind": kind, "name": "x"}});
    let (token, _) = token(&server, bound).await;
    let new = bound_object(&server, kind).await;
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}});
    let path = "/apis/authentication.k8s.io/v1/tokenreviews";
    let (_, answer) = Ask::of(&server).send("POST", path, review).await;
    let expected = format!("{name} UID ({new}) does not match service account {name} ref claim ({old})");
    assert_eq!(
        answer["status"]["error"],
        format!("[invalid bearer token, {expected}]"),
        "{answer}"
    );
}

#[rstest]
#[case::role_with_more_permissions("roles",
    role(json!([{"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get", "list"]}])),
    "user \"dev\" (groups=[\"devs\" \"system:authenticated\"]) is attempting to grant RBAC permissions not currently held:\n{APIGroups:[\"apps\"], Resources:[\"deployments\"], Verbs:[\"get\" \"list\"]}")]
#[case::binding_to_a_missing_role("rolebindings", binding("RoleBinding", json!({"kind": "User", "name": "dev"})),
    "rolebindings.rbac.authorization.k8s.io \"r\" not found")]
#[tokio::test(start_paused = true)]
async fn q2_users_cannot_grant_permissions_they_lack(
    #[case] resource: &str,
    #[case] object: Value,
    #[case] message: &str,
) {
    let server = rbac().start();
    let admin = binding("ClusterRoleBinding", json!({"kind": "User", "name": "dev"}));
    let rules = json!([{"apiGroups": ["*"], "resources": ["roles", "rolebindings"], "verbs": ["create"]}]);
    let mut held = role(rules);
    held["kind"] = "ClusterRole".into();
    held["metadata"] = json!({"name": "view"});
    server.load([held, admin]).expect("the objects are valid");
    let path = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/default/{resource}");
    let (_, status) = Ask::of(&server).token("dev-token").send("POST", &path, object).await;
    let said = status["message"].as_str().unwrap_or_default();
    assert!(said.ends_with(message), "{said}");
}

/// In kube-apiserver, the check is a part of the computation of the new object, which precedes the check of its
/// version.
#[tokio::test(start_paused = true)]
async fn q2_missing_permissions_are_reported_before_an_outdated_version() {
    let server = rbac().start();
    let admin = binding("ClusterRoleBinding", json!({"kind": "User", "name": "dev"}));
    let mut held = role(json!([{"apiGroups": ["*"], "resources": ["roles"], "verbs": ["update"]}]));
    held["kind"] = "ClusterRole".into();
    held["metadata"] = json!({"name": "view"});
    server
        .load([held, admin, role(json!([]))])
        .expect("the objects are valid");
    let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
    let mut object = role(rules);
    object["metadata"]["resourceVersion"] = "1".into();
    let path = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles/r";
    let (code, status) = Ask::of(&server).token("dev-token").send("PUT", path, object).await;
    assert_eq!(code, 403, "{status}");
}

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Returns a server with the plugin `OwnerReferencesPermissionEnforcement`, on which the user `dev` has the permissions
/// of these verbs for ConfigMaps, and of `more`.
fn enforcing(verbs: &[&str], more: Value) -> ApiServer {
    let server = rbac().enable_admission_plugins(["OwnerReferencesPermissionEnforcement"]);
    let server = server.expect("the plugin is supported").start();
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": verbs}, more]);
    let held = binding("RoleBinding", json!({"kind": "User", "name": "dev"}));
    server.load([role(rules), held]).expect("the objects are valid");
    server
}

fn owned(api_version: &str, kind: &str, blocks: bool) -> Value {
    let mut owner = json!({"apiVersion": api_version, "kind": kind, "name": "owner", "uid": "u1"});
    if blocks {
        owner["blockOwnerDeletion"] = json!(true);
    }
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "child", "ownerReferences": [owner]}})
}

/// Returns a rule that permits the use of one verb on one core resource.
fn rule(resource: &str, verb: &str) -> Value {
    json!({"apiGroups": [""], "resources": [resource], "verbs": [verb]})
}

const NO_FINALIZERS: &str = "configmaps \"child\" is forbidden: cannot set blockOwnerDeletion if an ownerReference \
                             refers to a resource you can't set finalizers on: , <nil>";

#[rstest]
#[case::without_permission(owned("v1", "Secret", true), rule("secrets", "update"), NO_FINALIZERS)]
#[case::finalizers_of_another_resource(owned("v1", "Secret", true), rule("pods/finalizers", "update"), NO_FINALIZERS)]
#[case::finalizers_of_the_owner(owned("v1", "Secret", true), rule("secrets/finalizers", "update"), "")]
#[case::finalizers_of_all_resources(owned("v1", "Secret", true), rule("*/finalizers", "update"), "")]
#[case::owner_that_is_not_blocked(owned("v1", "Secret", false), rule("pods", "get"), "")]
#[case::unknown_kind_of_owner(
    owned("e.com/v1", "Foo", true),
    rule("secrets/finalizers", "update"),
    "configmaps \"child\" is forbidden: cannot set blockOwnerDeletion in this case because cannot find RESTMapping for \
     APIVersion e.com/v1 Kind Foo: no matches for kind \"Foo\" in version \"e.com/v1\""
)]
#[tokio::test(start_paused = true)]
async fn p9_blocked_owners_require_the_permission_to_update_their_finalizers(
    #[case] object: Value,
    #[case] more: Value,
    #[case] message: &str,
) {
    let server = enforcing(&["create"], more);
    let (code, answer) = Ask::of(&server)
        .token("dev-token")
        .send("POST", CONFIG_MAPS, object)
        .await;
    assert_eq!(code, if message.is_empty() { 201 } else { 403 }, "{answer}");
    assert_eq!(answer["message"].as_str().unwrap_or_default(), message);
}

#[rstest]
#[case::without_permission(&["update"], 403)]
#[case::with_permission(&["update", "delete"], 200)]
#[tokio::test(start_paused = true)]
async fn p9_change_of_owners_requires_the_permission_to_delete_the_object(#[case] verbs: &[&str], #[case] code: u16) {
    let server = enforcing(verbs, rule("secrets/finalizers", "update"));
    let unowned = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "child"}});
    assert_eq!(Ask::of(&server).send("POST", CONFIG_MAPS, unowned.clone()).await.0, 201);
    let path = format!("{CONFIG_MAPS}/child");
    let dev = Ask::of(&server).token("dev-token");
    assert_eq!(dev.send("PUT", &path, unowned).await.0, 200);
    let (got, answer) = dev.send("PUT", &path, owned("v1", "Secret", true)).await;
    assert_eq!(got, code, "{answer}");
    if code == 403 {
        let why = "configmaps \"child\" is forbidden: cannot set an ownerRef on a resource you can't delete: , <nil>";
        assert_eq!(answer["message"], why);
    }
}

#[tokio::test(start_paused = true)]
async fn rules_review_lists_the_permissions_of_the_user() {
    let server = rbac().start();
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {"namespace": "default"},
    });
    let path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    let (code, answer) = Ask::of(&server).token("dev-token").send("POST", path, review).await;
    assert_eq!(code, 201);
    let status = &answer["status"];
    assert_eq!(status["incomplete"], false);
    let own = json!({"verbs": ["create"], "apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"]});
    assert!(
        status["resourceRules"]
            .as_array()
            .is_some_and(|rules| rules.contains(&own)),
        "{status}"
    );
}

#[tokio::test(start_paused = true)]
async fn roles_created_in_a_fork_do_not_apply_to_the_original() {
    let server = rbac().start();
    let fork = server.fork();
    let rules = json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["list"]}]);
    let subject = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "dev"});
    fork.load([role(rules), binding("RoleBinding", subject)])
        .expect("the objects are valid");
    assert_eq!(Ask::of(&fork).token("dev-token").get(SECRETS).await.0, 200);
    assert_eq!(Ask::of(&server).token("dev-token").get(SECRETS).await.0, 403);
    server.restore(&fork.snapshot());
    assert_eq!(Ask::of(&server).token("dev-token").get(SECRETS).await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn service_account_is_distinguished_from_other_users() {
    let account = UserInfo::service_account("a", "b");
    assert_eq!(account.as_service_account(), Some(("a", "b")));
    assert_eq!(UserInfo::new("b", [""; 0]).as_service_account(), None);
}

/// Returns a server with a user who has these permissions in the namespace `default`.
async fn allowed(rules: Value) -> ApiServer {
    let server = rbac().start();
    let subject = json!({"kind": "User", "name": "dev", "apiGroup": "rbac.authorization.k8s.io"});
    server
        .load([role(rules), binding("RoleBinding", subject)])
        .expect("the objects are valid");
    server
}

#[rstest]
#[case::only_get(&["get"], "GET", 403)]
#[case::get_and_create(&["get", "create"], "GET", 404)]
#[case::only_create(&["create"], "POST", 404)]
#[tokio::test(start_paused = true)]
async fn get_connect_requests_require_the_create_permission(
    #[values("exec", "attach", "portforward")] subresource: &str,
    #[case] verbs: &[&str],
    #[case] method: &str,
    #[case] code: u16,
) {
    let resource = format!("pods/{subresource}");
    let server = allowed(json!([{"apiGroups": [""], "resources": [resource], "verbs": verbs}])).await;
    let path = format!("/api/v1/namespaces/default/pods/p/{subresource}?command=a&stdout=true&ports=1");
    let (found, status) = Ask::of(&server)
        .token("dev-token")
        .send(method, &path, Value::Null)
        .await;
    assert_eq!(found, code, "{status}");
    if code == 403 {
        assert_eq!(status["message"], "pods \"p\" is forbidden: ");
    }
}

const BEARER: &str = "base64url.bearer.authorization.k8s.io.";

#[rstest]
#[case::with_another_subprotocol(&format!("{BEARER}ZGV2LXRva2Vu, v4.channel.k8s.io"), true, 403)]
#[case::without_another_subprotocol(&format!("{BEARER}ZGV2LXRva2Vu"), true, 401)]
#[case::two_tokens(&format!("{BEARER}ZGV2LXRva2Vu, {BEARER}ZGV2LXRva2Vu, a"), true, 401)]
#[case::token_with_padding(&format!("{BEARER}ZGV2LXRva2VuMQ==, a"), true, 401)]
#[case::unknown_token(&format!("{BEARER}eA, a"), true, 401)]
#[case::without_an_upgrade(&format!("{BEARER}ZGV2LXRva2Vu, a"), false, 403)]
#[tokio::test(start_paused = true)]
async fn websocket_subprotocol_may_contain_a_token(#[case] protocols: &str, #[case] upgrades: bool, #[case] code: u16) {
    let server = rbac().anonymous(Anonymous::Allowed).start();
    let mut ask = Ask::of(&server).header("sec-websocket-protocol", protocols);
    if upgrades {
        ask = ask.header("connection", "Upgrade").header("upgrade", "websocket");
    }
    let (found, status) = ask.get(SECRETS).await;
    assert_eq!(found, code, "{status}");
    let names_dev = status["message"].as_str().is_some_and(|it| it.contains("User \"dev\""));
    assert_eq!(names_dev, code == 403 && upgrades, "{status}");
}

#[tokio::test(start_paused = true)]
async fn token_request_for_another_namespace_is_refused() {
    let server = ApiServer::start();
    let body = json!({"metadata": {"name": "b", "namespace": "other"}, "spec": {"audiences": ["a"]}});
    let path = "/api/v1/namespaces/default/serviceaccounts/missing/token";
    let (code, status) = Ask::of(&server).send("POST", path, body).await;
    let message = "the namespace of the provided object does not match the namespace sent on the request";
    assert_eq!((code, &status["message"]), (400, &json!(message)));
}

#[rstest]
#[case::in_the_name_of_an_object("/api/v1/namespaces/default/configmaps/a%2F%2Fb")]
#[case::before_another_encoded_slash("/api/v1/namespaces/default/configmaps/a%2F%2Fb%2Fc")]
#[tokio::test(start_paused = true)]
async fn name_with_an_encoded_double_slash_is_not_found(#[case] path: &str) {
    let server = ApiServer::start();
    let (code, status) = Ask::of(&server).get(path).await;
    assert_eq!(
        (code, &status["message"]),
        (404, &json!("the server could not find the requested resource"))
    );
}

#[tokio::test(start_paused = true)]
async fn group_of_a_missing_aggregated_server_is_unavailable() {
    let server = ApiServer::start();
    let service = json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": "v1beta1.metrics.example.com"},
        "spec": {"group": "metrics.example.com", "version": "v1beta1", "groupPriorityMinimum": 100,
            "versionPriority": 100, "service": {"name": "metrics", "namespace": "default"}},
    });
    let services = "/apis/apiregistration.k8s.io/v1/apiservices";
    let ask = Ask::of(&server);
    assert_eq!(ask.get("/apis/metrics.example.com/v1beta1/nodes").await.0, 404);
    assert_eq!(ask.send("POST", services, service).await.0, 201);
    for path in ["nodes", "namespaces/default/pods", ""] {
        let (code, _) = ask.get(&format!("/apis/metrics.example.com/v1beta1/{path}")).await;
        assert_eq!(code, 503, "{path}");
    }
    assert_eq!(ask.get("/apis/metrics.example.com/v1/nodes").await.0, 404);
}

#[tokio::test(start_paused = true)]
async fn access_review_cannot_be_shown_as_a_table() {
    let server = ApiServer::start();
    let ask = Ask::of(&server).header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io");
    let body = json!({"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}});
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    assert_eq!(ask.send("POST", path, body).await.0, 406);
}

#[rstest]
#[case::forbidden_request("dev-token", 403, true)]
#[case::allowed_request("", 404, false)]
#[tokio::test]
async fn only_responses_of_the_authorizer_have_the_nosniff_header(
    #[case] token: &str,
    #[case] code: u16,
    #[case] is_forbidden: bool,
) {
    let server = rbac().start();
    let mut request = Request::get("/api/v1/namespaces/default/pods/a");
    if !token.is_empty() {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let answer = server
        .call(request.body(String::new()).expect("the request is valid"))
        .await;
    let sniffing = answer.headers().get("x-content-type-options");
    assert_eq!((answer.status().as_u16(), sniffing.is_some()), (code, is_forbidden));
}
