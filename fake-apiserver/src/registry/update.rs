//! Updates of objects: PUT, and the steps that PUT, PATCH and apply share.

use std::sync::{Arc, Mutex, PoisonError};

use super::Registry;
use super::admission::attributes::{Attributes, kind_named};
use super::answer::{Answer, Written, refuse};
use super::kinds::metadata;
use super::managed_fields::{self, Types};
use super::request::{Conditions, WriteRequest};
use super::scheme::Row;
use super::scheme::body::{self, Decoded};
use super::scheme::codec;
use super::types::decode::Text;
use super::types::hidden::Hidden;
use crate::api::admission::Operation;
use crate::api::field::{FieldErrors, FieldPath};
use crate::api::json::Value;
use crate::api::object::Object;
use crate::api::options::FieldValidation;
use crate::api::request_info::{RequestInfo, Verb};
use crate::api::status::Status;
use crate::storage::{Key, StoreError, Stored};

/// Maximum number of attempts to write an object that keeps changing. With a single writer, one attempt is usually
/// enough.
const TRIES: usize = 8;

/// Creates the new object of a write from the old one, which is in the requested version.
pub(super) trait Change: Sync {
    /// Returns the new object. Called again if the old object has changed in the meantime.
    fn next(&self, old: &Object) -> Result<Decoded, Status>;

    /// Returns the resourceVersion that the stored object must have; `None` if any version may be changed.
    fn required_version(&self) -> Option<&str> {
        None
    }

    /// Determines the owners of fields and discards the result, to find the webhook conversions that `next` needs.
    fn track(&self, _types: &Types<'_, '_>, _old: &Object) {}

    /// Returns `true` if `next` already updates the managed fields, as for an apply.
    fn is_tracked(&self) -> bool {
        false
    }

    /// Returns `true` if admission runs. It does not run for Pod updates by bindings and evictions, because these
    /// requests were already admitted.
    fn is_admitted(&self) -> bool {
        true
    }

    /// Returns the object to pass to admission instead of `_object`, such as a Scale; `None` to pass `_object`.
    fn shown(&self, _object: &Object) -> Result<Option<Object>, Status> {
        Ok(None)
    }

    /// Validates the shown object after the mutating phase of admission, and applies its changes to `_object`.
    fn take(&self, _object: &mut Object, _shown: &Object) -> Result<(), Status> {
        Ok(())
    }
}

/// PUT: the body replaces the stored object.
struct Replace<'a> {
    request: &'a WriteRequest<'a>,
    body: Mutex<Option<Decoded>>,
}

impl Change for Replace<'_> {
    fn next(&self, _old: &Object) -> Result<Decoded, Status> {
        let mut body = self.body.lock().unwrap_or_else(PoisonError::into_inner);
        let overwrites = |it: &Decoded| {
            let version = it.object.meta_str("resourceVersion");
            version.is_empty() || super::reader::parse_uint(version) == Ok(0)
        };
        // A body with a resourceVersion other than 0 is used only once, because it is outdated after a conflict.
        let next = match body.as_ref().is_some_and(overwrites) {
            true => body.clone(),
            false => body.take(),
        };
        let info = &self.request.info;
        next.ok_or_else(|| Status::object_modified(&self.request.row.info.group_resource(), &info.name))
    }
}

impl Registry {
    /// Handles the PUT of a decoded body (rules C1 to C6).
    pub(crate) async fn update(&self, request: &WriteRequest<'_>, mut decoded: Decoded) -> Result<Written, Status> {
        request.remarks.warnings.extend(std::mem::take(&mut decoded.warnings));
        let row = request.row;
        let object = &mut decoded.object;
        metadata::fill_namespace(object, &request.info.namespace)?;
        metadata::check_name(object, &request.info.name)?;
        let key = Key::new(&request.info.namespace, &request.info.name);
        if self.reader.store.get(&row.storage, &key).is_none() {
            if !may_create(request) {
                return Err(Status::not_found(&row.info.group_resource(), &request.info.name));
            }
            if !object.uid().is_empty() {
                return Err(unmet(request, &key, "UID", object.uid(), ""));
            }
            drop_version(request, object)?;
            return self.create(request, decoded).await;
        }
        let uid = Some(object.uid().to_owned()).filter(|it| !it.is_empty());
        let body = Mutex::new(Some(decoded));
        self.change(request, uid.as_deref(), &Replace { request, body }).await
    }

    /// Returns the object that a PUT will replace, if it was written recently.
    pub(crate) fn replaced(&self, row: &Row, info: &RequestInfo) -> Option<Arc<Object>> {
        let key = Key::new(&info.namespace, &info.name);
        let stored = self.reader.store.get(&row.storage, &key)?;
        self.recent.peek(row, &stored)
    }

    /// Replaces the object of a request with the result of `change`, and retries on concurrent writes. `uid` is the uid
    /// in the client's object, if set (rule A7).
    pub(super) async fn change(
        &self,
        request: &WriteRequest<'_>,
        uid: Option<&str>,
        change: &dyn Change,
    ) -> Result<Written, Status> {
        let row = request.row;
        let key = Key::new(&request.info.namespace, &request.info.name);
        for _ in 0..TRIES {
            let Some(stored) = self.reader.store.get(&row.storage, &key) else {
                return Err(Status::not_found(&row.info.group_resource(), &request.info.name));
            };
            if let Some(uid) = uid.filter(|it| **it != *stored.body.uid) {
                return Err(unmet(request, &key, "UID", uid, &stored.body.uid));
            }
            if let Some(version) = change.required_version() {
                let found = stored.revision.to_string();
                if version != found {
                    return Err(unmet(request, &key, "ResourceVersion", version, &found));
                }
            }
            self.reader.convert_stored(row, std::slice::from_ref(&stored)).await?;
            if let Some(written) = self.change_once(request, &stored, change).await? {
                return written.converted(&self.reader, row).await;
            }
        }
        Err(Status::object_modified(&row.info.group_resource(), &request.info.name))
    }

    /// Makes one attempt to write the object; returns `None` if the object has changed in the meantime.
    async fn change_once(
        &self,
        request: &WriteRequest<'_>,
        stored: &Arc<Stored>,
        change: &dyn Change,
    ) -> Result<Option<Written>, Status> {
        let old = self.recent.take(request.row, stored);
        if change.is_tracked() {
            let track = |types: &Types<'_, '_>| change.track(types, &old);
            self.convert_for_owners(request.row, &[&old], &track).await?;
        }
        let next = change.next(&old)?;
        self.finish_change(request, stored, old, next, change).await
    }

    /// Completes an attempt, from the client's new object to storage.
    async fn finish_change(
        &self,
        request: &WriteRequest<'_>,
        stored: &Arc<Stored>,
        mut old: Object,
        next: Decoded,
        change: &dyn Change,
    ) -> Result<Option<Written>, Status> {
        let Decoded {
            mut object,
            warnings,
            mut hidden,
        } = next;
        request.remarks.warnings.extend(warnings);
        let row = request.row;
        let strategy = row.strategy();
        metadata::fill_namespace(&mut object, &request.info.namespace)?;
        metadata::check_name(&object, &request.info.name)?;
        // Owner references in the result of a patch are deduplicated again after admission; the warning mentions this.
        let is_patch = request.info.verb == Verb::Patch;
        let repeated = metadata::dedupe_owner_references(&mut object, is_patch);
        request.remarks.warnings.extend(repeated);
        if !change.is_tracked() {
            self.track_change(request, &old, &mut object).await;
        }
        row.settle(&mut object);
        if change.is_admitted() {
            (object, old) = self.admit_change(request, change, (object, old), &mut hidden).await?;
        }
        self.authorization.check_escalation(request, &object, Some(&old))?;
        check_version(request, &object, stored)?;
        // A mutating webhook or plugin may have changed the namespace.
        metadata::fill_namespace(&mut object, &request.info.namespace)?;

        row.to_storage(&mut object);
        row.to_storage(&mut old);
        self.prepare(request, &mut object, &old, &hidden)?;
        self.authorization.check_references(request, &object, Some(&old))?;
        request
            .remarks
            .warnings
            .extend(match request.info.subresource.as_str() {
                // A Scale changes the object itself.
                "" | "scale" => strategy.warnings(&object, Some(&old)),
                "status" => strategy.status_warnings(&object),
                _ => Vec::new(),
            });
        if change.is_admitted() {
            self.check_change(request, change, &mut object, &mut old).await?;
        }
        let ends = is_finished(&object, &old) && !strategy.holds_terminating(&object);

        managed_fields::restore_times(&old, &mut object);
        self.reader.convert_to_store(row, &object).await?;
        let codec::Encoded { body, has_fraction } =
            codec::encode_for(row, &mut object, request.options.dry_run, change.is_tracked())?;
        if request.options.dry_run || ends {
            set_version(&mut object, stored.revision);
            if ends && !request.options.dry_run && self.remove(row, stored).is_err() {
                return Ok(None);
            }
            return Ok(Some(Written::updated(Answer::unstored(row, object))));
        }
        let stored =
            if body.bytes == stored.body.bytes && !stored.body.is_completed_on_read && !hidden.has_null_metadata {
                Arc::clone(stored)
            } else {
                match self.replace(row, stored, body) {
                    Ok(stored) => stored,
                    Err(StoreError::NotFound | StoreError::Stale | StoreError::Exists(_)) => return Ok(None),
                }
            };
        if !has_fraction {
            self.recent.keep(row, &stored, object);
        }
        Ok(Some(Written::updated(Answer::Stored(stored))))
    }

    /// Updates the managed fields of an object for the manager of the request.
    async fn track_change(&self, request: &WriteRequest<'_>, old: &Object, object: &mut Object) {
        let now = self.reader.entropy.now_seconds();
        let name = request.manager_name();
        let manager = request.manager(&name, &now);
        let track = |types: &Types<'_, '_>| {
            managed_fields::track_update(types, Some(old), &mut object.clone(), &manager);
        };
        match self.convert_for_owners(request.row, &[old, object], &track).await {
            Ok(()) => {
                request.with_types(|types| managed_fields::track_update(types, Some(old), object, &manager));
            }
            // Drops the managed fields if an object cannot be converted, as Go's `UpdateNoErrors` does after an error.
            Err(_) => drop(object.metadata_mut().remove("managedFields")),
        }
    }

    /// Runs the mutating phase of admission for a change; returns the new object and the old one. `hidden` is cleared
    /// if the object was decoded again.
    async fn admit_change(
        &self,
        request: &WriteRequest<'_>,
        change: &dyn Change,
        (mut object, old): (Object, Object),
        hidden: &mut Hidden,
    ) -> Result<(Object, Object), Status> {
        if let Some(shown) = change.shown(&object)? {
            let kind = kind_named(&shown);
            let mut attributes = Attributes::of_write(request, Operation::Update, shown, change.shown(&old)?);
            attributes.kind = kind;
            self.admission.admit(&mut attributes).await?;
            change.take(&mut object, &attributes.object.unwrap_or_default())?;
            return Ok((object, old));
        }
        let mut attributes = Attributes::of_write(request, Operation::Update, object, Some(old));
        attributes.hidden = std::mem::take(hidden);
        self.admission.admit(&mut attributes).await?;
        *hidden = std::mem::take(&mut attributes.hidden);
        let mut object = attributes.object.take().unwrap_or_default();
        self.complete_admitted(request, &mut object);
        Ok((object, attributes.old.take().unwrap_or_default()))
    }

    /// Runs the validating phase of admission for a change.
    async fn check_change(
        &self,
        request: &WriteRequest<'_>,
        change: &dyn Change,
        object: &mut Object,
        old: &mut Object,
    ) -> Result<(), Status> {
        let Some(shown) = change.shown(object)? else {
            return self
                .admission
                .check_write(request, Operation::Update, object, Some(old))
                .await;
        };
        let kind = kind_named(&shown);
        let mut attributes = Attributes::of_write(request, Operation::Update, shown, change.shown(old)?);
        attributes.kind = kind;
        self.admission.check_admitted(&attributes).await
    }

    /// Stores an object without admission, as if it were part of a dump of the store, replacing an existing object. A
    /// manifest that has never been stored gets the fields of a new object.
    pub(crate) fn put(&self, row: &Row, object: Object) -> Result<(), Status> {
        let is_manifest = object.uid().is_empty() && object.get("status").is_none();
        let Decoded { mut object, .. } = body::read(row, object, Text::default(), None, FieldValidation::Ignore)?;
        row.settle(&mut object);
        row.to_storage(&mut object);
        if is_manifest {
            let mut errors = FieldErrors::new();
            self.reader.with_context(Conditions::default(), |context| {
                // A manifest is stored without admission; only the kind's strategy may change it.
                let _ = row.strategy().admit(&mut object, None, context);
                row.strategy().allocate(&mut object, None, &mut errors, context)?;
                row.strategy().prepare_for_create(&mut object, context);
                Ok::<(), Status>(())
            })?;
            refuse(row, &object, &errors)?;
        }
        metadata::complete(&mut object, row.strategy(), &self.reader.entropy);
        let key = codec::key_of(&object);
        for _ in 0..TRIES {
            let body = codec::encode(row, &object)?.body;
            let stored = match self.reader.store.get(&row.storage, &key) {
                Some(old) => self.replace(row, &old, body),
                None => self.insert(row, key.clone(), body),
            };
            if stored.is_ok() {
                return Ok(());
            }
        }
        Err(Status::object_modified(&row.info.group_resource(), object.name()))
    }

    /// Removes an object immediately, ignoring its finalizers and grace period.
    pub(crate) fn take_out(&self, row: &Row, key: &Key) -> Result<(), Status> {
        let absent = || Status::not_found(&row.info.group_resource(), key.name());
        for _ in 0..TRIES {
            let stored = self.reader.store.get(&row.storage, key).ok_or_else(absent)?;
            if self.remove(row, &stored).is_ok() {
                return Ok(());
            }
        }
        Err(Status::object_modified(&row.info.group_resource(), key.name()))
    }

    /// Writes an object again without changes; returns `false` if it has changed in the meantime.
    pub(crate) fn touch(&self, row: &Row, stored: &Stored) -> bool {
        self.replace(row, stored, stored.body.clone()).is_ok()
    }

    /// Prepares and validates an update with the kind's strategy and the rules for all objects.
    fn prepare(
        &self,
        request: &WriteRequest<'_>,
        object: &mut Object,
        old: &Object,
        hidden: &Hidden,
    ) -> Result<(), Status> {
        let row = request.row;
        let strategy = row.strategy();
        let subresource = request.info.subresource.as_str();
        let mut errors = FieldErrors::new();
        restore_other_part(request, object, old);
        let is_raised = strategy.facts().compares_dropped_fields && strategy.raises_generation(object, old);
        row.drop_disabled(object, Some(old));
        let conditions = Conditions {
            hidden,
            ..request.conditions(subresource)
        };
        self.reader.with_context(conditions, |context| {
            strategy.allocate(object, Some(old), &mut errors, context)?;
            strategy.prepare_for_update(object, old, context);
            Ok::<(), Status>(())
        })?;
        metadata::prepare_update(object, old, strategy, subresource, hidden, is_raised);
        hidden.show_in(&mut errors);
        refuse(row, object, &errors)?;
        let checks = row.metadata_checks(subresource);
        metadata::validate_update(object, old, strategy, &checks, &mut errors);
        self.reader.with_context(conditions, |context| {
            strategy.validate_update(object, old, &mut errors, context)
        });
        let tolerated = strategy.tolerated(object, old, &errors);
        request.remarks.warnings.extend(tolerated);
        hidden.show_in(&mut errors);
        refuse(row, object, &errors)
    }
}

/// Keeps the status in a write to the resource. In a write to `/status`, keeps all other fields, except the metadata
/// that may be written there (rules C5, C6); for custom resources, the strategy does this.
fn restore_other_part(request: &WriteRequest<'_>, object: &mut Object, old: &Object) {
    let row = request.row;
    match request.info.subresource.as_str() {
        "status" if !row.is_custom() => {
            object.retain(|field, _| matches!(field.as_str(), "metadata" | "status") || old.contains_key(field));
            let kept = old
                .iter()
                .filter(|(field, _)| !matches!(field.as_str(), "metadata" | "status"));
            for (field, value) in kept {
                restore_field(object, field, Some(value));
            }
            for path in row.unowned_paths("status") {
                let ["metadata", field] = path else { continue };
                let kept = old.metadata().and_then(|meta| meta.get(field)).cloned();
                let meta = object.metadata_mut();
                meta.remove(field);
                meta.extend(kept.map(|it| ((*field).to_owned(), it)));
            }
        }
        "" if row.info.subresource("status").is_some() => {
            restore_field(object, "status", old.get("status"));
        }
        _ => {}
    }
}

/// Restores the old value of a field. Values are compared first, because they are usually equal and comparing is
/// cheaper than copying.
fn restore_field(object: &mut Object, field: &str, value: Option<&Value>) {
    if object.get(field) != value {
        object.remove(field);
        object.extend(value.map(|it| (field.to_owned(), it.clone())));
    }
}

/// Returns `true` if an object that is being deleted is left without finalizers and without a grace period, so that the
/// write removes it (rule B14).
fn is_finished(object: &Object, old: &Object) -> bool {
    let grace = old
        .metadata()
        .and_then(|meta| meta.get("deletionGracePeriodSeconds"))
        .and_then(|it| it.as_i64());
    old.is_terminating() && grace.unwrap_or(0) == 0 && object.finalizers().next().is_none()
}

fn set_version(object: &mut Object, revision: u64) {
    object
        .metadata_mut()
        .insert("resourceVersion".into(), revision.to_string().into());
}

/// Checks the optimistic lock (rules A6, A11, C1, C2).
fn check_version(request: &WriteRequest<'_>, object: &Object, stored: &Stored) -> Result<(), Status> {
    let row = request.row;
    let version = version_of(object)?;
    if version == stored.revision || (version == 0 && row.strategy().facts().allows_unconditional_update) {
        return Ok(());
    }
    if version == 0 {
        let mut errors = FieldErrors::new();
        let path = FieldPath::new("metadata").child("resourceVersion");
        errors.invalid(path, 0, "must be specified for an update");
        // kube-apiserver prints the resource here instead of the kind.
        let kind = crate::api::resource::GroupKind {
            group: row.info.group.clone(),
            kind: row.info.resource.clone(),
        };
        return Err(Status::invalid(&kind, object.name(), &errors));
    }
    Err(Status::object_modified(&row.info.group_resource(), object.name()))
}

/// Returns `true` if an update of an absent object creates it. The subresource `status` has the same setting as its
/// resource: a write to a Service's status may create the Service.
pub(super) fn may_create(request: &WriteRequest<'_>) -> bool {
    let may = request.row.strategy().facts().allows_create_on_update;
    may && matches!(request.info.subresource.as_str(), "" | "status")
}

/// Returns the resourceVersion in a body; 0 if it is empty.
fn version_of(object: &Object) -> Result<u64, Status> {
    match object.meta_str("resourceVersion") {
        "" => Ok(0),
        text => super::reader::parse_uint(text).map_err(|error| Status::new(500, "", error)),
    }
}

/// Removes the resourceVersion from an object that an update or apply creates, except in a dry run: kube-apiserver
/// removes it in storage, which a dry run does not reach.
pub(super) fn drop_version(request: &WriteRequest<'_>, object: &mut Object) -> Result<(), Status> {
    version_of(object)?;
    if !request.options.dry_run {
        object.metadata_mut().remove("resourceVersion");
    }
    Ok(())
}

/// Returns the error 409 for an unmet precondition, such as a uid that belongs to a different or deleted object (rule
/// A7).
fn unmet(request: &WriteRequest<'_>, key: &Key, field: &str, wanted: &str, found: &str) -> Status {
    let row = request.row;
    // In a dry run, kube-apiserver's key does not have the prefix of etcd.
    let prefix = if request.options.dry_run { "" } else { "/registry" };
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: {prefix}{}, ResourceVersion: 0, AdditionalErrorMsg: Precondition \
         failed: {field} in precondition: {wanted}, {field} in object meta: {found}",
        row.etcd_key(key.as_str())
    );
    Status::conflict(&row.info.group_resource(), &request.info.name, why)
}
