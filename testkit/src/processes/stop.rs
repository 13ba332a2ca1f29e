//! `Stop`: the signal and the time limit with which a process is stopped before it is restarted.

use std::time::Duration;

use rustix::process::Signal;
use schemars::JsonSchema;
use serde::Deserialize;

use super::time::Time;

/// Maximum of `grace`. A longer time would exceed the time limits of a run.
pub(crate) const LONGEST_GRACE: Duration = Duration::from_secs(60);

/// The signal and the time limit with which the faults `restart` and `stop` stop a process, as if its Pod were deleted.
/// Other faults and the end of a run kill the process (SIGKILL).
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Stop {
    /// Signal that is sent first. Default SIGTERM, as in Kubernetes.
    #[serde(default)]
    pub(crate) signal: StopSignal,
    /// Time after the signal within which the process must exit before it is killed (SIGKILL). Default 3s, maximum 60s.
    #[serde(default = "default_grace")]
    pub(crate) grace: Time,
}

/// A signal that stops a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub(crate) enum StopSignal {
    #[default]
    #[serde(rename = "SIGTERM")]
    Term,
    #[serde(rename = "SIGINT")]
    Int,
    #[serde(rename = "SIGQUIT")]
    Quit,
    #[serde(rename = "SIGHUP")]
    Hup,
    #[serde(rename = "SIGUSR1")]
    Usr1,
    #[serde(rename = "SIGUSR2")]
    Usr2,
    #[serde(rename = "SIGKILL")]
    Kill,
}

impl Default for Stop {
    fn default() -> Self {
        Self {
            signal: StopSignal::default(),
            grace: default_grace(),
        }
    }
}

impl StopSignal {
    /// Signals by the names that scenarios and Pods use.
    const NAMES: [(&'static str, Self); 7] = [
        ("SIGTERM", Self::Term),
        ("SIGINT", Self::Int),
        ("SIGQUIT", Self::Quit),
        ("SIGHUP", Self::Hup),
        ("SIGUSR1", Self::Usr1),
        ("SIGUSR2", Self::Usr2),
        ("SIGKILL", Self::Kill),
    ];

    pub(crate) const fn signal(self) -> Signal {
        match self {
            Self::Term => Signal::TERM,
            Self::Int => Signal::INT,
            Self::Quit => Signal::QUIT,
            Self::Hup => Signal::HUP,
            Self::Usr1 => Signal::USR1,
            Self::Usr2 => Signal::USR2,
            Self::Kill => Signal::KILL,
        }
    }

    /// Returns the signal with this name.
    pub(crate) fn of_name(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|it| it.0 == name).map(|it| it.1)
    }

    pub(crate) fn name(self) -> &'static str {
        Self::NAMES.iter().find(|it| it.1 == self).map_or("", |it| it.0)
    }
}

fn default_grace() -> Time {
    Time(Duration::from_secs(3))
}
