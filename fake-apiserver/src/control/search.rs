//! Searches the objects of all kinds by kind, name, namespace and labels.

use axum::extract::State;
use http::Uri;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::answer::{Answer, Answered, text};
use super::controlled::Controlled;
use super::objects::resource;
use crate::workers::meta::metadata;
use crate::world::StoredObject;

/// Maximum number of objects in a response; all found objects are counted.
const FOUND_MAX: usize = 200;

/// The labels in the metadata of an object.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Labels {
    labels: Map<String, Value>,
}

pub(super) async fn search(State(it): State<Controlled>, uri: Uri) -> Answered {
    let server = it.in_state(&uri)?;
    let wanted = text(&uri, "text").to_lowercase();
    // Many clients encode a space as `+`, which names and labels cannot contain.
    let words = wanted.split(|it: char| it.is_whitespace() || it == '+');
    let words: Vec<_> = words.filter(|it| !it.is_empty()).collect();
    let (mut total, mut found) = (0_u64, Vec::new());
    for object in server.stored_objects() {
        let Labels { labels } = metadata(object.stored());
        if words.is_empty() || !has_words(&object, &labels, &words) {
            continue;
        }
        total += 1;
        if found.len() < FOUND_MAX {
            found.push(json!({
                "apiVersion": object.api_version(), "kind": object.kind(), "resource": resource(&object),
                "namespace": object.namespace(), "name": object.name(), "uid": object.uid(), "labels": labels,
            }));
        }
    }
    Ok(Answer::Json(json!({
        "resourceVersion": server.resource_version(), "total": total, "objects": found,
    })))
}

/// Returns `true` if each word is a part of the kind, of `namespace/name`, or of a label as `key=value`. The words are
/// in lower case.
fn has_words(object: &StoredObject, labels: &Map<String, Value>, words: &[&str]) -> bool {
    let mut searched = format!("{}\n{}/{}", object.kind(), object.namespace(), object.name());
    for (key, value) in labels {
        searched += &format!("\n{key}={}", value.as_str().unwrap_or_default());
    }
    let searched = searched.to_lowercase();
    words.iter().all(|it| searched.contains(it))
}
