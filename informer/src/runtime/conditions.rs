//! Conditions in the status of an object. An object has at most one condition of each type.
//!
//! ```
//! use informer::Clock;
//! use informer::runtime::conditions;
//! use k8s_openapi::api::core::v1::Pod;
//!
//! let (pod, clock) = (Pod::default(), Clock::system());
//! let mut all = Vec::new();
//! let about = conditions::of(&pod, &clock);
//! assert!(about.set(&mut all, "Ready", false, "Starting", "0 of 3 replicas"));
//! assert!(about.set(&mut all, "Ready", true, "Started", "3 of 3 replicas"));
//! assert!(!about.set(&mut all, "Ready", true, "Started", "3 of 3 replicas"));
//! assert!(conditions::is_true(&all, "Ready"));
//! ```

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use kube::Resource;

use crate::Clock;

/// Status of a condition: true, false or unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConditionStatus {
    /// The condition is true.
    True,
    /// The condition is false.
    False,
    /// The controller cannot determine the status of the condition.
    Unknown,
}

impl ConditionStatus {
    /// Returns the status as a string: `True`, `False` or `Unknown`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl From<bool> for ConditionStatus {
    fn from(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }
}

/// Sets conditions of an object, with transition times from a clock; see [`of`].
#[derive(Clone, Copy, Debug)]
pub struct ConditionSetter<'a> {
    generation: Option<i64>,
    clock: &'a Clock,
}

/// Returns a setter for the conditions of an object. The setter sets `observedGeneration` to the object's generation.
pub fn of<'a>(object: &impl Resource, clock: &'a Clock) -> ConditionSetter<'a> {
    ConditionSetter {
        generation: object.meta().generation,
        clock,
    }
}

impl ConditionSetter<'_> {
    /// Sets the condition of the given type. Returns `true` if the conditions have changed. `status` is a
    /// [`ConditionStatus`] or a `bool`.
    pub fn set(
        &self,
        conditions: &mut Vec<Condition>,
        type_: &str,
        status: impl Into<ConditionStatus>,
        reason: &str,
        message: &str,
    ) -> bool {
        let status = status.into();
        set(conditions, type_, status, reason, message, self.generation, self.clock)
    }
}

/// Sets the condition of the given type (apimachinery's `SetStatusCondition`). Returns `true` if the conditions have
/// changed. [`of`] provides a shorter form.
///
/// Changes `lastTransitionTime` only if the status changes, not if only the reason or the message changes.
pub fn set(
    conditions: &mut Vec<Condition>,
    type_: &str,
    status: ConditionStatus,
    reason: &str,
    message: &str,
    observed_generation: Option<i64>,
    clock: &Clock,
) -> bool {
    let before = find(conditions, type_).cloned();
    let has_turned = before.as_ref().is_none_or(|it| it.status != status.as_str());
    let condition = Condition {
        type_: type_.to_owned(),
        status: status.as_str().to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        observed_generation,
        last_transition_time: match &before {
            Some(before) if !has_turned => before.last_transition_time.clone(),
            Some(_) | None => clock.time(),
        },
    };
    let is_new = before.as_ref() != Some(&condition);
    match conditions.iter_mut().find(|it| it.type_ == type_) {
        Some(place) => *place = condition,
        None => conditions.push(condition),
    }
    is_new
}

/// Returns the condition of the given type.
pub fn find<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|it| it.type_ == type_)
}

/// Returns `true` if the condition of the given type exists and has the status `True`.
pub fn is_true(conditions: &[Condition], type_: &str) -> bool {
    find(conditions, type_).is_some_and(|it| it.status == ConditionStatus::True.as_str())
}

/// Removes the condition of the given type. Returns `true` if the condition existed.
pub fn remove(conditions: &mut Vec<Condition>, type_: &str) -> bool {
    let before = conditions.len();
    conditions.retain(|it| it.type_ != type_);
    conditions.len() != before
}
