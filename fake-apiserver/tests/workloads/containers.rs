//! Containers under the kubelet: resources, init containers, messages and mounts.

use fake_apiserver::{PodScript, PodSelector};
use rstest::rstest;
use serde_json::{Value, json};

use crate::cluster::{Cluster, condition};

fn pod(spec: Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"},
        "spec": {"containers": [{"name": "main", "image": "nginx:1"}]},
    });
    for (field, value) in spec.as_object().expect("the value is an object") {
        pod["spec"][field] = value.clone();
    }
    pod
}

async fn one(cluster: &Cluster) -> Value {
    cluster.get("v1", "Pod", "one").await
}

/// Returns a running cluster with a Pod that has these resources.
async fn with_resources(resources: &Value, policies: Value) -> Cluster {
    let cluster = Cluster::start();
    let container = json!({"name": "main", "image": "nginx:1", "resources": resources, "resizePolicy": policies});
    cluster.create(pod(json!({"containers": [container]}))).await;
    cluster.pass(3.0).await;
    cluster
}

async fn resize(cluster: &Cluster, resources: Value) -> (u16, Value) {
    let patch = json!({"spec": {"containers": [{"name": "main", "resources": resources}]}});
    let path = "/api/v1/namespaces/default/pods/one/resize";
    let request = http::Request::patch(path)
        .header("content-type", "application/strategic-merge-patch+json")
        .body(bytes::Bytes::from(patch.to_string()));
    let answer = cluster.0.call(request.expect("the request is valid")).await;
    (
        answer.status().as_u16(),
        serde_json::from_slice(answer.body()).unwrap_or_default(),
    )
}

#[rstest]
#[case::without_resources(json!({}), json!({}), Value::Null)]
#[case::only_requests(json!({"requests": {"cpu": "1"}}), json!({"requests": {"cpu": "1"}}), json!({"cpu": "1"}))]
#[case::requests_and_limits(
    json!({"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}),
    json!({"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}), json!({"cpu": "1"}),
)]
#[tokio::test(start_paused = true)]
async fn status_contains_the_resources_of_running_containers(
    #[case] asked: Value,
    #[case] resources: Value,
    #[case] allocated: Value,
) {
    let cluster = with_resources(&asked, json!([])).await;
    let status = one(&cluster).await["status"]["containerStatuses"][0].clone();
    assert_eq!(status["resources"], resources);
    assert_eq!(status["allocatedResources"], allocated);
}

#[rstest]
#[case::in_place("NotRequired", 0)]
#[case::with_a_restart("RestartContainer", 1)]
#[tokio::test(start_paused = true)]
async fn running_pod_is_resized(#[case] policy: &str, #[case] restarts: u32) {
    let policies = json!([{"resourceName": "cpu", "restartPolicy": policy}]);
    let cluster = with_resources(&json!({"requests": {"cpu": "1"}}), policies).await;
    let (code, answer) = resize(&cluster, json!({"requests": {"cpu": "2"}})).await;
    assert_eq!(code, 200, "{answer:#}");
    cluster.pass(1.0).await;
    let one = one(&cluster).await;
    let status = &one["status"]["containerStatuses"][0];
    assert_eq!(status["resources"]["requests"]["cpu"], "2");
    assert_eq!(status["allocatedResources"]["cpu"], "2");
    assert_eq!(status["restartCount"], restarts);
    assert!(status["state"]["running"].is_object());
    assert_eq!(condition(&one, "PodResizePending")[0], "");
    assert_eq!(one["status"]["observedGeneration"], 2);
}

#[tokio::test(start_paused = true)]
async fn resize_waits_until_the_node_has_capacity() {
    let cluster = with_resources(&json!({"requests": {"cpu": "1"}}), json!([])).await;
    let mut other = pod(json!({}));
    other["metadata"]["name"] = json!("two");
    other["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "6"}});
    cluster.create(other).await;
    cluster.pass(3.0).await;
    let (code, answer) = resize(&cluster, json!({"requests": {"cpu": "9"}})).await;
    let why = "pods \"one\" is forbidden: node didn't have enough allocatable resources: cpu, requested: 9000, \
               allocatable: 8000";
    assert_eq!((code, &answer["message"]), (403, &json!(why)));
    assert_eq!(answer["details"]["causes"], json!([{"reason": "NodeCapacity"}]));
    assert_eq!(resize(&cluster, json!({"requests": {"cpu": "4"}})).await.0, 200);
    cluster.pass(1.0).await;
    let waiting = one(&cluster).await;
    let message = "Node didn't have enough resource: cpu, requested: 4000, used: 6000, capacity: 8000";
    assert_eq!(condition(&waiting, "PodResizePending"), ["True", "Deferred", message]);
    assert_eq!(
        waiting["status"]["containerStatuses"][0]["resources"]["requests"]["cpu"],
        "1"
    );
    cluster.delete("v1", "Pod", "two").await;
    cluster.pass(11.0).await;
    let one = one(&cluster).await;
    assert_eq!(condition(&one, "PodResizePending")[0], "");
    assert_eq!(
        one["status"]["containerStatuses"][0]["resources"]["requests"]["cpu"],
        "4"
    );
}

#[rstest]
#[case::unknown_commands_succeed(PodScript::default(), json!(["prepare"]), "Succeeded", 0)]
#[case::known_failing_command(PodScript::default(), json!(["/bin/false"]), "Failed", 1)]
#[case::script_overrides_command(PodScript::default().init_exits_with(0), json!(["/bin/false"]), "Succeeded", 0)]
#[case::script_of_one_container(
    PodScript::default().init_exits_with(0).container_exits_with("first", 7), json!(["prepare"]), "Failed", 7,
)]
#[tokio::test(start_paused = true)]
async fn init_containers_end_with_the_exit_code_of_the_command_or_script(
    #[case] script: PodScript,
    #[case] command: Value,
    #[case] phase: &str,
    #[case] code: i32,
) {
    let cluster = Cluster::start();
    cluster.0.kubelet().script(PodSelector::all(), script);
    let main = json!({"name": "main", "image": "busybox", "command": ["true"]});
    let init = json!([{"name": "first", "image": "busybox", "command": command}]);
    cluster
        .create(pod(
            json!({"restartPolicy": "Never", "initContainers": init, "containers": [main]}),
        ))
        .await;
    cluster.pass(5.0).await;
    let one = one(&cluster).await;
    assert_eq!(one["status"]["phase"], phase);
    assert_eq!(
        one["status"]["initContainerStatuses"][0]["state"]["terminated"]["exitCode"],
        code
    );
}

#[rstest]
#[case::failed_container("FallbackToLogsOnError", "echo -n DONE; exit 1", json!("DONE"))]
#[case::succeeded_container("FallbackToLogsOnError", "echo -n DONE", Value::Null)]
#[case::another_policy("File", "echo -n DONE; exit 1", Value::Null)]
#[tokio::test(start_paused = true)]
async fn output_is_the_termination_message_of_failed_containers_if_the_policy_is_fallback(
    #[case] policy: &str,
    #[case] script: &str,
    #[case] message: Value,
) {
    let cluster = Cluster::start();
    let main = json!({
        "name": "main", "image": "busybox", "command": ["sh", "-c", script], "terminationMessagePolicy": policy,
    });
    cluster
        .create(pod(json!({"restartPolicy": "Never", "containers": [main]})))
        .await;
    cluster.pass(3.0).await;
    let status = one(&cluster).await["status"]["containerStatuses"][0].clone();
    assert_eq!(status["state"]["terminated"]["message"], message, "{status:#}");
}

#[rstest]
#[case::unknown_variable("$(NOPE)", "missing value for NOPE")]
#[case::absolute_path("$(ABSOLUTE)", "error SubPath `/tmp` must not be an absolute path")]
#[case::path_to_the_parent("a/$(UP)", "unable to provision SubPath `a/..`: must not contain '..'")]
#[tokio::test(start_paused = true)]
async fn invalid_sub_path_prevents_containers_from_starting(#[case] expression: &str, #[case] why: &str) {
    let cluster = Cluster::start();
    cluster.create(with_sub_path(expression)).await;
    cluster.pass(3.0).await;
    let one = one(&cluster).await;
    let waiting = &one["status"]["containerStatuses"][0]["state"]["waiting"];
    assert_eq!(waiting["reason"], "CreateContainerConfigError");
    assert_eq!(waiting["message"], why);
    assert_eq!(one["status"]["phase"], "Pending");
    assert_eq!(cluster.events("Failed").await, [format!("Error: {why}")]);
}

#[tokio::test(start_paused = true)]
async fn containers_start_when_the_sub_path_becomes_valid() {
    let cluster = Cluster::start();
    cluster.create(with_sub_path("$(NOTE)/$(NAME)")).await;
    cluster.pass(3.0).await;
    assert_eq!(one(&cluster).await["status"]["phase"], "Pending");
    cluster
        .patch(
            "v1",
            "Pod",
            "one",
            json!({"metadata": {"annotations": {"note": "here"}}}),
        )
        .await;
    cluster.pass(1.0).await;
    assert_eq!(one(&cluster).await["status"]["phase"], "Running");
}

fn with_sub_path(expression: &str) -> Value {
    let field = |path: &str| json!({"fieldRef": {"fieldPath": path}});
    let main = json!({
        "name": "main", "image": "nginx:1",
        "env": [
            {"name": "ABSOLUTE", "value": "/tmp"}, {"name": "UP", "value": ".."},
            {"name": "NAME", "valueFrom": field("metadata.name")},
            {"name": "NOTE", "valueFrom": field("metadata.annotations['note']")},
        ],
        "volumeMounts": [{"name": "work", "mountPath": "/work", "subPathExpr": expression}],
    });
    pod(json!({"containers": [main], "volumes": [{"name": "work", "emptyDir": {}}]}))
}
