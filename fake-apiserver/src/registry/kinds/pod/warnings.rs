//! Warnings about pods and templates: settings that are allowed, and seldom meant.

use std::collections::BTreeMap;

use super::amount::{is_whole, read};
use super::windows::visit_containers;
use crate::api::field::{FieldPath, quote};
use crate::api::object::Object;
use crate::registry::types::view::{JsonMap, integer, is_set, items, object, object_or_empty, text};
use crate::registry::types::{names, view};

/// Use of the names of a kind's objects, if they should be labels.
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

const DEPRECATED_VOLUMES: [(&str, &str, &str); 9] = [
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
    ("cephfs", "cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("rbd", "rbd", "deprecated in v1.28, non-functional in v1.31+"),
];

/// Returns the advice about a deprecated label of Nodes (`GetNodeLabelDeprecatedMessage`).
pub(crate) fn deprecated_node_label(key: &str) -> Option<&'static str> {
    let found = DEPRECATED_LABELS.iter().find(|(label, _)| *label == key);
    found.map(|(_, text)| *text)
}

/// Warnings about a new Pod; none about a changed one, which people seldom write.
pub(super) fn of_pod(pod: &Object) -> Vec<String> {
    let mut warnings = Vec::new();
    warn_name(pod.name(), "the Pod's hostname", &mut warnings);
    of_template(pod, &FieldPath::root(), &mut warnings);
    warnings
}

/// Warnings about a workload whose template lies at `path`, when it is new or `changed`. `naming` says where the names
/// of its objects are used.
pub(crate) fn of_workload(
    object: &Object,
    old: Option<&Object>,
    path: &str,
    naming: &str,
    changed: impl FnOnce(&Object) -> bool,
) -> Vec<String> {
    let mut warnings = Vec::new();
    if old.is_none() && !naming.is_empty() {
        warn_name(object.name(), naming, &mut warnings);
    }
    let template = path
        .split('.')
        .try_fold::<&JsonMap, _, _>(object, |map, step| view::object(map, step));
    if let Some(template) = template
        && old.is_none_or(changed)
    {
        of_template(template, &FieldPath::new(path), &mut warnings);
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

fn of_template(template: &JsonMap, path: &FieldPath, warnings: &mut Vec<String>) {
    let spec = object_or_empty(template, "spec");
    let at = path.child("spec");
    warn_scheduling(spec, &at, warnings);
    let annotations = object_or_empty(object_or_empty(template, "metadata"), "annotations");
    for (key, text) in DEPRECATED_ANNOTATIONS
        .iter()
        .filter(|(key, _)| annotations.contains_key(*key))
    {
        warnings.push(format!("{}: {text}", path.child("metadata.annotations").key(key)));
    }
    for (index, volume) in items(spec, "volumes") {
        for (_, shown, text) in DEPRECATED_VOLUMES.iter().filter(|(field, _, _)| is_set(volume, field)) {
            warnings.push(format!("{}: {text}", at.child("volumes").index(index).child(shown)));
        }
        let claim = object_or_empty(object_or_empty(volume, "ephemeral"), "volumeClaimTemplate");
        let resources = object_or_empty(object_or_empty(claim, "spec"), "resources");
        for which in ["requests", "limits"] {
            let at = at.child("volumes").index(index);
            let at = at.child("ephemeral.volumeClaimTemplate.spec.resources").child(which);
            warn_fractions(object_or_empty(resources, which), &["storage"], &at, warnings);
        }
    }
    warn_repeated(spec, "hostAliases", "ip", &at, warnings);
    warn_repeated(spec, "imagePullSecrets", "name", &at, warnings);
    for (index, secret) in items(spec, "imagePullSecrets") {
        if text(secret, "name").is_empty() {
            let at = at.child("imagePullSecrets").index(index).child("name");
            warnings.push(format!("{at}: invalid empty name \"\""));
        }
    }
    warn_fractions(
        object_or_empty(spec, "overhead"),
        &BYTES,
        &at.child("overhead"),
        warnings,
    );
    visit_containers(spec, &at, |container, at| {
        let resources = object_or_empty(container, "resources");
        for which in ["limits", "requests"] {
            warn_fractions(
                object_or_empty(resources, which),
                &BYTES,
                &at.child("resources").child(which),
                warnings,
            );
        }
        warn_env(container, &at, warnings);
    });
    warn_ports(spec, &at, warnings);
    if integer(spec, "terminationGracePeriodSeconds").is_some_and(|seconds| seconds < 0) {
        let at = at.child("terminationGracePeriodSeconds");
        warnings.push(format!(
            "{at}: must be >= 0; negative values are invalid and will be treated as 1"
        ));
    }
    warn_affinity(spec, &at, warnings);
}

fn deprecated_label(key: &str) -> Option<&'static str> {
    DEPRECATED_LABELS
        .iter()
        .find(|(label, _)| *label == key)
        .map(|(_, text)| *text)
}

fn warn_scheduling(spec: &JsonMap, at: &FieldPath, warnings: &mut Vec<String>) {
    for key in object_or_empty(spec, "nodeSelector").keys() {
        if let Some(text) = deprecated_label(key) {
            warnings.push(format!("{}: {text}", at.child("nodeSelector").key(key)));
        }
    }
    for (index, constraint) in items(spec, "topologySpreadConstraints") {
        let at = at.child("topologySpreadConstraints").index(index);
        let key = text(constraint, "topologyKey");
        if let Some(text) = deprecated_label(key) {
            warnings.push(format!("{}: {key} is {text}", at.child("topologyKey")));
        }
        if !is_set(constraint, "labelSelector") {
            warnings.push(null_selector(&at));
        }
    }
}

fn null_selector(at: &FieldPath) -> String {
    format!(
        "{}: a null labelSelector results in matching no pod",
        at.child("labelSelector")
    )
}

fn warn_affinity(spec: &JsonMap, at: &FieldPath, warnings: &mut Vec<String>) {
    let Some(affinity) = object(spec, "affinity") else {
        return;
    };
    for kind in ["podAffinity", "podAntiAffinity"] {
        let (pods, at) = (object_or_empty(affinity, kind), at.child("affinity").child(kind));
        let required = "requiredDuringSchedulingIgnoredDuringExecution";
        for (index, term) in items(pods, required) {
            if !is_set(term, "labelSelector") {
                warnings.push(null_selector(&at.child(required).index(index)));
            }
        }
        let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
        for (index, weighted) in items(pods, preferred) {
            if !is_set(object_or_empty(weighted, "podAffinityTerm"), "labelSelector") {
                warnings.push(null_selector(
                    &at.child(preferred).index(index).child("podAffinityTerm"),
                ));
            }
        }
    }
}

fn warn_repeated(spec: &JsonMap, list: &str, field: &str, at: &FieldPath, warnings: &mut Vec<String>) {
    let mut seen: Vec<&str> = Vec::new();
    for (index, item) in items(spec, list) {
        let value = text(item, field);
        if seen.contains(&value) {
            let at = at.child(list).index(index).child(field);
            warnings.push(format!("{at}: duplicate {field} {}", quote(value)));
        }
        seen.push(value);
    }
}

/// Resources of containers that are counted in bytes.
const BYTES: [&str; 2] = ["memory", "ephemeral-storage"];

fn warn_fractions(resources: &JsonMap, names: &[&str], at: &FieldPath, warnings: &mut Vec<String>) {
    for resource in names {
        let written = text(resources, resource);
        if read(written).is_some_and(|amount| !is_whole(&amount)) {
            let at = at.key(resource);
            warnings.push(format!(
                "{at}: fractional byte value \"{written}\" is invalid, must be an integer"
            ));
        }
    }
}

fn warn_env(container: &JsonMap, at: &FieldPath, warnings: &mut Vec<String>) {
    let mut seen: Vec<&str> = Vec::new();
    for (index, variable) in items(container, "env") {
        let (name, value) = (text(variable, "name"), text(variable, "value"));
        let reference = format!("$({name})");
        let extends = !is_set(variable, "valueFrom") && value != reference && value.contains(&reference);
        if seen.contains(&name) && !extends {
            let at = at.child("env").index(index);
            let name = quote(name);
            warnings.push(format!(
                "{at}: hides previous definition of {name}, which may be dropped when using apply"
            ));
        }
        seen.push(name);
    }
}

fn warn_ports(spec: &JsonMap, at: &FieldPath, warnings: &mut Vec<String>) {
    struct Port {
        host: i64,
        address: String,
        at: FieldPath,
    }
    let mut ports: BTreeMap<String, Vec<Port>> = BTreeMap::new();
    let mut named: BTreeMap<String, FieldPath> = BTreeMap::new();
    let mut of_names = Vec::new();
    visit_containers(spec, at, |container, at| {
        for (index, port) in items(container, "ports") {
            let own = Port {
                host: integer(port, "hostPort").unwrap_or(0),
                address: text(port, "hostIP").to_owned(),
                at: at.child("ports").index(index),
            };
            let number = integer(port, "containerPort").unwrap_or(0);
            if !own.address.is_empty() && own.host == 0 {
                warnings.push(format!(
                    "{}: hostIP set without hostPort: {{Name:{} HostPort:0 ContainerPort:{number} Protocol:{} \
                     HostIP:{}}}",
                    own.at,
                    text(port, "name"),
                    text(port, "protocol"),
                    own.address
                ));
            }
            let others = ports.entry(format!("{number}/{}", text(port, "protocol"))).or_default();
            for other in others.iter() {
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
                warnings.push(format!("{}: {what} with {}", own.at, other.at));
            }
            let name = text(port, "name");
            match named.get(name) {
                _ if name.is_empty() => {}
                Some(other) => of_names.push(format!(
                    "{}: duplicate port name {} with {other}, services and probes that select ports by name will use \
                     {other}",
                    own.at,
                    quote(name)
                )),
                None => {
                    named.insert(name.to_owned(), own.at.clone());
                }
            }
            others.push(own);
        }
    });
    warnings.append(&mut of_names);
}
