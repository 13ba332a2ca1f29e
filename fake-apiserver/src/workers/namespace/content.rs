//! Deletes the content of a namespace, and counts the remaining objects.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::Resource;
use super::conditions::Trouble;
use crate::api::json::Value;
use crate::api::object::Object;
use crate::api::options::{DeleteOptions, PropagationPolicy};
use crate::registry::scheme::Row;
use crate::storage::Stored;
use crate::workers::{Api, Meta, RequestFailure};

/// The resource that is deleted before all others.
const PODS: &str = "pods";

/// Outcome of an attempt to empty a namespace.
#[derive(Debug, Default)]
pub(super) struct ContentOutcome {
    /// Numbers of remaining objects.
    pub(super) remains: Remains,
    /// Conditions to report.
    pub(super) conditions: Vec<Trouble>,
    /// Delay until the next check, while Pods are within their grace period.
    pub(super) look_again: Option<Duration>,
    /// A failed request, which is retried.
    pub(super) failure: Option<RequestFailure>,
}

/// Number of remaining objects of each resource.
#[derive(Debug, Default)]
pub(super) struct Remains(BTreeMap<Resource, usize>);

impl Remains {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Counts the removal of an object; returns `true` if it was the last object of its resource.
    pub(super) fn remove_one(&mut self, resource: &str) -> bool {
        let Some(count) = self.0.get_mut(resource) else {
            return false;
        };
        *count = count.saturating_sub(1);
        *count == 0
    }
}

/// Totals over all resources, for the conditions.
#[derive(Debug, Default)]
struct Totals {
    /// Numbers of objects, by resource names as used in error messages.
    objects: BTreeMap<String, usize>,
    finalizers: BTreeMap<String, usize>,
    errors: Vec<String>,
}

/// Deletes all objects of a namespace: first the Pods, and afterwards the others.
pub(super) async fn delete_all(api: Api<'_>, namespace: &Object) -> ContentOutcome {
    let mut outcome = ContentOutcome::default();
    let mut totals = Totals::default();
    if let Some(pods) = api.resource(PODS) {
        let seconds = pods_grace_left(api, namespace);
        delete_all_of(api, pods, namespace.name(), seconds, &mut outcome, &mut totals).await;
        if !outcome.remains.is_empty() {
            outcome.look_again = (seconds > 0).then(|| Duration::from_secs(seconds / 2 + 1));
            // Other resources have not been counted yet, so the conditions do not include them.
            outcome.conditions.extend(Trouble::failures(&totals.errors));
            return outcome;
        }
    }
    for row in api.resources().filter(|row| *row.storage != *PODS && is_content(row)) {
        delete_all_of(api, row, namespace.name(), 0, &mut outcome, &mut totals).await;
    }
    let found = [
        Trouble::failures(&totals.errors),
        Trouble::remaining(&totals.objects),
        Trouble::finalizers(&totals.finalizers),
    ];
    outcome.conditions.extend(found.into_iter().flatten());
    outcome
}

/// Returns `true` if the resource is namespaced and its objects can be deleted.
fn is_content(row: &Row) -> bool {
    row.info.is_namespaced() && row.info.allows("delete")
}

/// Deletes the objects of one resource and counts the remaining ones. `grace` is their maximum grace period in seconds.
async fn delete_all_of(
    api: Api<'_>,
    row: &Arc<Row>,
    namespace: &str,
    grace: u64,
    outcome: &mut ContentOutcome,
    totals: &mut Totals,
) {
    let before = api.list_stored(&row.storage, namespace);
    // If all objects are already being deleted, no request is sent. kube-controller-manager sends a request for every
    // resource at each check.
    if before.iter().any(|it| !Meta::of(it).is_terminating())
        && let Err(failure) = delete_collection(api, row, namespace, &before).await
    {
        totals.errors.push(failure.message.clone());
        outcome.failure.get_or_insert(failure);
    }
    if before.is_empty() {
        return;
    }
    let left = api.list_stored(&row.storage, namespace);
    if left.is_empty() {
        return;
    }
    outcome.remains.0.insert(Arc::clone(&row.storage), left.len());
    let name = format!("{}.{}", row.info.resource, row.info.group);
    totals.objects.insert(name, left.len());
    let mut is_held = false;
    for finalizer in left.iter().flat_map(|it| Meta::of(it).finalizers) {
        *totals.finalizers.entry(finalizer).or_default() += 1;
        is_held = true;
    }
    if !is_held && grace == 0 && outcome.failure.is_none() {
        let info = &row.info;
        totals.errors.push(format!(
            "unexpected items still remain in namespace: {namespace} for gvr: {}/{}, Resource={}",
            info.group, info.version, info.resource
        ));
    }
}

async fn delete_collection(
    api: Api<'_>,
    row: &Row,
    namespace: &str,
    objects: &[Arc<Stored>],
) -> Result<(), RequestFailure> {
    let options = DeleteOptions {
        propagation_policy: Some(PropagationPolicy::Background),
        ..DeleteOptions::default()
    };
    if row.info.allows("deletecollection") {
        return api.delete_collection(&row.storage, namespace, &options).await;
    }
    for object in objects {
        match api.delete(&row.storage, &object.key, &options).await {
            Err(failure) if !failure.is_not_found() => return Err(failure),
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

/// Returns the longest grace period of the unfinished Pods of a namespace, in seconds; 0 once it has passed since the
/// deletion of the namespace.
fn pods_grace_left(api: Api<'_>, namespace: &Object) -> u64 {
    let pods = api.list(PODS, namespace.name());
    let is_running = |pod: &&Object| {
        let phase = pod.get("status").and_then(|status| status.get("phase"));
        !phase.is_some_and(|it| *it == "Succeeded" || *it == "Failed")
    };
    let grace = |pod: &Object| {
        pod.get("spec")?
            .get("terminationGracePeriodSeconds")
            .and_then(Value::as_u64)
    };
    let longest = pods.iter().filter(is_running).filter_map(grace).max().unwrap_or(0);
    let deleted: Option<Timestamp> = namespace.meta_str("deletionTimestamp").parse().ok();
    let passed = deleted.map_or(0, |at| api.now().duration_since(at).as_secs());
    if u64::try_from(passed).is_ok_and(|passed| passed >= longest) {
        0
    } else {
        longest
    }
}
