//! The strategy of RuntimeClasses. Follows `ValidateRuntimeClass` and `ValidateRuntimeClassUpdate` of
//! `pkg/apis/node/validation`.

use std::collections::BTreeSet;

use super::facts::Facts;
use super::pod::resources::validate_limits;
use super::pod::validate_tolerations;
use super::pod::warnings::deprecated_node_label;
use super::strategy::{Context, Strategy};
use crate::api::field::FieldErrors;
use crate::api::json::json;
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::{labels, names};

/// The strategy of RuntimeClasses.
#[derive(Debug)]
pub(crate) struct RuntimeClass;

impl Strategy for RuntimeClass {
    fn facts(&self) -> &Facts {
        &Facts {
            allows_unconditional_update: false,
            allows_create_on_update: true,
            ..Facts::DEFAULT
        }
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        let class = Cursor::root(object);
        let handler = class.at("handler");
        if handler.check_required(errors) {
            handler.check_texts(names::dns1123_label(handler.as_text(), false), errors);
        }
        if let Some(fixed) = class.get("overhead.podFixed") {
            // The overhead is checked like the limits of a container, so error paths contain `limits`.
            let limits = json!({"limits": fixed});
            validate_limits(&class.at("overhead").in_other(Some(&limits)), errors);
        }
        if class.is_set("scheduling") {
            validate_scheduling(&class.at("scheduling"), errors);
        }
    }

    fn validate_update(&self, object: &Object, old: &Object, errors: &mut FieldErrors, _context: &Context<'_>) {
        self.validate(object, errors);
        Cursor::root(object)
            .at("handler")
            .check_text_unchanged(&Cursor::root(old).at("handler"), errors);
    }

    fn warnings(&self, object: &Object, _old: Option<&Object>) -> Vec<String> {
        let object = Cursor::root(object);
        let selector = object.at("scheduling.nodeSelector");
        let texts = selector.entries("").filter_map(|(key, _)| deprecated_node_label(key));
        texts.map(|text| format!("scheduling.nodeSelector: {text}")).collect()
    }
}

fn validate_scheduling(scheduling: &Cursor<'_>, errors: &mut FieldErrors) {
    labels::validate_labels(&scheduling.at("nodeSelector"), errors);
    validate_tolerations(scheduling, errors);
    let mut seen = BTreeSet::new();
    for toleration in scheduling.items("tolerations") {
        let key = ["key", "operator", "value", "effect"].map(|field| toleration.text(field).to_owned());
        if !seen.insert(key) {
            errors.duplicate(toleration, toleration.to_value());
        }
    }
}
