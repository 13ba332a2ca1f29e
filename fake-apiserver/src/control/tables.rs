//! Shows a state as `kubectl get` does: the kinds that have objects, and the objects of one resource as rows.

use std::collections::BTreeMap;

use axum::extract::State;
use http::Uri;
use serde_json::{Value, json};

use super::answer::{Answer, Answered, Refusal, text};
use super::controlled::Controlled;
use super::objects::resource;
use crate::workers::meta::Meta;
use crate::world::StoredObject;

/// Object counts of a kind.
#[derive(Debug, Default)]
struct Counts {
    by_namespace: BTreeMap<String, u64>,
    /// Number of objects that were written after the start of the server.
    own: u64,
}

pub(super) async fn kinds(State(it): State<Controlled>, uri: Uri) -> Answered {
    let server = it.in_state(&uri)?;
    let started_at = it.kept.started_at();
    let objects = server.stored_objects();
    let mut kinds = BTreeMap::new();
    for object in &objects {
        let key = (!object.is_custom(), object.kind(), object.group());
        let (_, counts) = kinds.entry(key).or_insert_with(|| (object, Counts::default()));
        *counts.by_namespace.entry(object.namespace().to_owned()).or_default() += 1;
        counts.own += u64::from(object.revision() > started_at);
    }
    let kinds = kinds.into_values().map(|(object, counts)| {
        json!({
            "resource": resource(object), "apiVersion": object.api_version(), "kind": object.kind(),
            "isNamespaced": object.is_namespaced(), "isCustom": object.is_custom(), "own": counts.own,
            "namespaces": counts.by_namespace,
        })
    });
    Ok(Answer::Json(json!({
        "resourceVersion": server.resource_version(), "oldest": it.server.oldest_revision(),
        "newest": it.server.resource_version(), "kinds": kinds.collect::<Vec<_>>(),
    })))
}

pub(super) async fn table(State(it): State<Controlled>, uri: Uri) -> Answered {
    let (resource, namespace) = (text(&uri, "resource"), text(&uri, "namespace"));
    let server = it.in_state(&uri)?;
    let namespace = Some(&*namespace).filter(|it| !it.is_empty());
    let table = server.table(&resource, namespace);
    let table = table.ok_or_else(|| Refusal::absent(&format!("resource {resource}")))?;
    let rows: Vec<_> = table
        .rows
        .into_iter()
        .map(|(object, cells)| row(&object, cells))
        .collect();
    Ok(Answer::Json(json!({
        "resourceVersion": server.resource_version(), "apiVersion": table.api_version, "kind": table.kind,
        "isNamespaced": table.is_namespaced, "subresources": table.subresources, "columns": table.columns,
        "rows": rows,
    })))
}

fn row(object: &StoredObject, cells: Vec<Value>) -> Value {
    json!({
        "uid": object.uid(), "namespace": object.namespace(), "name": object.name(),
        "resourceVersion": object.revision(), "isTerminating": Meta::of(object.stored()).is_terminating(),
        "cells": cells,
    })
}
