//! `Skipped`: traces of changes that controllers need not observe, because users made another change afterwards.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::difference::Difference;
use super::end_state::{EndState, Judged, Kept};
use super::headline::{gone, gone_owner};
use super::key::resource_of;
use super::rollouts::{HISTORY, NUMBER, REPLICA_SETS, REVISIONS};
use crate::mask::Mask;

const CLAIMS: &str = "persistentvolumeclaims";
const VOLUMES: &str = "persistentvolumes";

impl EndState {
    /// Same as `judge` for a run in which users made a change before controllers had observed the previous one. Ignores
    /// traces of changes that controllers need not observe.
    pub(crate) fn judge_overlap(&self, found: &Self, mask: &Mask) -> Judged {
        let [left, right] = [self, found].map(|it| it.under(&mask.templates));
        let skipped = Skipped::of(left.as_ref().unwrap_or(self), right.as_ref().unwrap_or(found));
        self.judged(found, mask, |it| !skipped.explains(it))
    }
}

/// Objects of the reference that are missing in a run because its controllers did not observe each change by users.
///
/// A controller that observes only the last of several changes is correct, so the run may lack objects that outlive the
/// earlier changes: claims that no Pod uses, their volumes, and objects of a deleted object. The history of a spec that
/// workers keep may be shorter, too.
#[derive(Default)]
pub(super) struct Skipped {
    /// Keys of the reference under which objects are missing, but only objects that outlive an earlier change.
    leftovers: BTreeSet<Arc<str>>,
    /// Keys of ControllerRevisions and ReplicaSets in the reference that controllers under test wrote, in the format of
    /// the texts of differences.
    own: BTreeSet<String>,
}

impl Skipped {
    pub(super) fn of(reference: &EndState, found: &EndState) -> Self {
        let gone = gone(reference);
        let used = used_claims(reference);
        let is_history = |key: &str| HISTORY.contains(&resource_of(key));
        let is_left = |key: &str, kept: &Kept| {
            let is_unused = claim(kept).is_some_and(|it| !used.contains(&it));
            // An object with the same name as a deleted object may belong to another object.
            let is_owned = || kept.owners().iter().any(|uid| reference.exists(uid));
            let is_earlier = || resource_of(key) == REPLICA_SETS && reference.is_derived(kept);
            !kept.is_untouched && is_unused
                || gone_owner(reference, kept, &gone).is_some() && !is_owned()
                || is_earlier()
        };
        let are_left = |(key, all): &(&Arc<str>, &Vec<Kept>)| {
            let missing = all.len().saturating_sub(found.named(key).len());
            missing > 0 && all.iter().filter(|it| is_left(key, it)).count() >= missing
        };
        let leftovers = reference.all().filter(are_left).map(|(key, _)| Arc::clone(key));
        let are_own =
            |(key, all): &(&Arc<str>, &Vec<Kept>)| is_history(key) && !all.iter().all(|it| reference.is_derived(it));
        let own = reference.all().filter(are_own).map(|(key, _)| key.replace(" /", " "));
        Self {
            leftovers: leftovers.collect(),
            own: own.collect(),
        }
    }

    /// Returns `true` if the difference is a trace of a change that controllers need not observe.
    ///
    /// Controllers may also write ReplicaSets themselves, so other differences in ReplicaSets count.
    pub(super) fn explains(&self, difference: &Difference) -> bool {
        let is_history = match resource_of(&difference.key) {
            REVISIONS => difference.is_derived,
            REPLICA_SETS => difference.is_derived && difference.path.contains(NUMBER),
            _ => false,
        };
        let is_leftover = difference.path.is_empty() && self.leftovers.contains(&difference.key);
        is_history || self.is_name(&difference.text) || is_leftover
    }

    /// Returns `true` if the reference contains the name of a ControllerRevision or ReplicaSet that workers wrote.
    fn is_name(&self, text: &str) -> bool {
        let Some(of) = text.strip_prefix("expected \"name of ") else {
            return false;
        };
        let is_of = |key: &String| {
            let rest = of.strip_prefix(key.as_str());
            rest.is_some_and(|it| it.starts_with(['"', ',']))
        };
        HISTORY.contains(&resource_of(of)) && !self.own.iter().any(is_of)
    }
}

/// Returns the namespaces and names of the claims that Pods use.
fn used_claims(end: &EndState) -> BTreeSet<(String, String)> {
    let mut used = BTreeSet::new();
    let pods = end.all().filter(|(key, _)| key.starts_with("pods "));
    for kept in pods.flat_map(|(_, all)| all) {
        let pod = kept.object.value();
        for volume in pod["spec"]["volumes"].as_array().into_iter().flatten() {
            let named = volume["persistentVolumeClaim"]["claimName"].as_str().map(str::to_owned);
            let own = || volume["name"].as_str().map(|it| format!("{}-{it}", kept.object.name()));
            let name = named.or_else(|| volume["ephemeral"].is_object().then(own).flatten());
            used.extend(name.map(|it| (kept.object.namespace().to_owned(), it)));
        }
    }
    used
}

/// Returns the namespace and name of a claim, or of the claim that a volume is bound to.
fn claim(kept: &Kept) -> Option<(String, String)> {
    let object = &kept.object;
    match object.resource() {
        CLAIMS => Some((object.namespace().to_owned(), object.name().to_owned())),
        VOLUMES => {
            let of = &object.value()["spec"]["claimRef"];
            Some((of["namespace"].as_str()?.to_owned(), of["name"].as_str()?.to_owned()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use fake_apiserver::Worker;
    use rstest::rstest;
    use serde_json::json;

    use super::{Difference, EndState, REPLICA_SETS, Skipped, resource_of};
    use crate::mask::Mask;
    use crate::objects::{config_map, object, pod};
    use crate::work::Work;
    use crate::{ObjectBuilder, TestCluster};

    const NAME: &str = "expected \"name of controllerrevisions.apps shop/a-*, number 2\", found 1";

    #[rstest]
    #[case::revision("controllerrevisions.apps shop/a-*", "", "missing", true)]
    #[case::name_of_a_revision("pods shop/a-0", "metadata.labels.hash", NAME, true)]
    #[case::number_of_a_replica_set(
        "replicasets.apps shop/a-*",
        "metadata.annotations.deployment.kubernetes.io/revision",
        "expected \"2\", found \"1\"",
        true
    )]
    #[case::replicas("replicasets.apps shop/a-*", "spec.replicas", "expected 2, found 1", false)]
    #[case::another_object("statefulsets.apps shop/a", "", "missing", false)]
    fn history_of_a_spec_may_be_shorter(
        #[case] key: &str,
        #[case] path: &str,
        #[case] text: &str,
        #[case] is_explained: bool,
    ) {
        assert_eq!(
            Skipped::default().explains(&difference(key, path, text, true)),
            is_explained
        );
    }

    fn difference(key: &str, path: &str, text: &str, is_derived: bool) -> Difference {
        Difference {
            key: key.into(),
            path: path.to_owned(),
            text: text.to_owned(),
            values: None,
            is_copied: false,
            is_derived,
        }
    }

    #[rstest]
    #[case::revision("controllerrevisions.apps shop/a-*", "", "missing")]
    #[case::number_of_a_replica_set(
        "replicasets.apps shop/a-*",
        "metadata.annotations.deployment.kubernetes.io/revision",
        "expected \"2\", found \"1\""
    )]
    #[case::name_of_a_revision("pods shop/a-0", "metadata.labels.hash", NAME)]
    fn history_that_the_controller_under_test_wrote_may_not_be_shorter(
        #[case] key: &str,
        #[case] path: &str,
        #[case] text: &str,
    ) {
        let skipped = Skipped {
            own: BTreeSet::from(["controllerrevisions.apps shop/a-*".to_owned()]),
            ..Skipped::default()
        };
        assert!(!skipped.explains(&difference(key, path, text, false)));
    }

    fn claim(name: &str) -> ObjectBuilder {
        let resources = json!({"requests": {"storage": "1Gi"}});
        let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": resources});
        object("v1", "PersistentVolumeClaim", name).set("spec", spec)
    }

    /// A volume that is bound to the claim `default/data-web-0`.
    fn volume() -> ObjectBuilder {
        let spec = json!({
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/data"},
            "claimRef": {"namespace": "default", "name": "data-web-0"},
        });
        object("v1", "PersistentVolume", "data").set("spec", spec)
    }

    fn revision() -> ObjectBuilder {
        object("apps/v1", "ControllerRevision", "web-1")
            .set("revision", 1)
            .set("data", json!({"size": 1}))
    }

    fn replica_set() -> ObjectBuilder {
        let labels = json!({"app": "web"});
        let containers = json!([{"name": "a", "image": "a"}]);
        let template = json!({"metadata": {"labels": labels}, "spec": {"containers": containers}});
        let spec = json!({"selector": {"matchLabels": labels}, "replicas": 0, "template": template});
        object("apps/v1", "ReplicaSet", "web-1").set("spec", spec)
    }

    /// A Pod with an ephemeral volume, for which the claim `web-0-data` is created.
    fn pod_with_ephemeral_volume() -> ObjectBuilder {
        let template = json!({"spec": claim("data").value()["spec"]});
        let volume = json!({"name": "data", "ephemeral": {"volumeClaimTemplate": template}});
        pod("web-0").set("spec.volumes", json!([volume]))
    }

    fn pod_with(claim: &str) -> ObjectBuilder {
        let volume = json!({"name": "data", "persistentVolumeClaim": {"claimName": claim}});
        pod("web-0").set("spec.volumes", json!([volume]))
    }

    /// Creates the objects, deletes the ConfigMap `shop`, and returns the end state.
    async fn after(created: Vec<ObjectBuilder>) -> EndState {
        let cluster = TestCluster::start();
        cluster.create(config_map("shop")).await;
        for object in created {
            cluster.create(object).await;
        }
        cluster.delete(config_map("shop")).await;
        EndState::of(cluster.server(), 0, &Work::default())
    }

    #[rstest]
    #[case::claim_that_no_pod_uses(vec![claim("data-web-0")], vec![], true)]
    #[case::volume_of_a_claim_that_no_pod_uses(vec![volume()], vec![], true)]
    #[case::claim_of_a_pod(vec![claim("data-web-0")], vec![pod_with("data-web-0")], false)]
    #[case::volume_of_a_pod(vec![volume()], vec![pod_with("data-web-0")], false)]
    #[case::claim_of_an_ephemeral_volume(vec![claim("web-0-data")], vec![pod_with_ephemeral_volume()], false)]
    #[case::revision_of_the_controller_under_test(vec![revision()], vec![], false)]
    #[case::replica_set_of_the_controller_under_test(vec![replica_set()], vec![], false)]
    #[case::object_of_a_deleted_object(vec![config_map("shop-data")], vec![], true)]
    #[case::object_of_an_existing_object(vec![config_map("blog-data")], vec![config_map("blog")], false)]
    #[tokio::test]
    async fn only_objects_that_outlive_their_use_may_be_missing(
        #[case] missing: Vec<ObjectBuilder>,
        #[case] others: Vec<ObjectBuilder>,
        #[case] is_equal: bool,
    ) {
        let all = missing.into_iter().chain(others.iter().cloned()).collect();
        let (reference, found) = (after(all).await, after(others).await);
        assert!(!reference.judge(&found, &Mask::default()).lines.is_empty());
        let lines = reference.judge_overlap(&found, &Mask::default()).lines;
        assert_eq!(lines.is_empty(), is_equal, "{lines:?}");
    }

    /// Rolls out these images one after another, without Pods, and returns the end state.
    async fn after_rollouts(images: &[&str]) -> EndState {
        let cluster = TestCluster::builder().workers(Worker::ALL).start();
        let web = || object("apps/v1", "Deployment", "web");
        for (at, image) in images.iter().enumerate() {
            let containers = json!([{"name": "a", "image": image}]);
            let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": containers}});
            let spec = json!({"selector": {"matchLabels": {"app": "web"}}, "replicas": 0, "template": template});
            match at {
                0 => drop(cluster.create(web().set("spec", spec)).await),
                _ => drop(cluster.patch(web(), json!({"spec": {"template": template}})).await),
            }
            cluster.settle().await;
        }
        EndState::of(cluster.server(), 0, &Work::default())
    }

    #[tokio::test(start_paused = true)]
    async fn replica_sets_that_workers_wrote_may_be_missing() {
        let (reference, found) = (
            after_rollouts(&["a", "b", "c"]).await,
            after_rollouts(&["a", "c"]).await,
        );
        let mut differences = reference.differences(&found, &Mask::default());
        differences.retain(|it| resource_of(&it.key) == REPLICA_SETS);
        assert!(!differences.is_empty());
        let skipped = Skipped::of(&reference, &found);
        assert!(differences.iter().all(|it| skipped.explains(it)), "{differences:?}");
    }

    /// Creates objects with an owner, deletes the ConfigMap `shop`, and returns the end state.
    async fn after_with_owner(names: &[&str]) -> EndState {
        let cluster = TestCluster::start();
        let owner = cluster.create(config_map("blog")).await;
        cluster.create(config_map("shop")).await;
        for name in names {
            cluster.create(config_map(name).owned_by(&owner)).await;
        }
        cluster.delete(config_map("shop")).await;
        EndState::of(cluster.server(), 0, &Work::default())
    }

    #[tokio::test]
    async fn objects_with_an_existing_owner_may_not_be_missing() {
        let (reference, found) = (after_with_owner(&["shop-data"]).await, after_with_owner(&[]).await);
        let lines = reference.judge_overlap(&found, &Mask::default()).lines;
        assert!(lines.iter().any(|it| it.contains("shop-data")), "{lines:?}");
    }
}
