//! Builds discovery documents, `/version`, health checks and the list of paths from the served resources (rules N1 to
//! N5, N9, N10).

pub(crate) mod protobuf;
pub(crate) mod remote;

use std::cmp::Ordering;
use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256, Sha512};

use crate::api::json::{Map, Value, json};
use crate::api::kubernetes_version::KubernetesVersion;
use crate::api::resource::{ResourceInfo, Scope, SubresourceInfo, Text};
use crate::registry::custom::definition;
use crate::registry::types::schema::optional::stable_version;
use crate::registry::types::schema::served::group_rank;
use crate::registry::types::version_order;
use remote::RemoteVersion;

/// The media type of an aggregated discovery document.
pub(crate) const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Built-in resources that may be served in a group or version in which they are not stored: group, resource, and the
/// group and version of the stored form.
const STORED_AS: [(&str, &str, &str, &str); 5] = [
    (
        "apiextensions.k8s.io",
        "customresourcedefinitions",
        "apiextensions.k8s.io",
        "v1beta1",
    ),
    (
        "admissionregistration.k8s.io",
        "mutatingadmissionpolicies",
        "admissionregistration.k8s.io",
        "v1beta1",
    ),
    (
        "admissionregistration.k8s.io",
        "mutatingadmissionpolicybindings",
        "admissionregistration.k8s.io",
        "v1beta1",
    ),
    ("autoscaling", "horizontalpodautoscalers", "autoscaling", "v2"),
    ("events.k8s.io", "events", "", "v1"),
];

/// A group with its versions, the preferred one first, and each version's resources.
struct Group<'a> {
    name: &'a str,
    versions: Vec<(&'a str, Vec<&'a ResourceInfo>)>,
}

/// Builds the document of `/api`.
pub(crate) fn core_versions(server_address: &str) -> Value {
    json!({
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": server_address}],
    })
}

/// Builds the document of `/apis`.
pub(crate) fn group_list(rows: &[&ResourceInfo], remote: &[RemoteVersion]) -> Value {
    let local = groups(rows);
    let mut groups: Vec<Value> = local
        .iter()
        .filter(|group| !group.name.is_empty())
        .map(|group| Value::Object(describe_group(group)))
        .collect();
    let others = remote_groups(&local, remote);
    let others = others
        .iter()
        .map(|it| (remote::priority(it), describe_remote(it).into()));
    remote::merge(&mut groups, others.collect(), |it| name_of(&it["name"]));
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// Builds the document of `/apis/GROUP`; `None` if the group is not served.
pub(crate) fn group(rows: &[&ResourceInfo], remote: &[RemoteVersion], name: &str) -> Option<Value> {
    let groups = groups(rows);
    let group = groups.iter().find(|group| group.name == name && !name.is_empty());
    let others = remote_groups(&groups, remote);
    let mut out = match group {
        Some(group) => describe_group(group),
        None => describe_remote(others.iter().find(|it| it[0].group == name)?),
    };
    out.insert("kind".into(), json!("APIGroup"));
    out.insert("apiVersion".into(), json!("v1"));
    Some(Value::Object(out))
}

/// Returns the groups of aggregated API servers, without the groups of this server.
fn remote_groups<'a>(local: &[Group<'_>], remote: &'a [RemoteVersion]) -> Vec<Vec<&'a RemoteVersion>> {
    remote::groups(remote, |name| local.iter().any(|it| it.name == name))
}

fn name_of(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn describe_group(group: &Group<'_>) -> Map {
    describe(group.name, group.versions.iter().map(|(version, _)| *version))
}

fn describe_remote(versions: &[&RemoteVersion]) -> Map {
    let name = versions.first().map_or("", |it| &it.group);
    describe(name, versions.iter().map(|it| &*it.version))
}

fn describe<'a>(name: &str, versions: impl Iterator<Item = &'a str>) -> Map {
    let versions: Vec<Value> = versions
        .map(|version| json!({"groupVersion": format!("{name}/{version}"), "version": version}))
        .collect();
    let mut out = Map::new();
    out.insert("name".into(), json!(name));
    out.insert("preferredVersion".into(), versions.first().cloned().unwrap_or_default());
    out.insert("versions".into(), Value::Array(versions));
    out
}

/// Builds the document of `/api/v1` or `/apis/GROUP/VERSION`; `None` if the version is not served.
pub(crate) fn resource_list(rows: &[&ResourceInfo], group: &str, version: &str) -> Option<Value> {
    let groups = groups(rows);
    let (_, rows) = groups
        .iter()
        .find(|it| it.name == group)?
        .versions
        .iter()
        .find(|(name, _)| *name == version)?;
    let group_version = if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    };
    let mut resources = Vec::new();
    for row in rows {
        resources.push(describe_resource(row));
        resources.extend(subresources(row).into_iter().map(|sub| describe_subresource(row, sub)));
    }
    let mut list = json!({"kind": "APIResourceList", "groupVersion": group_version, "resources": resources});
    // The list of the core group omits `apiVersion`, as in kube-apiserver.
    if !group.is_empty() {
        list["apiVersion"] = json!("v1");
    }
    Some(list)
}

fn describe_resource(row: &ResourceInfo) -> Value {
    let mut out = json!({
        "name": row.resource,
        "singularName": row.singular,
        "namespaced": row.scope == Scope::Namespaced,
        "kind": row.kind,
        "verbs": verbs(row, &row.verbs),
    });
    if !row.short_names.is_empty() {
        out["shortNames"] = json!(row.short_names);
    }
    if !row.categories.is_empty() {
        out["categories"] = json!(row.categories);
    }
    // Only stored resources have a storage version.
    if let Some(version) = row.stored_version.as_deref()
        && row.verbs.iter().any(|verb| verb == "delete")
    {
        out["storageVersionHash"] = json!(storage_version_hash(row, version));
    }
    out
}

fn describe_subresource(row: &ResourceInfo, sub: &SubresourceInfo) -> Value {
    let mut out = json!({
        "name": format!("{}/{}", row.resource, sub.name),
        "singularName": "",
        "namespaced": row.scope == Scope::Namespaced,
        "kind": sub.kind,
        "verbs": sub.verbs,
    });
    if !is_own_kind(row, sub) {
        out["group"] = json!(sub.group);
        out["version"] = json!(sub.version);
    }
    out
}

fn is_own_kind(row: &ResourceInfo, sub: &SubresourceInfo) -> bool {
    sub.group == row.group && sub.version == row.version
}

/// Returns the hash of a storage version (rule N4). `version` is the version in which objects are stored.
fn storage_version_hash(row: &ResourceInfo, version: &str) -> String {
    let stored = STORED_AS.iter().find(|it| {
        it.0 == row.group && it.1 == row.resource && version_order::is_stable(&row.version) && !is_custom(row)
    });
    let own = stable_version(&row.group, &row.version).unwrap_or(version);
    let (group, version) = stored.map_or((row.group.as_ref(), own), |it| (it.2, it.3));
    let digest = Sha256::digest(format!("{group}/{version}/{}", row.kind));
    STANDARD.encode(&digest[..8])
}

/// Builds an aggregated discovery document (rules N2, N3): for `/api` if `core` is set, otherwise for `/apis`.
pub(crate) fn aggregated(rows: &[&ResourceInfo], remote: &[RemoteVersion], core: bool) -> Value {
    let local = groups(rows);
    let mut items: Vec<Value> = local
        .iter()
        .filter(|group| group.name.is_empty() == core)
        .map(|group| {
            let versions: Vec<Value> = group
                .versions
                .iter()
                .map(|(version, rows)| {
                    let resources: Vec<Value> = rows.iter().map(|row| aggregated_resource(row)).collect();
                    json!({"version": version, "resources": resources, "freshness": "Current"})
                })
                .collect();
            let metadata = if core { json!({}) } else { json!({"name": group.name}) };
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    if !core {
        let others = remote_groups(&local, remote);
        let others = others.iter().map(|it| (remote::priority(it), aggregated_remote(it)));
        remote::merge(&mut items, others.collect(), |it| name_of(&it["metadata"]["name"]));
    }
    json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items,
    })
}

/// Returns a group of aggregated API servers. A version is marked as stale if its server did not return its resources.
fn aggregated_remote(versions: &[&RemoteVersion]) -> Value {
    let name = versions.first().map_or("", |it| &it.group);
    let versions = versions.iter().map(|it| match &it.resources {
        Some(resources) => json!({"version": it.version, "resources": resources, "freshness": "Current"}),
        None => json!({"version": it.version, "freshness": "Stale"}),
    });
    json!({"metadata": {"name": name}, "versions": versions.collect::<Vec<Value>>()})
}

fn aggregated_resource(row: &ResourceInfo) -> Value {
    // Built-in resources omit the group and version under which they are listed.
    let kind = if is_custom(row) {
        json!({"group": row.group, "version": row.version, "kind": row.kind})
    } else {
        json!({"group": "", "version": "", "kind": row.kind})
    };
    let mut out = json!({
        "resource": row.resource,
        "responseKind": kind,
        "scope": if row.scope == Scope::Namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": row.singular,
        "verbs": verbs(row, &row.verbs),
    });
    if !row.short_names.is_empty() {
        out["shortNames"] = json!(row.short_names);
    }
    if !row.categories.is_empty() {
        out["categories"] = json!(row.categories);
    }
    let subresources: Vec<Value> = subresources(row)
        .into_iter()
        .map(|sub| {
            let kind = if is_own_kind(row, sub) && !is_custom(row) {
                json!({"group": "", "version": "", "kind": sub.kind})
            } else {
                json!({"group": sub.group, "version": sub.version, "kind": sub.kind})
            };
            json!({"subresource": sub.name, "responseKind": kind, "verbs": sub.verbs})
        })
        .collect();
    if !subresources.is_empty() {
        out["subresources"] = Value::Array(subresources);
    }
    out
}

/// Returns the ETag of a document: its SHA-512, quoted.
pub(crate) fn etag(body: &[u8]) -> String {
    format!("\"{}\"", hash(body))
}

/// Returns the SHA-512 of a document in upper-case hex.
pub(super) fn hash(body: &[u8]) -> String {
    Sha512::digest(body)
        .iter()
        .fold(String::with_capacity(128), |mut out, byte| {
            // Writing into a String cannot fail.
            let _ = write!(out, "{byte:02X}");
            out
        })
}

/// Returns built-in groups in the order of the table, then custom groups by name.
fn groups<'a>(rows: &[&'a ResourceInfo]) -> Vec<Group<'a>> {
    let mut groups: Vec<Group<'a>> = Vec::new();
    for &row in rows {
        let at = groups.iter().position(|group| group.name == row.group);
        let at = at.unwrap_or_else(|| {
            groups.push(Group {
                name: &row.group,
                versions: Vec::new(),
            });
            groups.len() - 1
        });
        let versions = &mut groups[at].versions;
        match versions.iter_mut().find(|(version, _)| *version == row.version) {
            Some((_, rows)) => rows.push(row),
            None => versions.push((&row.version, vec![row])),
        }
    }
    for group in &mut groups {
        group.versions.sort_by(|(a, _), (b, _)| compare_versions(a, b));
        if group_rank(group.name).is_none() {
            for (_, rows) in &mut group.versions {
                rows.sort_by(|a, b| a.resource.cmp(&b.resource));
            }
        }
    }
    groups.sort_by_key(|group| (group_rank(group.name).unwrap_or(usize::MAX), group.name));
    groups
}

fn is_custom(row: &ResourceInfo) -> bool {
    group_rank(&row.group).is_none()
}

fn verbs<'a>(row: &ResourceInfo, verbs: &'a [Text]) -> Vec<&'a str> {
    let mut out: Vec<&str> = verbs.iter().map(Text::as_ref).collect();
    if is_custom(row) {
        out.sort_by_key(|verb| definition::VERBS.iter().position(|it| it == verb));
    }
    out
}

/// Returns subresources sorted by name; `status` precedes `scale` for custom resources.
fn subresources(row: &ResourceInfo) -> Vec<&SubresourceInfo> {
    let mut out: Vec<&SubresourceInfo> = row.subresources.iter().collect();
    if is_custom(row) {
        out.sort_by(|a, b| b.name.cmp(&a.name));
    }
    out
}

/// Compares versions; the most stable and newest one is first: `v10, v2, v1, v2beta1, v1beta2, v1alpha1, foo`.
pub(crate) fn compare_versions(a: &str, b: &str) -> Ordering {
    version_order::compare(b, a)
}

/// Builds the document of `/version` (rule N9).
pub(crate) fn version(of: KubernetesVersion) -> Value {
    let minor = of.minor();
    json!({
        "major": "1",
        "minor": minor.to_string(),
        "emulationMajor": "1",
        "emulationMinor": minor.to_string(),
        "minCompatibilityMajor": "1",
        "minCompatibilityMinor": of.min_compatibility().to_string(),
        "gitVersion": of.release(),
        "gitCommit": "0000000000000000000000000000000000000000",
        "gitTreeState": "clean",
        "buildDate": "2026-07-01T00:00:00Z",
        "goVersion": "go1.26.0",
        "compiler": "gc",
        "platform": "linux/amd64",
    })
}

/// Builds the document of `/`: the available paths.
pub(crate) fn paths(rows: &[&ResourceInfo], remote: &[RemoteVersion]) -> Value {
    let mut paths: Vec<String> = [
        "/api",
        "/apis",
        "/apis/",
        "/metrics",
        "/.well-known/openid-configuration",
        "/openapi/v2",
        "/openapi/v3",
        "/openapi/v3/",
        "/openid/v1/jwks",
        "/version",
    ]
    .map(str::to_owned)
    .into();
    let local = groups(rows);
    for group in remote_groups(&local, remote) {
        paths.push(format!("/apis/{}", group[0].group));
        paths.extend(group.iter().map(|it| format!("/apis/{}/{}", it.group, it.version)));
    }
    for group in local {
        let prefix = if group.name.is_empty() {
            "/api".to_owned()
        } else {
            paths.push(format!("/apis/{}", group.name));
            format!("/apis/{}", group.name)
        };
        paths.extend(group.versions.iter().map(|(version, _)| format!("{prefix}/{version}")));
    }
    for endpoint in ["healthz", "livez", "readyz"] {
        paths.push(format!("/{endpoint}"));
        paths.extend(checks(endpoint).iter().map(|check| format!("/{endpoint}/{check}")));
    }
    paths.sort();
    json!({ "paths": paths })
}

/// The start hooks of kube-apiserver, in order. Every health endpoint has a check for each hook.
const HOOKS: [&str; 30] = [
    "poststarthook/start-apiserver-admission-initializer",
    "poststarthook/generic-apiserver-start-informers",
    "poststarthook/priority-and-fairness-config-consumer",
    "poststarthook/priority-and-fairness-filter",
    "poststarthook/storage-object-count-tracker-hook",
    "poststarthook/start-apiextensions-informers",
    "poststarthook/start-apiextensions-controllers",
    "poststarthook/crd-informer-synced",
    "poststarthook/start-system-namespaces-controller",
    "poststarthook/peer-endpoint-reconciler-controller",
    "poststarthook/start-cluster-authentication-info-controller",
    "poststarthook/start-kube-apiserver-identity-lease-controller",
    "poststarthook/start-kube-apiserver-identity-lease-garbage-collector",
    "poststarthook/storage-readiness",
    "poststarthook/start-legacy-token-tracking-controller",
    "poststarthook/start-service-ip-repair-controllers",
    "poststarthook/rbac/bootstrap-roles",
    "poststarthook/scheduling/bootstrap-system-priority-classes",
    "poststarthook/priority-and-fairness-config-producer",
    "poststarthook/bootstrap-controller",
    "poststarthook/start-kubernetes-service-cidr-controller",
    "poststarthook/start-kube-aggregator-informers",
    "poststarthook/apiservice-status-local-available-controller",
    "poststarthook/apiservice-status-remote-available-controller",
    "poststarthook/apiservice-registration-controller",
    "poststarthook/apiservice-discovery-controller",
    "poststarthook/kube-apiserver-autoregistration",
    "autoregister-completion",
    "poststarthook/apiservice-openapi-controller",
    "poststarthook/apiservice-openapiv3-controller",
];

/// Returns the checks of a health endpoint. All checks always pass.
fn checks(endpoint: &str) -> Vec<&'static str> {
    let (first, last): (&[&str], &[&str]) = match endpoint {
        "healthz" | "livez" => (&["ping", "log", "loopback-serving-certificate", "etcd"], &[]),
        "readyz" => (
            &["ping", "log", "etcd", "etcd-readiness", "informer-sync"],
            &["shutdown"],
        ),
        _ => return Vec::new(),
    };
    [first, &HOOKS, last].concat()
}

/// Builds the plain text of `/healthz`, `/livez`, `/readyz` and single checks below them; `None` for a 404 (rule N10).
/// `verbose` is set if the query contains this parameter.
pub(crate) fn health(path: &str, verbose: bool, exclude: &[String]) -> Option<String> {
    let path = path.trim_start_matches('/');
    let (endpoint, single) = match path.split_once('/') {
        Some((endpoint, check)) => (endpoint, Some(check)),
        None => (path, None),
    };
    let checks = checks(endpoint);
    if checks.is_empty() || single.is_some_and(|check| !checks.contains(&check)) {
        return None;
    }
    if single.is_some() || !verbose {
        return Some("ok".to_owned());
    }
    let mut out = String::new();
    for check in &checks {
        let excluded = exclude.iter().any(|it| it == check);
        let verdict = if excluded { "excluded: ok" } else { "ok" };
        out.push_str(&format!("[+]{check} {verdict}\n"));
    }
    let unknown: Vec<String> = exclude
        .iter()
        .filter(|name| !checks.contains(&name.as_str()))
        .map(|name| crate::api::field::quote(name))
        .collect();
    if !unknown.is_empty() {
        let names = unknown.join(",");
        out.push_str(&format!(
            "warn: some health checks cannot be excluded: no matches for {names}\n"
        ));
    }
    out.push_str(&format!("{endpoint} check passed\n"));
    Some(out)
}

#[cfg(test)]
mod tests;
