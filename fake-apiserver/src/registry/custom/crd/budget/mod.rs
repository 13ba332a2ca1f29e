//! `Scope` and `Costs`: the number of evaluations of a rule, the total cost of a schema's rules, and their limits.
//! Without the feature `cel`, `absent.rs` replaces this module.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use super::super::declaration::{decl_of, limit};
use super::super::engine::Declared;
use crate::api::field::{FieldErrors, FieldPath};
use crate::api::kubernetes_version::KubernetesVersion;
use crate::registry::cel::cost::coster;
use crate::registry::cel::cost::decl::{Decl, REQUEST_BYTES_MAX};
use crate::registry::cel::parse::{escape, parse};
use crate::registry::types::cursor::Cursor;

/// Maximum cost of one expression, in units of CEL's cost.
const EXPRESSION_COST_MAX: u64 = 10_000_000;

/// Maximum total cost of all expressions of one schema.
const SCHEMA_COST_MAX: u64 = 100_000_000;

/// Maximum number of expressions listed as causes if the cost of a schema is too high.
const NAMED_MAX: usize = 4;

/// Properties of a schema node that depend on the enclosing schemas, collected while the schema is traversed.
#[derive(Clone)]
pub(super) struct Scope {
    /// The type of the node, if the node or an enclosing one has rules.
    decl: Option<Arc<Decl>>,
    /// Maximum number of values of the node in one object; `None` if unlimited.
    cardinality: Option<u64>,
    is_resource: bool,
    version: KubernetesVersion,
}

impl Scope {
    /// Creates the scope of the root of a schema.
    pub(super) fn root(version: KubernetesVersion) -> Self {
        Self {
            version,
            decl: None,
            cardinality: Some(1),
            is_resource: true,
        }
    }

    /// Sets the type of `node`, if `node` has rules and no enclosing node has any.
    pub(super) fn with_types(mut self, node: &Cursor<'_>) -> Self {
        if self.decl.is_none() && !node.list("x-kubernetes-validations").is_empty() {
            self.decl = decl_of(node, self.is_resource);
        }
        self
    }

    /// Returns the types available to the rules of the node.
    pub(super) fn declared(&self) -> Declared {
        Declared::of(self.decl.as_ref(), self.version)
    }

    fn below(&self, node: &Cursor<'_>, child: &Cursor<'_>, decl: Option<Arc<Decl>>) -> Self {
        let factor = elements_max(node);
        Self {
            decl,
            cardinality: self
                .cardinality
                .zip(factor)
                .map(|(count, factor)| count.saturating_mul(factor)),
            is_resource: child.is_true("x-kubernetes-embedded-resource"),
            version: self.version,
        }
    }

    /// Returns the scope of the property `name` of `node`.
    pub(super) fn property(&self, node: &Cursor<'_>, name: &str, child: &Cursor<'_>) -> Self {
        let decl = self.decl.as_deref().and_then(|it| it.field(&escape(name)));
        self.below(node, child, decl)
    }

    /// Returns the scope of a list's items or of a map's values.
    pub(super) fn element(&self, node: &Cursor<'_>, child: &Cursor<'_>) -> Self {
        let decl = self.decl.as_deref().and_then(Decl::element);
        self.below(node, child, decl)
    }

    /// Returns the maximum cost of one evaluation of the expression in `field` of a rule.
    fn cost(&self, rule: &Cursor<'_>, field: &str) -> Option<u64> {
        let text = Some(rule.text(field)).filter(|it| !it.is_empty())?;
        let program = parse(text).ok()?;
        Some(coster::cost(
            &program,
            self.decl.as_ref()?,
            rule.is_true("optionalOldSelf"),
        ))
    }

    /// Returns the maximum number of values of the node. If the schema does not limit it, returns the number that fits
    /// into a request.
    pub(super) fn count(&self) -> u64 {
        let smallest = self.decl.as_ref().map_or(1, |decl| decl.min_size);
        self.cardinality.unwrap_or(REQUEST_BYTES_MAX / (smallest + 1))
    }
}

/// Returns the maximum number of children in one value of a node; `None` if unlimited.
fn elements_max(node: &Cursor<'_>) -> Option<u64> {
    let limit = |key: &str| limit(node, key);
    match node.text("type") {
        "object" if node.is_set("additionalProperties") => limit("maxProperties"),
        "array" => limit("maxItems"),
        _ => Some(1),
    }
}

/// The costs of all expressions of one schema.
#[derive(Default)]
pub(super) struct Costs {
    total: u64,
    /// The most expensive expressions of at least 1 % of the schema's limit, in descending order of cost.
    dearest: Vec<(u64, FieldPath)>,
    /// Set if the cost of single expressions is unlimited, because the schema is already stored.
    spares_single: bool,
}

impl Costs {
    pub(super) fn new(spares_single: bool) -> Self {
        Self {
            spares_single,
            ..Self::default()
        }
    }

    /// Adds the cost of a rule, multiplied by the maximum number of values.
    pub(super) fn add_rule(&mut self, rule: &Cursor<'_>, scope: &Scope, errors: &mut FieldErrors) {
        if let Some(cost) = scope.cost(rule, "rule") {
            let cost = cost.saturating_mul(scope.count());
            self.add("estimated rule cost", cost, &rule.at("rule"), errors);
        }
    }

    /// Adds the cost of a `messageExpression`, which is evaluated once.
    pub(super) fn add_message(&mut self, rule: &Cursor<'_>, scope: &Scope, errors: &mut FieldErrors) {
        if let Some(cost) = scope.cost(rule, "messageExpression") {
            let at = rule.at("messageExpression");
            self.add("estimated messageExpression cost", cost, &at, errors);
        }
    }

    pub(super) fn add(&mut self, what: &str, cost: u64, at: &Cursor<'_>, errors: &mut FieldErrors) {
        if cost > EXPRESSION_COST_MAX && !self.spares_single {
            errors.forbidden(at, exceeds(what, cost, EXPRESSION_COST_MAX));
        }
        self.total = self.total.saturating_add(cost);
        if cost < SCHEMA_COST_MAX / 100 {
            return;
        }
        let place = self.dearest.partition_point(|(other, _)| *other >= cost);
        self.dearest.insert(place, (cost, at.path()));
        self.dearest.truncate(NAMED_MAX);
    }

    /// Reports an error if the total cost of the schema is too high.
    pub(super) fn finish(self, schema: &Cursor<'_>, errors: &mut FieldErrors) {
        if self.total <= SCHEMA_COST_MAX {
            return;
        }
        for (_, path) in self.dearest {
            let text = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
            errors.forbidden(path, text);
        }
        let what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        errors.forbidden(schema, exceeds(what, self.total, SCHEMA_COST_MAX));
    }
}

#[expect(clippy::cast_precision_loss, reason = "a factor is shown in a few digits")]
fn exceeds(what: &str, cost: u64, limit: u64) -> String {
    let factor = cost as f64 / limit as f64;
    let factor = match factor {
        _ if factor > 100.0 => "more than 100x".to_owned(),
        _ if factor < 1.5 => format!("{factor:.6}x"),
        _ => format!("{factor:.1}x"),
    };
    format!(
        "{what} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and \
         maxLength where arrays, maps, and strings are declared)"
    )
}
