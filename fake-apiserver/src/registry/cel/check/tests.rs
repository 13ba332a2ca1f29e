//! Compares the types and errors of expressions with cel-go's checker.

use super::{Environment, StructType, Type, check};
use crate::api::kubernetes_version::KubernetesVersion;
use crate::registry::cel::parse::{parse_source, show_errors};

/// Returns the type of an expression over a few variables, or its errors.
fn output(text: &str) -> Result<String, String> {
    let mut environment = Environment::new(KubernetesVersion::V1_36);
    let fields = [("a".to_owned(), Type::String), ("__if__".to_owned(), Type::Int)];
    let object = Type::Struct(StructType::table("Thing", fields.into()));
    for (name, kind) in [
        ("b", Type::Bool),
        ("d", Type::Dyn),
        ("i", Type::Int),
        ("l", Type::list(Type::String)),
        ("m", Type::map(Type::String, Type::Int)),
        ("n", Type::Double),
        ("o", object),
        ("opt", Type::optional(Type::String)),
        ("s", Type::String),
        ("t", Type::Timestamp),
        ("u", Type::Duration),
    ] {
        environment.declare(name, kind);
    }
    let parsed = parse_source(text)?;
    match check(&parsed, &environment) {
        Ok(checked) => Ok(checked.output.runtime_name()),
        Err(errors) => Err(show_errors(text, errors).unwrap_or_default()),
    }
}

#[rstest::rstest]
#[case("has(o.a)", "bool")]
#[case("o.a", "string")]
#[case("i + 1 > 2", "bool")]
#[case("i < 2.5", "bool")]
#[case("t - u", "google.protobuf.Timestamp")]
#[case("t - t", "google.protobuf.Duration")]
#[case("l.map(x, size(x))", "list(int)")]
#[case("l.map(x, [x])", "list(list(string))")]
#[case("m.transformMap(k, v, string(v))", "map(string, string)")]
#[case("m.all(k, m[k] > 0)", "bool")]
#[case("l.sortBy(x, size(x))", "list(string)")]
#[case("opt.optMap(x, size(x))", "optional_type(int)")]
#[case("opt.orValue('')", "string")]
#[case("o.?a", "optional_type(string)")]
#[case("l[?0]", "optional_type(string)")]
#[case("optional.none()", "optional_type(dyn)")]
#[case("[]", "list(dyn)")]
#[case("d.x.y", "dyn")]
#[case("b ? d : i", "dyn")]
#[case("b ? i : 2", "int")]
#[case("type(i) == int", "bool")]
#[case("type(s)", "type(string)")]
#[case("t == null && o == null && opt == null", "bool")]
#[case("google.protobuf.Timestamp == type(t)", "bool")]
#[case("quantity(s).add(1)", "kubernetes.Quantity")]
#[case("format.named(s).value().validate(s)", "optional_type(list(string))")]
#[case("ip.isCanonical(s) || isIP(s)", "bool")]
#[case("[1, 2].exists(i, i > 1) && i == 0", "bool")]
fn types_of_expressions_are_inferred(#[case] text: &str, #[case] expected: &str) {
    assert_eq!(output(text).as_deref(), Ok(expected));
}

#[rstest::rstest]
#[case("s == i", 3, "found no matching overload for '_==_' applied to '(string, int)'")]
#[case("i == 1.0", 3, "found no matching overload for '_==_' applied to '(int, double)'")]
#[case("!s", 1, "found no matching overload for '!_' applied to '(string)'")]
#[case("s == null", 3, "found no matching overload for '_==_' applied to '(string, null)'")]
#[case("l[0] == 1", 6, "found no matching overload for '_==_' applied to '(string, int)'")]
#[case(
    "o == {}",
    3,
    "found no matching overload for '_==_' applied to '(Thing, map(dyn, dyn))'"
)]
#[case("[1, 'a']", 5, "expected type 'int' but found 'string'")]
#[case("{'a': 1, 'b': 'c'}", 15, "expected type 'int' but found 'string'")]
#[case("o.x", 2, "undefined field 'x'")]
#[case("i.x", 2, "type 'int' does not support field selection")]
#[case("x", 1, "undeclared reference to 'x' (in container '')")]
#[case("f(s)", 2, "undeclared reference to 'f' (in container '')")]
#[case("math.ceil(n)", 1, "undeclared reference to 'math' (in container '')")]
#[case("s && b", 1, "expected type 'bool' but found 'string'")]
#[case(
    "s.all(x, true)",
    1,
    "expression of type 'string' cannot be range of a comprehension (must be list, map, or dynamic)"
)]
#[case("l.all(x, x)", 10, "expected type 'bool' but found 'string'")]
#[case(
    "s.hasValue()",
    11,
    "found no matching overload for 'hasValue' applied to 'string.()'"
)]
#[case(
    "s.startsWith(i)",
    13,
    "found no matching overload for 'startsWith' applied to 'string.(int)'"
)]
#[case("Thing{x: 1}", 8, "undefined field 'x'")]
#[case("duration('x') == u", 10, "invalid duration argument")]
#[case("timestamp('x') == t", 11, "invalid timestamp argument")]
fn invalid_expressions_have_errors_with_a_column(#[case] text: &str, #[case] column: usize, #[case] error: &str) {
    let found = output(text).expect_err("the expression has an error");
    let expected = format!("ERROR: <input>:1:{column}: {error}");
    assert!(found.starts_with(&expected), "{found}");
}

#[test]
fn errors_are_sorted_by_position() {
    let found = output("x.y + z").expect_err("the expression has errors");
    let places: Vec<&str> = found.lines().filter(|it| it.starts_with("ERROR")).collect();
    let undeclared =
        |at: usize, name: &str| format!("ERROR: <input>:1:{at}: undeclared reference to '{name}' (in container '')");
    assert_eq!(places, [undeclared(1, "x"), undeclared(7, "z")]);
}

#[test]
fn nested_maps_do_not_cause_exponentially_large_types() {
    let steps = ".map(x, {x: x})".repeat(60);
    assert_eq!(output(&format!("[1]{steps} == []")).as_deref(), Ok("bool"));
}
