//! The strategy of Deployments.

use serde_json::Value;

use super::pod::defaults::default_template;
use super::view::{
    default_number, default_object, default_text, default_value, object_made, object_or_empty, same, text,
};
use crate::api::object::Object;
use crate::registry::strategy::{Context, Strategy};

/// Deployments.
#[derive(Debug)]
pub(crate) struct DeploymentStrategy;

impl Strategy for DeploymentStrategy {
    fn default(&self, object: &mut Object) {
        if let Some(spec) = object_made(object, "spec") {
            default_number(spec, "replicas", 1);
            default_template(spec);
            if let Some(strategy) = object_made(spec, "strategy") {
                default_text(strategy, "type", "RollingUpdate");
                if text(strategy, "type") == "RollingUpdate"
                    && let Some(rolling) = object_made(strategy, "rollingUpdate")
                {
                    default_value(rolling, "maxUnavailable", || Value::String("25%".to_owned()));
                    default_value(rolling, "maxSurge", || Value::String("25%".to_owned()));
                }
            }
            default_number(spec, "revisionHistoryLimit", 10);
            default_number(spec, "progressDeadlineSeconds", 600);
        }
        default_object(object, "status");
    }

    fn prepare_for_create(&self, object: &mut Object, _context: &Context<'_>) {
        object.insert("status".to_owned(), Value::Object(serde_json::Map::new()));
    }

    fn has_generation(&self) -> bool {
        true
    }

    fn raises_generation(&self, object: &Object, old: &Object) -> bool {
        let (meta, old_meta) = (object_or_empty(object, "metadata"), object_or_empty(old, "metadata"));
        !same(object, old, "spec") || !same(meta, old_meta, "annotations")
    }
}
