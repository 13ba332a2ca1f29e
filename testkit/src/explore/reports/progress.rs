//! Progress shown in a terminal during the exploration.

use std::io::{IsTerminal, Write};
use std::sync::{Arc, Mutex};

use crate::lock::lock;

/// The progress line that a terminal shows.
#[derive(Clone, Debug)]
pub(crate) struct Progress {
    is_shown: bool,
    told: Arc<Mutex<String>>,
}

impl Progress {
    pub(crate) fn start() -> Self {
        Self {
            is_shown: std::io::stderr().is_terminal(),
            told: Arc::default(),
        }
    }

    /// Returns `true` if standard error is a terminal.
    #[cfg(all(feature = "processes", unix))]
    pub(crate) fn is_shown(&self) -> bool {
        self.is_shown
    }

    /// Sets the text of the line.
    pub(crate) fn tell(&self, line: impl FnOnce() -> String) {
        if self.is_shown {
            *lock(&self.told) = line();
        }
    }

    /// Writes the line to standard error directly, since the test runner captures the output of `eprint!`.
    pub(crate) fn show(&self) {
        if self.is_shown {
            let line = lock(&self.told).clone();
            // Ignore errors: progress is not shown if the terminal cannot be written to.
            let _ = write!(std::io::stderr(), "\r\x1b[Kexploring: {line}");
        }
    }

    /// Erases the line.
    pub(crate) fn clear(&self) {
        if self.is_shown {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}
