//! Label selectors: `app in (web,api),tier!=db,!canary` (rule F1).

use std::fmt;

use super::syntax::{key_error, value_error};
use crate::api::field::quote;
use crate::api::json::Value;

/// The requirements of a `labelSelector`; an object is selected if its labels meet all of them.
///
/// ```
/// use fake_apiserver::api::selector::LabelSelector;
///
/// let selector = LabelSelector::parse("app in (web, api), !canary")?;
/// assert!(selector.matches(|key| (key == "app").then_some("web")));
/// assert!(!selector.matches(|key| (key == "canary").then_some("")));
/// assert_eq!(selector.to_string(), "app in (api,web),!canary");
///
/// let error = "unable to parse requirement: found '=', expected: identifier";
/// assert_eq!(LabelSelector::parse("app==="), Err(error.to_owned()));
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector {
    requirements: Vec<LabelRequirement>,
}

/// One requirement of a [`LabelSelector`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelRequirement {
    key: String,
    operator: LabelOperator,
    /// Sorted, without duplicates.
    values: Vec<String>,
    /// The value as a number, for `>` and `<`.
    number: i64,
}

/// Operator of a [`LabelRequirement`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LabelOperator {
    /// `key=value`
    Equals,
    /// `key==value`
    DoubleEquals,
    /// `key!=value`; also matches if the label is absent
    NotEquals,
    /// `key in (a,b)`
    In,
    /// `key notin (a,b)`; also matches if the label is absent
    NotIn,
    /// `key`
    Exists,
    /// `!key`
    DoesNotExist,
    /// `key>1`; the label must be an integer
    GreaterThan,
    /// `key<1`; the label must be an integer
    LessThan,
}

impl LabelSelector {
    /// Parses a `LabelSelector` object (`matchLabels`, `matchExpressions`), such as `spec.selector` of a Deployment.
    /// Returns `None` for null, which selects nothing; the empty object selects everything.
    pub(crate) fn from_object(object: &Value) -> Result<Option<Self>, String> {
        if object.is_null() {
            return Ok(None);
        }
        let mut requirements = Vec::new();
        let labels = object.get("matchLabels").and_then(Value::as_object);
        for (key, value) in labels.into_iter().flatten() {
            let value = value.as_str().unwrap_or_default().to_owned();
            requirements.push(LabelRequirement::new(
                key.to_string(),
                LabelOperator::Equals,
                vec![value],
            )?);
        }
        let expressions = object.get("matchExpressions").and_then(Value::as_array);
        for expression in expressions.into_iter().flatten() {
            let text = |field: &str| expression.get(field).and_then(Value::as_str).unwrap_or_default();
            let operator = match text("operator") {
                "In" => LabelOperator::In,
                "NotIn" => LabelOperator::NotIn,
                "Exists" => LabelOperator::Exists,
                "DoesNotExist" => LabelOperator::DoesNotExist,
                other => return Err(format!("{} is not a valid label selector operator", quote(other))),
            };
            let values = expression.get("values").and_then(Value::as_array);
            let values = values.into_iter().flatten().filter_map(Value::as_str);
            let values = values.map(str::to_owned).collect();
            requirements.push(LabelRequirement::new(text("key").to_owned(), operator, values)?);
        }
        Ok(Some(Self::sorted(requirements)))
    }

    pub(super) fn sorted(mut requirements: Vec<LabelRequirement>) -> Self {
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Self { requirements }
    }

    /// Returns `true` if every object is selected.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Returns the requirements, sorted by key.
    pub fn requirements(&self) -> &[LabelRequirement] {
        &self.requirements
    }

    /// Returns `true` if an object is selected; `value_of` returns the value of a label, `None` if the object lacks it.
    pub fn matches<'a>(&self, value_of: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.requirements.iter().all(|it| it.matches(value_of(&it.key)))
    }
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, requirement) in self.requirements.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{requirement}")?;
        }
        Ok(())
    }
}

impl LabelRequirement {
    /// Creates a requirement, after checking its key, its values and their number.
    pub(super) fn new(key: String, operator: LabelOperator, mut values: Vec<String>) -> Result<Self, String> {
        use LabelOperator as Op;
        values.sort_unstable();
        values.dedup();
        let mut errors = Vec::new();
        if let Some(error) = key_error(&key) {
            errors.push(format!("key: Invalid value: {}: {error}", quote(&key)));
        }
        let number_error = match operator {
            Op::In | Op::NotIn if values.is_empty() => Some("for 'in', 'notin' operators, values set can't be empty"),
            Op::Exists | Op::DoesNotExist if !values.is_empty() => {
                Some("values set must be empty for exists and does not exist")
            }
            Op::Equals | Op::DoubleEquals | Op::NotEquals if values.len() != 1 => {
                Some("exact-match compatibility requires one single value")
            }
            Op::GreaterThan | Op::LessThan if values.len() != 1 => {
                Some("for 'Gt', 'Lt' operators, exactly one value is required")
            }
            Op::In
            | Op::NotIn
            | Op::Exists
            | Op::DoesNotExist
            | Op::Equals
            | Op::DoubleEquals
            | Op::NotEquals
            | Op::GreaterThan
            | Op::LessThan => None,
        };
        if let Some(error) = number_error {
            errors.push(format!(
                "values: Invalid value: {}: {error}",
                Value::from(values.clone())
            ));
        }
        let mut number = 0;
        if matches!(operator, Op::GreaterThan | Op::LessThan) {
            for (index, value) in values.iter().enumerate() {
                match value.parse() {
                    Ok(parsed) => number = parsed,
                    Err(_) => errors.push(format!(
                        "values[{index}]: Invalid value: {}: for 'Gt', 'Lt' operators, the value must be an integer",
                        quote(value)
                    )),
                }
            }
        }
        for (index, value) in values.iter().enumerate() {
            if let Some(error) = value_error(value) {
                errors.push(format!(
                    "values[{index}][{key}]: Invalid value: {}: {error}",
                    quote(value)
                ));
            }
        }
        match errors.len() {
            0 => Ok(Self {
                key,
                operator,
                values,
                number,
            }),
            1 => Err(errors.remove(0)),
            _ => Err(format!("[{}]", errors.join(", "))),
        }
    }

    /// Returns the label's key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns the operator.
    pub fn operator(&self) -> LabelOperator {
        self.operator
    }

    /// Returns the values to compare with, sorted; empty for `Exists` and `DoesNotExist`.
    pub fn values(&self) -> &[String] {
        &self.values
    }

    /// Returns `true` if the requirement matches a label with this value; `value` is `None` if the object lacks the
    /// label.
    pub fn matches(&self, value: Option<&str>) -> bool {
        use LabelOperator as Op;
        let listed = |value: &str| self.values.iter().any(|it| it == value);
        let number = || value.and_then(|it| it.parse::<i64>().ok());
        match self.operator {
            Op::Equals | Op::DoubleEquals | Op::In => value.is_some_and(listed),
            Op::NotEquals | Op::NotIn => !value.is_some_and(listed),
            Op::Exists => value.is_some(),
            Op::DoesNotExist => value.is_none(),
            Op::GreaterThan => number().is_some_and(|it| it > self.number),
            Op::LessThan => number().is_some_and(|it| it < self.number),
        }
    }
}

impl fmt::Display for LabelRequirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use LabelOperator as Op;
        let (key, values) = (&self.key, self.values.join(","));
        match self.operator {
            Op::Equals => write!(f, "{key}={values}"),
            Op::DoubleEquals => write!(f, "{key}=={values}"),
            Op::NotEquals => write!(f, "{key}!={values}"),
            Op::In => write!(f, "{key} in ({values})"),
            Op::NotIn => write!(f, "{key} notin ({values})"),
            Op::Exists => f.write_str(key),
            Op::DoesNotExist => write!(f, "!{key}"),
            Op::GreaterThan => write!(f, "{key}>{values}"),
            Op::LessThan => write!(f, "{key}<{values}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::api::json::json;
    use rstest::rstest;

    use super::*;

    fn selects(text: &str, labels: &[(&str, &str)]) -> bool {
        LabelSelector::parse(text)
            .expect("the selector is valid")
            .matches(|key| labels.iter().find(|(it, _)| *it == key).map(|(_, value)| *value))
    }

    #[rstest]
    #[case("", true)]
    #[case("app=x", true)]
    #[case("app==y", false)]
    #[case("app!=x", false)]
    #[case("none!=x", true)]
    #[case(" app in ( x , y ) , tier != db ", true)]
    #[case("app notin (x)", false)]
    #[case("none notin (x)", true)]
    #[case("none in ()", false)]
    #[case("empty in ()", true)]
    #[case("empty=", true)]
    #[case("none=", false)]
    #[case("app", true)]
    #[case("!app", false)]
    #[case("!none", true)]
    #[case("n>4", true)]
    #[case("n>5", false)]
    #[case("n<6,n>1", true)]
    #[case("app>1", false)]
    #[case("in in (in,notin)", false)]
    fn f1_label_selector_operators_match_labels(#[case] text: &str, #[case] expected: bool) {
        let labels = [("app", "x"), ("tier", "web"), ("n", "5"), ("empty", "")];
        assert_eq!(selects(text, &labels), expected);
    }

    #[rstest]
    #[case(
        "a b",
        "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"
    )]
    #[case("a===", "unable to parse requirement: found '=', expected: identifier")]
    #[case("a,", "found '', expected: identifier after ','")]
    #[case("=a", "found '=', expected: !, identifier, or 'end of string'")]
    #[case("!", "unable to parse requirement: found '', expected: identifier")]
    #[case("a in b", "unable to parse requirement: found 'b' expected: '('")]
    #[case("a in (b", "unable to parse requirement: found '', expected: ',' or ')'")]
    #[case("a in (b,", "unable to parse requirement: found '', expected: ',', or identifier")]
    #[case(
        "a in (=)",
        "unable to parse requirement: found '=', expected: ',', ')' or identifier"
    )]
    #[case("a=b c", "found 'c', expected: ',' or 'end of string'")]
    #[case(
        "n>x",
        "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be an \
         integer"
    )]
    fn f2_error_contains_the_invalid_requirement(#[case] text: &str, #[case] error: &str) {
        assert_eq!(LabelSelector::parse(text).unwrap_err(), error);
    }

    #[test]
    fn f2_keys_and_values_are_checked() {
        let error = LabelSelector::parse("/x=y").unwrap_err();
        let expected = "unable to parse requirement: <nil>: Invalid value: \"/x\": prefix part must be non-empty";
        assert_eq!(error, expected);
        let error = LabelSelector::parse("a=-").unwrap_err();
        assert!(error.starts_with(
            "unable to parse requirement: values[0][a]: Invalid value: \"-\": a valid label must be an empty string"
        ));
    }

    #[test]
    fn label_selector_object_is_printed_in_query_syntax() {
        let object = json!({"matchLabels": {"b": "1"}, "matchExpressions": [
            {"key": "a", "operator": "NotIn", "values": ["y", "x"]}, {"key": "c", "operator": "Exists"}]});
        let selector = LabelSelector::from_object(&object).expect("the selector is valid");
        let selector = selector.expect("the object has a selector");
        assert_eq!(selector.to_string(), "a notin (x,y),b=1,c");
        assert_eq!(LabelSelector::from_object(&Value::Null), Ok(None));
        let error = LabelSelector::from_object(&json!({"matchExpressions": [{"key": "a", "operator": "Has"}]}));
        assert_eq!(error.unwrap_err(), "\"Has\" is not a valid label selector operator");
    }
}
