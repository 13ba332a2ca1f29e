//! The strategy of ResourceSlices. Follows `ValidateResourceSlice` and `ValidateResourceSliceUpdate` of
//! `pkg/apis/resource/validation`.

use super::device::{check_driver_name, check_items, check_qualified_name, check_set, check_taint};
use super::device_versions;
use super::pod::validate_node_selector;
use super::request_policy::validate_policy;
use crate::api::field::{FieldErrors, quote};
use crate::api::json::Value;
use crate::api::object::Object;
use crate::registry::kinds::facts::{Facts, FieldLabels, Generation};
use crate::registry::kinds::strategy::{Context, Strategy};
use crate::registry::types::check::NOT_POSITIVE;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::edit::{default_value, items_mut};
use crate::registry::types::names;

/// The strategy of ResourceSlices.
#[derive(Debug)]
pub(crate) struct ResourceSlice;

impl Strategy for ResourceSlice {
    fn facts(&self) -> &Facts {
        &Facts {
            returns_deleted_object: true,
            generation: Generation::FromCreate,
            compares_dropped_fields: true,
            fields: FieldLabels::These {
                labels: &["spec.nodeName", "spec.driver"],
                namespace: false,
                aliases: &[],
                refusal: "field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: {}",
            },
            ..Facts::DEFAULT
        }
    }

    fn convert(&self, object: &mut Object, api_version: &str) {
        device_versions::convert_slice(object, api_version);
    }

    fn prepare_for_create(&self, object: &mut Object, context: &Context<'_>) {
        default_times(object, context);
        drop_disabled(object, None);
    }

    fn prepare_for_update(&self, object: &mut Object, old: &Object, context: &Context<'_>) {
        default_times(object, context);
        drop_disabled(object, Some(old));
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        validate_spec(&Cursor::root(object).at("spec"), None, errors);
    }

    fn validate_update(&self, object: &Object, old: &Object, errors: &mut FieldErrors, _context: &Context<'_>) {
        let (object, old) = (Cursor::root(object), Cursor::root(old));
        validate_spec(&object.at("spec"), Some(&old.at("spec")), errors);
    }

    fn warnings(&self, object: &Object, _old: Option<&Object>) -> Vec<String> {
        let driver = Cursor::root(object).text("spec.driver");
        if driver == driver.to_lowercase() {
            return Vec::new();
        }
        vec![format!(
            "spec.driver: driver names should be lowercase; {} contains uppercase characters",
            quote(driver)
        )]
    }
}

/// Maximum number of devices in a slice, which is halved if a device has taints or consumes counters.
const DEVICES_MAX: usize = 128;
/// Maximum number of counter sets in a slice.
const COUNTER_SETS_MAX: usize = 8;
/// Maximum number of counters in a set.
const COUNTERS_MAX: usize = 32;
/// Maximum total number of attributes and capacities of a device.
const ATTRIBUTES_MAX: usize = 32;
/// Maximum number of taints of a device.
const TAINTS_MAX: usize = 16;
/// Maximum number of counter sets that a device consumes.
const CONSUMED_MAX: usize = 2;
/// Maximum number of binding conditions, and of binding failure conditions, of a device.
const CONDITIONS_MAX: usize = 4;
/// Maximum length of the value of an attribute, in bytes.
const VALUE_MAX: usize = 64;

/// Attribute fields with list values, which depend on the gate DRAListTypeAttributes.
const LISTS: [&str; 4] = ["bools", "ints", "strings", "versions"];
/// Device field that depends on the gate DRANodeAllocatableResources.
const MAPPINGS: &str = "nodeAllocatableResourceMappings";

/// Sets a missing `timeAdded` of taints to now (`SetDefaults_DeviceTaint`).
fn default_times(object: &mut Object, context: &Context<'_>) {
    let now = context.entropy.now_seconds();
    for device in items_mut(object, "spec.devices") {
        for taint in items_mut(device, "taints") {
            default_value(taint, "timeAdded", now.as_str());
        }
    }
}

/// Drops fields that depend on disabled gates, unless the stored slice has them (`dropDisabledFields`).
fn drop_disabled(object: &mut Object, old: Option<&Object>) {
    let in_old = |is_used: &dyn Fn(&Cursor<'_>) -> bool| {
        old.is_some_and(|old| Cursor::root(old).items("spec.devices").any(|it| is_used(&it)))
    };
    let has_lists = in_old(&|device| {
        let attributes = device.at("attributes");
        attributes
            .entries("")
            .any(|(_, it)| LISTS.iter().any(|list| it.is_set(list)))
    });
    let has_mappings = in_old(&|device| !device.is_empty(MAPPINGS));
    for device in items_mut(object, "spec.devices") {
        if !has_mappings {
            device.remove(MAPPINGS);
        }
        let attributes = device.get_mut("attributes").and_then(Value::as_object_mut);
        let attributes = attributes.into_iter().flatten().filter(|_| !has_lists);
        for fields in attributes.filter_map(|(_, it)| it.as_object_mut()) {
            LISTS.iter().for_each(|list| {
                fields.remove(list);
            });
        }
    }
}

/// Checks the spec of a slice (`validateResourceSliceSpec`).
fn validate_spec(spec: &Cursor<'_>, old: Option<&Cursor<'_>>, errors: &mut FieldErrors) {
    check_driver_name(&spec.at("driver"), errors);
    validate_pool_name(&spec.at("pool.name"), errors);
    let count = spec.integer("pool.resourceSliceCount").unwrap_or(0);
    if count <= 0 {
        errors.invalid(spec.at("pool.resourceSliceCount"), count, NOT_POSITIVE);
    }
    let generation = spec.integer("pool.generation").unwrap_or(0);
    if generation < 0 {
        errors.invalid(
            spec.at("pool.generation"),
            generation,
            "must be greater than or equal to zero",
        );
    }
    for field in ["pool.name", "driver", "nodeName"] {
        if let Some(old) = old {
            spec.at(field).check_unchanged(&old.at(field), errors);
        }
    }
    const SLICE_NODES: [&str; 4] = ["nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection"];
    let blank = "must be either unset or set to a non-empty string";
    let set = chosen_nodes(spec, &SLICE_NODES, blank, true, errors);
    let rule = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
    match set.len() {
        0 => errors.required(spec, rule),
        1 => {}
        _ => {
            let text = format!("{rule}, but multiple fields are set");
            errors.invalid(spec, format!("{{{}}}", set.join(", ")), text);
        }
    }
    if spec.is_set("sharedCounters") && spec.is_set("devices") {
        errors.invalid(spec, "", "only one of `sharedCounters` or `devices` is allowed");
    }
    let is_advanced = |it: &Cursor<'_>| !it.is_empty("taints") || !it.is_empty("consumesCounters");
    let max = DEVICES_MAX
        / if spec.items("devices").any(|it| is_advanced(&it)) {
            2
        } else {
            1
        };
    let name = |it: &Cursor<'_>| Value::from(it.text("name"));
    let per_device = spec.flag("perDeviceNodeSelection") == Some(true);
    check_set(&spec.at("devices"), max, name, errors, |it, errors| {
        // Unchanged taints of a stored device are not checked again.
        let keeps_taints = old.is_some_and(|old| {
            let mut devices = old.items("devices");
            devices.any(|before| before.text("name") == it.text("name") && before.same(it, "taints"))
        });
        validate_device(it, per_device, keeps_taints, errors)
    });
    check_set(
        &spec.at("sharedCounters"),
        COUNTER_SETS_MAX,
        name,
        errors,
        |it, errors| {
            validate_counters(it, "name", errors);
        },
    );
}

/// Checks the fields that select Nodes. Returns the names of the fields that are set to a non-empty value.
fn chosen_nodes(
    holder: &Cursor<'_>,
    fields: &[&str],
    blank: &str,
    one_term: bool,
    errors: &mut FieldErrors,
) -> Vec<String> {
    let mut set = Vec::new();
    for &field in fields {
        let value = holder.at(field);
        let is_chosen = match value.get("") {
            None => continue,
            Some(Value::Bool(chosen)) => {
                if !chosen {
                    errors.invalid(value, false, "must be either unset or set to true");
                }
                *chosen
            }
            Some(Value::Object(_)) => {
                validate_node_selector(&value, errors);
                let terms = value.at("nodeSelectorTerms");
                if one_term && terms.list("").len() != 1 {
                    errors.invalid(terms, terms.to_value(), "must have exactly one node selector term");
                }
                true
            }
            Some(_) if value.as_text().is_empty() => {
                errors.invalid(value, "", blank);
                false
            }
            Some(_) => {
                value.check_subdomain(errors);
                true
            }
        };
        if is_chosen {
            set.push(format!("`{field}`"));
        }
    }
    set
}

/// Checks a device (`validateDevice`).
fn validate_device(device: &Cursor<'_>, per_device: bool, keeps_taints: bool, errors: &mut FieldErrors) {
    let name = device.at("name");
    name.check_texts(names::dns1123_label(name.as_text(), false), errors);
    let count = device.entries("attributes").count() + device.entries("capacity").count();
    if count > ATTRIBUTES_MAX {
        let text = format!("the total number of attributes and capacities must not exceed {ATTRIBUTES_MAX}");
        errors.invalid(device, count, text);
    }
    for (key, attribute) in device.entries("attributes") {
        check_qualified_name(key, &device.at("attributes"), errors);
        validate_attribute(&attribute, errors);
    }
    for (key, capacity) in device.entries("capacity") {
        check_qualified_name(key, &device.at("capacity"), errors);
        let shares = device.flag("allowMultipleAllocations") == Some(true);
        match capacity.is_set("requestPolicy") {
            true if shares => validate_policy(&capacity, errors),
            true => errors.forbidden(capacity.at("requestPolicy"), "allowMultipleAllocations must be true"),
            false => {}
        }
    }
    if !keeps_taints {
        check_items(&device.at("taints"), TAINTS_MAX, errors, check_taint);
    }
    let set = |it: &Cursor<'_>| Value::from(it.text("counterSet"));
    check_set(
        &device.at("consumesCounters"),
        CONSUMED_MAX,
        set,
        errors,
        |it, errors| {
            validate_counters(it, "counterSet", errors);
        },
    );
    const DEVICE_NODES: [&str; 3] = ["nodeName", "nodeSelector", "allNodes"];
    if per_device {
        let set = chosen_nodes(device, &DEVICE_NODES, "must not be empty", false, errors);
        let rule = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` \
                    is set to true in the ResourceSlice spec";
        match set.len() {
            0 => errors.required(device, rule),
            1 => {}
            _ => errors.invalid(device, format!("{{{}}}", set.join(", ")), rule),
        }
    } else if DEVICE_NODES.iter().any(|field| device.is_set(field)) {
        let text = "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to \
                    true in the ResourceSlice spec";
        errors.invalid(device, Value::Null, text);
    }
    validate_bindings(device, errors);
}

/// Checks an attribute of a device (`validateDeviceAttribute`).
fn validate_attribute(attribute: &Cursor<'_>, errors: &mut FieldErrors) {
    for (field, is_version) in [("string", false), ("version", true)] {
        let value = attribute.at(field);
        if !value.is_set("") {
            continue;
        }
        if is_version && !is_semantic_version(value.as_text()) {
            let text = "must be a string compatible with semver.org spec 2.0.0";
            errors.invalid(value, value.as_text(), text);
        }
        if value.as_text().len() > VALUE_MAX {
            errors.too_long(value, VALUE_MAX);
        }
    }
    let values = ["bool", "int", "string", "version"];
    match values.iter().filter(|field| attribute.is_set(field)).count() {
        0 => errors.invalid(attribute, "", "exactly one value must be specified"),
        1 => {}
        _ => errors.invalid(attribute, attribute.to_value(), "exactly one value must be specified"),
    }
}

/// Returns `true` for a semantic version (semver.org 2.0.0) of the form `major.minor.patch[-prerelease][+build]`.
fn is_semantic_version(text: &str) -> bool {
    let (rest, build) = text
        .split_once('+')
        .map_or((text, None), |(rest, build)| (rest, Some(build)));
    let (core, release) = rest.split_once('-').map_or((rest, None), |(core, it)| (core, Some(it)));
    let is_number = |part: &str| {
        !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()) && (part == "0" || !part.starts_with('0'))
    };
    let is_word = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    let is_identifier = |part: &str| is_word(part) && (is_number(part) || !part.bytes().all(|b| b.is_ascii_digit()));
    core.split('.').count() == 3
        && core.split('.').all(is_number)
        && release.is_none_or(|it| it.split('.').all(is_identifier))
        && build.is_none_or(|it| it.split('.').all(is_word))
}

/// Checks the counters of a counter set, or the counters that a device consumes (`validateCounterSet` and
/// `validateDeviceCounterConsumption`). The field `name` contains the name of the counter set.
fn validate_counters(holder: &Cursor<'_>, name: &str, errors: &mut FieldErrors) {
    let set = holder.at(name);
    if set.check_required(errors) {
        set.check_label(errors);
    }
    let counters = holder.at("counters");
    let count = counters.entries("").count();
    if count == 0 {
        errors.required(counters, "");
    } else if count > COUNTERS_MAX {
        errors.too_many(counters, count, COUNTERS_MAX);
    } else {
        for (key, _) in counters.entries("") {
            for text in names::dns1123_label(key, false) {
                errors.invalid(counters, key, text);
            }
        }
    }
}

/// Checks the binding conditions of a device (`validateDeviceBindingParameters`).
pub(super) fn validate_bindings(device: &Cursor<'_>, errors: &mut FieldErrors) {
    let (bound, failed) = (device.at("bindingConditions"), device.at("bindingFailureConditions"));
    for conditions in [&bound, &failed] {
        check_items(conditions, CONDITIONS_MAX, errors, |it, errors| {
            it.check_texts(names::qualified_name(it.as_text()), errors);
        });
    }
    for (conditions, is_failed) in [(&bound, false), (&failed, true)] {
        for (index, it) in conditions.items("").enumerate() {
            if conditions.list("")[..index].iter().any(|before| before == it.as_text()) {
                errors.duplicate(it, it.as_text());
            }
            if is_failed && bound.list("").iter().any(|other| other == it.as_text()) {
                let text = "bindingFailureConditions must not overlap with bindingConditions";
                errors.invalid(it, it.as_text(), text);
            }
        }
    }
    match (bound.is_empty(""), failed.is_empty("")) {
        (true, false) => {
            let text = "bindingConditions are required to use bindingFailureConditions";
            errors.invalid(bound, bound.to_value(), text);
        }
        (false, true) => {
            let text = "bindingFailureConditions are required to use bindingConditions";
            errors.invalid(failed, failed.to_value(), text);
        }
        _ => {}
    }
}

/// Checks the name of a pool: DNS-1123 subdomains separated by slashes (`validatePoolName`).
pub(super) fn validate_pool_name(pool: &Cursor<'_>, errors: &mut FieldErrors) {
    if !pool.check_required(errors) {
        return;
    }
    let name = pool.as_text();
    if name.len() > 253 {
        errors.too_long(pool, 253);
    }
    for part in name.split('/') {
        for text in names::dns1123_subdomain(part, false) {
            errors.invalid(pool, part, text);
        }
    }
}
