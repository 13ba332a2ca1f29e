//! Flags of kube-apiserver that are accepted without an effect, each with the values that correspond to this server's
//! behaviour. Other values are refused with the reason, so that no flag is silently ignored.

use std::ffi::OsString;

use Accepts::{Any, Nothing, Only};

const AGGREGATED: &str = "aggregated API servers are called at --webhook-address";
const AUDIT: &str = "audit events are written one by one, without truncation";
const AUDIT_WEBHOOK: &str = "audit events are only written to --audit-log-path";
const ETCD: &str = "objects are kept in memory, and etcd is not called";
const KUBELET: &str = "kubelets are not called";
const LOG: &str = "the log is written to stderr as text";
const MEMORY: &str = "objects are kept in memory, so nothing is encrypted at rest";
const METRICS: &str = "/metrics is not configurable";
const PROFILES: &str = "profiling is not supported";
const RIGHTS: &str = "the authorizers are AlwaysAllow and RBAC";
const SHUTDOWN: &str = "the server shuts down without a delay";
const TLS: &str = "TLS 1.2 and 1.3 are supported, with the library's default algorithms";
const USERS: &str =
    "users are authenticated by --token-auth-file, client certificates, tokens of ServiceAccounts and front proxies";

/// A flag of kube-apiserver.
struct Flag {
    name: &'static str,
    /// Set if the flag without a value has the value `true`.
    is_switch: bool,
    accepts: Accepts,
    /// The server's fixed behaviour, which the flag cannot change.
    fact: &'static str,
}

/// Values of a flag that are accepted without an effect.
enum Accepts {
    Any,
    Only(&'static [&'static str]),
    Nothing,
}

const fn switch(name: &'static str, accepts: Accepts, fact: &'static str) -> Flag {
    let is_switch = true;
    Flag {
        name,
        is_switch,
        accepts,
        fact,
    }
}

const fn value(name: &'static str, accepts: Accepts, fact: &'static str) -> Flag {
    let is_switch = false;
    Flag {
        name,
        is_switch,
        accepts,
        fact,
    }
}

#[rustfmt::skip]
const FLAGS: &[Flag] = &[
    value("admission-control", Nothing, "it was replaced by --enable-admission-plugins"),
    value("admission-control-config-file", Nothing, "admission plugins have their default configuration"),
    switch("aggregator-reject-forwarding-redirect", Any, AGGREGATED),
    value("allow-metric-labels", Nothing, METRICS),
    value("allow-metric-labels-manifest", Nothing, METRICS),
    value("audit-log-batch-buffer-size", Nothing, AUDIT),
    value("audit-log-batch-max-size", Nothing, AUDIT),
    value("audit-log-batch-max-wait", Nothing, AUDIT),
    value("audit-log-batch-throttle-burst", Nothing, AUDIT),
    switch("audit-log-batch-throttle-enable", Only(&["false"]), AUDIT),
    value("audit-log-batch-throttle-qps", Nothing, AUDIT),
    switch("audit-log-truncate-enabled", Only(&["false"]), AUDIT),
    value("audit-log-truncate-max-batch-size", Nothing, AUDIT),
    value("audit-log-truncate-max-event-size", Nothing, AUDIT),
    value("audit-webhook-batch-buffer-size", Nothing, AUDIT_WEBHOOK),
    value("audit-webhook-batch-max-size", Nothing, AUDIT_WEBHOOK),
    value("audit-webhook-batch-max-wait", Nothing, AUDIT_WEBHOOK),
    value("audit-webhook-batch-throttle-burst", Nothing, AUDIT_WEBHOOK),
    switch("audit-webhook-batch-throttle-enable", Nothing, AUDIT_WEBHOOK),
    value("audit-webhook-batch-throttle-qps", Nothing, AUDIT_WEBHOOK),
    value("audit-webhook-config-file", Nothing, AUDIT_WEBHOOK),
    value("audit-webhook-initial-backoff", Nothing, AUDIT_WEBHOOK),
    value("audit-webhook-mode", Nothing, AUDIT_WEBHOOK),
    switch("audit-webhook-truncate-enabled", Only(&["false"]), AUDIT_WEBHOOK),
    value("audit-webhook-truncate-max-batch-size", Nothing, AUDIT_WEBHOOK),
    value("audit-webhook-truncate-max-event-size", Nothing, AUDIT_WEBHOOK),
    value("audit-webhook-version", Nothing, AUDIT_WEBHOOK),
    value("authentication-config", Nothing, USERS),
    value("authentication-token-webhook-cache-ttl", Nothing, USERS),
    value("authentication-token-webhook-config-file", Nothing, USERS),
    value("authentication-token-webhook-version", Nothing, USERS),
    value("authorization-config", Nothing, RIGHTS),
    value("authorization-policy-file", Nothing, RIGHTS),
    value("authorization-webhook-cache-authorized-ttl", Nothing, RIGHTS),
    value("authorization-webhook-cache-unauthorized-ttl", Nothing, RIGHTS),
    value("authorization-webhook-config-file", Nothing, RIGHTS),
    value("authorization-webhook-version", Nothing, RIGHTS),
    switch("contention-profiling", Only(&["false"]), PROFILES),
    value("coordinated-leadership-lease-duration", Any, "the feature gate CoordinatedLeaderElection is off"),
    value("coordinated-leadership-renew-deadline", Any, "the feature gate CoordinatedLeaderElection is off"),
    value("coordinated-leadership-retry-period", Any, "the feature gate CoordinatedLeaderElection is off"),
    value("cors-allowed-origins", Nothing, "requests from web pages are refused"),
    value("debug-socket-path", Nothing, PROFILES),
    value("default-not-ready-toleration-seconds", Only(&["300"]), "the added tolerations have the default duration"),
    value("default-unreachable-toleration-seconds", Only(&["300"]), "the added tolerations have the default duration"),
    value("delete-collection-workers", Any, "collections are deleted without workers"),
    switch("disable-http2-serving", Only(&["false"]), "HTTP/2 is used if a client requests it"),
    value("disabled-metrics", Nothing, METRICS),
    value("egress-selector-config-file", Nothing, "webhooks are called directly"),
    value("emulated-version", Nothing, "--kubernetes-version selects the served version"),
    switch("emulation-forward-compatible", Only(&["false"]), "--kubernetes-version selects the served version"),
    switch("enable-aggregator-routing", Any, AGGREGATED),
    switch("enable-bootstrap-token-auth", Only(&["false"]), USERS),
    switch("enable-garbage-collector", Only(&["true"]), "deletions rely on a garbage collector"),
    switch("enable-logs-handler", Only(&["false"]), LOG),
    value("encryption-provider-config", Nothing, MEMORY),
    switch("encryption-provider-config-automatic-reload", Only(&["false"]), MEMORY),
    value("endpoint-reconciler-type", Only(&["lease", "master-count"]), "the Service kubernetes has its endpoint from the start"),
    value("etcd-count-metric-poll-period", Any, ETCD),
    value("etcd-db-metric-poll-interval", Any, ETCD),
    value("etcd-healthcheck-timeout", Any, ETCD),
    value("etcd-readycheck-timeout", Any, ETCD),
    value("etcd-servers-overrides", Any, ETCD),
    value("external-hostname", Nothing, "the address of a request is the only name of the server"),
    value("goaway-chance", Only(&["0"]), "connections remain open until a client closes them"),
    value("http2-max-streams-per-connection", Nothing, "connections have the default number of streams"),
    value("kubelet-certificate-authority", Any, KUBELET),
    value("kubelet-client-certificate", Any, KUBELET),
    value("kubelet-client-key", Any, KUBELET),
    value("kubelet-preferred-address-types", Any, KUBELET),
    value("kubelet-timeout", Any, KUBELET),
    value("kubernetes-service-node-port", Only(&["0"]), "the Service kubernetes only has a cluster IP"),
    value("lease-reuse-duration-seconds", Any, ETCD),
    value("livez-grace-period", Any, "the server is live as soon as it answers"),
    value("log-flush-frequency", Any, LOG),
    value("log-json-info-buffer-size", Only(&["0"]), LOG),
    switch("log-json-split-stream", Only(&["false"]), LOG),
    value("log-text-info-buffer-size", Only(&["0"]), LOG),
    switch("log-text-split-stream", Only(&["false"]), LOG),
    value("logging-format", Only(&["text"]), LOG),
    value("max-connection-bytes-per-sec", Only(&["0"]), "the bandwidth is not limited"),
    value("min-compatibility-version", Nothing, "--kubernetes-version selects the served version"),
    value("min-request-timeout", Only(&["1800"]), "watches last for the default time"),
    value("oidc-ca-file", Nothing, USERS),
    value("oidc-client-id", Nothing, USERS),
    value("oidc-groups-claim", Nothing, USERS),
    value("oidc-groups-prefix", Nothing, USERS),
    value("oidc-issuer-url", Nothing, USERS),
    value("oidc-required-claim", Nothing, USERS),
    value("oidc-signing-algs", Nothing, USERS),
    value("oidc-username-claim", Nothing, USERS),
    value("oidc-username-prefix", Nothing, USERS),
    value("peer-advertise-ip", Any, "this server has no peers"),
    value("peer-advertise-port", Any, "this server has no peers"),
    value("peer-ca-file", Any, "this server has no peers"),
    switch("permit-address-sharing", Only(&["false"]), "the port is not shared"),
    switch("permit-port-sharing", Only(&["false"]), "the port is not shared"),
    switch("profiling", Only(&["false"]), PROFILES),
    value("request-timeout", Nothing, "requests do not time out"),
    switch("runtime-config-emulation-forward-compatible", Only(&["false"]), "--kubernetes-version selects the served version"),
    switch("service-account-extend-token-expiration", Only(&["true"]), "tokens of Pods are extended, as by default"),
    value("service-account-jwks-uri", Nothing, "keys are at /openid/v1/jwks of this server"),
    switch("service-account-lookup", Only(&["true"]), "a token becomes invalid with its ServiceAccount"),
    value("service-account-max-token-expiration", Nothing, "tokens have the requested lifetime"),
    value("service-account-signing-endpoint", Nothing, "tokens are signed with the key of --service-account-signing-key-file"),
    value("service-node-port-range", Only(&["30000-32767"]), "node ports are from the default range"),
    value("show-hidden-metrics-for-version", Nothing, METRICS),
    value("shutdown-delay-duration", Only(&["0", "0s"]), SHUTDOWN),
    switch("shutdown-send-retry-after", Only(&["false"]), SHUTDOWN),
    value("shutdown-watch-termination-grace-period", Only(&["0", "0s"]), SHUTDOWN),
    value("storage-backend", Only(&["etcd3"]), ETCD),
    value("storage-initialization-timeout", Any, ETCD),
    value("storage-media-type", Only(&["", "application/json", "application/vnd.kubernetes.protobuf"]), ETCD),
    value("strict-transport-security-directives", Nothing, "requests from web pages are refused"),
    value("tls-cipher-suites", Nothing, TLS),
    value("tls-curve-preferences", Nothing, TLS),
    value("tls-min-version", Only(&["VersionTLS12"]), TLS),
    value("tls-sni-cert-key", Nothing, "only one certificate is supported"),
    value("tracing-config-file", Nothing, "tracing is not supported"),
    value("vmodule", Nothing, LOG),
    switch("watch-cache", Only(&["true"]), "watches read the history, which --history-bytes limits"),
    value("watch-cache-sizes", Any, "watches read the history, which --history-bytes limits"),
];

/// Removes the flags without an effect from the arguments. Fails with a message that contains the first flag with an
/// unsupported value, and the reason.
pub(crate) fn take_out(args: Vec<OsString>) -> Result<Vec<OsString>, String> {
    let mut left = Vec::new();
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        let text = arg.to_str().and_then(|it| it.strip_prefix("--")).unwrap_or_default();
        let (name, given) = match text.split_once('=') {
            Some((name, given)) => (name, Some(given.to_owned())),
            None => (text, None),
        };
        let Some(flag) = FLAGS.iter().find(|it| it.name == name) else {
            left.push(arg);
            continue;
        };
        let given = match given {
            Some(given) => given,
            None if flag.is_switch => "true".to_owned(),
            None => match args.next() {
                Some(next) => next.to_string_lossy().into_owned(),
                None => return Err(format!("flag needs an argument: --{name}")),
            },
        };
        flag.check(&given)?;
    }
    Ok(left)
}

impl Flag {
    fn check(&self, given: &str) -> Result<(), String> {
        let Self { name, fact, .. } = self;
        match self.accepts {
            Any => Ok(()),
            Only(values) if values.contains(&given) => Ok(()),
            Only(values) => {
                let values = values.join(" or ");
                Err(format!("--{name}={given} is not supported, only {values}: {fact}"))
            }
            Nothing => Err(format!("--{name} is not supported: {fact}")),
        }
    }
}

/// Returns the part of `--help` about the flags that are accepted without an effect.
pub(crate) fn help() -> String {
    let mut text = "Flags of kube-apiserver that have no effect here and are accepted with these values:\n".to_owned();
    for flag in FLAGS {
        let values = match flag.accepts {
            Any => "any".to_owned(),
            Only(values) => values.join(" or "),
            Nothing => continue,
        };
        let Flag { name, fact, .. } = flag;
        text.push_str(&format!("      --{name}\n          {values}: {fact}\n"));
    }
    text.push_str("\nAny other flag of kube-apiserver is refused with a reason.");
    text
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use clap::CommandFactory as _;
    use rstest::rstest;

    use super::{FLAGS, take_out};
    use crate::kube_apiserver::Args;

    /// The flags of kube-apiserver 1.36 and 1.37, as listed in its help.
    const REAL: &str = include_str!("../../tests/data/kube_apiserver_flags.txt");

    #[test]
    fn every_flag_of_kube_apiserver_is_supported_or_listed() {
        let command = Args::command();
        let is_option = |name: &str| command.get_arguments().any(|it| it.get_long() == Some(name));
        for name in REAL.lines() {
            let of = FLAGS.iter().filter(|it| it.name == name).count();
            assert_eq!(of + usize::from(is_option(name)), 1, "--{name}");
        }
        for flag in FLAGS {
            assert!(REAL.lines().any(|it| it == flag.name), "--{}", flag.name);
        }
    }

    #[rstest]
    #[case::supported_flags_are_kept(&["--secure-port=1", "--etcd-servers", "x"],
        &["--secure-port=1", "--etcd-servers", "x"], "")]
    #[case::boolean_flag(&["--watch-cache", "-v", "3"], &["-v", "3"], "")]
    #[case::disabled_boolean_flag(&["--profiling=false", "--watch-cache=true"], &[], "")]
    #[case::unsupported_boolean_value(&["--profiling"], &[], "--profiling=true is not supported, only false: profiling is not supported")]
    #[case::value_in_the_next_argument(&["--kubelet-timeout", "5s", "--v=1"], &["--v=1"], "")]
    #[case::unsupported_value(&["--tls-min-version", "VersionTLS13"],
        &[], "--tls-min-version=VersionTLS13 is not supported, only VersionTLS12: TLS 1.2 and 1.3 are supported, with \
             the library's default algorithms")]
    #[case::unsupported_flag(&["--oidc-issuer-url=https://x"],
        &[], "--oidc-issuer-url is not supported: users are authenticated by --token-auth-file, client certificates, tokens \
             of ServiceAccounts and front proxies")]
    #[case::missing_value(&["--kubelet-timeout"], &[], "flag needs an argument: --kubelet-timeout")]
    fn flags_without_effect_are_removed_and_unsupported_flags_refused(
        #[case] args: &[&str],
        #[case] left: &[&str],
        #[case] why: &str,
    ) {
        let found = take_out(args.iter().map(OsString::from).collect());
        match why {
            "" => assert_eq!(found, Ok(left.iter().map(OsString::from).collect())),
            why => assert_eq!(found, Err(why.to_owned())),
        }
    }
}
