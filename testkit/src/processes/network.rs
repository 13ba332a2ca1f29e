//! `Network`: the networks of the controllers and simulated Pods in a run.

use std::io;

use schemars::JsonSchema;
use serde::Deserialize;

/// The network of the controllers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Network {
    /// The network of this machine. A fixed port can only be used by one run at a time.
    #[default]
    Host,
    /// Separate networks for each run, so that fixed ports are free in every run: one for the controllers, which
    /// contains a loopback interface, and one for Pods and Services, which receives connections to their addresses. The
    /// names of Services and Pods are resolved as in a cluster. Requires Linux, `ip` of iproute2, and root or a user
    /// namespace: `unshare --user --map-root-user drydock explore …`.
    Private,
}

/// The network of the Pods of a run, which is connected to the network of the controllers.
#[derive(Debug)]
pub(crate) struct PodNetwork(private::Namespaces);

impl Network {
    /// Moves this thread into the network of the controllers. Sockets and processes that the thread creates from now on
    /// belong to this network. Returns the network of the Pods if networks are private. Fails with a message for the
    /// report.
    pub(crate) async fn enter(self) -> Result<Option<PodNetwork>, String> {
        match self {
            Self::Host => Ok(None),
            Self::Private => private::enter().await.map(|it| Some(PodNetwork(it))),
        }
    }
}

impl PodNetwork {
    /// Calls a function in the network of the Pods, so that the sockets that it creates belong to this network. Must be
    /// called on a thread that is in the network of the controllers.
    pub(crate) fn within<T>(&self, bind: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        self.0.within(bind)
    }
}

#[cfg(target_os = "linux")]
mod private {
    use std::fs::File;
    use std::io;
    use std::os::fd::AsFd;
    use std::process::Stdio;

    use rustix::thread::{ThreadNameSpaceType, move_into_thread_name_spaces};
    use tokio::io::{AsyncBufReadExt, BufReader};
    use tokio::process::{Child, Command};

    /// Shell script that prepares the network of the Pods: all addresses of Pods, Services and Nodes belong to it. The
    /// script then waits until its standard input ends.
    const PODS: &str = "ip -batch - <<. && echo && read -r end
link set lo up
route add local 10.244.0.0/16 dev lo
route add local 10.0.0.0/16 dev lo
route add local 172.18.0.0/16 dev lo
route add local 169.254.20.10 dev lo
.
";

    /// Shell script that prepares the network of the controllers and connects it to the network of the process with the
    /// id `$1`.
    const CONTROLLERS: &str = "set -e
ip -batch - <<.
link set lo up
link add pods type veth peer name controllers netns $1
address add 10.255.255.1/30 dev pods
link set pods up
.
nsenter --net=/proc/$1/ns/net ip -batch - <<.
address add 10.255.255.2/30 dev controllers
link set controllers up
.
ip route add default via 10.255.255.2
echo
read -r end
";

    /// The networks of a run. They are removed when no process or socket uses them any more.
    #[derive(Debug)]
    pub(super) struct Namespaces {
        pods: File,
        controllers: File,
    }

    /// Moves this thread into a new network for the controllers.
    pub(super) async fn enter() -> Result<Namespaces, String> {
        // The networks exist only as long as these processes, until this process has opened them.
        let (_pods, id) = prepare(PODS, "").await?;
        let pods = network_of(&id)?;
        let (_controllers, id) = prepare(CONTROLLERS, &id).await?;
        let controllers = network_of(&id)?;
        let networks = Namespaces { pods, controllers };
        move_into(&networks.controllers).map_err(|err| failed(&err.to_string()))?;
        Ok(networks)
    }

    impl Namespaces {
        pub(super) fn within<T>(&self, bind: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
            move_into(&self.pods)?;
            let bound = bind();
            move_into(&self.controllers)?;
            bound
        }
    }

    fn move_into(network: &File) -> io::Result<()> {
        Ok(move_into_thread_name_spaces(
            network.as_fd(),
            ThreadNameSpaceType::NETWORK,
        )?)
    }

    fn network_of(process: &str) -> Result<File, String> {
        File::open(format!("/proc/{process}/ns/net")).map_err(|err| failed(&err.to_string()))
    }

    /// Runs a script in a new network until it has written a line. Returns the script's process and its id.
    async fn prepare(script: &str, argument: &str) -> Result<(Child, String), String> {
        let mut command = Command::new("unshare");
        command
            .args(["--net", "sh", "-c", script, "network", argument])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command.spawn().map_err(|err| failed(&err.to_string()))?;
        let mut line = String::new();
        if let Some(output) = child.stdout.take() {
            // If there is no line, the script has failed.
            let _ = BufReader::new(output).read_line(&mut line).await;
        }
        if let (true, Some(id)) = (line.ends_with('\n'), child.id()) {
            return Ok((child, id.to_string()));
        }
        let output = child.wait_with_output().await;
        let output = output.map_err(|err| failed(&err.to_string()))?;
        Err(failed(String::from_utf8_lossy(&output.stderr).trim_end()))
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
    use std::io;

    /// Uninhabited, because private networks require Linux.
    #[derive(Debug)]
    pub(super) enum Namespaces {}

    impl Namespaces {
        pub(super) fn within<T>(&self, _: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
            match *self {}
        }
    }

    #[expect(clippy::unused_async, reason = "as on Linux")]
    pub(super) async fn enter() -> Result<Namespaces, String> {
        Err("`network: private` needs Linux".to_owned())
    }
}
