//! Types for CEL derived from built-in types: `SchemaDeclType` applied to the OpenAPI definitions that are compiled
//! into kube-controller-manager. They do not have size limits, because they are not used for estimates.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::is_escapable;
use crate::registry::cel::cost::decl::{Decl, DeclKind};
use crate::registry::cel::parse::escape;
use crate::registry::types::schema::builtin::{Kind, Shape, StructType};

/// Returns the type of a built-in type's values; `None` if expressions cannot access them. `path` is the name of the
/// type in errors.
pub(super) fn decl_of_shape(shape: &'static Shape, path: &str) -> Option<Arc<Decl>> {
    declared(shape, path, &mut Vec::new())
}

/// Returns the type of values at a path. `open` contains the enclosing structs.
fn declared(shape: &'static Shape, path: &str, open: &mut Vec<&'static str>) -> Option<Arc<Decl>> {
    let kind = match shape.kind() {
        Kind::String => DeclKind::String,
        Kind::Bool => DeclKind::Bool,
        Kind::Int32 | Kind::Int64 => DeclKind::Int,
        Kind::Float64 => DeclKind::Double,
        Kind::Bytes => DeclKind::Bytes,
        Kind::IntOrString => DeclKind::Dyn,
        Kind::Time | Kind::MicroTime => DeclKind::Timestamp,
        // The OpenAPI definitions of these types do not have exactly one type.
        Kind::Quantity | Kind::Json | Kind::SchemaOrArray(_) | Kind::SchemaOrBool(_) | Kind::SchemaOrStrings(_) => {
            return None;
        }
        Kind::Raw => object(path, BTreeMap::new()),
        Kind::List(_) => DeclKind::List(declared(shape.items()?, &format!("{path}.@idx"), open)?),
        Kind::Map(_) => DeclKind::Map(declared(shape.values()?, &format!("{path}.@elem"), open)?),
        Kind::Struct(_) => of_struct(shape.structure()?, path, open),
    };
    Some(Decl::new(kind, 0, 0))
}

fn of_struct(structure: &'static StructType, path: &str, open: &mut Vec<&'static str>) -> DeclKind {
    // A struct that is nested in itself has no fields at the inner level.
    if open.contains(&structure.definition()) {
        return object(path, BTreeMap::new());
    }
    open.push(structure.definition());
    let mut fields = BTreeMap::new();
    for field in structure.fields().iter().filter(|it| is_escapable(it.name())) {
        let name = escape(field.name());
        if let Some(decl) = declared(field.shape(), &format!("{path}.{name}"), open) {
            fields.insert(name, decl);
        }
    }
    open.pop();
    object(path, fields)
}

fn object(path: &str, fields: BTreeMap<String, Arc<Decl>>) -> DeclKind {
    let name = path.to_owned();
    DeclKind::Object { name, fields }
}
