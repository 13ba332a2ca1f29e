//! Server-side apply (rules H1 to H17).

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::LazyLock;

use super::compare::{compare, no_fields};
use super::conflict::{Conflict, conflict_status};
use super::entries::{self, Identity};
use super::merge::merge_maps;
use super::prune::{prune_dropped, put_back_dangling, put_back_owned, without_last};
use super::reconcile::reconcile;
use super::set::FieldSet;
use super::typed::{field_set, validate};
use super::update::{has_other_version, other_versions, set_entries, subtract};
use super::{Manager, Types, UNOWNED, json, last_applied, track_update};
use crate::api::json::{Map, SmolStr, Value};
use crate::api::object::Object;
use crate::api::status::Status;
use crate::registry::types::schema::SchemaRef;

/// Applies `applied` to `live` as `manager`. `live` is `None` if the object is created; `kind` is the kind of the
/// resource.
///
/// The result has its managedFields set, and must still be decoded, defaulted and validated. It still contains the
/// status, the name and all other fields of the body.
pub(crate) fn apply(
    types: &Types<'_, '_>,
    live: Option<&Object>,
    applied: &Object,
    manager: &Manager<'_>,
    kind: &str,
    force: bool,
) -> Result<Object, Status> {
    check_body(types.schema, applied, manager, kind)?;
    let mut object = match merge_and_check(types, live, applied, manager, force) {
        Ok(object) => object,
        Err(Failure::Conflicts(conflicts)) => {
            check_conflicts(types.schema, live, manager, conflicts)?;
            merge_and_check(types, live, applied, manager, true).map_err(Failure::status)?
        }
        Err(failure) => return Err(failure.status()),
    };
    if manager.name == last_applied::KUBECTL {
        last_applied::sync(&mut object, applied);
    }
    Ok(object)
}

/// Checks the body without the live object (rules H2, H12).
fn check_body(schema: SchemaRef<'_>, applied: &Object, manager: &Manager<'_>, kind: &str) -> Result<(), Status> {
    let named = GroupVersionKind::of(applied);
    if applied.api_version() != manager.api_version || applied.kind() != kind {
        return Err(Status::bad_request(format!("invalid object type: {named}")));
    }
    if applied
        .metadata()
        .and_then(|it| it.get("managedFields"))
        .is_some_and(Value::is_array)
    {
        return Err(Status::bad_request("metadata.managedFields must be nil"));
    }
    validate(schema, &applied.0).map_err(|text| {
        let (namespace, name) = (applied.namespace(), applied.name());
        Status::new(
            500,
            "",
            format!("failed to create typed patch object ({namespace}/{name}; {named}): {text}"),
        )
    })
}

/// A kind in errors, which is printed like Go's `GroupVersionKind`.
struct GroupVersionKind<'a> {
    api_version: &'a str,
    kind: &'a str,
}

impl<'a> GroupVersionKind<'a> {
    fn of(object: &'a Object) -> Self {
        Self {
            api_version: object.api_version(),
            kind: object.kind(),
        }
    }
}

impl std::fmt::Display for GroupVersionKind<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.api_version.matches('/').count() {
            0 => write!(f, "/{}, Kind={}", self.api_version, self.kind),
            1 => write!(f, "{}, Kind={}", self.api_version, self.kind),
            _ => f.write_str("/, Kind="),
        }
    }
}

/// Splits the live object into its entries of managedFields and all other fields. An object without entries gets an
/// initial entry.
fn taken_apart(types: &Types<'_, '_>, live: &Object, manager: &Manager<'_>) -> (Vec<Value>, Map) {
    let entries = live.metadata().and_then(|it| it.get("managedFields"));
    let mut list = entries.and_then(Value::as_array).cloned().unwrap_or_default();
    let without_entries = |metadata: &Map| {
        let rest = metadata.iter().filter(|(name, _)| *name != "managedFields");
        Value::Object(rest.map(|(name, value)| (name.clone(), value.clone())).collect())
    };
    let field = |(name, value): (&SmolStr, &Value)| match value {
        Value::Object(metadata) if name == "metadata" => (name.clone(), without_entries(metadata)),
        value => (name.clone(), value.clone()),
    };
    let object: Map = live.iter().map(field).collect();
    reconcile(types.schema, manager.api_version, &mut list);
    if list.is_empty() {
        list = entries_of_the_untracked(types, object.clone(), manager);
    }
    (list, object)
}

/// Returns the initial entries for an object without managed fields: one entry that owns all its fields.
fn entries_of_the_untracked(types: &Types<'_, '_>, live: Map, manager: &Manager<'_>) -> Vec<Value> {
    let mut all = Object(live);
    let before = Manager {
        name: "before-first-apply",
        ..*manager
    };
    track_update(types, None, &mut all, &before);
    match all.metadata_mut().remove("managedFields") {
        Some(Value::Array(list)) => list,
        _ => Vec::new(),
    }
}

/// Allows kubectl to take over fields from its client-side apply; other conflicts are errors.
fn check_conflicts(
    schema: SchemaRef<'_>,
    live: Option<&Object>,
    manager: &Manager<'_>,
    conflicts: Vec<Conflict>,
) -> Result<(), Status> {
    let live = live.filter(|_| manager.name == last_applied::KUBECTL);
    match live.and_then(|live| last_applied::allowed_conflicts(schema, live, manager.api_version)) {
        None => Err(conflict_status(conflicts)),
        Some(allowed) if conflicts.iter().all(|it| it.is_within(&allowed)) => Ok(()),
        Some(allowed) => {
            let left = conflicts.into_iter().filter_map(|it| it.without(&allowed));
            Err(conflict_status(left.collect()))
        }
    }
}

/// Reason why an apply failed.
enum Failure {
    Conflicts(Vec<Conflict>),
    Other(Status),
}

impl Failure {
    fn status(self) -> Status {
        match self {
            Failure::Conflicts(conflicts) => conflict_status(conflicts),
            Failure::Other(status) => status,
        }
    }
}

fn merge_and_check(
    types: &Types<'_, '_>,
    live: Option<&Object>,
    applied: &Object,
    manager: &Manager<'_>,
    force: bool,
) -> Result<Object, Failure> {
    let id = Identity {
        manager: manager.name,
        applied: true,
        api_version: manager.api_version,
        subresource: manager.subresource,
    };
    let (mut others, mut object) = live.map(|live| taken_apart(types, live, manager)).unwrap_or_default();
    check_versions(types, live, &others, manager).map_err(Failure::Other)?;
    let place = others.iter().position(|entry| id.is_of(entry));
    let mine = place.map(|place| others.remove(place));
    let owned = without_reset(field_set(types.schema, &applied.0), manager.reset).difference(unowned());
    let last = mine.as_ref().and_then(entries::fields);
    let same_fields = last.is_some_and(|last| json::are(last, &owned));

    let mut changed = merge_maps(types.schema, &mut object, &applied.0);
    if let Some(mine) = &mine
        && !same_fields
    {
        // Fields that identify the object are always applied, although they are never owned.
        let applied = owned.clone().union(unowned().clone());
        changed |= prune(types, &mut object, mine, &others, &applied, manager).map_err(Failure::Other)?;
    }
    let mut object = Object(object);
    if changed || has_other_version(&others, manager.api_version) {
        let conflicts = take_changed(types, live, &object, manager, &mut others).map_err(Failure::Other)?;
        if !force && !conflicts.is_empty() {
            return Err(Failure::Conflicts(conflicts));
        }
    }
    if !owned.is_empty() {
        let mine = mine.map(|entry| (entry, same_fields));
        others.push(own_entry(&id, mine, owned, manager, changed));
    }
    entries::sort(&mut others);
    set_entries(&mut object, others);
    Ok(object)
}

/// Fails if the live object cannot be converted to the version of an entry, unless the version is obsolete, or if a
/// custom resource has fields that this version does not declare (`reconcileManagedFieldsWithSchemaChanges` in Go).
fn check_versions(
    types: &Types<'_, '_>,
    live: Option<&Object>,
    list: &[Value],
    manager: &Manager<'_>,
) -> Result<(), Status> {
    let Some(live) = live else { return Ok(()) };
    for version in other_versions(list, manager.api_version) {
        match (types.other)(live, &version) {
            Ok((schema @ SchemaRef::Custom(_), live)) if !super::typed::declares(schema, &live.0) => {
                let why = validate(schema, &live.0).err().unwrap_or_default();
                return Err(Status::new(500, "", why));
            }
            Ok(_) => {}
            Err(why) => why.refusal()?,
        }
    }
    Ok(())
}

/// Removes the fields in `reset`, which the write cannot own.
fn without_reset<'a>(mut set: FieldSet<'a>, reset: &[&[&str]]) -> FieldSet<'a> {
    for path in reset {
        set = set.recursive_difference(&FieldSet::of_path(path));
    }
    set
}

/// Returns the set of fields that cannot be owned.
fn unowned() -> &'static FieldSet<'static> {
    static SET: LazyLock<FieldSet<'static>> = LazyLock::new(|| {
        let paths = UNOWNED.iter().map(|path| FieldSet::of_path(path));
        paths.fold(FieldSet::new(), FieldSet::union)
    });
    &SET
}

/// Returns the manager's entry, with the time of the last apply that changed the object. `mine` is the manager's
/// previous entry, with a flag that is set if its fields are unchanged.
fn own_entry(
    id: &Identity<'_>,
    mine: Option<(Value, bool)>,
    set: FieldSet<'_>,
    manager: &Manager<'_>,
    changed: bool,
) -> Value {
    let Some((mut mine, same_fields)) = mine else {
        return id.entry(json::encode(&set), changed.then_some(manager.time));
    };
    if let Some(entry) = mine.as_object_mut() {
        if changed {
            entry.insert("time".into(), manager.time.into());
        }
        if !same_fields {
            entry.insert("fieldsV1".into(), json::encode(&set).into());
        }
        entry.insert("apiVersion".into(), id.api_version.into());
    }
    mine
}

/// Removes the changed fields from the entries in `others`, and the entries that become empty or have an obsolete
/// version. Returns the conflicts.
fn take_changed(
    types: &Types<'_, '_>,
    live: Option<&Object>,
    object: &Object,
    manager: &Manager<'_>,
    others: &mut Vec<Value>,
) -> Result<Vec<Conflict>, Status> {
    let mut conflicts = Vec::new();
    let changes = compare(
        types.schema,
        live.map_or(no_fields(), |live| &live.0),
        &object.0,
        manager.reset,
    );
    let mut take = |others: &mut Vec<Value>, version: &str, changes: &super::compare::Changes<'_>| {
        let of_version = others
            .iter_mut()
            .filter(|it| entries::text(it, "apiVersion") == version);
        for entry in of_version {
            let conflict = Conflict::find(entry, &changes.touched);
            // Without a conflict, the entry does not own any touched fields.
            if conflict.is_some() || !changes.removed.is_empty() {
                subtract(entry, &[&changes.touched, &changes.removed]);
            }
            conflicts.extend(conflict);
        }
    };
    take(others, manager.api_version, &changes);
    let mut obsolete: BTreeSet<String> = BTreeSet::new();
    for version in other_versions(others, manager.api_version) {
        let empty = Object::default();
        let both = |(schema, old)| (types.other)(object, &version).map(|(_, new)| (schema, old, new));
        match (types.other)(live.unwrap_or(&empty), &version).and_then(both) {
            Ok((schema, old, new)) => {
                let changes = compare(schema, &old.0, &new.0, manager.reset);
                take(others, &version, &changes);
            }
            Err(why) => {
                why.refusal()?;
                obsolete.insert(version);
            }
        }
    }
    others.retain(|entry| !entries::is_empty(entry) && !obsolete.contains(entries::text(entry, "apiVersion")));
    Ok(conflicts)
}

/// Removes from the merged object the fields that the manager applied before, no longer applies, and does not share
/// with another manager. Returns `true` if anything was removed.
fn prune(
    types: &Types<'_, '_>,
    merged: &mut Map,
    mine: &Value,
    others: &[Value],
    set: &FieldSet<'_>,
    manager: &Manager<'_>,
) -> Result<bool, Status> {
    let undecodable = |_| Status::new(500, "", "failed to decode managed fields: error decoding set");
    let last = json::decode(mine.get("fieldsV1")).map_err(undecodable)?;
    let version = entries::text(mine, "apiVersion");
    if version == manager.api_version && !has_other_version(others, version) {
        let others = others.iter().filter_map(|it| json::decode(it.get("fieldsV1")).ok());
        let others: Vec<_> = others.collect();
        let others: Vec<_> = others.iter().collect();
        return Ok(prune_dropped(types.schema, merged, &last, set, &others));
    }
    let pruned = prune_across_versions(types, merged, version, &last, others, set, manager)?;
    let changed = pruned.is_some();
    if let Some(pruned) = pruned {
        *merged = pruned;
    }
    Ok(changed)
}

/// Like [`prune`], for entries with several versions: the fields of each entry are resolved in the entry's version.
/// Returns `None` if nothing is removed.
fn prune_across_versions(
    types: &Types<'_, '_>,
    merged: &Map,
    version: &str,
    last: &FieldSet<'_>,
    others: &[Value],
    set: &FieldSet<'_>,
    manager: &Manager<'_>,
) -> Result<Option<Map>, Status> {
    let undecodable = |_| Status::new(500, "", "failed to decode managed fields: error decoding set");
    if last.is_empty() {
        return Ok(None);
    }
    let merged = Object(merged.clone());
    // The fields of an entry cannot be resolved if its version is no longer served.
    let Some((schema, merged)) = in_version(types, &merged, version, manager)? else {
        return Ok(None);
    };
    let mut pruned = Object(without_last(schema, &merged.0, last));
    // The version of the last apply comes first, because conversions to other versions may need the fields that are
    // owned in it.
    let mut versions = vec![version.to_owned()];
    versions.extend(other_versions(others, version).into_iter().filter(|it| !it.is_empty()));
    if !versions.iter().any(|it| it == manager.api_version) {
        versions.push(manager.api_version.to_owned());
    }
    for owners in &versions {
        let of_version = others.iter().filter(|it| entries::text(it, "apiVersion") == owners);
        let sets: Result<Vec<_>, _> = of_version.map(|it| json::decode(it.get("fieldsV1"))).collect();
        let mut owned = FieldSet::union_of(sets.map_err(undecodable)?);
        if owners == manager.api_version {
            owned = owned.union(set.clone());
        }
        let whole = in_version(types, &merged, owners, manager)?;
        let part = in_version(types, &pruned, owners, manager)?;
        if let (Some((schema, whole)), Some((_, part))) = (whole, part) {
            let back = put_back_owned(schema, &whole.0, &part.0, owned);
            pruned = Object(back);
        }
    }
    let Some((_, pruned)) = in_version(types, &pruned, version, manager)? else {
        return Ok(None);
    };
    let Some(left) = put_back_dangling(schema, &merged.0, &pruned.0, last) else {
        return Ok(None);
    };
    let left = Object(left);
    let back = in_version(types, &left, manager.api_version, manager)?;
    Ok(back.map(|(_, object)| object.into_owned().0))
}

/// Converts an object to a version, and returns its type in that version. The object is only borrowed if it already has
/// the version. Returns `None` if the version is obsolete.
fn in_version<'t, 'o>(
    types: &Types<'_, 't>,
    object: &'o Object,
    version: &str,
    manager: &Manager<'_>,
) -> Result<Option<(SchemaRef<'t>, Cow<'o, Object>)>, Status> {
    if version == manager.api_version && object.api_version() == version {
        return Ok(Some((types.schema, Cow::Borrowed(object))));
    }
    let (schema, converted) = match (types.other)(object, version) {
        Ok(converted) => converted,
        Err(why) => {
            why.refusal()?;
            return Ok(None);
        }
    };
    let schema = if version == manager.api_version {
        types.schema
    } else {
        schema
    };
    Ok(Some((schema, converted)))
}
