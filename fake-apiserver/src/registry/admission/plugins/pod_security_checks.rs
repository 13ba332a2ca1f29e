//! The checks of the Pod Security Standards, in the order in which violations are reported.

use crate::api::json::Map;
use crate::registry::types::cursor::Cursor;

/// Level of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    Privileged,
    Baseline,
    Restricted,
}

impl Level {
    /// Returns the level as spelled in labels and messages.
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

/// A violation of a level: the reason, and the details that are printed in parentheses.
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

/// Capabilities that a container may add at the level `baseline`.
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

/// Returns the violations of a level in a pod spec.
pub(super) fn violations(spec: &Cursor<'_>, level: Level) -> Vec<Violation> {
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
        let volumes = spec.items("volumes").filter(|it| it.get("hostPath").is_some());
        let names: Vec<&str> = volumes.map(|it| it.text("name")).collect();
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
        !matches!(it.text("securityContext.procMount"), "" | "Default")
    });
    add(
        "procMount",
        must_not(&unmasked, "set securityContext.procMount to \"Unmasked\""),
        ", ",
    );
    if !is_restricted {
        add("seccompProfile", unconfined(spec), "; ");
    }
    let sysctls = spec.items("securityContext.sysctls").map(|it| it.text("name"));
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

fn is(map: &Cursor<'_>, path: &str, wanted: bool) -> bool {
    map.flag(path) == Some(wanted)
}

fn containers<'a>(spec: &'a Cursor<'a>) -> impl Iterator<Item = Cursor<'a>> {
    ["initContainers", "containers", "ephemeralContainers"]
        .into_iter()
        .flat_map(|field| spec.items(field))
}

fn names_of<'a>(spec: &'a Cursor<'a>, wanted: impl Fn(&Cursor<'_>) -> bool) -> Vec<&'a str> {
    containers(spec)
        .filter(|it| wanted(it))
        .map(|it| it.text("name"))
        .collect()
}

/// Formats names like `container "a"` or `containers "a", "b"`; returns `None` if the list is empty.
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

fn added<'a>(container: &Cursor<'a>, allowed: &[&str]) -> Vec<&'a str> {
    let added = container.texts("securityContext.capabilities.add");
    added.filter(|it| !allowed.contains(it)).collect()
}

fn added_capabilities(spec: &Cursor<'_>, allowed: &[&str]) -> Vec<String> {
    let names = names_of(spec, |it| !added(it, allowed).is_empty());
    let mut capabilities: Vec<String> = containers(spec)
        .flat_map(|it| added(&it, allowed))
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

fn restricted_capabilities(spec: &Cursor<'_>) -> Vec<String> {
    let keeps = names_of(spec, |it| {
        !it.texts("securityContext.capabilities.drop").any(|it| it == "ALL")
    });
    let mut all = must(&keeps, "set securityContext.capabilities.drop=[\"ALL\"]");
    all.extend(added_capabilities(spec, &["NET_BIND_SERVICE"]));
    all
}

fn host_ports(spec: &Cursor<'_>) -> Option<String> {
    let ports = |it: &Cursor<'_>| -> Vec<i64> {
        let ports = it.items("ports").filter_map(|port| port.integer("hostPort"));
        ports.filter(|port| *port != 0).collect()
    };
    let names = names_of(spec, |it| !ports(it).is_empty());
    let mut all: Vec<i64> = containers(spec).flat_map(|it| ports(&it)).collect();
    all.sort_unstable();
    all.dedup();
    let shown: Vec<String> = all.iter().map(ToString::to_string).collect();
    let verb = if names.len() > 1 { "use" } else { "uses" };
    let plural = if all.len() > 1 { "s" } else { "" };
    named("container", &names).map(|it| format!("{it} {verb} hostPort{plural} {}", shown.join(", ")))
}

fn restricted_volumes(spec: &Cursor<'_>) -> Vec<String> {
    let kind = |volume: &Cursor<'_>| {
        let mut fields = volume.map("").into_iter().flat_map(Map::keys);
        fields.find(|key| *key != "name").cloned().unwrap_or_default()
    };
    let is_bad = |volume: &Cursor<'_>| !RESTRICTED_VOLUMES.contains(&kind(volume).as_str());
    let bad: Vec<Cursor<'_>> = spec.items("volumes").filter(is_bad).collect();
    let names: Vec<&str> = bad.iter().map(|it| it.text("name")).collect();
    let mut kinds: Vec<String> = bad.iter().map(|it| format!("\"{}\"", kind(it))).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let verb = if names.len() > 1 { "use" } else { "uses" };
    let plural = if kinds.len() > 1 { "s" } else { "" };
    let text =
        named("volume", &names).map(|it| format!("{it} {verb} restricted volume type{plural} {}", kinds.join(", ")));
    text.into_iter().collect()
}

fn run_as_non_root(spec: &Cursor<'_>) -> Vec<String> {
    let path = "securityContext.runAsNonRoot";
    let mut all = Vec::new();
    if is(spec, path, false) {
        all.push(format!("pod must not set {path}=false"));
    }
    let explicit = names_of(spec, |it| is(it, path, false));
    all.extend(must_not(&explicit, &format!("set {path}=false")));
    if all.is_empty() && !is(spec, path, true) {
        let unset = names_of(spec, |it| it.get(path).is_none());
        let named = named("container", &unset).map(|it| format!("pod or {it} must set {path}=true"));
        all.extend(named);
    }
    all
}

fn run_as_user(spec: &Cursor<'_>) -> Vec<String> {
    let path = "securityContext.runAsUser";
    let mut all: Vec<String> = (spec.integer(path) == Some(0))
        .then(|| "pod must not set runAsUser=0".to_owned())
        .into_iter()
        .collect();
    let roots = names_of(spec, |it| it.integer(path) == Some(0));
    all.extend(must_not(&roots, "set runAsUser=0"));
    all
}

const SECCOMP: &str = "securityContext.seccompProfile.type";

fn unconfined(spec: &Cursor<'_>) -> Vec<String> {
    let what = format!("set {SECCOMP} to \"Unconfined\"");
    let mut all: Vec<String> = (spec.text(SECCOMP) == "Unconfined")
        .then(|| format!("pod must not {what}"))
        .into_iter()
        .collect();
    all.extend(must_not(&names_of(spec, |it| it.text(SECCOMP) == "Unconfined"), &what));
    all
}

fn restricted_seccomp(spec: &Cursor<'_>) -> Vec<String> {
    let mut all = unconfined(spec);
    if spec.text(SECCOMP).is_empty() {
        let unset = names_of(spec, |it| it.text(SECCOMP).is_empty());
        let named = named("container", &unset);
        all.extend(named.map(|it| format!("pod or {it} must set {SECCOMP} to \"RuntimeDefault\" or \"Localhost\"")));
    }
    all
}
