//! Permissions that a write requires because of the objects that it refers to: parameters of policies, and the status
//! of ResourceClaims.

use fake_apiserver::{ApiServer, Authorization};
use http::Request;
use rstest::rstest;
use serde_json::{Value, json};

use crate::ask::made;

const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1";
const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1";
const CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
const DEV: &str = "dev-token";
/// No token, which is the administrator.
const ADMIN: &str = "";

/// Returns a server with RBAC, and a user `dev` with these rules.
async fn server(rules: Value) -> ApiServer {
    let builder = ApiServer::builder().authorization(Authorization::Rbac);
    let server = builder.token(DEV, "dev", ["devs"]).start();
    let role = json!({"metadata": {"name": "r"}, "rules": rules});
    send(&server, ADMIN, "POST", &format!("{ROLES}/clusterroles"), &role).await;
    let group = "rbac.authorization.k8s.io";
    let binding = json!({"metadata": {"name": "r"}, "subjects": [{"apiGroup": group, "kind": "User", "name": "dev"}],
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "r"}});
    send(
        &server,
        ADMIN,
        "POST",
        &format!("{ROLES}/clusterrolebindings"),
        &binding,
    )
    .await;
    server
}

/// Sends a request with a token. A PATCH is a merge patch.
async fn send(server: &ApiServer, token: &str, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let content_type = match method {
        "PATCH" => "application/merge-patch+json",
        _ => "application/json",
    };
    let mut request = Request::builder().method(method).uri(path);
    request = request.header("content-type", content_type);
    if !token.is_empty() {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let request = request.body(body.to_string()).expect("the request is valid");
    let response = server.call(request).await;
    let body = serde_json::from_slice(response.body()).unwrap_or_default();
    (response.status().as_u16(), body)
}

fn message(answer: &(u16, Value)) -> (u16, &str) {
    (answer.0, answer.1["message"].as_str().unwrap_or_default())
}

/// The type of policies under test.
#[derive(Clone, Copy, Debug)]
enum Type {
    Validating,
    Mutating,
}

impl Type {
    fn policies(self) -> String {
        format!("{POLICIES}/{}admissionpolicies", format!("{self:?}").to_lowercase())
    }

    fn bindings(self) -> String {
        format!(
            "{POLICIES}/{}admissionpolicybindings",
            format!("{self:?}").to_lowercase()
        )
    }

    fn policy(self, kind: &Value) -> Value {
        let mut policy = json!({"metadata": {"name": "p"}, "spec": {
            "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
                "resources": ["configmaps"]}]}}});
        if !kind.is_null() {
            policy["spec"]["paramKind"] = kind.clone();
        }
        match self {
            Self::Validating => policy["spec"]["validations"] = json!([{"expression": "true"}]),
            Self::Mutating => {
                policy["spec"]["reinvocationPolicy"] = json!("Never");
                policy["spec"]["mutations"] = json!([{"patchType": "ApplyConfiguration",
                    "applyConfiguration": {"expression": "Object{}"}}]);
            }
        }
        policy
    }

    fn binding(self, policy: &str, reference: &Value) -> Value {
        let mut binding = json!({"metadata": {"name": "b"}, "spec": {"policyName": policy}});
        if let Self::Validating = self {
            binding["spec"]["validationActions"] = json!(["Deny"]);
        }
        if !reference.is_null() {
            binding["spec"]["paramRef"] = reference.clone();
            binding["spec"]["paramRef"]["parameterNotFoundAction"] = json!("Deny");
        }
        binding
    }
}

fn policy_rules() -> Value {
    json!([{"apiGroups": ["admissionregistration.k8s.io"], "resources": ["*"], "verbs": ["*"]}])
}

fn config_map() -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap"})
}

fn foo() -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Foo"})
}

#[rstest]
#[case::built_in_kind(config_map(), "kind=ConfigMap, apiVersion=v1")]
#[case::unknown_kind(foo(), "kind=Foo, apiVersion=example.com/v1")]
#[tokio::test(start_paused = true)]
async fn parameter_kind_requires_a_permission(
    #[values(Type::Validating, Type::Mutating)] kind: Type,
    #[case] params: Value,
    #[case] shown: &str,
) {
    let server = server(policy_rules()).await;
    let path = kind.policies();
    let name = format!("{kind:?}AdmissionPolicy.admissionregistration.k8s.io \"p\" is invalid: spec.paramKind");
    let why = format!(
        "{name}: Forbidden: user &{{dev dev [devs system:authenticated] map[]}} must have \"get\" permission on all objects \
         of the referenced paramKind ({shown})"
    );
    let refused = send(&server, DEV, "POST", &path, &kind.policy(&params)).await;
    assert_eq!(message(&refused), (422, why.as_str()));

    let item = format!("{path}/p");
    let answer = send(&server, DEV, "POST", &path, &kind.policy(&Value::Null)).await;
    assert_eq!(message(&answer), (201, ""));
    let set = json!({"spec": {"paramKind": params}});
    let refused = send(&server, DEV, "PATCH", &item, &set).await;
    assert_eq!(message(&refused), (422, why.as_str()));
    assert_eq!(send(&server, ADMIN, "PATCH", &item, &set).await.0, 200);
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    assert_eq!(send(&server, DEV, "PATCH", &item, &label).await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn permission_for_all_objects_allows_a_parameter_kind() {
    let mut rules = policy_rules();
    let get = json!({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]});
    rules.as_array_mut().expect("the rules are a list").push(get);
    let server = server(rules).await;
    let kind = Type::Validating;
    let answer = send(&server, DEV, "POST", &kind.policies(), &kind.policy(&config_map())).await;
    assert_eq!(message(&answer), (201, ""));
    let reference = json!({"name": "x", "namespace": "default"});
    let answer = send(&server, DEV, "POST", &kind.bindings(), &kind.binding("p", &reference)).await;
    assert_eq!(message(&answer), (201, ""));
}

const USER: &str = "&{dev dev [devs system:authenticated] map[]}";

/// Returns the end of the refusal of a binding. Mutating bindings have user and verb in the wrong order.
fn lacks(kind: Type, verb: &str) -> String {
    let (user, verb) = match kind {
        Type::Validating => (USER, verb),
        Type::Mutating => (verb, USER),
    };
    format!("user {user} does not have \"{verb}\" permission on the object referenced by paramRef")
}

fn lacks_all(what: &str) -> String {
    format!(
        "{what} to determine minimum required permissions and user {USER} does not have \"get\" permission for all \
         groups, versions and resources"
    )
}

#[rstest]
#[case::by_name(config_map(), "p", json!({"name": "x", "namespace": "default"}), |kind| lacks(kind, "get"))]
#[case::by_selector(config_map(), "p", json!({"selector": {}}), |kind| lacks(kind, "list"))]
#[case::policy_without_parameters(Value::Null, "p", json!({"name": "x"}), |kind| lacks(kind, "get"))]
#[case::missing_policy(config_map(), "none", json!({"name": "x"}), |_| lacks_all("unable to get policy none"))]
#[case::unknown_kind(foo(), "p", json!({"name": "x"}),
    |_| lacks_all("unable to resolve paramKind &{example.com/v1 Foo}"))]
#[tokio::test(start_paused = true)]
async fn parameter_reference_requires_a_permission(
    #[values(Type::Validating, Type::Mutating)] kind: Type,
    #[case] params: Value,
    #[case] policy: &str,
    #[case] reference: Value,
    #[case] end: fn(Type) -> String,
) {
    let server = server(policy_rules()).await;
    send(&server, ADMIN, "POST", &kind.policies(), &kind.policy(&params)).await;
    let binding = kind.binding(policy, &reference);
    let why = format!(
        "{kind:?}AdmissionPolicyBinding.admissionregistration.k8s.io \"b\" is invalid: spec.paramRef: Forbidden: {}",
        end(kind)
    );
    let refused = send(&server, DEV, "POST", &kind.bindings(), &binding).await;
    assert_eq!(message(&refused), (422, why.as_str()));
    let created = send(&server, ADMIN, "POST", &kind.bindings(), &binding).await;
    assert_eq!(message(&created), (201, ""));
    // A reference with an action for missing parameters is checked in each update.
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    let refused = send(&server, DEV, "PATCH", &format!("{}/b", kind.bindings()), &label).await;
    assert_eq!(message(&refused), (422, why.as_str()));
}

#[tokio::test(start_paused = true)]
async fn binding_without_parameters_requires_no_permission() {
    let server = server(policy_rules()).await;
    let kind = Type::Validating;
    let binding = kind.binding("none", &Value::Null);
    let answer = send(&server, DEV, "POST", &kind.bindings(), &binding).await;
    assert_eq!(message(&answer), (201, ""));
}

/// Returns a server with a claim that is not allocated yet. The user `dev` may write the status of claims.
async fn server_with_claim() -> ApiServer {
    let server = server(json!([
        {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims/status"], "verbs": ["*"]},
        {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims/driver"], "verbs": ["arbitrary-node:patch"],
            "resourceNames": ["own.example.com"]},
    ]))
    .await;
    let request = json!({"name": "r", "exactly": {"deviceClassName": "k"}});
    let claim = json!({"metadata": {"name": "c"}, "spec": {"devices": {"requests": [request]}}});
    assert_eq!(send(&server, ADMIN, "POST", CLAIMS, &claim).await.0, 201);
    server
}

fn allocation() -> Value {
    let result = |driver: &str| json!({"request": "r", "driver": driver, "pool": "p", "device": "x"});
    let drivers = ["own.example.com", "d.example.com", "e.example.com"];
    json!({"devices": {"results": drivers.map(result)}})
}

fn device(driver: &str) -> Value {
    json!({"driver": driver, "pool": "p", "device": "x"})
}

async fn patch_status(server: &ApiServer, token: &str, status: Value) -> (u16, Value) {
    let body = json!({"status": status});
    send(server, token, "PATCH", &format!("{CLAIMS}/c/status"), &body).await
}

const NO_BINDING: &str = "status.allocation: Forbidden: changing status.allocation or status.reservedFor requires \
    resource=\"resourceclaims/binding\", verb=\"patch\" permission: resourceclaims.resource.k8s.io is forbidden: User \
    \"dev\" cannot patch resource \"resourceclaims/binding\" in API group \"resource.k8s.io\" at the cluster scope";

fn no_driver(name: &str) -> String {
    format!(
        "status.devices: Forbidden: changing status.devices requires resource=\"resourceclaims/driver\", \
         verb=\"[arbitrary-node:patch]\" permission: resourceclaims.resource.k8s.io \"{name}\" is forbidden: User \
         \"dev\" cannot arbitrary-node:patch resource \"resourceclaims/driver\" in API group \"resource.k8s.io\" in the \
         namespace \"default\""
    )
}

#[tokio::test(start_paused = true)]
async fn allocation_of_a_claim_requires_the_permission_to_bind_claims() {
    const INVALID: &str = "ResourceClaim.resource.k8s.io \"c\" is invalid: ";
    let server = server_with_claim().await;
    let refused = patch_status(&server, DEV, json!({"allocation": allocation()})).await;
    assert_eq!(message(&refused), (422, format!("{INVALID}{NO_BINDING}").as_str()));
    assert_eq!(patch_status(&server, DEV, json!({})).await.0, 200);
    let allocated = patch_status(&server, ADMIN, json!({"allocation": allocation()})).await;
    assert_eq!(message(&allocated), (200, ""));
    let consumer = json!({"resource": "pods", "name": "p", "uid": "u"});
    let status = json!({"reservedFor": [consumer], "devices": [device("d.example.com")]});
    let refused = patch_status(&server, DEV, status).await;
    let why = format!("{INVALID}[{NO_BINDING}, {}]", no_driver("d.example.com"));
    assert_eq!(message(&refused), (422, why.as_str()));
}

#[tokio::test(start_paused = true)]
async fn device_status_requires_the_permission_for_its_driver() {
    let server = server_with_claim().await;
    patch_status(&server, ADMIN, json!({"allocation": allocation()})).await;
    let (own, d, e) = (
        device("own.example.com"),
        device("d.example.com"),
        device("e.example.com"),
    );
    let refused = patch_status(&server, DEV, json!({"devices": [own, e, d]})).await;
    let why = format!(
        "ResourceClaim.resource.k8s.io \"c\" is invalid: [{}, {}]",
        no_driver("d.example.com"),
        no_driver("e.example.com")
    );
    assert_eq!(message(&refused), (422, why.as_str()));
    assert_eq!(patch_status(&server, DEV, json!({"devices": [own]})).await.0, 200);
    assert_eq!(patch_status(&server, ADMIN, json!({"devices": [own, d]})).await.0, 200);
    // An unchanged device status requires no permission, but its removal does.
    let changed = json!({"driver": "own.example.com", "pool": "p", "device": "x", "data": {"a": 1}});
    let answer = patch_status(&server, DEV, json!({"devices": [changed, d]})).await;
    assert_eq!(message(&answer), (200, ""));
    assert_eq!(patch_status(&server, DEV, json!({"devices": [own]})).await.0, 422);
}

#[rstest]
#[case::selectors(json!({"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}), 403,
    "clusterroles.rbac.authorization.k8s.io \"x\" is forbidden: must have cluster-admin privileges to use the \
     aggregationRule")]
#[case::missing_selectors(json!({}), 422, "ClusterRole.rbac.authorization.k8s.io \"x\" is invalid: \
     aggregationRule.clusterRoleSelectors: Required value: at least one clusterRoleSelector required if aggregationRule \
     is non-nil")]
#[tokio::test(start_paused = true)]
async fn aggregation_rule_requires_cluster_admin_permissions(
    #[case] rule: Value,
    #[case] code: u16,
    #[case] why: &str,
) {
    let group = "rbac.authorization.k8s.io";
    let server = server(json!([{"apiGroups": [group], "resources": ["clusterroles"], "verbs": ["create"]}])).await;
    let role = json!({"metadata": {"name": "x"}, "aggregationRule": rule});
    let refused = send(&server, DEV, "POST", &format!("{ROLES}/clusterroles"), &role).await;
    assert_eq!(message(&refused), (code, why));
}

/// Scales are validated after mutating webhooks.
#[cfg(feature = "cel")]
#[tokio::test(start_paused = true)]
async fn policy_can_correct_the_replicas_of_a_scale() {
    let server = ApiServer::start();
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let deployment = json!({"metadata": {"name": "d"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}});
    made(&crate::ask::post(&server, deployments, deployment).await);
    let scale = format!("{deployments}/d/scale");
    let negative = json!({"spec": {"replicas": -1}});
    assert_eq!(send(&server, ADMIN, "PATCH", &scale, &negative).await.0, 422);

    let kind = Type::Mutating;
    let mut policy = kind.policy(&Value::Null);
    policy["spec"]["matchConstraints"]["resourceRules"] = json!([{"apiGroups": ["apps"], "apiVersions": ["v1"],
        "operations": ["UPDATE"], "resources": ["deployments/scale"]}]);
    policy["spec"]["mutations"] = json!([{"patchType": "JSONPatch", "jsonPatch": {"expression":
        "[JSONPatch{op: 'replace', path: '/spec/replicas', value: 1}]"}}]);
    send(&server, ADMIN, "POST", &kind.policies(), &policy).await;
    send(
        &server,
        ADMIN,
        "POST",
        &kind.bindings(),
        &kind.binding("p", &Value::Null),
    )
    .await;
    let answer = send(&server, ADMIN, "PATCH", &scale, &negative).await;
    assert_eq!(
        (answer.0, &answer.1["spec"]["replicas"]),
        (200, &json!(1)),
        "{}",
        answer.1
    );
}
