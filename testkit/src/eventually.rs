//! `eventually` and `consistently`: conditions in virtual time.

use std::fmt::{Display, Write as _};
use std::panic::Location;
use std::time::Duration;

use tokio::time::Instant;

use crate::panics::quietly;
use crate::report::{Failed, at_the_test};
use crate::test_cluster::TestCluster;
use crate::text::shortened;

/// Minimum and maximum interval between evaluations of a condition.
const STEP: (Duration, Duration) = (Duration::from_millis(1), Duration::from_secs(1));

/// Maximum number of intervals between the evaluations of `consistently`.
const LOOKS: u32 = 1_000;

/// Maximum number of characters of an object in a failure message.
const SHOWN_CHARS: usize = 2_000;

/// Return type of a condition: a `bool`; an `Option` that is `Some` or a `Result` that is `Ok` if the condition holds;
/// or `()` for a condition that asserts.
pub trait Condition {
    /// Returns `Ok` if the condition holds, and otherwise the reason why it does not hold.
    fn outcome(self) -> Result<(), String>;
}

impl Condition for bool {
    fn outcome(self) -> Result<(), String> {
        if self {
            Ok(())
        } else {
            Err("the value is false".to_owned())
        }
    }
}

impl Condition for () {
    fn outcome(self) -> Result<(), String> {
        Ok(())
    }
}

impl<T> Condition for Option<T> {
    fn outcome(self) -> Result<(), String> {
        self.map(drop).ok_or_else(|| "the value is None".to_owned())
    }
}

impl<T, E: Display> Condition for Result<T, E> {
    fn outcome(self) -> Result<(), String> {
        self.map(drop).map_err(|err| err.to_string())
    }
}

impl TestCluster {
    /// Waits until a condition holds, for up to one minute of virtual time
    /// ([`patience`](crate::TestClusterBuilder::patience)).
    ///
    /// The condition may assert, and may call [`get`](Self::get) for an object that does not exist yet: a panic in the
    /// condition counts as "not yet". In an [exploration](crate::explore), the time is counted from the end of the last
    /// fault.
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
    /// If the condition does not hold in time; the message contains the reason and the objects that the condition read.
    /// Also if a controller panicked.
    #[track_caller]
    pub fn eventually<C: Condition>(&self, condition: impl Fn(&Self) -> C) -> impl Future<Output = ()> {
        self.eventually_within(self.bounds.eventually, condition)
    }

    /// Same as [`eventually`](Self::eventually), with a different time limit.
    ///
    /// # Panics
    ///
    /// See [`eventually`](Self::eventually).
    #[track_caller]
    pub fn eventually_within<C: Condition>(
        &self,
        time: Duration,
        condition: impl Fn(&Self) -> C,
    ) -> impl Future<Output = ()> {
        let place = Location::caller();
        at_the_test(async move {
            let began = Instant::now();
            if let Some(hooks) = &self.hooks {
                hooks.test_waits();
            }
            loop {
                let Err(reason) = self.evaluate(&condition) else {
                    return Ok(());
                };
                let waited = began.elapsed();
                if waited >= self.bounds.quiet && self.hooks.as_ref().is_some_and(|hooks| hooks.is_overlapped()) {
                    // Do not wait: the next step of the test overlaps with the fault.
                    return Ok(());
                }
                // In an exploration, the time is counted from the end of the last fault.
                let faults_end = self.hooks.as_ref().and_then(|hooks| hooks.faults_end());
                let deadline = faults_end.map_or(began, |end| end.max(began)) + time;
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    let what = format!("the condition does not hold after {waited:?}{}", self.bounds.clock());
                    return Err(self.failed_condition(place, &what, &reason));
                }
                let step = (waited / 100).clamp(STEP.0, STEP.1).min(left);
                self.pass(place, Instant::now() + step).await?;
            }
        })
    }

    /// Asserts that a condition holds now and for this virtual time. The condition is evaluated at the start and after
    /// each of up to 1,000 intervals, which are not shorter than a millisecond.
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
    /// If an evaluation fails; the message contains the reason and the objects that the condition read. Also if a
    /// controller panicked.
    #[track_caller]
    pub fn consistently<C: Condition>(
        &self,
        time: Duration,
        condition: impl Fn(&Self) -> C,
    ) -> impl Future<Output = ()> {
        let place = Location::caller();
        at_the_test(async move {
            let began = Instant::now();
            let step = (time / LOOKS).max(STEP.0);
            loop {
                let waited = began.elapsed();
                if let Err(reason) = self.evaluate(&condition) {
                    let what = format!("the condition does not hold after {waited:?}{}", self.bounds.clock());
                    return Err(self.failed_condition(place, &what, &reason));
                }
                if waited >= time {
                    return Ok(());
                }
                self.pass(place, Instant::now() + step.min(time - waited)).await?;
            }
        })
    }

    fn evaluate<C: Condition>(&self, condition: &impl Fn(&Self) -> C) -> Result<(), String> {
        self.reads.take();
        quietly(|| condition(self).outcome())?
    }

    fn failed_condition(&self, place: &Location<'_>, what: &str, reason: &str) -> Failed {
        let mut text = format!("{what}: {reason}");
        for id in self.reads.take() {
            let _ = match self.read(&id) {
                Some(mut object) => {
                    if let Some(metadata) = object["metadata"].as_object_mut() {
                        metadata.remove("managedFields");
                    }
                    write!(text, "\n{id} is {}", shortened(&object.to_string(), SHOWN_CHARS))
                }
                None => write!(text, "\n{id} does not exist"),
            };
            text += &self.history_of(&id);
        }
        Failed::at(place, &text)
    }
}
