//! Operations on worlds, which are complete states of a server: listing their objects, writing them as YAML, and
//! comparing two of them. Other operations read or change the current state without a request.

#[cfg(feature = "serve")]
mod table;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use crate::api::object::Object;
use crate::faults::WatchEventKind;
use crate::load::{self, Manifest};
use crate::registry::scheme::Row;
use crate::registry::scheme::codec;
use crate::registry::types::schema::{ListType, SchemaRef};
use crate::server::{ApiServer, LoadError};
use crate::snapshot::Snapshot;
use crate::storage::{self, Key, KeyRange, Stored};

/// Maximum length of a value in a difference; longer values are truncated.
const VALUE_CHARS: usize = 120;

/// Result of loading a dump, from [`ApiServer::load_dump`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoadReport {
    /// Number of objects stored.
    pub stored: usize,
    /// The skipped objects: a line for each with its location and the reason.
    pub skipped: Vec<String>,
}

/// Differences between two states, from [`ApiServer::diff`]. The `Display` form is similar to a patch: `+` marks added
/// objects, `-` removed objects, and `~` changed objects with their changed fields. `metadata.resourceVersion` and
/// `metadata.managedFields` are ignored.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct WorldDiff {
    /// Objects that only exist in the later state, ordered by `apiVersion`, kind, namespace and name.
    pub added: Vec<Value>,
    /// Objects that only exist in the earlier state, in the same order.
    pub removed: Vec<Value>,
    /// Objects that exist in both states but differ: kind and name, and one line per changed field.
    pub changed: Vec<(String, Vec<String>)>,
}

/// Differences between two states, with the objects.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// Objects that only exist in the later state, ordered by `apiVersion`, kind, namespace and name.
    pub(crate) added: Vec<Value>,
    /// Objects that only exist in the earlier state.
    pub(crate) removed: Vec<Value>,
    /// Objects that exist in both states but differ: the object in the later state, and one line per changed field.
    pub(crate) changed: Vec<(Value, Vec<String>)>,
}

/// A stored object, from [`ApiServer::stored_objects`].
#[derive(Clone, Debug)]
pub struct StoredObject {
    row: Arc<Row>,
    stored: Arc<Stored>,
}

/// A write in the history, from [`ApiServer::changes_after`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StoredChange {
    /// The `resourceVersion` of the write.
    pub revision: u64,
    /// The object before the write; `None` if the write created it.
    pub before: Option<StoredObject>,
    /// The object after the write; `None` if the write deleted it.
    pub after: Option<StoredObject>,
}

impl StoredChange {
    /// Returns the object after the write, or its last state if the write deleted it.
    pub fn object(&self) -> Option<&StoredObject> {
        self.after.as_ref().or(self.before.as_ref())
    }
}

impl StoredObject {
    /// Returns the API group; empty for core.
    pub fn group(&self) -> &str {
        &self.row.info.group
    }

    /// Returns the plural name of the resource.
    pub fn resource(&self) -> &str {
        &self.row.info.resource
    }

    /// Returns the namespace; empty for cluster-scoped objects.
    pub fn namespace(&self) -> &str {
        self.stored.key.namespace()
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        self.stored.key.name()
    }

    /// Returns `metadata.uid`.
    pub fn uid(&self) -> &str {
        &self.stored.body.uid
    }

    /// Returns the `resourceVersion` of the write that created this state.
    pub fn revision(&self) -> u64 {
        self.stored.revision
    }

    /// Returns the object as JSON without its beginning: `kind`, `apiVersion`, the opening of `metadata` and
    /// `resourceVersion`. The remaining JSON is `"name":"web-0",…},"spec":{…}}` in one line, with the keys of each
    /// object in a fixed order.
    pub fn stored_bytes(&self) -> &[u8] {
        &self.stored.body.bytes
    }

    /// Returns the `apiVersion` of the kind.
    pub(crate) fn api_version(&self) -> String {
        self.row.info.api_version()
    }

    /// Returns `true` if the object's kind is defined by a CustomResourceDefinition.
    pub(crate) fn is_custom(&self) -> bool {
        self.row.is_custom()
    }

    /// Returns `true` if the object's kind is namespaced.
    pub(crate) fn is_namespaced(&self) -> bool {
        self.row.info.is_namespaced()
    }

    /// Returns the kind.
    pub(crate) fn kind(&self) -> &str {
        &self.row.info.kind
    }

    /// Returns the stored form.
    pub(crate) fn stored(&self) -> &Stored {
        &self.stored
    }

    /// Returns the decoded object.
    pub fn value(&self) -> Value {
        Value::Object(codec::decode(&self.row, &self.stored).0.into())
    }

    /// Calls `visit` for each unordered list in `value` according to the schema of this object's kind, inner lists
    /// first. For a list with keys (`x-kubernetes-list-type: map`), `visit` receives the names of the key fields; for a
    /// set, no names. `value` is this object, or a variant of it. Excludes `initContainers`, which run in order.
    pub fn visit_unordered_lists(&self, value: &mut Value, visit: &mut dyn FnMut(&mut Value, &[&str])) {
        visit_unordered(self.row.schema(), value, visit);
    }
}

fn visit_unordered(schema: SchemaRef<'_>, value: &mut Value, visit: &mut dyn FnMut(&mut Value, &[&str])) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                if let Some(schema) = schema.field(name).filter(|_| name != "initContainers") {
                    visit_unordered(schema, field, visit);
                }
            }
        }
        Value::Array(items) => {
            for item in items {
                visit_unordered(schema.items(), item, visit);
            }
            match schema.list_type() {
                ListType::Atomic => {}
                ListType::Set => visit(value, &[]),
                ListType::Map(keys) => visit(value, &keys.iter().collect::<Vec<&str>>()),
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

impl ApiServer {
    /// Returns all objects of all resources, ordered by resource, namespace and name, without a request. An object is
    /// decoded only when it is read.
    pub fn stored_objects(&self) -> Vec<StoredObject> {
        let registry = &self.endpoints.registry;
        let (all, everything) = (KeyRange::of(None), registry.reader.store.everything());
        // Resources without objects are skipped.
        let snapshots: BTreeMap<&str, &storage::ResourceSnapshot> =
            everything.resources.iter().map(|(name, it)| (&**name, it)).collect();
        let scheme = registry.reader.scheme();
        let rows = scheme.rows().filter(|row| row.is_stored() && row.is_storage_version);
        let found = rows.filter_map(|row| Some((row, snapshots.get(&*row.storage)?)));
        found
            .flat_map(|(row, snapshot)| {
                snapshot.range(&all).map(move |stored| StoredObject {
                    row: Arc::clone(row),
                    stored: Arc::clone(stored),
                })
            })
            .collect()
    }

    /// Returns the objects that were deleted after a revision, in their last states, oldest first. Deletions that are
    /// no longer in the [history](crate::ApiServerBuilder::history), or whose resource is no longer served, are
    /// missing.
    pub fn deleted_objects(&self, after: u64) -> Vec<StoredObject> {
        self.with_rows(self.endpoints.registry.reader.store.removed_after(after))
    }

    /// Returns the object after each write that follows a revision, oldest first. Writes that are no longer in the
    /// [history](crate::ApiServerBuilder::history), or whose resource is no longer served, are missing.
    pub fn written_objects(&self, after: u64) -> Vec<StoredObject> {
        self.with_rows(self.endpoints.registry.reader.store.written_after(after))
    }

    /// Returns the writes after a revision, oldest first. Writes that are no longer in the
    /// [history](crate::ApiServerBuilder::history), or whose resource is no longer served, are missing.
    pub fn changes_after(&self, after: u64) -> Vec<StoredChange> {
        let changes = self.endpoints.registry.reader.store.retained_after(after);
        let mut row_of = self.rows_by_storage();
        let found = changes.into_iter().filter_map(|(storage, change)| {
            let row = row_of(&storage)?;
            let shown = |stored: &Option<Arc<Stored>>| {
                let stored = stored.as_ref().map(Arc::clone)?;
                let row = Arc::clone(&row);
                Some(StoredObject { row, stored })
            };
            Some(StoredChange {
                revision: change.revision,
                before: shown(&change.previous),
                after: shown(&change.current),
            })
        });
        found.collect()
    }

    fn with_rows(&self, stored: Vec<(Arc<str>, Arc<Stored>)>) -> Vec<StoredObject> {
        let mut row_of = self.rows_by_storage();
        let found = stored.into_iter().filter_map(|(storage, stored)| {
            let row = row_of(&storage)?;
            Some(StoredObject { row, stored })
        });
        found.collect()
    }

    /// Returns a function that finds the row for a resource's name in storage. The function caches rows, because many
    /// writes belong to the same resource.
    fn rows_by_storage(&self) -> impl FnMut(&str) -> Option<Arc<Row>> {
        let scheme = self.endpoints.registry.reader.scheme();
        let mut found: BTreeMap<Arc<str>, Arc<Row>> = BTreeMap::new();
        move |storage| {
            if let Some(row) = found.get(storage) {
                return Some(Arc::clone(row));
            }
            let mut rows = scheme.rows().filter(|row| row.is_stored() && row.is_storage_version);
            let row = rows.find(|row| *row.storage == *storage)?;
            found.insert(Arc::clone(&row.storage), Arc::clone(row));
            Some(Arc::clone(row))
        }
    }

    /// Returns the stored object of a resource, without a request and without decoding it; `None` if the object does
    /// not exist, or if the resource is not served. `group` is empty for core, `namespace` for cluster-scoped objects.
    pub fn stored_object(&self, group: &str, resource: &str, namespace: &str, name: &str) -> Option<StoredObject> {
        let registry = &self.endpoints.registry;
        let scheme = registry.reader.scheme();
        let mut rows = scheme.rows().filter(|row| row.is_stored() && row.is_storage_version);
        let row = rows.find(|row| row.info.group == group && row.info.resource == resource)?;
        let stored = registry.reader.store.get(&row.storage, &Key::new(namespace, name))?;
        Some(StoredObject {
            row: Arc::clone(row),
            stored,
        })
    }

    /// Writes an object back unchanged, as if another writer had made an unrelated change: it gets a new
    /// `resourceVersion`, watchers receive `MODIFIED`, and an update with the previous version is refused with 409
    /// Conflict. Does not send a request. Returns `false` if the object was written or deleted since it was read.
    ///
    /// ```
    /// use fake_apiserver::ApiServer;
    /// use serde_json::json;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    /// # let _in = runtime.enter();
    /// let server = ApiServer::start();
    /// server.load([json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}})])?;
    /// let map = server.stored_object("", "configmaps", "default", "a").ok_or("it was stored")?;
    /// assert!(server.touch(&map));
    /// assert!(!server.touch(&map), "the object has another version now");
    /// # Ok(())
    /// # }
    /// ```
    pub fn touch(&self, object: &StoredObject) -> bool {
        self.endpoints.registry.touch(&object.row, &object.stored)
    }

    /// Returns all objects of a state: CustomResourceDefinitions first, then Namespaces, then all others by group and
    /// resource, in the order of keys. They can be [loaded](ApiServer::load) again.
    ///
    /// ```
    /// use fake_apiserver::ApiServer;
    /// use serde_json::json;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    /// # let _in = runtime.enter();
    /// let server = ApiServer::start();
    /// let before = server.snapshot();
    /// server.load([json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}})])?;
    /// let namespaces = server.objects(&before).into_iter().filter(|it| it["kind"] == "Namespace");
    /// assert_eq!(namespaces.count(), 4);
    ///
    /// let after = server.snapshot();
    /// assert_eq!(server.diff(&before, &after).to_string(), "+ ConfigMap default/a\n");
    /// assert!(server.to_yaml(&after).contains("kind: ConfigMap\n"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn objects(&self, snapshot: &Snapshot) -> Vec<Value> {
        // A separate server with that state serves the resources defined by its CRDs.
        let world = self.of_snapshot(snapshot);
        let registry = &world.endpoints.registry;
        let scheme = registry.reader.scheme();
        let mut rows = BTreeMap::new();
        for row in scheme.rows().filter(|row| row.is_storage_version && row.is_stored()) {
            let rank = match row.info.kind.as_ref() {
                "CustomResourceDefinition" => 0,
                "Namespace" => 1,
                _ => 2,
            };
            rows.entry((
                rank,
                row.info.group.to_string(),
                row.info.resource.to_string(),
                row.storage.clone(),
            ))
            .or_insert(row);
        }
        let everything = KeyRange::of(None);
        let mut seen = std::collections::BTreeSet::new();
        let mut objects = Vec::new();
        for row in rows.into_values() {
            // Two groups may serve the same stored resource, which is listed once.
            if seen.insert(row.storage.clone()) {
                let snapshot = registry.reader.store.snapshot(&row.storage);
                let decoded = snapshot.range(&everything).map(|stored| codec::decode(row, stored));
                objects.extend(decoded.map(|it| Value::Object(it.0.into())));
            }
        }
        objects
    }

    /// Returns all objects of a state as a stream of YAML documents, in the order of [`ApiServer::objects`].
    pub fn to_yaml(&self, snapshot: &Snapshot) -> String {
        load::to_text(&self.objects(snapshot))
    }

    /// Returns the differences between two states.
    pub fn diff(&self, before: &Snapshot, after: &Snapshot) -> WorldDiff {
        let changes = self.changes(before, after);
        WorldDiff {
            added: changes.added,
            removed: changes.removed,
            changed: changes
                .changed
                .into_iter()
                .map(|(it, lines)| (title(&it), lines))
                .collect(),
        }
    }

    /// Returns the same differences as `diff`, with the changed objects as they are in the second state.
    pub(crate) fn changes(&self, before: &Snapshot, after: &Snapshot) -> Changes {
        let by_id = |snapshot| -> BTreeMap<(String, String), Value> {
            let objects: Vec<Value> = self.objects(snapshot);
            objects
                .into_iter()
                .map(|it| ((text(&it["apiVersion"]), title(&it)), it))
                .collect()
        };
        let (mut before, after) = (by_id(before), by_id(after));
        let mut diff = Changes::default();
        for (id, new) in after {
            match before.remove(&id) {
                None => diff.added.push(new),
                Some(old) => {
                    let lines = field_changes(old, new.clone());
                    if !lines.is_empty() {
                        diff.changed.push((new, lines));
                    }
                }
            }
        }
        diff.removed = before.into_values().collect();
        diff
    }

    /// Applies a watch event to the state: ADDED and MODIFIED [load](Self::load) the object, DELETED removes it
    /// regardless of its finalizers. Watchers receive the change; the journal records only the watch events. Fails if
    /// the object cannot be stored or does not exist, and for BOOKMARK and ERROR, which do not change the state.
    pub fn apply_event(&self, kind: WatchEventKind, object: Value) -> Result<(), LoadError> {
        let (named, name) = (text(&object["kind"]), text(&object["metadata"]["name"]));
        let fail = |reason: String| LoadError::new(&named, &name, &reason);
        match kind {
            WatchEventKind::Added | WatchEventKind::Modified => self.load([object]).map(drop),
            WatchEventKind::Deleted => {
                let registry = &self.endpoints.registry;
                let row = registry
                    .reader
                    .scheme()
                    .lookup_kind(&text(&object["apiVersion"]), &named);
                let row = row.ok_or_else(|| fail("no resource of this kind is served".to_owned()))?;
                let mut namespace = text(&object["metadata"]["namespace"]);
                if row.info.is_namespaced() && namespace.is_empty() {
                    namespace = "default".to_owned();
                }
                let key = Key::new(&namespace, &name);
                registry.take_out(&row, &key).map_err(|status| fail(status.message))
            }
            WatchEventKind::Bookmark | WatchEventKind::Error => {
                Err(fail(format!("{} events cannot be applied", kind.as_str())))
            }
        }
    }

    /// Loads a dump of a cluster, such as a dump written by `oc adm must-gather`. Objects that cannot be stored, such
    /// as objects of unserved kinds, are skipped and listed in the report. Read the dump with [`load::read_dump`].
    pub fn load_dump(&self, manifests: impl IntoIterator<Item = Manifest>) -> LoadReport {
        let mut report = LoadReport::default();
        for Manifest { place, object } in manifests {
            match self.load([object]) {
                Ok(stored) => report.stored += stored,
                Err(err) => report.skipped.push(format!("{place}: {err}")),
            }
        }
        report
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Formats kind, namespace and name: `Pod shop/web-0`.
fn title(object: &Value) -> String {
    let metadata = &object["metadata"];
    let (kind, name) = (text(&object["kind"]), text(&metadata["name"]));
    match metadata["namespace"].as_str() {
        Some(namespace) if !namespace.is_empty() => format!("{kind} {namespace}/{name}"),
        _ => format!("{kind} {name}"),
    }
}

/// Returns the fields that differ between two states of an object, one line each. Ignores `metadata.resourceVersion`
/// and `metadata.managedFields`.
pub(crate) fn field_changes(before: Value, after: Value) -> Vec<String> {
    let mut lines = Vec::new();
    compare("", Some(&bare(before)), Some(&bare(after)), &mut lines);
    lines
}

/// Removes `metadata.resourceVersion` and `metadata.managedFields`, which change with every write.
fn bare(object: Value) -> Value {
    let Value::Object(map) = object else { return object };
    let mut object = Object(map.into());
    let metadata = object.metadata_mut();
    metadata.remove("resourceVersion");
    metadata.remove("managedFields");
    Value::Object(object.0.into())
}

/// Formats one line per differing field: `spec.replicas: 2 -> 3`.
fn compare(path: &str, old: Option<&Value>, new: Option<&Value>, lines: &mut Vec<String>) {
    match (old, new) {
        (old, new) if old == new => {}
        (Some(Value::Object(old)), Some(Value::Object(new))) => {
            let keys: std::collections::BTreeSet<_> = old.keys().chain(new.keys()).collect();
            for key in keys {
                let step = match (path.is_empty(), key.contains(['.', '/'])) {
                    (_, true) => format!("{path}[{key}]"),
                    (true, false) => key.clone(),
                    (false, false) => format!("{path}.{key}"),
                };
                compare(&step, old.get(key), new.get(key), lines);
            }
        }
        (Some(Value::Array(old)), Some(Value::Array(new))) => match (named(old), named(new)) {
            (Some(old), Some(new)) => {
                let names: std::collections::BTreeSet<_> = old.keys().chain(new.keys()).collect();
                for name in names {
                    compare(
                        &format!("{path}[{name}]"),
                        old.get(name).copied(),
                        new.get(name).copied(),
                        lines,
                    );
                }
            }
            _ => {
                for index in 0..old.len().max(new.len()) {
                    compare(&format!("{path}[{index}]"), old.get(index), new.get(index), lines);
                }
            }
        },
        (old, new) => lines.push(format!("{path}: {} -> {}", show(old), show(new))),
    }
}

/// Indexes list items by `name` or `type`, if all items have this field and its values are unique.
fn named(items: &[Value]) -> Option<BTreeMap<&str, &Value>> {
    let by = |field: &str| -> Option<BTreeMap<&str, &Value>> {
        let named: Option<BTreeMap<_, _>> = items.iter().map(|it| Some((it.get(field)?.as_str()?, it))).collect();
        named.filter(|it| it.len() == items.len() && !it.is_empty())
    };
    by("name").or_else(|| by("type"))
}

fn show(value: Option<&Value>) -> String {
    let Some(value) = value else {
        return "nothing".to_owned();
    };
    let text = value.to_string();
    match text.char_indices().nth(VALUE_CHARS) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}

impl WorldDiff {
    /// Returns `true` if the two states are equal.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && self.changed.is_empty()
    }
}

impl fmt::Display for WorldDiff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for object in &self.removed {
            writeln!(f, "- {}", title(object))?;
        }
        for object in &self.added {
            writeln!(f, "+ {}", title(object))?;
        }
        for (id, lines) in &self.changed {
            writeln!(f, "~ {id}")?;
            for line in lines {
                writeln!(f, "    {line}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::equal_values(json!({"a": 1}), json!({"a": 1}), &[])]
    #[case::value(json!({"a": {"b": 1}}), json!({"a": {"b": 2}}), &["a.b: 1 -> 2"])]
    #[case::absent(json!({"a": {"x.io/y": "z"}}), json!({"a": {}}), &["a[x.io/y]: \"z\" -> nothing"])]
    #[case::items_of_a_plain_list(json!({"l": [1, 2]}), json!({"l": [1, 3, 4]}),
        &["l[1]: 2 -> 3", "l[2]: nothing -> 4"])]
    #[case::named_items(
        json!({"c": [{"name": "a", "v": 1}, {"name": "b"}]}),
        json!({"c": [{"name": "b"}, {"name": "a", "v": 2}]}),
        &["c[a].v: 1 -> 2"]
    )]
    fn each_changed_field_is_on_a_separate_line(#[case] old: Value, #[case] new: Value, #[case] expected: &[&str]) {
        let mut lines = Vec::new();
        compare("", Some(&old), Some(&new), &mut lines);
        assert_eq!(lines, expected);
    }
}
