//! Webhooks over real sockets: TLS, `caBundle`, addresses of the test. The fake itself is the HTTPS server.

use base64::Engine as _;
use fake_apiserver::ApiServer;
use serde_json::{Value, json};

use crate::ask::{MAPS, configure, map, post};

/// The authority of a server, from the kubeconfig it writes.
fn authority(kubeconfig: &str) -> String {
    let line = kubeconfig
        .lines()
        .find_map(|it| it.trim().strip_prefix("certificate-authority-data: "));
    line.expect("a server with TLS names its authority")
        .trim_matches('"')
        .to_owned()
}

async fn refused(client: Value) -> String {
    let server = ApiServer::start();
    configure(
        &server,
        "Validating",
        "v",
        &[("w.example.com", "/x", json!({"clientConfig": client}))],
    )
    .await;
    let answer = post(&server, MAPS, map("a")).await;
    assert_eq!(answer.code, 500, "{}", answer.body);
    answer.failure().1.to_owned()
}

#[tokio::test]
async fn p6_a_webhook_is_called_over_tls_that_its_bundle_vouches_for() {
    let hook = ApiServer::start();
    let serving = hook
        .serve_tls(([127, 0, 0, 1], 0).into())
        .await
        .expect("a port is free");
    let url = format!("{}/nowhere", serving.url());
    // It is no webhook: that it answers at all shows that the handshake went well.
    let text = refused(json!({"url": url, "caBundle": authority(&serving.kubeconfig())})).await;
    assert!(
        text.ends_with("failed to call webhook: the server could not find the requested resource"),
        "{text}"
    );
    let text = refused(json!({"url": url})).await;
    assert!(
        text.ends_with("x509: certificate signed by unknown authority"),
        "{text}"
    );
    let other = ApiServer::start();
    let other = other
        .serve_tls(([127, 0, 0, 1], 0).into())
        .await
        .expect("a port is free");
    let text = refused(json!({"url": url, "caBundle": authority(&other.kubeconfig())})).await;
    assert!(
        text.ends_with("x509: certificate signed by unknown authority"),
        "{text}"
    );
}

#[tokio::test]
async fn p6_a_service_is_called_at_the_address_the_test_names() {
    let hook = ApiServer::start();
    let serving = hook
        .serve_tls(([127, 0, 0, 1], 0).into())
        .await
        .expect("a port is free");
    let server = ApiServer::builder().webhook_address("s.n.svc", serving.addr()).start();
    let client = json!({"service": {"name": "s", "namespace": "n"}, "caBundle": authority(&serving.kubeconfig())});
    configure(
        &server,
        "Validating",
        "v",
        &[("w.example.com", "/x", json!({"clientConfig": client}))],
    )
    .await;
    let answer = post(&server, MAPS, map("a")).await;
    // The certificate is for another name, and so is not taken.
    assert!(
        answer
            .failure()
            .1
            .ends_with("x509: certificate is not valid for s.n.svc"),
        "{}",
        answer.body
    );
}

#[tokio::test]
async fn p4_connection_refused() {
    let bundle = base64::engine::general_purpose::STANDARD.encode("no certificate");
    let text = refused(json!({"url": "https://127.0.0.1:1/x", "caBundle": bundle})).await;
    let wanted = "Internal error occurred: failed calling webhook \"w.example.com\": failed to call webhook: Post \
                  \"https://127.0.0.1:1/x?timeout=10s\": dial tcp 127.0.0.1:1: connect: connection refused";
    assert_eq!(text, wanted);
}
