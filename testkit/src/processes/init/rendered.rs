//! `Manifests`: the objects of a kustomize directory, a Helm chart, or other files, by their role in a scenario.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use fake_apiserver::load;
use serde_json::Value;

use crate::processes::read::ScenarioError;

/// Kinds that run Pods all the time.
const WORKLOADS: [&str; 3] = ["Deployment", "StatefulSet", "DaemonSet"];

/// Kinds of objects that are left out: Pods that do some work at the installation, and addresses of further servers,
/// which nobody serves in a run.
const LEFT_OUT: [&str; 4] = ["Job", "CronJob", "Pod", "APIService"];

/// API groups of every cluster, apart from groups that end in `.k8s.io`.
const BUILT_IN: [&str; 5] = ["", "apps", "autoscaling", "batch", "policy"];

/// API groups in `k8s.io` that every cluster serves. Objects of other groups are custom resources.
const BUILT_IN_K8S: [&str; 15] = [
    "admissionregistration",
    "apiextensions",
    "apiregistration",
    "authentication",
    "authorization",
    "certificates",
    "coordination",
    "discovery",
    "events",
    "flowcontrol.apiserver",
    "networking",
    "node",
    "rbac.authorization",
    "scheduling",
    "storage",
];

/// Files of a kustomize directory, one of which it must contain.
const KUSTOMIZATIONS: [&str; 3] = ["kustomization.yaml", "kustomization.yml", "Kustomization"];

/// Objects by their role in a scenario, each in the order of the manifests.
#[derive(Debug, Default)]
pub(super) struct Manifests {
    pub(super) workloads: Vec<Value>,
    pub(super) definitions: Vec<Value>,
    /// The first object of each kind that the definitions define.
    pub(super) custom: Vec<Value>,
    /// Further objects of these kinds.
    pub(super) further: Vec<Value>,
    /// Objects that exist before the controllers start.
    pub(super) others: Vec<Value>,
    /// Kinds of objects that are not part of the scenario, and the number of objects.
    pub(super) left_out: BTreeMap<String, usize>,
}

impl Manifests {
    /// Reads files and directories. A kustomize directory and a Helm chart are rendered by their tools. The workloads
    /// of the first path that has any are the controllers; further paths contain samples.
    pub(super) fn read(paths: &[PathBuf]) -> Result<Self, ScenarioError> {
        let mut manifests = Self::default();
        let mut objects: Vec<Vec<Value>> = Vec::new();
        for path in paths {
            let read = match rendered(path)? {
                Some(text) => load::from_text(&text),
                None => load::read([path]),
            };
            let read = read.map_err(|err| ScenarioError(err.to_string()))?;
            let all = read.into_iter().map(|it| it.object);
            let is_definition = |it: &Value| text(&it["kind"]) == "CustomResourceDefinition";
            let (definitions, others): (Vec<Value>, Vec<Value>) = all.partition(is_definition);
            manifests.definitions.extend(definitions);
            objects.push(others);
        }
        for objects in objects {
            let have_controllers = manifests.workloads.is_empty();
            manifests.sort(objects, have_controllers);
        }
        Ok(manifests)
    }

    /// Adds objects by their roles. If `have_controllers` is not set, workloads are left out.
    fn sort(&mut self, objects: Vec<Value>, have_controllers: bool) {
        for object in objects {
            let kind = text(&object["kind"]).to_owned();
            let has_containers = object["spec"]["template"]["spec"]["containers"].is_array();
            if WORKLOADS.contains(&kind.as_str()) && has_containers {
                match have_controllers {
                    true => self.workloads.push(object),
                    false => *self.left_out.entry(kind).or_default() += 1,
                }
            } else if self.definition(&object).is_some() {
                let is_of_kind = |it: &Value| it["kind"] == object["kind"] && group(it) == group(&object);
                match self.custom.iter().any(is_of_kind) {
                    true => self.further.push(object),
                    false => self.custom.push(object),
                }
            } else if !is_built_in(group(&object)) || LEFT_OUT.contains(&kind.as_str()) {
                *self.left_out.entry(described(&object)).or_default() += 1;
            } else {
                self.others.push(object);
            }
        }
    }

    /// Returns the definition of a custom resource.
    pub(super) fn definition(&self, object: &Value) -> Option<&Value> {
        let mut definitions = self.definitions.iter();
        definitions.find(|it| {
            let spec = &it["spec"];
            text(&spec["group"]) == group(object) && spec["names"]["kind"] == object["kind"]
        })
    }

    /// Finds an object of a core kind, such as a ConfigMap.
    pub(super) fn find(&self, kind: &str, namespace: &str, name: &str) -> Option<&Value> {
        let mut others = self.others.iter();
        others.find(|it| {
            text(&it["kind"]) == kind && text(&it["metadata"]["name"]) == name && namespace_of(it) == namespace
        })
    }

    /// Returns the namespaces that objects are in but that are not among the objects.
    pub(super) fn missing_namespaces(&self) -> BTreeSet<String> {
        let all = || {
            [&self.workloads, &self.custom, &self.further, &self.others]
                .into_iter()
                .flatten()
        };
        let used = all().filter_map(|it| it["metadata"]["namespace"].as_str());
        let is_made = |name: &str| {
            let mut others = self.others.iter();
            let is_default = ["default", "kube-system", "kube-public", "kube-node-lease"].contains(&name);
            is_default || others.any(|it| it["kind"] == "Namespace" && text(&it["metadata"]["name"]) == name)
        };
        used.filter(|it| !is_made(it)).map(str::to_owned).collect()
    }
}

/// Renders a kustomize directory or a Helm chart. Returns `None` for other directories and for files.
fn rendered(path: &Path) -> Result<Option<String>, ScenarioError> {
    let shown = path.display().to_string();
    let name = path.canonicalize().ok();
    let name = name.as_deref().and_then(Path::file_name).and_then(|it| it.to_str());
    let is_kustomize = KUSTOMIZATIONS.iter().any(|it| path.join(it).is_file());
    let commands: &[&[&str]] = match (is_kustomize, path.join("Chart.yaml").is_file()) {
        (true, _) => &[&["kubectl", "kustomize", &shown], &["kustomize", "build", &shown]],
        (false, true) => &[&["helm", "template", "--include-crds", name.unwrap_or("chart"), &shown]],
        (false, false) => return Ok(None),
    };
    for command in commands {
        let line = command.join(" ");
        match Command::new(command[0]).args(&command[1..]).output() {
            Ok(output) if output.status.success() => {
                return Ok(Some(String::from_utf8_lossy(&output.stdout).into_owned()));
            }
            Ok(output) => {
                let error = String::from_utf8_lossy(&output.stderr);
                return Err(ScenarioError(format!("`{line}` failed: {}", error.trim_end())));
            }
            Err(err) if err.kind() == ErrorKind::NotFound => {}
            Err(err) => return Err(ScenarioError(format!("`{line}` cannot be run: {err}"))),
        }
    }
    let lines: Vec<String> = commands.iter().map(|it| format!("`{} > FILE`", it.join(" "))).collect();
    Err(ScenarioError(format!(
        "{shown} must be rendered, but the tool for this is not installed: run {} on a machine that has it, and pass \
         the resulting file",
        lines.join(" or ")
    )))
}

fn group(object: &Value) -> &str {
    let version = text(&object["apiVersion"]);
    version.split_once('/').map_or("", |(group, _)| group)
}

fn is_built_in(group: &str) -> bool {
    let is_k8s = group
        .strip_suffix(".k8s.io")
        .is_some_and(|it| BUILT_IN_K8S.contains(&it));
    is_k8s || BUILT_IN.contains(&group)
}

/// Returns the kind of an object, with its group if it is not a built-in one.
fn described(object: &Value) -> String {
    let kind = text(&object["kind"]);
    match is_built_in(group(object)) {
        true => kind.to_owned(),
        false => format!("{kind} of {}", group(object)),
    }
}

/// Returns a string, or an empty one if the value is not a string.
pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Returns the namespace of an object. Without one, the object is created in `default`.
pub(super) fn namespace_of(object: &Value) -> &str {
    object["metadata"]["namespace"].as_str().unwrap_or("default")
}

/// Returns the strings of a ConfigMap or a Secret. Values that are not UTF-8 are skipped.
pub(super) fn data(object: &Value) -> BTreeMap<String, String> {
    let decoded = |it: &Value| match object["kind"] == "Secret" {
        true => String::from_utf8(BASE64_STANDARD.decode(text(it)).ok()?).ok(),
        false => it.as_str().map(str::to_owned),
    };
    let mut data = BTreeMap::new();
    for (key, value) in object["data"].as_object().into_iter().flatten() {
        data.extend(decoded(value).map(|it| (key.clone(), it)));
    }
    for (key, value) in object["stringData"].as_object().into_iter().flatten() {
        data.insert(key.clone(), text(value).to_owned());
    }
    data
}
