//! OpenAPI v2: one document for all served resources, generated from the same definitions and operations as v3. It is
//! read by `OpenAPISchema()` of client-go, and by kubectl older than 1.27 for `kubectl explain` and the validation in
//! `kubectl apply`.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use serde_json::value::RawValue;

use super::custom::Dialect;
use super::shared::{Shared, share};
use super::{CustomSchema, Definitions, DocumentAnswer, OpenApi, REF, complete, groups, v2_protobuf};
use crate::api::json::{Map, SmolStr, Value, json};
use crate::api::kubernetes_version::KubernetesVersion;
use crate::endpoints::discovery;
use crate::registry::custom::definition::OpenApiParts;

/// Encoding of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Json,
    Protobuf,
}

/// The deprecated media type of the protobuf encoding, which is only used in requests.
const PROTOBUF_ASKED: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";

/// The media type of the protobuf encoding.
const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// Maximum number of documents that a process caches by their hash. A document is several megabytes long, and
/// clients request the same one repeatedly. A new document replaces the oldest one.
const KEPT_MAX: usize = 2;

static KEPT: Mutex<VecDeque<(String, Form, Bytes)>> = Mutex::new(VecDeque::new());

/// Maximum depth of nested schemas; deeper ones are not converted from v3.
const LEVELS: usize = 100;

impl OpenApi<'_> {
    /// Handles `/openapi/v2`.
    pub(crate) fn v2(&self, accept: &str, if_none_match: &str) -> DocumentAnswer {
        let vary = || ("vary", "Accept".to_owned());
        let Some(form) = form(accept) else {
            return DocumentAnswer {
                status: 406,
                headers: vec![vary(), ("content-type", "text/plain; charset=utf-8".to_owned())],
                body: Bytes::new(),
            };
        };
        let hashes: String = self.hashes().into_values().collect();
        let hash = discovery::hash(hashes.as_bytes());
        let etag = format!("\"{hash}\"");
        let unchanged = if_none_match.split(',').any(|it| it.trim() == etag);
        let content_type = match form {
            Form::Json => "application/json",
            Form::Protobuf => PROTOBUF,
        };
        DocumentAnswer {
            status: if unchanged { 304 } else { 200 },
            headers: vec![vary(), ("content-type", content_type.to_owned()), ("etag", etag)],
            body: if unchanged { Bytes::new() } else { self.kept(hash, form) },
        }
    }

    fn kept(&self, hash: String, form: Form) -> Bytes {
        let lock = || KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |it: &&(String, Form, Bytes)| it.0 == hash && it.1 == form;
        if let Some((_, _, bytes)) = lock().iter().find(is_it) {
            return bytes.clone();
        }
        // Computed outside of the lock; concurrent callers compute the same bytes.
        let bytes: Bytes = match form {
            Form::Json => self.v2_document().into(),
            Form::Protobuf => {
                let json = self.kept(hash.clone(), Form::Json);
                v2_protobuf::document(&serde_json::from_slice(&json).unwrap_or_default()).into()
            }
        };
        let mut kept = lock();
        if kept.len() >= KEPT_MAX {
            kept.pop_front();
        }
        kept.push_back((hash, form, bytes.clone()));
        bytes
    }

    fn v2_document(&self) -> Vec<u8> {
        let builtin = self.builtin_parts();
        let custom = self
            .custom
            .iter()
            .map(|it| it.schema.v2.get_or_init(|| custom_parts(*it)));
        let all: Vec<&OpenApiParts> = std::iter::once(&*builtin).chain(custom).collect();
        let mut more = Definitions::new();
        let is_missing = |name: &&String| !builtin.definitions.contains_key(*name);
        let wanted = all
            .iter()
            .flat_map(|it| &it.wanted)
            .filter(is_missing)
            .cloned()
            .collect();
        complete(self.version, &mut more, wanted);
        let more = OpenApiParts::of_v3(&Map::new(), &more, Vec::new());
        let document = Document {
            definitions: texts(all.iter().copied().chain([&more]).map(|it| &it.definitions)),
            info: json!({"title": "Kubernetes", "version": self.version.release()}),
            parameters: texts(all.iter().map(|it| &it.parameters)),
            paths: texts(all.iter().map(|it| &it.paths)),
            security: json!([{"BearerToken": []}]),
            security_definitions: json!({"BearerToken": {
                "description": "Bearer Token authentication", "in": "header", "name": "authorization",
                "type": "apiKey"}}),
            swagger: "2.0",
        };
        // Serializing maps of strings and JSON cannot fail.
        serde_json::to_vec(&document).unwrap_or_default()
    }

    /// Returns the part of the document for the built-in resources, which almost never changes.
    fn builtin_parts(&self) -> Arc<OpenApiParts> {
        static KEPT: Mutex<Option<(String, Arc<OpenApiParts>)>> = Mutex::new(None);
        let builtins = OpenApi { custom: &[], ..*self };
        let hash: String = builtins.hashes().into_values().collect();
        let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, parts)) = kept.as_ref().filter(|(it, _)| *it == hash) {
            return Arc::clone(parts);
        }
        let (mut paths, mut schemas) = builtins.parts(&|_| true);
        let mut wanted = Vec::new();
        for document in builtins.group_documents() {
            paths.extend(groups::operations(&document, &mut wanted));
        }
        complete(self.version, &mut schemas, wanted);
        let parts = Arc::new(OpenApiParts::of_v3(&paths, &schemas, Vec::new()));
        *kept = Some((hash, Arc::clone(&parts)));
        parts
    }
}

/// Returns the part of the document for one version of a custom resource.
fn custom_parts(it: CustomSchema<'_>) -> OpenApiParts {
    let only = OpenApi {
        version: KubernetesVersion::default(),
        builtins: &[],
        custom: &[it],
    };
    let (paths, schemas, mut wanted) = only.own_parts(&|_| true, Dialect::V2);
    wanted.retain(|name| !schemas.contains_key(name));
    wanted.sort_unstable();
    wanted.dedup();
    OpenApiParts::of_v3(&paths, &schemas, wanted)
}

impl OpenApiParts {
    /// Converts operations and definitions of v3 to v2.
    fn of_v3(paths: &Map, schemas: &Definitions, wanted: Vec<String>) -> Self {
        let raw = |value: &Value| serde_json::value::to_raw_value(value).ok();
        let mut shared = Shared::new();
        let paths = paths
            .iter()
            .map(|(path, item)| (path.to_string(), path_item(item, &mut shared)));
        let paths: Vec<(String, Value)> = paths.collect();
        let texts = |all: &mut dyn Iterator<Item = (String, Value)>| {
            all.filter_map(|(name, value)| Some((name, raw(&value)?))).collect()
        };
        let definition = |(name, text): (&String, &RawValue)| {
            let mut schema = serde_json::from_str(text.get()).ok()?;
            convert(&mut schema, 0);
            Some((name.clone(), raw(&schema)?))
        };
        Self {
            paths: texts(&mut paths.into_iter()),
            parameters: texts(&mut shared.into_iter()),
            definitions: schemas
                .iter()
                .map(|(name, text)| (name, &**text))
                .filter_map(definition)
                .collect(),
            wanted,
        }
    }
}

/// Merges definitions, sorted by name.
fn texts<'a>(all: impl Iterator<Item = &'a Definitions>) -> BTreeMap<&'a str, &'a RawValue> {
    all.flatten().map(|(name, text)| (name.as_str(), &**text)).collect()
}

#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct Document<'a> {
    definitions: BTreeMap<&'a str, &'a RawValue>,
    info: Value,
    parameters: BTreeMap<&'a str, &'a RawValue>,
    paths: BTreeMap<&'a str, &'a RawValue>,
    security: Value,
    security_definitions: Value,
    swagger: &'static str,
}

/// Returns the first available encoding that a client requests.
fn form(accept: &str) -> Option<Form> {
    if accept.is_empty() {
        return Some(Form::Json);
    }
    accept
        .split(',')
        .find_map(|clause| match clause.split(';').next().unwrap_or_default().trim() {
            "application/json" | "application/*" | "*/*" => Some(Form::Json),
            PROTOBUF | PROTOBUF_ASKED => Some(Form::Protobuf),
            _ => None,
        })
}

/// Converts a schema from v3 to v2, which lacks alternatives, defaults and nulls. Like kube-apiserver it omits such
/// details, so that old clients accept all valid objects.
fn convert(schema: &mut Value, level: usize) {
    let Value::Object(map) = schema else { return };
    if level > LEVELS {
        return;
    }
    // v3 wraps a reference in `allOf` if it has siblings.
    let wrapped = map.get("allOf").and_then(|all| all.get(0)?.get("$ref").cloned());
    if let Some(Value::String(reference)) = wrapped.or_else(|| map.remove("$ref")) {
        map.insert("$ref".into(), reference.replace(REF, "#/definitions/").into());
    }
    if map.contains_key("oneOf") && !map.contains_key("type") {
        // A quantity, or a value that is either a number or a string.
        map.insert("type".into(), "string".into());
    }
    for name in ["allOf", "anyOf", "oneOf", "not", "default", "nullable"] {
        map.remove(name);
    }
    if let Some(Value::Object(properties)) = map.get_mut("properties") {
        properties.values_mut().for_each(|it| convert(it, level + 1));
    }
    for name in ["items", "additionalProperties"] {
        if let Some(inner) = map.get_mut(name) {
            convert(inner, level + 1);
        }
    }
}

fn path_item(item: &Value, shared: &mut Shared) -> Value {
    let entries = item.as_object().into_iter().flatten().map(|(name, value)| {
        let value = match name.as_str() {
            "parameters" => parameters(value, shared),
            _ => operation(value, shared),
        };
        (name.clone(), value)
    });
    Value::Object(entries.collect())
}

fn operation(operation: &Value, shared: &mut Shared) -> Value {
    let Value::Object(mut out) = operation.clone() else {
        return Value::Null;
    };
    let mut all = Vec::new();
    if let Some(body) = out.remove("requestBody") {
        let content = body["content"].as_object();
        let mut parameter = json!({"in": "body", "name": "body", "schema": schema_of(content)});
        if body["required"] == true {
            parameter["required"] = true.into();
        }
        all.push(share(parameter, shared));
        let types: Vec<&SmolStr> = content.into_iter().flat_map(Map::keys).collect();
        out.insert("consumes".into(), json!(types));
    } else if out.contains_key("x-kubernetes-action") {
        out.insert("consumes".into(), json!(["*/*"]));
    }
    let mut produces: Vec<SmolStr> = Vec::new();
    if let Some(Value::Object(responses)) = out.get_mut("responses") {
        for response in responses.values_mut() {
            let mut told = json!({"description": response["description"]});
            if let Some(content) = response["content"].as_object() {
                produces = content.keys().cloned().collect();
                told["schema"] = schema_of(Some(content));
            }
            *response = told;
        }
    }
    if let Some(Value::Array(more)) = out.get("parameters").map(|it| parameters(it, shared)) {
        all.extend(more);
    }
    if !all.is_empty() {
        out.insert("parameters".into(), all.into());
    }
    if !produces.is_empty() {
        out.insert("produces".into(), json!(produces));
    }
    out.insert("schemes".into(), json!(["https"]));
    Value::Object(out)
}

/// Returns the schema of a request or response body, which is the same for every media type.
fn schema_of(content: Option<&Map>) -> Value {
    let first = content.and_then(|it| it.values().next());
    let mut schema = first.map(|it| it["schema"].clone()).unwrap_or_default();
    convert(&mut schema, 0);
    schema
}

/// Converts the parameters of a path or a query. v3 describes their types in a separate schema, v2 inline.
fn parameters(list: &Value, shared: &mut Shared) -> Value {
    let flat = list.as_array().into_iter().flatten().map(|parameter| {
        let mut parameter = parameter.clone();
        if let Value::Object(map) = &mut parameter
            && let Some(Value::Object(schema)) = map.remove("schema")
        {
            map.extend(schema);
        }
        share(parameter, shared)
    });
    flat.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rstest::rstest]
    #[case::reference(json!({"allOf": [{"$ref": "#/components/schemas/a.B"}], "default": {}, "description": "d"}),
        json!({"$ref": "#/definitions/a.B", "description": "d"}))]
    #[case::quantity(json!({"oneOf": [{"type": "string"}, {"type": "number"}]}), json!({"type": "string"}))]
    #[case::property_named_like_a_keyword(json!({"properties": {"default": {"type": "string", "default": "a"}}}),
        json!({"properties": {"default": {"type": "string"}}}))]
    fn n6_schemas_are_simplified_for_openapi_v2(#[case] mut schema: Value, #[case] expected: Value) {
        convert(&mut schema, 0);
        assert_eq!(schema, expected);
    }
}
