//! `Spec`: the explored object, and the changes of its spec that the schema permits.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};

use serde_json::Value;

use super::changes::{Change, changes};
use crate::explore::outcomes::{EndState, Reference};
use crate::lock::lock;

/// The change that restores the initial spec.
pub(crate) const BACK: &str = "the spec back to its initial value";

/// The explored object, the changes of its spec to try, and cached reference runs.
pub(crate) struct Spec {
    pub(crate) object: Value,
    pub(crate) changes: Vec<Change>,
    /// Names of the changes that create a referenced object later. Set by the first run.
    pub(crate) late: OnceLock<Vec<String>>,
    /// Key of the object in end states, such as `documents.example.com default/readme`; cluster-scoped objects have no
    /// namespace.
    pub(crate) key: String,
    /// Cached reference runs for objects that are created with the final spec, by the JSON of the object.
    pub(crate) fresh: Mutex<BTreeMap<String, Arc<Reference>>>,
    pub(crate) sequences: Mutex<BTreeMap<Vec<String>, Arc<Reference>>>,
}

impl Spec {
    pub(crate) fn new(definition: &Value, object: Value) -> Self {
        let api_version = object["apiVersion"].as_str().unwrap_or_default();
        let named = api_version.rsplit('/').next();
        let versions = definition["spec"]["versions"].as_array().into_iter().flatten();
        let schemas = versions.filter(|it| it["name"].as_str() == named);
        let mut schemas = schemas.map(|it| &it["schema"]["openAPIV3Schema"]);
        let kind = &definition["spec"]["names"]["kind"];
        let schema = schemas.next().filter(|it| it.is_object());
        let schema = schema.unwrap_or_else(|| panic!("the definition of {kind} has no schema for {api_version:?}"));
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let namespace = match definition["spec"]["scope"] == "Cluster" {
            true => String::new(),
            false => object["metadata"]["namespace"].as_str().unwrap_or("default").to_owned(),
        };
        let (plural, group) = (
            text(&definition["spec"]["names"]["plural"]),
            text(&definition["spec"]["group"]),
        );
        Self {
            changes: changes(schema, &object),
            late: OnceLock::new(),
            key: format!("{plural}.{group} {namespace}/{}", text(&object["metadata"]["name"])),
            object,
            fresh: Mutex::default(),
            sequences: Mutex::default(),
        }
    }

    /// Removes the cached reference runs.
    pub(crate) fn forget(&self) {
        lock(&self.fresh).clear();
        lock(&self.sequences).clear();
    }

    pub(crate) fn has(&self, change: &str) -> bool {
        change == BACK || self.names().any(|it| it == change)
    }

    /// Returns the names of all changes except for [`BACK`]: changes of fields, then the late creation of referenced
    /// objects.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let late = self.late.get().into_iter().flatten();
        self.changes.iter().map(|it| &it.name).chain(late).map(String::as_str)
    }

    /// Returns the explored object at the end of a run; `None` if it does not exist.
    pub(crate) fn object_in(&self, end: &EndState) -> Option<Value> {
        end.named(&self.key).first().map(|it| it.object.value())
    }

    /// Describes an observed generation in the status that is not the newest one; `None` if all are up to date.
    pub(crate) fn unobserved(&self, end: &EndState) -> Option<String> {
        let object = self.object_in(end)?;
        let generation = object["metadata"]["generation"].as_i64()?;
        let status = &object["status"];
        let own = [("status.observedGeneration".to_owned(), &status["observedGeneration"])];
        let conditions = status["conditions"].as_array().into_iter().flatten().map(|it| {
            let name = it["type"].as_str().unwrap_or_default();
            (
                format!("observedGeneration of the condition {name}"),
                &it["observedGeneration"],
            )
        });
        let mut observed = own.into_iter().chain(conditions);
        observed.find_map(|(name, observed)| {
            let observed = observed.as_i64().filter(|it| *it != generation)?;
            Some(format!(
                "{}: {name} is {observed}, and the generation is {generation}",
                self.key.replace(" /", " ")
            ))
        })
    }
}
