//! The defaults of all pod specs, and additional defaults of Pods (rule T1).

use super::volume_defaults::{default_pull_policy, default_references, default_volume};
use crate::api::json::{Map, SmolStr, Value};
use crate::registry::types::cursor::Cursor;
use crate::registry::types::edit::{
    default_nonzero, default_object, default_text, default_value, ensure_object, items_mut, object_mut,
    remove_annotations,
};

/// The lists of containers of a pod spec.
pub(crate) const CONTAINER_LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// Annotations that old clients set in addition to `spec.initContainers` and its statuses.
const OF_INIT_CONTAINERS: [&str; 4] = [
    "pod.beta.kubernetes.io/init-containers",
    "pod.alpha.kubernetes.io/init-containers",
    "pod.beta.kubernetes.io/init-container-statuses",
    "pod.alpha.kubernetes.io/init-container-statuses",
];

/// Drops legacy annotations of a Pod or template (`dropInitContainerAnnotations`).
pub(crate) fn drop_legacy_annotations(object: &mut Map) {
    remove_annotations(object, &OF_INIT_CONTAINERS);
}

/// Fills in the defaults of `template` in a workload's spec. Creates the template if it is absent.
pub(crate) fn default_template(spec: &mut Map) {
    default_object(spec, "template");
    default_template_if_set(spec);
}

/// Fills in the defaults of `template` if it is set.
pub(crate) fn default_template_if_set(spec: &mut Map) {
    let Some(template) = object_mut(spec, "template") else {
        return;
    };
    default_object(template, "metadata");
    drop_legacy_annotations(template);
    default_pod_spec(ensure_object(template, "spec"));
}

/// Fills in the defaults that apply to all pod specs, including the specs in templates.
pub(crate) fn default_pod_spec(spec: &mut Map) {
    default_text(spec, "dnsPolicy", "ClusterFirst");
    default_text(spec, "restartPolicy", "Always");
    default_object(spec, "securityContext");
    default_value(spec, "terminationGracePeriodSeconds", 30);
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

/// Sets `serviceAccountName` and the deprecated field `serviceAccount` to the same value. `serviceAccountName` takes
/// precedence.
fn mirror_service_account(spec: &mut Map) {
    let read = Cursor::root(spec);
    let names = ["serviceAccountName", "serviceAccount"].map(|field| read.text(field));
    let Some(name) = names.into_iter().find(|name| !name.is_empty()) else {
        return;
    };
    if names != [name, name] {
        let name = Value::from(name);
        spec.insert("serviceAccountName".into(), name.clone());
        spec.insert("serviceAccount".into(), name);
    }
}

fn default_container(container: &mut Map) {
    default_pull_policy(container, "imagePullPolicy", "image");
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
            default_value(file, "optional", false);
        }
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = object_mut(container, probe) {
            default_probe(probe);
        }
    }
    for hook in ["lifecycle.postStart", "lifecycle.preStop"] {
        if let Some(hook) = object_mut(container, hook) {
            default_http_get(hook);
        }
    }
}

fn default_probe(probe: &mut Map) {
    default_nonzero(probe, "timeoutSeconds", 1);
    default_nonzero(probe, "periodSeconds", 10);
    default_nonzero(probe, "successThreshold", 1);
    default_nonzero(probe, "failureThreshold", 3);
    default_http_get(probe);
    if let Some(grpc) = object_mut(probe, "grpc") {
        default_value(grpc, "service", "");
    }
}

fn default_http_get(handler: &mut Map) {
    if let Some(get) = object_mut(handler, "httpGet") {
        default_text(get, "path", "/");
        default_text(get, "scheme", "HTTP");
    }
}

/// Sets the defaults that only apply to Pods, not to templates: requests are copied from limits, service links are
/// enabled, host ports are filled in for pods in the host network, and a negative grace period is set to 1.
pub(crate) fn default_pod_alone(spec: &mut Map) {
    for list in ["initContainers", "containers"] {
        for container in items_mut(spec, list) {
            if let Some(resources) = object_mut(container, "resources") {
                requests_from_limits(resources);
            }
        }
    }
    super::pod_resources::default_pod_resources(spec);
    default_value(spec, "enableServiceLinks", true);
    let read = Cursor::root(spec);
    let in_host_network = read.flag("hostNetwork") == Some(true);
    if read
        .integer("terminationGracePeriodSeconds")
        .is_some_and(|seconds| seconds < 0)
    {
        spec.insert("terminationGracePeriodSeconds".into(), Value::from(1));
    }
    if !in_host_network {
        return;
    }
    for list in ["initContainers", "containers"] {
        for port in items_mut(spec, list).flat_map(|container| items_mut(container, "ports")) {
            if let Some(number) = Cursor::root(port).integer("containerPort") {
                default_nonzero(port, "hostPort", number);
            }
        }
    }
}

fn requests_from_limits(resources: &mut Map) {
    let read = Cursor::root(resources);
    let requests = read.at("requests");
    let missing: Vec<(SmolStr, Value)> = read
        .map("limits")
        .into_iter()
        .flatten()
        .filter(|(name, _)| !requests.entry(name).is_set(""))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    if !missing.is_empty() {
        ensure_object(resources, "requests").extend(missing);
    }
}
