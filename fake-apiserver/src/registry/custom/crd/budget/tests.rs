//! kube-apiserver's estimates for single rules, with and without size limits in the schema.

use rstest::rstest;

use super::{Costs, Scope, decl_of};
use crate::api::field::{FieldErrors, FieldPath};
use crate::api::json::{Value, json};
use crate::api::kubernetes_version::KubernetesVersion;
use crate::registry::cel::cost::coster;
use crate::registry::cel::parse::parse;
use crate::registry::types::cursor::Cursor;

fn cost(rule: &str, schema: &Value) -> u64 {
    let decl = decl_of(&Cursor::document(schema), false).expect("the schema has a type");
    coster::cost(&parse(rule).expect("the rule is valid"), &decl, false)
}

/// Adds an optional size limit to a schema.
fn bounded(mut schema: Value, most: Option<u64>) -> Value {
    let key = match (schema["type"].as_str(), most) {
        (_, None) => return schema,
        (Some("array"), _) => "maxItems",
        (Some("object"), _) => "maxProperties",
        _ => "maxLength",
    };
    schema[key] = json!(most);
    schema
}

fn array(items: Value) -> Value {
    json!({"type": "array", "items": items})
}

fn map(values: Value) -> Value {
    json!({"type": "object", "additionalProperties": values})
}

fn number() -> Value {
    json!({"type": "number"})
}

fn string() -> Value {
    json!({"type": "string"})
}

fn boolean() -> Value {
    json!({"type": "boolean"})
}

fn formatted(format: &str) -> Value {
    json!({"type": "string", "format": format})
}

fn int_or_string() -> Value {
    json!({"x-kubernetes-int-or-string": true})
}

fn object() -> Value {
    json!({"type": "object", "required": ["required"], "properties": {"required": string(), "optional": string()}})
}

#[rstest]
#[case::numbers("self.all(x, true)", array(number()), 4_718_591, 10, 32)]
#[case::strings("self.all(x, true)", array(string()), 3_145_727, 20, 62)]
#[case::booleans("self.all(x, true)", array(boolean()), 1_887_437, 5, 17)]
#[case::arrays("self.all(x, true)", array(array(number())), 3_145_727, 100, 302)]
#[case::objects("self.all(x, true)", array(object()), 555_128, 50, 152)]
#[case::map("self.all(x, true)", map(number()), 1_348_169, 10, 32)]
#[case::map_of_strings("self.all(x, true)", map(string()), 1_179_647, 3, 11)]
#[case::map_of_booleans("self.all(x, true)", map(boolean()), 943_718, 100, 302)]
#[case::contains("self.contains('test')", string(), 314_574, 10, 5)]
#[case::starts_with("self.startsWith('test')", string(), 2, 15, 2)]
#[case::ends_with("self.endsWith('test')", string(), 2, 30, 2)]
#[case::concatenation("size(self + 'hello') > size('hello')", string(), 314_578, 4, 7)]
#[case::index("self[1] == 0.0", array(number()), 2, 5000, 2)]
#[case::index_of_strings("self[1] == self[1]", array(string()), 314_577, 8, 314_577)]
#[case::matches("self.matches('x')", string(), 314_574, 50, 22)]
#[case::match_of_an_empty_pattern("self.matches('')", string(), 1, 100, 1)]
#[case::match_in_an_empty_string("''.matches('(((((((((())))))))))[0-9]')", string(), 7, 10, 7)]
#[case::list_without_items("self[3] == 0.0", array(number()), 2, 0, 2)]
#[case::map_without_entries("self['x'] == 0.0", map(number()), 2, 0, 2)]
#[case::string_without_characters("self == 'x'", string(), 2, 0, 1)]
#[case::bytes_of_length_zero("self == b'x'", formatted("byte"), 2, 0, 1)]
#[case::comparison("self.all(x, x == 0.0)", array(number()), 6_291_454, 6_291_456, 25_165_826)]
#[case::ints_or_strings("self.all(x, true)", array(int_or_string()), 4_718_591, 10, 32)]
#[case::int_or_string("self[0] == 5", array(int_or_string()), 3, 10, 3)]
#[case::boolean("self[0] == false", array(boolean()), 2, 25, 2)]
#[case::object_and_null("self[0] == null", array(object()), 2, 422, 2)]
#[case::two_indexes("self[0][0] == -1.0", array(array(number())), 3, 51, 3)]
#[case::maps("self.all(x, x.y == 25.2)", array(map(number())), 6_291_452, 12, 74)]
#[case::entry("self[0].x > 2.0", array(map(number())), 4, 3000, 4)]
#[case::durations("self.all(x, true)", array(formatted("duration")), 2_359_295, 5, 17)]
#[case::hours("self[0].getHours() == 2", array(formatted("duration")), 4, 525, 4)]
#[case::dates("self.all(x, true)", array(formatted("date")), 725_936, 15, 47)]
#[case::times("self.all(x, true)", array(formatted("date-time")), 428_963, 25, 77)]
#[case::map_of_ints_or_strings("self.all(x, true)", map(int_or_string()), 1_348_169, 15, 47)]
#[case::presence("has(self.x)", map(number()), 1, 100, 1)]
fn costs_are_estimated_as_in_kube_apiserver(
    #[case] rule: &str,
    #[case] schema: Value,
    #[case] unbounded: u64,
    #[case] most: u64,
    #[case] bounded_cost: u64,
) {
    let with_bound = bounded(schema.clone(), Some(most));
    assert_eq!(
        (cost(rule, &schema), cost(rule, &with_bound)),
        (unbounded, bounded_cost)
    );
}

#[rstest]
#[case::two_loops("self.all(x, self.all(y, true))", 352)]
#[case::three_loops("self.all(x, self.all(y, self.all(z, true)))", 3552)]
fn nested_loops_multiply_their_costs(#[case] rule: &str, #[case] with_ten: u64) {
    assert!(cost(rule, &array(number())) > 10_000_000);
    assert_eq!(cost(rule, &bounded(array(number()), Some(10))), with_ten);
}

#[rstest]
#[case::all_on_a_map("{'a': 1, 'b': 2}.all(k, v, v > 0)", 41)]
#[case::exists_on_a_map("{'a': 1, 'b': 2}.exists(k, v, v > 0)", 43)]
#[case::exists_one_on_a_map("{'a': 1, 'b': 2}.existsOne(k, v, v > 0)", 40)]
#[case::transform_map("{'a': 1, 'b': 2}.transformMap(k, v, v + 1)", 71)]
#[case::filtered_transform_map("{'a': 1, 'b': 2}.transformMap(k, v, v < 5, v + 1)", 75)]
#[case::transform_map_entry("{'a': 1, 'b': 2}.transformMapEntry(k, v, {k: v + 1})", 131)]
#[case::filtered_transform_map_entry("{'a': 1, 'b': 2}.transformMapEntry(k, v, v < 5, {k: v + 1})", 135)]
#[case::all_on_a_list("[1, 2].all(i, v, v > 0)", 21)]
#[case::exists_on_a_list("[1, 2].exists(i, v, v > 0)", 23)]
#[case::exists_one_on_a_list("[1, 2].existsOne(i, v, v > 0)", 20)]
#[case::transform_list("[1, 2].transformList(i, v, v + 1)", 49)]
#[case::filtered_transform_list("[1, 2].transformList(i, v, v < 5, v + 1)", 53)]
fn macros_with_two_variables_cost_the_same_as_in_kube_apiserver(#[case] rule: &str, #[case] expected: u64) {
    assert_eq!(cost(rule, &number()), expected);
}

#[rstest]
#[case("self.a == 'x'", 3)]
#[case("self.all(k, k.startsWith('a'))", 10_000_000)]
#[case("self.map(k, self[k]).exists(v, v == 'x')", 10_000_000)]
fn unbounded_iterations_have_a_high_estimated_cost(#[case] rule: &str, #[case] least: u64) {
    let least = if rule.contains("self.a ") { 3 } else { least / 10 };
    assert!(cost(rule, &map(string())) >= least);
}

#[rstest]
#[case::loop_variable("self.all(ip, ip.contains('a'))", "self.all(x, x.contains('a'))")]
#[case::outer_loop_variable(
    "self.all(ip, self.all(y, ip.contains('a')))",
    "self.all(x, self.all(y, x.contains('a')))"
)]
fn loop_variable_may_be_named_like_a_function_namespace(#[case] rule: &str, #[case] same: &str) {
    let schema = bounded(array(bounded(string(), Some(100))), Some(10));
    assert_eq!(cost(rule, &schema), cost(same, &schema));
}

#[test]
fn estimated_item_counts_multiply_in_nested_lists_and_maps() {
    let leaf =
        json!({"type": "string", "maxLength": 10, "x-kubernetes-validations": [{"rule": "self.contains('abc')"}]});
    let schema = json!({"type": "object", "properties": {"a": bounded(array(bounded(map(leaf), Some(7))), Some(5))}});
    let node = |value: &Value| value.as_object().cloned().expect("the value is an object");
    let (root, a) = (node(&schema), node(&schema["properties"]["a"]));
    let (items, leaf) = (node(&a["items"]), node(&a["items"]["additionalProperties"]));
    let scope = Scope::root(KubernetesVersion::V1_36).property(&Cursor::root(&root), "a", &Cursor::root(&a));
    let scope = scope
        .element(&Cursor::root(&a), &Cursor::root(&items))
        .element(&Cursor::root(&items), &Cursor::root(&leaf));
    assert_eq!(scope.with_types(&Cursor::root(&leaf)).count(), 35);
}

#[rstest]
#[case(10_000_001, "1.000000x")]
#[case(14_999_999, "1.500000x")]
#[case(25_000_000, "2.5x")]
#[case(1_000_000_001, "more than 100x")]
fn cost_error_contains_the_factor_above_the_limit(#[case] cost: u64, #[case] factor: &str) {
    let (mut costs, mut errors) = (Costs::new(false), FieldErrors::new());
    let path = FieldPath::new("rule");
    costs.add("estimated rule cost", cost, &Cursor::value_at(None, &path), &mut errors);
    let text = errors.iter().next().map(ToString::to_string).unwrap_or_default();
    assert!(
        text.contains(&format!("exceeds budget by factor of {factor} (try")),
        "{text}"
    );
}

/// The cost of single rules is not limited if the same schema is already stored for the version.
#[rstest]
#[case::new_crd(None, 1)]
#[case::unchanged_schema(Some("10"), 0)]
#[case::changed_schema(Some("11"), 1)]
fn stored_rules_are_exempt_from_the_cost_limit_only_if_the_schema_is_unchanged(
    #[case] old_bound: Option<&str>,
    #[case] count: usize,
) {
    let rule = "self.l.all(a, a != 'x' && a != 'y' && a != 'z' && a != 'q')";
    let spec = |bound: &str| {
        let schema = json!({"type": "object", "x-kubernetes-validations": [{"rule": rule}],
            "properties": {"l": array(string()), "n": {"type": "string", "pattern": bound}}});
        let versions = json!([{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]);
        let names = json!({"plural": "as", "singular": "a", "kind": "A", "listKind": "AList"});
        let spec = json!({"group": "example.com", "scope": "Cluster", "names": names, "versions": versions});
        spec.as_object().cloned().expect("the spec is an object")
    };
    let (new, old) = (spec("10"), old_bound.map(spec));
    let path = FieldPath::new("spec");
    let old = old.as_ref().map(|old| Cursor::map_at(old, &path));
    let errors = super::super::spec::validate(
        KubernetesVersion::V1_36,
        &Cursor::map_at(&new, &path),
        old.as_ref(),
        false,
    );
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(
        texts
            .iter()
            .filter(|it| it.contains("estimated rule cost exceeds"))
            .count(),
        count,
        "{texts:?}"
    );
    assert_eq!(texts.len(), count, "{texts:?}");
}
