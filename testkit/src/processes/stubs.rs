//! `Stubs`: the programs of the simulated Pods of a run, to which the addresses of Pods and Services lead.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener as StdListener, UdpSocket as StdUdpSocket};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use axum_core::body::Body;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use fake_apiserver::{ApiServer, PodSelector, ServeOptions, Serving};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::process::Child;
use tokio::sync::OnceCell;
use tokio::time::{Instant, sleep};

use super::address::BODY_BYTES_MAX;
use super::dns;
use super::network::PodNetwork;
use super::output::read_lines;
use super::reaper::{Reaper, guarded, kill};
use super::stub::{Answer, Pod, Stub, read_script};
use crate::hooks::Hooks;
use crate::lock::lock;

/// Address of the DNS server: that of NodeLocal DNSCache, which is outside the ranges of Pods and Services.
const DNS: Ipv4Addr = Ipv4Addr::new(169, 254, 20, 10);

/// Port of DNS.
const DNS_PORT: u16 = 53;

/// Time within which a command must listen on its port, and the pause between attempts to connect.
const LISTENS_WITHIN: Duration = Duration::from_secs(20);
const TRY_AGAIN: Duration = Duration::from_millis(20);

/// Pause after a failure to accept connections.
const ACCEPT_REST: Duration = Duration::from_millis(100);

/// The stubs of a run.
#[derive(Clone, Debug)]
pub(crate) struct Stubs(Arc<Shared>);

/// Settings of the stubs of a run.
pub(crate) struct Settings<'a> {
    pub(crate) stubs: &'a [Stub],
    pub(crate) server: &'a ApiServer,
    pub(crate) hooks: &'a Arc<dyn Hooks>,
    pub(crate) reaper: &'a Reaper,
    /// Directory of the scenario.
    pub(crate) directory: PathBuf,
    /// Directory that all commands of the run share.
    pub(crate) common: PathBuf,
}

#[derive(Debug)]
struct Shared {
    network: PodNetwork,
    stubs: Vec<(PodSelector, Stub)>,
    server: ApiServer,
    hooks: Weak<dyn Hooks>,
    reaper: Reaper,
    directory: PathBuf,
    common: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Ports that are listened on.
    ports: Vec<u16>,
    /// Programs by the uid of their Pods and the index of their stub.
    programs: BTreeMap<(String, usize), Arc<Program>>,
    /// Values of the state by the uids of Pods.
    values: BTreeMap<String, BTreeMap<String, String>>,
    is_over: bool,
}

/// A program of a Pod; it is empty until it listens.
#[derive(Debug, Default)]
struct Program {
    listens: OnceCell<Listening>,
}

#[derive(Debug)]
struct Listening {
    address: SocketAddr,
    _server: Server,
}

/// Keeps a program running.
#[derive(Debug)]
enum Server {
    Http { _serving: Serving },
    Command { _running: Running },
}

/// A running command, which is killed when this is dropped.
#[derive(Debug)]
struct Running {
    group: i32,
    reaper: Reaper,
    child: Child,
}

impl Drop for Running {
    fn drop(&mut self) {
        kill(self.group, Signal::KILL);
        self.reaper.remove(self.group);
    }
}

impl Stubs {
    /// Serves the names and the programs of Pods in their network, until the run ends.
    pub(crate) fn serve(network: PodNetwork, settings: &Settings<'_>) -> Result<Self, String> {
        let stubs = settings.stubs.iter().map(|it| Ok((it.selector()?, it.clone())));
        let shared = Arc::new(Shared {
            network,
            stubs: stubs.collect::<Result<_, String>>()?,
            server: settings.server.clone(),
            hooks: Arc::downgrade(settings.hooks),
            reaper: settings.reaper.clone(),
            directory: settings.directory.clone(),
            common: settings.common.clone(),
            state: Mutex::default(),
        });
        let failed = |err: io::Error| format!("cannot prepare the network of Pods: {err}");
        std::fs::create_dir_all(&shared.common).map_err(failed)?;
        let socket = shared.network.within(|| StdUdpSocket::bind((DNS, DNS_PORT)));
        let socket = socket.and_then(|it| {
            it.set_nonblocking(true)?;
            UdpSocket::from_std(it)
        });
        // Tasks end with the runtime of the run.
        let names = Arc::downgrade(&shared);
        let server = shared.server.clone();
        tokio::spawn(dns::serve(socket.map_err(failed)?, server, move |ports: &[u16]| {
            names.upgrade().map_or(Ok(()), |it| it.listen_all(ports))
        }));
        let ports: Vec<u16> = settings.stubs.iter().map(|it| it.port).collect();
        shared.listen_all(&ports).map_err(failed)?;
        Ok(Self(shared))
    }

    /// Ends the programs, because the run ends.
    pub(crate) fn end(&self) {
        let mut state = lock(&self.0.state);
        state.is_over = true;
        state.programs.clear();
    }

    /// The text of `resolv.conf` in the Pods of a namespace.
    pub(crate) fn resolver(namespace: &str) -> String {
        format!(
            "search {namespace}.svc.cluster.local svc.cluster.local cluster.local\nnameserver {DNS}\noptions ndots:5\n"
        )
    }
}

impl Shared {
    /// Listens on ports of all Pods and Services.
    fn listen_all(self: &Arc<Self>, ports: &[u16]) -> io::Result<()> {
        for port in ports {
            if lock(&self.state).ports.contains(port) {
                continue;
            }
            let any = Ipv4Addr::UNSPECIFIED;
            let listener = self.network.within(|| StdListener::bind((any, *port)))?;
            listener.set_nonblocking(true)?;
            tokio::spawn(accept(Arc::downgrade(self), TcpListener::from_std(listener)?));
            lock(&self.state).ports.push(*port);
        }
        Ok(())
    }

    /// Connects a client to the program at the address that it has connected to.
    async fn connect(self: Arc<Self>, mut client: TcpStream) {
        let program = match client.local_addr() {
            Ok(address) => self.program_at(address).await,
            Err(_) => None,
        };
        match program {
            Some(mut program) => {
                // Either side may break the connection.
                let _ = tokio::io::copy_bidirectional(&mut client, &mut program).await;
            }
            None => {
                // The client gets a reset, as from a machine on which nothing listens.
                let _ = client.set_zero_linger();
            }
        }
    }

    /// Connects to the program that serves an address of a Pod or a Service.
    async fn program_at(self: &Arc<Self>, at: SocketAddr) -> Option<TcpStream> {
        let pods = self.server.list("v1", "Pod", "").await.ok()?;
        self.forget_all_but(&pods);
        let (address, port) = (at.ip().to_string(), at.port());
        let (at, pod) = match self.served(&pods, &address, port) {
            Some(served) => served,
            None => {
                let (address, port) = dns::endpoint_of(&self.server, &address, port).await?;
                self.served(&pods, &address, port)?
            }
        };
        let (_, stub) = self.stubs.get(at)?;
        let key = (pod.uid.clone(), at);
        let program = {
            let mut state = lock(&self.state);
            if state.is_over {
                return None;
            }
            Arc::clone(state.programs.entry(key.clone()).or_default())
        };
        let listening = match program.listens.get_or_try_init(|| self.start(stub, &pod)).await {
            Ok(listening) => listening,
            Err(why) => {
                self.wrote(&pod, stub, format!("cannot be started: {why}"));
                return None;
            }
        };
        let connected = TcpStream::connect(listening.address).await;
        if connected.is_err() {
            // The command has ended; the next connection starts it again.
            lock(&self.state).programs.remove(&key);
        }
        connected.ok()
    }

    /// Finds the Pod with a stub at an address and port, and the index of the stub. Pods in the network of their Node
    /// share an address.
    fn served(&self, pods: &[Value], address: &str, port: u16) -> Option<(usize, Pod)> {
        let mut running = pods.iter().filter_map(|it| Some((it, Pod::running_at(address, it)?)));
        running.find_map(|(object, pod)| {
            let is_meant = |(pods, stub): &(PodSelector, Stub)| stub.port == port && pods.selects(object);
            Some((self.stubs.iter().position(is_meant)?, pod))
        })
    }

    /// Ends the programs of Pods that are gone.
    fn forget_all_but(&self, pods: &[Value]) {
        let exists = |uid: &str| pods.iter().any(|it| it["metadata"]["uid"] == uid);
        let mut state = lock(&self.state);
        state.programs.retain(|(uid, _), _| exists(uid));
        state.values.retain(|uid, _| exists(uid));
    }

    /// Adds a line to the output in the report.
    fn wrote(&self, pod: &Pod, stub: &Stub, line: String) {
        if let Some(hooks) = self.hooks.upgrade() {
            hooks.controller_wrote(&name_of(pod, stub), line);
        }
    }

    async fn start(self: &Arc<Self>, stub: &Stub, pod: &Pod) -> Result<Listening, String> {
        match stub.command.is_empty() {
            true => self.start_http(stub, pod).await,
            false => self.start_command(stub, pod).await,
        }
    }

    /// Serves the answers of a stub.
    async fn start_http(self: &Arc<Self>, stub: &Stub, pod: &Pod) -> Result<Listening, String> {
        let options = match &stub.tls {
            None => ServeOptions::http(),
            Some(secret) => {
                let [certificate, key] = self.certificate(&pod.namespace, secret).await?;
                ServeOptions::tls().certificate(certificate, key)
            }
        };
        let shared = Arc::downgrade(self);
        let (stub, pod) = (Arc::new(stub.clone()), Arc::new(pod.clone()));
        let service = tower::service_fn(move |request| {
            let (shared, stub, pod) = (shared.upgrade(), Arc::clone(&stub), Arc::clone(&pod));
            async move {
                match shared {
                    Some(shared) => shared.answer(&stub, &pod, request).await,
                    None => Err(io::ErrorKind::ConnectionReset.into()),
                }
            }
        });
        let loopback = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
        let serving = options.serve(loopback, service).await.map_err(|err| err.to_string())?;
        Ok(Listening {
            address: serving.addr(),
            _server: Server::Http { _serving: serving },
        })
    }

    /// Reads a certificate and its key from a Secret.
    async fn certificate(&self, namespace: &str, name: &str) -> Result<[Vec<u8>; 2], String> {
        let secret = self.server.get("v1", "Secret", namespace, name).await;
        let secret = secret.map_err(|_| format!("the Secret {namespace}/{name} does not exist"))?;
        let read = |key: &str| {
            let text = secret["data"][key].as_str().unwrap_or_default();
            let data = BASE64_STANDARD.decode(text).unwrap_or_default();
            match data.is_empty() {
                true => Err(format!("the Secret {namespace}/{name} lacks {key}")),
                false => Ok(data),
            }
        };
        Ok([read("tls.crt")?, read("tls.key")?])
    }

    /// Answers a request to a Pod.
    async fn answer(&self, stub: &Stub, pod: &Pod, request: Request<Body>) -> io::Result<Response<Body>> {
        let (parts, body) = request.into_parts();
        let body = Limited::new(body, BODY_BYTES_MAX).collect().await;
        let body = body.map_err(io::Error::other)?.to_bytes();
        let (method, path) = (parts.method.as_str(), parts.uri.path());
        let found = {
            let mut state = lock(&self.state);
            let values = state.values.entry(pod.uid.clone()).or_default();
            let answer = stub.http.iter().find(|it| it.applies(method, path, &body, values));
            if let Some(answer) = answer {
                values.extend(answer.set.clone());
            }
            answer.map(|it| (it, values.clone()))
        };
        let Some((answer, values)) = found else {
            let text = format!("no answer matches {method} {path}");
            self.wrote(pod, stub, text.clone());
            let mut response = Response::new(Body::from(text));
            *response.status_mut() = StatusCode::NOT_FOUND;
            return Ok(response);
        };
        if let Some(script) = &answer.script {
            let read = read_script(&json!({"uid": pod.uid}), script);
            let (pods, script) = read.map_err(io::Error::other)?;
            self.server.kubelet().script(pods, script);
        }
        let text = answer.filled(pod.places(), |key| values.get(key).cloned());
        respond(answer, text.map_err(io::Error::other)?).map_err(io::Error::other)
    }

    /// Starts the command of a stub, and waits until it listens.
    async fn start_command(&self, stub: &Stub, pod: &Pod) -> Result<Listening, String> {
        let mut places = pod.places();
        for (place, directory) in [("SCENARIO", &self.directory), ("STATE", &self.common)] {
            places.values.insert(place.to_owned(), directory.display().to_string());
        }
        let port = places.fill("${PORT}")?;
        let words = stub.command.iter().map(|it| places.fill(it));
        let words = words.collect::<Result<Vec<_>, _>>()?;
        let mut command = guarded();
        command.args(words).current_dir(&self.directory);
        for (variable, value) in &stub.env {
            command.env(variable, places.fill(value)?);
        }
        let failed = |err: io::Error| err.to_string();
        let mut child = command.spawn().map_err(failed)?;
        let group = self.reaper.begin(&mut child).await;
        self.read_output(&mut child, pod, stub);
        let mut running = Running {
            group,
            reaper: self.reaper.clone(),
            child,
        };
        let port = port.parse().map_err(|_| format!("{port} is not a port"))?;
        let address = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port);
        let began = Instant::now();
        while TcpStream::connect(address).await.is_err() {
            if let Some(status) = running.child.try_wait().map_err(failed)? {
                return Err(format!("it ended before it listened on port {port}: {status}"));
            }
            if began.elapsed() > LISTENS_WITHIN {
                return Err(format!("it does not listen on port {port} after {LISTENS_WITHIN:?}"));
            }
            sleep(TRY_AGAIN).await;
        }
        Ok(Listening {
            address,
            _server: Server::Command { _running: running },
        })
    }

    /// Adds the output of a command to the report.
    fn read_output(&self, child: &mut Child, pod: &Pod, stub: &Stub) {
        let name = name_of(pod, stub);
        let reader = || {
            let (hooks, name) = (Weak::clone(&self.hooks), name.clone());
            move |line: String| {
                if let Some(hooks) = hooks.upgrade() {
                    hooks.controller_wrote(&name, line);
                }
            }
        };
        if let Some(output) = child.stdout.take() {
            tokio::spawn(read_lines(output, reader()));
        }
        if let Some(output) = child.stderr.take() {
            tokio::spawn(read_lines(output, reader()));
        }
    }
}

/// Name of a program in the output of a run.
fn name_of(pod: &Pod, stub: &Stub) -> String {
    format!("stub {}:{}", pod.name, stub.port)
}

fn respond(answer: &Answer, body: String) -> Result<Response<Body>, http::Error> {
    let mut response = Response::builder().status(answer.status);
    let has_type = answer.headers.keys().any(|it| it.eq_ignore_ascii_case("content-type"));
    if answer.json.is_some() && !has_type {
        response = response.header(http::header::CONTENT_TYPE, "application/json");
    }
    for (name, value) in &answer.headers {
        response = response.header(name, value);
    }
    response.body(Body::from(body))
}

/// Accepts connections to a port until the run ends.
async fn accept(shared: Weak<Shared>, listener: TcpListener) {
    loop {
        let accepted = listener.accept().await;
        let Some(shared) = shared.upgrade() else { return };
        match accepted {
            Ok((client, _)) => drop(tokio::spawn(shared.connect(client))),
            Err(_) => sleep(ACCEPT_REST).await,
        }
    }
}
