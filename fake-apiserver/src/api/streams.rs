//! Input, output and handlers of `exec`, `attach`, `port-forward` and `logs`.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::object::Object;

/// Standard input received so far.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Stdin<'a> {
    /// All standard input, from the start.
    pub bytes: &'a [u8],
    /// Number of bytes that had arrived at the previous call of the handler.
    pub seen: usize,
    /// Set if no further bytes will arrive; always set if the client does not request standard input.
    pub has_ended: bool,
}

/// Output of a command in a container, and its exit.
///
/// ```
/// use fake_apiserver::ExecOutput;
///
/// let refused = ExecOutput::stdout("checking\n").with_stderr("no connection\n").exits_with(2);
/// # let _ = refused;
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "an output does nothing until a handler returns it"]
pub struct ExecOutput {
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    pub(crate) exit_code: i32,
    pub(crate) awaits_stdin: bool,
}

impl Stdin<'_> {
    /// Returns the bytes that have arrived since the previous call of the handler.
    pub fn unseen(&self) -> &[u8] {
        self.bytes.get(self.seen..).unwrap_or_default()
    }
}

impl ExecOutput {
    /// Returns the output of a command that writes this text to standard output and exits with 0.
    pub fn stdout(text: impl Into<Vec<u8>>) -> Self {
        Self {
            stdout: text.into(),
            ..Self::default()
        }
    }

    /// Returns the output of a command that waits for more standard input: the handler is called again when bytes
    /// arrive, and when the input ends.
    pub fn awaits_stdin() -> Self {
        Self {
            awaits_stdin: true,
            ..Self::default()
        }
    }

    /// Writes this output immediately, and keeps the command running, unless standard input has ended. The handler is
    /// called again as for [`ExecOutput::awaits_stdin`], and its next output is appended.
    ///
    /// ```
    /// use fake_apiserver::{ExecOutput, Stdin};
    ///
    /// /// `cat`, which a client may talk to without ending its input.
    /// fn cat(stdin: Stdin<'_>) -> ExecOutput {
    ///     ExecOutput::stdout(stdin.unseen()).and_awaits_stdin()
    /// }
    /// # let _ = cat;
    /// ```
    pub fn and_awaits_stdin(mut self) -> Self {
        self.awaits_stdin = true;
        self
    }

    /// Sets the standard error. Empty by default.
    pub fn with_stderr(mut self, text: impl Into<Vec<u8>>) -> Self {
        self.stderr = text.into();
        self
    }

    /// Sets the exit code of the command. Default: 0.
    pub fn exits_with(mut self, code: i32) -> Self {
        self.exit_code = code;
        self
    }
}

/// Runs a command with the standard input that has arrived so far.
pub(crate) type ExecHandler = Arc<dyn Fn(&[String], Stdin<'_>) -> ExecOutput + Send + Sync>;

/// Returns the response to the bytes that have arrived over a connection to a port; `None` waits for more.
pub(crate) type PortHandler = Arc<dyn Fn(&[u8]) -> Option<Vec<u8>> + Send + Sync>;

/// The ports that a Pod listens on, with their handlers.
pub(crate) type Listening = BTreeMap<u16, PortHandler>;

/// Logs, commands and ports of the Pods that a worker runs.
pub(crate) trait PodStreams: Send + Sync {
    /// Returns the logs of a container of a Pod.
    fn logs(&self, pod: &Object, container: &str) -> String;

    /// Returns the handler of `exec` in a Pod, if there is one.
    fn exec(&self, pod: &Object) -> Option<ExecHandler>;

    /// Returns the handlers of the ports of a Pod.
    fn ports(&self, pod: &Object) -> Listening;
}

/// An admitted connection to a Pod.
pub(crate) enum Connection {
    /// `exec`: the handler, the command and the streams.
    Exec(ExecHandler, Vec<String>, Streams),
    /// `attach`: the output of the container.
    Attach(String, Streams),
    /// `port-forward`: the requested ports in order (empty for SPDY), and the ports that the Pod listens on.
    Ports(Vec<u16>, Listening),
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Exec(..) => "Exec",
            Self::Attach(..) => "Attach",
            Self::Ports(..) => "Ports",
        })
    }
}

/// Streams that a client requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Streams {
    pub(crate) stdin: bool,
    pub(crate) stdout: bool,
    pub(crate) stderr: bool,
    pub(crate) tty: bool,
}
