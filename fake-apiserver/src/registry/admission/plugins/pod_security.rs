//! `PodSecurity`: enforces the levels in a namespace's labels for its Pods. The version in the labels determines the
//! checks.

use std::fmt;

use super::pod_security_checks::{Level, Policy, violations};
use crate::api::admission::Operation;
use crate::api::field::{FieldErrors, FieldPath};
use crate::api::kubernetes_version::KubernetesVersion;
use crate::api::object::Object;
use crate::api::status::Status;
use crate::registry::admission::attributes::Attributes;
use crate::registry::reader::Reader;
use crate::registry::types::cursor::Cursor;
use crate::storage::Key;

/// Audit annotation with the enforced level and version.
const ENFORCED: &str = "pod-security.kubernetes.io/enforce-policy";
/// Audit annotation with the errors of the labels of the namespace.
const ERROR: &str = "pod-security.kubernetes.io/error";
/// Audit annotation with the violations in mode `audit`.
const VIOLATIONS: &str = "pod-security.kubernetes.io/audit-violations";

/// Returns the path of the pod spec in a kind's objects. All kinds except Pod have it in a template.
fn spec_path(group: &str, resource: &str) -> Option<&'static str> {
    match (group, resource) {
        ("", "pods") => Some("spec"),
        ("", "podtemplates") => Some("template.spec"),
        ("", "replicationcontrollers")
        | ("apps", "deployments" | "replicasets" | "statefulsets" | "daemonsets")
        | ("batch", "jobs") => Some("spec.template.spec"),
        ("batch", "cronjobs") => Some("spec.jobTemplate.spec.template.spec"),
        _ => None,
    }
}

/// Returns `true` if writes of this resource are checked.
pub(super) fn concerns(group: &str, resource: &str) -> bool {
    spec_path(group, resource).is_some() || (group.is_empty() && resource == "namespaces")
}

/// A required level of the Pod Security Standards, with its version.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Demand {
    level: Level,
    version: String,
}

impl Demand {
    /// Returns the policy on a server of this version. A later version is treated like the version of the server.
    fn policy(&self, server: KubernetesVersion) -> Policy {
        let minor = self.version.strip_prefix("v1.").and_then(|it| it.parse().ok());
        Policy {
            level: self.level,
            minor: minor.unwrap_or(u8::MAX).min(server.minor()),
        }
    }
}

impl fmt::Display for Demand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.level.as_str(), self.version)
    }
}

/// Levels in the labels of a namespace, modelled on `PolicyToEvaluate` of k8s.io/pod-security-admission.
#[derive(Debug)]
struct Demands {
    enforce: Demand,
    audit: Demand,
    warn: Demand,
}

/// Labels for the level and the version of one mode.
struct Mode {
    level: &'static str,
    version: &'static str,
}

const ENFORCE: Mode = Mode {
    level: "pod-security.kubernetes.io/enforce",
    version: "pod-security.kubernetes.io/enforce-version",
};
const AUDIT: Mode = Mode {
    level: "pod-security.kubernetes.io/audit",
    version: "pod-security.kubernetes.io/audit-version",
};
const WARN: Mode = Mode {
    level: "pod-security.kubernetes.io/warn",
    version: "pod-security.kubernetes.io/warn-version",
};

impl Demands {
    fn of<'a>(label: impl Fn(&str) -> Option<&'a str>) -> Self {
        // A malformed level is treated as the strictest in mode `enforce`, and as the weakest in the other modes.
        let demand = |mode: &Mode, wrong: Level| {
            let (level, version) = (label(mode.level), label(mode.version));
            Demand {
                level: level.map_or(Level::Privileged, |it| Level::parse(it).unwrap_or(wrong)),
                version: version.filter(|it| is_version(it)).unwrap_or("latest").to_owned(),
            }
        };
        let enforce = demand(&ENFORCE, Level::Restricted);
        let mut warn = demand(&WARN, Level::Privileged);
        let is_enforced = label(ENFORCE.level).is_some_and(|it| Level::parse(it).is_some());
        if is_enforced && label(WARN.level).is_none() && enforce.level > warn.level {
            warn.level = enforce.level;
            if label(WARN.version).is_none() {
                warn.version.clone_from(&enforce.version);
            }
        }
        Self {
            enforce,
            audit: demand(&AUDIT, Level::Privileged),
            warn,
        }
    }
}

/// Checks an object against the levels in the namespace's labels. Depending on the mode, a violation is refused,
/// returned as a warning or recorded in an audit annotation.
pub(super) fn check(reader: &Reader, attributes: &Attributes<'_>, object: &Object) -> Result<(), Status> {
    let info = &attributes.row.info;
    if info.group.is_empty() && info.resource == "namespaces" {
        return match attributes.subresource {
            "" => check_namespace(reader, attributes, object),
            _ => Ok(()),
        };
    }
    let Some(path) = spec_path(&info.group, &info.resource) else {
        return Ok(());
    };
    let is_pod = path == "spec";
    let is_checked = match (attributes.operation, attributes.subresource) {
        (Operation::Create, "") => true,
        (Operation::Update, "" | "ephemeralcontainers") if is_pod => {
            let old = attributes.old.as_ref();
            old.is_none_or(|old| is_significant(&Cursor::root(object), &Cursor::root(old)))
        }
        (Operation::Update, "") => true,
        _ => false,
    };
    let namespace = reader.store.get("namespaces", &Key::new("", &attributes.namespace));
    let object = Cursor::root(object);
    let (true, Some(namespace), Some(spec)) = (is_checked, namespace, object.present(path)) else {
        return Ok(());
    };
    let demands = Demands::of(|key| namespace.label(key));
    let version = reader.scheme().version;
    let annotations_path = format!("{}metadata.annotations", path.strip_suffix("spec").unwrap_or_default());
    let of_pod = object.map_or_empty(&annotations_path);
    let said = |demand: &Demand| -> Option<String> {
        let found = violations(of_pod, &spec, demand.policy(version));
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        (!found.is_empty()).then(|| format!("violate PodSecurity \"{demand}\": {}", found.join(", ")))
    };
    let annotations = &attributes.remarks.annotations;
    let errors = label_errors(|key| namespace.label(key));
    if !errors.is_empty() {
        annotations.add(ERROR, || format!("Failed to parse policy: {}", errors.aggregate()));
    }
    let refused = said(&demands.enforce).filter(|_| is_pod);
    if is_pod {
        annotations.add(ENFORCED, || demands.enforce.to_string());
    }
    if let Some(found) = said(&demands.audit) {
        annotations.add(VIOLATIONS, || format!("would {found}"));
    }
    if let Some(found) = refused {
        let why = found.replacen("violate", "violates", 1);
        return Err(Status::forbidden(&info.group_resource(), attributes.shown_name(), why));
    }
    if let Some(found) = said(&demands.warn) {
        attributes.remarks.warnings.add(format!("would {found}"));
    }
    Ok(())
}

/// Returns `true` if an update of a Pod must be checked again, because it changes images or adds containers
/// (`isSignificantPodUpdate`).
fn is_significant(pod: &Cursor<'_>, old: &Cursor<'_>) -> bool {
    let images = |pod: &Cursor<'_>, list: &str| -> Vec<String> {
        let spec = pod.at("spec");
        spec.items(list).map(|it| it.text("image").to_owned()).collect()
    };
    let ephemeral = |pod: &Cursor<'_>| -> Vec<(String, String)> {
        let spec = pod.at("spec");
        let named = |it: Cursor<'_>| (it.text("name").to_owned(), it.text("image").to_owned());
        spec.items("ephemeralContainers").map(named).collect()
    };
    let before = ephemeral(old);
    ["containers", "initContainers"]
        .into_iter()
        .any(|list| images(pod, list) != images(old, list))
        || ephemeral(pod).iter().any(|it| !before.contains(it))
}

/// Returns `true` if a string is a version of the policies (`ParseVersion`): `latest`, or `v1.` and a minor version
/// without leading zeros.
fn is_version(text: &str) -> bool {
    let minor = text.strip_prefix("v1.").unwrap_or_default();
    let is_number = minor.parse::<i64>().is_ok() && minor.bytes().all(|it| it.is_ascii_digit());
    text == "latest" || (is_number && (minor == "0" || !minor.starts_with('0')))
}

fn label_of<'a>(namespace: &'a Object, key: &str) -> Option<&'a str> {
    let mut labels = namespace.labels();
    labels.find(|(it, _)| *it == key).map(|(_, value)| value)
}

/// Returns the errors of the labels of a namespace, each with its path.
fn label_errors<'a>(label: impl Fn(&str) -> Option<&'a str>) -> FieldErrors {
    let mut errors = FieldErrors::new();
    for mode in [&ENFORCE, &AUDIT, &WARN] {
        if let Some(value) = label(mode.level)
            && Level::parse(value).is_none()
        {
            let path = FieldPath::new("metadata.labels").key(mode.level);
            errors.invalid(path, value, "must be one of privileged, baseline, restricted");
        }
        if let Some(value) = label(mode.version)
            && !is_version(value)
        {
            let path = FieldPath::new("metadata.labels").key(mode.version);
            errors.invalid(path, value, "must be \"latest\" or \"v1.x\"");
        }
    }
    errors
}

/// Checks the labels of a namespace. If the enforced policy changes and is not only relaxed, adds warnings about
/// existing Pods that violate it.
fn check_namespace(reader: &Reader, attributes: &Attributes<'_>, object: &Object) -> Result<(), Status> {
    let errors = label_errors(|key| label_of(object, key));
    let is_known = |old: &Object| label_errors(|key| label_of(old, key)).aggregate() == errors.aggregate();
    if !errors.is_empty() && !attributes.old.as_ref().is_some_and(is_known) {
        return Err(Status::invalid(&attributes.group_kind(), object.name(), &errors));
    }
    let Some(old) = &attributes.old else { return Ok(()) };
    let demanded = |object: &Object| Demands::of(|key| label_of(object, key)).enforce;
    let (before, demand) = (demanded(old), demanded(object));
    let is_relaxed = demand.level <= before.level && demand.version == before.version;
    if is_relaxed || demand.level == Level::Privileged {
        return Ok(());
    }
    let policy = demand.policy(reader.scheme().version);
    let mut found = Vec::new();
    for pod in reader.objects_in("", "pods", object.name()) {
        let root = Cursor::root(&pod);
        let violations = violations(root.map_or_empty("metadata.annotations"), &root.at("spec"), policy);
        let reasons: Vec<&str> = violations.iter().map(|it| it.reason).collect();
        if !reasons.is_empty() {
            found.push((reasons.join(", "), pod.name().to_owned()));
        }
    }
    if found.is_empty() {
        return Ok(());
    }
    attributes.remarks.warnings.add(format!(
        "existing pods in namespace \"{}\" violate the new PodSecurity enforce level \"{demand}\"",
        object.name()
    ));
    while let Some((reasons, first)) = found.first().cloned() {
        let alike = found.iter().filter(|(it, _)| *it == reasons).count();
        let others = match alike - 1 {
            0 => String::new(),
            1 => " (and 1 other pod)".to_owned(),
            more => format!(" (and {more} other pods)"),
        };
        attributes.remarks.warnings.add(format!("{first}{others}: {reasons}"));
        found.retain(|(it, _)| *it != reasons);
    }
    Ok(())
}
