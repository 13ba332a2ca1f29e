//! `CustomResource`: a parsed CustomResourceDefinition, shared by all requests.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, OnceLock};

use serde_json::value::RawValue;

use super::conversion::Conversion;
use super::schema::Structural;
use crate::api::json::{Map, Value};
use crate::api::object::Object;
use crate::api::resource::{ResourceInfo, Scope, SubresourceInfo, Text};
use crate::registry::types::cursor::Cursor;
use crate::registry::types::no_version::NoVersion;
use crate::registry::types::version_order;

/// A custom resource as defined by its CRD. It is parsed when the CRD is written, and shared by all requests.
#[derive(Clone, Debug)]
pub(crate) struct CustomResource {
    /// The served versions, in the order of `spec.versions`; each is one row of discovery.
    pub(crate) served: Vec<Arc<CustomVersion>>,
    /// The other versions in the spec. Objects can be converted to them to determine field owners.
    pub(crate) unserved: Vec<Arc<CustomVersion>>,
    /// The storage version, which need not be served.
    pub(crate) storage: Arc<CustomVersion>,
    /// Set if the storage version is served.
    pub(crate) serves_storage: bool,
    /// Set if objects may be created; unset while the CRD is being deleted (rule O14).
    pub(crate) accepts_creates: bool,
    /// Set if the CRD has changed since its creation, so that objects may follow an older schema.
    pub(crate) has_changed: bool,
    /// The conversion webhook, if the CRD has one.
    pub(crate) conversion: Option<Arc<Conversion>>,
    /// The CRD's [`identity`](Self::identity). Rows of CRDs with equal identities are interchangeable.
    pub(crate) definition: String,
    /// The CRD's uid, generation and accepted names. If they change, the watches of its objects end.
    pub(crate) served_as: String,
}

/// The schema of a version as in the CRD, with the corresponding parts of OpenAPI documents, which are created on first
/// use.
#[derive(Debug)]
pub(crate) struct OpenApiSchema {
    /// The schema as JSON; `null` if the CRD does not have one.
    pub(crate) text: Arc<str>,
    /// Hash of all parts of the version that affect an OpenAPI document.
    pub(crate) digest: OnceLock<String>,
    /// Parts of the version for the OpenAPI v2 document.
    pub(crate) v2: OnceLock<OpenApiParts>,
}

/// Parts of an OpenAPI document.
#[derive(Debug)]
pub(crate) struct OpenApiParts {
    /// Operations of the version, by their path.
    pub(crate) paths: BTreeMap<String, Box<RawValue>>,
    /// Definitions of the version's types, by name.
    pub(crate) definitions: BTreeMap<String, Box<RawValue>>,
    /// Parameters that the paths refer to, by name.
    pub(crate) parameters: BTreeMap<String, Box<RawValue>>,
    /// Names of other definitions to which these parts refer.
    pub(crate) wanted: Vec<String>,
}

impl OpenApiSchema {
    /// Wraps a schema. The other fields are computed later.
    pub(crate) fn new(text: impl Into<Arc<str>>) -> Self {
        Self {
            text: text.into(),
            digest: OnceLock::new(),
            v2: OnceLock::new(),
        }
    }
}

/// A structural schema that is parsed on first use, because most CRDs of a cluster are never used.
pub(crate) type LazySchema = LazyLock<Structural, Box<dyn FnOnce() -> Structural + Send>>;

/// One version of a custom resource.
#[derive(Debug)]
pub(crate) struct CustomVersion {
    /// The version's row in discovery.
    pub(crate) row: ResourceInfo,
    /// Type of the objects, parsed from `open_api` on first use.
    pub(crate) schema: LazySchema,
    /// The schema as in the CRD, for OpenAPI documents.
    pub(crate) open_api: OpenApiSchema,
    /// `additionalPrinterColumns` of the CRD.
    pub(crate) columns: Vec<Value>,
    /// Fields that field selectors support, other than `metadata.name` and `metadata.namespace`.
    pub(crate) selectable: Vec<SelectableField>,
    /// Set if `/status` is enabled.
    pub(crate) has_status: bool,
    /// Paths of the fields for `/scale`, if it is enabled.
    pub(crate) scale: Option<ScalePaths>,
    /// Warning in every response for this version (rule O13).
    pub(crate) deprecation: Option<String>,
}

/// One item of a CRD's `selectableFields`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SelectableField {
    /// The label in a field selector: the path without its leading dot.
    pub(crate) label: String,
}

/// Paths of the fields for `/scale` in an object, as in the CRD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ScalePaths {
    /// The field `specReplicasPath`.
    pub(crate) spec_replicas: String,
    /// The field `statusReplicasPath`.
    pub(crate) status_replicas: String,
    /// The field `labelSelectorPath`.
    pub(crate) label_selector: Option<String>,
}

/// Verbs of custom resources in the order of discovery (rule N5).
pub(crate) const VERBS: [&str; 8] = [
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "create",
    "update",
    "watch",
];
const VERBS_TERMINATING: [&str; 5] = ["delete", "deletecollection", "get", "list", "watch"];
const VERBS_OF_SUBRESOURCES: [&str; 3] = ["get", "patch", "update"];

fn generation_of(crd: &Object) -> i64 {
    Cursor::root(crd).integer("metadata.generation").unwrap_or(0)
}

impl CustomResource {
    /// Parses a valid CRD; returns `None` if a required field is missing. No versions are served unless the CRD is
    /// Established.
    pub(crate) fn parse(crd: &Object) -> Option<Self> {
        let root = Cursor::root(crd);
        let spec = root.at("spec");
        let established = Self::is_established(crd);
        let terminating = crd.is_terminating();
        let accepted = root.at("status.acceptedNames");
        let reader = Reader {
            group: demanded(&spec, "group")?,
            names: match accepted.is_empty("kind") {
                true => spec.present("names")?,
                false => accepted,
            },
            scope: match demanded(&spec, "scope")? {
                "Cluster" => Scope::Cluster,
                _ => Scope::Namespaced,
            },
            // Deprecation warnings recommend this version if it has a higher priority.
            preferred: preferred_version(&spec),
            stored: spec
                .items("versions")
                .find(|it| it.is_true("storage") && it.is_true("served"))
                .map(|it| it.text("name").to_owned()),
            terminating,
        };
        let (mut served, mut unserved) = (Vec::new(), Vec::new());
        let (mut storage, mut serves_storage) = (None, false);
        for version in spec.items("versions") {
            let parsed = Arc::new(reader.version(&version)?);
            let is_served = version.is_true("served") && established;
            if version.is_true("storage") {
                storage = Some(Arc::clone(&parsed));
                serves_storage = is_served;
            }
            match is_served {
                true => served.push(parsed),
                false => unserved.push(parsed),
            }
        }
        Some(Self {
            served,
            unserved,
            storage: storage?,
            serves_storage,
            accepts_creates: !terminating,
            conversion: Conversion::parse(spec.map_or_empty("")),
            definition: Self::identity(crd),
            served_as: Self::served_as(crd),
            has_changed: generation_of(crd) > 1,
        })
    }

    /// Returns `true` if a CRD is served.
    pub(crate) fn is_established(crd: &Object) -> bool {
        condition_is(crd, "Established", "True")
    }

    /// Returns a CRD's uid, generation and accepted names, and whether it is established or being deleted. CRDs with
    /// equal identities define the same resource.
    pub(crate) fn identity(crd: &Object) -> String {
        let (established, terminating) = (Self::is_established(crd), crd.is_terminating());
        format!("{}/{established}/{terminating}", Self::served_as(crd))
    }

    /// Returns a CRD's uid, generation and accepted names. If they change, kube-apiserver creates a new storage.
    fn served_as(crd: &Object) -> String {
        let names = Cursor::root(crd).at("status.acceptedNames").to_value();
        format!("{}/{}/{names}", crd.uid(), generation_of(crd))
    }

    /// Returns a version of the spec, even if it is not served. Other versions are refused, as in `crConverter` of
    /// k8s.io/apiextensions-apiserver.
    pub(crate) fn in_spec(&self, api_version: &str) -> Result<&Arc<CustomVersion>, NoVersion> {
        let mut versions = self.served.iter().chain(&self.unserved);
        let found = versions.find(|version| version.row.api_version() == api_version);
        found.ok_or_else(|| {
            NoVersion::Refused(format!(
                "request to convert CR to an invalid group/version: {api_version}"
            ))
        })
    }

    /// Returns the served version with this name.
    pub(crate) fn version(&self, name: &str) -> Option<&Arc<CustomVersion>> {
        self.served.iter().find(|it| it.row.version == name)
    }
}

/// Returns the string at the path `way`, which every valid CRD contains.
fn demanded<'a>(value: &Cursor<'a>, way: &str) -> Option<&'a str> {
    value.get(way)?.as_str()
}

/// State shared by all versions of a CRD while they are parsed.
struct Reader<'a> {
    group: &'a str,
    names: Cursor<'a>,
    scope: Scope,
    preferred: Option<&'a str>,
    /// The storage version, if it is served.
    stored: Option<String>,
    terminating: bool,
}

impl Reader<'_> {
    fn name(&self, key: &str) -> Text {
        self.names.text(key).to_owned().into()
    }

    fn name_list(&self, key: &str) -> Vec<Text> {
        self.names.texts(key).map(|it| it.to_owned().into()).collect()
    }

    fn version(&self, version: &Cursor<'_>) -> Option<CustomVersion> {
        let name = demanded(version, "name")?;
        let open_api = version.at("schema.openAPIV3Schema").to_value();
        let open_api: Arc<str> = open_api.to_string().into();
        let text = Arc::clone(&open_api);
        let schema = move || {
            let schema: Value = serde_json::from_str(&text).unwrap_or_default();
            Structural::parse_root(&Cursor::document(&schema))
        };
        let has_status = version.is_set("subresources.status");
        let scale = version.present("subresources.scale");
        let scale = scale.and_then(|it| ScalePaths::parse(&it));
        let selectable = version.items("selectableFields");
        Some(CustomVersion {
            row: self.row(name, has_status, scale.is_some()),
            schema: LazyLock::new(Box::new(schema)),
            open_api: OpenApiSchema::new(open_api),
            columns: version.list("additionalPrinterColumns").to_vec(),
            selectable: selectable.filter_map(|it| SelectableField::parse(&it)).collect(),
            has_status,
            scale,
            deprecation: self.deprecation(name, version),
        })
    }

    fn row(&self, version: &str, has_status: bool, has_scale: bool) -> ResourceInfo {
        let kind = self.name("kind");
        let subresource = |name: &'static str, group: &str, version: &str, kind: Text| SubresourceInfo {
            name: name.into(),
            group: group.to_owned().into(),
            version: version.to_owned().into(),
            kind,
            verbs: VERBS_OF_SUBRESOURCES.map(Text::from).to_vec().into(),
        };
        let status = has_status.then(|| subresource("status", self.group, version, kind.clone()));
        let scale = has_scale.then(|| subresource("scale", "autoscaling", "v1", "Scale".into()));
        let verbs: &[&'static str] = if self.terminating { &VERBS_TERMINATING } else { &VERBS };
        ResourceInfo {
            group: self.group.to_owned().into(),
            version: version.to_owned().into(),
            resource: self.name("plural"),
            singular: self.name("singular"),
            list_kind: self.name("listKind"),
            kind,
            scope: self.scope,
            short_names: self.name_list("shortNames").into(),
            categories: self.name_list("categories").into(),
            verbs: verbs.iter().copied().map(Text::from).collect::<Vec<_>>().into(),
            stored_version: self.stored.clone().map(Text::from),
            subresources: status.into_iter().chain(scale).collect::<Vec<_>>().into(),
        }
    }

    fn deprecation(&self, name: &str, version: &Cursor<'_>) -> Option<String> {
        if !version.is_true("deprecated") {
            return None;
        }
        if let Some(text) = demanded(version, "deprecationWarning") {
            return Some(text.to_owned());
        }
        let (group, kind) = (self.group, self.name("kind"));
        let warning = format!("{group}/{name} {kind} is deprecated");
        let is_newer = |it: &&str| version_order::compare(it, name).is_gt();
        Some(match self.preferred.filter(is_newer) {
            Some(preferred) => format!("{warning}; use {group}/{preferred} {kind}"),
            None => warning,
        })
    }
}

impl SelectableField {
    fn parse(field: &Cursor<'_>) -> Option<Self> {
        let path = demanded(field, "jsonPath")?;
        Some(Self {
            label: path.strip_prefix('.').unwrap_or(path).to_owned(),
        })
    }

    /// Returns the value of the field in an object, as compared by selectors; an empty string if it is absent (rule
    /// F9).
    pub(crate) fn value(&self, object: &Map) -> String {
        match Cursor::root(object).get(&self.label) {
            None => String::new(),
            Some(Value::String(text)) => text.to_string(),
            Some(other) => other.to_string(),
        }
    }
}

impl ScalePaths {
    fn parse(scale: &Cursor<'_>) -> Option<Self> {
        Some(Self {
            spec_replicas: demanded(scale, "specReplicasPath")?.to_owned(),
            status_replicas: demanded(scale, "statusReplicasPath")?.to_owned(),
            label_selector: Some(scale.text("labelSelectorPath").to_owned()).filter(|it| !it.is_empty()),
        })
    }
}

/// Returns `true` if a CRD has a condition with this status.
pub(super) fn condition_is(crd: &Object, kind: &str, wanted: &str) -> bool {
    condition(crd, kind).is_some_and(|it| Cursor::root(it).text("status") == wanted)
}

/// Returns the condition of the type `kind` in a CRD's status.
pub(super) fn condition<'a>(crd: &'a Object, kind: &str) -> Option<&'a Map> {
    let mut conditions = Cursor::root(crd).maps("status.conditions");
    conditions.find(|it| Cursor::root(it).text("type") == kind)
}

/// Returns the version with the highest priority among the served versions that are not deprecated.
fn preferred_version<'a>(spec: &Cursor<'a>) -> Option<&'a str> {
    let versions = spec.maps("versions").map(Cursor::root);
    let usable = versions.filter(|it| it.is_true("served") && !it.is_true("deprecated"));
    usable
        .map(|it| it.text("name"))
        .max_by(|a, b| version_order::compare(a, b))
}

#[cfg(test)]
mod tests {
    use crate::api::json::json;

    use super::super::tests::resource_of;

    #[test]
    fn o13_deprecation_warning_recommends_the_newest_version() {
        let version = |name: &str, is_deprecated: bool| {
            let schema = json!({"openAPIV3Schema": {"type": "object"}});
            json!({"name": name, "served": true, "storage": name == "bar", "deprecated": is_deprecated, "schema": schema})
        };
        let resource = resource_of(json!([version("foo", true), version("bar", false)]));
        let foo = resource.version("foo").expect("foo is served");
        let text = "example.com/foo Widget is deprecated; use example.com/bar Widget";
        assert_eq!(foo.deprecation.as_deref(), Some(text));
        let resource = resource_of(json!([
            version("v02", false),
            version("v1", true),
            version("bar", false)
        ]));
        let v1 = resource.version("v1").expect("v1 is served");
        let text = "example.com/v1 Widget is deprecated; use example.com/v02 Widget";
        assert_eq!(v1.deprecation.as_deref(), Some(text));
    }
}
