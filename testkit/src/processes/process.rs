//! `Process`: a controller as an operating-system process that is started, killed, stopped and restarted.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsString;

use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use fake_apiserver::ApiServer;
use rustix::process::Signal;
use tokio::process::Child;
use tokio::time::{Instant, sleep, timeout};

use super::address::Address;
use super::leases;
use super::output::{is_panic, read_output};
use super::ready::is_answering;
use super::reaper::{Reaper, guarded, kill};
use super::scenario::{Controller, Ready};
use super::stop::Stop;
use super::usage::{Usage, busy};
use crate::hooks::{Hooks, Restart};
use crate::lock::lock;

/// Maximum time for reading the rest of the output of a process that has exited.
const REST_BOUND: Duration = Duration::from_secs(3);

/// Shortest and longest pause before a process that exited by itself is restarted.
const BACK_OFF: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(16)];

/// Interval at which the readiness of a new process is checked.
const LOOK_FOR_READY: Duration = Duration::from_millis(50);

/// Maximum number of output lines in the message about the exit of a process.
const LAST_LINES: usize = 12;

/// Maximum number of lines of a panic that are shown.
const PANIC_LINES: usize = 4;

/// Path at which programs look for their in-cluster configuration.
const IN_CLUSTER: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Shell script that mounts files in a separate mount namespace, and executes the command that follows: the directory
/// `$1` at `$2` unless it is empty, and the file `$3` as the configuration of the resolver unless it is empty.
const MOUNT: &str = r#"set -e
files=$1 place=$2 names=$3
shift 3
if [ -n "$files" ]; then
    if [ ! -d "$place" ] && ! mkdir -p "$place" 2>/dev/null; then
        mount -t tmpfs tmpfs "$(readlink -f /var/run)"
        mkdir -p "$place"
    fi
    mount --bind "$files" "$place"
fi
[ -z "$names" ] || mount --bind "$names" "$(readlink -f /etc/resolv.conf)"
exec "$@""#;

/// A controller in a run.
#[derive(Clone, Debug)]
pub(crate) struct Process(Arc<Shared>);

/// Configuration of a controller that all of its starts share.
#[derive(Debug)]
pub(crate) struct Launch {
    /// The name of this replica.
    pub(crate) name: String,
    pub(crate) controller: Controller,
    /// Program and arguments with all placeholders filled in.
    pub(crate) command: Vec<String>,
    /// Environment variables with all placeholders filled in.
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) ready: Option<Ready>,
    pub(crate) cwd: PathBuf,
    /// Directory of the controller's files.
    pub(crate) files: PathBuf,
    /// The configuration of the resolver in a private network.
    pub(crate) resolver: Option<PathBuf>,
    pub(crate) address: Address,
    pub(crate) reaper: Reaper,
    pub(crate) usage: Arc<Usage>,
    /// Set if the locks of a killed leader are released when it starts again, so that no leader has to wait.
    pub(crate) releases: bool,
}

#[derive(Debug)]
struct Shared {
    launch: Launch,
    server: ApiServer,
    hooks: Weak<dyn Hooks>,
    /// State of the process.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Number of starts and ends so far, which identifies the current run of the process. Tasks of earlier runs do
    /// nothing.
    life: u64,
    group: Option<i32>,
    is_ready: bool,
    /// Reason why the process never becomes ready.
    failed: Option<String>,
    /// Set at the end of the run, after which nothing waits until the process is ready.
    is_over: bool,
    /// The last process of each life. Processes of earlier lives are removed when their exit has been handled.
    started: BTreeMap<u64, Started>,
}

/// A process that was started.
#[derive(Debug)]
struct Started {
    group: i32,
    /// Set if the process has received the stop signal of its controller.
    is_stopping: bool,
    /// The last lines of the output.
    last: VecDeque<String>,
    /// The first lines of a panic, if there was one. The stop signal clears them.
    panic: Vec<String>,
}

impl Process {
    pub(crate) fn new(launch: Launch, server: &ApiServer, hooks: &Arc<dyn Hooks>) -> Self {
        Self(Arc::new(Shared {
            launch,
            server: server.clone(),
            hooks: Arc::downgrade(hooks),
            state: Mutex::default(),
        }))
    }

    pub(crate) fn name(&self) -> &str {
        &self.0.launch.name
    }

    /// Kills the process at the end of its run.
    pub(crate) fn end(&self) {
        lock(&self.0.state).is_over = true;
        self.0.end(Signal::KILL);
    }

    /// Waits until the process is ready. Fails with a message for the report.
    pub(crate) async fn wait_until_ready(&self) -> Result<(), String> {
        let began = Instant::now();
        let bound = self.0.launch.controller.startup.0;
        loop {
            {
                let state = lock(&self.0.state);
                if state.is_ready {
                    return Ok(());
                }
                if let Some(failed) = &state.failed {
                    return Err(failed.clone());
                }
                if began.elapsed() >= bound {
                    return Err(format!(
                        "{} was not ready within {bound:?}; increase its `startup` if it starts slowly; {}; its last \
                         output:{}",
                        self.0.launch.name,
                        self.0.launch.unmet(),
                        last_lines(state.started.get(&state.life))
                    ));
                }
            }
            sleep(LOOK_FOR_READY).await;
        }
    }

    /// Describes the process by its id and kubeconfig, for attaching a debugger.
    pub(crate) fn described(&self) -> String {
        let group = lock(&self.0.state).group;
        let group = group.map_or("not running".to_owned(), |it| format!("process {it}"));
        let kubeconfig = self.0.launch.files.join("kubeconfig");
        format!("{}: {group}, KUBECONFIG={}", self.0.launch.name, kubeconfig.display())
    }
}

impl Launch {
    /// Describes the condition under which the process counts as ready, for a process that does not meet it.
    fn unmet(&self) -> String {
        match &self.ready {
            Some(Ready { url: Some(url), .. }) => format!("{url} has not answered with a status below 400"),
            Some(Ready { log: Some(text), .. }) => format!("no line of its output has contained {text:?}"),
            None | Some(Ready { url: None, log: None }) if self.controller.in_cluster => {
                "it has not listed or watched a resource at the server of its in-cluster configuration".to_owned()
            }
            None | Some(Ready { url: None, log: None }) => {
                "it has not listed or watched a resource at the server of its KUBECONFIG (if it only reads an \
                 in-cluster configuration, set `inCluster: true`)"
                    .to_owned()
            }
        }
    }
}

impl Restart for Process {
    fn crash(&self) {
        self.0.end(Signal::KILL);
    }

    fn restart(&self) {
        let life = self.0.next_life();
        let shared = Arc::clone(&self.0);
        // The task ends with the runtime of the run.
        tokio::spawn(async move {
            shared.stop().await;
            shared.live(life).await;
        });
    }

    fn freeze(&self) {
        if let Some(group) = lock(&self.0.state).group {
            kill(group, Signal::STOP);
        }
    }

    fn thaw(&self) {
        if let Some(group) = lock(&self.0.state).group {
            kill(group, Signal::CONT);
        }
    }

    fn is_ready(&self) -> bool {
        let state = lock(&self.0.state);
        state.is_ready || state.is_over || state.failed.is_some()
    }

    fn busy(&self) -> (Duration, bool) {
        let group = lock(&self.0.state).group;
        group.map_or((Duration::ZERO, false), |it| busy(it.unsigned_abs()))
    }
}

impl Shared {
    /// Begins a new run of the process and ends the tasks of the previous one. The previous process may still exist.
    fn next_life(&self) -> u64 {
        let mut state = lock(&self.state);
        state.life += 1;
        state.is_ready = false;
        state.life
    }

    /// Ends the current run of the process by a signal. Returns the process group.
    fn end(&self, signal: Signal) -> Option<i32> {
        let group = {
            let mut state = lock(&self.state);
            state.life += 1;
            state.is_ready = false;
            state.group.take()
        }?;
        self.launch.usage.add(group.unsigned_abs());
        kill(group, signal);
        self.launch.address.ended();
        if signal == Signal::KILL {
            self.launch.reaper.remove(group);
        }
        Some(group)
    }

    /// Stops a running process by the signal of its controller, and by SIGKILL if it does not end in time.
    async fn stop(&self) {
        // Until the process has exited, it may still be killed by another fault.
        let Some(group) = lock(&self.state).begin_stop() else {
            return;
        };
        self.launch.usage.add(group.unsigned_abs());
        let Stop { signal, grace } = self.launch.controller.stop;
        kill(group, signal.signal());
        let began = Instant::now();
        while began.elapsed() < grace.0 && exists(group) {
            sleep(LOOK_FOR_READY).await;
        }
        if exists(group)
            && let Some(hooks) = self.hooks.upgrade()
        {
            let (name, signal) = (&self.launch.name, signal.name());
            hooks.controller_was_killed(
                name,
                format!(
                    "did not exit within {:?} after {signal} and was killed by SIGKILL",
                    grace.0
                ),
            );
        }
        kill(group, Signal::KILL);
        self.launch.address.ended();
        self.launch.reaper.remove(group);
        let mut state = lock(&self.state);
        if state.group == Some(group) {
            state.group = None;
        }
    }

    fn is_current(&self, life: u64) -> bool {
        lock(&self.state).life == life
    }

    /// Starts the process, and restarts it when it exits by itself.
    async fn live(self: Arc<Self>, life: u64) {
        let [mut back_off, longest] = BACK_OFF;
        loop {
            if self.launch.releases {
                let is_single = self.launch.controller.replicas == 1;
                leases::release(&self.server, &self.launch.address.locks(), is_single).await;
            }
            let Some(hooks) = self.hooks.upgrade() else { return };
            if !self.is_current(life) {
                lock(&self.state).started.remove(&life);
                return;
            }
            self.launch.address.begin(Arc::clone(&hooks).service(&self.launch.name));
            let mut child = match self.start() {
                Ok(child) => child,
                Err(why) => {
                    lock(&self.state).failed = Some(why.clone());
                    hooks.controller_broke(&self.launch.name, why);
                    return;
                }
            };
            drop(hooks);
            let group = self.launch.reaper.begin(&mut child).await;
            {
                let mut state = lock(&self.state);
                if state.life != life {
                    state.started.remove(&life);
                    kill(group, Signal::KILL);
                    self.launch.reaper.remove(group);
                    return;
                }
                state.group = Some(group);
                state.started.insert(life, Started::new(group));
            }
            let shared = Arc::clone(&self);
            let output = read_output(&mut child, move |line| shared.wrote(line, life));
            let ready = tokio::spawn(Arc::clone(&self).become_ready(life));
            let status = child.wait().await;
            ready.abort();
            // The remaining output explains the exit. A child of the process may keep the output open.
            let _ = timeout(REST_BOUND, output).await;
            // Also kills remaining children of the process.
            kill(group, Signal::KILL);
            self.launch.reaper.remove(group);
            if !self.is_current(life) {
                self.stopped(life, status.ok());
                return;
            }
            let has_crashed = status.as_ref().is_ok_and(is_crash);
            let status = status.map_or_else(|err| err.to_string(), described);
            if !self.ended(life, &status, has_crashed, back_off) {
                return;
            }
            sleep(back_off).await;
            back_off = (back_off * 2).min(longest);
        }
    }

    /// Reports that the process ended by itself. Returns `true` if it must be restarted. A panic, or a signal for an
    /// error of the program, fails the run.
    fn ended(&self, life: u64, status: &str, has_crashed: bool, back_off: Duration) -> bool {
        let (panic, last) = {
            let mut state = lock(&self.state);
            state.group = None;
            state.is_ready = false;
            let panic = state.started.get_mut(&life).map(|it| std::mem::take(&mut it.panic));
            (panic.unwrap_or_default(), last_lines(state.started.get(&life)))
        };
        self.launch.address.ended();
        let Some(hooks) = self.hooks.upgrade() else {
            return false;
        };
        let name = &self.launch.name;
        let restarts = self.launch.controller.restarts;
        if !panic.is_empty() || has_crashed || !restarts {
            hooks.controller_broke(name, broken(&panic, status, &last));
            lock(&self.state).failed = Some(format!("{name} {status}; its last output:{last}"));
        }
        hooks.controller_ended(name, status, restarts.then_some(back_off));
        restarts
    }

    /// Handles the exit of a process of an earlier life. If the process was being stopped, a panic after the stop
    /// signal and a signal for an error of the program fail the run. `status` is `None` if it cannot be read.
    ///
    /// Python programs also log the first line of a panic for errors that they handle, so a panic only counts if the
    /// exit code is the code of an error.
    fn stopped(&self, life: u64, status: Option<ExitStatus>) {
        let started = lock(&self.state).started.remove(&life);
        let Some(started) = started.filter(|it| it.is_stopping) else {
            return;
        };
        let Some(status) = status else { return };
        let has_panicked = !started.panic.is_empty() && has_failed(status, self.launch.controller.stop);
        if (has_panicked || is_crash(&status))
            && let Some(hooks) = self.hooks.upgrade()
        {
            let how = format!("{} when it was stopped", described(status));
            let panic: &[String] = if has_panicked { &started.panic } else { &[] };
            let what = broken(panic, &how, &last_lines(Some(&started)));
            hooks.controller_broke(&self.launch.name, what);
        }
    }

    /// Starts a shell that waits for a line on its standard input and then executes the program. Fails with a message
    /// for the report.
    fn start(&self) -> Result<Child, String> {
        let launch = &self.launch;
        let program = self.program()?;
        let mut command = guarded();
        if launch.controller.in_cluster || launch.resolver.is_some() {
            command.arg("unshare");
            if !rustix::process::geteuid().is_root() {
                command.args(["--user", "--map-root-user"]);
            }
            command.args(["--mount", "sh", "-c", MOUNT, "mount"]);
            let files = launch.controller.in_cluster.then_some(launch.files.as_os_str());
            let resolver = launch.resolver.as_ref().map(|it| it.as_os_str());
            command.arg(files.unwrap_or_default()).arg(IN_CLUSTER);
            command.arg(resolver.unwrap_or_default());
        }
        command
            .arg(&program)
            .args(launch.command.iter().skip(1))
            .current_dir(&launch.cwd)
            .envs(&launch.env);
        let started = command.spawn();
        started.map_err(|err| format!("cannot be started: {}: {err}", program.display()))
    }

    /// Finds the program. As in a shell, a path with a slash is relative to the working directory, and a name is looked
    /// up in `PATH`.
    fn program(&self) -> Result<PathBuf, String> {
        let launch = &self.launch;
        let name = launch.command.first().map(String::as_str).unwrap_or_default();
        let path = launch.env.get("PATH").map(OsString::from);
        let path = path.or_else(|| std::env::var_os("PATH")).unwrap_or_default();
        let is_path = name.contains('/');
        let mut places: Vec<PathBuf> = match is_path {
            true => vec![launch.cwd.join(name)],
            false => std::env::split_paths(&path).map(|it| it.join(name)).collect(),
        };
        places.retain(|it| it.is_file());
        if let Some(program) = places.iter().find(|it| is_executable(it)) {
            return Ok(program.clone());
        }
        Err(match (places.first(), is_path) {
            (Some(file), _) => format!("cannot be started: {} is not executable", file.display()),
            (None, true) => format!("cannot be started: {name} does not exist in {}", launch.cwd.display()),
            (None, false) => format!(
                "cannot be started: {name} does not exist in PATH; a program in {} is ./{name}",
                launch.cwd.display()
            ),
        })
    }

    fn wrote(&self, line: String, life: u64) {
        if let Some(hooks) = self.hooks.upgrade() {
            hooks.controller_wrote(&self.launch.name, line.clone());
        }
        let mut state = lock(&self.state);
        if state.life == life {
            let text = self.launch.ready.as_ref().and_then(|it| it.log.as_ref());
            state.is_ready |= text.is_some_and(|it| line.contains(it));
        }
        // A process that is being stopped belongs to an earlier life.
        if let Some(started) = state.started.get_mut(&life) {
            started.wrote(line);
        }
    }

    /// Records whether the process is ready. Returns `true` if it is ready or if its run is over.
    fn is_done(&self, life: u64, is_ready: bool) -> bool {
        let mut state = lock(&self.state);
        let is_over = state.life != life;
        state.is_ready |= is_ready && !is_over;
        is_ready || is_over
    }

    /// Waits until the process is ready.
    async fn become_ready(self: Arc<Self>, life: u64) {
        loop {
            let is_ready = match &self.launch.ready {
                None => self.launch.address.has_started(),
                Some(Ready { url: Some(url), .. }) => is_answering(url).await,
                // The task that reads the output checks this condition.
                Some(Ready { url: None, .. }) => return,
            };
            if self.is_done(life, is_ready) {
                return;
            }
            sleep(LOOK_FOR_READY).await;
        }
    }
}

impl State {
    /// Records that the current process is being stopped. Returns its process group.
    fn begin_stop(&mut self) -> Option<i32> {
        let group = self.group?;
        for started in self.started.values_mut() {
            if started.group == group && !started.is_stopping {
                started.is_stopping = true;
                started.panic.clear();
            }
        }
        Some(group)
    }
}

impl Started {
    fn new(group: i32) -> Self {
        Self {
            group,
            is_stopping: false,
            last: VecDeque::new(),
            panic: Vec::new(),
        }
    }

    /// Records a line of the output.
    fn wrote(&mut self, line: String) {
        let is_first = self.panic.is_empty() && is_panic(&line);
        if is_first || (1..PANIC_LINES).contains(&self.panic.len()) {
            self.panic.push(line.clone());
        }
        if self.last.len() >= LAST_LINES {
            self.last.pop_front();
        }
        self.last.push_back(line);
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.end(Signal::KILL);
    }
}

/// Returns `true` if someone may execute a file.
fn is_executable(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.metadata().is_ok_and(|it| it.permissions().mode() & 0o111 != 0)
}

/// Returns `true` if a process group still contains a process.
fn exists(group: i32) -> bool {
    let group = rustix::process::Pid::from_raw(group);
    group.is_some_and(|it| rustix::process::test_kill_process_group(it).is_ok())
}

/// Returns `true` if a process was killed by a signal for an error of the program, such as a segmentation fault.
/// SIGKILL and SIGTERM may have been sent by anyone, for example because the machine lacks memory.
fn is_crash(status: &ExitStatus) -> bool {
    use std::os::unix::process::ExitStatusExt;
    let crashes = [
        Signal::SEGV,
        Signal::ABORT,
        Signal::BUS,
        Signal::ILL,
        Signal::FPE,
        Signal::SYS,
    ];
    let signal = status.signal().and_then(Signal::from_named_raw);
    signal.is_some_and(|it| crashes.contains(&it))
}

/// Returns `true` if a process exited with the code of an error. A process that was ended by its stop signal may exit
/// with 128 and the number of this signal, as in a shell.
fn has_failed(status: ExitStatus, stop: Stop) -> bool {
    let of_signal = 128 + stop.signal.signal().as_raw();
    status.code().is_some_and(|it| it != 0 && it != of_signal)
}

/// Describes the exit of a process that fails the run. `panic` contains the first lines of a panic, if there was one.
fn broken(panic: &[String], status: &str, last: &str) -> String {
    if panic.is_empty() {
        return format!("{status}; its last output:{last}");
    }
    let panicked: String = panic.iter().map(|it| format!("\n    {it}")).collect();
    format!("panicked and {status}:{panicked}\n  its last output:{last}")
}

/// Describes the exit: `exited with code 1`, or `was killed by signal 9`.
fn described(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with code {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}

fn last_lines(started: Option<&Started>) -> String {
    match started.filter(|it| !it.last.is_empty()) {
        None => " none".to_owned(),
        Some(started) => started.last.iter().map(|it| format!("\n    {it}")).collect(),
    }
}
