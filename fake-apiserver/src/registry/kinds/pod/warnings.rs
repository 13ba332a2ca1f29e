//! Warnings about settings of pods and templates that are valid but rarely intended.

use std::collections::{BTreeMap, BTreeSet};

use super::amount::{is_whole, read};
use super::annotations::{APP_ARMOR, SECCOMP, SECCOMP_CONTAINER, app_armor_profile, has_prefix};
use super::overlaps::warn_of_overlaps;
use super::windows::containers;
use crate::api::field::quote;
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::names;
use crate::registry::types::net::warn_of_ip;

/// Part of a warning about a workload's name, for workloads that derive the names of Pods from their own name.
pub(crate) const NAMES_PODS: &str = "Pod names and hostnames";

const DEPRECATED_LABELS: [(&str, &str); 8] = [
    (
        "beta.kubernetes.io/arch",
        "deprecated since v1.14; use \"kubernetes.io/arch\" instead",
    ),
    (
        "beta.kubernetes.io/os",
        "deprecated since v1.14; use \"kubernetes.io/os\" instead",
    ),
    (
        "failure-domain.beta.kubernetes.io/region",
        "deprecated since v1.17; use \"topology.kubernetes.io/region\" instead",
    ),
    (
        "failure-domain.beta.kubernetes.io/zone",
        "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead",
    ),
    (
        "beta.kubernetes.io/instance-type",
        "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead",
    ),
    ("app.kubernetes.io/created-by", "deprecated since v1.9"),
    (
        "scheduler.alpha.kubernetes.io/preferAvoidPods",
        "deprecated since v1.22; use Taints and Tolerations instead",
    ),
    (
        "node-role.kubernetes.io/master",
        "use \"node-role.kubernetes.io/control-plane\" instead",
    ),
];

const DEPRECATED_ANNOTATIONS: [(&str, &str); 3] = [
    (
        "scheduler.alpha.kubernetes.io/critical-pod",
        "non-functional in v1.16+; use the \"priorityClassName\" field instead",
    ),
    (
        "security.alpha.kubernetes.io/sysctls",
        "non-functional in v1.11+; use the \"sysctls\" field instead",
    ),
    (
        "security.alpha.kubernetes.io/unsafe-sysctls",
        "non-functional in v1.11+; use the \"sysctls\" field instead",
    ),
];

/// Deprecated volume sources, in the order of their warnings. `ephemeral` marks the position of the warnings about
/// claim templates.
const DEPRECATED_VOLUMES: [(&str, &str, &str); 10] = [
    (
        "photonPersistentDisk",
        "photonPersistentDisk",
        "deprecated in v1.11, non-functional in v1.16+",
    ),
    (
        "gitRepo",
        "gitRepo",
        "deprecated in v1.11, and disabled by default in v1.33+",
    ),
    ("scaleIO", "scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("flocker", "flocker", "deprecated in v1.22, non-functional in v1.25+"),
    (
        "storageos",
        "storageOS",
        "deprecated in v1.22, non-functional in v1.25+",
    ),
    ("quobyte", "quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    (
        "glusterfs",
        "glusterfs",
        "deprecated in v1.25, non-functional in v1.26+",
    ),
    ("ephemeral", "", ""),
    ("cephfs", "cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("rbd", "rbd", "deprecated in v1.28, non-functional in v1.31+"),
];

/// Returns the deprecation message for a label of Nodes (`GetNodeLabelDeprecatedMessage`).
pub(crate) fn deprecated_node_label(key: &str) -> Option<&'static str> {
    let found = DEPRECATED_LABELS.iter().find(|(label, _)| *label == key);
    found.map(|(_, text)| *text)
}

/// Returns the warnings about a new Pod. Updates do not get warnings, because users rarely send them.
pub(super) fn of_pod(pod: &Object) -> Vec<String> {
    let mut warnings = Vec::new();
    warn_name(pod.name(), "the Pod's hostname", &mut warnings);
    of_template(&Cursor::root(pod), false, &mut warnings);
    warnings
}

/// Returns the warnings about a workload. The template at the path `way` is checked if the workload is new or `changed`
/// returns `true`. The name is checked if the workload is new and `naming`, the description of how the name is used, is
/// not empty.
pub(crate) fn of_workload(
    object: &Object,
    old: Option<&Object>,
    way: &str,
    naming: &str,
    changed: impl FnOnce(&Object) -> bool,
) -> Vec<String> {
    let mut warnings = Vec::new();
    if old.is_none() && !naming.is_empty() {
        warn_name(object.name(), naming, &mut warnings);
    }
    if let Some(template) = Cursor::root(object).present(way)
        && old.is_none_or(changed)
    {
        of_template(&template, true, &mut warnings);
    }
    warnings
}

fn warn_name(name: &str, naming: &str, warnings: &mut Vec<String>) {
    let troubles = names::dns1123_label(name, false);
    if !troubles.is_empty() {
        let troubles = troubles.join(" ");
        warnings.push(format!(
            "metadata.name: this is used in {naming}, which can result in surprising behavior; a DNS label is \
             recommended: [{troubles}]"
        ));
    }
}

fn of_template(template: &Cursor<'_>, is_template: bool, warnings: &mut Vec<String>) {
    let (spec, annotations) = (template.at("spec"), template.at("metadata.annotations"));
    warn_scheduling(&spec, warnings);
    for (key, text) in DEPRECATED_ANNOTATIONS {
        if annotations.entry(key).is_set("") {
            warn(annotations.entry(key), text, warnings);
        }
    }
    for volume in spec.items("volumes") {
        for (field, shown, text) in DEPRECATED_VOLUMES {
            if field == "ephemeral" {
                of_claim(&volume.at("ephemeral.volumeClaimTemplate.spec"), warnings);
            } else if volume.is_set(field) {
                warn(volume.at(shown), text, warnings);
            }
        }
    }
    warn_of_overlaps(&spec, warnings);
    warn_repeated(&spec, "hostAliases", "ip", warnings);
    warn_repeated(&spec, "imagePullSecrets", "name", warnings);
    for secret in spec.items("imagePullSecrets") {
        if secret.is_empty("name") {
            warn(secret.at("name"), "invalid empty name \"\"", warnings);
        }
    }
    for resource in BYTES {
        warn_fraction(&spec.at("overhead"), resource, warnings);
    }
    warn_seccomp(&annotations, SECCOMP, &spec.at("securityContext"), warnings);
    let has_seccomp = has_prefix(&annotations, SECCOMP_CONTAINER);
    let has_app_armor = is_template && has_prefix(&annotations, APP_ARMOR);
    for container in containers(&spec) {
        let (name, context) = (container.text("name"), container.at("securityContext"));
        if has_seccomp {
            warn_seccomp(&annotations, &format!("{SECCOMP_CONTAINER}{name}"), &context, warnings);
        }
        if has_app_armor {
            let own = spec.at("securityContext.appArmorProfile");
            warn_app_armor(&annotations, &format!("{APP_ARMOR}{name}"), &context, &own, warnings);
        }
        for resource in BYTES {
            for which in ["resources.limits", "resources.requests"] {
                warn_fraction(&container.at(which), resource, warnings);
            }
        }
        warn_env(&container, warnings);
    }
    warn_ports(&spec, warnings);
    let grace = spec.at("terminationGracePeriodSeconds");
    if grace.integer("").is_some_and(|seconds| seconds < 0) {
        let text = "must be >= 0; negative values are invalid and will be treated as 1";
        warn(grace, text, warnings);
    }
    warn_affinity(&spec, warnings);
    let config = spec.at("dnsConfig");
    for server in config.items("nameservers") {
        warnings.extend(warn_of_ip(&server.path(), server.as_text()));
    }
    for alias in spec.items("hostAliases") {
        let address = alias.at("ip");
        warnings.extend(warn_of_ip(&address.path(), address.as_text()));
    }
}

/// Adds warnings about the spec of a PersistentVolumeClaim (`GetWarningsForPersistentVolumeClaimSpec`).
pub(crate) fn of_claim(spec: &Cursor<'_>, warnings: &mut Vec<String>) {
    for which in ["resources.requests", "resources.limits"] {
        warn_fraction(&spec.at(which), "storage", warnings);
    }
}

fn warn_seccomp(annotations: &Cursor<'_>, key: &str, context: &Cursor<'_>, warnings: &mut Vec<String>) {
    let annotation = annotations.entry(key);
    if annotation.is_set("") && !context.is_set("seccompProfile") {
        let text = "non-functional in v1.27+; use the \"seccompProfile\" field instead";
        warn(annotation, text, warnings);
    }
}

fn warn_app_armor(
    annotations: &Cursor<'_>,
    key: &str,
    context: &Cursor<'_>,
    own: &Cursor<'_>,
    warnings: &mut Vec<String>,
) {
    let annotation = annotations.entry(key);
    if !annotation.is_set("") || context.is_set("appArmorProfile") {
        return;
    }
    if !own.is_set("") || own.get("") != app_armor_profile(annotation.as_text()).as_ref() {
        let text = "deprecated since v1.30; use the \"appArmorProfile\" field instead";
        warn(annotation, text, warnings);
    }
}

/// Adds a warning of the form `path: text`.
fn warn(place: Cursor<'_>, text: &str, warnings: &mut Vec<String>) {
    warnings.push(format!("{}: {text}", place.path()));
}

fn warn_scheduling(spec: &Cursor<'_>, warnings: &mut Vec<String>) {
    for (key, entry) in spec.entries("nodeSelector") {
        if let Some(text) = deprecated_node_label(key) {
            warn(entry, text, warnings);
        }
    }
    let nodes = spec.at("affinity.nodeAffinity");
    for term in nodes.items("requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms") {
        warn_term(&term, false, warnings);
    }
    for weighted in nodes.items("preferredDuringSchedulingIgnoredDuringExecution") {
        warn_term(&weighted.at("preference"), true, warnings);
    }
    for constraint in spec.items("topologySpreadConstraints") {
        let key = constraint.at("topologyKey");
        if let Some(text) = deprecated_node_label(key.as_text()) {
            warn(key, &format!("{} is {text}", key.as_text()), warnings);
        }
        warn_selector(&constraint.at("labelSelector"), warnings);
    }
}

/// Adds warnings about a node selector term (`GetWarningsForNodeSelectorTerm`).
fn warn_term(term: &Cursor<'_>, checks_values: bool, warnings: &mut Vec<String>) {
    for expression in term.items("matchExpressions") {
        let key = expression.at("key");
        if let Some(text) = deprecated_node_label(key.as_text()) {
            warn(key, &format!("{} is {text}", key.as_text()), warnings);
        }
        for value in expression.items("values").filter(|_| checks_values) {
            for text in names::label_value(value.as_text()) {
                warn(value, &format!("{} is invalid, {text}", value.as_text()), warnings);
            }
        }
    }
}

fn warn_selector(selector: &Cursor<'_>, warnings: &mut Vec<String>) {
    if !selector.is_set("") {
        warn(*selector, "a null labelSelector results in matching no pod", warnings);
    }
}

fn warn_affinity(spec: &Cursor<'_>, warnings: &mut Vec<String>) {
    for kind in ["affinity.podAffinity", "affinity.podAntiAffinity"] {
        let pods = spec.at(kind);
        for term in pods.items("requiredDuringSchedulingIgnoredDuringExecution") {
            warn_selector(&term.at("labelSelector"), warnings);
        }
        for weighted in pods.items("preferredDuringSchedulingIgnoredDuringExecution") {
            warn_selector(&weighted.at("podAffinityTerm.labelSelector"), warnings);
        }
    }
}

fn warn_repeated(spec: &Cursor<'_>, list: &str, field: &str, warnings: &mut Vec<String>) {
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    for item in spec.items(list) {
        let value = item.text(field);
        if seen.contains(&value) {
            warn(item.at(field), &format!("duplicate {field} {}", quote(value)), warnings);
        }
        seen.insert(value);
    }
}

/// Resources of containers that are measured in bytes.
const BYTES: [&str; 2] = ["memory", "ephemeral-storage"];

fn warn_fraction(resources: &Cursor<'_>, resource: &str, warnings: &mut Vec<String>) {
    let amount = resources.entry(resource);
    let written = amount.as_text();
    if read(written).is_some_and(|amount| !is_whole(&amount)) {
        let text = format!("fractional byte value \"{written}\" is invalid, must be an integer");
        warn(amount, &text, warnings);
    }
}

fn warn_env(container: &Cursor<'_>, warnings: &mut Vec<String>) {
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    for variable in container.items("env") {
        let (name, value) = (variable.text("name"), variable.text("value"));
        let extends = || {
            let reference = format!("$({name})");
            !variable.is_set("valueFrom") && value != reference && value.contains(&reference)
        };
        if seen.contains(&name) && !extends() {
            let name = quote(name);
            let text = format!("hides previous definition of {name}, which may be dropped when using apply");
            warn(variable, &text, warnings);
        }
        seen.insert(name);
    }
}

/// Number of warnings after which no further pairs of ports are compared. Responses contain fewer warnings.
const PORT_WARNINGS_MAX: usize = 1_000;

/// Number of pairs of ports that are compared. Ports with different host ports are compared without causing a warning.
const PORT_PAIRS_MAX: usize = 1_000_000;

fn warn_ports(spec: &Cursor<'_>, warnings: &mut Vec<String>) {
    struct Port<'a> {
        host: i64,
        address: &'a str,
        at: Cursor<'a>,
    }
    let containers: Vec<Cursor<'_>> = containers(spec).collect();
    let mut ports: BTreeMap<(i64, &str), Vec<Port<'_>>> = BTreeMap::new();
    let mut named: BTreeMap<&str, Cursor<'_>> = BTreeMap::new();
    let mut of_names = Vec::new();
    let mut pairs = 0;
    for container in &containers {
        for port in container.items("ports") {
            let own = Port {
                host: port.integer("hostPort").unwrap_or(0),
                address: port.text("hostIP"),
                at: port,
            };
            let (name, protocol) = (port.text("name"), port.text("protocol"));
            let number = port.integer("containerPort").unwrap_or(0);
            if !own.address.is_empty() && own.host == 0 {
                warnings.push(format!(
                    "{}: hostIP set without hostPort: {{Name:{name} HostPort:0 ContainerPort:{number} \
                     Protocol:{protocol} HostIP:{}}}",
                    own.at.path(),
                    own.address
                ));
            }
            let others = ports.entry((number, protocol)).or_default();
            for other in others.iter() {
                if warnings.len() >= PORT_WARNINGS_MAX || pairs >= PORT_PAIRS_MAX {
                    break;
                }
                pairs += 1;
                let one_open = own.address.is_empty() != other.address.is_empty();
                let what = if own.address == other.address && own.host == other.host {
                    "duplicate port definition"
                } else if own.host == 0 || other.host == 0 {
                    "overlapping port definition"
                } else if own.host == other.host && one_open {
                    "dangerously ambiguous port definition"
                } else {
                    continue;
                };
                warnings.push(format!("{}: {what} with {}", own.at.path(), other.at.path()));
            }
            match named.get(name) {
                _ if name.is_empty() => {}
                Some(other) => {
                    let (own, other, name) = (own.at.path(), other.path(), quote(name));
                    of_names.push(format!(
                        "{own}: duplicate port name {name} with {other}, services and probes that select ports by \
                         name will use {other}"
                    ));
                }
                None => {
                    named.insert(name, own.at);
                }
            }
            others.push(own);
        }
    }
    warnings.append(&mut of_names);
}
