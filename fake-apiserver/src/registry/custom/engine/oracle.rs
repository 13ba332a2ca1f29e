//! Compares rules with cel-go in the environment of Kubernetes 1.36: rules for random schemas, and the expressions of
//! cel-spec. The fake server must accept and refuse the same rules, and compute the same values and costs.

use std::fs::read_to_string;

use rstest::rstest;

use super::super::rules::{Rule, RuleVerdict};
use super::super::schema::Structural;
use super::super::validate::ValueView;
use super::evaluate::value_of;
use super::{Declared, Operands, evaluate, problem_of_message, problem_of_rule};
use crate::api::json::{Value, json};
use crate::api::kubernetes_version::KubernetesVersion;
use crate::registry::cel::objects::Value as CelValue;
use crate::registry::types::cursor::Cursor;

/// Budget of a request, which is greater than the limit of a rule.
const BUDGET: u64 = 100_000_000;

/// Returns the lines of a file: `{"schema"}`, followed by its rules as `{"rule", "value"}` with the expected result.
fn lines(name: &str) -> Vec<Value> {
    let path = format!("{}/tests/data/cel/{name}.jsonl", env!("CARGO_MANIFEST_DIR"));
    let text = read_to_string(&path).expect("the file with the rules exists");
    let parse = |line| serde_json::from_str(line).expect("the text is valid JSON");
    text.lines().map(parse).collect()
}

/// Returns the result of a rule: its compile error, its value and cost, or its evaluation error.
fn answer(schema: &Value, rule: &str, value: &Value) -> Value {
    let declared = Declared::of_node(&Cursor::document(schema), false, KubernetesVersion::V1_36);
    if let Some(problem) = problem_of_rule(rule, false, &declared) {
        return json!({"error": problem});
    }
    let node = Structural::parse(&Cursor::document(schema));
    let rule = Rule::parse(&Cursor::document(&json!({"rule": rule})));
    let operands = Operands::new(&node, ValueView::from(value), None);
    let mut budget = BUDGET;
    let verdict = evaluate(&rule, &operands, &mut budget);
    match verdict {
        RuleVerdict::Holds => json!({"value": true, "cost": BUDGET - budget}),
        RuleVerdict::Fails(_) => json!({"value": false, "cost": BUDGET - budget}),
        RuleVerdict::Error(error) => json!({"evalError": error}),
        _ => json!({"evalError": "too dear"}),
    }
}

#[rstest]
#[case::random_rules("rules")]
#[case::specification_expressions("spec")]
fn rules_return_the_same_results_as_cel_go(#[case] file: &str) {
    let exceptions = read_to_string(format!("{}/tests/data/cel/exceptions.txt", env!("CARGO_MANIFEST_DIR")));
    // Lines that begin with `#` explain the exceptions.
    let exceptions = exceptions.expect("the list of exceptions exists");
    let mut schema = Value::Null;
    let mut differences = Vec::new();
    for line in lines(file) {
        if let Some(next) = line.get("schema") {
            schema = next.clone();
            continue;
        }
        let (rule, expected) = (line["rule"].as_str().expect("the rule is a string"), &line["answer"]);
        let found = answer(&schema, rule, &line["value"]);
        let same = |key: &str| found.get(key) == expected.get(key);
        let both = |key: &str| found.get(key).is_some() == expected.get(key).is_some();
        let is_same = both("error") && both("evalError") && same("value") && same("cost");
        if !is_same && !exceptions.lines().any(|it| it == rule) {
            differences.push(format!("{rule}\n  expected {expected}\n  found    {found}"));
        }
    }
    let count = differences.len();
    assert!(
        differences.is_empty(),
        "{count} differences:\n{}",
        differences.join("\n")
    );
}

/// Returns the full result of a rule or a message expression: its compile errors, its run-time error, or its value and
/// cost.
fn full_answer(schema: &Value, row: &Value) -> Value {
    let is_set = |key: &str| row[key] == true;
    let expression = row["rule"].as_str().expect("the rule is a string");
    let (is_root, has_optional_old) = (is_set("root"), is_set("optional"));
    let cursor = Cursor::document(schema);
    let declared = Declared::of_node(&cursor, is_root, KubernetesVersion::V1_36);
    let problem = match row["kind"] == "message" {
        true => problem_of_message(expression, has_optional_old, &declared),
        false => problem_of_rule(expression, has_optional_old, &declared),
    };
    if let Some(problem) = problem {
        return json!({"error": problem});
    }
    let node = match is_root {
        true => Structural::parse_root(&cursor),
        false => Structural::parse(&cursor),
    };
    let rule = json!({"rule": expression, "optionalOldSelf": has_optional_old, "messageExpression": expression});
    let rule = Rule::parse(&Cursor::document(&rule));
    let old = row.get("old").map(ValueView::from);
    let operands = Operands::new(&node, ValueView::from(&row["value"]), old);
    let (result, cost) = value_of(&rule, &operands);
    match result {
        Ok(CelValue::Bool(value)) => json!({"value": value, "cost": cost}),
        Ok(CelValue::String(text)) => json!({"value": text.as_str(), "cost": cost}),
        Ok(other) => json!({"value": other.kind(), "cost": cost}),
        Err(error) => json!({"evalError": error}),
    }
}

/// The file consists of lines `{"schema", "rows"}`. Each row contains an expression with its operands, and the full
/// result.
#[test]
fn expressions_return_the_same_results_as_cel_go() {
    let mut differences = Vec::new();
    for group in lines("differential") {
        for row in group["rows"].as_array().into_iter().flatten() {
            let (found, expected) = (full_answer(&group["schema"], row), &row["answer"]);
            if found != *expected {
                differences.push(format!("{}\n  expected {expected}\n  found    {found}", row["rule"]));
            }
        }
    }
    let count = differences.len();
    assert!(
        differences.is_empty(),
        "{count} differences:\n{}",
        differences.join("\n")
    );
}
