//! Variables of expressions in policies and match conditions: `object`, `oldObject`, `request`, `params`,
//! `namespaceObject`, `variables` and `authorizer` (rules P5, P7).

use std::cell::Cell;

use super::super::Admission;
use super::super::attributes::Attributes;
use super::super::matching::Matched;
use super::authorizer;
use crate::api::admission::AdmissionRequest;
use crate::api::json::Value;
use crate::api::status::Status;
use crate::registry::cel::program::{Bindings, Program, ProgramOutcome};
use crate::registry::reader::Reader;
use crate::storage::Key;

/// Maximum total cost of the match conditions of one webhook or policy, in units of CEL's cost.
const CONDITIONS_BUDGET: u64 = 2_500_000;

/// Maximum total cost of the validations of a policy for one binding and parameter, of its audit annotations, or of one
/// mutation.
const BUDGET: u64 = 10_000_000;

/// Error message if the budget is exceeded.
pub(super) const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// The variables for one request. Objects have the version in which the request matched.
#[derive(Debug)]
pub(super) struct Environment {
    request: Value,
    /// The variable `request` of match conditions, if it differs: it contains the requested resource, but the kind that
    /// matched.
    request_in_conditions: Option<Value>,
    /// Set while match conditions are evaluated.
    in_conditions: Cell<bool>,
    object: Value,
    old_object: Value,
    namespace: Value,
    pub(super) params: Value,
    variables: Vec<(String, ProgramOutcome)>,
    authorizer: ProgramOutcome,
    /// Variables that could not be evaluated, with the reason.
    failed: Vec<(String, String)>,
    /// Remaining budget; `None` after an expression has exceeded it.
    budget: Cell<Option<u64>>,
}

impl Environment {
    pub(super) fn new(admission: &Admission, review: &AdmissionRequest) -> Self {
        let mut request = Value::from(review.to_value());
        if let Some(map) = request.as_object_mut() {
            for field in ["object", "oldObject", "uid"] {
                map.remove(field);
            }
        }
        let request_in_conditions = (review.resource != review.request_resource).then(|| {
            let mut request = request.clone();
            request["resource"] = request["requestResource"].clone();
            request
        });
        let kind = &review.request_kind;
        let is_namespace = (&*kind.group, &*kind.version, &*kind.kind) == ("", "v1", "Namespace");
        Self {
            request,
            request_in_conditions,
            in_conditions: Cell::new(false),
            object: review.object.clone().into(),
            old_object: review.old_object.clone().into(),
            namespace: match is_namespace {
                true => Value::Null,
                false => namespace_of(&admission.reader, &review.namespace),
            },
            params: Value::Null,
            variables: Vec::new(),
            authorizer: authorizer::variable(admission.authorization.authorizer(&review.user), review),
            failed: Vec::new(),
            budget: Cell::new(Some(BUDGET)),
        }
    }

    /// Returns the remaining budget.
    pub(super) fn budget(&self) -> Option<u64> {
        self.budget.get()
    }

    /// Resets the budget for the following expressions.
    pub(super) fn restore_budget(&self) {
        self.set_budget(Some(BUDGET));
    }

    pub(super) fn set_budget(&self, budget: Option<u64>) {
        self.budget.set(budget);
    }

    /// Replaces the variable `object` for the following expressions.
    pub(super) fn set_object(&mut self, object: Value) {
        self.object = object;
    }

    /// Evaluates the variables of a policy in order; each may use the previous ones. kube-apiserver evaluates them
    /// lazily, so their cost is not charged here. Resets the budget for the following expressions.
    pub(super) fn evaluate_variables(&mut self, variables: &[(String, Program)]) {
        self.variables.clear();
        self.failed.clear();
        self.set_budget(Some(BUDGET));
        for (name, program) in variables {
            match self.evaluate(program).0 {
                Ok(value) => self.variables.push((name.clone(), value)),
                Err(error) => self.failed.push((name.clone(), error)),
            }
        }
    }

    /// Evaluates an expression, and charges its cost.
    pub(super) fn value(&self, program: &Program) -> Result<ProgramOutcome, String> {
        let Some(budget) = self.budget.get() else {
            return Err(OUT_OF_BUDGET.to_owned());
        };
        let (result, cost) = self.evaluate(program);
        self.budget.set(budget.checked_sub(cost));
        match cost > budget {
            true => Err(OUT_OF_BUDGET.to_owned()),
            false => result,
        }
    }

    /// Evaluates an expression, and returns its value and its cost.
    fn evaluate(&self, program: &Program) -> (Result<ProgramOutcome, String>, u64) {
        // Match conditions do not have access to the Namespace.
        let null = Value::Null;
        let (request, namespace) = match self.in_conditions.get() {
            true => (self.request_in_conditions.as_ref().unwrap_or(&self.request), &null),
            false => (&self.request, &self.namespace),
        };
        let (result, cost) = program.evaluate(&Bindings {
            values: &[
                ("object", &self.object),
                ("oldObject", &self.old_object),
                ("request", request),
                ("params", &self.params),
                ("namespaceObject", namespace),
            ],
            variables: &self.variables,
            authorizer: &self.authorizer,
            functions: authorizer::call,
        });
        let result = result.map_err(|error| {
            let is_it = |name: &str| error == format!("no such key: {name}");
            let missing = self.failed.iter().find(|(name, _)| is_it(name));
            missing.map_or(error.clone(), |(name, why)| {
                format!("composited variable \"{name}\" fails to evaluate: {why}")
            })
        });
        (result, cost)
    }
}

/// Builds the variable `namespaceObject`.
fn namespace_of(reader: &Reader, name: &str) -> Value {
    if name.is_empty() {
        return Value::Null;
    }
    let scheme = reader.scheme();
    let row = scheme.lookup("", "v1", "namespaces");
    let stored = reader.store.get("namespaces", &Key::new("", name));
    match row.zip(stored) {
        Some((row, stored)) => {
            let mut object = reader.decode(&row, &stored);
            object.metadata_mut().remove("managedFields");
            Value::Object(object.0)
        }
        None => Value::Null,
    }
}

impl Admission {
    /// Returns `true` if all match conditions of a webhook are true (rule P5). If a condition cannot be evaluated and
    /// no other condition is false, the request is refused; under failurePolicy Ignore, the webhook is skipped.
    pub(in super::super) async fn meets_conditions(
        &self,
        conditions: &[(String, String)],
        ignores_failure: bool,
        attributes: &Attributes<'_>,
        matched: &Matched,
    ) -> Result<bool, Status> {
        if conditions.is_empty() {
            return Ok(true);
        }
        let environment = self.environment(attributes, matched).await?;
        match holds(conditions, &environment) {
            Ok(holds) => Ok(holds),
            Err(_) if ignores_failure => Ok(false),
            Err(why) => {
                let resource = attributes.row.info.group_resource();
                Err(Status::forbidden(&resource, &attributes.name, why))
            }
        }
    }

    /// Creates the environment of a request in the version that matched.
    pub(super) async fn environment(
        &self,
        attributes: &Attributes<'_>,
        matched: &Matched,
    ) -> Result<Environment, Status> {
        Ok(Environment::new(self, &self.review_of(attributes, matched).await?))
    }
}

/// Returns `true` if all conditions are true, and `false` if one is false. Otherwise, the error lists the conditions
/// that could not be evaluated. Fails immediately if the budget is exceeded.
pub(super) fn holds(conditions: &[(String, String)], environment: &Environment) -> Result<bool, String> {
    environment.in_conditions.set(true);
    let result = all_hold(conditions, environment);
    environment.in_conditions.set(false);
    result
}

fn all_hold(conditions: &[(String, String)], environment: &Environment) -> Result<bool, String> {
    let mut errors = Vec::new();
    environment.set_budget(Some(CONDITIONS_BUDGET));
    for (_, expression) in conditions {
        let value = Program::parse(expression).and_then(|program| environment.value(&program));
        if environment.budget().is_none() {
            return Err(OUT_OF_BUDGET.to_owned());
        }
        match value {
            Ok(value) => match value.as_bool() {
                Some(true) => {}
                Some(false) => return Ok(false),
                None => errors.push(format!("expression '{expression}' must evaluate to bool")),
            },
            Err(error) => errors.push(format!("expression '{expression}' resulted in error: {error}")),
        }
    }
    match errors.as_slice() {
        [] => Ok(true),
        [only] => Err(only.clone()),
        several => Err(format!("[{}]", several.join(", "))),
    }
}
