//! `eventually` and `consistently`: conditions on the cluster, in virtual time.

use std::cell::{Cell, RefCell};
use std::fmt::{Display, Write as _};
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::sync::Once;
use std::time::Duration;

use tokio::time::Instant;

use crate::controller::message;
use crate::report::{fail_at, shortened};
use crate::test_cluster::TestCluster;

/// First and longest interval between evaluations of a condition.
const STEP: (Duration, Duration) = (Duration::from_millis(1), Duration::from_secs(1));

/// Least and most frequent evaluation of a condition by `consistently`.
const LOOKS: u32 = 1_000;

/// Longest part of an object that a failure shows.
const SHOWN_CHARS: usize = 2_000;

/// Return type of a condition: a `bool`; an `Option` or a `Result`, which hold as `Some` and `Ok`; or `()`, for a
/// condition that asserts.
pub trait Condition {
    /// Returns `Ok` if the condition holds, and else the reason.
    fn outcome(self) -> Result<(), String>;
}

impl Condition for bool {
    fn outcome(self) -> Result<(), String> {
        if self { Ok(()) } else { Err("it is false".to_owned()) }
    }
}

impl Condition for () {
    fn outcome(self) -> Result<(), String> {
        Ok(())
    }
}

impl<T> Condition for Option<T> {
    fn outcome(self) -> Result<(), String> {
        self.map(drop).ok_or_else(|| "it is None".to_owned())
    }
}

impl<T, E: Display> Condition for Result<T, E> {
    fn outcome(self) -> Result<(), String> {
        self.map(drop).map_err(|err| err.to_string())
    }
}

impl TestCluster {
    /// Waits until a condition holds, for one minute of virtual time at the most
    /// ([`patience`](crate::TestClusterBuilder::patience)).
    ///
    /// The condition may assert, and may [`get`](Self::get) what does not exist yet: a panic in it means "not yet". In
    /// an [exploration](crate::explore) the time begins anew when what goes wrong is over.
    ///
    /// ```
    /// # use testkit::{TestCluster, objects::pod};
    /// # async fn my_controller(client: kube::Client) {
    /// #     let pods = kube::Api::<k8s_openapi::api::core::v1::Pod>::default_namespaced(client);
    /// #     tokio::time::sleep(std::time::Duration::from_secs(30)).await;
    /// #     let patch = serde_json::json!({"metadata": {"labels": {"seen": "true"}}});
    /// #     let _ = pods.patch("web-0", &Default::default(), &kube::api::Patch::Merge(patch)).await;
    /// # }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let cluster = TestCluster::start();
    /// cluster.run(my_controller(cluster.client()));
    /// cluster.create(pod("web-0")).await;
    /// cluster.eventually(|c| c.get(pod("web-0")).label("seen") == Some("true")).await;
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// If the condition does not hold in time, with the reason and its reads; if a controller
    /// panicked.
    #[track_caller]
    pub fn eventually<C: Condition>(&self, condition: impl Fn(&Self) -> C) -> impl Future<Output = ()> {
        self.eventually_within(self.bounds.eventually, condition)
    }

    /// The same for another time.
    ///
    /// # Panics
    ///
    /// As [`eventually`](Self::eventually).
    #[track_caller]
    pub fn eventually_within<C: Condition>(
        &self,
        time: Duration,
        condition: impl Fn(&Self) -> C,
    ) -> impl Future<Output = ()> {
        let place = Location::caller();
        async move {
            let began = Instant::now();
            loop {
                let Err(reason) = self.evaluate(&condition) else { return };
                let waited = began.elapsed();
                // In an exploration the time counts from the end of what goes wrong.
                let faults_end = self.gate.as_ref().and_then(|gate| gate.state().windows_end);
                let deadline = faults_end.map_or(began, |end| end.max(began)) + time;
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    let what = format!("the condition does not hold after {waited:?} of virtual time");
                    self.fail_condition(place, &what, &reason);
                }
                let step = (waited / 100).clamp(STEP.0, STEP.1).min(left);
                self.pass(place, Instant::now() + step).await;
            }
        }
    }

    /// Checks that a condition holds now and for this much virtual time. It is evaluated 1,000 times in it, but at
    /// most once a millisecond.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use k8s_openapi::api::core::v1::Pod;
    /// # use testkit::TestCluster;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let cluster = TestCluster::start();
    /// cluster.consistently(Duration::from_secs(3600), |c| c.list::<Pod>().is_empty()).await;
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// If the condition does not hold once, with the reason and its reads; if a controller panicked.
    #[track_caller]
    pub fn consistently<C: Condition>(
        &self,
        time: Duration,
        condition: impl Fn(&Self) -> C,
    ) -> impl Future<Output = ()> {
        let place = Location::caller();
        async move {
            let began = Instant::now();
            let step = (time / LOOKS).max(STEP.0);
            loop {
                let waited = began.elapsed();
                if let Err(reason) = self.evaluate(&condition) {
                    let what = format!("the condition no longer holds after {waited:?} of virtual time");
                    self.fail_condition(place, &what, &reason);
                }
                if waited >= time {
                    return;
                }
                self.pass(place, Instant::now() + step.min(time - waited)).await;
            }
        }
    }

    fn evaluate<C: Condition>(&self, condition: &impl Fn(&Self) -> C) -> Result<(), String> {
        self.reads.take();
        quietly(|| condition(self).outcome())?
    }

    fn fail_condition(&self, place: &Location<'_>, what: &str, reason: &str) -> ! {
        let mut text = format!("{what}: {reason}");
        for (id, object) in self.reads.take() {
            let _ = match object {
                Some(mut object) => {
                    if let Some(metadata) = object["metadata"].as_object_mut() {
                        metadata.remove("managedFields");
                    }
                    write!(text, "\n{id} is {}", shortened(&object.to_string(), SHOWN_CHARS))
                }
                None => write!(text, "\n{id} is not there"),
            };
        }
        fail_at(place, &text)
    }
}

thread_local! {
    /// Set while a condition is evaluated: a panic then is not a failure yet and is not printed.
    static EVALUATING: Cell<bool> = const { Cell::new(false) };
    /// Location of the last panic inside a condition.
    static PANICKED_AT: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// While it lives, panics of this thread are not printed.
#[derive(Debug)]
pub(crate) struct Hushed(bool);

/// Panics of this thread are not printed from here on: they are results.
pub(crate) fn hush() -> Hushed {
    // It installs the hook.
    let _ = quietly(|| ());
    Hushed(EVALUATING.replace(true))
}

impl Drop for Hushed {
    fn drop(&mut self) {
        EVALUATING.set(self.0);
    }
}

/// Returns the location of the last panic that was not printed.
pub(crate) fn panicked_at() -> Option<String> {
    PANICKED_AT.take()
}

/// Calls `condition`; a panic becomes an error with its message and place, and is not printed.
pub(crate) fn quietly<T>(condition: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let printing = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if EVALUATING.get() {
                let place = info.location().map(|it| format!("{}:{}", it.file(), it.line()));
                PANICKED_AT.with_borrow_mut(|at| *at = place);
            } else {
                printing(info);
            }
        }));
    });
    let before = EVALUATING.replace(true);
    let result = catch_unwind(AssertUnwindSafe(condition));
    EVALUATING.set(before);
    result.map_err(|payload| {
        let text = message(payload.as_ref());
        match PANICKED_AT.take() {
            // Our own failures tell their place themselves.
            Some(place) if !place.contains("report.rs") => format!("{place}: {text}"),
            _ => text,
        }
    })
}
