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
use crate::registry::types::schema::{SchemaRef, Unset, builtin};

/// One served resource in one version, with all that is needed to serve it.
#[derive(Debug)]
pub(crate) struct Row {
    /// Facts shown by discovery.
    pub(crate) info: ResourceInfo,
    /// `info.api_version()`, made once.
    pub(crate) api_version: Box<str>,
    /// The name under which storage keeps the objects; versions of a resource share it.
    pub(crate) storage: Arc<str>,
    /// Prefix of an encoded object: `{"kind":"Pod","apiVersion":"v1","metadata":{`.
    pub(crate) head: Arc<str>,
    /// Set if stored objects are shown unchanged: they are of this version, and of the current schema.
    pub(crate) is_as_stored: bool,
    /// Set for the version by which stored objects are read where none is named: the storage version, or the first
    /// served one if that is not served.
    pub(crate) is_storage_version: bool,
    kind: Kind,
}

enum Kind {
    Builtin {
        version: KubernetesVersion,
        shape: Option<&'static builtin::Shape>,
        strategy: &'static dyn Strategy,
    },
    Custom(Box<Custom>),
}

/// A version of a custom resource.
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
        let is_storage_version = strategy
            .facts()
            .stored_api_version
            .is_none_or(|it| it == info.api_version());
        let kind = Kind::Builtin {
            version,
            shape,
            strategy,
        };
        Self::new(info.clone(), is_storage_version, is_storage_version, kind)
    }

    /// A row that a CRD adds.
    pub(crate) fn custom(resource: Arc<CustomResource>, version: Arc<CustomVersion>) -> Self {
        // An object of another version, or of an older schema, is pruned and defaulted when it is read (rule O5).
        let stored = &resource.storage.row.version;
        let is_stored_version = *stored == version.row.version;
        let is_as_stored = is_stored_version && !resource.has_changed;
        let is_storage_version = match resource.served.iter().any(|it| it.row.version == *stored) {
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
        // Custom objects are sorted, built-in ones have the order of Go's structs.
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

    /// Returns the field label that a selector's label stands for.
    ///
    /// # Errors
    /// The text of the refusal, if the resource does not know it (rules F4 to F9).
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

    /// The type of an object.
    pub(crate) fn schema(&self) -> SchemaRef<'_> {
        match &self.kind {
            Kind::Builtin { shape, .. } => shape.map_or(SchemaRef::Deduced, SchemaRef::Builtin),
            Kind::Custom(custom) => SchemaRef::Custom(&*custom.strategy.version.schema),
        }
    }

    /// The built-in type of an object.
    pub(crate) fn shape(&self) -> Option<&'static builtin::Shape> {
        match &self.kind {
            Kind::Builtin { shape, .. } => *shape,
            Kind::Custom(_) => None,
        }
    }

    /// Drops the fields of a built-in type that are behind feature gates, before anything is checked.
    pub(crate) fn drop_disabled(&self, object: &mut Object, old: Option<&Object>) {
        let Kind::Builtin { version, shape, .. } = &self.kind else {
            return;
        };
        if let (true, Some(shape)) = (*version != KubernetesVersion::default(), shape) {
            gated::drop_gated(shape, object);
        }
        gates::drop_disabled(*version, (&self.info.group, &self.info.resource), object, old);
    }

    /// The webhook that makes stored objects those of this version, where there is one and it has something to do.
    pub(crate) fn conversion_on_read(&self) -> Option<(&CustomResource, &Conversion)> {
        match &self.kind {
            Kind::Custom(custom) if custom.resource.storage.row.version != self.info.version => {
                Some((&custom.resource, custom.resource.conversion.as_deref()?))
            }
            Kind::Custom(_) | Kind::Builtin { .. } => None,
        }
    }

    /// The row of another version of the same CRD, served or not.
    pub(crate) fn of_version(&self, version: &Arc<CustomVersion>) -> Option<Row> {
        let resource = Arc::clone(self.custom_resource()?);
        Some(Row::custom(resource, Arc::clone(version)))
    }

    /// Returns the version's part of the CRD, for a custom resource.
    pub(crate) fn custom_version(&self) -> Option<&Arc<CustomVersion>> {
        match &self.kind {
            Kind::Builtin { .. } => None,
            Kind::Custom(custom) => Some(&custom.strategy.version),
        }
    }

    /// The CRD in all its versions, for a custom resource.
    pub(crate) fn custom_resource(&self) -> Option<&Arc<CustomResource>> {
        match &self.kind {
            Kind::Builtin { .. } => None,
            Kind::Custom(custom) => Some(&custom.resource),
        }
    }

    /// The state of the CRD that the row was made from.
    pub(crate) fn definition(&self) -> &str {
        self.custom_resource().map_or("", |resource| &resource.definition)
    }

    /// Returns `true` if a CRD defines the resource.
    pub(crate) fn is_custom(&self) -> bool {
        self.custom_version().is_some()
    }

    /// Returns `true` if the resource is stored; reviews and other virtual ones can only be created.
    pub(crate) fn is_stored(&self) -> bool {
        self.info.allows("get")
    }

    /// Turns an object just read into this version.
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

    /// An object about to be written in the version that is stored, if that is another one.
    pub(crate) fn stored_form<'a>(&self, object: &'a Object) -> Cow<'a, Object> {
        match &self.kind {
            Kind::Custom(custom) if custom.resource.storage.row.version != self.info.version => {
                let mut object = object.clone();
                decode::to_stored(&mut object, &custom.resource, &custom.strategy.version);
                Cow::Owned(object)
            }
            Kind::Custom(_) | Kind::Builtin { .. } => Cow::Borrowed(object),
        }
    }

    /// Fills in the defaults of what was removed after decoding, such as a new custom resource's status, as
    /// `unstructuredDefaulter` does when the object is read (rule O6). Reads of the stored version rely on it.
    pub(crate) fn default_as_read(&self, object: &mut Object) {
        match &self.kind {
            Kind::Custom(custom) if custom.resource.storage.row.version == self.info.version => {
                custom.strategy.default(object);
            }
            // `stored_form` does it.
            Kind::Custom(_) | Kind::Builtin { .. } => {}
        }
    }

    /// Shows an object that a dry run does not store as if it had been stored and read. No conversion webhook is asked
    /// for that.
    pub(crate) fn show_unstored(&self, object: &mut Object) {
        if let Kind::Custom(custom) = &self.kind
            && !self.is_as_stored
            && custom.resource.conversion.is_none()
        {
            *object = self.stored_form(object).into_owned();
            decode::restore(object, &custom.resource, &custom.strategy.version);
        } else {
            self.show_as_requested(object);
        }
    }

    /// Turns an object of a built-in kind as strategies handle it into this version. Strategies of built-ins handle
    /// the stored version, those of custom resources the one of the request.
    pub(crate) fn show_as_requested(&self, object: &mut Object) {
        if let (false, Some(stored)) = (self.is_as_stored, self.strategy().facts().stored_api_version) {
            object.insert("apiVersion".into(), stored.into());
            self.strategy().convert(object, &self.api_version);
            if let Some(shape) = self.shape() {
                // Omits empty fields that the other version always writes; no type refuses the object.
                let _ = decode_builtin::convert(shape, object);
            }
        }
        self.name_kind(object);
    }

    /// An object in another version of the same resource, and its type there.
    ///
    /// # Errors
    ///
    /// If that is not served; a version that a CRD does not list at all cannot be converted to, as the `crConverter` of
    /// k8s.io/apiextensions-apiserver has it.
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
                let served = &mut custom.resource.served.iter();
                let Some(version) = served.find(|version| version.row.api_version() == api_version) else {
                    return Err(custom.resource.no_version(api_version));
                };
                decode::convert_between(&mut copy, &custom.resource, version);
                Ok((SchemaRef::Custom(&*version.schema), Cow::Owned(copy)))
            }
            Kind::Builtin { version, .. } => {
                let mut rows = super::Builtins::of(*version)
                    .rows
                    .iter()
                    .filter(|row| row.storage == self.storage);
                let row = rows
                    .find(|row| *row.api_version == *api_version)
                    .ok_or(NoVersion::Obsolete)?;
                row.strategy().convert(&mut copy, api_version);
                row.name_kind(&mut copy);
                if let Some(shape) = row.shape() {
                    // As in `show_as_requested`.
                    let _ = decode_builtin::convert(shape, &mut copy);
                }
                Ok((row.schema(), Cow::Owned(copy)))
            }
        }
    }

    /// Turns an object of a built-in kind in this version into the one its strategy handles.
    pub(crate) fn to_storage(&self, object: &mut Object) {
        if let (false, Some(stored)) = (self.is_as_stored, self.strategy().facts().stored_api_version) {
            self.name_kind(object);
            self.strategy().convert(object, stored);
        }
    }

    /// The status of a new object of a built-in type, as Go writes an empty one: `{}`, or with the fields it never
    /// omits.
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

    /// Returns the paths that a write to the resource or a subresource cannot own: the parts it does not change (rule
    /// H10).
    pub(crate) fn unowned_paths(&self, subresource: &str) -> reset_fields::Paths {
        if self.info.subresource("status").is_none() {
            return &[];
        }
        match subresource {
            "status" if self.is_custom() => &[&["spec"], &["metadata"]],
            _ => reset_fields::reset_fields(&self.info.group, &self.info.resource, subresource),
        }
    }

    /// Spells what is empty as storage does, once the owners of its fields are known.
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

    /// The kind as errors name it: that of the type it is stored as, which Events of both groups share.
    pub(crate) fn typed_kind(&self) -> GroupKind {
        let mut kind = self.info.group_kind();
        if !self.is_custom()
            && let Some((group, _)) = self.strategy().facts().stored_as
        {
            kind.group = group.into();
        }
        kind
    }

    /// The checks of metadata that the kind adds to those of every object.
    pub(crate) fn metadata_checks(&self, subresource: &str) -> MetadataChecks {
        metadata_checks(&self.info.group, &self.info.resource, subresource)
    }

    /// Returns the key of an object in etcd, below the prefix; a message of the real server shows it (rule A7).
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
