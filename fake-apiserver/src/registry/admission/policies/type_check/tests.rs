//! Compares type checks with kube-controller-manager.

use std::fs::read_to_string;

use super::type_warnings;
use crate::api::json::{Value, json};
use crate::api::object::Object;
use crate::registry::scheme::Scheme;

/// Each line of the file contains the spec of a policy and the expected warnings, each with its path and message.
#[test]
fn policy_expressions_have_the_same_warnings_as_in_kube_controller_manager() {
    let path = format!("{}/tests/data/cel/policies.jsonl", env!("CARGO_MANIFEST_DIR"));
    let text = read_to_string(path).expect("the file with the policies exists");
    let mut differences = Vec::new();
    for line in text.lines() {
        let row: Value = serde_json::from_str(line).expect("the line is valid JSON");
        let policy = json!({"metadata": {"name": "p"}, "spec": row["policy"]});
        let policy = Object(policy.as_object().expect("the policy is an object").clone());
        let found = type_warnings(&policy, &Scheme::default());
        let expected: Vec<(String, String)> =
            serde_json::from_value(row["warnings"].clone().into()).expect("each warning is a pair of strings");
        for pair in found.iter().filter(|it| !expected.contains(it)) {
            differences.push(format!("+ {} {}", pair.0, pair.1));
        }
        for pair in expected.iter().filter(|it| !found.contains(it)) {
            differences.push(format!("- {} {}", pair.0, pair.1));
        }
    }
    let count = differences.len();
    assert!(
        differences.is_empty(),
        "{count} differences:\n{}",
        differences.join("\n")
    );
}
