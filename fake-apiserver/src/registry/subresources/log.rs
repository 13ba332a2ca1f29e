//! `pods/log`, with kube-apiserver's checks (rule I6). The script of a Pod provides the logs. Without a kubelet,
//! requests for the logs of a scheduled Pod return 501.

use jiff::{SignedDuration, Timestamp};

use super::containers::{chosen_container, status_of};
use super::{SubresourceRequest, text_at};
use crate::api::field::{FieldErrors, FieldPath};
use crate::api::json::Value;
use crate::api::object::Object;
use crate::api::options::Query;
use crate::api::resource::GroupKind;
use crate::api::status::Status;
use crate::registry::Registry;
use crate::registry::answer::{Answer, Written};
use crate::registry::types::decode::canonical_seconds;

impl Registry {
    pub(super) async fn log(&self, request: &SubresourceRequest<'_>) -> Result<Written, Status> {
        check_options(request.query, &request.info.name)?;
        let stored = self.reader.get(request.row, request.info, "").await?;
        let pod = self.reader.decode(request.row, &stored);
        let container = chosen_container(&pod, request.query.get("container").unwrap_or_default())?;
        if text_at(&pod, &["spec", "nodeName"]).is_empty() {
            return Ok(Written::updated(Answer::Nothing));
        }
        let Some(logs) = self.pod_streams().map(|it| it.logs(&pod, container)) else {
            return Err(request.unsupported());
        };
        if !has_started(&pod, container) {
            let name = pod.name();
            let reason = waiting_reason(&pod, container);
            return Err(Status::bad_request(format!(
                "container \"{container}\" in pod \"{name}\" is waiting to start: {reason}"
            )));
        }
        let written = written_at(&pod, container);
        let text = match is_asked_for(request.query, written, self.reader.entropy.now())? {
            true => tail(&logs, request.query)?,
            false => String::new(),
        };
        let text = match (request.query.flag("timestamps"), written) {
            (Some(true), Some(written)) => stamped(&text, written),
            _ => text,
        };
        Ok(Written::updated(Answer::Text(text)))
    }
}

/// Returns the timestamp of all log lines of a container: the time at which the container started.
fn written_at(pod: &Object, container: &str) -> Option<Timestamp> {
    let status = status_of(pod, container)?;
    let states = ["state/running", "state/terminated", "lastState/terminated"];
    let mut starts = states
        .iter()
        .filter_map(|it| status.pointer(&format!("/{it}/startedAt")));
    starts.next()?.as_str()?.parse().ok()
}

/// Returns `true` unless `sinceSeconds` or `sinceTime` restricts the request to later lines.
fn is_asked_for(query: &Query, written: Option<Timestamp>, now: Timestamp) -> Result<bool, Status> {
    let since = match query.integer("sinceSeconds")? {
        Some(seconds) => now.checked_sub(SignedDuration::from_secs(seconds)).ok(),
        None => since_time(query)?.flatten(),
    };
    Ok(since.is_none_or(|since| written.is_none_or(|written| written >= since)))
}

/// Prefixes each line with the time in nanosecond precision, like a kubelet.
fn stamped(text: &str, written: Timestamp) -> String {
    let lines = text.split_inclusive('\n');
    lines.map(|line| format!("{written:.9} {line}")).collect()
}

/// Returns `true` if a container is running or has run.
fn has_started(pod: &Object, container: &str) -> bool {
    let ended = |it: &Value| it.pointer("/state/terminated").is_some() || it.pointer("/lastState/terminated").is_some();
    status_of(pod, container).is_some_and(|it| it.pointer("/state/running").is_some() || ended(it))
}

fn waiting_reason<'a>(pod: &'a Object, container: &str) -> &'a str {
    let reason = status_of(pod, container).and_then(|it| it.pointer("/state/waiting/reason"));
    reason.and_then(Value::as_str).unwrap_or("ContainerCreating")
}

/// Returns the requested part of a log: the first `limitBytes` bytes of the last `tailLines` lines.
fn tail(text: &str, query: &Query) -> Result<String, Status> {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let wanted = query
        .integer("tailLines")?
        .and_then(|it| usize::try_from(it).ok())
        .unwrap_or(lines.len());
    let mut text = lines[lines.len().saturating_sub(wanted)..].concat();
    if let Some(bytes) = query.integer("limitBytes")?.and_then(|it| usize::try_from(it).ok()) {
        let end = (0..=bytes.min(text.len()))
            .rev()
            .find(|end| text.is_char_boundary(*end))
            .unwrap_or(0);
        text.truncate(end);
    }
    Ok(text)
}

fn check_options(query: &Query, pod: &str) -> Result<(), Status> {
    let mut errors = FieldErrors::new();
    // All parameters are decoded before any of them is validated.
    let since = query.integer("sinceSeconds")?;
    let since_time = since_time(query)?;
    let tail = query.integer("tailLines")?;
    let limit = query.integer("limitBytes")?;
    if let Some(lines) = tail.filter(|it| *it < 0) {
        errors.invalid(FieldPath::new("tailLines"), lines, "must be greater than or equal to 0");
    }
    if let Some(bytes) = limit.filter(|it| *it < 1) {
        errors.invalid(FieldPath::new("limitBytes"), bytes, "must be greater than 0");
    }
    if since.is_some() && since_time.is_some() {
        // This error does not belong to a field, so Go prints `[]`.
        errors.forbidden(
            FieldPath::new("[]"),
            "at most one of `sinceTime` or `sinceSeconds` may be specified",
        );
    } else if let Some(seconds) = since.filter(|it| *it < 1) {
        errors.invalid(FieldPath::new("sinceSeconds"), seconds, "must be greater than 0");
    }
    if query.get("stream").is_some() {
        // The feature gate PodLogsQuerySplitStreams is off.
        errors.forbidden(FieldPath::new("stream"), "may not be specified");
    }
    if errors.is_empty() {
        return Ok(());
    }
    let kind = GroupKind {
        group: "".into(),
        kind: "PodLogOptions".into(),
    };
    Err(Status::invalid(&kind, pod, &errors))
}

/// Parses the parameter `sinceTime`. An empty parameter counts as set, but without a time.
fn since_time(query: &Query) -> Result<Option<Option<Timestamp>>, Status> {
    let Some(text) = query.get("sinceTime") else {
        return Ok(None);
    };
    if text.is_empty() {
        return Ok(Some(None));
    }
    let time = canonical_seconds(text).map_err(Status::bad_request)?;
    Ok(Some(time.and_then(|it| it.parse().ok())))
}
