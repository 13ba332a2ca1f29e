//! `GatedWatch`: the body of a watch, event by event, with what is to go wrong.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use fake_apiserver::api::status::Status;
use http_body::Body as _;
use tokio::time::{Instant, Sleep, sleep_until};

use super::client::{Line, ServerBody};
use super::gate::{Gate, Life, Shown};
use super::plan::Action;

/// A watch under way.
pub(crate) struct GatedWatch {
    gate: Arc<Gate>,
    life: Arc<Life>,
    resource: String,
    inner: ServerBody,
    /// To be told, when the watch is not held.
    ready: VecDeque<Told>,
    held: Option<Pin<Box<Sleep>>>,
    is_ended: bool,
}

/// A line and what it shows.
struct Told {
    line: Bytes,
    shown: Shown,
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
            is_ended: false,
        }
    }

    /// The next line the client is told.
    pub(crate) fn poll_line(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        loop {
            if self.life.is_dead() {
                return Poll::Pending;
            }
            if let Some(sleep) = &mut self.held {
                ready!(sleep.as_mut().poll(cx));
                self.held = None;
            }
            if let Some(until) = self.gate.paused(&self.life.client) {
                self.held = Some(Box::pin(sleep_until(until)));
                continue;
            }
            if let Some(told) = self.ready.pop_front() {
                self.life.told(&self.resource, &told.shown);
                return Poll::Ready(Some(told.line));
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
        if shown.name.is_empty() {
            // Bookmarks and errors are no events of an object.
            self.ready.push_back(Told { line, shown });
            return;
        }
        let actions = self.gate.event(&self.life, &self.resource, &kind, &shown);
        self.gate.check();
        let mut copies = 1;
        for action in actions {
            match action {
                Action::Hold(time) | Action::Delay(time) => {
                    self.gate.lasts(time);
                    self.held = Some(Box::pin(sleep_until(Instant::now() + time)));
                }
                Action::Miss(time) => {
                    self.gate.lasts(time);
                    self.held = Some(Box::pin(sleep_until(Instant::now() + time)));
                    self.expire();
                    copies = 0;
                }
                Action::Expire => {
                    self.expire();
                    copies = 0;
                }
                Action::Cut => {
                    self.is_ended = true;
                    copies = 0;
                }
                Action::Twice => copies = 2,
                Action::CrashBefore(down) => {
                    self.gate.crash(&self.life, down);
                    copies = 0;
                }
                Action::CrashAfter(_)
                | Action::Fail(_)
                | Action::Lose
                | Action::Silence(_)
                | Action::SilenceAfter(_)
                | Action::Pause(_)
                | Action::Stale(_)
                | Action::RestartAtEnd => {}
            }
        }
        if copies == 2 {
            let line = line.clone();
            self.ready.push_back(Told {
                line,
                shown: Shown::default(),
            });
        }
        if copies > 0 {
            self.ready.push_back(Told { line, shown });
        }
    }

    /// Puts 410 Expired in place of what would come.
    fn expire(&mut self) {
        let current = self.gate.server.resource_version();
        let status = Status::expired(format!("too old resource version: 1 ({current})")).to_value();
        let line = format!("{{\"type\":\"ERROR\",\"object\":{status}}}\n").into();
        let shown = Shown::default();
        self.ready.push_back(Told { line, shown });
        self.is_ended = true;
    }
}
