//! `Enablement`: disabled built-in APIs, and enabled beta and retired ones, after `MergeAPIResourceConfigs` of
//! k8s.io/apiserver.

use std::collections::{BTreeMap, BTreeSet};

use super::Row;
use crate::api::kubernetes_version::KubernetesVersion;
use crate::registry::types::schema::optional::{OptionalVersion, Stage, optional_resources, optional_versions};
use crate::registry::types::schema::served::all_builtins;

type Resource = (&'static str, &'static str, &'static str);

/// Groups of kube-apiserver without a version that is served by default.
const OTHER_GROUPS: [&str; 2] = ["internal.apiserver.k8s.io", "storagemigration.k8s.io"];

/// The built-in resources that differ from the default: group, version and plural.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Enablement {
    /// APIs that are not served.
    off: BTreeSet<Resource>,
    /// Served resources of versions that are off by default.
    on: BTreeSet<Resource>,
}

/// The resources of versions that are off by default and meet a condition, in any version of Kubernetes.
fn optional(is_meant: impl Fn(&OptionalVersion, &str) -> bool) -> BTreeSet<Resource> {
    let all = KubernetesVersion::ALL.into_iter().flat_map(optional_resources);
    let meant = all.filter(|(version, info)| is_meant(version, &info.resource));
    meant
        .map(|(_, info)| (&*info.group, &*info.version, &*info.resource))
        .collect()
}

impl Enablement {
    /// Parses pairs such as `apps/v1=false` or `batch/v1/cronjobs=false`; the last pair with a key applies. Fails with
    /// kube-apiserver's text, or with the name of an API that cannot be enabled or disabled here.
    pub(crate) fn parse<'a>(pairs: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let mut values = BTreeMap::new();
        for pair in pairs.into_iter().map(str::trim).filter(|it| !it.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (key, value) = (key.trim(), value.trim());
            // As in `completion.go` of kube-apiserver.
            match key {
                "api/legacy" => {}
                "v1" | "api/v1" => check_core(key, value)?,
                _ if key.starts_with("v1/") || key.starts_with("api/v1/") => check_core(key, value)?,
                _ => drop(values.insert(key, value)),
            }
        }
        if values.len() == 1 && values.get("api/all") == Some(&"false") {
            return Err("invalid runtime-config with only api/all=false".to_owned());
        }
        let mut enablement = Self::default();
        for key in ["api/all", "api/ga", "api/beta", "api/alpha"] {
            if let Some(value) = values.remove(key) {
                enablement.set_stage(key, value)?;
            }
        }
        // Versions are applied first, so that resources take precedence.
        for parts in [2, 3] {
            for (key, value) in values.iter().filter(|(key, _)| version_parts(key) == parts) {
                enablement.set(key, value)?;
            }
        }
        match values.keys().find(|key| !(2..=3).contains(&version_parts(key))) {
            Some(key) => Err(format!("invalid key {key}")),
            None => Ok(enablement),
        }
    }

    /// Enables versions that Kubernetes has removed, such as `policy/v1beta1`. Fails with the first version that cannot
    /// be enabled.
    pub(crate) fn retire<'a>(&mut self, versions: impl IntoIterator<Item = &'a str>) -> Result<(), String> {
        for name in versions.into_iter().map(str::trim).filter(|it| !it.is_empty()) {
            let is_it =
                |it: &OptionalVersion| it.stage == Stage::Retired && name == format!("{}/{}", it.group, it.version);
            let resources = optional(|it, _| is_it(it));
            if resources.is_empty() {
                return Err(format!(
                    "{name} is not one of the retired APIs that are supported here: {}",
                    retired_names()
                ));
            }
            self.on.extend(resources);
        }
        Ok(())
    }

    /// Returns `true` if a built-in resource is served.
    pub(crate) fn allows(&self, row: &Row) -> bool {
        if !row.is_optional && self.off.is_empty() {
            return true;
        }
        let info = &row.info;
        let is_it = |it: &Resource| *it == (&*info.group, &*info.version, &*info.resource);
        match row.is_optional {
            true => self.on.iter().any(is_it),
            false => !self.off.iter().any(is_it),
        }
    }

    /// Enables or disables all versions of a stage. No alpha versions exist here.
    fn set_stage(&mut self, key: &str, value: &str) -> Result<(), String> {
        let is_on = match value {
            "true" => true,
            "false" => false,
            _ => return Err(format!("invalid value {key}={value}")),
        };
        if matches!(key, "api/all" | "api/ga") {
            // The core group cannot be disabled, because the server itself needs it.
            let rows = all_builtins().filter(|row| !is_on && !row.group.is_empty());
            self.off = rows.map(|row| (&*row.group, &*row.version, &*row.resource)).collect();
        }
        if matches!(key, "api/all" | "api/beta") {
            self.on = optional(|it, _| is_on && it.stage == Stage::Beta);
        }
        Ok(())
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let is_on = parse_bool(key, value)?;
        let (group, rest) = match key.split_once('/') {
            Some((group, rest)) if version_parts(key) == key.split('/').count() => (group, rest),
            _ => ("", key),
        };
        let (version, resource) = rest.split_once('/').unwrap_or((rest, ""));
        if resource.to_lowercase() != resource {
            return Err(format!(
                "invalid key {key}: group/version/resource and resource is always lowercase plural, not {resource:?}"
            ));
        }
        let mut known = all_builtins().filter(|row| row.group == group).peekable();
        if known.peek().is_none() && !OTHER_GROUPS.contains(&group) {
            return Err(format!("unknown api groups {group}/{version}"));
        }
        let is_it = |row: &&&crate::api::resource::ResourceInfo| {
            row.version == version && (resource.is_empty() || row.resource == resource)
        };
        let rows: Vec<_> = known.collect();
        let mut found = rows
            .iter()
            .filter(is_it)
            .map(|row| (&*row.group, &*row.version, &*row.resource))
            .peekable();
        let is_meant = |it: &OptionalVersion, name: &str| {
            it.group == group && it.version == version && (resource.is_empty() || name == resource)
        };
        let optional = optional(|it, name| it.stage == Stage::Beta && is_meant(it, name));
        match is_on {
            true if !optional.is_empty() => self.on.extend(optional),
            false if !optional.is_empty() => self.on.retain(|it| !optional.contains(it)),
            true if found.peek().is_none() => {
                return Err(format!(
                    "{key} is not served here, and cannot be turned on{}",
                    hint(group, version)
                ));
            }
            true => {
                let found: BTreeSet<_> = found.collect();
                self.off.retain(|it| !found.contains(it));
            }
            false => self.off.extend(found),
        }
        Ok(())
    }
}

/// Checks a pair about the core group, which is always on.
fn check_core(key: &str, value: &str) -> Result<(), String> {
    match parse_bool(key, value)? {
        true => Ok(()),
        false => Err(format!("{key}: the core group cannot be turned off here")),
    }
}

fn parse_bool(key: &str, value: &str) -> Result<bool, String> {
    match value {
        "" | "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(false),
        _ => {
            let why = format!("strconv.ParseBool: parsing {value:?}: invalid syntax");
            Err(format!("invalid value of {key}: {value}, err: {why}"))
        }
    }
}

/// The end of the error for a version that can be enabled in another way.
fn hint(group: &str, version: &str) -> &'static str {
    let is_retired = |it: &OptionalVersion| it.stage == Stage::Retired && it.group == group && it.version == version;
    match optional(|it, _| is_retired(it)).is_empty() {
        true => "",
        false => ": Kubernetes has retired it, and --retired-apis turns it on",
    }
}

/// The names of the retired versions that can be enabled.
fn retired_names() -> String {
    let retired = optional_versions(KubernetesVersion::default()).filter(|it| it.stage == Stage::Retired);
    let names = retired.map(|it| format!("{}/{}", it.group, it.version));
    names.collect::<Vec<_>>().join(", ")
}

/// The number of parts of a key: two for a version, three for a resource. The first part of the core group's version is
/// omitted.
fn version_parts(key: &str) -> usize {
    let is_version = |it: &str| {
        it.strip_prefix('v')
            .is_some_and(|it| it.starts_with(|c: char| c.is_ascii_digit()))
    };
    let parts = key.split('/').count();
    let first = key.split('/').next().unwrap_or_default();
    if is_version(first) && !key.is_empty() {
        parts + 1
    } else {
        parts
    }
}
