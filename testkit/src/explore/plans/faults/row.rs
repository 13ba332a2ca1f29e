//! `FaultRow`: the description of a fault.

use super::effects::Effects;
use super::tried::Tried;
use super::value::{Takes, Value};

/// Description of a fault.
pub(crate) struct FaultRow {
    /// The word in replay strings.
    pub(crate) word: &'static str,
    /// Type of the value that follows the word in replay strings.
    pub(crate) takes: Takes,
    pub(crate) kind: fn(Value) -> Kind,
    pub(crate) names: Names,
    /// Set if the fault can make a client act on an outdated state, so that fields may return to earlier values.
    pub(crate) shows_old: bool,
    /// The messages at which the fault is tried.
    pub(crate) tried: Tried,
    pub(crate) effects: fn(Value) -> Effects,
    /// Describes the fault at a message, for reports.
    pub(crate) words: fn(&Struck<'_>, Value) -> String,
}

/// Kinds of faults, from which an exploration selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    Crash,
    Error,
    Watch,
    Delay,
    Pause,
    Clock,
    Variant,
    Overlap,
    /// Faults that are only tried if the controllers run in separate processes.
    Process,
}

/// The subject to which the point of a fault refers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Names {
    /// A message. It may no longer be sent once a bug is fixed.
    Message,
    /// A controller that can be restarted.
    Controller,
    Client,
    /// The server or the test, which exist in every scenario.
    Fixed,
}

/// The message that a fault affects, for descriptions.
pub(crate) struct Struck<'a> {
    pub(crate) client: &'a str,
    pub(crate) verb: &'a str,
    /// Description of the message: `patch configmaps default/volume (number 2)`.
    pub(crate) what: String,
}
