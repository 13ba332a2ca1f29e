//! A `kube::Client` whose every message passes the gate.

use std::future::pending;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use fake_apiserver::api::request_info::ResourcePath;
use fake_apiserver::api::status::Status;
use fake_apiserver::{ClientService, ResponseBody, Verb};
use http::{Method, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use memchr::memmem;
use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio::time::{sleep, sleep_until};
use tower::{BoxError, Service, ServiceExt};

use super::gate::Gate;
use super::late::arrive_late;
use super::life::{Life, Shown};
use super::owners::{Deletion, Owner, is_garbage};
use super::pages::Page;
use super::plan::Action;
use super::stale::stale;
use super::timeline::name_in;
use super::trace::{Outcome, Request, timeless};
use super::watch::GatedWatch;

/// Downtime of a controller whose request arrives late.
const RESTART: Duration = Duration::from_secs(1);

/// The name of the parameter that says how old a read may be.
pub(crate) const REVISION: &str = "resourceVersion";

/// Builds the clients of one life of a controller.
#[derive(Clone)]
pub(crate) struct GatedService {
    gate: Arc<Gate>,
    life: Arc<Life>,
    server: ClientService,
}

impl GatedService {
    /// For a new life of the controller `name`.
    pub(crate) fn new(gate: &Arc<Gate>, name: &str) -> Self {
        let life = gate.life(name);
        gate.skew_clock(&life.client, name);
        let (gate, server) = (Arc::clone(gate), gate.server.client_service(name));
        Self { gate, life, server }
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
        let Self { gate, life, server } = self.clone();
        Box::pin(async move {
            match read(&request) {
                None => Ok(forward(server, request).await?.map(GatedBody::Server)),
                Some(read) => pass(&gate, life, server, request, read).await,
            }
        })
    }
}

/// Reads the verb, the resource and the object of a request off its path.
fn read<B>(request: &http::Request<B>) -> Option<Request> {
    let path = ResourcePath::parse(request.uri().path())?;
    let query = request.uri().query().unwrap_or_default();
    let parameter = |name: &str| query.split('&').find_map(|it| it.strip_prefix(name)?.strip_prefix('='));
    let is_collection = path.name.is_empty();
    let is_watch = path.legacy_watch || matches!(parameter("watch"), Some("true" | "1"));
    let verb = match (request.method(), is_collection) {
        (&Method::GET, true) if is_watch => Verb::Watch,
        (&Method::GET, true) => Verb::List,
        (&Method::GET, false) => Verb::Get,
        (&Method::POST, _) => Verb::Create,
        (&Method::PUT, _) => Verb::Update,
        (&Method::PATCH, _) => Verb::Patch,
        (&Method::DELETE, true) => Verb::DeleteCollection,
        (&Method::DELETE, false) => Verb::Delete,
        _ => return None,
    };
    let mut resource = path.resource.to_owned();
    if !path.group.is_empty() {
        resource = format!("{resource}.{}", path.group);
    }
    if !path.subresource.is_empty() {
        resource = format!("{resource}/{}", path.subresource);
    }
    Some(Request {
        verb,
        object: format!("{}/{}", path.namespace, timeless(&resource, path.name)),
        resource,
        creates: None,
        made_from: None,
        reached: None,
        saw: None,
        is_of_another: false,
        may_conflict: false,
        may_be_stale: matches!(verb, Verb::List | Verb::Get) && parameter(REVISION) == Some("0"),
        may_expire: verb == Verb::List
            && (parameter("continue").is_some() || parameter("resourceVersionMatch") == Some("Exact")),
        streams_list: verb == Verb::Watch && parameter("sendInitialEvents") == Some("true"),
        outcome: Outcome::Open,
    })
}

type Answer = Result<Response<GatedBody>, io::Error>;

/// Passes a request on, with its faults.
async fn pass<B>(
    gate: &Arc<Gate>,
    life: Arc<Life>,
    server: ClientService,
    request: http::Request<B>,
    about: Request,
) -> Answer
where
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    if life.is_dead() {
        return pending().await;
    }
    let (mut parts, body) = request.into_parts();
    let mut about = about;
    // The bodies of clients are in memory; one that cannot be read is none.
    let body = body.collect().await.map(|it| it.to_bytes()).unwrap_or_default();
    look_inside(&mut about, &life, &body);
    let Some(ticket) = gate.request(&life, about.clone(), parts.uri.path()) else {
        return pending().await;
    };
    while let Some(until) = gate.paused(&life.client) {
        sleep_until(until).await;
    }
    let mut lagging = None;
    for action in &ticket.actions {
        if let Some(answer) = before(gate, &life, &about, *action).await {
            gate.outcome(&life, ticket.index, outcome(&answer));
            return answer;
        }
        if let Action::Stale(percent) = action {
            lagging = stale(gate, &life, &about, &mut parts.uri, *percent);
        }
        if let Action::Late(time) | Action::CrashLate(time) = *action {
            let request = http::Request::from_parts(parts, Full::new(body));
            arrive_late(gate, &life, &about, ticket.index, time, forward(server, request));
            if let Action::CrashLate(_) = action {
                gate.crash(&life, RESTART);
                return pending().await;
            }
            gate.outcome(&life, ticket.index, Outcome::Broken);
            return Err(broken());
        }
    }
    if life.is_dead() {
        return pending().await;
    }
    let pages = gate.page(&about, &mut parts.uri);
    let deletion = Deletion::of(gate, &about, &body);
    gate.reaches(ticket.index);
    let response = forward(server, http::Request::from_parts(parts, Full::new(body))).await?;
    drop(lagging);
    let code = response.status().as_u16();
    let response = match about.verb {
        Verb::Watch if response.status().is_success() => {
            response.map(|body| GatedBody::Watch(Box::new(GatedWatch::new(gate, &life, &about.resource, body))))
        }
        _ => look(gate, Some(pages), &life, &about, ticket.index, deletion, response).await,
    };
    gate.check();
    for action in &ticket.actions {
        if let Some(broken) = after(gate, &life, *action).await {
            gate.outcome(&life, ticket.index, Outcome::Broken);
            return broken;
        }
    }
    if let Some(until) = gate.paused(&life.client) {
        sleep_until(until).await;
    }
    if life.is_dead() {
        return pending().await;
    }
    gate.outcome(&life, ticket.index, Outcome::Answered(code));
    Ok(response)
}

/// Adds to what is known of a request what its body says, and what its client knows of the object.
fn look_inside(about: &mut Request, life: &Life, body: &Bytes) {
    about.may_conflict =
        matches!(about.verb, Verb::Update | Verb::Patch | Verb::Delete) && contains(body, b"\"resourceVersion\"");
    if about.verb == Verb::Create {
        about.creates = name_in(body);
        about.made_from = about
            .creates
            .as_ref()
            .and_then(|it| it.strip_suffix('*'))
            .map(str::to_owned);
        about.creates = about
            .creates
            .take()
            .map(|it| timeless(&about.resource, &it).into_owned());
    } else if about.is_write() {
        let (namespace, name) = about.object.split_once('/').unwrap_or_default();
        about.saw = life.uid(&about.resource, namespace, name);
    }
}

/// Applies the faults that strike before the server has the request; returns an answer if the server is not to have it.
async fn before(gate: &Arc<Gate>, life: &Life, about: &Request, action: Action) -> Option<Answer> {
    match action {
        Action::CrashBefore(down) => {
            gate.crash(life, down);
            pending().await
        }
        Action::Fail(code) => Some(Ok(failure(code))),
        Action::Silence(time) => {
            gate.lasts(time);
            sleep(time).await;
            Some(Err(broken()))
        }
        Action::Delay(time) => {
            gate.lasts(time);
            sleep(time).await;
            None
        }
        Action::Pause(time) => {
            gate.pause(&life.client, time);
            sleep(time).await;
            None
        }
        Action::Conflict => {
            if let Some(object) = gate.stored(about) {
                gate.server.touch(&object);
            }
            None
        }
        Action::CrashAfter(_)
        | Action::Lose
        | Action::SilenceAfter(_)
        | Action::Stale(_)
        | Action::Hold(_)
        | Action::Miss(_)
        | Action::Cut
        | Action::Expire
        | Action::Twice
        | Action::HalfOpen(_)
        | Action::Drop
        | Action::Skew(_)
        | Action::Late(_)
        | Action::CrashLate(_)
        | Action::Early
        | Action::SmallPages
        | Action::LargeVersions
        | Action::RestartAtEnd => None,
    }
}

/// Applies the faults that strike when the request is done; returns an answer if the server's is lost.
async fn after(gate: &Arc<Gate>, life: &Life, action: Action) -> Option<Answer> {
    match action {
        Action::CrashAfter(down) => {
            gate.crash(life, down);
            pending().await
        }
        Action::Lose => Some(Err(broken())),
        Action::SilenceAfter(time) => {
            gate.lasts(time);
            sleep(time).await;
            Some(Err(broken()))
        }
        Action::CrashBefore(_)
        | Action::Fail(_)
        | Action::Conflict
        | Action::Silence(_)
        | Action::Delay(_)
        | Action::Pause(_)
        | Action::Stale(_)
        | Action::Hold(_)
        | Action::Miss(_)
        | Action::Cut
        | Action::Expire
        | Action::Twice
        | Action::HalfOpen(_)
        | Action::Drop
        | Action::Skew(_)
        | Action::Late(_)
        | Action::CrashLate(_)
        | Action::Early
        | Action::SmallPages
        | Action::LargeVersions
        | Action::RestartAtEnd => None,
    }
}

fn outcome(answer: &Answer) -> Outcome {
    match answer {
        Ok(response) => Outcome::Answered(response.status().as_u16()),
        Err(_) => Outcome::Broken,
    }
}

pub(crate) fn broken() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "connection reset by peer")
}

/// A failure as the server would answer it.
fn failure(code: u16) -> Response<GatedBody> {
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
        503 => Status::new(503, "ServiceUnavailable", "apiserver not ready"),
        504 => {
            let message = "Timeout: request did not complete within requested timeout - context deadline exceeded";
            Status::new(504, "Timeout", message)
        }
        _ => Status::internal("etcdserver: leader changed"),
    };
    let mut response = Response::new(GatedBody::whole(status.to_value().to_string().into_bytes().into()));
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

/// Reads what an answer shows to the client, and hands it on. Without a page nothing is recorded.
pub(crate) async fn look(
    gate: &Gate,
    pages: Option<Page>,
    life: &Life,
    about: &Request,
    index: usize,
    deletion: Deletion,
    response: Response<ServerBody>,
) -> Response<GatedBody> {
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.map(|it| it.to_bytes()).unwrap_or_default();
    if parts.status.is_success()
        && let Ok(answer) = serde_json::from_slice::<Answered>(&bytes)
    {
        let mut shown = answer.shown();
        if shown.generate_name.is_empty() {
            shown.generate_name = deletion.generate_name;
        }
        let about_it = &answer.metadata;
        let is_created =
            parts.status == StatusCode::CREATED && !is_garbage(gate, about_it.namespace, &about_it.owner_references);
        gate.struck(about, index, &shown);
        gate.done(life, about, is_created, &shown, deletion.has_precondition);
        let Some(page) = pages else {
            return Response::from_parts(parts, GatedBody::whole(bytes));
        };
        gate.paged(life, about, page, answer.metadata.go_on);
        match &answer.items {
            Some(items) => {
                life.told(&about.resource, &shown);
                items.iter().for_each(|item| life.told(&about.resource, &item.shown()));
            }
            None if about.verb == Verb::Delete => {}
            None => life.told_of_object(&about.resource, &shown),
        }
    }
    Response::from_parts(parts, GatedBody::whole(bytes))
}

/// The parts of an answer that the gate reads.
#[derive(Deserialize)]
struct Answered<'a> {
    #[serde(borrow, default)]
    metadata: Metadata<'a, Vec<Owner<'a>>>,
    #[serde(borrow)]
    items: Option<Vec<Item<'a>>>,
    #[serde(borrow)]
    details: Option<Details<'a>>,
}

#[derive(Deserialize)]
struct Item<'a> {
    #[serde(borrow, default)]
    metadata: Metadata<'a>,
}

/// The metadata of an object, with its owners where these are read.
#[derive(Default, Deserialize)]
#[serde(
    rename_all = "camelCase",
    default,
    bound(deserialize = "O: Default + Deserialize<'de>")
)]
struct Metadata<'a, O = IgnoredAny> {
    name: &'a str,
    namespace: &'a str,
    generate_name: &'a str,
    uid: &'a str,
    resource_version: &'a str,
    #[serde(rename = "continue")]
    go_on: &'a str,
    owner_references: O,
}

/// The details in the Status that answers a delete.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Details<'a> {
    name: &'a str,
    uid: &'a str,
}

impl<O> Metadata<'_, O> {
    fn shown(&self) -> Shown {
        Shown {
            namespace: self.namespace.to_owned(),
            name: self.name.to_owned(),
            generate_name: self.generate_name.to_owned(),
            uid: self.uid.to_owned(),
            revision: self.resource_version.parse().unwrap_or_default(),
        }
    }
}

impl Item<'_> {
    fn shown(&self) -> Shown {
        self.metadata.shown()
    }
}

impl Answered<'_> {
    fn shown(&self) -> Shown {
        let mut shown = self.metadata.shown();
        if let Some(details) = &self.details {
            (shown.name, shown.uid) = (details.name.to_owned(), details.uid.to_owned());
        }
        shown
    }
}

/// An event of a watch as the gate reads it.
#[derive(Deserialize)]
pub(crate) struct Line<'a> {
    #[serde(rename = "type")]
    pub(crate) kind: &'a str,
    #[serde(borrow)]
    object: Item<'a>,
}

impl Line<'_> {
    pub(crate) fn shown(&self) -> Shown {
        self.object.shown()
    }
}

pub(crate) fn contains(text: &Bytes, what: &[u8]) -> bool {
    memmem::find(text, what).is_some()
}

/// Asks the server.
async fn forward<B>(server: ClientService, request: http::Request<B>) -> io::Result<Response<ServerBody>>
where
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    server.oneshot(request).await
}

/// The body of an answer of the server.
pub(crate) type ServerBody = ResponseBody;

/// The body of an answer that passed the gate.
pub(crate) enum GatedBody {
    Whole(Option<Bytes>),
    Watch(Box<GatedWatch>),
    Server(ServerBody),
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
