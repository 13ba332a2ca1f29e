//! Structural schemas of custom resources: an OpenAPI v3 schema parsed once into a tree that every request walks.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use serde_json::{Map, Value};

use super::formats::Format;
use super::json_type::JsonType;
use super::properties::Properties;
use super::rules::Rule;
use crate::registry::types::pattern::Pattern;
use crate::registry::types::schema::builtin::object_meta;
use crate::registry::types::schema::{CustomSchema, Form, ListKeys, ListType, SchemaRef};

/// One node of a structural schema.
///
/// Parsing never fails: what a schema may not contain is refused when the CRD is written, so here a keyword of the
/// wrong type reads as absent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Structural {
    pub(super) kind: Option<JsonType>,
    pub(super) nullable: bool,
    pub(super) int_or_string: bool,
    /// Set if texts have a format other than that of bytes, known to the server or not.
    pub(super) has_format: bool,
    pub(super) preserves_unknown: bool,
    /// Set if this node or one that it lies in preserves unknown fields, which counts for types of apply.
    pub(super) keeps_unknown: bool,
    /// The node is a whole object: `apiVersion`, `kind` and `metadata` are implied.
    pub(super) is_resource: bool,
    /// The node has `x-kubernetes-embedded-resource` (the root has not, though it is a resource).
    pub(super) is_embedded: bool,
    pub(super) default: Option<Value>,
    pub(super) properties: Properties,
    pub(super) additional: Additional,
    pub(super) items: Option<Box<Structural>>,
    pub(super) list: ListKind,
    pub(super) is_atomic_map: bool,
    pub(super) checks: Checks,
    pub(super) rules: Vec<Arc<Rule>>,
    /// Parts that walks may skip, as nothing below has them.
    pub(super) below: Below,
}

/// `additionalProperties`.
#[derive(Clone, Debug, Default)]
pub(super) enum Additional {
    /// Not given.
    #[default]
    Unset,
    /// `true` or `false`.
    Bool(bool),
    /// The schema of every other field.
    Schema(Box<Structural>),
}

/// `x-kubernetes-list-type`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum ListKind {
    #[default]
    Atomic,
    Set,
    Map(Vec<String>),
}

/// Features that occur in a node or anywhere below it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Below {
    pub(super) defaults: bool,
    pub(super) embedded: bool,
    pub(super) unique_lists: bool,
    pub(super) rules: bool,
}

/// The value validations of a node.
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
    /// The schema of a whole custom resource.
    pub(super) fn parse_root(schema: &Value) -> Self {
        let mut root = Parser::default().node(schema);
        root.is_resource = true;
        root
    }

    /// The schema of a value inside a custom resource.
    pub(super) fn parse(schema: &Value) -> Self {
        Parser::default().node(schema)
    }

    /// A node that says nothing but that anything goes is what apply calls a deduced type.
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
            // An object of which nothing is said is a free form.
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
        // A number or a text has no type in the schema, so that it is one of any (schemaconv's `parseSchema`).
        match self.kind.filter(|_| !self.int_or_string) {
            None => Form::Any,
            Some(JsonType::Array) => Form::List,
            Some(JsonType::Boolean) => Form::Boolean,
            Some(JsonType::Integer | JsonType::Number) => Form::Numeric,
            Some(JsonType::Object) => Form::Map,
            // Any format but that of bytes makes it a scalar of any type (schemaconv's `convertPrimitive`).
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

/// Returns `true` if a resource has this field without declaring it.
pub(super) fn is_meta_field(name: &str) -> bool {
    matches!(name, "apiVersion" | "kind" | "metadata")
}

/// Returns the implied schema of a resource, as rules see it; declarations of these fields are ignored.
pub(super) fn implied(name: &str) -> Option<&'static Structural> {
    static METADATA: LazyLock<Structural> = LazyLock::new(|| {
        let text = serde_json::json!({"type": "string"});
        Structural::parse(&serde_json::json!({"type": "object", "properties": {"name": text, "generateName": text}}))
    });
    match name {
        "metadata" => Some(&METADATA),
        "apiVersion" | "kind" => METADATA.properties.get("name"),
        _ => None,
    }
}

/// Parses one schema; equal patterns become one.
#[derive(Default)]
struct Parser {
    /// Set if what is parsed lies in a node that preserves unknown fields.
    keeps_unknown: bool,
    patterns: BTreeMap<String, Arc<Pattern>>,
}

impl Parser {
    fn node(&mut self, schema: &Value) -> Structural {
        let empty = Map::new();
        let schema = schema.as_object().unwrap_or(&empty);
        let flag = |key: &str| schema.get(key) == Some(&Value::Bool(true));
        let text = |key: &str| schema.get(key).and_then(Value::as_str);
        let mut node = Structural {
            kind: text("type").and_then(JsonType::parse),
            nullable: flag("nullable"),
            int_or_string: flag("x-kubernetes-int-or-string"),
            has_format: text("format").is_some_and(|it| !matches!(it, "" | "byte")),
            preserves_unknown: flag("x-kubernetes-preserve-unknown-fields"),
            is_resource: flag("x-kubernetes-embedded-resource"),
            is_embedded: flag("x-kubernetes-embedded-resource"),
            default: schema.get("default").filter(|it| !it.is_null()).cloned(),
            is_atomic_map: text("x-kubernetes-map-type") == Some("atomic"),
            list: match text("x-kubernetes-list-type") {
                Some("set") => ListKind::Set,
                Some("map") => ListKind::Map(strings(schema.get("x-kubernetes-list-map-keys"))),
                _ => ListKind::Atomic,
            },
            keeps_unknown: self.keeps_unknown || flag("x-kubernetes-preserve-unknown-fields"),
            ..Structural::default()
        };
        let outside = std::mem::replace(&mut self.keeps_unknown, node.keeps_unknown);
        if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
            let parsed = properties.iter().map(|(name, it)| (name.clone(), self.node(it)));
            node.properties = parsed.collect();
        }
        node.additional = match schema.get("additionalProperties") {
            Some(Value::Bool(allowed)) => Additional::Bool(*allowed),
            Some(it @ Value::Object(_)) => Additional::Schema(Box::new(self.node(it))),
            _ => Additional::Unset,
        };
        node.items = schema
            .get("items")
            .filter(|it| it.is_object())
            .map(|it| Box::new(self.node(it)));
        self.keeps_unknown = outside;
        node.checks = self.checks(schema, &node);
        let rules = schema.get("x-kubernetes-validations").and_then(Value::as_array);
        node.rules = rules
            .into_iter()
            .flatten()
            .map(|it| Arc::new(Rule::parse(it)))
            .collect();
        node.below = Below::of(&node);
        node
    }

    fn checks(&mut self, schema: &Map<String, Value>, node: &Structural) -> Checks {
        let flag = |key: &str| schema.get(key) == Some(&Value::Bool(true));
        let number = |key: &str| schema.get(key).and_then(Value::as_f64);
        let count = |key: &str| schema.get(key).and_then(Value::as_u64);
        let pattern = schema
            .get("pattern")
            .and_then(Value::as_str)
            .filter(|it| !it.is_empty());
        Checks {
            format: schema
                .get("format")
                .and_then(Value::as_str)
                .and_then(|name| Format::parse(name, node.kind.filter(|_| !node.int_or_string))),
            maximum: number("maximum"),
            exclusive_maximum: flag("exclusiveMaximum"),
            minimum: number("minimum"),
            exclusive_minimum: flag("exclusiveMinimum"),
            multiple_of: number("multipleOf"),
            max_length: count("maxLength"),
            min_length: count("minLength"),
            pattern: pattern.map(|text| {
                let shared = self.patterns.entry(text.to_owned());
                Arc::clone(shared.or_insert_with(|| Arc::new(Pattern::new(text))))
            }),
            max_items: count("maxItems"),
            min_items: count("minItems"),
            max_properties: count("maxProperties"),
            min_properties: count("minProperties"),
            required: strings(schema.get("required")),
            allowed: schema
                .get("enum")
                .and_then(Value::as_array)
                .cloned()
                .unwrap_or_default(),
            all_of: self.nodes(schema.get("allOf")),
            any_of: self.nodes(schema.get("anyOf")),
            one_of: self.nodes(schema.get("oneOf")),
            not: schema
                .get("not")
                .filter(|it| it.is_object())
                .map(|it| Box::new(self.node(it))),
        }
    }

    fn nodes(&mut self, list: Option<&Value>) -> Vec<Structural> {
        let list = list.and_then(Value::as_array).into_iter().flatten();
        list.map(|it| self.node(it)).collect()
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

/// The strings of a list.
pub(super) fn strings(list: Option<&Value>) -> Vec<String> {
    let list = list.and_then(Value::as_array).into_iter().flatten();
    list.filter_map(Value::as_str).map(str::to_owned).collect()
}
