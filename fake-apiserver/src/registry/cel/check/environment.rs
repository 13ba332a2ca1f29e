//! `Environment`: the variables, types and fields available to an expression. Functions are in `declarations`.

use std::collections::BTreeMap;

use super::declarations::Overload;
use super::types::{StructType, Type};
use crate::api::kubernetes_version::KubernetesVersion;
use crate::registry::cel::syntax::Dialect;

/// Variables and types available to an expression.
#[derive(Clone, Debug)]
pub(crate) struct Environment {
    variables: BTreeMap<String, Type>,
    structs: Vec<StructType>,
    /// Set if expressions may create objects and patches, as in MutatingAdmissionPolicies.
    pub(crate) mutates: bool,
    /// Set if the expressions are selectors of devices.
    pub(crate) is_of_devices: bool,
    /// Minor version of Kubernetes that determines the available libraries.
    minor: u8,
}

impl Environment {
    /// Creates an environment without variables, for new expressions in a version of Kubernetes.
    pub(crate) fn new(version: KubernetesVersion) -> Self {
        Self {
            variables: BTreeMap::new(),
            structs: Vec::new(),
            mutates: false,
            is_of_devices: false,
            minor: version.min_compatibility(),
        }
    }

    /// Makes the libraries of all versions available. This is used for stored expressions.
    #[must_use]
    pub(crate) fn of_stored(mut self) -> Self {
        self.minor = u8::MAX;
        self
    }

    /// Declares a variable, replacing an earlier one of the same name.
    pub(crate) fn declare(&mut self, name: &str, kind: Type) {
        if let Type::Struct(declared) = &kind
            && !self.structs.iter().any(|it| it.is_same(declared))
        {
            self.structs.push(declared.clone());
        }
        self.variables.insert(name.to_owned(), kind);
    }

    /// Removes a variable.
    pub(crate) fn remove(&mut self, name: &str) {
        self.variables.remove(name);
    }

    /// Returns the dialect of the expressions.
    pub(crate) fn dialect(&self) -> Dialect {
        Dialect {
            binds: self.is_of_devices,
            libraries: self.minor,
        }
    }

    /// Returns `true` if the overload of the function is available.
    pub(super) fn has(&self, name: &str, overload: &Overload) -> bool {
        overload.since <= self.minor && (self.mutates || !name.starts_with("jsonpatch."))
    }

    /// Returns the type of a variable or of a type name. Both may contain dots.
    pub(super) fn find(&self, name: &str) -> Option<Type> {
        self.variables
            .get(name)
            .cloned()
            .or_else(|| type_named(name).map(Type::of_type))
            .or_else(|| self.struct_named(name).map(|it| Type::Struct(it).of_type()))
    }

    fn struct_named(&self, name: &str) -> Option<StructType> {
        if self.mutates && name == "JSONPatch" {
            return Some(StructType::Patch);
        }
        if self.mutates && (name == "Object" || name.starts_with("Object.")) {
            return Some(StructType::Part(name.into()));
        }
        self.structs.iter().find(|it| it.name() == name).cloned()
    }
}

/// Returns the type with this name at run time.
fn type_named(name: &str) -> Option<Type> {
    let any_list = || Type::list(Type::Dyn);
    Some(match name {
        "bool" => Type::Bool,
        "bytes" => Type::Bytes,
        "double" => Type::Double,
        "duration" | "google.protobuf.Duration" => Type::Duration,
        "int" => Type::Int,
        "list" | "google.protobuf.ListValue" => any_list(),
        "map" => Type::map(Type::Dyn, Type::Dyn),
        "google.protobuf.Struct" => Type::map(Type::String, Type::Dyn),
        "null_type" | "google.protobuf.NullValue" => Type::Null,
        "string" => Type::String,
        "timestamp" | "google.protobuf.Timestamp" => Type::Timestamp,
        "type" => Type::Type(None),
        "uint" => Type::Uint,
        "optional_type" => Type::optional(Type::Dyn),
        "google.protobuf.Any"
        | "google.protobuf.Value"
        | "google.protobuf.BoolValue"
        | "google.protobuf.BytesValue"
        | "google.protobuf.DoubleValue"
        | "google.protobuf.FloatValue"
        | "google.protobuf.Int32Value"
        | "google.protobuf.Int64Value"
        | "google.protobuf.StringValue"
        | "google.protobuf.UInt32Value"
        | "google.protobuf.UInt64Value" => Type::Dyn,
        "kubernetes.NamedFormat"
        | "kubernetes.Quantity"
        | "kubernetes.Semver"
        | "kubernetes.URL"
        | "net.IP"
        | "net.CIDR" => Type::opaque(name),
        _ => return None,
    })
}
