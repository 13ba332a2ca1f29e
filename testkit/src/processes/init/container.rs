//! Writes the controllers of a scenario: one for each container of the workloads.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Component, Path};

use serde_json::Value;

use super::mounts::{CERTIFICATES, Mounts};
use super::rendered::{Manifests, data, namespace_of, text};
use super::yaml::{list, quoted};
use super::{Files, MISSING};
use crate::processes::stop::{LONGEST_GRACE, StopSignal};
use crate::processes::webhooks::{is_configuration, services};

/// Directories, relative to the working directory, in which a program is looked for.
const PROGRAMS: [&str; 8] = [
    "",
    "bin",
    "build",
    "dist",
    "out",
    "_output/bin",
    "target/release",
    "target/debug",
];

/// Sidecars that only forward requests to a controller. There is no need to run them.
const PROXIES: [&str; 2] = ["kube-rbac-proxy", "istio-proxy"];

/// The containers of all workloads.
pub(super) struct Pods<'a> {
    manifests: &'a Manifests,
    containers: Vec<Container<'a>>,
    /// The directory of the scenario.
    directory: &'a Path,
}

struct Container<'a> {
    workload: &'a Value,
    spec: &'a Value,
    /// The name, which is unique in the scenario.
    name: String,
    /// Services with webhooks that this container serves, as `NAMESPACE/NAME`, and its port.
    webhooks: Vec<(String, u64)>,
}

impl<'a> Pods<'a> {
    pub(super) fn new(manifests: &'a Manifests, directory: &'a Path) -> Self {
        let mut names = BTreeSet::new();
        let mut containers = Vec::new();
        for workload in &manifests.workloads {
            let specs = workload["spec"]["template"]["spec"]["containers"].as_array();
            let specs = specs.into_iter().flatten();
            for spec in specs.filter(|it| !PROXIES.iter().any(|proxy| text(&it["image"]).contains(proxy))) {
                let mut name = text(&spec["name"]).to_owned();
                if name.is_empty() || !names.insert(name.clone()) {
                    name = format!("{}-{name}", text(&workload["metadata"]["name"]));
                    names.insert(name.clone());
                }
                let webhooks = webhooks(manifests, workload, spec);
                containers.push(Container {
                    workload,
                    spec,
                    name,
                    webhooks,
                });
            }
        }
        Self {
            manifests,
            containers,
            directory,
        }
    }

    /// Returns `true` if a program listens on a port.
    pub(super) fn has_ports(&self) -> bool {
        let mut containers = self.containers.iter();
        containers.any(|it| !it.webhooks.is_empty() || ports(it.spec).next().is_some() || it.ready().is_some())
    }

    /// Returns `true` if a controller has the permissions of its ServiceAccount.
    pub(super) fn has_users(&self) -> bool {
        self.containers.iter().any(|it| self.account(it).is_some())
    }

    pub(super) fn write(&self, scenario: &mut String, files: &mut Files) {
        let serving = self.containers.iter().filter(|it| !it.webhooks.is_empty()).count();
        for container in &self.containers {
            self.write_one(container, serving > 1, scenario, files);
        }
    }

    fn write_one(&self, container: &Container<'_>, names_webhooks: bool, scenario: &mut String, files: &mut Files) {
        let namespace = namespace_of(container.workload);
        let mounts = Mounts::of(
            self.manifests,
            (container.workload, container.spec),
            &container.name,
            !container.webhooks.is_empty(),
        );
        let (env, unknown) = self.environment(container);
        let paths = Paths {
            mounts: &mounts,
            env: &env,
        };
        let _ = writeln!(scenario, "  - name: {}", quoted(&container.name));
        self.write_command(container, &paths, scenario);
        let words = ["command", "args"].into_iter().flat_map(|it| words(container.spec, it));
        let settings: Vec<String> = words.chain(env.values().cloned()).collect();
        write_missing(&mounts, &settings, scenario);
        if mounts.are_templates {
            let directory = format!("files/{}", container.name);
            let _ = writeln!(scenario, "    files: [{}]", quoted(&directory));
        }
        if namespace != "default" {
            let _ = writeln!(scenario, "    namespace: {}", quoted(namespace));
        }
        let replicas = container.workload["spec"]["replicas"].as_u64().unwrap_or(1);
        if replicas > 1 {
            let _ = writeln!(
                scenario,
                "    # The manifests have {replicas} replicas. Replicas share a network, so their ports must differ:\n    \
                 # replicas: {replicas}"
            );
        }
        scenario
            .push_str("    # The kubeconfig is in ${KUBECONFIG} for programs that need one.\n    inCluster: true\n");
        if let Some(account) = self.account(container) {
            let _ = writeln!(scenario, "    user: {}", quoted(&account));
        }
        if !env.is_empty() || !unknown.is_empty() {
            scenario.push_str("    env:\n");
        }
        for (name, value) in &env {
            let _ = writeln!(scenario, "      {name}: {}", quoted(&paths.replaced(value)));
        }
        for name in unknown {
            let _ = writeln!(scenario, "      {MISSING}the value of {name}");
        }
        if let Some((_, port)) = container.webhooks.first() {
            let _ = writeln!(scenario, "    webhookPort: {port}");
            if names_webhooks {
                list(
                    scenario,
                    "    webhooks",
                    container.webhooks.iter().map(|(service, _)| service.clone()),
                );
            }
        }
        if let Some(url) = container.ready() {
            let _ = writeln!(scenario, "    ready: {{url: {}}}", quoted(&url));
        }
        write_stop(container, scenario);
        files.extend(mounts.files);
    }

    fn write_command(&self, container: &Container<'_>, paths: &Paths<'_>, scenario: &mut String) {
        let mut command = words(container.spec, "command");
        let image = text(&container.spec["image"]);
        let of_image = image.rsplit('/').next().unwrap_or_default();
        let of_image = of_image.split([':', '@']).next().unwrap_or_default();
        if command.is_empty() {
            command.push(if of_image.is_empty() {
                "controller".to_owned()
            } else {
                of_image.to_owned()
            });
        }
        let name = command[0].rsplit('/').next().unwrap_or_default().to_owned();
        match program(&name, self.containers.len() == 1, self.directory) {
            Some(path) => command[0] = path,
            None => {
                command[0] = format!("./{name}");
                let _ = writeln!(
                    scenario,
                    "    {MISSING}the local path of the program in the image {image} (replace ./{name})"
                );
            }
        }
        command.extend(words(container.spec, "args"));
        let command = command.iter().map(|it| paths.replaced(it));
        list(scenario, "    command", command);
    }

    /// Returns the user of the container's ServiceAccount, if the manifests bind a role to it.
    fn account(&self, container: &Container<'_>) -> Option<String> {
        let spec = &container.workload["spec"]["template"]["spec"];
        let name = spec["serviceAccountName"]
            .as_str()
            .or(spec["serviceAccount"].as_str())?;
        let namespace = namespace_of(container.workload);
        let bindings = self
            .manifests
            .others
            .iter()
            .filter(|it| text(&it["kind"]).ends_with("RoleBinding"));
        let mut subjects = bindings.filter_map(|it| it["subjects"].as_array()).flatten();
        let is_bound = subjects.any(|it| {
            let is_in_namespace = it["namespace"].as_str().unwrap_or("default") == namespace;
            it["kind"] == "ServiceAccount" && text(&it["name"]) == name && is_in_namespace
        });
        is_bound.then(|| format!("system:serviceaccount:{namespace}:{name}"))
    }

    /// Returns the environment variables of a container, and the names of variables without a known value.
    fn environment(&self, container: &Container<'_>) -> (BTreeMap<String, String>, Vec<String>) {
        let (mut env, mut unknown) = (BTreeMap::new(), Vec::new());
        let namespace = namespace_of(container.workload);
        let items = |field: &str| container.spec[field].as_array().into_iter().flatten();
        for source in items("envFrom") {
            let prefix = text(&source["prefix"]);
            for (field, kind) in [("configMapRef", "ConfigMap"), ("secretRef", "Secret")] {
                let Some(name) = source[field]["name"].as_str() else {
                    continue;
                };
                match self.manifests.find(kind, namespace, name) {
                    Some(object) => {
                        env.extend(data(object).into_iter().map(|(key, it)| (format!("{prefix}{key}"), it)))
                    }
                    None => unknown.push(format!("the variables of the {kind} {name}")),
                }
            }
        }
        for variable in items("env") {
            let name = text(&variable["name"]).to_owned();
            let value = match &variable["valueFrom"] {
                Value::Null => Some(text(&variable["value"]).to_owned()),
                source => self.referred(container, source),
            };
            match value {
                Some(value) => {
                    let value = expanded(&value, &env);
                    env.insert(name, value);
                }
                None => unknown.push(name),
            }
        }
        (env, unknown)
    }

    /// Returns the value of an environment variable that refers to a field or an object.
    fn referred(&self, container: &Container<'_>, source: &Value) -> Option<String> {
        let namespace = namespace_of(container.workload);
        if let Some(path) = source["fieldRef"]["fieldPath"].as_str() {
            let template = &container.workload["spec"]["template"];
            return match path {
                "metadata.namespace" => Some(namespace.to_owned()),
                "metadata.name" => Some("${NAME}".to_owned()),
                "spec.serviceAccountName" => template["spec"]["serviceAccountName"].as_str().map(str::to_owned),
                "status.podIP" | "status.hostIP" => Some("127.0.0.1".to_owned()),
                _ => {
                    let label = path
                        .strip_prefix("metadata.labels['")
                        .and_then(|it| it.strip_suffix("']"))?;
                    template["metadata"]["labels"][label].as_str().map(str::to_owned)
                }
            };
        }
        let kinds = [("configMapKeyRef", "ConfigMap"), ("secretKeyRef", "Secret")];
        kinds.into_iter().find_map(|(field, kind)| {
            let object = self.manifests.find(kind, namespace, source[field]["name"].as_str()?)?;
            data(object).remove(source[field]["key"].as_str()?)
        })
    }
}

impl Container<'_> {
    /// Returns the URL of the readiness probe, if it is an HTTP request.
    fn ready(&self) -> Option<String> {
        let probe = &self.spec["readinessProbe"]["httpGet"];
        let is_http = probe.is_object() && probe["scheme"].as_str().unwrap_or("HTTP") == "HTTP";
        let port = number(self.spec, &probe["port"]).filter(|_| is_http)?;
        Some(format!(
            "http://127.0.0.1:{port}{}",
            probe["path"].as_str().unwrap_or("/")
        ))
    }
}

/// Writes a comment for each mounted path that no setting of the program contains, or with unknown content.
fn write_missing(mounts: &Mounts, settings: &[String], scenario: &mut String) {
    for (place, file) in &mounts.places {
        let is_found = file.as_deref().is_some_and(|file| {
            let is_in_a_file = || mounts.files.iter().any(|it| it.1.contains(file));
            file == CERTIFICATES || settings.iter().any(|it| it.contains(place)) || is_in_a_file()
        });
        if !is_found {
            let file = file.as_deref().unwrap_or("a file or directory of this machine");
            let _ = writeln!(
                scenario,
                "    {MISSING}a setting with which the program reads {file} instead of {place}"
            );
        }
    }
}

/// Writes the signal and the time limit with which the process is stopped, if the manifests specify them.
fn write_stop(container: &Container<'_>, scenario: &mut String) {
    let signal = container.spec["lifecycle"]["stopSignal"].as_str();
    let signal = signal.and_then(StopSignal::of_name);
    let signal = signal.map(|it| format!("signal: {}", it.name()));
    let grace = container.workload["spec"]["template"]["spec"]["terminationGracePeriodSeconds"].as_u64();
    let grace = grace.map(|it| format!("grace: {}s", it.min(LONGEST_GRACE.as_secs())));
    let fields: Vec<String> = signal.into_iter().chain(grace).collect();
    if !fields.is_empty() {
        let _ = writeln!(scenario, "    stop: {{{}}}", fields.join(", "));
    }
}

/// Paths and variables that are replaced in the command and the environment of a container.
struct Paths<'a> {
    mounts: &'a Mounts,
    env: &'a BTreeMap<String, String>,
}

impl Paths<'_> {
    fn replaced(&self, word: &str) -> String {
        let mut word = expanded(word, self.env);
        for (place, file) in &self.mounts.places {
            if let (Some(file), true) = (file, word.contains(place)) {
                word = word.replace(place, file);
                break;
            }
        }
        word
    }
}

/// Replaces references to variables of the form `$(NAME)`, as the kubelet does. Unknown references are kept.
fn expanded(text: &str, env: &BTreeMap<String, String>) -> String {
    let mut expanded = text.to_owned();
    for (name, value) in env {
        expanded = expanded.replace(&format!("$({name})"), value);
    }
    expanded
}

/// Finds a program by its name in this directory and the usual directories of build results. If it is the only program
/// of the scenario, the only file in `bin` is the program as well. Returns the path relative to the directory of the
/// scenario.
fn program(name: &str, is_alone: bool, directory: &Path) -> Option<String> {
    let mut named = PROGRAMS.iter().map(|it| Path::new(it).join(name));
    let found = named.find(|it| it.is_file()).or_else(|| {
        let files = std::fs::read_dir("bin").ok().filter(|_| is_alone)?;
        let files = files.flatten().map(|it| it.path());
        let mut files = files.filter(|it| it.is_file());
        files.next().filter(|_| files.next().is_none())
    })?;
    let parts = directory.components();
    let is_below = parts
        .clone()
        .all(|it| matches!(it, Component::Normal(_) | Component::CurDir));
    let above = match is_below {
        true => parts
            .filter(|it| matches!(it, Component::Normal(_)))
            .map(|_| "../")
            .collect(),
        false => format!("{}/", std::env::current_dir().ok()?.display()),
    };
    Some(format!("{above}{}", found.display()))
}

/// Returns the strings of a list.
fn words(spec: &Value, field: &str) -> Vec<String> {
    let items = spec[field].as_array().into_iter().flatten();
    items.filter_map(|it| it.as_str().map(str::to_owned)).collect()
}

fn ports(spec: &Value) -> impl Iterator<Item = &Value> {
    spec["ports"].as_array().into_iter().flatten()
}

/// Resolves the number or the name of a port of a container.
fn number(spec: &Value, port: &Value) -> Option<u64> {
    let named = || ports(spec).find(|it| it["name"] == *port && port.is_string());
    port.as_u64().or_else(|| named()?["containerPort"].as_u64())
}

/// Returns the Services that webhook configurations refer to and that select the Pods of a workload, each with the
/// container port to which its first resolvable port forwards.
fn webhooks(manifests: &Manifests, workload: &Value, spec: &Value) -> Vec<(String, u64)> {
    let all = manifests.others.iter().chain(&manifests.definitions);
    let called: BTreeSet<String> = all.filter(|it| is_configuration(it)).flat_map(services).collect();
    let labels = &workload["spec"]["template"]["metadata"]["labels"];
    let mut found = Vec::new();
    for service in manifests.others.iter().filter(|it| it["kind"] == "Service") {
        let name = format!("{}/{}", namespace_of(service), text(&service["metadata"]["name"]));
        let selector = service["spec"]["selector"].as_object();
        let is_selected = selector.is_some_and(|it| it.iter().all(|(key, value)| labels[key] == *value));
        if !called.contains(&name) || !is_selected || namespace_of(service) != namespace_of(workload) {
            continue;
        }
        let targets = ports(&service["spec"]).filter_map(|it| {
            let target = if it["targetPort"].is_null() {
                &it["port"]
            } else {
                &it["targetPort"]
            };
            number(spec, target)
        });
        found.extend(targets.take(1).map(|port| (name.clone(), port)));
    }
    found
}
