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
use crate::workers::{Kubelet, Worker};
#[cfg(feature = "workers")]
use crate::workers::{PodScript, PodSelector};

/// Options of an [`ApiServer`]. All options have defaults.
#[derive(Clone, Debug, Default)]
#[must_use = "a builder does nothing until `start` is called"]
pub struct ApiServerBuilder {
    seed: u64,
    start_time: Option<Timestamp>,
    options: ServerOptions,
    #[cfg(feature = "workers")]
    scripts: Vec<(PodSelector, PodScript)>,
    world: Option<Snapshot>,
    revision: u64,
    control: Option<Arc<KeptSnapshots>>,
}

impl ApiServer {
    /// Starts a server with all defaults.
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// Returns a builder for an [`ApiServer`].
    pub fn builder() -> ApiServerBuilder {
        ApiServerBuilder::default()
    }
}

impl ApiServerBuilder {
    /// Sets the seed of all random values: uids, generated names, the durations of watches. Default 0. Initial objects
    /// have the same uids with every seed, except [nodes](Self::nodes).
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Sets the time of day at the start of the server; afterwards the clock advances with tokio's. Default: the
    /// machine's time in whole seconds. Servers that a process starts within a minute have the same default, so that
    /// they can share their initial objects. Tests that expect specific times should set it.
    pub fn start_time(mut self, time: Timestamp) -> Self {
        self.start_time = Some(time);
        self
    }

    /// Returns the time of day that was set with [`start_time`](Self::start_time); `None` for the default.
    pub fn configured_start_time(&self) -> Option<Timestamp> {
        self.start_time
    }

    /// Sets the number of changes that the log of each resource keeps, within [`history_bytes`](Self::history_bytes). A
    /// watch or a continue token from an earlier version fails with 410 Expired. Default 16,384, at least 1.
    pub fn history(mut self, changes: usize) -> Self {
        self.options.logs.changes = changes;
        self
    }

    /// Sets the maximum size of the logs of all resources together, in bytes. The size includes earlier states of
    /// objects and watch events. Above this size the oldest changes of any resource are dropped, and a watch or a
    /// continue token from an earlier version fails with 410 Expired. Default 32 MiB; the newest change is always kept.
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

    /// Sets the number of entries that the journal keeps; the oldest are dropped first. Default 65,536, at least 1.
    pub fn journal_capacity(mut self, entries: usize) -> Self {
        self.options.journal.entries = entries;
        self
    }

    /// Sets the maximum total size of request bodies, responses and event lines in the journal, in bytes. Above it, the
    /// oldest entries lose their bodies, and [`RecordedRequest::is_cut`](crate::RecordedRequest) and
    /// [`RecordedEvent::is_cut`](crate::RecordedEvent) are set. 0 disables their recording. Default 32 MiB.
    pub fn journal_bytes(mut self, bytes: usize) -> Self {
        self.options.journal.bytes = bytes;
        self
    }

    /// Sets the number of initial nodes. They are named `node-0` and so on, and are ready, with 8 CPUs, 16 GiB and 110
    /// Pods each. Default: 0. Without nodes, [`Worker::Kubelet`] registers `node-0` when the first Pod or DaemonSet
    /// needs one. Ignored with a [`world`](Self::world).
    pub fn nodes(mut self, count: usize) -> Self {
        self.options.nodes = count;
        self
    }

    /// Creates the Service `default/kubernetes` at the start, with its Endpoints, its EndpointSlice and the ServiceCIDR
    /// `kubernetes`, as kube-apiserver does. By default its cluster IP is 10.0.0.1, its port 443, and its endpoint the
    /// unused address 192.0.2.1. This option also creates the other initial objects of kube-apiserver, such as
    /// FlowSchemas, ClusterRoles, APIServices and ConfigMaps of `kube-system`. It maintains the APIServices of CRDs,
    /// and the IPAddresses of cluster IPs. Off by default, so that a test that lists Services only finds its own
    /// Services; the command `fake-apiserver` turns it on. The Service is not recreated after a delete. With a
    /// [`world`](Self::world), the initial objects are not created.
    pub fn kubernetes_service(mut self, is_there: bool) -> Self {
        self.options.kubernetes_service = is_there;
        self
    }

    /// Sets the range of IPv4 cluster IPs, such as `10.0.0.0/24`, which the ServiceCIDR `kubernetes` contains. It only
    /// has an effect with [`kubernetes_service`](Self::kubernetes_service). Default 10.0.0.0/16. Fails if
    /// kube-apiserver would refuse the range in `--service-cluster-ip-range`.
    pub fn service_cluster_ip_range(mut self, range: &str) -> Result<Self, String> {
        self.options.cluster_range = range.parse()?;
        Ok(self)
    }

    /// Sets the endpoint of the Service `kubernetes`: the `--advertise-address` and `--secure-port` of kube-apiserver.
    /// It has an effect only with [`kubernetes_service`](Self::kubernetes_service).
    pub fn kubernetes_endpoint(mut self, at: SocketAddr) -> Self {
        self.options.kubernetes_endpoint = at;
        self
    }

    /// Sets the lifetime of an Event after its last write. An expired Event is removed, and its watchers receive
    /// `DELETED`. This is kube-apiserver's `--event-ttl`, which is also one hour by default. A test that reads Events
    /// after hours of virtual time passes `None` to keep them. The server has a timer only while Events exist. After
    /// [`ApiServer::restore`], and in a server that starts with a [`world`](Self::world), the lifetime of each Event
    /// restarts, as when etcd restarts; a fork keeps the remaining lifetimes.
    pub fn event_ttl(mut self, ttl: impl Into<Option<Duration>>) -> Self {
        self.options.event_ttl = ttl.into();
        self
    }

    /// Sets the time between compactions. Each compaction removes the revisions from before the previous one, so that
    /// exact lists and continue tokens expire after one to two intervals, on the server's clock. With `None` only the
    /// limits of [`history`](Self::history) apply, which also apply to watches. Default 5 minutes, as for
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
    /// and defaults of feature gates. Default 1.36. `docs/kubernetes-versions.md` of this crate lists the rules that
    /// depend on the version.
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

    /// Sets the time between the two writes that delete a Pod without a grace period: the first one sets the deletion
    /// timestamp (`MODIFIED`), the next one removes the Pod (`DELETED`). Default zero: no request is handled between
    /// them. The command `fake-apiserver` uses 5 ms, about the time of a write to etcd, so that controllers which react
    /// to the first write find the Pod in their caches, as in a cluster.
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

    /// Enables and disables built-in APIs, in the format of kube-apiserver's `--runtime-config`: `apps/v1=false`,
    /// `batch/v1/cronjobs=false`, `resource.k8s.io/v1beta1=true`, `api/all=true`. The core group cannot be disabled.
    /// Fails if a pair is invalid, or if it names an API that no version of Kubernetes supports. A server does not
    /// [start](Self::start) if its version of Kubernetes lacks one of these APIs.
    ///
    /// Alpha and beta versions are off by default. Each version of Kubernetes has the APIs of its kube-apiserver; some
    /// of their resources also need a feature gate: see [`feature_gates`](Self::feature_gates).
    ///
    /// ```
    /// use fake_apiserver::ApiServer;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let server = ApiServer::builder().runtime_config(["apps/v1=false"])?.start();
    /// assert!(server.resource("apps/v1", "Deployment").is_none());
    /// let server = ApiServer::builder().runtime_config(["api/beta=true"])?.start();
    /// assert!(server.resource("resource.k8s.io/v1beta1", "ResourceClaim").is_some());
    /// assert!(ApiServer::builder().runtime_config(["resource.k8s.io/v1alpha9=true"]).is_err());
    /// # Ok(())
    /// # }
    /// ```
    pub fn runtime_config(mut self, pairs: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Self, String> {
        let pairs: Vec<_> = pairs.into_iter().collect();
        self.options.enablement.configure(pairs.iter().map(AsRef::as_ref))?;
        Ok(self)
    }

    /// Enables feature gates that APIs need, such as `ClusterTrustBundle`, `PodCertificateRequest` and
    /// `GenericWorkload`, or `MutatingAdmissionPolicy` to apply the policies of 1.33 to 1.35. The APIs themselves are
    /// enabled with [`runtime_config`](Self::runtime_config). Fields of other APIs that need these gates stay disabled.
    /// Fails with the first name that is not such a gate.
    ///
    /// ```
    /// use fake_apiserver::ApiServer;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let builder = ApiServer::builder().runtime_config(["certificates.k8s.io/v1beta1=true"])?;
    /// let server = builder.feature_gates(["ClusterTrustBundle"])?.start();
    /// assert!(server.resource("certificates.k8s.io/v1beta1", "ClusterTrustBundle").is_some());
    /// # Ok(())
    /// # }
    /// ```
    pub fn feature_gates<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        self.options.enablement.open(names)?;
        Ok(self)
    }

    /// Returns the feature gates that APIs need and that are off by default in some version of Kubernetes, sorted; see
    /// [`feature_gates`](Self::feature_gates).
    pub fn api_feature_gates() -> Vec<&'static str> {
        let gates: std::collections::BTreeSet<_> = Enablement::api_gates().collect();
        gates.into_iter().collect()
    }

    /// Returns the resources that are enabled with [`runtime_config`](Self::runtime_config) but not served because a
    /// feature gate is off: `group/version/resource`, and the gate.
    ///
    /// # Errors
    ///
    /// Fails if [`runtime_config`](Self::runtime_config) contains an API that the selected version of Kubernetes lacks.
    /// Such a server does not [start](Self::start).
    pub fn withheld_apis(&self) -> Result<Vec<(String, &'static str)>, String> {
        self.options.enablement.check(self.options.version)?;
        Ok(self.options.enablement.withheld(self.options.version))
    }

    /// Serves API versions that Kubernetes no longer serves, for old controllers: `autoscaling/v2beta2`,
    /// `batch/v1beta1` and `policy/v1beta1`. They return the objects of the stable versions with the semantics of the
    /// stable versions: for example, an empty selector of a PodDisruptionBudget selects all Pods. Fails with the first
    /// version in the list that is not one of these three.
    ///
    /// ```
    /// use fake_apiserver::ApiServer;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let server = ApiServer::builder().retired_apis(["policy/v1beta1"])?.start();
    /// assert!(server.resource("policy/v1beta1", "PodDisruptionBudget").is_some());
    /// # Ok(())
    /// # }
    /// ```
    pub fn retired_apis<'a>(mut self, versions: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        self.options.enablement.retire(versions)?;
        Ok(self)
    }

    /// Records the requests that the policy selects as events of `audit.k8s.io/v1`, like `--audit-policy-file` of
    /// kube-apiserver. When a request reaches a stage, `sink` receives the event as a line of JSON with a newline.
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

    /// Limits the number of concurrent reads and the number of concurrent writes; 0 means no limit, the default.
    /// Watches and connections are not counted. Requests above the limit fail with 429 and `Retry-After`, unless the
    /// user is in `system:masters`. These are `--max-requests-inflight` and `--max-mutating-requests-inflight` of
    /// kube-apiserver without priority and fairness.
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

    /// Adds workers that run with the server. By default no workers run, as in a cluster that only has an API server.
    /// Most [workers](Worker) need the feature `workers`.
    ///
    /// They run in virtual time and in a fixed order. Work that takes a controller-manager a few milliseconds takes no
    /// virtual time. The journal contains their requests and marks them
    /// ([`RecordedRequest::worker`](crate::RecordedRequest)).
    ///
    /// ```
    /// use fake_apiserver::{ApiServer, Worker};
    /// use serde_json::json;
    ///
    /// # #[cfg(not(feature = "workers"))]
    /// # fn main() {}
    /// # #[cfg(feature = "workers")]
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

    /// Sets the behaviour of the selected Pods from the start, as [`Kubelet::script`] does later. It only has an effect
    /// with [`Worker::Kubelet`]. If several scripts match a Pod, the last one applies.
    ///
    /// ```
    /// use fake_apiserver::{ApiServer, ExecOutput, PodScript, PodSelector, Worker};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let database = PodSelector::labelled("app=db").expect("the selector is valid");
    /// let server = ApiServer::builder()
    ///     .workers(Worker::ALL)
    ///     .pod_script(database, PodScript::default().on_exec(|_, _| ExecOutput::stdout("accepting connections\n")))
    ///     .start();
    /// # let _ = server;
    /// # }
    /// ```
    #[cfg(feature = "workers")]
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

    /// Adds a bearer token and its user. Every user with a token is also in `system:authenticated`. The user's uid is
    /// the user's name, since a token file of kube-apiserver requires a uid. Adding the same token again replaces the
    /// user.
    pub fn token(
        self,
        token: impl Into<String>,
        user: impl Into<String>,
        groups: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        let user = user.into();
        self.token_with_uid(token, user.clone(), user, groups)
    }

    /// Like [`token`](Self::token), with a separate uid, as in a line of kube-apiserver's token file.
    pub fn token_with_uid(
        mut self,
        token: impl Into<String>,
        user: impl Into<String>,
        uid: impl Into<String>,
        groups: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        let mut user = UserInfo::new(user, groups);
        user.uid = uid.into();
        let user = Arc::new(user);
        self.options.authentication.tokens.insert(token.into(), user);
        self
    }

    /// Sets the identity of requests without credentials under RBAC. Default: the administrator. Without RBAC, the
    /// identity is always the administrator, unless [`Anonymous::Refused`] requires credentials.
    pub fn anonymous(mut self, anonymous: Anonymous) -> Self {
        self.options.authentication.anonymous = anonymous;
        self
    }

    /// Sets the keys of ServiceAccount tokens. Default: an HMAC key derived from the seed, so that runs with the same
    /// seed create the same tokens. With this default, anyone who has the seed can create tokens, and `/openid/v1/jwks`
    /// returns 404.
    #[cfg(feature = "tls")]
    pub fn service_account_keys(mut self, keys: ServiceAccountKeys) -> Self {
        self.options.tokens.signer = Some(Arc::new(keys));
        self
    }

    /// Sets the issuers of ServiceAccount tokens: new tokens have the first issuer; tokens of all issuers are accepted.
    /// Default `https://kubernetes.default.svc.cluster.local`. Corresponds to `--service-account-issuer` of
    /// kube-apiserver.
    pub fn service_account_issuers(mut self, issuers: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.options.tokens.issuers = issuers.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the accepted audiences of tokens. Default: the issuers. Corresponds to `--api-audiences` of kube-apiserver.
    pub fn api_audiences(mut self, audiences: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.options.tokens.audiences = audiences.into_iter().map(Into::into).collect();
        self
    }

    /// Serves the control API below `/_fake`, through which a test in another process injects faults and inspects the
    /// server; see [`control`](crate::control). It reads and writes all objects, including Secrets, without regard to
    /// Roles, so only users in `system:masters` may use it. By default, requests without a token are in this group.
    #[cfg(feature = "serve")]
    pub fn control_api(mut self) -> Self {
        self.control = Some(Arc::default());
        self
    }

    /// Starts with this state, but with a new clock and a new random number generator. [`ApiServer::fork`] continues
    /// with the clock and the random number generator of another server.
    pub fn world(mut self, world: &Snapshot) -> Self {
        self.world = Some(world.clone());
        self
    }

    /// Sets a lower bound for the `resourceVersion` of the initial state. Default: the version at which the initial
    /// objects were written. Versions of real servers can exceed 32 bits.
    pub fn revision(mut self, revision: u64) -> Self {
        self.revision = revision;
        self
    }

    /// Starts the server. Without a [`world`](Self::world) it has the namespaces `default`, `kube-system`,
    /// `kube-public` and `kube-node-lease`, the PriorityClasses of the system, and under RBAC the default roles and
    /// role bindings of kube-apiserver. The servers of a process share these objects, so the first start takes longer
    /// than later ones.
    ///
    /// # Panics
    ///
    /// If it is called outside of a tokio runtime although [workers](Self::workers) are configured. If a worker needs
    /// the feature `workers` and the feature is off. If [`runtime_config`](Self::runtime_config) names an API that the
    /// selected version of Kubernetes lacks; see [`withheld_apis`](Self::withheld_apis).
    pub fn start(self) -> ApiServer {
        if let Err(why) = self.options.enablement.check(self.options.version) {
            panic!("the server cannot start with this runtime config: {why}");
        }
        if let Some(worker) = self.options.workers.iter().find(|it| !it.is_available()) {
            panic!(
                "`Worker::{worker:?}` needs the feature `workers` of the crate `fake-apiserver` or `drydock-testkit`"
            );
        }
        let start_time = self.start_time.unwrap_or_else(time_of_day);
        let entropy = Entropy::new(self.seed, start_time);
        let nodes = if self.world.is_none() { self.options.nodes } else { 0 };
        let state = match self.world {
            Some(snapshot) => snapshot,
            None => Snapshot::from(boot::world(&self.options, start_time)),
        };
        let state = Snapshot {
            world: state.world.advanced_to(self.revision),
            ..state
        };
        let mut server = ApiServer::assemble(state, entropy, self.options, Kubelet::new);
        #[cfg(feature = "workers")]
        for (pods, script) in self.scripts {
            server.kubelet().script(pods, script);
        }
        server.control = self.control;
        boot::load_nodes(&server, nodes);
        server.endpoints.registry.routes_changed();
        if let Some(kept) = &server.control {
            kept.start_at(server.resource_version());
        }
        server
    }
}

#[cfg(all(test, not(feature = "workers")))]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::garbage_collector(Worker::GarbageCollector)]
    #[case::kubelet(Worker::Kubelet)]
    #[should_panic(expected = "needs the feature `workers`")]
    fn worker_is_refused_without_its_feature(#[case] worker: Worker) {
        ApiServer::builder().workers([worker]).start();
    }

    #[rstest]
    #[case::quotas(Worker::ResourceQuota)]
    #[case::cluster_roles(Worker::ClusterRoleAggregation)]
    fn worker_that_runs_with_each_write_needs_no_feature(#[case] worker: Worker) {
        assert!(ApiServer::builder().workers([worker]).start().runs(worker));
    }
}
