//! The garbage collector and the namespace controller at work: random ownership against a naive model, and rules that
//! the recorded answers do not show. `HOSTILE_TIMES=50` tries 50 times as much.

#[path = "hostile/trial.rs"]
mod trial;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fake_apiserver::{ApiServer, Worker};
use http::Request;
use proptest::prelude::*;
use serde_json::{Value, json};
use trial::try_all;

/// The kinds of the model: whether they are namespaced, and where they are. The last is a custom resource.
const KINDS: [(&str, &str, bool, &str); 4] = [
    ("v1", "ConfigMap", true, "configmaps"),
    ("v1", "Secret", true, "secrets"),
    ("rbac.authorization.k8s.io/v1", "ClusterRole", false, "clusterroles"),
    ("example.com/v1", "Widget", true, "widgets"),
];

const NAMESPACES: [&str; 2] = ["default", "kube-public"];

/// One thing that a client does.
#[derive(Clone, Debug)]
enum Op {
    /// Creates an object with these of the earlier ones as owners, existing or not.
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
    /// Makes one earlier object the only owner of another.
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

/// An object of the model. Its number is its name.
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

/// All objects there ever were.
#[derive(Debug, Default)]
struct Model(Vec<Thing>);

impl Model {
    /// Collects until nothing changes: the rules of garbage, without queues, events and order.
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

/// Sends a request; the answer must be a success.
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

/// Lets the workers finish.
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
            // An object that cannot be collected would hold its owner for ever.
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

/// The names of what exists, with the uids of the owners.
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
fn what_is_left_is_what_a_naive_model_leaves() {
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
