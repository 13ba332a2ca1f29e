//! `Verdict`: the treatment of one request, decided at once or later.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::api::status::Status;

/// Time at which a fault strikes: before a request is handled or after.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum When {
    /// Nothing was done: the state is as it was.
    Before,
    /// It was done: the state has changed, and the client does not learn it.
    After,
}

/// Decision of a fault about a request.
#[derive(Debug)]
pub enum Verdict {
    /// No effect: the next rule decides.
    Pass,
    /// It is answered with this Status and not handled.
    Fail(Box<Status>),
    /// The request is handled, and then answered with this Status: the client does not learn the result.
    Lose(Box<Status>),
    /// Handled after this time on the server's clock. Simulates a slow network on the way in.
    Delay(Duration),
    /// It is handled at once and answered after this time: the answer is as old when it comes. So a list is slow whose
    /// items take long to send.
    DelayAnswer(Duration),
    /// It is not handled: the connection is refused, as where no server listens.
    Refuse,
    /// The connection breaks, with no answer.
    Reset(When),
    /// There is never an answer, and the connection stays.
    Hang(When),
    /// It is handled; of the answer's body only so many bytes come, then the connection breaks. Of a watch they are
    /// counted over all its events.
    Truncate(usize),
    /// It waits, not yet handled, for another verdict; see [`Verdict::held`].
    Held(Held),
    /// It is handled, and its answer waits for another verdict, in which [`When`] no longer matters; see
    /// [`Verdict::held_answer`].
    HeldAnswer(Held),
}

/// A verdict to come.
#[derive(Debug)]
pub struct Held(oneshot::Receiver<Verdict>);

/// Decides about a request that is held. If it is dropped, the request passes.
#[derive(Debug)]
pub struct Decision(oneshot::Sender<Verdict>);

impl Verdict {
    /// A request that waits before it is handled, until it is decided; the decision may be to hold it again.
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

    /// A request that is handled at once and whose answer waits until it is decided.
    pub fn held_answer() -> (Self, Decision) {
        let (decision, held) = oneshot::channel();
        (Self::HeldAnswer(Held(held)), Decision(decision))
    }
}

impl Decision {
    /// Decides the request. Fails, and returns the verdict, if the request no longer waits: the client gave the
    /// request up.
    pub fn decide(self, verdict: Verdict) -> Result<(), Verdict> {
        self.0.send(verdict)
    }

    /// Returns `true` if the client gave up the request.
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
    /// As the journal names it: `409 Conflict, not done`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pass => f.write_str("passes"),
            Self::Fail(status) => write!(f, "{} {}, not done", status.code, status.reason),
            Self::Lose(status) => write!(f, "{} {}, though done", status.code, status.reason),
            Self::Delay(time) => write!(f, "delayed by {time:?}"),
            Self::DelayAnswer(time) => write!(f, "answered {time:?} late"),
            Self::Refuse => f.write_str("connection refused"),
            Self::Reset(When::Before) => f.write_str("connection reset, not done"),
            Self::Reset(When::After) => f.write_str("connection reset, though done"),
            Self::Hang(When::Before) => f.write_str("never answered, not done"),
            Self::Hang(When::After) => f.write_str("never answered, though done"),
            Self::Truncate(bytes) => write!(f, "cut after {bytes} bytes"),
            Self::Held(_) => f.write_str("held"),
            Self::HeldAnswer(_) => f.write_str("answer held"),
        }
    }
}
