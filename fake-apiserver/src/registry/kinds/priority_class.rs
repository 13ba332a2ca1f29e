//! The strategy of PriorityClasses. Follows `ValidatePriorityClass` and `ValidatePriorityClassUpdate` of
//! `pkg/apis/scheduling/validation`.

use super::facts::{Facts, Generation};
use super::strategy::{Context, Strategy};
use crate::api::field::FieldErrors;
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::edit::default_value;
use crate::registry::types::plugins::PluginSet;

/// Maximum priority that a user may define.
const USER_MAX: i64 = 1_000_000_000;
/// System priority classes and their values.
const SYSTEM: [(&str, i64); 2] = [
    ("system-node-critical", 2_000_001_000),
    ("system-cluster-critical", 2_000_000_000),
];

/// The strategy of PriorityClasses.
#[derive(Debug)]
pub(crate) struct PriorityClass;

impl Strategy for PriorityClass {
    fn facts(&self) -> &Facts {
        &Facts {
            generation: Generation::FromCreate,
            ..Facts::DEFAULT
        }
    }

    fn default(&self, object: &mut Object) {
        default_value(object, "preemptionPolicy", "PreemptLowerPriority");
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        let object = Cursor::root(object);
        let (name, value) = (object.at("metadata.name"), object.at("value"));
        let priority = value.integer("").unwrap_or(0);
        if name.as_text().starts_with("system-") {
            let is_default = object.flag("globalDefault") == Some(true);
            if let Some(why) = wrong_in_system_class(name.as_text(), priority, is_default) {
                let text = "priority class names with 'system-' prefix are reserved for system use only. error:";
                errors.forbidden(name, format!("{text} {why}"));
            }
        } else if priority > USER_MAX {
            let text = format!("maximum allowed value of a user defined priority is {USER_MAX}");
            errors.forbidden(value, text);
        }
        let policy = object.at("preemptionPolicy");
        if policy.is_set("") && policy.as_text().is_empty() {
            errors.required(policy, "");
        } else {
            policy.check_one_of(&["PreemptLowerPriority", "Never"], errors);
        }
    }

    fn validate_update(&self, object: &Object, old: &Object, errors: &mut FieldErrors, _context: &Context<'_>) {
        let (new, old) = (Cursor::root(object), Cursor::root(old));
        if new.integer("value").unwrap_or(0) != old.integer("value").unwrap_or(0) {
            errors.forbidden(new.at("value"), "may not be changed in an update.");
        }
        new.at("preemptionPolicy")
            .check_unchanged(&old.at("preemptionPolicy"), errors);
    }

    fn forbids_deletion(&self, object: &Object, _plugins: PluginSet) -> Option<String> {
        let is_of_system = SYSTEM.iter().any(|(name, _)| *name == object.name());
        is_of_system.then(|| "this is a system priority class and cannot be deleted".to_owned())
    }

    fn raises_generation(&self, _object: &Object, _old: &Object) -> bool {
        false
    }
}

/// Returns the reason why a class is not a system priority class (`IsKnownSystemPriorityClass`).
fn wrong_in_system_class(name: &str, value: i64, is_default: bool) -> Option<String> {
    let Some((_, wanted)) = SYSTEM.iter().find(|(known, _)| *known == name) else {
        return Some(format!("{name} is not a known system priority class"));
    };
    if *wanted != value {
        return Some(format!("value of {name} PriorityClass must be {wanted}"));
    }
    is_default.then(|| format!("globalDefault of {name} PriorityClass must be false"))
}
