//! Validation of requests and limits: resource names, quantities, and requests that exceed limits.

use std::collections::BTreeSet;

use super::amount::{is_multiple, is_whole, read};
use crate::api::field::{FieldError, FieldErrorKind, FieldErrors};
use crate::registry::types::check::NEGATIVE;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::names;

/// The level at which resources are set. The pod level supports fewer resources than containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// Resources of one container, or the overhead.
    Container,
    /// Pod-level resources.
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

/// Checks `requests`, `limits` and `claims`. The parameter `claims` contains the names of the pod's resource claims.
pub(super) fn validate_resources(resources: &Cursor<'_>, owner: Owner, claims: &[&str], errors: &mut FieldErrors) {
    let (limits, requests) = (resources.at("limits"), resources.at("requests"));
    for (name, amount) in limits.entries("") {
        validate_entry(name, &amount, owner, errors);
        validate_huge_pages(name, &amount, errors);
    }
    for (name, amount) in requests.entries("") {
        validate_entry(name, &amount, owner, errors);
        let overcommits = is_overcommit_allowed(name);
        let limit = limits.entry(name);
        if limit.is_set("") {
            let (written, limit) = (amount.as_text(), limit.as_text());
            let (asked, most) = (read(written), read(limit));
            if asked != most && !overcommits {
                let detail = format!("must be equal to {name} limit of {limit}");
                errors.invalid(requests, written, detail);
            } else if asked > most {
                let detail = format!("must be less than or equal to {name} limit of {limit}");
                errors.invalid(requests, written, detail);
            }
        } else if !overcommits {
            errors.required(limits, "Limit must be set for non overcommitable resources");
        }
        validate_huge_pages(name, &amount, errors);
    }
    let names = || limits.entries("").chain(requests.entries("")).map(|(name, _)| name);
    if names().any(is_huge_pages) && !names().any(|name| name == "cpu" || name == "memory") {
        errors.forbidden(resources, "HugePages require cpu or memory");
    }
    validate_claims(resources, claims, errors);
}

fn validate_entry(name: &str, amount: &Cursor<'_>, owner: Owner, errors: &mut FieldErrors) {
    // Most pods only use these two resources.
    if name != "cpu" && name != "memory" {
        validate_name(name, owner, amount, errors);
    }
    validate_quantity_value(name, amount, errors);
}

/// Checks that an amount is not negative, and that it is an integer if the resource is counted
/// (`ValidateResourceQuantityValue`).
pub(crate) fn validate_quantity_value(name: &str, amount: &Cursor<'_>, errors: &mut FieldErrors) {
    let written = amount.as_text();
    let Some(parsed) = read(written) else {
        return;
    };
    if parsed.signum() < 0 {
        errors.invalid(amount, written, NEGATIVE);
    }
    if (WHOLE.contains(&name) || is_extended(name)) && !is_whole(&parsed) {
        errors.invalid(amount, written, "must be an integer");
    }
}

/// Checks the name of a container resource (`ValidateContainerResourceName`). Errors have the path of `place`.
pub(crate) fn validate_container_resource_name(name: &str, place: &Cursor<'_>, errors: &mut FieldErrors) {
    // `cpu` and `memory` are standard names, as in the limits of a container.
    if name != "cpu" && name != "memory" {
        validate_name(name, Owner::Container, place, errors);
    }
}

/// Checks the name of a resource (`validateResourceName`). Errors have the path of `place`.
pub(crate) fn validate_resource_name(name: &str, place: &Cursor<'_>, errors: &mut FieldErrors) {
    let texts = names::qualified_name(name);
    if texts.is_empty() && !name.contains('/') && !is_standard(name) {
        errors.invalid(place, name, "must be a standard resource type or fully qualified");
    }
    place.refuse(name, texts, errors);
}

/// Checks the limits in `resources`, such as the overhead of a RuntimeClass (`ValidateContainerResourceRequirements`).
pub(crate) fn validate_limits(resources: &Cursor<'_>, errors: &mut FieldErrors) {
    validate_resources(resources, Owner::Container, &[], errors);
}

/// Returns `true` if requests may be lower than limits (`IsOvercommitAllowed`).
pub(crate) fn is_overcommit_allowed(name: &str) -> bool {
    is_native(name) && !is_huge_pages(name)
}

/// Returns `true` for a standard resource (`IsStandardResourceName`).
fn is_standard(name: &str) -> bool {
    STANDARD.contains(&name) || is_huge_pages(name) || name.starts_with("requests.hugepages-")
}

fn validate_name(name: &str, owner: Owner, place: &Cursor<'_>, errors: &mut FieldErrors) {
    let texts = names::qualified_name(name);
    let qualified = texts.is_empty();
    place.refuse(name, texts, errors);
    let bare = !name.contains('/');
    let standard = is_standard(name);
    if qualified && bare && !standard {
        errors.invalid(place, name, "must be a standard resource type or fully qualified");
    }
    match owner {
        Owner::Container if bare => {
            if name != "ephemeral-storage" && !is_huge_pages(name) {
                errors.invalid(place, name, "must be a standard resource for containers");
            }
        }
        Owner::Container => {
            if !is_native(name) && !is_extended(name) {
                errors.invalid(place, name, "doesn't follow extended resource name standard");
            }
        }
        Owner::Pod => {
            if qualified && (!bare || standard) && !is_huge_pages(name) {
                errors.not_supported(place, name, &["cpu", "hugepages-", "memory"]);
            }
        }
    }
}

fn validate_huge_pages(name: &str, amount: &Cursor<'_>, errors: &mut FieldErrors) {
    let Some(size) = name.strip_prefix("hugepages-") else {
        return;
    };
    let written = amount.as_text();
    let divisible = match (read(size), read(written)) {
        (Some(size), Some(amount)) => is_multiple(&amount, &size),
        _ => false,
    };
    if !divisible {
        let detail = format!("{written} is not positive integer multiple of {name}");
        errors.invalid(amount, written, detail);
    }
}

fn is_huge_pages(name: &str) -> bool {
    name.starts_with("hugepages-")
}

/// Returns `true` if a resource is defined by Kubernetes: its name has no prefix or contains `kubernetes.io/`.
fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Returns `true` for the name of an extended resource, whose amounts must be integers.
fn is_extended(name: &str) -> bool {
    !is_native(name) && !name.starts_with("requests.") && names::is_qualified_name(&format!("requests.{name}"))
}

fn validate_claims(resources: &Cursor<'_>, known: &[&str], errors: &mut FieldErrors) {
    let mut seen: BTreeSet<String> = BTreeSet::new();
    for claim in resources.items("claims") {
        let (name, request) = (claim.text("name"), claim.text("request"));
        if name.is_empty() {
            errors.required(claim, "");
            continue;
        }
        if seen.contains(name) {
            errors.duplicate(claim, name);
        } else {
            claim.at("request").check_label(errors);
            let key = if request.is_empty() {
                name.to_owned()
            } else {
                format!("{name}/{request}")
            };
            if seen.contains(&key) {
                errors.duplicate(claim, key.as_str());
            } else if request.is_empty() && !name.contains('/') {
                let prefix = format!("{name}/");
                let of_name = seen.range(prefix.clone()..).take_while(|it| it.starts_with(&prefix));
                of_name.for_each(|_| errors.duplicate(claim, name));
            }
            seen.insert(key);
        }
        if !known.contains(&name) {
            let mut sorted = known.to_vec();
            sorted.sort_unstable();
            let which = match sorted.is_empty() {
                true => " which is empty".to_owned(),
                false => format!(": {}", sorted.join(", ")),
            };
            errors.push(FieldError {
                path: claim.path(),
                kind: FieldErrorKind::NotFound,
                value: Some(name.into()),
                detail: format!("must be one of the names in pod.spec.resourceClaims{which}"),
            });
        }
    }
}
