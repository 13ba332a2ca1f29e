//! `pods/log`: checked as the real server checks it. Nobody runs containers here, so there is no text (rule I6).

use super::connect::chosen_container;
use super::{SubresourceRequest, text_at};
use crate::api::field::{FieldErrors, FieldPath, quote};
use crate::api::options::Query;
use crate::api::resource::GroupKind;
use crate::api::status::Status;
use crate::registry::Registry;
use crate::registry::write::{Answer, Written};

impl Registry {
    pub(super) async fn log(&self, request: &SubresourceRequest<'_>) -> Result<Written, Status> {
        check_options(request.query, &request.info.name)?;
        let stored = self.get(request.row, request.info, "").await?;
        let pod = self.decode(request.row, &stored);
        chosen_container(&pod, request.query.get("container").unwrap_or_default())?;
        if text_at(&pod, &["spec", "nodeName"]).is_empty() {
            return Ok(Written::updated(Answer::Nothing, Vec::new()));
        }
        Err(request.unsupported())
    }
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
