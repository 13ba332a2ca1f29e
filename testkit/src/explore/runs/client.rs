//! A `kube::Client` that sends every message through the gate.

use std::future::pending;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use fake_apiserver::api::status::Status;
use fake_apiserver::{ClientService, ResponseBody, RestartLog, UserInfo, Verb};
use http::{Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use tokio::time::{sleep, sleep_until};
use tower::{BoxError, Service, ServiceExt};

use super::answer::{broken, look};
use super::harness::Harness;
use super::late::arrive_late;
use super::stale::{LAG, Lagging, rewind, stale};
use super::watch::GatedWatch;
use crate::explore::gate;
use crate::explore::gate::{Deletion, Gate, Life, Page};
use crate::explore::plans::{OnAnswer, OnRequest};
use crate::explore::trace::{Outcome, Request};
use crate::test_cluster::TEST_CLIENT;

/// Downtime of a controller that crashes while its request is still in transit (`crash-late`).
const RESTART: Duration = Duration::from_secs(1);

/// The service behind a client, for one run of its controller. Each restart creates a new service.
#[derive(Clone)]
pub(crate) struct GatedService {
    harness: Arc<Harness>,
    life: Arc<Life>,
    server: ClientService,
}

impl GatedService {
    /// Begins a new run of the client `name`.
    pub(crate) fn new(harness: &Arc<Harness>, name: &str) -> Self {
        let life = harness.gate.life(name);
        harness.skew_clock(&life.client, name);
        let (harness, server) = (Arc::clone(harness), harness.gate.server.client_service(name));
        Self { harness, life, server }
    }

    /// Returns the same service for a different user.
    pub(crate) fn of_user(self, user: UserInfo) -> Self {
        Self {
            server: self.server.of_user(user),
            ..self
        }
    }
}

impl<B> Service<http::Request<B>> for GatedService
where
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    type Response = Response<GatedBody>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Response<GatedBody>>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let Self { harness, life, server } = self.clone();
        Box::pin(async move {
            match gate::read(request.method(), request.uri()) {
                None => Ok(forward(server, request).await?.map(GatedBody::Server)),
                Some(read) => pass(&harness, life, server, request, read).await,
            }
        })
    }
}

type Answer = Result<Response<GatedBody>, io::Error>;

/// Forwards a request to the server, with the faults that the gate decides on.
async fn pass<B>(
    harness: &Arc<Harness>,
    life: Arc<Life>,
    server: ClientService,
    request: http::Request<B>,
    mut about: Request,
) -> Answer
where
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    if life.is_dead() {
        return pending().await;
    }
    let gate = &harness.gate;
    let (mut parts, body) = request.into_parts();
    // Request bodies of clients are in memory; a body that cannot be read counts as empty.
    let body = body.collect().await.map(|it| it.to_bytes()).unwrap_or_default();
    gate::look_inside(&mut about, &life, &body);
    let Some(ticket) = gate.request(&life, about.clone(), parts.uri.path()) else {
        return pending().await;
    };
    gate.keep(ticket.index, &body, |it| &mut it.request);
    while let Some(until) = gate.paused(&life.client) {
        sleep_until(until).await;
    }
    let mut passing = Passing {
        about: &about,
        index: ticket.index,
        server: &server,
        parts: &mut parts,
        body: &body,
    };
    let lagging = match before(harness, &life, &mut passing, &ticket.before).await {
        Ok(lagging) => lagging,
        Err(answer) => return answer,
    };
    if life.is_dead() {
        return pending().await;
    }
    let page = received(&ticket.after, gate.page(&about, &mut parts.uri));
    let deletion = Deletion::of(gate, &about, &body);
    gate.reaches(ticket.index);
    let request = http::Request::from_parts(parts, Full::new(body));
    let response = recorded(gate, &life, ticket.index, forward(server, request)).await?;
    drop(lagging);
    let response = match about.verb {
        _ if about.is_discovery() => response.map(GatedBody::Server),
        Verb::Watch if response.status().is_success() => {
            response.map(|body| GatedBody::Watch(Box::new(GatedWatch::new(harness, &life, &about.resource, body))))
        }
        _ => {
            let answer = look(harness, page, &life, &about, ticket.index, deletion, response).await;
            answer.map(GatedBody::whole)
        }
    };
    harness.check();
    if let Some(effect) = ticket.after.first() {
        match *effect {
            OnAnswer::Crash(down) => {
                harness.crash(&life.client, down);
                return pending().await;
            }
            OnAnswer::Break(time) => {
                harness.wait(time).await;
                gate.outcome(&life, ticket.index, Outcome::Broken);
                return Err(broken());
            }
            OnAnswer::Wait(time) => harness.wait(time).await,
            OnAnswer::Stop(time) => harness.stop(&life.client, time).await,
        }
    }
    if let Some(until) = gate.paused(&life.client) {
        sleep_until(until).await;
    }
    if life.is_dead() {
        return pending().await;
    }
    gate.outcome(&life, ticket.index, Outcome::Answered(response.status().as_u16()));
    Ok(response)
}

/// Waits for the response to a request. If the request fails, records a broken connection.
async fn recorded(
    gate: &Gate,
    life: &Life,
    index: usize,
    response: impl Future<Output = io::Result<Response<ResponseBody>>>,
) -> io::Result<Response<ResponseBody>> {
    let response = response.await;
    if response.is_err() {
        gate.outcome(life, index, Outcome::Broken);
    }
    response
}

/// Returns the page of a response if the client receives the response.
fn received(after: &[OnAnswer], page: Page) -> Option<Page> {
    let is_lost = matches!(after.first(), Some(OnAnswer::Crash(_) | OnAnswer::Break(_)));
    (!is_lost).then_some(page)
}

/// A request that has not reached the server yet.
struct Passing<'a> {
    about: &'a Request,
    /// Index of the request in the trace.
    index: usize,
    server: &'a ClientService,
    parts: &'a mut http::request::Parts,
    body: &'a Bytes,
}

/// Applies faults to a request before it reaches the server. Returns `Err` with the response for the client if the
/// request must not reach the server. Otherwise returns the guard of a lagging replica if the read must return an older
/// state.
async fn before(
    harness: &Arc<Harness>,
    life: &Arc<Life>,
    passing: &mut Passing<'_>,
    effects: &[OnRequest],
) -> Result<Option<Lagging>, Answer> {
    let (gate, index) = (&harness.gate, passing.index);
    let mut lagging = None;
    for effect in effects {
        match *effect {
            OnRequest::ReadOld(percent) => {
                lagging = stale(gate, life, passing.about, &mut passing.parts.uri, percent);
            }
            OnRequest::Rewind(changes) => {
                let lag = harness.timing.window(LAG);
                rewind(gate, life, passing.about, &mut passing.parts.uri, changes, lag);
            }
            OnRequest::ArriveLate { after, crashes } => {
                let request = http::Request::from_parts(passing.parts.clone(), Full::new(passing.body.clone()));
                let request = forward(passing.server.clone(), request);
                arrive_late(harness, life, passing.about, index, after, request);
                if crashes {
                    harness.crash(&life.client, RESTART);
                    return pending().await;
                }
                gate.outcome(life, index, Outcome::Broken);
                return Err(Err(broken()));
            }
            OnRequest::Crash(down) => {
                harness.crash(&life.client, down);
                return pending().await;
            }
            OnRequest::Refuse(code) => {
                let (code, body) = failure(code);
                gate.keep(index, &body, |it| &mut it.answer);
                let answer = refused(code, body);
                gate.outcome(life, index, Outcome::Answered(answer.status().as_u16()));
                return Err(Ok(answer));
            }
            OnRequest::Lose(time) => {
                harness.wait(time).await;
                gate.outcome(life, index, Outcome::Broken);
                return Err(Err(broken()));
            }
            OnRequest::Wait(time) => harness.wait(time).await,
            OnRequest::CutOff(time) => {
                gate.pause(&life.client, time);
                sleep(time).await;
            }
            OnRequest::Freeze(time) => {
                harness.freeze(life, time);
                sleep(time).await;
            }
            OnRequest::RestartServer(down) => {
                gate.lasts(down);
                gate.server.restart(RestartLog::Lost, down, &[TEST_CLIENT]);
            }
            OnRequest::Overtake => {
                if let Some(object) = gate.stored(passing.about) {
                    gate.server.touch(&object);
                }
            }
        }
    }
    Ok(lagging)
}

/// Returns the code and the body of an error response, in the format of kube-apiserver.
fn failure(code: u16) -> (u16, Bytes) {
    let status = match code {
        410 => Status::expired("The resourceVersion for the provided watch is too old."),
        429 => {
            let message = "the server has received too many requests and has asked us to try again later";
            Status::new(429, "TooManyRequests", message).with_retry_after(1)
        }
        422 => Status::new(
            422,
            "Invalid",
            "ListOptions.meta.k8s.io \"\" is invalid: sendInitialEvents: Forbidden: sendInitialEvents is forbidden for \
             watch unless the WatchList feature gate is enabled",
        ),
        403 => Status::new(
            403,
            "Forbidden",
            "exceeded quota: objects, requested: count=1, used: count=10, limited: count=10",
        ),
        503 => Status::new(503, "ServiceUnavailable", "apiserver not ready"),
        504 => {
            let message = "Timeout: request did not complete within requested timeout - context deadline exceeded";
            Status::new(504, "Timeout", message)
        }
        _ => Status::internal("etcdserver: leader changed"),
    };
    (code, status.to_value().to_string().into_bytes().into())
}

fn refused(code: u16, body: Bytes) -> Response<GatedBody> {
    let mut response = Response::new(GatedBody::whole(body));
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        header::HeaderValue::from_static("application/json"),
    );
    if code == 429 {
        headers.insert(header::RETRY_AFTER, header::HeaderValue::from_static("1"));
    }
    response
}

/// Sends a request to the server.
async fn forward<B>(server: ClientService, request: http::Request<B>) -> io::Result<Response<ResponseBody>>
where
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    server.oneshot(request).await
}

/// Body of a response that is delivered through the gate.
pub(crate) enum GatedBody {
    Whole(Option<Bytes>),
    Watch(Box<GatedWatch>),
    Server(ResponseBody),
}

impl GatedBody {
    fn whole(bytes: Bytes) -> Self {
        Self::Whole(Some(bytes))
    }
}

impl http_body::Body for GatedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, BoxError>>> {
        match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|it| Ok(http_body::Frame::data(it)))),
            Self::Watch(watch) => {
                Poll::Ready(std::task::ready!(watch.poll_line(cx)).map(|it| it.map(http_body::Frame::data)))
            }
            Self::Server(body) => Pin::new(body).poll_frame(cx),
        }
    }
}
