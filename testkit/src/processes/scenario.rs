//! `Scenario`: the file that describes controllers, their cluster and the steps of their users.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use serde_saphyr::Spanned;

use super::check::Check;
use super::network::Network;
use super::step::Step;
use super::stop::Stop;
use super::stub::Stub;
use super::time::Time;

/// Controllers in separate processes, their cluster, and the steps of its users.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Scenario {
    /// The controllers under test.
    pub(crate) controllers: Vec<Controller>,
    /// Initial state of the cluster in every run.
    #[serde(default)]
    pub(crate) cluster: Cluster,
    /// Actions of users, in order. The first one begins when all controllers are ready and have settled.
    #[schemars(with = "Vec<Step>")]
    pub(crate) steps: Vec<Spanned<Step>>,
    /// Conditions on the objects of the cluster, in addition to the oracles.
    #[serde(default)]
    #[schemars(with = "Vec<Check>")]
    pub(crate) checks: Vec<Spanned<Check>>,
    /// Fields that are not compared, such as `status.conditions.*.message`; `*` matches any list index.
    #[serde(default)]
    pub(crate) ignore: Vec<String>,
    /// Names of disabled oracles, such as `end state` or `creates and deletes`.
    #[serde(default)]
    pub(crate) without: Vec<String>,
    /// Kinds of faults: crashes, errors, stale_watches, delays, pauses, clock_skew, variants, overlaps, processes.
    /// Default: all of them.
    #[serde(default)]
    pub(crate) faults: Vec<String>,
    /// Time after the last fault and the last step within which the end state must be correct. Default 20s. An end
    /// state that becomes correct within 1.5 times this time counts as slow, not as wrong.
    #[serde(default = "default_within")]
    pub(crate) within: Time,
    /// Network of the processes: `host` (default) or `private`.
    #[serde(default)]
    pub(crate) network: Network,
    /// Bounds of the search.
    #[serde(default)]
    pub(crate) budget: Budget,
    /// Number of concurrent runs. Default: as many as the processors can run, measured in the runs so far; at most 32.
    pub(crate) parallel: Option<usize>,
    /// Time without activity after which the references count as settled. Default 3s. Raise it for a controller that
    /// waits longer for a timer. Other runs use a time derived from the longest pause of the references instead.
    #[serde(default = "default_quiet")]
    pub(crate) quiet: Time,
    /// Number of runs without faults that are compared to find fields that always differ, at least 2. Default 3.
    #[serde(default = "default_references")]
    pub(crate) references: usize,
    /// The base directory of relative paths.
    #[serde(skip)]
    pub(crate) directory: PathBuf,
    /// Name of the file in messages.
    #[serde(skip)]
    pub(crate) file: String,
}

/// A controller that runs as a process.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Controller {
    /// The name in reports and replay strings.
    pub(crate) name: String,
    /// The program and its arguments. `${KUBECONFIG}`, `${SERVER}`, `${TOKEN}`, `${CA}`, `${NAME}`, `${SCENARIO}` (the
    /// directory of this file) and `${PORT}` are placeholders; so are names of further free ports, such as
    /// `${PORT_METRICS}`, and environment variables, such as `${env.HOME}`. A process that serves webhooks has
    /// `${PORT_WEBHOOK}` in its command, environment or files; `${CERT_DIR}` is a directory with `tls.crt`, `tls.key`
    /// and `ca.crt` for them.
    pub(crate) command: Vec<String>,
    /// Environment variables, in addition to the environment of `drydock`. May contain the same placeholders as
    /// `command`. Without `inCluster`, `KUBECONFIG` is set unless it is given here.
    #[serde(default)]
    pub(crate) env: BTreeMap<String, String>,
    /// Files and directories, such as a configuration that contains ports or paths. They are copied for each process
    /// into the directory `${FILES}`, under their own names. In text files, the same placeholders as in `command` are
    /// filled in; unknown placeholders are kept. Links to directories, pipes, sockets and devices are refused.
    #[serde(default)]
    pub(crate) files: Vec<PathBuf>,
    /// The contents of the text files in `files`.
    #[serde(skip)]
    pub(crate) texts: Vec<String>,
    /// Working directory. Default: the directory of the scenario.
    pub(crate) cwd: Option<PathBuf>,
    /// Number of processes. If there are several, their names are `NAME-0`, `NAME-1` and so on, and `NAME-0` starts
    /// first. Default 1.
    #[serde(default = "default_replicas")]
    pub(crate) replicas: usize,
    /// Condition under which the controller counts as started. Default: it has listed or watched a resource, or it has
    /// read a lock of leader election that another process of the scenario holds.
    pub(crate) ready: Option<Ready>,
    /// Time within which the controller must be ready. Default 60s.
    #[serde(default = "default_startup")]
    pub(crate) startup: Time,
    /// Sets `KUBERNETES_SERVICE_HOST` and `KUBERNETES_SERVICE_PORT` and mounts token, CA and namespace at their usual
    /// paths, for programs that only read an in-cluster configuration. Linux only; requires `unshare` and `mount`.
    #[serde(default)]
    pub(crate) in_cluster: bool,
    /// Namespace in the in-cluster configuration and in the kubeconfig. Default `default`.
    #[serde(default = "default_namespace")]
    pub(crate) namespace: String,
    /// User of the controller's token, such as `system:serviceaccount:shop:operator`. Only with `cluster.rbac`.
    /// Default: an administrator.
    pub(crate) user: Option<String>,
    /// Services with webhooks that the controller serves, as `NAMESPACE/NAME`. Default: all Services in webhook
    /// configurations. Required if several controllers serve webhooks.
    #[serde(default)]
    pub(crate) webhooks: Vec<String>,
    /// Port at which the controller serves webhooks, instead of `${PORT_WEBHOOK}`, if the port is not configurable.
    /// Only with `network: private`, because runs are concurrent.
    pub(crate) webhook_port: Option<u16>,
    /// Restarts the controller when it exits by itself, after 1s, then 2s, up to 16s. Default `true`. If `false`, an
    /// exit fails the run.
    #[serde(default = "default_true")]
    pub(crate) restarts: bool,
    /// Signal and time limit with which the faults `restart` and `stop` stop the process. Default: SIGTERM, then
    /// SIGKILL after 3s.
    #[serde(default)]
    pub(crate) stop: Stop,
    /// Releases the Leases of a killed process when it starts again, as if they had expired, so that no process has to
    /// wait for them. Default `true`.
    pub(crate) release_leases: Option<bool>,
    /// Serves HTTP instead of HTTPS to the controller. Default `false`.
    #[serde(default)]
    pub(crate) insecure: bool,
}

/// Condition under which a process counts as started.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Ready {
    /// An `http://` URL. The process counts as started when the response has a status below 400.
    pub(crate) url: Option<String>,
    /// A string that must occur in a line of the process's output.
    pub(crate) log: Option<String>,
}

/// Initial state of the cluster in every run.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Cluster {
    /// Version of Kubernetes, such as `1.33`. Default: the server's default version.
    pub(crate) version: Option<String>,
    /// Files and directories with CustomResourceDefinitions.
    #[serde(default)]
    pub(crate) crds: Vec<PathBuf>,
    /// Files and directories with other objects that exist before the controllers start. Objects with a uid, as in
    /// dumps, are stored unchanged.
    #[serde(default)]
    pub(crate) manifests: Vec<PathBuf>,
    /// Controllers of the cluster itself to run, such as `gc` and `kubelet`. Default: all.
    pub(crate) workers: Option<Vec<String>>,
    /// API versions that Kubernetes no longer serves, for old controllers: `policy/v1beta1`, `batch/v1beta1` and
    /// `autoscaling/v2beta2`.
    #[serde(default)]
    pub(crate) retired_apis: Vec<String>,
    /// Number of nodes. Default 1.
    #[serde(default = "default_nodes")]
    pub(crate) nodes: usize,
    /// Name of the default StorageClass, which permits expansion; empty for no class. Default `standard`.
    #[serde(default = "default_storage_class")]
    pub(crate) storage_class: String,
    /// Enforces RBAC; the Roles are among the `manifests`. Default `false`.
    #[serde(default)]
    pub(crate) rbac: bool,
    /// Behaviour of simulated Pods, in the format of the control API: `{pods: {labels: app=db}, script: {exec:
    /// [{command: [pg_isready], stdout: "accepting connections"}]}}`. Without a script, containers start and keep
    /// running. If several scripts match a Pod, the last one applies.
    #[serde(default)]
    pub(crate) pods: Vec<Value>,
    /// Programs in simulated Pods that controllers connect to. Only with `network: private`.
    #[serde(default)]
    pub(crate) stubs: Vec<Stub>,
}

impl Default for Cluster {
    fn default() -> Self {
        Self {
            version: None,
            crds: Vec::new(),
            manifests: Vec::new(),
            workers: None,
            retired_apis: Vec::new(),
            nodes: default_nodes(),
            storage_class: default_storage_class(),
            rbac: false,
            pods: Vec::new(),
            stubs: Vec::new(),
        }
    }
}

/// Bounds of a search.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Budget {
    /// Time of the search, without the references. Default 300s.
    #[serde(default = "default_budget")]
    pub(crate) time: Time,
    /// Maximum number of plans. Default 2000.
    #[serde(default = "default_plans")]
    pub(crate) plans: u64,
    /// Number of different failures after which the search ends. Default 5.
    #[serde(default = "default_failures")]
    pub(crate) failures: usize,
    /// Fails if the search ends before it has tried every single fault, for example because `time` is too short.
    /// Default `false`.
    #[serde(default)]
    pub(crate) all_singles: bool,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            time: default_budget(),
            plans: default_plans(),
            failures: default_failures(),
            all_singles: false,
        }
    }
}

impl Scenario {
    /// Returns the path of a file named in the scenario.
    pub(crate) fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        self.directory.join(path)
    }
}

fn default_within() -> Time {
    Time(Duration::from_secs(20))
}

fn default_quiet() -> Time {
    Time(Duration::from_secs(3))
}

fn default_startup() -> Time {
    Time(Duration::from_secs(60))
}

fn default_budget() -> Time {
    Time(Duration::from_secs(300))
}

const fn default_plans() -> u64 {
    2_000
}

const fn default_failures() -> usize {
    5
}

const fn default_references() -> usize {
    3
}

const fn default_replicas() -> usize {
    1
}

const fn default_nodes() -> usize {
    1
}

const fn default_true() -> bool {
    true
}

fn default_namespace() -> String {
    "default".to_owned()
}

fn default_storage_class() -> String {
    "standard".to_owned()
}
