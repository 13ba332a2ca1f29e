//! The strategies of StorageVersions and StorageVersionMigrations. Follows `pkg/apis/apiserverinternal/validation` and
//! `pkg/apis/storagemigration/validation`.

use std::collections::{BTreeMap, BTreeSet};

use super::facts::Facts;
use super::plain::restore_metadata;
use super::strategy::{Context, Strategy};
use crate::api::field::FieldErrors;
use crate::api::json::Value;
use crate::api::object::Object;
use crate::registry::types::check::IMMUTABLE;
use crate::registry::types::conditions::validate_conditions;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::names;

/// The static properties of both kinds. StorageVersions have a different rule for names.
const CONDITIONAL: Facts = Facts {
    allows_unconditional_update: false,
    ..Facts::DEFAULT
};

/// The strategy of StorageVersions.
#[derive(Debug)]
pub(crate) struct StorageVersion;

impl Strategy for StorageVersion {
    fn facts(&self) -> &Facts {
        &Facts {
            name: |name, _| wrong_in_name(name),
            ..CONDITIONAL
        }
    }

    fn prepare_for_update(&self, object: &mut Object, old: &Object, context: &Context<'_>) {
        if context.subresource == "status" {
            restore_metadata(object, old);
        }
    }

    fn validate_update(&self, object: &Object, _old: &Object, errors: &mut FieldErrors, context: &Context<'_>) {
        if context.subresource == "status" {
            validate_status(&Cursor::root(object).at("status"), errors);
        }
    }
}

/// Returns the errors for an invalid name (`ValidateStorageVersionName`).
fn wrong_in_name(name: &str) -> Vec<String> {
    let Some((group, resource)) = name.rsplit_once('.') else {
        return vec!["name must be in the form of <group>.<resource>".to_owned()];
    };
    let group = names::dns1123_subdomain(group, false).into_iter();
    let resource = names::dns1035_label(resource, false).into_iter();
    let group = group.map(|it| format!("the group segment {it}"));
    group
        .chain(resource.map(|it| format!("the resource segment {it}")))
        .collect()
}

/// Checks the status of a StorageVersion (`validateStorageVersionStatus`).
fn validate_status(status: &Cursor<'_>, errors: &mut FieldErrors) {
    let mut seen = BTreeSet::new();
    for server in status.items("storageVersions") {
        let id = server.text("apiServerID");
        if !seen.insert(id) {
            errors.duplicate(server.at("apiServerID"), id);
        }
        validate_server(&server, errors);
    }
    validate_common_version(status, errors);
    validate_states(status, errors);
}

/// Checks the versions that one API server reports (`validateServerStorageVersion`).
fn validate_server(server: &Cursor<'_>, errors: &mut FieldErrors) {
    server
        .at("apiServerID")
        .check_name(|it| names::dns1123_subdomain(it, false), errors);
    let encoding = server.at("encodingVersion");
    check_api_version(&encoding, errors);
    let decodable = server.at("decodableVersions");
    for version in decodable.items("") {
        check_api_version(&version, errors);
    }
    let is_decodable = |version: &str| decodable.texts("").any(|it| it == version);
    if !is_decodable(encoding.as_text()) {
        let text = format!("decodableVersions must include encodingVersion {}", encoding.as_text());
        errors.invalid(decodable, decodable.to_value(), text);
    }
    for version in server.items("servedVersions") {
        check_api_version(&version, errors);
        let name = version.as_text();
        if !is_decodable(name) {
            let all = decodable.texts("").collect::<Vec<_>>().join(" ");
            let text = format!("individual served version : {name} must be included in decodableVersions : [{all}]");
            errors.invalid(version, name, text);
        }
    }
}

/// Checks that `commonEncodingVersion` equals the encoding version of all servers, and is unset if their versions
/// differ (`validateCommonVersion`).
fn validate_common_version(status: &Cursor<'_>, errors: &mut FieldErrors) {
    let all: BTreeSet<&str> = status
        .maps("storageVersions")
        .map(|it| Cursor::root(it).text("encodingVersion"))
        .collect();
    let actual = all.first().copied().filter(|_| all.len() == 1);
    let common = status.at("commonEncodingVersion");
    match (actual, common.is_set("")) {
        (None, true) => errors.invalid(
            common,
            common.as_text(),
            "should be nil if servers do not agree on the same encoding version, or if there is no server reporting the \
             supported versions yet",
        ),
        (Some(actual), false) => {
            errors.invalid(common, Value::Null, format!("the common encoding version is {actual}"));
        }
        (Some(actual), true) if actual != common.as_text() => {
            let text = format!("the actual common encoding version is {actual}");
            errors.invalid(common, common.as_text(), text);
        }
        _ => {}
    }
}

/// Checks the conditions (`validateStorageVersionCondition`). As in kube-apiserver, error paths lack the field
/// `conditions`.
fn validate_states(status: &Cursor<'_>, errors: &mut FieldErrors) {
    let conditions = status.in_other(status.get("conditions"));
    let mut seen = BTreeMap::new();
    for (at, condition) in conditions.items("").enumerate() {
        let kind = condition.text("type");
        if let Some(first) = seen.insert(kind, at) {
            let text = format!("the type of the condition is not unique, it also appears in conditions[{first}]");
            errors.invalid(condition.at("type"), kind, text);
        }
        for field in ["type", "status"] {
            condition.at(field).check_name(names::qualified_name, errors);
        }
        for field in ["reason", "message"] {
            condition.at(field).check_required(errors);
        }
    }
}

/// Checks the format of an API version (`isValidAPIVersion`).
fn check_api_version(version: &Cursor<'_>, errors: &mut FieldErrors) {
    let problems = wrong_in_api_version(version.as_text());
    if !problems.is_empty() {
        errors.invalid(version, version.as_text(), problems.join(","));
    }
}

fn wrong_in_api_version(text: &str) -> Vec<String> {
    const EMPTY: &str = "must be non-empty";
    let part = |name: &str, text: &str, rule: fn(&str, bool) -> Vec<String>| -> Vec<String> {
        let problems = match text.is_empty() {
            true => vec![EMPTY.to_owned()],
            false => rule(text, false),
        };
        problems.iter().map(|it| format!("{name} part: {it}")).collect()
    };
    let parts: Vec<&str> = text.split('/').collect();
    match parts[..] {
        [version] => part("version", version, names::dns1035_label),
        [group, version] => {
            let mut problems = part("group", group, names::dns1123_subdomain);
            problems.extend(part("version", version, names::dns1035_label));
            problems
        }
        _ => {
            let rule = "a DNS-1035 label, which must consist of lower case alphanumeric characters or '-', start with \
                        an alphabetic character, and end with an alphanumeric character";
            let label = names::mismatch(rule, "[a-z]([-a-z0-9]*[a-z0-9])?", &["my-name", "abc-123"]);
            vec![format!(
                "an apiVersion is {label} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyVersion')"
            )]
        }
    }
}

/// The strategy of StorageVersionMigrations.
#[derive(Debug)]
pub(crate) struct StorageVersionMigration;

impl Strategy for StorageVersionMigration {
    fn facts(&self) -> &Facts {
        &CONDITIONAL
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        let object = Cursor::root(object);
        let resource = object.at("spec.resource.resource");
        if resource.as_text().is_empty() {
            errors.required(resource, "resource is required to be set");
        } else {
            check_joined(&resource, names::dns1035_label, errors);
        }
        let group = object.at("spec.resource.group");
        if !group.as_text().is_empty() {
            check_joined(&group, names::dns1123_subdomain, errors);
        }
    }

    fn prepare_for_update(&self, object: &mut Object, old: &Object, context: &Context<'_>) {
        if context.subresource == "status" {
            restore_metadata(object, old);
        }
    }

    fn validate_update(&self, object: &Object, old: &Object, errors: &mut FieldErrors, context: &Context<'_>) {
        let (new, before) = (Cursor::root(object), Cursor::root(old));
        if context.subresource == "status" {
            return validate_progress(&new.at("status"), &before.at("status"), errors);
        }
        self.validate(object, errors);
        new.at("spec").check_unchanged(&before.at("spec"), errors);
    }
}

/// Reports all problems of a name in one error.
fn check_joined(name: &Cursor<'_>, rule: fn(&str, bool) -> Vec<String>, errors: &mut FieldErrors) {
    let problems = rule(name.as_text(), false);
    if !problems.is_empty() {
        errors.invalid(name, name.as_text(), problems.join(","));
    }
}

/// Checks an updated status of a StorageVersionMigration (`ValidateStorageVersionMigrationStatusUpdate`).
fn validate_progress(new: &Cursor<'_>, old: &Cursor<'_>, errors: &mut FieldErrors) {
    let version = new.at("resourceVersion");
    if let Some(problem) = wrong_in_resource_version(version.as_text()) {
        errors.invalid(version, version.as_text(), problem);
    }
    let conditions = new.at("conditions");
    validate_conditions(&conditions, errors);
    let before = old.text("resourceVersion");
    if !before.is_empty() && before != version.as_text() {
        errors.invalid(version, version.as_text(), IMMUTABLE);
    }
    let ended = |status: &Cursor<'_>, kind: &str| {
        let mut all = status.items("conditions").filter(|it| it.text("type") == kind);
        all.next().is_some_and(|it| it.text("status") == "True")
    };
    if ended(new, "Succeeded") && ended(new, "Failed") {
        let text = "Both success and failed conditions cannot be true at the same time";
        errors.invalid(conditions, conditions.to_value(), text);
    }
    for (kind, name) in [("Succeeded", "Success"), ("Failed", "Failed")] {
        if ended(old, kind) && !ended(new, kind) {
            let text = format!("{name} condition cannot be set to false once it is true");
            errors.invalid(conditions, conditions.to_value(), text);
        }
    }
}

/// Returns the error for a resource version that contains characters other than digits or begins with a zero
/// (`CompareResourceVersion`).
fn wrong_in_resource_version(text: &str) -> Option<String> {
    let is_number = text.bytes().all(|it| it.is_ascii_digit()) && !text.starts_with('0');
    (!is_number).then(|| format!("resource version is not well formed: {text}"))
}
