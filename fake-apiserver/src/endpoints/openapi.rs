//! OpenAPI v3: the index, a document for each group and version, and their hashes (rules N6, N8). OpenAPI v2: a single
//! document for all groups.
//!
//! Documents of v3 are JSON. Their protobuf form is not served; requests for it are refused.

mod custom;
mod groups;
mod operations;
mod parameters;
mod shared;
mod v2;
mod v2_protobuf;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::Read;
use std::sync::LazyLock;

use bytes::Bytes;
use flate2::read::GzDecoder;
use jiff::Timestamp;
use serde_json::value::RawValue;

use self::custom::Dialect;
use super::discovery;
use crate::api::json::{Map, Value, json};
use crate::api::kubernetes_version::KubernetesVersion;
use crate::api::resource::ResourceInfo;
use crate::registry::custom::definition::{OpenApiSchema, SelectableField};
use crate::registry::types::schema::optional::stable_version;

/// The generated definitions of the built-in types with their descriptions, each as JSON text. The default version of
/// Kubernetes has all definitions; every other version only has the definitions that differ from the adjacent version
/// that is closer to the default.
static DEFINITIONS: [LazyLock<Definitions>; KubernetesVersion::ALL.len()] = [
    LazyLock::new(|| unpack(include_bytes!("../../data/openapi-1.33.json.gz"))),
    LazyLock::new(|| unpack(include_bytes!("../../data/openapi-1.34.json.gz"))),
    LazyLock::new(|| unpack(include_bytes!("../../data/openapi-1.35.json.gz"))),
    LazyLock::new(|| unpack(include_bytes!("../../data/openapi.json.gz"))),
    LazyLock::new(|| unpack(include_bytes!("../../data/openapi-1.37.json.gz"))),
];

fn unpack(packed: &[u8]) -> Definitions {
    let mut text = String::new();
    // The data is compiled into the program and covered by a test, so errors cannot occur at run time.
    let _ = GzDecoder::new(packed).read_to_string(&mut text);
    serde_json::from_str(&text).unwrap_or_default()
}

/// Returns a definition for a version of Kubernetes.
fn definition(of: KubernetesVersion, name: &str) -> Option<Cow<'static, RawValue>> {
    let (at, default) = (of as usize, KubernetesVersion::default() as usize);
    let nearer = |steps: usize| if at < default { at + steps } else { at - steps };
    let mut towards_default = (0..=at.abs_diff(default)).map(nearer);
    let found: &RawValue = towards_default.find_map(|it| DEFINITIONS[it].get(name))?;
    match serde_json::from_str::<&str>(found.get()) {
        Ok(newer) => renamed(of, name, newer).map(Cow::Owned),
        Err(_) => Some(Cow::Borrowed(found)),
    }
}

/// Returns the definition of a kind in a newer version of its API group, renamed to an older version that has the same
/// fields.
fn renamed(of: KubernetesVersion, name: &str, newer: &str) -> Option<Box<RawValue>> {
    let (package, kind) = name.rsplit_once('.')?;
    let (group, version) = package.rsplit_once('.')?;
    let text = definition(of, &format!("{group}.{newer}.{kind}"))?;
    let text = text.get().replace(&format!("{group}.{newer}."), &format!("{package}."));
    let text = text.replace(
        &format!("\"version\":\"{newer}\""),
        &format!("\"version\":\"{version}\""),
    );
    RawValue::from_string(text).ok()
}

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";
const REF: &str = "#/components/schemas/";

/// One version of a custom resource and its schema.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CustomSchema<'a> {
    /// The row of the resource.
    pub(crate) row: &'a ResourceInfo,
    /// `openAPIV3Schema` of the version, as in the CRD.
    pub(crate) schema: &'a OpenApiSchema,
    /// `selectableFields` of the version.
    pub(crate) selectable: &'a [SelectableField],
}

/// The input from which all OpenAPI documents are built.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenApi<'a> {
    /// The served version of Kubernetes.
    pub(crate) version: KubernetesVersion,
    /// The served built-in resources.
    pub(crate) builtins: &'a [&'a ResourceInfo],
    /// The established custom resources, one row per version.
    pub(crate) custom: &'a [CustomSchema<'a>],
}

/// The relevant parts of a request for a document.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    /// The path below `/openapi/v3/`, such as `apis/apps/v1`.
    pub(crate) path: &'a str,
    /// The `hash` parameter of the query; may be empty.
    pub(crate) hash: &'a str,
    /// The `Accept` header; may be empty.
    pub(crate) accept: &'a str,
    /// The `If-None-Match` header; may be empty.
    pub(crate) if_none_match: &'a str,
    /// Current time, for `Expires`.
    pub(crate) now: Timestamp,
}

/// A response, ready to be sent.
#[derive(Clone, Debug)]
pub(crate) struct DocumentAnswer {
    /// HTTP status code.
    pub(crate) status: u16,
    /// Additional headers; `Cache-Control` replaces the default one.
    pub(crate) headers: Vec<(&'static str, String)>,
    /// The body.
    pub(crate) body: Bytes,
}

/// Returns the description of a type, or of one of its fields if `field` is not empty:
/// `description("io.k8s.api.core.v1.Pod", "spec")`. Each call parses the definition, so callers should cache the
/// result.
pub(crate) fn description(definition: &str, field: &str) -> Option<String> {
    let text = self::definition(KubernetesVersion::default(), definition)?;
    let definition: Value = serde_json::from_str(text.get()).ok()?;
    let owner = if field.is_empty() {
        &definition
    } else {
        &definition["properties"][field]
    };
    owner["description"].as_str().map(str::to_owned)
}

impl OpenApi<'_> {
    /// Builds `/openapi/v3`: the paths of the documents, with their hashes.
    pub(crate) fn index(&self) -> Value {
        let hashes = self.hashes().into_iter();
        let paths: Map = hashes
            .map(|(path, hash)| {
                let place = json!({"serverRelativeURL": url(&path, &hash)});
                (path, place)
            })
            .collect();
        json!({ "paths": paths })
    }

    /// Handles `/openapi/v3/PATH`.
    pub(crate) fn answer(&self, asked: Asked<'_>) -> DocumentAnswer {
        let Some(hash) = self.hash(asked.path) else {
            return plain(404, "404 page not found\n");
        };
        if !accepts_json(asked.accept) {
            // Also refuses the protobuf form; clients then fall back to JSON.
            return plain(406, "");
        }
        let etag = format!("\"{hash}\"");
        let mut headers = vec![
            ("content-type", "application/json".to_owned()),
            ("vary", "Accept".to_owned()),
            ("etag", etag.clone()),
        ];
        if !asked.hash.is_empty() {
            if asked.hash != hash {
                headers.push(("location", url(asked.path, &hash)));
                return DocumentAnswer {
                    status: 301,
                    headers,
                    body: Bytes::new(),
                };
            }
            let expires = asked
                .now
                .saturating_add(jiff::Span::new().hours(365 * 24))
                .unwrap_or(Timestamp::MAX);
            headers.push(("cache-control", "public, immutable".to_owned()));
            headers.push(("expires", expires.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()));
        }
        if asked
            .if_none_match
            .split(',')
            .any(|it| it.trim().trim_start_matches("W/") == etag)
        {
            return DocumentAnswer {
                status: 304,
                headers,
                body: Bytes::new(),
            };
        }
        DocumentAnswer {
            status: 200,
            headers,
            body: self.document(asked.path).into(),
        }
    }

    /// Returns the hashes of all documents by their paths, such as `api/v1` and `apis/apps/v1`. A hash changes with its
    /// document.
    fn hashes(&self) -> BTreeMap<String, String> {
        let mut inputs: BTreeMap<String, String> = BTreeMap::new();
        for row in self.builtins {
            inputs.entry(path_of(row)).or_default().push_str(&row.resource);
        }
        for it in self.custom {
            let digest = || discovery::hash(format!("{:?}{:?}{}", it.row, it.selectable, it.schema.text).as_bytes());
            let digest = it.schema.digest.get_or_init(digest);
            inputs.entry(path_of(it.row)).or_default().push_str(digest);
        }
        for path in self.group_documents() {
            inputs.entry(path).or_default().push_str("group");
        }
        let hash = |(path, input): (String, String)| {
            let hash = discovery::hash(
                [&input, &path, self.version.release(), env!("CARGO_PKG_VERSION")]
                    .concat()
                    .as_bytes(),
            );
            (path, hash)
        };
        inputs.into_iter().map(hash).collect()
    }

    /// Returns the hash of a document; `None` if the document does not exist.
    fn hash(&self, path: &str) -> Option<String> {
        if self.group_documents().contains(path) {
            return self.hashes().remove(path);
        }
        let builtins = self.builtins.iter().copied().filter(|row| path_of(row) == path);
        let custom = self.custom.iter().copied().filter(|it| path_of(it.row) == path);
        let (builtins, custom): (Vec<_>, Vec<_>) = (builtins.collect(), custom.collect());
        let document = OpenApi {
            version: self.version,
            builtins: &builtins,
            custom: &custom,
        };
        document.hashes().remove(path)
    }

    fn document(&self, path: &str) -> Vec<u8> {
        let (paths, schemas) = match self.group_documents().contains(path) {
            true => {
                let (mut wanted, mut schemas) = (Vec::new(), Definitions::new());
                let paths = groups::operations(path, &mut wanted);
                complete(self.version, &mut schemas, wanted);
                (paths, schemas)
            }
            false => self.parts(&|row| path_of(row) == path),
        };
        let document = Document {
            components: Components {
                schemas,
                security_schemes: json!({"BearerToken": {
                    "description": "Bearer Token authentication", "in": "header", "name": "authorization",
                    "type": "apiKey"}}),
            },
            info: json!({"title": "Kubernetes", "version": self.version.release()}),
            openapi: "3.0.0",
            paths,
        };
        // Serializing maps of strings and JSON cannot fail.
        serde_json::to_vec(&document).unwrap_or_default()
    }

    /// Returns the operations of the selected resources, and all definitions that they refer to, directly or
    /// indirectly.
    fn parts(&self, concerns: &dyn Fn(&ResourceInfo) -> bool) -> (Map, Definitions) {
        let (paths, mut schemas, wanted) = self.own_parts(concerns, Dialect::V3);
        complete(self.version, &mut schemas, wanted);
        (paths, schemas)
    }

    /// Returns the operations of the selected resources, the definitions of the selected custom resources, and the
    /// names of all other definitions that these refer to.
    fn own_parts(&self, concerns: &dyn Fn(&ResourceInfo) -> bool, dialect: Dialect) -> (Map, Definitions, Vec<String>) {
        let (mut paths, mut schemas, mut wanted) = (Map::new(), Definitions::new(), Vec::new());
        for row in self.builtins.iter().filter(|row| concerns(row)) {
            operations::add(&mut paths, row, &definition_of, &mut wanted);
            let (path, entry) = groups::resources(&row.group, &row.version, &mut wanted);
            paths.insert(path.into(), entry);
        }
        for it in self.custom.iter().filter(|it| concerns(it.row)) {
            let name = custom_definition(it.row);
            let of = |group: &str, version: &str, kind: &str| {
                if group == it.row.group && kind == it.row.kind {
                    Some(name.clone())
                } else {
                    definition_of(group, version, kind)
                }
            };
            operations::add(&mut paths, it.row, &of, &mut wanted);
            for (name, schema) in custom::schemas(it, &name, dialect) {
                if let Ok(raw) = serde_json::value::to_raw_value(&schema) {
                    collect_refs(raw.get(), &mut wanted);
                    schemas.insert(name, raw);
                }
            }
        }
        (paths, schemas, wanted)
    }
}

/// Definitions by name, each as JSON text.
type Definitions = BTreeMap<String, Box<RawValue>>;

/// Adds the built-in definitions in `wanted`, and the definitions that they refer to.
fn complete(of: KubernetesVersion, schemas: &mut Definitions, mut wanted: Vec<String>) {
    while let Some(name) = wanted.pop() {
        if schemas.contains_key(&name) {
            continue;
        }
        if let Some(raw) = definition(of, &name) {
            collect_refs(raw.get(), &mut wanted);
            schemas.insert(name, raw.into_owned());
        }
    }
}

#[derive(serde::Serialize)]
struct Document {
    components: Components,
    info: Value,
    openapi: &'static str,
    #[serde(serialize_with = "kinds_in_order")]
    paths: Map,
}

/// Serializes paths, with the fields of each kind in the usual order: group, version, kind.
fn kinds_in_order<S: serde::Serializer>(paths: &Map, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(paths.iter().map(|(path, value)| (path, KindInOrder(value))))
}

struct KindInOrder<'a>(&'a Value);

impl serde::Serialize for KindInOrder<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        const PARTS: [&str; 3] = ["group", "version", "kind"];
        match self.0 {
            Value::Object(map) if map.len() == PARTS.len() && PARTS.iter().all(|part| map.contains_key(part)) => {
                serializer.collect_map(PARTS.iter().map(|part| (part, &map[*part])))
            }
            Value::Object(map) => kinds_in_order(map, serializer),
            Value::Array(items) => serializer.collect_seq(items.iter().map(KindInOrder)),
            other => other.serialize(serializer),
        }
    }
}

#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct Components {
    #[serde(skip_serializing_if = "Definitions::is_empty")]
    schemas: Definitions,
    security_schemes: Value,
}

fn plain(status: u16, text: &'static str) -> DocumentAnswer {
    DocumentAnswer {
        status,
        headers: vec![("content-type", "text/plain; charset=utf-8".to_owned())],
        body: Bytes::from_static(text.as_bytes()),
    }
}

fn path_of(row: &ResourceInfo) -> String {
    if row.group.is_empty() {
        format!("api/{}", row.version)
    } else {
        format!("apis/{}/{}", row.group, row.version)
    }
}

fn url(path: &str, hash: &str) -> String {
    format!("/openapi/v3/{path}?hash={hash}")
}

/// Returns `true` if one of the requested media types is JSON.
fn accepts_json(accept: &str) -> bool {
    accept.is_empty()
        || accept.split(',').any(|clause| {
            let media = clause.split(';').next().unwrap_or_default().trim();
            matches!(media, "application/json" | "application/*" | "*/*")
        })
}

/// Returns the name of a built-in kind's definition.
fn definition_of(group: &str, version: &str, kind: &str) -> Option<String> {
    let single = kind.strip_suffix("List").unwrap_or(kind);
    let version = stable_version(group, version).unwrap_or(version);
    let shape = crate::registry::types::schema::builtin::shape_of(group, version, kind)
        .or_else(|| crate::registry::types::schema::builtin::shape_of(group, version, single))?;
    let name = shape.structure()?.definition();
    let name = name.rsplit_once('.').map_or(name, |(package, _)| package);
    Some(format!("{name}.{kind}"))
}

/// Returns the name of a custom kind's definition, with the labels of the group reversed: `com.example.v1.Widget`.
fn custom_definition(row: &ResourceInfo) -> String {
    let labels: Vec<&str> = row.group.rsplit('.').collect();
    format!("{}.{}.{}", labels.join("."), row.version, row.kind)
}

/// Collects the names of the definitions that a JSON document refers to.
fn collect_refs(text: &str, out: &mut Vec<String>) {
    for part in text.split(REF).skip(1) {
        if let Some(end) = part.find('"') {
            out.push(part[..end].to_owned());
        }
    }
}

#[cfg(test)]
mod tests;
