//! `PodSecurity`: the levels that the labels of a namespace demand of its Pods. Versions of a level are not
//! distinguished: every version is judged as the latest.

use super::pod_security_checks::{Level, violations};
use crate::api::admission::Operation;
use crate::api::field::{FieldErrors, FieldPath};
use crate::api::object::Object;
use crate::api::status::Status;
use crate::registry::admission::attributes::Attributes;
use crate::registry::reader::Reader;
use crate::registry::types::cursor::Cursor;
use crate::storage::Key;

const LABEL: &str = "pod-security.kubernetes.io/";

/// Returns the path of a kind's pod spec; that of everything but Pods is of a template.
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

/// A level and its version, as messages name it.
fn level(label: impl Fn(&str) -> String, mode: &str) -> (Level, String) {
    let level = Level::parse(&label(&format!("{LABEL}{mode}"))).unwrap_or(Level::Privileged);
    let version = match label(&format!("{LABEL}{mode}-version")) {
        version if version.is_empty() => "latest".to_owned(),
        version => version,
    };
    (level, format!("{}:{version}", level.as_str()))
}

/// Refuses or warns of what the namespace's labels do not allow.
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
    let is_checked = match (attributes.operation, attributes.subresource) {
        (Operation::Create, "") | (Operation::Update, "ephemeralcontainers") => true,
        (Operation::Update, "") => {
            path != "spec"
                && attributes
                    .old
                    .as_ref()
                    .is_none_or(|old| !Cursor::root(old).same(&Cursor::root(object), path))
        }
        _ => false,
    };
    let namespace = reader.store.get("namespaces", &Key::new("", &attributes.namespace));
    let object = Cursor::root(object);
    let (true, Some(namespace), Some(spec)) = (is_checked, namespace, object.present(path)) else {
        return Ok(());
    };
    let label = |key: &str| namespace.label(key).unwrap_or_default().to_owned();
    let said = |level: Level| -> Option<String> {
        let found: Vec<String> = violations(&spec, level).iter().map(ToString::to_string).collect();
        (!found.is_empty()).then(|| found.join(", "))
    };
    let (enforced, shown) = level(label, "enforce");
    if path == "spec"
        && let Some(found) = said(enforced)
    {
        let why = format!("violates PodSecurity \"{shown}\": {found}");
        return Err(Status::forbidden(&info.group_resource(), attributes.shown_name(), why));
    }
    let (warned, shown) = level(label, "warn");
    if let Some(found) = said(warned) {
        attributes
            .warnings
            .add(format!("would violate PodSecurity \"{shown}\": {found}"));
    }
    Ok(())
}

/// Checks the labels of a namespace, and warns of Pods that a stricter level would not let in.
fn check_namespace(reader: &Reader, attributes: &Attributes<'_>, object: &Object) -> Result<(), Status> {
    let label_of = |object: &Object, key: &str| {
        let found = object
            .labels()
            .find(|(it, _)| *it == key)
            .map(|(_, value)| value.to_owned());
        found.unwrap_or_default()
    };
    let mut errors = FieldErrors::new();
    for mode in ["enforce", "audit", "warn"] {
        let key = format!("{LABEL}{mode}");
        let value = label_of(object, &key);
        if object.labels().any(|(it, _)| it == key) && Level::parse(&value).is_none() {
            let path = FieldPath::new("metadata.labels").key(&key);
            errors.invalid(path, value, "must be one of privileged, baseline, restricted");
        }
    }
    if !errors.is_empty() {
        return Err(Status::invalid(&attributes.group_kind(), object.name(), &errors));
    }
    let Some(old) = &attributes.old else { return Ok(()) };
    let (before, _) = level(|key| label_of(old, key), "enforce");
    let (now, shown) = level(|key| label_of(object, key), "enforce");
    if now <= before {
        return Ok(());
    }
    let mut found = Vec::new();
    for pod in reader.objects_in("", "pods", object.name()) {
        let reasons: Vec<&str> = violations(&Cursor::root(&pod).at("spec"), now)
            .iter()
            .map(|it| it.reason)
            .collect();
        if !reasons.is_empty() {
            found.push((reasons.join(", "), pod.name().to_owned()));
        }
    }
    if found.is_empty() {
        return Ok(());
    }
    attributes.warnings.add(format!(
        "existing pods in namespace \"{}\" violate the new PodSecurity enforce level \"{shown}\"",
        object.name()
    ));
    while let Some((reasons, first)) = found.first().cloned() {
        let alike = found.iter().filter(|(it, _)| *it == reasons).count();
        let others = match alike - 1 {
            0 => String::new(),
            1 => " (and 1 other pod)".to_owned(),
            more => format!(" (and {more} other pods)"),
        };
        attributes.warnings.add(format!("{first}{others}: {reasons}"));
        found.retain(|(it, _)| *it != reasons);
    }
    Ok(())
}
