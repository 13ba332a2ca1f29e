//! The strategy of CSINodes. Follows `ValidateCSINode` and `ValidateCSINodeUpdate` of `pkg/apis/storage/validation`.

use std::collections::BTreeSet;

use super::device::check_driver_name;
use super::facts::Facts;
use super::strategy::{Context, Strategy};
use crate::api::field::FieldErrors;
use crate::api::json::Value;
use crate::api::kubernetes_version::KubernetesVersion;
use crate::api::object::Object;
use crate::registry::types::check::IMMUTABLE;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::names;

const NODE_ID_MAX: usize = 256;

/// The strategy of CSINodes.
#[derive(Debug)]
pub(crate) struct CsiNode {
    /// The version of Kubernetes.
    pub(crate) version: KubernetesVersion,
}

impl Strategy for CsiNode {
    fn facts(&self) -> &Facts {
        &Facts {
            allows_unconditional_update: false,
            returns_deleted_object: true,
            ..Facts::DEFAULT
        }
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        let mut seen = BTreeSet::new();
        for driver in Cursor::root(object).at("spec").items("drivers") {
            validate_driver(&driver, &mut seen, errors);
        }
    }

    fn validate_update(&self, object: &Object, old: &Object, errors: &mut FieldErrors, _context: &Context<'_>) {
        self.validate(object, errors);
        let (new, old) = (Cursor::root(object), Cursor::root(old));
        let drivers = new.at("spec.drivers");
        for before in old.at("spec").items("drivers") {
            for driver in drivers.items("") {
                let (fixed, was) = (self.fixed_part(&driver), self.fixed_part(&before));
                if driver.text("name") == before.text("name") && fixed != was {
                    errors.invalid(drivers, fixed, IMMUTABLE);
                }
            }
        }
    }
}

impl CsiNode {
    /// Returns the driver without its mutable fields: `allocatable` since 1.35 (`MutableCSINodeAllocatableCount`).
    fn fixed_part(&self, driver: &Cursor<'_>) -> Value {
        let mut fields = driver.map("").cloned().unwrap_or_default();
        if self.version >= KubernetesVersion::V1_35 {
            fields.remove("allocatable");
        }
        fields.retain(|_, value| !value.as_array().is_some_and(Vec::is_empty));
        Value::Object(fields)
    }
}

/// Checks a driver of a CSINode (`validateCSINodeDriver`). Errors about topology keys have the path of the driver.
fn validate_driver(driver: &Cursor<'_>, seen: &mut BTreeSet<String>, errors: &mut FieldErrors) {
    let (name, id) = (driver.at("name"), driver.at("nodeID"));
    check_driver_name(&name, errors);
    id.check_required(errors);
    if id.as_text().len() > NODE_ID_MAX {
        let text = format!("must be {NODE_ID_MAX} characters or less");
        errors.invalid(id, id.as_text(), text);
    }
    driver.at("allocatable.count").check_not_negative(errors);
    if !seen.insert(name.as_text().to_owned()) {
        errors.duplicate(name, name.as_text());
    }
    let mut keys = BTreeSet::new();
    for key in driver.list("topologyKeys") {
        let key = key.as_str().unwrap_or_default();
        if key.is_empty() {
            errors.required(driver, "");
        }
        if !keys.insert(key) {
            errors.duplicate(driver, key);
        }
        for text in names::qualified_name(key) {
            errors.invalid(driver, key, text);
        }
    }
}
