//! Answers of containers to `exec`, `attach`, `port-forward` and `logs`.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::object::Object;

/// Standard input received so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stdin<'a> {
    /// All of it, from the start.
    pub bytes: &'a [u8],
    /// Number of bytes that were there when the handler was asked before.
    pub seen: usize,
    /// Set if no more will come; from the start where the client sends none.
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
    /// The bytes that have come since the handler was asked before.
    pub fn unseen(&self) -> &[u8] {
        self.bytes.get(self.seen..).unwrap_or_default()
    }
}

impl ExecOutput {
    /// A command that writes this to standard output and ends with 0.
    pub fn stdout(text: impl Into<Vec<u8>>) -> Self {
        Self {
            stdout: text.into(),
            ..Self::default()
        }
    }

    /// A command that waits for more of its standard input: the handler is asked again when some has come, and when it
    /// has ended.
    pub fn awaits_stdin() -> Self {
        Self {
            awaits_stdin: true,
            ..Self::default()
        }
    }

    /// Goes on after this output, which is written now: the handler is asked again as by [`ExecOutput::awaits_stdin`],
    /// and what it answers then is written behind it.
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

    /// Sets the standard error. Default: nothing.
    pub fn with_stderr(mut self, text: impl Into<Vec<u8>>) -> Self {
        self.stderr = text.into();
        self
    }

    /// The code it ends with. Default: 0.
    pub fn exits_with(mut self, code: i32) -> Self {
        self.exit_code = code;
        self
    }
}

/// Answers a command by what has come over standard input so far.
pub(crate) type ExecHandler = Arc<dyn Fn(&[String], Stdin<'_>) -> ExecOutput + Send + Sync>;

/// Answers what has come over a connection to a port so far; `None` waits for more.
pub(crate) type PortHandler = Arc<dyn Fn(&[u8]) -> Option<Vec<u8>> + Send + Sync>;

/// The ports that a Pod listens on.
pub(crate) type Listening = BTreeMap<u16, PortHandler>;

/// Answers of Pods that a worker runs.
pub(crate) trait PodStreams: Send + Sync {
    /// Returns the logs of the containers of a Pod.
    fn logs(&self, pod: &Object) -> String;

    /// Returns the handler of commands in a Pod; `None` if there is none.
    fn exec(&self, pod: &Object) -> Option<ExecHandler>;

    /// Returns the handlers of the ports of a Pod.
    fn ports(&self, pod: &Object) -> Listening;
}

/// A connection to a Pod that may be made.
pub(crate) enum Connection {
    /// `exec`: what answers, and the command.
    Exec(ExecHandler, Vec<String>, Streams),
    /// `attach`: what the container has written.
    Attach(String, Streams),
    /// `port-forward`: the ports of the request in its order (none for SPDY), and those that the script listens on.
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

/// Streams that a client asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Streams {
    pub(crate) stdin: bool,
    pub(crate) stdout: bool,
    pub(crate) stderr: bool,
}
