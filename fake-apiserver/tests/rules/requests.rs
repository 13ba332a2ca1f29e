//! Requests with several errors, only the first of which is reported, and unknown paths.

use fake_apiserver::ApiServer;
use fake_apiserver::trace::{Marks, Run};
use rstest::rstest;
use serde_json::{Value, json};

use crate::ask::{MERGE, Watch, config_map, get, message, post, put, send};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn delete(path: &str, body: &Value) -> (u16, Value) {
    send(&ApiServer::start(), "DELETE", path, "application/json", body).await
}

#[rstest]
#[case::bindings("/api/v1/bindings")]
#[case::access_reviews("/apis/authorization.k8s.io/v1/localsubjectaccessreviews")]
#[tokio::test]
async fn resources_without_a_list_verb_are_not_found_across_namespaces(#[case] path: &str) {
    for method in ["GET", "POST", "PUT", "PATCH", "DELETE"] {
        let (code, answer) = send(&ApiServer::start(), method, path, MERGE, &json!({})).await;
        let why = "the server could not find the requested resource";
        assert_eq!((code, message(&answer)), (404, why), "{method}");
    }
    assert_eq!(post(&ApiServer::start(), "/api/v1/configmaps", &json!({})).await.0, 405);
}

#[rstest]
#[case::create("POST", MAPS, 415)]
#[case::update("PUT", "/api/v1/namespaces/default/configmaps/a", 422)]
#[tokio::test]
async fn create_checks_the_media_type_before_the_options_and_update_afterwards(
    #[case] method: &str,
    #[case] path: &str,
    #[case] expected: u16,
) {
    let path = format!("{path}?fieldValidation=odd");
    let map = config_map("a", json!({}));
    let (code, answer) = send(&ApiServer::start(), method, &path, "text/json", &map).await;
    assert_eq!(code, expected, "{answer}");
}

#[rstest]
#[case::version_without_a_group("v2")]
#[case::unknown_group("bogus/v1")]
#[tokio::test]
async fn delete_options_may_have_any_api_version(#[case] version: &str) {
    let options = json!({"kind": "DeleteOptions", "apiVersion": version});
    let (code, answer) = delete(&format!("{MAPS}/none"), &options).await;
    assert_eq!((code, message(&answer)), (404, "configmaps \"none\" not found"));
    let status = json!({"kind": "Status", "apiVersion": version});
    let (code, answer) = delete(&format!("{MAPS}/none"), &status).await;
    let why = "converting (v1.Status) to (v1.DeleteOptions): unknown conversion";
    assert_eq!((code, message(&answer)), (400, why));
}

#[rstest]
#[case::invalid_name("configmaps/..", 400, "Name parameter invalid: \"..\": may not be '..'")]
#[case::export_true(
    "configmaps/none?export=true",
    400,
    "the export parameter, deprecated since v1.14, is no longer supported"
)]
#[case::export_false("configmaps/none?export=false", 404, "configmaps \"none\" not found")]
#[case::two_invalid_numbers(
    "configmaps?limit=x&timeoutSeconds=1s",
    400,
    "strconv.ParseInt: parsing \"1s\": invalid syntax"
)]
#[tokio::test]
async fn invalid_read_is_refused_with_a_single_error(#[case] rest: &str, #[case] expected: u16, #[case] why: &str) {
    let path = format!("/api/v1/namespaces/default/{rest}");
    let (code, answer) = get(&ApiServer::start(), &path).await;
    assert_eq!((code, message(&answer)), (expected, why));
}

/// `forceWatch` of `ListResource`: the query does not contain `watch`, so the options are validated like options of a
/// list.
#[tokio::test]
async fn legacy_watch_path_validates_parameters_as_list_options() {
    let path = "/api/v1/watch/namespaces/default/configmaps?sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    let (code, answer) = get(&ApiServer::start(), path).await;
    let why = "ListOptions.meta.k8s.io \"\" is invalid: [resourceVersionMatch: Forbidden: resourceVersionMatch is \
               forbidden unless resourceVersion is provided, sendInitialEvents: Forbidden: sendInitialEvents is \
               forbidden for list]";
    assert_eq!((code, message(&answer)), (422, why));
}

#[rstest]
#[case::without_a_name(json!({}), "Unknown")]
#[case::with_a_generated_name(json!({"generateName": "a-"}), "a-")]
#[tokio::test]
async fn error_in_a_terminating_namespace_shows_generate_name_if_the_name_is_missing(
    #[case] metadata: Value,
    #[case] shown: &str,
) {
    let server = ApiServer::start();
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "going"}});
    assert_eq!(post(&server, "/api/v1/namespaces", &namespace).await.0, 201);
    let path = "/api/v1/namespaces/going";
    send(&server, "DELETE", path, "application/json", &Value::Null).await;
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
    let (code, answer) = post(&server, "/api/v1/namespaces/going/configmaps", &map).await;
    let why = format!(
        "configmaps \"{shown}\" is forbidden: unable to create new content in namespace going because it is being \
         terminated"
    );
    assert_eq!((code, message(&answer)), (403, why.as_str()));
}

#[rstest]
#[case::update("PUT", "application/json")]
#[case::merge_patch("PATCH", MERGE)]
#[tokio::test]
async fn wrong_namespace_is_reported_before_a_missing_name(#[case] method: &str, #[case] content_type: &str) {
    let server = ApiServer::start();
    assert_eq!(post(&server, MAPS, &config_map("a", json!({}))).await.0, 201);
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": null, "namespace": "other"}});
    let (code, answer) = send(&server, method, &format!("{MAPS}/a"), content_type, &map).await;
    let why = "the namespace of the provided object does not match the namespace sent on the request";
    assert_eq!((code, message(&answer)), (400, why));
}

#[rstest]
#[case::update("PUT", "application/json", "")]
#[case::patch("PATCH", MERGE, " after mutating admission happens")]
#[tokio::test]
async fn patch_warning_about_duplicate_owners_mentions_admission(
    #[case] method: &str,
    #[case] content_type: &str,
    #[case] when: &str,
) {
    let server = ApiServer::start();
    assert_eq!(post(&server, MAPS, &config_map("a", json!({}))).await.0, 201);
    let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"});
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "a", "ownerReferences": [owner, owner]}});
    let request = http::Request::builder()
        .method(method)
        .uri(format!("{MAPS}/a"))
        .header("content-type", content_type)
        .body(map.to_string())
        .expect("the request is valid");
    let answer = server.call(request).await;
    let warning = answer.headers()["warning"].to_str().unwrap_or_default();
    let text = format!(".metadata.ownerReferences contains duplicate entries{when}; API server dedups");
    assert!(warning.contains(&text), "{warning}");
}

#[rstest]
#[case::semicolon("dryRun=bad;x")]
#[case::invalid_escape("dryRun=%zz")]
#[case::truncated_escape("dryRun=a%2")]
#[tokio::test]
async fn malformed_query_parameters_are_ignored(#[case] query: &str) {
    let path = format!("{MAPS}?{query}");
    let (code, answer) = post(&ApiServer::start(), &path, &config_map("a", json!({}))).await;
    assert_eq!(code, 201, "{answer}");
}

#[rstest]
#[case::namespaced("Namespaced", "/apis/example.com/v1/namespaces/default/lamps")]
#[case::cluster_scoped("Cluster", "/apis/example.com/v1/lamps")]
#[tokio::test]
async fn put_to_a_collection_of_custom_resources_requires_a_name(#[case] scope: &str, #[case] path: &str) {
    let server = ApiServer::start();
    let schema = json!({"openAPIV3Schema": {"type": "object"}});
    let crd = json!({"metadata": {"name": "lamps.example.com"}, "spec": {"group": "example.com", "scope": scope,
        "names": {"plural": "lamps", "kind": "Lamp"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]}});
    let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(post(&server, crds, &crd).await.0, 201);
    let (code, answer) = put(&server, path, &json!({})).await;
    assert_eq!((code, message(&answer)), (400, "name must be provided"));
}

#[rstest]
#[case::events("events", 1)]
#[case::cached_resource("configmaps", 2)]
#[tokio::test]
async fn list_from_any_version_is_only_paginated_without_a_watch_cache(
    #[case] resource: &str,
    #[case] expected: usize,
) {
    let server = ApiServer::start();
    let path = format!("/api/v1/namespaces/default/{resource}");
    for name in ["a", "b"] {
        let mut object = json!({"metadata": {"name": name}});
        if resource == "events" {
            object["involvedObject"] = json!({"namespace": "default"});
        }
        assert_eq!(post(&server, &path, &object).await.0, 201);
    }
    let (_, list) = get(&server, &format!("{path}?limit=1&resourceVersion=0")).await;
    assert_eq!(list["items"].as_array().map(Vec::len), Some(expected), "{list}");
    assert_eq!(list["metadata"]["continue"].is_string(), expected == 1);
}

#[tokio::test]
async fn limited_list_of_one_object_is_only_exact_on_request() {
    let server = ApiServer::start();
    let (_, old) = post(&server, MAPS, &config_map("a", json!({"k": "old"}))).await;
    put(&server, &format!("{MAPS}/a"), &config_map("a", json!({"k": "new"}))).await;
    let version = old["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    let of_one = format!("{MAPS}?limit=1&resourceVersion={version}&fieldSelector=metadata.name%3Da");
    let (_, list) = get(&server, &of_one).await;
    assert_eq!(list["items"][0]["data"]["k"], "new", "{list}");
    let (_, list) = get(&server, &format!("{of_one}&resourceVersionMatch=Exact")).await;
    assert_eq!(list["items"][0]["data"]["k"], "old", "{list}");
}

/// A trace contains at most 20,000 steps.
#[rstest]
#[case::steps_at_the_limit(20_000, "")]
#[case::steps_above_the_limit(20_001, "only the last 20000 steps are shown")]
#[tokio::test]
async fn trace_reports_omitted_steps(#[case] requests: usize, #[case] why: &str) {
    let server = ApiServer::start();
    for _ in 0..requests {
        get(&server, "/api/v1/namespaces/default/configmaps/a").await;
    }
    let run = Run::of(&server, "run", 0, "", &Marks::default());
    assert_eq!((run.steps.len(), run.left_out.as_str()), (20_000, why));
}

#[rstest]
#[case::capitalized("watch=False")]
#[case::uppercase("watch=FALSE&allowWatchBookmarks=False")]
#[tokio::test]
async fn watch_parameter_false_is_case_insensitive(#[case] query: &str) {
    let (code, list) = get(&ApiServer::start(), &format!("{MAPS}?{query}")).await;
    assert_eq!((code, &list["kind"]), (200, &json!("ConfigMapList")), "{list}");
}

#[rstest]
#[case::version("/a?resourceVersion=1", "the ResourceVersion in the precondition (1) does not match")]
#[case::uid("/a?uid=x", "the UID in the precondition (x) does not match")]
#[case::collection("?resourceVersion=0", "the ResourceVersion in the precondition (0) does not match")]
#[tokio::test]
async fn delete_compares_the_preconditions_in_the_query(#[case] path: &str, #[case] why: &str) {
    let server = ApiServer::start();
    assert_eq!(post(&server, MAPS, &config_map("a", json!({}))).await.0, 201);
    let path = format!("{MAPS}{path}");
    let (code, answer) = send(&server, "DELETE", &path, "application/json", &Value::Null).await;
    assert_eq!(code, 409, "{answer}");
    assert!(message(&answer).contains(why), "{answer}");
    let (code, _) = get(&server, &format!("{MAPS}/a")).await;
    assert_eq!(code, 200);
    let (code, _) = send(
        &server,
        "DELETE",
        &path,
        "application/json",
        &json!({"gracePeriodSeconds": 5}),
    )
    .await;
    assert_eq!(code, 200, "a body replaces the query");
}

/// kube-apiserver deletes a collection in pages, and a page at a version shows exactly this version.
#[tokio::test]
async fn delete_of_a_collection_at_a_version_only_deletes_objects_of_this_version() {
    let server = ApiServer::start();
    let (_, made) = post(&server, MAPS, &config_map("a", json!({}))).await;
    post(&server, MAPS, &config_map("b", json!({}))).await;
    let version = made["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    let path = format!("{MAPS}?resourceVersion={version}");
    let (code, deleted) = send(&server, "DELETE", &path, "application/json", &json!({})).await;
    assert_eq!(code, 200, "{deleted}");
    assert_eq!(deleted["items"].as_array().map(Vec::len), Some(1), "{deleted}");
    assert_eq!(get(&server, &format!("{MAPS}/a")).await.0, 404);
    assert_eq!(get(&server, &format!("{MAPS}/b")).await.0, 200);
}

#[tokio::test]
async fn delete_refuses_an_empty_propagation_policy() {
    let server = ApiServer::start();
    assert_eq!(post(&server, MAPS, &config_map("a", json!({}))).await.0, 201);
    let path = format!("{MAPS}/a?propagationPolicy=");
    let (code, answer) = send(&server, "DELETE", &path, "application/json", &Value::Null).await;
    let why = "DeleteOptions.meta.k8s.io \"\" is invalid: propagationPolicy: Unsupported value: \"\": supported values: \
               \"Foreground\", \"Background\", \"Orphan\", \"nil\"";
    assert_eq!((code, message(&answer)), (422, why));
}

#[rstest]
#[case::not_a_bool("pretty=no", "", false)]
#[case::abbreviated_false("pretty=f", "", false)]
#[case::empty("pretty=", "", false)]
#[case::empty_with_curl("pretty=", "curl/8", true)]
#[case::not_a_bool_with_curl("pretty=no", "curl/8", false)]
#[case::capitalized_true("pretty=True", "", true)]
#[case::one("pretty=1", "", true)]
#[tokio::test]
async fn pretty_is_parsed_as_a_go_bool(#[case] query: &str, #[case] agent: &str, #[case] is_indented: bool) {
    let request = http::Request::get(format!("{MAPS}?{query}")).header("user-agent", agent);
    let request = request.body(String::new()).expect("the request is valid");
    let answer = ApiServer::start().call(request).await;
    assert_eq!(answer.body().starts_with(b"{\n"), is_indented, "{:?}", answer.body());
}

#[rstest]
#[case::timeout("/api/v1/pods?watch=1&timeout=abc")]
#[case::table_option("/api/v1/pods?watch=1&includeObject=x")]
#[tokio::test]
async fn watch_ignores_malformed_options_of_other_requests(#[case] path: &str) {
    Watch::open(&ApiServer::start(), path).await;
    let path = path.replace("watch=1&", "");
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let request = http::Request::get(&path).header("accept", table);
    let request = request.body(String::new()).expect("the request is valid");
    assert_eq!(
        ApiServer::start().call(request).await.status(),
        400,
        "a list checks the field selector: {path}"
    );
}

#[tokio::test]
async fn legacy_watch_of_an_object_refuses_other_field_selectors() {
    let path = "/api/v1/watch/namespaces/default/pods/a?fieldSelector=status.phase=Running";
    let (code, answer) = get(&ApiServer::start(), path).await;
    let why = "fieldSelector metadata.name doesn't match requested name";
    assert_eq!((code, message(&answer)), (400, why));
}

#[tokio::test]
async fn only_the_first_accept_header_counts() {
    let request = http::Request::get(MAPS)
        .header("accept", "text/plain")
        .header("accept", "application/json");
    let request = request.body(String::new()).expect("the request is valid");
    assert_eq!(ApiServer::start().call(request).await.status(), 406);
}
