//! The strategy of Nodes (`pkg/registry/core/node`, `ValidateNode` of `pkg/apis/core/validation`).

use std::collections::BTreeSet;

use super::facts::{Facts, FieldLabels};
use super::pod::resources::validate_quantity_value;
use super::strategy::{Context, Strategy};
use crate::api::field::{FieldError, FieldErrorKind, FieldErrors, FieldPath, quote};
use crate::api::json::{Value, json};
use crate::api::object::Object;
use crate::registry::types::check::NOT_POSITIVE;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::edit::{ensure_object, object_mut};
use crate::registry::types::plugins::Plugin;
use crate::registry::types::{labels, names, net};

/// Taint of a new Node that is not ready yet.
const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// The strategy of Nodes.
#[derive(Debug)]
pub(crate) struct Node;

impl Strategy for Node {
    fn facts(&self) -> &Facts {
        const {
            &Facts {
                keeps_status_on_create: true,
                fields: FieldLabels::of(&["spec.unschedulable"], false),
                ..Facts::DEFAULT
            }
        }
    }

    fn default(&self, object: &mut Object) {
        pair_pod_cidrs(object);
        let read = Cursor::root(object);
        if read.is_empty("status.allocatable")
            && let Some(capacity) = read.get("status.capacity").cloned()
        {
            ensure_object(object, "status").insert("allocatable".into(), capacity);
        }
    }

    fn admit(&self, object: &mut Object, old: Option<&Object>, context: &Context<'_>) -> Result<(), String> {
        let read = Cursor::root(object);
        let is_not_ready = |it: Cursor<'_>| it.text("key") == NOT_READY && it.text("effect") == "NoSchedule";
        let is_tainted = old.is_none() && context.plugins.has(Plugin::TaintNodesByCondition);
        if is_tainted && !read.items("spec.taints").any(is_not_ready) {
            let mut taints = read.list("spec.taints").to_vec();
            taints.push(json!({"key": NOT_READY, "effect": "NoSchedule"}));
            ensure_object(object, "spec").insert("taints".into(), taints.into());
        }
        Ok(())
    }

    fn prepare_for_create(&self, object: &mut Object, _context: &Context<'_>) {
        for (part, field) in [("spec", "configSource"), ("status", "config")] {
            if let Some(part) = object_mut(object, part) {
                part.remove(field);
            }
        }
    }

    fn prepare_for_update(&self, object: &mut Object, old: &Object, context: &Context<'_>) {
        // Dynamic kubelet configuration is no longer supported: its field is dropped unless the stored object has it.
        let (part, field, way) = match context.subresource {
            "status" => ("status", "config", "status.config"),
            _ => ("spec", "configSource", "spec.configSource"),
        };
        if !Cursor::root(old).is_set(way)
            && let Some(part) = object_mut(object, part)
        {
            part.remove(field);
        }
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        let node = Cursor::root(object);
        validate_taints(&node, errors);
        validate_resources(&node, errors);
        let swap = node.at("status.nodeInfo.swap.capacity");
        if let Some(capacity) = swap.integer("").filter(|it| *it <= 0) {
            // As in kube-apiserver, the error has a path below `metadata`.
            errors.invalid(
                FieldPath::new("metadata.nodeSwapStatus.capacity"),
                capacity,
                NOT_POSITIVE,
            );
        }
        validate_features(&node, errors);
        validate_pod_cidrs(&node, errors);
    }

    fn validate_update(&self, object: &Object, old: &Object, errors: &mut FieldErrors, context: &Context<'_>) {
        if context.subresource.is_empty() {
            self.validate(object, errors);
        }
        let (node, old) = (Cursor::root(object), Cursor::root(old));
        validate_resources(&node, errors);
        validate_features(&node, errors);
        validate_addresses(&node, errors);
        let (cidrs, earlier) = (node.list("spec.podCIDRs"), old.list("spec.podCIDRs"));
        let changes = match (earlier.len(), cidrs.len()) {
            (0, _) => 0,
            (before, now) if before != now => 1,
            _ => earlier.iter().zip(cidrs).filter(|(before, now)| before != now).count(),
        };
        for _ in 0..changes {
            let text = "node updates may not change podCIDR except from \"\" to valid";
            errors.forbidden(node.at("spec.podCIDRs"), text);
        }
        if !old.is_empty("spec.providerID") && !node.same(&old, "spec.providerID") {
            let text = "node updates may not change providerID except from \"\" to valid";
            errors.forbidden(node.at("spec.providerID"), text);
        }
        validate_taints(&node, errors);
        if node.text("spec.externalID") != old.text("spec.externalID") {
            errors.forbidden(node.at("spec.externalID"), "may not be updated");
        }
    }

    fn warnings(&self, object: &Object, _old: Option<&Object>) -> Vec<String> {
        let node = Cursor::root(object);
        let mut warnings = Vec::new();
        if node.is_set("spec.configSource") {
            warnings.push("spec.configSource: the feature is removed".to_owned());
        }
        if !node.is_empty("spec.externalID") {
            warnings.push("spec.externalID: this field is deprecated, and is unused by Kubernetes".to_owned());
        }
        for cidr in node.items("spec.podCIDRs") {
            warnings.extend(net::warn_of_cidr(&cidr.path(), cidr.as_text()));
        }
        warnings
    }

    fn field_value(&self, object: &Object, label: &str) -> String {
        (Cursor::root(object).flag(label) == Some(true)).to_string()
    }
}

/// Makes `podCIDR` equal to the first item of `podCIDRs`. If both are set and differ, `podCIDRs` is replaced
/// (`Convert_v1_NodeSpec_To_core_NodeSpec`).
fn pair_pod_cidrs(object: &mut Object) {
    let read = Cursor::root(object);
    let (cidr, first) = (read.text("spec.podCIDR"), read.texts("spec.podCIDRs").next());
    let (field, value) = match first {
        None if cidr.is_empty() => return,
        Some(first) if first == cidr => return,
        Some(first) if cidr.is_empty() => ("podCIDR", json!(first)),
        _ => ("podCIDRs", json!([cidr])),
    };
    ensure_object(object, "spec").insert(field.into(), value);
}

/// Checks the quantities in `status.capacity` and `status.allocatable` (`ValidateNodeResources`).
fn validate_resources(node: &Cursor<'_>, errors: &mut FieldErrors) {
    for part in ["status.capacity", "status.allocatable"] {
        let resources = node.at(part);
        for (name, amount) in resources.entries("") {
            // As in kube-apiserver, the error path contains the resource as a field instead of a map key.
            let shown = resources.at(name).in_other(amount.get(""));
            validate_quantity_value(name, &shown, errors);
        }
    }
}

/// Checks that declared features have valid names, and are sorted and distinct (`validateNodeDeclaredFeatures`).
fn validate_features(node: &Cursor<'_>, errors: &mut FieldErrors) {
    let features = node.list("status.declaredFeatures");
    let path = FieldPath::new("status.declaredFeatures");
    let names: Vec<&str> = features.iter().map(|it| it.as_str().unwrap_or_default()).collect();
    for (index, name) in names.iter().enumerate() {
        if let Some(problem) = wrong_in_feature(name) {
            let text = format!("invalid feature name {}: {problem}", quote(name));
            errors.invalid(path.index(index), *name, text);
        }
        match names.get(index + 1) {
            Some(next) if name == next => errors.duplicate(path.index(index + 1), *next),
            Some(next) if name > next => {
                errors.invalid(path.index(index + 1), *next, "list must be sorted alphabetically");
            }
            _ => {}
        }
    }
}

fn wrong_in_feature(name: &str) -> Option<String> {
    if name.len() > names::SUBDOMAIN_MAX {
        return Some(format!("must be no more than {} characters", names::SUBDOMAIN_MAX));
    }
    let is_word = |part: &str| {
        part.starts_with(|first: char| first.is_ascii_alphabetic()) && part.bytes().all(|b| b.is_ascii_alphanumeric())
    };
    let is_right = name.starts_with(|first: char| first.is_ascii_uppercase()) && name.split('/').all(is_word);
    (!is_right).then(|| {
        "must start with an UpperCamelCase segment, with subsequent segments separated by '/' (e.g., MyFeature or \
         MyFeature/mySubFeature), and contain only alphanumeric characters and slashes"
            .to_owned()
    })
}

fn validate_addresses(node: &Cursor<'_>, errors: &mut FieldErrors) {
    let addresses = node.list("status.addresses");
    for (index, address) in node.items("status.addresses").enumerate() {
        if addresses.iter().take(index).any(|it| Some(it) == address.get("")) {
            errors.duplicate(address.path(), address.to_value());
        }
    }
}

/// Checks that `podCIDRs` has at most two valid ranges, of different IP families (`ValidateNode`).
fn validate_pod_cidrs(node: &Cursor<'_>, errors: &mut FieldErrors) {
    for cidr in node.items("spec.podCIDRs") {
        net::validate_cidr(&cidr, errors);
    }
    let all: Vec<&str> = node
        .list("spec.podCIDRs")
        .iter()
        .map(|it| it.as_str().unwrap_or_default())
        .collect();
    if all.len() < 2 {
        return;
    }
    let cidrs = node.at("spec.podCIDRs");
    let parsed: Vec<_> = all.iter().map(|it| net::parse_cidr(it)).collect();
    if let Some((index, wrong)) = (0..).zip(&all).find(|(_, it)| net::parse_cidr(it).is_none()) {
        let detail = format!(
            "invalid PodCIDRs. failed to check with dual stack with error:invalid CIDR[{index}]: <nil> (invalid CIDR \
             address: {wrong})"
        );
        errors.push(FieldError {
            path: cidrs.path(),
            kind: FieldErrorKind::Internal,
            value: None,
            detail,
        });
    }
    let has = |is_v4: bool| parsed.iter().flatten().any(|(address, _)| address.is_ipv4() == is_v4);
    let is_dual = parsed.iter().all(Option::is_some) && has(true) && has(false);
    if !is_dual || all.len() > 2 {
        errors.invalid(cidrs, all, "may specify no more than one CIDR for each IP family");
    }
}

fn validate_taints(node: &Cursor<'_>, errors: &mut FieldErrors) {
    let mut seen: BTreeSet<(&str, &str)> = BTreeSet::new();
    // As in kube-apiserver, errors about taints have a path below `metadata`, although taints are in the spec.
    let taints = node.at("metadata.taints").in_other(node.get("spec.taints"));
    for taint in taints.items("") {
        let [key, value, effect] = ["key", "value", "effect"].map(|field| taint.text(field));
        labels::validate_key(&taint.at("key"), errors);
        let problems = names::label_value(value);
        if !problems.is_empty() {
            errors.invalid(taint.at("value"), value, problems.join(";"));
        }
        let effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
        taint.at("effect").check_required_one_of(&effects, errors);
        if seen.contains(&(effect, key)) {
            let printed = [key, value, effect].map(quote);
            let [key, value, effect] = &printed;
            let added = taint.get("timeAdded").unwrap_or(&Value::Null);
            errors.push(FieldError {
                path: taint.path(),
                kind: FieldErrorKind::Duplicate,
                value: None,
                detail: format!(
                    "{{\"Key\":{key},\"Value\":{value},\"Effect\":{effect},\"TimeAdded\":{added}}}: taints must be \
                     unique by key and effect pair"
                ),
            });
            continue;
        }
        seen.insert((effect, key));
    }
}
