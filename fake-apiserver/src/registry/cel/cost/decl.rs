//! `Decl`: a declared type, with the maximum number of elements and the minimum number of bytes of its values.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::registry::types::names::CEL_RESERVED;

/// Maximum size of a request, in bytes.
pub(crate) const REQUEST_BYTES_MAX: u64 = 3 * 1024 * 1024;

/// A declared type.
#[derive(Debug)]
pub(crate) struct Decl {
    pub(crate) kind: DeclKind,
    /// Maximum number of bytes, items or entries; 0 for types without elements.
    pub(crate) max_elements: u64,
    pub(crate) min_size: u64,
}

/// Structure of a declared type.
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
    List(Arc<Decl>),
    Map(Arc<Decl>),
    Object {
        /// The path of the object, used as its name in errors.
        name: String,
        /// Fields by their escaped names.
        fields: BTreeMap<String, Arc<Decl>>,
    },
}

impl Decl {
    /// Creates a type with its size limits.
    pub(crate) fn new(kind: DeclKind, max_elements: u64, min_size: u64) -> Arc<Self> {
        Arc::new(Self {
            kind,
            max_elements,
            min_size,
        })
    }

    /// Returns the type of a field of an object, by its escaped name.
    pub(crate) fn field(&self, name: &str) -> Option<Arc<Self>> {
        match &self.kind {
            DeclKind::Object { fields, .. } => fields.get(name).cloned(),
            _ => None,
        }
    }

    /// Returns the type of a field of an object, by its escaped name; a reserved word is also accepted unescaped.
    pub(crate) fn field_or_word(&self, name: &str) -> Option<Arc<Self>> {
        self.field(name).or_else(|| {
            let is_reserved = CEL_RESERVED.contains(&name);
            is_reserved.then(|| self.field(&format!("__{name}__"))).flatten()
        })
    }

    /// Returns the type of a list's items or of a map's values.
    pub(crate) fn element(&self) -> Option<Arc<Self>> {
        match &self.kind {
            DeclKind::List(element) | DeclKind::Map(element) => Some(Arc::clone(element)),
            _ => None,
        }
    }

    /// Returns the type of a map's keys: strings with a maximum size of 0 in the estimate, because the size of keys is
    /// not declared.
    pub(crate) fn key(&self) -> Option<Arc<Self>> {
        matches!(self.kind, DeclKind::Map(_)).then(|| Self::new(DeclKind::String, 0, 2))
    }
}
