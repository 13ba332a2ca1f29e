//! The strategy of Pods.

use crate::api::field::FieldErrors;
use crate::api::object::Object;
use crate::registry::kinds::strategy::{Context, FieldLabels, Strategy};
use crate::registry::types::cursor::Cursor;
use crate::registry::types::net::warn_of_ip;
use crate::registry::types::view::{flag, items, object_made, object_or_empty, same, text};

use super::{admission, defaults, prepare, status, update, validation, warnings};

/// Pods.
#[derive(Debug)]
pub(crate) struct PodStrategy;

/// The seconds of grace of a pod that does not say.
const NO_GRACE: i64 = 0;

impl Strategy for PodStrategy {
    fn default(&self, object: &mut Object) {
        if let Some(spec) = object_made(object, "spec") {
            defaults::default_pod_spec(spec);
            defaults::default_pod_alone(spec);
        }
        if let Some(status) = object_made(object, "status") {
            prepare::default_status(status);
        }
    }

    fn prepare_for_create(&self, object: &mut Object, _context: &Context<'_>) {
        prepare::prepare_created(object);
    }

    fn prepare_for_update(&self, object: &mut Object, old: &Object, context: &Context<'_>) {
        match context.subresource {
            "status" => prepare::prepare_status(object, old),
            "ephemeralcontainers" => prepare::keep_ephemeral_containers_only(object, old),
            "resize" => prepare::keep_resources_only(object, old),
            _ => {}
        }
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        validation::validate_created(object, errors);
    }

    fn validate_update(&self, object: &Object, old: &Object, errors: &mut FieldErrors, context: &Context<'_>) {
        match context.subresource {
            "status" => status::validate_status(object, old, errors),
            "ephemeralcontainers" => update::validate_ephemeral_containers(object, old, errors),
            "resize" => update::validate_resize(object, old, errors),
            // what is bound was checked when it was created, and only its node is new
            "binding" => {}
            _ => update::validate_update(object, old, errors),
        }
    }

    fn admit(&self, object: &mut Object, old: Option<&Object>, context: &Context<'_>) -> Result<(), String> {
        match old {
            Some(old) => admission::admit_updated(object, old),
            None => admission::admit_created(object, context)?,
        }
        Ok(())
    }

    fn warnings(&self, object: &Object, old: Option<&Object>) -> Vec<String> {
        match old {
            None => warnings::of_pod(object),
            Some(_) => Vec::new(),
        }
    }

    fn status_warnings(&self, object: &Object) -> Vec<String> {
        let object = Cursor::root(object);
        let (pod, host) = (object.at("status.podIPs"), object.at("status.hostIPs"));
        let addresses = pod.items("").chain(host.items(""));
        let warn = |it: Cursor<'_>| warn_of_ip(&it.at("ip").path(), it.text("ip"));
        addresses.filter_map(warn).collect()
    }

    fn returns_deleted_object(&self) -> bool {
        true
    }

    fn has_generation(&self) -> bool {
        true
    }

    fn raises_generation(&self, object: &Object, old: &Object) -> bool {
        // a pod gets its node by being bound, which leaves the generation alone
        let (spec, old_spec) = (object_or_empty(object, "spec"), object_or_empty(old, "spec"));
        let fields = || spec.keys().chain(old_spec.keys()).filter(|field| *field != "nodeName");
        fields().any(|field| !same(spec, old_spec, field))
    }

    fn grace_period(&self, object: &Object, asked: Option<i64>) -> Option<i64> {
        let spec = object_or_empty(object, "spec");
        let phase = text(object_or_empty(object, "status"), "phase");
        if text(spec, "nodeName").is_empty() || matches!(phase, "Succeeded" | "Failed") {
            return Some(0);
        }
        let own = spec
            .get("terminationGracePeriodSeconds")
            .and_then(serde_json::Value::as_i64);
        let seconds = asked.or(own).unwrap_or(NO_GRACE);
        Some(if seconds < 0 { 1 } else { seconds })
    }

    fn field_labels(&self) -> FieldLabels {
        FieldLabels::These {
            labels: &[
                "spec.nodeName",
                "spec.restartPolicy",
                "spec.schedulerName",
                "spec.serviceAccountName",
                "spec.hostNetwork",
                "status.phase",
                "status.podIP",
                "status.podIPs",
                "status.nominatedNodeName",
            ],
            namespace: true,
            aliases: &[("spec.host", "spec.nodeName")],
            refusal: "field label not supported: {}",
        }
    }

    fn field_values(&self, object: &Object) -> Vec<(&'static str, String)> {
        let spec = object_or_empty(object, "spec");
        let status = object_or_empty(object, "status");
        let host_network = flag(spec, "hostNetwork") == Some(true);
        let address = match items(status, "podIPs").next() {
            Some((_, first)) => text(first, "ip"),
            None => text(status, "podIP"),
        };
        vec![
            ("spec.nodeName", text(spec, "nodeName").to_owned()),
            ("spec.restartPolicy", text(spec, "restartPolicy").to_owned()),
            ("spec.schedulerName", text(spec, "schedulerName").to_owned()),
            ("spec.serviceAccountName", text(spec, "serviceAccountName").to_owned()),
            ("spec.hostNetwork", host_network.to_string()),
            ("status.phase", text(status, "phase").to_owned()),
            ("status.podIP", address.to_owned()),
            // accepted, but no pod has a value for it
            ("status.podIPs", String::new()),
            ("status.nominatedNodeName", text(status, "nominatedNodeName").to_owned()),
        ]
    }
}
