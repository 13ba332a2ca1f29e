//! Shows the retained history: the writes to one object with their authors, and the writes to all objects.

use axum::extract::{Path, State};
use http::Uri;
use serde_json::{Value, json};

use super::answer::{Answer, Answered, Refusal, number};
use super::authors::Authors;
use super::controlled::Controlled;
use super::objects::resource;
use crate::world::{StoredChange, field_changes};

/// Maximum number of changes in a response; only the newest are shown.
const CHANGES_MAX: usize = 5_000;

pub(super) async fn of_object(State(it): State<Controlled>, Path(uid): Path<String>) -> Answered {
    let changes = it.server.changes_after(0);
    let mut of_object = changes
        .iter()
        .filter(|it| it.object().is_some_and(|it| it.uid() == uid))
        .peekable();
    if of_object.peek().is_none() {
        return Err(Refusal::absent(&format!("object with uid {uid} in the history")));
    }
    let authors = Authors::of(it.server.journal());
    let revisions: Vec<_> = of_object
        .map(|change| {
            let mut shown = brief(change);
            shown["changes"] = changed_fields(change).into();
            shown["by"] = authors.of_change(change);
            shown
        })
        .collect();
    Ok(Answer::Json(
        json!({"oldest": it.server.oldest_revision(), "revisions": revisions}),
    ))
}

pub(super) async fn changes(State(it): State<Controlled>, uri: Uri) -> Answered {
    let changes = it.server.changes_after(number(&uri, "since")?.unwrap_or_default());
    let skipped = changes.len().saturating_sub(CHANGES_MAX);
    let shown: Vec<_> = changes.iter().skip(skipped).map(brief).collect();
    Ok(Answer::Json(json!({
        "oldest": it.server.oldest_revision(), "resourceVersion": it.server.resource_version(), "skipped": skipped,
        "changes": shown,
    })))
}

fn brief(change: &StoredChange) -> Value {
    let kind = match (&change.before, &change.after) {
        (None, _) => "ADDED",
        (Some(_), Some(_)) => "MODIFIED",
        (Some(_), None) => "DELETED",
    };
    let object = change.object();
    json!({
        "revision": change.revision, "type": kind, "apiVersion": object.map(|it| it.api_version()),
        "kind": object.map(|it| it.kind()), "resource": object.map(resource),
        "namespace": object.map(|it| it.namespace()), "name": object.map(|it| it.name()),
        "uid": object.map(|it| it.uid()),
    })
}

/// Returns the fields that a change altered; empty for the creation and the deletion of an object.
fn changed_fields(change: &StoredChange) -> Vec<String> {
    match (&change.before, &change.after) {
        (Some(before), Some(after)) => field_changes(before.value(), after.value()),
        _ => Vec::new(),
    }
}
