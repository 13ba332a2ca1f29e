//! Conditions: what a status says about an object, one of each type.
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

/// Status of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It holds.
    True,
    /// It does not.
    False,
    /// Nobody can tell.
    Unknown,
}

impl Status {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl From<bool> for Status {
    fn from(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }
}

/// The object that conditions are about, and the time at which they are set; see [`of`].
#[derive(Clone, Copy, Debug)]
pub struct About<'a> {
    generation: Option<i64>,
    clock: &'a Clock,
}

/// Conditions of this object: `observedGeneration` is its generation.
pub fn of<'a>(object: &impl Resource, clock: &'a Clock) -> About<'a> {
    About {
        generation: object.meta().generation,
        clock,
    }
}

impl About<'_> {
    /// Sets the condition of a type; whether that changed anything. `status` is a [`Status`], or whether it holds.
    pub fn set(
        &self,
        conditions: &mut Vec<Condition>,
        type_: &str,
        status: impl Into<Status>,
        reason: &str,
        message: &str,
    ) -> bool {
        let status = status.into();
        set(conditions, type_, status, reason, message, self.generation, self.clock)
    }
}

/// Sets the condition of a type; whether that changed anything (apimachinery's `SetStatusCondition`). With [`of`] it is
/// shorter.
///
/// `lastTransitionTime` is the time at which the status changed last: another reason or message does not move it.
pub fn set(
    conditions: &mut Vec<Condition>,
    type_: &str,
    status: Status,
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

/// The condition of a type.
pub fn find<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|it| it.type_ == type_)
}

/// Returns `true` if the condition of a type exists and is true.
pub fn is_true(conditions: &[Condition], type_: &str) -> bool {
    find(conditions, type_).is_some_and(|it| it.status == Status::True.as_str())
}

/// Removes the condition of a type; whether it was there.
pub fn remove(conditions: &mut Vec<Condition>, type_: &str) -> bool {
    let before = conditions.len();
    conditions.retain(|it| it.type_ != type_);
    conditions.len() != before
}
