//! The initial Roles and bindings, including Roles of Kubernetes' components, from `bootstrap.txt`. That file is
//! generated from the bootstrap policy of Kubernetes; its first lines describe the format.

use super::GROUP;
use crate::api::json::{Map, Value, json};
use crate::api::rbac::PolicyRule;

const TABLE: &str = include_str!("bootstrap.txt");

/// Prefix of the labels of ClusterRoles to be aggregated into `admin`, `edit` or `view`.
const AGGREGATE_TO: &str = "rbac.authorization.k8s.io/aggregate-to-";

/// Returns all initial Roles and bindings, ready to be stored.
pub(crate) fn objects() -> Vec<Value> {
    let mut objects: Vec<Value> = Vec::new();
    for line in TABLE.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match words.as_slice() {
            ["role", namespace, name, more @ ..] => objects.push(role(namespace, name, more)),
            ["binding", namespace, name, kind, role, subjects] => {
                objects.push(binding(namespace, name, (kind, role), subjects));
            }
            [what @ ("rule" | "paths"), verbs, rest @ ..] => {
                let rules = objects.last_mut().and_then(|role| role["rules"].as_array_mut());
                rules.into_iter().for_each(|rules| rules.push(rule(what, verbs, rest)));
            }
            // Comments.
            _ => {}
        }
    }
    objects
}

/// Splits a list into words; `-` denotes an empty string.
fn words(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(|word| if word == "-" { "" } else { word })
}

fn rule(what: &str, verbs: &str, rest: &[&str]) -> Value {
    let rule = match (what, rest) {
        ("paths", [paths]) => PolicyRule::paths(words(verbs), words(paths)),
        (_, [groups, resources, names @ ..]) => PolicyRule {
            resource_names: names.iter().flat_map(|names| words(names)).map(str::to_owned).collect(),
            ..PolicyRule::resources(words(verbs), words(groups), words(resources))
        },
        _ => PolicyRule::default(),
    };
    rule.to_value().into()
}

fn role(namespace: &str, name: &str, more: &[&str]) -> Value {
    let (mut labels, mut gathered) = (Vec::new(), None);
    for pair in more.chunks(2) {
        match pair {
            ["aggregate-to", names] => labels.extend(words(names)),
            ["aggregates", name] => gathered = Some(*name),
            _ => {}
        }
    }
    let kind = if namespace == "-" { "ClusterRole" } else { "Role" };
    let mut role = json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": kind, "metadata": metadata(namespace, name, &labels), "rules": [],
    });
    if let Some(name) = gathered {
        role["aggregationRule"] = json!({
            "clusterRoleSelectors": [{"matchLabels": {format!("{AGGREGATE_TO}{name}"): "true"}}],
        });
    }
    role
}

fn binding(namespace: &str, name: &str, (kind, role): (&str, &str), subjects: &str) -> Value {
    let subject = |subject: &str| match subject.split_once(':') {
        Some(("ServiceAccount", account)) => {
            let (namespace, name) = account.split_once(':').unwrap_or_default();
            json!({"kind": "ServiceAccount", "name": name, "namespace": namespace})
        }
        Some((kind, name)) => json!({"apiGroup": GROUP, "kind": kind, "name": name}),
        None => Value::Null,
    };
    let of = if namespace == "-" {
        "ClusterRoleBinding"
    } else {
        "RoleBinding"
    };
    let mut binding = json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": of, "metadata": metadata(namespace, name, &[]),
        "roleRef": {"apiGroup": GROUP, "kind": kind, "name": role},
    });
    if subjects != "-" {
        binding["subjects"] = subjects.split(',').map(subject).collect();
    }
    binding
}

fn metadata(namespace: &str, name: &str, into: &[&str]) -> Value {
    let mut labels = Map::new();
    labels.insert("kubernetes.io/bootstrapping".into(), "rbac-defaults".into());
    for role in into {
        labels.insert(format!("{AGGREGATE_TO}{role}").into(), "true".into());
    }
    let mut metadata = json!({
        "name": name, "labels": labels, "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
    });
    if namespace != "-" {
        metadata["namespace"] = namespace.into();
    }
    metadata
}
