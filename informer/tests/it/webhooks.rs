//! Webhooks: responses, changes of objects, and addresses.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use fake_apiserver::ApiServer;
use http::{Request, header};
use http_body_util::BodyExt;
use informer::metrics::Metrics;
use informer::reconcile::{Action, ReconcileError};
use informer::runtime::{CertWatcher, Manager, SelfSigned, as_reconciler, update_status};
use informer::webhook::{
    AdmissionRequest, Conversion, Defaulter, Denial, Operation, Validator, WebhookServer, Webhooks,
};
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::WebhookClientConfig;
use k8s_openapi::api::core::v1::{ConfigMap, Container, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::ApiResource;
use kube::core::crd::merge_crds;
use kube::{CustomResource, CustomResourceExt};
use rstest::rstest;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use testkit::TestCluster;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

const HOST: &str = "https://webhooks.shop";

fn server() -> WebhookClientConfig {
    WebhookClientConfig {
        url: Some(HOST.into()),
        ..WebhookClientConfig::default()
    }
}

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "example.com",
    version = "v1",
    kind = "Document",
    namespaced,
    status = "DocumentStatus"
)]
pub(super) struct DocumentSpec {
    title: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    language: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
pub(super) struct DocumentStatus {
    seen: Option<String>,
}

mod v1beta1 {
    use super::*;

    #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
    #[kube(
        group = "example.com",
        version = "v1beta1",
        kind = "Document",
        namespaced,
        status = "DocumentStatus"
    )]
    pub(super) struct DocumentSpec {
        pub(super) name: String,
        pub(super) language: Option<String>,
    }
}

pub(super) fn documents() -> Conversion<Document> {
    Conversion::to_hub::<Document>().spoke(
        |old: v1beta1::Document| {
            if old.spec.name == "bad" {
                return Err("a bad name");
            }
            let spec = DocumentSpec {
                title: old.spec.name,
                language: old.spec.language,
            };
            let mut document = Document::new("", spec);
            document.status = old.status;
            Ok(document)
        },
        |hub: Document| {
            let spec = v1beta1::DocumentSpec {
                name: hub.spec.title,
                language: hub.spec.language,
            };
            let mut document = v1beta1::Document::new("", spec);
            document.status = hub.status;
            Ok::<_, &str>(document)
        },
    )
}

/// Refuses titles in capitals, and warns about short titles.
struct Titles;

impl Validator<Document> for Titles {
    async fn validate_create(&self, document: &Document, _: &AdmissionRequest) -> Result<Vec<String>, Denial> {
        let title = &document.spec.title;
        if title.to_uppercase() == *title {
            return Err(Denial::invalid(format!("spec.title: {title:?} is in capitals")));
        }
        Ok(Vec::from_iter((title.len() < 4).then(|| "a short title".to_owned())))
    }

    async fn validate_update(
        &self,
        old: &Document,
        new: &Document,
        request: &AdmissionRequest,
    ) -> Result<Vec<String>, Denial> {
        if old.spec.title == new.spec.title {
            return Ok(Vec::new());
        }
        self.validate_create(new, request).await
    }

    async fn validate_delete(&self, document: &Document, request: &AdmissionRequest) -> Result<Vec<String>, Denial> {
        if document.spec.title == "Constitution" && !request.dry_run {
            return Err("it is needed".into());
        }
        Ok(Vec::new())
    }
}

struct Language;

impl Defaulter<Document> for Language {
    async fn default(&self, document: &mut Document, _: &AdmissionRequest) -> Result<(), Denial> {
        document.spec.language.get_or_insert_with(|| "en".into());
        Ok(())
    }
}

pub(super) fn webhooks() -> Webhooks {
    let with_deletions = |webhook: &mut k8s_openapi::api::admissionregistration::v1::ValidatingWebhook| {
        for rule in webhook.rules.iter_mut().flatten() {
            rule.operations = Some(vec!["*".into()]);
        }
    };
    let webhooks = Webhooks::new().validate_with(Titles, with_deletions);
    let webhooks = webhooks
        .and_then(|it| it.mutate(Language))
        .expect("the webhook path is unused");
    webhooks.convert(documents())
}

/// Returns the CustomResourceDefinition of Document with both versions; v1 is stored.
pub(super) fn definition() -> CustomResourceDefinition {
    merge_crds(vec![Document::crd(), v1beta1::Document::crd()], "v1").expect("the versions can be merged")
}

/// Adds a controller that records in the status of each Document the language in which it was read.
pub(super) fn add_controller(manager: &Manager) {
    let client = manager.client();
    let seen = as_reconciler(manager.lister(), move |document: Arc<Document>| {
        let client = client.clone();
        async move {
            let language = document.spec.language.clone();
            update_status(&client, &*document, |it| {
                it.status = Some(DocumentStatus { seen: language })
            })
            .await?;
            Ok::<_, ReconcileError>(Action::await_change())
        }
    });
    let builder = manager.controller("documents").for_::<Document>();
    builder.complete(seen).expect("the controller is complete");
}

/// Starts a cluster with the type and its webhooks.
async fn cluster() -> TestCluster {
    let cluster = TestCluster::start();
    cluster.create(definition()).await;
    let webhooks = webhooks();
    cluster
        .webhooks(webhooks.service(), webhooks.configurations("documents", &server()))
        .await;
    cluster
}

#[tokio::test(start_paused = true)]
async fn custom_resource_with_webhooks_and_a_controller_works_in_one_process() {
    let cluster = cluster().await;
    let manager = Manager::new(cluster.client_named("operator"));
    add_controller(&manager);
    cluster.run(async move { manager.run(std::future::pending()).await });

    let old: Api<v1beta1::Document> = Api::default_namespaced(cluster.client());
    let spec = v1beta1::DocumentSpec {
        name: "Readme".into(),
        language: None,
    };
    let mut document = v1beta1::Document::new("readme", spec);
    document.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into());
    old.create(&PostParams::default(), &document)
        .await
        .expect("the request is allowed");
    cluster.settle().await;
    let stored = cluster.get::<Document>("readme");
    assert_eq!(
        (stored.spec.title.as_str(), stored.spec.language.as_deref()),
        ("Readme", Some("en"))
    );
    assert_eq!(stored.metadata.labels, document.metadata.labels);
    assert_eq!(stored.status.and_then(|it| it.seen).as_deref(), Some("en"));
    let read = old.get("readme").await.expect("the object is converted");
    assert_eq!(
        (read.spec.name.as_str(), read.spec.language.as_deref()),
        ("Readme", Some("en"))
    );

    let shout = v1beta1::DocumentSpec {
        name: "SHOUT".into(),
        language: None,
    };
    let err = old
        .create(&PostParams::default(), &v1beta1::Document::new("b", shout))
        .await;
    let err = err.expect_err("the title is in capitals").to_string();
    assert!(err.contains("spec.title: \"SHOUT\" is in capitals"), "{err}");
    let bad = v1beta1::DocumentSpec {
        name: "bad".into(),
        language: None,
    };
    let err = old
        .create(&PostParams::default(), &v1beta1::Document::new("c", bad))
        .await;
    assert!(
        err.expect_err("the type has no hub version")
            .to_string()
            .contains("a bad name")
    );
}

/// When the version changes, the server converts objects that lack the fields of the manager, such as the required
/// name of a Document.
#[tokio::test(start_paused = true)]
async fn one_field_manager_may_apply_in_two_versions() {
    let cluster = TestCluster::start();
    cluster.create(definition()).await;
    let webhooks = Webhooks::new().convert(documents());
    cluster
        .webhooks(webhooks.service(), webhooks.configurations("documents", &server()))
        .await;
    let (old, new) = (
        ApiResource::erase::<v1beta1::Document>(&()),
        ApiResource::erase::<Document>(&()),
    );
    let apply = async |resource: &ApiResource, spec: Value| {
        let api: Api<DynamicObject> = Api::default_namespaced_with(cluster.client(), resource);
        let object = json!({"apiVersion": resource.api_version, "kind": "Document",
            "metadata": {"name": "readme"}, "spec": spec});
        let applied = api
            .patch("readme", &PatchParams::apply("user"), &Patch::Apply(object))
            .await;
        let applied = applied.expect("partial objects can be converted");
        serde_json::to_value(applied).expect("the object can be encoded")
    };
    let owned = |object: &Value| -> Vec<Value> {
        let entries = object["metadata"]["managedFields"].as_array();
        let owned = |it: &Value| json!([it["manager"], it["apiVersion"], it["fieldsV1"]["f:spec"]]);
        entries.into_iter().flatten().map(owned).collect()
    };

    let all = json!({"name": "Readme", "language": "en"});
    assert_eq!(apply(&old, all.clone()).await["spec"], all);
    let title = json!({"title": "Guide"});
    let applied = apply(&new, title.clone()).await;
    assert_eq!(applied["spec"], title, "the language is no longer applied");
    assert_eq!(owned(&applied), [json!(["user", "example.com/v1", {"f:title": {}}])]);
    let translated = json!({"name": "Guide", "language": "de"});
    let applied = apply(&old, translated.clone()).await;
    assert_eq!(applied["spec"], translated);
    let fields = json!({"f:name": {}, "f:language": {}});
    assert_eq!(owned(&applied), [json!(["user", "example.com/v1beta1", fields])]);
    let stored = cluster.get::<Document>("readme");
    assert_eq!(
        (stored.spec.title.as_str(), stored.spec.language.as_deref()),
        ("Guide", Some("de"))
    );
}

#[tokio::test(start_paused = true)]
async fn validators_recognise_deletions_and_dry_runs() {
    let cluster = cluster().await;
    let spec = DocumentSpec {
        title: "Constitution".into(),
        language: None,
    };
    cluster.create(Document::new("c", spec)).await;
    let api: Api<Document> = Api::default_namespaced(cluster.client());
    let dry = kube::api::DeleteParams {
        dry_run: true,
        ..kube::api::DeleteParams::default()
    };
    api.delete("c", &dry).await.expect("the dry run succeeds");
    let err = api
        .delete("c", &kube::api::DeleteParams::default())
        .await
        .expect_err("the object is needed");
    assert!(err.to_string().contains("denied the request: it is needed"), "{err}");
}

/// Sends a request to a webhook. Returns the status code and the body.
pub(super) async fn ask(webhooks: &Webhooks, path: &str, content_type: &str, body: String) -> (u16, Value) {
    let request = Request::post(path).header(header::CONTENT_TYPE, content_type);
    let request = request
        .body(axum::body::Body::from(body))
        .expect("the request is valid");
    let response = webhooks
        .service()
        .oneshot(request)
        .await
        .expect("the service is infallible");
    let code = response.status().as_u16();
    let body = response
        .into_body()
        .collect()
        .await
        .expect("the body is in memory")
        .to_bytes();
    (code, serde_json::from_slice(&body).unwrap_or_default())
}

pub(super) fn review(operation: &str, object: Value, old: Value) -> Value {
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u", "operation": operation, "object": object, "oldObject": old, "name": "m", "namespace": "shop",
        "kind": {"group": "", "version": "v1", "kind": "ConfigMap"}, "userInfo": {"username": "me"}}})
}

fn judged(_: Option<&ConfigMap>, new: Option<&ConfigMap>, request: &AdmissionRequest) -> Result<Vec<String>, Denial> {
    assert_ne!(request.namespace, "panic");
    let data = new.and_then(|it| it.data.clone()).unwrap_or_default();
    match data.get("verdict").map(String::as_str) {
        Some("deny") => Err(Denial::new("no").with_warnings(["really".to_owned()])),
        Some("panic") => panic!("the validator panics"),
        Some("server") => {
            let status = kube::core::Status::failure("too busy", "TooManyRequests").with_code(429);
            Err(kube::Error::Api(Box::new(status)).into())
        }
        Some("wrapped") => {
            let status = kube::core::Status::failure("too busy", "TooManyRequests").with_code(429);
            Err(std::io::Error::other(kube::Error::Api(Box::new(status))).into())
        }
        _ => Ok(vec![format!(
            "{:?} by {:?}",
            request.operation, request.user_info.username
        )]),
    }
}

#[rstest]
#[case::allowed("fine", true, 0, "", &["Create by Some(\"me\")"])]
#[case::denied("deny", false, 403, "no", &["really"])]
#[case::panic("panic", false, 500, "panic: the validator panics [recovered]", &[])]
#[case::server_error("server", false, 429, "too busy", &[])]
#[case::wrapped_server_error("wrapped", false, 429, "too busy", &[])]
#[tokio::test]
async fn admission_response_has_a_code_a_message_and_warnings(
    #[case] verdict: &str,
    #[case] allowed: bool,
    #[case] code: u16,
    #[case] message: &str,
    #[case] warnings: &[&str],
) {
    let webhooks = Webhooks::new()
        .validate::<ConfigMap>(judged)
        .expect("the webhook path is unused");
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"verdict": verdict}});
    let review = review("CREATE", map, Value::Null).to_string();
    let (http, answer) = ask(&webhooks, "/validate--v1-configmap", "application/json", review).await;
    let response = &answer["response"];
    assert_eq!(
        (http, &response["uid"], &response["allowed"]),
        (200, &json!("u"), &json!(allowed))
    );
    assert_eq!(response["status"]["code"].as_u64().unwrap_or_default(), u64::from(code));
    assert_eq!(response["status"]["message"].as_str().unwrap_or_default(), message);
    let warned: Vec<_> = response["warnings"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    assert_eq!(warned, warnings);
}

#[rstest]
#[case::plain_text("text/plain", "{}".to_owned(), "contentType=text/plain, expected application/json")]
#[case::empty_body("application/json", String::new(), "request body is empty")]
#[case::invalid_json("application/json; charset=utf-8", "{".to_owned(), "the review cannot be decoded")]
#[case::unsupported_version("application/json", r#"{"apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview"}"#.to_owned(),
    "expected AdmissionReview of admission.k8s.io/v1, got AdmissionReview of admission.k8s.io/v1beta1")]
#[case::missing_request("application/json", r#"{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}"#.to_owned(),
    "the AdmissionReview has no request")]
#[case::object_of_another_type("application/json", review("CREATE", json!({"data": 7}), Value::Null).to_string(),
    "the object cannot be decoded")]
#[tokio::test]
async fn body_that_is_not_a_review_is_a_bad_request(
    #[case] content_type: &str,
    #[case] body: String,
    #[case] message: &str,
) {
    let webhooks = Webhooks::new()
        .validate::<ConfigMap>(judged)
        .expect("the webhook path is unused");
    let (http, answer) = ask(&webhooks, "/validate--v1-configmap", content_type, body).await;
    let status = &answer["response"]["status"];
    assert_eq!((http, status["code"].as_u64()), (200, Some(400)), "{answer}");
    assert!(
        status["message"].as_str().unwrap_or_default().contains(message),
        "{status}"
    );
}

#[tokio::test]
async fn patch_contains_only_the_changes_made_by_a_defaulter() {
    let sized = |map: &mut ConfigMap, _: &AdmissionRequest| {
        map.data
            .get_or_insert_default()
            .entry("size".into())
            .or_insert("big".into());
        Ok(())
    };
    let webhooks = Webhooks::new()
        .mutate::<ConfigMap>(sized)
        .expect("the webhook path is unused");
    let ask = async |operation: &str, object: Value| {
        let body = review(operation, object, Value::Null).to_string();
        let (_, answer) = ask(&webhooks, "/mutate--v1-configmap", "application/json", body).await;
        let patch = answer["response"]["patch"].as_str().map(|it| json!(it));
        let patch = patch.map(|it| serde_json::from_value::<ByteString>(it).expect("the text is base64").0);
        patch.map(|it| serde_json::from_slice::<Value>(&it).expect("the patch is valid JSON"))
    };
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "new": [1]});
    let patch = ask("CREATE", map.clone()).await;
    assert_eq!(
        patch,
        Some(json!([{"op": "add", "path": "/data", "value": {"size": "big"}}]))
    );
    let mut sized = map.clone();
    sized["data"] = json!({"size": "small"});
    assert_eq!(ask("UPDATE", sized).await, None);
    assert_eq!(ask("DELETE", map).await, None);
}

#[tokio::test]
async fn inserted_item_does_not_receive_unknown_fields_of_another_item() {
    let inject = |pod: &mut Pod, _: &AdmissionRequest| {
        let container = |name: &str| Container {
            name: name.to_owned(),
            ..Container::default()
        };
        let spec = pod.spec.get_or_insert_default();
        spec.containers.insert(0, container("sidecar"));
        Ok(())
    };
    let webhooks = Webhooks::new()
        .mutate::<Pod>(inject)
        .expect("the webhook path is unused");
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}});
    pod["spec"] = json!({"containers": [{"name": "main", "new": 1}]});
    let body = review("CREATE", pod.clone(), Value::Null).to_string();
    let (_, answer) = ask(&webhooks, "/mutate--v1-pod", "application/json", body).await;
    let patch = serde_json::from_value::<ByteString>(answer["response"]["patch"].clone());
    let patch = serde_json::from_slice::<json_patch::Patch>(&patch.expect("the text is base64").0);
    json_patch::patch(&mut pod, &patch.expect("the patch is valid JSON")).expect("the patch can be applied");
    assert_eq!(
        pod["spec"]["containers"],
        json!([{"name": "sidecar"}, {"name": "main"}])
    );
}

#[tokio::test]
async fn dynamic_type_can_be_validated_and_paths_are_unique() {
    let resource = ApiResource::erase::<ConfigMap>(&());
    let none = |_: Option<&DynamicObject>, new: Option<&DynamicObject>, _: &AdmissionRequest| {
        let is_empty = new.is_some_and(|it| it.data["data"].is_null());
        if is_empty {
            Err(Denial::new("empty"))
        } else {
            Ok(Vec::new())
        }
    };
    let webhooks = Webhooks::new()
        .validate_dynamic(&resource, none)
        .expect("the webhook path is unused");
    let body = review("CREATE", json!({"metadata": {"name": "m"}}), Value::Null).to_string();
    let (_, answer) = ask(&webhooks, "/validate--v1-configmap", "application/json", body).await;
    assert_eq!(answer["response"]["status"]["message"], "empty");
    let err = webhooks
        .validate::<ConfigMap>(judged)
        .expect_err("the webhook path is already in use");
    assert_eq!(
        err.to_string(),
        "webhooks: the path /validate--v1-configmap is already in use"
    );
}

#[tokio::test]
async fn webhook_requests_are_counted_by_path() {
    let metrics = Metrics::new();
    let webhooks = Webhooks::new()
        .validate::<ConfigMap>(judged)
        .expect("the webhook path is unused")
        .metrics(&metrics);
    let map = json!({"metadata": {"name": "m"}, "data": {"verdict": "panic"}});
    let body = review("CREATE", map, Value::Null).to_string();
    ask(&webhooks, "/validate--v1-configmap", "application/json", body).await;
    let text = metrics.render();
    for line in [
        "controller_runtime_webhook_requests_total{code=\"200\",webhook=\"/validate--v1-configmap\"} 1",
        "controller_runtime_webhook_panics_total{webhook=\"/validate--v1-configmap\"} 1",
        "controller_runtime_webhook_requests_in_flight{webhook=\"/validate--v1-configmap\"} 0",
        "controller_runtime_webhook_latency_seconds_count{webhook=\"/validate--v1-configmap\"} 1",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
}

#[tokio::test(start_paused = true)]
async fn webhook_configurations_can_be_installed_repeatedly() {
    let cluster = TestCluster::start();
    let webhooks = Webhooks::new()
        .validate::<ConfigMap>(judged)
        .expect("the webhook path is unused");
    cluster.server().answer_webhooks("webhooks.shop", webhooks.service());
    webhooks
        .install(&cluster.client(), "shop", &server())
        .await
        .expect("the webhook configurations are accepted");
    webhooks
        .install(&cluster.client(), "shop", &server())
        .await
        .expect("a repeated install succeeds");
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client());
    let mut map = ConfigMap::default();
    map.metadata.name = Some("m".into());
    map.data = Some(BTreeMap::from([("verdict".to_owned(), "deny".to_owned())]));
    let err = maps
        .create(&PostParams::default(), &map)
        .await
        .expect_err("the webhook denies the request")
        .to_string();
    assert!(
        err.contains("admission webhook \"validate.configmaps.v1.core\" denied the request: no"),
        "{err}"
    );
}

/// A free port on localhost.
const ANY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

#[tokio::test]
async fn manager_serves_webhooks_over_tls() {
    let made = SelfSigned::new(["webhooks.shop.svc"]).expect("the host name is valid");
    let webhooks = Webhooks::new()
        .validate::<ConfigMap>(judged)
        .expect("the webhook path is unused");
    let server = WebhookServer::bind(
        &webhooks,
        ANY,
        made.certificate().expect("the certificate was generated"),
    )
    .await;
    let server = server.expect("a port is free");
    let (address, check) = (
        server.address().expect("the server has an address"),
        server.started_check(),
    );
    assert!(check().is_err(), "the check fails before the server answers");
    let api = ApiServer::builder()
        .webhook_address("webhooks.shop.svc", address)
        .start();
    let client = testkit_client(&api);
    let manager = Manager::new(client.clone());
    manager.add(server).expect("the runnable is accepted");
    let stop = CancellationToken::new();
    let running = tokio::spawn({
        let (manager, stop) = (manager.clone(), stop.clone());
        async move { manager.run(stop.cancelled_owned()).await }
    });
    manager.elected().await;
    assert!(check().is_ok());
    let at = WebhookClientConfig {
        ca_bundle: Some(ByteString(made.ca_bundle().as_bytes().to_vec())),
        service: Some(k8s_openapi::api::admissionregistration::v1::ServiceReference {
            name: "webhooks".into(),
            namespace: "shop".into(),
            ..Default::default()
        }),
        url: None,
    };
    webhooks
        .install(&client, "shop", &at)
        .await
        .expect("the webhook configurations are accepted");
    let maps: Api<ConfigMap> = Api::namespaced(client, "default");
    let patch = Patch::Apply(
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"verdict": "deny"}}),
    );
    let err = maps
        .patch("m", &PatchParams::apply("test"), &patch)
        .await
        .expect_err("the webhook denies the request")
        .to_string();
    assert!(err.contains("denied the request: no"), "{err}");
    stop.cancel();
    running
        .await
        .expect("the task does not panic")
        .expect("the manager stops without an error");
    tokio::net::TcpStream::connect(address)
        .await
        .expect_err("nothing listens on the address");
}

fn testkit_client(api: &ApiServer) -> kube::Client {
    api.client_named("webhooks")
}

#[tokio::test(start_paused = true)]
async fn certificate_is_read_again_when_its_files_change() {
    let folder = std::env::temp_dir().join(format!("informer-certificates-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("the directory can be created");
    let (certificate, key) = (folder.join("tls.crt"), folder.join("tls.key"));
    let write = |made: &SelfSigned| {
        std::fs::write(&certificate, made.certificate_pem()).expect("the file is writable");
        std::fs::write(&key, made.key_pem()).expect("the file is writable");
    };
    assert!(
        CertWatcher::new(&certificate, &key).is_err(),
        "missing files are an error"
    );
    let (first, second) = (
        SelfSigned::new(["a"]).expect("the host name is valid"),
        SelfSigned::new(["b"]).expect("the host name is valid"),
    );
    write(&first);
    let metrics = Metrics::new();
    let watcher = CertWatcher::new(&certificate, &key)
        .expect("the key belongs to the certificate")
        .metrics(&metrics);
    let running = watcher.clone();
    tokio::spawn(async move { running.run(CancellationToken::new()).await });
    tokio::time::sleep(Duration::from_secs(15)).await;
    assert_eq!(watcher.reads(), 1);
    std::fs::write(&certificate, second.certificate_pem()).expect("the file is writable");
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(watcher.reads(), 1, "a certificate without its key is not read");
    assert!(metrics.render().contains("certwatcher_read_certificate_errors_total 1"));
    write(&second);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(watcher.reads(), 2);
    std::fs::remove_dir_all(&folder).expect("the path exists");
}

#[test]
fn admission_operations_are_parsed_from_kubernetes_names() {
    let read = |text: &str| serde_json::from_value::<Operation>(json!(text)).ok();
    assert_eq!(read("CONNECT"), Some(Operation::Connect));
    assert_eq!(read("PATCH"), None);
}

/// Explores faults for a type with versions, admission webhooks and a controller, including faults of the process that
/// serves the webhooks, at each call of the defaulter.
#[test]
fn faults_never_lose_an_object_if_webhooks_are_installed() {
    let scenario = async |cluster: &TestCluster| {
        cluster.create(definition()).await;
        let call = cluster.point("default").of("operator");
        let webhooks = Webhooks::new()
            .validate(Titles)
            .and_then(|it| it.mutate(Reached(call)))
            .expect("the webhook path is unused")
            .convert(documents());
        let configurations = webhooks.configurations("documents", &server());
        cluster.webhooks(webhooks.service(), configurations).await;
        cluster.controller("operator", |client| async move {
            let manager = Manager::new(client);
            add_controller(&manager);
            manager
                .run(std::future::pending())
                .await
                .expect("the manager stops without an error");
        });
        let old: Api<v1beta1::Document> = Api::default_namespaced(cluster.client_named("user"));
        let spec = v1beta1::DocumentSpec {
            name: "Readme".into(),
            language: None,
        };
        let document = v1beta1::Document::new("readme", spec);
        // The user retries until the write is allowed.
        while old.create(&PostParams::default(), &document).await.is_err() {
            if old.get_opt("readme").await.is_ok_and(|it| it.is_some()) {
                break;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        cluster.settle().await;
        let stored = cluster.get::<Document>("readme");
        assert_eq!(stored.spec.language.as_deref(), Some("en"));
        assert_eq!(stored.status.and_then(|it| it.seen).as_deref(), Some("en"));
    };
    testkit::explore::explore(scenario).schedules(200).run();
}

/// The defaulter [`Language`] in a process that may be unreachable.
struct Reached(testkit::explore::Point);

impl Defaulter<Document> for Reached {
    async fn default(&self, document: &mut Document, request: &AdmissionRequest) -> Result<(), Denial> {
        self.0
            .pass()
            .await
            .map_err(|_| Denial::from("the process cannot be reached"))?;
        Language.default(document, request).await
    }
}
