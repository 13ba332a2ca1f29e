//! Validation of a CRD's spec (rule O4).
//!
//! The real server checks an internal form in which what all versions share stands at the top; its errors name
//! `spec.validation…` then, and `spec.versions[i]…` only where versions differ.

use serde_json::{Map, Value, json};

use super::node::Node;
use super::{columns, conversion, open_api};
use crate::api::field::{FieldErrors, FieldPath, is_print};
use crate::registry::types::names::{dns1035_label, dns1123_subdomain};

/// Checks `spec`; `old` is the stored spec of an update.
pub(super) fn validate<'a>(spec: &'a Map<String, Value>, old: Option<&'a Map<String, Value>>) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let path = FieldPath::new("spec");
    let node = Node(spec);
    check_group(node.text("group"), path.child("group"), &mut errors);
    match node.text("scope") {
        "" => errors.required(path.child("scope"), ""),
        "Cluster" | "Namespaced" => {}
        other => errors.not_supported(path.child("scope"), other, &["Cluster", "Namespaced"]),
    }
    let versions = Versions::of(node, old);
    versions.require_schemas(&path, &mut errors);
    if node.flag("preserveUnknownFields") && versions.has_defaults() {
        let text = "must be false in order to use defaults in the schema";
        errors.invalid(path.child("preserveUnknownFields"), true, text);
    }
    versions.validate_each(&path.child("versions"), &mut errors);
    versions.validate_together(&path.child("versions"), &mut errors);
    let names = spec.get("names").and_then(Value::as_object);
    for key in ["plural", "singular", "kind", "listKind"] {
        if names.is_none_or(|names| Node(names).text(key).is_empty()) {
            errors.required(path.child("names").child(key), "");
        }
    }
    validate_names(spec.get("names"), &path.child("names"), &mut errors);
    versions.validate_shared(&path, &mut errors);
    let strategy = node.schema("conversion").map_or("", |it| it.text("strategy"));
    if node.flag("preserveUnknownFields") && node.schema("conversion").is_some() && strategy != "None" {
        let text = "must be None if spec.preserveUnknownFields is true";
        errors.invalid(path.child("conversion").child("strategy"), strategy, text);
    }
    conversion::validate(spec.get("conversion"), &path.child("conversion"), &mut errors);
    errors
}

/// Checks what may never change, or not once the names are accepted.
pub(super) fn validate_immutable(
    spec: &Map<String, Value>,
    old: &Map<String, Value>,
    is_established: bool,
    errors: &mut FieldErrors,
) {
    let at = |spec: &Map<String, Value>, keys: &str| {
        let mut keys = keys.split('.');
        let first = keys.next().and_then(|key| spec.get(key));
        keys.fold(first, |value, key| value?.get(key))
            .cloned()
            .unwrap_or_default()
    };
    let fields: &[&str] = match is_established {
        true => &["scope", "names.kind", "group", "names.plural"],
        false => &["group", "names.plural"],
    };
    for field in fields {
        let value = at(spec, field);
        if value != at(old, field) {
            errors.invalid(FieldPath::new("spec").child(field), value, "field is immutable");
        }
    }
}

fn check_group(group: &str, path: FieldPath, errors: &mut FieldErrors) {
    let problems = dns1123_subdomain(group, false);
    if group.is_empty() {
        errors.required(path, "");
    } else if !problems.is_empty() {
        errors.invalid(path, group, problems.join(","));
    } else if !group.contains('.') {
        errors.invalid(path, group, "should be a domain with at least one dot");
    }
}

/// Checks the forms of `names`, of the spec or accepted ones of the status.
pub(super) fn validate_names(names: Option<&Value>, path: &FieldPath, errors: &mut FieldErrors) {
    let Some(names) = names.and_then(Value::as_object).map(Node) else {
        return;
    };
    for key in ["plural", "singular"] {
        let name = names.text(key);
        let problems = dns1035_label(name, false);
        if !name.is_empty() && !problems.is_empty() {
            errors.invalid(path.child(key), name, problems.join(","));
        }
    }
    for key in ["kind", "listKind"] {
        let name = names.text(key);
        let problems = dns1035_label(&name.to_lowercase(), false);
        if !name.is_empty() && !problems.is_empty() {
            let rule = problems.join(",");
            let text = format!("may have mixed case, but should otherwise match: {rule}");
            errors.invalid(path.child(key), name, text);
        }
    }
    let check_list = |key: &str, errors: &mut FieldErrors| {
        for (index, name) in names.list(key).iter().filter_map(Value::as_str).enumerate() {
            let problems = dns1035_label(name, false);
            if !problems.is_empty() {
                errors.invalid(path.child(key).index(index), name, problems.join(","));
            }
        }
    };
    check_list("shortNames", errors);
    let kind = names.text("kind");
    if !kind.is_empty() && kind == names.text("listKind") {
        errors.invalid(path.child("listKind"), kind, "kind and listKind may not be the same");
    }
    check_list("categories", errors);
}

/// `spec.versions`, and which of their fields all of them share.
struct Versions<'a> {
    list: Vec<Node<'a>>,
    /// Those that are stored.
    old: Vec<Node<'a>>,
}

impl<'a> Versions<'a> {
    fn of(spec: Node<'a>, old: Option<&'a Map<String, Value>>) -> Self {
        let versions = |spec: Node<'a>| spec.list("versions").iter().filter_map(Value::as_object).map(Node);
        Self {
            list: versions(spec).collect(),
            old: old.into_iter().flat_map(|old| versions(Node(old))).collect(),
        }
    }

    /// Returns `true` if a version is stored with the schema it has.
    fn has_stored_schema(&self, version: Node<'a>) -> bool {
        let old = self.old.iter().find(|it| it.text("name") == version.text("name"));
        old.is_some_and(|old| Self::schema(*old) == Self::schema(version))
    }

    /// Returns `true` if all versions have the same value for `key`, which then stands at the top of the internal form.
    fn share(&self, key: &str) -> bool {
        let value = |it: &Node<'a>| it.0.get(key).filter(|it| !is_nothing(it));
        self.list
            .iter()
            .all(|it| value(it) == self.list.first().and_then(value))
    }

    fn schema(version: Node<'a>) -> Option<&'a Map<String, Value>> {
        version.schema("schema")?.schema("openAPIV3Schema").map(|it| it.0)
    }

    fn require_schemas(&self, path: &FieldPath, errors: &mut FieldErrors) {
        for (index, version) in self.list.iter().enumerate() {
            if Self::schema(*version).is_none() {
                let path = path.child("versions").index(index).child("schema");
                errors.required(path.child("openAPIV3Schema"), "");
            }
        }
    }

    fn has_defaults(&self) -> bool {
        let mut found = false;
        for schema in self.list.iter().filter_map(|it| Self::schema(*it)) {
            Node(schema).visit(&mut |node| found |= node.has("default"));
        }
        found
    }

    fn validate_each(&self, path: &FieldPath, errors: &mut FieldErrors) {
        for (index, version) in self.list.iter().enumerate() {
            let path = path.index(index);
            let name = version.text("name");
            let problems = dns1035_label(name, false);
            if !problems.is_empty() {
                errors.invalid(path.child("name"), name, problems.join(","));
            }
            check_deprecation(*version, &path.child("deprecationWarning"), errors);
            if !self.share("schema")
                && let Some(schema) = Self::schema(*version)
            {
                let path = path.child("schema").child("openAPIV3Schema");
                let is_stored = self.has_stored_schema(*version);
                errors.extend(open_api::validate(schema, has_status(*version), is_stored, &path));
            }
            self.validate_rest(*version, false, &path, errors);
        }
    }

    /// Validates the parts that all versions share, once.
    fn validate_shared(&self, path: &FieldPath, errors: &mut FieldErrors) {
        let Some(first) = self.list.first() else { return };
        if self.share("schema")
            && let Some(schema) = Self::schema(*first)
        {
            let has_status = self.list.iter().any(|it| has_status(*it));
            let path = path.child("validation").child("openAPIV3Schema");
            let is_stored = self.has_stored_schema(*first);
            errors.extend(open_api::validate(schema, has_status, is_stored, &path));
        }
        self.validate_rest(*first, true, path, errors);
    }

    /// Subresources, columns and selectable fields, of those that are shared or of those that are not.
    fn validate_rest(&self, version: Node<'a>, shared: bool, path: &FieldPath, errors: &mut FieldErrors) {
        if self.share("subresources") == shared
            && let Some(scale) = version.schema("subresources").and_then(|it| it.schema("scale"))
        {
            columns::validate_scale(scale, &path.child("subresources"), errors);
        }
        if self.share("additionalPrinterColumns") == shared {
            for (index, column) in version.list("additionalPrinterColumns").iter().enumerate() {
                let path = path.child("additionalPrinterColumns").index(index);
                columns::validate_column(column, &path, errors);
            }
        }
        if self.share("selectableFields") == shared && !version.list("selectableFields").is_empty() {
            let path = path.child("selectableFields");
            columns::validate_selectable(version, Self::schema(version), shared, &path, errors);
        }
    }

    fn validate_together(&self, path: &FieldPath, errors: &mut FieldErrors) {
        let names: Vec<&str> = self.list.iter().map(|it| it.text("name")).collect();
        if names
            .iter()
            .enumerate()
            .any(|(index, name)| names[..index].contains(name))
        {
            errors.invalid(path.clone(), self.internal(), "must contain unique version names");
        }
        if self.list.iter().filter(|it| it.flag("storage")).count() != 1 {
            let text = "must have exactly one version marked as storage version";
            errors.invalid(path.clone(), self.internal(), text);
        }
    }

    /// The versions as the internal form is printed. What versions do not share is printed as sent.
    fn internal(&self) -> Value {
        if self.list.is_empty() {
            return Value::Null;
        }
        let or_null = |version: &Node<'a>, key: &str| match self.share(key) {
            true => Value::Null,
            false => version.0.get(key).cloned().unwrap_or_default(),
        };
        let print = |it: &Node<'a>| {
            json!({
                "Name": it.text("name"),
                "Served": it.flag("served"),
                "Storage": it.flag("storage"),
                "Deprecated": it.flag("deprecated"),
                "DeprecationWarning": it.0.get("deprecationWarning").cloned().unwrap_or_default(),
                "Schema": or_null(it, "schema"),
                "Subresources": or_null(it, "subresources"),
                "AdditionalPrinterColumns": or_null(it, "additionalPrinterColumns"),
                "SelectableFields": or_null(it, "selectableFields"),
            })
        };
        self.list.iter().map(print).collect()
    }
}

fn is_nothing(value: &Value) -> bool {
    value.is_null() || value.as_array().is_some_and(Vec::is_empty)
}

fn has_status(version: Node<'_>) -> bool {
    version.schema("subresources").is_some_and(|it| it.has("status"))
}

fn check_deprecation(version: Node<'_>, path: &FieldPath, errors: &mut FieldErrors) {
    let Some(warning) = version.0.get("deprecationWarning").and_then(Value::as_str) else {
        return;
    };
    let mut add = |text: String| errors.invalid(path.clone(), warning, text);
    if !version.flag("deprecated") {
        return add("can only be set for deprecated versions".into());
    }
    if warning.len() > 256 {
        add("must be <= 256 characters long".into());
    }
    if warning.is_empty() {
        add("must not be an empty string".into());
    }
    if let Some((index, _)) = warning.char_indices().find(|(_, c)| !is_print(*c)) {
        let text = "must only contain printable UTF-8 characters; non-printable character found at index";
        add(format!("{text} {index}"));
    }
}
