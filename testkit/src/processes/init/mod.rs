//! `drydock explore --init`: writes a scenario for the manifests of a controller, and lists the missing parts.

mod container;
mod mounts;
mod rendered;
mod users;
mod yaml;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use fake_apiserver::load;
use serde_json::{Value, json};

use super::read::ScenarioError;
use container::Pods;
use rendered::Manifests;

/// Name of the scenario in the directory that is written.
const SCENARIO: &str = "scenario.yaml";

/// Mark of the comments in a scenario for parts that the user must fill in.
const MISSING: &str = "# missing: ";

/// Line of a scenario whose runs have their own networks.
const PRIVATE: &str = "network: private\n";

/// Files that a scenario refers to: paths relative to the scenario, and contents.
type Files = Vec<(String, String)>;

/// Writes a scenario and the files that it refers to into a directory. Returns a summary, with the missing parts.
///
/// # Errors
///
/// If the directory already contains a scenario; if the manifests cannot be read or rendered; if they do not contain a
/// workload that could be a controller; or if a file cannot be written.
pub(crate) fn init(paths: &[PathBuf], directory: &Path) -> Result<String, ScenarioError> {
    let scenario = directory.join(SCENARIO);
    if scenario.exists() {
        return Err(ScenarioError(format!(
            "{} exists: delete it, or choose another directory with --into",
            scenario.display()
        )));
    }
    let manifests = Manifests::read(paths)?;
    if manifests.workloads.is_empty() {
        let paths: Vec<String> = paths.iter().map(|it| it.display().to_string()).collect();
        return Err(ScenarioError(format!(
            "{} has no Deployment, StatefulSet or DaemonSet: pass the manifests that install the controller",
            paths.join(", ")
        )));
    }
    let (text, files) = written(&manifests, paths, directory);
    let mut written = vec![(SCENARIO.to_owned(), text.clone())];
    written.extend(files);
    for (name, content) in &written {
        let path = directory.join(name);
        let io = |err: std::io::Error| ScenarioError(format!("{}: {err}", path.display()));
        fs::create_dir_all(path.parent().unwrap_or(directory)).map_err(io)?;
        fs::write(&path, content).map_err(io)?;
    }
    Ok(summary(&text, &scenario, &manifests))
}

/// Returns the scenario, and the other files.
fn written(manifests: &Manifests, paths: &[PathBuf], directory: &Path) -> (String, Files) {
    let mut files = Files::new();
    let shown: Vec<String> = paths.iter().map(|it| it.display().to_string()).collect();
    let mut text = format!(
        "# Generated from {}. Complete the lines with `{}`.\n\
         # yaml-language-server: $schema=scenario.schema.json\n",
        shown.join(", "),
        MISSING.trim_start_matches("# ").trim_end()
    );
    let pods = Pods::new(manifests, directory);
    if pods.has_ports() {
        text.push_str(
            "# Each run has its own network, so that fixed ports are free. This needs root, or a user namespace:\n\
             # unshare --user --map-root-user drydock explore ...\n",
        );
        text.push_str(PRIVATE);
    }
    text.push_str("controllers:\n");
    pods.write(&mut text, &mut files);
    text.push_str("cluster:\n");
    match manifests.definitions.is_empty() {
        true => {
            let _ = writeln!(
                text,
                "  crds: [] {MISSING}the CustomResourceDefinitions of the controller, if it has any"
            );
        }
        false => {
            text.push_str("  crds: [crds.yaml]\n");
            files.push(("crds.yaml".to_owned(), load::to_text(&manifests.definitions)));
        }
    }
    let namespaces = manifests.missing_namespaces().into_iter();
    let namespaces: Vec<Value> = namespaces
        .map(|it| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": it}}))
        .collect();
    if !manifests.others.is_empty() || !namespaces.is_empty() {
        text.push_str("  manifests: [objects.yaml]\n");
        let objects = load::to_text(namespaces.iter().chain(&manifests.others));
        files.push(("objects.yaml".to_owned(), objects));
    }
    if pods.has_users() {
        text.push_str("  rbac: true\n");
    }
    text.push_str("steps:\n");
    users::write(manifests, &mut text, &mut files);
    (text, files)
}

/// Describes the scenario, and lists its missing parts with their lines.
fn summary(text: &str, scenario: &Path, manifests: &Manifests) -> String {
    let path = scenario.display();
    let count = |count: usize, noun: &str| match count {
        1 => format!("1 {noun}"),
        _ => format!("{count} {noun}s"),
    };
    let mut summary = format!(
        "{path}: {}, {}, {}\n",
        count(manifests.workloads.len(), "workload"),
        count(manifests.definitions.len(), "CustomResourceDefinition"),
        count(manifests.custom.len() + manifests.further.len(), "custom resource"),
    );
    for (at, line) in text.lines().enumerate() {
        if let Some((_, what)) = line.split_once(MISSING) {
            let _ = writeln!(summary, "{path}:{}: missing: {what}", at + 1);
        }
    }
    for (kind, count) in &manifests.left_out {
        let _ = writeln!(summary, "left out: {count} × {kind}");
    }
    let _ = writeln!(summary, "run it with: drydock explore {path}");
    if text.contains(PRIVATE) {
        let _ = writeln!(
            summary,
            "without root: unshare --user --map-root-user drydock explore {path}"
        );
    }
    summary
}
