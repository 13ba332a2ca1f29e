//! Schemas of values for built-in kinds and CRDs: fields, list types, map keys and patch strategies.

use crate::api::json::Value;

pub(crate) mod builtin;
mod custom;
mod resources;
pub(crate) mod optional;
pub(crate) mod served;
mod table;
mod walk;

pub(crate) use custom::CustomSchema;
pub(crate) use walk::FieldWalk;

/// The type of a JSON value: a common interface to built-in types, which are defined in the generated table, and to the
/// structural schemas of CRDs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SchemaRef<'a> {
    /// A node of the generated table.
    Builtin(&'static builtin::Shape),
    /// A node of a CRD's schema.
    Custom(&'a dyn CustomSchema),
    /// No schema. Maps are granular, and lists are atomic (rule H11).
    Deduced,
}

/// List type for merging by server-side apply (rule H11).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListType<'a> {
    /// A list that has one owner and is replaced as a whole.
    Atomic,
    /// A set of scalars.
    Set,
    /// A list of objects that are identified by these fields.
    Map(ListKeys<'a>),
}

/// The key fields of a list of the type `map`, in the order in which they are encoded in `k:{…}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListKeys<'a> {
    /// Key fields of a built-in type.
    Static(&'static [&'static str]),
    /// Key fields of a CRD.
    Owned(&'a [String]),
}

/// Value that Go's encoder writes for an unset field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unset {
    /// Go omits the field.
    Absent,
    /// Go writes `null`.
    Null,
    /// Go writes the zero value of the type.
    Zero,
}

/// The kinds of values that server-side apply distinguishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Any value.
    Any,
    /// An object.
    Map,
    /// A list.
    List,
    /// A string.
    String,
    /// A number.
    Numeric,
    /// `true` or `false`.
    Boolean,
    /// Any string, number or bool.
    Scalar,
}

/// Options of a list or object in strategic merge patches (rules G4 to G6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PatchStrategy {
    /// `merge`: items are merged by `merge_key`, or as a set if the key is unset.
    pub(crate) merge: bool,
    /// `retainKeys`: the patch may contain a list of the keys to keep.
    pub(crate) retain_keys: bool,
    /// `replace`: an object is replaced as a whole.
    pub(crate) replace: bool,
    /// The field that identifies an item.
    pub(crate) merge_key: Option<&'static str>,
}

impl<'a> ListKeys<'a> {
    /// Returns the names of the key fields.
    pub(crate) fn iter(self) -> impl Iterator<Item = &'a str> {
        let (fixed, owned): (&'static [&'static str], &'a [String]) = match self {
            ListKeys::Static(keys) => (keys, &[]),
            ListKeys::Owned(keys) => (&[], keys),
        };
        fixed.iter().copied().chain(owned.iter().map(String::as_str))
    }
}

impl<'a> SchemaRef<'a> {
    /// Returns the fields, for a traversal in parallel to an object.
    pub(crate) fn walk(self) -> FieldWalk<'a> {
        match self {
            SchemaRef::Builtin(shape) => match shape.structure() {
                Some(structure) => FieldWalk::Struct(structure.fields_in_order()),
                None => FieldWalk::Named(self),
            },
            SchemaRef::Custom(node) => FieldWalk::Custom(node, 0),
            SchemaRef::Deduced => FieldWalk::Named(self),
        }
    }

    /// Returns the type of the field or map entry `name` of an object; `None` if the schema does not declare it.
    pub(crate) fn field(self, name: &str) -> Option<SchemaRef<'a>> {
        match self {
            SchemaRef::Builtin(shape) => shape.field(name).map(SchemaRef::Builtin),
            SchemaRef::Custom(node) => node.field(name),
            SchemaRef::Deduced => Some(SchemaRef::Deduced),
        }
    }

    /// Returns the value that Go's encoder writes for the unset field `name`. A field that is always written is never
    /// added or removed; only its value changes.
    pub(crate) fn unset(self, name: &str) -> Unset {
        match self {
            SchemaRef::Builtin(shape) => shape.unset(name),
            SchemaRef::Custom(_) | SchemaRef::Deduced => Unset::Absent,
        }
    }

    /// Returns the form of this value for server-side apply.
    pub(crate) fn form(self) -> Form {
        match self {
            SchemaRef::Builtin(shape) => shape.form(),
            SchemaRef::Custom(node) => node.form(),
            SchemaRef::Deduced => Form::Any,
        }
    }

    /// Returns `true` if the type declares the field `name`; `false` for an entry of a map.
    pub(crate) fn declares(self, name: &str) -> bool {
        match self {
            SchemaRef::Builtin(shape) => shape.declares(name),
            SchemaRef::Custom(node) => node.declares(name),
            SchemaRef::Deduced => false,
        }
    }

    /// Returns `true` if objects of this type have one owner and are replaced as a whole (`x-kubernetes-map-type:
    /// atomic`).
    pub(crate) fn is_atomic_map(self) -> bool {
        match self {
            SchemaRef::Builtin(shape) => shape.is_atomic_map(),
            SchemaRef::Custom(node) => node.is_atomic_map(),
            SchemaRef::Deduced => false,
        }
    }

    /// Returns `true` if lists or objects of this type have one owner and are replaced as a whole.
    pub(crate) fn is_atomic(self) -> bool {
        match self.form() {
            Form::Map => self.is_atomic_map(),
            Form::List => self.list_type() == ListType::Atomic,
            Form::Any | Form::String | Form::Numeric | Form::Boolean | Form::Scalar => false,
        }
    }

    /// Returns the type of a list's items.
    pub(crate) fn items(self) -> SchemaRef<'a> {
        match self {
            SchemaRef::Builtin(shape) => shape.items().map_or(SchemaRef::Deduced, SchemaRef::Builtin),
            SchemaRef::Custom(node) => node.items(),
            SchemaRef::Deduced => SchemaRef::Deduced,
        }
    }

    /// Returns the list type, which determines how apply merges lists.
    pub(crate) fn list_type(self) -> ListType<'a> {
        match self {
            SchemaRef::Builtin(shape) => shape.list_type(),
            SchemaRef::Custom(node) => node.list_type(),
            SchemaRef::Deduced => ListType::Atomic,
        }
    }

    /// Returns the default of a key field of a list's items, such as `protocol: TCP` of a container port.
    pub(crate) fn key_default(self, key: &str) -> Option<Value> {
        match self {
            SchemaRef::Builtin(shape) => shape.key_default(key),
            SchemaRef::Custom(node) => node.key_default(key),
            SchemaRef::Deduced => None,
        }
    }

    /// Returns the patch strategy for strategic merge patches. Custom resources do not have one (rule G4).
    pub(crate) fn patch_strategy(self) -> PatchStrategy {
        match self {
            SchemaRef::Builtin(shape) => shape.patch_strategy(),
            SchemaRef::Custom(_) | SchemaRef::Deduced => PatchStrategy::default(),
        }
    }
}
