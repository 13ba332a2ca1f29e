//! `pods/eviction`: a delete that PodDisruptionBudgets may refuse (rule I3).

use super::{SubresourceRequest, created, text_at, value_at};
use crate::api::field::FieldErrors;
use crate::api::json::{Value, json};
use crate::api::object::Object;
use crate::api::options::{DeleteOptions, WriteOptions};
use crate::api::request_info::{RequestInfo, Verb};
use crate::api::resource::{GroupKind, GroupResource};
use crate::api::selector::LabelSelector;
use crate::api::status::Status;
use crate::api::user::UserInfo;
use crate::registry::Registry;
use crate::registry::answer::Written;
use crate::registry::request::{Remarks, WriteRequest};
use crate::registry::scheme::Row;
use crate::registry::scheme::body::Decoded;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::decode::Wanted;
use crate::registry::update::Change;

const EVICTION: Wanted<'static> = Wanted {
    group: "policy",
    version: "v1",
    kind: "Eviction",
    shape: None,
};

/// Maximum number of evictions that the disruption controller has not confirmed yet. A budget with more of them refuses
/// further evictions.
const UNCONFIRMED_MAX: usize = 2000;

impl Registry {
    pub(super) async fn evict(&self, request: &SubresourceRequest<'_>) -> Result<Written, Status> {
        let write_options = request.write_options()?;
        let Decoded {
            object: eviction,
            warnings,
            ..
        } = read(request, &write_options)?;
        request.remarks.warnings.extend(warnings);
        let RequestInfo { namespace, name, .. } = request.info;
        self.reader.check_namespace_of(request.row, "pods", (namespace, name))?;
        let write = request.write(&write_options);
        let eviction = self.admission.mutate_posted(&write, eviction).await?;
        if eviction.name() != request.info.name {
            return Err(Status::bad_request(
                "name in URL does not match name in Eviction object",
            ));
        }
        check_options(&eviction)?;
        let eviction = self.admission.check_posted(&write, eviction).await?;
        let stored = self.reader.get(request.row, request.info, "").await?;
        let mut options = match eviction.get("deleteOptions") {
            Some(options) => DeleteOptions::from_body(options)?,
            None => DeleteOptions::default(),
        };
        options.dry_run |= write_options.dry_run;
        let pod = self.reader.decode(request.row, &stored);
        if is_guarded(&pod) {
            self.spend_budget(&pod, options.dry_run).await?;
        }
        if !options.dry_run {
            options.check_preconditions(request.row, &stored)?;
            // Adding the condition changes the resourceVersion, so the deletion does not compare it again.
            options.resource_version = None;
            self.change_status(
                request.row,
                request.info,
                &Evicted {
                    now: &self.reader.entropy.now_seconds(),
                },
            )
            .await?;
        }
        // Warnings about the deletion are dropped, because the client did not send it.
        let remarks = Remarks::default();
        self.delete_as(request.row, request.info, None, &options, &remarks)
            .await?;
        Ok(created())
    }

    /// Checks the budget that selects a Pod, if there is one, and charges the eviction to it unless this is a dry run.
    async fn spend_budget(&self, pod: &Object, dry_run: bool) -> Result<(), Status> {
        let budgets = self.reader.stored_objects("policy", "poddisruptionbudgets").into_iter();
        let covering: Vec<Object> = budgets
            .filter(|budget| budget.namespace() == pod.namespace() && selects(budget, pod))
            .collect();
        let budget = match covering.as_slice() {
            [] => return Ok(()),
            [budget] => budget,
            [_, _, ..] => {
                let why =
                    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
                return Err(Status::new(500, "", why));
            }
        };
        if !is_ready(pod) && unready_may_go(budget) {
            return Ok(());
        }
        let spent = Spent {
            pod: pod.name(),
            now: &self.reader.entropy.now_seconds(),
        };
        spent.check(budget)?;
        let scheme = self.reader.scheme();
        let Some(row) = scheme
            .lookup("policy", "v1", "poddisruptionbudgets")
            .filter(|_| !dry_run)
        else {
            return Ok(());
        };
        let info = RequestInfo {
            group: "policy".into(),
            version: "v1".into(),
            resource: "poddisruptionbudgets".into(),
            name: budget.name().into(),
            namespace: budget.namespace().into(),
            verb: Verb::Update,
            subresource: String::new(),
        };
        self.change_status(&row, &info, &spent).await
    }

    /// Changes the status of an object on behalf of the server.
    async fn change_status(&self, row: &Row, info: &RequestInfo, change: &dyn Change) -> Result<(), Status> {
        let options = WriteOptions::default();
        let remarks = Remarks::default();
        let info = RequestInfo {
            subresource: "status".into(),
            ..info.clone()
        };
        let write = WriteRequest {
            row,
            info: &info,
            options: &options,
            // In Go, evictions update budgets through the server's loopback client.
            user_agent: "kube-apiserver",
            user: UserInfo::api_server(),
            remarks: &remarks,
        };
        self.change(&write, None, change).await.map(|_| ())
    }
}

/// Refuses options with which a Pod cannot be evicted.
fn check_options(eviction: &Object) -> Result<(), Status> {
    const IGNORES_READ_ERRORS: &str = "ignoreStoreReadErrorWithClusterBreakingPotential";
    let root = Cursor::root(eviction);
    let options = root.at("deleteOptions");
    if !options.is_true(IGNORES_READ_ERRORS) {
        return Ok(());
    }
    let mut errors = FieldErrors::new();
    let why = "can not be set for pod eviction, try after removing the option";
    errors.invalid(options.at(IGNORES_READ_ERRORS).path(), true, why);
    let kind = GroupKind {
        group: "policy".into(),
        kind: "Eviction".into(),
    };
    Err(Status::invalid(&kind, eviction.name(), &errors))
}

/// Decodes the body, which may also have the version `policy/v1beta1`.
fn read(request: &SubresourceRequest<'_>, options: &WriteOptions) -> Result<Decoded, Status> {
    let mut body = request.object.clone();
    if body.api_version() == "policy/v1beta1" {
        body.insert("apiVersion".into(), "policy/v1".into());
    }
    let mut eviction = request.read(body, EVICTION, options)?;
    crate::registry::kinds::metadata::fill_namespace(&mut eviction.object, &request.info.namespace)?;
    Ok(eviction)
}

/// Returns `true` if budgets apply to the eviction. They do not apply if the Pod is pending, has finished or is
/// terminating.
fn is_guarded(pod: &Object) -> bool {
    !pod.is_terminating() && !matches!(text_at(pod, &["status", "phase"]), "Succeeded" | "Failed" | "Pending")
}

fn is_ready(pod: &Object) -> bool {
    let conditions = value_at(pod, &["status", "conditions"]).and_then(Value::as_array);
    let is = |it: &Value, field: &str, text: &str| it.get(field).and_then(Value::as_str) == Some(text);
    conditions
        .into_iter()
        .flatten()
        .any(|it| is(it, "type", "Ready") && is(it, "status", "True"))
}

/// Returns `true` if a budget permits the eviction of unready Pods without charging it.
fn unready_may_go(budget: &Object) -> bool {
    let (needs, has) = (number(budget, "desiredHealthy"), number(budget, "currentHealthy"));
    text_at(budget, &["spec", "unhealthyPodEvictionPolicy"]) == "AlwaysAllow" || (needs > 0 && has >= needs)
}

/// Returns a number in a budget's status; 0 if it is missing.
fn number(budget: &Object, field: &str) -> i64 {
    value_at(budget, &["status", field])
        .and_then(Value::as_i64)
        .unwrap_or(0)
}

/// Returns `true` if the label selector of a budget selects a Pod. An empty selector selects all Pods of its namespace.
fn selects(budget: &Object, pod: &Object) -> bool {
    let Some(selector) = value_at(budget, &["spec", "selector"]) else {
        return false;
    };
    let labels: Vec<(&str, &str)> = pod.labels().collect();
    match LabelSelector::from_object(selector) {
        Ok(Some(selector)) => selector.matches(|key| labels.iter().find(|(it, _)| *it == key).map(|(_, value)| *value)),
        Ok(None) | Err(_) => false,
    }
}

/// The change that charges an eviction to a budget.
struct Spent<'a> {
    pod: &'a str,
    now: &'a str,
}

impl Spent<'_> {
    /// Checks that the budget permits the eviction.
    fn check(&self, budget: &Object) -> Result<(), Status> {
        let generation = value_at(budget, &["metadata", "generation"])
            .and_then(Value::as_i64)
            .unwrap_or(0);
        let name = budget.name();
        let refused = |text: String| {
            let why = "Cannot evict pod as it would violate the pod's disruption budget.";
            Status::new(429, "TooManyRequests", why).with_cause("DisruptionBudget", text, "")
        };
        if number(budget, "observedGeneration") < generation {
            let text = format!("The disruption budget {name} is still being processed by the server.");
            return Err(refused(text).with_retry_after(10));
        }
        let forbidden = |why: &str| {
            let resource = GroupResource {
                group: "policy".into(),
                resource: "poddisruptionbudget".into(),
            };
            Err(Status::forbidden(&resource, name, why))
        };
        let allowed = number(budget, "disruptionsAllowed");
        if allowed < 0 {
            return forbidden("pdb disruptions allowed is negative");
        }
        let unconfirmed = value_at(budget, &["status", "disruptedPods"]).and_then(Value::as_object);
        if unconfirmed.is_some_and(|it| it.len() > UNCONFIRMED_MAX) {
            return forbidden("DisruptedPods map too big - too many evictions not confirmed by PDB controller");
        }
        match allowed {
            0 => Err(refused(exhausted(budget))),
            _ => Ok(()),
        }
    }
}

/// Returns the reason why a budget refuses further evictions.
fn exhausted(budget: &Object) -> String {
    let name = budget.name();
    let conditions = value_at(budget, &["status", "conditions"]).and_then(Value::as_array);
    let text = |it: &'_ Value, field: &str| it.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let allowed = conditions
        .into_iter()
        .flatten()
        .find(|it| text(it, "type") == "DisruptionAllowed");
    let explained = allowed.filter(|it| text(it, "status") == "False" && !text(it, "message").is_empty());
    let explained = explained.map(|it| (text(it, "reason"), text(it, "message")));
    let (needs, has) = (number(budget, "desiredHealthy"), number(budget, "currentHealthy"));
    let refuses = format!("The disruption budget {name} does not allow evicting pods currently");
    match explained {
        Some((reason, message)) if reason == "SyncFailed" => {
            format!("{refuses} because it failed sync: {message}")
        }
        _ if has <= needs => format!("The disruption budget {name} needs {needs} healthy pods and has {has} currently"),
        Some((reason, message)) => format!("{refuses} ({reason}): {message}"),
        None => refuses,
    }
}

impl Change for Spent<'_> {
    fn next(&self, old: &Object) -> Result<Decoded, Status> {
        self.check(old)?;
        let mut object = old.clone();
        let left = number(old, "disruptionsAllowed") - 1;
        let observed = number(old, "observedGeneration");
        if let Some(status) = object.entry("status").or_insert_with(|| json!({})).as_object_mut() {
            status.insert("disruptionsAllowed".into(), left.into());
            let disrupted = status.entry("disruptedPods").or_insert_with(|| json!({}));
            if let Some(disrupted) = disrupted.as_object_mut() {
                disrupted.insert(self.pod.into(), self.now.into());
            }
        }
        if left == 0 {
            let condition = json!({
                "type": "DisruptionAllowed", "status": "False", "observedGeneration": observed,
                "lastTransitionTime": self.now, "reason": "InsufficientPods", "message": "",
            });
            set_condition(&mut object, condition);
        }
        Ok(Decoded::made(object))
    }

    fn is_admitted(&self) -> bool {
        false
    }
}

/// The change that adds the condition with the reason of an eviction.
struct Evicted<'a> {
    now: &'a str,
}

impl Change for Evicted<'_> {
    fn next(&self, old: &Object) -> Result<Decoded, Status> {
        let mut object = old.clone();
        let condition = json!({
            "type": "DisruptionTarget", "status": "True", "lastProbeTime": null, "lastTransitionTime": self.now,
            "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting",
        });
        set_condition(&mut object, condition);
        Ok(Decoded::made(object))
    }

    fn is_tracked(&self) -> bool {
        true
    }

    fn is_admitted(&self) -> bool {
        false
    }
}

/// Sets a condition in the status, replacing an existing one of the same type. The time of the last transition is kept
/// if the status of the condition is the same.
pub(super) fn set_condition(object: &mut Object, mut condition: Value) {
    let Some(status) = object.entry("status").or_insert_with(|| json!({})).as_object_mut() else {
        return;
    };
    let Some(conditions) = status.entry("conditions").or_insert_with(|| json!([])).as_array_mut() else {
        return;
    };
    match conditions.iter_mut().find(|it| it.get("type") == condition.get("type")) {
        Some(present) => {
            if present.get("status") == condition.get("status") {
                condition["lastTransitionTime"] = present.get("lastTransitionTime").cloned().unwrap_or_default();
            }
            *present = condition;
        }
        None => conditions.push(condition),
    }
}
