//! `PodScript`: the behaviour of a Pod's containers, scripted by a test; and `Kubelet`, which contains the scripts.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeBounds;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::command::known_run;
use super::probe::{Outage, ProbeKind};
use crate::api::json::Map;
use crate::api::object::Object;
use crate::api::selector::LabelSelector;
use crate::api::streams::{ExecHandler, ExecOutput, Listening, PodStreams, Stdin};
use crate::registry::types::cursor::Cursor;
use crate::registry::types::quantity::Quantity;
use crate::workers::workloads::kwok::{self, Stage, StageError};
use crate::workers::workloads::pods::status;
use crate::workers::workloads::resource::Resource;

/// Maximum number of scripts; adding another one removes the oldest.
const SCRIPTS_MAX: usize = 1024;

/// Script of the containers of a Pod. By default a Pod starts after a second, is ready immediately and then runs
/// forever.
///
/// If `restartPolicy` is `Never` or `OnFailure`, a container ends if its script has an exit code, or if the end of its
/// command is predictable: `true`, `false`, `echo …`, `sleep N`, and a shell's `-c` with a script of these and `exit
/// N`, separated by `;`, `&&` or newlines. A command that would end immediately runs for a second. All other
/// containers run forever, with two exceptions: in a Pod of a Job, they succeed after a second, so that Jobs complete
/// ([`runs_forever`](Self::runs_forever) keeps them active); containers with `stdinOnce`, which `kubectl run -i` sets,
/// also succeed after a second. A container without `command` is not predictable, because the server does not have the
/// image, except for the images `alpine`, `busybox`, `debian` and `ubuntu`, which do not have an entry point: their
/// `args` are the command. Init containers run their command if it is predictable, or succeed after a
/// second.
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
    /// Exit code of the containers. If `None`, the predictable exit code of the container's command, otherwise 0.
    pub(super) exit_code: Option<i32>,
    /// Time for which each init container runs; if `None`, the predictable duration of its command, otherwise a second.
    pub(super) init_runs_for: Option<Duration>,
    /// Exit code of each init container; if `None`, the predictable exit code of its command, otherwise 0.
    pub(super) init_exit_code: Option<i32>,
    /// Exit codes of individual containers.
    pub(super) exit_codes: BTreeMap<String, i32>,
    pub(super) pull_fails: bool,
    pub(super) stops_after: Duration,
    pub(super) logs: String,
    /// Usage of resources and values of other metrics, by name.
    pub(super) usage: BTreeMap<String, String>,
    pub(super) outages: Vec<Outage>,
    pub(super) handlers: Handlers,
}

/// Handlers of connections to a Pod, compared by identity.
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

/// Time for which containers run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Runs {
    /// Containers run forever if the restart policy is `Always`; otherwise as long as their commands run, or for a
    /// second if the script has an exit code.
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
            init_runs_for: None,
            init_exit_code: None,
            exit_codes: BTreeMap::new(),
            pull_fails: false,
            stops_after: Duration::ZERO,
            logs: String::new(),
            usage: BTreeMap::new(),
            outages: Vec::new(),
            handlers: Handlers::default(),
        }
    }
}

impl PodScript {
    /// Sets the time for which a Pod is `ContainerCreating` after it was assigned to a node. Default: 1 s.
    pub fn starts_after(mut self, delay: Duration) -> Self {
        self.starts_after = delay;
        self
    }

    /// Sets the time until a running container is ready. Default: 0.
    pub fn ready_after(mut self, delay: Duration) -> Self {
        self.ready_after = Some(delay);
        self
    }

    /// Runs containers that never become ready.
    pub fn never_ready(mut self) -> Self {
        self.ready_after = None;
        self
    }

    /// Makes a probe fail in a time range after the start of a container: `..` always, `..t` until `t`, `t..` from `t`
    /// on. Probes of containers succeed unless a script makes them fail; containers without this probe ignore the
    /// range. The range applies again after each restart. May be called several times.
    ///
    /// The probe runs every `periodSeconds` after `initialDelaySeconds`. The state of the container changes after
    /// `failureThreshold` failures, and again after `successThreshold` successes. A container with a failed liveness or
    /// startup probe is killed immediately with the exit code 137, and restarted unless `restartPolicy` is `Never`. If
    /// a script is set for a running container, earlier probes are treated as successful.
    ///
    /// ```
    /// use std::time::Duration;
    /// use fake_apiserver::{PodScript, ProbeKind};
    ///
    /// let unready_at_first = PodScript::default().probe_fails(ProbeKind::Readiness, ..Duration::from_secs(30));
    /// let hangs = PodScript::default().probe_fails(ProbeKind::Liveness, Duration::from_secs(120)..);
    /// # let _ = (unready_at_first, hangs);
    /// ```
    pub fn probe_fails(mut self, probe: ProbeKind, when: impl RangeBounds<Duration>) -> Self {
        self.outages.push(Outage::new(probe, &when));
        self
    }

    /// Ends containers after this time. They are restarted if `restartPolicy` allows it: immediately, then after 10 s,
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

    /// Sets the exit code of containers that end. Default: the predictable code of their command, otherwise 0. Unless
    /// `restartPolicy` is `Always`, containers without a predictable duration end after a second.
    pub fn exits_with(mut self, code: i32) -> Self {
        self.exit_code = Some(code);
        self
    }

    /// Makes containers fail immediately and repeatedly.
    pub fn crash_loop(self) -> Self {
        self.runs_for(Duration::ZERO).exits_with(1)
    }

    /// Makes image pulls fail: `ErrImagePull`, then `ImagePullBackOff`.
    pub fn image_pull_error(mut self) -> Self {
        self.pull_fails = true;
        self
    }

    /// Sets the time for which each init container runs. Default: the predictable duration of its command (such as
    /// `sleep 5`), otherwise 1 s.
    pub fn init_runs_for(mut self, time: Duration) -> Self {
        self.init_runs_for = Some(time);
        self
    }

    /// Sets the exit code of init containers. Default: the predictable code of their command, otherwise 0.
    pub fn init_exits_with(mut self, code: i32) -> Self {
        self.init_exit_code = Some(code);
        self
    }

    /// Sets the exit code of a container or init container, which overrides [`exits_with`](Self::exits_with) and
    /// [`init_exits_with`](Self::init_exits_with). As with these, a container without a predictable duration then ends
    /// after a second, unless `restartPolicy` is `Always`.
    pub fn container_exits_with(mut self, container: impl Into<String>, code: i32) -> Self {
        self.exit_codes.insert(container.into(), code);
        self
    }

    /// Sets the time that containers take to stop after the Pod was deleted. At the end of its grace period they are
    /// killed and exit with 137. By default they stop immediately and exit with 0.
    pub fn stops_after(mut self, time: Duration) -> Self {
        self.stops_after = time;
        self
    }

    /// Sets the handler of `exec`: the closure receives the command and the standard input so far, and returns the
    /// output of the command and its exit code. Without a handler, `exec` is refused with 501. `attach` needs no
    /// handler: it writes the [`logs`](Self::logs) and ends.
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

    /// Listens on a port for `port-forward`: the closure receives all input of a connection so far. It returns the
    /// response, after which the connection ends, or `None` to wait for more input. If no port is set, `port-forward`
    /// is refused with 501; otherwise connections to other ports are refused.
    pub fn port(mut self, port: u16, answer: impl Fn(&[u8]) -> Option<Vec<u8>> + Send + Sync + 'static) -> Self {
        self.handlers.ports.insert(port, Arc::new(answer));
        self
    }

    /// Sets the usage of a resource, such as `cpu` or `memory`, by each container, or the value of another metric of
    /// the Pod; [`Worker::HorizontalPodAutoscaler`](crate::Worker::HorizontalPodAutoscaler) reads both. An amount that
    /// is not a quantity such as `250m` or `64Mi` is treated as missing. Default: no metrics.
    pub fn uses(mut self, name: impl Into<String>, amount: impl Into<String>) -> Self {
        self.usage.insert(name.into(), amount.into());
        self
    }

    /// Sets the log that `pods/log` returns. Default: the output of predictable commands such as `echo`.
    pub fn logs(mut self, text: impl Into<String>) -> Self {
        self.logs = text.into();
        self
    }
}

impl PodScript {
    /// Returns the exit code of a container, if the script has one for it.
    pub(super) fn exit_code_of(&self, container: &str) -> Option<i32> {
        self.exit_codes.get(container).copied()
    }

    /// Returns `true` if the script makes this probe fail at any time.
    pub(super) fn fails(&self, probe: ProbeKind) -> bool {
        self.outages.iter().any(|it| it.probe == probe)
    }

    /// Returns the usage of a resource by each container, or the value of a metric.
    pub(crate) fn usage_of(&self, name: &str) -> Option<String> {
        let amount = self.usage.get(name)?;
        Quantity::parse(amount).is_ok().then(|| amount.clone())
    }

    /// Returns the output of a container: from the script, otherwise the output of a predictable command.
    pub(super) fn output_of(&self, container: &Map, has_ended: bool) -> String {
        if !self.logs.is_empty() {
            return self.logs.clone();
        }
        let mut known = known_run(container).unwrap_or_default();
        if !has_ended {
            known.output.truncate(known.at_once);
        }
        known.output
    }
}

/// Selects the Pods to which a script applies.
#[derive(Clone, Debug)]
pub struct PodSelector(Which);

#[derive(Clone, Debug)]
enum Which {
    All,
    Labelled(LabelSelector),
    Named(String, String),
    Uid(String),
}

impl PodSelector {
    /// Selects all Pods.
    pub fn all() -> Self {
        Self(Which::All)
    }

    /// Selects the Pods that match a label selector such as `app=web,tier!=db`, in all namespaces.
    ///
    /// # Errors
    ///
    /// Fails with the API server's message if the string is not a label selector.
    pub fn labelled(selector: &str) -> Result<Self, String> {
        LabelSelector::parse(selector).map(|it| Self(Which::Labelled(it)))
    }

    /// Selects a Pod by namespace and name; it may be created later.
    pub fn named(namespace: &str, name: &str) -> Self {
        Self(Which::Named(namespace.to_owned(), name.to_owned()))
    }

    /// Selects a Pod by uid. A later Pod with the same name is not selected, for example if a StatefulSet replaces the
    /// Pod.
    pub fn uid(uid: &str) -> Self {
        Self(Which::Uid(uid.to_owned()))
    }

    /// Returns `true` if a Pod, given as JSON, is selected.
    ///
    /// ```
    /// use fake_apiserver::PodSelector;
    ///
    /// # fn main() -> Result<(), String> {
    /// let pod = serde_json::json!({"metadata": {"name": "db-0", "namespace": "shop", "labels": {"app": "db"}}});
    /// assert!(PodSelector::labelled("app=db")?.selects(&pod));
    /// assert!(!PodSelector::named("shop", "db-1").selects(&pod));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn selects(&self, pod: &serde_json::Value) -> bool {
        let metadata = &pod["metadata"];
        let text = |field: &str| metadata[field].as_str().unwrap_or_default();
        let label = |key: &str| metadata["labels"][key].as_str();
        self.includes([text("namespace"), text("name"), text("uid")], label)
    }

    fn selects_object(&self, pod: &Object) -> bool {
        let label = |key: &str| pod.labels().find(|(it, _)| *it == key).map(|(_, value)| value);
        self.includes([pod.namespace(), pod.name(), pod.uid()], label)
    }

    fn includes<'a>(&self, [namespace, name, uid]: [&str; 3], label: impl Fn(&str) -> Option<&'a str>) -> bool {
        match &self.0 {
            Which::All => true,
            Which::Labelled(selector) => selector.matches(label),
            Which::Named(of, named) => namespace == of && name == named,
            Which::Uid(wanted) => uid == wanted,
        }
    }
}

/// The kubelet of all nodes, with which a test scripts Pods. Clones refer to the same kubelet. It only has an effect if
/// the server was started with [`Worker::Kubelet`](crate::Worker::Kubelet).
///
/// A script applies as soon as it is set, also to running Pods.
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
    /// The scripts, oldest first, behind a lock because tests and the worker access them.
    scripts: Arc<Mutex<Scripts>>,
    /// Notifies the worker of changes.
    changed: Arc<Notify>,
}

#[derive(Clone, Debug, Default)]
struct Scripts {
    rules: Vec<(PodSelector, PodScript)>,
    stages: Arc<[Stage]>,
    /// Values of metrics that do not belong to a Pod.
    metrics: BTreeMap<String, String>,
    /// The names of Nodes with a stopped kubelet.
    stopped: BTreeSet<String>,
    /// Set if kubelets renew the Leases of their Nodes.
    sends_heartbeats: bool,
    /// Number of changes so far, which the worker compares in order to detect changes.
    version: u64,
}

impl Kubelet {
    /// Creates a kubelet without scripts; `changed` notifies its worker.
    pub(crate) fn new(changed: Arc<Notify>) -> Self {
        Self {
            changed,
            ..Self::default()
        }
    }

    /// Sets the script of the selected Pods. If several scripts match a Pod, the last one applies. A kubelet keeps at
    /// most 1024 scripts; adding another one removes the oldest.
    pub fn script(&self, pods: PodSelector, script: PodScript) {
        self.change(|scripts| {
            if scripts.rules.len() == SCRIPTS_MAX {
                drop(scripts.rules.remove(0));
            }
            scripts.rules.push((pods, script));
        });
    }

    /// Sets the value of a metric of the type `External` or `Object`, such as the length of a queue, for
    /// [`Worker::HorizontalPodAutoscaler`](crate::Worker::HorizontalPodAutoscaler). Metrics of Pods are set in their
    /// [scripts](PodScript::uses).
    pub fn metric(&self, name: impl Into<String>, value: impl Into<String>) {
        let mut scripts = self.scripts.lock().unwrap_or_else(PoisonError::into_inner);
        scripts.metrics.insert(name.into(), value.into());
    }

    /// Returns the value of a metric of the type `External` or `Object`, if it is a quantity.
    pub(crate) fn metric_value(&self, name: &str) -> Option<String> {
        let scripts = self.scripts.lock().unwrap_or_else(PoisonError::into_inner);
        let value = scripts.metrics.get(name)?;
        Quantity::parse(value).is_ok().then(|| value.clone())
    }

    /// Replaces the Stages of [KWOK](https://kwok.sigs.k8s.io/docs/user/stages-configuration/), given as manifests of
    /// `kwok.x-k8s.io/v1alpha1`. Stages of Pods replace the default behaviour of all Pods that have a node and no
    /// script. Stages of Nodes replace the default behaviour of all Nodes. If there are no Stages for Pods or for
    /// Nodes, their default behaviour applies.
    ///
    /// Templates may use Go's actions other than `define`, `template` and `block`, KWOK's functions, and the most
    /// common functions of sprig. Queries may use paths, `.[]`, `|`, `select`, comparisons, `and`, `or`, `not` and
    /// `length` of jq. Random choices and jitter only depend on the object's uid and version, so that a run can be
    /// repeated. `immediateNextStage` is accepted without effect, because every change is observed immediately. If a
    /// template fails, an Event with the reason `StageFailed` is written.
    ///
    /// # Errors
    ///
    /// Fails if a manifest is not a Stage of a Pod or a Node, or uses an unsupported feature: `cel` expressions,
    /// `apply` steps, impersonation, other functions, or other parts of jq. In this case nothing changes.
    pub fn stages(&self, manifests: impl IntoIterator<Item = serde_json::Value>) -> Result<(), StageError> {
        let stages = kwok::read(manifests)?;
        self.change(|scripts| scripts.stages = stages.into());
        Ok(())
    }

    /// Returns the Stages for a resource, if there are any and the object does not have a script.
    pub(crate) fn stages_of(&self, resource: Resource, object: &Object) -> Option<Arc<[Stage]>> {
        let scripts = self.scripts.lock().unwrap_or_else(PoisonError::into_inner);
        let has_stages = scripts.stages.iter().any(|it| it.resource == resource);
        let has_script =
            || resource == Resource::Pod && scripts.rules.iter().any(|(pods, _)| pods.selects_object(object));
        (has_stages && !has_script()).then(|| Arc::clone(&scripts.stages))
    }

    /// Stops the kubelet of a Node, like a crash of the machine: the kubelet no longer changes the status of its Pods.
    /// With [`Worker::NodeLifecycle`](crate::Worker::NodeLifecycle) the Node is lost after 50 s without a heartbeat:
    /// its conditions become `Unknown`, it is tainted as unreachable, and its Pods are evicted when their tolerations
    /// expire, after 300 s by default. Evicted Pods remain Terminating while the kubelet is stopped.
    ///
    /// Without [`heartbeats`](Self::send_heartbeats), the time of this call is treated as the time of the last
    /// heartbeat.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let server = fake_apiserver::ApiServer::builder().workers(fake_apiserver::Worker::ALL).nodes(2).start();
    /// server.kubelet().stop_node("node-1");
    /// # }
    /// ```
    pub fn stop_node(&self, node: impl Into<String>) {
        self.change(|scripts| _ = scripts.stopped.insert(node.into()));
    }

    /// Restarts the stopped kubelet of a Node: the Node becomes ready, and its Pods continue.
    pub fn start_node(&self, node: &str) {
        self.change(|scripts| _ = scripts.stopped.remove(node));
    }

    /// Sets whether kubelets send heartbeats: each kubelet renews the Lease of its Node in `kube-node-lease` every 10
    /// s, and the `lastHeartbeatTime` of the Node's conditions every 5 minutes. Disabled by default, because each
    /// renewal would wake a test with a paused clock. Without heartbeats a Node has no Lease. The Node stays ready
    /// until its kubelet is [stopped](Self::stop_node) or a test sets the condition `Ready` to `Unknown`.
    ///
    /// A test may also renew the Leases: once the Lease of a Node has been renewed, the Node is lost after 50 s without
    /// another renewal.
    pub fn send_heartbeats(&self, sends: bool) {
        self.change(|scripts| scripts.sends_heartbeats = sends);
    }

    /// Returns `true` if the kubelet of a Node is stopped.
    pub(crate) fn is_stopped(&self, node: &str) -> bool {
        let scripts = self.scripts.lock().unwrap_or_else(PoisonError::into_inner);
        scripts.stopped.contains(node)
    }

    /// Returns `true` if kubelets renew the Leases of their Nodes.
    pub(crate) fn sends_heartbeats(&self) -> bool {
        self.scripts
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .sends_heartbeats
    }

    /// Removes all scripts: from now on, Pods follow the Stages or the default behaviour.
    pub fn clear(&self) {
        self.change(|scripts| scripts.rules.clear());
    }

    fn change(&self, change: impl FnOnce(&mut Scripts)) {
        let mut scripts = self.scripts.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut scripts);
        scripts.version += 1;
        drop(scripts);
        self.changed.notify_waiters();
    }

    /// Returns the number of changes of the scripts.
    pub(crate) fn version(&self) -> u64 {
        self.scripts.lock().unwrap_or_else(PoisonError::into_inner).version
    }

    /// Returns the script of a Pod.
    pub(crate) fn script_of(&self, pod: &Object) -> PodScript {
        let scripts = self.scripts.lock().unwrap_or_else(PoisonError::into_inner);
        let rule = scripts.rules.iter().rev().find(|(pods, _)| pods.selects_object(pod));
        rule.map(|(_, script)| script.clone()).unwrap_or_default()
    }

    /// Returns a separate kubelet with the same scripts, for a fork of the server.
    pub(crate) fn fork(&self, changed: Arc<Notify>) -> Self {
        let scripts = self.scripts.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Self {
            scripts: Arc::new(Mutex::new(scripts)),
            changed,
        }
    }
}

impl PodStreams for Kubelet {
    fn logs(&self, pod: &Object, container: &str) -> String {
        let script = self.script_of(pod);
        let named = |list: &'static str| {
            let mut all = Cursor::root(pod).maps(list);
            all.find(|it| Cursor::root(it).text("name") == container)
        };
        let lists = ["spec.containers", "spec.initContainers", "spec.ephemeralContainers"];
        let statuses = [
            "containerStatuses",
            "initContainerStatuses",
            "ephemeralContainerStatuses",
        ];
        let mut statuses = statuses.into_iter().flat_map(|it| Cursor::root(status(pod)).maps(it));
        let runs = statuses.any(|it| {
            let it = Cursor::root(it);
            it.text("name") == container && it.is_set("state.running")
        });
        let found = lists.into_iter().find_map(named);
        found.map_or(String::new(), |it| script.output_of(it, !runs))
    }

    fn exec(&self, pod: &Object) -> Option<ExecHandler> {
        self.script_of(pod).handlers.exec
    }

    fn ports(&self, pod: &Object) -> Listening {
        self.script_of(pod).handlers.ports
    }
}
