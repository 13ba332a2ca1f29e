//! Tests of the garbage collector and the namespace controller: random ownership compared with a naive model, and rules
//! that are not covered by recorded responses. `HOSTILE_TIMES=50` multiplies the number of random inputs by 50.

#[path = "hostile/trial.rs"]
mod trial;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fake_apiserver::{Anonymous, ApiServer, Authorization, Worker};
use http::Request;
use proptest::prelude::*;
use serde_json::{Value, json};
use trial::try_all;

/// The kinds of the model: kind, apiVersion, whether the kind is namespaced, and path. The last kind is a custom
/// resource.
const KINDS: [(&str, &str, bool, &str); 4] = [
    ("v1", "ConfigMap", true, "configmaps"),
    ("v1", "Secret", true, "secrets"),
    ("rbac.authorization.k8s.io/v1", "ClusterRole", false, "clusterroles"),
    ("example.com/v1", "Widget", true, "widgets"),
];

const NAMESPACES: [&str; 2] = ["default", "kube-public"];

/// An operation of a client.
#[derive(Clone, Debug)]
enum Op {
    /// Creates an object with these earlier objects as owners, which may not exist.
    Create {
        kind: usize,
        namespace: usize,
        owners: Vec<prop::sample::Index>,
        blocks: bool,
    },
    /// Deletes an object.
    Delete {
        object: prop::sample::Index,
        policy: &'static str,
    },
    /// Makes an earlier object the only owner of another.
    Adopt {
        object: prop::sample::Index,
        owner: prop::sample::Index,
    },
}

fn op() -> impl Strategy<Value = Op> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        6 => (0..KINDS.len(), prop_oneof![4 => Just(0_usize), 1 => Just(1_usize)], prop::collection::vec(index(), 0..3), any::<bool>())
            .prop_map(|(kind, namespace, owners, blocks)| Op::Create { kind, namespace, owners, blocks }),
        3 => (index(), prop::sample::select(vec!["Background", "Foreground", "Orphan"]))
            .prop_map(|(object, policy)| Op::Delete { object, policy }),
        1 => (index(), index()).prop_map(|(object, owner)| Op::Adopt { object, owner }),
    ]
}

/// An object of the model. Its index is also its name.
#[derive(Clone, Debug, PartialEq)]
struct Thing {
    kind: usize,
    namespace: &'static str,
    uid: String,
    owners: Vec<usize>,
    blocks: bool,
    exists: bool,
}

impl Thing {
    fn is_namespaced(&self) -> bool {
        KINDS[self.kind].2
    }
}

/// All objects that were ever created.
#[derive(Debug, Default)]
struct Model(Vec<Thing>);

impl Model {
    /// Collects garbage until nothing changes: applies the rules of garbage collection without queues, Events or order.
    fn collect(&mut self) {
        loop {
            let before = self.0.clone();
            for (number, thing) in before.iter().enumerate().filter(|(_, it)| it.exists) {
                let owner_in_namespace = thing.owners.iter().any(|it| before[*it].is_namespaced());
                if thing.owners.is_empty() || (!thing.is_namespaced() && owner_in_namespace) {
                    continue;
                }
                let is_solid = |owner: &&usize| {
                    let owner = &before[**owner];
                    owner.exists && (!owner.is_namespaced() || owner.namespace == thing.namespace)
                };
                let solid: Vec<usize> = thing.owners.iter().filter(is_solid).copied().collect();
                self.0[number].exists = !solid.is_empty();
                self.0[number].owners = if solid.is_empty() { thing.owners.clone() } else { solid };
            }
            if self.0 == before {
                return;
            }
        }
    }

    fn delete(&mut self, number: usize, policy: &str) {
        self.0[number].exists = false;
        if policy == "Orphan" {
            for thing in &mut self.0 {
                thing.owners.retain(|owner| *owner != number);
            }
        }
        self.collect();
    }

    fn references(&self, owners: &[usize], blocks: bool) -> Vec<Value> {
        let reference = |number: &usize| {
            let (api_version, kind, ..) = KINDS[self.0[*number].kind];
            let (name, uid) = (format!("o{number}"), &self.0[*number].uid);
            json!({"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "blockOwnerDeletion": blocks})
        };
        owners.iter().map(reference).collect()
    }
}

fn path(kind: usize, namespace: &str, name: &str) -> String {
    let (api_version, _, is_namespaced, resource) = KINDS[kind];
    let group = if api_version == "v1" { "/api" } else { "/apis" };
    let within = if is_namespaced {
        format!("/namespaces/{namespace}")
    } else {
        String::new()
    };
    format!("{group}/{api_version}{within}/{resource}/{name}")
        .trim_end_matches('/')
        .to_owned()
}

/// Sends a request, and asserts that it succeeds.
async fn ask(server: &ApiServer, method: &str, path: &str, body: &Value) -> Result<Value, String> {
    let media_type = match method {
        "PATCH" => "application/merge-patch+json",
        _ => "application/json",
    };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", media_type);
    let answer = server
        .call(request.body(body.to_string()).map_err(|why| why.to_string())?)
        .await;
    let text = String::from_utf8_lossy(answer.body()).into_owned();
    if !answer.status().is_success() {
        return Err(format!("{method} {path}: {text}"));
    }
    serde_json::from_str(&text).map_err(|why| why.to_string())
}

/// Allows the workers to finish their work.
async fn rest() {
    tokio::time::sleep(Duration::from_secs(3)).await;
}

fn widgets() -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
        },
    })
}

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

async fn start(workers: &[Worker]) -> Result<ApiServer, String> {
    let server = ApiServer::builder().workers(workers).start();
    ask(&server, "POST", CRDS, &widgets()).await?;
    rest().await;
    Ok(server)
}

async fn apply(server: &ApiServer, model: &mut Model, op: Op) -> Result<(), String> {
    let count = model.0.len();
    match op {
        Op::Create {
            kind,
            namespace,
            owners,
            blocks,
        } => {
            let owners: BTreeSet<usize> = owners.iter().filter(|_| count > 0).map(|it| it.index(count)).collect();
            let owners: Vec<usize> = owners.into_iter().collect();
            // An object that cannot be collected would block its owner forever.
            let blocks = blocks && KINDS[kind].2;
            let namespace = NAMESPACES[namespace];
            let (api_version, kind_name, ..) = KINDS[kind];
            let object = json!({
                "apiVersion": api_version, "kind": kind_name,
                "metadata": {"name": format!("o{count}"), "ownerReferences": model.references(&owners, blocks)},
            });
            let created = ask(server, "POST", &path(kind, namespace, ""), &object).await?;
            let uid = created["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
            model.0.push(Thing {
                kind,
                namespace,
                uid,
                owners,
                blocks,
                exists: true,
            });
            model.collect();
        }
        Op::Delete { object, policy } if count > 0 => {
            let number = object.index(count);
            let thing = &model.0[number];
            if thing.exists {
                let path = path(thing.kind, thing.namespace, &format!("o{number}"));
                ask(server, "DELETE", &path, &json!({"propagationPolicy": policy})).await?;
                model.delete(number, policy);
            }
        }
        Op::Adopt { object, owner } if count > 0 => {
            let (number, owner) = (object.index(count), owner.index(count));
            let thing = model.0[number].clone();
            if thing.exists && number != owner {
                let references = model.references(&[owner], thing.blocks);
                let patch = json!({"metadata": {"ownerReferences": references}});
                ask(
                    server,
                    "PATCH",
                    &path(thing.kind, thing.namespace, &format!("o{number}")),
                    &patch,
                )
                .await?;
                model.0[number].owners = vec![owner];
                model.collect();
            }
        }
        Op::Delete { .. } | Op::Adopt { .. } => {}
    }
    rest().await;
    Ok(())
}

/// Returns the names of existing objects, with the uids of their owners.
async fn existing(server: &ApiServer) -> Result<BTreeMap<String, BTreeSet<String>>, String> {
    let mut found = BTreeMap::new();
    for (api_version, kind, ..) in KINDS {
        for object in server
            .list(api_version, kind, "")
            .await
            .map_err(|status| status.message)?
        {
            let meta = &object["metadata"];
            let Some(name) = meta["name"].as_str().filter(|it| it.starts_with('o')) else {
                continue;
            };
            let owners = meta["ownerReferences"].as_array().into_iter().flatten();
            let uids = owners.filter_map(|it| it["uid"].as_str().map(str::to_owned));
            found.insert(name.to_owned(), uids.collect());
        }
    }
    Ok(found)
}

#[test]
fn remaining_objects_agree_with_a_naive_model() {
    try_all(48, &prop::collection::vec(op(), 1..24), |_, ops| async move {
        let server = start(&[Worker::GarbageCollector]).await?;
        let mut model = Model::default();
        for op in ops {
            let what = format!("{op:?}");
            apply(&server, &mut model, op).await?;
            let uid = |number: &usize| model.0[*number].uid.clone();
            let things = model.0.iter().enumerate().filter(|(_, it)| it.exists);
            let wanted: BTreeMap<String, BTreeSet<String>> = things
                .map(|(number, it)| (format!("o{number}"), it.owners.iter().map(uid).collect()))
                .collect();
            let found = existing(&server).await?;
            if found != wanted {
                return Err(format!(
                    "after {what}\nfound  {found:?}\nwanted {wanted:?}\n{}",
                    server.journal().tail(20)
                ));
            }
        }
        Ok(())
    });
}

/// Returns an object with these owners.
fn owned(kind: usize, name: &str, owners: &[&Value]) -> Value {
    let (api_version, kind, ..) = KINDS[kind];
    json!({
        "apiVersion": api_version, "kind": kind, "metadata": {"name": name, "ownerReferences": owners},
    })
}

/// Returns an owner reference to a created object.
fn owner(object: &Value, blocks: bool) -> Value {
    let meta = &object["metadata"];
    json!({
        "apiVersion": object["apiVersion"], "kind": object["kind"], "name": meta["name"], "uid": meta["uid"],
        "controller": true, "blockOwnerDeletion": blocks,
    })
}

async fn create(server: &ApiServer, kind: usize, namespace: &str, object: &Value) -> Value {
    ask(server, "POST", &path(kind, namespace, ""), object)
        .await
        .expect("the object is valid")
}

/// Returns the requests of workers: the method with the last part of the path, and the body.
fn requests_of_workers(server: &ApiServer) -> Vec<(String, Value)> {
    let requests = server.journal().requests().into_iter().filter(|it| it.worker.is_some());
    requests
        .map(|it| {
            let name = it.path.rsplit('/').next().unwrap_or_default();
            let body = serde_json::from_slice(&it.request_body).unwrap_or_default();
            (format!("{} {name}", it.method), body)
        })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn s1_dependent_is_deleted_with_preconditions_on_its_uid_and_version() {
    let server = start(&[Worker::GarbageCollector]).await.expect("the server starts");
    let parent = create(&server, 0, "default", &owned(0, "parent", &[])).await;
    let child = create(&server, 1, "default", &owned(1, "child", &[&owner(&parent, false)])).await;
    ask(&server, "DELETE", &path(0, "default", "parent"), &json!({}))
        .await
        .expect("the object exists");
    rest().await;

    let meta = &child["metadata"];
    let preconditions = json!({"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]});
    let body = json!({
        "kind": "DeleteOptions", "apiVersion": "v1", "preconditions": preconditions, "propagationPolicy": "Background",
    });
    assert_eq!(requests_of_workers(&server), [("DELETE child".to_owned(), body)]);
    let request = server.journal().requests().pop().expect("the request was recorded");
    assert_eq!(request.worker, Some("generic-garbage-collector"));
    let agent = "system:serviceaccount:kube-system:generic-garbage-collector";
    assert!(request.user_agent.ends_with(agent), "{}", request.user_agent);
}

#[tokio::test(start_paused = true)]
async fn s2_deleted_owner_is_removed_from_dependents_with_another_owner() {
    let server = start(&[Worker::GarbageCollector]).await.expect("the server starts");
    let gone = create(&server, 0, "default", &owned(0, "gone", &[])).await;
    let kept = create(&server, 0, "default", &owned(0, "kept", &[])).await;
    let mut other = owner(&kept, false);
    other["controller"] = false.into();
    let owners = [&owner(&gone, true), &other];
    let secret = create(&server, 1, "default", &owned(1, "secret", &owners)).await;
    create(&server, 3, "default", &owned(3, "widget", &owners)).await;
    ask(&server, "DELETE", &path(0, "default", "gone"), &json!({}))
        .await
        .expect("the object exists");
    rest().await;

    let widget = server
        .get("example.com/v1", "Widget", "default", "widget")
        .await
        .expect("the object is kept");
    assert_eq!(widget["metadata"]["ownerReferences"], json!([other]));
    let requests = requests_of_workers(&server);
    let uids = [&gone["metadata"]["uid"], &secret["metadata"]["uid"]];
    let strategic = json!({"metadata": {"ownerReferences": [{"$patch": "delete", "uid": uids[0]}], "uid": uids[1]}});
    assert_eq!(requests[0], ("PATCH secret".to_owned(), strategic));
    assert_eq!(requests[1].0, "PATCH widget");
    assert_eq!(requests[1].1["metadata"]["ownerReferences"], json!([other]));
    assert!(requests[1].1["metadata"]["resourceVersion"].is_string());
}

#[tokio::test(start_paused = true)]
async fn s3_circular_owners_are_collected() {
    let server = start(&[Worker::GarbageCollector]).await.expect("the server starts");
    let first = create(&server, 0, "default", &owned(0, "first", &[])).await;
    let second = create(&server, 3, "default", &owned(3, "second", &[&owner(&first, true)])).await;
    let patch = json!({"metadata": {"ownerReferences": [owner(&second, true)]}});
    ask(&server, "PATCH", &path(0, "default", "first"), &patch)
        .await
        .expect("the object exists");
    rest().await;
    let foreground = json!({"propagationPolicy": "Foreground"});
    ask(&server, "DELETE", &path(0, "default", "first"), &foreground)
        .await
        .expect("the object exists");
    rest().await;

    assert!(existing(&server).await.expect("both kinds are served").is_empty());
    assert!(server.get("v1", "ConfigMap", "default", "first").await.is_err());
    assert!(
        server
            .get("example.com/v1", "Widget", "default", "second")
            .await
            .is_err()
    );
}

#[tokio::test(start_paused = true)]
async fn s5_owner_in_another_namespace_counts_as_missing_and_is_reported() {
    let server = start(&[Worker::GarbageCollector]).await.expect("the server starts");
    let parent = create(&server, 0, "default", &owned(0, "parent", &[])).await;
    create(
        &server,
        1,
        "kube-public",
        &owned(1, "stranger", &[&owner(&parent, false)]),
    )
    .await;
    create(&server, 2, "", &owned(2, "above", &[&owner(&parent, false)])).await;
    rest().await;

    assert!(server.get("v1", "Secret", "kube-public", "stranger").await.is_err());
    let role = server
        .get("rbac.authorization.k8s.io/v1", "ClusterRole", "", "above")
        .await;
    assert!(role.is_ok(), "an object is kept while its owner cannot be looked up");
    let events = server.list("v1", "Event", "").await.expect("events are served");
    let uid = parent["metadata"]["uid"].as_str().unwrap_or_default();
    let message = |namespace: &str| {
        format!(
            "ownerRef [v1/ConfigMap, namespace: {namespace}, name: parent, uid: {uid}] does not exist in namespace \
             {namespace:?}"
        )
    };
    let told: Vec<_> = events
        .iter()
        .map(|it| (&it["metadata"]["namespace"], &it["reason"], &it["message"]))
        .collect();
    let reason = json!("OwnerRefInvalidNamespace");
    assert_eq!(
        told,
        [
            (&json!("default"), &reason, &json!(message(""))),
            (&json!("kube-public"), &reason, &json!(message("kube-public"))),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn s5_dependent_of_an_owner_of_an_unserved_kind_waits_without_requests() {
    let server = ApiServer::builder().workers([Worker::GarbageCollector]).start();
    let absent = json!({"apiVersion": "example.com/v1", "kind": "Widget", "name": "w", "uid": "no-such-uid"});
    create(&server, 0, "default", &owned(0, "child", &[&absent])).await;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert!(server.get("v1", "ConfigMap", "default", "child").await.is_ok());
    assert!(requests_of_workers(&server).is_empty());

    ask(&server, "POST", CRDS, &widgets())
        .await
        .expect("the object is valid");
    rest().await;
    assert!(server.get("v1", "ConfigMap", "default", "child").await.is_err());
}

#[tokio::test(start_paused = true)]
async fn deleting_a_crd_collects_dependents_of_its_custom_resources() {
    let server = start(&[Worker::GarbageCollector]).await.expect("the server starts");
    let widget = create(&server, 3, "default", &owned(3, "widget", &[])).await;
    create(&server, 0, "default", &owned(0, "child", &[&owner(&widget, true)])).await;
    ask(&server, "DELETE", &format!("{CRDS}/widgets.example.com"), &json!({}))
        .await
        .expect("the object exists");
    rest().await;
    assert!(server.get("v1", "ConfigMap", "default", "child").await.is_err());
}

#[tokio::test(start_paused = true)]
async fn forks_and_restored_servers_run_separate_workers() {
    let server = start(&[Worker::GarbageCollector]).await.expect("the server starts");
    let parent = create(&server, 0, "default", &owned(0, "parent", &[])).await;
    create(&server, 1, "default", &owned(1, "child", &[&owner(&parent, false)])).await;
    rest().await;
    let (before, fork) = (server.snapshot(), server.fork());

    ask(&fork, "DELETE", &path(0, "default", "parent"), &json!({}))
        .await
        .expect("the object exists");
    rest().await;
    assert!(fork.get("v1", "Secret", "default", "child").await.is_err());
    assert!(server.get("v1", "Secret", "default", "child").await.is_ok());

    for _ in 0..2 {
        ask(&server, "DELETE", &path(0, "default", "parent"), &json!({}))
            .await
            .expect("the object exists");
        rest().await;
        assert!(server.get("v1", "Secret", "default", "child").await.is_err());
        server.restore(&before);
        assert!(server.get("v1", "Secret", "default", "child").await.is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn workers_have_permissions_without_roles() {
    let server = ApiServer::builder()
        .workers(Worker::ALL)
        .authorization(Authorization::Rbac)
        .anonymous(Anonymous::Refused)
        .start();
    let absent = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "no-such-uid"});
    let mut child = owned(0, "child", &[&absent]);
    child["metadata"]["namespace"] = json!("default");
    server.load([child]).expect("the object is valid");
    rest().await;
    assert!(server.get("v1", "ConfigMap", "default", "child").await.is_err());
}

/// Returns Deployments with ReplicaSets and Pods, in the form of a dump.
fn tree(deployments: usize, replica_sets: usize, pods: usize) -> Vec<Value> {
    let object = |api_version: &str, kind: &str, name: &str, owner: Option<&Value>| {
        let template = json!({
            "metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "c", "image": "img:1"}]},
        });
        let spec = match kind {
            "Pod" => template["spec"].clone(),
            _ => json!({"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": template}),
        };
        json!({
            "apiVersion": api_version, "kind": kind, "spec": spec,
            "metadata": {
                "name": name, "namespace": "default", "uid": format!("uid-{name}"), "labels": {"app": name},
                "ownerReferences": owner.map(|it| self::owner(it, true)).into_iter().collect::<Vec<_>>(),
            },
        })
    };
    let mut objects = Vec::new();
    for d in 0..deployments {
        let deployment = object("apps/v1", "Deployment", &format!("d{d}"), None);
        for r in 0..replica_sets {
            let set = object("apps/v1", "ReplicaSet", &format!("d{d}-r{r}"), Some(&deployment));
            objects.extend((0..pods).map(|p| object("v1", "Pod", &format!("d{d}-r{r}-p{p}"), Some(&set))));
            objects.push(set);
        }
        objects.push(deployment);
    }
    objects
}

#[rstest::rstest]
#[case("Background")]
#[case("Foreground")]
#[tokio::test(start_paused = true)]
async fn large_owner_tree_is_deleted_completely(#[case] policy: &str) {
    let scale: usize = std::env::var("HOSTILE_TIMES")
        .ok()
        .and_then(|it| it.parse().ok())
        .unwrap_or(1);
    let server = ApiServer::builder().workers([Worker::GarbageCollector]).start();
    server.load(tree(5 * scale, 10, 10)).expect("the objects are valid");
    rest().await;
    let path = "/apis/apps/v1/namespaces/default/deployments";
    ask(&server, "DELETE", path, &json!({"propagationPolicy": policy}))
        .await
        .expect("the objects exist");
    rest().await;

    for (api_version, kind) in [("apps/v1", "Deployment"), ("apps/v1", "ReplicaSet"), ("v1", "Pod")] {
        let left = server.list(api_version, kind, "").await.expect("the kind is served");
        assert_eq!(left.len(), 0, "{kind}");
    }
}

async fn namespace(server: &ApiServer, name: &str) -> Option<Value> {
    server.get("v1", "Namespace", "", name).await.ok()
}

/// Returns the status and the message of each condition of a namespace.
fn conditions(namespace: &Value) -> Vec<(&str, &str)> {
    let conditions = namespace["status"]["conditions"].as_array().into_iter().flatten();
    conditions
        .map(|it| {
            (
                it["status"].as_str().unwrap_or_default(),
                it["message"].as_str().unwrap_or_default(),
            )
        })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn r5_namespace_is_deleted_with_its_content() {
    let server = start(&[Worker::Namespace]).await.expect("the server starts");
    let shop = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
    ask(&server, "POST", "/api/v1/namespaces", &shop)
        .await
        .expect("the namespace does not exist yet");
    for kind in [0, 1, 3] {
        create(&server, kind, "shop", &owned(kind, "o1", &[])).await;
        create(&server, kind, "default", &owned(kind, "o1", &[])).await;
    }
    ask(&server, "DELETE", "/api/v1/namespaces/shop", &json!({}))
        .await
        .expect("the object exists");
    rest().await;

    assert!(namespace(&server, "shop").await.is_none());
    for (api_version, kind, ..) in [KINDS[0], KINDS[1], KINDS[3]] {
        let left = server.list(api_version, kind, "").await.expect("the kind is served");
        assert_eq!(left.len(), 1, "{kind} of other namespaces stay");
    }
    // Only resources with objects are deleted; then the namespace is updated and finalized.
    let asked: Vec<String> = requests_of_workers(&server).into_iter().map(|(what, _)| what).collect();
    assert_eq!(
        asked,
        [
            "DELETE configmaps",
            "DELETE widgets",
            "DELETE secrets",
            "PUT status",
            "PUT finalize"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn r5_pods_that_do_not_stop_in_time_are_reported() {
    let server = start(&[Worker::Namespace]).await.expect("the server starts");
    let shop = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
    ask(&server, "POST", "/api/v1/namespaces", &shop)
        .await
        .expect("the namespace does not exist yet");
    let pods = "/api/v1/namespaces/shop/pods";
    let spec = json!({"nodeName": "node-1", "containers": [{"name": "c", "image": "img:1"}]});
    ask(
        &server,
        "POST",
        pods,
        &json!({"metadata": {"name": "stuck"}, "spec": spec}),
    )
    .await
    .expect("the object is valid");
    ask(&server, "DELETE", "/api/v1/namespaces/shop", &json!({}))
        .await
        .expect("the object exists");
    rest().await;
    let shown = namespace(&server, "shop")
        .await
        .expect("content remains in the namespace");
    let failing = |namespace: &Value| {
        conditions(namespace)
            .iter()
            .filter(|(status, _)| *status == "True")
            .count()
    };
    assert_eq!(failing(&shown), 0, "the Pod has thirty seconds to stop");

    tokio::time::sleep(Duration::from_secs(60)).await;
    let shown = namespace(&server, "shop")
        .await
        .expect("content remains in the namespace");
    let why = "Failed to delete all resource types, 1 remaining: unexpected items still remain in namespace: shop for \
               gvr: /v1, Resource=pods";
    assert!(conditions(&shown).contains(&("True", why)), "{shown}");

    let now = json!({"gracePeriodSeconds": 0});
    ask(&server, "DELETE", &format!("{pods}/stuck"), &now)
        .await
        .expect("the object still exists");
    rest().await;
    assert!(namespace(&server, "shop").await.is_none());
}

#[tokio::test(start_paused = true)]
async fn r5_conditions_follow_the_remaining_objects() {
    let server = start(&[Worker::Namespace, Worker::GarbageCollector])
        .await
        .expect("the server starts");
    let shop = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
    ask(&server, "POST", "/api/v1/namespaces", &shop)
        .await
        .expect("the namespace does not exist yet");
    for name in ["a", "b"] {
        let mut held = owned(0, name, &[]);
        held["metadata"]["finalizers"] = json!(["example.com/hold"]);
        create(&server, 0, "shop", &held).await;
    }
    ask(&server, "DELETE", "/api/v1/namespaces/shop", &json!({}))
        .await
        .expect("the object exists");
    rest().await;
    for (name, left) in [("a", 2), ("b", 1)] {
        let shown = namespace(&server, "shop")
            .await
            .expect("content remains in the namespace");
        let remaining = format!("Some resources are remaining: configmaps. has {left} resource instances");
        let held = format!(
            "Some content in the namespace has finalizers remaining: example.com/hold in {left} resource instances"
        );
        assert_eq!(conditions(&shown)[3..], [("True", &*remaining), ("True", &*held)]);
        let release = json!({"metadata": {"finalizers": null}});
        ask(&server, "PATCH", &path(0, "shop", name), &release)
            .await
            .expect("the object has a finalizer");
        rest().await;
    }
    assert!(namespace(&server, "shop").await.is_none());
}

/// Creates an Event about an object that does not exist.
async fn event(server: &ApiServer, name: &str) {
    let about = json!({"kind": "Node", "apiVersion": "v1", "name": "n"});
    let event = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": name}, "involvedObject": about, "reason": "R",
        "type": "Normal",
    });
    ask(server, "POST", "/api/v1/namespaces/default/events", &event)
        .await
        .expect("the object is valid");
}

/// Returns the names of the existing Events.
async fn events(server: &ApiServer) -> Vec<String> {
    let events = server.list("v1", "Event", "").await.expect("the kind is served");
    let names = events
        .iter()
        .map(|it| it["metadata"]["name"].as_str().unwrap_or_default());
    names.map(str::to_owned).collect()
}

async fn minutes(count: u64) {
    tokio::time::sleep(Duration::from_secs(count * 60)).await;
}

#[tokio::test(start_paused = true)]
async fn r7_events_expire_an_hour_after_their_last_write_and_watchers_are_notified() {
    let server = ApiServer::start();
    let version = server.resource_version();
    let path = format!("/api/v1/events?watch=1&resourceVersion={version}&timeoutSeconds=7200");
    let request = Request::get(path).body("").expect("the request is valid");
    let watching = server.call(request);
    let writing = async {
        event(&server, "counted").await;
        minutes(10).await;
        event(&server, "once").await;
        minutes(20).await;
        let path = "/api/v1/namespaces/default/events/counted";
        ask(&server, "PATCH", path, &json!({"count": 2}))
            .await
            .expect("the object exists");
        minutes(39).await;
        assert_eq!(events(&server).await, ["counted", "once"]);
        minutes(2).await;
        assert_eq!(events(&server).await, ["counted"]);
        minutes(20).await;
        assert!(events(&server).await.is_empty());
    };
    futures::future::join(watching, writing).await;
    let told: Vec<_> = server
        .journal()
        .events()
        .into_iter()
        .filter(|it| it.kind == "DELETED")
        .collect();
    let told: Vec<_> = told
        .iter()
        .map(|it| (it.name.as_str(), it.at.as_secs() / 60, it.revision))
        .collect();
    assert_eq!(told, [("once", 70, version + 4), ("counted", 90, version + 5)]);
    assert_eq!((server.expired_events(), server.resource_version()), (2, version + 5));
    assert!(server.journal().requests().iter().all(|it| it.method != "DELETE"));
}

#[tokio::test(start_paused = true)]
async fn r7_event_lifetime_is_configurable() {
    for (ttl, kept) in [
        (None, 1),
        (Some(Duration::from_secs(7200)), 1),
        (Some(Duration::from_secs(1800)), 0),
    ] {
        let server = ApiServer::builder().event_ttl(ttl).start();
        event(&server, "a").await;
        minutes(100).await;
        assert_eq!(events(&server).await.len(), kept, "{ttl:?}");
    }
}

#[test]
fn r7_events_expire_in_every_runtime_of_a_server() {
    let server = ApiServer::start();
    for _ in 0..2 {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build();
        runtime.expect("the runtime can be built").block_on(async {
            event(&server, "a").await;
            minutes(70).await;
            assert!(events(&server).await.is_empty());
        });
    }
}

#[tokio::test(start_paused = true)]
async fn r7_event_lifetimes_restart_after_a_restore_and_continue_in_a_fork() {
    let server = ApiServer::start();
    event(&server, "a").await;
    let state = server.snapshot();
    minutes(40).await;
    let (fork, anew) = (server.fork(), ApiServer::builder().world(&state).start());
    server.restore(&state);
    minutes(30).await;
    assert!(events(&fork).await.is_empty());
    assert_eq!((events(&server).await.len(), events(&anew).await.len()), (1, 1));
    minutes(31).await;
    assert!(events(&server).await.is_empty() && events(&anew).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn r7_recreated_event_has_a_new_lifetime() {
    let server = ApiServer::start();
    event(&server, "a").await;
    minutes(30).await;
    let path = "/api/v1/namespaces/default/events/a";
    ask(&server, "DELETE", path, &json!({}))
        .await
        .expect("the object exists");
    event(&server, "a").await;
    minutes(45).await;
    assert_eq!(events(&server).await, ["a"]);
    minutes(16).await;
    assert!(events(&server).await.is_empty());
}
