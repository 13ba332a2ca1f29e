//! `Enablement`: disabled built-in APIs, and enabled beta and retired ones, after `MergeAPIResourceConfigs` of
//! k8s.io/apiserver.

use std::collections::{BTreeMap, BTreeSet};

use crate::api::kubernetes_version::KubernetesVersion;
use crate::api::resource::ResourceInfo;
use crate::registry::types::schema::optional::{OptionalResource, optional_resources, retired_versions};
use crate::registry::types::schema::served::{Stage, all_builtins, group_rank};

type Resource = (&'static str, &'static str, &'static str);

/// Gates of kube-apiserver that guard an admission plugin of an API and not its storage.
const PLUGIN_GATES: [&str; 1] = [MUTATING_POLICIES];

/// The gate of the plugin that applies MutatingAdmissionPolicies.
const MUTATING_POLICIES: &str = "MutatingAdmissionPolicy";

/// The built-in resources that differ from the default: group, version and plural.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Enablement {
    /// APIs that are not served.
    off: BTreeSet<Resource>,
    /// Served resources of alpha and beta versions.
    on: BTreeSet<Resource>,
    /// Served resources of versions that Kubernetes has removed.
    retired: BTreeSet<Resource>,
    /// Enabled feature gates, which some of these resources need.
    gates: BTreeSet<&'static str>,
}

/// The resources of versions that are off by default, in any version of Kubernetes.
fn all_optional() -> impl Iterator<Item = &'static OptionalResource> {
    KubernetesVersion::ALL.into_iter().flat_map(optional_resources)
}

/// The resources of versions that are off by default and meet a condition, in any version of Kubernetes.
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
    /// Replaces the enabled and disabled APIs by pairs such as `apps/v1=false` or `batch/v1/cronjobs=false`; the last
    /// pair with a key applies. Retired versions and gates stay. Fails with kube-apiserver's text, or with the name of
    /// an API that cannot be enabled or disabled here.
    pub(crate) fn configure<'a>(&mut self, pairs: impl IntoIterator<Item = &'a str>) -> Result<(), String> {
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

    /// Enables feature gates that APIs need. Fails with the first gate that no API needs.
    pub(crate) fn open<'a>(&mut self, gates: impl IntoIterator<Item = &'a str>) -> Result<(), String> {
        for name in gates {
            let gate = Self::api_gates().find(|it| *it == name);
            let gate = gate.ok_or_else(|| format!("{name} is not a feature gate of an API that is off by default"))?;
            self.gates.insert(gate);
        }
        Ok(())
    }

    /// The gates that APIs need and that are off by default; each may occur several times.
    pub(crate) fn api_gates() -> impl Iterator<Item = &'static str> {
        let gates = all_optional().map(|it| it.off.gate).filter(|it| !it.is_empty());
        gates.chain(PLUGIN_GATES)
    }

    /// Returns `true` if the resources are the ones that a version serves by default.
    pub(super) fn is_default(&self) -> bool {
        self.off.is_empty() && self.on.is_empty() && self.retired.is_empty()
    }

    /// Returns `true` if a resource that is on by default is served.
    pub(super) fn keeps(&self, info: &ResourceInfo) -> bool {
        self.off.is_empty() || !self.off.iter().any(|it| *it == key(info))
    }

    /// Returns `true` if a resource that is off by default is served.
    pub(super) fn adds(&self, it: &OptionalResource) -> bool {
        let is_open = it.off.gate.is_empty() || self.gates.contains(it.off.gate);
        is_open && self.requests(it)
    }

    /// Returns `true` if a resource that is off by default is requested, whether or not its gate is on.
    fn requests(&self, it: &OptionalResource) -> bool {
        let requested = match it.off.stage {
            Stage::Retired => &self.retired,
            Stage::Alpha | Stage::Beta => &self.on,
        };
        requested.iter().any(|on| *on == key(&it.info))
    }

    /// Returns the requested resources that a version of Kubernetes does not serve because a gate is off, each with
    /// that gate.
    pub(crate) fn withheld(&self, version: KubernetesVersion) -> Vec<(String, &'static str)> {
        let needed = optional_resources(version).iter().filter(|it| !it.off.gate.is_empty());
        let requested = needed.filter(|it| self.requests(it) && !self.adds(it));
        let name = |info: &ResourceInfo| format!("{}/{}/{}", info.group, info.version, info.resource);
        requested.map(|it| (name(&it.info), it.off.gate)).collect()
    }

    /// Returns `true` if MutatingAdmissionPolicies apply. From Kubernetes 1.36 on, they always do.
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
            // The core group cannot be disabled, because the server itself needs it.
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
    let name = format!("{group}/{version}");
    match retired_versions().any(|it| it == name) {
        false => "",
        true => ": Kubernetes has retired it, and --retired-apis turns it on",
    }
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
