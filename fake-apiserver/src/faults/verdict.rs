//! `Verdict`: the effect of a fault on one request, which is decided immediately or later.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::api::status::Status;

/// Time at which a fault takes effect: before or after the request is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum When {
    /// Before the request is executed: the state is unchanged.
    Before,
    /// After the request was executed: the state has changed, but the client does not receive the result.
    After,
}

/// The outcome that a fault determines for one request.
#[derive(Debug)]
#[non_exhaustive]
pub enum Verdict {
    /// The fault does not affect the request; the next rule decides.
    Pass,
    /// The request is not handled. The response is this Status.
    Fail(Box<Status>),
    /// The request is handled, but the response is this Status: the client does not receive the result.
    Lose(Box<Status>),
    /// The request is handled after this time on the server's clock, as over a slow network.
    Delay(Duration),
    /// The request is handled immediately, and the response is sent after this time. The response contains the state
    /// before the delay, like a long list that takes time to send.
    DelayAnswer(Duration),
    /// The request is not handled: the connection is refused, as if no server were listening.
    Refuse,
    /// The connection breaks without a response.
    Reset(When),
    /// The connection stays open without a response.
    Hang(When),
    /// The request is handled, and the connection breaks after this number of bytes of the response body. For a watch,
    /// this is the number of bytes of all its events.
    Truncate(usize),
    /// The request waits for a later verdict before it is handled. See [`Verdict::held`].
    Held(Held),
    /// The request is handled, and its response waits for a later verdict. The [`When`] of that verdict is ignored. See
    /// [`Verdict::held_answer`].
    HeldAnswer(Held),
}

/// A verdict to be decided later.
#[derive(Debug)]
pub struct Held(oneshot::Receiver<Verdict>);

/// Resolves a held request. If the `Decision` is dropped, the request passes.
#[derive(Debug)]
pub struct Decision(oneshot::Sender<Verdict>);

impl Verdict {
    /// Returns a verdict that holds a request before it is handled, until the [`Decision`]. The decision may hold the
    /// request again.
    ///
    /// ```
    /// use std::sync::{Arc, Mutex};
    /// use fake_apiserver::{ApiServer, Seen, Verdict};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let server = ApiServer::start();
    /// let choices = Arc::new(Mutex::new(Vec::new()));
    /// let theirs = Arc::clone(&choices);
    /// server.inject(move |_: &Seen<'_>| {
    ///     let (verdict, decision) = Verdict::held();
    ///     theirs.lock().unwrap().push(decision);
    ///     verdict
    /// }).forget();
    ///
    /// let request = http::Request::get("/api/v1/pods").body("").unwrap();
    /// let ask = async { server.call(request).await.status() };
    /// let choose = async {
    ///     while choices.lock().unwrap().is_empty() {
    ///         tokio::task::yield_now().await;
    ///     }
    ///     let decision = choices.lock().unwrap().pop().unwrap();
    ///     decision.decide(Verdict::Pass).unwrap();
    /// };
    /// let (status, ()) = futures::join!(ask, choose);
    /// assert_eq!(status, 200);
    /// # }
    /// ```
    pub fn held() -> (Self, Decision) {
        let (decision, held) = oneshot::channel();
        (Self::Held(Held(held)), Decision(decision))
    }

    /// Returns a verdict that handles a request immediately and holds its response until the [`Decision`].
    pub fn held_answer() -> (Self, Decision) {
        let (decision, held) = oneshot::channel();
        (Self::HeldAnswer(Held(held)), Decision(decision))
    }
}

impl Decision {
    /// Resolves the held request with `verdict`. Returns the verdict as an error if the client has already cancelled
    /// the request, or a restart of the server has broken its connection.
    pub fn decide(self, verdict: Verdict) -> Result<(), Verdict> {
        self.0.send(verdict)
    }

    /// Returns `true` if the client has cancelled the request, or a restart of the server has broken its connection.
    pub fn is_abandoned(&self) -> bool {
        self.0.is_closed()
    }
}

impl Future for Held {
    type Output = Verdict;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Verdict> {
        Pin::new(&mut self.0)
            .poll(cx)
            .map(|decided| decided.unwrap_or(Verdict::Pass))
    }
}

impl fmt::Display for Verdict {
    /// Formats the verdict for the journal, like `409 Conflict, request not executed`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pass => f.write_str("passes"),
            Self::Fail(status) => write!(f, "{} {}, request not executed", status.code, status.reason),
            Self::Lose(status) => write!(f, "{} {}, request executed", status.code, status.reason),
            Self::Delay(time) => write!(f, "delayed by {time:?}"),
            Self::DelayAnswer(time) => write!(f, "response delayed by {time:?}"),
            Self::Refuse => f.write_str("connection refused"),
            Self::Reset(When::Before) => f.write_str("connection reset before the request was executed"),
            Self::Reset(When::After) => f.write_str("connection reset after the request was executed"),
            Self::Hang(When::Before) => f.write_str("no response, request not executed"),
            Self::Hang(When::After) => f.write_str("no response, request executed"),
            Self::Truncate(bytes) => write!(f, "cut after {bytes} bytes"),
            Self::Held(_) => f.write_str("held"),
            Self::HeldAnswer(_) => f.write_str("response held"),
        }
    }
}
