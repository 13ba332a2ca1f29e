//! ValidatingAdmissionPolicies and their bindings (rule P7). A policy is evaluated for each binding and each parameter
//! object of the binding.

use std::collections::BTreeMap;

use serde::Serialize;

use super::super::Admission;
use super::super::attributes::Attributes;
use super::super::matching::{Match, conditions};
use super::environment::{Environment, OUT_OF_BUDGET, holds};
use super::params::{self, ParamKind};
use super::{Policies, bindings_of};
use crate::api::json::marshal;
use crate::api::json::{Map, Value};
use crate::api::object::Object;
use crate::api::status::Status;
use crate::registry::cel::program::Program;
use crate::registry::types::cursor::Cursor;

/// Maximum length of the result of a `messageExpression`, in bytes.
const MESSAGE_BYTES_MAX: usize = 5 * 1024;

/// Maximum length of the value of an audit annotation, in bytes; longer values are truncated.
const ANNOTATION_BYTES_MAX: usize = 10 * 1024;

/// A ValidatingAdmissionPolicy with its bindings.
#[derive(Debug)]
pub(super) struct Policy {
    name: String,
    matches: Match,
    conditions: Vec<(String, String)>,
    variables: Vec<(String, Program)>,
    validations: Vec<Validation>,
    annotations: Vec<Annotation>,
    ignores_failure: bool,
    params: Option<ParamKind>,
    bindings: Vec<Binding>,
}

#[derive(Debug)]
struct Binding {
    name: String,
    matches: Option<Match>,
    spec: Map,
    denies: bool,
    warns: bool,
    audits: bool,
}

/// An annotation that a policy adds to the audit event.
#[derive(Debug)]
struct Annotation {
    key: String,
    expression: String,
    program: Result<Program, String>,
}

#[derive(Debug)]
struct Validation {
    expression: String,
    program: Result<Program, String>,
    message: String,
    message_program: Option<Program>,
    reason: String,
}

/// A validation that is violated or could not be evaluated.
#[derive(Default)]
struct Failed {
    message: String,
    reason: String,
    /// Index of the validation in the policy.
    index: usize,
    /// Set if the request is refused regardless of the binding's actions, for example after a configuration error.
    denies: bool,
}

/// Audit annotations of a policy: for each key, the values from all bindings.
type Collected = BTreeMap<String, Vec<String>>;

/// Parses the variables of a spec into pairs of a name and a program. Variables with a syntax error are omitted.
pub(super) fn variables(spec: &Cursor<'_>) -> Vec<(String, Program)> {
    spec.items("variables")
        .filter_map(|it| Some((it.text("name").to_owned(), Program::parse(it.text("expression")).ok()?)))
        .collect()
}

/// Reads the `matchResources` of a binding, if it has any.
pub(super) fn binding_match(spec: &Cursor<'_>) -> Option<Match> {
    let resources = spec.present("matchResources")?;
    Some(Match::of_resources(&resources, false))
}

/// Reads policies together with their bindings; omits policies without bindings.
pub(super) fn read(policies: &[Object], bindings: &[Object]) -> Vec<Policy> {
    let read = |policy: &Object| {
        let root = Cursor::root(policy);
        let spec = root.present("spec")?;
        let bindings: Vec<Binding> = bindings_of(policy.name(), bindings)
            .filter_map(|binding| {
                let spec = Cursor::root(Cursor::root(binding).map("spec")?);
                let has = |action: &str| spec.texts("validationActions").any(|it| it == action);
                Some(Binding {
                    name: binding.name().to_owned(),
                    matches: binding_match(&spec),
                    denies: has("Deny"),
                    warns: has("Warn"),
                    audits: has("Audit"),
                    spec: spec.map("")?.clone(),
                })
            })
            .collect();
        let constraints = spec.present("matchConstraints")?;
        let validation = |it: Cursor<'_>| Validation {
            expression: it.text("expression").trim().to_owned(),
            program: Program::parse(it.text("expression")),
            message: it.text("message").trim().to_owned(),
            message_program: Some(it.text("messageExpression"))
                .filter(|it| !it.is_empty())
                .and_then(|it| Program::parse(it).ok()),
            reason: it.text("reason").to_owned(),
        };
        let annotation = |it: Cursor<'_>| Annotation {
            key: it.text("key").to_owned(),
            expression: it.text("valueExpression").trim().to_owned(),
            program: Program::parse(it.text("valueExpression")),
        };
        (!bindings.is_empty()).then(|| Policy {
            name: policy.name().to_owned(),
            matches: Match::of_resources(&constraints, true),
            conditions: conditions(&spec),
            variables: variables(&spec),
            validations: spec.items("validations").map(validation).collect(),
            annotations: spec.items("auditAnnotations").map(annotation).collect(),
            ignores_failure: spec.text("failurePolicy") == "Ignore",
            params: params::kind_of(&spec),
            bindings,
        })
    };
    policies.iter().filter_map(read).collect()
}

impl Admission {
    /// Runs all policies. Returns the first refusal in the order of policies, and adds all warnings.
    pub(in super::super) async fn validate_by_policies(
        &self,
        policies: &Policies,
        attributes: &Attributes<'_>,
    ) -> Result<(), Status> {
        let mut refused = None;
        for policy in &policies.validating {
            let Some(matched) = policy.matches.find(&self.reader, attributes) else {
                continue;
            };
            if let Some(message) = params::missing_kind(&self.reader, policy.params.as_ref()) {
                let failed = Failed {
                    message,
                    ..Failed::default()
                };
                let denied = || denial(&format!("'{}'", policy.name), &failed, attributes);
                refused = refused.or_else(|| (!policy.ignores_failure).then(denied));
                continue;
            }
            let mut environment = self.environment(attributes, &matched).await?;
            let mut collected = Collected::new();
            for binding in &policy.bindings {
                let is_bound = binding
                    .matches
                    .as_ref()
                    .is_none_or(|it| it.find(&self.reader, attributes).is_some());
                if !is_bound {
                    continue;
                }
                for failed in self.failures(policy, binding, attributes, &mut environment, &mut collected) {
                    let (policy, binding_name) = (&policy.name, &binding.name);
                    if binding.audits && !failed.denies {
                        annotate_failure(policy, binding, &failed, attributes);
                    }
                    if binding.warns && !failed.denies {
                        attributes.remarks.warnings.add(format!(
                            "Validation failed for ValidatingAdmissionPolicy '{policy}' with binding \
                             '{binding_name}': {}",
                            failed.message
                        ));
                    }
                    if (binding.denies || failed.denies) && refused.is_none() {
                        let policy = format!("'{policy}' with binding '{binding_name}'");
                        refused = Some(denial(&policy, &failed, attributes));
                    }
                }
            }
            for (key, values) in collected {
                attributes.annotate(format!("{}/{key}", policy.name), || values.join(", "));
            }
        }
        refused.map_or(Ok(()), Err)
    }

    /// Returns the validations that fail under one binding, and collects the annotations.
    fn failures(
        &self,
        policy: &Policy,
        binding: &Binding,
        attributes: &Attributes<'_>,
        environment: &mut Environment,
        collected: &mut Collected,
    ) -> Vec<Failed> {
        let params = match params::find(&self.reader, policy.params.as_ref(), &binding.spec, attributes) {
            Ok(params) => params,
            Err(_) if policy.ignores_failure => return Vec::new(),
            Err(why) => {
                return vec![Failed {
                    message: format!("failed to configure binding: {why}"),
                    denies: true,
                    ..Failed::default()
                }];
            }
        };
        let mut failed = Vec::new();
        for param in params {
            environment.params = param;
            match holds(&policy.conditions, environment) {
                Ok(true) => {}
                Ok(false) => continue,
                Err(_) if policy.ignores_failure => continue,
                Err(message) => {
                    failed.push(Failed {
                        message,
                        ..Failed::default()
                    });
                    continue;
                }
            }
            environment.evaluate_variables(&policy.variables);
            let validations = policy.validations.iter();
            let found: Vec<Failed> = validations
                .enumerate()
                .filter_map(|(index, it)| {
                    let found = it.failure(environment, policy.ignores_failure)?;
                    Some(Failed { index, ..found })
                })
                .collect();
            let annotated = match environment.budget() {
                Some(_) => policy.annotate(environment),
                None => None,
            };
            match annotated {
                Some((annotations, errors)) => {
                    failed.extend(found.into_iter().chain(errors));
                    for (key, value) in annotations {
                        let values = collected.entry(key).or_default();
                        if !values.contains(&value) {
                            values.push(value);
                        }
                    }
                }
                None if policy.ignores_failure => {}
                None => failed.push(Failed {
                    message: OUT_OF_BUDGET.to_owned(),
                    ..Failed::default()
                }),
            }
        }
        failed
    }
}

impl Policy {
    /// Evaluates the annotations. Returns the values that are not null or blank, and the errors; `None` if the budget
    /// is exceeded. Under failurePolicy Ignore, failed evaluations are omitted, but values of unsupported types are
    /// still errors.
    fn annotate(&self, environment: &Environment) -> Option<Annotated> {
        environment.restore_budget();
        let (mut found, mut errors) = (Vec::new(), Vec::new());
        for it in &self.annotations {
            let value = it.program.as_ref().map_err(Clone::clone);
            let value = value.and_then(|program| environment.value(program));
            environment.budget()?;
            let refuse = |message: String| Failed {
                message,
                denies: true,
                ..Failed::default()
            };
            match value {
                Ok(value) if value.is_null() => {}
                Ok(value) => match value.as_text() {
                    Some(text) if text.trim().is_empty() => {}
                    Some(text) => found.push((it.key.clone(), cut(text.trim()))),
                    None => errors.push(refuse(format!(
                        "valueExpression '{}' resulted in unsupported return type: {}. Return type must be either \
                         string or null.",
                        it.expression,
                        value.type_name()
                    ))),
                },
                Err(_) if self.ignores_failure => {}
                Err(why) => errors.push(refuse(format!(
                    "expression '{}' resulted in error: {why}",
                    it.expression
                ))),
            }
        }
        Some((found, errors))
    }
}

/// Keys and values of a policy's annotations, and the errors.
type Annotated = (Vec<(String, String)>, Vec<Failed>);

/// Truncates a value that is too long.
fn cut(value: &str) -> String {
    let bytes = value.as_bytes();
    String::from_utf8_lossy(bytes.get(..ANNOTATION_BYTES_MAX).unwrap_or(bytes)).into_owned()
}

/// Value of the annotation `validation.policy.admission.k8s.io/validation_failure`, with the field order of the Go
/// struct.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ValidationFailure<'a> {
    message: &'a str,
    policy: &'a str,
    binding: &'a str,
    expression_index: usize,
    validation_actions: &'a Value,
}

/// Adds a failure to the audit event, which only contains the first failure (`publishValidationFailureAnnotation`).
fn annotate_failure(policy: &str, binding: &Binding, failed: &Failed, attributes: &Attributes<'_>) {
    let key = "validation.policy.admission.k8s.io/validation_failure".to_owned();
    attributes.annotate(key, || {
        marshal(&[ValidationFailure {
            message: &failed.message,
            policy,
            binding: &binding.name,
            expression_index: failed.index,
            validation_actions: binding.spec.get("validationActions").unwrap_or(&Value::Null),
        }])
    });
}

impl Validation {
    fn failure(&self, environment: &Environment, ignores_failure: bool) -> Option<Failed> {
        let value = self.program.as_ref().map_err(Clone::clone);
        let error = match value.and_then(|program| environment.value(program)) {
            Ok(value) => match value.as_bool() {
                Some(true) => return None,
                Some(false) => None,
                None => Some("must evaluate to bool".to_owned()),
            },
            Err(error) => Some(error),
        };
        if let Some(error) = error {
            let message = format!("expression '{}' resulted in error: {error}", self.expression);
            return (!ignores_failure).then(|| Failed {
                message,
                ..Failed::default()
            });
        }
        let default = match self.message.as_str() {
            "" => format!("failed expression: {}", self.expression),
            message => message.to_owned(),
        };
        Some(Failed {
            message: self.made_message(environment).unwrap_or(default),
            reason: self.reason.clone(),
            ..Failed::default()
        })
    }

    /// Returns the result of `messageExpression`, if it is valid, or an error message if it exceeds the budget.
    fn made_message(&self, environment: &Environment) -> Option<String> {
        let budget = environment.budget();
        let value = environment.value(self.message_program.as_ref()?);
        if environment.budget().is_none() {
            environment.set_budget(budget);
            return Some(format!("failed messageExpression: {OUT_OF_BUDGET}"));
        }
        let value = value.ok()?;
        let text = value.as_text()?.trim();
        let is_fit = !text.is_empty() && text.len() <= MESSAGE_BYTES_MAX && !text.contains('\n');
        is_fit.then(|| text.to_owned())
    }
}

/// Creates the refusal of a request. `policy` contains the names of the policy and the binding.
fn denial(policy: &str, failed: &Failed, attributes: &Attributes<'_>) -> Status {
    let message = format!("ValidatingAdmissionPolicy {policy} denied request: {}", failed.message);
    let resource = attributes.row.info.group_resource();
    let mut status = Status::forbidden(&resource, attributes.shown_name(), &message);
    let reason = if failed.reason.is_empty() {
        "Invalid"
    } else {
        failed.reason.as_str()
    };
    status.code = match reason {
        "Forbidden" => 403,
        "Unauthorized" => 401,
        "RequestEntityTooLarge" => 413,
        _ => 422,
    };
    status.reason = reason.to_owned().into();
    status.with_cause("", message, "")
}
