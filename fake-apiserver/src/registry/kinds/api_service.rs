//! The strategy of APIServices. Follows `ValidateAPIService`, `ValidateAPIServiceUpdate` and
//! `ValidateAPIServiceStatusUpdate` of `kube-aggregator/pkg/apis/apiregistration/validation`.

use super::facts::Facts;
use super::plain::restore_metadata;
use super::strategy::{Context, Strategy};
use crate::api::field::{FieldErrors, quote};
use crate::api::json::json;
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::edit::{default_value, object_mut};
use crate::registry::types::names;

const STATUSES: [&str; 3] = ["True", "False", "Unknown"];

/// The strategy of APIServices.
#[derive(Debug)]
pub(crate) struct ApiService;

impl Strategy for ApiService {
    fn facts(&self) -> &Facts {
        &Facts {
            name: names::path_segment,
            allows_unconditional_update: false,
            ..Facts::DEFAULT
        }
    }

    fn default(&self, object: &mut Object) {
        if let Some(service) = object_mut(object, "spec.service") {
            default_value(service, "port", 443);
        }
    }

    fn prepare_for_create(&self, object: &mut Object, context: &Context<'_>) {
        if !Cursor::root(object).is_set("spec.service") {
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
        let object = Cursor::root(object);
        let spec = object.at("spec");
        validate_names(&object, errors);
        let (group, version) = (spec.at("group"), spec.at("version"));
        if group.as_text().is_empty() && version.as_text() != "v1" {
            let text = "only v1 may have an empty group and it better be legacy kube";
            errors.required(group, text);
        }
        group.check_subdomain(errors);
        version.check_texts(names::dns1035_label(version.as_text(), false), errors);
        for (field, max) in [("groupPriorityMinimum", 20_000), ("versionPriority", 1_000)] {
            let value = spec.integer(field).unwrap_or(0);
            if !(1..=max).contains(&value) {
                errors.invalid(spec.at(field), value, format!("must be positive and less than {max}"));
            }
        }
        validate_target(&spec, errors);
    }

    fn prepare_for_update(&self, object: &mut Object, old: &Object, context: &Context<'_>) {
        if context.subresource == "status" {
            restore_metadata(object, old);
        }
    }

    fn validate_update(&self, object: &Object, _old: &Object, errors: &mut FieldErrors, context: &Context<'_>) {
        if context.subresource.is_empty() {
            return self.validate(object, errors);
        }
        for condition in Cursor::root(object).items("status.conditions") {
            let status = condition.at("status");
            if !STATUSES.contains(&status.as_text()) {
                errors.not_supported(status, status.as_text(), &STATUSES);
            }
        }
    }
}

/// Checks that `name` and `generateName`, if set, equal `<version>.<group>`.
fn validate_names(object: &Cursor<'_>, errors: &mut FieldErrors) {
    let wanted = format!("{}.{}", object.text("spec.version"), object.text("spec.group"));
    for field in ["metadata.generateName", "metadata.name"] {
        let name = object.at(field);
        let is_segment = names::path_segment(name.as_text(), false).is_empty();
        if !name.as_text().is_empty() && is_segment && name.as_text() != wanted {
            let text = format!("must be `spec.version+\".\"+spec.group`: {}", quote(&wanted));
            errors.invalid(name, name.as_text(), text);
        }
    }
}

fn validate_target(spec: &Cursor<'_>, errors: &mut FieldErrors) {
    let (service, bundle, skips) = (
        spec.at("service"),
        spec.at("caBundle"),
        spec.at("insecureSkipTLSVerify"),
    );
    let skips_checks = skips.flag("") == Some(true);
    if !service.is_set("") {
        if !bundle.is_empty("") {
            // The error shows the number of decoded bytes.
            let text = bundle.as_text().trim_end_matches('=');
            let shown = format!("{} bytes", text.len() * 3 / 4);
            errors.invalid(bundle, shown, "local APIServices may not have a caBundle");
        }
        if skips_checks {
            errors.invalid(skips, true, "local APIServices may not have insecureSkipTLSVerify");
        }
        return;
    }
    for field in ["namespace", "name"] {
        service.at(field).check_required(errors);
    }
    let port = service.integer("port").unwrap_or(0);
    if let Some(text) = names::port_number(port) {
        errors.invalid(service.at("port"), port, format!("port is not valid: {text}"));
    }
    if skips_checks && !bundle.is_empty("") {
        errors.invalid(skips, true, "may not be true if caBundle is present");
    }
}
