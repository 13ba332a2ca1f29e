//! A real API server behind a [`TestCluster`], for tests that use only features of real servers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::Duration;

use fake_apiserver::{ApiServer, WatchEventKind};
use http::Request;
use kube::Client;
use serde_json::Value;

use crate::bounds::Bounds;
use crate::lock::lock;
use crate::target::ObjectId;
use crate::test_cluster::{TEST_CLIENT, TestCluster};

/// Time without a change after which `settle` returns on a real server.
const QUIET: Duration = Duration::from_secs(1);

/// Resources that are not read, for example because they change all the time or duplicate other resources.
const PASSED_OVER: [&str; 3] = ["leases", "componentstatuses", "events.events.k8s.io"];

/// The connection to a real server, and a copy of its state.
#[derive(Debug)]
pub(crate) struct Real {
    pub(crate) client: DebugClient,
    /// The copy of the server's state.
    known: Mutex<Known>,
}

/// A client that is not printed by `Debug`.
pub(crate) struct DebugClient(Client);

impl std::fmt::Debug for DebugClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Client")
    }
}

#[derive(Debug, Default)]
struct Known {
    /// ResourceVersion and content of each object, by uid.
    objects: BTreeMap<String, (String, Value)>,
    /// Operations that the test called but the real server does not support.
    skipped: BTreeSet<&'static str>,
    /// The paths of all resources that can be listed. Fetched again after a CRD is created or changed.
    paths: Option<Vec<String>>,
    /// Objects that the test created, oldest first.
    created: Vec<ObjectId>,
}

impl TestCluster {
    /// Connects to a real API server: envtest, kind, or a `fake-apiserver` in another process. Use a dedicated test
    /// cluster, because tests create and delete objects.
    ///
    /// Time is not virtual, and `settle` waits for one second without a change. The state is read after each step of
    /// the test by listing all resources except for Leases, component statuses and duplicates of Events, so the cluster
    /// should be small; objects of kinds that this crate does not support are ignored. Requests of controllers that use
    /// [`TestCluster::client`] are recorded, and faults affect them. Operations that a real server does not support are
    /// skipped and listed by [`TestCluster::skipped`]. Use the runtime of `#[tokio::test]` without options; a paused
    /// clock is resumed.
    ///
    /// ```no_run
    /// # async fn my_controller(_: kube::Client) {}
    /// # async fn test(client: kube::Client) {
    /// use testkit::{TestCluster, objects::pod};
    ///
    /// let cluster = TestCluster::connect(client).await; // from kube::Client::try_default(), which reads KUBECONFIG
    /// cluster.run(my_controller(cluster.client()));
    /// cluster.create(pod("web-0")).await;
    /// cluster.settle().await;
    /// cluster.clean_up().await;
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// Outside of a `current_thread` tokio runtime.
    pub async fn connect(client: Client) -> Self {
        let bounds = Bounds {
            quiet: QUIET,
            is_real: true,
            ..Bounds::default()
        };
        let mut cluster = Self::over(ApiServer::start(), bounds);
        cluster.real = Some(Real {
            client: DebugClient(client),
            known: Mutex::default(),
        });
        // Remove the initial objects of this crate's own server.
        let empty = cluster.server.objects(&cluster.server.snapshot());
        for object in empty {
            let _ = cluster.server.apply_event(WatchEventKind::Deleted, object);
        }
        cluster.refresh().await;
        cluster
    }

    /// Returns `true` if the cluster is a real API server.
    pub fn is_real(&self) -> bool {
        self.real.is_some()
    }

    /// Returns the operations that the test called but the real server does not support, by name, such as `restart`.
    /// Empty for this crate's own server.
    pub fn skipped(&self) -> Vec<&'static str> {
        let known = self.real.as_ref().map(|real| lock(&real.known));
        known.map(|it| it.skipped.iter().copied().collect()).unwrap_or_default()
    }

    /// Deletes the objects that the test created on a real server, newest first. Does nothing on this crate's own
    /// server.
    pub async fn clean_up(&self) {
        let Some(real) = &self.real else { return };
        let created = std::mem::take(&mut lock(&real.known).created);
        for id in created.iter().rev() {
            // The object may have been deleted.
            let _ = self.remove(id).await;
        }
        self.refresh().await;
    }

    /// Returns `true` if an operation must be skipped because a real server does not support it. Each operation is
    /// reported once.
    #[expect(
        clippy::print_stderr,
        reason = "a test that tests less than it appears to must be visible"
    )]
    pub(crate) fn skips(&self, power: &'static str) -> bool {
        let Some(real) = &self.real else { return false };
        if lock(&real.known).skipped.insert(power) {
            eprintln!("test cluster: skipped `{power}`: a real API server does not offer it");
        }
        true
    }

    /// Records an object that `clean_up` must delete.
    pub(crate) fn note_created(&self, id: &ObjectId) {
        if let Some(real) = &self.real {
            lock(&real.known).created.push(id.clone());
        }
    }

    /// Replaces the resourceVersion of an object with the version on the real server, because versions in the copy
    /// differ.
    pub(crate) fn with_real_version(&self, mut object: Value) -> Value {
        if let (Some(real), Some(uid)) = (&self.real, object["metadata"]["uid"].as_str())
            && let Some((version, _)) = lock(&real.known).objects.get(uid)
        {
            object["metadata"]["resourceVersion"] = version.as_str().into();
        }
        object
    }

    /// Updates the copy of a real server's state.
    pub(crate) async fn refresh(&self) {
        let Some(real) = &self.real else { return };
        let paths = real.paths().await;
        let lists = futures::future::join_all(paths.iter().map(|path| real.read(path))).await;
        let mut present = BTreeMap::new();
        // If a list could not be read, its objects are kept.
        let mut read = BTreeSet::new();
        let has_failed = lists.iter().any(Result::is_err);
        for list in lists.into_iter().flatten() {
            let (kind, version) = (list["kind"].as_str().unwrap_or_default(), list["apiVersion"].clone());
            let kind = kind.strip_suffix("List").unwrap_or(kind).to_owned();
            read.insert((version.to_string(), kind.clone()));
            for mut item in list["items"].as_array().cloned().unwrap_or_default() {
                (item["kind"], item["apiVersion"]) = (kind.as_str().into(), version.clone());
                let text = |field: &str| item["metadata"][field].as_str().unwrap_or_default().to_owned();
                present.insert(text("uid"), (text("resourceVersion"), item));
            }
        }
        let rank = |item: &Value| match item["kind"].as_str() {
            Some("CustomResourceDefinition") => 0,
            Some("Namespace") => 1,
            _ => 2,
        };
        let mut known = lock(&real.known);
        let is_read = |item: &Value| {
            let kind = item["kind"].as_str().unwrap_or_default().to_owned();
            !has_failed || read.contains(&(item["apiVersion"].to_string(), kind))
        };
        let gone: Vec<_> = known
            .objects
            .iter()
            .filter(|(uid, (_, item))| !present.contains_key(*uid) && is_read(item))
            .map(|(uid, _)| uid.clone())
            .collect();
        for uid in gone {
            if let Some((_, object)) = known.objects.remove(&uid) {
                let _ = self.server.apply_event(WatchEventKind::Deleted, object);
            }
        }
        let is_new = |uid: &String, version: &String| known.objects.get(uid).is_none_or(|(old, _)| old != version);
        let mut changed: Vec<_> = present
            .into_iter()
            .filter(|(uid, (version, _))| is_new(uid, version))
            .collect();
        changed.sort_by_key(|(_, (_, item))| rank(item));
        if changed.iter().any(|(_, (_, item))| rank(item) == 0) {
            known.paths = None;
        }
        for (uid, (version, item)) in changed {
            // Objects of kinds that this crate does not support are skipped, because tests cannot read them.
            if self.server.load([item.clone()]).is_ok() {
                known.objects.insert(uid, (version, item));
            }
        }
    }
}

impl Real {
    /// Sends a request as the test's own client.
    pub(crate) async fn send(&self, request: Request<Vec<u8>>) -> Result<Value, kube::Error> {
        let DebugClient(client) = &self.client;
        client.request::<Value>(request).await
    }

    pub(crate) fn client(&self) -> &Client {
        let DebugClient(client) = &self.client;
        client
    }

    /// Sends a GET. Returns null for a path that is not served.
    async fn read(&self, path: &str) -> Result<Value, kube::Error> {
        let request = Request::get(path)
            .header(http::header::USER_AGENT, TEST_CLIENT)
            .body(Vec::new());
        match self.send(request.map_err(kube::Error::HttpError)?).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(Value::Null),
            read => read,
        }
    }

    /// Returns the paths of all resources that can be listed. They are cached until a CRD is created or changed.
    async fn paths(&self) -> Vec<String> {
        let known = lock(&self.known).paths.clone();
        match known {
            Some(paths) => paths,
            None => {
                let (paths, is_complete) = self.collections().await;
                if is_complete {
                    lock(&self.known).paths = Some(paths.clone());
                }
                paths
            }
        }
    }

    /// Fetches the paths of all resources that can be listed, in the order of discovery. Also returns whether all
    /// discovery documents could be read.
    async fn collections(&self) -> (Vec<String>, bool) {
        let mut versions = vec!["/api/v1".to_owned()];
        let groups = self.read("/apis").await;
        let mut is_complete = groups.is_ok();
        let groups = groups.unwrap_or_default();
        for group in groups["groups"].as_array().into_iter().flatten() {
            if let Some(version) = group["preferredVersion"]["groupVersion"].as_str() {
                versions.push(format!("/apis/{version}"));
            }
        }
        let mut paths = Vec::new();
        for version in versions {
            let Ok(resources) = self.read(&version).await else {
                is_complete = false;
                continue;
            };
            let group = version.strip_prefix("/apis/").and_then(|it| it.split_once('/'));
            for resource in resources["resources"].as_array().into_iter().flatten() {
                let name = resource["name"].as_str().unwrap_or_default();
                let full = group.map_or_else(|| name.to_owned(), |(group, _)| format!("{name}.{group}"));
                let is_listed = resource["verbs"]
                    .as_array()
                    .is_some_and(|it| it.iter().any(|verb| verb == "list"));
                if is_listed && !PASSED_OVER.contains(&name) && !PASSED_OVER.contains(&full.as_str()) {
                    paths.push(format!("{version}/{name}"));
                }
            }
        }
        (paths, is_complete)
    }
}
