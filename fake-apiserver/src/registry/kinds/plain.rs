//! Kinds that differ from the default in flags alone.

use serde_json::Map;

use super::strategy::{Context, FieldLabels, Strategy};
use crate::api::object::Object;
use crate::registry::types::edit::copy_field;
use crate::registry::types::names;

/// A strategy that is nothing but flags.
#[derive(Clone, Debug)]
pub(crate) struct Plain {
    /// Rule C1.
    pub(crate) unconditional_update: bool,
    /// Rule C3.
    pub(crate) create_on_update: bool,
    /// Rule B16.
    pub(crate) returns_deleted: bool,
    /// Rule B8.
    pub(crate) generation: bool,
    /// Rule B26.
    pub(crate) name: fn(&str, bool) -> Vec<String>,
    /// Rule U5.
    pub(crate) deprecation: Option<&'static str>,
}

/// Facts of most kinds.
pub(crate) const PLAIN: Plain = Plain {
    unconditional_update: true,
    create_on_update: false,
    returns_deleted: false,
    generation: false,
    name: names::dns1123_subdomain,
    deprecation: None,
};

/// PUT needs a resourceVersion.
pub(crate) const CONDITIONAL: Plain = Plain {
    unconditional_update: false,
    ..PLAIN
};

/// A delete answers with the object.
pub(crate) const RETURNED: Plain = Plain {
    returns_deleted: true,
    ..PLAIN
};

impl Strategy for Plain {
    fn prepare_for_update(&self, object: &mut Object, old: &Object, context: &Context<'_>) {
        if context.subresource == "status" {
            restore_metadata(object, old);
        }
    }

    fn validate_name(&self, name: &str, is_prefix: bool) -> Vec<String> {
        (self.name)(name, is_prefix)
    }

    fn deprecation(&self) -> Option<&'static str> {
        self.deprecation
    }

    fn allows_unconditional_update(&self) -> bool {
        self.unconditional_update
    }

    fn allows_create_on_update(&self) -> bool {
        self.create_on_update
    }

    fn returns_deleted_object(&self) -> bool {
        self.returns_deleted
    }

    fn has_generation(&self) -> bool {
        self.generation
    }
}

/// Puts back what a write of the status may not change in metadata, for the kinds that let nothing through.
pub(crate) fn restore_metadata(object: &mut Object, old: &Object) {
    let empty = Map::new();
    let old = old.metadata().unwrap_or(&empty);
    let meta = object.metadata_mut();
    for field in ["labels", "annotations", "finalizers", "ownerReferences"] {
        copy_field(old, meta, field);
    }
}

/// Labels beside those of metadata, refused in the usual words.
pub(crate) const fn field_labels(labels: &'static [&'static str], namespace: bool) -> FieldLabels {
    FieldLabels::These {
        labels,
        namespace,
        aliases: &[],
        refusal: "field label not supported: {}",
    }
}
