//! `FaultRule`: a fault described as data: its effect, the affected requests and their maximum number. Rules are
//! created from files, by the control API, and by the builders of the testkit.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::filter::RequestFilter;
use super::{Fault, Seen, Verdict, When};
use crate::api::resource::GroupResource;
use crate::api::status::Status;

/// A fault as data. Without restrictions it affects every client request for a resource.
///
/// ```
/// use fake_apiserver::faults::FaultRule;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let rule: FaultRule = serde_json::from_str(
///     r#"{"effect": {"status": {"code": 503}}, "on": {"verbs": ["list"], "resource": "pods"}, "times": 2}"#,
/// )?;
/// assert_eq!(rule.to_string(), "503 ServiceUnavailable on list pods, 2 times");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[non_exhaustive]
pub struct FaultRule {
    /// Effect of the fault.
    pub effect: Effect,
    /// Requests to which the fault applies.
    #[serde(default)]
    pub on: RequestFilter,
    /// Number of matching requests that pass before the first affected one.
    #[serde(default)]
    pub skip: u64,
    /// Maximum number of affected requests; unlimited if `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<u64>,
    /// Probability that a matching request is affected, from 0 to 1; `None` affects every request. The selection only
    /// depends on the server's seed, the rule's id and the order of the matching requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probability: Option<f64>,
}

/// Effect of a fault on a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[non_exhaustive]
pub enum Effect {
    /// Returns 409 Conflict, as if another client had changed the object.
    Conflict,
    /// Returns 404 Not Found.
    NotFound,
    /// Returns this failure.
    Status(Failure),
    /// Delays the request by this number of milliseconds before it is handled.
    DelayMs(u64),
    /// Handles the request immediately, and delays the response by this number of milliseconds.
    DelayAnswerMs(u64),
    /// Refuses the connection.
    Refuse,
    /// Breaks the connection.
    Reset(When),
    /// Never responds.
    Hang(When),
    /// Truncates the response after this number of bytes, and breaks the connection.
    Truncate(usize),
}

/// An error response of the server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Failure {
    /// HTTP status code.
    pub code: u16,
    /// Reason of the Status; if empty, the usual reason for the code, if there is one.
    pub reason: String,
    /// Message of the Status; if empty, a message that states that the failure was injected.
    pub message: String,
    /// Value of the header `Retry-After` in seconds; 0 omits the header.
    pub retry_after_seconds: u32,
    /// Set if the request is executed nevertheless, so that only its response is lost.
    pub applied: bool,
    /// Unused. End struct literals with `..Failure::default()`, because fields may be added.
    #[doc(hidden)]
    #[serde(skip)]
    pub _more: (),
}

/// The accepted reasons, each with its code. The first reason of a code is the default.
const REASONS: &[(u16, &str)] = &[
    (400, "BadRequest"),
    (401, "Unauthorized"),
    (403, "Forbidden"),
    (404, "NotFound"),
    (405, "MethodNotAllowed"),
    (406, "NotAcceptable"),
    (409, "Conflict"),
    (409, "AlreadyExists"),
    (410, "Expired"),
    (410, "Gone"),
    (413, "RequestEntityTooLarge"),
    (415, "UnsupportedMediaType"),
    (422, "Invalid"),
    (429, "TooManyRequests"),
    (500, "InternalError"),
    (500, "ServerTimeout"),
    (500, "StoreReadError"),
    (503, "ServiceUnavailable"),
    (504, "Timeout"),
];

/// Error for an invalid rule, with the reason.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct RuleError(String);

impl Failure {
    /// Validates the code and the reason.
    pub(crate) fn check(&self) -> Result<(), RuleError> {
        self.reason()?;
        match self.code {
            400..600 => Ok(()),
            code => Err(RuleError(format!("{code} is not an HTTP error code"))),
        }
    }

    fn reason(&self) -> Result<&'static str, RuleError> {
        if self.reason.is_empty() {
            let known = REASONS.iter().find(|(code, _)| *code == self.code);
            return Ok(known.map_or("", |(_, reason)| reason));
        }
        let known = REASONS.iter().find(|(_, reason)| *reason == self.reason);
        known
            .map(|(_, reason)| *reason)
            .ok_or_else(|| RuleError(format!("{:?} is not a Kubernetes reason", self.reason)))
    }

    pub(crate) fn status(&self) -> Status {
        let message = match self.message.as_str() {
            "" => "injected by the test",
            message => message,
        };
        let status = Status::new(self.code, self.reason().unwrap_or_default(), message);
        match self.retry_after_seconds {
            0 => status,
            seconds => status.with_retry_after(seconds),
        }
    }
}

impl FaultRule {
    /// Creates a rule that affects every client request for a resource.
    pub fn new(effect: Effect) -> Self {
        Self {
            effect,
            on: RequestFilter::default(),
            skip: 0,
            times: None,
            probability: None,
        }
    }

    /// Validates the rule: the code of a failure must be between 400 and 599, its reason must exist in Kubernetes, and
    /// a probability must be between 0 and 1.
    pub fn check(&self) -> Result<(), RuleError> {
        if let Effect::Status(failure) = &self.effect {
            failure.check()?;
        }
        match self.probability {
            Some(it) if !(0.0..=1.0).contains(&it) => {
                Err(RuleError(format!("probability {it} is not between 0 and 1")))
            }
            _ => Ok(()),
        }
    }

    fn verdict(&self, request: &Seen<'_>) -> Verdict {
        let (info, name) = (request.info, &request.info.name);
        let resource = || GroupResource {
            group: info.group.clone(),
            resource: info.resource.clone(),
        };
        match &self.effect {
            Effect::Conflict => Verdict::Fail(Box::new(Status::object_modified(&resource(), name))),
            Effect::NotFound => Verdict::Fail(Box::new(Status::not_found(&resource(), name))),
            Effect::Status(failure) if failure.applied => Verdict::Lose(Box::new(failure.status())),
            Effect::Status(failure) => Verdict::Fail(Box::new(failure.status())),
            Effect::DelayMs(time) => Verdict::Delay(Duration::from_millis(*time)),
            Effect::DelayAnswerMs(time) => Verdict::DelayAnswer(Duration::from_millis(*time)),
            Effect::Refuse => Verdict::Refuse,
            Effect::Reset(when) => Verdict::Reset(*when),
            Effect::Hang(when) => Verdict::Hang(*when),
            Effect::Truncate(bytes) => Verdict::Truncate(*bytes),
        }
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let when = |when: &When| match when {
            When::Before => "",
            When::After => ", but applied,",
        };
        match self {
            Self::Conflict => f.write_str("409 Conflict"),
            Self::NotFound => f.write_str("404 NotFound"),
            Self::Status(failure) => {
                let but = if failure.applied { ", but applied," } else { "" };
                write!(f, "{} {}{but}", failure.code, failure.reason().unwrap_or_default())
            }
            Self::DelayMs(ms) => write!(f, "delay of {:?}", Duration::from_millis(*ms)),
            Self::DelayAnswerMs(ms) => write!(f, "response delayed by {:?}", Duration::from_millis(*ms)),
            Self::Refuse => f.write_str("connection refused"),
            Self::Reset(it) => write!(f, "connection reset{}", when(it)),
            Self::Hang(it) => write!(f, "no response{}", when(it)),
            Self::Truncate(bytes) => write!(f, "response cut after {bytes} bytes"),
        }
    }
}

impl fmt::Display for FaultRule {
    /// Formats the rule like `409 Conflict on update configmaps, number 2`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.effect, self.on)?;
        match (self.skip, self.times) {
            (0, None) => Ok(()),
            (skip, None) => write!(f, ", all after {skip}"),
            (0, Some(1)) => f.write_str(", once"),
            (skip, Some(1)) => write!(f, ", number {}", skip.saturating_add(1)),
            (0, Some(times)) => write!(f, ", {times} times"),
            (skip, Some(times)) => write!(f, ", {times} times after {skip}"),
        }?;
        match self.probability {
            None => Ok(()),
            Some(probability) => write!(f, ", with probability {probability}"),
        }
    }
}

/// An installed rule with its counters.
#[derive(Debug)]
pub(crate) struct Described {
    pub(crate) rule: FaultRule,
    /// Seed of the random selection of requests.
    pub(crate) seed: u64,
    /// Number of matching requests so far.
    seen: u64,
    /// Number of requests affected so far.
    struck: u64,
}

impl Described {
    pub(crate) fn new(rule: FaultRule, seed: u64) -> Self {
        Self {
            rule,
            seed,
            seen: 0,
            struck: 0,
        }
    }

    /// Returns `true` if the `n`-th matching request is selected at random. Each rule has its own sequence of random
    /// numbers, so rules affect neither each other's selection nor uids.
    fn is_drawn(&self, n: u64) -> bool {
        let Some(probability) = self.rule.probability else {
            return true;
        };
        // splitmix64; uses as many bits as fit into an f64.
        let mut bits = self.seed.wrapping_add(n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
        ((bits >> 11) as f64) / ((1_u64 << 53) as f64) < probability
    }
}

impl Fault for Described {
    fn on_request(&mut self, request: &Seen<'_>) -> Verdict {
        if !self.rule.on.matches(request.info, request.client, request.worker) {
            return Verdict::Pass;
        }
        self.seen += 1;
        if self.seen <= self.rule.skip || self.is_spent() || !self.is_drawn(self.seen) {
            return Verdict::Pass;
        }
        self.struck += 1;
        self.rule.verdict(request)
    }

    fn is_spent(&self) -> bool {
        self.rule.times.is_some_and(|times| self.struck >= times)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(r#"{"effect": "conflict"}"#, "409 Conflict on every request for any resource")]
    #[case(
        r#"{"effect": {"reset": "after"}, "times": 1}"#,
        "connection reset, but applied, on every request for any resource, once"
    )]
    #[case(
        r#"{"effect": {"truncate": 9}, "skip": 1, "times": 1}"#,
        "response cut after 9 bytes on every request for any resource, number 2"
    )]
    #[case(
        r#"{"effect": {"delayMs": 1500}, "on": {"client": "c"}, "probability": 0.5}"#,
        "delay of 1.5s on every request for any resource client=c, with probability 0.5"
    )]
    fn fault_rule_round_trips_through_json(#[case] json: &str, #[case] said: &str) {
        let rule: FaultRule = serde_json::from_str(json).expect("the rule is valid");
        rule.check().expect("the rule is valid");
        assert_eq!(rule.to_string(), said);
        let again: FaultRule = serde_json::from_value(serde_json::to_value(&rule).unwrap()).unwrap();
        assert_eq!(again, rule);
    }

    #[rstest]
    #[case(r#"{"effect": {"status": {"code": 200}}}"#, "200 is not an HTTP error code")]
    #[case(
        r#"{"effect": {"status": {"code": 500, "reason": "Bad"}}}"#,
        "\"Bad\" is not a Kubernetes reason"
    )]
    #[case(r#"{"effect": "refuse", "probability": 2}"#, "probability 2 is not between 0 and 1")]
    fn invalid_fault_rule_is_refused(#[case] json: &str, #[case] why: &str) {
        let rule: FaultRule = serde_json::from_str(json).expect("the rule is valid");
        assert_eq!(rule.check().unwrap_err().to_string(), why);
    }

    #[test]
    fn probabilistic_faults_are_reproducible_by_seed() {
        let rule = FaultRule {
            probability: Some(0.25),
            ..FaultRule::new(Effect::Refuse)
        };
        let draws = |seed| -> Vec<_> {
            let described = Described::new(rule.clone(), seed);
            (1..=4000).map(|n| described.is_drawn(n)).collect()
        };
        assert_eq!(draws(7), draws(7));
        assert_ne!(draws(7), draws(8));
        let struck = draws(7).iter().filter(|it| **it).count();
        assert!(
            (900..1100).contains(&struck),
            "{struck} of 4000 requests failed with the probability 0.25"
        );
    }
}
