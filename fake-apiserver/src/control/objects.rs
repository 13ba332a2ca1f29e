//! Lists objects with their owners, and shows a single object: in the current state, a saved state, or the state after
//! a write.

use axum::extract::{Path, State};
use http::Uri;
use serde_json::{Value, json};

use super::answer::{Answer, Answered, Refusal};
use super::controlled::Controlled;
use crate::server::ApiServer;
use crate::workers::meta::Meta;
use crate::world::StoredObject;

pub(super) async fn list(State(it): State<Controlled>, uri: Uri) -> Answered {
    let objects = it.in_state(&uri)?.stored_objects();
    Ok(Answer::Json(objects.iter().map(brief).collect()))
}

pub(super) async fn read(State(it): State<Controlled>, Path(uid): Path<String>, uri: Uri) -> Answered {
    Ok(Answer::Json(find(&it.in_state(&uri)?, &uid)?.value()))
}

/// Returns the object with this uid.
fn find(server: &ApiServer, uid: &str) -> Result<StoredObject, Refusal> {
    let found = server.stored_objects().into_iter().find(|it| it.uid() == uid);
    found.ok_or_else(|| Refusal::absent(&format!("object with uid {uid}")))
}

/// Returns a summary of an object: its kind, name, uid, version and owners.
pub(super) fn brief(object: &StoredObject) -> Value {
    let meta = Meta::of(object.stored());
    let owners = meta.owner_references.iter();
    let owners = owners.map(|it| json!({"uid": it.uid, "kind": it.kind, "name": it.name}));
    json!({
        "apiVersion": object.api_version(), "kind": object.kind(), "resource": resource(object),
        "namespace": object.namespace(), "name": object.name(), "uid": object.uid(),
        "resourceVersion": object.revision(), "isTerminating": meta.is_terminating(),
        "owners": owners.collect::<Vec<_>>(),
    })
}

/// Returns the resource in the form of fault filters: `pods`, `deployments.apps`.
pub(super) fn resource(object: &StoredObject) -> String {
    match object.group() {
        "" => object.resource().to_owned(),
        group => format!("{}.{group}", object.resource()),
    }
}
