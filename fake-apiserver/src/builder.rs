//! `ApiServerBuilder`: the options of a server.

mod admission;

use std::borrow::Borrow;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::api::kubernetes_version::KubernetesVersion;
use crate::api::user::{Anonymous, UserInfo};
use crate::boot;
use crate::endpoints::audit::{Audit, AuditPolicy};
use crate::endpoints::metrics::InflightLimits;
use crate::entropy::{Entropy, time_of_day};
use crate::options::{Authorization, ServerOptions};
use crate::registry::scheme::enablement::Enablement;
use crate::server::ApiServer;
use crate::snapshot::{KeptSnapshots, Snapshot};
#[cfg(feature = "tls")]
use crate::tls::ServiceAccountKeys;
use crate::workers::{Kubelet, PodScript, PodSelector, Worker};

/// Options of an [`ApiServer`]. Everything has a default.
#[derive(Clone, Debug, Default)]
#[must_use = "a builder does nothing until `start` is called"]
pub struct ApiServerBuilder {
    seed: u64,
    start_time: Option<Timestamp>,
    options: ServerOptions,
    scripts: Vec<(PodSelector, PodScript)>,
    world: Option<Snapshot>,
    revision: u64,
    control: Option<Arc<KeptSnapshots>>,
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
}

impl ApiServerBuilder {
    /// The seed of all random numbers: uids, generated names, the length of watches. Default 0. What is there from the
    /// start has the same uids with every seed, but for [nodes](Self::nodes).
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// The time of day at the start; from there the clock goes with tokio's. Default: the machine's, to the second, so
    /// that a controller that reads the system's clock agrees with the server as long as virtual time does not jump.
    /// Servers that a process starts within a minute begin at the same second. A test that expects certain times sets
    /// them here.
    pub fn start_time(mut self, time: Timestamp) -> Self {
        self.start_time = Some(time);
        self
    }

    /// Returns the time of day that was set with [`start_time`](Self::start_time).
    pub fn configured_start_time(&self) -> Option<Timestamp> {
        self.start_time
    }

    /// Changes that the log of each resource keeps, within [`history_bytes`](Self::history_bytes). A watch or a
    /// continue token from before them is 410 Expired. Default 16,384, at least 1.
    pub fn history(mut self, changes: usize) -> Self {
        self.options.logs.changes = changes;
        self
    }

    /// Sets the bytes that the logs of all resources keep together, in earlier states of objects and in watch events.
    /// Beyond them the oldest changes of any resource are dropped, and a watch or a continue token from before them is
    /// 410 Expired. Default 32 MiB; the newest change is always kept.
    ///
    /// ```
    /// use fake_apiserver::ApiServer;
    ///
    /// let server = ApiServer::builder().history_bytes(1 << 20).start();
    /// # drop(server);
    /// ```
    pub fn history_bytes(mut self, bytes: usize) -> Self {
        self.options.logs.bytes = bytes;
        self
    }

    /// Entries that the journal keeps; the oldest are dropped first. Default 65,536, at least 1.
    pub fn journal_capacity(mut self, entries: usize) -> Self {
        self.options.journal.entries = entries;
        self
    }

    /// Bytes of bodies, answers and event lines that the journal keeps. Beyond them the oldest entries are kept without
    /// theirs; [`RecordedRequest::is_cut`](crate::RecordedRequest) and [`RecordedEvent::is_cut`](crate::RecordedEvent)
    /// say so. 0 keeps none. Default 32 MiB.
    pub fn journal_bytes(mut self, bytes: usize) -> Self {
        self.options.journal.bytes = bytes;
        self
    }

    /// Nodes that are there from the start, `node-0` and so on, all ready. Default 0: then Pods are put on `node-0`,
    /// of which there is no object, and DaemonSets want none.
    pub fn nodes(mut self, count: usize) -> Self {
        self.options.nodes = count;
        self
    }

    /// Creates the Service `default/kubernetes` at the start, with its Endpoints, its EndpointSlice and the ServiceCIDR
    /// `kubernetes`, as kube-apiserver writes them: cluster IP 10.0.0.1, port 443, at the address 192.0.2.1, where
    /// nothing answers. The ConfigMaps of `kube-system` that publish the server's authorities and the tracking of
    /// tokens are created, too, and the APIServices of what is served are kept, those of CRDs included. Off by default,
    /// so that a test that lists Services finds only its own; the command `fake-apiserver` turns it on. Nothing
    /// recreates the Service when it is deleted.
    pub fn kubernetes_service(mut self, is_there: bool) -> Self {
        self.options.kubernetes_service = is_there;
        self
    }

    /// The range of cluster IPs of IPv4, such as `10.0.0.0/24`, which the ServiceCIDR `kubernetes` then says. It counts
    /// with [`kubernetes_service`](Self::kubernetes_service). Default 10.0.0.0/16. Fails if it is no range that
    /// kube-apiserver would take in `--service-cluster-ip-range`.
    pub fn service_cluster_ip_range(mut self, range: &str) -> Result<Self, String> {
        self.options.cluster_range = range.parse()?;
        Ok(self)
    }

    /// Sets the endpoint of the Service `kubernetes`: the `--advertise-address` and `--secure-port` of kube-apiserver.
    /// It counts with [`kubernetes_service`](Self::kubernetes_service).
    pub fn kubernetes_endpoint(mut self, at: SocketAddr) -> Self {
        self.options.kubernetes_endpoint = at;
        self
    }

    /// Sets the time after its last write at which an Event is removed, which its watchers receive as `DELETED`: the
    /// `--event-ttl` of kube-apiserver, and like there one hour by default. A test that reads Events after hours of
    /// virtual time passes `None`: then they stay. While there is no Event there is no timer. After
    /// [`ApiServer::restore`], and in a server that begins with a [`world`](Self::world), the lifetime of each Event
    /// restarts, as when etcd restarts; a fork keeps that of its origin.
    pub fn event_ttl(mut self, ttl: impl Into<Option<Duration>>) -> Self {
        self.options.event_ttl = ttl.into();
        self
    }

    /// Sets the time between compactions: at each of them revisions from before the last one are forgotten, so that
    /// exact lists and continue tokens expire after one to two intervals, on the server's clock. `None`: only the
    /// bounds of [`history`](Self::history) count, which are those of watches, too. Default 5 minutes, after
    /// `--etcd-compaction-interval` of kube-apiserver.
    ///
    /// ```
    /// use std::time::Duration;
    /// use fake_apiserver::ApiServer;
    ///
    /// let server = ApiServer::builder().compaction_interval(Duration::from_secs(60)).start();
    /// # drop(server);
    /// ```
    pub fn compaction_interval(mut self, interval: impl Into<Option<Duration>>) -> Self {
        self.options.compaction_interval = interval.into();
        self
    }

    /// Sets the version of Kubernetes that is served: its resources, types, OpenAPI and discovery documents, `/version`
    /// and defaults of feature gates. Default 1.36. `docs/kubernetes-versions.md` of this crate says which of its rules
    /// follow the version.
    ///
    /// ```
    /// use fake_apiserver::{ApiServer, KubernetesVersion};
    ///
    /// let server = ApiServer::builder().kubernetes_version(KubernetesVersion::V1_37).start();
    /// assert!(server.resource("resource.k8s.io/v1", "DeviceTaintRule").is_some());
    /// assert!(ApiServer::builder().start().resource("resource.k8s.io/v1", "DeviceTaintRule").is_none());
    /// ```
    pub fn kubernetes_version(mut self, version: KubernetesVersion) -> Self {
        self.options.version = version;
        self
    }

    /// Sets the time between the two writes by which a Pod without a grace period goes: one marks it (`MODIFIED`), the
    /// next removes it (`DELETED`). Default zero: no request comes between them. The command waits 5 ms, about the time
    /// of a write to etcd, so that controllers which act on the mark find it in their caches as in a cluster.
    ///
    /// ```
    /// use std::time::Duration;
    /// use fake_apiserver::ApiServer;
    ///
    /// let server = ApiServer::builder().removal_delay(Duration::from_millis(5)).start();
    /// # drop(server);
    /// ```
    pub fn removal_delay(mut self, delay: Duration) -> Self {
        self.options.removal_delay = delay;
        self
    }

    /// Turns built-in APIs off, and some of them on again, by the pairs of kube-apiserver's `--runtime-config`:
    /// `apps/v1=false`, `batch/v1/cronjobs=false`, `api/all=false`. The core group stays. Fails with the first
    /// pair that cannot be served, such as those of alpha and beta APIs.
    ///
    /// ```
    /// use fake_apiserver::ApiServer;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let server = ApiServer::builder().runtime_config(["apps/v1=false"])?.start();
    /// assert!(server.resource("apps/v1", "Deployment").is_none());
    /// assert!(ApiServer::builder().runtime_config(["api/beta=true"]).is_err());
    /// # Ok(())
    /// # }
    /// ```
    pub fn runtime_config(mut self, pairs: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Self, String> {
        let pairs: Vec<_> = pairs.into_iter().collect();
        self.options.enablement = Enablement::parse(pairs.iter().map(AsRef::as_ref))?;
        Ok(self)
    }

    /// Records requests as events of `audit.k8s.io/v1`, as far as the policy asks for them: `sink` gets each as a line
    /// of JSON with its line end, at the moment of its stage. After `--audit-policy-file` of kube-apiserver.
    ///
    /// ```
    /// use fake_apiserver::{ApiServer, AuditPolicy};
    ///
    /// # fn main() -> Result<(), fake_apiserver::AuditPolicyError> {
    /// let policy = AuditPolicy::parse("{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: Metadata}]}")?;
    /// let server = ApiServer::builder().audit(policy, |line: &str| assert!(line.ends_with("}\n"))).start();
    /// # drop(server);
    /// # Ok(()) }
    /// ```
    pub fn audit(mut self, policy: AuditPolicy, sink: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.options.audit = Some(Audit {
            policy: Arc::new(policy),
            sink: Arc::new(sink),
        });
        self
    }

    /// Limits the requests in progress at once: those that read, and those that write; 0 is no limit, the
    /// default. Watches and connections do not count. One more is answered 429 with `Retry-After`, unless its user is
    /// in `system:masters`: the `--max-requests-inflight` and `--max-mutating-requests-inflight` of kube-apiserver
    /// without priority and fairness.
    ///
    /// ```
    /// use fake_apiserver::ApiServer;
    ///
    /// let server = ApiServer::builder().max_requests_inflight(400, 200).start();
    /// # drop(server);
    /// ```
    pub fn max_requests_inflight(mut self, read_only: usize, mutating: usize) -> Self {
        self.options.inflight = InflightLimits { read_only, mutating };
        self
    }

    /// Runs these parts of a cluster with the server, besides earlier ones. Default: none, as if the API
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

    /// Sets the behaviour of some Pods from the start, as [`Kubelet::script`] does later. It counts where
    /// [`Worker::Kubelet`] runs; of several scripts for one Pod the last given counts.
    ///
    /// ```
    /// use fake_apiserver::{ApiServer, ExecOutput, PodScript, PodSelector, Worker};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let database = PodSelector::labelled("app=db").expect("it is a selector");
    /// let server = ApiServer::builder()
    ///     .workers(Worker::ALL)
    ///     .pod_script(database, PodScript::default().on_exec(|_, _| ExecOutput::stdout("accepting connections\n")))
    ///     .start();
    /// # let _ = server;
    /// # }
    /// ```
    pub fn pod_script(mut self, pods: PodSelector, script: PodScript) -> Self {
        self.scripts.push((pods, script));
        self
    }

    /// Sets the authorization mode. Default: every user may do everything.
    ///
    /// ```
    /// use fake_apiserver::{ApiServer, Authorization};
    /// use http::Request;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let server = ApiServer::builder()
    ///     .authorization(Authorization::Rbac)
    ///     .token("s3cret", "jane", ["devs"])
    ///     .start();
    /// let ask = |path: &str| Request::get(path).header("authorization", "Bearer s3cret").body("");
    /// assert_eq!(server.call(ask("/version")?).await.status(), 200);
    /// assert_eq!(server.call(ask("/api/v1/nodes")?).await.status(), 403);
    /// # Ok(())
    /// # }
    /// ```
    pub fn authorization(mut self, authorization: Authorization) -> Self {
        self.options.authorization = authorization;
        self.options.authentication.has_rights = authorization != Authorization::AlwaysAllow;
        self
    }

    /// A bearer token, and the user who shows it; everyone who has a token is in `system:authenticated`, too. The
    /// user's uid is the name, since a real server's token file asks for one. The same token again replaces the user.
    pub fn token(
        mut self,
        token: impl Into<String>,
        user: impl Into<String>,
        groups: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        let mut user = UserInfo::new(user, groups);
        user.uid.clone_from(&user.name);
        let user = Arc::new(user);
        self.options.authentication.tokens.insert(token.into(), user);
        self
    }

    /// Sets the identity of requests without credentials under RBAC. Default: the administrator. Without authorization
    /// they are always the administrator's, unless [`Anonymous::Refused`] makes everybody show credentials.
    pub fn anonymous(mut self, anonymous: Anonymous) -> Self {
        self.options.authentication.anonymous = anonymous;
        self
    }

    /// Sets the keys of ServiceAccounts' tokens. Default: an HMAC key made from the seed, so that a run is a function
    /// of it; then anyone who knows the seed can make tokens, and `/openid/v1/jwks` is 404.
    #[cfg(feature = "tls")]
    pub fn service_account_keys(mut self, keys: ServiceAccountKeys) -> Self {
        self.options.tokens.signer = Some(Arc::new(keys));
        self
    }

    /// Sets the issuers of ServiceAccounts' tokens: the first issues them, tokens of the others are accepted, too.
    /// Default `https://kubernetes.default.svc.cluster.local`. After `--service-account-issuer` of kube-apiserver.
    pub fn service_account_issuers(mut self, issuers: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.options.tokens.issuers = issuers.into_iter().map(Into::into).collect();
        self
    }

    /// For whom a token must be to be believed. Default: the issuers. After `--api-audiences` of kube-apiserver.
    pub fn api_audiences(mut self, audiences: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.options.tokens.audiences = audiences.into_iter().map(Into::into).collect();
        self
    }

    /// Serves the control API below `/_fake`, through which a test in another process injects faults and inspects the
    /// server; see [`control`](crate::control). It shows and writes all objects, Secrets included, without regard to
    /// Roles, so it is for users in `system:masters` alone; without RBAC every user is one.
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

    /// The revision from which the server counts on, if its state is not further. Default: that of the state. Real
    /// servers come to revisions that 32 bits do not hold.
    pub fn revision(mut self, revision: u64) -> Self {
        self.revision = revision;
        self
    }

    /// Starts the server. Without a [`world`](Self::world) it has the namespaces `default`, `kube-system`,
    /// `kube-public` and `kube-node-lease`, the PriorityClasses of the system, and under RBAC its ClusterRoles. They
    /// are made once a process and shared, so the first start takes longer than those after it.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime, if it has [workers](Self::workers).
    pub fn start(self) -> ApiServer {
        let start_time = self.start_time.unwrap_or_else(time_of_day);
        let entropy = Entropy::new(self.seed, start_time);
        let nodes = if self.world.is_none() { self.options.nodes } else { 0 };
        let world = match self.world {
            Some(snapshot) => snapshot.0,
            None => boot::world(&self.options, start_time),
        };
        let world = world.advanced_to(self.revision);
        let mut server = ApiServer::assemble(world, entropy, self.options, Kubelet::new);
        for (pods, script) in self.scripts {
            server.kubelet().script(pods, script);
        }
        server.control = self.control;
        boot::load_nodes(&server, nodes);
        server
    }
}
