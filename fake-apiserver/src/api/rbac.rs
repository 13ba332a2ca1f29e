//! `Attributes` and `PolicyRule`: the permissions that a request requires, and the permissions that a role grants (rule
//! Q2).

use std::fmt;

use super::field::quote;
use crate::api::json::{Map, Value};

/// Attributes of a request for authorization, like Kubernetes' `authorizer.Attributes`.
///
/// ```
/// use fake_apiserver::api::rbac::{Attributes, PolicyRule};
///
/// let rule = PolicyRule::resources(["get", "list"], [""], ["pods"]);
/// let get = Attributes { verb: "get", resource: "pods", namespace: "shop", name: "web-0", ..Attributes::default() };
/// assert!(rule.allows(&get));
/// assert!(!rule.allows(&Attributes { subresource: "log", ..get }));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Attributes<'a> {
    /// The verb; for a non-resource path the HTTP method in lower case.
    pub verb: &'a str,
    /// API group; empty for core.
    pub group: &'a str,
    /// Plural resource.
    pub resource: &'a str,
    /// Subresource; empty for the resource itself.
    pub subresource: &'a str,
    /// Namespace; empty for all namespaces and for cluster-scoped objects.
    pub namespace: &'a str,
    /// Name; empty for a collection.
    pub name: &'a str,
    /// The path of a non-resource request; empty for a resource request.
    pub path: &'a str,
}

impl Attributes<'_> {
    /// Returns `true` if the request is for a resource.
    pub fn is_resource(&self) -> bool {
        self.path.is_empty()
    }

    /// Formats a refusal: `User "u" cannot list resource "pods" in API group "" in the namespace "ns"` (rule A23).
    pub(crate) fn refusal(&self, user: &str) -> String {
        let (user, verb) = (quote(user), self.verb);
        let text = if self.is_resource() {
            let resource = quote(&self.combined_resource());
            let place = match self.namespace {
                "" => "at the cluster scope".to_owned(),
                namespace => format!("in the namespace {}", quote(namespace)),
            };
            format!(
                "User {user} cannot {verb} resource {resource} in API group {} {place}",
                quote(self.group)
            )
        } else {
            format!("User {user} cannot {verb} path {}", quote(self.path))
        };
        // Escapes HTML like kube-apiserver, because a browser might display the message.
        text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
    }

    /// Returns the resource with its subresource, if any: `pods` or `pods/log`.
    fn combined_resource(&self) -> String {
        match self.subresource {
            "" => self.resource.to_owned(),
            subresource => format!("{}/{subresource}", self.resource),
        }
    }
}

/// One rule of a Role or ClusterRole, as `rbac/v1.PolicyRule`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PolicyRule {
    /// Verbs; `*` matches all.
    pub verbs: Vec<String>,
    /// API groups; `*` matches all, an empty string is the core group.
    pub api_groups: Vec<String>,
    /// Plural names, `pods/log` for a subresource; `*` matches every resource, `*/scale` that subresource of every
    /// resource.
    pub resources: Vec<String>,
    /// Object names that the rule is limited to; empty for all.
    pub resource_names: Vec<String>,
    /// Non-resource paths; a `*` at the end matches any suffix.
    pub non_resource_urls: Vec<String>,
}

fn texts<T: Into<String>>(items: impl IntoIterator<Item = T>) -> Vec<String> {
    items.into_iter().map(Into::into).collect()
}

fn has(list: &[String], text: &str) -> bool {
    list.iter().any(|it| it == text)
}

fn has_or_all(list: &[String], text: &str) -> bool {
    list.iter().any(|it| it == "*" || it == text)
}

impl PolicyRule {
    /// Creates a rule for resources.
    pub fn resources<T: Into<String>>(
        verbs: impl IntoIterator<Item = T>,
        api_groups: impl IntoIterator<Item = T>,
        resources: impl IntoIterator<Item = T>,
    ) -> Self {
        Self {
            verbs: texts(verbs),
            api_groups: texts(api_groups),
            resources: texts(resources),
            ..Self::default()
        }
    }

    /// Creates a rule for non-resource paths.
    pub fn paths<T: Into<String>>(verbs: impl IntoIterator<Item = T>, urls: impl IntoIterator<Item = T>) -> Self {
        Self {
            verbs: texts(verbs),
            non_resource_urls: texts(urls),
            ..Self::default()
        }
    }

    /// Returns rules that grant all permissions, like the rules of `cluster-admin`.
    pub(crate) fn everything() -> [Self; 2] {
        [Self::resources(["*"], ["*"], ["*"]), Self::paths(["*"], ["*"])]
    }

    /// Parses the rules of a Role or ClusterRole. Fields of a wrong type are treated as absent.
    pub fn all_of(role: &serde_json::Map<String, serde_json::Value>) -> Vec<Self> {
        let rules = role.get("rules").cloned().map(Value::from);
        Self::of_role(&rules.map(|rules| ("rules", rules)).into_iter().collect())
    }

    /// Parses the rules of a role in the server's JSON representation.
    pub(crate) fn of_role(role: &Map) -> Vec<Self> {
        let rules = role.get("rules").and_then(Value::as_array);
        rules.into_iter().flatten().map(Self::from_value).collect()
    }

    fn from_value(value: &Value) -> Self {
        let list = |field: &str| {
            let items = value.get(field).and_then(Value::as_array);
            texts(items.into_iter().flatten().filter_map(Value::as_str))
        };
        Self {
            verbs: list("verbs"),
            api_groups: list("apiGroups"),
            resources: list("resources"),
            resource_names: list("resourceNames"),
            non_resource_urls: list("nonResourceURLs"),
        }
    }

    /// Returns the rule as JSON; empty fields are omitted.
    pub fn to_value(&self) -> serde_json::Value {
        let fields = self.fields().into_iter().filter(|(_, _, list)| !list.is_empty());
        fields.map(|(_, json, list)| (json, list.clone())).collect()
    }

    /// Returns `true` if the rule allows a request.
    pub fn allows(&self, request: &Attributes<'_>) -> bool {
        if !has_or_all(&self.verbs, request.verb) {
            return false;
        }
        if !request.is_resource() {
            return self.non_resource_urls.iter().any(|url| url_covers(url, request.path));
        }
        has_or_all(&self.api_groups, request.group)
            && (self.resource_names.is_empty() || has(&self.resource_names, request.name))
            && self.resources.iter().any(|rule| resource_matches(rule, request))
    }

    /// Returns `true` if the rule grants everything that `part` grants. `part` is a result of [`parts`](Self::parts).
    fn covers(&self, part: &Self) -> bool {
        let names = self.resource_names.is_empty()
            || (!part.resource_names.is_empty() && part.resource_names.iter().all(|it| has(&self.resource_names, it)));
        names
            && part.verbs.iter().all(|it| has_or_all(&self.verbs, it))
            && part.api_groups.iter().all(|it| has_or_all(&self.api_groups, it))
            && part.resources.iter().all(|it| self.covers_resource(it))
            && part.non_resource_urls.iter().all(|it| {
                self.non_resource_urls
                    .iter()
                    .any(|url| url == it || url_covers(url, it))
            })
    }

    fn covers_resource(&self, resource: &str) -> bool {
        let of_all = |sub: &str| self.resources.iter().any(|it| it.strip_prefix("*/") == Some(sub));
        has_or_all(&self.resources, resource) || resource.split_once('/').is_some_and(|(_, sub)| of_all(sub))
    }

    /// Splits the rule into rules with at most one item per field.
    pub fn parts(&self) -> Vec<Self> {
        let mut parts = Vec::new();
        for group in &self.api_groups {
            for resource in &self.resources {
                for verb in &self.verbs {
                    let part = Self::resources([verb], [group], [resource]);
                    if self.resource_names.is_empty() {
                        parts.push(part);
                        continue;
                    }
                    parts.extend(self.resource_names.iter().map(|name| Self {
                        resource_names: vec![name.clone()],
                        ..part.clone()
                    }));
                }
            }
        }
        for url in &self.non_resource_urls {
            parts.extend(self.verbs.iter().map(|verb| Self::paths([verb], [url])));
        }
        parts
    }

    /// Returns the [parts](Self::parts) of `wanted` that no single rule of `held` grants.
    pub(crate) fn missing(held: &[Self], wanted: &[Self]) -> Vec<Self> {
        let parts = wanted.iter().flat_map(Self::parts);
        parts
            .filter(|part| !held.iter().any(|rule| rule.covers(part)))
            .collect()
    }

    /// Merges all rules for the same single resource and the same object name, if any, into one rule with all of their
    /// verbs. Other rules are returned unchanged, before the merged ones.
    pub fn compact(rules: Vec<Self>) -> Vec<Self> {
        let mut simple: Vec<Self> = Vec::new();
        let mut compact = Vec::new();
        for rule in rules {
            let is_simple = rule.api_groups.len() == 1
                && rule.resources.len() == 1
                && rule.resource_names.len() <= 1
                && rule.non_resource_urls.is_empty();
            if !is_simple {
                compact.push(rule);
                continue;
            }
            let same = |it: &&mut Self| {
                it.api_groups == rule.api_groups
                    && it.resources == rule.resources
                    && it.resource_names == rule.resource_names
            };
            match simple.iter_mut().find(same) {
                Some(known) => {
                    for verb in rule.verbs {
                        if !has(&known.verbs, &verb) {
                            known.verbs.push(verb);
                        }
                    }
                }
                None => simple.push(rule),
            }
        }
        compact.extend(simple);
        compact
    }

    /// Returns the fields with their names in Go and in JSON, in the order of kube-apiserver's messages.
    fn fields(&self) -> [(&'static str, &'static str, &Vec<String>); 5] {
        [
            ("APIGroups", "apiGroups", &self.api_groups),
            ("Resources", "resources", &self.resources),
            ("NonResourceURLs", "nonResourceURLs", &self.non_resource_urls),
            ("ResourceNames", "resourceNames", &self.resource_names),
            ("Verbs", "verbs", &self.verbs),
        ]
    }
}

/// The format of a rule in the server's messages: `{APIGroups:[""], Resources:["pods"], Verbs:["get"]}`.
impl fmt::Display for PolicyRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "{";
        for (name, _, list) in self.fields().into_iter().filter(|(_, _, list)| !list.is_empty()) {
            write!(f, "{separator}{name}:{}", quoted(list))?;
            separator = ", ";
        }
        f.write_str(if separator == "{" { "{}" } else { "}" })
    }
}

/// Formats a list like Go's `%q`: `["a" "b"]`.
pub(crate) fn quoted(list: &[String]) -> String {
    let items: Vec<String> = list.iter().map(|it| quote(it)).collect();
    format!("[{}]", items.join(" "))
}

fn resource_matches(rule: &str, request: &Attributes<'_>) -> bool {
    if rule == "*" {
        return true;
    }
    match (rule.split_once('/'), request.subresource) {
        (None, "") => rule == request.resource,
        (Some((resource, sub)), wanted) => {
            !wanted.is_empty() && sub == wanted && (resource == "*" || resource == request.resource)
        }
        (None, _) => false,
    }
}

fn url_covers(url: &str, path: &str) -> bool {
    match url.strip_suffix('*') {
        Some(start) => path.starts_with(start.trim_end_matches('*')),
        None => url == path,
    }
}

#[cfg(test)]
mod tests {
    use crate::api::json::json;
    use rstest::rstest;

    use super::*;

    fn request<'a>(verb: &'a str, group: &'a str, resource: &'a str, name: &'a str) -> Attributes<'a> {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        Attributes {
            verb,
            group,
            resource,
            subresource,
            name,
            ..Attributes::default()
        }
    }

    fn rule(value: &Value) -> PolicyRule {
        PolicyRule::from_value(value)
    }

    #[rstest]
    #[case::exact("get", "apps", "deployments", "", true)]
    #[case::other_verb("delete", "apps", "deployments", "", false)]
    #[case::other_group("get", "", "deployments", "", false)]
    #[case::subresource_is_not_its_resource("get", "apps", "deployments/status", "", false)]
    #[case::subresource_matched_by_a_wildcard("get", "apps", "replicasets/scale", "x", true)]
    #[case::resource_is_not_its_subresource("get", "apps", "replicasets", "x", false)]
    fn rule_only_allows_matching_requests(
        #[case] verb: &str,
        #[case] group: &str,
        #[case] resource: &str,
        #[case] name: &str,
        #[case] allowed: bool,
    ) {
        let rule = PolicyRule::resources(["get"], ["apps"], ["deployments", "*/scale"]);
        assert_eq!(rule.allows(&request(verb, group, resource, name)), allowed);
    }

    #[rstest]
    #[case("a", true)]
    #[case("b", false)]
    #[case("", false)]
    fn rule_with_resource_names_only_permits_these_names(#[case] name: &str, #[case] allowed: bool) {
        let rule = rule(&json!({"verbs": ["*"], "apiGroups": [""], "resources": ["*"], "resourceNames": ["a"]}));
        assert_eq!(rule.allows(&request("get", "", "secrets", name)), allowed);
    }

    #[rstest]
    #[case("/healthz", "/healthz", true)]
    #[case("/healthz", "/healthz/etcd", false)]
    #[case("/apis/*", "/apis/apps", true)]
    #[case("/apis/*", "/apis", false)]
    #[case("*", "/anything", true)]
    fn rule_path_matches_exactly_or_by_the_prefix_before_a_star(
        #[case] url: &str,
        #[case] path: &str,
        #[case] allowed: bool,
    ) {
        let request = Attributes {
            verb: "get",
            path,
            ..Attributes::default()
        };
        assert_eq!(PolicyRule::paths(["get"], [url]).allows(&request), allowed);
    }

    #[test]
    fn missing_permissions_are_listed_by_resource() {
        let held = [PolicyRule::resources(["get"], [""], ["pods", "*/scale"])];
        let wanted = [PolicyRule::resources(
            ["get", "list", "watch"],
            [""],
            ["pods", "x/scale"],
        )];
        let missing = PolicyRule::compact(PolicyRule::missing(&held, &wanted));
        let shown: Vec<String> = missing.iter().map(ToString::to_string).collect();
        assert_eq!(
            shown,
            [
                r#"{APIGroups:[""], Resources:["pods"], Verbs:["list" "watch"]}"#,
                r#"{APIGroups:[""], Resources:["x/scale"], Verbs:["list" "watch"]}"#
            ]
        );
    }

    #[test]
    fn rule_round_trips() {
        let value = json!({
            "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"], "verbs": ["get"],
        });
        assert_eq!(Value::from(rule(&value).to_value()), value);
        let value = json!({"nonResourceURLs": ["/x"], "verbs": ["get"]});
        assert_eq!(Value::from(rule(&value).to_value()), value);
    }
}
