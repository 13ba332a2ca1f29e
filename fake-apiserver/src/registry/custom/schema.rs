//! Structural schemas of custom resources: an OpenAPI v3 schema parsed once into a tree that all requests share.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use super::formats::Format;
use super::json_type::JsonType;
use super::properties::Properties;
use super::rules::Rule;
use crate::api::json::{Value, json};
use crate::registry::types::cursor::Cursor;
use crate::registry::types::pattern::Pattern;
use crate::registry::types::schema::builtin::object_meta;
use crate::registry::types::schema::{CustomSchema, Form, ListKeys, ListType, SchemaRef};

/// One node of a structural schema.
///
/// Parsing never fails: the CRD was validated when it was written, so a keyword of the wrong type is treated as absent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Structural {
    pub(super) kind: Option<JsonType>,
    pub(super) nullable: bool,
    pub(super) int_or_string: bool,
    /// Set if the node has a format other than `byte`, even if the server does not support it.
    pub(super) has_format: bool,
    pub(super) preserves_unknown: bool,
    /// Set if this or an enclosing node preserves unknown fields; used by apply.
    pub(super) keeps_unknown: bool,
    /// Set if the node is a complete object, in which `apiVersion`, `kind` and `metadata` need not be declared.
    pub(super) is_resource: bool,
    /// Set if the node has `x-kubernetes-embedded-resource`. Not set for the root, although the root is a complete
    /// object.
    pub(super) is_embedded: bool,
    pub(super) default: Option<Value>,
    pub(super) properties: Properties,
    pub(super) additional: Additional,
    pub(super) items: Option<Box<Structural>>,
    pub(super) list: ListKind,
    pub(super) is_atomic_map: bool,
    pub(super) checks: Checks,
    pub(super) rules: Vec<Arc<Rule>>,
    /// Features of this node and of the nodes inside it. Traversals skip nodes without the relevant feature.
    pub(super) below: Below,
}

/// The keyword `additionalProperties`.
#[derive(Clone, Debug, Default)]
pub(super) enum Additional {
    /// `additionalProperties` is not set.
    #[default]
    Unset,
    /// `additionalProperties` is `true` or `false`.
    Bool(bool),
    /// The schema of all undeclared fields.
    Schema(Box<Structural>),
}

/// The keyword `x-kubernetes-list-type`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum ListKind {
    #[default]
    Atomic,
    Set,
    Map(Vec<String>),
}

/// Features that occur in a node or in a node inside it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Below {
    pub(super) defaults: bool,
    pub(super) embedded: bool,
    pub(super) unique_lists: bool,
    pub(super) rules: bool,
}

/// Validation keywords of a node.
#[derive(Clone, Debug, Default)]
pub(super) struct Checks {
    pub(super) format: Option<Format>,
    pub(super) maximum: Option<f64>,
    pub(super) exclusive_maximum: bool,
    pub(super) minimum: Option<f64>,
    pub(super) exclusive_minimum: bool,
    pub(super) multiple_of: Option<f64>,
    pub(super) max_length: Option<u64>,
    pub(super) min_length: Option<u64>,
    pub(super) pattern: Option<Arc<Pattern>>,
    pub(super) max_items: Option<u64>,
    pub(super) min_items: Option<u64>,
    pub(super) max_properties: Option<u64>,
    pub(super) min_properties: Option<u64>,
    pub(super) required: Vec<String>,
    pub(super) allowed: Vec<Value>,
    pub(super) all_of: Vec<Structural>,
    pub(super) any_of: Vec<Structural>,
    pub(super) one_of: Vec<Structural>,
    pub(super) not: Option<Box<Structural>>,
}

impl Structural {
    /// Parses the root schema of a custom resource.
    pub(super) fn parse_root(schema: &Cursor<'_>) -> Self {
        let mut root = Parser::default().node(schema);
        root.is_resource = true;
        root
    }

    /// Parses the schema of a value inside a custom resource.
    pub(super) fn parse(schema: &Cursor<'_>) -> Self {
        Parser::default().node(schema)
    }

    /// Returns the schema for apply. A node that only preserves unknown fields has a deduced type.
    fn as_schema(&self) -> SchemaRef<'_> {
        if self.kind.is_none() && self.preserves_unknown && self.properties.is_empty() {
            SchemaRef::Deduced
        } else {
            SchemaRef::Custom(self)
        }
    }
}

impl CustomSchema for Structural {
    fn field_from(&self, next: &mut usize, name: &str) -> Option<SchemaRef<'_>> {
        if self.is_resource && is_meta_field(name) {
            let meta = (name == "metadata").then(object_meta).flatten();
            return Some(meta.map_or(SchemaRef::Deduced, SchemaRef::Builtin));
        }
        match (self.properties.find_from(next, name), &self.additional) {
            (Some(node), _) => Some(node.as_schema()),
            (None, Additional::Schema(node)) => Some(node.as_schema()),
            (None, Additional::Bool(true)) => Some(SchemaRef::Deduced),
            (None, Additional::Bool(false)) => None,
            // An object without declared fields is free-form.
            (None, Additional::Unset) => {
                let is_free = self.keeps_unknown || (self.properties.is_empty() && !self.is_resource);
                is_free.then_some(SchemaRef::Deduced)
            }
        }
    }

    fn declares(&self, name: &str) -> bool {
        self.properties.get(name).is_some() || (self.is_resource && is_meta_field(name))
    }

    fn form(&self) -> Form {
        // Most values that may be integers or strings lack a `type`. Any scalar is accepted in this case (schemaconv's
        // `parseSchema`).
        match self.kind {
            None => Form::Any,
            Some(JsonType::Array) => Form::List,
            Some(JsonType::Boolean) => Form::Boolean,
            Some(JsonType::Integer | JsonType::Number) => Form::Numeric,
            Some(JsonType::Object) => Form::Map,
            // A format other than `byte` turns the string into an untyped scalar (schemaconv's `convertPrimitive`).
            Some(JsonType::String) if self.has_format => Form::Scalar,
            Some(JsonType::String) => Form::String,
        }
    }

    fn is_atomic_map(&self) -> bool {
        self.is_atomic_map
    }

    fn items(&self) -> SchemaRef<'_> {
        self.items.as_deref().map_or(SchemaRef::Deduced, Structural::as_schema)
    }

    fn list_type(&self) -> ListType<'_> {
        match &self.list {
            ListKind::Atomic => ListType::Atomic,
            ListKind::Set => ListType::Set,
            ListKind::Map(keys) => ListType::Map(ListKeys::Owned(keys)),
        }
    }

    fn key_default(&self, key: &str) -> Option<Value> {
        let item = self.items.as_deref().unwrap_or(self);
        item.properties.get(key)?.default.clone()
    }
}

/// Returns `true` if every complete object has this field, even if the schema does not declare it.
pub(super) fn is_meta_field(name: &str) -> bool {
    matches!(name, "apiVersion" | "kind" | "metadata")
}

/// Returns the implicit schema of `apiVersion`, `kind` or `metadata` for rules. Declarations of these fields are
/// ignored.
pub(super) fn implied(name: &str) -> Option<&'static Structural> {
    static METADATA: LazyLock<Structural> = LazyLock::new(|| {
        let text = json!({"type": "string"});
        let schema = json!({"type": "object", "properties": {"name": text, "generateName": text}});
        Structural::parse(&Cursor::document(&schema))
    });
    match name {
        "metadata" => Some(&METADATA),
        "apiVersion" | "kind" => METADATA.properties.get("name"),
        _ => None,
    }
}

/// Parses a schema. Equal patterns share one instance.
#[derive(Default)]
struct Parser {
    /// Set inside a node that preserves unknown fields.
    keeps_unknown: bool,
    patterns: BTreeMap<String, Arc<Pattern>>,
}

impl Parser {
    fn node(&mut self, schema: &Cursor<'_>) -> Structural {
        let mut node = Structural {
            kind: JsonType::parse(schema.text("type")),
            nullable: schema.is_true("nullable"),
            int_or_string: schema.is_true("x-kubernetes-int-or-string"),
            has_format: !matches!(schema.text("format"), "" | "byte"),
            preserves_unknown: schema.is_true("x-kubernetes-preserve-unknown-fields"),
            is_resource: schema.is_true("x-kubernetes-embedded-resource"),
            is_embedded: schema.is_true("x-kubernetes-embedded-resource"),
            default: schema.get("default").cloned(),
            is_atomic_map: schema.text("x-kubernetes-map-type") == "atomic",
            list: match schema.text("x-kubernetes-list-type") {
                "set" => ListKind::Set,
                "map" => ListKind::Map(strings(schema, "x-kubernetes-list-map-keys")),
                _ => ListKind::Atomic,
            },
            keeps_unknown: self.keeps_unknown || schema.is_true("x-kubernetes-preserve-unknown-fields"),
            ..Structural::default()
        };
        let outside = std::mem::replace(&mut self.keeps_unknown, node.keeps_unknown);
        let properties = schema.entries("properties");
        node.properties = properties.map(|(name, it)| (name.to_owned(), self.node(&it))).collect();
        node.additional = match (
            schema.flag("additionalProperties"),
            schema.schema("additionalProperties"),
        ) {
            (Some(allowed), _) => Additional::Bool(allowed),
            (None, Some(it)) => Additional::Schema(Box::new(self.node(&it))),
            (None, None) => Additional::Unset,
        };
        node.items = schema.schema("items").map(|it| Box::new(self.node(&it)));
        self.keeps_unknown = outside;
        node.checks = self.checks(schema, &node);
        let rules = schema.items("x-kubernetes-validations");
        node.rules = rules.map(|it| Arc::new(Rule::parse(&it))).collect();
        node.below = Below::of(&node);
        node
    }

    fn checks(&mut self, schema: &Cursor<'_>, node: &Structural) -> Checks {
        let number = |key: &str| schema.get(key).and_then(Value::as_f64);
        let count = |key: &str| schema.get(key).and_then(Value::as_u64);
        let format = schema.get("format").and_then(Value::as_str);
        Checks {
            format: format.and_then(|name| Format::parse(name, node.kind.filter(|_| !node.int_or_string))),
            maximum: number("maximum"),
            exclusive_maximum: schema.is_true("exclusiveMaximum"),
            minimum: number("minimum"),
            exclusive_minimum: schema.is_true("exclusiveMinimum"),
            multiple_of: number("multipleOf"),
            max_length: count("maxLength"),
            min_length: count("minLength"),
            pattern: Some(schema.text("pattern")).filter(|it| !it.is_empty()).map(|text| {
                let shared = self.patterns.entry(text.to_owned());
                Arc::clone(shared.or_insert_with(|| Arc::new(Pattern::new(text))))
            }),
            max_items: count("maxItems"),
            min_items: count("minItems"),
            max_properties: count("maxProperties"),
            min_properties: count("minProperties"),
            required: strings(schema, "required"),
            allowed: schema.list("enum").to_vec(),
            all_of: self.nodes(schema, "allOf"),
            any_of: self.nodes(schema, "anyOf"),
            one_of: self.nodes(schema, "oneOf"),
            not: schema.schema("not").map(|it| Box::new(self.node(&it))),
        }
    }

    fn nodes(&mut self, schema: &Cursor<'_>, junctor: &str) -> Vec<Structural> {
        schema.items(junctor).map(|it| self.node(&it)).collect()
    }
}

impl Below {
    fn of(node: &Structural) -> Self {
        let mut all = Self {
            defaults: node.default.is_some(),
            embedded: node.is_embedded,
            unique_lists: node.list != ListKind::Atomic,
            rules: !node.rules.is_empty(),
        };
        let additional = match &node.additional {
            Additional::Schema(it) => Some(&**it),
            Additional::Unset | Additional::Bool(_) => None,
        };
        for child in node
            .properties
            .iter()
            .map(|(_, it)| it)
            .chain(node.items.as_deref())
            .chain(additional)
        {
            all.defaults |= child.below.defaults;
            all.embedded |= child.below.embedded;
            all.unique_lists |= child.below.unique_lists;
            all.rules |= child.below.rules;
        }
        all
    }
}

/// Returns the strings in a list field.
pub(super) fn strings(value: &Cursor<'_>, way: &str) -> Vec<String> {
    value.texts(way).map(str::to_owned).collect()
}
