//! `GatedWatch`: the body of a watch, with faults at each event.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use fake_apiserver::ResponseBody;
use fake_apiserver::api::status::Status;
use http_body::Body as _;
use tokio::time::{Instant, Sleep, sleep_until};
use tower::BoxError;

use super::answer::broken;
use super::harness::Harness;
use crate::explore::gate::{Life, Line, Shown, contains};
use crate::explore::plans::OnEvent;
use crate::explore::trace::{BOOKMARK, INITIAL_END};

/// An open watch.
pub(crate) struct GatedWatch {
    harness: Arc<Harness>,
    life: Arc<Life>,
    resource: String,
    inner: ResponseBody,
    /// Lines to deliver unless the watch is held.
    ready: VecDeque<Told>,
    /// Lines that are not delivered before a time, because other objects have to arrive first.
    later: Vec<(Pin<Box<Sleep>>, Told)>,
    held: Option<Pin<Box<Sleep>>>,
    /// Set if the watch was held and is now delivering the lines that it had read before.
    is_late: bool,
    is_ended: bool,
    /// Set if the watch ends with a broken connection.
    is_broken: bool,
}

/// A line of a watch, with the object that it contains.
struct Told {
    line: Bytes,
    shown: Shown,
    /// Index of the step in the trace; `None` for errors and for the additional copy of an event.
    index: Option<usize>,
}

impl GatedWatch {
    pub(crate) fn new(harness: &Arc<Harness>, life: &Arc<Life>, resource: &str, inner: ResponseBody) -> Self {
        Self {
            harness: Arc::clone(harness),
            life: Arc::clone(life),
            resource: resource.to_owned(),
            inner,
            ready: VecDeque::new(),
            later: Vec::new(),
            held: harness
                .gate
                .lags(life, resource)
                .map(|until| Box::pin(sleep_until(until))),
            is_late: false,
            is_ended: false,
            is_broken: false,
        }
    }

    /// Polls the next line for the client.
    pub(crate) fn poll_line(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BoxError>>> {
        loop {
            if self.life.is_dead() {
                return Poll::Pending;
            }
            if let Some(sleep) = &mut self.held {
                ready!(sleep.as_mut().poll(cx));
                (self.held, self.is_late) = (None, true);
            }
            if let Some(until) = self.harness.gate.paused(&self.life.client) {
                self.held = Some(Box::pin(sleep_until(until)));
                continue;
            }
            if let Some(until) = self.harness.gate.silent(&self.life, &self.resource) {
                self.held = Some(Box::pin(sleep_until(until)));
                continue;
            }
            if let Some(told) = self.ready.pop_front() {
                self.life.told(&self.resource, &told.shown);
                if let Some(index) = told.index.filter(|_| self.is_late) {
                    self.harness.gate.told_late(index, true);
                }
                return Poll::Ready(Some(Ok(told.line)));
            }
            self.is_late = false;
            if let Some(told) = self.arrived(cx) {
                self.ready.push_back(told);
                continue;
            }
            if std::mem::take(&mut self.is_broken) {
                self.is_ended = true;
                return Poll::Ready(Some(Err(broken().into())));
            }
            if self.is_ended {
                return match self.later.is_empty() {
                    true => Poll::Ready(None),
                    false => Poll::Pending,
                };
            }
            let frame = ready!(Pin::new(&mut self.inner).poll_frame(cx));
            let Some(Ok(frame)) = frame else {
                self.is_ended = true;
                continue;
            };
            if let Ok(line) = frame.into_data() {
                self.take(line);
            }
        }
    }

    /// Returns the next line whose object has to arrive now.
    fn arrived(&mut self, cx: &mut Context<'_>) -> Option<Told> {
        for at in 0..self.later.len() {
            let (sleep, told) = &mut self.later[at];
            while sleep.as_mut().poll(cx).is_ready() {
                match self.harness.gate.arrives_at(&self.life, &self.resource, &told.shown) {
                    Some(time) => sleep.as_mut().reset(time),
                    None => return Some(self.later.remove(at).1),
                }
            }
        }
        None
    }

    /// Receives a line from the server.
    fn take(&mut self, line: Bytes) {
        let (kind, shown) = match serde_json::from_slice::<Line<'_>>(&line) {
            Ok(read) => (read.kind.to_owned(), read.shown()),
            Err(_) => (String::new(), Shown::default()),
        };
        let kind = match kind.as_str() {
            BOOKMARK if contains(&line, b"k8s.io/initial-events-end") => INITIAL_END,
            kind => kind,
        };
        if shown.name.is_empty() && !matches!(kind, BOOKMARK | INITIAL_END) {
            // ERROR events are not about an object.
            let index = None;
            self.ready.push_back(Told { line, shown, index });
            return;
        }
        let (index, effects) = self.harness.gate.event(&self.life, &self.resource, kind, &shown);
        self.harness.check();
        let copies = effects
            .into_iter()
            .map(|effect| self.does(effect))
            .fold(1, |copies, next| next.unwrap_or(copies));
        if copies == 2 {
            let line = line.clone();
            self.ready.push_back(Told {
                line,
                shown: Shown::default(),
                index: None,
            });
        }
        if copies > 0 {
            let time = self.harness.gate.arrives_at(&self.life, &self.resource, &shown);
            let index = Some(index);
            let told = Told { line, shown, index };
            match time {
                Some(time) => self.later.push((Box::pin(sleep_until(time)), told)),
                None => self.ready.push_back(told),
            }
        } else {
            self.harness.gate.told_late(index, false);
        }
    }

    /// Applies a fault to an event. Returns the number of deliveries if the fault changes it.
    fn does(&mut self, effect: OnEvent) -> Option<usize> {
        match effect {
            OnEvent::Hold(time) => {
                self.holds(time);
                if self.harness.timing.is_real {
                    self.harness.gate.silence(&self.life, &self.resource, time);
                }
                return None;
            }
            OnEvent::Miss(time) => {
                self.holds(time);
                self.expire();
            }
            OnEvent::Expire => self.expire(),
            OnEvent::End => self.is_ended = true,
            OnEvent::HalfOpen(time) => {
                self.holds(time);
                self.is_broken = true;
            }
            OnEvent::LeaveOut => {}
            OnEvent::Repeat => return Some(2),
            OnEvent::Crash(down) => self.harness.crash(&self.life.client, down),
        }
        Some(0)
    }

    fn holds(&mut self, time: Duration) {
        self.harness.gate.lasts(time);
        self.held = Some(Box::pin(sleep_until(Instant::now() + time)));
    }

    /// Ends the watch with 410 Expired.
    fn expire(&mut self) {
        let current = self.harness.gate.server.resource_version();
        let status = Status::expired(format!("too old resource version: 1 ({current})")).to_value();
        let line = format!("{{\"type\":\"ERROR\",\"object\":{status}}}\n").into();
        let (shown, index) = (Shown::default(), None);
        self.ready.push_back(Told { line, shown, index });
        self.is_ended = true;
    }
}
