//! `Enablement`: built-in APIs that are turned off, after `MergeAPIResourceConfigs` of k8s.io/apiserver.

use std::collections::{BTreeMap, BTreeSet};

use crate::registry::types::schema::served::all_builtins;

/// Groups of kube-apiserver of which no version is served by default.
const OTHER_GROUPS: [&str; 2] = ["internal.apiserver.k8s.io", "storagemigration.k8s.io"];

/// The built-in resources that are not served: group, version and plural.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Enablement {
    off: BTreeSet<(&'static str, &'static str, &'static str)>,
}

impl Enablement {
    /// Reads pairs such as `apps/v1=false` or `batch/v1/cronjobs=false`; a later pair with the same key counts. Fails
    /// in kube-apiserver's words, or with the name of an API that cannot be turned on or off here.
    pub(crate) fn parse<'a>(pairs: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let mut values = BTreeMap::new();
        for pair in pairs.into_iter().map(str::trim).filter(|it| !it.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            values.insert(key.trim(), value.trim());
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
        // Versions first, so that resources have the last word.
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

    /// Returns `true` if the resource is served.
    pub(crate) fn allows(&self, group: &str, version: &str, resource: &str) -> bool {
        self.off.is_empty() || !self.off.iter().any(|it| *it == (group, version, resource))
    }

    /// All versions of a stage. Built-in ones here are of the stage `ga`.
    fn set_stage(&mut self, key: &str, value: &str) -> Result<(), String> {
        let is_on = match value {
            "true" => true,
            "false" => false,
            _ => return Err(format!("invalid value {key}={value}")),
        };
        match (key, is_on) {
            ("api/ga", true) | ("api/beta" | "api/alpha", false) => {}
            ("api/all" | "api/ga", false) => {
                // The core group stays, since the server itself needs it.
                let rows = all_builtins().filter(|row| !row.group.is_empty());
                self.off = rows.map(|row| (&*row.group, &*row.version, &*row.resource)).collect();
            }
            _ => return Err(format!("{key}=true: alpha and beta APIs are not served here")),
        }
        Ok(())
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let is_on = match value {
            "" | "1" | "t" | "T" | "TRUE" | "true" | "True" => true,
            "0" | "f" | "F" | "FALSE" | "false" | "False" => false,
            _ => {
                let why = format!("strconv.ParseBool: parsing {value:?}: invalid syntax");
                return Err(format!("invalid value of {key}: {value}, err: {why}"));
            }
        };
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
        match is_on {
            true if found.peek().is_none() => return Err(format!("{key} is not served here, and cannot be turned on")),
            false if group.is_empty() => return Err(format!("{key}: the core group cannot be turned off here")),
            true => {
                let found: BTreeSet<_> = found.collect();
                self.off.retain(|it| !found.contains(it));
            }
            false => self.off.extend(found),
        }
        Ok(())
    }
}

/// The number of parts of a key: two for a version, three for a resource. The core group's version is one of two parts
/// whose first is not written.
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
