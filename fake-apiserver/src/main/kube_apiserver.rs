//! The command `kube-apiserver` with kube-apiserver's flags, as passed by envtest and similar tools. An error names
//! each unsupported flag.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::error::{ContextKind, ErrorKind};
use clap::{CommandFactory as _, FromArgMatches as _, Parser};
use fake_apiserver::{Anonymous, ApiServerBuilder, Authorization, ServeOptions, ServiceAccountKeys};
use serde_json::{Value, json};

use crate::args::{Common, duration};
use crate::audit::{self, AuditArgs};
use crate::front_proxy::{self, FrontProxyArgs};
use crate::setup::{self, Setup};
use crate::{feature_gates, log, other_flags, report};

/// Default port of kube-apiserver.
const SECURE_PORT: u16 = 6443;

/// Admission plugins of kube-apiserver that this server does not implement, so disabling them does not change anything.
const ABSENT_PLUGINS: [&str; 16] = [
    "AlwaysAdmit",
    "AlwaysDeny",
    "AlwaysPullImages",
    "DenyServiceExternalIPs",
    "EventRateLimit",
    "ExtendedResourceToleration",
    "ImagePolicyWebhook",
    "JobValidation",
    "LimitPodHardAntiAffinityTopology",
    "NamespaceAutoProvision",
    "NamespaceExists",
    "NodeDeclaredFeatureValidator",
    "NodeRestriction",
    "PodGroupProtection",
    "PodNodeSelector",
    "PodTolerationRestriction",
];

/// Admission plugins that are disabled by default and can be enabled.
const OPTIONAL_PLUGINS: [&str; 1] = ["OwnerReferencesPermissionEnforcement"];

/// Admission plugins that are enabled by default and can be disabled.
const PLUGINS: [&str; 24] = [
    "CertificateApproval",
    "CertificateSigning",
    "CertificateSubjectRestriction",
    "ClusterTrustBundleAttest",
    "DefaultIngressClass",
    "DefaultStorageClass",
    "DefaultTolerationSeconds",
    "LimitRanger",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionWebhook",
    "NamespaceLifecycle",
    "PersistentVolumeClaimResize",
    "PodGroupWorkloadExists",
    "PodResizeValidator",
    "PodSecurity",
    "PodTopologyLabels",
    "Priority",
    "ResourceQuota",
    "RuntimeClass",
    "ServiceAccount",
    "StorageObjectInUseProtection",
    "TaintNodesByCondition",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionWebhook",
];

/// A fake kube-apiserver for the control planes of tests, with kube-apiserver's flags; it keeps its objects in memory
///
/// Unlisted flags are refused, and so are values that this server would have to ignore. Flags without an effect here
/// are accepted with the values listed at the end.
#[derive(Debug, Parser)]
#[command(name = "kube-apiserver", version, args_override_self = true)]
pub(crate) struct Args {
    /// Address to listen on
    #[arg(long, value_name = "IP", default_value_t = IpAddr::V4(Ipv4Addr::UNSPECIFIED))]
    bind_address: IpAddr,

    /// Port for HTTPS; 0 selects a free port
    #[arg(long, value_name = "PORT", default_value_t = SECURE_PORT)]
    secure_port: u16,

    /// Port for plain HTTP, which is not served: only 0 is accepted
    #[arg(long, value_name = "PORT", default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..=0))]
    insecure_port: u16,

    /// Address that is advertised to clients as the endpoint of the Service kubernetes, unless it is a loopback address
    #[arg(long, value_name = "IP")]
    advertise_address: Option<IpAddr>,

    /// Directory of apiserver.crt and apiserver.key, which are created if they are missing, and are only readable by
    /// their owner (on Windows, by everyone who may read the directory)
    #[arg(long, value_name = "DIR", default_value = "/var/run/kubernetes")]
    cert_dir: PathBuf,

    /// The server's certificate and its intermediate certificates, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_private_key_file")]
    tls_cert_file: Option<PathBuf>,

    /// The key of the server's certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    tls_private_key_file: Option<PathBuf>,

    /// File with certificate authorities for client certificates; the CN of a certificate is the user, and each O is a
    /// group
    #[arg(long, value_name = "FILE")]
    client_ca_file: Option<PathBuf>,

    /// Treat requests without credentials as system:anonymous; otherwise, and under AlwaysAllow, they fail with 401
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = true, action = clap::ArgAction::Set)]
    anonymous_auth: bool,

    /// Authorization mode: AlwaysAllow or RBAC
    #[arg(long, value_name = "MODES", value_delimiter = ',', default_value = "AlwaysAllow", value_parser = ["AlwaysAllow", "RBAC"])]
    authorization_mode: Vec<String>,

    /// File of bearer tokens, one per line: token,user,uid,"group1,group2"
    #[arg(long, value_name = "FILE")]
    token_auth_file: Option<PathBuf>,

    /// Issuer of ServiceAccount tokens (may be repeated); tokens of all issuers are accepted, and new tokens have the
    /// first issuer
    #[arg(long, value_name = "URL")]
    service_account_issuer: Vec<String>,

    /// File with keys or certificates that verify ServiceAccount tokens (may be repeated)
    #[arg(long, value_name = "FILE")]
    service_account_key_file: Vec<PathBuf>,

    /// File with the private key that signs ServiceAccount tokens: RSA, P-256 or P-384
    #[arg(long, value_name = "FILE")]
    service_account_signing_key_file: Option<PathBuf>,

    /// Accepted audiences of tokens [default: the issuers]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    api_audiences: Vec<String>,

    /// Range of cluster IPs; the Service kubernetes has the first address
    #[arg(long, value_name = "CIDR", default_value = "10.0.0.0/24")]
    service_cluster_ip_range: String,

    /// Admission plugins to disable
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    disable_admission_plugins: Vec<String>,

    /// Admission plugins to enable: plugins that are enabled by default, and OwnerReferencesPermissionEnforcement
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    enable_admission_plugins: Vec<String>,

    /// Allow privileged containers: only true is accepted
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "true", value_parser = ["true"])]
    allow_privileged: String,

    /// URLs of etcd, which is not called: objects are kept in memory until this process ends
    #[arg(long, value_name = "URLS", value_delimiter = ',')]
    etcd_servers: Vec<String>,

    /// Lifetime of Events after their last write
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = duration)]
    event_ttl: Duration,

    /// Certificate authority of etcd, which is not called
    #[arg(long, value_name = "FILE")]
    etcd_cafile: Option<PathBuf>,

    /// Certificate for etcd, which is not called
    #[arg(long, value_name = "FILE")]
    etcd_certfile: Option<PathBuf>,

    /// Key for etcd, which is not called
    #[arg(long, value_name = "FILE")]
    etcd_keyfile: Option<PathBuf>,

    /// Prefix of keys in etcd, which is not called
    #[arg(long, value_name = "PATH", default_value = "/registry")]
    etcd_prefix: String,

    /// Time between compactions; exact lists and continue tokens fail with 410 if their revision is older than the
    /// second-to-last compaction. 0 disables compaction
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration)]
    etcd_compaction_interval: Duration,

    /// Feature gates, name=true|false; only gates that enable APIs can be changed. All other gates must have their
    /// default in the served version of Kubernetes, because the server always behaves as with this default
    #[arg(long, value_name = "GATES", value_delimiter = ',')]
    feature_gates: Vec<String>,

    /// Enable or disable built-in APIs: api/all, api/ga, api/beta, api/alpha, group/version or group/version/resource,
    /// each =true|false. The core group cannot be disabled
    #[arg(long, value_name = "APIS", value_delimiter = ',')]
    runtime_config: Vec<String>,

    /// Serve API versions that Kubernetes has removed: autoscaling/v2beta2, batch/v1beta1, policy/v1beta1 (not a flag
    /// of kube-apiserver)
    #[arg(long, value_name = "VERSIONS", value_delimiter = ',')]
    retired_apis: Vec<String>,

    /// Maximum number of concurrent read requests; further requests fail with 429. 0 means unlimited
    #[arg(long, value_name = "N", default_value_t = 400)]
    max_requests_inflight: usize,

    /// Maximum number of concurrent write requests; further requests fail with 429. 0 means unlimited
    #[arg(long, value_name = "N", default_value_t = 200)]
    max_mutating_requests_inflight: usize,

    /// Enable API Priority and Fairness: only false is accepted
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", value_parser = ["false"])]
    enable_priority_and_fairness: String,

    /// File with the client certificate for requests to aggregated API servers, in PEM
    #[arg(long, value_name = "FILE", requires = "proxy_client_key_file")]
    proxy_client_cert_file: Option<PathBuf>,

    /// File with the key of the client certificate for requests to aggregated API servers, in PEM
    #[arg(long, value_name = "FILE", requires = "proxy_client_cert_file")]
    proxy_client_key_file: Option<PathBuf>,

    #[command(flatten)]
    front_proxy: FrontProxyArgs,

    #[command(flatten)]
    audit: AuditArgs,

    /// Log level; from 4 on, every request is logged to stderr
    #[arg(short, long, value_name = "LEVEL", default_value_t = 0)]
    v: u8,

    /// Exit when the process that started the server exits, so that killed tests do not leave servers behind
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "true")]
    exit_with_parent: bool,

    #[command(flatten)]
    common: Common,
}

/// Parses the arguments. Flags that are neither in `Args` nor in the list of flags without an effect are refused as
/// unknown.
pub(crate) fn parse(args: Vec<OsString>) -> Result<Args, clap::Error> {
    let refused = |why: String| Args::command().error(ErrorKind::UnknownArgument, format!("{why}\n"));
    let args = other_flags::take_out(args).map_err(refused)?;
    let command = Args::command().after_help(other_flags::help());
    let matches = command.try_get_matches_from(args).map_err(|err| {
        let unknown = err
            .get(ContextKind::InvalidArg)
            .filter(|_| err.kind() == ErrorKind::UnknownArgument);
        match unknown {
            Some(flag) => refused(format!("unknown flag: {flag}; see --help for the supported flags")),
            None => err,
        }
    })?;
    Args::from_arg_matches(&matches)
}

/// Runs the server until it ends. Fails with a message to show to the user.
#[tokio::main]
pub(crate) async fn run(mut args: Args) -> Result<(), String> {
    log::start(args.v >= 4)?;
    let listen = SocketAddr::new(args.bind_address, args.secure_port);
    setup::check_seed(&args.common, listen, "--bind-address=127.0.0.1")?;
    let builder = setup::builder(&mut args.common)?;
    let builder = admission(&args, users(&args, builder)?)?;
    let gates = feature_gates::of_apis(args.common.kubernetes_version, &args.feature_gates)?;
    let builder = audit::apply(&args.audit, builder)?;
    let builder = tokens(&args, builder)?
        .runtime_config(&args.runtime_config)
        .map_err(|why| format!("--runtime-config: {why}"))?
        .feature_gates(gates)?
        .retired_apis(args.retired_apis.iter().map(String::as_str))
        .map_err(|why| format!("--retired-apis: {why}"))?
        .max_requests_inflight(args.max_requests_inflight, args.max_mutating_requests_inflight)
        .compaction_interval(Some(args.etcd_compaction_interval).filter(|it| !it.is_zero()))
        .event_ttl(Some(args.event_ttl).filter(|it| !it.is_zero()))
        .service_cluster_ip_range(&args.service_cluster_ip_range)
        .map_err(|why| format!("--service-cluster-ip-range: {why}"))?;
    let withheld = builder.withheld_apis();
    for (resource, gate) in withheld.map_err(|why| format!("--runtime-config: {why}"))? {
        report(format_args!(
            "warning: {resource} is not served, because the feature gate {gate} is off"
        ));
    }
    let builder = match (&args.proxy_client_cert_file, &args.proxy_client_key_file) {
        (Some(certificate), Some(key)) => builder.proxy_client_certificate(
            read("proxy-client-cert-file", certificate)?,
            read("proxy-client-key-file", key)?,
        ),
        _ => builder,
    };
    let setup = Setup {
        builder: advertise(&args, builder),
        listen,
        options: transport(&args)?,
        objects: vec![authentication(&args)?],
        exit_with_parent: args.exit_with_parent,
        common: args.common,
    };
    setup.serve().await
}

/// Sets the advertised address as the endpoint of the Service `kubernetes`, unless it is a loopback or unspecified
/// address, which Endpoints must not contain.
fn advertise(args: &Args, builder: ApiServerBuilder) -> ApiServerBuilder {
    let address = args.advertise_address.unwrap_or(args.bind_address);
    if address.is_loopback() || address.is_unspecified() {
        return builder;
    }
    let port = if args.secure_port == 0 {
        SECURE_PORT
    } else {
        args.secure_port
    };
    builder.kubernetes_endpoint(SocketAddr::new(address, port))
}

/// Applies the options for authentication and authorization.
fn users(args: &Args, mut builder: ApiServerBuilder) -> Result<ApiServerBuilder, String> {
    // As in kube-apiserver, one mode that allows everything is enough to allow every request. It also disables
    // anonymous users, because otherwise everyone who can reach the port would have all permissions
    // (`ApplyAuthorization` of pkg/kubeapiserver/options).
    let allows = args.authorization_mode.iter().any(|it| it == "AlwaysAllow");
    builder = builder
        .authorization(if allows {
            Authorization::AlwaysAllow
        } else {
            Authorization::Rbac
        })
        .anonymous(if args.anonymous_auth && !allows {
            Anonymous::Allowed
        } else {
            Anonymous::Refused
        });
    let Some(file) = &args.token_auth_file else {
        return Ok(builder);
    };
    let text = String::from_utf8(read("token-auth-file", file)?)
        .map_err(|_| format!("--token-auth-file {}: the file is not valid UTF-8", file.display()))?;
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let fields = csv(line);
        let [token, user, uid, groups @ ..] = fields.as_slice() else {
            let number = number + 1;
            return Err(format!(
                "--token-auth-file {}, line {number}: expected token,user,uid",
                file.display()
            ));
        };
        let groups = groups.iter().flat_map(|it| it.split(',')).map(str::trim);
        builder = builder.token_with_uid(token, user, uid, groups.filter(|it| !it.is_empty()));
    }
    Ok(builder)
}

/// Splits a CSV line into fields, which may be quoted.
fn csv(line: &str) -> Vec<String> {
    let (mut fields, mut field, mut quoted) = (Vec::new(), String::new(), false);
    for c in line.trim().chars() {
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(std::mem::take(&mut field)),
            c => field.push(c),
        }
    }
    fields.push(field);
    fields.iter().map(|it| it.trim().to_owned()).collect()
}

/// Applies the options for the tokens of ServiceAccounts: keys, issuers and audiences.
fn tokens(args: &Args, mut builder: ApiServerBuilder) -> Result<ApiServerBuilder, String> {
    builder = builder
        .service_account_issuers(&args.service_account_issuer)
        .api_audiences(&args.api_audiences);
    let mut keys = match &args.service_account_signing_key_file {
        Some(file) => Some(
            ServiceAccountKeys::from_pem(&read("service-account-signing-key-file", file)?)
                .map_err(|err| format!("--service-account-signing-key-file {}: {err}", file.display()))?,
        ),
        None => None,
    };
    for file in &args.service_account_key_file {
        let name = "service-account-key-file";
        let pem = read(name, file)?;
        if keys.is_none() {
            keys = Some(ServiceAccountKeys::generate().map_err(|err| err.to_string())?);
        }
        if let Some(keys) = &mut keys {
            keys.trust_pem(&pem)
                .map_err(|err| format!("--{name} {}: {err}", file.display()))?;
        }
    }
    Ok(match keys {
        Some(keys) => builder.service_account_keys(keys),
        None => builder,
    })
}

/// Enables and disables admission plugins.
fn admission(args: &Args, builder: ApiServerBuilder) -> Result<ApiServerBuilder, String> {
    let is_optional = |name: &str| OPTIONAL_PLUGINS.contains(&name);
    let known = |name: &str| PLUGINS.contains(&name) || is_optional(name);
    for name in &args.enable_admission_plugins {
        if !known(name) {
            return Err(format!(
                "--enable-admission-plugins: admission plugin {name:?} is not supported"
            ));
        }
    }
    for name in &args.disable_admission_plugins {
        if !known(name) && !ABSENT_PLUGINS.contains(&name.as_str()) {
            return Err(format!(
                "--disable-admission-plugins: admission plugin {name:?} is unknown"
            ));
        }
    }
    let off = || args.disable_admission_plugins.iter().map(String::as_str);
    let optional = args.enable_admission_plugins.iter().map(String::as_str);
    let optional = optional.filter(|it| is_optional(it) && !off().any(|off| off == *it));
    let builder = builder
        .enable_admission_plugins(optional)
        .map_err(|name| format!("--enable-admission-plugins: admission plugin {name:?} is not supported"))?;
    let builder = match off().any(|it| it == "ServiceAccount") {
        true => builder,
        false => builder.service_account_admission(),
    };
    let others = off().filter(|it| *it != "ServiceAccount" && PLUGINS.contains(it));
    builder
        .disable_admission_plugins(others)
        .map_err(|name| format!("--disable-admission-plugins: {name} cannot be disabled"))
}

/// Applies the options for the server's certificate and for client certificates.
fn transport(args: &Args) -> Result<ServeOptions, String> {
    let mut options = ServeOptions::tls();
    let (certificate, key) = match (&args.tls_cert_file, &args.tls_private_key_file) {
        (Some(certificate), Some(key)) => (certificate.clone(), key.clone()),
        _ => (args.cert_dir.join("apiserver.crt"), args.cert_dir.join("apiserver.key")),
    };
    if args.tls_cert_file.is_some() || certificate.exists() {
        options = options.certificate(
            read("tls-cert-file", &certificate)?,
            read("tls-private-key-file", &key)?,
        );
    } else {
        let (pem, key_pem) =
            fake_apiserver::self_signed_certificate(args.advertise_address.unwrap_or(args.bind_address))
                .map_err(|err| format!("cannot create a certificate: {err}"))?;
        let write = |path: &Path, pem: &str| {
            write_private(path, pem).map_err(|err| format!("cannot write {}: {err}", path.display()))
        };
        fs::create_dir_all(&args.cert_dir).map_err(|err| format!("--cert-dir {}: {err}", args.cert_dir.display()))?;
        write(&certificate, &pem)?;
        write(&key, &key_pem)?;
        options = options.certificate(pem.into_bytes(), key_pem.into_bytes());
    }
    if let Some(file) = &args.client_ca_file {
        options = options.client_ca(read("client-ca-file", file)?);
    }
    front_proxy::apply(&args.front_proxy, options)
}

/// Returns the ConfigMap with the certificate authorities for aggregated API servers.
fn authentication(args: &Args) -> Result<Value, String> {
    let mut data = front_proxy::published(&args.front_proxy)?;
    if let Some(file) = &args.client_ca_file {
        let pem = read("client-ca-file", file)?;
        data.insert("client-ca-file".into(), String::from_utf8_lossy(&pem).into());
    }
    Ok(json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": data,
        "metadata": {"name": "extension-apiserver-authentication", "namespace": "kube-system"},
    }))
}

/// Writes a file that only its owner can read.
fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    io::Write::write_all(&mut options.open(path)?, text.as_bytes())
}

fn read(flag: &str, file: &Path) -> Result<Vec<u8>, String> {
    fs::read(file).map_err(|err| format!("--{flag} {}: {err}", file.display()))
}
