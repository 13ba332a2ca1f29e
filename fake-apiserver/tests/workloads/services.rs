//! Objects related to workloads: endpoints of Services, disruption budgets, initial objects of a namespace.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use fake_apiserver::{PodScript, PodSelector, Worker};
use rstest::rstest;
use serde_json::{Value, json};

use crate::cluster::{Cluster, condition, deployment};

#[tokio::test(start_paused = true)]
async fn endpoints_contain_the_ready_pods() {
    let cluster = Cluster::start();
    cluster
        .create(json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "labels": {"team": "a"}},
            "spec": {"selector": {"app": "web"}, "ports": [{"name": "http", "port": 80, "targetPort": 8080}]},
        }))
        .await;
    cluster.pass(0.1).await;
    let slice = cluster.list("discovery.k8s.io/v1", "EndpointSlice").await.remove(0);
    assert_eq!(slice["endpoints"], Value::Null);
    let owned = &slice["metadata"]["managedFields"][0]["fieldsV1"];
    assert_eq!(owned.get("f:endpoints"), None, "an empty list is absent in protobuf");
    cluster.create(deployment("web", 2)).await;
    cluster.pass(3.0).await;
    let slices = cluster.list("discovery.k8s.io/v1", "EndpointSlice").await;
    assert_eq!(slices.len(), 1, "{slices:#?}");
    let slice = &slices[0];
    assert_eq!(
        slice["ports"],
        json!([{"name": "http", "port": 8080, "protocol": "TCP"}])
    );
    assert_eq!(slice["metadata"]["labels"]["kubernetes.io/service-name"], "web");
    assert_eq!(slice["metadata"]["labels"]["team"], "a");
    let endpoints = slice["endpoints"].as_array().expect("the value is a list");
    assert_eq!(endpoints.len(), 2);
    assert_eq!(
        endpoints[0]["conditions"],
        json!({"ready": true, "serving": true, "terminating": false})
    );
    let subset = &cluster.get("v1", "Endpoints", "web").await["subsets"][0];
    assert_eq!(subset["addresses"].as_array().map(Vec::len), Some(2));
    cluster
        .0
        .kubelet()
        .script(PodSelector::all(), PodScript::default().never_ready());
    cluster.pass(1.0).await;
    let subset = &cluster.get("v1", "Endpoints", "web").await["subsets"][0];
    assert_eq!(subset["notReadyAddresses"].as_array().map(Vec::len), Some(2));
    let slice = cluster.list("discovery.k8s.io/v1", "EndpointSlice").await.remove(0);
    assert_eq!(slice["endpoints"][0]["conditions"]["ready"], false);
    let ports = json!({"spec": {"ports": [{"name": "http", "port": 80, "targetPort": 9090}]}});
    cluster.patch("v1", "Service", "web", ports).await;
    cluster.pass(1.0).await;
    let changed = cluster.list("discovery.k8s.io/v1", "EndpointSlice").await.remove(0);
    assert_eq!(changed["ports"][0]["port"], 9090);
    assert_eq!(
        changed["metadata"]["name"], slice["metadata"]["name"],
        "an EndpointSlice is updated and not recreated"
    );
    cluster.delete("v1", "Service", "web").await;
    cluster.pass(1.0).await;
    assert_eq!(cluster.get("v1", "Endpoints", "web").await, Value::Null);
}

fn running_pod(name: &str, is_ready: bool) -> Value {
    let ready = if is_ready { "True" } else { "False" };
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": "web"}},
        "spec": {"nodeName": "n", "containers": [{"name": "main", "image": "nginx"}]},
        "status": {"phase": "Running", "podIP": "10.0.0.1", "conditions": [{"type": "Ready", "status": ready}]},
    })
}

/// Ready Pods have priority, even if others come first.
#[tokio::test(start_paused = true)]
async fn endpoints_over_their_capacity_are_truncated_and_annotated() {
    let cluster = Cluster::with(&[Worker::Endpoints]);
    let unready = (0..3).map(|it| running_pod(&format!("a-{it}"), false));
    let ready = (0..998).map(|it| running_pod(&format!("b-{it}"), true));
    cluster.0.load(unready.chain(ready)).expect("the Pods are valid");
    cluster
        .create(json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
            "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]},
        }))
        .await;
    cluster.pass(1.0).await;
    let shown = async || {
        let endpoints = cluster.get("v1", "Endpoints", "web").await;
        let count = |field: &str| endpoints["subsets"][0][field].as_array().map_or(0, Vec::len);
        let annotation = endpoints["metadata"]["annotations"]["endpoints.kubernetes.io/over-capacity"].clone();
        (count("addresses"), count("notReadyAddresses"), annotation)
    };
    assert_eq!(shown().await, (998, 2, json!("truncated")));
    let version = cluster.0.resource_version();
    cluster.pass(60.0).await;
    assert_eq!(
        cluster.0.resource_version(),
        version,
        "truncated Endpoints are not written again"
    );
    cluster.delete("v1", "Pod", "a-2").await;
    cluster.pass(60.0).await;
    assert_eq!(shown().await, (998, 2, Value::Null));
}

#[tokio::test(start_paused = true)]
async fn manually_written_endpoints_are_mirrored() {
    let cluster = Cluster::start();
    cluster
        .create(json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "outside"},
            "spec": {"ports": [{"name": "sql", "port": 5432}]},
        }))
        .await;
    cluster
        .create(json!({
            "apiVersion": "v1", "kind": "Endpoints",
            "metadata": {"name": "outside", "labels": {"team": "a"}, "annotations": {"note": "n"}},
            "subsets": [{
                "addresses": [{"ip": "10.1.0.1", "hostname": "one"}], "notReadyAddresses": [{"ip": "10.1.0.2"}],
                "ports": [{"name": "sql", "port": 5432}],
            }],
        }))
        .await;
    cluster.pass(1.0).await;
    let slices = cluster.list("discovery.k8s.io/v1", "EndpointSlice").await;
    assert_eq!(slices.len(), 1, "{slices:#?}");
    let slice = &slices[0];
    assert_eq!(
        slice["metadata"]["labels"],
        json!({
            "team": "a", "kubernetes.io/service-name": "outside",
            "endpointslice.kubernetes.io/managed-by": "endpointslicemirroring-controller.k8s.io",
        })
    );
    assert_eq!(slice["metadata"]["annotations"], json!({"note": "n"}));
    assert_eq!(slice["metadata"]["ownerReferences"][0]["kind"], "Endpoints");
    assert_eq!(slice["addressType"], "IPv4");
    assert_eq!(
        slice["ports"],
        json!([{"name": "sql", "port": 5432, "protocol": "TCP"}])
    );
    let endpoints = json!([
        {"addresses": ["10.1.0.1"], "conditions": {"ready": true}, "hostname": "one"},
        {"addresses": ["10.1.0.2"], "conditions": {"ready": false}},
    ]);
    assert_eq!(slice["endpoints"], endpoints);

    let ready = json!({"metadata": {"labels": {"team": null}}, "subsets": [
        {"addresses": [{"ip": "10.1.0.2"}], "ports": [{"name": "sql", "port": 5432}]},
    ]});
    cluster.patch("v1", "Endpoints", "outside", ready).await;
    cluster.pass(1.0).await;
    let slices = cluster.list("discovery.k8s.io/v1", "EndpointSlice").await;
    assert_eq!(slices.len(), 1, "{slices:#?}");
    assert_eq!(slices[0]["metadata"]["uid"], slice["metadata"]["uid"]);
    assert_eq!(slices[0]["metadata"]["labels"]["team"], Value::Null);
    let endpoints = json!([{"addresses": ["10.1.0.2"], "conditions": {"ready": true}}]);
    assert_eq!(slices[0]["endpoints"], endpoints);

    let skipped = json!({"metadata": {"labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}}});
    cluster.patch("v1", "Endpoints", "outside", skipped).await;
    cluster.pass(1.0).await;
    assert_eq!(
        cluster.list("discovery.k8s.io/v1", "EndpointSlice").await,
        Vec::<Value>::new()
    );
}

#[tokio::test(start_paused = true)]
async fn disruption_budget_limits_the_number_of_evictions() {
    let cluster = Cluster::start();
    cluster.create(deployment("web", 3)).await;
    cluster
        .create(json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"},
            "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}},
        }))
        .await;
    cluster.pass(3.0).await;
    let budget = cluster.get("policy/v1", "PodDisruptionBudget", "web").await;
    let status = &budget["status"];
    let numbers = ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"].map(|it| &status[it]);
    assert_eq!(numbers, [1, 3, 2, 3]);
    assert_eq!(condition(&budget, "DisruptionAllowed"), ["True", "SufficientPods", ""]);
    let pods = cluster.pods().await;
    let mut codes = Vec::new();
    for pod in &pods[..2] {
        let name = pod["metadata"]["name"].as_str().expect("the name is a string");
        let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
        let path = format!("/api/v1/namespaces/default/pods/{name}/eviction");
        codes.push(cluster.send("POST", &path, &eviction).await.0);
    }
    assert_eq!(codes, [201, 429]);
    let budget = cluster.get("policy/v1", "PodDisruptionBudget", "web").await;
    let spent = json!({"f:disruptionsAllowed": {}});
    let owners = budget["metadata"]["managedFields"]
        .as_array()
        .expect("the value is a list")
        .iter();
    let server = owners.filter(|it| it["manager"] == "kube-apiserver" && it["subresource"] == "status");
    let owned: Vec<_> = server
        .map(|it| &it["fieldsV1"]["f:status"]["f:disruptionsAllowed"])
        .collect();
    assert_eq!(owned, [&spent["f:disruptionsAllowed"]], "{budget:#}");
    cluster.pass(3.0).await;
    let budget = cluster.get("policy/v1", "PodDisruptionBudget", "web").await;
    assert_eq!(budget["status"]["disruptionsAllowed"], 1, "{budget:#}");
}

#[tokio::test(start_paused = true)]
async fn every_namespace_has_a_default_service_account_and_root_certificate() {
    let cluster = Cluster::start();
    cluster
        .create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}))
        .await;
    cluster.pass(0.1).await;
    for namespace in ["team", "default"] {
        assert!(
            cluster
                .0
                .get("v1", "ServiceAccount", namespace, "default")
                .await
                .is_ok()
        );
        assert!(
            cluster
                .0
                .get("v1", "ConfigMap", namespace, "kube-root-ca.crt")
                .await
                .is_ok()
        );
    }
    let before = cluster.get("v1", "ConfigMap", "kube-root-ca.crt").await;
    let foreign = json!({"data": {"ca.crt": "x", "y": "z"}, "metadata": {"annotations": null}});
    cluster.patch("v1", "ConfigMap", "kube-root-ca.crt", foreign).await;
    cluster.pass(1.0).await;
    let after = cluster.get("v1", "ConfigMap", "kube-root-ca.crt").await;
    assert_eq!(after["data"], before["data"]);
    assert_eq!(after["metadata"]["annotations"], before["metadata"]["annotations"]);
}

fn token_secret(account: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
        "metadata": {"name": "token", "annotations": {"kubernetes.io/service-account.name": account}},
    })
}

/// Fills a token Secret of the default ServiceAccount; returns its token.
async fn secret_token(cluster: &Cluster) -> String {
    cluster.pass(1.0).await;
    cluster.create(token_secret("default")).await;
    cluster.pass(1.0).await;
    let secret = cluster.get("v1", "Secret", "token").await;
    let token = secret["data"]["token"].as_str().expect("the token is a string");
    String::from_utf8(BASE64_STANDARD.decode(token).expect("the text is base64")).expect("the text is UTF-8")
}

/// Returns the status of the review of a token.
async fn review(cluster: &Cluster, token: &str) -> Value {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}});
    let path = "/apis/authentication.k8s.io/v1/tokenreviews";
    cluster.send("POST", path, &review).await.1["status"].clone()
}

const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";

#[tokio::test(start_paused = true)]
async fn token_secret_is_labelled_with_the_day_of_its_last_use() {
    let cluster = Cluster::start();
    let token = secret_token(&cluster).await;
    let version = async || cluster.get("v1", "Secret", "token").await["metadata"]["resourceVersion"].clone();
    let before = version().await;
    review(&cluster, &token).await;
    let secret = cluster.get("v1", "Secret", "token").await;
    let created = secret["metadata"]["creationTimestamp"].as_str().unwrap_or_default();
    assert_eq!(secret["metadata"]["labels"][LAST_USED], created[..10], "{secret}");
    let labelled = version().await;
    assert_ne!(before, labelled);
    review(&cluster, &token).await;
    assert_eq!(version().await, labelled, "the label only changes once a day");
}

#[rstest]
#[case::invalid(json!({"metadata": {"labels": {"kubernetes.io/legacy-token-invalid-since": "2026-01-01"}}}),
    "the token in secret default/token for service account default/default has been marked invalid. Use tokens from the \
     TokenRequest API or manually created secret-based tokens, or remove the 'kubernetes.io/legacy-token-invalid-since' \
     label from the secret to temporarily allow use of this token")]
#[case::another_token(json!({"data": {"token": "YQ=="}}), "Token does not match server's copy")]
#[tokio::test(start_paused = true)]
async fn token_of_a_changed_secret_is_invalid(#[case] change: Value, #[case] expected: &str) {
    let cluster = Cluster::start();
    let token = secret_token(&cluster).await;
    cluster.patch("v1", "Secret", "token", change).await;
    let status = review(&cluster, &token).await;
    assert_eq!(
        status["error"],
        format!("[invalid bearer token, {expected}]"),
        "{status}"
    );
}

#[tokio::test(start_paused = true)]
async fn token_of_a_deleted_secret_is_invalid() {
    let cluster = Cluster::start();
    let token = secret_token(&cluster).await;
    let patch = json!({"metadata": {"finalizers": ["example.com/f"]}});
    cluster.patch("v1", "Secret", "token", patch).await;
    cluster.delete("v1", "Secret", "token").await;
    let expected = "[invalid bearer token, Token has been invalidated]";
    assert_eq!(review(&cluster, &token).await["error"], expected);
}

#[tokio::test(start_paused = true)]
async fn token_secret_is_filled_and_deleted_with_its_account() {
    let cluster = Cluster::start();
    cluster.pass(1.0).await;
    cluster.create(token_secret("default")).await;
    cluster.pass(1.0).await;
    let secret = cluster.get("v1", "Secret", "token").await;
    let account = cluster.get("v1", "ServiceAccount", "default").await;
    assert_eq!(
        secret["metadata"]["annotations"]["kubernetes.io/service-account.uid"],
        account["metadata"]["uid"]
    );
    assert_eq!(secret["data"]["namespace"], "ZGVmYXVsdA==");
    let token = secret["data"]["token"].as_str().expect("the token is a string");
    let token = BASE64_STANDARD.decode(token).expect("the text is base64");
    let status = review(&cluster, &String::from_utf8(token).expect("the text is UTF-8")).await;
    assert_eq!(
        status["user"]["username"], "system:serviceaccount:default:default",
        "{status:#}"
    );
    cluster
        .patch("v1", "Secret", "token", json!({"data": {"token": null}}))
        .await;
    cluster.pass(1.0).await;
    assert_eq!(cluster.get("v1", "Secret", "token").await["data"], secret["data"]);
    cluster.delete("v1", "ServiceAccount", "default").await;
    cluster.pass(1.0).await;
    assert_eq!(cluster.get("v1", "Secret", "token").await, Value::Null);
}

#[tokio::test(start_paused = true)]
async fn label_removed_from_a_service_is_removed_from_its_endpoints() {
    let cluster = Cluster::with(&[Worker::Endpoints]);
    cluster
        .create(json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "labels": {"team": "a"}},
            "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]},
        }))
        .await;
    cluster.pass(1.0).await;
    let labels = async || cluster.get("v1", "Endpoints", "web").await["metadata"]["labels"].clone();
    assert_eq!(labels().await["team"], "a");
    let patch = json!({"metadata": {"labels": {"team": null, "tier": "b"}}});
    cluster.patch("v1", "Service", "web", patch).await;
    cluster.pass(1.0).await;
    assert_eq!(
        labels().await,
        json!({"tier": "b", "endpoints.kubernetes.io/managed-by": "endpoint-controller"})
    );
}

#[rstest]
#[case::sidecar(json!("Always"), true)]
#[case::init_container(Value::Null, false)]
#[tokio::test(start_paused = true)]
async fn named_target_port_may_belong_to_a_sidecar(#[case] restart_policy: Value, #[case] is_found: bool) {
    let cluster = Cluster::with(&[Worker::Endpoints]);
    let mut pod = running_pod("one", true);
    pod["spec"]["initContainers"] = json!([
        {"name": "init", "image": "nginx", "restartPolicy": restart_policy,
            "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}]},
    ]);
    cluster
        .create(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}))
        .await;
    cluster.0.load([pod]).expect("the Pod is valid");
    cluster
        .create(json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
            "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": "http"}]},
        }))
        .await;
    cluster.pass(1.0).await;
    let slice = cluster.list("discovery.k8s.io/v1", "EndpointSlice").await.remove(0);
    assert_eq!(slice["ports"][0]["port"] == 8080, is_found, "{slice:#}");
}

#[tokio::test(start_paused = true)]
async fn endpoints_contain_the_host_names_of_pods_if_the_service_is_their_subdomain() {
    let cluster = Cluster::with(&[Worker::Endpoints]);
    let mut named = running_pod("one", true);
    (named["spec"]["hostname"], named["spec"]["subdomain"]) = (json!("first"), json!("web"));
    let mut nameless = running_pod("two", true);
    nameless["spec"]["subdomain"] = json!("web");
    cluster
        .create(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}))
        .await;
    cluster.0.load([named, nameless]).expect("the Pods are valid");
    cluster
        .create(json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
            "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]},
        }))
        .await;
    cluster.pass(1.0).await;
    let slice = cluster.list("discovery.k8s.io/v1", "EndpointSlice").await.remove(0);
    let of = |list: &Value| {
        let mut names: Vec<Value> = list
            .as_array()
            .into_iter()
            .flatten()
            .map(|it| it["hostname"].clone())
            .collect();
        names.sort_by_key(ToString::to_string);
        names
    };
    assert_eq!(of(&slice["endpoints"]), [json!("first"), Value::Null]);
    let endpoints = cluster.get("v1", "Endpoints", "web").await;
    assert_eq!(of(&endpoints["subsets"][0]["addresses"]), [json!("first"), Value::Null]);
}

async fn budget(cluster: &Cluster, spec: Value) -> Value {
    cluster
        .create(
            json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"}, "spec": spec}),
        )
        .await;
    cluster.pass(1.0).await;
    cluster.get("policy/v1", "PodDisruptionBudget", "b").await
}

#[tokio::test(start_paused = true)]
async fn disruption_budget_without_a_selector_has_a_status() {
    let budget = budget(&Cluster::start(), json!({"minAvailable": 1})).await;
    assert_eq!(budget["status"]["expectedPods"], 0, "{budget:#}");
    assert_eq!(
        condition(&budget, "DisruptionAllowed")[..2],
        ["False", "InsufficientPods"]
    );
}

#[tokio::test(start_paused = true)]
async fn disruption_budget_includes_ended_pods_in_the_expected_pods() {
    let cluster = Cluster::with(&[Worker::Disruption]);
    let mut ended = running_pod("ended", false);
    ended["status"]["phase"] = json!("Succeeded");
    cluster
        .0
        .load([running_pod("one", true), ended])
        .expect("the Pods are valid");
    let selector = json!({"matchLabels": {"app": "web"}});
    let status = budget(&cluster, json!({"minAvailable": 1, "selector": selector})).await["status"].clone();
    assert_eq!(
        (&status["expectedPods"], &status["currentHealthy"]),
        (&json!(2), &json!(1))
    );
}

#[tokio::test(start_paused = true)]
async fn disruption_budget_fails_for_pods_of_a_controller_without_a_scale_subresource() {
    let cluster = Cluster::start();
    cluster
        .create(json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "agent"},
            "spec": {"selector": {"matchLabels": {"app": "agent"}}, "template": crate::cluster::template("agent")},
        }))
        .await;
    cluster.pass(3.0).await;
    let selector = json!({"matchLabels": {"app": "agent"}});
    let budget = budget(&cluster, json!({"maxUnavailable": 1, "selector": selector})).await;
    assert_eq!(budget["status"]["disruptionsAllowed"], 0);
    assert_eq!(
        condition(&budget, "DisruptionAllowed"),
        [
            "False",
            "SyncFailed",
            "daemonsets.apps does not implement the scale subresource"
        ]
    );
    assert_eq!(
        cluster.events("CalculateExpectedPodCountFailed").await,
        ["Failed to calculate the number of expected pods: daemonsets.apps does not implement the scale subresource"]
    );
}

fn service(spec: Value) -> Value {
    let mut service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]},
    });
    for (field, value) in spec.as_object().expect("the value is an object") {
        service["spec"][field] = value.clone();
    }
    service
}

#[tokio::test(start_paused = true)]
async fn pod_without_the_named_port_is_not_in_the_endpoints() {
    let cluster = Cluster::with(&[Worker::Endpoints]);
    cluster.0.load([running_pod("one", true)]).expect("the Pod is valid");
    cluster
        .create(service(json!({"ports": [{"port": 80, "targetPort": "http"}]})))
        .await;
    cluster.pass(1.0).await;
    assert_eq!(cluster.get("v1", "Endpoints", "web").await["subsets"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn addresses_are_sorted_as_strings() {
    let cluster = Cluster::with(&[Worker::Endpoints]);
    let pod = |name: &str, address: &str| {
        let mut pod = running_pod(name, true);
        pod["status"]["podIP"] = json!(address);
        pod
    };
    cluster
        .0
        .load([pod("a", "10.244.0.9"), pod("b", "10.244.0.10")])
        .expect("the Pods are valid");
    cluster.create(service(json!({}))).await;
    cluster.pass(1.0).await;
    let addresses = cluster.get("v1", "Endpoints", "web").await["subsets"][0]["addresses"].clone();
    assert_eq!(
        (&addresses[0]["ip"], &addresses[1]["ip"]),
        (&json!("10.244.0.10"), &json!("10.244.0.9"))
    );
}

#[tokio::test(start_paused = true)]
async fn endpoints_without_a_selector_are_deleted_with_their_service() {
    let cluster = Cluster::with(&[Worker::Endpoints]);
    let endpoints = json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "web"}});
    cluster.create(endpoints.clone()).await;
    cluster.pass(1.0).await;
    assert_ne!(
        cluster.get("v1", "Endpoints", "web").await,
        Value::Null,
        "no Service was deleted"
    );
    cluster.create(service(json!({"selector": null}))).await;
    cluster.pass(1.0).await;
    cluster.delete("v1", "Service", "web").await;
    cluster.pass(1.0).await;
    assert_eq!(cluster.get("v1", "Endpoints", "web").await, Value::Null);
}

#[tokio::test(start_paused = true)]
async fn mirrored_slice_with_changed_ports_is_updated() {
    let cluster = Cluster::with(&[Worker::Endpoints]);
    cluster.create(service(json!({"selector": null}))).await;
    let endpoints = |port: u32, count: usize| {
        let addresses: Vec<Value> = (0..count)
            .map(|it| json!({"ip": format!("10.1.{}.{}", it / 250, it % 250)}))
            .collect();
        json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "web"},
            "subsets": [{"addresses": addresses, "ports": [{"port": port}]}]})
    };
    cluster.create(endpoints(80, 1)).await;
    cluster.pass(1.0).await;
    let before = cluster.list("discovery.k8s.io/v1", "EndpointSlice").await;
    cluster.patch("v1", "Endpoints", "web", endpoints(8080, 1)).await;
    cluster.pass(1.0).await;
    let after = cluster.list("discovery.k8s.io/v1", "EndpointSlice").await;
    assert_eq!((after.len(), &after[0]["ports"][0]["port"]), (1, &json!(8080)));
    assert_eq!(after[0]["metadata"]["name"], before[0]["metadata"]["name"]);
    cluster.patch("v1", "Endpoints", "web", endpoints(8080, 1002)).await;
    cluster.pass(1.0).await;
    let message =
        "A max of 1000 addresses can be mirrored to EndpointSlices per Endpoints subset. 2 addresses were skipped";
    assert_eq!(cluster.events("TooManyAddressesToMirror").await, [message]);
}

/// Services have the family IPv4.
#[rstest]
#[case::both_families(json!([{"ip": "fd00::1"}, {"ip": "10.0.0.1"}]), json!("10.0.0.1"))]
#[case::other_family(json!([{"ip": "fd00::1"}]), Value::Null)]
#[tokio::test(start_paused = true)]
async fn addresses_have_the_family_of_the_service(#[case] addresses: Value, #[case] expected: Value) {
    let cluster = Cluster::with(&[Worker::Endpoints]);
    cluster
        .create(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}))
        .await;
    let mut pod = running_pod("one", true);
    pod["status"]["podIP"] = addresses[0]["ip"].clone();
    pod["status"]["podIPs"] = addresses;
    cluster.0.load([pod]).expect("the Pod is valid");
    cluster.create(service(json!({}))).await;
    cluster.pass(1.0).await;
    let slice = cluster.list("discovery.k8s.io/v1", "EndpointSlice").await.remove(0);
    assert_eq!(slice["endpoints"][0]["addresses"][0], expected);
    let subset = cluster.get("v1", "Endpoints", "web").await["subsets"][0].clone();
    assert_eq!(subset["addresses"][0]["ip"], expected);
}

#[rstest]
#[case::missing_pods(json!({}), "NoPods", "No matching pods found")]
#[case::unmanaged_pods(json!({"app": "web"}), "UnmanagedPods",
    "Pods selected by this PodDisruptionBudget (selector: &LabelSelector{MatchLabels:map[string]string{app: web,},\
     MatchExpressions:[]LabelSelectorRequirement{},}) were found to be unmanaged. As a result, the status of the PDB \
     cannot be calculated correctly, which may result in undefined behavior. To account for these pods please set \
     \".spec.minAvailable\" field of the PDB to an integer value.")]
#[tokio::test(start_paused = true)]
async fn missing_or_unmanaged_pods_of_a_disruption_budget_are_reported(
    #[case] labels: Value,
    #[case] reason: &str,
    #[case] message: &str,
) {
    let cluster = Cluster::with(&[Worker::Disruption]);
    let mut pod = running_pod("one", true);
    pod["metadata"]["labels"] = labels;
    cluster.0.load([pod]).expect("the Pod is valid");
    let selector = json!({"matchLabels": {"app": "web"}});
    budget(&cluster, json!({"maxUnavailable": 1, "selector": selector})).await;
    assert_eq!(cluster.events(reason).await, [message]);
}

#[tokio::test(start_paused = true)]
async fn evicted_pod_that_is_not_deleted_in_time_is_reported_and_counted_again() {
    let cluster = Cluster::with(&[Worker::Disruption]);
    cluster.0.load([running_pod("one", true)]).expect("the Pod is valid");
    let selector = json!({"matchLabels": {"app": "web"}});
    budget(&cluster, json!({"minAvailable": 0, "selector": selector})).await;
    let path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets/b/status";
    let patch = json!({"status": {"disruptedPods": {"one": "2026-01-01T00:00:01Z"}}});
    assert_eq!(cluster.send("PATCH", path, &patch).await.0, 200);
    cluster.pass(5.0).await;
    let healthy =
        async || cluster.get("policy/v1", "PodDisruptionBudget", "b").await["status"]["currentHealthy"].clone();
    assert_eq!(healthy().await, 0);
    cluster.pass(130.0).await;
    assert_eq!(healthy().await, 1);
    let message = "Pod was expected by PDB default/default to be deleted but it wasn't";
    assert_eq!(cluster.events("NotDeleted").await, [message]);
}

/// The owner of the Pod has the subresource `scale`, or lacks it.
#[rstest]
#[case(true)]
#[case(false)]
#[tokio::test(start_paused = true)]
async fn disruption_budget_uses_the_scale_of_a_custom_resource(#[case] has_scale: bool) {
    let cluster = Cluster::with(&[Worker::Disruption]);
    let mut subresources = json!({"status": {}});
    if has_scale {
        subresources["scale"] = json!({"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"});
    }
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let version =
        json!({"name": "v1", "served": true, "storage": true, "subresources": subresources, "schema": schema});
    cluster
        .create(json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "widgets.example.com"},
            "spec": {
                "group": "example.com", "scope": "Namespaced", "names": {"kind": "Widget", "plural": "widgets"},
                "versions": [version],
            },
        }))
        .await;
    cluster.pass(0.1).await;
    let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "one"},
        "spec": {"replicas": 3}});
    let widget = cluster.create(widget).await;
    let mut pod = running_pod("one", true);
    pod["metadata"]["ownerReferences"] = json!([{"apiVersion": "example.com/v1", "kind": "Widget", "name": "one",
        "uid": widget["metadata"]["uid"], "controller": true}]);
    cluster.0.load([pod]).expect("the Pod is valid");
    let selector = json!({"matchLabels": {"app": "web"}});
    let budget = budget(&cluster, json!({"maxUnavailable": 1, "selector": selector})).await;
    let [_, reason, message] = condition(&budget, "DisruptionAllowed");
    if has_scale {
        assert_eq!(budget["status"]["expectedPods"], 3, "{budget:#}");
    } else {
        assert_eq!(reason, "SyncFailed");
        assert_eq!(message, "widgets.example.com does not implement the scale subresource");
        let conditions = &budget["status"]["conditions"];
        assert_eq!(
            conditions[0]["observedGeneration"],
            Value::Null,
            "the status has no generation: {budget:#}"
        );
    }
}

#[rstest]
#[case::preempted_by_the_scheduler("PreemptionByScheduler", "False")]
#[case::terminated_by_the_kubelet("TerminationByKubelet", "True")]
#[tokio::test(start_paused = true)]
async fn stale_disruption_condition_is_reset_unless_the_kubelet_has_set_it(
    #[case] reason: &str,
    #[case] expected: &str,
) {
    let cluster = Cluster::with(&[Worker::Disruption]);
    let mut pod = running_pod("one", true);
    pod["status"]["conditions"] = json!([{"type": "DisruptionTarget", "status": "True", "reason": reason,
        "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
    cluster.0.load([pod]).expect("the Pod is valid");
    cluster.pass(100.0).await;
    let status = async || condition(&cluster.get("v1", "Pod", "one").await, "DisruptionTarget").map(str::to_owned);
    assert_eq!(status().await[0], "True");
    cluster.pass(30.0).await;
    let [status, reason_now, _] = status().await;
    assert_eq!(status, expected);
    assert_eq!(reason_now, if expected == "True" { reason } else { "" });
}

/// Pods of missing Nodes are only published if the Service also publishes unready Pods.
#[rstest]
#[case(json!({}), 0)]
#[case(json!({"publishNotReadyAddresses": true}), 1)]
#[tokio::test(start_paused = true)]
async fn slices_only_contain_pods_of_existing_nodes(#[case] spec: Value, #[case] count: usize) {
    let cluster = Cluster::with(&[Worker::Endpoints]);
    cluster.0.load([running_pod("one", true)]).expect("the Pod is valid");
    cluster.create(service(spec)).await;
    cluster.pass(1.0).await;
    let endpoints = async || {
        let slice = cluster.list("discovery.k8s.io/v1", "EndpointSlice").await.remove(0);
        slice["endpoints"].as_array().cloned().unwrap_or_default()
    };
    assert_eq!(endpoints().await.len(), count);
    let subset = cluster.get("v1", "Endpoints", "web").await["subsets"][0].clone();
    assert_eq!(subset["addresses"][0]["ip"], "10.0.0.1");
    cluster
        .create(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}))
        .await;
    cluster.pass(1.0).await;
    assert_eq!(endpoints().await.len(), 1);
    let zone = json!({"metadata": {"labels": {"topology.kubernetes.io/zone": "x"}}});
    cluster.patch("v1", "Node", "n", zone).await;
    cluster.pass(1.0).await;
    assert_eq!(endpoints().await[0]["zone"], "x");
}

#[rstest]
#[case::unset("", Value::Null)]
#[case::prefer_close("PreferClose", json!({"forZones": [{"name": "x"}]}))]
#[case::prefer_same_zone("PreferSameZone", json!({"forZones": [{"name": "x"}]}))]
#[case::prefer_same_node("PreferSameNode", json!({"forZones": [{"name": "x"}], "forNodes": [{"name": "n"}]}))]
#[tokio::test(start_paused = true)]
async fn endpoints_have_hints_for_the_traffic_distribution(#[case] distribution: &str, #[case] hints: Value) {
    let cluster = Cluster::with(&[Worker::Endpoints]);
    let labels = json!({"topology.kubernetes.io/zone": "x"});
    cluster
        .create(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "labels": labels}}))
        .await;
    cluster
        .0
        .load([running_pod("one", true), running_pod("two", false)])
        .expect("the Pods are valid");
    let spec = if distribution.is_empty() {
        json!({})
    } else {
        json!({"trafficDistribution": distribution})
    };
    cluster.create(service(spec)).await;
    cluster.pass(1.0).await;
    let slice = cluster.list("discovery.k8s.io/v1", "EndpointSlice").await.remove(0);
    for endpoint in slice["endpoints"].as_array().expect("the value is a list") {
        let is_ready = endpoint["conditions"]["ready"] == true;
        assert_eq!(endpoint["hints"], if is_ready { hints.clone() } else { Value::Null });
    }
}

/// Each controller of kube-controller-manager has its own service account.
#[tokio::test(start_paused = true)]
async fn controllers_use_the_same_service_accounts_as_in_kubernetes() {
    let cluster = Cluster::start();
    cluster.create(service(json!({}))).await;
    let mut outside = service(json!({"selector": null}));
    outside["metadata"]["name"] = json!("outside");
    cluster.create(outside).await;
    let addresses = json!([{"addresses": [{"ip": "10.1.0.1"}], "ports": [{"port": 80}]}]);
    cluster
        .create(json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "outside"}, "subsets": addresses}))
        .await;
    let pod =
        json!({"restartPolicy": "Never", "containers": [{"name": "a", "image": "busybox:1", "command": ["true"]}]});
    cluster
        .create(
            json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "work"},
            "spec": {"ttlSecondsAfterFinished": 1, "template": {"spec": pod}}}),
        )
        .await;
    let claim = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    cluster
        .create(
            json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}, "spec": claim}),
        )
        .await;
    cluster
        .create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}}))
        .await;
    cluster.pass(10.0).await;
    cluster.delete("v1", "PersistentVolumeClaim", "data").await;
    cluster.pass(1.0).await;
    let requests = cluster.0.journal().requests();
    for (method, path, account) in [
        ("POST", "/endpoints", "endpoint-controller"),
        ("POST", "/namespaces/default/endpointslices", "endpointslice-controller"),
        (
            "POST",
            "/namespaces/default/endpointslices",
            "endpointslicemirroring-controller",
        ),
        ("DELETE", "/jobs/work", "ttl-after-finished-controller"),
        ("PUT", "/persistentvolumeclaims/data", "pvc-protection-controller"),
        ("POST", "/namespaces/other/configmaps", "root-ca-cert-publisher"),
        (
            "POST",
            "/namespaces/other/serviceaccounts",
            "service-account-controller",
        ),
    ] {
        let user = format!("system:serviceaccount:kube-system:{account}");
        let found = requests
            .iter()
            .any(|it| it.method == method && it.path.ends_with(path) && it.user.name == user);
        assert!(found, "{method} {path} by {account}");
    }
}

/// The time is the first of the changes that led to a write. Deletions have no time (`TriggerTimeTracker`).
#[tokio::test(start_paused = true)]
async fn endpoints_contain_the_time_of_the_change_that_caused_them() {
    let cluster = Cluster::with(&[Worker::Endpoints]);
    cluster
        .create(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}))
        .await;
    cluster.create(service(json!({}))).await;
    cluster.pass(5.0).await;
    let times = async || {
        let endpoints = cluster.get("v1", "Endpoints", "web").await;
        let slice = cluster.list("discovery.k8s.io/v1", "EndpointSlice").await.remove(0);
        let time =
            |it: &Value| it["metadata"]["annotations"]["endpoints.kubernetes.io/last-change-trigger-time"].clone();
        [time(&endpoints), time(&slice)]
    };
    assert_eq!(times().await, ["2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"]);
    let mut pod = running_pod("one", true);
    pod["status"]["conditions"][0]["lastTransitionTime"] = json!("2026-01-01T00:00:03Z");
    cluster.0.load([pod]).expect("the Pod is valid");
    cluster.pass(5.0).await;
    assert_eq!(times().await, ["2026-01-01T00:00:03Z", "2026-01-01T00:00:03Z"]);
    cluster.delete("v1", "Pod", "one").await;
    cluster.pass(5.0).await;
    assert_eq!(times().await, [Value::Null, Value::Null]);
}
