//! Lists objects with their owners, of now or of a kept state, and shows one.

use axum::extract::{Path, State};
use http::Uri;
use serde_json::{Value, json};

use super::answer::{Answer, Answered, Refusal, number};
use super::controlled::Controlled;
use crate::workers::meta::Meta;
use crate::world::StoredObject;

pub(super) async fn list(State(it): State<Controlled>, uri: Uri) -> Answered {
    Ok(Answer::Json(objects(&it, &uri)?.iter().map(brief).collect()))
}

pub(super) async fn read(State(it): State<Controlled>, Path(uid): Path<String>, uri: Uri) -> Answered {
    let objects = objects(&it, &uri)?;
    let found = objects.iter().find(|it| it.uid() == uid);
    let object = found.ok_or_else(|| Refusal::absent(&format!("object with uid {uid}")))?;
    Ok(Answer::Json(object.value()))
}

/// The objects of the state that the query names.
fn objects(it: &Controlled, uri: &Uri) -> Result<Vec<StoredObject>, Refusal> {
    match number(uri, "snapshot")? {
        Some(number) => Ok(it.server.of_snapshot(&it.kept(number)?).stored_objects()),
        None => Ok(it.server.stored_objects()),
    }
}

fn brief(object: &StoredObject) -> Value {
    let meta = Meta::of(object.stored());
    let owners = meta.owner_references.iter();
    let owners = owners.map(|it| json!({"uid": it.uid, "kind": it.kind, "name": it.name}));
    json!({
        "apiVersion": object.api_version(), "kind": object.kind(), "namespace": object.namespace(),
        "name": object.name(), "uid": object.uid(), "resourceVersion": object.revision(),
        "isTerminating": meta.is_terminating(), "owners": owners.collect::<Vec<_>>(),
    })
}
