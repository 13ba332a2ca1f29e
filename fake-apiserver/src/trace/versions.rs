//! The versions of objects, and the fields that each write changed.

use std::collections::BTreeMap;

use super::changes::{Change, changes};
use super::{Run, Version};
use crate::server::ApiServer;
use crate::world::{StoredChange, StoredObject};

/// Number of oldest versions of an object that a run keeps.
const FIRST: usize = 50;

/// Number of newest versions of an object that a run keeps.
const LAST: usize = 150;

/// Maximum size of all complete versions in a run, in bytes; further versions are omitted.
const BYTES: usize = 16 << 20;

/// The writes after a revision, by their `resourceVersion`. Changed fields are computed on access.
#[derive(Clone, Debug, Default)]
pub struct Writes(BTreeMap<u64, StoredChange>);

/// A write of an object.
#[derive(Clone, Debug, Default)]
pub struct Written {
    /// The object, as a key of [`Run::objects`].
    pub object: String,
    /// The fields that the write changed.
    pub changes: Vec<Change>,
    /// Set if the object was deleted.
    pub is_deletion: bool,
}

impl Writes {
    /// Reads the writes after a revision. Writes that are no longer in the [history](crate::ApiServerBuilder::history)
    /// are missing.
    pub fn after(server: &ApiServer, revision: u64) -> Self {
        let changes = server.changes_after(revision).into_iter();
        Self(changes.map(|it| (it.revision, it)).collect())
    }

    /// Returns `true` if there is a write with this revision.
    pub fn has(&self, revision: u64) -> bool {
        self.0.contains_key(&revision)
    }

    /// Returns the write with this revision, and the fields that it changed.
    pub fn get(&self, revision: u64) -> Option<Written> {
        let change = self.0.get(&revision)?;
        Some(Written {
            object: key(change.object()?),
            changes: changes_of(change),
            is_deletion: change.after.is_none(),
        })
    }

    /// Returns the revisions from `first` on that changed an object, given as a key of [`Run::objects`]. A `*` at the
    /// end of the key matches the generated part of a name.
    pub fn of<'a>(&'a self, object: &'a str, first: u64) -> impl Iterator<Item = u64> + 'a {
        let later = self.0.range(first..);
        let is_it = move |it: &StoredChange| {
            let key = it.object().map(key).unwrap_or_default();
            match object.strip_suffix('*') {
                Some(prefix) => key.starts_with(prefix),
                None => key == object,
            }
        };
        later.filter(move |(_, it)| is_it(it)).map(|(revision, _)| *revision)
    }

    /// Returns the revisions from `first` on that deleted an object, given as a key of [`Run::objects`].
    pub fn deletions<'a>(&'a self, object: &'a str, first: u64) -> impl Iterator<Item = u64> + 'a {
        let later = self.0.range(first..);
        let is_it =
            move |it: &StoredChange| it.after.is_none() && it.before.as_ref().is_some_and(|it| key(it) == object);
        later.filter(move |(_, it)| is_it(it)).map(|(revision, _)| *revision)
    }
}

/// Returns the fields that a write changed; empty for a delete.
fn changes_of(change: &StoredChange) -> Vec<Change> {
    let [before, after] = [&change.before, &change.after].map(|it| it.as_ref().map(StoredObject::value));
    match after {
        Some(after) => changes(before.as_ref(), Some(&after)),
        // Listing every field of the deleted object would be useless.
        None => Vec::new(),
    }
}

/// Formats the key of an object, such as `deployments.apps shop/blog`.
pub(super) fn key(object: &StoredObject) -> String {
    let dot = if object.group().is_empty() { "" } else { "." };
    let (resource, group) = (object.resource(), object.group());
    format!("{resource}{dot}{group} {}/{}", object.namespace(), object.name()).replace(" /", " ")
}

impl Run {
    /// Adds the versions of objects since a revision, and unchanged objects to which steps refer. The steps must have
    /// been added before.
    pub fn add_versions(&mut self, server: &ApiServer, since: u64) {
        let mut writers: BTreeMap<u64, usize> = BTreeMap::new();
        for (at, step) in self
            .steps
            .iter()
            .enumerate()
            .filter(|(_, it)| it.is_write && it.revision > 0)
        {
            writers.entry(step.revision).or_insert(at);
        }
        for change in server.changes_after(since) {
            let Some(object) = change.object() else { continue };
            let versions = self.objects.entry(key(object)).or_default();
            if let (true, Some(before)) = (versions.is_empty(), &change.before) {
                versions.push(version(before.revision(), Some(before)));
            }
            let mut version = version(change.revision, change.after.as_ref());
            version.step = writers.get(&change.revision).copied();
            version.by = version.step.map_or(String::new(), |at| self.steps[at].client.clone());
            versions.push(version);
        }
        let named: Vec<String> = self.steps.iter().map(|it| it.object.clone()).collect();
        for name in named.into_iter().filter(|it| it.contains(' ')) {
            if !self.objects.contains_key(&name)
                && let Some(object) = stored(server, &name)
            {
                self.objects
                    .insert(name, vec![version(object.revision(), Some(&object))]);
            }
        }
        self.bound_versions();
    }

    /// Omits the middle versions of objects with many versions, and all versions beyond the total size limit.
    fn bound_versions(&mut self) {
        let mut bytes = 0;
        for versions in self.objects.values_mut() {
            let count = versions.len();
            for (at, version) in versions.iter_mut().enumerate() {
                let Some(value) = &version.value else { continue };
                let is_middle = at >= FIRST && at + LAST < count;
                bytes += if is_middle { 0 } else { value.to_string().len() };
                if is_middle || bytes > BYTES {
                    (version.value, version.is_left_out) = (None, true);
                }
            }
        }
    }
}

fn stored(server: &ApiServer, name: &str) -> Option<StoredObject> {
    let (resource, place) = name.split_once(' ')?;
    let (resource, group) = resource.split_once('.').unwrap_or((resource, ""));
    let (namespace, name) = place.split_once('/').unwrap_or(("", place));
    server.stored_object(group, resource, namespace, name)
}

fn version(revision: u64, object: Option<&StoredObject>) -> Version {
    let value = object.map(|it| {
        let mut value = it.value();
        if let Some(metadata) = value["metadata"].as_object_mut() {
            // `Version::revision` already contains this number.
            metadata.remove("resourceVersion");
            metadata.remove("managedFields");
        }
        value.sort_all_objects();
        value
    });
    Version {
        revision,
        value,
        ..Version::default()
    }
}
