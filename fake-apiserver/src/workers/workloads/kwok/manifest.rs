//! The manifest of a Stage: the fields of `kwok.x-k8s.io/v1alpha1`. Unsupported fields are refused with an error that
//! names them: `cel` expressions, `apply` steps and impersonation.

use std::collections::BTreeMap;

use serde::Deserialize;

/// Error for an invalid or unsupported Stage.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Stage {name:?}: {reason}")]
pub struct StageError {
    name: String,
    reason: String,
}

impl StageError {
    pub(super) fn new(name: &str, reason: impl Into<String>) -> Self {
        Self {
            name: name.to_owned(),
            reason: reason.into(),
        }
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct Stage {
    pub(super) metadata: Metadata,
    pub(super) spec: Spec,
}

#[derive(Debug, Deserialize)]
pub(super) struct Metadata {
    pub(super) name: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Spec {
    pub(super) resource_ref: ResourceRef,
    pub(super) selector: Option<Selector>,
    #[serde(default)]
    pub(super) weight: i64,
    pub(super) weight_from: Option<From>,
    pub(super) delay: Option<Delay>,
    pub(super) next: Option<Next>,
    /// Accepted without effect, because this server observes every change immediately.
    #[serde(rename = "immediateNextStage")]
    _immediate_next_stage: Option<bool>,
    #[serde(default)]
    pub(super) steps: Vec<OneStep>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct ResourceRef {
    #[serde(default)]
    pub(super) api_group: String,
    pub(super) kind: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
#[derive(Default)]
pub(super) struct Selector {
    pub(super) match_labels: BTreeMap<String, String>,
    pub(super) match_annotations: BTreeMap<String, String>,
    pub(super) match_expressions: Vec<Expression>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Expression {
    cel: Option<serde_json::Value>,
    jq: Option<Requirement>,
    #[serde(default)]
    key: String,
    operator: Option<Operator>,
    #[serde(default)]
    values: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Requirement {
    pub(super) key: String,
    pub(super) operator: Operator,
    #[serde(default)]
    pub(super) values: Vec<String>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
pub(super) enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct From {
    cel: Option<serde_json::Value>,
    jq: Option<Jq>,
    #[serde(default)]
    expression_from: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Jq {
    expression: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Delay {
    pub(super) duration_milliseconds: Option<i64>,
    pub(super) duration_from: Option<From>,
    pub(super) jitter_duration_milliseconds: Option<i64>,
    pub(super) jitter_duration_from: Option<From>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(super) struct Next {
    event: Option<Event>,
    finalizers: Option<Finalizers>,
    delete: bool,
    patches: Vec<Patch>,
    status_template: String,
    status_subresource: Option<String>,
    status_patch_as: Option<serde_json::Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct OneStep {
    patch: Option<Patch>,
    event: Option<Event>,
    finalizers: Option<Finalizers>,
    delete: bool,
    apply: Option<serde_json::Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Patch {
    pub(super) subresource: String,
    pub(super) root: String,
    pub(super) template: String,
    #[serde(rename = "type")]
    pub(super) kind: Option<String>,
    impersonation: Option<serde_json::Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Event {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) reason: String,
    pub(super) message: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Finalizers {
    pub(super) add: Vec<Finalizer>,
    pub(super) remove: Vec<Finalizer>,
    pub(super) empty: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Finalizer {
    pub(super) value: String,
}

/// A step of a Stage.
pub(super) enum Step {
    Event(Event),
    Finalizers(Finalizers),
    Delete,
    Patch(Patch),
}

impl Expression {
    pub(super) fn requirement(self) -> Result<Requirement, String> {
        let requirement = match (self.cel, self.jq, self.operator) {
            (Some(_), ..) => return Err("cel expressions are not supported, use jq".to_owned()),
            (None, Some(requirement), _) => requirement,
            (None, None, Some(operator)) => Requirement {
                key: self.key,
                operator,
                values: self.values,
            },
            (None, None, None) => return Err("an expression has neither jq nor key and operator".to_owned()),
        };
        let needs_values = matches!(requirement.operator, Operator::In | Operator::NotIn);
        match (needs_values, requirement.values.is_empty()) {
            (true, true) => Err("for 'in', 'notin' operators, values set can't be empty".to_owned()),
            (false, false) => Err("values set must be empty for exists and does not exist".to_owned()),
            _ => Ok(requirement),
        }
    }
}

impl From {
    /// Returns the jq query; fails for a CEL expression.
    pub(super) fn text(self) -> Result<String, String> {
        match (self.cel, self.jq) {
            (Some(_), _) => Err("cel expressions are not supported, use jq".to_owned()),
            (None, Some(jq)) => Ok(jq.expression),
            (None, None) => Ok(self.expression_from),
        }
    }
}

/// Returns the steps of `next`, followed by the steps in `more`.
pub(super) fn steps(next: Option<Next>, more: Vec<OneStep>) -> Result<Vec<Step>, String> {
    let mut steps = Vec::new();
    if let Some(next) = next {
        if next.status_patch_as.is_some() {
            return Err("statusPatchAs is not supported for Pods and Nodes".to_owned());
        }
        let status = Patch {
            subresource: next.status_subresource.unwrap_or_else(|| "status".to_owned()),
            root: "status".to_owned(),
            template: next.status_template,
            ..Patch::default()
        };
        let mut patches = next.patches;
        if patches.is_empty() && !status.template.is_empty() {
            patches.push(status);
        }
        add(&mut steps, next.event, next.finalizers, next.delete, patches)?;
    }
    for step in more {
        if step.apply.is_some() {
            return Err("apply steps are not supported".to_owned());
        }
        add(
            &mut steps,
            step.event,
            step.finalizers,
            step.delete,
            step.patch.into_iter().collect(),
        )?;
    }
    Ok(steps)
}

fn add(
    steps: &mut Vec<Step>,
    event: Option<Event>,
    finalizers: Option<Finalizers>,
    deletes: bool,
    patches: Vec<Patch>,
) -> Result<(), String> {
    steps.extend(event.map(Step::Event));
    steps.extend(finalizers.map(Step::Finalizers));
    if deletes {
        steps.push(Step::Delete);
    }
    for patch in patches {
        if patch.impersonation.is_some() {
            return Err("impersonation is not supported for Pods and Nodes".to_owned());
        }
        steps.push(Step::Patch(patch));
    }
    Ok(())
}
