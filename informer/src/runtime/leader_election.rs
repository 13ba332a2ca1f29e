//! `LeaderElector`: lets one of several processes act at a time.
//!
//! A disconnected leader keeps acting until its renew deadline, and for a moment longer on a machine that was suspended
//! for longer than the lease. Writes of a [fenced](LeaderElector::fenced) client are then refused before they are sent,
//! but a write that was already sent can still arrive. Operations that must never happen twice need an additional
//! check.

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

/// Maximum relative extension of a wait for the lease, so that candidates do not act at the same time.
const JITTER_FACTOR: f64 = 1.2;

/// Minimum time limit of a request for the Lease, as in client-go.
const LEAST_REQUEST_TIMEOUT: Duration = Duration::from_secs(1);

/// Minimum time between the end of one leader and the start of the next. It covers timers, clocks of different speed,
/// and writes in flight. [`Manager`](super::Manager) takes up to this long to drop the leader's tasks.
const LEAST_MARGIN: Duration = Duration::from_secs(1);

/// Options of leader election. The defaults are controller-runtime's.
#[derive(Clone, Debug)]
pub struct LeaderElectionConfig {
    /// Identity of this process, such as the name of its Pod. If several processes share an identity, one of them leads
    /// at a time: the Lease also contains a random part, in an annotation.
    pub identity: String,
    /// Time that other candidates wait after the last renewal that they observed. Default: 15 s. The Lease has whole
    /// seconds, so fractions are cut off.
    pub lease_duration: Duration,
    /// Time for which a leader acts after its last successful renewal, counted from the moment at which the request was
    /// sent. Default: 10 s. It must be at least a second shorter than the lease duration. Each request for the Lease
    /// may take half of it, but at least a second, so a request without an answer neither ends a leader nor stops a
    /// candidate.
    pub renew_deadline: Duration,
    /// Wait between two attempts. Default: 2 s.
    pub retry_period: Duration,
    /// Set if the lease is released when the leader is cancelled, so that other candidates do not have to wait until it
    /// expires. The leader's work must have stopped before; [`Manager`](super::Manager) ensures this. Default: true.
    pub release_on_cancel: bool,
    /// Clock for the times written into the Lease. Decisions do not depend on it.
    pub clock: Clock,
    /// Seed of the waits. Default: 0, which draws a random one; see
    /// [`ReflectorOptions::seed`](crate::cache::ReflectorOptions::seed).
    pub seed: u64,
    /// Unused. End literals with `..`, because options may be added.
    #[doc(hidden)]
    pub _more: (),
}

impl LeaderElectionConfig {
    /// Returns the defaults for a process with this identity.
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
        } else if Duration::from_secs(self.lease_duration.as_secs()) < self.renew_deadline + LEAST_MARGIN {
            "the lease duration, in whole seconds, must be longer than the renew deadline by a second"
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

/// Takes part in the election of a leader (client-go's `LeaderElector`). Clones are the same candidate.
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
    /// Guards the state of the Lease.
    state: Mutex<State>,
    /// The current leader, for subscribers.
    leader: watch::Sender<Option<String>>,
}

struct State {
    jitter: Jitter,
    observed: Option<Observed>,
    /// Time at which the first unanswered claim since the last answer was sent: the Lease may contain it.
    unanswered: Option<Instant>,
    /// Set if this process has ever led.
    has_led: bool,
    /// Number of times the Lease had to be read before its renewal.
    slow_paths: u64,
}

/// The last observed state of a Lease. Times in it are never compared, so the clocks of other machines are irrelevant.
#[derive(Clone)]
struct Observed {
    lease: Lease,
    claim: Claim,
    /// Set if this process holds it.
    is_mine: bool,
    /// Time of the claim on the clock of this process. A claim of this process counts from the time at which it was
    /// sent, because other processes may count from then on; a claim of another process counts from its first
    /// observation.
    at: Instant,
}

/// The source of an observed Lease.
#[derive(Clone, Copy)]
enum Seen {
    /// The answer to a claim of this process that was sent at this time.
    Claimed(Instant),
    Read,
}

/// Reasons why [`LeaderElector::run`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ElectionOutcome {
    /// It was cancelled before this process led.
    NeverLed,
    /// It was cancelled while this process led.
    Cancelled,
    /// It could not renew the lease in time, or another process holds it.
    Lost,
    /// The task of the leader ended by itself.
    Finished,
}

impl LeaderElector {
    /// Creates a candidate.
    ///
    /// # Errors
    ///
    /// If the identity is empty, the lease duration (in whole seconds) is not at least a second longer than the renew
    /// deadline, or the renew deadline is not longer than 1.2 times the retry period, which must not be zero.
    pub fn new(lock: LeaseLock, config: LeaderElectionConfig) -> Result<Self, Error> {
        config.validate()?;
        let state = State {
            jitter: Jitter::new(config.seed, &config.identity),
            observed: None,
            unanswered: None,
            has_led: false,
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

    /// Waits until this process leads, then runs `lead` until it ends, until `cancel` is cancelled, or until leadership
    /// is lost.
    ///
    /// `lead` receives a token that is cancelled in the latter two cases. After a cancellation, the function waits for
    /// the end of `lead` and then releases the lease. After a loss of leadership, `lead` is dropped at its current
    /// await point, because another process may already lead.
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
        self.state().has_led = true;
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
            // Keeps renewing until the leader's work has ended.
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

    /// Returns a client like `client` that refuses writes when this process no longer leads: because it has not renewed
    /// the lease within the renew deadline, or has lost or released it. [`Manager::client`](super::Manager::client) is
    /// such a client. Writes are permitted before the process has led, as a standby.
    pub fn fenced(&self, client: &Client) -> Client {
        fence::fenced(client, self)
    }

    /// # Errors
    ///
    /// If this process has led and no longer leads.
    pub(super) fn check_fence(&self) -> Result<(), Error> {
        let state = self.state();
        if !state.has_led || state.is_leading(self.0.config.renew_deadline) {
            return Ok(());
        }
        let (identity, lease) = (self.identity(), self.0.lock.describe());
        Err(Error::fenced(format!(
            "refused: {identity:?} no longer leads by the lease {lease}"
        )))
    }

    /// Returns the identity of this process.
    pub fn identity(&self) -> &str {
        &self.0.config.identity
    }

    /// Returns `true` if this process led at its last check.
    pub fn is_leader(&self) -> bool {
        self.state().is_mine()
    }

    /// Returns the leader at the last check; `None` if there was no leader.
    pub fn leader(&self) -> Option<String> {
        self.state().holder().map(str::to_owned)
    }

    /// Subscribes to the leader's identity and each change of it (client-go's `OnNewLeader`).
    pub fn subscribe(&self) -> watch::Receiver<Option<String>> {
        self.0.leader.subscribe()
    }

    /// Fails if this process considers itself the leader although its lease ended more than `tolerance` ago: it could
    /// not renew the lease and did not notice (client-go's `Check`).
    ///
    /// # Errors
    ///
    /// See above. Intended for health checks.
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

    /// Exports `leader_election_master_status` and `leader_election_slowpath_total`.
    pub fn register_metrics(&self, metrics: &Metrics) {
        let collector: Arc<dyn Collect> = self.0.clone();
        metrics.register(&collector);
    }

    /// Returns when this process leads.
    async fn acquire(&self) {
        loop {
            match self.try_acquire_or_renew().await {
                // The answer may arrive after the end of the lease.
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

    /// Returns when this process no longer leads.
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
                        // Another process holds the lease, so retries are pointless.
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
        // No other process can hold the lease while it is valid here, so it need not be read.
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
            // The Lease was deleted by hand, and its holder may not have noticed.
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
            // Another process acquired it first.
            Err(err) if err.is_conflict() && !is_mine => Ok(false),
            result => result,
        }
    }

    /// Claims the Lease for this process, and creates it if it is missing.
    async fn claim(&self, lease: Option<Lease>) -> Result<bool, Error> {
        let Inner {
            lock, holder, config, ..
        } = &*self.0;
        let sent = Instant::now();
        self.state().unanswered.get_or_insert(sent);
        let claim = |lease: &mut Lease| holder.claim(lease, config.lease_duration, &config.clock);
        let lease = match lease {
            Some(lease) => self.answered(lock.update(lease, claim)).await?,
            None => self.answered(lock.create(claim)).await?,
        };
        Ok(self.observe(lease, Seen::Claimed(sent)))
    }

    /// Releases the lease if this process holds it.
    async fn release(&self) {
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

    /// Records the Lease. Returns `true` if this process holds it.
    fn observe(&self, lease: Lease, seen: Seen) -> bool {
        let (claim, is_mine) = (Claim::of(&lease), self.0.holder.holds(&lease));
        let holder = claim.holder().map(str::to_owned);
        {
            let mut state = self.state();
            let before = state.observed.take();
            let at = match (seen, before) {
                (Seen::Claimed(sent), _) => {
                    state.unanswered = None;
                    sent
                }
                // A renewal with a lost answer does not prolong the lease here.
                (Seen::Read, Some(before)) if is_mine && before.is_mine => before.at,
                (Seen::Read, _) if is_mine => state.unanswered.unwrap_or_else(Instant::now),
                // An unchanged claim means that the holder does not renew it.
                (Seen::Read, Some(before)) if before.claim == claim => before.at,
                (Seen::Read, _) => Instant::now(),
            };
            state.observed = Some(Observed {
                lease,
                claim,
                is_mine,
                at,
            });
        }
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

impl State {
    fn holder(&self) -> Option<&str> {
        self.observed.as_ref().and_then(|it| it.claim.holder())
    }

    /// Returns `true` if this process held the lease at its last check.
    fn is_mine(&self) -> bool {
        self.claimed_at().is_some()
    }

    /// Returns the time at which the last successful claim of this process was sent.
    fn claimed_at(&self) -> Option<Instant> {
        self.observed.as_ref().filter(|it| it.is_mine).map(|it| it.at)
    }

    /// Returns `true` if this process holds the lease and has renewed it in time.
    fn is_leading(&self, renew_deadline: Duration) -> bool {
        self.claimed_at().is_some_and(|it| it.elapsed() < renew_deadline)
    }
}

impl Observed {
    /// Returns `true` if the holder did not renew within the lease duration.
    fn is_expired(&self) -> bool {
        self.at + self.claim.duration() < Instant::now()
    }

    /// Returns `true` if another process holds the lease.
    fn is_of_another(&self) -> bool {
        !self.is_mine && self.claim.holder().is_some() && !self.is_expired()
    }
}

impl Collect for Inner {
    fn collect(&self, samples: &mut Samples) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let labels = &[("name", self.lock.name())];
        let is_leader = state.is_mine();
        let help = "Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 indicates \
                    master. 'name' is the string used to identify the lease. Please make sure to group by name.";
        samples.gauge(
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
