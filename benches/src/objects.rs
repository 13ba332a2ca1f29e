//! The objects of the benchmarks as JSON: a ConfigMap of 200 bytes, and a Pod as created by a Deployment, of 5 KB when it
//! runs.

use serde_json::{Map, Value, json};

/// Number of CEL rules in the CustomResourceDefinition.
const RULES: usize = 10;
/// Number of fields in the schema of the CustomResourceDefinition. With four lines per field, the schema has about 300
/// lines of YAML.
const FIELDS: usize = 70;

/// Returns a ConfigMap of about 200 bytes.
pub fn config_map(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": "web"}},
        "data": {"key": "value", "config": "a line of configuration that makes up the size of the object"},
    })
}

/// Returns a Pod of a Deployment, as a client sends it: 2.9 KB of JSON.
pub fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "default", "generateName": "web-6d4b75cb6d-",
            "labels": {
                "app": "web", "app.kubernetes.io/name": "web", "app.kubernetes.io/instance": "web-production",
                "app.kubernetes.io/version": "1.25.3", "app.kubernetes.io/component": "frontend",
                "app.kubernetes.io/part-of": "shop", "app.kubernetes.io/managed-by": "helm",
                "pod-template-hash": "6d4b75cb6d",
            },
            "annotations": {
                "checksum/config": "0c5ab8d3a4a8a5c8e1e8a5f3d1b2c3d4e5f60718293a4b5c6d7e8f9012345678",
                "prometheus.io/scrape": "true", "prometheus.io/port": "9113", "prometheus.io/path": "/metrics",
                "kubectl.kubernetes.io/restartedAt": "2026-01-01T00:00:00Z",
            },
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-6d4b75cb6d",
                "uid": "5f0c7d2e-8f4b-4a65-9a3e-1d7b1e3c9a55", "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": pod_spec(),
    })
}

fn pod_spec() -> Value {
    json!({
        "volumes": [{"name": "kube-api-access-x7k2p", "projected": {"defaultMode": 420, "sources": [
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [
                {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}},
            ]}},
        ]}}],
        "containers": [{
            "name": "nginx", "image": "registry.example.com/shop/web:1.25.3", "imagePullPolicy": "IfNotPresent",
            "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
            "env": [
                {"name": "POD_NAME", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}},
                {"name": "LOG_LEVEL", "value": "info"}, {"name": "UPSTREAM", "value": "http://api.shop.svc:8080"},
            ],
            "resources": {"limits": {"cpu": "500m", "memory": "256Mi"}, "requests": {"cpu": "100m", "memory": "128Mi"}},
            "volumeMounts": [{
                "name": "kube-api-access-x7k2p", "readOnly": true,
                "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
            }],
            "livenessProbe": {
                "httpGet": {"path": "/healthz", "port": "http", "scheme": "HTTP"}, "timeoutSeconds": 1,
                "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3,
            },
            "readinessProbe": {
                "httpGet": {"path": "/ready", "port": "http", "scheme": "HTTP"}, "timeoutSeconds": 1,
                "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3,
            },
            "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
            "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
        }],
        "restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst",
        "serviceAccountName": "web", "serviceAccount": "web", "nodeName": "node-17", "schedulerName": "default-scheduler",
        "securityContext": {"runAsNonRoot": true, "runAsUser": 101, "fsGroup": 101},
        "tolerations": [
            {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
            {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute",
                "tolerationSeconds": 300},
        ],
        "priority": 0, "enableServiceLinks": true, "preemptionPolicy": "PreemptLowerPriority",
    })
}

/// Returns the same Pod when it runs, as a server stores it: 5 KB of JSON with status and managed fields.
pub fn running_pod(name: &str) -> Value {
    let mut pod = pod(name);
    pod["status"] = json!({
        "phase": "Running", "hostIP": "10.0.0.17", "podIP": "10.244.3.21", "qosClass": "Burstable",
        "podIPs": [{"ip": "10.244.3.21"}], "startTime": "2026-01-01T00:00:00Z",
        "conditions": [
            {"type": "Initialized", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
            {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:09Z"},
            {"type": "ContainersReady", "status": "True", "lastTransitionTime": "2026-01-01T00:00:09Z"},
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
        ],
        "containerStatuses": [{
            "name": "nginx", "ready": true, "started": true, "restartCount": 0,
            "image": "registry.example.com/shop/web:1.25.3",
            "imageID": "registry.example.com/shop/web@sha256:0c5ab8d3a4a8a5c8e1e8a5f3d1b2c3d4e5f60718293a4b5c6d7e8f9012345678",
            "containerID": "containerd://9a3e1d7b1e3c9a555f0c7d2e8f4b4a659a3e1d7b1e3c9a555f0c7d2e8f4b4a65",
            "state": {"running": {"startedAt": "2026-01-01T00:00:05Z"}},
        }],
    });
    let owned = |names: &[&str]| names.iter().map(|it| ((*it).to_owned(), json!({}))).collect::<Value>();
    let spec = owned(&[
        "f:dnsPolicy",
        "f:enableServiceLinks",
        "f:restartPolicy",
        "f:schedulerName",
        "f:securityContext",
        "f:serviceAccount",
        "f:serviceAccountName",
        "f:terminationGracePeriodSeconds",
        "f:volumes",
    ]);
    let labels = owned(&[
        ".",
        "f:app",
        "f:app.kubernetes.io/name",
        "f:app.kubernetes.io/instance",
        "f:app.kubernetes.io/version",
        "f:app.kubernetes.io/component",
        "f:pod-template-hash",
    ]);
    let status = owned(&[
        "f:conditions",
        "f:containerStatuses",
        "f:hostIP",
        "f:phase",
        "f:podIP",
        "f:startTime",
    ]);
    pod["metadata"]["managedFields"] = json!([
        {"manager": "kube-controller-manager", "operation": "Update", "apiVersion": "v1",
            "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:metadata": {"f:labels": labels}, "f:spec": spec}},
        {"manager": "kubelet", "operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:09Z",
            "fieldsType": "FieldsV1", "fieldsV1": {"f:status": status}, "subresource": "status"},
    ]);
    pod
}

/// Returns a CustomResourceDefinition in the group `bench.example.com`, with a schema of about 300 lines and ten CEL
/// rules.
pub fn definition(plural: &str, kind: &str) -> Value {
    let field = |at: usize| {
        let schema = json!({"type": "integer", "minimum": 0, "description": format!("how much of the kind {at}")});
        (format!("field{at}"), schema)
    };
    let fields: Map<String, Value> = (0..FIELDS).map(field).collect();
    let rule = |at: usize| {
        let next = at + 1;
        json!({
            "rule": format!("!has(self.field{at}) || !has(self.field{next}) || self.field{at} <= self.field{next}"),
            "message": format!("field{at} must not be more than field{next}"),
        })
    };
    let rules: Vec<Value> = (0..RULES).map(rule).collect();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.bench.example.com")},
        "spec": {
            "group": "bench.example.com", "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List")},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": fields, "x-kubernetes-validations": rules},
                }}},
            }],
        },
    })
}

/// Returns an object of kind Widget that matches [`definition`], with all fields set.
pub fn widget(name: &str) -> Value {
    let spec: Map<String, Value> = (0..FIELDS).map(|at| (format!("field{at}"), at.into())).collect();
    json!({
        "apiVersion": "bench.example.com/v1", "kind": "Widget",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": "web"}},
        "spec": spec,
    })
}
