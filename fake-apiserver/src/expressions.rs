//! Expressions about objects, for the testkit: rules in CEL, and fields by JSONPath. They are evaluated like CEL in
//! admission policies and JSONPath in printer columns.

use serde_json::Value;

use crate::api::json;
use crate::endpoints::table::jsonpath::JsonPath;
use crate::registry::cel::objects::Value as CelValue;
use crate::registry::cel::program::{Bindings, Program, ProgramOutcome};
use crate::registry::cel::requests::{Names, problem};

/// A rule about objects: a CEL expression with a boolean result.
#[derive(Debug)]
pub struct ObjectRule(Program);

impl ObjectRule {
    /// Parses and checks a rule. `names` are its variables: lists of objects if the flag is `true`, otherwise objects.
    /// It may use the libraries of admission policies.
    ///
    /// # Errors
    ///
    /// Returns the errors of the expression in the format of kube-apiserver; a type other than `bool` is an error.
    pub fn parse<'a>(expression: &str, names: impl IntoIterator<Item = (&'a str, bool)>) -> Result<Self, String> {
        let names = Names::of_objects(names.into_iter());
        match problem(expression, &["bool", "dyn"], &names) {
            Some(problem) => Err(problem.replace("one of [bool dyn]", "bool")),
            None => Program::parse(expression).map(Self),
        }
    }

    /// Evaluates the rule. A missing object is `null`.
    ///
    /// # Errors
    ///
    /// Returns the error of the evaluation, such as a missing field, an exceeded cost limit, or a result that is not a
    /// boolean.
    pub fn evaluate<'a>(&self, variables: impl IntoIterator<Item = (&'a str, Value)>) -> Result<bool, String> {
        let values: Vec<(&str, json::Value)> = variables.into_iter().map(|(name, it)| (name, it.into())).collect();
        let values: Vec<(&str, &json::Value)> = values.iter().map(|(name, it)| (*name, it)).collect();
        let bindings = Bindings {
            values: &values,
            variables: &[],
            authorizer: &ProgramOutcome(CelValue::Null),
            functions: crate::registry::cel::eval::no_more_functions,
        };
        let (result, _) = self.0.evaluate(&bindings);
        let result = result?;
        result
            .as_bool()
            .ok_or_else(|| format!("the result is of type {} instead of bool", result.type_name()))
    }
}

/// A path to a field, in the syntax of `kubectl wait --for=jsonpath=`.
#[derive(Clone, Debug)]
pub struct FieldPath(JsonPath);

impl FieldPath {
    /// Parses `{.status.conditions[?(@.type=="Ready")].status}`. The braces and the first dot are optional.
    ///
    /// # Errors
    ///
    /// Fails if the path is invalid or does not select a field.
    pub fn parse(text: &str) -> Result<Self, String> {
        let inner = text.trim();
        let inner = inner
            .strip_prefix('{')
            .and_then(|it| it.strip_suffix('}'))
            .unwrap_or(inner);
        if matches!(inner, "" | "." | "$") {
            return Err(format!("{text:?} is not a path to a field"));
        }
        let path = match inner.starts_with(['.', '$', '[']) {
            true => JsonPath::parse(inner),
            false => JsonPath::parse(&format!(".{inner}")),
        };
        path.map(Self).map_err(|err| format!("{text:?}: {err}"))
    }

    /// Returns the values at the path, in depth-first order.
    #[must_use]
    pub fn values(&self, object: &Value) -> Vec<Value> {
        let object = json::Value::from(object.clone());
        self.0.all(&object).into_iter().cloned().map(Value::from).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[rstest::rstest]
    #[case::fields("object.spec.replicas == 3", Ok(true))]
    #[case::lists("items.filter(it, it.ready).size() > 1", Ok(false))]
    #[case::missing_object("gone == null", Ok(true))]
    #[case::quantities("quantity(object.spec.size).isLessThan(quantity('2Gi'))", Ok(true))]
    #[case::missing_field("object.spec.other == 1", Err("no such key: other"))]
    #[case::result_of_another_type("object.spec.replicas", Err("the result is of type int instead of bool"))]
    fn object_rules_are_evaluated_with_named_variables(#[case] rule: &str, #[case] expected: Result<bool, &str>) {
        let names = [("object", false), ("items", true), ("gone", false)];
        let rule = ObjectRule::parse(rule, names).expect("the rule is valid");
        let values = [
            ("object", json!({"spec": {"replicas": 3, "size": "1Gi"}})),
            ("items", json!([{"ready": true}, {"ready": false}])),
            ("gone", Value::Null),
        ];
        assert_eq!(rule.evaluate(values), expected.map_err(str::to_owned));
    }

    #[rstest::rstest]
    #[case::unknown_name("obj.spec == 1", "undeclared reference to 'obj'")]
    #[case::result_of_another_type("items.size()", "must evaluate to bool but got int")]
    #[case::invalid_syntax("object.", "Syntax error")]
    fn invalid_object_rules_are_refused(#[case] rule: &str, #[case] error: &str) {
        let refused = ObjectRule::parse(rule, [("object", false), ("items", true)]).expect_err("the rule is invalid");
        assert!(refused.contains(error), "{refused}");
    }

    #[rstest::rstest]
    #[case::braces("{.status.replicas}", json!([3]))]
    #[case::without_braces("status.replicas", json!([3]))]
    #[case::escaped_dot(r"{.status.a\.b}", json!([true]))]
    #[case::filter(r#"{.status.conditions[?(@.type=="Ready")].status}"#, json!(["True"]))]
    #[case::several_values("{.status.conditions[*].type}", json!(["Other", "Ready"]))]
    #[case::missing_field("{.status.other}", json!([]))]
    fn field_paths_are_parsed_as_in_kubectl(#[case] path: &str, #[case] expected: Value) {
        let object = json!({"status": {
            "replicas": 3, "a.b": true,
            "conditions": [{"type": "Other", "status": "False"}, {"type": "Ready", "status": "True"}],
        }});
        let path = FieldPath::parse(path).expect("the path is supported");
        assert_eq!(Value::from(path.values(&object)), expected);
    }

    #[rstest::rstest]
    #[case::open_bracket("{.a[0}", r#""{.a[0}": unterminated array"#)]
    #[case::empty_path("{}", r#""{}" is not a path to a field"#)]
    fn invalid_field_paths_are_refused(#[case] path: &str, #[case] error: &str) {
        assert_eq!(FieldPath::parse(path).err().as_deref(), Some(error));
    }
}
