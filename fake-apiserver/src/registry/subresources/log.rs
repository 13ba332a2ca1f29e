//! `pods/log`: checked as by the real server (rule I6). The text comes from the script of a Pod; without a kubelet
//! there is none, and the error says that.

use super::containers::{chosen_container, status_of};
use super::{SubresourceRequest, text_at};
use crate::api::field::{FieldErrors, FieldPath, quote};
use crate::api::json::Value;
use crate::api::object::Object;
use crate::api::options::Query;
use crate::api::resource::GroupKind;
use crate::api::status::Status;
use crate::registry::Registry;
use crate::registry::answer::{Answer, Written};

impl Registry {
    pub(super) async fn log(&self, request: &SubresourceRequest<'_>) -> Result<Written, Status> {
        check_options(request.query, &request.info.name)?;
        let stored = self.reader.get(request.row, request.info, "").await?;
        let pod = self.reader.decode(request.row, &stored);
        let container = chosen_container(&pod, request.query.get("container").unwrap_or_default())?;
        if text_at(&pod, &["spec", "nodeName"]).is_empty() {
            return Ok(Written::updated(Answer::Nothing));
        }
        let Some(logs) = self.pod_streams().map(|it| it.logs(&pod)) else {
            return Err(request.unsupported());
        };
        if !has_started(&pod, container) {
            let name = pod.name();
            let reason = waiting_reason(&pod, container);
            return Err(Status::bad_request(format!(
                "container \"{container}\" in pod \"{name}\" is waiting to start: {reason}"
            )));
        }
        Ok(Written::updated(Answer::Text(tail(&logs, request.query)?)))
    }
}

/// Returns `true` if a container runs or has run.
fn has_started(pod: &Object, container: &str) -> bool {
    let ended = |it: &Value| it.pointer("/state/terminated").is_some() || it.pointer("/lastState/terminated").is_some();
    status_of(pod, container).is_some_and(|it| it.pointer("/state/running").is_some() || ended(it))
}

fn waiting_reason<'a>(pod: &'a Object, container: &str) -> &'a str {
    let reason = status_of(pod, container).and_then(|it| it.pointer("/state/waiting/reason"));
    reason.and_then(Value::as_str).unwrap_or("ContainerCreating")
}

/// The part of a text that is asked for: the last lines, then so many bytes of them.
fn tail(text: &str, query: &Query) -> Result<String, Status> {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let wanted = number(query, "tailLines")?
        .and_then(|it| usize::try_from(it).ok())
        .unwrap_or(lines.len());
    let mut text = lines[lines.len().saturating_sub(wanted)..].concat();
    if let Some(bytes) = number(query, "limitBytes")?.and_then(|it| usize::try_from(it).ok()) {
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
    let tail = number(query, "tailLines")?;
    if let Some(lines) = tail.filter(|it| *it < 0) {
        errors.invalid(FieldPath::new("tailLines"), lines, "must be greater than or equal to 0");
    }
    if let Some(bytes) = number(query, "limitBytes")?.filter(|it| *it < 1) {
        errors.invalid(FieldPath::new("limitBytes"), bytes, "must be greater than 0");
    }
    let since = number(query, "sinceSeconds")?;
    if since.is_some() && query.get("sinceTime").is_some_and(|it| !it.is_empty()) {
        // Of neither field, which Go prints so.
        errors.forbidden(
            FieldPath::new("[]"),
            "at most one of `sinceTime` or `sinceSeconds` may be specified",
        );
    } else if let Some(seconds) = since.filter(|it| *it < 1) {
        errors.invalid(FieldPath::new("sinceSeconds"), seconds, "must be greater than 0");
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

/// A number among the parameters.
fn number(query: &Query, name: &str) -> Result<Option<i64>, Status> {
    let Some(text) = query.get(name).filter(|it| !it.is_empty()) else {
        return Ok(None);
    };
    let bad = || Status::bad_request(format!("strconv.ParseInt: parsing {}: invalid syntax", quote(text)));
    text.parse().map(Some).map_err(|_| bad())
}
