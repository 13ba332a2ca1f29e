//! Options for all commands that serve objects, and the parsers of their values.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use fake_apiserver::{KubernetesVersion, UnknownWorker, Worker};

/// Options of the initial state and of workers.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Options of the fake")]
pub(crate) struct Common {
    /// Write a kubeconfig for this server, readable only by its owner (on Windows, by everyone who may read its
    /// directory)
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,

    /// Serve the CustomResourceDefinitions in this file or directory (may be repeated)
    #[arg(long, value_name = "FILE")]
    pub(crate) crd: Vec<PathBuf>,

    /// Start with the objects in this file or directory, as `kubectl get -o yaml` writes them (may be repeated)
    #[arg(long, value_name = "FILE")]
    pub(crate) load: Vec<PathBuf>,

    /// Simulate Pods and Nodes with the KWOK Stages in this file or directory, instead of the kubelet's default
    /// behaviour (may be repeated)
    #[arg(long, value_name = "FILE")]
    pub(crate) stages: Vec<PathBuf>,

    /// Renew the Lease of each Node in kube-node-lease every 10 s and its status every 5 minutes, with the worker
    /// kubelet
    #[arg(long)]
    pub(crate) node_heartbeats: bool,

    /// Seed of uids, generated names, tokens and all other random numbers except TLS keys; with the seed, anyone can
    /// create tokens. By default uids use seed 0, and tokens use the system's random numbers
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,

    /// The version of Kubernetes to serve: 1.33 to 1.37
    #[arg(long, value_name = "MINOR", default_value_t)]
    pub(crate) kubernetes_version: KubernetesVersion,

    // The help of this option is generated from the names of the workers.
    #[arg(long, value_name = "NAMES", default_value = "", hide_default_value = true, value_parser = workers, help = workers_help())]
    pub(crate) workers: Workers,

    /// Serve the control API below /_fake: faults, watches, journal, snapshots (GET /_fake lists them, or shows a
    /// page in a browser). It gives users in system:masters read and write access to all objects, including Secrets and
    /// Roles, without RBAC and validation; its token is written to stderr and into the kubeconfig
    #[arg(long)]
    pub(crate) control: bool,

    /// Bearer token of the control API, for a user in system:masters [default: random, or derived from --seed]
    #[arg(long, value_name = "TOKEN", requires = "control", value_parser = not_empty)]
    pub(crate) control_token: Option<String>,

    /// Bytes of earlier states kept for watches and lists, such as `64Mi`; requests for older revisions fail with 410
    #[arg(long, value_name = "BYTES", default_value = "16Mi", value_parser = bytes)]
    pub(crate) history_bytes: usize,

    /// Bytes of request and response bodies kept in the journal, with --control; the bodies of older entries are
    /// dropped
    #[arg(long, value_name = "BYTES", default_value = "8Mi", value_parser = bytes)]
    pub(crate) journal_bytes: usize,

    /// Call webhooks and aggregated API servers of this host, or of the service NAME.NAMESPACE.svc, at an address (may
    /// be repeated)
    #[arg(long, value_name = "HOST=ADDRESS", value_parser = webhook_address)]
    pub(crate) webhook_address: Vec<(String, SocketAddr)>,

    /// Also accept requests for these hosts, separated by commas; `*.example.com` matches all subdomains, and `*` any
    /// host. Loopback names and the listening address are always accepted; other hosts are refused, because a web page
    /// could reach this server under a different host name
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) accept_hosts: Vec<String>,
}

/// Value of `--workers`.
#[derive(Clone, Debug)]
pub(crate) struct Workers(pub(crate) Vec<Worker>);

/// Parses an address, or a host name, which is resolved.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    text.to_socket_addrs()
        .map_err(|err| err.to_string())?
        .next()
        .ok_or_else(|| "the name does not resolve to an address".to_owned())
}

/// Parses the value of `--control-token`. An empty token is refused, because clients cannot send one.
fn not_empty(text: &str) -> Result<String, &'static str> {
    match text {
        "" => Err("the token must not be empty"),
        text => Ok(text.to_owned()),
    }
}

/// Parses the value of `--webhook-address`.
fn webhook_address(text: &str) -> Result<(String, SocketAddr), String> {
    let (host, at) = text.split_once('=').ok_or("expected HOST=ADDRESS")?;
    Ok((host.to_owned(), address(at)?))
}

/// Parses the value of `--workers`: a list of names.
fn workers(text: &str) -> Result<Workers, UnknownWorker> {
    if text.is_empty() {
        return Ok(Workers(Vec::new()));
    }
    Worker::parse_list(text).map(Workers)
}

/// Returns the help text of `--workers`.
fn workers_help() -> String {
    let words = |workers: &[Worker]| workers.iter().map(|it| it.as_str()).collect::<Vec<_>>().join(", ");
    let (others, workloads): (Vec<Worker>, Vec<Worker>) =
        Worker::ALL.iter().partition(|it| !Worker::WORKLOADS.contains(it));
    format!(
        "Parts of a cluster to run, separated by commas: {}; workloads for {}; or all",
        words(&others),
        words(&workloads)
    )
}

/// Parses a duration such as `90m` or `1h30m`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let duration: jiff::SignedDuration = text.parse().map_err(|err: jiff::Error| err.to_string())?;
    Duration::try_from(duration).map_err(|_| "a duration must not be negative".to_owned())
}

/// Parses a number of bytes, optionally with the unit `Ki`, `Mi` or `Gi`.
fn bytes(text: &str) -> Result<usize, String> {
    let units = [("Ki", 10), ("Mi", 20), ("Gi", 30)];
    let unit = units
        .iter()
        .find_map(|(unit, bits)| Some((text.strip_suffix(unit)?, *bits)));
    let (number, bits) = unit.unwrap_or((text, 0));
    let number: usize = number.parse().map_err(|_| "not a number of bytes such as 64Mi")?;
    number.checked_mul(1 << bits).ok_or_else(|| "too large".to_owned())
}
