//! The checks of the Pod Security Standards, in the order in which violations are named.

use serde_json::{Map, Value};

use crate::registry::types::access::{at, list, number, objects, text};

/// Level that a namespace allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    Privileged,
    Baseline,
    Restricted,
}

impl Level {
    /// The word in labels and messages.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Level::Privileged => "privileged",
            Level::Baseline => "baseline",
            Level::Restricted => "restricted",
        }
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        [Level::Privileged, Level::Baseline, Level::Restricted]
            .into_iter()
            .find(|it| it.as_str() == text)
    }
}

/// Violation by a pod: the reason, and the details in brackets.
#[derive(Debug)]
pub(super) struct Violation {
    pub(super) reason: &'static str,
    detail: String,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.reason, self.detail)
    }
}

type Spec = Map<String, Value>;

/// The capabilities a container may add at the level `baseline`.
const DEFAULT_CAPABILITIES: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

const SAFE_SYSCTLS: [&str; 10] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_syncookies",
];

const RESTRICTED_VOLUMES: [&str; 8] = [
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
];

/// Returns the violations of a level by a pod of this spec.
pub(super) fn violations(spec: &Spec, level: Level) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut add = |reason: &'static str, details: Vec<String>, separator: &str| {
        if !details.is_empty() {
            found.push(Violation {
                reason,
                detail: details.join(separator),
            });
        }
    };
    if level == Level::Privileged {
        return found;
    }
    let is_restricted = level == Level::Restricted;
    if !is_restricted {
        add(
            "non-default capabilities",
            added_capabilities(spec, &DEFAULT_CAPABILITIES),
            "; ",
        );
    }
    let namespaces = ["hostNetwork", "hostPID", "hostIPC"].into_iter();
    let shared = namespaces
        .filter(|field| is(spec, field, true))
        .map(|field| format!("{field}=true"));
    add("host namespaces", shared.collect(), ", ");
    if !is_restricted {
        let volumes = objects(spec, "volumes").filter(|(_, it)| at(it, "hostPath").is_some());
        let names: Vec<&str> = volumes.map(|(_, it)| text(it, "name")).collect();
        add("hostPath volumes", named("volume", &names).into_iter().collect(), ", ");
    }
    add("hostPort", host_ports(spec).into_iter().collect(), ", ");
    let privileged = names_of(spec, |it| is(it, "securityContext.privileged", true));
    add(
        "privileged",
        must_not(&privileged, "set securityContext.privileged=true"),
        ", ",
    );
    let unmasked = names_of(spec, |it| {
        !matches!(text(it, "securityContext.procMount"), "" | "Default")
    });
    add(
        "procMount",
        must_not(&unmasked, "set securityContext.procMount to \"Unmasked\""),
        ", ",
    );
    if !is_restricted {
        add("seccompProfile", unconfined(spec), "; ");
    }
    let sysctls = objects(spec, "securityContext.sysctls").map(|(_, it)| text(it, "name"));
    let forbidden = sysctls.filter(|name| !SAFE_SYSCTLS.contains(name)).map(str::to_owned);
    add("forbidden sysctls", forbidden.collect(), ", ");
    if is_restricted {
        let escalating = names_of(spec, |it| !is(it, "securityContext.allowPrivilegeEscalation", false));
        add(
            "allowPrivilegeEscalation != false",
            must(&escalating, "set securityContext.allowPrivilegeEscalation=false"),
            ", ",
        );
        add("unrestricted capabilities", restricted_capabilities(spec), "; ");
        add("restricted volume types", restricted_volumes(spec), ", ");
        add("runAsNonRoot != true", run_as_non_root(spec), "; ");
        add("runAsUser=0", run_as_user(spec), "; ");
        add("seccompProfile", restricted_seccomp(spec), "; ");
    }
    found
}

fn is(map: &Spec, path: &str, wanted: bool) -> bool {
    at(map, path) == Some(&Value::Bool(wanted))
}

fn containers(spec: &Spec) -> impl Iterator<Item = &Spec> {
    ["initContainers", "containers", "ephemeralContainers"]
        .into_iter()
        .flat_map(|field| objects(spec, field))
        .map(|(_, it)| it)
}

fn names_of(spec: &Spec, wanted: impl Fn(&Spec) -> bool) -> Vec<&str> {
    containers(spec)
        .filter(|it| wanted(it))
        .map(|it| text(it, "name"))
        .collect()
}

/// `container "a"` or `containers "a", "b"`; nothing for none.
fn named(what: &str, names: &[&str]) -> Option<String> {
    let quoted: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
    let plural = if names.len() > 1 { "s" } else { "" };
    (!names.is_empty()).then(|| format!("{what}{plural} {}", quoted.join(", ")))
}

fn must(names: &[&str], what: &str) -> Vec<String> {
    named("container", names)
        .map(|it| format!("{it} must {what}"))
        .into_iter()
        .collect()
}

fn must_not(names: &[&str], what: &str) -> Vec<String> {
    must(names, &format!("not {what}"))
}

fn added<'a>(container: &'a Spec, allowed: &[&str]) -> Vec<&'a str> {
    let added = list(container, "securityContext.capabilities.add")
        .iter()
        .filter_map(Value::as_str);
    added.filter(|it| !allowed.contains(it)).collect()
}

fn added_capabilities(spec: &Spec, allowed: &[&str]) -> Vec<String> {
    let names = names_of(spec, |it| !added(it, allowed).is_empty());
    let mut capabilities: Vec<String> = containers(spec)
        .flat_map(|it| added(it, allowed))
        .map(|it| format!("\"{it}\""))
        .collect();
    capabilities.sort_unstable();
    capabilities.dedup();
    must_not(
        &names,
        &format!(
            "include {} in securityContext.capabilities.add",
            capabilities.join(", ")
        ),
    )
}

fn restricted_capabilities(spec: &Spec) -> Vec<String> {
    let keeps = names_of(spec, |it| {
        !list(it, "securityContext.capabilities.drop")
            .iter()
            .any(|it| it == "ALL")
    });
    let mut all = must(&keeps, "set securityContext.capabilities.drop=[\"ALL\"]");
    all.extend(added_capabilities(spec, &["NET_BIND_SERVICE"]));
    all
}

fn host_ports(spec: &Spec) -> Option<String> {
    let ports = |it: &Spec| -> Vec<i64> {
        let ports = objects(it, "ports").filter_map(|(_, port)| number(port, "hostPort"));
        ports.filter(|port| *port != 0).collect()
    };
    let names = names_of(spec, |it| !ports(it).is_empty());
    let mut all: Vec<i64> = containers(spec).flat_map(ports).collect();
    all.sort_unstable();
    all.dedup();
    let shown: Vec<String> = all.iter().map(ToString::to_string).collect();
    let verb = if names.len() > 1 { "use" } else { "uses" };
    let plural = if all.len() > 1 { "s" } else { "" };
    named("container", &names).map(|it| format!("{it} {verb} hostPort{plural} {}", shown.join(", ")))
}

fn restricted_volumes(spec: &Spec) -> Vec<String> {
    let kind = |volume: &Spec| volume.keys().find(|key| *key != "name").cloned().unwrap_or_default();
    let bad: Vec<&Spec> = objects(spec, "volumes")
        .map(|(_, it)| it)
        .filter(|it| !RESTRICTED_VOLUMES.contains(&kind(it).as_str()))
        .collect();
    let names: Vec<&str> = bad.iter().map(|it| text(it, "name")).collect();
    let mut kinds: Vec<String> = bad.iter().map(|it| format!("\"{}\"", kind(it))).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let verb = if names.len() > 1 { "use" } else { "uses" };
    let plural = if kinds.len() > 1 { "s" } else { "" };
    let text =
        named("volume", &names).map(|it| format!("{it} {verb} restricted volume type{plural} {}", kinds.join(", ")));
    text.into_iter().collect()
}

fn run_as_non_root(spec: &Spec) -> Vec<String> {
    let path = "securityContext.runAsNonRoot";
    let mut all = Vec::new();
    if is(spec, path, false) {
        all.push(format!("pod must not set {path}=false"));
    }
    let explicit = names_of(spec, |it| is(it, path, false));
    all.extend(must_not(&explicit, &format!("set {path}=false")));
    if all.is_empty() && !is(spec, path, true) {
        let unset = names_of(spec, |it| at(it, path).is_none());
        let named = named("container", &unset).map(|it| format!("pod or {it} must set {path}=true"));
        all.extend(named);
    }
    all
}

fn run_as_user(spec: &Spec) -> Vec<String> {
    let path = "securityContext.runAsUser";
    let mut all: Vec<String> = (number(spec, path) == Some(0))
        .then(|| "pod must not set runAsUser=0".to_owned())
        .into_iter()
        .collect();
    let roots = names_of(spec, |it| number(it, path) == Some(0));
    all.extend(must_not(&roots, "set runAsUser=0"));
    all
}

const SECCOMP: &str = "securityContext.seccompProfile.type";

fn unconfined(spec: &Spec) -> Vec<String> {
    let what = format!("set {SECCOMP} to \"Unconfined\"");
    let mut all: Vec<String> = (text(spec, SECCOMP) == "Unconfined")
        .then(|| format!("pod must not {what}"))
        .into_iter()
        .collect();
    all.extend(must_not(&names_of(spec, |it| text(it, SECCOMP) == "Unconfined"), &what));
    all
}

fn restricted_seccomp(spec: &Spec) -> Vec<String> {
    let mut all = unconfined(spec);
    if text(spec, SECCOMP).is_empty() {
        let unset = names_of(spec, |it| text(it, SECCOMP).is_empty());
        let named = named("container", &unset);
        all.extend(named.map(|it| format!("pod or {it} must set {SECCOMP} to \"RuntimeDefault\" or \"Localhost\"")));
    }
    all
}
