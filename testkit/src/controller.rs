//! `run`: controllers under test, as tasks that end with the cluster.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, Location};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep};

use crate::explore::Gate;
use crate::test_cluster::{TestCluster, lock};

/// The back-off of a kubelet before it starts a container again: the first, the longest, and how long a container must
/// have run for it to begin anew.
const BACK_OFF: Duration = Duration::from_secs(10);
const BACK_OFF_MAX: Duration = Duration::from_secs(300);
const BACK_OFF_RESET: Duration = Duration::from_secs(600);

/// All controllers of a cluster.
#[derive(Debug, Default)]
pub(crate) struct Controllers(Mutex<Vec<Running>>);

/// A controller under test. It runs until it ends, is crashed, or the cluster is dropped; dropping this does nothing.
#[derive(Clone, Debug)]
pub struct Running {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Location in the test that started the controller; names it in messages.
    place: &'static Location<'static>,
    /// Guards the state of the task.
    state: Mutex<State>,
    task: Mutex<Option<AbortHandle>>,
    /// Function that starts the controller anew, for those started by `TestCluster::controller`.
    starting: Option<Starting>,
    /// Guards the state of its ends.
    restarts: Mutex<Restarts>,
    /// Its name, and the gate of the exploration it is part of.
    explored: Option<(String, Weak<Gate>)>,
}

/// Number of times a controller ended by itself and was started again.
#[derive(Debug, Default)]
struct Restarts {
    /// The test asked for it.
    is_on: bool,
    count: u32,
    back_off: Duration,
    /// Instant of the next start, while one is pending.
    next: Option<Instant>,
}

/// Starts a controller with its own client.
struct Starting(Box<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>);

impl fmt::Debug for Starting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Starting")
    }
}

#[derive(Debug)]
enum State {
    Running,
    /// By itself.
    Ended,
    /// By the test.
    Crashed,
    /// With this message; not yet reported.
    Panicked(String),
}

impl TestCluster {
    /// Runs a controller, or any other future, beside the test. It begins when the test next waits.
    ///
    /// [`controller`](Self::controller) is the same for controllers that can be started again. Inside of
    /// [`explore`](crate::explore) take that one: what `run` has started is never crashed.
    ///
    /// What it returns is dropped: a controller that is to run for ever and does not should say so, by `expect` for
    /// instance. A failing test names those that have returned.
    ///
    /// If it panics, the next [`settle`](Self::settle), [`eventually`](Self::eventually),
    /// [`consistently`](Self::consistently) or [`advance`](Self::advance) fails and tells the message.
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

    /// Runs a controller that can be started again: `controller` makes it from a client, whose name is `name`.
    /// [`Running::restart`] calls it once more, with a new client; so does [`explore`](crate::explore), which kills
    /// controllers where it hurts.
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

    /// Runs what `start` makes each time the controller begins.
    #[track_caller]
    pub(crate) fn start_controller<C, F>(&self, name: &str, start: C) -> Running
    where
        C: Fn() -> F + Send + Sync + 'static,
        F: Future<Output: Send> + Send + 'static,
    {
        let starting = Starting(Box::new(move || start().map(drop).boxed()));
        let explored = self.gate.as_ref().map(|gate| (name.to_owned(), Arc::downgrade(gate)));
        let running = Running::new(Location::caller(), Some(starting), explored);
        self.entered(name, &running);
        running.restart();
        lock(&self.controllers.0).push(running.clone());
        running
    }
}

impl Running {
    fn new(
        place: &'static Location<'static>,
        starting: Option<Starting>,
        explored: Option<(String, Weak<Gate>)>,
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

    /// From now on, starts it again when it returns or panics, as a kubelet does with a container: 10 s later, then
    /// 20 s, up to five minutes; the pause is 10 s again after it has run for ten minutes. A controller that exits in
    /// order to be started again is right then, and a panic fails no test. [`TestCluster::settle`] waits for the start;
    /// [`restart_count`](Self::restart_count) and the report of [`explore`](crate::explore) say how often.
    ///
    /// ```
    /// # use testkit::{TestCluster, objects::config_map};
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let cluster = TestCluster::start();
    /// let operator = cluster.controller("operator", |client| async move {
    ///     // It cannot begin before its settings are there.
    ///     kube::Api::<ConfigMap>::default_namespaced(client).get("settings").await.expect("settings");
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
    /// If it was started by [`TestCluster::run`], which does not say how to start it again.
    #[track_caller]
    #[expect(
        clippy::return_self_not_must_use,
        reason = "a call that changes the controller is a use"
    )]
    pub fn restarts(self) -> Self {
        assert!(
            self.shared.starting.is_some(),
            "the controller started at {self} cannot be started again: use `cluster.controller`"
        );
        lock(&self.shared.restarts).is_on = true;
        self
    }

    /// Returns how often it ended by itself and was started again.
    pub fn restart_count(&self) -> u32 {
        lock(&self.shared.restarts).count
    }

    /// Crashes it, if it runs, and starts it anew with empty caches and a new client.
    ///
    /// # Panics
    ///
    /// If it was started by [`TestCluster::run`], which does not say how to start it again.
    #[track_caller]
    pub fn restart(&self) {
        self.crash();
        match &self.shared.starting {
            Some(starting) => self.spawn((starting.0)()),
            None => panic!("the controller started at {self} cannot be started again: use `cluster.controller`"),
        }
    }
}

impl Running {
    /// Returns `true` if the controller has neither ended, nor panicked, nor been crashed.
    pub fn is_running(&self) -> bool {
        matches!(*lock(&self.shared.state), State::Running)
    }

    /// Ends it where it waits, as when the process is killed: nothing is finished, and requests in progress are lost to
    /// it. What it holds is dropped when the test next waits.
    pub fn crash(&self) {
        let mut state = lock(&self.shared.state);
        if let Some(task) = lock(&self.shared.task).take() {
            task.abort();
        }
        if matches!(*state, State::Running) {
            *state = State::Crashed;
        }
    }
}

impl Shared {
    /// Returns how long to wait until it is started again, if it is; `ran` is how long it did run.
    fn ends(&self, how: &State, ran: Duration) -> Option<Duration> {
        let mut restarts = lock(&self.restarts);
        let back_off = restarts.is_on.then(|| restarts.after(ran));
        if let Some((name, gate)) = &self.explored
            && let Some(gate) = gate.upgrade()
        {
            let how = match how {
                State::Panicked(message) => format!("panicked: {message}"),
                State::Running | State::Ended | State::Crashed => "returned".to_owned(),
            };
            gate.ended(name, &how, back_off);
        }
        back_off
    }
}

impl Restarts {
    /// Counts a restart; returns the pause before it.
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
    /// Returns the instant at which the last of the controllers that ended by themselves is started again.
    pub(crate) fn next_start(&self) -> Option<Instant> {
        let controllers = lock(&self.0);
        controllers.iter().filter_map(|it| lock(&it.shared.restarts).next).max()
    }

    /// The message of a controller that panicked since this was last asked.
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

    /// Lists the locations of controllers that cannot be started again.
    pub(crate) fn fixed(&self) -> Vec<String> {
        let controllers = lock(&self.0);
        let fixed = controllers.iter().filter(|it| it.shared.starting.is_none());
        fixed.map(ToString::to_string).collect()
    }

    /// Controllers that returned, one per line: their work is missing, and no request says why.
    pub(crate) fn ended(&self) -> String {
        let has_ended = |running: &&Running| matches!(*lock(&running.shared.state), State::Ended);
        let controllers = lock(&self.0);
        let lines = controllers.iter().filter(has_ended).map(|running| {
            format!("the controller started at {running} has returned; an error that it returned is lost\n")
        });
        lines.collect()
    }

    /// Ends all of them.
    pub(crate) fn abort(&self) {
        for running in lock(&self.0).drain(..) {
            running.crash();
        }
    }
}

impl fmt::Display for Running {
    /// Writes the location in the test that started the controller.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.shared.place.file(), self.shared.place.line())
    }
}

/// The text of a panic.
pub(crate) fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|it| (*it).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "without a message".to_owned())
}
