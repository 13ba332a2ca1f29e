//! DELETE: grace periods, finalizers, propagation and preconditions, then removal (rules B13 to B23, J1).

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::Registry;
use super::admission::attributes::Attributes;
use super::answer::{Answer, SuccessDetails, SuccessStatus, Written};
use super::kinds::facts::{FirstDelete, Propagation};
use super::reader::verbs::ListPage;
use super::request::{Remarks, Warnings};
use super::scheme::Row;
use super::scheme::codec;
use crate::api::json::{Value, json};
use crate::api::object::Object;
use crate::api::options::{DeleteOptions, ListOptions, PropagationPolicy};
use crate::api::request_info::RequestInfo;
use crate::api::status::Status;
use crate::api::user::UserInfo;
use crate::entropy;
use crate::storage::{Key, StoreError, Stored};

/// Finalizer of the garbage collector: the owner remains until its dependents are orphaned.
const ORPHAN: &str = "orphan";
/// Finalizer of the garbage collector: the owner remains until its dependents are deleted.
const FOREGROUND: &str = "foregroundDeletion";

/// Maximum number of attempts to delete an object that keeps changing.
const TRIES: usize = 8;

/// A request to delete an object, as admission sees it.
#[derive(Clone, Copy)]
struct Asked<'a> {
    row: &'a Row,
    info: &'a RequestInfo,
    user: &'a UserInfo,
    options: &'a DeleteOptions,
    remarks: &'a Remarks,
}

/// Result of one attempt to delete an object.
pub(super) enum Deletion {
    Answered {
        answer: Answer,
        /// Set if the object is no longer stored.
        is_gone: bool,
    },
    /// The object was stored with a deletionTimestamp (first field), and is removed next. The second field is the
    /// object for the response.
    Marked(Arc<Stored>, Object),
}

/// Next step in the deletion of an object.
enum Step {
    /// The deletion is already in progress, and the request does not change it.
    Pending,
    /// Mark the object as deleted and keep it.
    Mark(Object),
    /// Mark the object, then remove it: for example, a Pod with a grace period of 0 seconds.
    MarkAndRemove(Object),
    /// Remove the object.
    Remove,
}

impl Registry {
    /// Handles the DELETE of one object.
    pub(crate) async fn delete(
        &self,
        row: &Row,
        info: &RequestInfo,
        user: &UserInfo,
        options: &DeleteOptions,
        remarks: &Remarks,
    ) -> Result<Written, Status> {
        self.delete_as(row, info, Some(user), options, remarks).await
    }

    /// Deletes an object. Without a user, for example in an eviction that was already admitted, admission does not run.
    pub(super) async fn delete_as(
        &self,
        row: &Row,
        info: &RequestInfo,
        user: Option<&UserInfo>,
        options: &DeleteOptions,
        remarks: &Remarks,
    ) -> Result<Written, Status> {
        let resource = row.info.group_resource();
        let key = Key::new(&info.namespace, &info.name);
        let asked = user.map(|user| Asked {
            row,
            info,
            user,
            options,
            remarks,
        });
        let asked = asked.filter(|_| self.admission.may_refuse_deletion(row));
        warn_of_orphans(row, options, &remarks.warnings);
        for _ in 0..TRIES {
            let Some(stored) = self.reader.store.get(&row.storage, &key) else {
                return Err(Status::not_found(&resource, &info.name));
            };
            self.reader.convert_stored(row, std::slice::from_ref(&stored)).await?;
            if let Some(asked) = asked {
                self.admit_deletion(asked, &stored).await?;
            }
            let Some(done) = self.delete_once(row, &stored, options)? else {
                continue;
            };
            let (answer, is_gone) = match done {
                Deletion::Answered { answer, is_gone } => (answer, is_gone),
                Deletion::Marked(marked, object) => {
                    // If the client disconnects in the meantime, the object remains marked; the next delete removes it.
                    if !self.removal_delay.is_zero() {
                        tokio::time::sleep(self.removal_delay).await;
                    }
                    (self.finish_marked(row, asked, marked, object).await?, true)
                }
            };
            let mut written = Written::updated(answer);
            if !is_gone && options.orphan_dependents == Some(false) {
                // With `orphanDependents: false`, kube-apiserver returns 202 if the object is not removed immediately.
                written.code = 202;
            }
            return written.converted(&self.reader, row).await;
        }
        Err(Status::object_modified(&resource, &info.name))
    }

    /// Handles the DELETE of a collection: deletes one object after another. The response contains the objects before
    /// their deletion.
    pub(crate) async fn delete_collection(
        &self,
        row: &Row,
        info: &RequestInfo,
        user: &UserInfo,
        list: &ListOptions,
        options: &DeleteOptions,
        remarks: &Remarks,
    ) -> Result<ListPage, Status> {
        warn_of_orphans(row, options, &remarks.warnings);
        // kube-apiserver lists the collection in pages, so a list with a resourceVersion shows exactly this version.
        let mut list = list.clone();
        list.limit = Some(list.limit).filter(|it| *it > 0).unwrap_or(usize::MAX);
        let page = self.reader.list(row, info, &list).await?;
        for stored in page.items.iter() {
            let info = RequestInfo {
                namespace: stored.key.namespace().to_owned(),
                name: stored.key.name().to_owned(),
                ..info.clone()
            };
            match self.delete(row, &info, user, options, remarks).await {
                Err(status) if status.code != 404 => return Err(status),
                Ok(_) | Err(_) => {}
            }
        }
        Ok(page)
    }

    /// Calls admission for a deletion, unless the deletion is forbidden or already in progress.
    async fn admit_deletion(&self, asked: Asked<'_>, stored: &Stored) -> Result<(), Status> {
        let Asked { row, options, .. } = asked;
        options.check_preconditions(row, stored)?;
        let old = self.reader.decode(row, stored);
        let mut in_storage = old.clone();
        row.to_storage(&mut in_storage);
        if row.strategy().forbids_deletion(&old, self.reader.plugins).is_some()
            || matches!(self.next_step(row, &in_storage, options), Step::Pending)
        {
            return Ok(());
        }
        self.admit_old(asked, old).await
    }

    /// Calls admission for the deletion of this object.
    async fn admit_old(&self, asked: Asked<'_>, old: Object) -> Result<(), Status> {
        let resource = (asked.row, asked.info);
        let mut attributes = Attributes::of_delete(resource, asked.user, asked.options, old, asked.remarks);
        self.admission.admit(&mut attributes).await?;
        self.admission.check_admitted(&attributes).await
    }

    /// Makes one attempt; returns `None` if the object has changed in the meantime.
    pub(super) fn delete_once(
        &self,
        row: &Row,
        stored: &Stored,
        options: &DeleteOptions,
    ) -> Result<Option<Deletion>, Status> {
        let answered = |answer, is_gone| Some(Deletion::Answered { answer, is_gone });
        let strategy = row.strategy();
        // The deletion uses the storage version; the response has the requested version.
        let mut old = self.reader.decode(row, stored);
        options.check_preconditions(row, stored)?;
        if let Some(why) = strategy.forbids_deletion(&old, self.reader.plugins) {
            return Err(Status::forbidden(&row.info.group_resource(), old.name(), why));
        }
        row.to_storage(&mut old);
        let step = self.next_step(row, &old, options);
        if options.dry_run {
            return Ok(match step {
                Step::Pending => answered(self.as_it_is(row, stored), false),
                Step::Mark(object) => answered(Answer::unstored(row, with_version(object, stored.revision)), false),
                Step::MarkAndRemove(object) => answered(self.deleted(row, object, stored.revision), true),
                Step::Remove => answered(self.deleted(row, old, stored.revision), true),
            });
        }
        Ok(match step {
            Step::Pending => answered(self.as_it_is(row, stored), false),
            Step::Mark(object) => {
                let body = encode_marked(row, stored, &object)?;
                if body.bytes == stored.body.bytes {
                    return Ok(answered(self.as_it_is(row, stored), false));
                }
                let marked = self.replace(row, stored, body).ok();
                marked.and_then(|it| answered(Answer::Stored(it), false))
            }
            Step::MarkAndRemove(object) => {
                let marked = self.replace(row, stored, encode_marked(row, stored, &object)?).ok();
                marked.map(|it| Deletion::Marked(it, object))
            }
            Step::Remove => match self.remove(row, stored) {
                Ok(revision) => answered(self.deleted(row, old, revision), true),
                Err(_) => None,
            },
        })
    }

    /// Removes an object that was marked for deletion, even if it has changed since then. A new object with the same
    /// name is kept. Returns the response for `object`, even if it was already removed. As in kube-apiserver, each of
    /// the two writes of a deletion is admitted (`Store.Delete`), so a refusal leaves the object marked.
    async fn finish_marked(
        &self,
        row: &Row,
        asked: Option<Asked<'_>>,
        mut marked: Arc<Stored>,
        object: Object,
    ) -> Result<Answer, Status> {
        let current = |marked: &Stored| {
            let found = self.reader.store.get(&row.storage, &marked.key);
            found.filter(|it| it.body.uid == marked.body.uid)
        };
        while let Some(found) = current(&marked) {
            marked = found;
            if let Some(asked) = asked {
                self.admit_old(asked, self.reader.decode(row, &marked)).await?;
            }
            match self.remove(row, &marked) {
                Ok(revision) => return Ok(self.deleted(row, object, revision)),
                Err(StoreError::Stale) => {}
                Err(StoreError::NotFound | StoreError::Exists(_)) => break,
            }
        }
        Ok(self.deleted(row, object, marked.revision))
    }

    fn as_it_is(&self, row: &Row, stored: &Stored) -> Answer {
        Answer::Object(self.reader.decode(row, stored))
    }

    /// Returns the response to a delete that removed the object (rule B16).
    fn deleted(&self, row: &Row, object: Object, revision: u64) -> Answer {
        if row.strategy().facts().returns_deleted_object {
            return Answer::unstored(row, with_version(object, revision));
        }
        let details = SuccessDetails {
            name: object.name().to_owned(),
            group: row.info.group.to_string(),
            kind: row.info.resource.to_string(),
            uid: object.uid().to_owned(),
        };
        Answer::Status(Box::new(SuccessStatus {
            details: Some(details),
            code: 0,
        }))
    }

    /// Returns the next step in an object's deletion.
    fn next_step(&self, row: &Row, old: &Object, options: &DeleteOptions) -> Step {
        let strategy = row.strategy();
        let mut object = old.clone();
        let first_delete = strategy.facts().first_delete;
        if first_delete != FirstDelete::Removes {
            if !old.is_terminating() {
                mark(&mut object, self.reader.entropy.now(), false);
                if first_delete == FirstDelete::MarksAndPropagates {
                    set_propagation_finalizers(row, &mut object, options);
                }
                strategy.prepare_for_deletion(&mut object);
                return Step::Mark(object);
            }
            if strategy.holds_terminating(old) {
                return Step::Pending;
            }
        }
        let graceful = match begin_grace(row, &mut object, options, self.reader.entropy.now()) {
            Grace::None => None,
            Grace::Pending => return Step::Pending,
            Grace::Begun(seconds) => Some(seconds),
        };
        set_propagation_finalizers(row, &mut object, options);
        let held = object.finalizers().next().is_some() || strategy.holds_terminating(&object);
        match graceful {
            None if held => {
                mark(&mut object, self.reader.entropy.now(), true);
                strategy.prepare_for_deletion(&mut object);
                Step::Mark(object)
            }
            None => Step::Remove,
            Some(seconds) if held || seconds > 0 => {
                strategy.prepare_for_deletion(&mut object);
                Step::Mark(object)
            }
            Some(_) => Step::MarkAndRemove(object),
        }
    }
}

/// Encodes an object that was marked for deletion. Only its metadata has changed, so conversion webhooks are not
/// called.
fn encode_marked(row: &Row, stored: &Stored, object: &Object) -> Result<crate::storage::Body, Status> {
    let Some((resource, _)) = row.conversion_on_read() else {
        return Ok(codec::encode(row, object)?.body);
    };
    let mut in_storage = codec::decode_as_stored(row, stored);
    let mut meta = object.metadata().cloned().unwrap_or_default();
    for field in ["labels", "annotations"] {
        meta.remove(field);
        let own = in_storage.metadata().and_then(|it| it.get(field)).cloned();
        meta.extend(own.map(|it| (field.to_owned(), it)));
    }
    in_storage.insert("metadata".into(), meta.into());
    let storage_row = row.of_version(&resource.storage);
    Ok(codec::encode(storage_row.as_ref().unwrap_or(row), &in_storage)?.body)
}

enum Grace {
    /// The kind does not support grace periods, or the period has ended.
    None,
    /// A grace period is running, and the request does not shorten it.
    Pending,
    /// The object's grace period is now this number of seconds.
    Begun(i64),
}

/// Handles grace periods (rules B17, B18): sets the deletion time if a period begins or is shortened.
fn begin_grace(row: &Row, object: &mut Object, options: &DeleteOptions, now: Timestamp) -> Grace {
    let asked = options.grace_period_seconds;
    let Some(seconds) = row.strategy().grace_period(object, asked) else {
        return Grace::None;
    };
    let number = |object: &Object, field: &str| object.metadata()?.get(field)?.as_i64();
    if object.is_terminating() {
        // An absent grace period, or a period of 0 seconds, has ended.
        let running = number(object, "deletionGracePeriodSeconds").filter(|it| *it != 0);
        let Some(running) = running else {
            return Grace::None;
        };
        let Some(asked) = asked.map(|it| if it < 0 { 1 } else { it }).filter(|it| *it < running) else {
            return Grace::Pending;
        };
        let begun = object.meta_str("deletionTimestamp").parse::<Timestamp>().unwrap_or(now);
        let ends = begun
            .saturating_add(SignedDuration::from_secs(asked - running))
            .unwrap_or(now);
        // A deletion time in the past becomes the current time, with at most one remaining second.
        let (ends, asked) = if ends < now { (now, asked.min(1)) } else { (ends, asked) };
        let meta = object.metadata_mut();
        meta.insert("deletionTimestamp".into(), entropy::seconds(ends).into());
        meta.insert("deletionGracePeriodSeconds".into(), asked.into());
        return Grace::Begun(asked);
    }
    let ends = now.saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(now);
    let generation = number(object, "generation").unwrap_or(0);
    let meta = object.metadata_mut();
    meta.insert("deletionTimestamp".into(), entropy::seconds(ends).into());
    meta.insert("deletionGracePeriodSeconds".into(), seconds.into());
    if generation > 0 {
        meta.insert("generation".into(), (generation.saturating_add(1)).into());
    }
    Grace::Begun(seconds)
}

/// Marks an object as deleted now, unless it is already marked (rules B10, B13). `with_grace` sets a grace period of 0
/// seconds.
fn mark(object: &mut Object, now: Timestamp, with_grace: bool) {
    let number = |object: &Object, field: &str| object.metadata()?.get(field)?.as_i64();
    let generation = number(object, "generation").unwrap_or(0);
    let terminating = object.is_terminating();
    let meta = object.metadata_mut();
    // CRDs, and other objects that are marked by their own registry in kube-apiserver, keep the generation.
    if with_grace && !terminating && generation > 0 {
        meta.insert("generation".into(), (generation.saturating_add(1)).into());
    }
    if !terminating {
        meta.insert("deletionTimestamp".into(), entropy::seconds(now).into());
    }
    if with_grace {
        meta.insert("deletionGracePeriodSeconds".into(), json!(0));
    }
}

/// Adds and removes the garbage collector's finalizers according to the options (rule B19).
fn set_propagation_finalizers(row: &Row, object: &mut Object, options: &DeleteOptions) {
    let has = |name: &str| object.finalizers().any(|it| it == name);
    let default = row.strategy().facts().default_propagation;
    let (orphan, foreground) = match (options.orphan_dependents, options.propagation_policy) {
        _ if default == Propagation::Unsupported => (false, false),
        // A namespace is deleted in the foreground (`shouldHaveDeleteDependentsFinalizer`); other objects are not.
        (Some(orphan), _) => {
            let facts = row.strategy().facts();
            (orphan, !orphan && facts.first_delete == FirstDelete::MarksAndPropagates)
        }
        (None, Some(PropagationPolicy::Orphan)) => (true, false),
        (None, Some(PropagationPolicy::Foreground)) => (false, true),
        (None, Some(PropagationPolicy::Background)) => (false, false),
        (None, None) if has(ORPHAN) => (true, false),
        (None, None) if has(FOREGROUND) => (false, true),
        (None, None) => (default == Propagation::Orphan, false),
    };
    if has(ORPHAN) == orphan && has(FOREGROUND) == foreground {
        return;
    }
    let kept = object.finalizers().filter(|it| *it != ORPHAN && *it != FOREGROUND);
    let mut finalizers: Vec<Value> = kept.map(Value::from).collect();
    finalizers.extend(orphan.then(|| ORPHAN.into()));
    finalizers.extend(foreground.then(|| FOREGROUND.into()));
    let meta = object.metadata_mut();
    if finalizers.is_empty() {
        meta.remove("finalizers");
    } else {
        meta.insert("finalizers".into(), finalizers.into());
    }
}

impl DeleteOptions {
    /// Checks preconditions (rule A8). As in kube-apiserver, the errors contain the kind in place of the resource.
    pub(super) fn check_preconditions(&self, row: &Row, stored: &Stored) -> Result<(), Status> {
        if row.strategy().facts().first_delete != FirstDelete::Removes {
            return self.check_preconditions_of_marked(row, stored);
        }
        let conflict = |why: String| {
            let kind = row.typed_kind();
            let named = crate::api::resource::GroupResource {
                group: kind.group,
                resource: kind.kind,
            };
            Err(Status::conflict(&named, stored.key.name(), why))
        };
        if let Some(uid) = self.uid.as_deref().filter(|it| **it != *stored.body.uid) {
            return conflict(format!(
                "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been \
                 deleted and then recreated",
                stored.body.uid
            ));
        }
        let revision = stored.revision.to_string();
        if let Some(version) = self.resource_version.as_deref().filter(|it| **it != revision) {
            return conflict(format!(
                "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record \
                 ({revision}). The object might have been modified"
            ));
        }
        Ok(())
    }

    /// Same as [`check_preconditions`](DeleteOptions::check_preconditions), for kinds that the first delete only marks.
    /// Their registry in kube-apiserver has different messages.
    fn check_preconditions_of_marked(&self, row: &Row, stored: &Stored) -> Result<(), Status> {
        let revision = stored.revision.to_string();
        let pairs = [
            ("UID", self.uid.as_deref(), &*stored.body.uid),
            ("ResourceVersion", self.resource_version.as_deref(), revision.as_str()),
        ];
        for (name, wanted, found) in pairs {
            if let Some(wanted) = wanted.filter(|it| *it != found) {
                let why =
                    format!("Precondition failed: {name} in precondition: {wanted}, {name} in object meta: {found}");
                return Err(Status::conflict(&row.info.group_resource(), stored.key.name(), why));
            }
        }
        Ok(())
    }
}

fn with_version(mut object: Object, revision: u64) -> Object {
    object
        .metadata_mut()
        .insert("resourceVersion".into(), revision.to_string().into());
    object
}

/// Warns that a Job's dependents are kept by default. The warning only depends on the request: it is also sent if the
/// Job does not exist (rule B21; `job/storage.REST.Delete`).
fn warn_of_orphans(row: &Row, options: &DeleteOptions, warnings: &Warnings) {
    let is_said = options.propagation_policy.is_some() || options.orphan_dependents.is_some();
    if !is_said && (&*row.info.group, &*row.info.resource) == ("batch", "jobs") {
        let text = "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to \
                    remove them or set propagationPolicy=Orphan to suppress this warning";
        warnings.extend([text.to_owned()]);
    }
}
