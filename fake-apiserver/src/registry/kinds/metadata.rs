//! Rules for the metadata of all kinds (rules B1 to B5, B10 to B15, B23 to B26).

use std::collections::BTreeSet;

use super::facts::Generation;
use super::metadata_checks::{MetadataChecks, Pass};
use super::strategy::Strategy;
use crate::api::field::{FieldErrors, FieldPath};
use crate::api::json::{Map, Value, json};
use crate::api::object::Object;
use crate::api::status::Status;
use crate::entropy::Entropy;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::hidden::Hidden;
use crate::registry::types::{labels, names};

/// Finalizer of the garbage collector for foreground deletion. It cannot be combined with [`ORPHAN_FINALIZER`].
pub(crate) const FOREGROUND_FINALIZER: &str = "foregroundDeletion";
/// Finalizer of the garbage collector that keeps an owner until its dependents are orphaned.
pub(crate) const ORPHAN_FINALIZER: &str = "orphan";

const IMMUTABLE: &str = "field is immutable";
/// Maximum length of the prefix of a generated name, in bytes (rule B2).
const GENERATED_BASE_MAX: usize = 58;

/// Fills in the namespace of a written object from the URL (rule B4), and removes it from cluster-scoped objects, for
/// which `namespace` is empty. Fails if the object has a different namespace.
pub(crate) fn fill_namespace(object: &mut Object, namespace: &str) -> Result<(), Status> {
    let given = object.namespace();
    if namespace.is_empty() {
        if !given.is_empty() {
            object.metadata_mut().remove("namespace");
        }
    } else if given.is_empty() {
        object.metadata_mut().insert("namespace".into(), namespace.into());
    } else if given != namespace {
        let text = "the namespace of the provided object does not match the namespace sent on the request";
        return Err(Status::bad_request(text));
    }
    Ok(())
}

/// Checks the name of an updated object against the URL (rule B5).
pub(crate) fn check_name(object: &Object, name: &str) -> Result<(), Status> {
    let given = object.name();
    if given == name {
        return Ok(());
    }
    Err(Status::bad_request(if given.is_empty() {
        format!("the name of the object ({name} based on URL) was undeterminable: name must be provided")
    } else {
        format!("the name of the object ({given}) does not match the name on the URL ({name})")
    }))
}

/// Generates a name from `generateName` if `name` is empty (rule B2).
pub(crate) fn generate_name(object: &mut Object, entropy: &Entropy) {
    if !object.name().is_empty() {
        return;
    }
    let mut name = object.meta_str("generateName").to_owned();
    if name.is_empty() {
        return;
    }
    let end = (0..=GENERATED_BASE_MAX.min(name.len()))
        .rev()
        .find(|&end| name.is_char_boundary(end));
    name.truncate(end.unwrap_or(0));
    name.push_str(&entropy.name_suffix());
    object.metadata_mut().insert("name".into(), name.into());
}

/// Sets the uid and creationTimestamp of a new object regardless of the request (rules B1, B8, B29), and its generation
/// if the kind sets one on create.
pub(crate) fn begin_lifetime(object: &mut Object, strategy: &dyn Strategy, entropy: &Entropy) {
    let meta = object.metadata_mut();
    meta.remove("selfLink");
    meta.insert("uid".into(), entropy.uid().into());
    meta.insert("creationTimestamp".into(), entropy.now_seconds().into());
    if strategy.facts().generation == Generation::FromCreate {
        meta.insert("generation".into(), 1.into());
    }
}

/// Adds missing metadata to an object that is stored without admission: uid, creationTimestamp and generation.
pub(crate) fn complete(object: &mut Object, strategy: &dyn Strategy, entropy: &Entropy) {
    let (no_uid, no_time) = (object.uid().is_empty(), object.meta_str("creationTimestamp").is_empty());
    let meta = object.metadata_mut();
    if no_uid {
        meta.insert("uid".into(), entropy.uid().into());
    }
    if no_time {
        meta.insert("creationTimestamp".into(), entropy.now_seconds().into());
    }
    if strategy.facts().generation == Generation::FromCreate && !meta.contains_key("generation") {
        meta.insert("generation".into(), 1.into());
    }
}

/// Restores the fields that the server keeps on update: generation, creationTimestamp and deletionTimestamp, and the
/// uid and deletionGracePeriodSeconds if the update omits them (rules B11, B12). Must be called after the preparation
/// of the strategy. Increments the generation if the kind has generations and the object has changed (rule B8), except
/// in writes of the status and bindings. `is_raised` increments the generation of an object that has not changed.
pub(crate) fn prepare_update(
    new: &mut Object,
    old: &Object,
    strategy: &dyn Strategy,
    subresource: &str,
    hidden: &Hidden,
    is_raised: bool,
) {
    let facts = strategy.facts();
    let raises = facts.generation != Generation::Absent
        && !matches!(subresource, "status" | "binding")
        && (is_raised
            || strategy.raises_generation(new, old)
            || facts.exact.iter().any(|field| hidden.has_emptied(field)));
    let empty = Map::new();
    let old = old.metadata().unwrap_or(&empty);
    let meta = new.metadata_mut();
    let mut restore = |field: &str| match present(old, field) {
        Some(value) => {
            // An update usually already contains the stored value.
            if meta.get(field) != Some(value) {
                meta.insert(field.into(), value.clone());
            }
        }
        None => {
            meta.remove(field);
        }
    };
    restore("generation");
    restore("creationTimestamp");
    if present(old, "deletionTimestamp").is_some() {
        restore("deletionTimestamp");
    }
    for field in ["uid", "deletionGracePeriodSeconds"] {
        if meta.get(field).is_none_or(|value| value.is_null() || value == "") {
            let mut restore = |value: Option<&Value>| match value {
                Some(value) => {
                    meta.insert(field.into(), value.clone());
                }
                None => {
                    meta.remove(field);
                }
            };
            restore(present(old, field));
        }
    }
    meta.remove("selfLink");
    if raises {
        let next = number(old, "generation").saturating_add(1);
        meta.insert("generation".into(), next.into());
    }
}

/// Drops duplicate owner references, and returns a warning if there are any (rule B24).
pub(crate) fn dedupe_owner_references(object: &mut Object, after_admission: bool) -> Option<String> {
    let references = object.metadata().and_then(|meta| meta.get("ownerReferences"));
    if references.and_then(Value::as_array).is_none_or(|list| list.len() < 2) {
        return None;
    }
    let references = object.metadata_mut().get_mut("ownerReferences")?.as_array_mut()?;
    let mut seen = BTreeSet::new();
    let mut repeated: Vec<String> = Vec::new();
    references.retain(|reference| {
        let is_new = seen.insert(reference.to_string());
        if !is_new {
            let uid = reference.get("uid").and_then(Value::as_str).unwrap_or_default();
            repeated.push(uid.to_owned());
        }
        is_new
    });
    if repeated.is_empty() {
        return None;
    }
    let when = if after_admission {
        " after mutating admission happens"
    } else {
        ""
    };
    Some(format!(
        ".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references in 1.20+, and \
         may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
        repeated.join(", ")
    ))
}

/// Returns the warnings about new finalizers that are not qualified names or lack a domain, sorted by name.
/// kube-apiserver only warns for custom resources (rule B25).
pub(crate) fn finalizer_warnings(object: &Object, old: Option<&Object>) -> Vec<String> {
    let earlier: BTreeSet<&str> = old.into_iter().flat_map(Object::finalizers).collect();
    let added: BTreeSet<&str> = object.finalizers().filter(|name| !earlier.contains(name)).collect();
    let mut warnings = Vec::new();
    for name in added {
        let mut warn = |text: &str| {
            warnings.push(format!(
                "metadata.finalizers: {}: {text}",
                crate::api::field::quote(name)
            ));
        };
        names::qualified_name(name).iter().for_each(|text| warn(text));
        if !is_known_finalizer(name) && !name.contains('/') {
            let path = if name.contains('.') {
                " including a path (/)"
            } else {
                ""
            };
            warn(&format!(
                "prefer a domain-qualified finalizer name{path} to avoid accidental conflicts with other finalizer \
                 writers"
            ));
        }
    }
    warnings
}

/// Checks the metadata of a new object (rules B3, B23 to B26), including the rules of the kind for names if the kind
/// validates metadata itself.
pub(crate) fn validate_create(
    object: &Object,
    namespaced: bool,
    strategy: &dyn Strategy,
    checks: &MetadataChecks,
    errors: &mut FieldErrors,
) {
    if checks.on_create.is_empty() {
        validate_object(object, namespaced, errors);
        return;
    }
    validate_new(
        object,
        namespaced,
        &strategy.facts().name,
        &CommonErrors::of(object),
        errors,
    );
    if checks.kube_finalizers {
        validate_finalizer_names(object, errors);
    }
}

/// Checks metadata with the rules that apply to all kinds (`rest.BeforeCreate`): for example, the name must be one path
/// segment.
pub(crate) fn validate_object(object: &Object, namespaced: bool, errors: &mut FieldErrors) {
    validate_new(
        object,
        namespaced,
        &names::path_segment,
        &CommonErrors::of(object),
        errors,
    );
}

/// Checks the metadata of an object in a namespace as `ValidateObjectMeta` of `pkg/apis/core/validation` does.
pub(crate) fn validate_core(object: &Object, errors: &mut FieldErrors) {
    validate_new(
        object,
        true,
        &names::dns1123_subdomain,
        &CommonErrors::of(object),
        errors,
    );
    validate_finalizer_names(object, errors);
}

/// Checks that the name is one path segment. In kube-apiserver, this check follows the validation of the kind.
pub(crate) fn validate_segment(object: &Object, errors: &mut FieldErrors) {
    for text in names::path_segment(object.name(), false) {
        errors.invalid(path("name"), object.name(), text);
    }
}

/// Errors that every pass over the metadata of an object repeats.
struct CommonErrors {
    /// Errors of labels, annotations and owner references.
    common: FieldErrors,
    finalizers: FieldErrors,
    managed_fields: FieldErrors,
}

impl CommonErrors {
    fn of(object: &Object) -> Self {
        let mut found = Self {
            common: FieldErrors::new(),
            finalizers: FieldErrors::new(),
            managed_fields: FieldErrors::new(),
        };
        validate_common(object, &mut found.common);
        validate_finalizers(object, &mut found.finalizers);
        validate_managed_fields(object.metadata(), &mut found.managed_fields);
        found
    }
}

/// Checks the metadata of a new or updated object (`ValidateObjectMetaAccessor`).
fn validate_new(
    object: &Object,
    namespaced: bool,
    validate_name: &dyn Fn(&str, bool) -> Vec<String>,
    common: &CommonErrors,
    errors: &mut FieldErrors,
) {
    let empty = Map::new();
    let meta = object.metadata().unwrap_or(&empty);
    let prefix = object.meta_str("generateName");
    if !prefix.is_empty() {
        for text in validate_name(prefix, true) {
            errors.invalid(path("generateName"), prefix, text);
        }
    }
    let name = object.name();
    if name.is_empty() {
        errors.required(path("name"), "name or generateName is required");
    } else {
        for text in validate_name(name, false) {
            errors.invalid(path("name"), name, text);
        }
    }
    let namespace = object.namespace();
    if namespaced && namespace.is_empty() {
        errors.required(path("namespace"), "");
    } else if namespaced {
        for text in names::dns1123_label(namespace, false) {
            errors.invalid(path("namespace"), namespace, text);
        }
    } else if !namespace.is_empty() {
        errors.forbidden(path("namespace"), "not allowed on this type");
    }
    validate_generation(meta, errors);
    errors.extend(common.common.clone());
    errors.extend(common.finalizers.clone());
    errors.extend(common.managed_fields.clone());
}

/// Checks the metadata of an update, after [`prepare_update`] (rules B12, B15, B24, B25). Runs the two passes that
/// apply to all objects (`rest.BeforeUpdate`), then the passes of the kind, which repeat the common errors.
pub(crate) fn validate_update(
    new: &Object,
    old: &Object,
    strategy: &dyn Strategy,
    checks: &MetadataChecks,
    errors: &mut FieldErrors,
) {
    // The namespace cannot change, so an object with a namespace is of a namespaced kind.
    let namespaced = !new.namespace().is_empty();
    let common = CommonErrors::of(new);
    validate_new(new, namespaced, &names::path_segment, &common, errors);
    validate_changed(new, old, &common, errors);
    for pass in checks.on_update {
        match pass {
            Pass::Update => validate_changed(new, old, &common, errors),
            Pass::Create => {
                validate_new(new, namespaced, &strategy.facts().name, &common, errors);
            }
        }
        if checks.kube_finalizers {
            validate_finalizer_names(new, errors);
        }
    }
}

/// Checks the changes of an object's metadata (`ValidateObjectMetaAccessorUpdate`).
fn validate_changed(new: &Object, old: &Object, common: &CommonErrors, errors: &mut FieldErrors) {
    let empty = Map::new();
    let meta = new.metadata().unwrap_or(&empty);
    let old_meta = old.metadata().unwrap_or(&empty);
    if old.is_terminating() {
        validate_no_new_finalizers(new, old, errors);
    }
    let generation = number(meta, "generation");
    if generation < number(old_meta, "generation") {
        errors.invalid(path("generation"), generation, "must not be decremented");
    }
    for field in [
        "name",
        "namespace",
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ] {
        if present(meta, field) != present(old_meta, field) {
            let value = present(meta, field).cloned().unwrap_or_default();
            errors.invalid(path(field), value, IMMUTABLE);
        }
    }
    errors.extend(common.common.clone());
    errors.extend(common.managed_fields.clone());
}

fn validate_generation(meta: &Map, errors: &mut FieldErrors) {
    let generation = number(meta, "generation");
    if generation < 0 {
        let text = "must be greater than or equal to 0";
        errors.invalid(path("generation"), generation, text);
    }
}

/// Checks labels, annotations and owner references.
fn validate_common(object: &Object, errors: &mut FieldErrors) {
    let object = Cursor::root(object);
    labels::validate_labels(&object.at("metadata.labels"), errors);
    labels::validate_annotations(&object.at("metadata.annotations"), errors);
    validate_owner_references(object.list("metadata.ownerReferences"), errors);
}

/// Checks owner references (rule B24).
fn validate_owner_references(owners: &[Value], errors: &mut FieldErrors) {
    let mut first_controller: Option<String> = None;
    for owner in owners {
        let text = |field| owner.get(field).and_then(Value::as_str).unwrap_or_default();
        let (api_version, kind, name) = (text("apiVersion"), text("kind"), text("name"));
        let at = |field| path("ownerReferences").child(field);
        let version = api_version.split_once('/').map_or(api_version, |(_, version)| version);
        if version.is_empty() || version.contains('/') {
            errors.invalid(at("apiVersion"), api_version, "version must not be empty");
        }
        for (field, value) in [("kind", kind), ("name", name), ("uid", text("uid"))] {
            if value.is_empty() {
                errors.invalid(at(field), value, "must not be empty");
            }
        }
        if api_version == "v1" && kind == "Event" {
            let text = "/v1, Kind=Event is disallowed from being an owner";
            invalid_printed(path("ownerReferences"), &print_owner(owner), text, errors);
        }
        if owner.get("controller") == Some(&Value::Bool(true)) {
            let controller = format!("{kind}/{name}");
            if let Some(first) = &first_controller {
                let text = format!(
                    "Only one reference can have Controller set to true. Found \"true\" in references for {first} and \
                     {controller}"
                );
                let printed: Vec<String> = owners.iter().map(print_owner).collect();
                let printed = format!("[{}]", printed.join(","));
                invalid_printed(path("ownerReferences"), &printed, &text, errors);
            } else {
                first_controller = Some(controller);
            }
        }
    }
}

/// Formats an owner reference as JSON, with its fields in the order of the Go type.
fn print_owner(owner: &Value) -> String {
    let mut fields: Vec<String> = ["apiVersion", "kind", "name", "uid"]
        .into_iter()
        .map(|field| format!("\"{field}\":{}", owner.get(field).unwrap_or(&json!(""))))
        .collect();
    for field in ["controller", "blockOwnerDeletion"] {
        if let Some(value) = owner.get(field).filter(|value| !value.is_null()) {
            fields.push(format!("\"{field}\":{value}"));
        }
    }
    format!("{{{}}}", fields.join(","))
}

/// Adds an error of the form `path: Invalid value: <printed>: detail`, for values that are not printed with their
/// fields in alphabetical order.
pub(crate) fn invalid_printed(path: impl Into<FieldPath>, printed: &str, detail: &str, errors: &mut FieldErrors) {
    errors.push(crate::api::field::FieldError {
        path: path.into(),
        kind: crate::api::field::FieldErrorKind::Invalid,
        value: None,
        detail: match detail {
            "" => printed.to_owned(),
            _ => format!("{printed}: {detail}"),
        },
    });
}

/// Checks finalizers (rules B23, B25).
fn validate_finalizers(object: &Object, errors: &mut FieldErrors) {
    let (mut foreground, mut orphan) = (false, false);
    for name in object.finalizers() {
        for text in names::qualified_name(name) {
            errors.invalid(path("finalizers"), name, text);
        }
        foreground |= name == FOREGROUND_FINALIZER;
        orphan |= name == ORPHAN_FINALIZER;
    }
    if foreground && orphan {
        let all: Vec<&str> = object.finalizers().collect();
        let text = "finalizer orphan and foregroundDeletion cannot be both set";
        errors.invalid(path("finalizers"), all, text);
    }
}

/// Checks that the finalizers of a built-in kind are standard finalizers or have a domain (rule B25).
fn validate_finalizer_names(object: &Object, errors: &mut FieldErrors) {
    for (index, name) in object.finalizers().enumerate() {
        validate_finalizer_name(name, || path("finalizers").index(index), errors);
    }
}

/// Checks that a finalizer is a standard finalizer of Kubernetes or has a domain.
pub(crate) fn validate_finalizer_name(name: &str, path: impl Fn() -> FieldPath, errors: &mut FieldErrors) {
    if !name.contains('/') && !is_known_finalizer(name) {
        let text = "name is neither a standard finalizer name nor is it fully qualified";
        errors.invalid(path(), name, text);
    }
}

fn is_known_finalizer(name: &str) -> bool {
    matches!(name, "kubernetes" | ORPHAN_FINALIZER | FOREGROUND_FINALIZER)
}

/// Checks that an update does not add finalizers to an object that is being deleted (rule B15).
fn validate_no_new_finalizers(new: &Object, old: &Object, errors: &mut FieldErrors) {
    let mut added: Vec<&str> = new
        .finalizers()
        .filter(|name| old.finalizers().all(|it| it != *name))
        .collect();
    if added.is_empty() {
        return;
    }
    added.sort_unstable();
    added.dedup();
    let added: Vec<String> = added.into_iter().map(crate::api::field::quote).collect();
    let text = format!(
        "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
        added.join(", ")
    );
    errors.forbidden(path("finalizers"), text);
}

fn validate_managed_fields(meta: Option<&Map>, errors: &mut FieldErrors) {
    let entries = meta
        .and_then(|meta| meta.get("managedFields"))
        .and_then(Value::as_array);
    for (index, entry) in entries.into_iter().flatten().enumerate() {
        let text = |field| entry.get(field).and_then(Value::as_str).unwrap_or_default();
        let at = |field| path("managedFields").index(index).child(field);
        match text("operation") {
            "Apply" | "Update" => {}
            "" => errors.required(at("operation"), "must not be empty"),
            other => errors.not_supported(at("operation"), other, &["Apply", "Update"]),
        }
        if !matches!(text("fieldsType"), "" | "FieldsV1") {
            errors.invalid(at("fieldsType"), text("fieldsType"), "must be `FieldsV1`");
        }
        for (field, max) in [("manager", 128), ("subresource", 256)] {
            if text(field).len() > max {
                errors.too_long(at(field), max);
            }
        }
    }
}

fn path(field: &str) -> FieldPath {
    FieldPath::new("metadata").child(field)
}

/// Returns the value of a field, unless it is absent or null.
fn present<'a>(meta: &'a Map, field: &str) -> Option<&'a Value> {
    meta.get(field).filter(|value| !value.is_null())
}

fn number(meta: &Map, field: &str) -> i64 {
    meta.get(field).and_then(Value::as_i64).unwrap_or(0)
}

#[cfg(test)]
mod tests;
