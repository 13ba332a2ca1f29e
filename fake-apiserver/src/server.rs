//! `ApiServer`: owns all layers, and provides the operations that tests use without HTTP: snapshot, fork, faults, load.

mod backends;
#[cfg(feature = "workers")]
mod metrics;

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use axum_core::body::Body;
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::Notify;
use tower::Service;

use crate::api::object::Object;
use crate::api::resource::ResourceInfo;
use crate::api::status::Status;
use crate::egress::Handler;
use crate::endpoints::journal::{Journal, JournalBounds};
use crate::endpoints::metrics::Metrics;
use crate::endpoints::{Endpoints, broken};
use crate::entropy::Entropy;
use crate::faults::{Broken, Described, Fault, FaultGuard, FaultRule, Faults, RestartLog, RuleError, WatchHandle};
use crate::options::{Authorization, ServerOptions};
use crate::registry::admission::AdmissionSetup;
use crate::registry::authorization::Rbac;
use crate::registry::scheme::codec;
use crate::registry::{Registry, Setup};
use crate::snapshot::{KeptSnapshots, Snapshot};
use crate::tasks::TaskGroup;
use crate::workers::{self, Host, Kubelet, Worker};
use backends::Backends;

/// A fake Kubernetes API server. Clones share the same server.
///
/// It runs in the caller's task: an in-process client calls it as a function, without a socket or a task of the server.
/// A test with a paused tokio clock therefore only depends on its seed. [`ApiServer::serve`] opens a port for other
/// processes.
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
    /// Shared, because each request clones the server.
    options: Arc<ServerOptions>,
    /// The tasks of the workers. They end when the server and its clients have been dropped.
    pub(crate) tasks: TaskGroup,
    /// The states saved by the control API, if it is enabled.
    pub(crate) control: Option<Arc<KeptSnapshots>>,
    kubelet: Kubelet,
}

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

impl ApiServer {
    pub(crate) fn assemble(
        Snapshot { world, definitions }: Snapshot,
        entropy: Entropy,
        mut options: ServerOptions,
        kubelet: impl FnOnce(Arc<Notify>) -> Kubelet,
    ) -> Self {
        let rbac = match options.authorization {
            Authorization::AlwaysAllow => None,
            Authorization::Rbac => Some(Rbac::new(options.workers.contains(&Worker::ClusterRoleAggregation))),
        };
        options.routes = options.routes.apart();
        let mut admission = AdmissionSetup {
            transport: Arc::new(options.routes.clone()),
            ..options.admission.clone()
        };
        admission.plugins.counts_quota |= options.workers.contains(&Worker::ResourceQuota);
        if !options.enablement.mutating_policies(options.version) {
            admission.plugins.turn_off("MutatingAdmissionPolicy");
        }
        let setup = Setup {
            logs: options.logs,
            event_ttl: options.event_ttl,
            compaction_interval: options.compaction_interval,
            removal_delay: options.removal_delay,
            authentication: options.authentication.clone(),
            tokens: options.tokens.clone(),
            rbac,
            admission,
            keeps_own_objects: options.kubernetes_service,
        };
        let registry = Registry::new(world, definitions, entropy, setup);
        registry.enable(options.version, &options.enablement);
        let endpoints = Arc::new(Endpoints {
            registry,
            faults: Faults::default(),
            journal: Journal::new(options.journal),
            audit: options.audit.clone(),
            metrics: Metrics::new(options.inflight),
            backends: Arc::new(Backends(options.routes.clone())),
            requests: AtomicU64::new(0),
        });
        let kubelet = kubelet(Arc::clone(&endpoints.registry.reader.committed));
        let tasks = TaskGroup::default();
        let host: Arc<dyn Host> = endpoints.clone();
        #[cfg(feature = "workers")]
        start_workers(&endpoints, &host, &options, &kubelet, &tasks);
        workers::expire_events(&host, &tasks);
        backends::check_remote(&endpoints, &options.routes, &tasks);
        Self {
            endpoints,
            options: Arc::new(options),
            tasks,
            control: None,
            kubelet,
        }
    }

    /// Returns a server with the state of a snapshot, for reading.
    pub(crate) fn of_snapshot(&self, snapshot: &Snapshot) -> Self {
        let entropy = self.endpoints.registry.reader.entropy.fork();
        let options = ServerOptions {
            journal: JournalBounds { entries: 1, bytes: 0 },
            workers: Vec::new(),
            event_ttl: None,
            ..ServerOptions::clone(&self.options)
        };
        Self::assemble(snapshot.clone(), entropy, options, Kubelet::new)
    }

    /// Returns the seed of all random numbers.
    pub fn seed(&self) -> u64 {
        self.endpoints.registry.reader.entropy.seed()
    }

    /// Returns the time of day on the server's clock.
    pub fn now(&self) -> Timestamp {
        self.endpoints.registry.reader.entropy.now()
    }

    /// Returns the newest resourceVersion.
    pub fn resource_version(&self) -> u64 {
        self.endpoints.registry.reader.store.revision()
    }

    /// Returns the number of Events that have been removed at the end of their lifetime; see
    /// [`event_ttl`](crate::ApiServerBuilder::event_ttl). Each removal uses a resourceVersion without a request.
    pub fn expired_events(&self) -> u64 {
        self.endpoints.registry.writer.event_leases.expired()
    }

    /// Returns the kubelet of all nodes, with which a test sets the behaviour of Pods. It only has an effect if the
    /// server was started with [`Worker::Kubelet`].
    #[cfg(feature = "workers")]
    pub fn kubelet(&self) -> &Kubelet {
        &self.kubelet
    }

    /// Returns the journal of requests, responses and watch events.
    pub fn journal(&self) -> &Journal {
        &self.endpoints.journal
    }

    /// Installs a rule that is called for every request for a resource that earlier rules pass, until the returned
    /// guard is dropped.
    pub fn inject(&self, fault: impl Fault + 'static) -> FaultGuard {
        let rules = &self.endpoints.faults.rules;
        rules.install(std::any::type_name_of_val(&fault).to_owned(), |_| fault)
    }

    /// Installs a fault described as data; dropping the guard removes it. Fails if the rule is invalid.
    pub fn inject_rule(&self, rule: FaultRule) -> Result<FaultGuard, RuleError> {
        rule.check()?;
        let (seed, rules) = (self.seed(), &self.endpoints.faults.rules);
        Ok(rules.install(rule.to_string(), |id| Described::new(rule, seed ^ id.rotate_right(16))))
    }

    /// Skews the clock of a client by a number of milliseconds; a positive number sets it ahead of the server's clock.
    /// The clock of the client's process is not changed. Instead, the times that the client writes into Leases and
    /// reads from them are shifted, which has the same effect on this and other clients. Protobuf bodies are not
    /// changed.
    pub fn skew_clock(&self, client: &str, ahead_ms: i64) {
        self.endpoints.faults.clocks.set(client, ahead_ms);
    }

    /// Simulates a restart: breaks all watches except [silenced](WatchHandle::silence) ones, and the connections of
    /// requests that a fault delays, holds or leaves without a response. New requests are refused for the duration
    /// `down`, except requests of `spared` clients. Stored objects are kept. If the log is lost, a watch that resumes
    /// from an earlier version fails with 410 Expired and its client must list again, as after a real server has
    /// rebuilt its watch cache.
    pub fn restart(&self, log: RestartLog, down: Duration, spared: &[&str]) {
        if log == RestartLog::Lost {
            self.compact();
        }
        self.endpoints.faults.restart(down, spared);
    }

    /// Returns the open watches, oldest first.
    pub fn watches(&self) -> Vec<WatchHandle> {
        self.endpoints.faults.watches.handles()
    }

    /// Compacts the history of all resources up to now, as etcd does: a watch that resumes from an earlier version
    /// fails with 410 Expired. Open watches continue.
    pub fn compact(&self) {
        self.endpoints.registry.writer.compact(self.resource_version());
    }

    /// Sets a service in this process that handles calls of webhooks and requests for aggregated API servers at `host`
    /// from now on. [`ApiServerBuilder::webhook`](crate::ApiServerBuilder::webhook) sets the service from the start.
    pub fn answer_webhooks<S>(&self, host: &str, service: S)
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Clone + Send + Sync + 'static,
        S::Future: Send,
    {
        self.options.routes.answer(host, Handler::new(service));
        self.endpoints.registry.routes_changed();
    }

    /// Sets the address at which webhooks and aggregated API servers of `host` are called from now on.
    /// [`ApiServerBuilder::webhook_address`](crate::ApiServerBuilder::webhook_address) sets it from the start. The host
    /// `*` matches every Service of a webhook that does not have its own route.
    pub fn webhook_address(&self, host: &str, address: std::net::SocketAddr) {
        self.options.routes.resolve(host, address);
        self.endpoints.registry.routes_changed();
    }

    /// Sets a function, for the testkit, that may delay or refuse calls of webhooks at configured addresses. It
    /// receives the host and the path of the call, and the call itself as a future, which it may await. If it returns
    /// an error, the call fails with this message.
    #[doc(hidden)]
    pub fn gate_webhooks(
        &self,
        gate: impl for<'a> Fn(&'a str, &'a str, BoxFuture<'a, ()>) -> BoxFuture<'a, Result<(), String>>
        + Send
        + Sync
        + 'static,
    ) {
        self.options.routes.gate(Arc::new(gate));
    }

    /// Returns the whole current state.
    pub fn snapshot(&self) -> Snapshot {
        let registry = &self.endpoints.registry;
        Snapshot {
            world: registry.reader.store.world(),
            definitions: registry.definitions.read(),
        }
    }

    /// Returns the whole state after the write with this revision; `None` if a later change is no longer in the
    /// [history](crate::ApiServerBuilder::history). For a future revision, returns the current state.
    ///
    /// ```
    /// use fake_apiserver::ApiServer;
    /// use serde_json::json;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    /// # let _in = runtime.enter();
    /// let server = ApiServer::start();
    /// let before = server.resource_version();
    /// server.load([json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}})])?;
    /// let then = server.snapshot_at(before).ok_or("the history no longer contains this revision")?;
    /// assert_eq!(server.diff(&then, &server.snapshot()).to_string(), "+ ConfigMap default/a\n");
    /// # Ok(())
    /// # }
    /// ```
    pub fn snapshot_at(&self, revision: u64) -> Option<Snapshot> {
        self.endpoints
            .registry
            .reader
            .store
            .world_at(revision)
            .ok()
            .map(Snapshot::from)
    }

    /// Returns the oldest revision for which [`snapshot_at`](Self::snapshot_at) returns a state.
    pub fn oldest_revision(&self) -> u64 {
        self.endpoints.registry.reader.store.floor()
    }

    /// Restores a state. Watches end, as when a server restarts; the resourceVersion is reset to the version of the
    /// state.
    pub fn restore(&self, snapshot: &Snapshot) {
        self.endpoints.registry.restore(snapshot.world.clone());
    }

    /// Returns a separate server with the same state, time and future random numbers. The two servers are independent
    /// afterwards. The fork has its own journal and workers, and starts without faults and watches.
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime, if the server has workers.
    #[must_use]
    pub fn fork(&self) -> Self {
        let registry = &self.endpoints.registry;
        let kubelet = |committed| self.kubelet.fork(committed);
        let fork = Self::assemble(
            self.snapshot(),
            registry.reader.entropy.fork(),
            ServerOptions::clone(&self.options),
            kubelet,
        );
        fork.endpoints
            .registry
            .writer
            .event_leases
            .adopt(&registry.writer.event_leases);
        fork.endpoints.registry.routes_changed();
        fork
    }

    /// Returns the server as a tower service without a socket. If a fault breaks the connection, the response is 502
    /// Bad Gateway, as from a proxy.
    pub fn service(
        &self,
    ) -> impl Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send>
    + Clone
    + Send
    + Sync
    + 'static {
        let (endpoints, tasks) = (Arc::clone(&self.endpoints), self.tasks.clone());
        tower::service_fn(move |request: Request<Body>| {
            // Keeps the workers running as long as the server has clients.
            let _ = &tasks;
            let endpoints = Arc::clone(&endpoints);
            async move { Ok(endpoints.handle(request).await) }
        })
    }

    /// Handles one request, without a client and without a socket. Reads the whole response, so the call for a watch
    /// returns when the watch ends. If a fault breaks the connection, the response is 502 Bad Gateway, as from a proxy.
    pub async fn call(&self, request: Request<impl Into<Bytes>>) -> Response<Bytes> {
        let request = request.map(|body| Body::from(body.into()));
        read_whole(Arc::clone(&self.endpoints).handle(request).await).await
    }

    /// Reads an object without a request or a journal entry. `namespace` is empty for cluster-scoped objects.
    pub async fn get(&self, api_version: &str, kind: &str, namespace: &str, name: &str) -> Result<Value, Status> {
        let registry = &self.endpoints.registry;
        let row = registry
            .reader
            .scheme()
            .lookup_kind(api_version, kind)
            .ok_or_else(Status::unknown_path)?;
        let key = crate::storage::Key::new(namespace, name);
        let stored = registry.reader.store.get(&row.storage, &key);
        let stored = stored.ok_or_else(|| Status::not_found(&row.info.group_resource(), name))?;
        registry
            .reader
            .convert_stored(&row, std::slice::from_ref(&stored))
            .await?;
        Ok(Value::Object(codec::decode(&row, &stored).0.into()))
    }

    /// Returns the uid of an object, without a request and without decoding it; `None` if the object does not exist, or
    /// if its kind is not served. `namespace` is ignored for cluster-scoped kinds.
    pub fn uid_of(&self, api_version: &str, kind: &str, namespace: &str, name: &str) -> Option<String> {
        let registry = &self.endpoints.registry;
        let row = registry.reader.scheme().lookup_kind(api_version, kind)?;
        let namespace = if row.info.is_namespaced() { namespace } else { "" };
        let key = crate::storage::Key::new(namespace, name);
        let stored = registry.reader.store.get(&row.storage, &key)?;
        Some(stored.body.uid.to_string())
    }

    /// Reads all objects of a kind, in the order of a list, without a request or a journal entry. An empty `namespace`
    /// selects all namespaces.
    pub async fn list(&self, api_version: &str, kind: &str, namespace: &str) -> Result<Vec<Value>, Status> {
        let registry = &self.endpoints.registry;
        let row = registry
            .reader
            .scheme()
            .lookup_kind(api_version, kind)
            .ok_or_else(Status::unknown_path)?;
        let range = crate::storage::KeyRange::of((!namespace.is_empty()).then_some(namespace));
        let snapshot = registry.reader.store.snapshot(&row.storage);
        let stored: Vec<_> = snapshot.range(&range).cloned().collect();
        registry.reader.convert_stored(&row, &stored).await?;
        let decoded = stored
            .iter()
            .map(|stored| Value::Object(codec::decode(&row, stored).0.into()));
        Ok(decoded.collect())
    }

    /// Returns the resource of a kind, with its plural name, scope and verbs; `None` if the kind is not served.
    pub fn resource(&self, api_version: &str, kind: &str) -> Option<ResourceInfo> {
        self.endpoints
            .registry
            .reader
            .scheme()
            .lookup_kind(api_version, kind)
            .map(|row| row.info.clone())
    }

    /// Returns the kind of a resource, such as `Pod` for `pods` in `v1`; `None` if it is not served.
    pub fn kind_of(&self, api_version: &str, resource: &str) -> Option<String> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let row = self
            .endpoints
            .registry
            .reader
            .scheme()
            .lookup(group, version, resource)?;
        Some(row.info.kind.to_string())
    }

    /// Returns all served resources, with an entry for each version: built-in ones first, then custom ones.
    pub fn resources(&self) -> Vec<ResourceInfo> {
        let scheme = self.endpoints.registry.reader.scheme();
        scheme.rows().map(|row| row.info.clone()).collect()
    }

    /// Returns `true` if the server runs this worker.
    pub fn runs(&self, worker: Worker) -> bool {
        self.options.workers.contains(&worker)
    }

    /// Returns `true` if the server runs any workers.
    pub fn has_workers(&self) -> bool {
        !self.options.workers.is_empty()
    }

    /// Stores objects without admission, including uid, status and times, such as the objects in a dump of a cluster. A
    /// missing uid or creationTimestamp is added; an object without uid and status is completed like a new object.
    /// Existing objects are replaced. CRDs are served immediately, so they must precede their objects. Returns the
    /// number of stored objects; stops at the first invalid one.
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
            let object = Object(map.into());
            let (kind, name) = (object.kind().to_owned(), object.name().to_owned());
            self.load_one(object)
                .map_err(|reason| LoadError { kind, name, reason })?;
            count += 1;
        }
        Ok(count)
    }

    fn load_one(&self, mut object: Object) -> Result<(), String> {
        let registry = &self.endpoints.registry;
        let row = registry
            .reader
            .scheme()
            .lookup_kind(object.api_version(), object.kind());
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

/// Starts the workers of a server, and the parts of the server that depend on them.
#[cfg(feature = "workers")]
fn start_workers(
    endpoints: &Arc<Endpoints>,
    host: &Arc<dyn Host>,
    options: &ServerOptions,
    kubelet: &Kubelet,
    tasks: &TaskGroup,
) {
    if options.workers.contains(&Worker::Kubelet) {
        endpoints.registry.set_pod_streams(kubelet.clone());
    }
    workers::start(host, &options.workers, kubelet, tasks);
    if options.workers.contains(&Worker::HorizontalPodAutoscaler) {
        metrics::serve(endpoints, kubelet, &options.routes);
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

/// Reads the whole body of a response. If a fault breaks the connection in the middle of the body, returns 502 Bad
/// Gateway.
async fn read_whole(response: Response<Body>) -> Response<Bytes> {
    let (parts, body) = response.into_parts();
    match body.collect().await {
        Ok(body) => Response::from_parts(parts, body.to_bytes()),
        Err(_) => {
            let (parts, text) = broken::no_answer(Broken::Reset).into_parts();
            let text = text.collect().await.map(|it| it.to_bytes());
            Response::from_parts(parts, text.unwrap_or_default())
        }
    }
}

#[cfg(test)]
mod tests;
