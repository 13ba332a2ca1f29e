//! Requests that reach the server after their sender has died or given up, as if a network or a busy API server had
//! held them back.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::Response;
use tokio::time::sleep;

use super::client::{ServerBody, look};
use super::gate::Gate;
use super::life::Life;
use super::owners::Deletion;
use super::trace::Request;

/// Lets a request reach the server after a time. Its answer is not delivered.
pub(crate) fn arrive_late(
    gate: &Arc<Gate>,
    life: &Arc<Life>,
    about: &Request,
    index: usize,
    time: Duration,
    request: impl Future<Output = io::Result<Response<ServerBody>>> + Send + 'static,
) {
    gate.lasts(time);
    let (gate, life, about) = (Arc::clone(gate), Arc::clone(life), about.clone());
    // The task ends with the runtime of the run.
    tokio::spawn(async move {
        sleep(time).await;
        gate.reaches(index);
        // By now the object may be another one of the same name, which is not the sender's fault.
        let deletion = Deletion {
            has_precondition: true,
            ..Deletion::default()
        };
        if let Ok(response) = request.await {
            look(&gate, None, &life, &about, index, deletion, response).await;
        }
        gate.check();
    });
}
