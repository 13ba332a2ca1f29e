//! Validation, warnings and dropped fields of Pods and of kinds with pod templates.

use fake_apiserver::ApiServer;
use rstest::rstest;
use serde_json::{Value, json};

use crate::ask::{causes, post, put, warnings, warnings_of, with};

const PODS: &str = "/api/v1/namespaces/default/pods";
const APPS: &str = "/apis/apps/v1/namespaces/default";
const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/c";

fn pod(spec: &Value) -> Value {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    with(&pod, &json!({"spec": spec}))
}

/// Returns a Pod with one volume.
fn volume(fields: &Value) -> Value {
    pod(&json!({"volumes": [with(&json!({"name": "v"}), fields)]}))
}

/// Returns a workload with this template and further fields in its spec.
fn workload(kind: &str, template: &Value, spec: &Value) -> (String, Value) {
    let labels = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let template = with(&labels, template);
    let (path, version, selector) = match kind {
        "ReplicationController" => (
            "/api/v1/namespaces/default/replicationcontrollers",
            "v1",
            json!({"a": "b"}),
        ),
        "StatefulSet" => (
            "/apis/apps/v1/namespaces/default/statefulsets",
            "apps/v1",
            json!({"matchLabels": {"a": "b"}}),
        ),
        _ => (
            "/apis/apps/v1/namespaces/default/deployments",
            "apps/v1",
            json!({"matchLabels": {"a": "b"}}),
        ),
    };
    let object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": "a"},
        "spec": {"selector": selector, "template": template}});
    (path.to_owned(), with(&object, &json!({"spec": spec})))
}

#[rstest]
#[case::disk_without_a_name(volume(&json!({"gcePersistentDisk": {"partition": 256}})), &[
    "spec.volumes[0].persistentDisk.pdName: Required value",
    "spec.volumes[0].persistentDisk.partition: Invalid value: 256: must be between 1 and 255, inclusive"])]
#[case::long_iscsi_portal(volume(&json!({"iscsi": {"targetPortal": "p".repeat(63), "iqn": "iqn.2020-01.a.b:c",
    "lun": 0, "initiatorName": "iqn.2020-01.a.b:c"}})),
    &["spec.volumes[0].name: Invalid value: \"v\": Total length of <volume name>:<iscsi.targetPortal> must be under 64 \
       characters if iscsi.initiatorName is specified."])]
#[case::addresses_in_brackets(volume(&json!({"quobyte": {"registry": "[::1]:80,a:1", "volume": "v"}})), &[])]
#[case::address_with_too_many_colons(volume(&json!({"quobyte": {"registry": "::1:80", "volume": "v"}})),
    &["spec.volumes[0].quobyte.registry: Invalid value: \"::1:80\": must be a host:port pair or multiple pairs \
       separated by commas"])]
#[case::claim_templates_of_ephemeral_volumes(with(&volume(&json!({"ephemeral": {"volumeClaimTemplate": {"spec":
    {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}}})),
    &json!({"metadata": {"name": "a".repeat(252)}})),
    &["spec.volumes[0].name: Invalid value: \"v\": PVC name \"NAME-v\": must be no more than 253 characters"])]
#[case::metadata_of_claim_templates(volume(&json!({"ephemeral": {"volumeClaimTemplate": {
    "metadata": {"name": "n", "uid": "u", "finalizers": ["a.b/c"], "labels": {"a": "b"}},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}}})), &[
    "spec.volumes[0].ephemeral.volumeClaimTemplate.metadata.name: Forbidden: cannot be set",
    "spec.volumes[0].ephemeral.volumeClaimTemplate.metadata.uID: Forbidden: cannot be set",
    "spec.volumes[0].ephemeral.volumeClaimTemplate.metadata.finalizers: Forbidden: cannot be set"])]
#[case::resource_claims_of_mirror_pods(
    with(&pod(&json!({"nodeName": "n", "resourceClaims": [{"name": "r", "resourceClaimName": "c"}]})),
    &json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}})),
    &["[]: Forbidden: static pods do not support resource claims"])]
#[case::toleration_annotation(with(&pod(&json!({})),
    &json!({"metadata": {"annotations": {"scheduler.alpha.kubernetes.io/tolerations": "[{\"Operator\":\"x\"}]"}}})), &[
    "metadata.annotations.scheduler.alpha.kubernetes.io/tolerations[0].operator: Invalid value: \"x\": operator must be \
     Exists when `key` is empty, which means \"match all values and all keys\"",
    "metadata.annotations.scheduler.alpha.kubernetes.io/tolerations[0].operator: Unsupported value: \"x\": supported \
     values: \"Equal\", \"Exists\""])]
#[case::unreadable_toleration_annotation(with(&pod(&json!({})),
    &json!({"metadata": {"annotations": {"scheduler.alpha.kubernetes.io/tolerations": "x"}}})),
    &["metadata.annotations: Invalid value: \"scheduler.alpha.kubernetes.io/tolerations\": invalid character 'x' \
       looking for beginning of value"])]
#[case::field_order_of_seccomp_errors(pod(&json!({"securityContext": {"seccompProfile":
    {"type": "Unconfined", "localhostProfile": "x"}}})),
    &["spec.securityContext.seccompProfile.localhostProfile: Invalid value: \
       {\"Type\":\"Unconfined\",\"LocalhostProfile\":\"x\"}: can only be set when seccomp type is Localhost"])]
#[case::empty_app_armor_annotation_and_field(with(&pod(&json!({"securityContext": {"appArmorProfile": {"type": "Unconfined"}}})),
    &json!({"metadata": {"annotations": {APP_ARMOR: ""}}})),
    &["spec.containers[0].securityContext.appArmorProfile.type: Forbidden: apparmor type in annotation and field must \
       match"])]
#[tokio::test]
async fn new_pods_are_validated(#[case] pod: Value, #[case] expected: &[&str]) {
    let answer = post(&ApiServer::start(), PODS, &pod).await;
    let name = pod["metadata"]["name"].as_str().expect("the object has a name");
    let found: Vec<String> = causes(&answer).iter().map(|it| it.replace(name, "NAME")).collect();
    let expected: Vec<String> = expected.iter().map(|it| it.replace(name, "NAME")).collect();
    let found = found.into_iter().map(|it| it.trim_end_matches(": ").to_owned());
    assert_eq!(found.collect::<Vec<_>>(), expected, "{}", answer.1);
}

fn warned(path: &str) -> String {
    format!("{path}: deprecated since v1.30; use the \"appArmorProfile\" field instead")
}

#[rstest]
#[case::deprecated_node_labels(pod(&json!({"affinity": {"nodeAffinity": {
    "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions":
        [{"key": "beta.kubernetes.io/os", "operator": "Exists"}]}]},
    "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {"matchExpressions":
        [{"key": "k", "operator": "In", "values": ["-"]}]}}]}}})), &[
    "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].key: \
     beta.kubernetes.io/os is deprecated since v1.14; use \"kubernetes.io/os\" instead",
    "spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].preference.matchExpressions[0].values[0]: \
     - is invalid, a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
     start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation \
     is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"])]
#[case::overlapping_paths(volume(&json!({"configMap": {"name": "m",
    "items": [{"key": "a", "path": "d/"}, {"key": "b", "path": "d/f"}]}})),
    &["volume \"v\" (ConfigMap \"m\"): overlapping paths: \"d/f\" with \"d\""])]
#[case::duplicate_path(volume(&json!({"projected": {"sources": [{"serviceAccountToken": {"path": "t"}},
    {"secret": {"name": "s", "items": [{"key": "a", "path": "t/u"}]}}, {}]}})), &[
    "volume \"v\" (Projected) has no sources provided",
    "volume \"v\" (Projected): overlapping paths: \"t/u\" (Secret \"s\") with \"t\" (ServiceAccountToken)"])]
#[case::non_canonical_addresses(pod(&json!({"dnsConfig": {"nameservers": ["2001:DB8::1"]},
    "hostAliases": [{"ip": "2001:db8:0::2", "hostnames": ["a"]}]})), &[
    "spec.dnsConfig.nameservers[0]: IPv6 address \"2001:DB8::1\" should be in RFC 5952 canonical format (\"2001:db8::1\")",
    "spec.hostAliases[0].ip: IPv6 address \"2001:db8:0::2\" should be in RFC 5952 canonical format (\"2001:db8::2\")"])]
#[case::seccomp_annotation(with(&pod(&json!({})), &json!({"metadata": {"annotations":
    {"seccomp.security.alpha.kubernetes.io/pod": "unconfined"}}})),
    &["metadata.annotations[seccomp.security.alpha.kubernetes.io/pod]: non-functional in v1.27+; use the \
       \"seccompProfile\" field instead"])]
#[tokio::test]
async fn discouraged_fields_of_a_new_pod_cause_warnings(#[case] pod: Value, #[case] expected: &[&str]) {
    let pod = with(&pod, &json!({"spec": {"serviceAccountName": "s"}}));
    let mut found = warnings(&ApiServer::start(), PODS, &pod).await;
    found.sort_by_key(|it| it.contains(": overlapping"));
    assert_eq!(found, expected);
}

#[rstest]
#[case("unconfined", Some(json!({"type": "Unconfined"})), 1)]
#[case("localhost/p", Some(json!({"type": "Localhost", "localhostProfile": "p"})), 1)]
#[case("", None, 1)]
#[case("runtime/default", None, 0)]
#[tokio::test]
async fn app_armor_annotations_become_profiles(
    #[case] annotation: &str,
    #[case] profile: Option<Value>,
    #[case] count: usize,
) {
    let server = ApiServer::start();
    let fields = json!({"metadata": {"annotations": {APP_ARMOR: annotation}}});
    let spec = json!({"securityContext": {"appArmorProfile": {"type": "RuntimeDefault"}}});
    let pod = with(&pod(&if count == 0 { spec } else { json!({}) }), &fields);
    let path = format!("metadata.annotations[{APP_ARMOR}]");
    assert_eq!(warnings(&server, PODS, &pod).await, vec![warned(&path); count]);
    let (_, stored) = crate::ask::get(&server, &format!("{PODS}/a")).await;
    let found = &stored["spec"]["containers"][0]["securityContext"]["appArmorProfile"];
    assert_eq!(*found, profile.unwrap_or_default());
    let (path, deployment) = workload("Deployment", &with(&json!({}), &fields), &json!({}));
    let expected = warned(&format!("spec.template.metadata.annotations[{APP_ARMOR}]"));
    assert_eq!(warnings(&server, &path, &deployment).await, [expected]);
}

#[rstest]
#[case::two_addresses_of_a_family(json!({"podIPs": [{"ip": "1.2.3.4"}, {"ip": "1.2.3.5"}]}), &[
    "status.podIPs: Invalid value: [{\"IP\":\"1.2.3.4\"},{\"IP\":\"1.2.3.5\"}]: may specify no more than one IP for each \
     IP family"])]
#[case::invalid_host_address(json!({"hostIP": "1.2.3.4", "hostIPs": [{"ip": "1.2.3.4"}, {"ip": "x"}]}), &[
    "status.hostIPs[1]: Invalid value: \"x\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
    "status.hostIPs: Internal error: failed to check for dual stack with error:invalid IP[1]: x",
    "status.hostIPs: Invalid value: [{\"IP\":\"1.2.3.4\"},{\"IP\":\"x\"}]: may specify no more than one IP for each IP \
     family"])]
#[case::users_of_containers(json!({"containerStatuses": [{"name": "c", "user": {"linux": {"uid": -1, "gid": 0,
    "supplementalGroups": [-2]}}}]}), &[
    "status.containerStatuses[0].user.linux.uid: Invalid value: -1: must be between 0 and 2147483647, inclusive",
    "status.containerStatuses[0].user.linux.supplementalGroups[0]: Invalid value: -2: must be between 0 and 2147483647, \
     inclusive"])]
#[case::devices_of_containers(json!({"containerStatuses": [{"name": "c", "allocatedResourcesStatus": [
    {"name": "claim:r/q", "resources": [{"resourceID": "i", "health": "Odd"}, {"resourceID": "i", "health": "Healthy",
        "message": "m".repeat(1025)}]},
    {"name": "example.com/d"}]}]}), &[
    "status.containerStatuses[0].allocatedResourcesStatus[0].name: Invalid value: \"claim:r/q\": must match one of the \
     container's resource claims in a format 'claim:<claimName>/<request>' or 'claim:<claimName>' if request is empty",
    "status.containerStatuses[0].allocatedResourcesStatus[0].resources[0].health: Unsupported value: \"Odd\": supported \
     values: \"Healthy\", \"Unhealthy\", \"Unknown\"",
    "status.containerStatuses[0].allocatedResourcesStatus[0].resources[1].message: Too long: may not be more than 1024 \
     bytes",
    "status.containerStatuses[0].allocatedResourcesStatus[0].resources[1].resourceID: Duplicate value: \"i\"",
    "status.containerStatuses[0].allocatedResourcesStatus[1].name: Invalid value: \"example.com/d\": must match one of \
     the container's resource requests"])]
#[case::devices_of_ephemeral_containers(json!({"ephemeralContainerStatuses": [{"name": "e",
    "allocatedResourcesStatus": [{"name": "n"}]}]}),
    &["status.ephemeralContainerStatuses[0].allocatedResourcesStatus: Forbidden: must not be specified in container \
       status"])]
#[tokio::test]
async fn pod_statuses_are_validated(#[case] status: Value, #[case] expected: &[&str]) {
    let server = ApiServer::start();
    let (_, made) = post(&server, PODS, &pod(&json!({}))).await;
    let answer = put(
        &server,
        &format!("{PODS}/a/status"),
        &with(&made, &json!({"status": status})),
    )
    .await;
    assert_eq!(causes(&answer), expected, "{}", answer.1);
}

#[tokio::test]
async fn image_volume_digests_are_dropped_while_the_feature_gate_is_disabled() {
    let server = ApiServer::start();
    let (_, made) = post(&server, PODS, &pod(&json!({}))).await;
    let mount = json!({"name": "v", "mountPath": "/m", "volumeStatus": {"image": {"imageRef": ""}}});
    let status = json!({"status": {"containerStatuses": [{"name": "c", "volumeMounts": [mount]}]}});
    let (code, stored) = put(&server, &format!("{PODS}/a/status"), &with(&made, &status)).await;
    assert_eq!(code, 200, "{stored}");
    let mount = &stored["status"]["containerStatuses"][0]["volumeMounts"][0];
    assert_eq!(
        (&mount["name"], &mount["volumeStatus"]),
        (&json!("v"), &Value::Null),
        "{stored}"
    );
}

#[rstest]
#[case::resource_claims_are_ignored(
    json!({"requests": {"cpu": "1", "memory": "1Gi"}}), json!({"requests": {"cpu": "2", "memory": "1Gi"}}),
    json!({}), &[])]
#[case::hugepages_of_the_pod(json!({"requests": {"cpu": "1"}, "limits": {"hugepages-2Mi": "2Mi"}}),
    json!({"requests": {"cpu": "1", "hugepages-2Mi": "4Mi"}, "limits": {"hugepages-2Mi": "4Mi"}}), json!({}),
    &["spec: Forbidden: only cpu and memory resources are mutable at pod-level"])]
#[case::pod_level_errors_come_first(json!({"requests": {"cpu": "1"}}), json!({"requests": {"memory": "1Gi"}}),
    json!({"containers": [{"name": "d", "image": "i"}]}), &[
    "spec.resources.requests: Forbidden: pod-level resource requests cannot be removed",
    "spec.containers[0].name: Forbidden: containers may not be renamed or reordered on resize"])]
#[tokio::test]
async fn pod_resizes_are_validated(
    #[case] before: Value,
    #[case] after: Value,
    #[case] spec: Value,
    #[case] expected: &[&str],
) {
    let server = ApiServer::start();
    let (code, made) = post(&server, PODS, &pod(&json!({"resources": before}))).await;
    assert_eq!(code, 201, "{made}");
    let mut changed = with(&made, &json!({"spec": spec}));
    changed["spec"]["resources"] = after;
    let answer = put(&server, &format!("{PODS}/a/resize"), &changed).await;
    assert_eq!(causes(&answer), expected, "{}", answer.1);
}

#[tokio::test]
async fn empty_fields_of_ephemeral_containers_count_as_set() {
    let server = ApiServer::start();
    let (_, made) = post(&server, PODS, &pod(&json!({}))).await;
    let container = json!({"name": "e", "image": "i", "lifecycle": {}, "restartPolicy": "", "ports": []});
    let changed = with(&made, &json!({"spec": {"ephemeralContainers": [container]}}));
    let answer = put(&server, &format!("{PODS}/a/ephemeralcontainers"), &changed).await;
    let refused = |field: &str| {
        format!("spec.ephemeralContainers[0].{field}: Forbidden: cannot be set for an Ephemeral Container")
    };
    assert_eq!(
        causes(&answer),
        ["ports", "restartPolicy", "lifecycle"].map(refused),
        "{}",
        answer.1
    );
}

#[tokio::test]
async fn invalid_pod_annotations_are_reported_twice_on_update() {
    let server = ApiServer::start();
    let (_, made) = post(&server, PODS, &pod(&json!({}))).await;
    let cost = json!({"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "x"}}});
    let changed = with(&made, &cost);
    let expected = "metadata.annotations[controller.kubernetes.io/pod-deletion-cost]: Invalid value: \"x\": must be a \
                    32bit integer";
    let answer = put(&server, &format!("{PODS}/a"), &changed).await;
    assert_eq!(causes(&answer), [expected; 2], "{}", answer.1);
    let answer = put(&server, &format!("{PODS}/a/status"), &changed).await;
    assert_eq!(causes(&answer), [expected], "{}", answer.1);
}

#[tokio::test]
async fn fractional_storage_in_a_volume_claim_template_causes_a_warning() {
    let server = ApiServer::start();
    let claim = json!({"metadata": {"name": "v"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1500m"}}}});
    let spec = json!({"volumeClaimTemplates": [claim], "replicas": 0,
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 2}}});
    let (path, set) = workload("StatefulSet", &json!({}), &spec);
    let text = |at: &str| {
        format!(
            "spec.volumeClaimTemplates[0]{at}.resources.requests[storage]: fractional byte value \"1500m\" is \
                 invalid, must be an integer"
        )
    };
    assert_eq!(warnings(&server, &path, &set).await, [text("")]);
    let (_, made) = crate::ask::get(&server, &format!("{APPS}/statefulsets/a")).await;
    assert_eq!(
        made["spec"]["updateStrategy"]["rollingUpdate"],
        json!({"partition": 0}),
        "the field of a disabled gate is dropped"
    );
    let found = warnings_of(&server, "PUT", &format!("{path}/a"), &made).await;
    assert_eq!(found, [text(".Spec")]);
}

#[tokio::test]
async fn update_of_a_replication_controller_causes_warnings_for_the_stored_template() {
    let server = ApiServer::start();
    let template = json!({"spec": {"nodeSelector": {"beta.kubernetes.io/os": "x"}}});
    let (path, controller) = workload("ReplicationController", &template, &json!({"replicas": 0}));
    let expected = "spec.template.spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use \
                    \"kubernetes.io/os\" instead";
    assert_eq!(warnings(&server, &path, &controller).await, [expected]);
    let (_, right) = workload("ReplicationController", &json!({}), &json!({"replicas": 0}));
    assert_eq!(
        warnings_of(&server, "PUT", &format!("{path}/a"), &right).await,
        [expected]
    );
    assert_eq!(
        warnings_of(&server, "PUT", &format!("{path}/a"), &controller).await,
        [""; 0]
    );
}

#[rstest]
#[case::computed(json!({}), "BestEffort")]
#[case::given_in_the_body(json!({"qosClass": "Guaranteed", "phase": "Running"}), "Guaranteed")]
#[tokio::test(start_paused = true)]
async fn create_of_a_pod_keeps_the_qos_class_in_the_body(#[case] status: Value, #[case] expected: &str) {
    let server = ApiServer::start();
    let mut body = pod(&json!({}));
    body["status"] = status;
    let (code, created) = post(&server, PODS, &body).await;
    assert_eq!(
        (code, &created["status"]),
        (201, &json!({"phase": "Pending", "qosClass": expected}))
    );
}
