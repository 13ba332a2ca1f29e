//! Cost limits of rules: when the CRD is written, when an object is written, and in policies (rule O8).

use rstest::rstest;
use serde_json::{Value, json};

use crate::ask::{Answer, Ask};
use crate::trial::{CONFIG_MAPS, CRDS, WIDGETS, ask_once, post, widget, widgets};

const RULES: &str = "spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[0]";
const TIPS: &str = "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and \
                    strings are declared)";

/// Returns a `spec` with an unbounded list `l`, an unbounded string `t`, and these rules.
fn spec(rules: Value) -> Value {
    json!({"type": "object", "x-kubernetes-validations": rules, "properties": {
        "l": {"type": "array", "items": {"type": "string"}}, "t": {"type": "string"}}})
}

fn causes(answer: &Answer) -> Vec<(String, String)> {
    let causes = answer.json()["details"]["causes"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let text = |it: &Value, key: &str| it[key].as_str().unwrap_or_default().to_owned();
    causes
        .iter()
        .map(|it| (text(it, "field"), text(it, "message")))
        .collect()
}

#[test]
fn rule_on_an_unbounded_list_is_refused() {
    let rules = json!([{"rule": "self.l.all(a, self.l.all(b, a != b))"}]);
    let answer = ask_once(&[], &post(CRDS, &widgets(&spec(rules))));
    assert_eq!(answer.code, 422);
    let rule = format!("Forbidden: estimated rule cost exceeds budget by factor of more than 100x {TIPS}");
    let all = "Forbidden: contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
    let total = format!(
        "Forbidden: x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema exceeds budget by \
         factor of more than 100x {TIPS}"
    );
    let path = format!("{RULES}.rule");
    let expected = [
        (&*path, &*rule),
        (&*path, all),
        ("spec.validation.openAPIV3Schema", &*total),
    ];
    assert_eq!(
        causes(&answer),
        expected.map(|(field, text)| (field.to_owned(), text.to_owned()))
    );
}

#[rstest]
#[case::bounded_list_and_items(json!([{"rule": "self.l.all(a, self.l.all(b, a != b))"}]), Some(10), Some(20), 201)]
#[case::only_the_list_is_bounded(json!([{"rule": "self.l.all(a, self.l.all(b, a != b))"}]), Some(10), None, 422)]
#[case::single_loop(json!([{"rule": "self.l.all(a, a.size() > 0)"}]), None, None, 201)]
#[case::string(json!([{"rule": "self.t.matches('^[a-z]+$')"}]), None, None, 201)]
fn schema_bounds_reduce_the_cost_of_a_rule(
    #[case] rules: Value,
    #[case] items: Option<u64>,
    #[case] chars: Option<u64>,
    #[case] code: u16,
) {
    let mut spec = spec(rules);
    if let Some(items) = items {
        spec["properties"]["l"]["maxItems"] = json!(items);
    }
    if let Some(chars) = chars {
        spec["properties"]["l"]["items"]["maxLength"] = json!(chars);
    }
    let answer = ask_once(&[], &post(CRDS, &widgets(&spec)));
    assert_eq!(answer.code, code, "{}", answer.message());
}

#[test]
fn expensive_message_expression_is_refused() {
    let message = "self.l.map(a, self.l.map(b, a + b).join(',')).join(',')";
    let answer = ask_once(
        &[],
        &post(
            CRDS,
            &widgets(&spec(json!([{"rule": "true", "messageExpression": message}]))),
        ),
    );
    let expected =
        format!("Forbidden: estimated messageExpression cost exceeds budget by factor of more than 100x {TIPS}");
    let found = causes(&answer);
    assert_eq!(
        found.first(),
        Some(&(format!("{RULES}.messageExpression"), expected)),
        "{found:?}"
    );
}

#[test]
fn unused_optional_old_self_is_refused() {
    let rules = json!([{"rule": "true", "optionalOldSelf": true}]);
    let answer = ask_once(&[], &post(CRDS, &widgets(&spec(rules))));
    let expected = "Invalid value: true: may not be set if oldSelf is not used in rule";
    assert_eq!(
        causes(&answer),
        [(format!("{RULES}.optionalOldSelf"), expected.to_owned())]
    );
}

/// Returns the requests that create a CRD with these rules. The bounds in the schema keep the estimated cost low, but
/// the rules are expensive for large objects.
fn dear_at_run_time(rules: Value) -> Vec<Ask> {
    let mut spec = spec(rules);
    spec["properties"]["l"]["maxItems"] = json!(800);
    spec["properties"]["l"]["items"]["maxLength"] = json!(1);
    vec![post(CRDS, &widgets(&spec))]
}

fn many() -> Value {
    widget(&json!({"l": vec!["x"; 800]}))
}

#[test]
fn rule_evaluation_fails_at_its_cost_limit() {
    let rule = "self.l.all(a, self.l.all(b, a == b))";
    let answer = ask_once(
        &dear_at_run_time(json!([{"rule": rule, "message": "m"}])),
        &post(WIDGETS, &many()),
    );
    let expected = "Invalid value: \"object\": 'operation cancelled: actual cost limit exceeded': no further validation \
                    rules will be run due to call cost exceeds limit for rule: m";
    assert_eq!(answer.code, 422, "{}", answer.message());
    assert_eq!(causes(&answer), [("spec".to_owned(), expected.to_owned())]);
}

#[test]
fn request_fails_at_its_cost_budget() {
    // Each rule costs 90 % of the limit.
    let rule = json!({"rule": "self.l.all(a, self.l.exists(b, b == 'y') || true)", "message": "m"});
    let mut small = widget(&json!({"l": vec!["x"; 360]}));
    small["metadata"]["name"] = json!("b");
    let rules = Value::from(vec![rule; 14]);
    let crd = dear_at_run_time(rules);
    let answer = ask_once(&crd, &post(WIDGETS, &small));
    let expected = "Invalid value: \"object\": validation failed due to running out of cost budget, no further \
                    validation rules will be run";
    assert_eq!(
        causes(&answer),
        [("spec".to_owned(), expected.to_owned())],
        "{}",
        answer.message()
    );
}

/// Returns a policy for ConfigMaps with these validations, and its binding.
fn policy(spec: Value) -> Vec<Ask> {
    let mut policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "p"},
        "spec": {"matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"],
            "operations": ["CREATE"], "resources": ["configmaps"]}]}},
    });
    for (key, value) in spec.as_object().into_iter().flatten() {
        policy["spec"][key] = value.clone();
    }
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "b"}, "spec": {"policyName": "p", "validationActions": ["Deny"]},
    });
    let path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic";
    vec![
        post(&format!("{path}ies"), &policy),
        post(&format!("{path}ybindings"), &binding),
    ]
}

const DEAR: &str = "object.data.all(a, object.data.all(b, a == a))";
const CANCELLED: &str = "resulted in error: operation cancelled: actual cost limit exceeded";
const SPENT: &str = "validation failed due to running out of cost budget, no further validation rules will be run";

#[rstest]
#[case::one_expensive_expression(json!({"validations": [{"expression": DEAR}]}), 800, CANCELLED)]
#[case::many_expressions(json!({"validations": vec![json!({"expression": DEAR}); 16]}), 380, SPENT)]
#[case::match_conditions(json!({"validations": [{"expression": "true"}], "matchConditions":
    (0..5).map(|i| json!({"name": format!("c{i}"), "expression": DEAR})).collect::<Vec<_>>()}), 380, SPENT)]
#[case::cheap_expression(json!({"validations": [{"expression": DEAR}]}), 10, "")]
fn admission_policies_have_cost_budgets(#[case] spec: Value, #[case] entries: usize, #[case] expected: &str) {
    let data: serde_json::Map<String, Value> = (0..entries).map(|i| (format!("k{i}"), json!(""))).collect();
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data});
    let answer = ask_once(&policy(spec), &post(CONFIG_MAPS, &object));
    let text = answer.message();
    let is_refused = !expected.is_empty();
    assert!(answer.code < 300 || is_refused, "{} {text:.300}", answer.code);
    assert!(
        !is_refused || (answer.code >= 400 && text.contains(expected)),
        "{} {text:.300}",
        answer.code
    );
}
