//! `Struck`: the effects of faults on one request, before and after it is handled.

use super::{Faults, Held, Seen, Verdict, When};
use crate::api::status::Status;

/// Type of connection failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// The connection is refused.
    Refused,
    /// The connection is reset.
    Reset,
    /// The connection stays open without a response.
    Silent,
}

/// Final outcome of a request.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The server's response, unchanged.
    AsIs,
    /// This Status instead of the server's response.
    Instead(Box<Status>),
    /// The server's response, truncated after this number of bytes.
    Truncated(usize),
    /// A connection failure instead of a response.
    Broken(Broken),
}

/// The verdicts that have affected a request, and a verdict that is applied to its response.
#[derive(Debug, Default)]
pub(crate) struct Struck {
    /// The verdict on the response, applied after the request is handled.
    later: Option<Verdict>,
    /// Descriptions of the verdicts, for the journal.
    pub(crate) verdicts: Vec<String>,
}

impl Faults {
    /// Evaluates the rules for a request, and waits while they hold or delay the request. If this returns an outcome,
    /// the request must not be handled.
    pub(crate) async fn before(&self, request: Seen<'_>, struck: &mut Struck) -> Option<Outcome> {
        let mut verdict = self.rules.verdict(&request);
        loop {
            struck.note(&verdict);
            verdict = match verdict {
                Verdict::Pass => return None,
                Verdict::Fail(status) => return Some(Outcome::Instead(status)),
                Verdict::Refuse => return Some(Outcome::Broken(Broken::Refused)),
                Verdict::Reset(When::Before) => return Some(Outcome::Broken(Broken::Reset)),
                Verdict::Hang(When::Before) => return Some(Outcome::Broken(Broken::Silent)),
                Verdict::Delay(time) => {
                    tokio::time::sleep(time).await;
                    return None;
                }
                Verdict::Held(held) => held.await,
                later @ (Verdict::Lose(_)
                | Verdict::DelayAnswer(_)
                | Verdict::Reset(When::After)
                | Verdict::Hang(When::After)
                | Verdict::Truncate(_)
                | Verdict::HeldAnswer(_)) => {
                    struck.later = Some(later);
                    return None;
                }
            }
        }
    }
}

impl Struck {
    fn note(&mut self, verdict: &Verdict) {
        if !matches!(verdict, Verdict::Pass) {
            self.verdicts.push(verdict.to_string());
        }
    }

    /// Returns the outcome of a handled request, after waiting for a delay or a decision.
    pub(crate) async fn after(&mut self) -> Outcome {
        let Some(mut verdict) = self.later.take() else {
            return Outcome::AsIs;
        };
        loop {
            let held: Held = match verdict {
                Verdict::Pass => return Outcome::AsIs,
                Verdict::Fail(status) | Verdict::Lose(status) => return Outcome::Instead(status),
                Verdict::Refuse | Verdict::Reset(_) => return Outcome::Broken(Broken::Reset),
                Verdict::Hang(_) => return Outcome::Broken(Broken::Silent),
                Verdict::Truncate(bytes) => return Outcome::Truncated(bytes),
                Verdict::Delay(time) | Verdict::DelayAnswer(time) => {
                    tokio::time::sleep(time).await;
                    return Outcome::AsIs;
                }
                Verdict::Held(held) | Verdict::HeldAnswer(held) => held,
            };
            verdict = held.await;
            self.note(&verdict);
        }
    }
}
