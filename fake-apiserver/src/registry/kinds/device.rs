//! The strategy of DeviceClasses (`ValidateDeviceClass`), and checks shared by the kinds of `resource.k8s.io`. Follows
//! `pkg/apis/resource/validation`. The cost of CEL expressions in selectors is not estimated.

use std::collections::BTreeSet;

use crate::api::field::FieldErrors;
use crate::api::json::Value;
use crate::api::kubernetes_version::KubernetesVersion;
use crate::api::object::Object;
use crate::registry::cel;
use crate::registry::kinds::facts::{Facts, Generation};
use crate::registry::kinds::strategy::Strategy;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::names;

/// Maximum number of selectors in a request or a class, and of configurations in a class.
const SELECTORS_MAX: usize = 32;
/// Maximum length in bytes of an expression, and of the parameters of a driver.
const TEXT_MAX: usize = 10 * 1024;
/// Maximum length in bytes of the name of an attribute without its domain.
const ID_MAX: usize = 32;
/// Effects of a device taint.
const EFFECTS: [&str; 3] = ["NoExecute", "NoSchedule", "None"];

/// The strategy of DeviceClasses.
#[derive(Debug)]
pub(crate) struct DeviceClass {
    /// The version of Kubernetes.
    pub(crate) version: KubernetesVersion,
}

impl Strategy for DeviceClass {
    fn facts(&self) -> &Facts {
        &Facts {
            generation: Generation::FromCreate,
            returns_deleted_object: true,
            ..Facts::DEFAULT
        }
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        let object = Cursor::root(object);
        let spec = object.at("spec");
        check_selectors(self.version, &spec.at("selectors"), errors);
        check_items(&spec.at("config"), SELECTORS_MAX, errors, check_opaque);
        let name = spec.at("extendedResourceName");
        if name.is_set("") && !is_extended_resource_name(name.as_text()) {
            errors.invalid(name, name.as_text(), "must be a valid extended resource name");
        }
    }
}

/// Returns `true` for the name of an extended resource (`IsExtendedResourceName` of `pkg/apis/core/v1/helper`).
fn is_extended_resource_name(name: &str) -> bool {
    let is_native = !name.contains('/') || name.contains("kubernetes.io/");
    !is_native && !name.starts_with("requests.") && names::is_qualified_name(&format!("requests.{name}"))
}

/// Checks the number of items, and each item if the list is not too long (`validateSlice`).
pub(super) fn check_items(
    list: &Cursor<'_>,
    max: usize,
    errors: &mut FieldErrors,
    mut check: impl FnMut(&Cursor<'_>, &mut FieldErrors),
) -> bool {
    let count = list.list("").len();
    if count > max {
        errors.too_many(list, count, max);
        return false;
    }
    for item in list.items("") {
        check(&item, errors);
    }
    true
}

/// Checks a list like [`check_items`], then reports items with duplicate keys (`validateSet`).
pub(super) fn check_set(
    list: &Cursor<'_>,
    max: usize,
    key: impl Fn(&Cursor<'_>) -> Value,
    errors: &mut FieldErrors,
    check: impl FnMut(&Cursor<'_>, &mut FieldErrors),
) {
    if !check_items(list, max, errors, check) {
        return;
    }
    let mut seen = BTreeSet::new();
    for item in list.items("") {
        let key = key(&item);
        if !seen.insert(key.to_string()) {
            errors.duplicate(item, key);
        }
    }
}

/// Checks device selectors (`validateSelector`). The cost of their expressions is not estimated.
pub(super) fn check_selectors(version: KubernetesVersion, selectors: &Cursor<'_>, errors: &mut FieldErrors) {
    check_items(selectors, SELECTORS_MAX, errors, |selector, errors| {
        let cel = selector.at("cel");
        if !cel.is_set("") {
            errors.required(cel, "");
        } else if cel.text("expression").len() > TEXT_MAX {
            errors.too_long(cel.at("expression"), TEXT_MAX);
        } else {
            check_expression(version, &cel.at("expression"), errors);
        }
    });
}

/// Adds an error if an expression about a device does not compile or does not return a boolean.
fn check_expression(version: KubernetesVersion, expression: &Cursor<'_>, errors: &mut FieldErrors) {
    let text = expression.as_text();
    if let Some(problem) = cel::requests::problem(text, &["bool"], &cel::requests::Names::of_devices(version)) {
        errors.invalid(expression, text, problem);
    }
}

/// Checks the device configuration of a driver (`validateDeviceConfiguration`).
pub(super) fn check_opaque(config: &Cursor<'_>, errors: &mut FieldErrors) {
    let opaque = config.at("opaque");
    if !opaque.is_set("") {
        errors.required(opaque, "");
        return;
    }
    check_driver_name(&opaque.at("driver"), errors);
    check_raw(&opaque.at("parameters"), TEXT_MAX, errors);
}

/// Checks that a value is a JSON object of at most `max` bytes (`validateRawExtension`).
pub(super) fn check_raw(raw: &Cursor<'_>, max: usize, errors: &mut FieldErrors) {
    match raw.get("") {
        None => errors.required(raw, ""),
        Some(value) if value.to_string().len() > max => errors.too_long(raw, max),
        Some(Value::Object(_)) => {}
        Some(_) => errors.invalid(raw, "<value omitted>", "must be a valid JSON object"),
    }
}

/// Checks the name of a driver (`ValidateCSIDriverName` of `pkg/apis/core/validation`).
pub(super) fn check_driver_name(driver: &Cursor<'_>, errors: &mut FieldErrors) {
    if !driver.check_required(errors) {
        return;
    }
    let name = driver.as_text();
    if name.len() > 63 {
        errors.too_long(driver, 63);
    }
    driver.check_texts(names::dns1123_subdomain(&name.to_lowercase(), false), errors);
}

/// Checks a C identifier after a domain and a slash (`validateFullyQualifiedName`).
pub(super) fn check_fully_qualified_name(name: &Cursor<'_>, errors: &mut FieldErrors) {
    check_qualified_name(name.as_text(), name, errors);
    if !name.as_text().contains('/') {
        let text = "a fully qualified name must be a domain and a name separated by a slash";
        errors.invalid(name, name.as_text(), text);
    }
}

/// Checks a C identifier, optionally after a domain and a slash (`validateQualifiedName`).
pub(super) fn check_qualified_name(name: &str, at: &Cursor<'_>, errors: &mut FieldErrors) {
    let parts: Vec<&str> = name.split('/').collect();
    match parts.as_slice() {
        [id] => check_identifier(id, at, errors),
        [domain, id] => {
            if domain.is_empty() {
                errors.invalid(at, "", "the domain must not be empty");
            } else {
                if domain.len() > 63 {
                    errors.too_long(at, 63);
                }
                for text in names::dns1123_subdomain(&domain.to_lowercase(), false) {
                    errors.invalid(at, *domain, text);
                }
            }
            if id.is_empty() {
                errors.invalid(at, "", "the name must not be empty");
            } else {
                check_identifier(id, at, errors);
            }
        }
        _ => {}
    }
}

/// Checks the form and the length of a C identifier (`validateCIdentifier`).
fn check_identifier(id: &str, at: &Cursor<'_>, errors: &mut FieldErrors) {
    if id.len() > ID_MAX {
        errors.too_long(at, ID_MAX);
    }
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if !id.bytes().all(word) || id.bytes().next().is_none_or(|first| first.is_ascii_digit()) {
        let rule = "a valid C identifier must start with alphabetic character or '_', followed by a string of \
                    alphanumeric characters or '_'";
        let text = names::mismatch(rule, "[A-Za-z_][A-Za-z0-9_]*", &["my_name", "MY_NAME", "MyName"]);
        errors.invalid(at, id, text);
    }
}

/// Checks a toleration of device taints (`validateDeviceToleration`).
pub(super) fn check_toleration(toleration: &Cursor<'_>, errors: &mut FieldErrors) {
    let (key, value, operator) = (toleration.at("key"), toleration.at("value"), toleration.at("operator"));
    if !key.as_text().is_empty() {
        key.check_texts(names::qualified_name(key.as_text()), errors);
    }
    match operator.as_text() {
        "Exists" => {
            if !value.as_text().is_empty() {
                errors.invalid(value, value.as_text(), "must be empty for operator `Exists`");
            }
        }
        "Equal" => value.check_texts(names::label_value(value.as_text()), errors),
        "" => errors.required(operator, ""),
        other => errors.not_supported(operator, other, &["Equal", "Exists"]),
    }
    let effect = toleration.at("effect");
    if !effect.as_text().is_empty() {
        effect.check_one_of(&EFFECTS, errors);
    }
}

/// Checks a device taint (`validateDeviceTaint`).
pub(super) fn check_taint(taint: &Cursor<'_>, errors: &mut FieldErrors) {
    let (key, value, effect) = (taint.at("key"), taint.at("value"), taint.at("effect"));
    key.check_texts(names::qualified_name(key.as_text()), errors);
    value.check_texts(names::label_value(value.as_text()), errors);
    if effect.check_required(errors) {
        effect.check_one_of(&EFFECTS, errors);
    }
}
