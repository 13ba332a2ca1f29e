//! `Row`: one served resource in one version.

use std::borrow::Cow;
use std::sync::Arc;

use super::builtins;
use crate::api::json::{Map, Value};
use crate::api::kubernetes_version::KubernetesVersion;
use crate::api::object::Object;
use crate::api::resource::{GroupKind, ResourceInfo};
use crate::registry::custom::conversion::Conversion;
use crate::registry::custom::decode;
use crate::registry::custom::definition::{CustomResource, CustomVersion};
use crate::registry::custom::strategy::CustomStrategy;
use crate::registry::kinds::metadata_checks::{MetadataChecks, metadata_checks};
use crate::registry::kinds::pod::gates;
use crate::registry::kinds::reset_fields;
use crate::registry::kinds::strategy::Strategy;
use crate::registry::types::decode as decode_builtin;
use crate::registry::types::gated;
use crate::registry::types::no_version::NoVersion;
use crate::registry::types::schema::optional::OptionalResource;
use crate::registry::types::schema::{SchemaRef, Unset, builtin};

/// One served resource in one version, with its type and strategy.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// Names, scope and verbs of the resource, as in discovery.
    pub(crate) info: ResourceInfo,
    /// `info.api_version()`, computed once.
    pub(crate) api_version: Box<str>,
    /// Storage name of the resource, which all its versions share.
    pub(crate) storage: Arc<str>,
    /// Prefix of an encoded object: `{"kind":"Pod","apiVersion":"v1","metadata":{`.
    pub(crate) head: Arc<str>,
    /// Set if stored objects are returned unchanged, because they have the fields of this version and conform to the
    /// current schema.
    pub(crate) is_as_stored: bool,
    /// Set for the version in which stored objects are read by default: the storage version, or else the first served
    /// version.
    pub(crate) is_storage_version: bool,
    /// The `apiVersion` in which a built-in kind is stored, if the kind has several versions.
    stored_api_version: Option<Box<str>>,
    /// The type of stored objects, if this version is off by default and its fields differ from the fields of the
    /// stored version.
    stored_shape: Option<&'static builtin::Shape>,
    /// Set for a version of a built-in API that is off by default.
    is_off_by_default: bool,
    /// Warning about a version of a built-in API that is deprecated or will be deprecated.
    lifecycle: Option<Box<str>>,
    kind: Kind,
}

#[derive(Clone)]
enum Kind {
    Builtin {
        version: KubernetesVersion,
        shape: Option<&'static builtin::Shape>,
        strategy: &'static dyn Strategy,
    },
    Custom(Box<Custom>),
}

/// A version of a custom resource.
#[derive(Clone)]
struct Custom {
    resource: Arc<CustomResource>,
    strategy: CustomStrategy,
}

impl std::fmt::Debug for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Kind::Builtin { .. } => "Builtin",
            Kind::Custom(_) => "Custom",
        })
    }
}

impl Row {
    pub(super) fn builtin(version: KubernetesVersion, info: &ResourceInfo) -> Self {
        let strategy = builtins::strategy_in(version, &info.group, &info.resource);
        let shape = builtin::shape_in(version, &info.group, &info.version, &info.kind);
        let stored = strategy.facts().stored_api_version;
        let is_storage_version = stored.is_none_or(|it| it == info.api_version());
        let kind = Kind::Builtin {
            version,
            shape,
            strategy,
        };
        Self {
            stored_api_version: stored.map(Into::into),
            ..Self::new(info.clone(), is_storage_version, is_storage_version, kind)
        }
    }

    /// Creates a row for a version that is off by default. Stored objects do not contain their version, so versions
    /// with the same fields return them unchanged.
    pub(super) fn optional(version: KubernetesVersion, it: &OptionalResource) -> Self {
        let info = &it.info;
        let kind = Kind::Builtin {
            version,
            shape: builtin::shape_in(version, &info.group, it.types, &info.kind),
            strategy: builtins::strategy_in(version, &info.group, &info.resource),
        };
        let is_as_stored = it.off.form == it.types;
        let is_deprecated = !it.off.lifecycle.is_empty();
        let lifecycle = is_deprecated.then(|| format!("{} {} is {}", info.api_version(), info.kind, it.off.lifecycle));
        let stored_shape = builtin::shape_in(version, &info.group, it.off.form, &info.kind);
        Self {
            stored_api_version: Some(format!("{}/{}", info.group, it.off.form).into()),
            stored_shape: stored_shape.filter(|_| !is_as_stored),
            lifecycle: lifecycle.map(Into::into),
            is_off_by_default: true,
            ..Self::new(info.clone(), is_as_stored, false, kind)
        }
    }

    /// Returns `true` for a version that is off by default.
    pub(super) fn is_optional(&self) -> bool {
        self.is_off_by_default
    }

    /// Returns the warning for every request of a deprecated version or kind (rules O13, U5).
    pub(crate) fn deprecation(&self) -> Option<&str> {
        let version = self.custom_version().and_then(|it| it.deprecation.as_deref());
        let of_kind = || match self.is_custom() {
            true => None,
            false => self.strategy().facts().deprecation,
        };
        version.or(self.lifecycle.as_deref()).or_else(of_kind)
    }

    /// Returns a copy of the row that shows this storage version in discovery.
    pub(super) fn shown_as_stored_in(&self, version: &str) -> Self {
        let mut row = self.clone();
        row.info.stored_version = Some(version.to_owned().into());
        row
    }

    /// Returns a copy of the row that is marked as the version in which stored objects are read.
    pub(super) fn to_storage_version(&self) -> Self {
        Self {
            is_storage_version: true,
            ..self.clone()
        }
    }

    /// Creates a row for a version of a CRD.
    pub(crate) fn custom(resource: Arc<CustomResource>, version: Arc<CustomVersion>) -> Self {
        // An object is pruned and defaulted when it is read, if it has a different version or was written with an older
        // schema (rule O5).
        let stored = &resource.storage.row.version;
        let is_stored_version = *stored == version.row.version;
        let is_as_stored = is_stored_version && !resource.has_changed;
        let is_storage_version = match resource.serves_storage {
            true => is_stored_version,
            false => resource.served.first().is_none_or(|it| Arc::ptr_eq(it, &version)),
        };
        let info = version.row.clone();
        let strategy = CustomStrategy { version };
        Self::new(
            info,
            is_as_stored,
            is_storage_version,
            Kind::Custom(Box::new(Custom { resource, strategy })),
        )
    }

    fn new(info: ResourceInfo, is_as_stored: bool, is_storage_version: bool, kind: Kind) -> Self {
        let api_version = info.api_version();
        // Fields of custom objects are sorted; fields of built-in objects have the order of Go's structs.
        let head = match &kind {
            Kind::Builtin { .. } => format!("{{\"kind\":\"{}\",\"apiVersion\":\"{api_version}\"", info.kind),
            Kind::Custom(_) => format!("{{\"apiVersion\":\"{api_version}\",\"kind\":\"{}\"", info.kind),
        };
        let head = format!("{head},\"metadata\":{{");
        let shared = match &kind {
            Kind::Builtin { strategy, .. } => strategy.facts().stored_as,
            Kind::Custom(_) => None,
        };
        let storage = match shared.unwrap_or((&*info.group, &*info.resource)) {
            ("", resource) => resource.into(),
            (group, resource) => format!("{group}/{resource}").into(),
        };
        Self {
            api_version: api_version.into(),
            head: head.into(),
            storage,
            is_as_stored,
            is_storage_version,
            stored_api_version: None,
            stored_shape: None,
            lifecycle: None,
            is_off_by_default: false,
            kind,
            info,
        }
    }

    /// Returns the strategy of the kind.
    pub(crate) fn strategy(&self) -> &dyn Strategy {
        match &self.kind {
            Kind::Builtin { strategy, .. } => *strategy,
            Kind::Custom(custom) => &custom.strategy,
        }
    }

    /// Returns the field label that replaces a label in a selector.
    ///
    /// Fails with the error message if the resource does not support the label (rules F4 to F9).
    pub(crate) fn field_label(&self, label: String) -> Result<String, String> {
        let Some(version) = self.custom_version() else {
            return self.strategy().facts().fields.resolve(label);
        };
        let is_known = match label.as_str() {
            "metadata.name" => true,
            "metadata.namespace" => self.info.is_namespaced(),
            own => version.selectable.iter().any(|field| field.label == own),
        };
        if is_known {
            Ok(label)
        } else {
            Err(format!("field label not supported: {label}"))
        }
    }

    /// Returns the type of the objects.
    pub(crate) fn schema(&self) -> SchemaRef<'_> {
        match &self.kind {
            Kind::Builtin { shape, .. } => shape.map_or(SchemaRef::Deduced, SchemaRef::Builtin),
            Kind::Custom(custom) => SchemaRef::Custom(&*custom.strategy.version.schema),
        }
    }

    /// Returns the built-in type of the objects; `None` for custom resources.
    pub(crate) fn shape(&self) -> Option<&'static builtin::Shape> {
        match &self.kind {
            Kind::Builtin { shape, .. } => *shape,
            Kind::Custom(_) => None,
        }
    }

    /// Removes the fields of a built-in object that depend on disabled feature gates, before validation.
    pub(crate) fn drop_disabled(&self, object: &mut Object, old: Option<&Object>) {
        let Kind::Builtin { version, shape, .. } = &self.kind else {
            return;
        };
        if let (true, Some(shape)) = (*version != KubernetesVersion::default(), self.stored_shape.or(*shape)) {
            gated::drop_gated(shape, object);
        }
        gates::drop_disabled(*version, (&self.info.group, &self.info.resource), object, old);
    }

    /// Returns the webhook that converts stored objects to this version; `None` if no conversion is required, or if the
    /// CRD does not configure a webhook.
    pub(crate) fn conversion_on_read(&self) -> Option<(&CustomResource, &Conversion)> {
        match &self.kind {
            Kind::Custom(custom) if custom.resource.storage.row.version != self.info.version => {
                Some((&custom.resource, custom.resource.conversion.as_deref()?))
            }
            Kind::Custom(_) | Kind::Builtin { .. } => None,
        }
    }

    /// Returns the row of another version of the same CRD, even if it is not served.
    pub(crate) fn of_version(&self, version: &Arc<CustomVersion>) -> Option<Row> {
        let resource = Arc::clone(self.custom_resource()?);
        Some(Row::custom(resource, Arc::clone(version)))
    }

    /// Returns the version in the CRD; `None` for built-in resources.
    pub(crate) fn custom_version(&self) -> Option<&Arc<CustomVersion>> {
        match &self.kind {
            Kind::Builtin { .. } => None,
            Kind::Custom(custom) => Some(&custom.strategy.version),
        }
    }

    /// Returns the parsed CRD; `None` for built-in resources.
    pub(crate) fn custom_resource(&self) -> Option<&Arc<CustomResource>> {
        match &self.kind {
            Kind::Builtin { .. } => None,
            Kind::Custom(custom) => Some(&custom.resource),
        }
    }

    /// Returns the identity of the CRD from which the row was created; an empty string for built-in resources.
    pub(crate) fn definition(&self) -> &str {
        self.custom_resource().map_or("", |resource| &resource.definition)
    }

    /// Returns the identity of the CRD for watches. If it changes, the watches of the objects end.
    pub(crate) fn served_as(&self) -> &str {
        self.custom_resource().map_or("", |resource| &resource.served_as)
    }

    /// Returns `true` if the resource is defined by a CRD.
    pub(crate) fn is_custom(&self) -> bool {
        self.custom_version().is_some()
    }

    /// Returns `true` if the resource is stored. Reviews and other virtual resources can only be created.
    pub(crate) fn is_stored(&self) -> bool {
        self.info.allows("get")
    }

    /// Converts an object read from storage to this version.
    pub(crate) fn restore(&self, object: &mut Object) {
        match &self.kind {
            Kind::Custom(custom) if !self.is_as_stored => {
                let stored = &custom.resource.storage.row;
                object.insert("kind".into(), stored.kind.as_ref().into());
                object.insert("apiVersion".into(), stored.api_version().into());
                decode::restore(object, &custom.resource, &custom.strategy.version);
            }
            Kind::Custom(_) | Kind::Builtin { .. } => self.show_as_requested(object),
        }
    }

    /// Converts an object to the storage version before it is stored, if necessary. Also returns `true` if the next
    /// write through this version would add defaults of the storage version, which kube-apiserver does not store.
    pub(crate) fn stored_form<'a>(&self, object: &'a Object) -> (Cow<'a, Object>, bool) {
        match &self.kind {
            Kind::Custom(custom) if custom.resource.storage.row.version != self.info.version => {
                let mut object = object.clone();
                let is_completed = decode::to_stored(&mut object, &custom.resource, &custom.strategy.version);
                (Cow::Owned(object), is_completed)
            }
            Kind::Custom(_) | Kind::Builtin { .. } => (Cow::Borrowed(object), false),
        }
    }

    /// Fills in the defaults of fields that were removed after decoding, such as the status of a new custom resource.
    /// In kube-apiserver, `unstructuredDefaulter` does this whenever the object is read (rule O6); here, it is done
    /// before storing. Returns `true` if Go would store the object without such a field.
    pub(crate) fn default_as_read(&self, object: &mut Object) -> bool {
        match &self.kind {
            Kind::Custom(custom) if custom.resource.storage.row.version == self.info.version => {
                let had_status = object.contains_key("status");
                custom.strategy.default(object);
                !had_status && object.contains_key("status")
            }
            // `stored_form` fills in these defaults.
            Kind::Custom(_) => false,
            Kind::Builtin { strategy, .. } => strategy.facts().is_completed_on_read,
        }
    }

    /// Converts an object that is not stored, as if it had been stored and read. Conversion webhooks are not called.
    pub(crate) fn show_unstored(&self, object: &mut Object) {
        if let Kind::Custom(custom) = &self.kind
            && !self.is_as_stored
            && custom.resource.conversion.is_none()
        {
            *object = self.stored_form(object).0.into_owned();
            decode::restore(object, &custom.resource, &custom.strategy.version);
        } else {
            self.show_as_requested(object);
        }
    }

    /// Converts an object of a built-in kind from the version of its strategy to this version. Strategies of built-in
    /// kinds use the storage version; strategies of custom resources use the version of the request.
    pub(crate) fn show_as_requested(&self, object: &mut Object) {
        if let (false, Some(stored)) = (self.is_as_stored, self.stored_api_version.as_deref()) {
            object.insert("apiVersion".into(), stored.into());
            self.strategy().convert(object, &self.api_version);
            if let Some(shape) = self.shape() {
                // Omits empty fields that the other version always contains; the conversion cannot fail.
                let _ = decode_builtin::convert(shape, object);
            }
        }
        self.name_kind(object);
    }

    /// Returns an object in another version of the same resource, and its type in that version.
    ///
    /// Fails if a CRD does not list the version, or if a built-in resource does not have it. For a CRD, the error is
    /// the same as from `crConverter` of k8s.io/apiextensions-apiserver.
    pub(crate) fn in_version<'o>(
        &self,
        object: &'o Object,
        api_version: &str,
    ) -> Result<(SchemaRef<'_>, Cow<'o, Object>), NoVersion> {
        if object.api_version() == api_version && *self.api_version == *api_version {
            return Ok((self.schema(), Cow::Borrowed(object)));
        }
        let mut copy = object.clone();
        match &self.kind {
            Kind::Custom(custom) => {
                let version = custom.resource.in_spec(api_version)?;
                decode::convert_between(&mut copy, &custom.resource, version);
                Ok((SchemaRef::Custom(&*version.schema), Cow::Owned(copy)))
            }
            Kind::Builtin { .. } => self.in_version_for_owners(object, api_version),
        }
    }

    /// Same as `in_version`, for determining field owners. kube-apiserver does not prune in this conversion, so the
    /// result may have fields that the version does not declare.
    pub(crate) fn in_version_for_owners<'o>(
        &self,
        object: &'o Object,
        api_version: &str,
    ) -> Result<(SchemaRef<'_>, Cow<'o, Object>), NoVersion> {
        if object.api_version() == api_version && *self.api_version == *api_version {
            return Ok((self.schema(), Cow::Borrowed(object)));
        }
        let mut copy = object.clone();
        match &self.kind {
            Kind::Custom(custom) => {
                let version = custom.resource.in_spec(api_version)?;
                decode::convert_whole(&mut copy, &custom.resource, version);
                Ok((SchemaRef::Custom(&*version.schema), Cow::Owned(copy)))
            }
            Kind::Builtin { version, .. } => {
                let row = super::Builtins::in_version(*version, &self.storage, api_version);
                let row = row.ok_or(NoVersion::Obsolete)?;
                row.strategy().convert(&mut copy, api_version);
                row.name_kind(&mut copy);
                if let Some(shape) = row.shape() {
                    // Omits empty fields that the other version always contains; the conversion cannot fail.
                    let _ = decode_builtin::convert(shape, &mut copy);
                }
                Ok((row.schema(), Cow::Owned(copy)))
            }
        }
    }

    /// Converts an object of a built-in kind from this version to the version of its strategy.
    pub(crate) fn to_storage(&self, object: &mut Object) {
        if let (false, Some(stored)) = (self.is_as_stored, self.stored_api_version.as_deref()) {
            self.name_kind(object);
            self.strategy().convert(object, stored);
            if let Some(shape) = self.stored_shape {
                // Drops fields that the stored type does not have; the conversion cannot fail.
                let _ = decode_builtin::convert(shape, object);
            }
        }
    }

    /// Returns the status of a new built-in object as Go encodes an empty struct: `{}`, or with the fields that are
    /// never omitted.
    pub(crate) fn empty_status(&self) -> Option<Value> {
        let shape = self.shape()?;
        if shape.unset("status") != Unset::Zero {
            return None;
        }
        let field = shape.field("status")?;
        let mut status = Map::new();
        let _ = decode_builtin::convert(field, &mut status);
        Some(Value::Object(status))
    }

    /// Returns the field paths that a write to the resource or a subresource cannot own, because the write does not
    /// change them (rule H10).
    pub(crate) fn unowned_paths(&self, subresource: &str) -> reset_fields::Paths {
        if self.info.subresource("status").is_none() {
            return &[];
        }
        match subresource {
            "status" if self.is_custom() => &[&["spec"], &["metadata"]],
            _ => reset_fields::reset_fields(&self.info.group, &self.info.resource, subresource),
        }
    }

    /// Normalises empty fields as in storage, after the owners of the fields were determined.
    pub(crate) fn settle(&self, object: &mut Object) {
        if let Some(shape) = self.shape() {
            decode_builtin::settle(shape, object);
        }
    }

    /// Sets `kind` and `apiVersion`.
    pub(crate) fn name_kind(&self, object: &mut Object) {
        object.insert("kind".into(), self.info.kind.as_ref().into());
        object.insert("apiVersion".into(), self.api_version.as_ref().into());
    }

    /// Returns the kind for errors: the kind of the stored type, which Events of both groups share.
    pub(crate) fn typed_kind(&self) -> GroupKind {
        let mut kind = self.info.group_kind();
        if !self.is_custom()
            && let Some((group, _)) = self.strategy().facts().stored_as
        {
            kind.group = group.into();
        }
        kind
    }

    /// Returns the checks of metadata that the kind adds to the checks for all objects.
    pub(crate) fn metadata_checks(&self, subresource: &str) -> MetadataChecks {
        metadata_checks(&self.info.group, &self.info.resource, subresource)
    }

    /// Returns the etcd key of an object without the prefix `/registry`. kube-apiserver prints it in messages, after
    /// the prefix except in a dry run (rule A7).
    pub(crate) fn etcd_key(&self, key: &str) -> String {
        let group = &self.info.group;
        let resource = match (&**group, &*self.info.resource) {
            ("", "services") => "services/specs",
            ("", "endpoints") => "services/endpoints",
            ("", "nodes") => "minions",
            ("", "replicationcontrollers") => "controllers",
            ("networking.k8s.io", "ingresses") => "ingress",
            (_, resource) => resource,
        };
        let own_prefix = self.is_custom() || matches!(&**group, "apiextensions.k8s.io" | "apiregistration.k8s.io");
        if own_prefix {
            format!("/{group}/{resource}/{key}")
        } else {
            format!("/{resource}/{key}")
        }
    }
}
