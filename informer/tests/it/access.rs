//! Metrics with authentication and authorization.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use informer::runtime::{Endpoints, Runnable, Server, ping};
use rstest::rstest;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

/// A free port on localhost.
const ANY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Starts an API server with two tokens, of which only one may read metrics.
async fn api() -> fake_apiserver::ApiServer {
    let api = fake_apiserver::ApiServer::builder()
        .authorization(fake_apiserver::Authorization::Rbac)
        .token("prometheus-token", "prometheus", Vec::<String>::new())
        .token("other-token", "other", Vec::<String>::new())
        .start();
    let rules = json!([{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]);
    let group = "rbac.authorization.k8s.io";
    let api_version = format!("{group}/v1");
    api.load([
        json!({"apiVersion": api_version, "kind": "ClusterRole", "metadata": {"name": "metrics", "uid": "1"}, "rules": rules}),
        json!({"apiVersion": api_version, "kind": "ClusterRoleBinding", "metadata": {"name": "metrics", "uid": "2"},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "metrics"},
            "subjects": [{"apiGroup": group, "kind": "User", "name": "prometheus"}]}),
    ])
    .expect("the objects can be stored");
    api
}

#[rstest]
#[case::without_token("/metrics", "", "401 Unauthorized", "Unauthorized\n")]
#[case::another_scheme("/metrics", "Basic abc", "401 Unauthorized", "Unauthorized\n")]
#[case::unknown_token("/metrics", "Bearer nobody", "401 Unauthorized", "Unauthorized\n")]
#[case::forbidden(
    "/metrics",
    "Bearer other-token",
    "403 Forbidden",
    "Authorization denied for user other\n"
)]
#[case::allowed("/metrics", "Bearer prometheus-token", "200 OK", "")]
#[case::health_is_open("/healthz", "", "200 OK", "ok")]
#[tokio::test]
async fn metrics_require_permission_to_get_the_path(
    #[case] path: &str,
    #[case] authorization: &str,
    #[case] code: &str,
    #[case] body: &str,
) {
    let api = api().await;
    let endpoints = Endpoints::new(&informer::metrics::Metrics::new());
    endpoints.add_healthz("ping", ping);
    let server = Server::bind(endpoints, ANY).await.expect("a port is free");
    let server = server.authorize(&api.client_named("metrics"));
    let (address, stop) = (
        server.address().expect("the server has an address"),
        CancellationToken::new(),
    );
    let running = tokio::spawn(Box::new(server).run(stop.clone()));
    for _ in 0..2 {
        let mut stream = TcpStream::connect(address)
            .await
            .expect("the server accepts connections");
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: test\r\nAuthorization: {authorization}\r\nConnection: close\r\n\r\n");
        stream
            .write_all(request.as_bytes())
            .await
            .expect("the connection is open");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("the response is UTF-8");
        let (head, text) = answer.split_once("\r\n\r\n").expect("the response has a head");
        assert_eq!(head.lines().next(), Some(format!("HTTP/1.1 {code}").as_str()));
        assert_eq!(text, body);
    }
    let reviews = api.journal().requests().len();
    assert!(
        reviews <= 2,
        "the next request is answered from the cache of reviews: {reviews}"
    );
    stop.cancel();
    running
        .await
        .expect("the task does not panic")
        .expect("the run does not fail");
}

#[cfg(feature = "self-signed")]
#[tokio::test]
async fn metrics_are_served_over_tls() {
    use tokio_rustls::TlsConnector;
    use tokio_rustls::rustls::crypto::ring;
    use tokio_rustls::rustls::pki_types::pem::PemObject;
    use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
    use tokio_rustls::rustls::{ClientConfig, RootCertStore};

    let made = informer::runtime::SelfSigned::new(["metrics.shop.svc"]).expect("the host name is valid");
    let endpoints = Endpoints::new(&informer::metrics::Metrics::new());
    let server = Server::bind(endpoints, ANY).await.expect("a port is free");
    let server = server.tls(made.certificate().expect("the certificate was generated"));
    let (address, stop) = (
        server.address().expect("the server has an address"),
        CancellationToken::new(),
    );
    let running = tokio::spawn(Box::new(server).run(stop.clone()));

    let mut roots = RootCertStore::empty();
    let authority = CertificateDer::from_pem_slice(made.ca_bundle().as_bytes()).expect("the text is a certificate");
    roots.add(authority).expect("the certificate is a valid trust anchor");
    let config = ClientConfig::builder_with_provider(ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .expect("the crypto provider supports the TLS versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("metrics.shop.svc").expect("the host name is valid");
    let stream = TcpStream::connect(address)
        .await
        .expect("the server accepts connections");
    let connected = TlsConnector::from(std::sync::Arc::new(config))
        .connect(name, stream)
        .await;
    let mut stream = connected.expect("the certificate is trusted");
    let request = "GET /metrics HTTP/1.1\r\nHost: metrics\r\nConnection: close\r\n\r\n";
    stream
        .write_all(request.as_bytes())
        .await
        .expect("the connection is open");
    let mut answer = String::new();
    // Servers may close the connection without a TLS close message.
    let _ = stream.read_to_string(&mut answer).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    stop.cancel();
    running
        .await
        .expect("the task does not panic")
        .expect("the run does not fail");
}
