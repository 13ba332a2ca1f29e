//! Calls of controllers to systems outside of the API, and outages of these systems.

use std::time::Duration;

use tokio::time::Instant;

use super::decide::{Gate, effects};
use crate::explore::plans::{OnAnswer, OnCall, escaped};
use crate::explore::trace::{Outcome, Step, What};

/// A registered call outside of the API.
pub(crate) struct CallTicket {
    /// Index of the call's step in the trace.
    pub(crate) index: usize,
    /// Ordinal of the controller's run, from 1; each restart increments it.
    pub(crate) life: u32,
    /// Effects before and after the call.
    pub(crate) before: Vec<OnCall>,
    pub(crate) after: Vec<OnAnswer>,
}

impl Gate {
    /// Registers a client's call to a system outside of the API. `client` is the client's name as it appears in points;
    /// `name` consists of the escaped name of the system and the verb of the call. Returns `None` if there are too many
    /// messages.
    pub(crate) fn call(&self, client: &str, name: &str, object: &str) -> Option<CallTicket> {
        let truth = self.server.resource_version();
        let at = self.started.elapsed();
        let life = self.life_of(client);
        let mut state = self.state();
        if self.is_too_many(&mut state, || format!("the call {name} {object}")) {
            return None;
        }
        let (point, actions) = self.actions(&mut state, format!("{client}:call:{name}:{}", escaped(object)));
        let index = state.trace.len();
        state.trace.push(Step {
            at,
            client: client.into(),
            life,
            what: What::Call {
                name: name.to_owned(),
                object: object.to_owned(),
                outcome: Outcome::Broken,
            },
            view: truth,
            truth,
            point,
        });
        let mut before = effects(&actions, |it| it.effects().call);
        let outage = state.outages.get(&connection(client, name));
        let begins = before.iter().any(|it| matches!(it, OnCall::Outage(_)));
        if begins || outage.is_some_and(|until| *until > Instant::now()) {
            before.push(OnCall::Fail);
        }
        Some(CallTicket {
            index,
            life,
            before,
            after: effects(&actions, |it| it.effects().answer),
        })
    }

    /// Makes the calls of a client to an external system fail for some time. `client` and `name` are as in `call`.
    pub(crate) fn disconnect(&self, client: &str, name: &str, time: Duration) {
        self.lasts(time);
        let until = Instant::now() + time;
        self.state().outages.insert(connection(client, name), until);
    }

    /// Records that a call has completed.
    pub(crate) fn called(&self, index: usize) {
        if let Some(Step {
            what: What::Call { outcome, .. },
            ..
        }) = self.state().trace.get_mut(index)
        {
            *outcome = Outcome::Unseen;
        }
    }
}

/// Returns the key of a client's connection to an external system. `name` consists of the system and the verb of a
/// call.
fn connection(client: &str, name: &str) -> (String, String) {
    let system = name.rsplit_once('.').map_or(name, |(system, _)| system);
    (client.to_owned(), system.to_owned())
}
