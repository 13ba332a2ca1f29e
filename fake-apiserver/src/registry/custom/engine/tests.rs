//! Rules evaluated for values: results, evaluation errors and messages.

use super::super::rules::validate;
use super::super::schema::Structural;
use super::{Declared, problem_of_rule};
use crate::api::field::FieldErrors;
use crate::api::json::{Map, Value, json};
use crate::api::kubernetes_version::KubernetesVersion;
use crate::registry::types::cursor::Cursor;

fn object(spec: Value) -> Map {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": spec})
        .as_object()
        .expect("the value is an object")
        .clone()
}

fn schema(spec: Value) -> Structural {
    Structural::parse_root(&Cursor::document(
        &json!({"type": "object", "properties": {"spec": spec}}),
    ))
}

/// Returns the schema of a spec with this rule and fields of various types.
fn spec(rule: Value) -> Value {
    json!({
        "type": "object", "x-kubernetes-validations": [rule],
        "properties": {
            "a": {"type": "integer"}, "b": {"type": "integer", "nullable": true}, "x-y": {"type": "integer"},
            "n": {"type": "number"}, "q": {"type": "string"}, "t": {"type": "string", "format": "date-time"},
            "s": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
            "k": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                "items": {"type": "object", "required": ["k"],
                    "properties": {"k": {"type": "string"}, "v": {"type": "integer"}}}},
            "ts": {"type": "array", "items": {"type": "string", "format": "date-time"},
                "x-kubernetes-list-type": "set"},
            "l": {"type": "array", "items": {"type": "string"}},
            "tl": {"type": "array", "items": {"type": "string", "format": "date-time"}},
            "w": {"type": "array", "items": {"type": "number"}, "x-kubernetes-list-type": "set"},
            "e": {"type": "array", "items": {"x-kubernetes-int-or-string": true}, "x-kubernetes-list-type": "set"},
            "ls": {"type": "array",
                "items": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"}},
            "m": {"type": "object", "additionalProperties": {"type": "string"}},
            "o": {"type": "object", "properties": {"x": {"type": "integer"}}},
            "p": {"x-kubernetes-int-or-string": true}, "d": {"type": "string", "format": "duration"},
            "u": {"x-kubernetes-preserve-unknown-fields": true},
            "ul": {"type": "array", "items": {"x-kubernetes-preserve-unknown-fields": true}},
            "um": {"type": "object", "additionalProperties": {"x-kubernetes-preserve-unknown-fields": true}},
        },
    })
}

fn check(rule: Value, value: Value, old: Option<Value>) -> (Vec<String>, Vec<String>) {
    let (mut errors, mut ratcheted) = (FieldErrors::new(), Vec::new());
    let (value, old) = (object(value), old.map(object));
    validate(&schema(spec(rule)), &value, old.as_ref(), &mut errors, &mut ratcheted);
    (errors.iter().map(ToString::to_string).collect(), ratcheted)
}

#[rstest::rstest]
#[case("self.a < 5", json!({"a": 4}), true)]
#[case("self.a < 5", json!({"a": 5}), false)]
#[case("self.s == ['b', 'a']", json!({"s": ["a", "b"]}), true)]
#[case("self.s == ['b', 'c']", json!({"s": ["a", "b"]}), false)]
#[case("['b', 'a'] == self.s", json!({"s": ["a", "b"]}), false)]
#[case("self.s.map(x, x) == ['b', 'a']", json!({"s": ["a", "b"]}), false)]
#[case("self.s[0] == 'b'", json!({"s": ["b", "a"]}), true)]
#[case("self.n < 2.5", json!({"n": 2}), true)]
#[case("!has(self.b) || self.b > 0", json!({"b": null}), true)]
#[case("self.x__dash__y > 0", json!({"x-y": 1}), true)]
#[case("self.?o.?x.orValue(1) > 0", json!({}), true)]
#[case("self.?o.?x.orValue(1) > 0", json!({"o": {"x": 0}}), false)]
#[case("type(self.p) == int ? self.p > 0 : self.p.matches('^[0-9]+%$')", json!({"p": "5%"}), true)]
#[case("type(self.p) == int ? self.p > 0 : self.p.matches('^[0-9]+%$')", json!({"p": 0}), false)]
#[case("quantity(self.q).isLessThan(quantity('1'))", json!({"q": "100m"}), true)]
#[case("self.t < timestamp('2024-01-01T00:00:00Z')", json!({"t": "2023-01-01T00:00:00Z"}), true)]
#[case("self.m.all(k, k.startsWith('a'))", json!({"m": {"a-b": "x"}}), true)]
#[case("self.s.exists_one(x, x == 'a')", json!({"s": ["a", "b"]}), true)]
fn o8_validation_rules_are_evaluated(#[case] rule: &str, #[case] value: Value, #[case] holds: bool) {
    let (errors, _) = check(json!({"rule": rule}), value, None);
    let expected = format!("spec: Invalid value: failed rule: {rule}");
    assert_eq!(errors, Vec::from_iter((!holds).then_some(expected)));
}

#[rstest::rstest]
#[case("self.s + ['b', 'c'] == ['c', 'b', 'a']", true)]
#[case("(self.s + ['b', 'c', 'c']).size() == 3", true)]
#[case("(self.s + ['c'])[2] == 'c' && (self.s + ['c'])[0] == 'a'", true)]
#[case("self.s + ['c'] + ['c'] == self.s + ['c']", true)]
#[case("[] + self.s == ['b', 'a']", true)]
#[case("['c'] + self.s == ['b', 'a', 'c']", false)]
#[case("(['a'] + self.s).size() == 3", true)]
#[case("self.s.map(x, x) + ['b'] == ['a', 'b', 'b']", true)]
#[case("(self.k + self.k).size() == 2", true)]
#[case("self.k == self.k.filter(x, x.v == 2) + self.k.filter(x, x.v == 1)", true)]
#[case("self.k.filter(x, x.v == 2) + self.k.filter(x, x.v == 1) == self.k", false)]
#[case("(self.k + self.k.filter(x, x.v == 2)).map(x, x.v) == [1, 2]", true)]
#[case("self.ts == self.ts", false)]
fn o8_lists_of_type_set_and_map_are_merged_by_plus(#[case] rule: &str, #[case] holds: bool) {
    let value = json!({
        "s": ["a", "b"], "k": [{"k": "x", "v": 1}, {"k": "y", "v": 2}], "ts": ["2024-01-01T00:00:00Z"],
    });
    let (errors, _) = check(json!({"rule": rule}), value, None);
    let expected = format!("spec: Invalid value: failed rule: {rule}");
    assert_eq!(errors, Vec::from_iter((!holds).then_some(expected)));
}

#[rstest::rstest]
#[case("self.l + self.s == ['a', 'b']", true)]
#[case("self.l + self.s == ['b', 'a']", false)]
#[case("(self.l + ['a', 'a']).size() == 2", true)]
// Whole numbers are stored as integers, which do not equal the doubles of expressions.
#[case("self.w == self.w", false)]
#[case("(self.w + [1.0]).size() == 3", true)]
#[case("self.w + [1.0] + [1.0] == [1.0, 1.0, 1.0]", true)]
#[case("(self.e + [1]).size() == 2 && (self.e + [2]).size() == 3", true)]
#[case("(self.ts + [self.tl[0], self.tl[0]]).size() == 2", true)]
// A list from JSON compares its items with the value, a computed list compares the value with its items.
#[case("['b', 'a'] in self.ls", true)]
#[case("self.ls[0] in [['b', 'a']]", true)]
#[case("['b', 'a'] in [self.ls[0]]", false)]
fn o8_lists_from_json_have_keys_and_order_of_the_stored_items(#[case] rule: &str, #[case] holds: bool) {
    let value = json!({
        "l": [], "s": ["a", "b"], "w": [1, 2], "e": [1, "x"], "ls": [["a", "b"]],
        "tl": ["2024-01-01T00:00:00Z"], "ts": ["2024-01-01T00:00:00Z"],
    });
    let (errors, _) = check(json!({"rule": rule}), value, None);
    let expected = format!("spec: Invalid value: failed rule: {rule}");
    assert_eq!(errors, Vec::from_iter((!holds).then_some(expected)));
}

#[rstest::rstest]
#[case(
    "(self.tl + self.tl)[1] == self.tl[0]",
    "invalid data, expected string, got time.Time"
)]
#[case(
    "(self.e + [1.5])[2] == 1.5",
    "invalid data, expected XIntOrString value to be either a string or integer"
)]
fn o8_added_items_are_read_with_the_schema_of_the_list(#[case] rule: &str, #[case] error: &str) {
    let value = json!({"tl": ["2024-01-01T00:00:00Z"], "e": [1, "x"]});
    let (errors, _) = check(json!({"rule": rule, "message": "m"}), value, None);
    let expected = format!("spec: Invalid value: \"object\": {error} evaluating rule: m");
    assert_eq!(errors, [expected]);
}

#[test]
fn o8_plus_replaces_items_that_have_equal_keys() {
    let rule = || json!({"rule": "(self.k + oldSelf.k).map(x, x.v) == [7, 2, 9]"});
    let new = json!({"k": [{"k": "x", "v": 1}, {"k": "y", "v": 2}]});
    let old = json!({"k": [{"k": "z", "v": 9}, {"k": "x", "v": 7}]});
    assert!(check(rule(), new, Some(old)).0.is_empty());
}

#[rstest::rstest]
#[case(json!({"rule": "false", "message": "m", "fieldPath": ".m['a.b']"}), "spec.m[a.b]: Invalid value: m")]
#[case(json!({"rule": "false", "message": "m", "fieldPath": ".o.x", "reason": "FieldValueForbidden"}),
    "spec.o.x: Forbidden: m")]
#[case(json!({"rule": "false", "message": "m", "reason": "FieldValueRequired"}), "spec: Required value: m")]
#[case(json!({"rule": "false", "message": "m", "reason": "FieldValueDuplicate"}), "spec: Duplicate value")]
#[case(json!({"rule": "false", "message": "m", "messageExpression": "'a is %d'.format([self.a])"}),
    "spec: Invalid value: a is 1")]
#[case(json!({"rule": "false", "message": "m", "messageExpression": "'a\\nb'"}), "spec: Invalid value: m")]
#[case(json!({"rule": "has(self.t)", "message": "m"}),
    "spec: Invalid value: \"object\": invalid data, expected string, got []interface {} evaluating rule: m")]
#[case(json!({"rule": "self.a / 0 > 0", "message": "m"}),
    "spec: Invalid value: \"object\": division by zero evaluating rule: m")]
fn o8_violations_have_the_message_of_the_rule(#[case] rule: Value, #[case] expected: &str) {
    assert_eq!(check(rule, json!({"a": 1, "t": []}), None).0, [expected]);
}

#[test]
fn o8_transition_rules_compare_with_the_old_value() {
    let same = || json!({"rule": "self.s == oldSelf.s", "message": "m"});
    assert!(check(same(), json!({"s": ["a"]}), None).0.is_empty());
    // The order of items is irrelevant in sets.
    assert!(
        check(same(), json!({"s": ["b", "a"]}), Some(json!({"s": ["a", "b"]})))
            .0
            .is_empty()
    );
    assert_eq!(
        check(same(), json!({"s": ["a"]}), Some(json!({"s": ["a", "b"]})))
            .0
            .len(),
        1
    );
    let optional = || json!({"rule": "oldSelf.hasValue() || self.a == 0", "optionalOldSelf": true});
    assert_eq!(check(optional(), json!({"a": 1}), None).0.len(), 1);
    assert!(check(optional(), json!({"a": 1}), Some(json!({"a": 0}))).0.is_empty());
}

#[test]
fn o9_violations_in_unchanged_values_are_warnings() {
    let rule = || json!({"rule": "self.a > 5", "message": "small"});
    let (errors, ratcheted) = check(rule(), json!({"a": 1}), Some(json!({"a": 1})));
    assert!(errors.is_empty());
    assert_eq!(ratcheted, ["spec: Invalid value: small"]);
    assert_eq!(check(rule(), json!({"a": 2}), Some(json!({"a": 1}))).0.len(), 1);
}

#[rstest::rstest]
#[case("self.zz > 1", "<input>:1:5: undefined field 'zz'")]
#[case(
    "!has(self.u) || true",
    "<input>:1:5: undefined field 'u'\n | !has(self.u) || true\n | ....^"
)]
#[case("has(self.ul)", "<input>:1:4: undefined field 'ul'")]
#[case("size(self.um) > 0", "<input>:1:10: undefined field 'um'")]
#[case(
    "!has(self.zz) || self.zz > 1 && self.zz < 9",
    "<input>:1:5: undefined field 'zz'\n | !has(self.zz) || self.zz > 1 && self.zz < 9\n | ....^\nERROR: <input>:1:22: undefined \
     field 'zz'\n | !has(self.zz) || self.zz > 1 && self.zz < 9\n | .....................^\nERROR: <input>:1:37: undefined field"
)]
#[case(
    "self.d.startsWith('a')",
    "<input>:1:18: found no matching overload for 'startsWith' applied to 'duration.(string)'"
)]
#[case(
    "self.t.size() < 3",
    "<input>:1:12: found no matching overload for 'size' applied to 'timestamp.()'"
)]
#[case(
    "size(self.n) < 3",
    "<input>:1:5: found no matching overload for 'size' applied to '(double)'"
)]
#[case(
    "self.t == 'x'",
    "<input>:1:8: found no matching overload for '_==_' applied to '(timestamp, string)'"
)]
#[case(
    "self.a > 0 && let",
    "compilation failed: ERROR: <input>:1:15: reserved identifier: let\n | self.a > 0 && let\n | ..............^"
)]
#[case("", "<input>:1:0: Syntax error: mismatched input '<EOF>'")]
#[case("frob(self.a)", "<input>:1:5: undeclared reference to 'frob' (in container '')")]
#[case(
    "Object {} == Foo.a{}",
    "<input>:1:8: undeclared reference to 'Object' (in container '')\n | Object {} == Foo.a{}\n \
    | .......^\nERROR: <input>:1:19: undeclared reference to 'Foo.a' (in container '')"
)]
#[case("other.a > 1", "<input>:1:1: undeclared reference to 'other' (in container '')")]
#[case(
    "self.a == 'x'",
    "<input>:1:8: found no matching overload for '_==_' applied to '(int, string)'"
)]
#[case("self.a >", "<input>:1:9: Syntax error: mismatched input '<EOF>'")]
#[case("self.a + 1", "cel expression must evaluate to a bool")]
fn o4_invalid_rules_are_refused(#[case] rule: &str, #[case] expected: &str) {
    let declared = Declared::of_node(&Cursor::document(&spec(json!({}))), false, KubernetesVersion::V1_36);
    let problem = problem_of_rule(rule, false, &declared);
    assert!(
        problem.as_deref().is_some_and(|text| text.contains(expected)),
        "{problem:?}"
    );
}
