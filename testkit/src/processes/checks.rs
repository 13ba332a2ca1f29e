//! Evaluates the checks of a scenario: CEL rules over stored objects, and commands.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fake_apiserver::ServeOptions;
use fake_apiserver::expressions::ObjectRule;
use futures::FutureExt;
use serde_json::Value;

use super::check::{Command, Rule, Variable, parsed, word};
use super::objects::{named, resource_of};
use super::scenario::Scenario;
use super::shell::Shell;
use crate::explore::parts::{self, Inquiry, MustHold};
use crate::test_cluster::TestCluster;

/// Maximum number of objects that a message lists.
const NAMED: usize = 8;

/// The checks of a scenario in the form that explorations evaluate.
#[derive(Default)]
pub(crate) struct Checks {
    pub(crate) all_the_time: Vec<parts::Check>,
    pub(crate) at_last: Vec<parts::Check>,
    pub(crate) inquiries: Vec<Inquiry>,
}

/// Reads the objects of a variable. Fails if the resource is not served, or if the read requires a conversion webhook.
fn value(variable: &Variable, cluster: &TestCluster) -> Result<Value, String> {
    let (source, namespace) = (&variable.source, variable.namespace.as_deref());
    let unreadable = || format!("{source} cannot be read without its conversion webhook");
    if !variable.is_list() {
        let named = named(cluster, source, namespace.unwrap_or("default"))?;
        let read = named.read(cluster).now_or_never().ok_or_else(unreadable)?;
        return Ok(read.unwrap_or_default());
    }
    let info = resource_of(cluster, source)?;
    let namespace = namespace.filter(|_| info.is_namespaced());
    let version = info.api_version();
    let list = cluster
        .server()
        .list(&version, &info.kind, namespace.unwrap_or_default());
    let list = list
        .now_or_never()
        .ok_or_else(unreadable)?
        .map_err(|err| err.to_string())?;
    let is_selected = |object: &Value| {
        let labels = &object["metadata"]["labels"];
        let selector = variable.selector.as_ref();
        selector.is_none_or(|it| it.matches(|label| labels[label].as_str()))
    };
    Ok(list.into_iter().filter(is_selected).collect())
}

/// Evaluates a rule. If the rule is false, the error lists the objects in its variables.
fn evaluate(expression: &str, rule: &ObjectRule, variables: &[Variable], cluster: &TestCluster) -> Result<(), String> {
    let mut values = Vec::new();
    for variable in variables {
        values.push((variable.name.as_str(), value(variable, cluster)?));
    }
    match rule.evaluate(values.clone()) {
        Ok(true) => Ok(()),
        Ok(false) => {
            let shown: Vec<String> = values
                .iter()
                .map(|(name, value)| format!("{name} = {}", names(value)))
                .collect();
            Err(format!("`{expression}` is false for {}", shown.join(", ")))
        }
        Err(err) => Err(format!("`{expression}`: {err}")),
    }
}

/// Formats the names of objects as a list.
fn names(value: &Value) -> String {
    let name = |object: &Value| {
        let metadata = &object["metadata"];
        let name = metadata["name"].as_str().unwrap_or("null");
        match metadata["namespace"].as_str() {
            Some(namespace) => format!("{namespace}/{name}"),
            None => name.to_owned(),
        }
    };
    let Some(list) = value.as_array() else {
        return name(value);
    };
    let more = match list.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    let shown: Vec<String> = list.iter().take(NAMED).map(name).collect();
    format!("[{}{more}]", shown.join(", "))
}

impl Scenario {
    /// Converts the checks to the form that explorations evaluate. Files for commands are written to `folder`.
    pub(crate) fn evaluated_checks(&self, folder: &Path) -> Checks {
        let mut checks = Checks::default();
        for check in self.checks.iter().map(|it| &it.value) {
            // The check was validated when the scenario was read.
            let Some((must, rule)) = check.rule() else { continue };
            // Names of oracles are static. One name per check is leaked.
            let oracle: &'static str = Box::leak(format!("{} {:?}", word(must), check.name).into_boxed_str());
            match rule {
                Rule::Command(Command { run }) => checks.inquiries.push(Inquiry {
                    name: check.name.clone(),
                    oracle,
                    must_hold: must,
                    look: command(run, &self.directory, folder, self.resolver_in(folder)),
                }),
                Rule::Cel(expression) => {
                    let Ok(variables) = check.variables() else { continue };
                    let Ok(rule) = parsed(expression, &variables) else {
                        continue;
                    };
                    let expression = expression.clone();
                    let look = Arc::new(move |cluster: &TestCluster| evaluate(&expression, &rule, &variables, cluster));
                    let made = parts::Check {
                        name: check.name.clone(),
                        oracle: Some(oracle),
                        must_always: must != MustHold::Sometimes,
                        look,
                    };
                    match must {
                        MustHold::Eventually => checks.at_last.push(made),
                        MustHold::Always | MustHold::Sometimes => checks.all_the_time.push(made),
                    }
                }
            }
        }
        checks
    }
}

/// Returns a check that runs a command. A separate address of the server is opened for the command.
fn command(line: &str, directory: &Path, folder: &Path, resolver: Option<PathBuf>) -> Box<parts::Ask> {
    let (line, directory, folder) = (line.to_owned(), directory.to_owned(), folder.to_owned());
    Box::new(move |cluster| {
        let (line, directory, folder) = (line.clone(), directory.clone(), folder.clone());
        let resolver = resolver.clone();
        Box::pin(async move {
            let kubeconfig = next_file(&folder);
            let served = async {
                let loopback = std::net::SocketAddr::new(std::net::Ipv4Addr::LOCALHOST.into(), 0);
                let serving = cluster.server().serve_with(loopback, &ServeOptions::http()).await?;
                std::fs::write(&kubeconfig, serving.kubeconfig())?;
                std::io::Result::Ok(serving)
            };
            let _serving = served.await.map_err(|err| format!("`{line}`: {err}"))?;
            let shell = Shell {
                directory: &directory,
                kubeconfig: Some(kubeconfig.as_path()),
                resolver: resolver.as_deref(),
            };
            let ended = shell.run(&line, None).await;
            let _ = std::fs::remove_file(&kubeconfig);
            ended.map(drop)
        })
    })
}

fn next_file(folder: &Path) -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    folder.join(format!("check-{}.kubeconfig", NEXT.fetch_add(1, Ordering::Relaxed)))
}
