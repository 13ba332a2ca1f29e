//! `Scheme`: the table of served resources. The built-in rows are the same for every server of a version of Kubernetes;
//! CRDs add rows.

pub(crate) mod builtins;
pub(crate) mod row;
pub(crate) mod codec;
pub(crate) mod body;
pub(crate) mod enablement;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use enablement::Enablement;
pub(crate) use row::Row;

use crate::api::kubernetes_version::KubernetesVersion;
use crate::api::resource::ResourceInfo;
use crate::registry::types::schema::served::builtins;

/// Group, version and resource, parted by a character that sorts before all others.
type RowKey = Arc<str>;

fn row_key(group: &str, version: &str, resource: &str) -> String {
    [group, version, resource].join("\0")
}

/// The same of a built-in resource.
type BuiltinKey = (&'static str, &'static str, &'static str);

/// The built-in rows of a version of Kubernetes.
#[derive(Debug)]
struct Builtins {
    /// In the order of discovery.
    rows: Vec<Arc<Row>>,
    /// The same, to be looked up.
    index: BTreeMap<BuiltinKey, usize>,
}

impl Builtins {
    fn new(version: KubernetesVersion) -> Self {
        let key = |(at, info): (usize, &'static ResourceInfo)| ((&*info.group, &*info.version, &*info.resource), at);
        Self {
            rows: builtins(version)
                .map(|info| Arc::new(Row::builtin(version, info)))
                .collect(),
            index: builtins(version).enumerate().map(key).collect(),
        }
    }

    /// Those of a version, which all its servers share.
    fn of(version: KubernetesVersion) -> &'static Self {
        static OF: [OnceLock<Builtins>; KubernetesVersion::ALL.len()] =
            [const { OnceLock::new() }; KubernetesVersion::ALL.len()];
        OF[version as usize].get_or_init(|| Self::new(version))
    }
}

/// All rows of one server. A copy is made when a CRD changes; requests in progress keep the one they began with.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scheme {
    /// The version of Kubernetes whose resources are built in.
    pub(crate) version: KubernetesVersion,
    /// Built-in resources that are turned off.
    pub(crate) enablement: Enablement,
    custom: BTreeMap<RowKey, Arc<Row>>,
}

impl Scheme {
    /// The row of a resource in a version.
    pub(crate) fn lookup(&self, group: &str, version: &str, resource: &str) -> Option<Arc<Row>> {
        let builtins = Builtins::of(self.version);
        if let Some(&at) = builtins.index.get(&(group, version, resource)) {
            return self
                .enablement
                .allows(group, version, resource)
                .then(|| Arc::clone(&builtins.rows[at]));
        }
        if self.custom.is_empty() {
            return None;
        }
        self.custom.get(&*row_key(group, version, resource)).cloned()
    }

    /// The row of a kind in a version.
    pub(crate) fn lookup_kind(&self, api_version: &str, kind: &str) -> Option<Arc<Row>> {
        self.rows()
            .find(|row| *row.api_version == *api_version && row.info.kind == kind && row.is_stored())
            .cloned()
    }

    /// Every row: the built-in ones in the order of discovery, then those of CRDs by group, version and name.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &Arc<Row>> {
        let is_on = |row: &&Arc<Row>| {
            let info = &row.info;
            self.enablement.allows(&info.group, &info.version, &info.resource)
        };
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
