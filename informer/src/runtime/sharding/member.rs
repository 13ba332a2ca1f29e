//! `Member`: the loop that maintains this replica's membership in the group.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{Either, select};
use k8s_openapi::api::coordination::v1::Lease;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::config::ShardingConfig;
use super::core::Core;
use super::figures::Figures;
use super::member_lease::{MemberLease, view};
use super::peers::Peers;
use super::permission::Permission;
use super::view::View;
use crate::cache::{CACHE_SYNC_TIMEOUT, Lister, SharedInformer, late_caches};
use crate::handler::{Event, HandlerFn};
use crate::jitter::Jitter;
use crate::reconcile::BoxError;
use crate::runtime::runnable::{Runnable, RunnableGroup};
use crate::tasks::TaskGroup;
use crate::{Error, ResourceVersion, spans};

/// Minimum time limit of requests for the Lease, as in leader election.
const LEAST_REQUEST_TIMEOUT: Duration = Duration::from_secs(1);

/// Maximum number of held keys that a Lease lists, because annotations are limited to 256 KiB. If a replica holds more
/// keys, it does not publish a new view until work on some of them has ended.
const HELD_MAX: usize = 500;

/// Maximum random extension of delays, as a multiple of the delay, so that replicas do not send requests at the same
/// time.
const JITTER_FACTOR: f64 = 0.2;

/// Publishes this replica's view of the members, and derives its permission from the Leases of all replicas.
pub(super) struct Member {
    config: ShardingConfig,
    core: Arc<Core>,
    figures: Arc<Figures>,
    lease: MemberLease,
    jitter: Jitter,
    peers: Peers,
    /// The view that the Lease certainly contains; see [`Permission`].
    claim: Option<View>,
    /// The views that the Lease may contain; see [`Permission`].
    doubts: Vec<View>,
    target: View,
    /// The view that was last written.
    published: View,
    /// The `resourceVersion` of the write of this view; `None` if the outcome of the write is unknown.
    published_at: Option<ResourceVersion>,
    /// Writes of this replica that the cache has not received yet: the version, and the time at which the request was
    /// sent.
    unseen: VecDeque<(ResourceVersion, Instant)>,
    /// The cache contains all changes before this time.
    known_to: Option<Instant>,
    /// Time at which the cache last detected that the server was restored from a backup.
    restored: Option<Instant>,
    /// Time of the next renewal.
    renew_at: Instant,
    /// Earliest time of the next write.
    write_at: Instant,
}

impl Member {
    pub(super) fn new(config: &ShardingConfig, core: &Arc<Core>, lease: MemberLease, figures: &Arc<Figures>) -> Self {
        let now = Instant::now();
        Self {
            config: config.clone(),
            core: Arc::clone(core),
            figures: Arc::clone(figures),
            lease,
            jitter: Jitter::new(Jitter::seed_of(&config.identity), &config.name),
            peers: Peers::new(config.lease_duration),
            claim: None,
            doubts: Vec::new(),
            target: View::none(),
            published: View::none(),
            published_at: None,
            unseen: VecDeque::new(),
            known_to: None,
            restored: None,
            renew_at: now,
            write_at: now,
        }
    }

    async fn participate(mut self, stop: CancellationToken) -> Result<(), Error> {
        let (tasks, changed) = (TaskGroup::default(), Arc::new(Notify::new()));
        self.core.participates(true);
        let leases = SharedInformer::<Lease>::builder(self.lease.all());
        let leases = leases.seed(Jitter::seed_of(&self.config.identity)).build()?;
        let notified = Arc::clone(&changed);
        leases.add_handler(HandlerFn::new(move |_: &Event<Lease>| notified.notify_one()))?;
        let (ended, running) = (CancellationToken::new(), leases.clone());
        let until = ended.clone();
        tasks.spawn(async move {
            if let Err(err) = running.run(async move { until.cancelled().await }).await {
                tracing::error!(%err, "the informer of Leases did not start");
            }
        });
        let synced = stop.run_until_cancelled(timeout(CACHE_SYNC_TIMEOUT, leases.synced()));
        let synced = match synced.await {
            None => Ok(false),
            Some(Ok(synced)) => synced.map(|()| true),
            Some(Err(_)) => {
                let late = late_caches(CACHE_SYNC_TIMEOUT, &[(leases.name().as_str(), leases.reason())]);
                Err(Error::refused(format!("sharding {:?}: {late}", self.config.name)))
            }
        };
        if let Ok(true) = synced {
            let (core, lister) = (Arc::clone(&self.core), leases.lister());
            let participating = pin!(self.run_until_left(&lister, &changed, &stop));
            match select(participating, pin!(core.keep_time())).await {
                Either::Left(((), _)) | Either::Right(((), _)) => {}
            }
        }
        self.core.participates(false);
        ended.cancel();
        tasks.finished().await;
        synced.map(|_| ())
    }

    /// Participates in the group until this replica has left.
    async fn run_until_left(&mut self, leases: &Lister<Lease>, changed: &Notify, stop: &CancellationToken) {
        let core = Arc::clone(&self.core);
        loop {
            let is_leaving = stop.is_cancelled();
            self.observe(leases, is_leaving);
            if is_leaving && core.held_beyond(&View::none()).is_empty() {
                return self.leave().await;
            }
            if self.is_due() {
                self.write().await;
                continue;
            }
            self.sweep().await;
            let changes = async {
                let stopped = async {
                    if is_leaving {
                        std::future::pending().await
                    } else {
                        stop.cancelled().await;
                    }
                };
                select(
                    pin!(stopped),
                    select(pin!(changed.notified()), pin!(core.ended.notified())),
                )
                .await;
            };
            let next = if self.is_changing() {
                self.write_at
            } else {
                self.renew_at.max(self.write_at)
            };
            select(pin!(changes), pin!(sleep_until(next))).await;
        }
    }

    /// Returns `true` if the view to publish differs from the published view, or if the published view is unknown.
    fn is_changing(&self) -> bool {
        self.published_at.is_none() || self.published != self.next_view()
    }

    /// Returns the view to publish: the target, together with the keys that this replica is still working on although
    /// other replicas own them. The replica does not begin new work on such keys, because its permission is already
    /// based on the target.
    fn next_view(&self) -> View {
        let held = self.core.held_beyond(&self.target);
        if held.len() > HELD_MAX {
            return self.published.clone();
        }
        self.target.holding(held)
    }

    fn is_due(&self) -> bool {
        let now = Instant::now();
        now >= self.write_at && (now >= self.renew_at || self.is_changing())
    }

    /// Updates the members and the permission from the Leases in the cache.
    fn observe(&mut self, leases: &Lister<Lease>, is_leaving: bool) {
        if leases.restored() > self.restored {
            // The server may never return the versions of earlier writes again, so publish the view anew.
            self.restored = leases.restored();
            self.unseen.clear();
            self.lose_claim();
            self.lease.forget();
            self.renew_at = Instant::now();
        }
        let snapshot = leases.snapshot();
        let key = self.lease.key();
        let lease = snapshot.get(&key);
        let version = lease.map(|it| it.resource_version());
        // Another process with the same identity may have taken over the Lease.
        let own = lease.and_then(|it| it.typed().ok()).filter(|it| self.lease.is_own(it));
        let has_seen = |published: &ResourceVersion| version.is_some_and(|it| it >= published);
        while let Some((_, sent)) = self.unseen.front().filter(|(published, _)| has_seen(published)) {
            self.known_to = Some(*sent);
            self.unseen.pop_front();
        }
        self.peers.observe(&snapshot, &key, self.known_to);
        let is_confirmed = self.published_at.as_ref().is_some_and(has_seen);
        let is_unchanged = own.as_ref().is_some_and(|it| view(it) == self.published);
        if is_confirmed && is_unchanged {
            self.claim = Some(self.published.clone());
            self.doubts.clear();
        } else if is_confirmed || (own.is_none() && self.claim.is_some()) {
            // Another process has changed or deleted the Lease. Work in progress may continue, because other replicas
            // wait until the Lease would have expired.
            self.lose_claim();
            self.lease.forget();
            self.renew_at = Instant::now();
        }
        self.target = if is_leaving {
            View::none()
        } else {
            let me = Arc::from(self.config.identity.as_str());
            View::of(self.peers.members(self.known_to).chain([me]))
        };
        self.permit();
    }

    fn lose_claim(&mut self) {
        self.claim = None;
        self.published_at = None;
        self.permit();
    }

    fn permit(&self) {
        let others = self.peers.claims(self.known_to);
        let permission = Permission {
            me: Arc::from(self.config.identity.as_str()),
            claim: self.claim.clone(),
            doubts: self.doubts.clone(),
            target: self.target.clone(),
            others: others.filter(|(_, view)| self.claim.as_ref() != Some(view)).collect(),
        };
        self.figures.note(&permission);
        self.core.permit(permission);
    }

    /// Renews the Lease with the current view.
    async fn write(&mut self) {
        let view = self.next_view();
        let (sent, is_new) = (Instant::now(), self.published != view || self.published_at.is_none());
        if is_new && !self.doubts.contains(&view) {
            // After this request is sent, the Lease may contain this view.
            self.doubts.push(view.clone());
            self.permit();
        }
        let limit = self.request_timeout();
        let answer = timeout(limit, self.lease.publish(&view)).await;
        let answer = match answer {
            Ok(Ok(lease)) => Ok(lease.metadata.resource_version.as_deref().map(ResourceVersion::from)),
            Ok(Err(err)) => Err(err),
            Err(_) => Err(Error::unanswered(format!("lease {}", self.lease.key()), limit)),
        };
        if self.core.has_lapsed() {
            // The permission has ended, so the previous claim is no longer valid.
            self.lose_claim();
        }
        match answer {
            Ok(version) => {
                let version = version.unwrap_or_default();
                self.unseen.push_back((version.clone(), sent));
                if self.published_at.is_none() || self.published != view {
                    self.figures.count_change();
                    self.published = view;
                    self.published_at = Some(version);
                }
                self.core.renew(sent + self.config.renew_deadline);
                self.renew_at = self.after(self.config.retry_period);
                // Limit the rate of writes, so that several members that join at the same time cause only one write.
                self.write_at = Instant::now() + self.config.retry_period / 8;
            }
            Err(err) => {
                tracing::warn!(lease = %self.lease.key(), error = %err, "could not renew the lease of this replica");
                self.lease.forget();
                if is_new {
                    self.published_at = None;
                }
                self.write_at = self.after(self.config.retry_period);
            }
        }
    }

    /// Returns the time limit of requests for the Lease: half of the renew deadline, so that a failed request can be
    /// retried, but at least a second.
    fn request_timeout(&self) -> Duration {
        (self.config.renew_deadline / 2).max(LEAST_REQUEST_TIMEOUT)
    }

    fn after(&mut self, time: Duration) -> Instant {
        Instant::now() + self.jitter.prolong(time, JITTER_FACTOR)
    }

    /// Deletes an expired Lease, if there is one. Does nothing unless this replica is the first member by name.
    async fn sweep(&mut self) {
        let is_first = self.target.names().first() == Some(&self.config.identity);
        let Some(ended) = is_first.then(|| self.peers.sweep(self.known_to)).flatten() else {
            return;
        };
        match timeout(LEAST_REQUEST_TIMEOUT, self.lease.sweep(&ended)).await {
            Ok(Ok(())) => {}
            Ok(Err(err)) if err.is_not_found() || err.is_conflict() => {}
            Ok(Err(err)) => {
                tracing::warn!(lease = ended.name, error = %err, "could not delete the lease of a dead replica")
            }
            Err(_) => tracing::warn!(
                lease = ended.name,
                "no response to the deletion of the lease of a dead replica"
            ),
        }
    }

    /// Releases the Lease after all work has ended.
    async fn leave(&mut self) {
        if !self.lease.is_held() && self.doubts.is_empty() && self.claim.is_none() {
            return;
        }
        let until = Instant::now() + self.config.renew_deadline;
        let limit = self.request_timeout();
        let leaving = async {
            loop {
                let answer = timeout(limit, self.lease.give_up()).await;
                let answer =
                    answer.unwrap_or_else(|_| Err(Error::unanswered(format!("lease {}", self.lease.key()), limit)));
                match answer {
                    Ok(()) => return,
                    Err(err) if err.is_conflict() || err.code().is_none_or(|it| it == 429 || it >= 500) => {
                        tracing::debug!(error = %err, "the lease of this replica could not be released yet");
                    }
                    Err(err) => return tracing::warn!(error = %err, "could not release the lease of this replica"),
                }
                tokio::time::sleep(self.config.retry_period).await;
            }
        };
        let _ = timeout_at(until, leaving).await;
    }
}

impl Runnable for Member {
    fn name(&self) -> String {
        format!("sharding {}", self.config.name)
    }

    fn group(&self) -> RunnableGroup {
        RunnableGroup::Always
    }

    fn run(self: Box<Self>, stop: CancellationToken) -> futures::future::BoxFuture<'static, Result<(), BoxError>> {
        let span = spans::sharding(&self.config.name, &self.config.identity);
        Box::pin(async move { Ok((*self).participate(stop).instrument(span).await?) })
    }
}
