//! The strategy of ReplicaSets.

use serde_json::json;

use super::pod::defaults::default_template;
use super::view::{default_number, object_made, same};
use crate::api::object::Object;
use crate::registry::strategy::{Context, Strategy};

/// ReplicaSets.
#[derive(Debug)]
pub(crate) struct ReplicaSetStrategy;

impl Strategy for ReplicaSetStrategy {
    fn default(&self, object: &mut Object) {
        if let Some(spec) = object_made(object, "spec") {
            default_number(spec, "replicas", 1);
            default_template(spec);
        }
        if let Some(status) = object_made(object, "status") {
            default_number(status, "replicas", 0);
        }
    }

    fn prepare_for_create(&self, object: &mut Object, _context: &Context<'_>) {
        object.insert("status".to_owned(), json!({ "replicas": 0 }));
    }

    fn has_generation(&self) -> bool {
        true
    }

    fn raises_generation(&self, object: &Object, old: &Object) -> bool {
        !same(object, old, "spec")
    }
}
