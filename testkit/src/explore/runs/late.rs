//! Requests that reach the server after their sender has died or given up, as if a network or a busy API server had
//! delayed them. They change or delete objects, but never create objects.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use fake_apiserver::{ResponseBody, Verb};
use http::Response;
use tokio::time::sleep;

use super::answer::look;
use super::harness::Harness;
use crate::explore::gate::{Deletion, Life};
use crate::explore::trace::Request;

/// Forwards a request to the server after a delay. The response is not delivered.
pub(crate) fn arrive_late(
    harness: &Arc<Harness>,
    life: &Arc<Life>,
    about: &Request,
    index: usize,
    time: Duration,
    request: impl Future<Output = io::Result<Response<ResponseBody>>> + Send + 'static,
) {
    harness.gate.lasts(time);
    let (harness, life, about) = (Arc::clone(harness), Arc::clone(life), about.clone());
    // The task ends with the runtime of the run.
    tokio::spawn(async move {
        sleep(time).await;
        // A write to a missing object is dropped. An update or an apply might create the object, although everything
        // that belongs to it may have been deleted.
        // The deletion of a collection has no name.
        if about.verb != Verb::DeleteCollection && harness.gate.stored(&about).is_none() {
            return;
        }
        harness.gate.reaches(index);
        // An object that was created since then may have the same name. The oracle must not report a late delete of it.
        let deletion = Deletion {
            has_precondition: true,
            ..Deletion::default()
        };
        if let Ok(response) = request.await {
            look(&harness, None, &life, &about, index, deletion, response).await;
        }
        harness.check();
    });
}
