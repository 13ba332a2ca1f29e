//! `Type`: the type of an expression, reduced to what affects cost estimates.

use std::rc::Rc;
use std::sync::Arc;

use super::decl::{Decl, DeclKind};

/// The type of an expression in an estimate.
#[derive(Clone, Debug)]
pub(crate) enum Type {
    /// Unknown here, although kube-apiserver's checker determines it.
    Unknown,
    /// A type that is only determined at run time.
    Dyn,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Duration,
    Timestamp,
    List(Rc<Type>),
    /// A map, with the types of its keys and values.
    Map(Rc<Type>, Rc<Type>),
    Object(Arc<Decl>),
    Optional(Rc<Type>),
    /// A type of one of Kubernetes' libraries.
    Named(&'static str),
}

impl Type {
    /// Returns the type declared by a schema.
    pub(crate) fn of(decl: &Arc<Decl>) -> Self {
        match &decl.kind {
            DeclKind::Dyn => Self::Dyn,
            DeclKind::Bool => Self::Bool,
            DeclKind::Int => Self::Int,
            DeclKind::Double => Self::Double,
            DeclKind::String => Self::String,
            DeclKind::Bytes => Self::Bytes,
            DeclKind::Duration => Self::Duration,
            DeclKind::Timestamp => Self::Timestamp,
            DeclKind::List(items) => Self::list(Self::of(items)),
            DeclKind::Map(values) => Self::Map(Rc::new(Self::String), Rc::new(Self::of(values))),
            DeclKind::Object { .. } => Self::Object(Arc::clone(decl)),
        }
    }

    pub(crate) fn list(items: Self) -> Self {
        Self::List(Rc::new(items))
    }

    /// Returns the optional type with this inner type; optional types are not nested.
    pub(crate) fn optional(inner: Self) -> Self {
        match inner {
            Self::Optional(_) => inner,
            other => Self::Optional(Rc::new(other)),
        }
    }

    /// Returns `true` if all values of the type have the same size.
    pub(crate) fn is_scalar(&self) -> bool {
        match self {
            Self::Bool | Self::Int | Self::Uint | Self::Double | Self::Duration | Self::Timestamp => true,
            Self::Optional(inner) => inner.is_scalar(),
            _ => false,
        }
    }

    /// Returns the type of an object's field or of a map's values.
    pub(crate) fn field(&self, name: &str) -> Self {
        match self {
            Self::Object(decl) => decl.field_or_word(name).as_ref().map_or(Self::Unknown, Self::of),
            Self::Map(_, value) => (**value).clone(),
            Self::Dyn => Self::Dyn,
            _ => Self::Unknown,
        }
    }

    /// Returns the type of the element selected by an index expression.
    pub(crate) fn element(&self) -> Self {
        match self {
            Self::List(items) => (**items).clone(),
            Self::Map(_, value) => (**value).clone(),
            Self::Dyn => Self::Dyn,
            _ => Self::Unknown,
        }
    }

    /// Returns the type of a macro's variable over values of this type.
    pub(crate) fn iterated(&self) -> Self {
        match self {
            Self::Map(key, _) => (**key).clone(),
            other => other.element(),
        }
    }

    /// Returns the type inside an optional type.
    pub(crate) fn inner(&self) -> Self {
        match self {
            Self::Optional(inner) => (**inner).clone(),
            Self::Dyn => Self::Dyn,
            _ => Self::Unknown,
        }
    }
}
