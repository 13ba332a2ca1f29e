//! `Enablement`: the disabled built-in APIs, and the enabled alpha, beta and retired APIs (`MergeAPIResourceConfigs` of
//! k8s.io/apiserver).

use std::collections::{BTreeMap, BTreeSet};

use crate::api::kubernetes_version::KubernetesVersion;
use crate::api::resource::ResourceInfo;
use crate::registry::types::schema::optional::{OptionalResource, optional_resources, retired_versions};
use crate::registry::types::schema::served::{Stage, all_builtins, group_rank};

type Resource = (&'static str, &'static str, &'static str);

/// Feature gates that enable the admission plugin of an API instead of its storage.
const PLUGIN_GATES: [&str; 1] = [MUTATING_POLICIES];

/// Feature gate of the plugin that applies MutatingAdmissionPolicies.
const MUTATING_POLICIES: &str = "MutatingAdmissionPolicy";

/// The built-in resources that differ from the default, by group, version and plural.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Enablement {
    /// Resources that are served by default, but disabled.
    off: BTreeSet<Resource>,
    /// Enabled resources of alpha and beta versions.
    on: BTreeSet<Resource>,
    /// Enabled resources of versions that Kubernetes has removed.
    retired: BTreeSet<Resource>,
    /// Enabled feature gates, which some of the resources require.
    gates: BTreeSet<&'static str>,
}

/// Returns the resources that are off by default, for any version of Kubernetes.
fn all_optional() -> impl Iterator<Item = &'static OptionalResource> {
    KubernetesVersion::ALL.into_iter().flat_map(optional_resources)
}

/// Returns the resources that are off by default and match a condition, for any version of Kubernetes.
fn optional(is_meant: impl Fn(&OptionalResource) -> bool) -> BTreeSet<Resource> {
    all_optional()
        .filter(|it| is_meant(it))
        .map(|it| key(&it.info))
        .collect()
}

fn key(info: &ResourceInfo) -> (&str, &str, &str) {
    (&info.group, &info.version, &info.resource)
}

impl Enablement {
    /// Sets the enabled and disabled APIs from pairs such as `apps/v1=false` or `batch/v1/cronjobs=false`. The last
    /// pair with a key applies. Retired versions and feature gates are not changed. Fails with kube-apiserver's error,
    /// or with the name of an API that this server cannot enable or disable.
    pub(crate) fn configure<'a>(&mut self, pairs: impl IntoIterator<Item = &'a str>) -> Result<(), String> {
        let mut values = BTreeMap::new();
        for pair in pairs.into_iter().map(str::trim).filter(|it| !it.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (key, value) = (key.trim(), value.trim());
            // Same as `completion.go` of kube-apiserver.
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
        (self.off, self.on) = Default::default();
        for key in ["api/all", "api/ga", "api/beta", "api/alpha"] {
            if let Some(value) = values.remove(key) {
                self.set_stage(key, value)?;
            }
        }
        // Versions are applied first, so that resources take precedence.
        for parts in [2, 3] {
            for (key, value) in values.iter().filter(|(key, _)| version_parts(key) == parts) {
                self.set(key, value)?;
            }
        }
        match values.keys().find(|key| !(2..=3).contains(&version_parts(key))) {
            Some(key) => Err(format!("invalid key {key}")),
            None => Ok(()),
        }
    }

    /// Enables versions that Kubernetes has removed, such as `policy/v1beta1`. Fails with the first version that cannot
    /// be enabled.
    pub(crate) fn retire<'a>(&mut self, versions: impl IntoIterator<Item = &'a str>) -> Result<(), String> {
        for name in versions.into_iter().map(str::trim).filter(|it| !it.is_empty()) {
            let is_it = |it: &OptionalResource| name == format!("{}/{}", it.info.group, it.info.version);
            let resources = optional(|it| it.off.stage == Stage::Retired && is_it(it));
            if resources.is_empty() {
                return Err(format!(
                    "{name} is not one of the retired APIs that are supported here: {}",
                    retired_versions().collect::<Vec<_>>().join(", ")
                ));
            }
            self.retired.extend(resources);
        }
        Ok(())
    }

    /// Enables feature gates of APIs. Fails with the first gate that no API requires.
    pub(crate) fn open<'a>(&mut self, gates: impl IntoIterator<Item = &'a str>) -> Result<(), String> {
        for name in gates {
            let gate = Self::api_gates().find(|it| *it == name);
            let gate = gate.ok_or_else(|| format!("{name} is not a feature gate of an API that is off by default"))?;
            self.gates.insert(gate);
        }
        Ok(())
    }

    /// Returns the feature gates that are off by default and that APIs require, possibly with duplicates.
    pub(crate) fn api_gates() -> impl Iterator<Item = &'static str> {
        let gates = all_optional().map(|it| it.off.gate).filter(|it| !it.is_empty());
        gates.chain(PLUGIN_GATES)
    }

    /// Returns `true` if exactly the default resources are served.
    pub(super) fn is_default(&self) -> bool {
        self.off.is_empty() && self.on.is_empty() && self.retired.is_empty()
    }

    /// Returns `true` if a resource that is on by default is not disabled.
    pub(super) fn keeps(&self, info: &ResourceInfo) -> bool {
        self.off.is_empty() || !self.off.iter().any(|it| *it == key(info))
    }

    /// Returns `true` if a resource that is off by default is enabled.
    pub(super) fn adds(&self, it: &OptionalResource) -> bool {
        let is_open = it.off.gate.is_empty() || self.gates.contains(it.off.gate);
        is_open && self.requests(it)
    }

    /// Returns `true` if a resource that is off by default is requested, even if its feature gate is off.
    fn requests(&self, it: &OptionalResource) -> bool {
        let requested = match it.off.stage {
            Stage::Retired => &self.retired,
            Stage::Alpha | Stage::Beta => &self.on,
        };
        requested.iter().any(|on| *on == key(&it.info))
    }

    /// Returns the requested resources that a version of Kubernetes does not serve because their feature gate is off,
    /// each with the gate.
    pub(crate) fn withheld(&self, version: KubernetesVersion) -> Vec<(String, &'static str)> {
        let needed = optional_resources(version).iter().filter(|it| !it.off.gate.is_empty());
        let requested = needed.filter(|it| self.requests(it) && !self.adds(it));
        let name = |info: &ResourceInfo| format!("{}/{}/{}", info.group, info.version, info.resource);
        requested.map(|it| (name(&it.info), it.off.gate)).collect()
    }

    /// Returns `true` if MutatingAdmissionPolicies are applied. Since Kubernetes 1.36, they always are.
    pub(crate) fn mutating_policies(&self, version: KubernetesVersion) -> bool {
        version >= KubernetesVersion::V1_36 || self.gates.contains(MUTATING_POLICIES)
    }

    /// Enables or disables all versions of a stage.
    fn set_stage(&mut self, key: &str, value: &str) -> Result<(), String> {
        let is_on = match value {
            "true" => true,
            "false" => false,
            _ => return Err(format!("invalid value {key}={value}")),
        };
        if matches!(key, "api/all" | "api/ga") {
            // The core group cannot be disabled, because the server uses it itself.
            let rows = all_builtins().filter(|row| !is_on && !row.group.is_empty());
            self.off = rows.map(|row| (&*row.group, &*row.version, &*row.resource)).collect();
        }
        let is_meant = |it: &OptionalResource| match it.off.stage {
            Stage::Alpha => matches!(key, "api/all" | "api/alpha"),
            Stage::Beta => matches!(key, "api/all" | "api/beta"),
            Stage::Retired => false,
        };
        let meant = optional(is_meant);
        match is_on {
            true => self.on.extend(meant),
            false => self.on.retain(|it| !meant.contains(it)),
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
        if group_rank(group).is_none() {
            return Err(format!("unknown api groups {group}/{version}"));
        }
        let is_meant = |info: &ResourceInfo| {
            info.group == group && info.version == version && (resource.is_empty() || info.resource == resource)
        };
        let mut found = all_builtins().filter(|it| is_meant(it)).map(self::key).peekable();
        let optional = optional(|it| it.off.stage != Stage::Retired && is_meant(&it.info));
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

/// Checks a pair for the core group, which cannot be disabled.
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

/// Returns the end of the error message, with a hint if the version can be enabled in another way.
fn hint(group: &str, version: &str) -> &'static str {
    let name = format!("{group}/{version}");
    match retired_versions().any(|it| it == name) {
        false => "",
        true => ": Kubernetes has retired it, and --retired-apis turns it on",
    }
}

/// Returns the number of parts of a key: two for a version, three for a resource. For the core group, the omitted group
/// is included.
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
