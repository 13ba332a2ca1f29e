//! `Properties`: the declared fields of a schema node, searched in parallel with the fields of an object.

use super::schema::{Additional, Structural};

/// The declared fields of a node, sorted by name.
#[derive(Clone, Debug, Default)]
pub(super) struct Properties(Box<[(String, Structural)]>);

impl FromIterator<(String, Structural)> for Properties {
    fn from_iter<T: IntoIterator<Item = (String, Structural)>>(fields: T) -> Self {
        let mut fields: Vec<(String, Structural)> = fields.into_iter().collect();
        fields.sort_by(|(a, _), (b, _)| a.cmp(b));
        Self(fields.into())
    }
}

impl Properties {
    /// Returns `true` if the list of declared fields is empty.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the fields, sorted by name.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&String, &Structural)> {
        self.0.iter().map(|(name, node)| (name, node))
    }

    /// Returns the field with this name.
    pub(super) fn get(&self, name: &str) -> Option<&Structural> {
        let at = self.0.binary_search_by(|(it, _)| (**it).cmp(name)).ok()?;
        Some(&self.0[at].1)
    }

    /// Finds a field while the fields of an object are traversed in the order of their names. `next` is the index at
    /// which the search starts: 0 at first. The call advances it past fields with smaller names, which later calls no
    /// longer find.
    pub(super) fn find_from(&self, next: &mut usize, name: &str) -> Option<&Structural> {
        // If the field is further away, it is found by binary search, because an object may contain only a few of the
        // declared fields.
        const NEAR: usize = 4;
        let rest = self.0.get(*next..).unwrap_or_default();
        for (at, (it, node)) in rest.iter().take(NEAR).enumerate() {
            match (**it).cmp(name) {
                std::cmp::Ordering::Less => {}
                std::cmp::Ordering::Equal => {
                    *next += at + 1;
                    return Some(node);
                }
                std::cmp::Ordering::Greater => return None,
            }
        }
        let far = rest.get(NEAR..).unwrap_or_default();
        match far.binary_search_by(|(it, _)| (**it).cmp(name)) {
            Ok(at) => {
                *next += NEAR + at + 1;
                Some(&far[at].1)
            }
            Err(at) => {
                *next += NEAR.min(rest.len()) + at;
                None
            }
        }
    }
}

/// The declared fields of a node, searched in the order of an object's fields.
#[derive(Debug)]
pub(super) struct FieldsInOrder<'a> {
    node: &'a Structural,
    next: usize,
}

impl<'a> FieldsInOrder<'a> {
    /// Creates a search that starts at the node's first field.
    pub(super) fn of(node: &'a Structural) -> Self {
        Self { node, next: 0 }
    }

    /// Returns the schema of a declared field.
    pub(super) fn declared(&mut self, name: &str) -> Option<&'a Structural> {
        self.node.properties.find_from(&mut self.next, name)
    }

    /// Returns the schema of a declared field, or the schema of all undeclared fields.
    pub(super) fn child(&mut self, name: &str) -> Option<&'a Structural> {
        match (self.declared(name), &self.node.additional) {
            (Some(node), _) => Some(node),
            (None, Additional::Schema(node)) => Some(node),
            (None, Additional::Unset | Additional::Bool(_)) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schema_properties_are_found_in_order() {
        let names: Vec<String> = (0..40).map(|it| format!("field{it:02}")).collect();
        let of = |name: &String| {
            (
                name.clone(),
                Structural {
                    nullable: name.ends_with('7'),
                    ..Structural::default()
                },
            )
        };
        let node = Structural {
            properties: names.iter().rev().map(of).collect(),
            ..Structural::default()
        };
        for step in [1, 2, 3, 5, 9, 39] {
            let mut walk = FieldsInOrder::of(&node);
            for name in names.iter().step_by(step) {
                assert!(walk.declared(&name[..name.len() - 1]).is_none());
                assert_eq!(
                    walk.declared(name).map(|it| it.nullable),
                    Some(name.ends_with('7')),
                    "{name}"
                );
                assert!(walk.declared(&format!("{name}a")).is_none());
            }
            assert!(walk.declared("z").is_none());
        }
        assert!(names.iter().all(|name| node.properties.get(name).is_some()) && node.properties.get("field").is_none());
    }
}
