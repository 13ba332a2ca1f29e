//! `CrdStrategy`: defaults, preserved fields and validation of CRDs.

use std::collections::{BTreeMap, BTreeSet};

use super::super::definition::condition_is;
use super::super::formats::Format;
use super::super::json_type::JsonType;
use super::approval::{self, Approval};
use super::{conversion, defaults, rules, spec, status};
use crate::api::field::{FieldErrors, quote};
use crate::api::json::{Map, Value, json};
use crate::api::kubernetes_version::KubernetesVersion;
use crate::api::object::Object;
use crate::registry::cel;
use crate::registry::kinds::facts::{Facts, FirstDelete, Generation};
use crate::registry::kinds::strategy::{Context, Strategy};
use crate::registry::types::cursor::Cursor;
use crate::registry::types::decode::ROOT_KEYWORDS;
use crate::registry::types::edit::{default_text, default_value, items_mut, object_mut};

/// The strategy of CustomResourceDefinitions.
#[derive(Debug)]
pub(crate) struct CrdStrategy {
    /// The version of Kubernetes.
    pub(crate) version: KubernetesVersion,
}

impl Strategy for CrdStrategy {
    fn facts(&self) -> &Facts {
        &Facts {
            allows_unconditional_update: false,
            generation: Generation::FromCreate,
            first_delete: FirstDelete::Marks,
            ..Facts::DEFAULT
        }
    }

    fn default(&self, crd: &mut Object) {
        if let Some(spec) = object_mut(crd, "spec") {
            default_spec(spec);
        }
        let has_stored = !Cursor::root(crd).is_empty("status.storedVersions");
        let storage = storage_version(crd).map(str::to_owned);
        crd.entry("status").or_insert_with(empty_status);
        if let (false, Some(storage), Some(status)) = (has_stored, storage, object_mut(crd, "status")) {
            status.insert("storedVersions".into(), json!([storage]));
        }
    }

    fn prepare_for_create(&self, crd: &mut Object, _context: &Context<'_>) {
        let mut status = empty_status();
        if let Some(storage) = storage_version(crd) {
            status["storedVersions"] = json!([storage]);
        }
        crd.insert("status".into(), status);
        omit_empty_keywords(crd);
        decode_defaults(crd);
    }

    fn validate(&self, crd: &Object, errors: &mut FieldErrors) {
        let root = Cursor::root(crd);
        let wanted = format!("{}.{}", root.text("spec.names.plural"), root.text("spec.group"));
        for field in ["metadata.generateName", "metadata.name"] {
            let name = root.at(field);
            if !name.is_empty("") && name.as_text() != wanted {
                let text = "must be spec.names.plural+\".\"+spec.group";
                errors.invalid(name, name.as_text(), text);
            }
        }
        errors.extend(spec::validate(self.version, &root.at("spec"), None, false));
        validate_status(&root, errors);
        validate_approval(&root, None, errors);
        validate_preserve(&root, None, errors);
    }

    fn prepare_for_update(&self, crd: &mut Object, old: &Object, context: &Context<'_>) {
        if !context.subresource.is_empty() {
            return;
        }
        omit_empty_keywords(crd);
        decode_defaults(crd);
        if let Some(status) = old.get("status") {
            crd.insert("status".into(), status.clone());
        }
        let Some(storage) = storage_version(crd).map(Value::from) else {
            return;
        };
        let stored = object_mut(crd, "status").and_then(|it| it.get_mut("storedVersions")?.as_array_mut());
        if let Some(stored) = stored
            && !stored.contains(&storage)
        {
            stored.push(storage);
        }
    }

    fn validate_update(&self, crd: &Object, old: &Object, errors: &mut FieldErrors, context: &Context<'_>) {
        if !context.subresource.is_empty() {
            return validate_accepted_names(&Cursor::root(crd), errors);
        }
        let (root, old_root) = (Cursor::root(crd), Cursor::root(old));
        let (spec, old_spec) = (root.at("spec"), old_root.at("spec"));
        let established = condition_is(old, "Established", "True");
        // Stored invalid bundles may be kept (`allowInvalidCABundle`).
        let requires_bundle = established && conversion::invalid_bundle(old).is_none();
        errors.extend(spec::validate(self.version, &spec, Some(&old_spec), requires_bundle));
        spec::validate_immutable(&spec, &old_spec, established, errors);
        validate_status(&root, errors);
        validate_approval(&root, Some(&old_root), errors);
        validate_preserve(&root, Some(&old_root), errors);
    }

    fn warnings(&self, crd: &Object, old: Option<&Object>) -> Vec<String> {
        let before: BTreeSet<String> = old.map(schema_warnings).unwrap_or_default().into_iter().collect();
        let mut warnings = schema_warnings(crd);
        warnings.retain(|it| !before.contains(it));
        warnings
    }

    fn prepare_for_deletion(&self, crd: &mut Object) {
        status::begin_deletion(crd);
    }
}

/// Returns an empty status as encoded by Go.
fn empty_status() -> Value {
    json!({"conditions": null, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": null})
}

fn storage_version(crd: &Object) -> Option<&str> {
    let mut versions = Cursor::root(crd).maps("spec.versions").map(Cursor::root);
    let storage = versions.find(|it| it.is_true("storage"))?;
    storage.get("name")?.as_str()
}

/// Fills in the defaults of a spec (rule O1).
fn default_spec(spec: &mut Map) {
    if let Some(names) = object_mut(spec, "names") {
        let kind = Cursor::root(names).text("kind").to_owned();
        if !kind.is_empty() {
            default_text(names, "singular", &kind.to_lowercase());
            default_text(names, "listKind", &format!("{kind}List"));
        }
    }
    default_value(spec, "conversion", json!({"strategy": "None"}));
    if let Some(service) = object_mut(spec, "conversion.webhook.clientConfig.service") {
        default_value(service, "port", 443);
    }
    for version in items_mut(spec, "versions") {
        default_value(version, "served", false);
        default_value(version, "storage", false);
    }
}

fn validate_status(crd: &Cursor<'_>, errors: &mut FieldErrors) {
    validate_accepted_names(crd, errors);
    let stored = crd.at("status.storedVersions");
    if stored.is_empty("") {
        return errors.invalid(stored, Value::Null, "must have at least one stored version");
    }
    // As in Go, a version is removed when it is found, so a later version with the same name is not found.
    let mut left: BTreeSet<&str> = stored.texts("").collect();
    for version in crd.items("spec.versions") {
        let name = version.text("name");
        if version.is_true("storage") && !left.contains(name) {
            let text = format!("must have the storage version {name}");
            errors.invalid(stored, stored.to_value(), text);
        }
        left.remove(name);
    }
    // As in Go, a version that is listed twice is only reported at its last index.
    let last: BTreeMap<&str, usize> = stored.texts("").zip(0..).collect();
    let declared: BTreeSet<&str> = crd
        .maps("spec.versions")
        .map(|it| Cursor::root(it).text("name"))
        .collect();
    for (index, version) in stored.items("").enumerate() {
        let name = version.as_text();
        if last.get(name) == Some(&index) && !declared.contains(name) {
            let text = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in \
                 spec.versions until a storage migration ensures no data remains persisted in {name} and removes \
                 {name} from status.storedVersions"
            );
            errors.invalid(version, name, text);
        }
    }
}

fn validate_accepted_names(crd: &Cursor<'_>, errors: &mut FieldErrors) {
    spec::validate_names(&crd.at("status.acceptedNames"), errors);
}

/// Checks the approval that is required for API groups of the Kubernetes community (rule O19).
fn validate_approval(crd: &Cursor<'_>, old: Option<&Cursor<'_>>, errors: &mut FieldErrors) {
    let Some(approval) = Approval::of(crd) else { return };
    let keeps = |old: &Cursor<'_>| Approval::of(old).is_some_and(|it| it.is_like(approval));
    let Some(rule) = approval.broken_rule().filter(|_| !old.is_some_and(keeps)) else {
        return;
    };
    let annotation = crd.entry_of("metadata.annotations", approval::ANNOTATION);
    match approval {
        Approval::Missing => errors.required(annotation, rule),
        _ => errors.invalid(annotation, annotation.as_text(), rule),
    }
}

fn validate_preserve(crd: &Cursor<'_>, old: Option<&Cursor<'_>>, errors: &mut FieldErrors) {
    let preserves = |crd: &Cursor<'_>| crd.is_true("spec.preserveUnknownFields");
    if preserves(crd) && !old.is_some_and(preserves) {
        let text = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema \
                    instead";
        errors.invalid(crd.at("spec.preserveUnknownFields"), true, text);
    }
}

/// Returns warnings about a CRD's schemas: for unknown formats, and for rules if the feature `cel` is disabled.
fn schema_warnings(crd: &Object) -> Vec<String> {
    let mut warnings: Vec<String> = Vec::new();
    let mut seen = BTreeSet::new();
    let mut add = |text: String| {
        if seen.insert(text.clone()) {
            warnings.push(text);
        }
    };
    for version in Cursor::root(crd).items("spec.versions") {
        let schema = version.at("schema.openAPIV3Schema");
        schema.visit(&mut |node| {
            let format = node.text("format");
            if !format.is_empty() && Format::parse(format, JsonType::parse(node.text("type"))).is_none() {
                add(format!("unrecognized format {}", quote(format)));
            }
        });
        if cel::IS_EVALUATED {
            continue;
        }
        rules::visit(&schema, &mut |rule| {
            let rule = quote(rule);
            add(format!(
                "x-kubernetes-validations are not evaluated by this server: rule {rule} is not checked"
            ));
        });
    }
    warnings
}

/// Decodes the metadata of embedded objects in defaults.
fn decode_defaults(crd: &mut Object) {
    for version in items_mut(crd, "spec.versions") {
        if let Some(schema) = object_mut(version, "schema.openAPIV3Schema") {
            defaults::decode_embedded(schema);
        }
    }
}

/// Omits empty lists and maps at the root of schemas. Go only keeps these in versions with a status subresource.
fn omit_empty_keywords(crd: &mut Object) {
    for version in items_mut(crd, "spec.versions") {
        if Cursor::root(version).is_set("subresources.status") {
            continue;
        }
        if let Some(schema) = object_mut(version, "schema.openAPIV3Schema") {
            let is_empty = |value: &Value| value == &json!([]) || value == &json!({});
            schema.retain(|key, value| !ROOT_KEYWORDS.contains(&key.as_str()) || !is_empty(value));
        }
    }
}
