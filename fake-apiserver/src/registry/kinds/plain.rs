//! The strategy of kinds that differ from the default only in their static properties.

use super::facts::Facts;
use super::strategy::{Context, Strategy};
use crate::api::json::Map;
use crate::api::object::Object;
use crate::registry::types::edit::copy_field;

/// A strategy that only has static properties.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plain(pub(crate) Facts);

impl Strategy for Plain {
    fn facts(&self) -> &Facts {
        &self.0
    }

    fn prepare_for_update(&self, object: &mut Object, old: &Object, context: &Context<'_>) {
        if context.subresource == "status" {
            restore_metadata(object, old);
        }
    }
}

/// Restores the labels, annotations, finalizers and owner references. Used for kinds in which a write of the status
/// cannot change metadata.
pub(crate) fn restore_metadata(object: &mut Object, old: &Object) {
    let empty = Map::new();
    let old = old.metadata().unwrap_or(&empty);
    let meta = object.metadata_mut();
    for field in ["labels", "annotations", "finalizers", "ownerReferences"] {
        copy_field(old, meta, field);
    }
}
