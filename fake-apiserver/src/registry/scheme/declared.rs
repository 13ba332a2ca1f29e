//! CEL types of the served kinds.

use serde_json::from_str;

use super::Scheme;
use crate::api::json::Value;
use crate::registry::custom::declaration::{Type, type_of_objects, type_of_shape};
use crate::registry::types::cursor::Cursor;
use crate::registry::types::schema::builtin::shape_in;

impl Scheme {
    /// Returns the type of a kind's objects; `None` if the kind does not have a schema. Go appends the nanoseconds of
    /// the current time to the name of the kind; here they are 0.
    pub(crate) fn type_of(&self, group: &str, version: &str, kind: &str) -> Option<Type> {
        let name = format!("{kind}0");
        let row = self.rows().find(|row| {
            let info = &row.info;
            info.kind == kind && info.version == version && info.group == group
        });
        if let Some(custom) = row.and_then(|it| it.custom_version()) {
            let schema: Value = from_str(&custom.open_api.text).ok()?;
            return Some(type_of_objects(&Cursor::document(&schema), &name));
        }
        let unserved = || shape_in(self.version, group, version, kind);
        let shape = row.and_then(|it| it.shape()).or_else(unserved)?;
        Some(type_of_shape(shape, &name))
    }
}
