//! The defaults of a pod spec, wherever it stands, and those of a Pod alone (rule T1).

use serde_json::Value;

use super::image::default_pull_policy;
use super::volume_defaults::default_volume;
use crate::registry::types::view::{
    JsonMap, default_nonzero, default_number, default_object, default_text, default_value, integer, is_set, items_mut,
    object, object_made, object_mut, text,
};

/// The lists of containers of a pod spec.
pub(crate) const CONTAINER_LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// Defaults of `template` in a workload's spec; the template itself appears where it is absent.
pub(crate) fn default_template(spec: &mut JsonMap) {
    default_object(spec, "template");
    default_template_if_set(spec);
}

/// Defaults of `template` where there is one.
pub(crate) fn default_template_if_set(spec: &mut JsonMap) {
    let Some(template) = object_mut(spec, "template") else {
        return;
    };
    default_object(template, "metadata");
    if let Some(pod_spec) = object_made(template, "spec") {
        default_pod_spec(pod_spec);
    }
}

/// Defaults every pod spec gets, that of a template too.
pub(crate) fn default_pod_spec(spec: &mut JsonMap) {
    default_text(spec, "dnsPolicy", "ClusterFirst");
    default_text(spec, "restartPolicy", "Always");
    default_object(spec, "securityContext");
    default_number(spec, "terminationGracePeriodSeconds", 30);
    default_text(spec, "schedulerName", "default-scheduler");
    mirror_service_account(spec);
    for volume in items_mut(spec, "volumes") {
        default_volume(volume);
    }
    for list in CONTAINER_LISTS {
        for container in items_mut(spec, list) {
            default_container(container);
        }
    }
}

/// `serviceAccount` is the old spelling of `serviceAccountName`; both are shown, the new one wins.
fn mirror_service_account(spec: &mut JsonMap) {
    let name = match text(spec, "serviceAccountName") {
        "" => text(spec, "serviceAccount"),
        name => name,
    };
    if name.is_empty() {
        return;
    }
    let name = name.to_owned();
    for key in ["serviceAccountName", "serviceAccount"] {
        if text(spec, key) != name {
            spec.insert(key.to_owned(), Value::String(name.clone()));
        }
    }
}

fn default_container(container: &mut JsonMap) {
    if text(container, "imagePullPolicy").is_empty() {
        let policy = default_pull_policy(text(container, "image"));
        default_text(container, "imagePullPolicy", policy);
    }
    default_object(container, "resources");
    default_text(container, "terminationMessagePath", "/dev/termination-log");
    default_text(container, "terminationMessagePolicy", "File");
    for port in items_mut(container, "ports") {
        default_text(port, "protocol", "TCP");
    }
    for env in items_mut(container, "env") {
        let Some(source) = object_mut(env, "valueFrom") else {
            continue;
        };
        default_references(source);
        if let Some(file) = object_mut(source, "fileKeyRef") {
            default_value(file, "optional", || Value::Bool(false));
        }
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = object_mut(container, probe) {
            default_probe(probe);
        }
    }
    if let Some(lifecycle) = object_mut(container, "lifecycle") {
        for hook in ["postStart", "preStop"] {
            if let Some(hook) = object_mut(lifecycle, hook) {
                default_http_get(hook);
            }
        }
    }
}

/// Defaults of `fieldRef` and `resourceFieldRef`, in env variables and in downward API volumes.
pub(super) fn default_references(source: &mut JsonMap) {
    if let Some(field) = object_mut(source, "fieldRef") {
        default_text(field, "apiVersion", "v1");
    }
    if let Some(resource) = object_mut(source, "resourceFieldRef") {
        default_value(resource, "divisor", || Value::String("0".to_owned()));
    }
}

fn default_probe(probe: &mut JsonMap) {
    default_nonzero(probe, "timeoutSeconds", 1);
    default_nonzero(probe, "periodSeconds", 10);
    default_nonzero(probe, "successThreshold", 1);
    default_nonzero(probe, "failureThreshold", 3);
    default_http_get(probe);
    if let Some(grpc) = object_mut(probe, "grpc") {
        default_value(grpc, "service", || Value::String(String::new()));
    }
}

fn default_http_get(handler: &mut JsonMap) {
    if let Some(get) = object_mut(handler, "httpGet") {
        default_text(get, "path", "/");
        default_text(get, "scheme", "HTTP");
    }
}

/// Sets the defaults of a Pod that a template does not get: requests from limits, service links, host ports, a positive
/// grace period.
pub(crate) fn default_pod_alone(spec: &mut JsonMap) {
    for list in ["initContainers", "containers"] {
        for container in items_mut(spec, list) {
            if let Some(resources) = object_mut(container, "resources") {
                requests_from_limits(resources);
            }
        }
    }
    super::pod_resources::default_pod_resources(spec);
    default_value(spec, "enableServiceLinks", || Value::Bool(true));
    if integer(spec, "terminationGracePeriodSeconds").is_some_and(|seconds| seconds < 0) {
        spec.insert("terminationGracePeriodSeconds".to_owned(), Value::from(1));
    }
    if spec.get("hostNetwork").and_then(Value::as_bool) != Some(true) {
        return;
    }
    for list in ["initContainers", "containers"] {
        for container in items_mut(spec, list) {
            for port in items_mut(container, "ports") {
                if let Some(number) = integer(port, "containerPort") {
                    default_nonzero(port, "hostPort", number);
                }
            }
        }
    }
}

fn requests_from_limits(resources: &mut JsonMap) {
    let Some(limits) = object(resources, "limits") else {
        return;
    };
    let requests = object(resources, "requests");
    let missing: Vec<(String, Value)> = limits
        .iter()
        .filter(|(name, _)| requests.is_none_or(|requests| !is_set(requests, name)))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    if !missing.is_empty()
        && let Some(requests) = object_made(resources, "requests")
    {
        requests.extend(missing);
    }
}
