//! Kinds that differ from the default in flags alone.

use super::names;
use crate::registry::strategy::{FieldLabels, Strategy};

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
}

/// What most kinds are.
pub(crate) const PLAIN: Plain = Plain {
    unconditional_update: true,
    create_on_update: false,
    returns_deleted: false,
    generation: false,
    name: names::dns1123_subdomain,
};

/// PUT needs a resourceVersion.
pub(crate) const CONDITIONAL: Plain = Plain {
    unconditional_update: false,
    ..PLAIN
};

/// A delete answers with the object.
pub(crate) static CONDITIONAL_GENERATED: Plain = Plain {
    generation: true,
    ..CONDITIONAL
};

pub(crate) const RETURNED: Plain = Plain {
    returns_deleted: true,
    ..PLAIN
};

/// The object has a generation.
pub(crate) const GENERATED: Plain = Plain {
    generation: true,
    ..PLAIN
};

impl Strategy for Plain {
    fn validate_name(&self, name: &str, is_prefix: bool) -> Vec<String> {
        (self.name)(name, is_prefix)
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

/// Labels beside those of metadata, refused in the usual words.
pub(crate) const fn field_labels(labels: &'static [&'static str], namespace: bool) -> FieldLabels {
    FieldLabels::These {
        labels,
        namespace,
        aliases: &[],
        refusal: "field label not supported: {}",
    }
}
