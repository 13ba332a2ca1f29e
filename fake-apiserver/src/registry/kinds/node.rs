//! Nodes.

use serde_json::{Value, json};

use super::plain;
use crate::api::field::{FieldError, FieldErrorKind, FieldErrors, FieldPath, quote};
use crate::api::object::Object;
use crate::registry::strategy::{Context, FieldLabels, Strategy};
use crate::registry::types::access::{at, ensure_object, is_empty, list, objects, text};
use crate::registry::types::{labels, names, net};

/// The taint a Node carries until its kubelet says it is ready.
const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// The strategy of Nodes.
#[derive(Debug)]
pub(crate) struct Node;

impl Strategy for Node {
    fn default(&self, object: &mut Object) {
        let cidr = text(object, "spec.podCIDR").to_owned();
        if !cidr.is_empty() && is_empty(object, "spec.podCIDRs") {
            ensure_object(object, "spec").insert("podCIDRs".into(), json!([cidr]));
        }
        if is_empty(object, "status.allocatable")
            && let Some(capacity) = at(object, "status.capacity").cloned()
        {
            ensure_object(object, "status").insert("allocatable".into(), capacity);
        }
    }

    fn prepare_for_create(&self, object: &mut Object, _context: &Context<'_>) {
        let is_tainted = objects(object, "spec.taints")
            .any(|(_, taint)| text(taint, "key") == NOT_READY && text(taint, "effect") == "NoSchedule");
        if !is_tainted {
            let mut taints = list(object, "spec.taints").to_vec();
            taints.push(json!({"key": NOT_READY, "effect": "NoSchedule"}));
            ensure_object(object, "spec").insert("taints".into(), taints.into());
        }
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        validate_taints(object, errors);
        for (index, cidr) in list(object, "spec.podCIDRs").iter().enumerate() {
            let path = FieldPath::new("spec.podCIDRs").index(index);
            net::validate_cidr(cidr.as_str().unwrap_or_default(), &path, errors);
        }
    }

    fn validate_update(&self, object: &Object, old: &Object, errors: &mut FieldErrors, _context: &Context<'_>) {
        let cidrs = |it: &Object| list(it, "spec.podCIDRs").to_vec();
        if !cidrs(old).is_empty() && cidrs(object) != cidrs(old) {
            let text = "node updates may not change podCIDR except from \"\" to valid";
            errors.forbidden(FieldPath::new("spec.podCIDRs"), text);
        }
        let provider = text(old, "spec.providerID");
        if !provider.is_empty() && text(object, "spec.providerID") != provider {
            let text = "node updates may not change providerID except from \"\" to valid";
            errors.forbidden(FieldPath::new("spec.providerID"), text);
        }
        validate_taints(object, errors);
    }

    fn status_write_changes_labels(&self) -> bool {
        true
    }

    fn keeps_status_on_create(&self) -> bool {
        true
    }

    fn field_labels(&self) -> FieldLabels {
        plain::field_labels(&["spec.unschedulable"], false)
    }

    fn field_values(&self, object: &Object) -> Vec<(&'static str, String)> {
        let is_cordoned = at(object, "spec.unschedulable") == Some(&Value::Bool(true));
        vec![("spec.unschedulable", is_cordoned.to_string())]
    }
}

fn validate_taints(object: &Object, errors: &mut FieldErrors) {
    let mut seen: Vec<(&str, &str)> = Vec::new();
    for (index, taint) in objects(object, "spec.taints") {
        // The server's own path for them, though they lie in the spec.
        let path = FieldPath::new("metadata.taints").index(index);
        let (key, value, effect) = (text(taint, "key"), text(taint, "value"), text(taint, "effect"));
        labels::validate_key(key, &path.child("key"), errors);
        let problems = names::label_value(value);
        if !problems.is_empty() {
            errors.invalid(path.child("value"), value, problems.join(";"));
        }
        let effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
        if effect.is_empty() {
            errors.required(path.child("effect"), "");
        } else if !effects.contains(&effect) {
            errors.not_supported(path.child("effect"), effect, &effects);
        }
        if seen.contains(&(effect, key)) {
            let printed = [key, value, effect].map(quote);
            let [key, value, effect] = &printed;
            errors.push(FieldError {
                path,
                kind: FieldErrorKind::Duplicate,
                value: None,
                detail: format!(
                    "{{\"Key\":{key},\"Value\":{value},\"Effect\":{effect},\"TimeAdded\":null}}: taints must be unique \
                     by key and effect pair"
                ),
            });
            continue;
        }
        seen.push((effect, key));
    }
}
