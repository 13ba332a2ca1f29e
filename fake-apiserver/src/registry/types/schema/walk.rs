//! `FieldWalk`: the fields of a type beside those of an object.

use super::{CustomSchema, SchemaRef, Unset, builtin};

/// The fields of a type for a walk beside an object, both in the order of their names.
#[derive(Debug)]
pub(crate) enum FieldWalk<'a> {
    /// Of a generated struct, whose fields are walked along.
    Struct(builtin::FieldsInOrder),
    /// Of a node of a CRD's schema, with the place in its fields.
    Custom(&'a dyn CustomSchema, usize),
    /// Of anything else, which is asked by name.
    Named(SchemaRef<'a>),
}

impl<'a> FieldWalk<'a> {
    /// The same as [`SchemaRef::field`], asked in the order of the names.
    pub(crate) fn field(&mut self, name: &str) -> Option<SchemaRef<'a>> {
        match self {
            FieldWalk::Struct(fields) => fields.find(name).map(|it| SchemaRef::Builtin(it.shape())),
            FieldWalk::Custom(node, next) => node.field_from(next, name),
            FieldWalk::Named(schema) => schema.field(name),
        }
    }

    /// The same as [`field`](Self::field), and [what Go's encoder writes](SchemaRef::unset) where the field is unset.
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

    /// The same as [`field`](Self::field), and whether the type declares the name.
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
