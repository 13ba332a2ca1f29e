//! CustomResourceDefinitions that are changed or deleted while they have objects: the behaviour that a controller of
//! these objects observes.

#[path = "hostile/ask.rs"]
#[allow(dead_code, reason = "the tests of hostile clients use the rest")]
mod ask;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ask::{Answer, Ask};
use fake_apiserver::ApiServer;
use http::Request;
use rstest::rstest;
use serde_json::{Value, json};

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

fn definition(versions: &[(&str, bool, bool)]) -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let version =
        |(name, served, storage): &_| json!({"name": name, "served": served, "storage": storage, "schema": schema});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": versions.iter().map(version).collect::<Vec<Value>>(),
        },
    })
}

fn widget(name: &str, finalizers: &[&str]) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name, "finalizers": finalizers}})
}

async fn ask(server: &ApiServer, method: &str, path: &str, body: &Value) -> Answer {
    let content_type = match method {
        "PATCH" if path.contains("fieldManager") => "application/apply-patch+yaml",
        "PATCH" => "application/merge-patch+json",
        _ => "application/json",
    };
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    let answer = Ask::new(method, path, content_type, body).check(server).await;
    answer.unwrap_or_else(|why| panic!("{why}"))
}

async fn done(server: &ApiServer, method: &str, path: &str, body: &Value) -> Value {
    let answer = ask(server, method, path, body).await;
    assert!(answer.code < 300, "{method} {path}: {}", answer.message());
    answer.json()
}

/// Returns a server with a terminating definition, which waits for a widget `a` with a finalizer.
async fn terminating() -> ApiServer {
    let server = ApiServer::start();
    done(&server, "POST", CRDS, &definition(&[("v1", true, true)])).await;
    done(&server, "POST", WIDGETS, &widget("a", &["example.com/wait"])).await;
    done(&server, "DELETE", &format!("{CRDS}/widgets.example.com"), &Value::Null).await;
    server
}

#[tokio::test(start_paused = true)]
async fn controllers_can_remove_finalizers_of_objects_of_a_terminating_crd() {
    let server = terminating().await;
    let mut object = done(&server, "GET", &format!("{WIDGETS}/a"), &Value::Null).await;
    object["spec"] = json!({"a": 1});
    done(&server, "PUT", &format!("{WIDGETS}/a"), &object).await;
    let patch = json!({"metadata": {"finalizers": null}});
    done(&server, "PATCH", &format!("{WIDGETS}/a"), &patch).await;
    let gone = ask(&server, "GET", &format!("{CRDS}/widgets.example.com"), &Value::Null).await;
    assert_eq!(gone.code, 404);
}

#[rstest]
#[case::post("POST", WIDGETS.to_owned())]
#[case::apply("PATCH", format!("{WIDGETS}/b?fieldManager=me"))]
#[tokio::test(start_paused = true)]
async fn creates_are_refused_while_the_crd_is_terminating(#[case] method: &str, #[case] path: String) {
    let answer = ask(&terminating().await, method, &path, &widget("b", &[])).await;
    let message = answer.message();
    assert_eq!(
        (answer.code, &*message),
        (
            403,
            "widgets.example.com \"b\" is forbidden: create not allowed while custom resource definition is terminating"
        )
    );
}

#[tokio::test(start_paused = true)]
async fn deleting_a_crd_deletes_thousands_of_objects() {
    let server = ApiServer::start();
    done(&server, "POST", CRDS, &definition(&[("v1", true, true)])).await;
    for at in 0..3_000 {
        done(&server, "POST", WIDGETS, &widget(&format!("w-{at}"), &[])).await;
    }
    done(&server, "DELETE", &format!("{CRDS}/widgets.example.com"), &Value::Null).await;
    let gone = ask(&server, "GET", &format!("{CRDS}/widgets.example.com"), &Value::Null).await;
    assert_eq!(gone.code, 404);
    assert!(server.stored_objects().iter().all(|it| it.resource() != "widgets"));
}

/// There is a single object, which can be read in every version.
#[rstest]
#[case::unchanged_definition(definition(&[("v1", true, true)]), None)]
#[case::changed_definition(definition(&[("v1", true, true)]),
    Some(definition(&[("v1", true, true), ("v2", true, false)])))]
#[case::storage_version_that_is_not_served(definition(&[("v1", true, false), ("v2", false, true)]), None)]
#[tokio::test(start_paused = true)]
async fn custom_resources_are_part_of_snapshots(#[case] made: Value, #[case] changed: Option<Value>) {
    let server = ApiServer::start();
    done(&server, "POST", CRDS, &made).await;
    done(&server, "POST", WIDGETS, &widget("a", &[])).await;
    if let Some(mut changed) = changed {
        let path = format!("{CRDS}/widgets.example.com");
        let stored = done(&server, "GET", &path, &Value::Null).await;
        changed["metadata"] = stored["metadata"].clone();
        done(&server, "PUT", &path, &changed).await;
    }
    let stored = server.stored_objects();
    assert_eq!(stored.iter().filter(|it| it.resource() == "widgets").count(), 1);
    let world = server.objects(&server.snapshot());
    assert_eq!(world.iter().filter(|it| it["kind"] == "Widget").count(), 1);
}

#[tokio::test(start_paused = true)]
async fn custom_resources_of_a_changed_crd_count_against_a_quota() {
    let server = ApiServer::builder().resource_quota_controller().start();
    done(&server, "POST", CRDS, &definition(&[("v1", true, true)])).await;
    let path = format!("{CRDS}/widgets.example.com");
    let mut crd = done(&server, "GET", &path, &Value::Null).await;
    crd["spec"]["names"]["shortNames"] = json!(["w"]);
    done(&server, "PUT", &path, &crd).await;
    done(&server, "POST", WIDGETS, &widget("a", &[])).await;
    let hard = json!({"count/widgets.example.com": "5"});
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": hard}});
    let quotas = "/api/v1/namespaces/default/resourcequotas";
    done(&server, "POST", quotas, &quota).await;
    done(&server, "POST", WIDGETS, &widget("b", &[])).await;
    let quota = done(&server, "GET", &format!("{quotas}/q"), &Value::Null).await;
    assert_eq!(quota["status"]["used"], json!({"count/widgets.example.com": "2"}));
}

/// Nesting depth of maps in the object. Accepted objects are returned unchanged.
#[rstest]
#[tokio::test(start_paused = true)]
async fn deeply_nested_object_is_refused_or_returned_unchanged(
    #[values(90, 115, 120, 121, 122, 123, 124, 125)] levels: usize,
) {
    let server = ApiServer::start();
    done(&server, "POST", CRDS, &definition(&[("v1", true, true)])).await;
    let spec = (0..levels).fold(json!({"last": 1}), |inner, _| json!({ "m": inner }));
    let mut object = widget("a", &[]);
    object["spec"] = spec.clone();
    let answer = ask(&server, "POST", WIDGETS, &object).await;
    if answer.code >= 300 {
        assert!((400..500).contains(&answer.code), "{}", answer.message());
        return;
    }
    let patch = json!({"metadata": {"labels": {"a": "b"}}});
    done(&server, "PATCH", &format!("{WIDGETS}/a"), &patch).await;
    let stored = done(&server, "GET", &format!("{WIDGETS}/a"), &Value::Null).await;
    assert_eq!(stored["spec"], spec);
}

/// The schemas are similar to GatewayClasses and Gateways of the Gateway API. Their controllers rely on the default
/// status.
#[rstest]
#[case::in_the_stored_version("v1")]
#[case::in_another_version("v2")]
#[tokio::test(start_paused = true)]
async fn default_status_of_a_custom_resource_is_returned_before_the_first_status_write(#[case] written: &str) {
    let pending =
        json!({"type": "object", "properties": {"phase": {"type": "string"}}, "default": {"phase": "Pending"}});
    let mut definition = definition(&[("v1", true, true), ("v2", true, false)]);
    for version in definition["spec"]["versions"].as_array_mut().unwrap() {
        version["subresources"] = json!({"status": {}});
        version["schema"] = json!({"openAPIV3Schema": {"type": "object", "properties": {"status": pending}}});
    }
    let server = ApiServer::start();
    done(&server, "POST", CRDS, &definition).await;
    let widgets = WIDGETS.replace("v1", written);
    let mut widget = widget("a", &[]);
    widget["apiVersion"] = json!(format!("example.com/{written}"));
    widget["status"] = json!({"phase": "Ready"});
    let created = done(&server, "POST", &widgets, &widget).await;
    assert_eq!(created["status"], json!({"phase": "Pending"}));
    for read in ["v1", "v2"] {
        let listed = done(&server, "GET", &WIDGETS.replace("v1", read), &Value::Null).await;
        assert_eq!(listed["items"][0]["status"], json!({"phase": "Pending"}), "{read}");
    }
    // The default was not written by a manager, so no manager owns it.
    assert!(!created["metadata"]["managedFields"].to_string().contains("f:status"));
    widget["metadata"]["name"] = json!("b");
    widget["apiVersion"] = json!("example.com/v1");
    let tried = done(&server, "POST", &format!("{WIDGETS}?dryRun=All"), &widget).await;
    assert_eq!(tried["status"], json!({"phase": "Pending"}));
}

const API_SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const MANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";

/// Returns the names of the APIServices of a group.
async fn registrations(server: &ApiServer, group: &str) -> Vec<String> {
    let list = done(server, "GET", API_SERVICES, &Value::Null).await;
    let items = list["items"].as_array().cloned().unwrap_or_default();
    let of_group = items.iter().filter(|it| it["spec"]["group"] == group);
    of_group
        .map(|it| it["metadata"]["name"].as_str().unwrap_or_default().to_owned())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn server_keeps_an_api_service_for_each_version_that_a_crd_serves() {
    let server = ApiServer::builder().kubernetes_service(true).start();
    let core = done(&server, "GET", &format!("{API_SERVICES}/v1."), &Value::Null).await;
    assert_eq!(
        core["spec"],
        json!({"version": "v1", "groupPriorityMinimum": 18000, "versionPriority": 1})
    );
    assert_eq!(core["metadata"]["labels"][MANAGED], "onstart");

    let versions = [("v1", true, true), ("v2", true, false), ("v3", false, false)];
    ask(&server, "POST", CRDS, &definition(&versions)).await;
    assert_eq!(
        registrations(&server, "example.com").await,
        ["v1.example.com", "v2.example.com"]
    );
    let path = format!("{API_SERVICES}/v1.example.com");
    let made = done(&server, "GET", &path, &Value::Null).await;
    assert_eq!(made["metadata"]["labels"], json!({MANAGED: "true"}));
    assert_eq!(made["metadata"]["managedFields"][0]["manager"], "kube-apiserver");
    assert_eq!(made["spec"]["groupPriorityMinimum"], 1000);
    assert_eq!(made["status"]["conditions"][0]["reason"], "Local");

    // If a client changes or deletes APIServices, the server restores them, as long as a label marks them as managed by
    // the server.
    ask(
        &server,
        "PATCH",
        &path,
        &json!({"metadata": {"labels": {"a": "b"}}, "spec": {"versionPriority": 7}}),
    )
    .await;
    let kept = done(&server, "GET", &path, &Value::Null).await;
    assert_eq!(
        (&kept["spec"], &kept["metadata"]["labels"]["a"]),
        (&made["spec"], &json!("b"))
    );
    ask(&server, "DELETE", &path, &Value::Null).await;
    let again = done(&server, "GET", &path, &Value::Null).await;
    assert_eq!(again["spec"], made["spec"]);
    assert_ne!(again["metadata"]["uid"], made["metadata"]["uid"]);
    ask(&server, "DELETE", &format!("{API_SERVICES}/v1.apps"), &Value::Null).await;
    assert!(
        registrations(&server, "apps").await.is_empty(),
        "APIServices of built-in groups are only created at the start"
    );

    let other = format!("{API_SERVICES}/v2.example.com");
    ask(
        &server,
        "PATCH",
        &other,
        &json!({"metadata": {"labels": {MANAGED: null}}}),
    )
    .await;
    ask(&server, "DELETE", &format!("{CRDS}/widgets.example.com"), &Value::Null).await;
    assert_eq!(registrations(&server, "example.com").await, ["v2.example.com"]);
}

#[tokio::test(start_paused = true)]
async fn in_process_server_has_no_api_services_by_default() {
    let server = ApiServer::start();
    ask(&server, "POST", CRDS, &definition(&[("v1", true, true)])).await;
    assert!(registrations(&server, "example.com").await.is_empty());
}

/// Returns a server with a definition that has this schema for `spec`.
async fn typed(spec: Value) -> ApiServer {
    let mut definition = definition(&[("v1", true, true)]);
    let schema = json!({"type": "object", "properties": {"spec": spec}});
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = schema;
    let server = ApiServer::start();
    done(&server, "POST", CRDS, &definition).await;
    server
}

/// A list instead of a number or a string is refused by the schema, not by the type.
#[rstest]
#[case::int_or_string(json!({"type": "object", "properties": {"a": {
    "x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]}}}), json!({"a": ["b"]}), 422)]
#[case::list_below_preserved_unknown_fields(json!({
    "type": "object", "x-kubernetes-preserve-unknown-fields": true,
    "properties": {"l": {"type": "array", "items": {"type": "object", "properties": {"k": {"type": "string"}}}}},
}), json!({"l": [{"k": "a", "unknown": 1}]}), 201)]
#[case::unknown_field(json!({"type": "object", "properties": {"k": {"type": "string"}}}), json!({"unknown": 1}), 500)]
#[case::schema_without_properties(json!({"type": "object"}), json!({"unknown": 1}), 201)]
#[tokio::test(start_paused = true)]
async fn apply_uses_the_types_of_a_crd_schema(#[case] schema: Value, #[case] spec: Value, #[case] code: u16) {
    let server = typed(schema).await;
    let mut object = widget("a", &[]);
    object["spec"] = spec;
    let answer = ask(&server, "PATCH", &format!("{WIDGETS}/a?fieldManager=me"), &object).await;
    assert_eq!(answer.code, code, "{}", answer.message());
}

#[tokio::test(start_paused = true)]
async fn apply_treats_integers_beyond_64_bits_as_floats() {
    let server = typed(json!({"type": "object", "properties": {"s": {"type": "string"}}})).await;
    let mut object = widget("a", &[]);
    object["spec"] = json!({"s": 9_223_372_036_854_775_808_u64});
    let answer = ask(&server, "PATCH", &format!("{WIDGETS}/a?fieldManager=me"), &object).await;
    let text = "expected string, got &value.valueUnstructured{Value:9.223372036854776e+18}";
    assert!(answer.message().ends_with(text), "{}", answer.message());
}

#[tokio::test(start_paused = true)]
async fn patch_that_removes_the_kind_is_invalid() {
    let server = typed(json!({"type": "object"})).await;
    done(&server, "POST", WIDGETS, &widget("a", &[])).await;
    let answer = ask(&server, "PATCH", &format!("{WIDGETS}/a"), &json!({"kind": null})).await;
    assert_eq!(answer.code, 422);
    assert!(
        answer.message().contains("Object 'Kind' is missing in '{"),
        "{}",
        answer.message()
    );
}

/// The last object is updated in another thread while the objects before it are marked as terminating.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deletion_of_a_crd_deletes_objects_that_are_being_updated() {
    let server = ApiServer::start();
    done(&server, "POST", CRDS, &definition(&[("v1", true, true)])).await;
    let held = (0..500).map(|it| widget(&format!("a{it}"), &["example.com/wait"]));
    let objects = held.chain([widget("z", &[])]).map(|mut object| {
        object["metadata"]["namespace"] = "default".into();
        object
    });
    server.load(objects).expect("the objects are valid");
    let is_done = Arc::new(AtomicBool::new(false));
    let writer = tokio::spawn(update_until(server.clone(), Arc::clone(&is_done)));
    while server.resource_version() < 1000 {
        tokio::task::yield_now().await;
    }
    let definition = format!("{CRDS}/widgets.example.com");
    let deleted = code(&server, Request::delete(&definition), String::new()).await;
    let left = code(&server, Request::get(format!("{WIDGETS}/z")), String::new()).await;
    is_done.store(true, Ordering::Relaxed);
    writer.await.expect("the writer does not panic");
    assert_eq!((deleted, left), (200, 404));
}

async fn update_until(server: ApiServer, is_done: Arc<AtomicBool>) {
    let mut number = 0;
    while !is_done.load(Ordering::Relaxed) {
        number += 1;
        let patch = Request::patch(format!("{WIDGETS}/z")).header("content-type", "application/merge-patch+json");
        code(&server, patch, json!({"spec": {"number": number}}).to_string()).await;
    }
}

/// Sends a request whose effects are not checked, because other requests run at the same time.
async fn code(server: &ApiServer, request: http::request::Builder, body: String) -> u16 {
    let request = request.body(body).expect("the request is valid");
    server.call(request).await.status().as_u16()
}
