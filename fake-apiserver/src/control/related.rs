//! Shows objects related to an object: its owners, the objects that it owns, and Events about it.

use std::collections::{BTreeMap, BTreeSet};

use axum::extract::{Path, State};
use http::Uri;
use serde_json::{Value, json};

use super::answer::{Answer, Answered, Refusal};
use super::controlled::Controlled;
use super::objects::brief;
use crate::workers::meta::Meta;
use crate::world::StoredObject;

/// Maximum number of owned objects, and of Events, in a response.
const SHOWN_MAX: usize = 500;

pub(super) async fn of_object(State(it): State<Controlled>, Path(uid): Path<String>, uri: Uri) -> Answered {
    let objects = it.in_state(&uri)?.stored_objects();
    let by_uid: BTreeMap<&str, &StoredObject> = objects.iter().map(|it| (it.uid(), it)).collect();
    let object = by_uid.get(&*uid);
    let object = object.ok_or_else(|| Refusal::absent(&format!("object with uid {uid}")))?;
    Ok(Answer::Json(json!({
        "owners": owners(object, &by_uid), "owned": owned(&uid, &objects), "events": events(object, &objects),
    })))
}

/// Returns the owners of an object, including indirect ones, direct owners first. Owners that no longer exist are
/// omitted.
fn owners(object: &StoredObject, by_uid: &BTreeMap<&str, &StoredObject>) -> Vec<Value> {
    let (mut seen, mut shown) = (BTreeSet::from([object.uid()]), Vec::new());
    let mut next = vec![object];
    while let Some(object) = next.pop() {
        for reference in Meta::of(object.stored()).owner_references {
            if let Some(owner) = by_uid.get(&*reference.uid)
                && seen.insert(owner.uid())
            {
                shown.push(brief(owner));
                next.push(owner);
            }
        }
    }
    shown
}

/// Returns the direct and indirect dependents of an object, each after its owner and with its depth.
fn owned(uid: &str, objects: &[StoredObject]) -> Vec<Value> {
    let mut by_owner: BTreeMap<String, Vec<&StoredObject>> = BTreeMap::new();
    for object in objects {
        for reference in Meta::of(object.stored()).owner_references {
            by_owner.entry(reference.uid).or_default().push(object);
        }
    }
    let (mut seen, mut shown) = (BTreeSet::from([uid.to_owned()]), Vec::new());
    let below = |uid: &str, depth: u64| -> Vec<(u64, &StoredObject)> {
        let children = by_owner.get(uid).into_iter().flatten().rev();
        children.map(|it| (depth, *it)).collect()
    };
    let mut next = below(uid, 1);
    while let Some((depth, object)) = next.pop()
        && shown.len() < SHOWN_MAX
    {
        if seen.insert(object.uid().to_owned()) {
            let mut value = brief(object);
            value["depth"] = depth.into();
            shown.push(value);
            next.extend(below(object.uid(), depth + 1));
        }
    }
    shown
}

/// Returns the newest Events about an object, oldest first.
fn events(object: &StoredObject, objects: &[StoredObject]) -> Vec<Value> {
    let all = objects
        .iter()
        .filter(|it| it.kind() == "Event" && it.resource() == "events")
        .map(|it| (it.revision(), it.value()));
    let mut about: Vec<_> = all
        .filter(|(_, event)| {
            let regarding = &event["involvedObject"];
            match regarding["uid"].as_str() {
                Some(uid) if !uid.is_empty() => uid == object.uid(),
                _ => {
                    regarding["kind"] == object.kind()
                        && regarding["name"] == object.name()
                        && regarding["namespace"].as_str().unwrap_or_default() == object.namespace()
                }
            }
        })
        .collect();
    about.sort_by_key(|(revision, _)| *revision);
    let skipped = about.len().saturating_sub(SHOWN_MAX);
    about.iter().skip(skipped).map(|(_, event)| shown(event)).collect()
}

fn shown(event: &Value) -> Value {
    let first_of = |fields: &[&str]| -> Value {
        let mut values = fields
            .iter()
            .filter_map(|it| event.pointer(it))
            .filter(|it| !it.is_null() && **it != "");
        values.next().cloned().unwrap_or_default()
    };
    json!({
        "type": event["type"], "reason": event["reason"], "message": event["message"],
        "count": first_of(&["/series/count", "/count"]),
        "source": first_of(&["/reportingComponent", "/source/component"]),
        "last": first_of(&["/series/lastObservedTime", "/lastTimestamp", "/eventTime", "/metadata/creationTimestamp"]),
    })
}
