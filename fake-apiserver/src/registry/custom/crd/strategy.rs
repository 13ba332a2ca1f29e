//! `CrdStrategy`: what a CRD's writes default, keep and check.

use serde_json::{Map, Value, json};

use super::super::definition::condition_is;
use super::super::formats::Format;
use super::super::json_type::JsonType;
use super::{conversion, node, rules, spec, status};
use crate::api::field::{FieldErrors, FieldPath, quote};
use crate::api::object::Object;
use crate::registry::cel;
use crate::registry::kinds::facts::{Facts, FirstDelete, Generation};
use crate::registry::kinds::strategy::{Context, Strategy};
use crate::registry::types::cursor::Cursor;
use crate::registry::types::decode::ROOT_KEYWORDS;
use crate::registry::types::edit::{items_mut, object_mut};

pub(super) const APPROVAL: &str = "api-approved.kubernetes.io";

/// The strategy of CustomResourceDefinitions.
#[derive(Debug)]
pub(crate) struct CrdStrategy;

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
        if let Some(spec) = crd.get_mut("spec").and_then(Value::as_object_mut) {
            default_spec(spec);
        }
        let storage = storage_version(crd).map(str::to_owned);
        let status = crd.entry("status").or_insert_with(empty_status);
        let stored = status.get("storedVersions").and_then(Value::as_array);
        if let (true, Some(storage), Some(status)) = (stored.is_none_or(Vec::is_empty), storage, status.as_object_mut())
        {
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
    }

    fn validate(&self, crd: &Object, errors: &mut FieldErrors) {
        let empty = Map::new();
        let spec = spec_of(crd).unwrap_or(&empty);
        let name = |key: &str| spec.get("names").and_then(|it| it.get(key)).and_then(Value::as_str);
        let group = spec.get("group").and_then(Value::as_str).unwrap_or_default();
        let wanted = format!("{}.{group}", name("plural").unwrap_or_default());
        for field in ["generateName", "name"] {
            let name = crd.meta_str(field);
            if !name.is_empty() && name != wanted {
                let text = "must be spec.names.plural+\".\"+spec.group";
                errors.invalid(FieldPath::new("metadata").child(field), name, text);
            }
        }
        errors.extend(spec::validate(spec, None));
        validate_status(crd, errors);
        validate_approval(crd, None, errors);
        validate_preserve(spec, None, errors);
    }

    fn prepare_for_update(&self, crd: &mut Object, old: &Object, context: &Context<'_>) {
        if !context.subresource.is_empty() {
            return;
        }
        omit_empty_keywords(crd);
        if let Some(status) = old.get("status") {
            crd.insert("status".into(), status.clone());
        }
        let Some(storage) = storage_version(crd).map(Value::from) else {
            return;
        };
        let stored = crd.get_mut("status").and_then(|it| it.get_mut("storedVersions"));
        if let Some(stored) = stored.and_then(Value::as_array_mut)
            && !stored.contains(&storage)
        {
            stored.push(storage);
        }
    }

    fn validate_update(&self, crd: &Object, old: &Object, errors: &mut FieldErrors, context: &Context<'_>) {
        if !context.subresource.is_empty() {
            return validate_accepted_names(crd, errors);
        }
        let empty = Map::new();
        let (spec, old_spec) = (spec_of(crd).unwrap_or(&empty), spec_of(old).unwrap_or(&empty));
        errors.extend(spec::validate(spec, Some(old_spec)));
        let status = old.get("status").and_then(Value::as_object);
        let established = condition_is(status, "Established", "True");
        spec::validate_immutable(spec, old_spec, established, errors);
        validate_status(crd, errors);
        validate_approval(crd, Some(old), errors);
        validate_preserve(spec, Some(old_spec), errors);
    }

    fn warnings(&self, crd: &Object, old: Option<&Object>) -> Vec<String> {
        let before = old.map(schema_warnings).unwrap_or_default();
        let mut warnings = schema_warnings(crd);
        warnings.retain(|it| !before.contains(it));
        warnings
    }

    fn prepare_for_deletion(&self, crd: &mut Object) {
        status::begin_deletion(crd);
    }
}

fn spec_of(crd: &Object) -> Option<&Map<String, Value>> {
    crd.get("spec")?.as_object()
}

/// A status as Go writes it while nothing is in it.
fn empty_status() -> Value {
    json!({"conditions": null, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": null})
}

fn versions(crd: &Object) -> impl Iterator<Item = &Value> {
    let list = spec_of(crd)
        .and_then(|spec| spec.get("versions"))
        .and_then(Value::as_array);
    list.into_iter().flatten()
}

fn storage_version(crd: &Object) -> Option<&str> {
    let storage = versions(crd).find(|it| it.get("storage") == Some(&Value::Bool(true)));
    storage?.get("name")?.as_str()
}

/// The defaults of a spec (rule O1).
fn default_spec(spec: &mut Map<String, Value>) {
    if let Some(names) = spec.get_mut("names").and_then(Value::as_object_mut) {
        let kind = names.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
        let is_empty = |it: Option<&Value>| it.and_then(Value::as_str).is_none_or(str::is_empty);
        if is_empty(names.get("singular")) && !kind.is_empty() {
            names.insert("singular".into(), kind.to_lowercase().into());
        }
        if is_empty(names.get("listKind")) && !kind.is_empty() {
            names.insert("listKind".into(), format!("{kind}List").into());
        }
    }
    let conversion = spec.entry("conversion").or_insert(Value::Null);
    if conversion.is_null() {
        *conversion = json!({"strategy": "None"});
    }
    if let Some(conversion) = conversion.as_object_mut() {
        conversion::default(conversion);
    }
    let versions = spec
        .get_mut("versions")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten();
    for version in versions.filter_map(Value::as_object_mut) {
        for flag in ["served", "storage"] {
            version.entry(flag).or_insert(Value::Bool(false));
        }
    }
}

fn validate_status(crd: &Object, errors: &mut FieldErrors) {
    validate_accepted_names(crd, errors);
    let path = FieldPath::new("status").child("storedVersions");
    let stored = crd.get("status").and_then(|it| it.get("storedVersions"));
    let stored = stored.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    if stored.is_empty() {
        return errors.invalid(path, Value::Null, "must have at least one stored version");
    }
    // As in Go, a version that stands there twice is found once.
    let mut left: Vec<&Value> = stored.iter().collect();
    for version in versions(crd) {
        let name = version.get("name").unwrap_or(&Value::Null);
        let found = left.iter().position(|it| *it == name);
        if found.is_none() && version.get("storage") == Some(&Value::Bool(true)) {
            let text = format!("must have the storage version {}", name.as_str().unwrap_or_default());
            errors.invalid(path.clone(), stored.to_vec(), text);
        }
        left.retain(|it| *it != name);
    }
    for (index, version) in stored.iter().enumerate() {
        if !versions(crd).any(|it| it.get("name") == Some(version)) {
            let name = version.as_str().unwrap_or_default();
            let text = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in \
                 spec.versions until a storage migration ensures no data remains persisted in {name} and removes \
                 {name} from status.storedVersions"
            );
            errors.invalid(path.index(index), name, text);
        }
    }
}

fn validate_accepted_names(crd: &Object, errors: &mut FieldErrors) {
    let names = crd.get("status").and_then(|it| it.get("acceptedNames"));
    spec::validate_names(names, &FieldPath::new("status").child("acceptedNames"), errors);
}

/// Groups of the Kubernetes community need an approval (rule O19).
fn validate_approval(crd: &Object, old: Option<&Object>, errors: &mut FieldErrors) {
    let group = spec_of(crd)
        .and_then(|spec| spec.get("group"))
        .and_then(Value::as_str)
        .unwrap_or_default();
    let is_protected = ["k8s.io", "kubernetes.io"].iter().any(|it| {
        group
            .strip_suffix(it)
            .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    });
    if !is_protected {
        return;
    }
    let state = |crd: &Object| {
        let value = approval(crd);
        let is_url = value
            .split_once("://")
            .is_some_and(|(scheme, rest)| !scheme.is_empty() && !rest.is_empty());
        (value.is_empty(), value.starts_with("unapproved"), is_url)
    };
    let (is_missing, is_bypassed, is_url) = state(crd);
    if is_bypassed || is_url || old.is_some_and(|old| state(old) == state(crd)) {
        return;
    }
    let path = FieldPath::new("metadata").child("annotations").key(APPROVAL);
    let see = "see https://github.com/kubernetes/enhancements/pull/1111";
    let rule = format!("protected groups must have approval annotation \"{APPROVAL}\"");
    if is_missing {
        errors.required(path, format!("{rule}, {see}"));
    } else {
        let text = format!("{rule} with either a URL or a reason starting with \"unapproved\", {see}");
        errors.invalid(path, approval(crd), text);
    }
}

fn approval(crd: &Object) -> &str {
    let annotations = crd.metadata().and_then(|meta| meta.get("annotations"));
    annotations
        .and_then(|it| it.get(APPROVAL))
        .and_then(Value::as_str)
        .unwrap_or_default()
}

fn validate_preserve(spec: &Map<String, Value>, old: Option<&Map<String, Value>>, errors: &mut FieldErrors) {
    let preserves = |spec: &Map<String, Value>| spec.get("preserveUnknownFields") == Some(&Value::Bool(true));
    if preserves(spec) && !old.is_some_and(preserves) {
        let text = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema \
                    instead";
        errors.invalid(FieldPath::new("spec").child("preserveUnknownFields"), true, text);
    }
}

/// Warnings about a CRD's schemas: formats that are not enforced, and rules that are not evaluated.
fn schema_warnings(crd: &Object) -> Vec<String> {
    let mut warnings: Vec<String> = Vec::new();
    let mut add = |text: String| {
        if !warnings.contains(&text) {
            warnings.push(text);
        }
    };
    for schema in versions(crd).filter_map(|it| it.pointer("/schema/openAPIV3Schema")) {
        let Some(root) = schema.as_object() else { continue };
        node::Node(root).visit(&mut |node| {
            let format = node.text("format");
            if !format.is_empty() && Format::parse(format, JsonType::parse(node.text("type"))).is_none() {
                add(format!("unrecognized format {}", quote(format)));
            }
        });
        if cel::IS_EVALUATED {
            continue;
        }
        let mut expressions = Vec::new();
        rules::all(schema, &mut expressions);
        for rule in expressions {
            let rule = quote(rule);
            add(format!(
                "x-kubernetes-validations are not evaluated by this server: rule {rule} is not checked"
            ));
        }
    }
    warnings
}

/// Omits the empty lists and maps at the root of schemas, which only versions with a status tell from absent ones.
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
