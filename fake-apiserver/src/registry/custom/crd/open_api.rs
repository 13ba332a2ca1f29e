//! Contents of a CRD's schema that are allowed beyond being structural (rule O4).

use serde_json::{Map, Value};

use super::node::Node;
use super::{defaults, rules, structural};
use crate::api::field::{FieldErrors, FieldPath};

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];

/// The keywords at the root while `/status` is on, by their Go names as the error lists them.
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

/// Checks the schema of a version; `path` ends in `openAPIV3Schema`. `is_stored` says that the version has it already.
pub(super) fn validate(
    schema: &Map<String, Value>,
    has_status: bool,
    is_stored: bool,
    path: &FieldPath,
) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let node = Node(schema);
    if has_status {
        check_root_with_status(node, path, &mut errors);
    }
    if node.flag("nullable") {
        errors.forbidden(path.child("nullable"), "nullable cannot be true at the root");
    }
    let unsupported = unsupported_keyword(node);
    if unsupported.is_none() {
        let found = structural::validate(schema, path);
        if found.is_empty() {
            errors.extend(defaults::validate(schema, path));
        } else {
            errors.extend(found);
        }
    }
    walk(node, path, Place::root(), &mut errors);
    if errors.is_empty() {
        rules::validate_meaning(node, path, is_stored, &mut errors);
    }
    if errors.is_empty()
        && let Some(text) = unsupported
    {
        errors.invalid(path.clone(), "", text);
    }
    errors
}

fn check_root_with_status(node: Node<'_>, path: &FieldPath, errors: &mut FieldErrors) {
    let kind = node.text("type");
    if !kind.is_empty() && kind != "object" {
        let text =
            "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
        return errors.invalid(path.child("type"), kind, text);
    }
    let is_allowed = |key: &String| AT_ROOT_WITH_STATUS.iter().any(|(allowed, _)| allowed == key);
    if node
        .0
        .iter()
        .any(|(key, value)| !is_allowed(key) && *value != Value::Bool(false))
    {
        let names: Vec<&str> = AT_ROOT_WITH_STATUS.iter().map(|(_, name)| *name).collect();
        let text = format!(
            "only [{}] fields are allowed at the root of the schema if the status subresource is enabled",
            names.join(" ")
        );
        errors.invalid(path.clone(), Value::Object(node.0.clone()), text);
    }
}

/// A keyword that no structural schema can be made of, anywhere.
fn unsupported_keyword(node: Node<'_>) -> Option<String> {
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
            "additionalItems" => node.has(key),
            _ => node.has_some(key),
        };
        let keyword = UNSUPPORTED.iter().find(|(key, _)| has(key));
        found = match keyword {
            Some((_, name)) => Some(format!("OpenAPIV3Schema '{name}' is not supported")),
            None if node.0.get("items").is_some_and(Value::is_array) => {
                Some("OpenAPIV3Schema 'items' must be a schema, but is an array".to_owned())
            }
            None if node.0.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) => {
                let text = "internal error: 'x-kubernetes-preserve-unknown-fields' must be true or undefined";
                Some(text.to_owned())
            }
            None => None,
        };
    });
    found
}

/// Context of a schema.
#[derive(Clone, Copy)]
struct Place<'a> {
    is_root: bool,
    in_metadata: bool,
    /// Reason for which there may be no default here.
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

fn walk(node: Node<'_>, path: &FieldPath, place: Place<'_>, errors: &mut FieldErrors) {
    check_keywords(node, path, place, errors);
    let is_root = place.is_root;
    let below = Place {
        is_root: false,
        ..place
    };
    if node.has_additional() {
        let allows = node.0.get("additionalProperties") != Some(&Value::Bool(true));
        let additional = path.child("additionalProperties");
        if node.properties().next().is_some() && allows {
            let text = "additionalProperties and properties are mutual exclusive";
            errors.forbidden(additional.clone(), text);
        }
        let mut place = below;
        if place.in_metadata {
            place.forbids_default = Some("inside additionalProperties applying to object metadata");
        }
        if let Some(schema) = node.schema("additionalProperties") {
            walk(schema, &additional, place, errors);
        }
    }
    for (name, property) in node.properties() {
        let mut place = below;
        let reason = format!("in top-level {name}");
        let is_resource = is_root || node.flag("x-kubernetes-embedded-resource");
        if is_resource && matches!(name, "metadata" | "kind" | "apiVersion") {
            place.in_metadata = true;
            if is_root {
                place.forbids_default = Some(&reason);
            }
        }
        walk(property, &path.child("properties").key(name), place, errors);
    }
    for (junctor, index, branch) in node.branches() {
        let path = path.child(junctor);
        let path = index.map_or(path.clone(), |index| path.index(index));
        walk(branch, &path, below, errors);
    }
    if let Some(items) = node.schema("items") {
        walk(items, &path.child("items"), below, errors);
    }
    check_map_type(node, path, errors);
    check_list_type(node, path, errors);
    rules::validate(node, path, errors);
}

/// The keywords of one schema by themselves.
fn check_keywords(node: Node<'_>, path: &FieldPath, place: Place<'_>, errors: &mut FieldErrors) {
    let kind = node.text("type");
    if !kind.is_empty() && !TYPES.contains(&kind) {
        errors.not_supported(path.child("type"), kind, &TYPES);
    }
    if let Some(reason) = place.forbids_default.filter(|_| node.has("default")) {
        errors.forbidden(path.child("default"), format!("must not be set {reason}"));
    }
    for key in [
        "id",
        "additionalItems",
        "patternProperties",
        "definitions",
        "dependencies",
        "$ref",
    ] {
        // of the others an empty one is there, too
        let may_be_empty = matches!(key, "id" | "patternProperties" | "definitions");
        if node.has(key) && (!may_be_empty || node.has_some(key)) {
            errors.forbidden(path.child(key), format!("{key} is not supported"));
        }
    }
    if kind == "null" {
        let text = "type cannot be set to null, use nullable as an alternative";
        errors.forbidden(path.child("type"), text);
    }
    if node.0.get("items").is_some_and(Value::is_array) {
        errors.forbidden(path.child("items"), "items must be a schema object and not an array");
    }
    if place.in_metadata && node.flag("x-kubernetes-embedded-resource") {
        let text = "must not be used inside of resource meta";
        errors.forbidden(path.child("x-kubernetes-embedded-resource"), text);
    }
    if node.flag("uniqueItems") {
        let text = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        errors.forbidden(path.child("uniqueItems"), text);
    }
    let preserve = "x-kubernetes-preserve-unknown-fields";
    if node.0.get(preserve) == Some(&Value::Bool(false)) {
        errors.invalid(path.child(preserve), false, "must be true or undefined");
    }
}

fn check_map_type(node: Node<'_>, path: &FieldPath, errors: &mut FieldErrors) {
    if !node.has("x-kubernetes-map-type") {
        return;
    }
    require_type(
        node,
        "object",
        "must be object if x-kubernetes-map-type is specified",
        path,
        errors,
    );
    let map_type = node.text("x-kubernetes-map-type");
    if !matches!(map_type, "atomic" | "granular") {
        let path = path.child("x-kubernetes-map-type");
        errors.not_supported(path, map_type, &["atomic", "granular"]);
    }
}

fn require_type(node: Node<'_>, wanted: &str, text: &str, path: &FieldPath, errors: &mut FieldErrors) {
    let kind = node.text("type");
    if kind.is_empty() {
        errors.required(path.child("type"), text);
    } else if kind != wanted {
        errors.invalid(path.child("type"), kind, text);
    }
}

fn check_list_type(node: Node<'_>, path: &FieldPath, errors: &mut FieldErrors) {
    let list_path = path.child("x-kubernetes-list-type");
    let list_type = node
        .has("x-kubernetes-list-type")
        .then(|| node.text("x-kubernetes-list-type"));
    if let Some(list_type) = list_type {
        if node.text("type") != "array" {
            require_type(
                node,
                "array",
                "must be array if x-kubernetes-list-type is specified",
                path,
                errors,
            );
        } else if list_type == "set" {
            check_set_items(node, path, errors);
        }
        if !matches!(list_type, "atomic" | "set" | "map") {
            errors.not_supported(list_path.clone(), list_type, &["atomic", "set", "map"]);
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
        check_map_list(node, path, errors);
    }
    if let (Some(list_type @ ("set" | "map")), Some(items)) = (list_type, node.schema("items")) {
        let path = path.child("items");
        if items.flag("nullable") {
            let text = format!("cannot be nullable when x-kubernetes-list-type is {list_type}");
            errors.forbidden(path.child("nullable"), text);
        }
        if list_type == "map" {
            check_map_keys(node, items, &path.child("properties"), errors);
        }
    }
}

fn check_set_items(node: Node<'_>, path: &FieldPath, errors: &mut FieldErrors) {
    let Some(items) = node.schema("items") else { return };
    let key = match items.text("type") {
        "array" if !matches!(items.text("x-kubernetes-list-type"), "" | "atomic") => "x-kubernetes-list-type",
        "object" if items.text("x-kubernetes-map-type") != "atomic" => "x-kubernetes-map-type",
        _ => return,
    };
    // The real server prints the list type in both cases.
    let shown = items.0.get("x-kubernetes-list-type").cloned().unwrap_or_default();
    let text = "must be atomic as item of a list with x-kubernetes-list-type=set";
    errors.invalid(path.child("items").child(key), shown, text);
}

fn check_map_list(node: Node<'_>, path: &FieldPath, errors: &mut FieldErrors) {
    let keys = node.list("x-kubernetes-list-map-keys");
    let keys_path = path.child("x-kubernetes-list-map-keys");
    if keys.is_empty() {
        errors.required(keys_path.clone(), "must not be empty if x-kubernetes-list-type is map");
    }
    let items_path = path.child("items");
    let Some(items) = node.schema("items") else {
        return errors.required(items_path, "must have a schema if x-kubernetes-list-type is map");
    };
    let kind = items.text("type");
    if kind != "object" {
        let text = "must be object if parent array's x-kubernetes-list-type is map";
        return errors.invalid(items_path.child("type"), kind, text);
    }
    for (index, key) in keys.iter().enumerate() {
        match items
            .property(key.as_str().unwrap_or_default())
            .map(|it| it.text("type"))
        {
            Some("array" | "object") => {
                let path = items_path.child("properties").key(key.as_str().unwrap_or_default());
                let text = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                errors.invalid(path.child("type"), kind, text);
            }
            Some(_) => {}
            None => {
                let text = "entries must all be names of item properties";
                errors.invalid(keys_path.clone(), keys.to_vec(), text);
            }
        }
        if keys[..index].contains(key) {
            errors.invalid(keys_path.clone(), keys.to_vec(), "must not contain duplicate entries");
        }
    }
}

fn check_map_keys(node: Node<'_>, items: Node<'_>, path: &FieldPath, errors: &mut FieldErrors) {
    for key in node.list("x-kubernetes-list-map-keys").iter().filter_map(Value::as_str) {
        let Some(property) = items.property(key) else { continue };
        let is_required = items.list("required").iter().any(|it| it == key);
        if !is_required && !property.has("default") {
            let text = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required \
                        property";
            errors.required(path.key(key).child("default"), text);
        }
        if property.flag("nullable") {
            let text = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            errors.forbidden(path.key(key).child("nullable"), text);
        }
    }
}
