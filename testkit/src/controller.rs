//! `run` and `controller`: start controllers under test as tasks that end with the cluster.

use std::fmt;
use std::panic::{AssertUnwindSafe, Location};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep};

use crate::hooks::{Hooks, Restart};
use crate::lock::lock;
use crate::panics::message;
use crate::test_cluster::TestCluster;

/// First pause before the restart of a controller, as for a container in a kubelet. Each further pause is twice as long
/// as the previous one.
const BACK_OFF: Duration = Duration::from_secs(10);
/// Maximum pause before the restart of a controller.
const BACK_OFF_MAX: Duration = Duration::from_secs(300);
/// Running time after which the next pause is [`BACK_OFF`] again.
const BACK_OFF_RESET: Duration = Duration::from_secs(600);

/// All controllers of a cluster.
#[derive(Debug, Default)]
pub(crate) struct Controllers(Mutex<Vec<Running>>);

/// A controller under test. It runs until it returns, panics or is crashed, or until the cluster is dropped. Dropping
/// this handle does nothing.
#[derive(Clone, Debug)]
pub struct Running {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Location in the test that started the controller, for error messages.
    place: &'static Location<'static>,
    /// State of the task.
    state: Mutex<State>,
    task: Mutex<Option<AbortHandle>>,
    /// Function that starts the controller. Only for controllers that can be restarted.
    starting: Option<Starting>,
    /// Pending restart and backoff.
    restarts: Mutex<Restarts>,
    /// The controller's name and the exploration that it belongs to, if any.
    explored: Option<(String, Weak<dyn Hooks>)>,
}

/// Restart state of a controller that is restarted when it ends by itself.
#[derive(Debug, Default)]
struct Restarts {
    /// Set if the test has enabled restarts.
    is_on: bool,
    count: u32,
    back_off: Duration,
    /// Instant at which the controller is started again, if a restart is pending.
    next: Option<Instant>,
}

/// Function that starts a controller with a separate client.
struct Starting(Box<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>);

impl fmt::Debug for Starting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Starting")
    }
}

#[derive(Debug)]
enum State {
    Running,
    /// The controller returned.
    Ended,
    /// The test crashed the controller.
    Crashed,
    /// The controller panicked with this message, which the test has not reported yet.
    Panicked(String),
}

impl TestCluster {
    /// Runs a controller, or any other future, concurrently with the test. It is first polled when the test next waits.
    ///
    /// For a controller that can be restarted, use [`controller`](Self::controller) instead, especially in
    /// [`explore`](crate::explore), which never crashes a controller that was started by `run`.
    ///
    /// The future's output is dropped, so a controller that should run forever should report an early end itself, for
    /// example with `expect`. The message of a failing test lists controllers that have returned.
    ///
    /// If the controller panics, the next call of [`settle`](Self::settle), [`eventually`](Self::eventually),
    /// [`consistently`](Self::consistently) or [`advance`](Self::advance) fails with its message.
    ///
    /// ```
    /// # use testkit::TestCluster;
    /// # async fn my_controller(_: kube::Client) { std::future::pending().await }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let cluster = TestCluster::start();
    /// let controller = cluster.run(my_controller(cluster.client()));
    /// cluster.settle().await;
    ///
    /// controller.crash();
    /// cluster.settle().await;
    /// assert!(!controller.is_running());
    ///
    /// cluster.run(my_controller(cluster.client())); // as after a restart: with empty caches
    /// # }
    /// ```
    #[track_caller]
    pub fn run<F>(&self, controller: F) -> Running
    where
        F: Future<Output: Send> + Send + 'static,
    {
        let running = Running::new(Location::caller(), None, None);
        running.spawn(controller.map(drop));
        lock(&self.controllers.0).push(running.clone());
        running
    }

    /// Runs a controller that can be restarted. Calls `controller` with a client named `name`. [`Running::restart`]
    /// calls the function again with a new client, and so does [`explore`](crate::explore), which crashes controllers
    /// at every write and event.
    ///
    /// ```
    /// # use testkit::TestCluster;
    /// # async fn my_controller(_: kube::Client) { std::future::pending().await }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let cluster = TestCluster::start();
    /// let operator = cluster.controller("operator", my_controller);
    /// cluster.settle().await;
    ///
    /// operator.restart(); // with empty caches
    /// cluster.settle().await;
    /// assert!(operator.is_running());
    /// # }
    /// ```
    #[track_caller]
    pub fn controller<C, F>(&self, name: &str, controller: C) -> Running
    where
        C: Fn(kube::Client) -> F + Send + Sync + 'static,
        F: Future<Output: Send> + Send + 'static,
    {
        let (clients, owned) = (self.clients(), name.to_owned());
        self.start_controller(name, move || controller(clients.client(&owned)))
    }

    /// Calls `start` at each start of the controller, and runs the future that it returns.
    #[track_caller]
    pub(crate) fn start_controller<C, F>(&self, name: &str, start: C) -> Running
    where
        C: Fn() -> F + Send + Sync + 'static,
        F: Future<Output: Send> + Send + 'static,
    {
        let starting = Starting(Box::new(move || start().map(drop).boxed()));
        let explored = self
            .hooks
            .as_ref()
            .map(|hooks| (name.to_owned(), Arc::downgrade(hooks)));
        let running = Running::new(Location::caller(), Some(starting), explored);
        let hooks = self.hooks.as_ref();
        match hooks.and_then(|hooks| hooks.controller_starts(name, Arc::new(running.clone()))) {
            None => running.restart(),
            Some(late) => {
                let running = running.clone();
                // The task ends with the runtime of the run.
                tokio::spawn(async move {
                    sleep(late).await;
                    running.restart();
                });
            }
        }
        lock(&self.controllers.0).push(running.clone());
        running
    }
}

impl Running {
    fn new(
        place: &'static Location<'static>,
        starting: Option<Starting>,
        explored: Option<(String, Weak<dyn Hooks>)>,
    ) -> Self {
        let shared = Arc::new(Shared {
            place,
            state: Mutex::new(State::Running),
            task: Mutex::new(None),
            starting,
            restarts: Mutex::default(),
            explored,
        });
        Self { shared }
    }

    fn spawn(&self, controller: impl Future<Output = ()> + Send + 'static) {
        let shared = Arc::clone(&self.shared);
        *lock(&shared.state) = State::Running;
        lock(&shared.restarts).next = None;
        let task = tokio::spawn(async move {
            let mut controller = controller.boxed();
            loop {
                let began = Instant::now();
                let ended = match AssertUnwindSafe(controller).catch_unwind().await {
                    Ok(()) => State::Ended,
                    Err(payload) => State::Panicked(message(payload.as_ref())),
                };
                let (Some(back_off), Some(starting)) = (shared.ends(&ended, began.elapsed()), &shared.starting) else {
                    *lock(&shared.state) = ended;
                    return;
                };
                sleep(back_off).await;
                lock(&shared.restarts).next = None;
                controller = (starting.0)();
            }
        });
        *lock(&self.shared.task) = Some(task.abort_handle());
    }

    /// From now on, restarts the controller when it returns or panics, with the backoff of a kubelet: 10 s, then 20 s,
    /// up to five minutes; the pause is reset to 10 s after the controller has run for ten minutes. The controller may
    /// then exit in order to be restarted, and a panic does not fail the test. [`TestCluster::settle`] waits for the
    /// restart. [`restart_count`](Self::restart_count) returns the number of restarts, and so does the report of
    /// [`explore`](crate::explore).
    ///
    /// ```
    /// # use testkit::{TestCluster, objects::config_map};
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let cluster = TestCluster::start();
    /// let operator = cluster.controller("operator", |client| async move {
    ///     // It cannot start before its settings exist.
    ///     kube::Api::<ConfigMap>::default_namespaced(client).get("settings").await.expect("the settings exist");
    ///     std::future::pending::<()>().await
    /// });
    /// let operator = operator.restarts();
    /// cluster.advance(std::time::Duration::from_secs(1)).await;
    /// cluster.create(config_map("settings")).await;
    /// cluster.settle().await;
    /// assert!(operator.is_running());
    /// assert_eq!(operator.restart_count(), 1);
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// If the controller was started by [`TestCluster::run`], because such a controller cannot be restarted.
    #[track_caller]
    #[expect(
        clippy::return_self_not_must_use,
        reason = "a call that changes the controller counts as a use"
    )]
    pub fn restarts(self) -> Self {
        assert!(
            self.shared.starting.is_some(),
            "the controller started at {self} cannot be restarted: use `cluster.controller`"
        );
        lock(&self.shared.restarts).is_on = true;
        self
    }

    /// Returns the number of restarts after the controller ended by itself, including a pending restart.
    pub fn restart_count(&self) -> u32 {
        lock(&self.shared.restarts).count
    }

    /// Crashes the controller if it runs, and restarts it with empty caches and a new client.
    ///
    /// # Panics
    ///
    /// If the controller was started by [`TestCluster::run`], because such a controller cannot be restarted.
    #[track_caller]
    pub fn restart(&self) {
        self.crash();
        match &self.shared.starting {
            Some(starting) => self.spawn((starting.0)()),
            None => panic!("the controller started at {self} cannot be restarted: use `cluster.controller`"),
        }
    }
}

impl Running {
    /// Returns `true` if the controller has neither ended, nor panicked, nor been crashed. A controller with a pending
    /// restart counts as running.
    pub fn is_running(&self) -> bool {
        matches!(*lock(&self.shared.state), State::Running)
    }

    /// Stops the controller at its current await point, as if its process were killed: pending work is not completed,
    /// and responses to open requests are lost. The future is dropped when the test next waits.
    pub fn crash(&self) {
        let mut state = lock(&self.shared.state);
        if let Some(task) = lock(&self.shared.task).take() {
            task.abort();
        }
        lock(&self.shared.restarts).next = None;
        if matches!(*state, State::Running) {
            *state = State::Crashed;
        }
    }
}

impl Restart for Running {
    fn crash(&self) {
        Self::crash(self);
    }

    fn restart(&self) {
        Self::restart(self);
    }
}

impl Shared {
    /// Handles the end of the controller after the running time `ran`. Returns the pause before its restart; `None` if
    /// it is not restarted.
    fn ends(&self, how: &State, ran: Duration) -> Option<Duration> {
        let mut restarts = lock(&self.restarts);
        let back_off = restarts.is_on.then(|| restarts.after(ran));
        if let Some((name, hooks)) = &self.explored
            && let Some(hooks) = hooks.upgrade()
        {
            let how = match how {
                State::Panicked(message) => format!("panicked: {message}"),
                State::Running | State::Ended | State::Crashed => "returned".to_owned(),
            };
            hooks.controller_ended(name, &how, back_off);
        }
        back_off
    }
}

impl Restarts {
    /// Counts a restart, and returns the pause before it.
    fn after(&mut self, ran: Duration) -> Duration {
        self.back_off = match self.back_off {
            Duration::ZERO => BACK_OFF,
            _ if ran >= BACK_OFF_RESET => BACK_OFF,
            last => (last * 2).min(BACK_OFF_MAX),
        };
        self.count += 1;
        self.next = Some(Instant::now() + self.back_off);
        self.back_off
    }
}

impl Controllers {
    /// Returns the time of the last pending restart among all controllers.
    pub(crate) fn next_start(&self) -> Option<Instant> {
        let controllers = lock(&self.0);
        controllers.iter().filter_map(|it| lock(&it.shared.restarts).next).max()
    }

    /// Returns the panic message of a controller, once for each panic.
    pub(crate) fn panicked(&self) -> Option<String> {
        lock(&self.0).iter().find_map(|running| {
            let mut state = lock(&running.shared.state);
            match std::mem::replace(&mut *state, State::Crashed) {
                State::Panicked(message) => Some(format!("the controller started at {running} panicked: {message}")),
                other => {
                    *state = other;
                    None
                }
            }
        })
    }

    /// Lists the start locations of controllers that cannot be restarted.
    pub(crate) fn fixed(&self) -> Vec<String> {
        let controllers = lock(&self.0);
        let fixed = controllers.iter().filter(|it| it.shared.starting.is_none());
        fixed.map(ToString::to_string).collect()
    }

    /// Lists the controllers that have returned, one per line, for the output of a failing test. The recorded requests
    /// do not show that a controller has returned.
    pub(crate) fn ended(&self) -> String {
        let has_ended = |running: &&Running| matches!(*lock(&running.shared.state), State::Ended);
        let controllers = lock(&self.0);
        let lines = controllers.iter().filter(has_ended).map(|running| {
            format!("the controller started at {running} has returned; its error, if any, was discarded\n")
        });
        lines.collect()
    }

    /// Stops all controllers.
    pub(crate) fn abort(&self) {
        for running in lock(&self.0).drain(..) {
            running.crash();
        }
    }
}

impl fmt::Display for Running {
    /// Formats the location in the test that started the controller.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.shared.place.file(), self.shared.place.line())
    }
}
