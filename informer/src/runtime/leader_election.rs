//! `LeaderElector`: ensures that only one of several processes is active at a time.
//!
//! A disconnected leader stops at its renew deadline. If its process was stopped for longer than the lease duration,
//! the leader may briefly be active afterwards. Writes of a [fenced](LeaderElector::fenced) client are then refused
//! before they are sent, but a write that was already sent can still be executed. If the whole machine was suspended,
//! the fence does not refuse writes until the next renewal has failed, because the monotonic clock of most systems does
//! not advance in the meantime. Operations that must never happen twice need an additional check.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::{Either, select};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Client;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::fence;
use super::lease_lock::{Claim, Holder, LeaseLock};
use crate::jitter::Jitter;
use crate::metrics::{Collect, Metrics, Samples};
use crate::{Clock, Error, spans};

/// Maximum random extension of delays between attempts to acquire the lease, as a multiple of the delay. It prevents
/// candidates from sending requests at the same time.
const JITTER_FACTOR: f64 = 1.2;

/// Minimum time limit of requests for the Lease, as in client-go.
const LEAST_REQUEST_TIMEOUT: Duration = Duration::from_secs(1);

/// Minimum time between the end of one leader and the start of the next one. It allows for inexact timers, clocks that
/// run at different speeds, and requests in flight.
const LEAST_MARGIN: Duration = Duration::from_secs(1);

/// Options of leader election. The defaults are controller-runtime's.
#[derive(Clone, Debug)]
pub struct LeaderElectionConfig {
    /// Identity of this process, such as the name of its Pod. Processes with the same identity are still distinguished
    /// by a random part in an annotation of the Lease, so that only one of them leads at a time.
    pub identity: String,
    /// Time without an observed renewal after which other candidates take over. Default: 15 s. Rounded down to whole
    /// seconds, because the Lease stores whole seconds.
    pub lease_duration: Duration,
    /// Time for which a leader remains active after its last successful renewal, counted from the time at which it sent
    /// the request. Must be at least a second shorter than the lease duration. Default: 10 s. The time limit of each
    /// request for the Lease is half of this time, but at least a second, so that a single request without a response
    /// does not end leadership.
    pub renew_deadline: Duration,
    /// Delay between attempts to acquire or renew the lease. Default: 2 s.
    pub retry_period: Duration,
    /// Releases the lease when the leader is cancelled or its work has completed, so that other candidates do not have
    /// to wait until it expires. The leader's work must end before the release; [`Manager`](super::Manager) ensures
    /// this. Default: true.
    pub release_on_cancel: bool,
    /// Clock for the times written to the Lease. These times do not affect the election.
    pub clock: Clock,
    /// Seed of the random extension of delays. Default: 0, which selects a random seed; see
    /// [`ReflectorOptions::seed`](crate::cache::ReflectorOptions::seed).
    pub seed: u64,
    /// Unused. End struct literals with `..LeaderElectionConfig::new(identity)`, because fields may be added.
    #[doc(hidden)]
    pub _more: (),
}

impl LeaderElectionConfig {
    /// Returns the default options for a process with this identity.
    pub fn new(identity: &str) -> Self {
        Self {
            identity: identity.to_owned(),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
            release_on_cancel: true,
            clock: Clock::system(),
            seed: 0,
            _more: (),
        }
    }

    fn validate(&self) -> Result<(), Error> {
        let longest_retry = self.retry_period.mul_f64(JITTER_FACTOR);
        let fault = if self.identity.is_empty() {
            "the identity is empty"
        } else if Duration::from_secs(self.lease_duration.as_secs()) < self.renew_deadline.saturating_add(LEAST_MARGIN)
        {
            "the lease duration, in whole seconds, must exceed the renew deadline by at least one second"
        } else if self.renew_deadline <= longest_retry {
            "the renew deadline must be longer than 1.2 times the retry period"
        } else if self.retry_period.is_zero() {
            "the retry period is zero"
        } else if self.lease_duration < Duration::from_secs(1) {
            "the lease duration is shorter than a second"
        } else {
            return Ok(());
        };
        Err(Error::refused(format!(
            "leader election of {:?}: {fault}",
            self.identity
        )))
    }
}

/// A candidate in a leader election (client-go's `LeaderElector`). Clones refer to the same candidate.
///
/// ```
/// use informer::runtime::{LeaderElectionConfig, LeaderElector, LeaseLock};
/// use tokio_util::sync::CancellationToken;
///
/// # async fn lead(client: kube::Client) -> Result<(), informer::Error> {
/// let lock = LeaseLock::new(client, "shop", "cashier");
/// let elector = LeaderElector::new(lock, LeaderElectionConfig::new("cashier-7d4b-x2x9k"))?;
/// let cancel = CancellationToken::new();
/// let outcome = elector
///     .run(cancel, |lost| async move {
///         // … work, until `lost.cancelled()` …
///         lost.cancelled().await;
///     })
///     .await;
/// println!("no longer leader: {outcome:?}");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct LeaderElector(Arc<Inner>);

struct Inner {
    lock: LeaseLock,
    holder: Holder,
    config: LeaderElectionConfig,
    /// Guards the state of the candidate.
    state: Mutex<State>,
    /// Identity of the current leader, for subscribers.
    leader: watch::Sender<Option<String>>,
}

struct State {
    jitter: Jitter,
    observed: Option<Observed>,
    /// Claims without a response. The Lease may contain one of them.
    unanswered: Option<Unanswered>,
    /// Set once this process has been the leader.
    has_led: bool,
    /// Set before the request that releases the lease is sent, because another process may become the leader before the
    /// response arrives.
    is_released: bool,
    /// Number of renewals that had to read the Lease, because writing it without reading it failed.
    slow_paths: u64,
}

/// Claims of this process without a response. All of them may still be executed.
#[derive(Clone)]
struct Unanswered {
    /// Time at which the first of these claims was sent.
    since: Instant,
    /// Version of the Lease that the last claim replaces; `None` if it creates the Lease. If the Lease has another
    /// version, the server either has executed the claim or refuses it.
    replaces: Option<String>,
}

/// The last observed state of the Lease. The times in the Lease are not used, so the clocks of other machines do not
/// matter.
#[derive(Clone)]
struct Observed {
    lease: Lease,
    claim: Claim,
    /// Set if this process holds the Lease.
    is_mine: bool,
    /// Time from which the lease duration is counted. For a claim of this process, the time at which it was sent,
    /// because other processes may have observed it since then. For a claim of another process, the time at which it
    /// was first observed.
    at: Instant,
}

/// Source of an observed state of the Lease.
#[derive(Clone, Copy)]
enum Seen {
    /// The response to a claim of this process. Contains the time at which the claim was sent.
    Claimed(Instant),
    Read,
}

/// Reason why [`LeaderElector::run`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ElectionOutcome {
    /// The candidate was cancelled before it became the leader.
    NeverLed,
    /// The candidate was cancelled while it was the leader.
    Cancelled,
    /// The lease was not renewed in time, or another process holds it.
    Lost,
    /// The leader's future completed by itself.
    Finished,
}

impl LeaderElector {
    /// Creates a candidate for a Lease.
    ///
    /// # Errors
    ///
    /// Fails if the identity is empty, if the lease duration, in whole seconds, is not at least a second longer than
    /// the renew deadline, if the renew deadline is not longer than 1.2 times the retry period, or if the retry period
    /// is zero.
    pub fn new(lock: LeaseLock, config: LeaderElectionConfig) -> Result<Self, Error> {
        config.validate()?;
        let state = State {
            jitter: Jitter::new(config.seed, &config.identity),
            observed: None,
            unanswered: None,
            has_led: false,
            is_released: false,
            slow_paths: 0,
        };
        Ok(Self(Arc::new(Inner {
            lock,
            holder: Holder::new(&config.identity),
            config,
            state: Mutex::new(state),
            leader: watch::Sender::new(None),
        })))
    }

    /// Waits until this process becomes the leader, and then runs `lead` until it completes, `cancel` is cancelled, or
    /// leadership is lost.
    ///
    /// The token that `lead` receives is cancelled in the last two cases. After a cancellation, waits until `lead` has
    /// completed. When `lead` has completed, releases the lease if
    /// [`release_on_cancel`](LeaderElectionConfig::release_on_cancel) is set. After a loss of leadership, `lead` is
    /// dropped at its current await point, because another process may already be the leader.
    pub async fn run<F, Fut>(&self, cancel: CancellationToken, lead: F) -> ElectionOutcome
    where
        F: FnOnce(CancellationToken) -> Fut,
        Fut: Future<Output = ()>,
    {
        let span = spans::leader_election(&self.0.lock.describe(), self.identity());
        self.take_part(cancel, lead).instrument(span).await
    }

    async fn take_part<F, Fut>(&self, cancel: CancellationToken, lead: F) -> ElectionOutcome
    where
        F: FnOnce(CancellationToken) -> Fut,
        Fut: Future<Output = ()>,
    {
        if cancel.run_until_cancelled(self.acquire()).await.is_none() {
            return ElectionOutcome::NeverLed;
        }
        {
            let mut state = self.state();
            (state.has_led, state.is_released) = (true, false);
        }
        tracing::info!(
            lease = self.0.lock.describe(),
            identity = self.identity(),
            "became leader"
        );
        let stop = cancel.child_token();
        let leading = std::pin::pin!(lead(stop.clone()));
        let renewing = std::pin::pin!(self.renew());
        let outcome = match select(renewing, select(leading, std::pin::pin!(cancel.cancelled()))).await {
            Either::Left(((), _)) => {
                stop.cancel();
                ElectionOutcome::Lost
            }
            Either::Right((Either::Left(((), _)), _)) if cancel.is_cancelled() => ElectionOutcome::Cancelled,
            Either::Right((Either::Left(((), _)), _)) => ElectionOutcome::Finished,
            // Continue to renew the lease until the leader's work has ended.
            Either::Right((Either::Right(((), leading)), renewing)) => match select(leading, renewing).await {
                Either::Left(_) => ElectionOutcome::Cancelled,
                Either::Right(_) => ElectionOutcome::Lost,
            },
        };
        tracing::info!(
            lease = self.0.lock.describe(),
            identity = self.identity(),
            ?outcome,
            "stopped leading"
        );
        if outcome != ElectionOutcome::Lost && self.0.config.release_on_cancel {
            self.release().await;
        }
        outcome
    }

    /// Wraps `client` so that it refuses writes after this process has lost leadership: if this process did not renew
    /// the lease within the renew deadline, has lost the lease, or has begun to release it.
    /// [`Manager::client`](super::Manager::client) returns such a client. A process that has not been the leader yet
    /// may write.
    pub fn fenced(&self, client: &Client) -> Client {
        fence::fenced(client, self)
    }

    /// Checks that this process may write.
    ///
    /// # Errors
    ///
    /// Fails if this process has been the leader but no longer is.
    pub(super) fn check_fence(&self) -> Result<(), Error> {
        let state = self.state();
        let may_lead = !state.is_released && state.is_leading(self.0.config.renew_deadline);
        if !state.has_led || may_lead {
            return Ok(());
        }
        let (identity, lease) = (self.identity(), self.0.lock.describe());
        Err(Error::fenced(format!(
            "refused: {identity:?} is no longer the leader according to the lease {lease}"
        )))
    }

    /// Returns the identity of this process.
    pub fn identity(&self) -> &str {
        &self.0.config.identity
    }

    /// Returns `true` if this process was the leader when it last checked the Lease, and has not begun to release the
    /// Lease since.
    pub fn is_leader(&self) -> bool {
        self.state().is_leader()
    }

    /// Returns the identity of the leader when the Lease was last checked; `None` if no process held it.
    pub fn leader(&self) -> Option<String> {
        self.state().holder().map(str::to_owned)
    }

    /// Subscribes to the identity of the leader (client-go's `OnNewLeader`).
    pub fn subscribe(&self) -> watch::Receiver<Option<String>> {
        self.0.leader.subscribe()
    }

    /// Checks that this process is not acting as the leader with a lease that expired more than `tolerance` ago
    /// (client-go's `Check`). Intended for health checks.
    ///
    /// # Errors
    ///
    /// Fails if the lease expired more than `tolerance` ago.
    pub fn check(&self, tolerance: Duration) -> Result<(), Error> {
        let state = self.state();
        let Some(observed) = state.observed.as_ref().filter(|it| it.is_mine) else {
            return Ok(());
        };
        let age = observed.at.elapsed();
        if age > self.0.config.lease_duration + tolerance {
            let lease = self.0.lock.describe();
            return Err(Error::refused(format!(
                "failed election to renew leadership on lease {lease}: {age:?} old"
            )));
        }
        Ok(())
    }

    /// Registers the metrics `leader_election_master_status` and `leader_election_slowpath_total`.
    pub fn register_metrics(&self, metrics: &Metrics) {
        let collector: Arc<dyn Collect> = self.0.clone();
        metrics.register(&collector);
    }

    /// Waits until this process is the leader.
    async fn acquire(&self) {
        loop {
            match self.try_acquire_or_renew().await {
                // The response may have arrived after the lease expired.
                Ok(true) if self.state().is_leading(self.0.config.renew_deadline) => return,
                Ok(_) => {}
                Err(err) => tracing::warn!(lease = self.0.lock.describe(), error = %err, "could not acquire the lease"),
            }
            let wait = {
                let mut state = self.state();
                state.jitter.prolong(self.0.config.retry_period, JITTER_FACTOR)
            };
            sleep(wait).await;
        }
    }

    /// Renews the lease. Returns when this process is no longer the leader.
    async fn renew(&self) {
        loop {
            let Some(renewed) = self.state().claimed_at() else {
                return;
            };
            sleep_until(renewed + self.0.config.retry_period).await;
            let deadline = renewed + self.0.config.renew_deadline;
            let renewed = async {
                loop {
                    match self.try_acquire_or_renew().await {
                        Ok(true) => return true,
                        // Another process holds the lease, so do not retry.
                        Ok(false) => return false,
                        Err(err) => {
                            tracing::warn!(lease = self.0.lock.describe(), error = %err, "could not renew the lease");
                        }
                    }
                    sleep(self.0.config.retry_period).await;
                }
            };
            if !timeout_at(deadline, renewed).await.unwrap_or(false) {
                return;
            }
        }
    }

    /// Attempts to acquire or renew the lease. Returns `true` if this process holds it afterwards.
    async fn try_acquire_or_renew(&self) -> Result<bool, Error> {
        let lock = &self.0.lock;
        // While this process holds the lease, other processes do not change it. It can therefore be updated without
        // reading it.
        let held = {
            let state = self.state();
            let held = state.observed.clone();
            held.filter(|it| it.is_mine && !it.is_expired())
        };
        if let Some(held) = held {
            match self.claim(Some(held.lease)).await {
                Ok(is_mine) => return Ok(is_mine),
                Err(err) => tracing::debug!(lease = lock.describe(), error = %err, "the lease has changed"),
            }
            self.state().slow_paths += 1;
        }
        let Some(lease) = self.answered(lock.get()).await? else {
            // If the Lease was deleted manually, its holder may not have noticed this yet.
            if self.state().observed.as_ref().is_some_and(Observed::is_of_another) {
                return Ok(false);
            }
            return self.claim(None).await;
        };
        let is_mine = self.observe(lease.clone(), Seen::Read);
        if self.state().observed.as_ref().is_some_and(Observed::is_of_another) {
            return Ok(false);
        }
        match self.claim(Some(lease)).await {
            // Another process has acquired the lease first.
            Err(err) if err.is_conflict() && !is_mine => Ok(false),
            result => result,
        }
    }

    /// Writes a claim of this process to the Lease, and creates the Lease if it does not exist. Returns `true` if this
    /// process holds it afterwards.
    async fn claim(&self, lease: Option<Lease>) -> Result<bool, Error> {
        let Inner {
            lock, holder, config, ..
        } = &*self.0;
        let sent = Instant::now();
        let earlier = {
            let mut state = self.state();
            let earlier = state.unanswered.clone();
            state.unanswered = Some(Unanswered {
                since: earlier.as_ref().map_or(sent, |it| it.since),
                replaces: lease.as_ref().and_then(version),
            });
            earlier
        };
        let claim = |lease: &mut Lease| holder.claim(lease, config.lease_duration, &config.clock);
        let answer = match lease {
            Some(lease) => self.answered(lock.update(lease, claim)).await,
            None => self.answered(lock.create(claim)).await,
        };
        if answer.as_ref().is_err_and(|err| err.code() == Some(409)) {
            // The Lease has changed or exists, so it does not contain this claim.
            self.state().unanswered = earlier;
        }
        Ok(self.observe(answer?, Seen::Claimed(sent)))
    }

    /// Releases the lease if this process holds it.
    async fn release(&self) {
        self.state().is_released = true;
        let config = &self.0.config;
        let given_up = async {
            loop {
                match self.try_release().await {
                    Ok(()) => return,
                    Err(err) if err.is_conflict() || err.is_unanswered() => {}
                    Err(err) => {
                        return tracing::warn!(lease = self.0.lock.describe(), error = %err, "could not release the lease");
                    }
                }
                sleep(config.retry_period).await;
            }
        };
        let _ = timeout_at(Instant::now() + config.renew_deadline, given_up).await;
    }

    async fn try_release(&self) -> Result<(), Error> {
        let Some(lease) = self.answered(self.0.lock.get()).await? else {
            return Ok(());
        };
        if !self.observe(lease.clone(), Seen::Read) {
            return Ok(());
        }
        let release = |lease: &mut Lease| self.0.holder.release(lease, &self.0.config.clock);
        let lease = self.answered(self.0.lock.update(lease, release)).await?;
        self.observe(lease, Seen::Read);
        Ok(())
    }

    /// Applies the time limit to a request for the Lease.
    async fn answered<T>(&self, request: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let limit = (self.0.config.renew_deadline / 2).max(LEAST_REQUEST_TIMEOUT);
        let answer = timeout(limit, request).await;
        answer.unwrap_or_else(|_| Err(Error::unanswered(format!("lease {}", self.0.lock.describe()), limit)))
    }

    /// Records a state of the Lease. Returns `true` if this process holds it.
    fn observe(&self, lease: Lease, seen: Seen) -> bool {
        let claim = Claim::of(&lease);
        let holder = claim.holder().map(str::to_owned);
        let is_mine = {
            let mut state = self.state();
            let before = state.observed.take();
            // A server that was restored from a backup may return an earlier claim of this process, although another
            // process has become the leader since.
            let may_hold = match seen {
                Seen::Claimed(_) => true,
                Seen::Read => state.unanswered.is_some() || before.as_ref().is_some_and(|it| it.is_mine),
            };
            let is_mine = may_hold && self.0.holder.holds(&lease);
            // The claims without a response were replaced by this version, or will be refused.
            let is_over = |it: &Unanswered| it.replaces != version(&lease);
            if !is_mine && state.unanswered.as_ref().is_some_and(is_over) {
                state.unanswered = None;
            }
            let at = match (seen, before) {
                (Seen::Claimed(sent), _) => {
                    state.unanswered = None;
                    sent
                }
                // If the response to a renewal was lost, the renewal does not extend the lease for this process.
                (Seen::Read, Some(before)) if is_mine && before.is_mine => before.at,
                (Seen::Read, _) if is_mine => state.unanswered.as_ref().map_or_else(Instant::now, |it| it.since),
                // If the claim is unchanged, the holder has not renewed the lease.
                (Seen::Read, Some(before)) if before.claim == claim => before.at,
                (Seen::Read, _) => Instant::now(),
            };
            state.observed = Some(Observed {
                lease,
                claim,
                is_mine,
                at,
            });
            is_mine
        };
        self.0.leader.send_if_modified(|leader| {
            let is_new = *leader != holder;
            *leader = holder;
            is_new
        });
        is_mine
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the version of a Lease.
fn version(lease: &Lease) -> Option<String> {
    lease.metadata.resource_version.clone()
}

impl State {
    fn holder(&self) -> Option<&str> {
        self.observed.as_ref().and_then(|it| it.claim.holder())
    }

    /// Returns `true` if this process held the lease when it was last checked, and has not begun to release it.
    fn is_leader(&self) -> bool {
        !self.is_released && self.claimed_at().is_some()
    }

    /// Returns the time at which this process sent its last successful claim; `None` if it does not hold the lease.
    fn claimed_at(&self) -> Option<Instant> {
        self.observed.as_ref().filter(|it| it.is_mine).map(|it| it.at)
    }

    /// Returns `true` if this process holds the lease and has renewed it within the renew deadline.
    fn is_leading(&self, renew_deadline: Duration) -> bool {
        self.claimed_at().is_some_and(|it| it.elapsed() < renew_deadline)
    }
}

impl Observed {
    /// Returns `true` if the holder has not renewed the lease within the lease duration.
    fn is_expired(&self) -> bool {
        self.at + self.claim.duration() < Instant::now()
    }

    /// Returns `true` if another process holds a lease that has not expired.
    fn is_of_another(&self) -> bool {
        !self.is_mine && self.claim.holder().is_some() && !self.is_expired()
    }
}

impl Collect for Inner {
    fn collect(&self, samples: &mut Samples) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let labels = &[("name", self.lock.name())];
        let is_leader = state.is_leader();
        let help = "Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 indicates \
                    master. 'name' is the string used to identify the lease. Please make sure to group by name.";
        samples.highest(
            "leader_election_master_status",
            help,
            labels,
            f64::from(u8::from(is_leader)),
        );
        let help = "Counter of slow path exercised in renewing leader leases. 'name' is the string used to identify the \
                    lease. Please make sure to group by name.";
        samples.counter("leader_election_slowpath_total", help, labels, state.slow_paths as f64);
    }
}

impl fmt::Debug for LeaderElector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaderElector")
            .field("lease", &self.0.lock.describe())
            .field("identity", &self.0.config.identity)
            .field("is_leader", &self.is_leader())
            .finish_non_exhaustive()
    }
}
