//! Health, readiness and metrics over HTTP.

use std::net::{Ipv4Addr, SocketAddr};

use informer::metrics::Metrics;
use informer::runtime::{Endpoints, Manager, Runnable, RunnableGroup, Server, ping, run_always, run_when_leader};
use rstest::rstest;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// A free port on localhost.
const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Returns the first line and the body of a response.
async fn ask(address: SocketAddr, method: &str, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address)
        .await
        .expect("the server accepts connections");
    let request = format!("{method} {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
    stream
        .write_all(request.as_bytes())
        .await
        .expect("the connection is open");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("the response is UTF-8");
    let (head, body) = answer.split_once("\r\n\r\n").expect("the response has a head");
    (head.lines().next().unwrap_or_default().to_owned(), body.to_owned())
}

fn endpoints() -> Endpoints {
    let endpoints = Endpoints::new(&Metrics::new());
    endpoints.add_healthz("ping", ping);
    endpoints.add_readyz("database", || Err("the service is down".into()));
    endpoints
}

#[rstest]
#[case::healthy("GET", "/healthz", "200 OK", "ok")]
#[case::verbose("GET", "/healthz?verbose", "200 OK", "[+]ping ok\nhealthz check passed\n")]
#[case::single_check("GET", "/healthz/ping", "200 OK", "ok")]
#[case::not_ready(
    "GET",
    "/readyz",
    "500 Internal Server Error",
    "[-]database failed: reason withheld\nreadyz check failed\n"
)]
#[case::excluded_check("GET", "/readyz?exclude=database", "200 OK", "ok")]
#[case::metrics("GET", "/metrics", "200 OK", "")]
#[case::head_request("HEAD", "/healthz", "200 OK", "")]
#[case::unknown_path("GET", "/debug/pprof", "404 Not Found", "404 page not found\n")]
#[case::post_request("POST", "/healthz", "405 Method Not Allowed", "method not allowed\n")]
#[tokio::test]
async fn health_readiness_and_metrics_are_served(
    #[case] method: &str,
    #[case] path: &str,
    #[case] code: &str,
    #[case] body: &str,
) {
    let server = Server::bind(endpoints(), ANY).await.expect("a port is free");
    let (address, stop) = (
        server.address().expect("the server has an address"),
        CancellationToken::new(),
    );
    assert_eq!(
        (server.name(), server.group()),
        (format!("server on {address}"), RunnableGroup::Server)
    );
    let running = tokio::spawn(Box::new(server).run(stop.clone()));
    let answer = ask(address, method, path).await;
    assert_eq!(answer, (format!("HTTP/1.1 {code}"), body.to_owned()));
    stop.cancel();
    running
        .await
        .expect("the task does not panic")
        .expect("the run does not fail");
    TcpStream::connect(address)
        .await
        .expect_err("nothing listens on the address");
}

#[tokio::test]
async fn error_contains_the_address_that_is_in_use() {
    let first = Server::bind(endpoints(), ANY).await.expect("a port is free");
    let taken = first.address().expect("the server has an address");
    let err = Server::bind(endpoints(), taken)
        .await
        .expect_err("the address is in use");
    assert!(
        err.to_string().starts_with(&format!("cannot listen on {taken}: ")),
        "{err}"
    );
}

/// Returns a client of a server that never responds.
fn silent_client() -> kube::Client {
    let never = tower::service_fn(|_: http::Request<kube::client::Body>| {
        std::future::pending::<Result<http::Response<kube::client::Body>, kube::Error>>()
    });
    kube::Client::new(never, "default")
}

/// Starts a manager with a server, and returns the address of the server.
async fn serving(client: kube::Client) -> (Manager, SocketAddr) {
    let manager = Manager::new(client);
    let server = Server::bind(manager.endpoints(), ANY).await.expect("a port is free");
    let address = server.address().expect("the server has an address");
    manager.add(server).expect("the runnable is accepted");
    (manager, address)
}

#[tokio::test]
async fn manager_responds_before_its_caches_have_synced() {
    let ((manager, address), stop) = (serving(silent_client()).await, CancellationToken::new());
    manager.lister::<k8s_openapi::api::core::v1::Pod>();
    let never = run_always("never", |_| async { panic!("the caches have not synced") });
    manager.add(never).expect("the runnable is accepted");
    let shutdown = stop.clone();
    let running = tokio::spawn(async move { manager.run(shutdown.cancelled_owned()).await });
    assert_eq!(ask(address, "GET", "/healthz").await.0, "HTTP/1.1 200 OK");
    stop.cancel();
    running
        .await
        .expect("the task does not panic")
        .expect("the manager stops within its timeout");
    TcpStream::connect(address)
        .await
        .expect_err("nothing listens on the address");
}

#[rstest]
#[case::always(RunnableGroup::Always)]
#[case::leader(RunnableGroup::Leader)]
#[tokio::test]
async fn manager_responds_until_everything_else_has_stopped(#[case] group: RunnableGroup) {
    let ((manager, address), stop) = (serving(silent_client()).await, CancellationToken::new());
    let ((begin, begun), (tell, answer)) = (oneshot::channel(), oneshot::channel());
    let asks_at_its_end = move |stop: CancellationToken| async move {
        let _ = begin.send(());
        stop.cancelled().await;
        let _ = tell.send(ask(address, "GET", "/healthz").await.0);
        Ok(())
    };
    let last = match group {
        RunnableGroup::Leader => run_when_leader("last", asks_at_its_end),
        _ => run_always("last", asks_at_its_end),
    };
    manager.add(last).expect("the runnable is accepted");
    let shutdown = stop.clone();
    let running = tokio::spawn(async move { manager.run(shutdown.cancelled_owned()).await });
    begun.await.expect("the task begins");
    stop.cancel();
    assert_eq!(answer.await.as_deref(), Ok("HTTP/1.1 200 OK"));
    running
        .await
        .expect("the task does not panic")
        .expect("the manager stops within its timeout");
    TcpStream::connect(address)
        .await
        .expect_err("nothing listens on the address");
}
