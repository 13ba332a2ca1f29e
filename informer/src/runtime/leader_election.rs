//! `LeaderElector`: of several processes, one at a time acts.
//!
//! A leader that is cut off acts until its renew deadline, and on a machine that stood still for longer than the lease
//! a moment beyond. Writes of a client that is [fenced](LeaderElector::fenced) are refused then, before they are sent;
//! one that is on its way already can still arrive. What must never be done twice needs its own check.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::{Either, select};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Client;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::fence;
use super::lease_lock::{Claim, LeaseLock};
use crate::jitter::Jitter;
use crate::metrics::{Collect, Metrics, Samples};
use crate::{Clock, Error};

/// A wait for the lease is prolonged by up to this many times itself, so that candidates do not move in step.
const JITTER_FACTOR: f64 = 1.2;

/// The shortest time limit of a request for the Lease, as in client-go.
const LEAST_REQUEST_TIMEOUT: Duration = Duration::from_secs(1);

/// Options of leader election. The defaults are controller-runtime's.
#[derive(Clone, Debug)]
pub struct LeaderElectionConfig {
    /// Identity of this process; no two may share one.
    pub identity: String,
    /// Time that the others wait after the last renewal they saw. Default 15 s.
    pub lease_duration: Duration,
    /// Time that the leader tries to renew before it gives up. Default 10 s. Each request for the Lease may take half
    /// of it, but at least a second: one that is never answered neither ends a leader nor stops a candidate.
    pub renew_deadline: Duration,
    /// Wait between two tries. Default 2 s.
    pub retry_period: Duration,
    /// Set if the lease is given up when the leader is cancelled, so that another need not wait for its end. The work
    /// of the leader must have stopped before. Default true: [`Manager`](super::Manager) sees to that.
    pub release_on_cancel: bool,
    /// Clock for the times written into the Lease. Nothing is decided by it.
    pub clock: Clock,
    /// The seed of waits. Default 0: a random one; see
    /// [`ReflectorOptions::seed`](crate::cache::ReflectorOptions::seed).
    pub seed: u64,
}

impl LeaderElectionConfig {
    /// The defaults, for this process.
    pub fn new(identity: &str) -> Self {
        Self {
            identity: identity.to_owned(),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
            release_on_cancel: true,
            clock: Clock::system(),
            seed: 0,
        }
    }

    fn validate(&self) -> Result<(), Error> {
        let longest_retry = self.retry_period.mul_f64(JITTER_FACTOR);
        let fault = if self.identity.is_empty() {
            "the identity is empty"
        } else if self.lease_duration <= self.renew_deadline {
            "the lease duration must be longer than the renew deadline"
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

/// Takes part in the election of a leader (client-go's `LeaderElector`). Copies are the same candidate.
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
    config: LeaderElectionConfig,
    /// Guards the state of the Lease.
    state: Mutex<State>,
    /// The current leader, for subscribers.
    leader: watch::Sender<Option<String>>,
}

struct State {
    jitter: Jitter,
    observed: Option<Observed>,
    /// Set if this process has ever led.
    has_led: bool,
    /// Times the Lease had to be read before it was renewed.
    slow_paths: u64,
}

/// A Lease as it was last seen, and when that was on the clock of this process. Times within it are never compared:
/// clocks of other machines do not matter.
#[derive(Clone)]
struct Observed {
    lease: Lease,
    claim: Claim,
    at: Instant,
}

/// Reasons for which [`LeaderElector::run`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was cancelled before it led.
    NeverLed,
    /// It was cancelled while it led.
    Cancelled,
    /// It could not renew the lease in time, or another process has it.
    Lost,
    /// The led task has ended by itself.
    Finished,
}

impl LeaderElector {
    /// A candidate.
    ///
    /// # Errors
    ///
    /// If the times do not fit together: lease duration > renew deadline > 1.2 × retry period > 0.
    pub fn new(lock: LeaseLock, config: LeaderElectionConfig) -> Result<Self, Error> {
        config.validate()?;
        let state = State {
            jitter: Jitter::new(config.seed, &config.identity),
            observed: None,
            has_led: false,
            slow_paths: 0,
        };
        Ok(Self(Arc::new(Inner {
            lock,
            config,
            state: Mutex::new(state),
            leader: watch::Sender::new(None),
        })))
    }

    /// Waits to be leader, then runs `lead` until it ends, until `cancel` is cancelled, or until leadership is lost.
    ///
    /// `lead` gets a token that is cancelled in the latter two cases, and is then waited for: only afterwards is the
    /// lease given up. When leadership is lost it is dropped where it waits, because another may lead already.
    pub async fn run<F, Fut>(&self, cancel: CancellationToken, lead: F) -> Outcome
    where
        F: FnOnce(CancellationToken) -> Fut,
        Fut: Future<Output = ()>,
    {
        if cancel.run_until_cancelled(self.acquire()).await.is_none() {
            return Outcome::NeverLed;
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
                Outcome::Lost
            }
            Either::Right((Either::Left(((), _)), _)) if cancel.is_cancelled() => Outcome::Cancelled,
            Either::Right((Either::Left(((), _)), _)) => Outcome::Finished,
            // It goes on renewing while what it led comes to its end.
            Either::Right((Either::Right(((), leading)), renewing)) => match select(leading, renewing).await {
                Either::Left(_) => Outcome::Cancelled,
                Either::Right(_) => Outcome::Lost,
            },
        };
        tracing::info!(
            lease = self.0.lock.describe(),
            identity = self.identity(),
            ?outcome,
            "stopped leading"
        );
        if outcome != Outcome::Lost && self.0.config.release_on_cancel {
            self.release().await;
        }
        outcome
    }

    /// A client as `client`, whose writes are refused once this process has led and leads no more: it has not renewed
    /// the lease within the renew deadline, or has lost or released it. [`Manager::client`](super::Manager::client) is
    /// one. Before it leads, as a standby, it may write.
    pub fn fenced(&self, client: &Client) -> Client {
        fence::fenced(client, self)
    }

    /// # Errors
    ///
    /// If this process has led and leads no more.
    pub(super) fn check_fence(&self) -> Result<(), Error> {
        let state = self.state();
        let is_mine = |it: &&Observed| {
            it.claim.holder() == Some(self.identity()) && it.at.elapsed() <= self.0.config.renew_deadline
        };
        if !state.has_led || state.observed.as_ref().filter(is_mine).is_some() {
            return Ok(());
        }
        let (identity, lease) = (self.identity(), self.0.lock.describe());
        Err(Error::refused(format!(
            "refused: {identity:?} leads no more by the lease {lease}"
        )))
    }

    /// Returns the identity of this process.
    pub fn identity(&self) -> &str {
        &self.0.config.identity
    }

    /// Returns `true` if this process led when it last looked.
    pub fn is_leader(&self) -> bool {
        self.state().holder() == Some(self.identity())
    }

    /// Returns the leader at the last look; `None` if there was none.
    pub fn leader(&self) -> Option<String> {
        self.state().holder().map(str::to_owned)
    }

    /// Subscribes to the leader's identity and each change of it (client-go's `OnNewLeader`).
    pub fn subscribe(&self) -> watch::Receiver<Option<String>> {
        self.0.leader.subscribe()
    }

    /// Fails if this process believes to lead although its lease ended more than `tolerance` ago: it could not renew,
    /// and did not notice (client-go's `Check`).
    ///
    /// # Errors
    ///
    /// As above; a health check calls it.
    pub fn check(&self, tolerance: Duration) -> Result<(), Error> {
        let state = self.state();
        let Some(observed) = state
            .observed
            .as_ref()
            .filter(|it| it.claim.holder() == Some(self.identity()))
        else {
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

    /// Tells `leader_election_master_status` and `leader_election_slowpath_total`.
    pub fn register_metrics(&self, metrics: &Metrics) {
        let collector: Arc<dyn Collect> = self.0.clone();
        metrics.register(&collector);
    }

    /// Returns when this process is leader.
    async fn acquire(&self) {
        loop {
            match self.try_acquire_or_renew().await {
                Ok(true) => return,
                Ok(false) => {}
                Err(err) => tracing::warn!(lease = self.0.lock.describe(), error = %err, "could not acquire the lease"),
            }
            let wait = {
                let mut state = self.state();
                state.jitter.prolong(self.0.config.retry_period, JITTER_FACTOR)
            };
            sleep(wait).await;
        }
    }

    /// Returns when this process is no longer leader.
    async fn renew(&self) {
        loop {
            sleep(self.0.config.retry_period).await;
            let deadline = Instant::now() + self.0.config.renew_deadline;
            let renewed = async {
                loop {
                    match self.try_acquire_or_renew().await {
                        Ok(true) => return true,
                        // Somebody else has it: there is nothing to be tried again.
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

    /// Tries to acquire or renew the lease; returns `true` if this process holds it afterwards.
    async fn try_acquire_or_renew(&self) -> Result<bool, Error> {
        let (config, lock) = (&self.0.config, &self.0.lock);
        let claim = |before: Option<&Claim>| Claim::new(&config.identity, config.lease_duration, &config.clock, before);
        // Nobody else can have it while it is valid here: no need to look.
        let held = {
            let state = self.state();
            let held = state.observed.clone();
            held.filter(|it| it.claim.holder() == Some(self.identity()) && !it.is_expired())
        };
        if let Some(held) = held {
            match self
                .answered(lock.update(held.lease.clone(), &claim(Some(&held.claim))))
                .await
            {
                Ok(lease) => return Ok(self.observe(lease)),
                Err(err) => tracing::debug!(lease = lock.describe(), error = %err, "the lease is not as it was"),
            }
            self.state().slow_paths += 1;
        }
        let Some(lease) = self.answered(lock.get()).await? else {
            return Ok(self.observe(self.answered(lock.create(&claim(None))).await?));
        };
        let is_mine = self.observe(lease.clone());
        let before = Claim::of(&lease);
        if !is_mine && before.holder().is_some() && !self.is_expired() {
            return Ok(false);
        }
        match self.answered(lock.update(lease, &claim(Some(&before)))).await {
            Ok(lease) => Ok(self.observe(lease)),
            // Another was faster.
            Err(err) if err.is_conflict() && !is_mine => Ok(false),
            Err(err) => Err(err),
        }
    }

    /// Gives the lease up, if this process has it.
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
        if !self.observe(lease.clone()) {
            return Ok(());
        }
        let claim = Claim::of(&lease).released(&self.0.config.clock);
        let lease = self.answered(self.0.lock.update(lease, &claim)).await?;
        self.observe(lease);
        Ok(())
    }

    /// A request for the Lease within its time limit.
    async fn answered<T>(&self, request: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let limit = (self.0.config.renew_deadline / 2).max(LEAST_REQUEST_TIMEOUT);
        let answer = timeout(limit, request).await;
        answer.unwrap_or_else(|_| Err(Error::unanswered(format!("lease {}", self.0.lock.describe()), limit)))
    }

    /// Remembers the Lease; whether this process holds it.
    fn observe(&self, lease: Lease) -> bool {
        let claim = Claim::of(&lease);
        let holder = claim.holder().map(str::to_owned);
        {
            let mut state = self.state();
            let before = state.observed.take();
            let at = match &before {
                // Somebody else who does not renew is known by nothing having changed.
                Some(before) if before.claim == claim => before.at,
                Some(_) | None => Instant::now(),
            };
            state.observed = Some(Observed { lease, claim, at });
        }
        let is_mine = holder.as_deref() == Some(self.identity());
        self.0.leader.send_if_modified(|leader| {
            let is_new = *leader != holder;
            *leader = holder;
            is_new
        });
        is_mine
    }

    fn is_expired(&self) -> bool {
        self.state().observed.as_ref().is_none_or(Observed::is_expired)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn holder(&self) -> Option<&str> {
        self.observed.as_ref().and_then(|it| it.claim.holder())
    }
}

impl Observed {
    /// Returns `true` if its holder did not renew within the lease duration.
    fn is_expired(&self) -> bool {
        self.at + self.claim.duration() < Instant::now()
    }
}

impl Collect for Inner {
    fn collect(&self, samples: &mut Samples) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let labels = &[("name", self.lock.name())];
        let is_leader = state.holder() == Some(self.config.identity.as_str());
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
