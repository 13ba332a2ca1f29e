//! The strategies of ValidatingAdmissionPolicies, MutatingAdmissionPolicies and their bindings. Follows
//! `ValidateValidatingAdmissionPolicy`, `ValidateMutatingAdmissionPolicy` and related functions of
//! `pkg/apis/admissionregistration/validation`.

use std::collections::BTreeSet;

use super::admission_rules::{
    RuleScope, default_match, validate_conditions, validate_match, validate_mutating_operations, warn_of_static_name,
};
use super::facts::{Facts, Generation};
use super::plain::restore_metadata;
use super::strategy::{Context, Strategy};
use crate::api::field::FieldErrors;
use crate::api::kubernetes_version::KubernetesVersion;
use crate::api::object::Object;
use crate::registry::types::conditions::validate_conditions as validate_status_conditions;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::edit::{copy_field, default_value, object_mut};
use crate::registry::types::{labels, names};

const REASONS: [&str; 3] = ["Forbidden", "Invalid", "RequestEntityTooLarge"];
const AUDIT_ANNOTATIONS_MAX: usize = 20;
/// Maximum length of the expression of an audit annotation, in bytes.
const AUDIT_EXPRESSION_MAX: usize = 5 * 1_024;

/// The strategy of admission policies.
#[derive(Debug)]
pub(crate) struct AdmissionPolicy {
    /// Set if the policy changes objects.
    pub(crate) is_mutating: bool,
    /// The version of Kubernetes.
    pub(crate) version: KubernetesVersion,
}

impl Strategy for AdmissionPolicy {
    fn facts(&self) -> &Facts {
        &Facts {
            allows_unconditional_update: false,
            generation: Generation::FromCreate,
            ..Facts::DEFAULT
        }
    }

    fn default(&self, object: &mut Object) {
        let Some(spec) = object_mut(object, "spec") else {
            return;
        };
        default_value(spec, "failurePolicy", "Fail");
        if let Some(constraints) = object_mut(spec, "matchConstraints") {
            default_match(constraints);
        }
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        self.validate_policy(&Cursor::root(object), true, errors);
    }

    fn prepare_for_update(&self, object: &mut Object, old: &Object, context: &Context<'_>) {
        if context.subresource == "status" {
            copy_field(old, object, "spec");
            restore_metadata(object, old);
        }
    }

    fn validate_update(&self, object: &Object, old: &Object, errors: &mut FieldErrors, context: &Context<'_>) {
        let (new, old) = (Cursor::root(object), Cursor::root(old));
        if !context.subresource.is_empty() {
            return validate_status(&new.at("status"), errors);
        }
        let is_same = new.same(&old, "spec.paramKind") && new.same(&old, "spec.matchConditions");
        self.validate_policy(&new, !is_same, errors);
    }

    fn warnings(&self, object: &Object, _old: Option<&Object>) -> Vec<String> {
        warn_of_static_name(self.version, object)
    }
}

impl AdmissionPolicy {
    fn validate_policy(&self, object: &Cursor<'_>, with_conditions: bool, errors: &mut FieldErrors) {
        let spec = object.at("spec");
        spec.at("failurePolicy").check_one_of(&["Fail", "Ignore"], errors);
        if !spec.is_set("failurePolicy") {
            errors.required(spec.at("failurePolicy"), "");
        }
        let kind = spec.at("paramKind");
        if kind.is_set("") {
            validate_param_kind(&kind, errors);
        }
        let constraints = spec.at("matchConstraints");
        match constraints.is_set("") {
            false => errors.required(constraints, ""),
            true => {
                validate_match(&constraints, errors);
                if constraints.is_empty("resourceRules") {
                    errors.required(constraints.at("resourceRules"), "");
                }
                if self.is_mutating {
                    validate_mutating_operations(&constraints, errors);
                }
            }
        }
        if with_conditions {
            validate_conditions(self.version, &spec.at("matchConditions"), kind.is_set(""), errors);
        }
        let mut scope = RuleScope::of_requests(self.version, kind.is_set(""));
        if self.is_mutating || !spec.is_empty("variables") {
            scope.names.add_variables();
        }
        for variable in spec.items("variables") {
            validate_variable(&variable, &mut scope, errors);
        }
        match self.is_mutating {
            true => validate_mutations(&spec, &scope, errors),
            false => validate_validations(&spec, object.text("metadata.name"), &scope, errors),
        }
    }
}

/// Checks `paramKind` of a policy (`validateParamKind`).
fn validate_param_kind(kind: &Cursor<'_>, errors: &mut FieldErrors) {
    let (version, name) = (kind.at("apiVersion"), kind.at("kind"));
    let text = version.as_text();
    if version.check_required(errors) {
        let (group, own) = text.split_once('/').unwrap_or(("", text));
        let wrong_group = names::dns1123_subdomain(group, false);
        let wrong_version = names::dns1035_label(own, false);
        if text != "/" && text.matches('/').count() > 1 {
            errors.invalid(version, text, format!("unexpected GroupVersion string: {text}"));
        } else {
            if !group.is_empty() && !wrong_group.is_empty() {
                errors.invalid(version, group, wrong_group.join(","));
            }
            if own.is_empty() {
                errors.invalid(version, text, "version must be specified");
            } else if !wrong_version.is_empty() {
                errors.invalid(version, own, wrong_version.join(","));
            }
        }
    }
    if name.check_required(errors) {
        let wrong = names::dns1035_label(&name.as_text().to_lowercase(), false);
        if !wrong.is_empty() {
            let wrong = wrong.join(",");
            let text = format!("may have mixed case, but should otherwise match: {wrong}");
            errors.invalid(name, name.as_text(), text);
        }
    }
}

/// Checks a variable of a policy (`validateVariable`), and declares it in `scope` for later expressions.
fn validate_variable(variable: &Cursor<'_>, scope: &mut RuleScope, errors: &mut FieldErrors) {
    let (name, expression) = (variable.at("name"), variable.at("expression"));
    if name.as_text().trim().is_empty() {
        errors.required(name, "name is not specified");
    } else if !is_identifier(name.as_text()) {
        errors.invalid(name, name.as_text(), "must be a valid CEL identifier");
    }
    if expression.as_text().trim().is_empty() {
        errors.required(expression, "expression is not specified");
        return;
    }
    scope.check(&expression, expression.as_text(), &[], errors);
    scope.names.declare(name.as_text(), expression.as_text());
}

fn is_identifier(name: &str) -> bool {
    let mut chars = name.chars();
    let is_start = chars.next().is_some_and(|it| it.is_ascii_alphabetic() || it == '_');
    is_start && chars.all(|it| it.is_ascii_alphanumeric() || it == '_') && !names::CEL_RESERVED.contains(&name)
}

fn validate_validations(spec: &Cursor<'_>, name: &str, scope: &RuleScope, errors: &mut FieldErrors) {
    let (validations, audits) = (spec.at("validations"), spec.at("auditAnnotations"));
    if validations.is_empty("") && audits.is_empty("") {
        let text = "validations or auditAnnotations must contain at least one item";
        errors.required(validations, text);
        errors.required(audits, text);
        return;
    }
    for validation in validations.items("") {
        validate_validation(&validation, scope, errors);
    }
    if audits.list("").len() > AUDIT_ANNOTATIONS_MAX {
        let text = format!("must not have more than {AUDIT_ANNOTATIONS_MAX} auditAnnotations");
        errors.invalid(audits, audits.to_value(), text);
    }
    let mut seen = BTreeSet::new();
    for audit in audits.items("") {
        validate_audit(&audit, name, scope, errors);
        let key = audit.at("key");
        if !seen.insert(key.as_text().to_owned()) {
            errors.duplicate(key, key.as_text());
        }
    }
}

/// Checks one of the `validations` of a policy (`validateValidation`).
fn validate_validation(validation: &Cursor<'_>, scope: &RuleScope, errors: &mut FieldErrors) {
    let [expression, told, message] = ["expression", "messageExpression", "message"];
    let (expression, told, message) = (validation.at(expression), validation.at(told), validation.at(message));
    match expression.as_text() {
        text if text.trim().is_empty() => errors.required(expression, "expression is not specified"),
        text => scope.check(&expression, text, &["bool"], errors),
    }
    match told.as_text() {
        "" => {}
        text if text.trim().is_empty() => errors.invalid(told, text, "must be non-empty if specified"),
        text => {
            let names = scope.names.clone().without_authorizer();
            RuleScope { names }.check(&told, text, &["string"], errors);
        }
    }
    match message.as_text() {
        "" => {}
        text if text.trim().is_empty() => errors.invalid(message, text, "must be non-empty if specified"),
        text if text.trim().contains(['\n', '\r']) => errors.invalid(message, text, "must not contain line breaks"),
        _ => {}
    }
    validation.at("reason").check_one_of(&REASONS, errors);
}

/// Checks one of the `auditAnnotations` of the policy `name` (`validateAuditAnnotation`).
fn validate_audit(audit: &Cursor<'_>, name: &str, scope: &RuleScope, errors: &mut FieldErrors) {
    let (key, expression) = (audit.at("key"), audit.at("valueExpression"));
    if name.is_empty() {
        errors.invalid(key, key.as_text(), "requires metadata.name be non-empty");
    } else {
        let full = format!("{name}/{}", key.as_text());
        for text in names::qualified_name(&full) {
            errors.invalid(key, full.as_str(), text);
        }
    }
    match expression.as_text().trim() {
        "" => errors.required(expression, "valueExpression is not specified"),
        text if text.len() > AUDIT_EXPRESSION_MAX => {
            let text = format!("must not exceed {AUDIT_EXPRESSION_MAX} bytes in length");
            errors.required(expression, text);
        }
        text => scope.check(&expression, text, &["string", "null_type"], errors),
    }
}

fn validate_mutations(spec: &Cursor<'_>, scope: &RuleScope, errors: &mut FieldErrors) {
    if spec.is_empty("mutations") {
        errors.required(spec.at("mutations"), "mutations must contain at least one item");
    }
    for mutation in spec.items("mutations") {
        validate_mutation(&mutation, scope, errors);
    }
    let policy = spec.at("reinvocationPolicy");
    if policy.check_required(errors) {
        policy.check_one_of(&["IfNeeded", "Never"], errors);
    }
}

/// Checks one of the `mutations` of a policy (`validateMutation`).
fn validate_mutation(mutation: &Cursor<'_>, scope: &RuleScope, errors: &mut FieldErrors) {
    let kind = mutation.at("patchType");
    let (own, other, made) = match kind.as_text() {
        "ApplyConfiguration" => ("applyConfiguration", "jsonPatch", "Object"),
        "JSONPatch" => ("jsonPatch", "applyConfiguration", "list(JSONPatch)"),
        _ => {
            if kind.check_required(errors) {
                kind.check_one_of(&["ApplyConfiguration", "JSONPatch"], errors);
            }
            return;
        }
    };
    let patch = mutation.at(own);
    let expression = patch.at("expression");
    match (patch.is_set(""), expression.as_text().trim()) {
        (false, _) => {
            let text = format!("must be specified when patchType is {}", kind.as_text());
            errors.required(patch, text);
        }
        (true, "") => errors.required(expression, ""),
        (true, text) => {
            let names = scope.names.clone().of_mutations();
            RuleScope { names }.check(&expression, text, &[made], errors);
        }
    }
    if mutation.is_set(other) {
        let text = format!("must not be specified when patchType is {}", kind.as_text());
        errors.invalid(mutation.at(other), format!("{{{other}}}"), text);
    }
}

/// Checks the status of a policy (`validateValidatingAdmissionPolicyStatus`).
fn validate_status(status: &Cursor<'_>, errors: &mut FieldErrors) {
    for warning in status.items("typeChecking.expressionWarnings") {
        warning.at("warning").check_required(errors);
        let field = warning.at("fieldRef");
        if field.as_text().trim().is_empty() {
            errors.required(field, "");
        }
    }
    validate_status_conditions(&status.at("conditions"), errors);
}

/// The strategy of the bindings of admission policies.
#[derive(Debug)]
pub(crate) struct AdmissionPolicyBinding {
    /// Set if the policy changes objects.
    pub(crate) is_mutating: bool,
    /// The version of Kubernetes.
    pub(crate) version: KubernetesVersion,
}

impl Strategy for AdmissionPolicyBinding {
    fn facts(&self) -> &Facts {
        &Facts {
            allows_unconditional_update: false,
            generation: Generation::FromCreate,
            ..Facts::DEFAULT
        }
    }

    fn default(&self, object: &mut Object) {
        if let Some(resources) = object_mut(object, "spec.matchResources") {
            default_match(resources);
        }
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        let object = Cursor::root(object);
        let spec = object.at("spec");
        let policy = spec.at("policyName");
        policy.check_required(errors);
        policy.check_subdomain(errors);
        let reference = spec.at("paramRef");
        if reference.is_set("") {
            validate_param_ref(&reference, errors);
        }
        let resources = spec.at("matchResources");
        if resources.is_set("") {
            validate_match(&resources, errors);
        }
        match self.is_mutating {
            true => validate_mutating_operations(&resources, errors),
            false => validate_actions(&spec.at("validationActions"), errors),
        }
    }

    fn warnings(&self, object: &Object, _old: Option<&Object>) -> Vec<String> {
        warn_of_static_name(self.version, object)
    }
}

/// Checks `paramRef` of a binding (`validateParamRef`).
fn validate_param_ref(reference: &Cursor<'_>, errors: &mut FieldErrors) {
    const EXCLUSIVE: &str = "name and selector are mutually exclusive";
    let (name, selector) = (reference.at("name"), reference.at("selector"));
    let has_both = !name.as_text().is_empty() && selector.is_set("");
    name.check_texts(names::path_segment(name.as_text(), false), errors);
    if has_both {
        errors.forbidden(name, EXCLUSIVE);
    }
    labels::validate_selector(&selector, errors);
    if has_both {
        errors.forbidden(selector, EXCLUSIVE);
    }
    if name.as_text().is_empty() && !selector.is_set("") {
        errors.required(reference, "one of name or selector must be specified");
    }
    let action = reference.at("parameterNotFoundAction");
    if action.check_required(errors) {
        action.check_one_of(&["Deny", "Allow"], errors);
    }
}

/// Checks `validationActions` of a binding (`validateValidationActions`).
fn validate_actions(actions: &Cursor<'_>, errors: &mut FieldErrors) {
    let supported = ["Audit", "Deny", "Warn"];
    let mut seen = BTreeSet::new();
    for action in actions.items("") {
        if !supported.contains(&action.as_text()) {
            errors.not_supported(action, action.as_text(), &supported);
        }
        if !seen.insert(action.as_text().to_owned()) {
            errors.duplicate(action, action.as_text());
        }
    }
    if seen.contains("Deny") && seen.contains("Warn") {
        let text = "must not contain both Deny and Warn (repeating the same validation failure information in the API \
                    response and headers serves no purpose)";
        errors.invalid(actions, actions.to_value(), text);
    }
    if seen.is_empty() {
        errors.required(actions, "at least one validation action is required");
    }
}
