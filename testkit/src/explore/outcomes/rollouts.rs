//! Earlier rollouts: ControllerRevisions and ReplicaSets that workers keep for earlier templates of an object. In real
//! time, the number of these objects depends on chance: a worker may not observe an intermediate template.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::Value;

use super::end_state::{EndState, Kept};
use super::key::resource_of;

pub(super) const REVISIONS: &str = "controllerrevisions.apps";
pub(super) const REPLICA_SETS: &str = "replicasets.apps";
const DEPLOYMENTS: &str = "deployments.apps";

/// Resources in which workers keep the history of a spec.
pub(super) const HISTORY: [&str; 2] = [REVISIONS, REPLICA_SETS];

/// Annotation of a Deployment and its ReplicaSets with the number of the rollout.
pub(super) const NUMBER: &str = "deployment.kubernetes.io/revision";
/// Annotation of a ReplicaSet with the numbers of earlier rollouts of the same template.
const NUMBERS: &str = "deployment.kubernetes.io/revision-history";

/// The rollout to which an object belongs.
struct Rollout {
    /// Uid of the owner.
    owner: String,
    number: i64,
}

impl EndState {
    /// Returns the objects of one key without objects that only record earlier rollouts, if these are not compared:
    /// workers created them, their owner has an object of a later rollout, and their number of replicas is zero.
    pub(super) fn without_earlier_rollouts<'a>(&self, key: &str, all: &'a [Kept]) -> Cow<'a, [Kept]> {
        let may_have = HISTORY.contains(&resource_of(key));
        if !self.ignores_rollouts || !may_have || all.len() < 2 {
            return Cow::Borrowed(all);
        }
        let rollouts: Vec<Option<Rollout>> = all.iter().map(|it| rollout(key, &it.object.value())).collect();
        let mut latest: BTreeMap<&str, i64> = BTreeMap::new();
        for it in rollouts.iter().flatten() {
            let number = latest.entry(&it.owner).or_insert(it.number);
            *number = it.number.max(*number);
        }
        let is_earlier = |it: &Rollout| latest.get(&*it.owner).is_some_and(|latest| it.number < *latest);
        let kept = all.iter().zip(&rollouts).filter(|(kept, rollout)| {
            let is_history = rollout.as_ref().is_some_and(is_earlier) && !has_replicas(&kept.object.value());
            !(is_history && self.is_derived(kept))
        });
        Cow::Owned(kept.map(|(kept, _)| kept.clone()).collect())
    }

    /// Removes the numbers of rollouts from an object, if earlier rollouts are not compared.
    pub(super) fn hide_rollouts(&self, key: &str, kept: &Kept, object: &mut Value) {
        if !self.ignores_rollouts {
            return;
        }
        if resource_of(key) == REVISIONS
            && self.is_derived(kept)
            && let Some(object) = object.as_object_mut()
        {
            object.remove("revision");
        }
        let has_numbers = [DEPLOYMENTS, REPLICA_SETS].contains(&resource_of(key));
        let annotations = object.pointer_mut("/metadata/annotations").filter(|_| has_numbers);
        if let Some(annotations) = annotations.and_then(Value::as_object_mut) {
            annotations.retain(|name, _| name != NUMBER && name != NUMBERS);
        }
    }
}

/// Returns the rollout to which an object belongs, if it has a controller and a number.
fn rollout(key: &str, object: &Value) -> Option<Rollout> {
    let metadata = &object["metadata"];
    let mut owners = metadata["ownerReferences"].as_array()?.iter();
    let owner = owners.find(|it| it["controller"] == true)?["uid"].as_str()?;
    let number = match resource_of(key) == REVISIONS {
        true => object["revision"].as_i64()?,
        false => metadata["annotations"][NUMBER].as_str()?.parse().ok()?,
    };
    let owner = owner.to_owned();
    Some(Rollout { owner, number })
}

/// Returns `true` if an object, such as a ReplicaSet, has replicas or must have replicas.
fn has_replicas(object: &Value) -> bool {
    let fields = [&object["spec"]["replicas"], &object["status"]["replicas"]];
    fields.into_iter().any(|it| it.as_i64().unwrap_or_default() > 0)
}

#[cfg(test)]
mod tests {
    use fake_apiserver::Worker;
    use serde_json::json;

    use super::*;
    use crate::TestCluster;
    use crate::mask::Mask;
    use crate::objects::object;
    use crate::work::Work;

    fn state(cluster: &TestCluster, ignores_rollouts: bool) -> EndState {
        let work = Work {
            ignores_rollouts,
            ..Work::default()
        };
        EndState::of(cluster.server(), 0, &work)
    }

    /// Rolls out these images one after another, without Pods, and returns the end state.
    async fn rolled_out(kind: &str, images: &[&str], ignores_rollouts: bool) -> EndState {
        let cluster = TestCluster::builder().workers(Worker::ALL).start();
        let web = || object("apps/v1", kind, "web");
        for (at, image) in images.iter().enumerate() {
            let containers = json!([{"name": "a", "image": image}]);
            let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": containers}});
            let mut spec = json!({"selector": {"matchLabels": {"app": "web"}}, "replicas": 0, "template": template});
            if kind == "StatefulSet" {
                spec["serviceName"] = "web".into();
            }
            match at {
                0 => drop(cluster.create(web().set("spec", spec)).await),
                _ => drop(cluster.patch(web(), json!({"spec": {"template": template}})).await),
            }
            cluster.settle().await;
        }
        state(&cluster, ignores_rollouts)
    }

    #[rstest::rstest]
    #[case::stateful_set("StatefulSet", "controllerrevisions.apps")]
    #[case::deployment("Deployment", "replicasets.apps")]
    #[tokio::test(start_paused = true)]
    async fn number_of_earlier_rollouts_is_only_compared_in_virtual_time(#[case] kind: &str, #[case] history: &str) {
        for ignores_rollouts in [true, false] {
            let all = rolled_out(kind, &["a", "b", "c"], ignores_rollouts).await;
            let fewer = rolled_out(kind, &["a", "c"], ignores_rollouts).await;
            for [one, other] in [[&all, &fewer], [&fewer, &all]] {
                let differences = one.compare(other, &Mask::default());
                let is_listed = differences.iter().any(|it| it.contains(history));
                assert_eq!(is_listed, !ignores_rollouts, "{differences:#?}");
            }
        }
    }

    #[rstest::rstest]
    #[case::stateful_set("StatefulSet", "controllerrevisions.apps")]
    #[case::deployment("Deployment", "replicasets.apps")]
    #[tokio::test(start_paused = true)]
    async fn latest_rollout_is_compared(#[case] kind: &str, #[case] history: &str) {
        let (one, other) = (
            rolled_out(kind, &["a", "b"], true).await,
            rolled_out(kind, &["a", "c"], true).await,
        );
        let differences = one.compare(&other, &Mask::default());
        assert!(differences.iter().any(|it| it.contains(history)), "{differences:#?}");
    }

    /// Creates ControllerRevisions with these numbers as the controller under test.
    async fn own(numbers: &[(i64, &str)]) -> EndState {
        let cluster = TestCluster::start();
        let owner = cluster.create(crate::objects::config_map("web")).await;
        for (number, name) in numbers {
            let revision = object("apps/v1", "ControllerRevision", name).set("metadata.generateName", "web-");
            let owner =
                json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "web", "controller": true, "uid": owner.uid()});
            let revision = revision.set("metadata.ownerReferences", json!([owner]));
            let revision = revision.set("revision", *number).set("data", json!({"size": number}));
            cluster.create(revision).await;
        }
        state(&cluster, true)
    }

    #[tokio::test(start_paused = true)]
    async fn revisions_of_the_controller_under_test_are_compared() {
        let (two, one) = (
            own(&[(1, "web-b7xzq"), (2, "web-k2w9d")]).await,
            own(&[(2, "web-q8m4x")]).await,
        );
        assert_ne!(two.compare(&one, &Mask::default()), [""; 0]);
    }
}
