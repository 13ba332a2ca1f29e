//! Operations without a resource: discovery, the version, token keys, and logs.

use std::collections::BTreeSet;

use super::operations::{group_title, lower_first, title};
use super::{META, OpenApi, REF};
use crate::api::json::{Map, Value, json};

/// Name of the definition for responses of `/version`.
const VERSION: &str = "io.k8s.apimachinery.pkg.version.Info";
/// The media types of discovery.
const DISCOVERY: [&str; 3] = [
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
];

/// A document with a single operation that does not belong to a resource.
struct Fixed {
    /// The path below `/openapi/v3/`.
    document: &'static str,
    description: &'static str,
    operation: &'static str,
    tag: &'static str,
    /// The definition of the response; empty for a string.
    answer: &'static str,
    types: &'static [&'static str],
}

const FIXED: [Fixed; 5] = [
    Fixed {
        document: ".well-known/openid-configuration",
        description: "get service account issuer OpenID configuration, also known as the 'OIDC discovery doc'",
        operation: "getServiceAccountIssuerOpenIDConfiguration",
        tag: "WellKnown",
        answer: "",
        types: &["application/json"],
    },
    Fixed {
        document: "api",
        description: "get available API versions",
        operation: "getCoreAPIVersions",
        tag: "core",
        answer: "io.k8s.apimachinery.pkg.apis.meta.v1.APIVersions",
        types: &DISCOVERY,
    },
    Fixed {
        document: "apis",
        description: "get available API versions",
        operation: "getAPIVersions",
        tag: "apis",
        answer: "io.k8s.apimachinery.pkg.apis.meta.v1.APIGroupList",
        types: &DISCOVERY,
    },
    Fixed {
        document: "openid/v1/jwks",
        description: "get service account issuer OpenID JSON Web Key Set (contains public token verification keys)",
        operation: "getServiceAccountIssuerOpenIDKeyset",
        tag: "openid",
        answer: "",
        types: &["application/jwk-set+json"],
    },
    Fixed {
        document: "version",
        description: "get the version information for this server",
        operation: "getCodeVersion",
        tag: "version",
        answer: VERSION,
        types: &["application/json"],
    },
];

impl OpenApi<'_> {
    /// Returns the paths below `/openapi/v3/` of documents without resources: the fixed ones, and one for each built-in
    /// group.
    pub(super) fn group_documents(&self) -> BTreeSet<String> {
        let groups = self.builtins.iter().filter(|row| !row.group.is_empty());
        let groups = groups.map(|row| format!("apis/{}", row.group));
        let fixed = FIXED.iter().map(|it| it.document).chain(["logs"]).map(str::to_owned);
        if self.builtins.is_empty() {
            return BTreeSet::new();
        }
        fixed.chain(groups).collect()
    }
}

/// Returns the operations of a document without resources, and adds the definitions that these operations use to
/// `wanted`.
pub(super) fn operations(document: &str, wanted: &mut Vec<String>) -> Map {
    let mut paths = Map::new();
    if document == "logs" {
        let handler = |name: &str| json!({"operationId": name, "responses": {"401": {"description": "Unauthorized"}}, "tags": ["logs"]});
        paths.insert("/logs/".into(), json!({"get": handler("logFileListHandler")}));
        let parameter = json!({"description": "path to the log", "in": "path", "name": "logpath", "required": true,
            "schema": {"type": "string", "uniqueItems": true}});
        let entry = json!({"get": handler("logFileHandler"), "parameters": [parameter]});
        paths.insert("/logs/{logpath}".into(), entry);
        return paths;
    }
    let operation = match FIXED.iter().find(|it| it.document == document) {
        Some(fixed) => get(
            fixed.description,
            fixed.operation,
            fixed.tag,
            fixed.answer,
            fixed.types,
            wanted,
        ),
        None => {
            let group = group_title(document.trim_start_matches("apis/"));
            let answer = format!("{META}APIGroup");
            let id = format!("get{group}APIGroup");
            get(
                "get information of a group",
                &id,
                &lower_first(&group),
                &answer,
                &DISCOVERY,
                wanted,
            )
        }
    };
    paths.insert(format!("/{document}/").into(), json!({ "get": operation }));
    paths
}

/// Returns the discovery path of a version, and its operation.
pub(super) fn resources(group: &str, version: &str, wanted: &mut Vec<String>) -> (String, Value) {
    let path = match group {
        "" => format!("/api/{version}/"),
        _ => format!("/apis/{group}/{version}/"),
    };
    let group = group_title(group);
    let id = format!("get{group}{}APIResources", title(version));
    let tag = format!("{}_{version}", lower_first(&group));
    let answer = format!("{META}APIResourceList");
    let operation = get("get available resources", &id, &tag, &answer, &DISCOVERY, wanted);
    (path, json!({ "get": operation }))
}

fn get(description: &str, operation: &str, tag: &str, answer: &str, types: &[&str], wanted: &mut Vec<String>) -> Value {
    let schema = match answer {
        "" => json!({"type": "string"}),
        name => {
            wanted.push(name.to_owned());
            json!({"$ref": format!("{REF}{name}")})
        }
    };
    let content: Map = types
        .iter()
        .map(|media| ((*media).to_owned(), json!({ "schema": schema })))
        .collect();
    json!({
        "description": description,
        "operationId": operation,
        "responses": {
            "200": {"content": content, "description": "OK"},
            "401": {"description": "Unauthorized"},
        },
        "tags": [tag],
    })
}
