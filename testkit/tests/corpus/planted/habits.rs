//! Common mistakes of published operators, each with a correct twin.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use rstest::rstest;
use serde_json::json;
use testkit::TestCluster;
use tokio::time::sleep;

use super::bugs::scenario;
use super::{exploration, is_silent};
use crate::support::{Reconciled, annotate, annotation, api, ensure, names, operator, remove, spec, volume};

fn is_done(parent: &ConfigMap) -> bool {
    annotation(parent, "done") == Some(spec(parent, "size"))
}

async fn apply(client: &Client, name: &str, size: &str) -> Reconciled {
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": {"size": size},
    });
    let params = PatchParams::apply("operator").force();
    let secrets = api::<Secret>(client);
    secrets.patch(name, &params, &Patch::Apply(secret)).await.map(drop)
}

/// Treats the deletion of a missing object as an error: after a restart, an already deleted object blocks the remaining
/// deletions.
async fn delete_in_turn(parent: Arc<ConfigMap>, client: Client, is_fixed: bool) -> Reconciled {
    if is_done(&parent) {
        return Ok(());
    }
    let secrets = api::<Secret>(&client);
    for name in ["web-a", "web-b"] {
        match (spec(&parent, "size"), is_fixed) {
            ("1", _) => ensure(&secrets, &volume(name)).await?,
            (_, true) => remove(&secrets, name).await?,
            (_, false) => secrets.delete(name, &DeleteParams::default()).await.map(drop)?,
        }
    }
    annotate(&parent, &client, "done", spec(&parent, "size")).await
}

fn failing_deletes(cluster: &TestCluster, is_fixed: bool) {
    cluster.controller("operator", move |client| {
        operator(client, move |parent, client| delete_in_turn(parent, client, is_fixed))
    });
}

/// Names a child after a field, and stores the old name only in memory.
async fn rename(
    parent: Arc<ConfigMap>,
    client: Client,
    known: Arc<Mutex<BTreeMap<String, String>>>,
    is_fixed: bool,
) -> Reconciled {
    let secrets = api::<Secret>(&client);
    let name = format!("{}-{}", parent.name_any(), spec(&parent, "size"));
    ensure(&secrets, &volume(&name)).await?;
    let before = known.lock().unwrap().insert(parent.name_any(), name.clone());
    let old = match is_fixed {
        true => names(&secrets).await?,
        false => before.into_iter().collect(),
    };
    for old in old.iter().filter(|it| **it != name) {
        remove(&secrets, old).await?;
    }
    Ok(())
}

fn leaked_names(cluster: &TestCluster, is_fixed: bool) {
    cluster.controller("operator", move |client| {
        let known = Arc::default();
        operator(client, move |parent, client| {
            rename(parent, client, Arc::clone(&known), is_fixed)
        })
    });
}

/// Reports the object's current generation as observed instead of the generation that it has reconciled.
async fn observe_too_much(parent: Arc<ConfigMap>, client: Client, is_fixed: bool) -> Reconciled {
    if is_done(&parent) {
        return Ok(());
    }
    apply(&client, &parent.name_any(), spec(&parent, "size")).await?;
    let newest = api::<ConfigMap>(&client).get(&parent.name_any()).await?;
    let observed = if is_fixed { &parent } else { &newest };
    annotate(&parent, &client, "done", spec(observed, "size")).await
}

fn observed_too_much(cluster: &TestCluster, is_fixed: bool) {
    cluster.controller("operator", move |client| {
        operator(client, move |parent, client| observe_too_much(parent, client, is_fixed))
    });
}

/// Counts an attempt in one write and marks it as counted in another.
async fn count(parent: Arc<ConfigMap>, client: Client, is_fixed: bool) -> Reconciled {
    let parents = api::<ConfigMap>(&client);
    let newest = parents.get(&parent.name_any()).await?;
    if annotation(&newest, "counted").is_some() {
        return Ok(());
    }
    let counted = annotation(&newest, "starts").and_then(|it| it.parse::<u32>().ok());
    let mut annotations = json!({"starts": (counted.unwrap_or(0) + 1).to_string()});
    if is_fixed {
        annotations["counted"] = "true".into();
    }
    // The patch is refused if there is a newer version.
    let metadata = json!({"resourceVersion": newest.resource_version(), "annotations": annotations});
    let patch = Patch::Merge(json!({"metadata": metadata}));
    parents
        .patch(&parent.name_any(), &PatchParams::default(), &patch)
        .await?;
    match is_fixed {
        true => Ok(()),
        false => annotate(&parent, &client, "counted", "true").await,
    }
}

fn counted_twice(cluster: &TestCluster, is_fixed: bool) {
    cluster.controller("operator", move |client| {
        operator(client, move |parent, client| count(parent, client, is_fixed))
    });
}

/// Ends a task a minute after its start, by a timer that only exists in the process.
async fn expire(parent: Arc<ConfigMap>, client: Client, is_fixed: bool) -> Reconciled {
    const LIFE: Duration = Duration::from_secs(60);
    if annotation(&parent, "expired").is_some() {
        return Ok(());
    }
    let has_begun = annotation(&parent, "begun").is_some();
    if !has_begun {
        annotate(&parent, &client, "begun", "true").await?;
    }
    match (is_fixed, has_begun) {
        (true, _) => {
            sleep(LIFE).await;
            annotate(&parent, &client, "expired", "true").await
        }
        (false, true) => Ok(()),
        (false, false) => {
            tokio::spawn(async move {
                sleep(LIFE).await;
                annotate(&parent, &client, "expired", "true").await
            });
            Ok(())
        }
    }
}

fn lost_timer(cluster: &TestCluster, is_fixed: bool) {
    cluster.controller("operator", move |client| {
        operator(client, move |parent, client| expire(parent, client, is_fixed))
    });
}

/// Writes the complete object from the cache, which overwrites changes of other clients.
async fn replace(parent: Arc<ConfigMap>, client: Client, is_fixed: bool) -> Reconciled {
    if is_done(&parent) {
        return Ok(());
    }
    let mut next = (*parent).clone();
    let size = spec(&parent, "size").to_owned();
    next.annotations_mut().insert("done".to_owned(), size);
    if !is_fixed {
        next.metadata.resource_version = None;
    }
    let parents = api::<ConfigMap>(&client);
    parents
        .replace(&parent.name_any(), &PostParams::default(), &next)
        .await
        .map(drop)
}

fn overwritten(cluster: &TestCluster, is_fixed: bool) {
    cluster.controller("operator", move |client| {
        operator(client, move |parent, client| replace(parent, client, is_fixed))
    });
}

/// Records a generation as observed before acting on it, so that the retry after a failure does nothing.
async fn remember(
    parent: Arc<ConfigMap>,
    client: Client,
    seen: Arc<Mutex<BTreeMap<String, String>>>,
    is_fixed: bool,
) -> Reconciled {
    let (name, size) = (parent.name_any(), spec(&parent, "size").to_owned());
    if seen.lock().unwrap().get(&name) == Some(&size) {
        return Ok(());
    }
    if !is_fixed {
        seen.lock().unwrap().insert(name.clone(), size.clone());
    }
    apply(&client, &name, &size).await?;
    seen.lock().unwrap().insert(name, size);
    Ok(())
}

fn remembered_early(cluster: &TestCluster, is_fixed: bool) {
    cluster.controller("operator", move |client| {
        let seen = Arc::default();
        operator(client, move |parent, client| {
            remember(parent, client, Arc::clone(&seen), is_fixed)
        })
    });
}

#[rstest]
#[case::deletion_of_a_missing_object_fails(failing_deletes, "the controllers settle")]
#[case::object_with_an_old_name_is_leaked(leaked_names, "end state")]
#[case::observed_generation_is_written_too_early(observed_too_much, "end state")]
#[case::repeated_write_is_counted_twice(counted_twice, "end state")]
#[case::timer_is_lost(lost_timer, "end state")]
#[case::object_is_overwritten(overwritten, "end state")]
#[case::failed_work_is_remembered_as_done(remembered_early, "end state")]
fn common_bug_is_found(#[case] start: fn(&TestCluster, bool), #[case] oracle: &str) {
    let report = exploration(scenario(start, false)).report();
    println!("{} schedules", report.coverage().schedules);
    assert_eq!(report.failure().map(|it| it.oracle()), Some(oracle), "{report}");
    assert_eq!(report.nondeterminism(), Vec::<String>::new(), "{report}");
}

#[rstest]
fn fixed_variant_of_a_common_bug_passes(
    #[values(
        failing_deletes,
        leaked_names,
        observed_too_much,
        counted_twice,
        lost_timer,
        overwritten,
        remembered_early
    )]
    start: fn(&TestCluster, bool),
) {
    is_silent(scenario(start, true));
}
