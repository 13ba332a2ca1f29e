//! `Stubs`: runs the programs of simulated Pods, and connects clients to them at the addresses of Pods and Services.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener as StdListener, UdpSocket as StdUdpSocket};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use fake_apiserver::{ApiServer, PodSelector};
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::OnceCell;
use tokio::time::sleep;

use super::dns;
use super::network::PodNetwork;
use super::program::{Host, Listening};
use super::reaper::Reaper;
use super::stub::{Pod, Stub};
use crate::hooks::Hooks;
use crate::lock::lock;

/// Address of the DNS server: the address of NodeLocal DNSCache, which is outside the ranges of Pods and Services.
const DNS: Ipv4Addr = Ipv4Addr::new(169, 254, 20, 10);

/// Port of DNS.
const DNS_PORT: u16 = 53;

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
    host: Arc<Host>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Ports on which connections are accepted.
    ports: Vec<u16>,
    /// Programs by the uid of the Pod and the index of the stub.
    programs: BTreeMap<(String, usize), Arc<Program>>,
    is_over: bool,
}

/// A program of a Pod, which is started at the first connection.
#[derive(Debug, Default)]
struct Program {
    listens: OnceCell<Listening>,
}

impl Stubs {
    /// Resolves DNS names and connects clients to the programs of Pods, in the network of the Pods, until the run ends.
    pub(crate) fn serve(network: PodNetwork, settings: &Settings<'_>) -> Result<Self, String> {
        let stubs = settings.stubs.iter().map(|it| Ok((it.selector()?, it.clone())));
        let shared = Arc::new(Shared {
            network,
            stubs: stubs.collect::<Result<_, String>>()?,
            host: Arc::new(Host {
                server: settings.server.clone(),
                hooks: Arc::downgrade(settings.hooks),
                reaper: settings.reaper.clone(),
                directory: settings.directory.clone(),
                common: settings.common.clone(),
                values: Mutex::default(),
            }),
            state: Mutex::default(),
        });
        let failed = |err: io::Error| format!("cannot prepare the network of Pods: {err}");
        std::fs::create_dir_all(&settings.common).map_err(failed)?;
        let socket = shared.network.within(|| StdUdpSocket::bind((DNS, DNS_PORT)));
        let socket = socket.and_then(|it| {
            it.set_nonblocking(true)?;
            UdpSocket::from_std(it)
        });
        // Tasks end with the runtime of the run.
        let names = Arc::downgrade(&shared);
        let server = settings.server.clone();
        tokio::spawn(dns::serve(socket.map_err(failed)?, server, move |ports: &[u16]| {
            names.upgrade().map_or(Ok(()), |it| it.listen_all(ports))
        }));
        let ports: Vec<u16> = settings.stubs.iter().map(|it| it.port).collect();
        shared.listen_all(&ports).map_err(failed)?;
        Ok(Self(shared))
    }

    /// Ends the programs at the end of the run.
    pub(crate) fn end(&self) {
        let mut state = lock(&self.0.state);
        state.is_over = true;
        state.programs.clear();
    }

    /// Returns the content of `resolv.conf` in the Pods of a namespace.
    pub(crate) fn resolver(namespace: &str) -> String {
        format!(
            "search {namespace}.svc.cluster.local svc.cluster.local cluster.local\nnameserver {DNS}\noptions ndots:5\n"
        )
    }
}

impl Shared {
    /// Listens on these ports at the addresses of all Pods and Services.
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

    /// Connects a client to the program that serves the address to which the client has connected.
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
                // Resets the client's connection, as if nothing were listening on the port.
                let _ = client.set_zero_linger();
            }
        }
    }

    /// Connects to the program that serves this address of a Pod or a Service.
    async fn program_at(self: &Arc<Self>, at: SocketAddr) -> Option<TcpStream> {
        let pods = self.host.server.list("v1", "Pod", "").await.ok()?;
        self.forget_all_but(&pods);
        let (address, port) = (at.ip().to_string(), at.port());
        let (at, pod) = match self.served(&pods, &address, port) {
            Some(served) => served,
            None => {
                let (address, port) = dns::endpoint_of(&self.host.server, &address, port).await?;
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
        let listening = match program.listens.get_or_try_init(|| self.host.start(stub, &pod)).await {
            Ok(listening) => listening,
            Err(why) => {
                self.host.wrote(&pod, stub, format!("cannot be started: {why}"));
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

    /// Finds the Pod with a stub at an address and port, and the index of the stub. Pods in the host network of a Node
    /// have the same address.
    fn served(&self, pods: &[Value], address: &str, port: u16) -> Option<(usize, Pod)> {
        let mut running = pods.iter().filter_map(|it| Some((it, Pod::running_at(address, it)?)));
        running.find_map(|(object, pod)| {
            let is_meant = |(pods, stub): &(PodSelector, Stub)| stub.port == port && pods.selects(object);
            Some((self.stubs.iter().position(is_meant)?, pod))
        })
    }

    /// Ends the programs of Pods that no longer exist.
    fn forget_all_but(&self, pods: &[Value]) {
        let exists = |uid: &str| pods.iter().any(|it| it["metadata"]["uid"] == uid);
        lock(&self.state).programs.retain(|(uid, _), _| exists(uid));
        self.host.forget_all_but(exists);
    }
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
