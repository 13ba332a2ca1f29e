//! Placement of Pods that depends on other Pods: affinity, anti-affinity, topology spread and preemption.

use std::time::Duration;

use fake_apiserver::{PodScript, PodSelector};
use rstest::rstest;
use serde_json::{Value, json};

use crate::cluster::{Cluster, condition};

/// Returns a cluster with the nodes `a` and `b` in zone `x`, and `c` in zone `y`.
async fn zones() -> Cluster {
    let cluster = Cluster::start();
    for (name, zone) in [("a", "x"), ("b", "x"), ("c", "y")] {
        let labels = json!({"zone": zone, "kubernetes.io/hostname": name});
        cluster
            .create(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}))
            .await;
    }
    cluster.pass(1.0).await;
    cluster
}

async fn place(cluster: &Cluster, name: &str, app: &str, spec: Value) -> String {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": app}},
        "spec": {"containers": [{"name": "main", "image": "nginx:1"}]},
    });
    for (field, value) in spec.as_object().expect("the value is an object") {
        pod["spec"][field] = value.clone();
    }
    cluster.create(pod).await;
    cluster.pass(2.0).await;
    let pod = cluster.get("v1", "Pod", name).await;
    match pod["spec"]["nodeName"].as_str() {
        Some(node) => node.to_owned(),
        None => condition(&pod, "PodScheduled")[2].to_owned(),
    }
}

fn term(app: &str, topology: &str) -> Value {
    json!({"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": topology})
}

fn required(kind: &str, term: Value) -> Value {
    json!({"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}})
}

#[rstest]
#[case::in_the_zone_of_another_pod(required("podAffinity", term("db", "zone")), "c")]
#[case::on_the_node_of_another_pod(required("podAffinity", term("db", "kubernetes.io/hostname")), "c")]
#[case::outside_of_the_zone_of_another_pod(required("podAntiAffinity", term("db", "zone")), "a")]
#[case::preferred_pods(
    json!({"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 10, "podAffinityTerm": term("db", "zone")}]}}}), "c",
)]
#[case::preferred_node(
    json!({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 1, "preference": {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["y"]}]}}]}}}), "c",
)]
#[case::in_the_zone_of_its_own_replicas(required("podAffinity", term("web", "zone")), "a")]
#[case::missing_pod(
    required("podAffinity", term("none", "zone")),
    "0/3 nodes are available: 3 node(s) didn't match pod affinity rules. preemption: 0/3 nodes are available: 3 \
     Preemption is not helpful for scheduling."
)]
#[case::in_another_namespace(
    required("podAntiAffinity", json!({
        "labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": "zone", "namespaces": ["kube-system"]})), "a",
)]
#[tokio::test(start_paused = true)]
async fn scheduler_follows_affinity(#[case] spec: Value, #[case] node: &str) {
    let cluster = zones().await;
    assert_eq!(
        place(&cluster, "db", "db", json!({"nodeSelector": {"zone": "y"}})).await,
        "c"
    );
    assert_eq!(place(&cluster, "web", "web", spec).await, node);
}

#[tokio::test(start_paused = true)]
async fn anti_affinity_is_symmetric_and_ends_with_the_pod() {
    let cluster = zones().await;
    let alone = required("podAntiAffinity", term("web", "zone"));
    let mut pinned = alone.clone();
    pinned["nodeSelector"] = json!({"zone": "x"});
    place(&cluster, "one", "db", pinned).await;
    let spec = json!({"nodeSelector": {"zone": "x"}});
    let message = place(&cluster, "two", "web", spec).await;
    assert!(
        message.contains("2 node(s) didn't satisfy existing pods anti-affinity rules"),
        "{message}"
    );
    cluster.delete("v1", "Pod", "one").await;
    cluster.pass(2.0).await;
    assert_eq!(cluster.get("v1", "Pod", "two").await["spec"]["nodeName"], "a");
}

fn spread(when: &str, topology: &str) -> Value {
    json!({"topologySpreadConstraints": [{
        "maxSkew": 1, "topologyKey": topology, "whenUnsatisfiable": when, "labelSelector": {"matchLabels": {"app": "web"}},
    }]})
}

#[rstest]
#[case::zones("DoNotSchedule", "zone", ["a", "c", "b", "c"])]
#[case::nodes("DoNotSchedule", "kubernetes.io/hostname", ["a", "b", "c", "a"])]
#[case::schedule_anyway("ScheduleAnyway", "zone", ["a", "c", "b", "c"])]
#[tokio::test(start_paused = true)]
async fn pods_are_spread_over_topology_domains(#[case] when: &str, #[case] topology: &str, #[case] nodes: [&str; 4]) {
    let cluster = zones().await;
    for (number, node) in nodes.into_iter().enumerate() {
        let placed = place(&cluster, &format!("web-{number}"), "web", spread(when, topology)).await;
        assert_eq!(placed, node, "Pod {number}");
    }
}

#[rstest]
#[case::skew_on_every_node("zone", json!({"zone": "x"}), "")]
#[case::topology_label_is_missing("rack", json!({}),
    "3 node(s) didn't match pod topology spread constraints (missing required label)")]
#[tokio::test(start_paused = true)]
async fn pod_waits_if_every_node_exceeds_the_skew(#[case] topology: &str, #[case] selector: Value, #[case] why: &str) {
    let cluster = zones().await;
    let mut spec = spread("DoNotSchedule", topology);
    spec["topologySpreadConstraints"][0]["nodeAffinityPolicy"] = json!("Ignore");
    spec["nodeSelector"] = selector;
    if why.is_empty() {
        assert_eq!(place(&cluster, "one", "web", spec.clone()).await, "a");
        let message = place(&cluster, "two", "web", spec).await;
        assert!(
            message.contains("2 node(s) didn't match pod topology spread constraints"),
            "{message}"
        );
    } else {
        let message = place(&cluster, "one", "web", spec).await;
        assert!(message.contains(why), "{message}");
    }
}

#[rstest]
#[case::lowest_priority_first(json!({"cpu": "3"}), json!({}), &["low"])]
#[case::as_few_pods_as_possible(json!({"cpu": "1"}), json!({}), &["low"])]
#[case::as_many_pods_as_needed(json!({"cpu": "6"}), json!({}), &["low", "middle"])]
#[case::preemption_policy_never(json!({"cpu": "6"}), json!({"priorityClassName": "polite"}), &[])]
#[case::preemption_would_not_suffice(json!({"cpu": "8"}), json!({}), &[])]
#[tokio::test(start_paused = true)]
async fn pod_preempts_pods_of_lower_priority(
    #[case] requests: Value,
    #[case] mut spec: Value,
    #[case] victims: &[&str],
) {
    let cluster = Cluster::start();
    for (name, value) in [("low", 1), ("middle", 2), ("high", 3), ("polite", 3)] {
        let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value,
            "preemptionPolicy": if name == "polite" { "Never" } else { "PreemptLowerPriority" }});
        cluster.create(class).await;
    }
    let asking = |requests: Value| json!([{"name": "main", "image": "nginx:1", "resources": {"requests": requests}}]);
    for (name, class, cpu) in [("low", "low", "3"), ("middle", "middle", "3"), ("same", "high", "2")] {
        let spec = json!({"containers": asking(json!({"cpu": cpu})), "priorityClassName": class});
        assert_eq!(place(&cluster, name, "web", spec).await, "node-0");
    }
    spec["containers"] = asking(requests);
    if spec["priorityClassName"].is_null() {
        spec["priorityClassName"] = json!("high");
    }
    let placed = place(&cluster, "urgent", "web", spec).await;
    let names: Vec<String> = cluster
        .pods()
        .await
        .iter()
        .map(|it| it["metadata"]["name"].as_str().unwrap_or_default().to_owned())
        .collect();
    for name in ["low", "middle", "same"] {
        assert_eq!(
            names.contains(&name.to_owned()),
            !victims.contains(&name),
            "{name} is a victim or in {names:?}"
        );
    }
    assert_eq!(placed == "node-0", !victims.is_empty(), "{placed}");
    assert_eq!(cluster.events("Preempted").await.len(), victims.len());
    if victims.is_empty() {
        assert!(placed.contains("preemption: "), "{placed}");
    }
}

/// Creates the classes `low`, `middle` and `high`, and a budget for the Pods with the label `app: db`.
async fn budget(cluster: &Cluster, min_available: u32) {
    for (name, value) in [("low", 1), ("middle", 2), ("high", 3)] {
        let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name},
            "value": value});
        cluster.create(class).await;
    }
    let selector = json!({"matchLabels": {"app": "db"}});
    cluster
        .create(
            json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "db"},
            "spec": {"minAvailable": min_available, "selector": selector}}),
        )
        .await;
}

fn asking(cpu: &str, class: &str, node: &str) -> Value {
    let mut spec = json!({"priorityClassName": class, "containers": [
        {"name": "main", "image": "nginx:1", "resources": {"requests": {"cpu": cpu}}}]});
    if !node.is_empty() {
        spec["nodeSelector"] = json!({"kubernetes.io/hostname": node});
    }
    spec
}

/// The budget allows no disruptions if its only Pod must be available.
#[rstest]
#[case::budget_allows_no_disruption(1, ["db"])]
#[case::budget_allows_the_disruption(0, ["other"])]
#[tokio::test(start_paused = true)]
async fn preemption_removes_pods_that_violate_a_budget_last(#[case] min_available: u32, #[case] left: [&str; 1]) {
    let cluster = Cluster::start();
    budget(&cluster, min_available).await;
    assert_eq!(place(&cluster, "db", "db", asking("4", "low", "")).await, "node-0");
    assert_eq!(
        place(&cluster, "other", "web", asking("4", "middle", "")).await,
        "node-0"
    );
    assert_eq!(
        place(&cluster, "urgent", "web", asking("4", "high", "")).await,
        "node-0"
    );
    let pods = cluster.pods().await;
    let names = pods.iter().filter_map(|it| it["metadata"]["name"].as_str());
    let names: Vec<&str> = names.filter(|it| *it != "urgent").collect();
    assert_eq!(names, left);
}

#[rstest]
#[case::budget_allows_no_disruption(1, "b")]
#[case::budget_allows_the_disruption(0, "a")]
#[tokio::test(start_paused = true)]
async fn preemption_prefers_nodes_without_violated_budgets(#[case] min_available: u32, #[case] node: &str) {
    let cluster = zones().await;
    budget(&cluster, min_available).await;
    for (name, app, class, on) in [
        ("db", "db", "low", "a"),
        ("other", "web", "middle", "b"),
        ("same", "web", "high", "c"),
    ] {
        assert_eq!(place(&cluster, name, app, asking("6", class, on)).await, on);
    }
    assert_eq!(place(&cluster, "urgent", "web", asking("6", "high", "")).await, node);
}

/// The start of less important victims does not count (`GetEarliestPodStartTime`).
#[tokio::test(start_paused = true)]
async fn preemption_prefers_the_latest_start_of_the_most_important_victims() {
    let cluster = zones().await;
    budget(&cluster, 0).await;
    for (name, class, on) in [
        ("old", "low", "a"),
        ("first", "middle", "b"),
        ("last", "middle", "a"),
        ("young", "low", "b"),
        ("same", "high", "c"),
    ] {
        assert_eq!(place(&cluster, name, "web", asking("4", class, on)).await, on);
    }
    assert_eq!(place(&cluster, "urgent", "web", asking("8", "high", "")).await, "a");
}

#[tokio::test(start_paused = true)]
async fn pending_pods_are_scheduled_in_the_order_of_their_priority() {
    let cluster = Cluster::start();
    budget(&cluster, 0).await;
    assert_eq!(place(&cluster, "full", "web", asking("8", "high", "")).await, "node-0");
    for (name, class) in [("a", "low"), ("b", "middle")] {
        let message = place(&cluster, name, "web", asking("8", class, "")).await;
        assert!(message.contains("1 Insufficient cpu"), "{message}");
    }
    cluster.delete("v1", "Pod", "full").await;
    cluster.pass(5.0).await;
    assert_eq!(cluster.get("v1", "Pod", "b").await["spec"]["nodeName"], "node-0");
    assert!(cluster.events("Preempted").await.is_empty());
}

/// Only one of the Pods fits on the node.
#[rstest]
#[case::pod(required("podAffinity", term("db", "kubernetes.io/hostname")), json!({
    "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "db", "labels": {"app": "db"}},
    "spec": {"containers": [{"name": "main", "image": "nginx:1"}]},
}))]
#[case::claim(json!({"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}), json!({
    "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"},
    "spec": {
        "accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "resources": {"requests": {"storage": "1Gi"}},
    },
}))]
#[tokio::test(start_paused = true)]
async fn pods_that_wait_for_an_object_are_scheduled_in_the_order_of_their_priority(
    #[case] waiting: Value,
    #[case] object: Value,
) {
    let cluster = Cluster::start();
    budget(&cluster, 0).await;
    let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "fast"},
        "provisioner": "example.com/disk"});
    cluster.create(class).await;
    for (name, class) in [("a", "low"), ("b", "middle")] {
        let mut spec = asking("6", class, "");
        for (field, value) in waiting.as_object().expect("the value is an object") {
            spec[field] = value.clone();
        }
        let message = place(&cluster, name, "web", spec).await;
        assert!(message.starts_with("0/1 nodes are available: "), "{message}");
    }
    cluster.create(object).await;
    cluster.pass(5.0).await;
    assert_eq!(cluster.get("v1", "Pod", "b").await["spec"]["nodeName"], "node-0");
    assert!(cluster.events("Preempted").await.is_empty());
}

/// The Pod `late` would have room next to the terminating Pod.
#[tokio::test(start_paused = true)]
async fn pods_leave_room_for_a_nominated_pod_of_higher_priority() {
    let cluster = Cluster::start();
    let slow = PodScript::default().stops_after(Duration::from_secs(20));
    cluster.0.kubelet().script(PodSelector::all(), slow);
    budget(&cluster, 0).await;
    assert_eq!(place(&cluster, "low", "web", asking("6", "low", "")).await, "node-0");
    place(&cluster, "urgent", "web", asking("6", "high", "")).await;
    let message = place(&cluster, "late", "web", asking("2", "middle", "")).await;
    assert!(message.contains("1 Insufficient cpu"), "{message}");
    cluster.pass(25.0).await;
    for name in ["urgent", "late"] {
        assert_eq!(
            cluster.get("v1", "Pod", name).await["spec"]["nodeName"],
            "node-0",
            "{name}"
        );
    }
}

/// Until the Pod `low` is gone, the host port is free.
#[tokio::test(start_paused = true)]
async fn host_port_is_reserved_for_a_nominated_pod_of_higher_priority() {
    let cluster = Cluster::start();
    let slow = PodScript::default().stops_after(Duration::from_secs(20));
    cluster.0.kubelet().script(PodSelector::all(), slow);
    budget(&cluster, 0).await;
    assert_eq!(place(&cluster, "low", "web", asking("6", "low", "")).await, "node-0");
    let on_port = |cpu: &str, class: &str| {
        let mut spec = asking(cpu, class, "");
        spec["containers"][0]["ports"] = json!([{"containerPort": 80, "hostPort": 8080}]);
        spec
    };
    place(&cluster, "urgent", "web", on_port("6", "high")).await;
    let reason = "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports.";
    assert_eq!(
        place(&cluster, "late", "web", on_port("0", "middle")).await,
        format!("{reason} preemption: {reason}")
    );
    cluster.pass(25.0).await;
    assert_eq!(cluster.get("v1", "Pod", "urgent").await["spec"]["nodeName"], "node-0");
}

/// The removal of the Pod `low` would not make enough room on node `a`. Node `b` only has a Pod of the same priority,
/// and node `c` has a taint.
#[tokio::test(start_paused = true)]
async fn reasons_of_a_failed_preemption_are_counted_by_node() {
    let cluster = zones().await;
    budget(&cluster, 0).await;
    for (name, cpu, class, on) in [
        ("low", "1", "low", "a"),
        ("base", "6", "high", "a"),
        ("same", "6", "high", "b"),
    ] {
        assert_eq!(place(&cluster, name, "web", asking(cpu, class, on)).await, on);
    }
    let taint = json!({"spec": {"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]}});
    cluster.patch("v1", "Node", "c", taint).await;
    assert_eq!(
        place(&cluster, "urgent", "web", asking("4", "high", "")).await,
        "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient cpu. preemption: 0/3 nodes are \
         available: 1 Insufficient cpu, 1 No preemption victims found for incoming pod, 1 Preemption is not helpful \
         for scheduling."
    );
}

#[rstest]
#[case::own_anti_affinity(required("podAntiAffinity", term("db", "kubernetes.io/hostname")), json!({}), true)]
#[case::anti_affinity_of_the_other_pod(
    json!({}), required("podAntiAffinity", term("web", "kubernetes.io/hostname")), true,
)]
// A Pod in the other zone would have to be removed, too.
#[case::anti_affinity_across_nodes(required("podAntiAffinity", term("db", "all")), json!({}), false)]
#[tokio::test(start_paused = true)]
async fn pod_preempts_a_pod_that_excludes_its_node(#[case] own: Value, #[case] other: Value, #[case] preempts: bool) {
    let cluster = zones().await;
    budget(&cluster, 0).await;
    for name in ["a", "b", "c"] {
        let patch = json!({"metadata": {"labels": {"all": "yes"}}});
        cluster.patch("v1", "Node", name, patch).await;
        let mut spec = asking("1", "low", name);
        spec["affinity"] = other["affinity"].clone();
        assert_eq!(place(&cluster, &format!("db-{name}"), "db", spec).await, name);
    }
    let mut spec = asking("1", "high", "");
    spec["affinity"] = own["affinity"].clone();
    let placed = place(&cluster, "urgent", "web", spec).await;
    assert_eq!(placed.len() == 1, preempts, "{placed}");
    assert_eq!(cluster.events("Preempted").await.len(), usize::from(preempts));
}

/// The Pod `middle` loses its nomination to a Pod of higher priority, which needs the whole node.
#[tokio::test(start_paused = true)]
async fn preemption_removes_nominations_of_lower_priority() {
    let cluster = Cluster::start();
    let slow = PodScript::default().stops_after(Duration::from_secs(20));
    cluster.0.kubelet().script(PodSelector::all(), slow);
    budget(&cluster, 0).await;
    assert_eq!(place(&cluster, "low", "web", asking("8", "low", "")).await, "node-0");
    let nomination = async |name: &str| cluster.get("v1", "Pod", name).await["status"]["nominatedNodeName"].clone();
    place(&cluster, "middle", "web", asking("8", "middle", "")).await;
    assert_eq!(nomination("middle").await, "node-0");
    place(&cluster, "high", "web", asking("8", "high", "")).await;
    assert_eq!(nomination("high").await, "node-0");
    assert_eq!(nomination("middle").await, Value::Null);
}

#[tokio::test(start_paused = true)]
async fn nomination_is_removed_if_the_node_becomes_unsuitable() {
    let cluster = Cluster::start();
    let slow = PodScript::default().stops_after(Duration::from_secs(20));
    cluster.0.kubelet().script(PodSelector::all(), slow);
    budget(&cluster, 0).await;
    assert_eq!(place(&cluster, "low", "web", asking("8", "low", "")).await, "node-0");
    place(&cluster, "high", "web", asking("8", "high", "")).await;
    let nomination = async || cluster.get("v1", "Pod", "high").await["status"]["nominatedNodeName"].clone();
    assert_eq!(nomination().await, "node-0");
    let cordon = json!({"spec": {"unschedulable": true}});
    cluster.patch("v1", "Node", "node-0", cordon).await;
    cluster.pass(1.0).await;
    assert_eq!(nomination().await, Value::Null);
}

/// A Pod that waits for another Pod is scheduled when that Pod exists on a node, or gets a matching label.
#[rstest]
#[case::matching_pod_is_created("db", "db")]
#[case::pod_is_relabelled("other", "db")]
#[tokio::test(start_paused = true)]
async fn pending_pod_is_scheduled_once_its_affinity_is_satisfied(#[case] app: &str, #[case] label: &str) {
    let cluster = zones().await;
    let message = place(&cluster, "web", "web", required("podAffinity", term("db", "zone"))).await;
    assert!(message.contains("didn't match pod affinity rules"), "{message}");
    assert_eq!(
        place(&cluster, "db", app, json!({"nodeSelector": {"zone": "y"}})).await,
        "c"
    );
    let patch = json!({"metadata": {"labels": {"app": label}}});
    cluster.patch("v1", "Pod", "db", patch).await;
    cluster.pass(2.0).await;
    assert_eq!(cluster.get("v1", "Pod", "web").await["spec"]["nodeName"], "c");
}

#[tokio::test(start_paused = true)]
async fn pending_pod_is_scheduled_once_other_pods_reduce_the_skew() {
    let cluster = zones().await;
    let mut spec = spread("DoNotSchedule", "zone");
    spec["topologySpreadConstraints"][0]["nodeAffinityPolicy"] = json!("Ignore");
    spec["nodeSelector"] = json!({"zone": "x"});
    assert_eq!(place(&cluster, "one", "web", spec.clone()).await, "a");
    let message = place(&cluster, "two", "web", spec).await;
    assert!(message.contains("topology spread"), "{message}");
    assert_eq!(
        place(&cluster, "three", "web", json!({"nodeSelector": {"zone": "y"}})).await,
        "c"
    );
    assert_eq!(cluster.get("v1", "Pod", "two").await["spec"]["nodeName"], "b");
}

/// The taint of node `c`, which the Pod does not tolerate, excludes zone `y` if taints are honoured.
#[rstest]
#[case::ignore("Ignore", false)]
#[case::honor("Honor", true)]
#[tokio::test(start_paused = true)]
async fn spread_counts_tainted_nodes_depending_on_the_policy(#[case] policy: &str, #[case] is_placed: bool) {
    let cluster = zones().await;
    let taint = json!({"key": "dedicated", "effect": "NoSchedule"});
    cluster
        .patch("v1", "Node", "c", json!({"spec": {"taints": [taint]}}))
        .await;
    let mut spec = spread("DoNotSchedule", "zone");
    spec["topologySpreadConstraints"][0]["nodeTaintsPolicy"] = json!(policy);
    assert_eq!(place(&cluster, "one", "web", spec.clone()).await, "a");
    assert_eq!(place(&cluster, "two", "web", spec).await == "b", is_placed);
}

/// Reasons are sorted as strings (`FitError.Error`), and taints are not listed.
#[rstest]
#[case::several_reasons(
    json!({}),
    "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient cpu. preemption: 0/3 nodes are \
     available: 3 Preemption is not helpful for scheduling.",
)]
#[case::without_preemption(
    json!({"preemptionPolicy": "Never"}),
    "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient cpu. preemption: not eligible due to \
     preemptionPolicy=Never.",
)]
#[tokio::test(start_paused = true)]
async fn reasons_for_an_unschedulable_pod_are_sorted(#[case] mut spec: Value, #[case] message: &str) {
    let cluster = zones().await;
    let taint = json!({"spec": {"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]}});
    cluster.patch("v1", "Node", "c", taint).await;
    if let Some(policy) = spec["preemptionPolicy"].as_str() {
        let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
            "metadata": {"name": "polite"}, "value": 1, "preemptionPolicy": policy});
        cluster.create(class).await;
        spec["priorityClassName"] = json!("polite");
    }
    spec["containers"] = json!([{"name": "main", "image": "nginx:1", "resources": {"requests": {"cpu": "100000"}}}]);
    assert_eq!(place(&cluster, "big", "web", spec).await, message);
}

/// While its victims terminate, the Pod does not preempt further Pods.
#[tokio::test(start_paused = true)]
async fn pod_waits_for_terminating_victims_on_its_nominated_node() {
    let cluster = Cluster::start();
    let slow = PodScript::default().stops_after(Duration::from_secs(20));
    cluster.0.kubelet().script(PodSelector::all(), slow);
    let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"},
        "value": 5});
    cluster.create(class).await;
    let asking = json!([{"name": "main", "image": "nginx:1", "resources": {"requests": {"cpu": "6"}}}]);
    assert_eq!(
        place(&cluster, "low", "web", json!({"containers": asking.clone()})).await,
        "node-0"
    );
    let urgent = json!({"containers": asking, "priorityClassName": "high"});
    place(&cluster, "urgent", "web", urgent).await;
    cluster
        .patch("v1", "Node", "node-0", json!({"metadata": {"labels": {"a": "b"}}}))
        .await;
    cluster.pass(1.0).await;
    let message = cluster.get("v1", "Pod", "urgent").await;
    assert_eq!(
        condition(&message, "PodScheduled")[2],
        "0/1 nodes are available: 1 Insufficient cpu. preemption: not eligible due to a terminating pod on the \
         nominated node."
    );
}
