//! Types of values, with their names in expressions.

use std::sync::Arc;

use super::ast::{Expr, Expression};
use super::objects::Value as CelValue;

/// Names of types with which `type(x)` can be compared.
pub(crate) const TYPE_NAMES: [&str; 11] = [
    "type",
    "optional_type",
    "int",
    "uint",
    "double",
    "string",
    "bytes",
    "bool",
    "list",
    "map",
    "null_type",
];

/// Returns the type of a value as a CEL value.
pub(super) fn type_of(value: &CelValue) -> CelValue {
    type_value(type_name(value))
}

/// Returns the name of a value's type.
pub(super) fn type_name(value: &CelValue) -> &str {
    match value {
        CelValue::Int(_) => "int",
        CelValue::UInt(_) => "uint",
        CelValue::Float(_) => "double",
        CelValue::String(text) if text.starts_with(TYPE_START) => "type",
        CelValue::String(_) => "string",
        CelValue::Bytes(_) => "bytes",
        CelValue::Bool(_) => "bool",
        CelValue::List(_) => "list",
        CelValue::Map(_) => "map",
        CelValue::Null => "null_type",
        CelValue::Duration(_) => "google.protobuf.Duration",
        CelValue::Timestamp(_) => "google.protobuf.Timestamp",
        CelValue::Opaque(opaque) => opaque.runtime_type_name(),
    }
}

/// Returns the type with a dotted name such as `google.protobuf.Duration`.
pub(super) fn dotted_type(package: &Expression, name: &str) -> Option<CelValue> {
    let full = match &package.expr {
        Expr::Ident(package) => format!("{}.{name}", package.trim_start_matches('.')),
        Expr::Select(select) => match &select.operand.expr {
            Expr::Ident(first) => format!("{}.{}.{name}", first.trim_start_matches('.'), select.field),
            _ => return None,
        },
        _ => return None,
    };
    let is_type = full.starts_with("google.protobuf.")
        || matches!(
            full.as_str(),
            "net.IP"
                | "net.CIDR"
                | "kubernetes.URL"
                | "kubernetes.Quantity"
                | "kubernetes.Semver"
                | "kubernetes.NamedFormat"
        );
    is_type.then(|| type_value(&full))
}

/// Prefix of the string that represents a type.
pub(super) const TYPE_START: &str = "\u{0}type ";

/// Creates a type value: a string that begins with a null character, unlike strings in usual expressions.
pub(super) fn type_value(name: &str) -> CelValue {
    CelValue::String(Arc::new(format!("{TYPE_START}{name}")))
}
