//! Webhooks over real sockets: TLS, `caBundle`, and addresses set by the test. The fake API server itself is the HTTPS
//! server.

use base64::Engine as _;
use fake_apiserver::ApiServer;
use rstest::rstest;
use serde_json::{Value, json};

use crate::ask::{MAPS, configure, map, post, reviewed};

/// Returns the authority of a server, from its kubeconfig.
fn authority(kubeconfig: &str) -> String {
    let line = kubeconfig
        .lines()
        .find_map(|it| it.trim().strip_prefix("certificate-authority-data: "));
    line.expect("the kubeconfig of a TLS server has a CA certificate")
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
async fn p6_webhook_certificate_is_verified_with_the_ca_bundle() {
    let hook = ApiServer::start();
    let serving = hook
        .serve_tls(([127, 0, 0, 1], 0).into())
        .await
        .expect("a port is free");
    let url = format!("{}/nowhere", serving.url());
    // The server is not a webhook, but any response shows that the handshake succeeded.
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
async fn p6_webhook_service_is_called_at_the_configured_address() {
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
    // The certificate is refused, because it is for a different name.
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
async fn p4_refused_webhook_connection_fails_the_request() {
    let bundle = base64::engine::general_purpose::STANDARD.encode("no certificate");
    let text = refused(json!({"url": "https://127.0.0.1:1/x", "caBundle": bundle})).await;
    let wanted = "Internal error occurred: failed calling webhook \"w.example.com\": failed to call webhook: Post \
                  \"https://127.0.0.1:1/x?timeout=10s\": dial tcp 127.0.0.1:1: connect: connection refused";
    assert_eq!(text, wanted);
}

/// The server closes the connection without TLS's `close_notify`, like servers in Python.
#[rstest]
#[case::with_a_content_length(true)]
#[case::without_a_content_length(false)]
#[tokio::test]
async fn webhook_response_is_valid_if_the_connection_closes_afterwards(#[case] has_length: bool) {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio_rustls::rustls::pki_types::pem::PemObject as _;
    use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
    use tokio_rustls::rustls::{ServerConfig, crypto::ring};

    let (certificate, key) =
        fake_apiserver::self_signed_certificate([127, 0, 0, 1].into()).expect("the certificate can be generated");
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificate.as_bytes()).collect();
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("the text is PEM");
    let config = ServerConfig::builder_with_provider(ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .expect("the crypto provider supports the TLS versions")
        .with_no_client_auth()
        .with_single_cert(chain.expect("the text is PEM"), key)
        .expect("the key belongs to the certificate");
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port is free");
    let address = listener.local_addr().expect("the listener is bound");
    let acceptor = tokio_rustls::TlsAcceptor::from(std::sync::Arc::new(config));
    let answering = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.expect("the call arrives");
        let mut stream = acceptor.accept(stream).await.expect("the certificate is trusted");
        let mut request = Vec::new();
        let review = loop {
            stream.read_buf(&mut request).await.expect("the request arrives");
            let text = String::from_utf8_lossy(&request);
            if let Some((_, body)) = text.split_once("\r\n\r\n")
                && let Ok(review) = serde_json::from_str::<Value>(body)
            {
                break review;
            }
        };
        let body = reviewed(&review, json!({})).to_string();
        let length = match has_length {
            true => format!("Content-Length: {}\r\n", body.len()),
            false => String::new(),
        };
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n{length}\r\n{body}");
        stream
            .write_all(answer.as_bytes())
            .await
            .expect("the connection is open");
        stream.flush().await.expect("the connection is open");
        // The socket is closed without TLS's `close_notify`.
        drop(stream.into_inner().0);
    });
    let bundle = base64::engine::general_purpose::STANDARD.encode(certificate);
    let client = json!({"url": format!("https://{address}/x"), "caBundle": bundle});
    let server = ApiServer::start();
    configure(
        &server,
        "Validating",
        "v",
        &[("w.example.com", "/x", json!({"clientConfig": client}))],
    )
    .await;
    let answer = post(&server, MAPS, map("a")).await;
    assert_eq!(answer.code, 201, "{}", answer.body);
    answering.await.expect("the process ends");
}
