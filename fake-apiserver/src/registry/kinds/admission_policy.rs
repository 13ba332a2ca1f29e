//! ValidatingAdmissionPolicies, MutatingAdmissionPolicies and their bindings. Expressions are not compiled here.

use serde_json::{Map, Value, json};

use super::plain::restore_metadata;
use super::strategy::{Context, Strategy};
use super::webhook_configuration::validate_rule;
use crate::api::field::{FieldErrors, FieldPath};
use crate::api::object::Object;
use crate::registry::types::access::{at, default_to, list, object_mut, objects, objects_mut, restore, text};
use crate::registry::types::labels;

const REASONS: [&str; 3] = ["Forbidden", "Invalid", "RequestEntityTooLarge"];

/// The strategy of admission policies.
#[derive(Debug)]
pub(crate) struct AdmissionPolicy {
    /// Set if the policy changes objects.
    pub(crate) is_mutating: bool,
}

impl Strategy for AdmissionPolicy {
    fn default(&self, object: &mut Object) {
        let Some(spec) = object_mut(object, "spec") else {
            return;
        };
        default_to(spec, "failurePolicy", "Fail");
        if let Some(constraints) = object_mut(spec, "matchConstraints") {
            default_match(constraints);
        }
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        let path = FieldPath::new("spec");
        let failure = text(object, "spec.failurePolicy");
        if !matches!(failure, "" | "Fail" | "Ignore") {
            errors.not_supported(path.child("failurePolicy"), failure, &["Fail", "Ignore"]);
        }
        if at(object, "spec.paramKind").is_some() {
            for field in ["apiVersion", "kind"] {
                if text(object, &format!("spec.paramKind.{field}")).is_empty() {
                    errors.required(path.child("paramKind").child(field), "");
                }
            }
        }
        match at(object, "spec.matchConstraints").and_then(Value::as_object) {
            None => errors.required(path.child("matchConstraints"), ""),
            Some(constraints) => {
                let path = path.child("matchConstraints");
                if list(constraints, "resourceRules").is_empty() {
                    errors.required(path.child("resourceRules"), "");
                }
                validate_match(constraints, &path, errors);
            }
        }
        validate_expressions(object, &path, errors);
        if self.is_mutating {
            validate_mutations(object, &path, errors);
        } else {
            validate_validations(object, &path, errors);
        }
    }

    fn prepare_for_update(&self, object: &mut Object, old: &Object, context: &Context<'_>) {
        if context.subresource == "status" {
            restore(object, old, "spec");
            restore_metadata(object, old);
        }
    }

    fn validate_update(&self, object: &Object, _old: &Object, errors: &mut FieldErrors, context: &Context<'_>) {
        if context.subresource.is_empty() {
            self.validate(object, errors);
        }
    }

    fn allows_unconditional_update(&self) -> bool {
        false
    }

    fn has_generation(&self) -> bool {
        true
    }
}

/// The strategy of the bindings of admission policies.
#[derive(Debug)]
pub(crate) struct AdmissionPolicyBinding {
    /// Set if the policy changes objects.
    pub(crate) is_mutating: bool,
}

impl Strategy for AdmissionPolicyBinding {
    fn default(&self, object: &mut Object) {
        if let Some(resources) = object_mut(object, "spec.matchResources") {
            default_match(resources);
        }
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        let path = FieldPath::new("spec");
        if text(object, "spec.policyName").is_empty() {
            errors.required(path.child("policyName"), "");
        }
        if let Some(resources) = at(object, "spec.matchResources").and_then(Value::as_object) {
            validate_match(resources, &path.child("matchResources"), errors);
        }
        if self.is_mutating {
            return;
        }
        let actions = list(object, "spec.validationActions");
        let path = path.child("validationActions");
        if actions.is_empty() {
            errors.required(path.clone(), "at least one validation action is required");
        }
        for (index, action) in actions.iter().enumerate() {
            let supported = ["Audit", "Deny", "Warn"];
            let text = action.as_str().unwrap_or_default();
            if !supported.contains(&text) {
                errors.not_supported(path.index(index), text, &supported);
            } else if actions[..index].contains(action) {
                errors.duplicate(path.index(index), text);
            }
        }
        if ["Deny", "Warn"]
            .iter()
            .all(|action| actions.iter().any(|it| it == action))
        {
            let text = "must not contain both Deny and Warn (repeating the same validation failure information in the \
                        API response and headers serves no purpose)";
            errors.invalid(path, actions, text);
        }
    }

    fn allows_unconditional_update(&self) -> bool {
        false
    }

    fn has_generation(&self) -> bool {
        true
    }
}

fn default_match(resources: &mut Map<String, Value>) {
    default_to(resources, "matchPolicy", "Equivalent");
    default_to(resources, "namespaceSelector", json!({}));
    default_to(resources, "objectSelector", json!({}));
    for field in ["resourceRules", "excludeResourceRules"] {
        for rule in objects_mut(resources, field) {
            default_to(rule, "scope", "*");
        }
    }
}

fn validate_match(resources: &Map<String, Value>, path: &FieldPath, errors: &mut FieldErrors) {
    let policy = text(resources, "matchPolicy");
    if !matches!(policy, "" | "Equivalent" | "Exact") {
        errors.not_supported(path.child("matchPolicy"), policy, &["Equivalent", "Exact"]);
    }
    for field in ["namespaceSelector", "objectSelector"] {
        labels::validate_selector(at(resources, field), &path.child(field), errors);
    }
    for field in ["resourceRules", "excludeResourceRules"] {
        for (index, rule) in objects(resources, field) {
            validate_rule(rule, &path.child(field).index(index), errors);
        }
    }
}

fn validate_validations(object: &Object, path: &FieldPath, errors: &mut FieldErrors) {
    let (validations, audits) = (list(object, "spec.validations"), list(object, "spec.auditAnnotations"));
    if validations.is_empty() && audits.is_empty() {
        let text = "validations or auditAnnotations must contain at least one item";
        errors.required(path.child("validations"), text);
        errors.required(path.child("auditAnnotations"), text);
        return;
    }
    for (index, validation) in objects(object, "spec.validations") {
        let path = path.child("validations").index(index);
        if text(validation, "expression").trim().is_empty() {
            errors.required(path.child("expression"), "expression is not specified");
        } else {
            compile(
                object,
                text(validation, "expression"),
                Some("bool"),
                path.child("expression"),
                errors,
            );
        }
        let message = text(validation, "messageExpression");
        if !message.is_empty() {
            compile(object, message, Some("string"), path.child("messageExpression"), errors);
        }
        let reason = text(validation, "reason");
        if !reason.is_empty() && !REASONS.contains(&reason) {
            errors.not_supported(path.child("reason"), reason, &REASONS);
        }
    }
}

/// Checks what all policies have: conditions and variables.
fn validate_expressions(object: &Object, path: &FieldPath, errors: &mut FieldErrors) {
    for (field, wanted) in [("matchConditions", Some("bool")), ("variables", None)] {
        for (index, item) in objects(object, &format!("spec.{field}")) {
            let path = path.child(field).index(index);
            for key in ["name", "expression"] {
                if text(item, key).trim().is_empty() {
                    errors.required(path.child(key), "");
                }
            }
            let expression = text(item, "expression");
            if !expression.trim().is_empty() {
                compile(object, expression, wanted, path.child("expression"), errors);
            }
        }
    }
}

/// Refuses an expression that cannot be evaluated.
#[cfg(feature = "cel")]
fn compile(policy: &Object, expression: &str, wanted: Option<&str>, path: FieldPath, errors: &mut FieldErrors) {
    let mut known = vec![
        "object",
        "oldObject",
        "request",
        "namespaceObject",
        "authorizer",
        "variables",
    ];
    if at(policy, "spec.paramKind").is_some() {
        known.push("params");
    }
    if let Some(problem) = crate::registry::cel::program::problem(expression.trim(), wanted, &known) {
        errors.invalid(path, expression, problem);
    }
}

/// Refuses every expression: nothing here evaluates them.
#[cfg(not(feature = "cel"))]
fn compile(_: &Object, _: &str, _: Option<&str>, path: FieldPath, errors: &mut FieldErrors) {
    errors.forbidden(
        path,
        "expressions are not supported by this server, which is built without the feature cel",
    );
}

fn validate_mutations(object: &Object, path: &FieldPath, errors: &mut FieldErrors) {
    if list(object, "spec.mutations").is_empty() {
        errors.required(path.child("mutations"), "mutations must contain at least one item");
    }
    for (index, mutation) in objects(object, "spec.mutations") {
        let path = path.child("mutations").index(index);
        let field = match text(mutation, "patchType") {
            "ApplyConfiguration" => "applyConfiguration",
            "JSONPatch" => "jsonPatch",
            "" => {
                errors.required(path.child("patchType"), "");
                continue;
            }
            other => {
                errors.not_supported(path.child("patchType"), other, &["ApplyConfiguration", "JSONPatch"]);
                continue;
            }
        };
        let expression = text(mutation, &format!("{field}.expression"));
        let path = path.child(field).child("expression");
        if expression.trim().is_empty() {
            errors.required(path, "");
        } else {
            compile(object, expression, None, path, errors);
        }
    }
    let policy = text(object, "spec.reinvocationPolicy");
    if policy.is_empty() {
        errors.required(path.child("reinvocationPolicy"), "");
    } else if !matches!(policy, "IfNeeded" | "Never") {
        errors.not_supported(path.child("reinvocationPolicy"), policy, &["IfNeeded", "Never"]);
    }
}
