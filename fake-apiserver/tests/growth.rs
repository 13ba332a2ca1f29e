//! The cost of a request grows in proportion to the number of its parts: a request with four times as many parts
//! allocates at most five times as many bytes. Allocations are measured because, unlike time, they only depend on the
//! request. The cost of a start with a snapshot does not depend on the size of its CRDs.

#![allow(
    unsafe_code,
    reason = "an allocator that counts is written with the unsafe trait GlobalAlloc"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use fake_apiserver::ApiServer;
use http::{HeaderMap, Request};
use rstest::rstest;
use serde_json::{Map, Value, json};

/// The system's allocator, which also counts the allocated bytes of each thread.
struct Counting;

thread_local! {
    static ALLOCATED: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call is passed to the system's allocator unchanged; the only addition is that bytes are counted.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // A thread that is being destroyed has no counter.
        let _ = ALLOCATED.try_with(|it| it.set(it.get() + layout.size() as u64));
        // SAFETY: the caller upholds the contract, which is the same for the system's allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds the contract, which is the same for the system's allocator.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";
const THINGS: &str = "/apis/example.com/v1/namespaces/default/things";
const JSON: &str = "application/json";
const JSON_PATCH: &str = "application/json-patch+json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

/// A request, and the object that it changes.
struct Measured {
    before: Option<(&'static str, Value)>,
    method: &'static str,
    path: String,
    content_type: &'static str,
    body: Value,
}

impl Measured {
    fn post(path: &str, body: Value) -> Self {
        Self {
            before: None,
            method: "POST",
            path: path.to_owned(),
            content_type: JSON,
            body,
        }
    }

    fn patch(collection: &'static str, before: Value, content_type: &'static str, body: Value) -> Self {
        Self {
            before: Some((collection, before)),
            method: "PATCH",
            path: format!("{collection}/a"),
            content_type,
            body,
        }
    }
}

fn list(count: usize, item: impl Fn(usize) -> Value) -> Value {
    (0..count).map(item).collect()
}

fn map(count: usize, key: impl Fn(usize) -> String, value: &Value) -> Value {
    let entries = (0..count).map(|at| (key(at), value.clone()));
    Value::Object(entries.collect::<Map<String, Value>>())
}

fn config_map(metadata: Value) -> Value {
    let mut map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
    map["metadata"]["name"] = "a".into();
    map
}

fn pod(container: Value) -> Value {
    let mut container = container;
    container["name"] = "c".into();
    container["image"] = "i".into();
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": [container]}})
}

fn thing(spec: Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a"}, "spec": spec})
}

fn definition() -> Value {
    let spec = json!({"type": "object", "properties": {
        "texts": {"type": "object", "additionalProperties": {"type": "string"}},
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "map": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}}}},
    }});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}}],
        },
    })
}

/// Returns the code, the headers, and the allocated bytes of a request.
async fn sent(server: &ApiServer, method: &str, path: &str, content_type: &str, body: &Value) -> (u16, HeaderMap, u64) {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", content_type)
        .body(body.to_string())
        .expect("the request is valid");
    let before = ALLOCATED.get();
    let answer = server.call(request).await;
    let allocated = ALLOCATED.get() - before;
    (answer.status().as_u16(), answer.headers().clone(), allocated)
}

/// Returns the bytes allocated for a request on a separate server.
async fn cost(measured: &Measured, code: u16) -> u64 {
    let server = ApiServer::start();
    server.load([definition()]).expect("the definition is valid");
    if let Some((collection, object)) = &measured.before {
        assert_eq!(sent(&server, "POST", collection, JSON, object).await.0, 201);
    }
    let (answered, headers, allocated) = sent(
        &server,
        measured.method,
        &measured.path,
        measured.content_type,
        &measured.body,
    )
    .await;
    assert_eq!(answered, code, "{} {}", measured.method, measured.path);
    let warnings: usize = headers.get_all("warning").iter().map(http::HeaderValue::len).sum();
    assert!(warnings < 16 * 1024, "the warnings are too long: {warnings} bytes");
    allocated
}

/// Returns a Pod with environment variables.
fn variables(count: usize, item: impl Fn(usize) -> Value) -> Value {
    pod(json!({"env": list(count, item)}))
}

/// Returns unknown fields.
fn unknown(count: usize) -> Value {
    map(count, |at| format!("u{at}"), &json!(1))
}

fn owner(at: usize) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "name": format!("o{at}"), "uid": format!("u{at}")})
}

/// Returns a ConfigMap with finalizers that begin with this letter.
fn finalized(count: usize, letter: &str) -> Value {
    config_map(json!({"finalizers": list(count, |at| json!(format!("a.b/{letter}{at}")))}))
}

/// Returns a ConfigMap with field managers.
fn managed(count: usize, data: Value) -> Value {
    let entry = |at| {
        json!({
            "manager": format!("m{at}"), "operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z",
            "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {format!("f:k{at}"): {}}},
        })
    };
    let mut map = config_map(json!({"managedFields": list(count, entry)}));
    map["data"] = data;
    map
}

fn moves(count: usize) -> Measured {
    let texts = map(4 * count, |at| format!("k{at}"), &json!("v"));
    let text = |letter: &str, at: usize| format!("/spec/texts/{letter}{at}");
    let one = |at| json!({"op": "move", "from": text("k", at), "path": text("z", at)});
    Measured::patch(THINGS, thing(json!({"texts": texts})), JSON_PATCH, list(count, one))
}

fn additions(count: usize) -> Measured {
    let one = |at| json!({"op": "add", "path": "/spec/set/-", "value": format!("v{at}")});
    Measured::patch(THINGS, thing(json!({"set": []})), JSON_PATCH, list(count, one))
}

fn applied(count: usize) -> Measured {
    let items = list(count, |at| json!({"k": format!("v{at}")}));
    Measured {
        method: "PATCH",
        path: format!("{THINGS}/a?fieldManager=m"),
        content_type: APPLY,
        ..Measured::post(THINGS, thing(json!({"map": items})))
    }
}

fn moved_items(count: usize) -> Measured {
    let items =
        |key: &dyn Fn(usize) -> usize| thing(json!({"map": list(count, |at| json!({"k": format!("v{}", key(at))}))}));
    Measured::patch(THINGS, items(&|at| at), MERGE, items(&|at| count - 1 - at))
}

fn ordered(count: usize) -> Measured {
    let before = variables(count, |at| json!({"name": format!("A{at}"), "value": "x"}));
    let order = list(count, |at| json!({"name": format!("A{at}")}));
    let patch = json!({"spec": {"containers": [{"name": "c", "$setElementOrder/env": order}]}});
    Measured::patch(PODS, before, STRATEGIC, patch)
}

/// Returns the creation of an object with the name `a`.
fn created(path: &str, api_version: &str, kind: &str, fields: Value) -> Measured {
    let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "a"}});
    for (field, value) in fields.as_object().expect("the fields are an object") {
        object[field] = value.clone();
    }
    Measured::post(path, object)
}

fn role(count: usize) -> Measured {
    let rule = |at: usize| json!({"apiGroups": ["a.b"], "resources": [format!("r{at}")], "verbs": ["get"]});
    let path = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
    let fields = json!({"rules": list(count, rule)});
    created(path, "rbac.authorization.k8s.io/v1", "Role", fields)
}

fn service(count: usize) -> Measured {
    let ports = list(count, |at| json!({"name": format!("p{at}"), "port": at + 1}));
    let fields = json!({"spec": {"ports": ports}});
    created("/api/v1/namespaces/default/services", "v1", "Service", fields)
}

fn endpoint_slice(count: usize) -> Measured {
    let endpoint = |at: usize| json!({"addresses": [format!("10.0.{}.{}", at / 250, at % 250 + 1)]});
    let path = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    let fields = json!({"addressType": "IPv4", "endpoints": list(count, endpoint)});
    created(path, "discovery.k8s.io/v1", "EndpointSlice", fields)
}

/// Returns the creation of a definition with these versions.
fn defined(versions: Value) -> Measured {
    let mut definition = definition();
    definition["metadata"]["name"] = "others.example.org".into();
    definition["spec"]["group"] = "example.org".into();
    definition["spec"]["names"] = json!({"plural": "others", "kind": "Other"});
    definition["spec"]["versions"] = versions;
    Measured::post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
}

fn versions(count: usize) -> Measured {
    defined(list(count, |at| {
        json!({"name": format!("v{}", at + 1), "served": true, "storage": at == 0,
            "schema": {"openAPIV3Schema": {"type": "object"}}})
    }))
}

fn columns(count: usize) -> Measured {
    let column = |at: usize| json!({"name": format!("c{at}"), "type": "string", "jsonPath": ".metadata.name"});
    defined(
        json!([{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}},
        "additionalPrinterColumns": list(count, column)}]),
    )
}

fn webhooks(count: usize) -> Measured {
    let webhook = |at: usize| {
        json!({"name": format!("w{at}.example.com"), "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "clientConfig": {"url": "https://x.example/y"}})
    };
    let api = "admissionregistration.k8s.io/v1";
    let path = format!("/apis/{api}/validatingwebhookconfigurations");
    let fields = json!({"webhooks": list(count, webhook)});
    created(&path, api, "ValidatingWebhookConfiguration", fields)
}

fn match_labels(count: usize) -> Measured {
    let labels = map(count, |at| format!("k{at}"), &json!("v"));
    let fields = json!({"spec": {"podSelector": {"matchLabels": labels}}});
    let path = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies";
    created(path, "networking.k8s.io/v1", "NetworkPolicy", fields)
}

fn conditions(count: usize) -> Measured {
    let conditions = list(count, |at| json!({"type": format!("t{at}"), "status": "True"}));
    Measured {
        path: format!("{PODS}/a/status"),
        ..Measured::patch(
            PODS,
            pod(json!({})),
            STRATEGIC,
            json!({"status": {"conditions": conditions}}),
        )
    }
}

fn deleted_by_labels(count: usize) -> Measured {
    let labels = map(count, |at| format!("k{at}"), &json!("v"));
    let terms: Vec<String> = (0..count).map(|at| format!("k{at}%3Dv")).collect();
    Measured {
        before: Some((MAPS, config_map(json!({"labels": labels})))),
        method: "DELETE",
        path: format!("{MAPS}?labelSelector={}", terms.join("%2C")),
        ..Measured::post(MAPS, json!({"apiVersion": "v1", "kind": "DeleteOptions"}))
    }
}

/// Returns the creation of a Pod with a list in its spec.
fn pod_with(container: Value, field: &str, value: Value) -> Measured {
    let mut pod = pod(container);
    pod["spec"][field] = value;
    Measured::post(PODS, pod)
}

fn tolerations(count: usize) -> Measured {
    let toleration = |at: usize| json!({"key": format!("k{at}"), "operator": "Exists"});
    pod_with(json!({}), "tolerations", list(count, toleration))
}

fn volumes(count: usize) -> Measured {
    let mounts = list(
        count,
        |at| json!({"name": format!("v{at}"), "mountPath": format!("/m{at}")}),
    );
    let volumes = list(count, |at| json!({"name": format!("v{at}"), "emptyDir": {}}));
    pod_with(json!({"volumeMounts": mounts}), "volumes", volumes)
}

fn init_containers(count: usize) -> Measured {
    let container = |at: usize| json!({"name": format!("i{at}"), "image": "i"});
    pod_with(json!({}), "initContainers", list(count, container))
}

fn sources_of_variables(count: usize) -> Measured {
    let sources = list(count, |at| json!({"configMapRef": {"name": format!("c{at}")}}));
    Measured::post(PODS, pod(json!({"envFrom": sources})))
}

#[rstest]
#[case::equal_names(201, |n| Measured::post(PODS, variables(n, |_| json!({"name": "A", "value": "x"}))))]
#[case::variable_references(201, |n| Measured::post(PODS,
    variables(n, |at| json!({"name": format!("A{at}"), "value": format!("$(A{at})")}))))]
#[case::unknown_fields(201, |n| Measured::post(&format!("{THINGS}?fieldValidation=Warn"), thing(unknown(n))))]
#[case::unknown_fields_of_a_pod(201, |n| Measured::post(&format!("{PODS}?fieldValidation=Warn"), pod(unknown(n))))]
#[case::refused_fields(400, |n| Measured::post(&format!("{THINGS}?fieldValidation=Strict"), thing(unknown(n))))]
#[case::owner_references(201, |n| Measured::post(MAPS, config_map(json!({"ownerReferences": list(n, owner)}))))]
#[case::finalizers(201, |n| Measured::post(MAPS, finalized(n, "f")))]
#[case::replaced_finalizers(200, |n| Measured::patch(MAPS, finalized(n, "f"), STRATEGIC, finalized(n, "g")))]
#[case::field_managers(201, |n| Measured::post(MAPS, managed(n, json!({}))))]
#[case::merged_managers(201, |n| Measured::post(MAPS, managed(n, json!({"k": "v"}))))]
#[case::json_patch_moves(200, moves)]
#[case::json_patch_additions_to_a_list(200, additions)]
#[case::list_of_type_set(201, |n| Measured::post(THINGS, thing(json!({"set": list(n, |at| json!(format!("v{at}")))}))))]
#[case::applied_map(201, applied)]
#[case::moved_items_of_a_map(200, moved_items)]
#[case::element_order_of_variables(200, ordered)]
#[case::rules_of_a_role(201, role)]
#[case::ports_of_a_service(201, service)]
#[case::endpoints_of_a_slice(201, endpoint_slice)]
#[case::versions_of_a_definition(201, versions)]
#[case::columns_of_a_definition(201, columns)]
#[case::webhooks_of_a_configuration(201, webhooks)]
#[case::match_labels(201, match_labels)]
#[case::conditions(200, conditions)]
#[case::selector_of_a_deletecollection(200, deleted_by_labels)]
#[case::tolerations(201, tolerations)]
#[case::volumes(201, volumes)]
#[case::init_containers(201, init_containers)]
#[case::sources_of_variables(201, sources_of_variables)]
#[case::equal_ports(201, |n| Measured::post(PODS, pod(json!({"ports": list(n, |_| json!({"containerPort": 1}))}))))]
#[tokio::test(start_paused = true)]
async fn allocations_grow_almost_linearly_with_the_request_size(
    #[case] code: u16,
    #[case] request: fn(usize) -> Measured,
) {
    const COUNT: usize = 250;
    let first = cost(&request(COUNT), code).await;
    let double = cost(&request(2 * COUNT), code).await;
    let fourfold = cost(&request(4 * COUNT), code).await;
    let bytes = [first, double, fourfold];
    assert!(double <= first * 5 / 2, "{bytes:?} bytes");
    assert!(fourfold <= first * 5, "{bytes:?} bytes");
}

/// Returns the bytes allocated at the start of a server with a CRD that has this number of fields.
async fn start(fields: usize) -> u64 {
    let mut crd = definition();
    let properties = map(fields, |at| format!("f{at}"), &json!({"type": "string"}));
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"] = properties;
    let server = ApiServer::start();
    server.load([crd]).expect("the CRD is valid");
    let first = server.snapshot();
    let builder = ApiServer::builder().world(&first);
    let before = ALLOCATED.get();
    let started = builder.start();
    let allocated = ALLOCATED.get() - before;
    let (code, ..) = sent(&started, "POST", THINGS, JSON, &thing(json!({"f1": "a"}))).await;
    assert_eq!(code, 201);
    allocated
}

#[tokio::test(start_paused = true)]
async fn memory_for_a_start_from_a_snapshot_does_not_depend_on_the_crd_size() {
    let (small, large) = (start(10).await, start(1_000).await);
    assert!(
        large <= small * 11 / 10,
        "the memory depends on the size: {small} and {large} bytes"
    );
}
