//! Serves HTTP over sockets: accepts connections, performs handshakes, handles HTTP/1.1 and HTTP/2, and shuts down
//! gracefully.

mod front_proxy;
mod options;
mod request_target;

use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum_core::body::Body;
use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};
use tower::{Service, ServiceExt};

use crate::api::arrival::{Arrival, Hosts};
use crate::api::front_proxy::{FrontProxy, UnknownCertificate};
use crate::api::user::UserInfo;
use crate::endpoints::upgrade::Upgrade;
use crate::kubeconfig::{Credentials, kubeconfig};
use crate::tasks::{TaskGroup, WeakTaskGroup};
pub use options::ServeOptions;
use options::Transport;
use request_target::EscapedTargets;

/// Time that [`Serving::shutdown`] waits for requests in progress; connections still open then are cut.
const SHUTDOWN_BOUND: Duration = Duration::from_secs(5);

/// Time limit for the TLS handshake of a client; afterwards the connection is closed.
#[cfg(feature = "tls")]
const HANDSHAKE_BOUND: Duration = Duration::from_secs(10);

/// Time limit for the first request of a connection; afterwards the connection is closed. Equal to `ReadHeaderTimeout`
/// in kube-apiserver.
const HEADER_BOUND: Duration = Duration::from_secs(32);

/// Time limit for the next request on a connection, from the end of the previous response to the end of the request's
/// headers; afterwards the connection is closed. Equal to kube-apiserver's `IdleTimeout`, and to the time for which
/// Go's clients keep idle connections.
const IDLE_BOUND: Duration = Duration::from_secs(90);

/// Pause after an accept that failed for lack of file descriptors or memory.
const ACCEPT_REST: Duration = Duration::from_millis(100);

/// Maximum size of a request's headers, as in kube-apiserver; requests with larger headers fail with 431.
const HEADER_BYTES: u32 = 1 << 20;

/// Maximum number of headers of a request; requests with more headers fail with 431. kube-apiserver only limits their
/// total size.
const HEADERS_MAX: usize = 2000;

/// Maximum number of concurrent requests (mostly watches) on an HTTP/2 connection; further ones wait until one ends.
const HTTP2_STREAMS: u32 = 1000;

/// A server that listens on a socket, until it is shut down or dropped.
///
/// Dropping it cuts all connections; [`Serving::shutdown`] lets requests finish.
#[derive(Debug)]
#[must_use = "the server stops listening when this is dropped"]
pub struct Serving {
    addr: SocketAddr,
    /// Credentials for clients that use TLS; `None` for plain HTTP.
    credentials: Option<Credentials>,
    stop: watch::Sender<bool>,
    /// The accept loop, which owns the connections.
    tasks: TaskGroup,
}

impl Serving {
    /// Returns the address on which the server listens, with its actual port.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Returns the URL at which clients on this machine reach the server.
    pub fn url(&self) -> String {
        let host = match self.addr.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
            ip => ip,
        };
        let scheme = if self.credentials.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", SocketAddr::new(host, self.addr.port()))
    }

    /// Returns the certificates with which clients verify the server, as PEM: the generated authority, or the
    /// configured chain (`ServeOptions::certificate`). Returns `None` for plain HTTP.
    pub fn ca_certificate(&self) -> Option<&str> {
        self.credentials.as_ref().map(|it| it.ca.as_str())
    }

    /// Returns a kubeconfig for kubectl and other clients, as YAML.
    pub fn kubeconfig(&self) -> String {
        kubeconfig(&self.url(), self.credentials.as_ref(), None)
    }

    /// Returns the same kubeconfig with an additional user and context `name` that use a bearer token.
    pub fn kubeconfig_with_token(&self, name: &str, token: &str) -> String {
        kubeconfig(&self.url(), self.credentials.as_ref(), Some((name, token)))
    }

    /// Stops listening, ends watches, waits at most five seconds for requests in progress, and cuts the remaining
    /// connections.
    pub async fn shutdown(self) {
        self.stop.send_replace(true);
        self.tasks.finished().await;
    }
}

/// A service that handles requests. Each connection uses a clone of the service. An error breaks the connection.
pub(crate) trait HttpService:
    Service<Request<Body>, Response = Response<Body>, Error = io::Error, Future: Send> + Clone + Send + 'static
{
}

impl<S> HttpService for S where
    S: Service<Request<Body>, Response = Response<Body>, Error = io::Error, Future: Send> + Clone + Send + 'static
{
}

/// Listens on `addr` and handles requests with `service`. Port 0 selects a free port.
pub(crate) async fn serve(addr: SocketAddr, options: &ServeOptions, service: impl HttpService) -> io::Result<Serving> {
    let listener = TcpListener::bind(addr).await?;
    let addr = listener.local_addr()?;
    let (handshake, credentials) = Handshake::new(&options.transport, addr)?;
    let hosts = Arc::new(Hosts::new(addr, &options.hosts));
    let (stop, stopped) = watch::channel(false);
    let tasks = TaskGroup::default();
    tasks.spawn(accept(listener, handshake, hosts, service, Stop(stopped)));
    Ok(Serving {
        addr,
        credentials,
        stop,
        tasks,
    })
}

impl ServeOptions {
    /// Listens on `addr` and handles requests with a custom service, which may pass them on to an
    /// [`ApiServer`](crate::ApiServer), for example to change, delay or refuse requests between clients and a server.
    /// Port 0 selects a free port. An error of the service breaks the connection.
    ///
    /// ```
    /// use fake_apiserver::{ApiServer, ServeOptions};
    /// use tower::ServiceExt;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let server = ApiServer::start();
    /// let service = server.service().map_err(|never| match never {});
    /// let serving = ServeOptions::http().serve("127.0.0.1:0".parse()?, service).await?;
    /// assert!(serving.url().starts_with("http://127.0.0.1:"));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Fails if the server cannot listen on the address, or if a certificate cannot be used.
    pub async fn serve<S>(&self, addr: SocketAddr, service: S) -> io::Result<Serving>
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = io::Error> + Clone + Send + 'static,
        S::Future: Send,
    {
        serve(addr, self, service).await
    }
}

/// Accepts connections in a loop, with one task per connection, owned by the loop's task.
async fn accept(listener: TcpListener, handshake: Handshake, hosts: Arc<Hosts>, service: impl HttpService, stop: Stop) {
    let connections = TaskGroup::default();
    let mut stopped = pin!(stop.clone().requested());
    loop {
        let accepted = tokio::select! {
            () = &mut stopped => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, addr)) => {
                let hosts = Arc::clone(&hosts);
                let peer = Peer::new(addr, hosts);
                connections.spawn(connection(
                    stream,
                    peer,
                    handshake.clone(),
                    service.clone(),
                    stop.clone(),
                ));
            }
            Err(err) if concerns_one_connection(&err) => {}
            Err(err) => {
                tracing::warn!("cannot accept connections: {err}");
                sleep(ACCEPT_REST).await;
            }
        }
    }
    drop(listener);
    if timeout(SHUTDOWN_BOUND, connections.finished()).await.is_err() {
        tracing::warn!("requests still in progress after {SHUTDOWN_BOUND:?} are aborted");
    }
}

/// Returns `true` if an accept failed because the client had already disconnected.
fn concerns_one_connection(err: &io::Error) -> bool {
    matches!(
        err.kind(),
        io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset
    )
}

/// Serves one connection until it ends.
async fn connection(stream: TcpStream, peer: Peer, handshake: Handshake, service: impl HttpService, stop: Stop) {
    // A watch event is a small write, which Nagle's algorithm must not delay until the next write.
    if let Err(err) = stream.set_nodelay(true) {
        tracing::debug!(peer = %peer.addr, "cannot set TCP_NODELAY: {err}");
    }
    match handshake {
        Handshake::None => speak(stream, peer, service, stop).await,
        #[cfg(feature = "tls")]
        // Boxed, because it would otherwise add 5 KB to connections without TLS.
        Handshake::Tls(acceptor, clients) => Box::pin(secured(stream, peer, acceptor, clients, service, stop)).await,
    }
}

/// Accepts a connection with TLS.
#[cfg(feature = "tls")]
async fn secured(
    stream: TcpStream,
    peer: Peer,
    acceptor: tokio_rustls::TlsAcceptor,
    clients: Arc<crate::tls::Clients>,
    service: impl HttpService,
    stop: Stop,
) {
    let shaken = tokio::select! {
        () = stop.clone().requested() => return,
        shaken = timeout(HANDSHAKE_BOUND, acceptor.accept(stream)) => shaken,
    };
    match shaken {
        Ok(Ok(stream)) => {
            let client = clients.peer(stream.get_ref().1);
            let peer = Peer {
                user: client.user,
                proxy: client.proxy,
                is_unknown: client.is_unknown,
                ..peer
            };
            speak(stream, peer, service, stop).await;
        }
        Ok(Err(err)) => tracing::debug!(peer = %peer.addr, "TLS handshake failed: {err}"),
        Err(_elapsed) => tracing::debug!(peer = %peer.addr, "no TLS handshake within {HANDSHAKE_BOUND:?}"),
    }
}

/// Serves HTTP on a stream until either side ends it.
async fn speak(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: Peer,
    service: impl HttpService,
    stop: Stop,
) {
    let (sender, stopped) = (peer.clone(), stop.clone().requested());
    // Upgraded connections end together with the HTTP connection.
    let tasks = TaskGroup::default();
    let upgrades = tasks.downgrade();
    let begun = Arc::new(Notify::new());
    let first = Arc::clone(&begun);
    let requests = service_fn(move |request| {
        begun.notify_one();
        // Boxed, because hyper would otherwise reserve about 8 KB for the future as long as the connection lasts.
        Box::pin(answer(
            request,
            sender.clone(),
            service.clone(),
            upgrades.clone(),
            stop.clone(),
        ))
    });
    let mut protocol = auto::Builder::new(StreamTasks::default());
    protocol
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE_BOUND)
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEADER_BYTES as usize);
    protocol
        .http2()
        .max_header_list_size(HEADER_BYTES)
        .max_concurrent_streams(HTTP2_STREAMS);

    // hyper's header timeout starts only after hyper has detected the version of HTTP, so a client that sends nothing
    // needs this timeout.
    let silence = async {
        if timeout(HEADER_BOUND, first.notified()).await.is_ok() {
            std::future::pending().await
        }
    };
    let mut connection =
        pin!(protocol.serve_connection_with_upgrades(TokioIo::new(EscapedTargets::new(stream)), requests));
    let ended = tokio::select! {
        ended = &mut connection => ended,
        () = silence => {
            tracing::debug!(peer = %peer.addr, "no request within {HEADER_BOUND:?}");
            return;
        }
        () = stopped => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(err) = ended {
        tracing::trace!(peer = %peer.addr, "connection ended: {err}");
    }
    tasks.finished().await;
}

/// Sends a request over an in-memory connection, because a protocol upgrade (101) requires a connection. The extensions
/// of the request are passed to the service.
pub(crate) async fn converse(
    request: Request<Body>,
    service: impl HttpService,
    tasks: &TaskGroup,
) -> io::Result<Response<Body>> {
    const BUFFER: usize = 64 * 1024;
    let (client, server) = tokio::io::duplex(BUFFER);
    let extensions = request.extensions().clone();
    let service = service.map_request(move |mut request: Request<Body>| {
        request.extensions_mut().remove::<Arrival>();
        request.extensions_mut().extend(extensions.clone());
        request
    });
    let loopback = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
    let peer = Peer::new(loopback, Arc::new(Hosts::new(loopback, &[])));
    let (stop, stopped) = watch::channel(false);
    tasks.spawn(async move {
        speak(server, peer, service, Stop(stopped)).await;
        drop(stop);
    });
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(client))
        .await
        .map_err(io::Error::other)?;
    tasks.spawn(async move {
        // The sender of the request receives the error.
        let _ = connection.with_upgrades().await;
    });
    let response = sender.send_request(request).await.map_err(io::Error::other)?;
    Ok(response.map(Body::new))
}

/// Handles one request: adds extensions about its sender, and ends the response body when the server stops.
async fn answer(
    mut request: Request<Incoming>,
    peer: Peer,
    service: impl HttpService,
    tasks: WeakTaskGroup,
    stop: Stop,
) -> io::Result<Response<StoppableBody>> {
    let (method, uri, addr) = (request.method().clone(), request.uri().clone(), peer.addr);
    let arrival = Arrival {
        peer: addr.ip(),
        hosts: peer.hosts,
        has_body: !request.body().is_end_stream(),
    };
    request.extensions_mut().insert(arrival);
    let named = peer
        .proxy
        .and_then(|it| front_proxy::take_user(&it, request.headers_mut()));
    if let Some(user) = named.map(Arc::new).or(peer.user) {
        request.extensions_mut().insert(user);
    } else if peer.is_unknown {
        request.extensions_mut().insert(UnknownCertificate);
    }
    let upgraded = hyper::upgrade::on(&mut request);
    let response = service.oneshot(request.map(Body::new)).await?;
    let target = uri.path_and_query().map_or("*", |it| it.as_str());
    tracing::debug!(target: "fake_apiserver::request", "{addr} {method} {target} {}", response.status().as_u16());
    if let Some(work) = response.extensions().get::<Upgrade>().and_then(Upgrade::take) {
        let stopped = stop.clone().requested();
        tasks.spawn(async move {
            if let Ok(stream) = upgraded.await {
                tokio::select! {
                    () = work(Box::new(TokioIo::new(stream))) => {}
                    () = stopped => {}
                }
            }
        });
    }
    Ok(response.map(|body| StoppableBody::new(body, stop)))
}

/// The client of a connection.
#[derive(Clone, Debug)]
struct Peer {
    addr: SocketAddr,
    /// The accepted hosts of the client's requests.
    hosts: Arc<Hosts>,
    /// The user of the client certificate; an extension of each request.
    user: Option<Arc<UserInfo>>,
    /// Set if the client is a front proxy, which may set the user in headers.
    proxy: Option<Arc<FrontProxy>>,
    /// Set if the client sent a certificate that does not identify a user.
    is_unknown: bool,
}

impl Peer {
    fn new(addr: SocketAddr, hosts: Arc<Hosts>) -> Self {
        Self {
            addr,
            hosts,
            user: None,
            proxy: None,
            is_unknown: false,
        }
    }
}

/// The handshake that precedes HTTP on a new connection.
#[derive(Clone)]
enum Handshake {
    None,
    #[cfg(feature = "tls")]
    Tls(tokio_rustls::TlsAcceptor, Arc<crate::tls::Clients>),
}

impl Handshake {
    /// Creates the handshake, and the credentials with which clients connect.
    #[cfg_attr(
        not(feature = "tls"),
        expect(unused_variables, reason = "only a certificate contains the address")
    )]
    fn new(transport: &Transport, addr: SocketAddr) -> io::Result<(Self, Option<Credentials>)> {
        match transport {
            Transport::Http => Ok((Self::None, None)),
            #[cfg(feature = "tls")]
            Transport::Https(options) => {
                let identity = crate::tls::TlsIdentity::new(options, addr.ip())?;
                let handshake = Self::Tls(identity.config.into(), Arc::new(identity.clients));
                Ok((handshake, Some(identity.credentials)))
            }
        }
    }
}

/// The stop signal for connections and streamed responses.
#[derive(Clone, Debug)]
struct Stop(watch::Receiver<bool>);

impl Stop {
    /// Waits until a stop is requested.
    async fn requested(mut self) {
        if self.0.wait_for(|stopped| *stopped).await.is_err() {
            // The server was dropped without a stop. Its tasks are about to be cancelled, which must not look like a
            // regular end.
            std::future::pending().await
        }
    }
}

/// The tasks of one HTTP/2 connection, which end with it.
#[derive(Clone, Debug, Default)]
struct StreamTasks(TaskGroup);

impl<F> hyper::rt::Executor<F> for StreamTasks
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, task: F) {
        self.0.spawn(task);
    }
}

/// A body that ends regularly when the server stops and no further data is ready. Watches end this way.
struct StoppableBody {
    body: Body,
    /// `None` for a body of known size, which does not wait for data.
    stopped: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl StoppableBody {
    fn new(body: Body, stop: Stop) -> Self {
        let streams = body.size_hint().exact().is_none();
        Self {
            body,
            stopped: streams.then(|| Box::pin(stop.requested()) as _),
        }
    }
}

impl http_body::Body for StoppableBody {
    type Data = Bytes;
    type Error = axum_core::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum_core::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            return Poll::Ready(frame);
        }
        match &mut self.stopped {
            Some(stopped) => stopped.as_mut().poll(cx).map(|()| None),
            None => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use futures::StreamExt;
    use rstest::rstest;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const ANY_PORT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

    /// `/watch` sends one line and then stalls; `/hold` never responds; other paths are echoed.
    async fn test_service(request: Request<Body>) -> io::Result<Response<Body>> {
        let body = match request.uri().path() {
            "/watch" => {
                let event = futures::stream::once(async { Ok::<_, io::Error>("event\n") });
                Body::from_stream(event.chain(futures::stream::pending()))
            }
            "/hold" => std::future::pending().await,
            "/user" => Body::from(format!("{:?}\n", request.extensions().get::<Arc<UserInfo>>())),
            "/known" => Body::from(format!(
                "{}\n",
                request.extensions().get::<UnknownCertificate>().is_none()
            )),
            path => Body::from(format!("you asked for {path}")),
        };
        Ok(Response::new(body))
    }

    async fn start(options: ServeOptions) -> Serving {
        let service = tower::service_fn(test_service);
        serve(ANY_PORT, &options, service)
            .await
            .expect("loopback has a free port")
    }

    async fn send(serving: &Serving, path: &str) -> TcpStream {
        let mut stream = TcpStream::connect(serving.addr())
            .await
            .expect("the server accepts connections");
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n");
        stream
            .write_all(request.as_bytes())
            .await
            .expect("the connection is open");
        stream
    }

    async fn read_until(stream: &mut (impl AsyncRead + Unpin), end: &str) -> String {
        let mut text = String::new();
        let mut buffer = [0; 1024];
        while !text.ends_with(end) {
            let n = stream.read(&mut buffer).await.expect("the connection is not reset");
            assert_ne!(n, 0, "the connection ended after {text:?}");
            text += std::str::from_utf8(&buffer[..n]).expect("the text is UTF-8");
        }
        text
    }

    #[tokio::test]
    async fn plain_http_request_receives_a_response() {
        let serving = start(ServeOptions::http()).await;
        let mut stream = send(&serving, "/a").await;
        let answer = read_until(&mut stream, "you asked for /a").await;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert_eq!(serving.url(), format!("http://{}", serving.addr()));
        assert_eq!(serving.ca_certificate(), None);
    }

    #[tokio::test]
    async fn watch_event_is_sent_immediately_and_shutdown_ends_the_watch_cleanly() {
        let serving = start(ServeOptions::http()).await;
        let mut stream = send(&serving, "/watch").await;
        read_until(&mut stream, "event\n\r\n").await;

        let mut rest = Vec::new();
        let (read, ()) = tokio::join!(stream.read_to_end(&mut rest), serving.shutdown());
        read.expect("the connection is not reset");
        assert_eq!(
            rest, b"0\r\n\r\n",
            "the stream ends with a last chunk before the connection ends"
        );
    }

    #[tokio::test]
    async fn idle_connection_does_not_delay_shutdown() {
        let serving = start(ServeOptions::http()).await;
        let mut stream = send(&serving, "/a").await;
        read_until(&mut stream, "/a").await;
        let addr = serving.addr();
        serving.shutdown().await;
        assert_eq!(stream.read(&mut [0]).await.expect("the connection ends cleanly"), 0);
        assert!(TcpStream::connect(addr).await.is_err(), "the port is closed");
    }

    #[tokio::test]
    async fn dropping_the_server_aborts_open_requests() {
        let serving = start(ServeOptions::http()).await;
        let mut watch = send(&serving, "/watch").await;
        read_until(&mut watch, "event\n\r\n").await;
        drop(serving);
        let mut rest = Vec::new();
        // The connection may end or be reset; neither is a regular end of the stream.
        let _ = watch.read_to_end(&mut rest).await;
        assert_eq!(rest, b"");
    }

    #[tokio::test]
    async fn endless_request_is_aborted_at_the_shutdown_timeout() {
        let serving = start(ServeOptions::http()).await;
        let mut stream = send(&serving, "/hold").await;
        tokio::time::pause();
        serving.shutdown().await;
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest).await;
        assert_eq!(rest, b"");
    }

    #[rstest]
    #[case::no_bytes("")]
    #[case::incomplete_http2_preface("PRI * HTTP/2.0\r\n")]
    #[case::incomplete_first_head("GET /a HTTP/1.1\r\nHost: x\r\n")]
    #[case::incomplete_second_head("GET /a HTTP/1.1\r\nHost: x\r\n\r\nGET /b HTTP/1.1\r\n")]
    #[tokio::test]
    async fn incomplete_request_head_ends_the_connection_after_a_timeout(#[case] sent: &str) {
        let serving = start(ServeOptions::http()).await;
        let mut stream = TcpStream::connect(serving.addr())
            .await
            .expect("the server accepts connections");
        stream.write_all(sent.as_bytes()).await.expect("the connection is open");
        if sent.contains("/b") {
            read_until(&mut stream, "you asked for /a").await;
        }
        tokio::time::pause();
        let asked = tokio::time::Instant::now();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest).await;
        let passed = asked.elapsed();
        // Go's clients keep an idle connection for 90 seconds, and may send a request at the end of that time.
        let bound = if sent.contains("/b") { IDLE_BOUND } else { HEADER_BOUND };
        assert!(passed <= bound + Duration::from_secs(1), "{passed:?}");
        assert!(passed >= bound - Duration::from_secs(1), "{passed:?}");
    }

    #[rstest]
    #[case::below_the_limit(1_000, "200")]
    #[case::above_the_limit(2_001, "431")]
    #[tokio::test]
    async fn number_of_headers_is_limited(#[case] headers: usize, #[case] code: &str) {
        let serving = start(ServeOptions::http()).await;
        let mut stream = TcpStream::connect(serving.addr())
            .await
            .expect("the server accepts connections");
        let more: String = (0..headers).map(|it| format!("X-{it}: y\r\n")).collect();
        let request = format!("GET /a HTTP/1.1\r\n{more}Connection: close\r\n\r\n");
        stream
            .write_all(request.as_bytes())
            .await
            .expect("the connection is open");
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.starts_with(&format!("HTTP/1.1 {code}")), "{answer}");
    }

    #[cfg(feature = "tls")]
    mod tls {
        use std::sync::Arc;

        use tokio_rustls::TlsConnector;
        use tokio_rustls::rustls::pki_types::pem::PemObject;
        use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
        use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::ring};

        use super::*;

        /// Returns a client that trusts the server, and that sends these certificates if they are given.
        fn connector(serving: &Serving, shown: Option<&Credentials>) -> TlsConnector {
            let ca = CertificateDer::from_pem_slice(
                serving
                    .ca_certificate()
                    .expect("a TLS server has a certificate")
                    .as_bytes(),
            );
            let mut roots = RootCertStore::empty();
            roots
                .add(ca.expect("the text is PEM"))
                .expect("the certificate is a valid trust anchor");
            let config = ClientConfig::builder_with_provider(ring::default_provider().into())
                .with_safe_default_protocol_versions()
                .expect("the crypto provider supports the TLS versions")
                .with_root_certificates(roots);
            let config = match shown {
                Some(Credentials { certificate, key, .. }) => {
                    let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).expect("the text is PEM")];
                    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("the text is PEM");
                    config
                        .with_client_auth_cert(chain, key)
                        .expect("the key belongs to the certificate")
                }
                None => config.with_no_client_auth(),
            };
            TlsConnector::from(Arc::new(config))
        }

        async fn get(serving: &Serving, name: &'static str, path: &str, shown: Option<&Credentials>) -> String {
            let stream = TcpStream::connect(serving.addr())
                .await
                .expect("the server accepts connections");
            let name = ServerName::try_from(name).expect("the host name is valid");
            let mut stream = connector(serving, shown)
                .connect(name, stream)
                .await
                .expect("the certificate is trusted");
            let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
            stream
                .write_all(request.as_bytes())
                .await
                .expect("the connection is open");
            let mut answer = String::new();
            stream
                .read_to_string(&mut answer)
                .await
                .expect("the server closes TLS properly");
            answer
        }

        #[tokio::test]
        async fn server_certificate_is_valid_for_its_names() {
            let serving = start(ServeOptions::tls()).await;
            for name in ["127.0.0.1", "localhost", "::1"] {
                let answer = get(&serving, name, "/a", None).await;
                assert!(answer.ends_with("you asked for /a"), "{answer}");
            }
            assert!(serving.url().starts_with("https://127.0.0.1:"));
            assert!(serving.kubeconfig().contains("certificate-authority-data: "));
        }

        #[tokio::test]
        async fn client_certificate_determines_the_user() {
            let serving = start(ServeOptions::tls()).await;
            let answer = get(&serving, "localhost", "/user", None).await;
            assert!(answer.ends_with("None\n"), "{answer}");

            let answer = get(&serving, "localhost", "/user", serving.credentials.as_ref()).await;
            let admin = r#"Some(UserInfo { name: "kubernetes-admin", groups: ["system:masters"], uid: "", extra: {"#;
            assert!(answer.contains(admin), "{answer}");
            assert!(answer.contains("[\"X509SHA256="), "{answer}");
        }

        #[tokio::test]
        async fn watch_over_tls_ends_with_close_notify() {
            let serving = start(ServeOptions::tls()).await;
            let stream = TcpStream::connect(serving.addr())
                .await
                .expect("the server accepts connections");
            let name = ServerName::try_from("localhost").expect("the host name is valid");
            let connector = connector(&serving, None);
            let mut stream = connector
                .connect(name, stream)
                .await
                .expect("the certificate is trusted");
            let request = "GET /watch HTTP/1.1\r\nHost: x\r\n\r\n";
            stream
                .write_all(request.as_bytes())
                .await
                .expect("the connection is open");
            read_until(&mut stream, "event\n\r\n").await;
            let mut rest = Vec::new();
            let (read, ()) = tokio::join!(stream.read_to_end(&mut rest), serving.shutdown());
            // Without `close_notify` the end is an error.
            read.expect("the server closes TLS properly");
            assert_eq!(rest, b"0\r\n\r\n");
        }

        /// Returns an authority, in PEM, and a certificate for this common name that it signed.
        fn authority_and_client(name: &str) -> (String, Credentials) {
            authority_and_client_until(name, (4000, 1, 1))
        }

        /// Same as `authority_and_client`, with a certificate that expires on this day.
        fn authority_and_client_until(name: &str, (year, month, day): (i32, u8, u8)) -> (String, Credentials) {
            use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

            let named = |name: &str| {
                let mut params = CertificateParams::default();
                params.distinguished_name.push(DnType::CommonName, name);
                params
            };
            let mut params = named("proxies");
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            let key = || KeyPair::generate().expect("the crypto provider generates keys");
            let authority =
                CertifiedIssuer::self_signed(params, key()).expect("the certificate parameters are complete");
            let mut params = named(name);
            params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
            params.not_before = rcgen::date_time_ymd(1999, 1, 1);
            params.not_after = rcgen::date_time_ymd(year, month, day);
            let client_key = key();
            let certificate = params
                .signed_by(&client_key, &authority)
                .expect("the certificate parameters are complete");
            let credentials = Credentials {
                ca: authority.pem(),
                certificate: certificate.pem(),
                key: client_key.serialize_pem(),
            };
            (authority.pem(), credentials)
        }

        #[rstest]
        #[case::proxy("proxy", "X-Remote-User: jane\r\nX-Remote-Group: a\r\nX-Remote-Group: b\r\nX-Extra-Color: red",
            r#"Some(UserInfo { name: "jane", groups: ["a", "b", "system:authenticated"], uid: "", extra: {"color": ["red"]} })"#)]
        #[case::proxy_with_another_name("other", "X-Remote-User: jane", "None")]
        #[case::headers_without_a_user("proxy", "X-Remote-Group: a", "None")]
        #[tokio::test]
        async fn proxy_headers_determine_the_user(#[case] name: &str, #[case] headers: &str, #[case] user: &str) {
            let (ca, client) = authority_and_client(name);
            let list = |it: &str| vec![it.to_owned()];
            let options = ServeOptions::tls().front_proxy(FrontProxy {
                client_ca: ca.into_bytes(),
                allowed_names: list("proxy"),
                username_headers: list("X-Remote-User"),
                group_headers: list("X-Remote-Group"),
                extra_headers_prefix: list("X-Extra-"),
                ..FrontProxy::default()
            });
            let serving = start(options).await;
            let path = format!("/user HTTP/1.1\r\n{headers}\r\nX-Rest:");
            let answer = get(&serving, "localhost", &path, Some(&client)).await;
            assert!(answer.ends_with(&format!("{user}\n")), "{answer}");
        }

        /// Users and front proxies are distinguished by the authority of their certificates.
        #[tokio::test]
        async fn user_certificate_does_not_permit_proxy_headers() {
            let (ca, _) = authority_and_client("proxy");
            let options = ServeOptions::tls().front_proxy(FrontProxy {
                client_ca: ca.into_bytes(),
                username_headers: vec!["X-Remote-User".to_owned()],
                ..FrontProxy::default()
            });
            let serving = start(options).await;
            let path = "/user HTTP/1.1\r\nX-Remote-User: jane\r\nX-Rest:";
            let answer = get(&serving, "localhost", path, serving.credentials.as_ref()).await;
            assert!(answer.contains("kubernetes-admin"), "{answer}");
        }

        #[tokio::test]
        async fn certificate_of_another_ca_does_not_authenticate() {
            let serving = start(ServeOptions::tls()).await;
            let other = start(ServeOptions::tls()).await;
            let answer = get(&serving, "localhost", "/user", other.credentials.as_ref()).await;
            assert!(answer.ends_with("None\n"), "{answer}");
            let answer = get(&serving, "localhost", "/known", other.credentials.as_ref()).await;
            assert!(answer.ends_with("false\n"), "{answer}");
        }

        #[tokio::test]
        async fn expired_certificate_does_not_authenticate() {
            let (ca, client) = authority_and_client_until("jane", (1999, 1, 2));
            let serving = start(ServeOptions::tls().client_ca(ca.into_bytes())).await;
            let answer = get(&serving, "localhost", "/known", Some(&client)).await;
            assert!(answer.ends_with("false\n"), "{answer}");
        }
    }
}
