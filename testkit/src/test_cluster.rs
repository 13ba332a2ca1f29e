//! `TestCluster`: an API server, a client and a clock that jumps.

use std::borrow::Borrow;
use std::panic::Location;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fake_apiserver::{ApiServer, ApiServerBuilder, Authorization, Journal, PodScript, PodSelector, Worker, load};
use futures::FutureExt;
use kube::core::CustomResourceExt;
use serde_json::Value;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::time::Instant;

use crate::controller::Controllers;
use crate::explore::Gate;
use crate::faults::Injections;
use crate::read::Reads;
use crate::real::Real;
use crate::report;
use crate::settle::Bounds;
use crate::target::ToObject;
use crate::work::Work;

/// The `User-Agent` of what a test does itself. Faults spare it and [`TestCluster::requests`] leaves it out, unless it
/// is named.
pub(crate) const TEST_CLIENT: &str = "testkit";

/// A cluster for one test. See the [crate](crate) for a whole test.
///
/// Reading is a function call ([`get`](Self::get), [`list`](Self::list)); what acts on the cluster or lets time pass is
/// `async`. When a test fails, the cluster prints its seed and the last requests.
#[derive(Debug)]
pub struct TestCluster {
    pub(crate) server: ApiServer,
    /// Instant at which the server's clock began.
    pub(crate) started: Instant,
    pub(crate) bounds: Bounds,
    pub(crate) work: Work,
    pub(crate) controllers: Controllers,
    pub(crate) injections: Injections,
    pub(crate) reads: Reads,
    /// A real server, whose state `server` mirrors; `None` if `server` is the server.
    pub(crate) real: Option<Real>,
    /// The revision at which the test began.
    pub(crate) base: u64,
    /// Stands between clients and the server in an exploration.
    pub(crate) gate: Option<Arc<Gate>>,
    /// The last failure of the testkit's own, with its message.
    failed: Mutex<Option<(Cause, String)>>,
}

/// Reason for which the testkit itself fails a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// Controllers go on and on.
    Restless,
    /// They do so while the clock stands.
    AtOneInstant,
    ControllerPanicked,
}

/// Options of a [`TestCluster`]. Everything has a default.
///
/// ```
/// use std::time::Duration;
/// use testkit::{TestCluster, objects::{node, pod}};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let cluster = TestCluster::builder()
///     .seed(42)
///     .object(node("node-1"))
///     .object(pod("web-0").set("spec.nodeName", "node-1"))
///     .yaml("{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: default}}")
///     .quiet(Duration::from_secs(1))
///     .start();
/// assert_eq!(cluster.get(pod("web-0")).get("spec.nodeName"), Some(&"node-1".into()));
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `start` is called"]
pub struct TestClusterBuilder {
    pub(crate) seed: u64,
    history: Option<usize>,
    has_rbac: bool,
    workers: Vec<Worker>,
    has_pod_scripts: bool,
    server: ApiServerBuilder,
    pub(crate) bounds: Bounds,
    pub(crate) work: Work,
    steps: Vec<Step>,
}

/// Something to be put into the cluster before the test begins.
#[derive(Clone, Debug)]
enum Step {
    /// As a client creates it.
    Create(Value),
    /// As it is, from a dump.
    Load(Value),
}

impl Step {
    /// Wraps an object; one with a uid was stored before.
    fn of(object: Value) -> Self {
        if object["metadata"]["uid"].is_string() {
            Self::Load(object)
        } else {
            Self::Create(object)
        }
    }
}

impl Default for TestClusterBuilder {
    fn default() -> Self {
        let seed = std::env::var("SEED").ok().and_then(|it| it.parse().ok()).unwrap_or(0);
        Self {
            seed,
            history: None,
            has_rbac: false,
            workers: Vec::new(),
            has_pod_scripts: false,
            // Clients do not follow virtual time. kube's recorder forgets an Event after six minutes of the machine's
            // clock alone: after an hour of virtual time it would patch an expired Event, again and again.
            server: ApiServer::builder().event_ttl(None),
            bounds: Bounds::default(),
            work: Work::default(),
            steps: Vec::new(),
        }
    }
}

impl TestClusterBuilder {
    /// The seed of uids and generated names. Default: the environment variable `SEED`, else 0.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Changes that the server remembers of each resource; a watch from before them is 410 Gone. Default 16,384.
    pub fn history(mut self, changes: usize) -> Self {
        self.history = Some(changes);
        self
    }

    /// Enables RBAC: Roles decide what a client [of a user](TestCluster::client_as) may do. The test itself and
    /// other clients go on to be the administrator. See [`rbac`](crate::rbac).
    pub fn rbac(mut self) -> Self {
        self.has_rbac = true;
        self
    }

    /// Runs these parts of a cluster: the garbage collector, the namespace controller and others. Default: none.
    ///
    /// [`TestCluster::settle`] waits for them as for controllers. Faults spare them, unless they name the worker as
    /// the client, and [`TestCluster::requests`] leaves out what they ask.
    ///
    /// ```
    /// use testkit::{TestCluster, Worker, objects::pod};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let cluster = TestCluster::builder().workers([Worker::GarbageCollector]).start();
    /// let owner = serde_json::json!([{"apiVersion": "v1", "kind": "Pod", "name": "gone", "uid": "no-such-uid"}]);
    /// cluster.create(pod("web-0").set("metadata.ownerReferences", owner)).await;
    /// cluster.settle().await;
    /// assert!(!cluster.exists(pod("web-0")));
    /// # }
    /// ```
    pub fn workers(mut self, workers: impl IntoIterator<Item: Borrow<Worker>>) -> Self {
        self.workers.extend(workers.into_iter().map(|it| *it.borrow()));
        self
    }

    /// Sets the behaviour of some Pods: how containers start, end, fail and log, and what `exec` answers. It needs
    /// [`Worker::Kubelet`]; of several scripts for one Pod the last given counts. Without a script containers start and
    /// keep running. During a test, `cluster.server().kubelet()` changes it.
    ///
    /// ```
    /// use testkit::{PodScript, PodSelector, TestCluster, Worker, objects::{node, pod}};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let cluster = TestCluster::builder()
    ///     .workers(Worker::ALL)
    ///     .pod_script(PodSelector::all(), PodScript::default().never_ready())
    ///     .start();
    /// cluster.create(pod("web-0")).await;
    /// cluster.settle().await;
    /// assert_eq!(cluster.get(pod("web-0")).get("status.containerStatuses.0.ready"), Some(&false.into()));
    /// # }
    /// ```
    pub fn pod_script(mut self, pods: PodSelector, script: PodScript) -> Self {
        self.server = self.server.pod_script(pods, script);
        self.has_pod_scripts = true;
        self
    }

    /// Changes what the server has besides, such as admission: closures, webhooks answered in the process, plugins.
    ///
    /// ```
    /// use testkit::{TestCluster, objects::pod};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let cluster = TestCluster::builder()
    ///     .server(|server| {
    ///         server.mutate("scheduler.example.com", |request| {
    ///             let mut object = request.object.clone();
    ///             object["spec"]["schedulerName"] = "ours".into();
    ///             object
    ///         })
    ///     })
    ///     .start();
    /// cluster.create(pod("web-0")).await;
    /// assert_eq!(cluster.get(pod("web-0")).get("spec.schedulerName"), Some(&"ours".into()));
    /// # }
    /// ```
    pub fn server(mut self, configure: impl FnOnce(ApiServerBuilder) -> ApiServerBuilder) -> Self {
        self.server = configure(self.server);
        self
    }

    /// Sets the quiet time after which [`TestCluster::settle`] returns. Default 5.1 s of virtual time.
    pub fn quiet(mut self, quiet: Duration) -> Self {
        self.bounds.quiet = quiet;
        self
    }

    /// Sets the time after which [`TestCluster::settle`] and [`TestCluster::eventually`] fail. Default: ten minutes and
    /// one minute of virtual time.
    pub fn patience(mut self, settle: Duration, eventually: Duration) -> Self {
        (self.bounds.settle, self.bounds.eventually) = (settle, eventually);
        self
    }

    /// Sets the most requests during one `settle`, or at one instant; more is a hot loop, which fails the test. Default
    /// 10,000.
    pub fn max_requests(mut self, requests: u64) -> Self {
        self.bounds.requests = requests;
        self
    }

    /// Leaves out a field of every resource, such as `status.conditions.*.lastProbeTime`: [`TestCluster::settle`] does
    /// not wait while nothing else changes, and [`explore`](crate::explore) does not compare it. For what only tells
    /// the time or counts.
    ///
    /// ```
    /// # use std::time::Duration;
    /// use kube::api::{Api, Patch, PatchParams};
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// use testkit::{TestCluster, objects::config_map};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let cluster = TestCluster::builder().ignore("data.checked").start();
    /// cluster.create(config_map("a")).await;
    /// let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client());
    /// cluster.run(async move {
    ///     for n in 0.. {
    ///         let patch = serde_json::json!({"data": {"checked": n.to_string()}});
    ///         let _ = maps.patch("a", &PatchParams::default(), &Patch::Merge(patch)).await;
    ///         tokio::time::sleep(Duration::from_secs(1)).await;
    ///     }
    /// });
    /// cluster.settle().await;
    /// # }
    /// ```
    pub fn ignore(mut self, field: &str) -> Self {
        self.work.ignored.push(field.to_owned());
        self
    }

    /// Counts Events as part of the state: [`TestCluster::settle`] waits while they are written, and
    /// [`explore`](crate::explore) compares those of the end. Otherwise they are by-products, as they are in a cluster;
    /// [`assert_event`](TestCluster::assert_event) finds them in any case.
    ///
    /// A cluster keeps them for an hour, a test for ever, unless
    /// [`event_ttl`](fake_apiserver::ApiServerBuilder::event_ttl) is set by [`server`](Self::server): kube's recorder
    /// goes by the machine's clock, and would not know that its Event is gone.
    pub fn count_events(mut self) -> Self {
        self.work.counts_events = true;
        self
    }

    /// Serves a custom resource.
    pub fn crd<K: CustomResourceExt>(self) -> Self {
        self.step(Step::Create(definition::<K>()))
    }

    /// Creates an object, as [`TestCluster::create`] does.
    pub fn object(self, object: impl ToObject) -> Self {
        self.step(Step::Create(object.to_object()))
    }

    /// Puts in the objects of a text: YAML or JSON, several documents, lists. What has a uid, as in a dump of
    /// `kubectl get -o yaml`, is stored as it is, with status and times; the rest is created, as
    /// [`TestCluster::create`] does.
    ///
    /// # Panics
    ///
    /// If the text cannot be read.
    #[track_caller]
    pub fn yaml(self, text: &str) -> Self {
        let manifests = load::from_text(text).unwrap_or_else(|err| panic!("the YAML of the cluster: {err}"));
        manifests
            .into_iter()
            .fold(self, |builder, manifest| builder.step(Step::of(manifest.object)))
    }

    /// The same of a file, or of all files below a directory.
    ///
    /// # Panics
    ///
    /// If it cannot be read.
    #[track_caller]
    pub fn file(self, path: impl AsRef<Path>) -> Self {
        let manifests = load::read([path]).unwrap_or_else(|err| panic!("the objects of the cluster: {err}"));
        manifests
            .into_iter()
            .fold(self, |builder, manifest| builder.step(Step::of(manifest.object)))
    }

    fn step(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }

    /// The server to be.
    pub(crate) fn server_to_be(&self) -> ApiServerBuilder {
        let mut server = self.server.clone().seed(self.seed).workers(&self.workers);
        if let Some(changes) = self.history {
            server = server.history(changes);
        }
        if self.has_rbac {
            server = server.authorization(Authorization::Rbac);
        }
        server
    }

    /// Starts the cluster. The journal begins empty; requests that put in the initial objects are not in it.
    ///
    /// # Panics
    ///
    /// Outside of a `current_thread` tokio runtime, if an object is refused, and if there are scripts of Pods without
    /// [`Worker::Kubelet`].
    #[track_caller]
    pub fn start(self) -> TestCluster {
        assert!(
            !self.has_pod_scripts || self.workers.contains(&Worker::Kubelet),
            "scripts of Pods need `Worker::Kubelet`: add `.workers(Worker::ALL)`"
        );
        pause_the_clock();
        // Before the first map of the controller's.
        crate::explore::seed_hashes();
        let mut cluster = TestCluster::of_server(self.server_to_be().start(), Instant::now(), self.bounds);
        for step in self.steps {
            cluster.take(step);
        }
        cluster.work = self.work;
        cluster.base = cluster.server.resource_version();
        cluster.server.journal().clear();
        cluster
    }
}

impl TestCluster {
    /// A cluster with all defaults, which has the namespaces `default` and `kube-*` and nothing else.
    ///
    /// # Panics
    ///
    /// Outside of a `current_thread` tokio runtime. In one whose clock is not paused yet, the cluster pauses it; with
    /// `#[tokio::test(start_paused = true)]` two runs see the same times to the millisecond.
    #[must_use]
    #[track_caller]
    pub fn start() -> Self {
        Self::builder().start()
    }

    pub(crate) fn of_server(server: ApiServer, started: Instant, bounds: Bounds) -> Self {
        Self {
            started,
            bounds,
            work: Work::default(),
            controllers: Controllers::default(),
            injections: Injections::default(),
            reads: Reads::default(),
            gate: None,
            base: server.resource_version(),
            real: None,
            failed: Mutex::default(),
            server,
        }
    }

    /// Fails the test at a place in it, for a cause that exploration tells from assertions of the test.
    pub(crate) fn fail_for(&self, cause: Cause, place: &Location<'_>, what: &str) -> ! {
        let message = report::message_at(place, what);
        *lock(&self.failed) = Some((cause, message.clone()));
        panic!("{message}")
    }

    /// The cause of a failure with this message, if it is the testkit's own.
    pub(crate) fn cause_of(&self, message: &str) -> Option<Cause> {
        let failed = lock(&self.failed);
        failed.as_ref().filter(|(_, it)| it == message).map(|(cause, _)| *cause)
    }

    /// A cluster whose server is another one's mirror. Time is real, and so the clock must go.
    pub(crate) fn over(server: ApiServer, bounds: Bounds) -> Self {
        check_the_runtime();
        if is_paused() {
            tokio::time::resume();
        }
        Self::of_server(server, Instant::now(), bounds)
    }

    /// A cluster like this one, of another server with the same clock.
    pub(crate) fn with_server(&self, server: ApiServer) -> Self {
        let mut cluster = Self::of_server(server, self.started, self.bounds);
        (cluster.base, cluster.work) = (self.base, self.work.clone());
        cluster
    }

    /// A cluster to be configured.
    pub fn builder() -> TestClusterBuilder {
        TestClusterBuilder::default()
    }

    /// A client for the controller under test. Its default namespace is `default`.
    #[must_use]
    pub fn client(&self) -> kube::Client {
        self.client_named("kube-rs")
    }

    /// The same with its own name, by which [`faults`](crate::faults), [`watches`](Self::watches) and
    /// [`requests`](Self::requests) tell clients apart.
    #[must_use]
    pub fn client_named(&self, name: &str) -> kube::Client {
        self.clients().client(name)
    }

    /// Returns the API server itself, for rare needs: snapshots, compaction, and custom faults.
    pub fn server(&self) -> &ApiServer {
        &self.server
    }

    /// Returns the journal of every request, answer and watch event, including those of the test itself; see
    /// [`requests`](Self::requests) for those of the controllers.
    pub fn journal(&self) -> &Journal {
        self.server.journal()
    }

    /// The seed of this run.
    pub fn seed(&self) -> u64 {
        self.server.seed()
    }

    /// Serves a custom resource from now on.
    ///
    /// ```
    /// use kube::CustomResource;
    /// use schemars::JsonSchema;
    /// use serde::{Deserialize, Serialize};
    /// use testkit::TestCluster;
    ///
    /// #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
    /// #[kube(group = "example.com", version = "v1", kind = "Document", namespaced)]
    /// struct DocumentSpec {
    ///     title: String,
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let cluster = TestCluster::start();
    /// cluster.crd::<Document>();
    /// cluster.create(Document::new("readme", DocumentSpec { title: "Read me".into() })).await;
    /// assert_eq!(cluster.get::<Document>("readme").spec.title, "Read me");
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// If the server refuses the definition.
    #[track_caller]
    pub fn crd<K: CustomResourceExt>(&self) {
        if self.is_real() {
            let resource = K::api_resource();
            if self.server.resource(&resource.api_version, &resource.kind).is_none() {
                let name = K::crd_name();
                self.fail(&format!(
                    "{name} is not served: install the definition on the real server first"
                ));
            }
            return;
        }
        self.take(Step::Create(definition::<K>()));
    }

    #[track_caller]
    fn take(&self, step: Step) {
        match step {
            // The server answers at once: there are no faults for the test's own client.
            Step::Create(object) => match self.put_new(object).now_or_never() {
                Some(Ok(_)) => {}
                Some(Err(reason)) => self.fail(&reason),
                None => self.fail("the server does not answer"),
            },
            Step::Load(object) => {
                if let Err(err) = self.server.load([object]) {
                    self.fail(&err.to_string());
                }
            }
        }
    }
}

impl Drop for TestCluster {
    fn drop(&mut self) {
        let ended = self.controllers.ended();
        self.controllers.abort();
        if let Some(gate) = &self.gate {
            gate.leave();
        }
        if std::thread::panicking() {
            report::print_after_failure(self, &ended);
        } else if self.gate.is_none() {
            report::print_idle_faults(self);
            if let Some(why) = self.injections.unserved(&self.server) {
                panic!("{why}");
            }
        }
    }
}

/// The rstest fixture: a [`TestCluster`] with all defaults.
///
/// ```
/// use rstest::rstest;
/// use testkit::{TestCluster, cluster, objects::pod};
///
/// #[rstest]
/// #[tokio::test(start_paused = true)]
/// async fn a_pod_gets_a_uid(cluster: TestCluster) {
///     let web = cluster.create(pod("web-0")).await;
///     assert!(!web.uid().is_empty());
/// }
/// ```
#[track_caller]
pub fn cluster() -> TestCluster {
    TestCluster::start()
}

/// The fixture as rstest calls it: a test with an argument `cluster` begins with `cluster::default()`. This is what
/// `#[rstest::fixture]` writes. By hand it spares a build the macros, their parser and their regular expressions.
#[doc(hidden)]
#[expect(non_camel_case_types, reason = "rstest finds a fixture by the name of its argument")]
#[derive(Debug)]
pub struct cluster {}

impl cluster {
    #[doc(hidden)]
    #[expect(clippy::should_implement_trait, reason = "rstest calls a function of this name")]
    #[track_caller]
    pub fn default() -> TestCluster {
        TestCluster::start()
    }
}

fn definition<K: CustomResourceExt>() -> Value {
    let mut definition = serde_json::to_value(K::crd()).expect("definitions can be written as JSON");
    definition["apiVersion"] = "apiextensions.k8s.io/v1".into();
    definition["kind"] = "CustomResourceDefinition".into();
    definition
}

/// Pauses tokio's clock if it is not yet.
#[track_caller]
fn pause_the_clock() {
    check_the_runtime();
    if !is_paused() {
        tokio::time::pause();
    }
}

#[track_caller]
fn check_the_runtime() {
    let Ok(handle) = Handle::try_current() else {
        panic!("a TestCluster needs a tokio runtime: make the test `#[tokio::test] async fn`");
    };
    assert!(
        handle.runtime_flavor() == RuntimeFlavor::CurrentThread,
        "a TestCluster lives in virtual time, which only a current_thread runtime has: \
         use `#[tokio::test]` without `flavor = \"multi_thread\"`"
    );
}

/// Returns `true` if tokio's clock stands while the machine's goes on.
#[expect(
    clippy::disallowed_methods,
    reason = "the machine's clock is what tokio's is compared with"
)]
fn is_paused() -> bool {
    let before = Instant::now();
    let machine = std::time::Instant::now();
    while machine.elapsed().is_zero() {
        std::hint::spin_loop();
    }
    Instant::now() == before
}

/// Locks a mutex, ignoring poison.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
