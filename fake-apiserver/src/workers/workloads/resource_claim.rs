//! ResourceClaims: creates the claims of Pods from their templates, reserves allocated claims for scheduled Pods, and
//! releases claims that are not used by any Pod. Modelled on `pkg/controller/resourceclaim`.

use std::sync::Arc;

use super::cluster::{Cluster, controller_of};
use super::controller::{Changed, WorkloadController};
use super::plan::Plan;
use super::pods::{annotation, is_finished, spec, status};
use super::resource::{Resource, key_of};
use super::sees::Sees;
use super::volumes::release;
use crate::api::json::{Map, Value, json};
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;
use crate::storage::Key;
use crate::workers::WorkerRow;

pub(crate) const ROW: WorkerRow = WorkerRow::workloads(
    "resourceclaim",
    &[
        WorkloadController {
            owns: true,
            concerns: pods_concerned,
            ..WorkloadController::new(Resource::Pod, ACCOUNT, sync_pod)
        },
        WorkloadController {
            concerns: claims_concerned,
            ..WorkloadController::new(Resource::ResourceClaim, ACCOUNT, sync_claim)
        },
    ],
);

/// The service account of the controller.
const ACCOUNT: &str = "resource-claim-controller";
const COMPONENT: &str = "resource_claim";
/// The finalizer of an allocated claim.
const FINALIZER: &str = "resource.kubernetes.io/delete-protection";
/// The annotation of a generated claim with the name of the claim in the Pod.
const POD_CLAIM: &str = "resource.kubernetes.io/pod-claim-name";
/// Maximum length of a generated name without its random suffix.
const BASE_MAX: usize = 57;
/// Maximum number of users of a claim.
const USERS_MAX: usize = 256;

/// Returns the name of the claim for an entry of `spec.resourceClaims`; `None` if the claim was not created yet, or is
/// not needed.
fn claim_name<'a>(pod: &'a Object, entry: &Cursor<'a>) -> Option<&'a str> {
    let own = entry.text("resourceClaimName");
    if !own.is_empty() {
        return Some(own);
    }
    let recorded = recorded(pod, entry.text("name"))?;
    Some(Cursor::root(recorded).text("resourceClaimName")).filter(|it| !it.is_empty())
}

/// Returns the status of an entry in `spec.resourceClaims` of a Pod.
fn recorded<'a>(pod: &'a Object, name: &str) -> Option<&'a Map> {
    let mut statuses = Cursor::root(status(pod)).maps("resourceClaimStatuses");
    statuses.find(|it| Cursor::root(it).text("name") == name)
}

fn entries(pod: &Object) -> impl Iterator<Item = Cursor<'_>> {
    Cursor::root(spec(pod)).maps("resourceClaims").map(Cursor::root)
}

/// Returns `true` if a Pod has ended or will never run.
fn is_done(pod: &Object) -> bool {
    is_finished(pod) || pod.is_terminating() && Cursor::root(spec(pod)).text("nodeName").is_empty()
}

/// Enqueues the Pods that use a claim or its template.
fn pods_concerned(change: &Changed<'_>, cluster: &Cluster, add: &mut dyn FnMut(Key)) {
    let name = change.key.name();
    let uses = |pod: &Object| match change.resource {
        Resource::ResourceClaim => entries(pod).any(|it| claim_name(pod, &it) == Some(name)),
        Resource::ResourceClaimTemplate => entries(pod).any(|it| it.text("resourceClaimTemplateName") == name),
        _ => false,
    };
    if matches!(
        change.resource,
        Resource::ResourceClaim | Resource::ResourceClaimTemplate
    ) {
        let pods = cluster.within(Resource::Pod, change.key.namespace());
        pods.filter(|it| uses(it)).for_each(|it| add(key_of(it)));
    }
}

/// Enqueues the claims of a Pod that has ended or was removed.
fn claims_concerned(change: &Changed<'_>, _: &Cluster, add: &mut dyn FnMut(Key)) {
    if change.resource == Resource::Pod && change.new.is_none_or(is_done) {
        for pod in change.versions() {
            let names = entries(pod).filter_map(|it| claim_name(pod, &it).map(str::to_owned));
            names.for_each(|it| add(Key::new(change.key.namespace(), &it)));
        }
    }
}

/// Plans the work for a Pod.
fn sync_pod(pod: &Object, sees: &Sees<'_>) -> Plan {
    let mut plan = Plan::default();
    if pod.is_terminating() || is_finished(pod) {
        return plan;
    }
    let find = |name: &str| sees.cluster.find(Resource::ResourceClaim, pod.namespace(), name);
    let mut found: Vec<(String, String)> = Vec::new();
    for entry in entries(pod).filter(|it| it.is_set("resourceClaimTemplateName")) {
        let name = entry.text("name");
        let is_there = claim_name(pod, &entry).and_then(find).is_some_and(|it| is_of(it, pod));
        let is_needed = recorded(pod, name).is_none_or(|it| Cursor::root(it).is_set("resourceClaimName"));
        if is_there || !is_needed {
            continue;
        }
        let mut owned = sees.cluster.owned_by(Resource::ResourceClaim, pod.uid());
        match owned.find(|it| annotation(it, POD_CLAIM) == Some(name) && !it.is_terminating()) {
            Some(claim) => found.push((name.to_owned(), claim.name().to_owned())),
            None => generate(pod, &entry, sees, &mut plan),
        }
    }
    if !found.is_empty() {
        let is_other = |it: &&Value| !found.iter().any(|(name, _)| it["name"] == name.as_str());
        let known = Cursor::root(status(pod)).list("resourceClaimStatuses").iter();
        let mut list: Vec<Value> = known.filter(is_other).cloned().collect();
        let new = found.iter();
        list.extend(new.map(|(name, claim)| json!({"name": name, "resourceClaimName": claim})));
        plan.merge_status(Resource::Pod, pod, json!({"status": {"resourceClaimStatuses": list}}));
    }
    if !Cursor::root(spec(pod)).text("nodeName").is_empty() {
        for claim in entries(pod).filter_map(|it| claim_name(pod, &it)).filter_map(find) {
            reserve(claim, pod, &mut plan);
        }
    }
    plan
}

/// Returns `true` if a claim was generated for a Pod.
fn is_of(claim: &Object, pod: &Object) -> bool {
    controller_of(claim).is_some_and(|(_, _, uid)| uid == pod.uid())
}

/// Plans the creation of the ResourceClaim for an entry of `spec.resourceClaims`, from the template of the entry.
fn generate(pod: &Object, entry: &Cursor<'_>, sees: &Sees<'_>, plan: &mut Plan) {
    let (name, template) = (entry.text("name"), entry.text("resourceClaimTemplateName"));
    let Some(from) = sees
        .cluster
        .find(Resource::ResourceClaimTemplate, pod.namespace(), template)
    else {
        let why = format!("resourceclaimtemplate.resource.k8s.io \"{template}\" not found");
        let message = format!("PodResourceClaim {name}: resource claim template \"{template}\": {why}");
        return plan.warn((Resource::Pod, pod), COMPONENT, "FailedResourceClaimCreation", message);
    };
    let from = Cursor::root(spec(from));
    let mut annotations = from.map_or_empty("metadata.annotations").clone();
    annotations.insert(POD_CLAIM.into(), name.into());
    let owner = json!({
        "apiVersion": "v1", "kind": "Pod", "name": pod.name(), "uid": pod.uid(), "controller": true,
    });
    let mut metadata = json!({
        "namespace": pod.namespace(), "generateName": base(pod.name(), name), "annotations": annotations,
        "ownerReferences": [owner],
    });
    let labels = from.map_or_empty("metadata.labels");
    if !labels.is_empty() {
        metadata["labels"] = labels.clone().into();
    }
    let claim = json!({"metadata": metadata, "spec": from.map_or_empty("spec")});
    plan.create(Resource::ResourceClaim, claim);
}

/// Returns the base of a generated name: the names of the Pod and the claim, shortened in proportion to their lengths.
fn base(pod: &str, claim: &str) -> String {
    let whole = format!("{pod}-{claim}-");
    if whole.len() <= BASE_MAX {
        return whole;
    }
    let part = |text: &str| text[..text.len() * BASE_MAX / whole.len()].to_owned();
    format!("{}-{}", part(pod), part(claim))
}

/// Reserves an allocated claim for a Pod that has a node.
fn reserve(claim: &Arc<Object>, pod: &Object, plan: &mut Plan) {
    let state = Cursor::root(status(claim));
    let users = state.list("reservedFor");
    if !state.is_set("allocation") || users.len() >= USERS_MAX || users.iter().any(|it| it["uid"] == pod.uid()) {
        return;
    }
    let mut users = users.to_vec();
    users.push(json!({"resource": "pods", "name": pod.name(), "uid": pod.uid()}));
    let mut next = status(claim).clone();
    next.insert("reservedFor".into(), users.into());
    plan.status(Resource::ResourceClaim, claim, next);
}

/// Plans the work for a claim.
fn sync_claim(claim: &Object, sees: &Sees<'_>) -> Plan {
    let mut plan = Plan::default();
    let pod = |name: &str, uid: &str| {
        let found = sees.cluster.find(Resource::Pod, claim.namespace(), name);
        found.filter(|it| it.uid() == uid)
    };
    let uses = |user: &&Value| {
        let text = |field: &str| user.get(field).and_then(Value::as_str).unwrap_or_default();
        let is_pod = text("apiGroup").is_empty() && text("resource") == "pods";
        !is_pod || pod(text("name"), text("uid")).is_some_and(|it| !is_done(it))
    };
    let users = Cursor::root(status(claim)).list("reservedFor");
    let left: Vec<Value> = users.iter().filter(uses).cloned().collect();
    let is_protected = claim.finalizers().any(|it| it == FINALIZER);
    let mut next = status(claim).clone();
    if left.is_empty() && is_protected && (!users.is_empty() || claim.is_terminating()) {
        next.remove("allocation");
    }
    if left.len() < users.len() {
        match left.is_empty() {
            true => drop(next.remove("reservedFor")),
            false => drop(next.insert("reservedFor".into(), left.clone().into())),
        }
    }
    let is_allocated = next.contains_key("allocation");
    plan.status(Resource::ResourceClaim, claim, next);
    if left.is_empty() && !is_allocated && (!users.is_empty() || claim.is_terminating()) {
        release(Resource::ResourceClaim, claim, FINALIZER, &mut plan);
    }
    if let (true, Some(("Pod", name, uid))) = (left.is_empty(), controller_of(claim)) {
        let now = sees.cluster.find(Resource::Pod, claim.namespace(), name);
        if now.is_some_and(|it| it.uid() != uid || is_done(it)) && !claim.is_terminating() {
            plan.delete(Resource::ResourceClaim, claim);
        }
    }
    plan
}
