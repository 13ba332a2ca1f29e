//! Ownership of `spec.replicas` across the scale subresource (rule H15): a Scale shows the entries of its parent that
//! own the replicas, and a write to the Scale changes the owners of the parent's field.

use super::element::Element;
use super::entries::{self, Identity};
use super::json;
use super::set::FieldSet;
use super::update::subtract;
use crate::api::json::Value;

/// The version of the entries of a Scale.
const SCALE: &str = "autoscaling/v1";

/// Path of the replicas in a Scale.
const IN_SCALE: [&str; 2] = ["spec", "replicas"];

/// The path of the replicas in the parent of a Scale.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScaleFields<'a> {
    /// The parent's apiVersion in the request.
    pub(crate) api_version: &'a str,
    /// The path of the replicas in each served version of the parent; empty if the version does not have the
    /// subresource `scale`. Entries in versions that are not listed are dropped.
    pub(crate) paths: &'a [(&'a str, &'a [&'a str])],
}

/// Removes duplicate entries of a parent. If two entries have the same manager, which the first write to a Scale can
/// cause, the later one is kept.
pub(crate) fn distinct(list: Vec<Value>) -> Vec<Value> {
    let mut kept: Vec<Value> = Vec::with_capacity(list.len());
    for entry in list {
        kept.retain(|it| !Identity::of(it).is(&Identity::of(&entry)));
        kept.push(entry);
    }
    kept
}

impl<'a> ScaleFields<'a> {
    fn path(&self, api_version: &str) -> Option<&'a [&'a str]> {
        let found = self.paths.iter().find(|(version, _)| *version == api_version);
        found.map(|(_, path)| *path)
    }

    /// Returns `true` if an entry of the parent owns the replicas.
    fn owns(&self, entry: &Value) -> bool {
        let path = self.path(entries::text(entry, "apiVersion")).unwrap_or_default();
        has(entry, path)
    }

    /// Returns the entries of a Scale, for the entries of its parent.
    pub(crate) fn to_scale(self, parent: &[Value]) -> Vec<Value> {
        let mut list: Vec<Value> = parent
            .iter()
            .filter(|entry| self.owns(entry))
            .map(|entry| moved(entry, SCALE, &IN_SCALE))
            .collect();
        entries::sort(&mut list);
        list
    }

    /// Returns the entries of the parent after a write to its Scale. `scale` contains the resulting entries of the
    /// Scale.
    pub(crate) fn to_parent(self, parent: Vec<Value>, scale: &[Value]) -> Vec<Value> {
        let mut list = Vec::with_capacity(parent.len() + 1);
        let mut new: Vec<&Value> = scale.iter().filter(|entry| has(entry, &IN_SCALE)).collect();
        for mut entry in parent {
            let Some(path) = self.path(entries::text(&entry, "apiVersion")) else {
                continue;
            };
            if has(&entry, path) {
                let kept = new.iter().position(|it| is_same(it, &entry));
                match kept {
                    Some(at) => {
                        new.remove(at);
                    }
                    None => {
                        subtract(&mut entry, &[&FieldSet::of_path(path)]);
                    }
                }
            }
            if !entries::is_empty(&entry) {
                list.push(entry);
            }
        }
        let path = self.path(self.api_version).unwrap_or_default();
        if !path.is_empty() {
            // A manager without an entry in the parent gets an entry without a time.
            let timeless = |entry: &Value| {
                let mut entry = moved(entry, self.api_version, path);
                if let Some(entry) = entry.as_object_mut() {
                    entry.remove("time");
                }
                entry
            };
            list.extend(new.into_iter().map(timeless));
        }
        entries::sort(&mut list);
        list
    }
}

fn has(entry: &Value, path: &[&str]) -> bool {
    let elements: Vec<Element<'_>> = path.iter().map(|name| Element::field(name)).collect();
    !path.is_empty() && json::decode(entry.get("fieldsV1")).is_ok_and(|set| set.has(&elements))
}

/// Returns `true` if an entry of a Scale and an entry of its parent have the same manager. Managers that use `Update`
/// are also identified by the version, so their entries always differ.
fn is_same(scale: &Value, parent: &Value) -> bool {
    Identity::of(scale).is(&Identity::of(parent))
}

/// Returns an entry of the same manager that owns `path` in the version `api_version`.
fn moved(entry: &Value, api_version: &str, path: &[&str]) -> Value {
    let id = Identity {
        api_version,
        ..Identity::of(entry)
    };
    let time = entries::text(entry, "time");
    id.entry(
        json::encode(&FieldSet::of_path(path)),
        Some(time).filter(|it| !it.is_empty()),
    )
}
