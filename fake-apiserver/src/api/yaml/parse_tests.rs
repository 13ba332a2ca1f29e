//! Tests of decoding YAML bodies.

use rstest::rstest;

use super::*;
use crate::api::json::json;

fn value(text: &str) -> Value {
    parse(text.as_bytes()).unwrap().value
}

#[rstest]
#[case("", Value::Null)]
#[case("# nothing\n", Value::Null)]
#[case("# a comment\na:\n  k: |\n    two\n    lines\n", json!({"a": {"k": "two\nlines\n"}}))]
#[case("{\"a\": 1.0, \"b\": [null, true]}", json!({"a": 1, "b": [null, true]}))]
#[case("a: {b: c, d: [1, yes, '1', \"x\\ty\"]}", json!({"a": {"b": "c", "d": [1, true, "1", "x\ty"]}}))]
#[case("yes: 1\n8080: 2\n1.5: 3\n", json!({"true": 1, "8080": 2, "1.5": 3}))]
#[case("a: &x {k: 1}\nb: *x\nc:\n  <<: *x\n  l: 2\n", json!({"a": {"k": 1}, "b": {"k": 1}, "c": {"k": 1, "l": 2}}))]
#[case("a: !!str 5\nb: !!int '5'\nc: !!binary aGk=\n", json!({"a": "5", "b": 5, "c": "hi"}))]
#[case("a: 1\n---\nb: 2\n", json!({"a": 1}))]
#[case("---\na: 2006-01-02T15:04:05Z\n", json!({"a": "2006-01-02T15:04:05Z"}))]
#[case("- a: 1\n  b: 2\n-\n", json!([{"a": 1, "b": 2}, null]))]
fn yaml_bodies_are_parsed_as_in_go(#[case] text: &str, #[case] expected: Value) {
    assert_eq!(value(text), expected);
}

#[rstest]
#[case("spec: {size: [", "yaml: line 1: did not find expected node content")]
#[case("a: [1, 2", "yaml: line 1: did not find expected ',' or ']'")]
#[case("a: b: c", "yaml: mapping values are not allowed in this context")]
#[case("x: 1\na: b: c\n", "yaml: line 2: mapping values are not allowed in this context")]
#[case("a: *none\n", "yaml: unknown anchor 'none' referenced")]
#[case("a: \u{1}", "yaml: control characters are not allowed")]
#[case("a: \"b\n", "yaml: line 2: found unexpected end of stream")]
#[case("a: 1\n\tb: 2\n", "yaml: line 2: found a tab character that violates indentation")]
#[case("a: 1\nb: @x\n", "yaml: line 2: found character that cannot start any token")]
#[case("a: 1\n b: 2\n", "yaml: line 2: mapping values are not allowed in this context")]
#[case("a:\n  b: 1\n c: 2\n", "yaml: line 2: did not find expected key")]
#[case("a: 1\nb\n", "yaml: line 3: could not find expected ':'")]
#[case("a:\n- b\nc\n", "yaml: line 4: could not find expected ':'")]
#[case("a: {b: c", "yaml: line 1: did not find expected ',' or '}'")]
#[case("a: &x [*x]", "yaml: anchor value contains itself")]
fn invalid_yaml_is_refused(#[case] text: &str, #[case] error: &str) {
    assert_eq!(parse(text.as_bytes()).unwrap_err(), error);
}

#[test]
fn invalid_utf8_is_refused() {
    assert_eq!(parse(b"a: \xff").unwrap_err(), "yaml: invalid leading UTF-8 octet");
}

#[test]
fn l1_last_value_of_a_duplicate_key_is_kept_and_reported() {
    let parsed = parse(b"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  k: v\n  k: w\n").unwrap();
    assert_eq!(parsed.value["data"], json!({"k": "w"}));
    assert_eq!(parsed.duplicates, ["line 7: key \"k\" already set in map"]);
    let text = "yaml: unmarshal errors:\n  line 7: key \"k\" already set in map";
    assert_eq!(parsed.strict_error().as_deref(), Some(text));
    let parsed = parse(b"{\"a\": 1,\n \"a\": 2}").unwrap();
    assert_eq!(parsed.duplicates, ["line 2: key \"a\" already set in map"]);
    assert_eq!(parsed.value, json!({"a": 2}));
}

#[test]
fn file_can_contain_several_documents() {
    let found: Vec<_> = documents("---\na: 1\n---\n# nothing\n---\nb: 2\n...\n").collect();
    assert_eq!(found, [Ok(json!({"a": 1})), Ok(json!({"b": 2}))]);
    let found: Vec<_> = documents("a: 1\n---\nb: [\n---\nc: 1\n").collect();
    assert_eq!(found.len(), 2);
    assert!(found[1].is_err());
}

#[test]
fn yaml_aliases_and_nesting_are_limited() {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..20 {
        let below = format!("*a{}", level - 1);
        text.push_str(&format!("a{level}: &a{level} [{}]\n", vec![below; 10].join(", ")));
    }
    let error = parse(text.as_bytes()).unwrap_err();
    assert_eq!(error, "yaml: document contains excessive aliasing");
    let deep = format!("{}1{}", "[".repeat(5000), "]".repeat(5000));
    assert!(parse(deep.as_bytes()).is_err());
    let mut chain = "a0: &a0 [x]\n".to_owned();
    for level in 1..1000 {
        chain.push_str(&format!("a{level}: &a{level} [*a{}]\n", level - 1));
    }
    assert!(parse(chain.as_bytes()).is_err());
}
