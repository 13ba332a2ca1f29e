//! `Enablement`: the disabled built-in APIs, and the enabled alpha, beta and retired APIs (`MergeAPIResourceConfigs` of
//! k8s.io/apiserver).

use std::collections::{BTreeMap, BTreeSet};

use crate::api::kubernetes_version::KubernetesVersion;
use crate::api::resource::ResourceInfo;
use crate::registry::types::schema::optional::{OptionalResource, optional_resources, retired_versions};
use crate::registry::types::schema::served::{Stage, all_builtins, builtins, is_registered, versions_of};

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
    /// The versions and resources that were enabled or disabled by name.
    named: BTreeMap<Named, bool>,
    /// Enabled feature gates, which some of the resources require.
    gates: BTreeSet<&'static str>,
}

/// A version or a resource of a built-in API, parsed from a key of `--runtime-config`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Named {
    group: String,
    version: String,
    /// Empty for a version.
    resource: String,
}

impl Named {
    /// Parses a key like `ParseGroupVersions` of k8s.io/apiserver.
    fn parse(key: &str) -> Result<Self, String> {
        let (group, version, resource) = match *key.split('/').collect::<Vec<_>>() {
            [group, version] => (group, version, ""),
            [group, version, resource] => (group, version, resource),
            _ => return Err(format!("invalid key {key}")),
        };
        let [group, version, resource] = [group, version, resource].map(str::to_owned);
        Ok(Self {
            group,
            version,
            resource,
        })
    }

    /// Returns the name of the version: `group/version`.
    fn api_version(&self) -> String {
        format!("{}/{}", self.group, self.version)
    }

    /// Returns `true` if the name includes a resource.
    fn includes(&self, info: &ResourceInfo) -> bool {
        info.group == self.group
            && info.version == self.version
            && (self.resource.is_empty() || info.resource == self.resource)
    }
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
    /// Sets the enabled and disabled APIs from pairs such as `apps/v1=false` or `batch/v1/cronjobs=false`. If a key
    /// occurs several times, its last pair applies. Retired versions and feature gates are not changed. Fails with
    /// kube-apiserver's error, or with the name of an API that this server cannot enable or disable.
    pub(crate) fn configure<'a>(&mut self, pairs: impl IntoIterator<Item = &'a str>) -> Result<(), String> {
        let mut values = BTreeMap::new();
        for pair in pairs.into_iter().map(str::trim).filter(|it| !it.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (key, value) = (key.trim(), value.trim());
            // The keys of the core group are treated as in `completion.go` of kube-apiserver.
            match key {
                "api/legacy" => {}
                "v1" | "/v1" | "api/v1" => check_core(key, value)?,
                _ if ["v1/", "/v1/", "api/v1/"].iter().any(|it| key.starts_with(it)) => check_core(key, value)?,
                _ => drop(values.insert(key, value)),
            }
        }
        if values.len() == 1 && values.get("api/all") == Some(&"false") {
            return Err("invalid runtime-config with only api/all=false".to_owned());
        }
        (self.off, self.on, self.named) = Default::default();
        let mut stages = Vec::new();
        for key in ["api/all", "api/ga", "api/beta", "api/alpha"] {
            stages.extend(values.remove(key).map(|value| (key, value)));
        }
        let named: BTreeMap<_, _> = values
            .iter()
            .map(|(key, value)| Ok((Named::parse(key)?, (*key, *value))))
            .collect::<Result<_, String>>()?;
        check_groups(&KubernetesVersion::ALL, named.keys())?;
        for (key, value) in stages {
            self.set_stage(key, value)?;
        }
        // Versions are applied first, so that resources take precedence.
        let (versions, resources): (Vec<_>, Vec<_>) = named.iter().partition(|(it, _)| it.resource.is_empty());
        for (name, (key, value)) in versions.into_iter().chain(resources) {
            self.set(name, key, value)?;
        }
        Ok(())
    }

    /// Enables versions that Kubernetes has removed, such as `policy/v1beta1`. Fails with the first version that cannot
    /// be enabled.
    pub(crate) fn retire<'a>(&mut self, versions: impl IntoIterator<Item = &'a str>) -> Result<(), String> {
        for name in versions.into_iter().map(str::trim).filter(|it| !it.is_empty()) {
            let is_it = |it: &OptionalResource| name == format!("{}/{}", it.info.group, it.info.version);
            let resources = optional(|it| it.off.stage == Stage::Retired && is_it(it));
            if resources.is_empty() {
                return Err(format!(
                    "{name} is not one of the supported retired APIs: {}",
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
            let gate =
                gate.ok_or_else(|| format!("{name} is not a feature gate of an API that is disabled by default"))?;
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

    /// Checks that a version of Kubernetes has the named APIs. Fails with the messages of kube-apiserver, or with the
    /// name of an API that is enabled but not served by this version.
    pub(crate) fn check(&self, version: KubernetesVersion) -> Result<(), String> {
        check_groups(&[version], self.named.keys())?;
        for (name, is_on) in &self.named {
            if !is_registered(version, &name.group, &name.version) {
                return Err(not_registered(name));
            }
            let optional = optional_resources(version).iter().map(|it| &it.info);
            let is_served = builtins(version).chain(optional).any(|it| name.includes(it));
            if *is_on && !is_served {
                let slash = if name.resource.is_empty() { "" } else { "/" };
                let key = format!("{}{slash}{}", name.api_version(), name.resource);
                return Err(format!("{key} is not served by Kubernetes {version}"));
            }
        }
        Ok(())
    }

    /// Returns the requested resources that a version of Kubernetes does not serve because their feature gate is off,
    /// each with the gate.
    pub(crate) fn withheld(&self, version: KubernetesVersion) -> Vec<(String, &'static str)> {
        let needed = optional_resources(version).iter().filter(|it| !it.off.gate.is_empty());
        let requested = needed.filter(|it| self.requests(it) && !self.adds(it));
        let name = |info: &ResourceInfo| format!("{}/{}/{}", info.group, info.version, info.resource);
        requested.map(|it| (name(&it.info), it.off.gate)).collect()
    }

    /// Returns `true` if MutatingAdmissionPolicies are applied. Since Kubernetes 1.36, they are always applied.
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

    fn set(&mut self, name: &Named, key: &str, value: &str) -> Result<(), String> {
        let Named {
            group,
            version,
            resource,
        } = name;
        let mut all = KubernetesVersion::ALL.into_iter();
        if !all.any(|it| is_registered(it, group, version)) {
            return Err(not_registered(name));
        }
        let is_on = parse_bool(key, value)?;
        if resource.to_lowercase() != *resource {
            return Err(format!(
                "invalid key {key}: group/version/resource and resource is always lowercase plural, not {resource:?}"
            ));
        }
        let mut found = all_builtins().filter(|it| name.includes(it)).map(self::key).peekable();
        let optional = optional(|it| it.off.stage != Stage::Retired && name.includes(&it.info));
        match is_on {
            true if !optional.is_empty() => self.on.extend(optional),
            false if !optional.is_empty() => self.on.retain(|it| !optional.contains(it)),
            true if found.peek().is_none() => {
                return Err(format!(
                    "{key} is not served and cannot be enabled{}",
                    hint(group, version)
                ));
            }
            true => {
                let found: BTreeSet<_> = found.collect();
                self.off.retain(|it| !found.contains(it));
            }
            false => self.off.extend(found),
        }
        self.named.insert(name.clone(), is_on);
        Ok(())
    }
}

/// Returns kube-apiserver's error if a name refers to a group that does not exist in any of these versions of
/// Kubernetes.
fn check_groups<'a>(versions: &[KubernetesVersion], names: impl Iterator<Item = &'a Named>) -> Result<(), String> {
    let is_known = |it: &&Named| versions.iter().any(|of| versions_of(*of, &it.group).next().is_some());
    let unknown: BTreeSet<_> = names.filter(|it| !is_known(it)).map(Named::api_version).collect();
    match unknown.is_empty() {
        true => Ok(()),
        false => Err(format!("unknown api groups {}", Vec::from_iter(unknown).join(","))),
    }
}

/// Returns kube-apiserver's message for a version that is not registered.
fn not_registered(name: &Named) -> String {
    format!("group version {} that has not been registered", name.api_version())
}

/// Checks a pair for the core group, which cannot be disabled.
fn check_core(key: &str, value: &str) -> Result<(), String> {
    match parse_bool(key, value)? {
        true => Ok(()),
        false => Err(format!("{key}: the core group cannot be disabled")),
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

/// Returns the end of the error message, which explains how to enable a retired version.
fn hint(group: &str, version: &str) -> &'static str {
    let name = format!("{group}/{version}");
    match retired_versions().any(|it| it == name) {
        false => "",
        true => ": Kubernetes has retired it, and --retired-apis turns it on",
    }
}
