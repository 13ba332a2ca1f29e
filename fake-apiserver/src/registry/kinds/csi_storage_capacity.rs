//! The strategy of CSIStorageCapacities. Follows `ValidateCSIStorageCapacity` and `ValidateCSIStorageCapacityUpdate` of
//! `pkg/apis/storage/validation`.

use super::facts::Facts;
use super::pod::warnings::deprecated_node_label;
use super::strategy::{Context, Strategy};
use crate::api::field::FieldErrors;
use crate::api::object::Object;
use crate::registry::types::check::NEGATIVE;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::quantity::Quantity;
use crate::registry::types::{labels, names};

/// The strategy of CSIStorageCapacities.
#[derive(Debug)]
pub(crate) struct CsiStorageCapacity;

impl Strategy for CsiStorageCapacity {
    fn facts(&self) -> &Facts {
        &Facts {
            allows_unconditional_update: false,
            ..Facts::DEFAULT
        }
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        let object = Cursor::root(object);
        let topology = object.at("nodeTopology");
        labels::validate_selector(&topology, errors);
        let class = object.at("storageClassName");
        class.check_texts(names::dns1123_subdomain(class.as_text(), false), errors);
        let capacity = object.at("capacity");
        if Quantity::parse(capacity.as_text()).is_ok_and(|it| it.signum() < 0) {
            errors.invalid(capacity, capacity.as_text(), NEGATIVE);
        }
    }

    fn validate_update(&self, object: &Object, old: &Object, errors: &mut FieldErrors, _context: &Context<'_>) {
        self.validate(object, errors);
        let (new, old) = (Cursor::root(object), Cursor::root(old));
        new.at("nodeTopology").check_unchanged(&old.at("nodeTopology"), errors);
        new.at("storageClassName")
            .check_text_unchanged(&old.at("storageClassName"), errors);
    }

    fn warnings(&self, object: &Object, _old: Option<&Object>) -> Vec<String> {
        let object = Cursor::root(object);
        let topology = object.at("nodeTopology");
        let mut warnings = Vec::new();
        for expression in topology.items("matchExpressions") {
            let key = expression.at("key");
            if let Some(text) = deprecated_node_label(key.as_text()) {
                warnings.push(format!("{}: {} is {text}", key.path(), key.as_text()));
            }
        }
        for (label, _) in topology.entries("matchLabels") {
            if let Some(text) = deprecated_node_label(label) {
                warnings.push(format!("nodeTopology.matchLabels.{label}: {text}"));
            }
        }
        warnings
    }
}
