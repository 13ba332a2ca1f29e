//! `FieldWalk`: traverses the fields of a type in parallel to the fields of an object.

use super::{CustomSchema, SchemaRef, Unset, builtin};

/// A traversal of the fields of a type, in parallel to the fields of an object. Both are in the order of their names.
#[derive(Debug)]
pub(crate) enum FieldWalk<'a> {
    /// Fields of a generated struct, which are traversed in order.
    Struct(builtin::FieldsInOrder),
    /// Fields of a node of a CRD's schema, with the current position.
    Custom(&'a dyn CustomSchema, usize),
    /// Fields of any other type, which are looked up by name.
    Named(SchemaRef<'a>),
}

impl<'a> FieldWalk<'a> {
    /// Same as [`SchemaRef::field`], for calls in ascending order of names.
    pub(crate) fn field(&mut self, name: &str) -> Option<SchemaRef<'a>> {
        match self {
            FieldWalk::Struct(fields) => fields.find(name).map(|it| SchemaRef::Builtin(it.shape())),
            FieldWalk::Custom(node, next) => node.field_from(next, name),
            FieldWalk::Named(schema) => schema.field(name),
        }
    }

    /// Same as [`field`](Self::field), with [the value that Go's encoder writes](SchemaRef::unset) if the field is
    /// unset.
    pub(crate) fn field_and_unset(&mut self, name: &str) -> (Option<SchemaRef<'a>>, Unset) {
        match self {
            FieldWalk::Struct(fields) => match fields.find(name) {
                Some(field) => (Some(SchemaRef::Builtin(field.shape())), field.unset()),
                None => (None, Unset::Absent),
            },
            FieldWalk::Custom(..) => (self.field(name), Unset::Absent),
            FieldWalk::Named(schema) => (schema.field(name), schema.unset(name)),
        }
    }

    /// Same as [`field`](Self::field); also returns `true` if the type declares the name.
    pub(crate) fn declared(&mut self, name: &str) -> (Option<SchemaRef<'a>>, bool) {
        let field = self.field(name);
        let declared = match self {
            FieldWalk::Struct(_) => field.is_some(),
            FieldWalk::Custom(node, _) => node.declares(name),
            FieldWalk::Named(schema) => schema.declares(name),
        };
        (field, declared)
    }
}
