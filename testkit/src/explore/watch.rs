//! `GatedWatch`: the body of a watch, event by event, with what is to go wrong.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use fake_apiserver::api::status::Status;
use http_body::Body as _;
use tokio::time::{Instant, Sleep, sleep_until};
use tower::BoxError;

use super::client::{Line, ServerBody, broken, contains};
use super::gate::{Gate, Ticket};
use super::life::{Life, Shown};
use super::plan::Action;
use super::trace::{BOOKMARK, Delivery, INITIAL_END, Step, What};

/// An open watch.
pub(crate) struct GatedWatch {
    gate: Arc<Gate>,
    life: Arc<Life>,
    resource: String,
    inner: ServerBody,
    /// Lines to deliver while the watch is not held.
    ready: VecDeque<Told>,
    held: Option<Pin<Box<Sleep>>>,
    /// It was held, and the events that wait come before it.
    is_late: bool,
    is_ended: bool,
    /// It ends without an end.
    is_broken: bool,
}

/// A line and what it shows.
struct Told {
    line: Bytes,
    shown: Shown,
    /// Its place in the trace.
    index: Option<usize>,
}

impl GatedWatch {
    pub(crate) fn new(gate: &Arc<Gate>, life: &Arc<Life>, resource: &str, inner: ServerBody) -> Self {
        Self {
            gate: Arc::clone(gate),
            life: Arc::clone(life),
            resource: resource.to_owned(),
            inner,
            ready: VecDeque::new(),
            held: gate.lags(life, resource).map(|until| Box::pin(sleep_until(until))),
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
            if let Some(until) = self.gate.paused(&self.life.client) {
                self.held = Some(Box::pin(sleep_until(until)));
                continue;
            }
            if let Some(told) = self.ready.pop_front() {
                self.life.told(&self.resource, &told.shown);
                if let Some(index) = told.index.filter(|_| self.is_late) {
                    self.gate.told_late(index, true);
                }
                return Poll::Ready(Some(Ok(told.line)));
            }
            self.is_late = false;
            if std::mem::take(&mut self.is_broken) {
                self.is_ended = true;
                return Poll::Ready(Some(Err(broken().into())));
            }
            if self.is_ended {
                return Poll::Ready(None);
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

    /// Takes a line from the server.
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
            // Errors are no events of an object.
            let index = None;
            self.ready.push_back(Told { line, shown, index });
            return;
        }
        let Ticket { index, actions } = self.gate.event(&self.life, &self.resource, kind, &shown);
        self.gate.check();
        let copies = actions
            .into_iter()
            .map(|action| self.does(action))
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
            let index = Some(index);
            self.ready.push_back(Told { line, shown, index });
        } else {
            self.gate.told_late(index, false);
        }
    }

    /// Applies a fault to an event; returns the number of deliveries if the fault changes it.
    fn does(&mut self, action: Action) -> Option<usize> {
        match action {
            Action::Hold(time) | Action::Delay(time) => {
                self.holds(time);
                return None;
            }
            Action::Miss(time) => {
                self.holds(time);
                self.expire();
            }
            Action::Expire => self.expire(),
            Action::Cut => self.is_ended = true,
            Action::HalfOpen(time) => {
                self.holds(time);
                self.is_broken = true;
            }
            Action::Drop => {}
            Action::Twice => return Some(2),
            Action::CrashBefore(down) => self.gate.crash(&self.life, down),
            Action::CrashAfter(_)
            | Action::Fail(_)
            | Action::Conflict
            | Action::Lose
            | Action::Silence(_)
            | Action::SilenceAfter(_)
            | Action::Pause(_)
            | Action::Stale(_)
            | Action::Skew(_)
            | Action::Late(_)
            | Action::CrashLate(_)
            | Action::Early
            | Action::SmallPages
            | Action::LargeVersions
            | Action::RestartAtEnd => return None,
        }
        Some(0)
    }

    fn holds(&mut self, time: Duration) {
        self.gate.lasts(time);
        self.held = Some(Box::pin(sleep_until(Instant::now() + time)));
    }

    /// Puts 410 Expired in place of what would come.
    fn expire(&mut self) {
        let current = self.gate.server.resource_version();
        let status = Status::expired(format!("too old resource version: 1 ({current})")).to_value();
        let line = format!("{{\"type\":\"ERROR\",\"object\":{status}}}\n").into();
        let (shown, index) = (Shown::default(), None);
        self.ready.push_back(Told { line, shown, index });
        self.is_ended = true;
    }
}

impl Gate {
    /// Records that an event was delivered late, or never.
    pub(crate) fn told_late(&self, index: usize, is_told: bool) {
        let now = self.started.elapsed();
        if let Some(Step {
            what: What::Event { told, .. },
            ..
        }) = self.state().trace.get_mut(index)
        {
            *told = if is_told { Delivery::At(now) } else { Delivery::Never };
        }
    }
}
