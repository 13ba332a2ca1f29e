use std::borrow::Cow;

use super::*;
use crate::registry::types::schema::served;
use rstest::rstest;

fn builtins() -> Vec<&'static ResourceInfo> {
    served::builtins(KubernetesVersion::default()).collect()
}

fn custom(group: &str, version: &str, plural: &str, subresources: &[&str]) -> ResourceInfo {
    let owned = |list: &[&str]| Cow::Owned(list.iter().map(|it| Text::Owned((*it).to_owned())).collect());
    ResourceInfo {
        group: group.to_owned().into(),
        version: version.to_owned().into(),
        resource: plural.to_owned().into(),
        singular: plural.trim_end_matches('s').to_owned().into(),
        kind: "Widget".into(),
        list_kind: "WidgetList".into(),
        scope: Scope::Namespaced,
        short_names: owned(&[]),
        categories: owned(&[]),
        verbs: owned(&[
            "create",
            "delete",
            "deletecollection",
            "get",
            "list",
            "patch",
            "update",
            "watch",
        ]),
        stored_version: Some(version.to_owned().into()),
        subresources: subresources
            .iter()
            .map(|name| SubresourceInfo {
                name: (*name).to_owned().into(),
                group: if *name == "scale" {
                    "autoscaling".into()
                } else {
                    group.to_owned().into()
                },
                version: if *name == "scale" {
                    "v1".into()
                } else {
                    version.to_owned().into()
                },
                kind: if *name == "scale" {
                    "Scale".into()
                } else {
                    "Widget".into()
                },
                verbs: owned(&["get", "patch", "update"]),
            })
            .collect(),
    }
}

#[rstest]
#[case("admissionregistration.k8s.io", "v1", "mutatingadmissionpolicies", "LYmCf+UMVdg=")]
#[case(
    "admissionregistration.k8s.io",
    "v1",
    "mutatingadmissionpolicybindings",
    "90V5FRZZ3Zg="
)]
#[case("apiextensions.k8s.io", "v1", "customresourcedefinitions", "jfWCUB31mvA=")]
#[case("batch", "v1", "cronjobs", "sd5LIXh4Fjs=")]
#[case("policy", "v1", "poddisruptionbudgets", "EVWiDmWqyJw=")]
#[case("rbac.authorization.k8s.io", "v1", "roles", "7FuwZcIIItM=")]
fn n4_storage_version_hashes_equal_the_hashes_of_kube_apiserver(
    #[case] group: &str,
    #[case] version: &str,
    #[case] name: &str,
    #[case] expected: &str,
) {
    let list = resource_list(&builtins(), group, version).expect("the version is served");
    let found = list["resources"]
        .as_array()
        .and_then(|rows| rows.iter().find(|row| row["name"] == name))
        .expect("the resource is served");
    assert_eq!(found["storageVersionHash"], expected);
}

#[test]
fn n1_version_lists_its_resources() {
    let all = json!([
        "create",
        "delete",
        "deletecollection",
        "get",
        "list",
        "patch",
        "update",
        "watch"
    ]);
    let some = json!(["get", "patch", "update"]);
    let expected = json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "batch/v1", "resources": [
        {"name": "cronjobs", "singularName": "cronjob", "namespaced": true, "kind": "CronJob", "verbs": all,
         "shortNames": ["cj"], "categories": ["all"], "storageVersionHash": "sd5LIXh4Fjs="},
        {"name": "cronjobs/status", "singularName": "", "namespaced": true, "kind": "CronJob", "verbs": some},
        {"name": "jobs", "singularName": "job", "namespaced": true, "kind": "Job", "verbs": all,
         "categories": ["all"], "storageVersionHash": "mudhfqk/qZY="},
        {"name": "jobs/status", "singularName": "", "namespaced": true, "kind": "Job", "verbs": some}]});
    assert_eq!(resource_list(&builtins(), "batch", "v1"), Some(expected));
    assert_eq!(resource_list(&builtins(), "batch", "v9"), None);
    let core = resource_list(&builtins(), "", "v1").expect("the core group is served");
    let eviction = core["resources"]
        .as_array()
        .and_then(|rows| rows.iter().find(|row| row["name"] == "pods/eviction"));
    let expected = json!({"name": "pods/eviction", "singularName": "", "namespaced": true, "group": "policy",
        "version": "v1", "kind": "Eviction", "verbs": ["create"]});
    assert_eq!(eviction, Some(&expected));
}

#[test]
fn n1_groups_have_a_preferred_version() {
    let expected = json!({"kind": "APIGroup", "apiVersion": "v1", "name": "autoscaling",
        "versions": [{"groupVersion": "autoscaling/v2", "version": "v2"},
                     {"groupVersion": "autoscaling/v1", "version": "v1"}],
        "preferredVersion": {"groupVersion": "autoscaling/v2", "version": "v2"}});
    assert_eq!(group(&builtins(), &[], "autoscaling"), Some(expected));
    assert_eq!(group(&builtins(), &[], ""), None);
    let list = group_list(&builtins(), &[]);
    let names: Vec<&str> = list["groups"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|it| it["name"].as_str())
        .collect();
    assert_eq!(names[..3], ["apiregistration.k8s.io", "apps", "events.k8s.io"]);
    assert!(list["groups"][0].get("kind").is_none());
}

#[test]
fn n5_custom_resources_are_sorted_by_name() {
    let rows = [
        custom("a.example.com", "v1", "zebras", &[]),
        custom("a.example.com", "v1", "apes", &["scale", "status"]),
    ];
    let mut all: Vec<&ResourceInfo> = rows.iter().collect();
    all.extend(builtins());
    let list = resource_list(&all, "a.example.com", "v1").expect("the version is served");
    let names: Vec<&Value> = list["resources"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|it| &it["name"])
        .collect();
    assert_eq!(names, ["apes", "apes/status", "apes/scale", "zebras"]);
    let verbs = json!([
        "delete",
        "deletecollection",
        "get",
        "list",
        "patch",
        "create",
        "update",
        "watch"
    ]);
    assert_eq!(list["resources"][0]["verbs"], verbs);
    assert_eq!(list["resources"][2]["group"], "autoscaling");
    let last = group_list(&all, &[])["groups"]
        .as_array()
        .and_then(|list| list.last().cloned())
        .expect("the list of groups is not empty");
    assert_eq!(last["name"], "a.example.com");
    let items = aggregated(&all, &[], false);
    let item = items["items"]
        .as_array()
        .and_then(|list| list.last())
        .expect("the list of groups is not empty");
    let kind = json!({"group": "a.example.com", "version": "v1", "kind": "Widget"});
    assert_eq!(item["versions"][0]["resources"][0]["responseKind"], kind);
}

#[test]
fn versions_are_ordered_by_stability() {
    let mut versions = ["v1alpha1", "v1", "v2beta1", "v10", "v2", "v1beta2", "foo", "bar", "v01"];
    versions.sort_by(|a, b| compare_versions(a, b));
    assert_eq!(
        versions,
        ["v10", "v2", "v1", "v01", "v2beta1", "v1beta2", "v1alpha1", "bar", "foo"]
    );
}

#[test]
fn n3_core_group_has_an_aggregated_discovery_document() {
    let list = aggregated(&builtins(), &[], true);
    assert_eq!(list["items"].as_array().map(Vec::len), Some(1));
    assert_eq!(list["items"][0]["metadata"], json!({}));
    let resources = list["items"][0]["versions"][0]["resources"]
        .as_array()
        .expect("the value is a list");
    let namespaces = json!({
        "resource": "namespaces", "responseKind": {"group": "", "version": "", "kind": "Namespace"},
        "scope": "Cluster", "singularResource": "namespace", "shortNames": ["ns"],
        "verbs": ["create", "delete", "get", "list", "patch", "update", "watch"],
        "subresources": [
            {"subresource": "finalize", "responseKind": {"group": "", "version": "", "kind": "Namespace"},
             "verbs": ["update"]},
            {"subresource": "status", "responseKind": {"group": "", "version": "", "kind": "Namespace"},
             "verbs": ["get", "patch", "update"]}]});
    assert!(resources.contains(&namespaces));
}

#[rstest]
#[case("/healthz", false, &[], Some("ok"))]
#[case("/livez/ping", true, &[], Some("ok"))]
#[case("/livez/nope", false, &[], None)]
fn n10_health_endpoints_return_ok(
    #[case] path: &str,
    #[case] verbose: bool,
    #[case] exclude: &[&str],
    #[case] expected: Option<&str>,
) {
    let exclude: Vec<String> = exclude.iter().map(|it| (*it).to_owned()).collect();
    assert_eq!(health(path, verbose, &exclude).as_deref(), expected);
}

#[rstest]
#[case("/livez", &[], "[+]ping ok\n[+]log ok\n[+]loopback-serving-certificate ok\n[+]etcd ok\n", "livez check passed\n")]
#[case("/livez", &["ping"], "[+]ping excluded: ok\n[+]log ok\n", "livez check passed\n")]
#[case("/healthz", &["nope"], "[+]ping ok\n",
    "warn: some health checks cannot be excluded: no matches for \"nope\"\nhealthz check passed\n")]
#[case("/readyz", &[], "[+]ping ok\n[+]log ok\n[+]etcd ok\n[+]etcd-readiness ok\n", "[+]shutdown ok\nreadyz check passed\n")]
fn n10_verbose_health_lists_checks(
    #[case] path: &str,
    #[case] exclude: &[&str],
    #[case] start: &str,
    #[case] end: &str,
) {
    let exclude: Vec<String> = exclude.iter().map(|it| (*it).to_owned()).collect();
    let text = health(path, true, &exclude).unwrap_or_default();
    assert!(text.starts_with(start) && text.ends_with(end), "{text}");
    assert!(text.contains("[+]poststarthook/rbac/bootstrap-roles ok\n"), "{text}");
}
