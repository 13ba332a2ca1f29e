//! Accessors for the keywords of a CRD's schema. As in Go, a keyword with a zero value counts as absent.

use crate::registry::types::cursor::Cursor;

impl<'a> Cursor<'a> {
    /// A keyword that holds one schema.
    pub(super) fn schema(&'a self, key: &'a str) -> Option<Cursor<'a>> {
        Some(self.at(key)).filter(Cursor::is_schema)
    }

    /// The declared fields.
    pub(super) fn properties(&'a self) -> impl Iterator<Item = (&'a str, Cursor<'a>)> {
        self.entries("properties").filter(|(_, it)| it.is_schema())
    }

    /// One declared field.
    pub(super) fn property(&'a self, name: &'a str) -> Option<Cursor<'a>> {
        Some(self.entry_of("properties", name)).filter(Cursor::is_schema)
    }

    /// The schemas under `not`, `allOf`, `anyOf` and `oneOf`, with their index.
    pub(super) fn branches(&'a self) -> impl Iterator<Item = (&'static str, Option<usize>, Cursor<'a>)> {
        let not = self.schema("not").map(|it| ("not", None, it));
        let lists = ["allOf", "anyOf", "oneOf"].into_iter().flat_map(move |junctor| {
            let branches = self.items(junctor).enumerate();
            branches.map(move |(index, it)| (junctor, Some(index), it))
        });
        not.into_iter().chain(lists).filter(|(_, _, it)| it.is_schema())
    }

    /// Calls `visit` with this schema and all schemas below it.
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
