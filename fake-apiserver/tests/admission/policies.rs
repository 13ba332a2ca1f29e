//! ValidatingAdmissionPolicies and MutatingAdmissionPolicies.

use fake_apiserver::{ApiServer, Authorization};
use http::Method;
use rstest::rstest;
use serde_json::{Value, json};

use crate::ask::{MAPS, ask, made, map, post};

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";

/// Creates a policy for ConfigMaps with its binding; `spec` and `binding` extend the specs.
async fn policy(server: &ApiServer, spec: Value, binding: Value) {
    let mut whole = json!({"matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"],
        "operations": ["CREATE", "UPDATE", "DELETE"], "resources": ["configmaps"]}]}});
    extend(&mut whole, spec);
    let policies = format!("{GROUP}/validatingadmissionpolicies");
    made(&post(server, &policies, json!({"metadata": {"name": "p"}, "spec": whole})).await);
    let mut whole = json!({"policyName": "p", "validationActions": ["Deny"]});
    extend(&mut whole, binding);
    let bindings = format!("{GROUP}/validatingadmissionpolicybindings");
    made(&post(server, &bindings, json!({"metadata": {"name": "b"}, "spec": whole})).await);
}

fn extend(whole: &mut Value, more: Value) {
    for (key, value) in more.as_object().into_iter().flatten() {
        whole[key] = value.clone();
    }
}

const BY: &str = "configmaps \"a\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: ";

#[rstest]
#[case::expression(json!({"expression": "object.data.k == 'x'"}), 422, "Invalid", "failed expression: object.data.k == 'x'")]
#[case::message(json!({"expression": "false", "message": "no"}), 422, "Invalid", "no")]
#[case::reason(json!({"expression": "false", "message": "no", "reason": "Forbidden"}), 403, "Forbidden", "no")]
#[case::reason_too_large(json!({"expression": "false", "reason": "RequestEntityTooLarge", "message": "no"}), 413,
    "RequestEntityTooLarge", "no")]
#[case::carriage_return(json!({"expression": "false", "messageExpression": r"'a\rb'"}), 422, "Invalid", "a\rb")]
#[case::evaluation_error(json!({"expression": "object.data.missing == 'x'"}), 422, "Invalid",
    "expression 'object.data.missing == 'x'' resulted in error: no such key: missing")]
#[case::error_in_a_variable(json!({"expression": "variables.broken"}), 422, "Invalid",
    "expression 'variables.broken' resulted in error: composited variable \"broken\" fails to evaluate: no such key: no")]
#[case::variable_that_is_not_evaluated(json!({"expression": "object.metadata.name == 'a' || variables.broken", "messageExpression": "'x'"}), 201, "", "")]
#[case::namespace(json!({"expression": "namespaceObject.metadata.name != 'default'", "message": "n"}), 422, "Invalid", "n")]
#[case::authorizer(json!({"expression": "!authorizer.group('').resource('pods').namespace('x').check('get').allowed()",
    "message": "may"}), 422, "Invalid", "may")]
#[case::old_object(json!({"expression": "oldObject != null", "message": "new"}), 422, "Invalid", "new")]
#[tokio::test(start_paused = true)]
async fn p7_denials_have_the_message_of_the_policy(
    #[case] validation: Value,
    #[case] code: u16,
    #[case] reason: &str,
    #[case] message: &str,
) {
    let server = ApiServer::start();
    let broken = json!([{"name": "broken", "expression": "object.data.no == 'x'"}]);
    policy(
        &server,
        json!({"validations": [validation], "variables": broken}),
        json!({}),
    )
    .await;
    let mut object = map("a");
    object["data"] = json!({"k": "v"});
    let answer = post(&server, MAPS, object).await;
    assert_eq!(answer.code, code, "{}", answer.body);
    if code != 201 {
        assert_eq!(answer.body["message"], format!("{BY}{message}"));
        assert_eq!(answer.body["reason"], reason);
    }
}

#[tokio::test(start_paused = true)]
async fn p7_action_warn_accepts_the_request() {
    let server = ApiServer::start();
    let spec = json!({"validations": [{"expression": "false", "message": "no"}]});
    policy(&server, spec, json!({"validationActions": ["Warn", "Audit"]})).await;
    let answer = post(&server, MAPS, map("a")).await;
    made(&answer);
    let text = "299 - \"Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b': no\"";
    assert_eq!(answer.warnings, [text]);
}

#[rstest]
#[case::fail("Fail", 422)]
#[case::ignore("Ignore", 201)]
#[tokio::test(start_paused = true)]
async fn p7_failure_policy_applies_to_errors(#[case] failure_policy: &str, #[case] code: u16) {
    let server = ApiServer::start();
    let spec = json!({"failurePolicy": failure_policy, "validations": [{"expression": "object.spec.x == 1"}]});
    policy(&server, spec, json!({})).await;
    assert_eq!(post(&server, MAPS, map("a")).await.code, code);
}

#[rstest]
#[case::by_name(json!({"name": "limits", "namespace": "default", "parameterNotFoundAction": "Deny"}), 422)]
#[case::namespace_of_the_request(json!({"name": "limits", "parameterNotFoundAction": "Deny"}), 422)]
#[case::by_label(json!({"selector": {"matchLabels": {"limits": "yes"}}, "parameterNotFoundAction": "Deny"}), 422)]
#[case::missing_and_denied(json!({"name": "gone", "parameterNotFoundAction": "Deny"}), 422)]
#[case::missing_and_allowed(json!({"name": "gone", "parameterNotFoundAction": "Allow"}), 201)]
#[tokio::test(start_paused = true)]
async fn p7_parameters_are_passed_to_expressions(#[case] reference: Value, #[case] code: u16) {
    let server = ApiServer::start();
    let mut limits = map("limits");
    limits["metadata"]["labels"] = json!({"limits": "yes"});
    limits["data"] = json!({"longest": "0"});
    made(&post(&server, MAPS, limits).await);
    let spec = json!({
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "matchConditions": [{"name": "c", "expression": "object.metadata.name != 'spared'"}],
        "validations": [{"expression": "size(object.metadata.name) <= int(params.data.longest)"}],
    });
    policy(&server, spec, json!({"paramRef": reference})).await;
    assert_eq!(post(&server, MAPS, map("a")).await.code, code);
    let spared = post(&server, MAPS, map("spared")).await;
    assert_eq!(
        spared.code == 201,
        reference["name"].as_str().is_none_or(|it| it != "gone") || code == 201
    );
}

#[tokio::test(start_paused = true)]
async fn p7_object_is_null_in_policies_for_deletes() {
    let server = ApiServer::start();
    made(&post(&server, MAPS, map("a")).await);
    let validation = json!({"expression": "request.operation != 'DELETE' || object != null || oldObject.metadata.name != 'a'",
        "message": "kept"});
    policy(&server, json!({"validations": [validation]}), json!({})).await;
    let answer = ask(&server, Method::DELETE, &format!("{MAPS}/a"), Value::Null).await;
    assert_eq!(answer.failure(), (422, format!("{BY}kept").as_str()));
}

#[rstest]
#[case::syntax("object.", "compilation failed")]
#[case::result("1 + 1", "must evaluate to bool but got int")]
#[case::name("nobody.x == 1", "undeclared reference to 'nobody' (in container '')")]
#[case::params("params.x == 1", "undeclared reference to 'params' (in container '')")]
#[tokio::test(start_paused = true)]
async fn p7_expressions_are_compiled_when_the_policy_is_written(#[case] expression: &str, #[case] message: &str) {
    let server = ApiServer::start();
    let spec = json!({"matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"],
        "operations": ["CREATE"], "resources": ["configmaps"]}]}, "validations": [{"expression": expression}]});
    let path = format!("{GROUP}/validatingadmissionpolicies");
    let answer = post(&server, &path, json!({"metadata": {"name": "p"}, "spec": spec})).await;
    let (code, text) = answer.failure();
    assert!(
        code == 422 && text.contains("spec.validations[0].expression") && text.contains(message),
        "{text}"
    );
}

// The errors contain the type names of kube-apiserver.
#[rstest]
#[case::field("object.a", "dyn")]
#[case::items("object.a.b[0]", "dyn")]
#[case::sum("object.a + 1", "int")]
#[case::sum_of_fields("object.a + object.b", "dyn")]
#[case::conditional("true ? object.a : true", "dyn")]
#[case::optional("object.?a", "optional_type(dyn)")]
#[case::optional_with_a_default("object.?a.orValue(true)", "dyn")]
#[case::list("[object.a]", "list(dyn)")]
#[case::map("{'a': 1}", "map(string, int)")]
#[case::map_macro("object.list.map(x, 'a')", "list(string)")]
#[case::filter_macro("[[1]].filter(x, true)", "list(list(int))")]
#[case::variable("variables.number", "int")]
#[case::request("request.userInfo.groups", "list(string)")]
#[case::duration("duration('1s')", "google.protobuf.Duration")]
#[tokio::test(start_paused = true)]
async fn p7_expressions_must_have_the_required_type(#[case] expression: &str, #[case] found: &str) {
    let refusal = async |list: &str, item: Value| {
        let variables = json!([{"name": "number", "expression": "1"}]);
        let rules =
            json!([{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]);
        let spec = json!({"matchConstraints": {"resourceRules": rules}, "variables": variables, list: [item]});
        let policies = format!("{GROUP}/validatingadmissionpolicies");
        let answer = post(
            &ApiServer::start(),
            &policies,
            json!({"metadata": {"name": "p"}, "spec": spec}),
        )
        .await;
        let cause = &answer.body["details"]["causes"][0];
        (answer.code, cause["message"].as_str().unwrap_or_default().to_owned())
    };
    let value = format!("Invalid value: \"{expression}\": must evaluate to");
    let validation = refusal("validations", json!({"expression": expression})).await;
    assert_eq!(validation, (422, format!("{value} bool but got {found}")));
    let annotation = refusal("auditAnnotations", json!({"key": "k", "valueExpression": expression})).await;
    assert_eq!(
        annotation,
        (422, format!("{value} one of [string null_type] but got {found}"))
    );
}

// Expressions of unknown type are accepted.
#[rstest]
#[case("object.a == 1")]
#[case("object.list.all(x, x)")]
#[case("object.list.exists_one(x, x.y)")]
#[case("has(object.a)")]
#[case("request.dryRun || !object.a")]
#[case("[1, 2].map(x, x * 2).exists(x, x in object.list)")]
#[case("object.list.map(x, x.y).size() > 1")]
#[case("authorizer.group('').resource('pods').check('get').allowed()")]
#[case("object.?a.hasValue()")]
#[case("optional.of(true).orValue(false)")]
#[tokio::test(start_paused = true)]
async fn p7_expressions_of_the_right_type_are_accepted(#[case] expression: &str) {
    let server = ApiServer::start();
    policy(&server, json!({"validations": [{"expression": expression}]}), json!({})).await;
}

/// The type of each name is twice as large as the type before it.
#[tokio::test(start_paused = true)]
async fn p7_nested_maps_do_not_cause_exponentially_large_types() {
    let variable = |at: usize| match at {
        0 => json!({"name": "v0", "expression": "{1: 1}"}),
        _ => json!({"name": format!("v{at}"), "expression": format!("{{variables.v{0}: variables.v{0}}}", at - 1)}),
    };
    let variables: Vec<Value> = (0..64).map(variable).collect();
    let nested = (1..40).rev().fold("true".to_owned(), |inner, at| {
        format!("[{{a{0}: a{0}}}].all(a{at}, {inner})", at - 1)
    });
    let validations = json!([{"expression": "true"}, {"expression": format!("[1].all(a0, {nested})")}]);
    let spec = json!({"validations": validations, "variables": variables});
    policy(&ApiServer::start(), spec, json!({})).await;
}

async fn mutating_policy(server: &ApiServer, mutation: Value) {
    named_mutating_policy(server, "p", json!({"mutations": [mutation]})).await;
}

/// Creates a mutating policy for ConfigMaps with its binding, which is called `b`, followed by the policy's name unless
/// it is `p`.
async fn named_mutating_policy(server: &ApiServer, name: &str, spec: Value) {
    let mut whole = json!({"reinvocationPolicy": "Never", "matchConstraints": {"resourceRules": [{
        "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]}});
    extend(&mut whole, spec);
    let path = format!("{GROUP}/mutatingadmissionpolicies");
    made(&post(server, &path, json!({"metadata": {"name": name}, "spec": whole})).await);
    let path = format!("{GROUP}/mutatingadmissionpolicybindings");
    let binding = format!("b{}", name.trim_start_matches('p'));
    let binding = json!({"metadata": {"name": binding}, "spec": {"policyName": name}});
    made(&post(server, &path, binding).await);
}

/// Returns a mutation that sets a label to an expression.
fn label(name: &str, value: &str) -> Value {
    let expression = format!("Object{{metadata: Object.metadata{{labels: {{'{name}': {value}}}}}}}");
    json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}})
}

#[tokio::test(start_paused = true)]
async fn p8_mutating_policies_match_the_original_object() {
    let server = ApiServer::start();
    named_mutating_policy(&server, "a", json!({"mutations": [label("x", "'y'")]})).await;
    let rules =
        json!([{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]);
    let labelled = json!({"resourceRules": rules, "objectSelector": {"matchLabels": {"x": "y"}}});
    let later = json!({"mutations": [label("late", "'y'")], "matchConstraints": labelled});
    named_mutating_policy(&server, "b", later).await;
    let answer = post(&server, MAPS, map("a")).await;
    assert_eq!(answer.body["metadata"]["labels"], json!({"x": "y"}), "{}", answer.body);
}

#[tokio::test(start_paused = true)]
async fn p8_second_round_only_runs_policies_of_the_first_round() {
    let server = ApiServer::start();
    let is_labelled =
        json!([{"name": "c", "expression": "has(object.metadata.labels) && 'z' in object.metadata.labels"}]);
    let skipped =
        json!({"mutations": [label("a", "'y'")], "matchConditions": is_labelled, "reinvocationPolicy": "IfNeeded"});
    named_mutating_policy(&server, "a", skipped).await;
    let again = "has(object.metadata.labels) && 'z' in object.metadata.labels ? 'again' : 'first'";
    let run = json!({"mutations": [label("b", again)], "reinvocationPolicy": "IfNeeded"});
    named_mutating_policy(&server, "b", run).await;
    named_mutating_policy(&server, "c", json!({"mutations": [label("z", "'y'")]})).await;
    let answer = post(&server, MAPS, map("a")).await;
    assert_eq!(
        answer.body["metadata"]["labels"],
        json!({"b": "again", "z": "y"}),
        "{}",
        answer.body
    );
}

#[tokio::test(start_paused = true)]
async fn p8_failed_mutation_does_not_undo_other_mutations() {
    let server = ApiServer::start();
    let mutations = json!([label("a", "'y'"), label("b", "object.data.none"), label("c", "'y'")]);
    named_mutating_policy(&server, "p", json!({"mutations": mutations, "failurePolicy": "Ignore"})).await;
    let answer = post(&server, MAPS, map("a")).await;
    assert_eq!(
        answer.body["metadata"]["labels"],
        json!({"a": "y", "c": "y"}),
        "{}",
        answer.body
    );
}

#[tokio::test(start_paused = true)]
async fn p8_refusal_lists_all_failed_mutations() {
    let server = ApiServer::start();
    let mutations = json!([label("a", "object.data.first"), label("b", "object.data.second")]);
    named_mutating_policy(&server, "p", json!({"mutations": mutations})).await;
    let answer = post(&server, MAPS, map("a")).await;
    let denied = "policy 'p' with binding 'b' denied request: ";
    let (code, message) = answer.failure();
    assert_eq!(
        (code, answer.body["reason"].as_str()),
        (403, Some("Invalid")),
        "{message}"
    );
    assert!(message.starts_with(denied), "{message}");
    let causes = answer.body["details"]["causes"].as_array().cloned().unwrap_or_default();
    assert_eq!(
        (causes.len(), causes[0]["message"].as_str()),
        (2, Some(message)),
        "{causes:?}"
    );
    assert_eq!(answer.body["details"]["kind"], "configmaps");
}

/// Creates a validating policy with rules for a resource.
async fn policy_on(server: &ApiServer, constraints: Value, validation: &str) {
    let validations = json!([{"expression": validation}]);
    policy(
        server,
        json!({"matchConstraints": constraints, "validations": validations}),
        json!({}),
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn p7_namespace_object_is_null_for_namespaces() {
    let server = ApiServer::start();
    let rules =
        json!([{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["namespaces"]}]);
    policy_on(&server, json!({"resourceRules": rules}), "namespaceObject == null").await;
    let labels = json!({"metadata": {"labels": {"a": "b"}}});
    let answer = ask(&server, Method::PATCH, "/api/v1/namespaces/default", labels).await;
    assert_eq!(answer.code, 200, "{}", answer.body);
}

#[rstest]
#[case::equivalent("Equivalent", 201)]
#[case::exact("Exact", 422)]
#[tokio::test(start_paused = true)]
async fn p5_excluded_rules_match_equivalent_versions(#[case] policy: &str, #[case] code: u16) {
    let server = ApiServer::start();
    let rule = |version: &str| {
        json!([{"apiGroups": ["autoscaling"], "apiVersions": [version], "operations": ["*"],
            "resources": ["horizontalpodautoscalers"]}])
    };
    let constraints = json!({"resourceRules": rule("*"), "excludeResourceRules": rule("v1"), "matchPolicy": policy});
    policy_on(&server, constraints, "false").await;
    let autoscaler = json!({"metadata": {"name": "a"}, "spec": {"maxReplicas": 3,
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}}});
    let path = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
    let answer = post(&server, path, autoscaler).await;
    assert_eq!(answer.code, code, "{}", answer.body);
}

#[rstest]
#[case::apply_configuration(json!({"patchType": "ApplyConfiguration", "applyConfiguration": {
    "expression": "Object{metadata: Object.metadata{labels: {'a': object.metadata.name}}}"}}),
    json!({"a": "a", "own": "y"}))]
#[case::json_patch(json!({"patchType": "JSONPatch", "jsonPatch": {
    "expression": "[JSONPatch{op: 'add', path: '/metadata/labels/a', value: 'b'}]"}}), json!({"a": "b", "own": "y"}))]
#[case::json_patch_with_a_failing_test(
    json!({"patchType": "JSONPatch", "jsonPatch": {"expression": "[JSONPatch{op: 'add', path: \
    '/metadata/labels/a', value: 'b'}, JSONPatch{op: 'test', path: '/metadata/labels/own', value: 'z'}]"}}),
    json!({"own": "y"}))]
#[tokio::test(start_paused = true)]
async fn p8_mutating_policy_changes_the_object(#[case] mutation: Value, #[case] labels: Value) {
    let server = ApiServer::start();
    mutating_policy(&server, mutation).await;
    let mut object = map("a");
    object["metadata"]["labels"] = json!({"own": "y"});
    let answer = post(&server, MAPS, object).await;
    assert_eq!(answer.body["metadata"]["labels"], labels, "{}", answer.body);
}

#[rstest]
#[case::match_condition(json!({"matchConditions": [{"name": "a", "expression": "x == Object {}"}]}),
    "compilation failed: ERROR: <input>:1:1: undeclared reference to 'x' (in container '')\n | x == Object {}\n | ^\nERROR: \
     <input>:1:13: undeclared reference to 'Object' (in container '')\n | x == Object {}\n | ............^")]
#[case::variable(json!({"variables": [{"name": "a", "expression": "JSONPatch{op: 'add'}"}]}),
    "compilation failed: ERROR: <input>:1:10: undeclared reference to 'JSONPatch' (in container '')\n | JSONPatch{op: \
     'add'}\n | .........^")]
#[tokio::test(start_paused = true)]
async fn p8_object_and_json_patch_types_are_only_available_in_mutations(#[case] part: Value, #[case] why: &str) {
    let mut spec = json!({"reinvocationPolicy": "Never",
        "mutations": [{"patchType": "JSONPatch",
            "jsonPatch": {"expression": "true ? [JSONPatch{op: 'add', value: Object{}}] : []"}}],
        "matchConstraints": {"resourceRules": [{
            "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]}});
    let path = format!("{GROUP}/mutatingadmissionpolicies?dryRun=All");
    let policy = |spec: &Value| json!({"metadata": {"name": "p"}, "spec": spec});
    made(&post(&ApiServer::start(), &path, policy(&spec)).await);
    for (field, value) in part.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    let answer = post(&ApiServer::start(), &path, policy(&spec)).await;
    let (code, said) = answer.failure();
    assert_eq!(code, 422, "{said}");
    assert!(said.ends_with(why), "{said}");
}

#[rstest]
#[case::bool_result("JSONPatch", "jsonPatch", "1 == 1", "must evaluate to list(JSONPatch) but got bool")]
#[case::dyn_result(
    "JSONPatch",
    "jsonPatch",
    "object.data",
    "must evaluate to list(JSONPatch) but got dyn"
)]
#[case::string_result(
    "ApplyConfiguration",
    "applyConfiguration",
    "'a'",
    "must evaluate to Object but got string"
)]
#[case::list_of_objects(
    "ApplyConfiguration",
    "applyConfiguration",
    "[Object{}].filter(x, true)",
    "must evaluate to Object but got list(Object)"
)]
#[case::metadata_of_an_object(
    "ApplyConfiguration",
    "applyConfiguration",
    "Object.metadata{}",
    "must evaluate to Object but got Object.metadata"
)]
#[case::empty_map(
    "ApplyConfiguration",
    "applyConfiguration",
    "{}",
    "must evaluate to Object but got map(dyn, dyn)"
)]
#[case::single_patch(
    "JSONPatch",
    "jsonPatch",
    "JSONPatch{}",
    "must evaluate to list(JSONPatch) but got JSONPatch"
)]
#[case::list_of_maps(
    "JSONPatch",
    "jsonPatch",
    "[{'op': 'add'}]",
    "must evaluate to list(JSONPatch) but got list(map(string, string))"
)]
#[case::unknown_struct(
    "JSONPatch",
    "jsonPatch",
    "[Foo{}]",
    "ERROR: <input>:1:5: undeclared reference to 'Foo' (in container '')\n | [Foo{}]\n | ....^"
)]
#[tokio::test(start_paused = true)]
async fn p8_mutations_must_have_the_required_type(
    #[case] kind: &str,
    #[case] field: &str,
    #[case] expression: &str,
    #[case] why: &str,
) {
    let spec = json!({"reinvocationPolicy": "Never", "mutations": [{"patchType": kind, field: {"expression": expression}}],
        "matchConstraints": {"resourceRules": [{
        "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]}});
    let path = format!("{GROUP}/mutatingadmissionpolicies");
    let policy = json!({"metadata": {"name": "p"}, "spec": spec});
    let answer = post(&ApiServer::start(), &path, policy).await;
    let (code, said) = answer.failure();
    assert_eq!(code, 422, "{said}");
    assert!(said.ends_with(why), "{said}");
}

#[rstest]
#[case::shared_lists(
    "[JSONPatch{op: 'add', path: '/data', value: dyn([1]SHARED)}]",
    "the result is too large"
)]
#[case::concatenated_string(
    "[JSONPatch{op: 'add', path: '/data', value: object.data.a.split('').join(object.data.b)}]",
    "operation cancelled: actual cost limit exceeded"
)]
#[tokio::test(start_paused = true)]
async fn p8_results_of_mutating_policies_are_bounded(#[case] expression: &str, #[case] why: &str) {
    let server = ApiServer::start();
    let expression = expression.replace("SHARED", &".map(x, [x, x])".repeat(60));
    let mutation = json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}});
    mutating_policy(&server, mutation).await;
    let mut object = map("a");
    object["data"] = json!({"a": "x".repeat(500_000), "b": "x".repeat(500_000)});
    let answer = post(&server, MAPS, object).await;
    let said = answer.failure().1;
    assert!(said.ends_with(why), "{said:.300}");
}

#[rstest]
#[case::path("authorizer.path(' ').check('get').allowed()", "path must not be empty")]
#[case::resource(
    "authorizer.group('').resource('').check('get').allowed()",
    "resource must not be empty"
)]
#[case::account(
    "authorizer.serviceAccount('default', 'A').path('/').check('get').allowed()",
    "Invalid service account name"
)]
#[case::namespace(
    "authorizer.serviceAccount('a.b', 'a').path('/').check('get').allowed()",
    "Invalid service account namespace"
)]
#[tokio::test(start_paused = true)]
async fn p7_authorizer_refuses_empty_and_invalid_names(#[case] expression: &str, #[case] why: &str) {
    let server = ApiServer::start();
    policy(&server, json!({"validations": [{"expression": expression}]}), json!({})).await;
    let answer = post(&server, MAPS, map("a")).await;
    let said = answer.failure().1;
    assert!(said.ends_with(&format!("resulted in error: {why}")), "{said}");
}

/// Jane may write ConfigMaps and get Pods in `default`; the ServiceAccount `default/ops` may read `/metrics`.
fn rights() -> [Value; 4] {
    let metadata = |name: &str, namespace: &str| json!({"name": name, "namespace": namespace});
    let rbac = "rbac.authorization.k8s.io/v1";
    let group = "rbac.authorization.k8s.io";
    [
        json!({"apiVersion": rbac, "kind": "Role", "metadata": metadata("jane", "default"), "rules": [
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]},
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"], "resourceNames": ["web-0"]},
            {"apiGroups": ["apps"], "resources": ["deployments/scale"], "verbs": ["update"]},
        ]}),
        json!({"apiVersion": rbac, "kind": "RoleBinding", "metadata": metadata("jane", "default"),
            "roleRef": {"apiGroup": group, "kind": "Role", "name": "jane"},
            "subjects": [{"apiGroup": group, "kind": "User", "name": "jane"}]}),
        json!({"apiVersion": rbac, "kind": "ClusterRole", "metadata": {"name": "ops"}, "rules": [
            {"nonResourceURLs": ["/metrics"], "verbs": ["get"]},
        ]}),
        json!({"apiVersion": rbac, "kind": "ClusterRoleBinding", "metadata": {"name": "ops"},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "ops"},
            "subjects": [{"kind": "ServiceAccount", "name": "ops", "namespace": "default"}]}),
    ]
}

#[rstest]
#[case::name("authorizer.group('').resource('pods').namespace('default').name('web-0').check('get').allowed()")]
#[case::another_name("!authorizer.group('').resource('pods').namespace('default').name('b').check('get').allowed()")]
#[case::another_verb(
    "!authorizer.group('').resource('pods').namespace('default').name('web-0').check('list').allowed()"
)]
#[case::subresource(
    "authorizer.group('apps').resource('deployments').subresource('scale').namespace('default').check('update').allowed()"
)]
#[case::no_namespace("!authorizer.group('').resource('configmaps').check('create').allowed()")]
#[case::request("authorizer.requestResource.check('create').allowed()")]
#[case::request_with_another_verb("!authorizer.requestResource.check('delete').allowed()")]
#[case::reason(
    "authorizer.requestResource.check('create').reason() == \
     'RBAC: allowed by RoleBinding \"jane/default\" of Role \"jane\" to User \"jane\"'"
)]
#[case::denial_without_an_error("!authorizer.requestResource.check('delete').errored()")]
#[case::path("!authorizer.path('/metrics').check('get').allowed()")]
#[case::service_account("authorizer.serviceAccount('default', 'ops').path('/metrics').check('get').allowed()")]
#[case::another_account("!authorizer.serviceAccount('default', 'dev').path('/metrics').check('get').allowed()")]
#[tokio::test(start_paused = true)]
async fn p7_authorizer_checks_the_user_of_the_request(#[case] expression: &str) {
    let server = ApiServer::builder()
        .authorization(Authorization::Rbac)
        .token("jane's", "jane", ["devs"])
        .start();
    server.load(rights()).expect("the objects are valid");
    let validation = json!({"expression": expression, "message": "the expression is false"});
    policy(&server, json!({"validations": [validation]}), json!({})).await;
    let request = http::Request::post(MAPS)
        .header("content-type", "application/json")
        .header("authorization", "Bearer jane's")
        .body(map("a").to_string())
        .expect("the request is valid");
    let response = server.call(request).await;
    assert_eq!(response.status(), 201, "{:?}", response.body());
}

fn unknown_kind() -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Foo"})
}

#[rstest]
#[case::fail(json!({}), 422)]
#[case::ignore(json!({"failurePolicy": "Ignore"}), 201)]
#[case::fail_before_match_conditions(json!({"matchConditions": [{"name": "c", "expression": "false"}]}), 422)]
#[tokio::test(start_paused = true)]
async fn p7_failure_policy_applies_to_an_unknown_parameter_kind(#[case] more: Value, #[case] code: u16) {
    let server = ApiServer::start();
    let mut spec = json!({"paramKind": unknown_kind(), "validations": [{"expression": "true"}]});
    extend(&mut spec, more);
    let never = json!({"objectSelector": {"matchLabels": {"never": "x"}}});
    policy(&server, spec, json!({"matchResources": never})).await;
    let answer = post(&server, MAPS, map("a")).await;
    if code == 201 {
        return made(&answer);
    }
    let why = "ValidatingAdmissionPolicy 'p' denied request: failed to configure policy: failed to find resource \
               referenced by paramKind: 'example.com/v1, Kind=Foo'";
    let refusal = format!("configmaps \"a\" is forbidden: {why}");
    assert_eq!(answer.failure(), (code, refusal.as_str()));
    assert_eq!(answer.body["reason"], "Invalid");
    assert_eq!(answer.body["details"]["causes"], json!([{"message": why}]));
}

#[rstest]
#[case::fail("Fail", 403)]
#[case::ignore("Ignore", 201)]
#[tokio::test(start_paused = true)]
async fn p8_failure_policy_applies_to_an_unknown_parameter_kind(#[case] failure_policy: &str, #[case] code: u16) {
    let server = ApiServer::start();
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]});
    let spec = json!({"matchConstraints": {"resourceRules": [rule]}, "paramKind": unknown_kind(),
        "failurePolicy": failure_policy, "reinvocationPolicy": "Never",
        "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{}"}}]});
    let policy = json!({"metadata": {"name": "p"}, "spec": spec});
    made(&post(&server, &format!("{GROUP}/mutatingadmissionpolicies"), policy).await);
    let never = json!({"objectSelector": {"matchLabels": {"never": "x"}}});
    let binding = json!({"metadata": {"name": "b"}, "spec": {"policyName": "p", "matchResources": never}});
    made(&post(&server, &format!("{GROUP}/mutatingadmissionpolicybindings"), binding).await);
    let answer = post(&server, MAPS, map("a")).await;
    if code == 201 {
        return made(&answer);
    }
    let why = "policy \"p\" denied request: failed to configure policy: failed to find resource referenced by \
               paramKind: 'example.com/v1, Kind=Foo'";
    assert_eq!(answer.failure(), (code, why));
    assert_eq!(answer.body["reason"], "Forbidden");
    assert_eq!(answer.body["details"]["causes"], json!([{"message": why}]));
}

#[tokio::test(start_paused = true)]
async fn p7_parameters_for_a_namespace_are_looked_up_in_this_namespace() {
    let server = ApiServer::start();
    let rules =
        json!([{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["namespaces"]}]);
    let spec = json!({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "matchConstraints": {"resourceRules": rules}, "validations": [{"expression": "params.data.k == 'x'"}]});
    policy(
        &server,
        spec,
        json!({"paramRef": {"name": "params", "parameterNotFoundAction": "Deny"}}),
    )
    .await;
    let label = || json!({"metadata": {"labels": {"a": "b"}}});
    let change = || ask(&server, Method::PATCH, "/api/v1/namespaces/default", label());
    let by = "namespaces \"default\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: ";
    let why = "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction";
    assert_eq!(change().await.failure(), (422, format!("{by}{why}").as_str()));
    let mut params = map("params");
    params["data"] = json!({"k": "y"});
    made(&post(&server, MAPS, params).await);
    let why = "failed expression: params.data.k == 'x'";
    assert_eq!(change().await.failure(), (422, format!("{by}{why}").as_str()));
    let right = json!({"data": {"k": "x"}});
    ask(&server, Method::PATCH, &format!("{MAPS}/params"), right).await;
    assert_eq!(change().await.code, 200);
}
