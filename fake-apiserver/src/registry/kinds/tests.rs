//! Objects as a real server creates or refuses them, kind by kind.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::strategy;
use crate::api::field::FieldErrors;
use crate::api::object::Object;
use crate::entropy::Entropy;
use crate::registry::metadata;
use crate::registry::strategy::Context;

const CASES: &str = include_str!("../../../tests/data/created_kinds.json");

/// Creates the object: what is stored, or what is wrong with it.
fn create(case: &Value) -> Result<Object, String> {
    let entropy = Entropy::new(1, Timestamp::UNIX_EPOCH);
    let context = Context {
        entropy: &entropy,
        stored: &|_, _| Vec::new(),
        subresource: "",
    };
    let field = |name: &str| case[name].as_str().unwrap_or_default();
    let (strategy, namespace) = (strategy(field("group"), field("resource")), field("namespace"));
    let mut object = Object(case["body"].as_object().cloned().unwrap_or_default());
    let mut errors = FieldErrors::new();
    let served = object.api_version().to_owned();
    strategy.default(&mut object);
    let stored = strategy.stored_api_version().unwrap_or(&served);
    strategy.convert(&mut object, stored);
    metadata::fill_namespace(&mut object, namespace).map_err(|status| status.message)?;
    metadata::begin_lifetime(&mut object, strategy, &entropy);
    if !strategy.keeps_status_on_create() {
        object.remove("status");
    }
    strategy.allocate(&mut object, None, &mut errors, &context);
    if errors.is_empty() {
        strategy.prepare_for_create(&mut object, &context);
        metadata::validate_create(&object, !namespace.is_empty(), strategy, &mut errors);
        strategy.validate(&object, &mut errors);
    }
    let mut texts: Vec<String> = Vec::new();
    for error in errors.iter().map(ToString::to_string) {
        if !texts.contains(&error) {
            texts.push(error);
        }
    }
    strategy.convert(&mut object, &served);
    match texts.len() {
        0 => Ok(object),
        1 => Err(texts.remove(0)),
        _ => Err(format!("[{}]", texts.join(", "))),
    }
}

/// Whether `found` is `expected` but for masked values and for the zero values that encoding adds.
fn agree(found: Option<&Value>, expected: &Value) -> bool {
    match (found, expected) {
        (_, Value::String(text)) if text.starts_with('<') => true,
        (Some(Value::Object(found)), Value::Object(expected)) => {
            let all = expected.iter().all(|(key, value)| agree(found.get(key), value));
            all && found
                .iter()
                .all(|(key, value)| expected.contains_key(key) || is_zero(value))
        }
        (Some(Value::Array(found)), Value::Array(expected)) => {
            found.len() == expected.len() && found.iter().zip(expected).all(|(a, b)| agree(Some(a), b))
        }
        (Some(found), expected) => found == expected || (is_zero(found) && is_zero(expected)),
        (None, expected) => is_zero(expected),
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(fields) => fields.values().all(is_zero),
        Value::Array(items) => items.is_empty(),
        other => *other == json!(0) || *other == json!(""),
    }
}

#[tokio::test(start_paused = true)]
async fn created_as_by_a_real_server() {
    let cases: Vec<Value> = serde_json::from_str(CASES).unwrap();
    let mut wrong = Vec::new();
    for case in &cases {
        let result = create(case);
        let name = format!("{} {} {}", case["from"], case["resource"], case["body"]);
        match (&result, case.get("created"), case.get("invalid")) {
            (Ok(object), Some(expected), _) => {
                let mut rest: Map<String, Value> = object.0.clone();
                rest.retain(|key, _| !matches!(key.as_str(), "kind" | "apiVersion" | "metadata" | "status"));
                let rest = Value::Object(rest);
                if !agree(Some(&rest), expected) {
                    wrong.push(format!("{name}\n  found    {rest}\n  expected {expected}"));
                }
            }
            (Err(found), _, Some(expected)) if expected == found => {}
            (found, created, invalid) => wrong.push(format!(
                "{name}\n  found    {found:?}\n  expected {created:?} {invalid:?}"
            )),
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}
