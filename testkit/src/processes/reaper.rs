//! `Reaper`: a process that kills the controllers when this process ends, for any reason.
//!
//! It is this program with another argument, in its own process group, and reads the ids of process groups from its
//! standard input. The input ends when this process ends.

use std::collections::BTreeSet;
use std::io::{self, BufRead, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::lock::lock;

/// The argument that makes this program a reaper.
pub(crate) const ARGUMENT: &str = "reap-process-groups";

/// A running reaper. It ends with this process.
#[derive(Clone, Debug)]
pub(crate) struct Reaper(Arc<Mutex<Running>>);

#[derive(Debug)]
struct Running {
    input: Option<ChildStdin>,
    child: Child,
}

impl Reaper {
    /// Starts the program at this path as a reaper.
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

    /// Adds a process group.
    pub(crate) fn add(&self, group: i32) {
        self.tell(&format!("+{group}\n"));
    }

    /// Removes a process group that has ended.
    pub(crate) fn remove(&self, group: i32) {
        self.tell(&format!("-{group}\n"));
    }

    fn tell(&self, line: &str) {
        if let Some(input) = &mut lock(&self.0).input {
            // Even without a reaper the processes end with their run.
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
