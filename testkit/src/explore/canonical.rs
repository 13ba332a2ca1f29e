//! A world as text that is the same in every run: what snapshot tests keep.

use fake_apiserver::load;
use jiff::Timestamp;
use serde_json::Value;

use super::end_state::{EndState, Mask};
use super::pair::Pair;
use crate::test_cluster::TestCluster;

/// The text in place of a time.
const A_TIME: &str = "a time";

impl TestCluster {
    /// Returns the writes of the test and its controllers as YAML that is the same in each run: what is handed out is
    /// named by the object it means (`uid of deployments.apps default/web`), times read `a time`, and objects come in
    /// the order of resource, namespace and name. Left out are Events, Leases, revisions, generations, owners of
    /// fields, what the server's workers made by themselves, and what the cluster began with unless it was changed.
    /// Meant for snapshot tests, such as those of `insta`.
    ///
    /// ```
    /// use testkit::{TestCluster, objects::config_map};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let cluster = TestCluster::start();
    /// let shop = cluster.create(config_map("shop").data("since", "2026-11-22T05:00:00Z")).await;
    /// cluster.create(config_map("page").data("of", shop.uid())).await;
    /// assert_eq!(cluster.canonical_yaml(), "\
    /// ---
    /// apiVersion: v1
    /// data:
    ///   of: uid of configmaps default/shop
    /// kind: ConfigMap
    /// metadata:
    ///   name: page
    ///   namespace: default
    /// ---
    /// apiVersion: v1
    /// data:
    ///   since: a time
    /// kind: ConfigMap
    /// metadata:
    ///   name: shop
    ///   namespace: default
    /// ");
    /// # }
    /// ```
    #[must_use]
    pub fn canonical_yaml(&self) -> String {
        let state = EndState::of(&self.server, self.base, &self.work);
        let mask = Mask::default();
        let pair = Pair::new([&state, &state], &mask);
        let mut documents = Vec::new();
        for (key, all) in state.all() {
            let written = all.iter().filter(|it| !it.is_untouched && !state.is_derived(it));
            let mut alike: Vec<Value> = written.map(|it| pair.shown(0, key, it)).collect();
            alike.iter_mut().for_each(hide_times);
            alike.sort_by_cached_key(Value::to_string);
            documents.extend(alike);
        }
        load::to_text(&documents)
    }
}

/// Replaces all times of a value.
fn hide_times(value: &mut Value) {
    match value {
        Value::String(text) if is_time(text) => *text = A_TIME.to_owned(),
        Value::Array(items) => items.iter_mut().for_each(hide_times),
        Value::Object(fields) => fields.values_mut().for_each(hide_times),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// RFC 3339, as Kubernetes writes them.
fn is_time(text: &str) -> bool {
    text.len() >= "2000-01-01T00:00:00Z".len() && text.as_bytes()[4] == b'-' && text.parse::<Timestamp>().is_ok()
}
