//! Get, list and watch: determines the state that a client receives (rules D and E).

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Reader;
use super::continue_token::{self, At, Continue};
use crate::api::options::{ListOptions, VersionMatch};
use crate::api::request_info::RequestInfo;
use crate::api::selector::FieldSelector;
use crate::api::status::Status;
use crate::registry::scheme::Row;
use crate::storage::{Key, KeyRange, ResourceSnapshot, Revision, Stored};
use crate::watch::{Filter, Horizon, Position, WatchScope, WatchStart};

/// Maximum time that a reader waits for a future revision (rule A14).
const FUTURE_WAIT: Duration = Duration::from_secs(3);

/// Client name of the server's own reads, which are never stale.
const NOBODY: &str = "";

/// Minimum timeout of a watch without `timeoutSeconds`, in seconds; the maximum is twice as long (rule E14).
const WATCH_SECONDS_MIN: u64 = 1800;

/// The response to a list.
#[derive(Debug)]
pub(crate) struct ListPage {
    /// Value of `metadata.resourceVersion`.
    pub(crate) revision: Revision,
    /// Value of `metadata.continue`; empty on the last page.
    pub(crate) continue_token: String,
    /// Value of `metadata.remainingItemCount`.
    pub(crate) remaining: Option<usize>,
    /// The objects in the list.
    pub(crate) items: Items,
}

/// The objects in the response to a list.
#[derive(Debug)]
pub(crate) enum Items {
    /// The objects of one page.
    Page(Vec<Arc<Stored>>),
    /// All objects of a snapshot that match the filter. They are read while the response is sent.
    All(Box<(ResourceSnapshot, KeyRange, Filter)>),
}

impl Items {
    /// Returns the objects in key order.
    pub(crate) fn iter(&self) -> Box<dyn Iterator<Item = &Arc<Stored>> + Send + '_> {
        match self {
            Items::Page(items) => Box::new(items.iter()),
            Items::All(all) => {
                let (snapshot, range, filter) = &**all;
                Box::new(snapshot.range(range).filter(|it| filter.selects(it)))
            }
        }
    }
}

/// The start of a watch, which may have to wait for a revision.
#[derive(Debug)]
pub(crate) enum WatchPlan {
    /// The watch can start immediately.
    Start(WatchStart),
    /// The watch must wait until its initial state is at least this new.
    Future(Revision, WatchStart),
}

impl Reader {
    /// Handles a GET of an object (rule D2) by a client that does not have a stale replica.
    pub(crate) async fn get(&self, row: &Row, info: &RequestInfo, version: &str) -> Result<Arc<Stored>, Status> {
        self.get_for(NOBODY, row, info, version).await
    }

    /// Handles a GET of an object (rule D2). With a resourceVersion, the result may be as stale as the client's
    /// replica; without one, it is read from etcd.
    pub(crate) async fn get_for(
        &self,
        client: &str,
        row: &Row,
        info: &RequestInfo,
        version: &str,
    ) -> Result<Arc<Stored>, Status> {
        let key = Key::new(&info.namespace, &info.name);
        let mut stored = self.store.get(&row.storage, &key);
        let revision = parse_version(version).map_err(|status| match is_cached(row) {
            // The watch cache returns the parser's error without a prefix.
            true => unwrapped(&status),
            false => status,
        })?;
        if let Some(revision) = revision {
            self.reach_for(is_cached(row), revision, client).await?;
            stored = self.store.get(&row.storage, &key);
            if is_cached(row) && self.is_behind(client) {
                let range = WatchScope::Object(key).range();
                stored = self.cached(row, client).range(&range).next().cloned();
            }
        }
        let stored = stored.ok_or_else(|| Status::not_found(&row.info.group_resource(), &info.name))?;
        self.convert_stored(row, std::slice::from_ref(&stored)).await?;
        Ok(stored)
    }

    /// Sets the position of a client's replica; `None` for the current state.
    pub(crate) fn set_replica(&self, client: &str, position: Option<Position>) {
        self.replicas.set(client, position);
        self.fanout.wake_all();
        self.committed.notify_waiters();
    }

    /// Returns `true` if a client's replica is stale.
    fn is_behind(&self, client: &str) -> bool {
        let newest = self.store.revision();
        self.replicas.sees(client, newest) < newest
    }

    /// Returns the state of the watch cache in a client's replica. The lag is limited by the history: if the history
    /// starts later, the replica has the oldest available state.
    pub(crate) fn cached(&self, row: &Row, client: &str) -> ResourceSnapshot {
        let newest = self.store.revision();
        let seen = self.replicas.sees(client, newest);
        if seen == newest {
            return self.store.snapshot(&row.storage);
        }
        let at = |revision| self.store.snapshot_at(&row.storage, revision);
        at(seen)
            .or_else(|compacted| at(compacted.floor))
            .unwrap_or_else(|_| self.store.snapshot(&row.storage))
    }

    /// Handles a GET of a collection by a client that does not have a stale replica.
    pub(crate) async fn list(&self, row: &Row, info: &RequestInfo, options: &ListOptions) -> Result<ListPage, Status> {
        self.list_for(NOBODY, row, info, options).await
    }

    /// Handles a GET of a collection, including conversion by the webhook of its CRD.
    pub(crate) async fn list_for(
        &self,
        client: &str,
        row: &Row,
        info: &RequestInfo,
        options: &ListOptions,
    ) -> Result<ListPage, Status> {
        let page = self.list_stored(client, row, info, options).await?;
        if row.conversion_on_read().is_some() {
            let stored: Vec<Arc<Stored>> = page.items.iter().cloned().collect();
            self.convert_stored(row, &stored).await?;
        }
        Ok(page)
    }

    /// Handles a GET of a collection (rules D1 to D16).
    async fn list_stored(
        &self,
        client: &str,
        row: &Row,
        info: &RequestInfo,
        options: &ListOptions,
    ) -> Result<ListPage, Status> {
        let filter = filter(row, info, options)?;
        let version = options.resource_version.as_str();
        // Only the watch cache ignores the limit of a list from any version.
        let limit = if version == "0" && is_cached(row) {
            0
        } else {
            options.limit
        };
        if !options.continue_token.is_empty() {
            let token = continue_token::decode(&options.continue_token)?;
            if !matches!(version, "" | "0") {
                let why = "specifying resource version is not allowed when using continue";
                return Err(Status::bad_request(why));
            }
            return self.list_rest(row, filter, token, limit);
        }
        let revision = parse_version(version)?;
        // A list that selects one object by its name is not paged.
        let is_single = matches!(filter.scope, WatchScope::Object(_));
        let is_page_of = options.version_match.is_none() && limit > 0 && revision.is_some_and(|it| it > 0);
        let exact = options.version_match == Some(VersionMatch::Exact) || (is_page_of && !is_single);
        // The watch cache has only the latest version of an object.
        let is_cached = is_cached(row) && !(is_single && (exact || is_page_of));
        if let Some(revision) = revision {
            // An exact revision is read from etcd, which is never stale.
            let reader = if exact { NOBODY } else { client };
            self.reach_for(is_cached, revision, reader).await?;
        }
        let snapshot = match revision {
            Some(revision) if exact => {
                let too_old = |_| Status::expired("The resourceVersion for the provided list is too old.");
                self.snapshot_of_etcd(row, revision).map_err(too_old)?
            }
            Some(_) if is_cached => self.cached(row, client),
            Some(_) | None => self.store.snapshot(&row.storage),
        };
        let range = filter.scope.range();
        Ok(page(snapshot, range, filter, limit))
    }

    /// Handles a GET of a page of a collection after the first page.
    fn list_rest(&self, row: &Row, filter: Filter, token: Continue, limit: usize) -> Result<ListPage, Status> {
        let prefix = prefix(&filter.scope);
        let snapshot = match token.at {
            At::Latest => self.store.snapshot(&row.storage),
            At::Revision(revision) if revision > self.store.revision() => {
                return Err(Status::too_large_resource_version_of_etcd(
                    revision,
                    self.store.revision(),
                ));
            }
            At::Revision(revision) => self
                .snapshot_of_etcd(row, revision)
                .map_err(|_| expired_token(token.start.trim_end_matches('\0')))?,
        };
        let range = filter.scope.range().from(format!("{prefix}{}", token.start));
        Ok(page(snapshot, range, filter, limit))
    }

    /// Returns the start and the options of a watch (rules E3 to E10).
    pub(crate) fn watch(
        &self,
        row: &Row,
        info: &RequestInfo,
        options: &ListOptions,
        client: &Arc<str>,
    ) -> Result<WatchPlan, Status> {
        let filter = filter(row, info, options)?;
        // A watch returns the parser's error without a prefix (rule D5).
        let revision = parse_version(&options.resource_version).map_err(|status| unwrapped(&status))?;
        // Without a version, the initial state must be as new as the state of etcd.
        let newest = self.store.revision();
        let required = revision.unwrap_or(newest);
        let revision = revision.filter(|it| *it > 0);
        let seconds = match options.timeout_seconds {
            0 => WATCH_SECONDS_MIN + self.entropy.below(WATCH_SECONDS_MIN),
            // The maximum is longer than any test, and within the range of the clock.
            seconds => seconds.min(u64::from(u32::MAX)),
        };
        let initial = options.sends_state();
        let now = self.replicas.sees(client, newest);
        let start = WatchStart {
            resource: Arc::clone(&row.storage),
            filter,
            initial: initial.then(|| self.cached(row, client)),
            after: revision.unwrap_or(now),
            bookmarks: options.allow_watch_bookmarks,
            initial_end_bookmark: options.send_initial_events == Some(true),
            horizon: Some(Horizon {
                replicas: Arc::clone(&self.replicas),
                client: Arc::clone(client),
            }),
            deadline: Instant::now() + Duration::from_secs(seconds),
        };
        Ok(match initial && required > now {
            true => WatchPlan::Future(required, start),
            false => WatchPlan::Start(start),
        })
    }

    /// Same as [`reach`](Self::reach), for a read from the watch cache or from etcd, which does not wait.
    async fn reach_for(&self, is_cached: bool, revision: Revision, client: &str) -> Result<(), Status> {
        let newest = self.store.revision();
        match (is_cached, revision > newest) {
            (true, _) => self.reach(revision, client).await,
            (false, true) => Err(Status::too_large_resource_version_of_etcd(revision, newest)),
            (false, false) => Ok(()),
        }
    }

    /// Waits until the client's replica has reached a revision; fails like kube-apiserver if that takes too long (rule
    /// A14).
    pub(crate) async fn reach(&self, revision: Revision, client: &str) -> Result<(), Status> {
        let reached_now = || self.replicas.sees(client, self.store.revision());
        if revision <= reached_now() {
            return Ok(());
        }
        let reached = async {
            loop {
                let committed = self.committed.notified();
                if revision <= reached_now() {
                    return;
                }
                committed.await;
            }
        };
        tokio::time::timeout(FUTURE_WAIT, reached)
            .await
            .map_err(|_| Status::too_large_resource_version(revision, reached_now()))
    }
}

/// Returns `true` if kube-apiserver has a watch cache for the resource. Only Events do not have one.
pub(crate) fn is_cached(row: &Row) -> bool {
    &*row.info.resource != "events" || row.is_custom()
}

/// Returns the error 500 of the watch cache for a resourceVersion that is not a number.
fn unwrapped(status: &Status) -> Status {
    Status::new(500, "", status.message.trim_start_matches("invalid resource version: "))
}

/// Parses a resourceVersion parameter; returns `None` if it is absent (rule D5).
fn parse_version(text: &str) -> Result<Option<Revision>, Status> {
    if text.is_empty() {
        return Ok(None);
    }
    super::parse_uint(text).map(Some).map_err(|error| {
        let quoted = crate::api::field::quote(text);
        Status::bad_request(format!(
            "invalid resource version: resourceVersion: Invalid value: {quoted}: {error}"
        ))
    })
}

/// Returns the filter of a request: its scope, restricted by the field selector, and the selectors with converted field
/// labels.
pub(crate) fn filter(row: &Row, info: &RequestInfo, options: &ListOptions) -> Result<Filter, Status> {
    let mut fields = options.fields.clone();
    if !fields.is_empty() {
        fields = known_fields(row, fields)?;
    }
    let required_name = fields.requires_name();
    if !info.name.is_empty() && !fields.is_empty() && required_name != Some(&*info.name) {
        return Err(Status::bad_request(
            "fieldSelector metadata.name doesn't match requested name",
        ));
    }
    let name = Some(info.name.as_str()).filter(|it| !it.is_empty()).or(required_name);
    let namespace = match info.namespace.as_str() {
        "" if row.info.is_namespaced() => fields.requires_namespace().unwrap_or_default(),
        namespace => namespace,
    };
    let scope = match name {
        Some(name) if !row.info.is_namespaced() => WatchScope::Object(Key::new("", name)),
        Some(name) if !namespace.is_empty() => WatchScope::Object(Key::new(namespace, name)),
        _ if !namespace.is_empty() => WatchScope::Namespace(namespace.into()),
        _ => WatchScope::All,
    };
    Ok(Filter {
        scope,
        labels: options.labels.clone(),
        fields,
    })
}

/// Checks the field labels of a selector against the labels that the kind supports (rules F4 to F9).
fn known_fields(row: &Row, fields: FieldSelector) -> Result<FieldSelector, Status> {
    fields.rename_fields(|label| row.field_label(label).map_err(Status::bad_request))
}

/// Returns the prefix of keys that continue tokens omit: the namespace, if the list is restricted to one.
fn prefix(scope: &WatchScope) -> String {
    match scope {
        WatchScope::Namespace(namespace) => format!("{namespace}/"),
        WatchScope::All | WatchScope::Object(_) => String::new(),
    }
}

/// Returns a page of a snapshot (rules D6, D7).
fn page(snapshot: ResourceSnapshot, range: KeyRange, filter: Filter, limit: usize) -> ListPage {
    let revision = snapshot.revision;
    if limit == 0 {
        let items = Items::All(Box::new((snapshot, range, filter)));
        return ListPage {
            revision,
            continue_token: String::new(),
            remaining: None,
            items,
        };
    }
    let mut items = Vec::with_capacity(limit.min(512));
    let mut more = false;
    {
        let mut rest = snapshot.range(&range);
        while let Some(object) = rest.next() {
            if filter.selects(object) {
                items.push(Arc::clone(object));
                if items.len() == limit {
                    more = rest.next().is_some();
                    break;
                }
            }
        }
    }
    let mut page = ListPage {
        revision,
        continue_token: String::new(),
        remaining: None,
        items: Items::Page(Vec::new()),
    };
    if let (true, Some(last)) = (more, items.last()) {
        let prefix = prefix(&filter.scope);
        let relative = last
            .key
            .as_str()
            .strip_prefix(prefix.as_str())
            .unwrap_or(last.key.as_str());
        page.continue_token = continue_token::encode(At::Revision(revision), relative);
        if !filter.has_selectors() {
            page.remaining = Some(snapshot.count(&range).saturating_sub(items.len()));
        }
    }
    page.items = Items::Page(items);
    page
}

/// Returns the error 410 for a token with a compacted revision. The Status contains a token for the remaining items in
/// the latest state (rule D11).
fn expired_token(last: &str) -> Status {
    let message = "The provided continue parameter is too old to display a consistent list result. You can start a new \
        list without the continue parameter, or use the continue token in this response to retrieve the remainder of \
        the results. Continuing with the provided token results in an inconsistent list - objects that were created, \
        modified, or deleted between the time the first chunk was returned and now may show up in the list.";
    let mut status = Status::expired(message);
    status.continue_token = Some(continue_token::encode(At::Latest, last));
    status
}
