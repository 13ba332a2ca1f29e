//! Validation of a CRD's spec (rule O4).
//!
//! kube-apiserver validates an internal type. If all versions have the same value for a field, it has this field at the
//! top level, so that errors contain `spec.validation…` instead of `spec.versions[i]…`.

use std::collections::{BTreeMap, BTreeSet};

use super::{columns, conversion, open_api};
use crate::api::field::{FieldErrors, is_print};
use crate::api::json::{Value, json};
use crate::api::kubernetes_version::KubernetesVersion;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::names::{dns1035_label, dns1123_subdomain};

/// Path of the schema in a version.
const SCHEMA: &str = "schema.openAPIV3Schema";

/// Checks `spec` in a version of Kubernetes; `old` is the stored spec of an update. An invalid CA bundle of a
/// conversion webhook is an error if `requires_bundle` is set.
pub(super) fn validate(
    version: KubernetesVersion,
    spec: &Cursor<'_>,
    old: Option<&Cursor<'_>>,
    requires_bundle: bool,
) -> FieldErrors {
    let mut errors = FieldErrors::new();
    check_group(&spec.at("group"), &mut errors);
    spec.at("scope")
        .check_required_one_of(&["Cluster", "Namespaced"], &mut errors);
    let versions = Versions::of(version, spec, old);
    versions.require_schemas(&mut errors);
    let preserves = spec.at("preserveUnknownFields");
    if preserves.is_true("") && versions.has_defaults() {
        errors.invalid(preserves, true, "must be false in order to use defaults in the schema");
    }
    versions.validate_each(&mut errors);
    versions.validate_together(&spec.at("versions"), &mut errors);
    let names = spec.at("names");
    for key in ["plural", "singular", "kind", "listKind"] {
        names.at(key).check_required(&mut errors);
    }
    validate_names(&names, &mut errors);
    versions.validate_shared(&mut errors);
    let conversion = spec.at("conversion");
    let strategy = conversion.at("strategy");
    if preserves.is_true("") && conversion.is_set("") && strategy.as_text() != "None" {
        let text = "must be None if spec.preserveUnknownFields is true";
        errors.invalid(strategy, strategy.as_text(), text);
    }
    conversion::validate(&conversion, requires_bundle, &mut errors);
    errors
}

/// Checks immutable fields, and fields that become immutable once the CRD is established.
pub(super) fn validate_immutable(spec: &Cursor<'_>, old: &Cursor<'_>, is_established: bool, errors: &mut FieldErrors) {
    let fields: &[&str] = match is_established {
        true => &["scope", "names.kind", "group", "names.plural"],
        false => &["group", "names.plural"],
    };
    for field in fields {
        spec.at(field).check_unchanged(&old.at(field), errors);
    }
}

fn check_group(group: &Cursor<'_>, errors: &mut FieldErrors) {
    if !group.check_required(errors) {
        return;
    }
    let name = group.as_text();
    let problems = dns1123_subdomain(name, false);
    if !problems.is_empty() {
        errors.invalid(group, name, problems.join(","));
    } else if !name.contains('.') {
        errors.invalid(group, name, "should be a domain with at least one dot");
    }
}

/// Checks the names in the spec, or the accepted names in the status.
pub(super) fn validate_names(names: &Cursor<'_>, errors: &mut FieldErrors) {
    let check = |name: &Cursor<'_>, errors: &mut FieldErrors| {
        let problems = dns1035_label(name.as_text(), false);
        if !problems.is_empty() {
            errors.invalid(name, name.as_text(), problems.join(","));
        }
    };
    for key in ["plural", "singular"].into_iter().filter(|key| !names.is_empty(key)) {
        check(&names.at(key), errors);
    }
    for key in ["kind", "listKind"] {
        let name = names.text(key);
        let problems = dns1035_label(&name.to_lowercase(), false);
        if !name.is_empty() && !problems.is_empty() {
            let rule = problems.join(",");
            let text = format!("may have mixed case, but should otherwise match: {rule}");
            errors.invalid(names.at(key), name, text);
        }
    }
    names.items("shortNames").for_each(|name| check(&name, errors));
    let kind = names.text("kind");
    if !kind.is_empty() && kind == names.text("listKind") {
        errors.invalid(names.at("listKind"), kind, "kind and listKind may not be the same");
    }
    names.items("categories").for_each(|name| check(&name, errors));
}

/// Fields of a version that the internal type has at the top level if they are the same in all versions.
const SHAREABLE: [&str; 4] = ["schema", "subresources", "additionalPrinterColumns", "selectableFields"];

/// `spec.versions`, with the fields that are the same in all versions.
struct Versions<'a> {
    /// The version of Kubernetes that determines the rules.
    of: KubernetesVersion,
    spec: &'a Cursor<'a>,
    list: Vec<Cursor<'a>>,
    /// The versions in the stored CRD, by name.
    old: BTreeMap<&'a str, Cursor<'a>>,
    /// The fields that are the same in all versions.
    shared: BTreeSet<&'static str>,
}

impl<'a> Versions<'a> {
    fn of(of: KubernetesVersion, spec: &'a Cursor<'a>, old: Option<&'a Cursor<'a>>) -> Self {
        let list: Vec<Cursor<'a>> = spec.items("versions").collect();
        let mut known = BTreeMap::new();
        for version in old.into_iter().flat_map(|old| old.items("versions")) {
            known.entry(version.text("name")).or_insert(version);
        }
        let shared = SHAREABLE.into_iter().filter(|key| is_shared(&list, key)).collect();
        Self {
            of,
            spec,
            list,
            old: known,
            shared,
        }
    }

    /// Returns `true` if the stored CRD has the same schema for this version.
    fn has_stored_schema(&self, version: &Cursor<'_>) -> bool {
        let old = self.old.get(version.text("name"));
        old.is_some_and(|old| old.same(version, SCHEMA))
    }

    /// Returns `true` if all versions have the same value for `key`. The internal type then has it at the top level.
    fn share(&self, key: &str) -> bool {
        self.shared.contains(key)
    }

    fn require_schemas(&self, errors: &mut FieldErrors) {
        for version in self.list.iter().filter(|it| !it.is_set(SCHEMA)) {
            errors.required(version.at(SCHEMA), "");
        }
    }

    fn has_defaults(&self) -> bool {
        let mut found = false;
        for version in &self.list {
            version.at(SCHEMA).visit(&mut |node| found |= node.is_set("default"));
        }
        found
    }

    fn validate_each(&self, errors: &mut FieldErrors) {
        for version in &self.list {
            let name = version.at("name");
            let problems = dns1035_label(name.as_text(), false);
            if !problems.is_empty() {
                errors.invalid(name, name.as_text(), problems.join(","));
            }
            check_deprecation(version, errors);
            if !self.share("schema") && version.is_set(SCHEMA) {
                let is_stored = self.has_stored_schema(version);
                let schema = version.at(SCHEMA);
                errors.extend(open_api::validate(self.of, &schema, has_status(version), is_stored));
            }
            self.validate_rest(version, false, errors);
        }
    }

    /// Validates the fields that are the same in all versions once, instead of in each version.
    fn validate_shared(&self, errors: &mut FieldErrors) {
        let Some(first) = self.list.first() else { return };
        if self.share("schema") && first.is_set(SCHEMA) {
            let has_status = self.list.iter().any(has_status);
            let is_stored = self.has_stored_schema(first);
            let schema = self.spec.at("validation.openAPIV3Schema");
            let schema = schema.in_other(first.get(SCHEMA));
            errors.extend(open_api::validate(self.of, &schema, has_status, is_stored));
        }
        self.validate_rest(&self.spec.in_other(first.get("")), true, errors);
    }

    /// Checks subresources, columns and selectable fields. If `shared` is set, checks the fields that are the same in
    /// all versions; otherwise, the fields that differ.
    fn validate_rest(&self, version: &Cursor<'_>, shared: bool, errors: &mut FieldErrors) {
        if self.share("subresources") == shared && version.is_set("subresources.scale") {
            columns::validate_scale(&version.at("subresources.scale"), errors);
        }
        if self.share("additionalPrinterColumns") == shared {
            let columns = version.items("additionalPrinterColumns");
            columns.for_each(|column| columns::validate_column(&column, errors));
        }
        if self.share("selectableFields") == shared && !version.is_empty("selectableFields") {
            // The schema may be at the top level while fields that depend on it are not, and vice versa.
            let schema = version.map(SCHEMA).filter(|_| self.share("schema") == shared);
            columns::validate_selectable(&version.at("selectableFields"), schema, shared, errors);
        }
    }

    fn validate_together(&self, path: &Cursor<'_>, errors: &mut FieldErrors) {
        let mut names = BTreeSet::new();
        if !self.list.iter().all(|it| names.insert(it.text("name"))) {
            errors.invalid(path, self.internal(), "must contain unique version names");
        }
        if self.list.iter().filter(|it| it.is_true("storage")).count() != 1 {
            let text = "must have exactly one version marked as storage version";
            errors.invalid(path, self.internal(), text);
        }
    }

    /// Formats the versions like the internal type: fields that are the same in all versions are null.
    fn internal(&self) -> Value {
        if self.list.is_empty() {
            return Value::Null;
        }
        let or_null = |version: &Cursor<'a>, key: &str| match self.share(key) {
            true => Value::Null,
            false => version.get(key).cloned().unwrap_or_default(),
        };
        let print = |it: &Cursor<'a>| {
            json!({
                "Name": it.text("name"),
                "Served": it.is_true("served"),
                "Storage": it.is_true("storage"),
                "Deprecated": it.is_true("deprecated"),
                "DeprecationWarning": it.get("deprecationWarning").cloned().unwrap_or_default(),
                "Schema": or_null(it, "schema"),
                "Subresources": or_null(it, "subresources"),
                "AdditionalPrinterColumns": or_null(it, "additionalPrinterColumns"),
                "SelectableFields": or_null(it, "selectableFields"),
            })
        };
        self.list.iter().map(print).collect()
    }
}

/// Returns `true` if all versions have the same value for a field. An empty list equals an absent field.
fn is_shared<'a>(versions: &[Cursor<'a>], key: &str) -> bool {
    let value = |it: &Cursor<'a>| it.get(key).filter(|it| !it.as_array().is_some_and(Vec::is_empty));
    versions.iter().all(|it| value(it) == versions.first().and_then(value))
}

fn has_status(version: &Cursor<'_>) -> bool {
    version.is_set("subresources.status")
}

fn check_deprecation(version: &Cursor<'_>, errors: &mut FieldErrors) {
    let Some(at) = version.present("deprecationWarning") else {
        return;
    };
    let warning = at.as_text();
    let mut add = |text: String| errors.invalid(at, warning, text);
    if !version.is_true("deprecated") {
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
