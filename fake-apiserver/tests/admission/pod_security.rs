//! The plugin PodSecurity: levels of namespaces, and the checks of Pods.

use fake_apiserver::ApiServer;
use http::Method;
use rstest::rstest;
use serde_json::{Value, json};

use crate::ask::{Answer, ask, made, post};

const ENFORCE: &str = "pod-security.kubernetes.io/enforce";
const VERSION: &str = "pod-security.kubernetes.io/enforce-version";

/// Returns a server with a namespace `a` that has these labels.
async fn server(labels: Value) -> ApiServer {
    let server = ApiServer::start();
    let namespace = json!({"metadata": {"name": "a", "labels": labels}});
    made(&post(&server, "/api/v1/namespaces", namespace).await);
    server
}

/// Returns a container that meets the level `restricted`, with other values for some fields of its security context.
fn container(name: &str, changes: &Value) -> Value {
    let mut context = json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"}, "runAsNonRoot": true});
    for (field, value) in changes.as_object().into_iter().flatten() {
        context[field] = value.clone();
    }
    json!({"name": name, "image": "i", "securityContext": context})
}

async fn create(server: &ApiServer, spec: Value, contexts: &[Value]) -> Answer {
    let names = ["c", "d"];
    let mut spec = spec;
    spec["containers"] = contexts
        .iter()
        .zip(names)
        .map(|(it, name)| container(name, it))
        .collect();
    let pod = json!({"metadata": {"name": "p"}, "spec": spec});
    post(server, "/api/v1/namespaces/a/pods", pod).await
}

#[rstest]
#[case::root_in_a_user_namespace("restricted", json!({"hostUsers": false}),
    json!([{"runAsNonRoot": false, "runAsUser": 0}]))]
#[case::unset_run_as_non_root_in_a_user_namespace("restricted", json!({"hostUsers": false}), json!([{"runAsNonRoot": null}]))]
#[case::proc_mount_in_a_user_namespace("baseline", json!({"hostUsers": false}), json!([{"procMount": "Unmasked"}]))]
#[case::windows_pod("restricted", json!({"os": {"name": "windows"}}), json!([
    {"allowPrivilegeEscalation": null, "capabilities": null, "seccompProfile": null}]))]
#[case::allowed_sysctls("baseline", json!({"securityContext": {"sysctls": [
    {"name": "net.ipv4.tcp_rmem", "value": "1"}, {"name": "net.ipv4.tcp_wmem", "value": "1"}]}}), json!([{}]))]
#[case::volume_of_a_secret("restricted", json!({"volumes": [{"name": "v", "secret": {"secretName": "s"}}]}), json!([{}]))]
#[case::allowed_profiles("baseline", json!({"securityContext": {"appArmorProfile": {"type": "RuntimeDefault"}}}),
    json!([{"seLinuxOptions": {"type": "container_engine_t", "level": "s0"}}]))]
#[tokio::test(start_paused = true)]
async fn compliant_pod_is_accepted(#[case] level: &str, #[case] spec: Value, #[case] contexts: Value) {
    let server = server(json!({ ENFORCE: level })).await;
    let contexts = contexts.as_array().cloned().unwrap_or_default();
    made(&create(&server, spec, &contexts).await);
}

fn unconfined() -> Value {
    json!({"type": "Unconfined"})
}

#[rstest]
#[case::proc_mount_in_a_user_namespace("restricted", json!({"hostUsers": false}), json!([{"procMount": "Unmasked"}]),
    r#"procMount (container "c" must not set securityContext.procMount to "Unmasked")"#)]
#[case::windows_pod("restricted", json!({"os": {"name": "windows"}}), json!([
    {"allowPrivilegeEscalation": null, "capabilities": null, "seccompProfile": null, "runAsNonRoot": null}]),
    r#"runAsNonRoot != true (pod or container "c" must set securityContext.runAsNonRoot=true)"#)]
#[case::violation_of_the_pod_and_a_container("restricted",
    json!({"securityContext": {"runAsNonRoot": false, "runAsUser": 0, "seccompProfile": unconfined()}}),
    json!([{"runAsNonRoot": false, "runAsUser": 0, "seccompProfile": unconfined()}]),
    r#"runAsNonRoot != true (pod and container "c" must not set securityContext.runAsNonRoot=false), runAsUser=0 (pod and container "c" must not set runAsUser=0), seccompProfile (pod and container "c" must not set securityContext.seccompProfile.type to "Unconfined")"#)]
#[case::violation_of_the_pod("restricted",
    json!({"securityContext": {"runAsNonRoot": false, "runAsUser": 0, "seccompProfile": unconfined()}}), json!([{}]),
    r#"runAsNonRoot != true (pod must not set securityContext.runAsNonRoot=false), runAsUser=0 (pod must not set runAsUser=0), seccompProfile (pod must not set securityContext.seccompProfile.type to "Unconfined")"#)]
#[case::violation_of_the_baseline("baseline", json!({"securityContext": {"seccompProfile": unconfined()}}),
    json!([{"seccompProfile": unconfined()}, {"seccompProfile": unconfined()}]),
    r#"seccompProfile (pod and containers "c", "d" must not set securityContext.seccompProfile.type to "Unconfined")"#)]
#[case::explicit_seccomp_profile("restricted", json!({}),
    json!([{"seccompProfile": unconfined()}, {"seccompProfile": null}]),
    r#"seccompProfile (container "c" must not set securityContext.seccompProfile.type to "Unconfined")"#)]
#[case::order_of_violations("restricted", json!({"hostUsers": false}),
    json!([{"procMount": "Unmasked", "allowPrivilegeEscalation": null, "capabilities": null}]),
    r#"allowPrivilegeEscalation != false (container "c" must set securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (container "c" must set securityContext.capabilities.drop=["ALL"]), procMount (container "c" must not set securityContext.procMount to "Unmasked")"#)]
#[case::order_of_host_ports("baseline", json!({"initContainers": [{"name": "i", "image": "i", "ports": [
    {"containerPort": 1, "hostPort": 9000}, {"containerPort": 2, "hostPort": 10000}]}]}), json!([{}]),
    r#"hostPort (container "i" uses hostPorts 10000, 9000)"#)]
#[case::app_armor("baseline", json!({"securityContext": {"appArmorProfile": {"type": "Unconfined"}}}),
    json!([{"appArmorProfile": {"type": "Unconfined"}}, {}]),
    r#"forbidden AppArmor profile (pod and container "c" must not set AppArmor profile type to "Unconfined")"#)]
#[case::se_linux("baseline", json!({"securityContext": {"seLinuxOptions": {"type": "spc_t", "user": "u"}}}),
    json!([{"seLinuxOptions": {"role": "r"}}, {}]),
    r#"seLinuxOptions (pod and container "c" set forbidden securityContext.seLinuxOptions: type "spc_t"; user may not be set; role may not be set)"#)]
#[case::process_on_a_windows_host("baseline",
    json!({"hostNetwork": true, "securityContext": {"windowsOptions": {"hostProcess": true}}}), json!([{}]),
    r#"host namespaces (hostNetwork=true), hostProcess (pod must not set securityContext.windowsOptions.hostProcess=true)"#)]
#[case::host_of_a_probe("restricted", json!({"initContainers": [{"name": "i", "image": "i", "restartPolicy": "Always",
    "securityContext": container("i", &json!({}))["securityContext"],
    "livenessProbe": {"httpGet": {"host": "10.0.0.1", "port": 80}}}]}), json!([{}]),
    r#"probe or lifecycle host (container "i" uses probe or lifecycle host "10.0.0.1")"#)]
#[tokio::test(start_paused = true)]
async fn violations_are_listed(
    #[case] level: &str,
    #[case] spec: Value,
    #[case] contexts: Value,
    #[case] violations: &str,
) {
    let server = server(json!({ ENFORCE: level })).await;
    let contexts = contexts.as_array().cloned().unwrap_or_default();
    let answer = create(&server, spec, &contexts).await;
    let why = format!("pods \"p\" is forbidden: violates PodSecurity \"{level}:latest\": {violations}");
    assert_eq!(answer.failure(), (403, why.as_str()));
}

fn sysctl() -> Value {
    json!({"securityContext": {"sysctls": [{"name": "net.ipv4.tcp_rmem", "value": "1"}]}})
}

fn probe() -> Value {
    json!({"initContainers": [{"name": "i", "image": "i", "restartPolicy": "Always",
        "livenessProbe": {"tcpSocket": {"host": "10.0.0.1", "port": 80}}}]})
}

#[rstest]
#[case::sysctl_before_it_was_permitted("v1.31", sysctl(), "forbidden sysctls (net.ipv4.tcp_rmem)")]
#[case::sysctl_since_it_is_permitted("v1.32", sysctl(), "")]
#[case::host_of_a_probe_before_it_was_forbidden("v1.33", probe(), "")]
#[case::host_of_a_probe_since_it_is_forbidden(
    "v1.34",
    probe(),
    r#"probe or lifecycle host (container "i" uses probe or lifecycle host "10.0.0.1")"#
)]
#[case::later_version_than_the_server(
    "v1.300",
    probe(),
    r#"probe or lifecycle host (container "i" uses probe or lifecycle host "10.0.0.1")"#
)]
#[tokio::test(start_paused = true)]
async fn version_of_the_policy_determines_the_checks(
    #[case] version: &str,
    #[case] spec: Value,
    #[case] violations: &str,
) {
    let server = server(json!({ ENFORCE: "baseline", VERSION: version })).await;
    let answer = create(&server, spec, &[json!({})]).await;
    if violations.is_empty() {
        made(&answer);
        return;
    }
    let why = format!("pods \"p\" is forbidden: violates PodSecurity \"baseline:{version}\": {violations}");
    assert_eq!(answer.failure(), (403, why.as_str()));
}

#[tokio::test(start_paused = true)]
async fn app_armor_annotations_of_a_template_are_checked() {
    let server = server(json!({"pod-security.kubernetes.io/warn": "baseline"})).await;
    let annotation = "container.apparmor.security.beta.kubernetes.io/c";
    let template = json!({"metadata": {"labels": {"a": "b"}, "annotations": {annotation: "unconfined"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let deployment = json!({"metadata": {"name": "d"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}});
    let answer = post(&server, "/apis/apps/v1/namespaces/a/deployments", deployment).await;
    let warnings = answer.warnings.join("\n").replace('\\', "");
    let expected = format!(
        "would violate PodSecurity \"baseline:latest\": forbidden AppArmor profile (annotation must not set AppArmor \
         profile type to \"{annotation}=\"unconfined\"\")"
    );
    assert!(warnings.contains(&expected), "{warnings}");
}

#[rstest]
#[case::label_change("", json!({"metadata": {"labels": {"x": "y"}}}), 1)]
#[case::empty_patch("", json!({}), 1)]
#[case::status_subresource("/status", json!({"status": {"observedGeneration": 2}}), 0)]
#[case::scale_subresource("/scale", json!({"spec": {"replicas": 2}}), 0)]
#[tokio::test(start_paused = true)]
async fn updates_of_a_controller_are_evaluated_except_subresources(
    #[case] subresource: &str,
    #[case] change: Value,
    #[case] warnings: usize,
) {
    let server = server(json!({"pod-security.kubernetes.io/warn": "restricted"})).await;
    let path = "/apis/apps/v1/namespaces/a/deployments";
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let deployment = json!({"metadata": {"name": "d"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}});
    assert_eq!(post(&server, path, deployment).await.warnings.len(), 1);
    let answer = ask(&server, Method::PATCH, &format!("{path}/d{subresource}"), change).await;
    assert_eq!((answer.code, answer.warnings.len()), (200, warnings), "{answer:?}");
}

#[tokio::test(start_paused = true)]
async fn existing_pods_are_evaluated_again_for_another_version() {
    let server = server(json!({})).await;
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    made(&post(&server, "/api/v1/namespaces/a/pods", pod).await);
    let steps = [
        (json!({ENFORCE: "restricted"}), Some("restricted:latest")),
        (json!({VERSION: "v1.30"}), Some("restricted:v1.30")),
        (json!({ENFORCE: "baseline", VERSION: "v1.31"}), None),
        (json!({ENFORCE: "restricted"}), Some("restricted:v1.31")),
        (json!({ENFORCE: "baseline"}), None),
    ];
    for (labels, level) in steps {
        let change = json!({"metadata": {"labels": labels}});
        let answer = ask(&server, Method::PATCH, "/api/v1/namespaces/a", change).await;
        assert_eq!(answer.code, 200);
        let first = level.map(|it| {
            format!(
                "299 - \"existing pods in namespace \\\"a\\\" violate the new PodSecurity enforce level \\\"{it}\\\"\""
            )
        });
        assert_eq!(answer.warnings.first(), first.as_ref());
    }
}

#[tokio::test(start_paused = true)]
async fn existing_malformed_labels_do_not_prevent_updates() {
    let server = ApiServer::start();
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a",
        "labels": {ENFORCE: "bad"}}});
    server.load([namespace]).expect("the object is a namespace");
    let change = |labels: Value| {
        let body = json!({"metadata": {"labels": labels}});
        ask(&server, Method::PATCH, "/api/v1/namespaces/a", body)
    };
    assert_eq!(change(json!({"x": "y"})).await.code, 200);
    assert_eq!(change(json!({VERSION: "worse"})).await.code, 422);
    assert_eq!(change(json!({ENFORCE: "worse"})).await.code, 422);
}
