//! `CustomSchema`: the interface to the structural schemas of CRDs. It keeps this module independent of CRDs.

use super::{Form, ListType, SchemaRef};
use crate::api::json::Value;

/// The type of a value in a CRD's structural schema.
pub(crate) trait CustomSchema: std::fmt::Debug + Sync {
    /// Returns the type of a field or map entry; `None` if the value cannot have such a field.
    fn field(&self, name: &str) -> Option<SchemaRef<'_>> {
        self.field_from(&mut 0, name)
    }

    /// Like [`field`](Self::field), for calls in ascending order of names. `next` is the position of the traversal,
    /// initially 0.
    fn field_from(&self, next: &mut usize, name: &str) -> Option<SchemaRef<'_>>;

    /// Returns `true` if the schema declares the field `name`; `false` for an entry of a map.
    fn declares(&self, name: &str) -> bool;

    /// Returns the form of the value for server-side apply.
    fn form(&self) -> Form;

    /// Returns `true` if a map is atomic: it has one owner and is replaced as a whole.
    fn is_atomic_map(&self) -> bool;

    /// Returns the type of the items of a list.
    fn items(&self) -> SchemaRef<'_>;

    /// Returns the list type.
    fn list_type(&self) -> ListType<'_>;

    /// Returns the default of a key field. Works for the schema of a list and for the schema of its items.
    fn key_default(&self, key: &str) -> Option<Value>;
}
