//! Writes a scenario for the manifests in a directory, such as the output of `kustomize build` or `helm template`.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use fake_apiserver::load;
use serde_json::Value;

use super::read::ScenarioError;
use super::webhooks::{is_configuration, services};

/// Kinds that run Pods.
const WORKLOADS: [&str; 3] = ["Deployment", "StatefulSet", "DaemonSet"];

/// API groups of every cluster. Objects of other groups are treated as custom resources.
const BUILT_IN: [&str; 20] = [
    "",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "apps",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
];

/// Returns a scenario as YAML. Comments mark the parts that the user must fill in.
///
/// # Errors
///
/// If the directory cannot be read, or does not contain a workload that could be a controller.
pub(crate) fn init(directory: &Path) -> Result<String, ScenarioError> {
    let shown = directory.display();
    let manifests = load::read([directory]).map_err(|err| ScenarioError(err.to_string()))?;
    let kind = |object: &Value| object["kind"].as_str().unwrap_or_default().to_owned();
    let workloads: Vec<&Value> = manifests
        .iter()
        .map(|it| &it.object)
        .filter(|it| WORKLOADS.contains(&kind(it).as_str()))
        .collect();
    if workloads.is_empty() {
        return Err(ScenarioError(format!(
            "{shown} has no Deployment, StatefulSet or DaemonSet: render the manifests of the controller into it first"
        )));
    }
    let webhooks = webhook_ports(manifests.iter().map(|it| &it.object));
    let mut text = format!(
        "# Generated from {shown}. Complete the lines with `missing:`.\n\
         # yaml-language-server: $schema=scenario.schema.json\n\
         controllers:\n"
    );
    for workload in workloads {
        let containers = workload["spec"]["template"]["spec"]["containers"].as_array();
        for container in containers.into_iter().flatten() {
            text.push_str(&controller(workload, container, &webhooks));
        }
    }
    let file_of = |place: &'_ str| place.split(", ").next().unwrap_or_default().to_owned();
    let files = |is_wanted: &dyn Fn(&Value) -> bool| {
        let wanted = manifests.iter().filter(|it| is_wanted(&it.object));
        wanted.map(|it| file_of(&it.place)).collect::<BTreeSet<String>>()
    };
    text.push_str("cluster:\n");
    let crds = files(&|it| kind(it) == "CustomResourceDefinition");
    match crds.is_empty() {
        true => text.push_str("  crds: [] # missing: the CustomResourceDefinitions of the controller, if it has any\n"),
        false => list(&mut text, "  crds", crds.into_iter()),
    }
    let is_custom = |object: &Value| {
        let version = object["apiVersion"].as_str().unwrap_or_default();
        let group = version.split_once('/').map_or("", |(group, _)| group);
        !BUILT_IN.contains(&group)
    };
    let custom: Vec<&load::Manifest> = manifests.iter().filter(|it| is_custom(&it.object)).collect();
    text.push_str("steps:\n");
    if custom.is_empty() {
        text.push_str("  # missing: an object for the controller to work on, as a user would create it\n");
        text.push_str("  - apply: example.yaml\n");
    }
    for manifest in custom {
        let _ = writeln!(text, "  - apply: {}", quoted(&file_of(&manifest.place)));
    }
    text.push_str("  # missing: changes that users make later, for instance\n");
    text.push_str("  # - patch: {object: KIND/NAME, merge: {spec: {replicas: 3}}}\n");
    text.push_str("  # - delete: KIND/NAME\n");
    Ok(text)
}

/// Returns the target ports (numbers or names) of the Services that webhook configurations refer to.
fn webhook_ports<'a>(objects: impl Iterator<Item = &'a Value> + Clone) -> Vec<Value> {
    let configurations = objects.clone().filter(|it| is_configuration(it));
    let called: BTreeSet<String> = configurations.flat_map(services).collect();
    let is_called = |object: &&Value| {
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or("default");
        object["kind"] == "Service" && called.contains(&format!("{}/{}", text("namespace"), text("name")))
    };
    let ports = objects.filter(is_called).flat_map(|it| it["spec"]["ports"].as_array());
    let targets = ports.flatten().map(|it| match &it["targetPort"] {
        Value::Null => it["port"].clone(),
        target => target.clone(),
    });
    targets.collect()
}

/// Returns the YAML of a controller that runs this container. `webhooks` are the ports at which webhooks are called.
fn controller(workload: &Value, container: &Value, webhooks: &[Value]) -> String {
    let name = container["name"].as_str().unwrap_or("controller");
    let words = |field: &str| {
        let items = container[field].as_array().into_iter().flatten();
        items
            .filter_map(|it| it.as_str().map(str::to_owned))
            .collect::<Vec<_>>()
    };
    let image = container["image"].as_str().unwrap_or_default();
    let mut text = format!("  - name: {}\n", quoted(name));
    let _ = writeln!(
        text,
        "    # missing: the program of the image {image} on this machine, instead of its path in the image"
    );
    let mut command = words("command");
    if command.is_empty() {
        command.push("./controller".to_owned());
    }
    command.extend(words("args"));
    list(&mut text, "    command", command.into_iter());
    let namespace = workload["metadata"]["namespace"].as_str().unwrap_or("default");
    if namespace != "default" {
        let _ = writeln!(text, "    namespace: {}", quoted(namespace));
    }
    let replicas = workload["spec"]["replicas"].as_u64().unwrap_or(1);
    if replicas > 1 {
        let _ = writeln!(text, "    replicas: {replicas}");
    }
    let variables: Vec<&Value> = container["env"].as_array().into_iter().flatten().collect();
    if !variables.is_empty() {
        text.push_str("    env:\n");
    }
    for variable in variables {
        let name = variable["name"].as_str().unwrap_or_default();
        let field = variable["valueFrom"]["fieldRef"]["fieldPath"].as_str();
        match (variable["value"].as_str(), field) {
            (Some(value), _) => {
                let _ = writeln!(text, "      {name}: {}", quoted(value));
            }
            (None, Some("metadata.namespace")) => {
                let _ = writeln!(text, "      {name}: {}", quoted(namespace));
            }
            (None, Some("metadata.name")) => {
                let _ = writeln!(text, "      {name}: ${{NAME}}");
            }
            (None, _) => {
                let _ = writeln!(text, "      # missing: the value of {name}");
            }
        }
    }
    let ports = container["ports"].as_array().into_iter().flatten();
    for port in ports {
        let (number, name) = (&port["containerPort"], &port["name"]);
        let hint = match webhooks.iter().any(|it| it == number || it == name) {
            true => format!(
                "the program serves webhooks on {number}: pass ${{PORT_WEBHOOK}} instead, or set \
                 `webhookPort: {number}` and `network: private`"
            ),
            false => format!(
                "the program listens on {number}: pass a free port such as ${{PORT_{number}}} instead, or set \
                 `network: private`, because runs are concurrent"
            ),
        };
        let _ = writeln!(text, "    # {hint}");
    }
    if workload["spec"]["template"]["spec"]["serviceAccountName"].is_string() {
        text.push_str("    # set this if the program does not read a kubeconfig:\n    # inCluster: true\n");
    }
    text
}

/// Appends a YAML list of strings, one per line.
fn list(text: &mut String, field: &str, items: impl Iterator<Item = String>) {
    let indent = " ".repeat(field.len() - field.trim_start().len() + 2);
    let _ = writeln!(text, "{field}:");
    for item in items {
        let _ = writeln!(text, "{indent}- {}", quoted(&item));
    }
}

/// Formats a string as a YAML scalar, quoted if YAML would parse it as a different value.
fn quoted(text: &str) -> String {
    let is_plain = |it: char| it.is_ascii_alphanumeric() || matches!(it, '.' | '/' | '_' | '-' | '=');
    let is_word = text.starts_with(|it: char| it.is_ascii_alphabetic() || matches!(it, '.' | '/'));
    let is_value = ["true", "false", "null", "yes", "no", "on", "off"].contains(&text.to_lowercase().as_str());
    match is_word && !is_value && text.chars().all(is_plain) {
        true => text.to_owned(),
        false => Value::from(text).to_string(),
    }
}
