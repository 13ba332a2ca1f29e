//! Types for CEL derived from the schema of a CRD (`SchemaDeclType` of `k8s.io/apiserver/pkg/cel/openapi`), and from
//! built-in types.

mod builtin;

use std::collections::BTreeMap;
use std::sync::Arc;

use builtin::decl_of_shape;

use crate::api::json::Value;
pub(crate) use crate::registry::cel::check::Type;
use crate::registry::cel::cost::decl::{Decl, DeclKind, REQUEST_BYTES_MAX};
use crate::registry::cel::parse::escape;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::schema::builtin::{Shape, object_meta};

/// Maximum length of a string in a request, without its quotation marks.
const TEXT_MAX: u64 = REQUEST_BYTES_MAX - 2;

/// Maximum number of bytes of a character in UTF-8.
const CHAR_BYTES: u64 = 4;

/// Returns the type declared by a schema; `None` if rules cannot access its values.
pub(super) fn decl_of(node: &Cursor<'_>, is_resource: bool) -> Option<Arc<Decl>> {
    Declarer { metadata: names_of }.declared(node, is_resource, "selfType")
}

/// Returns the type of a built-in type's values; `name` is its name in errors.
pub(crate) fn type_of_shape(shape: &'static Shape, name: &str) -> Type {
    decl_of_shape(shape, name).as_ref().map_or(Type::Dyn, Type::of)
}

/// Returns the type of a custom resource's objects in policies, which can access all fields of metadata.
pub(crate) fn type_of_objects(schema: &Cursor<'_>, name: &str) -> Type {
    let metadata = |path: &str| {
        let all = object_meta().and_then(|it| decl_of_shape(it, path));
        all.unwrap_or_else(|| names_of(path))
    };
    let decl = Declarer { metadata }.declared(schema, true, name);
    decl.as_ref().map_or(Type::Dyn, Type::of)
}

/// Returns the type of metadata in rules, with the fields that rules can access.
fn names_of(path: &str) -> Arc<Decl> {
    let names = ["name", "generateName"].map(|name| (name.to_owned(), any_text()));
    let kind = DeclKind::Object {
        name: path.to_owned(),
        fields: names.into(),
    };
    Decl::new(kind, 0, 2)
}

/// Returns the type of strings without a length limit.
fn any_text() -> Arc<Decl> {
    Decl::new(DeclKind::String, TEXT_MAX, 2)
}

/// Derives types from a schema. `metadata` returns the type of the metadata at a path.
struct Declarer<F> {
    metadata: F,
}

impl<F: Fn(&str) -> Arc<Decl>> Declarer<F> {
    /// Returns the type declared by a schema at a path.
    fn declared(&self, node: &Cursor<'_>, is_resource: bool, path: &str) -> Option<Arc<Decl>> {
        if node.is_true("x-kubernetes-int-or-string") {
            return Some(Decl::new(DeclKind::Dyn, text_max(node), 1));
        }
        match node.text("type") {
            "array" => {
                let items = node.schema("items")?;
                let items = self.declared(
                    &items,
                    items.is_true("x-kubernetes-embedded-resource"),
                    &format!("{path}.@idx"),
                )?;
                let most = limit(node, "maxItems").unwrap_or((REQUEST_BYTES_MAX - 2) / (items.min_size + 1));
                Some(Decl::new(DeclKind::List(items), most, 2))
            }
            "object" => self.of_object(node, is_resource, path),
            "string" => Some(of_string(node)),
            "boolean" => Some(Decl::new(DeclKind::Bool, 0, 4)),
            "number" => Some(Decl::new(DeclKind::Double, 0, 1)),
            "integer" => Some(Decl::new(DeclKind::Int, 0, 1)),
            _ => None,
        }
    }

    fn of_object(&self, node: &Cursor<'_>, is_resource: bool, path: &str) -> Option<Arc<Decl>> {
        if let Some(values) = node.schema("additionalProperties") {
            let values = self.declared(
                &values,
                values.is_true("x-kubernetes-embedded-resource"),
                &format!("{path}.@elem"),
            )?;
            // Each entry has a key, two quotation marks, a colon and a comma.
            let most = limit(node, "maxProperties").unwrap_or((REQUEST_BYTES_MAX - 2) / (values.min_size + 6));
            return Some(Decl::new(DeclKind::Map(values), most, 2));
        }
        let mut fields = BTreeMap::new();
        let mut min_size = 2;
        for (name, property) in node.properties() {
            let path = format!("{path}.{}", escape(name));
            let Some(decl) = self.declared(&property, property.is_true("x-kubernetes-embedded-resource"), &path) else {
                continue;
            };
            if node.texts("required").any(|it| it == name) && !property.is_set("default") {
                min_size += name.len() as u64 + decl.min_size + 4;
            }
            if is_escapable(name) {
                fields.insert(escape(name), decl);
            }
        }
        if is_resource {
            fields.insert("apiVersion".to_owned(), any_text());
            fields.insert("kind".to_owned(), any_text());
            fields.insert("metadata".to_owned(), (self.metadata)(&format!("{path}.metadata")));
        }
        let name = path.to_owned();
        Some(Decl::new(DeclKind::Object { name, fields }, 0, min_size))
    }
}

fn of_string(node: &Cursor<'_>) -> Arc<Decl> {
    match node.text("format") {
        "byte" => {
            let most = limit(node, "maxLength").unwrap_or(TEXT_MAX);
            Decl::new(DeclKind::Bytes, most, 2)
        }
        "duration" => Decl::new(DeclKind::Duration, 32, 3),
        "date" => Decl::new(DeclKind::Timestamp, 12, 12),
        "date-time" => Decl::new(DeclKind::Timestamp, 32, 21),
        _ => {
            let names = node.list("enum");
            let longest = names.iter().filter_map(Value::as_str).map(str::len).max();
            let most = match limit(node, "maxLength") {
                None if !names.is_empty() => longest.unwrap_or_default() as u64,
                Some(_) | None => text_max(node),
            };
            Decl::new(DeclKind::String, most, 2)
        }
    }
}

/// Returns a limit in a schema; 0 if it is negative.
pub(super) fn limit(node: &Cursor<'_>, key: &str) -> Option<u64> {
    let value = node.get(key)?.as_f64()?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "casts saturate at 0"
    )]
    Some(value as u64)
}

/// Returns the maximum number of bytes in a string.
fn text_max(node: &Cursor<'_>) -> u64 {
    limit(node, "maxLength").map_or(TEXT_MAX, |most| most.saturating_mul(CHAR_BYTES))
}

/// Returns `true` if expressions can refer to a field with this name.
fn is_escapable(name: &str) -> bool {
    let is_inside = |c: char| c.is_ascii_alphanumeric() || "_./-".contains(c);
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && name.chars().all(is_inside)
}
