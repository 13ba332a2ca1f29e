//! Finds the errors of a rule that do not depend on an object: errors in its syntax, names, types and constant parts.

use std::sync::Arc;

use super::super::declaration::decl_of;
use super::evaluate::planned;
use crate::api::kubernetes_version::KubernetesVersion;
use crate::registry::cel::check::{Environment, Type, check};
use crate::registry::cel::cost::decl::Decl;
use crate::registry::cel::parse::{parse_source_of, show_errors};
use crate::registry::types::cursor::Cursor;

/// The types available to the rules of one schema.
pub(in super::super) struct Declared {
    /// The type of `self`; `dyn` if the schema does not declare one.
    this: Type,
    version: KubernetesVersion,
}

impl Declared {
    pub(in super::super) fn of(decl: Option<&Arc<Decl>>, version: KubernetesVersion) -> Self {
        let this = decl.map_or(Type::Dyn, Type::of);
        Self { this, version }
    }

    /// Returns the types available to the rules of a schema; `is_resource` is set for a complete object.
    pub(in super::super) fn of_node(node: &Cursor<'_>, is_resource: bool, version: KubernetesVersion) -> Self {
        Self::of(decl_of(node, is_resource).as_ref(), version)
    }

    fn environment(&self, has_optional_old: bool) -> Environment {
        let mut environment = Environment::new(self.version);
        environment.declare("self", self.this.clone());
        let old = match has_optional_old {
            true => Type::optional(self.this.clone()),
            false => self.this.clone(),
        };
        environment.declare("oldSelf", old);
        environment
    }

    /// Returns the type of an expression, or its errors in kube-apiserver's format.
    fn output(&self, expression: &str, has_optional_old: bool) -> Result<Type, String> {
        let environment = self.environment(has_optional_old);
        let parsed = parse_source_of(expression, environment.dialect());
        let parsed = parsed.map_err(|error| format!("compilation failed: {error}"))?;
        let checked = check(&parsed, &environment);
        checked.map(|it| it.output).map_err(|errors| {
            let errors = show_errors(expression, errors).unwrap_or_default();
            format!("compilation failed: {errors}")
        })
    }

    /// Returns the error of evaluating the constant parts of an expression.
    fn unplanned(expression: &str) -> Option<String> {
        planned(expression).err()
    }
}

/// Returns the error of a rule. If `has_optional_old` is set, `oldSelf` is an optional value.
pub(in super::super) fn problem_of_rule(rule: &str, has_optional_old: bool, declared: &Declared) -> Option<String> {
    match declared.output(rule, has_optional_old) {
        Ok(Type::Bool) => Declared::unplanned(rule).map(|error| format!("program instantiation failed: {error}")),
        Ok(_) => Some("cel expression must evaluate to a bool".to_owned()),
        Err(problem) => Some(problem),
    }
}

/// Returns the error of the `messageExpression` of a rule.
pub(in super::super) fn problem_of_message(
    expression: &str,
    has_optional_old: bool,
    declared: &Declared,
) -> Option<String> {
    match declared.output(expression, has_optional_old) {
        Ok(Type::String) => {
            Declared::unplanned(expression).map(|error| format!("messageExpression instantiation failed: {error}"))
        }
        Ok(_) => Some("messageExpression must evaluate to a string".to_owned()),
        Err(problem) => Some(format!("messageExpression {problem}")),
    }
}
