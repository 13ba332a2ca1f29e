//! Discovery of groups of aggregated API servers.

use crate::api::json::{Value, json};
use crate::registry::registrations::priority_of;

/// A version of a group that an aggregated API server serves.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RemoteVersion {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) group_priority: i64,
    pub(crate) version_priority: i64,
    /// The resources in the format of aggregated discovery; `None` if the server did not return them.
    pub(crate) resources: Option<Vec<Value>>,
}

/// Groups the versions, and omits groups that this server itself serves in other versions. Groups are sorted by name,
/// and their versions by priority.
pub(super) fn groups(remote: &[RemoteVersion], is_local: impl Fn(&str) -> bool) -> Vec<Vec<&RemoteVersion>> {
    let mut groups: Vec<Vec<&RemoteVersion>> = Vec::new();
    for version in remote.iter().filter(|it| !is_local(&it.group)) {
        match groups.iter_mut().find(|it| it[0].group == version.group) {
            Some(group) => group.push(version),
            None => groups.push(vec![version]),
        }
    }
    for group in &mut groups {
        group.sort_by(|a, b| {
            let by_priority = b.version_priority.cmp(&a.version_priority);
            by_priority.then_with(|| super::compare_versions(&a.version, &b.version))
        });
    }
    groups.sort_by(|a, b| a[0].group.cmp(&b[0].group));
    groups
}

/// Inserts groups of aggregated API servers into a list: before groups of a lower priority, and sorted by name among
/// groups of the same priority.
pub(super) fn merge(local: &mut Vec<Value>, remote: Vec<(i64, Value)>, name: impl Fn(&Value) -> String) {
    for (priority, entry) in remote {
        let own = name(&entry);
        let is_after = |it: &Value| {
            let other = name(it);
            let of_other = i64::from(priority_of(&other));
            of_other < priority || (of_other == priority && other > own)
        };
        let at = local.iter().position(is_after).unwrap_or(local.len());
        local.insert(at, entry);
    }
}

/// Returns `groupPriorityMinimum` of a group: the highest value of its versions.
pub(super) fn priority(versions: &[&RemoteVersion]) -> i64 {
    versions.iter().map(|it| it.group_priority).max().unwrap_or(0)
}

/// Finds the resources of a version in the aggregated document of its server.
pub(crate) fn in_aggregated(document: &Value, group: &str, version: &str) -> Option<Vec<Value>> {
    if document.get("kind").and_then(Value::as_str) != Some("APIGroupDiscoveryList") {
        return None;
    }
    let list = |value: &Value, field: &str| value.get(field).and_then(Value::as_array).cloned().unwrap_or_default();
    let items = list(document, "items");
    let named = items.iter().find(|it| it["metadata"]["name"] == group)?;
    let versions = list(named, "versions");
    let found = versions.iter().find(|it| it["version"] == version)?;
    Some(list(found, "resources"))
}

/// Converts the list of resources of a version (`ConvertGroupVersionIntoToDiscovery` of k8s.io/apiserver).
pub(crate) fn from_list(list: &Value, group: &str, version: &str) -> Vec<Value> {
    let text = |value: &Value, field: &str| value.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let kind = |resource: &Value| {
        let or = |own: String, other: &str| if own.is_empty() { other.to_owned() } else { own };
        json!({
            "group": or(text(resource, "group"), group),
            "version": or(text(resource, "version"), version),
            "kind": text(resource, "kind"),
        })
    };
    let scope = |resource: &Value| match resource["namespaced"] == true {
        true => "Namespaced",
        false => "Cluster",
    };
    let mut out: Vec<Value> = Vec::new();
    for resource in list.get("resources").and_then(Value::as_array).into_iter().flatten() {
        let name = text(resource, "name");
        let Some((parent, subresource)) = name.split_once('/') else {
            let mut entry = json!({
                "resource": name, "responseKind": kind(resource), "scope": scope(resource),
                "singularResource": text(resource, "singularName"),
                "verbs": resource.get("verbs").cloned().unwrap_or_default(),
            });
            for field in ["shortNames", "categories"] {
                if let Some(value) = resource.get(field) {
                    entry[field] = value.clone();
                }
            }
            out.push(entry);
            continue;
        };
        let entry = json!({
            "subresource": subresource, "responseKind": kind(resource),
            "verbs": resource.get("verbs").cloned().unwrap_or_default(),
        });
        let at = out.iter().position(|it| it["resource"] == parent).unwrap_or_else(|| {
            // A subresource may exist without its resource.
            out.push(json!({"resource": parent, "scope": scope(resource), "verbs": []}));
            out.len() - 1
        });
        let mut subresources = out[at].get("subresources").and_then(Value::as_array).cloned();
        subresources.get_or_insert_default().push(entry);
        out[at]["subresources"] = Value::Array(subresources.unwrap_or_default());
    }
    out
}
