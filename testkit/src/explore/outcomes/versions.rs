//! `Versions`: canonical names for versions of objects that occur in other objects, so that two runs can be compared.
//!
//! For example, a claim's volume contains the version of the claim, and many controllers copy the version of a Secret
//! into an annotation in order to restart Pods. A single additional write changes all later versions.

use std::collections::BTreeMap;
use std::sync::Arc;

use fake_apiserver::ApiServer;
use serde_json::Value;

use super::identities::Keys;

/// The objects written in a run, by resourceVersion.
#[derive(Clone, Debug, Default)]
pub(crate) struct Versions {
    objects: BTreeMap<u64, Version>,
}

/// A version of an object.
#[derive(Clone, Debug)]
struct Version {
    /// The key of the object.
    key: Arc<str>,
    /// Set if it is the object's latest version.
    is_latest: bool,
}

impl Versions {
    /// Collects the writes after the revision `base`, up to `last`, from the server's history.
    pub(crate) fn of(server: &ApiServer, base: u64, last: u64, keys: &Keys) -> Self {
        let mut latest: BTreeMap<String, u64> = BTreeMap::new();
        let mut objects: BTreeMap<u64, Version> = BTreeMap::new();
        let written = server.written_objects(base);
        for object in written.iter().filter(|it| it.revision() <= last) {
            let (revision, key) = (object.revision(), keys.key(object).into());
            let before = latest.insert(object.uid().to_owned(), revision);
            if let Some(before) = before.and_then(|it| objects.get_mut(&it)) {
                before.is_latest = false;
            }
            objects.insert(revision, Version { key, is_latest: true });
        }
        Self { objects }
    }

    /// Returns the key of the object that was written at a revision.
    pub(crate) fn key(&self, revision: u64) -> Option<&str> {
        self.objects.get(&revision).map(|it| &*it.key)
    }

    /// Describes a version: `140` → `version of secrets default/a`.
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

/// Replaces the versions of objects with canonical names, but only in fields and annotations with a name that indicates
/// a version: in other fields, a string of digits may be a port.
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
