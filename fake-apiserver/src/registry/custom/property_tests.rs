//! Checks that no CRD or custom resource causes a panic, and that pruning is idempotent.

use proptest::prelude::*;

use super::crd::CrdStrategy;
use super::decode;
use super::definition::CustomResource;
use super::strategy::CustomStrategy;
use super::tests::{in_context, resource};
use crate::api::field::FieldErrors;
use crate::api::json::{Map, Value, json};
use crate::api::kubernetes_version::KubernetesVersion;
use crate::api::object::Object;
use crate::registry::kinds::strategy::Strategy as _;
use crate::registry::types::pattern::Pattern;

/// The strategy of Kubernetes 1.36.
const CRDS: CrdStrategy = CrdStrategy {
    version: KubernetesVersion::V1_36,
};

/// Returns names for both schemas and objects, so that they match often.
fn name() -> BoxedStrategy<String> {
    prop::sample::select(vec![
        "a", "b", "spec", "status", "metadata", "kind", "name", "labels", "x.y", "/", "",
    ])
    .prop_map(str::to_owned)
    .boxed()
}

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[\\PC\n]{0,8}".prop_map(Value::from),
        prop::sample::select(vec!["2024-01-01", "10.0.0.1/8", "1h", "a@b", "<>", "ff:ff", "-", "é"])
            .prop_map(Value::from),
    ]
}

fn any_json() -> BoxedStrategy<Value> {
    let recursive = scalar().prop_recursive(5, 48, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map(name(), inner, 0..5).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    });
    recursive.boxed()
}

/// Returns a schema with keywords that mostly have the right type.
fn schema() -> BoxedStrategy<Value> {
    let kind = prop::sample::select(vec!["object", "array", "string", "integer", "number", "boolean"]);
    let leaf = kind.prop_map(|kind| json!({"type": kind}));
    let recursive = leaf.prop_recursive(4, 32, 4, |inner| {
        let keyword = prop::sample::select(vec![
            "items",
            "additionalProperties",
            "not",
            "default",
            "enum",
            "required",
            "pattern",
            "format",
            "minimum",
            "maximum",
            "multipleOf",
            "maxLength",
            "minItems",
            "nullable",
            "x-kubernetes-list-type",
            "x-kubernetes-list-map-keys",
            "x-kubernetes-int-or-string",
            "x-kubernetes-embedded-resource",
            "x-kubernetes-preserve-unknown-fields",
            "anyOf",
            "x-kubernetes-validations",
        ]);
        let good = prop_oneof![
            inner.clone(),
            Just(json!(true)),
            Just(json!("map")),
            Just(json!("set")),
            Just(json!(["a", "b"])),
            Just(json!("date-time")),
            Just(json!(2)),
            Just(json!([{"rule": "self == oldSelf"}, {"rule": "self.a > 1"}])),
            inner.clone().prop_map(|it| json!([it])),
            any_json(),
        ];
        let properties = prop::collection::btree_map(name(), inner, 0..4);
        let keywords = prop::collection::btree_map(keyword, good, 0..4);
        (properties, keywords, any::<bool>()).prop_map(|(properties, keywords, is_list)| {
            let mut schema = Map::new();
            schema.insert("type".into(), if is_list { "array" } else { "object" }.into());
            schema.insert("properties".into(), Value::Object(properties.into_iter().collect()));
            schema.extend(keywords.into_iter().map(|(key, value)| (key.to_owned(), value)));
            Value::Object(schema)
        })
    });
    recursive.boxed()
}

fn object(value: Value) -> Object {
    let mut object = match value {
        Value::Object(map) => Object(map),
        other => Object(Map::from_iter([("spec".to_owned(), other)])),
    };
    object.insert("apiVersion".into(), "example.com/v1".into());
    object.insert("kind".into(), "Widget".into());
    object
}

proptest! {
    #[test]
    fn arbitrary_crd_does_not_panic(spec in any_json(), schema in schema()) {
        let names = json!({"plural": "widgets", "kind": "Widget"});
        let good = json!({"group": "example.com", "names": names, "scope": "Cluster", "versions": [
            {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}, "subresources": spec},
        ]});
        for spec in [spec, good] {
            let mut crd = Object(Map::from_iter([("spec".to_owned(), spec)]));
            CRDS.default(&mut crd);
            let mut errors = FieldErrors::new();
            in_context("", |context| {
                CRDS.prepare_for_create(&mut crd, context);
                CRDS.validate(&crd, &mut errors);
                let old = crd.clone();
                CRDS.prepare_for_update(&mut crd, &old, context);
                CRDS.validate_update(&crd, &old, &mut errors, context);
            });
            CRDS.warnings(&crd, None);
            let _parsed = CustomResource::parse(&crd);
        }
    }

    #[test]
    fn arbitrary_custom_resource_does_not_panic(schema in schema(), value in any_json(), old in any_json()) {
        let has_default = schema.to_string().contains("\"default\"");
        let root = json!({"type": "object", "properties": {"spec": schema, "status": schema}});
        let resource = resource(root, json!({"subresources": {"status": {}}}));
        let version = resource.storage.clone();
        let strategy = CustomStrategy { version: version.clone() };
        let (mut new, mut old) = (object(value), object(old));
        let decodes = [&mut new, &mut old].map(|it| decode::coerce(it, &resource, &version).is_ok());
        strategy.default(&mut new);
        let mut errors = FieldErrors::new();
        strategy.validate(&new, &mut errors);
        in_context("", |context| strategy.validate_update(&new, &old, &mut errors, context));
        in_context("status", |context| strategy.validate_update(&new, &old, &mut errors, context));
        // Schemas with defaults are excluded, because a CRD with unknown fields in a default is refused.
        if decodes[0] && !has_default {
            prop_assert_eq!(decode::coerce(&mut new, &resource, &version), Ok(Vec::new()));
        }
    }

    #[test]
    fn arbitrary_pattern_does_not_panic(pattern in "[\\\\\\[\\]{}()*+?^$.|a-z0-9&~<> -]{0,12}", text in "\\PC{0,6}") {
        let _matched = Pattern::new(&pattern).is_match(&text);
    }
}
