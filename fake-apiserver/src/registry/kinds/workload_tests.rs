//! Writes of pods and workloads, compared with recorded responses of kube-apiserver. Each line of the data is one case.

use std::sync::Arc;

use super::metadata;
use super::metadata_checks::metadata_checks;
use super::strategy::{Context, Strategy};
use super::workloads::workload_strategy;
use crate::api::field::FieldErrors;
use crate::api::json::{Map, Value, json};
use crate::api::kubernetes_version::KubernetesVersion;
use crate::api::object::Object;
use crate::entropy::Entropy;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::edit::{copy_field, ensure_object};

const CASES: &str = include_str!("../../../tests/data/workloads.jsonl");

fn object(value: &Value) -> Object {
    Object(value.as_object().cloned().unwrap_or_default())
}

fn strategy_of(case: &Map) -> &'static dyn Strategy {
    let text = |field: &str| case[field].as_str().expect("the value is a string");
    workload_strategy(KubernetesVersion::default(), text("group"), text("resource")).expect("the kind has a strategy")
}

fn create(strategy: &dyn Strategy, object: &mut Object, context: &Context<'_>) {
    strategy.default(object);
    // If admission refuses the object, the comparison fails because fields are missing.
    let _ = strategy.admit(object, None, context);
    strategy.prepare_for_create(object, context);
    strategy.canonicalize(object);
    object.metadata_mut().insert("generation".into(), json!(1));
}

/// Sets the object's uid to the uid in the recorded result.
fn identify(object: &mut Object, result: &Value) {
    let uid = result["metadata"]["uid"].as_str().unwrap_or("uid1");
    object.metadata_mut().insert("uid".into(), json!(uid));
}

fn texts(errors: &FieldErrors) -> (String, Vec<String>) {
    let mut all: Vec<String> = Vec::new();
    for error in errors.iter().map(ToString::to_string) {
        if !all.contains(&error) {
            all.push(error);
        }
    }
    let message = match all.as_slice() {
        [only] => only.clone(),
        several => format!("[{}]", several.join(", ")),
    };
    let mut causes: Vec<String> = errors.iter().map(ToString::to_string).collect();
    causes.sort();
    (message, causes)
}

fn check(case: &Map, object: &Object, errors: &FieldErrors) -> Result<(), String> {
    let (message, causes) = texts(errors);
    if let Some(expected) = case.get("message").and_then(Value::as_str) {
        let mut wanted: Vec<&str> = case["causes"]
            .as_array()
            .expect("the value is a list")
            .iter()
            .filter_map(Value::as_str)
            .collect();
        wanted.sort_unstable();
        if expected == "<masked>" {
            let fields = |list: Vec<&str>| -> Vec<String> {
                list.iter()
                    .map(|it| it.split(": ").next().unwrap_or_default().to_owned())
                    .collect()
            };
            let own = causes.iter().map(String::as_str).collect();
            return if fields(own) == fields(wanted) {
                Ok(())
            } else {
                Err(format!("{causes:#?}"))
            };
        }
        return if message == expected && causes == wanted {
            Ok(())
        } else {
            Err(format!(
                "expected {expected}\n     got {message}\n{wanted:#?}\n{causes:#?}"
            ))
        };
    }
    if !errors.is_empty() {
        return Err(format!("refused: {message}"));
    }
    let mut expected = self::object(&case["result"]);
    let mut own = object.clone();
    let object = &mut own;
    if expected.kind() == "Pod" {
        // Admission plugins set these fields; `tests/conformance` replays the same recordings with the plugins.
        for spec in [&mut *object, &mut expected] {
            if let Some(Value::Object(spec)) = spec.get_mut("spec") {
                spec.retain(|field, _| !matches!(field.as_str(), "priority" | "preemptionPolicy" | "tolerations"));
            }
        }
    }
    let (own, wanted) = (Cursor::root(object), Cursor::root(&expected));
    for way in [
        "spec",
        "status",
        "template",
        "metadata.labels",
        "metadata.annotations",
        "metadata.generation",
    ] {
        if !own.same(&wanted, way) {
            let [own, wanted] = [own, wanted].map(|it| it.at(way).to_value());
            return Err(format!("{way}\nexpected {wanted}\n     got {own}"));
        }
    }
    Ok(())
}

fn run(case: &Map) -> Result<(), String> {
    let entropy = Entropy::new(1, jiff::Timestamp::UNIX_EPOCH);
    let class = json!({"metadata": {"name": "pc-u"}, "value": 1000});
    let stored = |_: &str, resource: &str| match resource {
        "priorityclasses" => vec![Arc::new(object(&class))],
        _ => Vec::new(),
    };
    let subresource = case.get("subresource").and_then(Value::as_str).unwrap_or_default();
    let context = Context {
        entropy: &entropy,
        stored: &stored,
        subresource,
        user: None,
        dry_run: false,
        hidden: &crate::registry::types::hidden::NONE,
        plugins: crate::registry::types::plugins::PluginSet::default(),
    };
    let strategy = strategy_of(case);
    let mut new = object(&case["new"]);
    let mut errors = FieldErrors::new();
    let result = case.get("result").unwrap_or(&Value::Null);
    let Some(old) = case.get("old") else {
        identify(&mut new, result);
        new.metadata_mut().insert("namespace".into(), json!("ns"));
        create(strategy, &mut new, &context);
        let checks = metadata_checks("apps", "deployments", "");
        metadata::validate_create(&new, true, strategy, &checks, &mut errors);
        strategy.validate(&new, &mut errors);
        return check(case, &new, &errors);
    };
    let mut old = object(old);
    if case.get("oldIsNew").is_some() {
        identify(&mut old, result);
        create(strategy, &mut old, &context);
        if let Some(patch) = case.get("patch") {
            new = old.clone();
            merge(&mut new.0, patch);
        }
    }
    strategy.default(&mut new);
    match subresource {
        "" => copy_field(&old, &mut new, "status"),
        "status" => copy_field(&old, &mut new, "spec"),
        _ => {}
    }
    strategy.prepare_for_update(&mut new, &old, &context);
    metadata::prepare_update(
        &mut new,
        &old,
        strategy,
        subresource,
        &crate::registry::types::hidden::NONE,
        false,
    );
    strategy.validate_update(&new, &old, &mut errors, &context);
    check(case, &new, &errors)
}

/// Applies a JSON merge patch.
fn merge(target: &mut Map, patch: &Value) {
    for (key, value) in patch.as_object().into_iter().flatten() {
        match value {
            Value::Null => {
                target.remove(key);
            }
            Value::Object(_) => merge(ensure_object(target, key), value),
            other => {
                target.insert(key.clone(), other.clone());
            }
        }
    }
}

#[test]
fn responses_to_writes_equal_the_recordings() {
    let mut failures = Vec::new();
    for line in CASES.lines() {
        let case: Value = serde_json::from_str(line).expect("the line is valid JSON");
        let case = case.as_object().expect("the value is an object");
        if let Err(trouble) = run(case) {
            failures.push(format!("{}: {trouble}", case["case"]));
        }
    }
    assert!(
        failures.is_empty(),
        "{} failures\n{}",
        failures.len(),
        failures.join("\n\n")
    );
}

/// Collects the JSON pointers of all positions in a value.
fn places(value: &Value, at: &str, into: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                let at = format!("{at}/{}", key.replace('~', "~0").replace('/', "~1"));
                into.push(at.clone());
                places(value, &at, into);
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                let at = format!("{at}/{index}");
                into.push(at.clone());
                places(value, &at, into);
            }
        }
        _ => {}
    }
}

/// Calls the methods of a strategy with arbitrary objects.
fn call_everything(strategy: &dyn Strategy, object: &Object, old: &Object) {
    let entropy = Entropy::new(1, jiff::Timestamp::UNIX_EPOCH);
    let stored = |_: &str, _: &str| vec![Arc::new(old.clone())];
    for subresource in ["", "status", "resize", "ephemeralcontainers", "scale"] {
        let context = Context {
            entropy: &entropy,
            stored: &stored,
            subresource,
            user: None,
            dry_run: false,
            hidden: &crate::registry::types::hidden::NONE,
            plugins: crate::registry::types::plugins::PluginSet::default(),
        };
        let mut errors = FieldErrors::new();
        let mut new = object.clone();
        strategy.validate(&new, &mut errors);
        strategy.validate_update(&new, old, &mut errors, &context);
        strategy.default(&mut new);
        let once = new.clone();
        strategy.default(&mut new);
        assert_eq!(once, new, "filling in defaults again changes nothing");
        let _ = strategy.admit(&mut new.clone(), None, &context);
        let _ = strategy.admit(&mut new.clone(), Some(old), &context);
        let mut created = new.clone();
        strategy.prepare_for_create(&mut created, &context);
        strategy.validate(&created, &mut errors);
        strategy.prepare_for_update(&mut new, old, &context);
        strategy.validate_update(&new, old, &mut errors, &context);
        strategy.warnings(&new, None);
        strategy.warnings(&new, Some(old));
        strategy.raises_generation(&new, old);
        strategy.grace_period(&new, None);
        strategy.selectable_fields(&new);
        errors.iter().for_each(|error| drop(error.to_string()));
    }
}

#[test]
fn arbitrary_body_does_not_panic() {
    let odd = [
        Value::Null,
        json!(-1),
        json!(5.5),
        json!(i64::MAX),
        json!("x"),
        json!(""),
        json!([]),
        json!([null, 1, "a", {}, []]),
        json!({}),
        json!({"a": [1]}),
        json!(true),
    ];
    let mut turn = 0;
    for line in CASES.lines() {
        let case: Value = serde_json::from_str(line).expect("the line is valid JSON");
        let case = case.as_object().expect("the value is an object");
        let strategy = strategy_of(case);
        let body = case.get("result").filter(|it| !it.is_null()).unwrap_or(&case["new"]);
        let whole = object(body);
        let mut all = Vec::new();
        places(body, "", &mut all);
        for place in all {
            turn += 1;
            // Every third position is sufficient, because the same fields occur in many cases.
            if turn % 3 != 0 {
                continue;
            }
            let mut changed = body.clone();
            if let Some(at) = changed.pointer_mut(&place) {
                *at = odd[turn / 3 % odd.len()].clone();
            }
            let changed = object(&changed);
            call_everything(strategy, &changed, &whole);
            call_everything(strategy, &whole, &changed);
        }
    }
}
