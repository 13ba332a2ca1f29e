//! `PodScript`: what becomes of Pods, as a test says it; and the `Kubelet`, which holds the scripts.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::api::object::Object;
use crate::api::selector::LabelSelector;

/// Scripts a kubelet remembers; the oldest goes when another comes.
const SCRIPTS_MAX: usize = 1024;

/// What the containers of a Pod do. The default is a Pod that comes up after a second, is ready at once and then runs
/// for ever; one whose `restartPolicy` is not `Always` ends with success after another second.
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
    pub(super) exit_code: i32,
    pub(super) init_runs_for: Duration,
    pub(super) init_exit_code: i32,
    pub(super) pull_fails: bool,
    pub(super) stops_after: Duration,
    pub(super) logs: String,
}

/// How long containers run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Runs {
    /// For ever where they are always restarted, else for a second.
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
            exit_code: 0,
            init_runs_for: Duration::from_secs(1),
            init_exit_code: 0,
            pull_fails: false,
            stops_after: Duration::ZERO,
            logs: String::new(),
        }
    }
}

impl PodScript {
    /// How long a Pod is `ContainerCreating` once it has a node. Default 1 s.
    pub fn starts_after(mut self, delay: Duration) -> Self {
        self.starts_after = delay;
        self
    }

    /// How long a running container takes to be ready. Default: it is at once.
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

    /// Containers run until the Pod is deleted, whatever its `restartPolicy`.
    pub fn runs_forever(mut self) -> Self {
        self.runs = Runs::Forever;
        self
    }

    /// The exit code of containers that end. Default 0.
    pub fn exits_with(mut self, code: i32) -> Self {
        self.exit_code = code;
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

    /// How long each init container runs. Default 1 s.
    pub fn init_runs_for(mut self, time: Duration) -> Self {
        self.init_runs_for = time;
        self
    }

    /// The exit code of init containers. Default 0.
    pub fn init_exits_with(mut self, code: i32) -> Self {
        self.init_exit_code = code;
        self
    }

    /// How long containers take to stop once the Pod is deleted; after its grace period they are killed and exit with
    /// 137. Default: they stop at once and exit with 0.
    pub fn stops_after(mut self, time: Duration) -> Self {
        self.stops_after = time;
        self
    }

    /// The text that `pods/log` serves. Default: none.
    pub fn logs(mut self, text: impl Into<String>) -> Self {
        self.logs = text.into();
        self
    }
}

/// Which Pods a script is for.
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
/// # async fn main() {
/// let server = ApiServer::start();
/// server.kubelet().script(PodSelector::labelled("app=web").unwrap(), PodScript::default().never_ready());
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

    /// How often scripts changed.
    pub(crate) fn version(&self) -> u64 {
        self.scripts.lock().unwrap_or_else(PoisonError::into_inner).version
    }

    /// The script of a Pod.
    pub(crate) fn script_of(&self, pod: &Object) -> PodScript {
        let scripts = self.scripts.lock().unwrap_or_else(PoisonError::into_inner);
        let rule = scripts.rules.iter().rev().find(|(pods, _)| pods.selects(pod));
        rule.map(|(_, script)| script.clone()).unwrap_or_default()
    }

    /// The text that a container of a Pod has written.
    pub(crate) fn logs_of(&self, pod: &Object) -> String {
        self.script_of(pod).logs
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
