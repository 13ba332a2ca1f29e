//! What expressions of policies and match conditions see: `object`, `oldObject`, `request`, `params`,
//! `namespaceObject`, `variables` and `authorizer` (rules P5, P7).

use serde_json::Value;

use super::attributes::Attributes;
use super::matching::Matched;
use crate::api::admission::AdmissionRequest;
use crate::api::status::Status;
use crate::registry::Registry;
use crate::registry::custom::authorizer;
use crate::registry::custom::free::{Bindings, Outcome, Program};
use crate::storage::Key;

/// The variables of one request, in the version that matched.
#[derive(Debug)]
pub(super) struct Environment {
    request: Value,
    object: Value,
    old_object: Value,
    namespace: Value,
    pub(super) params: Value,
    variables: Vec<(String, Outcome)>,
    authorizer: Outcome,
    /// Variables that could not be evaluated, with why.
    failed: Vec<(String, String)>,
}

impl Environment {
    pub(super) fn new(registry: &Registry, review: &AdmissionRequest) -> Self {
        let mut request = review.to_value();
        if let Some(map) = request.as_object_mut() {
            for field in ["object", "oldObject", "uid"] {
                map.remove(field);
            }
        }
        Self {
            request,
            object: review.object.clone(),
            old_object: review.old_object.clone(),
            namespace: namespace_of(registry, &review.namespace),
            params: Value::Null,
            variables: Vec::new(),
            authorizer: authorizer::variable(registry.authorizer(&review.user), review),
            failed: Vec::new(),
        }
    }

    /// The object that expressions see from here on.
    pub(super) fn set_object(&mut self, object: Value) {
        self.object = object;
    }

    /// Evaluates the variables of a policy, in order: each may use those before it.
    pub(super) fn evaluate_variables(&mut self, variables: &[(String, Program)]) {
        self.variables.clear();
        self.failed.clear();
        for (name, program) in variables {
            match self.value(program) {
                Ok(value) => self.variables.push((name.clone(), value)),
                Err(error) => self.failed.push((name.clone(), error)),
            }
        }
    }

    /// The value of an expression.
    pub(super) fn value(&self, program: &Program) -> Result<Outcome, String> {
        let bindings = Bindings {
            values: &[
                ("object", &self.object),
                ("oldObject", &self.old_object),
                ("request", &self.request),
                ("params", &self.params),
                ("namespaceObject", &self.namespace),
            ],
            variables: &self.variables,
            authorizer: &self.authorizer,
        };
        program.evaluate(&bindings).map_err(|error| {
            let is_it = |name: &str| error == format!("no such key: {name}");
            let missing = self.failed.iter().find(|(name, _)| is_it(name));
            missing.map_or(error.clone(), |(name, why)| {
                format!("composited variable \"{name}\" fails to evaluate: {why}")
            })
        })
    }
}

/// What expressions see of a namespace.
fn namespace_of(registry: &Registry, name: &str) -> Value {
    if name.is_empty() {
        return Value::Null;
    }
    let scheme = registry.scheme();
    let row = scheme.lookup("", "v1", "namespaces");
    let stored = registry.store.get("namespaces", &Key::new("", name));
    match row.zip(stored) {
        Some((row, stored)) => {
            let mut object = registry.decode(&row, &stored);
            object.metadata_mut().remove("managedFields");
            Value::Object(object.0)
        }
        None => Value::Null,
    }
}

impl Registry {
    /// Whether the match conditions of a webhook or a policy hold (rule P5). One that cannot be evaluated refuses the
    /// request, or under failurePolicy Ignore spares it, unless another one is false.
    pub(super) fn meets_conditions(
        &self,
        conditions: &[(String, String)],
        ignores_failure: bool,
        attributes: &Attributes<'_>,
    ) -> Result<bool, Status> {
        if conditions.is_empty() {
            return Ok(true);
        }
        let environment = Environment::new(self, &attributes.review(String::new()));
        match holds(conditions, &environment) {
            Ok(holds) => Ok(holds),
            Err(_) if ignores_failure => Ok(false),
            Err(why) => {
                let resource = attributes.row.info.group_resource();
                Err(Status::forbidden(&resource, &attributes.name, why))
            }
        }
    }

    /// The environment of a request in the version that matched.
    pub(super) async fn environment(
        &self,
        attributes: &Attributes<'_>,
        matched: &Matched,
    ) -> Result<Environment, Status> {
        Ok(Environment::new(self, &self.review_of(attributes, matched).await?))
    }
}

/// Whether all conditions hold; the error names those that could not be evaluated, where none is false.
pub(super) fn holds(conditions: &[(String, String)], environment: &Environment) -> Result<bool, String> {
    let mut errors = Vec::new();
    for (_, expression) in conditions {
        let value = Program::parse(expression).and_then(|program| environment.value(&program));
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
