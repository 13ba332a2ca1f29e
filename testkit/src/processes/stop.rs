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
    const ALL: [Self; 7] = [
        Self::Term,
        Self::Int,
        Self::Quit,
        Self::Hup,
        Self::Usr1,
        Self::Usr2,
        Self::Kill,
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
        Self::ALL.into_iter().find(|it| it.name() == name)
    }

    /// Returns the name that scenarios and Pods use.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Term => "SIGTERM",
            Self::Int => "SIGINT",
            Self::Quit => "SIGQUIT",
            Self::Hup => "SIGHUP",
            Self::Usr1 => "SIGUSR1",
            Self::Usr2 => "SIGUSR2",
            Self::Kill => "SIGKILL",
        }
    }
}

fn default_grace() -> Time {
    Time(Duration::from_secs(3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scenarios_use_the_names_of_signals() {
        for signal in StopSignal::ALL {
            let read: StopSignal = serde_saphyr::from_str(signal.name()).expect("the name is known");
            assert_eq!(read, signal);
            assert_eq!(StopSignal::of_name(signal.name()), Some(signal));
        }
    }
}
