//! `Mask`: fields that are excluded from comparisons.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::Value;

use crate::lock::lock;
use crate::templates::Templates;

/// Fields and names that are excluded from comparisons, by resource; `*` matches every resource.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mask {
    /// Resource and path of a field, with `*` for list indexes.
    pub(crate) paths: BTreeSet<(String, String)>,
    /// Same as `paths`, but only the values of the fields are excluded: every run sets them.
    pub(crate) values: BTreeSet<(String, String)>,
    /// Resources with names that differ between runs.
    pub(crate) names: BTreeSet<String>,
    /// Names with generated parts, which differ between runs.
    pub(crate) templates: Templates,
    /// Objects with a time in their names that the run without faults creates after the end of the scenario. A run that
    /// takes longer, or that reads the clock at other times, may already have created them.
    pub(crate) upcoming: Upcoming,
    /// Set while the mask is derived from runs without faults: objects with names that differ are compared even if
    /// their numbers differ, because the numbers of other runs may be equal.
    pub(crate) is_derived: bool,
    /// Fields that were added after comparisons had begun to use the mask. Shared by all copies.
    learnt: Arc<Learnt>,
}

/// Resource, namespace and name of objects, each with the number of objects of its series when it is the newest one.
pub(crate) type Upcoming = Arc<BTreeMap<String, usize>>;

/// Fields that are added to a mask while it is used.
#[derive(Debug, Default)]
struct Learnt {
    has_some: AtomicBool,
    paths: Mutex<BTreeSet<(String, String)>>,
}

impl Mask {
    /// Returns a mask that excludes these fields of every resource. A list index, or a map key that only consists of
    /// digits, stands for all of them, because paths are compared in this form.
    pub(crate) fn of(ignored: &[String]) -> Self {
        Self {
            paths: ignored.iter().map(|it| ("*".to_owned(), general(it))).collect(),
            ..Self::default()
        }
    }

    /// Returns a mask that excludes the generated parts of names.
    pub(crate) fn with(templates: Templates) -> Self {
        Self {
            templates,
            ..Self::default()
        }
    }

    /// Adds fields, by resource and path, to all copies of the mask.
    pub(crate) fn learn(&self, fields: &BTreeSet<(String, String)>) {
        lock(&self.learnt.paths).extend(fields.iter().cloned());
        self.learnt.has_some.store(true, Ordering::Relaxed);
    }

    /// Adds the fields and names of `other`.
    pub(crate) fn add(&mut self, other: Self) {
        self.paths.extend(other.paths);
        self.values.extend(other.values);
        self.names.extend(other.names);
        self.templates.add(other.templates);
        if !other.upcoming.is_empty() {
            self.upcoming = other.upcoming;
        }
    }

    /// Returns `true` if the names of a resource's objects differ between runs.
    pub(crate) fn hides_names(&self, resource: &str) -> bool {
        self.names.contains(resource)
    }

    /// Removes the masked parts of the value at `path`.
    pub(crate) fn remove(&self, resource: &str, path: &str, value: &mut Value) {
        let step = |name: &str| match path {
            "" => name.to_owned(),
            _ => format!("{path}.{name}"),
        };
        match value {
            Value::Object(fields) => {
                fields.retain(|name, _| !self.hides(resource, &step(name)));
                for (name, field) in fields.iter_mut() {
                    self.remove(resource, &step(name), field);
                }
            }
            Value::Array(items) => {
                for item in items {
                    self.remove(resource, &step("0"), item);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    /// Returns `true` if values are excluded from comparisons, apart from values that were learnt later.
    pub(crate) fn has_fields(&self) -> bool {
        !self.paths.is_empty() || !self.values.is_empty()
    }

    /// Returns `true` if the value of a field is excluded.
    pub(crate) fn hides(&self, resource: &str, path: &str) -> bool {
        let path = general(path);
        self.hides_field(resource, &path) || covers(&self.values, resource, &path)
    }

    /// Returns `true` if it does not matter whether a field is set.
    pub(crate) fn hides_absence(&self, resource: &str, path: &str) -> bool {
        let path = general(path);
        let is_below = || {
            path.rsplit_once('.')
                .is_some_and(|(parent, _)| covers(&self.values, resource, parent))
        };
        self.hides_field(resource, &path) || is_below()
    }

    fn hides_field(&self, resource: &str, path: &str) -> bool {
        let has_learnt = self.learnt.has_some.load(Ordering::Relaxed);
        covers(&self.paths, resource, path) || has_learnt && covers(&lock(&self.learnt.paths), resource, path)
    }
}

/// Returns `true` if one of the fields, or a field that contains it, is at `path`.
fn covers(fields: &BTreeSet<(String, String)>, resource: &str, path: &str) -> bool {
    let is_at = |field: &str| {
        let rest = path.strip_prefix(field);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    fields
        .iter()
        .any(|(of, field)| (of == resource || of == "*") && is_at(field))
}

/// Replaces list indexes with `*`: `spec.containers.0.image` → `spec.containers.*.image`. Keys of maps that only
/// consist of digits are replaced as well.
pub(crate) fn general(path: &str) -> String {
    let steps = path.split('.').map(|it| {
        if it.bytes().all(|it| it.is_ascii_digit()) {
            "*"
        } else {
            it
        }
    });
    steps.collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rstest::rstest]
    #[case::map_key("data.8080", "data.8080")]
    #[case::list_index("spec.containers.0.image", "spec.containers.1.image")]
    #[case::star("spec.containers.*.image", "spec.containers.1.image")]
    fn ignored_path_matches_numeric_keys_and_all_list_indexes(#[case] ignored: &str, #[case] path: &str) {
        assert!(Mask::of(&[ignored.to_owned()]).hides("pods", path));
    }

    #[test]
    fn absence_of_a_field_with_differing_values_is_not_hidden() {
        let mask = Mask {
            values: [("pods".to_owned(), "status.tokens.*.id".to_owned())].into(),
            ..Mask::default()
        };
        let path = "status.tokens.1.id";
        assert!(mask.hides("pods", path) && !mask.hides_absence("pods", path));
        let below = "status.tokens.1.id.part";
        assert!(mask.hides("pods", below) && mask.hides_absence("pods", below));
        assert!(Mask::of(&[path.to_owned()]).hides_absence("pods", path));
    }

    #[test]
    fn learned_field_is_hidden_by_all_clones_of_a_mask() {
        let mask = Mask::of(&["status.now".to_owned()]);
        let copy = mask.clone();
        mask.learn(&BTreeSet::from([("services".to_owned(), "spec.ports".to_owned())]));
        assert!(copy.hides("services", "spec.ports.0.name"));
        assert!(copy.hides("pods", "status.now"));
        assert!(!copy.hides("pods", "spec.ports.0.name"));
        assert!(!Mask::default().hides("services", "spec.ports"));
    }
}
