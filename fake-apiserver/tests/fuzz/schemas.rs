//! Random schemas of CRDs, structural or not, and objects for the accepted schemas.

use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Value, json};

use crate::ask::Ask;
use crate::trial::{CRDS, WIDGETS, ask_once, post, try_all, widget, widgets};
use crate::values::value;

#[expect(clippy::too_many_lines, reason = "it is a list of keywords")]
fn keyword() -> impl Strategy<Value = (&'static str, Value)> {
    let numbers = prop::sample::select(vec![
        json!(0),
        json!(1),
        json!(-1),
        json!(1e300),
        json!(u64::MAX),
        json!(i64::MIN),
        json!(1.5),
        json!("1"),
        json!(null),
    ]);
    let texts = prop::sample::select(vec![
        "^a{1,1000}$",
        "(((a{100}){100}){100}){100}",
        "(?<a>",
        "(?=a)",
        "[",
        "\\",
        "a{1001}",
        "(a*)*b",
        "\\p{L}",
        "set",
        "map",
        "atomic",
        "granular",
        "date-time",
        "int32",
        "ipv4",
        "nope",
        "integer",
    ]);
    let flags = prop::sample::select(vec![
        "nullable",
        "uniqueItems",
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-int-or-string",
        "x-kubernetes-embedded-resource",
        "additionalProperties",
        "exclusiveMinimum",
    ]);
    let limits = prop::sample::select(vec![
        "maxLength",
        "minLength",
        "maxItems",
        "minItems",
        "maxProperties",
        "maximum",
        "minimum",
        "multipleOf",
    ]);
    let words = prop::sample::select(vec![
        "pattern",
        "format",
        "type",
        "x-kubernetes-list-type",
        "x-kubernetes-map-type",
        "$ref",
        "id",
        "title",
    ]);
    let others = prop::sample::select(vec![
        "default",
        "enum",
        "required",
        "example",
        "not",
        "allOf",
        "anyOf",
        "items",
        "properties",
        "definitions",
        "x-kubernetes-validations",
        "x-kubernetes-list-map-keys",
        "patternProperties",
        "dependencies",
    ]);
    prop_oneof![
        3 => (limits, numbers),
        3 => (words, texts).prop_map(|(key, text)| (key, text.into())),
        2 => (flags, any::<bool>()).prop_map(|(key, flag)| (key, flag.into())),
        1 => (others, value()),
    ]
}

fn schema() -> impl Strategy<Value = Value> {
    let types = prop::sample::select(vec!["string", "integer", "number", "boolean", "object", "array"]);
    let leaf = (types, prop::collection::vec(keyword(), 0..3)).prop_map(|(kind, keywords)| {
        let mut schema = json!({"type": kind});
        keywords.into_iter().for_each(|(key, value)| schema[key] = value);
        schema
    });
    leaf.prop_recursive(4, 24, 4, |inner| {
        let names = prop::sample::select(vec!["a", "b", "metadata", "x-y", "items", "", "a.b"]);
        prop_oneof![
            inner.clone().prop_map(|items| json!({"type": "array", "items": items})),
            inner
                .clone()
                .prop_map(|values| json!({"type": "object", "additionalProperties": values})),
            (prop::collection::vec((names, inner.clone()), 0..4), keyword()).prop_map(|(properties, (key, value))| {
                let map = properties.into_iter().map(|(k, v)| (k.to_owned(), v)).collect();
                let mut schema = json!({"type": "object", "properties": Value::Object(map)});
                schema[key] = value;
                schema
            }),
            prop::collection::vec(inner, 1..3).prop_map(|branches| json!({"type": "string", "anyOf": branches})),
        ]
    })
}

#[test]
fn random_crds_and_objects_do_not_break_the_server() {
    let objects = prop::collection::vec(value(), 1..4);
    try_all(250, &[], &(schema(), objects), |server, (schema, objects)| async move {
        let answer = post(CRDS, &widgets(&schema)).check(&server).await?;
        if answer.code >= 300 {
            return Ok(());
        }
        for (index, spec) in objects.iter().enumerate() {
            let mut object = widget(spec);
            object["metadata"]["name"] = json!(format!("a{index}"));
            post(WIDGETS, &object).check(&server).await?;
            let path = format!("{WIDGETS}/a{index}?fieldManager=m&force=1");
            Ask::new("PATCH", &path, "application/apply-patch+yaml", object.to_string())
                .check(&server)
                .await?;
        }
        Ask::get(&format!("{CRDS}/widgets.example.com")).check(&server).await?;
        Ask::get("/openapi/v3/apis/example.com/v1")
            .check(&server)
            .await
            .map(drop)
    });
}

/// Nests a schema.
fn nested(depth: usize, wrap: fn(Value) -> Value) -> Value {
    (0..depth).fold(json!({"type": "string"}), |schema, _| wrap(schema))
}

#[rstest]
#[case::nested_properties(nested(30, |it| json!({"type": "object", "properties": {"a": it}})), 201)]
#[case::nested_items(nested(100, |it| json!({"type": "array", "items": it})), 0)]
#[case::nested_not(nested(40, |it| json!({"type": "object", "not": {"not": it}})), 422)]
#[case::many_properties(json!({"type": "object", "properties": (0..5_000)
    .map(|i| (format!("p{i}"), json!({"type": "string"}))).collect::<serde_json::Map<_, _>>()}), 201)]
#[case::recursive_reference(json!({"$ref": "#"}), 422)]
#[case::large_repetition(json!({"type": "string", "pattern": "((a{1000}){1000}){1000}"}), 422)]
fn large_schema_is_accepted_or_refused(#[case] schema: Value, #[case] code: u16) {
    let answer = ask_once(&[], &post(CRDS, &widgets(&schema)));
    assert!(
        code == 0 || answer.code == code,
        "{} {:.300}",
        answer.code,
        answer.message()
    );
}
