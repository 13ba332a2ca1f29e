//! `ApiServer` and its builder: own one of each layer, start, snapshot, fork.

mod admission;

use std::borrow::Borrow;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Limited};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tower::Service;

use crate::api::object::Object;
use crate::api::resource::ResourceInfo;
use crate::api::status::Status;
use crate::api::user::{Anonymous, UserInfo};
use crate::control::{self, Control};
use crate::endpoints::Endpoints;
use crate::endpoints::journal::{self, Journal};
use crate::entropy::Entropy;
use crate::faults::{Described, Fault, FaultGuard, FaultRule, Faults, RestartLog, RuleError, WatchHandle};
use crate::registry::admission::AdmissionSetup;
use crate::registry::authentication::{Access, Authentication};
use crate::registry::authorization::{self, Rbac};
use crate::registry::{Registry, codec};
use crate::serve::{Serving, Transport, serve};
use crate::storage::World;
use crate::tasks::TaskGroup;
use crate::webhooks::Routes;
use crate::workers::{self, Host, Kubelet, Worker};

/// Changes a resource's log keeps if the builder does not say.
const HISTORY_BOUND: usize = 16_384;

/// The time of day at which a server starts if the builder does not say: 2026-01-01T00:00:00Z. It is fixed, so that
/// two runs of a test see the same times.
const START_SECOND: i64 = 1_767_225_600;

/// A fake Kubernetes API server. Copies are the same server.
///
/// It runs where it is asked: an in-process client calls it as a function, without a socket or a task, so that a test
/// with a paused tokio clock is a function of its seed. [`ApiServer::serve`] opens a port for other processes.
///
/// ```
/// use fake_apiserver::ApiServer;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), fake_apiserver::api::status::Status> {
/// let server = ApiServer::start();
/// let namespace = server.get("v1", "Namespace", "", "default").await?;
/// assert_eq!(namespace["status"]["phase"], "Active");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ApiServer {
    pub(crate) endpoints: Arc<Endpoints>,
    options: Options,
    /// The tasks of the workers. They end when nobody can reach the server any more: those who can have a copy.
    tasks: TaskGroup,
    /// The control API, if it was asked for.
    control: Option<Arc<Control>>,
    kubelet: Kubelet,
}

/// What a fork has in common with its origin.
#[derive(Clone, Debug)]
struct Options {
    history_bound: usize,
    journal_capacity: usize,
    workers: Vec<Worker>,
    authorization: Authorization,
    authentication: Authentication,
    admission: AdmissionSetup,
    routes: Routes,
    nodes: usize,
}

/// How an [`ApiServer`] is to be. Everything has a default.
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `start` is called"]
pub struct ApiServerBuilder {
    seed: u64,
    start_time: Timestamp,
    options: Options,
    world: Option<Snapshot>,
    control: Option<Arc<Control>>,
}

/// Who may do what; after the `--authorization-mode` of kube-apiserver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Authorization {
    /// Everybody everything. A token nobody knows is the administrator's.
    #[default]
    AlwaysAllow,
    /// What Roles, ClusterRoles and their bindings say; `system:masters` everything. The ClusterRoles that people and
    /// tests rely on are there from the start, such as `cluster-admin`, `admin`, `edit`, `view`, `system:discovery`.
    Rbac,
}

/// The whole state of a server at one moment, from [`ApiServer::snapshot`]. Taking, keeping and restoring one costs a
/// reference a resource, whatever the number of objects.
#[derive(Clone, Debug)]
pub struct Snapshot(World);

/// An object that [`ApiServer::load`] could not store.
#[derive(Debug, thiserror::Error)]
#[error("{kind} {name:?}: {reason}")]
pub struct LoadError {
    kind: String,
    name: String,
    reason: String,
}

impl LoadError {
    pub(crate) fn new(kind: &str, name: &str, reason: &str) -> Self {
        let (kind, name, reason) = (kind.to_owned(), name.to_owned(), reason.to_owned());
        Self { kind, name, reason }
    }
}

impl Default for ApiServerBuilder {
    fn default() -> Self {
        Self {
            seed: 0,
            start_time: Timestamp::from_second(START_SECOND).unwrap_or(Timestamp::UNIX_EPOCH),
            options: Options {
                history_bound: HISTORY_BOUND,
                journal_capacity: journal::CAPACITY,
                workers: Vec::new(),
                authorization: Authorization::default(),
                authentication: Authentication::default(),
                admission: AdmissionSetup::default(),
                routes: Routes::default(),
                nodes: 0,
            },
            world: None,
            control: None,
        }
    }
}

impl ApiServerBuilder {
    /// The seed of all random numbers: uids, generated names, the length of watches. Default 0.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// The time of day at the start; from there the clock goes with tokio's. Default 2026-01-01T00:00:00Z.
    pub fn start_time(mut self, time: Timestamp) -> Self {
        self.start_time = time;
        self
    }

    /// Changes that the log of each resource keeps. A watch or a continue token from before them is 410 Expired.
    /// Default 16,384, at least 1.
    pub fn history(mut self, changes: usize) -> Self {
        self.options.history_bound = changes;
        self
    }

    /// Entries that the journal keeps; the oldest are dropped first. Default 65,536, at least 1.
    pub fn journal_capacity(mut self, entries: usize) -> Self {
        self.options.journal_capacity = entries;
        self
    }

    /// Nodes that are there from the start, `node-0` and so on, all ready. Default 0: then Pods are put on `node-0`,
    /// of which there is no object, and DaemonSets want none.
    pub fn nodes(mut self, count: usize) -> Self {
        self.options.nodes = count;
        self
    }

    /// Runs these parts of a cluster with the server, besides those asked for before. Default: none, as if the API
    /// server ran alone.
    ///
    /// They act in virtual time, in a stated order, and at once: what a controller-manager does within some
    /// milliseconds has happened when all tasks wait for something. What they ask is in the journal, marked as theirs
    /// ([`RecordedRequest::worker`](crate::RecordedRequest)).
    ///
    /// ```
    /// use fake_apiserver::{ApiServer, Worker};
    /// use serde_json::json;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let server = ApiServer::builder().workers([Worker::GarbageCollector]).start();
    /// let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "gone", "uid": "no-such-uid"});
    /// server.load([json!({
    ///     "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "orphan", "ownerReferences": [owner]},
    /// })])?;
    /// while server.get("v1", "ConfigMap", "default", "orphan").await.is_ok() {
    ///     tokio::task::yield_now().await;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn workers(mut self, workers: impl IntoIterator<Item: Borrow<Worker>>) -> Self {
        self.options.workers.extend(workers.into_iter().map(|it| *it.borrow()));
        self
    }

    /// Who may do what. Default: everybody everything.
    ///
    /// ```
    /// use fake_apiserver::{ApiServer, Authorization};
    /// use http::Request;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let server = ApiServer::builder()
    ///     .authorization(Authorization::Rbac)
    ///     .token("s3cret", "jane", ["devs"])
    ///     .start();
    /// let ask = |path: &str| Request::get(path).header("authorization", "Bearer s3cret").body("").unwrap();
    /// assert_eq!(server.call(ask("/version")).await.status(), 200);
    /// assert_eq!(server.call(ask("/api/v1/nodes")).await.status(), 403);
    /// # }
    /// ```
    pub fn authorization(mut self, authorization: Authorization) -> Self {
        self.options.authorization = authorization;
        self.options.authentication.is_strict = authorization != Authorization::AlwaysAllow;
        self
    }

    /// A bearer token, and the user who shows it; everyone who has a token is in `system:authenticated`, too. The same
    /// token again replaces the user.
    pub fn token(
        mut self,
        token: impl Into<String>,
        user: impl Into<String>,
        groups: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        let user = Arc::new(UserInfo::new(user, groups));
        self.options.authentication.tokens.insert(token.into(), user);
        self
    }

    /// Who a request without credentials is under RBAC. Default: the administrator.
    pub fn anonymous(mut self, anonymous: Anonymous) -> Self {
        self.options.authentication.anonymous = anonymous;
        self
    }

    /// Answers requests below `/_fake`, too, through which a test in another process injects faults and looks at the
    /// server; see [`control`](crate::control). Whoever reaches the port may do all of it.
    pub fn control_api(mut self) -> Self {
        self.control = Some(Arc::default());
        self
    }

    /// Begins with this state, and with a clock and random numbers of its own, where [`ApiServer::fork`] goes on with
    /// those of another server.
    pub fn world(mut self, world: &Snapshot) -> Self {
        self.world = Some(world.clone());
        self
    }

    /// Starts the server. Without a [`world`](Self::world) it has the namespaces `default`, `kube-system`,
    /// `kube-public` and `kube-node-lease`.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime, if it has [workers](Self::workers).
    pub fn start(self) -> ApiServer {
        let entropy = Entropy::new(self.seed, self.start_time);
        let is_new = self.world.is_none();
        let world = self.world.map_or_else(World::default, |snapshot| snapshot.0);
        let mut server = ApiServer::assemble(world, entropy, self.options, Kubelet::new);
        server.control = self.control;
        if is_new {
            server.create_boot_objects();
        }
        server
    }
}

impl ApiServer {
    /// A server with all defaults.
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// A server to be configured.
    pub fn builder() -> ApiServerBuilder {
        ApiServerBuilder::default()
    }

    fn assemble(
        world: World,
        entropy: Entropy,
        options: Options,
        kubelet: impl FnOnce(Arc<Notify>) -> Kubelet,
    ) -> Self {
        let rbac = match options.authorization {
            Authorization::AlwaysAllow => None,
            Authorization::Rbac => Some(Rbac::default()),
        };
        let admission = AdmissionSetup {
            transport: Arc::new(options.routes.clone()),
            ..options.admission.clone()
        };
        let access = Access::new(options.authentication.clone(), rbac, entropy.seed());
        let endpoints = Arc::new(Endpoints {
            registry: Registry::new(world, options.history_bound, entropy, access, admission),
            faults: Faults::default(),
            journal: Journal::new(options.journal_capacity),
            requests: AtomicU64::new(0),
        });
        let kubelet = kubelet(Arc::clone(&endpoints.registry.committed));
        if options.workers.contains(&Worker::Kubelet) {
            let logs = kubelet.clone();
            endpoints.registry.set_pod_logs(move |pod| logs.logs_of(pod));
        }
        let tasks = TaskGroup::default();
        let host: Arc<dyn Host> = endpoints.clone();
        workers::start(&host, &options.workers, &kubelet, &tasks);
        Self {
            endpoints,
            options,
            tasks,
            control: None,
            kubelet,
        }
    }

    /// A server that has a state, to look at it.
    pub(crate) fn of_snapshot(&self, snapshot: &Snapshot) -> Self {
        let entropy = self.endpoints.registry.entropy.fork();
        let options = Options {
            journal_capacity: 1,
            workers: Vec::new(),
            ..self.options.clone()
        };
        Self::assemble(snapshot.0.clone(), entropy, options, Kubelet::new)
    }

    /// What a real server has made before its first client comes (rule R1).
    fn create_boot_objects(&self) {
        for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
            let namespace = json!({
                "apiVersion": "v1", "kind": "Namespace",
                "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}},
                "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"},
            });
            // The names are valid and free: nothing has been stored before.
            let _ = self.load([namespace]);
        }
        for (name, value, whom) in [
            (
                "system-cluster-critical",
                2_000_000_000,
                "pods that must run in the cluster, but can be moved to another node if necessary.",
            ),
            (
                "system-node-critical",
                2_000_001_000,
                "pods that must not be moved from their current node.",
            ),
        ] {
            let owned = json!({
                "manager": "kube-apiserver", "operation": "Update", "apiVersion": "scheduling.k8s.io/v1",
                "time": self.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(), "fieldsType": "FieldsV1",
                "fieldsV1": {"f:description": {}, "f:preemptionPolicy": {}, "f:value": {}},
            });
            let class = json!({
                "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
                "metadata": {"name": name, "generation": 1, "managedFields": [owned]}, "value": value,
                "description": format!("Used for system critical {whom}"),
                "preemptionPolicy": "PreemptLowerPriority",
            });
            // As above.
            let _ = self.load([class]);
        }
        for number in 0..self.options.nodes {
            let name = format!("node-{number}");
            let labels =
                json!({"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"});
            let room = json!({"cpu": "8", "memory": "16Gi", "pods": "110"});
            let ready = json!({
                "type": "Ready", "status": "True", "reason": "KubeletReady",
                "message": "kubelet is posting ready status",
            });
            let _ = self.load([json!({
                "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
                "status": {"conditions": [ready], "capacity": room, "allocatable": room},
            })]);
        }
        if self.endpoints.registry.has_rbac() {
            // The same holds here.
            let _ = self.load(authorization::bootstrap_objects());
        }
    }

    /// The seed of all random numbers.
    pub fn seed(&self) -> u64 {
        self.endpoints.registry.entropy.seed()
    }

    /// The time of day on the server's clock.
    pub fn now(&self) -> Timestamp {
        self.endpoints.registry.entropy.now()
    }

    /// The newest resourceVersion.
    pub fn resource_version(&self) -> u64 {
        self.endpoints.registry.store.revision()
    }

    /// The kubelet of all nodes, which a test tells what becomes of Pods. It acts where the server was started with
    /// [`Worker::Kubelet`].
    pub fn kubelet(&self) -> &Kubelet {
        &self.kubelet
    }

    /// What was asked, answered and told to watchers.
    pub fn journal(&self) -> &Journal {
        &self.endpoints.journal
    }

    /// Installs a rule that is asked about every request for a resource; it is gone when the guard is dropped.
    pub fn inject(&self, fault: impl Fault + 'static) -> FaultGuard {
        let rules = &self.endpoints.faults.rules;
        rules.install(std::any::type_name_of_val(&fault).to_owned(), |_| fault)
    }

    /// Installs a fault that is described as data; it is gone when the guard is dropped. Fails if the rule cannot be.
    pub fn inject_rule(&self, rule: FaultRule) -> Result<FaultGuard, RuleError> {
        rule.check()?;
        let (seed, rules) = (self.seed(), &self.endpoints.faults.rules);
        Ok(rules.install(rule.to_string(), |id| Described::new(rule, seed ^ id.rotate_right(16))))
    }

    /// Lets the clock of a client be ahead of the server's by so many milliseconds, or behind, if it is less than 0.
    /// The process under test keeps the right time; the times it writes into Leases and reads from them are moved
    /// instead, which is what others, and it itself, see of a clock that goes wrong. Bodies in protobuf are left as
    /// they are.
    pub fn skew_clock(&self, client: &str, ahead_ms: i64) {
        self.endpoints.faults.clocks.set(client, ahead_ms);
    }

    /// Ends all watches and breaks what waits for an answer that will not come, as a server does that is restarted. For
    /// `down` all connections are refused, but for those of `spared` clients. What is stored stays. If the log is lost,
    /// every client whose watch goes on from before is told 410 Expired and must list again, as with a server whose
    /// watch cache begins anew.
    pub fn restart(&self, log: RestartLog, down: Duration, spared: &[&str]) {
        if log == RestartLog::Lost {
            self.compact();
        }
        self.endpoints.faults.restart(down, spared);
    }

    /// The watches under way, oldest first.
    pub fn watches(&self) -> Vec<WatchHandle> {
        self.endpoints.faults.watches.handles()
    }

    /// Forgets the history of all resources up to now, as etcd's compaction does: a watch that resumes from before is
    /// told 410 Expired. Watches under way go on.
    pub fn compact(&self) {
        self.endpoints.registry.compact(self.resource_version());
    }

    /// The whole state as it is now.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot(self.endpoints.registry.store.world())
    }

    /// Puts a state back. Watches end, as when a server restarts; the resourceVersion goes back, too.
    pub fn restore(&self, snapshot: &Snapshot) {
        self.endpoints.registry.restore(snapshot.0.clone());
    }

    /// A second server with the same state, clock and random numbers to come; from here on each goes its own way. It
    /// has its own journal and workers of its own, and no faults or watches.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime, if it has workers.
    #[must_use]
    pub fn fork(&self) -> Self {
        let registry = &self.endpoints.registry;
        let kubelet = |committed| self.kubelet.fork(committed);
        Self::assemble(
            registry.store.world(),
            registry.entropy.fork(),
            self.options.clone(),
            kubelet,
        )
    }

    /// The server at the other end of a connection: a tower service without a socket, which fails where a fault breaks
    /// the connection.
    pub(crate) fn connection(
        &self,
    ) -> impl Service<Request<Body>, Response = Response<Body>, Error = io::Error, Future: Send>
    + Clone
    + Send
    + Sync
    + 'static {
        let server = self.clone();
        tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move {
                match &server.control {
                    Some(control) if request.uri().path().starts_with(control::PREFIX) => {
                        server.controlled(control, request).await
                    }
                    _ => server.endpoints.converse(request).await,
                }
            }
        })
    }

    /// Answers a request to the control API.
    async fn controlled(&self, control: &Control, request: Request<Body>) -> io::Result<Response<Body>> {
        let (parts, body) = request.into_parts();
        let body = Limited::new(body, control::BODY_BYTES_MAX).collect().await;
        let body = body.map_err(io::Error::other)?.to_bytes();
        Ok(control::answer(self, control, &parts.method, &parts.uri, &body).map(Body::from))
    }

    /// The server as a function from requests to answers: a tower service without a socket. Where a fault breaks the
    /// connection the answer is 502 Bad Gateway, as from a proxy.
    pub fn service(
        &self,
    ) -> impl Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send>
    + Clone
    + Send
    + Sync
    + 'static {
        let (endpoints, tasks) = (Arc::clone(&self.endpoints), self.tasks.clone());
        tower::service_fn(move |request: Request<Body>| {
            // A client keeps the workers as it keeps the server.
            let _ = &tasks;
            let endpoints = Arc::clone(&endpoints);
            async move { Ok(endpoints.handle(request).await) }
        })
    }

    /// Answers one request, without a client and without a socket. The answer is read to its end: a watch is returned
    /// when it is over.
    pub async fn call(&self, request: Request<impl Into<Bytes>>) -> Response<Bytes> {
        let request = request.map(|body| Body::from(body.into()));
        read_whole(Arc::clone(&self.endpoints).handle(request).await).await
    }

    /// Listens for HTTP, on a free port if the address names port 0. No tokio clock must be paused: sockets live in
    /// real time.
    pub async fn serve(&self, addr: SocketAddr) -> io::Result<Serving> {
        serve(addr, Transport::Http, self.connection()).await
    }

    /// Listens for HTTPS with a certificate of a generated authority; see [`Serving::kubeconfig`].
    #[cfg(feature = "tls")]
    pub async fn serve_tls(&self, addr: SocketAddr) -> io::Result<Serving> {
        serve(addr, Transport::Https, self.connection()).await
    }

    /// Reads an object without a request: nothing is written into the journal. `namespace` is empty for objects of the
    /// cluster.
    pub async fn get(&self, api_version: &str, kind: &str, namespace: &str, name: &str) -> Result<Value, Status> {
        let registry = &self.endpoints.registry;
        let row = registry
            .scheme()
            .lookup_kind(api_version, kind)
            .ok_or_else(Status::unknown_path)?;
        let key = crate::storage::Key::new(namespace, name);
        let stored = registry.store.get(&row.storage, &key);
        let stored = stored.ok_or_else(|| Status::not_found(&row.info.group_resource(), name))?;
        registry.convert_stored(&row, std::slice::from_ref(&stored)).await?;
        Ok(Value::Object(codec::decode(&row, &stored).0))
    }

    /// Reads all objects of a kind, in the order of a list, without a request: nothing is written into the journal.
    /// `namespace` is empty for all namespaces.
    pub async fn list(&self, api_version: &str, kind: &str, namespace: &str) -> Result<Vec<Value>, Status> {
        let registry = &self.endpoints.registry;
        let row = registry
            .scheme()
            .lookup_kind(api_version, kind)
            .ok_or_else(Status::unknown_path)?;
        let range = crate::storage::Range::of((!namespace.is_empty()).then_some(namespace));
        let snapshot = registry.store.snapshot(&row.storage);
        let stored: Vec<_> = snapshot.range(&range).cloned().collect();
        registry.convert_stored(&row, &stored).await?;
        let decoded = stored.iter().map(|stored| Value::Object(codec::decode(&row, stored).0));
        Ok(decoded.collect())
    }

    /// What is known of the resource of a kind, such as its plural and whether it is namespaced; `None` if the kind is
    /// not served.
    pub fn resource(&self, api_version: &str, kind: &str) -> Option<ResourceInfo> {
        self.endpoints
            .registry
            .scheme()
            .lookup_kind(api_version, kind)
            .map(|row| row.info.clone())
    }

    /// The kind of a resource: `Pod` of `pods` in `v1`; `None` if it is not served.
    pub fn kind_of(&self, api_version: &str, resource: &str) -> Option<String> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let row = self.endpoints.registry.scheme().lookup(group, version, resource)?;
        Some(row.info.kind.to_string())
    }

    /// Stores objects as they are, uid, status and times included, as a dump of a cluster has them; what is missing of
    /// uid and creationTimestamp is added. An object that exists is replaced. CRDs serve their resources from there on,
    /// so they must come before their objects. Returns how many were stored; the first bad one ends it.
    pub fn load(&self, objects: impl IntoIterator<Item = Value>) -> Result<usize, LoadError> {
        let mut count = 0;
        for value in objects {
            let Value::Object(map) = value else {
                return Err(LoadError {
                    kind: "object".into(),
                    name: String::new(),
                    reason: "not a JSON object".into(),
                });
            };
            let object = Object(map);
            let (kind, name) = (object.kind().to_owned(), object.name().to_owned());
            self.load_one(object)
                .map_err(|reason| LoadError { kind, name, reason })?;
            count += 1;
        }
        Ok(count)
    }

    fn load_one(&self, mut object: Object) -> Result<(), String> {
        let registry = &self.endpoints.registry;
        let row = registry.scheme().lookup_kind(object.api_version(), object.kind());
        let row = row.ok_or_else(|| format!("no resource of this kind is served in {:?}", object.api_version()))?;
        if object.name().is_empty() {
            return Err("metadata.name is missing".to_owned());
        }
        if row.info.is_namespaced() && object.namespace().is_empty() {
            object.metadata_mut().insert("namespace".into(), "default".into());
        }
        registry.put(&row, object).map_err(|status| status.message)
    }
}

impl Host for Endpoints {
    fn registry(&self) -> &Registry {
        &self.registry
    }

    fn call(self: Arc<Self>, request: Request<Bytes>) -> BoxFuture<'static, Response<Bytes>> {
        Box::pin(async move { read_whole(self.handle(request.map(Body::from)).await).await })
    }
}

/// Reads an answer to its end.
async fn read_whole(response: Response<Body>) -> Response<Bytes> {
    let (parts, body) = response.into_parts();
    // Bodies made in this process do not fail; should one be cut, what came of it is no JSON and says so.
    let body = body.collect().await.map(|it| it.to_bytes()).unwrap_or_default();
    Response::from_parts(parts, body)
}
