//! A command over SPDY (`exec` and `attach`), with an error stream, and a stream for each requested input or output.

use std::collections::BTreeMap;

use crate::api::streams::{ExecHandler, Stdin, Streams};
use crate::endpoints::exit;

/// The subprotocols of exec and attach, newest first.
pub(in crate::endpoints) const PROTOCOLS: [&str; 4] = [
    "v4.channel.k8s.io",
    "v3.channel.k8s.io",
    "v2.channel.k8s.io",
    "channel.k8s.io",
];

/// A command in a container, or the output of the container.
pub(in crate::endpoints) enum Program {
    /// The handler of a command, and the command.
    Exec(ExecHandler, Vec<String>),
    /// The output of the container.
    Output(String),
}

/// A command, which starts when the client has opened all of its streams.
pub(in crate::endpoints) struct Command {
    program: Program,
    protocol: String,
    wanted: Vec<&'static str>,
    /// Numbers of the open streams by their types.
    streams: BTreeMap<&'static str, u32>,
    stdin: Vec<u8>,
    seen: usize,
    has_ended: bool,
    is_done: bool,
}

/// Output on a stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Output {
    Data(u32, Vec<u8>),
    End(u32),
}

impl Command {
    /// Creates a command with these streams. `protocol` is one of [`PROTOCOLS`], or empty for the first version.
    pub(in crate::endpoints) fn new(program: Program, streams: Streams, protocol: &str) -> Self {
        // Version 3 and later versions have a stream for terminal sizes.
        let has_sizes = streams.tty && matches!(protocol, "v4.channel.k8s.io" | "v3.channel.k8s.io");
        let all = [
            ("error", true),
            ("stdin", streams.stdin),
            ("stdout", streams.stdout),
            ("stderr", streams.stderr),
            ("resize", has_sizes),
        ];
        Self {
            program,
            protocol: protocol.to_owned(),
            wanted: all
                .into_iter()
                .filter(|(_, is_set)| *is_set)
                .map(|(name, _)| name)
                .collect(),
            streams: BTreeMap::new(),
            stdin: Vec::new(),
            seen: 0,
            has_ended: !streams.stdin,
            is_done: false,
        }
    }

    /// Opens a stream; returns `false` if the command does not use this type, or the stream is already open.
    pub(super) fn open(&mut self, id: u32, kind: &str) -> bool {
        let known = self.wanted.iter().find(|it| **it == kind);
        let free = known.filter(|it| !self.streams.contains_key(**it));
        free.is_some_and(|kind| self.streams.insert(kind, id).is_none())
    }

    /// Returns the number of bytes of standard input received so far.
    pub(super) fn received(&self) -> usize {
        self.stdin.len()
    }

    /// Accepts bytes of a stream; only bytes of standard input are used.
    pub(super) fn take(&mut self, id: u32, bytes: &[u8], is_last: bool) {
        if self.streams.get("stdin") == Some(&id) && !self.is_done {
            self.stdin.extend_from_slice(bytes);
            self.has_ended |= is_last;
        }
    }

    /// Continues the command, if all of its streams are open; returns its output.
    pub(super) fn advance(&mut self) -> Vec<Output> {
        let mut out = Vec::new();
        if self.is_done || self.streams.len() < self.wanted.len() {
            return out;
        }
        let (stdout, stderr, exit_code) = match &self.program {
            Program::Output(text) => (text.clone().into_bytes(), Vec::new(), Some(0)),
            Program::Exec(handler, command) => {
                let stdin = Stdin {
                    bytes: &self.stdin,
                    seen: self.seen,
                    has_ended: self.has_ended,
                };
                let output = handler(command, stdin);
                self.seen = self.stdin.len();
                let is_over = !output.awaits_stdin || self.has_ended;
                (output.stdout, output.stderr, is_over.then_some(output.exit_code))
            }
        };
        for (kind, bytes) in [("stdout", stdout), ("stderr", stderr)] {
            if let Some(id) = self.streams.get(kind).filter(|_| !bytes.is_empty()) {
                out.push(Output::Data(*id, bytes));
            }
        }
        if let Some(exit_code) = exit_code {
            self.end(exit_code, &mut out);
        }
        out
    }

    fn end(&mut self, exit_code: i32, out: &mut Vec<Output>) {
        self.is_done = true;
        let text = match (&*self.protocol, exit_code) {
            ("v4.channel.k8s.io", _) => Some(exit::status(exit_code)),
            // Before version 4, only a failed command reports its exit code, as text.
            (_, 0) => None,
            (_, code) => Some(exit::failure(code)),
        };
        if let (Some(id), Some(text)) = (self.streams.get("error"), text) {
            out.push(Output::Data(*id, text.into_bytes()));
        }
        out.extend(self.streams.values().map(|id| Output::End(*id)));
    }
}
