//! Type checks of the expressions in ValidatingAdmissionPolicies against the kinds that the policies match: computes
//! the warnings in `status.typeChecking` (`typechecking.go` of `k8s.io/apiserver`).

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::api::object::Object;
use crate::registry::cel::check::Type;
use crate::registry::cel::requests::Names;
use crate::registry::scheme::{Row, Scheme};
use crate::registry::types::cursor::Cursor;

/// Number of matches at which the search for the kinds of one rule ends.
const KINDS_MAX: usize = 10;

/// Returns a warning for each expression in the validations that does not compile for one of the matched kinds. A
/// warning consists of the field's path and the errors for all kinds.
pub(crate) fn type_warnings(policy: &Object, scheme: &Scheme) -> Vec<(String, String)> {
    let policy = Cursor::root(policy);
    let spec = policy.at("spec");
    let checks: Vec<(Kind, Names)> = matched_kinds(&spec, scheme)
        .into_iter()
        .filter_map(|kind| Some((names_of(&kind, &spec, scheme)?, kind)))
        .map(|(names, kind)| (kind, names))
        .collect();
    let mut warnings = Vec::new();
    for validation in spec.items("validations") {
        for field in ["expression", "messageExpression"] {
            let expression = validation.at(field);
            let text = expression.as_text();
            if text.is_empty() && field == "messageExpression" {
                continue;
            }
            let wrong = checks.iter().filter_map(|(kind, names)| {
                let errors = names.output(text).err()?;
                Some(format!(
                    "{}/{}, Kind={}: {errors}\n",
                    kind.group, kind.version, kind.kind
                ))
            });
            let wrong: Vec<String> = wrong.collect();
            if !wrong.is_empty() {
                warnings.push((expression.path().to_string(), wrong.join("\n")));
            }
        }
    }
    warnings
}

/// A kind in a version, ordered like the warnings.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    group: String,
    version: String,
    kind: String,
}

impl Kind {
    fn of(row: &Row) -> Self {
        Self {
            group: row.info.group.to_string(),
            version: row.info.version.to_string(),
            kind: row.info.kind.to_string(),
        }
    }

    fn declared(&self, scheme: &Scheme) -> Option<Type> {
        scheme.type_of(&self.group, &self.version, &self.kind)
    }
}

/// Returns the kinds that the rules of a policy match. Skips subresources, wildcards for resources, and rules with
/// wildcards in groups or versions.
fn matched_kinds(spec: &Cursor<'_>, scheme: &Scheme) -> BTreeSet<Kind> {
    let mut kinds = BTreeSet::new();
    for rule in spec.items("matchConstraints.resourceRules") {
        let sorted = |field: &str| {
            let mut texts: Vec<&str> = rule.texts(field).collect();
            texts.sort_unstable();
            texts
        };
        let (groups, versions, mut resources) = (sorted("apiGroups"), sorted("apiVersions"), sorted("resources"));
        if groups.iter().chain(&versions).any(|it| it.contains('*')) {
            continue;
        }
        resources.retain(|it| !it.contains(['*', '/']));
        let mut count = 0;
        for group in groups {
            for version in &versions {
                for resource in &resources {
                    for row in rows_of(scheme, group, version, resource) {
                        kinds.insert(Kind::of(row));
                        count += 1;
                        if count == KINDS_MAX {
                            return kinds;
                        }
                    }
                }
            }
        }
    }
    kinds
}

/// Returns the resources that a `RESTMapper` finds by name. Without a group, all groups are searched.
fn rows_of<'s>(
    scheme: &'s Scheme,
    group: &str,
    version: &str,
    resource: &str,
) -> impl Iterator<Item = &'s Arc<Row>> + use<'s> {
    let (group, version, resource) = (group.to_owned(), version.to_owned(), resource.to_lowercase());
    scheme.rows().filter(move |row| {
        let info = &row.info;
        let is_named = info.resource == *resource || info.singular == *resource;
        is_named && info.version == *version && (group.is_empty() || info.group == *group)
    })
}

/// Returns the variables available to a policy's expressions for objects of a kind; `None` if the kind does not have a
/// schema.
fn names_of(kind: &Kind, spec: &Cursor<'_>, scheme: &Scheme) -> Option<Names> {
    let object = kind.declared(scheme)?;
    let params = spec.present("paramKind").map(|it| {
        let api_version = it.text("apiVersion");
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let kind = Kind {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: it.text("kind").to_owned(),
        };
        kind.declared(scheme).unwrap_or(Type::Dyn)
    });
    let mut names = Names::of_types(scheme.version, &object, params);
    for variable in spec.items("variables") {
        names.declare(variable.text("name"), variable.text("expression"));
    }
    Some(names)
}
