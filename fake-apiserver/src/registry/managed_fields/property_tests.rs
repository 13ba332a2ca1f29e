//! Properties for all objects: apply is idempotent, appliers of different fields commute, ownership agrees with a naive
//! model, `fieldsV1` survives the round trip, and patches never panic.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::json::{decode, encode};
use super::prune::{prune_dropped, put_back_dangling, put_back_owned, without_last};
use super::{Manager, Types, apply, json as fields_json, single_version, track_update};
use crate::api::json::{Map, Value, json};
use crate::api::object::Object;
use crate::registry::patch::{json_patch, merge_patch, strategic_patch};
use crate::registry::types::schema::SchemaRef;
use crate::registry::types::schema::builtin::shape_of;

/// Generates small JSON values with few names and scalars, so that values often coincide.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3i64..100).prop_map(Value::from),
        (0u8..3).prop_map(|it| Value::from(f64::from(it) / 2.0)),
        prop::sample::select(vec!["", "a", "b", "c", "$patch", "replace", "delete", "TCP"]).prop_map(Value::from),
    ];
    let name = prop::sample::select(vec![
        "a",
        "b",
        "name",
        "spec",
        "metadata",
        "labels",
        "finalizers",
        "containers",
        "template",
        "ports",
        "$patch",
        "containerPort",
        "protocol",
        "managedFields",
        "ownerReferences",
        "uid",
        "status",
        "$retainKeys",
        "kind",
        "$setElementOrder/containers",
        "$setElementOrder/finalizers",
        "$deleteFromPrimitiveList/finalizers",
        "apiVersion",
        "volumes",
        "fieldsV1",
        "f:a",
        "k:{\"name\":\"a\"}",
        "v:1",
        "i:0",
        ".",
        "manager",
        "operation",
    ]);
    leaf.prop_recursive(5, 40, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::Array),
            prop::collection::btree_map(name.clone().prop_map(str::to_owned), inner, 0..5)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn any_map() -> impl Strategy<Value = Map> {
    any_json().prop_map(|value| match value {
        Value::Object(map) => map,
        other => Map::from_iter([("spec".to_owned(), other)]),
    })
}

fn deployment() -> SchemaRef<'static> {
    SchemaRef::Builtin(shape_of("apps", "v1", "Deployment").expect("the kind is built in"))
}

fn types(schema: SchemaRef<'static>) -> Types<'static, 'static> {
    Types {
        schema,
        other: &single_version,
    }
}

fn manager<'a>(name: &'a str, time: &'a str) -> Manager<'a> {
    Manager {
        name,
        api_version: "v1",
        subresource: "",
        time,
        reset: &[],
    }
}

/// The data of a ConfigMap.
type Data = BTreeMap<String, String>;

fn any_data(keys: &'static [&'static str]) -> impl Strategy<Value = Data> {
    let key = prop::sample::select(keys).prop_map(str::to_owned);
    prop::collection::btree_map(key, "[xy]".prop_map(String::from), 0..4)
}

fn config_map(data: &Data) -> Object {
    let mut map = Map::new();
    map.insert("apiVersion".into(), "v1".into());
    map.insert("kind".into(), "ConfigMap".into());
    map.insert("metadata".into(), json!({"name": "a"}));
    if !data.is_empty() {
        map.insert("data".into(), json!(data));
    }
    Object(map)
}

fn data_of(object: &Object) -> Data {
    let data = object.get("data").and_then(Value::as_object);
    let pairs = data.into_iter().flatten();
    pairs
        .map(|(k, v)| (k.to_string(), v.as_str().unwrap_or_default().to_owned()))
        .collect()
}

fn apply_data(live: Option<&Object>, data: &Data, name: &str, force: bool) -> Option<Object> {
    let schema = SchemaRef::Builtin(shape_of("", "v1", "ConfigMap").expect("the kind is built in"));
    let manager = manager(name, "2026-01-01T00:00:00Z");
    apply(&types(schema), live, &config_map(data), &manager, "ConfigMap", force).ok()
}

/// Returns the keys of `data` that each manager owns.
fn owners(object: &Object) -> BTreeMap<String, BTreeSet<String>> {
    let list = object
        .metadata()
        .and_then(|it| it.get("managedFields"))
        .and_then(Value::as_array);
    let mut owners = BTreeMap::new();
    for entry in list.into_iter().flatten() {
        let keys = entry["fieldsV1"]["f:data"].as_object();
        let keys = keys.into_iter().flat_map(|it| it.keys());
        let keys: BTreeSet<String> = keys.filter_map(|it| it.strip_prefix("f:")).map(str::to_owned).collect();
        if !keys.is_empty() {
            owners.insert(entry["manager"].as_str().unwrap_or_default().to_owned(), keys);
        }
    }
    owners
}

/// Generates Deployments with few names: labels, containers with env and ports, and atomic fields.
fn any_deployment() -> impl Strategy<Value = Map> {
    let word = || prop::sample::select(vec!["a", "b", "c"]);
    let labels = || prop::collection::btree_map(word(), word(), 0..3);
    let env = prop::collection::btree_map(word(), word(), 0..3);
    let ports = prop::collection::btree_set(80u16..83, 0..3);
    let container = (env, ports, prop::option::of(word()));
    let containers = prop::collection::btree_map(word(), container, 0..3);
    (
        labels(),
        prop::option::of(labels()),
        containers,
        prop::option::of(0u8..3),
    )
        .prop_map(|(labels, selector, containers, replicas)| {
            let containers = containers.into_iter().map(|(name, (env, ports, image))| {
                let env = env
                    .into_iter()
                    .map(|(name, value)| json!({"name": name, "value": value}));
                let ports = ports.into_iter().map(|port| json!({"containerPort": port}));
                let mut item = json!({"name": name, "env": env.collect::<Vec<_>>()});
                item["ports"] = ports.collect();
                if let Some(image) = image {
                    item["image"] = image.into();
                }
                item
            });
            let mut spec = json!({"template": {"spec": {"containers": containers.collect::<Vec<_>>()}}});
            if let Some(selector) = selector {
                spec["selector"] = json!({"matchLabels": selector});
            }
            if let Some(replicas) = replicas {
                spec["replicas"] = replicas.into();
            }
            let object = json!({"metadata": {"labels": labels}, "spec": spec});
            object.as_object().cloned().unwrap_or_default()
        })
}

/// A naive model of server-side apply on one map.
#[derive(Clone, Debug, Default)]
struct Model {
    data: Data,
    owners: BTreeMap<String, BTreeSet<String>>,
}

impl Model {
    /// Applies `data` as the manager `name`; returns `true` on success.
    fn apply(&mut self, name: &str, data: &Data, force: bool) -> bool {
        let mut owners = self.owners.clone();
        let last = owners.remove(name).unwrap_or_default();
        for (key, value) in data {
            let changes = self.data.get(key) != Some(value);
            let owned = owners.values().any(|keys| keys.contains(key));
            if changes && owned && !force {
                return false;
            }
            if changes {
                owners.values_mut().for_each(|keys| {
                    keys.remove(key);
                });
            }
        }
        for key in last.iter().filter(|key| !data.contains_key(*key)) {
            if !owners.values().any(|keys| keys.contains(key)) {
                self.data.remove(key);
            }
        }
        self.data.extend(data.clone());
        owners.insert(name.to_owned(), data.keys().cloned().collect());
        owners.retain(|_, keys| !keys.is_empty());
        self.owners = owners;
        true
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_field_sets_round_trip_through_json(map in any_map()) {
        let value = Value::Object(map);
        if let Ok(set) = decode(Some(&value)) {
            let written = Value::Object(encode(&set));
            prop_assert_eq!(decode(Some(&written)), Ok(set));
        }
    }

    #[test]
    fn operations_on_encoded_fields_agree_with_operations_on_sets(left in any_map(), right in any_map()) {
        let (left, right) = (super::typed::field_set(SchemaRef::Deduced, &left),
            super::typed::field_set(SchemaRef::Deduced, &right));
        let mut fields = encode(&left);
        prop_assert!(fields_json::are(&fields, &left));
        prop_assert_eq!(fields_json::are(&fields, &right), left == right);
        let touched = fields_json::touches(&fields, &right);
        prop_assert_eq!(touched, !left.clone().intersection(&right).is_empty());
        if let Some(left) = fields_json::subtract(&fields, &[&right]) {
            fields = left;
        }
        prop_assert_eq!(&fields, &encode(&left.clone().difference(&right)));
        if let Some(all) = fields_json::add(&fields, &right) {
            fields = all;
        }
        prop_assert_eq!(fields, encode(&left.difference(&right).union(right)));
    }

    #[test]
    fn encoded_fields_only_match_an_equal_field_set(left in any_deployment(), right in any_deployment()) {
        let (left, right) = (super::typed::field_set(deployment(), &left),
            super::typed::field_set(deployment(), &right));
        let fields = encode(&left);
        prop_assert!(fields_json::are(&fields, &left));
        prop_assert_eq!(fields_json::are(&fields, &right), left == right);
    }

    #[test]
    fn apply_is_idempotent(live in any_data(&["a", "b", "c"]), data in any_data(&["a", "b", "c"])) {
        let live = apply_data(None, &live, "other", false);
        let once = apply_data(live.as_ref(), &data, "one", true).expect("the apply is forced");
        let twice = apply_data(Some(&once), &data, "one", false).expect("the manager owns the fields");
        prop_assert_eq!(once, twice);
    }

    #[test]
    fn applies_of_disjoint_fields_commute(a in any_data(&["a", "b"]), b in any_data(&["c", "d"])) {
        let first = apply_data(None, &a, "one", false).expect("the apply has no conflict");
        let ab = apply_data(Some(&first), &b, "two", false).expect("the apply has no conflict");
        let second = apply_data(None, &b, "two", false).expect("the apply has no conflict");
        let ba = apply_data(Some(&second), &a, "one", false).expect("the apply has no conflict");
        prop_assert_eq!(data_of(&ab), data_of(&ba));
        prop_assert_eq!(owners(&ab), owners(&ba));
    }

    #[test]
    fn field_ownership_agrees_with_a_naive_model(
        steps in prop::collection::vec((0usize..3, any_data(&["a", "b", "c"]), any::<bool>()), 1..8)
    ) {
        // Because of an additional applier, the object remains tracked even if all others give up their fields.
        let mut live = apply_data(None, &Data::from([("z".to_owned(), "z".to_owned())]), "base", false)
            .expect("the apply has no conflict");
        let mut model = Model::default();
        model.apply("base", &Data::from([("z".to_owned(), "z".to_owned())]), false);
        for (who, data, force) in steps {
            let name = ["one", "two", "three"][who];
            match apply_data(Some(&live), &data, name, force) {
                Some(done) => {
                    prop_assert!(model.apply(name, &data, force));
                    live = done;
                }
                None => prop_assert!(!model.clone().apply(name, &data, force)),
            }
            prop_assert_eq!(data_of(&live), model.data.clone());
            prop_assert_eq!(owners(&live), model.owners.clone());
        }
    }

    #[test]
    fn tracking_an_update_only_changes_managed_fields(old in any_map(), new in any_map()) {
        let mut live = Object(old);
        track_update(&types(deployment()), None, &mut live, &manager("one", "2026-01-01T00:00:00Z"));
        let mut new = Object(new);
        let before = new.clone();
        track_update(&types(deployment()), Some(&live), &mut new, &manager("two", "2026-01-01T00:00:01Z"));
        let strip = |object: &Object| {
            let mut object = object.clone();
            if let Some(Value::Object(metadata)) = object.0.get_mut("metadata") {
                metadata.remove("managedFields");
                if metadata.is_empty() {
                    object.0.remove("metadata");
                }
            } else {
                object.0.remove("metadata");
            }
            object
        };
        prop_assert_eq!(strip(&new), strip(&before));
    }

    #[test]
    fn pruning_in_parts_equals_pruning_the_whole_object(
        merged in any_deployment(), last in any_deployment(), set in any_deployment(), other in any_deployment()
    ) {
        let schema = deployment();
        let fields = |object| super::typed::field_set(schema, object);
        let mut merged = merged;
        super::merge::merge_maps(schema, &mut merged, &last);
        super::merge::merge_maps(schema, &mut merged, &set);
        let whole = {
            let owned = fields(&set).union(fields(&other));
            let last = fields(&last);
            let pruned = without_last(schema, &merged, &last);
            let pruned = put_back_owned(schema, &merged, &pruned, owned);
            put_back_dangling(schema, &merged, &pruned, &last).unwrap_or_else(|| merged.clone())
        };
        let others = fields(&other);
        let mut parts = merged.clone();
        prune_dropped(schema, &mut parts, &fields(&last), &fields(&set), &[&others]);
        prop_assert_eq!(parts, whole);
    }

    #[test]
    fn arbitrary_apply_never_panics(live in any_map(), applied in any_map(), force in any::<bool>()) {
        let named = |map: Map, version: &str| {
            let mut object = Object(map);
            object.insert("apiVersion".into(), version.into());
            object.insert("kind".into(), "Deployment".into());
            object
        };
        for (schema, version) in [(deployment(), "apps/v1"), (SchemaRef::Deduced, "v1")] {
            let (live, applied) = (named(live.clone(), version), named(applied.clone(), version));
            let manager = Manager { api_version: version, ..manager("kubectl", "2026-01-01T00:00:00Z") };
            let types = types(schema);
            let first = apply(&types, Some(&live), &applied, &manager, "Deployment", force);
            if let Ok(first) = first {
                let _ = apply(&types, Some(&first), &live, &manager, "Deployment", force);
            }
        }
    }

    #[test]
    fn patches_never_panic(document in any_json(), patch in any_json(), raw in ".{0,40}") {
        for body in [patch.to_string(), raw] {
            let _ = json_patch(document.clone(), body.as_bytes());
            let _ = merge_patch(document.clone(), body.as_bytes());
            let _ = strategic_patch(document.clone(), body.as_bytes(), deployment());
            let _ = strategic_patch(document.clone(), body.as_bytes(), SchemaRef::Deduced);
        }
    }

    #[test]
    fn json_patch_operations_never_panic(
        document in any_json(),
        operations in prop::collection::vec(("add|remove|replace|move|copy|test",
            "(/(a|b|spec|name|0|1|-1|-|~1|99999999999999999999)){0,4}", "(/(a|b|spec|0)){0,3}", any_json()), 0..6)
    ) {
        let operations: Vec<Value> = operations
            .into_iter()
            .map(|(op, path, from, value)| json!({"op": op, "path": path, "from": from, "value": value}))
            .collect();
        let _ = json_patch(document, Value::Array(operations).to_string().as_bytes());
    }
}
