//! `Scheme`: the table of served resources. All servers with the same version of Kubernetes share the built-in rows;
//! CRDs add rows.

pub(crate) mod builtins;
pub(crate) mod row;
pub(crate) mod codec;
pub(crate) mod body;
pub(crate) mod enablement;
#[cfg(feature = "cel")]
mod declared;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use enablement::Enablement;
pub(crate) use row::Row;

use crate::api::kubernetes_version::KubernetesVersion;
use crate::api::resource::ResourceInfo;
use crate::registry::types::schema::optional::optional_resources;
use crate::registry::types::schema::served::builtins;

/// Key of a row: group, version and resource, separated by a character that sorts before all others.
type RowKey = Arc<str>;

fn row_key(group: &str, version: &str, resource: &str) -> String {
    [group, version, resource].join("\0")
}

/// Key of a built-in resource: group, version and plural.
type BuiltinKey = (&'static str, &'static str, &'static str);

/// The built-in rows of a server.
#[derive(Debug)]
struct Builtins {
    /// The rows in the order of discovery.
    rows: Vec<Arc<Row>>,
    /// Index of each row in `rows`.
    index: BTreeMap<BuiltinKey, usize>,
}

impl Builtins {
    fn new(rows: impl Iterator<Item = (&'static ResourceInfo, Arc<Row>)>) -> Self {
        let (infos, rows): (Vec<_>, Vec<_>) = rows.unzip();
        let key = |(at, info): (usize, &'static ResourceInfo)| ((&*info.group, &*info.version, &*info.resource), at);
        let index = infos.into_iter().enumerate().map(key).collect();
        Self { rows, index }
    }

    /// Returns the rows that a version of Kubernetes serves by default. All servers with this version share them.
    fn of(version: KubernetesVersion) -> &'static Arc<Self> {
        static OF: [OnceLock<Arc<Builtins>>; KubernetesVersion::ALL.len()] =
            [const { OnceLock::new() }; KubernetesVersion::ALL.len()];
        OF[version as usize].get_or_init(|| {
            let rows = builtins(version).map(|info| (info, Arc::new(Row::builtin(version, info))));
            Arc::new(Self::new(rows))
        })
    }

    /// Returns the rows of a version of Kubernetes that are off by default.
    fn optional(version: KubernetesVersion) -> &'static [Arc<Row>] {
        static OF: [OnceLock<Vec<Arc<Row>>>; KubernetesVersion::ALL.len()] =
            [const { OnceLock::new() }; KubernetesVersion::ALL.len()];
        OF[version as usize].get_or_init(|| {
            let rows = optional_resources(version).iter();
            rows.map(|it| Arc::new(Row::optional(version, it))).collect()
        })
    }

    /// Returns the rows that a version of Kubernetes serves with this enablement.
    fn enabled(version: KubernetesVersion, enablement: &Enablement) -> Arc<Self> {
        let by_default = Self::of(version);
        if enablement.is_default() {
            return Arc::clone(by_default);
        }
        let kept = builtins(version)
            .zip(&by_default.rows)
            .filter(|(info, _)| enablement.keeps(info));
        let optional = optional_resources(version).iter().zip(Self::optional(version));
        let added = optional
            .filter(|(it, _)| enablement.adds(it))
            .map(|(it, row)| (&it.info, row));
        let mut rows: Vec<_> = kept.chain(added).map(|(info, row)| (info, Arc::clone(row))).collect();
        // If an added version changes the storage version, the other versions of the resource show this storage version
        // in discovery.
        let added = rows.iter().filter(|(_, row)| row.is_optional());
        let stored: Vec<_> = added
            .filter_map(|(info, _)| Some((&info.group, &info.resource, info.stored_version.as_deref()?)))
            .collect();
        for (info, row) in rows.iter_mut().filter(|(_, row)| !row.is_optional()) {
            let mut of_resource = stored.iter().filter(|it| (it.0, it.1) == (&info.group, &info.resource));
            if let Some((_, _, version)) = of_resource.next()
                && row.info.stored_version.as_deref() != Some(version)
            {
                *row = Arc::new(row.shown_as_stored_in(version));
            }
        }
        // Each resource needs a version in which stored objects are read, even if the storage version is not served.
        let read = rows.iter().filter(|(_, row)| row.is_storage_version);
        let mut read: BTreeSet<Arc<str>> = read.map(|(_, row)| Arc::clone(&row.storage)).collect();
        for (_, row) in &mut rows {
            if read.insert(Arc::clone(&row.storage)) {
                *row = Arc::new(row.to_storage_version());
            }
        }
        Arc::new(Self::new(rows.into_iter()))
    }

    /// Returns the row of a built-in resource in an API version, even if that version is off by default.
    fn in_version(version: KubernetesVersion, storage: &str, api_version: &str) -> Option<&'static Arc<Row>> {
        let is_it = |row: &&Arc<Row>| *row.storage == *storage && *row.api_version == *api_version;
        let by_default = Self::of(version).rows.iter().find(is_it);
        by_default.or_else(|| Self::optional(version).iter().find(is_it))
    }
}

/// All rows of one server. A change of a CRD creates a new copy; requests in progress keep the old one.
#[derive(Clone, Debug)]
pub(crate) struct Scheme {
    /// Version of Kubernetes of the built-in resources.
    pub(crate) version: KubernetesVersion,
    builtins: Arc<Builtins>,
    custom: BTreeMap<RowKey, Arc<Row>>,
}

impl Default for Scheme {
    fn default() -> Self {
        let version = KubernetesVersion::default();
        Self {
            version,
            builtins: Arc::clone(Builtins::of(version)),
            custom: BTreeMap::new(),
        }
    }
}

impl Scheme {
    /// Replaces the built-in resources with the resources that this version and enablement serve.
    pub(crate) fn enable(&mut self, version: KubernetesVersion, enablement: &Enablement) {
        self.version = version;
        self.builtins = Builtins::enabled(version, enablement);
    }

    /// Returns the row of a resource in a version.
    pub(crate) fn lookup(&self, group: &str, version: &str, resource: &str) -> Option<Arc<Row>> {
        if let Some(&at) = self.builtins.index.get(&(group, version, resource)) {
            return Some(Arc::clone(&self.builtins.rows[at]));
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

    /// Returns the row of a stored kind in a version.
    pub(crate) fn lookup_kind(&self, api_version: &str, kind: &str) -> Option<Arc<Row>> {
        self.rows()
            .find(|row| *row.api_version == *api_version && row.info.kind == kind && row.is_stored())
            .cloned()
    }

    /// Returns all rows: built-in rows in the order of discovery, then custom rows by group, version and name.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &Arc<Row>> {
        self.builtins.rows.iter().chain(self.custom.values())
    }

    /// Replaces the rows of a CRD.
    pub(crate) fn replace_custom(&mut self, before: &[Arc<Row>], rows: &[Arc<Row>]) {
        let key = |row: &Row| row_key(&row.info.group, &row.info.version, &row.info.resource);
        for row in before {
            self.custom.remove(&*key(row));
        }
        let rows = rows.iter().map(|row| (key(row).into(), Arc::clone(row)));
        self.custom.extend(rows);
    }

    /// Returns the rows of CRDs.
    pub(crate) fn custom_rows(&self) -> impl Iterator<Item = &Arc<Row>> {
        self.custom.values()
    }
}

/// Storage name of CustomResourceDefinitions.
pub(crate) const CRDS: &str = "apiextensions.k8s.io/customresourcedefinitions";
