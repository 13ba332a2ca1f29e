//! RuntimeClasses.

use super::strategy::{Context, Strategy};
use crate::api::field::{FieldErrors, FieldPath};
use crate::api::object::Object;
use crate::registry::types::access::text;
use crate::registry::types::names;

/// The strategy of RuntimeClasses.
#[derive(Debug)]
pub(crate) struct RuntimeClass;

impl Strategy for RuntimeClass {
    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        let handler = text(object, "handler");
        for problem in names::dns1123_label(handler, false) {
            errors.invalid(FieldPath::new("handler"), handler, problem);
        }
    }

    fn validate_update(&self, object: &Object, old: &Object, errors: &mut FieldErrors, _context: &Context<'_>) {
        let handler = text(object, "handler");
        if handler != text(old, "handler") {
            errors.invalid(FieldPath::new("handler"), handler, "field is immutable");
        }
    }

    fn allows_unconditional_update(&self) -> bool {
        false
    }

    fn allows_create_on_update(&self) -> bool {
        true
    }
}
