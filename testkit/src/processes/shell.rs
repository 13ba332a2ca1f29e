//! `Shell`: runs the command lines of steps and checks.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::time::timeout;

use super::network::Network;
use super::scenario::Scenario;
use super::stubs::Stubs;

/// Time limit of a command line.
const RUN_BOUND: Duration = Duration::from_secs(60);

/// Maximum number of characters of a command's output in a message.
const OUTPUT_CHARS: usize = 2_000;

/// Namespace of names without a namespace.
const NAMESPACE: &str = "default";

/// Shell script that mounts the file `$1` as the configuration of the resolver, in a separate mount namespace, and
/// executes the command line `$2`.
const RESOLVE: &str = r#"mount --bind "$1" "$(readlink -f /etc/resolv.conf)" && exec sh -c "$2""#;

/// The environment of a command line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shell<'a> {
    /// The working directory.
    pub(crate) directory: &'a Path,
    pub(crate) kubeconfig: Option<&'a Path>,
    /// The configuration of the resolver in a private network.
    pub(crate) resolver: Option<&'a Path>,
}

impl Shell<'_> {
    /// Runs a command line, and returns its standard output. Fails with a message that contains the last output.
    pub(crate) async fn run(self, line: &str, input: Option<String>) -> Result<String, String> {
        let mut command = self.command(line);
        command
            .current_dir(self.directory)
            .stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        if let Some(kubeconfig) = self.kubeconfig {
            command.env("KUBECONFIG", kubeconfig);
        }
        let failed = |err: io::Error| format!("`{line}`: {err}");
        let mut child = command.spawn().map_err(failed)?;
        let stdin = child.stdin.take();
        let write = async {
            if let (Some(mut stdin), Some(input)) = (stdin, input) {
                // The command may exit without reading all of its input.
                let _ = stdin.write_all(input.as_bytes()).await;
            }
        };
        let ended = timeout(RUN_BOUND, async { tokio::join!(write, child.wait_with_output()).1 }).await;
        let output = ended.map_err(|_| format!("`{line}` has not ended after {RUN_BOUND:?}"))?;
        let output = output.map_err(failed)?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() {
            return Ok(text(&output.stdout));
        }
        let both = format!("{}{}", text(&output.stdout), text(&output.stderr));
        let last = crate::text::last(both.trim_end(), OUTPUT_CHARS);
        Err(format!("`{line}` failed ({}): {last}", output.status))
    }

    fn command(self, line: &str) -> Command {
        let Some(resolver) = self.resolver else {
            let mut command = Command::new("sh");
            command.args(["-c", line]);
            return command;
        };
        let mut command = Command::new("unshare");
        if !rustix::process::geteuid().is_root() {
            command.args(["--user", "--map-root-user"]);
        }
        command.args(["--mount", "sh", "-c", RESOLVE, "run"]);
        command.arg(resolver).arg(line);
        command
    }
}

impl Scenario {
    /// Returns the path of the resolver's configuration for command lines, in the directory of all runs. `None` if
    /// networks are not private.
    pub(crate) fn resolver_in(&self, folder: &Path) -> Option<PathBuf> {
        (self.network == Network::Private).then(|| folder.join("resolv.conf"))
    }

    /// Writes the resolver's configuration for command lines if networks are private.
    pub(crate) fn write_resolver(&self, folder: &Path) -> io::Result<()> {
        match self.resolver_in(folder) {
            Some(file) => fs::write(file, Stubs::resolver(NAMESPACE)),
            None => Ok(()),
        }
    }
}
