//! APIServices.

use serde_json::json;

use super::plain::restore_metadata;
use super::strategy::{Context, Strategy};
use crate::api::field::{FieldErrors, FieldPath, quote};
use crate::api::object::Object;
use crate::registry::types::access::{at, default_to, number, object_mut, text};
use crate::registry::types::names;

/// The strategy of APIServices.
#[derive(Debug)]
pub(crate) struct ApiService;

impl Strategy for ApiService {
    fn default(&self, object: &mut Object) {
        if let Some(service) = object_mut(object, "spec.service") {
            default_to(service, "port", 443);
        }
    }

    fn prepare_for_create(&self, object: &mut Object, context: &Context<'_>) {
        if at(object, "spec.service").is_none() {
            let condition = json!({
                "type": "Available",
                "status": "True",
                "lastTransitionTime": context.entropy.now_seconds(),
                "reason": "Local",
                "message": "Local APIServices are always available",
            });
            object.insert("status".into(), json!({"conditions": [condition]}));
        }
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        let path = |field| FieldPath::new("spec").child(field);
        let (group, version) = (text(object, "spec.group"), text(object, "spec.version"));
        let wanted = format!("{version}.{group}");
        let name = object.name();
        if name != wanted {
            let text = format!("must be `spec.version+\".\"+spec.group`: {}", quote(&wanted));
            errors.invalid(FieldPath::new("metadata.name"), name, text);
        }
        if group.is_empty() && version != "v1" {
            let text = "only v1 may have an empty group and it better be legacy kube";
            errors.required(path("group"), text);
        }
        if !group.is_empty() {
            for problem in names::dns1123_subdomain(group, false) {
                errors.invalid(path("group"), group, problem);
            }
        }
        for problem in names::dns1035_label(version, false) {
            errors.invalid(path("version"), version, problem);
        }
        for (field, max) in [("groupPriorityMinimum", 20_000), ("versionPriority", 1_000)] {
            let value = number(object, &format!("spec.{field}")).unwrap_or(0);
            if !(1..=max).contains(&value) {
                errors.invalid(path(field), value, format!("must be positive and less than {max}"));
            }
        }
        if at(object, "spec.service").is_some() {
            for field in ["namespace", "name"] {
                if text(object, &format!("spec.service.{field}")).is_empty() {
                    errors.required(path("service").child(field), "");
                }
            }
        }
    }

    fn prepare_for_update(&self, object: &mut Object, old: &Object, context: &Context<'_>) {
        if context.subresource == "status" {
            restore_metadata(object, old);
        }
    }

    fn validate_name(&self, name: &str, is_prefix: bool) -> Vec<String> {
        names::path_segment(name, is_prefix)
    }

    fn allows_unconditional_update(&self) -> bool {
        false
    }
}
