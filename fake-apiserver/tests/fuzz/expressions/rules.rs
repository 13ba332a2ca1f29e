//! Examples of rules in CRDs: accepted rules, refused rules with their errors, and their results for objects.

use rstest::rstest;
use serde_json::{Value, json};

use crate::ask::{Answer, Ask};
use crate::trial::{CRDS, WIDGETS, ask_once, post, widget, widgets};

/// Returns the CRD of Widgets. Its `spec` contains numbers, strings, a list and a map, and has these rules.
fn crd(rules: Value) -> Value {
    widgets(
        &json!({"type": "object", "x-kubernetes-validations": rules, "properties": {
            "n": {"type": "integer"}, "t": {"type": "string", "maxLength": 20},
            "l": {"type": "array", "maxItems": 5, "items": {"type": "string", "maxLength": 5}},
            "m": {"type": "object", "maxProperties": 5, "additionalProperties": {"type": "integer"}}}}),
    )
}

fn spec() -> Value {
    json!({"n": 3, "t": "aab", "l": ["a", "b"], "m": {"x": 1, "y": 2}})
}

/// Returns the response to a CRD or, if the CRD is accepted, to a Widget.
fn said_of(crd: &Value, object: &Value) -> Answer {
    let answer = ask_once(&[], &post(CRDS, crd));
    match answer.code {
        201 => ask_once(&[post(CRDS, crd)], &post(WIDGETS, object)),
        _ => answer,
    }
}

/// Returns the response to a CRD with this rule or, if the CRD is accepted, to a Widget.
fn said(rule: &str) -> Answer {
    said_of(&crd(json!([{"rule": rule, "message": "m"}])), &widget(&spec()))
}

#[track_caller]
fn assert_refused(answer: &Answer, text: &str) {
    let message = answer.message();
    assert!(
        answer.code == 422 && message.contains(text),
        "{} {message}",
        answer.code
    );
}

/// Returns a CRD with a rule for whole Widgets, and this schema for their metadata.
fn singleton(rule: &str, metadata: Option<Value>) -> Value {
    let mut crd = crd(json!([]));
    let root = &mut crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    root["x-kubernetes-validations"] = json!([{"rule": rule}]);
    if let Some(metadata) = metadata {
        root["properties"]["metadata"] = metadata;
        root["properties"]["kind"] = json!({"type": "string"});
        root["properties"]["apiVersion"] = json!({"type": "string"});
    }
    crd
}

#[rstest]
#[case::undeclared(None)]
#[case::declared(Some(json!({"type": "object"})))]
#[case::with_a_name(Some(json!({"type": "object", "properties": {"name": {"type": "string", "maxLength": 20}}})))]
#[case::with_another_name(Some(json!({"type": "object", "properties": {"generateName": {"type": "string"}}})))]
fn rule_can_read_the_name_of_its_object(#[case] metadata: Option<Value>) {
    let rule = "self.metadata.name == 'singleton' && self.kind == 'Widget' && self.apiVersion == 'example.com/v1' && \
                !has(self.metadata.generateName)";
    let crd = singleton(rule, metadata);
    let mut object = widget(&spec());
    assert_refused(
        &said_of(&crd, &object),
        "Invalid value: failed rule: self.metadata.name == 'singleton'",
    );
    object["metadata"]["name"] = json!("singleton");
    let answer = said_of(&crd, &object);
    assert_eq!(answer.code, 201, "{}", answer.message());
}

#[rstest]
#[case("self.metadata.labels.size() > 0", "<input>:1:14: undefined field 'labels'")]
#[case("has(self.metadata.labels)", "undefined field 'labels'")]
#[case(
    "self.metadata.name == 1",
    "found no matching overload for '_==_' applied to '(string, int)'"
)]
#[case("self.spec.name == 'a'", "undefined field 'name'")]
fn rule_cannot_read_undeclared_fields_or_compare_a_name_with_a_number(
    #[case] rule: &str,
    #[case] text: &str,
    #[values(None, Some(json!({"type": "object"})))] metadata: Option<Value>,
) {
    assert_refused(&said_of(&singleton(rule, metadata), &widget(&spec())), text);
}

#[test]
fn rules_can_read_the_name_of_an_embedded_object() {
    let crd = widgets(&json!({"type": "object", "properties": {"t": {"type": "object",
        "x-kubernetes-embedded-resource": true, "properties": {"metadata": {"type": "object"}},
        "x-kubernetes-validations": [{"rule": "self.metadata.name == 'b' && self.kind == 'Pod'"}]}}}));
    let embedded = |name: &str| widget(&json!({"t": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}}}));
    assert_refused(&said_of(&crd, &embedded("a")), "spec.t: Invalid value: failed rule");
    let answer = said_of(&crd, &embedded("b"));
    assert_eq!(answer.code, 201, "{}", answer.message());
}

#[rstest]
#[case::spaces("self.l.all( x, x != '')")]
#[case::line_break("self.l.all(\n  x,\n  x != '')")]
#[case::space_before_the_comma("self.l.exists(x , x == 'a')")]
#[case::nested_macro("self.l.all(x, self.l.exists( y, x == y))")]
#[case::variable_named_like_a_library("self.l.all(sets, sets != '')")]
#[case::lists_range("lists.range(3) == [0, 1, 2]")]
#[case::flatten("[[1], [2]].flatten() == [1, 2]")]
#[case::ip_is_canonical("ip.isCanonical('127.0.0.1')")]
#[case::sets_contains("sets.contains(self.l, ['a'])")]
#[case::all_on_a_map("self.m.all(k, v, k != '' && v > 0)")]
#[case::all_on_a_list("self.l.all(i, v, i < 2 && v != '')")]
#[case::exists_on_a_map("self.m.exists(k, v, k == 'y' && v == 2)")]
#[case::exists_without_a_match("!self.m.exists(k, v, k == 'y' && v == 1)")]
#[case::exists_one_on_a_map("self.m.existsOne(k, v, v > 1) && !self.m.exists_one(k, v, v > 0)")]
#[case::transform_list_of_a_map("self.m.transformList(k, v, v > 1 ? k : 'a') == ['a', 'y']")]
#[case::filtered_transform_list("self.l.transformList(i, v, i > 0, v) == ['b']")]
#[case::transform_map("self.m.transformMap(k, v, v + 1) == {'x': 2, 'y': 3}")]
#[case::transform_map_of_a_list("self.l.transformMap(i, v, v) == {0: 'a', 1: 'b'}")]
#[case::filtered_transform_map("self.m.transformMap(k, v, k == 'x', v) == {'x': 1}")]
#[case::transform_map_entry("self.m.transformMapEntry(k, v, {v: k}) == {1: 'x', 2: 'y'}")]
#[case::filtered_transform_map_entry("self.m.transformMapEntry(k, v, v > 1, {v: k}) == {2: 'y'}")]
#[case::nested_macro_with_two_variables("self.m.all(k, v, self.l.exists(i, w, i + 1 == v && w != k))")]
#[case::opt_map_with_a_default("self.?t.optMap(t, t.size()).orValue(0) == 3")]
#[case::optional_map_entry("self.m[?'x'].optMap(v, v + 1) == optional.of(2)")]
#[case::missing_map_entry("!self.m[?'z'].optMap(v, v + 1).hasValue()")]
#[case::opt_flat_map_with_a_value("optional.of('x').optFlatMap(k, self.m[?k]).value() == 1")]
#[case::opt_flat_map_without_a_value("self.l[?1].optFlatMap(k, self.m[?k]) == optional.none()")]
#[case::nested_opt_map("self.m[?'x'].optMap(v, self.m[?'y'].optMap(w, v + w).orValue(0)).value() == 3")]
#[case::chained_opt_maps("self.?n.optMap(n, n + 1).optMap(n, n * 2).optFlatMap(n, optional.of(n)).value() == 8")]
#[case::sorted_by("self.l.sortBy(x, x) == self.l")]
#[case::sum("[duration('1h'), duration('2h')].sum() == duration('3h')")]
#[case::old_self_in_a_string("self.t != 'oldSelf'")]
#[case::old_self_in_a_comment("self.n == 3 // not as oldSelf")]
fn rule_accepts_and_its_negation_refuses_the_object(#[case] rule: &str) {
    let answer = said(rule);
    assert_eq!(answer.code, 201, "{}", answer.message());
    // The negated rule must fail.
    let contrary = rule.split("//").next().unwrap_or_default();
    assert_refused(&said(&format!("!({contrary})")), "spec: Invalid value: m");
}

#[rstest]
#[case("self.l.all(x, y != '')", "undeclared reference to 'y' (in container '')")]
#[case("self.l.all(x, true) && x == 'a'", "undeclared reference to 'x' (in container '')")]
#[case("self.m.all(k, v, w > 0)", "undeclared reference to 'w' (in container '')")]
#[case("lists.reverse([1]) == [1]", "undeclared reference to 'lists' (in container '')")]
#[case("math.greatest(1, 2) == 2", "undeclared reference to 'math' (in container '')")]
#[case("base64.encode(b'a') == ''", "undeclared reference to 'base64' (in container '')")]
#[case("'a'", "cel expression must evaluate to a bool")]
#[case("self.n", "cel expression must evaluate to a bool")]
fn invalid_rule_is_refused(#[case] rule: &str, #[case] text: &str) {
    assert_refused(&said(rule), text);
}

#[rstest]
#[case("[9223372036854775807, 1].sum() > 0", "integer overflow evaluating rule: m")]
#[case("-9223372036854775807 - self.n < 0", "integer overflow evaluating rule: m")]
#[case("(-9223372036854775807 - 1) / (self.n - 4) < 0", "overflow evaluating rule: m")]
#[case(
    "timestamp('9999-12-31T23:59:59Z') + duration('1h') > timestamp('2020-01-01T00:00:00Z')",
    "evaluating rule: m"
)]
fn arithmetic_overflow_is_an_error(#[case] rule: &str, #[case] text: &str) {
    assert_refused(&said(rule), text);
}

#[test]
fn error_for_a_wrong_argument_type_omits_the_value() {
    let answer = said("dyn(self.l).lowerAscii() == ''");
    assert_refused(
        &answer,
        "'no such overload: lowerAscii(list)': call arguments did not match a supported operator",
    );
}

#[test]
fn duplicate_map_keys_are_an_error() {
    let text = "insert failed: key 1 already exists evaluating rule: m";
    assert_refused(&said("self.m.transformMapEntry(k, v, {1: k}) == {1: 'x'}"), text);
}

/// A field that is immutable once it is set, as with `optionalOldSelf` in Kubernetes.
#[rstest]
#[case::unchanged_field(json!({"t": "aab", "n": 4}), 200)]
#[case::changed_field(json!({"t": "abc"}), 422)]
fn rule_with_optional_old_self_makes_a_field_immutable(#[case] change: Value, #[case] code: u16) {
    let rule = "oldSelf.optMap(o, !has(o.t) || (has(self.t) && self.t == o.t)).orValue(true)";
    let crd = crd(json!([{"rule": rule, "message": "m", "optionalOldSelf": true}]));
    let prepare = [post(CRDS, &crd), post(WIDGETS, &widget(&spec()))];
    let object = widget(&spec());
    let path = format!("{WIDGETS}/{}", object["metadata"]["name"].as_str().unwrap_or_default());
    let patch = Ask::new(
        "PATCH",
        &path,
        "application/merge-patch+json",
        json!({"spec": change}).to_string(),
    );
    let answer = ask_once(&prepare, &patch);
    assert_eq!(answer.code, code, "{}", answer.message());
}

/// cel-go copies the target twice in each macro, so the estimate doubles with each macro.
#[rstest]
#[case::few_opt_maps(12, "")]
#[case::many_opt_maps(60, "estimated rule cost exceeds budget")]
fn estimated_cost_doubles_with_each_opt_map(#[case] links: usize, #[case] refusal: &str) {
    let rule = format!("self.?n{}.hasValue()", ".optMap(n, n)".repeat(links));
    let answer = said(&rule);
    match refusal {
        "" => assert_eq!(answer.code, 201, "{}", answer.message()),
        text => assert_refused(&answer, text),
    }
}

#[rstest]
#[case::old_self_in_a_string("self != 'oldSelf'", 201)]
#[case::old_self_in_a_comment("self != '' // oldSelf", 201)]
#[case::comparison_with_old_self("self != oldSelf", 422)]
fn only_rules_that_use_old_self_are_transition_rules(#[case] rule: &str, #[case] code: u16) {
    let items = json!({"type": "string", "x-kubernetes-validations": [{"rule": rule, "message": "m"}]});
    let crd =
        widgets(&json!({"type": "object", "properties": {"l": {"type": "array", "maxItems": 5, "items": items}}}));
    let answer = ask_once(&[], &post(CRDS, &crd));
    assert_eq!(answer.code, code, "{}", answer.message());
    assert!(
        code == 201
            || answer
                .message()
                .contains("oldSelf cannot be used on the uncorrelatable portion")
    );
}

const MESSAGE: &str =
    "spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[0].messageExpression: ";

#[rstest]
#[case::syntax("'a", "messageExpression compilation failed: ERROR: <input>:1:1: Syntax error")]
#[case::name(
    "other",
    "messageExpression compilation failed: ERROR: <input>:1:1: undeclared reference to 'other'"
)]
#[case::field(
    "self.zz",
    "messageExpression compilation failed: ERROR: <input>:1:5: undefined field 'zz'"
)]
#[case::number("42", "messageExpression must evaluate to a string")]
#[case::field_of_another_type("self.n", "messageExpression must evaluate to a string")]
#[case::boolean("self.t == 'a'", "messageExpression must evaluate to a string")]
#[case::sum("self.n + 1", "messageExpression must evaluate to a string")]
fn message_expression_is_compiled(#[case] expression: &str, #[case] text: &str) {
    let crd = crd(json!([{"rule": "true", "messageExpression": expression}]));
    let answer = ask_once(&[], &post(CRDS, &crd));
    assert_refused(&answer, MESSAGE);
    assert_refused(&answer, text);
}

#[rstest]
#[case("'t is ' + self.t")]
#[case("self.t")]
#[case("'%d'.format([self.n])")]
#[case("self.l.join(', ')")]
#[case("string(self.n)")]
#[case("self.n > 1 ? 'a' : 'b'")]
#[case("self.l[0]")]
#[case("self.?t.orValue('')")]
#[case("self.t + dyn('a')")]
fn message_expression_of_type_string_is_accepted(#[case] expression: &str) {
    let answer = ask_once(
        &[],
        &post(CRDS, &crd(json!([{"rule": "true", "messageExpression": expression}]))),
    );
    assert_eq!(answer.code, 201, "{}", answer.message());
}

#[rstest]
#[case::wide_bounds(
    "self.l.slice(-1, 9223372036854775807) == []",
    "exceeds budget by factor of more than 100x"
)]
#[case::reversed_bounds("self.l.slice(2, 1) == []", "exceeds budget by factor of more than 100x")]
#[case::negative_bound("self.l.slice(-1, 1) == []", "cannot slice(-1, 1), negative indexes not supported")]
fn slice_with_invalid_or_costly_bounds_is_refused(#[case] rule: &str, #[case] text: &str) {
    assert_refused(&said(rule), text);
}
