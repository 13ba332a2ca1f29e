//! The operations of a resource in an OpenAPI document. Names that clients depend on are equal to kube-apiserver's.

use super::parameters::{self, DELETE, LIST, PATCH, WRITE, in_query};
use super::{META, REF};
use crate::api::json::{Map, Value, json};
use crate::api::resource::{ResourceInfo, Scope, SubresourceInfo};
use crate::registry::scheme::builtins::strategy;
use crate::registry::types::schema::served::group_rank;

/// Function that returns the name of the definition of a group, version and kind.
pub(super) type Definitions<'a> = &'a dyn Fn(&str, &str, &str) -> Option<String>;

/// Action of an operation.
#[derive(Clone, Copy)]
enum Action {
    List,
    /// The deprecated path that watches a list.
    WatchList,
    /// The deprecated path that watches one object.
    Watch,
    Create,
    DeleteCollection,
    Read,
    Replace,
    Patch,
    Delete,
    /// Forwards a request with this HTTP method.
    Connect(&'static str),
}

impl Action {
    fn method(self) -> &'static str {
        match self {
            Action::List | Action::WatchList | Action::Watch | Action::Read => "get",
            Action::Create => "post",
            Action::DeleteCollection | Action::Delete => "delete",
            Action::Replace => "put",
            Action::Patch => "patch",
            Action::Connect(method) => method,
        }
    }

    /// Returns the value of `x-kubernetes-action`.
    fn name(self) -> &'static str {
        match self {
            Action::List => "list",
            Action::WatchList => "watchlist",
            Action::Watch => "watch",
            Action::DeleteCollection => "deletecollection",
            Action::Connect(_) => "connect",
            other => other.method(),
        }
    }

    fn operation(self) -> String {
        match self {
            Action::List => "list".to_owned(),
            Action::WatchList | Action::Watch => "watch".to_owned(),
            Action::Create => "create".to_owned(),
            Action::DeleteCollection | Action::Delete => "delete".to_owned(),
            Action::Read => "read".to_owned(),
            Action::Replace => "replace".to_owned(),
            Action::Patch => "patch".to_owned(),
            Action::Connect(_) => "connect".to_owned(),
        }
    }
}

/// The kind of the objects that an operation accepts and returns.
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

/// Adds the paths of a resource, and adds the definitions that these paths use to `wanted`.
pub(super) fn add(paths: &mut Map, row: &ResourceInfo, of: Definitions<'_>, wanted: &mut Vec<String>) {
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
        let path = format!("{prefix}/{}", row.resource);
        insert(paths, path, [("get", list)], parameters::of_path(false, None));
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
        let actions = actions.iter().filter(|(verb, _)| has(verb));
        let operations = actions.map(|(_, action)| (action.method(), writer.operation(*action, &kind, "", "")));
        let operations: Vec<(&str, Value)> = operations.collect();
        if !operations.is_empty() {
            insert(
                paths,
                path.to_owned(),
                operations,
                parameters::of_path(namespaced, item.then_some(kind.kind)),
            );
        }
    };
    add(&collection, &on_collection, false);
    let item = format!("{collection}/{{name}}");
    add(&item, &on_item, true);
    if has("watch") && !writer.is_custom() {
        writer.add_watches(paths, &prefix, &kind);
    }
    for sub in row.subresources.iter() {
        let path = format!("{item}/{}", sub.name);
        let (mut own, operations) = writer.subresource(sub, "");
        own.extend(parameters::of_path(namespaced, Some(&sub.kind)));
        if sub.name == "proxy" {
            let (mut own, operations) = writer.subresource(sub, "WithPath");
            own.extend(parameters::of_path(namespaced, Some(&sub.kind)));
            own.push(parameters::in_path("path", "path to the resource"));
            insert(paths, format!("{path}/{{path}}"), operations, own);
        }
        insert(paths, path, operations, own);
    }
}

/// Adds the operations of a path, with its parameters.
fn insert<'a>(
    paths: &mut Map,
    path: String,
    operations: impl IntoIterator<Item = (&'a str, Value)>,
    mut own: Vec<Value>,
) {
    let operations = operations.into_iter();
    let mut entry: Map = operations.map(|(method, it)| (method.to_owned(), it)).collect();
    if entry.values().all(|it| it["x-kubernetes-action"] == "connect") {
        own.retain(|it| it["name"] != "pretty");
    }
    entry.insert("parameters".into(), own.into());
    parameters::share(&mut entry);
    paths.insert(path.into(), Value::Object(entry));
}

impl Writer<'_> {
    /// Adds the deprecated paths with `/watch/`.
    fn add_watches(&mut self, paths: &mut Map, prefix: &str, kind: &Kind<'_>) {
        let (resource, namespaced) = (&self.row.resource, self.row.scope == Scope::Namespaced);
        let collection = match namespaced {
            true => format!("{prefix}/watch/namespaces/{{namespace}}/{resource}"),
            false => format!("{prefix}/watch/{resource}"),
        };
        let item = format!("{collection}/{{name}}");
        let mut all = vec![
            (collection, Action::WatchList, "", namespaced, false),
            (item, Action::Watch, "", namespaced, true),
        ];
        if namespaced {
            let everywhere = format!("{prefix}/watch/{resource}");
            all.push((everywhere, Action::WatchList, "ForAllNamespaces", false, false));
        }
        for (path, action, suffix, namespaced, item) in all {
            let operation = self.operation(action, kind, "", suffix);
            let own = parameters::of_path(namespaced, item.then_some(kind.kind));
            insert(paths, path, [("get", operation)], own);
        }
    }

    /// Returns the operations of a subresource by method, and the query parameters for the fields of its options.
    fn subresource(&mut self, sub: &SubresourceInfo, suffix: &str) -> (Vec<Value>, Vec<(&'static str, Value)>) {
        let kind = Kind {
            group: &sub.group,
            version: &sub.version,
            kind: &sub.kind,
        };
        let connects = sub.kind.ends_with("Options");
        let mut actions = Vec::new();
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
            actions.push(action);
        }
        if sub.name == "proxy" {
            actions.extend(["head", "options"].map(Action::Connect));
        }
        let operations = actions.into_iter().map(|action| {
            let mut operation = self.operation(action, &kind, &title(&sub.name), suffix);
            if sub.name == "log" {
                let media = [
                    "application/json",
                    "application/vnd.kubernetes.protobuf",
                    "application/yaml",
                    "text/plain",
                ];
                let content = media.map(|it| (it.to_owned(), json!({"schema": {"type": "string"}})));
                operation["responses"]["200"]["content"] = Value::Object(content.into_iter().collect());
            }
            (action.method(), operation)
        });
        let operations = operations.collect();
        (parameters::of_subresource(&self.row.resource, &sub.name), operations)
    }

    fn operation(&mut self, action: Action, kind: &Kind<'_>, sub: &str, suffix: &str) -> Value {
        let row = self.row;
        let group = group_title(&row.group);
        let version = title(&row.version);
        let namespaced = row.scope == Scope::Namespaced && suffix != "ForAllNamespaces";
        let (collection, method) = match action {
            Action::DeleteCollection => ("Collection", String::new()),
            Action::Connect(method) => ("", title(method)),
            _ => ("", String::new()),
        };
        let scope = if namespaced { "Namespaced" } else { "" };
        let verb = action.operation();
        let list = if matches!(action, Action::WatchList) {
            "List"
        } else {
            ""
        };
        let id = format!(
            "{verb}{group}{version}{collection}{method}{scope}{}{sub}{list}{suffix}",
            row.kind
        );
        let mut out = json!({
            "description": self.describe(action, sub),
            "operationId": id,
            "parameters": of_action(action),
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
            let article = if article.is_empty() {
                String::new()
            } else {
                format!("{article} ")
            };
            if sub.is_empty() {
                format!("{verb} {article}{kind}")
            } else {
                format!("{verb} {sub} of {article}{kind}")
            }
        };
        let article = article_of(kind);
        match action {
            Action::List if self.row.verbs.iter().all(|it| it != "watch") => format!("list objects of kind {kind}"),
            Action::List => format!("list or watch objects of kind {kind}"),
            Action::WatchList => format!(
                "watch individual changes to a list of {kind}. deprecated: use the 'watch' parameter with a list \
                 operation instead."
            ),
            Action::Watch => format!(
                "watch changes to an object of kind {kind}. deprecated: use the 'watch' parameter with a list \
                 operation instead, filtered to a single item with the 'fieldSelector' parameter."
            ),
            Action::DeleteCollection => format!("delete collection of {kind}"),
            Action::Create => of("create", article),
            Action::Delete => of("delete", article),
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
            Action::List | Action::WatchList | Action::Watch | Action::Read | Action::Connect(_) => return None,
        };
        let schema = self.reference(Some(format!("{META}{name}")));
        let content: Map = types
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
            Action::WatchList | Action::Watch => Some(format!("{META}WatchEvent")),
            Action::Delete if self.answers_deleted(kind) => (self.definitions)(kind.group, kind.version, kind.kind),
            Action::DeleteCollection | Action::Delete => Some(format!("{META}Status")),
            _ => (self.definitions)(kind.group, kind.version, kind.kind),
        };
        let schema = self.reference(name);
        let mut types = vec!["application/json", "application/yaml"];
        if !self.is_custom() {
            types.push("application/vnd.kubernetes.protobuf");
        }
        if let Action::List | Action::WatchList | Action::Watch = action {
            types.push("application/json;stream=watch");
            if !self.is_custom() {
                types.push("application/vnd.kubernetes.protobuf;stream=watch");
            }
        }
        let content: Map = types
            .iter()
            .map(|media| ((*media).to_owned(), json!({ "schema": schema })))
            .collect();
        let codes: &[(&str, &str)] = match action {
            Action::Create => &[("200", "OK"), ("201", "Created"), ("202", "Accepted")],
            Action::Replace | Action::Patch => &[("200", "OK"), ("201", "Created")],
            Action::Delete => &[("200", "OK"), ("202", "Accepted")],
            Action::List
            | Action::WatchList
            | Action::Watch
            | Action::Read
            | Action::DeleteCollection
            | Action::Connect(_) => &[("200", "OK")],
        };
        let mut out = Map::new();
        for (code, text) in codes {
            out.insert((*code).into(), json!({"description": text, "content": content}));
        }
        out.insert("401".into(), json!({"description": "Unauthorized"}));
        Value::Object(out)
    }

    /// Returns `true` if OpenAPI declares that a delete returns the deleted object. It does not declare this for
    /// namespaces, although deleting a namespace returns it as well.
    fn answers_deleted(&self, kind: &Kind<'_>) -> bool {
        !self.is_custom()
            && kind.kind == self.row.kind
            && kind.kind != "Namespace"
            && strategy(&self.row.group, &self.row.resource)
                .facts()
                .returns_deleted_object
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
        group_rank(&self.row.group).is_none()
    }
}

/// Returns the indefinite article of a noun (`GetArticleForNoun`).
fn article_of(noun: &str) -> &'static str {
    if noun.ends_with('s') && !noun.ends_with("ss") {
        ""
    } else if noun.starts_with(['A', 'E', 'I', 'O', 'U']) {
        "an"
    } else {
        "a"
    }
}

fn of_action(action: Action) -> Vec<Value> {
    match action {
        Action::List | Action::WatchList | Action::Watch => in_query("list", &LIST),
        Action::DeleteCollection => {
            let mut all = in_query("list", &LIST);
            all.retain(|it| it["name"] != "allowWatchBookmarks" && it["name"] != "watch");
            all.extend(in_query("delete", &DELETE));
            all.sort_by(|one, other| one["name"].as_str().cmp(&other["name"].as_str()));
            all
        }
        Action::Delete => in_query("delete", &DELETE),
        Action::Create | Action::Replace => in_query("write", &WRITE),
        Action::Patch => in_query("patch", &PATCH),
        Action::Read | Action::Connect(_) => Vec::new(),
    }
}

/// Converts a group name: `rbac.authorization.k8s.io` to `RbacAuthorization`.
pub(super) fn group_title(group: &str) -> String {
    if group.is_empty() {
        return "Core".to_owned();
    }
    let group = group.strip_suffix(".k8s.io").unwrap_or(group);
    group.split('.').map(title).collect()
}

pub(super) fn title(text: &str) -> String {
    let mut chars = text.chars();
    match chars.next() {
        Some(first) => first.to_uppercase().chain(chars).collect(),
        None => String::new(),
    }
}

pub(super) fn lower_first(text: &str) -> String {
    let mut chars = text.chars();
    match chars.next() {
        Some(first) => first.to_lowercase().chain(chars).collect(),
        None => String::new(),
    }
}
