//! `Writes`: what a controller wrote, by the answers to its own requests.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use serde::Deserialize;
use tower::service_fn;

use crate::{ObjectKey, ResourceVersion};

/// Sees the writes of a client, so that no reconcile acts on a cache that is older than them (KEP-5647).
///
/// A cache lags behind the server. A controller that has just created an object may not see it yet, and create it once
/// more. Given a client that is [`observed`](Self::observe), each write that succeeds is remembered for the key under
/// work; the key is not worked on again before the caches of the controller have seen it. See
/// `ControllerBuilder::without_read_your_writes` for what happens then.
///
/// Requests count that are made by the reconciler's own future. Those of tasks that it started do not, nor do
/// `deletecollection` and evictions, which tell no version.
#[derive(Clone, Copy, Default)]
pub struct Writes(());

/// One write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Write {
    /// As in a path: `apps/deployments`, `/pods`.
    pub(crate) resource: String,
    pub(crate) key: ObjectKey,
    /// Its labels, if the answer told them.
    pub(crate) labels: Option<BTreeMap<String, String>>,
    pub(crate) what: Written,
}

/// What a cache has to show to have seen it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// It must be at this version, or a later one.
    Version(ResourceVersion),
    /// It must not have this object.
    Gone { uid: String },
}

/// A request under way.
type Answering = Pin<Box<dyn Future<Output = Result<Response<Body>, kube::Error>> + Send>>;

/// The writes of the reconcile that is being polled.
type Scope = Arc<Mutex<Vec<Write>>>;

tokio::task_local! {
    static SCOPE: Scope;
}

impl Writes {
    /// Sees nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// A client as `client`, of which the writes are seen.
    pub fn observe(&self, client: &Client) -> Client {
        let inner = client.clone();
        let service = service_fn(move |request: Request<Body>| {
            let client = inner.clone();
            // The scope is seen where the answer is waited for: the client calls its service in a task of its own.
            let answer: Answering = Box::pin(async move {
                match Target::of(&request) {
                    Some(target) => observe(client, request, target).await,
                    None => client.send(request).await,
                }
            });
            answer
        });
        Client::new(service, client.default_namespace())
    }

    /// Runs a reconcile, and answers with what it wrote.
    pub(crate) async fn of<T>(future: impl Future<Output = T>) -> (T, Vec<Write>) {
        let scope = Scope::default();
        let result = SCOPE.scope(Arc::clone(&scope), future).await;
        let writes = std::mem::take(&mut *scope.lock().unwrap_or_else(PoisonError::into_inner));
        (result, writes)
    }

    /// Counts writes that were seen apart for the reconcile that is being polled, if there is one.
    pub(crate) fn pass_on(writes: &[Write]) {
        let _ = SCOPE.try_with(|scope| {
            let mut all = scope.lock().unwrap_or_else(PoisonError::into_inner);
            all.retain(|it| {
                !writes
                    .iter()
                    .any(|new| new.resource == it.resource && new.key == it.key)
            });
            all.extend_from_slice(writes);
        });
    }
}

impl fmt::Debug for Writes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Writes")
    }
}

/// What a request would write to.
struct Target {
    resource: String,
    namespace: Option<String>,
    name: Option<String>,
    scope: Scope,
}

impl Target {
    /// `None` for reads, and outside of reconciles.
    fn of(request: &Request<Body>) -> Option<Self> {
        if !matches!(
            *request.method(),
            Method::POST | Method::PUT | Method::PATCH | Method::DELETE
        ) {
            return None;
        }
        let scope = SCOPE.try_with(Arc::clone).ok()?;
        let parts: Vec<_> = request.uri().path().trim_matches('/').split('/').collect();
        let (group, rest) = match parts[..] {
            ["api", _version, ref rest @ ..] => ("", rest),
            ["apis", group, _version, ref rest @ ..] => (group, rest),
            _ => return None,
        };
        let (namespace, rest) = match *rest {
            ["namespaces", namespace, ref rest @ ..] if !rest.is_empty() && !is_subresource_of_namespace(rest) => {
                (Some(namespace.to_owned()), rest)
            }
            _ => (None, rest),
        };
        let (plural, name) = match *rest {
            [plural] if *request.method() == Method::POST => (plural, None),
            [plural, name] | [plural, name, "status" | "scale" | "finalize" | "binding"] => (plural, Some(name)),
            _ => return None,
        };
        Some(Self {
            resource: format!("{group}/{plural}"),
            namespace,
            name: name.map(str::to_owned),
            scope,
        })
    }
}

fn is_subresource_of_namespace(rest: &[&str]) -> bool {
    matches!(rest, ["status" | "finalize"])
}

/// What is read of an answer.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Answer {
    kind: String,
    metadata: Metadata,
    details: Details,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    name: String,
    uid: String,
    labels: BTreeMap<String, String>,
    resource_version: String,
    deletion_timestamp: Option<String>,
    finalizers: Vec<String>,
    deletion_grace_period_seconds: Option<i64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Details {
    uid: String,
}

async fn observe(client: Client, request: Request<Body>, target: Target) -> Result<Response<Body>, kube::Error> {
    let is_delete = *request.method() == Method::DELETE;
    let is_dry_run = request.uri().query().is_some_and(|query| query.contains("dryRun="));
    let response = client.send(request).await?;
    if !response.status().is_success() || is_dry_run {
        return Ok(response);
    }
    let (head, body) = response.into_parts();
    let bytes = body.collect_bytes().await?;
    if let Ok(answer) = serde_json::from_slice::<Answer>(&bytes) {
        target.remember(answer, is_delete);
    }
    Ok(Response::from_parts(head, Body::from(bytes)))
}

impl Target {
    fn remember(self, answer: Answer, is_delete: bool) {
        let Answer {
            kind,
            metadata,
            details,
        } = answer;
        let name = self.name.unwrap_or(metadata.name);
        let key = match &self.namespace {
            Some(namespace) => ObjectKey::new(namespace, &name),
            None => ObjectKey::cluster(&name),
        };
        let is_status = kind == "Status";
        // A Scale is another object than the one that is scaled.
        let labels = (!is_status && kind != "Scale").then_some(metadata.labels);
        // A deleted object stays as long as it has finalizers or a grace period. The answer to the request that ends
        // that, or that deletes what nothing holds, is its last state.
        let is_held = !metadata.finalizers.is_empty() || metadata.deletion_grace_period_seconds.unwrap_or(0) > 0;
        let is_gone = match metadata.deletion_timestamp {
            Some(_) => !is_held,
            None => is_delete,
        };
        let what = match (is_status, is_gone) {
            (true, _) if details.uid.is_empty() => return,
            (true, _) => Written::Gone { uid: details.uid },
            (false, true) => Written::Gone { uid: metadata.uid },
            (false, false) if metadata.resource_version.is_empty() => return,
            (false, false) => Written::Version(ResourceVersion::from(metadata.resource_version.as_str())),
        };
        let mut writes = self.scope.lock().unwrap_or_else(PoisonError::into_inner);
        // Of one object the last write is the one that counts.
        writes.retain(|it| it.resource != self.resource || it.key != key);
        writes.push(Write {
            resource: self.resource,
            key,
            labels,
            what,
        });
    }
}
