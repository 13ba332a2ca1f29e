//! The command as another process: started, read until it is ready, and stopped with the test.

#![allow(dead_code, reason = "each test binary uses its part")]

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// The command to be run with these arguments.
pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fake-apiserver"));
    command.args(args).stdin(Stdio::null());
    command
}

/// A folder of its own for one test, empty.
pub(crate) fn folder() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!(
        "{}-{}-{}",
        env!("CARGO_CRATE_NAME"),
        std::process::id(),
        NEXT.fetch_add(1, Ordering::Relaxed)
    );
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).expect("the target folder can be written");
    folder
}

/// A running command.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) child: Child,
    pub(crate) url: String,
    pub(crate) stdout: BufReader<ChildStdout>,
}

impl Server {
    /// Starts the command on a free port and waits for the line that says it is ready.
    pub(crate) fn start(args: &[&str]) -> Self {
        let mut child = command(args)
            .stdout(Stdio::piped())
            .spawn()
            .expect("cargo has built the command");
        let mut stdout = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut line = String::new();
        stdout.read_line(&mut line).expect("stdout is text");
        let url = line
            .strip_prefix("listening on ")
            .and_then(|it| it.strip_suffix('\n'))
            .unwrap_or_else(|| panic!("not the line of a server that is ready: {line:?}"));
        let url = url.to_owned();
        Self { child, url, stdout }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to stop.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
