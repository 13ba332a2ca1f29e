//! `PodScript`: the course of a Pod's containers as a test scripts it; and the `Kubelet`, which holds the scripts.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::api::object::Object;
use crate::api::selector::LabelSelector;
use crate::api::streams::{ExecHandler, ExecOutput, Listening, PodStreams, Stdin};

/// Scripts a kubelet remembers; the oldest goes when another comes.
const SCRIPTS_MAX: usize = 1024;

/// Script of the containers of a Pod. The default is a Pod that comes up after a second, is ready at once and then runs
/// for ever. Where `restartPolicy` is `Never` or `OnFailure`, a container ends if its script names an exit code, or if
/// its command is known to end: `true`, `false`, `echo …`, `sleep N`, and a shell's `-c` with a script of these and
/// `exit N`, parted by `;`, `&&` or newlines. What ends at once runs for a second. A container without a command runs
/// what its image says, of which nothing is known, and goes on.
///
/// ```
/// use std::time::Duration;
/// use fake_apiserver::PodScript;
///
/// let flaky = PodScript::default().runs_for(Duration::from_secs(3)).exits_with(1).logs("out of luck\n");
/// # let _ = flaky;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a script does nothing until it is given to a kubelet"]
pub struct PodScript {
    pub(super) starts_after: Duration,
    pub(super) ready_after: Option<Duration>,
    pub(super) runs: Runs,
    /// `None` is 0, or what the command of a container is known to end with.
    pub(super) exit_code: Option<i32>,
    pub(super) init_runs_for: Duration,
    pub(super) init_exit_code: i32,
    pub(super) pull_fails: bool,
    pub(super) stops_after: Duration,
    pub(super) logs: String,
    pub(super) handlers: Handlers,
}

/// Handlers of connections to a Pod. Two are equal if they are the same.
#[derive(Clone, Default)]
pub(super) struct Handlers {
    exec: Option<ExecHandler>,
    ports: Listening,
}

impl PartialEq for Handlers {
    fn eq(&self, other: &Self) -> bool {
        let same_exec = match (&self.exec, &other.exec) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        };
        let pairs = self.ports.iter().zip(&other.ports);
        let mut pairs = pairs.map(|(one, other)| one.0 == other.0 && Arc::ptr_eq(one.1, other.1));
        same_exec && self.ports.len() == other.ports.len() && pairs.all(|it| it)
    }
}

impl Eq for Handlers {}

impl std::fmt::Debug for Handlers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handlers")
            .field("exec", &self.exec.is_some())
            .field("ports", &self.ports.keys())
            .finish()
    }
}

/// Runtime of containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Runs {
    /// For ever where they are always restarted, else as their commands tell, or for a second if the script names their
    /// exit code.
    ByRestartPolicy,
    Forever,
    For(Duration),
}

impl Default for PodScript {
    fn default() -> Self {
        Self {
            starts_after: Duration::from_secs(1),
            ready_after: Some(Duration::ZERO),
            runs: Runs::ByRestartPolicy,
            exit_code: None,
            init_runs_for: Duration::from_secs(1),
            init_exit_code: 0,
            pull_fails: false,
            stops_after: Duration::ZERO,
            logs: String::new(),
            handlers: Handlers::default(),
        }
    }
}

impl PodScript {
    /// Sets the time that a Pod is `ContainerCreating` once it has a node. Default 1 s.
    pub fn starts_after(mut self, delay: Duration) -> Self {
        self.starts_after = delay;
        self
    }

    /// Sets the time that a running container takes to be ready. Default: none.
    pub fn ready_after(mut self, delay: Duration) -> Self {
        self.ready_after = Some(delay);
        self
    }

    /// Containers run but are never ready.
    pub fn never_ready(mut self) -> Self {
        self.ready_after = None;
        self
    }

    /// Containers end after this time, and are started again where `restartPolicy` says so: at once, then after 10 s,
    /// 20 s, and so on up to 300 s (`CrashLoopBackOff`).
    pub fn runs_for(mut self, time: Duration) -> Self {
        self.runs = Runs::For(time);
        self
    }

    /// Runs containers until the Pod is deleted, under any `restartPolicy`.
    pub fn runs_forever(mut self) -> Self {
        self.runs = Runs::Forever;
        self
    }

    /// Sets the exit code of containers that end. Default: the known code of their command, else 0. Where
    /// `restartPolicy` is not `Always`, containers without a known runtime end after a second.
    pub fn exits_with(mut self, code: i32) -> Self {
        self.exit_code = Some(code);
        self
    }

    /// Containers fail at once, again and again.
    pub fn crash_loop(self) -> Self {
        self.runs_for(Duration::ZERO).exits_with(1)
    }

    /// No image can be pulled: `ErrImagePull`, then `ImagePullBackOff`.
    pub fn image_pull_error(mut self) -> Self {
        self.pull_fails = true;
        self
    }

    /// Sets the runtime of each init container. Default 1 s.
    pub fn init_runs_for(mut self, time: Duration) -> Self {
        self.init_runs_for = time;
        self
    }

    /// The exit code of init containers. Default 0.
    pub fn init_exits_with(mut self, code: i32) -> Self {
        self.init_exit_code = code;
        self
    }

    /// Sets the time that containers take to stop once the Pod is deleted; after its grace period they are killed and
    /// exit with 137. Default: they stop at once and exit with 0.
    pub fn stops_after(mut self, time: Duration) -> Self {
        self.stops_after = time;
        self
    }

    /// Answers `exec`: the closure gets the command and what has come over standard input, and says what the command
    /// has written and how it ended. Without it `exec` and `attach` are refused with 501; with it `attach` shows the
    /// [`logs`](Self::logs).
    ///
    /// ```
    /// use fake_apiserver::{ExecOutput, PodScript};
    ///
    /// let database = PodScript::default().on_exec(|command, stdin| match command {
    ///     [program] if program == "pg_isready" => ExecOutput::stdout("accepting connections\n"),
    ///     [program, ..] if program == "psql" && !stdin.has_ended => ExecOutput::awaits_stdin(),
    ///     [program, ..] if program == "psql" => ExecOutput::stdout(format!("{} bytes of SQL\n", stdin.bytes.len())),
    ///     _ => ExecOutput::default().with_stderr("not found\n").exits_with(127),
    /// });
    /// # let _ = database;
    /// ```
    pub fn on_exec(mut self, answer: impl Fn(&[String], Stdin<'_>) -> ExecOutput + Send + Sync + 'static) -> Self {
        self.handlers.exec = Some(Arc::new(answer));
        self
    }

    /// Listens on a port for `port-forward`: the closure gets all input of a connection so far, and returns the answer,
    /// after which the connection ends, or `None` to wait for more. Without any port `port-forward` is refused with
    /// 501; connections to any other port are refused.
    pub fn port(mut self, port: u16, answer: impl Fn(&[u8]) -> Option<Vec<u8>> + Send + Sync + 'static) -> Self {
        self.handlers.ports.insert(port, Arc::new(answer));
        self
    }

    /// The text that `pods/log` serves. Default: none.
    pub fn logs(mut self, text: impl Into<String>) -> Self {
        self.logs = text.into();
        self
    }
}

/// Selects the Pods of a script.
#[derive(Clone, Debug)]
pub struct PodSelector(Which);

#[derive(Clone, Debug)]
enum Which {
    All,
    Labelled(LabelSelector),
    Named(String, String),
}

impl PodSelector {
    /// Every Pod.
    pub fn all() -> Self {
        Self(Which::All)
    }

    /// The Pods that a label selector such as `app=web,tier!=db` selects, in all namespaces.
    ///
    /// # Errors
    ///
    /// If it is no label selector, with the API server's message.
    pub fn labelled(selector: &str) -> Result<Self, String> {
        LabelSelector::parse(selector).map(|it| Self(Which::Labelled(it)))
    }

    /// One Pod by namespace and name, whether there is one yet or not.
    pub fn named(namespace: &str, name: &str) -> Self {
        Self(Which::Named(namespace.to_owned(), name.to_owned()))
    }

    fn selects(&self, pod: &Object) -> bool {
        match &self.0 {
            Which::All => true,
            Which::Labelled(selector) => {
                let labels: Vec<_> = pod.labels().collect();
                selector.matches(|key| labels.iter().find(|(it, _)| *it == key).map(|(_, value)| *value))
            }
            Which::Named(namespace, name) => pod.namespace() == namespace && pod.name() == name,
        }
    }
}

/// The kubelet of all nodes, by which a test says what becomes of Pods. Copies are the same kubelet. It acts only where
/// the server was started with [`Worker::Kubelet`](crate::Worker::Kubelet).
///
/// A script counts from the moment it is given, for Pods that run already, too.
///
/// ```
/// use fake_apiserver::{ApiServer, PodScript, PodSelector};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let server = ApiServer::start();
/// server.kubelet().script(PodSelector::labelled("app=web")?, PodScript::default().never_ready());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Kubelet {
    /// The scripts, oldest first; a lock because tests and the worker look at them.
    scripts: Arc<Mutex<Scripts>>,
    /// Wakes the worker.
    changed: Arc<Notify>,
}

#[derive(Clone, Debug, Default)]
struct Scripts {
    rules: Vec<(PodSelector, PodScript)>,
    /// Counts the changes, so that the worker notices them.
    version: u64,
}

impl Kubelet {
    /// A kubelet without scripts, whose worker sleeps by `changed`.
    pub(crate) fn new(changed: Arc<Notify>) -> Self {
        Self {
            changed,
            ..Self::default()
        }
    }

    /// Says what becomes of some Pods. Of several scripts for one Pod the last given counts. At most 1024 are
    /// remembered; the oldest goes when another comes.
    pub fn script(&self, pods: PodSelector, script: PodScript) {
        self.change(|rules| {
            if rules.len() == SCRIPTS_MAX {
                drop(rules.remove(0));
            }
            rules.push((pods, script));
        });
    }

    /// Forgets all scripts: Pods do what is default from here on.
    pub fn clear(&self) {
        self.change(Vec::clear);
    }

    fn change(&self, change: impl FnOnce(&mut Vec<(PodSelector, PodScript)>)) {
        let mut scripts = self.scripts.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut scripts.rules);
        scripts.version += 1;
        drop(scripts);
        self.changed.notify_waiters();
    }

    /// Returns the number of changes of the scripts.
    pub(crate) fn version(&self) -> u64 {
        self.scripts.lock().unwrap_or_else(PoisonError::into_inner).version
    }

    /// The script of a Pod.
    pub(crate) fn script_of(&self, pod: &Object) -> PodScript {
        let scripts = self.scripts.lock().unwrap_or_else(PoisonError::into_inner);
        let rule = scripts.rules.iter().rev().find(|(pods, _)| pods.selects(pod));
        rule.map(|(_, script)| script.clone()).unwrap_or_default()
    }

    /// Another kubelet with the same scripts, for a fork of the server.
    pub(crate) fn fork(&self, changed: Arc<Notify>) -> Self {
        let scripts = self.scripts.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Self {
            scripts: Arc::new(Mutex::new(scripts)),
            changed,
        }
    }
}

impl PodStreams for Kubelet {
    fn logs(&self, pod: &Object) -> String {
        self.script_of(pod).logs
    }

    fn exec(&self, pod: &Object) -> Option<ExecHandler> {
        self.script_of(pod).handlers.exec
    }

    fn ports(&self, pod: &Object) -> Listening {
        self.script_of(pod).handlers.ports
    }
}
