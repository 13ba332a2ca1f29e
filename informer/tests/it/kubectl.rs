//! A custom resource with versions, admission webhooks and a controller, over TLS, used with kubectl.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Command, Stdio};

use fake_apiserver::ApiServer;
use informer::runtime::{Manager, SelfSigned};
use informer::webhook::WebhookServer;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{ServiceReference, WebhookClientConfig};
use kube::Api;
use kube::api::PostParams;
use tokio_util::sync::CancellationToken;

use super::webhooks::{add_controller, definition, webhooks};

/// Finds kubectl as the tests of the API server do.
#[path = "../../../fake-apiserver/tests/common/kubectl.rs"]
mod installed;

/// A free port on localhost.
const ANY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Runs kubectl with a document on its standard input. Returns its output, and `true` if it succeeded.
fn run(kubectl: &Path, config: &Path, arguments: &str, document: &str) -> (String, bool) {
    let mut command = Command::new(kubectl);
    command.arg("--kubeconfig").arg(config).args(arguments.split(' '));
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().expect("the process starts");
    let mut input = child.stdin.take().expect("stdin is piped");
    input
        .write_all(document.as_bytes())
        .expect("the process reads its input");
    drop(input);
    let output = child.wait_with_output().expect("the process ends");
    let text = [output.stdout, output.stderr].concat();
    (String::from_utf8_lossy(&text).into_owned(), output.status.success())
}

fn document(name: &str, title: &str) -> String {
    format!("{{apiVersion: example.com/v1beta1, kind: Document, metadata: {{name: {name}}}, spec: {{name: {title}}}}}")
}

#[expect(clippy::too_many_lines, reason = "one object's way through all kinds of webhook")]
#[expect(clippy::print_stderr, reason = "a test that is left out has to say so")]
#[expect(
    clippy::disallowed_methods,
    reason = "the commands block, and the clock of this test is the real one"
)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn custom_resource_with_webhooks_and_a_controller_works_with_kubectl_over_tls() {
    let kubectl = match installed::kubectl() {
        Ok(kubectl) => kubectl,
        Err(reason) => return eprintln!("skipped: {reason}"),
    };
    let made = SelfSigned::new(["webhooks.shop.svc"]).expect("the host name is valid");
    let (webhooks, certificate) = (webhooks(), made.certificate().expect("the certificate was generated"));
    let server = WebhookServer::bind(&webhooks, ANY, certificate)
        .await
        .expect("a port is free");
    let address = server.address().expect("the server has an address");
    let api = ApiServer::builder()
        .webhook_address("webhooks.shop.svc", address)
        .start();
    let serving = api.serve_tls(ANY).await.expect("a port is free");
    let client = api.client_named("operator");
    let (definitions, stop) = (Api::all(client.clone()), CancellationToken::new());
    definitions
        .create(&PostParams::default(), &definition())
        .await
        .expect("the object does not exist yet");
    let manager = Manager::new(client.clone());
    manager.add(server).expect("the runnable is accepted");
    add_controller(&manager);
    let running = tokio::spawn({
        let (manager, stop) = (manager.clone(), stop.clone());
        async move { manager.run(stop.cancelled_owned()).await }
    });
    manager.elected().await;
    let service = ServiceReference {
        name: "webhooks".into(),
        namespace: "shop".into(),
        ..ServiceReference::default()
    };
    let at = WebhookClientConfig {
        ca_bundle: Some(ByteString(made.ca_bundle().as_bytes().to_vec())),
        service: Some(service),
        url: None,
    };
    webhooks
        .install(&client, "documents", &at)
        .await
        .expect("the webhook configurations are accepted");

    let folder = std::env::temp_dir().join(format!("informer-kubectl-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("the directory can be created");
    let config = folder.join("kubeconfig");
    std::fs::write(&config, serving.kubeconfig()).expect("the file is writable");
    let said = tokio::task::spawn_blocking(move || {
        let kubectl = |arguments: &str, document: &str| run(kubectl, &config, arguments, document);
        let created = kubectl("create -f -", &document("readme", "Guide"));
        let warned = kubectl("create -f -", &document("note", "Aha"));
        let denied = kubectl("create -f -", &document("loud", "LOUD"));
        let unconverted = kubectl("create -f -", &document("bad", "bad"));
        let seen = kubectl(
            "wait --for=jsonpath={.status.seen}=en --timeout=60s documents.v1.example.com/readme",
            "",
        );
        let old = kubectl("get documents.v1beta1.example.com readme -o jsonpath={.spec.name}", "");
        let new = kubectl(
            "get documents.v1.example.com readme -o jsonpath={.spec.title}/{.spec.language}",
            "",
        );
        [created, warned, denied, unconverted, seen, old, new]
    });
    let [created, warned, denied, unconverted, seen, old, new] = said.await.expect("the task does not panic");
    std::fs::remove_dir_all(&folder).expect("the directory was created here");
    assert!(
        created.1 && created.0.contains("document.example.com/readme created"),
        "{}",
        created.0
    );
    assert!(warned.1 && warned.0.contains("Warning: a short title"), "{}", warned.0);
    assert!(
        !denied.1 && denied.0.contains("spec.title: \"LOUD\" is in capitals"),
        "{}",
        denied.0
    );
    assert!(
        !unconverted.1 && unconverted.0.contains("a bad name"),
        "{}",
        unconverted.0
    );
    assert!(seen.1, "the reconcile has succeeded: {}", seen.0);
    assert_eq!((old.0.as_str(), new.0.as_str()), ("Guide", "Guide/en"));
    stop.cancel();
    running
        .await
        .expect("the task does not panic")
        .expect("the manager stops without an error");
    serving.shutdown().await;
}
