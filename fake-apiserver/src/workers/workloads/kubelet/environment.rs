//! Determines the environment variables of a container, for `subPathExpr` of its mounts (`makeMounts` of the kubelet).

use std::collections::BTreeMap;

use crate::api::json::{Map, Value};
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;
use crate::workers::workloads::pods::{annotation, label};
use crate::workers::workloads::resource::Resource;
use crate::workers::workloads::sees::Sees;

/// Variables by their names; the value is `None` if it cannot be determined.
type Variables = BTreeMap<String, Option<String>>;

/// Returns the reason why the path of a mount within its volume is invalid; `None` if all paths are valid.
pub(super) fn sub_path_error(pod: &Object, container: &Map, sees: &Sees<'_>) -> Option<String> {
    let mounts = || Cursor::root(container).maps("volumeMounts").map(Cursor::root);
    if mounts().all(|mount| mount.is_empty("subPathExpr") && mount.is_empty("subPath")) {
        return None;
    }
    let variables = variables(pod, container, sees);
    mounts().find_map(|mount| {
        let path = match mount.text("subPathExpr") {
            "" => mount.text("subPath").to_owned(),
            expression => match expand(expression, &variables) {
                Ok(path) => path?,
                Err(missing) => return Some(format!("missing value for {missing}")),
            },
        };
        if path.starts_with('/') {
            return Some(format!("error SubPath `{path}` must not be an absolute path"));
        }
        let climbs = path.split('/').any(|it| it == "..");
        climbs.then(|| format!("unable to provision SubPath `{path}`: must not contain '..'"))
    })
}

/// Replaces `$(NAME)` with values, and `$$` with a dollar sign. Returns `None` if a value cannot be determined. Fails
/// with the names of the variables without a value.
fn expand(expression: &str, variables: &Variables) -> Result<Option<String>, String> {
    let (mut text, mut missing, mut is_known) = (String::new(), Vec::new(), true);
    let mut rest = expression;
    while let Some((before, after)) = rest.split_once('$') {
        text += before;
        rest = after;
        if let Some(after) = rest.strip_prefix('$') {
            (text, rest) = (text + "$", after);
            continue;
        }
        let Some((name, after)) = rest.strip_prefix('(').and_then(|it| it.split_once(')')) else {
            text.push('$');
            continue;
        };
        rest = after;
        match variables.get(name) {
            Some(None) => is_known = false,
            Some(Some(value)) if !value.is_empty() => text += value,
            Some(Some(_)) | None => missing.push(name),
        }
    }
    if missing.is_empty() {
        return Ok(is_known.then_some(text + rest));
    }
    missing.sort_unstable();
    missing.dedup();
    Err(missing.join(", "))
}

fn variables(pod: &Object, container: &Map, sees: &Sees<'_>) -> Variables {
    let mut found = Variables::new();
    for source in Cursor::root(container).maps("envFrom").map(Cursor::root) {
        let data = [("configMapRef", Resource::ConfigMap), ("secretRef", Resource::Secret)];
        let named = data.into_iter().find(|(field, _)| source.is_set(field));
        let Some((field, resource)) = named else { continue };
        let name = source.at(field).text("name").to_owned();
        let Some(object) = sees.cluster.find(resource, pod.namespace(), &name) else {
            continue;
        };
        for (key, value) in Cursor::root(object).map_or_empty("data") {
            found.insert(format!("{}{key}", source.text("prefix")), data_value(resource, value));
        }
    }
    for variable in Cursor::root(container).maps("env").map(Cursor::root) {
        let value = match variable.is_set("valueFrom") {
            false => expand(variable.text("value"), &found).unwrap_or(None),
            true => referred(pod, &variable, sees),
        };
        found.insert(variable.text("name").to_owned(), value);
    }
    found
}

/// Returns the value that a variable refers to: empty if the object or the key does not exist, and `None` if the value
/// cannot be determined.
fn referred(pod: &Object, variable: &Cursor<'_>, sees: &Sees<'_>) -> Option<String> {
    if variable.is_set("valueFrom.fieldRef") {
        return field(pod, variable.text("valueFrom.fieldRef.fieldPath"));
    }
    let maps = [
        ("configMapKeyRef", Resource::ConfigMap),
        ("secretKeyRef", Resource::Secret),
    ];
    let (name, resource) = maps
        .into_iter()
        .find(|(name, _)| variable.is_set(&format!("valueFrom.{name}")))?;
    let source = variable.at("valueFrom");
    let reference = source.at(name);
    let object = sees.cluster.find(resource, pod.namespace(), reference.text("name"));
    let value = object.and_then(|it| Cursor::root(it).map_or_empty("data").get(reference.text("key")));
    value.map_or(Some(String::new()), |it| data_value(resource, it))
}

/// Returns a value of a ConfigMap; `None` for a Secret, because its values are not decoded.
fn data_value(resource: Resource, value: &Value) -> Option<String> {
    (resource == Resource::ConfigMap).then(|| value.as_str().unwrap_or_default().to_owned())
}

/// Returns a field of the Pod; `None` if it is only set once the Pod runs.
fn field(pod: &Object, path: &str) -> Option<String> {
    let key = |prefix: &str| path.strip_prefix(prefix)?.strip_suffix("']");
    if let Some(key) = key("metadata.annotations['") {
        return Some(annotation(pod, key).unwrap_or_default().to_owned());
    }
    if let Some(key) = key("metadata.labels['") {
        return Some(label(pod, key).unwrap_or_default().to_owned());
    }
    let is_fixed = path.starts_with("metadata.") || path.starts_with("spec.");
    is_fixed.then(|| Cursor::root(pod).text(path).to_owned())
}
