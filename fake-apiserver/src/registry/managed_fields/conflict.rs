//! Conflicts of server-side apply, and their error messages (rule H3).

use super::entries::{self, Identity};
use super::json;
use super::set::FieldSet;
use crate::api::field::quote;
use crate::api::json::{Map, Value};
use crate::api::status::Status;

/// The fields that an apply would take from one manager.
#[derive(Debug)]
pub(super) struct Conflict {
    /// The entry of this manager, without its fields.
    entry: Value,
    fields: FieldSet<'static>,
}

impl Conflict {
    /// Returns the conflict between an entry and the changed fields, if there is one.
    pub(super) fn find(entry: &Value, touched: &FieldSet<'_>) -> Option<Self> {
        let owned = entries::fields(entry)?;
        if !json::touches(owned, touched) {
            return None;
        }
        let fields = json::decode(entry.get("fieldsV1")).ok()?;
        Some(Self {
            entry: Identity::of(entry).entry(Map::new(), None),
            fields: fields.intersection(touched).into_owned(),
        })
    }

    /// Returns `true` if all fields of the conflict are in `allowed`.
    pub(super) fn is_within(&self, allowed: &FieldSet<'_>) -> bool {
        self.fields.is_subset(allowed)
    }

    /// Returns the conflict without the fields in `allowed`; `None` if no other fields remain.
    pub(super) fn without(mut self, allowed: &FieldSet<'_>) -> Option<Self> {
        self.fields = self.fields.difference(allowed);
        (!self.fields.is_empty()).then_some(self)
    }

    /// Formats the manager for errors: `"one" with subresource "status" using apps/v1`.
    fn manager(&self) -> String {
        let id = Identity::of(&self.entry);
        let mut text = quote(id.manager);
        if !id.subresource.is_empty() {
            text.push_str(&format!(" with subresource {}", quote(id.subresource)));
        }
        if !id.applied {
            text.push_str(&format!(" using {}", id.api_version));
        }
        text
    }
}

/// Returns the error 409, which lists every field and its manager.
pub(super) fn conflict_status(mut conflicts: Vec<Conflict>) -> Status {
    conflicts.sort_by(|a, b| Identity::of(&a.entry).key().cmp(&Identity::of(&b.entry).key()));
    let mut status = Status::new(409, "Conflict", "");
    let mut lines = Vec::new();
    let mut count = 0;
    for conflict in &conflicts {
        let manager = conflict.manager();
        lines.push(format!("conflicts with {manager}:"));
        for path in conflict.fields.paths() {
            count += 1;
            lines.push(format!("- {path}"));
            status = status.with_cause("FieldManagerConflict", format!("conflict with {manager}"), &path);
        }
    }
    status.message = match (count, conflicts.first()) {
        (1, Some(conflict)) => {
            let path = conflict.fields.paths().concat();
            format!(
                "Apply failed with 1 conflict: conflict with {}: {path}",
                conflict.manager()
            )
        }
        _ => format!("Apply failed with {count} conflicts: {}", lines.join("\n")),
    };
    status
}
