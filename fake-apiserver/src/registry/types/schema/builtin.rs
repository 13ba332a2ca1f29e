//! Accessors for the types of the built-in resources in the generated tables.

use super::table::{FIELDS, KINDS, SHAPES, STRUCTS, UNSERVED};
use super::{Form, ListKeys, ListType, PatchStrategy, Unset};
use crate::api::json::Value;
use crate::api::kubernetes_version::KubernetesVersion;

/// The type of a value in the API: a row of the generated table [`SHAPES`].
#[derive(Debug)]
pub(crate) struct Shape {
    kind: Kind,
    flags: u8,
    list: ListType<'static>,
    patch: PatchStrategy,
    go_type: &'static str,
}

/// The type of a value. The numbers are indices into the generated tables: [`STRUCTS`] for structs, and [`SHAPES`] for
/// items of lists, values of maps, and schemas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A string.
    String,
    /// `true` or `false`.
    Bool,
    /// A 32-bit integer.
    Int32,
    /// A 64-bit integer.
    Int64,
    /// A floating-point number.
    Float64,
    /// Bytes in base64.
    Bytes,
    /// An amount such as `100m`; see [`Quantity`](crate::registry::types::quantity::Quantity).
    Quantity,
    /// A 32-bit integer or a string.
    IntOrString,
    /// A time in whole seconds.
    Time,
    /// A time in microseconds.
    MicroTime,
    /// Any object, kept unchanged (`runtime.RawExtension`, `metav1.FieldsV1`).
    Raw,
    /// Any JSON value, kept unchanged.
    Json,
    /// A schema of a CRD or a list of such schemas.
    SchemaOrArray(u16),
    /// A schema of a CRD or a bool.
    SchemaOrBool(u16),
    /// A schema of a CRD or a list of strings.
    SchemaOrStrings(u16),
    /// A list.
    List(u16),
    /// A map with arbitrary keys.
    Map(u16),
    /// An object with declared fields.
    Struct(u16),
}

/// A struct type.
#[derive(Debug)]
pub(crate) struct StructType {
    name: &'static str,
    definition: &'static str,
    start: u16,
    len: u16,
    key_defaults: &'static [(&'static str, &'static str)],
}

/// A field of a struct.
#[derive(Debug)]
pub(crate) struct Field {
    name: &'static str,
    shape: u16,
    flags: u8,
    /// The path of field numbers in the protobuf message, one byte each. The last byte is the number in the innermost
    /// message.
    protobuf: u32,
    /// The field's position in the Go struct.
    place: u8,
    /// The Go structs from which the field is inlined, such as `RuleWithOperations.Rule`; usually empty.
    via: &'static str,
}

// Flags of a shape.
pub(super) const ATOMIC: u8 = 1;
pub(super) const WRAPPED: u8 = 2;
// Flags of a field.
pub(super) const REQUIRED: u8 = 1;
pub(super) const POINTER: u8 = 2;
pub(super) const OMIT_EMPTY: u8 = 4;
pub(super) const OMIT_ZERO: u8 = 8;
pub(super) const GATED: u8 = 16;

// Constants and functions for the rows of the generated tables.
pub(super) const NO_LIST: ListType<'static> = ListType::Atomic;
pub(super) const NO_PATCH: PatchStrategy = patch(false, false, false, None);

pub(super) const fn shape(
    kind: Kind,
    flags: u8,
    list: ListType<'static>,
    patch: PatchStrategy,
    go_type: &'static str,
) -> Shape {
    Shape {
        kind,
        flags,
        list,
        patch,
        go_type,
    }
}

pub(super) const fn patch(
    merge: bool,
    retain_keys: bool,
    replace: bool,
    merge_key: Option<&'static str>,
) -> PatchStrategy {
    PatchStrategy {
        merge,
        retain_keys,
        replace,
        merge_key,
    }
}

pub(super) const fn keys(names: &'static [&'static str]) -> ListType<'static> {
    ListType::Map(ListKeys::Static(names))
}

pub(super) const fn structure(
    name: &'static str,
    definition: &'static str,
    start: u16,
    len: u16,
    key_defaults: &'static [(&'static str, &'static str)],
) -> StructType {
    StructType {
        name,
        definition,
        start,
        len,
        key_defaults,
    }
}

pub(super) const fn field(name: &'static str, shape: u16, flags: u8, protobuf: u32, place: u8) -> Field {
    inlined(name, shape, flags, protobuf, place, "")
}

pub(super) const fn inlined(
    name: &'static str,
    shape: u16,
    flags: u8,
    protobuf: u32,
    place: u8,
    via: &'static str,
) -> Field {
    Field {
        name,
        shape,
        flags,
        protobuf,
        place,
        via,
    }
}

/// Returns `true` if a kind is registered in a version that is not served.
pub(crate) fn is_unserved(group: &str, version: &str, kind: &str) -> bool {
    UNSERVED.binary_search(&(group, version, kind)).is_ok()
}

/// Returns the shape of the objects of a built-in kind in a version of Kubernetes.
pub(crate) fn shape_in(of: KubernetesVersion, group: &str, version: &str, kind: &str) -> Option<&'static Shape> {
    let after = KINDS.partition_point(|row| (row.0, row.1, row.2, row.3) <= (group, version, kind, of));
    let row = &KINDS[after.checked_sub(1)?];
    if (row.0, row.1, row.2) != (group, version, kind) {
        return None;
    }
    SHAPES.get(usize::from(row.4))
}

/// Returns the shape of the objects of a built-in kind in the newest version of Kubernetes, for code that does not
/// depend on a version. The newest version has the fields of all versions except for a few alpha fields.
pub(crate) fn shape_of(group: &str, version: &str, kind: &str) -> Option<&'static Shape> {
    shape_in(KubernetesVersion::V1_37, group, version, kind)
}

/// Returns the shape of `metadata`, which is the same in all kinds, including custom resources.
pub(crate) fn object_meta() -> Option<&'static Shape> {
    static META: std::sync::OnceLock<Option<&'static Shape>> = std::sync::OnceLock::new();
    *META.get_or_init(|| shape_of("", "v1", "ConfigMap")?.field("metadata"))
}

/// A traversal of the fields of a struct in the order of their names.
#[derive(Debug)]
pub(crate) struct FieldsInOrder {
    rest: &'static [Field],
}

impl FieldsInOrder {
    /// Finds a field. Must be called in ascending order of names.
    pub(crate) fn find(&mut self, name: &str) -> Option<&'static Field> {
        // Names further away are found with a binary search, because most objects only have a few fields of their type.
        const NEAR: usize = 4;
        let mut at = 0;
        while at < NEAR && at < self.rest.len() {
            let field = &self.rest[at];
            at += 1;
            if field.name.len() == name.len() && field.name == name {
                self.rest = &self.rest[at..];
                return Some(field);
            }
        }
        let at = self.rest.binary_search_by(|field| field.name.cmp(name));
        let (found, next) = match at {
            Ok(at) => (self.rest.get(at), at + 1),
            Err(at) => (None, at),
        };
        self.rest = &self.rest[next..];
        found
    }
}

impl StructType {
    /// Returns the name of the Go type, such as `PodSpec`, which errors of Go's decoder contain.
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the name of the OpenAPI definition, such as `io.k8s.api.core.v1.PodSpec`.
    pub(crate) fn definition(&self) -> &'static str {
        self.definition
    }

    /// Returns the fields, sorted by name.
    pub(crate) fn fields(&self) -> &'static [Field] {
        let start = usize::from(self.start);
        FIELDS.get(start..start + usize::from(self.len)).unwrap_or_default()
    }

    /// Returns the field with this name.
    pub(crate) fn field(&self, name: &str) -> Option<&'static Field> {
        let fields = self.fields();
        let at = fields.binary_search_by(|field| field.name.cmp(name)).ok()?;
        Some(&fields[at])
    }

    /// Returns the fields in the order of their names, for a traversal in parallel to an object.
    pub(crate) fn fields_in_order(&self) -> FieldsInOrder {
        FieldsInOrder { rest: self.fields() }
    }
}

impl Field {
    /// Returns the JSON name of the field.
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the field's position in the Go struct, including inlined structs.
    pub(crate) fn place(&self) -> u8 {
        self.place
    }

    /// Returns the type of the field's value.
    pub(crate) fn shape(&self) -> &'static Shape {
        &SHAPES[usize::from(self.shape)]
    }

    /// Returns the Go structs from which the field is inlined, as in Go's errors (`RuleWithOperations.Rule`). Empty for
    /// most fields.
    pub(crate) fn via(&self) -> &'static str {
        self.via
    }

    /// Returns the field's number in the protobuf message at `prefix`, and a flag that is unset if the field is in an
    /// inlined struct, which is a separate message. Returns `None` for a field outside of the message at `prefix`.
    pub(crate) fn protobuf(&self, prefix: u32) -> Option<(u8, bool)> {
        let len = |path: u32| 4 - path.leading_zeros() / 8;
        let deeper = len(self.protobuf).checked_sub(len(prefix)).filter(|&it| it > 0)?;
        if self.protobuf.checked_shr(8 * deeper).unwrap_or(0) != prefix {
            return None;
        }
        let [.., number] = (self.protobuf >> (8 * (deeper - 1))).to_be_bytes();
        Some((number, deeper == 1))
    }

    /// Returns the value that Go's encoder writes if the field is unset.
    pub(crate) fn unset(&self) -> Unset {
        let kind = self.shape().kind;
        // `omitempty` never omits a struct, even if the struct encodes itself as a string or a number.
        let is_struct = matches!(
            kind,
            Kind::Struct(_) | Kind::Quantity | Kind::IntOrString | Kind::Time | Kind::MicroTime | Kind::Raw
        );
        if self.omits_zero() || (self.omits_empty() && (self.is_pointer() || !is_struct)) {
            return Unset::Absent;
        }
        let is_nil = matches!(
            kind,
            Kind::List(_) | Kind::Map(_) | Kind::Bytes | Kind::Raw | Kind::Json
        );
        if self.is_pointer() || is_nil {
            Unset::Null
        } else {
            Unset::Zero
        }
    }

    /// Returns `true` if the Go field is a pointer, so that a zero value is kept.
    pub(crate) fn is_pointer(&self) -> bool {
        self.flags & POINTER != 0
    }

    /// Returns `true` if the Go field has `omitempty`.
    pub(crate) fn omits_empty(&self) -> bool {
        self.flags & OMIT_EMPTY != 0
    }

    /// Returns `true` if the field depends on a feature gate that is disabled in this version of Kubernetes, but not in
    /// the default version. The strategies of kinds handle fields with gates that are disabled in both.
    pub(crate) fn is_gated(&self) -> bool {
        self.flags & GATED != 0
    }

    /// Returns `true` if the Go field has `omitzero`.
    pub(crate) fn omits_zero(&self) -> bool {
        self.flags & OMIT_ZERO != 0
    }
}

impl Shape {
    /// Returns the type of the value.
    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the type as Go prints it, such as `map[string]string`.
    pub(crate) fn go_type(&self) -> &'static str {
        self.go_type
    }

    /// Returns the struct type, if the value is a struct.
    pub(crate) fn structure(&self) -> Option<&'static StructType> {
        match self.kind {
            Kind::Struct(index) => Some(&STRUCTS[usize::from(index)]),
            _ => None,
        }
    }

    /// Returns the shape of the field or map entry `name`.
    pub(crate) fn field(&'static self, name: &str) -> Option<&'static Shape> {
        match self.kind {
            Kind::Struct(index) => STRUCTS[usize::from(index)].field(name).map(Field::shape),
            Kind::Map(index) => SHAPES.get(usize::from(index)),
            _ => None,
        }
    }

    /// Returns the value that Go's encoder writes for the unset field `name`.
    pub(crate) fn unset(&self, name: &str) -> Unset {
        let field = self.structure().and_then(|it| it.field(name));
        field.map_or(Unset::Absent, Field::unset)
    }

    /// Returns `true` if the struct has the field `name`; `false` for an entry of a map.
    pub(crate) fn declares(&self, name: &str) -> bool {
        self.structure().is_some_and(|it| it.field(name).is_some())
    }

    /// Returns the form of this value for server-side apply.
    pub(crate) fn form(&self) -> Form {
        match self.kind {
            Kind::String | Kind::Bytes => Form::String,
            Kind::Bool => Form::Boolean,
            Kind::Int32 | Kind::Int64 | Kind::Float64 => Form::Numeric,
            Kind::Quantity | Kind::Time | Kind::MicroTime => Form::Scalar,
            // Server-side apply treats values of these types as untyped.
            Kind::IntOrString
            | Kind::Raw
            | Kind::Json
            | Kind::SchemaOrArray(_)
            | Kind::SchemaOrBool(_)
            | Kind::SchemaOrStrings(_) => Form::Any,
            Kind::List(_) => Form::List,
            // A published schema without properties permits any value.
            Kind::Struct(_) if self.structure().is_some_and(|it| it.fields().is_empty()) => Form::Any,
            Kind::Map(_) | Kind::Struct(_) => Form::Map,
        }
    }

    /// Returns `true` if objects of this type are atomic: they have one owner and are replaced as a whole.
    pub(crate) fn is_atomic_map(&self) -> bool {
        self.flags & ATOMIC != 0
    }

    /// Returns `true` if a list is a separate message in protobuf.
    pub(crate) fn is_wrapped(&self) -> bool {
        self.flags & WRAPPED != 0
    }

    /// Returns the shape of a list's items.
    pub(crate) fn items(&'static self) -> Option<&'static Shape> {
        match self.kind {
            Kind::List(index) => SHAPES.get(usize::from(index)),
            _ => None,
        }
    }

    /// Returns the shape of a map's values.
    pub(crate) fn values(&'static self) -> Option<&'static Shape> {
        match self.kind {
            Kind::Map(index) => SHAPES.get(usize::from(index)),
            _ => None,
        }
    }

    /// Returns the shape of the schema, for a type that is either a schema or another value.
    pub(crate) fn alternative(&self) -> Option<&'static Shape> {
        match self.kind {
            Kind::SchemaOrArray(index) | Kind::SchemaOrBool(index) | Kind::SchemaOrStrings(index) => {
                SHAPES.get(usize::from(index))
            }
            _ => None,
        }
    }

    /// Returns the list type, which determines how apply merges lists.
    pub(crate) fn list_type(&self) -> ListType<'static> {
        self.list
    }

    /// Returns the default of the key field `key` of this list's items. The default of a field that Go always writes is
    /// its zero value.
    pub(crate) fn key_default(&'static self, key: &str) -> Option<Value> {
        let item = self.items()?;
        let structure = item.structure()?;
        if let Some((_, text)) = structure.key_defaults.iter().find(|(name, _)| *name == key) {
            return Some(Value::from(*text));
        }
        match (item.unset(key), item.field(key)?.kind) {
            (Unset::Zero, Kind::String) => Some(Value::from("")),
            (Unset::Zero, Kind::Int32 | Kind::Int64) => Some(Value::from(0)),
            _ => None,
        }
    }

    /// Returns how strategic merge patches treat the value.
    pub(crate) fn patch_strategy(&self) -> PatchStrategy {
        self.patch
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::types::schema::served::builtins;

    #[test]
    fn tables_of_built_in_types_are_sorted_and_complete() {
        assert!(KINDS.is_sorted_by_key(|row| (row.0, row.1, row.2, row.3)));
        for structure in &STRUCTS {
            assert!(structure.fields().is_sorted_by_key(Field::name), "{}", structure.name);
            for field in structure.fields() {
                assert!(structure.field(field.name).is_some());
                assert!(usize::from(field.shape) < SHAPES.len());
            }
        }
        for of in KubernetesVersion::ALL {
            for row in builtins(of) {
                assert!(
                    shape_in(of, &row.group, &row.version, &row.kind).is_some(),
                    "{}",
                    row.kind
                );
                for sub in row.subresources.iter() {
                    assert!(
                        shape_in(of, &sub.group, &sub.version, &sub.kind).is_some(),
                        "{}",
                        sub.kind
                    );
                }
            }
        }
    }

    #[test]
    fn container_ports_are_keyed_by_port_and_protocol() {
        let pod = shape_of("", "v1", "Pod").expect("the kind is built in");
        let ports = ["spec", "containers"]
            .iter()
            .try_fold(pod, |shape, name| shape.field(name))
            .and_then(Shape::items)
            .and_then(|item| item.field("ports"))
            .expect("the field exists");
        assert_eq!(ports.list_type(), keys(&["containerPort", "protocol"]));
        assert_eq!(ports.key_default("protocol"), Some("TCP".into()));
        assert_eq!(ports.patch_strategy(), patch(true, false, false, Some("containerPort")));
    }

    #[test]
    fn struct_fields_are_found_in_order() {
        for structure in &STRUCTS {
            let names: Vec<&str> = structure.fields().iter().map(|it| it.name).collect();
            // Every `step`-th name, each with an undeclared name before and after it.
            for step in 1..4 {
                let mut walk = structure.fields_in_order();
                for name in names.iter().step_by(step) {
                    assert!(
                        walk.find(&name[..name.len() - 1])
                            .is_none_or(|it| it.name.len() < name.len())
                    );
                    assert_eq!(walk.find(name).map(|it| it.name), Some(*name), "{}", structure.name);
                    assert!(walk.find(&format!("{name}\u{1}")).is_none());
                }
            }
        }
    }
}
