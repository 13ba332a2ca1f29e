//! The command `fake-apiserver`, with few options and with defaults for local use.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};
use fake_apiserver::{Anonymous, Authorization, ServeOptions};

use crate::args::{Common, address, duration};
use crate::setup::{self, Setup};
use crate::{assets, log};

/// An in-memory Kubernetes API server for tests: list, watch, patch and apply as in kube-apiserver, without a cluster
#[derive(Debug, Parser)]
#[command(version, after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,

    /// Address to listen on; port 0 selects a free port
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:0", value_parser = Listen::parse)]
    listen: Listen,

    /// Serve HTTPS, with a certificate authority created for this run
    #[arg(long)]
    tls: bool,

    /// Authorization mode: `always-allow` allows every request; `rbac` evaluates Roles and their bindings
    #[arg(long, value_name = "MODE", default_value = "always-allow")]
    authorization: Mode,

    /// A bearer token, its user, and the user's groups (may be repeated)
    #[arg(long, value_name = "TOKEN=USER[:GROUP…]", value_parser = token)]
    token: Vec<Token>,

    /// User of requests without a token or client certificate: `admin` is a user in system:masters, `allow` is
    /// system:anonymous with --authorization rbac and otherwise the same as `admin`, `deny` refuses these requests with
    /// 401
    #[arg(long, value_name = "WHO", default_value = "admin")]
    anonymous: Nobody,

    /// Listen on addresses other than loopback, even if everyone who can reach the port is an administrator or can
    /// derive the tokens from a seed
    #[arg(long)]
    insecure_listen: bool,

    /// Lifetime of Events after their last write, such as `90m` or `1h30m`; 0s keeps them forever
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = duration)]
    event_ttl: Duration,

    /// Enable an optional admission plugin: service-account, resource-quota-status, owner-references (may be repeated)
    #[arg(long, value_name = "NAME", value_parser = ["service-account", "resource-quota-status", "owner-references"])]
    admission: Vec<String>,

    /// Log every request to stderr
    #[arg(short, long)]
    verbose: bool,

    /// Exit when the process that started the server exits
    #[arg(long)]
    exit_with_parent: bool,

    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Write the programs kube-apiserver and etcd, and a link to kubectl, into a directory, for envtest and similar
    /// tools
    #[command(visible_alias = "install-assets")]
    Assets {
        /// The directory; it is created if it is missing
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
}

/// Address to listen on, and the host name in the option.
#[derive(Clone, Debug)]
struct Listen {
    address: SocketAddr,
    host: String,
}

impl Listen {
    fn parse(text: &str) -> Result<Self, String> {
        let host = text.rsplit_once(':').map_or(text, |(host, _)| host);
        Ok(Self {
            address: address(text)?,
            host: host.to_owned(),
        })
    }
}

/// Value of `--authorization`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Mode {
    AlwaysAllow,
    Rbac,
}

/// Value of `--anonymous`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Nobody {
    Admin,
    Allow,
    Deny,
}

/// A bearer token, with the name and groups of its user.
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

  With RBAC: one user has a token; requests without a token have the permissions of an administrator:
    fake-apiserver --listen 127.0.0.1:8080 --authorization rbac --token s3cret=jane:devs
    curl -H 'Authorization: Bearer s3cret' http://127.0.0.1:8080/api/v1/namespaces/default/pods
  kubectl only sends tokens over HTTPS (--tls). A certificate in the kubeconfig takes precedence over a token.

  A copy of objects from a real cluster:
    kubectl get deployments,pods,services -A -o yaml > dump.yaml
    fake-apiserver --load dump.yaml

  Garbage collection of dependents, and deletion of the objects in a deleted namespace:
    fake-apiserver --workers gc,namespace

  The control plane of envtest:
    export KUBEBUILDER_ASSETS=$PWD/bin
    fake-apiserver assets bin

`fake-apiserver kube-apiserver --help` and `fake-apiserver etcd --help` list the flags of these programs.

When the server is ready, it prints one line, `listening on URL`. It exits on SIGINT or SIGTERM.

On Windows, it exits on Ctrl-C, on Ctrl-Break, when its console closes, and when the system shuts down. It is not a
Windows service: a program that runs it as a service must stop it with one of these events, or by ending its process.
Files with keys and tokens have the permissions of their directory, so create them in a directory that only you can
read.";

/// Runs the server until it ends. Fails with a message to show to the user.
#[tokio::main]
pub(crate) async fn run(mut args: Args) -> Result<(), String> {
    if let Some(Command::Assets { folder }) = &args.command {
        return assets::install(folder);
    }
    log::start(args.verbose)?;
    let is_open = match args.anonymous {
        Nobody::Admin => true,
        Nobody::Allow => args.authorization == Mode::AlwaysAllow,
        Nobody::Deny => false,
    };
    let listen = args.listen.address;
    if is_open && !listen.ip().is_loopback() && !args.insecure_listen {
        return Err(format!(
            "anyone who can reach {listen} would have full access, because no credentials are required: use \
             --anonymous deny, or --authorization rbac with --anonymous allow, or --insecure-listen"
        ));
    }
    if !args.insecure_listen {
        setup::check_seed(&args.common, listen, "--insecure-listen")?;
    }
    args.common.accept_hosts.push(args.listen.host);
    let mut builder = setup::builder(&mut args.common)?;
    for plugin in &args.admission {
        builder = match plugin.as_str() {
            "service-account" => builder.service_account_admission(),
            "owner-references" => builder.enable_admission_plugins(["OwnerReferencesPermissionEnforcement"])?,
            _ => builder.resource_quota_controller(),
        };
    }
    let builder = builder
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
    let builder = tokens.fold(builder, |builder, it| builder.token(&it.token, &it.user, &it.groups));
    let setup = Setup {
        builder,
        listen,
        options: if args.tls {
            ServeOptions::tls()
        } else {
            ServeOptions::http()
        },
        exit_with_parent: args.exit_with_parent,
        common: args.common,
        objects: Vec::new(),
    };
    setup.serve().await
}

/// Parses the value of `--token`. Colons separate the parts, except in Kubernetes' own names, such as `system:masters`
/// and `system:serviceaccount:shop:operator`.
fn token(text: &str) -> Result<Token, String> {
    let (token, names) = text.split_once('=').ok_or("expected TOKEN=USER")?;
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
        return Err("tokens and names must not be empty".to_owned());
    }
    let user = all.remove(0);
    Ok(Token {
        token: token.to_owned(),
        user,
        groups: all,
    })
}
