//! Calls of webhooks that a controller process serves. Faults affect these calls like other messages.

use std::sync::Arc;

use futures::future::BoxFuture;
use tokio::time::sleep;

use super::harness::Harness;
use crate::explore::plans::{OnAnswer, OnCall, escaped};

/// Name of webhook calls in the points of a plan.
const WEBHOOK: &str = "webhook";

/// Error messages of a broken call, as in Go's client.
const RESET: &str = "read: connection reset by peer";
const REFUSED: &str = "connect: connection refused";
const LOST: &str = "EOF";

impl Harness {
    /// Sends the server's call to a webhook of the controller `client`, with the faults of the plan. Unlike a call made
    /// by a controller, the call fails if the controller is killed.
    pub(super) async fn call_webhook(
        self: Arc<Self>,
        client: String,
        path: &str,
        call: BoxFuture<'_, ()>,
    ) -> Result<(), String> {
        let client: Arc<str> = escaped(&client).into();
        let Some(ticket) = self.gate.call(&client, WEBHOOK, path) else {
            return Err(REFUSED.to_owned());
        };
        for effect in &ticket.before {
            match *effect {
                OnCall::Crash(down) => {
                    self.crash(&client, down);
                    return Err(RESET.to_owned());
                }
                OnCall::Wait(time) => {
                    self.gate.lasts(time);
                    sleep(time).await;
                }
                OnCall::Outage(time) => self.gate.disconnect(&client, WEBHOOK, time),
                OnCall::Fail => return Err(REFUSED.to_owned()),
            }
        }
        call.await;
        self.gate.called(ticket.index);
        self.check_time();
        match ticket.after.first() {
            None => Ok(()),
            Some(OnAnswer::Crash(down)) => {
                self.crash(&client, *down);
                Err(RESET.to_owned())
            }
            Some(OnAnswer::Break(time)) => {
                self.wait(*time).await;
                Err(LOST.to_owned())
            }
            Some(OnAnswer::Wait(time)) => {
                self.wait(*time).await;
                Ok(())
            }
            Some(OnAnswer::Stop(time)) => {
                self.stop(&client, *time).await;
                Ok(())
            }
        }
    }
}
