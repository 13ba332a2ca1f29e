//! Custom resources with a deleted CRD or with unusual schemas, and paths with the wrong scope.

use fake_apiserver::ApiServer;
use http::Request;
use rstest::rstest;
use serde_json::{Value, json};

use crate::ask::{APPLY, MERGE, causes, get, message, post, put, send, warnings, with};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const FOOS: &str = "/apis/e.com/v1/namespaces/default/foos";

async fn server() -> ApiServer {
    let server = ApiServer::start();
    for (plural, kind, scope) in [("foos", "Foo", "Namespaced"), ("bars", "Bar", "Cluster")] {
        let schema = json!({"type": "object", "properties":
            {"spec": {"type": "object", "properties": {"i": {"type": "integer"}}}}});
        let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.e.com")}, "spec": {"group": "e.com", "scope": scope,
                "names": {"plural": plural, "kind": kind},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}});
        assert_eq!(post(&server, DEFINITIONS, &definition).await.0, 201);
    }
    server
}

fn foo(name: &str) -> Value {
    json!({"apiVersion": "e.com/v1", "kind": "Foo", "metadata": {"name": name}})
}

#[tokio::test]
async fn terminating_crd_refuses_new_objects() {
    let server = server().await;
    let mut held = foo("held");
    held["metadata"]["finalizers"] = json!(["e.com/x"]);
    assert_eq!(post(&server, FOOS, &held).await.0, 201);
    let path = format!("{DEFINITIONS}/foos.e.com");
    send(&server, "DELETE", &path, "application/json", &Value::Null).await;
    let (_, definition) = get(&server, &path).await;
    assert!(definition["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(
        definition["metadata"]["generation"], 1,
        "deleting a definition does not increment its generation"
    );

    let text = "foos.e.com \"new\" is forbidden: create not allowed while custom resource definition is terminating";
    let (code, answer) = post(&server, FOOS, &foo("new")).await;
    assert_eq!((code, message(&answer)), (403, text));
    let (code, answer) = send(
        &server,
        "PATCH",
        &format!("{FOOS}/new?fieldManager=m"),
        APPLY,
        &foo("new"),
    )
    .await;
    assert_eq!((code, message(&answer)), (403, text));
}

#[rstest]
#[case("GET", "/apis/e.com/v1/foos", 200)]
#[case("HEAD", "/apis/e.com/v1/foos/a", 404)]
#[case("POST", "/apis/e.com/v1/foos", 404)]
#[case("DELETE", "/apis/e.com/v1/foos", 404)]
#[case("PUT", "/apis/e.com/v1/foos/a", 404)]
#[case("GET", "/apis/e.com/v1/foos/a", 404)]
#[case("GET", "/apis/e.com/v1/namespaces/default/bars", 404)]
#[case("POST", "/apis/e.com/v1/namespaces/default/bars", 404)]
#[tokio::test]
async fn paths_with_the_wrong_scope_are_not_found(#[case] method: &str, #[case] path: &str, #[case] code: u16) {
    let server = server().await;
    let (got, answer) = send(&server, method, path, "application/json", &json!({})).await;
    // The response to such a path is plain text instead of a Status.
    assert_eq!((got, answer.is_null()), (code, code == 404), "{answer}");
}

#[rstest]
#[case::longer_path("/apis/e.com/v1/namespaces/default/things/a/status/x", 200)]
#[case::longer_path_of_a_scale("/apis/e.com/v1/namespaces/default/things/a/scale/x/y", 200)]
#[case::missing_object("/apis/e.com/v1/namespaces/default/things/none/status/x", 404)]
#[case::unknown_subresource("/apis/e.com/v1/namespaces/default/things/a/stat/x", 404)]
#[case::disabled_subresource("/apis/e.com/v1/namespaces/default/foos/a/status/x", 404)]
#[case::built_in_resource("/api/v1/namespaces/default/configmaps/none/status/x", 404)]
#[tokio::test]
async fn path_after_the_subresource_of_a_custom_resource_is_ignored(#[case] path: &str, #[case] code: u16) {
    let server = server().await;
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "replicas": {"type": "integer"}}}, "status": {"type": "object", "properties": {
        "replicas": {"type": "integer"}}}}});
    let subresources = json!({"status": {}, "scale": {
        "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}});
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.e.com"}, "spec": {"group": "e.com", "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing"}, "versions": [{"name": "v1", "served": true,
                "storage": true, "schema": {"openAPIV3Schema": schema}, "subresources": subresources}]}});
    assert_eq!(post(&server, DEFINITIONS, &definition).await.0, 201);
    let thing = json!({"apiVersion": "e.com/v1", "kind": "Thing", "metadata": {"name": "a"},
        "spec": {"replicas": 1}});
    let things = "/apis/e.com/v1/namespaces/default/things";
    assert_eq!(post(&server, things, &thing).await.0, 201);
    assert_eq!(post(&server, FOOS, &foo("a")).await.0, 201);
    let (got, answer) = get(&server, path).await;
    assert_eq!(got, code, "{answer}");
}

/// The handler of custom resources treats HEAD like GET; built-in resources have no route for it.
#[rstest]
#[case::list("/apis/e.com/v1/foos", 200)]
#[case::list_of_a_namespace("/apis/e.com/v1/namespaces/default/foos", 200)]
#[case::object("/apis/e.com/v1/namespaces/default/foos/a", 200)]
#[case::missing_object("/apis/e.com/v1/namespaces/default/foos/none", 404)]
#[case::built_in_list("/api/v1/namespaces/default/configmaps", 405)]
#[tokio::test]
async fn head_requests_are_only_supported_for_custom_resources(#[case] path: &str, #[case] code: u16) {
    let server = server().await;
    let made = send(&server, "POST", FOOS, "application/json", &foo("a")).await;
    assert_eq!(made.0, 201);
    let asked = Request::head(path).body("").expect("the request is valid");
    let answer = server.call(asked).await;
    assert_eq!((answer.status().as_u16(), answer.body().len()), (code, 0));
}

#[rstest]
#[case("9223372036854775807", true)]
#[case("9223372036854775808", false)]
#[case("18446744073709551616", false)]
#[tokio::test]
async fn integers_of_custom_resources_are_limited_to_64_bits(#[case] number: &str, #[case] fits: bool) {
    let server = server().await;
    let body = format!(r#"{{"apiVersion":"e.com/v1","kind":"Bar","metadata":{{"name":"a"}},"spec":{{"i":{number}}}}}"#);
    let body: Value = serde_json::from_str(&body).expect("the text is valid JSON");
    let (code, answer) = post(&server, "/apis/e.com/v1/bars", &body).await;
    let refusal = "spec.i in body must be of type integer: \"number\"";
    assert_eq!(
        (code == 201, message(&answer).contains(refusal)),
        (fits, !fits),
        "{answer}"
    );
}

/// Creates a definition with changes to its spec and its only version; returns the causes of the refusal.
async fn refused(spec: &Value, version: &Value) -> Vec<String> {
    let plain =
        json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}});
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "foos.e.com"}, "spec": {"group": "e.com", "scope": "Namespaced",
            "names": {"plural": "foos", "kind": "Foo"}, "versions": [with(&plain, version)]}});
    let answer = post(
        &ApiServer::start(),
        DEFINITIONS,
        &with(&definition, &json!({"spec": spec})),
    )
    .await;
    if answer.0 == 201 {
        let schema = &answer.1["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        assert_eq!(*schema, json!({"type": "object"}), "empty fields are omitted");
    }
    causes(&answer)
}

#[rstest]
#[case("a\u{a0}b", Some(1))]
#[case("ab\u{200b}", Some(2))]
#[case("\u{e9}\u{301} is \u{1f600}", None)]
#[tokio::test]
async fn deprecation_warnings_of_crd_versions_must_be_printable(#[case] warning: &str, #[case] index: Option<usize>) {
    let found = refused(&json!({}), &json!({"deprecated": true, "deprecationWarning": warning})).await;
    let text = "must only contain printable UTF-8 characters; non-printable character found at index";
    let found: Vec<bool> = found
        .iter()
        .map(|it| it.ends_with(&format!("{text} {}", index.unwrap_or(0))))
        .collect();
    assert_eq!(found, vec![true; usize::from(index.is_some())]);
}

#[tokio::test]
async fn crd_that_preserves_unknown_fields_cannot_have_a_conversion_webhook() {
    let webhook = json!({"clientConfig": {"url": "https://a.b"}, "conversionReviewVersions": ["v1"]});
    let spec = json!({"preserveUnknownFields": true, "conversion": {"strategy": "Webhook", "webhook": webhook}});
    let found = refused(&spec, &json!({})).await;
    let expected = "spec.conversion.strategy: Invalid value: \"Webhook\": must be None if spec.preserveUnknownFields is \
                    true";
    assert!(found.iter().any(|it| it == expected), "{found:?}");
}

#[rstest]
#[case("enum", json!([]))]
#[case("oneOf", json!([]))]
#[case("patternProperties", json!({}))]
#[tokio::test]
async fn empty_keywords_at_the_schema_root_of_a_version_with_a_status_are_refused(
    #[case] keyword: &str,
    #[case] value: Value,
) {
    let schema = json!({"schema": {"openAPIV3Schema": {keyword: value}}});
    assert_eq!(refused(&json!({}), &schema).await, [""; 0]);
    let found = refused(&json!({}), &with(&schema, &json!({"subresources": {"status": {}}}))).await;
    let text = "fields are allowed at the root of the schema if the status subresource is enabled";
    assert_eq!(
        found.iter().map(|it| it.ends_with(text)).collect::<Vec<_>>(),
        [true],
        "{found:?}"
    );
}

/// Returns a definition of Foos with these properties in their spec.
fn definition(properties: &Value) -> Value {
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "foos.e.com"}, "spec": {"group": "e.com", "scope": "Namespaced",
            "names": {"plural": "foos", "kind": "Foo"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}})
}

/// Items of lists without keys cannot be correlated with stored items, but the list itself can.
#[cfg(feature = "cel")]
#[rstest]
#[case::atomic_list(json!({"type": "array", "items": {"type": "string"}}), "/items", json!(["bad"]), json!(["bad", "x"]))]
#[case::set(json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}), "/items",
    json!(["bad"]), json!(["bad", "x"]))]
#[case::field_of_an_item(json!({"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}}),
    "/items/properties/a", json!([{"a": "bad"}]), json!([{"a": "bad"}, {}]))]
#[case::atomic_map(json!({"type": "object", "x-kubernetes-map-type": "atomic",
    "additionalProperties": {"type": "string"}}), "/additionalProperties", json!({"a": "bad"}), json!({"a": "worse"}))]
#[tokio::test]
async fn violations_in_unchanged_fields_are_tolerated(
    #[case] mut field: Value,
    #[case] ruled: &str,
    #[case] value: Value,
    #[case] other: Value,
) {
    let server = ApiServer::start();
    let text = json!({"type": "string"});
    let properties = json!({"f": field, "text": text});
    assert_eq!(post(&server, DEFINITIONS, &definition(&properties)).await.0, 201);
    let mut object = foo("a");
    object["spec"] = json!({"f": value});
    assert_eq!(post(&server, FOOS, &object).await.0, 201);

    field.pointer_mut(ruled).expect("the schema has the field")["x-kubernetes-validations"] =
        json!([{"rule": "self == 'good'"}]);
    let ruled = definition(&json!({"f": field, "text": text}));
    let path = format!("{DEFINITIONS}/foos.e.com");
    let merge = "application/merge-patch+json";
    assert_eq!(send(&server, "PATCH", &path, merge, &ruled).await.0, 200);
    let path = format!("{FOOS}/a");
    for (change, code) in [(json!({"text": "x"}), 200), (json!({"f": other}), 422)] {
        let (found, answer) = send(&server, "PATCH", &path, merge, &json!({"spec": change})).await;
        assert_eq!(found, code, "{change}: {answer}");
    }
}

#[rstest]
#[case("10.0.0.1", 201)]
#[case("::1", 201)]
#[case("256.256.256.256", 422)]
#[tokio::test]
async fn formats_are_checked_within_any_of(#[case] address: &str, #[case] code: u16) {
    let server = ApiServer::start();
    let schema = json!({"type": "string", "anyOf": [{"format": "ipv4"}, {"format": "ipv6"}]});
    assert_eq!(
        post(&server, DEFINITIONS, &definition(&json!({"ip": schema}))).await.0,
        201
    );
    let mut object = foo("a");
    object["spec"] = json!({"ip": address});
    let (found, answer) = post(&server, FOOS, &object).await;
    assert_eq!(found, code, "{answer}");
}

#[rstest]
#[case::unknown_fields(json!({"name": "a", "unknown": "b", "labels": {"a": "b"}}), json!({"name": "a", "labels": {"a": "b"}}))]
#[case::empty_fields(json!({"name": "a", "creationTimestamp": null}), json!({"name": "a"}))]
#[case::null_metadata(json!(null), json!({}))]
#[tokio::test]
async fn crd_defaults_are_stored_without_unknown_metadata(
    #[case] sent: Value,
    #[case] stored: Value,
    #[values(false, true)] in_list: bool,
) {
    let object = |metadata| {
        let object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "other": {"unknown": "b"}});
        if in_list { json!([object]) } else { object }
    };
    let embedded = json!({"type": "object", "x-kubernetes-embedded-resource": true,
        "x-kubernetes-preserve-unknown-fields": true});
    let mut field = if in_list {
        json!({"type": "array", "items": embedded})
    } else {
        embedded
    };
    field["default"] = object(sent);
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"e": field}}}});
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "bazs.e.com"}, "spec": {"group": "e.com", "scope": "Cluster",
            "names": {"plural": "bazs", "kind": "Baz"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}});
    let (code, made) = post(&ApiServer::start(), DEFINITIONS, &definition).await;
    assert_eq!(code, 201, "{made}");
    let default = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/e/default";
    assert_eq!(made.pointer(default), Some(&object(stored)));
}

#[tokio::test]
async fn missing_stored_version_is_reported_once() {
    let server = server().await;
    let path = format!("{DEFINITIONS}/foos.e.com");
    let mut definition = get(&server, &path).await.1;
    definition["status"]["storedVersions"] = json!(["v0", "v1", "v0"]);
    let (code, mut definition) = put(&server, &format!("{path}/status"), &definition).await;
    assert_eq!(code, 200, "{definition}");
    definition["spec"]["names"]["shortNames"] = json!(["f"]);
    let causes = causes(&put(&server, &path, &definition).await);
    let start = "status.storedVersions[2]: Invalid value: \"v0\": missing from spec.versions; v0 was previously";
    assert!(causes.len() == 1 && causes[0].starts_with(start), "{causes:?}");
}

/// Returns a server with a custom resource; `version` adds fields to its version.
async fn server_with(properties: Value, version: &Value) -> ApiServer {
    let server = ApiServer::start();
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": properties}});
    let mut served = json!({"name": "v1", "served": true, "storage": true, "schema": schema});
    for (key, value) in version.as_object().into_iter().flatten() {
        served[key] = value.clone();
    }
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "foos.e.com"}, "spec": {"group": "e.com", "scope": "Namespaced",
            "names": {"plural": "foos", "kind": "Foo"}, "versions": [served]}});
    assert_eq!(post(&server, DEFINITIONS, &definition).await.0, 201);
    server
}

#[tokio::test]
async fn deprecation_of_a_version_is_the_first_warning() {
    let deprecated = json!({"deprecated": true, "deprecationWarning": "use v2"});
    let server = server_with(json!({}), &deprecated).await;
    let mut object = foo("a");
    object["extra"] = json!(1);
    let path = format!("{FOOS}?fieldValidation=Warn");
    let expected = ["use v2", "unknown field \"extra\""];
    assert_eq!(warnings(&server, &path, &object).await, expected);
}

#[tokio::test]
async fn scale_write_does_not_store_replicas_that_the_schema_does_not_declare() {
    let scale = json!({"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"});
    let subresources = json!({"subresources": {"scale": scale}});
    let server = server_with(json!({"spec": {"type": "object"}}), &subresources).await;
    let mut object = foo("a");
    object["spec"] = json!({});
    assert_eq!(post(&server, FOOS, &object).await.0, 201);
    let path = format!("{FOOS}/a/scale");
    let (code, scale) = send(&server, "PATCH", &path, MERGE, &json!({"spec": {"replicas": 3}})).await;
    assert_eq!((code, &scale["spec"]), (200, &json!({})));
    assert_eq!(get(&server, &format!("{FOOS}/a")).await.1["spec"], json!({}));
}

#[rstest]
#[case::number_instead_of_a_string("string", json!(80), ".x: expected string, got &value.valueUnstructured{Value:80}")]
#[case::string_instead_of_a_number("integer", json!("a"), ".x: expected numeric (int or float), got string")]
#[tokio::test]
async fn managed_fields_require_int_or_string_to_match_its_declared_type(
    #[case] kind: &str,
    #[case] value: Value,
    #[case] why: &str,
) {
    let schema = json!({"x": {"type": kind, "x-kubernetes-int-or-string": true}});
    let server = server_with(schema, &json!({})).await;
    let mut object = foo("a");
    object["x"] = value;
    let (code, created) = post(&server, FOOS, &object).await;
    assert_eq!(
        (code, &created["metadata"]["managedFields"]),
        (201, &Value::Null),
        "{created}"
    );
    object["metadata"]["name"] = json!("b");
    let path = format!("{FOOS}/b?fieldManager=m");
    let (code, answer) = send(&server, "PATCH", &path, APPLY, &object).await;
    let expected = format!("failed to create typed patch object (/b; e.com/v1, Kind=Foo): {why}");
    assert_eq!((code, message(&answer)), (500, &*expected));
}

#[tokio::test]
async fn crd_in_v1beta1_is_refused() {
    let server = ApiServer::start();
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1beta1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "foos.e.com"}, "spec": {"group": "e.com", "version": "v1"}});
    let (code, answer) = post(&server, DEFINITIONS, &definition).await;
    let why = "the API version in the data (apiextensions.k8s.io/v1beta1) does not match the expected API version \
               (apiextensions.k8s.io/v1)";
    assert_eq!((code, message(&answer)), (400, why));
}

/// Returns the columns and the cells of a Table with an object `a`.
#[cfg(feature = "serve")]
async fn table(paths: &[&str]) -> (Vec<String>, Value) {
    let column = |(at, path): (usize, &&str)| json!({"name": format!("C{at}"), "type": "string", "jsonPath": path});
    let columns: Vec<Value> = paths.iter().enumerate().map(column).collect();
    let server = server_with(json!({}), &json!({"additionalPrinterColumns": columns})).await;
    let mut object = foo("a");
    object["metadata"]["labels"] = json!({"e.com/role": "db", "app": "x"});
    assert_eq!(post(&server, FOOS, &object).await.0, 201);
    let asked = Request::get(format!("{FOOS}/a")).header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io");
    let answer = server.call(asked.body("").expect("the request is valid")).await;
    let table: Value = serde_json::from_slice(answer.body()).expect("the body is JSON");
    let columns = table["columnDefinitions"].as_array().into_iter().flatten();
    let names = columns
        .map(|it| it["name"].as_str().unwrap_or_default().to_owned())
        .collect();
    (names, table["rows"][0]["cells"].clone())
}

/// Go parses the quoted key as a path again.
#[cfg(feature = "serve")]
#[rstest]
#[case::dots(".metadata.labels['e.com/role']", Value::Null)]
#[case::escaped_dot(".metadata.labels['e\\.com/role']", json!("db"))]
#[case::without_dots(".metadata.labels['app']", json!("x"))]
#[case::path_in_quotes(".metadata['labels.app']", json!("x"))]
#[case::several_keys(".metadata.labels['none', 'app']", json!("x"))]
#[tokio::test]
async fn quoted_keys_of_printer_columns_are_split_at_dots(#[case] path: &str, #[case] cell: Value) {
    assert_eq!(table(&[path]).await.1, json!(["a", cell]));
}

#[cfg(feature = "serve")]
#[rstest]
#[case::index(".spec.list[a]")]
#[case::double_quotes(".metadata.labels[\"app\"]")]
#[tokio::test]
async fn printer_columns_end_before_an_invalid_path(#[case] path: &str) {
    let (columns, cells) = table(&[".metadata.labels.app", path, ".metadata.name"]).await;
    assert_eq!(
        (columns, cells),
        (vec!["Name".to_owned(), "C0".to_owned()], json!(["a", "x"]))
    );
}

/// Rules of unchanged fields are evaluated in each update, and their violations are warnings.
#[cfg(feature = "cel")]
#[rstest]
#[case::status("/status", json!({"status": {"x": 1}}), 200)]
#[case::invalid_update("", json!({"spec": {"i": "x", "n": 0}}), 422)]
#[tokio::test]
async fn tolerated_violations_are_warnings_of_all_updates(
    #[case] subresource: &str,
    #[case] change: Value,
    #[case] code: u16,
) {
    let schema = |rules: Value| {
        let n = json!({"type": "integer", "x-kubernetes-validations": rules});
        json!({"type": "object", "properties": {
            "spec": {"type": "object", "properties": {"n": n, "i": {"type": "string", "pattern": "^a"}}},
            "status": {"type": "object", "properties": {"x": {"type": "integer"}}}}})
    };
    let server = server_with(
        schema(json!([]))["properties"].clone(),
        &json!({"subresources": {"status": {}}}),
    )
    .await;
    let mut object = foo("a");
    object["spec"] = json!({"n": 0});
    assert_eq!(post(&server, FOOS, &object).await.0, 201);
    let path = format!("{DEFINITIONS}/foos.e.com");
    let patch = json!([{"op": "replace", "path": "/spec/versions/0/schema/openAPIV3Schema",
        "value": schema(json!([{"rule": "self > 5"}]))}]);
    assert_eq!(
        send(&server, "PATCH", &path, crate::ask::JSON_PATCH, &patch).await.0,
        200
    );
    let path = format!("{FOOS}/a{subresource}");
    let (_, stored) = get(&server, &format!("{FOOS}/a")).await;
    let mut object = with(&stored, &change);
    let (found_code, answer) = put(&server, &path, &object).await;
    assert_eq!(found_code, code, "{answer}");
    let (_, stored) = get(&server, &format!("{FOOS}/a")).await;
    object["metadata"]["resourceVersion"] = stored["metadata"]["resourceVersion"].clone();
    let found = crate::ask::warnings_of(&server, "PUT", &path, &object).await;
    assert_eq!(found, ["spec.n: Invalid value: 0: failed rule: self > 5"]);
}

/// The types of all listed versions are known, even if a version is no longer served.
#[tokio::test]
async fn managed_fields_of_unserved_versions_are_kept() {
    let server = ApiServer::start();
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let version = |name: &str, served: bool, storage: bool| json!({"name": name, "served": served, "storage": storage, "schema": schema});
    let versions = |alpha: bool| json!([version("v1alpha1", alpha, false), version("v1", true, true)]);
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "foos.e.com"}, "spec": {"group": "e.com", "scope": "Namespaced",
            "names": {"plural": "foos", "kind": "Foo"}, "versions": versions(true)}});
    assert_eq!(post(&server, DEFINITIONS, &definition).await.0, 201);
    let applied = |version: &str, size: u8| {
        let mut object = foo("a");
        object["apiVersion"] = json!(format!("e.com/{version}"));
        object["spec"] = json!({"size": size});
        object
    };
    let alpha = "/apis/e.com/v1alpha1/namespaces/default/foos/a?fieldManager=a";
    assert_eq!(
        send(&server, "PATCH", alpha, APPLY, &applied("v1alpha1", 1)).await.0,
        201
    );
    let path = format!("{DEFINITIONS}/foos.e.com");
    let patch = json!({"spec": {"versions": versions(false)}});
    assert_eq!(send(&server, "PATCH", &path, MERGE, &patch).await.0, 200);
    let patch = json!({"metadata": {"labels": {"l": "x"}}});
    let (code, answer) = send(&server, "PATCH", &format!("{FOOS}/a?fieldManager=b"), MERGE, &patch).await;
    assert_eq!(code, 200, "{answer}");
    let path = format!("{FOOS}/a?fieldManager=c");
    let (code, answer) = send(&server, "PATCH", &path, APPLY, &applied("v1", 2)).await;
    let text = "Apply failed with 1 conflict: conflict with \"a\": .spec.size";
    assert_eq!((code, message(&answer)), (409, text));
}

/// The path of a status has no root, so that the paths of its map entries start with a dot.
#[tokio::test]
async fn errors_of_map_entries_in_a_status_start_with_a_dot() {
    let status = json!({"type": "object", "additionalProperties": {"type": "string"}});
    let server = server_with(json!({"status": status}), &json!({"subresources": {"status": {}}})).await;
    assert_eq!(post(&server, FOOS, &foo("a")).await.0, 201);
    let change = json!({"status": {"k": 1}});
    let answer = send(&server, "PATCH", &format!("{FOOS}/a/status"), MERGE, &change).await;
    let text = "status.k: Invalid value: \"integer\": .k in body must be of type string: \"integer\"";
    assert_eq!(causes(&answer), [text]);
}
