//! Three controllers of kube-controller-manager and one of JobSet, ported to the cached client.
//!
//! | Go | lines of code | here | lines of code |
//! |---|---|---|---|
//! | `serviceaccount/serviceaccounts_controller.go` | 162 | [`accounts`] | 20 |
//! | `certificates/rootcacertpublisher/publisher.go` | 187 | [`certificates`] | 39 |
//! | `clusterroleaggregation/clusterroleaggregation_controller.go` | 192 | [`aggregation`] | 44 |
//! | JobSet's `pod_controller.go` | 227 | [`placement`] | 78 |

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::{TryStreamExt, stream};
use informer::cache::indexes;
use informer::handler::{Event, enqueue};
use informer::reconcile::{Action, ReconcileError, Request};
use informer::runtime::{CachedClient, Manager};
use informer::{Cacheable, CachedObject, Error, ObjectKey};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Pod, PodCondition, ServiceAccount};
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{Api, DeleteParams, ObjectMeta, PostParams};
use kube::{Client, Resource, ResourceExt};
use rstest::rstest;
use serde_json::json;
use testkit::TestCluster;
use testkit::explore::explore;

fn done() -> Result<Action, ReconcileError> {
    Ok(Action::await_change())
}

fn named(key: &ObjectKey) -> ObjectMeta {
    ObjectMeta {
        name: Some(key.name().to_owned()),
        namespace: key.namespace().map(str::to_owned),
        ..ObjectMeta::default()
    }
}

/// Returns a predicate for objects with this name.
fn is_named<K: Cacheable>(name: &'static str) -> impl Fn(&Event<K>) -> bool {
    move |event| event.object().key().name() == name
}

/// Returns the key of an object's namespace.
fn namespace_of<K: Cacheable>(object: &CachedObject<K>) -> Option<ObjectKey> {
    object.key().namespace().map(ObjectKey::cluster)
}

fn is_active(namespace: &Namespace) -> bool {
    let phase = namespace.status.as_ref().and_then(|it| it.phase.as_deref());
    phase != Some("Terminating")
}

/// Ensures that each namespace has the ServiceAccount `default`.
fn accounts(manager: &Manager) -> Result<(), Error> {
    let client = manager.cached_client();
    let builder = manager.controller("serviceaccounts").for_::<Namespace>();
    let builder = builder.watches_where::<ServiceAccount>(enqueue::mapped(namespace_of), is_named("default"));
    builder.complete(move |request: Request| {
        let client = client.clone();
        async move {
            let namespace = client.get::<Namespace>(&request.key).await?;
            let key = ObjectKey::new(request.key.name(), "default");
            if namespace.is_some_and(|it| is_active(&it)) && client.get::<ServiceAccount>(&key).await?.is_none() {
                let account = ServiceAccount {
                    metadata: named(&key),
                    ..ServiceAccount::default()
                };
                client.create(&account).await?;
            }
            done()
        }
    })
}

const DESCRIPTION: &str = "kubernetes.io/description";

/// Ensures that each namespace has a ConfigMap with the certificate of the cluster's certificate authority.
fn certificates(manager: &Manager) -> Result<(), Error> {
    let client = manager.cached_client();
    let builder = manager.controller("certificates").for_::<Namespace>();
    let builder = builder.watches_where::<ConfigMap>(enqueue::mapped(namespace_of), is_named("kube-root-ca.crt"));
    builder.complete(move |request: Request| {
        let client = client.clone();
        async move {
            if !client
                .get::<Namespace>(&request.key)
                .await?
                .is_some_and(|it| is_active(&it))
            {
                return done();
            }
            let key = ObjectKey::new(request.key.name(), "kube-root-ca.crt");
            let found = client.get::<ConfigMap>(&key).await?;
            let mut wanted = found.as_deref().cloned().unwrap_or_default();
            wanted.data = Some(BTreeMap::from([("ca.crt".to_owned(), "the certificate".to_owned())]));
            let annotations = wanted.metadata.annotations.get_or_insert_default();
            annotations
                .entry(DESCRIPTION.to_owned())
                .or_insert("of the authority".to_owned());
            match found {
                Some(found) if *found == wanted => {}
                Some(_) => drop(client.update(&wanted).await?),
                None => {
                    let annotations = wanted.metadata.annotations.take();
                    wanted.metadata = ObjectMeta {
                        annotations,
                        ..named(&key)
                    };
                    client.create(&wanted).await?;
                }
            }
            done()
        }
    })
}

/// Sets the rules of each ClusterRole with an aggregation rule to the rules of the selected ClusterRoles.
fn aggregation(manager: &Manager) -> Result<(), Error> {
    let client = manager.cached_client();
    let client = client
        .field_owner("clusterrole-aggregation-controller")
        .force_ownership();
    let roles = manager.lister::<ClusterRole>();
    let aggregated = enqueue::mapped(move |_: &CachedObject<ClusterRole>| {
        let is_meant = |role: &CachedObject<ClusterRole>| role.typed().is_ok_and(|it| it.aggregation_rule.is_some());
        let meant = roles.list().into_iter().filter(is_meant);
        meant.map(|it| it.key().clone()).collect::<Vec<_>>()
    });
    let builder = manager.controller("clusterroles").watches::<ClusterRole>(aggregated);
    builder.complete(move |request: Request| {
        let client = client.clone();
        async move {
            let role = client.get::<ClusterRole>(&request.key).await?;
            let Some((role, selectors)) = role.as_ref().and_then(|it| Some((it, it.aggregation_rule.as_ref()?))) else {
                return done();
            };
            let mut rules = Vec::new();
            for selector in selectors.cluster_role_selectors.iter().flatten() {
                let found = client
                    .list::<ClusterRole>()
                    .selector(selector.clone().try_into()?)
                    .await?;
                let others = found.iter().filter(|it| it.metadata.name != role.metadata.name);
                for rule in others.flat_map(|it| it.rules.iter().flatten()) {
                    if !rules.contains(rule) {
                        rules.push(rule.clone());
                    }
                }
            }
            if rules != role.rules.clone().unwrap_or_default() {
                let applied = ClusterRole {
                    metadata: named(&request.key),
                    rules: Some(rules),
                    ..ClusterRole::default()
                };
                client.apply(&applied).await?;
            }
            done()
        }
    })
}

const JOB: &str = "jobset.sigs.k8s.io/job-key";
const EXCLUSIVE: &str = "alpha.jobset.sigs.k8s.io/exclusive-topology";
const INDEX: &str = "batch.kubernetes.io/job-completion-index";

fn label<'a, K: Resource>(object: &'a K, name: &str) -> Option<&'a str> {
    object.meta().labels.as_ref()?.get(name).map(String::as_str)
}

/// Returns the topology domain in which the Pods of a leader's Job must run, if the domain is known.
async fn topology_of(client: &CachedClient, leader: &Pod, key: &str) -> Result<Option<String>, Error> {
    let Some(name) = leader.spec.as_ref().and_then(|it| it.node_name.as_deref()) else {
        return Ok(None);
    };
    let node = client.get::<Node>(&ObjectKey::cluster(name)).await?;
    Ok(node.and_then(|it| label(&*it, key).map(str::to_owned)))
}

/// Deletes a Pod after recording the reason, so that its Job does not count it as a failure.
async fn disrupt(client: &CachedClient, pod: Arc<Pod>) -> Result<(), Error> {
    let mut disrupted = Pod::clone(&pod);
    let conditions = disrupted
        .status
        .get_or_insert_default()
        .conditions
        .get_or_insert_default();
    if !conditions.iter().any(|it| it.type_ == "DisruptionTarget") {
        conditions.push(PodCondition {
            type_: "DisruptionTarget".to_owned(),
            status: "True".to_owned(),
            reason: Some("ExclusivePlacementViolation".to_owned()),
            ..PodCondition::default()
        });
        client.status::<Pod>().patch_from(&pod, &disrupted).await?;
    }
    match client.delete::<Pod>(&ObjectKey::of(&*pod)).await {
        Err(err) if err.is_not_found() => Ok(()),
        deleted => deleted,
    }
}

/// Deletes Pods of an exclusively placed Job that cannot run in the topology domain of the first Pod, the leader.
fn placement(manager: &Manager) -> Result<(), Error> {
    let client = manager.cached_client();
    manager.factory().informer::<Pod>().add_index(indexes::label(JOB))?;
    let is_placed_leader = |event: &Event<Pod>| {
        let pod = event.object();
        let is_placed = || {
            pod.typed()
                .is_ok_and(|it| it.spec.as_ref().is_some_and(|it| it.node_name.is_some()))
        };
        pod.annotation(EXCLUSIVE).is_some() && pod.label(INDEX).as_deref() == Some("0") && is_placed()
    };
    let builder = manager.controller("placement").for_where::<Pod>(is_placed_leader);
    builder.complete(move |request: Request| {
        let client = client.clone();
        async move {
            let Some(leader) = client.get::<Pod>(&request.key).await? else {
                return done();
            };
            let key = leader.annotations().get(EXCLUSIVE).cloned().unwrap_or_default();
            let job = label(&*leader, JOB)
                .ok_or("the leader Pod has no job label")?
                .to_owned();
            let Some(topology) = topology_of(&client, &leader, &key).await? else {
                return Ok(Action::requeue(Duration::from_secs(1)));
            };
            let pods = client
                .list::<Pod>()
                .in_namespace(request.key.namespace().unwrap_or_default());
            let misplaced = pods
                .index(&format!("label:{JOB}"), &job)
                .await?
                .into_iter()
                .filter(|it| {
                    let selector = it.spec.as_ref().and_then(|it| it.node_selector.as_ref());
                    label(&**it, INDEX) != Some("0") && selector.and_then(|it| it.get(&key)) != Some(&topology)
                });
            let client = &client;
            stream::iter(misplaced.map(Ok::<_, Error>))
                .try_for_each_concurrent(50, |it| disrupt(client, it))
                .await?;
            done()
        }
    })
}

#[tokio::test(start_paused = true)]
async fn job_pods_outside_of_the_zone_of_the_leader_pod_are_deleted() {
    let cluster = TestCluster::start();
    run(&cluster, placement);
    for name in ["east", "west"] {
        cluster.create(testkit::objects::node(name).label("zone", name)).await;
    }
    let part = |index: &str, zone: &str| {
        let pod = testkit::objects::pod(&format!("job-{index}"));
        let pod = pod.annotation(EXCLUSIVE, "zone").label(JOB, "j").label(INDEX, index);
        pod.set("spec.nodeSelector", json!({"zone": zone}))
    };
    for (index, zone) in [("1", "east"), ("2", "west"), ("3", "west")] {
        cluster.create(part(index, zone)).await;
    }
    cluster.create(part("0", "east").set("spec.nodeName", "east")).await;
    cluster.settle().await;
    let names: Vec<_> = cluster
        .list::<Pod>()
        .into_iter()
        .filter_map(|it| it.metadata.name)
        .collect();
    assert_eq!(names, ["job-0", "job-1"]);
    assert_eq!(cluster.requests().client("controller").writes().count(), 4);
}

fn run(cluster: &TestCluster, add: fn(&Manager) -> Result<(), Error>) {
    let manager = Manager::new(cluster.client_named("controller"));
    add(&manager).expect("the controller is complete");
    cluster.run(async move { manager.run(std::future::pending()).await });
}

fn namespace(name: &str) -> Namespace {
    Namespace {
        metadata: named(&ObjectKey::cluster(name)),
        ..Namespace::default()
    }
}

#[rstest]
#[case::accounts(accounts, "serviceaccounts", "default")]
#[case::certificates(certificates, "configmaps", "kube-root-ca.crt")]
#[tokio::test(start_paused = true)]
async fn deleted_service_account_or_certificate_config_map_is_recreated(
    #[case] add: fn(&Manager) -> Result<(), Error>,
    #[case] plural: &str,
    #[case] name: &str,
) {
    let cluster = TestCluster::start();
    run(&cluster, add);
    cluster.create(namespace("shop")).await;
    cluster.settle().await;
    let is_there = || match plural {
        "configmaps" => cluster.exists::<ConfigMap>(&*format!("shop/{name}")),
        _ => cluster.exists::<ServiceAccount>(&*format!("shop/{name}")),
    };
    assert!(is_there());
    let client = cluster.client_named("user");
    let deleted: Result<(), kube::Error> = match plural {
        "configmaps" => {
            let maps: Api<ConfigMap> = Api::namespaced(client, "shop");
            maps.delete(name, &DeleteParams::default()).await.map(drop)
        }
        _ => {
            let accounts: Api<ServiceAccount> = Api::namespaced(client, "shop");
            accounts.delete(name, &DeleteParams::default()).await.map(drop)
        }
    };
    deleted.expect("the object exists");
    cluster.settle().await;
    assert!(is_there());
    let sent = cluster.requests().client("controller").writes().count();
    cluster.settle().await;
    assert_eq!(cluster.requests().client("controller").writes().count(), sent);
}

#[tokio::test(start_paused = true)]
async fn changed_root_certificate_config_map_is_restored() {
    let cluster = TestCluster::start();
    run(&cluster, certificates);
    cluster.create(namespace("shop")).await;
    cluster.settle().await;
    let other = json!({"data": {"ca.crt": "another"}, "metadata": {"labels": {"mine": "yes"}}});
    let _: ConfigMap = cluster.patch("shop/kube-root-ca.crt", other).await;
    cluster.settle().await;
    let map = cluster.get::<ConfigMap>("shop/kube-root-ca.crt");
    assert_eq!(map.data.expect("the ConfigMap has data")["ca.crt"], "the certificate");
    assert_eq!(map.metadata.labels.expect("the object has labels")["mine"], "yes");
}

#[tokio::test(start_paused = true)]
async fn aggregated_role_has_the_rules_of_the_selected_roles() {
    let cluster = TestCluster::start();
    run(&cluster, aggregation);
    let roles: Api<ClusterRole> = Api::all(cluster.client_named("user"));
    let role = |value| serde_json::from_value::<ClusterRole>(value).expect("the object is a ClusterRole");
    let selects = json!({"metadata": {"name": "all"}, "rules": [],
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"to": "all"}}]}});
    roles
        .create(&PostParams::default(), &role(selects))
        .await
        .expect("the object does not exist yet");
    for (name, resource) in [("b", "pods"), ("a", "secrets"), ("c", "pods")] {
        let rule = json!({"apiGroups": [""], "resources": [resource], "verbs": ["get"]});
        let part = json!({"metadata": {"name": name, "labels": {"to": "all"}}, "rules": [rule]});
        roles
            .create(&PostParams::default(), &role(part))
            .await
            .expect("the object does not exist yet");
    }
    cluster.settle().await;
    let resources = || {
        let rules = cluster.get::<ClusterRole>("all").rules.unwrap_or_default();
        rules
            .into_iter()
            .flat_map(|it| it.resources.unwrap_or_default())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        resources(),
        ["secrets", "pods"],
        "rules are in the order of role names, without duplicates"
    );
    roles
        .delete("a", &DeleteParams::default())
        .await
        .expect("the object exists");
    cluster.settle().await;
    assert_eq!(resources(), ["pods"]);
}

#[test]
fn controller_with_a_cached_client_survives_every_fault() {
    async fn controller(client: Client) {
        let manager = Manager::new(client);
        certificates(&manager).expect("the controller is complete");
        manager
            .run(std::future::pending())
            .await
            .expect("the manager stops without an error");
    }
    let scenario = async |cluster: &TestCluster| {
        cluster.controller("certificates", controller);
        cluster.create(namespace("shop")).await;
        cluster.settle().await;
        let other = json!({"data": {"ca.crt": "another"}});
        let _: ConfigMap = cluster.patch("shop/kube-root-ca.crt", other).await;
        cluster.settle().await;
    };
    explore(scenario).schedules(100).run();
}
