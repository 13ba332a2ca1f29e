//! LimitRanges.

use serde_json::{Map, Value};

use super::access::{at, ensure_object, objects, objects_mut, text};
use super::labels;
use crate::api::field::{FieldErrors, FieldPath};
use crate::api::object::Object;
use crate::registry::strategy::{Context, Strategy};

/// The strategy of LimitRanges.
#[derive(Debug)]
pub(crate) struct LimitRange;

impl Strategy for LimitRange {
    fn default(&self, object: &mut Object) {
        for limit in objects_mut(object, "spec.limits") {
            if text(limit, "type") == "Container" {
                // A missing default is the maximum; a missing request the default, else the minimum.
                fill(limit, "default", "max");
                fill(limit, "defaultRequest", "default");
                fill(limit, "defaultRequest", "min");
            }
        }
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        let mut seen: Vec<&str> = Vec::new();
        for (index, limit) in objects(object, "spec.limits") {
            let path = FieldPath::new("spec.limits").index(index);
            let limit_type = text(limit, "type");
            labels::validate_key(limit_type, &path.child("type"), errors);
            if seen.contains(&limit_type) {
                errors.duplicate(path.child("type"), limit_type);
            }
            seen.push(limit_type);
            if limit_type == "Pod" {
                for field in ["default", "defaultRequest"] {
                    let values = at(limit, field).and_then(Value::as_object);
                    if values.is_some_and(|values| !values.is_empty()) {
                        let text = "may not be specified when `type` is 'Pod'";
                        errors.forbidden(path.child(field), text);
                    }
                }
            }
        }
    }

    fn validate_update(&self, object: &Object, _old: &Object, errors: &mut FieldErrors, _context: &Context<'_>) {
        self.validate(object, errors);
    }

    fn revalidates_metadata(&self) -> bool {
        true
    }

    fn allows_create_on_update(&self) -> bool {
        true
    }
}

/// Copies the entries of one map that another lacks.
fn fill(limit: &mut Map<String, Value>, target: &str, source: &str) {
    let Some(values) = at(limit, source).and_then(Value::as_object).cloned() else {
        return;
    };
    if values.is_empty() {
        return;
    }
    let target = ensure_object(limit, target);
    for (resource, value) in values {
        target.entry(resource).or_insert(value);
    }
}
