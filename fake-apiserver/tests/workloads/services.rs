//! Objects around workloads: endpoints of Services, disruption budgets, default objects of a namespace.

use fake_apiserver::{PodScript, PodSelector};
use serde_json::{Value, json};

use crate::cluster::{Cluster, condition, deployment};

#[tokio::test(start_paused = true)]
async fn a_service_knows_its_ready_pods() {
    let cluster = Cluster::start();
    cluster
        .create(json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "labels": {"team": "a"}},
            "spec": {"selector": {"app": "web"}, "ports": [{"name": "http", "port": 80, "targetPort": 8080}]},
        }))
        .await;
    cluster.pass(0.1).await;
    let slice = cluster.list("discovery.k8s.io/v1", "EndpointSlice").await.remove(0);
    assert_eq!(slice["endpoints"].as_array().map_or(0, Vec::len), 0);
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
    let endpoints = slice["endpoints"].as_array().expect("endpoints");
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
    cluster.delete("v1", "Service", "web").await;
    cluster.pass(1.0).await;
    assert_eq!(cluster.get("v1", "Endpoints", "web").await, Value::Null);
}

#[tokio::test(start_paused = true)]
async fn endpoints_that_somebody_writes_are_mirrored() {
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
async fn a_budget_lets_as_many_go_as_it_says() {
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
        let name = pod["metadata"]["name"].as_str().expect("a name");
        let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
        let path = format!("/api/v1/namespaces/default/pods/{name}/eviction");
        codes.push(cluster.send("POST", &path, &eviction).await.0);
    }
    assert_eq!(codes, [201, 429]);
    cluster.pass(3.0).await;
    let budget = cluster.get("policy/v1", "PodDisruptionBudget", "web").await;
    assert_eq!(budget["status"]["disruptionsAllowed"], 1, "{budget:#}");
}

#[tokio::test(start_paused = true)]
async fn every_namespace_has_its_account_and_certificate() {
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
}
