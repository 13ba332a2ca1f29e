//! Shows the journal: in pages, as a stream, and as single entries.

use std::convert::Infallible;

use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, Uri};
use serde_json::{Value, json};

use super::answer::{Answer, Answered, Refusal, accepts, number};
use super::controlled::Controlled;
use crate::endpoints::journal::{Entry, JournalPage, RecordedRequest, stream};

/// Maximum number of entries in a response; `since` requests the next ones.
const ENTRIES: usize = 1_000;

/// Maximum size of a body in a stream, in bytes; the request for a single entry returns the whole body.
const BODY_BYTES: usize = 4 * 1024;

const EVENT_STREAM: &str = "text/event-stream";

pub(super) async fn read(State(it): State<Controlled>, headers: HeaderMap, uri: Uri) -> Result<Response, Refusal> {
    let since = number(&uri, "since")?.unwrap_or(0);
    if !accepts(&headers, EVENT_STREAM) {
        let page = it.server.journal().page(since, ENTRIES);
        return Ok(Answer::Json(shown(&page, usize::MAX)).into_response());
    }
    // A browser that lost the connection continues after the last received entry.
    let seen = headers
        .get("last-event-id")
        .and_then(|it| it.to_str().ok()?.parse().ok());
    let pages = stream::pages(it.server.journal().clone(), seen.unwrap_or(since));
    let events = pages.map(|page| Ok::<_, Infallible>(event(&page)));
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static(EVENT_STREAM)),
        (CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    ];
    Ok((headers, Body::from_stream(events)).into_response())
}

/// Formats a page as a server-sent event.
fn event(page: &JournalPage) -> Bytes {
    format!("id: {}\ndata: {}\n\n", page.next(), shown(page, BODY_BYTES)).into()
}

fn shown(page: &JournalPage, body_bytes: usize) -> Value {
    let entries = page.entries.iter().zip(page.first..);
    let entries: Vec<_> = entries.map(|(it, number)| entry(it, number, body_bytes)).collect();
    json!({"first": page.first, "next": page.next(), "total": page.total, "entries": entries})
}

fn entry(entry: &Entry, number: u64, body_bytes: usize) -> Value {
    match entry {
        Entry::Request(it) => {
            let body = &it.request_body[..it.request_body.len().min(body_bytes)];
            let (resource, namespace, name) = about(it);
            json!({
                "request": {
                    "number": number, "atMs": it.started.as_millis() as u64,
                    "tookUs": it.answered.saturating_sub(it.started).as_micros() as u64,
                    "client": *it.client, "worker": it.worker, "method": it.method.as_str(), "path": it.path,
                    "verb": it.verb().map(|it| it.as_str()), "resource": resource, "namespace": namespace,
                    "name": name, "code": it.code, "faults": it.faults,
                    "resourceVersion": it.stored.as_ref().filter(|_| it.is_write()).map(|it| it.object.revision),
                    "body": String::from_utf8_lossy(body), "isCut": it.is_cut,
                }
            })
        }
        Entry::Event(it) => json!({
            "event": {
                "number": number, "atMs": it.at.as_millis() as u64, "client": *it.client, "watch": it.watch,
                "type": it.kind, "resource": it.resource, "namespace": it.namespace, "name": it.name,
                "resourceVersion": it.revision,
            }
        }),
    }
}

/// Returns the resource (in the form of fault filters), the namespace and the name. For a created object, the name is
/// taken from the response.
fn about(request: &RecordedRequest) -> (String, &str, &str) {
    let Some(info) = &request.info else {
        return Default::default();
    };
    let mut resource = info.resource.to_string();
    for (mark, part) in [('.', &*info.group), ('/', info.subresource.as_str())] {
        if !part.is_empty() {
            resource.push(mark);
            resource.push_str(part);
        }
    }
    let name = match (&request.stored, info.name.as_str()) {
        (Some(stored), "") => stored.object.key.name(),
        (_, name) => name,
    };
    (resource, &info.namespace, name)
}

/// Returns an entry with its whole request body and response.
pub(super) async fn read_entry(State(it): State<Controlled>, Path(number): Path<String>) -> Answered {
    let page = number
        .parse()
        .ok()
        .map(|number| (number, it.server.journal().page(number, 1)));
    let Some((number, page)) = page.filter(|(number, page)| page.first == *number && !page.entries.is_empty()) else {
        return Err(Refusal::absent(&format!("entry {number}")));
    };
    let (user, answer) = match &page.entries[0] {
        Entry::Request(it) => (it.user.name.as_str(), it.answer_bytes()),
        Entry::Event(it) => ("", it.line.clone()),
    };
    let answer = String::from_utf8_lossy(&answer);
    let entry = entry(&page.entries[0], number, usize::MAX);
    Ok(Answer::Json(json!({"entry": entry, "user": user, "answer": answer})))
}

pub(super) async fn forget(State(it): State<Controlled>) -> Answer {
    it.server.journal().clear();
    Answer::Json(json!({}))
}
