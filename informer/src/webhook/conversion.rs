//! `Conversion`: conversions between the versions of a custom resource.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use kube::Resource;
use kube::core::Status;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::partial::{self, StandIn};

/// Converts between the versions of a custom resource (controller-runtime's `conversion.Hub` and `Convertible`): all
/// other versions are converted to and from a common hub version.
///
/// The conversion functions may change labels and annotations; all other metadata is kept. Fields with the value `null`
/// are omitted from the result.
///
/// For server-side apply, the server converts partial objects, each of which contains the fields of one field manager.
/// If an object lacks fields that its type requires, the functions receive zero values for these fields, as in Go: an
/// empty string, 0, or the first variant of an enum. They are then called again with different values (`"x"`, 1, or the
/// last variant), and fields that differ between the two results are removed. If a function fails for the different
/// values, the result for the zero values is used.
///
/// ```
/// use informer::webhook::Conversion;
/// # use kube::CustomResource;
/// # use schemars::JsonSchema;
/// # use serde::{Deserialize, Serialize};
/// # #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
/// # #[kube(group = "example.com", version = "v1", kind = "Document", namespaced)]
/// # struct DocumentSpec { title: String, words: u32 }
/// # mod v1beta1 {
/// #     use super::*;
/// #     #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
/// #     #[kube(group = "example.com", version = "v1beta1", kind = "Document", namespaced)]
/// #     pub struct DocumentSpec { pub name: String, #[serde(default)] pub words: u32 }
/// # }
/// # fn main() {
///
/// // `Document` of v1 has a `title`, `v1beta1::Document` calls it `name`.
/// let documents = Conversion::to_hub::<Document>().spoke(
///     |old: v1beta1::Document| {
///         Ok::<_, &str>(Document::new("", DocumentSpec { title: old.spec.name, words: old.spec.words }))
///     },
///     |hub: Document| {
///         let spec = v1beta1::DocumentSpec { name: hub.spec.title, words: hub.spec.words };
///         Ok::<_, &str>(v1beta1::Document::new("", spec))
///     },
/// );
/// # let _ = documents;
/// # }
/// ```
pub struct Conversion<H = ()> {
    pub(super) group: String,
    pub(super) plural: String,
    kind: String,
    hub: String,
    spokes: BTreeMap<String, Spoke>,
    types: PhantomData<fn(H)>,
}

type Convert = Arc<dyn Fn(&Value) -> Result<Value, String> + Send + Sync>;

#[derive(Clone)]
struct Spoke {
    to_hub: Convert,
    from_hub: Convert,
}

impl Conversion {
    /// Creates a conversion with the hub version `H` and no other versions.
    pub fn to_hub<H: Resource<DynamicType = ()>>() -> Conversion<H> {
        Conversion {
            group: H::group(&()).into_owned(),
            plural: H::plural(&()).into_owned(),
            kind: H::kind(&()).into_owned(),
            hub: H::api_version(&()).into_owned(),
            spokes: BTreeMap::new(),
            types: PhantomData,
        }
    }
}

impl<H> Conversion<H>
where
    H: Resource<DynamicType = ()> + DeserializeOwned + Serialize + 'static,
{
    /// Adds a version, with functions that convert it to the hub (`ConvertTo`) and from the hub (`ConvertFrom`).
    #[must_use]
    pub fn spoke<S, E1, E2>(
        mut self,
        to_hub: impl Fn(S) -> Result<H, E1> + Send + Sync + 'static,
        from_hub: impl Fn(H) -> Result<S, E2> + Send + Sync + 'static,
    ) -> Self
    where
        S: Resource<DynamicType = ()> + DeserializeOwned + Serialize + 'static,
        E1: fmt::Display,
        E2: fmt::Display,
    {
        let spoke = Spoke {
            to_hub: converting(to_hub),
            from_hub: converting(from_hub),
        };
        self.spokes.insert(S::api_version(&()).into_owned(), spoke);
        self
    }

    /// Erases the type of the hub.
    pub(super) fn erased(self) -> Conversion {
        Conversion {
            group: self.group,
            plural: self.plural,
            kind: self.kind,
            hub: self.hub,
            spokes: self.spokes,
            types: PhantomData,
        }
    }
}

/// Wraps a conversion function so that it takes and returns JSON. Objects may be partial; see [`partial`].
fn converting<A, B, E>(convert: impl Fn(A) -> Result<B, E> + Send + Sync + 'static) -> Convert
where
    A: DeserializeOwned,
    B: Serialize,
    E: fmt::Display,
{
    let with = move |object: &Value, stand_in| -> Result<(Value, bool), String> {
        let (typed, is_partial) =
            partial::decode::<A>(object, stand_in).map_err(|err| format!("cannot be decoded: {err}"))?;
        let converted = convert(typed).map_err(|err| err.to_string())?;
        let mut json = serde_json::to_value(converted).map_err(|err| format!("cannot be encoded: {err}"))?;
        without_nulls(&mut json);
        Ok((json, is_partial))
    };
    Arc::new(move |object| {
        let (mut json, is_partial) = with(object, StandIn::Zero)?;
        if is_partial {
            // If the function fails for these generated values, the result for the zero values is used, as in Go.
            let other = catch_unwind(AssertUnwindSafe(|| with(object, StandIn::Other)));
            if let Ok(Ok((other, _))) = other {
                json = partial::common(json, other).unwrap_or_else(|| Value::Object(Map::new()));
            }
        }
        keep_metadata(object, &mut json);
        Ok(json)
    })
}

fn without_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(without_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(without_nulls),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Restores all metadata except labels and annotations, because the server does not accept other changes.
fn keep_metadata(before: &Value, after: &mut Value) {
    let mut metadata = before["metadata"].clone();
    for name in ["labels", "annotations"] {
        if let Some(set) = after.pointer(&format!("/metadata/{name}")) {
            metadata[name] = set.clone();
        }
    }
    after["metadata"] = metadata;
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ConversionRequest {
    pub(super) uid: String,
    #[serde(rename = "desiredAPIVersion")]
    pub(super) desired_api_version: String,
    #[serde(default)]
    objects: Vec<Value>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ConversionResponse {
    pub(super) uid: String,
    pub(super) converted_objects: Vec<Value>,
    pub(super) result: Status,
}

/// Converts all objects of a request. Fails if one of them cannot be converted.
pub(super) fn convert(conversions: &[Conversion], request: &ConversionRequest) -> Result<Vec<Value>, String> {
    let desired = request.desired_api_version.as_str();
    let one = |object: &Value| {
        let (version, kind) = (text(object, "apiVersion"), text(object, "kind"));
        let group = version.rsplit_once('/').map_or("", |(group, _)| group);
        let known = conversions.iter().find(|it| it.group == group && it.kind == kind);
        let named = || {
            let metadata = &object["metadata"];
            format!("{kind} {:?} of {version}", text(metadata, "name"))
        };
        let Some(conversion) = known else {
            return Err(format!("{}: this type has no conversion", named()));
        };
        conversion
            .convert(object, version, desired)
            .map_err(|err| format!("{}: {err}", named()))
    };
    request.objects.iter().map(one).collect()
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

impl Conversion {
    fn convert(&self, object: &Value, from: &str, to: &str) -> Result<Value, String> {
        let spoke = |version: &str| {
            let spoke = self.spokes.get(version);
            spoke.ok_or_else(|| format!("there is no conversion between {version} and {}", self.hub))
        };
        if from == to {
            return Ok(object.clone());
        }
        let hub = if from == self.hub {
            object.clone()
        } else {
            (spoke(from)?.to_hub)(object)?
        };
        if to == self.hub {
            return Ok(hub);
        }
        (spoke(to)?.from_hub)(&hub)
    }
}

impl<H> Clone for Conversion<H> {
    fn clone(&self) -> Self {
        Self {
            group: self.group.clone(),
            plural: self.plural.clone(),
            kind: self.kind.clone(),
            hub: self.hub.clone(),
            spokes: self.spokes.clone(),
            types: PhantomData,
        }
    }
}

impl<H> fmt::Debug for Conversion<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conversion")
            .field("kind", &self.kind)
            .field("hub", &self.hub)
            .field("spokes", &self.spokes.keys())
            .finish()
    }
}
