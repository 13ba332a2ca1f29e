//! The command `fake-apiserver`: an API server for kubectl and every other client, until it is interrupted.

use std::fmt::{self, Write as _};
use std::io::{self, Write as _};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use fake_apiserver::{Anonymous, ApiServer, Authorization, Serving, UnknownWorker, Worker, load};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber, span};

/// Entries of the journal, which nobody reads here: a server that runs for days must not grow by it.
const JOURNAL_ENTRIES: usize = 256;

/// A fake Kubernetes API server: real list, watch, patch and apply, and no cluster behind them
#[derive(Debug, Parser)]
#[command(version, after_help = EXAMPLES)]
struct Args {
    /// Address to listen on; port 0 takes a free one
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:0", value_parser = address)]
    listen: SocketAddr,

    /// Speak HTTPS, with a certificate authority made for this run
    #[arg(long)]
    tls: bool,

    /// Write a kubeconfig that leads to this server
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// Serve the CustomResourceDefinitions in this file or directory (may be repeated)
    #[arg(long, value_name = "FILE")]
    crd: Vec<PathBuf>,

    /// Start with the objects in this file or directory, as `kubectl get -o yaml` writes them (may be repeated)
    #[arg(long, value_name = "FILE")]
    load: Vec<PathBuf>,

    /// Who may do what: `always-allow` lets everybody do everything; `rbac` asks Roles and their bindings
    #[arg(long, value_name = "MODE", default_value = "always-allow")]
    authorization: Mode,

    /// A bearer token, whose it is, and the groups he is in (may be repeated)
    #[arg(long, value_name = "TOKEN=USER[:GROUP…]", value_parser = token)]
    token: Vec<Token>,

    /// Under rbac, a request without token and client certificate: `admin` is in system:masters, `allow` is
    /// system:anonymous, `deny` is answered 401
    #[arg(long, value_name = "WHO", default_value = "admin")]
    anonymous: Nobody,

    /// Seed of uids, generated names and all other random numbers
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,

    /// How long Events live after their last write, such as `90m` or `1h30m`; 0s is for ever
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = duration)]
    event_ttl: Duration,

    /// Run these parts of a cluster, separated by commas: gc, namespace, workloads (all of them), all
    #[arg(long, value_name = "NAMES", default_value = "", hide_default_value = true, value_parser = workers)]
    workers: Workers,

    /// Answer requests below /_fake, too: faults, watches, journal, snapshots (GET /_fake tells more)
    #[arg(long)]
    control: bool,

    /// Admission plugins that are off by default: service-account, resource-quota-status (may be repeated)
    #[arg(long, value_name = "NAME", value_parser = ["service-account", "resource-quota-status"])]
    admission: Vec<String>,

    /// Call webhooks of this host, or of the service NAME.NAMESPACE.svc, at an address (may be repeated)
    #[arg(long, value_name = "HOST=ADDRESS", value_parser = webhook_address)]
    webhook_address: Vec<(String, SocketAddr)>,

    /// Log every request to stderr
    #[arg(short, long)]
    verbose: bool,
}

/// What `--workers` names.
#[derive(Clone, Debug)]
struct Workers(Vec<Worker>);

/// What `--authorization` takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Mode {
    AlwaysAllow,
    Rbac,
}

/// What `--anonymous` takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Nobody {
    Admin,
    Allow,
    Deny,
}

/// A token, and the name and the groups of its user.
#[derive(Clone, Debug)]
struct Token {
    token: String,
    user: String,
    groups: Vec<String>,
}

const EXAMPLES: &str = "\
Examples:
  A server for kubectl, in a second terminal:
    fake-apiserver --kubeconfig fake.kubeconfig
    kubectl --kubeconfig fake.kubeconfig create configmap hello

  HTTPS on a fixed port, with your resources and a log of requests:
    fake-apiserver --listen 127.0.0.1:6443 --tls --crd config/crd/bases -v

  Roles count; one user with a token, everyone without one is the administrator:
    fake-apiserver --authorization rbac --token s3cret=jane:devs --kubeconfig fake.kubeconfig
    kubectl --kubeconfig fake.kubeconfig --token s3cret get pods

  A copy of what runs in a real cluster:
    kubectl get deployments,pods,services -A -o yaml > dump.yaml
    fake-apiserver --load dump.yaml

  Deleted owners and namespaces take with them what is theirs:
    fake-apiserver --workers gc,namespace

When the server is ready it prints one line, `listening on URL`. It ends on SIGINT or SIGTERM.";

/// The first line of a kubeconfig this command wrote, and may therefore replace.
const KUBECONFIG_MARK: &str = "# Written by fake-apiserver, which replaces it at its next start.\n";

fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            report(format_args!("error: {reason}"));
            ExitCode::FAILURE
        }
    }
}

/// The whole life of the server; the error is for people.
#[tokio::main]
async fn run(args: &Args) -> Result<(), String> {
    let level = if args.verbose { Level::DEBUG } else { Level::WARN };
    tracing::subscriber::set_global_default(Log { level }).map_err(|err| err.to_string())?;
    let interrupted = interruption().map_err(|err| format!("cannot listen for signals: {err}"))?;

    let mut builder = ApiServer::builder().seed(args.seed).start_time(now());
    builder = match args.control {
        true => builder.control_api(),
        false => builder.journal_capacity(JOURNAL_ENTRIES),
    };
    for plugin in &args.admission {
        builder = match plugin.as_str() {
            "service-account" => builder.service_account_admission(),
            _ => builder.resource_quota_controller(),
        };
    }
    for (host, address) in &args.webhook_address {
        builder = builder.webhook_address(host, *address);
    }
    let builder = builder
        .workers(&args.workers.0)
        .kubernetes_service(true)
        .event_ttl(Some(args.event_ttl).filter(|it| !it.is_zero()))
        .authorization(match args.authorization {
            Mode::AlwaysAllow => Authorization::AlwaysAllow,
            Mode::Rbac => Authorization::Rbac,
        })
        .anonymous(match args.anonymous {
            Nobody::Admin => Anonymous::Admin,
            Nobody::Allow => Anonymous::Allowed,
            Nobody::Deny => Anonymous::Refused,
        });
    let tokens = args.token.iter();
    let server = tokens
        .fold(builder, |builder, it| builder.token(&it.token, &it.user, &it.groups))
        .start();
    fill(&server, args)?;
    let serving = if args.tls {
        server.serve_tls(args.listen).await
    } else {
        server.serve(args.listen).await
    };
    let serving = serving.map_err(|err| format!("cannot listen on {}: {err}", args.listen))?;
    if let Some(file) = &args.kubeconfig {
        write_kubeconfig(file, &serving)?;
    }
    announce(&serving, args);

    interrupted.await;
    serving.shutdown().await;
    Ok(())
}

/// The time of day, from which the server's own clock goes on.
#[expect(
    clippy::disallowed_methods,
    reason = "a server for other processes lives in their time"
)]
fn now() -> jiff::Timestamp {
    jiff::Timestamp::try_from(std::time::SystemTime::now()).unwrap_or(jiff::Timestamp::UNIX_EPOCH)
}

/// Loads what the command line names.
fn fill(server: &ApiServer, args: &Args) -> Result<(), String> {
    let definitions = load::read(&args.crd).map_err(|err| err.to_string())?;
    let other = definitions
        .iter()
        .find(|manifest| manifest.object["kind"] != "CustomResourceDefinition");
    if let Some(manifest) = other {
        let kind = &manifest.object["kind"];
        return Err(format!(
            "{}: {kind} is not a CustomResourceDefinition; use --load",
            manifest.place
        ));
    }
    let objects = load::read(&args.load).map_err(|err| err.to_string())?;
    // One by one, so that an error can name the file.
    for manifest in definitions.into_iter().chain(objects) {
        let place = manifest.place;
        server
            .load([manifest.object])
            .map_err(|err| format!("{place}: {err}"))?;
    }
    Ok(())
}

/// Writes the kubeconfig, but never over one that somebody else wrote.
fn write_kubeconfig(file: &Path, serving: &Serving) -> Result<(), String> {
    let fail = |reason: &dyn fmt::Display| format!("cannot write the kubeconfig {}: {reason}", file.display());
    match std::fs::read(file) {
        Ok(content) if content.is_empty() || content.starts_with(KUBECONFIG_MARK.as_bytes()) => {}
        Ok(_) => return Err(fail(&"the file exists and was not written by fake-apiserver")),
        Err(err) if err.kind() == io::ErrorKind::NotFound => {}
        Err(err) => return Err(fail(&err)),
    }
    std::fs::write(file, format!("{KUBECONFIG_MARK}{}", serving.kubeconfig())).map_err(|err| fail(&err))
}

/// Says that the server is ready. Whoever does not read it cannot be told, so failures are of no interest.
fn announce(serving: &Serving, args: &Args) {
    let is_open = args.authorization == Mode::AlwaysAllow || args.anonymous == Nobody::Admin;
    if is_open && !serving.addr().ip().is_loopback() {
        let addr = serving.addr();
        report(format_args!(
            "warning: whoever reaches {addr} may do everything: nobody has to say who he is"
        ));
    }
    let mut stdout = io::stdout().lock();
    let _ = writeln!(stdout, "listening on {}", serving.url());
    let _ = stdout.flush();
}

/// A line on stderr.
fn report(line: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// What `--listen` takes: an address, or a name that has one.
fn address(text: &str) -> Result<SocketAddr, String> {
    text.to_socket_addrs()
        .map_err(|err| err.to_string())?
        .next()
        .ok_or_else(|| "the name has no address".to_owned())
}

/// What `--webhook-address` takes.
fn webhook_address(text: &str) -> Result<(String, SocketAddr), String> {
    let (host, at) = text.split_once('=').ok_or("there is no `=` between host and address")?;
    Ok((host.to_owned(), address(at)?))
}

/// What `--workers` takes: none, or a list of names.
fn workers(text: &str) -> Result<Workers, UnknownWorker> {
    if text.is_empty() {
        return Ok(Workers(Vec::new()));
    }
    Worker::parse_list(text).map(Workers)
}

/// What `--token` takes. Colons part the names, but those of Kubernetes' own names: `system:masters` is one,
/// `system:serviceaccount:shop:operator` another.
fn token(text: &str) -> Result<Token, String> {
    let (token, names) = text.split_once('=').ok_or("there is no `=`")?;
    let mut parts = names.split(':');
    let mut all: Vec<String> = Vec::new();
    while let Some(first) = parts.next() {
        let mut name = vec![first];
        if first == "system" {
            name.extend(parts.next());
        }
        let more = match name.as_slice() {
            ["system", "serviceaccount"] => 2,
            ["system", "node"] => 1,
            _ => 0,
        };
        name.extend(parts.by_ref().take(more));
        all.push(name.join(":"));
    }
    if token.is_empty() || all.iter().any(String::is_empty) {
        return Err("neither the token nor a name may be empty".to_owned());
    }
    let user = all.remove(0);
    Ok(Token {
        token: token.to_owned(),
        user,
        groups: all,
    })
}

fn duration(text: &str) -> Result<Duration, String> {
    let duration: jiff::SignedDuration = text.parse().map_err(|err: jiff::Error| err.to_string())?;
    Duration::try_from(duration).map_err(|_| "a duration must not be negative".to_owned())
}

/// Signals are caught from the call on, not from the first poll.
#[cfg(unix)]
fn interruption() -> io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};

    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

#[cfg(not(unix))]
fn interruption() -> io::Result<impl Future<Output = ()>> {
    Ok(async {
        let _ = tokio::signal::ctrl_c().await;
    })
}

/// Writes the server's own log to stderr, a line an event.
struct Log {
    level: Level,
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.level && metadata.target().starts_with("fake_apiserver")
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        report(format_args!("{}{}", time_of_day(), line.0));
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// The time a line of the log begins with.
fn time_of_day() -> impl fmt::Display {
    now().strftime("%H:%M:%S%.3f ").to_string()
}

/// The text of one event: its message, then its fields.
struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string cannot fail.
        let _ = match field.name() {
            "message" => write!(self.0, "{value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
    }
}
