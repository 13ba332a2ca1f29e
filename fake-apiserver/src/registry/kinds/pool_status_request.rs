//! The strategy of ResourcePoolStatusRequests. Follows `Validate_ResourcePoolStatusRequest` of
//! `pkg/apis/resource/v1alpha3` and `ValidateResourcePoolStatusRequestStatusUpdate` of `pkg/apis/resource/validation`.

use std::collections::BTreeSet;

use super::facts::Facts;
use super::plain::restore_metadata;
use super::strategy::{Context, Strategy};
use crate::api::field::FieldErrors;
use crate::api::object::Object;
use crate::registry::types::conditions::validate_conditions;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::declarative::in_bytes;
use crate::registry::types::edit::{default_value, ensure_object};
use crate::registry::types::names;

/// Default of `spec.limit`, the number of pools to report.
const LIMIT: i64 = 100;
/// Maximum of `spec.limit`.
const LIMIT_MAX: i64 = 1_000;
/// Maximum number of pools in a status.
const POOLS_MAX: usize = 1_000;
/// Maximum number of conditions.
const CONDITIONS_MAX: usize = 10;
/// Maximum length of the name of a pool, in bytes.
const POOL_NAME_MAX: usize = 253;
/// Maximum length of an error about a pool, in bytes.
const ERROR_MAX: usize = 256;

/// The strategy of ResourcePoolStatusRequests.
#[derive(Debug)]
pub(crate) struct ResourcePoolStatusRequest;

impl Strategy for ResourcePoolStatusRequest {
    fn facts(&self) -> &Facts {
        &Facts {
            allows_unconditional_update: false,
            returns_deleted_object: true,
            ..Facts::DEFAULT
        }
    }

    fn default(&self, object: &mut Object) {
        default_value(ensure_object(object, "spec"), "limit", LIMIT);
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        let object = Cursor::root(object);
        check_driver(&object.at("spec.driver"), errors);
        if let Some(pool) = object.present("spec.poolName") {
            check_pool_name(&pool, errors);
        }
        let limit = object.at("spec.limit");
        if let Some(value) = limit.integer("").filter(|it| *it > LIMIT_MAX) {
            errors.invalid(limit, value, format!("must be less than or equal to {LIMIT_MAX}"));
        }
        limit.check_minimum(1, false, errors);
    }

    fn prepare_for_update(&self, object: &mut Object, old: &Object, context: &Context<'_>) {
        if context.subresource == "status" {
            restore_metadata(object, old);
        }
    }

    fn validate_update(&self, object: &Object, old: &Object, errors: &mut FieldErrors, context: &Context<'_>) {
        let (new, old) = (Cursor::root(object), Cursor::root(old));
        if context.subresource != "status" {
            new.at("spec").check_immutable(&old, errors);
            return;
        }
        let (status, before) = (new.at("status"), old.at("status"));
        let is_kept = status.same(&before, "");
        if before.is_set("") {
            status.check_unchanged(&before, errors);
        } else {
            validate_conditions(&status.at("conditions"), errors);
        }
        if status.is_set("") && !is_kept {
            validate_status(&status, &before, errors);
        }
    }
}

/// Checks an updated status (`Validate_ResourcePoolStatusRequestStatus`). Unchanged lists are not checked again.
fn validate_status(status: &Cursor<'_>, before: &Cursor<'_>, errors: &mut FieldErrors) {
    let count = status.at("poolCount");
    match count.is_set("") {
        true => count.check_minimum(0, false, errors),
        false => errors.required(count, ""),
    }
    let pools = status.at("pools");
    if !status.same(before, "pools") {
        match pools.list("").len() {
            n if n > POOLS_MAX => errors.too_many(pools, n, POOLS_MAX),
            _ => pools.items("").for_each(|it| validate_pool(&it, errors)),
        }
    }
    let conditions = status.at("conditions");
    if status.same(before, "conditions") {
        return;
    }
    let n = conditions.list("").len();
    if n > CONDITIONS_MAX {
        return errors.too_many(conditions, n, CONDITIONS_MAX);
    }
    let mut seen = BTreeSet::new();
    for condition in conditions.items("") {
        if !seen.insert(condition.text("type")) {
            errors.duplicate(condition, condition.to_value());
        }
    }
}

/// Checks the status of a pool (`Validate_PoolStatus`).
fn validate_pool(pool: &Cursor<'_>, errors: &mut FieldErrors) {
    check_driver(&pool.at("driver"), errors);
    let name = pool.at("poolName");
    if name.check_required(errors) {
        check_pool_name(&name, errors);
    }
    pool.at("generation").check_minimum(0, true, errors);
    pool.at("resourceSliceCount").check_minimum(1, false, errors);
    for field in [
        "totalDevices",
        "allocatedDevices",
        "availableDevices",
        "unavailableDevices",
    ] {
        pool.at(field).check_minimum(0, false, errors);
    }
    if let Some(node) = pool.present("nodeName") {
        node.check_declared_name(names::dns1123_subdomain, errors);
    }
    if pool.text("validationError").len() > ERROR_MAX {
        errors.too_long(pool.at("validationError"), ERROR_MAX);
    }
}

/// Checks a required driver name, which may contain capital letters.
fn check_driver(driver: &Cursor<'_>, errors: &mut FieldErrors) {
    if driver.check_required(errors) {
        driver.check_declared_name(subdomain_in_any_case, errors);
    }
}

/// Returns the errors for an invalid DNS-1123 subdomain, which may contain capital letters
/// (`IsDNS1123SubdomainCaseless`).
fn subdomain_in_any_case(name: &str, is_prefix: bool) -> Vec<String> {
    let problems = names::dns1123_subdomain(&name.to_lowercase(), is_prefix).into_iter();
    let in_any_case = |text: String| match text.starts_with("a lowercase RFC 1123 subdomain") {
        true => {
            let rule = "an RFC 1123 subdomain must consist of alphanumeric characters, '-' or '.', and must start and \
                        end with an alphanumeric character";
            let format = "[a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?(\\.[a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?)*";
            names::mismatch(rule, format, &["Example.com"])
        }
        false => text,
    };
    problems.map(in_any_case).collect()
}

/// Checks the name of a pool: DNS-1123 subdomains separated by slashes (`validate.ResourcePoolName`).
fn check_pool_name(pool: &Cursor<'_>, errors: &mut FieldErrors) {
    let name = pool.as_text();
    if name.len() > POOL_NAME_MAX {
        errors.too_long(pool, POOL_NAME_MAX);
    }
    for (at, segment) in name.split('/').enumerate() {
        if segment.is_empty() {
            errors.invalid(pool, name, format!("segment {at}: must not be empty"));
            continue;
        }
        for text in in_bytes(names::dns1123_subdomain(segment, false)) {
            errors.invalid(pool, segment, format!("segment {at}: {text}"));
        }
    }
}
