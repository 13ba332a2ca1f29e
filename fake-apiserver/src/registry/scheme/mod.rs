//! `Scheme`: the table of served resources. The built-in rows are the same for every server of a version of Kubernetes;
//! CRDs add rows.

pub(crate) mod builtins;
pub(crate) mod row;
pub(crate) mod codec;
pub(crate) mod body;
pub(crate) mod enablement;
#[cfg(feature = "cel")]
mod declared;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use enablement::Enablement;
pub(crate) use row::Row;

use crate::api::kubernetes_version::KubernetesVersion;
use crate::api::resource::ResourceInfo;
use crate::registry::types::schema::optional::optional_resources;
use crate::registry::types::schema::served::builtins;

/// Group, version and resource, separated by a character that sorts before all others.
type RowKey = Arc<str>;

fn row_key(group: &str, version: &str, resource: &str) -> String {
    [group, version, resource].join("\0")
}

/// The key of a built-in resource.
type BuiltinKey = (&'static str, &'static str, &'static str);

/// The built-in rows of a version of Kubernetes.
#[derive(Debug)]
struct Builtins {
    /// In the order of discovery.
    rows: Vec<Arc<Row>>,
    /// The same rows, indexed for lookup.
    index: BTreeMap<BuiltinKey, usize>,
}

impl Builtins {
    fn new(version: KubernetesVersion) -> Self {
        let key = |(at, info): (usize, &'static ResourceInfo)| ((&*info.group, &*info.version, &*info.resource), at);
        let optional = optional_resources(version).iter();
        let rows = builtins(version).map(|info| Row::builtin(version, info));
        let optional_rows = optional.clone().map(|(of, info)| Row::optional(version, info, of.of));
        Self {
            rows: rows.chain(optional_rows).map(Arc::new).collect(),
            index: builtins(version)
                .chain(optional.map(|(_, info)| info))
                .enumerate()
                .map(key)
                .collect(),
        }
    }

    /// Returns the rows of a version, which all its servers share.
    fn of(version: KubernetesVersion) -> &'static Self {
        static OF: [OnceLock<Builtins>; KubernetesVersion::ALL.len()] =
            [const { OnceLock::new() }; KubernetesVersion::ALL.len()];
        OF[version as usize].get_or_init(|| Self::new(version))
    }
}

/// All rows of one server. A change of a CRD creates a copy; requests in progress keep the one they started with.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scheme {
    /// The version of Kubernetes of the built-in resources.
    pub(crate) version: KubernetesVersion,
    /// Disabled built-in resources.
    pub(crate) enablement: Enablement,
    custom: BTreeMap<RowKey, Arc<Row>>,
}

impl Scheme {
    /// The row of a resource in a version.
    pub(crate) fn lookup(&self, group: &str, version: &str, resource: &str) -> Option<Arc<Row>> {
        let builtins = Builtins::of(self.version);
        if let Some(&at) = builtins.index.get(&(group, version, resource)) {
            let row = &builtins.rows[at];
            return self.enablement.allows(row).then(|| Arc::clone(row));
        }
        if self.custom.is_empty() {
            return None;
        }
        self.custom.get(&*row_key(group, version, resource)).cloned()
    }

    /// Returns `true` if a version of a group is served.
    pub(crate) fn serves(&self, group: &str, version: &str) -> bool {
        self.rows()
            .any(|row| row.info.group == group && row.info.version == version)
    }

    /// The row of a kind in a version.
    pub(crate) fn lookup_kind(&self, api_version: &str, kind: &str) -> Option<Arc<Row>> {
        self.rows()
            .find(|row| *row.api_version == *api_version && row.info.kind == kind && row.is_stored())
            .cloned()
    }

    /// Every row: the built-in ones in the order of discovery, then the custom ones by group, version and name.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &Arc<Row>> {
        let is_on = |row: &&Arc<Row>| self.enablement.allows(row);
        let builtins = Builtins::of(self.version);
        builtins.rows.iter().filter(is_on).chain(self.custom.values())
    }

    /// Replaces rows of a CRD.
    pub(crate) fn replace_custom(&mut self, before: &[Arc<Row>], rows: &[Arc<Row>]) {
        let key = |row: &Row| row_key(&row.info.group, &row.info.version, &row.info.resource);
        for row in before {
            self.custom.remove(&*key(row));
        }
        let rows = rows.iter().map(|row| (key(row).into(), Arc::clone(row)));
        self.custom.extend(rows);
    }

    /// The rows of CRDs.
    pub(crate) fn custom_rows(&self) -> impl Iterator<Item = &Arc<Row>> {
        self.custom.values()
    }
}

/// The storage name of CustomResourceDefinitions.
pub(crate) const CRDS: &str = "apiextensions.k8s.io/customresourcedefinitions";
