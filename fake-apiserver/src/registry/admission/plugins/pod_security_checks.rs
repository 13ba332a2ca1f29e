//! The checks of the Pod Security Standards, in the order in which violations are reported.

use crate::api::json::Map;
use crate::api::kubernetes_version::KubernetesVersion;
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

const SAFE_SYSCTLS: [&str; 12] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_wmem",
];

/// Volume types that the level `restricted` permits.
const RESTRICTED_VOLUMES: [&str; 9] = [
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
];

/// Returns the violations of a level in a pod spec.
pub(super) fn violations(spec: &Cursor<'_>, level: Level, version: KubernetesVersion) -> Vec<Violation> {
    let mut found = Vec::new();
    if level == Level::Privileged {
        return found;
    }
    let mut add = |reason: &'static str, details: Vec<String>, separator: &str| {
        if !details.is_empty() {
            found.push(Violation {
                reason,
                detail: details.join(separator),
            });
        }
    };
    // A Pod in its own user namespace may use any user, and `baseline` ignores its `procMount`.
    let has_user_namespace = is(spec, "hostUsers", false) && version >= KubernetesVersion::V1_35;
    if level == Level::Baseline {
        baseline(spec, has_user_namespace, &mut add);
    } else {
        restricted(spec, has_user_namespace, version, &mut add);
    }
    found
}

/// Receives the reason of a violation, its details and the separator between details.
type Add<'a> = dyn FnMut(&'static str, Vec<String>, &str) + 'a;

/// Adds the violations of the level `baseline`.
fn baseline(spec: &Cursor<'_>, has_user_namespace: bool, add: &mut Add<'_>) {
    let capabilities = added_capabilities(spec, &DEFAULT_CAPABILITIES);
    add("non-default capabilities", capabilities, "; ");
    add("host namespaces", host_namespaces(spec), ", ");
    let volumes = spec.items("volumes").filter(|it| it.get("hostPath").is_some());
    let names: Vec<&str> = volumes.map(|it| it.text("name")).collect();
    add("hostPath volumes", named("volume", &names).into_iter().collect(), ", ");
    add("hostPort", host_ports(spec).into_iter().collect(), ", ");
    add("privileged", privileged(spec), ", ");
    if !has_user_namespace {
        add("procMount", proc_mount(spec), ", ");
    }
    add("seccompProfile", unconfined(spec), "; ");
    add("forbidden sysctls", forbidden_sysctls(spec), ", ");
}

/// Adds the violations of the level `restricted`, which replaces some of the checks of `baseline`.
fn restricted(spec: &Cursor<'_>, has_user_namespace: bool, version: KubernetesVersion, add: &mut Add<'_>) {
    // Earlier versions only have the check of `baseline`, which is performed earlier.
    let has_own_check = version >= KubernetesVersion::V1_35;
    add("host namespaces", host_namespaces(spec), ", ");
    add("hostPort", host_ports(spec).into_iter().collect(), ", ");
    add("privileged", privileged(spec), ", ");
    if !has_own_check {
        add("procMount", proc_mount(spec), ", ");
    }
    add("forbidden sysctls", forbidden_sysctls(spec), ", ");
    // Windows does not support the fields of these checks, and a Pod for Windows cannot set them.
    let is_windows = spec.text("os.name") == "windows";
    if !is_windows {
        let escalating = names_of(spec, |it| !is(it, "securityContext.allowPrivilegeEscalation", false));
        let details = must(&escalating, "set securityContext.allowPrivilegeEscalation=false");
        add("allowPrivilegeEscalation != false", details, ", ");
        add("unrestricted capabilities", restricted_capabilities(spec), "; ");
    }
    if has_own_check {
        add("procMount", proc_mount(spec), ", ");
    }
    add("restricted volume types", restricted_volumes(spec), ", ");
    if !has_user_namespace {
        add("runAsNonRoot != true", run_as_non_root(spec), "; ");
        add("runAsUser=0", run_as_user(spec), "; ");
    }
    if !is_windows {
        add("seccompProfile", restricted_seccomp(spec), "; ");
    }
}

fn host_namespaces(spec: &Cursor<'_>) -> Vec<String> {
    let namespaces = ["hostNetwork", "hostPID", "hostIPC"].into_iter();
    let shared = namespaces.filter(|field| is(spec, field, true));
    shared.map(|field| format!("{field}=true")).collect()
}

fn privileged(spec: &Cursor<'_>) -> Vec<String> {
    let names = names_of(spec, |it| is(it, "securityContext.privileged", true));
    must_not(&names, "set securityContext.privileged=true")
}

fn proc_mount(spec: &Cursor<'_>) -> Vec<String> {
    let unmasked = names_of(spec, |it| {
        !matches!(it.text("securityContext.procMount"), "" | "Default")
    });
    must_not(&unmasked, "set securityContext.procMount to \"Unmasked\"")
}

fn forbidden_sysctls(spec: &Cursor<'_>) -> Vec<String> {
    let names = spec.items("securityContext.sysctls").map(|it| it.text("name"));
    names
        .filter(|it| !SAFE_SYSCTLS.contains(it))
        .map(str::to_owned)
        .collect()
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

/// Returns the detail of a violation if the Pod or some of its containers set a value.
fn pod_or_containers_must_not(is_set: impl Fn(&Cursor<'_>) -> bool, spec: &Cursor<'_>, what: &str) -> Vec<String> {
    let pod = is_set(spec).then(|| "pod".to_owned());
    let setters: Vec<String> = pod
        .into_iter()
        .chain(named("container", &names_of(spec, is_set)))
        .collect();
    let detail = (!setters.is_empty()).then(|| format!("{} must not {what}", setters.join(" and ")));
    detail.into_iter().collect()
}

fn run_as_non_root(spec: &Cursor<'_>) -> Vec<String> {
    let path = "securityContext.runAsNonRoot";
    let mut all = pod_or_containers_must_not(|it| is(it, path, false), spec, &format!("set {path}=false"));
    if all.is_empty() && !is(spec, path, true) {
        let unset = names_of(spec, |it| it.get(path).is_none());
        let named = named("container", &unset).map(|it| format!("pod or {it} must set {path}=true"));
        all.extend(named);
    }
    all
}

fn run_as_user(spec: &Cursor<'_>) -> Vec<String> {
    let path = "securityContext.runAsUser";
    pod_or_containers_must_not(|it| it.integer(path) == Some(0), spec, "set runAsUser=0")
}

const SECCOMP: &str = "securityContext.seccompProfile.type";

fn unconfined(spec: &Cursor<'_>) -> Vec<String> {
    let what = format!("set {SECCOMP} to \"Unconfined\"");
    pod_or_containers_must_not(|it| it.text(SECCOMP) == "Unconfined", spec, &what)
}

fn restricted_seccomp(spec: &Cursor<'_>) -> Vec<String> {
    let mut all = unconfined(spec);
    if all.is_empty() && spec.text(SECCOMP).is_empty() {
        let unset = names_of(spec, |it| it.text(SECCOMP).is_empty());
        let named = named("container", &unset);
        all.extend(named.map(|it| format!("pod or {it} must set {SECCOMP} to \"RuntimeDefault\" or \"Localhost\"")));
    }
    all
}
