//! Reads scenarios, and rejects values that have the right type but cannot be used in a run.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use fake_apiserver::{KubernetesVersion, PodScript, PodSelector, ScriptOrder, Worker};

use super::fill::{FILES, Places, texts, wrong_file};
use super::network::Network;
use super::scenario::{Controller, Scenario};
use super::step::Step;
use super::stop::LONGEST_GRACE;
use super::webhooks::CERTIFICATES;
use crate::explore::{Faults, Oracle};

/// Hint in the error about a path that is not a file.
const INIT: &str = "; `drydock explore --init PATH...` writes a scenario for the manifests that install a controller";

/// Error for an unusable scenario. Its message contains the file, and the line or the field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScenarioError(pub(crate) String);

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ScenarioError {}

impl Scenario {
    /// Reads a scenario from a file, and checks that the files that it refers to exist.
    ///
    /// # Errors
    ///
    /// If the file cannot be read; if a field is unknown or missing or has the wrong type; or if a value is unusable.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, ScenarioError> {
        let path = path.as_ref();
        let file = path.display().to_string();
        let text = fs::read_to_string(path).map_err(|err| {
            let hint = match err.kind() {
                ErrorKind::NotFound | ErrorKind::IsADirectory => INIT,
                _ => "",
            };
            ScenarioError(format!("{file}: {err}{hint}"))
        })?;
        let directory = path.parent().filter(|it| !it.as_os_str().is_empty());
        let directory = directory.unwrap_or(Path::new("."));
        let directory = directory
            .canonicalize()
            .map_err(|err| ScenarioError(format!("{file}: {err}")))?;
        let mut scenario: Self =
            serde_saphyr::from_str(&text).map_err(|err| ScenarioError(format!("{file}: {err}")))?;
        (scenario.directory, scenario.file) = (directory, file);
        for controller in &mut scenario.controllers {
            let paths = controller.files.iter().map(|it| scenario.directory.join(it));
            let read: Vec<String> = paths.flat_map(|it| texts(&it)).collect();
            controller.texts = read;
        }
        match scenario.wrong() {
            Some(wrong) => Err(ScenarioError(format!("{}: {wrong}", scenario.file))),
            None => Ok(scenario),
        }
    }

    /// Returns the JSON Schema of scenarios, for editors.
    #[must_use]
    pub fn schema() -> serde_json::Value {
        schemars::schema_for!(Self).to_value()
    }

    /// Returns an error for the first value that cannot be used.
    fn wrong(&self) -> Option<String> {
        if self.controllers.is_empty() {
            return Some("controllers: at least one is required".to_owned());
        }
        let mut names = BTreeSet::new();
        for (at, controller) in self.controllers.iter().enumerate() {
            let wrong = match names.insert(&controller.name) {
                false => Some(format!("name: {:?} is used twice", controller.name)),
                true => self.wrong_controller(controller),
            };
            if let Some(wrong) = wrong {
                return Some(format!("controllers[{at}].{wrong}"));
            }
        }
        let wrong = self
            .wrong_webhooks()
            .or_else(|| self.wrong_cluster().map(|it| format!("cluster.{it}")));
        wrong
            .or_else(|| {
                self.wrong_names().or_else(|| {
                    let mut steps = self.steps.iter().enumerate();
                    steps.find_map(|(at, step)| {
                        let wrong = self.wrong_step(&step.value)?;
                        Some(format!("line {}: steps[{at}]: {wrong}", step.referenced.line()))
                    })
                })
            })
            .or_else(|| {
                let mut checks = self.checks.iter().enumerate();
                checks.find_map(|(at, check)| {
                    let wrong = self.wrong_check(at)?;
                    Some(format!("line {}: checks[{at}]: {wrong}", check.referenced.line()))
                })
            })
    }

    fn wrong_controller(&self, controller: &Controller) -> Option<String> {
        if controller.name.is_empty() || controller.name.contains(char::is_whitespace) {
            return Some("name: a name without spaces is required".to_owned());
        }
        if controller.command.is_empty() {
            return Some("command: the program is missing".to_owned());
        }
        if controller.replicas == 0 {
            return Some("replicas: at least one is required".to_owned());
        }
        if let Some(ready) = &controller.ready {
            match (&ready.url, &ready.log) {
                (Some(url), None) if !url.starts_with("http://") => {
                    return Some("ready.url: only http:// URLs can be checked".to_owned());
                }
                (Some(_), None) | (None, Some(_)) => {}
                (Some(_), Some(_)) | (None, None) => return Some("ready: either url or log is required".to_owned()),
            }
        }
        if let Some(wrong) = self.wrong_files(controller) {
            return Some(format!("files: {wrong}"));
        }
        if let Some(wrong) = Self::wrong_places(controller) {
            return Some(wrong);
        }
        if controller.stop.grace.0 > LONGEST_GRACE {
            return Some(format!("stop.grace: the longest time is {LONGEST_GRACE:?}"));
        }
        if controller.webhook_port.is_some() && self.network != Network::Private {
            return Some("webhookPort: concurrent runs share the port without `network: private`".to_owned());
        }
        if controller.user.is_some() && !self.cluster.rbac {
            return Some("user: the field only has an effect with cluster.rbac".to_owned());
        }
        if controller.in_cluster && controller.insecure {
            return Some("insecure: an in-cluster configuration needs HTTPS".to_owned());
        }
        if controller.in_cluster && !cfg!(target_os = "linux") {
            return Some(
                "inCluster: mounting its files requires Linux; remove the field if the program reads KUBECONFIG"
                    .to_owned(),
            );
        }
        let cwd = controller.cwd.as_ref().map(|it| self.path(it));
        cwd.filter(|it| !it.is_dir())
            .map(|it| format!("cwd: {} is not a directory", it.display()))
    }

    /// Returns an error for the first unknown placeholder of a controller.
    fn wrong_places(controller: &Controller) -> Option<String> {
        let mut places = Places::of_process(<[String; 6]>::default());
        places.values.insert(CERTIFICATES.to_owned(), String::new());
        if !controller.files.is_empty() {
            places.values.insert(FILES.to_owned(), String::new());
        }
        let command = controller.command.iter().map(|it| ("command".to_owned(), it));
        let env = controller.env.iter().map(|(name, it)| (format!("env.{name}"), it));
        let url = controller.ready.iter().filter_map(|it| it.url.as_ref());
        let url = url.map(|it| ("ready.url".to_owned(), it));
        let mut texts = command.chain(env).chain(url);
        texts.find_map(|(field, text)| places.check(text).err().map(|err| format!("{field}: {err}")))
    }

    fn wrong_files(&self, controller: &Controller) -> Option<String> {
        let mut names = BTreeSet::new();
        controller.files.iter().find_map(|file| {
            let shown = file.display();
            match file.file_name() {
                None => Some(format!("{shown} has no name")),
                Some(_) if !self.path(file).exists() => Some(format!("{shown} does not exist")),
                Some(name) if !names.insert(name) => Some(format!("the name of {shown} is used twice")),
                Some(_) => wrong_file(&self.path(file)),
            }
        })
    }

    fn wrong_cluster(&self) -> Option<String> {
        let cluster = &self.cluster;
        for (field, paths) in [("crds", &cluster.crds), ("manifests", &cluster.manifests)] {
            if let Some(missing) = paths.iter().map(|it| self.path(it)).find(|it| !it.exists()) {
                return Some(format!("{field}: {} does not exist", missing.display()));
            }
        }
        if let Some(version) = &cluster.version
            && let Err(err) = version.parse::<KubernetesVersion>()
        {
            return Some(format!("version: {err}"));
        }
        if let Some(wrong) = self.pod_scripts().err().or_else(|| self.wrong_stubs()) {
            return Some(wrong);
        }
        let workers = cluster.workers.as_ref().filter(|it| !it.is_empty());
        let workers = match workers.map(|it| Worker::parse_list(&it.join(","))) {
            Some(Ok(workers)) => workers,
            Some(Err(unknown)) => return Some(format!("workers: {unknown}")),
            None if cluster.workers.is_some() => Vec::new(),
            None => Worker::ALL.to_vec(),
        };
        let fields = [("pods", cluster.pods.is_empty()), ("stubs", cluster.stubs.is_empty())];
        let given = fields.into_iter().find(|(_, is_empty)| !is_empty);
        let vain = given.filter(|_| !workers.contains(&Worker::Kubelet));
        vain.map(|(field, _)| format!("{field}: Pods only run with the worker kubelet"))
    }

    fn wrong_stubs(&self) -> Option<String> {
        let stubs = &self.cluster.stubs;
        if !stubs.is_empty() && self.network != Network::Private {
            return Some("stubs: controllers can only reach stubs with `network: private`".to_owned());
        }
        let mut stubs = stubs.iter().enumerate();
        stubs.find_map(|(at, it)| it.wrong().map(|wrong| format!("stubs[{at}]: {wrong}")))
    }

    fn wrong_names(&self) -> Option<String> {
        if let Some(unknown) = self.faults.iter().find(|it| Faults::of_name(it).is_none()) {
            return Some(format!(
                "faults: unknown kind {unknown:?}; the known kinds are {}",
                Faults::names().join(", ")
            ));
        }
        let unknown = self.without.iter().find(|it| Oracle::of_name(it).is_none())?;
        Some(format!(
            "without: unknown oracle {unknown:?}; the known oracles are {}",
            Oracle::names().join(", ")
        ))
    }

    fn wrong_step(&self, step: &Step) -> Option<String> {
        for path in step.apply.iter().flat_map(|it| it.all()) {
            if !self.path(path).exists() {
                return Some(format!("apply: {path} does not exist"));
            }
        }
        if step.user.is_some() && !self.cluster.rbac {
            return Some("as: the field only has an effect with cluster.rbac".to_owned());
        }
        step.wrong()
    }

    fn wrong_check(&self, at: usize) -> Option<String> {
        let check = &self.checks[at].value;
        let is_again = self.checks[..at].iter().any(|it| it.value.name == check.name);
        match is_again {
            true => Some(format!("name: {:?} is used twice", check.name)),
            false => check.wrong(),
        }
    }

    /// Returns the scripts of simulated Pods. The error identifies the invalid script.
    pub(crate) fn pod_scripts(&self) -> Result<Vec<(PodSelector, PodScript)>, String> {
        let scripts = self.cluster.pods.iter().enumerate().map(|(at, script)| {
            let order = serde_json::from_value::<ScriptOrder>(script.clone()).map_err(|err| err.to_string());
            let read = order.and_then(|it| it.read());
            read.map_err(|err| format!("pods[{at}]: {err}"))
        });
        scripts.collect()
    }
}
