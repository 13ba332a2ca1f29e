//! `Record`: the event of a request, extended at each stage, modelled on `WithAudit` of k8s.io/apiserver.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::event::{AuditEvent, AuthenticationMetadata, ResponseStatus};
use super::policy::{Extent, Level, Stage};
use crate::api::duration;
use crate::api::json::Value;
use crate::api::json::escape_html;
use crate::api::object::Object;
use crate::api::status::Status;
use crate::api::user::UserInfo;
use crate::registry::request::{Annotations, Latencies};

/// Duration above which the event of a request gets an annotation with its latency.
const SLOW: Duration = Duration::from_millis(500);

/// The audit event of a request, which is extended at each stage.
pub(crate) struct Record {
    pub(super) event: AuditEvent,
    pub(super) extent: Extent,
    pub(super) received: Timestamp,
    pub(super) latencies: Latencies,
    pub(super) sink: Arc<dyn Fn(&str) + Send + Sync>,
}

impl std::fmt::Debug for Record {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Record")
            .field("event", &self.event)
            .finish_non_exhaustive()
    }
}

impl Record {
    /// Records the user after impersonation, and the verb of constrained impersonation.
    pub(crate) fn impersonated(&mut self, user: &UserInfo, constraint: Option<String>) {
        self.event.impersonated_user = Some(user.into());
        self.event.authentication_metadata = constraint.map(|impersonation_constraint| AuthenticationMetadata {
            impersonation_constraint,
        });
    }

    /// Records the decision of authorization.
    pub(crate) fn authorized(&mut self, is_allowed: bool, reason: &str) {
        let decision = if is_allowed { "allow" } else { "forbid" };
        let annotations = &mut self.event.annotations;
        annotations.insert("authorization.k8s.io/decision".into(), decision.to_owned());
        annotations.insert("authorization.k8s.io/reason".into(), reason.to_owned());
    }

    /// Adds the annotations of the request. Annotations that concern bodies are only added if the event contains
    /// bodies.
    pub(crate) fn annotated(&mut self, annotations: &Annotations) {
        for (key, annotation) in annotations.take() {
            if !annotation.is_of_body || self.extent.level >= Level::Request {
                self.event.annotations.entry(key.into()).or_insert(annotation.value);
            }
        }
        self.latencies = annotations.take_latencies();
    }

    /// Records that the requested API is deprecated, like `MonitorRequest` of k8s.io/apiserver.
    pub(crate) fn deprecated(&mut self) {
        let annotations = &mut self.event.annotations;
        annotations.insert("k8s.io/deprecated".into(), "true".to_owned());
    }

    /// Records the object of the body, and completes the reference to the object.
    pub(crate) fn sent(&mut self, mut object: Object) {
        if let Some(reference) = &mut self.event.object_ref {
            let text = |name: &str| {
                object
                    .metadata()
                    .and_then(|it| it.get(name)?.as_str())
                    .unwrap_or_default()
            };
            let fields = [
                (&mut reference.namespace, "namespace"),
                (&mut reference.name, "name"),
                (&mut reference.uid, "uid"),
                (&mut reference.resource_version, "resourceVersion"),
            ];
            for (field, name) in fields {
                if field.is_empty() {
                    text(name).clone_into(field);
                }
            }
        }
        if self.extent.level >= Level::Request {
            if self.extent.omit_managed_fields {
                object.metadata_mut().remove("managedFields");
            }
            self.event.request_object = Some(Value::Object(object.0));
        }
    }

    /// Records the patch as sent.
    pub(crate) fn patched(&mut self, patch: Value) {
        if self.extent.level >= Level::Request {
            self.event.request_object = Some(patch);
        }
    }

    /// Returns `true` if the event contains the response.
    pub(crate) fn wants_answer(&self) -> bool {
        self.extent.level == Level::RequestResponse
    }

    /// Records a failure as the response.
    pub(crate) fn failed(&mut self, status: &Status) {
        self.event.response_status = Some(status.into());
        if self.wants_answer() && self.event.object_ref.is_some() {
            self.event.response_object = Some(status.to_value().into());
        }
    }

    /// Records the Status in the response to a successful request; other responses are ignored.
    pub(crate) fn succeeded(&mut self, answer: &[u8]) {
        if !answer.starts_with(b"{\"kind\":\"Status\"") {
            return;
        }
        let value: Value = serde_json::from_slice(answer).unwrap_or_default();
        self.event.response_status = Some(ResponseStatus {
            status: "Success",
            details: serde_json::from_value(value["details"].clone().into()).ok(),
            ..ResponseStatus::default()
        });
    }

    /// Records the object of a response.
    pub(crate) fn answered(&mut self, mut object: Value) {
        if self.extent.omit_managed_fields {
            let strip = |object: &mut Value| {
                if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
                    metadata.remove("managedFields");
                }
            };
            strip(&mut object);
            object
                .get_mut("items")
                .and_then(Value::as_array_mut)
                .into_iter()
                .flatten()
                .for_each(strip);
        }
        self.event.response_object = Some(object);
    }

    /// Records the response code; `None` if the connection broke before a response was sent.
    pub(crate) fn has_code(&mut self, code: Option<u16>) {
        let status = self.event.response_status.get_or_insert_default();
        match code {
            Some(code) => status.code = code,
            None => {
                (status.status, status.code) = ("Success", 200);
                status.message = "Connection closed early".to_owned();
            }
        }
    }

    /// Records the start of the response to a long-running request.
    pub(crate) fn begins(&mut self, now: Timestamp) {
        self.emit(Stage::ResponseStarted, now);
    }

    /// Records the end of the response.
    pub(crate) fn ends(&mut self, now: Timestamp) {
        self.took(Duration::try_from(now.duration_since(self.received)).unwrap_or_default());
        self.emit(Stage::ResponseComplete, now);
    }

    /// Annotates a slow request with its duration, and with the durations of slow layers, like
    /// `writeLatencyToAnnotation`.
    fn took(&mut self, total: Duration) {
        if total <= SLOW {
            return;
        }
        let latencies = std::mem::take(&mut self.latencies);
        let parts = latencies.into_iter().filter(|(_, it)| !it.is_zero());
        for (key, latency) in parts.chain([("apiserver.latency.k8s.io/total", total)]) {
            self.event.annotations.insert(key.into(), duration::text(latency));
        }
    }

    /// Records that the request caused a panic.
    pub(crate) fn panicked(&mut self, status: &Status, now: Timestamp) {
        self.event.response_status = Some(status.into());
        self.emit(Stage::Panic, now);
    }

    /// Sends the event of a stage, unless the policy omits the stage.
    pub(super) fn emit(&mut self, stage: Stage, now: Timestamp) {
        if self.extent.omits(stage) {
            return;
        }
        self.event.stage = stage.as_str();
        self.event.stage_timestamp = micro_time(now);
        if let Ok(line) = serde_json::to_string(&self.event) {
            let mut line = escape_html(&line);
            line.push('\n');
            (self.sink)(&line);
        }
    }
}

/// Formats a time with microseconds, like `metav1.MicroTime`.
pub(super) fn micro_time(time: Timestamp) -> String {
    const MICROSECOND: u32 = 1000;
    let below = Duration::from_nanos(u64::try_from(time.subsec_nanosecond()).unwrap_or_default());
    let seconds = crate::entropy::seconds(time);
    let whole = seconds.strip_suffix('Z').unwrap_or(&seconds);
    format!("{whole}.{:06}Z", below.subsec_nanos() / MICROSECOND)
}
