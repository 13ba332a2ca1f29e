//! `Network`: the network of the controllers of a run.

use schemars::JsonSchema;
use serde::Deserialize;

/// The network of the controllers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Network {
    /// The network of this machine. A program that listens on a fixed port can only be in one run at a time.
    #[default]
    Host,
    /// A network for each run, which contains a loopback interface only, so that fixed ports are free in every run. The
    /// addresses of Pods and Services lead to this interface. Needs Linux, `ip` of iproute2, and root or a user
    /// namespace: `unshare --user --map-root-user drydock explore …`.
    Private,
}

impl Network {
    /// Moves this thread into the network. Sockets and processes that it makes from now on belong to it. The error is a
    /// sentence for the report.
    pub(crate) async fn enter(self) -> Result<(), String> {
        match self {
            Self::Host => Ok(()),
            Self::Private => private::enter().await,
        }
    }
}

#[cfg(target_os = "linux")]
mod private {
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::process::Stdio;

    use rustix::thread::{ThreadNameSpaceType, move_into_thread_name_spaces};
    use tokio::io::{AsyncBufReadExt, BufReader};
    use tokio::process::Command;

    /// Prepares a network with the addresses of Pods and Services, and keeps it until the input ends.
    const PREPARE: &str = "ip link set lo up && ip route add local 10.244.0.0/16 dev lo &&
        ip route add local 10.96.0.0/12 dev lo && echo && read -r end";

    /// Moves this thread into a new network.
    pub(super) async fn enter() -> Result<(), String> {
        let mut command = Command::new("unshare");
        command
            .args(["--net", "sh", "-c", PREPARE])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command.spawn().map_err(|err| failed(&err.to_string()))?;
        let mut line = String::new();
        if let Some(output) = child.stdout.take() {
            // Without a line, the program has failed.
            let _ = BufReader::new(output).read_line(&mut line).await;
        }
        let (true, Some(id)) = (line.ends_with('\n'), child.id()) else {
            let output = child.wait_with_output().await;
            let output = output.map_err(|err| failed(&err.to_string()))?;
            return Err(failed(String::from_utf8_lossy(&output.stderr).trim_end()));
        };
        let network = File::open(format!("/proc/{id}/ns/net")).map_err(|err| failed(&err.to_string()))?;
        let moved = move_into_thread_name_spaces(network.as_fd(), ThreadNameSpaceType::NETWORK);
        moved.map_err(|err| failed(&err.to_string()))
    }

    fn failed(why: &str) -> String {
        format!(
            "`network: private` needs `ip` of iproute2, and root or a user namespace, as in `unshare --user \
             --map-root-user drydock explore …`: {why}"
        )
    }
}

#[cfg(not(target_os = "linux"))]
mod private {
    #[expect(clippy::unused_async, reason = "as on Linux")]
    pub(super) async fn enter() -> Result<(), String> {
        Err("`network: private` needs Linux".to_owned())
    }
}
