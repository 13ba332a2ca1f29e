//! Accessors for the keywords of a CRD's schema. A keyword whose value is not a schema is treated as absent.

use crate::registry::types::cursor::Cursor;

impl<'a> Cursor<'a> {
    /// Returns the schema in the keyword `key`.
    pub(super) fn schema(&'a self, key: &'a str) -> Option<Cursor<'a>> {
        Some(self.at(key)).filter(Cursor::is_schema)
    }

    /// Returns the names and schemas of the declared fields.
    pub(super) fn properties(&'a self) -> impl Iterator<Item = (&'a str, Cursor<'a>)> {
        self.entries("properties").filter(|(_, it)| it.is_schema())
    }

    /// Returns the schema of a declared field.
    pub(super) fn property(&'a self, name: &'a str) -> Option<Cursor<'a>> {
        Some(self.entry_of("properties", name)).filter(Cursor::is_schema)
    }

    /// Returns the schemas in `not`, `allOf`, `anyOf` and `oneOf`, each with its keyword and its index in a list.
    pub(super) fn branches(&'a self) -> impl Iterator<Item = (&'static str, Option<usize>, Cursor<'a>)> {
        let not = self.schema("not").map(|it| ("not", None, it));
        let lists = ["allOf", "anyOf", "oneOf"].into_iter().flat_map(move |junctor| {
            let branches = self.items(junctor).enumerate();
            branches.map(move |(index, it)| (junctor, Some(index), it))
        });
        not.into_iter().chain(lists).filter(|(_, _, it)| it.is_schema())
    }

    /// Calls `visit` with this schema and every schema inside it.
    pub(super) fn visit(&self, visit: &mut dyn FnMut(&Cursor<'_>)) {
        visit(self);
        let properties = self.properties().map(|(_, it)| it);
        let branches = self.branches().map(|(_, _, it)| it);
        let others = [self.schema("items"), self.schema("additionalProperties")];
        for child in properties.chain(branches).chain(others.into_iter().flatten()) {
            child.visit(visit);
        }
    }

    fn is_schema(&self) -> bool {
        self.map("").is_some()
    }
}
