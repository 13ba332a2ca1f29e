//! Compares Tables with responses recorded from kube-apiserver 1.36.

use rstest::rstest;

use super::*;
use crate::api::json::json;

fn object(value: Value) -> Object {
    match value {
        Value::Object(map) => Object(map),
        _ => Object::default(),
    }
}

fn tables<'a>(columns: Columns<'a>) -> Tables<'a> {
    Tables {
        columns,
        converted: None,
        version: MetaVersion::V1,
        include: IncludeObject::default(),
        now: "2026-01-01T00:10:00Z".parse().unwrap(),
    }
}

fn cells(group: &str, kind: &str, mut value: Value) -> Value {
    value["metadata"]["name"] = json!("a");
    value["metadata"]["creationTimestamp"] = json!("2026-01-01T00:05:00Z");
    let tables = tables(Columns::Builtin { group, kind });
    let cells = tables.cells(&object(value));
    let definitions = tables.column_definitions();
    if kind != "IPAddress" {
        assert_eq!(definitions.as_array().map(Vec::len), Some(cells.len()), "{kind}");
    }
    Value::Array(cells)
}

fn template() -> Value {
    json!({"spec": {"containers": [{"name": "c", "image": "img:1"}, {"name": "e", "image": "img:2"}],
                    "nodeSelector": {"x": "y"}}, "metadata": {"labels": {"a": "b"}}})
}

#[rstest]
#[case("", "ConfigMap", json!({"data": {"k": "1", "l": "2"}, "binaryData": {"x": "AQ=="}}), json!(["a", 3, "5m"]))]
#[case("", "Secret", json!({"type": "Opaque", "data": {"k": ""}}), json!(["a", "Opaque", 1, "5m"]))]
#[case("", "Namespace", json!({"status": {"phase": "Active"}}), json!(["a", "Active", "5m"]))]
#[case("", "ServiceAccount", json!({"secrets": [{}]}), json!(["a", "5m"]))]
#[case("", "LimitRange", json!({}), json!(["a", "2026-01-01T00:05:00Z"]))]
#[case("rbac.authorization.k8s.io", "Role", json!({}), json!(["a", "2026-01-01T00:05:00Z"]))]
#[case("apps", "ControllerRevision",
    json!({"revision": 4, "metadata": {"ownerReferences": [
        {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "controller": true}]}}),
    json!(["a", "statefulset.apps/web", 4, "5m"]))]
#[case("", "PodTemplate", json!({"template": template()}), json!(["a", "c,e", "img:1,img:2", "a=b"]))]
#[case("batch", "CronJob",
    json!({"spec": {"schedule": "@daily", "timeZone": "Etc/UTC", "suspend": true,
                    "jobTemplate": {"spec": {"template": template()}}}}),
    json!(["a", "@daily", "Etc/UTC", "True", 0, "<none>", "5m", "c,e", "img:1,img:2", "<none>"]))]
#[case("batch", "Job",
    json!({"spec": {"completions": 3, "template": template(), "selector": {"matchLabels": {"x": "y"}}},
           "status": {"succeeded": 1, "startTime": "2026-01-01T00:09:00Z"}}),
    json!(["a", "Running", "1/3", "60s", "5m", "c,e", "img:1,img:2", "x=y"]))]
#[case("apps", "DaemonSet",
    json!({"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template()},
           "status": {"currentNumberScheduled": 1, "desiredNumberScheduled": 3, "numberReady": 1,
                      "numberAvailable": 1, "updatedNumberScheduled": 2}}),
    json!(["a", 3, 1, 1, 2, 1, "x=y", "5m", "c,e", "img:1,img:2", "a=b"]))]
#[case("apps", "Deployment",
    json!({"spec": {"replicas": 2, "selector": {"matchLabels": {"app": "x"}}, "template": template()},
           "status": {"replicas": 2, "readyReplicas": 1, "updatedReplicas": 2, "availableReplicas": 1}}),
    json!(["a", "1/2", 2, 1, "5m", "c,e", "img:1,img:2", "app=x"]))]
#[case("apps", "ReplicaSet",
    json!({"spec": {"replicas": 3, "selector": {"matchLabels": {"a": "b"}}, "template": template()},
           "status": {"replicas": 2, "readyReplicas": 1}}),
    json!(["a", 3, 2, 1, "5m", "c,e", "img:1,img:2", "a=b"]))]
#[case("", "ReplicationController",
    json!({"spec": {"replicas": 1, "selector": {"a": "b"}, "template": template()}}),
    json!(["a", 1, 0, 0, "5m", "c,e", "img:1,img:2", "a=b"]))]
#[case("apps", "StatefulSet",
    json!({"spec": {"replicas": 3, "template": template()}, "status": {"readyReplicas": 1}}),
    json!(["a", "1/3", "5m", "c,e", "img:1,img:2"]))]
#[case("autoscaling", "Scale", json!({"spec": {"replicas": 2}, "status": {"replicas": 0}}), json!(["a", 2, 0, "5m"]))]
#[case("autoscaling", "HorizontalPodAutoscaler",
    json!({"spec": {"scaleTargetRef": {"kind": "Deployment", "name": "d"}, "minReplicas": 2, "maxReplicas": 5,
           "metrics": [{"type": "Resource", "resource": {"name": "cpu",
                        "target": {"type": "Utilization", "averageUtilization": 80}}}]}}),
    json!(["a", "Deployment/d", "cpu: <unknown>/80%", "2", 5, 0, "5m"]))]
#[case("networking.k8s.io", "Ingress",
    json!({"spec": {"ingressClassName": "x", "rules": [{"host": "a.example"}, {"host": "b.example"}], "tls": [{}]},
           "status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}}),
    json!(["a", "x", "a.example,b.example", "1.2.3.4", "80, 443", "5m"]))]
#[case("networking.k8s.io", "Ingress", json!({}), json!(["a", "<none>", "*", "", "80", "5m"]))]
#[case("networking.k8s.io", "NetworkPolicy", json!({"spec": {"podSelector": {}}}), json!(["a", "<none>", "5m"]))]
#[case("policy", "PodDisruptionBudget", json!({"spec": {"minAvailable": "50%"}}), json!(["a", "50%", "N/A", 0, "5m"]))]
#[case("policy", "PodDisruptionBudget", json!({"spec": {"maxUnavailable": 1}}), json!(["a", "N/A", "1", 0, "5m"]))]
#[case("", "ResourceQuota",
    json!({"status": {"hard": {"pods": "5", "requests.cpu": "1", "limits.cpu": "2"},
                      "used": {"pods": "1", "requests.cpu": "0", "limits.cpu": "500m"}}}),
    json!(["a", "pods: 1/5, requests.cpu: 0/1", "limits.cpu: 500m/2", "5m"]))]
#[case("", "Service",
    json!({"spec": {"type": "ClusterIP", "clusterIPs": ["None"], "selector": {"x": "y", "k": "v"},
                    "ports": [{"port": 80, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}]}}),
    json!(["a", "ClusterIP", "None", "<none>", "80/TCP,53/UDP", "5m", "k=v,x=y"]))]
#[case("", "Service", json!({"spec": {"type": "ExternalName", "externalName": "e.example"}}),
    json!(["a", "ExternalName", "<none>", "e.example", "<none>", "5m", "<none>"]))]
#[case("", "Service",
    json!({"spec": {"type": "LoadBalancer", "clusterIPs": ["10.0.0.1"],
                    "ports": [{"port": 443, "nodePort": 30001, "protocol": "TCP"}]},
           "status": {"loadBalancer": {"ingress": [{"hostname": "lb.example"}]}}}),
    json!(["a", "LoadBalancer", "10.0.0.1", "lb.example", "443:30001/TCP", "5m", "<none>"]))]
#[case("rbac.authorization.k8s.io", "RoleBinding",
    json!({"roleRef": {"kind": "Role", "name": "r"}, "subjects": [
        {"kind": "User", "name": "u1"}, {"kind": "User", "name": "u2"}, {"kind": "Group", "name": "g"},
        {"kind": "ServiceAccount", "name": "sa", "namespace": "n"}]}),
    json!(["a", "Role/r", "5m", "u1, u2", "g", "n/sa"]))]
#[case("storage.k8s.io", "StorageClass",
    json!({"provisioner": "p", "allowVolumeExpansion": true,
           "metadata": {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}}),
    json!(["a (default)", "p", "Delete", "Immediate", true, "5m"]))]
#[case("storage.k8s.io", "StorageClass",
    json!({"provisioner": "p",
           "metadata": {"annotations": {"storageclass.beta.kubernetes.io/is-default-class": "true"}}}),
    json!(["a (default)", "p", "Delete", "Immediate", false, "5m"]))]
#[case("storage.k8s.io", "VolumeAttributesClass",
    json!({"driverName": "d",
           "metadata": {"annotations": {"volumeattributesclass.alpha.kubernetes.io/is-default-class": "true"}}}),
    json!(["a", "d", "5m"]))]
#[case("networking.k8s.io", "IngressClass",
    json!({"spec": {"controller": "c"},
           "metadata": {"annotations": {"ingressclass.kubernetes.io/is-default-class": "true"}}}),
    json!(["a (default)", "c", "<none>", "5m"]))]
#[case("rbac.authorization.k8s.io", "RoleBinding",
    json!({"roleRef": {"kind": "Role", "name": "r"}, "subjects": [{"kind": "ServiceAccount", "name": "sa"}]}),
    json!(["a", "Role/r", "5m", "", "", "/sa"]))]
#[case("batch", "Job",
    json!({"spec": {"completions": 1, "template": template()},
           "status": {"conditions": [{"type": "SuccessCriteriaMet", "status": "True"}]}}),
    json!(["a", "SuccessCriteriaMet", "0/1", "", "5m", "c,e", "img:1,img:2", "<none>"]))]
#[case("", "PersistentVolumeClaim",
    json!({"spec": {"volumeName": "v", "storageClassName": "s", "volumeMode": "Filesystem"},
           "status": {"phase": "Bound", "capacity": {"storage": "1Gi"},
                      "accessModes": ["ReadWriteMany", "ReadWriteOnce"]}}),
    json!(["a", "Bound", "v", "1Gi", "RWO,RWX", "s", "<unset>", "5m", "Filesystem"]))]
#[case("", "Node",
    json!({"metadata": {"labels": {"node-role.kubernetes.io/worker": "", "kubernetes.io/role": "db"}},
           "spec": {"unschedulable": true},
           "status": {"conditions": [{"type": "Ready", "status": "True"}], "nodeInfo": {"kubeletVersion": "v1.36.2"},
                      "addresses": [{"type": "InternalIP", "address": "10.0.0.9"}]}}),
    json!(["a", "Ready,SchedulingDisabled", "db,worker", "5m", "v1.36.2", "10.0.0.9", "<none>", "<unknown>",
           "<unknown>", "<unknown>"]))]
#[case("", "Event",
    json!({"involvedObject": {"kind": "Pod", "name": "p"}, "type": "Normal", "reason": "R", "message": " m \n",
           "source": {"component": "c", "host": "h"}, "firstTimestamp": "2026-01-01T00:08:00Z",
           "lastTimestamp": "2026-01-01T00:09:30Z", "count": 2}),
    json!(["30s", "Normal", "R", "pod/p", "", "c, h", "m", "2m", 2, "a"]))]
#[case("", "Endpoints",
    json!({"subsets": [{"addresses": [{"ip": "1.1.1.1"}, {"ip": "::1"}], "ports": [{"port": 80}, {"port": 81}]}]}),
    json!(["a", "1.1.1.1:80,[::1]:80,1.1.1.1:81 + 1 more...", "5m"]))]
#[case("discovery.k8s.io", "EndpointSlice", json!({"addressType": "IPv4", "ports": [{"port": 80}], "endpoints": []}),
    json!(["a", "IPv4", "80", "<unset>", "5m"]))]
fn m4_cells_are_printed_as_in_kube_apiserver(
    #[case] group: &str,
    #[case] kind: &str,
    #[case] value: Value,
    #[case] expected: Value,
) {
    assert_eq!(cells(group, kind, value), expected);
}

fn pod(status: Value) -> Value {
    json!({"spec": {"containers": [{"name": "c"}], "initContainers": [{"name": "i"}, {"name": "j"}]}, "status": status})
}

fn container(state: Value) -> Value {
    json!([{"name": "c", "ready": true, "restartCount": 0, "state": state}])
}

#[rstest]
#[case(json!({"phase": "Pending"}), "0/1", "Pending", "0")]
#[case(json!({"phase": "Running", "containerStatuses": container(json!({"running": {}}))}), "1/1", "Running", "0")]
#[case(json!({"phase": "Succeeded",
              "containerStatuses": container(json!({"terminated": {"exitCode": 0, "reason": "Completed"}}))}),
    "0/1", "Completed", "0")]
#[case(json!({"phase": "Failed", "containerStatuses": container(json!({"terminated": {"exitCode": 3}}))}),
    "0/1", "ExitCode:3", "0")]
#[case(json!({"phase": "Failed", "containerStatuses": container(json!({"terminated": {"exitCode": 0, "signal": 9}}))}),
    "0/1", "Signal:9", "0")]
#[case(json!({"phase": "Failed", "reason": "Evicted"}), "0/1", "Evicted", "0")]
#[case(json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}]}),
    "0/1", "SchedulingGated", "0")]
#[case(json!({"phase": "Running", "containerStatuses": container(json!({"waiting": {"reason": "CrashLoopBackOff"}}))}),
    "0/1", "CrashLoopBackOff", "0")]
#[case(json!({"phase": "Pending", "initContainerStatuses": [
        {"name": "i", "restartCount": 0, "state": {"terminated": {"exitCode": 0}}},
        {"name": "j", "restartCount": 2, "state": {"running": {}}}]}),
    "0/1", "Init:1/2", "2")]
#[case(json!({"phase": "Pending", "initContainerStatuses": [
        {"name": "i", "restartCount": 1, "state": {"terminated": {"exitCode": 1, "reason": "Error"}}}]}),
    "0/1", "Init:Error", "1")]
#[case(json!({"phase": "Running", "containerStatuses": [{"name": "c", "ready": true, "restartCount": 2,
        "state": {"running": {}}, "lastState": {"terminated": {"finishedAt": "2026-01-01T00:09:00Z"}}}]}),
    "1/1", "Running", "2 (60s ago)")]
#[case::failed(json!({"phase": "Failed", "containerStatuses": [
        {"name": "a", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}},
        {"name": "b", "state": {"terminated": {"exitCode": 1, "reason": "Error"}}}]}),
    "0/1", "Error", "0")]
#[case::failed_next_to_a_running_container(json!({"phase": "Running", "containerStatuses": [
        {"name": "a", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}},
        {"name": "b", "state": {"terminated": {"exitCode": 1, "reason": "Error"}}},
        {"name": "c", "ready": true, "state": {"running": {}}}]}),
    "1/1", "Error", "0")]
fn m4_pod_status_column_shows_the_reason(
    #[case] status: Value,
    #[case] ready: &str,
    #[case] reason: &str,
    #[case] restarts: &str,
) {
    let expected = json!([
        "a", ready, reason, restarts, "5m", "<none>", "<none>", "<none>", "<none>"
    ]);
    assert_eq!(cells("", "Pod", pod(status)), expected);
}

#[test]
fn m4_terminating_pods_are_shown_as_terminating_or_unknown() {
    let mut gone = pod(json!({"phase": "Running"}));
    gone["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:09:00Z");
    assert_eq!(cells("", "Pod", gone.clone())[2], "Terminating");
    gone["status"]["reason"] = json!("NodeLost");
    assert_eq!(cells("", "Pod", gone)[2], "Unknown");
}

#[test]
fn m4_table_cells_tolerate_fields_of_any_type() {
    let groups = [
        "",
        "apps",
        "batch",
        "autoscaling",
        "policy",
        "networking.k8s.io",
        "discovery.k8s.io",
        "storage.k8s.io",
        "rbac.authorization.k8s.io",
        "node.k8s.io",
        "resource.k8s.io",
        "flowcontrol.apiserver.k8s.io",
        "admissionregistration.k8s.io",
        "certificates.k8s.io",
        "coordination.k8s.io",
        "apiregistration.k8s.io",
    ];
    let kinds = [
        "Pod",
        "PodTemplate",
        "ReplicaSet",
        "DaemonSet",
        "Deployment",
        "StatefulSet",
        "ControllerRevision",
        "Job",
        "CronJob",
        "HorizontalPodAutoscaler",
        "ResourceQuota",
        "ComponentStatus",
        "Event",
        "Node",
        "Service",
        "Endpoints",
        "EndpointSlice",
        "Ingress",
        "IngressClass",
        "NetworkPolicy",
        "IPAddress",
        "PersistentVolume",
        "PersistentVolumeClaim",
        "StorageClass",
        "CSIDriver",
        "RoleBinding",
        "ValidatingAdmissionPolicyBinding",
        "CertificateSigningRequest",
        "FlowSchema",
        "PriorityLevelConfiguration",
        "APIService",
        "ResourceClaim",
        "Lease",
    ];
    for value in [
        json!(5),
        json!("text"),
        json!([1, "a", {}]),
        json!({"conditions": 1, "containers": {"a": 1}}),
        json!(null),
    ] {
        for (group, kind) in groups.iter().flat_map(|group| kinds.map(|kind| (group, kind))) {
            let odd = json!({"spec": value, "status": value, "metadata": {"labels": value, "annotations": value},
                             "data": value, "subsets": value, "roleRef": value, "template": value});
            cells(group, kind, odd);
        }
    }
    let tables = tables(Columns::Builtin { group: "", kind: "Pod" });
    assert_eq!(tables.cells(&Object::default())[4], "<unknown>");
}

#[test]
fn m2_table_has_one_row_per_object() {
    let columns = Columns::Builtin { group: "", kind: "Pod" };
    let item = object(
        json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a", "labels": {"l": "1"}},
                             "status": {"phase": "Failed"}}),
    );
    let metadata = json!({"resourceVersion": "7", "continue": "", "remainingItemCount": 3});
    let table = tables(columns).of_list(metadata.as_object(), [&item]);
    assert_eq!(table["kind"], "Table");
    assert_eq!(table["apiVersion"], "meta.k8s.io/v1");
    assert_eq!(
        table["metadata"],
        json!({"resourceVersion": "7", "remainingItemCount": 3})
    );
    assert_eq!(table["columnDefinitions"][0]["format"], "name");
    let row = &table["rows"][0];
    assert_eq!(
        row["object"],
        json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
               "metadata": {"name": "a", "labels": {"l": "1"}}})
    );
    assert_eq!(row["conditions"][0]["reason"], "Failed");
    let empty = tables(columns).of_list(None, []);
    assert_eq!(empty["rows"], json!([]));
}

#[test]
fn e19_only_the_first_table_event_of_a_watch_has_column_definitions() {
    let tables = tables(Columns::Builtin {
        group: "",
        kind: "ConfigMap",
    });
    let bookmark = object(
        json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"resourceVersion": "9",
                                 "annotations": {"k8s.io/initial-events-end": "true"}}}),
    );
    let first = tables.of_event(&bookmark, true);
    assert_eq!(first["columnDefinitions"].as_array().map(Vec::len), Some(3));
    let next = tables.of_event(&bookmark, false);
    assert_eq!(next["columnDefinitions"], Value::Null);
    assert_eq!(next["metadata"], json!({"resourceVersion": "9"}));
    assert_eq!(next["rows"][0]["cells"], json!(["", 0, "<unknown>"]));
    assert_eq!(
        next["rows"][0]["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"],
        "true"
    );
    let status = object(json!({"kind": "Status", "apiVersion": "v1", "code": 410}));
    assert_eq!(tables.of_event(&status, false)["code"], 410);
}

#[test]
fn m2_include_object_determines_the_object_in_table_rows() {
    assert_eq!(IncludeObject::parse(None), Ok(IncludeObject::Metadata));
    assert_eq!(IncludeObject::parse(Some("None")), Ok(IncludeObject::None));
    let status = IncludeObject::parse(Some("Some")).unwrap_err();
    assert_eq!(
        status.message,
        "Unable to convert to Table as requested: includeObject: Invalid value: \"Some\": must be 'Metadata', \
         'Object', 'None', or empty"
    );
    let tables = Tables {
        include: IncludeObject::None,
        ..tables(Columns::Builtin {
            group: "",
            kind: "ConfigMap",
        })
    };
    assert_eq!(tables.of_object(&Object::default())["rows"][0]["object"], Value::Null);
}

#[rstest]
#[case(json!("text"), json!(["a", null, "text", null, null, "<invalid>"]))]
#[case(json!(7), json!(["a", 7, "7", null, 7, null]))]
#[case(json!(true), json!(["a", null, "true", true, null, null]))]
#[case(json!(2.75), json!(["a", 2, "2.75", null, 2.75, null]))]
#[case(json!({"k": "<v>"}), json!(["a", null, "{\"k\":\"\\u003cv\\u003e\"}", null, null, null]))]
#[case(json!(["x", "y"]), json!(["a", null, "[\"x\",\"y\"]", null, null, null]))]
#[case(json!("2026-01-01T00:00:00Z"), json!(["a", null, "2026-01-01T00:00:00Z", null, null, "10m"]))]
fn o12_printer_columns_of_custom_resources_are_evaluated(#[case] value: Value, #[case] expected: Value) {
    let declared: [Value; 5] = ["integer", "string", "boolean", "number", "date"]
        .map(|kind| json!({"name": kind, "type": kind, "jsonPath": ".spec.v"}));
    let columns = PrinterColumn::all(&declared);
    let tables = tables(Columns::Custom(&columns));
    assert_eq!(
        Value::Array(tables.cells(&object(json!({"metadata": {"name": "a"}, "spec": {"v": value}})))),
        expected
    );
    let definition = &tables.column_definitions()[1];
    assert_eq!(
        definition["description"],
        "Custom resource definition column (in JSONPath format): .spec.v"
    );
}

#[test]
fn o12_default_column_is_the_age() {
    let columns = PrinterColumn::all(&[]);
    let tables = tables(Columns::Custom(&columns));
    assert_eq!(tables.column_definitions()[1]["type"], "date");
    let object = object(json!({"metadata": {"name": "a", "creationTimestamp": "2026-01-01T00:09:59Z"}}));
    assert_eq!(tables.cells(&object), [json!("a"), json!("1s")]);
}
