//! `Decl`: a type as estimates see it, with the most elements of a value and the fewest bytes it is written in.

use std::collections::BTreeMap;
use std::rc::Rc;

/// The bytes of the largest request.
pub(crate) const REQUEST_BYTES_MAX: u64 = 3 * 1024 * 1024;

/// A type.
#[derive(Debug)]
pub(crate) struct Decl {
    pub(crate) kind: DeclKind,
    /// Most characters, bytes, items or entries; 0 for what has none.
    pub(crate) max_elements: u64,
    pub(crate) min_size: u64,
}

/// The sort of a type.
#[derive(Debug)]
pub(crate) enum DeclKind {
    Dyn,
    Bool,
    Int,
    Double,
    String,
    Bytes,
    Duration,
    Timestamp,
    List(Rc<Decl>),
    Map(Rc<Decl>),
    Object(BTreeMap<String, Rc<Decl>>),
}

impl Decl {
    /// A type with its sizes.
    pub(crate) fn new(kind: DeclKind, max_elements: u64, min_size: u64) -> Rc<Self> {
        Rc::new(Self {
            kind,
            max_elements,
            min_size,
        })
    }

    /// The type of a field of an object, by its escaped name.
    pub(crate) fn field(&self, name: &str) -> Option<Rc<Self>> {
        match &self.kind {
            DeclKind::Object(fields) => fields.get(name).cloned(),
            _ => None,
        }
    }

    /// The type of the items of a list, or of the values of a map.
    pub(crate) fn element(&self) -> Option<Rc<Self>> {
        match &self.kind {
            DeclKind::List(element) | DeclKind::Map(element) => Some(Rc::clone(element)),
            _ => None,
        }
    }

    /// The type of the keys of a map, of which no bound is known, and none is assumed.
    pub(crate) fn key(&self) -> Option<Rc<Self>> {
        matches!(self.kind, DeclKind::Map(_)).then(|| Self::new(DeclKind::String, 0, 2))
    }
}
