//! `Hidden`: details of a body that Go's typed values contain, but the decoded object does not.

use crate::api::field::{FieldErrors, FieldPath};
use crate::api::json::Value;

/// Maximum number of empty values that are kept for error messages.
const EMPTY_VALUES_MAX: usize = 64;

/// Facts about a body that the decoded object does not contain.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Hidden {
    /// Top-level fields in which an empty list or map was omitted. `reflect.DeepEqual` distinguishes such a value from
    /// nil, but storage does not.
    emptied: Vec<&'static str>,
    /// The first empty lists, maps and bytes of the body, with their paths. Errors show these values unchanged, but
    /// show absent values as `null`.
    empty_values: Vec<(FieldPath, Value)>,
    /// Set if the default labels were copied from the template. In Go, the object and its template then have the same
    /// map of labels, so a label that is added to one is added to both.
    pub(crate) shares_labels: bool,
    /// Set if an apply to a custom resource sets a list or map in its metadata to null. The null is stored but not read
    /// back, so such a write is always treated as a change.
    pub(crate) has_null_metadata: bool,
}

impl Hidden {
    /// Records that an empty list or map was omitted in a top-level field of the object.
    pub(crate) fn left_out(&mut self, field: &'static str) {
        if !self.emptied.contains(&field) {
            self.emptied.push(field);
        }
    }

    /// Records an empty value at this path.
    pub(crate) fn note_empty(&mut self, path: impl FnOnce() -> FieldPath, value: &Value) {
        if self.empty_values.len() < EMPTY_VALUES_MAX {
            self.empty_values.push((path(), value.clone()));
        }
    }

    /// Replaces `null` in errors with the empty value of the body at the same path.
    pub(crate) fn show_in(&self, errors: &mut FieldErrors) {
        for error in errors.iter_mut().filter(|it| it.value == Some(Value::Null)) {
            let found = self.empty_values.iter().find(|(path, _)| *path == error.path);
            error.value = Some(found.map_or(Value::Null, |(_, value)| value.clone()));
        }
    }

    /// Returns `true` if an empty list or map was omitted in a top-level field of the object.
    pub(crate) fn has_emptied(&self, field: &str) -> bool {
        self.emptied.contains(&field)
    }
}

/// An empty set of facts, for objects that the server creates.
pub(crate) static NONE: Hidden = Hidden {
    emptied: Vec::new(),
    empty_values: Vec::new(),
    shares_labels: false,
    has_null_metadata: false,
};

impl Default for &Hidden {
    fn default() -> Self {
        &NONE
    }
}
