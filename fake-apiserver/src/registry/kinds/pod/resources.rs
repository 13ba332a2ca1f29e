//! Requests and limits: known names, whole numbers where needed, requests within limits.

use super::amount::{is_multiple, is_whole, read};
use crate::api::field::{FieldError, FieldErrorKind, FieldErrors, FieldPath};
use crate::registry::types::check::{NEGATIVE, optional_label, wrong};
use crate::registry::types::names;
use crate::registry::types::view::{JsonMap, is_set, items, object_or_empty, text};

/// Owner of the resources: names are restricted further for the whole pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// Of one container, or the overhead.
    Container,
    /// Of the pod.
    Pod,
}

const STANDARD: [&str; 20] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "storage",
    "requests.storage",
    "services.nodeports",
    "services.loadbalancers",
];

const WHOLE: [&str; 9] = [
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];

/// Checks `requests`, `limits` and `claims`; `claims` of the pod are the names of its resource claims.
pub(super) fn validate_resources(
    resources: &JsonMap,
    owner: Owner,
    claims: &[&str],
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    let (limits, requests) = (
        object_or_empty(resources, "limits"),
        object_or_empty(resources, "requests"),
    );
    for (name, value) in limits {
        let written = value.as_str().unwrap_or_default();
        validate_entry(name, written, owner, || path.child("limits").key(name), errors);
        validate_huge_pages(name, written, || path.child("limits").key(name), errors);
    }
    for (name, value) in requests {
        let written = value.as_str().unwrap_or_default();
        validate_entry(name, written, owner, || path.child("requests").key(name), errors);
        let overcommits = is_overcommit_allowed(name);
        if is_set(limits, name) {
            let limit = text(limits, name);
            let (asked, most) = (read(written), read(limit));
            if asked != most && !overcommits {
                let detail = format!("must be equal to {name} limit of {limit}");
                errors.invalid(path.child("requests"), written, detail);
            } else if asked > most {
                let detail = format!("must be less than or equal to {name} limit of {limit}");
                errors.invalid(path.child("requests"), written, detail);
            }
        } else if !overcommits {
            errors.required(
                path.child("limits"),
                "Limit must be set for non overcommitable resources",
            );
        }
        validate_huge_pages(name, written, || path.child("requests").key(name), errors);
    }
    let names = || limits.keys().chain(requests.keys());
    if names().any(|name| is_huge_pages(name)) && !names().any(|name| name == "cpu" || name == "memory") {
        errors.forbidden(path.clone(), "HugePages require cpu or memory");
    }
    validate_claims(resources, claims, path, errors);
}

fn validate_entry(name: &str, written: &str, owner: Owner, path: impl Fn() -> FieldPath, errors: &mut FieldErrors) {
    // these two are all that most pods name
    if name != "cpu" && name != "memory" {
        validate_name(name, owner, &path, errors);
    }
    validate_quantity_value(name, written, path, errors);
}

/// `ValidateResourceQuantityValue`: not negative, and whole where the resource is counted.
pub(crate) fn validate_quantity_value(
    name: &str,
    written: &str,
    path: impl Fn() -> FieldPath,
    errors: &mut FieldErrors,
) {
    let Some(amount) = read(written) else {
        return;
    };
    if amount.signum() < 0 {
        errors.invalid(path(), written, NEGATIVE);
    }
    if (WHOLE.contains(&name) || is_extended(name)) && !is_whole(&amount) {
        errors.invalid(path(), written, "must be an integer");
    }
}

/// `ValidateContainerResourceName`.
pub(crate) fn validate_container_resource_name(name: &str, path: &FieldPath, errors: &mut FieldErrors) {
    // `cpu` and `memory` are standard, as they are for the limits of a container.
    if name != "cpu" && name != "memory" {
        validate_name(name, Owner::Container, &|| path.clone(), errors);
    }
}

/// `validateResourceName`.
pub(crate) fn validate_resource_name(name: &str, path: &FieldPath, errors: &mut FieldErrors) {
    let texts = names::qualified_name(name);
    if texts.is_empty() && !name.contains('/') && !is_standard(name) {
        errors.invalid(
            path.clone(),
            name,
            "must be a standard resource type or fully qualified",
        );
    }
    wrong(texts, name, || path.clone(), errors);
}

/// `ValidateContainerResourceRequirements` of limits alone, such as the overhead of a RuntimeClass.
pub(crate) fn validate_limits(resources: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    validate_resources(resources, Owner::Container, &[], path, errors);
}

/// Returns `true` if the resource may be asked for beyond what there is (`IsOvercommitAllowed`).
pub(crate) fn is_overcommit_allowed(name: &str) -> bool {
    is_native(name) && !is_huge_pages(name)
}

/// `IsStandardResourceName`
fn is_standard(name: &str) -> bool {
    STANDARD.contains(&name) || is_huge_pages(name) || name.starts_with("requests.hugepages-")
}

fn validate_name(name: &str, owner: Owner, path: &impl Fn() -> FieldPath, errors: &mut FieldErrors) {
    let texts = names::qualified_name(name);
    let qualified = texts.is_empty();
    wrong(texts, name, path, errors);
    let bare = !name.contains('/');
    let standard = is_standard(name);
    if qualified && bare && !standard {
        errors.invalid(path(), name, "must be a standard resource type or fully qualified");
    }
    match owner {
        Owner::Container if bare => {
            if name != "ephemeral-storage" && !is_huge_pages(name) {
                errors.invalid(path(), name, "must be a standard resource for containers");
            }
        }
        Owner::Container => {
            if !is_native(name) && !is_extended(name) {
                errors.invalid(path(), name, "doesn't follow extended resource name standard");
            }
        }
        Owner::Pod => {
            if qualified && (!bare || standard) && !is_huge_pages(name) {
                errors.not_supported(path(), name, &["cpu", "hugepages-", "memory"]);
            }
        }
    }
}

fn validate_huge_pages(name: &str, written: &str, path: impl Fn() -> FieldPath, errors: &mut FieldErrors) {
    let Some(size) = name.strip_prefix("hugepages-") else {
        return;
    };
    let divisible = match (read(size), read(written)) {
        (Some(size), Some(amount)) => is_multiple(&amount, &size),
        _ => false,
    };
    if !divisible {
        let detail = format!("{written} is not positive integer multiple of {name}");
        errors.invalid(path(), written, detail);
    }
}

fn is_huge_pages(name: &str) -> bool {
    name.starts_with("hugepages-")
}

/// Returns `true` if the name is one of Kubernetes' own.
fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Returns `true` if the name is that of a device or the like, which is counted in whole numbers.
fn is_extended(name: &str) -> bool {
    !is_native(name) && !name.starts_with("requests.") && names::is_qualified_name(&format!("requests.{name}"))
}

fn validate_claims(resources: &JsonMap, known: &[&str], path: &FieldPath, errors: &mut FieldErrors) {
    let mut seen: Vec<String> = Vec::new();
    for (index, claim) in items(resources, "claims") {
        let path = path.child("claims").index(index);
        let (name, request) = (text(claim, "name"), text(claim, "request"));
        if name.is_empty() {
            errors.required(path, "");
            continue;
        }
        if seen.iter().any(|it| it == name) {
            errors.duplicate(path.clone(), name);
        } else {
            optional_label(claim, "request", &path, errors);
            let key = if request.is_empty() {
                name.to_owned()
            } else {
                format!("{name}/{request}")
            };
            if seen.contains(&key) {
                errors.duplicate(path.clone(), key.as_str());
            } else if request.is_empty() {
                let parts = seen
                    .iter()
                    .filter(|it| it.split_once('/').is_some_and(|(first, _)| first == name));
                parts.for_each(|_| errors.duplicate(path.clone(), name));
            }
            seen.push(key);
        }
        if !known.contains(&name) {
            let mut sorted = known.to_vec();
            sorted.sort_unstable();
            let which = match sorted.is_empty() {
                true => " which is empty".to_owned(),
                false => format!(": {}", sorted.join(", ")),
            };
            errors.push(FieldError {
                path,
                kind: FieldErrorKind::NotFound,
                value: Some(name.into()),
                detail: format!("must be one of the names in pod.spec.resourceClaims{which}"),
            });
        }
    }
}
