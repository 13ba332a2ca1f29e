//! `TestCluster`: an API server, clients and a virtual clock.

use std::borrow::Borrow;
use std::panic::Location;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fake_apiserver::{ApiServer, ApiServerBuilder, Authorization, Journal, Worker, load};
#[cfg(feature = "workers")]
use fake_apiserver::{PodScript, PodSelector};
use futures::FutureExt;
use kube::core::CustomResourceExt;
use serde_json::Value;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::time::Instant;

use crate::bounds::Bounds;
use crate::controller::Controllers;
use crate::externals::Externals;
use crate::faults::Injections;
use crate::hooks::Hooks;
use crate::json;
use crate::lock::lock;
use crate::output::{self, Output};
use crate::panics::keep_panics;
use crate::read::Reads;
use crate::real::Real;
use crate::report::{self, Failed};
use crate::target::ToObject;
use crate::virtual_clock;
use crate::work::Work;

/// `User-Agent` of the test's own requests. Only faults restricted to this client affect these requests, and
/// [`TestCluster::requests`] excludes them.
pub(crate) const TEST_CLIENT: &str = "testkit";

/// A cluster for one test. See the [crate](crate) for a complete test.
///
/// Reads are function calls ([`get`](Self::get), [`list`](Self::list)); methods that let time pass and most methods
/// that write are `async`. When a test fails, the cluster prints its seed and the last requests.
#[derive(Debug)]
pub struct TestCluster {
    pub(crate) server: ApiServer,
    /// Instant at which the server's clock started.
    pub(crate) started: Instant,
    pub(crate) bounds: Bounds,
    pub(crate) work: Work,
    pub(crate) controllers: Controllers,
    pub(crate) injections: Injections,
    pub(crate) reads: Reads,
    /// The real server that `server` mirrors; `None` if there is no real server.
    pub(crate) real: Option<Real>,
    /// The revision at which the test began.
    pub(crate) base: u64,
    /// The external systems that the controllers of the test use.
    pub(crate) externals: Arc<Externals>,
    /// The exploration that the cluster belongs to; `None` outside of an exploration.
    pub(crate) hooks: Option<Arc<dyn Hooks>>,
    /// Revision of the server before the first object of the test was created; 0 if it is unknown.
    pub(crate) boot: u64,
    /// The tracing output of controllers, if the test is recorded.
    pub(crate) output: Option<Output>,
    /// Values that are dropped together with the cluster.
    #[cfg(all(feature = "processes", unix))]
    pub(crate) kept: Mutex<Vec<Box<dyn std::any::Any + Send>>>,
    /// The last failure that the testkit raised: its cause and its message.
    failed: Mutex<Option<(Cause, String)>>,
}

/// Cause of a failure that the testkit raised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// Controllers do not settle.
    Restless,
    /// Controllers send so many messages at one instant that the clock stops.
    AtOneInstant,
    ControllerPanicked,
}

/// Builder of a [`TestCluster`]. All options have defaults.
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
    /// Set if a page with every step is written when the test fails.
    pub(crate) is_traced: bool,
    steps: Vec<Step>,
}

/// An initial object of the cluster.
#[derive(Clone, Debug)]
enum Step {
    /// An object that is created through the API, as by a client.
    Create(Value),
    /// An object from a dump, which is stored unchanged.
    Load(Value),
}

impl Step {
    /// Wraps an object. An object with a uid is loaded unchanged.
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
            // kube's recorder does not use virtual time: it forgets an Event after six minutes on the machine's clock.
            // If Events expired, it would repeatedly patch an expired Event after an hour of virtual time.
            server: ApiServer::builder().event_ttl(None),
            bounds: Bounds::default(),
            work: Work::default(),
            is_traced: output::is_asked(),
            steps: Vec::new(),
        }
    }
}

impl TestClusterBuilder {
    /// Sets the seed of all random values, such as uids and generated names. Default: the environment variable `SEED`,
    /// or else 0.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Sets the number of changes that the server keeps for each resource. A watch that starts before the oldest kept
    /// change receives 410 Gone. Default: 16,384.
    pub fn history(mut self, changes: usize) -> Self {
        self.history = Some(changes);
        self
    }

    /// Enables RBAC: roles and bindings determine the permissions of a client that acts as
    /// [a user](TestCluster::client_as). The test itself and other clients remain administrators. See
    /// [`rbac`](crate::rbac).
    pub fn rbac(mut self) -> Self {
        self.has_rbac = true;
        self
    }

    /// Runs these workers, which are parts of a real cluster: the garbage collector, the namespace controller and
    /// others. Default: none. Most [workers](Worker) need the feature `workers`, which is on by default.
    ///
    /// [`TestCluster::settle`] waits for workers as for controllers. A fault affects a worker only if it is restricted
    /// to the worker's name as a client, and [`TestCluster::requests`] excludes the requests of workers.
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

    /// Sets the behaviour of some Pods: how containers start, end, fail and log, and the output of `exec` (with the
    /// feature `serve`). Requires [`Worker::Kubelet`]. If several scripts match a Pod, the last one applies. Without a
    /// script, containers start and keep running. During a test, use `cluster.server().kubelet()` to change the
    /// behaviour.
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
    #[cfg(feature = "workers")]
    pub fn pod_script(mut self, pods: PodSelector, script: PodScript) -> Self {
        self.server = self.server.pod_script(pods, script);
        self.has_pod_scripts = true;
        self
    }

    /// Configures other options of the server, such as admission: closures, in-process webhooks, plugins.
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

    /// Sets the quiet time after which [`TestCluster::settle`] returns. Default: 5.1 s of virtual time.
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

    /// Sets the maximum number of requests and watch events during one `settle`, or at one instant; if there are more,
    /// the test fails. Default: 10,000. A hot loop at one instant fails after 2,000 requests and events, if there are
    /// at least ten per object on average.
    pub fn max_requests(mut self, requests: u64) -> Self {
        self.bounds.requests = requests;
        self
    }

    /// Ignores a field of every resource, such as `status.conditions.*.lastProbeTime`: [`TestCluster::settle`] does not
    /// wait for changes that only affect ignored fields, and [`explore`](crate::explore) does not compare them.
    /// Intended for times and counters.
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
    /// [`explore`](crate::explore) compares them at the end. By default, Events are ignored as by-products;
    /// [`assert_event`](TestCluster::assert_event) finds them in any case.
    ///
    /// A real cluster keeps Events for an hour. A test keeps them forever unless
    /// [`event_ttl`](fake_apiserver::ApiServerBuilder::event_ttl) is set through [`server`](Self::server), because
    /// kube's recorder uses the machine's clock and would not notice the expiry.
    pub fn count_events(mut self) -> Self {
        self.work.counts_events = true;
        self
    }

    /// Serves a custom resource.
    pub fn crd<K: CustomResourceExt>(self) -> Self {
        self.step(Step::Create(definition::<K>()))
    }

    /// Creates an object, as [`TestCluster::create`] does.
    pub fn object<Form>(self, object: impl ToObject<Form>) -> Self {
        self.step(Step::Create(object.to_object()))
    }

    /// Adds the objects in a string: YAML or JSON, multiple documents, lists. Objects with a uid, as in a dump by
    /// `kubectl get -o yaml`, are stored unchanged, with status and times. Other objects are created, as
    /// [`TestCluster::create`] does.
    ///
    /// # Panics
    ///
    /// If the string cannot be parsed.
    #[track_caller]
    pub fn yaml(self, text: &str) -> Self {
        match load::from_text(text) {
            Ok(manifests) => self.all_of(manifests),
            Err(err) => report::fail(&format!("the YAML of the cluster is invalid: {err}")),
        }
    }

    /// Same as [`yaml`](Self::yaml), for a file, or for all YAML and JSON files below a directory.
    ///
    /// # Panics
    ///
    /// If a file cannot be read or parsed.
    #[track_caller]
    pub fn file(self, path: impl AsRef<Path>) -> Self {
        match load::read([path]) {
            Ok(manifests) => self.all_of(manifests),
            Err(err) => report::fail(&format!("the objects of the cluster cannot be loaded: {err}")),
        }
    }

    fn all_of(self, manifests: Vec<load::Manifest>) -> Self {
        let steps = manifests.into_iter().map(|it| Step::of(it.object));
        steps.fold(self, Self::step)
    }

    /// Adds an object. An object with a uid is stored unchanged; any other object is created.
    #[cfg(all(feature = "processes", unix))]
    pub(crate) fn manifest(self, object: Value) -> Self {
        self.step(Step::of(object))
    }

    fn step(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }

    /// Returns the builder of the server with all options.
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

    /// Starts the cluster. The journal is initially empty; it does not contain the requests that create the initial
    /// objects.
    ///
    /// # Panics
    ///
    /// Outside of a `current_thread` tokio runtime, if an object is refused, if there are scripts of Pods without
    /// [`Worker::Kubelet`], or if a worker needs the feature `workers` and the feature is off.
    #[track_caller]
    pub fn start(self) -> TestCluster {
        assert!(
            !self.has_pod_scripts || self.workers.contains(&Worker::Kubelet),
            "Pod scripts require `Worker::Kubelet`: add `.workers(Worker::ALL)`"
        );
        pause_the_clock();
        // The source of hash keys must be replaced before the controller creates a map.
        crate::seeded_hash::install();
        let mut cluster = TestCluster::of_server(self.server_to_be().start(), Instant::now(), self.bounds);
        for step in self.steps {
            cluster.take(step);
        }
        cluster.work = self.work;
        cluster.base = cluster.server.resource_version();
        cluster.server.journal().clear();
        if self.is_traced {
            keep_panics();
            let journal = cluster.server.journal().clone();
            let place = move || usize::try_from(journal.total()).unwrap_or(usize::MAX);
            cluster.output = Some(Output::record(cluster.started, place));
        }
        cluster
    }
}

impl TestCluster {
    /// Starts a cluster with all defaults. It only contains the objects that every API server creates, such as the
    /// namespaces `default` and `kube-system`.
    ///
    /// # Panics
    ///
    /// Outside of a `current_thread` tokio runtime. The cluster pauses the runtime's clock if it is not paused yet;
    /// with `#[tokio::test(start_paused = true)]`, two runs have the same times to the millisecond.
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
            externals: Arc::default(),
            hooks: None,
            output: None,
            base: server.resource_version(),
            boot: server.resource_version(),
            real: None,
            #[cfg(all(feature = "processes", unix))]
            kept: Mutex::default(),
            failed: Mutex::default(),
            server,
        }
    }

    /// Returns a failure at a location in the test, and records its cause, by which explorations distinguish it from a
    /// failed assertion of the test.
    pub(crate) fn failed_for(&self, cause: Cause, place: &Location<'_>, what: &str) -> Failed {
        let failed = Failed::at(place, what);
        *lock(&self.failed) = Some((cause, failed.0.clone()));
        failed
    }

    /// Returns a failure with this message, which already contains the location, and records its cause.
    #[cfg(all(feature = "processes", unix))]
    pub(crate) fn failed_with(&self, cause: Cause, message: String) -> Failed {
        *lock(&self.failed) = Some((cause, message.clone()));
        Failed(message)
    }

    /// Returns the cause of a failure with this message, if the testkit raised it.
    pub(crate) fn cause_of(&self, message: &str) -> Option<Cause> {
        let failed = lock(&self.failed);
        failed.as_ref().filter(|(_, it)| it == message).map(|(cause, _)| *cause)
    }

    /// Returns a cluster with a server that mirrors a real one. Time is real, so tokio's clock is resumed.
    pub(crate) fn over(server: ApiServer, bounds: Bounds) -> Self {
        check_the_runtime();
        if is_paused() {
            tokio::time::resume();
        }
        Self::of_server(server, Instant::now(), bounds)
    }

    /// Returns a cluster with the same settings as this one, and a different server that has the same clock.
    pub(crate) fn with_server(&self, server: ApiServer) -> Self {
        let mut cluster = Self::of_server(server, self.started, self.bounds);
        (cluster.base, cluster.boot, cluster.work) = (self.base, self.boot, self.work.clone());
        cluster.externals = Arc::new(self.externals.copy());
        cluster
    }

    /// Returns a builder for a cluster.
    pub fn builder() -> TestClusterBuilder {
        TestClusterBuilder::default()
    }

    /// Returns a client for the controller under test. Its default namespace is `default`.
    #[must_use]
    pub fn client(&self) -> kube::Client {
        self.client_named("kube-rs")
    }

    /// Returns a client with its own name, which distinguishes it from other clients in [`faults`](crate::faults),
    /// [`watches`](Self::watches) and [`requests`](Self::requests).
    #[must_use]
    pub fn client_named(&self, name: &str) -> kube::Client {
        self.clients().client(name)
    }

    /// Returns the API server itself, for features that `TestCluster` does not expose, such as custom faults
    /// ([`ApiServer::inject`]).
    pub fn server(&self) -> &ApiServer {
        &self.server
    }

    /// Returns the journal of every request, response and watch event, including the test's own; see
    /// [`requests`](Self::requests) for the requests of controllers.
    pub fn journal(&self) -> &Journal {
        self.server.journal()
    }

    /// Returns the seed of this run.
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
            // The future is ready immediately, because faults do not affect the test's own client.
            Step::Create(object) => match self.put_new(object).now_or_never() {
                Some(Ok(_)) => {}
                Some(Err(reason)) => self.fail(&reason),
                None => self.fail("the server did not respond"),
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
        if let Some(hooks) = &self.hooks {
            hooks.cluster_ends();
        }
        if let Some(output) = &self.output {
            output.end();
        }
        if std::thread::panicking() {
            report::print_after_failure(self, &ended);
        } else if self.hooks.is_none() {
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
/// async fn created_pod_has_a_uid(cluster: TestCluster) {
///     let web = cluster.create(pod("web-0")).await;
///     assert!(!web.uid().is_empty());
/// }
/// ```
#[track_caller]
pub fn cluster() -> TestCluster {
    TestCluster::start()
}

/// The fixture in the form that rstest expects: a test with an argument `cluster` begins with `cluster::default()`.
/// Equals the expansion of `#[rstest::fixture]`, but saves compiling the macro, its parser and its regular expressions.
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
    let mut definition = json::encode(&K::crd()).expect("definitions can be serialized as JSON");
    definition["apiVersion"] = "apiextensions.k8s.io/v1".into();
    definition["kind"] = "CustomResourceDefinition".into();
    definition
}

/// Pauses tokio's clock if it is not paused yet.
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
        panic!("a TestCluster needs a tokio runtime: make the test an `async fn` with `#[tokio::test]`");
    };
    assert!(
        handle.runtime_flavor() == RuntimeFlavor::CurrentThread,
        "a TestCluster needs virtual time, which only a current_thread runtime provides: \
         use `#[tokio::test]` without `flavor = \"multi_thread\"`"
    );
}

/// Returns `true` if tokio's clock is paused while the machine's clock runs.
#[expect(
    clippy::disallowed_methods,
    reason = "the machine's clock is what tokio's is compared with"
)]
fn is_paused() -> bool {
    // In an exploration the machine's clock follows tokio's, so this loop would never end if it read the virtual clock.
    virtual_clock::of_the_machine(|| {
        let before = Instant::now();
        let machine = std::time::Instant::now();
        while machine.elapsed().is_zero() {
            std::hint::spin_loop();
        }
        Instant::now() == before
    })
}
