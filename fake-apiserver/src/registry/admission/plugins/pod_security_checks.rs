//! The checks of the Pod Security Standards, in the order in which violations are reported.

use std::collections::BTreeSet;

use crate::api::field::quote;
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

/// A level, and the minor version of Kubernetes with the checks that apply.
#[derive(Clone, Copy, Debug)]
pub(super) struct Policy {
    pub(super) level: Level,
    pub(super) minor: u8,
}

impl Policy {
    /// Returns `true` if the level is `restricted` and the version is at least `minor`, since which a check of
    /// `restricted` replaces a check of `baseline`.
    fn replaces_since(self, minor: u8) -> bool {
        self.level == Level::Restricted && self.minor >= minor
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

/// Permitted sysctls, each with the minor version since which it is permitted.
const SAFE_SYSCTLS: [(&str, u8); 12] = [
    ("kernel.shm_rmid_forced", 0),
    ("net.ipv4.ip_local_port_range", 0),
    ("net.ipv4.ip_local_reserved_ports", 27),
    ("net.ipv4.ip_unprivileged_port_start", 0),
    ("net.ipv4.ping_group_range", 0),
    ("net.ipv4.tcp_fin_timeout", 29),
    ("net.ipv4.tcp_keepalive_intvl", 29),
    ("net.ipv4.tcp_keepalive_probes", 29),
    ("net.ipv4.tcp_keepalive_time", 29),
    ("net.ipv4.tcp_rmem", 32),
    ("net.ipv4.tcp_syncookies", 0),
    ("net.ipv4.tcp_wmem", 32),
];

/// Prefix of the annotation with the AppArmor profile of a container.
const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

/// Annotation with the seccomp profile of a Pod, and the prefix of the annotation of a container.
const SECCOMP_ANNOTATIONS: (&str, &str) = (
    "seccomp.security.alpha.kubernetes.io/pod",
    "container.seccomp.security.alpha.kubernetes.io/",
);

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

/// Returns the violations of a policy in a pod spec and the annotations next to it.
pub(super) fn violations(annotations: &Map, spec: &Cursor<'_>, policy: Policy) -> Vec<Violation> {
    let mut found = Vec::new();
    if policy.level == Level::Privileged {
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
    let has_user_namespace = is(spec, "hostUsers", false) && policy.minor >= 35;
    baseline(annotations, spec, policy, has_user_namespace, &mut add);
    if policy.level == Level::Restricted {
        restricted(spec, policy.minor, has_user_namespace, &mut add);
    }
    found
}

/// Receives the reason of a violation, its details and the separator between details.
type Add<'a> = dyn FnMut(&'static str, Vec<String>, &str) + 'a;

/// Adds the violations of the level `baseline`, except for the checks that the policy replaces.
fn baseline(annotations: &Map, spec: &Cursor<'_>, policy: Policy, has_user_namespace: bool, add: &mut Add<'_>) {
    let (reason, details) = app_armor(annotations, spec);
    add(reason, details, ", ");
    if !policy.replaces_since(22) {
        let capabilities = added_capabilities(spec, &DEFAULT_CAPABILITIES);
        add("non-default capabilities", capabilities, "; ");
    }
    add("host namespaces", host_namespaces(spec), ", ");
    if !policy.replaces_since(0) {
        let volumes = spec.items("volumes").filter(|it| it.get("hostPath").is_some());
        let names: Vec<&str> = volumes.map(|it| it.text("name")).collect();
        add("hostPath volumes", named("volume", &names).into_iter().collect(), ", ");
    }
    add("hostPort", host_ports(spec).into_iter().collect(), ", ");
    if policy.minor >= 34 {
        add("probe or lifecycle host", probe_hosts(spec).into_iter().collect(), ", ");
    }
    add("privileged", privileged(spec), ", ");
    if !policy.replaces_since(35) && !has_user_namespace {
        add("procMount", proc_mount(spec), ", ");
    }
    add("seLinuxOptions", se_linux(spec, policy.minor), ", ");
    if !policy.replaces_since(19) {
        let details = match policy.minor {
            0..19 => seccomp_annotations(annotations, spec),
            _ => unconfined(spec),
        };
        add("seccompProfile", details, "; ");
    }
    add("forbidden sysctls", forbidden_sysctls(spec, policy.minor), ", ");
    let path = "securityContext.windowsOptions.hostProcess";
    let details = pod_or_containers_must_not(|it| is(it, path, true), spec, &format!("set {path}=true"));
    add("hostProcess", details, ", ");
}

/// Adds the violations of the level `restricted` that `baseline` permits.
fn restricted(spec: &Cursor<'_>, minor: u8, has_user_namespace: bool, add: &mut Add<'_>) {
    // Windows does not support the fields of these checks, and a Pod for Windows cannot set them.
    let is_windows = spec.text("os.name") == "windows" && minor >= 25;
    if minor >= 8 && !is_windows {
        let escalating = names_of(spec, |it| !is(it, "securityContext.allowPrivilegeEscalation", false));
        let details = must(&escalating, "set securityContext.allowPrivilegeEscalation=false");
        add("allowPrivilegeEscalation != false", details, ", ");
    }
    if minor >= 22 && !is_windows {
        add("unrestricted capabilities", restricted_capabilities(spec), "; ");
    }
    if minor >= 35 {
        add("procMount", proc_mount(spec), ", ");
    }
    add("restricted volume types", restricted_volumes(spec), ", ");
    if !has_user_namespace {
        add("runAsNonRoot != true", run_as_non_root(spec), "; ");
    }
    if minor >= 23 && !has_user_namespace {
        add("runAsUser=0", run_as_user(spec), "; ");
    }
    if minor >= 19 && !is_windows {
        add("seccompProfile", restricted_seccomp(spec), "; ");
    }
}

/// Returns the reason and the details for forbidden AppArmor profiles, in fields and in annotations.
fn app_armor(annotations: &Map, spec: &Cursor<'_>) -> (&'static str, Vec<String>) {
    let path = "securityContext.appArmorProfile.type";
    let bad = |it: &Cursor<'_>| {
        let kind = it.text(path);
        let is_set = it.is_set("securityContext.appArmorProfile");
        (is_set && !matches!(kind, "RuntimeDefault" | "Localhost")).then(|| kind.to_owned())
    };
    let values: BTreeSet<String> = containers(spec).filter_map(|it| bad(&it)).chain(bad(spec)).collect();
    let is_allowed = |value: &str| matches!(value, "" | "runtime/default") || value.starts_with("localhost/");
    let mut forbidden = Vec::new();
    for (key, value) in annotations {
        let value = value.as_str().unwrap_or_default();
        if key.starts_with(APP_ARMOR) && !is_allowed(value) {
            forbidden.push(format!("{key}={}", quote(value)));
        }
    }
    forbidden.sort_unstable();
    let mut setters = setters(|it| bad(it).is_some(), spec);
    if !forbidden.is_empty() {
        let plural = if forbidden.len() > 1 { "s" } else { "" };
        setters.push(format!("annotation{plural}"));
    }
    let values: Vec<String> = values.into_iter().chain(forbidden).collect();
    let reason = match values.len() {
        1 => "forbidden AppArmor profile",
        _ => "forbidden AppArmor profiles",
    };
    let shown: Vec<String> = values.iter().map(|it| format!("\"{it}\"")).collect();
    let detail = (!setters.is_empty()).then(|| {
        let (setters, shown) = (setters.join(" and "), shown.join(", "));
        format!("{setters} must not set AppArmor profile type to {shown}")
    });
    (reason, detail.into_iter().collect())
}

/// Returns the detail for hosts in probes and lifecycle handlers.
fn probe_hosts(spec: &Cursor<'_>) -> Option<String> {
    let hosts = |it: &Cursor<'_>| -> Vec<String> {
        let handlers = [
            "livenessProbe",
            "readinessProbe",
            "startupProbe",
            "lifecycle.postStart",
            "lifecycle.preStop",
        ];
        let paths = handlers
            .iter()
            .flat_map(|handler| ["httpGet", "tcpSocket"].map(|kind| format!("{handler}.{kind}.host")));
        let hosts = paths.map(|path| it.text(&path).to_owned());
        hosts.filter(|it| !it.is_empty()).collect()
    };
    let names: BTreeSet<&str> = names_of(spec, |it| !hosts(it).is_empty()).into_iter().collect();
    let names = Vec::from_iter(names);
    let found: BTreeSet<String> = containers(spec).flat_map(|it| hosts(&it)).collect();
    let found: Vec<&str> = found.iter().map(String::as_str).collect();
    let verb = if names.len() > 1 { "use" } else { "uses" };
    let hosts = named("probe or lifecycle host", &found)?;
    named("container", &names).map(|it| format!("{it} {verb} {hosts}"))
}

/// Returns the details for forbidden SELinux options.
fn se_linux(spec: &Cursor<'_>, minor: u8) -> Vec<String> {
    let path = "securityContext.seLinuxOptions";
    let text = |it: &Cursor<'_>, field: &str| it.text(&format!("{path}.{field}")).to_owned();
    let bad_type = |it: &Cursor<'_>| {
        let kind = text(it, "type");
        let is_allowed = match kind.as_str() {
            "" | "container_t" | "container_init_t" | "container_kvm_t" => true,
            "container_engine_t" => minor >= 31,
            _ => false,
        };
        (!is_allowed).then_some(kind)
    };
    let sets = |it: &Cursor<'_>, field: &str| !text(it, field).is_empty();
    let any_sets = |field: &str| sets(spec, field) || containers(spec).any(|it| sets(&it, field));
    let is_bad = |it: &Cursor<'_>| bad_type(it).is_some() || sets(it, "user") || sets(it, "role");
    let setters = setters(is_bad, spec);
    if setters.is_empty() {
        return Vec::new();
    }
    let types: BTreeSet<String> = containers(spec)
        .filter_map(|it| bad_type(&it))
        .chain(bad_type(spec))
        .collect();
    let types: Vec<&str> = types.iter().map(String::as_str).collect();
    let mut details = Vec::from_iter(named("type", &types));
    for field in ["user", "role"].into_iter().filter(|it| any_sets(it)) {
        details.push(format!("{field} may not be set"));
    }
    let (setters, details) = (setters.join(" and "), details.join("; "));
    vec![format!("{setters} set forbidden {path}: {details}")]
}

/// Returns the details for forbidden seccomp profiles in annotations, which older versions check.
fn seccomp_annotations(annotations: &Map, spec: &Cursor<'_>) -> Vec<String> {
    let (of_pod, of_container) = SECCOMP_ANNOTATIONS;
    let keys = containers(spec).map(|it| format!("{of_container}{}", it.text("name")));
    let forbidden = keys.chain([of_pod.to_owned()]).filter_map(|key| {
        let value = annotations.get(&key)?.as_str()?;
        let is_allowed = matches!(value, "runtime/default" | "docker/default") || value.starts_with("localhost/");
        (!is_allowed).then(|| format!("{key}={}", quote(value)))
    });
    let forbidden: BTreeSet<String> = forbidden.collect();
    let forbidden = Vec::from_iter(forbidden);
    let plural = if forbidden.len() > 1 { "s" } else { "" };
    let detail = (!forbidden.is_empty()).then(|| format!("forbidden annotation{plural} {}", forbidden.join(", ")));
    detail.into_iter().collect()
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

fn forbidden_sysctls(spec: &Cursor<'_>, minor: u8) -> Vec<String> {
    let is_safe = |sysctl: &str| {
        SAFE_SYSCTLS
            .iter()
            .any(|(name, since)| *name == sysctl && minor >= *since)
    };
    let names = spec.items("securityContext.sysctls").map(|it| it.text("name"));
    names.filter(|it| !is_safe(it)).map(str::to_owned).collect()
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
    let all = containers(spec).flat_map(|it| ports(&it)).map(|it| it.to_string());
    // The numbers are sorted as strings, like in kube-apiserver.
    let all = Vec::from_iter(all.collect::<BTreeSet<String>>());
    let verb = if names.len() > 1 { "use" } else { "uses" };
    let plural = if all.len() > 1 { "s" } else { "" };
    named("container", &names).map(|it| format!("{it} {verb} hostPort{plural} {}", all.join(", ")))
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

/// Returns the Pod and the containers that set a value: `pod`, `container "a"` or `containers "a", "b"`.
fn setters(is_set: impl Fn(&Cursor<'_>) -> bool, spec: &Cursor<'_>) -> Vec<String> {
    let pod = is_set(spec).then(|| "pod".to_owned());
    pod.into_iter()
        .chain(named("container", &names_of(spec, is_set)))
        .collect()
}

/// Returns the detail of a violation if the Pod or some of its containers set a value.
fn pod_or_containers_must_not(is_set: impl Fn(&Cursor<'_>) -> bool, spec: &Cursor<'_>, what: &str) -> Vec<String> {
    let setters = setters(is_set, spec);
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
