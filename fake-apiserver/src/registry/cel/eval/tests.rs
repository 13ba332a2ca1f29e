//! Compares the costs of evaluations with kube-apiserver.

use rstest::rstest;

use crate::api::json::{Value, json};
use crate::registry::cel::eval::no_more_functions;
use crate::registry::cel::objects::Value as CelValue;
use crate::registry::cel::program::{Bindings, Program, ProgramOutcome};

fn cost(rule: &str, this: &Value) -> u64 {
    let program = Program::parse(rule).expect("the rule is valid");
    let (value, cost) = program.evaluate(&Bindings {
        values: &[("self", this)],
        variables: &[],
        authorizer: &ProgramOutcome(CelValue::Null),
        functions: no_more_functions,
    });
    assert_eq!(value.map(|it| it.as_bool()), Ok(Some(true)), "{rule}");
    cost
}

#[rstest]
#[case("self.val.all(k, self.val[k] > 0)", 17)]
#[case("self.val.all(k, v, v > 0)", 13)]
#[case("!self.val.exists(k, v, v == 3)", 16)]
#[case("self.val.existsOne(k, v, v == 2)", 10)]
#[case("self.val.transformMap(k, v, v > 1, v + 1).size() == 1", 14)]
#[case("self.val.transformMap(k, v, v + 1).size() == 2", 15)]
#[case("self.val.transformMapEntry(k, v, v > 1, {k + '2': v + 1}).size() == 1", 45)]
#[case("self.val.transformMapEntry(k, v, {k + '2': v + 1}).size() == 2", 77)]
#[case("size(self.val.filter(k, self.val[k] > 1)) == 1", 26)]
fn macros_iterate_over_maps(#[case] rule: &str, #[case] expected: u64) {
    assert_eq!(cost(rule, &json!({"val": {"b": 1, "d": 2}})), expected);
}

#[rstest]
#[case("timestamp(timestamp('2026-01-01T00:00:00Z')) == timestamp('2026-01-01T00:00:00Z')")]
#[case("timestamp(1) == timestamp('1970-01-01T00:00:01Z')")]
#[case("int(timestamp('1970-01-01T00:01:00Z')) == 60")]
#[case("string(timestamp('1970-01-01T00:01:00Z')) == '1970-01-01T00:01:00Z'")]
#[case("duration(duration('1m')) == duration('60s')")]
#[case("string(true) == 'true' && bytes(bytes('a')) == bytes('a')")]
#[case("bool('true') && !bool('0') && bool(bool('t'))")]
#[case("int(int(1)) == 1 && uint(uint(1)) == 1u && double(double(1.5)) == 1.5 && string(string('a')) == 'a'")]
fn values_can_be_converted_to_other_types(#[case] rule: &str) {
    cost(rule, &Value::Null);
}

#[rstest]
#[case("int('x') == 1", "int")]
#[case("uint('-1') == 1u", "uint")]
#[case("double('x') == 1.0", "double")]
#[case("bool('yes')", "bool")]
#[case("duration('x') == duration('1s')", "google.protobuf.Duration")]
#[case("timestamp('x') == timestamp('2026-01-01T00:00:00Z')", "google.protobuf.Timestamp")]
fn conversion_of_an_invalid_string_is_an_error(#[case] rule: &str, #[case] kind: &str) {
    let error = Program::parse(rule)
        .map(|_| ())
        .expect_err("the constant part has an error");
    let text = format!("program instantiation failed: type conversion error from 'string' to '{kind}'");
    assert_eq!(error, text);
}

#[rstest]
#[case("10.10.10.0/24", true)]
#[case("10.10.010.10/24", false)]
#[case("10.10.10.0/024", false)]
#[case("10.10.10.0/33", false)]
#[case("abcd::1/125", true)]
#[case("abcd:ef01:2345:6789::abcd:ef01:2345:6789/125", false)]
#[case("::ffff:10.0.0.1/120", false)]
fn cidr_ranges_are_parsed_as_strictly_as_in_go(#[case] range: &str, #[case] is_one: bool) {
    cost(&format!("isCIDR(self) == {is_one}"), &range.into());
}

#[rstest]
#[case("self.array.all(e, e > 0)", 43)]
#[case("size(self.array.filter(e, e%2 == 0)) == 3", 68)]
#[case("self.array.map(e, e * 20).filter(e, e > 50).exists(e, e == 60)", 194)]
#[case("self.array.all(i, e, e > 0)", 43)]
#[case("self.array.exists(i, e, e > 2)", 36)]
#[case("self.array.existsOne(i, e, e > 4)", 22)]
#[case("self.array.transformList(i, e, e > 2, e * 2).size() > 0", 77)]
#[case("self.array.transformList(i, e, e * 2).size() > 0", 117)]
fn macros_iterate_over_lists(#[case] rule: &str, #[case] expected: u64) {
    assert_eq!(cost(rule, &json!({"array": [1, 1, 2, 2, 3, 3, 4, 5]})), expected);
}

#[rstest]
#[case("{1: 'a'}[dyn(1.0)] == 'a' && {1u: 'a'}[dyn(1.0)] == 'a'")]
#[case("dyn(1.0) in {1: 'a'} && dyn(1u) in {1: 'a'} && dyn(1) in {1u: 'a'}")]
#[case("!(dyn(1.5) in {1: 'a'}) && !(dyn(-1.0) in {1u: 'a'}) && !(dyn('1') in {1: 'a'})")]
#[case("dyn({1: 'a'}) == dyn({1u: 'a'}) && dyn({1: 'a'}) != dyn({2u: 'a'})")]
fn map_keys_match_equal_numbers_of_other_types(#[case] rule: &str) {
    cost(rule, &Value::Null);
}
