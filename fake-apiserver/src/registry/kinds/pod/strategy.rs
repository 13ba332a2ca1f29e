//! The strategy of Pods.

use crate::api::field::FieldErrors;
use crate::api::object::Object;
use crate::registry::kinds::facts::{Facts, FieldLabels, Generation};
use crate::registry::kinds::strategy::{Context, Strategy};
use crate::registry::types::cursor::Cursor;
use crate::registry::types::edit::ensure_object;
use crate::registry::types::net::warn_of_ip;

use super::{admission, defaults, prepare, status, update, validation, warnings};

/// The strategy of Pods.
#[derive(Debug)]
pub(crate) struct PodStrategy;

/// Grace period of a pod without `terminationGracePeriodSeconds`, in seconds.
const NO_GRACE: i64 = 0;

impl Strategy for PodStrategy {
    fn facts(&self) -> &Facts {
        &Facts {
            returns_deleted_object: true,
            generation: Generation::FromCreate,
            fields: FieldLabels::These {
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
            },
            // A `status.qosClass` in the create request is kept.
            keeps_status_on_create: true,
            ..Facts::DEFAULT
        }
    }

    fn default(&self, object: &mut Object) {
        defaults::drop_legacy_annotations(object);
        let spec = ensure_object(object, "spec");
        defaults::default_pod_spec(spec);
        defaults::default_pod_alone(spec);
        prepare::default_status(ensure_object(object, "status"));
    }

    fn prepare_for_create(&self, object: &mut Object, context: &Context<'_>) {
        prepare::prepare_created(object, &context.entropy.now_seconds());
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
            // In kube-apiserver, assigning a node does not validate the pod again.
            "binding" => {}
            _ => update::validate_update(object, old, errors),
        }
    }

    fn admit(&self, object: &mut Object, old: Option<&Object>, context: &Context<'_>) -> Result<(), String> {
        match old {
            Some(old) => admission::admit_updated(object, old, context),
            None => admission::admit_created(object, context)?,
        }
        Ok(())
    }

    fn warnings_before(&self, object: &Object) -> Vec<String> {
        prepare::warn_of_app_armor(object)
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

    fn raises_generation(&self, object: &Object, old: &Object) -> bool {
        // A binding sets the node, but does not increment the generation.
        let (object, old) = (Cursor::root(object), Cursor::root(old));
        !object.at("spec").same_but(&old.at("spec"), &["nodeName"])
    }

    fn grace_period(&self, object: &Object, asked: Option<i64>) -> Option<i64> {
        let object = Cursor::root(object);
        let phase = object.text("status.phase");
        if object.is_empty("spec.nodeName") || matches!(phase, "Succeeded" | "Failed") {
            return Some(0);
        }
        let own = object.integer("spec.terminationGracePeriodSeconds");
        let seconds = asked.or(own).unwrap_or(NO_GRACE);
        Some(if seconds < 0 { 1 } else { seconds })
    }

    fn field_value(&self, object: &Object, label: &str) -> String {
        let object = Cursor::root(object);
        match label {
            "spec.hostNetwork" => (object.flag(label) == Some(true)).to_string(),
            "status.podIP" => match object.items("status.podIPs").next() {
                Some(first) => first.text("ip").to_owned(),
                None => object.text(label).to_owned(),
            },
            // The label is supported, but its value is always empty.
            "status.podIPs" => String::new(),
            _ => object.text(label).to_owned(),
        }
    }
}
