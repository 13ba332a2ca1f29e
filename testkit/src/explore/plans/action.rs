//! `Action`: a fault with its value.

use std::fmt;
use std::time::Duration;

use super::faults::{Effects, Fault, Kind, OnAnswer, OnCall, OnRequest, Value};

/// A fault and its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Action {
    pub(crate) fault: Fault,
    pub(crate) value: Value,
}

impl Action {
    /// Makes the test continue without waiting for the end of the faults.
    pub(crate) const EARLY: Self = Self {
        fault: Fault::Early,
        value: Value::Nothing,
    };

    /// Refuses a request or a call, because the server or the external system is unavailable.
    pub(crate) const REFUSED: Self = Self {
        fault: Fault::Fail,
        value: Value::Number(503),
    };

    pub(crate) fn kind(self) -> Kind {
        (self.fault.row().kind)(self.value)
    }

    pub(crate) fn effects(self) -> Effects {
        (self.fault.row().effects)(self.value)
    }

    /// Returns the duration of the fault; `None` if the fault does not have a duration.
    pub(crate) fn window(self) -> Option<Duration> {
        match self.value {
            Value::Time(time) => Some(time),
            Value::Nothing | Value::Number(_) => None,
        }
    }

    /// Returns the same fault with the duration `time`; unchanged if the fault does not have a duration.
    pub(crate) fn lasting(self, time: Duration) -> Self {
        match self.window() {
            Some(_) => Self {
                value: Value::Time(time),
                ..self
            },
            None => self,
        }
    }

    /// Returns `true` if the fault kills a controller at the point.
    pub(crate) fn is_crash(self) -> bool {
        let request = self.effects().request;
        matches!(request, Some(OnRequest::Crash(_))) || self.is_crash_late() || self.is_crash_after()
    }

    /// Returns `true` if the fault kills a controller while its request is still in transit.
    pub(crate) fn is_crash_late(self) -> bool {
        let request = self.effects().request;
        matches!(request, Some(OnRequest::ArriveLate { crashes: true, .. }))
    }

    /// Returns `true` if the fault kills a controller after its request has completed.
    pub(crate) fn is_crash_after(self) -> bool {
        matches!(self.effects().answer, Some(OnAnswer::Crash(_)))
    }

    /// Returns `true` if the fault can make a request or call of the client fail with an error.
    pub(crate) fn is_failure(self) -> bool {
        let Effects {
            request, answer, call, ..
        } = self.effects();
        let is_refused = matches!(
            request,
            Some(
                OnRequest::Refuse(_)
                    | OnRequest::Lose(_)
                    | OnRequest::Overtake
                    | OnRequest::ArriveLate { crashes: false, .. }
            )
        );
        let is_lost = matches!(answer, Some(OnAnswer::Break(_)));
        is_refused || is_lost || matches!(call, Some(OnCall::Fail | OnCall::Outage(_)))
    }

    /// Returns a fault with which the request also fails, but is not executed: a lost response, or a late arrival
    /// without a crash, becomes a refusal. Other faults are returned unchanged.
    pub(crate) fn unexecuted(self) -> Self {
        let Effects { request, answer, .. } = self.effects();
        let is_executed = matches!(answer, Some(OnAnswer::Break(_)))
            || matches!(request, Some(OnRequest::ArriveLate { crashes: false, .. }));
        if is_executed { Self::REFUSED } else { self }
    }

    /// Parses an action such as `crash-after=1000`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (word, value) = match text.split_once('=') {
            Some((word, value)) => (word, Some(value)),
            None => (text, None),
        };
        let fault = Fault::of_word(word)?;
        let value = fault.row().takes.parse(value)?;
        Some(Self { fault, value })
    }
}

impl fmt::Display for Action {
    /// Formats the action as in a replay string: `crash-after=1000`. Times are in milliseconds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.fault.row().word)?;
        match self.value {
            Value::Nothing => Ok(()),
            Value::Time(time) => write!(f, "={}", time.as_millis()),
            Value::Number(number) => write!(f, "={number}"),
        }
    }
}
