//! The server's own plugins: LimitRange, ResourceQuota, ServiceAccount, classes.

use fake_apiserver::ApiServer;
use http::Method;
use rstest::rstest;
use serde_json::{Value, json};

use crate::ask::{MAPS, ask, made, map, post};

const PODS: &str = "/api/v1/namespaces/default/pods";

fn pod(name: &str, resources: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": resources}]}})
}

async fn limited(limits: Value) -> ApiServer {
    let server = ApiServer::start();
    let range = json!({"metadata": {"name": "l"}, "spec": {"limits": [limits]}});
    made(&post(&server, "/api/v1/namespaces/default/limitranges", range).await);
    server
}

#[rstest]
#[case::limit_above_the_maximum(json!({"type": "Container", "max": {"cpu": "1"}}), json!({"limits": {"cpu": "2"}}),
    "maximum cpu usage per Container is 1, but limit is 2")]
#[case::request_below_the_minimum(json!({"type": "Container", "min": {"memory": "1Gi"}}), json!({"requests": {"memory": "512Mi"}}),
    "minimum memory usage per Container is 1Gi, but request is 512Mi")]
#[case::missing_request(json!({"type": "Pod", "min": {"cpu": "1"}}), json!({}),
    "minimum cpu usage per Pod is 1.  No request is specified")]
#[case::ratio_above_the_maximum(json!({"type": "Container", "maxLimitRequestRatio": {"cpu": "2"}}),
    json!({"requests": {"cpu": "1"}, "limits": {"cpu": "3"}}),
    "cpu max limit to request ratio per Container is 2, but provided ratio is 3.000000")]
#[tokio::test(start_paused = true)]
async fn p9_limit_range_is_enforced(#[case] limits: Value, #[case] resources: Value, #[case] why: &str) {
    let server = limited(limits).await;
    let answer = post(&server, PODS, pod("a", resources)).await;
    assert_eq!(
        answer.failure(),
        (403, format!("pods \"a\" is forbidden: {why}").as_str())
    );
}

#[tokio::test(start_paused = true)]
async fn p9_limit_range_defaults_are_set_and_annotated() {
    let limits =
        json!({"type": "Container", "default": {"cpu": "1", "memory": "1Gi"}, "defaultRequest": {"cpu": "100m"}});
    let server = limited(limits).await;
    let answer = post(&server, PODS, pod("a", json!({"limits": {"cpu": "2"}}))).await;
    let resources = json!({"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "2", "memory": "1Gi"}});
    assert_eq!(answer.body["spec"]["containers"][0]["resources"], resources);
    let said = "LimitRanger plugin set: memory request for container c; memory limit for container c";
    assert_eq!(
        answer.body["metadata"]["annotations"]["kubernetes.io/limit-ranger"],
        said
    );
}

async fn counted(spec: Value) -> ApiServer {
    let server = ApiServer::builder().resource_quota_controller().start();
    let quota = json!({"metadata": {"name": "q"}, "spec": spec});
    made(&post(&server, "/api/v1/namespaces/default/resourcequotas", quota).await);
    server
}

async fn used(server: &ApiServer) -> Value {
    let quota = server
        .get("v1", "ResourceQuota", "default", "q")
        .await
        .expect("the object exists");
    quota["status"]["used"].clone()
}

#[cfg(feature = "workers")]
#[tokio::test(start_paused = true)]
async fn p9_quota_usage_is_correct_if_all_workers_run() {
    let server = ApiServer::builder().workers(fake_apiserver::Worker::ALL).start();
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"count/configmaps": "5"}}});
    made(&post(&server, "/api/v1/namespaces/default/resourcequotas", quota).await);
    made(&post(&server, MAPS, map("a")).await);
    let count = server
        .list("v1", "ConfigMap", "default")
        .await
        .expect("the kind is served")
        .len();
    assert_eq!(used(&server).await["count/configmaps"], count.to_string());
}

#[tokio::test(start_paused = true)]
async fn p9_quota_usage_increases_and_decreases() {
    let server = counted(json!({"hard": {"configmaps": "1", "count/configmaps": "5"}})).await;
    made(&post(&server, MAPS, map("a")).await);
    assert_eq!(used(&server).await, json!({"configmaps": "1", "count/configmaps": "1"}));
    let answer = post(&server, MAPS, map("b")).await;
    let why = "configmaps \"b\" is forbidden: exceeded quota: q, requested: configmaps=1, used: configmaps=1, limited: \
               configmaps=1";
    assert_eq!(answer.failure(), (403, why));
    ask(&server, Method::DELETE, &format!("{MAPS}/a"), Value::Null).await;
    assert_eq!(used(&server).await, json!({"configmaps": "0", "count/configmaps": "0"}));
    made(&post(&server, MAPS, map("b")).await);
}

#[rstest]
#[case::requests(json!({"requests.cpu": "1"}), json!({"requests": {"cpu": "600m"}}),
    "exceeded quota: q, requested: requests.cpu=600m, used: requests.cpu=600m, limited: requests.cpu=1")]
#[case::limits(json!({"limits.memory": "1Gi", "pods": "9"}), json!({"limits": {"memory": "768Mi"}}),
    "exceeded quota: q, requested: limits.memory=768Mi, used: limits.memory=768Mi, limited: limits.memory=1Gi")]
#[tokio::test(start_paused = true)]
async fn p9_quota_limits_compute_resources(#[case] hard: Value, #[case] resources: Value, #[case] why: &str) {
    let server = counted(json!({"hard": hard})).await;
    made(&post(&server, PODS, pod("a", resources.clone())).await);
    let answer = post(&server, PODS, pod("b", resources)).await;
    assert_eq!(
        answer.failure(),
        (403, format!("pods \"b\" is forbidden: {why}").as_str())
    );
}

#[tokio::test(start_paused = true)]
async fn p9_quota_requires_declared_resources() {
    let server = counted(json!({"hard": {"limits.cpu": "1", "requests.memory": "1Gi"}})).await;
    let answer = post(&server, PODS, pod("a", json!({}))).await;
    let why = "pods \"a\" is forbidden: failed quota: q: must specify limits.cpu for: c; requests.memory for: c";
    assert_eq!(answer.failure(), (403, why));
}

#[tokio::test(start_paused = true)]
async fn p9_quota_scopes_select_pods() {
    let server = counted(json!({"hard": {"pods": "0"}, "scopes": ["BestEffort"]})).await;
    assert_eq!(post(&server, PODS, pod("a", json!({}))).await.code, 403);
    made(&post(&server, PODS, pod("b", json!({"requests": {"cpu": "1"}}))).await);
}

#[tokio::test(start_paused = true)]
async fn p9_quota_counts_existing_and_changed_objects() {
    let server = ApiServer::builder().resource_quota_controller().start();
    let quotas = "/api/v1/namespaces/default/resourcequotas";
    let cpu = |amount: &str| json!({"requests": {"cpu": amount}});
    made(&post(&server, PODS, pod("before", cpu("100m"))).await);
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"pods": "9", "requests.cpu": "9"}}});
    made(&post(&server, quotas, quota).await);
    assert_eq!(used(&server).await, json!({"pods": "1", "requests.cpu": "100m"}));
    made(&post(&server, PODS, pod("a", cpu("200m"))).await);
    made(&post(&server, PODS, pod("b", cpu("1"))).await);
    assert_eq!(used(&server).await, json!({"pods": "3", "requests.cpu": "1300m"}));
    // A Pod that has ended does not count.
    ask(
        &server,
        Method::PATCH,
        &format!("{PODS}/b/status"),
        json!({"status": {"phase": "Succeeded"}}),
    )
    .await;
    assert_eq!(used(&server).await, json!({"pods": "2", "requests.cpu": "300m"}));
    // Clients cannot overwrite the status.
    let wrong = json!({"status": {"used": {"pods": "7"}}});
    ask(&server, Method::PATCH, &format!("{quotas}/q/status"), wrong).await;
    assert_eq!(used(&server).await, json!({"pods": "2", "requests.cpu": "300m"}));
    let wider = json!({"spec": {"hard": {"pods": null, "requests.cpu": null, "count/pods": "9"}}});
    ask(&server, Method::PATCH, &format!("{quotas}/q"), wider).await;
    assert_eq!(used(&server).await, json!({"count/pods": "3"}));
    ask(
        &server,
        Method::DELETE,
        &format!("{PODS}/a?gracePeriodSeconds=0"),
        Value::Null,
    )
    .await;
    assert_eq!(used(&server).await, json!({"count/pods": "2"}));
    let fork = server.fork();
    made(&post(&fork, PODS, pod("c", cpu("1"))).await);
    assert_eq!(used(&fork).await, json!({"count/pods": "3"}));
    assert_eq!(used(&server).await, json!({"count/pods": "2"}));
    // The fork has a different state with the same revisions.
    server.restore(&fork.snapshot());
    made(&post(&server, PODS, pod("d", cpu("1"))).await);
    assert_eq!(used(&server).await, json!({"count/pods": "4"}));
}

#[tokio::test(start_paused = true)]
async fn p9_quota_without_a_controller_counts_from_the_recorded_status() {
    let server = ApiServer::start();
    let quotas = "/api/v1/namespaces/default/resourcequotas";
    made(
        &post(
            &server,
            quotas,
            json!({"metadata": {"name": "q"}, "spec": {"hard": {"configmaps": "1"}}}),
        )
        .await,
    );
    made(&post(&server, MAPS, map("a")).await);
    let status = json!({"status": {"hard": {"configmaps": "2"}, "used": {"configmaps": "1"}}});
    ask(&server, Method::PATCH, &format!("{quotas}/q/status"), status).await;
    made(&post(&server, &format!("{MAPS}?dryRun=All"), map("b")).await);
    assert_eq!(used(&server).await, json!({"configmaps": "1"}));
    made(&post(&server, MAPS, map("b")).await);
    assert_eq!(used(&server).await, json!({"configmaps": "2"}));
    assert_eq!(post(&server, MAPS, map("c")).await.code, 403);
}

#[tokio::test(start_paused = true)]
async fn p9_service_account_admission_adds_account_token_and_pull_secrets_to_pods() {
    let server = ApiServer::builder().service_account_admission().start();
    let answer = post(&server, PODS, pod("a", json!({}))).await;
    let why = "pods \"a\" is forbidden: error looking up service account default/default: serviceaccount \"default\" not \
               found";
    assert_eq!(answer.failure(), (403, why));
    let account = json!({"metadata": {"name": "default"}, "imagePullSecrets": [{"name": "s"}]});
    made(&post(&server, "/api/v1/namespaces/default/serviceaccounts", account).await);
    let answer = post(&server, PODS, pod("a", json!({}))).await;
    let spec = &answer.body["spec"];
    assert_eq!(
        (&spec["serviceAccountName"], &spec["serviceAccount"]),
        (&json!("default"), &json!("default"))
    );
    assert_eq!(spec["imagePullSecrets"], json!([{"name": "s"}]));
    let mount = &spec["containers"][0]["volumeMounts"][0];
    assert_eq!(mount["mountPath"], "/var/run/secrets/kubernetes.io/serviceaccount");
    assert_eq!(mount["name"], spec["volumes"][0]["name"]);
    let token = json!({"expirationSeconds": 3607, "path": "token"});
    assert_eq!(
        spec["volumes"][0]["projected"]["sources"][0]["serviceAccountToken"],
        token
    );
}

#[tokio::test(start_paused = true)]
async fn p9_newest_default_storage_class_is_used() {
    let server = ApiServer::start();
    let class = |name: &str| {
        json!({"metadata": {"name": name, "annotations": {
        "storageclass.kubernetes.io/is-default-class": "true"}}, "provisioner": "p"})
    };
    made(&post(&server, "/apis/storage.k8s.io/v1/storageclasses", class("a")).await);
    tokio::time::advance(std::time::Duration::from_secs(5)).await;
    made(&post(&server, "/apis/storage.k8s.io/v1/storageclasses", class("b")).await);
    let claim = json!({"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}}});
    let answer = post(&server, "/api/v1/namespaces/default/persistentvolumeclaims", claim).await;
    assert_eq!(answer.body["spec"]["storageClassName"], "b", "{}", answer.body);
}

#[rstest]
#[case::unchanged_size("slow", "1Gi", None)]
#[case::expandable_class("fast", "2Gi", None)]
#[case::class_that_forbids_expansion(
    "slow",
    "2Gi",
    Some(
        "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize"
    )
)]
#[tokio::test(start_paused = true)]
async fn p9_claims_can_only_grow_if_the_storage_class_permits_expansion(
    #[case] class: &str,
    #[case] size: &str,
    #[case] refused: Option<&str>,
) {
    let server = ApiServer::start();
    for (name, allowed) in [("fast", true), ("slow", false)] {
        let class =
            json!({"metadata": {"name": name}, "provisioner": "example.com/p", "allowVolumeExpansion": allowed});
        made(&post(&server, "/apis/storage.k8s.io/v1/storageclasses", class).await);
    }
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c"}, "status": {"phase": "Bound"},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": class, "volumeName": "v",
            "resources": {"requests": {"storage": "1Gi"}}},
    });
    server.load([claim]).expect("the object is a claim");
    let path = "/api/v1/namespaces/default/persistentvolumeclaims/c";
    let patch = json!({"spec": {"resources": {"requests": {"storage": size}}}});
    let answer = ask(&server, Method::PATCH, path, patch).await;
    let why = refused.map(|why| format!("persistentvolumeclaims \"c\" is forbidden: {why}"));
    match why {
        None => assert_eq!(answer.code, 200, "{}", answer.body),
        Some(why) => assert_eq!(answer.failure(), (403, why.as_str())),
    }
}

#[tokio::test(start_paused = true)]
async fn p9_pod_security_warns_about_templates_and_checks_pods_with_new_images() {
    let server = ApiServer::start();
    let level = |level: &str| json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": level}}});
    let spec = json!({"hostNetwork": true, "containers": [{"name": "a", "image": "b"}]});
    let pods = "/api/v1/namespaces/default/pods";
    made(&post(&server, pods, json!({"metadata": {"name": "p"}, "spec": spec})).await);
    ask(&server, Method::PATCH, "/api/v1/namespaces/default", level("baseline")).await;
    let template = json!({"metadata": {"name": "t"}, "template": {"spec": spec}});
    let answer = post(&server, "/api/v1/namespaces/default/podtemplates", template).await;
    assert_eq!(answer.code, 201, "{}", answer.body);
    let warning = "299 - \"would violate PodSecurity \\\"baseline:latest\\\": host namespaces (hostNetwork=true)\"";
    assert_eq!(answer.warnings, [warning]);
    let pod = format!("{pods}/p");
    let labelled = ask(
        &server,
        Method::PATCH,
        &pod,
        json!({"metadata": {"labels": {"a": "b"}}}),
    )
    .await;
    assert_eq!(labelled.code, 200, "{}", labelled.body);
    let image = json!({"spec": {"containers": [{"name": "a", "image": "c"}]}});
    let changed = ask(&server, Method::PATCH, &pod, image).await;
    let why = "pods \"p\" is forbidden: violates PodSecurity \"baseline:latest\": host namespaces (hostNetwork=true)";
    assert_eq!(changed.failure(), (403, why));
}

#[rstest]
#[case::latest("latest", true)]
#[case::minor("v1.30", true)]
#[case::first_minor("v1.0", true)]
#[case::patch("v1.30.1", false)]
#[case::leading_zero("v1.030", false)]
#[case::other_major("v2.1", false)]
#[case::empty("", false)]
#[tokio::test(start_paused = true)]
async fn p9_pod_security_version_in_a_namespace_label_is_validated(#[case] version: &str, #[case] is_right: bool) {
    let label = "pod-security.kubernetes.io/warn-version";
    let namespace = json!({"metadata": {"name": "a", "labels": {label: version}}});
    let answer = post(&ApiServer::start(), "/api/v1/namespaces", namespace).await;
    if is_right {
        return made(&answer);
    }
    let why = format!(
        "Namespace \"a\" is invalid: metadata.labels[{label}]: Invalid value: \"{version}\": must be \"latest\" or \
         \"v1.x\""
    );
    assert_eq!(answer.failure(), (422, why.as_str()));
}

#[tokio::test(start_paused = true)]
async fn p9_limits_do_not_apply_to_claims_that_are_being_deleted() {
    let server = limited(json!({"type": "PersistentVolumeClaim", "min": {"storage": "2Gi"}})).await;
    let claim = |name: &str| {
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "uid": name, "finalizers": ["example.com/f"]},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}})
    };
    server.load([claim("a"), claim("b")]).expect("the objects are claims");
    let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
    assert_eq!(
        ask(&server, Method::DELETE, &format!("{claims}/a"), Value::Null)
            .await
            .code,
        200
    );
    let patch = || json!({"metadata": {"labels": {"a": "b"}}});
    let answer = ask(&server, Method::PATCH, &format!("{claims}/a"), patch()).await;
    assert_eq!(answer.code, 200, "{}", answer.body);
    let answer = ask(&server, Method::PATCH, &format!("{claims}/b"), patch()).await;
    assert_eq!(answer.code, 403, "{}", answer.body);
}

#[tokio::test(start_paused = true)]
async fn p9_only_one_priority_class_can_be_the_default() {
    const CLASSES: &str = "/apis/scheduling.k8s.io/v1/priorityclasses";
    let server = ApiServer::start();
    let class =
        |name: &str, is_default: bool| json!({"metadata": {"name": name}, "value": 5, "globalDefault": is_default});
    made(&post(&server, CLASSES, class("a", true)).await);
    let why = "is forbidden: PriorityClass a is already marked as default. Only one default can exist";
    let refusal = format!("priorityclasses.scheduling.k8s.io \"b\" {why}");
    assert_eq!(
        post(&server, CLASSES, class("b", true)).await.failure(),
        (403, refusal.as_str())
    );
    made(&post(&server, CLASSES, class("b", false)).await);
    let mark = || json!({"globalDefault": true, "description": "x"});
    let answer = ask(&server, Method::PATCH, &format!("{CLASSES}/b"), mark()).await;
    assert_eq!(answer.failure(), (403, refusal.as_str()));
    let answer = ask(&server, Method::PATCH, &format!("{CLASSES}/a"), mark()).await;
    assert_eq!(answer.code, 200, "{}", answer.body);
}

/// Returns a server with a RuntimeClass `r`.
async fn with_runtime_class(class: Value) -> ApiServer {
    let server = ApiServer::start();
    let mut whole = json!({"metadata": {"name": "r"}, "handler": "h"});
    for (field, value) in class.as_object().into_iter().flatten() {
        whole[field] = value.clone();
    }
    made(&post(&server, "/apis/node.k8s.io/v1/runtimeclasses", whole).await);
    server
}

fn pod_of_class(spec: Value) -> Value {
    let mut whole = pod("a", json!({}));
    whole["spec"]["runtimeClassName"] = json!("r");
    for (field, value) in spec.as_object().into_iter().flatten() {
        whole["spec"][field] = value.clone();
    }
    whole
}

#[rstest]
#[case::added(json!([{"key": "k", "operator": "Exists"}]), json!([]), json!([["k", null]]))]
#[case::equal(json!([{"key": "k", "operator": "Exists"}]), json!([{"key": "k", "operator": "Exists"}]),
    json!([["k", null]]))]
#[case::covered_by_the_class(json!([{"key": "k", "operator": "Exists"}]),
    json!([{"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"}]), json!([["k", null]]))]
#[case::covered_by_the_pod(json!([{"key": "k", "operator": "Equal", "value": "v"}]),
    json!([{"key": "k", "operator": "Exists"}]), json!([["k", null]]))]
#[case::shorter_time(
    json!([{"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}]),
    json!([{"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 9}]), json!([["k", 9]]))]
#[tokio::test(start_paused = true)]
async fn p9_tolerations_of_a_runtime_class_are_merged(#[case] class: Value, #[case] own: Value, #[case] kept: Value) {
    let server = with_runtime_class(json!({"scheduling": {"tolerations": class}})).await;
    let answer = post(&server, PODS, pod_of_class(json!({"tolerations": own}))).await;
    let all = answer.body["spec"]["tolerations"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let default = |it: &Value| {
        it["key"]
            .as_str()
            .is_some_and(|it| it.starts_with("node.kubernetes.io/"))
    };
    let rest = all.iter().filter(|it| !default(it));
    let rest: Vec<Value> = rest.map(|it| json!([it["key"], it["tolerationSeconds"]])).collect();
    assert_eq!(json!(rest), kept, "{}", answer.body);
    assert_eq!(all.len() - rest.len(), 2, "{}", answer.body);
}

/// `RuntimeClass` runs after `DefaultTolerationSeconds`, and removes its tolerations if the class covers them.
#[tokio::test(start_paused = true)]
async fn p9_runtime_class_that_tolerates_everything_replaces_the_default_tolerations() {
    let server = with_runtime_class(json!({"scheduling": {"tolerations": [{"operator": "Exists"}]}})).await;
    let answer = post(&server, PODS, pod_of_class(json!({}))).await;
    assert_eq!(
        answer.body["spec"]["tolerations"],
        json!([{"operator": "Exists"}]),
        "{}",
        answer.body
    );
}

#[rstest]
#[case::overhead_without_a_class(json!({"runtimeClassName": null, "overhead": {"cpu": "1"}}),
    "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead")]
#[case::missing_class(json!({"runtimeClassName": "none", "priorityClassName": "none"}),
    "no PriorityClass with name none was found")]
#[case::different_overhead(json!({"overhead": {"cpu": "1"}}),
    "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")]
#[tokio::test(start_paused = true)]
async fn p9_overhead_of_a_runtime_class_is_checked(#[case] spec: Value, #[case] why: &str) {
    let server = with_runtime_class(json!({"overhead": {"podFixed": {"cpu": "2"}}})).await;
    let answer = post(&server, PODS, pod_of_class(spec)).await;
    assert_eq!(
        answer.failure(),
        (403, format!("pods \"a\" is forbidden: {why}").as_str())
    );
}

#[rstest]
#[case::enough_capacity(json!({"cpu": "2"}), None)]
#[case::insufficient_capacity(json!({"cpu": "5", "memory": "2Gi"}), Some(("NodeCapacity",
    "node didn't have enough allocatable resources: cpu, requested: 5500, allocatable: 4000; memory, requested: \
     2147483648, allocatable: 1073741824")))]
#[case::unchanged(json!({"cpu": "1"}), None)]
#[tokio::test(start_paused = true)]
async fn p9_resized_pod_must_fit_on_its_node(#[case] asked: Value, #[case] refused: Option<(&str, &str)>) {
    let server = on_node(json!({}), "linux");
    let answer = resize(&server, asked).await;
    match refused {
        None => assert_eq!(answer.code, 200, "{}", answer.body),
        Some((cause, why)) => {
            assert_eq!(
                answer.failure(),
                (403, format!("pods \"a\" is forbidden: {why}").as_str())
            );
            assert_eq!(answer.body["details"]["causes"], json!([{"reason": cause}]));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn p9_resize_requires_a_known_linux_node() {
    let answer = resize(&on_node(json!({}), "plan9"), json!({"cpu": "2"})).await;
    let why = "pods \"a\" is forbidden: pod resize is only supported on linux nodes, node \"n\" is \"plan9\"";
    assert_eq!(answer.failure(), (403, why));
    assert_eq!(
        answer.body["details"]["causes"],
        json!([{"reason": "UnsupportedPlatform"}])
    );
    let answer = resize(&on_node(json!({"nodeName": "other"}), "linux"), json!({"cpu": "2"})).await;
    assert_eq!(
        answer.failure(),
        (403, "pods \"a\" is forbidden: node \"other\" not found")
    );
    let answer = resize(&on_node(json!({"nodeName": null}), "linux"), json!({"cpu": "9"})).await;
    assert_eq!(answer.code, 200, "{}", answer.body);
}

/// Returns a server with a Node `n` and a Pod that runs there, unless `spec` says otherwise.
fn on_node(spec: Value, system: &str) -> ApiServer {
    let server = ApiServer::start();
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "labels": {"kubernetes.io/os": system}},
        "status": {"allocatable": {"cpu": "4", "memory": "1Gi"}}});
    let mut pod = pod("a", json!({"requests": {"cpu": "1"}}));
    pod["metadata"]["generation"] = json!(1);
    pod["spec"]["nodeName"] = json!("n");
    pod["spec"]["overhead"] = json!({"cpu": "500m"});
    for (field, value) in spec.as_object().into_iter().flatten() {
        pod["spec"][field] = value.clone();
    }
    server.load([node, pod]).expect("the objects are valid");
    server
}

async fn resize(server: &ApiServer, requests: Value) -> crate::ask::Answer {
    let containers = json!([{"name": "c", "image": "i", "resources": {"requests": requests}}]);
    let patch = json!({"spec": {"containers": containers}});
    ask(server, Method::PATCH, &format!("{PODS}/a/resize"), patch).await
}
