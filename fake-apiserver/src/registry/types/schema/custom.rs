//! `CustomSchema`: what is asked of a structural schema, so that nothing here knows CRDs.

use super::{Form, ListType, SchemaRef};
use crate::api::json::Value;

/// The type of a value as a CRD's structural schema gives it.
pub(crate) trait CustomSchema: std::fmt::Debug + Sync {
    /// The type of a field or an entry; `None` if there can be no such field.
    fn field(&self, name: &str) -> Option<SchemaRef<'_>> {
        self.field_from(&mut 0, name)
    }

    /// The same in a walk through names in their order. `next` is the place in the walk, 0 at its beginning.
    fn field_from(&self, next: &mut usize, name: &str) -> Option<SchemaRef<'_>>;

    /// Returns `true` if `name` is a field the schema declares, rather than an entry of a map.
    fn declares(&self, name: &str) -> bool;

    /// The sort of value this is to server-side apply.
    fn form(&self) -> Form;

    /// Returns `true` if a map has one owner as a whole.
    fn is_atomic_map(&self) -> bool;

    /// The type of the items of a list.
    fn items(&self) -> SchemaRef<'_>;

    /// Returns the list type.
    fn list_type(&self) -> ListType<'_>;

    /// The default of a key field, asked of a list or of its items.
    fn key_default(&self, key: &str) -> Option<Value>;
}
