//! Assertions that print the actual state if they fail.

use crate::diff::missing;
use crate::target::{ObjectId, Target, ToObject};
use crate::test_cluster::TestCluster;

impl TestCluster {
    /// Asserts that the cluster has this object with at least these fields. Fields that are not listed are ignored; a
    /// field with the value `null` must be absent; lists must have the same length.
    ///
    /// ```
    /// # use testkit::{TestCluster, objects::config_map};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let cluster = TestCluster::start();
    /// cluster.create(config_map("settings").label("app", "web").data("mode", "fast").data("level", "3")).await;
    ///
    /// cluster.assert_has(config_map("settings").data("mode", "fast"));
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// If the object does not exist, or if a field differs. The message lists each differing field:
    ///
    /// ```text
    /// ConfigMap default/settings differs from the expected object:
    ///   data.mode: expected "slow", found "fast"
    ///   metadata.labels.team: expected "edge", found nothing
    /// ```
    #[track_caller]
    pub fn assert_has<Form>(&self, expected: impl ToObject<Form>) {
        let mut expected = expected.to_object();
        let id = ObjectId::of(&expected);
        let Some(found) = self.find(&id) else {
            self.fail_about(
                &id,
                &format!("there is no {}{}", self.located(&id), self.others_of(&id)),
            );
        };
        // Ignore the managed fields of an object that the test has read from the cluster.
        if let Some(metadata) = expected["metadata"].as_object_mut() {
            metadata.remove("managedFields");
        }
        let lines = missing(&expected, &found);
        if !lines.is_empty() {
            let what = format!(
                "{} differs from the expected object:\n  {}",
                self.located(&id),
                lines.join("\n  ")
            );
            self.fail_about(&id, &what);
        }
    }

    /// Asserts that an object does not exist.
    ///
    /// # Panics
    ///
    /// If the object exists. The message contains its finalizers if it is terminating.
    #[track_caller]
    pub fn assert_gone<K>(&self, target: impl Target<K>) {
        let id = target.id();
        let Some(found) = self.find(&id) else { return };
        let metadata = &found["metadata"];
        let why = match (
            metadata["deletionTimestamp"].as_str(),
            metadata["finalizers"].as_array(),
        ) {
            (None, _) => "; no client deleted it".to_owned(),
            (Some(at), Some(finalizers)) if !finalizers.is_empty() => {
                let names: Vec<_> = finalizers.iter().filter_map(|it| it.as_str()).collect();
                format!(
                    "; it has been terminating since {at} and is kept by the finalizers {}",
                    names.join(", ")
                )
            }
            (Some(at), _) => format!("; it is terminating until {at}"),
        };
        self.fail_about(&id, &format!("{} still exists{why}", self.located(&id)));
    }

    /// Lists up to ten existing objects of a kind, for the message about a missing object.
    pub(crate) fn others_of(&self, id: &ObjectId) -> String {
        let others = self.list_all(&id.api_version, &id.kind);
        let names: Vec<_> = others
            .iter()
            .take(10)
            .map(|it| ObjectId::of(it.value()).to_string())
            .collect();
        match names.len() {
            0 => format!(", nor any other {}", id.kind),
            _ => format!("; existing objects: {}", names.join(", ")),
        }
    }
}
