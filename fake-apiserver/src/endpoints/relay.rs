//! Forwards requests to another server, after they have passed through this server's faults and journal.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum_core::body::Body;
use bytes::Bytes;
use http::{Request, Response};

use super::broken::{self, NoAnswer};
use super::call::Call;
use super::filters;
use super::route::{self, Target};
use super::{Endpoints, encode, passed_on};
use crate::faults::{Broken, Outcome, Struck};

impl Endpoints {
    /// Sends a request with `send`, after applying this server's faults. The path is matched against this server's
    /// resources, so faults do not apply to other resources.
    pub(crate) async fn relay<F>(
        self: Arc<Self>,
        request: Request<Body>,
        send: impl FnOnce(Request<Bytes>) -> F,
    ) -> io::Result<Response<Body>>
    where
        F: Future<Output = io::Result<Response<Body>>>,
    {
        let (parts, body) = request.into_parts();
        let number = self.requests.fetch_add(1, Ordering::Relaxed) + 1;
        let admin = Arc::clone(&self.registry.access.authentication.admin);
        let mut call = Call::new(parts.clone(), &self.registry.reader.entropy, admin, number);
        call.body = match filters::read_body(&parts, body).await {
            Ok(body) => body,
            Err(status) => return Err(io::Error::other(status.message)),
        };
        let scheme = self.registry.reader.scheme();
        if let Ok(Target::Resource(_, info)) = route::find(&scheme, &mut call) {
            call.info = Some(info);
        }
        let mut struck = Struck::default();
        let before = match &call.info {
            Some(info) => self.faults.before(call.seen(info), &mut struck).await,
            None => None,
        };
        let request = Request::from_parts(parts, call.body.clone());
        let (outcome, answer) = match before {
            Some(outcome) => (outcome, None),
            None => {
                let answer = send(request).await;
                (self.faults.after(&mut struck).await, Some(answer))
            }
        };
        let failed = |broken| Ok(broken::no_answer(broken));
        let response = match (outcome, answer) {
            (Outcome::AsIs, Some(answer)) => answer,
            (Outcome::Truncated(bytes), Some(answer)) => answer.map(|it| broken::truncated(it, bytes)),
            (Outcome::Instead(status), _) => Ok(encode::failure(&call, &status)),
            (Outcome::Broken(broken), _) => failed(broken),
            (Outcome::AsIs | Outcome::Truncated(_), None) => failed(Broken::Reset),
        };
        call.struck = struck.verdicts;
        let (response, error) = match response {
            Ok(response) => (passed_on::kept(&call, response).await, None),
            Err(error) => {
                call.struck.push(error.to_string());
                (broken::no_answer(Broken::Reset), Some(error))
            }
        };
        let response = filters::finish(call, response, &self.journal, self.registry.reader.entropy.elapsed());
        match (response.extensions().get::<NoAnswer>(), error) {
            (_, Some(error)) => Err(error),
            (Some(NoAnswer(Broken::Refused)), None) => Err(io::ErrorKind::ConnectionRefused.into()),
            (Some(NoAnswer(Broken::Reset)), None) => Err(broken::cut_error()),
            (Some(NoAnswer(Broken::Silent)), None) => {
                self.faults.downtime.begins().await;
                Err(broken::cut_error())
            }
            (None, None) => Ok(response),
        }
    }
}
