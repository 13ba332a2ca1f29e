//! APIServices of the APIs that this server serves, maintained like `crdregistration` of `pkg/controlplane/controller`
//! and the `autoRegisterController` of kube-aggregator. APIServices of built-in groups are created once, when the
//! server starts. APIServices of CRDs follow their CRDs, and are restored if a client deletes or changes them.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Registry;
use super::managed_fields::{self, Manager, Types};
use super::scheme::{Row, codec};
use super::types::cursor::Cursor;
use crate::api::json::{Map, Value, json};
use crate::api::object::Object;
use crate::api::status::Status;
use crate::storage::{Key, KeyRange, Stored};

/// Storage name of APIServices.
pub(super) const API_SERVICES: &str = "apiregistration.k8s.io/apiservices";

/// Field manager of the server's own writes.
const SERVER: &str = "kube-apiserver";

/// Label of the APIServices that the server manages.
const MANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";
/// Value of [`MANAGED`] for APIServices that the server only creates.
const ON_START: &str = "onstart";
/// Value of [`MANAGED`] for APIServices that the server keeps up to date.
const ALWAYS: &str = "true";

/// `groupPriorityMinimum` and `versionPriority` of APIServices for CRDs.
const OF_CRDS: (u32, u32) = (1_000, 100);

/// `apiVersionPriorities` of kube-apiserver: group, version, `groupPriorityMinimum`, `versionPriority`. Other built-in
/// versions do not get an APIService.
const PRIORITIES: [(&str, &str, u32, u32); 21] = [
    ("", "v1", 18_000, 1),
    ("apps", "v1", 17_800, 15),
    ("events.k8s.io", "v1", 17_750, 15),
    ("authentication.k8s.io", "v1", 17_700, 15),
    ("authorization.k8s.io", "v1", 17_600, 15),
    ("autoscaling", "v1", 17_500, 15),
    ("autoscaling", "v2", 17_500, 30),
    ("batch", "v1", 17_400, 15),
    ("certificates.k8s.io", "v1", 17_300, 15),
    ("networking.k8s.io", "v1", 17_200, 15),
    ("policy", "v1", 17_100, 15),
    ("rbac.authorization.k8s.io", "v1", 17_000, 15),
    ("storage.k8s.io", "v1", 16_800, 15),
    ("apiextensions.k8s.io", "v1", 16_700, 15),
    ("admissionregistration.k8s.io", "v1", 16_700, 15),
    ("scheduling.k8s.io", "v1", 16_600, 15),
    ("coordination.k8s.io", "v1", 16_500, 15),
    ("node.k8s.io", "v1", 16_300, 15),
    ("discovery.k8s.io", "v1", 16_200, 15),
    ("resource.k8s.io", "v1", 16_200, 21),
    ("flowcontrol.apiserver.k8s.io", "v1", 16_100, 21),
];

impl Registry {
    /// Creates the APIServices of the served built-in groups.
    pub(crate) fn register_builtins(&self) {
        let scheme = self.reader.scheme();
        let Some(row) = self.api_services() else { return };
        for (group, version, of_group, of_version) in PRIORITIES {
            if scheme.serves(group, version) {
                self.create_registration(&row, group, version, (of_group, of_version), ON_START);
            }
        }
    }

    /// Updates the APIServices of the groups of written CRDs.
    pub(super) fn sync_registrations(&self) {
        let groups = self.definitions.take_written_groups();
        let Some(row) = self.api_services() else { return };
        let all = KeyRange::of(None);
        for group in groups {
            let mut versions = self.definitions.served_versions(&group);
            for stored in self.reader.store.snapshot(&row.storage).range(&all) {
                let Some((version, of)) = stored.key.name().split_once('.') else {
                    continue;
                };
                if of == group {
                    versions.insert(version.to_owned());
                }
            }
            for version in versions {
                self.sync_registration(&row, &group, &version);
            }
        }
    }

    /// Restores or removes the APIService with this name after a write to it, depending on the CRDs of its group.
    pub(super) fn sync_registration_of(&self, key: &Key) {
        let Some(row) = self.api_services() else { return };
        if let Some((version, group)) = key.name().split_once('.') {
            self.sync_registration(&row, group, version);
        }
    }

    /// Returns the row of APIServices, if this server maintains them.
    fn api_services(&self) -> Option<Arc<Row>> {
        let scheme = self.reader.scheme();
        let row = scheme.lookup("apiregistration.k8s.io", "v1", "apiservices");
        row.filter(|_| self.keeps_own_objects)
    }

    fn sync_registration(&self, row: &Row, group: &str, version: &str) {
        let is_wanted = self.definitions.serves(group, version);
        let key = Key::new("", &format!("{version}.{group}"));
        let Some(stored) = self.reader.store.get(&row.storage, &key) else {
            if is_wanted {
                self.create_registration(row, group, version, OF_CRDS, ALWAYS);
            }
            return;
        };
        let service = codec::decode(row, &stored);
        if !service.labels().any(|it| it == (MANAGED, ALWAYS)) {
            return;
        }
        if !is_wanted {
            // On a conflict, the other write triggers a new check.
            let _ = self.remove(row, &stored);
            return;
        }
        let wanted = spec(group, version, OF_CRDS);
        if service.get("spec") != Some(&wanted) {
            self.update_registration(row, &stored, &service, wanted);
        }
    }

    fn create_registration(&self, row: &Row, group: &str, version: &str, priorities: (u32, u32), managed: &str) {
        let mut object = Map::new();
        object.insert("apiVersion".into(), json!(&*row.api_version));
        object.insert("kind".into(), json!(row.info.kind));
        let name = format!("{version}.{group}");
        object.insert("metadata".into(), json!({"name": name, "labels": {MANAGED: managed}}));
        object.insert("spec".into(), spec(group, version, priorities));
        // An APIService that a client has created is kept.
        if self.reader.store.get(&row.storage, &Key::new("", &name)).is_none() {
            let _ = self.put_own(row, Object(object), SERVER);
        }
    }

    fn update_registration(&self, row: &Row, stored: &Stored, old: &Object, spec: Value) {
        let mut next = old.clone();
        next.insert("spec".into(), spec);
        self.update_own(row, stored, old, next);
    }

    /// Replaces a stored object in a write by the server itself, unless the object has changed in the meantime.
    pub(super) fn update_own(&self, row: &Row, stored: &Stored, old: &Object, mut next: Object) {
        self.own(row, Some(old), &mut next, SERVER);
        if let Ok(codec::Encoded { body, .. }) = codec::encode(row, &next) {
            let _ = self.replace(row, stored, body);
        }
    }

    /// Stores an object that is written by the server itself; `manager` owns its fields.
    pub(crate) fn put_own(&self, row: &Row, mut object: Object, manager: &str) -> Result<(), Status> {
        self.own(row, None, &mut object, manager);
        self.put(row, object)
    }

    fn own(&self, row: &Row, old: Option<&Object>, next: &mut Object, name: &str) {
        let now = self.reader.entropy.now_seconds();
        let manager = Manager {
            name,
            api_version: &row.api_version,
            subresource: "",
            time: &now,
            reset: row.unowned_paths(""),
        };
        let types = Types {
            schema: row.schema(),
            other: &|object, version| row.in_version(object, version),
        };
        managed_fields::track_update(&types, old, next, &manager);
    }
}

/// Returns the `groupPriorityMinimum` of a built-in group; for other groups, the priority of CRD groups. The group
/// `apiregistration.k8s.io` precedes all others.
pub(crate) fn priority_of(group: &str) -> u32 {
    if group == "apiregistration.k8s.io" {
        return u32::MAX;
    }
    let found = PRIORITIES.iter().find(|it| it.0 == group);
    found.map_or(OF_CRDS.0, |it| it.2)
}

fn spec(group: &str, version: &str, (of_group, of_version): (u32, u32)) -> Value {
    let mut spec = json!({"version": version, "groupPriorityMinimum": of_group, "versionPriority": of_version});
    if !group.is_empty() {
        spec["group"] = group.into();
    }
    spec
}

/// Returns the served versions of a CRD, according to its spec.
pub(super) fn versions_served(crd: &Object) -> BTreeSet<String> {
    let crd = Cursor::root(crd);
    let served = crd
        .items("spec.versions")
        .filter(|it| it.flag("served") == Some(true))
        .map(|it| it.text("name").to_owned());
    served.collect()
}
