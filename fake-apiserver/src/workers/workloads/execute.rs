//! Executes a plan: sends its writes as requests of the controller.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use super::cron_job::add_active;
use super::plan::{Note, Rescale, Told, Write};
use super::recorder::{Recorded, Recorder};
use super::resource::{Resource, Target};
use crate::api::json::{Map, Value, json};
use crate::api::object::Object;
use crate::api::options::{DeleteOptions, PatchKind, PropagationPolicy};
use crate::storage::Key;
use crate::workers::{Api, Identity, RequestFailure};

/// Executes the plan of one controller.
pub(super) struct Executor<'a> {
    pub(super) api: Api<'a>,
    pub(super) recorder: &'a mut Recorder,
    /// Identities of other accounts, by name.
    pub(super) accounts: &'a BTreeMap<&'static str, Identity>,
    /// The object that this plan has last written.
    pub(super) latest: Option<(Target, Object)>,
    /// Reason why an object could not be created or deleted, for the status of its owner.
    pub(super) refused: Option<String>,
}

impl Executor<'_> {
    /// Sends the writes in order, up to the first failure.
    pub(super) async fn run(
        &mut self,
        writes: Vec<Write>,
        read: &impl Fn(&Target) -> Option<Arc<Object>>,
    ) -> Result<(), RequestFailure> {
        for write in writes {
            match write {
                Write::As { account, writes } => {
                    let own = self.api;
                    if let Some(identity) = self.accounts.get(account) {
                        self.api.identity = identity;
                    }
                    let mut done = Ok(());
                    for write in writes {
                        if done.is_ok() {
                            done = self.send(write, read).await;
                        }
                    }
                    self.api = own;
                    done?;
                }
                write => self.send(write, read).await?,
            }
        }
        Ok(())
    }

    /// Sends a write.
    async fn send(
        &mut self,
        write: Write,
        read: &impl Fn(&Target) -> Option<Arc<Object>>,
    ) -> Result<(), RequestFailure> {
        match write {
            Write::Create { resource, object, told } => drop(self.create(resource, object, told).await?),
            Write::CreateActive {
                job,
                told,
                cron,
                mut status,
                scheduled,
            } => {
                let created = self.create(Resource::Job, job, Some(told)).await;
                if let Ok(Some(job)) = &created {
                    add_active(&mut status, job);
                    status.insert("lastScheduleTime".into(), scheduled.into());
                }
                tolerate(self.status(&cron, Value::Object(status), read).await)?;
                created?;
            }
            Write::Merge { at, subresource, patch } => {
                let done = self.merge(&at, subresource, &patch, read).await;
                tolerate(done)?;
            }
            // Writes are only nested once.
            Write::As { .. } => {}
            Write::Scale(rescale) => self.rescale(*rescale, read).await?,
            Write::Token { at, mut patch, claims } => {
                let token = self.api.sign(&claims).map_err(RequestFailure::new)?;
                patch["data"]["token"] = BASE64_STANDARD.encode(token).into();
                tolerate(self.merge(&at, "", &patch, read).await)?;
            }
            Write::Patch {
                at,
                subresource,
                kind,
                patch,
            } => {
                let resource = at.resource.storage();
                let done = self.api.patch(resource, &subresource, &at.key, kind, &patch).await;
                tolerate(done.map(drop))?;
            }
            Write::Status { at, status } => tolerate(self.status(&at, status, read).await)?,
            Write::Delete {
                at,
                grace,
                propagation,
                told,
            } => self.delete(&at, grace, propagation, told).await?,
            Write::Bind { pod, node } => tolerate(self.bind(&pod, &node).await)?,
            Write::Note(note) => self.note(&note).await,
        }
        Ok(())
    }

    /// Creates an object and returns it; `None` if it exists, or if its namespace is being deleted.
    async fn create(
        &mut self,
        resource: Resource,
        object: Object,
        told: Option<Told>,
    ) -> Result<Option<Object>, RequestFailure> {
        let namespace = object.namespace().to_owned();
        match self
            .api
            .create(resource.storage(), &namespace, &Value::Object(object.0))
            .await
        {
            Ok(made) => {
                if let Some(note) = told.and_then(|it| succeeded(it, made.name())) {
                    self.note(&note).await;
                }
                Ok(Some(made))
            }
            // The namespace is being deleted together with the owner of this object, so nothing needs to be created.
            Err(failure) if failure.is_namespace_terminating() || failure.is_already_exists() => Ok(None),
            Err(failure) => {
                if let Some(told) = told {
                    self.refused = Some(failure.message.clone());
                    self.note(&failed(told, &failure.message)).await;
                }
                Err(failure)
            }
        }
    }

    async fn rescale(
        &mut self,
        rescale: Rescale,
        read: &impl Fn(&Target) -> Option<Arc<Object>>,
    ) -> Result<(), RequestFailure> {
        let patch = json!({"spec": {"replicas": rescale.replicas}});
        let done = self
            .api
            .patch(&rescale.storage, "scale", &rescale.key, PatchKind::Merge, &patch)
            .await;
        let (mut note, mut status) = if done.is_ok() { rescale.success } else { rescale.failure };
        if let Err(failure) = &done {
            note.message = completed(&note.message, &failure.message);
            let conditions = status.get_mut("conditions").and_then(Value::as_array_mut);
            for condition in conditions.into_iter().flatten() {
                let message = condition["message"].as_str().map(|it| completed(it, &failure.message));
                if let Some(message) = message {
                    condition["message"] = message.into();
                }
            }
        }
        self.note(&note).await;
        // The next evaluation tries again, so a refusal is not retried earlier.
        tolerate(self.status(&rescale.at, Value::Object(status), read).await)
    }

    async fn delete(
        &mut self,
        at: &Target,
        grace: Option<i64>,
        propagation: Option<PropagationPolicy>,
        told: Option<Told>,
    ) -> Result<(), RequestFailure> {
        let options = DeleteOptions {
            grace_period_seconds: grace,
            uid: Some(at.uid.clone()),
            propagation_policy: propagation,
            ..DeleteOptions::default()
        };
        match self.api.delete(at.resource.storage(), &at.key, &options).await {
            Ok(()) => {
                if let Some(note) = told.and_then(|it| succeeded(it, at.key.name())) {
                    self.note(&note).await;
                }
                Ok(())
            }
            Err(failure) if failure.is_not_found() || failure.is_conflict() => Ok(()),
            Err(failure) => {
                if let Some(told) = told {
                    self.refused = Some(failure.message.clone());
                    self.note(&failed(told, &failure.message)).await;
                }
                Err(failure)
            }
        }
    }

    /// Applies a merge patch: with PATCH for Pods and owner references, like kube-controller-manager, otherwise with
    /// PUT.
    async fn merge(
        &mut self,
        at: &Target,
        subresource: &str,
        patch: &Value,
        read: &impl Fn(&Target) -> Option<Arc<Object>>,
    ) -> Result<(), RequestFailure> {
        let owners = patch.pointer("/metadata/ownerReferences").is_some();
        if at.resource == Resource::Pod || owners {
            self.api
                .patch(at.resource.storage(), subresource, &at.key, PatchKind::Merge, patch)
                .await?;
            return Ok(());
        }
        let Some(object) = self.current(at, read) else {
            return Ok(());
        };
        let mut next = Value::Object(object.0);
        merge_into(&mut next, patch);
        self.replace(at, subresource, next).await
    }

    async fn status(
        &mut self,
        at: &Target,
        status: Value,
        read: &impl Fn(&Target) -> Option<Arc<Object>>,
    ) -> Result<(), RequestFailure> {
        let Some(mut object) = self.current(at, read) else {
            return Ok(());
        };
        if at.resource == Resource::Pod {
            let old = object.get("status").cloned().unwrap_or_default();
            // With the uid, the status of another Pod with the same name is not changed.
            let patch = json!({"metadata": {"uid": at.uid}, "status": difference(&old, &status)});
            self.api
                .patch(at.resource.storage(), "status", &at.key, PatchKind::Merge, &patch)
                .await?;
            return Ok(());
        }
        object.insert("status".into(), status);
        self.replace(at, "status", Value::Object(object.0)).await
    }

    async fn replace(&mut self, at: &Target, subresource: &str, object: Value) -> Result<(), RequestFailure> {
        let Value::Object(map) = object else { return Ok(()) };
        let mut written = self
            .api
            .update(at.resource.storage(), subresource, &Object(map))
            .await?;
        written.metadata_mut().remove("managedFields");
        self.latest = Some((at.clone(), written));
        Ok(())
    }

    /// Returns the object as this plan has last written it, otherwise as it was observed.
    fn current(&self, at: &Target, read: &impl Fn(&Target) -> Option<Arc<Object>>) -> Option<Object> {
        match &self.latest {
            Some((target, object)) if target == at => Some(object.clone()),
            Some(_) | None => read(at).map(|it| (*it).clone()),
        }
    }

    async fn bind(&self, pod: &Target, node: &str) -> Result<(), RequestFailure> {
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod.key.name(), "namespace": pod.key.namespace()},
            "target": {"kind": "Node", "name": node},
        });
        let path = format!(
            "/api/v1/namespaces/{}/pods/{}/binding",
            pod.key.namespace(),
            pod.key.name()
        );
        self.api
            .request(http::Method::POST, &path, Some("application/json"), &binding)
            .await?;
        Ok(())
    }

    /// Writes an Event. Failures are ignored.
    async fn note(&mut self, note: &Note) {
        if let Some(recorded) = self.recorder.record(note, self.api.now())
            && let Err(failure) = self.write_event(&recorded).await
        {
            tracing::debug!(reason = %note.reason, %failure, "an Event was not written");
        }
    }

    /// Increments the count of an Event, or creates it if it is new, or if it has expired or was deleted.
    async fn write_event(&self, recorded: &Recorded) -> Result<(), RequestFailure> {
        let events = Resource::Event.storage();
        if let Some(patch) = &recorded.patch {
            let key = Key::new(&recorded.namespace, &recorded.name);
            match self.api.patch(events, "", &key, PatchKind::Merge, patch).await {
                Err(failure) if failure.is_not_found() => {}
                done => return done.map(drop),
            }
        }
        let done = self.api.create(events, &recorded.namespace, &recorded.event).await;
        done.map(drop)
    }
}

/// Treats a missing object as success.
fn tolerate(done: Result<(), RequestFailure>) -> Result<(), RequestFailure> {
    match done {
        Err(failure) if failure.is_not_found() => Ok(()),
        other => other,
    }
}

fn succeeded(told: Told, name: &str) -> Option<Note> {
    let (reason, message) = told.success?;
    Some(Note {
        about: told.about,
        component: told.component,
        host: String::new(),
        is_warning: false,
        reason: reason.into(),
        message: message.replace("{}", name),
    })
}

fn failed(told: Told, why: &str) -> Note {
    let (reason, message) = told.failure;
    Note {
        about: told.about,
        component: told.component,
        host: String::new(),
        is_warning: true,
        reason: reason.into(),
        message: message.replace("{}", why),
    }
}

/// Applies a JSON merge patch to a value.
fn merge_into(value: &mut Value, patch: &Value) {
    let Some(fields) = patch.as_object() else {
        *value = patch.clone();
        return;
    };
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    let Some(map) = value.as_object_mut() else { return };
    for (key, change) in fields {
        match change {
            Value::Null => drop(map.remove(key)),
            change => merge_into(map.entry(key.clone()).or_insert(Value::Null), change),
        }
    }
}

/// Returns the JSON merge patch from `from` to `to`.
fn difference(from: &Value, to: &Value) -> Value {
    let (Some(from), Some(to)) = (from.as_object(), to.as_object()) else {
        return to.clone();
    };
    let gone = from
        .iter()
        .filter(|(key, value)| !to.contains_key(key) && !value.is_null());
    let mut patch: Map = gone.map(|(key, _)| (key.clone(), Value::Null)).collect();
    for (key, value) in to {
        match from.get(key) {
            Some(old) if old == value => {}
            Some(old) if old.is_object() => drop(patch.insert(key.clone(), difference(old, value))),
            Some(_) | None => drop(patch.insert(key.clone(), value.clone())),
        }
    }
    Value::Object(patch)
}

/// Replaces `{}` at the end of a message with the server's message. Other parts, such as selectors, may contain `{}`.
fn completed(message: &str, why: &str) -> String {
    let start = message.strip_suffix("{}");
    start.map_or_else(|| message.to_owned(), |start| format!("{start}{why}"))
}
