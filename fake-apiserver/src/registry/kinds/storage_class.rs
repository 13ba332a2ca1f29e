//! The strategy of StorageClasses. Follows `ValidateStorageClass` and `ValidateStorageClassUpdate` of
//! `pkg/apis/storage/validation`.

use std::collections::{BTreeMap, BTreeSet};

use super::facts::Facts;
use super::pod::warnings::deprecated_node_label;
use super::strategy::{Context, Strategy};
use crate::api::field::FieldErrors;
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::edit::default_value;
use crate::registry::types::{labels, names};

const PARAMETERS_MAX: usize = 512;
const PARAMETERS_MAX_BYTES: usize = 256 * 1_024;

/// The strategy of StorageClasses.
#[derive(Debug)]
pub(crate) struct StorageClass;

impl Strategy for StorageClass {
    fn facts(&self) -> &Facts {
        &Facts {
            returns_deleted_object: true,
            ..Facts::DEFAULT
        }
    }

    fn default(&self, object: &mut Object) {
        default_value(object, "reclaimPolicy", "Delete");
        default_value(object, "volumeBindingMode", "Immediate");
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        let class = Cursor::root(object);
        validate_provisioner(&class.at("provisioner"), errors);
        validate_parameters(&class.at("parameters"), true, errors);
        let policy = class.at("reclaimPolicy");
        if !policy.is_empty("") {
            policy.check_one_of(&["Delete", "Retain"], errors);
        }
        class
            .at("volumeBindingMode")
            .check_one_of(&["Immediate", "WaitForFirstConsumer"], errors);
        validate_topologies(&class.at("allowedTopologies"), errors);
    }

    fn validate_update(&self, object: &Object, old: &Object, errors: &mut FieldErrors, _context: &Context<'_>) {
        self.validate(object, errors);
        let (new, old) = (Cursor::root(object), Cursor::root(old));
        new.at("parameters").check_unchanged(&old.at("parameters"), errors);
        new.at("provisioner")
            .check_text_unchanged(&old.at("provisioner"), errors);
        for field in ["reclaimPolicy", "volumeBindingMode"] {
            new.at(field).check_unchanged(&old.at(field), errors);
        }
    }

    fn warnings(&self, object: &Object, _old: Option<&Object>) -> Vec<String> {
        let class = Cursor::root(object);
        let mut warnings = Vec::new();
        for term in class.items("allowedTopologies") {
            for expression in term.items("matchLabelExpressions") {
                let key = expression.at("key");
                warnings.extend(deprecated_node_label(key.as_text()).map(|text| format!("{}: {text}", key.path())));
            }
        }
        warnings
    }
}

/// Checks the name of a provisioner, ignoring case (`validateProvisioner`).
pub(super) fn validate_provisioner(provisioner: &Cursor<'_>, errors: &mut FieldErrors) {
    if provisioner.check_required(errors) {
        let name = provisioner.as_text().to_lowercase();
        for text in names::qualified_name(&name) {
            errors.invalid(provisioner, name.as_str(), text);
        }
    }
}

/// Checks the number and the size of parameters (`validateParameters`).
pub(super) fn validate_parameters(parameters: &Cursor<'_>, allow_empty: bool, errors: &mut FieldErrors) {
    let count = parameters.map("").map_or(0, |it| it.len());
    if count > PARAMETERS_MAX {
        errors.too_long(parameters, PARAMETERS_MAX);
        return;
    }
    let mut size = 0;
    for (key, value) in parameters.entries("") {
        if key.is_empty() {
            errors.invalid(parameters, key, "field can not be empty.");
        }
        size += key.len() + value.as_text().len();
    }
    if size > PARAMETERS_MAX_BYTES {
        errors.too_long(parameters, PARAMETERS_MAX_BYTES);
    }
    if !allow_empty && count == 0 {
        errors.required(parameters, "must contain at least one key/value pair");
    }
}

/// A topology term: the values of each label.
type Term = BTreeMap<String, BTreeSet<String>>;

/// Checks `allowedTopologies` (`validateAllowedTopologies`). As in kube-apiserver, the list of earlier terms initially
/// contains one empty term for each term, so an empty term is reported as a duplicate of each.
fn validate_topologies(topologies: &Cursor<'_>, errors: &mut FieldErrors) {
    let terms = topologies.items("");
    let mut seen: Vec<Term> = vec![Term::new(); terms.len()];
    for term in terms {
        let requirements = validate_term(&term, errors);
        for _ in seen.iter().filter(|it| **it == requirements) {
            errors.duplicate(term.at("matchLabelExpressions"), "");
        }
        seen.push(requirements);
    }
}

/// Checks a topology term (`ValidateTopologySelectorTerm`).
fn validate_term(term: &Cursor<'_>, errors: &mut FieldErrors) -> Term {
    let mut requirements = Term::new();
    for requirement in term.items("matchLabelExpressions") {
        let (key, values) = (requirement.at("key"), requirement.at("values"));
        if values.is_empty("") {
            errors.required(values, "");
        }
        let mut found = BTreeSet::new();
        for value in values.items("") {
            if !found.insert(value.as_text().to_owned()) {
                errors.duplicate(value, value.as_text());
            }
        }
        labels::validate_key(&key, errors);
        if requirements.contains_key(key.as_text()) {
            errors.duplicate(key, key.as_text());
        }
        requirements.insert(key.as_text().to_owned(), found);
    }
    requirements
}
