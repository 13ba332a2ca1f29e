//! `Versions`: canonical names for versions of objects that stand in others, so that two runs can be compared.
//!
//! A claim's volume names the version of the claim, and many controllers copy the version of a Secret into an
//! annotation in order to restart Pods. One more write anywhere gives all later versions other numbers.

use std::collections::BTreeMap;
use std::sync::Arc;

use fake_apiserver::ApiServer;
use serde_json::Value;

use super::identities::Keys;

/// The objects that were written in a run, by the versions they got.
#[derive(Clone, Debug, Default)]
pub(crate) struct Versions {
    objects: BTreeMap<u64, Version>,
}

/// A version of an object.
#[derive(Clone, Debug)]
struct Version {
    /// The key of the object.
    key: Arc<str>,
    /// The object has not been written since.
    is_latest: bool,
}

impl Versions {
    /// The writes after a revision that are in the server's history.
    pub(crate) fn of(server: &ApiServer, base: u64, keys: &Keys) -> Self {
        let mut latest: BTreeMap<String, u64> = BTreeMap::new();
        let mut objects: BTreeMap<u64, Version> = BTreeMap::new();
        for object in server.written_objects(base) {
            let (revision, key) = (object.revision(), keys.key(&object).into());
            let before = latest.insert(object.uid().to_owned(), revision);
            if let Some(before) = before.and_then(|it| objects.get_mut(&it)) {
                before.is_latest = false;
            }
            objects.insert(revision, Version { key, is_latest: true });
        }
        Self { objects }
    }

    /// `140` → `version of secrets default/a`
    fn words(&self, text: &str) -> Option<String> {
        let version = self.objects.get(&text.parse().ok()?)?;
        let which = if version.is_latest {
            "version"
        } else {
            "earlier version"
        };
        Some(format!("{which} of {}", version.key.replace(" /", " ")))
    }
}

/// Replaces versions of objects by their names, in fields and annotations that are named after a version: a text of
/// digits elsewhere may be a port.
pub(crate) fn replace_versions<'a>(value: &mut Value, versions: &dyn Fn() -> &'a Versions) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|it| replace_versions(it, versions)),
        Value::Object(fields) => {
            for (name, field) in fields.iter_mut() {
                match field {
                    Value::String(text) if is_number(text) && is_of_version(name) => {
                        if let Some(words) = versions().words(text) {
                            *text = words;
                        }
                    }
                    field => replace_versions(field, versions),
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit())
}

fn is_of_version(name: &str) -> bool {
    let word = b"version";
    name.as_bytes()
        .windows(word.len())
        .any(|it| it.eq_ignore_ascii_case(word))
}
