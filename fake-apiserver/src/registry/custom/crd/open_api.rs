//! Validation of a CRD's schema (rule O4). `structural.rs` checks that the schema is structural.

use std::collections::BTreeSet;

use super::{defaults, rules, structural};
use crate::api::field::FieldErrors;
use crate::api::json::{SmolStr, Value};
use crate::api::kubernetes_version::KubernetesVersion;
use crate::registry::types::cursor::Cursor;

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];

/// Keywords permitted at the root if `/status` is enabled, with their Go names, which are printed in errors.
const AT_ROOT_WITH_STATUS: [(&str, &str); 22] = [
    ("description", "Description"),
    ("type", "Type"),
    ("format", "Format"),
    ("title", "Title"),
    ("maximum", "Maximum"),
    ("exclusiveMaximum", "ExclusiveMaximum"),
    ("minimum", "Minimum"),
    ("exclusiveMinimum", "ExclusiveMinimum"),
    ("maxLength", "MaxLength"),
    ("minLength", "MinLength"),
    ("pattern", "Pattern"),
    ("maxItems", "MaxItems"),
    ("minItems", "MinItems"),
    ("uniqueItems", "UniqueItems"),
    ("multipleOf", "MultipleOf"),
    ("required", "Required"),
    ("items", "Items"),
    ("properties", "Properties"),
    ("externalDocs", "ExternalDocs"),
    ("example", "Example"),
    ("x-kubernetes-preserve-unknown-fields", "XPreserveUnknownFields"),
    ("x-kubernetes-validations", "XValidations"),
];

/// Checks the schema of a version. `is_stored` is set if the stored CRD has the same schema for this version.
pub(super) fn validate(
    version: KubernetesVersion,
    node: &Cursor<'_>,
    has_status: bool,
    is_stored: bool,
) -> FieldErrors {
    let mut errors = FieldErrors::new();
    if has_status {
        check_root_with_status(node, &mut errors);
    }
    if node.is_true("nullable") {
        errors.forbidden(node.at("nullable"), "nullable cannot be true at the root");
    }
    let unsupported = unsupported_keyword(node);
    let mut is_structural = unsupported.is_none();
    if is_structural {
        let mut found = structural::validate(node);
        if found.is_empty() {
            found = defaults::validate(version, node);
        }
        is_structural = found.is_empty();
        errors.extend(found);
    }
    let mut found = FieldErrors::new();
    walk(node, Place::root(), &mut found);
    if is_structural {
        let wrong = found.iter().map(|it| it.path.to_string()).collect();
        rules::validate_meaning(version, node, is_stored, &wrong, &mut found);
    }
    errors.extend(found);
    if errors.is_empty()
        && let Some(text) = unsupported
    {
        errors.invalid(node, "", text);
    }
    errors
}

fn check_root_with_status(node: &Cursor<'_>, errors: &mut FieldErrors) {
    let kind = node.text("type");
    if !kind.is_empty() && kind != "object" {
        let text =
            "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
        return errors.invalid(node.at("type"), kind, text);
    }
    let is_allowed = |key: &SmolStr| AT_ROOT_WITH_STATUS.iter().any(|(allowed, _)| allowed == key);
    let mut keywords = node.map_or_empty("").iter();
    if keywords.any(|(key, value)| !is_allowed(key) && *value != Value::Bool(false)) {
        let names: Vec<&str> = AT_ROOT_WITH_STATUS.iter().map(|(_, name)| *name).collect();
        let text = format!(
            "only [{}] fields are allowed at the root of the schema if the status subresource is enabled",
            names.join(" ")
        );
        errors.invalid(node, node.to_value(), text);
    }
}

/// Returns an error for the first keyword or value in the schema that structural schemas must not contain at any level.
fn unsupported_keyword(node: &Cursor<'_>) -> Option<String> {
    const UNSUPPORTED: [(&str, &str); 7] = [
        ("id", "id"),
        ("$schema", "schema"),
        ("$ref", "$ref"),
        ("patternProperties", "patternProperties"),
        ("dependencies", "dependencies"),
        ("additionalItems", "additionalItems"),
        ("definitions", "definitions"),
    ];
    let mut found = None;
    node.visit(&mut |node| {
        if found.is_some() {
            return;
        }
        let has = |key| match key {
            "additionalItems" => node.is_set(key),
            _ => !node.is_empty(key),
        };
        let keyword = UNSUPPORTED.iter().find(|(key, _)| has(key));
        found = match keyword {
            Some((_, name)) => Some(format!("OpenAPIV3Schema '{name}' is not supported")),
            None if node.get("items").is_some_and(Value::is_array) => {
                Some("OpenAPIV3Schema 'items' must be a schema, but is an array".to_owned())
            }
            None if node.flag("x-kubernetes-preserve-unknown-fields") == Some(false) => {
                let text = "internal error: 'x-kubernetes-preserve-unknown-fields' must be true or undefined";
                Some(text.to_owned())
            }
            None => None,
        };
    });
    found
}

/// Position of a schema, which determines the permitted keywords.
#[derive(Clone, Copy)]
struct Place<'a> {
    is_root: bool,
    in_metadata: bool,
    /// Reason why the schema must not have a default, if any.
    forbids_default: Option<&'a str>,
}

impl Place<'_> {
    fn root() -> Self {
        Self {
            is_root: true,
            in_metadata: false,
            forbids_default: None,
        }
    }
}

fn walk(node: &Cursor<'_>, place: Place<'_>, errors: &mut FieldErrors) {
    check_keywords(node, place, errors);
    let is_root = place.is_root;
    let below = Place {
        is_root: false,
        ..place
    };
    let additional = node.at("additionalProperties");
    if additional.is_set("") {
        if node.properties().next().is_some() && additional.flag("") != Some(true) {
            let text = "additionalProperties and properties are mutual exclusive";
            errors.forbidden(additional, text);
        }
        let mut place = below;
        if place.in_metadata {
            place.forbids_default = Some("inside additionalProperties applying to object metadata");
        }
        if let Some(schema) = node.schema("additionalProperties") {
            walk(&schema, place, errors);
        }
    }
    for (name, property) in node.properties() {
        let mut place = below;
        let reason = format!("in top-level {name}");
        let is_resource = is_root || node.is_true("x-kubernetes-embedded-resource");
        if is_resource && matches!(name, "metadata" | "kind" | "apiVersion") {
            place.in_metadata = true;
            if is_root {
                place.forbids_default = Some(&reason);
            }
        }
        walk(&property, place, errors);
    }
    for (_, _, branch) in node.branches() {
        walk(&branch, below, errors);
    }
    if let Some(items) = node.schema("items") {
        walk(&items, below, errors);
    }
    check_map_type(node, errors);
    check_list_type(node, errors);
    rules::validate(node, errors);
}

/// Checks the keywords of one schema, without the schemas inside it.
fn check_keywords(node: &Cursor<'_>, place: Place<'_>, errors: &mut FieldErrors) {
    let kind = node.text("type");
    if !kind.is_empty() && !TYPES.contains(&kind) {
        errors.not_supported(node.at("type"), kind, &TYPES);
    }
    if let Some(reason) = place.forbids_default.filter(|_| node.is_set("default")) {
        errors.forbidden(node.at("default"), format!("must not be set {reason}"));
    }
    for key in [
        "id",
        "additionalItems",
        "patternProperties",
        "definitions",
        "dependencies",
        "$ref",
    ] {
        // For all other keywords, an empty value is an error as well.
        let may_be_empty = matches!(key, "id" | "patternProperties" | "definitions");
        if node.is_set(key) && (!may_be_empty || !node.is_empty(key)) {
            errors.forbidden(node.at(key), format!("{key} is not supported"));
        }
    }
    if kind == "null" {
        let text = "type cannot be set to null, use nullable as an alternative";
        errors.forbidden(node.at("type"), text);
    }
    if node.get("items").is_some_and(Value::is_array) {
        errors.forbidden(node.at("items"), "items must be a schema object and not an array");
    }
    if place.in_metadata && node.is_true("x-kubernetes-embedded-resource") {
        let text = "must not be used inside of resource meta";
        errors.forbidden(node.at("x-kubernetes-embedded-resource"), text);
    }
    if node.is_true("uniqueItems") {
        let text = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        errors.forbidden(node.at("uniqueItems"), text);
    }
    let preserve = "x-kubernetes-preserve-unknown-fields";
    if node.flag(preserve) == Some(false) {
        errors.invalid(node.at(preserve), false, "must be true or undefined");
    }
}

fn check_map_type(node: &Cursor<'_>, errors: &mut FieldErrors) {
    if !node.is_set("x-kubernetes-map-type") {
        return;
    }
    let text = "must be object if x-kubernetes-map-type is specified";
    require_type(node, "object", text, errors);
    let map_type = node.at("x-kubernetes-map-type");
    map_type.check_supported(&["atomic", "granular"], errors);
}

fn require_type(node: &Cursor<'_>, wanted: &str, text: &str, errors: &mut FieldErrors) {
    let kind = node.text("type");
    if kind.is_empty() {
        errors.required(node.at("type"), text);
    } else if kind != wanted {
        errors.invalid(node.at("type"), kind, text);
    }
}

fn check_list_type(node: &Cursor<'_>, errors: &mut FieldErrors) {
    let list_path = node.at("x-kubernetes-list-type");
    let list_type = node
        .is_set("x-kubernetes-list-type")
        .then(|| node.text("x-kubernetes-list-type"));
    if let Some(list_type) = list_type {
        if node.text("type") != "array" {
            let text = "must be array if x-kubernetes-list-type is specified";
            require_type(node, "array", text, errors);
        } else if list_type == "set" {
            check_set_items(node, errors);
        }
        if !matches!(list_type, "atomic" | "set" | "map") {
            errors.not_supported(list_path, list_type, &["atomic", "set", "map"]);
        }
    }
    if !node.list("x-kubernetes-list-map-keys").is_empty() {
        let text = "must be map if x-kubernetes-list-map-keys is non-empty";
        match list_type {
            None => errors.required(list_path, text),
            Some("map") => {}
            Some(other) => errors.invalid(list_path, other, text),
        }
    }
    if list_type == Some("map") {
        check_map_list(node, errors);
    }
    if let (Some(list_type @ ("set" | "map")), Some(items)) = (list_type, node.schema("items")) {
        if items.is_true("nullable") {
            let text = format!("cannot be nullable when x-kubernetes-list-type is {list_type}");
            errors.forbidden(items.at("nullable"), text);
        }
        if list_type == "map" {
            check_map_keys(node, &items, errors);
        }
    }
}

fn check_set_items(node: &Cursor<'_>, errors: &mut FieldErrors) {
    let Some(items) = node.schema("items") else { return };
    let key = match items.text("type") {
        "array" if !matches!(items.text("x-kubernetes-list-type"), "" | "atomic") => "x-kubernetes-list-type",
        "object" if items.text("x-kubernetes-map-type") != "atomic" => "x-kubernetes-map-type",
        _ => return,
    };
    // kube-apiserver prints the list type in both cases.
    let shown = items.get("x-kubernetes-list-type").cloned().unwrap_or_default();
    let text = "must be atomic as item of a list with x-kubernetes-list-type=set";
    errors.invalid(items.at(key), shown, text);
}

fn check_map_list(node: &Cursor<'_>, errors: &mut FieldErrors) {
    let list = node.at("x-kubernetes-list-map-keys");
    let keys = list.list("");
    if keys.is_empty() {
        errors.required(list, "must not be empty if x-kubernetes-list-type is map");
    }
    let Some(items) = node.schema("items") else {
        return errors.required(node.at("items"), "must have a schema if x-kubernetes-list-type is map");
    };
    let kind = items.text("type");
    if kind != "object" {
        let text = "must be object if parent array's x-kubernetes-list-type is map";
        return errors.invalid(items.at("type"), kind, text);
    }
    let mut seen = BTreeSet::new();
    for key in list.texts("") {
        match items.property(key) {
            Some(property) if matches!(property.text("type"), "array" | "object") => {
                let text = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                errors.invalid(property.at("type"), kind, text);
            }
            Some(_) => {}
            None => {
                let text = "entries must all be names of item properties";
                errors.invalid(list, keys.to_vec(), text);
            }
        }
        if !seen.insert(key) {
            errors.invalid(list, keys.to_vec(), "must not contain duplicate entries");
        }
    }
}

fn check_map_keys(node: &Cursor<'_>, items: &Cursor<'_>, errors: &mut FieldErrors) {
    for key in node.texts("x-kubernetes-list-map-keys") {
        let Some(property) = items.property(key) else { continue };
        let is_required = items.texts("required").any(|it| it == key);
        if !is_required && !property.is_set("default") {
            let text = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required \
                        property";
            errors.required(property.at("default"), text);
        }
        if property.is_true("nullable") {
            let text = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            errors.forbidden(property.at("nullable"), text);
        }
    }
}
