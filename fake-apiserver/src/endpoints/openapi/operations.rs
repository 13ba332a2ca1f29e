//! The operations of one resource in an OpenAPI document: as much as clients look at, in the real server's names.

use serde_json::{Map, Value, json};

use super::{META, REF};
use crate::api::resource::{ResourceInfo, Scope, SubresourceInfo};
use crate::registry::types::schema::resources::BUILTINS;

/// Parameters of lists and watches, beside those of all requests.
const LIST: [(&str, &str); 10] = [
    ("allowWatchBookmarks", "boolean"),
    ("continue", "string"),
    ("fieldSelector", "string"),
    ("labelSelector", "string"),
    ("limit", "integer"),
    ("resourceVersion", "string"),
    ("resourceVersionMatch", "string"),
    ("sendInitialEvents", "boolean"),
    ("timeoutSeconds", "integer"),
    ("watch", "boolean"),
];
const DELETE: [(&str, &str); 5] = [
    ("dryRun", "string"),
    ("gracePeriodSeconds", "integer"),
    ("ignoreStoreReadErrorWithClusterBreakingPotential", "boolean"),
    ("orphanDependents", "boolean"),
    ("propagationPolicy", "string"),
];
const WRITE: [(&str, &str); 3] = [
    ("dryRun", "string"),
    ("fieldManager", "string"),
    ("fieldValidation", "string"),
];
const FORCE: (&str, &str) = ("force", "boolean");

/// Finds the definition of a kind by group, version and kind.
pub(super) type Definitions<'a> = &'a dyn Fn(&str, &str, &str) -> Option<String>;

/// Action of an operation, and its name in OpenAPI.
#[derive(Clone, Copy)]
enum Action {
    List,
    Create,
    DeleteCollection,
    Read,
    Replace,
    Patch,
    Delete,
    /// A request handed on to something else, by its HTTP method.
    Connect(&'static str),
}

impl Action {
    fn method(self) -> &'static str {
        match self {
            Action::List | Action::Read => "get",
            Action::Create => "post",
            Action::DeleteCollection | Action::Delete => "delete",
            Action::Replace => "put",
            Action::Patch => "patch",
            Action::Connect(method) => method,
        }
    }

    /// `x-kubernetes-action`
    fn name(self) -> &'static str {
        match self {
            Action::List => "list",
            Action::DeleteCollection => "deletecollection",
            Action::Connect(_) => "connect",
            other => other.method(),
        }
    }

    fn operation(self) -> String {
        match self {
            Action::List => "list".to_owned(),
            Action::Create => "create".to_owned(),
            Action::DeleteCollection | Action::Delete => "delete".to_owned(),
            Action::Read => "read".to_owned(),
            Action::Replace => "replace".to_owned(),
            Action::Patch => "patch".to_owned(),
            Action::Connect(_) => "connect".to_owned(),
        }
    }
}

/// The kind an operation takes and answers.
struct Kind<'a> {
    group: &'a str,
    version: &'a str,
    kind: &'a str,
}

struct Writer<'a> {
    row: &'a ResourceInfo,
    definitions: Definitions<'a>,
    wanted: &'a mut Vec<String>,
}

/// Adds the paths of a resource; `wanted` grows by the definitions they refer to.
pub(super) fn add(paths: &mut Map<String, Value>, row: &ResourceInfo, of: Definitions<'_>, wanted: &mut Vec<String>) {
    let mut writer = Writer {
        row,
        definitions: of,
        wanted,
    };
    let prefix = if row.group.is_empty() {
        format!("/api/{}", row.version)
    } else {
        format!("/apis/{}/{}", row.group, row.version)
    };
    let namespaced = row.scope == Scope::Namespaced;
    let collection = if namespaced {
        format!("{prefix}/namespaces/{{namespace}}/{}", row.resource)
    } else {
        format!("{prefix}/{}", row.resource)
    };
    let kind = Kind {
        group: &row.group,
        version: &row.version,
        kind: &row.kind,
    };
    let has = |verb: &str| row.verbs.iter().any(|it| it == verb);
    if namespaced && has("list") {
        let list = writer.operation(Action::List, &kind, "", "ForAllNamespaces");
        paths.insert(
            format!("{prefix}/{}", row.resource),
            json!({"get": list, "parameters": path_parameters(false, false)}),
        );
    }
    let on_collection = [
        ("list", Action::List),
        ("create", Action::Create),
        ("deletecollection", Action::DeleteCollection),
    ];
    let on_item = [
        ("get", Action::Read),
        ("update", Action::Replace),
        ("patch", Action::Patch),
        ("delete", Action::Delete),
    ];
    let mut add = |path: &str, actions: &[(&str, Action)], item: bool| {
        let mut entry = Map::new();
        for (_, action) in actions.iter().filter(|(verb, _)| has(verb)) {
            entry.insert(action.method().to_owned(), writer.operation(*action, &kind, "", ""));
        }
        if !entry.is_empty() {
            entry.insert("parameters".into(), path_parameters(namespaced, item));
            paths.insert(path.to_owned(), Value::Object(entry));
        }
    };
    add(&collection, &on_collection, false);
    let item = format!("{collection}/{{name}}");
    add(&item, &on_item, true);
    for sub in row.subresources.iter() {
        let mut entry = writer.subresource(sub);
        entry.insert("parameters".into(), path_parameters(namespaced, true));
        paths.insert(format!("{item}/{}", sub.name), Value::Object(entry));
    }
}

impl Writer<'_> {
    fn subresource(&mut self, sub: &SubresourceInfo) -> Map<String, Value> {
        let kind = Kind {
            group: &sub.group,
            version: &sub.version,
            kind: &sub.kind,
        };
        let connects = sub.kind.ends_with("Options");
        let mut entry = Map::new();
        for verb in sub.verbs.iter() {
            let action = match (verb.as_ref(), connects) {
                ("get", true) => Action::Connect("get"),
                ("create", true) => Action::Connect("post"),
                ("update", true) => Action::Connect("put"),
                ("patch", true) => Action::Connect("patch"),
                ("delete", true) => Action::Connect("delete"),
                ("get", false) => Action::Read,
                ("create", false) => Action::Create,
                ("update", false) => Action::Replace,
                ("patch", false) => Action::Patch,
                ("delete", false) => Action::Delete,
                _ => continue,
            };
            entry.insert(
                action.method().to_owned(),
                self.operation(action, &kind, &title(&sub.name), ""),
            );
        }
        entry
    }

    fn operation(&mut self, action: Action, kind: &Kind<'_>, sub: &str, suffix: &str) -> Value {
        let row = self.row;
        let group = group_title(&row.group);
        let version = title(&row.version);
        let namespaced = row.scope == Scope::Namespaced && suffix.is_empty();
        let (collection, method) = match action {
            Action::DeleteCollection => ("Collection", String::new()),
            Action::Connect(method) => ("", title(method)),
            _ => ("", String::new()),
        };
        let scope = if namespaced { "Namespaced" } else { "" };
        let verb = action.operation();
        let id = format!(
            "{verb}{group}{version}{collection}{method}{scope}{}{sub}{suffix}",
            row.kind
        );
        let mut out = json!({
            "description": self.describe(action, sub),
            "operationId": id,
            "parameters": parameters(action),
            "responses": self.responses(action, kind),
            "tags": [format!("{}_{}", lower_first(&group), row.version)],
            "x-kubernetes-action": action.name(),
            "x-kubernetes-group-version-kind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
        });
        if let Some(body) = self.body(action, kind) {
            out["requestBody"] = body;
        }
        out
    }

    fn describe(&self, action: Action, sub: &str) -> String {
        let (kind, sub) = (&self.row.kind, lower_first(sub));
        let of = |verb: &str, article: &str| {
            if sub.is_empty() {
                format!("{verb} {article} {kind}")
            } else {
                format!("{verb} {sub} of {article} {kind}")
            }
        };
        match action {
            Action::List => format!("list or watch objects of kind {kind}"),
            Action::DeleteCollection => format!("delete collection of {kind}"),
            Action::Create => of("create", "a"),
            Action::Delete => of("delete", "a"),
            Action::Read => of("read", "the specified"),
            Action::Replace => of("replace", "the specified"),
            Action::Patch => of("partially update", "the specified"),
            Action::Connect(method) => format!("connect {} requests to {sub} of {kind}", method.to_uppercase()),
        }
    }

    fn reference(&mut self, name: Option<String>) -> Value {
        match name {
            Some(name) => {
                let reference = json!({"$ref": format!("{REF}{name}")});
                self.wanted.push(name);
                reference
            }
            None => json!({}),
        }
    }

    fn body(&mut self, action: Action, kind: &Kind<'_>) -> Option<Value> {
        let (name, types): (_, &[&str]) = match action {
            Action::Create | Action::Replace => {
                let name = (self.definitions)(kind.group, kind.version, kind.kind);
                return Some(json!({"content": {"*/*": {"schema": self.reference(name)}}, "required": true}));
            }
            Action::Patch if self.is_custom() => (
                "Patch",
                &[
                    "application/apply-patch+yaml",
                    "application/json-patch+json",
                    "application/merge-patch+json",
                ],
            ),
            Action::Patch => (
                "Patch",
                &[
                    "application/apply-patch+yaml",
                    "application/json-patch+json",
                    "application/merge-patch+json",
                    "application/strategic-merge-patch+json",
                ],
            ),
            Action::Delete | Action::DeleteCollection => ("DeleteOptions", &["*/*"]),
            Action::List | Action::Read | Action::Connect(_) => return None,
        };
        let schema = self.reference(Some(format!("{META}{name}")));
        let content: Map<String, Value> = types
            .iter()
            .map(|media| ((*media).to_owned(), json!({ "schema": schema })))
            .collect();
        let mut body = json!({ "content": content });
        if name == "Patch" {
            body["required"] = json!(true);
        }
        Some(body)
    }

    fn responses(&mut self, action: Action, kind: &Kind<'_>) -> Value {
        let name = match action {
            Action::Connect(_) => {
                return json!({
                    "200": {"description": "OK", "content": {"*/*": {"schema": {"type": "string"}}}},
                    "401": {"description": "Unauthorized"},
                });
            }
            Action::List => self.list_definition(),
            Action::DeleteCollection | Action::Delete => Some(format!("{META}Status")),
            _ => (self.definitions)(kind.group, kind.version, kind.kind),
        };
        let schema = self.reference(name);
        let mut types = vec!["application/json", "application/yaml"];
        if !self.is_custom() {
            types.push("application/vnd.kubernetes.protobuf");
        }
        if let Action::List = action {
            types.push("application/json;stream=watch");
        }
        let content: Map<String, Value> = types
            .iter()
            .map(|media| ((*media).to_owned(), json!({ "schema": schema })))
            .collect();
        let codes: &[(&str, &str)] = match action {
            Action::Create => &[("200", "OK"), ("201", "Created"), ("202", "Accepted")],
            Action::Replace | Action::Patch => &[("200", "OK"), ("201", "Created")],
            Action::Delete => &[("200", "OK"), ("202", "Accepted")],
            Action::List | Action::Read | Action::DeleteCollection | Action::Connect(_) => &[("200", "OK")],
        };
        let mut out = Map::new();
        for (code, text) in codes {
            out.insert((*code).to_owned(), json!({"description": text, "content": content}));
        }
        out.insert("401".into(), json!({"description": "Unauthorized"}));
        Value::Object(out)
    }

    fn list_definition(&self) -> Option<String> {
        let row = self.row;
        if !self.is_custom() {
            return (self.definitions)(&row.group, &row.version, &row.list_kind);
        }
        let own = (self.definitions)(&row.group, &row.version, &row.kind)?;
        let (package, _) = own.rsplit_once('.')?;
        Some(format!("{package}.{}", row.list_kind))
    }

    fn is_custom(&self) -> bool {
        BUILTINS.iter().all(|row| row.group != self.row.group)
    }
}

fn parameters(action: Action) -> Value {
    let list: Vec<(&str, &str)> = match action {
        Action::List => LIST.to_vec(),
        Action::DeleteCollection => LIST
            .into_iter()
            .filter(|(name, _)| !matches!(*name, "allowWatchBookmarks" | "watch"))
            .chain(DELETE)
            .collect(),
        Action::Delete => DELETE.to_vec(),
        Action::Create | Action::Replace => WRITE.to_vec(),
        Action::Patch => WRITE.into_iter().chain([FORCE]).collect(),
        Action::Read | Action::Connect(_) => Vec::new(),
    };
    list.iter()
        .map(|(name, kind)| json!({"name": name, "in": "query", "schema": {"type": kind, "uniqueItems": true}}))
        .collect()
}

fn path_parameters(namespaced: bool, item: bool) -> Value {
    let in_path = |name: &str| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string", "uniqueItems": true}});
    let mut out = Vec::new();
    if item {
        out.push(in_path("name"));
    }
    if namespaced {
        out.push(in_path("namespace"));
    }
    out.push(json!({"name": "pretty", "in": "query", "schema": {"type": "string", "uniqueItems": true}}));
    Value::Array(out)
}

/// `rbac.authorization.k8s.io` is `RbacAuthorization`.
fn group_title(group: &str) -> String {
    if group.is_empty() {
        return "Core".to_owned();
    }
    let group = group.strip_suffix(".k8s.io").unwrap_or(group);
    group.split('.').map(title).collect()
}

fn title(text: &str) -> String {
    let mut chars = text.chars();
    match chars.next() {
        Some(first) => first.to_uppercase().chain(chars).collect(),
        None => String::new(),
    }
}

fn lower_first(text: &str) -> String {
    let mut chars = text.chars();
    match chars.next() {
        Some(first) => first.to_lowercase().chain(chars).collect(),
        None => String::new(),
    }
}
