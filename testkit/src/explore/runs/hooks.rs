//! Connects the cluster of a run to the harness.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fake_apiserver::UserInfo;
use futures::FutureExt;
use futures::future::BoxFuture;
use http_body_util::{BodyExt, Full};
use tokio::time::Instant;
use tower::ServiceExt;
use tower::util::BoxCloneSyncService;

use super::client::GatedService;
use super::config::Mode;
use super::early::{LOOK, OVERLAPPED, SOON};
use super::harness::Harness;
#[cfg(all(feature = "processes", unix))]
use crate::explore::outcomes::NO_PANIC;
use crate::explore::plans::escaped;
use crate::hooks::{AfterCall, Hooks, Passage, Restart, Unreachable};
use crate::lock::lock;
use crate::test_cluster::TEST_CLIENT;

/// Pause inserted between changes that the test would otherwise make at the same time. Longer than the default time
/// after which a cluster counts as quiet.
const PAUSE: Duration = Duration::from_secs(6);

impl Hooks for Harness {
    fn client(self: Arc<Self>, name: &str, user: Option<UserInfo>) -> kube::Client {
        let service = GatedService::new(&self, name);
        let service = match user {
            Some(user) => service.of_user(user),
            None => service,
        };
        kube::Client::new(service, "default")
    }

    fn service(self: Arc<Self>, name: &str) -> Passage {
        let service = GatedService::new(&self, name);
        let service =
            ServiceExt::<http::Request<Full<Bytes>>>::map_response(service, |answer| answer.map(BodyExt::boxed_unsync));
        BoxCloneSyncService::new(service)
    }

    fn controller_starts(&self, name: &str, controller: Arc<dyn Restart>) -> Option<Duration> {
        let client: Arc<str> = escaped(name).into();
        let late = self.gate.plan.late_start.as_ref();
        let late = late.filter(|(late, _)| **late == *client).map(|(_, time)| *time);
        lock(&self.controllers).insert(client, controller);
        self.gate.lasts(late?);
        late
    }

    #[cfg(all(feature = "processes", unix))]
    fn controller_wrote(&self, name: &str, line: String) {
        self.gate.wrote(name, line);
    }

    #[cfg(all(feature = "processes", unix))]
    fn controller_broke(&self, name: &str, what: String) {
        self.gate.violation(NO_PANIC, format!("{name} {what}"));
    }

    #[cfg(all(feature = "processes", unix))]
    fn controller_was_killed(&self, name: &str, why: String) {
        let client: Arc<str> = escaped(name).into();
        self.gate.note(&client, self.gate.life_of(&client), why);
    }

    fn are_controllers_ready(&self) -> bool {
        lock(&self.controllers).values().all(|it| it.is_ready())
    }

    fn controllers_busy(&self) -> (Duration, bool) {
        let controllers = lock(&self.controllers);
        let all = controllers.values().map(|it| it.busy());
        all.fold((Duration::ZERO, false), |sum, it| (sum.0 + it.0, sum.1 || it.1))
    }

    fn controller_ended(&self, name: &str, how: &str, back_off: Option<Duration>) {
        self.gate.ended(name, how, back_off);
    }

    fn test_injected(self: Arc<Self>) {
        self.slow_workers();
    }

    fn test_goes_on(&self, place: &str) {
        self.gate.goes_on(place);
    }

    fn test_waits(&self) {
        self.gate.state().waited += 1;
    }

    #[cfg(all(feature = "processes", unix))]
    fn test_waited(&self, time: Duration) {
        let mut state = self.gate.state();
        state.late_step = state.late_step.max(Some(time));
    }

    fn is_overlapped(&self) -> bool {
        self.gate.is_overlapped()
    }

    fn goes_on_during_faults(&self, began: Instant) -> bool {
        let is_due = self.timing.is_real && began.elapsed() >= OVERLAPPED;
        is_due && self.gate.is_overlapped() && !self.gate.has_overlapped()
    }

    fn test_sent(&self) {
        self.check();
    }

    fn test_sends(&self) -> Option<Duration> {
        let now = Instant::now();
        if !self.gate.plan.arrivals.is_empty() {
            // A pause before the first request: objects created before the controllers watch would arrive together.
            let is_first = self.gate.state().sent_at.replace(now).is_none();
            return is_first.then_some(PAUSE);
        }
        if !self.gate.plan.is_spaced {
            return None;
        }
        let before = self.gate.state().sent_at.replace(now);
        before.filter(|it| *it == now)?;
        self.gate.state().sent_at = Some(now + PAUSE);
        Some(PAUSE)
    }

    fn test_notes(&self, note: String) {
        self.gate.note(&TEST_CLIENT.into(), 0, note);
    }

    fn step_begins(&self, name: &str, place: &str) -> bool {
        {
            let mut state = self.gate.state();
            state.step += 1;
            state.in_step.clear();
        }
        if self.gate.skips(name) {
            return false;
        }
        self.gate.step(name, place);
        true
    }

    fn faults_end(&self) -> Option<Instant> {
        self.gate.state().windows_end
    }

    fn settles_at(&self) -> Option<Instant> {
        // In real time, only the next step begins during a fault.
        match self.timing.is_real && self.gate.has_overlapped() {
            true => self.gate.state().windows_end,
            false => self.gate.settles_at(),
        }
    }

    fn looks_every(&self) -> Option<[Duration; 2]> {
        (self.timing.is_real && self.mode == Mode::Compare && self.compares).then_some([SOON, LOOK])
    }

    fn is_as_expected(&self) -> bool {
        self.is_where_the_reference_was()
    }

    fn settled<'a>(&'a self, place: &'a str) -> BoxFuture<'a, ()> {
        self.compare_step(place).boxed()
    }

    fn call<'a>(
        self: Arc<Self>,
        client: &'a str,
        name: &'a str,
        object: &'a str,
    ) -> BoxFuture<'a, Result<AfterCall<'a>, Unreachable>> {
        self.begin_call(client, name, object).boxed()
    }

    #[cfg(all(feature = "processes", unix))]
    fn webhook<'a>(
        self: Arc<Self>,
        client: String,
        path: &'a str,
        call: BoxFuture<'a, ()>,
    ) -> BoxFuture<'a, Result<(), String>> {
        self.call_webhook(client, path, call).boxed()
    }

    fn cluster_ends(&self) {
        // Removes the controllers, which hold references to the harness.
        lock(&self.controllers).clear();
    }
}
