//! The state of a cluster as a string that is the same in every run, for snapshot tests.

use std::collections::BTreeSet;

use fake_apiserver::load;
use serde_json::Value;

use super::end_state::{EndState, Kept};
use super::pair::Pair;
use super::times::hide_times;
use crate::filter::check_served;
use crate::mask::Mask;
use crate::test_cluster::TestCluster;

impl TestCluster {
    /// Returns the objects written by the test and its controllers as YAML that is the same in each run. Generated
    /// values are replaced by a description of the object that they refer to (`uid of deployments.apps default/web`),
    /// times by `a time`, and the time of creation in a name by `*`; objects are sorted by resource, namespace and
    /// name. The output does not contain Leases, Events ([by default](crate::TestClusterBuilder::count_events)),
    /// revisions, generations and managed fields. It also omits objects that only the server's workers wrote, unchanged
    /// objects of the cluster's initial state, CustomResourceDefinitions, and objects that exist on every server, such
    /// as the Namespace `default`, even if they were changed. To include the objects of such resources, use
    /// [`canonical_yaml_of`](Self::canonical_yaml_of). Intended for snapshot tests, for example with `insta`.
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
        let changes = self.server.changes_after(self.base).into_iter();
        let booted = changes.filter_map(|it| it.before.filter(|it| it.revision() <= self.boot));
        let booted: BTreeSet<String> = booted.map(|it| it.uid().to_owned()).collect();
        self.canonical(|state, kept| {
            let object = &kept.object;
            let is_definition = object.resource() == "customresourcedefinitions";
            !kept.is_untouched && !state.is_derived(kept) && !is_definition && !booted.contains(object.uid())
        })
    }

    /// Returns all objects of some resources in the form of [`canonical_yaml`](Self::canonical_yaml), regardless of
    /// which client created them and whether they have changed. Leases and, [by
    /// default](crate::TestClusterBuilder::count_events), Events are never included. A resource is given by its plural
    /// name, followed by its group if it has one: `deployments.apps`.
    ///
    /// ```
    /// use testkit::{TestCluster, objects::config_map};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let cluster = TestCluster::builder().object(config_map("settings")).start();
    /// assert_eq!(cluster.canonical_yaml(), "");
    /// assert!(cluster.canonical_yaml_of(&["configmaps"]).contains("name: settings"));
    /// assert!(cluster.canonical_yaml_of(&["namespaces", "deployments.apps"]).contains("name: kube-system"));
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// If a resource is not served.
    #[must_use]
    #[track_caller]
    pub fn canonical_yaml_of(&self, resources: &[&str]) -> String {
        for resource in resources {
            check_served(&self.server, &[], resource);
        }
        self.canonical(|_, kept| {
            let (group, resource) = (kept.object.group(), kept.object.resource());
            resources.iter().any(|it| is_for(it, group, resource))
        })
    }

    fn canonical(&self, is_shown: impl Fn(&EndState, &Kept) -> bool) -> String {
        let state = EndState::of(&self.server, self.base, &self.work);
        let mask = Mask::default();
        let pair = Pair::new([&state, &state], &mask);
        let mut documents = Vec::new();
        for (key, all) in state.all() {
            let shown = all.iter().filter(|it| is_shown(&state, it));
            let mut alike: Vec<Value> = shown.map(|it| pair.shown(0, key, it)).collect();
            alike.iter_mut().for_each(hide_times);
            alike.sort_by_cached_key(Value::to_string);
            documents.extend(alike);
        }
        load::to_text(&documents)
    }
}

/// Returns `true` if a name such as `deployments.apps` refers to a resource. A name without a group matches the
/// resource in any group.
fn is_for(name: &str, group: &str, resource: &str) -> bool {
    match name.split_once('.') {
        Some((plural, of)) => plural == resource && of == group,
        None => name == resource,
    }
}
