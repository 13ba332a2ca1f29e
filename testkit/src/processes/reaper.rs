//! `Reaper`: a process that kills the controllers when this process ends, for any reason.
//!
//! It executes `drydock`, by default the executable of this process, with a special argument in a separate process
//! group. It reads the ids of process groups from its standard input, which is closed when this process ends.

use std::collections::BTreeSet;
use std::io::{self, BufRead, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncWriteExt;

use crate::lock::lock;

/// The argument that makes `drydock` run as a reaper.
pub(crate) const ARGUMENT: &str = "reap-process-groups";

/// Shell script that reads a line and then executes the command in its arguments. If this process is killed before it
/// has registered the new process with the reaper, the input is closed and the new process exits.
const START: &str = r#"read -r go && exec "$@" </dev/null"#;

/// Returns a command that waits for [`Reaper::begin`] and then executes its remaining arguments, in a separate process
/// group.
pub(crate) fn guarded() -> tokio::process::Command {
    let mut command = tokio::process::Command::new("sh");
    command
        .args(["-c", START, "start"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    command
}

/// A running reaper process. It exits when this is dropped.
#[derive(Clone, Debug)]
pub(crate) struct Reaper(Arc<Mutex<Running>>);

#[derive(Debug)]
struct Running {
    input: Option<ChildStdin>,
    child: Child,
}

impl Reaper {
    /// Starts the executable at this path as a reaper.
    pub(crate) fn start(program: &std::path::Path) -> io::Result<Self> {
        let mut child = Command::new(program)
            .arg(ARGUMENT)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()?;
        let input = child.stdin.take();
        Ok(Self(Arc::new(Mutex::new(Running { input, child }))))
    }

    /// Registers a process that was started from [`guarded`], and makes it execute its command. Returns its process
    /// group.
    pub(crate) async fn begin(&self, child: &mut tokio::process::Child) -> i32 {
        let group = child.id().and_then(|it| i32::try_from(it).ok()).unwrap_or_default();
        self.add(group);
        if let Some(mut input) = child.stdin.take() {
            // Ignore errors: if the process has already exited, the caller notices it when waiting for the process.
            let _ = input.write_all(b"\n").await;
        }
        group
    }

    /// Adds a process group.
    fn add(&self, group: i32) {
        self.tell(&format!("+{group}\n"));
    }

    /// Removes a process group that has ended.
    pub(crate) fn remove(&self, group: i32) {
        self.tell(&format!("-{group}\n"));
    }

    fn tell(&self, line: &str) {
        if let Some(input) = &mut lock(&self.0).input {
            // Ignore errors: even without a reaper, the processes end with their run.
            let _ = input.write_all(line.as_bytes());
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.input = None;
        let _ = self.child.wait();
    }
}

/// Reads the ids of process groups until the input ends, and then kills the remaining groups.
pub(crate) fn reap(input: impl BufRead) {
    let mut groups = BTreeSet::new();
    for line in input.lines().map_while(Result::ok) {
        let Some((sign, group)) = line.split_at_checked(1) else {
            continue;
        };
        let Ok(group) = group.parse::<i32>() else { continue };
        match sign {
            "+" => groups.insert(group),
            _ => groups.remove(&group),
        };
    }
    for group in groups {
        kill(group, Signal::KILL);
    }
}

/// Sends a signal to a process group, if it still exists.
pub(crate) fn kill(group: i32, signal: Signal) {
    if let Some(group) = Pid::from_raw(group).filter(|_| group > 1) {
        let _ = kill_process_group(group, signal);
    }
}
