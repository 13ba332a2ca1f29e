//! `Writes`: records the writes of reconciles, from the responses to their requests.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use kube::Client;
use kube::client::Body;
use serde::Deserialize;
use tokio::time::Instant;
use tower::service_fn;

use super::asked::{About, Answer, Asked, Item};
use super::collection::{ClusterId, Collection};
use super::shard::check_permit;
use super::write::{Write, Written};
use super::write_log::WriteLog;
use crate::{ObjectKey, ResourceVersion};

/// Records the writes of a client, so that a key is not reconciled from caches that do not contain its last writes
/// (KEP-5647).
///
/// Caches lag behind the server. A controller that has just created an object may not find it in the cache, and create
/// it again. If a client is wrapped with [`observe`](Self::observe), each successful write is recorded for the key that
/// is being reconciled, and this key is not reconciled again until the controller's caches have received the write. See
/// `ControllerBuilder::without_read_your_writes` for details.
///
/// Writes are also recorded if their outcome is unknown, because the response was lost or late, the request was
/// dropped, or a deletion of several objects failed, which may have deleted some of them. Before the key is reconciled
/// again, the current state is read from the server, and the caches must reach the versions in this state. If the
/// server generated the name of the object, the metadata of up to 500 objects is read.
///
/// The same applies to writes whose responses do not contain a version, such as evictions and bindings. Dry runs are
/// not recorded.
///
/// Requests from tasks that a reconciler spawns are not recorded.
#[derive(Clone, Copy, Default)]
pub struct Writes(());

/// The future of a response.
type Answering = Pin<Box<dyn Future<Output = Result<Response<Body>, kube::Error>> + Send>>;

/// Writes of the reconcile, or of the request of a `CachedClient`, that is being polled.
type Scope = Arc<Mutex<WriteLog>>;

tokio::task_local! {
    static SCOPE: Scope;
}

impl Writes {
    /// Creates a recorder.
    pub fn new() -> Self {
        Self::default()
    }

    /// Wraps `client` so that its writes are recorded as writes to the controller's own cluster. Clients of engaged
    /// `Cluster`s are already wrapped.
    pub fn observe(&self, client: &Client) -> Client {
        Self::observe_in(None, client)
    }

    /// Wraps `client` so that its writes are recorded as writes to `cluster`; `None` is the controller's own cluster.
    pub(crate) fn observe_in(cluster: Option<ClusterId>, client: &Client) -> Client {
        let inner = client.clone();
        let service = service_fn(move |request: Request<Body>| {
            let (client, cluster) = (inner.clone(), cluster.clone());
            // Task-locals must be read in this future, because kube's client calls the service in a separate task.
            let answer: Answering = Box::pin(async move {
                if !matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS) {
                    check_permit().map_err(|err| {
                        let (method, path) = (request.method(), request.uri().path());
                        kube::Error::Service(crate::Error::fenced(format!("{method} {path}: {err}")).into())
                    })?;
                }
                match Target::of(cluster, &request) {
                    // If `client` is wrapped as well, it must not record the write for a different cluster.
                    Some(target) => SCOPE.scope(Scope::default(), observe(client, request, target)).await,
                    None => client.send(request).await,
                }
            });
            answer
        });
        Client::new(service, client.default_namespace())
    }

    /// Runs a reconcile. Returns its result and its writes.
    pub(crate) async fn of<T>(future: impl Future<Output = T>) -> (T, Vec<Write>) {
        let scope = Scope::default();
        let result = SCOPE.scope(Arc::clone(&scope), future).await;
        let writes = std::mem::take(&mut *scope.lock().unwrap_or_else(PoisonError::into_inner));
        (result, writes.into_writes())
    }

    /// Sends a request, and calls `note` with its writes. If the future is dropped early, `note` is still called, and
    /// the outcome of the write is unknown.
    pub(crate) async fn noted<T>(future: impl Future<Output = T>, note: impl FnOnce(&[Write])) -> T {
        let scope = Scope::default();
        let _noting = Noting {
            scope: Arc::clone(&scope),
            note: Some(note),
        };
        SCOPE.scope(scope, future).await
    }

    /// Adds writes to the record of the reconcile that is being polled, if there is one.
    pub(crate) fn pass_on(writes: &[Write]) {
        let _ = SCOPE.try_with(|scope| {
            let mut all = scope.lock().unwrap_or_else(PoisonError::into_inner);
            writes.iter().for_each(|it| all.add(it.clone()));
        });
    }
}

impl fmt::Debug for Writes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Writes")
    }
}

/// Calls a function with the recorded writes when it is dropped.
struct Noting<F: FnOnce(&[Write])> {
    scope: Scope,
    note: Option<F>,
}

impl<F: FnOnce(&[Write])> Drop for Noting<F> {
    fn drop(&mut self) {
        let writes = std::mem::take(&mut *self.scope.lock().unwrap_or_else(PoisonError::into_inner));
        if let Some(note) = self.note.take() {
            note(&writes.into_writes());
        }
    }
}

/// The object or collection that a request writes to.
struct Target {
    collection: Collection,
    namespace: Option<String>,
    name: Option<String>,
    /// Path of the collection.
    path: String,
    scope: Scope,
}

impl Target {
    /// Returns the target of a request; `None` if the request does not change objects, or if writes are not being
    /// recorded.
    fn of(cluster: Option<ClusterId>, request: &Request<Body>) -> Option<Self> {
        if !matches!(
            *request.method(),
            Method::POST | Method::PUT | Method::PATCH | Method::DELETE
        ) {
            return None;
        }
        let scope = SCOPE.try_with(Arc::clone).ok()?;
        let parts: Vec<_> = request.uri().path().trim_matches('/').split('/').collect();
        let (group, root, rest) = match parts[..] {
            ["api", version, ref rest @ ..] => ("", format!("/api/{version}"), rest),
            ["apis", group, version, ref rest @ ..] => (group, format!("/apis/{group}/{version}"), rest),
            _ => return None,
        };
        let (namespace, rest) = match *rest {
            ["namespaces", namespace, ref rest @ ..] if !rest.is_empty() && !is_subresource_of_namespace(rest) => {
                (Some(namespace.to_owned()), rest)
            }
            _ => (None, rest),
        };
        let (plural, name) = match *rest {
            [plural] => (plural, None),
            [plural, name] => (plural, Some(name)),
            // Connections to containers and requests for tokens do not change objects.
            [_, _, "attach" | "exec" | "log" | "portforward" | "proxy" | "token"] => return None,
            [plural, name, _] => (plural, Some(name)),
            _ => return None,
        };
        let path = match &namespace {
            Some(namespace) => format!("{root}/namespaces/{namespace}/{plural}"),
            None => format!("{root}/{plural}"),
        };
        Some(Self {
            collection: Collection::new(cluster, group, plural),
            namespace,
            name: name.map(str::to_owned),
            path,
            scope,
        })
    }
}

fn is_subresource_of_namespace(rest: &[&str]) -> bool {
    matches!(rest, ["status" | "finalize"])
}

async fn observe(client: Client, request: Request<Body>, target: Target) -> Result<Response<Body>, kube::Error> {
    let is_delete = *request.method() == Method::DELETE;
    let (head, body) = request.into_parts();
    // The bodies of kube's requests are in memory, so this does not wait.
    let sent = body.collect_bytes().await?;
    let is_dry_run = is_dry_run(&head, &sent);
    let request = Request::from_parts(head, Body::from(sent.clone()));
    if is_dry_run {
        return client.send(request).await;
    }
    let about = match &target.name {
        Some(name) => About::Object(name.clone()),
        None if is_delete => About::Deleted,
        None => named_in(&sent).map_or(About::Made, About::Object),
    };
    let mut outcome = Outcome {
        asked: Asked {
            client: client.clone(),
            path: target.path.clone(),
            about,
        },
        target: Some(target),
    };
    let response = match client.send(request).await {
        Ok(response) => response,
        Err(err) => {
            if crate::error::is_connection_refused(&err) {
                outcome.nothing();
            }
            return Err(err);
        }
    };
    if !response.status().is_success() {
        if !outcome.is_unknown(response.status()) {
            outcome.nothing();
        }
        return Ok(response);
    }
    let (head, body) = response.into_parts();
    let bytes = body.collect_bytes().await?;
    if let Ok(answer) = serde_json::from_slice::<Answer>(&bytes) {
        outcome.answered(answer, is_delete);
    }
    Ok(Response::from_parts(head, Body::from(bytes)))
}

/// Options of a deletion, parsed from its body; for evictions, from a field of the body.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Options {
    dry_run: Vec<String>,
    delete_options: Option<Box<Options>>,
}

/// Returns `true` if the request is a dry run. Options in the body of a deletion override options in the query.
fn is_dry_run(head: &Parts, sent: &Bytes) -> bool {
    let is_asked = || {
        let query = head.uri.query().unwrap_or_default();
        query
            .split('&')
            .any(|it| it.strip_prefix("dryRun=").is_some_and(|it| !it.is_empty()))
    };
    let options = || serde_json::from_slice::<Options>(sent).unwrap_or_default();
    match head.method {
        Method::DELETE if sent.is_empty() => is_asked(),
        Method::DELETE => !options().dry_run.is_empty(),
        Method::POST if head.uri.path().ends_with("/eviction") => {
            is_asked() || options().delete_options.is_some_and(|it| !it.dry_run.is_empty())
        }
        _ => is_asked(),
    }
}

/// Returns the name of the object in a request body, if it contains one.
fn named_in(sent: &Bytes) -> Option<String> {
    let object = serde_json::from_slice::<Item>(sent).unwrap_or_default();
    Some(object.metadata.name).filter(|it| !it.is_empty())
}

/// Outcome of a request. If this is dropped before a result was recorded, the outcome is unknown.
struct Outcome {
    asked: Asked,
    target: Option<Target>,
}

impl Outcome {
    /// Returns `true` if the server may have executed a failed request, at least in part: always for 502 and 504, which
    /// show that a server or proxy stopped waiting. For creates with a generated name, other server errors count as
    /// well, because a retry would create an additional object. A deletion of several objects deletes one after the
    /// other, and may be refused after some were deleted. Only a failed authentication shows that nothing was deleted.
    fn is_unknown(&self, code: StatusCode) -> bool {
        let is_unanswered = matches!(code, StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT);
        match self.asked.about {
            About::Object(_) => is_unanswered,
            About::Made => code.is_server_error(),
            About::Deleted => code != StatusCode::UNAUTHORIZED,
        }
    }

    /// Records that the request did not write anything.
    fn nothing(&mut self) {
        self.target = None;
    }

    /// Records a success. If the response does not identify the written state, the outcome remains unknown.
    fn answered(&mut self, answer: Answer, is_delete: bool) {
        let is_told = answer.kind != "Status" || !answer.details.uid.is_empty();
        if let Some(target) = self.target.take_if(|_| is_told) {
            target.remember(answer, is_delete);
        }
    }
}

impl Drop for Outcome {
    fn drop(&mut self) {
        if let Some(target) = self.target.take() {
            let name = match &self.asked.about {
                About::Object(name) => name.as_str(),
                About::Made | About::Deleted => "",
            };
            let key = target.key(name);
            target.push(key, None, Written::Unknown(Arc::new(self.asked.clone())));
        }
    }
}

impl Target {
    fn remember(self, answer: Answer, is_delete: bool) {
        let Answer {
            kind,
            metadata,
            details,
            items,
        } = answer;
        if self.name.is_none() && is_delete {
            return self.remember_deleted(items.unwrap_or_default());
        }
        let key = self.key(self.name.as_deref().unwrap_or(&metadata.name));
        let version = metadata.version();
        if kind == "Status" {
            let (floor, uid) = (ResourceVersion::default(), details.uid);
            return self.push(key, None, Written::Gone { floor, uid });
        }
        // The labels of a Scale are not the labels of its target.
        let labels = (kind != "Scale").then_some(metadata.labels);
        // The response contains a state of the object, even if the object is being deleted. If the response to a
        // deletion has no deletion timestamp, the object was removed immediately, and this was its last state.
        let what = match metadata.deletion_timestamp {
            Some(_) if version.is_empty() => return,
            Some(_) => Written::Terminating {
                floor: ResourceVersion::default(),
                version,
                uid: metadata.uid,
            },
            None if is_delete => Written::Gone {
                floor: ResourceVersion::default(),
                uid: metadata.uid,
            },
            None if version.is_empty() => return,
            None => Written::Version(version),
        };
        self.push(key, labels, what);
    }

    /// Records the deletion of a collection. The response contains the objects' states before the deletion.
    fn remember_deleted(self, items: Vec<Item>) {
        for Item { metadata } in items {
            let key = match &metadata.namespace {
                Some(namespace) => ObjectKey::new(namespace, &metadata.name),
                None => self.key(&metadata.name),
            };
            let (floor, uid) = (metadata.version(), metadata.uid);
            self.push(key, Some(metadata.labels), Written::Deleted { floor, uid });
        }
    }

    fn key(&self, name: &str) -> ObjectKey {
        match &self.namespace {
            Some(namespace) => ObjectKey::new(namespace, name),
            None => ObjectKey::cluster(name),
        }
    }

    fn push(&self, key: ObjectKey, labels: Option<BTreeMap<String, String>>, what: Written) {
        let write = Write {
            collection: self.collection.clone(),
            key,
            labels: labels.map(|it| vec![it]),
            at: Instant::now(),
            what,
        };
        self.scope.lock().unwrap_or_else(PoisonError::into_inner).add(write);
    }
}
