//! The strategies of ResourceClaims and ResourceClaimTemplates. Follows `ValidateResourceClaim`,
//! `ValidateResourceClaimStatusUpdate` and `ValidateResourceClaimTemplate` of `pkg/apis/resource/validation`.

use std::collections::{BTreeMap, BTreeSet};

use super::device::{
    check_driver_name, check_fully_qualified_name, check_items, check_opaque, check_selectors, check_set,
    check_toleration,
};
use super::device_status::{check_share, device_id, validate_device_status};
use super::device_versions;
use super::plain::restore_metadata;
use super::pod::{validate_node_selector, validate_template_meta};
use super::resource_slice::{validate_bindings, validate_pool_name};
use crate::api::field::{FieldErrors, FieldPath};
use crate::api::json::{Map, Value};
use crate::api::kubernetes_version::KubernetesVersion;
use crate::api::object::Object;
use crate::registry::kinds::facts::Facts;
use crate::registry::kinds::strategy::{Context, Strategy};
use crate::registry::types::check::{IMMUTABLE, NOT_POSITIVE};
use crate::registry::types::cursor::Cursor;
use crate::registry::types::edit::{ensure_object, items_mut, object_mut};
use crate::registry::types::names;

/// Maximum number of requests in a claim, of references to requests, and of results in an allocation.
const REQUESTS_MAX: usize = 32;
/// Maximum number of constraints in a claim.
const CONSTRAINTS_MAX: usize = 32;
/// Maximum number of configurations in a claim.
const CONFIG_MAX: usize = 32;
/// Maximum number of alternatives in one request.
const FIRST_AVAILABLE_MAX: usize = 8;
/// Maximum number of consumers in a claim.
const RESERVED_FOR_MAX: usize = 256;

/// The namespace label that permits claims to use devices with admin access.
const ADMIN_LABEL: &str = "resource.kubernetes.io/admin-access";
const ADMIN_NEEDS: &str = "admin access to devices requires the `resource.kubernetes.io/admin-access: true` label on the containing namespace";

/// The strategy of ResourceClaims.
#[derive(Debug)]
pub(crate) struct ResourceClaim {
    /// The version of Kubernetes.
    pub(crate) version: KubernetesVersion,
}

impl Strategy for ResourceClaim {
    fn facts(&self) -> &Facts {
        &Facts {
            returns_deleted_object: true,
            ..Facts::DEFAULT
        }
    }

    fn default(&self, object: &mut Object) {
        default_requests(object, "spec.devices.requests");
    }

    fn convert(&self, object: &mut Object, api_version: &str) {
        device_versions::convert_requests(object, api_version, "spec.devices.requests");
    }

    fn validate_create(&self, object: &Object, errors: &mut FieldErrors, context: &Context<'_>) {
        authorize_admin(&Cursor::root(object), "spec.devices.requests", context, errors);
        self.validate(object, errors);
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        let object = Cursor::root(object);
        validate_device_claim(self.version, &object.at("spec.devices"), errors);
    }

    fn prepare_for_update(&self, object: &mut Object, old: &Object, context: &Context<'_>) {
        if context.subresource == "status" {
            restore_metadata(object, old);
            drop_deallocated(object, old);
        }
    }

    fn validate_update(&self, object: &Object, old: &Object, errors: &mut FieldErrors, context: &Context<'_>) {
        let (new, old) = (Cursor::root(object), Cursor::root(old));
        if context.subresource == "status" {
            authorize_admin_status(&new, &old, context, errors);
            validate_status(&new, &old, errors);
        } else {
            new.at("spec").check_unchanged(&old.at("spec"), errors);
        }
    }
}

/// The strategy of ResourceClaimTemplates.
#[derive(Debug)]
pub(crate) struct ResourceClaimTemplate {
    /// The version of Kubernetes.
    pub(crate) version: KubernetesVersion,
}

impl Strategy for ResourceClaimTemplate {
    fn facts(&self) -> &Facts {
        &Facts {
            returns_deleted_object: true,
            ..Facts::DEFAULT
        }
    }

    fn default(&self, object: &mut Object) {
        default_requests(object, "spec.spec.devices.requests");
    }

    fn convert(&self, object: &mut Object, api_version: &str) {
        device_versions::convert_requests(object, api_version, "spec.spec.devices.requests");
    }

    fn validate_create(&self, object: &Object, errors: &mut FieldErrors, context: &Context<'_>) {
        authorize_admin(&Cursor::root(object), "spec.spec.devices.requests", context, errors);
        self.validate(object, errors);
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        let object = Cursor::root(object);
        validate_template_meta(&object.at("spec.metadata"), errors);
        validate_device_claim(self.version, &object.at("spec.spec.devices"), errors);
    }

    fn validate_update(&self, object: &Object, old: &Object, errors: &mut FieldErrors, _context: &Context<'_>) {
        self.validate(object, errors);
        let (object, old) = (Cursor::root(object), Cursor::root(old));
        object.at("spec").check_unchanged(&old.at("spec"), errors);
    }
}

/// Checks that the namespace permits admin access if a request at the path `way` requires it (`AuthorizedForAdmin` of
/// `pkg/registry/resource`). As in kube-apiserver, errors of templates have the paths of a claim.
fn authorize_admin(object: &Cursor<'_>, way: &str, context: &Context<'_>, errors: &mut FieldErrors) {
    let asks = |it: &Cursor<'_>| it.flag("exactly.adminAccess") == Some(true);
    let asked = object.items(way).position(|it| asks(&it));
    if let Some(index) = asked.filter(|_| !is_admin_namespace(object.text("metadata.namespace"), context)) {
        let path = FieldPath::new("spec.devices.requests")
            .index(index)
            .child("adminAccess");
        errors.forbidden(path, ADMIN_NEEDS);
    }
}

/// Checks that the namespace permits admin access in a new allocation (`AuthorizedForAdminStatus`).
fn authorize_admin_status(new: &Cursor<'_>, old: &Cursor<'_>, context: &Context<'_>, errors: &mut FieldErrors) {
    const RESULTS: &str = "status.allocation.devices.results";
    let is_admin = |it: &Cursor<'_>| it.flag("adminAccess") == Some(true);
    if old.items(RESULTS).any(|it| is_admin(&it)) {
        return;
    }
    if let Some(result) = new.items(RESULTS).find(is_admin)
        && !is_admin_namespace(new.text("metadata.namespace"), context)
    {
        errors.forbidden(result.at("adminAccess"), ADMIN_NEEDS);
    }
}

fn is_admin_namespace(name: &str, context: &Context<'_>) -> bool {
    let namespaces = (context.stored)("", "namespaces");
    let found = namespaces.iter().find(|it| it.name() == name);
    found.is_some_and(|it| it.labels().any(|label| label == (ADMIN_LABEL, "true")))
}

/// Fills in the defaults of the requests at the path `way` (`SetDefaults_ExactDeviceRequest` and
/// `SetDefaults_DeviceSubRequest`), including the operators of tolerations.
fn default_requests(object: &mut Object, way: &str) {
    let is_old = device_versions::is_old(object.api_version());
    for request in items_mut(object, way) {
        // In the older form, only requests with alternatives lack a class.
        if is_old && request.get("deviceClassName").is_some_and(|it| it != "") {
            default_request(request);
        } else if let Some(exactly) = object_mut(request, "exactly") {
            default_request(exactly);
        }
        items_mut(request, "firstAvailable").for_each(default_request);
    }
}

fn default_request(request: &mut Map) {
    let is_blank = |value: Option<&Value>| value.is_none_or(|it| it.is_null() || it == "" || *it == 0);
    if is_blank(request.get("allocationMode")) {
        request.insert("allocationMode".into(), "ExactCount".into());
    }
    if request.get("allocationMode").is_some_and(|mode| mode == "ExactCount") && is_blank(request.get("count")) {
        request.insert("count".into(), 1.into());
    }
    for toleration in items_mut(request, "tolerations") {
        if is_blank(toleration.get("operator")) {
            toleration.insert("operator".into(), "Equal".into());
        }
    }
}

/// The names of requests, each with the names of its alternatives.
type RequestNames<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

/// Checks the requests, constraints and configurations of a claim (`validateDeviceClaim`).
fn validate_device_claim(version: KubernetesVersion, claim: &Cursor<'_>, errors: &mut FieldErrors) {
    let requests = request_names(claim);
    let name = |request: &Cursor<'_>| Value::from(request.text("name"));
    check_set(&claim.at("requests"), REQUESTS_MAX, name, errors, |it, errors| {
        validate_request(version, it, errors);
    });
    check_items(&claim.at("constraints"), CONSTRAINTS_MAX, errors, |it, errors| {
        validate_references(it, &requests, errors);
        let (matches, distinct) = (it.at("matchAttribute"), it.at("distinctAttribute"));
        if matches.is_set("") {
            check_fully_qualified_name(&matches, errors);
        } else if distinct.is_set("") {
            check_fully_qualified_name(&distinct, errors);
        } else {
            let text = "exactly one of \"matchAttribute\" or \"distinctAttribute\" is required, but multiple fields \
                        are set";
            errors.required(it, text);
        }
    });
    check_items(&claim.at("config"), CONFIG_MAX, errors, |it, errors| {
        validate_references(it, &requests, errors);
        check_opaque(it, errors);
    });
}

fn request_names<'a>(claim: &'a Cursor<'a>) -> RequestNames<'a> {
    let alternatives = |request: &Cursor<'a>| {
        let items = request.list("firstAvailable").iter();
        items.filter_map(|it| it.get("name").and_then(Value::as_str)).collect()
    };
    claim
        .items("requests")
        .map(|it| (it.text("name"), alternatives(&it)))
        .collect()
}

fn validate_references(holder: &Cursor<'_>, requests: &RequestNames<'_>, errors: &mut FieldErrors) {
    let name = |it: &Cursor<'_>| Value::from(it.as_text());
    check_set(&holder.at("requests"), REQUESTS_MAX, name, errors, |it, errors| {
        validate_reference(it, requests, errors);
    });
}

/// Checks a reference to a request or to one of its alternatives (`validateRequestNameRef`).
fn validate_reference(reference: &Cursor<'_>, requests: &RequestNames<'_>, errors: &mut FieldErrors) {
    const RULE: &str =
        "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";
    let name = reference.as_text();
    let parts: Vec<&str> = name.split('/').collect();
    if parts.len() > 2 {
        errors.invalid(reference, name, RULE);
        return;
    }
    for part in &parts {
        for text in names::dns1123_label(part, false) {
            errors.invalid(reference, *part, text);
        }
    }
    let alternatives = requests.get(parts[0]);
    let is_known = alternatives.is_some_and(|known| parts.get(1).is_none_or(|part| known.contains(part)));
    if !is_known {
        errors.invalid(reference, name, RULE);
    }
}

/// Checks a request of a claim (`validateDeviceRequest`).
fn validate_request(version: KubernetesVersion, request: &Cursor<'_>, errors: &mut FieldErrors) {
    validate_request_name(request, errors);
    let exactly = request.at("exactly");
    match (exactly.is_set(""), request.list("firstAvailable").is_empty()) {
        (false, true) => errors.required(request, "exactly one of `exactly` or `firstAvailable` is required"),
        (true, false) => {
            let text = "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set";
            errors.invalid(request, Value::Null, text);
        }
        (true, true) => validate_device_request(version, &exactly, errors),
        (false, false) => {
            let name = |it: &Cursor<'_>| Value::from(it.text("name"));
            let alternatives = request.at("firstAvailable");
            check_set(&alternatives, FIRST_AVAILABLE_MAX, name, errors, |it, errors| {
                validate_request_name(it, errors);
                validate_device_request(version, it, errors);
            });
        }
    }
}

fn validate_request_name(request: &Cursor<'_>, errors: &mut FieldErrors) {
    let name = request.at("name");
    name.check_texts(names::dns1123_label(name.as_text(), false), errors);
}

/// Checks the fields that `exactly` and the entries of `firstAvailable` have in common (`validateExactDeviceRequest`
/// and `validateDeviceSubRequest`).
fn validate_device_request(version: KubernetesVersion, request: &Cursor<'_>, errors: &mut FieldErrors) {
    let class = request.at("deviceClassName");
    if class.check_required(errors) {
        class.check_subdomain(errors);
    }
    check_selectors(version, &request.at("selectors"), errors);
    let count = request.integer("count").unwrap_or(0);
    match request.text("allocationMode") {
        "All" if count != 0 => {
            let text = "must not be specified when allocationMode is 'All'";
            errors.invalid(request.at("count"), count, text);
        }
        "ExactCount" if count <= 0 => errors.invalid(request.at("count"), count, NOT_POSITIVE),
        "All" | "ExactCount" => {}
        mode => errors.not_supported(request.at("allocationMode"), mode, &["All", "ExactCount"]),
    }
    for toleration in request.items("tolerations") {
        check_toleration(&toleration, errors);
    }
}

/// Returns the devices that are allocated to a claim.
fn allocated(status: &Cursor<'_>) -> BTreeSet<[String; 4]> {
    let results = status.items("allocation.devices.results");
    results.map(|it| device_id(&it)).collect()
}

/// Removes the statuses of devices that this write deallocates, because its client may not know these statuses
/// (`dropDeallocatedStatusDevices`).
fn drop_deallocated(object: &mut Object, old: &Object) {
    let (new, old) = (Cursor::root(object), Cursor::root(old));
    let (status, before) = (new.at("status"), old.at("status"));
    let (before, after) = (allocated(&before), allocated(&status));
    let is_kept = |it: &Cursor<'_>| after.contains(&device_id(it)) || !before.contains(&device_id(it));
    let kept: Vec<Value> = status.items("devices").filter(is_kept).map(Cursor::to_value).collect();
    if kept.len() == status.list("devices").len() {
        return;
    }
    let status = ensure_object(object, "status");
    match kept.is_empty() {
        true => status.remove("devices"),
        false => status.insert("devices".into(), kept.into()),
    };
}

/// Checks an update of a claim's status (`validateResourceClaimStatusUpdate`).
fn validate_status(new: &Cursor<'_>, old: &Cursor<'_>, errors: &mut FieldErrors) {
    let status = new.at("status");
    let uid = |it: &Cursor<'_>| Value::from(it.text("uid"));
    check_set(
        &status.at("reservedFor"),
        RESERVED_FOR_MAX,
        uid,
        errors,
        |it, errors| {
            for field in ["resource", "name", "uid"] {
                it.at(field).check_required(errors);
            }
        },
    );
    let allocation = status.at("allocation");
    let allocated = allocated(&status);
    let mut seen = BTreeSet::new();
    for it in status.items("devices") {
        validate_device_status(&it, allocated.contains(&device_id(&it)), errors);
    }
    for it in status.items("devices") {
        if !seen.insert(device_id(&it)) {
            errors.duplicate(it, it.text("device"));
        }
    }
    if !status.list("reservedFor").is_empty() {
        let path = status.at("reservedFor");
        let before = old.list("status.reservedFor");
        if !allocation.is_set("") {
            errors.forbidden(path, "may not be specified when `allocated` is not set");
        } else if new.is_set("metadata.deletionTimestamp") && path.list("").iter().any(|it| !before.contains(it)) {
            let text = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set";
            errors.forbidden(path, text);
        }
    }
    match (old.is_set("status.allocation"), allocation.is_set("")) {
        (true, true) if !allocation.same(&old.at("status.allocation"), "") => {
            errors.invalid(allocation, allocation.to_value(), IMMUTABLE);
        }
        (false, true) => validate_allocation(&allocation, &new.at("spec.devices"), errors),
        _ => {}
    }
}

/// Checks the allocation of a claim (`validateAllocationResult`).
fn validate_allocation(allocation: &Cursor<'_>, claim: &Cursor<'_>, errors: &mut FieldErrors) {
    let requests = request_names(claim);
    check_items(&allocation.at("devices.results"), REQUESTS_MAX, errors, |it, errors| {
        validate_reference(&it.at("request"), &requests, errors);
        check_driver_name(&it.at("driver"), errors);
        validate_pool_name(&it.at("pool"), errors);
        let name = it.at("device");
        name.check_texts(names::dns1123_label(name.as_text(), false), errors);
        validate_bindings(it, errors);
        check_share(&it.at("shareID"), errors);
    });
    check_items(
        &allocation.at("devices.config"),
        2 * CONFIG_MAX,
        errors,
        |it, errors| {
            let source = it.at("source");
            if source.check_required(errors) {
                source.check_one_of(&["FromClaim", "FromClass"], errors);
            }
            validate_references(it, &requests, errors);
            check_opaque(it, errors);
        },
    );
    if let Some(selector) = allocation.present("nodeSelector") {
        validate_node_selector(&selector, errors);
    }
}
